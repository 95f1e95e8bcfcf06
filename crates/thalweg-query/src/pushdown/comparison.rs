//! Filters as comparisons of two sides.

use datafusion::logical_expr::expr::{Between, BinaryExpr};
use datafusion::logical_expr::{Expr, Operator};

/// How a condition compares; the column stands left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub(crate) fn of(operator: Operator) -> Option<Self> {
        Some(match operator {
            Operator::Eq => Self::Equal,
            Operator::Lt => Self::Less,
            Operator::LtEq => Self::LessOrEqual,
            Operator::Gt => Self::Greater,
            Operator::GtEq => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    /// The comparison with its sides exchanged.
    pub(crate) fn turned(self) -> Self {
        match self {
            Self::Equal => Self::Equal,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }
}

/// The sides of an AND.
pub(super) fn both(filter: &Expr) -> Option<(&Expr, &Expr)> {
    match filter {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::And,
            right,
        }) => Some((left, right)),
        _ => None,
    }
}

/// The comparisons that together are `filter`: one, two for BETWEEN, none if it is something else.
pub(super) fn comparisons(filter: &Expr) -> Vec<(&Expr, Comparison, &Expr)> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => Comparison::of(*op)
            .map(|comparison| vec![(left.as_ref(), comparison, right.as_ref())])
            .unwrap_or_default(),
        Expr::Between(Between {
            expr,
            negated: false,
            low,
            high,
        }) => vec![
            (expr, Comparison::GreaterOrEqual, low),
            (expr, Comparison::LessOrEqual, high),
        ],
        _ => Vec::new(),
    }
}
