//! Functional dependencies: columns that are unique in their rows, and so determine the other columns.
//!
//! DataFusion takes a column that is unique in one side of a join, or before `unnest`, for unique behind it, once the rows are grouped
//! again: it drops other keys of GROUP BY that nobody needs above, and adds keys that are not determined. Invariant: nothing is
//! taken for unique behind a join or `unnest` when statements are planned, nor where keys are dropped.

use crate::meaning::correlated::depends;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchemaRef, FunctionalDependencies, Result};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{LogicalPlan, Projection};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion_sql::sqlparser::ast::TableFactor;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Plans the queries in FROM and in WITH, for one statement at a time.
#[derive(Debug, Default)]
pub(crate) struct Relations {
    /// Whether the relation that comes next is one that DataFusion was just asked to plan.
    is_asked: AtomicBool,
}

impl RelationPlanner for Relations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let is_query = matches!(
            relation,
            TableFactor::Derived { .. } | TableFactor::Table { .. }
        );
        if self.is_asked.swap(false, Ordering::Relaxed) || !is_query {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        self.is_asked.store(true, Ordering::Relaxed);
        let plan = context.plan(relation);
        self.is_asked.store(false, Ordering::Relaxed);
        let plan = without_dependencies(plan?)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
            plan, None,
        ))))
    }
}

fn without_dependencies(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !has_dependencies(plan.schema()) || depends(&plan)? {
        return Ok(plan);
    }
    let schema = stripped(plan.schema())?;
    let projection = Projection::new_from_schema(Arc::new(plan), schema);
    Ok(LogicalPlan::Projection(projection))
}

fn has_dependencies(schema: &DFSchemaRef) -> bool {
    !schema.functional_dependencies().is_empty()
}

fn stripped(schema: &DFSchemaRef) -> Result<DFSchemaRef> {
    let schema = schema.as_ref().clone();
    let nothing = FunctionalDependencies::empty();
    schema.with_functional_dependencies(nothing).map(Arc::new)
}

/// The rule that sees to it before keys are dropped.
#[derive(Debug)]
pub(crate) struct NothingUniqueBehindJoins;

impl OptimizerRule for NothingUniqueBehindJoins {
    fn name(&self) -> &'static str {
        "thalweg_nothing_unique_behind_joins"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        None
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let is_needed = plan.exists(|node| {
            let multiplies = matches!(node, LogicalPlan::Join(_) | LogicalPlan::Unnest(_));
            Ok(multiplies && has_dependencies(node.schema()))
        })?;
        if !is_needed {
            return Ok(Transformed::no(plan));
        }
        plan.transform_up(|node| {
            let node = node.recompute_schema()?;
            Ok(Transformed::yes(match node {
                LogicalPlan::Join(mut join) => {
                    join.schema = stripped(&join.schema)?;
                    LogicalPlan::Join(join)
                }
                LogicalPlan::Unnest(mut unnest) => {
                    unnest.schema = stripped(&unnest.schema)?;
                    LogicalPlan::Unnest(unnest)
                }
                other => other,
            }))
        })
    }
}
