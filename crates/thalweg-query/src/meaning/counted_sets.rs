//! `EXCEPT ALL` and `INTERSECT ALL`, which count equal rows.
//!
//! Invariant: of `l` rows on the left that equal `r` on the right, `EXCEPT ALL` keeps `l - r` and `INTERSECT ALL` the lesser of both.
//! DataFusion keeps all of them or none: both become a join that asks whether there is an equal row. So equal rows are numbered on
//! both sides, and the numbers are compared too.

use super::nodes::columns_of;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{
    Distinct, Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder, col,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

const LEFT_NUMBER: &str = "__left_row_number";
const RIGHT_NUMBER: &str = "__right_row_number";

/// The rule for them, before windows and DISTINCT get the meaning they have here.
#[derive(Debug)]
pub(crate) struct CountedSets;

impl AnalyzerRule for CountedSets {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(numbered)
            .map(|done| done.data)
    }

    fn name(&self) -> &'static str {
        "thalweg_counted_sets"
    }
}

/// The join of one of these operations with the numbers of equal rows; other nodes as they are.
fn numbered(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = plan else {
        return Ok(Transformed::no(plan));
    };
    if !counts_rows(&join) {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let columns = columns_of(&join.left);
    let (left_keys, right_keys) = join.on.iter().cloned().unzip();
    let left = with_numbers(&join.left, left_keys, LEFT_NUMBER)?;
    let right = with_numbers(&join.right, right_keys, RIGHT_NUMBER)?;
    let mut on = join.on;
    on.push((col(LEFT_NUMBER), col(RIGHT_NUMBER)));
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        join.filter,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    let plan = LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?;
    Ok(Transformed::yes(plan.build()?))
}

/// Whether this is a join as only these operations become: NULL equals NULL in it, and the left side may have equal rows. Where
/// it has none, as in EXCEPT without ALL, there is nothing to count.
fn counts_rows(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftAnti | JoinType::LeftSemi)
        && join.null_equality == NullEquality::NullEqualsNull
        && !matches!(&*join.left, LogicalPlan::Distinct(Distinct::All(_)))
}

fn with_numbers(input: &LogicalPlan, keys: Vec<Expr>, name: &str) -> Result<LogicalPlan> {
    let number = row_number().partition_by(keys).build()?;
    let mut exprs = columns_of(input);
    exprs.push(col(number.schema_name().to_string()).alias(name));
    LogicalPlanBuilder::from(input.clone())
        .window([number])?
        .project(exprs)?
        .build()
}
