//! Times written without seconds or with one digit of the hour, `2024-01-01 6:00`, which INSERT and imports read as well.
//!
//! Invariant: only text that is cast to a time is changed, and only by the digits that it lacks.

use crate::functions::time_texts::{completed, is_completed};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, TryCast, lit};

/// The cast that `expr` is, of a text with seconds.
pub(crate) fn with_seconds(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let (Expr::Cast(Cast { expr: inner, field }) | Expr::TryCast(TryCast { expr: inner, field })) =
        &expr
    else {
        return Transformed::no(expr);
    };
    if !is_time(field.data_type()) {
        return Transformed::no(expr);
    }
    let inner = match constant_text(inner) {
        Some(text) => match with_seconds_in(text) {
            Some(text) => lit(text),
            None => return Transformed::no(expr),
        },
        None if is_text_of_rows(inner, schema) => completed((**inner).clone()),
        None => return Transformed::no(expr),
    };
    let inner = Box::new(inner);
    Transformed::yes(match expr {
        Expr::Cast(Cast { field, .. }) => Expr::Cast(Cast { expr: inner, field }),
        Expr::TryCast(TryCast { field, .. }) => Expr::TryCast(TryCast { expr: inner, field }),
        other => other,
    })
}

/// Whether a text is known only when rows are there, and not completed yet.
fn is_text_of_rows(expr: &Expr, schema: &DFSchema) -> bool {
    !matches!(expr, Expr::Literal(..) | Expr::Placeholder(_))
        && !is_completed(expr)
        && matches!(
            expr.get_type(schema),
            Ok(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
        )
}

/// Whether a parameter is a time without seconds.
pub(crate) fn lacks_seconds(value: &ScalarValue) -> bool {
    let text = value.try_as_str().flatten();
    text.is_some_and(|text| with_seconds_in(text).is_some())
}

fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..) | DataType::Date64)
}

fn constant_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

/// `2024-01-01 6:05` and what may follow it, with two digits of the hour and with seconds; `None` where it has both, or is no such
/// time.
pub(crate) fn with_seconds_in(text: &str) -> Option<String> {
    const DAY: &[u8; 10] = b"0000-00-00";
    let text = text.trim();
    let (day, rest) = text.split_at_checked(DAY.len())?;
    let is_day = day.bytes().zip(DAY).all(|(is, wanted)| match wanted {
        b'0' => is.is_ascii_digit(),
        wanted => is == *wanted,
    });
    let separator = rest.chars().next().filter(|c| matches!(c, ' ' | 'T' | 't'));
    let (hour, rest) = rest.get(1..)?.split_once(':')?;
    let (minute, rest) = rest.split_at_checked(2)?;
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_time = matches!(hour.len(), 1 | 2) && are_digits(hour) && are_digits(minute) && is_day;
    let has_seconds = rest.starts_with(':');
    let follows = has_seconds || rest.is_empty() || rest.starts_with(['Z', 'z', '+', '-', ' ']);
    if !is_time || !follows || has_seconds && hour.len() == 2 {
        return None;
    }
    let separator = separator?;
    let seconds = if has_seconds { "" } else { ":00" };
    Some(format!(
        "{day}{separator}{hour:0>2}:{minute}{seconds}{rest}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_added_where_there_are_none() {
        for (text, with) in [
            ("2024-01-01 06:00", Some("2024-01-01 06:00:00")),
            ("2024-01-01T06:00Z", Some("2024-01-01T06:00:00Z")),
            (
                " 2024-01-01 06:00+02:00 ",
                Some("2024-01-01 06:00:00+02:00"),
            ),
            (
                "2024-01-01 06:00 Europe/Berlin",
                Some("2024-01-01 06:00:00 Europe/Berlin"),
            ),
            ("2024-01-01 06:00:00", None),
            ("2024-01-01", None),
            ("2024-01-01 06:0x", None),
            ("2024-01-01 06:00x", None),
            ("2024-01-01 6:05", Some("2024-01-01 06:05:00")),
            ("2024-01-01T6:05:07.5Z", Some("2024-01-01T06:05:07.5Z")),
            ("2024-01-01 106:05", None),
            ("2024-01-01 :05", None),
            ("2024-01-01_6:05", None),
            ("2024-01-01 6:5", None),
            ("ä024-01-01 6:05", None),
            ("", None),
        ] {
            assert_eq!(with_seconds_in(text).as_deref(), with, "{text}");
        }
    }
}
