//! Aggregates in the place of a value whose rows are compared with the row outside in other ways than by `=`, such as
//! `(SELECT count(*) FROM t AS u WHERE u.v < t.v)`.
//!
//! DataFusion plans such a query as a join above its aggregate, which is grouped by what is compared by `=`. Here the different values
//! outside are joined with the rows below the aggregate instead, and only these values are compared with the row outside.
//!
//! Invariants: the joined values hold at least those of the rows outside, bit by bit, so these rows are such that a second scan gives the
//! same; NULL counts as a value. What is compared by `=` alone is left as it is.

use super::correlated::depends;
use super::nodes::{has, in_one_node, is_subquery, recomputed};
use crate::placed_table::PlacedTable;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema, Result, ScalarValue};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, when,
};
use std::sync::Arc;

/// The name of the joined values as a table.
const VALUES: &str = "__outside";

/// Rewrites such queries in the expressions of a node, and in LATERAL.
pub(super) fn joined_below(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let outside = match &plan {
        LogicalPlan::Filter(filter) => &filter.input,
        LogicalPlan::Projection(projection) => &projection.input,
        LogicalPlan::Join(join) => &join.left,
        _ => return Ok(Transformed::no(plan)),
    };
    let outside = Arc::clone(outside);
    if let LogicalPlan::Join(mut join) = plan {
        let right = Arc::unwrap_or_clone(join.right);
        let right = right.transform_down(|node| match node {
            LogicalPlan::Subquery(query) => {
                let done = rewritten(query, &outside)?;
                let (query, is_new) = (LogicalPlan::Subquery(done.data), done.transformed);
                Ok(Transformed::new(query, is_new, TreeNodeRecursion::Stop))
            }
            node @ (LogicalPlan::SubqueryAlias(_) | LogicalPlan::Projection(_)) => {
                Ok(Transformed::no(node))
            }
            node => Ok(Transformed::new(node, false, TreeNodeRecursion::Stop)),
        })?;
        join.right = Arc::new(right.data);
        let transformed = right.transformed;
        return Ok(Transformed::new_transformed(
            LogicalPlan::Join(join),
            transformed,
        ));
    }
    let mut found = false;
    plan.apply_expressions(|expr| {
        found |= expr.exists(|expr| Ok(matches!(expr, Expr::ScalarSubquery(_))))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !found {
        return Ok(Transformed::no(plan));
    }
    in_one_node(plan, |expr, _| match expr {
        Expr::ScalarSubquery(query) => {
            rewritten(query, &outside)?.map_data(|query| Ok(Expr::ScalarSubquery(query)))
        }
        other => Ok(Transformed::no(other)),
    })
}

fn rewritten(query: Subquery, outside: &Arc<LogicalPlan>) -> Result<Transformed<Subquery>> {
    let columns = compared_columns(&query)?;
    let schema = outside.schema();
    let is_known = |column: &Column| schema.has_column(column);
    if columns.is_empty() || !columns.iter().all(is_known) || depends(outside)? {
        return Ok(Transformed::no(query));
    }
    let Some(rows) = same_again(outside)? else {
        return Ok(Transformed::no(query));
    };
    let rows = rows.transform_up(|node| match node {
        LogicalPlan::TableScan(scan) => {
            PlacedTable::without_places(scan)?.map_data(|scan| Ok(LogicalPlan::TableScan(scan)))
        }
        node => recomputed(node).map(Transformed::yes),
    });
    // A query in FROM may name the places.
    let Ok(Transformed { data: rows, .. }) = rows else {
        return Ok(Transformed::no(query));
    };
    let mut values = Vec::new();
    for (place, column) in columns.into_iter().enumerate() {
        let field = schema.field_from_column(&column)?;
        let Ok(instead_of_null) = ScalarValue::new_default(field.data_type()) else {
            return Ok(Transformed::no(query));
        };
        values.push(Value {
            place,
            outer: Expr::OuterReferenceColumn(Arc::clone(field), column.clone()),
            column,
            instead_of_null,
        });
    }
    let distinct = distinct(rows, &values)?;
    let plan = Arc::unwrap_or_clone(Arc::clone(&query.subquery));
    let plan = plan.transform_down(|node| match node {
        LogicalPlan::Filter(filter) if filter.predicate.contains_outer() => {
            let filter = LogicalPlan::Filter(above_join(filter, distinct.clone(), &values)?);
            Ok(Transformed::new(filter, true, TreeNodeRecursion::Stop))
        }
        node => Ok(Transformed::no(node)),
    })?;
    // Nodes above the filter may hand on the new columns.
    let plan = plan
        .data
        .transform_up(|node| recomputed(node).map(Transformed::yes))?;
    let outer_ref_columns = values.into_iter().map(|value| value.outer).collect();
    Ok(Transformed::yes(Subquery {
        subquery: Arc::new(plan.data),
        outer_ref_columns,
        spans: query.spans,
    }))
}

/// The different values of the rows outside, with their keys.
fn distinct(rows: LogicalPlan, values: &[Value]) -> Result<LogicalPlan> {
    let named = values.iter().map(|value| {
        let column = Expr::Column(value.column.clone());
        column.alias(value.name("value"))
    });
    let named: Vec<Expr> = named.collect();
    let mut columns = Vec::new();
    for value in values {
        let own = value.own();
        for (part, of) in value.keys(&own)? {
            columns.push(of.alias_qualified(Some(VALUES), value.name(part)));
        }
        columns.push(own);
    }
    LogicalPlanBuilder::from(rows)
        .project(named)?
        .distinct()?
        .alias(VALUES)?
        .project(columns)?
        .build()
}

/// The filter below, over its rows joined with the values, and above it the one that compares these with the row outside.
fn above_join(filter: Filter, distinct: LogicalPlan, values: &[Value]) -> Result<Filter> {
    let predicate = filter.predicate.transform_up(|expr| {
        let value = match &expr {
            Expr::OuterReferenceColumn(_, column) => {
                values.iter().find(|value| value.column == *column)
            }
            _ => None,
        };
        Ok(value.map_or_else(
            || Transformed::no(expr),
            |value| Transformed::yes(value.own()),
        ))
    })?;
    let rows = LogicalPlanBuilder::from(distinct)
        .cross_join(Arc::unwrap_or_clone(filter.input))?
        .filter(predicate.data)?
        .build()?;
    let mut equal = Vec::new();
    for value in values {
        for (part, outer) in value.keys(&value.outer)? {
            equal.push(value.named(part).eq(outer));
        }
    }
    let equal = conjunction(equal).unwrap_or_else(|| unreachable!("there are values"));
    Filter::try_new(equal, Arc::new(rows))
}

/// A column of the rows outside.
struct Value {
    place: usize,
    outer: Expr,
    column: Column,
    instead_of_null: ScalarValue,
}

impl Value {
    fn name(&self, part: &str) -> String {
        format!("__{part}_{}", self.place)
    }

    fn named(&self, part: &str) -> Expr {
        Expr::Column(Column::new(Some(VALUES), self.name(part)))
    }

    fn own(&self) -> Expr {
        self.named("value")
    }

    /// Two expressions for `=`: both are equal exactly where two of these values are the same.
    fn keys(&self, of: &Expr) -> Result<[(&'static str, Expr); 2]> {
        let instead = Expr::Literal(self.instead_of_null.clone(), None);
        let known = when(of.clone().is_null(), instead).otherwise(of.clone())?;
        Ok([("known", known), ("null", of.clone().is_null())])
    }
}

/// The columns of rows outside in the only filter with such, where that is below an aggregate and compares them in other ways than by
/// `=`. None if there are such columns in other places, or nothing is to be rewritten.
fn compared_columns(query: &Subquery) -> Result<Vec<Column>> {
    let mut columns = Vec::new();
    if query.outer_ref_columns.is_empty() {
        return Ok(columns);
    }
    let (mut filters, mut others, mut aggregates, mut otherwise) = (0, false, false, false);
    query.subquery.apply(|node| {
        match node {
            LogicalPlan::Filter(filter) if filter.predicate.contains_outer() => {
                filters += 1;
                otherwise |= !split_conjunction(&filter.predicate)
                    .into_iter()
                    .all(is_plain);
                filter.predicate.apply(|expr| {
                    if let Expr::OuterReferenceColumn(_, column) = expr
                        && !columns.contains(column)
                    {
                        columns.push(column.clone());
                    }
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
            // An aggregate above the filter comes before it.
            LogicalPlan::Aggregate(_) if filters == 0 => aggregates = true,
            node => others |= node.contains_outer_reference(),
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if filters != 1 || others || !aggregates || !otherwise {
        columns.clear();
    }
    Ok(columns)
}

/// Whether DataFusion takes a condition above an aggregate: it names no row outside, or compares a column with what lies outside by `=`.
fn is_plain(condition: &Expr) -> bool {
    let is_column = |expr: &Expr| match expr {
        Expr::Cast(cast) => matches!(*cast.expr, Expr::Column(_)),
        other => matches!(other, Expr::Column(_)),
    };
    match condition {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Eq,
            right,
        }) if condition.contains_outer() => {
            is_column(left) && !right.any_column_refs()
                || is_column(right) && !left.any_column_refs()
        }
        condition => !condition.contains_outer(),
    }
}

/// The rows outside, without filters that might leave out others in a second run; None if the rows might be others.
fn same_again(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    if let LogicalPlan::Filter(filter) = plan
        && is_changing(&filter.predicate)?
    {
        return same_again(&filter.input);
    }
    if !matches!(
        plan,
        LogicalPlan::Filter(_) | LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_)
    ) {
        return Ok(is_stable(plan)?.then(|| plan.clone()));
    }
    let exprs = plan.expressions();
    for expr in &exprs {
        if is_changing(expr)? {
            return Ok(None);
        }
    }
    let [input] = plan.inputs()[..] else {
        return Ok(None);
    };
    let input = same_again(input)?;
    input
        .map(|input| plan.with_new_exprs(exprs, vec![input]))
        .transpose()
}

/// Whether a plan gives the same rows each time: sums of floats and LIMIT may not.
fn is_stable(plan: &LogicalPlan) -> Result<bool> {
    let is_other = |node: &LogicalPlan| match node {
        LogicalPlan::TableScan(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::Distinct(Distinct::All(_))
        | LogicalPlan::Values(_)
        | LogicalPlan::EmptyRelation(_) => false,
        LogicalPlan::Sort(sort) => sort.fetch.is_some(),
        LogicalPlan::Aggregate(aggregate) => !aggregate.aggr_expr.iter().all(is_exact),
        _ => true,
    };
    Ok(!has(plan, is_other, is_changing)?)
}

/// Whether an aggregate gives the same in whatever order its values come.
fn is_exact(aggregate: &Expr) -> bool {
    match aggregate {
        Expr::Alias(alias) => is_exact(&alias.expr),
        Expr::AggregateFunction(call) => matches!(call.func.name(), "count" | "min" | "max"),
        _ => false,
    }
}

/// Whether an expression may have another value in a second run.
fn is_changing(expr: &Expr) -> Result<bool> {
    expr.exists(|expr| Ok(is_subquery(expr) || expr.is_volatile_node()))
}
