//! Operators that DataFusion simplifies into something else: `s ~ '.*'` into `s IS NOT NULL`, which is false of NULL, `xor(x, x)` into 0,
//! also where `x` is NULL, and `d % 1` of decimals into 0, which have a remainder.
//!
//! Invariant: written here so that the rules for them do not apply.

use crate::functions::simplified::{matches, safe_pattern};
use crate::functions::unchanged::{opaque, or_null};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, binary_expr, not};

/// The operator that `expr` is, so that its value stays.
pub(super) fn with_same_value(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    use Operator as O;
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
        return Transformed::no(expr);
    };
    match op {
        O::RegexMatch | O::RegexIMatch | O::RegexNotMatch | O::RegexNotIMatch => {
            matched(*left, op, *right)
        }
        O::BitwiseXor => exclusive(*left, *right),
        O::Modulo | O::Multiply => of_decimals(*left, op, *right, schema),
        _ => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
    }
}

fn matched(left: Expr, op: Operator, right: Expr) -> Transformed<Expr> {
    use Operator as O;
    match right {
        Expr::Literal(value, metadata) => match safe_pattern(&value) {
            Some(safe) => Transformed::yes(binary_expr(left, op, Expr::Literal(safe, metadata))),
            None => Transformed::no(binary_expr(left, op, Expr::Literal(value, metadata))),
        },
        // A constant that is folded later, when this rule does not run again.
        Expr::Placeholder(_) => Transformed::no(binary_expr(left, op, right)),
        right if !right.any_column_refs() => {
            let ignores_case = matches!(op, O::RegexIMatch | O::RegexNotIMatch);
            let matched = matches(left, right, ignores_case);
            Transformed::yes(match op {
                O::RegexNotMatch | O::RegexNotIMatch => not(matched),
                _ => matched,
            })
        }
        right => Transformed::no(binary_expr(left, op, right)),
    }
}

/// A XOR that DataFusion's rules leave alone. They look for a value that stands in a chain of XOR twice: here there are no chains,
/// and nothing is written as what it is combined with.
fn exclusive(left: Expr, right: Expr) -> Transformed<Expr> {
    let is_constant = |expr: &Expr| matches!(expr, Expr::Literal(..));
    if is_constant(&left) || is_constant(&right) {
        return Transformed::no(binary_expr(left, Operator::BitwiseXor, right));
    }
    let combined = binary_expr(left, Operator::BitwiseXor, opaque(right));
    Transformed::yes(opaque(combined))
}

/// Arithmetic of decimals that DataFusion's rules leave alone. Those for `A % 1` and `A * 0` hold of whole numbers: decimals have a
/// remainder, and the zero has another type. They are not applied to what may be NULL.
fn of_decimals(left: Expr, op: Operator, right: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let is_decimal = |expr: &Expr| expr.get_type(schema).is_ok_and(|it| it.is_decimal());
    let is_constant = |expr: &Expr| !expr.any_column_refs();
    if !is_decimal(&left) || !is_decimal(&right) || is_constant(&left) == is_constant(&right) {
        return Transformed::no(binary_expr(left, op, right));
    }
    Transformed::yes(match is_constant(&right) {
        true => binary_expr(or_null(left), op, right),
        false => binary_expr(left, op, or_null(right)),
    })
}
