//! `Table.scan`: rows of a range of time, in order of time.
//!
//! Invariants: rows come in the order of the time column, equal times in order of arrival; without conditions on other
//! columns no SQL is planned.

use crate::error::{OrRaise, raise};
use crate::options::whole_number;
use crate::value::{bound, scalar};
use arrow_schema::DataType;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use thalweg::{
    Database, ErrorKind, KeyRange, QueryResult, ScalarValue, Table, TableDefinition, TableScan,
    key_box, key_range,
};

/// What `scan` is asked for, in Python's terms.
pub(crate) struct Asked<'a, 'py> {
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) filter: Option<&'a str>,
    pub(crate) start: Option<&'a Bound<'py, PyAny>>,
    pub(crate) end: Option<&'a Bound<'py, PyAny>>,
    pub(crate) limit: Option<&'a Bound<'py, PyAny>>,
    pub(crate) bounds: Option<&'a Bound<'py, PyDict>>,
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
        limit: whole_number("limit", asked.limit)?,
        boxes: Vec::new(),
    };
    for (name, sides) in asked.bounds.iter().flat_map(|bounds| bounds.iter()) {
        add_box(&mut scan, &definition, &name.extract::<String>()?, &sides)?;
    }
    py.detach(|| db.scan(table, &scan)).or_raise()
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
        .time_column()
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
