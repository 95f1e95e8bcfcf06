//! Functions of DataFusion that are called with care.
//!
//! Invariant: they are DataFusion's own in everything but the moment of the call: names, types and what is known of them
//! while planning.

use super::bounded::Size;
use super::time_groups::TimeGrouping;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use std::sync::Arc;

/// `functions` with a guard before those that need it.
pub(crate) fn guarded(functions: Vec<Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    let guarded = |base: Arc<ScalarUDF>| match Guard::of(base.name()) {
        Some(guard) => Arc::new(ScalarUDF::new_from_impl(Guarded { base, guard })),
        None => base,
    };
    functions.into_iter().map(guarded).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Guard {
    /// Of what may be too large.
    Size(Size),
    /// Of what may lose times.
    Time(TimeGrouping),
}

impl Guard {
    fn of(function: &str) -> Option<Self> {
        Size::of(function)
            .map(Self::Size)
            .or_else(|| TimeGrouping::of(function).map(Self::Time))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Guarded {
    base: Arc<ScalarUDF>,
    guard: Guard,
}

impl ScalarUDFImpl for Guarded {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn aliases(&self) -> &[String] {
        self.base.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.base.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.base.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.base.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.base.return_field_from_args(args)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.base.coerce_types(arg_types)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.base.simplify(args, info)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.guard {
            Guard::Size(size) => {
                size.check(self.name(), &args.args, args.number_rows)?;
                self.base.invoke_with_args(args)
            }
            Guard::Time(grouping) => grouping.invoke(&self.base, args),
        }
    }
}
