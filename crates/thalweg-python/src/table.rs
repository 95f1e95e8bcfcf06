//! A table to write to and to read from.

use crate::appender::PyAppender;
use crate::cells::cell;
use crate::error::{OrRaise, exception, outside, raise, unsupported};
use crate::finalize::Callback;
use crate::input::{self, Exported, Input};
use crate::one_row;
use crate::options::{flag, names, optional_dict, optional_text, whole_number};
use crate::process::ProcessLocal;
use crate::result::{PyQueryResult, no_attribute};
use crate::row::with_row;
use crate::scan::{Asked, scan};
use crate::sharing::Handle;
use crate::show;
use crate::signals;
use arrow_array::{RecordBatch, UInt64Array};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::take::take_record_batch;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyString, PyTuple};
use pyo3_arrow::PySchema;
use std::sync::Arc;
use thalweg::{
    Database, Error, ErrorKind, ExtraTable, Numbered, Params, QueryResult, Table, TableScan,
    key_to_text,
};
use thalweg_table::time::key_to_scalar;

/// Rows of `head()` by default.
const HEAD_ROWS: usize = 5;

/// A table; made by Database.create_table() and Database.table().
#[pyclass(module = "thalweg", name = "Table", frozen)]
pub(crate) struct PyTable {
    name: String,
    table: ProcessLocal<Table>,
    db: Arc<Handle>,
}

impl PyTable {
    pub(crate) fn new(db: Arc<Handle>, table: Table) -> Self {
        Self {
            db,
            name: table.name().to_owned(),
            table: ProcessLocal::new(table),
        }
    }

    /// Refuses a table that is no part of the transaction which its connection has opened: what it is given would be stored at once.
    fn open_to_write(&self) -> PyResult<&Table> {
        let table = self.open()?;
        if !table.is_in_transaction() && self.db.open()?.is_in_transaction() {
            return Err(outside(&self.name));
        }
        Ok(table)
    }

    /// The first rows in order of time, or all.
    fn first(&self, py: Python<'_>, limit: Option<usize>) -> PyResult<PyQueryResult> {
        let (db, table) = (self.db.open()?, self.open()?);
        let scan = TableScan {
            limit,
            ..TableScan::default()
        };
        let rows = py.detach(|| db.scan(table, &scan)).or_raise()?;
        Ok(PyQueryResult::new(Arc::clone(&self.db), rows))
    }

    /// The table, unless its database was closed, or opened before a fork.
    #[inline]
    fn open(&self) -> PyResult<&Table> {
        self.db.open()?;
        self.table.get()
    }

    pub(crate) fn append_input(
        &self,
        py: Python<'_>,
        input: Input,
        number: Option<Numbered<'_>>,
    ) -> PyResult<u64> {
        let table = self.open()?;
        // Ctrl-C ends the append, of which nothing is stored then. So does a fork within whatever makes the batches, in the
        // child: the append is its parent's.
        let is_here = || self.table.get().map(drop);
        let appended = signals::interruptible(is_here, |goes_on| match input {
            Input::Batch(batch) => {
                py.detach(|| append_to(table, std::iter::once(Ok(batch)), number, goes_on))
            }
            Input::Stream(stream) => {
                let batches = stream.map(|batch| {
                    if !goes_on() {
                        return Err(Error::new(ErrorKind::Query, "the append was interrupted"));
                    }
                    batch.map_err(input::unread)
                });
                py.detach(|| append_to(table, batches, number, goes_on))
            }
        })?;
        appended.or_raise()
    }
}

/// Appends to a table, once for each number.
fn append_to(
    table: &Table,
    batches: impl Iterator<Item = Result<RecordBatch, Error>>,
    number: Option<Numbered<'_>>,
    goes_on: &dyn Fn() -> bool,
) -> Result<u64, Error> {
    match number {
        None => table.append_while(batches, None, goes_on),
        Some(number) => table.append_once(batches, number, None, goes_on),
    }
}

#[pymethods]
impl PyTable {
    /// Appends all rows of `data`, or none, and returns how many there were. They are durable when this returns.
    ///
    /// data: a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a dict of arrays, or
    ///     anything with __arrow_c_stream__ or __arrow_c_array__; a list or an iterator of such; a dict of values as one row,
    ///     or a list or an iterator of them; a list or an iterator of tuples with the values of all columns in their order.
    ///
    /// The rows are read while other threads run: they must not write to arrays of NumPy that they are in before this returns.
    ///
    /// Columns are matched by name, as are the values of dicts, dataclasses, named tuples and rows of sqlite3; values of other tuples by
    /// place. Missing columns get their default, or null; rows may be in any order. An index of times without a name is the time column of a DataFrame
    /// that has no other. In pandas, and in lists beside texts or times, NaN is a missing value and becomes null; elsewhere it stays NaN.
    /// Integers in a column of times count in its unit since 1970: nanoseconds in a "timestamp", seconds in a "timestamp(s)".
    ///
    /// producer, sequence: the name of the program or device that sends the rows, and a number that rises with each of its appends to
    ///     the table. Whoever does not know whether an append was stored sends it again with its number: it is stored once. One that was
    ///     sent with this number before, or before a higher one, is taken for stored. The 65,536 producers that appended last are
    ///     remembered, for as long as the database lasts.
    ///
    /// >>> import thalweg, numpy
    /// >>> t = thalweg.connect(":memory:").create_table("t", {"ts": "int64", "v": "double"}, time="ts")
    /// >>> t.append({"ts": numpy.arange(3), "v": numpy.array([0.5, 1.5, numpy.nan])})
    /// 3
    /// >>> for attempt in range(3):
    /// ...     _ = t.append({"ts": [3], "v": [2.5]}, producer="gateway 7", sequence=41)
    /// >>> len(t)
    /// 4
    #[pyo3(signature = (data, *, producer=None, sequence=None))]
    pub(crate) fn append(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        producer: Option<&str>,
        sequence: Option<u64>,
    ) -> PyResult<u64> {
        let number = match (producer, sequence) {
            (None, None) => None,
            (Some(producer), Some(sequence)) => Some(Numbered { producer, sequence }),
            _ => {
                let message = "append takes producer and sequence together: a name, and a number that rises with each append";
                return Err(raise(ErrorKind::Invalid, message.to_owned()));
            }
        };
        let table = self.open_to_write()?;
        let schema = table.schema();
        let definition = table.definition();
        if let Some(exported) = Exported::of(data)? {
            let (types, values) = (&exported.schema, &exported.array);
            let stored = match number {
                Some(_) => None,
                None => one_row::with_row(types, values, &schema, |row| {
                    py.detach(|| table.put(row, None)).or_raise()
                }),
            };
            return match stored {
                Some(stored) => stored.map(|()| 1),
                None => self.append_input(py, Input::Batch(exported.into_batch(py)?), number),
            };
        }
        let time = definition.order_column().map(|column| column.name.as_str());
        let Some(input) = input::read_any(data, &schema, time)? else {
            let message = format!(
                "table \"{}\": append takes Arrow, pandas, polars, a dict of arrays, or rows as dicts or tuples, not {}; for single \
                 rows use put",
                self.name,
                data.get_type().name()?
            );
            return Err(raise(ErrorKind::Schema, message));
        };
        self.append_input(py, input, number)
    }

    /// Appends one row, its values in the order of the columns.
    ///
    /// An integer in a column of times counts in its unit since 1970, as in append().
    ///
    /// >>> import thalweg
    /// >>> t = thalweg.connect(":memory:").create_table("t", {"ts": "timestamp", "v": "double"}, time="ts")
    /// >>> t.put("2026-01-01T00:00:00", 3.5)
    /// >>> len(t)
    /// 1
    #[pyo3(signature = (*row))]
    fn put(&self, py: Python<'_>, row: &Bound<'_, PyTuple>) -> PyResult<()> {
        let table = self.open_to_write()?;
        with_row(row, &self.name, |values| {
            py.detach(|| table.put(values, None)).or_raise()
        })
    }

    /// Collects rows that are put one by one and commits them in large batches, to load many fast; use it in a `with` block.
    fn appender(&self) -> PyResult<PyAppender> {
        let table = self.open_to_write()?;
        Ok(PyAppender::new(
            self.name.clone(),
            !table.is_in_transaction(),
            table.appender(),
            Arc::clone(&self.db),
        ))
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
    /// reverse: the latest first.
    /// params: values for `where`, a list for ? and $1, a dict for $name.
    ///
    /// >>> import thalweg
    /// >>> t = thalweg.connect(":memory:").create_table("t", {"ts": "int64", "v": "double"}, time="ts")
    /// >>> t.append({"ts": [1, 2, 3], "v": [1.0, 2.0, 3.0]})
    /// 3
    /// >>> t.scan(columns=["v"], start=2).fetchall()
    /// [(2.0,), (3.0,)]
    /// >>> t.scan(where="v < ?", params=[3], reverse=True, limit=1).fetchall()
    /// [(2, 2.0)]
    #[pyo3(signature = (columns=None, r#where=None, start=None, end=None, limit=None, r#box=None, reverse=None, params=None), text_signature = "($self, columns=None, where=None, start=None, end=None, limit=None, box=None, reverse=False, params=None)")]
    #[expect(clippy::too_many_arguments, reason = "options by name in Python")]
    fn scan(
        &self,
        py: Python<'_>,
        columns: Option<&Bound<'_, PyAny>>,
        r#where: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        limit: Option<&Bound<'_, PyAny>>,
        r#box: Option<&Bound<'_, PyAny>>,
        reverse: Option<&Bound<'_, PyAny>>,
        params: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyQueryResult> {
        let sides = "a dict like {\"column\": (smallest, largest)}, both included";
        let asked = Asked {
            columns: columns.map(|given| names("columns", given)).transpose()?,
            filter: optional_text("where", r#where)?,
            start,
            end,
            limit: whole_number("limit", limit)?,
            bounds: optional_dict("box", r#box, sides)?,
            reverse: reverse.map_or(Ok(false), |given| flag("reverse", given))?,
            params: params.filter(|given| !given.is_none()),
        };
        let rows = scan(py, self.db.open()?, self.open()?, asked)?;
        Ok(PyQueryResult::new(Arc::clone(&self.db), rows))
    }

    /// The first rows in order of time, as a Result.
    ///
    /// >>> import thalweg
    /// >>> t = thalweg.connect(":memory:").create_table("t", {"ts": [3, 1, 2]}, time="ts")
    /// >>> t.head(2).fetchall()
    /// [(1,), (2,)]
    #[pyo3(signature = (n=None), text_signature = "($self, n=5)")]
    fn head(&self, py: Python<'_>, n: Option<&Bound<'_, PyAny>>) -> PyResult<PyQueryResult> {
        let rows = whole_number("n", n)?;
        self.first(py, Some(rows.unwrap_or(HEAD_ROWS)))
    }

    /// The last rows in order of time, as a Result.
    ///
    /// >>> import thalweg
    /// >>> t = thalweg.connect(":memory:").create_table("t", {"ts": [3, 1, 2]}, time="ts")
    /// >>> t.tail(2).fetchall()
    /// [(2,), (3,)]
    #[pyo3(signature = (n=None), text_signature = "($self, n=5)")]
    fn tail(&self, py: Python<'_>, n: Option<&Bound<'_, PyAny>>) -> PyResult<PyQueryResult> {
        let rows = whole_number("n", n)?;
        let (db, table) = (self.db.open()?, self.open()?);
        if table.definition().order_column().is_none() {
            let message = "tail needs a time column, as create_table(..., time=\"ts\") and WITH (time = 'ts') name one; the table orders rows by arrival";
            return Err(raise(ErrorKind::Invalid, message));
        }
        let asked = Asked {
            limit: Some(rows.unwrap_or(HEAD_ROWS)),
            reverse: true,
            ..Asked::default()
        };
        let latest_first = scan(py, db, table, asked)?;
        let rows = py.detach(|| reversed(db, latest_first)).or_raise()?;
        Ok(PyQueryResult::new(Arc::clone(&self.db), rows))
    }

    /// All rows as a pyarrow.Table, in order of time.
    fn arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.first(py, None)?.arrow(py)
    }

    /// All rows as a pandas.DataFrame, in order of time.
    fn df<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.first(py, None)?.df(py)
    }

    /// All rows as a polars.DataFrame, in order of time.
    fn pl<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.first(py, None)?.pl(py)
    }

    /// All rows as a dict of numpy arrays by column, in order of time; masked arrays where there are nulls.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.first(py, None)?.numpy(py)
    }

    /// The same as arrow().
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.arrow(py)
    }

    /// The same as df().
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.df(py)
    }

    /// The same as pl().
    fn to_polars<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.pl(py)
    }

    /// The same as numpy().
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.numpy(py)
    }

    /// Called for names that there are none of.
    fn __getattr__(&self, name: &str) -> PyResult<Py<PyAny>> {
        Err(no_attribute("Table", name))
    }

    /// Statistics of the table as a dict: rows, bytes, blocks, fragments, open_rows, late_rows, min_time, max_time.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let table = self.open()?;
        let view = py.detach(|| table.view()).or_raise()?;
        let stats = py.detach(|| view.stats()).or_raise()?;
        let definition = view.definition();
        let time = definition.order_column();
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
    /// meanwhile; files that are of no use any more go in the background. Ctrl-C ends it; what is in order by then stays so.
    fn maintain(&self, py: Python<'_>) -> PyResult<()> {
        let table = self.open()?;
        let is_here = || self.table.get().map(drop);
        let done = signals::interruptible(is_here, |goes_on| {
            py.detach(|| table.maintain_while(goes_on).map(drop))
        })?;
        done.or_raise()
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

    /// The names of the columns.
    #[getter]
    fn columns(&self) -> PyResult<Vec<String>> {
        let schema = self.table.get()?.schema();
        let fields = schema.fields().iter();
        Ok(fields.map(|field| field.name().clone()).collect())
    }

    /// The name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.first(py, None)?
            .__arrow_c_stream__(py, requested_schema)
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

    /// The first rows, for notebooks; None once the database is closed.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<Option<String>> {
        if self.open().is_err() {
            return Ok(None);
        }
        let rows = self.__len__(py)?;
        let title = format!("{}: {rows} rows", self.name);
        let first = self.first(py, Some(show::MAX_ROWS + 1))?;
        first.html(py, Some(&title))
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

/// The rows, which are few, from the last one to the first.
fn reversed(db: &Database, mut rows: QueryResult) -> Result<QueryResult, Error> {
    let schema = SchemaRef::clone(rows.schema());
    let mut batches = Vec::new();
    while let Some(batch) = rows.next_batch()? {
        let places: UInt64Array = (0..batch.num_rows() as u64).rev().collect();
        let batch = take_record_batch(&batch, &places).map_err(input::unread)?;
        batches.insert(0, batch);
    }
    let last = [("__tail".to_owned(), ExtraTable::batches(schema, batches))];
    db.sql_while("SELECT * FROM __tail", &Params::None, &last, &|| true)
}

/// A time of the table as a Python value; as text if Python has none for it.
fn key_value<'py>(py: Python<'py>, data_type: &DataType, key: i64) -> PyResult<Bound<'py, PyAny>> {
    let array = key_to_scalar(data_type, key).map_err(|error| exception(&error))?;
    match cell(py, &array, 0) {
        Ok(value) => Ok(value),
        // A time that Python has no value for: its text, or the number in the unit of the column if it is beyond
        // the calendar too.
        Err(_) => {
            let text = key_to_text(data_type, key);
            match text.parse::<i64>() {
                Ok(number) => Ok(number.into_pyobject(py)?.into_any()),
                Err(_) => Ok(PyString::new(py, &text).into_any()),
            }
        }
    }
}
