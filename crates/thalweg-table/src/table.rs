//! One table: a handle to write to it, and views to read it.
//!
//! Invariants: a handle outlives snapshots and follows its table by id, also when the table is renamed; a view never
//! changes. What is written was checked against the newest definition: a handle that knows an older one learns the newer
//! one when the kernel refuses its commit.

use crate::definition::TableDefinition;
use crate::drafts::Drafts;
use crate::engine::Engine;
use crate::error::query;
use crate::key_index::KeyIndexes;
use crate::range::KeyRange;
use crate::rows::RowWriter;
use crate::scan::NamedTable;
use arc_swap::ArcSwap;
use arrow_schema::SchemaRef;
use std::fmt;
use std::sync::Arc;
use thalweg_kernel::{Error, ErrorKind, Result, TableId, TableSnapshot};

/// Most attempts at a commit while the definition keeps changing.
pub(crate) const MAX_ATTEMPTS: usize = 16;

/// A table to write to and to take views of. Clones share it.
///
/// ```
/// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
/// # fn main() -> thalweg::Result<()> {
/// # let db = Engine::in_memory(EngineOptions::default())?;
/// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
/// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
/// use thalweg::Value;
///
/// let same = room.clone();
/// same.put(&[Value::Int(1), Value::Float(20.5)], None)?;
/// assert_eq!(room.view()?.row_count(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Table {
    engine: Engine,
    id: TableId,
    name: Arc<str>,
    shape: Arc<ArcSwap<Shape>>,
    /// The transaction that it belongs to: its calls are statements of that one, and see what it sees.
    drafts: Option<Arc<Drafts>>,
}

/// The version, definition and row writer of a table, as a writer needs them.
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

    /// A handle with another name than the table has so far.
    pub(crate) fn called(engine: Engine, table: &TableSnapshot, name: &str) -> Result<Self> {
        let shape = Arc::new(ArcSwap::from_pointee(Shape::of(&engine, table)?));
        Ok(Self {
            engine,
            id: table.id,
            name: name.into(),
            shape,
            drafts: None,
        })
    }

    /// A handle of the same table inside a transaction.
    pub(crate) fn inside(mut self, drafts: &Arc<Drafts>) -> Self {
        self.drafts = Some(Arc::clone(drafts));
        self
    }

    /// The transaction that it belongs to.
    pub(crate) fn drafts(&self) -> Option<&Arc<Drafts>> {
        self.drafts.as_ref()
    }

    /// The unique keys in memory of its views, those of its transaction if it belongs to one. `None`: they are not worth their while.
    pub(crate) fn key_indexes(&self, view: &TableView) -> Option<&KeyIndexes> {
        match &self.drafts {
            None => Some(self.engine.key_indexes()),
            Some(drafts) => drafts.key_indexes(view.row_count()),
        }
    }

    /// Whether it belongs to a transaction.
    #[must_use]
    pub fn is_in_transaction(&self) -> bool {
        self.drafts.is_some()
    }

    /// Refuses what is no part of a transaction.
    pub(crate) fn check_outside(&self, what: &str) -> Result<()> {
        match self.drafts {
            None => Ok(()),
            Some(_) => Err(query(format!(
                "table \"{}\": {what} is no part of a transaction: commit it first, or use a table that was not opened by it",
                self.name
            ))),
        }
    }

    /// The name it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The columns now; of a table that is gone, those that it had at the last use of this handle.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(self.definition().schema())
    }

    /// The definition now; of a table that is gone, that of the last use of this handle.
    #[must_use]
    pub fn definition(&self) -> Arc<TableDefinition> {
        let _ = self.refresh();
        Arc::clone(&self.shape.load().definition)
    }

    /// Its database.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Whether a view is one of this table, and not of another one that has got its name.
    #[must_use]
    pub fn is_of(&self, view: &TableView) -> bool {
        self.id == view.snapshot().id
    }

    pub(crate) fn id(&self) -> TableId {
        self.id
    }

    pub(crate) fn shape(&self) -> arc_swap::Guard<Arc<Shape>> {
        self.shape.load()
    }

    /// Removes this table and its rows, and no other one that has taken its name meanwhile. Views taken before go on seeing it.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// use thalweg::{ErrorKind, Value};
    ///
    /// room.put(&[Value::Int(1), Value::Float(20.5)], None)?;
    /// let before = room.view()?;
    /// room.drop_table()?;
    /// assert_eq!(before.row_count(), 1);
    /// assert_eq!(room.view().unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` when it was dropped before.
    pub fn drop_table(&self) -> Result<()> {
        self.check_outside("drop_table")?;
        self.engine.drop_numbered(self.id, &self.name)
    }

    /// The table now: every commit acknowledged before the call, nothing later.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// use thalweg::Value;
    ///
    /// let before = room.view()?;
    /// room.put(&[Value::Int(1), Value::Float(20.5)], None)?;
    /// assert_eq!(before.row_count(), 0); // a view never changes
    /// assert_eq!(room.view()?.row_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` when it was dropped.
    pub fn view(&self) -> Result<TableView> {
        let snapshot = self.snapshot()?;
        TableView::new(self.engine.share(), snapshot)
    }

    pub(crate) fn snapshot(&self) -> Result<TableSnapshot> {
        let table = match &self.drafts {
            None => self.engine.newest()?.table(self.id),
            Some(drafts) => drafts.table(self.id)?,
        };
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
        for _ in 1..MAX_ATTEMPTS {
            let shape = self.shape();
            match write(&shape) {
                Err(e) if e.kind() == ErrorKind::Conflict => self.refresh()?,
                Err(e) if self.has_newer_than(shape.version, &e) => {}
                Err(e) => return Err(self.dropped_or(e)),
                done => return done,
            }
        }
        write(&self.shape())
    }

    /// Whether rows may fit columns that others have made meanwhile, as they do not fit those of an older version.
    pub(crate) fn has_newer_than(&self, version: u32, error: &Error) -> bool {
        error.kind() == ErrorKind::Schema
            && self.refresh().is_ok()
            && self.shape().version != version
    }

    /// The error of a commit, which names the table where that is gone: the kernel knows tables by their ids.
    pub(crate) fn dropped_or(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::NotFound => self.snapshot().err().unwrap_or(error),
            _ => error,
        }
    }

    /// Learns the newest definition.
    pub(crate) fn refresh(&self) -> Result<()> {
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

/// Statistics of a table, known without reading its rows.
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

/// The work that maintenance did.
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

    /// The table's snapshot in the kernel.
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
        let open_rows = open_rows.saturating_sub(self.snapshot.hidden_open_rows());
        self.snapshot.rows_in_blocks() + open_rows
    }

    /// The smallest and the largest order key; `None` without rows. Where rows were deleted, it may be more than the keys of those
    /// that are left: [`TableStats`] has just these.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "timestamp(ms)"), ("temp", "double")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// use thalweg::{Value, time::key_to_text};
    ///
    /// room.put(&[Value::Text("2026-03-01T12:00:00"), Value::Float(20.5)], None)?;
    /// room.put(&[Value::Text("2026-03-01T11:00:00"), Value::Float(20.1)], None)?;
    /// let view = room.view()?;
    /// let keys = view.key_range().unwrap();
    /// let time = view.schema().field(0).data_type().clone();
    /// assert_eq!(key_to_text(&time, keys.first), "2026-03-01T11:00:00");
    /// assert_eq!(key_to_text(&time, keys.last), "2026-03-01T12:00:00");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn key_range(&self) -> Option<KeyRange> {
        key_range_of(&self.snapshot)
    }

    /// The table for errors.
    pub(crate) fn named(&self) -> NamedTable {
        NamedTable {
            id: self.snapshot.id.0,
            name: self.name().to_owned(),
            definition: Arc::clone(&self.definition),
        }
    }
}

/// The keys of all rows of a table, of deleted ones as well, known without reading any.
pub(crate) fn key_range_of(table: &TableSnapshot) -> Option<KeyRange> {
    let blocks = { table.tree.total() }.map(|total| (total.key_min, total.key_max));
    let open = { table.open_rows() }.map(|open| (open.part.key_min, open.part.key_max));
    let widest = |a: (i64, i64), b: (i64, i64)| (a.0.min(b.0), a.1.max(b.1));
    let keys = blocks.into_iter().chain(open).reduce(widest);
    keys.map(|(first, last)| KeyRange { first, last })
}
