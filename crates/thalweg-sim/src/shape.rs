//! The shape of a test database: where it lies and how it is opened.
//!
//! Invariant: every process opens databases of one shape in the same way.

use crate::hooks;
use crate::toy::Toy;
use thalweg_env::Env;
use thalweg_kernel::index::MAX_PAGE_ENTRIES;
use thalweg_kernel::{Options, Result};

/// Where all test databases lie.
pub const DIR: &str = "/db";

/// The shape of a test database.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Number of open rows that become a block.
    pub block_rows: u32,
    /// Most entries of an index page, where the test binary can choose it.
    pub page_entries: usize,
    /// Options of every opening.
    pub options: Options,
}

impl Shape {
    /// A shape for which all work is done in the calling thread, with segments of this size.
    pub fn new(segment_bytes: u64, block_rows: u32) -> Self {
        let options = Options {
            segment_bytes,
            background: false,
            cache_bytes: 1 << 20,
            ..Options::default()
        };
        Self {
            block_rows,
            page_entries: MAX_PAGE_ENTRIES,
            options,
        }
    }

    /// Opens the database of an environment for writing.
    pub fn open(&self, env: &Env) -> Result<Toy> {
        hooks::limit_page_entries(self.page_entries);
        Toy::open(env, DIR, &self.options, self.block_rows)
    }

    /// Opens the database for reading.
    pub fn open_read_only(&self, env: &Env) -> Result<Toy> {
        hooks::limit_page_entries(self.page_entries);
        let options = Options {
            read_only: true,
            ..self.options.clone()
        };
        Toy::open(env, DIR, &options, self.block_rows)
    }
}
