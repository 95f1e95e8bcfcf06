//! Lists with values that are computed for each row.
//!
//! DataFusion evaluates the values of a list once, for no rows, and takes those that come out as one value for constants: a CASE is NULL
//! then, for every row, and AND and OR may be one of their sides. Invariant: such values are compared one by one instead.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{BinaryExpr, InList};
use datafusion::logical_expr::{Expr, Operator, binary_expr};

/// The list with comparisons beside it for such values.
pub(super) fn apart(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::InList(InList {
        expr,
        list,
        negated,
    }) = expr
    else {
        return Ok(Transformed::no(expr));
    };
    let computed = list
        .iter()
        .map(is_computed)
        .collect::<Result<Vec<bool>>>()?;
    if !computed.contains(&true) || expr.is_volatile() {
        let list = InList::new(expr, list, negated);
        return Ok(Transformed::no(Expr::InList(list)));
    }
    let (compared, joined) = match negated {
        false => (Operator::Eq, Operator::Or),
        true => (Operator::NotEq, Operator::And),
    };
    let (mut parts, mut others) = (Vec::new(), Vec::new());
    for (value, is_computed) in list.into_iter().zip(computed) {
        match is_computed {
            true => parts.push(binary_expr((*expr).clone(), compared, value)),
            false => others.push(value),
        }
    }
    if !others.is_empty() {
        parts.push(Expr::InList(InList::new(expr, others, negated)));
    }
    let mut all: Option<Expr> = None;
    for part in parts {
        let part = super::rewrite(part, schema)?.data;
        all = Some(match all {
            None => part,
            Some(before) => binary_expr(before, joined, part),
        });
    }
    let all = all.unwrap_or_else(|| unreachable!("a list with a computed value has a part"));
    Ok(Transformed::yes(all))
}

fn is_computed(value: &Expr) -> Result<bool> {
    let may_be_one_value = |part: &Expr| {
        Ok(match part {
            Expr::Case(_) => true,
            Expr::BinaryExpr(BinaryExpr { op, .. }) => op.is_logic_operator(),
            _ => false,
        })
    };
    Ok(value.any_column_refs() && value.exists(may_be_one_value)?)
}
