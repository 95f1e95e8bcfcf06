//! One table: a handle to write to it, and views to read it.
//!
//! Invariants: a handle outlives snapshots and follows its table by id, also when the table is renamed; a view never
//! changes. What is written was checked against the newest definition: a handle that knows an older one learns the newer
//! one when the kernel refuses its commit.

use crate::aggregate::{AggregateRequest, AggregateResult};
use crate::appender::Appender;
use crate::definition::TableDefinition;
use crate::engine::Engine;
use crate::range::KeyRange;
use crate::rows::{RowWriter, decode_rows};
use crate::scan::{NamedTable, Scan, ScanRequest};
use crate::stream;
use crate::value::Value;
use arc_swap::ArcSwap;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::fmt;
use std::sync::Arc;
use thalweg_kernel::{
    Commit, Durability, Error, ErrorKind, Result, RowsPart, TableId, TableSnapshot,
};

/// A definition that changes while a commit is prepared makes it start again, so often at most.
const MOST_ATTEMPTS: usize = 16;

/// A table to write to and to take views of. Clones share it.
#[derive(Clone)]
pub struct Table {
    engine: Engine,
    id: TableId,
    name: Arc<str>,
    shape: Arc<ArcSwap<Shape>>,
}

/// What a writer needs to know of a table.
pub(crate) struct Shape {
    pub(crate) version: u32,
    pub(crate) definition: Arc<TableDefinition>,
    pub(crate) writer: RowWriter,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("id", &self.id.0)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Shape {
    fn of(engine: &Engine, table: &TableSnapshot) -> Result<Self> {
        let definition = engine.definition_of(table)?;
        let writer = RowWriter::new(&definition)?;
        Ok(Self {
            version: table.definition_version,
            definition,
            writer,
        })
    }
}

impl Table {
    pub(crate) fn new(engine: Engine, table: &TableSnapshot) -> Result<Self> {
        Self::called(engine, table, &table.name)
    }

    /// A handle that says another name than the one the table has yet.
    pub(crate) fn called(engine: Engine, table: &TableSnapshot, name: &str) -> Result<Self> {
        let shape = Arc::new(ArcSwap::from_pointee(Shape::of(&engine, table)?));
        Ok(Self {
            engine,
            id: table.id,
            name: name.into(),
            shape,
        })
    }

    /// The name it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The columns, as of the last use of this handle.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(self.shape.load().definition.schema())
    }

    /// The definition, as of the last use of this handle.
    #[must_use]
    pub fn definition(&self) -> Arc<TableDefinition> {
        Arc::clone(&self.shape.load().definition)
    }

    /// Its database.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn id(&self) -> TableId {
        self.id
    }

    pub(crate) fn shape(&self) -> arc_swap::Guard<Arc<Shape>> {
        self.shape.load()
    }

    /// Removes this table and its rows, and no other one that has taken its name meanwhile. Views taken before go on seeing it.
    ///
    /// # Errors
    /// `NotFound` when it was dropped before.
    pub fn drop_table(&self) -> Result<()> {
        self.engine.drop_numbered(self.id, &self.name)
    }

    /// Appends all batches in one commit, whole or not at all, however many there are, and says how many rows they had.
    /// Columns are matched by name; rows may be in any order. `None` takes the durability of the engine.
    ///
    /// # Errors
    /// The first error of `batches`; `Schema`, `OutOfDomain` and `Limit` when rows do not fit the table. Nothing was
    /// stored then.
    pub fn append(
        &self,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
        durability: Option<Durability>,
    ) -> Result<u64> {
        self.append_while(batches, durability, &|| true)
    }

    /// The same, cancelled when `go_on` returns false. It is called once for every 32 MiB of rows or so, before the commit; the
    /// commit itself is not cancelled.
    ///
    /// # Errors
    /// As [`Self::append`]; `Query` when it was cancelled, and nothing was stored then.
    pub fn append_while(
        &self,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
        durability: Option<Durability>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<u64> {
        self.engine.closed().check()?;
        let durability = durability.unwrap_or(self.engine.options().durability);
        stream::append(self, &mut batches.into_iter(), durability, go_on)
    }

    /// Appends one row, its values in the order of the schema.
    ///
    /// # Errors
    /// `Schema`, `OutOfDomain` and `Limit` when it does not fit the table.
    pub fn put(&self, row: &[Value<'_>], durability: Option<Durability>) -> Result<()> {
        let durability = durability.unwrap_or(self.engine.options().durability);
        self.with_newest_shape(|shape| {
            let mut payload = Vec::with_capacity(shape.writer.usual_bytes());
            let key = shape
                .writer
                .write(row, &mut payload)
                .map_err(|e| self.name_error(e))?;
            if payload.len() >= self.engine.options().append_limits.raw_bytes {
                let batch = decode_rows(&shape.definition, [&payload[..]])?;
                return self.append([Ok(batch)], Some(durability)).map(|_| ());
            }
            let part = RowsPart {
                table: self.id,
                definition_version: shape.version,
                rows: 1,
                key_min: key,
                key_max: key,
                payload: payload.into(),
            };
            let commit = Commit {
                rows: vec![part],
                ..Commit::default()
            };
            self.engine.kernel().commit(commit, durability).map(|_| ())
        })
    }

    /// Collects rows that are put one by one and appends them in batches.
    #[must_use]
    pub fn appender(&self) -> Appender {
        Appender::new(self.clone())
    }

    /// The table now: every commit acknowledged before the call, nothing later.
    ///
    /// # Errors
    /// `NotFound` when it was dropped.
    pub fn view(&self) -> Result<TableView> {
        let snapshot = self.snapshot()?;
        TableView::new(self.engine.share(), snapshot)
    }

    /// What is known of it now.
    ///
    /// # Errors
    /// `NotFound` when it was dropped.
    pub fn stats(&self) -> Result<TableStats> {
        self.view()?.stats()
    }

    /// Puts late rows in order and short blocks together, as far as they were committed before the call, so that scans
    /// need not merge them; rows that are in no block yet become blocks. Readers and writers go on meanwhile.
    ///
    /// # Errors
    /// `Unavailable` for a database that was opened read-only; whatever reading and writing leads to. Each step is stored
    /// whole or not at all.
    pub fn maintain(&self) -> Result<Maintained> {
        self.maintain_while(&|| true)
    }

    /// The same, until `go_on` returns false. It is called before each step, and while another thread maintains a table of this
    /// database, which is waited for; it must not call `maintain` itself, which would wait for this call.
    ///
    /// # Errors
    /// As [`Self::maintain`]; `Query` when it was ended, and what was put in order before stays so.
    pub fn maintain_while(&self, go_on: &dyn Fn() -> bool) -> Result<Maintained> {
        self.engine.closed().check()?;
        stream::maintain(self, go_on)
    }

    pub(crate) fn snapshot(&self) -> Result<TableSnapshot> {
        let table = self.engine.newest()?.table(self.id);
        table.ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!("the table \"{}\" was dropped", self.name),
            )
        })
    }

    /// Runs `write` with the shape this handle knows, again with the newest one for as long as it loses races.
    pub(crate) fn with_newest_shape<T>(
        &self,
        mut write: impl FnMut(&Shape) -> Result<T>,
    ) -> Result<T> {
        for _ in 1..MOST_ATTEMPTS {
            match write(&self.shape.load()) {
                Err(e) if e.kind() == ErrorKind::Conflict => self.refresh()?,
                // The kernel knows tables by their ids.
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    return Err(self.snapshot().err().unwrap_or(e));
                }
                done => return done,
            }
        }
        write(&self.shape.load())
    }

    fn refresh(&self) -> Result<()> {
        let snapshot = self.snapshot()?;
        if snapshot.definition_version != self.shape.load().version {
            self.shape
                .store(Arc::new(Shape::of(&self.engine, &snapshot)?));
        }
        Ok(())
    }

    /// The same error with the name of the table in front.
    pub(crate) fn name_error(&self, error: Error) -> Error {
        Error::with_source(
            error.kind(),
            format!("table \"{}\": {error}", self.name),
            error,
        )
    }
}

/// One table at one moment. Cheap to clone; holding it keeps its files.
#[derive(Clone, Debug)]
pub struct TableView {
    engine: Engine,
    snapshot: TableSnapshot,
    definition: Arc<TableDefinition>,
}

/// What is known of a table without reading its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Rows.
    pub rows: u64,
    /// Bytes of its blocks and open rows.
    pub bytes: u64,
    /// Encoded blocks.
    pub blocks: u64,
    /// Files of its own; blocks in the log are in none.
    pub fragments: u64,
    /// Rows that are in no block yet.
    pub open_rows: u64,
    /// Rows of blocks that came when there were blocks around their keys already, and open rows that came when there were
    /// larger keys: scans merge them.
    pub late_rows: u64,
    /// The smallest order key; `None` without rows. [`crate::time::key_to_text`] shows it.
    pub min_key: Option<i64>,
    /// The largest order key.
    pub max_key: Option<i64>,
}

/// What maintenance did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    /// Commits that it took; 0 when there was nothing to do.
    pub steps: u64,
    /// Rows that were written anew.
    pub rows: u64,
}

impl TableView {
    pub(crate) fn new(engine: Engine, snapshot: TableSnapshot) -> Result<Self> {
        engine.closed().check()?;
        // Else the number of its rows and the range of its keys would be those of an earlier commit.
        snapshot.check_index().map_err(|e| {
            let message = format!("table \"{}\": {e}", snapshot.name);
            Error::with_source(e.kind(), message, e)
        })?;
        let definition = engine.definition_of(&snapshot)?;
        Ok(Self {
            engine,
            snapshot,
            definition,
        })
    }

    /// The name of the table in this view.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.snapshot.name
    }

    /// The columns.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(self.definition.schema())
    }

    /// The definition.
    #[must_use]
    pub fn definition(&self) -> &Arc<TableDefinition> {
        &self.definition
    }

    /// Its database.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The table in the storage below.
    #[must_use]
    pub fn snapshot(&self) -> &TableSnapshot {
        &self.snapshot
    }

    /// Rows, without reading any.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        let open_rows: u64 = self
            .snapshot
            .open_rows()
            .map(|open| u64::from(open.part.rows))
            .sum();
        self.snapshot.tree.total().map_or(0, |total| total.rows) + open_rows
    }

    /// The smallest and the largest order key; `None` without rows.
    #[must_use]
    pub fn key_range(&self) -> Option<KeyRange> {
        let blocks = self
            .snapshot
            .tree
            .total()
            .map(|total| (total.key_min, total.key_max));
        let open = self
            .snapshot
            .open_rows()
            .map(|open| (open.part.key_min, open.part.key_max));
        let widest = |a: (i64, i64), b: (i64, i64)| (a.0.min(b.0), a.1.max(b.1));
        blocks
            .into_iter()
            .chain(open)
            .reduce(widest)
            .map(|(first, last)| KeyRange { first, last })
    }

    /// What is known of it.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn stats(&self) -> Result<TableStats> {
        self.engine.closed().check()?;
        stream::stats(self)
    }

    /// Starts a scan. Nothing is read before the first batch is asked for.
    ///
    /// # Errors
    /// `Invalid` for columns that do not exist.
    pub fn scan(&self, request: &ScanRequest) -> Result<Scan> {
        stream::scan(self, request).map_err(|error| self.named().in_words(error))
    }

    /// The table for errors.
    pub(crate) fn named(&self) -> NamedTable {
        NamedTable {
            id: self.snapshot.id.0,
            name: self.name().to_owned(),
            definition: Arc::clone(&self.definition),
        }
    }

    /// Up to `count` scans that together return what one scan would: each a range of keys behind the one before, with
    /// about as many rows. A limit holds for each of them.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn scan_partitions(&self, request: &ScanRequest, count: usize) -> Result<Vec<Scan>> {
        let ranges = stream::partitions(self, request.keys, count)?;
        ranges
            .into_iter()
            .map(|keys| {
                self.scan(&ScanRequest {
                    keys,
                    ..request.clone()
                })
            })
            .collect()
    }

    /// Aggregates rows by ranges of the order key.
    ///
    /// # Errors
    /// `Invalid` for columns that do not exist and buckets without width.
    pub fn aggregate(&self, request: &AggregateRequest) -> Result<AggregateResult> {
        let result = crate::aggregate::aggregate(self, request);
        result.map_err(|error| self.named().in_words(error))
    }
}
