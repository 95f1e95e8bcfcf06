//! CASE of conditions, and AND and OR as CASE.
//!
//! DataFusion makes AND and OR of a CASE whose values are conditions, and then works out conditions for rows that CASE leaves out; and
//! it works out both sides of AND and OR. Invariants: a value of CASE that may fail, as `10 // z > 5` does where `z` is 0, is worked out
//! for its own rows only; so is the right side of AND and OR where a division or a cast may fail, but for the conditions of filters,
//! which are guarded when they are run, and joins, which find their keys in them.

use super::time_unit::compares;
use crate::functions::unchanged::is_opaque;
use crate::stack::with_room;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, BinaryExpr, Case, InList, Like};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, Operator, TryCast, binary_expr, lit};

/// The CASE that `expr` is, as one that stays a CASE: `CASE TRUE WHEN condition` has the same rows.
pub(super) fn kept(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::Case(case) = &expr else {
        return Ok(Transformed::no(expr));
    };
    if case.expr.is_some() || !fails(case)? || expr.get_type(schema)? != DataType::Boolean {
        return Ok(Transformed::no(expr));
    }
    let is_true = lit(ScalarValue::Boolean(Some(true)));
    Ok(Transformed::yes(Expr::Case(Case {
        expr: Some(Box::new(is_true)),
        ..case.clone()
    })))
}

/// AND and OR inside of `expr` as CASE where their right sides may fail: of a condition those that are not its own parts.
pub(super) fn of_conditions(
    expr: Expr,
    schema: &DFSchema,
    is_condition: bool,
) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::And | Operator::Or),
            right,
        }) if is_condition => {
            // Chains are deep on the left.
            let left = with_room(|| of_conditions(*left, schema, true))?;
            let right = of_conditions(*right, schema, true)?;
            let changed = left.transformed || right.transformed;
            let expr = binary_expr(left.data, op, right.data);
            Ok(Transformed::new(expr, changed, TreeNodeRecursion::Continue))
        }
        expr if !expr.exists(|part| Ok(fails_by_value(part, schema)))? => Ok(Transformed::no(expr)),
        expr => guarded(expr, schema, false).map(Transformed::yes),
    }
}

/// The expression with guards; `is_truth` where NULL counts as false, as in the conditions of CASE and of FILTER.
fn guarded(expr: Expr, schema: &DFSchema, is_truth: bool) -> Result<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::And | Operator::Or),
            right,
        }) => {
            let fails = right.exists(|part| Ok(fails_by_value(part, schema)))?;
            // Chains are deep on the left.
            let left = with_room(|| guarded(*left, schema, is_truth))?;
            let right = guarded(*right, schema, is_truth)?;
            if !fails || right.is_volatile() || !(is_truth || is_short(&right)?) {
                return Ok(binary_expr(left, op, right));
            }
            Ok(as_case(left, op, right, is_truth))
        }
        Expr::Case(mut case) => {
            let is_condition = case.expr.is_none();
            let guard = |expr: &mut Box<Expr>, is_truth: bool| {
                **expr = guarded(std::mem::take(expr), schema, is_truth)?;
                Ok::<_, DataFusionError>(())
            };
            for expr in case.expr.iter_mut().chain(&mut case.else_expr) {
                guard(expr, false)?;
            }
            for (when, then) in &mut case.when_then_expr {
                guard(when, is_condition)?;
                guard(then, false)?;
            }
            Ok(Expr::Case(case))
        }
        Expr::WindowFunction(mut call) => {
            let filter = call.params.filter.take();
            let filter = filter.map(|filter| guarded(*filter, schema, true).map(Box::new));
            let mut call = inside(Expr::WindowFunction(call), schema)?;
            if let Expr::WindowFunction(call) = &mut call {
                call.params.filter = filter.transpose()?;
            }
            Ok(call)
        }
        Expr::AggregateFunction(mut call) => {
            let filter = call.params.filter.take();
            let filter = filter.map(|filter| guarded(*filter, schema, true).map(Box::new));
            let mut call = inside(Expr::AggregateFunction(call), schema)?;
            if let Expr::AggregateFunction(call) = &mut call {
                call.params.filter = filter.transpose()?;
            }
            Ok(call)
        }
        expr => inside(expr, schema),
    }
}

/// The expression with guards in its parts.
fn inside(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let done = expr.map_children(|part| guarded(part, schema, false).map(Transformed::yes))?;
    Ok(done.data)
}

/// `left AND right` as `CASE left WHEN false THEN false WHEN true THEN right ELSE right AND NULL END`, and shorter where NULL is false.
fn as_case(left: Expr, op: Operator, right: Expr, is_truth: bool) -> Expr {
    let decided = op == Operator::Or;
    let is = |value: bool| Box::new(lit(value));
    let (when_then_expr, otherwise) = match (is_truth, op) {
        (true, Operator::And) => (vec![(is(true), Box::new(right))], lit(false)),
        (true, _) => (vec![(is(true), is(true))], right),
        (false, _) => {
            let of_null = binary_expr(right.clone(), op, lit(ScalarValue::Boolean(None)));
            let cases = vec![(is(decided), is(decided)), (is(!decided), Box::new(right))];
            (cases, of_null)
        }
    };
    Expr::Case(Case {
        expr: Some(Box::new(left)),
        when_then_expr,
        else_expr: Some(Box::new(otherwise)),
    })
}

/// Whether an expression is short enough to be there twice: nested ones would double with each level.
fn is_short(expr: &Expr) -> Result<bool> {
    let mut parts = 0;
    expr.apply(|_| {
        parts += 1;
        Ok(match parts < 64 {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(parts < 64)
}

/// Whether this divides by what may be 0, or casts what may have no such value. (What overflows does so for few, and CASE is slow.)
pub(crate) fn fails_by_value(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Divide | Operator::Modulo,
            right,
        }) => {
            let is_float = |side: &Expr| side.get_type(schema).is_ok_and(|it| it.is_floating());
            !matches!(**right, Expr::Literal(..)) && !is_float(left)
        }
        Expr::Cast(Cast { expr: from, .. }) => {
            !matches!(**from, Expr::Literal(..))
                && from.get_type(schema).is_ok_and(|it| it.is_string())
        }
        Expr::ScalarFunction(call) => is_opaque(call),
        _ => false,
    }
}

/// Whether anything but the first condition, which is asked of all rows, may fail.
fn fails(case: &Case) -> Result<bool> {
    let conditions = case.when_then_expr.iter().skip(1).map(|(when, _)| when);
    let values = case.when_then_expr.iter().map(|(_, then)| then);
    for expr in conditions.chain(values).chain(&case.else_expr) {
        if expr.exists(|expr| Ok(may_fail(expr)))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether an expression may fail for some values, apart from its parts. Of functions nothing is known.
fn may_fail(expr: &Expr) -> bool {
    match expr {
        // Of constants it is worked out once.
        Expr::Cast(cast) => !matches!(*cast.expr, Expr::Literal(..)),
        Expr::BinaryExpr(BinaryExpr { op, .. }) => !compares(*op) && !op.is_logic_operator(),
        Expr::Column(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::Literal(..)
        | Expr::Not(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Alias(_)
        | Expr::Case(_)
        | Expr::Between(Between { .. })
        | Expr::InList(InList { .. })
        | Expr::Like(Like { .. })
        | Expr::TryCast(TryCast { .. }) => false,
        _ => true,
    }
}
