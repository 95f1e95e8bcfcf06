//! Times of columns beside constants, dates and `now()`, before types are made to agree.
//!
//! DataFusion makes nanoseconds of a column in seconds, milliseconds or microseconds where a constant in nanoseconds or a date stands
//! beside it, and fails for the years that nanoseconds do not hold. Invariants: where columns in coarser units stand beside what is exact
//! in microseconds, that becomes microseconds, so that no row fails for its year and no digit is lost; otherwise all stays as it is, also
//! where one of the columns has nanoseconds. Comparisons with constants alone are left to `time_unit`, which knows an answer for
//! constants between two steps of the column too.
//!
//! Rejected: the unit of the column, where the constant is exact in it. The type would depend on the digits of the constant, and an average
//! of differences in seconds would be cut to whole ones.

use super::dates::sum_of_time;
use super::nodes::{columns_of, has, holds, in_one_node, of_case, of_list, recomputed};
use super::time_unit::{compares, is_constant, is_null, is_open, time, worked_out_ns};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Between, BinaryExpr, ScalarFunction};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    Cast, Expr, ExprSchemable, LogicalPlan, Operator, Projection, Union, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::optimizer::utils::NamePreserver;
use std::sync::Arc;
use thalweg_table::time_units::unit_ns;

/// The unit of what stands beside times in coarser units than nanoseconds.
const UNIT: TimeUnit = TimeUnit::Microsecond;

/// Functions whose arguments are to have one type.
const CALLS: [&str; 6] = [
    "coalesce",
    "greatest",
    "least",
    "make_array",
    "nullif",
    "nvl",
];

/// The rule that enforces the invariant.
#[derive(Debug)]
pub(crate) struct TimesInOneUnit;

impl AnalyzerRule for TimesInOneUnit {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !is_needed(&plan)? || !holds(&plan, is_coarse, &[])? || fixes_types(&plan)? {
            return Ok(plan);
        }
        let done = plan.transform_up_with_subqueries(|node| {
            let done = in_one_node(node, rewritten)?;
            // Also where a column of its input has another type now.
            done.map_data(recomputed)?
                .transform_data(|node| match node {
                    LogicalPlan::Union(union) => united(union),
                    other => Ok(Transformed::no(other)),
                })
        })?;
        Ok(done.data)
    }

    fn name(&self) -> &'static str {
        "thalweg_times_in_one_unit"
    }
}

/// Whether values stand together that are to have one type: short statements have no time for more than this look.
fn is_needed(plan: &LogicalPlan) -> Result<bool> {
    let combines = |expr: &Expr| {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                *op == Operator::Minus
                    || (compares(*op) && !is_constant(left) && !is_constant(right))
            }
            Expr::InList(_) | Expr::Case(_) => true,
            Expr::Between(Between { low, high, .. }) => !is_constant(low) || !is_constant(high),
            Expr::ScalarFunction(call) => CALLS.contains(&call.func.name()),
            _ => false,
        })
    };
    let is_union = |node: &LogicalPlan| matches!(node, LogicalPlan::Union(_));
    has(plan, is_union, combines)
}

/// Whether a plan keeps types of columns apart from the columns, where they would not follow: in references of a subquery to the
/// rows outside, and in the rows of a recursive query. Such a statement stays as it is.
fn fixes_types(plan: &LogicalPlan) -> Result<bool> {
    let is_of_nanoseconds = |data_type: &DataType| {
        matches!(
            data_type,
            DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Duration(TimeUnit::Nanosecond)
        )
    };
    let is_outer = |expr: &Expr| {
        Ok(matches!(expr, Expr::OuterReferenceColumn(field, _)
            if is_of_nanoseconds(field.data_type()) || field.data_type().is_nested()))
    };
    let is_recursive = |node: &LogicalPlan| matches!(node, LogicalPlan::RecursiveQuery(_));
    has(plan, is_recursive, is_outer)
}

fn is_coarse(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(unit, _) if *unit != TimeUnit::Nanosecond)
}

fn rewritten(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if compares(op) && !is_constant(&left) && !is_constant(&right) =>
        {
            of_two(*left, op, *right, schema)
        }
        Expr::Between(between) if !is_constant(&between.low) || !is_constant(&between.high) => {
            of_between(between, schema)
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::Plus | Operator::Minus) =>
        {
            // A time below, which has fewer digits now, may need them for what is added to it.
            if let Some(sum) = sum_of_time(&left, op, &right, schema) {
                return Ok(Transformed::yes(sum));
            }
            if op == Operator::Plus {
                let sum = Expr::BinaryExpr(BinaryExpr { left, op, right });
                return Ok(Transformed::no(sum));
            }
            of_two(*left, op, *right, schema)
        }
        Expr::InList(list) => of_list(list, |values| compared(values, schema)),
        Expr::Case(case) => of_case(
            case,
            |values| compared(values, schema),
            |values| agreeing(values, schema, true),
        ),
        Expr::ScalarFunction(ScalarFunction { func, args }) if CALLS.contains(&func.name()) => {
            // The others read a text in a unit of their own, or do not read it.
            let reads_texts = matches!(func.name(), "greatest" | "least" | "nullif");
            agreeing(args, schema, reads_texts)
                .update_data(|args| Expr::ScalarFunction(ScalarFunction { func, args }))
        }
        other => Transformed::no(other),
    })
}

fn of_two(left: Expr, op: Operator, right: Expr, schema: &DFSchema) -> Transformed<Expr> {
    agreeing(vec![left, right], schema, false).update_data(|sides| {
        let mut sides = sides.into_iter().map(Box::new);
        match (sides.next(), sides.next()) {
            (Some(left), Some(right)) => Expr::BinaryExpr(BinaryExpr { left, op, right }),
            _ => unreachable!("two sides stay two"),
        }
    })
}

fn of_between(between: Between, schema: &DFSchema) -> Transformed<Expr> {
    let Between {
        expr,
        negated,
        low,
        high,
    } = between;
    agreeing(vec![*expr, *low, *high], schema, true).update_data(|values| {
        let mut values = values.into_iter().map(Box::new);
        match (values.next(), values.next(), values.next()) {
            (Some(expr), Some(low), Some(high)) => Expr::Between(Between {
                expr,
                negated,
                low,
                high,
            }),
            _ => unreachable!("three values stay three"),
        }
    })
}

/// Values, and behind them what they are compared with.
fn compared(values: Vec<Expr>, schema: &DFSchema) -> Transformed<Vec<Expr>> {
    let sides = values.split_last();
    match sides.is_some_and(|(_, values)| values.iter().all(is_constant)) {
        true => Transformed::no(values),
        false => agreeing(values, schema, true),
    }
}

/// Values that are to have one type.
fn agreeing(values: Vec<Expr>, schema: &DFSchema, reads_texts: bool) -> Transformed<Vec<Expr>> {
    // What has no type yet is for the rules that come later to refuse.
    let types = values.iter().map(|value| value.get_type(schema).ok());
    let types = types.collect::<Option<Vec<_>>>();
    match types.and_then(|types| in_one_unit(&values, &types, schema, reads_texts)) {
        Some(agreed) => Transformed::yes(agreed),
        None => Transformed::no(values),
    }
}

/// The values without nanoseconds; `None` where they stay as they are.
fn in_one_unit(
    values: &[Expr],
    types: &[DataType],
    schema: &DFSchema,
    reads_texts: bool,
) -> Option<Vec<Expr>> {
    let coarse = types.iter().find(|data_type| is_coarse(data_type))?;
    // DataFusion takes the zone from times beside a date.
    let has_zone = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_, Some(_)));
    if types.contains(&DataType::Date32) && types.iter().any(has_zone) {
        return None;
    }
    let zone = match coarse {
        DataType::Timestamp(_, zone) => zone.as_ref(),
        _ => None,
    };
    let agreed = values.iter().zip(types).map(|(value, data_type)| {
        // A text becomes a time as the column has them.
        let is_text = reads_texts && data_type.is_string() && matches!(value, Expr::Literal(..));
        match is_text {
            true => text_in_unit(value, coarse, schema),
            false => in_unit(value, data_type, zone, schema),
        }
    });
    let agreed = agreed.collect::<Option<Vec<_>>>()?;
    (agreed != values).then_some(agreed)
}

/// The value without nanoseconds; `None` where it may have some, and for what is no time. Instants are shown in the zone of what stands
/// beside them, if that has one.
fn in_unit(
    value: &Expr,
    data_type: &DataType,
    beside: Option<&Arc<str>>,
    schema: &DFSchema,
) -> Option<Expr> {
    let shown_in =
        |zone: &Option<Arc<str>>| { zone.as_ref() }.map(|own| Arc::clone(beside.unwrap_or(own)));
    let cast_to = |zone: Option<Arc<str>>| {
        let to = DataType::Timestamp(UNIT, zone);
        Some(Expr::Cast(Cast::new(Box::new(value.clone()), to)))
    };
    match data_type {
        DataType::Null => Some(value.clone()),
        DataType::Date32 => cast_to(None),
        DataType::Timestamp(TimeUnit::Nanosecond, zone) if is_now(value) => cast_to(shown_in(zone)),
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => known(value, shown_in(zone), schema),
        DataType::Timestamp(..) => Some(value.clone()),
        _ => None,
    }
}

/// The time that a text is beside times of such a type; without an offset it means UTC.
fn text_in_unit(text: &Expr, beside: &DataType, schema: &DFSchema) -> Option<Expr> {
    let DataType::Timestamp(_, zone) = beside else {
        return None;
    };
    let in_utc = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    let read = Expr::Cast(Cast::new(Box::new(text.clone()), in_utc));
    known(&read, zone.clone(), schema)
}

/// A constant without nanoseconds; `None` for what is none, and where it has some.
fn known(value: &Expr, zone: Option<Arc<str>>, schema: &DFSchema) -> Option<Expr> {
    if is_open(value) {
        return None;
    }
    // As it would be computed if it stood alone.
    let simplifier = ExprSimplifier::new(SimplifyContext::default());
    let value = simplifier.coerce(value.clone(), schema).ok()?;
    let meant = value.transform_up(|part| super::rewrite(part, schema));
    let value = meant.ok()?.data;
    if is_null(&value) {
        return Some(lit(time(None, UNIT, zone)));
    }
    let (ns, step_ns) = (worked_out_ns(&value)?, i128::from(unit_ns(UNIT)));
    let step = i64::try_from(ns / step_ns).ok()?;
    (ns % step_ns == 0).then(|| lit(time(Some(step), UNIT, zone)))
}

/// Whether this is `now()`, which has microseconds.
fn is_now(value: &Expr) -> bool {
    match value {
        Expr::ScalarFunction(call) => call.func.name() == "now",
        Expr::Cast(Cast { expr, field }) => {
            matches!(
                field.data_type(),
                DataType::Timestamp(TimeUnit::Nanosecond, _)
            ) && is_now(expr)
        }
        _ => false,
    }
}

/// Queries whose columns become one.
fn united(union: Union) -> Result<Transformed<LogicalPlan>> {
    let mut changes = vec![Vec::new(); union.inputs.len()];
    for place in 0..union.schema.fields().len() {
        let values = union.inputs.iter().map(|input| value_at(input, place));
        let Some((values, types)) = values.collect::<Option<(Vec<_>, Vec<_>)>>() else {
            continue;
        };
        // Constants name no columns.
        let Some(agreed) = in_one_unit(&values, &types, &DFSchema::empty(), false) else {
            continue;
        };
        for (input, (old, new)) in values.iter().zip(agreed).enumerate() {
            if *old != new {
                changes[input].push((place, new));
            }
        }
    }
    if changes.iter().all(Vec::is_empty) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let inputs = union.inputs.into_iter().zip(changes);
    let inputs = inputs.map(|(input, changes)| with_values(input, changes));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let united = Union::try_new_with_loose_types(inputs)?;
    Ok(Transformed::yes(LogicalPlan::Union(united)))
}

/// The expression of one output column of a query, and its type.
fn value_at(query: &LogicalPlan, place: usize) -> Option<(Expr, DataType)> {
    let data_type = query.schema().fields().get(place)?.data_type().clone();
    let value = match query {
        LogicalPlan::Projection(projection) => projection.expr.get(place)?.clone().unalias(),
        other => columns_of(other).into_iter().nth(place)?,
    };
    Some((value, data_type))
}

/// The query with other values in some of its columns.
fn with_values(query: Arc<LogicalPlan>, changes: Vec<(usize, Expr)>) -> Result<Arc<LogicalPlan>> {
    if changes.is_empty() {
        return Ok(query);
    }
    let (mut values, below) = match Arc::unwrap_or_clone(query) {
        LogicalPlan::Projection(projection) => (projection.expr, projection.input),
        other => (columns_of(&other), Arc::new(other)),
    };
    let names = NamePreserver::new_for_projection();
    for (place, value) in changes {
        let name = names.save(&values[place]);
        values[place] = name.restore(value);
    }
    let query = Projection::try_new(values, below)?;
    Ok(Arc::new(LogicalPlan::Projection(query)))
}
