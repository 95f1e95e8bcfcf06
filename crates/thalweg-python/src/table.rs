//! A table to write to and to read from.

use crate::appender::PyAppender;
use crate::cells::cell;
use crate::database::{Handle, unsupported};
use crate::error::{OrRaise, exception, raise};
use crate::finalize::Callback;
use crate::input::{self, Input};
use crate::process::ProcessLocal;
use crate::result::PyQueryResult;
use crate::row::with_row;
use crate::scan::{Asked, scan};
use crate::signals;
use arrow_schema::DataType;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3_arrow::PySchema;
use std::sync::Arc;
use thalweg::{Error, ErrorKind, Table, key_to_text};
use thalweg_env::sync::Mutex;
use thalweg_table::time::key_to_scalar;

/// A table; made by Database.create_table() and Database.table().
#[pyclass(module = "thalweg", name = "Table", frozen)]
pub(crate) struct PyTable {
    db: Arc<Handle>,
    name: String,
    table: ProcessLocal<Table>,
}

impl PyTable {
    pub(crate) fn new(db: Arc<Handle>, table: Table) -> Self {
        Self {
            db,
            name: table.name().to_owned(),
            table: ProcessLocal::new(table),
        }
    }

    /// The table, unless its database was closed, or opened before a fork.
    #[inline]
    fn open(&self) -> PyResult<&Table> {
        self.db.open()?;
        self.table.get()
    }

    fn append_input(&self, py: Python<'_>, table: &Table, input: Input) -> PyResult<u64> {
        let stream = match input {
            Input::Batch(batch) => {
                return py.detach(|| table.append([Ok(batch)], None)).or_raise();
            }
            Input::Stream(stream) => stream,
        };
        // Ctrl-C between two batches ends the append, of which nothing is stored then. So does a fork within whatever makes
        // the batches, in the child: the append is its parent's.
        let raised = Mutex::new(None);
        let batches = stream.map(|batch| {
            let goes_on = self.table.get().and_then(|_| signals::check());
            if let Err(ended) = goes_on {
                *raised.lock() = Some(ended);
                return Err(Error::new(ErrorKind::Query, "the append was interrupted"));
            }
            batch.map_err(input::unread)
        });
        let appended = py.detach(|| table.append(batches, None));
        match raised.into_inner() {
            Some(ended) => Err(ended),
            None => appended.or_raise(),
        }
    }
}

#[pymethods]
impl PyTable {
    /// Appends all rows of `data`, or none, and returns how many there were. They are durable when this returns.
    ///
    /// data: a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a dict of arrays, or
    /// anything with __arrow_c_stream__ or __arrow_c_array__. Columns are matched by name; missing ones become null;
    /// rows may be in any order. In pandas NaN is a missing value and becomes null; elsewhere it stays NaN.
    ///
    /// >>> import thalweg, numpy
    /// >>> t = thalweg.connect(":memory:").create_table("t", {"ts": "int64", "v": "double"}, time="ts")
    /// >>> t.append({"ts": numpy.arange(3), "v": numpy.array([0.5, 1.5, numpy.nan])})
    /// 3
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        let table = self.open()?;
        let schema = table.schema();
        let Some(input) = input::read(data, &schema)? else {
            let message = format!(
                "table \"{}\": append takes Arrow, pandas, polars or a dict of arrays, not {}; for single rows use put",
                self.name,
                data.get_type().name()?
            );
            return Err(raise(ErrorKind::Schema, message));
        };
        self.append_input(py, table, input)
    }

    /// Appends one row, its values in the order of the columns.
    ///
    /// >>> import thalweg
    /// >>> t = thalweg.connect(":memory:").create_table("t", {"ts": "timestamp", "v": "double"}, time="ts")
    /// >>> t.put("2026-01-01T00:00:00", 3.5)
    /// >>> len(t)
    /// 1
    #[pyo3(signature = (*row))]
    fn put(&self, py: Python<'_>, row: &Bound<'_, PyTuple>) -> PyResult<()> {
        let table = self.open()?;
        with_row(row, &self.name, |values| {
            py.detach(|| table.put(values, None)).or_raise()
        })
    }

    /// Collects rows that are put one by one and commits them in batches; use it in a `with` block.
    fn appender(&self) -> PyResult<PyAppender> {
        let table = self.open()?;
        Ok(PyAppender::new(self.name.clone(), table.appender()))
    }

    /// Returns when everything appended so far is durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.db.open()?;
        py.detach(|| db.flush()).or_raise()
    }

    /// Rows in order of time, as a Result of a snapshot of now.
    ///
    /// columns: names of those wanted, all by default.
    /// where: a condition as SQL text.
    /// start, end: times from start on, before end; an int in the column's unit, ISO 8601 text, a datetime or datetime64.
    /// limit: at most so many rows.
    /// box: {"column": (smallest, largest)}, both included.
    ///
    /// >>> import thalweg
    /// >>> t = thalweg.connect(":memory:").create_table("t", {"ts": "int64", "v": "double"}, time="ts")
    /// >>> t.append({"ts": [1, 2, 3], "v": [1.0, 2.0, 3.0]})
    /// 3
    /// >>> t.scan(columns=["v"], start=2).fetchall()
    /// [(2.0,), (3.0,)]
    #[pyo3(signature = (columns=None, r#where=None, start=None, end=None, limit=None, r#box=None))]
    #[expect(clippy::too_many_arguments, reason = "options by name in Python")]
    fn scan(
        &self,
        py: Python<'_>,
        columns: Option<Vec<String>>,
        r#where: Option<&str>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        limit: Option<&Bound<'_, PyAny>>,
        r#box: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyQueryResult> {
        let asked = Asked {
            columns,
            filter: r#where,
            start,
            end,
            limit,
            bounds: r#box,
        };
        scan(py, self.db.open()?, self.open()?, asked).map(PyQueryResult::new)
    }

    /// What is known of the table, as a dict: rows, bytes, blocks, fragments, open_rows, late_rows, min_time, max_time.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let table = self.open()?;
        let view = py.detach(|| table.view()).or_raise()?;
        let stats = py.detach(|| view.stats()).or_raise()?;
        let definition = view.definition();
        let time = definition.time_column();
        let shown = PyDict::new(py);
        shown.set_item("name", view.name())?;
        shown.set_item("layout", definition.layout().name())?;
        shown.set_item("time", time.map(|column| column.name.as_str()))?;
        shown.set_item("rows", stats.rows)?;
        shown.set_item("bytes", stats.bytes)?;
        shown.set_item("blocks", stats.blocks)?;
        shown.set_item("fragments", stats.fragments)?;
        shown.set_item("open_rows", stats.open_rows)?;
        shown.set_item("late_rows", stats.late_rows)?;
        for (name, key) in [("min_time", stats.min_key), ("max_time", stats.max_key)] {
            let value = match (time, key) {
                (Some(column), Some(key)) => Some(key_value(py, &column.data_type, key)?),
                _ => None,
            };
            shown.set_item(name, value)?;
        }
        Ok(shown)
    }

    /// Puts late rows in order and short blocks together, so that scans need not merge them. Readers and writers go on
    /// meanwhile; files that are of no use any more go in the background.
    fn maintain(&self, py: Python<'_>) -> PyResult<()> {
        let table = self.open()?;
        py.detach(|| table.maintain().map(drop)).or_raise()
    }

    /// Not offered by this version.
    #[pyo3(signature = (*_arguments, **_options))]
    fn read(
        &self,
        _arguments: &Bound<'_, PyTuple>,
        _options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        Err(unsupported("read(): the layout \"series\""))
    }

    /// Not offered by this version.
    #[pyo3(signature = (*_arguments, **_options))]
    fn at(
        &self,
        _arguments: &Bound<'_, PyTuple>,
        _options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        Err(unsupported("at(): the layout \"series\""))
    }

    /// The columns as a pyarrow.Schema.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let schema = self.table.get()?.schema();
        let _running = Callback::begin()?;
        PySchema::new(schema).into_pyarrow(py)
    }

    /// The name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let table = self.open()?;
        let rows = py
            .detach(|| table.view().map(|view| view.row_count()))
            .or_raise()?;
        usize::try_from(rows)
            .map_err(|_| raise(ErrorKind::Limit, "more rows than Python can count"))
    }

    /// A table without rows is a table.
    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let Ok(table) = self.table.get() else {
            return format!("<thalweg.Table {}, opened before a fork>", self.name);
        };
        let schema = table.schema();
        let columns = input::names(&schema).join(", ");
        format!("<thalweg.Table {} ({columns})>", self.name)
    }
}

/// A time of the table as a Python value; as text if Python has none for it.
fn key_value<'py>(py: Python<'py>, data_type: &DataType, key: i64) -> PyResult<Bound<'py, PyAny>> {
    let array = key_to_scalar(data_type, key).map_err(|error| exception(&error))?;
    match cell(py, &array, 0) {
        Ok(value) => Ok(value),
        // A time beyond Python's own: its text, or the number in the unit of the column beyond the calendar too.
        Err(_) => {
            let text = key_to_text(data_type, key);
            match text.parse::<i64>() {
                Ok(number) => Ok(number.into_pyobject(py)?.into_any()),
                Err(_) => Ok(PyString::new(py, &text).into_any()),
            }
        }
    }
}
