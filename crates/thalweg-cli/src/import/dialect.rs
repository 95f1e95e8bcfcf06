//! Detects the character that separates the fields of a CSV file.
//!
//! Invariant: a file that has no separator in its first line has one column, whatever its rows contain.

use super::numbers::is_comma_decimal;
use csv::ByteRecord;
use std::io::{self, BufRead, Cursor, Read};

/// Bytes from which the separator is detected, at most.
const SAMPLE_BYTES: u64 = 256 << 10;
/// Records from which the separator is detected, at most.
const SAMPLE_RECORDS: usize = 1_000;
/// Separators that are detected, most common first.
const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Excel's own way to name the separator, in the first line.
const NAMED_SEPARATOR: &[u8] = b"sep=";

/// The detected dialect, and a reader that starts where the data does.
pub(super) struct Detected {
    pub(super) delimiter: u8,
    /// Lines that name the separator and are no data.
    pub(super) lines: u64,
    pub(super) reader: Box<dyn BufRead>,
}

/// Detects the separator unless it is `given`.
pub(super) fn detect(mut reader: Box<dyn BufRead>, given: Option<u8>) -> io::Result<Detected> {
    let mut start = Vec::new();
    reader.by_ref().take(SAMPLE_BYTES).read_to_end(&mut start)?;
    let is_whole = (start.len() as u64) < SAMPLE_BYTES;
    let named = named_separator(&start);
    if let Some((_, bytes)) = named {
        start.drain(..bytes);
    }
    let named_delimiter = named.map(|(delimiter, _)| delimiter);
    let delimiter = given
        .or(named_delimiter)
        .unwrap_or_else(|| separator_of(&start, is_whole));
    Ok(Detected {
        delimiter,
        lines: u64::from(named.is_some()),
        reader: Box::new(Cursor::new(start).chain(reader)),
    })
}

/// The separator that a first line such as `sep=;` names, and the length of that line.
fn named_separator(start: &[u8]) -> Option<(u8, usize)> {
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    let rest = text.strip_prefix(NAMED_SEPARATOR)?;
    let (&delimiter, rest) = rest.split_first()?;
    let line_end = rest.iter().take_while(|byte| **byte != b'\n').count();
    let is_alone = rest[..line_end].iter().all(|byte| *byte == b'\r');
    let after = &rest[rest.len().min(line_end + 1)..];
    (is_alone && delimiter.is_ascii() && delimiter != b'"')
        .then_some((delimiter, start.len() - after.len()))
}

fn separator_of(start: &[u8], is_whole: bool) -> u8 {
    let mut best = (b',', Score::default());
    for delimiter in SEPARATORS {
        let score = Score::of(&records(start, delimiter, is_whole));
        if score.is_better_than(&best.1) {
            best = (delimiter, score);
        }
    }
    best.0
}

/// The first records of a file whose last one may be cut.
fn records(start: &[u8], delimiter: u8, is_whole: bool) -> Vec<ByteRecord> {
    let reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .from_reader(start);
    let mut records: Vec<ByteRecord> = reader
        .into_byte_records()
        .map_while(Result::ok)
        .take(SAMPLE_RECORDS + 1)
        .collect();
    let is_cut = !is_whole && records.len() <= SAMPLE_RECORDS;
    if records.len() > 1 && (is_cut || records.len() > SAMPLE_RECORDS) {
        records.pop();
    }
    records
}

/// How well a separator explains the first records.
#[derive(Debug, Default)]
struct Score {
    /// Fields of the first record.
    fields: usize,
    /// Records with as many fields as the first one, of a thousand.
    alike: usize,
    /// Fields that contain no other separator, of a thousand; the comma of a decimal number is none.
    clean: usize,
}

impl Score {
    fn of(records: &[ByteRecord]) -> Self {
        let fields = records.first().map_or(0, ByteRecord::len);
        let of_thousand = |count: usize, all: usize| count * 1_000 / all.max(1);
        let alike = records
            .iter()
            .filter(|record| record.len() == fields)
            .count();
        let is_clean = |field: &&[u8]| {
            let text = field.trim_ascii();
            !text.iter().any(|byte| SEPARATORS.contains(byte))
                || std::str::from_utf8(text).is_ok_and(is_comma_decimal)
        };
        let all_fields: usize = records.iter().map(ByteRecord::len).sum();
        let clean = records
            .iter()
            .flat_map(|record| record.iter())
            .filter(is_clean)
            .count();
        Self {
            fields,
            alike: of_thousand(alike, records.len()),
            clean: of_thousand(clean, all_fields),
        }
    }

    /// One field explains nothing. Ties go to the more common separator.
    fn is_better_than(&self, other: &Self) -> bool {
        let rank = |score: &Self| (score.fields > 1, score.alike, score.clean, score.fields);
        self.fields > 1 && rank(self) > rank(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> char {
        char::from(separator_of(text.as_bytes(), true))
    }

    #[test]
    fn separators_are_detected() {
        for (text, wanted) in [
            ("a,b\n1,2\n", ','),
            ("a;b\n1;2\n", ';'),
            ("a\tb\n1\t2\n", '\t'),
            ("a|b\n1|2\n", '|'),
            // Decimal commas, also where no header tells them apart.
            ("a;b\n1,5;2,5\n", ';'),
            ("1,5;2,5\n3,0;4,5\n", ';'),
            ("a;b\n\"x;y\";2\n\"z\";3\n", ';'),
            ("\"a\",\"b;c\"\n\"1;2;3\",2\n", ','),
            (
                "time;note\n2026-01-01 00:00;a, b, c\n2026-01-02 00:00;d, e\n",
                ';',
            ),
            ("id,tags\n1,a|b\n2,c|d|e\n", ','),
            ("one\n1\n2\n", ','),
            ("one\na;b\n", ','),
            ("", ','),
            // Bad rows do not hide it.
            ("a;b;c\n1;2;3\n1;2\n4;5;6\n", ';'),
        ] {
            assert_eq!(of(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn a_named_separator_is_taken() {
        for (text, rest) in [
            ("sep=;\r\na;b\n", "a;b\n"),
            ("\u{feff}sep=|\na|b\n", "a|b\n"),
        ] {
            let reader = Box::new(Cursor::new(text.as_bytes().to_vec()));
            let mut detected = detect(reader, None).unwrap();
            let mut found = String::new();
            detected.reader.read_to_string(&mut found).unwrap();
            assert_eq!((found.as_str(), detected.lines), (rest, 1));
        }
        assert_eq!(named_separator(b"sep=ab\n"), None);
    }
}
