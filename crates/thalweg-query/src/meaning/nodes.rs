//! Helpers of the analyzer rules: they tell whether a plan has values of some types, rewrite the expressions of all its nodes, make
//! the values of a CASE or a list agree, and return the columns of a node.

use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Case, Expr, LogicalPlan, Union};
use datafusion::optimizer::utils::NamePreserver;

/// Whether an expression is a subquery.
pub(super) fn is_subquery(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)
    )
}

/// Whether a plan may have values of a type: in a column of its tables, as a constant, by a cast, or by one of these functions
/// (`calls`). To look closer would take too long for short statements.
pub(super) fn holds(
    plan: &LogicalPlan,
    is: impl Fn(&DataType) -> bool,
    calls: &[&str],
) -> Result<bool> {
    let makes = |expr: &Expr| {
        Ok(match expr {
            Expr::Cast(cast) => is(cast.field.data_type()),
            Expr::TryCast(cast) => is(cast.field.data_type()),
            Expr::Literal(value, _) => is(&value.data_type()),
            Expr::Placeholder(parameter) => {
                let field = parameter.field.as_ref();
                field.is_some_and(|field| is(field.data_type()))
            }
            Expr::ScalarFunction(call) => {
                let name = call.func.name();
                calls.contains(&name) || matches!(name, "arrow_cast" | "arrow_try_cast")
            }
            Expr::WindowFunction(call) => calls.contains(&call.fun.name()),
            _ => false,
        })
    };
    let in_columns =
        |schema: &Schema| { schema.fields().iter() }.any(|field| is(field.data_type()));
    let is_source = |node: &LogicalPlan| match node {
        LogicalPlan::TableScan(scan) => in_columns(&scan.source.schema()),
        LogicalPlan::Values(values) => in_columns(values.schema.as_arrow()),
        _ => false,
    };
    has(plan, is_source, makes)
}

/// Whether a plan has such a node, or an expression with such a part.
pub(super) fn has(
    plan: &LogicalPlan,
    is_node: impl Fn(&LogicalPlan) -> bool,
    is_part: impl Fn(&Expr) -> Result<bool>,
) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= is_node(node);
        node.apply_expressions(|expr| {
            found = found || expr.exists(&is_part)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// The plan with each expression rewritten, from its leaves up; `rewrite` also gets the columns that it can name. Names stay as
/// they are; types and what may be NULL are derived again, also above.
pub(super) fn in_all_nodes(
    plan: LogicalPlan,
    rewrite: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| {
        let done = in_one_node(node, &rewrite)?;
        // Also where a column of its input has another type now.
        done.map_data(recomputed)
    })?;
    Ok(done.data)
}

/// The node with each of its expressions rewritten, from their leaves up; `rewrite` also gets the columns that they can name. Names
/// stay as they are.
pub(super) fn in_one_node(
    node: LogicalPlan,
    rewrite: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        let name = names.save(&expr);
        let done = expr.transform_up(|expr| rewrite(expr, &schema))?;
        Ok(done.update_data(|expr| name.restore(expr)))
    })
}

/// The node with its columns derived again from its inputs. DataFusion's own function leaves those
/// of a union as they were.
pub(super) fn recomputed(node: LogicalPlan) -> Result<LogicalPlan> {
    let node = node.recompute_schema()?;
    let LogicalPlan::Union(union) = &node else {
        return Ok(node);
    };
    let types = |union: &Union| -> Vec<DataType> {
        let fields = union.schema.fields().iter();
        fields.map(|field| field.data_type().clone()).collect()
    };
    let again = Union::try_new_with_loose_types(union.inputs.clone())?;
    Ok(match types(&again) == types(union) {
        true => node,
        false => LogicalPlan::Union(again),
    })
}

/// The list with its values made to agree: `agreeing` gets them, and after them the value that is
/// looked for.
pub(super) fn of_list(
    list: InList,
    agreeing: impl Fn(Vec<Expr>) -> Transformed<Vec<Expr>>,
) -> Transformed<Expr> {
    let InList {
        expr,
        mut list,
        negated,
    } = list;
    list.push(*expr);
    agreeing(list).update_data(|mut list| {
        let expr = list.pop().map(Box::new);
        let expr = expr.unwrap_or_else(|| unreachable!("what is looked for stays"));
        Expr::InList(InList {
            expr,
            list,
            negated,
        })
    })
}

/// The CASE with its values made to agree: `agreeing_whens` gets those that are compared, and after them the value
/// that they are compared with, and `agreeing_thens` the results.
pub(super) fn of_case(
    case: Case,
    agreeing_whens: impl Fn(Vec<Expr>) -> Transformed<Vec<Expr>>,
    agreeing_thens: impl Fn(Vec<Expr>) -> Transformed<Vec<Expr>>,
) -> Transformed<Expr> {
    let Case {
        expr,
        when_then_expr,
        else_expr,
    } = case;
    let (mut whens, mut thens): (Vec<Expr>, Vec<Expr>) = when_then_expr
        .into_iter()
        .map(|(when, then)| (*when, *then))
        .unzip();
    let has_else = else_expr.is_some();
    thens.extend(else_expr.map(|expr| *expr));
    let thens = agreeing_thens(thens);
    let is_compared = expr.is_some();
    whens.extend(expr.map(|expr| *expr));
    let whens = if is_compared {
        agreeing_whens(whens)
    } else {
        Transformed::no(whens)
    };
    let transformed = thens.transformed || whens.transformed;
    let (mut thens, mut whens) = (thens.data, whens.data);
    let expr = if is_compared { whens.pop() } else { None };
    let else_expr = if has_else { thens.pop() } else { None };
    let pairs = whens.into_iter().zip(thens);
    let case = Expr::Case(Case {
        expr: expr.map(Box::new),
        when_then_expr: pairs
            .map(|(when, then)| (Box::new(when), Box::new(then)))
            .collect(),
        else_expr: else_expr.map(Box::new),
    });
    Transformed::new_transformed(case, transformed)
}

/// All columns of a node.
pub(super) fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    let columns = plan.schema().columns();
    columns.into_iter().map(Expr::Column).collect()
}
