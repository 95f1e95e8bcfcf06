//! Functional dependencies: columns that are unique in their rows, and so determine the other columns.
//!
//! DataFusion derives them from GROUP BY and DISTINCT, and propagates them too far: what was unique in one side of a
//! join, or before `unnest`, counts as unique after it once the rows are grouped again, and so does a cast of such a
//! column, since both have one name. Because of them it drops keys of GROUP BY that are not used above, DISTINCT and
//! joins, and adds keys that the statement does not have.
//!
//! Invariant: no column counts as unique when statements are planned, nor where something is dropped. Tables have no
//! keys, so the only cost is a second DISTINCT or GROUP BY by the same columns that could have been left out.

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, FunctionalDependencies, Result};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Distinct, LogicalPlan};
use datafusion::optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion_sql::sqlparser::ast::TableFactor;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Plans the queries in FROM and in WITH, for one statement at a time.
#[derive(Debug, Default)]
pub(crate) struct Relations {
    /// Whether the next relation is one that DataFusion was just asked to plan.
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
        let plan = without_dependencies(plan?)?.data;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
            plan, None,
        ))))
    }
}

fn without_dependencies(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(|mut node| {
        let schema = own_schema(&mut node).filter(|schema| has_dependencies(schema));
        let Some(schema) = schema else {
            return Ok(Transformed::no(node));
        };
        let nothing = FunctionalDependencies::empty();
        let stripped = schema.as_ref().clone();
        *schema = Arc::new(stripped.with_functional_dependencies(nothing)?);
        Ok(Transformed::yes(node))
    })
}

/// The schema of a node, if it is not that of its input.
fn own_schema(node: &mut LogicalPlan) -> Option<&mut DFSchemaRef> {
    match node {
        LogicalPlan::Projection(it) => Some(&mut it.schema),
        LogicalPlan::Aggregate(it) => Some(&mut it.schema),
        LogicalPlan::Window(it) => Some(&mut it.schema),
        LogicalPlan::Join(it) => Some(&mut it.schema),
        LogicalPlan::Unnest(it) => Some(&mut it.schema),
        LogicalPlan::SubqueryAlias(it) => Some(&mut it.schema),
        LogicalPlan::Union(it) => Some(&mut it.schema),
        LogicalPlan::Distinct(Distinct::On(it)) => Some(&mut it.schema),
        _ => None,
    }
}

fn has_dependencies(schema: &DFSchemaRef) -> bool {
    !schema.functional_dependencies().is_empty()
}

/// The optimizer rule that removes all dependencies before they make another rule drop something.
#[derive(Debug)]
pub(crate) struct NothingUnique;

impl OptimizerRule for NothingUnique {
    fn name(&self) -> &'static str {
        "thalweg_nothing_unique"
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
        let mut is_needed = false;
        plan.apply_with_subqueries(|node| {
            let drops = matches!(
                node,
                LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_) | LogicalPlan::Join(_)
            );
            is_needed |= drops && node.inputs().iter().any(|it| has_dependencies(it.schema()));
            Ok(match is_needed {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })?;
        match is_needed {
            true => without_dependencies(plan),
            false => Ok(Transformed::no(plan)),
        }
    }
}

/// The rule of DataFusion that turns DISTINCT into GROUP BY, without dependencies: applied by itself, bottom up, it
/// would derive new ones on its way.
#[derive(Debug, Default)]
pub(crate) struct GroupDistinct(ReplaceDistinctWithAggregate);

impl OptimizerRule for GroupDistinct {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let has_key = |input: &LogicalPlan| has_dependencies(input.schema());
        match plan {
            LogicalPlan::Distinct(Distinct::All(input)) if has_key(&input) => {
                let input = without_dependencies(Arc::unwrap_or_clone(input))?.data;
                let distinct = Distinct::All(Arc::new(input));
                self.0.rewrite(LogicalPlan::Distinct(distinct), config)
            }
            other => self.0.rewrite(other, config),
        }
    }
}
