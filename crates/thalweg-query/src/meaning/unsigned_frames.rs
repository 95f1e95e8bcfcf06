//! RANGE frames over unsigned numbers.
//!
//! DataFusion takes what lies below zero for zero, and so counts the rows with zero among those before them. Invariant: bounds are computed
//! in signed numbers, which hold all of the unsigned ones in their order.

use super::nodes::in_one_node;
use crate::error::{query, to_datafusion};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, WindowFrameBound, WindowFrameUnits, cast, lit, when,
};

/// Begins the upper half of the largest type.
const HALF: u64 = 1 << 63;

/// The node with such frames over signed numbers; other nodes as they are.
pub(super) fn in_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Window(_) => in_one_node(plan, over_signed),
        other => Ok(Transformed::no(other)),
    }
}

fn over_signed(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::WindowFunction(mut call) = expr else {
        return Ok(Transformed::no(expr));
    };
    let params = &mut call.params;
    let frame = &mut params.window_frame;
    if frame.units == WindowFrameUnits::Range
        && (has_distance(&frame.start_bound) || has_distance(&frame.end_bound))
        && let [key] = &mut params.order_by[..]
        && let Ok(data_type) = key.expr.get_type(schema)
        && data_type.is_unsigned_integer()
    {
        frame.start_bound = signed_bound(&frame.start_bound)?;
        frame.end_bound = signed_bound(&frame.end_bound)?;
        key.expr = signed(std::mem::take(&mut key.expr), &data_type)?;
        return Ok(Transformed::yes(Expr::WindowFunction(call)));
    }
    Ok(Transformed::no(Expr::WindowFunction(call)))
}

fn has_distance(bound: &WindowFrameBound) -> bool {
    match bound {
        WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => !by.is_null(),
        WindowFrameBound::CurrentRow => false,
    }
}

fn signed_bound(bound: &WindowFrameBound) -> Result<WindowFrameBound> {
    let of = |by: &ScalarValue| {
        by.cast_to(&DataType::Int64).map_err(|_| {
            let message = format!("a bound of a frame, {by}, is beyond BIGINT: write UNBOUNDED");
            to_datafusion(query(message))
        })
    };
    Ok(match bound {
        WindowFrameBound::Preceding(by) => WindowFrameBound::Preceding(of(by)?),
        WindowFrameBound::Following(by) => WindowFrameBound::Following(of(by)?),
        WindowFrameBound::CurrentRow => WindowFrameBound::CurrentRow,
    })
}

/// The key as a BIGINT; of UBIGINT from the least one on.
fn signed(key: Expr, data_type: &DataType) -> Result<Expr> {
    if *data_type != DataType::UInt64 {
        return Ok(cast(key, DataType::Int64));
    }
    let upper = cast(key.clone() - lit(HALF), DataType::Int64);
    let lower = cast(key.clone(), DataType::Int64) + lit(i64::MIN);
    when(key.gt_eq(lit(HALF)), upper).otherwise(lower)
}
