//! Summaries against plain row-by-row computations.

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

fn ints_by_row(values: &[i64], valid: &[bool]) -> (u64, Option<(i64, i64)>, i128) {
    let kept: Vec<i64> = values
        .iter()
        .zip(valid)
        .filter(|(_, valid)| **valid)
        .map(|(value, _)| *value)
        .collect();
    let range = kept
        .iter()
        .min()
        .zip(kept.iter().max())
        .map(|(&min, &max)| (min, max));
    (
        (values.len() - kept.len()) as u64,
        range,
        kept.iter().map(|&value| i128::from(value)).sum(),
    )
}

fn value_range() -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i64>(),
        -5_i64..5,
        Just(i64::MIN),
        Just(i64::MAX),
        (0_i64..1 << 53),
        -(1_i64 << 51)..1 << 51
    ]
}

proptest! {
    #[test]
    fn integers_equal_the_rows(
        values in prop_oneof![
            prop::collection::vec(value_range(), 0..3_000),
            (any::<i64>(), prop::collection::vec(-1_000_i64..1_000, 0..3_000))
                .prop_map(|(base, steps)| steps.into_iter().map(|step| base.saturating_add(step)).collect()),
        ],
        seed in any::<u64>(),
    ) {
        let valid: Vec<bool> = (0..values.len()).map(|row| seed >> (row % 61) & 1 == 1 || row % 700 > 100).collect();
        let bytes = bits(&valid);
        let summary = ColumnSummary::of_values(7, &values, Some(Bitmap::new(&bytes, 0, values.len())));
        let (nulls, range, sum) = ints_by_row(&values, &valid);
        prop_assert_eq!((summary.null_rows, summary.int_range(), summary.int_sum()), (nulls, range, Some(sum)));
        prop_assert_eq!((summary.rows(), summary.nan_rows, summary.column_id), (values.len() as u64, 0, 7));
    }
}
