//! SQL of other databases, in terms of the functions that there are.
//!
//! Invariants: translated before a statement is planned, so that pushdown sees one form of each question; what is translated keeps the
//! name that it was written with as the name of its column; a name that is not known here is left alone.

mod functions;

use crate::error::unsupported;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Select, SelectFlavor, SelectItem, VisitMut, VisitorMut, WildcardAdditionalOptions,
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
    /// The items without a name of each SELECT that is being visited, as they were written.
    written: Vec<Vec<Option<Expr>>>,
}

impl VisitorMut for Translator {
    type Break = Error;

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
        let written = select.projection.iter().map(|item| match item {
            SelectItem::UnnamedExpr(expr) => Some(expr.clone()),
            _ => None,
        });
        self.written.push(written.collect());
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        let written = self.written.pop().unwrap_or_default();
        for (item, written) in select.projection.iter_mut().zip(written) {
            if let (SelectItem::UnnamedExpr(expr), Some(written)) = (&mut *item, written)
                && *expr != written
            {
                let alias = Ident::with_quote('"', written.to_string());
                let expr = expr.clone();
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let translated = match expr {
            Expr::Function(function) => functions::translated(function),
            Expr::AtTimeZone {
                timestamp,
                time_zone,
            } => functions::at_time_zone(timestamp, time_zone).map(Some),
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
