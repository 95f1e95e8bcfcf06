//! DEFAULT in the place of a value: INSERT, UPDATE and MERGE store the default of the column then.
//!
//! Invariant: it stands alone; within an expression, and in quotes, it is a name like others.

use datafusion_sql::sqlparser::ast::{Expr, Value, Values};
use thalweg_table::{Column, default_in_sql};

/// Whether a value is DEFAULT.
fn is_default(value: &Expr) -> bool {
    matches!(value, Expr::Identifier(name) if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
}

/// The default of the column where a value is DEFAULT.
pub(crate) fn default_of(value: &Expr, column: &Column) -> Option<Expr> {
    if !is_default(value) {
        return None;
    }
    let default = default_in_sql(column);
    let constant = match default.as_deref() {
        None => Value::Null,
        Some(text) => match text.strip_prefix('X') {
            Some(digits) => Value::HexStringLiteral(digits.trim_matches('\'').to_owned()),
            None => Value::SingleQuotedString(unquoted(text)),
        },
    };
    Some(Expr::Value(constant.into()))
}

fn unquoted(text: &str) -> String {
    let inner = text
        .strip_prefix('\'')
        .and_then(|text| text.strip_suffix('\''));
    inner.unwrap_or(text).replace("''", "'")
}

/// VALUES with the defaults of their columns in the place of DEFAULT; `None`: there is none.
pub(crate) fn with_defaults(values: &Values, columns: &[&Column]) -> Option<Values> {
    let cells = values.rows.iter().flat_map(|row| &row.content);
    if !cells.clone().any(is_default) {
        return None;
    }
    let mut values = values.clone();
    for row in &mut values.rows {
        for (cell, column) in row.content.iter_mut().zip(columns) {
            if let Some(default) = default_of(cell, column) {
                *cell = default;
            }
        }
    }
    Some(values)
}
