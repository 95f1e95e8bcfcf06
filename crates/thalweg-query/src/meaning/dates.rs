//! Dates with intervals, and lengths of lists, before types are made to agree.
//!
//! Invariants: a time in a coarse unit plus or minus a length is one in a unit that holds the sum: DataFusion drops the fraction. It is
//! nanoseconds for a written interval with a fraction of the unit, microseconds for one that is computed, and the unit of a
//! duration; a date plus or minus an interval or a duration is a time, as in PostgreSQL and DuckDB: DataFusion adds to the date and
//! drops the hours; NULL that is added to a time or taken from it is a length, and NULL before a length, or before a time that is
//! taken from it, a time; a series of dates with an interval as its step is one of times, as there: DataFusion refuses steps of
//! hours.

use super::nodes::in_all_nodes;
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions_nested::expr_fn::array_length;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;
use thalweg_table::time_units::unit_ns;

/// The type of a date plus an interval.
const TIME: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);
const LENGTH: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// The rule that enforces the invariant.
#[derive(Debug)]
pub(crate) struct DatesAsTimes;

impl AnalyzerRule for DatesAsTimes {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !is_needed(&plan)? {
            return Ok(plan);
        }
        in_all_nodes(plan, as_time)
    }

    fn name(&self) -> &'static str {
        "thalweg_dates_as_times"
    }
}

/// Whether anything is added or subtracted, or a series or a length taken: short statements have no time for more than this look.
fn is_needed(plan: &LogicalPlan) -> Result<bool> {
    let is_sum = |expr: &Expr| {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { op, .. }) => {
                matches!(op, Operator::Plus | Operator::Minus)
            }
            expr => is_series(expr) || is_length(expr),
        })
    };
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(is_sum)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

fn is_series(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call)
        if call.args.len() == 3 && matches!(call.func.name(), "generate_series" | "range"))
}

fn is_length(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call)
        if call.args.len() == 1 && call.func.name() == "character_length")
}

/// The number of items, where `len` and `length` take a list: DataFusion would count the characters of its text.
fn length(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::ScalarFunction(mut call) = expr else {
        return Transformed::no(expr);
    };
    let of = call.args[0].get_type(schema);
    if !matches!(
        of,
        Ok(DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
    ) {
        return Transformed::no(Expr::ScalarFunction(call));
    }
    Transformed::yes(array_length(std::mem::take(&mut call.args[0])))
}

fn is_date(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Date64)
}

fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_))
}

/// The unit that times of `unit` need for a length to be added to them, if it is a finer one. An interval that is not written is one
/// in microseconds at most: nanoseconds reach from 1677 to 2262 only.
fn finer_unit(length: &Expr, length_type: &DataType, unit: TimeUnit) -> Option<TimeUnit> {
    let wanted = match (length, length_type) {
        (Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(by)), _), _) => {
            match by.nanoseconds % unit_ns(unit) {
                0 => unit,
                _ => TimeUnit::Nanosecond,
            }
        }
        (Expr::Literal(..), DataType::Interval(_)) => unit,
        (_, DataType::Interval(_)) => TimeUnit::Microsecond,
        (_, DataType::Duration(of_length)) => *of_length,
        _ => unit,
    };
    (wanted > unit).then_some(wanted)
}

/// The type of times to which a length can be added, where it is not theirs.
fn finer_times(times: &DataType, length: &Expr, by: &DataType) -> Option<DataType> {
    match (times, by) {
        (DataType::Timestamp(unit, zone), _) => {
            let unit = finer_unit(length, by, *unit)?;
            Some(DataType::Timestamp(unit, zone.clone()))
        }
        (date, DataType::Interval(_)) if is_date(date) => Some(TIME),
        (date, DataType::Duration(unit)) if is_date(date) => Some(DataType::Timestamp(*unit, None)),
        _ => None,
    }
}

fn is_instant(data_type: &DataType) -> bool {
    is_date(data_type) || matches!(data_type, DataType::Timestamp(..))
}

/// The type of NULL before a length, or before a time that is taken from it: a time.
fn null_time(beside: &DataType) -> Option<DataType> {
    match beside {
        beside if is_instant(beside) => Some(beside.clone()),
        DataType::Interval(_) | DataType::Duration(_) => {
            Some(DataType::Timestamp(TimeUnit::Microsecond, None))
        }
        _ => None,
    }
}

/// A series of dates as one of times.
fn series(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::ScalarFunction(mut call) = expr else {
        return Transformed::no(expr);
    };
    let types: Vec<_> = call.args.iter().map(|arg| arg.get_type(schema)).collect();
    let [Ok(from), Ok(to), Ok(step)] = types.as_slice() else {
        return Transformed::no(Expr::ScalarFunction(call));
    };
    if !is_interval(step) || !(is_date(from) || is_date(to)) {
        return Transformed::no(Expr::ScalarFunction(call));
    }
    for arg in &mut call.args[..2] {
        *arg = as_type(arg, TIME);
    }
    Transformed::yes(Expr::ScalarFunction(call))
}

fn as_time(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if is_series(&expr) {
        return Ok(series(expr, schema));
    }
    if is_length(&expr) {
        return Ok(length(expr, schema));
    }
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let sum = sum_of_time(left, *op, right, schema);
    Ok(sum.map_or_else(|| Transformed::no(expr), Transformed::yes))
}

/// A time plus or minus a length, in a type that holds it; `None` where it is that already.
pub(crate) fn sum_of_time(
    left: &Expr,
    op: Operator,
    right: &Expr,
    schema: &DFSchema,
) -> Option<Expr> {
    if !matches!(op, Operator::Plus | Operator::Minus) {
        return None;
    }
    // What has no type yet is for the rules that come later to refuse.
    let (left_type, right_type) = (left.get_type(schema).ok()?, right.get_type(schema).ok()?);
    let is_plus = op == Operator::Plus;
    // NULL that is added to a time, or taken from it, is a length.
    let (new_left, new_right) = match (&left_type, &right_type) {
        (DataType::Null, time) if is_plus && is_instant(time) => (Some(LENGTH), None),
        (DataType::Null, beside) => (null_time(beside), None),
        (time, DataType::Null) => (None, is_instant(time).then_some(LENGTH)),
        (times, by) if is_instant(times) => (finer_times(times, right, by), None),
        (by, times) if is_plus && is_instant(times) => (None, finer_times(times, left, by)),
        _ => (None, None),
    };
    if new_left.is_none() && new_right.is_none() {
        return None;
    }
    let in_type = |side: &Expr, to: Option<DataType>| match to {
        Some(to) => as_type(side, to),
        None => side.clone(),
    };
    Some(Expr::BinaryExpr(BinaryExpr {
        left: Box::new(in_type(left, new_left)),
        op,
        right: Box::new(in_type(right, new_right)),
    }))
}

fn as_type(expr: &Expr, to: DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr.clone()), to))
}
