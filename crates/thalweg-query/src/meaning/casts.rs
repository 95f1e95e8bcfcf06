//! Calls of `arrow_cast` to times as the casts that they are, so that what knows about casts knows them; and casts of times to
//! coarser units, which before 1970 go to the step that the time lies in as well; casts of times to times of day, which have another
//! order; and casts to floats, which have an end.

use crate::functions::coarser_times::{coarser, is_coarser};
use crate::functions::times_of_day::time_of_day;
use crate::functions::within_floats::{may_be_beyond, within};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, TryCast};

/// The cast that a call of `arrow_cast` or `arrow_try_cast` is.
pub(crate) fn of_call(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let tries = match call.func.name() {
        "arrow_cast" => false,
        "arrow_try_cast" => true,
        _ => return Ok(Transformed::no(expr)),
    };
    let Some(value) = call.args.first() else {
        return Ok(Transformed::no(expr));
    };
    let to = expr.get_type(schema)?;
    if !matches!(to, DataType::Timestamp(..)) {
        return Ok(Transformed::no(expr));
    }
    let value = Box::new(value.clone());
    Ok(Transformed::yes(if tries {
        Expr::TryCast(TryCast::new(value, to))
    } else {
        Expr::Cast(Cast::new(value, to))
    }))
}

/// The cast that `expr` is, of a time that is in its unit already where that is coarser.
pub(super) fn to_coarser(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let unit = |field: &DataType, inner: &Expr| match field {
        // What has no type here, as a placeholder, gets one before this rule is asked again.
        DataType::Timestamp(unit, _) => inner
            .get_type(schema)
            .is_ok_and(|from| is_coarser(*unit, &from))
            .then_some(*unit),
        _ => None,
    };
    match expr {
        Expr::Cast(Cast { expr, field }) => match unit(field.data_type(), &expr) {
            Some(unit) => Transformed::yes(Expr::Cast(Cast {
                expr: Box::new(coarser(*expr, unit)),
                field,
            })),
            None => Transformed::no(Expr::Cast(Cast { expr, field })),
        },
        Expr::TryCast(TryCast { expr, field }) => match unit(field.data_type(), &expr) {
            Some(unit) => Transformed::yes(Expr::TryCast(TryCast {
                expr: Box::new(coarser(*expr, unit)),
                field,
            })),
            None => Transformed::no(Expr::TryCast(TryCast { expr, field })),
        },
        other => Transformed::no(other),
    }
}

/// The cast that `expr` is, of a time to a time of day, as a function without an order.
pub(super) fn to_time_of_day(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let is_of_time = |inner: &Expr| {
        let from = inner.get_type(schema);
        matches!(from, Ok(DataType::Timestamp(..)))
    };
    match expr {
        Expr::Cast(Cast { expr, field })
            if matches!(field.data_type(), DataType::Time32(_) | DataType::Time64(_))
                && is_of_time(&expr) =>
        {
            Transformed::yes(time_of_day(*expr, field.data_type().clone()))
        }
        other => Transformed::no(other),
    }
}

/// The cast that `expr` is, of a text or a wider float to a float, with a look at what lies beyond that.
pub(super) fn within_floats(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let (inner, field, tries) = match &expr {
        Expr::Cast(Cast { expr, field }) => (expr, field, false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field, true),
        _ => return Transformed::no(expr),
    };
    let to = field.data_type();
    // What has no type here, as a placeholder, gets one before this rule is asked again.
    let is_narrow = to.is_floating()
        && inner
            .get_type(schema)
            .is_ok_and(|from| may_be_beyond(&from, to));
    if !is_narrow {
        return Transformed::no(expr);
    }
    let value = (**inner).clone();
    Transformed::yes(within(expr, value, tries))
}
