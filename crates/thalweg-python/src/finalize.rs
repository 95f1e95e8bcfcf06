//! Python code that Rust calls, and the end of the interpreter.
//!
//! Invariant: no thread runs Python code, or gives back memory of Python objects, below frames of Rust while the interpreter
//! finalises. Up to Python 3.13 it ends such a thread by unwinding its stack, which aborts the process at the first frame of
//! Rust or C++. (A thread that only returns to the interpreter is stopped by PyO3.) So a hook of `atexit` refuses such calls
//! and waits for those under way. The statement or append that needed one fails, and nothing of it is stored.

use crate::error::raise;
use crate::process::{CLOCK, Home};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::thread::{self, ThreadId};
use std::time::Duration;
use thalweg::ErrorKind;

/// How long the end of the interpreter waits for Python code that other threads run below frames of Rust.
const MOST_WAIT: Duration = Duration::from_secs(5);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(1);

static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// The thread that ends the interpreter, once it does. Functions that it still has to call may use databases.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Python code that runs below frames of Rust, for as long as this lives.
pub(crate) struct Callback(Home);

impl Callback {
    /// # Errors
    /// When the interpreter ends.
    pub(crate) fn begin() -> PyResult<Self> {
        // Counted before the look: whoever ends the interpreter sees the count, or is seen.
        RUNNING.fetch_add(1, Ordering::SeqCst);
        let running = Self(Home::here());
        match ENDING.get() {
            Some(ending) if *ending != thread::current().id() => {
                let message =
                    "the interpreter is shutting down: this thread can call no more Python code";
                Err(raise(ErrorKind::Unavailable, message))
            }
            _ => Ok(running),
        }
    }
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
        while RUNNING.load(Ordering::SeqCst) > 0 && waited() < MOST_WAIT {
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
