//! Rows of which no order is concluded.
//!
//! DataFusion takes the rows of a hash join for ordered by the keys of the side that it streams and then of the side that it keeps, but
//! equal keys of the streamed side each bring their own rows of the other. And it takes LIMIT from an operator to the sort below
//! without the rows that OFFSET leaves out, or drops that sort where there is no LIMIT. And it takes what is true of the rows of one
//! side of an outer join, or below grouping sets (that a column has one value, or the same one as another), for true of the NULLs that
//! stand there for missing rows and for columns that are not grouped by. It takes a running maximum for ascending, though NULLs come
//! before the first value, and a count of the last rows too, though that begins again with each partition. And a column with one value
//! in each branch of a union is left out of the sorts below, which share what they know of the rows that are wanted. And as no
//! two groups have the same keys, it sorts groups by these alone; but it takes other columns for them where a projection has moved them.
//! And where rows are in the order of a sort only once it has dropped another one below, it drops that sort too, with its LIMIT.
//!
//! Invariants: the kept side of a hash join has no order; nothing is known of values in whose place NULLs may stand, nor of results of
//! windows but numbers of rows; of a union only the orders by columns that all branches have are known; while sorts are placed, nothing
//! is taken past an OFFSET, whose rows stay sorted as they were, and a sort with a LIMIT above another sort stays; groups are sorted by
//! all keys.

use arrow::compute::SortOptions;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Constraints, JoinType, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{
    Distribution, EquivalenceProperties, OrderingRequirements, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::{CardinalityEffect, replace_children_if_necessary};
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec, SymmetricHashJoinExec,
};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
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
        let has_long_sort = plan.exists(|node| Ok(sorts_by_several(node)))?;
        let done = plan.transform_up(|plan| {
            let Transformed {
                data: plan,
                transformed,
                ..
            } = with_nulls(plan)?;
            if has_long_sort && has_key(&plan) {
                let hidden = UnorderedExec::new(plan, Hidden::Key)?;
                return Ok(Transformed::yes(Arc::new(hidden)));
            }
            if let Some(hidden) = of_results(&plan) {
                return Ok(Transformed::yes(Arc::new(UnorderedExec::new(
                    plan, hidden,
                )?)));
            }
            if let Some(join) = plan.downcast_ref::<HashJoinExec>()
                && join.left().properties().output_ordering().is_some()
            {
                let kept = UnorderedExec::new(Arc::clone(join.left()), Hidden::Side)?;
                let kept = Arc::new(kept);
                let children: Vec<Arc<dyn ExecutionPlan>> = vec![kept, Arc::clone(join.right())];
                return replace_children_if_necessary(plan, children).map(Transformed::yes);
            }
            if let Some(sort) = plan.downcast_ref::<SortExec>()
                && sort.fetch().is_some()
                && has_loose_sort(sort.input())
            {
                let input = UnorderedExec::new(Arc::clone(sort.input()), Hidden::Sorted)?;
                let children: Vec<Arc<dyn ExecutionPlan>> = vec![Arc::new(input)];
                return replace_children_if_necessary(plan, children).map(Transformed::yes);
            }
            if let Some(limit) = plan.downcast_ref::<GlobalLimitExec>()
                && limit.skip() > 0
            {
                let offset = Hidden::Offset(limit.skip(), limit.fetch());
                let input = with_kept_sort(limit.input())?;
                let hidden = UnorderedExec::new(input, offset)?;
                return Ok(Transformed::yes(Arc::new(hidden)));
            }
            let again = TreeNodeRecursion::Continue;
            Ok(Transformed::new(plan, transformed, again))
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

/// Whether a node sorts its rows, or needs them sorted, by more than one key.
fn sorts_by_several(node: &Arc<dyn ExecutionPlan>) -> bool {
    let is_long = |order: OrderingRequirements| order.into_single().len() > 1;
    node.downcast_ref::<SortExec>()
        .is_some_and(|sort| sort.expr().len() > 1)
        || { node.required_input_ordering().into_iter().flatten() }.any(is_long)
}

/// Whether rows come in the order of a sort that goes where they are sorted again: it has no LIMIT, and nothing above it needs its order.
fn has_loose_sort(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        return sort.fetch().is_none();
    }
    let kept = plan.maintains_input_order().into_iter();
    { kept.zip(plan.children()) }.any(|(keeps, child)| keeps && has_loose_sort(child))
}

/// Whether a node has one row of each group.
fn has_key(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.downcast_ref::<AggregateExec>()
        .is_some_and(|it| *it.mode() != AggregateMode::Partial && !it.group_expr().is_empty())
}

/// Which properties of the output of a window or a union are hidden; `None` for other nodes.
fn of_results(plan: &Arc<dyn ExecutionPlan>) -> Option<Hidden> {
    if plan.is::<WindowAggExec>() || plan.is::<BoundedWindowAggExec>() {
        let rows = plan.children().into_iter().next()?;
        return Some(Hidden::Results(rows.schema().fields().len()));
    }
    plan.is::<UnionExec>().then_some(Hidden::Branches)
}

/// The node, with nothing known of the values in whose place it may have NULLs.
fn with_nulls(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let nulls = |child: &Arc<dyn ExecutionPlan>| -> Result<Arc<dyn ExecutionPlan>> {
        let hidden = UnorderedExec::new(Arc::clone(child), Hidden::Values)?;
        Ok(Arc::new(hidden))
    };
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        if !aggregate.group_expr().has_grouping_set() {
            return Ok(Transformed::no(plan));
        }
        let children = vec![nulls(aggregate.input())?];
        let plan = replace_children_if_necessary(plan, children)?;
        // Constants among the keys as well.
        return nulls(&plan).map(Transformed::yes);
    }
    let join = (plan
        .downcast_ref::<HashJoinExec>()
        .map(HashJoinExec::join_type))
    .or_else(|| plan.downcast_ref().map(NestedLoopJoinExec::join_type))
    .or_else(|| plan.downcast_ref().map(SymmetricHashJoinExec::join_type))
    .copied()
    .or_else(|| plan.downcast_ref().map(SortMergeJoinExec::join_type));
    let fills_in = match join {
        Some(JoinType::Full) => [true, true],
        Some(JoinType::Left) => [false, true],
        Some(JoinType::Right) => [true, false],
        Some(_) | None => return Ok(Transformed::no(plan)),
    };
    let children = plan.children().into_iter().zip(fills_in);
    let children = children.map(|(child, fills_in)| match fills_in {
        true => nulls(child),
        false => Ok(Arc::clone(child)),
    });
    let children = children.collect::<Result<_>>()?;
    replace_children_if_necessary(plan, children).map(Transformed::yes)
}

/// The rows of an OFFSET, with the sort that orders them kept. Its keys need not be columns of theirs.
fn with_kept_sort(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        let order = OrderingRequirements::from(sort.expr().clone());
        let kept = UnorderedExec::new(Arc::clone(plan), Hidden::Sort(order))?;
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

/// Brings back OFFSET, and the orders of rows that are sorted again, once sorts were placed.
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
                Hidden::Side
                | Hidden::Values
                | Hidden::Results(_)
                | Hidden::Branches
                | Hidden::Key => Transformed::no(plan),
                Hidden::Sorted | Hidden::Sort(_) => Transformed::yes(input),
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

/// A property that is hidden from the rules that place sorts.
#[derive(Clone, Debug)]
enum Hidden {
    /// The side that a hash join keeps.
    Side,
    /// All that is known of values, of rows in whose place NULLs may stand.
    Values,
    /// All properties of the columns from this one on, which are results of windows.
    Results(usize),
    /// All but the orders that all branches of a union have.
    Branches,
    /// That no two groups have the same key.
    Key,
    /// The order of rows that are sorted again, of which a LIMIT takes the first.
    Sorted,
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
    fn new(input: Arc<dyn ExecutionPlan>, hidden: Hidden) -> Result<Self> {
        let mut properties = PlanProperties::clone(input.properties());
        let mut known = match hidden {
            Hidden::Sort(_) | Hidden::Sorted | Hidden::Side | Hidden::Offset(..) | Hidden::Key => {
                properties.eq_properties.clone()
            }
            Hidden::Values | Hidden::Results(_) | Hidden::Branches => {
                EquivalenceProperties::new(input.schema())
            }
        };
        match hidden {
            Hidden::Sort(_) | Hidden::Values => {}
            Hidden::Key => known.set_constraints(Constraints::default()),
            Hidden::Sorted | Hidden::Side | Hidden::Offset(..) => known.clear_orderings(),
            Hidden::Results(first) => {
                add_equal_before(first, &properties, &mut known)?;
                known.add_orderings(orders_before(first, &properties));
                known.add_orderings(row_numbers(first, &input));
            }
            // Once sorts are placed a union may have become one that mixes the rows of its branches.
            Hidden::Branches if input.is::<UnionExec>() => {
                known.add_orderings(common_orders(&input));
            }
            Hidden::Branches => {}
        }
        properties.set_eq_properties(known);
        Ok(Self {
            input,
            hidden,
            properties: Arc::new(properties),
        })
    }
}

/// Adds which columns before `first` are constant, or equal others of these.
fn add_equal_before(
    first: usize,
    properties: &PlanProperties,
    known: &mut EquivalenceProperties,
) -> Result<()> {
    for class in properties.eq_properties.eq_group().iter() {
        let mut equal = class.iter().filter(|expr| is_before(first, expr));
        let Some(one) = equal.next() else {
            continue;
        };
        for other in equal {
            known.add_equal_conditions(Arc::clone(one), Arc::clone(other))?;
        }
    }
    let constants = properties.eq_properties.constants().into_iter();
    known.add_constants(constants.filter(|it| is_before(first, &it.expr)))
}

/// The order by the number of the row, which is that of the rows, and of the first ones of them.
fn row_numbers(first: usize, rows: &Arc<dyn ExecutionPlan>) -> Vec<Vec<PhysicalSortExpr>> {
    let mut window = rows;
    while window.is::<GlobalLimitExec>() || window.is::<LocalLimitExec>() {
        match window.children().as_slice() {
            [child] => window = child,
            _ => break,
        }
    }
    let windows = (window
        .downcast_ref::<BoundedWindowAggExec>()
        .map(BoundedWindowAggExec::window_expr))
    .or_else(|| window.downcast_ref().map(WindowAggExec::window_expr));
    let numbered = windows.unwrap_or_default().iter().enumerate();
    let numbered = numbered.filter(|(_, call)| {
        call.name().starts_with("row_number()") && call.partition_by().is_empty()
    });
    let key = |(place, call): (usize, &Arc<dyn WindowExpr>)| {
        let expr = Arc::new(Column::new(call.name(), first + place));
        vec![PhysicalSortExpr::new(expr, SortOptions::new(false, false))]
    };
    numbered.map(key).collect()
}

/// The orders of rows by columns before `first` alone.
fn orders_before(first: usize, properties: &PlanProperties) -> Vec<Vec<PhysicalSortExpr>> {
    let is_before = |key: &&PhysicalSortExpr| is_before(first, &key.expr);
    let orders = properties.eq_properties.oeq_class().iter();
    let orders = orders.map(|order| order.iter().take_while(is_before).cloned().collect());
    orders.filter(|order: &Vec<_>| !order.is_empty()).collect()
}

/// Whether an expression is one of columns before `first` alone.
fn is_before(first: usize, expr: &Arc<dyn PhysicalExpr>) -> bool {
    let columns = collect_columns(expr);
    columns.iter().all(|column| column.index() < first)
}

/// The orders by columns that the rows of all branches of a union have.
fn common_orders(union: &Arc<dyn ExecutionPlan>) -> Vec<Vec<PhysicalSortExpr>> {
    let orders_of = |branch: &Arc<dyn ExecutionPlan>| -> Vec<Vec<(usize, SortOptions)>> {
        let orders = branch.properties().eq_properties.oeq_class().iter();
        let place = |key: &PhysicalSortExpr| {
            let column = key.expr.downcast_ref::<Column>()?;
            Some((column.index(), key.options))
        };
        { orders.map(|order| order.iter().map_while(place).collect()) }.collect()
    };
    let mut branches = union.children().into_iter().map(orders_of);
    let first = branches.next().unwrap_or_default();
    let common = branches.fold(first, |known, of_branch| {
        let longest = |order: Vec<(usize, SortOptions)>| {
            let same = |other: &Vec<_>| order.iter().zip(other).take_while(|(a, b)| a == b).count();
            let length = of_branch.iter().map(same).max().unwrap_or(0);
            order[..length].to_vec()
        };
        known.into_iter().map(longest).collect()
    });
    let schema = union.schema();
    let key = |(place, options): (usize, SortOptions)| PhysicalSortExpr {
        expr: Arc::new(Column::new(schema.field(place).name(), place)),
        options,
    };
    let common = common.into_iter().filter(|order| !order.is_empty());
    common
        .map(|order| order.into_iter().map(key).collect())
        .collect()
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
            Hidden::Sort(_) | Hidden::Offset(..) => Distribution::SinglePartition,
            _ => Distribution::UnspecifiedDistribution,
        }])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![match &self.hidden {
            Hidden::Sort(order) => Some(order.clone()),
            _ => None,
        }]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        // Else needed orders are handed down, to where more is known.
        vec![matches!(self.hidden, Hidden::Sort(_))]
    }

    fn supports_limit_pushdown(&self) -> bool {
        !matches!(self.hidden, Hidden::Offset(..))
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
            Ok([input]) => Ok(Arc::new(Self::new(input, self.hidden.clone())?)),
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
            _ => CardinalityEffect::Equal,
        }
    }
}
