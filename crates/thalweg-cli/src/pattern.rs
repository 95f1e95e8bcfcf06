//! Patterns of `--time-format`.
//!
//! Invariant: a text is read whole, or not at all.

use chrono::NaiveDate;
use chrono::format::{Fixed, Item, Numeric, Parsed, StrftimeItems, parse, parse_and_remainder};

pub(crate) const DAY_NS: i128 = thalweg::time_units::DAY_NS as i128;

/// Most digits of a fraction of a second.
const NS_DIGITS: usize = 9;

/// Whether an item of a pattern belongs to the date.
fn is_of_date(item: &Item<'_>) -> bool {
    match item {
        Item::Numeric(number, _) => !matches!(
            number,
            Numeric::Hour
                | Numeric::Hour12
                | Numeric::Minute
                | Numeric::Second
                | Numeric::Nanosecond
        ),
        Item::Fixed(fixed) => matches!(
            fixed,
            Fixed::ShortMonthName | Fixed::LongMonthName | Fixed::RFC2822 | Fixed::RFC3339
        ),
        _ => false,
    }
}

/// A pattern of `--time-format`, in the syntax of `strftime`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pattern {
    text: String,
    items: Vec<Item<'static>>,
    /// Where `%f` and `%H` are among the items.
    fraction: Option<usize>,
    hour: Option<usize>,
    has_clock: bool,
    has_zone: bool,
    /// Whether it has hours but no minutes.
    is_by_hour: bool,
    /// Whether the pattern has no month, so that the first one is meant; for the day the same.
    lacks_month: bool,
    lacks_day: bool,
}

impl Pattern {
    /// Reads a pattern as users write it: `%f` is the fraction of a second, as in Python; with a point before it, both may be
    /// missing from a text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let refuse =
            || format!("\"{text}\" is no pattern of strftime, as \"%d.%m.%Y %H:%M:%S\" would be");
        let items = StrftimeItems::new(&text.replace(".%f", "%.f"))
            .parse_to_owned()
            .map_err(|_| refuse())?;
        let place = |wanted: &[Numeric]| {
            let is_wanted = |item: &Item<'_>| matches!(item, Item::Numeric(numeric, _) if wanted.contains(numeric));
            items.iter().position(is_wanted)
        };
        let (fraction, hour) = (place(&[Numeric::Nanosecond]), place(&[Numeric::Hour]));
        let (mut has_clock, mut has_zone, mut has_any) = (false, false, false);
        let mut has_date = false;
        let (mut has_hours, mut has_minutes) = (false, false);
        let (mut has_year, mut has_month, mut has_day) = (false, false, false);
        for item in &items {
            match item {
                Item::Numeric(Numeric::Hour | Numeric::Hour12, _) => {
                    (has_clock, has_hours) = (true, true);
                }
                Item::Numeric(Numeric::Minute, _) => has_minutes = true,
                Item::Numeric(Numeric::Timestamp, _) => {
                    (has_clock, has_year, has_month, has_day) = (true, true, true, true);
                }
                Item::Fixed(Fixed::RFC2822 | Fixed::RFC3339) => {
                    (has_clock, has_zone) = (true, true);
                    (has_year, has_month, has_day) = (true, true, true);
                }
                Item::Numeric(Numeric::Month, _)
                | Item::Fixed(Fixed::ShortMonthName | Fixed::LongMonthName) => has_month = true,
                Item::Numeric(Numeric::Day, _) => has_day = true,
                Item::Numeric(
                    Numeric::Ordinal
                    | Numeric::IsoWeek
                    | Numeric::WeekFromSun
                    | Numeric::WeekFromMon,
                    _,
                ) => (has_month, has_day) = (true, true),
                Item::Numeric(
                    Numeric::Year | Numeric::YearMod100 | Numeric::IsoYear | Numeric::IsoYearMod100,
                    _,
                ) => has_year = true,
                Item::Fixed(
                    Fixed::TimezoneOffset
                    | Fixed::TimezoneOffsetColon
                    | Fixed::TimezoneOffsetDoubleColon
                    | Fixed::TimezoneOffsetTripleColon
                    | Fixed::TimezoneOffsetColonZ
                    | Fixed::TimezoneOffsetZ,
                ) => has_zone = true,
                _ => {}
            }
            has_date |= is_of_date(item);
            has_any |= matches!(item, Item::Numeric(..) | Item::Fixed(_));
        }
        if !has_any {
            return Err(refuse());
        }
        if items.contains(&Item::Fixed(Fixed::TimezoneName)) {
            return Err(format!(
                "\"{text}\": %Z is the name of a zone, which is not read: %z reads offsets, as +01:00, and a name that all values have \
                 is written as it is, as \"%H:%M:%S CET\"; SQL makes instants of such times by AT TIME ZONE 'Europe/Berlin'"
            ));
        }
        if !has_date {
            return Err(format!(
                "\"{text}\" has no date, and a time without one orders nothing: the pattern takes the whole text of a column, \
                 as \"%Y-%m-%d %H:%M:%S\""
            ));
        }
        if !has_year {
            return Err(format!(
                "\"{text}\" has no year, and times of no year order nothing: %Y is the year, %y its last two digits"
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            fraction,
            hour,
            items,
            has_clock,
            has_zone,
            is_by_hour: has_hours && !has_minutes,
            lacks_month: !has_month && !has_day,
            lacks_day: !has_day,
        })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn has_clock(&self) -> bool {
        self.has_clock
    }

    pub(crate) fn has_zone(&self) -> bool {
        self.has_zone
    }

    /// Nanoseconds since the epoch, of UTC.
    pub(crate) fn ns(&self, text: &str) -> Option<i128> {
        self.plain_ns(text).or_else(|| self.end_of_day_ns(text))
    }

    /// Nanoseconds since the epoch of a text with the clock 24:00, the midnight at the end of its day.
    fn end_of_day_ns(&self, text: &str) -> Option<i128> {
        let before = &self.items[..self.hour?];
        let rest = parse_and_remainder(&mut Parsed::new(), text, before.iter()).ok()?;
        let rest = rest.trim_start();
        let begin = text.len() - rest.len();
        let midnight = format!("{}00{}", &text[..begin], rest.strip_prefix("24")?);
        let (_, clock_ns, _) = self.read(&midnight)?;
        let ns = self.plain_ns(&midnight)?;
        (clock_ns == 0).then_some(ns + DAY_NS)
    }

    fn plain_ns(&self, text: &str) -> Option<i128> {
        let (date, clock_ns, offset_s) = self.read(text)?;
        let offset_ns = i128::from(offset_s) * 1_000_000_000;
        Some(i128::from(days_since_epoch(date)) * DAY_NS + clock_ns - offset_ns)
    }

    /// Parses a text by the items of the pattern, with `%f` as any number of digits after the point of a second.
    fn read_items(&self, parsed: &mut Parsed, text: &str) -> Option<()> {
        let Some(place) = self.fraction else {
            return parse(parsed, text, self.items.iter()).ok();
        };
        let rest = parse_and_remainder(parsed, text, self.items[..place].iter()).ok()?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (fraction, rest) = rest.split_at(digits);
        let fraction = fraction.trim_end_matches('0');
        if digits == 0 || fraction.len() > NS_DIGITS {
            return None;
        }
        let ns = format!("{fraction:0<NS_DIGITS$}").parse().ok()?;
        parsed.set_nanosecond(ns).ok()?;
        parse(parsed, rest, self.items[place + 1..].iter()).ok()
    }

    /// The date, the nanoseconds of the clock, and the offset in seconds.
    fn read(&self, text: &str) -> Option<(NaiveDate, i128, i32)> {
        let mut parsed = Parsed::new();
        self.read_items(&mut parsed, text)?;
        if self.is_by_hour {
            parsed.set_minute(0).ok()?;
        }
        if self.lacks_month {
            parsed.set_month(1).ok()?;
        }
        if self.lacks_day {
            parsed.set_day(1).ok()?;
        }
        let offset_s = if self.has_zone {
            parsed.to_fixed_offset().ok()?.local_minus_utc()
        } else {
            0
        };
        let (date, clock_ns) = if self.has_clock {
            let time = parsed.to_naive_datetime_with_offset(offset_s).ok()?;
            let clock = time.time().signed_duration_since(chrono::NaiveTime::MIN);
            (time.date(), i128::from(clock.num_nanoseconds()?))
        } else {
            (parsed.to_naive_date().ok()?, 0)
        };
        Some((date, clock_ns, offset_s))
    }
}

/// The pattern of a text of digits that looks like a date, or a date and a time, of the years 1900 to 2099, with the
/// nanoseconds since the epoch that it stands for.
pub(crate) fn digits_pattern(text: &str) -> Option<(&'static str, i128)> {
    let pattern = match text.len() {
        8 => "%Y%m%d",
        12 => "%Y%m%d%H%M",
        14 => "%Y%m%d%H%M%S",
        _ => return None,
    };
    let century = text.get(..2)?;
    let is_ours = matches!(century, "19" | "20") && text.bytes().all(|byte| byte.is_ascii_digit());
    let ns = Pattern::parse(pattern).ok()?.ns(text).filter(|_| is_ours)?;
    Some((pattern, ns))
}

pub(crate) fn days_since_epoch(date: NaiveDate) -> i64 {
    date.signed_duration_since(NaiveDate::default()).num_days()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: i128 = 1_000_000_000;

    #[test]
    fn patterns() {
        let instant = 1_328_101_500 * SECOND_NS;
        for (pattern, text, wanted) in [
            ("%d.%m.%Y %H:%M", "01.02.2012 13:05", instant),
            ("%m/%d/%y %I:%M %p", "02/01/12 01:05 PM", instant),
            ("%Y%m%d", "20120201", instant / DAY_NS * DAY_NS),
            (
                "%Y-%m-%d %H:%M:%S.%f",
                "2012-02-01 13:05:00.25",
                instant + 250_000_000,
            ),
            (
                "%Y-%m-%d %H:%M:%S:%f",
                "2012-02-01 13:05:00:250",
                instant + 250_000_000,
            ),
            (
                "%Y-%m-%d %H:%M:%S,%f%z",
                "2012-02-01 15:05:00,5+0200",
                instant + 500_000_000,
            ),
            (
                "%Y%m%d%H%M%S%f",
                "20120201130500123456",
                instant + 123_456_000,
            ),
            (
                "%d.%m.%Y %H:%M",
                "31.01.2012 24:00",
                instant / DAY_NS * DAY_NS,
            ),
            ("%Y-%m-%dT%H:%M:%S%z", "2012-02-01T15:05:00+0200", instant),
            ("%s", "1328101500", instant),
            ("%Y%m%d %Hh", "20120201 13h", instant - 300 * SECOND_NS),
            ("%Y-%m", "2012-02", instant / DAY_NS * DAY_NS),
            ("%b %Y", "Feb 2012", instant / DAY_NS * DAY_NS),
            ("%Y", "2012", 15_340 * DAY_NS),
            ("%Y-%j", "2012-032", instant / DAY_NS * DAY_NS),
            ("%Y-%m-%d %H:%M:%S CET", "2012-02-01 13:05:00 CET", instant),
        ] {
            let pattern = Pattern::parse(pattern).unwrap();
            assert_eq!(pattern.ns(text), Some(wanted), "{pattern:?}");
        }
        for bad in ["%Q", "", "plain", "%", "%d.%m.", "%H:%M"] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
        for (pattern, text) in [
            ("%d.%m.%Y", "30.02.2012"),
            ("%d.%m.%Y %H:%M", "31.01.2012 24:01"),
            ("%d.%m.%Y %H:%M", "31.01.2012 25:00"),
            ("%Y-%m-%d %H:%M:%S,%f", "2012-02-01 13:05:00,"),
            ("%Y-%m-%d %H:%M:%S,%f", "2012-02-01 13:05:00,0000000001"),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().ns(text), None, "{text}");
        }
    }
}
