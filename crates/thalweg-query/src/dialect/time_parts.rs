//! Parts of times, and units of `date_trunc`, by the other names that they have in DuckDB and PostgreSQL.
//!
//! Invariant: a name that is not known here is left alone: DataFusion knows it, or refuses it.

use super::calls::{text, text_of};
use super::templates::filled;
use datafusion_sql::sqlparser::ast::Expr;
use thalweg_table::Result;

pub(super) const DECADE: &str = "date_part('year', a1) / 10";

pub(super) const CENTURY: &str = "CASE WHEN date_part('year', a1) > 0 THEN (date_part('year', a1) - 1) / 100 + 1 \
     ELSE date_part('year', a1) / 100 - 1 END";

pub(super) const MILLENNIUM: &str = "CASE WHEN date_part('year', a1) > 0 THEN (date_part('year', a1) - 1) / 1000 + 1 \
     ELSE date_part('year', a1) / 1000 - 1 END";

/// Parts of times in terms of others: their names, and the template.
const PARTS: &[(&[&str], &str)] = &[
    (&["quarters"], "date_part('quarter', a1)"),
    (&["dayofweek", "weekday"], "date_part('dow', a1)"),
    (&["dayofyear"], "date_part('doy', a1)"),
    (&["dayofmonth"], "date_part('day', a1)"),
    (&["weekofyear"], "date_part('week', a1)"),
    (
        &["yearweek"],
        "date_part('isoyear', a1) * 100 + date_part('week', a1)",
    ),
    (&["decade", "decades"], DECADE),
    (&["century", "centuries"], CENTURY),
    (&["millennium", "millenniums", "millennia"], MILLENNIUM),
];

/// Other names of units of `date_trunc`.
const UNITS: &[(&[&str], &str)] = &[
    (&["years", "y", "yr", "yrs"], "year"),
    (&["quarters"], "quarter"),
    (&["months", "mon", "mons"], "month"),
    (&["weeks", "w"], "week"),
    (&["days", "d"], "day"),
    (&["hours", "h", "hr", "hrs"], "hour"),
    (&["minutes", "m", "min", "mins"], "minute"),
    (&["seconds", "s", "sec", "secs"], "second"),
    (&["milliseconds", "ms", "msec", "msecs"], "millisecond"),
    (&["microseconds", "us", "usec", "usecs"], "microsecond"),
];

/// `extract(name FROM time)`.
pub(super) fn of_name(name: &str, time: &Expr) -> Result<Option<Expr>> {
    let name = name.to_ascii_lowercase();
    let found = PARTS.iter().find(|(names, _)| names.contains(&&*name));
    found
        .map(|(_, template)| filled(template, &[time]))
        .transpose()
}

/// `date_part(part, time)`.
pub(super) fn of_call(part: &Expr, time: &Expr) -> Result<Option<Expr>> {
    match text_of(part) {
        Some(name) => of_name(&name, time),
        None => Ok(None),
    }
}

/// `date_trunc(unit, time)`.
pub(super) fn truncated(unit: &Expr, time: &Expr) -> Result<Option<Expr>> {
    let Some(name) = text_of(unit) else {
        return Ok(None);
    };
    let name = name.to_ascii_lowercase();
    let found = UNITS.iter().find(|(names, _)| names.contains(&&*name));
    found
        .map(|(_, unit)| filled("date_trunc(a1, a2)", &[&text(unit), time]))
        .transpose()
}
