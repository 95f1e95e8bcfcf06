//! Statements that change stored rows: DELETE and TRUNCATE, UPDATE, MERGE.
//!
//! Invariants: each is a query over its table with the places of rows, as of one snapshot with all that its subqueries read; what
//! it deletes and what it stores is one commit. A changed row is deleted and stored anew.

pub(crate) mod delete;
mod merge;
mod update;
mod upsert;

use crate::defaults::default_of;
use crate::dialect::values_of_row;
use crate::error::{query, unsupported};
use crate::parse::written;
use crate::placed_table::{PLACE_COLUMN, PLACED};
use arrow::datatypes::DataType;
use datafusion_sql::parser::Statement as DfStatement;
use datafusion_sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, Ident, ObjectName, ObjectNamePart, SelectItem, SetExpr,
    Statement as SqlStatement, TableAlias, TableFactor, TableWithJoins, UnaryOperator, Value, With,
};
pub(crate) use merge::Merging;
use thalweg_table::{Column, Result, TableDefinition, UniqueKey};
pub(crate) use update::Updating;
pub(crate) use upsert::{EXCLUDED_ROWS, excluded_columns, replaces, upserting};

/// Whether some assignments change a column of the unique key of a table.
fn assign_keys(assignments: &[Assignment], definition: &TableDefinition) -> bool {
    let of_key = definition.unique().map_or(&[][..], UniqueKey::columns);
    let is_of_key = |name: &ObjectName| {
        let column = name.0.last().and_then(ObjectNamePart::as_ident);
        let position = column.and_then(|column| definition.position_named(&column.value).ok());
        position.is_none_or(|position| of_key.contains(&definition.columns()[position].id))
    };
    let mut targets = assignments.iter().map(|assignment| &assignment.target);
    !of_key.is_empty()
        && targets.any(|target| match target {
            AssignmentTarget::ColumnName(name) => is_of_key(name),
            AssignmentTarget::Tuple(names) => names.iter().any(is_of_key),
        })
}

/// The query for the rows that an UPDATE or a MERGE changes.
///
/// Its first column is the place of a row that goes, null where none goes. The second is the number of the action, from 1, 0 for
/// none. Those after it are values.
#[derive(Debug)]
pub(crate) struct EditQuery {
    pub(crate) query: DfStatement,
    /// The actions, in the order of their numbers.
    pub(crate) actions: Vec<Action>,
}

/// The action on a row of an [`EditQuery`].
#[derive(Debug)]
pub(crate) enum Action {
    /// Nothing: the row is deleted.
    Delete,
    /// A row: from which column of the query each of these columns of the table has its value. The others have their defaults.
    Store(Vec<(usize, usize)>),
}

/// A statement whose query depends on the columns of its table.
pub(crate) trait Editing {
    /// The table that it changes.
    fn table(&self) -> &str;

    /// Its query over the table with the places of its rows.
    fn query(&self, definition: &TableDefinition) -> Result<EditQuery>;

    /// The query over the table under its own name: for the names of the tables that it reads.
    fn read_tables(&self) -> Result<DfStatement>;

    /// Whether rows that it stores may have other unique keys than those that they are stored in the place of.
    fn adds_keys(&self, definition: &TableDefinition) -> bool;

    /// The error where two of its results change the same row.
    fn repeated(&self) -> &'static str;
}

/// The table that a statement names, with the places of its rows and under the same alias, and that alias.
fn placed(table: &TableFactor) -> Result<(TableFactor, Ident)> {
    prefixed(PLACED, table)
}

/// The table that a statement names after a prefix that says what is meant by it, under the same alias, and that alias.
fn prefixed(prefix: &str, table: &TableFactor) -> Result<(TableFactor, Ident)> {
    let mut placed = table.clone();
    if let TableFactor::Table { name, alias, .. } = &mut placed {
        if alias
            .as_ref()
            .is_some_and(|alias| !alias.columns.is_empty())
        {
            return Err(unsupported(
                "the table whose rows change takes another name, and its columns keep theirs: write FROM t AS x",
            ));
        }
        let last = name.0.last().and_then(ObjectNamePart::as_ident).cloned();
        if let Some(last) = last {
            let prefixed = Ident::with_quote('"', format!("{prefix}{}", last.value));
            *name = ObjectName::from(vec![prefixed]);
            let alias_name = alias.take().map_or(last, |alias| alias.name);
            *alias = Some(alias_of(alias_name.clone()));
            return Ok((placed, alias_name));
        }
    }
    Err(query(format!("{table} is no table whose rows can change")))
}

fn alias_of(name: Ident) -> TableAlias {
    TableAlias {
        explicit: true,
        name,
        columns: Vec::new(),
        at: None,
    }
}

/// The place of a row of a table that [`placed`] has made.
fn place_of(alias: &Ident) -> Expr {
    column_of(alias, PLACE_COLUMN)
}

fn column_of(alias: &Ident, column: &str) -> Expr {
    Expr::CompoundIdentifier(vec![alias.clone(), Ident::with_quote('"', column)])
}

/// WITH ... SELECT ... FROM ... WHERE.
fn selecting(
    with: Option<&With>,
    columns: Vec<SelectItem>,
    from: Vec<TableWithJoins>,
    condition: Option<Expr>,
) -> Result<DfStatement> {
    selecting_as("SELECT true", with, columns, from, condition)
}

/// The same with DISTINCT.
fn selecting_distinct(
    with: Option<&With>,
    columns: Vec<SelectItem>,
    from: Vec<TableWithJoins>,
    condition: Option<Expr>,
) -> Result<DfStatement> {
    selecting_as("SELECT DISTINCT true", with, columns, from, condition)
}

fn selecting_as(
    select: &str,
    with: Option<&With>,
    columns: Vec<SelectItem>,
    from: Vec<TableWithJoins>,
    condition: Option<Expr>,
) -> Result<DfStatement> {
    let mut statement = written(select)?;
    if let DfStatement::Statement(inner) = &mut statement
        && let SqlStatement::Query(inner) = &mut **inner
        && let SetExpr::Select(select) = &mut *inner.body
    {
        inner.with = with.cloned();
        select.projection = columns;
        select.from = from;
        select.selection = condition;
        return Ok(statement);
    }
    Err(query(
        "a change of rows is planned as something else than a query",
    ))
}

/// A value under a name that no other column of the query has.
fn numbered(number: usize, expr: Expr) -> SelectItem {
    SelectItem::ExprWithAlias {
        expr,
        alias: Ident::with_quote('"', format!("\0{number}")),
    }
}

/// The assignments of a SET, one for each column: its position in the table, and the value.
fn assignments(
    assignments: &[Assignment],
    definition: &TableDefinition,
    alias: &Ident,
) -> Result<Vec<(usize, Expr)>> {
    let mut of_columns: Vec<(usize, Expr)> = Vec::with_capacity(assignments.len());
    let mut assign = |name: &ObjectName, value: &Expr| -> Result<()> {
        let position = definition.position_named(&target(name, alias)?)?;
        if of_columns.iter().any(|(other, _)| *other == position) {
            let name = &definition.columns()[position].name;
            return Err(query(format!("the column \"{name}\" is assigned twice")));
        }
        let value = stored(value, &definition.columns()[position]);
        of_columns.push((position, value));
        Ok(())
    };
    for assignment in assignments {
        match (&assignment.target, &assignment.value) {
            (AssignmentTarget::ColumnName(name), value) => assign(name, value)?,
            (AssignmentTarget::Tuple(names), row) => {
                if let Some(values) = values_of_row(row)
                    && names.len() == values.len()
                {
                    for (name, value) in names.iter().zip(values) {
                        assign(name, value)?;
                    }
                    continue;
                }
                return Err(query(format!(
                    "SET (a, b) = (1, 2) assigns as many values as there are columns, here {}; a query gives one value: \
                     SET a = (SELECT ...), b = (SELECT ...)",
                    names.len()
                )));
            }
        }
    }
    Ok(of_columns)
}

/// A value as it goes to a column.
fn stored(value: &Expr, column: &Column) -> Expr {
    default_of(value, column).unwrap_or_else(|| exact(value, &column.data_type))
}

/// A number that goes to a decimal as its text: the planner would make a float of it.
fn exact(value: &Expr, to: &DataType) -> Expr {
    let digits = match value {
        Expr::Value(number) => match &number.value {
            Value::Number(digits, _) => Some(digits.clone()),
            _ => None,
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match &**expr {
            Expr::Value(number) => match &number.value {
                Value::Number(digits, _) => Some(format!("-{digits}")),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    let digits = digits.filter(|digits| !digits.contains(['e', 'E']));
    match digits.filter(|_| matches!(to, DataType::Decimal128(..))) {
        Some(digits) => Expr::Value(Value::SingleQuotedString(digits).into()),
        None => value.clone(),
    }
}

/// The name of a column that is assigned, which may stand after the name of its table.
fn target(name: &ObjectName, alias: &Ident) -> Result<String> {
    let parts = name.0.iter().map(ObjectNamePart::as_ident);
    match parts.collect::<Option<Vec<_>>>().as_deref() {
        Some([column]) => Ok(column.value.clone()),
        Some([table, column]) if table.value.eq_ignore_ascii_case(&alias.value) => {
            Ok(column.value.clone())
        }
        _ => Err(query(format!(
            "{name} is no column of \"{}\", the table that changes",
            alias.value
        ))),
    }
}
