//! A function that gives its argument back, of which the planner knows less than of the argument.
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
    of(value, true)
}

/// `value` as one that no rule takes apart.
pub(crate) fn opaque(value: Expr) -> Expr {
    of(value, false)
}

/// Whether a function is that of [`opaque`].
pub(crate) fn is_opaque(function: &ScalarUDF) -> bool {
    let function = function.inner().downcast_ref::<Unchanged>();
    function.is_some_and(|function| !function.is_nullable)
}

fn of(value: Expr, is_nullable: bool) -> Expr {
    let function = ScalarUDF::new_from_impl(Unchanged {
        is_nullable,
        signature: Signature::any(1, Volatility::Immutable),
    });
    Arc::new(function).call(vec![value])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Unchanged {
    /// Also where the argument is not.
    is_nullable: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Unchanged {
    fn name(&self) -> &'static str {
        match self.is_nullable {
            true => "or_null",
            false => "opaque",
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

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [field] => {
                let is_nullable = self.is_nullable || field.is_nullable();
                let field = Field::clone(field).with_nullable(is_nullable);
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
