//! SQL of other databases, in terms of the functions that there are.
//!
//! Invariants: translated before a statement is planned, so that pushdown sees one form of each question; a column without a
//! name is called by its expression as it was written; a function that is not known here is left alone.

mod functions;
pub(crate) mod output_names;
mod types;

use crate::error::unsupported;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectFlavor,
    SelectItem, SetExpr, Value, VisitMut, VisitorMut, WildcardAdditionalOptions,
};
use std::ops::ControlFlow;
use thalweg_table::{Error, Result};

/// Translates a statement.
pub(crate) fn translate(statement: &mut DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(inner) => visit(&mut **inner),
        DfStatement::Explain(explain) => translate(&mut explain.statement),
        // Refused by their kind.
        DfStatement::CopyTo(_) | DfStatement::CreateExternalTable(_) | DfStatement::Reset(_) => {
            Ok(())
        }
    }
}

/// Translates a condition.
pub(crate) fn translate_condition(condition: &mut Expr) -> Result<()> {
    visit(condition)
}

fn visit(node: &mut impl VisitMut) -> Result<()> {
    match node.visit(&mut Translator::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

#[derive(Default)]
struct Translator {
    /// The names of the items of each SELECT that is being visited, where an item has none of its own.
    names: Vec<Vec<Option<String>>>,
}

impl VisitorMut for Translator {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        order_by_positions(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        output_names::order_distinct(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        match select.flavor {
            SelectFlavor::FromFirstNoSelect => {
                select.flavor = SelectFlavor::Standard;
                let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
                select.projection = vec![all];
            }
            _ if select.projection.is_empty() => {
                let tables: Vec<String> = select.from.iter().map(ToString::to_string).collect();
                let tables = tables.join(", ").to_lowercase();
                return ControlFlow::Break(unsupported(format!(
                    "SELECT names no columns of {tables}: write SELECT * or count(*)"
                )));
            }
            _ => {}
        }
        let names = select.projection.iter().map(output_names::of_unnamed);
        self.names.push(names.collect());
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        output_names::give(select, self.names.pop().unwrap_or_default());
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let translated = match expr {
            Expr::Function(function) => functions::translated(function),
            Expr::AtTimeZone {
                timestamp,
                time_zone,
            } => functions::at_time_zone(timestamp, time_zone).map(Some),
            Expr::Cast { .. } | Expr::TypedString(_) => types::translated(expr),
            Expr::AnyOp { .. } | Expr::AllOp { .. } => any_or_all(expr),
            _ => Ok(None),
        };
        match translated {
            Ok(Some(translated)) => *expr = translated,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

/// `= ANY` and `<> ALL` of a query as IN and NOT IN. The others are refused: DataFusion takes a column outside for the one inside
/// where both tables have the same name.
fn any_or_all(expr: &Expr) -> Result<Option<Expr>> {
    let (left, op, right, negated) = match expr {
        Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        } => (left, compare_op, right, false),
        Expr::AllOp {
            left,
            compare_op,
            right,
        } => (left, compare_op, right, true),
        _ => return Ok(None),
    };
    let Expr::Subquery(subquery) = &**right else {
        return Ok(None);
    };
    let wanted = if negated {
        BinaryOperator::NotEq
    } else {
        BinaryOperator::Eq
    };
    if *op != wanted {
        let name = if negated { "ALL" } else { "ANY" };
        return Err(unsupported(format!(
            "{op} {name} of a query is not offered: compare with (SELECT max(...)) or (SELECT min(...))"
        )));
    }
    Ok(Some(Expr::InSubquery {
        expr: left.clone(),
        subquery: subquery.clone(),
        negated,
    }))
}

/// ORDER BY ALL as positions, which the parser takes for a column of that name. Where `*` stands for columns DataFusion counts
/// them.
fn order_by_positions(query: &mut Query) {
    let Some(OrderBy { kind, .. }) = &mut query.order_by else {
        return;
    };
    let (OrderByKind::Expressions(exprs), SetExpr::Select(select)) = (&*kind, &*query.body) else {
        return;
    };
    let options = match &**exprs {
        [
            OrderByExpr {
                expr: Expr::Identifier(name),
                options,
                ..
            },
        ] if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") => *options,
        _ => return,
    };
    let is_single = |item: &SelectItem| {
        matches!(
            item,
            SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
        )
    };
    if select.projection.is_empty() || !select.projection.iter().all(is_single) {
        *kind = OrderByKind::All(options);
        return;
    }
    let position = |position: usize| OrderByExpr {
        expr: Expr::Value(Value::Number(position.to_string(), false).into()),
        options,
        with_fill: None,
    };
    *kind = OrderByKind::Expressions((1..=select.projection.len()).map(position).collect());
}
