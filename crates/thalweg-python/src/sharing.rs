//! Databases that several connections of this process share.
//!
//! Invariants
//! - Connections to one path with the same options share one open database, which the last of them closes: whoever makes the
//!   count zero checks it again under the lock of the slot, and a connection that came between keeps the database open.
//! - The list of slots is locked with the interpreter held, and for moments: `os.fork` needs the interpreter, so no child ever
//!   finds it locked. A slot is locked without the interpreter, for as long as opening or closing takes. A child of a fork makes
//!   slots of its own, and neither locks nor drops those of its parent.
//! - A path that leads to another folder than at its opening leads to another database.
//! - A database in memory is in no slot.
//!
//! Rejected: closing with the last clone of the engine. Who comes in the meantime would find the file locked.

use crate::error::{OrRaise, raise};
use crate::interpreter::Held;
use crate::process::{Home, ProcessLocal, initialise_and_open};
use pyo3::prelude::*;
use std::fmt::Debug;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use thalweg::{Database, DatabaseBuilder, Durability, Error, ErrorKind, MaintenanceMode, Result};
use thalweg_env::sync::Mutex;
use thalweg_table::engine::EngineOptions;

/// How a database is opened; what was not given has its default.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) read_only: bool,
    pub(crate) durability: Durability,
    pub(crate) cache_bytes: u64,
    pub(crate) threads: usize,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) sync_interval: Duration,
    pub(crate) max_snapshot_age: Duration,
    pub(crate) maintenance: MaintenanceMode,
}

impl Default for Options {
    fn default() -> Self {
        let engine = EngineOptions::default();
        Self {
            read_only: engine.read_only,
            durability: engine.durability,
            cache_bytes: engine.cache_bytes,
            threads: engine.threads,
            memory_limit: engine.memory_limit_bytes,
            sync_interval: engine.sync_interval,
            max_snapshot_age: engine.max_snapshot_age,
            maintenance: engine.maintenance,
        }
    }
}

impl Options {
    fn builder(&self) -> DatabaseBuilder {
        let builder = Database::builder()
            .read_only(self.read_only)
            .must_exist(self.read_only)
            .durability(self.durability)
            .cache_bytes(self.cache_bytes)
            .threads(self.threads)
            .sync_interval(self.sync_interval)
            .max_snapshot_age(self.max_snapshot_age)
            .maintenance(self.maintenance);
        match self.memory_limit {
            Some(bytes) => builder.memory_limit_bytes(bytes),
            None => builder,
        }
    }

    /// Fails unless both are the same.
    fn check_same(&self, open: &Self, path: &Path) -> Result<()> {
        let differs = |name: &'static str, open: &dyn Debug, asked: &dyn Debug| {
            let shown = |value| format!("{value:?}").to_lowercase().replace('"', "");
            let (open, asked) = (shown(open), shown(asked));
            (open != asked).then_some((name, open, asked))
        };
        let limit = |limit: Option<u64>| limit.map_or("none".to_owned(), |bytes| bytes.to_string());
        let (open_limit, limit) = (limit(open.memory_limit), limit(self.memory_limit));
        let threads = |threads: usize| match threads {
            0 => "one per core".to_owned(),
            threads => threads.to_string(),
        };
        let (open_threads, threads) = (threads(open.threads), threads(self.threads));
        let differing = [
            differs("durability", &open.durability, &self.durability),
            differs("cache_bytes", &open.cache_bytes, &self.cache_bytes),
            differs("threads", &open_threads, &threads),
            differs("memory_limit", &open_limit, &limit),
            differs("sync_interval", &open.sync_interval, &self.sync_interval),
            differs(
                "max_snapshot_age",
                &open.max_snapshot_age,
                &self.max_snapshot_age,
            ),
            differs("maintenance", &open.maintenance, &self.maintenance),
        ];
        let Some((name, open, asked)) = differing.into_iter().flatten().next() else {
            return Ok(());
        };
        let message = format!(
            "{} is open in this process with {name} {open}, not {asked}: connect with the same options to share it, \
             or close it first",
            path.display()
        );
        Err(Error::new(ErrorKind::Locked, message))
    }
}

/// The key that identifies a database in one process.
#[derive(Clone, Debug, PartialEq)]
struct Key {
    /// Without symbolic links.
    path: PathBuf,
    /// Any number of readers may be open, each with options of its own, beside one writer.
    reader: Option<Options>,
}

/// Where connections to one database meet; locked while one opens or closes it.
type Slot = Arc<Mutex<Option<Arc<Shared>>>>;

struct Entry {
    home: Home,
    key: Key,
    slot: Slot,
}

static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// The slot of a key; called with the interpreter held.
fn slot_of(_py: Python<'_>, key: Key) -> Slot {
    let mut entries = ENTRIES.lock();
    // An open database has its slot too.
    entries.retain(|entry| !entry.home.is_here() || Arc::strong_count(&entry.slot) > 1);
    let known = entries
        .iter()
        .find(|entry| entry.home.is_here() && entry.key == key);
    if let Some(entry) = known {
        return Arc::clone(&entry.slot);
    }
    let slot = Slot::default();
    entries.push(Entry {
        home: Home::here(),
        key,
        slot: Arc::clone(&slot),
    });
    slot
}

/// An open database.
struct Shared {
    db: Database,
    options: Options,
    /// `None` for one in memory.
    slot: Option<Slot>,
    folder: Option<Folder>,
    /// Handles that were not closed.
    users: AtomicUsize,
}

/// A folder, whatever its name: device and number.
type Folder = (u64, u64);

fn folder_at(path: &Path) -> Option<Folder> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment does not tell folders apart, and a moved one is nothing to simulate here"
    )]
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

impl Shared {
    fn open(path: &Path, options: &Options, slot: Option<Slot>) -> Result<Arc<Self>> {
        let db = options.builder().open(path)?;
        Ok(Arc::new(Self {
            db,
            options: options.clone(),
            folder: folder_at(path),
            slot,
            users: AtomicUsize::new(1),
        }))
    }

    /// The database of a slot, opened unless it is open.
    fn join(path: &Path, options: &Options, slot: &Slot) -> Result<Arc<Self>> {
        let mut current = slot.lock();
        if let Some(open) = &*current
            && open.folder == folder_at(path)
        {
            // Nobody's, but not closed yet.
            let is_left = open.users.load(Ordering::Acquire) == 0;
            match options.check_same(&open.options, path) {
                Ok(()) => {
                    open.users.fetch_add(1, Ordering::AcqRel);
                    return Ok(Arc::clone(open));
                }
                Err(locked) if !is_left => return Err(locked),
                Err(_) => open.db.close()?,
            }
        }
        let opened = Self::open(path, options, Some(Arc::clone(slot)))?;
        *current = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Takes one user away, and closes the database after the last one.
    fn leave(self: &Arc<Self>) -> Result<()> {
        if self.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return match self.options.read_only {
                true => Ok(()),
                false => self.db.flush(),
            };
        }
        let Some(slot) = &self.slot else {
            return self.db.close();
        };
        let mut current = slot.lock();
        if self.users.load(Ordering::Acquire) > 0 {
            return self.db.flush();
        }
        if current.as_ref().is_some_and(|open| Arc::ptr_eq(open, self)) {
            *current = None;
        }
        self.db.close()
    }
}

/// A connection to an open database, which its tables and results share.
pub(crate) struct Handle {
    connection: ProcessLocal<Connection>,
    closed: Arc<AtomicBool>,
}

/// A use of an open database.
struct Connection {
    shared: Arc<Shared>,
    /// The database with the transaction of this connection.
    db: Database,
    /// It keeps the database open.
    is_user: bool,
}

impl Connection {
    fn new(shared: Arc<Shared>, is_user: bool) -> Self {
        let db = shared.db.connection();
        Self {
            shared,
            db,
            is_user,
        }
    }

    fn roll_back(&self) {
        if self.db.is_in_transaction() {
            // One that was begun too long ago is over already.
            let _ = self.db.sql("ROLLBACK");
        }
    }
}

impl Handle {
    /// Connects to the database at `path`. `name` is the same for all paths that lead there; `None` for a database in memory.
    ///
    /// # Errors
    /// `Locked` when this process has it open with other options; what opening it leads to; when the engine cannot work in
    /// this process.
    pub(crate) fn connect(
        py: Python<'_>,
        path: &Path,
        name: Option<PathBuf>,
        options: &Options,
    ) -> PyResult<Arc<Self>> {
        let (path, options) = (path.to_owned(), options.clone());
        let slot = name.map(|name| {
            let reader = options.read_only.then(|| options.clone());
            slot_of(py, Key { path: name, reader })
        });
        let open = move || match slot {
            None => Shared::open(&path, &options, None),
            Some(slot) => Shared::join(&path, &options, &slot),
        };
        let (shared, made) = initialise_and_open(py, open);
        let handle = Self {
            connection: ProcessLocal::new(Connection::new(shared.or_raise()?, true)),
            closed: Arc::default(),
        };
        // Where it failed, dropping the handle closes the database.
        made.map(|()| Arc::new(handle))
    }

    /// The database, unless this connection was closed, or made before a fork.
    #[inline]
    pub(crate) fn open(&self) -> PyResult<&Database> {
        let connection = self.connection.get()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(raise(ErrorKind::Unavailable, "the database is closed"));
        }
        Ok(&connection.db)
    }

    /// Another connection to the same database, which ends with this one.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn again(&self) -> PyResult<Self> {
        self.open()?;
        let shared = Arc::clone(&self.connection.get()?.shared);
        Ok(Self {
            connection: ProcessLocal::new(Connection::new(shared, false)),
            closed: Arc::clone(&self.closed),
        })
    }

    /// Closes this connection, and with the last one the database. A second call does nothing, nor does one in a child of a
    /// fork.
    ///
    /// # Errors
    /// When what is left cannot be written.
    pub(crate) fn close(&self) -> Result<()> {
        match self.connection.get() {
            // Its transactions end with their handles: the one that it was made from goes on.
            Ok(connection) if !connection.is_user => {
                connection.roll_back();
                Ok(())
            }
            Ok(connection) if !self.closed.swap(true, Ordering::AcqRel) => {
                connection.roll_back();
                connection.shared.leave()
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // There is nobody to report an error to. It may take long, and whoever drops the last reference mostly holds the
        // interpreter.
        match Held::begin() {
            Ok(_held) => Python::attach(|py| py.detach(|| _ = self.close())),
            Err(_) => _ = self.close(),
        }
    }
}
