//! Sorts by values that are drawn for each row.
//!
//! DataFusion leaves out all columns where none is used above, and fails to take the first rows of rows without columns. Invariant: what
//! rows are sorted by at random is a column.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Sort};
use std::sync::Arc;

/// The sort with such values computed below it.
pub(super) fn by_columns(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Sort(Sort {
        mut expr,
        input,
        fetch,
    }) = plan
    else {
        return Ok(Transformed::no(plan));
    };
    let mut keys = Vec::new();
    for sort in &mut expr {
        if sort.expr.is_volatile() {
            let name = format!("__sort_key_{}", keys.len());
            let key = Expr::Column(Column::from_name(&name));
            keys.push(std::mem::replace(&mut sort.expr, key).alias(name));
        }
    }
    if keys.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Sort(Sort {
            expr,
            input,
            fetch,
        })));
    }
    let columns: Vec<Expr> = { input.schema().columns().into_iter() }
        .map(Expr::Column)
        .collect();
    let computed = columns.iter().cloned().chain(keys);
    let input = LogicalPlanBuilder::from(Arc::unwrap_or_clone(input))
        .project(computed)?
        .build()?;
    let input = Arc::new(input);
    let sort = LogicalPlan::Sort(Sort { expr, input, fetch });
    LogicalPlanBuilder::from(sort)
        .project(columns)?
        .build()
        .map(Transformed::yes)
}
