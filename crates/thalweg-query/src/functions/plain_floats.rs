//! Floats with one zero and one NaN.
//!
//! Invariant: values that `=` takes for the same have the same bits: -0.0 becomes 0.0, and every NaN the positive one, as 0.0 / 0.0 is
//! negative on some machines.

use super::applied;
use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use std::sync::Arc;

/// The float with one zero and one NaN.
pub(crate) fn plain(value: Expr) -> Expr {
    called(value, false)
}

/// The float with one NaN, and zeros as they are.
pub(crate) fn one_nan(value: Expr) -> Expr {
    called(value, true)
}

fn called(value: Expr, keeps_zeros: bool) -> Expr {
    let function = ScalarUDF::new_from_impl(PlainFloat {
        keeps_zeros,
        signature: Signature::any(1, Volatility::Immutable),
    });
    Arc::new(function).call(vec![value])
}

/// Whether an expression is a call that leaves one zero and one NaN.
pub(crate) fn is_plain(expr: &Expr) -> bool {
    function_of(expr).is_some_and(|function| !function.keeps_zeros)
}

/// Whether an expression is a call that leaves one NaN.
pub(crate) fn has_one_nan(expr: &Expr) -> bool {
    function_of(expr).is_some()
}

fn function_of(expr: &Expr) -> Option<&PlainFloat> {
    match expr {
        Expr::ScalarFunction(call) => call.func.inner().downcast_ref(),
        _ => None,
    }
}

/// The values with one zero and one NaN; those that are no floats as they are.
pub(crate) fn plain_values(values: &ArrayRef) -> ArrayRef {
    settled(values, |x| x + 0.0, |x| x + 0.0)
}

/// The values with one NaN, and zeros as they are; those that are no floats as they are.
pub(super) fn one_nan_values(values: &ArrayRef) -> ArrayRef {
    settled(values, |x| x, |x| x)
}

/// The values with one NaN, and others by `wide` and `narrow`.
fn settled(values: &ArrayRef, wide: impl Fn(f64) -> f64, narrow: impl Fn(f32) -> f32) -> ArrayRef {
    match values.data_type() {
        DataType::Float64 => Arc::new(
            values
                .as_primitive::<Float64Type>()
                .unary::<_, Float64Type>(|x| if x.is_nan() { f64::NAN } else { wide(x) }),
        ),
        DataType::Float32 => Arc::new(
            values
                .as_primitive::<Float32Type>()
                .unary::<_, Float32Type>(|x| if x.is_nan() { f32::NAN } else { narrow(x) }),
        ),
        _ => Arc::clone(values),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PlainFloat {
    keeps_zeros: bool,
    signature: Signature,
}

impl ScalarUDFImpl for PlainFloat {
    fn name(&self) -> &'static str {
        match self.keeps_zeros {
            true => "one_nan",
            false => "plain_float",
        }
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

    // As nullable as the argument: plans above know that already.
    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let data_types: Vec<DataType> = args
            .arg_fields
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        let data_type = self.return_type(&data_types)?;
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), data_type, is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let [floats] = arrays else {
                return internal_err!("{} takes one argument", self.name());
            };
            Ok(match self.keeps_zeros {
                true => one_nan_values(floats),
                false => plain_values(floats),
            })
        })
    }
}
