//! CSV: a header line, then one record per row, which may have several lines where fields are quoted.

use super::chunk::{Chunk, ChunkBuilder, ReadChunks, csv_line};
use super::source::Source;
use crate::arguments::ImportOptions;
use crate::failure::Failure;
use csv::ByteRecord;
use std::io::BufRead;
use thalweg::fold_name;

pub(super) struct CsvLines {
    reader: csv::Reader<Box<dyn BufRead>>,
    columns: Vec<String>,
    /// Fields that mean null.
    nulls: Vec<String>,
    /// Lines in front of what the reader has seen.
    skipped_lines: u64,
    record: ByteRecord,
    name: String,
}

impl CsvLines {
    pub(super) fn open(source: Source, options: &ImportOptions) -> Result<Self, Failure> {
        let Source {
            mut reader,
            name,
            is_tsv,
            ..
        } = source;
        for _ in 0..options.skip {
            reader
                .skip_until(b'\n')
                .map_err(|error| Failure::Other(format!("reading {name}: {error}")))?;
        }
        let delimiter = options
            .delimiter
            .unwrap_or(if is_tsv { b'\t' } else { b',' });
        let reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(delimiter)
            .from_reader(reader);
        let nulls = if options.null.is_empty() {
            vec![String::new()]
        } else {
            options.null.clone()
        };
        let mut lines = Self {
            reader,
            columns: Vec::new(),
            nulls,
            skipped_lines: options.skip,
            record: ByteRecord::new(),
            name,
        };
        lines.columns = lines.read_header()?;
        Ok(lines)
    }

    fn read_record(&mut self) -> Result<bool, Failure> {
        let name = &self.name;
        self.reader
            .read_byte_record(&mut self.record)
            .map_err(|error| Failure::Other(format!("reading {name}: {error}")))
    }

    fn read_header(&mut self) -> Result<Vec<String>, Failure> {
        if !self.read_record()? {
            return Err(Failure::Other(format!(
                "{} is empty: a header line with the names of columns is needed",
                self.name
            )));
        }
        let fail = |what: String| Failure::Other(format!("the header of {}: {what}", self.name));
        let mut names: Vec<String> = Vec::with_capacity(self.record.len());
        for (place, field) in self.record.iter().enumerate() {
            let name = std::str::from_utf8(field)
                .map_err(|_| fail("a name is not UTF-8".into()))?
                .trim()
                .to_owned();
            if name.is_empty() {
                return Err(fail(format!("column {} has no name", place + 1)));
            }
            if names
                .iter()
                .any(|other| fold_name(other) == fold_name(&name))
            {
                return Err(fail(format!("two columns are named \"{name}\"")));
            }
            names.push(name);
        }
        Ok(names)
    }

    /// Adds the record that was just read.
    fn push_record(&self, chunk: &mut ChunkBuilder) {
        let record = &self.record;
        let line = self.skipped_lines + record.position().map_or(0, csv::Position::line);
        let bad = |chunk: &mut ChunkBuilder, reason: String| {
            chunk.push_bad(line, reason, csv_line(record))
        };
        if record.len() != self.columns.len() {
            return bad(
                chunk,
                format!("{} fields instead of {}", record.len(), self.columns.len()),
            );
        }
        let Ok(text) = std::str::from_utf8(record.as_slice()) else {
            return bad(chunk, "it is not UTF-8".to_owned());
        };
        let field = |place: usize| {
            let field = record.range(place).and_then(|range| text.get(range))?;
            (!self.nulls.iter().any(|null| null == field)).then_some(field)
        };
        // Bytes may be UTF-8 together and not apart.
        if (0..record.len()).any(|place| {
            record
                .range(place)
                .is_none_or(|range| text.get(range).is_none())
        }) {
            return bad(chunk, "it is not UTF-8".to_owned());
        }
        chunk.push(line, text.len(), (0..record.len()).map(field));
    }
}

impl ReadChunks for CsvLines {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn next_chunk(&mut self) -> Result<Option<Chunk>, Failure> {
        let mut chunk = ChunkBuilder::new(self.columns.len());
        while !chunk.is_full() && self.read_record()? {
            self.push_record(&mut chunk);
        }
        Ok(chunk.finish())
    }
}
