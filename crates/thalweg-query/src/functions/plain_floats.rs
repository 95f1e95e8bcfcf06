//! Floats with one zero and one NaN.
//!
//! Invariant: values that `=` takes for the same have the same bits: -0.0 becomes 0.0, and every NaN the positive one, as 0.0 / 0.0 is
//! negative on some machines.

use super::applied;
use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// The float with one zero and one NaN.
pub(crate) fn plain(value: Expr) -> Expr {
    let function = ScalarUDF::new_from_impl(PlainFloat {
        signature: Signature::any(1, Volatility::Immutable),
    });
    Arc::new(function).call(vec![value])
}

/// Whether an expression is a call of that function.
pub(crate) fn is_plain(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.inner().is::<PlainFloat>())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PlainFloat {
    signature: Signature,
}

impl ScalarUDFImpl for PlainFloat {
    fn name(&self) -> &'static str {
        "plain_float"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] => Ok(data_type.clone()),
            _ => internal_err!("{} takes one argument", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let [floats] = arrays else {
                return internal_err!("{} takes one argument", self.name());
            };
            let plain: ArrayRef = match floats.data_type() {
                DataType::Float64 => Arc::new(
                    floats
                        .as_primitive::<Float64Type>()
                        .unary::<_, Float64Type>(|x| if x.is_nan() { f64::NAN } else { x + 0.0 }),
                ),
                DataType::Float32 => Arc::new(
                    floats
                        .as_primitive::<Float32Type>()
                        .unary::<_, Float32Type>(|x| if x.is_nan() { f32::NAN } else { x + 0.0 }),
                ),
                _ => Arc::clone(floats),
            };
            Ok(plain)
        })
    }
}
