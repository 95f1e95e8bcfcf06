//! Operators by the types of their operands, before DataFusion looks for its own.
//!
//! Invariant: types are asked for only where an operator could be one of these: of a long chain of operators that takes time.

use crate::error::{query, to_datafusion};
use crate::functions::epoch;
use crate::functions::guarded::with_guard;
use crate::functions::scaled::scaled;
use crate::functions::signed;
use crate::meaning::dates::sum_of_time;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::functions::unicode::expr_fn::substring;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawAggregateExpr, RawBinaryExpr, RawFieldAccessExpr, RawWindowExpr,
};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, GetFieldAccess, Operator, lit};
use datafusion_sql::sqlparser::ast::BinaryOperator;
use std::sync::Arc;

/// The planner of these operators.
#[derive(Debug)]
pub(crate) struct Operators;

impl ExprPlanner for Operators {
    // DataFusion's own would call `date_part` without its guard.
    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(
            with_guard(epoch::date_part()).call(args),
        ))
    }

    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        Ok(match part_of_text(&access, schema) {
            Some(part) => PlannerResult::Planned(part),
            None => PlannerResult::Original(access),
        })
    }

    fn plan_window(&self, call: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        Ok(match signed::of_window(&call) {
            Some(count) => PlannerResult::Planned(count),
            None => PlannerResult::Original(call),
        })
    }

    fn plan_aggregate(&self, call: RawAggregateExpr) -> Result<PlannerResult<RawAggregateExpr>> {
        Ok(match signed::of_aggregate(&call) {
            Some(count) => PlannerResult::Planned(count),
            None => PlannerResult::Original(call),
        })
    }

    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let planned = match expr.op {
            BinaryOperator::Multiply | BinaryOperator::Divide => of_lengths(&expr, schema),
            BinaryOperator::DuckIntegerDivide | BinaryOperator::MyIntegerDivide => {
                Some(of_integers(&expr, schema)?)
            }
            // Where the operands could not be found in front of the parser: XOR would be a surprise.
            BinaryOperator::BitwiseXor => {
                return Err(to_datafusion(query(
                    "^ and ** are powers: put what is raised to one in brackets, or write power(a, b)",
                )));
            }
            BinaryOperator::Plus => with_parameter(&expr, Operator::Plus, schema),
            BinaryOperator::Minus => with_parameter(&expr, Operator::Minus, schema)
                .or_else(|| between_zones(&expr, schema)),
            _ => None,
        };
        Ok(match planned {
            Some(planned) => PlannerResult::Planned(planned),
            None => PlannerResult::Original(expr),
        })
    }
}

/// A time and a length of which one is a parameter or NULL: DataFusion asks for the type of the sum before parameters are values, and
/// knows none of a date and a duration.
fn with_parameter(expr: &RawBinaryExpr, op: Operator, schema: &DFSchema) -> Option<Expr> {
    let is_open = |side: &Expr| match side {
        Expr::Placeholder(_) => true,
        Expr::Literal(value, _) => value.is_null(),
        _ => false,
    };
    if !is_open(&expr.left) && !is_open(&expr.right) {
        return None;
    }
    sum_of_time(&expr.left, op, &expr.right, schema)
}

/// The difference of times of two zones, which DataFusion knows for nanoseconds alone: that of the same times in one zone.
fn between_zones(expr: &RawBinaryExpr, schema: &DFSchema) -> Option<Expr> {
    // Of a chain of differences the right sides are short.
    let (of_right, right_zone) = zoned(&expr.right, schema)?;
    let (of_left, left_zone) = zoned(&expr.left, schema)?;
    if left_zone == right_zone {
        return None;
    }
    let in_zone = |side: &Expr, unit: TimeUnit, zone: &Arc<str>| {
        let to = DataType::Timestamp(unit, Some(Arc::clone(zone)));
        Expr::Cast(Cast::new(Box::new(side.clone()), to))
    };
    // A constant is cast once, before rows are read.
    let (left, right) = match expr.right.any_column_refs() {
        true => (
            in_zone(&expr.left, of_left, &right_zone),
            expr.right.clone(),
        ),
        false => (
            expr.left.clone(),
            in_zone(&expr.right, of_right, &left_zone),
        ),
    };
    Some(Expr::BinaryExpr(BinaryExpr::new(
        Box::new(left),
        Operator::Minus,
        Box::new(right),
    )))
}

/// The unit and the zone of a time that has one.
fn zoned(expr: &Expr, schema: &DFSchema) -> Option<(TimeUnit, Arc<str>)> {
    match expr.get_type(schema).ok()? {
        DataType::Timestamp(unit, Some(zone)) => Some((unit, zone)),
        _ => None,
    }
}

/// `text[1:2]` and `text[1]`, of constants from 1 on; others are for the planner to refuse.
fn part_of_text(access: &RawFieldAccessExpr, schema: &DFSchema) -> Option<Expr> {
    let place = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Int64(Some(place)), _) if *place >= 1 => Some(*place),
        _ => None,
    };
    let (first, last) = match &access.field_access {
        GetFieldAccess::ListIndex { key } => (place(key)?, place(key)?),
        GetFieldAccess::ListRange {
            start,
            stop,
            stride,
        } if place(stride) == Some(1) => (place(start)?, place(stop)?),
        _ => return None,
    };
    let is_text = matches!(
        access.expr.get_type(schema),
        Ok(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    );
    let length = last.saturating_sub(first).saturating_add(1).max(0);
    is_text.then(|| substring(access.expr.clone(), lit(first), lit(length)))
}

/// Whether an operand may be an interval or a duration: a product is none.
fn may_be_length(expr: &Expr) -> bool {
    !matches!(
        expr,
        Expr::BinaryExpr(BinaryExpr {
            op: Operator::Multiply | Operator::Divide | Operator::Modulo,
            ..
        })
    )
}

/// An interval or a duration times or divided by a number.
fn of_lengths(expr: &RawBinaryExpr, schema: &DFSchema) -> Option<Expr> {
    let RawBinaryExpr { op, left, right } = expr;
    let divides = *op == BinaryOperator::Divide;
    let length_type = |expr: &Expr| {
        let data_type = may_be_length(expr).then(|| expr.get_type(schema).ok())??;
        matches!(data_type, DataType::Interval(_) | DataType::Duration(_)).then_some(data_type)
    };
    let (length, length_type, number) = match (length_type(left), divides) {
        (Some(found), _) => (left, found, right),
        (None, true) => return None,
        (None, false) => (right, length_type(right)?, left),
    };
    let number_type = number.get_type(schema).ok()?;
    scaled(
        (length.clone(), &length_type),
        (number.clone(), &number_type),
        divides,
    )
}

/// `//`.
fn of_integers(expr: &RawBinaryExpr, schema: &DFSchema) -> Result<Expr> {
    let is_integer = |expr: &Expr| Ok::<_, DataFusionError>(expr.get_type(schema)?.is_integer());
    if !is_integer(&expr.left)? || !is_integer(&expr.right)? {
        return Err(to_datafusion(query(
            "// divides integers: write floor(a / b) for other numbers",
        )));
    }
    let (left, right) = (Box::new(expr.left.clone()), Box::new(expr.right.clone()));
    Ok(Expr::BinaryExpr(BinaryExpr::new(
        left,
        Operator::Divide,
        right,
    )))
}
