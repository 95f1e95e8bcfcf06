//! `Table.scan`: rows of a range of time, in order of time.
//!
//! Invariants: rows come in the order of the time column, equal times in order of arrival; without conditions on other
//! columns no SQL is planned.

use crate::error::{OrRaise, raise};
use crate::signals::Source;
use crate::value::{bound, scalar};
use arrow_schema::DataType;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use thalweg::{
    Database, ErrorKind, KeyRange, Params, ScalarValue, ScanRequest, Table, TableDefinition,
    TableView, key_range,
};
use thalweg_table::time::{key_box, key_to_scalar};

/// What `scan` is asked for, in Python's terms.
pub(crate) struct Asked<'a, 'py> {
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) filter: Option<&'a str>,
    pub(crate) start: Option<&'a Bound<'py, PyAny>>,
    pub(crate) end: Option<&'a Bound<'py, PyAny>>,
    pub(crate) limit: Option<i64>,
    pub(crate) bounds: Option<&'a Bound<'py, PyDict>>,
}

/// Starts the scan on a snapshot of now.
pub(crate) fn scan(
    py: Python<'_>,
    db: &Database,
    table: &Table,
    asked: &Asked<'_, '_>,
) -> PyResult<Source> {
    let view = py.detach(|| table.view()).or_raise()?;
    let definition = view.definition();
    let projection = asked
        .columns
        .as_ref()
        .map(|names| projection(definition, names))
        .transpose()?;
    let keys = keys(definition, asked.start, asked.end)?;
    let limit = asked.limit.map(usize::try_from).transpose();
    let limit = limit.map_err(|_| raise(ErrorKind::Invalid, "limit cannot be negative"))?;
    if asked.filter.is_some() || asked.bounds.is_some() {
        return filtered(py, db, &view, projection, keys, limit, asked);
    }
    let request = ScanRequest {
        projection,
        keys,
        limit,
        ..ScanRequest::default()
    };
    let scan = py.detach(|| view.scan(&request)).or_raise()?;
    Ok(Source::Scan(Box::new(scan)))
}

fn projection(definition: &TableDefinition, names: &[String]) -> PyResult<Vec<usize>> {
    if names.is_empty() {
        return Err(raise(
            ErrorKind::Invalid,
            "columns is empty: name at least one, or leave it out for all",
        ));
    }
    names
        .iter()
        .map(|name| definition.position_named(name))
        .collect::<thalweg::Result<_>>()
        .or_raise()
}

fn keys(
    definition: &TableDefinition,
    start: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
) -> PyResult<KeyRange> {
    let start = start.map_or(Ok(None), |given| bound("start", given.as_borrowed()))?;
    let end = end.map_or(Ok(None), |given| bound("end", given.as_borrowed()))?;
    match definition.time_column() {
        Some(column) => key_range(&column.data_type, start, end)
            .map(KeyRange::from)
            .or_raise(),
        None if start.is_none() && end.is_none() => Ok(KeyRange::ALL),
        None => Err(raise(
            ErrorKind::Invalid,
            "start and end need a time column; the table orders rows by arrival",
        )),
    }
}

/// The scan as a statement: conditions on columns are SQL's business.
fn filtered(
    py: Python<'_>,
    db: &Database,
    view: &TableView,
    projection: Option<Vec<usize>>,
    keys: KeyRange,
    limit: Option<usize>,
    asked: &Asked<'_, '_>,
) -> PyResult<Source> {
    let definition = view.definition();
    let mut statement = Statement::default();
    if let Some(filter) = asked.filter {
        // A comment at its end must not swallow what follows.
        statement.conditions.push(format!("({filter}\n)"));
    }
    let time = definition.time_column();
    let mut keys = keys;
    for (name, sides) in asked.bounds.iter().flat_map(|bounds| bounds.iter()) {
        let column = &definition.columns()[definition
            .position_named(&name.extract::<String>()?)
            .or_raise()?];
        let Ok((first, last)) = sides.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
            let message = format!(
                "box: \"{}\" takes a pair (smallest, largest), both included",
                column.name
            );
            return Err(raise(ErrorKind::Invalid, message));
        };
        if time.is_some_and(|time| time.id == column.id) {
            keys = keys.intersect(time_box(&column.data_type, &first, &last)?);
        } else {
            statement.compare(&column.name, ">=", &first)?;
            statement.compare(&column.name, "<=", &last)?;
        }
    }
    if keys.is_empty() {
        statement.conditions.push("false".to_owned());
    } else if let Some(time) = time {
        for (key, sign) in [(keys.first, ">="), (keys.last, "<=")] {
            let value =
                ScalarValue::try_from_array(&key_to_scalar(&time.data_type, key).or_raise()?, 0);
            let value = value.map_err(|error| raise(ErrorKind::Query, error.to_string()))?;
            statement.push(&time.name, sign, value);
        }
    }
    let text = statement.text(view, projection.as_deref(), limit);
    let rows = py
        .detach(|| db.sql_with(&text, &Params::Named(statement.params), &[]))
        .or_raise()?;
    Ok(Source::Query(rows))
}

/// Both ends included.
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

/// The statement that a scan with conditions becomes.
#[derive(Default)]
struct Statement {
    conditions: Vec<String>,
    params: Vec<(String, ScalarValue)>,
}

impl Statement {
    /// A bound that is not None.
    fn compare(&mut self, column: &str, sign: &str, given: &Bound<'_, PyAny>) -> PyResult<()> {
        if !given.is_none() {
            let value = scalar(&format!("box: \"{column}\""), given.as_borrowed())?;
            self.push(column, sign, value);
        }
        Ok(())
    }

    fn push(&mut self, column: &str, sign: &str, value: ScalarValue) {
        let name = format!("thalweg_{}", self.params.len());
        self.conditions
            .push(format!("{} {sign} ${name}", quoted(column)));
        self.params.push((name, value));
    }

    fn text(&self, view: &TableView, projection: Option<&[usize]>, limit: Option<usize>) -> String {
        let columns = view.definition().columns();
        let wanted: Vec<String> = match projection {
            Some(places) => places
                .iter()
                .map(|&place| quoted(&columns[place].name))
                .collect(),
            None => columns.iter().map(|column| quoted(&column.name)).collect(),
        };
        let mut text = format!("SELECT {} FROM {}", wanted.join(", "), quoted(view.name()));
        if !self.conditions.is_empty() {
            text += &format!(" WHERE {}", self.conditions.join(" AND "));
        }
        if let Some(time) = view.definition().time_column() {
            text += &format!(" ORDER BY {}", quoted(&time.name));
        }
        if let Some(limit) = limit {
            text += &format!(" LIMIT {limit}");
        }
        text
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
