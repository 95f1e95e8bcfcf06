//! From the summaries of groups to the arrays that DataFusion's own aggregates would return.
//!
//! Invariants: types are those of the plan; a group without values gives null, except counts; NaN is larger than every
//! number, and whatever adds a NaN is NaN; an integer sum beyond 64 bits is an error. In groups of
//! `date_bin` DataFusion's own minimum and maximum of floats with NaNs depend on the order of the rows; here they
//! are the same as without groups.

use crate::functions::total::beyond;
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, Float32Array, Float64Array, Int64Array,
    PrimitiveArray, UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::common::{Result, exec_err, internal_err};
use std::sync::Arc;
use thalweg_table::{ColumnSummary, Group, SummaryKind};

/// One aggregate, by the place of its column in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Output {
    Rows,
    Count(usize),
    Sum(usize),
    Avg(usize),
    Min(usize),
    Max(usize),
    Variance {
        column: usize,
        sample: bool,
        root: bool,
    },
}

/// The values of `output` for all groups; `name` is that of the output, for messages.
pub(crate) fn finish(
    output: Output,
    groups: &[Group],
    data_type: &DataType,
    name: &str,
) -> Result<ArrayRef> {
    let array: ArrayRef = match output {
        Output::Rows => Arc::new(int64(groups.iter().map(|group| Some(signed(group.rows))))),
        Output::Count(at) => {
            Arc::new(int64(summaries(groups, at).map(|summary| {
                Some(signed(summary.value_rows + summary.nan_rows))
            })))
        }
        Output::Sum(at) => sums(groups, at, data_type, name)?,
        Output::Avg(at) => Arc::new(float64(summaries(groups, at).map(average))),
        Output::Min(at) => extremes(groups, at, data_type, End::Min)?,
        Output::Max(at) => extremes(groups, at, data_type, End::Max)?,
        Output::Variance {
            column,
            sample,
            root,
        } => {
            let variance =
                |summary| variance(summary, sample).map(|v| if root { v.sqrt() } else { v });
            Arc::new(float64(summaries(groups, column).map(variance)))
        }
    };
    if array.data_type() != data_type {
        return internal_err!("an aggregate of {data_type} gave {}", array.data_type());
    }
    Ok(array)
}

fn summaries(groups: &[Group], at: usize) -> impl Iterator<Item = &ColumnSummary> {
    groups.iter().map(move |group| &group.columns[at])
}

fn int64(values: impl Iterator<Item = Option<i64>>) -> Int64Array {
    values.collect()
}

fn float64(values: impl Iterator<Item = Option<f64>>) -> Float64Array {
    values.collect()
}

/// A count as a signed integer: counts stay below 2^63, as there are not as many rows on Earth.
fn signed(rows: u64) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

fn sums(groups: &[Group], at: usize, data_type: &DataType, name: &str) -> Result<ArrayRef> {
    Ok(match data_type {
        DataType::Int64 => {
            let sums =
                summaries(groups, at).map(|summary| int_sum::<i64>(summary, data_type, name));
            Arc::new(sums.collect::<Result<Int64Array>>()?)
        }
        DataType::UInt64 => {
            let sums =
                summaries(groups, at).map(|summary| int_sum::<u64>(summary, data_type, name));
            Arc::new(sums.collect::<Result<UInt64Array>>()?)
        }
        DataType::Float64 => Arc::new(float64(summaries(groups, at).map(float_sum))),
        other => return internal_err!("no sum of {other} from summaries"),
    })
}

/// The sum of a summary. Summaries hold sums of 128 bits; one that SQL's type cannot hold is an error, not another number.
fn int_sum<T: TryFrom<i128>>(
    summary: &ColumnSummary,
    data_type: &DataType,
    name: &str,
) -> Result<Option<T>> {
    let Some(sum) = summary.int_sum().filter(|_| summary.value_rows > 0) else {
        return Ok(None);
    };
    T::try_from(sum)
        .map(Some)
        .map_err(|_| beyond(name, sum, data_type))
}

fn float_sum(summary: &ColumnSummary) -> Option<f64> {
    if summary.nan_rows > 0 {
        return Some(f64::NAN);
    }
    summary.float_sum().filter(|_| summary.value_rows > 0)
}

fn average(summary: &ColumnSummary) -> Option<f64> {
    if summary.nan_rows > 0 {
        Some(f64::NAN)
    } else {
        summary.mean()
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a divisor needs no more digits than its quotient has"
)]
fn variance(summary: &ColumnSummary, sample: bool) -> Option<f64> {
    if summary.nan_rows > 0 {
        let rows = summary.nan_rows + summary.value_rows;
        return match (rows, sample) {
            (1, true) => None,
            // One value has no spread, whatever it is.
            (1, false) => Some(0.0),
            _ => Some(f64::NAN),
        };
    }
    let divisor = if sample {
        summary.value_rows.checked_sub(1)?
    } else {
        summary.value_rows
    };
    if divisor == 0 {
        return None;
    }
    let distances = summary.squared_distances()?;
    Some(if summary.value_rows == 1 {
        0.0
    } else {
        distances / divisor as f64
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Min,
    Max,
}

fn extremes(groups: &[Group], at: usize, data_type: &DataType, end: End) -> Result<ArrayRef> {
    let kind = groups
        .first()
        .map_or(SummaryKind::Int, |group| group.columns[at].kind);
    Ok(match data_type {
        DataType::Float64 => Arc::new(float64(
            summaries(groups, at).map(|summary| float_extreme(summary, end)),
        )),
        DataType::Float32 => {
            // Summaries widened the value: the way back is exact.
            #[expect(clippy::cast_possible_truncation, reason = "it was a 32 bit float")]
            let narrow = |summary| float_extreme(summary, end).map(|value| value as f32);
            Arc::new(summaries(groups, at).map(narrow).collect::<Float32Array>())
        }
        DataType::Boolean => {
            let value = |summary| int_extreme(summary, end).map(|value| value != 0);
            Arc::new(summaries(groups, at).map(value).collect::<BooleanArray>())
        }
        other if kind == SummaryKind::UInt => narrowed::<UInt64Type>(
            summaries(groups, at).map(|summary| uint_extreme(summary, end)),
            other,
        )?,
        other => narrowed::<Int64Type>(
            summaries(groups, at).map(|summary| int_extreme(summary, end)),
            other,
        )?,
    })
}

/// 64 bit integers as integers, dates, times or durations of another type.
fn narrowed<T: ArrowPrimitiveType>(
    values: impl Iterator<Item = Option<T::Native>>,
    to: &DataType,
) -> Result<ArrayRef> {
    let wide: PrimitiveArray<T> = values.collect();
    let wide: ArrayRef = Arc::new(wide);
    Ok(match to {
        // Arrow casts days from 32 bits only.
        DataType::Date32 => cast(&cast(&wide, &DataType::Int32)?, to)?,
        _ => cast(&wide, to)?,
    })
}

fn int_extreme(summary: &ColumnSummary, end: End) -> Option<i64> {
    summary
        .int_range()
        .map(|(min, max)| if end == End::Min { min } else { max })
}

fn uint_extreme(summary: &ColumnSummary, end: End) -> Option<u64> {
    summary
        .uint_range()
        .map(|(min, max)| if end == End::Min { min } else { max })
}

fn float_extreme(summary: &ColumnSummary, end: End) -> Option<f64> {
    let nan = (summary.nan_rows > 0).then_some(f64::NAN);
    match (summary.float_range(), end) {
        (Some((min, _)), End::Min) => Some(min),
        (Some((_, max)), End::Max) => Some(nan.unwrap_or(max)),
        (None, _) => nan,
    }
}

/// The values of the groups themselves: the first key of each bucket times `factor`, as times.
pub(crate) fn group_values(
    groups: &[Group],
    factor: i64,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let Some(starts) = groups
        .iter()
        .map(|group| group.bucket_start.checked_mul(factor))
        .collect::<Option<Vec<_>>>()
    else {
        return exec_err!("a group begins outside of what {data_type} holds");
    };
    let starts: ArrayRef = Arc::new(Int64Array::from(starts));
    Ok(cast(&starts, data_type)?)
}
