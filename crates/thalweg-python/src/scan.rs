//! `Table.scan`: rows of a range of time, in order of time.
//!
//! Invariants: rows come in the order of the time column, equal times in order of arrival; without conditions on other
//! columns, parameters and the latest first no SQL is planned.

use crate::error::{OrRaise, raise};
use crate::finalize::Callback;
use crate::once::name;
use crate::options::text;
use crate::value::{bound, params, scalar};
use arrow_schema::DataType;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use thalweg::{
    Database, ErrorKind, KeyRange, Params, QueryResult, ScalarValue, Table, TableDefinition,
    TableScan, key_box, key_range,
};
use thalweg_table::time::key_to_scalar;

/// The arguments of `scan`, in Python's terms.
#[derive(Default)]
pub(crate) struct Asked<'a, 'py> {
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) filter: Option<&'a str>,
    pub(crate) start: Option<&'a Bound<'py, PyAny>>,
    pub(crate) end: Option<&'a Bound<'py, PyAny>>,
    pub(crate) limit: Option<usize>,
    pub(crate) bounds: Option<&'a Bound<'py, PyDict>>,
    pub(crate) reverse: bool,
    pub(crate) params: Option<&'a Bound<'py, PyAny>>,
}

/// Starts the scan on a snapshot of now.
pub(crate) fn scan(
    py: Python<'_>,
    db: &Database,
    table: &Table,
    asked: Asked<'_, '_>,
) -> PyResult<QueryResult> {
    if asked.columns.as_ref().is_some_and(Vec::is_empty) {
        return Err(raise(
            ErrorKind::Invalid,
            "columns is empty: name at least one, or leave it out for all",
        ));
    }
    let definition = table.definition();
    let mut scan = TableScan {
        keys: keys(&definition, asked.start, asked.end)?,
        columns: asked.columns,
        filter: asked.filter.map(str::to_owned),
        limit: asked.limit,
        boxes: Vec::new(),
    };
    for (name, sides) in asked.bounds.iter().flat_map(|bounds| bounds.iter()) {
        add_box(&mut scan, &definition, text("box", &name)?, &sides)?;
    }
    if asked.params.is_none()
        && let Some(filter) = asked.filter
        && let Some(first) = placeholders(py, filter)?.first()
    {
        let message = format!(
            "where has the parameter {first}: give its value, as params=[...] or params={{...}}"
        );
        return Err(raise(ErrorKind::Query, message));
    }
    if !asked.reverse && asked.params.is_none() {
        return py.detach(|| db.scan(table, &scan)).or_raise();
    }
    // A table that was dropped must not be taken for a new one of its name.
    py.detach(|| table.view()).or_raise()?;
    let (text, params) = as_statement(py, table, &scan, asked.reverse, asked.params)?;
    py.detach(|| db.sql_with(&text, &params, &[])).or_raise()
}

/// The scan in SQL, which has parameters and the latest rows first.
fn as_statement(
    py: Python<'_>,
    table: &Table,
    scan: &TableScan,
    reverse: bool,
    given: Option<&Bound<'_, PyAny>>,
) -> PyResult<(String, Params)> {
    let definition = table.definition();
    let columns = match &scan.columns {
        None => "*".to_owned(),
        Some(names) => {
            let name = |name: &String| {
                let column = &definition.columns()[definition.position_named(name).or_raise()?];
                Ok(quoted(&column.name))
            };
            names
                .iter()
                .map(name)
                .collect::<PyResult<Vec<_>>>()?
                .join(", ")
        }
    };
    if given.is_some() && scan.filter.is_none() {
        return Err(raise(
            ErrorKind::Query,
            "params are values for where, which is not given",
        ));
    }
    let mut values = Values::new(py, scan.filter.as_deref(), given)?;
    // On lines of its own, so that a comment at its end is one.
    let filter = scan.filter.iter().map(|filter| format!("(\n{filter}\n)"));
    let mut conditions: Vec<String> = filter.collect();
    let time = definition.order_column();
    if scan.keys.is_empty() {
        conditions.push("false".to_owned());
    } else if let Some(column) = time {
        for (key, sign) in [(scan.keys.first, ">="), (scan.keys.last, "<=")] {
            // Beyond the type there are no keys, so there is no bound either.
            if let Ok(value) = key_to_scalar(&column.data_type, key)
                && key != i64::MIN
                && key != i64::MAX
            {
                let value = ScalarValue::try_from_array(&value, 0)
                    .map_err(|error| raise(ErrorKind::Query, error.to_string()))?;
                conditions.push(format!(
                    "{} {sign} {}",
                    quoted(&column.name),
                    values.add(value)
                ));
            }
        }
    }
    for (name, low, high) in &scan.boxes {
        for (side, sign) in [(low, ">="), (high, "<=")] {
            if !side.is_null() {
                let place = values.add(side.clone());
                conditions.push(format!("{} {sign} {place}", quoted(name)));
            }
        }
    }
    let mut text = format!("SELECT {columns} FROM {}", quoted(table.name()));
    if !conditions.is_empty() {
        text += &format!(" WHERE {}", conditions.join(" AND "));
    }
    match time {
        Some(column) => {
            let way = if reverse { "DESC" } else { "ASC" };
            text += &format!(" ORDER BY {} {way}", quoted(&column.name));
        }
        None if reverse => {
            let message = "reverse needs a time column, as create_table(..., time=\"ts\") and WITH (time = 'ts') name one; the table orders rows by arrival";
            return Err(raise(ErrorKind::Invalid, message));
        }
        None => {}
    }
    if let Some(limit) = scan.limit {
        text += &format!(" LIMIT {limit}");
    }
    Ok((text, values.params))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The placeholders of a condition as they are written.
fn placeholders(py: Python<'_>, filter: &str) -> PyResult<Vec<String>> {
    if !filter.contains(['?', '$']) {
        return Ok(Vec::new());
    }
    let _running = Callback::begin()?;
    py.import(name!(py, "thalweg._statements"))?
        .call_method1(name!(py, "placeholders"), (filter,))?
        .extract()
}

/// Parameters of a statement to which more are added, of the same kind.
struct Values {
    params: Params,
    is_numbered: bool,
}

impl Values {
    fn new(
        py: Python<'_>,
        filter: Option<&str>,
        given: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let params = match params(given)? {
            Params::None => Params::Positional(Vec::new()),
            given => given,
        };
        let placeholders = match filter.filter(|_| given.is_some()) {
            Some(filter) => placeholders(py, filter)?,
            None => Vec::new(),
        };
        let is_number = |name: &String| name[1..].parse::<u16>().is_ok();
        let is_numbered = placeholders.iter().any(is_number);
        Ok(Self {
            params,
            is_numbered,
        })
    }

    /// Adds a value and returns its placeholder.
    fn add(&mut self, value: ScalarValue) -> String {
        match &mut self.params {
            Params::Named(values) => {
                let name = format!("thalweg_bound_{}", values.len());
                let place = format!("${name}");
                values.push((name, value));
                place
            }
            Params::Positional(values) => {
                values.push(value);
                match self.is_numbered {
                    true => format!("${}", values.len()),
                    false => "?".to_owned(),
                }
            }
            // Made positional above.
            Params::None => "NULL".to_owned(),
        }
    }
}

fn add_box(
    scan: &mut TableScan,
    definition: &TableDefinition,
    name: &str,
    sides: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let column = &definition.columns()[definition.position_named(name).or_raise()?];
    let Ok((first, last)) = sides.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        let message = format!(
            "box: \"{}\" takes a pair (smallest, largest), both included",
            column.name
        );
        return Err(raise(ErrorKind::Invalid, message));
    };
    if definition
        .order_column()
        .is_some_and(|time| time.id == column.id)
    {
        scan.keys = scan
            .keys
            .intersect(time_box(&column.data_type, &first, &last)?);
        return Ok(());
    }
    let side = |given: &Bound<'_, PyAny>| {
        if given.is_none() {
            return Ok(ScalarValue::Null);
        }
        scalar(&format!("box: \"{}\"", column.name), given.as_borrowed())
    };
    let sides = (column.name.clone(), side(&first)?, side(&last)?);
    scan.boxes.push(sides);
    Ok(())
}

fn keys(
    definition: &TableDefinition,
    start: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
) -> PyResult<KeyRange> {
    let start = start.map_or(Ok(None), |given| bound("start", given.as_borrowed()))?;
    let end = end.map_or(Ok(None), |given| bound("end", given.as_borrowed()))?;
    match definition.order_column() {
        Some(column) => key_range(&column.data_type, start, end)
            .map(KeyRange::from)
            .or_raise(),
        None if start.is_none() && end.is_none() => Ok(KeyRange::ALL),
        None => Err(raise(
            ErrorKind::Invalid,
            "start and end need a time column, as create_table(..., time=\"ts\") and WITH (time = 'ts') name one; the table orders rows by arrival",
        )),
    }
}

/// The keys of a range of which both ends are included.
fn time_box(
    data_type: &DataType,
    first: &Bound<'_, PyAny>,
    last: &Bound<'_, PyAny>,
) -> PyResult<KeyRange> {
    let first = bound("box", first.as_borrowed())?;
    let last = bound("box", last.as_borrowed())?;
    match (first, last) {
        (Some(first), Some(last)) => key_box(data_type, first, last)
            .map(KeyRange::from)
            .or_raise(),
        (first, None) => key_range(data_type, first, None)
            .map(KeyRange::from)
            .or_raise(),
        (None, Some(last)) => {
            let lowest = key_range(data_type, None, None)
                .or_raise()?
                .map_or(i64::MIN, |all| *all.start());
            let end = key_box(data_type, last, last)
                .or_raise()?
                .map(|range| *range.end());
            Ok(end.map_or(KeyRange::EMPTY, |end| KeyRange {
                first: lowest,
                last: end,
            }))
        }
    }
}
