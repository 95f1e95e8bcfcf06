//! The keys of GROUP BY.
//!
//! Invariant: an aggregate that is run has no key twice. DataFusion counts `GROUP BY k, k` as one column where it plans and as two where
//! it runs, and so takes columns after them for their neighbours.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};

/// An aggregate without such repetitions; other nodes as they are.
pub(super) fn each_once(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = plan else {
        return Ok(Transformed::no(plan));
    };
    let mut keys: Vec<Expr> = Vec::new();
    for key in &aggregate.group_expr {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    if keys.len() == aggregate.group_expr.len() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let aggregate = Aggregate::try_new(aggregate.input, keys, aggregate.aggr_expr)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

/// Whether some aggregate has a cast and what it casts among its keys: both have one name, by which DataFusion mistakes them for each
/// other above a join.
pub(crate) fn have_casts_beside(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            let keys = &aggregate.group_expr;
            let mut casts = keys.iter().filter_map(cast_name);
            found |= casts.any(|(cast, name)| {
                let mut others = keys.iter().filter(|key| *key != cast);
                others.any(|other| bare_name(other).is_some_and(|other| other == name))
            });
        }
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// A key that is a cast, and the name of the column that it casts.
fn cast_name(key: &Expr) -> Option<(&Expr, &str)> {
    let is_cast = matches!(key, Expr::Cast(_) | Expr::TryCast(_));
    bare_name(key).filter(|_| is_cast).map(|name| (key, name))
}

/// The name of a column, or of the column that is cast, without its table.
fn bare_name(key: &Expr) -> Option<&str> {
    match key {
        Expr::Column(column) => Some(&column.name),
        Expr::Cast(cast) => bare_name(&cast.expr),
        Expr::TryCast(cast) => bare_name(&cast.expr),
        _ => None,
    }
}
