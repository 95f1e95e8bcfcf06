//! `date_part` of nanoseconds since 1970 in seconds.
//!
//! Invariant: it is DataFusion's own, except that seconds since 1970 are the float nearest to the time. Most numbers of nanoseconds
//! since 1970 are no float: DataFusion rounds them before it divides, and the last digit of every fourth time with milliseconds is
//! wrong.

use super::{named_as_base, replaced};
use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, FieldRef, TimeUnit, TimestampNanosecondType};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::datetime;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use std::sync::{Arc, LazyLock};
use thalweg_table::time_units::SECOND_NS;

/// `functions` with `date_part` replaced.
pub(crate) fn nearest(functions: Vec<Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    replaced(functions, "date_part", |base| DatePart { base })
}

/// `date_part`.
pub(crate) fn date_part() -> Arc<ScalarUDF> {
    static DATE_PART: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let base = datetime::date_part();
        Arc::new(ScalarUDF::new_from_impl(DatePart { base }))
    });
    Arc::clone(&DATE_PART)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePart {
    base: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for DatePart {
    named_as_base!();

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.base.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.base.return_field_from_args(args)
    }

    fn preimage(
        &self,
        args: &[Expr],
        literal: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult> {
        self.base.preimage(args, literal, info)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(part), times] = &args.args[..] else {
            return self.base.invoke_with_args(args);
        };
        let is_epoch = part.try_as_str().flatten();
        let is_epoch = is_epoch.is_some_and(|part| part.eq_ignore_ascii_case("epoch"));
        let is_in_ns = matches!(
            times.data_type(),
            DataType::Timestamp(TimeUnit::Nanosecond, _)
        );
        match (times, is_epoch && is_in_ns) {
            (ColumnarValue::Array(times), true) => Ok(ColumnarValue::Array(seconds(times))),
            (ColumnarValue::Scalar(time), true) => {
                let seconds = seconds(&time.to_array()?);
                let seconds = ScalarValue::try_from_array(&seconds, 0)?;
                Ok(ColumnarValue::Scalar(seconds))
            }
            _ => self.base.invoke_with_args(args),
        }
    }
}

/// Times in seconds, as the nearest floats: whole seconds are exact, and so little is added to them that their sum is rounded once.
#[expect(clippy::cast_precision_loss, reason = "some billions")]
fn seconds(times: &ArrayRef) -> ArrayRef {
    let times = times.as_primitive::<TimestampNanosecondType>();
    let seconds: Float64Array = times.unary(|time| {
        let (whole, rest) = (time / SECOND_NS, time % SECOND_NS);
        whole as f64 + rest as f64 / SECOND_NS as f64
    });
    Arc::new(seconds)
}
