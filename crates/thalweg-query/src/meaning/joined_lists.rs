//! Lists of one value that are joined by AND or OR.
//!
//! DataFusion takes two of them together by the texts of their items: where none is in both, `n IN (1, 2) AND n IN (3, 4)`
//! becomes false, also where `n` is NULL, and `a IN (b) AND a IN (c)` becomes false, also where `b` equals `c`. A later
//! version mends the first (apache/datafusion#24258). Invariant: of two lists that it would take together one is the
//! argument of a function that returns it as it is and into which no rule looks. What it takes together rightly stays:
//! `n = 1 OR n IN (2, 3)`, `n NOT IN (1) AND n NOT IN (2)`. Lists also meet later, when conditions go down to a scan or a part that is
//! always true goes: where a statement has several, all are hidden that texts say too little of, those with NULL, columns or
//! placeholders, and those whose own answer is asked for. (A single list with placeholders still shows which blocks can be left out.)

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::{BinaryExpr, InList, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, binary_expr,
};
use datafusion::optimizer::utils::NamePreserver;
use std::sync::Arc;

/// The same plan, with lists hidden that might be taken together later.
pub(super) fn kept_apart_everywhere(plan: LogicalPlan) -> Result<LogicalPlan> {
    let (mut lists, mut is_needed) = (0, false);
    plan.apply_with_subqueries(|node| {
        let is_condition = is_condition(node);
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                lists += match part {
                    Expr::InList(_) => 1,
                    Expr::BinaryExpr(binary) => usize::from(binary.op == Operator::Or),
                    _ => 0,
                };
                Ok(TreeNodeRecursion::Continue)
            })?;
            is_needed |= has_lists_to_hide(expr, is_condition)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if lists < 2 || !is_needed {
        return Ok(plan);
    }
    let kept = plan.transform_up_with_subqueries(|node| {
        let is_condition = is_condition(&node);
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let done = with_hidden_lists(expr, is_condition)?;
            Ok(done.update_data(|expr| name.restore(expr)))
        })
    })?;
    Ok(kept.data)
}

/// Whether NULL counts as false in the expressions of a node.
fn is_condition(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_))
}

/// The sides of AND and OR in a condition, for which NULL counts as false as well.
fn sides(expr: &Expr) -> Option<[&Expr; 2]> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.is_logic_operator() => {
            Some([left, right])
        }
        _ => None,
    }
}

fn has_lists_to_hide(expr: &Expr, is_truth: bool) -> Result<bool> {
    let mut parts = vec![expr];
    while let Some(part) = parts.pop() {
        if let Some(sides) = sides(part).filter(|_| is_truth) {
            parts.extend(sides);
            continue;
        }
        let found = match part {
            Expr::InList(list) if is_truth => says_too_little(list),
            part => part.exists(|part| Ok(matches!(part, Expr::InList(_))))?,
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The expression with its lists hidden; where NULL counts as false those alone that texts say too little of.
fn with_hidden_lists(expr: Expr, is_truth: bool) -> Result<Transformed<Expr>> {
    // The parts of a condition come from the top down: below anything but AND and OR all lists are hidden.
    expr.transform_down(|part| match part {
        part if is_truth && sides(&part).is_some() => Ok(Transformed::no(part)),
        Expr::InList(list) if is_truth && !says_too_little(&list) => {
            let same = Expr::InList(list);
            Ok(Transformed::new(same, false, TreeNodeRecursion::Jump))
        }
        part => {
            let done = part.transform_down(in_function)?;
            Ok(Transformed::new(
                done.data,
                done.transformed,
                TreeNodeRecursion::Jump,
            ))
        }
    })
}

fn in_function(part: Expr) -> Result<Transformed<Expr>> {
    let (part, is_hidden) = match part {
        Expr::InList(list) => (hidden(Expr::InList(list)), true),
        Expr::ScalarFunction(call) if call.func.inner().is::<AsItIs>() => {
            (Expr::ScalarFunction(call), false)
        }
        other => return Ok(Transformed::no(other)),
    };
    Ok(Transformed::new(part, is_hidden, TreeNodeRecursion::Jump))
}

/// Whether items that differ as texts may be equal, or are neither equal nor different.
fn says_too_little(list: &InList) -> bool {
    // Constants, as casts of literals, are worked out before lists are taken together.
    let is_open = |part: &Expr| match part {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(_) => false,
        _ => true,
    };
    // The closure cannot fail.
    let is_unknown = |item: &Expr| item.exists(|part| Ok(is_open(part))).unwrap_or(true);
    list.list.iter().any(is_unknown)
}

/// The same expression; of two lists that would be taken together the second one is hidden.
pub(super) fn kept_apart(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if are_taken_together(&left, op, &right) =>
        {
            Transformed::yes(binary_expr(*left, op, hidden(*right)))
        }
        other => Transformed::no(other),
    }
}

fn are_taken_together(left: &Expr, op: Operator, right: &Expr) -> bool {
    let are_lists = |left_is_negated, right_is_negated| {
        let of = listed(right, right_is_negated);
        of.is_some() && of == listed(left, left_is_negated)
    };
    // Where NOT stands before them, IN and NOT IN change places, and so do AND and OR.
    let is_mixed = || are_lists(false, true) || are_lists(true, false);
    match op {
        Operator::And => are_lists(false, false) || is_mixed(),
        Operator::Or => are_lists(true, true) || is_mixed(),
        _ => false,
    }
}

/// The value that is looked for, if `expr` is one list or several that become one, with IN or, where it `is_negated`, NOT IN.
fn listed(mut expr: &Expr, mut is_negated: bool) -> Option<&Expr> {
    while let Expr::Not(inner) = expr {
        (expr, is_negated) = (inner, !is_negated);
    }
    let joined_by = if is_negated {
        Operator::And
    } else {
        Operator::Or
    };
    let (mut of, mut is_list) = (None, false);
    // No recursion: there may be thousands.
    let mut parts = vec![expr];
    while let Some(part) = parts.pop() {
        let found = match part {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == joined_by => {
                is_list = true;
                parts.extend([&**left, &**right]);
                continue;
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if *op == Operator::Eq && !is_negated =>
            {
                match (&**left, &**right) {
                    (column @ Expr::Column(_), Expr::Literal(..))
                    | (Expr::Literal(..), column @ Expr::Column(_)) => column,
                    _ => return None,
                }
            }
            Expr::InList(list) if list.negated == is_negated => {
                is_list = true;
                &*list.expr
            }
            Expr::Not(inner) => match &**inner {
                Expr::InList(list) if list.negated != is_negated => {
                    is_list = true;
                    &*list.expr
                }
                _ => return None,
            },
            _ => return None,
        };
        if *of.get_or_insert(found) != found {
            return None;
        }
    }
    of.filter(|_| is_list)
}

fn hidden(expr: Expr) -> Expr {
    let function = ScalarUDF::new_from_impl(AsItIs {
        signature: Signature::exact(vec![DataType::Boolean], Volatility::Immutable),
    });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![expr]))
}

/// Returns its argument.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AsItIs {
    signature: Signature,
}

impl ScalarUDFImpl for AsItIs {
    fn name(&self) -> &'static str {
        "as_it_is"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match <[ColumnarValue; 1]>::try_from(args.args) {
            Ok([value]) => Ok(value),
            Err(values) => internal_err!("{} of {} values", self.name(), values.len()),
        }
    }
}
