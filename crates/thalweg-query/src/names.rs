//! Names without regard to case: what a statement writes becomes what the tables call it.
//!
//! Invariants: an identifier that names a column or alias exactly, after SQL's own folding of unquoted ones, is left
//! alone; any other that names one of them in another case is replaced by it, quoted. DataFusion then matches
//! exactly, and results carry the names that columns were created with. What a SELECT calls a result is no name in its own
//! items and WHERE, nor in a call of a function elsewhere: `avg(Voltage) AS voltage` is of the column.

use crate::error::query;
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart,
    OrderBy, Query, Select, SelectItem, SetExpr, TableFactor, Visit, VisitMut, Visitor, VisitorMut,
    WildcardAdditionalOptions,
};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use thalweg_table::schema::fold_name;
use thalweg_table::{Error, Result};

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
    /// Of columns.
    exact: HashSet<String>,
    /// Of queries in WITH.
    queries: HashSet<String>,
    /// Of results, and how many SELECTs give them.
    aliases: HashMap<String, usize>,
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
    ///
    /// # Errors
    /// `Query` for a wildcard that replaces a column which there is not: DataFusion would not notice.
    pub(crate) fn apply<T: Visit + VisitMut>(mut self, statement: &mut T) -> Result<()> {
        let mut written = Written::default();
        let _ = Visit::visit(statement, &mut written);
        for alias in written.aliases {
            // A column of the same name comes first.
            if !self.columns.0.contains_key(&fold_name(&alias)) {
                self.columns.add(&alias);
            }
            *self.aliases.entry(alias).or_default() += 1;
        }
        self.queries = written.queries;
        for (qualifier, table) in written.tables {
            let entry = self
                .qualifiers
                .entry(qualifier)
                .or_insert_with(|| Some(table.clone()));
            if entry.as_ref().is_some_and(|known| *known != table) {
                *entry = None;
            }
        }
        match VisitMut::visit(statement, &mut Rewriter { names: &self }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    fn correct(&self, ident: &mut Ident) {
        let written = normalized(ident);
        if self.exact.contains(&written) || self.aliases.contains_key(&written) {
            return;
        }
        if let Some(meant) = self.columns.find(&written) {
            *ident = Ident::with_quote('"', meant);
        }
    }

    /// The same where DataFusion compares names as they are written.
    fn correct_and_fold(&self, ident: &mut Ident) {
        self.correct(ident);
        *ident = Ident::with_quote('"', normalized(ident));
    }

    /// A name that only this SELECT gives, in a place that does not know the names that it gives.
    fn correct_beside_alias(&self, own: &HashSet<String>, ident: &mut Ident) {
        let written = normalized(ident);
        if !self.exact.contains(&written)
            && own.contains(&written)
            && let Some(meant) = self.columns.find(&written)
        {
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
    /// Queries in WITH.
    queries: HashSet<String>,
    /// What qualifies the columns of a table, and the table; both folded.
    tables: Vec<(String, String)>,
}

impl Visitor for Written {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.aliases.extend(aliases(select));
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let queries = query.with.iter().flat_map(|with| &with.cte_tables);
        let names = queries.map(|cte| fold_name(&cte.alias.name.value));
        self.queries.extend(names);
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

/// The names that a SELECT gives, each once.
fn aliases(select: &Select) -> HashSet<String> {
    let alias = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(normalized(alias)),
        _ => None,
    };
    select.projection.iter().filter_map(alias).collect()
}

/// Corrects columns of one SELECT, and none of the queries in it.
struct OfSelect<'a> {
    names: &'a Names,
    /// Names that this SELECT gives, and nothing that it reads from.
    own: HashSet<String>,
    depth: usize,
    /// How many calls of functions the place is in; `None` where all names are of columns.
    calls: Option<usize>,
}

impl OfSelect<'_> {
    fn is_of_column(&self) -> bool {
        self.depth == 0 && self.calls != Some(0)
    }
}

impl VisitorMut for OfSelect<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(_) => self.calls = self.calls.map(|calls| calls + 1),
            Expr::Identifier(ident) if self.is_of_column() => {
                self.names.correct_beside_alias(&self.own, ident);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if matches!(expr, Expr::Function(_)) {
            self.calls = self.calls.map(|calls| calls - 1);
        }
        ControlFlow::Continue(())
    }
}

struct Rewriter<'a> {
    names: &'a Names,
}

impl Rewriter<'_> {
    /// Columns in a SELECT, and in what sorts its rows, that are called as its results are.
    fn beside_aliases(&self, select: &mut Select, order_by: &mut Option<OrderBy>) {
        let reads_tables_only = self.reads_tables_only(select);
        let mut own = aliases(select);
        own.retain(|alias| reads_tables_only || self.names.aliases.get(alias) == Some(&1));
        if own.is_empty() {
            return;
        }
        let mut visitor = OfSelect {
            names: self.names,
            own,
            depth: 0,
            calls: None,
        };
        let _ = VisitMut::visit(&mut select.projection, &mut visitor);
        let _ = VisitMut::visit(&mut select.selection, &mut visitor);
        for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
            let _ = VisitMut::visit(&mut join.join_operator, &mut visitor);
        }
        visitor.calls = Some(0);
        let _ = VisitMut::visit(&mut select.group_by, &mut visitor);
        let _ = VisitMut::visit(&mut select.having, &mut visitor);
        let _ = VisitMut::visit(&mut select.qualify, &mut visitor);
        let _ = VisitMut::visit(order_by, &mut visitor);
    }

    /// The SELECTs of a query that its own names sort.
    fn of_body(&self, body: &mut SetExpr, order_by: &mut Option<OrderBy>) {
        match body {
            SetExpr::Select(select) => self.beside_aliases(select, order_by),
            SetExpr::SetOperation { left, right, .. } => {
                // What sorts the rows of both knows their names only.
                self.of_body(left, &mut None);
                self.of_body(right, &mut None);
            }
            _ => {}
        }
    }

    fn reads_tables_only(&self, select: &Select) -> bool {
        select.from.iter().all(|from| {
            let joined = from.joins.iter().map(|join| &join.relation);
            std::iter::once(&from.relation)
                .chain(joined)
                .all(|factor| self.is_table(factor))
        })
    }

    /// A column that a wildcard replaces, and that no table has.
    fn unknown_replaced<'b>(&self, options: &'b WildcardAdditionalOptions) -> Option<&'b str> {
        let replaced = options.opt_replace.iter().flat_map(|all| &all.items);
        let mut names = replaced.map(|item| item.column_name.value.as_str());
        names.find(|name| !self.names.exact.contains(*name))
    }

    fn is_table(&self, factor: &TableFactor) -> bool {
        let TableFactor::Table { name, .. } = factor else {
            return false;
        };
        let table = name.0.last().and_then(ObjectNamePart::as_ident);
        table.is_some_and(|table| {
            let name = fold_name(&table.value);
            self.names.tables.contains_key(&name) && !self.names.queries.contains(&name)
        })
    }

    fn wildcard(&self, options: &mut WildcardAdditionalOptions) {
        match &mut options.opt_exclude {
            Some(ExcludeSelectItem::Single(name)) => self.left_out(name),
            Some(ExcludeSelectItem::Multiple(names)) => {
                names.iter_mut().for_each(|name| self.left_out(name))
            }
            None => {}
        }
        if let Some(except) = &mut options.opt_except {
            self.names.correct_and_fold(&mut except.first_element);
            except
                .additional_elements
                .iter_mut()
                .for_each(|name| self.names.correct_and_fold(name));
        }
        for replaced in options
            .opt_replace
            .iter_mut()
            .flat_map(|all| &mut all.items)
        {
            self.names.correct_and_fold(&mut replaced.column_name);
        }
    }

    /// A column that a wildcard leaves out.
    fn left_out(&self, name: &mut ObjectName) {
        self.object(name);
        if let Some(ObjectNamePart::Identifier(ident)) = name.0.last_mut() {
            self.names.correct_and_fold(ident);
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
    type Break = Error;

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<Error> {
        for part in &mut relation.0 {
            if let ObjectNamePart::Identifier(ident) = part {
                fold_qualifier(ident);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
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

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            fold_qualifier(&mut cte.alias.name);
        }
        self.of_body(&mut query.body, &mut query.order_by);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        let reads_tables_only = self.reads_tables_only(select);
        for item in &mut select.projection {
            if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item
            {
                self.wildcard(options);
                if reads_tables_only && let Some(unknown) = self.unknown_replaced(options) {
                    return ControlFlow::Break(query(format!(
                        "there is no column \"{unknown}\" that REPLACE could replace"
                    )));
                }
            }
        }
        for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
            self.join(join);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
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
