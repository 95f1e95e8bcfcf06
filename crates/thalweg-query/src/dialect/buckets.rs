//! `time_bucket` of DuckDB and TimescaleDB, in terms of `date_bin`.
//!
//! Invariants: buckets are counted from 2000-01-03, a Monday, and those of months from 2000-01-01, as both have it; with a
//! zone they are those of its local clock, as instants.

use super::calls::{text, text_of};
use super::templates::filled;
use crate::functions::time_texts::interval_in_units;
use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use arrow::datatypes::IntervalMonthDayNano;
use datafusion_sql::sqlparser::ast::{Expr, Value};
use std::str::FromStr;
use thalweg_table::Result;

const HOUR_NS: i64 = 3_600_000_000_000;

/// The arguments of `time_bucket` as an expression with `date_bin`; `None` where they are not of any of its forms.
pub(super) fn translated(arguments: &[&Expr]) -> Result<Option<Expr>> {
    Ok(Some(match *arguments {
        [width, time] => bucket(width, time, None, None)?,
        [width, time, offset @ Expr::Interval(_)] => {
            let moved = filled("(a1) - (a2)", &[time, offset])?;
            let bucket = bucket(width, &moved, None, None)?;
            filled("(a1) + (a2)", &[&bucket, offset])?
        }
        [width, time, third] => match text_of(third) {
            Some(text) if is_zone(&text) => bucket(width, time, None, Some(third))?,
            _ => bucket(width, time, Some(third), None)?,
        },
        [width, time, origin, zone] => bucket(width, time, Some(origin), Some(zone))?,
        _ => return Ok(None),
    }))
}

/// `date_bin` with a width that is a parameter, which may be a timedelta of Python; `None` for every other width.
pub(super) fn with_interval(arguments: &[&Expr]) -> Result<Option<Expr>> {
    let [width, rest @ ..] = arguments else {
        return Ok(None);
    };
    if !is_placeholder(width) {
        return Ok(None);
    }
    let template = match rest {
        [_] => "date_bin(CAST(a1 AS INTERVAL), a2)",
        [_, _] => "date_bin(CAST(a1 AS INTERVAL), a2, a3)",
        _ => return Ok(None),
    };
    filled(template, arguments).map(Some)
}

/// Whether a text names a time zone and is no time.
fn is_zone(text: &str) -> bool {
    text.chars().next().is_some_and(char::is_alphabetic) || Tz::from_str(text).is_ok()
}

fn bucket(width: &Expr, time: &Expr, origin: Option<&Expr>, zone: Option<&Expr>) -> Result<Expr> {
    let in_units = text_of(width).and_then(|written| interval_in_units(&written));
    let in_units = in_units.as_deref().map(text);
    let width = in_units.as_ref().unwrap_or(width);
    let constant = constant_width(width);
    let width = match width {
        Expr::Interval(_) => width.clone(),
        width if text_of(width).is_some() => filled_interval(width)?,
        // A timedelta of Python is a duration, and so is the difference of two times.
        width => filled("CAST(a1 AS INTERVAL)", &[width])?,
    };
    let origin = match origin {
        Some(origin) if text_of(origin).is_some() => filled("CAST(a1 AS TIMESTAMP)", &[origin])?,
        Some(origin) => origin.clone(),
        None => match constant {
            Some(width) if width.months == 0 => filled("TIMESTAMP '2000-01-03T00:00:00'", &[])?,
            Some(_) => filled("TIMESTAMP '2000-01-01T00:00:00'", &[])?,
            None => filled("bucket_origin(a1)", &[&width])?,
        },
    };
    let Some(zone) = zone else {
        return filled("date_bin(a1, a2, a3)", &[&width, time, &origin]);
    };
    let arguments = [&width, time, &origin, zone];
    if constant.is_some_and(divides_an_hour) {
        // An hour that the clock shows twice in autumn has buckets of its own each time: back by what has passed of the bucket.
        return filled(
            "at_time_zone(local_time(a2, 'UTC') - (local_time(a2, a4) - date_bin(a1, local_time(a2, a4), a3)), 'UTC')",
            &arguments,
        );
    }
    filled(
        "first_instant(date_bin(a1, local_time(a2, a4), a3), a4)",
        &arguments,
    )
}

fn is_placeholder(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::Placeholder(_)))
}

fn divides_an_hour(width: IntervalMonthDayNano) -> bool {
    let ns = width.nanoseconds;
    width.months == 0 && width.days == 0 && ns > 0 && HOUR_NS % ns == 0
}

/// A width that is written in the statement.
fn constant_width(width: &Expr) -> Option<IntervalMonthDayNano> {
    let text = match width {
        Expr::Interval(interval) => {
            let length = match &*interval.value {
                Expr::Value(value) => match &value.value {
                    Value::Number(digits, _) => digits.clone(),
                    _ => text_of(&interval.value)?,
                },
                _ => return None,
            };
            match &interval.leading_field {
                Some(unit) => format!("{length} {unit}"),
                None => length,
            }
        }
        width => text_of(width)?,
    };
    parse_interval_month_day_nano(&text).ok()
}

fn filled_interval(width: &Expr) -> Result<Expr> {
    filled("INTERVAL a1", &[width]).or_else(|_| filled("CAST(a1 AS INTERVAL)", &[width]))
}
