//! CSV: a header line, then one record per row, which may have several lines where fields are quoted.

use super::chunk::{Chunk, ChunkBuilder, NOT_UTF8, ReadChunks};
use super::csv_records::CsvRecords;
use super::nulls::Nulls;
use super::numbers::is_float;
use super::source::Source;
use super::times::TimeText;
use super::{dialect, infer::is_marker};
use crate::arguments::ImportOptions;
use crate::counts::counted;
use crate::failure::Failure;
use std::collections::HashSet;
use thalweg::fold_name;

pub(super) struct CsvLines {
    records: CsvRecords,
    columns: Vec<String>,
    /// Fields that mean null, besides empty ones.
    nulls: Nulls,
    /// Lines that were skipped before the CSV reader began; it counts from the line after them.
    skipped_lines: u64,
    /// How many of the skipped lines are comments.
    comments: u64,
    keeps_raw: bool,
    /// Whether rows may lack fields at their end.
    pads: bool,
    name: String,
    delimiter: u8,
    /// Whether the record that was read last is a row that still has to be returned.
    is_row_ahead: bool,
    /// Whether the header looks like a row of data.
    has_odd_header: bool,
    /// Whether some row had as many fields as the header.
    has_rows: bool,
}

impl CsvLines {
    pub(super) fn open(source: Source, options: &ImportOptions) -> Result<Self, Failure> {
        let Source {
            mut reader,
            name,
            is_tsv,
            ..
        } = source;
        let fail = |error| Failure::Other(format!("reading {name}: {error}"));
        for _ in 0..options.skip {
            reader.skip_until(b'\n').map_err(fail)?;
        }
        let given = options.delimiter.or(is_tsv.then_some(b'\t'));
        let quote = options.quote.unwrap_or(b'"');
        let detected = dialect::detect(reader, given, quote).map_err(fail)?;
        let mut lines = Self {
            records: CsvRecords::new(detected.reader, detected.delimiter, quote),
            columns: Vec::new(),
            nulls: Nulls::new(&options.null),
            skipped_lines: options.skip + detected.lines,
            comments: detected.comments,
            keeps_raw: options.rejects.is_some(),
            pads: options.null_padding,
            name,
            delimiter: detected.delimiter,
            is_row_ahead: false,
            has_odd_header: false,
            has_rows: false,
        };
        lines.read_header(options.no_header, detected.ends_with_separators)?;
        Ok(lines)
    }

    fn read_record(&mut self) -> Result<bool, Failure> {
        let name = &self.name;
        self.records
            .read()
            .map_err(|error| Failure::Other(format!("reading {name}: {error}")))
    }

    fn read_header(&mut self, no_header: bool, ends_with_separators: bool) -> Result<(), Failure> {
        if !self.read_record()? {
            let needed = if no_header {
                "there is no row"
            } else {
                "a header line with the names of columns is needed"
            };
            return Err(Failure::Other(format!("{} is empty: {needed}", self.name)));
        }
        if no_header {
            self.columns = (0..self.records.record.len()).map(unnamed).collect();
            self.is_row_ahead = true;
            return Ok(());
        }
        let fail = |what: String| Failure::Other(format!("the header of {}: {what}", self.name));
        if let Some(reason) = self.open_quote() {
            return Err(fail(reason));
        }
        let record = &self.records.record;
        let mut names: Vec<String> = Vec::with_capacity(record.len());
        let mut is_odd = true;
        let (mut has_number, mut has_time_of_day) = (false, false);
        let mut taken = HashSet::new();
        let mut repeated = None;
        for (place, field) in record.iter().enumerate() {
            let name = std::str::from_utf8(field)
                .map_err(|_| fail(NOT_UTF8.to_owned()))?
                .trim();
            let is_number = is_float(name);
            let is_time = !is_number && TimeText::parse(name).is_some();
            has_number |= is_number;
            has_time_of_day |= is_time && name.contains(':');
            is_odd &= name.is_empty() || is_number || is_time || is_marker(name);
            let name = if name.is_empty() {
                unnamed(place)
            } else {
                name.to_owned()
            };
            if taken.insert(fold_name(&name)) {
                names.push(name);
                continue;
            }
            let mut numbered = (1_u64..).map(|number| format!("{name}_{number}"));
            names.extend(numbered.find(|name| taken.insert(fold_name(name))));
            repeated.get_or_insert(name);
        }
        if let Some(name) = repeated.filter(|_| is_odd) {
            return Err(fail(format!(
                "two columns are named \"{name}\"; if there is no header: --no-header"
            )));
        }
        if ends_with_separators {
            names.pop();
        }
        self.columns = names;
        // A header of years or dates alone is fine: a pivoted table has them as names of columns.
        self.has_odd_header = is_odd || has_number && has_time_of_day;
        Ok(())
    }

    /// The message for the record that was just read if the file ends inside its quotes.
    fn open_quote(&self) -> Option<String> {
        let line = self.skipped_lines + self.records.open_quote()?;
        Some(format!(
            "the quote that opens on line {line} is not closed before the end of the file"
        ))
    }

    /// Adds the record that was just read.
    fn push_record(&self, chunk: &mut ChunkBuilder) {
        let (record, raw) = (&self.records.record, self.records.raw());
        let line = self.skipped_lines + self.records.line;
        let bad = |chunk: &mut ChunkBuilder, reason: String| chunk.push_bad(line, reason, raw);
        if let Some(reason) = self.open_quote() {
            return bad(chunk, reason);
        }
        let columns = self.columns.len();
        let is_blank = record.len() == 1 && raw.trim_ascii().is_empty();
        if is_blank && columns > 1 {
            // A line of blanks is no row, as an empty one is none.
            return;
        }
        // Many loggers end each row with a separator.
        let ends_with_separator =
            record.len() == columns + 1 && record.get(columns).is_some_and(<[u8]>::is_empty);
        let is_short = record.len() < columns;
        if record.len() != columns && !ends_with_separator && !(is_short && self.pads) {
            let is_remark = record.len() == 1 && (columns > 2 || raw.starts_with(b"#"));
            let hint = match is_short {
                true if is_remark => "",
                true => "; --null-padding makes NULL of those that lack",
                // The second line of a title above the header looks like a row with another number of fields.
                false if !self.has_rows || columns == 1 => {
                    "; --skip LINES leaves out what stands in front of the header"
                }
                false => "",
            };
            return bad(
                chunk,
                format!(
                    "{} instead of {columns}{hint}",
                    counted(record.len() as u64, "field"),
                ),
            );
        }
        let Ok(text) = std::str::from_utf8(record.as_slice()) else {
            return bad(chunk, NOT_UTF8.to_owned());
        };
        let field = |place: usize| {
            let field = record.range(place).and_then(|range| text.get(range))?;
            (!field.is_empty() && !self.nulls.has(field)).then_some(field)
        };
        // A whole record may be valid UTF-8 though a separator inside a character cuts a field of it.
        if (0..record.len()).any(|place| {
            record
                .range(place)
                .is_none_or(|range| text.get(range).is_none())
        }) {
            return bad(chunk, NOT_UTF8.to_owned());
        }
        chunk.push(line, raw, (0..columns).map(field));
    }
}

/// The name of a column that has none in the file.
fn unnamed(place: usize) -> String {
    format!("column{place}")
}

impl ReadChunks for CsvLines {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn columns_mut(&mut self) -> &mut [String] {
        &mut self.columns
    }

    fn delimiter(&self) -> Option<u8> {
        Some(self.delimiter)
    }

    fn has_odd_header(&self) -> bool {
        self.has_odd_header
    }

    fn comments(&self) -> u64 {
        self.comments
    }

    fn next_chunk(&mut self) -> Result<Option<Chunk>, Failure> {
        let mut chunk = ChunkBuilder::new(self.columns.len(), self.keeps_raw);
        if std::mem::take(&mut self.is_row_ahead) {
            self.push_record(&mut chunk);
        }
        while !chunk.is_full() && self.read_record()? {
            self.push_record(&mut chunk);
            self.has_rows = self.has_rows || chunk.has_rows();
        }
        Ok(chunk.finish())
    }
}
