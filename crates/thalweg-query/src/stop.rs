//! Joins that can be cancelled.
//!
//! A join may go through any number of pairs of rows before it hands on a batch, or hand on any number of batches for
//! one that it takes, and operators yield only when they take one. Threads would be busy for minutes after a cancellation.
//! Invariants: every batch of a join, but of those on top of very many others, counts as work after which a
//! thread yields; the condition of a join fails once its plan was dropped; neither changes an answer.

use crate::deadline::Deadline;
use crate::error::{cancelled, to_datafusion};
use crate::stack::with_room;
use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many joins on top of one another count their batches. Each takes one of the 128 units of work that a task has before it
/// yields, before it polls its input: with more, no batch would ever get through.
const MAX_COUNTED: usize = 100;

/// By what the operators of one plan notice that it was cancelled, or that its time is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    is_cancelled: Arc<AtomicBool>,
    deadline: Option<Deadline>,
}

impl Stop {
    /// A plan that also stops at a deadline.
    pub(crate) fn at(deadline: Option<Deadline>) -> Self {
        Self {
            deadline,
            ..Self::default()
        }
    }

    pub(crate) fn set(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Fails once the plan is to stop.
    fn check(&self) -> thalweg_table::Result<()> {
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Err(cancelled());
        }
        self.deadline.as_ref().map_or(Ok(()), Deadline::check)
    }
}

/// Makes a plan stop soon after it was dropped.
pub(crate) fn stoppable(
    plan: Arc<dyn ExecutionPlan>,
    stop: &Stop,
) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(with_counted_joins(plan, stop)?.0)
}

/// Makes a plan stoppable; also returns how many joins on top of one another count their batches in it.
fn with_counted_joins(
    plan: Arc<dyn ExecutionPlan>,
    stop: &Stop,
) -> Result<(Arc<dyn ExecutionPlan>, usize)> {
    let mut counted = 0;
    let mut inputs = Vec::new();
    for input in plan.children() {
        let (stoppable, below) = with_room(|| with_counted_joins(Arc::clone(input), stop))?;
        counted = counted.max(below);
        inputs.push(stoppable);
    }
    let plan = replace_children_if_necessary(plan, inputs)?;
    let join = if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        nested_loop(join, stop)?
    } else if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        hash(join, stop)?
    } else if plan.is::<CrossJoinExec>() || plan.is::<SortMergeJoinExec>() {
        plan
    } else {
        return Ok((plan, counted));
    };
    if counted >= MAX_COUNTED {
        return Ok((join, counted));
    }
    Ok((Arc::new(CooperativeExec::new(join)), counted + 1))
}

fn nested_loop(join: &NestedLoopJoinExec, stop: &Stop) -> Result<Arc<dyn ExecutionPlan>> {
    let (left, right) = (Arc::clone(join.left()), Arc::clone(join.right()));
    let join = NestedLoopJoinExecBuilder::new(left, right, *join.join_type())
        .with_projection_ref(join.projection().clone())
        .with_filter(join.filter().map(|filter| stoppable_filter(filter, stop)))
        .build()?;
    Ok(Arc::new(join))
}

fn hash(join: &HashJoinExec, stop: &Stop) -> Result<Arc<dyn ExecutionPlan>> {
    let filter = join.filter().map(|filter| stoppable_filter(filter, stop));
    let join = join.builder().with_filter(filter).build()?;
    Ok(Arc::new(join))
}

fn stoppable_filter(filter: &JoinFilter, stop: &Stop) -> JoinFilter {
    let condition = Stoppable {
        condition: Arc::clone(filter.expression()),
        stop: stop.clone(),
    };
    JoinFilter::new(
        Arc::new(condition),
        filter.column_indices().to_vec(),
        Arc::clone(filter.schema()),
    )
}

/// A condition that fails once its plan was cancelled.
#[derive(Debug)]
struct Stoppable {
    condition: Arc<dyn PhysicalExpr>,
    stop: Stop,
}

impl PartialEq for Stoppable {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition)
    }
}

impl Eq for Stoppable {}

impl Hash for Stoppable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

impl fmt::Display for Stoppable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}

impl PhysicalExpr for Stoppable {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.stop.check().map_err(to_datafusion)?;
        self.condition.evaluate(batch)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.condition.return_field(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match <[_; 1]>::try_from(children) {
            Ok([condition]) => Ok(Arc::new(Self {
                condition,
                stop: self.stop.clone(),
            })),
            Err(children) => internal_err!("a condition with {} children", children.len()),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}
