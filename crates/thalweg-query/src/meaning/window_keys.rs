//! Windows by expressions, as windows by columns.
//!
//! DataFusion derives in which order the values of an expression are from the order of its columns, in the sort below a window
//! otherwise than in the window: of `abs(a - b)` and `-(a / 2)` it then finds its own sort to be none. Invariant: rows are
//! partitioned and ordered by columns only, which a projection below the window computes.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Window};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::utils::NamePreserver;
use std::sync::Arc;

/// The rule that enforces the invariant, once types were made to agree.
#[derive(Debug)]
pub(crate) struct WindowKeys;

impl AnalyzerRule for WindowKeys {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Window(window) => by_columns(window),
            other => Ok(Transformed::no(other)),
        })
        .map(|done| done.data)
    }

    fn name(&self) -> &'static str {
        "thalweg_window_keys"
    }
}

fn by_columns(window: Window) -> Result<Transformed<LogicalPlan>> {
    let mut keys: Vec<Expr> = Vec::new();
    let node = LogicalPlan::Window(window);
    let names = NamePreserver::new(&node);
    let done = node.map_expressions(|expr| {
        let name = names.save(&expr);
        let done = expr.transform_up(|expr| Ok(with_columns(expr, &mut keys)))?;
        Ok(done.update_data(|expr| name.restore(expr)))
    })?;
    let LogicalPlan::Window(Window {
        input,
        window_expr,
        schema,
    }) = done.data
    else {
        return Ok(done);
    };
    if keys.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Window(Window {
            input,
            window_expr,
            schema,
        })));
    }
    let columns = input.schema().columns().into_iter().map(Expr::Column);
    let computed = (0..)
        .zip(keys)
        .map(|(place, key)| key.alias(name_of(place)));
    let computed: Vec<Expr> = columns.chain(computed).collect();
    let input = LogicalPlanBuilder::from(Arc::unwrap_or_clone(input))
        .project(computed)?
        .build()?;
    let window = Window::try_new(window_expr, Arc::new(input))?;
    // Without the keys: what is above knows the columns by their number.
    let columns = schema.columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(LogicalPlan::Window(window))
        .project(columns)?
        .build()
        .map(Transformed::yes)
}

fn name_of(place: usize) -> String {
    format!("__window_key_{place}")
}

/// A window function with columns in place of the expressions that it is partitioned and ordered by.
fn with_columns(expr: Expr, keys: &mut Vec<Expr>) -> Transformed<Expr> {
    let Expr::WindowFunction(mut call) = expr else {
        return Transformed::no(expr);
    };
    let mut transformed = false;
    let sorts = call.params.order_by.iter_mut().map(|sort| &mut sort.expr);
    for key in call.params.partition_by.iter_mut().chain(sorts) {
        if matches!(key, Expr::Column(_) | Expr::Literal(..)) {
            continue;
        }
        let place = keys.iter().position(|known| known == key);
        let place = place.unwrap_or_else(|| {
            keys.push(key.clone());
            keys.len() - 1
        });
        *key = Expr::Column(Column::from_name(name_of(place)));
        transformed = true;
    }
    Transformed::new_transformed(Expr::WindowFunction(call), transformed)
}
