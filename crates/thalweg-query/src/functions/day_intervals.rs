//! Durations as intervals of days and a time of day, and the seconds of intervals.

use super::applied;
use crate::error::{query, to_datafusion};
use arrow::array::{ArrayRef, AsArray, Int32Array, IntervalMonthDayNanoArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use thalweg_table::time_units::{DAY_NS, SECOND_NS, unit_ns};

/// The interval that a duration is.
pub(crate) fn in_days(duration: Expr) -> Expr {
    let function = ScalarUDF::new_from_impl(InDays {
        signature: Signature::any(1, Volatility::Immutable),
    });
    Arc::new(function).call(vec![duration])
}

/// The seconds of an interval within its minute, counted in steps of so many nanoseconds.
///
/// Arrow counts them in 32 bits of nanoseconds, and drops the fraction where these do not suffice.
pub(crate) fn seconds_in(interval: Expr, step_ns: i64) -> Expr {
    let function = ScalarUDF::new_from_impl(SecondsIn {
        step_ns,
        signature: Signature::any(1, Volatility::Immutable),
    });
    Arc::new(function).call(vec![interval])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SecondsIn {
    step_ns: i64,
    signature: Signature,
}

impl ScalarUDFImpl for SecondsIn {
    fn name(&self) -> &'static str {
        "seconds_in"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        // As `date_part` has it: nanoseconds do not fit.
        Ok(DataType::Int32)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let [intervals] = arrays else {
                return internal_err!("{} takes one argument", self.name());
            };
            let intervals = intervals.as_primitive_opt::<IntervalMonthDayNanoType>();
            let Some(intervals) = intervals else {
                return internal_err!("{} takes an interval", self.name());
            };
            let steps = |interval: IntervalMonthDayNano| {
                let steps = interval.nanoseconds % (60 * SECOND_NS) / self.step_ns;
                i32::try_from(steps)
                    .map_err(|_| to_datafusion(query("an interval has too many steps in a minute")))
            };
            let seconds: Int32Array = intervals.try_unary(steps)?;
            Ok(Arc::new(seconds) as ArrayRef)
        })
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct InDays {
    signature: Signature,
}

impl ScalarUDFImpl for InDays {
    fn name(&self) -> &'static str {
        "in_days"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let [durations] = arrays else {
                return internal_err!("{} takes one argument", self.name());
            };
            let DataType::Duration(unit) = durations.data_type() else {
                return internal_err!("{} takes a duration", self.name());
            };
            // In their own unit: nanoseconds hold no more than 292 years.
            let step_ns = unit_ns(*unit);
            let day = DAY_NS / step_ns;
            let in_days = |steps: i64| {
                let days = i32::try_from(steps / day).map_err(|_| {
                    to_datafusion(query("a difference of times is too long for an interval"))
                })?;
                let ns = steps % day * step_ns;
                Ok::<_, DataFusionError>(IntervalMonthDayNano::new(0, days, ns))
            };
            let steps = cast(durations, &DataType::Int64)?;
            let steps = steps.as_primitive::<Int64Type>();
            let intervals: IntervalMonthDayNanoArray = steps.try_unary(in_days)?;
            Ok(Arc::new(intervals) as ArrayRef)
        })
    }
}
