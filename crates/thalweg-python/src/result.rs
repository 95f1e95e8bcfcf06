//! The result of a query: rows that are pulled as they are asked for.
//!
//! Invariants: a result is read once, by one thread at a time; whatever form the rows are taken in, they are those that
//! were not fetched yet; nothing runs before the first of them is asked for; showing a result takes nothing from it.

use crate::cells::{Converter, Page};
use crate::error::{exception, raise};
use crate::finalize::{Callback, import};
use crate::interpreter::Held;
use crate::once::name;
use crate::options::whole_number;
use crate::process::{Home, ProcessLocal};
use crate::sharing::Handle;
use crate::show;
use crate::signals::{Stopped, next_batch};
use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, FieldRef, SchemaRef};
use arrow_select::concat::concat_batches;
use pyo3::exceptions::{PyAttributeError, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyTuple};
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader, PySchema};
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg::{ErrorKind, QueryResult, csv, type_name};
use thalweg_env::sync::Mutex;

/// The rows of a statement. They stream, and can be read once.
///
/// Take all of them as one object, `reader()` or an iteration as they come, or row by row with `fetchone()`.
///
/// >>> import thalweg
/// >>> db = thalweg.connect(":memory:")
/// >>> r = db.sql("SELECT 1 AS one, 'a' AS letter")
/// >>> r.columns
/// ['one', 'letter']
/// >>> r.fetchall()
/// [(1, 'a')]
#[pyclass(module = "thalweg", name = "Result", frozen)]
pub(crate) struct PyQueryResult {
    schema: SchemaRef,
    home: Home,
    state: Mutex<State>,
}

enum State {
    Rows(Box<Rows>),
    /// Another thread is reading.
    Busy,
    /// All rows were handed over.
    Taken,
}

/// How far rows were handed over one by one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Unread,
    Begun,
    /// There were some, and there are no more.
    UsedUp,
}

struct Rows {
    schema: SchemaRef,
    source: ProcessLocal<QueryResult>,
    converter: Option<Converter>,
    /// Rows that were pulled and not yet asked for.
    page: Option<Page>,
    /// Batches that were pulled after the page and not asked for: to show the first rows, for example.
    ahead: VecDeque<RecordBatch>,
    progress: Progress,
    /// Dropped after the rows: it may be the last one to hold the database open.
    _db: Arc<Handle>,
}

impl Rows {
    fn pull(&mut self) -> PyResult<Option<RecordBatch>> {
        match self.ahead.pop_front() {
            Some(batch) => Ok(Some(batch)),
            None => Ok(next_batch(self.source.get_mut()?)?),
        }
    }

    /// Returns the first rows without reading them: more than are shown, if there are.
    fn first(&mut self) -> PyResult<RecordBatch> {
        let some = |batch: &RecordBatch| batch.slice(0, batch.num_rows().min(show::MAX_ROWS + 1));
        let page = self.page.as_ref().map(Page::rest);
        let mut batches: Vec<_> = page.iter().chain(&self.ahead).map(some).collect();
        while batches.iter().map(RecordBatch::num_rows).sum::<usize>() <= show::MAX_ROWS {
            let Some(batch) = next_batch(self.source.get_mut()?)? else {
                break;
            };
            batches.push(some(&batch));
            self.ahead.push_back(batch);
        }
        let rows = concat_batches(&self.schema, &batches);
        rows.map_err(|error| raise(ErrorKind::Query, error.to_string()))
    }

    /// Rows to read are in `page` afterwards, if there are any.
    fn fill(&mut self, py: Python<'_>) -> PyResult<()> {
        while self.page.as_ref().is_none_or(|page| page.rows_left() == 0) {
            self.page = None;
            let Some(batch) = self.pull()? else { break };
            if self.converter.is_none() {
                self.converter = Some(Converter::new(py, &self.schema)?);
            }
            if let Some(converter) = &self.converter {
                self.page = Some(converter.page(py, batch)?);
            }
        }
        Ok(())
    }

    fn next_row<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.fill(py)?;
        let row = match (&self.converter, &mut self.page) {
            (Some(converter), Some(page)) => converter.next_row(py, page)?,
            _ => None,
        };
        self.progress = match (&row, self.progress) {
            (Some(_), _) => Progress::Begun,
            (None, Progress::Unread) => Progress::Unread,
            (None, _) => Progress::UsedUp,
        };
        Ok(row)
    }

    fn next_rest(&mut self) -> PyResult<Option<RecordBatch>> {
        self.source.get()?;
        match self.page.take() {
            Some(page) if page.rows_left() > 0 => Ok(Some(page.rest())),
            _ => self.pull(),
        }
    }
}

fn was_read() -> PyErr {
    raise(
        ErrorKind::Unavailable,
        "this result was read before; run the statement again",
    )
}

impl PyQueryResult {
    pub(crate) fn new(db: Arc<Handle>, source: QueryResult) -> Self {
        let schema = SchemaRef::clone(source.schema());
        let rows = Rows {
            _db: db,
            schema: SchemaRef::clone(&schema),
            source: ProcessLocal::new(source),
            converter: None,
            page: None,
            ahead: VecDeque::new(),
            progress: Progress::Unread,
        };
        Self {
            schema,
            home: Home::here(),
            state: Mutex::new(State::Rows(Box::new(rows))),
        }
    }

    /// Runs `read` on the rows, which other threads find busy meanwhile.
    fn with_rows<T>(&self, read: impl FnOnce(&mut Rows) -> PyResult<T>) -> PyResult<T> {
        let mut rows = self.take(State::Busy)?;
        let outcome = read(&mut rows);
        *self.state.lock() = State::Rows(rows);
        outcome
    }

    fn take(&self, after: State) -> PyResult<Box<Rows>> {
        self.home.check()?;
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, after) {
            // An empty table would look like a query without rows.
            State::Rows(rows)
                if rows.progress == Progress::UsedUp && matches!(*state, State::Taken) =>
            {
                *state = State::Rows(rows);
                Err(was_read())
            }
            State::Rows(rows) => Ok(rows),
            State::Busy => {
                *state = State::Busy;
                Err(is_busy())
            }
            State::Taken => {
                *state = State::Taken;
                Err(was_read())
            }
        }
    }

    /// Reads all rows and keeps none: for what they may fail by.
    pub(crate) fn read_through(&self) -> PyResult<()> {
        let mut rows = self.take(State::Taken)?;
        while rows.next_rest()?.is_some() {}
        Ok(())
    }

    /// The rest of the rows as batches in memory.
    fn collect(&self) -> PyResult<Vec<RecordBatch>> {
        let mut rows = self.take(State::Taken)?;
        let mut batches = Vec::new();
        while let Some(batch) = rows.next_rest()? {
            batches.push(batch);
        }
        Ok(batches)
    }

    /// Hands all rows to a writer of the Python part.
    fn write(&self, py: Python<'_>, writer: &str, path: &Bound<'_, PyAny>) -> PyResult<()> {
        let reader = self.reader(py)?;
        let _running = Callback::begin()?;
        py.import("thalweg._frames")?
            .call_method1(writer, (reader, path))?;
        Ok(())
    }

    /// All rows as a pyarrow.Table in which no two columns have one name.
    fn arrow_with_own_names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let table = self.arrow(py)?;
        let _running = Callback::begin()?;
        py.import(name!(py, "thalweg._frames"))?
            .call_method1(name!(py, "with_own_names"), (table,))
    }

    /// The first rows, which stay in the result.
    fn first_rows(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.with_rows(|rows| {
            rows.fill(py)?;
            rows.first()
        })
    }

    /// The first rows as HTML; `None` where they were read before.
    pub(crate) fn html(&self, py: Python<'_>, title: Option<&str>) -> PyResult<Option<String>> {
        if !self.home.is_here() || matches!(*self.state.lock(), State::Taken) {
            return Ok(None);
        }
        show::html(&self.first_rows(py)?, title).map(Some)
    }

    fn stream(&self) -> PyResult<PyRecordBatchReader> {
        let mut rows = self.take(State::Taken)?;
        // What the interpreter owns is dropped here: whoever drops the stream may not hold it.
        rows.converter = None;
        if let Some(page) = rows.page.take()
            && page.rows_left() > 0
        {
            rows.ahead.push_front(page.rest());
        }
        let stream = Streamed {
            schema: SchemaRef::clone(&self.schema),
            rows,
        };
        Ok(PyRecordBatchReader::new(Box::new(stream)))
    }
}

/// The line of a CSV file with the names of the columns.
#[pyfunction]
#[pyo3(name = "_csv_header")]
pub(crate) fn csv_header(schema: PySchema) -> Vec<u8> {
    csv::header(schema.as_ref()).into_bytes()
}

/// The lines of a CSV file with the rows of a batch.
#[pyfunction]
#[pyo3(name = "_csv_rows")]
pub(crate) fn csv_rows(py: Python<'_>, batch: PyRecordBatch) -> PyResult<Vec<u8>> {
    let text = py.detach(|| csv::rows(batch.as_ref()));
    Ok(text.map_err(|error| exception(&error))?.into_bytes())
}

#[pymethods]
impl PyQueryResult {
    /// All rows as a pyarrow.Table; nothing is copied.
    ///
    /// >>> import thalweg
    /// >>> thalweg.connect(":memory:").sql("SELECT 1 AS a").arrow().to_pylist()
    /// [{'a': 1}]
    pub(crate) fn arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let batches = self.collect()?.into_iter().map(Ok);
        let _running = Callback::begin()?;
        let reader = RecordBatchIterator::new(batches, SchemaRef::clone(&self.schema));
        let reader = Bound::new(py, PyRecordBatchReader::new(Box::new(reader)))?;
        reader_class(py)?
            .call_method1(name!(py, "from_stream"), (reader,))?
            .call_method0(name!(py, "read_all"))
    }

    /// The same as arrow().
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.arrow(py)
    }

    /// All rows as a pandas.DataFrame, with dates as datetime64. Names that appear again get a number: v, v_1. As usual with pandas, a column of integers with nulls becomes one of floats, which rounds
    /// integers beyond 2**53; arrow() and pl() keep them.
    pub(crate) fn df<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // Reported before the rows are gone.
        import(py, "pandas")?;
        let table = self.arrow_with_own_names(py)?;
        let _running = Callback::begin()?;
        let options = PyDict::new(py);
        // Dates as times, with which pandas can calculate.
        options.set_item("date_as_object", false)?;
        table.call_method(name!(py, "to_pandas"), (), Some(&options))
    }

    /// The same as arrow(), by its name in DuckDB.
    fn fetch_arrow_table<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.arrow(py)
    }

    /// The same as df().
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.df(py)
    }

    /// The same as df(), by its name in DuckDB.
    fn fetchdf<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.df(py)
    }

    /// All rows as a polars.DataFrame. Names that appear again get a number: v, v_1.
    pub(crate) fn pl<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let polars = import(py, "polars")?;
        let is_interval = |field: &&FieldRef| matches!(field.data_type(), DataType::Interval(_));
        if let Some(field) = self.schema.fields().iter().find(is_interval) {
            // Reported before the rows are gone.
            let message = format!(
                "polars has no type for the interval column \"{}\": CAST it to VARCHAR, or take arrow() or df()",
                field.name()
            );
            return Err(raise(ErrorKind::Unsupported, message));
        }
        let table = self.arrow_with_own_names(py)?;
        let _running = Callback::begin()?;
        polars.call_method1(name!(py, "from_arrow"), (table,))
    }

    /// The same as pl().
    fn to_polars<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.pl(py)
    }

    /// All rows as a dict of numpy arrays by column, masked arrays where there are nulls. Names that appear again get a
    /// number: v, v_1.
    ///
    /// >>> import thalweg
    /// >>> thalweg.connect(":memory:").sql("SELECT 1.5 AS a").numpy()
    /// {'a': array([1.5])}
    pub(crate) fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let table = self.arrow(py)?;
        let _running = Callback::begin()?;
        py.import("thalweg._frames")?
            .call_method1("to_numpy", (table,))
    }

    /// The same as numpy().
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.numpy(py)
    }

    /// The same as numpy(), by its name in DuckDB.
    fn fetchnumpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.numpy(py)
    }

    /// Writes all rows to a Parquet file, batch by batch.
    fn to_parquet(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        self.write(py, "write_parquet", path)
    }

    /// The same as to_parquet().
    fn write_parquet(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        self.to_parquet(py, path)
    }

    /// Writes all rows to a CSV file with a header, batch by batch, as the command line writes them; compressed where its name ends with
    /// .gz or .zst.
    fn write_csv(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        self.write(py, "write_csv", path)
    }

    /// The same as write_csv().
    fn to_csv(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        self.write_csv(py, path)
    }

    /// Called for names that there are none of.
    fn __getattr__(&self, name: &str) -> PyResult<Py<PyAny>> {
        Err(no_attribute("Result", name))
    }

    /// All rows as a list of tuples of Python values. An interval without months is a timedelta. One with months has no one length: it is
    /// pyarrow's MonthDayNano, a tuple of months, days and nanoseconds, as in arrow().
    ///
    /// >>> import thalweg
    /// >>> thalweg.connect(":memory:").sql("SELECT INTERVAL '36 hours', INTERVAL '1 month 2 days'").fetchall()
    /// [(datetime.timedelta(days=1, seconds=43200), MonthDayNano(months=1, days=2, nanoseconds=0))]
    fn fetchall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        self.with_rows(|rows| {
            while let Some(row) = rows.next_row(py)? {
                list.append(row)?;
            }
            Ok(())
        })?;
        Ok(list)
    }

    /// The next row as a tuple of Python values; None when there is no more. A datetime has microseconds: df(), numpy() and arrow() keep
    /// nanoseconds.
    fn fetchone<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.with_rows(|rows| rows.next_row(py))
    }

    /// At most `size` of the next rows as a list of tuples of Python values; an empty one when there is no more.
    ///
    /// >>> import thalweg
    /// >>> r = thalweg.connect(":memory:").sql("SELECT * FROM (VALUES (1), (2), (3)) AS t (n) ORDER BY n")
    /// >>> r.fetchmany(2), r.fetchmany(2), r.fetchmany(2)
    /// ([(1,), (2,)], [(3,)], [])
    #[pyo3(signature = (size=None), text_signature = "($self, size=1)")]
    fn fetchmany<'py>(
        &self,
        py: Python<'py>,
        size: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let size = whole_number::<usize>("size", size)?.unwrap_or(1);
        let list = PyList::empty(py);
        self.with_rows(|rows| {
            while list.len() < size
                && let Some(row) = rows.next_row(py)?
            {
                list.append(row)?;
            }
            Ok(())
        })?;
        Ok(list)
    }

    /// The rows as a pyarrow.RecordBatchReader, which pulls them as it is read.
    fn reader<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _running = Callback::begin()?;
        let class = reader_class(py)?;
        let schema = self.schema(py)?;
        let rows = self.take(State::Taken)?;
        let batches = Batches {
            home: self.home,
            state: Mutex::new(State::Rows(rows)),
        };
        class.call_method1(
            name!(py, "from_batches"),
            (schema, Bound::new(py, batches)?),
        )
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.fetchone(py)?
            .ok_or_else(|| PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (requested_schema=None))]
    pub(crate) fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let stream = Bound::new(py, self.stream()?)?;
        stream.call_method1(name!(py, "__arrow_c_stream__"), (requested_schema,))
    }

    /// The columns as a pyarrow.Schema.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _running = Callback::begin()?;
        PySchema::new(SchemaRef::clone(&self.schema)).into_pyarrow(py)
    }

    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<&str> {
        self.schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect()
    }

    /// The columns as the database interface of Python wants them: for each a tuple of its name, the name of its type, and
    /// five times None.
    ///
    /// >>> import thalweg
    /// >>> thalweg.connect(":memory:").sql("SELECT 1.5 AS a").description
    /// [('a', 'float64', None, None, None, None, None)]
    #[getter]
    fn description<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for field in self.schema.fields() {
            let none = || py.None();
            let column = (
                field.name(),
                type_name(field.data_type()),
                none(),
                none(),
                none(),
                none(),
                none(),
            );
            list.append(column)?;
        }
        Ok(list)
    }

    /// Prints the first rows. They stay in the result.
    ///
    /// >>> import thalweg
    /// >>> thalweg.connect(":memory:").sql("SELECT 1 AS one").show()
    /// +-----+
    /// | one |
    /// +-----+
    /// | 1   |
    /// +-----+
    fn show(&self, py: Python<'_>) -> PyResult<()> {
        let text = show::first_rows(&self.first_rows(py)?)?;
        let _running = Callback::begin()?;
        py.import(name!(py, "builtins"))?
            .call_method1(name!(py, "print"), (text,))?;
        Ok(())
    }

    /// The first rows as text. They stay in the result.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        if !self.home.is_here() {
            let columns = self.columns().join(", ");
            return Ok(format!("<thalweg.Result, opened before a fork: {columns}>"));
        }
        if matches!(*self.state.lock(), State::Taken) {
            return Ok(format!(
                "<thalweg.Result, read: {}>",
                self.columns().join(", ")
            ));
        }
        show::first_rows(&self.first_rows(py)?)
    }

    /// The first rows, for notebooks. They stay in the result.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.html(py, None)
    }
}

/// The error for an attribute that there is none of, with what other libraries call so by its name here.
pub(crate) fn no_attribute(class: &str, name: &str) -> PyErr {
    let instead = match name {
        "fetchall" | "fetchone" | "fetchmany" if class == "Database" => {
            ": sql() gives a Result, which has it"
        }
        "to_json" | "write_json" => {
            ": thalweg sql DATABASE QUERY --format json prints JSON, and df().to_json() makes it"
        }
        "to_dict" | "to_pydict" | "to_dicts" | "to_pylist" => {
            ": arrow().to_pydict() makes a dict of lists, arrow().to_pylist() a list of dicts"
        }
        "fetch_arrow_table" => ": arrow() is a pyarrow.Table",
        "fetch_record_batch" | "fetch_arrow_reader" => {
            ": reader() reads batches one after the other"
        }
        "query" => ": sql() of a database runs a query",
        "register" | "from_df" | "from_arrow" => {
            ": a data frame in a variable is a table in sql(), by the name of the variable"
        }
        "fetchdf" | "fetch_df" => ": df() is a pandas.DataFrame",
        "fetchnumpy" => ": numpy() is a dict of arrays",
        "fetchall" | "fetchone" | "fetchmany" | "write_csv" | "to_csv" | "write_parquet"
        | "to_parquet" => ": scan() gives a Result, which has it",
        _ => "",
    };
    PyAttributeError::new_err(format!(
        "'{class}' object has no attribute '{name}'{instead}"
    ))
}

fn is_busy() -> PyErr {
    raise(
        ErrorKind::Unavailable,
        "another thread is reading this result; give each its own",
    )
}

fn reader_class(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import(name!(py, "pyarrow"))?
        .getattr(name!(py, "RecordBatchReader"))
}

/// The rest of the rows as an iterator of batches, for pyarrow to read from. Through the stream interface errors would
/// lose their kind, and Ctrl-C would be one of them.
#[pyclass(frozen)]
pub(crate) struct Batches {
    home: Home,
    /// Taken at the end.
    state: Mutex<State>,
}

#[pymethods]
impl Batches {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.home.check()?;
        // Taken out, so that no lock is held while the interpreter is released.
        let before = std::mem::replace(&mut *self.state.lock(), State::Busy);
        let (after, next) = match before {
            State::Rows(mut rows) => match rows.next_rest() {
                Ok(None) => (State::Taken, Ok(None)),
                // After an error the rows are not at their end: a caller that goes on gets the error again.
                next => (State::Rows(rows), next),
            },
            State::Busy => (State::Busy, Err(is_busy())),
            State::Taken => (State::Taken, Ok(None)),
        };
        // A call that found it busy leaves it to the other one to put the rows back.
        if !matches!(after, State::Busy) {
            *self.state.lock() = after;
        }
        let batch = next?.ok_or_else(|| PyStopIteration::new_err(()))?;
        let _running = Callback::begin()?;
        PyRecordBatch::new(batch).into_pyarrow(py)
    }
}

/// The rest of the rows, pulled by whoever holds the stream.
struct Streamed {
    schema: SchemaRef,
    rows: Box<Rows>,
}

impl Iterator for Streamed {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let failed = |message: String| {
            // The stream interface hands over a text that ends with the first zero.
            Some(Err(ArrowError::ExternalError(
                message.replace('\0', " ").into(),
            )))
        };
        // Whoever pulls may have released the interpreter without the knowledge of PyO3.
        let _held = match Held::begin() {
            Ok(held) => held,
            Err(ending) => return failed(ending.to_string()),
        };
        let source = match self.rows.source.get_mut() {
            Ok(source) => source,
            Err(error) => return failed(error.to_string()),
        };
        if let Some(batch) = self.rows.ahead.pop_front() {
            return Some(Ok(batch));
        }
        match next_batch(source) {
            Ok(batch) => batch.map(Ok),
            Err(Stopped::Failed(error)) => failed(error.to_string()),
            Err(Stopped::Signal(_)) => {
                // The stream interface carries no exception: the signal is raised again, for the interpreter to find
                // when the reader returns to it.
                let again = Python::attach(|py| {
                    py.import("_thread")?
                        .call_method0("interrupt_main")
                        .map(drop)
                });
                failed(again.map_or_else(|error| error.to_string(), |()| "interrupted".to_owned()))
            }
        }
    }
}

impl RecordBatchReader for Streamed {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}
