//! Queries that depend on the rows outside and have window functions, OFFSET or an aggregate of all rows.
//!
//! DataFusion makes joins of such queries by taking the conditions on rows outside out of them: a window above then counts rows of all
//! of them, an OFFSET is dropped, and an aggregate of no rows has no row. Invariant: what would be answered so is answered rightly
//! or refused.

use super::empty_subqueries::has_one_row;
use super::nodes::in_one_node;
use crate::error::{to_datafusion, unsupported};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, Subquery, binary_expr, lit};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Whether it has rows is all that counts.
    Exists,
    Other,
}

/// The plan with such queries in a form whose answer is right.
pub(super) fn settled(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Subquery(query) = &plan {
        check(query, Place::Other)?;
    }
    let mut found = false;
    plan.apply_expressions(|expr| {
        found |= expr.exists(|expr| Ok(query_of(expr).is_some()))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !found {
        return Ok(Transformed::no(plan));
    }
    in_one_node(plan, |expr, _| rewritten(expr))
}

fn query_of(expr: &Expr) -> Option<(&Subquery, Place)> {
    match expr {
        Expr::Exists(exists) => Some((&exists.subquery, Place::Exists)),
        Expr::InSubquery(list) => Some((&list.subquery, Place::Other)),
        Expr::ScalarSubquery(query) => Some((query, Place::Other)),
        Expr::SetComparison(comparison) => Some((&comparison.subquery, Place::Other)),
        _ => None,
    }
}

fn rewritten(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Exists(Exists { subquery, negated }) if has_one_row(&subquery.subquery) => {
            Ok(Transformed::yes(lit(!negated)))
        }
        // One value, which an aggregate of no rows has as well.
        Expr::InSubquery(InSubquery {
            expr,
            subquery,
            negated,
        }) if !subquery.outer_ref_columns.is_empty() && has_one_row(&subquery.subquery) => {
            let operator = if negated {
                Operator::NotEq
            } else {
                Operator::Eq
            };
            check(&subquery, Place::Other)?;
            let value = Expr::ScalarSubquery(subquery);
            Ok(Transformed::yes(binary_expr(*expr, operator, value)))
        }
        other => {
            if let Some((query, place)) = query_of(&other) {
                check(query, place)?;
            }
            Ok(Transformed::no(other))
        }
    }
}

/// Refuses what would be answered wrongly.
fn check(query: &Subquery, place: Place) -> Result<()> {
    if query.outer_ref_columns.is_empty() {
        return Ok(());
    }
    query
        .subquery
        .apply(|node| {
            let refused = match node {
                LogicalPlan::Window(_) => Some(
                    "a window function in a query that depends on the rows outside is not offered: compute it with PARTITION BY in a query \
                     of its own, and join that",
                ),
                LogicalPlan::Limit(limit) if place == Place::Exists && skips(limit.skip.as_deref()) => Some(
                    "OFFSET in an EXISTS that depends on the rows outside is not offered: compare (SELECT count(*) ...) with a number",
                ),
                LogicalPlan::Aggregate(aggregate)
                    if place == Place::Exists && aggregate.group_expr.is_empty() =>
                {
                    Some(
                        "HAVING without GROUP BY in an EXISTS that depends on the rows outside is not offered: compare (SELECT count(*) ...) \
                         with a number",
                    )
                }
                _ => None,
            };
            match refused {
                Some(message) if depends(node)? => Err(to_datafusion(unsupported(message))),
                _ => Ok(TreeNodeRecursion::Continue),
            }
        })
        .map(|_| ())
}

fn skips(skip: Option<&Expr>) -> bool {
    !matches!(
        skip,
        None | Some(Expr::Literal(ScalarValue::Int64(Some(0)), _))
    )
}

/// Whether the expressions of a plan name columns of rows outside.
pub(crate) fn depends(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            found |= expr.contains_outer();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}
