//! Rows put one by one, committed in batches.

use crate::error::{OrRaise, outside, raise};
use crate::process::ProcessLocal;
use crate::row::with_row;
use crate::sharing::Handle;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;
use thalweg::{Appender, ErrorKind};
use thalweg_env::sync::Mutex;

/// Collects rows for a table and commits them in batches; made by Table.appender().
///
/// It is for loading many rows fast: a batch is committed at 65,536 rows or 8 MiB, and before that nobody sees its rows and a kill
/// loses them. Rows are durable after flush() or close(), which leaving a `with` block calls. Readings that come one by one
/// are better put with Table.put() or append(), or flushed every second or so.
///
/// >>> import thalweg
/// >>> t = thalweg.connect(":memory:").create_table("t", {"ts": "int64", "v": "double"}, time="ts")
/// >>> with t.appender() as a:
/// ...     for i in range(1000):
/// ...         a.put(i, i / 10)
/// >>> len(t)
/// 1000
#[pyclass(module = "thalweg", name = "Appender", frozen)]
pub(crate) struct PyAppender {
    name: String,
    inner: ProcessLocal<Mutex<Option<Appender>>>,
    /// Its table is no part of a transaction.
    is_outside: bool,
    /// Dropped after the rows: it may be the last one to hold the database open.
    db: Arc<Handle>,
}

impl PyAppender {
    pub(crate) fn new(name: String, is_outside: bool, appender: Appender, db: Arc<Handle>) -> Self {
        Self {
            is_outside,
            db,
            name,
            inner: ProcessLocal::new(Mutex::new(Some(appender))),
        }
    }

    /// Refuses to store at once what is put beside an open transaction of the connection.
    fn check_outside(&self) -> PyResult<()> {
        if self.is_outside && self.db.open().is_ok_and(|db| db.is_in_transaction()) {
            return Err(outside(&self.name));
        }
        Ok(())
    }

    fn closed(&self) -> PyErr {
        raise(
            ErrorKind::Unavailable,
            format!("the appender of table \"{}\" is closed", self.name),
        )
    }
}

#[pymethods]
impl PyAppender {
    /// Adds a row, its values in the order of the columns.
    #[pyo3(signature = (*row))]
    fn put(&self, py: Python<'_>, row: &Bound<'_, PyTuple>) -> PyResult<()> {
        let inner = self.inner.get()?;
        self.check_outside()?;
        with_row(row, &self.name, |values| {
            // A row that waits for nothing is put before another thread could have taken over the interpreter.
            if let Some(mut held) = inner.try_lock()
                && let Some(appender) = held.as_mut()
                && !appender.will_commit()
            {
                return appender.put(values).or_raise();
            }
            // The lock may be held by a thread that is committing: it is never waited for with the interpreter held.
            py.detach(|| {
                let mut held = inner.lock();
                held.as_mut().map(|appender| appender.put(values))
            })
            .ok_or_else(|| self.closed())?
            .or_raise()
        })
    }

    /// Commits the rows so far; they are durable when this returns.
    ///
    /// If it raises, no row was stored and all are kept: call it again once there is space. Only where the error says that
    /// it is not known whether they were stored, every later call raises it again.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.get()?;
        self.check_outside()?;
        py.detach(|| inner.lock().as_mut().map(Appender::flush))
            .ok_or_else(|| self.closed())?
            .or_raise()
    }

    /// Commits the rows so far and ends the appender; if that raises, it stays open, as after flush(). A second call does
    /// nothing, nor does one in a child of a fork: the rows are its parent's.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(inner) = self.inner.get() else {
            return Ok(());
        };
        let flushed = py.detach(|| {
            let mut held = inner.lock();
            let flushed = held.as_mut().map_or(Ok(()), Appender::flush);
            if flushed.is_ok() {
                *held = None;
            }
            flushed
        });
        flushed.or_raise()
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// Commits the rows that were put, also when the block ended with an exception.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let Ok(inner) = self.inner.get() else {
            return format!("<thalweg.Appender of {}, opened before a fork>", self.name);
        };
        match inner.try_lock().as_deref() {
            Some(Some(appender)) => format!(
                "<thalweg.Appender of {}, {} rows not committed>",
                self.name,
                appender.rows()
            ),
            Some(None) => format!("<thalweg.Appender of {}, closed>", self.name),
            None => format!("<thalweg.Appender of {}>", self.name),
        }
    }
}
