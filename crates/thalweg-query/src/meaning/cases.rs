//! CASE of conditions.
//!
//! DataFusion makes AND and OR of a CASE whose values are conditions, and then works out conditions for rows that CASE leaves out.
//! Invariant: a value of CASE that may fail, as `10 // z > 5` does where `z` is 0, is worked out for its own rows only.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, BinaryExpr, Case, InList, Like};
use datafusion::logical_expr::{Expr, ExprSchemable, TryCast, lit};

use super::time_unit::compares;
use arrow::datatypes::DataType;

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
