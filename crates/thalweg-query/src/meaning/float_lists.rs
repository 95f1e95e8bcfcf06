//! Lists of floats hold 0.0 and -0.0 alike, as `=` does.
//!
//! DataFusion makes -0.0 a 0.0 before it compares, but looks for the values of `IN` and `CASE` by their bits; it also makes
//! lists of its own out of comparisons with `=`, and combines lists. Invariants: while a plan is being rewritten its
//! constants have one zero only, 0.0, so that lists can be united and intersected; just before operators are made of the
//! plan every list with one zero gets the other ([`with_both_zeros`]). Values that are known only once rows are there are
//! computed such that they have one zero.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{BinaryExpr, Case, InList};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, Operator, Volatility, binary_expr, lit,
};
use datafusion::optimizer::utils::NamePreserver;
use half::f16;
use std::borrow::Cow;

/// The expression with one zero in its constants.
pub(super) fn with_one_zero(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::Eq | Operator::NotEq)
                && (is_negative_zero(&left) || is_negative_zero(&right)) =>
        {
            Transformed::yes(binary_expr(positive(*left), op, positive(*right)))
        }
        Expr::InList(list) => match zero_of(&list.expr, schema) {
            Some(zero) => Transformed::yes(Expr::InList(listed(list, &zero))),
            None => Transformed::no(Expr::InList(list)),
        },
        Expr::Case(Case {
            expr: Some(of),
            when_then_expr,
            else_expr,
        }) => {
            let Some(zero) = zero_of(&of, schema) else {
                return Ok(Transformed::no(Expr::Case(Case {
                    expr: Some(of),
                    when_then_expr,
                    else_expr,
                })));
            };
            let when_then_expr = when_then_expr
                .into_iter()
                .map(|(when, then)| (Box::new(settled(*when, &zero)), then))
                .collect();
            Transformed::yes(Expr::Case(Case {
                expr: Some(Box::new(settled(*of, &zero))),
                when_then_expr,
                else_expr,
            }))
        }
        other => Transformed::no(other),
    })
}

fn listed(list: InList, zero: &ScalarValue) -> InList {
    let InList {
        expr,
        list: items,
        negated,
    } = list;
    let looked_up = !is_foldable(&expr)
        && items
            .iter()
            .all(|item| matches!(item, Expr::Placeholder(_)) || is_foldable(item));
    let item = |item: Expr| match item {
        // Its value is put in its place later.
        Expr::Placeholder(_) if looked_up => item,
        other => settled(other, zero),
    };
    let items = items.into_iter().map(item).collect();
    let expr = if looked_up {
        expr
    } else {
        Box::new(settled(*expr, zero))
    };
    InList::new(expr, items, negated)
}

/// The zero of the type of `expr`, if that is a float.
fn zero_of(expr: &Expr, schema: &DFSchema) -> Option<ScalarValue> {
    Some(match expr.get_type(schema).ok()? {
        DataType::Float16 => ScalarValue::Float16(Some(f16::ZERO)),
        DataType::Float32 => ScalarValue::Float32(Some(0.0)),
        DataType::Float64 => ScalarValue::Float64(Some(0.0)),
        _ => return None,
    })
}

/// The value, with 0.0 in the place of -0.0.
fn settled(expr: Expr, zero: &ScalarValue) -> Expr {
    match expr {
        Expr::Literal(..) => positive(expr),
        // -0.0 + 0.0 is 0.0; every other value stays as it is.
        other => binary_expr(other, Operator::Plus, lit(zero.clone())),
    }
}

fn positive(expr: Expr) -> Expr {
    match other_zero(&expr) {
        Some(zero) if is_negative_zero(&expr) => zero,
        _ => expr,
    }
}

fn is_negative_zero(expr: &Expr) -> bool {
    use ScalarValue as S;
    match expr {
        Expr::Literal(S::Float16(Some(value)), _) => {
            *value == f16::ZERO && value.is_sign_negative()
        }
        Expr::Literal(S::Float32(Some(value)), _) => *value == 0.0 && value.is_sign_negative(),
        Expr::Literal(S::Float64(Some(value)), _) => *value == 0.0 && value.is_sign_negative(),
        _ => false,
    }
}

/// The zero of the other sign, if `expr` is a zero.
fn other_zero(expr: &Expr) -> Option<Expr> {
    use ScalarValue as S;
    Some(lit(match expr {
        Expr::Literal(S::Float16(Some(value)), _) if *value == f16::ZERO => {
            S::Float16(Some(-*value))
        }
        Expr::Literal(S::Float32(Some(value)), _) if *value == 0.0 => S::Float32(Some(-value)),
        Expr::Literal(S::Float64(Some(value)), _) if *value == 0.0 => S::Float64(Some(-value)),
        _ => return None,
    }))
}

/// Whether the optimizer makes a constant of `expr`.
fn is_foldable(expr: &Expr) -> bool {
    let stays = |expr: &Expr| {
        Ok(match expr {
            Expr::Literal(..)
            | Expr::Cast(_)
            | Expr::TryCast(_)
            | Expr::Negative(_)
            | Expr::BinaryExpr(_) => false,
            Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Volatile,
            _ => true,
        })
    };
    // The closure cannot fail.
    !expr.exists(stays).unwrap_or(true)
}

/// The plan with both zeros in every list that has one.
pub(crate) fn with_both_zeros(plan: &LogicalPlan) -> Result<Cow<'_, LogicalPlan>> {
    let mut wanted = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            wanted |= expr.exists(|expr| Ok(missing_zero(expr).is_some()))?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if !wanted {
        return Ok(Cow::Borrowed(plan));
    }
    let completed = plan.clone().transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let completed = expr.transform_up(|expr| Ok(completed(expr)))?;
            Ok(completed.update_data(|expr| name.restore(expr)))
        })
    })?;
    Ok(Cow::Owned(completed.data))
}

/// The zero that a list lacks, if it has the one of the other sign.
fn missing_zero(expr: &Expr) -> Option<Expr> {
    let Expr::InList(InList { list, .. }) = expr else {
        return None;
    };
    let other = list.iter().find_map(other_zero)?;
    let is_there = list.iter().any(|item| {
        other_zero(item).is_some() && is_negative_zero(item) == is_negative_zero(&other)
    });
    (!is_there).then_some(other)
}

fn completed(mut expr: Expr) -> Transformed<Expr> {
    let missing = missing_zero(&expr);
    if let (Expr::InList(InList { list, .. }), Some(zero)) = (&mut expr, missing) {
        list.push(zero);
        return Transformed::yes(expr);
    }
    Transformed::no(expr)
}
