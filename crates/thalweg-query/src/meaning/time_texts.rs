//! Times written without seconds or with one digit of the hour, `2024-01-01 6:00`, which INSERT and imports read as well.
//!
//! Invariant: only text that becomes a time is changed, and only by the digits that it lacks.

use crate::functions::time_texts::{completed, is_completed};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, TryCast, lit};
use thalweg_table::full_time_text;

/// Functions that read a time from a text that is their only argument.
const READERS: [&str; 7] = [
    "to_date",
    "to_timestamp",
    "to_timestamp_micros",
    "to_timestamp_millis",
    "to_timestamp_nanos",
    "to_timestamp_seconds",
    "to_unixtime",
];

/// The cast or call that `expr` is, of a text with seconds, or of an interval in units.
pub(crate) fn with_seconds(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let mut is_interval = false;
    let text = match &mut expr {
        Expr::Cast(Cast { expr: inner, field }) | Expr::TryCast(TryCast { expr: inner, field })
            if matches!(field.data_type(), DataType::Interval(_)) =>
        {
            is_interval = true;
            inner.as_mut()
        }
        Expr::Cast(Cast { expr: inner, field }) | Expr::TryCast(TryCast { expr: inner, field })
            if is_time(field.data_type()) =>
        {
            inner.as_mut()
        }
        Expr::ScalarFunction(call) if READERS.contains(&call.func.name()) => {
            match call.args.as_mut_slice() {
                [text] => text,
                _ => return Transformed::no(expr),
            }
        }
        // They cast the value for rows that are not there themselves.
        Expr::WindowFunction(call) if matches!(call.fun.name(), "lag" | "lead") => {
            match call.params.args.as_mut_slice() {
                [value, _, text @ Expr::Literal(..)]
                    if value.get_type(schema).is_ok_and(|t| is_time(&t)) =>
                {
                    text
                }
                _ => return Transformed::no(expr),
            }
        }
        _ => return Transformed::no(expr),
    };
    let whole = match constant_text(text) {
        // Constants are in units already.
        Some(_) if is_interval => return Transformed::no(expr),
        Some(text) => match full_time_text(text) {
            Some(text) => lit(text),
            None => return Transformed::no(expr),
        },
        None if is_text_of_rows(text, schema) => completed(text.clone(), is_interval),
        None => return Transformed::no(expr),
    };
    *text = whole;
    Transformed::yes(expr)
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
    text.is_some_and(|text| full_time_text(text).is_some())
}

fn is_time(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
    )
}

fn constant_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}
