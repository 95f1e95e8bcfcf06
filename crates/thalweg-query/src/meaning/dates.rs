//! Dates with intervals, and lengths of lists, before types are made to agree.
//!
//! Invariants: a time in a coarse unit plus or minus a written interval with a fraction of it is one in nanoseconds: DataFusion drops the
//! fraction; a date plus or minus an interval is a time, as in PostgreSQL and DuckDB: DataFusion adds to the date and drops the hours;
//! a series of dates with an interval as its step is one of times, as there: DataFusion refuses steps of hours.

use super::nodes::in_all_nodes;
use crate::pushdown::time::unit_ns;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions_nested::expr_fn::array_length;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

/// The rule that sees to it.
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

/// Whether a written interval is no whole number of the steps of a type of times.
fn is_finer(interval: &Expr, than: &DataType) -> bool {
    match (interval, than) {
        (
            Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(by)), _),
            DataType::Timestamp(unit, _),
        ) => by.nanoseconds % unit_ns(*unit) != 0,
        _ => false,
    }
}

fn in_nanoseconds(times: &Expr, data_type: &DataType) -> Expr {
    let zone = match data_type {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    };
    let to = DataType::Timestamp(TimeUnit::Nanosecond, zone);
    Expr::Cast(Cast::new(Box::new(times.clone()), to))
}

fn time(date: &Expr) -> Expr {
    let to = DataType::Timestamp(TimeUnit::Nanosecond, None);
    Expr::Cast(Cast::new(Box::new(date.clone()), to))
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
        *arg = time(arg);
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
    if !matches!(op, Operator::Plus | Operator::Minus) {
        return Ok(Transformed::no(expr));
    }
    // What has no type yet is for the rules that come later to refuse.
    let (Ok(left_type), Ok(right_type)) = (left.get_type(schema), right.get_type(schema)) else {
        return Ok(Transformed::no(expr));
    };
    let (left, right) = if is_date(&left_type) && is_interval(&right_type) {
        (Box::new(time(left)), right.clone())
    } else if *op == Operator::Plus && is_interval(&left_type) && is_date(&right_type) {
        (left.clone(), Box::new(time(right)))
    } else if is_finer(right, &left_type) {
        (Box::new(in_nanoseconds(left, &left_type)), right.clone())
    } else if *op == Operator::Plus && is_finer(left, &right_type) {
        (left.clone(), Box::new(in_nanoseconds(right, &right_type)))
    } else {
        return Ok(Transformed::no(expr));
    };
    let op = *op;
    Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr {
        left,
        op,
        right,
    })))
}
