//! Semi, anti and mark joins, which only ask whether there is a matching row.
//!
//! DataFusion's hash join visits all matching rows of a key, though the first one decides: with many rows per key it takes as
//! long as an inner join. Invariant: the side that is searched has each combination of the columns that the join uses only once.

use crate::meaning::time_unit::compares;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, Result};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{
    Cast, Distinct, Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, TryCast,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Functions with equal results for equal numbers.
const EQUAL_OF_EQUAL: [&str; 11] = [
    "abs",
    "ceil",
    "coalesce",
    "exp",
    "floor",
    "greatest",
    "least",
    "nullif",
    "plain_float",
    "round",
    "sqrt",
];

/// The optimizer rule that makes the searched side distinct. Runs after subqueries have become joins.
#[derive(Debug)]
pub(crate) struct EachKeyOnce;

impl OptimizerRule for EachKeyOnce {
    fn name(&self) -> &'static str {
        "thalweg_each_key_once"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = plan else {
            return Ok(Transformed::no(plan));
        };
        let asks = matches!(
            join.join_type,
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark
        );
        // Random values are drawn for each row that is asked for.
        let is_drawn = join.filter.as_ref().is_some_and(Expr::is_volatile);
        if !asks || is_drawn || join.on.is_empty() || has_each_once(&join.right) {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        let keys = columns_looked_at(&join);
        if tells_equal_apart(&join) {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        let right = LogicalPlanBuilder::from(Arc::clone(&join.right))
            .aggregate(keys.into_iter().map(Expr::Column), Vec::<Expr>::new())?
            .build()?;
        let once = Join::try_new(
            Arc::clone(&join.left),
            Arc::new(right),
            join.on.clone(),
            join.filter.clone(),
            join.join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?;
        // The column of a mark is named by the tables on the right.
        if !once.schema.iter().eq(join.schema.iter()) {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        Ok(Transformed::yes(LogicalPlan::Join(once)))
    }
}

/// Whether an expression of the join distinguishes values that are equal as keys, such as 0.0 and -0.0.
fn tells_equal_apart(join: &Join) -> bool {
    let schema = join.right.schema();
    let keys = join.on.iter().map(|(_, key)| key);
    keys.filter(|key| !matches!(key, Expr::Column(_)))
        .chain(&join.filter)
        .any(|expr| tells_zeros_apart(expr, schema))
}

/// Whether an expression may have another result for -0.0 in a column of `schema` than for 0.0, or one that is not equal to it.
/// Comparisons, sums and products do not; a quotient does.
fn tells_zeros_apart(expr: &Expr, schema: &DFSchema) -> bool {
    let holds_zeros = |expr: &Expr, are_seen: fn(&DataType) -> bool| {
        let is_seen = |column: &&Column| {
            let field = schema.field_from_column(column);
            field.is_ok_and(|field| are_seen(field.data_type()))
        };
        expr.column_refs().iter().any(is_seen)
    };
    // Lists with them are compared bit by bit.
    if !holds_zeros(expr, |it| it.is_floating() || it.is_nested()) {
        return false;
    }
    let passes_on = match expr {
        _ if holds_zeros(expr, DataType::is_nested) => false,
        Expr::BinaryExpr(BinaryExpr {
            op: Operator::Divide,
            right,
            ..
        }) => !holds_zeros(right, DataType::is_floating),
        Expr::BinaryExpr(BinaryExpr { op, .. }) => {
            compares(*op)
                || op.is_logic_operator()
                || matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply)
        }
        Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) => {
            field.data_type().is_numeric()
        }
        Expr::ScalarFunction(call) => EQUAL_OF_EQUAL.contains(&call.name()),
        Expr::Alias(_)
        | Expr::Column(_)
        | Expr::Negative(_)
        | Expr::Not(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::Between(_)
        | Expr::InList(_)
        | Expr::Case(_) => true,
        _ => false,
    };
    let mut tells = !passes_on;
    // The closure cannot fail.
    let _ = expr.apply_children(|part| {
        tells |= tells_zeros_apart(part, schema);
        Ok(TreeNodeRecursion::Continue)
    });
    tells
}

fn columns_looked_at(join: &Join) -> BTreeSet<Column> {
    let schema = join.right.schema();
    let keys = join.on.iter().map(|(_, key)| key);
    keys.chain(&join.filter)
        .flat_map(Expr::column_refs)
        .filter(|column| schema.has_column(column))
        .cloned()
        .collect()
}

/// Whether a plan is known to have no equal rows; looks no further than through aliases, filters and projections.
fn has_each_once(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.aggr_expr.is_empty(),
        LogicalPlan::Distinct(Distinct::All(_)) | LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::SubqueryAlias(alias) => has_each_once(&alias.input),
        LogicalPlan::Filter(filter) => has_each_once(&filter.input),
        LogicalPlan::Projection(projection) => {
            let is_column = |expr: &Expr| matches!(expr.clone().unalias(), Expr::Column(_));
            projection.expr.len() == projection.input.schema().fields().len()
                && projection.expr.iter().all(is_column)
                && has_each_once(&projection.input)
        }
        _ => false,
    }
}
