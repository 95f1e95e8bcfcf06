//! Some rows of a file as text, by column.

use crate::failure::Failure;
use arrow_array::builder::{LargeBinaryBuilder, StringBuilder};
use arrow_array::{LargeBinaryArray, StringArray};

/// Most rows of a chunk.
const CHUNK_ROWS: usize = 8_192;
/// Approximate limit of the text of a chunk in bytes: far below what an array of strings can hold.
const CHUNK_BYTES: usize = 32 << 20;
/// A longer field is refused: no column takes it.
const MAX_FIELD_BYTES: usize = 16 << 20;

/// Why a row in another encoding is bad. Most such files come from spreadsheets.
pub(crate) const NOT_UTF8: &str =
    "it is not UTF-8: convert the file first, as with iconv -f latin1 -t utf-8";

/// A row that cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadRow {
    /// Where it begins in the file, from 1 on.
    pub(crate) line: u64,
    /// A description of what is wrong with it.
    pub(crate) reason: String,
    /// The row as it is in the file, byte by byte; empty where rows are not kept.
    pub(crate) raw: Vec<u8>,
}

impl BadRow {
    /// This row, with the name of the file in front of its reason.
    pub(crate) fn in_file(&self, file: Option<&str>) -> Self {
        let mut row = self.clone();
        if let Some(file) = file {
            row.reason = format!("{file}: {}", row.reason);
        }
        row
    }
}

/// Some rows as text.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// One per column of the file.
    pub(crate) columns: Vec<StringArray>,
    /// For each column, whether the file itself marks a value as text, as a string in JSON.
    pub(crate) is_text: Vec<bool>,
    /// The line of each row.
    pub(crate) lines: Vec<u64>,
    /// Each row as it is in the file, where that is wanted.
    raw: Option<LargeBinaryArray>,
    /// Rows that could not be cut into columns of text.
    pub(crate) bad: Vec<BadRow>,
    /// The name of the file, if several are imported.
    pub(crate) file: Option<String>,
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

    /// A row as it is in the file.
    pub(crate) fn raw_of(&self, row: usize) -> Vec<u8> {
        self.raw
            .as_ref()
            .map_or_else(Vec::new, |raw| raw.value(row).to_vec())
    }
}

/// Cuts a file into chunks.
pub(crate) trait ReadChunks {
    /// The names of the columns.
    fn columns(&self) -> &[String];

    /// The names of the columns, to be changed.
    fn columns_mut(&mut self) -> &mut [String];

    /// Separator of fields, in formats that have one.
    fn delimiter(&self) -> Option<u8>;

    /// Whether the header looks like a row of data.
    fn has_odd_header(&self) -> bool;

    /// Lines of comment in front of the header.
    fn comments(&self) -> u64 {
        0
    }

    /// The next rows; `None` at the end.
    fn next_chunk(&mut self) -> Result<Option<Chunk>, Failure>;
}

/// A reader that changes each chunk of another one, and with it the columns.
pub(crate) struct ChangedChunks<F> {
    pub(crate) inner: Box<dyn ReadChunks>,
    /// Names of the columns after the change.
    pub(crate) columns: Vec<String>,
    pub(crate) change: F,
}

impl<F: Fn(Chunk) -> Chunk> ReadChunks for ChangedChunks<F> {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn columns_mut(&mut self) -> &mut [String] {
        &mut self.columns
    }

    fn delimiter(&self) -> Option<u8> {
        self.inner.delimiter()
    }

    fn has_odd_header(&self) -> bool {
        self.inner.has_odd_header()
    }

    fn comments(&self) -> u64 {
        self.inner.comments()
    }

    fn next_chunk(&mut self) -> Result<Option<Chunk>, Failure> {
        let chunk = self.inner.next_chunk()?;
        Ok(chunk.map(&self.change))
    }
}

/// Collects rows until they are a chunk.
#[derive(Debug)]
pub(crate) struct ChunkBuilder {
    columns: Vec<StringBuilder>,
    is_text: Vec<bool>,
    lines: Vec<u64>,
    raw: Option<LargeBinaryBuilder>,
    bad: Vec<BadRow>,
    bytes: usize,
}

impl ChunkBuilder {
    /// `keeps_raw`: rows are wanted as they are in the file too, for those that turn out bad.
    pub(crate) fn new(columns: usize, keeps_raw: bool) -> Self {
        let builder = || StringBuilder::with_capacity(CHUNK_ROWS, CHUNK_ROWS * 8);
        Self {
            columns: std::iter::repeat_with(builder).take(columns).collect(),
            is_text: vec![false; columns],
            lines: Vec::with_capacity(CHUNK_ROWS),
            raw: keeps_raw.then(LargeBinaryBuilder::new),
            bad: Vec::new(),
            bytes: 0,
        }
    }

    /// Whether there is a row that is not bad.
    pub(crate) fn has_rows(&self) -> bool {
        !self.lines.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lines.len() + self.bad.len() >= CHUNK_ROWS || self.bytes >= CHUNK_BYTES
    }

    /// Adds a row; `raw` is what the file has of it, `fields` has one per column.
    pub(crate) fn push<'a>(
        &mut self,
        line: u64,
        raw: &[u8],
        fields: impl Iterator<Item = Option<&'a str>> + Clone,
    ) {
        // No field is longer than its row.
        let too_long = |field: &str| field.len() > MAX_FIELD_BYTES;
        if raw.len() > MAX_FIELD_BYTES && fields.clone().flatten().any(too_long) {
            let reason = format!("a field is longer than {} MiB", MAX_FIELD_BYTES >> 20);
            return self.push_bad(line, reason, raw);
        }
        self.bytes += raw.len();
        for (column, field) in self.columns.iter_mut().zip(fields) {
            column.append_option(field);
        }
        self.lines.push(line);
        if let Some(kept) = &mut self.raw {
            kept.append_value(raw);
        }
    }

    pub(crate) fn mark_text(&mut self, column: usize) {
        self.is_text[column] = true;
    }

    pub(crate) fn push_bad(&mut self, line: u64, reason: String, raw: &[u8]) {
        let kept = if self.raw.is_some() { raw } else { &[] };
        self.bytes += kept.len();
        let raw = kept.to_vec();
        self.bad.push(BadRow { line, reason, raw });
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
            raw: self.raw.as_mut().map(LargeBinaryBuilder::finish),
            bad,
            file: None,
        })
    }
}
