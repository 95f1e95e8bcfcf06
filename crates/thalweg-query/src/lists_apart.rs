//! Lists of one value that are joined by AND or OR.
//!
//! DataFusion's simplification takes two of them together by the texts of their items: where none is in both, `n IN (1, 2) AND n IN
//! (3, 4)` becomes false and `n NOT IN (1, 2) OR n NOT IN (3, 4)` true, also where `n` is NULL, and `a IN (b) AND a IN (c)` becomes
//! false, also where `b` equals `c`. A later version mends the first (apache/datafusion#24258). Invariant: while an expression with
//! several conditions that are lists or may become such is simplified, each part of AND and OR is the argument of a function that
//! returns it as it is, and into which no rule looks from outside. A chain of OR, and one of AND of negated lists, stay one: what
//! is taken together there is right. Before and after that they are plain, so that they show which blocks can be left out and which
//! columns are keys of a join.

use crate::functions::unchanged::{is_part, part};
use crate::meaning::schema_below;
use crate::meaning::time_unit::{in_columns_unit, is_cast_time};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};
use datafusion::optimizer::simplify_expressions::{ExprSimplifier, SimplifyExpressions};
use datafusion::optimizer::utils::NamePreserver;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::sync::Arc;

/// DataFusion's rule that simplifies expressions, with lists kept apart.
#[derive(Debug, Default)]
pub(crate) struct SimplifyListsApart(SimplifyExpressions);

/// How often an expression is simplified: its parts may become a chain, and the chain a list.
const ROUNDS: usize = 3;

impl OptimizerRule for SimplifyListsApart {
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
        let plan = times_in_unit(plan)?;
        let is_changed = plan.transformed;
        let mut done = self.rewrite_lists_apart(plan.data, config)?;
        done.transformed |= is_changed;
        Ok(done)
    }
}

/// The node with comparisons of times in the unit of the times, where a column came into them since that was done first: from below
/// a union, a join or a window.
fn times_in_unit(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let may_compare = matches!(
        plan,
        LogicalPlan::Filter(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Projection(_)
            | LogicalPlan::TableScan(_)
    );
    let mut is_needed = false;
    if may_compare {
        plan.apply_expressions(|expr| {
            is_needed |= expr.exists(|part| Ok(is_cast_time(part)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    if !is_needed {
        return Ok(Transformed::no(plan));
    }
    let schema = schema_below(&plan)?;
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let done = expr.transform_up(|part| in_columns_unit(part, &schema))?;
        Ok(done.update_data(|expr| name.restore(expr)))
    })
}

impl SimplifyListsApart {
    fn rewrite_lists_apart(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let mut is_needed = false;
        plan.apply_expressions(|expr| {
            is_needed |= may_have_several_lists(expr)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !is_needed {
            return self.0.rewrite(plan, config);
        }
        let context = SimplifyContext::builder()
            .with_schema(Arc::new(schema_below(&plan)?))
            .with_config_options(config.options())
            .with_query_execution_start_time(config.query_execution_start_time())
            .build();
        // DataFusion does not exchange the sides of conditions of joins.
        let is_join = matches!(plan, LogicalPlan::Join(_));
        let simplifier = ExprSimplifier::new(context).with_canonicalize(!is_join);
        // Here, because names are taken before parts are hidden.
        let names = NamePreserver::new(&plan);
        let simplified = |expr: Expr| {
            let name = names.save(&expr);
            let done = simplified_apart(expr, &simplifier)?;
            Ok(done.update_data(|expr| name.restore(expr)))
        };
        let as_it_was = matches!(plan, LogicalPlan::Aggregate(_)).then(|| plan.clone());
        let done = plan.map_expressions(|expr| match expr {
            Expr::GroupingSet(_) => expr.map_children(simplified),
            expr => simplified(expr),
        })?;
        match (&done.data, as_it_was) {
            // An aggregate that becomes another function needs a projection above: it is left as it is.
            (LogicalPlan::Aggregate(aggregate), Some(plan))
                if !aggregate.aggr_expr.iter().all(is_aggregate) =>
            {
                Ok(Transformed::no(plan))
            }
            _ => Ok(done),
        }
    }
}

fn simplified_apart(mut expr: Expr, simplifier: &ExprSimplifier) -> Result<Transformed<Expr>> {
    let mut is_changed = false;
    for _ in 0..ROUNDS {
        let hidden = expr.transform_down(with_lists_hidden)?.data;
        let (done, _) = simplifier.simplify_with_cycle_count_transformed(hidden)?;
        is_changed |= done.transformed;
        expr = done.data.transform_up(|part| Ok(shown(part)))?.data;
        if !done.transformed {
            break;
        }
    }
    Ok(Transformed::new_transformed(expr, is_changed))
}

fn is_aggregate(expr: &Expr) -> bool {
    let mut inner = expr;
    while let Expr::Alias(alias) = inner {
        inner = &alias.expr;
    }
    matches!(inner, Expr::AggregateFunction(_))
}

/// Whether an expression may have several lists. NOT makes lists of chains of `<>`.
fn may_have_several_lists(expr: &Expr) -> Result<bool> {
    let mut lists = 0;
    expr.apply(|part| {
        let is_not = matches!(part, Expr::Not(_));
        lists += usize::from(is_list(part) || begins_chain(part) || is_not);
        Ok(match lists {
            0 | 1 => TreeNodeRecursion::Continue,
            _ => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(lists > 1)
}

/// Whether this is the first OR of a chain, of which each OR but that one has another one on its left.
fn begins_chain(expr: &Expr) -> bool {
    sides(expr, Operator::Or).is_some_and(|(left, _)| sides(left, Operator::Or).is_none())
}

fn sides(expr: &Expr, by: Operator) -> Option<(&Expr, &Expr)> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == by => Some((left, right)),
        _ => None,
    }
}

/// Whether a condition is a list, or becomes one when it is simplified.
fn is_list(expr: &Expr) -> bool {
    match expr {
        Expr::InList(_) | Expr::Like(_) | Expr::SimilarTo(_) => true,
        Expr::ScalarFunction(call) => call.name() == "array_has",
        Expr::BinaryExpr(BinaryExpr { op, .. }) => matches!(
            op,
            Operator::RegexMatch
                | Operator::RegexIMatch
                | Operator::RegexNotMatch
                | Operator::RegexNotIMatch
        ),
        _ => false,
    }
}

/// Hides lists and chains wherever they are, and each part of AND and OR, which may become one.
fn with_lists_hidden(expr: Expr) -> Result<Transformed<Expr>> {
    let (inner, is_negated) = below_not(&expr);
    if is_hidden(inner) {
        return Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump));
    }
    if is_list(inner) || chained_by(inner).is_some() {
        return Ok(Transformed::new(
            hidden(expr)?,
            true,
            TreeNodeRecursion::Jump,
        ));
    }
    if is_negated || !joins(inner) {
        return Ok(Transformed::no(expr));
    }
    expr.map_children(|part| {
        let (inner, _) = below_not(&part);
        let is_frame = joins(inner) && chained_by(inner).is_none();
        match inner {
            Expr::Literal(..) | Expr::Column(_) => Ok(Transformed::no(part)),
            inner if is_frame || is_hidden(inner) => Ok(Transformed::no(part)),
            _ => hidden(part).map(Transformed::yes),
        }
    })
}

fn below_not(expr: &Expr) -> (&Expr, bool) {
    let mut inner = expr;
    while let Expr::Not(below) = inner {
        inner = below;
    }
    (inner, !std::ptr::eq(inner, expr))
}

fn joins(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryExpr(binary) if binary.op.is_logic_operator())
}

fn is_hidden(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if is_part(&call.func))
}

/// The operator that joins the parts of a chain.
fn chained_by(expr: &Expr) -> Option<Operator> {
    [Operator::Or, Operator::And]
        .into_iter()
        .find(|op| is_chain(expr, *op))
}

/// An expression as an argument, with the lists inside of it hidden, but not those that a chain joins.
fn hidden(expr: Expr) -> Result<Expr> {
    let chain = chained_by(below_not(&expr).0);
    let expr = expr.transform_down(|part| {
        let is_frame =
            matches!(part, Expr::Not(_)) || chain.is_some_and(|op| sides(&part, op).is_some());
        if is_frame {
            return Ok(Transformed::no(part));
        }
        let done = part.map_children(|part| part.transform_down(with_lists_hidden))?;
        Ok(Transformed::new(
            done.data,
            done.transformed,
            TreeNodeRecursion::Jump,
        ))
    })?;
    Ok(part(expr.data))
}

/// Whether an expression is a chain of OR all of whose parts are lists or comparisons by `=`, or one of AND of negated lists.
fn is_chain(expr: &Expr, op: Operator) -> bool {
    // No recursion: there may be thousands.
    let mut parts = match sides(expr, op) {
        Some((left, right)) => vec![left, right],
        None => return false,
    };
    while let Some(part) = parts.pop() {
        match part {
            Expr::BinaryExpr(binary) if op == Operator::Or && binary.op == Operator::Eq => {}
            Expr::InList(list) if list.negated == (op == Operator::And) => {}
            part => match sides(part, op) {
                Some((left, right)) => parts.extend([left, right]),
                None => return false,
            },
        }
    }
    true
}

fn shown(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::ScalarFunction(mut call) if is_part(&call.func) => match call.args.pop() {
            Some(argument) => Transformed::yes(argument),
            None => Transformed::no(Expr::ScalarFunction(call)),
        },
        other => Transformed::no(other),
    }
}
