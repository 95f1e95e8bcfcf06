//! One table: a handle to write to it, and views to read it.
//!
//! Invariants: a handle outlives snapshots and follows the table by its id, also when it is renamed; a view never changes.

use crate::TableDefinition;
use crate::aggregate::{AggregateRequest, AggregateResult};
use crate::engine::{Durability, Engine};
use crate::range::KeyRange;
use crate::scan::{Scan, ScanRequest};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::sync::Arc;
use thalweg_kernel::{Error, ErrorKind, Result};

/// A table to write to and to take views of. Clones share it.
#[derive(Clone, Debug)]
pub struct Table {
    engine: Engine,
    name: Arc<str>,
    definition: Arc<TableDefinition>,
}

/// One table at one moment. Cheap to clone; holding it keeps its files.
#[derive(Clone, Debug)]
pub struct TableView {
    table: Table,
}

/// What is known of a table without reading its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// Rows.
    pub rows: u64,
    /// Bytes of its blocks and open rows on disk.
    pub bytes: u64,
    /// Encoded blocks.
    pub blocks: u64,
    /// Files of its own; blocks in the log are in none.
    pub fragments: u64,
    /// Rows that are in no block yet.
    pub open_rows: u64,
    /// Rows of blocks that begin before a block of an earlier commit ends.
    pub late_rows: u64,
    /// The smallest order key; `None` without rows. [`crate::time::key_to_text`] shows it.
    pub min_key: Option<i64>,
    /// The largest order key.
    pub max_key: Option<i64>,
}

fn pending<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "the kernel is not there yet"))
}

impl Table {
    /// The name it was opened by or created with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The columns, as of the last use of this handle.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(self.definition.schema())
    }

    /// The definition, as of the last use of this handle.
    pub fn definition(&self) -> Arc<TableDefinition> {
        Arc::clone(&self.definition)
    }

    /// Its database.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Appends all batches in one commit, whole or not at all, however many there are, and says how many rows they had.
    /// Columns are matched by name; rows may be in any order. `None` takes the durability of the engine.
    ///
    /// # Errors
    /// The first error of `batches`; `Schema`, `OutOfDomain` and `Limit` when rows do not fit the table.
    pub fn append(
        &self,
        _batches: impl IntoIterator<Item = Result<RecordBatch>>,
        _durability: Option<Durability>,
    ) -> Result<u64> {
        pending()
    }

    /// The table now: every commit acknowledged before the call, nothing later.
    ///
    /// # Errors
    /// `NotFound` when it was dropped.
    pub fn view(&self) -> Result<TableView> {
        pending()
    }

    /// What is known of it now.
    ///
    /// # Errors
    /// `NotFound` when it was dropped.
    pub fn stats(&self) -> Result<TableStats> {
        pending()
    }
}

impl TableView {
    /// The name of the table in this view.
    pub fn name(&self) -> &str {
        self.table.name()
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    /// The definition.
    pub fn definition(&self) -> &Arc<TableDefinition> {
        &self.table.definition
    }

    /// Rows, without reading any.
    pub fn row_count(&self) -> u64 {
        0
    }

    /// The smallest and the largest order key; `None` without rows.
    pub fn key_range(&self) -> Option<KeyRange> {
        None
    }

    /// What is known of it.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn stats(&self) -> Result<TableStats> {
        pending()
    }

    /// Starts a scan. Nothing is read before the first batch is asked for.
    ///
    /// # Errors
    /// `Invalid` for columns that do not exist.
    pub fn scan(&self, _request: &ScanRequest) -> Result<Scan> {
        pending()
    }

    /// Up to `count` scans that together return what one scan would: each a range of keys after the one before, with
    /// about as many rows. `limit` holds for each of them.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn scan_partitions(&self, _request: &ScanRequest, _count: usize) -> Result<Vec<Scan>> {
        pending()
    }

    /// Aggregates rows by ranges of the order key.
    ///
    /// # Errors
    /// `Invalid` for columns that do not exist and buckets without width.
    pub fn aggregate(&self, _request: &AggregateRequest) -> Result<AggregateResult> {
        pending()
    }
}
