//! Ranges of the order key and of other columns, as readers ask for them.
//!
//! Invariants: a [`KeyRange`] is closed at both ends, so that every key of the type, the largest too, can be asked for;
//! it is empty exactly when `first > last`.

use std::ops::RangeInclusive;
use thalweg_kernel::summary::ValueRange;

/// A range of the order keys that a layout gives to rows: in a stream their times as `i64` (see [`crate::order_keys`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// The smallest key in it.
    pub first: i64,
    /// The largest key in it.
    pub last: i64,
}

impl KeyRange {
    /// Every key.
    pub const ALL: Self = Self {
        first: i64::MIN,
        last: i64::MAX,
    };
    /// No key.
    pub const EMPTY: Self = Self {
        first: i64::MAX,
        last: i64::MIN,
    };

    /// The keys from `start` on that are below `end`; a side not given is open.
    #[must_use]
    pub fn half_open(start: Option<i64>, end: Option<i64>) -> Self {
        let first = start.unwrap_or(i64::MIN);
        match end {
            None => Self {
                first,
                last: i64::MAX,
            },
            // Nothing lies below the smallest key.
            Some(end) => end
                .checked_sub(1)
                .map_or(Self::EMPTY, |last| Self { first, last }),
        }
    }

    /// Whether no key is in it.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.first > self.last
    }

    /// Whether `key` is in it.
    #[must_use]
    pub fn contains(self, key: i64) -> bool {
        self.first <= key && key <= self.last
    }

    /// Whether all keys from `first` to `last` are in it.
    #[must_use]
    pub fn covers(self, first: i64, last: i64) -> bool {
        self.first <= first && last <= self.last
    }

    /// The keys in both.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        Self {
            first: self.first.max(other.first),
            last: self.last.min(other.last),
        }
    }

    /// Where in ascending `keys` the range lies.
    pub(crate) fn positions(self, keys: &[i64]) -> std::ops::Range<usize> {
        let start = keys.partition_point(|key| *key < self.first);
        let length = keys[start..].partition_point(|key| *key <= self.last);
        start..start + length
    }
}

impl Default for KeyRange {
    fn default() -> Self {
        Self::ALL
    }
}

impl From<RangeInclusive<i64>> for KeyRange {
    fn from(range: RangeInclusive<i64>) -> Self {
        Self {
            first: *range.start(),
            last: *range.end(),
        }
    }
}

/// From [`crate::key_range`]: `None` is the empty range.
impl From<Option<RangeInclusive<i64>>> for KeyRange {
    fn from(range: Option<RangeInclusive<i64>>) -> Self {
        range.map_or(Self::EMPTY, Self::from)
    }
}

/// The values that a reader wants of a column. It only *prunes*: blocks whose summary has no such value are not read,
/// but rows of the blocks that are read must still be filtered. Nulls are not wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnRange {
    /// The column's place in the schema.
    pub column: usize,
    /// The wanted values, in the unit of the column.
    pub range: ValueRange,
}
