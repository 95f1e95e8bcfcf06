//! Functions by the names that they have in DuckDB, PostgreSQL and TimescaleDB.
//!
//! Invariant: a template names its arguments `a1`, `a2`, ..., and is a constant of this module: it always parses.

use crate::error::{query, unsupported};
use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
    VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use std::ops::ControlFlow;
use thalweg_table::{Error, Result};

/// What a function is in terms of others: its names, how many arguments, and the template.
const TEMPLATES: &[(&[&str], usize, &str)] = &[
    (&["year"], 1, "date_part('year', a1)"),
    (&["quarter"], 1, "date_part('quarter', a1)"),
    (&["month"], 1, "date_part('month', a1)"),
    (&["week", "weekofyear"], 1, "date_part('week', a1)"),
    (&["day", "dayofmonth"], 1, "date_part('day', a1)"),
    (&["dayofyear"], 1, "date_part('doy', a1)"),
    (&["dayofweek", "weekday"], 1, "date_part('dow', a1)"),
    (&["isodow"], 1, "date_part('isodow', a1)"),
    (&["hour"], 1, "date_part('hour', a1)"),
    (&["minute"], 1, "date_part('minute', a1)"),
    (&["second"], 1, "date_part('second', a1)"),
    (&["epoch"], 1, "date_part('epoch', a1)"),
    (
        &["epoch_ms"],
        1,
        "arrow_cast(arrow_cast(a1, 'Timestamp(Millisecond, None)'), 'Int64')",
    ),
    (
        &["epoch_us"],
        1,
        "arrow_cast(arrow_cast(a1, 'Timestamp(Microsecond, None)'), 'Int64')",
    ),
    (
        &["epoch_ns"],
        1,
        "arrow_cast(arrow_cast(a1, 'Timestamp(Nanosecond, None)'), 'Int64')",
    ),
    (&["dayname"], 1, "to_char(a1, '%A')"),
    (&["monthname"], 1, "to_char(a1, '%B')"),
    (&["strptime"], 2, "to_timestamp(a1, a2)"),
    (&["first"], 1, "first_value(a1)"),
    (&["first"], 2, "first_value(a1 ORDER BY a2 NULLS LAST)"),
    (&["last"], 1, "last_value(a1)"),
    (&["last"], 2, "last_value(a1 ORDER BY a2 NULLS FIRST)"),
    (
        &["any_value"],
        1,
        "first_value(a1) FILTER (WHERE a1 IS NOT NULL)",
    ),
    (
        &["arg_max", "max_by", "argmax"],
        2,
        "first_value(a1 ORDER BY a2 DESC NULLS LAST) FILTER (WHERE a1 IS NOT NULL AND a2 IS NOT NULL)",
    ),
    (
        &["arg_min", "min_by", "argmin"],
        2,
        "first_value(a1 ORDER BY a2 ASC NULLS LAST) FILTER (WHERE a1 IS NOT NULL AND a2 IS NOT NULL)",
    ),
    (&["list"], 1, "array_agg(a1)"),
    (&["group_concat", "listagg"], 1, "string_agg(a1, ',')"),
    (&["group_concat", "listagg"], 2, "string_agg(a1, a2)"),
    (&["count_if", "countif"], 1, "count(*) FILTER (WHERE a1)"),
    (&["if", "iff"], 3, "CASE WHEN a1 THEN a2 ELSE a3 END"),
    (&["ifnull"], 2, "coalesce(a1, a2)"),
    (&["mod"], 2, "(a1) % (a2)"),
    (&["len"], 1, "character_length(a1)"),
    (&["regexp_matches"], 2, "regexp_like(a1, a2)"),
    (&["string_split", "str_split"], 2, "string_to_array(a1, a2)"),
    (&["approx_count_distinct"], 1, "approx_distinct(a1)"),
    (&["approx_quantile"], 2, "approx_percentile_cont(a1, a2)"),
    (&["variance"], 1, "var_samp(a1)"),
    (&["typeof"], 1, "arrow_typeof(a1)"),
];

/// Units whose difference is a number of steps of that many nanoseconds.
const STEPS: &[(&str, u64)] = &[
    ("week", 604_800_000_000_000),
    ("day", 86_400_000_000_000),
    ("hour", 3_600_000_000_000),
    ("minute", 60_000_000_000),
    ("second", 1_000_000_000),
    ("millisecond", 1_000_000),
    ("microsecond", 1_000),
];

/// Patterns of PostgreSQL's `to_char`, longer ones first.
const PATTERNS: &[(&str, &str)] = &[
    ("YYYY", "%Y"),
    ("YY", "%y"),
    ("Month", "%B"),
    ("Mon", "%b"),
    ("MM", "%m"),
    ("DDD", "%j"),
    ("DD", "%d"),
    ("Day", "%A"),
    ("Dy", "%a"),
    ("HH24", "%H"),
    ("HH12", "%I"),
    ("HH", "%I"),
    ("MI", "%M"),
    ("MS", "%3f"),
    ("US", "%6f"),
    ("SS", "%S"),
    ("AM", "%p"),
    ("PM", "%p"),
    ("IYYY", "%G"),
    ("IW", "%V"),
];

/// The expression that a call stands for, if it is one of another dialect.
pub(super) fn translated(function: &Function) -> Result<Option<Expr>> {
    let Some(name) = plain_name(function) else {
        return Ok(None);
    };
    let FunctionArguments::List(list) = &function.args else {
        return Ok(None);
    };
    let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    if name == "count" && is_distinct && matches!(&*list.args, [arg] if is_wildcard(arg)) {
        return Err(unsupported(
            "count(DISTINCT *) is not offered: write SELECT count(*) FROM (SELECT DISTINCT * FROM ...)",
        ));
    }
    if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return Ok(None);
    }
    let Some(args) = list.args.iter().map(argument).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let expr = match (&*name, &*args) {
        ("version", []) => Some(text(concat!("Thalweg ", env!("CARGO_PKG_VERSION")))),
        ("strftime", &[time, format]) => {
            // SQLite has them the other way round.
            let swapped = text_of(time).is_some_and(|text| text.contains('%'));
            let (time, format) = if swapped {
                (format, time)
            } else {
                (time, format)
            };
            Some(filled("to_char(a1, a2)", &[time, format])?)
        }
        ("to_char", &[time, format]) => match text_of(format) {
            Some(format) if !format.contains('%') => Some(filled(
                "to_char(a1, a2)",
                &[time, &text(&pattern(&format)?)],
            )?),
            _ => None,
        },
        ("date_diff" | "datediff", [unit, from, to]) => Some(date_diff(unit, from, to)?),
        ("time_bucket", [width, time]) => Some(time_bucket(width, time, None, None)?),
        ("time_bucket", [width, time, third]) => Some(match text_of(third) {
            Some(zone) if is_zone(&zone) => time_bucket(width, time, None, Some(third))?,
            _ => time_bucket(width, time, Some(third), None)?,
        }),
        ("time_bucket", [width, time, origin, zone]) => {
            Some(time_bucket(width, time, Some(origin), Some(zone))?)
        }
        (name, args) => {
            let is_this = |(names, count, _): &&(&[&str], usize, &str)| {
                names.contains(&name) && *count == args.len()
            };
            match TEMPLATES.iter().find(is_this) {
                Some((_, _, template)) => Some(filled(template, args)?),
                None => None,
            }
        }
    };
    expr.map(|expr| with_clauses(expr, function)).transpose()
}

/// `time AT TIME ZONE zone`.
pub(super) fn at_time_zone(time: &Expr, zone: &Expr) -> Result<Expr> {
    filled("at_time_zone(a1, a2)", &[time, zone])
}

/// FILTER and OVER of the call that was written.
fn with_clauses(expr: Expr, written: &Function) -> Result<Expr> {
    let Expr::Function(mut function) = expr else {
        return match written {
            Function {
                filter: None,
                over: None,
                null_treatment: None,
                ..
            } => Ok(expr),
            _ => Err(query(format!(
                "{} is no aggregate: it takes neither FILTER nor OVER",
                written.name
            ))),
        };
    };
    function.over.clone_from(&written.over);
    function.null_treatment = written.null_treatment;
    if let Some(filter) = &written.filter {
        let filter = match function.filter.take() {
            Some(own) => filled("(a1) AND (a2)", &[&own, filter])?,
            None => (**filter).clone(),
        };
        function.filter = Some(Box::new(filter));
    }
    Ok(Expr::Function(function))
}

fn plain_name(function: &Function) -> Option<String> {
    match &*function.name.0 {
        [part] => {
            let name = part.as_ident()?;
            name.quote_style
                .is_none()
                .then(|| name.value.to_ascii_lowercase())
        }
        _ => None,
    }
}

fn argument(arg: &FunctionArg) -> Option<&Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

fn is_wildcard(arg: &FunctionArg) -> bool {
    matches!(
        arg,
        FunctionArg::Unnamed(FunctionArgExpr::Wildcard | FunctionArgExpr::QualifiedWildcard(_))
    )
}

pub(super) fn text(value: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(value.to_owned()).into())
}

/// The text that a constant is.
fn text_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// A template with its arguments.
pub(super) fn filled(template: &str, args: &[&Expr]) -> Result<Expr> {
    let parser = Parser::new(&GenericDialect {}).try_with_sql(template);
    let expr = parser.and_then(|mut parser| parser.parse_expr());
    let mut expr = expr.map_err(|error| query(error.to_string()))?;
    let mut filler = Filler(args);
    let _ = VisitMut::visit(&mut expr, &mut filler);
    Ok(expr)
}

struct Filler<'a>(&'a [&'a Expr]);

impl VisitorMut for Filler<'_> {
    type Break = Error;

    // After what is inside, so that nothing inside an argument is taken for a place.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Expr::Identifier(name) = expr
            && let Some(place) = name.value.strip_prefix('a')
            && let Ok(place) = place.parse::<usize>()
            && let Some(arg) = place.checked_sub(1).and_then(|at| self.0.get(at))
        {
            *expr = (*arg).clone();
        }
        ControlFlow::Continue(())
    }
}

/// PostgreSQL's pattern as one of `strftime`.
fn pattern(format: &str) -> Result<String> {
    let mut out = String::new();
    let mut rest = format;
    while let Some(next) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (literal, behind) = quoted.split_once('"').unwrap_or((quoted, ""));
            out.push_str(literal);
            rest = behind;
            continue;
        }
        let found = PATTERNS
            .iter()
            .filter(|(name, _)| {
                let head = rest.get(..name.len());
                head == Some(*name) || head == Some(&*name.to_ascii_lowercase())
            })
            .max_by_key(|(name, _)| name.len());
        match found {
            Some((name, meaning)) => {
                out.push_str(meaning);
                rest = &rest[name.len()..];
            }
            None if next.is_ascii_alphabetic() && next != 'T' && next != 'Z' => {
                return Err(query(format!(
                    "to_char does not know the pattern \"{rest}\": write '%Y-%m-%d %H:%M:%S' or 'YYYY-MM-DD HH24:MI:SS'"
                )));
            }
            None => {
                out.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    Ok(out)
}

/// How many boundaries of a unit lie between two times.
fn date_diff(unit: &Expr, from: &Expr, to: &Expr) -> Result<Expr> {
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
    let Some((unit, step_ns)) = STEPS.iter().find(|(name, _)| *name == unit) else {
        return Err(query(format!(
            "\"{written}\" is no unit of date_diff: write year, quarter, month, week, day, hour, minute or second"
        )));
    };
    let ns = |place: &str| {
        format!(
            "arrow_cast(arrow_cast(date_trunc('{unit}', {place}), 'Timestamp(Nanosecond, None)'), 'Int64')"
        )
    };
    let template = format!("({} - {}) / {step_ns}", ns("a2"), ns("a1"));
    filled(&template, &[from, to])
}

/// Whether a text names a time zone and is no time.
fn is_zone(text: &str) -> bool {
    text.chars().next().is_some_and(char::is_alphabetic)
}

/// `date_bin` with weeks that begin on Mondays, on the local clock of a zone if there is one.
fn time_bucket(
    width: &Expr,
    time: &Expr,
    origin: Option<&Expr>,
    zone: Option<&Expr>,
) -> Result<Expr> {
    let width = match width {
        Expr::Interval(_) => width.clone(),
        width if text_of(width).is_some() => filled_interval(width)?,
        width => width.clone(),
    };
    let monday = filled("TIMESTAMP '2000-01-03T00:00:00'", &[])?;
    let origin = match origin {
        Some(origin) if text_of(origin).is_some() => {
            Some(filled("CAST(a1 AS TIMESTAMP)", &[origin])?)
        }
        Some(origin) => Some(origin.clone()),
        None if counts_days(&width) => Some(monday),
        None => None,
    };
    let Some(zone) = zone else {
        return match &origin {
            Some(origin) => filled("date_bin(a1, a2, a3)", &[&width, time, origin]),
            None => filled("date_bin(a1, a2)", &[&width, time]),
        };
    };
    match &origin {
        Some(origin) => filled(
            "at_time_zone(date_bin(a1, local_time(a2, a4), a3), a4)",
            &[&width, time, origin, zone],
        ),
        None => filled(
            "at_time_zone(date_bin(a1, local_time(a2, a3)), a3)",
            &[&width, time, zone],
        ),
    }
}

fn filled_interval(width: &Expr) -> Result<Expr> {
    filled("INTERVAL a1", &[width]).or_else(|_| filled("CAST(a1 AS INTERVAL)", &[width]))
}

/// Whether a width is of weeks, or of several days.
fn counts_days(width: &Expr) -> bool {
    let text = width.to_string().to_ascii_lowercase();
    let days: String = text.chars().filter(char::is_ascii_digit).collect();
    text.contains("week") || text.contains("day") && days.parse().is_ok_and(|days: u64| days > 1)
}
