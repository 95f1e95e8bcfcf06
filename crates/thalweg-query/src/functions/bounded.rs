//! Functions whose results are as large as an argument asks, within bounds.
//!
//! Memory that is not there ends the process, and no limit of queries is asked by these functions. Invariant: they are
//! called only when what they are to make of a batch has a size that every machine holds.

use crate::error::to_datafusion;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::compute::kernels::length::length;
use arrow::datatypes::{
    DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;
use std::sync::Arc;
use thalweg_table::{Error, ErrorKind};

/// Most bytes that a function may make of one batch of rows.
const MAX_RESULT_BYTES: i128 = 256 << 20;
/// Bytes of an item of a list of numbers or times.
const ITEM_BYTES: i128 = 8;
const DAY_US: i128 = 86_400_000_000;

/// The arguments that decide the size of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Size {
    /// A text, and how often.
    Repeated,
    /// A length in characters comes second.
    Padded,
    /// A number of items comes second, what they are first.
    Items,
    /// A number of items comes second.
    Resized,
    /// First, last, step.
    Range,
}

impl Size {
    /// The arguments of the function with this name, if it is one of those.
    pub(crate) fn of(function: &str) -> Option<Self> {
        Some(match function {
            "repeat" => Self::Repeated,
            "lpad" | "rpad" => Self::Padded,
            "array_repeat" => Self::Items,
            "array_resize" => Self::Resized,
            "range" | "generate_series" => Self::Range,
            _ => return None,
        })
    }

    /// The arguments without lengths below 0, of which DataFusion makes room for most of the memory there is.
    pub(crate) fn without_negatives(self, args: &mut [ColumnarValue]) -> Result<()> {
        if self == Self::Padded
            && let Some(length @ ColumnarValue::Array(_)) = args.get_mut(1)
            && let Some(lengths) = numbers(length)?
        {
            let lengths: Int64Array = lengths.unary(|length| length.max(0));
            *length = ColumnarValue::Array(cast(&lengths, &length.data_type())?);
        }
        Ok(())
    }

    /// # Errors
    /// `Limit` for a result that not every machine holds.
    pub(crate) fn check(self, function: &str, args: &[ColumnarValue], rows: usize) -> Result<()> {
        let bytes = self.bytes(args, rows)?;
        if bytes <= MAX_RESULT_BYTES {
            return Ok(());
        }
        let message = format!(
            "{function} would make {bytes} bytes at once: at most {MAX_RESULT_BYTES} are allowed"
        );
        Err(to_datafusion(Error::new(ErrorKind::Limit, message)))
    }

    /// Bytes of the result, about, at least; 0 where arguments do not decide its size.
    fn bytes(self, args: &[ColumnarValue], rows: usize) -> Result<i128> {
        let number = |at: usize| args.get(at).map_or(Ok(None), numbers);
        let (first, second) = match self {
            Self::Repeated => (args.first().map_or(Ok(None), lengths)?, number(1)?),
            Self::Padded | Self::Items | Self::Resized => (None, number(1)?),
            Self::Range => (number(0)?, number(1)?),
        };
        let third = number(2)?;
        let item_bytes = match (self, args.first()) {
            (Self::Items, Some(item)) => bytes_of_one(item)?.max(ITEM_BYTES),
            _ => ITEM_BYTES,
        };
        // Constants have a result of one row.
        let scalar = args
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { rows };
        let of_row = |row| -> Option<i128> {
            let value = |numbers: &Option<Int64Array>| value_at(numbers.as_ref()?, row);
            Some(match self {
                Self::Repeated => value(&first)? * value(&second)?,
                Self::Padded => value(&second)?,
                Self::Items | Self::Resized => value(&second)? * item_bytes,
                Self::Range => {
                    let (start, end) = match value(&second) {
                        Some(end) => (value(&first)?, end),
                        None => (0, value(&first)?),
                    };
                    let step = value(&third).unwrap_or(1);
                    (end - start).checked_div(step)? * item_bytes
                }
            })
        };
        Ok((0..rows).filter_map(of_row).map(|bytes| bytes.max(0)).sum())
    }
}

/// A number of each row, or one for all, of times and intervals that of their microseconds; `None` for what is none.
fn numbers(arg: &ColumnarValue) -> Result<Option<Int64Array>> {
    let array = array_of(arg)?;
    let numbers = match array.data_type() {
        other if other.is_integer() => cast(&array, &DataType::Int64)?,
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => {
            let times = cast(&array, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
            cast(&times, &DataType::Int64)?
        }
        DataType::Interval(_) => {
            let steps = cast(&array, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let steps = steps.as_primitive::<IntervalMonthDayNanoType>();
            return Ok(Some(steps.unary(microseconds)));
        }
        _ => return Ok(None),
    };
    Ok(Some(numbers.as_primitive::<Int64Type>().clone()))
}

/// The microseconds of an interval, about: months of 28 days make most items. Only an interval of nothing gives 0.
fn microseconds(step: IntervalMonthDayNano) -> i64 {
    let days = i128::from(step.months) * 28 + i128::from(step.days);
    let nanoseconds = i128::from(step.nanoseconds);
    let all = days * DAY_US + nanoseconds / 1_000;
    let all = if all == 0 { nanoseconds.signum() } else { all };
    // Millions of years: one item.
    i64::try_from(all).unwrap_or(i64::MAX)
}

/// Bytes of a value of a column, on average.
fn bytes_of_one(arg: &ColumnarValue) -> Result<i128> {
    let array = array_of(arg)?;
    let bytes = array.to_data().get_slice_memory_size()? / array.len().max(1);
    Ok(i128::try_from(bytes).unwrap_or(i128::MAX))
}

/// The bytes of the text of each row, or of the one for all.
fn lengths(arg: &ColumnarValue) -> Result<Option<Int64Array>> {
    let lengths = cast(&length(&array_of(arg)?)?, &DataType::Int64)?;
    Ok(Some(lengths.as_primitive::<Int64Type>().clone()))
}

fn array_of(arg: &ColumnarValue) -> Result<ArrayRef> {
    match arg {
        ColumnarValue::Array(array) => Ok(Arc::clone(array)),
        ColumnarValue::Scalar(scalar) => scalar.to_array(),
    }
}

fn value_at(numbers: &Int64Array, row: usize) -> Option<i128> {
    let row = if numbers.len() == 1 { 0 } else { row };
    (row < numbers.len() && numbers.is_valid(row)).then(|| numbers.value(row).into())
}
