//! CASE of conditions, and AND and OR as CASE.
//!
//! DataFusion makes AND and OR of a CASE whose values are conditions, and then evaluates conditions for rows that CASE leaves out;
//! and it evaluates both sides of AND and OR. Invariants: a value of CASE that may fail, as `10 // z > 5` does where `z` is 0, is
//! evaluated for its own rows only; so is the right side of AND and OR where a division or a cast may fail, but for the conditions
//! of filters, which are guarded when they are run, and joins, which find their keys in them.

use super::time_unit::compares;
use crate::functions::unchanged::is_opaque;
use crate::stack::with_room;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, BinaryExpr, Case, InList, Like};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, Operator, TryCast, binary_expr, lit};
use std::collections::HashSet;

/// Longer chains are planned part by part, not one part inside of another.
const MAX_NESTED: usize = 16;

/// The CASE that `expr` is, as one that stays a CASE: `CASE TRUE WHEN condition` has the same rows.
pub(super) fn kept(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::Case(case) = &expr else {
        return Ok(Transformed::no(expr));
    };
    if case.expr.is_some() || !fails(case)? || expr.get_type(schema)? != DataType::Boolean {
        return Ok(Transformed::no(expr));
    }
    let is_true = lit(ScalarValue::Boolean(Some(true)));
    Ok(Transformed::yes(Expr::Case(Case {
        expr: Some(Box::new(is_true)),
        ..case.clone()
    })))
}

/// AND and OR inside of `expr` as CASE where their right sides may fail: of a condition those that are not its own parts.
pub(super) fn of_conditions(
    expr: Expr,
    schema: &DFSchema,
    is_condition: bool,
) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::And | Operator::Or),
            right,
        }) if is_condition => {
            // Chains are deep on the left.
            let left = with_room(|| of_conditions(*left, schema, true))?;
            let right = of_conditions(*right, schema, true)?;
            let changed = left.transformed || right.transformed;
            let expr = binary_expr(left.data, op, right.data);
            Ok(Transformed::new(expr, changed, TreeNodeRecursion::Continue))
        }
        expr if !expr.exists(|part| Ok(fails_by_value(part, schema)))? => Ok(Transformed::no(expr)),
        expr => guarded(expr, schema, false).map(Transformed::yes),
    }
}

/// The expression with guards; `is_truth` where NULL counts as false, as in the conditions of CASE and of FILTER.
fn guarded(expr: Expr, schema: &DFSchema, is_truth: bool) -> Result<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            op: op @ (Operator::And | Operator::Or),
            ..
        }) => guarded_chain(expr, op, schema, is_truth),
        Expr::Case(mut case) => {
            let is_condition = case.expr.is_none();
            let guard = |expr: &mut Box<Expr>, is_truth: bool| {
                **expr = guarded(std::mem::take(expr), schema, is_truth)?;
                Ok::<_, DataFusionError>(())
            };
            for expr in case.expr.iter_mut().chain(&mut case.else_expr) {
                guard(expr, false)?;
            }
            for (when, then) in &mut case.when_then_expr {
                guard(when, is_condition)?;
                guard(then, false)?;
            }
            Ok(Expr::Case(case))
        }
        mut expr => {
            let filter = filter_of(&mut expr).and_then(Option::take);
            let mut expr = inside(expr, schema)?;
            if let (Some(filter), Some(place)) = (filter, filter_of(&mut expr)) {
                *place = Some(Box::new(guarded(*filter, schema, true)?));
            }
            Ok(expr)
        }
    }
}

/// The FILTER of a call of an aggregate or a window.
fn filter_of(expr: &mut Expr) -> Option<&mut Option<Box<Expr>>> {
    match expr {
        Expr::WindowFunction(call) => Some(&mut call.params.filter),
        Expr::AggregateFunction(call) => Some(&mut call.params.filter),
        _ => None,
    }
}

/// A chain of AND or of OR with guards before parts that may fail. A part that fails only where one before it has failed needs none.
fn guarded_chain(chain: Expr, op: Operator, schema: &DFSchema, is_truth: bool) -> Result<Expr> {
    let mut parts = Vec::new();
    let mut rest = chain;
    let first = loop {
        match rest {
            Expr::BinaryExpr(binary) if binary.op == op => {
                parts.push(*binary.right);
                rest = *binary.left;
            }
            first => break first,
        }
    };
    let mut known_to_fail = failing_always(&first, schema)?;
    let mut groups = vec![guarded(first, schema, is_truth)?];
    for part in parts.into_iter().rev() {
        let fails = part.exists(|expr| Ok(fails_by_value(expr, schema)))?;
        let failing = failing_always(&part, schema)?;
        let fails_anew = fails && (failing.is_empty() || !failing.is_subset(&known_to_fail));
        let part = guarded(part, schema, is_truth)?;
        match groups.pop() {
            Some(last) if !fails_anew => groups.push(binary_expr(last, op, part)),
            last => {
                groups.extend(last);
                groups.push(part);
                known_to_fail = failing;
            }
        }
    }
    if groups.len() > MAX_NESTED && !groups.iter().any(Expr::is_volatile) {
        return Ok(as_flat_case(groups, op, is_truth));
    }
    let joined = { groups.into_iter() }.reduce(|left, right| as_case(left, op, right, is_truth));
    Ok(joined.unwrap_or_default())
}

/// The parts of an expression that may fail and are evaluated wherever it is; none if it chooses between parts.
fn failing_always(expr: &Expr, schema: &DFSchema) -> Result<HashSet<Expr>> {
    let mut failing = HashSet::new();
    let chooses = expr.exists(|part| {
        if fails_by_value(part, schema) {
            failing.insert(part.clone());
        }
        Ok(match part {
            Expr::Case(_) => true,
            Expr::BinaryExpr(binary) => matches!(binary.op, Operator::And | Operator::Or),
            Expr::ScalarFunction(call) => call.func.short_circuits(),
            _ => false,
        })
    })?;
    if chooses {
        failing.clear();
    }
    Ok(failing)
}

/// The expression with guards in its parts.
fn inside(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let done = expr.map_children(|part| guarded(part, schema, false).map(Transformed::yes))?;
    Ok(done.data)
}

/// `left AND right` as a CASE: of a condition `CASE left WHEN true THEN right ELSE false END`; of other values, in which NULL is not
/// false, with the shorter side there twice, so that nested ones do not double with each level: `CASE left WHEN false THEN false ELSE
/// left AND right END`, or `CASE left WHEN false THEN false WHEN true THEN right ELSE right AND NULL END`, also where `left` is drawn.
fn as_case(left: Expr, op: Operator, right: Expr, is_truth: bool) -> Expr {
    let decided = op == Operator::Or;
    let is = |value: bool| Box::new(lit(value));
    let (when_then_expr, otherwise) = match (is_truth, op) {
        (true, Operator::And) => (vec![(is(true), Box::new(right))], lit(false)),
        (true, _) => (vec![(is(true), is(true))], right),
        (false, _) if !left.is_volatile() && is_shorter(&left, &right) => {
            let cases = vec![(is(decided), is(decided))];
            (cases, binary_expr(left.clone(), op, right))
        }
        (false, _) => {
            let of_null = binary_expr(right.clone(), op, lit(ScalarValue::Boolean(None)));
            let cases = vec![(is(decided), is(decided)), (is(!decided), Box::new(right))];
            (cases, of_null)
        }
    };
    Expr::Case(Case {
        expr: Some(Box::new(left)),
        when_then_expr,
        else_expr: Some(Box::new(otherwise)),
    })
}

/// A long AND as `CASE FALSE WHEN a THEN false WHEN b THEN false ... ELSE a AND b AND ... END`, in which nothing is nested; of a
/// condition, in which NULL is false, as `CASE TRUE WHEN a IS NOT TRUE THEN false ... ELSE the last part END`. OR likewise.
fn as_flat_case(mut parts: Vec<Expr>, op: Operator, is_truth: bool) -> Expr {
    let decided = op == Operator::Or;
    let whole = match is_truth {
        true => parts.pop(),
        false => parts
            .iter()
            .cloned()
            .reduce(|left, right| binary_expr(left, op, right)),
    };
    let (is, decides): (bool, fn(Expr) -> Expr) = match (is_truth, op) {
        (true, Operator::And) => (true, |part| Expr::IsNotTrue(Box::new(part))),
        _ => (decided, |part| part),
    };
    let parts = parts.into_iter();
    let cases = parts.map(|part| (Box::new(decides(part)), Box::new(lit(decided))));
    Expr::Case(Case {
        expr: Some(Box::new(lit(is))),
        when_then_expr: cases.collect(),
        else_expr: whole.map(Box::new),
    })
}

/// Whether `left` has fewer parts than `right`. It counts no more of `left`, which is long in a chain.
fn is_shorter(left: &Expr, right: &Expr) -> bool {
    let most = parts_up_to(usize::MAX, right);
    parts_up_to(most, left) < most
}

/// The number of parts of an expression, or `most` if it has no fewer.
fn parts_up_to(most: usize, expr: &Expr) -> usize {
    let mut parts = 0;
    // The closure cannot fail.
    let _ = expr.apply(|_| {
        parts += 1;
        Ok(match parts < most {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    });
    parts
}

/// Whether this divides by what may be 0, or casts what may have no such value. (What overflows does so for few, and CASE is slow.)
pub(crate) fn fails_by_value(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Divide | Operator::Modulo,
            right,
        }) => {
            let is_float = |side: &Expr| side.get_type(schema).is_ok_and(|it| it.is_floating());
            !matches!(**right, Expr::Literal(..)) && !is_float(left)
        }
        Expr::Cast(Cast { expr: from, .. }) => {
            !matches!(**from, Expr::Literal(..))
                && from.get_type(schema).is_ok_and(|it| it.is_string())
        }
        Expr::ScalarFunction(call) => is_opaque(&call.func),
        _ => false,
    }
}

/// Whether anything but the first condition, which is asked of all rows, may fail.
fn fails(case: &Case) -> Result<bool> {
    let conditions = case.when_then_expr.iter().skip(1).map(|(when, _)| when);
    let values = case.when_then_expr.iter().map(|(_, then)| then);
    for expr in conditions.chain(values).chain(&case.else_expr) {
        if expr.exists(|expr| Ok(may_fail(expr)))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether an expression may fail for some values, apart from its parts. Of functions nothing is known.
fn may_fail(expr: &Expr) -> bool {
    match expr {
        // A cast of a constant is evaluated once.
        Expr::Cast(cast) => !matches!(*cast.expr, Expr::Literal(..)),
        Expr::BinaryExpr(BinaryExpr { op, .. }) => !compares(*op) && !op.is_logic_operator(),
        Expr::Column(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::Literal(..)
        | Expr::Not(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Alias(_)
        | Expr::Case(_)
        | Expr::Between(Between { .. })
        | Expr::InList(InList { .. })
        | Expr::Like(Like { .. })
        | Expr::TryCast(TryCast { .. }) => false,
        _ => true,
    }
}
