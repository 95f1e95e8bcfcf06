//! Retention: for how long the rows of a table stay, by the time that orders them and the wall clock.
//!
//! Invariants: a row has expired when its time is before now less the period, and never at it; this is computed in nanoseconds, so that
//! no unit or extreme overflows. A period is a whole number of steps of the time column. Nothing here deletes: see
//! `expired_rows` for that.

use crate::error::invalid;
use crate::range::KeyRange;
use crate::schema::shown_type;
use crate::time::{length_to_text, parse_length, step_ns};
use arrow_schema::DataType;
use std::time::Duration;
use thalweg_kernel::Result;

/// A job leaves expired rows alone until the oldest is older than the period by this part of it, so that it deletes many at once, ...
const SLACK_PART: i128 = 100;
/// ... and by at least ...
const MIN_SLACK: Duration = Duration::from_secs(1);
/// ... and at most this time.
const MAX_SLACK: Duration = Duration::from_secs(3_600);

/// For how long the rows of a table stay.
///
/// ```
/// # fn main() -> thalweg_table::Result<()> {
/// use thalweg_table::{CreateOptions, Layouts, TableDefinition, schema::schema_of_names};
///
/// let schema = schema_of_names([("ts", "timestamp(s)"), ("temp", "double")])?;
/// let options = CreateOptions::stream("ts").with("retention", "90 days");
/// let definition = TableDefinition::create(&Layouts::default(), &schema, &options)?;
/// let retention = definition.retention().unwrap();
/// assert_eq!(retention.to_text(), "90 days");
/// // Half a second after 1970-04-01T00:00:00: the row of midnight on January 1 has expired, that of a second later stays.
/// assert_eq!(retention.first_kept(90 * 86_400_000_000_000 + 500_000_000), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The period in steps of the time column.
    age: i64,
    /// Nanoseconds of a step.
    step_ns: i128,
}

impl Retention {
    /// A period of so many steps of a time column of this type.
    ///
    /// # Errors
    /// `Invalid` where it is not longer than 0, or the type has no unit of time.
    pub(crate) fn new(age: i64, data_type: &DataType) -> Result<Self> {
        let step_ns = step_ns(data_type).ok_or_else(|| {
            invalid(format!(
                "retention needs a time column of dates or timestamps, to compare with the clock: {} has no unit of time",
                shown_type(data_type)
            ))
        })?;
        if age <= 0 {
            return Err(invalid(format!(
                "a retention of {age} is not longer than 0"
            )));
        }
        Ok(Self { age, step_ns })
    }

    /// A period as users write it, for a time column of this type: "90 days", "2 weeks", "36 hours".
    ///
    /// # Errors
    /// `Invalid` for what is no length of time or not a whole number of the column's steps, and as [`Self::new`].
    pub(crate) fn parse(text: &str, data_type: &DataType) -> Result<Self> {
        // Whether the type has a unit comes first: no period is right for one that has not.
        let Self { step_ns, .. } = Self::new(1, data_type)?;
        let period = parse_length(text).map_err(|error| match misread(text) {
            Some(reason) => not_a_period(text, reason),
            None => invalid(format!("retention: {}", error.message())),
        })?;
        let period_ns = i128::try_from(period.as_nanos()).unwrap_or(i128::MAX);
        let age = (period_ns % step_ns == 0).then(|| i64::try_from(period_ns / step_ns).ok());
        let age = age.flatten().ok_or_else(|| {
            let steps = shown_type(data_type);
            not_a_period(
                text,
                &format!("it is not a whole number of steps of {steps}"),
            )
        })?;
        Self::new(age, data_type)
    }

    /// The period as users write it.
    #[must_use]
    pub fn to_text(self) -> String {
        length_to_text(self.period_ns())
    }

    /// The period in steps of the time column.
    #[must_use]
    pub fn age(self) -> i64 {
        self.age
    }

    /// The smallest order key that stays at a time in nanoseconds since 1970 UTC.
    #[must_use]
    pub fn first_kept(self, now_unix_ns: i64) -> i64 {
        self.first_kept_at(now_unix_ns.into())
    }

    fn first_kept_at(self, now_unix_ns: i128) -> i64 {
        let since_ns = now_unix_ns - self.period_ns();
        // Rounded up: the step before it began earlier.
        let key = -(-since_ns).div_euclid(self.step_ns);
        i64::try_from(key).unwrap_or(if key < 0 { i64::MIN } else { i64::MAX })
    }

    /// How much older than the period the oldest row is when a job deletes those that have expired.
    #[must_use]
    pub fn slack(self) -> Duration {
        let slack_ns = u64::try_from(self.period_ns() / SLACK_PART).unwrap_or(u64::MAX);
        Duration::from_nanos(slack_ns).clamp(MIN_SLACK, MAX_SLACK)
    }

    /// Whether the row with the smallest key, if there are rows, has been expired for longer than `slack`.
    pub(crate) fn is_due(self, first_key: Option<i64>, now_unix_ns: i64, slack: Duration) -> bool {
        let slack_ns = i128::try_from(slack.as_nanos()).unwrap_or(i128::MAX >> 1);
        let first_kept = self.first_kept_at(i128::from(now_unix_ns) - slack_ns);
        first_key.is_some_and(|first| first < first_kept)
    }

    /// The keys of all rows that have expired.
    pub(crate) fn expired(self, now_unix_ns: i64) -> KeyRange {
        KeyRange::half_open(None, Some(self.first_kept(now_unix_ns)))
    }

    fn period_ns(self) -> i128 {
        i128::from(self.age) * self.step_ns
    }
}

fn not_a_period(text: &str, reason: &str) -> thalweg_kernel::Error {
    invalid(format!("retention is \"{text}\": {reason}"))
}

/// The reason why a text is no length of time, if it is known.
fn misread(text: &str) -> Option<&'static str> {
    let text = text.trim().to_ascii_lowercase();
    let unit = text.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    let calendar = ["mon", "quarter", "y", "decade", "centur"];
    if calendar.iter().any(|name| unit.starts_with(name)) {
        return Some("months and years differ in length: give it in days or weeks, as \"90 days\"");
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let is_zero = digits > 0 && text[..digits].bytes().all(|digit| digit == b'0');
    (is_zero || text.starts_with('-')).then_some("it must be longer than 0, as \"90 days\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::TimeUnit;

    const DAY_NS: i64 = 86_400_000_000_000;

    fn of(text: &str, data_type: &DataType) -> Retention {
        let retention = Retention::parse(text, data_type).unwrap();
        let again = Retention::parse(&retention.to_text(), data_type).unwrap();
        assert_eq!(again, retention);
        retention
    }

    #[test]
    fn a_row_at_the_limit_stays_whatever_the_unit() {
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        let now = 100 * DAY_NS;
        assert_eq!(of("1 day", &seconds).first_kept(now), 99 * 86_400);
        assert_eq!(of("1 day", &seconds).first_kept(now - 1), 99 * 86_400);
        assert_eq!(of("1 day", &seconds).first_kept(now + 1), 99 * 86_400 + 1);
        assert_eq!(
            of("week", &nanoseconds).first_kept(now + 1),
            93 * DAY_NS + 1
        );
        assert_eq!(of("2 weeks", &DataType::Date32).first_kept(now), 86);
        assert_eq!(of("2 weeks", &DataType::Date32).first_kept(now + 1), 87);
    }

    #[test]
    fn no_clock_overflows() {
        let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let long = of("106751 days", &nanoseconds);
        assert_eq!(long.first_kept(i64::MIN), i64::MIN);
        assert!(long.first_kept(i64::MAX) > 0);
        // Nothing lies below the smallest key.
        assert!(!long.is_due(Some(i64::MIN), i64::MIN, MAX_SLACK));
        assert!(long.expired(i64::MIN).is_empty());
        let longest = Retention::new(i64::MAX, &DataType::Timestamp(TimeUnit::Second, None));
        assert!(longest.unwrap().first_kept(i64::MAX) < -i64::MAX / 2);
    }

    #[test]
    fn jobs_wait_for_a_part_of_the_period() {
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        let slack = |text| of(text, &seconds).slack().as_secs();
        assert_eq!(
            ["10 seconds", "1 hour", "1 day", "90 days"].map(slack),
            [1, 36, 864, 3_600]
        );
        let hour = of("1 hour", &seconds);
        let is_due = |now_s: i64, slack| hour.is_due(Some(0), now_s * 1_000_000_000, slack);
        assert!(!is_due(3_600, Duration::ZERO) && is_due(3_601, Duration::ZERO));
        assert!(!is_due(3_636, hour.slack()) && is_due(3_637, hour.slack()));
        let all = KeyRange::half_open(None, Some(37));
        assert_eq!(hour.expired(3_637_000_000_000), all);
        assert!(!hour.is_due(None, i64::MAX, Duration::ZERO));
    }

    #[test]
    fn what_is_no_period_is_refused_with_the_reason() {
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        for (text, data_type, part) in [
            ("3 months", &seconds, "days or weeks"),
            ("1 year", &seconds, "days or weeks"),
            ("2y", &seconds, "days or weeks"),
            ("0 days", &seconds, "longer than 0"),
            ("-1 day", &seconds, "longer than 0"),
            ("soon", &seconds, "not a length of time"),
            ("90", &seconds, "not a length of time"),
            ("", &seconds, "not a length of time"),
            ("1000 years", &seconds, "days or weeks"),
            ("250 ms", &seconds, "not a whole number of steps"),
            ("36 hours", &DataType::Date32, "not a whole number of steps"),
            ("1 day", &DataType::Int64, "no unit of time"),
            ("3 months", &DataType::UInt8, "no unit of time"),
        ] {
            let error = Retention::parse(text, data_type).unwrap_err();
            assert!(error.message().contains(part), "{text}: {error}");
        }
    }
}
