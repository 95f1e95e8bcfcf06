//! Conditions and constants from which nothing is concluded about the order of rows.
//!
//! DataFusion derives from a condition which values a column can have, and does not sort by a column that has only one. It takes
//! casts and arithmetic backwards for that: of `ts::date = DATE '2024-01-02'` and `n / 10 = 1` it concludes that `ts` is midnight and
//! `n` is 10, though many values are mapped to the same one. And above a join it forgets what it concluded of functions.
//!
//! Invariant: of conditions with casts, functions or arithmetic only the answer is used, and a constant is a column like others.

use crate::meaning::time_unit::compares;
use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Literal, NegativeExpr, NotExpr, TryCastExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, conjunction, split_conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The rule that hides them. Before those that look at the order of rows.
#[derive(Debug)]
pub(crate) struct HideConditions;

impl PhysicalOptimizerRule for HideConditions {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let done = plan.transform_up(|plan| {
            if let Some(filter) = plan.downcast_ref::<FilterExec>() {
                return Ok(match with_hidden(filter)? {
                    Some(filter) => Transformed::yes(Arc::new(filter)),
                    None => Transformed::no(plan),
                });
            }
            if let Some(projection) = plan.downcast_ref::<ProjectionExec>()
                && projection
                    .expr()
                    .iter()
                    .any(|result| result.expr.is::<Literal>())
            {
                let projection = with_hidden_constants(projection)?;
                return Ok(Transformed::yes(Arc::new(projection)));
            }
            Ok(Transformed::no(plan))
        })?;
        Ok(done.data)
    }

    fn name(&self) -> &'static str {
        "thalweg_hide_conditions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The projection with constants that are columns like others: sorts by a constant and a key have been taken below joins that forgot the
/// constant, or below unions where each branch has another one.
fn with_hidden_constants(projection: &ProjectionExec) -> Result<ProjectionExec> {
    let results = projection.expr().iter().cloned().map(|mut result| {
        if result.expr.is::<Literal>() {
            result.expr = Arc::new(Hidden(result.expr));
        }
        result
    });
    ProjectionExec::try_new(results, Arc::clone(projection.input()))
}

fn with_hidden(filter: &FilterExec) -> Result<Option<FilterExec>> {
    let conditions = split_conjunction(filter.predicate());
    if !conditions.iter().any(|condition| maps_values(condition)) {
        return Ok(None);
    }
    let conditions = conditions.into_iter().map(|condition| {
        let condition = Arc::clone(condition);
        match maps_values(&condition) {
            true => Arc::new(Hidden(condition)) as Arc<dyn PhysicalExpr>,
            false => condition,
        }
    });
    let builder = FilterExecBuilder::from(filter).with_predicate(conjunction(conditions));
    builder.build().map(Some)
}

/// Whether a condition compares what was made of values, not the values themselves.
fn maps_values(condition: &Arc<dyn PhysicalExpr>) -> bool {
    let mut found = false;
    // The closure cannot fail.
    let _ = condition.apply(|expr| {
        found |= expr.is::<CastExpr>()
            || expr.is::<NegativeExpr>()
            || expr.is::<NotExpr>()
            || expr.is::<ScalarFunctionExpr>()
            || expr.is::<CaseExpr>()
            || expr.is::<TryCastExpr>()
            || expr
                .downcast_ref::<BinaryExpr>()
                .is_some_and(|binary| computes(*binary.op()));
        Ok(if found {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    });
    found
}

fn computes(op: Operator) -> bool {
    !compares(op) && !op.is_logic_operator()
}

/// A condition or constant of which only the answer is known.
#[derive(Clone, Debug)]
struct Hidden(Arc<dyn PhysicalExpr>);

impl PartialEq for Hidden {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq(&other.0)
    }
}

impl Eq for Hidden {}

impl Hash for Hidden {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PhysicalExpr for Hidden {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.0.evaluate(batch)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.0.return_field(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        // What is made of constants alone is taken for one.
        match self.0.is::<Literal>() {
            true => Vec::new(),
            false => vec![&self.0],
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match <[_; 1]>::try_from(children) {
            Ok([condition]) => Ok(Arc::new(Self(condition))),
            Err(children) if children.is_empty() => Ok(self),
            Err(children) => internal_err!("a condition with {} children", children.len()),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_sql(f)
    }
}
