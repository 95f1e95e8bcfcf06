//! How long intervals and durations are, as one number.
//!
//! Arrow compares intervals field by field, so that no number of hours is longer than a day. Invariants: a month has 30 days and a
//! day 24 hours wherever lengths are compared, as in PostgreSQL and DuckDB; a length is exact, in nanoseconds, and every interval
//! and duration of every unit has one.

use super::applied;
use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::compute::{cast, interleave};
use arrow::datatypes::{
    DataType, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use thalweg_table::time_units::{DAY_NS, SECOND_NS};

const MONTH_DAYS: i128 = 30;

/// The longest is 10^28 nanoseconds.
const LENGTH: DataType = DataType::Decimal128(38, 0);

pub(crate) fn nanoseconds(interval: IntervalMonthDayNano) -> i128 {
    let days = i128::from(interval.months) * MONTH_DAYS + i128::from(interval.days);
    days * i128::from(DAY_NS) + i128::from(interval.nanoseconds)
}

/// The length of an interval or a duration.
pub(crate) fn length(of: Expr) -> Expr {
    let function = ScalarUDF::new_from_impl(Length {
        signature: Signature::any(1, Volatility::Immutable),
    });
    Arc::new(function).call(vec![of])
}

/// The longest or the shortest of intervals; NULL is none of them.
pub(crate) fn extreme(of: Vec<Expr>, longest: bool) -> Expr {
    let function = ScalarUDF::new_from_impl(Extreme {
        longest,
        signature: Signature::variadic_any(Volatility::Immutable),
    });
    Arc::new(function).call(of)
}

fn lengths(array: &ArrayRef) -> Result<Decimal128Array> {
    use TimeUnit as U;
    let lengths: Decimal128Array = match array.data_type() {
        DataType::Interval(_) => {
            let intervals = cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
            intervals.unary(nanoseconds)
        }
        DataType::Duration(U::Second) => {
            let seconds = array.as_primitive::<DurationSecondType>();
            seconds.unary(|seconds| i128::from(seconds) * i128::from(SECOND_NS))
        }
        DataType::Duration(U::Millisecond) => {
            let milliseconds = array.as_primitive::<DurationMillisecondType>();
            milliseconds.unary(|milliseconds| i128::from(milliseconds) * 1_000_000)
        }
        DataType::Duration(U::Microsecond) => {
            let microseconds = array.as_primitive::<DurationMicrosecondType>();
            microseconds.unary(|microseconds| i128::from(microseconds) * 1_000)
        }
        DataType::Duration(U::Nanosecond) => {
            let nanoseconds = array.as_primitive::<DurationNanosecondType>();
            nanoseconds.unary(i128::from)
        }
        other => return internal_err!("the length of {other}"),
    };
    Ok(lengths.with_data_type(LENGTH))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Length {
    signature: Signature,
}

impl ScalarUDFImpl for Length {
    fn name(&self) -> &'static str {
        "interval_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(LENGTH)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| match arrays {
            [array] => Ok(Arc::new(lengths(array)?)),
            _ => internal_err!("{} takes one argument", self.name()),
        })
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    longest: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Extreme {
    fn name(&self) -> &'static str {
        if self.longest { "greatest" } else { "least" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first() {
            Some(first) => Ok(first.clone()),
            None => internal_err!("{} takes arguments", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let lengths = arrays.iter().map(lengths).collect::<Result<Vec<_>>>()?;
            let rows = lengths.first().map_or(0, Array::len);
            let chosen: Vec<_> = (0..rows).map(|row| self.chosen(&lengths, row)).collect();
            let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
            Ok(interleave(&arrays, &chosen)?)
        })
    }
}

impl Extreme {
    /// Which of the arguments a row has as its result. Of equals the first; if all are null any of them.
    fn chosen(&self, lengths: &[Decimal128Array], row: usize) -> (usize, usize) {
        let there = (0..lengths.len()).filter(|arg| lengths[*arg].is_valid(row));
        let chosen = there.reduce(|best, next| {
            let (old, new) = (lengths[best].value(row), lengths[next].value(row));
            let replaces = if self.longest { new > old } else { new < old };
            if replaces { next } else { best }
        });
        (chosen.unwrap_or(0), row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        DurationMillisecondArray, DurationNanosecondArray, DurationSecondArray,
        IntervalDayTimeArray, IntervalMonthDayNanoArray, IntervalYearMonthArray,
    };
    use arrow::datatypes::IntervalDayTime;

    #[test]
    fn lengths_of_all_types_are_exact() {
        let day_ns = i128::from(DAY_NS);
        let at_ends = |at: i64| i128::from(at) * 1_000_000_000;
        let cases: Vec<(ArrayRef, i128)> = vec![
            (
                Arc::new(IntervalYearMonthArray::from(vec![-14])),
                -420 * day_ns,
            ),
            (
                Arc::new(IntervalDayTimeArray::from(vec![IntervalDayTime::new(
                    1, -1,
                )])),
                day_ns - 1_000_000,
            ),
            (
                Arc::new(IntervalMonthDayNanoArray::from(vec![
                    IntervalMonthDayNano::MAX,
                ])),
                (i128::from(i32::MAX) * 31) * day_ns + i128::from(i64::MAX),
            ),
            (
                Arc::new(IntervalMonthDayNanoArray::from(vec![
                    IntervalMonthDayNano::MIN,
                ])),
                (i128::from(i32::MIN) * 31) * day_ns + i128::from(i64::MIN),
            ),
            (
                Arc::new(DurationSecondArray::from(vec![i64::MAX])),
                at_ends(i64::MAX),
            ),
            (
                Arc::new(DurationMillisecondArray::from(vec![i64::MIN])),
                at_ends(i64::MIN) / 1_000,
            ),
            (
                Arc::new(DurationNanosecondArray::from(vec![i64::MIN])),
                i128::from(i64::MIN),
            ),
        ];
        for (array, length) in cases {
            let lengths = lengths(&array).unwrap();
            assert_eq!(lengths.value(0), length, "{array:?}");
            lengths.validate_decimal_precision(38).unwrap();
        }
    }
}
