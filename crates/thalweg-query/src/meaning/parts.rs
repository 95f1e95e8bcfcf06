//! Parts of differences of times, which are those of intervals in days and a time of day, as in PostgreSQL and DuckDB.
//!
//! DataFusion counts the whole difference in each part, and drops the fraction of its seconds.

use crate::functions::day_intervals::in_days;
use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, ExprSchemable};

/// The call of `date_part` that `expr` is, on an interval where it is on a duration.
pub(super) fn of_durations(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::ScalarFunction(mut call) = expr else {
        return Transformed::no(expr);
    };
    let is_duration = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Duration(_)));
    if call.func.name() != "date_part" || !call.args.get(1).is_some_and(is_duration) {
        return Transformed::no(Expr::ScalarFunction(call));
    }
    call.args[1] = in_days(std::mem::take(&mut call.args[1]));
    Transformed::yes(Expr::ScalarFunction(call))
}
