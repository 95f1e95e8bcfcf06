//! `coalesce` of times and texts.
//!
//! Invariant: it is DataFusion's own, but that a text beside times is read as one, as in comparisons: `coalesce(max(ts), '2026-01-01')`.

use super::{named_as_base, replaced};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use std::sync::Arc;

/// `functions` with `coalesce` replaced.
pub(crate) fn of_times(functions: Vec<Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    replaced(functions, "coalesce", |base| Coalesce { base })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Coalesce {
    base: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Coalesce {
    named_as_base!();

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.base.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.base.return_field_from_args(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let Some(time) = types.iter().find(|data_type| is_time(data_type)) else {
            return self.base.coerce_types(types);
        };
        let read = |data_type: &DataType| match data_type {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => time.clone(),
            other => other.clone(),
        };
        let read: Vec<DataType> = types.iter().map(read).collect();
        self.base.coerce_types(&read)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.base.simplify(args, info)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.base.invoke_with_args(args)
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.base.conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.base.short_circuits()
    }
}

fn is_time(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
    )
}
