//! Times written without seconds, `2024-01-01 06:00`, which INSERT and imports read as well.
//!
//! Invariant: only a constant that is cast to a time is changed, and only by the seconds that it lacks.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Cast, Expr, TryCast, lit};

/// The cast that `expr` is, of a text with seconds.
pub(crate) fn with_seconds(expr: Expr) -> Transformed<Expr> {
    let (Expr::Cast(Cast { expr: inner, field }) | Expr::TryCast(TryCast { expr: inner, field })) =
        &expr
    else {
        return Transformed::no(expr);
    };
    let Some(text) = constant_text(inner).filter(|_| is_time(field.data_type())) else {
        return Transformed::no(expr);
    };
    let Some(text) = with_seconds_in(text) else {
        return Transformed::no(expr);
    };
    let inner = Box::new(lit(text));
    Transformed::yes(match expr {
        Expr::Cast(Cast { field, .. }) => Expr::Cast(Cast { expr: inner, field }),
        Expr::TryCast(TryCast { field, .. }) => Expr::TryCast(TryCast { expr: inner, field }),
        other => other,
    })
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

/// `2024-01-01 06:00` and what may follow it, with seconds; `None` where there are some, or no such time.
fn with_seconds_in(text: &str) -> Option<String> {
    const SHAPE: &[u8; 16] = b"0000-00-00 00:00";
    let text = text.trim();
    let (head, rest) = (
        text.as_bytes().get(..SHAPE.len())?,
        text.get(SHAPE.len()..)?,
    );
    let fits = |(is, wanted): (&u8, &u8)| match wanted {
        b'0' => is.is_ascii_digit(),
        b' ' => matches!(is, b' ' | b'T' | b't'),
        wanted => is == wanted,
    };
    let is_time = head.iter().zip(SHAPE).all(fits);
    let follows = rest.is_empty() || rest.starts_with(['Z', 'z', '+', '-', ' ']);
    (is_time && follows).then(|| format!("{}:00{rest}", &text[..SHAPE.len()]))
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
            ("", None),
        ] {
            assert_eq!(with_seconds_in(text).as_deref(), with, "{text}");
        }
    }
}
