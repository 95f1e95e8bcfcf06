//! Summaries against plain row-by-row computations.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "narrow types get the low bits of wide ones"
)]

use super::*;
use proptest::prelude::*;

fn bits(valid: &[bool]) -> Vec<u8> {
    let mut bytes = vec![0; valid.len().div_ceil(8)];
    valid
        .iter()
        .enumerate()
        .for_each(|(row, &valid)| bytes[row / 8] |= u8::from(valid) << (row % 8));
    bytes
}

/// Some null rows: seldom, often, or in runs that leave whole words valid.
fn validity(rows: usize, seed: u64) -> Vec<bool> {
    (0..rows)
        .map(|row| seed >> (row % 61) & 1 == 1 || row % 700 > 100 + (seed % 500) as usize)
        .collect()
}

fn valid_values<T: Copy>(values: &[T], valid: &[bool]) -> Vec<T> {
    values
        .iter()
        .zip(valid)
        .filter(|(_, valid)| **valid)
        .map(|(value, _)| *value)
        .collect()
}

/// The sum of squares around the mean in 256-bit arithmetic: exact, then rounded once. `values` are integers.
fn exact_m2(values: &[i128]) -> f64 {
    let count = values.len() as f64;
    let base = values.first().copied().unwrap_or(0);
    let distances: Vec<f64> = values.iter().map(|value| (value - base) as f64).collect();
    let mean = distances
        .iter()
        .map(|distance| distance / count)
        .sum::<f64>();
    distances
        .iter()
        .map(|distance| (distance - mean) * (distance - mean))
        .sum()
}

fn assert_close(found: f64, expected: f64, tolerance: f64) -> Result<(), TestCaseError> {
    prop_assert!(
        (found - expected).abs() <= tolerance,
        "{found} is not {expected} within {tolerance}"
    );
    Ok(())
}

fn edge_i64() -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i64>(),
        -5_i64..5,
        Just(i64::MIN),
        Just(i64::MAX),
        (0_i64..1 << 53),
        -(1_i64 << 51)..1 << 51
    ]
}

fn integers() -> impl Strategy<Value = Vec<i64>> {
    prop_oneof![
        prop::collection::vec(edge_i64(), 0..50),
        (edge_i64(), 0_usize..2_100, 1_u64..1 << 40, any::<u64>()).prop_map(
            |(base, rows, spread, seed)| {
                let step = |row: usize| {
                    ((row as u64 ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) % spread
                };
                (0..rows)
                    .map(|row| base.saturating_add_unsigned(step(row)))
                    .collect()
            }
        ),
    ]
}

fn check_integers<T: SummaryValue + Into<i128> + Ord>(
    values: &[T],
    seed: u64,
) -> Result<(), TestCaseError> {
    let valid = validity(values.len(), seed);
    let bytes = bits(&valid);
    let summary = ColumnSummary::of_values(7, values, Some(Bitmap::new(&bytes, 0, values.len())));
    let kept: Vec<i128> = valid_values(values, &valid)
        .into_iter()
        .map(Into::into)
        .collect();
    prop_assert_eq!(summary.null_rows, (values.len() - kept.len()) as u64);
    prop_assert_eq!(
        (summary.rows(), summary.nan_rows, summary.column_id),
        (values.len() as u64, 0, 7)
    );
    prop_assert_eq!(summary.int_sum(), Some(kept.iter().sum()));
    let range = match summary.kind {
        SummaryKind::Int => summary
            .int_range()
            .map(|(min, max)| (i128::from(min), i128::from(max))),
        _ => summary
            .uint_range()
            .map(|(min, max)| (i128::from(min), i128::from(max))),
    };
    prop_assert_eq!(
        range,
        kept.iter().copied().min().zip(kept.iter().copied().max())
    );
    let m2 = exact_m2(&kept);
    assert_close(summary.m2, m2, 1e-9 * m2)?;
    // Without nulls: the same over the values that are left.
    let dense = valid_values(values, &valid);
    let same = ColumnSummary {
        null_rows: 0,
        ..summary
    };
    let alone = ColumnSummary::of_values(7, &dense, None);
    prop_assert_eq!(
        (alone.min, alone.max, alone.sum, alone.value_rows),
        (same.min, same.max, same.sum, same.value_rows)
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn integers_equal_the_rows(values in integers(), seed in any::<u64>()) {
        check_integers(&values, seed)?;
        check_integers(&values.iter().map(|&value| value.cast_unsigned()).collect::<Vec<_>>(), seed)?;
        check_integers(&values.iter().map(|&value| (value >> 17) as i32).collect::<Vec<_>>(), seed)?;
        check_integers(&values.iter().map(|&value| value as u32).collect::<Vec<_>>(), seed)?;
        check_integers(&values.iter().map(|&value| value as i16).collect::<Vec<_>>(), seed)?;
        check_integers(&values.iter().map(|&value| value as u16).collect::<Vec<_>>(), seed)?;
        check_integers(&values.iter().map(|&value| value as i8).collect::<Vec<_>>(), seed)?;
        check_integers(&values.iter().map(|&value| value as u8).collect::<Vec<_>>(), seed)?;
    }

    #[test]
    fn floats_equal_the_rows(
        rows in 0_usize..2_100,
        seed in any::<u64>(),
        magnitude in -150_i32..150,
        offset in prop_oneof![Just(0.0), -1e6..1e6],
        nan_every in 2_usize..3_000,
    ) {
        let unit = |row: usize| {
            let noise = (row as u64 ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11;
            noise as f64 / (1_u64 << 53) as f64 - 0.5
        };
        let scale = 10_f64.powi(magnitude);
        let value = |row: usize| if row % nan_every == 1 { f64::NAN } else { (unit(row) + offset) * scale };
        let values: Vec<f64> = (0..rows).map(value).collect();
        let valid = validity(rows, seed);
        let bytes = bits(&valid);
        let summary = ColumnSummary::of_values(9, &values, Some(Bitmap::new(&bytes, 0, rows)));
        let kept = valid_values(&values, &valid);
        let numbers: Vec<f64> = kept.iter().copied().filter(|value| !value.is_nan()).collect();
        prop_assert_eq!(summary.null_rows, (rows - kept.len()) as u64);
        prop_assert_eq!(summary.nan_rows, (kept.len() - numbers.len()) as u64);
        prop_assert_eq!(summary.value_rows, numbers.len() as u64);
        let least = numbers.iter().copied().min_by(f64::total_cmp);
        let greatest = numbers.iter().copied().max_by(f64::total_cmp);
        prop_assert_eq!(summary.float_range(), least.zip(greatest));
        let magnitudes: f64 = numbers.iter().map(|value| value.abs()).sum();
        assert_close(summary.float_sum().unwrap(), exact_sum(&numbers), 1e-13 * magnitudes)?;
        let mean = exact_sum(&numbers) / numbers.len().max(1) as f64;
        let m2: f64 = numbers.iter().map(|value| (value - mean) * (value - mean)).sum();
        // The mean itself is rounded: where values lie far from zero that is what limits any computation in floats.
        let granularity = mean.abs() * f64::EPSILON;
        assert_close(summary.m2, m2, 1e-9 * m2 + numbers.len() as f64 * granularity * granularity)?;
    }

    #[test]
    fn halves_merge_to_the_whole(values in integers(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(values.len() + 1);
        let (left, right) = values.split_at(cut);
        let of = |values: &[i64]| ColumnSummary::of_values(1, values, None);
        let (whole, left, right) = (of(&values), of(left), of(right));
        for merged in [left.merge(&right), right.merge(&left)] {
            prop_assert_eq!((merged.min, merged.max, merged.sum, merged.value_rows), (whole.min, whole.max, whole.sum, whole.value_rows));
            assert_close(merged.m2, whole.m2, 1e-9 * whole.m2)?;
        }
        let floats: Vec<f64> = values.iter().map(|&value| value as f64).collect();
        let of = |values: &[f64]| ColumnSummary::of_values(1, values, None);
        let (whole, merged) = (of(&floats), of(&floats[..cut]).merge(&of(&floats[cut..])));
        let magnitudes: f64 = floats.iter().map(|value| value.abs()).sum();
        prop_assert_eq!((merged.min, merged.max), (whole.min, whole.max));
        assert_close(merged.float_sum().unwrap(), exact_sum(&floats), 1e-13 * magnitudes)?;
    }

    #[test]
    fn booleans_equal_the_rows(values in prop::collection::vec(any::<bool>(), 0..300), seed in any::<u64>(), offset in 0_usize..9) {
        let shifted: Vec<bool> = std::iter::repeat_n(true, offset).chain(values.iter().copied()).collect();
        let valid = validity(values.len(), seed);
        let (bytes, valid_bytes) = (bits(&shifted), bits(&valid));
        let values_bits = Bitmap::new(&bytes, offset, values.len());
        let ints: Vec<u8> = values.iter().map(|&value| u8::from(value)).collect();
        let validity = Bitmap::new(&valid_bytes, 0, values.len());
        for validity in [None, Some(validity)] {
            let (found, expected) = (ColumnSummary::of_bools(1, values_bits, validity), ColumnSummary::of_values(1, &ints, validity));
            prop_assert_eq!(found.kind, SummaryKind::Int);
            prop_assert_eq!((found.null_rows, found.value_rows, found.sum), (expected.null_rows, expected.value_rows, expected.sum));
            prop_assert_eq!((found.min, found.max), (expected.min, expected.max));
            assert_close(found.m2, expected.m2, 1e-9)?;
        }
    }

    #[test]
    fn pruning_never_loses_a_row(values in integers(), low in prop::option::of(edge_i64()), high in prop::option::of(edge_i64())) {
        let inside = |value: i64| low.is_none_or(|low| value >= low) && high.is_none_or(|high| value <= high);
        let summary = ColumnSummary::of_values(1, &values, None);
        let any_inside = values.iter().any(|&value| inside(value));
        prop_assert!(!(summary.prunes(&ValueRange::Int(low, high)) && any_inside));
        let touches = summary.int_range().is_some_and(|(min, max)| {
            low.is_none_or(|low| max >= low) && high.is_none_or(|high| min <= high)
        });
        prop_assert_eq!(summary.prunes(&ValueRange::Int(low, high)), !touches);

        let floats: Vec<f64> = values.iter().map(|&value| value as f64).collect();
        let summary = ColumnSummary::of_values(1, &floats, None);
        let (low, high) = (low.map(|low| low as f64), high.map(|high| high as f64));
        let range = ValueRange::Float { min: low, max: high, accepts_nan: true };
        let inside = |value: f64| low.is_none_or(|low| value >= low) && high.is_none_or(|high| value <= high);
        prop_assert!(!(summary.prunes(&range) && floats.iter().any(|&value| inside(value))));
    }
}

/// A float sum without any rounding but the last: Shewchuk's partial sums.
fn exact_sum(values: &[f64]) -> f64 {
    let mut partials: Vec<f64> = Vec::new();
    for &value in values {
        let mut carried = value;
        let mut kept = Vec::new();
        for &partial in &partials {
            let sum = carried + partial;
            let back = sum - carried;
            let lost = (carried - (sum - back)) + (partial - back);
            if lost != 0.0 {
                kept.push(lost);
            }
            carried = sum;
        }
        kept.push(carried);
        partials = kept;
    }
    partials.iter().sum()
}

#[test]
fn long_sums_stay_exact() {
    // A million merges of a value that is not a binary fraction, between huge values that cancel out.
    let summary = |value: f64| ColumnSummary::of_values(1, &[value], None);
    let mut total = summary(1e15);
    for _ in 0..1_000_000 {
        total = total.merge(&summary(0.1));
    }
    total = total.merge(&summary(-1e15));
    let found = total.float_sum().unwrap();
    assert!((found - 100_000.0).abs() < 1e-9, "{found}");
}

#[test]
fn squares_are_stable_far_from_zero() {
    // A variance of 1 around 1e12, where the sum of squares itself has no digit left for it.
    let values: Vec<f64> = (0..10_000)
        .map(|row| 1e12 + f64::from(row % 2) * 2.0)
        .collect();
    let summary = ColumnSummary::of_values(1, &values, None);
    assert!((summary.m2 / 10_000.0 - 1.0).abs() < 1e-9, "{}", summary.m2);
    let stamps: Vec<i64> = (0..10_000)
        .map(|row| 1_700_000_000_000_000_000 + row)
        .collect();
    let m2 = ColumnSummary::of_values(1, &stamps, None).m2;
    let expected = 10_000.0 * (1e8 - 1.0) / 12.0;
    assert!(
        (m2 / expected - 1.0).abs() < 1e-12,
        "{m2} is not {expected}"
    );
}

#[test]
fn infinities_and_nans_are_told_apart() {
    let summary = ColumnSummary::of_values(
        1,
        &[f64::NAN, -f64::INFINITY, 2.0, f64::INFINITY, -f64::NAN],
        None,
    );
    assert_eq!((summary.nan_rows, summary.value_rows), (2, 3));
    assert_eq!(
        summary.float_range(),
        Some((f64::NEG_INFINITY, f64::INFINITY))
    );
    assert!(summary.float_sum().unwrap().is_nan() && summary.m2.is_nan());
    let positive = ColumnSummary::of_values(1, &[f64::INFINITY, 1.0], None);
    assert_eq!(positive.merge(&positive).float_sum(), Some(f64::INFINITY));

    let nans = ColumnSummary::of_values(1, &[f64::NAN; 3], None);
    assert_eq!(
        (nans.nan_rows, nans.value_rows, nans.float_range()),
        (3, 0, None)
    );
    let range = |accepts_nan| ValueRange::Float {
        min: Some(1e300),
        max: None,
        accepts_nan,
    };
    assert!(!nans.prunes(&range(true)) && nans.prunes(&range(false)));
    let merged = nans.merge(&ColumnSummary::of_values(1, &[0.5_f32], None));
    assert!(!merged.prunes(&range(true)) && merged.prunes(&range(false)));
    assert!(!merged.prunes(&ValueRange::Float {
        min: Some(f64::NAN),
        max: Some(f64::NAN),
        accepts_nan: false
    }));
}

#[test]
fn zeros_are_ordered() {
    let summary = |value: f64| ColumnSummary::of_values(1, &[value], None);
    for merged in [
        summary(0.0).merge(&summary(-0.0)),
        summary(-0.0).merge(&summary(0.0)),
    ] {
        assert_eq!(
            (merged.min, merged.max),
            ((-0.0_f64).to_bits(), 0.0_f64.to_bits())
        );
    }
}

#[test]
fn rows_that_are_null_are_in_no_range() {
    let nulls = ColumnSummary::of_counts(1, 4, 4);
    assert!(nulls.prunes(&ValueRange::Int(None, None)));
    let counted = ColumnSummary::of_counts(1, 4, 3);
    assert!(!counted.prunes(&ValueRange::Int(Some(1), Some(0))));
    let ints = ColumnSummary::of_values(1, &[1_u8], None);
    assert!(
        !ints.prunes(&ValueRange::Int(Some(5), None)),
        "another kind: no idea"
    );
    assert!(ints.prunes(&ValueRange::UInt(Some(5), None)));
}

#[test]
fn summaries_of_two_kinds_keep_their_counts() {
    let ints = ColumnSummary::of_values(1, &[1_i64, 2], None);
    let floats = ColumnSummary::of_values(1, &[f64::NAN, 2.0, 3.0], None);
    let merged = ints.merge(&floats);
    assert_eq!(
        (merged.kind, merged.rows(), merged.value_rows),
        (SummaryKind::Count, 5, 5)
    );
    assert!(
        merged.int_sum().is_none() && merged.float_range().is_none() && merged.mean().is_none()
    );
    let empty = ColumnSummary::empty(1, SummaryKind::Int);
    assert!(empty.is_empty() && empty.mean().is_none());
    assert_eq!(empty.merge(&ints), ints);
    assert_eq!(ints.mean(), Some(1.5));
    assert_eq!(ints.squared_distances(), Some(0.5));
}

const MAX_DIGITS: i128 = 10_i128.pow(38) - 1;

fn decimals() -> impl Strategy<Value = Vec<i128>> {
    let value = prop_oneof![
        -MAX_DIGITS..=MAX_DIGITS,
        any::<i64>().prop_map(i128::from),
        (0_u32..127, -2_i128..3)
            .prop_map(|(bits, near)| { ((1_i128 << bits) + near).clamp(-MAX_DIGITS, MAX_DIGITS) }),
        (0_u32..127, -2_i128..3)
            .prop_map(|(bits, near)| { (near - (1_i128 << bits)).clamp(-MAX_DIGITS, MAX_DIGITS) }),
    ];
    prop_oneof![
        prop::collection::vec(value, 0..40),
        prop::collection::vec(edge_i64().prop_map(i128::from), 0..40),
    ]
}

/// The smallest shift with which all values, rounded in both directions, fit 64 bits; by division.
fn plain_shift(values: &[i128]) -> u8 {
    let fits = |shift: &u8| {
        values.iter().all(|&value| {
            let (low, high) = plain_bounds(value, *shift);
            i64::try_from(low).is_ok() && i64::try_from(high).is_ok()
        })
    };
    (0..=64).find(fits).unwrap()
}

fn plain_bounds(value: i128, shift: u8) -> (i128, i128) {
    let unit = 1_i128 << shift;
    let low = value.div_euclid(unit);
    (low, low + i128::from(value.rem_euclid(unit) != 0))
}

proptest! {
    #[test]
    fn decimals_equal_the_rows(values in decimals(), seed in any::<u64>()) {
        let valid = validity(values.len(), seed);
        let bytes = bits(&valid);
        let kept = valid_values(&values, &valid);
        let found = ColumnSummary::of_values(3, &values, Some(Bitmap::new(&bytes, 0, values.len())));
        prop_assert_eq!((found.column_id, found.kind), (3, SummaryKind::Decimal));
        prop_assert_eq!(found.value_rows, kept.len() as u64);
        prop_assert_eq!(found.null_rows, (values.len() - kept.len()) as u64);
        let Some((&least, &most)) = kept.iter().min().zip(kept.iter().max()) else {
            prop_assert_eq!(found.decimal_range(), None);
            prop_assert_eq!(found.decimal_sum(), Some(0));
            return Ok(());
        };
        let shift = plain_shift(&kept);
        prop_assert_eq!(found.shift, shift);
        let bounds = (plain_bounds(least, shift).0 << shift, plain_bounds(most, shift).1 << shift);
        prop_assert_eq!(found.decimal_range(), Some((bounds.0, bounds.1, shift == 0)));
        prop_assert!(bounds.0 <= least && most <= bounds.1);
        let sum = (shift == 0).then(|| kept.iter().sum());
        prop_assert_eq!(found.decimal_sum(), sum);
    }

    #[test]
    fn halves_of_decimals_merge_to_the_whole(values in decimals(), cut in any::<prop::sample::Index>()) {
        let whole = ColumnSummary::of_values(1, &values, None);
        let (left, right) = values.split_at(cut.index(values.len() + 1));
        let left = ColumnSummary::of_values(1, left, None);
        let right = ColumnSummary::of_values(1, right, None);
        for merged in [left.merge(&right), right.merge(&left)] {
            let counted = ColumnSummary { m2: whole.m2, ..merged };
            prop_assert_eq!(counted, whole);
            let squares = whole.m2.max(1.0);
            assert_close(merged.m2, whole.m2, squares * 1e-9)?;
        }
    }

    #[test]
    fn pruning_by_decimals_never_loses_a_row(values in decimals(), ends in decimals()) {
        let (low, high) = (ends.first().copied(), ends.get(1).copied());
        let range = ValueRange::Decimal(low, high);
        let accepted = |value: &i128| low.is_none_or(|low| low <= *value) && high.is_none_or(|high| *value <= high);
        let found = ColumnSummary::of_values(1, &values, None);
        if found.prunes(&range) {
            prop_assert!(!values.iter().any(accepted));
        }
    }
}

#[test]
fn large_decimals_have_outer_bounds() {
    let large = (1_i128 << 63) + 1;
    let found = ColumnSummary::of_values(1, &[large, large + 2], None);
    assert_eq!(found.decimal_range(), Some((large - 1, large + 3, false)));
    assert_eq!(found.decimal_sum(), None);
    assert!(found.prunes(&ValueRange::Decimal(Some(large + 4), None)));
    assert!(found.prunes(&ValueRange::Decimal(None, Some(large - 2))));
    assert!(!found.prunes(&ValueRange::Decimal(Some(large + 3), None)));
    let widest = ColumnSummary::of_values(1, &[-MAX_DIGITS, MAX_DIGITS], None);
    assert!(!widest.prunes(&ValueRange::Decimal(Some(MAX_DIGITS), None)));
    for too_large in [MAX_DIGITS + 1, -MAX_DIGITS - 1, i128::MIN, i128::MAX] {
        let counted = ColumnSummary::of_values(1, &[1, too_large], None);
        assert_eq!(counted, ColumnSummary::of_counts(1, 2, 0));
    }
}
