//! Python code that Rust calls, and the end of the interpreter.
//!
//! Invariants
//! - No thread runs Python code, or releases memory of Python objects, below frames of Rust while the interpreter finalises.
//!   Up to Python 3.13 a thread that asks for the interpreter then is ended by unwinding its stack, which aborts the process at
//!   the first frame of Rust, or at a destructor of C++. (A thread that only returns to the interpreter is parked by PyO3.) So a
//!   hook of `atexit` refuses such calls and waits for those in progress. The statement or append that needed one fails, and
//!   nothing of it is stored.
//! - Whoever calls Python below the engine counts as a [`Callback`] before it asks for the interpreter: a thread that was
//!   parked instead would keep the locks of the engine that it holds.
//! - A callback is as short as the Python code that it runs. Waiting for the engine is no part of it: the end of the
//!   interpreter would have to wait for a query of any length.
//!
//! Not covered: code of a caller that neither returns nor yields within [`MAX_WAIT`] and then wakes up in the milliseconds in
//! which an interpreter before 3.14 finalises; and what a caller's thread does with pyarrow by itself in them. See
//! docs/decisions/processes.md.

use crate::error::raise;
use crate::process::{CLOCK, Home};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::thread::{self, ThreadId};
use std::time::Duration;
use thalweg::ErrorKind;

/// How long the end of the interpreter waits for Python code that other threads run below frames of Rust.
const MAX_WAIT: Duration = Duration::from_secs(5);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(1);

static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// The thread that ends the interpreter, once it does. Functions that it still has to call may use databases.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// The error of a thread that may call Python no more. It is made and shown without the interpreter.
#[derive(Debug)]
pub(crate) struct Ending;

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the interpreter is shutting down: this thread can call no more Python code")
    }
}

impl From<Ending> for PyErr {
    fn from(ending: Ending) -> Self {
        raise(ErrorKind::Unavailable, ending.to_string())
    }
}

impl From<Ending> for thalweg::Error {
    fn from(ending: Ending) -> Self {
        Self::new(ErrorKind::Unavailable, ending.to_string())
    }
}

/// Python code that runs below frames of Rust, for as long as this lives.
pub(crate) struct Callback(Home);

impl Callback {
    /// # Errors
    /// When the interpreter ends.
    #[inline]
    pub(crate) fn begin() -> Result<Self, Ending> {
        // Counted before the look: whoever ends the interpreter sees the count, or is seen.
        RUNNING.fetch_add(1, Ordering::SeqCst);
        let running = Self(Home::here());
        match ENDING.get() {
            Some(ending) if *ending != thread::current().id() => Err(Ending),
            _ => Ok(running),
        }
    }
}

/// Imports a module, which may run its code.
///
/// # Errors
/// When there is none, or when the interpreter ends.
pub(crate) fn import<'py>(
    py: Python<'py>,
    module: impl IntoPyObject<'py, Target = PyString>,
) -> PyResult<Bound<'py, PyModule>> {
    let _running = Callback::begin()?;
    py.import(module)
}

impl Drop for Callback {
    fn drop(&mut self) {
        // A child of a fork counts anew.
        if self.0.is_here() {
            RUNNING.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Called by `atexit`.
#[pyfunction]
fn interpreter_ends(py: Python<'_>) {
    if ENDING.set(thread::current().id()).is_err() {
        return;
    }
    fence(Ordering::SeqCst);
    py.detach(|| {
        let start_ns = CLOCK.monotonic_ns();
        let waited = || Duration::from_nanos(CLOCK.monotonic_ns().saturating_sub(start_ns));
        while RUNNING.load(Ordering::SeqCst) > 0 && waited() < MAX_WAIT {
            CLOCK.sleep(LOOK_AGAIN_AFTER);
        }
    });
}

/// Called in the child of a fork: what was counted are threads that it does not have.
#[pyfunction]
fn forked() {
    RUNNING.store(0, Ordering::SeqCst);
}

/// Has the interpreter call the functions above.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let at_end = wrap_pyfunction!(interpreter_ends, module)?;
    py.import("atexit")?.call_method1("register", (at_end,))?;
    let after_fork = PyDict::new(py);
    after_fork.set_item("after_in_child", wrap_pyfunction!(forked, module)?)?;
    py.import("os")?
        .call_method("register_at_fork", (), Some(&after_fork))
        .map(drop)
}
