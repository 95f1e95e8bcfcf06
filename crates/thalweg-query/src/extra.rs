//! Tables that a caller hands to one statement: data frames, Arrow tables, readers.
//!
//! Invariants: nothing is copied; a reader is read once, and a second read is an error, not an empty table.

use crate::error::{from_arrow, query, to_datafusion};
use crate::threads::call_program;
use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::datasource::MemTable;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use std::fmt;
use std::sync::Arc;
use thalweg_env::sync::Mutex;
use thalweg_table::Result;

type Reader = Box<dyn RecordBatchReader + Send>;

/// A table for one statement.
#[derive(Clone, Debug)]
pub struct ExtraTable(Source);

#[derive(Clone, Debug)]
enum Source {
    Batches(SchemaRef, Vec<RecordBatch>),
    Reader(Arc<OnceReader>),
}

impl ExtraTable {
    /// Rows in memory.
    pub fn batches(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self(Source::Batches(schema, batches))
    }

    /// Rows that can be read once.
    pub fn reader(reader: Reader) -> Self {
        let schema = reader.schema();
        Self(Source::Reader(Arc::new(OnceReader {
            schema,
            reader: Mutex::new(Some(reader)),
        })))
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        match &self.0 {
            Source::Batches(schema, _) => schema,
            Source::Reader(reader) => &reader.schema,
        }
    }

    pub(crate) fn provider(&self, name: &str) -> Result<Arc<dyn TableProvider>> {
        let failed =
            |error: datafusion::error::DataFusionError| query(format!("table \"{name}\": {error}"));
        Ok(match &self.0 {
            Source::Batches(schema, batches) => Arc::new(
                MemTable::try_new(Arc::clone(schema), vec![batches.clone()]).map_err(failed)?,
            ),
            Source::Reader(reader) => {
                let partition: Arc<dyn PartitionStream> = Arc::clone(reader) as _;
                Arc::new(
                    StreamingTable::try_new(Arc::clone(&reader.schema), vec![partition])
                        .map_err(failed)?,
                )
            }
        })
    }
}

struct OnceReader {
    schema: SchemaRef,
    reader: Mutex<Option<Reader>>,
}

impl fmt::Debug for OnceReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceReader")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl PartitionStream for OnceReader {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let taken = self.reader.lock().take();
        let batches: Box<dyn Iterator<Item = Result<RecordBatch>> + Send> = match taken {
            Some(mut reader) => {
                let next = move || call_program(|| reader.next());
                Box::new(std::iter::from_fn(next).map(|batch| batch.map_err(from_arrow)))
            }
            None => Box::new(std::iter::once(Err(query(
                "a reader can be read once; the statement names it twice: collect it into a table first",
            )))),
        };
        let stream = futures::stream::iter(batches.map(|batch| batch.map_err(to_datafusion)));
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            stream,
        ))
    }
}
