//! Types by the names that they have in CREATE TABLE.
//!
//! Invariant: a type means the same in a cast, in front of a constant and in CREATE TABLE.

use super::calls::text;
use super::templates::filled;
use crate::error::query;
use crate::functions::time_texts::interval_in_units;
use arrow::datatypes::DataType;
use datafusion_sql::sqlparser::ast::{
    CastKind, DataType as SqlType, DateTimeField, Expr, Interval, TimezoneInfo, Value,
};
use thalweg_table::Result;
use thalweg_table::schema::parse_type;

/// The type that a name of SQL stands for. `INT8` has 8 bytes, as in PostgreSQL and DuckDB; to Arrow, whose names a schema of Python
/// has, it has 8 bits.
pub(crate) fn type_of(name: &SqlType) -> Result<DataType> {
    match name {
        SqlType::Int8(None) => Ok(DataType::Int64),
        other => parse_type(&other.to_string()),
    }
}

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
    if matches!(name, SqlType::Interval { .. })
        && let Expr::Value(constant) = &value
        && let Value::SingleQuotedString(written) = &constant.value
        && let Some(units) = interval_in_units(written)
    {
        return filled(&format!("CAST(a1 AS {name})"), &[&text(&units)]).map(Some);
    }
    let is_other = match name {
        SqlType::Timestamp(_, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => true,
        SqlType::Timestamp(None | Some(9), _) => matches!(expr, Expr::Cast { .. }),
        // Names of CREATE TABLE that DataFusion does not know.
        SqlType::Blob(_)
        | SqlType::Binary(_)
        | SqlType::Varbinary(_)
        | SqlType::UTinyInt
        | SqlType::USmallInt
        | SqlType::UBigInt
        | SqlType::Int16
        | SqlType::Int32
        | SqlType::Int64
        | SqlType::UInt8
        | SqlType::UInt16
        | SqlType::UInt32
        | SqlType::UInt64
        | SqlType::Float32
        | SqlType::Float64
        | SqlType::Date32
        | SqlType::Datetime(_)
        | SqlType::Datetime64(..)
        | SqlType::Character(_)
        | SqlType::CharacterVarying(_)
        | SqlType::Custom(..) => type_of(name).is_ok(),
        _ => false,
    };
    if !is_other {
        return Ok(None);
    }
    let data_type = type_of(name)?;
    let data_type = text(&data_type.to_string());
    filled(&format!("{function}(a1, a2)"), &[&value, &data_type]).map(Some)
}

/// An interval of a number of units that is no constant, and one whose text has a time of day.
pub(super) fn interval(interval: &Interval) -> Result<Option<Expr>> {
    if let Expr::Nested(inner) = &*interval.value {
        let inner = Interval {
            value: inner.clone(),
            ..interval.clone()
        };
        return self::interval(&inner)
            .map(|translated| Some(translated.unwrap_or(Expr::Interval(inner))));
    }
    if matches!(interval.leading_field, Some(DateTimeField::Quarter))
        && interval.last_field.is_none()
    {
        return quarters(&interval.value).map(Some);
    }
    let is_parameter = matches!(&*interval.value, Expr::Value(value) if matches!(value.value, Value::Placeholder(_)));
    match (&*interval.value, &interval.leading_field) {
        (parameter, None) if is_parameter => filled("CAST(a1 AS INTERVAL)", &[parameter]).map(Some),
        (Expr::Value(constant), None) => {
            if let Value::Number(digits, _) = &constant.value {
                return Err(query(format!(
                    "INTERVAL {digits} has no unit that is known: write INTERVAL '{digits} seconds', or another unit"
                )));
            }
            let Value::SingleQuotedString(written) = &constant.value else {
                return Ok(None);
            };
            match interval_in_units(written) {
                Some(units) => filled("INTERVAL a1", &[&text(&units)])
                    .or_else(|_| filled("CAST(a1 AS INTERVAL)", &[&text(&units)]))
                    .map(Some),
                None => Ok(None),
            }
        }
        // A number would be no constant where a frame of a window wants one.
        (Expr::Value(constant), Some(unit)) if !is_parameter && interval.last_field.is_none() => {
            let Value::Number(digits, _) = &constant.value else {
                return Ok(None);
            };
            filled(&format!("INTERVAL a1 {unit}"), &[&text(digits)]).map(Some)
        }
        (Expr::Value(_), Some(_)) if !is_parameter => Ok(None),
        (Expr::UnaryOp { .. }, _) => Ok(None),
        (number, Some(unit)) if interval.last_field.is_none() => {
            let one = format!("INTERVAL '1 {unit}' * (a1)");
            filled(&one, &[number]).map(Some)
        }
        _ => Ok(None),
    }
}

/// A number of quarters, which DataFusion does not know.
fn quarters(count: &Expr) -> Result<Expr> {
    let constant = match count {
        Expr::Value(constant) => match &constant.value {
            Value::Number(digits, _) | Value::SingleQuotedString(digits) => {
                digits.trim().parse().ok()
            }
            _ => None,
        },
        _ => None,
    };
    match constant.and_then(|count: i64| count.checked_mul(3)) {
        Some(months) => filled("INTERVAL a1", &[&text(&format!("{months} months"))]),
        None => filled("INTERVAL '3 months' * (a1)", &[count]),
    }
}

/// A cast as the call of a function that names its type: the names that DataFusion gives to expressions leave casts out, so that
/// two that differ in a cast alone have one name.
pub(super) fn as_call(expr: &Expr) -> Option<Expr> {
    let Expr::Cast {
        kind,
        expr: value,
        data_type,
        ..
    } = expr
    else {
        return None;
    };
    let template = match kind {
        CastKind::Cast | CastKind::DoubleColon => "arrow_cast(a1, a2)",
        CastKind::TryCast | CastKind::SafeCast => "arrow_try_cast(a1, a2)",
    };
    let data_type = type_of(data_type).ok()?;
    filled(template, &[value, &text(&data_type.to_string())]).ok()
}
