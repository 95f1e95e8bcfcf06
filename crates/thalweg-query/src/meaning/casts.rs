//! Calls of `arrow_cast` to times as the casts that they are, so that what knows about casts knows them.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, TryCast};

/// The cast that a call of `arrow_cast` or `arrow_try_cast` is.
pub(super) fn of_call(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let tries = match call.func.name() {
        "arrow_cast" => false,
        "arrow_try_cast" => true,
        _ => return Ok(Transformed::no(expr)),
    };
    let Some(value) = call.args.first() else {
        return Ok(Transformed::no(expr));
    };
    let to = expr.get_type(schema)?;
    if !matches!(to, DataType::Timestamp(..)) {
        return Ok(Transformed::no(expr));
    }
    let value = Box::new(value.clone());
    Ok(Transformed::yes(if tries {
        Expr::TryCast(TryCast::new(value, to))
    } else {
        Expr::Cast(Cast::new(value, to))
    }))
}
