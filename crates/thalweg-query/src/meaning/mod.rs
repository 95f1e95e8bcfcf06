//! Rewrites of expressions that mean something else here than in DataFusion.
//!
//! Invariants: applied once types were made to agree, and before constants are folded; columns keep
//! their names and types.

mod aggregate_orders;
mod arithmetic;
mod carried_values;
pub(crate) mod cases;
pub(crate) mod casts;
mod computed_floats;
mod computed_lists;
pub(crate) mod correlated;
pub(crate) mod counted_sets;
pub(crate) mod dates;
pub(crate) mod dates_beside_numbers;
pub(crate) mod decimals;
mod drawn_once;
mod drawn_pairs;
pub(crate) mod empty_subqueries;
mod float_keys;
mod float_lists;
pub(crate) mod group_keys;
mod in_subqueries;
pub(crate) mod keys_below;
pub(crate) mod lengths;
mod naive_time;
mod narrower;
mod nodes;
mod one_row_joins;
pub(crate) mod one_unit;
mod parts;
mod sides;
mod simplifications;
pub(crate) mod time_orders;
pub(crate) mod time_texts;
pub(crate) mod time_unit;
mod unsigned_frames;
mod values_outside;
pub(crate) mod window_keys;
mod zoned_times;

pub(crate) use float_lists::with_both_zeros;

use datafusion::common::DFSchema;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::utils::NamePreserver;

/// The rule that makes these rewrites.
#[derive(Debug)]
pub(crate) struct Meaning;

impl AnalyzerRule for Meaning {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(rewrite_node)?.data;
        computed_floats::settled(plan)
    }

    fn name(&self) -> &'static str {
        "thalweg_meaning"
    }
}

fn rewrite_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    correlated::settled(plan)?
        .transform_data(group_keys::each_once)?
        .transform_data(one_row_joins::one_row_first)?
        .transform_data(|plan| {
            keys_below::computed_below(plan, |below| rewrite_node(below).map(|done| done.data))
        })?
        .transform_data(lengths::in_subqueries)?
        .transform_data(in_subqueries::three_valued)?
        .transform_data(values_outside::joined_below)?
        .transform_data(time_orders::by_time)?
        .transform_data(|plan| {
            drawn_pairs::of_rows_that_meet(plan, |join| rewrite_own(join).map(|done| done.data))
        })?
        .transform_data(|plan| {
            drawn_once::below(plan, |node| rewrite_own(node).map(|done| done.data))
        })?
        .transform_data(rewrite_own)
}

/// The node with its own expressions rewritten.
fn rewrite_own(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    rewrite_exprs(plan)?
        .transform_data(float_keys::in_node)?
        .transform_data(zoned_times::in_frames)?
        .transform_data(unsigned_frames::in_node)?
        .transform_data(lengths::in_node)
}

/// The columns that the expressions of a node may name.
pub(crate) fn schema_below(plan: &LogicalPlan) -> Result<DFSchema> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())
        }
        plan => Ok(merge_schema(&plan.inputs())),
    }
}

fn rewrite_exprs(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = schema_below(&plan)?;
    let names = NamePreserver::new(&plan);
    let is_condition = matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_));
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| rewrite(expr, &schema))?;
        let rewritten =
            rewritten.transform_data(|expr| cases::of_conditions(expr, &schema, is_condition))?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    casts::of_call(expr, schema)?
        .transform_data(|expr| computed_lists::apart(expr, schema))?
        .transform_data(|expr| Ok(sides::constant_right(expr)))?
        .transform_data(|expr| Ok(time_texts::with_seconds(expr, schema)))?
        .transform_data(|expr| Ok(naive_time::by_way_of_utc(expr, schema)))?
        .transform_data(|expr| Ok(zoned_times::on_clock(expr, schema)))?
        .transform_data(|expr| time_unit::in_columns_unit(expr, schema))?
        .transform_data(|expr| lengths::compared(expr, schema))?
        .transform_data(|expr| float_lists::with_one_zero(expr, schema))?
        .transform_data(|expr| float_keys::compared(expr, schema))?
        .transform_data(|expr| Ok(carried_values::as_aggregate(expr)))?
        .transform_data(|expr| Ok(aggregate_orders::each_key_once(expr)))?
        .transform_data(|expr| Ok(casts::to_coarser(expr, schema)))?
        .transform_data(|expr| Ok(casts::to_time_of_day(expr, schema)))?
        .transform_data(|expr| Ok(casts::within_floats(expr, schema)))?
        .transform_data(|expr| cases::kept(expr, schema))?
        .transform_data(|expr| Ok(narrower::unseen(expr, schema)))?
        .transform_data(|expr| Ok(parts::of_durations(expr, schema)))?
        .transform_data(|expr| Ok(simplifications::with_same_value(expr, schema)))?
        .transform_data(|expr| Ok(arithmetic::checked(expr, schema)))
}
