//! Durations as intervals of days and a time of day.

use super::applied;
use arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, DurationNanosecondType, IntervalMonthDayNano, IntervalUnit, TimeUnit,
};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use thalweg_table::time_units::DAY_NS;

/// The interval that a duration is.
pub(crate) fn in_days(duration: Expr) -> Expr {
    let function = ScalarUDF::new_from_impl(InDays {
        signature: Signature::any(1, Volatility::Immutable),
    });
    Arc::new(function).call(vec![duration])
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
            let durations = cast(durations, &DataType::Duration(TimeUnit::Nanosecond))?;
            let durations = durations.as_primitive::<DurationNanosecondType>();
            // 2^63 nanoseconds are 106,752 days.
            let in_days = |ns: i64| {
                let days = i32::try_from(ns / DAY_NS).unwrap_or_default();
                IntervalMonthDayNano::new(0, days, ns % DAY_NS)
            };
            let intervals: IntervalMonthDayNanoArray = durations.unary(in_days);
            Ok(Arc::new(intervals) as ArrayRef)
        })
    }
}
