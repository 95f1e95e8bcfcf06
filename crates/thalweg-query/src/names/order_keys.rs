//! Names in expressions of ORDER BY and DISTINCT ON.
//!
//! Invariant: a name that stands alone, even in brackets, means an output column of the SELECT; inside an expression it means an
//! input column, if there is one of that name.

use super::scope::{Scope, column_of, normalized};
use crate::dialect::output_names::out_of_reach;
use datafusion_sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, OrderBy, Select, SelectItem, Visitor,
};
use std::collections::HashSet;
use std::ops::ControlFlow;
use thalweg_planner::walk;
use thalweg_table::schema::fold_name;

/// Whether a name in an expression stands as if it were alone.
pub(super) fn is_transparent(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Nested(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_)
    )
}

/// Hides aliases of a SELECT from the expressions of its ORDER BY or DISTINCT ON if an input column has the same name: DataFusion
/// would take the alias. After DISTINCT, and after a GROUP BY without that column, the input column can only be used in aggregates,
/// and the name means the alias.
pub(super) fn leave_columns_to(keys: &InsideExpressions, select: &mut Select, scope: &Scope<'_>) {
    let is_distinct = matches!(select.distinct, Some(Distinct::Distinct));
    for (place, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::ExprWithAlias { expr, alias } = item else {
            continue;
        };
        let name = fold_name(&alias.value);
        let is_itself = match expr {
            Expr::Identifier(column) => fold_name(&column.value) == name,
            _ => false,
        };
        let mut factors = scope.factors.iter();
        if !is_itself
            && (keys.in_calls.contains(&name)
                || keys.in_operators.contains(&name)
                    && !is_distinct
                    && is_key(&select.group_by, &name))
            && factors.any(|factor| column_of(factor, alias).is_some())
        {
            *alias = out_of_reach(&normalized(alias), place);
        }
    }
}

/// Whether a column is one of those of GROUP BY.
fn is_key(group_by: &GroupByExpr, name: &str) -> bool {
    let GroupByExpr::Expressions(keys, _) = group_by else {
        return false;
    };
    let is_it = |key: &Expr| {
        let column = match key {
            Expr::Identifier(column) => Some(column),
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        column.is_some_and(|column| fold_name(&column.value) == name)
    };
    keys.is_empty() || keys.iter().any(is_it)
}

/// The folded names of columns inside of expressions.
#[derive(Default)]
pub(super) struct InsideExpressions {
    /// Columns in calls, and columns with the names of their tables.
    in_calls: HashSet<String>,
    /// Columns in anything else but brackets.
    in_operators: HashSet<String>,
    calls: usize,
    inside: usize,
}

impl InsideExpressions {
    pub(super) fn of(order_by: Option<&OrderBy>, distinct: Option<&Distinct>) -> Self {
        let mut found = Self::default();
        if let Some(order_by) = order_by {
            let _ = walk(order_by, &mut found);
        }
        if let Some(Distinct::On(keys)) = distinct {
            let _ = walk(keys, &mut found);
        }
        found
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_calls.is_empty() && self.in_operators.is_empty()
    }
}

impl Visitor for InsideExpressions {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(_) => self.calls += 1,
            Expr::Identifier(name) if self.calls > 0 => {
                self.in_calls.insert(fold_name(&name.value));
            }
            Expr::Identifier(name) if self.inside > 0 => {
                self.in_operators.insert(fold_name(&name.value));
            }
            Expr::CompoundIdentifier(parts) => {
                let last = parts.last().map(|name| fold_name(&name.value));
                self.in_calls.extend(last);
            }
            _ => {}
        }
        self.inside += usize::from(!is_transparent(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.calls -= usize::from(matches!(expr, Expr::Function(_)));
        self.inside -= usize::from(!is_transparent(expr));
        ControlFlow::Continue(())
    }
}
