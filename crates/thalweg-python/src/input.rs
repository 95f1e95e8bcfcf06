//! Tables on their way in: Arrow, pandas, polars, dicts of arrays, and what speaks Arrow's C interface.
//!
//! Invariants: Arrow memory is not copied; strings from outside are checked to be UTF-8 before anything relies on it;
//! what cannot be read is an exception of Thalweg that says what can.

use crate::error::{Error, raise};
use arrow_array::{Array, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyAnyMethods, PyCapsule, PyDict, PyTuple};
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader};
use thalweg::ErrorKind;
use thalweg::ExtraTable;

/// Rows from Python.
pub(crate) enum Input {
    /// All there are.
    Batch(RecordBatch),
    /// Read as they are needed, perhaps by running Python.
    Stream(Box<dyn RecordBatchReader + Send>),
}

/// `data` as rows for columns of these names; `None` when it is no table at all.
pub(crate) fn read(data: &Bound<'_, PyAny>, names: &[&str]) -> PyResult<Option<Input>> {
    let py = data.py();
    if let Some(export) = data.getattr_opt(intern!(py, "__arrow_c_array__"))? {
        return read_array(&export).map(Input::Batch).map(Some);
    }
    if let Ok(columns) = data.cast::<PyDict>() {
        return through(py, "from_columns", (columns,));
    }
    if is_pandas_frame(data)? {
        return through(py, "from_pandas", (data, names.to_vec()));
    }
    match data.getattr_opt(intern!(py, "__arrow_c_stream__"))? {
        Some(export) => read_stream(&export).map(Input::Stream).map(Some),
        None => Ok(None),
    }
}

/// pandas exports its index as a column, under a made-up name if it has none: frames are read through pyarrow instead.
fn is_pandas_frame(data: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = data.get_type();
    Ok(class.name()? == "DataFrame" && class.module()?.to_str()?.starts_with("pandas."))
}

/// What a function of the Python part makes of it: an object that exports Arrow.
fn through<'py>(
    py: Python<'py>,
    function: &str,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> PyResult<Option<Input>> {
    let made = py
        .import(intern!(py, "thalweg._data"))?
        .call_method1(function, arguments);
    let export = made?.getattr(intern!(py, "__arrow_c_stream__"))?;
    read_stream(&export).map(Input::Stream).map(Some)
}

fn unreadable(error: &PyErr, py: Python<'_>) -> PyErr {
    if error.is_instance_of::<Error>(py) {
        return error.clone_ref(py);
    }
    raise(
        ErrorKind::Schema,
        format!("the data is no Arrow table: {}", error.value(py)),
    )
}

fn read_array(export: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let py = export.py();
    let capsules: Bound<'_, PyTuple> = export.call0()?.cast_into()?;
    let schema = capsules.get_item(0)?.cast_into::<PyCapsule>()?;
    let array = capsules.get_item(1)?.cast_into::<PyCapsule>()?;
    let batch = PyRecordBatch::from_arrow_pycapsule(&schema, &array)
        .map_err(|error| unreadable(&error, py))?;
    let batch = batch.into_inner();
    check(&batch).map_err(|error| raise(ErrorKind::Schema, error.to_string()))?;
    Ok(batch)
}

fn read_stream(export: &Bound<'_, PyAny>) -> PyResult<Box<dyn RecordBatchReader + Send>> {
    let py = export.py();
    let capsule = export.call0()?.cast_into::<PyCapsule>()?;
    let reader = PyRecordBatchReader::from_arrow_pycapsule(&capsule)
        .and_then(PyRecordBatchReader::into_reader);
    Ok(Box::new(Checked(
        reader.map_err(|error| unreadable(&error, py))?,
    )))
}

/// Refuses arrays whose inside is not what their type says. Numbers are any bits; offsets and text are not.
fn check(batch: &RecordBatch) -> Result<(), ArrowError> {
    for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        if is_fixed(array.data_type()) {
            continue;
        }
        array.to_data().validate_full().map_err(|error| {
            ArrowError::InvalidArgumentError(format!(
                "column \"{}\" is not sound: {error}",
                field.name()
            ))
        })?;
    }
    Ok(())
}

fn is_fixed(data_type: &DataType) -> bool {
    data_type.is_primitive()
        || matches!(
            data_type,
            DataType::Boolean | DataType::Null | DataType::FixedSizeBinary(_)
        )
}

/// A stream whose batches are checked.
struct Checked(Box<dyn RecordBatchReader + Send>);

impl Iterator for Checked {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.0.next()?;
        Some(batch.and_then(|batch| check(&batch).map(|()| batch)))
    }
}

impl RecordBatchReader for Checked {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
}

impl Input {
    /// The rows as a table for one statement. What can be read again is read whole, so that a statement may name it twice.
    pub(crate) fn into_extra(self, is_once: bool) -> PyResult<ExtraTable> {
        match self {
            Self::Batch(batch) => Ok(ExtraTable::batches(batch.schema(), vec![batch])),
            Self::Stream(stream) if is_once => Ok(ExtraTable::reader(stream)),
            Self::Stream(stream) => {
                let schema = stream.schema();
                let batches = stream.collect::<Result<Vec<_>, _>>();
                let batches =
                    batches.map_err(|error| raise(ErrorKind::Query, error.to_string()))?;
                Ok(ExtraTable::batches(schema, batches))
            }
        }
    }
}

/// The names of columns, for matching.
pub(crate) fn names(schema: &Schema) -> Vec<&str> {
    schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect()
}
