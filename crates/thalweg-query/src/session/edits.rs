//! Statements of a session that change stored rows: what they pick and what they store, in one commit.

use super::{Call, Session, next_while};
use crate::edits::delete::{Deleting, keys_alone};
use crate::edits::{Action, Editing, Updating};
use crate::error::{from_arrow, query};
use crate::extra::ExtraTable;
use crate::insert;
use crate::params::{BoundParams, Params};
use crate::parse::Request;
use crate::placed_table::PLACE_COLUMN;
use crate::result::QueryResult;
use crate::statement::Statement;
use crate::table::ScannedRows;
use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Int64Type, UInt64Type};
use datafusion_sql::parser::Statement as DfStatement;
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use thalweg_table::{
    AddedKeys, DatabaseView, Error, ErrorKind, KeyRange, PickedRows, Result, RowsToDelete, Table,
    TableDefinition, TableView,
};

/// Attempts while the table that a statement names becomes another one again and again.
const MAX_RENAMES: usize = 16;

impl Session {
    pub(super) fn delete(
        &self,
        statement: &Statement,
        deleting: &Deleting,
        params: &BoundParams,
        call: &Call<'_>,
    ) -> Result<QueryResult> {
        let queries = deleting.queries()?;
        let count = with_table(call, &deleting.table, &mut |table, is_renamed| {
            let mut pick = || {
                let Some((rows, places)) = &queries else {
                    return Ok(RowsToDelete::Keys(KeyRange::ALL));
                };
                let view = call.scope.snapshot()?;
                check_is_of(table, &view.table(&deleting.table)?, is_renamed)?;
                self.picked(statement, (rows, places), (view, params), call)
            };
            table.delete_picked(self.settings.durability, &mut pick)
        });
        match count {
            Err(error) if deleting.if_exists && error.kind() == ErrorKind::NotFound => {
                Ok(QueryResult::count(0))
            }
            count => count.map(QueryResult::count),
        }
    }

    /// Runs an UPDATE or a MERGE. Its count is that of the rows that were deleted, changed or added.
    pub(super) fn edit(
        &self,
        statement: &Statement,
        editing: &dyn Editing,
        params: &BoundParams,
        call: &Call<'_>,
    ) -> Result<QueryResult> {
        let mut count = 0;
        let mut extra = Cow::Borrowed(call.extra);
        if call
            .scope
            .table(editing.table())?
            .definition()
            .unique()
            .is_some()
        {
            // Before the turn of the keys: a source of rows may take long, and may store rows in the table itself.
            let read =
                |(name, rows): &(String, ExtraTable)| Ok((name.clone(), rows.read(call.go_on)?));
            extra = Cow::Owned(call.extra.iter().map(read).collect::<Result<_>>()?);
        }
        let call = &Call {
            extra: &extra,
            go_on: call.go_on,
            deadline: call.deadline.clone(),
            scope: call.scope.clone(),
        };
        with_table(call, editing.table(), &mut |table, is_renamed| {
            let adds_keys = |definition: &TableDefinition| match editing.adds_keys(definition) {
                true => AddedKeys::Any,
                false => AddedKeys::None,
            };
            let keys = adds_keys(&table.definition());
            table.edit_rows(self.settings.durability, keys, &mut |stored| {
                let view = call.scope.snapshot()?;
                let rows = view.table(editing.table())?;
                check_is_of(table, &rows, is_renamed)?;
                // The statement means the columns of its snapshot: of others that come meanwhile the commit is refused.
                let definition = Arc::clone(rows.definition());
                if adds_keys(&definition) != keys {
                    let message = "the columns of the table got other names meanwhile";
                    return Err(Error::new(ErrorKind::Conflict, message));
                }
                let edit = editing.query(&definition)?;
                let (mut found, placed) =
                    self.found(statement, &edit.query, (view, params), call)?;
                let mut picked = PickedRows::default();
                count = 0;
                while let Some(batch) = next_while(&mut found, call.go_on)? {
                    count += batch.num_rows() as u64;
                    let of_action = of_actions(&batch, edit.actions.len())?;
                    for (action, rows) in edit.actions.iter().zip(of_action) {
                        if rows.num_rows() == 0 {
                            continue;
                        }
                        picked.add(&places(&rows)?);
                        if let Action::Store(values) = action {
                            let (columns, positions): (Vec<_>, Vec<_>) =
                                values.iter().copied().unzip();
                            let rows = rows.project(&columns).map_err(from_arrow)?;
                            let rows =
                                insert::stored(table.name(), &definition, &positions, &rows)?;
                            stored.push(&rows)?;
                        }
                    }
                }
                if picked.repeats() {
                    return Err(query(editing.repeated()));
                }
                Ok(of_places(&placed, picked))
            })
        })?;
        Ok(QueryResult::count(count))
    }

    /// Runs a DELETE or an UPDATE by the plan of all texts that differ from this one in numbers only, if there is one.
    pub(super) fn lifted_edit(
        &self,
        text: &str,
        params: &Params,
        call: &Call<'_>,
    ) -> Option<Result<QueryResult>> {
        if *params != Params::None || !call.extra.is_empty() || self.settings.read_only {
            return None;
        }
        let plans = &self.shared.plans;
        let (statement, params) = plans.without_numbers(text)?;
        let view = call.scope.snapshot().ok()?;
        let done = match &statement.parsed.request {
            Request::Delete(delete, with) => {
                let deleting = Deleting::of(delete, with.as_ref()).ok()?;
                let (rows, _) = deleting.queries().ok()??;
                plans.kept_plain(&statement, &rows, &params, &view)?;
                self.delete(&statement, &deleting, &params, call)
            }
            Request::Update(update, with) => {
                let updating = Updating::of(update, with.as_ref()).ok()?;
                let table = view.table(updating.table()).ok()?;
                let edit = updating.query(table.definition()).ok()?;
                let places = statement.of_places();
                if plans
                    .kept_plain(places, &edit.query, &params, &view)
                    .is_none()
                {
                    statement.keep_numbers();
                    return None;
                }
                self.edit(&statement, &updating, &params, call)
            }
            _ => return None,
        };
        Some(done)
    }

    /// The rows of a query over a table with places, and where the rows are noted that these lead to.
    fn found(
        &self,
        statement: &Statement,
        query: &DfStatement,
        (view, params): (DatabaseView, &BoundParams),
        call: &Call<'_>,
    ) -> Result<(QueryResult, ScannedRows)> {
        let plans = &self.shared.plans;
        let plan = plans.of(statement.of_places(), query, params, &view, call.extra);
        let plan = plan.map_err(of_statement)?;
        let placed = ScannedRows::default();
        let found = self.start_with(&plan, view, call.deadline.clone(), &placed)?;
        Ok((found, placed))
    }

    /// The rows of a table that a DELETE picks now.
    fn picked(
        &self,
        statement: &Statement,
        (rows, places): (&DfStatement, &DfStatement),
        (view, params): (DatabaseView, &BoundParams),
        call: &Call<'_>,
    ) -> Result<RowsToDelete> {
        let plans = &self.shared.plans;
        let plan = plans.of(statement, rows, params, &view, call.extra)?;
        if let Some(keys) = keys_alone(&plan.plan)? {
            return Ok(RowsToDelete::Keys(keys));
        }
        let (mut found, placed) = self.found(statement, places, (view, params), call)?;
        let mut picked = PickedRows::default();
        while let Some(batch) = next_while(&mut found, call.go_on)? {
            picked.add(&self::places(&batch)?);
        }
        Ok(of_places(&placed, picked))
    }
}

/// Changes the table of a name by `change`, and anew where another table has got the name before the change was planned: what is
/// planned for one table must not be done to another.
fn with_table(
    call: &Call<'_>,
    name: &str,
    change: &mut dyn FnMut(&Table, &Cell<bool>) -> Result<u64>,
) -> Result<u64> {
    for _ in 1..MAX_RENAMES {
        let is_renamed = Cell::new(false);
        let done = change(&call.scope.table(name)?, &is_renamed);
        if !is_renamed.get() {
            return done;
        }
    }
    change(&call.scope.table(name)?, &Cell::new(false))
}

/// Refuses to plan for a table that is not the one whose rows are to change.
fn check_is_of(table: &Table, rows: &TableView, is_renamed: &Cell<bool>) -> Result<()> {
    if table.is_of(rows) {
        return Ok(());
    }
    is_renamed.set(true);
    let message = format!("the table \"{}\" got another name meanwhile", rows.name());
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// The error of planning, without the column of places that no statement names.
fn of_statement(error: Error) -> Error {
    if !error.message().contains(PLACE_COLUMN) {
        return error;
    }
    query(
        "an aggregate or a window stands in a query of its own here: SET v = (SELECT avg(v) FROM t)",
    )
}

/// The places in the first column, without nulls.
fn places(batch: &RecordBatch) -> Result<Vec<u64>> {
    let places = batch.column(0).as_primitive_opt::<UInt64Type>();
    let places = places.ok_or_else(|| query("the rows of a statement have no places"))?;
    Ok(places.iter().flatten().collect())
}

/// The rows that each action takes, by the numbers in the second column.
fn of_actions(batch: &RecordBatch, actions: usize) -> Result<Vec<RecordBatch>> {
    let numbers = batch.column(1).as_primitive_opt::<Int64Type>();
    let numbers = numbers.ok_or_else(|| query("the rows of a statement have no actions"))?;
    let rows_of = |action: i64| {
        if actions == 1 && numbers.null_count() == 0 {
            return Ok(batch.clone());
        }
        let takes: BooleanArray = numbers
            .iter()
            .map(|number| Some(number == Some(action)))
            .collect();
        filter_record_batch(batch, &takes).map_err(from_arrow)
    };
    (1_i64..).take(actions).map(rows_of).collect()
}

fn of_places(placed: &ScannedRows, picked: PickedRows) -> RowsToDelete {
    match &*placed.lock() {
        Some(rows) => RowsToDelete::Picked(Arc::clone(rows), picked),
        None => RowsToDelete::Keys(KeyRange::EMPTY),
    }
}
