//! Records of CSV with what the `csv` crate does not return: the bytes they were read from, the line they begin on,
//! and whether the file ended inside quotes.
//!
//! Invariants
//! - The bytes of the last record are at hand until the next one is read, and no others but those read ahead.
//! - A record that is not the last of the file costs no look at its bytes: only the last one can have an open quote.

use csv::ByteRecord;
use std::io::{self, BufRead, Read};
use std::ops::Range;

/// A longer record is refused: a quote that is never closed would take the rest of the file into memory.
const MAX_RECORD_BYTES: usize = 256 << 20;

pub(super) struct CsvRecords {
    reader: csv::Reader<Kept>,
    delimiter: u8,
    quote: u8,
    /// The last record that was read.
    pub(super) record: ByteRecord,
    /// The line it begins on, from 1 on.
    pub(super) line: u64,
    /// Where its bytes are among those kept.
    place: Range<usize>,
}

impl CsvRecords {
    pub(super) fn new(reader: Box<dyn BufRead>, delimiter: u8, quote: u8) -> Self {
        let kept = Kept {
            reader,
            bytes: Vec::new(),
            start: 0,
            wanted_from: 0,
            has_ended: false,
        };
        Self {
            reader: csv::ReaderBuilder::new()
                .has_headers(false)
                .flexible(true)
                .delimiter(delimiter)
                .quote(quote)
                .from_reader(kept),
            delimiter,
            quote,
            record: ByteRecord::new(),
            line: 0,
            place: 0..0,
        }
    }

    /// Reads a record; `false` at the end.
    pub(super) fn read(&mut self) -> Result<bool, String> {
        let before = self.reader.position().clone();
        self.reader.get_mut().wanted_from = before.byte();
        let read = self.reader.read_byte_record(&mut self.record);
        let kept = self.reader.get_ref();
        let from = kept.place_of(before.byte());
        let to = kept.place_of(self.reader.position().byte());
        let bytes = kept.bytes.get(from..to).unwrap_or_default();
        // Empty lines, and the second half of the line end before: to the crate they belong to this record.
        let is_end = |byte: &&u8| matches!(byte, b'\n' | b'\r');
        let empty = bytes.iter().take_while(is_end).count();
        let ends = bytes.iter().rev().take_while(is_end).count();
        self.line = before.line() + count_lines(&bytes[..empty]);
        self.place = from + empty..(from + empty).max(to - ends);
        read.map_err(|error| match error.into_kind() {
            csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => format!(
                "the row that begins on line {} is longer than {} MiB, as one is whose quote is never closed",
                self.line,
                MAX_RECORD_BYTES >> 20
            ),
            csv::ErrorKind::Io(error) => error.to_string(),
            kind => format!("{kind:?}"),
        })
    }

    /// The bytes of the record, without the end of its line.
    pub(super) fn raw(&self) -> &[u8] {
        let kept = self.reader.get_ref();
        kept.bytes.get(self.place.clone()).unwrap_or_default()
    }

    /// The line on which a quote opens that the record, the last of the file, does not close.
    pub(super) fn open_quote(&self) -> Option<u64> {
        let kept = self.reader.get_ref();
        let is_last = kept.place_of(self.reader.position().byte()) == kept.bytes.len();
        if !kept.has_ended || !is_last {
            return None;
        }
        // With the ends of lines after it: they are part of an open field.
        let raw = kept.bytes.get(self.place.start..).unwrap_or_default();
        open_quote(raw, self.delimiter, self.quote)
            .map(|place| self.line + count_lines(&raw[..place]))
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&byte| u64::from(byte == b'\n')).sum()
}

/// Where a quote opens that nothing closes.
fn open_quote(bytes: &[u8], delimiter: u8, quote: u8) -> Option<usize> {
    #[derive(Clone, Copy)]
    enum Field {
        /// Here a quote opens.
        Start,
        /// Here it is a character like others.
        Plain,
        Quoted(usize),
        /// One that closes, unless another follows.
        Quote(usize),
    }
    let mut field = Field::Start;
    for (place, &byte) in bytes.iter().enumerate() {
        field = match (field, byte) {
            (Field::Start, byte) if byte == quote => Field::Quoted(place),
            (Field::Quoted(opened), byte) if byte == quote => Field::Quote(opened),
            (Field::Quote(opened), byte) if byte == quote => Field::Quoted(opened),
            (Field::Quoted(opened), _) => Field::Quoted(opened),
            (_, b'\n' | b'\r') => Field::Start,
            (_, byte) if byte == delimiter => Field::Start,
            _ => Field::Plain,
        };
    }
    match field {
        Field::Quoted(opened) => Some(opened),
        _ => None,
    }
}

/// Keeps the bytes that go through it, from the record on that is being read.
struct Kept {
    reader: Box<dyn BufRead>,
    bytes: Vec<u8>,
    /// The place in the file of the first of them.
    start: u64,
    /// Bytes before this place may be dropped.
    wanted_from: u64,
    has_ended: bool,
}

impl Kept {
    fn place_of(&self, byte: u64) -> usize {
        usize::try_from(byte.saturating_sub(self.start)).unwrap_or(usize::MAX)
    }
}

impl Read for Kept {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let done = self.place_of(self.wanted_from).min(self.bytes.len());
        self.bytes.drain(..done);
        self.start += done as u64;
        if self.bytes.len() > MAX_RECORD_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let read = self.reader.read(into)?;
        self.bytes.extend_from_slice(&into[..read]);
        self.has_ended |= read == 0;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn records_of(text: &[u8]) -> CsvRecords {
        CsvRecords::new(Box::new(Cursor::new(text.to_vec())), b',', b'"')
    }

    /// Every text of these bytes up to a length.
    fn texts(most: u32) -> impl Iterator<Item = Vec<u8>> {
        let alphabet = b"\",\n\ra";
        (0..=most).flat_map(move |length| {
            (0..alphabet.len().pow(length)).map(move |number| {
                let digit = |place| number / alphabet.len().pow(place) % alphabet.len();
                (0..length).map(|place| alphabet[digit(place)]).collect()
            })
        })
    }

    /// A file that ends inside quotes, and no other, swallows a record put after it.
    #[test]
    fn an_open_quote_is_found_where_the_csv_crate_would_swallow_what_follows() {
        for text in texts(7) {
            let mut records = records_of(&text);
            let mut open = None;
            while records.read().unwrap() {
                assert_eq!(open, None, "{:?}", text.escape_ascii().to_string());
                open = records.open_quote();
            }
            let longer = [&text[..], b"\nbehind"].concat();
            let mut reader = csv::ReaderBuilder::new()
                .has_headers(false)
                .flexible(true)
                .from_reader(&longer[..]);
            let last = reader.byte_records().last().unwrap().unwrap();
            assert_eq!(
                open.is_some(),
                last.iter().ne([b"behind"]),
                "{:?}",
                text.escape_ascii().to_string()
            );
        }
    }

    /// The bytes of a record are read as that record, and all bytes but ends of lines belong to one.
    #[test]
    fn the_bytes_of_records_are_theirs() {
        for text in texts(7) {
            let shown = text.escape_ascii().to_string();
            let (mut records, mut bytes) = (records_of(&text), 0);
            while records.read().unwrap() {
                let raw = records.raw().to_vec();
                bytes += raw.iter().filter(|byte| !b"\r\n".contains(byte)).count();
                if records.open_quote().is_none() {
                    let mut again = records_of(&raw);
                    assert!(again.read().unwrap(), "{shown}");
                    assert_eq!(again.record, records.record, "{shown}");
                    assert!(!again.read().unwrap(), "{shown}");
                }
            }
            let all = text.iter().filter(|byte| !b"\r\n".contains(byte)).count();
            assert_eq!(bytes, all, "{shown}");
        }
    }

    #[test]
    fn lines_are_counted_over_empty_ones_and_those_in_quotes() {
        for end in ["\n", "\r\n"] {
            let text = "a,b\n\n\n1,2\n\"x\ny\",3\n4,5".replace('\n', end);
            let mut records = records_of(text.as_bytes());
            let mut lines = Vec::new();
            while records.read().unwrap() {
                lines.push(records.line);
            }
            assert_eq!(lines, [1, 4, 5, 7], "{end:?}");
        }
    }

    /// Across the buffers of all readers between the file and the records.
    #[test]
    fn long_records_keep_their_bytes() {
        let long = |byte: u8| vec![byte; 100_000];
        let text = [&long(b'a')[..], b",1\n", &long(b'b'), b",2\n"].concat();
        let mut records = records_of(&text);
        assert!(records.read().unwrap());
        assert_eq!(records.raw(), &text[..100_002]);
        assert!(records.read().unwrap());
        assert_eq!(records.raw(), &text[100_003..200_005]);
        assert!(!records.read().unwrap());
    }
}
