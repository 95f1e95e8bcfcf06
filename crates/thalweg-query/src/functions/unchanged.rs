//! Functions that give their argument back, of which the planner knows less than of the argument.
//!
//! Invariant: the value and its type are those of the first argument.

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use std::sync::{Arc, LazyLock};

/// `value` as one that may be NULL.
pub(crate) fn or_null(value: Expr) -> Expr {
    OR_NULL.call(vec![value])
}

/// `value` as one that no rule takes apart.
pub(crate) fn opaque(value: Expr) -> Expr {
    OPAQUE.call(vec![value])
}

/// Whether a function is that of [`opaque`].
pub(crate) fn is_opaque(function: &ScalarUDF) -> bool {
    is(function, Known::Nothing)
}

/// A part of a condition that no rule takes apart for now.
pub(crate) fn part(condition: Expr) -> Expr {
    PART.call(vec![condition])
}

/// Whether a function is that of [`part`].
pub(crate) fn is_part(function: &ScalarUDF) -> bool {
    is(function, Known::Part)
}

/// `condition` as one of the pairs of rows that have these columns.
pub(crate) fn of_pair(condition: Expr, columns: impl IntoIterator<Item = Expr>) -> Expr {
    OF_PAIR.call(std::iter::once(condition).chain(columns).collect())
}

static OR_NULL: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Known::OrNull.function());
static OPAQUE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Known::Nothing.function());
static PART: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Known::Part.function());
static OF_PAIR: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Known::OfPair.function());

/// The properties of the value that the planner knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Known {
    /// Its type, and that it may be NULL, also where the argument may not.
    OrNull,
    /// Its type, and whether it may be NULL.
    Nothing,
    /// That it is NULL where the argument is.
    Part,
    /// That it depends on the other arguments.
    OfPair,
}

impl Known {
    fn function(self) -> Arc<ScalarUDF> {
        let signature = match self {
            Self::OfPair => Signature::variadic_any(Volatility::Immutable),
            Self::OrNull | Self::Nothing | Self::Part => Signature::any(1, Volatility::Immutable),
        };
        Arc::new(ScalarUDF::new_from_impl(Unchanged {
            known: self,
            signature,
        }))
    }
}

fn is(function: &ScalarUDF, known: Known) -> bool {
    let function = function.inner().downcast_ref::<Unchanged>();
    function.is_some_and(|function| function.known == known)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Unchanged {
    known: Known,
    signature: Signature,
}

impl ScalarUDFImpl for Unchanged {
    fn name(&self) -> &'static str {
        match self.known {
            Known::OrNull => "or_null",
            Known::Nothing => "opaque",
            Known::Part => "as_it_is",
            Known::OfPair => "of_pair",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type, ..] => Ok(data_type.clone()),
            [] => internal_err!("{} takes an argument", self.name()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [field, ..] => {
                let is_nullable = self.known != Known::Nothing || field.is_nullable();
                let field = Field::clone(field).with_nullable(is_nullable);
                Ok(Arc::new(field.with_name(self.name())))
            }
            [] => internal_err!("{} takes an argument", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        self.known == Known::Part
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.is_empty() {
            true => internal_err!("{} takes an argument", self.name()),
            false => Ok(args.args.swap_remove(0)),
        }
    }
}
