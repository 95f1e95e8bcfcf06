//! The rows of one stored table with their places, as DataFusion sees them: what statements pick from that change rows.
//!
//! Invariants: it is a stored table with one column more, the last, which no name in a statement can mean; conditions only prune pieces,
//! and are evaluated again above; what was scanned is noted in the session, so that places lead back to rows.

use crate::error::to_datafusion;
use crate::table::{StatementTables, StoredTable};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use thalweg_table::{PlacedReader, PlacedRows, with_places};

/// Before the name of a table: the table with the places of its rows. Names of tables have no such character, and [`PLACED`] is in no
/// text of a user.
pub(crate) const PLACED: char = '\0';

/// The column of the places. Names of tables and columns have no such character.
pub(crate) const PLACE_COLUMN: &str = "\0place";

/// So few pieces are read sooner than other threads are woken up.
const FEW_PIECES: usize = 8;

/// A stored table with the places of its rows.
#[derive(Debug)]
pub(crate) struct PlacedTable {
    stored: StoredTable,
    schema: SchemaRef,
}

impl PlacedTable {
    pub(crate) fn new(stored: StoredTable) -> Self {
        let mut fields = stored.definition().schema().fields().to_vec();
        fields.push(Arc::new(Field::new(PLACE_COLUMN, DataType::UInt64, false)));
        Self {
            stored,
            schema: Arc::new(Schema::new(fields)),
        }
    }
}

#[async_trait]
impl TableProvider for PlacedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let pushdown = |filter: &&Expr| match self.stored.pushdown(filter) {
            TableProviderFilterPushDown::Unsupported => TableProviderFilterPushDown::Unsupported,
            _ => TableProviderFilterPushDown::Inexact,
        };
        Ok(filters.iter().map(pushdown).collect())
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let tables = StatementTables::of(session)?;
        let mut request = self.stored.request(filters)?;
        let place = self.schema.fields().len() - 1;
        let all = (0..=place).collect();
        let wanted = projection.unwrap_or(&all);
        let columns: Vec<usize> = wanted.iter().copied().filter(|at| *at < place).collect();
        let mut fields: Vec<_> = columns
            .iter()
            .map(|at| self.schema.field(*at).clone())
            .collect();
        fields.push(self.schema.field(place).clone());
        let schema = Arc::new(Schema::new(fields));
        // The places come last, whatever was wanted.
        let mut before = 0..;
        let output = wanted.iter().map(|at| match *at == place {
            true => Some(columns.len()),
            false => before.next(),
        });
        let output: Vec<usize> = output.flatten().collect();
        request.projection = Some(columns);
        request.one_nan = tables.compares_floats;
        let view = tables.view_of(&self.stored)?;
        let rows = PlacedRows::new(&view, &request).map_err(to_datafusion)?;
        let rows = Arc::new(rows);
        if tables.placed.lock().replace(Arc::clone(&rows)).is_some() {
            return internal_err!("rows with places are scanned once");
        }
        let threads = match rows.pieces() {
            ..FEW_PIECES => 1,
            _ => tables.threads,
        };
        let partitions = cut(rows.pieces(), threads).map(|pieces| {
            let partition = Pieces {
                schema: Arc::clone(&schema),
                rows: Arc::clone(&rows),
                pieces,
            };
            Arc::new(partition) as Arc<dyn PartitionStream>
        });
        let scan = StreamingTableExec::try_new(
            Arc::clone(&schema),
            partitions.collect(),
            Some(&output),
            [],
            false,
            None,
        );
        Ok(Arc::new(scan?))
    }
}

/// Whether a scan is one of rows with places.
pub(crate) fn is_of_placed_rows(scan: &StreamingTableExec) -> bool {
    let schema = scan.partition_schema();
    schema
        .fields()
        .last()
        .is_some_and(|last| last.name() == PLACE_COLUMN)
}

/// Up to `count` ranges of pieces that follow each other.
fn cut(pieces: usize, count: usize) -> impl Iterator<Item = Range<usize>> {
    let count = count.clamp(1, pieces.max(1));
    let start = move |part: usize| pieces * part / count;
    (0..count).map(move |part| start(part)..start(part + 1))
}

struct Pieces {
    schema: SchemaRef,
    rows: Arc<PlacedRows>,
    pieces: Range<usize>,
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces")
            .field("pieces", &self.pieces)
            .finish_non_exhaustive()
    }
}

/// Reads a piece with the reader of its partition, which the first one makes.
fn read(
    rows: &Arc<PlacedRows>,
    reader: &mut Option<PlacedReader>,
    schema: &SchemaRef,
    piece: usize,
) -> thalweg_table::Result<Vec<RecordBatch>> {
    let reader = match reader {
        Some(reader) => reader,
        none => none.insert(rows.reader()?),
    };
    let placed = reader.read(piece)?.into_iter();
    placed.map(|rows| with_places(schema, rows)).collect()
}

impl PartitionStream for Pieces {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (rows, schema) = (Arc::clone(&self.rows), Arc::clone(&self.schema));
        let mut reader = None;
        let batches = self.pieces.clone().flat_map(move |piece| {
            let (read, error) = match read(&rows, &mut reader, &schema, piece) {
                Ok(batches) => (batches, None),
                Err(error) => (Vec::new(), Some(Err(to_datafusion(error)))),
            };
            read.into_iter().map(Ok).chain(error)
        });
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            futures::stream::iter(batches),
        ))
    }
}
