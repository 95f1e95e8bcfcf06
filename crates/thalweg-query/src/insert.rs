//! INSERT INTO: rows of VALUES or of a query, stored in one commit.
//!
//! Invariants: values go to columns by place, then by the names of the table; what SQL converts on assignment (text to
//! numbers, numbers to narrower floats and decimals) is converted here, everything else is up to the table, which takes
//! what loses nothing. Rows of literals never meet the planner of queries.

use crate::dialect::of_subqueries;
use crate::error::{from_arrow, from_datafusion, query, unsupported};
use crate::functions::within_floats::{first_beyond, is_infinity};
use crate::params::BoundParams;
use crate::parse::{table_name, written};
use crate::pushdown::bucket::interval_ns;
use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, NullArray, RecordBatch, RecordBatchOptions,
};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    DataType, Field, Float64Type, IntervalMonthDayNanoType, IntervalUnit, Schema, SchemaRef,
    TimeUnit,
};
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;
use datafusion::common::ScalarValue;
use datafusion_sql::parser::Statement as DfStatement;
use datafusion_sql::sqlparser::ast::{
    ConflictTarget, DoUpdate, Expr, Insert, ObjectName, OnConflictAction, OnInsert, Parens, Query,
    SetExpr, SqliteOnConflict, Statement as SqlStatement, TableObject, UnaryOperator, Value,
    Values,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_table::schema::sql_type_name;
use thalweg_table::{
    Column, Error, ErrorKind, OnDuplicate, Result, Table, TableDefinition, UniqueKey, shown_value,
};

/// The name of the table that rows go to.
pub(crate) fn target(insert: &Insert) -> Result<String> {
    refuse_extras(insert)?;
    match &insert.table {
        TableObject::TableName(name) => table_name(name),
        _ => Err(unsupported("INSERT INTO is offered for tables only")),
    }
}

/// The query that rows come from.
pub(crate) fn source(insert: &Insert) -> Result<&Query> {
    insert
        .source
        .as_deref()
        .ok_or_else(|| query("INSERT INTO needs VALUES or a query"))
}

fn refuse_extras(insert: &Insert) -> Result<()> {
    let refused = [
        (
            insert.overwrite,
            "INSERT OVERWRITE is not offered: DROP TABLE, then CREATE TABLE AS, stores other rows",
        ),
        (
            matches!(
                insert.or,
                Some(SqliteOnConflict::Rollback | SqliteOnConflict::Fail)
            ),
            "INSERT OR ROLLBACK and OR FAIL are not offered: an INSERT stores all rows or none, and a transaction goes on",
        ),
        (
            matches!(insert.on, Some(OnInsert::DuplicateKeyUpdate(_))),
            "ON DUPLICATE KEY UPDATE is not offered: write ON CONFLICT DO UPDATE SET v = excluded.v",
        ),
        (
            insert.returning.is_some() || insert.output.is_some(),
            "RETURNING is not offered by this version: the result of an INSERT is the number of rows",
        ),
        (
            insert.partitioned.is_some() || !insert.after_columns.is_empty(),
            "INSERT ... PARTITION is not offered: tables divide themselves by time (option split)",
        ),
        (
            !insert.assignments.is_empty(),
            "INSERT ... SET is not offered: write INSERT INTO t (a, b) VALUES (1, 2)",
        ),
    ];
    match refused.iter().find(|(given, _)| *given) {
        Some((_, message)) => Err(unsupported(*message)),
        None => Ok(()),
    }
}

/// The treatment of rows of an INSERT whose unique key is there.
#[derive(Debug)]
pub(crate) enum OnConflict<'a> {
    /// That of the table.
    OfTable,
    /// One that the statement names.
    Rule(OnDuplicate),
    /// It changes the row that is there.
    Update(&'a DoUpdate),
}

/// The treatment of rows whose unique key is there, by an INSERT into a table.
pub(crate) fn on_conflict<'a>(
    insert: &'a Insert,
    definition: &TableDefinition,
) -> Result<OnConflict<'a>> {
    let wanted = match (&insert.or, &insert.on) {
        (None, None) if insert.replace_into => OnConflict::Rule(OnDuplicate::Last),
        (None, None) if insert.ignore => OnConflict::Rule(OnDuplicate::First),
        (None, None) => return Ok(OnConflict::OfTable),
        (Some(SqliteOnConflict::Replace), None) => OnConflict::Rule(OnDuplicate::Last),
        (Some(SqliteOnConflict::Ignore), None) => OnConflict::Rule(OnDuplicate::First),
        (Some(_), None) => OnConflict::Rule(OnDuplicate::Error),
        (_, Some(OnInsert::OnConflict(conflict))) if insert.or.is_none() => {
            if definition.unique().is_some() {
                check_target(conflict.conflict_target.as_ref(), definition)?;
            }
            match &conflict.action {
                OnConflictAction::DoNothing => OnConflict::Rule(OnDuplicate::First),
                OnConflictAction::DoUpdate(update) => OnConflict::Update(update),
            }
        }
        _ => {
            return Err(query(
                "an INSERT says once what it does with rows whose unique key is there: OR REPLACE, OR IGNORE or ON CONFLICT",
            ));
        }
    };
    match definition.unique() {
        Some(_) => Ok(wanted),
        None => Err(query(
            "the table has no unique key, so that no row can conflict: CREATE TABLE ... (..., PRIMARY KEY (device, ts)) makes one",
        )),
    }
}

/// Refuses a target other than the unique key of the table.
fn check_target(target: Option<&ConflictTarget>, definition: &TableDefinition) -> Result<()> {
    let columns = match target {
        None => return Ok(()),
        Some(ConflictTarget::Columns(columns)) => columns,
        Some(ConflictTarget::OnConstraint(_)) => {
            return Err(unsupported(
                "ON CONFLICT ON CONSTRAINT is not offered: name the columns of the unique key, as ON CONFLICT (device, ts)",
            ));
        }
    };
    let of_key = definition.unique().map_or(&[][..], UniqueKey::columns);
    let mut given = Vec::new();
    for column in columns {
        let position = definition.position_named(&column.value)?;
        given.push(definition.columns()[position].id);
    }
    given.sort_unstable();
    given.dedup();
    let mut wanted = of_key.to_vec();
    wanted.sort_unstable();
    if given == wanted {
        return Ok(());
    }
    let names = of_key.iter().filter_map(|id| definition.column(*id));
    let names: Vec<&str> = names.map(|column| &*column.name).collect();
    Err(query(format!(
        "ON CONFLICT names other columns than the unique key of the table, which is ({})",
        names.join(", ")
    )))
}

/// The columns of the table that values go to, in the order of the statement.
pub(crate) fn columns(insert: &Insert, definition: &TableDefinition) -> Result<Vec<usize>> {
    if insert.columns.is_empty() {
        return Ok((0..definition.columns().len()).collect());
    }
    let position = |name: &ObjectName| definition.position_named(&table_name(name)?);
    let positions = insert
        .columns
        .iter()
        .map(position)
        .collect::<Result<Vec<_>>>()?;
    for (at, position) in positions.iter().enumerate() {
        if positions[..at].contains(position) {
            return Err(query(format!(
                "the column \"{}\" is named twice",
                definition.columns()[*position].name
            )));
        }
    }
    Ok(positions)
}

/// Rows whose columns stand for `positions`, as rows of the table. `of_query`: a query can make other values of them.
pub(crate) fn assigned(
    table: &Table,
    positions: &[usize],
    batches: impl Iterator<Item = Result<RecordBatch>>,
    of_query: bool,
) -> impl Iterator<Item = Result<RecordBatch>> {
    let definition = table.definition();
    let mut before = 0;
    let table = table.name();
    batches.map(move |batch| {
        let batch = batch?;
        let refusals = Refusals {
            table,
            before: Some(before),
            of_query,
        };
        before += batch.num_rows();
        assign_batch(&definition, positions, &batch, &refusals)
    })
}

/// Rows of a query whose columns stand for `positions`, as rows of a table with this definition. Its errors do not number rows: these
/// have no order that a user knows.
pub(crate) fn stored(
    table: &str,
    definition: &TableDefinition,
    positions: &[usize],
    rows: &RecordBatch,
) -> Result<RecordBatch> {
    let refusals = Refusals {
        table,
        before: None,
        of_query: true,
    };
    assign_batch(definition, positions, rows, &refusals)
}

/// The errors for values that columns do not take.
struct Refusals<'a> {
    table: &'a str,
    /// Rows before those of the batch, which messages count too. `None`: messages number no rows.
    before: Option<usize>,
    of_query: bool,
}

impl Refusals<'_> {
    fn of(&self, column: &Column, why: &str) -> Error {
        let (table, column) = (self.table, &column.name);
        let message = format!("table \"{table}\": column \"{column}\": {why}");
        Error::new(ErrorKind::Schema, message)
    }

    fn of_value(&self, column: &Column, array: &ArrayRef, row: usize, why: &str) -> Error {
        let value = shown_value(array, row);
        let row = match self.before {
            Some(before) => format!("row {}", before + row),
            None => "a row".to_owned(),
        };
        self.of(column, &format!("{row} holds {value}, which {why}"))
    }

    /// The error for an array that is not cast: of texts it names the first that is no value of the type.
    fn of_cast(&self, column: &Column, array: &ArrayRef, error: ArrowError) -> Error {
        let read = match is_text(array.data_type()) {
            true => cast(array, &column.data_type).ok(),
            false => None,
        };
        let is_unread = |read: &ArrayRef, row: usize| array.is_valid(row) && read.is_null(row);
        let unread = read.and_then(|read| (0..array.len()).find(|row| is_unread(&read, *row)));
        let Some(row) = unread else {
            return self.of(column, from_arrow(error).message());
        };
        let advice = match self.of_query {
            true => "; TRY_CAST makes NULL of such texts",
            false => "",
        };
        let name = type_words(column);
        self.of_value(
            column,
            array,
            row,
            &format!("is no value of type {name}{advice}"),
        )
    }
}

fn type_words(column: &Column) -> String {
    sql_type_name(&column.data_type).to_lowercase()
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

fn assign_batch(
    definition: &TableDefinition,
    positions: &[usize],
    batch: &RecordBatch,
    refusals: &Refusals<'_>,
) -> Result<RecordBatch> {
    check_width(positions.len(), batch.num_columns())?;
    let mut fields = Vec::with_capacity(positions.len());
    let mut arrays = Vec::with_capacity(positions.len());
    for (array, position) in batch.columns().iter().zip(positions) {
        let column = &definition.columns()[*position];
        let assigned = assign(array, &column.data_type)
            .map_err(|error| refusals.of_cast(column, array, error))?;
        let rounded = first_rounded(array, &assigned);
        if let Some(row) = rounded.map_err(|error| refusals.of(column, &error.to_string()))? {
            let name = type_words(column);
            let why = format!("{name} cannot hold exactly; cast or round it first");
            return Err(refusals.of_value(column, array, row, &why));
        }
        let array = assigned;
        fields.push(Field::new(&column.name, array.data_type().clone(), true));
        arrays.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
        .map_err(from_arrow)
}

fn check_width(wanted: usize, given: usize) -> Result<()> {
    if wanted == given {
        return Ok(());
    }
    Err(query(format!(
        "{wanted} columns take values, {given} are given"
    )))
}

/// The only value of an array as one that a column of a type takes or refuses.
pub(crate) fn assigned_value(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let assigned = assign(array, to).map_err(from_arrow)?;
    if first_rounded(array, &assigned)
        .map_err(from_arrow)?
        .is_some()
    {
        let name = sql_type_name(to).to_lowercase();
        return Err(query(format!(
            "{name} cannot hold it exactly; round it first"
        )));
    }
    Ok(assigned)
}

/// Converts what SQL converts when it assigns; other values stay as they are.
fn assign(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    use DataType as T;
    let from = array.data_type();
    let text = is_text(from);
    let decimal = |data_type: &DataType| matches!(data_type, T::Decimal128(..) | T::Decimal256(..));
    let number = |data_type: &DataType| {
        data_type.is_integer() || data_type.is_floating() || decimal(data_type)
    };
    if let (T::Interval(IntervalUnit::MonthDayNano), T::Duration(unit)) = (from, to) {
        return durations(array, *unit);
    }
    let converts = from != to
        && ((text && (number(to) || *to == T::Boolean))
            || (number(from) && decimal(to))
            || (decimal(from) && to.is_floating())
            || (matches!(from, T::Decimal128(_, 0)) && to.is_integer()));
    if !converts {
        return Ok(Arc::clone(array));
    }
    let options = CastOptions {
        safe: false,
        format_options: FormatOptions::default(),
    };
    let assigned = cast_with_options(array, to, &options)?;
    match first_beyond(array, &assigned)? {
        None => Ok(assigned),
        Some(value) => {
            let message = format!("{value} is beyond {}", sql_type_name(to));
            Err(ArrowError::CastError(message))
        }
    }
}

/// Intervals of days and less as lengths of time.
fn durations(intervals: &ArrayRef, unit: TimeUnit) -> Result<ArrayRef, ArrowError> {
    let ns = |interval| {
        let interval = ScalarValue::IntervalMonthDayNano(Some(interval));
        interval_ns(&interval).ok_or_else(|| {
            let message = "an interval of months has no fixed length, and one of days and less ends at 292 years";
            ArrowError::CastError(message.to_owned())
        })
    };
    let lengths: Int64Array = intervals
        .as_primitive::<IntervalMonthDayNanoType>()
        .try_unary(ns)?;
    // What is no whole number of units is for the table to refuse.
    let lengths = cast(&lengths, &DataType::Duration(TimeUnit::Nanosecond))?;
    let exact = cast(&lengths, &DataType::Duration(unit))?;
    let back = cast(&exact, lengths.data_type())?;
    Ok(if distinct(&lengths, &back)?.true_count() == 0 {
        exact
    } else {
        lengths
    })
}

/// The first value that lost digits when it became a decimal.
fn first_rounded(given: &ArrayRef, assigned: &ArrayRef) -> Result<Option<usize>, ArrowError> {
    let DataType::Decimal128(_, scale) = assigned.data_type() else {
        return Ok(None);
    };
    let from = given.data_type();
    if from == assigned.data_type() {
        return Ok(None);
    }
    if from.is_floating() {
        let given = cast(given, &DataType::Float64)?;
        let back = cast(assigned, &DataType::Float64)?;
        let pairs = given.as_primitive::<Float64Type>().iter();
        let pairs = pairs.zip(back.as_primitive::<Float64Type>());
        // Digits that a float does not have are nobody's loss.
        let rounded = |(given, back): (Option<f64>, Option<f64>)| {
            given.zip(back).is_some_and(|(given, back)| {
                (given - back).abs() > given.abs() * 2.0 * f64::EPSILON
            })
        };
        return Ok(pairs.map(rounded).position(|rounded| rounded));
    }
    if is_text(from) {
        let texts = cast(given, &DataType::LargeUtf8)?;
        let digits = i64::from(*scale);
        let rounded = |text: Option<&str>| text.is_some_and(|text| fraction_digits(text) > digits);
        return Ok(texts.as_string::<i64>().iter().position(rounded));
    }
    let back = cast(assigned, from)?;
    let lost = distinct(given, &back)?;
    Ok(lost.values().iter().position(|lost| lost))
}

/// Digits after the point that a number written in decimal needs: zeros at the end are none.
fn fraction_digits(text: &str) -> i64 {
    let text = text.trim();
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let length = |digits: &str| i64::try_from(digits.len()).unwrap_or(i64::MAX);
    let fraction = fraction.trim_end_matches('0');
    let digits = if fraction.is_empty() {
        let significant = whole.trim_end_matches('0');
        if significant.trim_start_matches(['-', '+']).is_empty() {
            return 0;
        }
        length(significant) - length(whole)
    } else {
        length(fraction)
    };
    digits.saturating_sub(exponent.parse().unwrap_or(0))
}

/// The rows of a VALUES, as batches in each of which a column has one type. `computed` gives the values of expressions, in their order;
/// it is asked once, for all that are neither literals nor placeholders.
///
/// Rejected: planning VALUES as a query. That gives each column one type for all rows, and a number with 20 digits beside a computed
/// float is one itself from there on.
pub(crate) fn rows_of_values(
    values: &Values,
    params: &BoundParams,
    types: &[&DataType],
    computed: impl FnOnce(Vec<&Expr>) -> Result<Vec<ScalarValue>>,
) -> Result<Vec<RecordBatch>> {
    let width = types.len();
    let mut columns: Vec<Vec<Option<ScalarValue>>> =
        vec![Vec::with_capacity(values.rows.len()); width];
    let mut to_compute = Vec::new();
    for row in &values.rows {
        check_width(width, row.content.len())?;
        for ((cell, column), to) in row.content.iter().zip(&mut columns).zip(types) {
            let value = literal(cell, params, to);
            if value.is_none() {
                to_compute.push(cell);
            }
            column.push(value);
        }
    }
    if !to_compute.is_empty() {
        let mut computed = computed(to_compute)?.into_iter();
        for row in 0..values.rows.len() {
            for column in &mut columns {
                if column[row].is_none() {
                    column[row] = computed.next();
                }
            }
        }
    }
    let mut known = Vec::with_capacity(width);
    for column in columns {
        let column: Option<Vec<ScalarValue>> = column.into_iter().collect();
        known.push(column.ok_or_else(|| query("a value of the VALUES was not computed"))?);
    }
    if let Some(batch) = one_batch(&known)? {
        return Ok(vec![batch]);
    }
    // Rows with the same types, one after the other.
    let types_of = |row: usize| -> Vec<DataType> {
        known.iter().map(|column| column[row].data_type()).collect()
    };
    let mut batches = Vec::new();
    let mut start = 0;
    while start < values.rows.len() {
        let types = types_of(start);
        let same = (start..values.rows.len()).take_while(|row| types_of(*row) == types);
        let end = start + same.count();
        let part: Vec<Vec<ScalarValue>> = known
            .iter()
            .map(|column| column[start..end].to_vec())
            .collect();
        let batch = one_batch(&part)?;
        batches.push(batch.ok_or_else(|| query("values of one type make no column"))?);
        start = end;
    }
    Ok(batches)
}

/// The rows in one batch; `None` where the values of a column do not go together.
fn one_batch(columns: &[Vec<ScalarValue>]) -> Result<Option<RecordBatch>> {
    let mut arrays = Vec::with_capacity(columns.len());
    for column in columns {
        let Some(array) = array_of(column)? else {
            return Ok(None);
        };
        arrays.push(array);
    }
    let field = |array: &ArrayRef| Field::new("", array.data_type().clone(), true);
    let schema: SchemaRef = Arc::new(Schema::new(arrays.iter().map(field).collect::<Vec<_>>()));
    RecordBatch::try_new(schema, arrays)
        .map(Some)
        .map_err(from_arrow)
}

/// Expressions of different types that are planned together: planning takes four times as long for twice as many.
const COMPUTED_TOGETHER: usize = 64;

/// A query that computes expressions.
pub(crate) struct Computing {
    pub(crate) query: DfStatement,
    /// The places of the values of its row, or of its rows, if those are numbered.
    pub(crate) places: Vec<usize>,
    /// Its first column is the number of the row: rows with subqueries come in any order.
    pub(crate) is_numbered: bool,
}

/// Queries that compute expressions. No column of one has two types: the planner would give all of its values one.
pub(crate) fn queries_of(cells: &[&Expr]) -> Result<Vec<Computing>> {
    let mut of_one_type: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, cell) in cells.iter().enumerate() {
        of_one_type.entry(kind_of(cell)).or_default().push(place);
    }
    let (alone, together): (Vec<_>, Vec<_>) = of_one_type
        .into_values()
        .partition(|places| places.len() == 1);
    let alone: Vec<usize> = alone.into_iter().flatten().collect();
    let rows = alone.chunks(COMPUTED_TOGETHER).map(|places| {
        let row: Vec<Expr> = places.iter().map(|place| cells[*place].clone()).collect();
        Ok(Computing {
            query: values_of(vec![row])?,
            places: places.to_vec(),
            is_numbered: false,
        })
    });
    let columns = together.into_iter().map(|places| {
        let numbered = places.iter().enumerate();
        let rows = numbered.map(|(number, place)| {
            let number = Value::Number(number.to_string(), false).with_empty_span();
            vec![Expr::Value(number), cells[*place].clone()]
        });
        Ok(Computing {
            query: values_of(rows.collect())?,
            places,
            is_numbered: true,
        })
    });
    rows.chain(columns).collect()
}

/// A key of an expression: expressions with equal keys have the same type.
fn kind_of(cell: &Expr) -> String {
    match cell {
        Expr::TypedString(typed) => typed.data_type.to_string(),
        Expr::Cast {
            data_type, kind, ..
        } => format!("{kind:?} {data_type}"),
        other => other.to_string(),
    }
}

fn values_of(rows: Vec<Vec<Expr>>) -> Result<DfStatement> {
    let mut query = written("VALUES (NULL)")?;
    if let DfStatement::Statement(statement) = &mut query
        && let SqlStatement::Query(query) = &mut **statement
    {
        if let SetExpr::Values(values) = &mut *query.body
            && let Some(row) = values.rows.pop()
        {
            let rows = rows.into_iter().map(|content| Parens {
                content,
                ..row.clone()
            });
            values.rows = rows.collect();
        }
        of_subqueries(query)?;
    }
    Ok(query)
}

/// The value of a literal or a placeholder that goes to a column of a type, with all of its digits.
pub(crate) fn literal(cell: &Expr, params: &BoundParams, to: &DataType) -> Option<ScalarValue> {
    match cell {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => number(digits, to),
            Value::SingleQuotedString(text) => Some(text_value(text, to)),
            Value::HexStringLiteral(digits) => Some(ScalarValue::Binary(Some(bytes(digits)?))),
            Value::Boolean(value) => Some(ScalarValue::Boolean(Some(*value))),
            Value::Null => Some(ScalarValue::Null),
            Value::Placeholder(name) => params.named(name).cloned(),
            _ => None,
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match expr.as_ref() {
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => number(&format!("-{digits}"), to),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// A text, as the number that it is where the column wants one: it may stand beside numbers, as 'NaN' does.
fn text_value(text: &str, to: &DataType) -> ScalarValue {
    let number = match to {
        // What is beyond a float is for the planner to refuse.
        DataType::Float64 => text
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite() || is_infinity(text))
            .map(|number| ScalarValue::Float64(Some(number))),
        to if to.is_integer() => text
            .parse()
            .ok()
            .map(|number| ScalarValue::Int64(Some(number))),
        _ => None,
    };
    number.unwrap_or_else(|| ScalarValue::Utf8(Some(text.to_owned())))
}

/// The bytes that pairs of hexadecimal digits stand for.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    // A sign would pass for a digit.
    let whole = digits.len().is_multiple_of(2) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let pairs = whole.then(|| digits.as_bytes().chunks(2))?;
    pairs.map(byte).collect()
}

fn number(digits: &str, to: &DataType) -> Option<ScalarValue> {
    // A decimal may have more digits than any other number; it is read from text.
    if matches!(to, DataType::Decimal128(..)) && !digits.contains(['e', 'E']) {
        return Some(ScalarValue::Utf8(Some(digits.to_owned())));
    }
    if let Ok(value) = digits.parse::<i64>() {
        return Some(ScalarValue::Int64(Some(value)));
    }
    if let Ok(value) = digits.parse::<u64>() {
        return Some(ScalarValue::UInt64(Some(value)));
    }
    // Whole numbers beyond 64 bits are for the planner, and what is infinite for its error.
    let fraction = digits
        .bytes()
        .any(|byte| matches!(byte, b'.' | b'e' | b'E'));
    fraction
        .then(|| digits.parse().ok())
        .flatten()
        .filter(|value: &f64| value.is_finite())
        .map(|value| ScalarValue::Float64(Some(value)))
}

/// Up to here floats hold all whole numbers.
const MAX_EXACT_FLOAT: u64 = 1 << 53;

/// One array of values that have one type, or are whole and broken numbers; `None` when they do not go together.
fn array_of(values: &[ScalarValue]) -> Result<Option<ArrayRef>> {
    let rows = values.len();
    let mut data_type = DataType::Null;
    for value in values {
        let given = value.data_type();
        data_type = match (&data_type, &given) {
            (DataType::Null, _) => given,
            (known, DataType::Null) => known.clone(),
            (known, given) if known == given => given.clone(),
            (DataType::Int64, DataType::Float64) | (DataType::Float64, DataType::Int64) => {
                DataType::Float64
            }
            (DataType::Int64, DataType::UInt64) | (DataType::UInt64, DataType::Int64) => {
                DataType::UInt64
            }
            _ => return Ok(None),
        };
    }
    let negative =
        |value: &ScalarValue| matches!(value, ScalarValue::Int64(Some(value)) if *value < 0);
    if data_type == DataType::UInt64 && values.iter().any(negative) {
        return Ok(None);
    }
    if data_type == DataType::Null {
        return Ok(Some(Arc::new(NullArray::new(rows))));
    }
    // The table would only see what is left of it.
    let is_cut = |value: &ScalarValue| matches!(value, ScalarValue::Int64(Some(whole)) if whole.unsigned_abs() > MAX_EXACT_FLOAT);
    if data_type == DataType::Float64 && values.iter().any(is_cut) {
        return Ok(None);
    }
    let mut failed = None;
    let converted = values.iter().map_while(|value| {
        if value.data_type() == data_type {
            return Some(value.clone());
        }
        let value = value.cast_to(&data_type);
        value.map_err(|error| failed = Some(error)).ok()
    });
    let array = ScalarValue::iter_to_array(converted);
    match failed {
        Some(error) => Err(from_datafusion(error)),
        None => array.map(Some).map_err(from_datafusion),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_after_the_point_are_counted_without_zeros() {
        for (text, digits) in [
            ("1.234", 3),
            (" -1.2300 ", 2),
            ("0", 0),
            ("0.000", 0),
            ("100", -2),
            ("10e-1", 0),
            ("-0e-9", 0),
            ("12.5e1", 0),
            ("1E-3", 3),
            (".5", 1),
        ] {
            assert_eq!(fraction_digits(text), digits, "{text}");
        }
    }
}
