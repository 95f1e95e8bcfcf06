//! A function that gives its argument back, and is nullable to the planner.
//!
//! Invariant: the value and its type are those of the argument.

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use std::sync::Arc;

/// `value` as one that may be NULL.
pub(crate) fn or_null(value: Expr) -> Expr {
    let function = ScalarUDF::new_from_impl(OrNull {
        signature: Signature::any(1, Volatility::Immutable),
    });
    Arc::new(function).call(vec![value])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OrNull {
    signature: Signature,
}

impl ScalarUDFImpl for OrNull {
    fn name(&self) -> &'static str {
        "or_null"
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

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [field] => {
                let field = Field::clone(field).with_nullable(true);
                Ok(Arc::new(field.with_name(self.name())))
            }
            _ => internal_err!("{} takes one argument", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match <[ColumnarValue; 1]>::try_from(args.args) {
            Ok([value]) => Ok(value),
            Err(_) => internal_err!("{} takes one argument", self.name()),
        }
    }
}
