//! Cross joins of a table and a query of one row, `FROM t, (SELECT avg(v) AS a FROM t)`.
//!
//! Invariant: the query of one row is on the left, the side that DataFusion keeps in memory. The other way round it
//! would keep the whole table, and produce a batch for each of its rows.

use super::empty_subqueries::has_one_row;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinType, Result};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder};
use std::sync::Arc;

/// Puts the side with one row on the left, if the plan is a cross join with such a side on the right only.
pub(super) fn one_row_first(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let Join {
        left,
        right,
        on,
        filter: None,
        join_type: JoinType::Inner,
        schema,
        ..
    } = (match &plan {
        LogicalPlan::Join(join) => join,
        _ => return Ok(Transformed::no(plan)),
    })
    else {
        return Ok(Transformed::no(plan));
    };
    if !on.is_empty() || !has_one_row(right) || has_one_row(left) {
        return Ok(Transformed::no(plan));
    }
    let columns = schema.columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(Arc::clone(right))
        .cross_join(LogicalPlan::clone(left))?
        .project(columns)?
        .build()
        .map(Transformed::yes)
}
