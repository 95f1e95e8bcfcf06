//! An open database.

use crate::error::{NotFoundError, OrRaise, raise, unsupported};
use crate::finalize::Callback;
use crate::input::{self, Input};
use crate::many;
use crate::once::name;
use crate::options::{duration, flag, optional_text, shown, split, text, whole_number};
use crate::process::ProcessLocal;
use crate::result::{PyQueryResult, no_attribute};
use crate::schema::{Given, columns_or_rows, nullable};
use crate::sharing::{Handle, Options};
use crate::signals;
use crate::table::PyTable;
use crate::transaction::PyTransaction;
use crate::value::params;
use arrow_schema::{DataType, Schema, TimeUnit};
use pyo3::prelude::*;
use pyo3::types::{PyDelta, PyDict, PyString, PyTuple};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use thalweg::{
    CreateOptions, Durability, Error, ErrorKind, ExtraTable, Layouts, MaintenanceMode, Params,
    Prepared, QueryResult, SummaryOption, fold_name, several_statements,
};

/// Opens the database in the directory `path`, making it if it is missing; ":memory:", or no path, is a new one in memory.
///
/// The same path with the same options again, in one process, shares the open database; the last close() closes it.
/// A path that begins with ~ lies in the home folder.
///
/// read_only: never write; the database must exist. Works beside a process that writes.
/// durability: what an append survives when it returns: "disk", "process" or "memory".
/// cache_bytes: memory for cached parts of the index.
/// threads: how many work on one call; all cores by default.
/// memory_limit: bytes that sorts, joins and groups may take together; rows on their way between threads may take as much
///     again, 64 MiB at least.
/// sync_interval: seconds within which "process" appends reach stable storage; 0.2 by default.
/// max_snapshot_age: seconds for which files are kept for readers in other processes; 10 minutes by default. To be given
///     where it is written and where it is read. Lengths of time may be text too, as "10 minutes", or a timedelta.
/// maintenance: "auto": late rows are put in order, short blocks joined and the room of deleted rows given back without being
///     asked; "manual": by Table.maintain() alone.
/// writer: the name of a process that writes arrays beside others; not offered by this version.
///
/// >>> import thalweg
/// >>> with thalweg.connect(":memory:") as db:
/// ...     db.sql("SELECT 1 + 1").fetchone()
/// (2,)
#[pyfunction]
#[pyo3(signature = (path=None, read_only=None, durability=None, cache_bytes=None, threads=None, memory_limit=None, sync_interval=None, max_snapshot_age=None, maintenance=None, writer=None), text_signature = "(path=':memory:', read_only=False, durability='disk', cache_bytes=None, threads=None, memory_limit=None, sync_interval=None, max_snapshot_age=None, maintenance='auto', writer=None)")]
#[expect(clippy::too_many_arguments, reason = "options by name in Python")]
pub(crate) fn connect(
    py: Python<'_>,
    #[pyo3(from_py_with = given)] path: Option<Bound<'_, PyAny>>,
    read_only: Option<&Bound<'_, PyAny>>,
    durability: Option<&Bound<'_, PyAny>>,
    cache_bytes: Option<&Bound<'_, PyAny>>,
    threads: Option<&Bound<'_, PyAny>>,
    memory_limit: Option<&Bound<'_, PyAny>>,
    sync_interval: Option<&Bound<'_, PyAny>>,
    max_snapshot_age: Option<&Bound<'_, PyAny>>,
    maintenance: Option<&Bound<'_, PyAny>>,
    writer: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyDatabase> {
    if writer.is_some() {
        return Err(unsupported("several writers of arrays (writer=...)"));
    }
    let mut options = Options::default();
    if let Some(given) = read_only {
        options.read_only = flag("read_only", given)?;
    }
    if let Some(name) = optional_text("durability", durability)? {
        options.durability = durability_named(name)?;
    }
    if let Some(bytes) = whole_number("cache_bytes", cache_bytes)? {
        options.cache_bytes = bytes;
    }
    if let Some(threads) = whole_number("threads", threads)? {
        options.threads = threads;
    }
    options.memory_limit = whole_number("memory_limit", memory_limit)?;
    if let Some(interval) = duration("sync_interval", sync_interval)? {
        options.sync_interval = interval;
    }
    if let Some(age) = duration("max_snapshot_age", max_snapshot_age)? {
        options.max_snapshot_age = age;
    }
    if let Some(name) = optional_text("maintenance", maintenance)? {
        options.maintenance = maintenance_named(name)?;
    }
    let (path, name) = match path {
        Some(path) => path_of(&path)?,
        None => path_of(PyString::intern(py, ":memory:").as_any())?,
    };
    let handle = Handle::connect(py, &path, name, &options)?;
    Ok(PyDatabase {
        handle,
        path,
        read_only: options.read_only,
    })
}

/// An argument that was given, None too: a variable without a path must not become a database that is gone in the end.
#[expect(clippy::unnecessary_wraps, reason = "the form that pyo3 wants")]
fn given<'py>(argument: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(Some(argument.clone()))
}

/// A path, which may be an object with code of its own, as those of `pathlib` are, and the name that all paths to the same
/// folder share; none for a database in memory.
fn path_of(given: &Bound<'_, PyAny>) -> PyResult<(PathBuf, Option<PathBuf>)> {
    let py = given.py();
    let _running = Callback::begin()?;
    py.import(name!(py, "thalweg._paths"))?
        .call_method1(name!(py, "resolve"), (given,))?
        .extract()
}

/// How the message ends that refuses a row without a time.
const TIME_IS_NULL: &str = "the time column may not be null";

/// The schema with times in the place of texts in the column that orders rows, which texts cannot.
fn with_times(schema: Schema, time: Option<&str>) -> Schema {
    let fields = schema.fields().iter().map(|field| {
        let is_time = time.is_some_and(|time| fold_name(time) == fold_name(field.name()));
        let is_text = matches!(
            field.data_type(),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        );
        let field = field.as_ref().clone();
        if is_time && is_text {
            field.with_data_type(DataType::Timestamp(TimeUnit::Nanosecond, None))
        } else {
            field
        }
    });
    Schema::new(fields.collect::<Vec<_>>())
}

fn durability_named(name: &str) -> PyResult<Durability> {
    match name {
        "disk" => Ok(Durability::Disk),
        "process" => Ok(Durability::Process),
        "memory" => Ok(Durability::Memory),
        other => {
            let message = format!(
                "\"{other}\" is no durability; it must be \"disk\", \"process\" or \"memory\""
            );
            Err(raise(ErrorKind::Invalid, message))
        }
    }
}

fn maintenance_named(name: &str) -> PyResult<MaintenanceMode> {
    MaintenanceMode::named(name).ok_or_else(|| {
        let message =
            format!("\"{name}\" is no kind of maintenance; it must be \"auto\" or \"manual\"");
        raise(ErrorKind::Invalid, message)
    })
}

/// An open database; made by thalweg.connect().
#[pyclass(module = "thalweg", name = "Database", frozen)]
pub(crate) struct PyDatabase {
    handle: Arc<Handle>,
    path: PathBuf,
    read_only: bool,
}

impl PyDatabase {
    /// Another connection to the same database.
    pub(crate) fn again(&self) -> PyResult<Self> {
        Ok(Self {
            handle: Arc::new(self.handle.again()?),
            path: self.path.clone(),
            read_only: self.read_only,
        })
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    fn result(&self, rows: QueryResult) -> PyQueryResult {
        PyQueryResult::new(Arc::clone(&self.handle), rows)
    }

    /// One statement; a name that is no table may be a variable of the caller.
    fn run(&self, py: Python<'_>, text: &str, params: &Params) -> PyResult<PyQueryResult> {
        let db = self.handle.open()?;
        let first = signals::run(py, |go_on| db.sql_while(text, params, &[], go_on))?;
        let missing = match first {
            Err(error) if error.kind() == ErrorKind::NotFound => error,
            other => return other.or_raise().map(|rows| self.result(rows)),
        };
        let names = py.detach(|| db.unknown_tables(text)).unwrap_or_default();
        let extra = variables(py, &names, &missing)?;
        if extra.is_empty() {
            return Err(crate::error::exception(&missing));
        }
        signals::run(py, |go_on| db.sql_while(text, params, &extra, go_on))?
            .or_raise()
            .map(|rows| self.result(rows))
    }

    /// Makes a table with the columns of `rows`, which appears with them; texts in the column of times become times. Where rows cannot be
    /// stored there is no table afterwards.
    fn create_filled(
        &self,
        py: Python<'_>,
        name: &str,
        rows: Input,
        options: &CreateOptions,
    ) -> PyResult<PyTable> {
        let db = self.handle.open()?;
        let schema = with_times(nullable(&rows.schema()), options.get("time"));
        let new = py
            .detach(|| db.begin_table(name, &schema, options))
            .or_raise()?;
        let table = PyTable::new(Arc::clone(&self.handle), new.table().clone());
        if let Err(error) = table.append_input(py, rows, None) {
            py.detach(|| drop(new));
            return Err(error);
        }
        py.detach(|| new.publish()).or_raise()?;
        Ok(table)
    }
}

#[pymethods]
impl PyDatabase {
    /// Makes a table and returns it.
    ///
    /// schema: a pyarrow or polars schema, or a dict of names and types: "double", float, numpy.float64, a pandas dtype. Or
    ///     data, in any form that append() takes: the table gets its columns and its rows.
    /// time: the column that orders rows, whose texts in data become times; None orders them by arrival, or data by its only
    ///     column of times; "" orders data by arrival too.
    /// split: regular cuts of time, as "1 day".
    /// block_rows: rows of a full block; 4,096 by default.
    /// summaries: "auto", "all", "none", or the columns that blocks are summarised by.
    /// unique: the columns whose values together belong to one row alone, as ["device", "ts"].
    /// on_duplicate: which of two rows of one unique key is kept: "last", "first", or "error", which stores neither.
    /// retention: rows older than this are deleted, by the clock of the machine: "90 days", or a timedelta.
    ///
    /// >>> import thalweg
    /// >>> db = thalweg.connect(":memory:")
    /// >>> cpu = db.create_table("cpu", {"ts": "timestamp", "host": str, "sys": float}, time="ts", split="1 day")
    /// >>> cpu.append({"ts": ["2026-01-01", "2026-01-02"], "host": ["a", "b"], "sys": [1.5, 2.5]})
    /// 2
    /// >>> len(db.create_table("copy", db.sql("SELECT * FROM cpu")))
    /// 2
    /// >>> db.create_table("log", [{"ts": "2026-01-01 06:00", "v": 1}], time="ts").schema.field("ts").type
    /// TimestampType(timestamp[ns])
    #[pyo3(signature = (name, schema, layout=None, time=None, split=None, block_rows=None, summaries=None, **options), text_signature = "($self, name, schema, layout='stream', time=None, split=None, block_rows=None, summaries=None, **options)")]
    #[expect(clippy::too_many_arguments, reason = "options by name in Python")]
    fn create_table(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        schema: &Bound<'_, PyAny>,
        layout: Option<&Bound<'_, PyAny>>,
        time: Option<&Bound<'_, PyAny>>,
        split: Option<&Bound<'_, PyAny>>,
        block_rows: Option<&Bound<'_, PyAny>>,
        summaries: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyTable> {
        let name = text("name", name)?;
        let mut create = CreateOptions {
            layout: optional_text("layout", layout)?.map(str::to_owned),
            summaries: summaries
                .map(summary_option)
                .transpose()?
                .unwrap_or_default(),
            ..CreateOptions::default()
        };
        let time = optional_text("time", time)?;
        if let Some(split) = self::split(split)? {
            create = create.with("split", split);
        }
        if let Some(rows) = whole_number::<u32>("block_rows", block_rows)? {
            create = create.with("block_rows", rows);
        }
        let mut options = with_options(create, options)?;
        let db = self.handle.open()?;
        options.layout_of(&Layouts::default()).or_raise()?;
        match columns_or_rows(schema, time)? {
            Given::Columns(schema) => {
                if let Some(time) = time.filter(|time| !time.is_empty()) {
                    options = options.with("time", time);
                }
                let table = py
                    .detach(|| db.create_table(name, &schema, &options))
                    .or_raise()?;
                Ok(PyTable::new(Arc::clone(&self.handle), table))
            }
            Given::Rows(rows) => {
                let is_found = time.is_none() && rows.time.is_some();
                if let Some(time) = rows.time {
                    options = options.with("time", time);
                }
                let made = self.create_filled(py, name, rows.input, &options);
                made.map_err(|error| match error.value(py).to_string() {
                    message if is_found && message.ends_with(TIME_IS_NULL) => {
                        let hint = "time=\"\" keeps the order of arrival";
                        raise(ErrorKind::Schema, format!("{message}; {hint}"))
                    }
                    _ => error,
                })
            }
        }
    }

    /// The table of that name, in any case.
    pub(crate) fn table(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<PyTable> {
        let name = text("name", name)?;
        let db = self.handle.open()?;
        let table = py.detach(|| db.table(name)).or_raise()?;
        Ok(PyTable::new(Arc::clone(&self.handle), table))
    }

    /// The names of all tables, in order. Views are none of them: SHOW TABLES has both.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let db = self.handle.open()?;
        py.detach(|| db.table_names()).or_raise()
    }

    /// Removes a table and its rows.
    fn drop_table(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<()> {
        let name = text("name", name)?;
        let db = self.handle.open()?;
        py.detach(|| db.drop_table(name)).or_raise()
    }

    /// Runs a statement. What changes something is done when this returns, and its result is one row, count; a query
    /// takes its snapshot now and runs when its first row is asked for. Several statements without parameters run one after
    /// the other, each by itself, until one fails; the result is that of the last.
    ///
    /// params: a list for ? and $1, a dict for $name.
    /// A name that is no table may be a variable of the caller that holds a DataFrame or an Arrow table. What that holds is read
    /// when the query runs: change nothing in it before.
    ///
    /// >>> import thalweg, pyarrow
    /// >>> db = thalweg.connect(":memory:")
    /// >>> readings = pyarrow.table({"v": [1, 2, 3]})
    /// >>> db.sql("SELECT sum(v) FROM readings WHERE v > ?", params=[1]).fetchone()
    /// (5,)
    #[pyo3(signature = (text, params=None))]
    pub(crate) fn sql(
        &self,
        py: Python<'_>,
        text: &Bound<'_, PyAny>,
        params: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyQueryResult> {
        let text = self::text("text", text)?;
        let db = self.handle.open()?;
        let params = self::params(params)?;
        let Some(statements) = several_statements(text) else {
            return self.run(py, text, &params);
        };
        if params != Params::None {
            let message = "parameters go with one statement: the text has several";
            return Err(raise(ErrorKind::Query, message));
        }
        // Nothing runs where one of them cannot be parsed.
        for statement in &statements {
            let known = py.detach(|| db.unknown_tables(statement.statement));
            known
                .map_err(|error| match statement.in_text(error.message()) {
                    Some(message) => Error::new(error.kind(), message),
                    None => error,
                })
                .or_raise()?;
        }
        let mut last: Option<PyQueryResult> = None;
        for statement in statements {
            if let Some(before) = last {
                // A query that fails has to end the text before the next statement changes anything.
                before.read_through()?;
            }
            last = Some(self.run(py, statement.statement, &params)?);
        }
        last.ok_or_else(|| raise(ErrorKind::Query, "there is no statement in the text"))
    }

    /// The same as sql().
    #[pyo3(signature = (text, params=None))]
    fn execute(
        &self,
        py: Python<'_>,
        text: &Bound<'_, PyAny>,
        params: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyQueryResult> {
        self.sql(py, text, params)
    }

    /// Returns a cursor of Python's database interface, for programs that ask for one: execute(), fetchall(), description. sql() does the
    /// same and more.
    ///
    /// >>> import thalweg
    /// >>> db = thalweg.connect(":memory:")
    /// >>> db.cursor().execute("SELECT 1 + ?", [1]).fetchall()
    /// [(2,)]
    fn cursor<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.borrow().handle.open()?;
        let cursors = slf.py().import("thalweg._cursor")?;
        cursors.getattr("Cursor")?.call1((slf,))
    }

    /// Runs one statement for each of `rows`, which are lists for ? and $1, or dicts for $name. Returns one row, count.
    ///
    /// An INSERT INTO ... VALUES of one row stores all of them in one commit, or none; every other statement is run by
    /// itself.
    ///
    /// >>> import thalweg
    /// >>> db = thalweg.connect(":memory:")
    /// >>> t = db.create_table("t", {"n": int, "v": float})
    /// >>> db.executemany("INSERT INTO t VALUES (?, ?)", [(1, 0.5), (2, 1.5)]).fetchone()
    /// (2,)
    pub(crate) fn executemany(
        &self,
        py: Python<'_>,
        text: &Bound<'_, PyAny>,
        rows: &Bound<'_, PyAny>,
    ) -> PyResult<PyQueryResult> {
        let text = self::text("text", text)?;
        let db = self.handle.open()?;
        many::run(py, db, text, rows).map(|rows| self.result(rows))
    }

    /// Parses a statement to run it often.
    ///
    /// >>> import thalweg
    /// >>> db = thalweg.connect(":memory:")
    /// >>> double = db.prepare("SELECT 2 * $x")
    /// >>> double.execute({"x": 21}).fetchone()
    /// (42,)
    fn prepare(&self, py: Python<'_>, text: &Bound<'_, PyAny>) -> PyResult<PyPrepared> {
        let text = self::text("text", text)?;
        let db = self.handle.open()?;
        let prepared = py.detach(|| db.prepare(text)).or_raise()?;
        Ok(PyPrepared {
            names: prepared.parameter_names().to_vec(),
            prepared: ProcessLocal::new(prepared),
            text: text.to_owned(),
            handle: Arc::clone(&self.handle),
        })
    }

    /// Returns when everything appended so far is durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.handle.open()?;
        py.detach(|| db.flush()).or_raise()
    }

    /// Begins a transaction: all that is done by its methods is stored in one commit, or not at all. Its statements see one snapshot, that
    /// of now, and their own changes. Leaving `with` commits it; an exception, or leaving it without that, rolls it back.
    ///
    /// Where somebody else has changed or deleted a row meanwhile that it changes or deletes, the commit fails with a QueryError: run
    /// it again.
    ///
    /// >>> import thalweg
    /// >>> db = thalweg.connect(":memory:")
    /// >>> t = db.create_table("t", {"n": int, "v": float})
    /// >>> with db.transaction() as tx:
    /// ...     tx.append("t", {"n": [1, 2], "v": [0.5, 1.5]})
    /// ...     tx.sql("UPDATE t SET v = 2.5 WHERE n = 2").fetchone()
    /// ...     (len(tx.table("t")), len(t))
    /// 2
    /// (1,)
    /// (2, 0)
    /// >>> len(t)
    /// 2
    fn transaction(&self, py: Python<'_>) -> PyResult<PyTransaction> {
        PyTransaction::begin(py, self)
    }

    /// Flushes, and releases the files unless another connection of this process shares them. A second call does nothing,
    /// nor does one in a child of a fork.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.handle.close()).or_raise()
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
    fn array(&self, name: &Bound<'_, PyAny>) -> PyResult<()> {
        let name = text("name", name)?;
        Err(unsupported(&format!(
            "the array \"{name}\": the layout \"array\""
        )))
    }

    /// The path it was opened by.
    #[getter]
    fn path(&self) -> OsString {
        self.path.as_os_str().to_owned()
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// Called for names that there are none of.
    fn __getattr__(&self, name: &str) -> PyResult<Py<PyAny>> {
        Err(no_attribute("Database", name))
    }

    fn __repr__(&self) -> String {
        let mode = if self.read_only { ", read-only" } else { "" };
        format!("<thalweg.Database {}{mode}>", self.path.display())
    }
}

/// With options that no signature lists: those of layouts. The items of a list are written in a row, with commas between them.
fn with_options(
    mut create: CreateOptions,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<CreateOptions> {
    for (name, value) in options.into_iter().flatten() {
        let name: String = name.extract()?;
        if value.is_none() {
            // Not given, which is no mistake if there is such an option.
            let named = create.clone().with(&name, "");
            named.layout_of(&Layouts::default()).or_raise()?;
            continue;
        }
        let value = match value.extract::<Vec<String>>() {
            Ok(columns) if name == "unique" => {
                create.unique = columns;
                continue;
            }
            Ok(items) => items.join(", "),
            Err(_) if value.is_instance_of::<PyDelta>() => split(Some(&value))?.unwrap_or_default(),
            Err(_) => value.str()?.to_string(),
        };
        create = create.with(&name, value);
    }
    Ok(create)
}

fn summary_option(given: &Bound<'_, PyAny>) -> PyResult<SummaryOption> {
    if let Ok(columns) = given.extract::<Vec<String>>() {
        return Ok(SummaryOption::Columns(columns));
    }
    let Ok(text) = given.extract::<String>() else {
        let message = format!(
            "summaries is {}; it must be \"auto\", \"all\", \"none\" or a list of columns",
            shown(given)
        );
        return Err(raise(ErrorKind::Invalid, message));
    };
    Ok(CreateOptions::from_pairs([("summaries", text)])
        .or_raise()?
        .summaries)
}

/// Variables of the calling Python function that hold tables of these names.
fn variables(
    py: Python<'_>,
    names: &[String],
    missing: &Error,
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
        let found = match found {
            Some(found) => Some(found),
            None => in_other_letters(&scopes, name)?,
        };
        let Some(found) = found else { continue };
        let Some(rows) = input::read(&found, &Schema::empty(), None)? else {
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

/// The only variable whose name differs from this one by the case of its letters: tables are found in any case.
fn in_other_letters<'py>(
    scopes: &[Bound<'py, PyAny>],
    name: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let folded = fold_name(name);
    for scope in scopes {
        let mut same = Vec::new();
        for key in scope.call_method0("keys")?.try_iter()? {
            let key = key?;
            let is_same = |key: &str| fold_name(key) == folded;
            if key.extract::<&str>().is_ok_and(is_same) {
                same.push(key);
            }
        }
        match &*same {
            [] => {}
            [key] => return scope.get_item(key).map(Some),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// A statement that was parsed; made by Database.prepare().
#[pyclass(module = "thalweg", name = "Prepared", frozen)]
pub(crate) struct PyPrepared {
    prepared: ProcessLocal<Prepared>,
    names: Vec<String>,
    text: String,
    handle: Arc<Handle>,
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
            .map(|rows| PyQueryResult::new(Arc::clone(&self.handle), rows))
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
