//! What rows are grouped by.
//!
//! Invariant: nothing twice. DataFusion counts `GROUP BY k, k` as one column where it plans and as two where it runs, and so takes
//! columns behind them for their neighbours.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Aggregate, LogicalPlan};
use std::collections::HashSet;

/// An aggregate without such repetitions; other nodes as they are.
pub(super) fn each_once(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = plan else {
        return Ok(Transformed::no(plan));
    };
    let mut seen = HashSet::new();
    if aggregate.group_expr.iter().all(|key| seen.insert(key)) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let mut seen = HashSet::new();
    let Aggregate {
        input,
        mut group_expr,
        aggr_expr,
        ..
    } = aggregate;
    group_expr.retain(|key| seen.insert(key.clone()));
    let aggregate = Aggregate::try_new(input, group_expr, aggr_expr)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}
