//! Times without a zone mean UTC, also where a statement compares them with a column that has one.
//!
//! Invariants: DataFusion's casts read such times as local to the zone they are cast to; here every cast of text, a date
//! or a naive time to a zone goes by way of UTC, which changes the zone only. Text with an offset keeps its meaning.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, TryCast};
use thalweg_table::time_units::is_utc;

/// The cast that `expr` is, by way of UTC where it must be.
pub(super) fn by_way_of_utc(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let (inner, field) = match &expr {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => (expr, field),
        _ => return Transformed::no(expr),
    };
    let DataType::Timestamp(unit, Some(zone)) = field.data_type() else {
        return Transformed::no(expr);
    };
    // What has no type here, as a placeholder, gets one before this rule is asked again.
    let naive = inner.get_type(schema).is_ok_and(|from| is_naive(&from));
    if !naive || is_utc(zone) {
        return Transformed::no(expr);
    }
    let utc = DataType::Timestamp(*unit, Some("UTC".into()));
    Transformed::yes(match expr {
        Expr::Cast(Cast { expr, field }) => Expr::Cast(Cast {
            expr: Box::new(Expr::Cast(Cast::new(expr, utc))),
            field,
        }),
        Expr::TryCast(TryCast { expr, field }) => Expr::TryCast(TryCast {
            expr: Box::new(Expr::TryCast(TryCast::new(expr, utc))),
            field,
        }),
        other => other,
    })
}

fn is_naive(data_type: &DataType) -> bool {
    use DataType as T;
    matches!(
        data_type,
        T::Timestamp(_, None) | T::Date32 | T::Date64 | T::Utf8 | T::LargeUtf8 | T::Utf8View
    )
}
