//! The shape of a test database: where it lies and how it is opened.
//!
//! Invariant: databases of one shape are opened alike, by whichever process.

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
    /// Open rows that make a block.
    pub block_rows: u32,
    /// Most entries of an index page, where the test binary can choose it.
    pub page_entries: usize,
    /// Options of every opening.
    pub options: Options,
}

impl Shape {
    /// Everything in the calling thread, small segments.
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

    /// Opens it for reading.
    pub fn open_read_only(&self, env: &Env) -> Result<Toy> {
        hooks::limit_page_entries(self.page_entries);
        let options = Options {
            read_only: true,
            ..self.options.clone()
        };
        Toy::open(env, DIR, &options, self.block_rows)
    }
}
