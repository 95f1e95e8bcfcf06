//! Dates beside numbers, refused before types are made to agree.
//!
//! Invariant: a date is never compared with a number, and no value is a date in one case and a number in another. DataFusion takes the
//! number for days since 1970, so that `d > 2005-06-01`, where quotes were forgotten, is true of all dates since 1975; of times it
//! refuses all this itself, but for the default of `lag` and `lead`.

use super::nodes::holds;
use super::time_unit::compares;
use crate::error::{query, to_datafusion};
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::logical_expr::expr::{Between, BinaryExpr, Case, InList, WindowFunction};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;
use thalweg_table::schema::sql_type_name;

/// The rule that refuses them.
#[derive(Debug)]
pub(crate) struct DatesBesideNumbers;

impl AnalyzerRule for DatesBesideNumbers {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let calls = [
            "to_date",
            "make_date",
            "current_date",
            "today",
            "lag",
            "lead",
        ];
        if holds(
            &plan,
            |data_type| is_date(data_type) || data_type.is_nested(),
            &calls,
        )? {
            check(&plan)?;
        }
        Ok(plan)
    }

    fn name(&self) -> &'static str {
        "thalweg_dates_beside_numbers"
    }
}

fn is_date(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Date64)
}

fn check(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                check_expr(expr, &schema)?;
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        match node {
            LogicalPlan::Join(join) => {
                for (left, right) in &join.on {
                    let left = left.get_type(join.left.schema()).ok();
                    let right = right.get_type(join.right.schema()).ok();
                    compared(left, Operator::Eq, right)?;
                }
            }
            LogicalPlan::Union(union) => {
                check_columns(&union.inputs)?;
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Queries whose columns become one.
fn check_columns(queries: &[Arc<LogicalPlan>]) -> Result<()> {
    let Some(first) = queries.first() else {
        return Ok(());
    };
    for (place, column) in first.schema().fields().iter().enumerate() {
        let types = queries.iter().map(|query| {
            let field = query.schema().fields().get(place);
            field.map(|field| field.data_type().clone())
        });
        if let Some((one, other)) = mixed(types) {
            return plan_err!(
                "Incompatible inputs for Union: Previous inputs were of type {one}, but got incompatible type {other} on column '{}'",
                column.name()
            );
        }
    }
    Ok(())
}

/// A date and a number among values, in their order.
fn mixed(types: impl IntoIterator<Item = Option<DataType>>) -> Option<(DataType, DataType)> {
    let mut first: Option<DataType> = None;
    for data_type in types.into_iter().flatten() {
        if !is_date(&data_type) && !data_type.is_numeric() {
            continue;
        }
        match first {
            Some(first) if is_date(&first) != is_date(&data_type) => {
                return Some((first, data_type));
            }
            Some(_) => {}
            None => first = Some(data_type),
        }
    }
    None
}

fn compared(left: Option<DataType>, op: Operator, right: Option<DataType>) -> Result<()> {
    let Some((left, right)) = mixed([left, right]) else {
        return Ok(());
    };
    let op = match op {
        Operator::NotEq => "<>".to_owned(),
        op => op.to_string(),
    };
    refused(&left, &op, &right, &format!("d {op} '2026-01-31'"))
}

fn refused(one: &DataType, between: &str, other: &DataType, example: &str) -> Result<()> {
    let [one, other] = [one, other].map(|data_type| sql_type_name(data_type).to_lowercase());
    Err(to_datafusion(query(format!(
        "{one} {between} {other} cannot be compared: write a date in quotes, as in {example}"
    ))))
}

fn check_expr(expr: &Expr, schema: &DFSchema) -> Result<()> {
    // What has no type yet is for the rules that come later to refuse.
    let of = |expr: &Expr| expr.get_type(schema).ok();
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(*op) => {
            compared(of(left), *op, of(right))
        }
        Expr::Between(Between {
            expr, low, high, ..
        }) => {
            for bound in [low, high] {
                if let Some((one, other)) = mixed([of(expr), of(bound)]) {
                    let example = "d BETWEEN '2026-01-01' AND '2026-01-31'";
                    return refused(&one, "and", &other, example);
                }
            }
            Ok(())
        }
        Expr::InList(InList { expr, list, .. }) => {
            let wanted = of(expr);
            for item in list {
                if let Some((one, other)) = mixed([wanted.clone(), of(item)]) {
                    return refused(&one, "and", &other, "d IN ('2026-01-31')");
                }
            }
            Ok(())
        }
        Expr::InSubquery(found) => {
            let fields = found.subquery.subquery.schema().fields();
            let column = fields.first().map(|field| field.data_type().clone());
            match mixed([of(&found.expr), column]) {
                Some((one, other)) => {
                    plan_err!("expr type {one} can't cast to {other} in InSubquery")
                }
                None => Ok(()),
            }
        }
        Expr::Case(case) => check_case(case, of),
        Expr::ScalarFunction(call) => {
            let args = match call.func.name() {
                "coalesce" | "nullif" | "nvl" | "greatest" | "least" | "make_array" => {
                    &call.args[..]
                }
                "nvl2" => call.args.get(1..).unwrap_or_default(),
                _ => return Ok(()),
            };
            match mixed(args.iter().map(of)) {
                Some((one, other)) => in_call(call.func.name(), &one, &other),
                None => Ok(()),
            }
        }
        Expr::WindowFunction(call) => check_default(call, of),
        _ => Ok(()),
    }
}

fn check_case(case: &Case, of: impl Fn(&Expr) -> Option<DataType>) -> Result<()> {
    let thens = case.when_then_expr.iter().map(|(_, then)| then);
    if let Some((one, other)) = mixed(thens.chain(&case.else_expr).map(|expr| of(expr))) {
        return plan_err!(
            "Failed to coerce then ({one}) and else ({other}) to common types in CASE WHEN expression"
        );
    }
    let Some(expr) = &case.expr else {
        return Ok(());
    };
    let whens = case.when_then_expr.iter().map(|(when, _)| when);
    match mixed(std::iter::once(expr).chain(whens).map(|expr| of(expr))) {
        Some((one, other)) => plan_err!(
            "Failed to coerce case ({one}) and when ({other}) to common types in CASE WHEN expression"
        ),
        None => Ok(()),
    }
}

/// `lag(d, 1, 0)`, of times too, whose default DataFusion casts.
fn check_default(call: &WindowFunction, of: impl Fn(&Expr) -> Option<DataType>) -> Result<()> {
    let name = call.fun.name();
    let ("lag" | "lead", [value, _, default]) = (name, &*call.params.args) else {
        return Ok(());
    };
    match (of(value), of(default)) {
        (Some(value), Some(default)) if value.is_temporal() && default.is_numeric() => {
            in_call(name, &value, &default)
        }
        _ => Ok(()),
    }
}

fn in_call(name: &str, one: &DataType, other: &DataType) -> Result<()> {
    let [one, other] = [one, other].map(|data_type| sql_type_name(data_type).to_lowercase());
    plan_err!("{name} does not take ({one}, {other})")
}
