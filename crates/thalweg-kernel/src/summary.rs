//! Summaries of a column of some rows, which answer without reading these: the aggregates of the TAB+-tree (ChronicleDB,
//! section 5.2.1, with the sum of squares that its standard deviation needs).
//!
//! Invariants
//! - Merging is commutative, and associative up to floating rounding.
//! - A summary is *exact*: counts, minimum, maximum and integer sums are those of the rows.
//! - The error of a float sum stays below 1e-12 of the sum of the magnitudes, however many summaries are merged:
//!   sums of summaries carry their rounding error along.
//! - NaN sorts above every number; `min` and `max` are of the other values, and `nan_rows` of the NaNs.
//! - An infinity among the values makes `m2` NaN, as it does in a row-by-row computation.

mod bytes;
mod decimals;
mod values;

pub use bytes::{ByteBounds, MAX_BOUND_BYTES, successor};

pub(crate) use decimals::MAX_SHIFT;
pub use values::{SUMMARY_CHUNK_ROWS, SummaryValue};

use crate::bitmap::Bitmap;
use std::sync::Arc;

/// How the values of a column are summarised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SummaryKind {
    /// Only rows and nulls are counted.
    Count = 1,
    /// Signed integers, dates, timestamps, durations and booleans, as i64.
    Int = 2,
    /// Unsigned integers, as u64.
    UInt = 3,
    /// Floating point, as f64 (f32 widened: exact).
    Float = 4,
    /// Strings and binaries: bounds, which lie beside the summary ([`ByteBounds`]), and the bytes of all values.
    Bytes = 5,
    /// Decimals, as i128: bounds are rounded outwards where they do not fit i64.
    Decimal = 6,
}

impl SummaryKind {
    /// The kind of a byte read from a file.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Count,
            Self::Int,
            Self::UInt,
            Self::Float,
            Self::Bytes,
            Self::Decimal,
        ]
        .into_iter()
        .find(|&kind| kind as u8 == byte)
    }
}

/// The summary of one column over some rows. Two are equal when all their bits are, NaN included.
#[derive(Clone, Copy, Debug)]
pub struct ColumnSummary {
    /// The column's id in its table.
    pub column_id: u32,
    /// How `min`, `max` and `sum` are to be read.
    pub kind: SummaryKind,
    /// Of decimals: `min` and `max` are in units of 2^shift. Unless it is 0 they are outer bounds, and the sum and the
    /// squares are not known.
    pub shift: u8,
    /// Rows that are null.
    pub null_rows: u64,
    /// Rows that are NaN (floats only).
    pub nan_rows: u64,
    /// Rows that are neither null nor NaN.
    pub value_rows: u64,
    /// The smallest and the largest of the `value_rows`, as bits of `kind`; zero when there are none. Of strings the bounds
    /// are elsewhere: `min` is their place beside the summaries of one entry, and no part of the summary itself.
    pub min: u64,
    /// See `min`.
    pub max: u64,
    /// The sum: of integers an i128 in two's complement, of floats the bits of the sum (low half) and of what its
    /// rounding lost (high half), of strings the bytes of all values.
    pub sum: u128,
    /// Sum of squared distances from the mean.
    pub m2: f64,
}

/// Values that a predicate on one column accepts, both ends included; `None` is an open end. Nulls are never accepted.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueRange {
    /// Of a column of kind [`SummaryKind::Int`].
    Int(Option<i64>, Option<i64>),
    /// Of a column of kind [`SummaryKind::UInt`].
    UInt(Option<u64>, Option<u64>),
    /// Of a column of kind [`SummaryKind::Decimal`], in units of its scale.
    Decimal(Option<i128>, Option<i128>),
    /// Of a column of kind [`SummaryKind::Bytes`].
    Bytes {
        /// The smallest accepted value.
        first: Option<Arc<[u8]>>,
        /// The largest accepted value.
        last: Option<Arc<[u8]>>,
        /// Whether `last` itself is not accepted, but only what is smaller.
        is_open: bool,
    },
    /// Of a column of kind [`SummaryKind::Float`]. Ends that are NaN count as open.
    Float {
        /// The smallest accepted number.
        min: Option<f64>,
        /// The largest accepted number.
        max: Option<f64>,
        /// Whether rows that are NaN are accepted. Take `true` in doubt: NaN sorts above every number.
        accepts_nan: bool,
    },
}

impl ColumnSummary {
    /// The summary of no rows.
    #[must_use]
    pub fn empty(column_id: u32, kind: SummaryKind) -> Self {
        Self {
            column_id,
            kind,
            shift: 0,
            null_rows: 0,
            nan_rows: 0,
            value_rows: 0,
            min: 0,
            max: 0,
            sum: 0,
            m2: 0.0,
        }
    }

    /// The summary of a column of which only nulls are counted.
    ///
    /// # Panics
    /// When there are more nulls than rows.
    #[must_use]
    pub fn of_counts(column_id: u32, rows: u64, null_rows: u64) -> Self {
        assert!(null_rows <= rows, "{null_rows} nulls in {rows} rows");
        Self {
            null_rows,
            value_rows: rows - null_rows,
            ..Self::empty(column_id, SummaryKind::Count)
        }
    }

    /// The summary of some values; a zero bit in `validity` makes a row null, whatever value it holds.
    ///
    /// # Panics
    /// When `validity` is not as long as `values`.
    #[must_use]
    pub fn of_values<T: SummaryValue>(
        column_id: u32,
        values: &[T],
        validity: Option<Bitmap<'_>>,
    ) -> Self {
        values::of_values(column_id, values, validity, |_| {})
    }

    /// Like `of_values`, and on the way the summaries of every [`SUMMARY_CHUNK_ROWS`] values, of column 0.
    ///
    /// # Panics
    /// When `validity` is not as long as `values`.
    #[must_use]
    pub fn of_chunks<T: SummaryValue>(
        column_id: u32,
        values: &[T],
        validity: Option<Bitmap<'_>>,
        each: impl FnMut(&Self),
    ) -> Self {
        values::of_values(column_id, values, validity, each)
    }

    /// The summary of booleans: integers 0 and 1.
    ///
    /// # Panics
    /// When `validity` is not as long as `values`.
    #[must_use]
    pub fn of_bools(column_id: u32, values: Bitmap<'_>, validity: Option<Bitmap<'_>>) -> Self {
        values::of_bools(column_id, values, validity)
    }

    /// Rows that are summarised here.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.null_rows + self.nan_rows + self.value_rows
    }

    /// Whether no row is summarised here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    /// The summary of the rows of both. Of different kinds (which no change of a column's type leads to) only the
    /// counts survive.
    ///
    /// # Panics
    /// When they are of different columns.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        assert_eq!(
            self.column_id, other.column_id,
            "summaries of different columns"
        );
        let mut merged = Self {
            null_rows: self.null_rows + other.null_rows,
            nan_rows: self.nan_rows + other.nan_rows,
            value_rows: self.value_rows + other.value_rows,
            ..Self::empty(self.column_id, self.kind)
        };
        if self.kind != other.kind {
            // NaNs are rows like others where only nulls are counted apart.
            merged.kind = SummaryKind::Count;
            merged.value_rows += std::mem::take(&mut merged.nan_rows);
            return merged;
        }
        if self.value_rows == 0 || other.value_rows == 0 {
            let from = if self.value_rows == 0 { other } else { self };
            return Self {
                shift: from.shift,
                min: from.min,
                max: from.max,
                sum: from.sum,
                m2: from.m2,
                ..merged
            };
        }
        (merged.min, merged.max) = match self.kind {
            SummaryKind::Count => return merged,
            SummaryKind::Bytes => {
                merged.sum = self.sum.wrapping_add(other.sum);
                return merged;
            }
            SummaryKind::Int => (
                self.min
                    .cast_signed()
                    .min(other.min.cast_signed())
                    .cast_unsigned(),
                self.max
                    .cast_signed()
                    .max(other.max.cast_signed())
                    .cast_unsigned(),
            ),
            SummaryKind::UInt => (self.min.min(other.min), self.max.max(other.max)),
            SummaryKind::Decimal => {
                let (shift, min, max) = decimals::merged_bounds(self, other);
                merged.shift = shift;
                (min, max)
            }
            // By total order: of two zeros the negative one is the smaller, whichever comes first.
            SummaryKind::Float => (
                std::cmp::min_by(self.min, other.min, total_order),
                std::cmp::max_by(self.max, other.max, total_order),
            ),
        };
        if merged.shift > 0 {
            return merged;
        }
        merged.sum = match self.kind {
            SummaryKind::Float => values::join_sum(values::add_sums(
                values::split_sum(self.sum),
                values::split_sum(other.sum),
            )),
            _ => self.sum.wrapping_add(other.sum),
        };
        merged.m2 = self.merged_m2(other);
        merged
    }

    /// Chan, Golub and LeVeque: pairwise updating of sums of squares, stable where the two sides are of unlike size.
    fn merged_m2(&self, other: &Self) -> f64 {
        let (here, there) = (count_f64(self.value_rows), count_f64(other.value_rows));
        let distance = self.mean_distance(other);
        values::settled(self.m2 + other.m2 + distance * distance * (here * there / (here + there)))
    }

    /// How far the means lie apart. Of integers it is taken from their offsets to a value of the column: the means of
    /// time stamps of today are rounded to a quarter of a microsecond.
    fn mean_distance(&self, other: &Self) -> f64 {
        let Some(base) = self.wide_min() else {
            return self.mean().unwrap_or(0.0) - other.mean().unwrap_or(0.0);
        };
        let mean_offset = |summary: &Self| {
            let rows = i128::from(summary.value_rows);
            let offsets = summary
                .sum
                .cast_signed()
                .wrapping_sub(base.wrapping_mul(rows));
            values::rounded_f64(offsets) / count_f64(summary.value_rows)
        };
        mean_offset(self) - mean_offset(other)
    }

    /// The minimum of a column of integers, or of decimals in units of their shift.
    pub(crate) fn wide_min(&self) -> Option<i128> {
        match self.kind {
            SummaryKind::Int | SummaryKind::Decimal => Some(i128::from(self.min.cast_signed())),
            SummaryKind::UInt => Some(i128::from(self.min)),
            SummaryKind::Count | SummaryKind::Float | SummaryKind::Bytes => None,
        }
    }

    /// The smallest and the largest value of a column of signed integers.
    #[must_use]
    pub fn int_range(&self) -> Option<(i64, i64)> {
        let known = self.kind == SummaryKind::Int && self.value_rows > 0;
        known.then(|| (self.min.cast_signed(), self.max.cast_signed()))
    }

    /// The smallest and the largest value of a column of unsigned integers.
    #[must_use]
    pub fn uint_range(&self) -> Option<(u64, u64)> {
        (self.kind == SummaryKind::UInt && self.value_rows > 0).then_some((self.min, self.max))
    }

    /// The smallest and the largest number of a column of floats, NaNs left out.
    #[must_use]
    pub fn float_range(&self) -> Option<(f64, f64)> {
        let known = self.kind == SummaryKind::Float && self.value_rows > 0;
        known.then(|| (f64::from_bits(self.min), f64::from_bits(self.max)))
    }

    /// The exact sum of a column of integers of either kind; 0 without values.
    #[must_use]
    pub fn int_sum(&self) -> Option<i128> {
        matches!(self.kind, SummaryKind::Int | SummaryKind::UInt).then(|| self.sum.cast_signed())
    }

    /// The sum of the numbers of a column of floats, NaNs left out; 0 without values.
    #[must_use]
    pub fn float_sum(&self) -> Option<f64> {
        (self.kind == SummaryKind::Float).then(|| {
            let (sum, lost) = values::split_sum(self.sum);
            sum + lost
        })
    }

    /// The mean of the values, nulls and NaNs left out; of decimals it is not computed.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let sum = match self.kind {
            SummaryKind::Count | SummaryKind::Bytes | SummaryKind::Decimal => return None,
            SummaryKind::Int | SummaryKind::UInt => values::rounded_f64(self.sum.cast_signed()),
            SummaryKind::Float => self.float_sum()?,
        };
        (self.value_rows > 0).then(|| sum / count_f64(self.value_rows))
    }

    /// The sum of squared distances from the mean, nulls and NaNs left out: variance times count.
    #[must_use]
    pub fn squared_distances(&self) -> Option<f64> {
        use SummaryKind as K;
        matches!(self.kind, K::Int | K::UInt | K::Float).then_some(self.m2)
    }

    /// Whether none of the summarised rows can lie in `range`. In doubt (another kind) they can.
    #[must_use]
    pub fn prunes(&self, range: &ValueRange) -> bool {
        self.prunes_with(None, range)
    }

    /// Like [`Self::prunes`], with the bounds of a column of strings.
    pub(crate) fn prunes_with(&self, bounds: Option<&ByteBounds>, range: &ValueRange) -> bool {
        if let ValueRange::Bytes {
            first,
            last,
            is_open,
        } = range
            && let Some(bounds) = bounds
        {
            return bounds.misses(first.as_deref(), last.as_deref(), *is_open);
        }
        match *range {
            ValueRange::Int(low, high) if self.kind == SummaryKind::Int => self
                .int_range()
                .is_none_or(|(min, max)| apart(min, max, low, high)),
            ValueRange::UInt(low, high) if self.kind == SummaryKind::UInt => self
                .uint_range()
                .is_none_or(|(min, max)| apart(min, max, low, high)),
            ValueRange::Decimal(low, high) if self.kind == SummaryKind::Decimal => self
                .decimal_range()
                .is_none_or(|(min, max, _)| apart(min, max, low, high)),
            ValueRange::Float {
                min: low,
                max: high,
                accepts_nan,
            } if self.kind == SummaryKind::Float => {
                (self.nan_rows == 0 || !accepts_nan)
                    && self
                        .float_range()
                        .is_none_or(|(min, max)| apart(min, max, low, high))
            }
            // Whatever the range means, a null is not in it.
            _ => self.null_rows == self.rows(),
        }
    }
}

impl PartialEq for ColumnSummary {
    fn eq(&self, other: &Self) -> bool {
        let bits = |summary: &Self| {
            let Self {
                column_id,
                kind,
                shift,
                null_rows,
                nan_rows,
                value_rows,
                min,
                max,
                sum,
                m2,
            } = *summary;
            let bounds = if kind == SummaryKind::Bytes {
                (0, 0)
            } else {
                (min, max)
            };
            let rows = (null_rows, nan_rows, value_rows);
            (column_id, kind, shift, rows, bounds, sum, m2.to_bits())
        };
        bits(self) == bits(other)
    }
}

impl Eq for ColumnSummary {}

/// Whether `min..=max` and `low..=high` have nothing in common. A NaN end compares as false: open.
fn apart<T: PartialOrd>(min: T, max: T, low: Option<T>, high: Option<T>) -> bool {
    low.is_some_and(|low| max < low) || high.is_some_and(|high| min > high)
}

fn total_order(a: &u64, b: &u64) -> std::cmp::Ordering {
    f64::from_bits(*a).total_cmp(&f64::from_bits(*b))
}

/// A count of rows as a float; beyond 2^53 rows it is rounded.
#[expect(
    clippy::cast_precision_loss,
    reason = "weights of a mean need no more digits than the mean has"
)]
fn count_f64(rows: u64) -> f64 {
    rows as f64
}

#[cfg(test)]
mod tests;
