//! Types that a column of text can be given, and which texts each of them takes.
//!
//! Invariant: of two kinds that fit the same values the narrower one comes first.

use super::numbers::{
    epoch_ns, is_float, is_int64, is_padded_int64, with_decimal_point, without_thousands,
};
use super::times::{ORDERS, TimeText};
use crate::arguments::{EpochUnit, ImportOptions};
use crate::pattern::Pattern;
use arrow_schema::{DataType, TimeUnit};
use std::borrow::Cow;

/// A type that a column can be given, with the way its texts are read; the narrowest ones come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    /// Integers, some with leading zeros: codes or numbers, which all values of the column decide.
    PaddedInt,
    Float,
    /// With a decimal comma.
    CommaFloat,
    /// Times by one of the patterns that were given.
    Pattern(usize),
    /// Numbers that count a unit of time since 1970.
    Epoch,
    Date,
    Time,
    ZonedTime,
    /// Times outside of the years 1677 to 2262, the range of nanoseconds in 64 bits.
    FarTime,
    FarZonedTime,
}

/// Kinds of times as text, narrowest first.
const TIMES: [Kind; 5] = [
    Kind::Date,
    Kind::Time,
    Kind::ZonedTime,
    Kind::FarTime,
    Kind::FarZonedTime,
];

impl Kind {
    pub(super) fn is_number(self) -> bool {
        matches!(
            self,
            Self::Int | Self::PaddedInt | Self::Float | Self::CommaFloat
        )
    }

    pub(super) fn is_time_text(self) -> bool {
        matches!(self, Self::Pattern(_)) || TIMES.contains(&self)
    }
}

/// Options of the import that hold for all columns.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) patterns: Vec<Pattern>,
    pub(super) unit: Option<EpochUnit>,
    pub(super) decimals: Vec<Kind>,
    pub(super) thousands: Option<char>,
    /// Values that fit nothing are bad rows, not a reason for text.
    pub(super) expects_bad_rows: bool,
}

impl Rules {
    /// `delimiter` is `None` for formats without one.
    pub(super) fn new(
        options: &ImportOptions,
        delimiter: Option<u8>,
        expects_bad_rows: bool,
    ) -> Self {
        // If one of point and comma separates thousands, the other one is the decimal sign.
        let decimal = options.decimal.or(match options.thousands {
            Some('.') => Some(','),
            Some(',') => Some('.'),
            _ => None,
        });
        let decimals = match (decimal, delimiter) {
            (Some(','), _) => vec![Kind::CommaFloat],
            (Some(_), _) | (None, None | Some(b',')) => vec![Kind::Float],
            (None, Some(_)) => vec![Kind::Float, Kind::CommaFloat],
        };
        Self {
            patterns: options.time_format.clone(),
            unit: options.time_unit,
            decimals,
            thousands: options.thousands,
            expects_bad_rows,
        }
    }

    pub(super) fn kinds(&self) -> Vec<Kind> {
        let numbers = [
            &[Kind::Bool, Kind::Int, Kind::PaddedInt][..],
            &self.decimals,
        ]
        .concat();
        let patterns = (0..self.patterns.len()).map(Kind::Pattern);
        numbers.into_iter().chain(patterns).chain(TIMES).collect()
    }

    /// The types that the time column can be given.
    pub(super) fn time_kinds(&self) -> Vec<Kind> {
        if !self.patterns.is_empty() {
            return (0..self.patterns.len()).map(Kind::Pattern).collect();
        }
        if self.unit.is_some() {
            return vec![Kind::Epoch];
        }
        [Kind::Int].into_iter().chain(TIMES).collect()
    }

    pub(super) fn data_type(&self, kind: Kind) -> DataType {
        let time = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let zoned = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        match kind {
            Kind::Bool => DataType::Boolean,
            Kind::Int | Kind::PaddedInt => DataType::Int64,
            Kind::Float | Kind::CommaFloat => DataType::Float64,
            Kind::Pattern(number) => {
                let pattern = &self.patterns[number];
                match (pattern.has_zone(), pattern.has_clock()) {
                    (true, _) => zoned,
                    (false, true) => time,
                    (false, false) => DataType::Date32,
                }
            }
            Kind::Epoch | Kind::Time => time,
            Kind::Date => DataType::Date32,
            Kind::ZonedTime => zoned,
            Kind::FarTime => DataType::Timestamp(TimeUnit::Microsecond, None),
            Kind::FarZonedTime => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    /// Whether a kind takes a text; times are read by `TimeText` once for all kinds.
    pub(super) fn takes(&self, kind: Kind, text: &str, time: Option<&TimeText>) -> bool {
        let text = match self.thousands.filter(|_| kind.is_number()) {
            Some(sign) => {
                let has_decimal_comma = sign == '.' || kind == Kind::CommaFloat;
                match without_thousands(text, sign, has_decimal_comma) {
                    Some(text) => text,
                    None => return false,
                }
            }
            None => Cow::Borrowed(text),
        };
        let text = text.as_ref();
        match kind {
            Kind::Bool => text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false"),
            Kind::Int => is_int64(text),
            Kind::PaddedInt => is_padded_int64(text),
            Kind::Float => is_float(text),
            Kind::CommaFloat => with_decimal_point(text).is_some_and(|text| is_float(&text)),
            Kind::Pattern(number) => self.patterns[number].ns(text).is_some_and(fits_ns),
            Kind::Epoch => self
                .unit
                .and_then(|unit| epoch_ns(text, unit.ns()))
                .is_some_and(fits_ns),
            Kind::Date => time.is_some_and(|time| !time.has_clock()),
            Kind::Time => time.is_some_and(|time| !time.has_zone() && fits(time)),
            // Times without an offset count as UTC if others of the column have one.
            Kind::ZonedTime => time.is_some_and(fits),
            Kind::FarTime => time.is_some_and(|time| !time.has_zone() && fits_us(time)),
            Kind::FarZonedTime => time.is_some_and(fits_us),
        }
    }
}

fn fits_ns(ns: i128) -> bool {
    i64::try_from(ns).is_ok()
}

/// Whether it is a whole number of microseconds that their type holds.
fn fits_us(time: &TimeText) -> bool {
    let fits = |ns: i128| ns % 1_000 == 0 && fits_ns(ns / 1_000);
    ORDERS.iter().filter_map(|order| time.ns(*order)).all(fits)
}

fn fits(time: &TimeText) -> bool {
    ORDERS
        .iter()
        .filter_map(|order| time.ns(*order))
        .all(fits_ns)
}

pub(super) fn uses_orders(kind: Kind) -> bool {
    TIMES.contains(&kind)
}
