//! The operator that reads rows of a stored table with their places.
//!
//! Invariants: a partition is pieces that follow each other, read one after the other in the thread that pulls them; nothing is read
//! before the first poll; the number of rows is known, so that a join takes its smaller side for the table of hashes.

use crate::error::to_datafusion;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use thalweg_table::{PlacedReader, PlacedRows, with_places};

/// So few pieces are read sooner than other threads are woken up.
const FEW_PIECES: usize = 8;

/// Reads rows with their places.
pub(crate) struct PlacedScanExec {
    rows: Arc<PlacedRows>,
    /// The columns of the rows and the places, which come last.
    read: SchemaRef,
    /// The columns that are wanted of these.
    output: Arc<[usize]>,
    partitions: Vec<Range<usize>>,
    properties: Arc<PlanProperties>,
}

impl PlacedScanExec {
    pub(crate) fn new(
        rows: Arc<PlacedRows>,
        read: SchemaRef,
        output: &[usize],
        threads: usize,
    ) -> Result<Self> {
        let threads = match rows.pieces() {
            ..FEW_PIECES => 1,
            _ => threads,
        };
        let partitions: Vec<_> = cut(rows.pieces(), threads).collect();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(read.project(output)?)),
            Partitioning::UnknownPartitioning(partitions.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self {
            rows,
            read,
            output: output.into(),
            partitions,
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
        })
    }

    /// Whether it has so few rows that any work on them takes negligible time.
    pub(crate) fn is_small(&self) -> bool {
        self.partitions.len() == 1
    }
}

/// Up to `count` ranges of pieces that follow each other.
fn cut(pieces: usize, count: usize) -> impl Iterator<Item = Range<usize>> {
    let count = count.clamp(1, pieces.max(1));
    let start = move |part: usize| pieces * part / count;
    (0..count).map(move |part| start(part)..start(part + 1))
}

/// The reader of one partition.
struct Pieces {
    rows: Arc<PlacedRows>,
    read: SchemaRef,
    output: Arc<[usize]>,
    /// Made by the first piece.
    reader: Option<PlacedReader>,
}

impl Pieces {
    fn read(&mut self, piece: usize) -> Result<Vec<RecordBatch>> {
        let placed = self.placed(piece).map_err(to_datafusion)?;
        let is_all = self.output.iter().copied().eq(0..self.read.fields().len());
        let output = |batch: RecordBatch| match is_all {
            true => Ok(batch),
            false => Ok(batch.project(&self.output)?),
        };
        placed.into_iter().map(output).collect()
    }

    fn placed(&mut self, piece: usize) -> thalweg_table::Result<Vec<RecordBatch>> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(self.rows.reader()?),
        };
        let placed = reader.read(piece)?.into_iter();
        placed.map(|rows| with_places(&self.read, rows)).collect()
    }
}

impl fmt::Debug for PlacedScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlacedScanExec")
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for PlacedScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: pieces={}", self.name(), self.rows.pieces())
    }
}

impl ExecutionPlan for PlacedScanExec {
    fn name(&self) -> &'static str {
        "ThalwegPlacedScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut reading = Pieces {
            rows: Arc::clone(&self.rows),
            read: Arc::clone(&self.read),
            output: Arc::clone(&self.output),
            reader: None,
        };
        let pieces = self.partitions.get(partition).cloned().unwrap_or_default();
        let batches = pieces.flat_map(move |piece| {
            let (read, error) = match reading.read(piece) {
                Ok(batches) => (batches, None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            read.into_iter().map(Ok).chain(error)
        });
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(
            self.schema(),
            futures::stream::iter(batches),
        ))))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        let rows = usize::try_from(self.rows.row_count()).unwrap_or(usize::MAX);
        statistics.num_rows = match args.partition() {
            None => Precision::Exact(rows),
            Some(_) => Precision::Inexact(rows / self.partitions.len()),
        };
        Ok(Arc::new(statistics))
    }
}
