//! `x IN (SELECT ...)` with NULL, and IN and EXISTS outside of WHERE.
//!
//! DataFusion knows NULL in the list of a NOT IN only where that is a condition of its own in WHERE, does not depend on the
//! rows outside, and `x` is no constant; elsewhere it takes what is not known for false, and `NOT` makes true of it. And it
//! takes neither IN nor EXISTS out of SELECT. Invariants: an IN is true where the list has the value, else null where the list
//! has a null, or has rows while `x` is null, else false; a list that does not depend on the rows outside is never gone
//! through for each of them. An IN that depends on them is
//! left as it is outside of WHERE, where it is an error.

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

/// How much is known of `x IN list`, the most of all rows counts; no rows are no list.
const IS_OTHER: i64 = 1;
const MAY_BE: i64 = 2;
const IS_IN: i64 = 3;

/// `plan` with such conditions in a form whose answer is right.
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

/// NOT IN as a condition of its own: rows for which it is null are left out like those for which it is false.
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
    // DataFusion's own join for this.
    Ok(list.unchanged())
}

/// IN where what is null may as well be false. A list of computed floats that depends on the rows outside is looked through for an equal
/// one: DataFusion would compare their bits, of which NaN has several.
fn is_in(list: InSubquery, schema: &DFSchema) -> Result<Expr> {
    let list = List::new(list, schema)?;
    if !list.depends || !list.computes_floats() {
        return Ok(list.unchanged());
    }
    let is_in = list.values()?.eq(list.outer()?);
    list.exists(is_in, false)
}

/// A condition with others around it. Below AND and OR alone, what is null may as well be false.
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
                    // What it is made of has such conditions that are meant as they are.
                    Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
                }
                expr => Ok(Transformed::no(expr)),
            })?;
            Ok(done.data)
        }
    }
}

/// Rewrites conditions in SELECT and in aggregates: lists are joined below.
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

/// Where it is found out whether a list has a value.
enum Marks {
    /// By IN itself.
    None,
    /// By a join below the node, which has a column for each list; how many there are.
    Below(LogicalPlan, usize),
}

fn has_rows(exists: Exists) -> Result<Expr> {
    let Subquery {
        subquery,
        outer_ref_columns,
        spans,
    } = exists.subquery;
    let plan = LogicalPlanBuilder::from(subquery);
    // A limit would keep a query from becoming a join with the rows that it depends on.
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
    /// Whether the list depends on the rows outside.
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

    /// `x` as the list sees it.
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

    /// Whether a value of the list may be `x` or not, in the list.
    fn is_unknown(&self) -> Result<Expr> {
        Ok(self.values()?.is_null().or(self.outer()?.is_null()))
    }

    /// Whether the list has values of that kind.
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

    /// The most that is known of the values of the list, by one aggregate over it.
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

    /// Whether the list has the value; false as well where that is not known.
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

    /// Whether the list has a value that may be `x`.
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
