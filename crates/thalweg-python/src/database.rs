//! An open database.

use crate::error::{NotFoundError, OrRaise, raise};
use crate::finalize::Callback;
use crate::input;
use crate::once::name;
use crate::options::{duration, whole_number};
use crate::process::{ProcessLocal, initialise};
use crate::result::PyQueryResult;
use crate::schema::schema;
use crate::signals;
use crate::table::PyTable;
use crate::value::params;
use arrow_schema::Schema;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thalweg::{
    CreateOptions, Database, Durability, ErrorKind, ExtraTable, Layout, Prepared, SummaryOption,
};

/// Opens the database in the directory `path`, making it if it is missing; ":memory:" is a new one in memory.
///
/// read_only: never write; the database must exist. Works beside a process that writes.
/// durability: what an append survives when it returns: "disk", "process" or "memory".
/// cache_bytes: memory for cached parts of the index.
/// threads: how many work on one call; all cores by default.
/// memory_limit: bytes that sorts, joins and groups may take together.
/// sync_interval: seconds within which "process" appends reach stable storage; 0.2 by default.
///
/// >>> import thalweg
/// >>> with thalweg.connect(":memory:") as db:
/// ...     db.sql("SELECT 1 + 1").fetchone()
/// (2,)
#[pyfunction]
#[pyo3(signature = (path, read_only=false, durability="disk", cache_bytes=None, threads=None, memory_limit=None, sync_interval=None, writer=None))]
#[expect(clippy::too_many_arguments, reason = "options by name in Python")]
pub(crate) fn connect(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    read_only: bool,
    durability: &str,
    cache_bytes: Option<&Bound<'_, PyAny>>,
    threads: Option<&Bound<'_, PyAny>>,
    memory_limit: Option<&Bound<'_, PyAny>>,
    sync_interval: Option<&Bound<'_, PyAny>>,
    writer: Option<&str>,
) -> PyResult<PyDatabase> {
    if writer.is_some() {
        return Err(unsupported("several writers of arrays (writer=...)"));
    }
    let mut builder = Database::builder()
        .read_only(read_only)
        .must_exist(read_only)
        .durability(durability_named(durability)?);
    if let Some(bytes) = whole_number("cache_bytes", cache_bytes)? {
        builder = builder.cache_bytes(bytes);
    }
    if let Some(threads) = whole_number("threads", threads)? {
        builder = builder.threads(threads);
    }
    if let Some(bytes) = whole_number("memory_limit", memory_limit)? {
        builder = builder.memory_limit_bytes(bytes);
    }
    if let Some(interval) = duration("sync_interval", sync_interval)? {
        builder = builder.sync_interval(interval);
    }
    let path = path_of(path)?;
    initialise(py)?;
    let db = py.detach(|| builder.open(&path)).or_raise()?;
    let closed = AtomicBool::new(false);
    Ok(PyDatabase {
        handle: Arc::new(Handle {
            db: ProcessLocal::new(db),
            closed,
        }),
        path,
        read_only,
    })
}

/// A path, which may be an object with code of its own, as those of `pathlib` are.
fn path_of(given: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let _running = Callback::begin()?;
    given.extract()
}

fn durability_named(name: &str) -> PyResult<Durability> {
    match name {
        "disk" => Ok(Durability::Disk),
        "process" => Ok(Durability::Process),
        "memory" => Ok(Durability::Memory),
        other => {
            let message =
                format!("\"{other}\" is no durability; it is \"disk\", \"process\" or \"memory\"");
            Err(raise(ErrorKind::Invalid, message))
        }
    }
}

/// What the contract names and this version lacks.
pub(crate) fn unsupported(what: &str) -> PyErr {
    raise(
        ErrorKind::Unsupported,
        format!("{what} is not offered by this version"),
    )
}

/// What a database and its tables share.
pub(crate) struct Handle {
    db: ProcessLocal<Database>,
    closed: AtomicBool,
}

impl Handle {
    /// The database, unless it was closed, or opened before a fork.
    #[inline]
    pub(crate) fn open(&self) -> PyResult<&Database> {
        let db = self.db.get()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(raise(ErrorKind::Unavailable, "the database is closed"));
        }
        Ok(db)
    }
}

/// An open database; made by thalweg.connect().
#[pyclass(module = "thalweg", name = "Database", frozen)]
pub(crate) struct PyDatabase {
    handle: Arc<Handle>,
    path: PathBuf,
    read_only: bool,
}

#[pymethods]
impl PyDatabase {
    /// Makes a table and returns it.
    ///
    /// schema: a pyarrow.Schema, or a dict of names and types.
    /// time: the column that orders rows; None orders them by arrival.
    /// split: regular cuts of time, as "1 day".
    /// block_rows: rows of a full block; 4,096 by default.
    /// summaries: "auto", "all", "none", or the columns that blocks are summarised by.
    ///
    /// >>> import thalweg
    /// >>> db = thalweg.connect(":memory:")
    /// >>> cpu = db.create_table("cpu", {"ts": "timestamp", "host": "varchar", "sys": "double"}, time="ts", split="1 day")
    /// >>> cpu.append({"ts": ["2026-01-01", "2026-01-02"], "host": ["a", "b"], "sys": [1.5, 2.5]})
    /// 2
    #[pyo3(signature = (name, schema, layout="stream", time=None, split=None, block_rows=None, summaries=None, **options))]
    #[expect(clippy::too_many_arguments, reason = "options by name in Python")]
    fn create_table(
        &self,
        py: Python<'_>,
        name: &str,
        schema: &Bound<'_, PyAny>,
        layout: &str,
        time: Option<String>,
        split: Option<String>,
        block_rows: Option<&Bound<'_, PyAny>>,
        summaries: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyTable> {
        let schema = self::schema(schema)?;
        let block_rows = whole_number("block_rows", block_rows)?;
        let layout = Layout::parse(layout).or_raise()?;
        // An option that only another layout has is named only if the layout could have it.
        if layout == Layout::Stream {
            refuse_options(options)?;
        }
        let summaries = summaries
            .map(summary_option)
            .transpose()?
            .unwrap_or_default();
        let options = CreateOptions {
            layout,
            time,
            split,
            block_rows,
            summaries,
        };
        let db = self.handle.open()?;
        let table = py
            .detach(|| db.create_table(name, &schema, &options))
            .or_raise()?;
        Ok(PyTable::new(Arc::clone(&self.handle), table))
    }

    /// The table of that name, in any case.
    fn table(&self, py: Python<'_>, name: &str) -> PyResult<PyTable> {
        let db = self.handle.open()?;
        let table = py.detach(|| db.table(name)).or_raise()?;
        Ok(PyTable::new(Arc::clone(&self.handle), table))
    }

    /// The names of all tables, in order.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let db = self.handle.open()?;
        py.detach(|| db.table_names()).or_raise()
    }

    /// Removes a table and its rows.
    fn drop_table(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let db = self.handle.open()?;
        py.detach(|| db.drop_table(name)).or_raise()
    }

    /// Runs one statement. What changes something is done when this returns, and its result is one row, count; a query
    /// takes its snapshot now and runs when its first row is asked for.
    ///
    /// params: a list for ? and $1, a dict for $name.
    /// A name that is no table may be a variable of the caller that holds a DataFrame or an Arrow table.
    ///
    /// >>> import thalweg, pyarrow
    /// >>> db = thalweg.connect(":memory:")
    /// >>> readings = pyarrow.table({"v": [1, 2, 3]})
    /// >>> db.sql("SELECT sum(v) FROM readings WHERE v > ?", params=[1]).fetchone()
    /// (5,)
    #[pyo3(signature = (text, params=None))]
    fn sql(
        &self,
        py: Python<'_>,
        text: &str,
        params: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyQueryResult> {
        let db = self.handle.open()?;
        let params = self::params(params)?;
        let first = signals::run(py, |go_on| db.sql_while(text, &params, &[], go_on))?;
        let missing = match first {
            Err(error) if error.kind() == ErrorKind::NotFound => error,
            other => return other.or_raise().map(PyQueryResult::new),
        };
        let names = py.detach(|| db.unknown_tables(text)).unwrap_or_default();
        let extra = variables(py, &names, &missing)?;
        if extra.is_empty() {
            return Err(crate::error::exception(&missing));
        }
        signals::run(py, |go_on| db.sql_while(text, &params, &extra, go_on))?
            .or_raise()
            .map(PyQueryResult::new)
    }

    /// Parses a statement to run it often.
    ///
    /// >>> import thalweg
    /// >>> db = thalweg.connect(":memory:")
    /// >>> double = db.prepare("SELECT 2 * $x")
    /// >>> double.execute({"x": 21}).fetchone()
    /// (42,)
    fn prepare(&self, py: Python<'_>, text: &str) -> PyResult<PyPrepared> {
        let db = self.handle.open()?;
        let prepared = py.detach(|| db.prepare(text)).or_raise()?;
        Ok(PyPrepared {
            handle: Arc::clone(&self.handle),
            names: prepared.parameter_names().to_vec(),
            prepared: ProcessLocal::new(prepared),
            text: text.to_owned(),
        })
    }

    /// Returns when everything appended so far is durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.handle.open()?;
        py.detach(|| db.flush()).or_raise()
    }

    /// Flushes and lets go of the files. A second call does nothing, nor does one in a child of a fork.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(db) = self.handle.db.get() else {
            return Ok(());
        };
        self.handle.closed.store(true, Ordering::Release);
        py.detach(|| db.close()).or_raise()
    }

    /// Not offered by this version.
    #[pyo3(signature = (*_arguments, **_options))]
    fn create_array(
        &self,
        _arguments: &Bound<'_, PyTuple>,
        _options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        Err(unsupported("the layout \"array\""))
    }

    /// Not offered by this version.
    fn array(&self, name: &str) -> PyResult<()> {
        Err(unsupported(&format!(
            "the array \"{name}\": the layout \"array\""
        )))
    }

    /// The path it was opened by.
    #[getter]
    fn path(&self) -> String {
        self.path.display().to_string()
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let mode = if self.read_only { ", read-only" } else { "" };
        format!("<thalweg.Database {}{mode}>", self.path.display())
    }
}

/// Options by name that no signature lists.
fn refuse_options(options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let Some(options) = options else {
        return Ok(());
    };
    for name in options.keys() {
        let name: String = name.extract()?;
        CreateOptions::from_pairs([(name, "")]).or_raise()?;
    }
    Ok(())
}

fn summary_option(given: &Bound<'_, PyAny>) -> PyResult<SummaryOption> {
    if let Ok(columns) = given.extract::<Vec<String>>() {
        return Ok(SummaryOption::Columns(columns));
    }
    let Ok(text) = given.extract::<String>() else {
        return Err(raise(
            ErrorKind::Invalid,
            "summaries is \"auto\", \"all\", \"none\" or a list of columns",
        ));
    };
    Ok(CreateOptions::from_pairs([("summaries", text)])
        .or_raise()?
        .summaries)
}

/// Variables of the calling Python function that hold tables of these names.
fn variables(
    py: Python<'_>,
    names: &[String],
    missing: &thalweg::Error,
) -> PyResult<Vec<(String, ExtraTable)>> {
    let _running = Callback::begin()?;
    let frame = py
        .import(name!(py, "sys"))?
        .getattr(name!(py, "_getframe"))?
        .call0()?;
    let scopes = [
        frame.getattr(name!(py, "f_locals"))?,
        frame.getattr(name!(py, "f_globals"))?,
    ];
    let mut tables = Vec::new();
    for name in names {
        // Locals are a proxy in newer interpreters, not a dict.
        let found = scopes.iter().find_map(|scope| scope.get_item(name).ok());
        let Some(found) = found else { continue };
        let Some(rows) = input::read(&found, &Schema::empty())? else {
            let kind = found.get_type().name()?;
            let message = format!(
                "{missing}; the variable {name} holds a value of type {kind}, which is no table"
            );
            return Err(NotFoundError::new_err(message));
        };
        // Readers and results can be read once; frames and tables as often as one likes.
        let is_once = !found.hasattr(name!(py, "__len__"))?;
        tables.push((name.clone(), rows.into_extra(is_once)?));
    }
    Ok(tables)
}

/// A statement that was parsed; made by Database.prepare().
#[pyclass(module = "thalweg", name = "Prepared", frozen)]
pub(crate) struct PyPrepared {
    handle: Arc<Handle>,
    prepared: ProcessLocal<Prepared>,
    names: Vec<String>,
    text: String,
}

#[pymethods]
impl PyPrepared {
    /// Runs it, with a list for ? and $1, or a dict for $name.
    #[pyo3(signature = (params=None))]
    fn execute(
        &self,
        py: Python<'_>,
        params: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyQueryResult> {
        self.handle.open()?;
        let prepared = self.prepared.get()?;
        let params = self::params(params)?;
        signals::run(py, |go_on| prepared.execute_while(&params, go_on))?
            .or_raise()
            .map(PyQueryResult::new)
    }

    /// The names of its parameters in order; numbers for ? and $1.
    #[getter]
    fn parameters(&self) -> Vec<String> {
        self.names.clone()
    }

    fn __repr__(&self) -> String {
        format!("<thalweg.Prepared {:?}>", self.text)
    }
}
