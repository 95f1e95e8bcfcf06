//! Messages of the library that plans statements, in the words of those who write statements.
//!
//! Invariants: every message of the library passes through here once; no name of its types, traits or crates comes out.
//! A message that is not known here is left as it is, but for such names and requests to report it elsewhere.

pub(crate) mod columns;
mod functions;
pub(crate) mod syntax;
mod terms;

pub(crate) use terms::in_sql;

/// Messages and their replacements. `{}` stands for any text and `{x}` for an expression or a type, which is put into
/// the words of statements; `{0}` is the first of them. More special ones come first.
const RULES: &[(&str, &str)] = &[
    // Types of operands.
    (
        "Cannot coerce arithmetic expression Timestamp({}) {} Utf8 to valid types",
        "timestamp {1} varchar cannot be computed: add or subtract an interval, as in ts + INTERVAL '1 day', or make the text a time: \
         CAST(name AS TIMESTAMP)",
    ),
    (
        "Cannot coerce arithmetic expression Timestamp({}) {} {x} to valid types",
        "timestamp {1} {2} cannot be computed: add or subtract an interval, as in ts + INTERVAL '1 day'",
    ),
    (
        "Cannot coerce arithmetic expression Date32 {} Duration({}) to valid types",
        "date {0} duration cannot be computed: CAST the date AS TIMESTAMP",
    ),
    (
        "Plan: [{}",
        "the rows of this aggregate cannot be put in the order of its ORDER BY: compute what it orders by in a query in FROM",
    ),
    (
        "In/Exist/SetComparison subquery can only be used in {} but was used in [Sort: {}",
        "ORDER BY takes no IN (SELECT ...) and no EXISTS: select it as a column, and order by that",
    ),
    (
        "Cannot coerce arithmetic expression {x} to valid types",
        "{0} cannot be computed: CAST one of them",
    ),
    (
        "Cannot get result type for temporal operation {x}: Invalid {}",
        "{0} cannot be computed",
    ),
    (
        "Invalid arithmetic operation: !{x}",
        "there is no negative {0}",
    ),
    (
        "Cannot automatically convert Int64 to Interval({})",
        "an interval is added to times, not to bigint: to_timestamp(x) makes a time of seconds since 1970",
    ),
    (
        "Cannot automatically convert Int32 to Interval({})",
        "an interval is added to times, not to integer: to_timestamp(x) makes a time of seconds since 1970",
    ),
    (
        "Cannot automatically convert Float64 to Interval({})",
        "an interval is added to times, not to double: to_timestamp(x) makes a time of seconds since 1970",
    ),
    (
        "Cannot automatically convert {x} to {x}",
        "{0} is not taken for {1}: CAST it",
    ),
    (
        "Typed literal requires a string payload",
        "DATE, TIME and TIMESTAMP take their text in quotes, as in DATE '2026-01-31'",
    ),
    (
        "Unary operator '-' only supports {}",
        "- takes a number or an interval; the negative of a duration d is d * -1",
    ),
    (
        "Unary operator 'NOT' requires a boolean expression, got {x}",
        "NOT takes a boolean, not {0}: write a comparison",
    ),
    (
        "Cannot infer common argument type for logical boolean operation {x}",
        "{0}: AND and OR take booleans; write comparisons",
    ),
    (
        "There isn't a common type to coerce {x} and {x} in LIKE expression",
        "LIKE takes two texts, not {0} and {1}: CAST(x AS VARCHAR) makes a text",
    ),
    (
        "Cannot infer common argument type for regex operation {x}",
        "{0}: a regular expression is matched with a text; CAST(x AS VARCHAR) makes one",
    ),
    (
        "Cannot infer common string type for string concat operation {x}",
        "{0}: || joins texts; CAST(x AS VARCHAR) makes one",
    ),
    (
        "Cannot infer common argument type for comparison operation Timestamp({}) {} Int64",
        "timestamp {1} bigint cannot be compared: write a time, as in ts {1} '2026-01-31' or to_timestamp(1700000000)",
    ),
    (
        "Cannot infer common argument type for comparison operation {x} IS {}DISTINCT FROM Boolean",
        "{0} IS TRUE or FALSE cannot be computed, which booleans are: write a comparison, as in x <> 0",
    ),
    (
        "Cannot infer common argument type for comparison operation Boolean {} Utf8",
        "boolean {0} varchar cannot be compared: write {0} true or {0} false, without quotes",
    ),
    (
        "Cannot infer common argument type for comparison operation {x}",
        "{0} cannot be compared: CAST one side to the type of the other",
    ),
    (
        "Failed to coerce types {x} and {x} in BETWEEN expression",
        "{0} and {1} cannot be compared: CAST one side to the type of the other",
    ),
    (
        "Can not find compatible types to compare {x} with [{x}]",
        "{0} and {1} cannot be compared: CAST one side to the type of the other",
    ),
    (
        "expr type {x} can't cast to {x} in InSubquery",
        "{0} and {1} cannot be compared: CAST one side of IN to the type of the other",
    ),
    (
        "Cannot infer common type for bitwise operation {x}",
        "{0} cannot be computed: only integers have bits",
    ),
    (
        "Failed to coerce then ({x}) and else ({x}) to common types in CASE WHEN expression",
        "CASE gives {0} in one case and {1} in another: CAST both to one type",
    ),
    (
        "Failed to coerce case ({x}) and when ({x}) to common types in CASE WHEN expression",
        "CASE compares {0} with {1}: CAST one side to the type of the other",
    ),
    (
        "Incompatible inputs for Union: Previous inputs were of type {x}, but got incompatible type {x} on column '{}'",
        "UNION: column \"{2}\" is {0} in one query and {1} in another: CAST it to one type",
    ),
    (
        "{} queries have different number of columns",
        "{0}: all its queries need the same number of columns",
    ),
    (
        "Cannot create filter with non-boolean predicate '{x}' returning {x}",
        "a condition is a boolean, but {0} is {1}: write a comparison, such as {0} IS NOT NULL",
    ),
    (
        "Join condition must be boolean type, but got {x}",
        "ON takes a condition, not {0}: write a comparison, as in a.id = b.id",
    ),
    (
        "Cannot access field at argument {}: type {x} is not {}",
        "{1} has no fields: x['name'] and x.name are for structs; give a table outside of a query another name than a column inside",
    ),
    (
        "Dot access not supported for non-string expr",
        "what follows a field in brackets takes brackets for fields as well: write x['a'][1], not x.a[1]",
    ),
    (
        "unnest() can only be applied to array, struct and null",
        "unnest takes a list",
    ),
    // Values.
    (
        "Invalid timezone \"{}\": {}",
        "\"{0}\" is not a time zone: write a time for example as 2026-01-31T17:00:00, 2026-01-31T17:00:00+02:00 or 2026-01-31 17:00 \
         Europe/Berlin; strptime(text, '%Y-%m-%d %I:%M %p') reads AM and PM",
    ),
    (
        "Error parsing timestamp from '{}' using format '{}': {}",
        "\"{0}\" is not a time in the format '{1}'; formats are those of strftime, as '%d.%m.%Y %H:%M'",
    ),
    (
        "Error parsing timestamp from '{}': {}",
        "\"{0}\" is not a time; write for example 2026-01-31, 2026-01-31T09:30:00.25 or 2026-01-31T09:30:00+02:00",
    ),
    (
        "Error parsing '{}' as time. Tried formats: [{}]",
        "\"{0}\" is not a time of day in the format {1}, which takes hours and minutes, as '%H:%M'",
    ),
    (
        "array_concat does not support type {}",
        "list_concat takes lists, and no NULL in their place",
    ),
    (
        "Cannot cast string '{}' to value of Date32 type",
        "\"{0}\" is not a date; write for example 2026-01-31",
    ),
    (
        "Cannot cast string '{}' to value of Time64({}) type",
        "\"{0}\" is not a time of day; write for example 09:30:00",
    ),
    (
        "Cannot cast string '{}' to value of {x} type",
        "\"{0}\" is no value of type {1}; TRY_CAST makes NULL of such texts",
    ),
    (
        "Cannot cast value '{}' to value of {x} type",
        "\"{0}\" is no value of type {1}; TRY_CAST makes NULL of such texts",
    ),
    (
        "Can't cast value {} to type {x}",
        "{0} is beyond {1}: CAST to a wider type",
    ),
    (
        "Unsupported CAST from Int64 to Interval(MonthDayNano)",
        "a number is no length of time: write '1 hour' or INTERVAL '1 hour'",
    ),
    (
        "Unsupported CAST from {x} to {x}",
        "{0} cannot be cast to {1}",
    ),
    (
        "Unsupported SQL type HUGEINT",
        "HUGEINT is not offered: DECIMAL(38, 0) holds whole numbers of 38 digits",
    ),
    (
        "Unsupported SQL type {}",
        "\"{0}\" is not a type; types are BOOLEAN, TINYINT to BIGINT, REAL, DOUBLE, DECIMAL(18, 3), VARCHAR, DATE, TIMESTAMP, \
         TIMESTAMPTZ and INTERVAL",
    ),
    (
        "{} is too large to store in a Decimal128 of precision {}. Max is {}",
        "{0} is beyond a decimal of {1} digits, which holds at most {2}",
    ),
    (
        "Decimal(precision = {}, scale = {}) should satisfy {}",
        "DECIMAL({0}, {1}): there are at most 76 digits, and not more of them behind the point than in all",
    ),
    (
        "Unable to cast to Date32 for converting from i64 to i32 failed",
        "to_date was given a text that is not a date; write for example 2026-01-31",
    ),
    (
        "Invalid input syntax for type interval: {}",
        "{0} is not an interval; write for example INTERVAL '1 day' or INTERVAL '2 hours 30 minutes'",
    ),
    (
        "Unable to represent {} as {} in a signed 32-bit integer",
        "an interval of {0} is too long",
    ),
    (
        "Cannot cast {x} value {} to {x}: converted value exceeds the representable i64 range",
        "a {0} lies beyond the range of {2}; timestamps in nanoseconds reach from 1677-09-21 to 2262-04-11, TIMESTAMP(6) further",
    ),
    (
        "Cannot cast date value {} to timestamp: {}",
        "a date lies beyond the range of timestamps, which in nanoseconds reach from 1677-09-21 to 2262-04-11",
    ),
    (
        "Cannot cast timestamp value {} to timestamp: {}",
        "a time lies beyond the range of timestamps, which in nanoseconds reach from 1677-09-21 to 2262-04-11",
    ),
    (
        "argument {} must be an INTEGER or NULL, not Column({})",
        "generate_series and range in FROM take constants only, not columns: write unnest(generate_series(1, n)) in SELECT",
    ),
    (
        "DATE_BIN only supports literal values for {x}",
        "time_bucket and date_bin take a constant width",
    ),
    (
        "Timestamp out of range",
        "a time lies beyond the range of timestamps, which in nanoseconds reach from 1677-09-21 to 2262-04-11",
    ),
    (
        "Overflow converting {} to Nanosecond. {}",
        "{0} is beyond timestamps in nanoseconds, which reach from 1677-09-21 to 2262-04-11; TIMESTAMP(6) reaches further",
    ),
    (
        "Divide by zero error",
        "division by zero; NULLIF(x, 0) as the divisor makes the result NULL",
    ),
    ("{x}Array overflow on {}", "{1} is beyond {0}"),
    (
        "Overflow happened on: {} - {}",
        "a difference is beyond 64 bits: {0} - {1}; of times in nanoseconds take epoch(a) - epoch(b)",
    ),
    (
        "Overflow happened on: {} * {}",
        "a product or a CAST is beyond its type, {0} * {1}: of decimals CAST to fewer digits behind the point, of times to TIMESTAMP(6)",
    ),
    (
        "Overflow happened on FACTORIAL({})",
        "factorial({0}) is beyond bigint",
    ),
    ("Invalid HexStringLiteral '{}'", "X'{0}' is not hexadecimal"),
    // Aggregates and windows.
    (
        "Correlated scalar subquery in the GROUP BY clause must also be in the aggregate expressions",
        "a query that depends on the rows outside is not offered as a key of GROUP BY: write SELECT k, count(*) FROM (SELECT (SELECT ...) AS k \
         FROM t) GROUP BY k",
    ),
    (
        "Column in {} must be in GROUP BY or an aggregate function: While expanding wildcard, column \"{x}\" must appear in {}",
        "{0}: column \"{1}\" is neither in GROUP BY nor in an aggregate: add it to GROUP BY, or write for example max({1})",
    ),
    (
        "HAVING clause references: {x} must appear in {}",
        "HAVING {0}: HAVING takes columns of GROUP BY and aggregates; conditions on rows stand in WHERE",
    ),
    (
        "Aggregate functions are not allowed in the WHERE clause. {}",
        "an aggregate cannot stand in WHERE: conditions on groups stand in HAVING, after GROUP BY",
    ),
    (
        "Aggregate function calls cannot be nested: '{x}' is nested inside {}",
        "{0} stands inside another aggregate: compute it in a query of its own, in WITH or FROM",
    ),
    (
        "Aggregate function calls cannot contain window function calls: {}",
        "a window function stands inside an aggregate: compute it in a query of its own, in WITH or FROM",
    ),
    (
        "Window function calls cannot be nested: {}",
        "a window function stands inside another one: compute it in a query of its own, in WITH or FROM",
    ),
    (
        "Cannot find column with position {} in SELECT clause. Valid columns: {}",
        "GROUP BY {0}: the columns of SELECT have the numbers {1}",
    ),
    (
        "Order by column out of bounds, specified: {}, max: {}",
        "ORDER BY {0}: the columns of SELECT have the numbers 1 to {1}",
    ),
    (
        "Order by index starts at 1 for column indexes",
        "ORDER BY counts the columns of SELECT from 1",
    ),
    (
        "For SELECT DISTINCT, ORDER BY expressions {x} must appear in select list",
        "ORDER BY {0}: SELECT DISTINCT can only be ordered by what it selects; add {0} to it or leave DISTINCT out",
    ),
    (
        "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
        "ORDER BY must begin with the expressions of DISTINCT ON",
    ),
    (
        "QUALIFY clause requires {}",
        "QUALIFY filters by a window function, and there is none: write WHERE",
    ),
    (
        "There is only support Literal types for field at idx: {} in Window Function",
        "the distance of lag and lead, and their default, are constants: for another default write coalesce(lag(x) OVER (...), y)",
    ),
    (
        "Expected a signed integer literal for the second argument of nth_value",
        "nth_value takes a value and a whole number, as in nth_value(x, 2)",
    ),
    (
        "Expected an integer value",
        "a window function needs a whole number here",
    ),
    (
        "NTILE requires a positive integer",
        "ntile takes a whole number from 1 on",
    ),
    (
        "The window {} is not defined!",
        "there is no window \"{0}\": define it by WINDOW {0} AS (...), or write OVER (...)",
    ),
    (
        "Invalid window frame: start bound ({}) cannot be larger than end bound ({})",
        "a window ends before it begins: the longer distance of PRECEDING comes first, that of FOLLOWING last",
    ),
    (
        "Invalid window frame: frame offsets for RANGE {}",
        "RANGE takes a number or an interval, and no negative one",
    ),
    (
        "Invalid window frame: frame offsets for ROWS / GROUPS {}",
        "ROWS and GROUPS take whole numbers from 0 on",
    ),
    (
        "RANGE requires exactly one ORDER BY column",
        "RANGE with a distance needs ORDER BY with exactly one column",
    ),
    (
        "GROUPS requires an ORDER BY clause",
        "GROUPS needs ORDER BY",
    ),
    (
        "FILTER clause can only be used with aggregate window functions. {}",
        "FILTER is for aggregates, not for functions such as rank()",
    ),
    (
        "WITHIN GROUP is only supported for ordered-set aggregate functions",
        "WITHIN GROUP is for percentile_cont and its like: leave it out here",
    ),
    (
        "Only a single ordering expression is permitted in a WITHIN GROUP clause",
        "WITHIN GROUP takes one column to order by",
    ),
    (
        "Argument {x} to grouping function is not in grouping columns{}",
        "grouping({0}): {0} is not in GROUP BY",
    ),
    (
        "Percentile value must be between 0.0 and 1.0 inclusive, {} is invalid",
        "a percentile lies between 0 and 1, not at {0}: the median is 0.5",
    ),
    (
        "Percentile value for '{}' must be real or double literal (got {x})",
        "a percentile is a number between 0 and 1, not {1}: the median is 0.5",
    ),
    (
        "Percentile value for '{}' must be a literal",
        "the percentile must be a constant between 0 and 1, as 0.5",
    ),
    (
        "[return_type] {} not supported for Null",
        "{0} takes a column, not *",
    ),
    // Subqueries and tables.
    (
        "Scalar subquery returned more than one row",
        "a subquery in the place of a value returned several rows: take one by LIMIT 1 or an aggregate, or write IN (SELECT ...)",
    ),
    (
        "Correlated scalar subquery must be aggregated to return at most one row",
        "a subquery in the place of a value could return several rows: take one by an aggregate such as max(x), or write a JOIN",
    ),
    (
        "Correlated scalar subquery can only be used in {}",
        "a subquery that uses columns of the query around it can stand in SELECT and WHERE only: write a JOIN",
    ),
    (
        "Too many columns! The subquery should only return one column: {x}",
        "a subquery in the place of a value must have one column, not {0}",
    ),
    (
        "WITH query name \"{}\" specified more than once",
        "WITH has two queries called \"{0}\": name one of them otherwise",
    ),
    (
        "Source table contains {} columns but only {} names given as column alias",
        "the table has {0} columns and is given {1} names",
    ),
    (
        "Inconsistent data type across values list at row {} column {}. Was {x} but found {x}",
        "a column of VALUES holds {2} in one row and {3} in another: CAST them to one type",
    ),
    (
        "Inconsistent data length across values list: got {} values in row {} but expected {}",
        "VALUES: row {1} has {0} values and the first has {2}",
    ),
    (
        "Invalid qualifier {}",
        "the query has no table \"{0}\", so there is no {0}.*",
    ),
    (
        "compound identifier: [{}]",
        "a name has at most three parts, not {0}",
    ),
    (
        "Projections require unique expression names but the expression \"{x}\" at position {} and \"{x}\" at position {} have {}",
        "two columns of the result have the same name, {0} and {2}: name one of them by AS",
    ),
    // Arguments.
    (
        "Unsupported date_trunc granularity: '{}'. Supported values are: {}",
        "\"{0}\" is no unit of date_trunc: write {1}",
    ),
    (
        "Granularity of `date_trunc` must be {}",
        "the unit of date_trunc must be a constant, as in date_trunc('hour', ts)",
    ),
    (
        "Date part '{}' not supported",
        "\"{0}\" is no part of a time: write year, quarter, month, week, day, dow, doy, hour, minute, second or epoch",
    ),
    (
        "DATE_BIN stride does not support {}",
        "a bucket is as wide as a number of months, or of days and shorter units, not of both",
    ),
    (
        "DATE_BIN stride must be non-zero",
        "the width of a bucket must not be zero",
    ),
    (
        "Format error",
        "the format has a pattern that strftime does not know; write for example '%Y-%m-%d %H:%M:%S'",
    ),
    (
        "to_date function unsupported data type at index {}: {x}",
        "to_date takes a text and formats as texts, not {1}",
    ),
    (
        "Unsupported type '{}'. Must be a supported arrow type name {}",
        "\"{0}\" is not a type of arrow_cast: write CAST(x AS ...)",
    ),
    (
        "arrow_cast requires {}",
        "the type of arrow_cast must be a constant: write CAST(x AS ...)",
    ),
    (
        "{} function requires {} arguments",
        "{0} takes {1} arguments",
    ),
    (
        "Third argument must be {}, got {x}",
        "argument 3 must be {0}, not {1}",
    ),
    (
        "Unnest should be rewritten to {}",
        "unnest stands in SELECT and FROM only",
    ),
    (
        "Argument #{} must be an {}, got {x}",
        "argument {0} must be an {1}, not {2}",
    ),
    ("Step cannot be zero", "the step must not be zero"),
    (
        "step can't be 0 for function {}",
        "the step must not be zero",
    ),
    (
        "column types must match schema types, {}",
        "a function of the statement lacks an argument, or takes another type",
    ),
    (
        "invalid Unicode scalar value: {}",
        "chr takes the number of a character, not {0}",
    ),
    (
        "Month value '{}' is out of range",
        "there is no month {0}: months are 1 to 12",
    ),
    (
        "Day value '{}' is out of range",
        "there is no day {0} in that month",
    ),
    (
        "There is no built-in encoding named '{}', currently supported encodings are: {}",
        "there is no encoding '{0}': write one of {1}",
    ),
    (
        "Failed to decode value using {}: {}",
        "the text is not {0}: {1}",
    ),
    (
        "{} requires an even number of arguments",
        "{0} takes pairs of names and values",
    ),
    (
        "Substring without for/from is not valid {}",
        "substr takes a text and where to begin, as in substr(x, 1, 3)",
    ),
    (
        "LIMIT must be >= 0, '{}' was provided",
        "LIMIT {0}: it takes a whole number from 0 on",
    ),
    (
        "OFFSET must be >=0, '{}' was provided",
        "OFFSET {0}: it takes a whole number from 0 on",
    ),
    (
        "Expected {} to be an integer or null, but got {x}",
        "{0} takes a whole number, not {1}",
    ),
    (
        "Invalid explain format. Expected {}. Got '{}'",
        "EXPLAIN FORMAT {1} does not exist: write {0}",
    ),
    // What is not offered.
    (
        "Unsupported JOIN operator {}",
        "this kind of JOIN is not offered by this version",
    ),
    (
        "Unsupported ast node in sqltorel: Collate{}",
        "COLLATE is not offered by this version: texts are compared byte by byte",
    ),
    (
        "Unsupported ast node {}",
        "an expression of this kind is not offered by this version",
    ),
    (
        "Unsupported LIMIT expression: {}",
        "LIMIT takes a whole number or a parameter",
    ),
    (
        "Unsupported binary operator: PGOverlap",
        "there is no operator &&: write AND",
    ),
    (
        "Unsupported binary operator: {}",
        "the statement has an operator that is not offered by this version",
    ),
    (
        "Unsupported SQL unary operator {}",
        "the statement has an operator that is not offered by this version",
    ),
    (
        "variable [\"{}\"] has no type information",
        "there are no variables like {0}: write a parameter, as $name",
    ),
    (
        "Cannot project plan column {}",
        "the second part of a recursive query has other types than the first: CAST what it selects, as in CAST(d + INTERVAL 1 DAY AS DATE)",
    ),
    (
        "Query {} not implemented yet",
        "a query in this place must be a SELECT",
    ),
    (
        "FETCH clause is not supported yet",
        "FETCH FIRST with PERCENT, TIES or LIMIT is not offered: write LIMIT",
    ),
    (
        "Aggregate ORDER BY is not implemented for window functions",
        "an aggregate over a window takes no ORDER BY of its own: write OVER (ORDER BY ts)",
    ),
    (
        "Aggregate can not be used as a sliding accumulator because `retract_batch` is not implemented: {}({}",
        "{0} takes no frame that rows leave, as ROWS 2 PRECEDING: it takes frames that begin with UNBOUNDED PRECEDING",
    ),
    (
        "Operator -> is not yet supported",
        "there is no JSON in SQL: store its fields in columns, or take one by regexp_extract",
    ),
    (
        "Operator ->> is not yet supported",
        "there is no JSON in SQL: store its fields in columns, or take one by regexp_extract",
    ),
    (
        "Operator {} is not yet supported",
        "there is no operator {0}",
    ),
    (
        "COUNT DISTINCT with multiple arguments",
        "count(DISTINCT a, b) is not offered: write count(DISTINCT (a, b))",
    ),
    (
        "wildcard * with RENAME not supported",
        "* RENAME is not offered: name columns by AS",
    ),
];

/// Kinds of expressions that the library cannot plan everywhere.
const PLACES: [(&str, &str); 7] = [
    ("OuterReferenceColumn", OUTER_COLUMN),
    ("InSubquery", "a subquery"),
    ("Exists", "a subquery"),
    ("ScalarSubquery", "a subquery"),
    ("SetComparison", "a subquery"),
    ("WindowFunction", "a window function"),
    ("AggregateFunction", "an aggregate"),
];

/// Begins the names of columns that keys are computed in.
pub(crate) const KEY_PREFIX: &str = "__key ";

/// Words for the columns that LATERAL takes under `=` only.
const OUTER_COLUMN: &str = "a column of the rows outside";

/// A message in plain words.
pub(crate) fn reworded(text: &str) -> String {
    let text = &*text.replace(KEY_PREFIX, "");
    known(text).unwrap_or_else(|| without_internals(without_request(text)))
}

/// The words for a message that is known.
pub(crate) fn known(text: &str) -> Option<String> {
    functions::wrong_arguments(text)
        .or_else(|| functions::unknown(text))
        .or_else(|| unsupported_place(text))
        .or_else(|| regular_expression(text))
        .or_else(|| {
            RULES
                .iter()
                .find_map(|(pattern, words)| applied(pattern, words, text))
        })
}

/// The words with what stands in the holes of the pattern.
fn applied(pattern: &str, words: &str, text: &str) -> Option<String> {
    let mut words = words.to_owned();
    let (mut pattern, mut text) = (pattern, text.trim());
    let mut number = 0;
    loop {
        let hole = pattern
            .find("{x}")
            .into_iter()
            .chain(pattern.find("{}"))
            .min();
        let Some(hole) = hole else {
            return (pattern == text).then_some(words);
        };
        text = text.strip_prefix(&pattern[..hole])?;
        let is_expression = pattern[hole..].starts_with("{x}");
        pattern = &pattern[hole + if is_expression { 3 } else { 2 }..];
        let next = pattern.find('{').unwrap_or(pattern.len());
        let end = match &pattern[..next] {
            "" => text.len(),
            literal => text.find(literal)?,
        };
        let found = match is_expression {
            true => in_sql(&text[..end]),
            false => text[..end].to_owned(),
        };
        words = words.replace(&format!("{{{number}}}"), &found);
        text = &text[end..];
        number += 1;
    }
}

fn unsupported_place(text: &str) -> Option<String> {
    let expr = text.strip_prefix("Physical plan does not support logical expression ")?;
    let kind = expr.split(['(', ' ']).next().unwrap_or_default();
    let known = PLACES.iter().find(|(name, _)| *name == kind);
    let what = known.map_or("this expression", |(_, what)| *what);
    let depending = if what == OUTER_COLUMN {
        "; for the latest reading at each event, last_value(v) IGNORE NULLS OVER (PARTITION BY g ORDER BY ts) of both tables by UNION ALL; \
             for a row of each column, SELECT ts, unnest(['x', 'y']) AS k, unnest([x, y]) AS n FROM t"
    } else if what == "a subquery" {
        "; for one that depends on the rows outside, FROM t LEFT JOIN u ON u.y < t.x GROUP BY t.x; for the latest row of each, \
             SELECT DISTINCT ON (g) ... ORDER BY g, ts DESC, or arg_max(x, ts)"
    } else {
        ""
    };
    Some(format!(
        "{what} is not offered in this place: put it into a query of its own, in WITH or FROM{depending}"
    ))
}

/// The message for a regular expression that is wrong, from one of several lines with a pointer into it.
fn regular_expression(text: &str) -> Option<String> {
    let (_, shown) = text.split_once("regex parse error:\n")?;
    let expression = shown.lines().next()?.trim();
    let (_, reason) = shown.split_once("error: ")?;
    let reason = reason.lines().next()?;
    Some(format!(
        "the regular expression '{expression}' is wrong: {reason}"
    ))
}

/// The message without parts of plans, and with types in the words of statements.
fn without_internals(text: String) -> String {
    let parts = [" { ", "Some(", "LogicalPlan", "PhysicalExpr"];
    let first = parts.iter().filter_map(|part| text.find(part)).min();
    match first {
        None => in_sql_outside_quotes(&text),
        Some(end) => {
            let kept = text[..end].rfind(' ').map_or("", |end| &text[..end]);
            let kept = in_sql_outside_quotes(kept.trim_end_matches([':', ' ', ',']));
            format!("the statement asks for something that is not offered ({kept})")
        }
    }
}

/// Writes types in the words of statements, and nothing else: what looks like a column may be the value of a user.
fn in_sql_outside_quotes(text: &str) -> String {
    let words = text.split_inclusive([' ', ',']).map(|word| {
        let bare = word.trim_end_matches([' ', ',', '.']);
        let bare = match bare.contains('(') {
            true => bare,
            false => bare.trim_end_matches(')'),
        };
        match bare.starts_with(char::is_uppercase) && !bare.contains(['\'', '"', '.']) {
            true => format!("{}{}", in_sql(bare), &word[bare.len()..]),
            false => word.to_owned(),
        }
    });
    words.collect()
}

fn without_request(text: &str) -> String {
    let begins = text.find("This issue was likely caused by a bug in DataFusion");
    let ends = text.find("issue tracker: https://github.com/apache/datafusion/issues");
    match (begins, ends) {
        (Some(begins), Some(ends)) if begins < ends => {
            let rest = &text[ends..];
            let rest = rest.split_once("issues").map_or("", |(_, rest)| rest);
            let rest = rest.split_once("issues").map_or(rest, |(_, rest)| rest);
            let rest = rest.trim_start_matches(['.', ' ', '\n']);
            format!("{}{rest}", &text[..begins]).trim().to_owned()
        }
        (Some(begins), _) => text[..begins].trim().to_owned(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_messages_are_in_plain_words() {
        for (text, words) in [
            (
                "Function 'avg' failed to match any signature, errors: x. This issue was likely caused by a bug in DataFusion's code. Please help us to resolve this by filing a bug report in our issue tracker: https://github.com/apache/datafusion/issues. No function matches the given name and argument types 'avg(Utf8)'. You might need to add explicit type casts.\n\tCandidate functions:\n\tavg(Decimal)\n\tavg(Float64)",
                "there is no avg(varchar), but avg(decimal), avg(double): cast what is meant, as in CAST(x AS DOUBLE)",
            ),
            (
                "Invalid function 'locf'.\nDid you mean 'lower'?",
                "there is no function \"locf\": write last_value(x) IGNORE NULLS OVER (ORDER BY ts)",
            ),
            (
                "Cannot cast Date32 value 120530 to Timestamp(ns): converted value exceeds the representable i64 range",
                "a date lies beyond the range of timestamp; timestamps in nanoseconds reach from 1677-09-21 to 2262-04-11, TIMESTAMP(6) further",
            ),
            (
                "Invalid function 'date_bim'.\nDid you mean 'date_bin'?",
                "there is no function \"date_bim\": did you mean date_bin?",
            ),
            (
                "Projections require unique expression names but the expression \"a.v\" at position 0 and \"a.v\" at position 1 have the same name. Consider aliasing (\"AS\") one of them.",
                "two columns of the result have the same name, v and v: name one of them by AS",
            ),
            (
                "Physical plan does not support logical expression InSubquery(InSubquery { expr: Literal(Float64(5), None) })",
                "a subquery is not offered in this place: put it into a query of its own, in WITH or FROM; for one that depends on the rows outside, FROM t LEFT JOIN u ON u.y < t.x GROUP BY t.x; for the latest row of each, SELECT DISTINCT ON (g) ... ORDER BY g, ts DESC, or arg_max(x, ts)",
            ),
            (
                "it broke. This issue was likely caused by a bug in DataFusion's code. Please help us to resolve this by filing a bug report in our issue tracker: https://github.com/apache/datafusion/issues",
                "it broke.",
            ),
            (
                "Divide by zero error",
                "division by zero; NULLIF(x, 0) as the divisor makes the result NULL",
            ),
            (
                "Cannot coerce arithmetic expression Timestamp(ns) + Int64 to valid types",
                "timestamp + bigint cannot be computed: add or subtract an interval, as in ts + INTERVAL '1 day'",
            ),
            (
                "Error parsing timestamp from 'Utf8 a.b': too short",
                "\"Utf8 a.b\" is not a time; write for example 2026-01-31, 2026-01-31T09:30:00.25 or 2026-01-31T09:30:00+02:00",
            ),
            (
                "regex parse error:\n    (\n    ^\nerror: unclosed group",
                "the regular expression '(' is wrong: unclosed group",
            ),
            (
                "Unknown thing: Foo(Bar { a: 1 })",
                "the statement asks for something that is not offered (Unknown thing)",
            ),
            (
                "a column is Timestamp(ns), not Utf8",
                "a column is timestamp, not varchar",
            ),
            (
                "Function 'f' user-defined coercion failed with: External error: f takes a zone. No function matches the given name and argument types 'f(Int64)'. You might need",
                "f takes a zone",
            ),
            ("anything else", "anything else"),
        ] {
            assert_eq!(reworded(text), words);
        }
    }
}
