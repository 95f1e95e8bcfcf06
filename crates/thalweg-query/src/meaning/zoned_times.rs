//! Times with a zone whose clock changes: sums with intervals, truncation and RANGE frames.
//!
//! DataFusion and Arrow fail, end the frame or make two groups of one day where the clock of the zone shows a time twice or not at all.
//! Invariants: sums and beginnings of days and longer go by the clock, as `AT TIME ZONE` and `time_bucket` read it; in RANGE frames
//! a day has 24 hours and a month is one of UTC, so that frames depend on the rows in them alone.

use super::naive_time::is_utc;
use crate::functions::{clock_steps, time_zones};
use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, Operator, WindowFrame, WindowFrameBound, WindowFrameUnits,
    cast, lit,
};
use datafusion::optimizer::utils::NamePreserver;
use std::sync::Arc;

/// Sums with intervals, and `date_trunc` to days and longer.
pub(super) fn on_clock(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::Plus | Operator::Minus) =>
        {
            // The right side first: chains are deep on the left.
            let right_type = right.get_type(schema);
            let (is_interval, is_zoned) = match &right_type {
                Ok(DataType::Interval(_)) => (true, false),
                Ok(other) => (false, op == Operator::Plus && has_clock(other)),
                Err(_) => (false, false),
            };
            if is_interval && left.get_type(schema).is_ok_and(|t| has_clock(&t)) {
                return Transformed::yes(sum(*left, *right, op == Operator::Minus));
            }
            let is_left_interval = || matches!(left.get_type(schema), Ok(DataType::Interval(_)));
            if is_zoned && is_left_interval() {
                return Transformed::yes(sum(*right, *left, false));
            }
            Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))
        }
        Expr::ScalarFunction(mut call) if call.func.name() == "date_trunc" => {
            let [part, time] = &mut call.args[..] else {
                return Transformed::no(Expr::ScalarFunction(call));
            };
            let zoned = match time.get_type(schema) {
                Ok(data_type @ DataType::Timestamp(_, Some(_))) if has_clock(&data_type) => {
                    data_type
                }
                _ => return Transformed::no(Expr::ScalarFunction(call)),
            };
            let DataType::Timestamp(_, Some(zone)) = &zoned else {
                return Transformed::no(Expr::ScalarFunction(call));
            };
            if !is_of_days(part) {
                return Transformed::no(Expr::ScalarFunction(call));
            }
            let zone = lit(zone.to_string());
            let [at_time_zone, first_instant, _] = time_zones::functions();
            *time = at_time_zone.call(vec![std::mem::take(time), zone.clone()]);
            let first = first_instant.call(vec![Expr::ScalarFunction(call), zone]);
            Transformed::yes(cast(first, zoned))
        }
        other => Transformed::no(other),
    }
}

fn sum(time: Expr, interval: Expr, is_back: bool) -> Expr {
    let interval = cast(interval, DataType::Interval(IntervalUnit::MonthDayNano));
    clock_steps::moved(time, interval, is_back)
}

/// Whether values of this type have a zone whose clock may change.
fn has_clock(data_type: &DataType) -> bool {
    let DataType::Timestamp(_, Some(zone)) = data_type else {
        return false;
    };
    !is_utc(zone) && !zone.starts_with(['+', '-'])
}

/// Whether `date_trunc` goes by days or longer; shorter parts are as long everywhere.
fn is_of_days(part: &Expr) -> bool {
    let Expr::Literal(
        ScalarValue::Utf8(Some(part))
        | ScalarValue::Utf8View(Some(part))
        | ScalarValue::LargeUtf8(Some(part)),
        _,
    ) = part
    else {
        return false;
    };
    let parts = ["day", "week", "month", "quarter", "year"];
    parts.iter().any(|known| part.eq_ignore_ascii_case(known))
}

/// RANGE frames of days and months over such times.
pub(super) fn in_frames(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !matches!(plan, LogicalPlan::Window(_)) {
        return Ok(Transformed::no(plan));
    }
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let done = expr.transform_up(|expr| Ok(by_utc(expr, &schema)))?;
        Ok(done.update_data(|expr| name.restore(expr)))
    })
}

fn by_utc(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::WindowFunction(mut call) = expr else {
        return Transformed::no(expr);
    };
    let is_calendar = has_calendar_bounds(&call.params.window_frame);
    let mut changed = false;
    if is_calendar && let [key] = &mut call.params.order_by[..] {
        let data_type = key.expr.get_type(schema);
        if let Ok(DataType::Timestamp(unit, Some(zone))) = data_type
            && has_clock(&DataType::Timestamp(unit, Some(Arc::clone(&zone))))
        {
            let utc = DataType::Timestamp(unit, Some("+00:00".into()));
            key.expr = cast(std::mem::take(&mut key.expr), utc);
            changed = true;
        }
    }
    Transformed::new_transformed(Expr::WindowFunction(call), changed)
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
