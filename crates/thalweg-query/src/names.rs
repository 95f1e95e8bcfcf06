//! Names without regard to case: what a statement writes becomes what the tables call it.
//!
//! Invariants: an identifier that names a column or alias exactly, after SQL's own folding of unquoted ones, is left
//! alone; any other that names one of them in another case is replaced by it, quoted. DataFusion then matches
//! exactly, and results carry the names that columns were created with.

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart,
    Query, Select, SelectItem, TableFactor, Visit, VisitMut, Visitor, VisitorMut,
    WildcardAdditionalOptions,
};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use thalweg_table::schema::fold_name;

/// Names by their folded form; `None` where two differ only in case: then only the exact name will do.
#[derive(Debug, Default)]
struct Folded(HashMap<String, Option<String>>);

impl Folded {
    fn add(&mut self, name: &str) {
        let entry = self
            .0
            .entry(fold_name(name))
            .or_insert_with(|| Some(name.to_owned()));
        if entry.as_deref().is_some_and(|known| known != name) {
            *entry = None;
        }
    }

    fn find(&self, written: &str) -> Option<&str> {
        self.0.get(&fold_name(written))?.as_deref()
    }
}

/// The names that identifiers of a statement may mean.
#[derive(Debug, Default)]
pub(crate) struct Names {
    exact: HashSet<String>,
    columns: Folded,
    /// By folded names of tables.
    tables: HashMap<String, Folded>,
    /// Tables by what qualifies their columns; `None` where that depends on the place.
    qualifiers: HashMap<String, Option<String>>,
}

impl Names {
    /// Adds the columns of a table.
    pub(crate) fn add_table<'a>(&mut self, table: &str, columns: impl Iterator<Item = &'a String>) {
        let own = self.tables.entry(fold_name(table)).or_default();
        for column in columns {
            self.exact.insert(column.clone());
            self.columns.add(column);
            own.add(column);
        }
    }

    /// Replaces what identifiers of columns in `statement` say by what is meant.
    pub(crate) fn apply<T: Visit + VisitMut>(mut self, statement: &mut T) {
        let mut written = Written::default();
        let _ = Visit::visit(statement, &mut written);
        for alias in written.aliases {
            // A column of the same name comes first.
            if !self.columns.0.contains_key(&fold_name(&alias)) {
                self.columns.add(&alias);
            }
            self.exact.insert(alias);
        }
        for (qualifier, table) in written.tables {
            let entry = self
                .qualifiers
                .entry(qualifier)
                .or_insert_with(|| Some(table.clone()));
            if entry.as_ref().is_some_and(|known| *known != table) {
                *entry = None;
            }
        }
        let _ = VisitMut::visit(statement, &mut Rewriter { names: &self });
    }

    fn correct(&self, ident: &mut Ident) {
        let written = normalized(ident);
        if self.exact.contains(&written) {
            return;
        }
        if let Some(meant) = self.columns.find(&written) {
            *ident = Ident::with_quote('"', meant);
        }
    }

    /// A column of the table that `qualifier` stands for.
    fn correct_of(&self, qualifier: &Ident, ident: &mut Ident) {
        let table = self
            .qualifiers
            .get(&fold_name(&qualifier.value))
            .and_then(Option::as_ref);
        match table.and_then(|table| self.tables.get(table)?.find(&normalized(ident))) {
            Some(meant) => *ident = Ident::with_quote('"', meant),
            None => self.correct(ident),
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

/// What a statement itself names.
#[derive(Default)]
struct Written {
    /// Result columns.
    aliases: Vec<String>,
    /// What qualifies the columns of a table, and the table; both folded.
    tables: Vec<(String, String)>,
}

impl Visitor for Written {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                self.aliases.push(normalized(alias));
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias, .. } = factor
            && let Some(table) = name.0.last().and_then(ObjectNamePart::as_ident)
        {
            let qualifier = alias.as_ref().map_or(table, |alias| &alias.name);
            self.tables
                .push((fold_name(&qualifier.value), fold_name(&table.value)));
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
                    match qualifiers.last() {
                        Some(qualifier) => self.names.correct_of(qualifier, column),
                        None => self.names.correct(column),
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
