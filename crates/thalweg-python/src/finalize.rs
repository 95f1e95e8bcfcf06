//! Python code that the engine calls, and the end of the interpreter.
//!
//! Invariant: no thread runs Python code, or gives back memory of Python objects, below frames of Rust while the interpreter
//! finalises. Up to Python 3.13 it ends such a
//! thread by unwinding its stack, which aborts the process when it meets Rust or C++. (A thread that only comes back to the
//! interpreter is stopped by PyO3.) So the hook that runs first refuses such calls, and waits for those under way; the
//! statement or append that needed them fails, and nothing of it is stored.

use crate::error::raise;
use crate::process::{CLOCK, Home};
use pyo3::prelude::*;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::thread::{self, ThreadId};
use std::time::Duration;
use thalweg::ErrorKind;

/// How long the end of the interpreter waits for Python code that threads run for the engine.
const MOST_WAIT: Duration = Duration::from_secs(5);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(1);

static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// The thread that ends the interpreter, once it does. Functions that it still has to call may use databases.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Python code that runs below frames of Rust, for as long as this lives.
pub(crate) struct Callback;

impl Callback {
    /// # Errors
    /// When the interpreter ends.
    pub(crate) fn begin() -> PyResult<Self> {
        // Counted before the look: whoever ends the interpreter sees the count, or is seen.
        RUNNING.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let running = Self;
        match ENDING.get() {
            Some(ending) if *ending != thread::current().id() => {
                drop(running);
                let message = "the interpreter ends: what feeds this call is not read any more";
                Err(raise(ErrorKind::Unavailable, message))
            }
            _ => Ok(running),
        }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Called by `atexit`.
#[pyfunction]
fn interpreter_ends(py: Python<'_>) {
    if ENDING.set(thread::current().id()).is_err() || !loaded_in().is_here() {
        // In a child of a fork the count is of threads that are not there.
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

/// The process that loaded the module.
fn loaded_in() -> Home {
    static LOADED_IN: OnceLock<Home> = OnceLock::new();
    *LOADED_IN.get_or_init(Home::here)
}

/// Asks to be told of the end of the interpreter.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    loaded_in();
    let hook = wrap_pyfunction!(interpreter_ends, module)?;
    let atexit = module.py().import("atexit")?;
    atexit.call_method1("register", (hook,)).map(drop)
}
