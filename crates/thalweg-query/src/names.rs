//! Names without regard to case: what a statement writes becomes what the tables call it.
//!
//! Invariants: a name is looked for where it stands, in what its SELECT reads, then in the queries around it; one that means a
//! column in other letters is replaced by it, quoted. DataFusion then matches exactly, and results carry the names that columns
//! were created with. Results of a SELECT are known by their names after it: in ORDER BY they come before columns, in GROUP BY,
//! HAVING and QUALIFY after them, and nowhere else are they known. They keep the letters that they are written in, as columns
//! of tables do.

mod order_keys;
mod scope;

use crate::dialect::output_names::visible;
use crate::error::query;
use datafusion_sql::sqlparser::ast::{
    Distinct, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName,
    ObjectNamePart, OrderBy, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};
use order_keys::{InsideExpressions, is_transparent, leave_columns_to};
use scope::{Factor, Scope, column_of, correct_of, normalized};
use std::collections::HashMap;
use std::ops::ControlFlow;
use thalweg_planner::walk_mut;
use thalweg_table::schema::fold_name;
use thalweg_table::{Error, Result};

/// Stands for the name of a result that has none: nobody writes it.
const UNNAMED: &str = "\0";

/// The columns of a result; `None` where only planning finds out.
type Columns = Option<Vec<String>>;

/// The queries of WITH that are known at a place, by folded names.
type Queries = HashMap<String, Columns>;

/// The stored tables of a statement.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Columns by folded names.
    tables: HashMap<String, Vec<String>>,
}

impl Names {
    /// Adds the columns of a table.
    pub(crate) fn add_table<'a>(&mut self, table: &str, columns: impl Iterator<Item = &'a String>) {
        self.tables
            .insert(fold_name(table), columns.cloned().collect());
    }

    /// Spells the names of columns in all queries of a statement.
    ///
    /// # Errors
    /// `Query` for a name that means columns of several tables, and for a wildcard that replaces a column which there is not.
    pub(crate) fn apply<T: VisitMut>(&self, statement: &mut T) -> Result<()> {
        let _ = walk_mut(statement, &mut Qualifiers);
        let queries = Queries::new();
        self.walk(statement, None, &queries, Aliases::None)
    }

    /// Spells the names of columns in a condition on one table.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub(crate) fn apply_to_condition(&self, table: &str, condition: &mut Expr) -> Result<()> {
        let _ = walk_mut(condition, &mut Qualifiers);
        let name = fold_name(table);
        let columns = self.tables.get(&name).cloned();
        let factors = [Factor::new(Some(name), columns)];
        let scope = Scope {
            factors: &factors,
            outer: None,
        };
        self.walk(condition, Some(&scope), &Queries::new(), Aliases::None)
    }

    fn walk<T: VisitMut>(
        &self,
        node: &mut T,
        scope: Option<&Scope<'_>>,
        queries: &Queries,
        aliases: Aliases<'_>,
    ) -> Result<()> {
        let mut walker = Walker {
            names: self,
            scope,
            queries,
            aliases,
            depth: 0,
            calls: 0,
            inside: 0,
        };
        match walk_mut(node, &mut walker) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    fn query(
        &self,
        query: &mut Query,
        outer: Option<&Scope<'_>>,
        queries: &Queries,
    ) -> Result<Columns> {
        let Query {
            with,
            body,
            order_by,
            ..
        } = query;
        let mut queries = queries.clone();
        if let Some(with) = with {
            for cte in &mut with.cte_tables {
                let name = fold_name(&cte.alias.name.value);
                if with.recursive {
                    queries.insert(name.clone(), renamed(None, &cte.alias));
                }
                let columns = self.query(&mut cte.query, outer, &queries)?;
                name_rest(Some(&mut cte.alias), columns.as_deref());
                queries.insert(name, renamed(columns, &cte.alias));
            }
        }
        if let SetExpr::Select(select) = &mut **body {
            return self.select(select, outer, &queries, order_by.as_mut());
        }
        let columns = self.body(body, outer, &queries)?;
        if let Some(order_by) = order_by {
            let factors = [Factor::new(None, columns.clone())];
            let scope = Scope {
                factors: &factors,
                outer: None,
            };
            self.walk(order_by, Some(&scope), &queries, Aliases::None)?;
        }
        Ok(columns)
    }

    fn body(
        &self,
        body: &mut SetExpr,
        outer: Option<&Scope<'_>>,
        queries: &Queries,
    ) -> Result<Columns> {
        match body {
            SetExpr::Select(select) => self.select(select, outer, queries, None),
            SetExpr::Query(query) => self.query(query, outer, queries),
            SetExpr::SetOperation { left, right, .. } => {
                let columns = self.body(left, outer, queries)?;
                self.body(right, outer, queries)?;
                Ok(columns)
            }
            other => {
                self.walk(other, outer, queries, Aliases::None)?;
                Ok(columns_of_values(other))
            }
        }
    }

    fn select(
        &self,
        select: &mut Select,
        outer: Option<&Scope<'_>>,
        queries: &Queries,
        order_by: Option<&mut OrderBy>,
    ) -> Result<Columns> {
        let mut factors = Vec::new();
        for from in &mut select.from {
            self.joined(from, &mut factors, outer, queries)?;
        }
        let scope = Scope {
            factors: &factors,
            outer,
        };
        let inside = InsideExpressions::of(order_by.as_deref(), select.distinct.as_ref());
        if !inside.is_empty() {
            leave_columns_to(&inside, select, &scope);
        }
        let mut columns = Some(Vec::new());
        let mut aliases = Vec::new();
        for item in &mut select.projection {
            let of_item = self.item(item, &scope, queries)?;
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                aliases.push(normalized(alias));
            }
            columns = columns.zip(of_item).map(|(mut all, more): (Vec<_>, _)| {
                all.extend(more);
                all
            });
        }
        let (first, last) = (Aliases::First(&aliases), Aliases::Last(&aliases));
        let scope = Some(&scope);
        self.walk(&mut select.prewhere, scope, queries, Aliases::None)?;
        self.walk(&mut select.selection, scope, queries, Aliases::None)?;
        scope::qualify_shared(&factors, &mut select.selection);
        self.walk(&mut select.named_window, scope, queries, Aliases::None)?;
        self.walk(&mut select.group_by, scope, queries, last)?;
        self.walk(&mut select.having, scope, queries, last)?;
        self.walk(&mut select.qualify, scope, queries, last)?;
        if let Some(Distinct::On(keys)) = &mut select.distinct {
            self.walk(keys, scope, queries, first)?;
        }
        self.walk(&mut select.sort_by, scope, queries, first)?;
        if let Some(order_by) = order_by {
            self.walk(order_by, scope, queries, first)?;
        }
        Ok(columns)
    }

    /// The columns of an item of a SELECT.
    fn item(&self, item: &mut SelectItem, scope: &Scope<'_>, queries: &Queries) -> Result<Columns> {
        match item {
            SelectItem::Wildcard(options) => {
                let of_scope = all_columns(scope.factors);
                self.wildcard(options, scope, queries)?;
                without(of_scope, options)
            }
            SelectItem::QualifiedWildcard(kind, options) => {
                let qualifier = match kind {
                    SelectItemQualifiedWildcardKind::ObjectName(name) => {
                        name.0.last().and_then(ObjectNamePart::as_ident)
                    }
                    SelectItemQualifiedWildcardKind::Expr(_) => None,
                };
                let factor = qualifier.and_then(|qualifier| scope.factor(qualifier));
                let columns = factor.and_then(|factor| factor.columns.clone());
                self.wildcard(options, scope, queries)?;
                without(columns, options)
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                self.walk(expr, Some(scope), queries, Aliases::None)?;
                Ok(Some(vec![normalized(alias)]))
            }
            SelectItem::UnnamedExpr(expr) => {
                self.walk(expr, Some(scope), queries, Aliases::None)?;
                Ok(Some(vec![match expr {
                    Expr::Identifier(ident) => normalized(ident),
                    Expr::CompoundIdentifier(parts) => {
                        parts.last().map_or_else(String::new, normalized)
                    }
                    _ => UNNAMED.to_owned(),
                }]))
            }
            other => {
                self.walk(other, Some(scope), queries, Aliases::None)?;
                Ok(None)
            }
        }
    }

    fn wildcard(
        &self,
        options: &mut WildcardAdditionalOptions,
        scope: &Scope<'_>,
        queries: &Queries,
    ) -> Result<()> {
        let correct = |ident: &mut Ident| scope.correct(ident).map(drop);
        let correct_last = |name: &mut ObjectName| match name.0.last_mut() {
            Some(ObjectNamePart::Identifier(ident)) => correct(ident),
            _ => Ok(()),
        };
        match &mut options.opt_exclude {
            Some(ExcludeSelectItem::Single(name)) => correct_last(name)?,
            Some(ExcludeSelectItem::Multiple(names)) => {
                names.iter_mut().try_for_each(correct_last)?;
            }
            None => {}
        }
        if let Some(except) = &mut options.opt_except {
            correct(&mut except.first_element)?;
            except
                .additional_elements
                .iter_mut()
                .try_for_each(correct)?;
        }
        let is_known = scope.factors.iter().all(|factor| factor.columns.is_some());
        for item in options
            .opt_replace
            .iter_mut()
            .flat_map(|all| &mut all.items)
        {
            let name = &mut item.column_name;
            let is_there = scope
                .factors
                .iter()
                .any(|factor| column_of(factor, name).is_some());
            if is_known && !is_there {
                return Err(query(format!(
                    "there is no column \"{}\" that REPLACE could replace",
                    name.value
                )));
            }
            correct(name)?;
            self.walk(&mut item.expr, Some(scope), queries, Aliases::None)?;
        }
        Ok(())
    }

    /// Adds what a FROM reads, and spells the conditions of its joins.
    fn joined(
        &self,
        from: &mut TableWithJoins,
        factors: &mut Vec<Factor>,
        outer: Option<&Scope<'_>>,
        queries: &Queries,
    ) -> Result<()> {
        self.factor(&mut from.relation, factors, outer, queries)?;
        for join in &mut from.joins {
            let left = factors.len();
            self.factor(&mut join.relation, factors, outer, queries)?;
            let scope = Scope { factors, outer };
            match constraint_of(&mut join.join_operator) {
                Some(JoinConstraint::Using(columns)) => {
                    let sides = factors.split_at(left);
                    for name in columns {
                        using(name, sides)?;
                    }
                }
                Some(JoinConstraint::Natural) => {
                    let shared = natural(factors.split_at(left))?;
                    if let Some(joined) = factors.last_mut() {
                        joined.shared = shared;
                    }
                }
                _ => self.walk(
                    &mut join.join_operator,
                    Some(&scope),
                    queries,
                    Aliases::None,
                )?,
            }
        }
        Ok(())
    }

    fn factor(
        &self,
        factor: &mut TableFactor,
        factors: &mut Vec<Factor>,
        outer: Option<&Scope<'_>>,
        queries: &Queries,
    ) -> Result<()> {
        let before = Scope { factors, outer };
        let made = match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                ..
            } => {
                let table = name.0.last().and_then(ObjectNamePart::as_ident);
                let table = table.map(|ident| fold_name(&ident.value));
                let columns = table.as_ref().and_then(|table| match queries.get(table) {
                    Some(columns) => columns.clone(),
                    None => self.tables.get(table).cloned(),
                });
                name_rest(alias.as_mut(), columns.as_deref());
                named(columns, alias.as_ref(), table)
            }
            TableFactor::Derived {
                lateral,
                subquery,
                alias,
                ..
            } => {
                let around = if *lateral { Some(&before) } else { outer };
                let columns = self.query(subquery, around, queries)?;
                name_rest(alias.as_mut(), columns.as_deref());
                named(columns, alias.as_ref(), None)
            }
            TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } => {
                let mut inner = Vec::new();
                self.joined(table_with_joins, &mut inner, outer, queries)?;
                match alias {
                    None => {
                        factors.extend(inner);
                        return Ok(());
                    }
                    Some(alias) => named(all_columns(&inner), Some(alias), None),
                }
            }
            // Functions: what they are called with may be columns of what stands before.
            other => {
                self.walk(other, Some(&before), queries, Aliases::None)?;
                let alias = match other {
                    TableFactor::Table { alias, .. }
                    | TableFactor::TableFunction { alias, .. }
                    | TableFactor::Function { alias, .. }
                    | TableFactor::UNNEST { alias, .. } => alias.as_ref(),
                    _ => None,
                };
                named(None, alias, None)
            }
        };
        factors.push(made);
        Ok(())
    }
}

/// Names that a SELECT gives, and whether they come before columns where a name stands alone.
#[derive(Clone, Copy)]
enum Aliases<'a> {
    None,
    First(&'a [String]),
    Last(&'a [String]),
}

/// Spells names in expressions of one SELECT, and has the queries in them spelled with it around them.
struct Walker<'a> {
    names: &'a Names,
    scope: Option<&'a Scope<'a>>,
    queries: &'a Queries,
    aliases: Aliases<'a>,
    /// Queries that were spelled already and are being passed through.
    depth: usize,
    /// Calls of functions that the place is in: names that a SELECT gives are not known there.
    calls: usize,
    /// Expressions that the place is in, but brackets.
    inside: usize,
}

impl Walker<'_> {
    fn identifier(&self, ident: &mut Ident) -> Result<()> {
        let alias = |aliases: &[String]| {
            let written = normalized(ident);
            let exact = aliases.iter().find(|alias| visible(alias) == written);
            let folded = fold_name(&written);
            let is_same = |alias: &&String| fold_name(visible(alias)) == folded;
            let same = || aliases.iter().find(is_same);
            exact.or_else(same).cloned()
        };
        let alias = match self.aliases {
            _ if self.calls > 0 => None,
            Aliases::None => None,
            Aliases::First(aliases) | Aliases::Last(aliases) => alias(aliases),
        };
        if let (Aliases::First(_), Some(alias)) = (self.aliases, &alias)
            // Inside an expression a name that was hidden is that of the column.
            && (self.inside == 0 || visible(alias) == alias)
        {
            *ident = Ident::with_quote('"', alias);
            return Ok(());
        }
        let is_column = match self.scope {
            Some(scope) => scope.correct(ident)?,
            None => false,
        };
        if let (false, Some(alias)) = (is_column, alias) {
            *ident = Ident::with_quote('"', alias);
        }
        Ok(())
    }

    fn compound(&self, parts: &mut [Ident]) -> Result<()> {
        let Some(scope) = self.scope else {
            return Ok(());
        };
        let Some((column, qualifiers)) = parts.split_last_mut() else {
            return Ok(());
        };
        if let Some(factor) = qualifiers.last().and_then(|last| scope.factor(last)) {
            correct_of(factor, column);
            return Ok(());
        }
        // A field of a struct, in a column of a table or by itself.
        match parts {
            [table, column, ..] if scope.factor(table).is_some() => {
                if let Some(factor) = scope.factor(table) {
                    correct_of(factor, column);
                }
                Ok(())
            }
            [column, ..] => scope.correct(column).map(drop),
            [] => Ok(()),
        }
    }
}

impl VisitorMut for Walker<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        if self.depth == 0
            && let Err(error) = self.names.query(query, self.scope, self.queries)
        {
            return ControlFlow::Break(error);
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        let done = match expr {
            Expr::Function(_) => {
                self.calls += 1;
                Ok(())
            }
            Expr::Identifier(ident) => self.identifier(ident),
            Expr::CompoundIdentifier(parts) => self.compound(parts),
            _ => Ok(()),
        };
        self.inside += usize::from(!is_transparent(expr));
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if self.depth == 0 {
            self.calls -= usize::from(matches!(expr, Expr::Function(_)));
            self.inside -= usize::from(!is_transparent(expr));
        }
        ControlFlow::Continue(())
    }
}

/// Quotes the names that a statement gives to columns, where they would lose their letters otherwise; returns whether names have to
/// be matched because of these, or of expressions in an ORDER BY.
pub(crate) fn keep_letters(statement: &mut impl VisitMut) -> bool {
    let mut given = Given { matters: false };
    let _ = walk_mut(statement, &mut given);
    given.matters
}

struct Given {
    matters: bool,
}

impl Given {
    fn keep(&mut self, name: &mut Ident) {
        if name.quote_style.is_none() && fold_name(&name.value) != name.value {
            name.quote_style = Some('"');
            self.matters = true;
        }
    }

    fn keep_all(&mut self, alias: &mut TableAlias) {
        // It may name some columns only.
        self.matters |= !alias.columns.is_empty();
        for column in &mut alias.columns {
            self.keep(&mut column.name);
        }
    }
}

impl VisitorMut for Given {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            self.keep_all(&mut cte.alias);
        }
        let inside = InsideExpressions::of(query.order_by.as_ref(), None);
        self.matters |= !inside.is_empty();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let inside = InsideExpressions::of(None, select.distinct.as_ref());
        self.matters |= !inside.is_empty();
        for item in &mut select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                self.keep(alias);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. } = factor
            && let Some(alias) = alias
        {
            self.keep_all(alias);
        }
        ControlFlow::Continue(())
    }
}

/// Folds quoted names of tables and qualifiers: tables are found in any case, and their qualifiers must then agree.
struct Qualifiers;

impl VisitorMut for Qualifiers {
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

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expr
            && let Some((_, qualifiers)) = parts.split_last_mut()
        {
            qualifiers.iter_mut().for_each(fold_qualifier);
        }
        ControlFlow::Continue(())
    }
}

fn fold_qualifier(ident: &mut Ident) {
    if ident.quote_style.is_some() {
        ident.value = fold_name(&ident.value);
    }
}

fn named(columns: Columns, alias: Option<&TableAlias>, table: Option<String>) -> Factor {
    match alias {
        None => Factor::new(table, columns),
        Some(alias) => {
            let name = fold_name(&alias.name.value);
            Factor::new(Some(name), renamed(columns, alias))
        }
    }
}

/// The names that the planner gives to columns of VALUES.
fn columns_of_values(body: &SetExpr) -> Columns {
    match body {
        SetExpr::Values(values) => {
            let count = values.rows.first().map_or(0, |row| row.content.len());
            Some((1..=count).map(|place| format!("column{place}")).collect())
        }
        _ => None,
    }
}

/// Writes the names of all columns into an alias that names some: the planner takes all or none.
fn name_rest(alias: Option<&mut TableAlias>, columns: Option<&[String]>) {
    let (Some(alias), Some(columns)) = (alias, columns) else {
        return;
    };
    let rest = columns.get(alias.columns.len()..).unwrap_or_default();
    if alias.columns.is_empty() || rest.iter().any(|name| name == UNNAMED) {
        return;
    }
    let rest = rest.iter().map(|name| TableAliasColumnDef {
        name: Ident::with_quote('"', name),
        data_type: None,
    });
    alias.columns.extend(rest);
}

/// The columns under the names that an alias gives to the first of them.
fn renamed(columns: Columns, alias: &TableAlias) -> Columns {
    let given = alias.columns.iter().map(|column| normalized(&column.name));
    match columns {
        _ if alias.columns.is_empty() => columns,
        Some(columns) => {
            let rest = columns.into_iter().skip(alias.columns.len());
            Some(given.chain(rest).collect())
        }
        None => Some(given.collect()),
    }
}

fn all_columns(factors: &[Factor]) -> Columns {
    let columns = factors.iter().map(|factor| factor.columns.clone());
    let columns = columns.collect::<Option<Vec<_>>>()?;
    Some(columns.into_iter().flatten().collect())
}

/// The columns of a wildcard without those that it leaves out.
fn without(columns: Columns, options: &WildcardAdditionalOptions) -> Result<Columns> {
    let last = |name: &ObjectName| {
        let ident = name.0.last().and_then(ObjectNamePart::as_ident);
        ident.map(normalized)
    };
    let mut left_out: Vec<String> = match &options.opt_exclude {
        Some(ExcludeSelectItem::Single(name)) => last(name).into_iter().collect(),
        Some(ExcludeSelectItem::Multiple(names)) => names.iter().filter_map(last).collect(),
        None => Vec::new(),
    };
    if let Some(except) = &options.opt_except {
        left_out.push(normalized(&except.first_element));
        left_out.extend(except.additional_elements.iter().map(normalized));
    }
    let kept = columns.map(|columns| {
        let kept = columns
            .into_iter()
            .filter(|column| !left_out.contains(column));
        kept.collect()
    });
    Ok(kept)
}

fn constraint_of(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::Semi(constraint)
        | JoinOperator::LeftSemi(constraint)
        | JoinOperator::Anti(constraint)
        | JoinOperator::LeftAnti(constraint)
        | JoinOperator::RightSemi(constraint)
        | JoinOperator::RightAnti(constraint) => Some(constraint),
        _ => None,
    }
}

/// Spells a column of USING, which both sides have to spell alike: DataFusion knows no other.
fn using(name: &mut ObjectName, (left, right): (&[Factor], &[Factor])) -> Result<()> {
    let Some(ObjectNamePart::Identifier(ident)) = name.0.last_mut() else {
        return Ok(());
    };
    let of = |side: &[Factor]| {
        let mut columns = side.iter().filter_map(|factor| column_of(factor, ident));
        columns.next().cloned()
    };
    match (of(left), of(right)) {
        (Some(one), Some(other)) if one != other => Err(differ("USING", &one, &other)),
        (Some(column), _) | (None, Some(column)) => {
            if normalized(ident) != column {
                *ident = Ident::with_quote('"', column);
            }
            Ok(())
        }
        (None, None) => Ok(()),
    }
}

/// The columns that a NATURAL join makes one.
///
/// # Errors
/// `Query` for columns that it would not see as the same, as they differ in letters.
fn natural((left, right): (&[Factor], &[Factor])) -> Result<Vec<String>> {
    let (Some(mut left), Some(right)) = (all_columns(left), all_columns(right)) else {
        return Ok(Vec::new());
    };
    for one in &left {
        let other = right
            .iter()
            .find(|other| *other != one && fold_name(other) == fold_name(one));
        if let Some(other) = other {
            return Err(differ("NATURAL JOIN", one, other));
        }
    }
    left.retain(|column| right.contains(column));
    Ok(left)
}

fn differ(what: &str, one: &str, other: &str) -> Error {
    query(format!(
        "{what} takes columns that are called the same on both sides, not \"{one}\" and \"{other}\": write ON a.\"{one}\" = b.\"{other}\""
    ))
}
