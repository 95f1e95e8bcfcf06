//! `date_diff` and `date_sub` with a unit.
//!
//! Invariant: `date_diff` counts the boundaries of a unit between two times, `date_sub` the whole units, as DuckDB does.

use super::calls::text_of;
use super::templates::filled;
use crate::error::query;
use datafusion_sql::sqlparser::ast::Expr;
use thalweg_table::Result;
use thalweg_table::time_units::{DAY_NS, SECOND_NS};

/// Units whose difference is a number of steps of that many nanoseconds.
const STEPS: &[(&str, i64)] = &[
    ("day", DAY_NS),
    ("hour", 3_600_000_000_000),
    ("minute", 60_000_000_000),
    ("second", SECOND_NS),
    ("millisecond", 1_000_000),
    ("microsecond", 1_000),
];

/// How many boundaries of a unit lie between two times.
pub(super) fn date_diff(unit: &Expr, from: &Expr, to: &Expr) -> Result<Expr> {
    let written = match unit {
        Expr::Identifier(name) => Some(name.value.clone()),
        unit => text_of(unit),
    };
    let Some(written) = written else {
        return Err(query(
            "date_diff takes a constant unit, as in date_diff('day', a, b)",
        ));
    };
    let lower = written.to_ascii_lowercase();
    let unit = lower.strip_suffix('s').unwrap_or(&lower);
    let years = "(date_part('year', a2) - date_part('year', a1))";
    match unit {
        "year" => return filled(years, &[from, to]),
        "quarter" | "month" => {
            let count = if unit == "month" { 12 } else { 4 };
            let template =
                format!("{years} * {count} + (date_part('{unit}', a2) - date_part('{unit}', a1))");
            return filled(&template, &[from, to]);
        }
        _ => {}
    }
    // Whole weeks between two days, as DuckDB counts them.
    let (boundary, weeks) = match unit {
        "week" => ("day", 7),
        unit => (unit, 1),
    };
    let Some((unit, step_ns)) = STEPS.iter().find(|(name, _)| *name == boundary) else {
        return Err(query(format!(
            "\"{written}\" is no unit of date_diff: write year, quarter, month, week, day, hour, minute or second"
        )));
    };
    if *unit == "day" {
        // Dates of each time's own clock: its midnights are no whole days apart where the clock was changed between them.
        let days = |place: &str| {
            format!(
                "arrow_cast(arrow_cast(CAST(date_trunc('day', {place}) AS DATE), 'Int32'), 'Int64')"
            )
        };
        let template = format!("({} - {}) / {weeks}", days("a2"), days("a1"));
        return filled(&template, &[from, to]);
    }
    // No unit is finer, and microseconds reach further than nanoseconds.
    let step_us = step_ns / 1_000;
    let us = |place: &str| {
        format!(
            "arrow_cast(arrow_cast(date_trunc('{unit}', {place}), 'Timestamp(Microsecond, None)'), 'Int64')"
        )
    };
    let template = format!("({} - {}) / {step_us}", us("a2"), us("a1"));
    filled(&template, &[from, to])
}

/// How many whole units lie between two times.
pub(super) fn date_sub(unit: &Expr, from: &Expr, to: &Expr) -> Result<Expr> {
    let written = text_of(unit).unwrap_or_else(|| unit.to_string());
    let lower = written.to_ascii_lowercase();
    let unit = lower.strip_suffix('s').unwrap_or(&lower);
    let (unit, weeks) = match unit {
        "week" => ("day", 7),
        unit => (unit, 1),
    };
    let Some((_, step_ns)) = STEPS.iter().find(|(name, _)| *name == unit) else {
        return Err(query(format!(
            "\"{written}\" is no unit of date_sub: write week, day, hour, minute or second"
        )));
    };
    let template = format!("whole_units(a1, a2, {})", step_ns * weeks);
    filled(&template, &[from, to])
}
