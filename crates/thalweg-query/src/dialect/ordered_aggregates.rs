//! Aggregates with an order of their own: over windows, `arg_max(x, y) OVER (PARTITION BY g)`, of which DataFusion takes none, by a number,
//! `list(x ORDER BY 2)`, which is a constant there and which DataFusion takes for the position of a column, and lists
//! of different values from the largest, `array_agg(DISTINCT x ORDER BY x DESC)`, which it gives the order of another one beside them.
//!
//! Invariants: the value is that of the aggregate over the rows of the partition; a window with an order or a frame of its own is
//! refused, as the value that an order decides cannot be had from the order of the window.

use super::calls::argument;
use super::templates::filled;
use crate::error::unsupported;
use datafusion_sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArgumentClause, FunctionArguments, Ident,
    ObjectName, OrderByOptions, WindowType,
};
use thalweg_table::Result;

/// The functions, the value that each takes, and the order by which it is the first of the partition.
const EXTREMES: [(&[&str], &str, &str); 4] = [
    (
        &["arg_max", "max_by", "argmax"],
        "CASE WHEN a2 IS NOT NULL THEN a1 END",
        "CASE WHEN a1 IS NOT NULL THEN a2 END DESC NULLS LAST",
    ),
    (
        &["arg_min", "min_by", "argmin"],
        "CASE WHEN a2 IS NOT NULL THEN a1 END",
        "CASE WHEN a1 IS NOT NULL THEN a2 END ASC NULLS LAST",
    ),
    (&["first"], "a1", "a2 ASC NULLS LAST"),
    (&["last"], "a1", "a2 DESC NULLS LAST"),
];

/// A call over a window of a function that takes a value by the order of another, if it is one.
pub(super) fn extreme(
    call: &Function,
    name: &str,
    value: &Expr,
    by: &Expr,
) -> Result<Option<Expr>> {
    let mut known = EXTREMES.iter();
    let (Some(over), Some((_, of, order))) =
        (&call.over, known.find(|(names, ..)| names.contains(&name)))
    else {
        return Ok(None);
    };
    let partition_by = match over {
        WindowType::WindowSpec(spec)
            if spec.window_name.is_none()
                && spec.order_by.is_empty()
                && spec.window_frame.is_none()
                && call.filter.is_none()
                && call.null_treatment.is_none() =>
        {
            &spec.partition_by
        }
        _ => {
            return Err(unsupported(format!(
                "{name} takes OVER (PARTITION BY ...) only: write first_value(x) OVER (... ORDER BY y), or a query with GROUP BY to join with"
            )));
        }
    };
    let template = format!("first_value({of}) OVER (ORDER BY {order})");
    let mut first = filled(&template, &[value, by])?;
    if let Expr::Function(function) = &mut first
        && let Some(WindowType::WindowSpec(spec)) = &mut function.over
    {
        spec.partition_by.clone_from(partition_by);
    }
    Ok(Some(first))
}

/// The greatest or least values of a window, whose list is sorted after the aggregate.
pub(super) fn extremes_of_window(name: &str) -> String {
    let order = match name {
        "max" => "DESC",
        _ => "ASC",
    };
    format!(
        "array_slice(array_sort(array_agg(a1) FILTER (WHERE a1 IS NOT NULL), '{order}'), 1, \
         CASE WHEN a2 >= 1 THEN a2 END)"
    )
}

/// A list or text of different values from the last one, as the reverse of that from the first one.
pub(super) fn from_the_end(call: &Function, name: &str) -> Result<Option<Expr>> {
    let FunctionArguments::List(list) = &call.args else {
        return Ok(None);
    };
    let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    let [FunctionArgumentClause::OrderBy(keys)] = &*list.clauses else {
        return Ok(None);
    };
    let ([key], true, None) = (&**keys, is_distinct, &call.over) else {
        return Ok(None);
    };
    if key.options.asc != Some(false) {
        return Ok(None);
    }
    let template = match (name, &*list.args) {
        ("array_agg" | "list", [_]) => "array_reverse(a1)",
        ("string_agg" | "group_concat" | "listagg", [_]) => {
            "array_to_string(array_reverse(a1), ',')"
        }
        ("string_agg" | "group_concat" | "listagg", [_, _]) => {
            "array_to_string(array_reverse(a1), a2)"
        }
        _ => return Ok(None),
    };
    let mut ascending = call.clone();
    ascending.name = ObjectName::from(vec![Ident::new("array_agg")]);
    if let FunctionArguments::List(list) = &mut ascending.args
        && let [FunctionArgumentClause::OrderBy(keys)] = &mut *list.clauses
    {
        list.args.truncate(1);
        keys[0].options = OrderByOptions {
            asc: Some(true),
            // Nulls are the largest by default.
            nulls_first: key.options.nulls_first.map(|first| !first),
        };
    }
    if let Some(text) = list.args.first().and_then(argument)
        && template != "array_reverse(a1)"
    {
        // Texts leave nulls out, and of nulls alone there is no text.
        let filter = match &call.filter {
            Some(filter) => filled("(a1) IS NOT NULL AND (a2)", &[text, filter])?,
            None => filled("(a1) IS NOT NULL", &[text])?,
        };
        ascending.filter = Some(Box::new(filter));
    }
    let separator = list.args.get(1).and_then(argument);
    let args: Vec<Expr> = std::iter::once(Expr::Function(ascending))
        .chain(separator.cloned())
        .collect();
    filled(template, &args.iter().collect::<Vec<_>>()).map(Some)
}
