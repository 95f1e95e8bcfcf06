//! An open database: the catalog over the kernel's tables.
//!
//! Invariants: a definition is parsed once per table and version; names are compared without regard to case and keep
//! the case they were created with; a [`DatabaseView`] is one snapshot of all tables.

use crate::table::{Table, TableView};
use crate::{CreateOptions, TableDefinition};
use arrow_schema::Schema;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::Env;
use thalweg_kernel::{Error, ErrorKind, Result};


/// How a database is opened.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Never write; needs an existing database.
    pub read_only: bool,
    /// Fail when there is no database yet.
    pub must_exist: bool,
    /// What appends survive when they return, unless they say otherwise.
    pub durability: Durability,
    /// Memory for cached index pages and block heads.
    pub cache_bytes: u64,
    /// Threads that encode and decode; 0 means one per core.
    pub threads: usize,
    /// `Process` commits reach stable storage within this time.
    pub sync_interval: Duration,
    /// What queries may take together; enforced by the layer that runs them.
    pub memory_limit_bytes: Option<u64>,
    /// Full size of a log segment.
    pub segment_bytes: u64,
    /// Encode, checkpoint and maintain on threads of their own. Off in simulations: everything then happens in the
    /// calling thread, in a fixed order.
    pub background: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            must_exist: false,
            durability: Durability::Disk,
            cache_bytes: 256 << 20,
            threads: 0,
            sync_interval: Duration::from_millis(200),
            memory_limit_bytes: None,
            segment_bytes: 64 << 20,
            background: true,
        }
    }
}

/// When an append returns, named by what it survives then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Visible in this process; lost at a kill up to the last `flush`.
    Memory,
    /// The operating system has it: survives a kill. Synced within `sync_interval`.
    Process,
    /// On stable storage: survives a power cut.
    #[default]
    Disk,
}

/// An open database. Clones share it; the last one to go closes it.
#[derive(Clone, Debug)]
pub struct Engine {
    options: Arc<EngineOptions>,
}

/// All tables at one moment. Holding it keeps its files.
#[derive(Clone, Debug)]
pub struct DatabaseView {
    engine: Engine,
}

fn pending<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "the kernel is not there yet"))
}

impl Engine {
    /// Opens the database in the directory `path`, making it if it is missing and the options allow.
    ///
    /// # Errors
    /// `NotFound` when it must exist and does not, `Locked` when another process writes to it, `Corruption` when its
    /// files are damaged.
    pub fn open(_env: Env, _path: &Path, _options: EngineOptions) -> Result<Self> {
        pending()
    }

    /// A database of its own in memory, gone with the last clone.
    ///
    /// # Errors
    /// When the options ask for what memory cannot give: `read_only`, `must_exist`.
    pub fn in_memory(_options: EngineOptions) -> Result<Self> {
        pending()
    }

    /// Makes a table.
    ///
    /// # Errors
    /// `AlreadyExists` when there is a table of that name in any case; `Schema`, `Invalid` and `Unsupported` when the
    /// columns or options cannot be.
    pub fn create_table(&self, _name: &str, _schema: &Schema, _options: &CreateOptions) -> Result<Table> {
        pending()
    }

    /// The table of that name, in any case.
    ///
    /// # Errors
    /// `NotFound`, listing what there is.
    pub fn table(&self, _name: &str) -> Result<Table> {
        pending()
    }

    /// The names of all tables, in order.
    ///
    /// # Errors
    /// When a reader process cannot see the newest commit.
    pub fn table_names(&self) -> Result<Vec<String>> {
        pending()
    }

    /// Removes a table and its rows. Views taken before go on seeing it.
    ///
    /// # Errors
    /// `NotFound`, listing what there is.
    pub fn drop_table(&self, _name: &str) -> Result<()> {
        pending()
    }

    /// One view of all tables: every commit acknowledged before the call, nothing later.
    ///
    /// # Errors
    /// When a reader process cannot see the newest commit.
    pub fn snapshot(&self) -> Result<DatabaseView> {
        pending()
    }

    /// Returns when everything appended so far is on stable storage.
    ///
    /// # Errors
    /// When it cannot get there.
    pub fn flush(&self) -> Result<()> {
        pending()
    }

    /// Writes what a later open would have to work out.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn checkpoint(&self) -> Result<()> {
        pending()
    }

    /// Flushes, checkpoints and lets go of the files. Everything but views fails from then on; a second call is fine.
    ///
    /// # Errors
    /// When the rest cannot be written.
    pub fn close(&self) -> Result<()> {
        pending()
    }

    /// How it was opened, with defaults filled in.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }
}

impl DatabaseView {
    /// The table of that name, in any case.
    ///
    /// # Errors
    /// `NotFound`, listing what there is.
    pub fn table(&self, _name: &str) -> Result<TableView> {
        pending()
    }

    /// The names of all tables, in order.
    pub fn table_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// The number of the last commit in it.
    pub fn commit(&self) -> u64 {
        0
    }
}
