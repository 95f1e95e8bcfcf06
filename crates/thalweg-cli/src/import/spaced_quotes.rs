//! Blanks between quotes and separators, as in `1, "a, b"`, which are no part of a field.
//!
//! Invariants
//! - Blanks go only where the first records have such quotes, and each of them is closed in front of a separator or the end of
//!   a line. All other bytes stay, those of fields without quotes among them; of a rejected row the file of rejects lacks the
//!   blanks too.
//! - A file without such quotes in its first records is read as it is, at no cost per row.

use super::source::BOM;
use std::io::{self, BufRead, Read};

/// Where in a record the next byte is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// In front of a field, after so many blanks.
    Start(usize),
    Plain,
    Quoted,
    /// After a quote that closes, unless another one follows at once, and so many blanks.
    Closed(usize),
}

/// Goes through the bytes of a file, and leaves out blanks around quotes.
struct Quotes {
    delimiter: u8,
    quote: u8,
    at: At,
    /// Nothing but the byte order mark was seen.
    is_first: bool,
    /// Some blanks were left out.
    are_spaced: bool,
    /// The field began with blanks and a quote.
    is_spaced: bool,
    /// Text follows a quote that closes a field which began with blanks.
    are_unsound: bool,
}

impl Quotes {
    fn new(delimiter: u8, quote: u8) -> Self {
        Self {
            delimiter,
            quote,
            at: At::Start(0),
            is_first: true,
            are_spaced: false,
            is_spaced: false,
            are_unsound: false,
        }
    }

    fn push(&mut self, byte: u8, into: &mut Vec<u8>) {
        let is_end = byte == self.delimiter || matches!(byte, b'\n' | b'\r');
        let is_mark = self.is_first && BOM.contains(&byte);
        self.is_first = is_mark;
        let (at, blanks) = match self.at {
            At::Start(_) if is_mark => (At::Start(0), 0),
            At::Start(blanks) if byte == b' ' => {
                self.at = At::Start(blanks + 1);
                return;
            }
            At::Start(blanks) if byte == self.quote => {
                self.is_spaced = blanks > 0;
                self.are_spaced |= self.is_spaced;
                (At::Quoted, 0)
            }
            At::Start(blanks) if is_end => (At::Start(0), blanks),
            At::Start(blanks) => (At::Plain, blanks),
            At::Plain if is_end => (At::Start(0), 0),
            At::Quoted if byte == self.quote => (At::Closed(0), 0),
            At::Plain | At::Quoted => (self.at, 0),
            At::Closed(0) if byte == self.quote => (At::Quoted, 0),
            At::Closed(blanks) if byte == b' ' => {
                self.at = At::Closed(blanks + 1);
                return;
            }
            At::Closed(blanks) if is_end => {
                self.are_spaced |= blanks > 0;
                (At::Start(0), 0)
            }
            At::Closed(blanks) => {
                self.are_unsound |= self.is_spaced;
                (At::Plain, blanks)
            }
        };
        into.extend(std::iter::repeat_n(b' ', blanks));
        into.push(byte);
        self.at = at;
    }

    /// Adds what was held back at the end of the file.
    fn finish(&mut self, into: &mut Vec<u8>) {
        if let At::Start(blanks) = self.at {
            into.extend(std::iter::repeat_n(b' ', blanks));
        }
        self.at = At::Start(0);
    }
}

/// The first records without blanks around quotes; `None` if there are none, or some are part of a field.
pub(super) fn without_blanks(
    start: &[u8],
    delimiter: u8,
    quote: u8,
    is_whole: bool,
) -> Option<Vec<u8>> {
    if delimiter == b' ' || !start.contains(&quote) {
        return None;
    }
    let mut quotes = Quotes::new(delimiter, quote);
    let mut tight = Vec::with_capacity(start.len());
    start.iter().for_each(|byte| quotes.push(*byte, &mut tight));
    let is_open = is_whole && quotes.at == At::Quoted && quotes.is_spaced;
    quotes.finish(&mut tight);
    (quotes.are_spaced && !quotes.are_unsound && !is_open).then_some(tight)
}

/// Leaves out blanks around quotes.
pub(super) struct TightQuotes {
    reader: Box<dyn BufRead>,
    quotes: Quotes,
    /// Bytes that are given out next, from `place` on.
    ready: Vec<u8>,
    place: usize,
}

impl TightQuotes {
    pub(super) fn new(reader: Box<dyn BufRead>, delimiter: u8, quote: u8) -> Self {
        Self {
            reader,
            quotes: Quotes::new(delimiter, quote),
            ready: Vec::new(),
            place: 0,
        }
    }
}

impl Read for TightQuotes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.place == self.ready.len() {
            self.ready.clear();
            self.place = 0;
            let bytes = self.reader.fill_buf()?;
            let taken = bytes.len();
            for byte in bytes {
                self.quotes.push(*byte, &mut self.ready);
            }
            self.reader.consume(taken);
            if taken == 0 {
                self.quotes.finish(&mut self.ready);
                if self.ready.is_empty() {
                    return Ok(0);
                }
            }
        }
        let read = (&self.ready[self.place..]).read(into)?;
        self.place += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor};

    fn tight(text: &str) -> Option<String> {
        let tight = without_blanks(text.as_bytes(), b',', b'"', true);
        tight.map(|tight| String::from_utf8(tight).unwrap())
    }

    #[test]
    fn blanks_around_quotes_go_and_others_stay() {
        for (text, wanted) in [
            ("a, \"b\"\n1,  \"2\"\n", "a,\"b\"\n1,\"2\"\n"),
            ("  \"a\" , b \r\n, \" x \" ", "\"a\", b \r\n,\" x \""),
            ("a, \"b, \"\"c\"\" \"\n ,", "a,\"b, \"\"c\"\" \"\n ,"),
            ("\u{feff}\"a, \", \"b\"\n", "\u{feff}\"a, \",\"b\"\n"),
        ] {
            assert_eq!(tight(text).as_deref(), Some(wanted), "{text:?}");
            let source = BufReader::with_capacity(1, Cursor::new(text.as_bytes().to_vec()));
            let mut found = String::new();
            let mut reader = TightQuotes::new(Box::new(source), b',', b'"');
            reader.read_to_string(&mut found).unwrap();
            assert_eq!(found, wanted, "{text:?}");
        }
    }

    #[test]
    fn quotes_that_are_part_of_a_field_stay_as_they_are() {
        for text in [
            "a,b\n1, x\n",
            "a,b\n1,\"x\"\n",
            "a,b\n1, \"x\" y\n2, \"z\"\n",
            "a,b\n1, \"x\n",
            "a,b\n1,3.5 \"\n",
            "a,b\n1,\"x, \"\"y\"\"\"\n",
        ] {
            assert_eq!(tight(text), None, "{text:?}");
        }
        assert_eq!(without_blanks(b"a \"b\"\n", b' ', b'"', true), None);
    }
}
