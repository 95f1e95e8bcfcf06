//! Groupings of rows by time that are buckets of order keys: `date_bin` of a fixed width and `date_trunc` down to at
//! most weeks.
//!
//! Invariants: a grouping is accepted only if each of its groups is exactly one bucket, and the first key of the bucket,
//! times `factor`, is the value that the function returns for the rows in it. Functions are known by their names: the
//! session registers one of each.

use super::time::{TimeColumn, ns_since_1970, time_expression};
use arrow::datatypes::{DataType, IntervalDayTimeType, IntervalMonthDayNanoType};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;
use thalweg_table::Bucket;
use thalweg_table::time_units::{DAY_NS, SECOND_NS, is_utc, unit_ns};

/// 1970-01-05, the first Monday.
const MONDAY_NS: i64 = 4 * DAY_NS;

/// How the rows are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeGroup {
    pub(crate) bucket: Bucket,
    /// The group's value is the first key of its bucket times this.
    pub(crate) factor: i64,
}

/// The buckets that `group`, an expression of GROUP BY, stands for.
pub(crate) fn time_group(group: &Expr, time: TimeColumn<'_>) -> Option<TimeGroup> {
    match group {
        Expr::Alias(alias) => time_group(&alias.expr, time),
        Expr::ScalarFunction(ScalarFunction { func, args }) => match (func.name(), args.as_slice())
        {
            ("date_bin", [width, source]) => of_date_bin(width, source, None, time),
            ("date_bin", [width, source, origin]) => of_date_bin(width, source, Some(origin), time),
            ("date_trunc", [granularity, source]) => of_date_trunc(granularity, source, time),
            _ => None,
        },
        _ => None,
    }
}

fn of_date_bin(
    width: &Expr,
    source: &Expr,
    origin: Option<&Expr>,
    time: TimeColumn<'_>,
) -> Option<TimeGroup> {
    let width_ns = interval_ns(literal(width)?)?;
    let (factor, data_type) = time_expression(source, time)?;
    let origin_ns = match origin {
        None => 0,
        Some(origin) => i64::try_from(ns_since_1970(literal(origin)?)?).ok()?,
    };
    let bucket = buckets(factor, &data_type, width_ns, origin_ns)?;
    Some(TimeGroup { bucket, factor })
}

fn of_date_trunc(granularity: &Expr, source: &Expr, time: TimeColumn<'_>) -> Option<TimeGroup> {
    let (factor, data_type) = time_expression(source, time)?;
    let (ScalarValue::Utf8(Some(granularity)) | ScalarValue::Utf8View(Some(granularity))) =
        literal(granularity)?
    else {
        return None;
    };
    let (width_ns, origin_ns) = match granularity.to_ascii_lowercase().as_str() {
        "microsecond" => (1_000, 0),
        "millisecond" => (1_000_000, 0),
        "second" => (SECOND_NS, 0),
        "minute" => (60_000_000_000, 0),
        "hour" => (3_600_000_000_000, 0),
        "day" => (DAY_NS, 0),
        "week" => (7 * DAY_NS, MONDAY_NS),
        _ => return None,
    };
    // Truncation goes by the local clock of the zone.
    let local = matches!(&data_type, DataType::Timestamp(_, Some(zone)) if !is_utc(zone));
    if local {
        return None;
    }
    let bucket = buckets(factor, &data_type, width_ns, origin_ns)?;
    Some(TimeGroup { bucket, factor })
}

/// Buckets in steps of the column, each `factor` times its unit, if width and origin are whole numbers of them.
fn buckets(factor: i64, data_type: &DataType, width_ns: i64, origin_ns: i64) -> Option<Bucket> {
    let DataType::Timestamp(unit, _) = data_type else {
        return None;
    };
    let step_ns = unit_ns(*unit).checked_mul(factor)?;
    let whole = width_ns > 0 && width_ns % step_ns == 0 && origin_ns % step_ns == 0;
    whole.then(|| Bucket {
        width: width_ns / step_ns,
        origin: origin_ns / step_ns,
    })
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// The length of an interval without months.
pub(crate) fn interval_ns(interval: &ScalarValue) -> Option<i64> {
    let (days, ns) = match interval {
        ScalarValue::IntervalDayTime(Some(value)) => {
            let (days, ms) = IntervalDayTimeType::to_parts(*value);
            (days, i64::from(ms) * 1_000_000)
        }
        ScalarValue::IntervalMonthDayNano(Some(value)) => {
            match IntervalMonthDayNanoType::to_parts(*value) {
                (0, days, ns) => (days, ns),
                _ => return None,
            }
        }
        _ => return None,
    };
    i64::from(days).checked_mul(DAY_NS)?.checked_add(ns)
}
