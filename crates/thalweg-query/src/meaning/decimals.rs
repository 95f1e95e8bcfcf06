//! Decimals beside floats, before types are made to agree.
//!
//! DataFusion makes both decimals of 15 digits after the point, which hold neither small numbers nor large ones. Invariants: a
//! number that is written in the statement becomes the decimal that it is where it has one, so that a condition on a column stays
//! exact and needs no cast of the column; beside any other float a decimal becomes a float, as in PostgreSQL and DuckDB.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, BinaryExpr, InSubquery, ScalarFunction};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Cast, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, Subquery, Union, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::utils::NamePreserver;
use std::sync::Arc;

use super::nodes::{holds, of_case, of_list, recomputed};
use super::time_unit::compares;

const MAX_DIGITS: i16 = 38;

/// The rule that enforces the invariants.
#[derive(Debug)]
pub(crate) struct DecimalsBesideFloats;

impl AnalyzerRule for DecimalsBesideFloats {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !holds(&plan, is_decimal, &[])? {
            return Ok(plan);
        }
        plan.transform_up_with_subqueries(in_node)
            .map(|done| done.data)
    }

    fn name(&self) -> &'static str {
        "thalweg_decimals_beside_floats"
    }
}

fn in_node(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    let names = NamePreserver::new(&node);
    let done = node.map_expressions(|expr| {
        let name = names.save(&expr);
        let done = expr.transform_up(|expr| rewritten(expr, &schema))?;
        Ok(done.update_data(|expr| name.restore(expr)))
    })?;
    // Also where a column of its input has another type now.
    done.map_data(recomputed)?
        .transform_data(|node| match node {
            LogicalPlan::Join(join) => joined(join),
            LogicalPlan::Union(union) => united(union),
            other => Ok(Transformed::no(other)),
        })
}

fn is_decimal(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Decimal128(..) | DataType::Decimal256(..)
    )
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

fn as_float(expr: Expr) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), DataType::Float64))
}

/// The decimal that a written number is, in digits that it shares with `beside`.
fn exact(expr: &Expr, beside: &DataType) -> Option<Expr> {
    let (Expr::Literal(ScalarValue::Float64(Some(value)), _), DataType::Decimal128(digits, scale)) =
        (expr, beside)
    else {
        return None;
    };
    let shown = if value.is_finite() {
        format!("{value}")
    } else {
        return None;
    };
    let (whole, fraction) = shown.split_once('.').unwrap_or((&shown, ""));
    let whole_digits = i16::try_from(whole.trim_start_matches('-').len()).ok()?;
    let own_scale = i16::try_from(fraction.len()).ok()?;
    let (digits, scale) = (i16::from(*digits), i16::from(*scale));
    let common = whole_digits.max(digits - scale) + own_scale.max(scale);
    if common > MAX_DIGITS || whole_digits + own_scale > MAX_DIGITS || scale < 0 {
        return None;
    }
    let value = format!("{whole}{fraction}").parse().ok()?;
    let precision = u8::try_from(whole_digits + own_scale).ok()?;
    let own_scale = i8::try_from(own_scale).ok()?;
    Some(lit(ScalarValue::Decimal128(
        Some(value),
        precision,
        own_scale,
    )))
}

/// Values that are to have one type.
fn agreeing(exprs: Vec<Expr>, schema: &DFSchema) -> Transformed<Vec<Expr>> {
    // What has no type yet is for the rules that come later to refuse.
    let types: Vec<Option<DataType>> = exprs
        .iter()
        .map(|expr| expr.get_type(schema).ok())
        .collect();
    let is = |of: fn(&DataType) -> bool| types.iter().flatten().any(of);
    let Some(decimal) = types.iter().flatten().find(|known| is_decimal(known)) else {
        return Transformed::no(exprs);
    };
    if !is(is_float) {
        return Transformed::no(exprs);
    }
    let floats = types.iter().zip(&exprs);
    let floats = floats.filter(|(data_type, _)| data_type.as_ref().is_some_and(is_float));
    let all_exact = floats
        .into_iter()
        .all(|(_, expr)| exact(expr, decimal).is_some());
    let agreed = exprs
        .into_iter()
        .zip(&types)
        .map(|(expr, data_type)| match data_type {
            Some(known) if all_exact && is_float(known) => exact(&expr, decimal).unwrap_or(expr),
            Some(known) if !all_exact && is_decimal(known) => as_float(expr),
            _ => expr,
        });
    Transformed::yes(agreed.collect())
}

fn rewritten(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
            agreeing(vec![*left, *right], schema).update_data(|sides| {
                let mut sides = sides.into_iter().map(Box::new);
                match (sides.next(), sides.next()) {
                    (Some(left), Some(right)) => Expr::BinaryExpr(BinaryExpr { left, op, right }),
                    _ => unreachable!("two sides stay two"),
                }
            })
        }
        Expr::Between(Between {
            expr,
            negated,
            low,
            high,
        }) => agreeing(vec![*expr, *low, *high], schema).update_data(|parts| {
            let mut parts = parts.into_iter().map(Box::new);
            match (parts.next(), parts.next(), parts.next()) {
                (Some(expr), Some(low), Some(high)) => Expr::Between(Between {
                    expr,
                    negated,
                    low,
                    high,
                }),
                _ => unreachable!("three parts stay three"),
            }
        }),
        Expr::InList(list) => of_list(list, |values| agreeing(values, schema)),
        Expr::InSubquery(found) => in_subquery(found, schema)?,
        Expr::Case(case) => of_case(
            case,
            |values| agreeing(values, schema),
            |values| agreeing(values, schema),
        ),
        Expr::ScalarFunction(call) => in_call(call, schema),
        other => Transformed::no(other),
    })
}

fn in_subquery(mut found: InSubquery, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let fields = found.subquery.subquery.schema().fields();
    let (Ok(value), Some(column)) = (found.expr.get_type(schema), fields.first()) else {
        return Ok(Transformed::no(Expr::InSubquery(found)));
    };
    if is_decimal(&value) && is_float(column.data_type()) {
        found.expr = Box::new(as_float(*found.expr));
    } else if is_float(&value) && is_decimal(column.data_type()) {
        let query = Arc::unwrap_or_clone(found.subquery.subquery);
        let floats = with_floats(query, |_| true)?;
        found.subquery = Subquery {
            subquery: Arc::new(floats),
            ..found.subquery
        };
    } else {
        return Ok(Transformed::no(Expr::InSubquery(found)));
    }
    Ok(Transformed::yes(Expr::InSubquery(found)))
}

fn in_call(call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    match call.func.name() {
        "coalesce" | "nullif" | "nvl" | "greatest" | "least" | "make_array" => {
            let func = call.func;
            agreeing(call.args, schema)
                .update_data(|args| Expr::ScalarFunction(ScalarFunction { func, args }))
        }
        "ceil" | "floor" if call.args.len() == 1 => rounded(call, schema),
        _ => Transformed::no(Expr::ScalarFunction(call)),
    }
}

/// `ceil` and `floor` of a decimal with room for one digit more: of 99.5 it is 100.
fn rounded(mut call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    let wider = match call.args[0].get_type(schema) {
        Ok(DataType::Decimal128(_, scale)) if scale <= 0 => {
            return Transformed::yes(std::mem::take(&mut call.args[0]));
        }
        Ok(DataType::Decimal128(digits, scale)) if i16::from(digits) < MAX_DIGITS => {
            DataType::Decimal128(digits + 1, scale)
        }
        _ => return Transformed::no(Expr::ScalarFunction(call)),
    };
    let arg = std::mem::take(&mut call.args[0]);
    call.args[0] = Expr::Cast(Cast::new(Box::new(arg), wider));
    Transformed::yes(Expr::ScalarFunction(call))
}

/// Pairs of columns that are compared.
fn joined(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    let mut transformed = false;
    for (left, right) in &mut join.on {
        let types = (
            left.get_type(join.left.schema()),
            right.get_type(join.right.schema()),
        );
        let (Ok(left_type), Ok(right_type)) = types else {
            continue;
        };
        let side = if is_decimal(&left_type) && is_float(&right_type) {
            left
        } else if is_float(&left_type) && is_decimal(&right_type) {
            right
        } else {
            continue;
        };
        *side = as_float(std::mem::take(side));
        transformed = true;
    }
    Ok(Transformed::new_transformed(
        LogicalPlan::Join(join),
        transformed,
    ))
}

/// Queries whose columns become one.
fn united(union: Union) -> Result<Transformed<LogicalPlan>> {
    let Union { inputs, schema } = union;
    let of_column = |place: usize, of: fn(&DataType) -> bool| {
        let mut columns = inputs
            .iter()
            .filter_map(|input| input.schema().fields().get(place));
        columns.any(|field| of(field.data_type()))
    };
    let mixed: Vec<bool> = (0..schema.fields().len())
        .map(|place| of_column(place, is_decimal) && of_column(place, is_float))
        .collect();
    if !mixed.contains(&true) {
        return Ok(Transformed::no(LogicalPlan::Union(Union {
            inputs,
            schema,
        })));
    }
    let inputs = inputs.into_iter().map(|input| {
        let input = Arc::unwrap_or_clone(input);
        with_floats(input, |place| mixed.get(place) == Some(&true)).map(Arc::new)
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let united = Union::try_new_with_loose_types(inputs)?;
    Ok(Transformed::yes(LogicalPlan::Union(united)))
}

/// A query with floats in place of the decimals of some columns.
fn with_floats(query: LogicalPlan, at: impl Fn(usize) -> bool) -> Result<LogicalPlan> {
    let columns = query.schema().columns();
    let fields = query.schema().fields().clone();
    let exprs = columns.into_iter().enumerate().map(|(place, column)| {
        let (relation, name) = (column.relation.clone(), column.name.clone());
        let expr = Expr::Column(column);
        if at(place) && is_decimal(fields[place].data_type()) {
            as_float(expr).alias_qualified(relation, name)
        } else {
            expr
        }
    });
    let exprs: Vec<Expr> = exprs.collect();
    LogicalPlanBuilder::from(query).project(exprs)?.build()
}
