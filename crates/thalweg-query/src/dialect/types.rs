//! Types by the names that they have in CREATE TABLE.
//!
//! Invariant: a type means the same in a cast, in front of a constant and in CREATE TABLE.

use super::functions::{filled, text};
use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{CastKind, DataType as SqlType, Expr, TimezoneInfo};
use thalweg_table::Result;
use thalweg_table::schema::parse_type;

/// The cast that an expression is, where DataFusion would forget the time zone of its type, or take a number for seconds
/// where the type counts nanoseconds.
pub(super) fn translated(expr: &Expr) -> Result<Option<Expr>> {
    let (name, value, function) = match expr {
        Expr::Cast {
            kind,
            expr,
            data_type,
            ..
        } => {
            let function = match kind {
                CastKind::Cast | CastKind::DoubleColon => "arrow_cast",
                CastKind::TryCast | CastKind::SafeCast => "arrow_try_cast",
            };
            (data_type, (**expr).clone(), function)
        }
        Expr::TypedString(typed) => (
            &typed.data_type,
            Expr::Value(typed.value.clone()),
            "arrow_cast",
        ),
        _ => return Ok(None),
    };
    let is_other = match name {
        SqlType::Timestamp(_, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => true,
        SqlType::Timestamp(None | Some(9), _) => matches!(expr, Expr::Cast { .. }),
        _ => false,
    };
    if !is_other {
        return Ok(None);
    }
    let data_type: DataType = parse_type(&name.to_string())?;
    let data_type = text(&data_type.to_string());
    filled(&format!("{function}(a1, a2)"), &[&value, &data_type]).map(Some)
}

/// A cast as the call of a function that names its type: the names that DataFusion gives to expressions leave casts out, so that
/// two that differ in a cast alone have one name.
pub(super) fn as_call(expr: &Expr) -> Option<Expr> {
    let Expr::Cast {
        kind: CastKind::Cast | CastKind::DoubleColon,
        expr: value,
        data_type,
        ..
    } = expr
    else {
        return None;
    };
    let data_type = parse_type(&data_type.to_string()).ok()?;
    filled(
        "arrow_cast(a1, a2)",
        &[value, &text(&data_type.to_string())],
    )
    .ok()
}
