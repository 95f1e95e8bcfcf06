//! Queries that depend on the rows outside and have window functions, OFFSET, outer joins or an aggregate of all rows.
//!
//! DataFusion makes joins of such queries by taking the conditions on rows outside out of them: a window above then counts rows of all
//! of them, an OFFSET is dropped, an outer join keeps no row for those of which there is none, and an aggregate of no rows has no row.
//! The columns of these conditions are found by name. Invariant: what would be answered so is answered rightly or refused.

use super::empty_subqueries::has_one_row;
use super::nodes::in_one_node;
use crate::error::{to_datafusion, unsupported};
use crate::stack::with_room;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, JoinType, Result, ScalarValue};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, binary_expr, lit,
    when,
};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Whether it has rows is all that counts.
    Exists,
    Other,
    /// Not known yet: HAVING is looked at again where the query stands.
    Any,
}

/// The plan with such queries in a form whose answer is right.
pub(super) fn settled(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match &plan {
        LogicalPlan::Subquery(query) => check(query, Place::Any)?,
        LogicalPlan::Join(join) => {
            for side in [&join.left, &join.right] {
                if let Some(query) = lateral(side) {
                    check(query, Place::Other)?;
                }
            }
        }
        _ => {}
    }
    let mut found = false;
    plan.apply_expressions(|expr| {
        found |= expr.exists(|expr| Ok(query_of(expr).is_some()))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !found {
        return Ok(Transformed::no(plan));
    }
    in_one_node(plan, |expr, _| rewritten(expr))
}

fn lateral(side: &LogicalPlan) -> Option<&Subquery> {
    match side {
        LogicalPlan::Subquery(query) => Some(query),
        LogicalPlan::SubqueryAlias(alias) => lateral(&alias.input),
        LogicalPlan::Projection(projection) => lateral(&projection.input),
        _ => None,
    }
}

fn query_of(expr: &Expr) -> Option<(&Subquery, Place)> {
    match expr {
        Expr::Exists(exists) => Some((&exists.subquery, Place::Exists)),
        Expr::InSubquery(list) => Some((&list.subquery, Place::Other)),
        Expr::ScalarSubquery(query) => Some((query, Place::Other)),
        Expr::SetComparison(comparison) => Some((&comparison.subquery, Place::Other)),
        _ => None,
    }
}

fn rewritten(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Exists(Exists { subquery, negated }) if has_one_row(&subquery.subquery) => {
            Ok(Transformed::yes(lit(!negated)))
        }
        // One value, which an aggregate of no rows has as well.
        Expr::InSubquery(InSubquery {
            expr,
            subquery,
            negated,
        }) if !subquery.outer_ref_columns.is_empty() && has_one_row(&subquery.subquery) => {
            let operator = if negated {
                Operator::NotEq
            } else {
                Operator::Eq
            };
            check(&subquery, Place::Other)?;
            let value = Expr::ScalarSubquery(subquery);
            Ok(Transformed::yes(binary_expr(*expr, operator, value)))
        }
        Expr::ScalarSubquery(query) if !query.outer_ref_columns.is_empty() => {
            let value = of_all_rows(query)?;
            if let Expr::ScalarSubquery(query) = &value.data {
                check(query, Place::Other)?;
            }
            Ok(value)
        }
        other => {
            if let Some((query, place)) = query_of(&other) {
                check(query, place)?;
            }
            Ok(Transformed::no(other))
        }
    }
}

/// A value made of an aggregate of all rows, which always has one: with a condition as CASE in the place of HAVING, and evaluated
/// where it needs no rows.
fn of_all_rows(query: Subquery) -> Result<Transformed<Expr>> {
    let LogicalPlan::Projection(projection) = query.subquery.as_ref() else {
        return Ok(Transformed::no(Expr::ScalarSubquery(query)));
    };
    let (having, grouped) = match projection.input.as_ref() {
        LogicalPlan::Filter(filter) => (Some(&filter.predicate), &filter.input),
        _ => (None, &projection.input),
    };
    let (LogicalPlan::Aggregate(aggregate), [value]) = (grouped.as_ref(), &projection.expr[..])
    else {
        return Ok(Transformed::no(Expr::ScalarSubquery(query)));
    };
    if !aggregate.group_expr.is_empty() {
        return Ok(Transformed::no(Expr::ScalarSubquery(query)));
    }
    let schema = grouped.schema();
    let known = value.clone().transform_up(|expr| {
        let is_known = |inner: &Expr| Ok::<_, DataFusionError>(!inner.nullable(schema)?);
        Ok(match &expr {
            Expr::IsNull(inner) if is_known(inner)? => Transformed::yes(lit(false)),
            Expr::IsNotNull(inner) if is_known(inner)? => Transformed::yes(lit(true)),
            _ => Transformed::no(expr),
        })
    })?;
    let changed = known.transformed || having.is_some();
    let mut value = known.data.unalias();
    if let Some(having) = having {
        value = when(having.clone(), value).end()?;
    }
    let needs_rows = value.any_column_refs()
        || value.contains_outer()
        || value.is_volatile()
        || value.exists(|expr| Ok(query_of(expr).is_some()))?;
    if !needs_rows {
        return Ok(Transformed::yes(value));
    }
    if !changed {
        return Ok(Transformed::no(Expr::ScalarSubquery(query)));
    }
    let (table, field) = projection.schema.qualified_field(0);
    let value = value.alias_qualified(table.cloned(), field.name());
    let plan = LogicalPlanBuilder::from(Arc::clone(grouped)).project([value])?;
    let plan = Arc::new(plan.build()?);
    Ok(Transformed::yes(Expr::ScalarSubquery(
        query.with_plan(plan),
    )))
}

/// Refuses what would be answered wrongly.
fn check(query: &Subquery, place: Place) -> Result<()> {
    if query.outer_ref_columns.is_empty() {
        return Ok(());
    }
    check_names(query)?;
    query
        .subquery
        .apply(|node| {
            if let Some(message) = refused_on_top(node, place)? {
                return Err(to_datafusion(unsupported(message)));
            }
            let refused = match node {
                LogicalPlan::Window(_) => Some(
                    "a window function in a query that depends on the rows outside is not offered: compute it with PARTITION BY in a query \
                     of its own, and join that",
                ),
                LogicalPlan::Limit(limit) if place == Place::Exists && skips(limit.skip.as_deref()) => Some(
                    "OFFSET in an EXISTS that depends on the rows outside is not offered: compare (SELECT count(*) ...) with a number",
                ),
                LogicalPlan::Aggregate(aggregate)
                    if place == Place::Exists && aggregate.group_expr.is_empty() =>
                {
                    Some(match has_having(&query.subquery)? {
                        true => "HAVING without GROUP BY in an EXISTS that depends on the rows outside is not offered: compare (SELECT count(*) ...) \
                         with a number",
                        false => "an aggregate of all rows in an EXISTS that depends on the rows outside, or in a LATERAL there, is not offered: compute it in a query \
                         of its own, with GROUP BY, and join that",
                    })
                }
                _ => None,
            };
            match refused {
                Some(message) if depends(node)? => Err(to_datafusion(unsupported(message))),
                _ => Ok(TreeNodeRecursion::Continue),
            }
        })
        .map(|_| ())
}

/// Whether a condition stands on an aggregate of all rows.
fn has_having(query: &LogicalPlan) -> Result<bool> {
    let is_of_all = |plan: &LogicalPlan| matches!(plan, LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty());
    query.exists(|node| Ok(matches!(node, LogicalPlan::Filter(filter) if is_of_all(&filter.input))))
}

/// The message that refuses a node which would answer wrongly for rows outside that have no row below it.
fn refused_on_top(node: &LogicalPlan, place: Place) -> Result<Option<&'static str>> {
    if let LogicalPlan::Join(join) = node {
        let (left_may_lack, right_may_lack) = match join.join_type {
            JoinType::Inner => return Ok(None),
            JoinType::Full => (true, true),
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                (true, false)
            }
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                (false, true)
            }
        };
        let lacks = node.contains_outer_reference()
            || left_may_lack && depends(&join.left)?
            || right_may_lack && depends(&join.right)?;
        return Ok(lacks.then_some(
            "a column of the rows outside in ON of an outer join, in EXCEPT or in a query that is joined so is not offered: join in a query of \
             its own that has the columns which are compared, and compare them in WHERE",
        ));
    }
    let is_on_top = matches!(
        node,
        LogicalPlan::Filter(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Unnest(_)
    );
    let [input] = node.inputs()[..] else {
        return Ok(None);
    };
    let is_of_all = |input: &LogicalPlan| {
        Ok::<_, DataFusionError>(
            has_one_row(input)
                && input.exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(_))))?
                && depends(input)?,
        )
    };
    if let LogicalPlan::Projection(projection) = node {
        let is_fixed = place == Place::Other
            && projection.expr.iter().any(|expr| is_fixed(expr, input))
            && is_of_all(input)?;
        return Ok(is_fixed.then_some(
            "a constant beside an aggregate of all rows in a query that depends on the rows outside is not offered: write it in the SELECT above",
        ));
    }
    if !is_on_top || !is_of_all(input)? {
        return Ok(None);
    }
    Ok(Some(match node {
        // Refused at the aggregate in EXISTS.
        LogicalPlan::Filter(_) if place != Place::Other => return Ok(None),
        LogicalPlan::Filter(_) => {
            "HAVING without GROUP BY in a query that depends on the rows outside is not offered: write CASE WHEN condition THEN value END in \
             its SELECT"
        }
        _ => {
            "an aggregate of all rows below another one in a query that depends on the rows outside is not offered: GROUP BY the column that \
             is compared with them, in a query of its own, and join that"
        }
    }))
}

/// Whether a value is the same whatever rows there are: it would be NULL for rows outside that have none.
fn is_fixed(expr: &Expr, input: &LogicalPlan) -> bool {
    let known = expr.clone().transform_up(|expr| {
        Ok(match &expr {
            Expr::IsNull(inner) | Expr::IsNotNull(inner) if !inner.nullable(input.schema())? => {
                Transformed::yes(lit(false))
            }
            _ => Transformed::no(expr),
        })
    });
    known.is_ok_and(|known| !known.data.any_column_refs())
}

/// Refuses conditions in several places on columns of one name.
fn check_names(query: &Subquery) -> Result<()> {
    let mut places: Vec<Vec<String>> = Vec::new();
    let mut joins = false;
    query.subquery.apply(|node| {
        joins |= matches!(node, LogicalPlan::Join(_));
        if let LogicalPlan::Filter(filter) = node {
            let conditions = split_conjunction(&filter.predicate).into_iter();
            let columns = conditions
                .filter(|condition| condition.contains_outer())
                .flat_map(Expr::column_refs);
            places.push(columns.map(|column| column.name.clone()).collect());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let is_again = |(at, place): (usize, &Vec<String>)| {
        let before = places[..at].iter().flatten();
        before.into_iter().any(|name| place.contains(name))
    };
    if joins && places.iter().enumerate().any(is_again) {
        return Err(to_datafusion(unsupported(
            "columns of one name that several queries in FROM compare with the rows outside are not offered: compare them in one WHERE, above \
             the join",
        )));
    }
    Ok(())
}

fn skips(skip: Option<&Expr>) -> bool {
    !matches!(
        skip,
        None | Some(Expr::Literal(ScalarValue::Int64(Some(0)), _))
    )
}

/// How many queries stand in the conditions and values of one another.
pub(crate) fn nesting(plan: &LogicalPlan) -> Result<usize> {
    let mut most = 0;
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Some((query, _)) = query_of(expr) {
                    most = most.max(1 + with_room(|| nesting(&query.subquery))?);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(most)
}

/// Whether the expressions of a plan name columns of rows outside.
pub(crate) fn depends(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            found |= expr.contains_outer();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}
