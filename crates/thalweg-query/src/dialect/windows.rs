//! Windows by name: those that build on one, `OVER (w ORDER BY ts)` and `WINDOW v AS (w ROWS ...)`, of which DataFusion forgets the name,
//! those of QUALIFY, DISTINCT ON and ORDER BY, where it takes `count(*) OVER w` for `count(*)`, and those of subqueries in the
//! place of a value, which it looks for among the windows of the SELECT around them.
//!
//! Invariant: after this no window builds on another one, and none is called by a name that is known. As in PostgreSQL, a window
//! takes the partitions of the one that it builds on, and its order, if that has one; a frame cannot be taken over.

use super::calls::plain_name;
use super::outside_queries;
use super::using::is_same;
use crate::error::{query, unsupported};
use datafusion_sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, Ident,
    NamedWindowDefinition, NamedWindowExpr, Query, Select, SetExpr, WindowSpec, WindowType,
};
use thalweg_table::Result;

/// Writes out what the windows of a SELECT take from others.
pub(super) fn write_out(select: &mut Select) -> Result<()> {
    // As in most statements; `refuse` meets what builds on a window all the same.
    if select.named_window.is_empty() {
        return Ok(());
    }
    let known = all_known(&mut select.named_window)?;
    // Queries inside have windows of their own.
    outside_queries(&mut select.distinct, &mut |expr| spell_out(expr, &known))?;
    outside_queries(&mut select.projection, &mut |expr| spell_out(expr, &known))?;
    outside_queries(&mut select.qualify, &mut |expr| spell_out(expr, &known))
}

/// Writes out the windows of the ORDER BY of a SELECT.
pub(super) fn write_out_order(query: &mut Query) -> Result<()> {
    let (SetExpr::Select(select), Some(order_by)) = (&*query.body, &mut query.order_by) else {
        return Ok(());
    };
    if select.named_window.is_empty() {
        return Ok(());
    }
    let known = all_known(&mut select.named_window.clone())?;
    outside_queries(order_by, &mut |expr| spell_out(expr, &known))
}

/// The windows of a SELECT, none of which builds on another one then.
fn all_known(windows: &mut [NamedWindowDefinition]) -> Result<Vec<(Ident, WindowSpec)>> {
    let mut known: Vec<(Ident, WindowSpec)> = Vec::new();
    for NamedWindowDefinition(name, definition) in windows {
        let spec = match definition {
            NamedWindowExpr::NamedWindow(base) => known_as(&known, base)?.clone(),
            NamedWindowExpr::WindowSpec(spec) => {
                build_on(spec, &known)?;
                spec.clone()
            }
        };
        *definition = NamedWindowExpr::WindowSpec(spec.clone());
        known.push((name.clone(), spec));
    }
    Ok(known)
}

/// Puts the window itself in the place of its name.
fn spell_out(expr: &mut Expr, known: &[(Ident, WindowSpec)]) -> Result<()> {
    let Expr::Function(function) = expr else {
        return Ok(());
    };
    match &mut function.over {
        Some(WindowType::WindowSpec(spec)) => build_on(spec, known),
        Some(over @ WindowType::NamedWindow(_)) => {
            if let WindowType::NamedWindow(name) = over {
                let spec = known_as(known, name)?.clone();
                *over = WindowType::WindowSpec(spec);
            }
            Ok(())
        }
        None => Ok(()),
    }
}

/// Refuses a window that is called by a name or builds on another one still, in a statement without that one or outside of its SELECT:
/// queries inside of a SELECT do not know its windows.
pub(super) fn refuse(function: &Function) -> Result<()> {
    if let Some(WindowType::NamedWindow(name)) = &function.over {
        return Err(query(format!(
            "there is no window \"{}\": define it by WINDOW {name} AS (...), or write OVER (...)",
            name.value
        )));
    }
    if let Some(WindowType::WindowSpec(spec)) = &function.over
        && let Some(base) = &spec.window_name
    {
        return Err(unsupported(format!(
            "no window \"{}\" is known in this place: write all of it, as in OVER (PARTITION BY a ORDER BY b)",
            base.value
        )));
    }
    Ok(())
}

fn known_as<'a>(known: &'a [(Ident, WindowSpec)], name: &Ident) -> Result<&'a WindowSpec> {
    let mut found = known.iter().filter(|(known, _)| is_same(known, name));
    found.next().map(|(_, spec)| spec).ok_or_else(|| {
        unsupported(format!(
            "there is no window \"{}\" here: WINDOW {} AS (...) behind FROM defines it, in front of those that build on it",
            name.value, name
        ))
    })
}

fn build_on(spec: &mut WindowSpec, known: &[(Ident, WindowSpec)]) -> Result<()> {
    let Some(name) = spec.window_name.take() else {
        return Ok(());
    };
    let base = known_as(known, &name)?;
    let refused = |what: &str| {
        Err(unsupported(format!(
            "a window that builds on \"{}\" {what}: write all of it, as in OVER (PARTITION BY a ORDER BY b)",
            name.value
        )))
    };
    if !spec.partition_by.is_empty() {
        return refused("has no PARTITION BY of its own");
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        return refused("has no ORDER BY of its own, as that has one");
    }
    if base.window_frame.is_some() {
        return refused("cannot take over its frame");
    }
    spec.partition_by = base.partition_by.clone();
    if spec.order_by.is_empty() {
        spec.order_by = base.order_by.clone();
    }
    Ok(())
}

/// Functions that may leave out nulls.
const OF_NULLS: [&str; 9] = [
    "first_value",
    "last_value",
    "nth_value",
    "lag",
    "lead",
    "first",
    "last",
    "array_agg",
    "list",
];

/// Takes IGNORE NULLS from the end of the arguments, `last_value(round(v, 1) IGNORE NULLS)`: where these end with a call, the parser reads
/// it as part of that.
pub(super) fn take_null_treatment(function: &mut Function) {
    if function.null_treatment.is_some() || !leaves_out_nulls(function) {
        return;
    }
    let FunctionArguments::List(list) = &mut function.args else {
        return;
    };
    let last = match (list.clauses.last_mut(), list.args.last_mut()) {
        (Some(FunctionArgumentClause::OrderBy(keys)), _) => {
            keys.last_mut().map(|key| &mut key.expr)
        }
        (None, Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)))) => Some(expr),
        _ => None,
    };
    let call = last.and_then(last_call);
    if let Some(call) = call.filter(|call| call.over.is_none() && !leaves_out_nulls(call)) {
        function.null_treatment = call.null_treatment.take();
    }
}

fn leaves_out_nulls(function: &Function) -> bool {
    plain_name(function).is_some_and(|name| OF_NULLS.contains(&&*name))
}

/// The call that an expression ends with.
fn last_call(expr: &mut Expr) -> Option<&mut Function> {
    match expr {
        Expr::Function(call) => Some(call),
        Expr::BinaryOp { right: last, .. }
        | Expr::UnaryOp { expr: last, .. }
        | Expr::Between { high: last, .. } => last_call(last),
        _ => None,
    }
}
