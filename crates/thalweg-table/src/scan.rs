//! Scans: requests, the batches that come back, and counters of the work. The same for every layout.

mod index_walk;
pub(crate) mod merge;
pub(crate) mod plan;
pub(crate) mod sweep;
pub(crate) mod task;

use crate::closed::Closed;
use crate::definition::TableDefinition;
use crate::range::{ColumnRange, KeyRange};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_kernel::{Error, ErrorKind, Result};

/// Rows of a batch that a scan returns, unless the request sets another size.
pub const DEFAULT_BATCH_ROWS: usize = 16_384;

/// Which rows and columns a scan returns.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// Places of the wanted columns in the schema, in the wanted order; `None` means all. None at all is fine: the
    /// batches then only count rows.
    pub projection: Option<Vec<usize>>,
    /// Exactly the rows with these order keys are returned.
    pub keys: KeyRange,
    /// Blocks that have no row in one of these ranges are left out; see [`ColumnRange`].
    pub ranges: Vec<ColumnRange>,
    /// At most so many rows.
    pub limit: Option<usize>,
    /// About so many rows in a batch, at most; 0 means [`DEFAULT_BATCH_ROWS`].
    pub batch_rows: usize,
    /// Every NaN has the bits of `f64::NAN` or `f32::NAN`, whatever was stored, for readers that compare floats by their bits.
    pub one_nan: bool,
    /// Threads that decode; 0 means as many as the engine was opened with. 1 decodes in the calling thread alone.
    pub threads: usize,
}

impl Default for ScanRequest {
    fn default() -> Self {
        Self {
            projection: None,
            keys: KeyRange::ALL,
            ranges: Vec::new(),
            limit: None,
            batch_rows: 0,
            one_nan: false,
            threads: 0,
        }
    }
}

/// The batches of a scan, in key order; rows of equal keys in order of arrival. It holds its snapshot, works only as far
/// as it is asked to (plus what it decodes ahead), and returns no more after an error.
pub struct Scan {
    schema: SchemaRef,
    metrics: Arc<ScanMetrics>,
    batches: Box<dyn BatchSource>,
    /// Of a batch that is larger than asked for: what was not handed out yet.
    rest: Option<RecordBatch>,
    batch_rows: usize,
    left_rows: usize,
    closed: Closed,
    table: NamedTable,
}

/// A table with its names, for errors of the kernel, which knows numbers alone.
#[derive(Clone, Debug)]
pub(crate) struct NamedTable {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) definition: Arc<TableDefinition>,
}

impl NamedTable {
    /// The error with names in the place of numbers.
    pub(crate) fn in_words(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Corruption {
            return error;
        }
        let number = format!(" of table {}", self.id);
        let Some((before, after)) = error.message().split_once(&number) else {
            return error;
        };
        if after.starts_with(|c: char| c.is_ascii_digit()) {
            return error;
        }
        let before = self.definition.with_column_names(before);
        let message = format!("{before} of table \"{}\"{after}", self.name);
        Error::with_source(error.kind(), message, error)
    }
}

/// A source of the batches of a [`Scan`].
pub(crate) trait BatchSource: Send {
    /// The next batch with at least one row.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>>;
}

impl Scan {
    pub(crate) fn new(
        schema: SchemaRef,
        metrics: Arc<ScanMetrics>,
        limit: Option<usize>,
        batch_rows: usize,
        batches: Box<dyn BatchSource>,
        closed: Closed,
        table: NamedTable,
    ) -> Self {
        let left_rows = limit.unwrap_or(usize::MAX);
        Self {
            schema,
            metrics,
            batches,
            rest: None,
            batch_rows,
            left_rows,
            closed,
            table,
        }
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Counters of the work so far; they go on counting.
    pub fn metrics(&self) -> &Arc<ScanMetrics> {
        &self.metrics
    }
}

impl Iterator for Scan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left_rows == 0 {
            return None;
        }
        // Rows in memory as well: what a closed database answers must not depend on where its rows happen to be.
        let next = self.closed.check().and_then(|()| match self.rest.take() {
            Some(rest) => Ok(Some(rest)),
            None => self.batches.next_batch(),
        });
        match next {
            Ok(Some(batch)) => {
                let rows = batch.num_rows().min(self.batch_rows);
                if rows < batch.num_rows() {
                    self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
                }
                let rows = rows.min(self.left_rows);
                self.left_rows -= rows;
                Some(Ok(batch.slice(0, rows)))
            }
            end => {
                self.left_rows = 0;
                let end = end.map_err(|error| self.table.in_words(error));
                end.transpose()
            }
        }
    }
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The work of a scan or an aggregate, counted while it runs.
        #[derive(Debug, Default)]
        pub struct ScanMetrics { $($name: AtomicU64,)* }

        impl ScanMetrics {
            $($(#[$doc])* pub fn $name(&self) -> u64 { self.$name.load(Ordering::Relaxed) })*

            /// All counters by name, in a fixed order.
            pub fn counters(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name()),)*]
            }
        }

        /// The names of the counters of [`ScanMetrics`].
        #[expect(non_camel_case_types, reason = "named like the counters")]
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Counter { $($name,)* }

        impl ScanMetrics {
            pub(crate) fn add(&self, counter: Counter, amount: u64) {
                let counter = match counter { $(Counter::$name => &self.$name,)* };
                counter.fetch_add(amount, Ordering::Relaxed);
            }
        }
    };
}

metrics! {
    /// Blocks of the table.
    blocks_total,
    /// Blocks outside the key range.
    blocks_pruned_by_time,
    /// Blocks whose summaries have no wanted value.
    blocks_pruned_by_summary,
    /// Blocks whose answer came from the index.
    blocks_from_summary,
    /// Blocks that were read, in part or whole.
    blocks_read,
    /// Bytes of blocks that were read.
    bytes_read,
    /// Rows that were decoded.
    rows_decoded,
    /// Rows of no block yet that were looked at.
    open_rows,
    /// Pages of the index that had to be loaded.
    pages_loaded,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::Layouts;
    use crate::options::CreateOptions;
    use arrow_schema::{DataType, Field, Schema};

    #[test]
    fn damage_is_told_with_the_name_of_the_table() {
        let schema = Schema::new(vec![
            Field::new("ts", DataType::Int64, false),
            Field::new("temp", DataType::Float64, true),
        ]);
        let definition =
            TableDefinition::create(&Layouts::default(), &schema, &CreateOptions::stream("ts"))
                .unwrap();
        let table = NamedTable {
            id: 1,
            name: "air".to_owned(),
            definition: Arc::new(definition),
        };
        for (kind, message, shown) in [
            (
                ErrorKind::Corruption,
                "f, offset 8: column 2 (values) of a block of table 1 is damaged",
                "f, offset 8: column \"temp\" (values) of a block of table \"air\" is damaged",
            ),
            (
                ErrorKind::Corruption,
                "the index of table 12 is damaged",
                "the index of table 12 is damaged",
            ),
            (ErrorKind::Invalid, "of table 1", "of table 1"),
        ] {
            let error = table.in_words(Error::new(kind, message));
            assert_eq!((error.kind(), error.message()), (kind, shown));
        }
    }
}
