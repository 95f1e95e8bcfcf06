//! `bucket_origin`: from when `time_bucket` counts buckets whose width is known only when the statement runs.

use super::applied;
use arrow::array::{ArrayRef, AsArray, TimestampNanosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalMonthDayNanoType, IntervalUnit, TimeUnit};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// 2000-01-03, a Monday.
const MONDAY_NS: i64 = 946_857_600_000_000_000;
/// 2000-01-01, the first of a month.
const FIRST_NS: i64 = 946_684_800_000_000_000;

/// The function.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(BucketOrigin {
        signature: Signature::exact(
            vec![DataType::Interval(IntervalUnit::MonthDayNano)],
            Volatility::Immutable,
        ),
    }))
}

/// Whether an expression is a call of the function: `date_bin` wants its value in the plan.
pub(crate) fn is_call(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.inner().is::<BucketOrigin>())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct BucketOrigin {
    signature: Signature,
}

impl ScalarUDFImpl for BucketOrigin {
    fn name(&self) -> &'static str {
        "bucket_origin"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Nanosecond, None))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let [widths] = arrays else {
                return internal_err!("{} takes one argument", self.name());
            };
            let widths = cast(widths, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let origin = |months: i32| if months == 0 { MONDAY_NS } else { FIRST_NS };
            let widths = widths.as_primitive::<IntervalMonthDayNanoType>();
            let origins: TimestampNanosecondArray = widths.unary(|width| origin(width.months));
            Ok(Arc::new(origins) as ArrayRef)
        })
    }
}
