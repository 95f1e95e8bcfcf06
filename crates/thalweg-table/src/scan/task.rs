//! Parts of a scan that can be run in another process (docs/format/task.md).
//!
//! Invariants: the tasks of one call have each row that one scan would return exactly once, and run one after the other they
//! return it in the same order; a task shows the snapshot that it was made from, wherever and whenever it is run. While a task
//! exists in the process that made it, the files that it names stay.

mod bytes;

use crate::definition::TableDefinition;
use crate::deleted_rows::Block;
use crate::engine::Engine;
use crate::error::invalid;
use crate::open_parts::{OpenPart, OpenParts};
use crate::range::KeyRange;
use crate::reader::Reader;
use crate::scan::index_walk::IndexWalk;
use crate::scan::plan::{Rows, partitions, start_scan, wanted_keys, with_wishes};
use crate::scan::{Counter, NamedTable, Scan, ScanRequest};
use crate::table::TableView;
use std::sync::Arc;
use thalweg_kernel::index::{Entry, Summaries};
use thalweg_kernel::summary::SummaryKind;
use thalweg_kernel::{CommitNo, OpenRows, Result, TableSnapshot};

/// A part of a scan: it names the blocks it reads, and brings along the rows that are in none.
///
/// It is made by [`TableView::scan_tasks`], and run where it is or, as bytes, by another process that has opened the same
/// database, for reading or writing. There it reads no index and takes no snapshot. The process that made it keeps the files
/// that it names for as long as it has the task, or the view that it was made from: keep one of these until the rows are there.
///
/// ```
/// # use std::sync::Arc;
/// # use arrow_array::{Float64Array, Int64Array, RecordBatch};
/// # use arrow_schema::{DataType, Field, Schema};
/// # use thalweg_env::Env;
/// use thalweg_table::{CreateOptions, Engine, EngineOptions, ScanRequest, ScanTask};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("plant.tl");
/// let writer = Engine::open(Env::os(), &path, EngineOptions::default())?;
/// # let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false), Field::new("t", DataType::Float64, true)]);
/// # let table = writer.create_table("air", &schema, &CreateOptions::stream("ts"))?;
/// # let columns = [("ts", Arc::new(Int64Array::from_iter_values(0..1_000)) as _), ("t", Arc::new(Float64Array::from(vec![21.5; 1_000])) as _)];
/// # table.append([Ok(RecordBatch::try_from_iter(columns)?)], None)?;
/// let tasks = table.view()?.scan_tasks(&ScanRequest::default(), 4)?;
/// let messages: Vec<Vec<u8>> = tasks.iter().map(ScanTask::encode).collect::<Result<_, _>>()?;
///
/// // In another process:
/// let reader = Engine::open(Env::os(), &path, EngineOptions { read_only: true, ..EngineOptions::default() })?;
/// let mut rows = 0;
/// for message in &messages {
///     for batch in ScanTask::decode(&reader, message)?.run()? {
///         rows += batch?.num_rows();
///     }
/// }
/// assert_eq!(rows, 1_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ScanTask {
    engine: Engine,
    table: NamedTable,
    commit: CommitNo,
    /// With the keys of this part.
    request: ScanRequest,
    /// With no more summaries than the scan needs.
    blocks: Vec<Block>,
    open: Arc<[OpenPart]>,
    /// Keeps the files; `None` where another process does.
    snapshot: Option<TableSnapshot>,
}

impl TableView {
    /// Up to `count` tasks that together return what one scan would, each a range of keys after the one before, with about as
    /// many rows. A limit holds for each of them. The index is read here, and blocks that have none of the wanted values are
    /// left out; no block is read.
    ///
    /// # Errors
    /// `Invalid` for columns that do not exist; when the index cannot be read.
    pub fn scan_tasks(&self, request: &ScanRequest, count: usize) -> Result<Vec<ScanTask>> {
        let tasks = partitions(self, wanted_keys(self.definition(), request), count)?;
        let tasks = tasks
            .into_iter()
            .map(|keys| ScanTask::of(self, request, keys));
        let tasks: Result<Vec<_>> = tasks.collect();
        tasks.map_err(|error| self.named().in_words(error))
    }
}

impl ScanTask {
    fn of(view: &TableView, request: &ScanRequest, keys: KeyRange) -> Result<Self> {
        let table = view.snapshot();
        let definition = view.definition();
        let reader = Reader::new(view, request.projection.as_deref(), keys)?;
        let reader = with_wishes(reader, definition, request)?;
        let mut blocks = Vec::new();
        if let Some(mut walk) = IndexWalk::new(table.clone(), &reader) {
            while let Some(block) = walk.next()? {
                blocks.push(Block {
                    entry: trimmed(block.entry, &reader, request.one_nan),
                    ..block
                });
            }
        }
        Ok(Self {
            engine: view.engine().clone(),
            table: view.named(),
            commit: table.commit(),
            request: ScanRequest {
                keys,
                ..request.clone()
            },
            blocks,
            open: open_parts(table, keys).into(),
            snapshot: Some(table.clone()),
        })
    }

    /// Starts it. Nothing is read before the first batch is asked for.
    ///
    /// # Errors
    /// `Unavailable` when the database was closed. While it runs, `SnapshotExpired` where another process made it and has let
    /// go of it.
    pub fn run(&self) -> Result<Scan> {
        let (request, definition) = (&self.request, &self.table.definition);
        let open = OpenParts::Task(Arc::clone(&self.open), self.snapshot.clone());
        let projection = request.projection.as_deref();
        let reader = Reader::over(
            &self.engine,
            Arc::clone(definition),
            open,
            projection,
            request.keys,
        )?;
        let reader = Arc::new(with_wishes(reader, definition, request)?);
        reader
            .metrics()
            .add(Counter::blocks_total, self.blocks.len() as u64);
        let rows = Rows::of_blocks(self.blocks.clone());
        let table = self.table.clone();
        Ok(start_scan(&self.engine, table, reader, rows, request))
    }

    /// How many rows it reads: it returns as many, or fewer where the range of keys ends inside of a block or a limit is set.
    pub fn max_rows(&self) -> u64 {
        let hidden = |block: &Block| block.mask.as_ref().map_or(0, |mask| mask.rows());
        let in_blocks = self
            .blocks
            .iter()
            .map(|block| block.entry.rows.saturating_sub(hidden(block)));
        let open = self.open.iter().map(|part| {
            let hidden = part.hidden.as_ref().map_or(0, |hidden| hidden.rows());
            u64::from(part.rows.part.rows.saturating_sub(hidden))
        });
        in_blocks.chain(open).fold(0, u64::saturating_add)
    }

    /// The task as bytes, for another process.
    ///
    /// # Errors
    /// `Limit` for blocks that do not fit a list.
    pub fn encode(&self) -> Result<Vec<u8>> {
        bytes::encode(self)
    }

    /// The task that another process has encoded, which must have opened the same database as `engine`.
    ///
    /// # Errors
    /// `Corruption` for bytes that are damaged or no task, `Unsupported` for those of another version of Thalweg, `Invalid` for a
    /// task of another database.
    pub fn decode(engine: &Engine, bytes: &[u8]) -> Result<Self> {
        bytes::decode(engine, bytes)
    }
}

/// The entry with those of its summaries that a scan looks at after it was planned: they say which floats hold no NaN.
fn trimmed(entry: Entry, reader: &Reader, one_nan: bool) -> Entry {
    let is_looked_at = |column: &&thalweg_kernel::summary::ColumnSummary| {
        one_nan && column.kind == SummaryKind::Float && reader.ids().contains(&column.column_id)
    };
    let columns: Summaries = entry.columns.iter().filter(is_looked_at).copied().collect();
    Entry { columns, ..entry }
}

/// The open rows that can have one of the keys.
fn open_parts(table: &TableSnapshot, keys: KeyRange) -> Vec<OpenPart> {
    let mut parts = Vec::new();
    let mut begins_section = false;
    for open in table.open_rows() {
        begins_section |= open.begins_section;
        let of_part = KeyRange {
            first: open.part.key_min,
            last: open.part.key_max,
        };
        if of_part.intersect(keys).is_empty() {
            continue;
        }
        parts.push(OpenPart {
            rows: OpenRows {
                begins_section,
                ..open.clone()
            },
            hidden: table.hidden_in(open).cloned(),
        });
        begins_section = false;
    }
    parts
}

/// Refuses a task of another database.
fn check_database(engine: &Engine, database: thalweg_kernel::ids::DatabaseId) -> Result<()> {
    match engine.kernel().store().database() == database {
        true => Ok(()),
        false => Err(invalid(
            "this task of a scan is of another database: it can be run where that one is open",
        )),
    }
}

/// A table whose definition came with a task.
fn named(id: u32, name: &str, definition: TableDefinition) -> NamedTable {
    NamedTable {
        id,
        name: name.to_owned(),
        definition: Arc::new(definition),
    }
}
