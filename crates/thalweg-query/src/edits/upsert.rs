//! INSERT ... ON CONFLICT DO UPDATE: a MERGE of the rows that are to be inserted, as a table `excluded`.
//!
//! Invariants: a row is updated once: several rows to be inserted that have one key are an error, as in PostgreSQL. Names without a
//! table mean the row that is there.

use super::merge::{Merging, qualified};
use crate::error::{query, unsupported};
use crate::parse::written;
use datafusion_sql::parser::Statement as DfStatement;
use datafusion_sql::sqlparser::ast::{
    Assignment, AssignmentTarget, DoUpdate, Expr, Ident, Insert, MergeAction, ObjectName,
    ObjectNamePart, Statement as SqlStatement, TableObject, Visitor,
};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use thalweg_planner::walk;
use thalweg_table::{Column, Result, TableDefinition, UniqueKey};

/// The table of the rows to be inserted, under a name that no table can have.
pub(crate) const EXCLUDED_ROWS: &str = "excluded\0";
/// The name that statements have for it.
const EXCLUDED: &str = "excluded";

const REPEATED: &str = "two of the rows to be inserted have the unique key of one row of the table, which is updated once: insert one of \
                        them, as SELECT DISTINCT ON does";

/// Whether an update gives a row the values of the one to be inserted in all columns, so that this one takes its place.
pub(crate) fn replaces(update: &DoUpdate, definition: &TableDefinition) -> bool {
    let of_key = definition.unique().map_or(&[][..], UniqueKey::columns);
    let is_copied = |column: &Column| {
        of_key.contains(&column.id) || {
            let mut copies = update.assignments.iter().filter_map(copied);
            copies.any(|name| name.eq_ignore_ascii_case(&column.name))
        }
    };
    update.selection.is_none()
        && update.assignments.iter().all(|it| copied(it).is_some())
        && definition.columns().iter().all(is_copied)
}

/// The column of an assignment that copies it, as `v = excluded.v`.
fn copied(assignment: &Assignment) -> Option<&str> {
    let AssignmentTarget::ColumnName(name) = &assignment.target else {
        return None;
    };
    let column = name.0.last().and_then(ObjectNamePart::as_ident)?;
    match &assignment.value {
        Expr::CompoundIdentifier(parts) => match &parts[..] {
            [table, copy]
                if table.value.eq_ignore_ascii_case(EXCLUDED)
                    && copy.value.eq_ignore_ascii_case(&column.value) =>
            {
                Some(&column.value)
            }
            _ => None,
        },
        _ => None,
    }
}

/// The columns of the rows to be inserted that count: those that the statement gives, those of the key, and those that the update reads
/// of [`EXCLUDED`]. The others have their defaults, and are not planned.
pub(crate) fn excluded_columns(
    given: &[usize],
    update: &DoUpdate,
    definition: &TableDefinition,
) -> Vec<usize> {
    struct Read<'a>(&'a TableDefinition, BTreeSet<usize>);
    impl Visitor for Read<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Expr::CompoundIdentifier(parts) = expr
                && let [table, column] = &parts[..]
                && table.value.eq_ignore_ascii_case(EXCLUDED)
                && let Ok(position) = self.0.position_named(&column.value)
            {
                self.1.insert(position);
            }
            ControlFlow::Continue(())
        }
    }
    let of_key = definition.unique().map_or(&[][..], UniqueKey::columns);
    let of_key = of_key.iter().filter_map(|id| definition.position(*id));
    let columns = given.iter().copied().chain(of_key).collect();
    let mut read = Read(definition, columns);
    let values = update.assignments.iter().map(|assigned| &assigned.value);
    for expr in values.chain(&update.selection) {
        // It never breaks off.
        let _ = walk(expr, &mut read);
    }
    read.1.into_iter().collect()
}

/// The MERGE of the rows to be inserted, which have these columns.
pub(crate) fn upserting(
    insert: &Insert,
    update: &DoUpdate,
    (columns, definition): (&[usize], &TableDefinition),
) -> Result<Merging> {
    let TableObject::TableName(table) = &insert.table else {
        return Err(unsupported("INSERT INTO is offered for tables only"));
    };
    let name = table.0.last().and_then(ObjectNamePart::as_ident);
    let alias = { insert.table_alias.as_ref() }.map_or(name, |alias| Some(&alias.alias));
    let alias = alias.ok_or_else(|| query("INSERT INTO needs the name of a table"))?;
    if alias.value.eq_ignore_ascii_case(EXCLUDED) {
        return Err(query(
            "in ON CONFLICT \"excluded\" is the row to be inserted, so the table needs another name: ALTER TABLE excluded RENAME TO t",
        ));
    }
    let mut merge = written(&text(table, alias, (columns, definition)))?;
    if let DfStatement::Statement(statement) = &mut merge
        && let SqlStatement::Merge(merge) = &mut **statement
    {
        if let Some(clause) = merge.clauses.first_mut() {
            clause.predicate = update.selection.as_ref().map(|test| qualified(test, alias));
            if let MergeAction::Update(action) = &mut clause.action {
                let assigned = update.assignments.iter().map(|assigned| Assignment {
                    target: assigned.target.clone(),
                    value: qualified(&assigned.value, alias),
                });
                action.assignments = assigned.collect();
            }
        }
        return Ok(Merging::of(merge, None)?.with_repeated(REPEATED));
    }
    Err(query(
        "ON CONFLICT is planned as something else than a MERGE",
    ))
}

/// The statement, with the first column as that which is assigned.
fn text(
    table: &ObjectName,
    alias: &Ident,
    (columns, definition): (&[usize], &TableDefinition),
) -> String {
    let quoted = |column: &Column| Ident::with_quote('"', &column.name).to_string();
    let of_excluded = |column: &Column| format!("{EXCLUDED}.{}", quoted(column));
    let of_key = definition.unique().map_or(&[][..], UniqueKey::columns);
    let same = |id: &u32| {
        let column = definition.column(*id)?;
        Some(format!(
            "{alias}.{} = {}",
            quoted(column),
            of_excluded(column)
        ))
    };
    let on: Vec<String> = of_key.iter().filter_map(same).collect();
    let inserted = columns.iter().map(|at| &definition.columns()[*at]);
    let columns: Vec<String> = inserted.clone().map(quoted).collect();
    let values: Vec<String> = inserted.map(of_excluded).collect();
    format!(
        "MERGE INTO {table} AS {alias} USING \"{EXCLUDED_ROWS}\" AS {EXCLUDED} ON {} WHEN MATCHED THEN UPDATE SET {} = {} \
         WHEN NOT MATCHED THEN INSERT ({}) VALUES ({})",
        on.join(" AND "),
        columns[0],
        values[0],
        columns.join(", "),
        values.join(", ")
    )
}
