//! Counts that DataFusion gives as unsigned integers: `row_number()`, `approx_distinct(v)`, `array_length(l)` and their like.
//!
//! Invariant: they are BIGINT, as in PostgreSQL and DuckDB. Unsigned ones beside integers become decimals: `row_number() OVER () / 2` had
//! fractions, and `-rank() OVER (...)` was refused.

use super::replaced;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, WindowFunction, WindowFunctionParams,
};
use datafusion::logical_expr::planner::{RawAggregateExpr, RawWindowExpr};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    cast,
};
use std::sync::Arc;

/// Scalar functions that count.
const SCALARS: [&str; 4] = [
    "array_length",
    "array_ndims",
    "array_position",
    "cardinality",
];

/// `functions` with signed counts.
pub(crate) fn counts(functions: Vec<Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    let signed = |base| Signed { base };
    { SCALARS.iter() }.fold(functions, |functions, name| {
        replaced(functions, name, signed)
    })
}

/// A call over a window that counts rows, as a signed integer.
pub(crate) fn of_window(call: &RawWindowExpr) -> Option<Expr> {
    if !matches!(
        call.func_def.name(),
        "row_number" | "rank" | "dense_rank" | "ntile" | "approx_distinct" | "regr_count"
    ) {
        return None;
    }
    let call = call.clone();
    let function = WindowFunction {
        fun: call.func_def,
        params: WindowFunctionParams {
            args: call.args,
            partition_by: call.partition_by,
            order_by: call.order_by,
            window_frame: call.window_frame,
            filter: call.filter,
            null_treatment: call.null_treatment,
            distinct: call.distinct,
        },
    };
    Some(cast(Expr::from(function), DataType::Int64))
}

/// A call of an aggregate that counts, as a signed integer.
pub(crate) fn of_aggregate(call: &RawAggregateExpr) -> Option<Expr> {
    if !matches!(call.func.name(), "approx_distinct" | "regr_count") {
        return None;
    }
    let call = call.clone();
    let function = AggregateFunction {
        func: call.func,
        params: AggregateFunctionParams {
            args: call.args,
            distinct: call.distinct,
            filter: call.filter,
            order_by: call.order_by,
            null_treatment: call.null_treatment,
        },
    };
    Some(cast(Expr::AggregateFunction(function), DataType::Int64))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Signed {
    base: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Signed {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn aliases(&self) -> &[String] {
        self.base.aliases()
    }

    fn signature(&self) -> &Signature {
        self.base.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.base.return_type(types).map(|_| DataType::Int64)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.base.return_field_from_args(args)?;
        let field = Field::clone(&field).with_data_type(DataType::Int64);
        Ok(Arc::new(field))
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.base.coerce_types(types)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match self.base.simplify(args, info)? {
            ExprSimplifyResult::Original(args) => ExprSimplifyResult::Original(args),
            ExprSimplifyResult::Simplified(expr) => {
                ExprSimplifyResult::Simplified(cast(expr, DataType::Int64))
            }
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let counted = self.base.invoke_with_args(args)?;
        counted.cast_to(&DataType::Int64, None)
    }
}
