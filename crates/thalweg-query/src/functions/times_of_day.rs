//! The time of day of a time.
//!
//! Invariant: it has no order of its own; DataFusion takes its cast of times in order for one that keeps the order, and then neither
//! sorts nor groups what is read in order of time.

use super::applied;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// The time of day of a time, as one of the type `to`.
pub(crate) fn time_of_day(time: Expr, to: DataType) -> Expr {
    let function = ScalarUDF::new_from_impl(TimeOfDay {
        to,
        signature: Signature::any(1, Volatility::Immutable),
    });
    Arc::new(function).call(vec![time])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeOfDay {
    to: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for TimeOfDay {
    fn name(&self) -> &'static str {
        "time_of_day"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let [times] = arrays else {
                return internal_err!("{} takes one argument", self.name());
            };
            Ok(cast(times, &self.to)?)
        })
    }
}
