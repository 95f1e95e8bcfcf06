//! Days and months that are added to times with a zone, as its clock counts them.
//!
//! Invariants: of an interval months and days are added to what the clock shows, then the rest to the instant, as in PostgreSQL. Where the
//! clock shows the sum twice or not at all, it is the instant that `at_time_zone` names; Arrow fails there.

use super::applied;
use super::time_zones::{offset_of_clock, zone_named};
use crate::error::{query, to_datafusion};
use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType};
use chrono::{DateTime, Days, Months, NaiveDateTime, Offset, TimeZone};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use thalweg_table::time_units::{SECOND_NS, unit_ns};

/// `time` later by `interval`, or earlier.
pub(crate) fn moved(time: Expr, interval: Expr, is_back: bool) -> Expr {
    let function = ScalarUDF::new_from_impl(OnClock {
        is_back,
        signature: Signature::any(2, Volatility::Immutable),
    });
    Arc::new(function).call(vec![time, interval])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OnClock {
    is_back: bool,
    signature: Signature,
}

impl ScalarUDFImpl for OnClock {
    fn name(&self) -> &'static str {
        if self.is_back {
            "back_on_clock"
        } else {
            "forward_on_clock"
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [time @ DataType::Timestamp(_, Some(_)), _] => Ok(time.clone()),
            _ => internal_err!("{} takes a time with a zone and an interval", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let [times, intervals] = arrays else {
                return internal_err!("{} takes two arguments", self.name());
            };
            let DataType::Timestamp(unit, Some(name)) = times.data_type() else {
                return internal_err!("{} takes a time with a zone", self.name());
            };
            let (steps, zone) = (SECOND_NS / unit_ns(*unit), zone_named(name)?);
            let values = cast(times, &DataType::Int64)?;
            let values = values.as_primitive::<Int64Type>();
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
            let moved = values.iter().zip(intervals).map(|pair| match pair {
                (Some(value), Some(interval)) => {
                    let moved = later(value, interval, self.is_back, steps, zone);
                    moved.map(Some).ok_or_else(|| {
                        to_datafusion(query("a time lies beyond the range of timestamps"))
                    })
                }
                _ => Ok(None),
            });
            let moved: Int64Array = moved.collect::<Result<_>>()?;
            Ok(cast(&moved, times.data_type())?) as Result<ArrayRef>
        })
    }
}

/// A time in `steps` of a second later by an interval; `None` beyond the range.
fn later(
    value: i64,
    interval: IntervalMonthDayNano,
    is_back: bool,
    steps: i64,
    zone: Tz,
) -> Option<i64> {
    let sign = if is_back { -1 } else { 1 };
    let mut seconds = value.div_euclid(steps);
    if interval.months != 0 || interval.days != 0 {
        let instant = DateTime::from_timestamp(seconds, 0)?.naive_utc();
        let offset = zone.offset_from_utc_datetime(&instant).fix();
        let shown = instant.checked_add_offset(offset)?;
        let shown = on_calendar(
            shown,
            i64::from(interval.months) * sign,
            i64::from(interval.days) * sign,
        )?;
        seconds = shown.and_utc().timestamp() - i64::from(offset_of_clock(zone, shown, false));
    }
    let rest = i128::from(interval.nanoseconds) * i128::from(sign) * i128::from(steps);
    let whole = i128::from(seconds) * i128::from(steps) + i128::from(value.rem_euclid(steps));
    i64::try_from(whole + rest.div_euclid(1_000_000_000)).ok()
}

fn on_calendar(time: NaiveDateTime, months: i64, days: i64) -> Option<NaiveDateTime> {
    let by = |count: i64| u32::try_from(count.unsigned_abs()).ok();
    let time = match months {
        0.. => time.checked_add_months(Months::new(by(months)?))?,
        _ => time.checked_sub_months(Months::new(by(months)?))?,
    };
    match days {
        0.. => time.checked_add_days(Days::new(days.unsigned_abs())),
        _ => time.checked_sub_days(Days::new(days.unsigned_abs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::str::FromStr;

    fn instant(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text)
            .unwrap()
            .timestamp_millis()
    }

    #[test]
    fn days_and_months_go_by_the_clock() {
        let zone = Tz::from_str("Europe/Berlin").unwrap();
        let day = IntervalMonthDayNano::new(0, 1, 0);
        let month = IntervalMonthDayNano::new(1, 0, 0);
        let hours = IntervalMonthDayNano::new(0, 0, 24 * 3_600_000_000_000);
        let mixed = IntervalMonthDayNano::new(1, 1, -3_600_000_000_000);
        for (from, interval, is_back, to) in [
            // Shown twice: the later one.
            (
                "2023-10-28T02:30:00+02:00",
                day,
                false,
                "2023-10-29T02:30:00+01:00",
            ),
            (
                "2023-10-30T02:30:00+01:00",
                day,
                true,
                "2023-10-29T02:30:00+01:00",
            ),
            // Passed over.
            (
                "2023-03-25T02:30:00+01:00",
                day,
                false,
                "2023-03-26T03:30:00+02:00",
            ),
            // A day of 25 hours.
            (
                "2023-10-29T00:00:00+02:00",
                day,
                false,
                "2023-10-30T00:00:00+01:00",
            ),
            (
                "2023-10-29T00:00:00+02:00",
                hours,
                false,
                "2023-10-29T23:00:00+01:00",
            ),
            (
                "2024-01-31T12:00:00+01:00",
                month,
                false,
                "2024-02-29T12:00:00+01:00",
            ),
            (
                "2024-03-31T12:00:00+02:00",
                month,
                true,
                "2024-02-29T12:00:00+01:00",
            ),
            (
                "2024-02-29T00:00:00+01:00",
                mixed,
                false,
                "2024-03-29T23:00:00+01:00",
            ),
        ] {
            let found = later(instant(from) + 7, interval, is_back, 1_000, zone);
            assert_eq!(found, Some(instant(to) + 7), "{from} {interval:?}");
        }
        assert_eq!(later(i64::MAX, hours, false, 1_000_000_000, zone), None);
        assert_eq!(later(i64::MAX, day, false, 1, zone), None);
    }
}
