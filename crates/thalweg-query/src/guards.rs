//! Conditions that would fail for rows which other conditions leave out.
//!
//! DataFusion works out the right side of AND for all rows of a batch unless few are left, and so `z <> 0 AND 10 // z > 5` divides by
//! zero where a fifth of the rows or more have another `z`. Trying the fast way first costs nothing where it succeeds; choosing rows
//! each time would copy all columns of each batch.
//!
//! Invariant: a condition of a filter fails only if it fails for a row of which the other conditions hold, those that cannot fail and
//! those in front of it.

use crate::meaning::time_unit::compares;
use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::compute::kernels::boolean::{and_kleene, or_kleene};
use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
    TryCastExpr,
};
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_expr_common::utils::scatter;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The rule that guards them.
#[derive(Debug)]
pub(crate) struct GuardConditions;

impl PhysicalOptimizerRule for GuardConditions {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let done = plan.transform_up(|plan| {
            let filter = plan.downcast_ref().map(with_guards).transpose()?;
            Ok(match filter.flatten() {
                Some(filter) => Transformed::yes(Arc::new(filter)),
                None => Transformed::no(plan),
            })
        })?;
        Ok(done.data)
    }

    fn name(&self) -> &'static str {
        "thalweg_guard_conditions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn with_guards(filter: &FilterExec) -> Result<Option<FilterExec>> {
    let conditions = split_conjunction(filter.predicate());
    let guards_itself =
        |condition: &Arc<dyn PhysicalExpr>| condition.is::<BinaryExpr>() && may_fail(condition);
    let is_needed = match conditions.as_slice() {
        [condition] => guards_itself(condition),
        several => several.iter().any(|condition| may_fail(condition)),
    };
    if !is_needed {
        return Ok(None);
    }
    let conditions = conditions.into_iter().cloned();
    let (failing, mut all): (Vec<_>, Vec<_>) = conditions.partition(may_fail);
    for condition in failing {
        let before = all.iter().cloned().chain([Arc::clone(&condition)]);
        let whole = conjunction(before);
        all.push(Arc::new(Guarded { condition, whole }));
    }
    let builder = FilterExecBuilder::from(filter).with_predicate(conjunction(all));
    builder.build().map(Some)
}

/// Whether a condition may fail for some values. Of functions, arithmetic and casts nothing is known.
fn may_fail(condition: &Arc<dyn PhysicalExpr>) -> bool {
    let mut found = false;
    // The closure cannot fail.
    let _ = condition.apply(|expr| {
        found |= match expr.downcast_ref::<BinaryExpr>() {
            Some(binary) => !compares(*binary.op()) && !binary.op().is_logic_operator(),
            None => {
                !(expr.is::<Column>()
                    || expr.is::<Literal>()
                    || expr.is::<NotExpr>()
                    || expr.is::<IsNullExpr>()
                    || expr.is::<IsNotNullExpr>()
                    || expr.is::<InListExpr>()
                    || expr.is::<LikeExpr>()
                    || expr.is::<TryCastExpr>())
            }
        };
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    });
    found
}

/// A condition that is worked out again, behind the others, where it fails.
#[derive(Clone, Debug)]
struct Guarded {
    condition: Arc<dyn PhysicalExpr>,
    /// The conditions that come before, and this one.
    whole: Arc<dyn PhysicalExpr>,
}

impl PartialEq for Guarded {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition) && self.whole.eq(&other.whole)
    }
}

impl Eq for Guarded {}

impl Hash for Guarded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

impl fmt::Display for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}

impl PhysicalExpr for Guarded {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        // A row of which the others do not hold is left out, whatever this one says of it.
        self.condition.evaluate(batch).or_else(|_| {
            let chosen = row_by_row(&self.whole, batch)?;
            Ok(ColumnarValue::Array(Arc::new(chosen)))
        })
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.condition.return_field(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition, &self.whole]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match <[_; 2]>::try_from(children) {
            Ok([condition, whole]) => Ok(Arc::new(Self { condition, whole })),
            Err(children) => internal_err!("a guarded condition with {} children", children.len()),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}

/// A condition of each row. The right sides of AND and OR are worked out only for rows of which the left sides leave it open.
fn row_by_row(condition: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<BooleanArray> {
    if let Some(binary) = condition.downcast_ref::<BinaryExpr>()
        && let op @ (Operator::And | Operator::Or) = *binary.op()
    {
        let left = row_by_row(binary.left(), batch)?;
        // NULL leaves it open as well.
        let open: BooleanArray = { left.iter() }
            .map(|value| Some(value != Some(op == Operator::Or)))
            .collect();
        if !open.has_true() {
            return Ok(left);
        }
        let right = row_by_row(binary.right(), &filter_record_batch(batch, &open)?)?;
        let right = scatter(&open, &right)?;
        let right = as_boolean_array(&right)?;
        return Ok(match op {
            Operator::And => and_kleene(&left, right)?,
            _ => or_kleene(&left, right)?,
        });
    }
    let value = condition.evaluate(batch)?.into_array(batch.num_rows())?;
    Ok(as_boolean_array(&value)?.clone())
}
