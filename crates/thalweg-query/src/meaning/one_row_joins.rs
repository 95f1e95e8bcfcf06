//! A table beside a query of one row, `FROM t, (SELECT avg(v) AS a FROM t)`.
//!
//! Invariant: the one row is on the left, which DataFusion keeps while it reads the right; the other way round it keeps the table, and
//! hands on a batch for each of its rows.

use super::empty_subqueries::has_one_row;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinType, Result};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder};
use std::sync::Arc;

/// The join of every row with every other, if it is one, with the one row on the left.
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
