//! Intervals and durations times or divided by a number.
//!
//! Invariants: times an integer is exact or an error; a part of a month becomes days of a month of 30, a part of a day hours,
//! as in PostgreSQL and DuckDB.

use crate::error::{query, to_datafusion};
use arrow::array::{Array, ArrayRef, AsArray, DurationNanosecondArray, IntervalMonthDayNanoArray};
use arrow::datatypes::{
    DataType, DurationNanosecondType, Float64Type, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    cast as cast_to,
};
use std::sync::Arc;
use thalweg_table::Error;

const MONTH_DAYS: f64 = 30.0;
const DAY_NS: f64 = 86_400e9;

/// `length` times or divided by `number`; `None` where there is no such product.
pub(crate) fn scaled(
    length: (Expr, &DataType),
    number: (Expr, &DataType),
    divides: bool,
) -> Option<Expr> {
    let length_type = match length.1 {
        DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Duration(_) => DataType::Duration(TimeUnit::Nanosecond),
        _ => return None,
    };
    let number_type = match number.1 {
        integer if integer.is_signed_integer() && !divides => DataType::Int64,
        number if number.is_numeric() => DataType::Float64,
        _ => return None,
    };
    let function = ScalarUDF::new_from_impl(Scaled {
        divides,
        signature: Signature::any(2, Volatility::Immutable),
    });
    Some(Arc::new(function).call(vec![
        cast_to(length.0, length_type),
        cast_to(number.0, number_type),
    ]))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Scaled {
    divides: bool,
    signature: Signature,
}

/// A number of the one kind or the other.
#[derive(Clone, Copy)]
enum Factor {
    Whole(i64),
    Broken(f64),
    Divisor(f64),
}

impl Factor {
    fn of(self, value: f64) -> f64 {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "the value is a float")]
            Self::Whole(number) => value * number as f64,
            Self::Broken(number) => value * number,
            Self::Divisor(number) => value / number,
        }
    }
}

impl ScalarUDFImpl for Scaled {
    fn name(&self) -> &'static str {
        if self.divides { "divided" } else { "times" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first() {
            Some(length) => Ok(length.clone()),
            None => internal_err!("{} takes two arguments", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [length, number] = args.args.as_slice() else {
            return internal_err!("{} takes two arguments", self.name());
        };
        let is_scalar = matches!(
            (length, number),
            (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_))
        );
        let rows = if is_scalar { 1 } else { args.number_rows };
        let (lengths, numbers) = (length.to_array(rows)?, number.to_array(rows)?);
        let factor = |row: usize| -> Result<Option<Factor>> {
            if lengths.is_null(row) || numbers.is_null(row) {
                return Ok(None);
            }
            if let Some(whole) = numbers.as_primitive_opt::<Int64Type>() {
                return Ok(Some(Factor::Whole(whole.value(row))));
            }
            let Some(broken) = numbers.as_primitive_opt::<Float64Type>() else {
                return internal_err!("{} takes a number", self.name());
            };
            let number = broken.value(row);
            if self.divides && number == 0.0 {
                return Err(to_datafusion(query(
                    "division by zero; NULLIF(x, 0) as the divisor makes the result NULL",
                )));
            }
            Ok(Some(if self.divides {
                Factor::Divisor(number)
            } else {
                Factor::Broken(number)
            }))
        };
        let scaled: ArrayRef =
            if let Some(lengths) = lengths.as_primitive_opt::<IntervalMonthDayNanoType>() {
                let of_row = |row| match factor(row)? {
                    Some(factor) => interval(lengths.value(row), factor).map(Some),
                    None => Ok(None),
                };
                let scaled = (0..lengths.len()).map(of_row);
                Arc::new(scaled.collect::<Result<IntervalMonthDayNanoArray>>()?)
            } else if let Some(lengths) = lengths.as_primitive_opt::<DurationNanosecondType>() {
                let of_row = |row| match factor(row)? {
                    Some(factor) => nanoseconds(lengths.value(row), factor).map(Some),
                    None => Ok(None),
                };
                let scaled = (0..lengths.len()).map(of_row);
                Arc::new(scaled.collect::<Result<DurationNanosecondArray>>()?)
            } else {
                return internal_err!("{} takes an interval", self.name());
            };
        Ok(if is_scalar {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&scaled, 0)?)
        } else {
            ColumnarValue::Array(scaled)
        })
    }
}

fn beyond() -> datafusion::error::DataFusionError {
    let error: Error = query("an interval times this number is too long for an interval");
    to_datafusion(error)
}

fn nanoseconds(length: i64, factor: Factor) -> Result<i64> {
    match factor {
        Factor::Whole(number) => length.checked_mul(number).ok_or_else(beyond),
        #[expect(clippy::cast_precision_loss, reason = "the factor is a float")]
        factor => whole(factor.of(length as f64)),
    }
}

fn interval(length: IntervalMonthDayNano, factor: Factor) -> Result<IntervalMonthDayNano> {
    let (months, days, nanoseconds) = match factor {
        Factor::Whole(number) => {
            let number_32 = i32::try_from(number);
            let small = |value: i32| match value {
                0 => Ok(0),
                value => match &number_32 {
                    Ok(number) => value.checked_mul(*number).ok_or_else(beyond),
                    Err(_) => Err(beyond()),
                },
            };
            let nanoseconds = length.nanoseconds.checked_mul(number);
            (
                small(length.months)?,
                small(length.days)?,
                nanoseconds.ok_or_else(beyond)?,
            )
        }
        factor => {
            let months = factor.of(length.months.into());
            let days = factor.of(length.days.into()) + months.fract() * MONTH_DAYS;
            #[expect(clippy::cast_precision_loss, reason = "the factor is a float")]
            let nanoseconds = factor.of(length.nanoseconds as f64) + days.fract() * DAY_NS;
            let small = |value: f64| {
                let value = i32::try_from(whole(value.trunc())?);
                value.map_err(|_| beyond())
            };
            (small(months)?, small(days)?, whole(nanoseconds)?)
        }
    };
    Ok(IntervalMonthDayNano::new(months, days, nanoseconds))
}

fn whole(value: f64) -> Result<i64> {
    let value = value.round();
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "compared with the ends of the type before it becomes one"
    )]
    if value >= i64::MIN as f64 && value < i64::MAX as f64 {
        Ok(value as i64)
    } else {
        Err(beyond())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_months_and_days_become_shorter_units() {
        let month = IntervalMonthDayNano::new(1, 0, 0);
        let day = IntervalMonthDayNano::new(0, 1, 0);
        for (length, factor, wanted) in [
            (month, Factor::Whole(3), (3, 0, 0)),
            (month, Factor::Broken(1.5), (1, 15, 0)),
            (day, Factor::Broken(0.5), (0, 0, 43_200_000_000_000)),
            (day, Factor::Whole(-2), (0, -2, 0)),
            (month, Factor::Divisor(2.0), (0, 15, 0)),
        ] {
            let (months, days, ns) = wanted;
            let wanted = IntervalMonthDayNano::new(months, days, ns);
            assert_eq!(interval(length, factor).unwrap(), wanted);
        }
        assert!(interval(month, Factor::Whole(i64::MAX)).is_err());
        assert!(nanoseconds(i64::MAX, Factor::Whole(2)).is_err());
        assert!(nanoseconds(i64::MAX, Factor::Broken(f64::NAN)).is_err());
        assert_eq!(nanoseconds(10, Factor::Broken(0.5)).unwrap(), 5);
    }
}
