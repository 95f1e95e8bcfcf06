//! The operator that asks the table for aggregates, and the planner that makes it.
//!
//! Invariants: one partition, one batch; nothing is read before the first poll; groups come by ascending time.

use super::aggregate::AggregateNode;
use super::finish::{Output, finish, group_values};
use super::time::keys_of;
use crate::error::{of_table, to_datafusion};
use crate::metrics::Taken;
use crate::table::StatementTables;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use std::fmt;
use std::sync::Arc;
use thalweg_table::{AggregateRequest, TableView};

/// Blocks at the ends of so many groups are read in negligible time.
const MAX_INLINE_GROUPS: i128 = 1_024;

/// Makes the operator of an [`AggregateNode`].
#[derive(Debug, Default)]
pub(crate) struct AggregatePlanner;

#[async_trait]
impl ExtensionPlanner for AggregatePlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        _physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _planning_ctx: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<AggregateNode>() else {
            return Ok(None);
        };
        let view = StatementTables::of(session)?.view_of(&node.table)?;
        let keys = match node.table.definition().order_column() {
            Some(time) => keys_of(&node.conditions, &time.data_type)?,
            None => thalweg_table::KeyRange::ALL,
        };
        let request = AggregateRequest {
            keys,
            bucket: node.group.map(|group| group.bucket),
            columns: node.columns.clone(),
        };
        let schema = Arc::clone(node.schema.inner());
        let factor = node.group.map(|group| group.factor);
        Ok(Some(Arc::new(TableAggregateExec::new(
            view,
            request,
            factor,
            node.outputs.clone(),
            schema,
        ))))
    }
}

/// Asks a table for aggregates.
#[derive(Debug)]
pub(crate) struct TableAggregateExec {
    view: TableView,
    request: AggregateRequest,
    /// Set for groups: what turns a key into the group's value.
    factor: Option<i64>,
    outputs: Vec<Output>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    taken: Taken,
}

impl TableAggregateExec {
    fn new(
        view: TableView,
        request: AggregateRequest,
        factor: Option<i64>,
        outputs: Vec<Output>,
        schema: SchemaRef,
    ) -> Self {
        let mut equivalences = EquivalenceProperties::new(Arc::clone(&schema));
        if factor.is_some()
            && let Some(group) = schema.fields().first()
        {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(group.name(), 0));
            let ascending = PhysicalSortExpr::new(
                column,
                SortOptions {
                    descending: false,
                    nulls_first: false,
                },
            );
            equivalences.add_orderings(LexOrdering::new([ascending]));
        }
        let properties = PlanProperties::new(
            equivalences,
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        Self {
            view,
            request,
            factor,
            outputs,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
            taken: Taken::default(),
        }
    }

    /// Whether it reads so few blocks that it takes negligible time.
    pub(crate) fn is_small(&self) -> bool {
        let (Some(bucket), Some(table)) = (self.request.bucket, self.view.key_range()) else {
            return true;
        };
        let keys = table.intersect(self.request.keys);
        let width = i128::from(keys.last) - i128::from(keys.first);
        width <= MAX_INLINE_GROUPS * i128::from(bucket.width)
    }

    /// The answer, as one batch.
    fn answer(&self, metrics: &BaselineMetrics) -> Result<RecordBatch> {
        let _timer = metrics.elapsed_compute().timer();
        let result = self.view.aggregate(&self.request);
        let result = result.map_err(|e| to_datafusion(of_table(e, self.view.name())))?;
        self.taken.add(&result.metrics);
        let schema = self.schema();
        let mut fields = schema.fields().iter();
        let mut next_field = || match fields.next() {
            Some(field) => Ok(field),
            None => internal_err!("an aggregate with more values than columns"),
        };
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.outputs.len() + 1);
        if let Some(factor) = self.factor {
            columns.push(group_values(
                &result.groups,
                factor,
                next_field()?.data_type(),
            )?);
        }
        for output in &self.outputs {
            let field = next_field()?;
            columns.push(finish(
                *output,
                &result.groups,
                field.data_type(),
                field.name(),
            )?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(result.groups.len()));
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        metrics.record_output(batch.num_rows());
        Ok(batch)
    }
}

impl DisplayAs for TableAggregateExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThalwegAggregate: table={}", self.view.name())?;
        crate::metrics::write_keys(f, &self.view, self.request.keys)?;
        if let Some(bucket) = self.request.bucket {
            write!(f, ", bucket={} from {}", bucket.width, bucket.origin)?;
        }
        Ok(())
    }
}

impl ExecutionPlan for TableAggregateExec {
    fn name(&self) -> &'static str {
        "ThalwegAggregate"
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
        if partition != 0 {
            return internal_err!("an aggregate of a table has one partition");
        }
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let running = Self {
            view: self.view.clone(),
            request: self.request.clone(),
            factor: self.factor,
            outputs: self.outputs.clone(),
            properties: Arc::clone(&self.properties),
            metrics: self.metrics.clone(),
            taken: self.taken.clone(),
        };
        let answer = futures::stream::once(async move { running.answer(&metrics) });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            answer,
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.taken.with(&self.metrics))
    }
}
