//! Floats that rows are sorted, partitioned and told apart by, and computed ones that are compared.
//!
//! DataFusion does so by their bits, in which -0.0 lies below 0.0, and the negative NaN that 0.0 / 0.0 gives on some machines below all
//! numbers. Invariants: values that `=` takes for the same are the same there, and every NaN is larger than all numbers; what a
//! statement gives out keeps its bits, but for `nullif` and for computed floats in `greatest`, `least`, groups and DISTINCT.
//! Rejected: to change what every arithmetic operator gives, which sums and products of whole columns would pay for.

use crate::functions::plain_floats::{is_plain, plain};
use crate::meaning::time_unit::compares;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Between, BinaryExpr};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, LogicalPlan, Operator, cast};
use datafusion::optimizer::utils::NamePreserver;
use std::sync::Arc;

/// The node with such floats where it sorts, partitions or counts what is distinct.
pub(super) fn in_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let is_needed = match &plan {
        LogicalPlan::Sort(_) | LogicalPlan::Window(_) => true,
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.aggr_expr.iter().any(has_keys) || aggregate.group_expr.iter().any(computes)
        }
        LogicalPlan::Join(join) => join
            .on
            .iter()
            .any(|(left, right)| computes(left) || computes(right)),
        LogicalPlan::Distinct(Distinct::All(input)) => return distinct(input),
        _ => false,
    };
    if !is_needed {
        return Ok(Transformed::no(plan));
    }
    let schema = merge_schema(&plan.inputs());
    let is_sort = matches!(plan, LogicalPlan::Sort(_));
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        if is_sort {
            return settled(expr, &schema);
        }
        let name = names.save(&expr);
        let done = match expr.exists(|expr| {
            Ok(matches!(
                expr,
                Expr::AggregateFunction(_) | Expr::WindowFunction(_)
            ))
        })? {
            true => expr.transform_down(|expr| in_call(expr, &schema))?,
            false => settled_if_computed(expr, &schema)?,
        };
        Ok(done.update_data(|expr| name.restore(expr)))
    })
}

fn has_keys(expr: &Expr) -> bool {
    let found = expr.exists(|expr| {
        Ok(match expr {
            Expr::AggregateFunction(call) => {
                call.params.distinct
                    || !call.params.order_by.is_empty()
                    || call.func.name() == "approx_distinct"
            }
            _ => false,
        })
    });
    found.unwrap_or(true)
}

/// A window or an aggregate with such floats among its keys.
fn in_call(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut changed = false;
    let mut settle = |key: &mut Expr| -> Result<()> {
        let done = settled(std::mem::take(key), schema)?;
        changed |= done.transformed;
        *key = done.data;
        Ok(())
    };
    let expr = match expr {
        Expr::WindowFunction(mut call) => {
            let sorts = call.params.order_by.iter_mut().map(|sort| &mut sort.expr);
            let mut keys = call.params.partition_by.iter_mut().chain(sorts);
            keys.try_for_each(&mut settle)?;
            if call.params.distinct && call.fun.name() == "count" {
                call.params.args.iter_mut().try_for_each(&mut settle)?;
            }
            Expr::WindowFunction(call)
        }
        Expr::AggregateFunction(mut call) => {
            if call.func.name() == "approx_distinct" {
                for argument in &mut call.params.args {
                    settle(argument)?;
                    // It takes no floats.
                    if argument.get_type(schema).is_ok_and(|t| t.is_floating()) {
                        *argument = cast(std::mem::take(argument), DataType::Utf8);
                    }
                }
            } else if !call.params.distinct {
                let mut sorts = call.params.order_by.iter_mut().map(|sort| &mut sort.expr);
                sorts.try_for_each(&mut settle)?;
            } else if call.func.name() == "count" {
                call.params.args.iter_mut().try_for_each(&mut settle)?;
            }
            // Others with DISTINCT give their arguments out, and are sorted by nothing else.
            Expr::AggregateFunction(call)
        }
        other => return Ok(Transformed::no(other)),
    };
    Ok(Transformed::new(expr, changed, TreeNodeRecursion::Jump))
}

/// Comparisons of computed floats, and functions that compare.
pub(super) fn compared(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(mut binary) if compares(binary.op) => {
            let changed = settle_computed([&mut *binary.left, &mut *binary.right], schema)?;
            Ok(Transformed::new_transformed(
                Expr::BinaryExpr(binary),
                changed,
            ))
        }
        Expr::InSubquery(mut query) => {
            let changed = settle_computed([&mut *query.expr], schema)?;
            Ok(Transformed::new_transformed(
                Expr::InSubquery(query),
                changed,
            ))
        }
        Expr::InList(mut list) => {
            let values = std::iter::once(&mut *list.expr).chain(&mut list.list);
            let changed = settle_computed(values, schema)?;
            Ok(Transformed::new_transformed(Expr::InList(list), changed))
        }
        Expr::Between(mut between) => {
            let Between {
                expr, low, high, ..
            } = &mut between;
            let changed = settle_computed([&mut **expr, low, high], schema)?;
            Ok(Transformed::new_transformed(
                Expr::Between(between),
                changed,
            ))
        }
        Expr::Case(mut case) if case.expr.is_some() => {
            let values = case.when_then_expr.iter_mut().map(|(when, _)| &mut **when);
            let values = case.expr.iter_mut().map(|value| &mut **value).chain(values);
            let changed = settle_computed(values, schema)?;
            Ok(Transformed::new_transformed(Expr::Case(case), changed))
        }
        Expr::ScalarFunction(mut call)
            if matches!(call.func.name(), "nullif" | "greatest" | "least") =>
        {
            let mut changed = false;
            for argument in &mut call.args {
                let value = std::mem::take(argument);
                let done = match call.func.name() {
                    "nullif" => settled(value, schema)?,
                    _ => settled_if_computed(value, schema)?,
                };
                changed |= done.transformed;
                *argument = done.data;
            }
            Ok(Transformed::new_transformed(
                Expr::ScalarFunction(call),
                changed,
            ))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Settles those of some values that are computed; returns whether one was.
fn settle_computed<'a>(
    values: impl IntoIterator<Item = &'a mut Expr>,
    schema: &DFSchema,
) -> Result<bool> {
    let mut changed = false;
    for value in values {
        let done = settled_if_computed(std::mem::take(value), schema)?;
        changed |= done.transformed;
        *value = done.data;
    }
    Ok(changed)
}

/// Settles an expression that computes. Columns are taken as they are: what is stored is compared quickly.
fn settled_if_computed(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match computes(&expr) {
        true => settled(expr, schema),
        false => Ok(Transformed::no(expr)),
    }
}

/// Whether an expression may make a NaN of other numbers, or change the sign of one.
pub(super) fn computes(expr: &Expr) -> bool {
    let found = expr.exists(|expr| {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { op, .. }) => matches!(
                op,
                Operator::Plus
                    | Operator::Minus
                    | Operator::Multiply
                    | Operator::Divide
                    | Operator::Modulo
            ),
            Expr::ScalarFunction(_) | Expr::Negative(_) => true,
            _ => false,
        })
    });
    found.unwrap_or(true)
}

/// DISTINCT of computed floats.
fn distinct(input: &Arc<LogicalPlan>) -> Result<Transformed<LogicalPlan>> {
    let same = || LogicalPlan::Distinct(Distinct::All(Arc::clone(input)));
    if !matches!(&**input, LogicalPlan::Projection(projection) if projection.expr.iter().any(computes))
    {
        return Ok(Transformed::no(same()));
    }
    let projection = LogicalPlan::clone(input);
    let schema = merge_schema(&projection.inputs());
    let names = NamePreserver::new(&projection);
    let done = projection.map_expressions(|expr| {
        let name = names.save(&expr);
        let done = expr.unalias_nested();
        let done = settled_if_computed(done.data, &schema)?;
        Ok(done.update_data(|expr| name.restore(expr)))
    })?;
    Ok(done.update_data(|input| LogicalPlan::Distinct(Distinct::All(Arc::new(input)))))
}

fn settled(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_float = || {
        let data_type = expr.get_type(schema);
        matches!(data_type, Ok(DataType::Float32 | DataType::Float64))
    };
    if matches!(expr, Expr::Literal(..) | Expr::Placeholder(_)) || is_plain(&expr) || !is_float() {
        return Ok(Transformed::no(expr));
    }
    Ok(Transformed::yes(plain(expr)))
}
