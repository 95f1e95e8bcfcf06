//! `x IN (SELECT ...)` with NULL, and IN and EXISTS outside of WHERE.
//!
//! DataFusion gets NULL in the list of a NOT IN right only if the NOT IN is a condition of its own in WHERE, its
//! subquery is not correlated, and `x` is no constant; elsewhere it takes unknown for false, and `NOT` makes true of
//! it. It does not plan IN and EXISTS in SELECT either.
//!
//! Invariants: IN is true if the list has the value, else null if the list has a null, or has rows while `x` is null,
//! else false. The list of a subquery that is not correlated is never read once for each outer row. A correlated IN
//! outside of WHERE is left as it is, and is an error there.

use super::float_keys::computes;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, Result, ScalarValue};
use datafusion::functions_aggregate::expr_fn::{count, max};
use datafusion::logical_expr::expr::{BinaryExpr, Exists, InSubquery};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, ExprSchemable, Filter, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Subquery,
    lit, not, when,
};
use datafusion::optimizer::utils::NamePreserver;
use std::sync::Arc;

/// How much a row of the list tells of `x IN list`: the largest of all rows decides, and no rows mean false.
const IS_OTHER: i64 = 1;
const MAY_BE: i64 = 2;
const IS_IN: i64 = 3;

/// Rewrites such conditions in `plan` so that their values are right.
pub(super) fn three_valued(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !has_subqueries(&plan)? {
        return Ok(Transformed::no(plan));
    }
    match plan {
        LogicalPlan::Filter(filter) => in_filter(filter),
        LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => outside_of_filters(plan),
        plan => Ok(Transformed::no(plan)),
    }
}

fn has_subqueries(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_expressions(|expr| {
        found |= expr.exists(|expr| Ok(matches!(expr, Expr::InSubquery(_) | Expr::Exists(_))))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

fn in_filter(filter: Filter) -> Result<Transformed<LogicalPlan>> {
    let schema = filter.input.schema();
    let conditions = split_conjunction_owned(filter.predicate).into_iter();
    let conditions = conditions.map(|condition| match condition {
        Expr::InSubquery(list) if list.negated => not_in(list, schema),
        other => nested(other, schema),
    });
    let conditions = conditions.collect::<Result<Vec<_>>>()?;
    let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
    let filter = Filter::try_new(predicate, filter.input)?;
    Ok(Transformed::yes(LogicalPlan::Filter(filter)))
}

/// NOT IN as a condition of its own: a row for which it is null is left out, as if it were false.
fn not_in(list: InSubquery, schema: &DFSchema) -> Result<Expr> {
    let list = List::new(list, schema)?;
    if list.depends {
        let is_in = list.values()?.eq(list.outer()?);
        let unknown_or_in = match list.may_be_null {
            true => is_in.or(list.is_unknown()?),
            false => is_in,
        };
        return list.exists(unknown_or_in, true);
    }
    if !list.may_be_null {
        return Ok(list.unchanged());
    }
    if list.is_constant {
        return list.value(&mut Marks::None);
    }
    // DataFusion has a join for this, which is right.
    Ok(list.unchanged())
}

/// IN in a place where null may count as false. The list of a correlated subquery is compared by `=` if it has computed
/// floats: the join of DataFusion would compare bits, and NaN has several bit patterns.
fn is_in(list: InSubquery, schema: &DFSchema) -> Result<Expr> {
    let list = List::new(list, schema)?;
    if !list.depends || !list.computes_floats() {
        return Ok(list.unchanged());
    }
    let is_in = list.values()?.eq(list.outer()?);
    list.exists(is_in, false)
}

/// A condition inside of others. If these are AND and OR alone, null may count as false.
fn nested(condition: Expr, schema: &DFSchema) -> Result<Expr> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::And | Operator::Or) =>
        {
            let left = Box::new(nested(*left, schema)?);
            let right = Box::new(nested(*right, schema)?);
            Ok(Expr::BinaryExpr(BinaryExpr { left, op, right }))
        }
        Expr::InSubquery(list) if !list.negated => is_in(list, schema),
        other => {
            let done = other.transform_down(|expr| match expr {
                Expr::InSubquery(list) => {
                    let value = List::new(list, schema)?.value(&mut Marks::None)?;
                    // The new expression has such conditions itself, which must stay.
                    Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
                }
                expr => Ok(Transformed::no(expr)),
            })?;
            Ok(done.data)
        }
    }
}

/// Rewrites conditions in SELECT and in aggregates: each list becomes a join below the node.
fn outside_of_filters(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let [input] = plan.inputs()[..] else {
        return Ok(Transformed::no(plan));
    };
    let schema = Arc::clone(input.schema());
    let mut marks = Marks::Below(input.clone(), 0);
    let names = NamePreserver::new(&plan);
    let exprs = plan.expressions().into_iter().map(|expr| {
        let name = names.save(&expr);
        let done = expr.transform_down(|expr| match expr {
            Expr::InSubquery(list) if list.subquery.outer_ref_columns.is_empty() => {
                let value = List::new(list, &schema)?.value(&mut marks)?;
                Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
            }
            Expr::Exists(exists) => {
                let value = has_rows(exists)?;
                Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
            }
            expr => Ok(Transformed::no(expr)),
        })?;
        Ok(name.restore(done.data))
    });
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    let Marks::Below(input, _) = marks else {
        return Ok(Transformed::no(plan));
    };
    plan.with_new_exprs(exprs, vec![input])
        .map(Transformed::yes)
}

/// How it is determined whether a list has a value.
enum Marks {
    /// By IN itself.
    None,
    /// By a join below the node, which has a column for each list; with the number of lists so far.
    Below(LogicalPlan, usize),
}

fn has_rows(exists: Exists) -> Result<Expr> {
    let Subquery {
        subquery,
        outer_ref_columns,
        spans,
    } = exists.subquery;
    let plan = LogicalPlanBuilder::from(subquery);
    // With a LIMIT, a correlated subquery could not be planned as a join.
    let plan = match outer_ref_columns.is_empty() {
        true => plan.limit(0, Some(1))?,
        false => plan,
    };
    let rows = plan.aggregate(Vec::<Expr>::new(), vec![count(lit(1_i64))])?;
    let rows = Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(rows.build()?),
        outer_ref_columns,
        spans,
    });
    let has = rows.gt(lit(0_i64));
    Ok(if exists.negated { not(has) } else { has })
}

fn scalar(plan: LogicalPlan) -> Expr {
    Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(plan),
        outer_ref_columns: Vec::new(),
        spans: Default::default(),
    })
}

/// `x` and the list that it is compared with.
struct List<'a> {
    x: Expr,
    subquery: Subquery,
    negated: bool,
    schema: &'a DFSchema,
    may_be_null: bool,
    /// Whether the subquery is correlated.
    depends: bool,
    /// Whether `x` is the same for all rows.
    is_constant: bool,
}

impl<'a> List<'a> {
    fn new(list: InSubquery, schema: &'a DFSchema) -> Result<Self> {
        let x = *list.expr;
        let values_may_be_null = list.subquery.subquery.schema().field(0).is_nullable();
        let is_outer = |expr: &Expr| Ok(matches!(expr, Expr::OuterReferenceColumn(..)));
        Ok(Self {
            may_be_null: values_may_be_null || x.nullable(schema)?,
            depends: !list.subquery.outer_ref_columns.is_empty(),
            is_constant: x.column_refs().is_empty() && !x.exists(is_outer)? && !x.is_volatile(),
            x,
            subquery: list.subquery,
            negated: list.negated,
            schema,
        })
    }

    fn unchanged(self) -> Expr {
        let x = Box::new(self.x);
        Expr::InSubquery(InSubquery::new(x, self.subquery, self.negated))
    }

    fn computes_floats(&self) -> bool {
        let plan = self.subquery.subquery.as_ref();
        plan.schema().field(0).data_type().is_floating()
            && matches!(plan, LogicalPlan::Projection(projection) if projection.expr.first().is_some_and(computes))
    }

    /// The column of its values.
    fn values(&self) -> Result<Expr> {
        let (qualifier, field) = self.subquery.subquery.schema().qualified_field(0);
        Ok(Expr::Column(Column::from((qualifier, field.as_ref()))))
    }

    /// `x` as an outer reference, for use inside the subquery.
    fn outer(&self) -> Result<Expr> {
        let x = self.x.clone().transform_up(|expr| match expr {
            Expr::Column(column) => {
                let field = Arc::clone(self.schema.field_from_column(&column)?);
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            expr => Ok(Transformed::no(expr)),
        })?;
        Ok(x.data)
    }

    /// The condition, inside the subquery, that it is unknown whether a value of the list equals `x`.
    fn is_unknown(&self) -> Result<Expr> {
        Ok(self.values()?.is_null().or(self.outer()?.is_null()))
    }

    /// Whether the list has values for which `kind` holds.
    fn exists(&self, kind: Expr, negated: bool) -> Result<Expr> {
        let mut outer_ref_columns = self.subquery.outer_ref_columns.clone();
        self.outer()?.apply(|expr| {
            if matches!(expr, Expr::OuterReferenceColumn(..)) && !outer_ref_columns.contains(expr) {
                outer_ref_columns.push(expr.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        let plan = Filter::try_new(kind, Arc::clone(&self.subquery.subquery))?;
        let subquery = Subquery {
            subquery: Arc::new(LogicalPlan::Filter(plan)),
            outer_ref_columns,
            spans: Default::default(),
        };
        Ok(Expr::Exists(Exists::new(subquery, negated)))
    }

    /// The largest value of `known` over the list, by one aggregate.
    fn most(&self, known: Expr) -> Result<Expr> {
        let plan = LogicalPlanBuilder::from(Arc::clone(&self.subquery.subquery));
        let most = plan.aggregate(Vec::<Expr>::new(), vec![max(known)])?;
        Ok(scalar(most.build()?))
    }

    /// The value of the condition.
    fn value(self, marks: &mut Marks) -> Result<Expr> {
        let unknown = lit(ScalarValue::Boolean(None));
        let is_in = if self.is_constant && !self.depends {
            let known = when(self.values()?.eq(self.x.clone()), lit(IS_IN))
                .when(self.is_unknown()?, lit(MAY_BE))
                .otherwise(lit(IS_OTHER))?;
            let most = self.most(known)?;
            when(most.clone().eq(lit(IS_IN)), lit(true))
                .when(most.eq(lit(MAY_BE)), unknown)
                .otherwise(lit(false))?
        } else {
            let found = self.found(marks)?;
            if !self.may_be_null {
                found
            } else {
                let may_be = self.may_be()?;
                when(found, lit(true))
                    .when(may_be, unknown)
                    .otherwise(lit(false))?
            }
        };
        Ok(if self.negated { not(is_in) } else { is_in })
    }

    /// Whether the list has the value; false also if that is unknown.
    fn found(&self, marks: &mut Marks) -> Result<Expr> {
        let Marks::Below(plan, number) = marks else {
            let x = Box::new(self.x.clone());
            return Ok(Expr::InSubquery(InSubquery::new(
                x,
                self.subquery.clone(),
                false,
            )));
        };
        let alias = format!("__in_{number}");
        let values = LogicalPlanBuilder::from(Arc::clone(&self.subquery.subquery))
            .project([self.values()?.alias("value")])?
            .alias(alias.as_str())?
            .build()?;
        let value = Expr::Column(Column::new(Some(alias.as_str()), "value"));
        let joined = LogicalPlanBuilder::from(plan.clone())
            .join_on(values, JoinType::LeftMark, [self.x.clone().eq(value)])?
            .build()?;
        *marks = Marks::Below(joined, *number + 1);
        Ok(Expr::Column(Column::new(Some(alias), "mark")))
    }

    /// Whether it may be unknown if the list has the value: it has a null, or `x` is null and the list is not empty.
    fn may_be(&self) -> Result<Expr> {
        if self.depends {
            return self.exists(self.is_unknown()?, false);
        }
        let known = when(self.values()?.is_null(), lit(MAY_BE)).otherwise(lit(IS_OTHER))?;
        let more = when(self.x.clone().is_null(), lit(1_i64)).otherwise(lit(0_i64))?;
        // Null where the list is empty.
        Ok((self.most(known)? + more).gt_eq(lit(MAY_BE)))
    }
}
