//! Long calls: they let go of the interpreter, and look for Ctrl-C while they wait.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use pyo3::prelude::*;
use std::time::Duration;
use thalweg::{Error, Fetched, QueryResult, Scan};

/// How long a call waits before it looks for signals.
const WAIT: Duration = Duration::from_millis(50);

/// Where the rows of a result come from.
pub(crate) enum Source {
    /// A statement.
    Query(QueryResult),
    /// A range of a table, without SQL.
    Scan(Box<Scan>),
}

/// Why rows did not come.
pub(crate) enum Stopped {
    /// A signal handler raised this, as Ctrl-C does.
    Signal(PyErr),
    /// The statement failed.
    Failed(Error),
}

impl Source {
    pub(crate) fn schema(&self) -> &SchemaRef {
        match self {
            Self::Query(rows) => rows.schema(),
            Self::Scan(scan) => scan.schema(),
        }
    }

    /// The next batch, or `None` at the end. Called with the interpreter held or not, it waits without it: what it
    /// waits for may need the interpreter, to read a Python iterator for example.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, Stopped> {
        Python::attach(|py| {
            loop {
                match py.detach(|| self.poll()).map_err(Stopped::Failed)? {
                    Fetched::Batch(batch) => return Ok(Some(batch)),
                    Fetched::End => return Ok(None),
                    Fetched::Pending => {}
                }
                if let Err(raised) = py.check_signals() {
                    self.cancel();
                    return Err(Stopped::Signal(raised));
                }
            }
        })
    }

    fn poll(&mut self) -> Result<Fetched, Error> {
        match self {
            Self::Query(rows) => rows.poll_batch(WAIT),
            // A batch of a scan is a matter of milliseconds.
            Self::Scan(scan) => Ok(scan
                .next()
                .transpose()?
                .map_or(Fetched::End, Fetched::Batch)),
        }
    }

    fn cancel(&mut self) {
        if let Self::Query(rows) = self {
            rows.cancel_handle().cancel();
        }
    }
}
