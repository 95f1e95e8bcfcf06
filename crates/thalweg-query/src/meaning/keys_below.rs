//! Expressions that rows are grouped, sorted or looked up by, computed below as columns of their own.
//!
//! DataFusion takes keys for something else in four places. A subquery that depends on the rows outside by
//! `CAST(x AS date) = outer` is grouped by `x`, and one by any other expression is refused. Columns of one
//! name in several tables of such a subquery are taken for one. An expression inside of ROLLUP and its
//! like loses its name once it is rewritten. And the first of rows sorted by `random()` cannot be taken where no column of theirs is
//! used above. Invariants: the schema of the node stays as it is; nothing but columns is left in those
//! places.

use super::nodes::columns_of;
use crate::wording::KEY_PREFIX;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::{BinaryExpr, GroupingSet};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Sort, lit,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// The rule for keys inside of ROLLUP and its like, which comes before all that rewrites expressions: the operators above know a key by
/// the name that it has as it is planned, and `grouping` finds its argument among the keys.
#[derive(Debug)]
pub(crate) struct GroupingKeys;

impl AnalyzerRule for GroupingKeys {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut found = false;
        plan.apply_with_subqueries(|node| {
            found |= set_of(node).is_some();
            Ok(match found {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })?;
        if !found {
            return Ok(plan);
        }
        let done = plan.transform_up_with_subqueries(|node| match set_of(&node) {
            Some((aggregate, set)) => grouping_set(aggregate, set.clone()),
            None => Ok(Transformed::no(node)),
        })?;
        Ok(done.data)
    }

    fn name(&self) -> &'static str {
        "thalweg_grouping_keys"
    }
}

/// An aggregate by ROLLUP and its like.
fn set_of(node: &LogicalPlan) -> Option<(&Aggregate, &GroupingSet)> {
    match node {
        LogicalPlan::Aggregate(aggregate) => match aggregate.group_expr.as_slice() {
            [Expr::GroupingSet(set)] => Some((aggregate, set)),
            _ => None,
        },
        _ => None,
    }
}

/// The node with its keys below; others as they are. `rewritten` is applied to the node that computes them,
/// and to the node where it is another one then.
pub(super) fn computed_below(
    plan: LogicalPlan,
    rewritten: impl Fn(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Filter(filter) => outer_keys(filter, rewritten),
        LogicalPlan::Sort(sort) => drawn_keys(sort, rewritten),
        plan => Ok(Transformed::no(plan)),
    }
}

/// Columns that are computed below a node.
#[derive(Default)]
pub(super) struct Below(Vec<Expr>);

impl Below {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The column that an expression becomes, under a name of our own or that of the expression.
    pub(super) fn column(&mut self, expr: Expr, name: String) -> Expr {
        let column = Expr::Column(Column::new_unqualified(name.clone()));
        let expr = expr.alias(name);
        if !self.0.contains(&expr) {
            self.0.push(expr);
        }
        column
    }

    /// The input with these columns after its own.
    pub(super) fn plan(
        self,
        input: &Arc<LogicalPlan>,
        rewritten: impl Fn(LogicalPlan) -> Result<LogicalPlan>,
    ) -> Result<LogicalPlan> {
        let columns = columns_of(input).into_iter().chain(self.0);
        let plan = LogicalPlanBuilder::from(Arc::clone(input)).project(columns)?;
        rewritten(plan.build()?)
    }
}

/// A sort by values that are drawn for each row.
fn drawn_keys(
    mut sort: Sort,
    rewritten: impl Fn(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<Transformed<LogicalPlan>> {
    let mut below = Below::default();
    for key in &mut sort.expr {
        if key.expr.is_volatile() {
            key.expr = named_key(std::mem::take(&mut key.expr), &mut below);
        }
    }
    if below.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Sort(sort)));
    }
    let columns = columns_of(&sort.input);
    sort.input = Arc::new(below.plan(&sort.input, &rewritten)?);
    let sort = rewritten(LogicalPlan::Sort(sort))?;
    let plan = LogicalPlanBuilder::from(sort).project(columns)?;
    Ok(Transformed::yes(plan.build()?))
}

/// A filter of a subquery by `expression = outer`.
fn outer_keys(
    filter: Filter,
    rewritten: impl Fn(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<Transformed<LogicalPlan>> {
    if !filter.predicate.contains_outer() {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let mut below = Below::default();
    let conditions = split_conjunction_owned(filter.predicate.clone()).into_iter();
    let conditions = conditions.map(|condition| {
        let condition = with_key(condition, &mut below);
        with_names_of_their_own(condition, filter.input.schema(), &mut below)
    });
    let conditions = conditions.collect::<Result<Vec<_>>>()?;
    let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
    if below.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let columns = columns_of(&filter.input);
    let input = below.plan(&filter.input, &rewritten)?;
    let filter = Filter::try_new(predicate, Arc::new(input))?;
    // Its other conditions.
    let filter = rewritten(LogicalPlan::Filter(filter))?;
    let plan = LogicalPlanBuilder::from(filter).project(columns)?;
    Ok(Transformed::yes(plan.build()?))
}

/// A condition with its key below, if it is `expression = outer`.
fn with_key(condition: Expr, below: &mut Below) -> Expr {
    match condition {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Eq,
            right,
        }) => {
            let [left, right] = match (is_key(&left, &right), is_key(&right, &left)) {
                (true, _) => [named_key(*left, below), *right],
                (_, true) => [*left, named_key(*right, below)],
                _ => [*left, *right],
            };
            left.eq(right)
        }
        other => other,
    }
}

/// A condition on rows outside whose columns are found by their names alone, without those of their tables.
fn with_names_of_their_own(condition: Expr, schema: &DFSchema, below: &mut Below) -> Result<Expr> {
    if !condition.contains_outer() {
        return Ok(condition);
    }
    let done = condition.transform(|expr| match &expr {
        Expr::Column(column) if schema.fields_with_unqualified_name(&column.name).len() > 1 => {
            Ok(Transformed::yes(named_key(expr, below)))
        }
        _ => Ok(Transformed::no(expr)),
    })?;
    Ok(done.data)
}

fn named_key(key: Expr, below: &mut Below) -> Expr {
    let name = format!("{KEY_PREFIX}{key}");
    below.column(key, name)
}

/// Whether an expression of the rows inside, and no column, is compared with one of the rows outside.
fn is_key(expr: &Expr, other: &Expr) -> bool {
    !matches!(expr, Expr::Column(_))
        && expr.any_column_refs()
        && !expr.contains_outer()
        && !expr.is_volatile()
        && other.contains_outer()
        && !other.any_column_refs()
}

fn grouping_set(aggregate: &Aggregate, set: GroupingSet) -> Result<Transformed<LogicalPlan>> {
    let mut below = Below::default();
    let mut keys: Vec<(Expr, Expr)> = Vec::new();
    // Under names of our own: a cast is called like the column that it casts.
    let mut as_column = |expr: Expr| match expr {
        Expr::Column(_) => expr,
        expr => {
            let column = named_key(expr.clone(), &mut below);
            keys.push((expr, column.clone()));
            column
        }
    };
    let mut all = |exprs: Vec<Expr>| exprs.into_iter().map(&mut as_column).collect::<Vec<_>>();
    let set = match set {
        GroupingSet::Rollup(exprs) => GroupingSet::Rollup(all(exprs)),
        GroupingSet::Cube(exprs) => GroupingSet::Cube(all(exprs)),
        GroupingSet::GroupingSets(sets) => {
            GroupingSet::GroupingSets(sets.into_iter().map(&mut all).collect())
        }
    };
    if below.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate.clone())));
    }
    let aggregates = aggregate.aggr_expr.iter().cloned();
    let aggregates = aggregates.map(|call| with_columns_for_keys(call, &keys));
    let aggregates = aggregates.collect::<Result<Vec<_>>>()?;
    let input = below.plan(&aggregate.input, Ok)?;
    let grouping = vec![Expr::GroupingSet(set)];
    let grouped = Aggregate::try_new(Arc::new(input), grouping, aggregates)?;
    let grouped = LogicalPlan::Aggregate(grouped);
    let names = aggregate.schema.columns().into_iter();
    let columns = names.zip(grouped.schema().columns());
    // Nothing above names the number of the set, and it is gone once `grouping` is resolved.
    let columns = columns.filter(|(named, _)| named.name != Aggregate::INTERNAL_GROUPING_ID);
    let columns = columns.map(|(named, column)| match named == column {
        true => Expr::Column(column),
        false => Expr::Column(column).alias_qualified(named.relation, named.name),
    });
    let columns: Vec<Expr> = columns.collect();
    let plan = LogicalPlanBuilder::from(grouped).project(columns)?;
    Ok(Transformed::yes(plan.build()?))
}

/// A call of `grouping` with the columns in the places of the keys that they are; others as they are.
fn with_columns_for_keys(call: Expr, keys: &[(Expr, Expr)]) -> Result<Expr> {
    let done = call.transform_down(|expr| {
        let Expr::AggregateFunction(mut call) = expr else {
            return Ok(Transformed::no(expr));
        };
        if call.func.name() == "grouping" {
            for arg in &mut call.params.args {
                if let Some((_, column)) = keys.iter().find(|(key, _)| key == arg) {
                    *arg = column.clone();
                }
            }
        }
        let expr = Expr::AggregateFunction(call);
        Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump))
    })?;
    Ok(done.data)
}
