//! The sides of comparisons.
//!
//! Invariant: a constant is on the right. Of `a.s = b.s AND 'x' = a.s` DataFusion concludes `'x' = b.s` where it finds conditions of
//! joins, and then takes that and `b.s = 'x'`, which it has concluded before, for two values of one column, and so for false.

use super::time_unit::compares;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::{Between, BinaryExpr};
use datafusion::logical_expr::{Expr, binary_expr, not};

/// The comparison that `expr` is, with a constant on the right of it.
pub(super) fn constant_right(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if compares(op) && is_constant(&left) && !is_constant(&right) =>
        {
            match op.swap() {
                Some(swapped) => Transformed::yes(binary_expr(*right, swapped, *left)),
                None => Transformed::no(binary_expr(*left, op, *right)),
            }
        }
        Expr::Between(Between {
            expr,
            negated,
            low,
            high,
        }) if is_constant(&expr) && !(is_constant(&low) && is_constant(&high)) => {
            let both = low.lt_eq((*expr).clone()).and(high.gt_eq(*expr));
            Transformed::yes(if negated { not(both) } else { both })
        }
        other => Transformed::no(other),
    }
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) | Expr::Placeholder(_) => true,
        Expr::Cast(cast) => is_constant(&cast.expr),
        Expr::TryCast(cast) => is_constant(&cast.expr),
        _ => false,
    }
}
