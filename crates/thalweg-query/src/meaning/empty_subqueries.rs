//! Queries in the place of a value that may have no row.
//!
//! Invariant: such a query is NULL where it has no row, whatever column it selects. DataFusion takes it for a value that is never
//! NULL where its column is none, and answers `IS NULL` and `coalesce` without running it.

use super::nodes::in_all_nodes;
use crate::functions::unchanged::or_null;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// The rule that enforces the invariant.
#[derive(Debug)]
pub(crate) struct EmptySubqueries;

impl AnalyzerRule for EmptySubqueries {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !is_needed(&plan)? {
            return Ok(plan);
        }
        in_all_nodes(plan, |expr, _| nullable(expr))
    }

    fn name(&self) -> &'static str {
        "thalweg_empty_subqueries"
    }
}

fn is_needed(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|expr| {
                Ok(matches!(expr, Expr::ScalarSubquery(query) if is_mistaken(query)))
            })?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// Whether a query is taken for one that always has a row.
fn is_mistaken(query: &Subquery) -> bool {
    let fields = query.subquery.schema().fields();
    fields.first().is_some_and(|field| !field.is_nullable()) && !has_one_row(&query.subquery)
}

/// Whether a plan has exactly one row.
pub(super) fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(relation) => relation.produce_one_row,
        LogicalPlan::Projection(projection) => has_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input),
        LogicalPlan::Sort(sort) => sort.fetch.is_none() && has_one_row(&sort.input),
        _ => false,
    }
}

fn nullable(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::ScalarSubquery(query) = expr else {
        return Ok(Transformed::no(expr));
    };
    if !is_mistaken(&query) {
        return Ok(Transformed::no(Expr::ScalarSubquery(query)));
    }
    let columns = query.subquery.schema().iter().map(|(table, field)| {
        let column = Expr::Column(Column::from((table, field.as_ref())));
        or_null(column).alias_qualified(table.cloned(), field.name())
    });
    let columns: Vec<Expr> = columns.collect();
    let plan = LogicalPlanBuilder::from(Arc::clone(&query.subquery)).project(columns)?;
    let plan = Arc::new(plan.build()?);
    Ok(Transformed::yes(Expr::ScalarSubquery(
        query.with_plan(plan),
    )))
}
