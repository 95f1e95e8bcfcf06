//! ORDER BY beside `unnest`, and `unnest` and other functions in FROM.
//!
//! DataFusion sorts what comes out of `unnest`, and finds no column there that was not selected: its message names a table
//! without columns.

use super::output_names;
use crate::error::unsupported;
use datafusion_sql::sqlparser::ast::{
    Expr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, TableAliasColumnDef, TableFactor,
    Value, Visit,
};
use std::ops::ControlFlow;
use thalweg_planner::walk_expressions;
use thalweg_table::Result;
use thalweg_table::schema::fold_name;

/// Refuses functions in FROM that are called with columns: DataFusion evaluates them before there are rows.
pub(super) fn refuse_columns(table: &TableFactor) -> Result<()> {
    let (function, has_columns) = match table {
        TableFactor::UNNEST { array_exprs, .. } => {
            ("unnest".to_owned(), names_columns(array_exprs))
        }
        TableFactor::Function { name, args, .. } => (name.to_string(), names_columns(args)),
        TableFactor::Table {
            name,
            args: Some(args),
            ..
        } => (name.to_string(), names_columns(&args.args)),
        _ => return Ok(()),
    };
    if !has_columns {
        return Ok(());
    }
    let series = match function.eq_ignore_ascii_case("unnest") {
        true => "list".to_owned(),
        false => format!("{function}(a, b)"),
    };
    Err(unsupported(format!(
        "{function} of columns is not offered in FROM: SELECT k, unnest({series}) AS x FROM t gives a row for each item"
    )))
}

/// The name of the column of functions that make rows.
const VALUE: &str = "value";

/// Whether a statement names a column that is called as functions in FROM call theirs.
pub(super) fn names_value(statement: &impl Visit) -> bool {
    let is_value = |name: &Ident| name.value.eq_ignore_ascii_case(VALUE);
    let found = walk_expressions(statement, &mut |expr| match expr {
        Expr::Identifier(name) if is_value(name) => ControlFlow::Break(()),
        Expr::CompoundIdentifier(parts) if parts.last().is_some_and(is_value) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// `FROM generate_series(1, 3) AS n` and `FROM unnest(l) AS x` name the only column as well, as in PostgreSQL; the former leaves its name
/// where a statement uses that.
pub(super) fn name_column(table: &mut TableFactor, names_value: bool) {
    let (alias, has_own_name) = match table {
        TableFactor::UNNEST { alias, .. } => (alias, false),
        TableFactor::Function { name, alias, .. }
        | TableFactor::Table {
            name,
            alias,
            args: Some(_),
            ..
        } => {
            let function = name.to_string().to_ascii_lowercase();
            match &*function {
                "generate_series" | "range" => (alias, true),
                "unnest" => (alias, false),
                _ => return,
            }
        }
        _ => return,
    };
    if let Some(alias) = alias
        && alias.columns.is_empty()
        && !(has_own_name && names_value)
    {
        alias.columns.push(TableAliasColumnDef {
            name: alias.name.clone(),
            data_type: None,
        });
    }
}

fn names_columns(arguments: &impl Visit) -> bool {
    let found = walk_expressions(arguments, &mut |expr| match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Refuses to sort by what is not selected.
pub(super) fn check_order(query: &Query) -> Result<()> {
    let (SetExpr::Select(select), Some(order_by)) = (&*query.body, &query.order_by) else {
        return Ok(());
    };
    let OrderByKind::Expressions(keys) = &order_by.kind else {
        return Ok(());
    };
    if !select.projection.iter().any(unnests) {
        return Ok(());
    }
    match keys.iter().find(|key| !is_selected(select, &key.expr)) {
        None => Ok(()),
        Some(key) => Err(unsupported(format!(
            "ORDER BY {} is not offered beside unnest, which does not select it: select it too, or put the query in FROM",
            key.expr
        ))),
    }
}

fn unnests(item: &SelectItem) -> bool {
    let mut is_unnest = |expr: &Expr| match expr {
        Expr::Function(function) if fold_name(&function.name.to_string()) == "unnest" => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    walk_expressions(item, &mut is_unnest).is_break()
}

/// Whether a key is an item by its name, its expression or its place, or may be a column of a wildcard.
fn is_selected(select: &Select, key: &Expr) -> bool {
    if matches!(key, Expr::Value(value) if matches!(value.value, Value::Number(..))) {
        return true;
    }
    let last_name = |expr: &Expr| match expr {
        Expr::Identifier(name) => Some(fold_name(&name.value)),
        Expr::CompoundIdentifier(names) => names.last().map(|name| fold_name(&name.value)),
        _ => None,
    };
    let wanted = last_name(key);
    select.projection.iter().any(|item| match item {
        SelectItem::UnnamedExpr(expr) => {
            expr == key
                || wanted.is_some()
                    && (last_name(expr) == wanted || output_names::of_unnamed(item) == wanted)
        }
        SelectItem::ExprWithAlias { expr, alias } => {
            expr == key || wanted == Some(fold_name(&alias.value))
        }
        _ => true,
    })
}
