//! Rows of which no order is concluded.
//!
//! DataFusion takes the rows of a hash join for ordered by the keys of the side that it streams and then of the side that it keeps, but
//! equal keys of the streamed side each bring their own rows of the other. And it takes LIMIT from an operator to the sort below
//! without the rows that OFFSET leaves out, or drops that sort where there is no LIMIT. Invariants: the kept side of a hash join has
//! no order; while sorts are placed, nothing is taken past an OFFSET, whose rows stay sorted as they were.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, OrderingRequirements, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, replace_children_if_necessary};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, PlanProperties,
};
use std::fmt;
use std::sync::Arc;

/// Hides these orders before sorts are placed.
#[derive(Debug)]
pub(crate) struct HideOrders;

impl PhysicalOptimizerRule for HideOrders {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let done = plan.transform_up(|plan| {
            if let Some(join) = plan.downcast_ref::<HashJoinExec>()
                && join.left().properties().output_ordering().is_some()
            {
                let kept = Arc::new(UnorderedExec::new(Arc::clone(join.left()), Hidden::Side));
                let children: Vec<Arc<dyn ExecutionPlan>> = vec![kept, Arc::clone(join.right())];
                return replace_children_if_necessary(plan, children).map(Transformed::yes);
            }
            if let Some(limit) = plan.downcast_ref::<GlobalLimitExec>()
                && limit.skip() > 0
            {
                let offset = Hidden::Offset(limit.skip(), limit.fetch());
                let input = with_kept_sort(limit.input())?;
                let hidden = UnorderedExec::new(input, offset);
                return Ok(Transformed::yes(Arc::new(hidden)));
            }
            Ok(Transformed::no(plan))
        })?;
        Ok(done.data)
    }

    fn name(&self) -> &'static str {
        "thalweg_hide_orders"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The rows of an OFFSET, with the sort that orders them kept. Its keys need not be columns of theirs.
fn with_kept_sort(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        let order = OrderingRequirements::from(sort.expr().clone());
        let kept = UnorderedExec::new(Arc::clone(plan), Hidden::Sort(order));
        return Ok(Arc::new(kept));
    }
    let (children, keep) = (plan.children(), plan.maintains_input_order());
    match (children.as_slice(), keep.as_slice()) {
        ([child], [true]) => {
            let child = with_kept_sort(child)?;
            replace_children_if_necessary(Arc::clone(plan), vec![child])
        }
        _ => Ok(Arc::clone(plan)),
    }
}

/// Brings back OFFSET once sorts were placed.
#[derive(Debug)]
pub(crate) struct ShowOffsets;

impl PhysicalOptimizerRule for ShowOffsets {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let done = plan.transform_up(|plan| {
            let Some(hidden) = plan.downcast_ref::<UnorderedExec>() else {
                return Ok(Transformed::no(plan));
            };
            let input = Arc::clone(&hidden.input);
            Ok(match hidden.hidden {
                Hidden::Side => Transformed::no(plan),
                Hidden::Sort(_) => Transformed::yes(input),
                Hidden::Offset(skip, fetch) => {
                    Transformed::yes(Arc::new(GlobalLimitExec::new(input, skip, fetch)))
                }
            })
        })?;
        Ok(done.data)
    }

    fn name(&self) -> &'static str {
        "thalweg_show_offsets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What is kept from the rules that place sorts.
#[derive(Clone, Debug)]
enum Hidden {
    /// The side that a hash join keeps.
    Side,
    /// That nothing above needs the sort below an OFFSET.
    Sort(OrderingRequirements),
    /// An OFFSET with its LIMIT.
    Offset(usize, Option<usize>),
}

/// Hands on what it takes, without its order but for a sort.
#[derive(Debug)]
pub(crate) struct UnorderedExec {
    input: Arc<dyn ExecutionPlan>,
    hidden: Hidden,
    properties: Arc<PlanProperties>,
}

impl UnorderedExec {
    fn new(input: Arc<dyn ExecutionPlan>, hidden: Hidden) -> Self {
        let mut properties = PlanProperties::clone(input.properties());
        if !matches!(hidden, Hidden::Sort(_)) {
            let mut equivalences = properties.eq_properties.clone();
            equivalences.clear_orderings();
            properties.set_eq_properties(equivalences);
        }
        Self {
            input,
            hidden,
            properties: Arc::new(properties),
        }
    }
}

impl DisplayAs for UnorderedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnorderedExec")
    }
}

impl ExecutionPlan for UnorderedExec {
    fn name(&self) -> &'static str {
        "UnorderedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![match self.hidden {
            Hidden::Side => Distribution::UnspecifiedDistribution,
            Hidden::Sort(_) | Hidden::Offset(..) => Distribution::SinglePartition,
        }])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![match &self.hidden {
            Hidden::Sort(order) => Some(order.clone()),
            Hidden::Side | Hidden::Offset(..) => None,
        }]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![matches!(self.hidden, Hidden::Sort(_))]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::new(input, self.hidden.clone()))),
            Err(children) => internal_err!("rows without order of {} children", children.len()),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if matches!(self.hidden, Hidden::Offset(..)) {
            return internal_err!("an OFFSET is hidden");
        }
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&inputs[0]))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        match self.hidden {
            Hidden::Offset(..) => CardinalityEffect::LowerEqual,
            Hidden::Side | Hidden::Sort(_) => CardinalityEffect::Equal,
        }
    }
}
