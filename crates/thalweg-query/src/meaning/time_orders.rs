//! Aggregates that depend on the order of rows and have no ORDER BY: `first(v)`, `list(v)`, `string_agg(s, ',')`.
//!
//! Invariant: over one stored table they see the rows in order of time, with any number of threads. `first` and `last` get an
//! ORDER BY, which costs them little. For lists and texts that would take 15 and 100 times as long, because each value is kept
//! with its time; so the table is scanned in one partition, which is in order of time. Over anything else, such as a join, the
//! order is not defined.

use crate::table::StoredTable;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::optimizer::utils::NamePreserver;

/// Whether the order of its rows decides the value of an aggregate.
pub(crate) fn goes_by_order(call: &AggregateFunction) -> bool {
    matches!(
        call.func.name(),
        "first_value" | "last_value" | "nth_value" | "array_agg" | "string_agg"
    )
}

fn lacks_order(call: &AggregateFunction) -> bool {
    goes_by_order(call) && call.params.order_by.is_empty() && !call.params.distinct
}

/// Whether an aggregation needs its rows in order of time.
pub(crate) fn wants_rows_in_time(aggregate: &Aggregate) -> bool {
    let lacks =
        |expr: &Expr| Ok(matches!(expr, Expr::AggregateFunction(call) if lacks_order(call)));
    // The closure cannot fail.
    let mut exprs = aggregate.aggr_expr.iter();
    exprs.any(|expr| expr.exists(lacks).unwrap_or_default()) && has_time(&aggregate.input)
}

/// Whether the rows of a plan come from one table, and it has a time column.
fn has_time(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => {
            StoredTable::of(scan).is_some_and(|table| table.definition().order_column().is_some())
        }
        LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Projection(_) => {
            plan.inputs().into_iter().all(has_time)
        }
        _ => false,
    }
}

/// Gives the aggregates of a node an ORDER BY of the time column, if that costs them little or rows are sorted for others anyway.
pub(super) fn by_time(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = &plan else {
        return Ok(Transformed::no(plan));
    };
    let (mut lacks, mut are_sorted, mut is_fixed) = (false, false, false);
    for expr in &aggregate.aggr_expr {
        expr.exists(|expr| {
            if let Expr::AggregateFunction(call) = expr {
                let has_order = !call.params.order_by.is_empty();
                lacks |= lacks_order(call);
                are_sorted |= has_order && !sorts_itself(call);
                is_fixed |= has_order && needs_sorted_rows(call);
            }
            Ok(false)
        })?;
    }
    if !lacks {
        return Ok(Transformed::no(plan));
    }
    let Some(time) = time_of(&aggregate.input) else {
        return Ok(Transformed::no(plan));
    };
    let gets_order = |call: &AggregateFunction| {
        // Rows are sorted in one way for all aggregates that need them sorted.
        let can_be_sorted = are_sorted && !(is_fixed && needs_sorted_rows(call));
        lacks_order(call) && (sorts_itself(call) || can_be_sorted)
    };
    let order = Expr::Column(time).sort(true, false);
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let ordered = expr.transform_up(|expr| {
            Ok(match expr {
                Expr::AggregateFunction(mut call) if gets_order(&call) => {
                    call.params.order_by.push(order.clone());
                    Transformed::yes(Expr::AggregateFunction(call))
                }
                expr => Transformed::no(expr),
            })
        })?;
        Ok(ordered.update_data(|expr| name.restore(expr)))
    })
}

/// Whether an aggregate applies its ORDER BY itself, as `first` and `last` do, so that its input need not be sorted.
fn sorts_itself(call: &AggregateFunction) -> bool {
    let sensitivity = call.func.order_sensitivity();
    matches!(sensitivity, AggregateOrderSensitivity::Beneficial)
}

fn needs_sorted_rows(call: &AggregateFunction) -> bool {
    call.func.order_sensitivity().hard_requires()
}

/// The time column of the only table under a plan, by its name in the plan.
fn time_of(plan: &LogicalPlan) -> Option<Column> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let table = StoredTable::of(scan)?;
            let time = &table.definition().order_column()?.name;
            let column = Column::new(Some(scan.table_name.clone()), time);
            plan.schema().has_column(&column).then_some(column)
        }
        LogicalPlan::Filter(filter) => time_of(&filter.input),
        LogicalPlan::SubqueryAlias(alias) => {
            let place = place_of(&time_of(&alias.input)?, &alias.input)?;
            Some(alias.schema.qualified_field(place).into())
        }
        LogicalPlan::Projection(projection) => {
            let time = time_of(&projection.input)?;
            let is_time = |expr: &Expr| {
                let of = match expr {
                    Expr::Alias(alias) => &*alias.expr,
                    expr => expr,
                };
                matches!(of, Expr::Column(column) if *column == time)
            };
            let place = projection.expr.iter().position(is_time)?;
            Some(projection.schema.qualified_field(place).into())
        }
        _ => None,
    }
}

fn place_of(column: &Column, plan: &LogicalPlan) -> Option<usize> {
    plan.schema().maybe_index_of_column(column)
}
