//! Names without regard to case: what a statement writes becomes what the tables call it.
//!
//! Invariants: an identifier that names a column or alias exactly, after SQL's own folding of unquoted ones, is left
//! alone; any other that names one of them in another case is replaced by it, quoted. DataFusion then matches
//! exactly, and results carry the names that columns were created with.

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart,
    Query, Select, SelectItem, Statement, TableFactor, Visit, VisitMut, Visitor, VisitorMut,
    WildcardAdditionalOptions,
};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use thalweg_table::schema::fold_name;

/// The names that identifiers of a statement may mean.
#[derive(Debug, Default)]
pub(crate) struct Names {
    exact: HashSet<String>,
    /// `None` where two names differ only in case: then only the exact name will do.
    by_fold: HashMap<String, Option<String>>,
}

impl Names {
    /// Adds a name; the first of its kind wins over later ones only if they are the same.
    pub(crate) fn add(&mut self, name: &str) {
        if !self.exact.insert(name.to_owned()) {
            return;
        }
        let entry = self
            .by_fold
            .entry(fold_name(name))
            .or_insert_with(|| Some(name.to_owned()));
        if entry.as_deref().is_some_and(|known| known != name) {
            *entry = None;
        }
    }

    /// Replaces what identifiers of columns in `statement` say by what is meant.
    pub(crate) fn apply(mut self, statement: &mut Statement) {
        let mut aliases = Aliases::default();
        let _ = Visit::visit(statement, &mut aliases);
        for alias in aliases.0 {
            // A column of the same name comes first.
            if !self.by_fold.contains_key(&fold_name(&alias)) || self.exact.contains(&alias) {
                self.add(&alias);
            } else {
                self.exact.insert(alias);
            }
        }
        let _ = VisitMut::visit(statement, &mut Rewriter { names: &self });
    }

    fn correct(&self, ident: &mut Ident) {
        let written = normalized(ident);
        if self.exact.contains(&written) {
            return;
        }
        if let Some(Some(meant)) = self.by_fold.get(&fold_name(&written)) {
            *ident = Ident::with_quote('"', meant);
        }
    }
}

/// What SQL takes an identifier for.
fn normalized(ident: &Ident) -> String {
    if ident.quote_style.is_some() {
        ident.value.clone()
    } else {
        fold_name(&ident.value)
    }
}

/// Tables are found in any case; their qualifiers must then agree.
fn fold_qualifier(ident: &mut Ident) {
    if ident.quote_style.is_some() {
        ident.value = fold_name(&ident.value);
    }
}

/// The aliases of result columns.
#[derive(Default)]
struct Aliases(Vec<String>);

impl Visitor for Aliases {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                self.0.push(normalized(alias));
            }
        }
        ControlFlow::Continue(())
    }
}

struct Rewriter<'a> {
    names: &'a Names,
}

impl Rewriter<'_> {
    fn wildcard(&self, options: &mut WildcardAdditionalOptions) {
        match &mut options.opt_exclude {
            Some(ExcludeSelectItem::Single(name)) => self.object(name),
            Some(ExcludeSelectItem::Multiple(names)) => {
                names.iter_mut().for_each(|name| self.object(name))
            }
            None => {}
        }
        if let Some(except) = &mut options.opt_except {
            self.names.correct(&mut except.first_element);
            except
                .additional_elements
                .iter_mut()
                .for_each(|name| self.names.correct(name));
        }
    }

    /// A column's name, perhaps qualified.
    fn object(&self, name: &mut ObjectName) {
        let last = name.0.len().saturating_sub(1);
        for (position, part) in name.0.iter_mut().enumerate() {
            match part {
                ObjectNamePart::Identifier(ident) if position == last => self.names.correct(ident),
                ObjectNamePart::Identifier(ident) => fold_qualifier(ident),
                ObjectNamePart::Function(_) => {}
            }
        }
    }

    fn join(&self, join: &mut Join) {
        let constraint = match &mut join.join_operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)
            | JoinOperator::Semi(constraint)
            | JoinOperator::LeftSemi(constraint)
            | JoinOperator::RightSemi(constraint)
            | JoinOperator::Anti(constraint)
            | JoinOperator::LeftAnti(constraint)
            | JoinOperator::RightAnti(constraint) => constraint,
            _ => return,
        };
        if let JoinConstraint::Using(columns) = constraint {
            columns.iter_mut().for_each(|column| self.object(column));
        }
    }
}

impl VisitorMut for Rewriter<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
        for part in &mut relation.0 {
            if let ObjectNamePart::Identifier(ident) = part {
                fold_qualifier(ident);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table {
            alias: Some(alias), ..
        }
        | TableFactor::Derived {
            alias: Some(alias), ..
        } = factor
        {
            fold_qualifier(&mut alias.name);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            fold_qualifier(&mut cte.alias.name);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item
            {
                self.wildcard(options);
            }
        }
        for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
            self.join(join);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(ident) => self.names.correct(ident),
            Expr::CompoundIdentifier(parts) => {
                if let Some((column, qualifiers)) = parts.split_last_mut() {
                    qualifiers.iter_mut().for_each(fold_qualifier);
                    self.names.correct(column);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
