//! Tables that a caller hands to one statement: data frames, Arrow tables, readers.
//!
//! Invariants: nothing is copied but values that a table of distinct ones stands for, as categories of pandas: functions take
//! values themselves only; and floats with NaN among them. A reader is read once, and a second read is an error, not an empty table.

use crate::error::{cancelled, from_arrow, query, to_datafusion};
use crate::threads::call_program;
use arrow::array::{RecordBatch, RecordBatchOptions, RecordBatchReader};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::catalog::TableProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::datasource::MemTable;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use std::fmt;
use std::sync::Arc;
use thalweg_env::sync::Mutex;
use thalweg_table::{Result, with_one_nan};

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
            schema: with_values(&schema),
            read_schema: schema,
            reader: Mutex::new(Some(reader)),
        })))
    }

    /// The same rows in memory, where they could be read once.
    pub(crate) fn read(&self, go_on: &dyn Fn() -> bool) -> Result<Self> {
        let Source::Reader(once) = &self.0 else {
            return Ok(self.clone());
        };
        let Some(mut reader) = once.reader.lock().take() else {
            return Ok(self.clone());
        };
        let mut batches = Vec::new();
        while let Some(batch) = call_program(|| reader.next()) {
            if !go_on() {
                return Err(cancelled());
            }
            batches.push(batch.map_err(from_arrow)?);
        }
        Ok(Self::batches(Arc::clone(&once.read_schema), batches))
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        match &self.0 {
            Source::Batches(schema, _) => schema,
            Source::Reader(reader) => &reader.read_schema,
        }
    }

    pub(crate) fn provider(&self, name: &str) -> Result<Arc<dyn TableProvider>> {
        let failed =
            |error: datafusion::error::DataFusionError| query(format!("table \"{name}\": {error}"));
        Ok(match &self.0 {
            Source::Batches(schema, batches) => {
                let plain = with_values(schema);
                let batches = batches.iter().map(|batch| of_values(batch, &plain));
                let batches = batches.collect::<std::result::Result<_, _>>();
                let batches = batches.map_err(from_arrow)?;
                Arc::new(MemTable::try_new(plain, vec![batches]).map_err(failed)?)
            }
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

/// The schema with the types of the values that dictionaries and runs stand for.
fn with_values(schema: &SchemaRef) -> SchemaRef {
    let has_any = schema
        .fields()
        .iter()
        .any(|field| value_type(field.data_type()).is_some());
    if !has_any {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().map(|field| {
        let values = value_type(field.data_type());
        let data_type = values.unwrap_or_else(|| field.data_type());
        Arc::new(Field::clone(field).with_data_type(data_type.clone()))
    });
    Arc::new(Schema::new_with_metadata(
        fields.collect::<Vec<FieldRef>>(),
        schema.metadata().clone(),
    ))
}

fn value_type(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::Dictionary(_, values) => Some(values),
        DataType::RunEndEncoded(_, values) => Some(values.data_type()),
        _ => None,
    }
}

fn of_values(
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> std::result::Result<RecordBatch, ArrowError> {
    if batch.schema_ref() == schema {
        return Ok(with_one_nan(batch.clone()));
    }
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| match value_type(column.data_type()) {
        Some(_) => cast(column, field.data_type()),
        None => Ok(Arc::clone(column)),
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<std::result::Result<_, _>>()?;
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map(with_one_nan)
}

struct OnceReader {
    /// The schema as it is read; `schema` is the one that is shown.
    read_schema: SchemaRef,
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
                let plain = Arc::clone(&self.schema);
                let batches = std::iter::from_fn(next);
                let batches =
                    batches.map(move |batch| batch.and_then(|batch| of_values(&batch, &plain)));
                Box::new(batches.map(|batch| batch.map_err(from_arrow)))
            }
            None => Box::new(std::iter::once(Err(query(
                "a reader can be read once, and the statement reads it again, because it names it twice or had to begin anew: collect it into a table first",
            )))),
        };
        let stream = futures::stream::iter(batches.map(|batch| batch.map_err(to_datafusion)));
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            stream,
        ))
    }
}
