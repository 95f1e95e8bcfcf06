//! An open database: the kernel, and what all tables of it share.
//!
//! Invariants: clones share one kernel, and the last one to go closes it; nothing is read or written through a database that
//! was closed.

use crate::closed::Closed;
use crate::column::Encoders;
use crate::definition::TableDefinition;
use crate::definitions::Definitions;
use crate::jobs::board::{Board, JobLimits, JobThread, MaintenanceMode};
use crate::key_index::KeyIndexes;
use crate::key_turns::KeyTurns;
use crate::layouts::Layouts;
use crate::left_rows::AllLeftRows;
use crate::maintain::raw_sizes::RawSizes;
use crate::pool::Pool;
use crate::table_turns::{AllTurns, TableTurns};
use crate::turns::Turns;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::sync::Mutex;
use thalweg_env::sync::atomic::{AtomicBool, Ordering};
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, Error, ErrorKind, Kernel, Options, Result, Snapshot,
    TableId, TableSnapshot,
};

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Never write; needs an existing database.
    pub read_only: bool,
    /// Fail when there is no database yet.
    pub must_exist: bool,
    /// The durability of appends unless they ask for another one, and of new and dropped tables.
    pub durability: Durability,
    /// Memory for cached index pages, heads of blocks, and pages of blocks that single rows were read from.
    pub cache_bytes: u64,
    /// Threads that encode and decode, at most 1,024; 0 means one per core.
    pub threads: usize,
    /// `Process` commits reach stable storage within this time.
    pub sync_interval: Duration,
    /// Memory that queries may take together; enforced by the layer that runs them.
    pub memory_limit_bytes: Option<u64>,
    /// Memory for the unique keys of tables that do not hold the time: of tables with more, their key columns are read for each
    /// append.
    pub key_index_bytes: u64,
    /// Full size of a log segment.
    pub segment_bytes: u64,
    /// Files that only older snapshots of reading processes need may be removed: those get `SnapshotExpired`. Snapshots of
    /// the writing process keep their files for as long as they live.
    pub max_snapshot_age: Duration,
    /// Prepare segments, encode, write checkpoints, clean up, sync and do jobs on threads of their own. Off in simulations:
    /// everything then happens in the calling thread, in a fixed order. [`Engine::maintain`] runs in its caller's thread.
    pub background: bool,
    /// Where appends of different sizes go; small in tests.
    pub append_limits: AppendLimits,
    /// About so many rows are put in order by one commit of [`Engine::maintain`].
    pub maintain_rows: u64,
    /// Whether tables are maintained without being asked; needs `background`.
    pub maintenance: MaintenanceMode,
    /// How much of the machine that may take.
    pub job_limits: JobLimits,
    /// The layouts that tables can have.
    pub layouts: Layouts,
}

/// Sizes from which an append takes another way into the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendLimits {
    /// Rows of fewer bytes are committed raw, and become blocks later, together with others.
    pub raw_bytes: usize,
    /// Smaller batches are put together up to this size before they are sorted and cut.
    pub gather_bytes: usize,
    /// Encoded blocks of more bytes go to files of their own, not into the log.
    pub group_bytes: u64,
    /// A file of this size is finished, and the next one begun.
    pub fragment_bytes: u64,
    /// A file that has this size ends where the next split begins.
    pub split_fragment_bytes: u64,
}

impl AppendLimits {
    /// The limits of rows that all go to files of their own.
    pub(crate) fn staged(self) -> Self {
        Self {
            raw_bytes: 0,
            group_bytes: 0,
            ..self
        }
    }
}

impl Default for AppendLimits {
    fn default() -> Self {
        Self {
            raw_bytes: 256 << 10,
            gather_bytes: 8 << 20,
            group_bytes: 4 << 20,
            fragment_bytes: 256 << 20,
            split_fragment_bytes: 4 << 20,
        }
    }
}

impl Default for EngineOptions {
    fn default() -> Self {
        let kernel = Options::default();
        Self {
            read_only: kernel.read_only,
            must_exist: kernel.must_exist,
            durability: Durability::Disk,
            cache_bytes: kernel.cache_bytes,
            threads: 0,
            sync_interval: kernel.sync_interval,
            key_index_bytes: 512 << 20,
            memory_limit_bytes: None,
            segment_bytes: kernel.segment_bytes,
            max_snapshot_age: kernel.max_snapshot_age,
            background: kernel.background,
            append_limits: AppendLimits::default(),
            maintain_rows: 4 << 20,
            maintenance: MaintenanceMode::default(),
            job_limits: JobLimits::default(),
            layouts: Layouts::default(),
        }
    }
}

/// An open database. Clones share it; the last one to go closes it.
pub struct Engine {
    /// Counted apart for each clone, and in common for the views that it makes: threads with a clone each write no memory in
    /// common when they take snapshots.
    handle: Arc<Handle>,
}

/// Fields are dropped in this order: jobs have ended before the database is closed.
struct Handle {
    /// None in the handle of the jobs themselves, which must not keep a database open that nobody else has.
    jobs: Option<Arc<JobThread>>,
    inner: Arc<Inner>,
}

impl Clone for Engine {
    fn clone(&self) -> Self {
        Self {
            handle: Arc::new(Handle {
                jobs: self.handle.jobs.clone(),
                inner: Arc::clone(&self.handle.inner),
            }),
        }
    }
}

struct Inner {
    kernel: Kernel,
    options: EngineOptions,
    definitions: Arc<Definitions>,
    pool: Arc<Pool>,
    encoders: Arc<Encoders>,
    left_rows: Arc<AllLeftRows>,
    closed: Closed,
    /// Held by whoever maintains a table.
    maintenance: Turns<Maintenance>,
    /// Taken by whoever deletes rows of a table or merges its blocks, and was refused before.
    table_turns: AllTurns<TableTurns>,
    key_turns: AllTurns<KeyTurns>,
    key_indexes: KeyIndexes,
    /// Held by whoever deletes expired rows, and by whoever changes a retention.
    expiry: Mutex<()>,
    /// A table was dropped since somebody last took that: the drop itself must not wait for a turn.
    has_dropped: AtomicBool,
    /// The state of the jobs.
    board: Arc<Board>,
}

/// State that is kept between calls of `maintain`.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    /// Files that nobody needs may be left.
    pub(crate) has_garbage: bool,
    /// Sizes of blocks that stay short, which are measured once for all calls.
    pub(crate) raw_sizes: HashMap<TableId, RawSizes>,
    /// How often the steps for a table became smaller, because they changed more than one commit may.
    pub(crate) shrinks: HashMap<TableId, u32>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("options", &self.handle.inner.options)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// A handle of a kernel that was just opened.
    pub(crate) fn new(
        kernel: Kernel,
        options: EngineOptions,
        definitions: Arc<Definitions>,
        pool: Arc<Pool>,
        closed: Closed,
    ) -> Self {
        // Who had it open before may have left some.
        let may_have_garbage = kernel.is_writer();
        // Without it keys are told apart all the same, by their values.
        let seed = kernel
            .store()
            .env()
            .entropy()
            .random_u64()
            .unwrap_or_default();
        let of_limit = options.memory_limit_bytes.map(|bytes| bytes / 4);
        let key_bytes = of_limit.map_or(options.key_index_bytes, |bytes| {
            bytes.min(options.key_index_bytes)
        });
        let inner = Arc::new(Inner {
            kernel,
            options,
            definitions,
            pool,
            encoders: Arc::default(),
            left_rows: Arc::default(),
            closed,
            maintenance: Turns::new(Maintenance {
                has_garbage: may_have_garbage,
                ..Maintenance::default()
            }),
            table_turns: AllTurns::default(),
            key_turns: AllTurns::default(),
            key_indexes: KeyIndexes::new(seed, key_bytes),
            expiry: Mutex::default(),
            has_dropped: AtomicBool::new(false),
            board: Arc::default(),
        });
        Self {
            handle: Arc::new(Handle { jobs: None, inner }),
        }
    }

    /// The first handle of a database with a thread that does jobs, which ends with the last clone.
    pub(crate) fn with_job_thread(&self, jobs: JobThread) -> Self {
        Self {
            handle: Arc::new(Handle {
                jobs: Some(Arc::new(jobs)),
                inner: Arc::clone(&self.handle.inner),
            }),
        }
    }

    /// The state of the jobs.
    pub(crate) fn board(&self) -> &Arc<Board> {
        &self.handle.inner.board
    }

    /// Removes the table with this number, which had this name.
    pub(crate) fn drop_numbered(&self, table: TableId, name: &str) -> Result<()> {
        let durability = self.handle.inner.options.durability;
        self.edit(vec![Edit::DropTable { table }], durability)
            .map_err(|error| match error.kind() {
                // The kernel knows its number only.
                ErrorKind::NotFound => dropped_meanwhile(name, Some(error)),
                _ => error,
            })?;
        self.note_dropped();
        Ok(())
    }

    /// Lets the next maintenance let go of what is kept of tables that were dropped.
    pub(crate) fn note_dropped(&self) {
        self.handle.inner.has_dropped.store(true, Ordering::Release);
    }

    /// Gives the table with this number a name.
    pub(crate) fn rename_numbered(&self, table: TableId, name: &str) -> Result<()> {
        let rename = Edit::RenameTable {
            table,
            name: name.to_owned(),
        };
        self.edit(vec![rename], self.handle.inner.options.durability)
            .map(|_| ())
    }

    /// Returns when everything appended so far is on stable storage.
    ///
    /// # Errors
    /// When it cannot get there.
    pub fn flush(&self) -> Result<()> {
        self.handle.inner.kernel.flush()
    }

    /// Writes what a later open would have to work out.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn checkpoint(&self) -> Result<()> {
        self.handle.inner.kernel.checkpoint()
    }

    /// Flushes, checkpoints and lets go of the files. Everything fails from then on, reading from views and scans that
    /// were taken before as well; a second call is fine.
    ///
    /// # Errors
    /// When the rest cannot be written.
    pub fn close(&self) -> Result<()> {
        self.handle.inner.closed.close();
        if let Some(jobs) = &self.handle.jobs {
            jobs.stop();
        }
        // Where a thread of the parent held their lock at the fork, a child would wait for it for ever.
        if self.handle.inner.closed.owner().is_here() {
            self.handle.inner.encoders.clear();
        }
        self.handle.inner.kernel.close()
    }

    /// How it was opened, with defaults filled in.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.handle.inner.options
    }

    /// The environment that the database is in: its storage, clocks and threads.
    #[must_use]
    pub fn env(&self) -> &thalweg_env::Env {
        self.kernel().store().env()
    }

    /// The storage below.
    #[must_use]
    pub fn kernel(&self) -> &Kernel {
        &self.handle.inner.kernel
    }

    /// Held by whoever maintains a table.
    pub(crate) fn maintenance(&self) -> &Turns<Maintenance> {
        &self.handle.inner.maintenance
    }

    /// Held by whoever deletes expired rows, and by whoever changes a retention.
    pub(crate) fn expiry(&self) -> &Mutex<()> {
        &self.handle.inner.expiry
    }

    /// The turns of those who delete rows of a table or merge its blocks.
    pub(crate) fn turns_of(&self, table: TableId) -> Result<Arc<TableTurns>> {
        self.handle.inner.closed.check()?;
        Ok(self.handle.inner.table_turns.of(table))
    }

    /// The turns of those who store rows with unique keys that a table may lack. They are waited for before those of
    /// [`Self::turns_of`], and of several tables in the order of their numbers.
    pub(crate) fn key_turns_of(&self, table: TableId) -> Result<Arc<KeyTurns>> {
        self.handle.inner.closed.check()?;
        Ok(self.handle.inner.key_turns.of(table))
    }

    /// The unique keys of tables in memory.
    pub(crate) fn key_indexes(&self) -> &KeyIndexes {
        &self.handle.inner.key_indexes
    }

    /// Lets go of what is kept of tables that were dropped.
    pub(crate) fn forget_dropped(&self, maintenance: &mut Maintenance) -> Result<()> {
        if self.handle.inner.has_dropped.swap(false, Ordering::AcqRel) {
            let newest = self.newest().inspect_err(|_| {
                self.handle.inner.has_dropped.store(true, Ordering::Release);
            })?;
            let sizes = &mut maintenance.raw_sizes;
            sizes.retain(|table, _| newest.table(*table).is_some());
            let indexes = self.key_indexes();
            indexes.retain(|table| newest.table(table).is_some());
            let shrinks = &mut maintenance.shrinks;
            shrinks.retain(|table, _| newest.table(*table).is_some());
        }
        Ok(())
    }

    pub(crate) fn closed(&self) -> &Closed {
        &self.handle.inner.closed
    }

    /// The same clone, for what is made of it: cheaper than a clone of its own.
    pub(crate) fn share(&self) -> Self {
        Self {
            handle: Arc::clone(&self.handle),
        }
    }

    /// Every commit acknowledged so far.
    pub(crate) fn newest(&self) -> Result<Snapshot> {
        self.handle.inner.closed.check()?;
        self.handle.inner.kernel.snapshot()
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.handle.inner.pool
    }

    pub(crate) fn left_rows(&self) -> &Arc<AllLeftRows> {
        &self.handle.inner.left_rows
    }

    pub(crate) fn encoders(&self) -> &Arc<Encoders> {
        &self.handle.inner.encoders
    }

    #[cfg(test)]
    pub(crate) fn definitions(&self) -> &Definitions {
        &self.handle.inner.definitions
    }

    pub(crate) fn definition_of(&self, table: &TableSnapshot) -> Result<Arc<TableDefinition>> {
        self.handle.inner.definitions.of(table)
    }

    /// Edits survive what appends do. A log that loses its end loses the rows of a table before the table.
    pub(crate) fn edit(&self, edits: Vec<Edit>, durability: Durability) -> Result<CommitNo> {
        self.handle.inner.closed.check()?;
        let commit = Commit {
            edits,
            ..Commit::default()
        };
        self.handle.inner.kernel.commit(commit, durability)
    }
}

/// The error for a table that somebody else has dropped.
pub(crate) fn dropped_meanwhile(name: &str, source: Option<Error>) -> Error {
    let message = format!("the table \"{name}\" was dropped meanwhile");
    match source {
        Some(error) => Error::with_source(ErrorKind::NotFound, message, error),
        None => Error::new(ErrorKind::NotFound, message),
    }
}
