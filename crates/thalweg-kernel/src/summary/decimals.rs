//! Summaries of 128 bit decimals: bounds of 64 bits in units of 2^shift.
//!
//! Invariants
//! - With shift 0 bounds, sum and squares are those of the values. With any other shift the bounds are outer ones, and
//!   neither a sum nor squares are known: both are 0.
//! - The shift of the values of a block is the smallest with which both bounds fit; merging takes the larger one.

use super::{ColumnSummary, SummaryKind, SummaryValue, values};

/// The largest shift: the bounds of all decimals of 38 digits fit 64 bits with it.
pub(crate) const MAX_SHIFT: u8 = 64;

/// The first number with too many digits for a decimal.
const TOO_LARGE: u128 = 10_u128.pow(38);

impl values::sealed::Sealed for i128 {}

impl SummaryValue for i128 {
    const KIND: SummaryKind = SummaryKind::Decimal;

    /// Values of more than 38 digits, which no append accepts, are only counted.
    fn summarise(values: &[Self]) -> ColumnSummary {
        let mut narrow = [0_i64; values::CHUNK_ROWS];
        let narrow = &mut narrow[..values.len()];
        let mut all_fit = true;
        for (narrow, &value) in narrow.iter_mut().zip(values) {
            *narrow = low_half(value);
            all_fit &= Self::from(*narrow) == value;
        }
        if all_fit {
            return ColumnSummary {
                kind: SummaryKind::Decimal,
                ..i64::summarise(narrow)
            };
        }
        summarise_wide(values)
    }
}

fn summarise_wide(values: &[i128]) -> ColumnSummary {
    let (mut min, mut max) = (i128::MAX, i128::MIN);
    for &value in values {
        min = min.min(value);
        max = max.max(value);
    }
    let value_rows = values.len() as u64;
    if min.unsigned_abs().max(max.unsigned_abs()) >= TOO_LARGE {
        return ColumnSummary::of_counts(0, value_rows, 0);
    }
    let bounds = (1..=MAX_SHIFT).find_map(|shift| {
        let low = i64::try_from(floor_shift(min, shift)).ok()?;
        let high = i64::try_from(ceil_shift(max, shift)).ok()?;
        Some((shift, low, high))
    });
    let Some((shift, low, high)) = bounds else {
        return ColumnSummary::of_counts(0, value_rows, 0);
    };
    ColumnSummary {
        shift,
        value_rows,
        min: low.cast_unsigned(),
        max: high.cast_unsigned(),
        ..ColumnSummary::empty(0, SummaryKind::Decimal)
    }
}

/// Shift, smallest and largest of the rows of both, which have values.
pub(super) fn merged_bounds(a: &ColumnSummary, b: &ColumnSummary) -> (u8, u64, u64) {
    let shift = a.shift.max(b.shift);
    let low = |summary: &ColumnSummary| {
        low_half(floor_shift(
            i128::from(summary.min.cast_signed()),
            shift - summary.shift,
        ))
    };
    let high = |summary: &ColumnSummary| {
        low_half(ceil_shift(
            i128::from(summary.max.cast_signed()),
            shift - summary.shift,
        ))
    };
    (
        shift,
        low(a).min(low(b)).cast_unsigned(),
        high(a).max(high(b)).cast_unsigned(),
    )
}

impl ColumnSummary {
    /// Bounds of a column of decimals: no value is below the first or above the second. They are the smallest and the
    /// largest value if the third is true.
    #[must_use]
    pub fn decimal_range(&self) -> Option<(i128, i128, bool)> {
        let known = self.kind == SummaryKind::Decimal && self.value_rows > 0;
        let wide = |bound: u64| i128::from(bound.cast_signed()) << self.shift;
        known.then(|| (wide(self.min), wide(self.max), self.shift == 0))
    }

    /// The exact sum of a column of decimals, in units of its scale, where it is known; 0 without values.
    #[must_use]
    pub fn decimal_sum(&self) -> Option<i128> {
        (self.kind == SummaryKind::Decimal && self.shift == 0).then(|| self.sum.cast_signed())
    }
}

fn floor_shift(value: i128, shift: u8) -> i128 {
    value >> shift
}

fn ceil_shift(value: i128, shift: u8) -> i128 {
    // Negating overflows for one number only, which has too many digits.
    (value.wrapping_neg() >> shift).wrapping_neg()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "callers check that the number fits, or know it"
)]
fn low_half(value: i128) -> i64 {
    value as i64
}
