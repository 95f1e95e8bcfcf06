//! Columns that joins with `USING` make one of both sides.
//!
//! Invariants: such a column has the value of the side that has a row: of the left one, of the right one of a `RIGHT JOIN`, and of
//! a `FULL JOIN` of the one that is there. DataFusion takes the left side's for all of them, and knows no such column in `WHERE` and
//! of three tables, so that the name alone is replaced by what it means. Where the statement does not show that, the join is
//! refused.

use super::{outside_queries, templates};
use crate::error::unsupported;
use datafusion_sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName,
    OrderByKind, Query, ReplaceSelectElement, ReplaceSelectItem, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins, VisitMut,
    WildcardAdditionalOptions,
};
use thalweg_table::schema::fold_name;
use thalweg_table::{Error, Result};

/// The tables of one FROM and the columns that its joins made one.
#[derive(Debug, Default)]
pub(super) struct Joined {
    /// The name or alias of each table; `None` for one without, as a subquery may be.
    tables: Vec<Option<Ident>>,
    columns: Vec<Column>,
    /// `*` has other values than DataFusion gives it, which takes the column of the table whose name comes first.
    all_differs: bool,
    /// The message for a join where it is unknown which table on the left has its columns.
    unclear: Option<String>,
}

/// A column that was made one.
#[derive(Debug)]
struct Column {
    name: Ident,
    value: Expr,
    /// A RIGHT or FULL JOIN made it: the value may be another than that of the first table that has it.
    is_outer: bool,
    /// The tables that have it, by their places, the first one first; the first is missing where it could be any of several.
    tables: Vec<Option<usize>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inner,
    Left,
    Right,
    Full,
    /// SEMI and ANTI, after which the right side has no columns.
    Semi,
}

/// The joins that may have USING.
fn kind_of(join: &mut JoinOperator) -> Option<(Kind, &mut JoinConstraint)> {
    Some(match join {
        JoinOperator::Join(on) | JoinOperator::Inner(on) => (Kind::Inner, on),
        JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (Kind::Left, on),
        JoinOperator::Right(on) | JoinOperator::RightOuter(on) => (Kind::Right, on),
        JoinOperator::FullOuter(on) => (Kind::Full, on),
        JoinOperator::Semi(on)
        | JoinOperator::LeftSemi(on)
        | JoinOperator::Anti(on)
        | JoinOperator::LeftAnti(on) => (Kind::Semi, on),
        _ => return None,
    })
}

impl Joined {
    /// Reads the joins of a FROM, gives conditions in it what their columns mean, and writes `ON` for `USING` where DataFusion
    /// would compare the column of another table.
    pub(super) fn read(from: &mut [TableWithJoins]) -> Result<Self> {
        let mut all = Self::default();
        // As most statements.
        if from.iter().all(has_no_joins) {
            return Ok(all);
        }
        from.iter_mut().for_each(without_leading_brackets);
        for tables in from {
            let mut joined = Self::default();
            let offset = all.tables.len();
            joined.tables.push(name_of(&tables.relation));
            for join in &mut tables.joins {
                joined.add(&mut join.join_operator, name_of(&join.relation))?;
            }
            all.tables.extend(joined.tables);
            all.all_differs |= joined.all_differs;
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
        let Some((kind, constraint)) = kind_of(join) else {
            self.tables.push(table);
            return Ok(());
        };
        let is_outer = matches!(kind, Kind::Right | Kind::Full);
        match constraint {
            JoinConstraint::Using(names) => {
                let names: Vec<Ident> = { names.iter() }
                    .filter_map(|name| name.0.last()?.as_ident().cloned())
                    .collect();
                self.all_differs |= is_outer || kind == Kind::Left;
                if let Some(condition) = self.merge(kind, &names, table.as_ref())? {
                    *constraint = JoinConstraint::On(condition);
                }
            }
            JoinConstraint::Natural if is_outer || self.has_outer() => {
                return Err(unsupported(
                    "NATURAL with a RIGHT or FULL JOIN is not offered: name the columns, as in FULL JOIN b USING (x)",
                ));
            }
            JoinConstraint::Natural => {
                self.all_differs |= kind == Kind::Left;
                self.unclear = Some("NATURAL".to_owned());
            }
            JoinConstraint::On(condition) => self.replace_in(condition),
            JoinConstraint::None => {
                return Err(unsupported(
                    "a JOIN needs ON or USING, as in a JOIN b USING (x): CROSS JOIN pairs every row with every other",
                ));
            }
        }
        if kind != Kind::Semi {
            self.tables.push(table);
        }
        Ok(())
    }

    /// Makes one of the columns of both sides; returns the condition to join by, where USING would take the column of another table.
    fn merge(
        &mut self,
        kind: Kind,
        names: &[Ident],
        table: Option<&Ident>,
    ) -> Result<Option<Expr>> {
        let place = self.tables.len();
        let is_of_other = { names.iter() }
            .any(|name| self.find(name).is_some_and(|at| self.columns[at].is_outer));
        let mut condition: Option<Expr> = None;
        for name in names {
            let known = self.find(name);
            let left = match (known, &*self.tables) {
                (Some(known), _) => Some(self.columns[known].value.clone()),
                (None, [Some(only)]) => Some(qualified(only, name)),
                _ => None,
            };
            let right = table.map(|table| qualified(table, name));
            if is_of_other {
                let (Some(left), Some(right)) = (&left, &right) else {
                    return Err(unsupported(
                        "USING behind a RIGHT or FULL JOIN with USING takes only columns that those join by: write ON",
                    ));
                };
                let equal = binary(left.clone(), BinaryOperator::Eq, right.clone());
                condition = Some(match condition {
                    Some(others) => binary(others, BinaryOperator::And, equal),
                    None => equal,
                });
            }
            let value = match kind {
                Kind::Semi => continue,
                Kind::Inner => left.or(right),
                Kind::Left => left,
                Kind::Right => right,
                Kind::Full => match (&left, &right) {
                    (Some(left), Some(right)) => {
                        Some(templates::filled("coalesce(a1, a2)", &[left, right])?)
                    }
                    _ => None,
                },
            };
            let is_outer = matches!(kind, Kind::Right | Kind::Full);
            let Some(value) = value else {
                if is_outer {
                    return Err(unclear(name));
                }
                self.unclear = Some(format!("USING ({name})"));
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
                    name: name.clone(),
                    value,
                    is_outer,
                    tables: vec![(place == 1).then_some(0), Some(place)],
                }),
            }
        }
        Ok(condition)
    }

    fn find(&self, name: &Ident) -> Option<usize> {
        find(&self.columns, name)
    }

    fn has_outer(&self) -> bool {
        self.columns.iter().any(|column| column.is_outer)
    }

    /// `*` as the columns of each table, each column that is one only once, where the first table has it.
    pub(super) fn expand_wildcards(&self, select: &mut Select) -> Result<()> {
        let is_all = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_));
        let has_none = self.columns.is_empty() && !self.all_differs;
        if has_none || !select.projection.iter().any(is_all) {
            return Ok(());
        }
        let mut items = Vec::new();
        for item in &select.projection {
            let SelectItem::Wildcard(options) = item else {
                items.push(item.clone());
                continue;
            };
            match self.all(options) {
                Ok(all) => items.extend(all),
                Err(error) if self.all_differs => return Err(error),
                // DataFusion's has the same values, perhaps in another order.
                Err(_) => return Ok(()),
            }
        }
        select.projection = items;
        Ok(())
    }

    fn all(&self, options: &WildcardAdditionalOptions) -> Result<Vec<SelectItem>> {
        let Some(without) = excluded_names(options).filter(|names| {
            // It is unknown which table has another one.
            names.iter().all(|name| self.find(name).is_some())
        }) else {
            return Err(unsupported(format!(
                "*{options} of a LEFT, RIGHT or FULL JOIN with USING is not offered: name the columns"
            )));
        };
        if let Some(words) = &self.unclear {
            return Err(unsupported(format!(
                "* of a LEFT, RIGHT or FULL JOIN is not offered beside {words}, where the statement does not say which table has the \
                 columns: name them, or write ON"
            )));
        }
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
                let is_wanted = !without.iter().any(|name| is_same(name, &column.name));
                if first == place && is_wanted && column.value == qualified(table, &column.name) {
                    // As it is.
                } else if first == place && is_wanted {
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
        // Of two tables DataFusion takes the left side's, as it should, and has the better message where that has none.
        let is_resolved = self.tables.len() == 2 && !self.has_outer();
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item else {
                self.replace_in(item);
                continue;
            };
            if !is_resolved && let Some(at) = self.find(name) {
                *item = SelectItem::ExprWithAlias {
                    expr: self.columns[at].value.clone(),
                    alias: name.clone(),
                };
            }
        }
        self.replace_in(&mut select.distinct);
        self.replace_in(&mut select.group_by);
        self.replace_in(&mut select.having);
        self.replace_in(&mut select.named_window);
        self.replace_in(&mut select.qualify);
    }

    /// Replaces names in a part of a SELECT, but not in queries inside, which have tables of their own.
    fn replace_in(&self, node: &mut impl VisitMut) {
        // The closure does not fail.
        let _ = outside_queries(node, &mut |expr| {
            if let Expr::Identifier(name) = expr
                && let Some(at) = self.find(name)
            {
                *expr = self.columns[at].value.clone();
            }
            Ok(())
        });
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
    if select.from.iter().all(has_no_joins) {
        return Ok(());
    }
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

/// Refuses what would be answered wrongly in brackets that do not come first, whose tables the joins outside do not see.
pub(super) fn refuse_in_brackets(tables: &mut TableWithJoins) -> Result<()> {
    let joined = Joined::read(std::slice::from_mut(tables))?;
    if joined.all_differs {
        return Err(unsupported(
            "a LEFT, RIGHT or FULL JOIN with USING in brackets is not offered behind another table: write it first, or ON",
        ));
    }
    Ok(())
}

fn find(columns: &[Column], name: &Ident) -> Option<usize> {
    columns
        .iter()
        .position(|column| is_same(&column.name, name))
}

fn has_no_joins(tables: &TableWithJoins) -> bool {
    tables.joins.is_empty() && !matches!(tables.relation, TableFactor::NestedJoin { .. })
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

/// `(a JOIN b) JOIN c` as `a JOIN b JOIN c`.
fn without_leading_brackets(tables: &mut TableWithJoins) {
    while let TableFactor::NestedJoin {
        table_with_joins,
        alias: None,
    } = &mut tables.relation
    {
        let mut inner = (**table_with_joins).clone();
        inner.joins.append(&mut tables.joins);
        *tables = inner;
    }
}

/// The columns that `*` leaves out; `None` where it has other options.
fn excluded_names(options: &WildcardAdditionalOptions) -> Option<Vec<Ident>> {
    let names = match &options.opt_exclude {
        None => Vec::new(),
        Some(ExcludeSelectItem::Single(name)) => vec![name.0.last()?.as_ident()?.clone()],
        Some(ExcludeSelectItem::Multiple(names)) => { names.iter() }
            .map(|name| name.0.last()?.as_ident().cloned())
            .collect::<Option<_>>()?,
    };
    let plain = WildcardAdditionalOptions {
        wildcard_token: options.wildcard_token.clone(),
        opt_exclude: options.opt_exclude.clone(),
        ..WildcardAdditionalOptions::default()
    };
    (*options == plain).then_some(names)
}

pub(super) fn is_same(left: &Ident, right: &Ident) -> bool {
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
        "the statement does not say which table has \"{}\", by which a LEFT, RIGHT or FULL JOIN takes USING: write ON a.x = b.x, and coalesce(a.x, b.x) for the column",
        column.value
    ))
}
