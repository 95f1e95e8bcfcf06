//! Numbers in text.
//!
//! Invariant: text with leading zeros, or with more digits than an integer has, is not a number, except for leading zeros in a
//! column that does not hold codes ([`is_padded_int64`]).

use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use arrow_cast::parse::Parser;
use arrow_schema::DataType;
use std::borrow::Cow;

/// Integers up to this are floats without loss.
const EXACT_IN_FLOAT: u64 = 1 << 53;
const WORDS: [&str; 6] = ["nan", "inf", "-inf", "+inf", "infinity", "-infinity"];

/// Whether there are digits and a sign, nothing else.
pub(super) fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a column of integers takes it.
pub(super) fn is_int64(text: &str) -> bool {
    is_integer(text) && has_no_leading_zero(text) && Int64Type::parse(text).is_some()
}

/// Whether a column of integers takes it once zeros in front are dropped.
pub(super) fn is_padded_int64(text: &str) -> bool {
    is_integer(text) && Int64Type::parse(text).is_some()
}

/// Returns a number without its thousands separators; `None` if they are in other places. The last group has three digits,
/// those before it two or three, as in `12,34,567`.
pub(super) fn without_thousands(
    text: &str,
    sign: char,
    has_decimal_comma: bool,
) -> Option<Cow<'_, str>> {
    let is_sign = |c: char| match sign {
        // Also those that do not break a line, and the typographic one.
        ' ' => matches!(c, ' ' | '\u{a0}' | '\u{202f}'),
        '\'' => matches!(c, '\'' | '\u{2019}'),
        sign => c == sign,
    };
    if !text.contains(is_sign) {
        return Some(Cow::Borrowed(text));
    }
    let decimal = if has_decimal_comma { ',' } else { '.' };
    let (whole, decimals) = text.split_once(decimal).unwrap_or((text, ""));
    let mut groups = whole
        .strip_prefix(['-', '+'])
        .unwrap_or(whole)
        .split(is_sign);
    let has_digits = |group: &str, of: std::ops::RangeInclusive<usize>| {
        of.contains(&group.len()) && group.bytes().all(|byte| byte.is_ascii_digit())
    };
    let are_thousands = has_digits(groups.next()?, 1..=3)
        && has_digits(groups.next_back()?, 3..=3)
        && groups.all(|group| has_digits(group, 2..=3))
        && !decimals.contains(is_sign);
    are_thousands.then(|| text.chars().filter(|c| !is_sign(*c)).collect())
}

/// Whether a column of floats takes it; an integer only if the float is that integer.
pub(super) fn is_float(text: &str) -> bool {
    if WORDS.iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return true;
    }
    let looks_so = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    looks_so
        && has_no_leading_zero(text)
        && Float64Type::parse(text).is_some_and(f64::is_finite)
        && !loses_digits(text)
}

/// Whether it is an integer that no float equals.
pub(super) fn loses_digits(text: &str) -> bool {
    if !is_integer(text) {
        return false;
    }
    // Larger ones are names, not numbers.
    let Some(value) = Int64Type::parse(text) else {
        return true;
    };
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the loss is what is looked for"
    )]
    let returned = value as f64 as i128;
    value.unsigned_abs() > EXACT_IN_FLOAT && returned != i128::from(value)
}

/// Whether it is a number larger than all floats of a type: read as one it would be infinite.
pub(super) fn is_beyond_floats(text: &str, data_type: &DataType) -> bool {
    // The largest floats have 39 and 309 digits in front of their points.
    let (digits, is_narrow) = match data_type {
        DataType::Float32 => (38, true),
        _ => (300, false),
    };
    let may_be = text.contains(['e', 'E']) || text.len() > digits;
    may_be
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        && if is_narrow {
            Float32Type::parse(text).is_some_and(f32::is_infinite)
        } else {
            Float64Type::parse(text).is_some_and(f64::is_infinite)
        }
}

/// Whether a number is written without zeros in front: those of `007` belong to a name.
pub(super) fn has_no_leading_zero(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    !digits.starts_with('0') || !digits[1..].starts_with(|c: char| c.is_ascii_digit())
}

/// Whether it is a number with a decimal comma, as `-1,5`.
pub(super) fn is_comma_decimal(text: &str) -> bool {
    let mut parts = text.split(',');
    let (Some(whole), Some(decimals), None) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let digits = whole.trim_start_matches(['-', '+']);
    let exponent = decimals.find(['e', 'E']).unwrap_or(decimals.len());
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    all_digits(digits) && exponent > 0 && all_digits(&decimals[..exponent])
}

/// The same number with a decimal point; `None` if it has one already.
pub(super) fn with_decimal_point(text: &str) -> Option<Cow<'_, str>> {
    if text.contains('.') {
        return None;
    }
    if !text.contains(',') {
        return Some(Cow::Borrowed(text));
    }
    is_comma_decimal(text).then(|| Cow::Owned(text.replacen(',', ".", 1)))
}

/// An integer that is written as a float, as `1662858720.0`.
pub(super) fn whole_number(text: &str) -> Option<&str> {
    let (whole, decimals) = text.split_once('.')?;
    let only_zeros = !decimals.is_empty() && decimals.bytes().all(|byte| byte == b'0');
    (only_zeros && is_int64(whole)).then_some(whole)
}

/// A number as 1.5e3 without its exponent; `None` of one that is far beyond all times.
fn without_exponent(text: &str) -> Option<Cow<'_, str>> {
    const LARGEST: usize = 30;
    let Some((mantissa, exponent)) = text.split_once(['e', 'E']) else {
        return Some(Cow::Borrowed(text));
    };
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{decimals}");
    let (is_negative, by) = match exponent.strip_prefix('-') {
        Some(by) => (true, by),
        None => (false, exponent.strip_prefix('+').unwrap_or(exponent)),
    };
    let by: usize = by.parse().ok().filter(|by| *by <= LARGEST)?;
    if whole.is_empty() {
        return None;
    }
    Some(Cow::Owned(if is_negative {
        let zeros = "0".repeat((by + 1).saturating_sub(whole.len()));
        let point = (whole.len() + zeros.len()) - by;
        let digits = format!("{zeros}{digits}");
        format!("{}.{}", &digits[..point], &digits[point..])
    } else {
        let zeros = "0".repeat(by.saturating_sub(decimals.len()));
        let digits = format!("{digits}{zeros}");
        let point = whole.len() + by;
        format!("{}.{}", &digits[..point], &digits[point..])
    }))
}

/// A count of seconds, milliseconds and so on in nanoseconds, exactly.
pub(super) fn epoch_ns(text: &str, unit_ns: i64) -> Option<i128> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    if !digits.is_ascii() {
        return None;
    }
    let digits = without_exponent(digits)?;
    let (whole, decimals) = digits.split_once('.').unwrap_or((&digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 20 || !all_digits(whole) || !all_digits(decimals) {
        return None;
    }
    let mut ns = whole.parse::<i128>().ok()? * i128::from(unit_ns);
    let mut step = i128::from(unit_ns);
    for digit in decimals.trim_end_matches('0').bytes() {
        if step % 10 != 0 {
            return None;
        }
        step /= 10;
        ns += i128::from(digit - b'0') * step;
    }
    Some(sign * ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_of_decimals() {
        for text in ["1,5", "-0,25", ",5", "1,5e3"] {
            assert!(is_comma_decimal(text), "{text}");
        }
        for text in ["1", "1.5", "1,2,3", "a,b", "1,", "1,e5", ""] {
            assert!(!is_comma_decimal(text), "{text}");
        }
        assert_eq!(with_decimal_point("1,5").as_deref(), Some("1.5"));
        assert_eq!(with_decimal_point("15").as_deref(), Some("15"));
        assert_eq!(with_decimal_point("1.5"), None);
    }

    #[test]
    fn signs_of_thousands() {
        for (text, sign, has_decimal_comma, wanted) in [
            ("1,234.5", ',', false, Some("1234.5")),
            ("-12,345,678", ',', false, Some("-12345678")),
            ("12,34,567", ',', false, Some("1234567")),
            ("1.234,5", '.', true, Some("1234,5")),
            ("1'234", '\'', false, Some("1234")),
            ("1\u{202f}234", ' ', false, Some("1234")),
            ("12.5", ',', false, Some("12.5")),
            ("1.5", '.', true, None),
            ("1,23", ',', false, None),
            ("1,234,5", ',', false, None),
            ("1.2,345", ',', false, None),
            (",234", ',', false, None),
            ("1,,234", ',', false, None),
            ("a,234", ',', false, None),
        ] {
            let plain = without_thousands(text, sign, has_decimal_comma);
            assert_eq!(plain.as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn integers_that_no_float_equals() {
        assert!(loses_digits("9007199254740993") && loses_digits("99999999999999999999"));
        assert!(!loses_digits("9007199254740992") && !loses_digits("0.1"));
    }

    #[test]
    fn epochs_are_exact() {
        for (text, unit_ns, wanted) in [
            ("1662858720", 1_000_000_000, Some(1_662_858_720_000_000_000)),
            (
                "1662858720.0",
                1_000_000_000,
                Some(1_662_858_720_000_000_000),
            ),
            ("-1.5", 1_000, Some(-1_500)),
            ("1.5", 1, None),
            ("1e9", 1, Some(1_000_000_000)),
            ("1.5e-1", 100, Some(15)),
            ("12e-3", 1_000, Some(12)),
            ("1.25E+1", 10, Some(125)),
            ("1e31", 1, None),
            ("1e", 1, None),
            ("e5", 1, None),
            ("", 1, None),
        ] {
            assert_eq!(epoch_ns(text, unit_ns), wanted, "{text}");
        }
        assert_eq!(whole_number("5.0"), Some("5"));
        assert_eq!([whole_number("5.5"), whole_number("5.")], [None, None]);
    }
}
