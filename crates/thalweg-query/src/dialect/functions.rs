//! Functions by the names that they have in DuckDB, PostgreSQL and TimescaleDB.

use super::calls::{argument, arguments_of, plain_name, text, text_of};
use super::templates::{Clauses, Filled, filled, filled_with};
use super::time_differences::{date_diff, date_sub};
use super::whole_times::missing_parts;
use super::{buckets, ordered_aggregates, time_formats, time_parts};
use crate::error::{query, unsupported};
use crate::functions::ordered_values::no_number_of_values;
use datafusion_sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    OrderByExpr, UnaryOperator, Value,
};
use thalweg_table::{Error, Result};

/// Functions in terms of others: their names, how many arguments, and the template.
const TEMPLATES: &[(&[&str], usize, &str)] = &[
    (&["list_first", "array_first"], 1, "array_element(a1, 1)"),
    (&["list_last", "array_last"], 1, "array_element(a1, -1)"),
    (&["year"], 1, "date_part('year', a1)"),
    (&["quarter"], 1, "date_part('quarter', a1)"),
    (&["month"], 1, "date_part('month', a1)"),
    (&["week", "weekofyear"], 1, "date_part('week', a1)"),
    (
        &["yearweek"],
        1,
        "date_part('isoyear', a1) * 100 + date_part('week', a1)",
    ),
    (&["day", "dayofmonth"], 1, "date_part('day', a1)"),
    (&["dayofyear"], 1, "date_part('doy', a1)"),
    (&["dayofweek", "weekday"], 1, "date_part('dow', a1)"),
    (&["isodow"], 1, "date_part('isodow', a1)"),
    (&["isoyear"], 1, "date_part('isoyear', a1)"),
    (&["decade"], 1, time_parts::DECADE),
    (&["century"], 1, time_parts::CENTURY),
    (&["millennium"], 1, time_parts::MILLENNIUM),
    (&["hour"], 1, "date_part('hour', a1)"),
    (&["minute"], 1, "date_part('minute', a1)"),
    (&["second"], 1, "date_part('second', a1)"),
    (
        &["millisecond", "milliseconds"],
        1,
        "date_part('millisecond', a1)",
    ),
    (
        &["microsecond", "microseconds"],
        1,
        "date_part('microsecond', a1)",
    ),
    (&["nanosecond"], 1, "date_part('nanosecond', a1)"),
    (&["epoch"], 1, "date_part('epoch', a1)"),
    // Days since noon of the first one, of which DuckDB counts midnights.
    (&["julian"], 1, "date_part('epoch', a1) / 86400 + 2440588.0"),
    (&["dayname"], 1, "to_char(a1, '%A')"),
    (&["monthname"], 1, "to_char(a1, '%B')"),
    (&["strptime"], 2, "to_timestamp(a1, a2)"),
    (&["first", "arbitrary"], 1, "first_value(a1)"),
    (&["first"], 2, "first_value(a1 ORDER BY a2 NULLS LAST)"),
    (&["last"], 1, "last_value(a1)"),
    (&["last"], 2, "last_value(a1 ORDER BY a2 NULLS FIRST)"),
    (
        &["any_value"],
        1,
        "first_value(a1) FILTER (WHERE a1 IS NOT NULL)",
    ),
    (
        &["arg_max", "max_by", "argmax"],
        2,
        "first_value(a1 ORDER BY a2 DESC NULLS LAST) FILTER (WHERE a1 IS NOT NULL AND a2 IS NOT NULL)",
    ),
    (
        &["arg_min", "min_by", "argmin"],
        2,
        "first_value(a1 ORDER BY a2 ASC NULLS LAST) FILTER (WHERE a1 IS NOT NULL AND a2 IS NOT NULL)",
    ),
    (&["list"], 1, "array_agg(a1)"),
    (&["list_min"], 1, "array_min(a1)"),
    // NULLs last, as in ORDER BY.
    (
        &["list_sort", "array_sort"],
        1,
        "array_sort(a1, 'ASC', 'NULLS LAST')",
    ),
    (
        &["list_sort", "array_sort"],
        2,
        "array_sort(a1, a2, 'NULLS LAST')",
    ),
    (
        &["list_reverse_sort", "array_reverse_sort"],
        1,
        "array_sort(a1, 'DESC', 'NULLS LAST')",
    ),
    (&["list_string_agg"], 1, "array_to_string(a1, ',')"),
    (
        &["group_concat", "listagg", "string_agg"],
        1,
        "string_agg(a1, ',')",
    ),
    (&["group_concat", "listagg"], 2, "string_agg(a1, a2)"),
    (&["count_if", "countif"], 1, "count(*) FILTER (WHERE a1)"),
    (&["if", "iff", "iif"], 3, "CASE WHEN a1 THEN a2 ELSE a3 END"),
    (&["ifnull"], 2, "coalesce(a1, a2)"),
    (&["mod", "fmod"], 2, "(a1) % (a2)"),
    (&["len"], 1, "character_length(a1)"),
    (&["strlen"], 1, "octet_length(a1)"),
    (&["ucase"], 1, "upper(a1)"),
    (&["lcase"], 1, "lower(a1)"),
    (&["prefix"], 2, "starts_with(a1, a2)"),
    (&["suffix"], 2, "ends_with(a1, a2)"),
    (
        &["unicode", "ord"],
        1,
        "CASE WHEN a1 = '' THEN -1 ELSE ascii(a1) END",
    ),
    (&["ceiling"], 1, "ceil(a1)"),
    (&["every"], 1, "bool_and(a1)"),
    (&["favg"], 1, "avg(CAST(a1 AS DOUBLE))"),
    (
        &["geomean", "geometric_mean"],
        1,
        "exp(avg(ln(CAST(a1 AS DOUBLE))))",
    ),
    (&["struct_extract"], 2, "get_field(a1, a2)"),
    (
        &["get_current_timestamp", "transaction_timestamp"],
        0,
        "now()",
    ),
    (&["make_timestamp_ms"], 1, "epoch_ms(a1)"),
    (&["make_timestamp_ns"], 1, "epoch_ns(a1)"),
    (
        &["regexp_full_match"],
        2,
        "regexp_like(a1, '^(?:' || a2 || ')$')",
    ),
    (&["regexp_matches"], 2, "regexp_like(a1, a2)"),
    (
        &["string_split", "str_split", "split"],
        2,
        "string_to_array(a1, a2)",
    ),
    (&["timezone"], 2, "at_time_zone(a2, a1)"),
    (&["approx_count_distinct"], 1, "approx_distinct(a1)"),
    (&["approx_quantile"], 2, "approx_percentile_cont(a1, a2)"),
    (&["variance"], 1, "var_samp(a1)"),
    // Of a flat line all is explained.
    (
        &["regr_r2"],
        2,
        "CASE WHEN regr_sxx(a1, a2) <> 0 AND regr_syy(a1, a2) = 0 THEN 1.0 ELSE regr_r2(a1, a2) END",
    ),
    (&["xor"], 2, "(a1) XOR (a2)"),
    (&["sign"], 1, "signum(a1)"),
    (&["gen_random_uuid"], 0, "uuid()"),
    (&["current_schema"], 0, "'main'"),
    (&["date"], 1, "CAST(a1 AS DATE)"),
    (
        &["last_day"],
        1,
        "CAST(date_trunc('month', a1) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)",
    ),
    (&["date_add"], 2, "(a1) + (a2)"),
    (&["date_sub"], 2, "(a1) - (a2)"),
    (&["to_years"], 1, "INTERVAL '1 year' * (a1)"),
    (&["to_quarters"], 1, "INTERVAL '3 month' * (a1)"),
    (&["to_decades"], 1, "INTERVAL '10 year' * (a1)"),
    (&["to_centuries"], 1, "INTERVAL '100 year' * (a1)"),
    (&["to_months"], 1, "INTERVAL '1 month' * (a1)"),
    (&["to_weeks"], 1, "INTERVAL '1 week' * (a1)"),
    (&["to_days"], 1, "INTERVAL '1 day' * (a1)"),
    (&["to_hours"], 1, "INTERVAL '1 hour' * (a1)"),
    (&["to_minutes"], 1, "INTERVAL '1 minute' * (a1)"),
    (&["to_seconds"], 1, "INTERVAL '1 second' * (a1)"),
    (&["to_milliseconds"], 1, "INTERVAL '1 millisecond' * (a1)"),
    (&["to_microseconds"], 1, "INTERVAL '1 microsecond' * (a1)"),
    (
        &["make_timestamp"],
        1,
        "arrow_cast(a1, 'Timestamp(Microsecond, None)')",
    ),
    (
        &["make_timestamp"],
        6,
        "arrow_cast(arrow_cast(arrow_cast(make_date(a1, a2, a3), 'Timestamp(Nanosecond, None)'), 'Int64') \
         + arrow_cast(arrow_cast(make_time(a4, a5, CAST(floor(a6) AS INT)), 'Time64(Nanosecond)'), 'Int64') \
         + CAST(round((a6 - floor(a6)) * 1000000) AS BIGINT) * 1000, 'Timestamp(Nanosecond, None)')",
    ),
    (
        &["regexp_extract"],
        2,
        "CASE WHEN a1 IS NOT NULL AND a2 IS NOT NULL THEN \
         coalesce(array_element(regexp_match(a1, '(' || a2 || ')'), 1), '') END",
    ),
    (
        &["regexp_extract"],
        3,
        "CASE WHEN a1 IS NOT NULL AND a2 IS NOT NULL THEN \
         coalesce(array_element(regexp_match(a1, '(' || a2 || ')'), (a3) + 1), '') END",
    ),
    (
        &["product"],
        1,
        "array_product(array_agg(CAST(a1 AS DOUBLE)) FILTER (WHERE a1 IS NOT NULL))",
    ),
    (&["max"], 2, "largest_values(a1, CAST(a2 AS BIGINT))"),
    (&["min"], 2, "smallest_values(a1, CAST(a2 AS BIGINT))"),
];

/// `quantile_disc`, of values from the smallest on.
const QUANTILE_DISC: &str = "value_at_share(a1, CAST(a2 AS DOUBLE))";

/// Functions of lists that are called with a lambda, in DataFusion or DuckDB.
const LAMBDAS: [&str; 9] = [
    "any_match",
    "array_any_match",
    "array_filter",
    "array_transform",
    "list_any_match",
    "list_apply",
    "list_filter",
    "list_reduce",
    "list_transform",
];

/// A coalesce of coalesces as one of all their values: DataFusion writes each out as a CASE with its first value twice, so that 20
/// within one another take minutes to plan. `None`: there is none within it.
fn in_one_coalesce(function: &Function) -> Option<Expr> {
    fn inner(value: &Expr) -> Option<Vec<&Expr>> {
        match value {
            Expr::Nested(value) => inner(value),
            Expr::Function(function) => arguments_of(function, "coalesce"),
            _ => None,
        }
    }
    let values = arguments_of(function, "coalesce")?;
    values.iter().find(|value| inner(value).is_some())?;
    let all = values.into_iter();
    let all = all.flat_map(|value| inner(value).unwrap_or_else(|| vec![value]));
    let all = all.map(|value| FunctionArg::Unnamed(FunctionArgExpr::Expr(value.clone())));
    let mut whole = function.clone();
    if let FunctionArguments::List(list) = &mut whole.args {
        list.args = all.collect();
    }
    Some(Expr::Function(whole))
}

/// The expression that a call stands for, if it is one of another dialect.
pub(super) fn translated(function: &Function) -> Result<Option<Expr>> {
    let translated = translated_call(function)?;
    let whole = match &translated {
        Some(Expr::Function(call)) => in_one_coalesce(call),
        _ => None,
    };
    Ok(whole.or(translated))
}

fn translated_call(function: &Function) -> Result<Option<Expr>> {
    let Some(name) = plain_name(function) else {
        return Ok(None);
    };
    if LAMBDAS.contains(&&*name) {
        return Err(unsupported(format!(
            "{name} takes a function of elements, x -> ..., which is not offered: unnest the list in a query of its own, and compute \
             with its rows"
        )));
    }
    let list = match &function.args {
        FunctionArguments::List(list) => list,
        FunctionArguments::None if name == "localtimestamp" => {
            return filled("CAST(now() AS TIMESTAMP)", &[]).map(Some);
        }
        FunctionArguments::Subquery(_) if name == "array" => {
            return Err(unsupported(
                "ARRAY(SELECT ...) is not offered: write (SELECT list(x) FROM ...)",
            ));
        }
        _ => return Ok(None),
    };
    if name == "coalesce" {
        return Ok(in_one_coalesce(function));
    }
    let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    if name == "count" && is_distinct && matches!(&*list.args, [arg] if is_wildcard(arg)) {
        return Err(unsupported(
            "count(DISTINCT *) is not offered: write SELECT count(*) FROM (SELECT DISTINCT * FROM ...)",
        ));
    }
    if matches!(&*name, "sum" | "avg") && list.args.iter().any(is_wildcard) {
        return Err(query(format!("{name} takes a column, not *")));
    }
    if let Some(expr) = ordered_aggregates::from_the_end(function, &name)? {
        return Ok(Some(expr));
    }
    let Some(mut clauses) = Clauses::of(function, list) else {
        return Ok(None);
    };
    let Some(args) = list.args.iter().map(argument).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    if let Some(expr) = of_constants(&name, &args)? {
        return match clauses.is_empty() {
            true => Ok(Some(expr)),
            false => Err(no_aggregate(function)),
        };
    }
    if let [value, by] = &*args
        && let Some(expr) = ordered_aggregates::extreme(function, &name, value, by)?
    {
        return Ok(Some(expr));
    }
    let (template, args) = match (&*name, &*args) {
        (
            "quantile_cont" | "percentile_cont" | "quantile_disc" | "quantile" | "approx_quantile",
            [value, Expr::Array(shares)],
        ) => {
            let mut all = vec![*value];
            all.extend(&shares.elem);
            let one = match &*name {
                "quantile_cont" | "percentile_cont" => "percentile_cont(a1, a2)",
                "approx_quantile" => "approx_percentile_cont(a1, a2)",
                _ => QUANTILE_DISC,
            };
            (of_shares(&name, one, &shares.elem)?, all)
        }
        ("quantile_disc" | "quantile", [_, _]) => (QUANTILE_DISC.to_owned(), args),
        ("count", [Expr::Tuple(values)]) if is_distinct => {
            // DataFusion would compare the rows one by one.
            clauses.distinct = None;
            (of_rows(values.len()), values.iter().collect())
        }
        ("mode", []) if function.within_group.len() == 1 => {
            clauses.order_by = &[];
            ("mode(a1)".to_owned(), vec![&function.within_group[0].expr])
        }
        ("max" | "min", [_, _]) if function.over.is_some() => {
            (ordered_aggregates::extremes_of_window(&name), args)
        }
        ("percentile_cont" | "approx_percentile_cont", [_]) if function.within_group.is_empty() => {
            return Err(lacks_order(&name));
        }
        // These know no window that rows leave; of booleans they are the same.
        ("bool_or", [_]) if function.over.is_some() => ("max(a1)".to_owned(), args),
        ("bool_and" | "every", [_]) if function.over.is_some() => ("min(a1)".to_owned(), args),
        ("percentile_disc", [share]) | ("percentile_cont", [share @ Expr::Array(_)]) => {
            // The order names the value that the shares are of.
            clauses.order_by = &[];
            of_group(&name, share, &function.within_group)?
        }
        (name, args) => match template_of(name, args.len()) {
            Some(template) => (template.to_owned(), args.to_vec()),
            None => return Ok(None),
        },
    };
    match filled_with(&template, &args, &clauses)? {
        Filled::Whole(expr) => Ok(Some(*expr)),
        Filled::OwnOrder => Err(query(format!(
            "{name} has an order of its own: it takes no ORDER BY"
        ))),
        Filled::NoAggregate => Err(no_aggregate(function)),
    }
}

/// `quantile_cont(x, [0.25, 0.75])`, whose list may be known only with the parameters of a statement.
pub(super) fn quantiles(function: &Function) -> Result<Option<Expr>> {
    let names = ["quantile_cont", "percentile_cont"];
    let mut args = names.iter().filter_map(|name| arguments_of(function, name));
    match args.next().as_deref() {
        Some([_, Expr::Array(_)]) => translated(function),
        _ => Ok(None),
    }
}

/// `percentile_disc(share) WITHIN GROUP (ORDER BY value)` and its like: a template, and its arguments.
fn of_group<'a>(
    name: &str,
    share: &'a Expr,
    within_group: &'a [OrderByExpr],
) -> Result<(String, Vec<&'a Expr>)> {
    let [by] = within_group else {
        return Err(lacks_order(name));
    };
    let one = match name {
        "percentile_cont" => "percentile_cont(a2) WITHIN GROUP (ORDER BY a1)",
        _ => QUANTILE_DISC,
    };
    let one = match by.options.asc {
        Some(false) => one
            .replace("ORDER BY a1", "ORDER BY a1 DESC")
            .replace("value_at_share", "value_at_share_from_largest"),
        _ => one.to_owned(),
    };
    let mut args = vec![&by.expr];
    match share {
        Expr::Array(shares) => {
            args.extend(&shares.elem);
            Ok((of_shares(name, &one, &shares.elem)?, args))
        }
        share => {
            args.push(share);
            Ok((one, args))
        }
    }
}

fn lacks_order(name: &str) -> Error {
    query(format!(
        "{name} takes a share and an order: {name}(0.5) WITHIN GROUP (ORDER BY x)"
    ))
}

/// How many different rows of so many values there are: of no rows 0, where a subquery knows no default of its own.
fn of_rows(values: usize) -> String {
    let values: Vec<String> = (1..=values).map(|place| format!("a{place}")).collect();
    format!("coalesce(count_of_rows({}), 0)", values.join(", "))
}

fn no_aggregate(written: &Function) -> Error {
    query(format!(
        "{} is no aggregate: it takes no DISTINCT, ORDER BY, FILTER or OVER",
        written.name
    ))
}

fn template_of(name: &str, arguments: usize) -> Option<&'static str> {
    let is_this =
        |(names, count, _): &&(&[&str], usize, &str)| names.contains(&name) && *count == arguments;
    TEMPLATES
        .iter()
        .find(is_this)
        .map(|(.., template)| *template)
}

/// A list of quantiles, each by the template `one`: the value is the first argument, the shares are the others.
fn of_shares(name: &str, one: &str, shares: &[Expr]) -> Result<String> {
    if shares.is_empty() {
        return Err(query(format!(
            "{name} takes a list of shares, as in quantile_cont(x, [0.25, 0.75])"
        )));
    }
    let all = (0..shares.len()).map(|place| one.replace("a2", &format!("a{}", place + 2)));
    Ok(format!(
        "make_array({})",
        all.collect::<Vec<_>>().join(", ")
    ))
}

/// Calls whose translation depends on constants among their arguments.
fn of_constants(name: &str, args: &[&Expr]) -> Result<Option<Expr>> {
    Ok(Some(match (name, args) {
        ("date_part" | "datepart", [Expr::Array(_), _]) => {
            return Err(query(
                "date_part takes one part: write date_part('year', ts), date_part('month', ts) as several columns",
            ));
        }
        ("date_part" | "datepart", [part, time]) => return time_parts::of_call(part, time),
        ("date_trunc" | "datetrunc", [unit, time]) => return time_parts::truncated(unit, time),
        ("max" | "min", [_, count]) if text_of(count).is_some() => {
            return Err(query(format!(
                "{name}(x, n) gives a list of n values: write greatest(a, b) or least(a, b) for one of two"
            )));
        }
        ("max" | "min", [_, count]) if is_no_count(count) => {
            return Err(no_number_of_values(name, count));
        }
        (
            "quantile_cont" | "percentile_cont" | "quantile_disc" | "quantile" | "approx_quantile",
            [_, share],
        ) if has_null(share) => {
            return Err(query(format!(
                "{name} takes a share between 0 and 1, not NULL: the median is 0.5"
            )));
        }
        ("strptime" | "try_strptime", [written, Expr::Array(patterns)])
            if !patterns.elem.is_empty() =>
        {
            first_that_fits(name, written, &patterns.elem)?
        }
        ("version", []) => text(concat!("Thalweg ", env!("CARGO_PKG_VERSION"))),
        ("strftime", &[time, format]) => {
            // SQLite has them the other way round.
            let swapped = text_of(time).is_some_and(|text| text.contains('%'));
            let (time, format) = if swapped {
                (format, time)
            } else {
                (time, format)
            };
            let constant = text_of(format).map(|format| text(&with_microseconds(&format)));
            filled(
                "to_char(a1, a2)",
                &[time, constant.as_ref().unwrap_or(format)],
            )?
        }
        ("strptime" | "try_strptime" | "to_timestamp", &[written, format])
            if !is_whole_fraction(written) =>
        {
            let Some(format) = text_of(format) else {
                return Ok(None);
            };
            let (parts, values) = missing_parts(&format);
            if parts.is_empty() && !has_fraction(&format) {
                return Ok(None);
            }
            let function = match name {
                "strptime" => "to_timestamp",
                name => name,
            };
            let whole = match parts.is_empty() {
                true => written.clone(),
                false => filled("a1 || a2", &[written, &text(&values)])?,
            };
            let format = format.replace(".%f", "%.f") + &parts;
            let template = match has_fraction(&format) {
                true => format!("{function}(whole_fraction(a1, a2), a2)"),
                false => format!("{function}(a1, a2)"),
            };
            filled(&template, &[&whole, &text(&format)])?
        }
        (
            "to_timestamp_seconds"
            | "to_timestamp_millis"
            | "to_timestamp_micros"
            | "to_timestamp_nanos"
            | "to_unixtime",
            &[written, format],
        ) => {
            let Some(format) = text_of(format) else {
                return Ok(None);
            };
            let (parts, values) = missing_parts(&format);
            if parts.is_empty() {
                return Ok(None);
            }
            let template = format!("{name}(a1 || a2, a3)");
            filled(
                &template,
                &[written, &text(&values), &text(&(format + &parts))],
            )?
        }
        ("to_char", &[time, format]) => match (text_of(format), format) {
            (Some(format), _) if !format.contains('%') => filled(
                "to_char(a1, a2)",
                &[time, &text(&time_formats::strftime(&format)?)],
            )?,
            // Made by this translation.
            (Some(_), _) | (None, Expr::Function(_)) => return Ok(None),
            (None, _) => filled("to_char(a1, time_pattern(a2))", &[time, format])?,
        },
        ("list_value" | "list_pack", items) => {
            let places = (1..=items.len()).map(|place| format!("a{place}"));
            let places = places.collect::<Vec<_>>().join(", ");
            filled(&format!("make_array({places})"), items)?
        }
        ("date_diff" | "datediff", [unit, from, to]) => date_diff(unit, from, to)?,
        ("date_sub" | "datesub", [unit, from, to]) => date_sub(unit, from, to)?,
        // Of times too, which are finite.
        ("isinf", [number]) => {
            filled("abs(CAST(a1 AS DOUBLE)) = CAST('inf' AS DOUBLE)", &[number])?
        }
        ("isfinite", [number]) => filled(
            "NOT isnan(CAST(a1 AS DOUBLE)) AND abs(CAST(a1 AS DOUBLE)) <> CAST('inf' AS DOUBLE)",
            &[number],
        )?,
        ("width_bucket", [value, low, high, count]) => filled(
            "CASE WHEN a1 < a2 THEN 0 WHEN a1 >= a3 THEN a4 + 1 \
             ELSE CAST(floor((CAST(a1 AS DOUBLE) - a2) / (a3 - a2) * a4) AS BIGINT) + 1 END",
            &[value, low, high, count],
        )?,
        ("date_bin", arguments) => match buckets::with_interval(arguments)? {
            Some(bucket) => bucket,
            None => return Ok(None),
        },
        ("time_bucket", arguments) => match buckets::translated(arguments)? {
            Some(bucket) => bucket,
            None => return Ok(None),
        },
        _ => return Ok(None),
    }))
}

/// Whether a constant is no number of values: NULL, 0, a negative number or a fraction.
fn is_no_count(count: &Expr) -> bool {
    match count {
        Expr::Nested(inner) => is_no_count(inner),
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => matches!(&**expr, Expr::Value(_)),
        Expr::Value(constant) => match &constant.value {
            Value::Number(digits, _) => !digits.parse().is_ok_and(|count: u64| count > 0),
            Value::Null => true,
            _ => false,
        },
        _ => false,
    }
}

/// Whether a share, or one of a list, is NULL.
fn has_null(share: &Expr) -> bool {
    match share {
        Expr::Array(shares) => shares.elem.iter().any(has_null),
        Expr::Value(constant) => matches!(constant.value, Value::Null),
        _ => false,
    }
}

/// `strptime` with a list of patterns: the time by the first one that the text fits.
fn first_that_fits(name: &str, written: &Expr, patterns: &[Expr]) -> Result<Expr> {
    let last = patterns.len() - 1;
    let read = |(place, pattern): (usize, &Expr)| {
        let (name, template) = match name {
            "strptime" if place == last => ("strptime", "to_timestamp(a1, a2)"),
            _ => ("try_strptime", "try_strptime(a1, a2)"),
        };
        match of_constants(name, &[written, pattern])? {
            Some(read) => Ok(read),
            None => filled(template, &[written, pattern]),
        }
    };
    let times = patterns.iter().enumerate().map(read);
    let times = times.collect::<Result<Vec<Expr>>>()?;
    let places: Vec<String> = (1..=times.len()).map(|place| format!("a{place}")).collect();
    let times: Vec<&Expr> = times.iter().collect();
    filled(&format!("coalesce({})", places.join(", ")), &times)
}

/// `time AT TIME ZONE zone`.
pub(super) fn at_time_zone(time: &Expr, zone: &Expr) -> Result<Expr> {
    filled("at_time_zone(a1, a2)", &[time, zone])
}

/// Whether a text to be read was made ready for `%f` by this translation.
fn is_whole_fraction(written: &Expr) -> bool {
    matches!(written, Expr::Function(function)
        if plain_name(function).is_some_and(|name| name == "whole_fraction"))
}

/// Whether a pattern has `%f`.
fn has_fraction(pattern: &str) -> bool {
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c == '%' && chars.next() == Some('f') {
            return true;
        }
    }
    false
}

/// The pattern with `%f` as six digits, as Python and DuckDB have it: to chrono they are nanoseconds.
pub(super) fn with_microseconds(pattern: &str) -> String {
    let mut written = String::with_capacity(pattern.len() + 1);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        written.push(c);
        if c == '%' {
            match chars.next() {
                Some('f') => written.push_str("6f"),
                after => written.extend(after),
            }
        }
    }
    written
}

fn is_wildcard(arg: &FunctionArg) -> bool {
    matches!(
        arg,
        FunctionArg::Unnamed(FunctionArgExpr::Wildcard | FunctionArgExpr::QualifiedWildcard(_))
    )
}
