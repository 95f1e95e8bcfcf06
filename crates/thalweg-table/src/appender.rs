//! Rows put one by one, appended in batches.
//!
//! Invariants: a row that `put` refused is not in the batch and hurts no other row; rows reach the table in the order they
//! were put, batch by batch; after `flush` everything put before is as durable as the engine's default.

use crate::rows::RowsDecoder;
use crate::table::Table;
use crate::value::Value;
use std::fmt;
use thalweg_kernel::{Durability, Result};

/// Rows that are collected before they are committed without being asked for.
const MOST_ROWS: usize = 65_536;
/// Bytes of such rows.
const MOST_BYTES: usize = 8 << 20;

/// Collects rows for a table. Dropping it commits what is left; call [`Appender::flush`] to learn whether that worked.
pub struct Appender {
    table: Table,
    /// The columns of the rows put so far.
    columns: Option<RowsDecoder>,
    version: u32,
    bytes: usize,
    /// Rows were committed that may not be as durable as they should be.
    unsettled: bool,
    row: Vec<u8>,
}

impl fmt::Debug for Appender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Appender")
            .field("table", &self.table)
            .field("rows", &self.rows())
            .finish_non_exhaustive()
    }
}

impl Appender {
    pub(crate) fn new(table: Table) -> Self {
        Self {
            table,
            columns: None,
            version: 0,
            bytes: 0,
            unsettled: false,
            row: Vec::new(),
        }
    }

    /// Adds a row, its values in the order of the schema. From time to time this commits the rows before it.
    ///
    /// # Errors
    /// `Schema`, `OutOfDomain` and `Limit` when the row does not fit the table; it is then left out. Others when
    /// the rows before it could not be committed; they and this one are then lost.
    pub fn put(&mut self, row: &[Value<'_>]) -> Result<()> {
        if self.will_commit() {
            self.commit(self.durability().min(Durability::Process))?;
        }
        self.row.clear();
        let shape = self.table.shape();
        shape
            .writer
            .write(row, &mut self.row)
            .map_err(|e| self.table.name_error(e))?;
        if shape.version != self.version && self.rows() > 0 {
            // The definition changed just now: the rows so far are committed first.
            drop(shape);
            return self.put(row);
        }
        let columns = match &mut self.columns {
            Some(columns) if shape.version == self.version => columns,
            outdated => {
                self.version = shape.version;
                outdated.insert(RowsDecoder::new(&shape.definition, None)?)
            }
        };
        drop(shape);
        columns.push(&self.row)?;
        self.bytes += self.row.len();
        Ok(())
    }

    /// Whether the next [`Appender::put`] commits first and so waits for the storage: callers that hold a lock which
    /// others need let go of it then. All others take well under a microsecond.
    #[must_use]
    pub fn will_commit(&self) -> bool {
        let is_full = self.rows() >= MOST_ROWS || self.bytes >= MOST_BYTES;
        // Rows of another definition cannot be in one batch with those that follow.
        is_full || (self.rows() > 0 && self.table.shape().version != self.version)
    }

    /// Commits the rows so far, all rows put before included, with the durability of the engine.
    ///
    /// # Errors
    /// When they could not be committed; they are then lost.
    pub fn flush(&mut self) -> Result<()> {
        let durability = self.durability();
        if self.rows() > 0 {
            // One sync covers everything before it.
            self.commit(durability)?;
        } else if self.unsettled && durability == Durability::Disk {
            self.table.engine().flush()?;
        }
        self.unsettled = false;
        Ok(())
    }

    /// Rows put and not yet committed.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.columns.as_ref().map_or(0, RowsDecoder::rows)
    }

    fn durability(&self) -> Durability {
        self.table.engine().options().durability
    }

    fn commit(&mut self, durability: Durability) -> Result<()> {
        self.bytes = 0;
        // Taken out first: after an error there is nothing that could be stored a second time.
        let Some(mut columns) = self.columns.take() else {
            return Ok(());
        };
        let batch = columns.finish()?;
        self.columns = Some(columns);
        self.unsettled = true;
        self.table.append([Ok(batch)], Some(durability)).map(|_| ())
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        // Nobody is left to tell. In a child of a fork the rows are its parent's.
        if self.table.engine().closed().check().is_ok() {
            let _ = self.flush();
        }
    }
}
