//! Which rules plan a statement.
//!
//! Invariants: both lists give the same answers; the short one is for plans of one stored table without subqueries,
//! joins, windows, set operations and DISTINCT, and leaves out what could change nothing in them. Most of the time
//! of a small query is rules that find nothing to do.

use crate::conditions::PushDownConditions;
use crate::dependencies::{GroupDistinct, NothingUnique};
use crate::guards::{CommonParts, GuardConditions};
use crate::hidden::HideConditions;
use crate::limits::LimitsOfRows;
use crate::lists_apart::SimplifyListsApart;
use crate::meaning::Meaning;
use crate::meaning::counted_sets::CountedSets;
use crate::meaning::dates::DatesAsTimes;
use crate::meaning::dates_beside_numbers::DatesBesideNumbers;
use crate::meaning::decimals::DecimalsBesideFloats;
use crate::meaning::empty_subqueries::EmptySubqueries;
use crate::meaning::keys_below::GroupingKeys;
use crate::meaning::lengths::WindowsByLength;
use crate::meaning::one_unit::TimesInOneUnit;
use crate::meaning::time_orders::{goes_by_order, wants_rows_in_time};
use crate::meaning::window_keys::WindowKeys;
use crate::placed_exec::PlacedScanExec;
use crate::placed_table::PlacedTable;
use crate::pushdown::aggregate::{AggregateNode, AggregatePushdown};
use crate::pushdown::aggregate_exec::TableAggregateExec;
use crate::scan_exec::TableScanExec;
use crate::semi_joins::EachKeyOnce;
use crate::table::StoredTable;
use crate::unordered::{HideOrders, ShowOffsets, UnorderedExec};
use datafusion::common::ExprSchema;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::analyzer::Analyzer;
use datafusion::optimizer::analyzer::resolve_grouping_function::ResolveGroupingFunction;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::optimizer::eliminate_filter::EliminateFilter;
use datafusion::optimizer::eliminate_limit::EliminateLimit;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_limit::PushDownLimit;
use datafusion::optimizer::{AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::combine_partial_final_agg::CombinePartialFinalAggregate;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::limit_pushdown::LimitPushdown;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_optimizer::output_requirements::OutputRequirements;
use datafusion::physical_optimizer::pushdown_sort::PushdownSort;
use datafusion::physical_plan::buffer::BufferExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, SortOrderPushdownResult};
use std::borrow::Cow;
use std::sync::Arc;

type LogicalRules = Vec<Arc<dyn OptimizerRule + Send + Sync>>;
type PhysicalRules = Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>;

/// The shape of a plan, which decides which rules it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A chain of operators over one stored table, none of which needs its rows in another order or place.
    Plain,
    /// A chain over one stored table with sorts or aggregates.
    Chain,
    /// Everything else.
    Any,
}

/// All rules of both lists.
#[derive(Debug)]
pub(crate) struct Rules {
    short_analyzer: Analyzer,
    short: Optimizer,
    full_analyzer: Analyzer,
    full: Optimizer,
    plain: PhysicalRules,
    chain: PhysicalRules,
    any: PhysicalRules,
}

impl Rules {
    pub(crate) fn new() -> Self {
        let short: LogicalRules = vec![
            Arc::new(SimplifyListsApart::default()),
            Arc::new(EliminateFilter::new()),
            Arc::new(EliminateLimit::new()),
            Arc::new(LimitsOfRows),
            Arc::new(PushDownLimit::new()),
            Arc::new(PushDownConditions::default()),
            Arc::new(AggregatePushdown),
            Arc::new(CommonParts::default()),
            Arc::new(NothingUnique),
            Arc::new(OptimizeProjections::new()),
        ];
        let mut full = Optimizer::new();
        // It takes a column that is unique in one side of a join for unique above the join too, and drops the keys of a sort that
        // follow it.
        full.rules
            .retain(|rule| rule.name() != "eliminate_duplicated_expr");
        for rule in &mut full.rules {
            if rule.name() == SimplifyListsApart::default().name() {
                *rule = Arc::new(SimplifyListsApart::default());
            }
        }
        let at = full
            .rules
            .iter()
            .position(|rule| rule.name() == "push_down_filter");
        if let Some(at) = at {
            full.rules[at] = Arc::new(PushDownConditions::default());
            // Conditions of joins are keys by then.
            full.rules.insert(at + 1, Arc::new(EachKeyOnce));
        }
        let at = full
            .rules
            .iter()
            .position(|rule| rule.name() == "push_down_limit");
        full.rules.insert(at.unwrap_or(0), Arc::new(LimitsOfRows));
        // Before common subexpressions are cut out of aggregates, which hides their columns.
        let at = full
            .rules
            .iter()
            .position(|rule| rule.name() == "common_sub_expression_eliminate");
        if let Some(at) = at {
            full.rules[at] = Arc::new(CommonParts::default());
        }
        full.rules
            .insert(at.unwrap_or(full.rules.len()), Arc::new(AggregatePushdown));
        let at = full
            .rules
            .iter()
            .position(|rule| rule.name() == GroupDistinct::default().name());
        if let Some(at) = at {
            full.rules[at] = Arc::new(GroupDistinct::default());
        }
        for drops in ["eliminate_join", "optimize_projections"] {
            let at = full.rules.iter().position(|rule| rule.name() == drops);
            full.rules
                .insert(at.unwrap_or(full.rules.len()), Arc::new(NothingUnique));
        }
        let mut full_analyzer = Analyzer::new();
        let first: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![
            Arc::new(GroupingKeys),
            Arc::new(DatesBesideNumbers),
            Arc::new(EmptySubqueries),
            Arc::new(DatesAsTimes),
            Arc::new(TimesInOneUnit),
            Arc::new(CountedSets),
            Arc::new(WindowsByLength),
            Arc::new(DecimalsBesideFloats),
        ];
        full_analyzer.rules.splice(0..0, first);
        full_analyzer.rules.push(Arc::new(Meaning));
        full_analyzer.rules.push(Arc::new(WindowKeys));
        let mut any = PhysicalOptimizer::new().rules;
        // They find columns by name, and so take a condition on one side of an outer join to the other side where both have such a
        // column. Conditions have reached scans by then, which take no others.
        any.retain(|rule| !rule.name().starts_with("FilterPushdown"));
        let at = any
            .iter()
            .position(|rule| rule.name() == PushdownSort.name());
        any.insert(at.unwrap_or(any.len()), Arc::new(SortBelowFilter));
        any.push(Arc::new(KeepTimeOrder));
        let first: PhysicalRules = vec![Arc::new(GuardConditions), Arc::new(HideConditions)];
        any.splice(0..0, first);
        let at = any
            .iter()
            .position(|rule| rule.name() == EnsureRequirements::new().name());
        if let Some(at) = at {
            any.insert(at + 1, Arc::new(ShowOffsets));
            any.insert(at, Arc::new(HideOrders));
        }
        Self {
            short_analyzer: Analyzer::with_rules(vec![
                Arc::new(GroupingKeys),
                Arc::new(DatesBesideNumbers),
                Arc::new(DatesAsTimes),
                Arc::new(TimesInOneUnit),
                Arc::new(DecimalsBesideFloats),
                Arc::new(ResolveGroupingFunction::new()),
                Arc::new(TypeCoercion::new()),
                Arc::new(Meaning),
            ]),
            short: Optimizer::with_rules(short),
            full_analyzer,
            full,
            plain: vec![Arc::new(GuardConditions)],
            chain: vec![
                Arc::new(GuardConditions),
                Arc::new(HideConditions),
                Arc::new(UnlessSortedByScan(vec![
                    Arc::new(OutputRequirements::new_add_mode()),
                    Arc::new(HideOrders),
                    Arc::new(EnsureRequirements::new()),
                    Arc::new(ShowOffsets),
                    Arc::new(CombinePartialFinalAggregate::new()),
                    Arc::new(OutputRequirements::new_remove_mode()),
                    Arc::new(LimitPushdown::new()),
                    Arc::new(SortBelowFilter),
                    Arc::new(PushdownSort::new()),
                    Arc::new(KeepTimeOrder),
                ])),
            ],
            any,
        }
    }

    pub(crate) fn analyzer(&self, shape: Shape) -> &Analyzer {
        if shape == Shape::Any {
            &self.full_analyzer
        } else {
            &self.short_analyzer
        }
    }

    pub(crate) fn optimizer(&self, shape: Shape) -> &Optimizer {
        if shape == Shape::Any {
            &self.full
        } else {
            &self.short
        }
    }

    pub(crate) fn physical(&self, shape: Shape) -> &[Arc<dyn PhysicalOptimizerRule + Send + Sync>] {
        match shape {
            Shape::Plain => &self.plain,
            Shape::Chain => &self.chain,
            Shape::Any => &self.any,
        }
    }
}

/// The shape of a plan, before or after the logical rules.
pub(crate) fn shape_of(plan: &LogicalPlan) -> Shape {
    let mut shape = Shape::Plain;
    let mut next = plan;
    loop {
        if has_subquery(next) {
            return Shape::Any;
        }
        next = match next {
            LogicalPlan::Projection(node) => &node.input,
            LogicalPlan::Filter(node) => &node.input,
            LogicalPlan::SubqueryAlias(node) => &node.input,
            LogicalPlan::Limit(node) => &node.input,
            LogicalPlan::Explain(node) => &node.plan,
            LogicalPlan::Analyze(node) => &node.input,
            LogicalPlan::Sort(node) => {
                shape = Shape::Chain;
                &node.input
            }
            LogicalPlan::Aggregate(node) => {
                shape = Shape::Chain;
                &node.input
            }
            LogicalPlan::TableScan(scan)
                if StoredTable::is_in(scan) || PlacedTable::is_in(scan) =>
            {
                return shape;
            }
            LogicalPlan::Extension(node) if node.node.as_any().is::<AggregateNode>() => {
                return shape;
            }
            _ => return Shape::Any,
        };
    }
}

/// Whether the rows of a table should come in its order: of one that a caller gave, unless they go into aggregates for which no order
/// counts, and of a stored one for aggregates that go by time.
pub(crate) fn keeps_order(plan: &LogicalPlan) -> bool {
    let goes_by_order =
        |expr: &Expr| Ok(matches!(expr, Expr::AggregateFunction(call) if goes_by_order(call)));
    let (mut has_given, mut aggregates, mut by_order, mut by_time) = (false, false, false, false);
    // The closures cannot fail.
    let _ = plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) => has_given |= !StoredTable::is_in(scan),
            LogicalPlan::Aggregate(aggregate) => {
                aggregates = true;
                by_time |= wants_rows_in_time(aggregate);
                for expr in &aggregate.aggr_expr {
                    by_order |= expr.exists(goes_by_order)?;
                }
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    });
    by_time || has_given && (!aggregates || by_order)
}

/// Whether a plan may compare floats, or compute with them: others hand them on, and every bit with them.
pub(crate) fn compares_floats(plan: &LogicalPlan) -> bool {
    let found = plan.exists(|node| {
        let handed_on = match node {
            LogicalPlan::Projection(_) => true,
            LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::TableScan(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_) => false,
            _ => return Ok(true),
        };
        let mut compares = has_subquery(node);
        let inputs = node.inputs();
        let is_float = |expr: &Expr| {
            Ok(
                matches!(expr, Expr::Column(column) if inputs.iter().any(|input| {
                    let field = input.schema().field_from_column(column);
                    field.is_ok_and(|field| field.data_type().is_floating())
                })),
            )
        };
        node.apply_expressions(|expr| {
            let bare = match expr {
                Expr::Alias(alias) => &alias.expr,
                other => other,
            };
            let is_column = matches!(bare, Expr::Column(_));
            compares |= !(handed_on && is_column) && expr.exists(is_float)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(compares)
    });
    found.unwrap_or(true)
}

fn has_subquery(node: &LogicalPlan) -> bool {
    let is_subquery = |expr: &Expr| {
        Ok(matches!(
            expr,
            Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::ScalarSubquery(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Unnest(_)
                | Expr::WindowFunction(_)
        ))
    };
    let mut found = false;
    // The closure cannot fail.
    let _ = node.apply_expressions(|expr| {
        found |= expr.exists(is_subquery)?;
        Ok(if found {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    });
    found
}

/// The plan with LIMITs of their own above windows instead of sorts with a limit. Where rows come in order already such a sort goes,
/// and DataFusion takes its limit to the rows below the window, which then sees no others.
pub(crate) fn with_limits_above_windows(plan: &LogicalPlan) -> Result<Cow<'_, LogicalPlan>> {
    let is_window = |node: &LogicalPlan| Ok(matches!(node, LogicalPlan::Window(_)));
    let mut has_windows = false;
    plan.apply_with_subqueries(|node| {
        has_windows |= is_window(node)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !has_windows {
        return Ok(Cow::Borrowed(plan));
    }
    let done = plan
        .clone()
        .transform_up_with_subqueries(|node| match node {
            LogicalPlan::Sort(mut sort)
                if sort.fetch.is_some() && sort.input.exists(is_window)? =>
            {
                let fetch = sort.fetch.take();
                let sorted = LogicalPlanBuilder::from(LogicalPlan::Sort(sort));
                sorted.limit(0, fetch)?.build().map(Transformed::yes)
            }
            node => Ok(Transformed::no(node)),
        })?;
    Ok(Cow::Owned(done.data))
}

/// Whether the thread that pulls can run a plan itself, and still check for cancellation soon: a chain over one table that hands on
/// batch after batch, or that has little to work on.
pub(crate) fn runs_inline(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut hands_on = true;
    let mut next = plan;
    loop {
        if let Some(scan) = next.downcast_ref::<TableScanExec>() {
            return scan.partitions() == 1 && (hands_on || scan.is_small());
        }
        if let Some(aggregate) = next.downcast_ref::<TableAggregateExec>() {
            return aggregate.is_small();
        }
        if let Some(scan) = next.downcast_ref::<PlacedScanExec>() {
            return scan.is_small();
        }
        hands_on &= next.is::<FilterExec>()
            || next.is::<ProjectionExec>()
            || next.is::<CooperativeExec>()
            || next.is::<GlobalLimitExec>()
            || next.is::<LocalLimitExec>();
        next = match next.children().as_slice() {
            [child] => child,
            [] => return next.is::<PlaceholderRowExec>() || next.is::<EmptyExec>(),
            _ => return false,
        };
    }
}

/// Rules for chains with sorts and aggregates, left out where a scan gives the first rows in the order wanted. The first rows by
/// time are what most statements with a sort ask for, and these rules took half of their time to find that no sort is needed.
#[derive(Debug)]
struct UnlessSortedByScan(PhysicalRules);

impl PhysicalOptimizerRule for UnlessSortedByScan {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if sorts_of_chain(&plan) == Some(1) {
            let sorted = SortBelowFilter.optimize(Arc::clone(&plan), config)?;
            let sorted = PushdownSort::new().optimize(sorted, config)?;
            if sorts_of_chain(&sorted) == Some(0) {
                return LimitPushdown::new().optimize(sorted, config);
            }
        }
        let mut rules = self.0.iter();
        rules.try_fold(plan, |plan, rule| rule.optimize(plan, config))
    }

    fn name(&self) -> &'static str {
        "thalweg_unless_sorted_by_scan"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The number of sorts in a chain of filters, projections and limits over a stored table, where each sort has a limit; else `None`.
fn sorts_of_chain(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let mut sorts = 0;
    let mut next = plan;
    while !next.is::<TableScanExec>() {
        match next.downcast_ref::<SortExec>() {
            Some(sort) => {
                sort.fetch()?;
                sorts += 1;
            }
            None => {
                let passes = next.is::<FilterExec>()
                    || next.is::<ProjectionExec>()
                    || next.is::<GlobalLimitExec>();
                passes.then_some(())?;
            }
        }
        let [child] = next.children()[..] else {
            return None;
        };
        next = child;
    }
    Some(sorts)
}

/// A filter keeps the order of its rows, so a scan below it that can give them in the wanted order saves the sort, which would
/// read the whole table for the latest rows of one sensor. `PushdownSort` stops at filters.
#[derive(Debug)]
pub(crate) struct SortBelowFilter;

impl PhysicalOptimizerRule for SortBelowFilter {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let replaced = plan.transform_down(|plan| {
            let filtered = match plan.downcast_ref::<SortExec>() {
                Some(sort) => filtered_in_order(sort)?,
                None => None,
            };
            Ok(filtered.map_or_else(|| Transformed::no(plan), Transformed::yes))
        })?;
        Ok(replaced.data)
    }

    fn name(&self) -> &'static str {
        "thalweg_sort_below_filter"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Replaces a sort of filtered rows by the filter over rows that come in order.
fn filtered_in_order(sort: &SortExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = sort.input().downcast_ref::<FilterExec>() else {
        return Ok(None);
    };
    if filter.fetch().is_some() {
        // It passes on the first rows of the order that it has.
        return Ok(None);
    }
    if sort.expr().iter().any(|key| !key.options.descending) {
        // Rows come in this order anyway, and several threads look for those that pass.
        return Ok(None);
    }
    // The filter may give out other columns than it takes.
    let order = match filter.projection() {
        None => sort.expr().to_vec(),
        Some(columns) => match below_projection(sort.expr(), columns)? {
            Some(order) => order,
            None => return Ok(None),
        },
    };
    let SortOrderPushdownResult::Exact { inner } = filter.input().try_pushdown_sort(&order)? else {
        return Ok(None);
    };
    if partition_count(&inner) != 1 {
        return Ok(None);
    }
    let filtered = with_child(sort.input(), inner)?;
    Ok(Some(match sort.fetch() {
        None => filtered,
        Some(rows) => filtered
            .with_fetch(Some(rows))
            .unwrap_or_else(|| Arc::new(GlobalLimitExec::new(filtered, 0, Some(rows)))),
    }))
}

/// The keys of a sort in terms of the rows that a projection to these columns takes.
fn below_projection(
    order: &[PhysicalSortExpr],
    columns: &[usize],
) -> Result<Option<Vec<PhysicalSortExpr>>> {
    let mut known = true;
    let order = order.iter().map(|key| {
        let expr = Arc::clone(&key.expr).transform(|expr| {
            let Some(column) = expr.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expr));
            };
            let Some(&below) = columns.get(column.index()) else {
                known = false;
                return Ok(Transformed::no(expr));
            };
            Ok(Transformed::yes(
                Arc::new(Column::new(column.name(), below)) as _,
            ))
        })?;
        Ok(PhysicalSortExpr::new(expr.data, key.options))
    });
    let order = order.collect::<Result<Vec<_>>>()?;
    Ok(known.then_some(order))
}

/// Scans are cut into partitions where that helps; where all that became of it is that rows lost their order, the
/// cut is taken back: one scan decodes on several threads and keeps the order of time.
#[derive(Debug)]
pub(crate) struct KeepTimeOrder;

impl PhysicalOptimizerRule for KeepTimeOrder {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(in_order) = chain_in_order(&plan)? {
            return Ok(in_order);
        }
        let replaced = plan.transform_down(|plan| {
            let gathers =
                plan.is::<CoalescePartitionsExec>() || plan.is::<SortPreservingMergeExec>();
            let chain = match plan.children().as_slice() {
                [child] if gathers && partition_count(child) == 1 => Some(ungathered(&plan, child)),
                [child] if gathers && plan.fetch().is_none() => chain_in_order(child)?,
                _ => None,
            };
            Ok(chain.map_or_else(|| Transformed::no(plan), Transformed::yes))
        })?;
        Ok(replaced.data)
    }

    fn name(&self) -> &'static str {
        "thalweg_keep_time_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn partition_count(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.properties().output_partitioning().partition_count()
}

/// Removes the gathering of one partition, and the buffer in front of it, which reads ahead.
fn ungathered(
    gathering: &Arc<dyn ExecutionPlan>,
    child: &Arc<dyn ExecutionPlan>,
) -> Arc<dyn ExecutionPlan> {
    let child = child
        .downcast_ref::<BufferExec>()
        .map_or(child, BufferExec::input);
    let child = Arc::clone(child);
    match (gathering.fetch(), child.fetch()) {
        (Some(rows), None) => Arc::new(GlobalLimitExec::new(child, 0, Some(rows))),
        (Some(rows), Some(fewer)) if rows < fewer => {
            Arc::new(GlobalLimitExec::new(child, 0, Some(rows)))
        }
        _ => child,
    }
}

/// The chain over an uncut scan; `None` if it is no such chain, or not cut.
fn chain_in_order(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        return Ok(if scan.partitions() > 1 {
            Some(Arc::new(scan.in_order()?))
        } else {
            None
        });
    }
    let passes = plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<UnorderedExec>();
    match plan.children().as_slice() {
        [child] if passes => match chain_in_order(child)? {
            Some(child) => Ok(Some(with_child(plan, child)?)),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

fn with_child(
    plan: &Arc<dyn ExecutionPlan>,
    child: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    use datafusion::physical_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
    Arc::clone(plan).replace_children(
        vec![child],
        ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
    )
}
