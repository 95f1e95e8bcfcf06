//! A transaction: several calls that are one commit.

use crate::database::PyDatabase;
use crate::error::{OrRaise, raise};
use crate::result::PyQueryResult;
use crate::table::PyTable;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use thalweg::ErrorKind;

/// A transaction; made by Database.transaction().
#[pyclass(module = "thalweg", name = "Transaction", frozen)]
pub(crate) struct PyTransaction {
    /// A connection of its own, which has begun it.
    connection: PyDatabase,
}

impl PyTransaction {
    pub(crate) fn begin(py: Python<'_>, db: &PyDatabase) -> PyResult<Self> {
        let this = Self {
            connection: db.again()?,
        };
        this.step(py, "BEGIN")?;
        Ok(this)
    }

    fn step(&self, py: Python<'_>, statement: &str) -> PyResult<()> {
        let db = self.connection.handle().open()?;
        py.detach(|| db.sql(statement).map(drop)).or_raise()
    }

    fn is_open(&self) -> bool {
        let db = self.connection.handle().open();
        db.is_ok_and(|db| db.is_in_transaction())
    }

    fn check_open(&self) -> PyResult<()> {
        match self.connection.handle().open()?.is_in_transaction() {
            true => Ok(()),
            false => Err(raise(
                ErrorKind::Query,
                "the transaction is over: it was committed or rolled back",
            )),
        }
    }

    fn end(&self, py: Python<'_>, statement: &str) -> PyResult<()> {
        self.check_open()?;
        self.step(py, statement)
    }
}

#[pymethods]
impl PyTransaction {
    /// Runs a statement as Database.sql() does, as part of the transaction. One that fails changes nothing, and the transaction goes on.
    #[pyo3(signature = (text, params=None))]
    fn sql(
        &self,
        py: Python<'_>,
        text: &Bound<'_, PyAny>,
        params: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyQueryResult> {
        self.check_open()?;
        self.connection.sql(py, text, params)
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

    /// Runs one statement for each of `rows`, as Database.executemany() does, as part of the transaction.
    fn executemany(
        &self,
        py: Python<'_>,
        text: &Bound<'_, PyAny>,
        rows: &Bound<'_, PyAny>,
    ) -> PyResult<PyQueryResult> {
        self.check_open()?;
        self.connection.executemany(py, text, rows)
    }

    /// Appends rows to the table of that name, as Table.append() does; returns how many.
    fn append(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        self.table(py, name)?.append(py, data, None, None)
    }

    /// The table of that name, in any case, as the transaction sees it: what is appended to it is part of the transaction.
    fn table(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<PyTable> {
        self.check_open()?;
        self.connection.table(py, name)
    }

    /// Stores all that was done in one commit. The transaction is over then, also where this fails.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, "COMMIT")
    }

    /// Gives up all that was done. The transaction is over then.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, "ROLLBACK")
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        this.check_open()?;
        Ok(this)
    }

    #[pyo3(signature = (kind=None, *_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        _exception: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        match kind {
            // Ended by hand.
            _ if !self.is_open() => Ok(()),
            None => self.commit(py),
            Some(_) => self.rollback(py),
        }
    }

    fn __repr__(&self) -> &'static str {
        match self.is_open() {
            true => "<thalweg.Transaction, open>",
            false => "<thalweg.Transaction, over>",
        }
    }
}
