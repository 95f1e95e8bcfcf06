//! How queries are run.

use thalweg_table::Engine;

/// Rows of the batches that flow through a query.
pub(crate) const DEFAULT_BATCH_ROWS: usize = 8_192;

/// How queries of one connection are run.
#[derive(Clone, Debug, Default)]
pub struct QueryOptions {
    /// Threads that work on queries; 0 means as many as the engine was opened with.
    pub threads: usize,
    /// Memory that sorts, joins and groups of all queries may take together; beyond it they spill to temporary files
    /// where they can. `None` takes the limit of the engine, which may be none.
    pub memory_limit_bytes: Option<u64>,
    /// Rows of the batches that flow through a query; 0 means 8,192.
    pub batch_rows: usize,
}

impl QueryOptions {
    /// The options with every default filled in.
    pub(crate) fn resolve(&self, engine: &Engine) -> Self {
        let from_engine = engine.options();
        let threads = [self.threads, from_engine.threads]
            .into_iter()
            .find(|&threads| threads > 0);
        Self {
            threads: threads.unwrap_or_else(|| {
                std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
            }),
            memory_limit_bytes: self.memory_limit_bytes.or(from_engine.memory_limit_bytes),
            batch_rows: if self.batch_rows > 0 {
                self.batch_rows
            } else {
                DEFAULT_BATCH_ROWS
            },
        }
    }
}
