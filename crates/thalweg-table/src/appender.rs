//! Rows put one by one, appended in batches.
//!
//! Invariants: a row that `put` refused is not in the batch and hurts no other row; rows reach the table in the order they
//! were put, batch by batch; of a table with a unique key, duplicates alone are left out, with an error; after `flush` everything put before is as durable as the engine's default. No call succeeds
//! while rows of an earlier one are not stored: a batch that was refused is kept and goes first, and where it is not known
//! whether a batch was stored, every later call fails as well, because a second attempt could double its rows.

use crate::definition::TableDefinition;
use crate::duplicates::NOTHING_STORED;
use crate::rows::RowsDecoder;
use crate::table::Table;
use crate::unique::OnDuplicate;
use crate::value::Value;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema};
use std::fmt;
use std::sync::Arc;
use thalweg_kernel::{Durability, Error, ErrorKind, Result};

/// Rows that are collected before they are committed without a call of `flush`.
const MAX_ROWS: usize = 65_536;
/// Bytes of such rows.
const MAX_BYTES: usize = 8 << 20;

/// Collects rows for a table and commits them in batches of 65,536 rows or 8 MiB; before that nobody sees them. Dropping it commits
/// what is left; call [`Appender::flush`] to learn whether that worked. Rows that a call has reported as refused are not committed
/// by a drop: whoever saw the error may have stored them otherwise.
///
/// ```
/// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
/// # fn main() -> thalweg::Result<()> {
/// # let db = Engine::in_memory(EngineOptions::default())?;
/// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
/// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
/// use thalweg::Value;
///
/// let mut appender = room.appender();
/// for second in 0..1_000 {
///     appender.put(&[Value::Int(second), Value::Float(20.0)])?;
/// }
/// assert_eq!((appender.rows(), room.view()?.row_count()), (1_000, 0));
/// appender.flush()?;
/// assert_eq!((appender.rows(), room.view()?.row_count()), (0, 1_000));
/// # Ok(())
/// # }
/// ```
pub struct Appender {
    table: Table,
    /// The columns of the rows put so far; none while a batch is refused.
    columns: Option<RowsDecoder>,
    /// A batch of which the last attempt to commit stored nothing.
    refused: Option<Written>,
    /// The error that all later calls return: it is not known whether some rows were stored.
    failed: Option<Error>,
    version: u32,
    /// The definition of this version, which the columns are of.
    definition: Arc<TableDefinition>,
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

impl Table {
    /// Collects rows that are put one by one and appends them in batches.
    #[must_use]
    pub fn appender(&self) -> Appender {
        Appender::new(self.clone())
    }
}

impl Appender {
    pub(crate) fn new(table: Table) -> Self {
        let definition = Arc::clone(&table.shape().definition);
        Self {
            table,
            columns: None,
            refused: None,
            failed: None,
            version: 0,
            definition,
            bytes: 0,
            unsettled: false,
            row: Vec::new(),
        }
    }

    /// Adds a row, its values in the order of the schema. From time to time this commits the rows before it.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// use thalweg::Value;
    ///
    /// let mut appender = room.appender();
    /// appender.put(&[Value::Int(1), Value::Float(20.5)])?;
    /// assert!(appender.put(&[Value::Int(2), Value::Text("warm")]).is_err());
    /// appender.put(&[Value::Int(3), Value::Float(20.7)])?; // the refused row hurts no other
    /// appender.flush()?;
    /// assert_eq!(room.view()?.row_count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Schema`, `OutOfDomain` and `Limit` when the row does not fit the table. Others when the rows before it could not be
    /// committed: those are kept, see [`Appender::flush`]. This row is left out in either case. `AlreadyExists` when rows before it
    /// had the unique key of another row: those alone were left out.
    pub fn put(&mut self, row: &[Value<'_>]) -> Result<()> {
        if self.will_commit() {
            self.commit(self.durability().min(Durability::Process))?;
        }
        self.row.clear();
        let shape = self.table.shape();
        if let Err(error) = shape.writer.write(row, &mut self.row) {
            if self.table.has_newer_than(shape.version, &error) {
                drop(shape);
                return self.put(row);
            }
            return Err(self.table.name_error(error));
        }
        if shape.version != self.version && self.rows() > 0 {
            // The definition changed just now: the rows so far are committed first.
            drop(shape);
            return self.put(row);
        }
        let columns = match &mut self.columns {
            Some(columns) if shape.version == self.version => columns,
            outdated => {
                self.version = shape.version;
                self.definition = Arc::clone(&shape.definition);
                outdated.insert(RowsDecoder::new(&shape.definition, None)?)
            }
        };
        drop(shape);
        columns.push(&self.row)?;
        self.bytes += self.row.len();
        Ok(())
    }

    /// Whether the next [`Appender::put`] commits first and so waits for the storage: a caller that holds a lock which others need
    /// should release it before. All other calls take well under a microsecond.
    #[must_use]
    pub fn will_commit(&self) -> bool {
        let is_full = self.rows() >= MAX_ROWS || self.bytes >= MAX_BYTES;
        // Rows of another definition cannot be in one batch with those that follow.
        is_full
            || self.refused.is_some()
            || self.failed.is_some()
            || (self.rows() > 0 && self.table.shape().version != self.version)
    }

    /// Commits the rows so far, all rows put before included, with the durability of the engine.
    ///
    /// # Errors
    /// When they could not be committed. Where nothing was stored (`DiskFull`, `NotFound`, ...) they are kept, and the next
    /// call commits them before anything else. `Unavailable`: whether they were stored may not be known. Every later call
    /// then returns the same error; a new appender takes further rows.
    pub fn flush(&mut self) -> Result<()> {
        let durability = self.durability();
        if self.rows() > 0 || self.failed.is_some() {
            // One sync covers everything before it.
            self.commit(durability)?;
        } else if self.unsettled && durability == Durability::Disk {
            self.table.engine().flush()?;
        }
        self.unsettled = false;
        Ok(())
    }

    /// The number of rows put and not yet committed.
    #[must_use]
    pub fn rows(&self) -> usize {
        let refused = { self.refused.as_ref() }.map_or(0, |written| written.rows.num_rows());
        refused + self.columns.as_ref().map_or(0, RowsDecoder::rows)
    }

    fn durability(&self) -> Durability {
        self.table.engine().options().durability
    }

    fn commit(&mut self, durability: Durability) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let written = match (self.refused.take(), &mut self.columns) {
            (Some(written), _) => written,
            (None, Some(columns)) => Written {
                rows: columns
                    .finish()
                    .inspect_err(|error| self.failed = Some(error.clone()))?,
                definition: Arc::clone(&self.definition),
            },
            (None, None) => return Ok(()),
        };
        self.bytes = 0;
        self.unsettled = true;
        let rows = written.as_of(&self.table.definition());
        let appended = self.table.append([rows], Some(durability));
        if let Err(error) = &appended
            && error.kind() == ErrorKind::AlreadyExists
        {
            return self.commit_others(written, error, durability);
        }
        if let Err(error) = &appended {
            // All other kinds mean that nothing was stored.
            if error.kind() == ErrorKind::Unavailable {
                self.failed = Some(error.clone());
            } else {
                self.refused = Some(written);
            }
        }
        appended.map(|_| ())
    }
}

impl Appender {
    /// Commits the rows whose unique keys are those of no other row, and returns the error for the others.
    fn commit_others(
        &mut self,
        written: Written,
        error: &Error,
        durability: Durability,
    ) -> Result<()> {
        let rows = written.as_of(&self.table.definition());
        let (first, durability) = (OnDuplicate::First, Some(durability));
        let others = self
            .table
            .append_with_rule([rows], first, durability, &|| true);
        if let Err(error) = others {
            match error.kind() {
                ErrorKind::Unavailable => self.failed = Some(error.clone()),
                _ => self.refused = Some(written),
            }
            return Err(error);
        }
        let message = error.message();
        let message = message.strip_suffix(NOTHING_STORED).unwrap_or(message);
        Err(Error::new(
            ErrorKind::AlreadyExists,
            format!(
                "{message}; it was left out, with others that have the key of another row, and the rest was stored"
            ),
        ))
    }
}

/// Rows, and the columns that they were written for.
#[derive(Debug)]
struct Written {
    rows: RecordBatch,
    definition: Arc<TableDefinition>,
}

impl Written {
    /// The rows with the columns of a newer definition: under their names of then, without those that were dropped.
    fn as_of(&self, newer: &Arc<TableDefinition>) -> Result<RecordBatch> {
        if Arc::ptr_eq(&self.definition, newer) {
            return Ok(self.rows.clone());
        }
        let columns = self.definition.columns().iter().zip(self.rows.columns());
        let left = columns.filter_map(|(column, array)| {
            let name = &newer.column(column.id)?.name;
            let field = Field::new(name, column.data_type.clone(), true);
            Some((field, Arc::clone(array)))
        });
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = left.unzip();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.num_rows()));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
            .map_err(|e| Error::with_source(ErrorKind::Schema, e.to_string(), e))
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        // Nobody is left to report an error to. In a child of a fork the rows are its parent's.
        if self.refused.is_none() && self.table.engine().closed().check().is_ok() {
            let _ = self.flush();
        }
    }
}
