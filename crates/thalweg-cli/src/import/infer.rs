//! Types of columns from their text.
//!
//! Invariants: the type of a column takes every value that was looked at, without loss; text that only looks like a number
//! (leading zeros, more digits than an integer has) stays text.

use super::chunk::Chunk;
use super::convert::{is_integer, parse_time};
use arrow_array::types::{Float64Type, Int64Type};
use arrow_cast::parse::Parser;
use arrow_schema::{DataType, Field, Schema, TimeUnit};

/// What a column may be, most particular first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Float,
    Date,
    Time,
    ZonedTime,
}

const KINDS: [Kind; 6] = [
    Kind::Bool,
    Kind::Int,
    Kind::Float,
    Kind::Date,
    Kind::Time,
    Kind::ZonedTime,
];

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Timestamp(TimeUnit::Nanosecond, None),
            Self::ZonedTime => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
        }
    }

    fn takes(self, text: &str) -> bool {
        match self {
            Self::Bool => text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false"),
            Self::Int => {
                is_plain_number(text) && is_integer(text) && Int64Type::parse(text).is_some()
            }
            Self::Float => is_float(text),
            Self::Date => text.len() == 10 && parse_time(text, &self.data_type()).is_ok(),
            Self::Time => !has_zone(text) && parse_time(text, &self.data_type()).is_ok(),
            Self::ZonedTime => has_zone(text) && parse_time(text, &self.data_type()).is_ok(),
        }
    }
}

/// Not `007`: zeros in front belong to a name.
fn is_plain_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    !digits.starts_with('0') || !digits[1..].starts_with(|c: char| c.is_ascii_digit())
}

fn is_float(text: &str) -> bool {
    let words = ["nan", "inf", "-inf", "infinity", "-infinity"];
    if words.iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return true;
    }
    let number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    // An integer too large for the type is a number for names, not for sums.
    let too_large = is_integer(text) && Int64Type::parse(text).is_none();
    number && !too_large && is_plain_number(text) && Float64Type::parse(text).is_some()
}

/// Whether a time ends with `Z` or an offset.
fn has_zone(text: &str) -> bool {
    text.get(10..)
        .is_some_and(|clock| clock.contains(['Z', 'z', '+', '-']))
}

/// The schema of a table for rows like these. Columns without any value are text.
pub(super) fn schema(names: &[String], chunks: &[Chunk]) -> Schema {
    let column = |(place, name): (usize, &String)| Field::new(name, data_type(place, chunks), true);
    Schema::new(names.iter().enumerate().map(column).collect::<Vec<_>>())
}

const TIMES: [Kind; 4] = [Kind::Int, Kind::Date, Kind::Time, Kind::ZonedTime];

/// The type of time that takes most values of a column; `None` if no value is a time.
pub(super) fn time_type(column: usize, chunks: &[Chunk]) -> Option<DataType> {
    let mut taken = TIMES.map(|kind| (kind, 0_u64));
    for chunk in chunks {
        for text in chunk.columns[column].iter().flatten() {
            for (kind, count) in &mut taken {
                let is_number = *kind == Kind::Int && !chunk.is_text[column];
                *count += u64::from((*kind != Kind::Int || is_number) && kind.takes(text.trim()));
            }
        }
    }
    // The most particular one of those that take equally many.
    let most = taken.into_iter().rev().max_by_key(|(_, count)| *count);
    most.filter(|(_, count)| *count > 0)
        .map(|(kind, _)| kind.data_type())
}

/// The first value of a column, and its line; `None` if all are empty.
pub(super) fn first_value(column: usize, chunks: &[Chunk]) -> Option<(u64, &str)> {
    chunks.iter().find_map(|chunk| {
        let mut values = chunk.lines.iter().zip(&chunk.columns[column]);
        values.find_map(|(line, text)| {
            let text = text?.trim();
            (!text.is_empty()).then_some((*line, text))
        })
    })
}

fn data_type(column: usize, chunks: &[Chunk]) -> DataType {
    let mut kinds = KINDS.to_vec();
    let mut empty = true;
    for chunk in chunks {
        if chunk.is_text[column] {
            kinds.retain(|kind| matches!(kind, Kind::Date | Kind::Time | Kind::ZonedTime));
        }
        for text in chunk.columns[column].iter().flatten() {
            let text = text.trim();
            if text.is_empty() {
                continue;
            }
            empty = false;
            kinds.retain(|kind| kind.takes(text));
            if kinds.is_empty() {
                return DataType::Utf8;
            }
        }
    }
    kinds
        .first()
        .filter(|_| !empty)
        .map_or(DataType::Utf8, |kind| kind.data_type())
}

#[cfg(test)]
mod tests {
    use super::super::chunk::ChunkBuilder;
    use super::*;

    fn of(texts: &[&str]) -> DataType {
        let mut chunk = ChunkBuilder::new(1, false);
        for text in texts {
            chunk.push(1, text.as_bytes(), [Some(*text)].into_iter());
        }
        data_type(0, &[chunk.finish().unwrap()])
    }

    #[test]
    fn the_time_that_takes_most() {
        let of = |texts: &[&str]| {
            let mut chunk = ChunkBuilder::new(1, false);
            for text in texts {
                chunk.push(1, text.as_bytes(), [Some(*text)].into_iter());
            }
            time_type(0, &[chunk.finish().unwrap()])
        };
        let time = DataType::Timestamp(TimeUnit::Nanosecond, None);
        assert_eq!(
            of(&["never", "2016-03-01", "2016-03-02"]),
            Some(DataType::Date32)
        );
        assert_eq!(of(&["2016-03-01", "?", "2016-03-02T05:00:00"]), Some(time));
        assert_eq!(of(&["2016-03-01", "5", "6"]), Some(DataType::Int64));
        assert_eq!(of(&["never", ""]), None);
    }

    #[test]
    fn the_most_particular_type_that_takes_all() {
        let time = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let zoned = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        for (texts, wanted) in [
            (&["1", "-20", " 3 ", "0"][..], DataType::Int64),
            (&["1", "2.5", "-1e-3", "NaN", "0", "0.5"], DataType::Float64),
            (&["true", "FALSE"], DataType::Boolean),
            (&["2016-03-01", "2016-12-31"], DataType::Date32),
            (
                &[
                    "2016-03-01T05:00:00",
                    "2016-03-01 05:00:00.25",
                    "2016-03-01",
                ],
                time,
            ),
            (
                &["2016-03-01T05:00:00Z", "2016-03-01T05:00:00+02:00"],
                zoned,
            ),
            (
                &["2016-03-01T05:00:00Z", "2016-03-01T05:00:00"],
                DataType::Utf8,
            ),
            (&["007", "8"], DataType::Utf8),
            (&["99999999999999999999"], DataType::Utf8),
            (&["1", "one"], DataType::Utf8),
            (&["1", "true"], DataType::Utf8),
            (&["2016-02-30"], DataType::Utf8),
            (&["-"], DataType::Utf8),
            (&["", " "], DataType::Utf8),
            (&["", "4"], DataType::Int64),
        ] {
            assert_eq!(of(texts), wanted, "{texts:?}");
        }
    }
}
