//! ORDER BY of queries in FROM and WITH.
//!
//! Invariants: their order is that of the rows which come out of a statement, or which a LIMIT or OFFSET takes, where only columns are
//! computed and rows left out in between, as in DuckDB; anywhere else, as below a join, an aggregate or `unnest`, it decides
//! nothing, and the sort goes. DataFusion's planner would drop all such sorts but those below a LIMIT of the same query, and is
//! configured not to.

use crate::limits::takes_all;
use crate::stack::with_room;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;
use std::sync::Arc;

/// The plan without sorts that decide nothing.
pub(crate) fn kept_where_they_count(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut sorts = 0;
    plan.apply_with_subqueries(|node| {
        sorts += usize::from(matches!(node, LogicalPlan::Sort(_)));
        Ok(TreeNodeRecursion::Continue)
    })?;
    // Short statements have no time for more than this look.
    if sorts <= usize::from(is_sorted(&plan)) {
        return Ok(plan);
    }
    pruned(plan, true)
}

/// Whether the rows of a plan are handed on in the order of a sort in it.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Limit(_) => plan.inputs().into_iter().all(is_sorted),
        _ => false,
    }
}

fn pruned(plan: LogicalPlan, order_counts: bool) -> Result<LogicalPlan> {
    let plan = match plan {
        LogicalPlan::Sort(sort) if !order_counts && sort.fetch.is_none() => {
            return with_room(|| pruned(Arc::unwrap_or_clone(sort.input), false));
        }
        plan => plan,
    };
    let counts_below = match &plan {
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Union(_) => order_counts,
        LogicalPlan::Limit(limit) => order_counts || !takes_all(limit),
        _ => false,
    };
    let below = |plan, counts| with_room(|| pruned(plan, counts)).map(Transformed::yes);
    let plan = plan.map_children(|input| below(input, counts_below))?.data;
    // The values of a query in an expression have no order.
    Ok(plan.map_subqueries(|query| below(query, false))?.data)
}
