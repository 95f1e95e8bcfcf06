//! The objects of a JSON list, `[{...}, {...}]`, one at a time.
//!
//! Invariants: an object is in memory at a time; what stands between objects is separators; a list that is not closed, or
//! goes on after its end, is an error.

use std::io::{self, BufRead};

/// An object and the line it begins on, from 1 on.
pub(super) struct Item {
    pub(super) line: u64,
    pub(super) text: Vec<u8>,
}

/// Reads the items of one list.
#[derive(Debug)]
pub(super) struct ListItems {
    /// The line of what is read next.
    line: u64,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Before,
    /// A comma must stand before another item, unless it is the first.
    Between {
        is_first: bool,
    },
    After,
}

/// Why the list cannot be read.
pub(super) enum Broken {
    Read(io::Error),
    /// A description of what is wrong, and the line.
    List(&'static str, u64),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl ListItems {
    /// `line` is the one that the list begins on.
    pub(super) fn new(line: u64) -> Self {
        Self {
            line,
            place: Place::Before,
        }
    }

    /// The next item; `None` after the list.
    pub(super) fn next(&mut self, reader: &mut dyn BufRead) -> Result<Option<Item>, Broken> {
        let mut follows_comma = false;
        loop {
            let Some(byte) = peek(reader)? else {
                return match self.place {
                    Place::After => Ok(None),
                    _ => Err(self.broken("the list is not closed before the end of the file")),
                };
            };
            match (self.place, byte) {
                (_, b'\n') => self.line += 1,
                (_, byte) if byte.is_ascii_whitespace() => {}
                // Of a file that begins with a mark of its byte order.
                (Place::Before, 0xEF | 0xBB | 0xBF) => {}
                (Place::Before, b'[') => self.place = Place::Between { is_first: true },
                (Place::Between { .. }, b']') => self.place = Place::After,
                (Place::Between { is_first: false }, b',') if !follows_comma => {
                    follows_comma = true;
                }
                (Place::Between { .. }, b',') => {
                    return Err(self.broken("the list has a comma without an item in front of it"));
                }
                (Place::Between { is_first }, _) if is_first || follows_comma => {
                    self.place = Place::Between { is_first: false };
                    return self.item(reader).map(Some);
                }
                (Place::Between { .. }, _) => {
                    return Err(self.broken("a comma is missing between two items of the list"));
                }
                (Place::After, _) => return Err(self.broken("the file goes on behind its list")),
                (Place::Before, _) => return Err(self.broken("there is no list")),
            }
            reader.consume(1);
        }
    }

    fn broken(&self, what: &'static str) -> Broken {
        Broken::List(what, self.line)
    }

    /// Reads up to the comma or bracket after the item.
    fn item(&mut self, reader: &mut dyn BufRead) -> Result<Item, Broken> {
        let line = self.line;
        let (mut text, mut depth) = (Vec::new(), 0_usize);
        let (mut is_text, mut is_escaped) = (false, false);
        while let Some(byte) = peek(reader)? {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if is_text => is_escaped = true,
                b'"' => is_text = !is_text,
                b'{' | b'[' if !is_text => depth += 1,
                b']' | b',' if !is_text && depth == 0 => {
                    return Ok(Item { line, text });
                }
                b'}' | b']' if !is_text => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.line += u64::from(byte == b'\n');
            text.push(byte);
            reader.consume(1);
        }
        Err(self.broken("the list is not closed before the end of the file"))
    }
}

fn peek(reader: &mut dyn BufRead) -> io::Result<Option<u8>> {
    Ok(reader.fill_buf()?.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(text: &str) -> Result<Vec<(u64, String)>, &'static str> {
        let mut reader = io::BufReader::with_capacity(3, text.as_bytes());
        let mut list = ListItems::new(1);
        let mut found = Vec::new();
        loop {
            match list.next(&mut reader) {
                Ok(Some(item)) => {
                    let text = String::from_utf8(item.text).unwrap();
                    found.push((item.line, text.trim().to_owned()));
                }
                Ok(None) => return Ok(found),
                Err(Broken::List(what, _)) => return Err(what),
                Err(Broken::Read(error)) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn items_of_lists_are_told_apart() {
        let text = "[{\"a\":1},\n{\"a\": \"],}\\\"\", \"b\": [1, {}]}\n,\n {\n\"a\":2}]\n";
        let found = items(text).unwrap();
        assert_eq!(
            found,
            [
                (1, "{\"a\":1}".to_owned()),
                (2, "{\"a\": \"],}\\\"\", \"b\": [1, {}]}".to_owned()),
                (4, "{\n\"a\":2}".to_owned()),
            ]
        );
        assert_eq!(items(" [ ] "), Ok(Vec::new()));
        for (text, what) in [
            ("[{}", "not closed"),
            ("[{},,{}]", "comma"),
            ("[{}] x", "goes on"),
            ("{}", "no list"),
        ] {
            let error = items(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
