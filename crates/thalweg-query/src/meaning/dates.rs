//! Dates with intervals, before types are made to agree.
//!
//! Invariant: a date plus or minus an interval is a time, as in PostgreSQL and DuckDB: DataFusion adds to the date and drops the hours.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::utils::NamePreserver;

/// The rule that sees to it.
#[derive(Debug)]
pub(crate) struct DatesAsTimes;

impl AnalyzerRule for DatesAsTimes {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_sums(&plan)? {
            return Ok(plan);
        }
        let done = plan.transform_up_with_subqueries(|node| {
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            let done = node.map_expressions(|expr| {
                let name = names.save(&expr);
                let done = expr.transform_up(|expr| as_time(expr, &schema))?;
                Ok(done.update_data(|expr| name.restore(expr)))
            })?;
            // Also where a column of its input has another type now.
            done.map_data(LogicalPlan::recompute_schema)
        })?;
        Ok(done.data)
    }

    fn name(&self) -> &'static str {
        "thalweg_dates_as_times"
    }
}

/// Whether anything is added or subtracted: short statements have no time for more than this look.
fn has_sums(plan: &LogicalPlan) -> Result<bool> {
    let is_sum = |expr: &Expr| {
        let adds = |op| matches!(op, Operator::Plus | Operator::Minus);
        Ok(matches!(expr, Expr::BinaryExpr(BinaryExpr { op, .. }) if adds(*op)))
    };
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(is_sum)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

fn as_time(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr else {
        return Ok(Transformed::no(expr));
    };
    if !matches!(op, Operator::Plus | Operator::Minus) {
        return Ok(Transformed::no(expr));
    }
    // What has no type yet is for the rules that come later to refuse.
    let (Ok(left_type), Ok(right_type)) = (left.get_type(schema), right.get_type(schema)) else {
        return Ok(Transformed::no(expr));
    };
    let is_date = |data_type: &DataType| matches!(data_type, DataType::Date32 | DataType::Date64);
    let is_interval = |data_type: &DataType| matches!(data_type, DataType::Interval(_));
    let time = |date: &Expr| {
        let to = DataType::Timestamp(TimeUnit::Nanosecond, None);
        Box::new(Expr::Cast(Cast::new(Box::new(date.clone()), to)))
    };
    let (left, right) = if is_date(&left_type) && is_interval(&right_type) {
        (time(left), right.clone())
    } else if *op == Operator::Plus && is_interval(&left_type) && is_date(&right_type) {
        (left.clone(), time(right))
    } else {
        return Ok(Transformed::no(expr));
    };
    let op = *op;
    Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr {
        left,
        op,
        right,
    })))
}
