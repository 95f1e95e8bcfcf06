//! Fractions of seconds after any sign, for patterns with `%f`.
//!
//! Invariant: a text is changed only by zeros after the digits that `%f` stands for, up to nine of them: to chrono they count
//! nanoseconds, to Python and DuckDB they are a fraction from the tenths on.

use super::applied;
use arrow::array::{AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use chrono::format::{Item, Numeric, Parsed, StrftimeItems, parse_and_remainder};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

const NS_DIGITS: usize = 9;

/// `whole_fraction(text, pattern)`: the text with nine digits in the place of `%f`.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(WholeFraction {
        signature: Signature::string(2, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WholeFraction {
    signature: Signature,
}

impl ScalarUDFImpl for WholeFraction {
    fn name(&self) -> &'static str {
        "whole_fraction"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        applied(&args, |arrays| {
            let [texts, patterns] = arrays else {
                return internal_err!("{} takes two arguments", self.name());
            };
            let (texts, patterns) = (
                cast(texts, &DataType::Utf8)?,
                cast(patterns, &DataType::Utf8)?,
            );
            let pairs = texts
                .as_string::<i32>()
                .iter()
                .zip(patterns.as_string::<i32>());
            let whole: StringArray = pairs
                .map(|(text, pattern)| {
                    let (text, pattern) = (text?, pattern?);
                    Some(whole_fraction(text, pattern).unwrap_or_else(|| text.to_owned()))
                })
                .collect();
            Ok(Arc::new(whole))
        })
    }
}

/// `None` of a text that does not begin as the pattern does, which is for its reader to refuse.
fn whole_fraction(text: &str, pattern: &str) -> Option<String> {
    let is_before = |item: &Item<'_>| !matches!(item, Item::Numeric(Numeric::Nanosecond, _));
    let before = StrftimeItems::new(pattern).take_while(is_before);
    let rest = parse_and_remainder(&mut Parsed::new(), text, before).ok()?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (fraction, behind) = rest.split_at(digits);
    let zeros = NS_DIGITS.checked_sub(digits).filter(|_| digits > 0)?;
    let begin = &text[..text.len() - rest.len()];
    Some(format!(
        "{begin}{fraction}{}{behind}",
        &"000000000"[..zeros]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_a_fraction() {
        for (text, pattern, whole) in [
            ("10:20:30:5", "%H:%M:%S:%f", Some("10:20:30:500000000")),
            ("102030123456", "%H%M%S%f", Some("102030123456000")),
            (
                "10:20:30,25 x",
                "%H:%M:%S,%f x",
                Some("10:20:30,250000000 x"),
            ),
            ("10:20:30,", "%H:%M:%S,%f", None),
            ("soon", "%H:%M:%S,%f", None),
            ("10:20:30,1234567890", "%H:%M:%S,%f", None),
        ] {
            assert_eq!(whole_fraction(text, pattern).as_deref(), whole, "{text}");
        }
    }
}
