//! Some rows of a file as text, by column.

use crate::failure::Failure;
use arrow_array::builder::StringBuilder;
use arrow_array::{Array, StringArray};

/// Rows of a chunk, at most.
const CHUNK_ROWS: usize = 8_192;
/// Bytes of text of a chunk, about at most: far below what an array of strings can hold.
const CHUNK_BYTES: usize = 32 << 20;
/// A longer field is refused: no column takes it.
const MOST_FIELD_BYTES: usize = 16 << 20;

/// A row that cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadRow {
    /// Where it begins in the file, from 1 on.
    pub(crate) line: u64,
    /// What is wrong with it.
    pub(crate) reason: String,
    /// The row as it was read.
    pub(crate) text: String,
}

/// Some rows as text.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// One per column of the file.
    pub(crate) columns: Vec<StringArray>,
    /// Columns with values that the file itself says are text.
    pub(crate) is_text: Vec<bool>,
    /// The line of each row.
    pub(crate) lines: Vec<u64>,
    /// Rows that are not even text by column.
    pub(crate) bad: Vec<BadRow>,
}

impl Chunk {
    pub(crate) fn rows(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.columns
            .iter()
            .map(|column| column.values().len())
            .sum()
    }

    /// A row as a line of CSV.
    pub(crate) fn text_of(&self, row: usize) -> String {
        let field = |column: &StringArray| {
            if column.is_null(row) {
                ""
            } else {
                column.value(row)
            }
            .to_owned()
        };
        csv_line(self.columns.iter().map(field))
    }
}

/// Fields as a line of CSV, without its end.
pub(crate) fn csv_line<T: AsRef<[u8]>>(fields: impl IntoIterator<Item = T>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Memory takes what is written to it.
    let written = writer.write_record(fields).is_ok();
    let bytes = writer.into_inner().unwrap_or_default();
    debug_assert!(written, "writing to memory failed");
    String::from_utf8_lossy(&bytes)
        .trim_end_matches('\n')
        .to_owned()
}

/// What cuts a file into chunks.
pub(crate) trait ReadChunks {
    /// The names of the columns.
    fn columns(&self) -> &[String];

    /// The next rows; `None` at the end.
    fn next_chunk(&mut self) -> Result<Option<Chunk>, Failure>;
}

/// Collects rows until they are a chunk.
#[derive(Debug)]
pub(crate) struct ChunkBuilder {
    columns: Vec<StringBuilder>,
    is_text: Vec<bool>,
    lines: Vec<u64>,
    bad: Vec<BadRow>,
    bytes: usize,
}

impl ChunkBuilder {
    pub(crate) fn new(columns: usize) -> Self {
        let builder = || StringBuilder::with_capacity(CHUNK_ROWS, CHUNK_ROWS * 8);
        Self {
            columns: std::iter::repeat_with(builder).take(columns).collect(),
            is_text: vec![false; columns],
            lines: Vec::with_capacity(CHUNK_ROWS),
            bad: Vec::new(),
            bytes: 0,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lines.len() + self.bad.len() >= CHUNK_ROWS || self.bytes >= CHUNK_BYTES
    }

    /// Adds a row; `fields` has one per column, with so many bytes together.
    pub(crate) fn push<'a>(
        &mut self,
        line: u64,
        bytes: usize,
        fields: impl Iterator<Item = Option<&'a str>> + Clone,
    ) {
        let too_long = |field: &str| field.len() > MOST_FIELD_BYTES;
        if bytes > MOST_FIELD_BYTES && fields.clone().flatten().any(too_long) {
            let reason = format!("a field is longer than {} MiB", MOST_FIELD_BYTES >> 20);
            return self.push_bad(line, reason, String::new());
        }
        self.bytes += bytes;
        for (column, field) in self.columns.iter_mut().zip(fields) {
            column.append_option(field);
        }
        self.lines.push(line);
    }

    pub(crate) fn mark_text(&mut self, column: usize) {
        self.is_text[column] = true;
    }

    pub(crate) fn push_bad(&mut self, line: u64, reason: String, text: String) {
        self.bad.push(BadRow { line, reason, text });
    }

    /// The chunk; `None` without rows.
    pub(crate) fn finish(mut self) -> Option<Chunk> {
        let (lines, bad) = (
            std::mem::take(&mut self.lines),
            std::mem::take(&mut self.bad),
        );
        if lines.is_empty() && bad.is_empty() {
            return None;
        }
        let columns = self.columns.iter_mut().map(StringBuilder::finish).collect();
        Some(Chunk {
            columns,
            is_text: self.is_text,
            lines,
            bad,
        })
    }
}
