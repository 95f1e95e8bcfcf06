//! The operator that scans a stored table.
//!
//! Invariants: every partition comes in the order of the table, and partition `n` ends before partition `n + 1` begins; one
//! partition decodes ahead on threads of its own, several decode in the thread that pulls them; nothing is read
//! before the first poll; a dropped stream stops its scan.

use crate::error::{of_table, to_datafusion};
use crate::metrics::{Taken, write_keys};
use crate::reverse::Reversed;
use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{
    Boundedness, CardinalityEffect, EmissionType, SchedulingType,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::sort_pushdown::SortOrderPushdownResult;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::Stream;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use thalweg_env::sync::Mutex;
use thalweg_table::{KeyRange, Scan, ScanRequest, TableView};

/// Fewer rows than this in a partition are not worth a second one.
const MIN_PARTITION_ROWS: u64 = 128 * 1024;
/// Up to so many rows are decoded in the calling thread: waking others would take longer.
const MAX_INLINE_ROWS: u64 = 64 * 1024;

/// Scans a stored table.
pub(crate) struct TableScanExec {
    view: TableView,
    request: ScanRequest,
    /// Latest rows first.
    reverse: bool,
    /// Threads that may decode for all partitions together.
    threads: usize,
    partitions: usize,
    /// The scans of several partitions, cut together by the first that runs.
    cut: Mutex<Vec<Option<Scan>>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    taken: Taken,
}

impl TableScanExec {
    /// A scan in one partition.
    pub(crate) fn new(view: TableView, request: ScanRequest, threads: usize) -> Result<Self> {
        Self::make(view, request, threads, 1, false)
    }

    fn make(
        view: TableView,
        request: ScanRequest,
        threads: usize,
        partitions: usize,
        reverse: bool,
    ) -> Result<Self> {
        let schema = view.schema();
        let schema = match &request.projection {
            Some(columns) => Arc::new(schema.project(columns)?),
            None => schema,
        };
        let properties = properties(&view, &schema, reverse, partitions);
        Ok(Self {
            view,
            request,
            reverse,
            threads,
            partitions,
            cut: Mutex::default(),
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
            taken: Taken::default(),
        })
    }

    /// Makes the same scan in one partition, in time order.
    pub(crate) fn in_order(&self) -> Result<Self> {
        Self::make(
            self.view.clone(),
            self.request.clone(),
            self.threads,
            1,
            self.reverse,
        )
    }

    pub(crate) fn partitions(&self) -> usize {
        self.partitions
    }

    /// Whether it has so few rows that any work on them takes negligible time.
    pub(crate) fn is_small(&self) -> bool {
        self.estimated_rows() <= MAX_INLINE_ROWS
    }

    /// About how many rows lie in the range of keys.
    fn estimated_rows(&self) -> u64 {
        let rows = estimate_rows(
            self.view.row_count(),
            self.view.key_range(),
            self.request.keys,
        );
        self.request
            .limit
            .map_or(rows, |limit| rows.min(limit as u64))
    }

    /// The row count if it is known without reading.
    fn exact_rows(&self) -> Option<u64> {
        let all = self
            .view
            .key_range()
            .is_none_or(|range| self.request.keys.covers(range.first, range.last));
        // Ranges of other columns prune whole blocks.
        let rows = (all && self.request.ranges.is_empty()).then(|| self.view.row_count())?;
        Some(
            self.request
                .limit
                .map_or(rows, |limit| rows.min(limit as u64)),
        )
    }

    fn batches(&self, partition: usize) -> thalweg_table::Result<Batches> {
        let threads = if self.is_small() { 1 } else { self.threads };
        if self.reverse {
            let request = ScanRequest {
                threads,
                ..self.request.clone()
            };
            let scan = Reversed::new(self.view.clone(), request, self.taken.clone());
            return Ok(Batches::Reversed(scan));
        }
        if self.partitions == 1 {
            let request = ScanRequest {
                threads,
                ..self.request.clone()
            };
            return Ok(self.forward(self.view.scan(&request)?));
        }
        let mut cut = self.cut.lock();
        if cut.get(partition).is_none_or(Option::is_none) {
            let request = ScanRequest {
                threads: 1,
                ..self.request.clone()
            };
            let scans = self.view.scan_partitions(&request, self.partitions)?;
            *cut = scans.into_iter().map(Some).collect();
        }
        Ok(cut
            .get_mut(partition)
            .and_then(Option::take)
            .map_or(Batches::None, |scan| self.forward(scan)))
    }

    fn forward(&self, scan: Scan) -> Batches {
        self.taken.add(scan.metrics());
        Batches::Forward(scan)
    }
}

/// The scan that one partition pulls from.
enum Batches {
    Forward(Scan),
    Reversed(Reversed),
    /// There were not as many rows as partitions.
    None,
}

impl Batches {
    fn next(&mut self) -> Option<thalweg_table::Result<RecordBatch>> {
        match self {
            Self::Forward(scan) => scan.next(),
            Self::Reversed(scan) => scan.next(),
            Self::None => None,
        }
    }
}

/// Rows of `wanted` if the table's rows were spread evenly.
fn estimate_rows(rows: u64, table: Option<KeyRange>, wanted: KeyRange) -> u64 {
    let Some(table) = table else {
        return 0;
    };
    let common = table.intersect(wanted);
    if common.is_empty() {
        return 0;
    }
    let width = |range: KeyRange| i128::from(range.last) - i128::from(range.first) + 1;
    let share = i128::from(rows) * width(common) / width(table);
    u64::try_from(share).unwrap_or(rows)
}

fn properties(
    view: &TableView,
    schema: &SchemaRef,
    reverse: bool,
    partitions: usize,
) -> Arc<PlanProperties> {
    let mut equivalences = EquivalenceProperties::new(Arc::clone(schema));
    if let Some(time) = view.definition().order_column()
        && let Ok(position) = schema.index_of(&time.name)
    {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(&time.name, position));
        let options = SortOptions {
            descending: reverse,
            nulls_first: false,
        };
        equivalences.add_orderings(LexOrdering::new([PhysicalSortExpr::new(column, options)]));
    }
    let properties = PlanProperties::new(
        equivalences,
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    );
    Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative))
}

impl fmt::Debug for TableScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableScanExec")
            .field("table", &self.view.name())
            .field("request", &self.request)
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for TableScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThalwegScan: table={}", self.view.name())?;
        let schema = self.schema();
        let names: Vec<_> = schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        write!(f, ", columns=[{}]", names.join(", "))?;
        write_keys(f, &self.view, self.request.keys)?;
        if !self.request.ranges.is_empty() {
            let columns = self.view.schema();
            let names = self
                .request
                .ranges
                .iter()
                .map(|range| columns.field(range.column).name().as_str());
            write!(f, ", pruned by=[{}]", names.collect::<Vec<_>>().join(", "))?;
        }
        if let Some(limit) = self.request.limit {
            write!(f, ", limit={limit}")?;
        }
        if self.reverse {
            write!(f, ", reverse")?;
        }
        write!(f, ", partitions={}", self.partitions)
    }
}

impl ExecutionPlan for TableScanExec {
    fn name(&self) -> &'static str {
        "ThalwegScan"
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

    fn repartitioned(
        &self,
        target: usize,
        _: &ConfigOptions,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let worth = self.estimated_rows() / MIN_PARTITION_ROWS;
        let partitions = usize::try_from(worth).unwrap_or(target).min(target);
        if partitions < 2 || self.partitions > 1 || self.request.limit.is_some() || self.reverse {
            return Ok(None);
        }
        let scan = Self::make(
            self.view.clone(),
            self.request.clone(),
            self.threads,
            partitions,
            false,
        )?;
        Ok(Some(Arc::new(scan)))
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition >= self.partitions {
            return internal_err!(
                "a scan of {} partitions has no partition {partition}",
                self.partitions
            );
        }
        let batches = self
            .batches(partition)
            .map_err(|e| to_datafusion(of_table(e, self.view.name())))?;
        Ok(Box::pin(cooperative(ScanStream {
            view: self.view.clone(),
            schema: self.schema(),
            batches,
            metrics: BaselineMetrics::new(&self.metrics, partition),
        })))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.taken.with(&self.metrics))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        let count = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
        statistics.num_rows = match (args.partition(), self.exact_rows()) {
            (None, Some(rows)) => Precision::Exact(count(rows)),
            (None, None) => Precision::Inexact(count(self.estimated_rows())),
            (Some(_), _) => Precision::Inexact(count(self.estimated_rows()) / self.partitions),
        };
        Ok(Arc::new(statistics))
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let request = ScanRequest {
            limit,
            ..self.request.clone()
        };
        // The first rows are all in the first partition, mostly, and each further one would read a block for nothing.
        let is_first = limit.is_some_and(|limit| limit as u64 <= MAX_INLINE_ROWS);
        let partitions = if is_first { 1 } else { self.partitions };
        let (view, threads) = (self.view.clone(), self.threads);
        let scan = Self::make(view, request, threads, partitions, self.reverse).ok()?;
        Some(Arc::new(scan))
    }

    fn fetch(&self) -> Option<usize> {
        self.request.limit
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Unknown
    }

    /// Rows in the order of time without a sort, the latest or the earliest first.
    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
    ) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        let ([wanted], Some(time)) = (order, self.view.definition().order_column()) else {
            return Ok(SortOrderPushdownResult::Unsupported);
        };
        let is_time = wanted
            .expr
            .downcast_ref::<Column>()
            .is_some_and(|column| column.name() == time.name);
        if !is_time || self.reverse || self.request.limit.is_some() {
            return Ok(SortOrderPushdownResult::Unsupported);
        }
        let scan = Self::make(
            self.view.clone(),
            self.request.clone(),
            self.threads,
            1,
            wanted.options.descending,
        )?;
        Ok(SortOrderPushdownResult::Exact {
            inner: Arc::new(scan),
        })
    }
}

/// One partition of a scan.
struct ScanStream {
    /// For messages.
    view: TableView,
    schema: SchemaRef,
    batches: Batches,
    metrics: BaselineMetrics,
}

impl ScanStream {
    fn next(&mut self) -> Option<Result<RecordBatch>> {
        let timer = self.metrics.elapsed_compute().timer();
        let next = self.batches.next();
        timer.done();
        if !matches!(next, Some(Ok(_))) {
            self.batches = Batches::None;
        }
        next.map(|batch| batch.map_err(|e| to_datafusion(of_table(e, self.view.name()))))
    }
}

impl Stream for ScanStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.next();
        self.metrics.record_poll(Poll::Ready(next))
    }
}

impl RecordBatchStream for ScanStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_estimated_by_share_of_the_range() {
        let range = |first, last| KeyRange { first, last };
        assert_eq!(estimate_rows(1_000, Some(range(0, 99)), range(10, 19)), 100);
        assert_eq!(
            estimate_rows(1_000, Some(range(0, 99)), KeyRange::ALL),
            1_000
        );
        assert_eq!(estimate_rows(1_000, Some(range(0, 99)), range(100, 200)), 0);
        assert_eq!(estimate_rows(1_000, None, KeyRange::ALL), 0);
        assert_eq!(
            estimate_rows(u64::MAX, Some(KeyRange::ALL), KeyRange::ALL),
            u64::MAX
        );
    }
}
