//! Functions that there are not, or that take other arguments.

use super::terms::in_sql;
use datafusion::execution::SessionStateDefaults;
use std::collections::BTreeSet;
use thalweg_table::suggest::nearest;

/// Functions that are translated before planning, which finds no such name where their arguments are others.
const TRANSLATED: &[(&[&str], &str)] = &[
    (
        &[
            "year",
            "quarter",
            "month",
            "week",
            "weekofyear",
            "day",
            "dayofmonth",
            "dayofyear",
            "dayofweek",
            "weekday",
            "isodow",
            "isoyear",
            "decade",
            "century",
            "millennium",
            "julian",
            "millisecond",
            "microsecond",
            "nanosecond",
            "hour",
            "minute",
            "second",
            "epoch",
            "last_day",
            "date",
            "dayname",
            "monthname",
        ],
        "{}(ts)",
    ),
    (
        &["time_bucket"],
        "{}('1 hour', ts), with an origin or a zone as a third argument",
    ),
    (&["strftime"], "{}(ts, '%Y-%m-%d')"),
    (
        &["strptime", "try_strptime"],
        "{}('01.02.2026', '%d.%m.%Y')",
    ),
    (&["date_diff", "datediff"], "{}('day', begin, end)"),
    (
        &["first", "last"],
        "{}(value), {}(value, ts) or {}(value ORDER BY ts)",
    ),
    (&["date_add", "date_sub"], "{}(ts, INTERVAL '1 day')"),
    (
        &[
            "to_years",
            "to_decades",
            "to_centuries",
            "to_quarters",
            "to_months",
            "to_weeks",
            "to_days",
            "to_hours",
            "to_minutes",
            "to_seconds",
        ],
        "{}(2)",
    ),
    (
        &["make_timestamp"],
        "{}(year, month, day, hour, minute, second)",
    ),
    (
        &["regexp_extract"],
        "{}(text, 'pattern') or {}(text, 'pattern', group)",
    ),
    (
        &["quantile_disc", "quantile"],
        "{}(value, 0.5) or {}(value, [0.25, 0.75])",
    ),
    (&["product", "sign"], "{}(value)"),
    (&["xor"], "{}(a, b)"),
    (
        &["arg_max", "max_by", "argmax", "arg_min", "min_by", "argmin"],
        "{}(value, by)",
    ),
    (
        &["any_value", "list", "approx_count_distinct", "variance"],
        "{}(value)",
    ),
    (&["group_concat", "listagg"], "{}(text) or {}(text, ', ')"),
    (&["count_if", "countif"], "{}(temp > 20)"),
    (&["if", "iff", "iif"], "{}(temp > 20, 'warm', 'cold')"),
    (&["ifnull"], "{}(value, 0)"),
    (&["mod"], "{}(a, b)"),
    (&["len"], "{}(text)"),
    (
        &["regexp_matches", "string_split", "str_split", "split"],
        "{}(text, 'pattern')",
    ),
    (&["approx_quantile"], "{}(value, 0.5)"),
    (&["timezone"], "{}('Europe/Berlin', ts)"),
];

/// Functions that need OVER.
const OF_WINDOWS: [&str; 8] = [
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
];

/// Functions that are mistyped most, because they are written most.
const COMMON: [&str; 16] = [
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "median",
    "stddev",
    "round",
    "coalesce",
    "date_bin",
    "date_part",
    "date_trunc",
    "first_value",
    "last_value",
    "now",
    "to_timestamp",
];

/// Functions of other databases, and what they are here.
const MEANT: &[(&[&str], &str)] = &[
    (
        &["age", "timediff", "timestampdiff"],
        "a - b, or date_diff('day', b, a)",
    ),
    (
        &["format", "printf"],
        "a || ' ' || b, with CAST(x AS DECIMAL(10, 2)) or CAST(x AS VARCHAR)",
    ),
    (
        &["cast", "convert", "to_number", "tonumber"],
        "CAST(x AS DOUBLE)",
    ),
    (&["charindex", "locate"], "strpos(text, 'part')"),
    (&["cumsum"], "sum(x) OVER (ORDER BY ts)"),
    (
        &["dateadd", "adddate", "timestampadd"],
        "ts + INTERVAL '1 day'",
    ),
    (&["subdate"], "ts - INTERVAL '1 day'"),
    (
        &["derivative", "delta", "diff", "difference"],
        "x - lag(x) OVER (ORDER BY ts)",
    ),
    (
        &["getdate", "sysdate", "sysdatetime", "systimestamp", "today"],
        "now() or current_date",
    ),
    (&["isnull", "is_null"], "x IS NULL, or coalesce(x, 0)"),
    (
        &["columns"],
        "the names of the columns, or SELECT * EXCLUDE (a, b)",
    ),
    (
        &["histogram", "hist"],
        "count(*) with GROUP BY x, or with GROUP BY floor(x / 10) * 10 for ranges",
    ),
    (
        &["kurtosis", "kurtosis_pop", "skewness"],
        "avg(((x - m) / s) ** 3), ** 4 for kurtosis, with m and s from (SELECT avg(x) AS m, stddev_pop(x) AS s FROM t)",
    ),
    (
        &[
            "json",
            "json_extract",
            "json_extract_string",
            "json_value",
            "json_array_length",
            "json_keys",
            "to_json",
        ],
        "regexp_extract(text, '\"field\": *([^,}]*)', 1), or store the fields in columns: SQL takes no JSON",
    ),
    (
        &["regexp_extract_all"],
        "regexp_extract(text, 'pattern') for the first match, or regexp_count(text, 'pattern')",
    ),
    (
        &["regexp_split_to_array", "string_split_regex"],
        "string_to_array(text, ','), which splits at a text",
    ),
    (
        &["list_aggregate", "list_aggr", "array_aggregate"],
        "list_sum(l), list_avg(l), list_min(l) or list_max(l)",
    ),
    (
        &["current_database", "current_catalog"],
        "current_schema(): there is one database",
    ),
    (
        &["bit_count"],
        "(x & 1) + ((x >> 1) & 1) and so on, or store the number",
    ),
    (
        &["hex"],
        "upper(to_hex(n)) of a number, encode(text, 'hex')",
    ),
    (&["unhex"], "decode(text, 'hex')"),
    (
        &["fsum", "kahan_sum", "sumkahan", "sum_no_overflow"],
        "sum(x)",
    ),
    (&["divide", "fdiv"], "a // b"),
    (&["add"], "a + b"),
    (&["subtract"], "a - b"),
    (&["multiply"], "a * b"),
    (&["truncate"], "trunc(x, digits)"),
    (&["wavg", "weighted_avg"], "sum(x * w) / sum(w)"),
    (&["struct_pack"], "{'a': 1, 'b': 2}"),
    (
        &["make_timestamptz"],
        "CAST(make_timestamp(...) AS TIMESTAMPTZ)",
    ),
    (
        &["fill", "locf"],
        "last_value(x) IGNORE NULLS OVER (ORDER BY ts)",
    ),
    (
        &["time_bucket_gapfill", "interpolate"],
        "FROM generate_series(TIMESTAMP '2026-01-01', '2026-01-02', '1 hour') AS h LEFT JOIN (SELECT time_bucket('1 hour', ts) AS h, \
         avg(x) AS x FROM t GROUP BY 1) AS r USING (h), and last_value(x) IGNORE NULLS OVER (ORDER BY h) to fill gaps",
    ),
    (&["reservoir_quantile"], "approx_percentile_cont(x, 0.5)"),
    (
        &["list_unique"],
        "array_length(list_distinct(l)), which counts a NULL as well",
    ),
    (
        &[
            "list_count",
            "list_median",
            "list_mode",
            "list_stddev_samp",
            "list_stddev_pop",
            "list_var_samp",
            "list_var_pop",
            "list_bool_and",
            "list_bool_or",
            "list_histogram",
            "list_entropy",
        ],
        "the aggregate of SELECT id, unnest(l) AS x FROM t, with GROUP BY id",
    ),
    (
        &["list_where", "list_select", "list_grade_up"],
        "a condition or an order over SELECT id, unnest(l) AS x FROM t",
    ),
    (
        &["md5", "sha1", "sha256", "hash"],
        "the text itself to compare texts: hashes are for the program to store",
    ),
    (&["nunique", "count_distinct"], "count(DISTINCT x)"),
    (&["percentile", "quantile_cont"], "percentile_cont(x, 0.5)"),
    (&["shift"], "lag(x) OVER (ORDER BY ts)"),
    (&["size", "length_of"], "count(*)"),
    (&["std", "stdev", "stddev_sample"], "stddev(x)"),
    (&["average"], "avg(x)"),
    (&["sem"], "stddev(x) / sqrt(count(x))"),
    (
        &["mad"],
        "median(abs(x - m)), with m from (SELECT median(x) AS m FROM t)",
    ),
    (
        &["to_time", "totime", "parse_date", "parse_timestamp"],
        "to_timestamp('2026-01-31')",
    ),
    (&["total"], "sum(x)"),
    (&["unix_timestamp"], "epoch(ts)"),
];

/// Words of signatures for any number of types, and how they are shown.
const SIGNATURES: [(&str, &str); 12] = [
    ("Numeric(1)", "number"),
    ("Numeric(2)", "number, number"),
    ("Comparable(2)", "any, any"),
    ("NullAry()", ""),
    ("Numeric", "number"),
    ("Any", "any"),
    ("Binary", "blob"),
    ("array", "list"),
    ("element", "value"),
    ("double/real", "double"),
    ("time with time zone", "time"),
    (
        "ubigint/uinteger/usmallint/utinyint/bigint/integer/smallint/tinyint",
        "integer",
    ),
];

/// Forms that a message shows of a function that takes many.
const MAX_FORMS: usize = 6;

/// The words for a message about a function that there is not; `None` for other messages.
pub(crate) fn unknown(text: &str) -> Option<String> {
    let (name, _) = text.strip_prefix("Invalid function '")?.split_once('\'')?;
    if let Some((_, form)) = TRANSLATED.iter().find(|(names, _)| names.contains(&name)) {
        let form = form.replace("{}", name);
        return Some(format!("{name} takes other arguments: write {form}"));
    }
    if OF_WINDOWS.contains(&name) {
        return Some(format!(
            "{name} works on a window: write {name}(...) OVER (ORDER BY ts)"
        ));
    }
    if let Some((_, meant)) = MEANT.iter().find(|(names, _)| names.contains(&name)) {
        return Some(format!("there is no function \"{name}\": write {meant}"));
    }
    let translated = TRANSLATED
        .iter()
        .flat_map(|(names, _)| names.iter().copied());
    let of_library = of_library();
    let known = COMMON
        .into_iter()
        .chain(translated)
        .chain(OF_WINDOWS)
        .chain(of_library.iter().map(String::as_str));
    Some(match nearest(name, known) {
        Some(meant) => format!("there is no function \"{name}\": did you mean {meant}?"),
        None => format!("there is no function \"{name}\""),
    })
}

/// All functions of the library in one order: the one that it suggests itself depends on the order of a hash map.
fn of_library() -> Vec<String> {
    let mut names = BTreeSet::new();
    let mut keep = |name: &str, aliases: &[String]| {
        names.insert(name.to_owned());
        names.extend(aliases.iter().cloned());
    };
    for function in SessionStateDefaults::default_scalar_functions() {
        keep(function.name(), function.aliases());
    }
    for function in SessionStateDefaults::default_aggregate_functions() {
        keep(function.name(), function.aliases());
    }
    names.into_iter().collect()
}

/// The words for a message about arguments that a function does not take. A message that one of our functions gave itself stays.
pub(crate) fn wrong_arguments(text: &str) -> Option<String> {
    let (before, rest) =
        text.split_once("No function matches the given name and argument types '")?;
    if let Some((_, own)) = before.split_once("user-defined coercion failed with: External error: ")
    {
        return Some(own.trim_end_matches([' ', '.']).to_owned());
    }
    let (call, rest) = rest.split_once("'. ")?;
    let call = in_sql(call);
    let (name, arguments) = call.split_once('(')?;
    let candidates = rest.split_once("Candidate functions:");
    let mut forms: Vec<String> = Vec::new();
    for line in candidates.map_or("", |(_, list)| list).lines() {
        if let Some(form) = form_of(line.trim(), name)
            && !forms.contains(&form)
        {
            forms.push(form);
        }
    }
    if forms.is_empty() {
        return Some(format!("{name} does not take ({arguments}"));
    }
    let more = if forms.len() > MAX_FORMS { ", ..." } else { "" };
    if let Some(of_text) = part_of_text(&call) {
        return Some(of_text);
    }
    let hint = hint(&call, &forms);
    forms.truncate(MAX_FORMS);
    Some(format!(
        "there is no {call}, but {}{more}{hint}",
        forms.join(", ")
    ))
}

/// Advice for `text[1:2]` where the places are no constants.
fn part_of_text(call: &str) -> Option<String> {
    let arguments = call
        .strip_prefix("array_slice(")
        .or_else(|| call.strip_prefix("array_element("))?;
    arguments.starts_with("varchar").then(|| {
        "[ ] takes parts of lists; of texts: substr(text, first), substr(text, first, how_many), left(text, n), right(text, n)".to_owned()
    })
}

/// Types of numbers that may be times.
const NUMBERS: [&str; 3] = ["bigint", "integer", "double"];

/// Advice on types, where another form takes as many arguments.
fn hint(call: &str, forms: &[String]) -> &'static str {
    let count = |call: &str| match call.ends_with("()") {
        true => 0,
        false => call.matches(',').count() + 1,
    };
    let alike = || forms.iter().filter(|form| count(form) == count(call));
    let takes = |kind: &str| alike().any(|form| form.contains(kind));
    let between_values = call.starts_with("median(") || call.starts_with("percentile_cont(");
    let is_time = ["duration", "interval", "timestamp", "date"]
        .iter()
        .any(|kind| call.contains(kind));
    if between_values && is_time {
        ": quantile_disc(x, 0.5) takes times and durations, of which it gives one that is there"
    } else if call.starts_with("to_char(") && !is_time {
        ": it shows times, which to_timestamp(x) makes of seconds since 1970; CAST(x AS DECIMAL(10, 2)) shows a number with two digits behind the point"
    } else if count(call) == 0 || alike().next().is_none() {
        ""
    } else if (call.contains("timestamp") || call.contains("(date)")) && takes("double") {
        ": epoch(x) makes a number of a time"
    } else if takes("double") || takes("decimal") || takes("number") {
        ": cast what is meant, as in CAST(x AS DOUBLE)"
    } else if takes("timestamp") && NUMBERS.iter().any(|number| call.contains(number)) {
        // A cast would count nanoseconds.
        ": to_timestamp(x) makes a time of seconds since 1970, to_timestamp_millis(x) of milliseconds"
    } else if takes("timestamp") {
        ": cast what is meant, as in CAST(x AS TIMESTAMP)"
    } else if takes("varchar") {
        ": cast what is meant, as in CAST(x AS VARCHAR)"
    } else {
        ": cast what is meant"
    }
}

/// A signature in the words of statements; none for one that says nothing.
fn form_of(signature: &str, name: &str) -> Option<String> {
    if signature.is_empty() || signature.contains("UserDefined") || signature.contains("Null)") {
        return None;
    }
    let inside = signature
        .strip_prefix(name)?
        .strip_prefix('(')?
        .strip_suffix(')')?;
    let mut inside = in_sql(inside);
    for (known, shown) in SIGNATURES {
        inside = inside.replace(known, shown);
    }
    let arguments = inside.split(", ").map(|argument| {
        let kind = argument.split_once(": ").map_or(argument, |(_, kind)| kind);
        match (kind, kind.matches('/').count()) {
            ("Timestamp", _) => "timestamp",
            ("Date", _) => "date",
            ("Time", _) => "time",
            (_, 0) => kind,
            (_, 1..=3) => kind.split('/').next().unwrap_or(kind),
            _ => "any",
        }
    });
    let arguments: Vec<&str> = arguments.collect();
    Some(format!("{name}({})", arguments.join(", ")).replace(" with time zone", ""))
}
