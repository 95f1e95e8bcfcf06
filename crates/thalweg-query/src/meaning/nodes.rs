//! Helpers of the analyzer rules: rewriting the expressions of all nodes of a plan, and the columns of a node.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::utils::NamePreserver;

/// The plan with each expression rewritten, from its leaves up, beside the columns that it can name. Names stay as they are; types and
/// what may be NULL are worked out again, also above.
pub(super) fn in_all_nodes(
    plan: LogicalPlan,
    rewrite: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| {
        let done = in_one_node(node, &rewrite)?;
        // Also where a column of its input has another type now.
        done.map_data(LogicalPlan::recompute_schema)
    })?;
    Ok(done.data)
}

/// The node with each of its expressions rewritten, from their leaves up, beside the columns that they can name. Names stay as they are.
pub(super) fn in_one_node(
    node: LogicalPlan,
    rewrite: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        let name = names.save(&expr);
        let done = expr.transform_up(|expr| rewrite(expr, &schema))?;
        Ok(done.update_data(|expr| name.restore(expr)))
    })
}

/// All columns of a node.
pub(super) fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    let columns = plan.schema().columns();
    columns.into_iter().map(Expr::Column).collect()
}
