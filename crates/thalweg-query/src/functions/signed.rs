//! Counts that DataFusion gives as unsigned integers: `row_number()`, `approx_distinct(v)`, `array_length(l)` and their like.
//!
//! Invariant: they are BIGINT, as in PostgreSQL and DuckDB. Unsigned ones beside integers become decimals: `row_number() OVER () / 2` had
//! fractions, and `-rank() OVER (...)` was refused.

use super::{named_as_base, replaced};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, WindowFunction, WindowFunctionParams,
};
use datafusion::logical_expr::planner::{RawAggregateExpr, RawWindowExpr};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, cast,
};
use std::sync::Arc;

/// Scalar functions that count.
const SCALARS: [&str; 5] = [
    "array_length",
    "array_ndims",
    "array_position",
    "array_positions",
    "cardinality",
];

/// `functions` with signed counts.
pub(crate) fn counts(functions: Vec<Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    { SCALARS.iter() }.fold(functions, |functions, name| {
        replaced(functions, name, |base| Signed { base })
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
    Some(counted(Expr::from(function)))
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
    Some(counted(Expr::AggregateFunction(function)))
}

/// A count as a signed integer, called as before. (A cast would lose the order of numbers of rows.)
fn counted(count: Expr) -> Expr {
    let function = ScalarUDF::new_from_impl(Counted {
        signature: Signature::any(1, Volatility::Immutable),
    });
    Arc::new(function).call(vec![count])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Counted {
    signature: Signature,
}

impl ScalarUDFImpl for Counted {
    fn name(&self) -> &'static str {
        "signed_count"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let names = args.iter().map(|arg| arg.schema_name().to_string());
        Ok(names.collect())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(
            self.name(),
            DataType::Int64,
            is_nullable,
        )))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        let unordered = SortProperties::Unordered;
        Ok(inputs
            .first()
            .map_or(unordered, |input| input.sort_properties))
    }

    fn preserves_lex_ordering(&self, _: &[ExprProperties]) -> Result<bool> {
        Ok(true)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match &*args.args {
            [count] => count.cast_to(&DataType::Int64, None),
            _ => internal_err!("{} takes one argument", self.name()),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Signed {
    base: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Signed {
    named_as_base!();

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.base.return_type(types).map(|counts| signed(&counts))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.base.return_field_from_args(args)?;
        let counts = signed(field.data_type());
        Ok(Arc::new(Field::clone(&field).with_data_type(counts)))
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.base.coerce_types(types)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match self.base.simplify(args, info)? {
            ExprSimplifyResult::Original(args) => ExprSimplifyResult::Original(args),
            ExprSimplifyResult::Simplified(expr) => {
                let counts = signed(&expr.get_type(info.schema())?);
                ExprSimplifyResult::Simplified(cast(expr, counts))
            }
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let counted = self.base.invoke_with_args(args)?;
        counted.cast_to(&signed(&counted.data_type()), None)
    }
}

/// The type of counts, or of lists of counts, with signed integers.
fn signed(counts: &DataType) -> DataType {
    match counts {
        DataType::List(item) => {
            let item = Field::clone(item).with_data_type(signed(item.data_type()));
            DataType::List(Arc::new(item))
        }
        DataType::UInt64 => DataType::Int64,
        other => other.clone(),
    }
}
