//! Values that are drawn anew for each row, as `random()`.
//!
//! DataFusion writes some expressions out in terms of parts that come twice: BETWEEN, `floor(x) = 1`, `coalesce(x, 0)`, CASE of
//! conditions. Invariant: a part that is drawn is drawn once for each row, as a column of the rows below, where it stands inside of
//! anything but arithmetic, comparisons, AND and OR.

use super::keys_below::Below;
use super::nodes::columns_of;
use crate::wording::KEY_PREFIX;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Volatility};
use datafusion::optimizer::utils::NamePreserver;
use std::sync::Arc;

/// The filter, projection, aggregate or window that the node is, with such parts below. Conditions of joins other
/// than INNER are left: they are drawn for pairs of rows. A filter or window that gets a projection above it goes through `rewrite` before.
pub(super) fn below(
    plan: LogicalPlan,
    rewrite: impl Fn(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<Transformed<LogicalPlan>> {
    let input = match &plan {
        LogicalPlan::Filter(filter) => &filter.input,
        LogicalPlan::Projection(projection) => &projection.input,
        LogicalPlan::Aggregate(aggregate) => &aggregate.input,
        LogicalPlan::Window(window) => &window.input,
        _ => return Ok(Transformed::no(plan)),
    };
    let mut is_drawn = false;
    plan.apply_expressions(|expr| {
        is_drawn |= expr.is_volatile();
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !is_drawn {
        return Ok(Transformed::no(plan));
    }
    let input = Arc::clone(input);
    let mut below = Below::default();
    let names = NamePreserver::new(&plan);
    let rewritten = plan.clone().map_expressions(|expr| {
        let name = names.save(&expr);
        let done = once(expr, &mut below)?;
        Ok(done.update_data(|expr| name.restore(expr)))
    })?;
    if below.is_empty() {
        return Ok(Transformed::no(plan));
    }
    let columns = columns_of(&plan);
    let rows = below.plan(&input, Ok)?;
    let exprs = rewritten.data.expressions();
    let node = rewritten.data.with_new_exprs(exprs, vec![rows])?;
    let node = match node {
        // They hand on the columns of the rows below.
        LogicalPlan::Filter(_) | LogicalPlan::Window(_) => LogicalPlanBuilder::from(rewrite(node)?)
            .project(columns)?
            .build()?,
        node => node,
    };
    Ok(Transformed::yes(node))
}

/// An expression with columns in the places of drawn parts that might be written out twice.
fn once(expr: Expr, below: &mut Below) -> Result<Transformed<Expr>> {
    expr.transform_down(|expr| {
        if !expr.is_volatile() || is_drawn(&expr) {
            return Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump));
        }
        match expr {
            Expr::Alias(_)
            | Expr::BinaryExpr(_)
            | Expr::Cast(_)
            | Expr::TryCast(_)
            | Expr::Negative(_)
            | Expr::Not(_) => Ok(Transformed::no(expr)),
            // Of a lambda, values are drawn for each element.
            Expr::HigherOrderFunction(_) | Expr::Lambda(_) => {
                Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump))
            }
            other => {
                let done = other.transform_down(|expr| in_column(expr, below))?;
                Ok(Transformed::new(done.data, true, TreeNodeRecursion::Jump))
            }
        }
    })
}

fn in_column(expr: Expr, below: &mut Below) -> Result<Transformed<Expr>> {
    let (next, is_column) = match &expr {
        Expr::HigherOrderFunction(_) | Expr::Lambda(_) => (TreeNodeRecursion::Jump, false),
        expr => (
            TreeNodeRecursion::Continue,
            is_drawn(expr) && !expr.contains_outer(),
        ),
    };
    if !is_column {
        return Ok(Transformed::new(expr, false, next));
    }
    // Two calls of one name are two values.
    let name = format!("{KEY_PREFIX}{} {expr}", below.len());
    Ok(Transformed::new(
        below.column(expr, name),
        true,
        TreeNodeRecursion::Jump,
    ))
}

/// Whether a call has another value each time.
fn is_drawn(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, .. }) => {
            func.signature().volatility == Volatility::Volatile
        }
        _ => false,
    }
}
