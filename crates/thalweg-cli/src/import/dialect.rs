//! Detects the character that separates the fields of a CSV file, and lines of comment in front of them.
//!
//! Invariants
//! - A file that has no separator in its first line has one column, whatever its rows contain.
//! - Spaces separate only where nothing else does, all lines have as many words and a column of them is numbers.
//! - Blanks around quotes are no part of fields, as far as `spaced_quotes` finds them.
//! - A line of comment that has as many fields as the rows after it names their columns.

use super::numbers::{is_comma_decimal, is_float};
use super::source::BOM;
use super::spaced_quotes::{TightQuotes, without_blanks};
use super::times::TimeText;
use csv::ByteRecord;
use std::io::{self, BufRead, BufReader, Cursor, Read};

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
    /// Lines that name the separator or are comments, and no data.
    pub(super) lines: u64,
    /// How many of them are comments.
    pub(super) comments: u64,
    /// The header and all rows that were looked at end with a separator: it makes no column.
    pub(super) ends_with_separators: bool,
    pub(super) reader: Box<dyn BufRead>,
}

/// Detects the separator unless it is `given`; `quote` stands around fields.
pub(super) fn detect(
    mut reader: Box<dyn BufRead>,
    given: Option<u8>,
    quote: u8,
) -> io::Result<Detected> {
    let mut start = Vec::new();
    reader.by_ref().take(SAMPLE_BYTES).read_to_end(&mut start)?;
    let is_whole = (start.len() as u64) < SAMPLE_BYTES;
    let named = named_separator(&start);
    if let Some((_, bytes)) = named {
        start.drain(..bytes);
    }
    let named_delimiter = named.map(|(delimiter, _)| delimiter);
    let comments = Comments::of(&start);
    let given = given.or(named_delimiter);
    let rows = &start[comments.bytes..];
    let delimiter = given.unwrap_or_else(|| separator_of(rows, quote, is_whole));
    let names = comments.names(&start, delimiter, quote);
    let comment_lines = comments.lines - u64::from(names.is_some());
    start.drain(..names.unwrap_or(comments.bytes));
    let records = records(&start, delimiter, quote, is_whole);
    let fields = records.first().map_or(0, ByteRecord::len);
    let ends_with_separator = |record: &ByteRecord| {
        let last = record.get(fields - 1);
        record.len() < fields || last.is_some_and(<[u8]>::is_empty)
    };
    let ends_with_separators = fields > 1 && records.iter().all(ends_with_separator);
    let is_spaced = without_blanks(&start, delimiter, quote, is_whole).is_some();
    let reader: Box<dyn BufRead> = Box::new(Cursor::new(start).chain(reader));
    Ok(Detected {
        delimiter,
        lines: u64::from(named.is_some()) + comment_lines,
        comments: comment_lines,
        ends_with_separators,
        reader: if delimiter == b' ' {
            Box::new(BufReader::new(SingleSpaces::new(reader, quote)))
        } else if is_spaced {
            Box::new(BufReader::new(TightQuotes::new(reader, delimiter, quote)))
        } else {
            reader
        },
    })
}

/// The lines in front of the first row that begin with `#`.
struct Comments {
    lines: u64,
    bytes: usize,
    /// Where the last of them begins.
    last: usize,
}

impl Comments {
    fn of(start: &[u8]) -> Self {
        let (mut lines, mut bytes, mut last) = (0, 0, 0);
        let mark = start.len() - start.strip_prefix(BOM).unwrap_or(start).len();
        while let Some(line) = start[bytes..].split_inclusive(|byte| *byte == b'\n').next() {
            let text = line.get(if bytes == 0 { mark } else { 0 }..);
            let is_comment = text.is_some_and(|text| text.starts_with(b"#"));
            if !is_comment || !line.ends_with(b"\n") {
                break;
            }
            last = bytes;
            bytes += line.len();
            lines += 1;
        }
        Self { lines, bytes, last }
    }

    /// Where the names of columns begin in the last line, if it holds those.
    fn names(&self, start: &[u8], delimiter: u8, quote: u8) -> Option<usize> {
        let line = start
            .get(self.last..self.bytes)
            .filter(|_| self.lines > 0)?;
        let text = line.strip_prefix(BOM).unwrap_or(line);
        let text = text.strip_prefix(b"#")?;
        // A column of numbers of rows may be named `#`.
        let is_name = text.first() == Some(&delimiter) && delimiter != b' ';
        let text = if is_name {
            line
        } else {
            text.trim_ascii_start()
        };
        let (named, values) = first_record(text, delimiter, quote)?;
        let (fields, row_values) = first_record(&start[self.bytes..], delimiter, quote)?;
        (named > 1 && named == fields && values == 0 && row_values > 0)
            .then_some(self.bytes - text.len())
    }
}

/// How many fields the first record has, and how many of them are values.
fn first_record(text: &[u8], delimiter: u8, quote: u8) -> Option<(usize, usize)> {
    let text = if delimiter == b' ' {
        single_spaced(text, quote)
    } else {
        text.to_vec()
    };
    let records = records(&text, delimiter, quote, true);
    let record = records.first()?;
    let values = record.iter().filter(|field| is_value(field)).count();
    Some((record.len(), values))
}

/// Whether a field is a number or a time, as names of columns are not.
fn is_value(field: &[u8]) -> bool {
    let text = std::str::from_utf8(field.trim_ascii());
    text.is_ok_and(|text| is_float(text) || TimeText::parse(text).is_some())
}

fn single_spaced(text: &[u8], quote: u8) -> Vec<u8> {
    let mut single = Vec::new();
    let text = Box::new(Cursor::new(text.to_vec()));
    // Reading from memory does not fail.
    let _ = SingleSpaces::new(text, quote).read_to_end(&mut single);
    single
}

/// Makes one of several spaces outside of quotes, and none of those at the ends of lines.
struct SingleSpaces {
    reader: Box<dyn BufRead>,
    quote: u8,
    is_quoted: bool,
    /// Something of the line was given out.
    has_begun: bool,
    /// A space that is given out when something follows on its line.
    is_owed: bool,
}

impl SingleSpaces {
    fn new(reader: Box<dyn BufRead>, quote: u8) -> Self {
        Self {
            reader,
            quote,
            is_quoted: false,
            has_begun: false,
            is_owed: false,
        }
    }
}

impl Read for SingleSpaces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut written = 0;
        while written == 0 && !into.is_empty() {
            let bytes = self.reader.fill_buf()?;
            if bytes.is_empty() {
                break;
            }
            let mut taken = 0;
            while let Some(&byte) = bytes.get(taken)
                && written < into.len()
            {
                let is_quoted = self.is_quoted ^ (byte == self.quote);
                let is_space = byte == b' ' && !is_quoted;
                let is_end = matches!(byte, b'\n' | b'\r') && !is_quoted;
                if is_space {
                    self.is_owed = self.has_begun;
                } else if std::mem::take(&mut self.is_owed) && !is_end {
                    // The byte itself is next: there may be room for one only.
                    into[written] = b' ';
                    written += 1;
                    continue;
                } else {
                    self.has_begun = !is_end;
                    into[written] = byte;
                    written += 1;
                }
                self.is_quoted = is_quoted;
                taken += 1;
            }
            self.reader.consume(taken);
        }
        Ok(written)
    }
}

/// The separator that a first line such as `sep=;` names, and the length of that line.
fn named_separator(start: &[u8]) -> Option<(u8, usize)> {
    let text = start.strip_prefix(BOM).unwrap_or(start);
    let rest = text.strip_prefix(NAMED_SEPARATOR)?;
    let (&delimiter, rest) = rest.split_first()?;
    let line_end = rest.iter().take_while(|byte| **byte != b'\n').count();
    let is_alone = rest[..line_end].iter().all(|byte| *byte == b'\r');
    let after = &rest[rest.len().min(line_end + 1)..];
    (is_alone && delimiter.is_ascii() && delimiter != b'"')
        .then_some((delimiter, start.len() - after.len()))
}

fn separator_of(start: &[u8], quote: u8, is_whole: bool) -> u8 {
    let mut best = (b',', Score::default());
    for delimiter in SEPARATORS {
        let score = Score::of(&records(start, delimiter, quote, is_whole));
        if score.is_better_than(&best.1) {
            best = (delimiter, score);
        }
    }
    let is_one_column = best.1.fields <= 1;
    if is_one_column && is_separated_by_spaces(start, quote, is_whole) {
        return b' ';
    }
    best.0
}

/// Whether all lines have as many words, and one of the columns that they make is numbers below its name.
fn is_separated_by_spaces(start: &[u8], quote: u8, is_whole: bool) -> bool {
    let text = single_spaced(start, quote);
    let records = records(&text, b' ', quote, is_whole);
    let Some((header, rows)) = records.split_first() else {
        return false;
    };
    let is_number = |field: Option<&[u8]>| {
        let text = field.and_then(|field| std::str::from_utf8(field).ok());
        text.is_some_and(is_float)
    };
    let has_other = |byte: u8| text.contains(&byte);
    let is_numbers = |place: usize| rows.iter().all(|row| is_number(row.get(place)));
    header.len() > 1
        && !rows.is_empty()
        && !SEPARATORS.into_iter().any(has_other)
        && rows.iter().all(|row| row.len() == header.len())
        && (0..header.len()).any(is_numbers)
}

/// The first records of a file whose last one may be cut.
fn records(start: &[u8], delimiter: u8, quote: u8, is_whole: bool) -> Vec<ByteRecord> {
    let tight = without_blanks(start, delimiter, quote, is_whole);
    let start = tight.as_deref().unwrap_or(start);
    let reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .quote(quote)
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

    /// Whether it explains the records better than another. One field explains nothing; ties go to the more common separator.
    fn is_better_than(&self, other: &Self) -> bool {
        let rank = |score: &Self| (score.fields > 1, score.alike, score.clean, score.fields);
        self.fields > 1 && rank(self) > rank(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> char {
        char::from(separator_of(text.as_bytes(), b'"', true))
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
            // Spaces, any number of them, where nothing else separates.
            (
                "ts v\n2024-01-01T00:00:00 5\n2024-01-02T00:00:00 6.5\n",
                ' ',
            ),
            ("  a    b\n  1    2\n 10   20\n", ' '),
            ("name\nNew York\nLos Angeles\n", ','),
            ("full name\nJohn Smith\n", ','),
            ("a b\n1 2\n3\n", ','),
            ("a b\n1 2;\n3 4;\n", ','),
            ("ts\n2024-01-01 00:00\n", ','),
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
            let mut detected = detect(reader, None, b'"').unwrap();
            let mut found = String::new();
            detected.reader.read_to_string(&mut found).unwrap();
            assert_eq!((found.as_str(), detected.lines), (rest, 1));
        }
        assert_eq!(named_separator(b"sep=ab\n"), None);
    }

    #[test]
    fn comments_in_front_are_left_out() {
        for (text, rest, comments) in [
            ("# made by x\n# y\na,b\n1,2\n", "a,b\n1,2\n", 2),
            ("# made by x\n#a,b\n1,2\n", "a,b\n1,2\n", 1),
            ("\u{feff}# a, b\n1,2\n", "a, b\n1,2\n", 0),
            ("#a,b\nx,y\n", "x,y\n", 1),
            ("#a,b,c\na,b\n1,2\n", "a,b\n1,2\n", 1),
            ("# 2024\nv\n1\n", "v\n1\n", 1),
            ("#,v\n1,2\n", "#,v\n1,2\n", 0),
            ("#", "#", 0),
            ("a,b\n#1,2\n", "a,b\n#1,2\n", 0),
            (
                "# ts   v\n 2024-01-01   5 \n  2024-01-02  6",
                "ts v\n2024-01-01 5\n2024-01-02 6",
                0,
            ),
        ] {
            let reader = Box::new(Cursor::new(text.as_bytes().to_vec()));
            let mut detected = detect(reader, None, b'"').unwrap();
            let mut found = String::new();
            detected.reader.read_to_string(&mut found).unwrap();
            assert_eq!((found.as_str(), detected.comments), (rest, comments));
        }
    }

    #[test]
    fn spaces_in_quotes_stay() {
        let text = "a  b\r\n \"x  y\"   2  \r\n";
        let mut found = String::new();
        let mut spaces = SingleSpaces::new(Box::new(Cursor::new(text.as_bytes())), b'"');
        spaces.read_to_string(&mut found).unwrap();
        assert_eq!(found, "a b\r\n\"x  y\" 2\r\n");
        // However little room there is at a time.
        let mut spaces = SingleSpaces::new(Box::new(Cursor::new(text.as_bytes())), b'"');
        let mut again = Vec::new();
        let mut byte = [0];
        while spaces.read(&mut byte).unwrap() > 0 {
            again.extend(byte);
        }
        assert_eq!(again, found.as_bytes());
    }
}
