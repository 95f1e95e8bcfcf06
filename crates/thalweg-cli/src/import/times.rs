//! Times as files write them: year first or last, months by number or name, patterns that the user gives.
//!
//! Invariants
//! - A text has one meaning, or two where the year is last and day and month can be exchanged: no other guess is made.
//! - Digits after a second are kept: nothing is rounded.

use crate::pattern::{DAY_NS, days_since_epoch};
use chrono::NaiveDate;

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

const WEEKDAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

/// Whether day or month comes first in dates with the year last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    DayFirst,
    MonthFirst,
}

pub(super) const ORDERS: [Order; 2] = [Order::DayFirst, Order::MonthFirst];

impl Order {
    /// The pattern of `--time-format` that reads a date in this order, and the clock after it where there is one.
    pub(super) fn pattern(self, example: &str) -> String {
        let half = ["AM", "PM", "am", "pm"]
            .into_iter()
            .find(|half| example.ends_with(half));
        let [first, second] = match self {
            Self::DayFirst => ["%d", "%m"],
            Self::MonthFirst => ["%m", "%d"],
        };
        let hour = if half.is_some() { "%I" } else { "%H" };
        let mut fields = [first, second, "%Y", hour, "%M", "%S", "%f"].into_iter();
        let mut pattern = String::new();
        let mut rest = half.map_or(example, |half| example.trim_end_matches(half));
        while let Some(c) = rest.chars().next() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits > 0 {
                pattern.push_str(fields.next().unwrap_or_default());
            } else if matches!(c, '+' | '-') && pattern.contains(hour) {
                pattern.push_str("%z");
                break;
            } else {
                pattern.push(c);
            }
            rest = &rest[digits.max(c.len_utf8())..];
        }
        pattern.push_str(half.map_or("", |_| "%p"));
        pattern
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Day {
    /// Days since the epoch.
    Known(i64),
    /// Two readings, for day first and for month first; `None` where that reading is no valid date.
    ByOrder([Option<i64>; 2]),
}

/// A time as it was read from a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeText {
    day: Day,
    /// Nanoseconds since midnight; `None` for a date.
    clock_ns: Option<i64>,
    /// Seconds east of Greenwich.
    offset_s: Option<i32>,
}

impl TimeText {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut scan = Scan(text.trim_ascii().as_bytes());
        scan.weekday();
        if let Some(time) = scan.year_at_the_end() {
            return Some(time);
        }
        let basic = scan.basic_day();
        let is_basic = basic.is_some();
        let mut time = Self {
            day: match basic {
                Some(day) => day?,
                None => scan.day()?,
            },
            clock_ns: None,
            offset_s: None,
        };
        if scan.before_clock() {
            time.clock_ns = Some(if is_basic {
                scan.basic_clock_ns()?
            } else {
                scan.clock_ns()?
            });
            time.offset_s = scan.offset_s()?;
        }
        scan.0.is_empty().then_some(time)
    }

    pub(super) fn has_clock(&self) -> bool {
        self.clock_ns.is_some()
    }

    pub(super) fn has_zone(&self) -> bool {
        self.offset_s.is_some()
    }

    /// Whether only the order tells day from month, so that the order has to be known.
    pub(super) fn needs_order(&self) -> bool {
        matches!(self.day, Day::ByOrder(_))
    }

    /// Whether it is another day in each of the two orders.
    pub(super) fn is_ambiguous(&self) -> bool {
        matches!(self.day, Day::ByOrder([Some(one), Some(other)]) if one != other)
    }

    pub(super) fn fits(&self, order: Order) -> bool {
        self.days(order).is_some()
    }

    /// Nanoseconds since the epoch, of UTC.
    pub(super) fn ns(&self, order: Order) -> Option<i128> {
        let days = i128::from(self.days(order)?);
        let offset_ns = i128::from(self.offset_s.unwrap_or(0)) * 1_000_000_000;
        Some(days * DAY_NS + i128::from(self.clock_ns.unwrap_or(0)) - offset_ns)
    }

    fn days(&self, order: Order) -> Option<i64> {
        match (self.day, order) {
            (Day::Known(days), _) => Some(days),
            (Day::ByOrder([days, _]), Order::DayFirst)
            | (Day::ByOrder([_, days]), Order::MonthFirst) => days,
        }
    }
}

fn days_of(year: u32, month: u32, day: u32) -> Option<i64> {
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
    Some(days_since_epoch(date))
}

fn clock_ns(hour: u32, minute: u32, second: u32, fraction_ns: i64) -> Option<i64> {
    // The end of a day, which is the beginning of the next one.
    let is_midnight = (hour, minute, second, fraction_ns) == (24, 0, 0, 0);
    (hour < 24 && minute < 60 && second < 60 || is_midnight)
        .then(|| i64::from(hour * 3_600 + minute * 60 + second) * 1_000_000_000 + fraction_ns)
}

/// The name of a zone at the end of a time, as `CET` and `Europe/Berlin`.
pub(super) fn zone_name(text: &str) -> Option<&str> {
    let (time, zone) = text.trim_ascii().rsplit_once(' ')?;
    let is_name = |c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '_');
    let is_zone = zone.len() >= 3 && zone.chars().all(is_name);
    (is_zone && TimeText::parse(time).is_some_and(|time| time.has_clock() && !time.has_zone()))
        .then_some(zone)
}

/// The reason why a text that looks like a time is none, and the option that reads it.
pub(super) fn unread_time(text: &str) -> Option<String> {
    if let Some(zone) = zone_name(text) {
        return Some(format!(
            "{zone} is the name of a zone, which is not read; --time-format, as '%Y-%m-%d %H:%M:%S {zone}', takes the clock as it is"
        ));
    }
    let (time, zone) = text.split_once('[').unwrap_or((text, ""));
    if zone.ends_with(']') && TimeText::parse(time).is_some() {
        let offset = if time.ends_with('Z') { "Z" } else { "%:z" };
        return Some(format!(
            "the name of a zone in brackets is not read; --time-format, as '%Y-%m-%dT%H:%M:%S{offset}[{zone}', reads what is before it"
        ));
    }
    let date = text.split([' ', 'T']).next()?;
    let sign = date.chars().find(|c| matches!(c, '.' | '/' | '-'))?;
    let parts: Vec<&str> = date.split(sign).collect();
    let is_short =
        |part: &&str| (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    (parts.len() == 3 && parts.iter().all(is_short)).then(|| {
        let clock = match text[date.len()..].matches(':').count() {
            0 => "",
            1 => " %H:%M",
            _ => " %H:%M:%S",
        };
        let order = if sign == '/' {
            ["%m", "%d"]
        } else {
            ["%d", "%m"]
        };
        format!(
            "years of two digits are read with --time-format, as '{}{sign}{}{sign}%y{clock}'",
            order[0], order[1]
        )
    })
}

/// The rest of a text, still to be read.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn take(&mut self, accepted: impl Fn(u8) -> bool) -> Option<u8> {
        let first = self.peek().filter(|byte| accepted(*byte))?;
        self.0 = &self.0[1..];
        Some(first)
    }

    fn spaces(&mut self) -> bool {
        let before = self.0.len();
        self.0 = self.0.trim_ascii_start();
        self.0.len() < before
    }

    /// Reads a number of at most `most` digits that no further digit follows; returns it and its number of digits.
    fn number(&mut self, most: usize) -> Option<(u32, usize)> {
        let digits = self
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if digits == 0 || digits > most {
            return None;
        }
        let number = self.0[..digits]
            .iter()
            .fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
        self.0 = &self.0[digits..];
        Some((number, digits))
    }

    fn exactly(&mut self, wanted: usize) -> Option<u32> {
        self.number(wanted)
            .filter(|(_, digits)| *digits == wanted)
            .map(|(number, _)| number)
    }

    /// A month by its English name, or the first three letters or more of it.
    fn month_name(&mut self) -> Option<u32> {
        let letters = self.letters();
        let name = self.0[..letters].to_ascii_lowercase();
        if letters < 3 {
            return None;
        }
        let month = (1..)
            .zip(MONTHS)
            .find(|(_, month)| month.as_bytes().starts_with(&name))?;
        self.0 = &self.0[letters..];
        // `Sept.`
        self.take(|byte| byte == b'.');
        Some(month.0)
    }

    /// Skips a weekday, as `Mon` or `Monday,`, if more text follows.
    fn weekday(&mut self) {
        let letters = self.letters();
        let name = self.0[..letters].to_ascii_lowercase();
        let is_it = |day: &&str| letters >= 3 && day.as_bytes().starts_with(&name);
        let rest = self.0[letters..].strip_prefix(b",");
        let rest = rest.unwrap_or(&self.0[letters..]);
        if WEEKDAYS.iter().any(is_it) && rest.starts_with(b" ") {
            self.0 = rest.trim_ascii_start();
        }
    }

    fn letters(&self) -> usize {
        let letters = self.0.iter();
        letters
            .take_while(|byte| byte.is_ascii_alphabetic())
            .count()
    }

    /// `Jan  1 00:00:00 2024` and `Jan 1 00:00:00 UTC 2024`, as C and `date` write times; nothing else is touched.
    fn year_at_the_end(&mut self) -> Option<TimeText> {
        let mut scan = Scan(self.0);
        let month = scan.month_name()?;
        scan.between_words()?;
        let (day, _) = scan.number(2)?;
        scan.between_words()?;
        let clock_ns = scan.clock_ns()?;
        scan.between_words()?;
        let mut offset_s = None;
        for name in [&b"utc"[..], b"gmt"] {
            let zone = scan.0.get(..name.len());
            if zone.is_some_and(|zone| zone.eq_ignore_ascii_case(name)) {
                scan.0 = &scan.0[name.len()..];
                scan.between_words()?;
                offset_s = Some(0);
            }
        }
        let year = scan.exactly(4)?;
        let day = days_of(year, month, day).map(Day::Known)?;
        (scan.0.is_empty()).then_some(TimeText {
            day,
            clock_ns: Some(clock_ns),
            offset_s,
        })
    }

    /// Reads `20000131T`, a date of ISO 8601 without separators; without the `T` it would be a number. `Some(None)` if there is no
    /// such day.
    fn basic_day(&mut self) -> Option<Option<Day>> {
        let (digits, rest) = self.0.split_at_checked(8)?;
        let is_basic = digits.iter().all(u8::is_ascii_digit) && rest.starts_with(b"T");
        if !is_basic {
            return None;
        }
        let number = |digits: &[u8]| {
            let digits = digits.iter();
            digits.fold(0, |number, digit| number * 10 + u32::from(digit - b'0'))
        };
        self.0 = rest;
        let day = days_of(
            number(&digits[..4]),
            number(&digits[4..6]),
            number(&digits[6..]),
        );
        Some(day.map(Day::Known))
    }

    /// `131500`, `1315`, with digits after a second.
    fn basic_clock_ns(&mut self) -> Option<i64> {
        let (number, digits) = self.number(6)?;
        let (hour, minute, second) = match digits {
            6 => (number / 10_000, number / 100 % 100, number % 100),
            4 => (number / 100, number % 100, 0),
            _ => return None,
        };
        let mut fraction_ns = 0;
        if digits == 6 && self.take(|byte| matches!(byte, b'.' | b',')).is_some() {
            fraction_ns = self.fraction_ns()?;
        }
        clock_ns(hour, minute, second, fraction_ns)
    }

    fn is_at_letter(&self) -> bool {
        self.peek().is_some_and(|byte| byte.is_ascii_alphabetic())
    }

    fn day(&mut self) -> Option<Day> {
        if self.is_at_letter() {
            return self.month_day_year();
        }
        let (first, digits) = self.number(4)?;
        match digits {
            4 => self.after_year(first),
            1 | 2 => self.after_day_or_month(first),
            _ => None,
        }
    }

    /// `Jan 1 2000`, `January 1, 2000`.
    fn month_day_year(&mut self) -> Option<Day> {
        let month = self.month_name()?;
        self.between_words()?;
        let (day, _) = self.number(2)?;
        self.take(|byte| byte == b',');
        self.between_words()?;
        let year = self.exactly(4)?;
        days_of(year, month, day).map(Day::Known)
    }

    /// `2000-01-31`, `2000/1/31`, `2000.01.31`, `2000-Jan-31`.
    fn after_year(&mut self, year: u32) -> Option<Day> {
        let separator = self.take(|byte| matches!(byte, b'-' | b'/' | b'.'))?;
        let month = if self.is_at_letter() {
            self.month_name()?
        } else {
            self.number(2)?.0
        };
        self.take(|byte| byte == separator)?;
        let (day, _) = self.number(2)?;
        days_of(year, month, day).map(Day::Known)
    }

    /// `31.01.2000`, `1/31/2000`, `31-Jan-2000`, `31 January 2000`.
    fn after_day_or_month(&mut self, first: u32) -> Option<Day> {
        let separator = self.take(|byte| matches!(byte, b'-' | b'/' | b'.' | b' '))?;
        self.spaces();
        if self.is_at_letter() {
            let month = self.month_name()?;
            self.take(|byte| byte == b',');
            self.between_words()?;
            let year = self.exactly(4)?;
            return days_of(year, month, first).map(Day::Known);
        }
        if separator == b' ' {
            return None;
        }
        let (second, _) = self.number(2)?;
        self.take(|byte| byte == separator)?;
        let year = self.exactly(4)?;
        let orders = [days_of(year, second, first), days_of(year, first, second)];
        orders
            .iter()
            .any(Option::is_some)
            .then_some(Day::ByOrder(orders))
    }

    fn between_words(&mut self) -> Option<()> {
        let separated = self.take(|byte| matches!(byte, b'-' | b'/')).is_some();
        (self.spaces() || separated).then_some(())
    }

    /// Skips the separator of a date and a clock; returns `false` at the end of the text.
    fn before_clock(&mut self) -> bool {
        if self.0.is_empty() {
            return false;
        }
        if self.take(|byte| matches!(byte, b'T' | b't')).is_none() {
            self.take(|byte| byte == b',');
            if self.spaces() && self.take(|byte| byte == b'@').is_some() {
                self.spaces();
            }
        }
        true
    }

    fn clock_ns(&mut self) -> Option<i64> {
        let (mut hour, _) = self.number(2)?;
        self.take(|byte| byte == b':')?;
        // Microcontrollers write `9:5:3`.
        let (minute, minute_digits) = self.number(2)?;
        let (mut second, mut fraction_ns) = (0, 0);
        let has_seconds = self.take(|byte| byte == b':').is_some();
        if minute_digits == 1 && !has_seconds {
            return None;
        }
        if has_seconds {
            (second, _) = self.number(2)?;
            if self.take(|byte| matches!(byte, b'.' | b',')).is_some() {
                fraction_ns = self.fraction_ns()?;
            }
        }
        if let Some(half) = self.half_of_day() {
            if !(1..=12).contains(&hour) {
                return None;
            }
            hour = hour % 12 + half;
        }
        clock_ns(hour, minute, second, fraction_ns)
    }

    /// Digits after a second; more than nine only if they are zeros.
    fn fraction_ns(&mut self) -> Option<i64> {
        let (mut ns, mut step_ns, mut any) = (0, 100_000_000, false);
        while let Some(digit) = self.take(|byte| byte.is_ascii_digit()) {
            if step_ns == 0 && digit != b'0' {
                return None;
            }
            ns += i64::from(digit - b'0') * step_ns;
            step_ns /= 10;
            any = true;
        }
        any.then_some(ns)
    }

    /// Hours that `AM` or `PM` adds.
    fn half_of_day(&mut self) -> Option<u32> {
        let rest = self.0.trim_ascii_start();
        let [letter, b'M' | b'm', after @ ..] = rest else {
            return None;
        };
        let hours = match letter {
            b'A' | b'a' => 0,
            b'P' | b'p' => 12,
            _ => return None,
        };
        self.0 = after;
        Some(hours)
    }

    /// Seconds of the zone, if there is one; `None` where something else follows.
    fn offset_s(&mut self) -> Option<Option<i32>> {
        self.spaces();
        if self.0.is_empty() {
            return Some(None);
        }
        for name in ["utc", "gmt", "z"] {
            if self.0.eq_ignore_ascii_case(name.as_bytes()) {
                self.0 = &[];
                return Some(Some(0));
            }
        }
        let sign = match self.take(|byte| matches!(byte, b'+' | b'-'))? {
            b'-' => -1,
            _ => 1,
        };
        let (number, digits) = self.number(4)?;
        let (hours, minutes) = match digits {
            4 => (number / 100, number % 100),
            1 | 2 if self.take(|byte| byte == b':').is_some() => (number, self.exactly(2)?),
            1 | 2 => (number, 0),
            _ => return None,
        };
        let seconds = i32::try_from(hours * 3_600 + minutes * 60).ok()?;
        (hours < 24 && minutes < 60).then_some(Some(sign * seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;

    const SECOND_NS: i128 = 1_000_000_000;

    fn ns(text: &str, order: Order) -> Option<i128> {
        TimeText::parse(text)?.ns(order)
    }

    #[test]
    fn the_pattern_of_an_order_reads_its_times() {
        for example in [
            "01/02/2012",
            "1.2.2012 13:05",
            "01-02-2012 13:05:00.25",
            "01/02/2012 1:05 PM",
            "01/02/2012 1:05:00PM",
            "01/02/2012T13:05:00+0200",
            "01/02/2012 13:05:00Z",
        ] {
            for order in ORDERS {
                let pattern = order.pattern(example);
                let read = Pattern::parse(&pattern).unwrap().ns(example);
                assert!(read.is_some(), "{example} as {pattern}");
            }
        }
    }

    #[test]
    fn one_instant_in_many_writings() {
        // 2012-02-01T13:05:00 UTC.
        let instant = 1_328_101_500 * SECOND_NS;
        for text in [
            "2012-02-01T13:05:00",
            "2012-02-01 13:05",
            "2012-2-1 13:5:0",
            "2012/02/01 13:05:00",
            "2012/2/1 13:05",
            "2012.02.01 13:05:00.000",
            "01.02.2012 13:05:00",
            "1/2/2012 1:05 PM",
            "1/2/2012, 1:05:00 pm",
            "01-02-2012 13:05",
            "Feb 1 2012 13:05",
            "Feb 1, 2012 @ 13:05:00.000",
            "February 1, 2012 13:05:00",
            "1 Feb 2012 13:05",
            "01-Feb-2012 13:05",
            "2012-Feb-01 13:05",
            "2012-02-01T13:05:00Z",
            "2012-02-01 13:05:00 UTC",
            "2012-02-01T15:05:00+02:00",
            "2012-02-01T08:05:00 -0500",
            "2012-02-01T12:05:00-01",
            "20120201T130500Z",
            "20120201T1305",
            "20120201T150500.000+0200",
            "Wed Feb  1 13:05:00 2012",
            "Wed Feb 01 13:05:00 UTC 2012",
            "Feb 1 13:05:00 2012",
            "Wed, 01 Feb 2012 13:05:00 +0000",
            "Wednesday, February 1, 2012 13:05:00 GMT",
        ] {
            assert_eq!(ns(text, Order::DayFirst), Some(instant), "{text}");
        }
        assert_eq!(ns("2/1/2012 13:05", Order::MonthFirst), Some(instant));
        let fraction = ns("2012-02-01T13:05:00.123456789", Order::DayFirst);
        assert_eq!(fraction, Some(instant + 123_456_789));
    }

    #[test]
    fn what_is_no_time() {
        for text in [
            "",
            "2012",
            "12:00",
            "2012-02-30",
            "2012-13-01",
            "2012-02-01T",
            "2012-02-01T25:00",
            "2012-02-01T12:60",
            "2012-02-01 12",
            "1.5.12",
            "13/13/2012",
            "Foo 1 2000",
            "1.2",
            "2012-02/01",
            "2012-02-01T12:00:00+",
            "2012-02-01T12:00:00.1234567891",
            "Ma 1 2000",
            "0:30 PM",
            "1/2/2012 0:30 PM",
            "20120201",
            "192.168.2012",
            "1 2 2012",
            "20120230T000000Z",
            "20120201T1",
            "20120201T250000",
            "Wed",
            "Wednesdays 2012-02-01",
            "Feb 30 13:05:00 2012",
            "2012-02-01 13:05:00 CET",
        ] {
            assert_eq!(TimeText::parse(text), None, "{text}");
        }
    }

    #[test]
    fn order_of_day_and_month() {
        let of = |text: &str| TimeText::parse(text).unwrap();
        assert!(of("01/02/2012").is_ambiguous() && of("01/02/2012").needs_order());
        assert!(!of("02/02/2012").is_ambiguous());
        assert!(
            of("13/02/2012").fits(Order::DayFirst) && !of("13/02/2012").fits(Order::MonthFirst)
        );
        assert!(
            of("02/13/2012").fits(Order::MonthFirst) && !of("02/13/2012").fits(Order::DayFirst)
        );
        assert!(!of("2012-01-02").needs_order());
        assert_eq!(Order::MonthFirst.pattern("1-2-2012"), "%m-%d-%Y");
    }

    #[test]
    fn zones_by_name() {
        for (text, zone) in [
            ("2012-02-01 13:05:00 CET", Some("CET")),
            ("2012-02-01 13:05:00 Europe/Berlin", Some("Europe/Berlin")),
            ("2012-02-01 13:05:00 UTC", Some("UTC")),
            ("2012-02-01 13:05:00 PM", None),
            ("2012-02-01 CET", None),
            ("a CET", None),
        ] {
            assert_eq!(zone_name(text), zone, "{text}");
        }
    }
}
