//! Lengths of time from text: ISO 8601 as the command line prints them, and `hours:minutes:seconds`.
//!
//! Invariant: a text is read whole and without loss, or not at all. Years and months are refused: they are no length of time.

use arrow_schema::TimeUnit;
use thalweg::time_units::unit_ns;

const SECOND_NS: i128 = 1_000_000_000;
/// Digits after the point of seconds.
const MAX_DIGITS: usize = 9;

/// Parses a text as a length of time, in steps of `unit`.
pub(super) fn length(text: &str, unit: TimeUnit) -> Option<i64> {
    let (text, sign) = match text.strip_prefix('-') {
        Some(text) => (text, -1),
        None => (text.strip_prefix('+').unwrap_or(text), 1),
    };
    let ns = match text.strip_prefix(['P', 'p']) {
        Some(parts) => of_iso(parts)?,
        None => of_clock(text)?,
    };
    let unit_ns = i128::from(unit_ns(unit));
    (ns % unit_ns == 0)
        .then(|| i64::try_from(sign * ns / unit_ns).ok())
        .flatten()
}

/// Nanoseconds of an ISO 8601 duration without its `P`: `1DT2H3M4.5S`, `2W`.
fn of_iso(parts: &str) -> Option<i128> {
    let (date, clock) = match parts.split_once(['T', 't']) {
        Some((date, clock)) => (date, Some(clock)),
        None => (parts, None),
    };
    let is_empty = match clock {
        Some(clock) => clock.is_empty(),
        None => date.is_empty(),
    };
    if is_empty {
        return None;
    }
    let days = of_parts(date, &[('W', 7 * 86_400), ('D', 86_400)])?;
    let rest = of_parts(
        clock.unwrap_or_default(),
        &[('H', 3_600), ('M', 60), ('S', 1)],
    )?;
    days.checked_add(rest)
}

/// Numbers with their units in nanoseconds, the units in this order.
fn of_parts(mut text: &str, mut units: &[(char, i128)]) -> Option<i128> {
    let mut ns = 0_i128;
    while !text.is_empty() {
        let at = text.find(|c: char| c.is_ascii_alphabetic())?;
        let unit = text[at..].chars().next()?.to_ascii_uppercase();
        let place = units.iter().position(|(name, _)| *name == unit)?;
        ns = ns.checked_add(seconds_ns(&text[..at])?.checked_mul(units[place].1)?)?;
        units = &units[place + 1..];
        text = &text[at + 1..];
    }
    Some(ns)
}

/// `1:02:03.5`.
fn of_clock(text: &str) -> Option<i128> {
    let (hours, rest) = text.split_once(':')?;
    let (minutes, seconds) = rest.split_once(':')?;
    let hours: u32 = hours.parse().ok()?;
    let of_sixty = |ns: &i128| *ns < 60 * SECOND_NS;
    let minutes = seconds_ns(minutes).filter(of_sixty)?;
    let seconds = seconds_ns(seconds).filter(of_sixty)?;
    (minutes % SECOND_NS == 0)
        .then_some(i128::from(hours) * 3_600 * SECOND_NS + minutes * 60 + seconds)
}

/// Nanoseconds of a number of seconds, with a point or without one.
fn seconds_ns(number: &str) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let fraction = fraction.trim_end_matches('0');
    if whole.is_empty()
        || !are_digits(whole)
        || !are_digits(fraction)
        || fraction.len() > MAX_DIGITS
    {
        return None;
    }
    format!("{whole}{fraction:0<MAX_DIGITS$}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read() {
        for (text, seconds) in [
            ("PT5400S", Some(5_400)),
            ("-PT5400S", Some(-5_400)),
            ("P1DT2H3M4S", Some(93_784)),
            ("P2W", Some(1_209_600)),
            ("pt1.5m", Some(90)),
            ("1:30:00", Some(5_400)),
            ("-100:00:01", Some(-360_001)),
            ("PT0.5S", None),
            ("P", None),
            ("PT", None),
            ("P1DT", None),
            ("P1Y", None),
            ("P1M", None),
            ("PT1S2M", None),
            ("PT1", None),
            ("PTS", None),
            ("1:60:00", None),
            ("1:00", None),
            ("90", None),
            ("", None),
            ("PT99999999999999999999999999999999999999S", None),
        ] {
            assert_eq!(length(text, TimeUnit::Second), seconds, "{text}");
        }
        assert_eq!(length("PT0.5S", TimeUnit::Millisecond), Some(500));
        assert_eq!(length("PT0.0000000001S", TimeUnit::Nanosecond), None);
    }
}
