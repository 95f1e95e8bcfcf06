//! Times with a zone whose clock changes: sums with intervals and RANGE frames.
//!
//! DataFusion and Arrow fail or end the frame where the clock of the zone shows a time twice or not at all.
//! Invariants: sums go by the clock, as `AT TIME ZONE` and `time_bucket` read it; in RANGE frames a day has 24 hours and a month is
//! one of UTC, so that frames depend on the rows in them alone.

use super::nodes::in_one_node;
use crate::functions::clock_steps;
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, Operator, WindowFrame, WindowFrameBound, WindowFrameUnits,
    cast,
};
use std::sync::Arc;
use thalweg_table::time_units::is_utc;

/// Sums with intervals.
pub(super) fn on_clock(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::Plus | Operator::Minus) =>
        {
            let is_interval =
                |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Interval(_)));
            // The right side first: chains are deep on the left.
            if is_interval(&right) && zone_of(&left, schema).is_some() {
                return Transformed::yes(sum(*left, *right, op == Operator::Minus));
            }
            if op == Operator::Plus && zone_of(&right, schema).is_some() && is_interval(&left) {
                return Transformed::yes(sum(*right, *left, false));
            }
            Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))
        }
        other => Transformed::no(other),
    }
}

fn sum(time: Expr, interval: Expr, is_back: bool) -> Expr {
    let interval = cast(interval, DataType::Interval(IntervalUnit::MonthDayNano));
    clock_steps::moved(time, interval, is_back)
}

/// The unit and the zone of a time whose clock may change.
fn zone_of(expr: &Expr, schema: &DFSchema) -> Option<(TimeUnit, Arc<str>)> {
    let Ok(DataType::Timestamp(unit, Some(zone))) = expr.get_type(schema) else {
        return None;
    };
    let is_fixed = is_utc(&zone) || zone.starts_with(['+', '-']);
    (!is_fixed).then_some((unit, zone))
}

/// RANGE frames of days and months over such times.
pub(super) fn in_frames(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !matches!(plan, LogicalPlan::Window(_)) {
        return Ok(Transformed::no(plan));
    }
    in_one_node(plan, |expr, schema| Ok(by_utc(expr, schema)))
}

fn by_utc(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::WindowFunction(mut call) = expr else {
        return Transformed::no(expr);
    };
    if has_calendar_bounds(&call.params.window_frame)
        && let [key] = &mut call.params.order_by[..]
        && let Some((unit, _)) = zone_of(&key.expr, schema)
    {
        let utc = DataType::Timestamp(unit, Some("+00:00".into()));
        key.expr = cast(std::mem::take(&mut key.expr), utc);
        return Transformed::yes(Expr::WindowFunction(call));
    }
    Transformed::no(Expr::WindowFunction(call))
}

fn has_calendar_bounds(frame: &WindowFrame) -> bool {
    let is_calendar = |bound: &WindowFrameBound| {
        let (WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by)) = bound else {
            return false;
        };
        match by {
            ScalarValue::IntervalMonthDayNano(Some(by)) => by.months != 0 || by.days != 0,
            ScalarValue::IntervalDayTime(Some(by)) => by.days != 0,
            ScalarValue::IntervalYearMonth(Some(_)) => true,
            _ => false,
        }
    };
    frame.units == WindowFrameUnits::Range
        && (is_calendar(&frame.start_bound) || is_calendar(&frame.end_bound))
}
