//! The orders of aggregates, `first(x ORDER BY a, b)`.
//!
//! Invariant: no key stands there twice. DataFusion drops such a key where it plans and counts it where it runs; rows that have one value of
//! it are in no other order by the same value again.

use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::Sort;

/// An aggregate without such repetitions; other expressions as they are.
pub(super) fn each_key_once(expr: Expr) -> Transformed<Expr> {
    let Expr::AggregateFunction(mut call) = expr else {
        return Transformed::no(expr);
    };
    let keys = &mut call.params.order_by;
    let mut kept: Vec<Sort> = Vec::with_capacity(keys.len());
    for key in keys.iter() {
        if !kept.iter().any(|before| before.expr == key.expr) {
            kept.push(key.clone());
        }
    }
    let repeats = kept.len() < keys.len();
    if repeats {
        *keys = kept;
    }
    Transformed::new_transformed(Expr::AggregateFunction(call), repeats)
}
