//! An open database: the catalog over the kernel's tables.
//!
//! Invariants: names are compared without regard to case and keep the case they were created with; a [`DatabaseView`] is
//! one snapshot of all tables; making, finding and dropping a table takes the same time however many others there are.

use crate::column::Encoders;
use crate::definition::TableDefinition;
use crate::definitions::Definitions;
use crate::error::invalid;
use crate::options::CreateOptions;
use crate::pool::Pool;
use crate::schema::{check_is_no_system_table, check_name};
use crate::stream::{RawSizes, StreamEncoder};
use crate::suggest::did_you_mean;
use crate::table::{Maintained, Table, TableView};
use crate::turns::Turns;
use crate::unlisted::{self, NewTable, is_unlisted};
use arrow_schema::Schema;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::sync::atomic::{AtomicBool, Ordering};
use thalweg_env::{Env, Owner};
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, Error, ErrorKind, Kernel, NEW_TABLE, Options, Result,
    Snapshot, TableId, TableSnapshot, name_is_taken,
};

/// Names of tables that a message lists.
const MOST_LISTED: usize = 20;
/// Tables among which a message looks for the name that was meant.
const MOST_COMPARED: usize = 1_000;
/// More threads than this only take memory.
const MOST_THREADS: usize = 1_024;

/// Largest log segment of a database in memory. Its log is memory as well: about three segments are kept beside the rows,
/// the one that is written and those whose rows are moving into blocks elsewhere. Smaller ones are cleaned more often, and
/// each time the index is walked.
const IN_MEMORY_SEGMENT_BYTES: u64 = 8 << 20;
/// A database in memory has nothing to sync, and its thread sleeps.
const IN_MEMORY_SYNC_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Never write; needs an existing database.
    pub read_only: bool,
    /// Fail when there is no database yet.
    pub must_exist: bool,
    /// What appends survive when they return, unless they say otherwise; and new and dropped tables.
    pub durability: Durability,
    /// Memory for cached index pages and block heads.
    pub cache_bytes: u64,
    /// Threads that encode and decode, at most 1,024; 0 means one per core.
    pub threads: usize,
    /// `Process` commits reach stable storage within this time.
    pub sync_interval: Duration,
    /// What queries may take together; enforced by the layer that runs them.
    pub memory_limit_bytes: Option<u64>,
    /// Full size of a log segment.
    pub segment_bytes: u64,
    /// Files that only older snapshots of reading processes need may be removed: those get `SnapshotExpired`. Snapshots of
    /// the writing process keep their files for as long as they live.
    pub max_snapshot_age: Duration,
    /// Prepare segments, encode, write checkpoints, clean up and sync on threads of their own. Off in simulations:
    /// everything then happens in the calling thread, in a fixed order. [`Engine::maintain`] runs in its caller's thread.
    pub background: bool,
    /// Where appends of different sizes go; small in tests.
    pub append_limits: AppendLimits,
    /// About so many rows are put in order by one commit of [`Engine::maintain`].
    pub maintain_rows: u64,
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
            memory_limit_bytes: None,
            segment_bytes: kernel.segment_bytes,
            max_snapshot_age: kernel.max_snapshot_age,
            background: kernel.background,
            append_limits: AppendLimits::default(),
            maintain_rows: 4 << 20,
        }
    }
}

/// An open database. Clones share it; the last one to go closes it.
pub struct Engine {
    /// Counted apart for each clone, and in common for the views that it makes: threads with a clone each write no memory in
    /// common when they take snapshots.
    #[expect(
        clippy::redundant_allocation,
        reason = "the outer one is a counter of its own"
    )]
    inner: Arc<Arc<Inner>>,
}

impl Clone for Engine {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::new(Arc::clone(&self.inner)),
        }
    }
}

struct Inner {
    kernel: Kernel,
    options: EngineOptions,
    definitions: Arc<Definitions>,
    pool: Arc<Pool>,
    encoders: Arc<Encoders>,
    closed: Closed,
    /// Held by whoever maintains a table.
    maintenance: Turns<Maintenance>,
    /// A table was dropped since somebody last took that: the drop itself must not wait for a turn.
    has_dropped: AtomicBool,
}

/// State that is kept between calls of `maintain`.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    /// Files that nobody needs may be left.
    pub(crate) has_garbage: bool,
    /// Sizes of blocks that stay short, which are measured once for all calls.
    pub(crate) raw_sizes: HashMap<TableId, RawSizes>,
}

/// Whether the database was closed. Its files may belong to another process from then on, so nothing is read any more. In a
/// child of a fork it is of no use either, and nothing may be waited for there: the lock of a cache or of the pool may be held
/// by a thread that the child does not have.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    is_closed: Arc<AtomicBool>,
    owner: Owner,
}

impl Closed {
    /// # Errors
    /// `Unavailable` once the database is closed, and in a child of the process that has opened it.
    pub(crate) fn check(&self) -> Result<()> {
        self.owner.check().map_err(Error::not_owner)?;
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        Ok(())
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Opens the database in the directory `path`, making it if it is missing and the options allow.
    ///
    /// # Errors
    /// `NotFound` when it must exist and does not, `Locked` when another process writes to it, `Corruption` when its
    /// files are damaged, `Invalid` for options that make no sense.
    pub fn open(env: Env, path: &Path, options: EngineOptions) -> Result<Self> {
        let options = EngineOptions {
            threads: threads(&options)?,
            ..options
        };
        let definitions = Arc::new(Definitions::default());
        // The thread that asks for rows or blocks works as well.
        let helpers = if options.background {
            options.threads - 1
        } else {
            0
        };
        let pool = Arc::new(Pool::new(env.clone(), helpers));
        let closed = Closed {
            is_closed: Arc::default(),
            owner: env.owner(),
        };
        let encoder = Arc::new(StreamEncoder::new(Arc::clone(&definitions)));
        let kernel = Kernel::open(env, path, &kernel_options(&options), encoder)?;
        // Who had it open before may have left some.
        let may_have_garbage = kernel.is_writer();
        let engine = Self {
            inner: Arc::new(Arc::new(Inner {
                kernel,
                options,
                definitions,
                pool,
                encoders: Arc::default(),
                closed,
                maintenance: Turns::new(Maintenance {
                    has_garbage: may_have_garbage,
                    ..Maintenance::default()
                }),
                has_dropped: AtomicBool::new(false),
            })),
        };
        if may_have_garbage {
            unlisted::drop_left_over(&engine);
        }
        Ok(engine)
    }

    /// Opens a new database in memory, which is gone with the last clone. Durability, sync interval and segment size are
    /// those that suit memory, whatever the options say.
    ///
    /// # Errors
    /// `Invalid` when the options ask for a database that is there already.
    pub fn in_memory(options: EngineOptions) -> Result<Self> {
        if options.read_only || options.must_exist {
            return Err(invalid(
                "a database in memory is always new: it cannot be opened read-only or have to exist",
            ));
        }
        let options = EngineOptions {
            // Nothing outlives the process, so nobody has to wait for a sync.
            durability: Durability::Memory,
            sync_interval: IN_MEMORY_SYNC_INTERVAL,
            segment_bytes: options.segment_bytes.min(IN_MEMORY_SEGMENT_BYTES),
            ..options
        };
        Self::open(Env::in_memory(), Path::new("/memory"), options)
    }

    /// Makes a table.
    ///
    /// # Errors
    /// `AlreadyExists` when there is a table of that name in any case; `Schema`, `Invalid` and `Unsupported` when the
    /// columns or options cannot be.
    pub fn create_table(
        &self,
        name: &str,
        schema: &Schema,
        options: &CreateOptions,
    ) -> Result<Table> {
        check_table_name(name)?;
        let durability = self.inner.options.durability;
        let definition = definition_of_new(name, schema, options)?;
        let created = self.commit_table(name, &definition, durability)?;
        let table = named(&self.newest()?, name).ok();
        match table.filter(|table| table.created == created) {
            Some(table) => Table::new(self.clone(), &table),
            // Another one of this name is somebody else's.
            None => Err(dropped_meanwhile(name, None)),
        }
    }

    /// [`Engine::create_table`] without a handle of it, which there is none of once another drops the table.
    ///
    /// # Errors
    /// As there, but for `NotFound` of the new table.
    pub fn add_table(&self, name: &str, schema: &Schema, options: &CreateOptions) -> Result<()> {
        check_table_name(name)?;
        let definition = definition_of_new(name, schema, options)?;
        self.commit_table(name, &definition, self.inner.options.durability)
            .map(|_| ())
    }

    /// Makes a table that nobody sees before [`NewTable::publish`], so that it appears together with its first rows.
    ///
    /// # Errors
    /// As [`Engine::create_table`]; `Unavailable` when very many are being filled at the same time.
    pub fn begin_table(
        &self,
        name: &str,
        schema: &Schema,
        options: &CreateOptions,
    ) -> Result<NewTable> {
        check_table_name(name)?;
        let definition = definition_of_new(name, schema, options)?;
        if let Some(taken) = self.newest()?.table_named(name) {
            return Err(name_is_taken(&taken.name));
        }
        // The commits that follow are behind it in the log: they are on stable storage no sooner.
        let durability = self.inner.options.durability.min(Durability::Process);
        unlisted::with_free_name(|unlisted| {
            let created = self.commit_table(unlisted, &definition, durability)?;
            let table = self.newest()?.table_named(unlisted);
            match table.filter(|table| table.created == created) {
                Some(table) => Table::called(self.clone(), &table, name).map(NewTable::new),
                None => Err(dropped_meanwhile(name, None)),
            }
        })
    }

    /// The commit that has made the table.
    fn commit_table(
        &self,
        name: &str,
        definition: &TableDefinition,
        durability: Durability,
    ) -> Result<CommitNo> {
        let edit = Edit::CreateTable {
            table: NEW_TABLE,
            name: name.to_owned(),
            definition: definition.encode().into(),
            indexes: 0,
        };
        self.edit(vec![edit], durability)
    }

    /// The table of that name, in any case.
    ///
    /// # Errors
    /// `NotFound`, listing what there is.
    pub fn table(&self, name: &str) -> Result<Table> {
        Table::new(self.clone(), &named(&self.newest()?, name)?)
    }

    /// The names of all tables, in order.
    ///
    /// # Errors
    /// When a reader process cannot see the newest commit.
    pub fn table_names(&self) -> Result<Vec<String>> {
        Ok(names(&self.newest()?))
    }

    /// Removes a table and its rows. Views taken before go on seeing it.
    ///
    /// # Errors
    /// `NotFound`, listing what there is.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let table = named(&self.newest()?, name)?.id;
        self.drop_numbered(table, name)
    }

    /// Removes the tables with these names in one commit: behind a crash all of them are there, or none is.
    ///
    /// # Errors
    /// `NotFound` for a name without a table; nothing was removed then.
    pub fn drop_tables(&self, names: &[&str]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let newest = self.newest()?;
        let edits = names.iter().map(|name| {
            let table = named(&newest, name)?.id;
            Ok(Edit::DropTable { table })
        });
        self.edit(edits.collect::<Result<_>>()?, self.inner.options.durability)
            .map_err(|error| {
                if error.kind() != ErrorKind::NotFound {
                    return error;
                }
                let newest = self.newest();
                let is_gone = |name: &&&str| {
                    newest
                        .as_ref()
                        .is_ok_and(|newest| newest.table_named(name).is_none())
                };
                let gone = names.iter().find(is_gone).unwrap_or(&names[0]);
                dropped_meanwhile(gone, Some(error))
            })?;
        self.inner.has_dropped.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes the table with this number, which had this name.
    pub(crate) fn drop_numbered(&self, table: TableId, name: &str) -> Result<()> {
        let durability = self.inner.options.durability;
        self.edit(vec![Edit::DropTable { table }], durability)
            .map_err(|error| match error.kind() {
                // The kernel knows its number only.
                ErrorKind::NotFound => dropped_meanwhile(name, Some(error)),
                _ => error,
            })?;
        self.inner.has_dropped.store(true, Ordering::Release);
        Ok(())
    }

    /// Gives the table with this number a name.
    pub(crate) fn rename_numbered(&self, table: TableId, name: &str) -> Result<()> {
        let rename = Edit::RenameTable {
            table,
            name: name.to_owned(),
        };
        self.edit(vec![rename], self.inner.options.durability)
            .map(|_| ())
    }

    /// One view of all tables: every commit acknowledged before the call, nothing later.
    ///
    /// # Errors
    /// When a reader process cannot see the newest commit.
    pub fn snapshot(&self) -> Result<DatabaseView> {
        Ok(DatabaseView {
            engine: self.share(),
            snapshot: self.newest()?,
        })
    }

    /// Returns when everything appended so far is on stable storage.
    ///
    /// # Errors
    /// When it cannot get there.
    pub fn flush(&self) -> Result<()> {
        self.inner.kernel.flush()
    }

    /// Writes what a later open would have to work out.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.kernel.checkpoint()
    }

    /// [`Table::maintain`] for every table. Then files go that are of no use any more.
    ///
    /// # Errors
    /// As there; tables before the one that failed are done.
    pub fn maintain(&self) -> Result<Maintained> {
        let mut total = Maintained::default();
        for name in self.table_names()? {
            let done = match self.table(&name).and_then(|table| table.maintain()) {
                // Dropped meanwhile.
                Err(e) if e.kind() == ErrorKind::NotFound => Maintained::default(),
                done => done?,
            };
            total.steps += done.steps;
            total.rows += done.rows;
        }
        let Some(mut maintenance) = self.maintenance().wait(&|| true) else {
            return Ok(total);
        };
        // Nothing is deleted while a snapshot may need it: then the next call does it.
        if maintenance.has_garbage && self.inner.kernel.collect_garbage()? > 0 {
            maintenance.has_garbage = false;
        }
        Ok(total)
    }

    /// Flushes, checkpoints and lets go of the files. Everything fails from then on, reading from views and scans that
    /// were taken before as well; a second call is fine.
    ///
    /// # Errors
    /// When the rest cannot be written.
    pub fn close(&self) -> Result<()> {
        self.inner.closed.is_closed.store(true, Ordering::Release);
        // Where a thread of the parent held their lock at the fork, a child would wait for it for ever.
        if self.inner.closed.owner.is_here() {
            self.inner.encoders.clear();
        }
        self.inner.kernel.close()
    }

    /// How it was opened, with defaults filled in.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.inner.options
    }

    /// The storage below.
    #[must_use]
    pub fn kernel(&self) -> &Kernel {
        &self.inner.kernel
    }

    /// Held by whoever maintains a table.
    pub(crate) fn maintenance(&self) -> &Turns<Maintenance> {
        &self.inner.maintenance
    }

    /// Lets go of what is kept of tables that were dropped.
    pub(crate) fn forget_dropped(&self, maintenance: &mut Maintenance) -> Result<()> {
        if self.inner.has_dropped.swap(false, Ordering::AcqRel) {
            let newest = self.newest().inspect_err(|_| {
                self.inner.has_dropped.store(true, Ordering::Release);
            })?;
            let sizes = &mut maintenance.raw_sizes;
            sizes.retain(|table, _| newest.table(*table).is_some());
        }
        Ok(())
    }

    pub(crate) fn closed(&self) -> &Closed {
        &self.inner.closed
    }

    /// The same clone, for what is made of it: cheaper than a clone of its own.
    pub(crate) fn share(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }

    /// Every commit acknowledged so far.
    pub(crate) fn newest(&self) -> Result<Snapshot> {
        self.inner.closed.check()?;
        self.inner.kernel.snapshot()
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.inner.pool
    }

    pub(crate) fn encoders(&self) -> &Arc<Encoders> {
        &self.inner.encoders
    }

    #[cfg(test)]
    pub(crate) fn definitions(&self) -> &Definitions {
        &self.inner.definitions
    }

    pub(crate) fn definition_of(&self, table: &TableSnapshot) -> Result<Arc<TableDefinition>> {
        self.inner.definitions.of(table)
    }

    /// Edits survive what appends do. A log that loses its end loses the rows of a table before the table.
    fn edit(&self, edits: Vec<Edit>, durability: Durability) -> Result<CommitNo> {
        self.inner.closed.check()?;
        let commit = Commit {
            edits,
            ..Commit::default()
        };
        self.inner.kernel.commit(commit, durability)
    }
}

/// An error for a name that no table can have.
fn check_table_name(name: &str) -> Result<()> {
    check_name("table", name)?;
    check_is_no_system_table(name)
}

fn definition_of_new(
    name: &str,
    schema: &Schema,
    options: &CreateOptions,
) -> Result<TableDefinition> {
    TableDefinition::create(schema, options)
        .map_err(|e| Error::with_source(e.kind(), format!("table \"{name}\": {e}"), e))
}

fn dropped_meanwhile(name: &str, source: Option<Error>) -> Error {
    let message = format!("the table \"{name}\" was dropped meanwhile");
    match source {
        Some(error) => Error::with_source(ErrorKind::NotFound, message, error),
        None => Error::new(ErrorKind::NotFound, message),
    }
}

fn kernel_options(options: &EngineOptions) -> Options {
    Options {
        read_only: options.read_only,
        must_exist: options.must_exist,
        cache_bytes: options.cache_bytes,
        sync_interval: options.sync_interval,
        segment_bytes: options.segment_bytes,
        max_snapshot_age: options.max_snapshot_age,
        background: options.background,
    }
}

fn threads(options: &EngineOptions) -> Result<usize> {
    match options.threads {
        0 if options.background => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
        given if given > MOST_THREADS => {
            let message = format!("threads is {given}: at most {MOST_THREADS}");
            Err(Error::new(ErrorKind::Invalid, message))
        }
        given => Ok(given.max(1)),
    }
}

fn named(snapshot: &Snapshot, name: &str) -> Result<TableSnapshot> {
    let table = snapshot.table_named(name);
    table.filter(|_| !is_unlisted(name)).ok_or_else(|| {
        let message = format!("there is no table \"{name}\"; {}", listed(snapshot, name));
        Error::new(ErrorKind::NotFound, message)
    })
}

/// What to say of the tables that there are: only some of many, so that a failed lookup among them stays cheap.
fn listed(snapshot: &Snapshot, wanted: &str) -> String {
    let some = snapshot.tables().take(MOST_COMPARED);
    let some = some.filter(|table| !is_unlisted(&table.name));
    let mut names: Vec<String> = some.map(|table| table.name.to_string()).collect();
    names.sort_unstable();
    let meant = did_you_mean(wanted, names.iter().map(String::as_str));
    names.truncate(MOST_LISTED);
    let names = names.join(", ");
    match snapshot.table_count() {
        _ if names.is_empty() => "there are no tables".to_owned(),
        count if count > MOST_LISTED => format!("{meant}some of the {count} tables are {names}"),
        _ => format!("{meant}the tables are {names}"),
    }
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    let mut names: Vec<String> = snapshot
        .tables()
        .filter(|table| !is_unlisted(&table.name))
        .map(|table| table.name.to_string())
        .collect();
    names.sort_unstable();
    names
}

/// All tables at one moment. Holding it keeps its files.
#[derive(Clone, Debug)]
pub struct DatabaseView {
    engine: Engine,
    snapshot: Snapshot,
}

impl DatabaseView {
    /// The table of that name, in any case.
    ///
    /// # Errors
    /// `NotFound`, listing what there is.
    pub fn table(&self, name: &str) -> Result<TableView> {
        TableView::new(self.engine.share(), named(&self.snapshot, name)?)
    }

    /// The names of all tables, in order.
    #[must_use]
    pub fn table_names(&self) -> Vec<String> {
        names(&self.snapshot)
    }

    /// The number of the last commit in it.
    #[must_use]
    pub fn commit(&self) -> u64 {
        self.snapshot.commit().0
    }

    /// Its database.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}
