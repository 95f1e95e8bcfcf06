//! `date_bin`, `date_trunc` and `date_part` for all times of a column.
//!
//! DataFusion's go through nanoseconds, which hold the years 1677 to 2262 only: `date_bin` gives NULL for any other time,
//! and rows of far years end up in one group silently; `date_trunc` fails or wraps; `date_part` gives NULL for times beyond
//! its calendar. So the beginnings of groups are computed here, in the unit of the times. Invariants: what comes out is what
//! summaries would answer, or an error; no group begins after one of its times.
//!
//! `date_trunc` of a time with a zone goes by the clock of the zone, as in PostgreSQL: a day or longer begins at the first
//! instant that has its date; for shorter parts, what has passed of the part on the clock is taken away. `date_bin` counts in UTC.

use super::calendar_groups::{TimeGroups, Width, clock};
use super::time_zones::{offset_of_clock, zone_named};
use crate::error::{query, to_datafusion};
use crate::pushdown::bucket::interval_ns;
use crate::pushdown::time::ns_since_1970;
use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, IntervalUnit, TimeUnit};
use chrono::{NaiveDateTime, Offset, TimeZone};
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};
use std::sync::Arc;
use thalweg_table::time_units::{DAY_NS, SECOND_NS, is_utc};
use thalweg_table::{Error, ErrorKind};

const MINUTE_NS: i64 = 60 * SECOND_NS;
/// 1970-01-05, the first Monday.
const MONDAY_NS: i64 = 4 * DAY_NS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TimeGrouping {
    /// `date_bin`.
    Bin,
    /// `date_trunc`.
    Truncate,
    /// `date_part`.
    Part,
}

impl TimeGrouping {
    /// Of the function with this name, if it is one of those.
    pub(crate) fn of(function: &str) -> Option<Self> {
        match function {
            "date_bin" => Some(Self::Bin),
            "date_trunc" => Some(Self::Truncate),
            "date_part" => Some(Self::Part),
            _ => None,
        }
    }

    /// The types that arguments become where the times stay in their unit, of which DataFusion would make nanoseconds.
    pub(crate) fn types_as_given(self, types: &[DataType]) -> Option<Vec<DataType>> {
        let (Self::Bin, [width, times @ DataType::Timestamp(_, zone), origin @ ..]) = (self, types)
        else {
            return None;
        };
        let width = match width {
            DataType::Interval(IntervalUnit::DayTime) => width.clone(),
            other if matches!(other, DataType::Interval(_)) || takes_any_type(other) => {
                DataType::Interval(IntervalUnit::MonthDayNano)
            }
            _ => return None,
        };
        let origin = match origin {
            [] => return Some(vec![width, times.clone()]),
            [origin @ DataType::Timestamp(_, of)] if zone.is_some() || of.is_none() => {
                origin.clone()
            }
            [origin] if takes_any_type(origin) => DataType::Timestamp(TimeUnit::Nanosecond, None),
            _ => return None,
        };
        Some(vec![width, times.clone(), origin])
    }

    /// The beginnings of the groups.
    pub(crate) fn invoke(
        self,
        base: &ScalarUDF,
        args: ScalarFunctionArgs,
    ) -> Result<ColumnarValue> {
        let name = base.name();
        let Some(times) = args.args.get(1).cloned() else {
            return base.invoke_with_args(args);
        };
        if let DataType::Timestamp(unit, zone) = times.data_type() {
            match self {
                Self::Bin if has_null_besides_times(&args.args) => {
                    let null = ScalarValue::try_new_null(&times.data_type())?;
                    return Ok(ColumnarValue::Scalar(null));
                }
                Self::Bin => {
                    if let Some(width) = width_of_bin(&args.args)? {
                        return grouped(name, width, unit, &times);
                    }
                }
                Self::Truncate => {
                    if let Some(part) = part_of(&args.args) {
                        return truncated(name, part, (unit, zone.as_deref()), &times);
                    }
                }
                Self::Part => {}
            }
        }
        let name = name.to_owned();
        let groups = base.invoke_with_args(args)?;
        if self == Self::Part && nulls(&groups)? > nulls(&times)? {
            return Err(beyond_calendar(&name));
        }
        Ok(groups)
    }
}

/// Whether a constant of this type takes the type that it is needed in.
fn takes_any_type(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

/// Whether the width or the origin is not known, and so no group.
fn has_null_besides_times(args: &[ColumnarValue]) -> bool {
    let is_null =
        |arg: &ColumnarValue| matches!(arg, ColumnarValue::Scalar(value) if value.is_null());
    args.first().is_some_and(is_null) || args.get(2).is_some_and(is_null)
}

/// Why no group begins at or before a time.
fn no_start(function: &str, groups: &TimeGroups, value: i64) -> DataFusionError {
    match groups.clock(value) {
        None => beyond_calendar(function),
        Some(_) => outside(function),
    }
}

fn outside(function: &str) -> DataFusionError {
    let message = format!("{function}: a group begins outside of what its type holds");
    to_datafusion(Error::new(ErrorKind::OutOfDomain, message))
}

fn beyond_calendar(function: &str) -> DataFusionError {
    let message = format!("{function}: a time is beyond the years -262143 to 262142");
    to_datafusion(Error::new(ErrorKind::OutOfDomain, message))
}

/// The width and the origin of `date_bin`; `None` for those that are left to DataFusion, which refuses them.
fn width_of_bin(args: &[ColumnarValue]) -> Result<Option<Width>> {
    let Some(ColumnarValue::Scalar(width)) = args.first() else {
        return Ok(None);
    };
    let origin_ns = match args.get(2) {
        None => 0,
        Some(ColumnarValue::Scalar(origin)) => match ns_since_1970(origin) {
            Some(origin_ns) => origin_ns,
            None => return Ok(None),
        },
        Some(ColumnarValue::Array(_)) => return Ok(None),
    };
    if let Some(width_ns) = interval_ns(width) {
        is_width(width_ns)?;
        return Ok(Some(Width::Fixed {
            width_ns,
            origin_ns,
        }));
    }
    match width {
        ScalarValue::IntervalMonthDayNano(Some(width))
            if (width.days, width.nanoseconds) == (0, 0) =>
        {
            let months = i64::from(width.months);
            is_width(months)?;
            let origin = clock(origin_ns).ok_or_else(|| beyond_calendar("date_bin"))?;
            Ok(Some(Width::Months { months, origin }))
        }
        _ => Ok(None),
    }
}

fn is_width(width: i64) -> Result<()> {
    let wrong = match width {
        ..0 => "negative",
        0 => "zero",
        _ => return Ok(()),
    };
    let message = format!("the width of a bucket must not be {wrong}");
    Err(to_datafusion(query(message)))
}

/// The part that `date_trunc` keeps; `None` for what is left to DataFusion, which refuses it.
fn part_of(args: &[ColumnarValue]) -> Option<Width> {
    let Some(ColumnarValue::Scalar(part)) = args.first() else {
        return None;
    };
    Some(match part.try_as_str()??.to_ascii_lowercase().as_str() {
        "microsecond" => Width::fixed(1_000),
        "millisecond" => Width::fixed(1_000_000),
        "second" => Width::fixed(SECOND_NS),
        "minute" => Width::fixed(MINUTE_NS),
        "hour" => Width::fixed(60 * MINUTE_NS),
        "day" => Width::fixed(DAY_NS),
        "week" => Width::Fixed {
            width_ns: 7 * DAY_NS,
            origin_ns: MONDAY_NS.into(),
        },
        "month" => Width::months(1),
        "quarter" => Width::months(3),
        "year" => Width::months(12),
        _ => return None,
    })
}

/// `date_trunc` on the clock of the zone.
fn truncated(
    function: &str,
    part: Width,
    (unit, zone): (TimeUnit, Option<&str>),
    times: &ColumnarValue,
) -> Result<ColumnarValue> {
    // The clocks of all zones differ from that of UTC by whole seconds.
    let is_short = matches!(part, Width::Fixed { width_ns, .. } if width_ns < MINUTE_NS);
    let zone = match zone.filter(|zone| !is_short && !is_utc(zone)) {
        None => return grouped(function, part, unit, times),
        Some(zone) => zone_named(zone)?,
    };
    let has_date = !matches!(part, Width::Fixed { width_ns, .. } if width_ns < DAY_NS);
    let groups = TimeGroups::new(part, unit);
    let start_of = |value| {
        let shown = groups.later(value, offset_at(zone, groups.clock(value)?))?;
        let start = groups.start_of(shown)?;
        match has_date {
            true => groups.later(start, -offset_of_clock(zone, groups.clock(start)?, true)),
            false => value.checked_sub(shown - start),
        }
    };
    each(times, |value| {
        start_of(value).ok_or_else(|| no_start(function, &groups, value))
    })
}

/// Seconds by which a clock is ahead of UTC, at an instant.
fn offset_at(zone: Tz, instant: NaiveDateTime) -> i32 {
    zone.offset_from_utc_datetime(&instant)
        .fix()
        .local_minus_utc()
}

/// The beginnings of groups in UTC.
fn grouped(
    function: &str,
    width: Width,
    unit: TimeUnit,
    times: &ColumnarValue,
) -> Result<ColumnarValue> {
    let groups = TimeGroups::new(width, unit);
    each(times, |value| {
        groups
            .start_of(value)
            .ok_or_else(|| no_start(function, &groups, value))
    })
}

/// The times, each as `of_one` has it.
fn each(times: &ColumnarValue, of_one: impl Fn(i64) -> Result<i64>) -> Result<ColumnarValue> {
    let (array, is_scalar) = match times {
        ColumnarValue::Array(array) => (Arc::clone(array), false),
        ColumnarValue::Scalar(value) => (value.to_array()?, true),
    };
    let values = cast(&array, &DataType::Int64)?;
    let starts: Int64Array = values.as_primitive::<Int64Type>().try_unary(of_one)?;
    let starts: ArrayRef = cast(&starts, array.data_type())?;
    Ok(match is_scalar {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&starts, 0)?),
        false => ColumnarValue::Array(starts),
    })
}

fn nulls(values: &ColumnarValue) -> Result<usize> {
    Ok(match values {
        ColumnarValue::Array(array) => array.null_count(),
        ColumnarValue::Scalar(value) => usize::from(value.is_null()),
    })
}
