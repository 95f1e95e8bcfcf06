//! What is known of a column of some rows without reading them: the aggregates of the TAB+-tree (ChronicleDB,
//! section 5.2.1, with the sum of squares that its standard deviation needs).
//!
//! Invariants: merging is associative up to floating rounding and commutative; a summary is *exact*: count, nulls,
//! minimum, maximum and integer sums are those of the rows. NaN sorts above every number, so a column with NaNs has
//! `max` = NaN only through `nans > 0`; `min` and `max` themselves speak of the other values.

/// How the values of a column are summarised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SummaryKind {
    /// Only rows and nulls are counted (strings, binary, decimals).
    Count = 1,
    /// Signed integers, dates, timestamps, durations and booleans, as i64.
    Int = 2,
    /// Unsigned integers, as u64.
    UInt = 3,
    /// Floating point, as f64 (f32 widened: exact).
    Float = 4,
}

/// The summary of one column over some rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnSummary {
    /// The column's id in its table.
    pub column_id: u32,
    /// How `min`, `max` and `sum` are to be read.
    pub kind: SummaryKind,
    /// Rows that are null.
    pub null_rows: u64,
    /// Rows that are NaN (floats only).
    pub nan_rows: u64,
    /// Rows that are neither null nor NaN.
    pub value_rows: u64,
    /// The smallest and the largest of the `value_rows`, as bits of `kind`; meaningless when there are none.
    pub min: u64,
    /// See `min`.
    pub max: u64,
    /// The sum: of integers an i128 in two's complement, of floats the sum's and its compensation's bits.
    pub sum: u128,
    /// Sum of squared distances from the mean.
    pub m2: f64,
}
