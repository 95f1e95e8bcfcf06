//! Positions of results inside ROLLUP, CUBE and GROUPING SETS: `GROUP BY ROLLUP (1, 2)`.
//!
//! Invariant: a position stands for the expression of that result, as it does in a plain GROUP BY, which DataFusion knows.

use datafusion_sql::sqlparser::ast::{Expr, GroupByExpr, Select, SelectItem, Value};

/// The same with these expressions in the places of positions.
pub(super) fn written_out(select: &mut Select) {
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else {
        return;
    };
    let sets = keys.iter_mut().filter_map(|key| match key {
        Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => Some(sets),
        _ => None,
    });
    for key in sets.flatten().flatten() {
        let Expr::Value(constant) = key else { continue };
        let Value::Number(digits, _) = &constant.value else {
            continue;
        };
        let place = digits.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
        let item = place.and_then(|place| select.projection.get(place));
        if let Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item {
            *key = expr.clone();
        }
    }
}
