//! Ranges of the order key and of other columns, as readers ask for them.
//!
//! Invariants: a [`KeyRange`] is closed at both ends, so that every key of the type, the largest too, can be asked for;
//! it is empty exactly when `first > last`.

use std::ops::RangeInclusive;
use thalweg_kernel::summary::ValueRange;

/// A range of the order keys that a layout gives to rows: in a stream their times as `i64` (see [`crate::order_keys`]).
///
/// ```
/// # fn main() -> thalweg_table::Result<()> {
/// # use thalweg_table as thalweg;
/// use arrow_schema::{DataType, TimeUnit};
/// use thalweg::{KeyRange, TimeBound, key_range};
///
/// let seconds = DataType::Timestamp(TimeUnit::Second, None);
/// let day = key_range(&seconds, Some(TimeBound::Text("1970-01-02")), Some(TimeBound::Text("1970-01-03")))?;
/// assert_eq!(KeyRange::from(day), KeyRange::from(86_400..=172_799)); // both ends included
/// # Ok(())
/// # }
/// ```
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
    ///
    /// ```
    /// # use thalweg_table::KeyRange;
    /// let range = KeyRange::half_open(Some(10), Some(20));
    /// assert!(range.contains(19) && !range.contains(20));
    /// assert_eq!(KeyRange::half_open(None, None), KeyRange::ALL);
    /// assert!(KeyRange::half_open(Some(20), Some(20)).is_empty());
    /// ```
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
    ///
    /// ```
    /// # use thalweg_table::KeyRange;
    /// let (morning, shift) = (KeyRange::from(0..=11), KeyRange::from(8..=16));
    /// assert_eq!(morning.intersect(shift), KeyRange::from(8..=11));
    /// assert!(morning.intersect(KeyRange::from(12..=23)).is_empty());
    /// ```
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
///
/// ```
/// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
/// # fn main() -> thalweg::Result<()> {
/// # let db = Engine::in_memory(EngineOptions::default())?;
/// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
/// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts").with("split", 60))?;
/// use thalweg::{ColumnRange, ScanRequest, Value, ValueRange};
///
/// let mut appender = room.appender();
/// for second in 0..120 {
///     appender.put(&[Value::Int(second), Value::Float(if second == 70 { 30.0 } else { 20.0 })])?;
/// }
/// appender.flush()?;
/// room.maintain()?; // two blocks, as `split` is 60
/// let hot = ValueRange::Float { min: Some(25.0), max: None, accepts_nan: false };
/// let request = ScanRequest { ranges: vec![ColumnRange { column: 1, range: hot }], ..Default::default() };
/// let mut rows = 0;
/// for batch in room.view()?.scan(&request)? {
///     rows += batch?.num_rows();
/// }
/// assert_eq!(rows, 60); // the whole minute of the hot row, which is still to be filtered
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnRange {
    /// The column's place in the schema.
    pub column: usize,
    /// The wanted values, in the unit of the column.
    pub range: ValueRange,
}
