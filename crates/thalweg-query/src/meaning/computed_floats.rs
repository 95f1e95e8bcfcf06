//! Computed floats that are compared above the query that computes them: by UNION, DISTINCT, joins, IN and conditions.
//!
//! The NaN that 0.0 / 0.0 gives on some machines is another than that of a constant, which [`super::float_keys`] settles where an expression
//! itself is compared. Invariants: a NaN that a query inside gives out is one value to what compares it; where nothing does, what is computed
//! keeps its bits, and is not looked at.

use super::float_keys::computes;
use super::time_unit::compares;
use crate::functions::plain_floats::{has_one_nan, one_nan};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder,
};
use datafusion::optimizer::utils::NamePreserver;

/// Aggregates that compute with floats and compare none.
const SUMS: [&str; 9] = [
    "sum",
    "avg",
    "count",
    "stddev",
    "stddev_pop",
    "var",
    "var_samp",
    "var_pop",
    "covar_samp",
];

/// The plan with one NaN below whatever compares.
pub(super) fn settled(plan: LogicalPlan) -> Result<LogicalPlan> {
    if is_plain_chain(&plan)? {
        return Ok(plan);
    }
    let done = plan.transform_down_with_subqueries(|node| match &node {
        // Of IN and its like.
        LogicalPlan::Subquery(query) if query.outer_ref_columns.is_empty() => below(node),
        _ if compares_floats(&node)? => below(node),
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(done.data)
}

/// Whether a plan is one chain without subqueries, as most are, in which nothing computes floats below what compares them.
fn is_plain_chain(plan: &LogicalPlan) -> Result<bool> {
    let mut is_compared = false;
    let mut next = plan;
    loop {
        let mut has_subqueries = false;
        next.apply_subqueries(|_| {
            has_subqueries = true;
            Ok(TreeNodeRecursion::Stop)
        })?;
        if has_subqueries || is_compared && makes_floats(next) {
            return Ok(false);
        }
        is_compared = is_compared || compares_floats(next)?;
        next = match next.inputs()[..] {
            [] => return Ok(true),
            [input] => input,
            _ => return Ok(false),
        };
    }
}

/// The node with one NaN in the rows that it takes.
fn below(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let done = in_subqueries(node)?.transform_data(|node| node.map_children(everywhere))?;
    Ok(Transformed::new(
        done.data,
        done.transformed,
        TreeNodeRecursion::Jump,
    ))
}

fn everywhere(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up(|node| in_subqueries(node)?.transform_data(with_one_nan))
}

/// One that depends on the rows outside stays as it is: DataFusion makes a join of it by its form.
fn in_subqueries(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    node.map_subqueries(|query| match &query {
        LogicalPlan::Subquery(inside) if !inside.outer_ref_columns.is_empty() => {
            Ok(Transformed::no(query))
        }
        _ => everywhere(query),
    })
}

/// Whether some column of the node is a float that it computes.
fn makes_floats(node: &LogicalPlan) -> bool {
    match node {
        LogicalPlan::Projection(projection) => {
            let fields = projection.schema.fields().iter();
            let mut made = projection.expr.iter().zip(fields);
            made.any(|(expr, field)| is_float(field.data_type()) && computes(expr))
        }
        LogicalPlan::Values(values) => {
            let mut made = values.values.iter().flat_map(|row| {
                let fields = values.schema.fields().iter();
                row.iter().zip(fields)
            });
            made.any(|(expr, field)| is_float(field.data_type()) && computes(expr))
        }
        LogicalPlan::Aggregate(aggregate) => {
            let fields = aggregate.schema.fields();
            let made = fields.len().saturating_sub(aggregate.aggr_expr.len());
            fields[made..]
                .iter()
                .any(|field| is_float(field.data_type()))
        }
        LogicalPlan::Window(window) => {
            let fields = window.schema.fields();
            let made = fields.len().saturating_sub(window.window_expr.len());
            fields[made..]
                .iter()
                .any(|field| is_float(field.data_type()))
        }
        _ => false,
    }
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// Whether a node compares floats that are columns of its inputs.
fn compares_floats(node: &LogicalPlan) -> Result<bool> {
    let has_floats = |schema: &DFSchema| {
        schema
            .fields()
            .iter()
            .any(|field| is_float(field.data_type()))
    };
    Ok(match node {
        LogicalPlan::Distinct(Distinct::All(input)) => has_floats(input.schema()),
        LogicalPlan::Distinct(Distinct::On(_)) | LogicalPlan::RecursiveQuery(_) => {
            has_floats(node.schema())
        }
        LogicalPlan::Aggregate(aggregate) => by_floats(aggregate),
        LogicalPlan::Join(join) => {
            let schemas = [join.left.schema(), join.right.schema()];
            let mut keys = join.on.iter().flat_map(|(left, right)| [left, right]);
            let is_key = |key: &Expr| {
                let mut types = schemas
                    .iter()
                    .filter_map(|schema| key.get_type(*schema).ok());
                types.any(|data_type| is_float(&data_type))
            };
            keys.any(is_key) || in_conditions(node)?
        }
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::Window(_) => {
            in_conditions(node)?
        }
        _ => false,
    })
}

fn by_floats(aggregate: &Aggregate) -> bool {
    let schema = aggregate.input.schema();
    let of_float = |expr: &Expr| {
        expr.get_type(schema)
            .is_ok_and(|data_type| is_float(&data_type))
    };
    let is_compared = |expr: &Expr| {
        Ok(matches!(expr, Expr::AggregateFunction(call)
            if (call.params.distinct || !SUMS.contains(&call.func.name()))
                && call.params.args.iter().any(of_float)))
    };
    let groups = aggregate.group_expr.iter().flat_map(|expr| match expr {
        Expr::GroupingSet(set) => set.distinct_expr(),
        other => vec![other],
    });
    let mut groups = groups.filter(|expr| of_float(expr));
    groups.next().is_some()
        || aggregate
            .aggr_expr
            .iter()
            .any(|expr| expr.exists(is_compared).unwrap_or(true))
}

/// Whether an expression of the node compares columns of floats.
fn in_conditions(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    let mut schema = None;
    node.apply_expressions(|expr| {
        found |= expr.exists(|expr| {
            let is_comparison = match expr {
                Expr::BinaryExpr(BinaryExpr { op, .. }) => compares(*op),
                Expr::Between(_) | Expr::InList(_) | Expr::InSubquery(_) => true,
                Expr::Case(case) => case.expr.is_some(),
                Expr::ScalarFunction(call) => {
                    matches!(call.func.name(), "nullif" | "greatest" | "least")
                }
                _ => false,
            };
            if !is_comparison {
                return Ok(false);
            }
            let schema = schema.get_or_insert_with(|| merge_schema(&node.inputs()));
            expr.exists(|expr| {
                Ok(matches!(expr, Expr::Column(_))
                    && expr
                        .get_type(schema)
                        .is_ok_and(|data_type| is_float(&data_type)))
            })
        })?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// The node with one NaN in the floats that it computes.
fn with_one_nan(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !makes_floats(&node) {
        return Ok(Transformed::no(node));
    }
    if !matches!(node, LogicalPlan::Projection(_) | LogicalPlan::Values(_)) {
        return above(node);
    }
    let schema = merge_schema(&node.inputs());
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        let name = names.save(&expr);
        let bare = expr.unalias_nested().data;
        let is_made = computes(&bare)
            && !has_one_nan(&bare)
            && bare
                .get_type(&schema)
                .is_ok_and(|data_type| is_float(&data_type));
        let done = match is_made {
            true => Transformed::yes(one_nan(bare)),
            false => Transformed::no(bare),
        };
        Ok(done.update_data(|expr| name.restore(expr)))
    })
}

/// The node below a projection with one NaN in its floats.
fn above(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let made = match &node {
        LogicalPlan::Aggregate(aggregate) => aggregate.aggr_expr.len(),
        LogicalPlan::Window(window) => window.window_expr.len(),
        _ => 0,
    };
    let first = node.schema().fields().len().saturating_sub(made);
    let columns = node.schema().columns().into_iter().enumerate();
    let columns = columns.map(|(place, column)| {
        if place < first || !is_float(node.schema().field(place).data_type()) {
            return Expr::Column(column);
        }
        let (relation, name) = (column.relation.clone(), column.name.clone());
        one_nan(Expr::Column(column)).alias_qualified(relation, name)
    });
    let columns: Vec<Expr> = columns.collect();
    let plan = LogicalPlanBuilder::from(node).project(columns)?.build()?;
    Ok(Transformed::yes(plan))
}
