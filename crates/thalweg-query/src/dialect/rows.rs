//! Rows of values that are compared with a query, `(a, b) IN (SELECT x, y FROM t)`, or with each other, `(a, b) < (1, 2)`.
//!
//! Invariants: with a query only where null counts as false, as a condition of WHERE on its own or under AND and OR; refused elsewhere.
//! With each other by their first values that differ, and null where one of these is: to DataFusion, null is the smallest value of a row.
//! IN and BETWEEN of rows are such comparisons.

use super::calls::arguments_of;
use super::templates::filled;
use crate::error::{query, unsupported};
use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Query, SetExpr, SetOperator, SetQuantifier, TableAlias,
    TableAliasColumnDef, TableFactor, Values,
};
use std::ops::ControlFlow;
use thalweg_planner::walk_expressions;
use thalweg_table::{Error, Result};

/// Such conditions as EXISTS.
pub(super) fn in_subqueries(condition: &mut Expr) -> Result<()> {
    match condition {
        Expr::Nested(inner) => in_subqueries(inner),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And | BinaryOperator::Or,
            right,
        } => {
            in_subqueries(left)?;
            in_subqueries(right)
        }
        Expr::InSubquery {
            expr,
            subquery,
            negated: false,
        } => {
            if let Expr::Tuple(values) = &**expr {
                *condition = exists(values, subquery)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The EXISTS that an IN of a row stands for. The columns of the query are called so that no column outside has the same name.
fn exists(values: &[Expr], subquery: &Query) -> Result<Expr> {
    let name = |place: usize| format!("__in_{place}");
    let conditions = (1..=values.len()).map(|place| format!("__in.{} = a{place}", name(place)));
    let conditions: Vec<String> = conditions.collect();
    let template = format!(
        "EXISTS (SELECT 1 FROM (SELECT 1) AS __in WHERE {})",
        conditions.join(" AND ")
    );
    let values: Vec<&Expr> = values.iter().collect();
    let mut exists = filled(&template, &values)?;
    if let Expr::Exists {
        subquery: outer, ..
    } = &mut exists
        && let SetExpr::Select(select) = &mut *outer.body
        && let [from] = &mut *select.from
        && let TableFactor::Derived {
            subquery: inner,
            alias,
            ..
        } = &mut from.relation
    {
        **inner = subquery.clone();
        let columns = (1..=values.len()).map(|place| TableAliasColumnDef {
            name: Ident::new(name(place)),
            data_type: None,
        });
        if let Some(TableAlias { columns: names, .. }) = alias {
            *names = columns.collect();
        }
    }
    Ok(exists)
}

/// The comparison of two rows by their values.
pub(super) fn compared(left: &Expr, op: &BinaryOperator, right: &Expr) -> Result<Option<Expr>> {
    let (Some(left), Some(right)) = (values_of(left), values_of(right)) else {
        return Ok(None);
    };
    if left.len() != right.len() {
        return Err(query(format!(
            "a row of {} values cannot be compared with one of {}",
            left.len(),
            right.len()
        )));
    }
    let strict = match op {
        BinaryOperator::Lt | BinaryOperator::LtEq => "<",
        BinaryOperator::Gt | BinaryOperator::GtEq => ">",
        BinaryOperator::Eq | BinaryOperator::NotEq => "",
        _ => return Ok(None),
    };
    let count = left.len();
    let pair = |place: usize, op: &str| format!("a{place} {op} a{}", count + place);
    let template = if strict.is_empty() {
        let pairs: Vec<String> = (1..=count)
            .map(|place| pair(place, &op.to_string()))
            .collect();
        pairs.join(match op {
            BinaryOperator::Eq => " AND ",
            _ => " OR ",
        })
    } else {
        let last = pair(count, &op.to_string());
        (1..count).rev().fold(last, |rest, place| {
            format!(
                "{} OR ({} AND ({rest}))",
                pair(place, strict),
                pair(place, "=")
            )
        })
    };
    let values: Vec<&Expr> = left.into_iter().chain(right).collect();
    filled(&format!("({template})"), &values).map(Some)
}

/// A row among others, `(a, b) IN ((1, 2), (3, 4))`, as `(a, b) = (1, 2) OR (a, b) = (3, 4)`.
pub(super) fn in_list(row: &Expr, list: &[Expr], negated: bool) -> Result<Option<Expr>> {
    if values_of(row).is_none() || list.iter().any(|other| values_of(other).is_none()) {
        return Ok(None);
    }
    let equal = |other: &Expr| compared(row, &BinaryOperator::Eq, other);
    let all: Option<Vec<Expr>> = list.iter().map(equal).collect::<Result<_>>()?;
    let mut all = all.unwrap_or_default();
    // In pairs, of which a long list has few inside one another.
    while all.len() > 1 {
        let pairs = all.chunks(2).map(|pair| match pair {
            [one, other] => filled("(a1 OR a2)", &[one, other]),
            rest => Ok(rest[0].clone()),
        });
        all = pairs.collect::<Result<_>>()?;
    }
    match (all.pop(), negated) {
        (Some(is_in), true) => filled("NOT (a1)", &[&is_in]).map(Some),
        (is_in, _) => Ok(is_in),
    }
}

/// A row between two others.
pub(super) fn between(row: &Expr, low: &Expr, high: &Expr, negated: bool) -> Result<Option<Expr>> {
    let from = compared(row, &BinaryOperator::GtEq, low)?;
    let to = compared(row, &BinaryOperator::LtEq, high)?;
    let (Some(from), Some(to)) = (from, to) else {
        return Ok(None);
    };
    let template = match negated {
        true => "NOT (a1 AND a2)",
        false => "(a1 AND a2)",
    };
    filled(template, &[&from, &to]).map(Some)
}

/// A row as a call, where the planner would refuse it for its first value.
pub(super) fn as_call(values: &[Expr]) -> Result<Option<Expr>> {
    let first = values.first();
    if let None | Some(Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)) = first {
        return Ok(None);
    }
    let places: Vec<String> = (1..=values.len())
        .map(|place| format!("a{place}"))
        .collect();
    let values: Vec<&Expr> = values.iter().collect();
    filled(&format!("row({})", places.join(", ")), &values).map(Some)
}

/// The values of a row, `(a, b)` or `ROW(a, b)`.
pub(crate) fn values_of(row: &Expr) -> Option<Vec<&Expr>> {
    match row {
        Expr::Nested(inner) => values_of(inner),
        Expr::Tuple(values) => Some(values.iter().collect()),
        Expr::Function(function) => arguments_of(function, "row"),
        _ => None,
    }
}

/// The VALUES that a query is, if it is nothing else.
pub(crate) fn plain_values(source: &Query) -> Option<&Values> {
    let plain = source.with.is_none()
        && source.order_by.is_none()
        && source.limit_clause.is_none()
        && source.fetch.is_none();
    match source.body.as_ref() {
        SetExpr::Values(values) if plain => Some(values),
        _ => None,
    }
}

/// A VALUES with subqueries as a query for each row, in any order: the planner computes no subquery inside of VALUES.
pub(crate) fn of_subqueries(of: &mut Query) -> Result<()> {
    let SetExpr::Values(values) = &*of.body else {
        return Ok(());
    };
    let mut cells = values.rows.iter().flat_map(|row| &row.content);
    if !cells.any(has_subquery) {
        return Ok(());
    }
    let mut body: Option<SetExpr> = None;
    for row in &values.rows {
        let places = (1..=row.content.len()).map(|place| format!("a{place} AS column{place}"));
        let places: Vec<String> = places.collect();
        let template = format!("(SELECT {})", places.join(", "));
        let cells: Vec<&Expr> = row.content.iter().collect();
        let Expr::Subquery(one) = filled(&template, &cells)? else {
            return Ok(());
        };
        body = Some(match body {
            None => *one.body,
            Some(before) => SetExpr::SetOperation {
                op: SetOperator::Union,
                set_quantifier: SetQuantifier::All,
                left: Box::new(before),
                right: one.body,
            },
        });
    }
    if let Some(body) = body {
        *of.body = body;
    }
    Ok(())
}

/// Whether a query stands anywhere inside of an expression.
fn has_subquery(expr: &Expr) -> bool {
    let found = walk_expressions(expr, &mut |inner| match inner {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Refuses rows of values that were not translated.
pub(super) fn refuse(left: &Expr) -> Result<()> {
    match left {
        Expr::Tuple(_) => Err(other_place()),
        _ => Ok(()),
    }
}

fn other_place() -> Error {
    unsupported(
        "(a, b) IN (SELECT ...) is offered as a condition of WHERE only, and not under NOT: write EXISTS or NOT EXISTS \
         (SELECT ... WHERE x = a AND y = b)",
    )
}
