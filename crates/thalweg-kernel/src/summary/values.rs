//! One pass over the values of a column: this runs over every row that is ingested.
//!
//! The loops keep several independent accumulators, so that the compiler turns them into vector instructions of any
//! machine; none branches on a value. Values are taken in chunks of [`CHUNK_ROWS`], small enough for the first-level
//! cache and for plain float sums: within a chunk rounding is at most 128 additions deep (2e-14 of the magnitudes),
//! across chunks sums are compensated. Compensating every addition was rejected: half the speed for digits nobody
//! is promised. Nulls and NaNs are squeezed out before a chunk is summarised, so that there is one loop per kind.

use super::{ColumnSummary, SummaryKind, count_f64};
use crate::bitmap::Bitmap;

/// Values summarised at once: those of a page, so that zones of blocks come out on the way.
pub const SUMMARY_CHUNK_ROWS: usize = 1024;

pub(super) const CHUNK_ROWS: usize = SUMMARY_CHUNK_ROWS;

/// Accumulators per quantity: enough to hide the latency of an addition, few enough for 16 vector registers.
const LANES: usize = 4;

/// Accumulators of a loop over floats with one quantity only.
const FOLDS: usize = 8;

/// A type whose values can be summarised: integers of up to 64 bits and floats. Sealed.
pub trait SummaryValue: Copy + Default + sealed::Sealed {
    /// How its values are summarised.
    const KIND: SummaryKind;

    /// The summary of at most [`CHUNK_ROWS`] values without nulls, of column 0.
    #[doc(hidden)]
    fn summarise(values: &[Self]) -> ColumnSummary;
}

pub(super) mod sealed {
    pub trait Sealed {}
}

pub(super) fn of_values<T: SummaryValue>(
    column_id: u32,
    values: &[T],
    validity: Option<Bitmap<'_>>,
    mut each: impl FnMut(&ColumnSummary),
) -> ColumnSummary {
    let mut total = ColumnSummary::empty(0, T::KIND);
    match validity {
        None => {
            for chunk in values.chunks(CHUNK_ROWS) {
                let summary = T::summarise(chunk);
                each(&summary);
                total = total.merge(&summary);
            }
        }
        Some(validity) => {
            assert_eq!(
                validity.len_bits(),
                values.len(),
                "as many validity bits as values"
            );
            let mut squeezed = [T::default(); CHUNK_ROWS];
            for (index, chunk) in values.chunks(CHUNK_ROWS).enumerate() {
                let valid = squeeze_valid(chunk, &validity, index * CHUNK_ROWS, &mut squeezed);
                let summary = ColumnSummary {
                    null_rows: (chunk.len() - valid.len()) as u64,
                    ..T::summarise(valid)
                };
                each(&summary);
                total = total.merge(&summary);
            }
        }
    }
    ColumnSummary { column_id, ..total }
}

pub(super) fn of_bools(
    column_id: u32,
    values: Bitmap<'_>,
    validity: Option<Bitmap<'_>>,
) -> ColumnSummary {
    let rows = values.len_bits();
    if let Some(validity) = &validity {
        assert_eq!(validity.len_bits(), rows, "as many validity bits as values");
    }
    let (mut valid_rows, mut true_rows) = (0_u64, 0_u64);
    for start in (0..rows).step_by(64) {
        let in_range = if rows - start < 64 {
            (1 << (rows - start)) - 1
        } else {
            u64::MAX
        };
        let valid = validity.map_or(in_range, |validity| validity.word(start));
        valid_rows += u64::from(valid.count_ones());
        true_rows += u64::from((valid & values.word(start)).count_ones());
    }
    let mut summary = ColumnSummary::empty(column_id, SummaryKind::Int);
    summary.null_rows = rows as u64 - valid_rows;
    summary.value_rows = valid_rows;
    if valid_rows > 0 {
        summary.min = u64::from(true_rows == valid_rows);
        summary.max = u64::from(true_rows > 0);
        summary.sum = u128::from(true_rows);
        summary.m2 =
            count_f64(true_rows) * count_f64(valid_rows - true_rows) / count_f64(valid_rows);
    }
    summary
}

/// The valid values of a chunk that starts at row `start`: the chunk itself if all are.
fn squeeze_valid<'a, T: Copy>(
    chunk: &'a [T],
    validity: &Bitmap<'_>,
    start: usize,
    squeezed: &'a mut [T; CHUNK_ROWS],
) -> &'a [T] {
    let mut kept = 0;
    let mut all_valid = true;
    for (index, values) in chunk.chunks(64).enumerate() {
        let mut word = validity.word(start + index * 64);
        all_valid &= word.count_ones() as usize == values.len();
        if all_valid {
            kept += values.len();
            continue;
        }
        if kept == index * 64 {
            // The first null of the chunk may be in this word: nothing was copied so far.
            squeezed[..kept].copy_from_slice(&chunk[..kept]);
        }
        for &value in values {
            // No branch on the bit: an invalid value is overwritten by the next one. `kept` stays below the length
            // of the buffer because it is below the number of values seen; the mask spares the bounds check.
            squeezed[kept % CHUNK_ROWS] = value;
            kept += (word & 1) as usize;
            word >>= 1;
        }
    }
    if all_valid { chunk } else { &squeezed[..kept] }
}

// ---- Integers ----

/// The part of a double that makes its low 52 bits an integer: `from_bits(EXPONENT_52 | b)` is `2^52 + b`.
const EXPONENT_52: u64 = 0x4330_0000_0000_0000;
const TWO_52: i64 = 1 << 52;
const TWO_51: i64 = 1 << 51;

/// Integers as 64 raw bits whose differences are right modulo 2^64.
trait RawInt: Copy + Ord {
    const KIND: SummaryKind;
    /// Smallest and largest number of the kind (not of the type).
    const BOUNDS: (i128, i128);
    fn raw(self) -> u64;
    fn wide(self) -> i128;
}

macro_rules! integers {
    ($($type:ty => $kind:ident, $wide:ty, $raw:expr;)*) => {
        $(impl RawInt for $type {
            const KIND: SummaryKind = SummaryKind::$kind;
            const BOUNDS: (i128, i128) = (<$wide>::MIN as i128, <$wide>::MAX as i128);
            #[inline]
            fn raw(self) -> u64 {
                $raw(<$wide>::from(self))
            }
            #[inline]
            fn wide(self) -> i128 {
                i128::from(self)
            }
        }
        impl sealed::Sealed for $type {}
        impl SummaryValue for $type {
            const KIND: SummaryKind = SummaryKind::$kind;
            fn summarise(values: &[Self]) -> ColumnSummary {
                summarise_integers(values)
            }
        })*
    };
}

integers! {
    i8 => Int, i64, i64::cast_unsigned;
    i16 => Int, i64, i64::cast_unsigned;
    i32 => Int, i64, i64::cast_unsigned;
    i64 => Int, i64, i64::cast_unsigned;
    u8 => UInt, u64, u64::from;
    u16 => UInt, u64, u64::from;
    u32 => UInt, u64, u64::from;
    u64 => UInt, u64, u64::from;
}

fn summarise_integers<T: RawInt>(values: &[T]) -> ColumnSummary {
    assert!(
        values.len() <= CHUNK_ROWS,
        "a chunk of {} values",
        values.len()
    );
    let Some(&first) = values.first() else {
        return ColumnSummary::empty(0, T::KIND);
    };
    summarise_near(first, values).unwrap_or_else(|| summarise_far(first, values))
}

/// Values within 2^51 of the first one, nearly always: differences to it are exact as floats, so that minimum,
/// maximum and squares are float instructions (64-bit integers have none of the three in the base instruction set).
///
/// Squares are taken around the first value, not around the mean: it is one of the values, so the sum of squares
/// around it is at most `n + 1` times that around the mean, and the subtraction loses no more than 10 bits of 53.
fn summarise_near<T: RawInt>(first: T, values: &[T]) -> Option<ColumnSummary> {
    // All of base..base + 2^52 is within the kind's numbers: differences to base do not wrap around.
    let base = (first.wide() - i128::from(TWO_51))
        .clamp(T::BOUNDS.0, T::BOUNDS.1 - i128::from(TWO_52 - 1));
    let first_offset = i64::try_from(first.wide() - base).ok()?;
    let base_raw = first.raw().wrapping_sub(first_offset.cast_unsigned());
    let zero = f64::from_bits(EXPONENT_52 | first_offset.cast_unsigned());

    let mut used_bits = [0_u64; LANES];
    let mut offsets = [0_u64; LANES];
    let (mut lows, mut highs, mut squares) = ([0.0_f64; LANES], [0.0_f64; LANES], [0.0_f64; LANES]);
    for_lanes(values, |lane, value| {
        let offset = value.raw().wrapping_sub(base_raw);
        used_bits[lane] |= offset;
        offsets[lane] = offsets[lane].wrapping_add(offset);
        let distance = f64::from_bits(EXPONENT_52 | offset) - zero;
        lows[lane] = if distance < lows[lane] {
            distance
        } else {
            lows[lane]
        };
        highs[lane] = if distance > highs[lane] {
            distance
        } else {
            highs[lane]
        };
        squares[lane] += distance * distance;
    });

    if used_bits.iter().fold(0, |all, bits| all | bits) >= TWO_52.cast_unsigned() {
        return None;
    }
    // 1,024 offsets below 2^52: no lane overflowed, nor does their sum.
    let offsets_sum: u64 = offsets.iter().sum();
    let count = values.len() as i128;
    let distances_sum = i128::from(offsets_sum) - count * i128::from(first_offset);
    let distances_sum_f64 = rounded_f64(distances_sum);
    let m2 = squares.iter().sum::<f64>()
        - distances_sum_f64 * distances_sum_f64 / count_f64(values.len() as u64);
    let low = lows.iter().fold(0.0_f64, |low, &lane| low.min(lane));
    let high = highs.iter().fold(0.0_f64, |high, &lane| high.max(lane));
    Some(ColumnSummary {
        value_rows: values.len() as u64,
        min: first.raw().wrapping_add(exact_i64(low).cast_unsigned()),
        max: first.raw().wrapping_add(exact_i64(high).cast_unsigned()),
        sum: (count * first.wide() + distances_sum).cast_unsigned(),
        m2: settled(m2),
        ..ColumnSummary::empty(0, T::KIND)
    })
}

/// Values all over the 64-bit range (hashes, identifiers): plain loops, squares around the mean.
fn summarise_far<T: RawInt>(first: T, values: &[T]) -> ColumnSummary {
    let (mut min, mut max, mut sum) = (first, first, 0_i128);
    for &value in values {
        min = min.min(value);
        max = max.max(value);
        sum += value.wide();
    }
    let count = count_f64(values.len() as u64);
    let mean_offset = rounded_f64(sum - values.len() as i128 * min.wide()) / count;
    let (mut squares, mut residue) = (0.0, 0.0);
    for &value in values {
        let distance = count_f64(value.raw().wrapping_sub(min.raw())) - mean_offset;
        squares += distance * distance;
        residue += distance;
    }
    ColumnSummary {
        value_rows: values.len() as u64,
        min: min.raw(),
        max: max.raw(),
        sum: sum.cast_unsigned(),
        m2: settled(squares - residue * residue / count),
        ..ColumnSummary::empty(0, T::KIND)
    }
}

/// An integer as a float, rounded once.
#[expect(clippy::cast_precision_loss, reason = "documented")]
pub(super) fn rounded_f64(integer: i128) -> f64 {
    integer as f64
}

/// A float that holds an integer below 2^52 in magnitude.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the argument is an integer below 2^52 in magnitude"
)]
fn exact_i64(float: f64) -> i64 {
    float as i64
}

// ---- Floats ----

macro_rules! floats {
    ($($type:ty),*) => {
        $(impl sealed::Sealed for $type {}
        impl SummaryValue for $type {
            const KIND: SummaryKind = SummaryKind::Float;
            fn summarise(values: &[Self]) -> ColumnSummary {
                summarise_floats(values)
            }
        })*
    };
}

floats!(f32, f64);

fn summarise_floats<T: Copy + Default + Into<f64>>(values: &[T]) -> ColumnSummary {
    assert!(
        values.len() <= CHUNK_ROWS,
        "a chunk of {} values",
        values.len()
    );
    let summary = summarise_numbers(values);
    if !split_sum(summary.sum).0.is_nan() {
        return summary;
    }
    // There is a NaN among the values, or infinities of both signs.
    let mut numbers = [T::default(); CHUNK_ROWS];
    let mut kept = 0;
    for &value in values {
        numbers[kept % CHUNK_ROWS] = value;
        kept += usize::from(!value.into().is_nan());
    }
    let nan_rows = (values.len() - kept) as u64;
    ColumnSummary {
        nan_rows,
        ..summarise_numbers(&numbers[..kept])
    }
}

/// Values without NaNs; with them the sum is NaN. Squares are taken around the first value, as with integers.
fn summarise_numbers<T: Copy + Into<f64>>(values: &[T]) -> ColumnSummary {
    let Some(&first) = values.first() else {
        return ColumnSummary::empty(0, SummaryKind::Float);
    };
    let first = first.into();
    // A comparison and a choice is one instruction; `min` and `max` would be four for the sake of NaN.
    let lows = fold_lanes(
        values,
        f64::INFINITY,
        |low, value| if value < low { value } else { low },
    );
    let highs = fold_lanes(values, f64::NEG_INFINITY, |high, value| {
        if value > high { value } else { high }
    });
    let sums = fold_lanes(values, 0.0, |sum, value| sum + value);
    let distances = fold_lanes(values, 0.0, |sum, value| sum + (value - first));
    let squares = fold_lanes(values, 0.0, |sum, value| {
        sum + (value - first) * (value - first)
    });
    let sum = sums
        .iter()
        .fold((0.0, 0.0), |sum, &lane| add_sums(sum, (lane, 0.0)));
    let (distance, square) = (distances.iter().sum::<f64>(), squares.iter().sum::<f64>());
    // By total order, so that of two zeros the same one wins on every machine.
    let least = lows.into_iter().min_by(f64::total_cmp).unwrap_or(first);
    let greatest = highs.into_iter().max_by(f64::total_cmp).unwrap_or(first);
    ColumnSummary {
        value_rows: values.len() as u64,
        min: least.to_bits(),
        max: greatest.to_bits(),
        sum: join_sum(sum),
        m2: settled(square - distance * distance / count_f64(values.len() as u64)),
        ..ColumnSummary::empty(0, SummaryKind::Float)
    }
}

/// Folds the values of a chunk into several accumulators, one of them for what is left over.
fn fold_lanes<T, F>(values: &[T], start: f64, fold: F) -> [f64; FOLDS + 1]
where
    T: Copy + Into<f64>,
    F: Fn(f64, f64) -> f64,
{
    let (groups, rest) = values.as_chunks::<FOLDS>();
    let mut folded = [start; FOLDS + 1];
    folded[..FOLDS].copy_from_slice(&fold_groups(groups, start, &fold));
    folded[FOLDS] = rest
        .iter()
        .fold(start, |folded, &value| fold(folded, value.into()));
    folded
}

/// One quantity per loop, and a call per loop: of loops over several floats, or with single lanes used right after
/// them, the compiler makes a muddle of half vectors, at a third of the speed.
#[inline(never)]
fn fold_groups<T, F>(groups: &[[T; FOLDS]], start: f64, fold: F) -> [f64; FOLDS]
where
    T: Copy + Into<f64>,
    F: Fn(f64, f64) -> f64,
{
    let mut lanes = [start; FOLDS];
    for group in groups {
        for lane in 0..FOLDS {
            lanes[lane] = fold(lanes[lane], group[lane].into());
        }
    }
    lanes
}

/// Calls `step` with every value; neighbours get different lanes.
#[inline(always)]
fn for_lanes<T: Copy>(values: &[T], mut step: impl FnMut(usize, T)) {
    let (groups, rest) = values.as_chunks::<LANES>();
    for group in groups {
        for (lane, &value) in group.iter().enumerate() {
            step(lane, value);
        }
    }
    for (lane, &value) in rest.iter().enumerate() {
        step(lane, value);
    }
}

/// The sum of two sums, each with what its rounding lost (Knuth's two-sum, then renormalised).
pub(super) fn add_sums(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let sum = a.0 + b.0;
    if !sum.is_finite() {
        return (sum, 0.0);
    }
    let b_part = sum - a.0;
    let lost = (a.0 - (sum - b_part)) + (b.0 - b_part) + (a.1 + b.1);
    let total = sum + lost;
    if total.is_finite() {
        (total, lost - (total - sum))
    } else {
        (total, 0.0)
    }
}

/// A sum of squares without the sign that rounding may leave, and with one NaN only: machines differ in its bits.
pub(super) fn settled(m2: f64) -> f64 {
    if m2.is_nan() {
        f64::NAN
    } else if m2 > 0.0 {
        m2
    } else {
        0.0
    }
}

/// A float sum and what its rounding lost, as a summary stores them: with one NaN only, for machines differ in its bits.
pub(super) fn join_sum((sum, lost): (f64, f64)) -> u128 {
    let bits = |float: f64| u128::from(if float.is_nan() { f64::NAN } else { float }.to_bits());
    bits(sum) | bits(lost) << 64
}

/// See [`join_sum`].
#[expect(
    clippy::cast_possible_truncation,
    reason = "the two halves of 128 bits"
)]
pub(super) fn split_sum(sum: u128) -> (f64, f64) {
    (
        f64::from_bits(sum as u64),
        f64::from_bits((sum >> 64) as u64),
    )
}
