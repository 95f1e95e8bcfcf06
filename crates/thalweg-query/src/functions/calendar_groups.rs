//! Groups of times of a fixed length or of calendar months, in the unit of the times: where the one of a time begins.
//!
//! Invariant: no group begins after one of its times. A beginning between two steps of the unit is the step before it.

use arrow::datatypes::TimeUnit;
use chrono::{DateTime, Datelike, Months, NaiveDate, NaiveDateTime, NaiveTime};
use thalweg_table::Bucket;
use thalweg_table::time_units::{SECOND_NS, unit_ns};

const DAY_SECONDS: i64 = 86_400;

/// How long the groups are, and where one of them begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Width {
    Fixed { width_ns: i64, origin_ns: i128 },
    Months { months: i64, origin: NaiveDateTime },
}

impl Width {
    /// Counted from 1970.
    pub(super) fn fixed(width_ns: i64) -> Self {
        Self::Fixed {
            width_ns,
            origin_ns: 0,
        }
    }

    /// Counted from 1970.
    pub(super) fn months(months: i64) -> Self {
        Self::Months {
            months,
            origin: DateTime::UNIX_EPOCH.naive_utc(),
        }
    }
}

/// Groups of the times of one type.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeGroups {
    width: Width,
    /// The same, where each group begins with a step of the unit.
    bucket: Option<Bucket>,
    step_ns: i64,
}

impl TimeGroups {
    pub(super) fn new(width: Width, unit: TimeUnit) -> Self {
        let step_ns = unit_ns(unit);
        let bucket = match width {
            Width::Fixed {
                width_ns,
                origin_ns,
            } => bucket(width_ns, origin_ns, step_ns),
            Width::Months { .. } => None,
        };
        Self {
            width,
            bucket,
            step_ns,
        }
    }

    /// Where the group of a time begins; `None` beyond what the type of the times holds, or the calendar.
    pub(super) fn start_of(&self, value: i64) -> Option<i64> {
        if let Some(bucket) = self.bucket {
            // Without the wide numbers of the bucket, where these suffice: it is done for each row.
            return match value.checked_sub(bucket.origin) {
                Some(passed) => value.checked_sub(passed.rem_euclid(bucket.width)),
                None => bucket.start_of(value),
            };
        }
        match self.width {
            Width::Fixed {
                width_ns,
                origin_ns,
            } => {
                let passed = self.ns(value).checked_sub(origin_ns)?;
                let start_ns = self.ns(value) - passed.rem_euclid(i128::from(width_ns));
                self.step(start_ns)
            }
            Width::Months { months, origin } => self.month_of(value, months, origin),
        }
    }

    fn month_of(&self, value: i64, months: i64, origin: NaiveDateTime) -> Option<i64> {
        let number = |date: NaiveDate| i64::from(date.year()) * 12 + i64::from(date.month0());
        let from = number(origin.date());
        let passed_until = |date: NaiveDate| {
            let passed = number(date) - from;
            passed - passed.rem_euclid(months)
        };
        if origin.day() == 1 && origin.time() == NaiveTime::MIN {
            let day = DAY_SECONDS * self.steps_per_second();
            let days = i32::try_from(value.div_euclid(day)).ok()?;
            let number = from + passed_until(NaiveDate::from_epoch_days(days)?);
            let year = i32::try_from(number.div_euclid(12)).ok()?;
            let month0 = u32::try_from(number.rem_euclid(12)).ok()?;
            let first = NaiveDate::from_ymd_opt(year, month0 + 1, 1)?;
            return i64::from(first.to_epoch_days()).checked_mul(day);
        }
        let time = self.clock(value)?;
        let passed = passed_until(time.date());
        let start = shifted(origin, passed)?;
        let start = match start > time {
            true => shifted(origin, passed - months)?,
            false => start,
        };
        let start = start.and_utc();
        let seconds = i128::from(start.timestamp()) * i128::from(SECOND_NS);
        self.step(seconds + i128::from(start.timestamp_subsec_nanos()))
    }

    /// The date and time that the clock of UTC shows at a time, or a local clock at one of its own; `None` beyond the calendar.
    pub(super) fn clock(&self, value: i64) -> Option<NaiveDateTime> {
        let steps = self.steps_per_second();
        let rest = u32::try_from(value.rem_euclid(steps) * self.step_ns).ok()?;
        DateTime::from_timestamp(value.div_euclid(steps), rest).map(|time| time.naive_utc())
    }

    /// A time later by so many seconds.
    pub(super) fn later(&self, value: i64, seconds: i32) -> Option<i64> {
        value.checked_add(i64::from(seconds).checked_mul(self.steps_per_second())?)
    }

    fn steps_per_second(&self) -> i64 {
        SECOND_NS / self.step_ns
    }

    fn ns(&self, value: i64) -> i128 {
        i128::from(value) * i128::from(self.step_ns)
    }

    /// The last step up to an instant.
    fn step(&self, ns: i128) -> Option<i64> {
        i64::try_from(ns.div_euclid(i128::from(self.step_ns))).ok()
    }
}

fn bucket(width_ns: i64, origin_ns: i128, step_ns: i64) -> Option<Bucket> {
    let step = i128::from(step_ns);
    let is_whole = width_ns % step_ns == 0 && origin_ns.rem_euclid(step) == 0;
    let origin = i64::try_from(origin_ns.div_euclid(step)).ok()?;
    is_whole.then_some(Bucket {
        width: width_ns / step_ns,
        origin,
    })
}

/// The date and time that the clock shows so many nanoseconds after the beginning of 1970; `None` beyond the calendar.
pub(super) fn clock(ns: i128) -> Option<NaiveDateTime> {
    let second = i128::from(SECOND_NS);
    let seconds = i64::try_from(ns.div_euclid(second)).ok()?;
    let rest = u32::try_from(ns.rem_euclid(second)).ok()?;
    DateTime::from_timestamp(seconds, rest).map(|time| time.naive_utc())
}

/// A time so many months later, on the last day of a month that is too short.
fn shifted(time: NaiveDateTime, months: i64) -> Option<NaiveDateTime> {
    let by = Months::new(u32::try_from(months.unsigned_abs()).ok()?);
    match months {
        0.. => time.checked_add_months(by),
        _ => time.checked_sub_months(by),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> NaiveDateTime {
        text.parse().unwrap()
    }

    /// Where the group of a time begins, worked out in seconds.
    fn start(width: Width, at: &str) -> String {
        let groups = TimeGroups::new(width, TimeUnit::Second);
        let start = groups.start_of(time(at).and_utc().timestamp()).unwrap();
        groups.clock(start).unwrap().to_string()
    }

    #[test]
    fn months_begin_with_those_of_the_origin() {
        let from = |months, origin| Width::Months {
            months,
            origin: time(origin),
        };
        for (width, at, begins) in [
            (
                Width::months(1),
                "0001-01-01T00:00:00",
                "0001-01-01 00:00:00",
            ),
            (
                Width::months(1),
                "9999-12-31T23:59:59",
                "9999-12-01 00:00:00",
            ),
            (
                Width::months(3),
                "1066-10-14T12:00:00",
                "1066-10-01 00:00:00",
            ),
            (
                Width::months(12),
                "-0004-02-29T12:00:00",
                "-0004-01-01 00:00:00",
            ),
            (
                from(5, "2000-02-01T00:00:00"),
                "1999-12-31T00:00:00",
                "1999-09-01 00:00:00",
            ),
            // In the middle of a month, and at its end, which is earlier in short ones.
            (
                from(1, "2000-01-15T06:00:00"),
                "2500-03-15T05:59:59",
                "2500-02-15 06:00:00",
            ),
            (
                from(1, "2000-01-15T06:00:00"),
                "2500-03-15T06:00:00",
                "2500-03-15 06:00:00",
            ),
            (
                from(1, "2000-01-31T00:00:00"),
                "1500-03-30T00:00:00",
                "1500-02-28 00:00:00",
            ),
            (
                from(1, "2000-01-31T00:00:00"),
                "1500-03-31T00:00:00",
                "1500-03-31 00:00:00",
            ),
        ] {
            assert_eq!(start(width, at), begins, "{width:?} {at}");
        }
    }

    #[test]
    fn beginnings_between_two_steps_are_the_step_before() {
        let groups = TimeGroups::new(Width::fixed(1_500_000_000), TimeUnit::Second);
        let starts = (-4..=4).map(|value| groups.start_of(value).unwrap());
        assert_eq!(starts.collect::<Vec<_>>(), [-5, -3, -3, -2, 0, 0, 1, 3, 3]);
        let finer = TimeGroups::new(Width::fixed(1_000), TimeUnit::Millisecond);
        assert_eq!(finer.start_of(-7), Some(-7));
    }

    #[test]
    fn ends_of_types_and_of_the_calendar() {
        for unit in [
            TimeUnit::Second,
            TimeUnit::Millisecond,
            TimeUnit::Microsecond,
            TimeUnit::Nanosecond,
        ] {
            let day = TimeGroups::new(Width::fixed(DAY_SECONDS * SECOND_NS), unit);
            assert_eq!(day.start_of(i64::MIN), None, "{unit:?}");
            assert!(day.start_of(i64::MAX).is_some(), "{unit:?}");
            let month = TimeGroups::new(Width::months(1), unit);
            assert_eq!(month.start_of(i64::MIN), None, "{unit:?}");
            // Microseconds reach beyond the calendar.
            let is_on_calendar = unit == TimeUnit::Nanosecond;
            assert_eq!(
                month.start_of(i64::MAX).is_some(),
                is_on_calendar,
                "{unit:?}"
            );
        }
        let far = Width::Fixed {
            width_ns: 7,
            origin_ns: -62_135_596_800 * i128::from(SECOND_NS),
        };
        assert_eq!(
            TimeGroups::new(far, TimeUnit::Nanosecond).start_of(0),
            Some(-3)
        );
    }
}
