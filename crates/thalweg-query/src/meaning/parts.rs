//! Parts of differences of times, which are those of intervals in days and a time of day, as in PostgreSQL and DuckDB.
//!
//! DataFusion counts the whole difference in each part, and drops the fraction of its seconds, that of longer intervals too.

use crate::functions::day_intervals::{in_days, seconds_in};
use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, ExprSchemable};

/// The call of `date_part` that `expr` is, on an interval where it is on a duration; with all digits of the seconds.
pub(super) fn of_durations(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::ScalarFunction(mut call) = expr else {
        return Transformed::no(expr);
    };
    let [unit, of] = &mut call.args[..] else {
        return Transformed::no(Expr::ScalarFunction(call));
    };
    let data_type = of.get_type(schema);
    let is_duration = matches!(data_type, Ok(DataType::Duration(_)));
    let is_interval = matches!(
        data_type,
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    );
    if call.func.name() != "date_part" || !(is_duration || is_interval) {
        return Transformed::no(Expr::ScalarFunction(call));
    }
    let mut interval = std::mem::take(of);
    if is_duration {
        interval = in_days(interval);
    }
    if let Some(step_ns) = step_of_seconds(unit) {
        return Transformed::yes(seconds_in(interval, step_ns));
    }
    *of = interval;
    Transformed::new_transformed(Expr::ScalarFunction(call), is_duration)
}

/// The nanoseconds of a unit in which the seconds are counted with their fraction.
fn step_of_seconds(unit: &Expr) -> Option<i64> {
    let Expr::Literal(unit, _) = unit else {
        return None;
    };
    let unit = unit.try_as_str().flatten()?.to_lowercase();
    Some(match unit.as_str() {
        "millisecond" | "milliseconds" | "ms" => 1_000_000,
        "microsecond" | "microseconds" | "us" => 1_000,
        _ => return None,
    })
}
