//! Opening a database.
//!
//! Invariants: options that make no sense are refused before a file is touched; tables that a killed process was filling are
//! gone once the database is open for writing.

use crate::closed::Closed;
use crate::definitions::Definitions;
use crate::engine::{Engine, EngineOptions};
use crate::error::invalid;
use crate::pool::Pool;
use crate::row_encoder::OpenRowEncoder;
use crate::unlisted;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::Env;
use thalweg_kernel::{Durability, Error, ErrorKind, Kernel, Options, Result};

/// More threads than this only take memory.
const MAX_THREADS: usize = 1_024;

/// Largest log segment of a database in memory. Its log is memory as well: about three segments are kept beside the rows,
/// the one that is written and those whose rows are moving into blocks elsewhere. Smaller ones are cleaned more often, and
/// each time the index is walked.
const IN_MEMORY_SEGMENT_BYTES: u64 = 8 << 20;
/// A database in memory has nothing to sync, and its thread sleeps.
const IN_MEMORY_SYNC_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

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
        let definitions = Arc::new(Definitions::new(options.layouts.clone()));
        // The thread that asks for rows or blocks works as well.
        let helpers = if options.background {
            options.threads - 1
        } else {
            0
        };
        let pool = Arc::new(Pool::new(env.clone(), helpers));
        let closed = Closed::new(env.owner());
        let encoder = Arc::new(OpenRowEncoder::new(Arc::clone(&definitions)));
        let kernel = Kernel::open(env.clone(), path, &kernel_options(&options), encoder)?;
        let is_writer = kernel.is_writer();
        let engine = Self::new(kernel, options, definitions, pool, closed);
        if is_writer {
            drop_left_over(&engine);
        }
        Ok(engine.with_jobs(&env))
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
}

/// Drops the tables that a process was filling when it ended.
fn drop_left_over(engine: &Engine) {
    let Ok(snapshot) = engine.newest() else {
        return;
    };
    for name in unlisted::names() {
        if let Some(table) = snapshot.table_named(&name) {
            // A full disk, say: nobody sees the table, and the next opening tries again.
            let _ = engine.drop_numbered(table.id, &table.name);
        }
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
        given if given > MAX_THREADS => {
            let message = format!("threads is {given}: at most {MAX_THREADS}");
            Err(Error::new(ErrorKind::Invalid, message))
        }
        given => Ok(given.max(1)),
    }
}
