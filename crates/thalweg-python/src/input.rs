//! Tables on their way in: Arrow, pandas, polars, dicts of arrays, and what speaks Arrow's C interface.
//!
//! Invariants: Arrow memory of more than some KiB is not copied, and is released as described in `foreign`; strings from outside
//! are checked to be UTF-8 before anything relies on it; a row that is null as a whole is refused, not taken for the values below
//! it; what cannot be read is an exception of Thalweg that lists what can.

use crate::error::{Error, Raised, exception, raise};
use crate::finalize::{Callback, Ending};
use crate::foreign::{adopt, give_back};
use crate::interpreter::Held;
use crate::once::name;
use crate::one_row::was_read;
use crate::process::Home;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use pyo3::exceptions::{PyException, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use pyo3_arrow::ffi::ArrayReader;
use pyo3_arrow::{PyArray, PyArrayReader, PySchema};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use thalweg::{ErrorKind, ExtraTable};

/// Rows from Python.
pub(crate) enum Input {
    /// All there are.
    Batch(RecordBatch),
    /// Read as they are needed, perhaps by running Python.
    Stream(Box<dyn RecordBatchReader + Send>),
}

/// `data` as rows for a table with these columns, of which `time` orders the rows; `None` when it is no table at all.
pub(crate) fn read(
    data: &Bound<'_, PyAny>,
    columns: &Schema,
    time: Option<&str>,
) -> PyResult<Option<Input>> {
    match Exported::of(data)? {
        Some(exported) => exported.into_batch(data.py()).map(Input::Batch).map(Some),
        None => read_unexported(data, columns, time),
    }
}

/// `data` as [`read`] reads it, where it exports no array.
fn read_unexported(
    data: &Bound<'_, PyAny>,
    columns: &Schema,
    time: Option<&str>,
) -> PyResult<Option<Input>> {
    let py = data.py();
    let _running = Callback::begin()?;
    if let Ok(columns) = data.cast::<PyDict>() {
        return through(py, "from_dict", (columns,));
    }
    if is_of(data, "polars", "LazyFrame")? {
        return through(py, "collected", (data,));
    }
    if is_of(data, "polars", "DataFrame")? {
        return through(py, "from_polars", (data,));
    }
    if is_of(data, "pandas", "DataFrame")? {
        return through(py, "from_pandas", (data, names(columns), time));
    }
    if is_of(data, "pandas", "Series")? {
        // Exported it is a column of values that have no type in common.
        let row = py
            .import(name!(py, "thalweg._data"))?
            .call_method1("row_of", (data,))?;
        if !row.is_none() {
            return through(py, "from_dict", (row,));
        }
    }
    if let Some(reader) = reader_of_dataset(data)? {
        return Batches::new(&reader).map(|batches| Some(Input::Stream(Box::new(batches))));
    }
    if is_pyarrow_reader(data)? {
        return Batches::new(data).map(|batches| Some(Input::Stream(Box::new(batches))));
    }
    match data.getattr_opt(name!(py, "__arrow_c_stream__"))? {
        Some(export) => read_stream(&export).map(Input::Stream).map(Some),
        None => Ok(None),
    }
}

/// `data`, which exports no array, as [`read`] reads it, or rows and tables one after the other: lists and iterators of dicts,
/// of batches, of frames.
pub(crate) fn read_any(
    data: &Bound<'_, PyAny>,
    columns: &Schema,
    time: Option<&str>,
) -> PyResult<Option<Input>> {
    if let Some(input) = read_unexported(data, columns, time)? {
        return Ok(Some(input));
    }
    let py = data.py();
    let _running = Callback::begin()?;
    let chunks = py
        .import(name!(py, "thalweg._data"))?
        .getattr(name!(py, "Chunks"))?
        .call_method1(name!(py, "of"), (data, names(columns), time))?;
    if chunks.is_none() {
        return Ok(None);
    }
    Batches::new(&chunks).map(|batches| Some(Input::Stream(Box::new(batches))))
}

/// Whether it is of that class of a package, without importing it. pandas exports the index of a frame as a column, under a
/// made-up name if it has none, and lazy frames of polars export nothing: both are read through Python.
fn is_of(data: &Bound<'_, PyAny>, package: &str, name: &str) -> PyResult<bool> {
    let class = data.get_type();
    let module = class.module()?;
    let is_within = module.to_str()?.split('.').next() == Some(package);
    Ok(is_within && class.name()? == name)
}

/// The rows of a dataset of pyarrow, or of a scanner of one.
fn reader_of_dataset<'py>(data: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = data.py();
    let class = data.get_type();
    if class.module()?.to_str()? != "pyarrow._dataset" {
        return Ok(None);
    }
    let scanner = match data.getattr_opt(name!(py, "scanner"))? {
        Some(scanner) => scanner.call0()?,
        None => data.clone(),
    };
    match scanner.getattr_opt(name!(py, "to_reader"))? {
        Some(reader) => reader.call0().map(Some),
        None => Ok(None),
    }
}

/// Whether it is a pyarrow.RecordBatchReader. Such a reader may wrap a Python iterator, whose exceptions Arrow's C interface turns
/// into text.
fn is_pyarrow_reader(data: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = data.get_type();
    let module = class.module()?;
    let is_pyarrow = module.to_str()?.starts_with("pyarrow.");
    Ok(is_pyarrow && data.hasattr(name!(data.py(), "read_next_batch"))?)
}

/// Calls a function of the Python part that makes an object which exports Arrow, and reads that.
fn through<'py>(
    py: Python<'py>,
    function: &str,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> PyResult<Option<Input>> {
    let made = py
        .import(name!(py, "thalweg._data"))?
        .call_method1(function, arguments)?;
    let export = made.getattr(name!(py, "__arrow_c_stream__"))?;
    read_stream(&export).map(Input::Stream).map(Some)
}

/// Errors of whoever exports, as ours; Ctrl-C stays what it is.
fn unreadable(error: PyErr, py: Python<'_>) -> PyErr {
    if error.is_instance_of::<Error>(py) || !error.is_instance_of::<PyException>(py) {
        return error;
    }
    raise(
        ErrorKind::Schema,
        format!("the data cannot be read as a table: {}", error.value(py)),
    )
}

/// The two capsules that `__arrow_c_array__` of an object returns, of its type and of its content.
pub(crate) struct Exported<'py> {
    pub(crate) schema: Bound<'py, PyCapsule>,
    pub(crate) array: Bound<'py, PyCapsule>,
}

impl<'py> Exported<'py> {
    /// `None` for an object that exports no array.
    pub(crate) fn of(data: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let py = data.py();
        let _running = Callback::begin()?;
        let Some(export) = data.getattr_opt(name!(py, "__arrow_c_array__"))? else {
            return Ok(None);
        };
        let capsules = || -> PyResult<Self> {
            let capsules: Bound<'_, PyTuple> = export.call0()?.cast_into()?;
            Ok(Self {
                schema: capsules.get_item(0)?.cast_into()?,
                array: capsules.get_item(1)?.cast_into()?,
            })
        };
        capsules().map(Some).map_err(|error| unreadable(error, py))
    }

    pub(crate) fn into_batch(self, py: Python<'_>) -> PyResult<RecordBatch> {
        let _running = Callback::begin()?;
        if was_read(&self.array) {
            let message = "the data was read before, and what exports it gives it once";
            return Err(raise(ErrorKind::Schema, message));
        }
        let (array, field) = PyArray::from_arrow_pycapsule(&self.schema, &self.array)
            .map_err(|error| unreadable(error, py))?
            .into_inner();
        let sound = schema_of(field.data_type()).and_then(|schema| batch_of(&array, &schema));
        sound.map_err(|error| raise(ErrorKind::Schema, message(&error)))
    }
}

fn read_stream(export: &Bound<'_, PyAny>) -> PyResult<Box<dyn RecordBatchReader + Send>> {
    let py = export.py();
    let import = || {
        let capsule = export.call0()?.cast_into::<PyCapsule>()?;
        PyArrayReader::from_arrow_pycapsule(&capsule)?.into_reader()
    };
    let arrays = import().map_err(|error| unreadable(error, py))?;
    let schema = schema_of(arrays.field().data_type());
    let schema = schema.map_err(|error| raise(ErrorKind::Schema, message(&error)))?;
    let arrays = Some(arrays);
    Ok(Box::new(Rows { schema, arrays }))
}

/// The text of an error without the words that Arrow puts before it.
pub(crate) fn message(error: &ArrowError) -> String {
    match error {
        ArrowError::InvalidArgumentError(text) | ArrowError::CDataInterface(text) => text.clone(),
        ArrowError::ExternalError(inner) => inner.to_string(),
        other => other.to_string(),
    }
}

fn refused(message: impl Into<String>) -> ArrowError {
    ArrowError::InvalidArgumentError(message.into())
}

/// The schema of a table, which Arrow hands over as a struct.
fn schema_of(data_type: &DataType) -> Result<SchemaRef, ArrowError> {
    match data_type {
        DataType::Struct(fields) => Ok(Arc::new(Schema::new(fields.clone()))),
        _ => Err(refused(
            "the data is no table but one column: give it in a dict, as in {\"v\": values}, or as series.to_frame()",
        )),
    }
}

fn batch_of(array: &ArrayRef, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let rows = array
        .as_struct_opt()
        .ok_or_else(|| refused("the data is no table"))?;
    if rows.null_count() > 0 {
        return Err(refused(
            "the data has rows that are null as a whole, not only in their columns",
        ));
    }
    if rows.is_empty() {
        // Of no values Arrow imports no bytes, and finds the first offset of a slice past their end.
        return Ok(RecordBatch::new_empty(SchemaRef::clone(schema)));
    }
    let columns = rows.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| {
        adopt(column).map_err(|error| {
            refused(format!(
                "column \"{}\" is damaged: {}",
                field.name(),
                message(&error)
            ))
        })
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(
        SchemaRef::clone(schema),
        columns.collect::<Result<_, _>>()?,
        &options,
    )
}

/// A stream of structs as batches.
struct Rows {
    schema: SchemaRef,
    /// Until it is dropped.
    arrays: Option<Box<dyn ArrayReader + Send>>,
}

impl Drop for Rows {
    fn drop(&mut self) {
        // Whoever exports may need the interpreter to end the stream.
        give_back(self.arrays.take());
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        // To the end: what is left of an array that is refused is dropped here.
        let _running = match Callback::begin() {
            Ok(running) => running,
            Err(ending) => return Some(Err(unavailable(ending))),
        };
        let array = self.arrays.as_mut()?.next()?;
        Some(array.and_then(|array| batch_of(&array, &self.schema)))
    }
}

impl RecordBatchReader for Rows {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}

/// The batches of a reader that may run Python; what that raises is in the error.
struct Batches {
    schema: SchemaRef,
    /// Until it is dropped.
    reader: Option<Py<PyAny>>,
    home: Home,
    /// The thread that waits for what becomes of the batches.
    caller: ThreadId,
}

/// An object whose last reference is dropped with the interpreter held.
struct Attached(Option<Py<PyAny>>);

impl Drop for Attached {
    fn drop(&mut self) {
        let object = self.0.take();
        match Held::begin() {
            Ok(_held) => Python::attach(|_| drop(object)),
            Err(_) => {
                let _leaked = ManuallyDrop::new(object);
            }
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        // Without the interpreter PyO3 would leave it to whatever thread has it next.
        give_back(Attached(self.reader.take()));
    }
}

impl Batches {
    fn new(reader: &Bound<'_, PyAny>) -> PyResult<Self> {
        let schema = reader.getattr(name!(reader.py(), "schema"))?;
        Ok(Self {
            schema: schema.extract::<PySchema>()?.into_inner(),
            reader: Some(reader.clone().unbind()),
            home: Home::here(),
            caller: thread::current().id(),
        })
    }

    fn read(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        let Some(reader) = &self.reader else {
            return Ok(None);
        };
        let reader = reader.bind(py);
        let next = reader.call_method0(name!(py, "read_next_batch"));
        self.home.check_return(py, self.caller)?;
        match next {
            Ok(batch) => match Exported::of(&batch)? {
                Some(exported) => exported.into_batch(py).map(Some),
                None => Err(raise(
                    ErrorKind::Schema,
                    format!("a reader of batches returned {}", batch.get_type().name()?),
                )),
            },
            Err(end) if end.is_instance_of::<PyStopIteration>(py) => Ok(None),
            Err(raised) => Err(raised),
        }
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let began = Callback::begin().and_then(|running| Ok((running, Held::begin()?)));
        let (_running, _held) = match began {
            Ok(began) => began,
            Err(ending) => return Some(Err(unavailable(ending))),
        };
        Python::attach(|py| {
            let batch = self.read(py);
            let batch = batch.map_err(|raised| Raised::new(py, raised));
            batch
                .map_err(|raised| ArrowError::ExternalError(Box::new(raised)))
                .transpose()
        })
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}

/// The error of rows that a thread may not ask Python for any more.
fn unavailable(ending: Ending) -> ArrowError {
    ArrowError::ExternalError(Box::new(thalweg::Error::from(ending)))
}

/// Why rows from Python did not come, as an error of the engine on its way back to Python.
pub(crate) fn unread(error: ArrowError) -> thalweg::Error {
    if let ArrowError::ExternalError(inner) = &error
        && let Some(ending) = inner.downcast_ref::<thalweg::Error>()
    {
        return ending.clone();
    }
    let message = format!("the data cannot be read: {}", message(&error));
    thalweg::Error::with_source(ErrorKind::Schema, message, error)
}

impl Input {
    /// The columns of the rows.
    pub(crate) fn schema(&self) -> SchemaRef {
        match self {
            Self::Batch(batch) => batch.schema(),
            Self::Stream(stream) => stream.schema(),
        }
    }

    /// The rows as a table for one statement. What can be read again is read whole, so that a statement may name it
    /// twice.
    pub(crate) fn into_extra(self, is_once: bool) -> PyResult<ExtraTable> {
        match self {
            Self::Batch(batch) => Ok(ExtraTable::batches(batch.schema(), vec![batch])),
            Self::Stream(stream) if is_once => Ok(ExtraTable::reader(stream)),
            Self::Stream(stream) => {
                let schema = stream.schema();
                let batches = stream.collect::<Result<Vec<_>, _>>();
                let batches = batches.map_err(|error| exception(&unread(error)))?;
                Ok(ExtraTable::batches(schema, batches))
            }
        }
    }
}

/// The names of columns.
pub(crate) fn names(schema: &Schema) -> Vec<&str> {
    schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect()
}
