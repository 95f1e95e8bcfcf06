//! Texts of times with the digits that Arrow wants, and of intervals in units.
//!
//! Invariant: a text is changed only where it is a time that lacks seconds or a digit of the hour, or an interval with a time of day;
//! what is neither stays as it is, for the cast to refuse.

use super::applied;
use arrow::array::{AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use thalweg_table::full_time_text;

/// A text with those digits, or of an interval in units.
pub(crate) fn completed(text: Expr, is_interval: bool) -> Expr {
    let function = ScalarUDF::new_from_impl(TimeText {
        is_interval,
        signature: Signature::any(1, Volatility::Immutable),
    });
    Arc::new(function).call(vec![text])
}

/// Whether an expression is such a text already.
pub(crate) fn is_completed(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.inner().is::<TimeText>())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeText {
    is_interval: bool,
    signature: Signature,
}

impl ScalarUDFImpl for TimeText {
    fn name(&self) -> &'static str {
        if self.is_interval {
            "interval_text"
        } else {
            "time_text"
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let [array] = arrays else {
                return internal_err!("{} takes one argument", self.name());
            };
            // Data frames have texts of other types.
            let array = cast(array, &DataType::Utf8)?;
            let texts = array.as_string::<i32>();
            let read = if self.is_interval {
                interval_in_units
            } else {
                full_time_text
            };
            if !texts.iter().flatten().any(|text| read(text).is_some()) {
                return Ok(array);
            }
            let whole = |text: &str| read(text).unwrap_or_else(|| text.to_owned());
            let whole: StringArray = texts.iter().map(|text| text.map(whole)).collect();
            Ok(Arc::new(whole))
        })
    }
}

/// An interval as PostgreSQL and DuckDB take it, `1 quarter`, `1 year 2 days 04:05:06`, in units that Arrow knows; `None` where it has
/// no others.
pub(crate) fn interval_in_units(written: &str) -> Option<String> {
    match quarters_in_months(written) {
        Some(months) => Some(clock_in_units(&months).unwrap_or(months)),
        None => clock_in_units(written),
    }
}

/// The interval with months instead of quarters, if it has any.
fn quarters_in_months(written: &str) -> Option<String> {
    let is_quarter = |word: &str| {
        ["quarter", "quarters"]
            .iter()
            .any(|unit| word.eq_ignore_ascii_case(unit))
    };
    if !written.split_ascii_whitespace().any(is_quarter) {
        return None;
    }
    let mut words: Vec<String> = Vec::new();
    for word in written.split_ascii_whitespace() {
        if !is_quarter(word) {
            words.push(word.to_owned());
            continue;
        }
        let months = words.pop()?.parse::<i64>().ok()?.checked_mul(3)?;
        words.extend([months.to_string(), "months".to_owned()]);
    }
    Some(words.join(" "))
}

/// The interval with units instead of a time of day, if it has one.
fn clock_in_units(written: &str) -> Option<String> {
    let written = written.trim();
    let (units, time) = match written.rsplit_once(' ') {
        Some((units, time)) => (units, time),
        None => ("", written),
    };
    let (sign, clock) = match time.strip_prefix('-') {
        Some(clock) => ("-", clock),
        None => ("", time.strip_prefix('+').unwrap_or(time)),
    };
    let mut parts = clock.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0"));
    let is_whole = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_number = |part: &str| {
        let (whole, fraction) = part.split_once('.').unwrap_or((part, "0"));
        is_whole(whole) && is_whole(fraction)
    };
    let is_clock = is_whole(hours) && is_whole(minutes) && is_number(seconds);
    (is_clock && parts.next().is_none()).then(|| {
        format!("{units} {sign}{hours} hours {sign}{minutes} minutes {sign}{seconds} seconds")
            .trim_start()
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_in_intervals_are_units() {
        for (written, units) in [
            ("17:24:00", Some("17 hours 24 minutes 00 seconds")),
            (
                "1 year 2 months 3 days 04:05:06.5",
                Some("1 year 2 months 3 days 04 hours 05 minutes 06.5 seconds"),
            ),
            ("-01:30", Some("-01 hours -30 minutes -0 seconds")),
            ("1 day", None),
            ("1 quarter", Some("3 months")),
            (
                "1 year -2 Quarters 01:00",
                Some("1 year -6 months 01 hours 00 minutes 0 seconds"),
            ),
            ("quarter", None),
            ("1.5 quarters", None),
            ("a:b", None),
            ("1:2:3:4", None),
        ] {
            assert_eq!(interval_in_units(written).as_deref(), units, "{written}");
        }
    }
}
