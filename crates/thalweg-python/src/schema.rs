//! Columns of a table that is to be made: a schema, a dict of names and types, or data that has them.

use crate::error::raise;
use crate::finalize::Callback;
use crate::input::{self, Input};
use crate::once::name;
use arrow_schema::{DataType, Field, Schema};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_arrow::{PyDataType, PySchema};
use thalweg::ErrorKind;
use thalweg::{schema_of_names, sql_type_name};

/// The columns of a table, as a user gives them.
pub(crate) enum Given {
    Columns(Schema),
    /// Rows that have them.
    Rows(Rows),
}

/// Rows for a table that is to be made.
pub(crate) struct Rows {
    pub(crate) input: Input,
    /// The column that orders them, if any.
    pub(crate) time: Option<String>,
}

/// The name of a type in messages.
#[pyfunction]
#[pyo3(name = "_type_words")]
pub(crate) fn type_words(data_type: PyDataType) -> String {
    sql_type_name(data_type.as_ref()).to_lowercase()
}

/// Columns of a table, or rows that have them; `time` is the column that shall order the rows.
pub(crate) fn columns_or_rows(given: &Bound<'_, PyAny>, time: Option<&str>) -> PyResult<Given> {
    let py = given.py();
    let _running = Callback::begin()?;
    let read = py
        .import(name!(py, "thalweg._schema"))?
        .call_method1(name!(py, "read"), (given, time))?;
    let (columns, rows, time): (Bound<'_, PyAny>, Bound<'_, PyAny>, Option<String>) =
        read.extract()?;
    if let Ok(columns) = columns.cast::<PyDict>() {
        let fields = columns
            .iter()
            .map(|(name, given)| field(&name, &given))
            .collect::<PyResult<Vec<_>>>()?;
        return Ok(Given::Columns(Schema::new(fields)));
    }
    if !columns.is_none() {
        let schema = columns.extract::<PySchema>()?.into_inner();
        return Ok(Given::Columns(Schema::new(schema.fields().clone())));
    }
    let input = match rows.is_none() {
        true => None,
        false => input::read(&rows, &Schema::empty(), None)?,
    };
    let Some(input) = input else {
        let message = format!(
            "a schema is a pyarrow.Schema or a dict like {{\"ts\": \"timestamp\", \"v\": \"double\"}}, or data with such columns, \
             not {}",
            given.get_type().name()?
        );
        return Err(raise(ErrorKind::Schema, message));
    };
    let time = match time {
        Some(time) if time.is_empty() => None,
        Some(time) => Some(time),
        None => only_time(&input.schema())?,
    };
    Ok(Given::Rows(Rows { input, time }))
}

/// The column of times, if there is one.
fn only_time(schema: &Schema) -> PyResult<Option<String>> {
    let fields = schema.fields().iter();
    let times = fields.filter(|field| matches!(field.data_type(), DataType::Timestamp(..)));
    let names: Vec<_> = times.map(|field| field.name().as_str()).collect();
    if names.len() > 1 {
        let message = format!(
            "the data has several columns of times ({}): say which orders the rows, as time=\"{}\", or \
             time=\"\" for the order of arrival",
            names.join(", "),
            names[0]
        );
        return Err(raise(ErrorKind::Schema, message));
    }
    Ok(names.first().map(|name| (*name).to_owned()))
}

/// The columns, all of which may hold nulls: data without nulls may be followed by rows with some.
pub(crate) fn nullable(schema: &Schema) -> Schema {
    let fields = schema.fields().iter();
    Schema::new(
        fields
            .map(|field| field.as_ref().clone().with_nullable(true))
            .collect::<Vec<_>>(),
    )
}

fn field(name: &Bound<'_, PyAny>, given: &Bound<'_, PyAny>) -> PyResult<Field> {
    let py = name.py();
    let Ok(name) = name.extract::<String>() else {
        return Err(raise(
            ErrorKind::Schema,
            format!("{} is no name of a column: names are texts", name.repr()?),
        ));
    };
    if given.hasattr(name!(py, "__arrow_c_schema__"))?
        && let Ok(data_type) = given.extract::<PyDataType>()
    {
        return Ok(Field::new(name, data_type.into_inner(), true));
    }
    let text = if let Ok(text) = given.extract::<String>() {
        text
    } else {
        let message = format!(
            "column \"{name}\": {} is no type; write its name, as \"double\", or a pyarrow type",
            given.repr()?
        );
        return Err(raise(ErrorKind::Schema, message));
    };
    let schema = schema_of_names([(&name, &text)])
        .map_err(|error| raise(ErrorKind::Schema, error.message()))?;
    Ok(schema.field(0).clone())
}
