//! INSERT: where its rows go, and the values of its expressions.

use super::{Call, Session, next_while, statement_of};
use crate::defaults::with_defaults;
use crate::dialect::plain_values;
use crate::edits::{EXCLUDED_ROWS, excluded_columns, replaces, upserting};
use crate::error::{from_arrow, from_datafusion, query};
use crate::extra::ExtraTable;
use crate::insert::OnConflict;
use crate::params::BoundParams;
use crate::result::QueryResult;
use crate::statement::Statement;
use crate::{insert, unquoted_dates};
use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use chrono::Utc;
use datafusion::common::ScalarValue;
use datafusion_sql::sqlparser::ast::{Expr, Insert};
use std::sync::Arc;
use thalweg_table::{Error, OnDuplicate, Result, Table, TableDefinition, conform};
use tokio::sync::oneshot;

impl Call<'_> {
    /// Where an INSERT puts its rows.
    pub(super) fn target(&self, insert: &Insert) -> Result<Target> {
        let table = self.scope.table(&insert::target(insert)?)?;
        let definition = table.definition();
        let columns = insert::columns(insert, &definition)?;
        Ok(Target {
            table,
            definition,
            columns,
        })
    }
}

impl Session {
    pub(super) fn insert(
        &self,
        statement: &Statement,
        insert: &Insert,
        params: &BoundParams,
        call: &Call<'_>,
    ) -> Result<QueryResult> {
        let target = call.target(insert)?;
        let Target {
            table,
            definition,
            columns,
        } = &target;
        let conflict = insert::on_conflict(insert, definition)?;
        let store = |rows: &mut dyn Iterator<Item = Result<RecordBatch>>| {
            let durability = self.settings.durability;
            let count = match &conflict {
                OnConflict::OfTable => table.append(rows, durability)?,
                OnConflict::Rule(rule) => {
                    table.append_with_rule(rows, *rule, durability, call.go_on)?
                }
                OnConflict::Update(update) if replaces(update, definition) => {
                    table.append_with_rule(rows, OnDuplicate::Last, durability, call.go_on)?
                }
                OnConflict::Update(update) => {
                    let excluded = excluded_columns(columns, update, definition);
                    let conformed = rows.map(|rows| {
                        let rows = conform(definition, &rows?);
                        let rows = rows.map_err(|error| of_table(table, &error))?;
                        rows.project(&excluded).map_err(from_arrow)
                    });
                    let rows = conformed.collect::<Result<Vec<_>>>()?;
                    let schema = definition.schema().project(&excluded).map_err(from_arrow)?;
                    let rows = ExtraTable::batches(Arc::new(schema), rows);
                    let call = Call {
                        extra: &[(EXCLUDED_ROWS.to_owned(), rows)],
                        deadline: call.deadline.clone(),
                        scope: call.scope.clone(),
                        ..*call
                    };
                    let own = Statement::of(statement);
                    let upserting = upserting(insert, update, (&excluded, definition))?;
                    return self.edit(&own, &upserting, params, &call);
                }
            };
            Ok(QueryResult::count(count))
        };
        let computed = |cells: Vec<&Expr>| self.computed(statement, &cells, params, call);
        if let Some(rows) = target.values(insert, params, computed)? {
            return store(&mut rows.into_iter().map(Ok));
        }
        let source = statement_of(insert::source(insert)?);
        let mut rows = self.query(statement, &source, params, call)?;
        if rows.schema().fields().len() != columns.len() {
            let (wanted, given) = (columns.len(), rows.schema().fields().len());
            return Err(query(format!(
                "{wanted} columns take values, the query has {given}"
            )));
        }
        let batches = std::iter::from_fn(|| next_while(&mut rows, call.go_on).transpose());
        // Values of a table that the caller handed in come through a query that is not the caller's own.
        let of_query = call.extra.is_empty();
        store(&mut insert::assigned(table, columns, batches, of_query))
    }

    /// The values of expressions, all as of one snapshot.
    pub(super) fn computed(
        &self,
        statement: &Statement,
        cells: &[&Expr],
        params: &BoundParams,
        call: &Call<'_>,
    ) -> Result<Vec<ScalarValue>> {
        let view = call.scope.snapshot()?;
        let now = Utc::now();
        let mut values = vec![ScalarValue::Null; cells.len()];
        for computing in insert::queries_of(cells)? {
            let (places, is_numbered) = (computing.places, computing.is_numbered);
            let own = Statement::of(statement).with_now(now);
            let mut rows = self.query_on(view.clone(), &own, &computing.query, params, call)?;
            while let Some(batch) = next_while(&mut rows, call.go_on)? {
                let value_of = |column: &ArrayRef, row| {
                    ScalarValue::try_from_array(column, row).map_err(from_datafusion)
                };
                match batch.columns() {
                    [numbers, column] if is_numbered => {
                        let numbers = numbers.as_primitive_opt::<Int64Type>();
                        let numbers =
                            numbers.ok_or_else(|| query("a row of VALUES has no number"))?;
                        for (row, number) in numbers.values().iter().enumerate() {
                            let place = usize::try_from(*number).ok().and_then(|n| places.get(n));
                            if let Some(place) = place {
                                values[*place] = value_of(column, row)?;
                            }
                        }
                    }
                    columns => {
                        for (column, place) in columns.iter().zip(&places) {
                            values[*place] = value_of(column, 0)?;
                        }
                    }
                }
            }
        }
        Ok(values)
    }

    /// Hands in rows to be stored; the receiver gets how many.
    pub(super) fn stored_later(
        &self,
        table: &Table,
        rows: Vec<RecordBatch>,
    ) -> Result<oneshot::Receiver<Result<u64>>> {
        let (sender, receiver) = oneshot::channel();
        table.append_later(rows, self.settings.durability, move |stored| {
            // Whoever has asked may be gone.
            let _ = sender.send(stored);
        })?;
        Ok(receiver)
    }
}

/// The error of rows that a table does not take, with its name.
fn of_table(table: &Table, error: &Error) -> Error {
    let message = format!("table \"{}\": {}", table.name(), error.message());
    Error::new(error.kind(), message)
}

/// Where an INSERT puts its rows.
pub(super) struct Target {
    pub(super) table: Table,
    /// Its columns when the statement began.
    pub(super) definition: Arc<TableDefinition>,
    /// The places of the columns that take values.
    columns: Vec<usize>,
}

impl Target {
    /// The rows of an INSERT that lists its values; `None` for one from a query. `computed` gives the values of expressions.
    pub(super) fn values(
        &self,
        insert: &Insert,
        params: &BoundParams,
        computed: impl FnOnce(Vec<&Expr>) -> Result<Vec<ScalarValue>>,
    ) -> Result<Option<Vec<RecordBatch>>> {
        let Self {
            table,
            definition,
            columns,
        } = self;
        let source = insert::source(insert)?;
        let type_of = |position: &usize| &definition.columns()[*position].data_type;
        let types: Vec<_> = columns.iter().map(type_of).collect();
        unquoted_dates::refuse(source, &types)?;
        let Some(values) = plain_values(source) else {
            return Ok(None);
        };
        let of_columns: Vec<_> = { columns.iter() }
            .map(|position| &definition.columns()[*position])
            .collect();
        let filled = with_defaults(values, &of_columns);
        let values = filled.as_ref().unwrap_or(values);
        let rows = insert::rows_of_values(values, params, &types, computed)?;
        let rows = insert::assigned(table, columns, rows.into_iter().map(Ok), false);
        rows.collect::<Result<Vec<_>>>().map(Some)
    }
}
