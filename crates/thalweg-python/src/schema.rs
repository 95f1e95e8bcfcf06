//! Columns of a table that is to be made: a pyarrow.Schema, or a dict of names and types.

use crate::error::raise;
use crate::finalize::Callback;
use crate::once::name;
use arrow_schema::{Field, Schema};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_arrow::{PyDataType, PySchema};
use thalweg::ErrorKind;
use thalweg::schema_of_names;

/// The schema that a user gives.
pub(crate) fn schema(given: &Bound<'_, PyAny>) -> PyResult<Schema> {
    let _running = Callback::begin()?;
    if let Ok(columns) = given.cast::<PyDict>() {
        let fields = columns
            .iter()
            .map(|(name, given)| field(&name, &given))
            .collect::<PyResult<Vec<_>>>()?;
        return Ok(Schema::new(fields));
    }
    let schema: PySchema = given.extract().map_err(|_| {
        let kind = given.get_type().name().map_or_else(|_| "this object".to_owned(), |name| name.to_string());
        let message = format!("a schema is a pyarrow.Schema or a dict like {{\"ts\": \"timestamp\", \"v\": \"double\"}}, not {kind}");
        raise(ErrorKind::Schema, message)
    })?;
    let schema = schema.into_inner();
    Ok(Schema::new(schema.fields().clone()))
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
    } else if let Some(kind) = numpy_name(given)? {
        kind
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

/// The name of a numpy.dtype.
fn numpy_name(given: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = given.py();
    if given.hasattr(name!(py, "kind"))?
        && given.hasattr(name!(py, "itemsize"))?
        && let Some(name) = given.getattr_opt(name!(py, "name"))?
    {
        return name.extract().map(Some);
    }
    Ok(None)
}
