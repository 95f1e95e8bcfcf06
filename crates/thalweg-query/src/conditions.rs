//! Conditions that stay above the operators that they are about.
//!
//! DataFusion takes a condition below an aggregate or a window where all its columns are keys, and so one without columns as well: an
//! aggregate of all rows has a row when none is left below, and `random()` is then drawn for other rows. Invariant: a condition without
//! columns stays above an aggregate that has a row for no rows, and one that is drawn for each row above all that rows are lost or
//! made in.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinType, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Aggregate, Expr, Filter, Join, LogicalPlan, lit};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::sync::Arc;

/// DataFusion's rule that takes conditions down, for those that may go.
#[derive(Debug, Default)]
pub(crate) struct PushDownConditions(PushDownFilter);

impl OptimizerRule for PushDownConditions {
    fn name(&self) -> &'static str {
        "push_down_filter"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let filter = match plan {
            // What is drawn stays above it; the join goes on below.
            LogicalPlan::Join(join) if is_drawn(&join) => {
                return with_drawn_above(join).map(Transformed::yes);
            }
            LogicalPlan::Filter(filter) => filter,
            plan => return self.0.rewrite(plan, config),
        };
        let filter = match filter.input.as_ref() {
            LogicalPlan::Join(join) if is_drawn(join) => {
                let join = with_drawn_above(join.clone())?;
                Filter::try_new(filter.predicate, Arc::new(join))?
            }
            _ => filter,
        };
        // DataFusion takes both at once past what is below.
        let filter = match filter.input.as_ref() {
            LogicalPlan::Filter(_) => merged(filter)?,
            _ => filter,
        };
        let conditions = split_conjunction(&filter.predicate);
        if !conditions.iter().any(|c| stays(c, &filter.input)) {
            return self.0.rewrite(LogicalPlan::Filter(filter), config);
        }
        let conditions = conditions.into_iter().cloned();
        let (stay, go): (Vec<_>, Vec<_>) = conditions.partition(|c| stays(c, &filter.input));
        let Some(go) = conjunction(go) else {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        };
        let below = Filter::try_new(go, Arc::clone(&filter.input))?;
        let done = self.0.rewrite(LogicalPlan::Filter(below), config)?;
        if !done.transformed {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        done.map_data(|plan| above(stay, plan))
    }
}

/// Whether random values are drawn for the pairs of rows that an inner join lets pass.
fn is_drawn(join: &Join) -> bool {
    join.join_type == JoinType::Inner && join.filter.as_ref().is_some_and(Expr::is_volatile)
}

/// An inner join with such conditions above it. Outer joins become inner ones, and then DataFusion takes conditions on keys of the one
/// side to the other side as well, where they would be drawn once more.
pub(crate) fn with_drawn_above(mut join: Join) -> Result<LogicalPlan> {
    let conditions = join.filter.take().map(split_conjunction_owned);
    let conditions = conditions.unwrap_or_default().into_iter();
    let (drawn, others): (Vec<_>, Vec<_>) = conditions.partition(Expr::is_volatile);
    join.filter = conjunction(others);
    filter_of(drawn, Arc::new(LogicalPlan::Join(join))).map(LogicalPlan::Filter)
}

/// Filters on top of one another as one.
fn merged(filter: Filter) -> Result<Filter> {
    let mut input = filter.input;
    let mut conditions = split_conjunction_owned(filter.predicate);
    while let LogicalPlan::Filter(below) = input.as_ref() {
        let mut all = split_conjunction_owned(below.predicate.clone());
        all.append(&mut conditions);
        conditions = all;
        input = Arc::clone(&below.input);
    }
    filter_of(conditions, input)
}

fn above(stay: Vec<Expr>, plan: LogicalPlan) -> Result<LogicalPlan> {
    let filter = match plan {
        LogicalPlan::Filter(kept) => {
            let conditions = split_conjunction_owned(kept.predicate).into_iter();
            filter_of(conditions.chain(stay).collect(), kept.input)?
        }
        plan => filter_of(stay, Arc::new(plan))?,
    };
    Ok(LogicalPlan::Filter(filter))
}

fn filter_of(conditions: Vec<Expr>, input: Arc<LogicalPlan>) -> Result<Filter> {
    let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
    Filter::try_new(predicate, input)
}

fn stays(condition: &Expr, input: &LogicalPlan) -> bool {
    match input {
        LogicalPlan::Aggregate(aggregate) => {
            condition.is_volatile()
                || (may_have_row_of_none(aggregate) && !condition.any_column_refs())
        }
        LogicalPlan::Window(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::Join(_) => condition.is_volatile(),
        _ => false,
    }
}

/// Whether an aggregate of no rows may have a row.
fn may_have_row_of_none(aggregate: &Aggregate) -> bool {
    matches!(
        aggregate.group_expr.as_slice(),
        [] | [Expr::GroupingSet(_), ..]
    )
}
