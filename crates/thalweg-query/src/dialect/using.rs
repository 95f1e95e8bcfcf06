//! Columns that joins with `USING` make one of both sides.
//!
//! Invariants: such a column has the value of the side that has a row: of the left one, of the right one of a `RIGHT JOIN`, and of
//! a `FULL JOIN` of the one that is there. DataFusion takes the left side's for all of them, and knows no such column in `WHERE` and
//! of three tables, so that the name alone is replaced by what it means. Where that cannot be told from the statement, the join is refused.

use super::functions;
use crate::error::unsupported;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName,
    OrderByKind, Query, ReplaceSelectElement, ReplaceSelectItem, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins, VisitMut,
    VisitorMut, WildcardAdditionalOptions,
};
use std::convert::Infallible;
use std::ops::ControlFlow;
use thalweg_table::schema::fold_name;
use thalweg_table::{Error, Result};

/// The tables of one FROM and the columns that its joins made one.
#[derive(Debug, Default)]
pub(super) struct Joined {
    /// What qualifies the columns of each table; `None` where nothing does.
    tables: Vec<Option<Ident>>,
    columns: Vec<Column>,
    /// Some join is a LEFT JOIN: of `*` DataFusion keeps the column of the table whose name comes first.
    has_left: bool,
    /// A column that a LEFT JOIN made one, of which nothing says which table on the left has it; NATURAL names none.
    unclear: Option<Ident>,
}

/// A column that was made one.
#[derive(Debug)]
struct Column {
    name: Ident,
    value: Expr,
    /// Whether the value may be another than that of the first table that has it.
    is_outer: bool,
    /// The tables that have it, by their places, the first one first; the first is missing where it could be any of several.
    tables: Vec<Option<usize>>,
}

#[derive(Clone, Copy)]
enum Kind {
    Left,
    Other,
}

enum Side {
    Left,
    Right,
    Both,
}

impl Joined {
    /// Reads the joins of a FROM, gives conditions in it what their columns mean, and writes `ON` for `USING` where DataFusion
    /// would compare the column of another table.
    pub(super) fn read(from: &mut [TableWithJoins]) -> Result<Self> {
        let mut all = Self::default();
        for tables in from {
            let mut joined = Self::default();
            let offset = all.tables.len();
            joined.tables.push(name_of(&tables.relation));
            for join in &mut tables.joins {
                joined.add(&mut join.join_operator, name_of(&join.relation))?;
            }
            all.tables.extend(joined.tables);
            all.has_left |= joined.has_left;
            all.unclear = all.unclear.or(joined.unclear);
            for mut column in joined.columns {
                let places = column.tables.iter_mut().flatten();
                places.for_each(|place| *place += offset);
                all.columns.push(column);
            }
        }
        Ok(all)
    }

    fn add(&mut self, join: &mut JoinOperator, table: Option<Ident>) -> Result<()> {
        let kind = match join {
            JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => Kind::Left,
            _ => Kind::Other,
        };
        let (side, constraint, shows_right) = match join {
            JoinOperator::Join(on) | JoinOperator::Inner(on) => (Side::Left, on, true),
            JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (Side::Left, on, true),
            JoinOperator::Right(on) | JoinOperator::RightOuter(on) => (Side::Right, on, true),
            JoinOperator::FullOuter(on) => (Side::Both, on, true),
            JoinOperator::LeftSemi(on) | JoinOperator::LeftAnti(on) => (Side::Left, on, false),
            _ => {
                self.tables.push(table);
                return Ok(());
            }
        };
        let names = match constraint {
            JoinConstraint::Using(names) => names.clone(),
            JoinConstraint::Natural if !matches!(side, Side::Left) || self.has_outer() => {
                return Err(unsupported(
                    "NATURAL with a RIGHT or FULL JOIN is not offered: name the columns, as in FULL JOIN b USING (x)",
                ));
            }
            JoinConstraint::Natural => {
                if matches!(kind, Kind::Left) {
                    self.has_left = true;
                    self.unclear = Some(Ident::new("NATURAL"));
                }
                self.tables.push(table);
                return Ok(());
            }
            JoinConstraint::On(condition) => {
                self.replace_in(condition);
                self.tables.push(table);
                return Ok(());
            }
            _ => {
                self.tables.push(table);
                return Ok(());
            }
        };
        let names: Vec<Ident> = { names.iter() }
            .filter_map(|name| name.0.last()?.as_ident().cloned())
            .collect();
        self.has_left |= matches!(kind, Kind::Left);
        let is_inner = matches!(join, JoinOperator::Join(_) | JoinOperator::Inner(_));
        let mut conditions = Vec::new();
        let mut is_of_other = false;
        let place = self.tables.len();
        for name in names {
            let known = self
                .columns
                .iter()
                .position(|column| is_same(&column.name, &name));
            let only = match &*self.tables {
                [Some(only)] => Some(only.clone()),
                _ => None,
            };
            let left = match known {
                Some(known) => Some(self.columns[known].value.clone()),
                None => only.map(|only| qualified(&only, &name)),
            };
            is_of_other |= known.is_some_and(|known| self.columns[known].is_outer);
            let right = table.as_ref().map(|table| qualified(table, &name));
            conditions.push(left.clone().zip(right.clone()));
            if !shows_right {
                continue;
            }
            let value = match side {
                Side::Left if is_inner => left.or(right),
                Side::Left => left,
                Side::Right => right,
                Side::Both => match (&left, &right) {
                    (Some(left), Some(right)) => {
                        Some(functions::filled("coalesce(a1, a2)", &[left, right])?)
                    }
                    _ => None,
                },
            };
            let is_outer = !matches!(side, Side::Left);
            let Some(value) = value else {
                if is_outer {
                    return Err(unclear(&name));
                }
                self.unclear = Some(name);
                continue;
            };
            match known {
                Some(known) => {
                    let column = &mut self.columns[known];
                    column.value = value;
                    column.is_outer |= is_outer;
                    column.tables.push(Some(place));
                }
                None => self.columns.push(Column {
                    name,
                    value,
                    is_outer,
                    tables: vec![(place == 1).then_some(0), Some(place)],
                }),
            }
        }
        if is_of_other {
            let all: Option<Vec<_>> = conditions.into_iter().collect();
            let all = all.ok_or_else(|| {
                unsupported("USING behind a RIGHT or FULL JOIN with USING takes only columns that those join by: write ON")
            })?;
            let equal = |(left, right): (Expr, Expr)| Expr::BinaryOp {
                left: Box::new(left),
                op: BinaryOperator::Eq,
                right: Box::new(right),
            };
            let condition = all
                .into_iter()
                .map(equal)
                .reduce(|left, right| Expr::BinaryOp {
                    left: Box::new(left),
                    op: BinaryOperator::And,
                    right: Box::new(right),
                });
            if let (Some(condition), Some(constraint)) = (condition, constraint_of(join)) {
                *constraint = JoinConstraint::On(condition);
            }
        }
        if shows_right {
            self.tables.push(table);
        }
        Ok(())
    }

    fn has_outer(&self) -> bool {
        self.columns.iter().any(|column| column.is_outer)
    }

    /// `*` as the columns of each table, where DataFusion would take the left side's values.
    pub(super) fn expand_wildcards(&self, select: &mut Select) -> Result<()> {
        let is_all = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_));
        if !(self.has_outer() || self.has_left) || !select.projection.iter().any(is_all) {
            return Ok(());
        }
        if let Some(name) = &self.unclear {
            return Err(unsupported(format!(
                "* of a LEFT JOIN by {} is not offered, where the statement does not say which table has the column: name the columns, or write ON",
                name.value
            )));
        }
        let mut items = Vec::new();
        for item in std::mem::take(&mut select.projection) {
            match item {
                SelectItem::Wildcard(options) if is_plain(&options) => {
                    items.extend(self.all()?);
                }
                SelectItem::Wildcard(options) => {
                    return Err(unsupported(format!(
                        "*{options} of a LEFT, RIGHT or FULL JOIN with USING is not offered: name the columns"
                    )));
                }
                item => items.push(item),
            }
        }
        select.projection = items;
        Ok(())
    }

    fn all(&self) -> Result<Vec<SelectItem>> {
        let mut items = Vec::new();
        for (place, table) in self.tables.iter().enumerate() {
            let Some(table) = table else {
                return Err(unsupported(
                    "* of a LEFT, RIGHT or FULL JOIN with USING needs a name for each side: write (...) AS a",
                ));
            };
            let mut options = WildcardAdditionalOptions::default();
            let mut replaced = Vec::new();
            let mut excluded = Vec::new();
            for column in &self.columns {
                let first = column.tables[0].ok_or_else(|| unclear(&column.name))?;
                if first == place {
                    replaced.push(Box::new(ReplaceSelectElement {
                        expr: column.value.clone(),
                        column_name: column.name.clone(),
                        as_keyword: true,
                    }));
                } else if column.tables.contains(&Some(place)) {
                    excluded.push(ObjectName::from(vec![column.name.clone()]));
                }
            }
            if !replaced.is_empty() {
                options.opt_replace = Some(ReplaceSelectItem { items: replaced });
            }
            if !excluded.is_empty() {
                options.opt_exclude = Some(ExcludeSelectItem::Multiple(excluded));
            }
            let table = ObjectName::from(vec![table.clone()]);
            let kind = SelectItemQualifiedWildcardKind::ObjectName(table);
            items.push(SelectItem::QualifiedWildcard(kind, options));
        }
        Ok(items)
    }

    /// Replaces the names of columns in a SELECT by what they mean.
    pub(super) fn replace(&self, select: &mut Select) {
        if self.columns.is_empty() {
            return;
        }
        self.replace_in(&mut select.selection);
        // Of two tables DataFusion takes the left side's, as it should.
        if self.tables.len() == 2 && !self.has_outer() {
            return;
        }
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
                && let Some(column) = self
                    .columns
                    .iter()
                    .find(|column| is_same(&column.name, name))
            {
                *item = SelectItem::ExprWithAlias {
                    expr: column.value.clone(),
                    alias: name.clone(),
                };
            }
        }
        self.replace_in(&mut select.projection);
        self.replace_in(&mut select.distinct);
        self.replace_in(&mut select.group_by);
        self.replace_in(&mut select.having);
        self.replace_in(&mut select.named_window);
        self.replace_in(&mut select.qualify);
    }

    fn replace_in(&self, node: &mut impl VisitMut) {
        let mut replacer = Replacer {
            columns: &self.columns,
            depth: 0,
        };
        let _ = node.visit(&mut replacer);
    }
}

/// Replaces names in the ORDER BY of a SELECT that are no columns of its result.
pub(super) fn replace_in_order(query: &mut Query) -> Result<()> {
    let (SetExpr::Select(select), Some(order_by)) = (&*query.body, &mut query.order_by) else {
        return Ok(());
    };
    let OrderByKind::Expressions(exprs) = &mut order_by.kind else {
        return Ok(());
    };
    let mut joined = Joined::read(&mut select.from.clone())?;
    if joined.tables.len() == 2 && !joined.has_outer() {
        return Ok(());
    }
    let is_output = |name: &Ident| {
        select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(Expr::Identifier(own)) => is_same(own, name),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(own)) => {
                own.last().is_some_and(|own| is_same(own, name))
            }
            SelectItem::ExprWithAlias { alias, .. } => is_same(alias, name),
            SelectItem::Wildcard(_) => true,
            _ => false,
        })
    };
    joined.columns.retain(|column| !is_output(&column.name));
    joined.replace_in(exprs);
    Ok(())
}

/// Refuses what would be answered wrongly in brackets, whose tables have names of their own.
pub(super) fn refuse_in_brackets(tables: &mut TableWithJoins) -> Result<()> {
    let joined = Joined::read(std::slice::from_mut(tables))?;
    if joined.has_outer() {
        return Err(unsupported(
            "a RIGHT or FULL JOIN with USING in brackets is not offered: write the joins without brackets, or ON",
        ));
    }
    Ok(())
}

/// Replaces names of columns, not those in queries inside, which have tables of their own.
struct Replacer<'a> {
    columns: &'a [Column],
    depth: usize,
}

impl VisitorMut for Replacer<'_> {
    type Break = Infallible;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Infallible> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Infallible> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if self.depth == 0
            && let Expr::Identifier(name) = expr
            && let Some(column) = self
                .columns
                .iter()
                .find(|column| is_same(&column.name, name))
        {
            *expr = column.value.clone();
        }
        ControlFlow::Continue(())
    }
}

fn constraint_of(join: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match join {
        JoinOperator::Join(on)
        | JoinOperator::Inner(on)
        | JoinOperator::Left(on)
        | JoinOperator::LeftOuter(on)
        | JoinOperator::Right(on)
        | JoinOperator::RightOuter(on)
        | JoinOperator::FullOuter(on)
        | JoinOperator::LeftSemi(on)
        | JoinOperator::LeftAnti(on) => Some(on),
        _ => None,
    }
}

fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    *options
        == WildcardAdditionalOptions {
            wildcard_token: options.wildcard_token.clone(),
            ..WildcardAdditionalOptions::default()
        }
}

fn is_same(left: &Ident, right: &Ident) -> bool {
    fold_name(&left.value) == fold_name(&right.value)
}

fn qualified(table: &Ident, column: &Ident) -> Expr {
    Expr::CompoundIdentifier(vec![table.clone(), column.clone()])
}

fn name_of(table: &TableFactor) -> Option<Ident> {
    let named = |alias: &Option<TableAlias>| alias.as_ref().map(|alias| alias.name.clone());
    match table {
        TableFactor::Table { name, alias, .. } => {
            named(alias).or_else(|| name.0.last()?.as_ident().cloned())
        }
        TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => named(alias),
        _ => None,
    }
}

fn unclear(column: &Ident) -> Error {
    unsupported(format!(
        "the statement does not say which table has \"{}\", by which a RIGHT or FULL JOIN takes USING: write ON a.x = b.x, and coalesce(a.x, b.x) for the column",
        column.value
    ))
}
