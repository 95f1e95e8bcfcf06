//! DELETE and TRUNCATE of a session: the rows that a statement picks, in one commit.

use super::{Call, Session, next_while};
use crate::delete::{Deleting, PLACED_TABLE, keys_alone};
use crate::error::query;
use crate::extra::ExtraTable;
use crate::params::BoundParams;
use crate::placed_table::PlacedTable;
use crate::result::QueryResult;
use crate::statement::Statement;
use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use datafusion_sql::parser::Statement as DfStatement;
use thalweg_table::{ErrorKind, KeyRange, PickedRows, Result, RowsToDelete};

impl Session {
    pub(super) fn delete(
        &self,
        statement: &Statement,
        deleting: &Deleting,
        params: &BoundParams,
        call: &Call<'_>,
    ) -> Result<QueryResult> {
        let table = match self.shared.engine.table(&deleting.table) {
            Err(error) if deleting.if_exists && error.kind() == ErrorKind::NotFound => {
                return Ok(QueryResult::count(0));
            }
            found => found?,
        };
        let queries = deleting.queries()?;
        let mut pick = || match &queries {
            None => Ok(RowsToDelete::Keys(KeyRange::ALL)),
            Some((rows, places)) => {
                self.picked(statement, (&deleting.table, rows, places), params, call)
            }
        };
        let count = table.delete_picked(self.settings.durability, &mut pick)?;
        Ok(QueryResult::count(count))
    }

    /// The rows of a table that a DELETE picks now.
    fn picked(
        &self,
        statement: &Statement,
        (table, rows, places): (&str, &DfStatement, &DfStatement),
        params: &BoundParams,
        call: &Call<'_>,
    ) -> Result<RowsToDelete> {
        let view = self.shared.engine.snapshot()?;
        let plans = &self.shared.plans;
        let plan = plans.of(statement, rows, params, &view, call.extra)?;
        if let Some(keys) = keys_alone(&plan.plan)? {
            return Ok(RowsToDelete::Keys(keys));
        }
        let placed = PlacedTable::new(view.table(table)?);
        let mut extra = call.extra.to_vec();
        extra.push((PLACED_TABLE.to_owned(), ExtraTable::placed(placed.clone())));
        let own = Statement::of(statement);
        let plan = plans.of(&own, places, params, &view, &extra)?;
        let mut found = self.start(&plan, view, call.deadline.clone())?;
        let mut picked = PickedRows::default();
        while let Some(batch) = next_while(&mut found, call.go_on)? {
            let places = batch.column(0).as_primitive_opt::<UInt64Type>();
            let places = places.ok_or_else(|| query("the rows of a DELETE have no places"))?;
            picked.add(places.values());
        }
        Ok(match placed.scanned() {
            Some(rows) => RowsToDelete::Picked(rows, picked),
            None => RowsToDelete::Keys(KeyRange::EMPTY),
        })
    }
}
