//! Long calls: they release the interpreter, and check for Ctrl-C while they wait.

use crate::error::exception;
use crate::finalize::Callback;
use arrow_array::RecordBatch;
use pyo3::prelude::*;
use std::time::Duration;
use thalweg::{Error, Fetched, QueryResult};
use thalweg_env::sync::Mutex;

/// How long a call waits before it checks for signals.
const WAIT: Duration = Duration::from_millis(50);

/// Why rows did not come.
pub(crate) enum Stopped {
    /// A signal handler raised this, as that of Ctrl-C does.
    Signal(PyErr),
    /// The statement failed.
    Failed(Error),
}

impl From<Stopped> for PyErr {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Signal(raised) => raised,
            Stopped::Failed(error) => exception(&error),
        }
    }
}

/// Runs handlers of signals that have come. For work below the engine, which does not hold the interpreter.
///
/// # Errors
/// The exception that a handler raised; an error when the interpreter ends.
pub(crate) fn check() -> PyResult<()> {
    let _running = Callback::begin()?;
    Python::attach(|py| py.check_signals())
}

/// The next batch, or `None` at the end. Called with the interpreter held, it waits without it: what it waits for may need the
/// interpreter, to read a Python iterator for example.
pub(crate) fn next_batch(rows: &mut QueryResult) -> Result<Option<RecordBatch>, Stopped> {
    Python::attach(|py| {
        loop {
            let fetched = py.detach(|| rows.poll_batch(WAIT));
            let next = match fetched.map_err(Stopped::Failed)? {
                Fetched::Batch(batch) => Some(Some(batch)),
                Fetched::End => Some(None),
                Fetched::Pending => None,
            };
            // Also where batches come so fast that none is waited for.
            if let Err(raised) = py.check_signals() {
                rows.cancel_handle().cancel();
                return Err(Stopped::Signal(raised));
            }
            if let Some(next) = next {
                return Ok(next);
            }
        }
    })
}

/// Runs `work`, which asks its argument every now and then whether to go on. What a handler of a signal raised, or `check_also`, is the
/// error then.
pub(crate) fn interruptible<T>(
    check_also: impl Fn() -> PyResult<()> + Sync,
    work: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> T,
) -> PyResult<T> {
    let raised = Mutex::new(None);
    // In this order: a handler may fork, which `check_also` has to notice.
    let goes_on = || match check().and_then(|()| check_also()) {
        Ok(()) => true,
        Err(ended) => {
            *raised.lock() = Some(ended);
            false
        }
    };
    let done = work(&goes_on);
    match raised.into_inner() {
        Some(ended) => Err(ended),
        None => Ok(done),
    }
}

/// Runs a statement without the interpreter. It asks its argument every now and then whether to go on; what a handler of a
/// signal raised is the error then.
pub(crate) fn run(
    py: Python<'_>,
    statement: impl FnOnce(&dyn Fn() -> bool) -> Result<QueryResult, Error> + Send,
) -> PyResult<Result<QueryResult, Error>> {
    interruptible(|| Ok(()), |goes_on| py.detach(|| statement(goes_on)))
}
