//! Values that are of use in the process that made them, and in no child of its fork.
//!
//! Invariants
//! - Every call on an object that a child of a fork has inherited fails with a `thalweg.Error` that names the fork, and takes no
//!   lock before: it may be held by a thread that the child does not have. Only names, columns and the like can still be asked for,
//!   and closing does nothing.
//! - A child drops nothing that it has inherited. Dropping would flush rows, wait for threads and release files, all of which
//!   are its parent's. The child's copy of the memory goes with the child.
//! - What the process makes once, at its first use, is made before the first connection, with the interpreter held: a child
//!   whose parent was in the middle of that when it forked would wait for the end of it for ever. `os.fork` needs the
//!   interpreter too, so it comes before or after.

use crate::error::{OrRaise, raise};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, ThreadId};
use thalweg::{Database, Error, ErrorKind, Result};
use thalweg_env::{Beside, Clock, Env};

/// Knows this process without asking the system each time.
pub(crate) static CLOCK: LazyLock<Arc<dyn Clock>> = LazyLock::new(|| Arc::clone(Env::os().clock()));

/// Touches what statements make once per process: the functions of SQL above all, and what parsing and planning need. Takes
/// some milliseconds.
const FIRST_STATEMENT: &str = "SELECT 1";

/// Makes what is made once per process, unless it was, and opens a database on another thread meanwhile: each takes some
/// milliseconds, and an opening waits for the disk most of the time. The interpreter is held while anything is made, and
/// released for the rest of `open`. Returns what `open` does, and an error when the engine cannot work in this process.
pub(crate) fn initialise_and_open<T: Send + 'static>(
    py: Python<'_>,
    open: impl FnOnce() -> Result<T> + Send + 'static,
) -> (Result<T>, PyResult<()>) {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.load(Ordering::Acquire) {
        return (py.detach(open), Ok(()));
    }
    let opening = Beside::start(&Env::os(), "thalweg-opening", true, open);
    let made = run_first_statement();
    IS_DONE.store(made.is_ok(), Ordering::Release);
    let opened = py.detach(|| opening.finish()).unwrap_or_else(|panic| {
        let why = panic.message;
        let message = format!("a thread that opens a database panicked: {why}");
        Err(Error::new(ErrorKind::Unavailable, message))
    });
    (opened, made.or_raise())
}

fn run_first_statement() -> Result<()> {
    let db = Database::builder().threads(1).open(":memory:")?;
    db.sql(FIRST_STATEMENT)?.collect()?;
    db.close()
}

/// The process that made something.
#[derive(Clone, Copy)]
pub(crate) struct Home(u64);

impl Home {
    /// This process. Called when the module is loaded, so that no fork can meet the clock half made.
    pub(crate) fn here() -> Self {
        Self(CLOCK.process())
    }

    #[inline]
    pub(crate) fn is_here(self) -> bool {
        CLOCK.process() == self.0
    }

    /// # Errors
    /// In a child of a fork.
    #[inline]
    pub(crate) fn check(self) -> PyResult<()> {
        if self.is_here() { Ok(()) } else { Err(moved()) }
    }

    /// Called after Python code that may have forked. In the child, a thread that has called the engine gets the error. A
    /// thread of the engine has nobody to return to, since its callers are threads that the child does not have, and the
    /// interpreter does not take it back: it ends the child.
    ///
    /// # Errors
    /// In a child of a fork.
    pub(crate) fn check_return(self, py: Python<'_>, caller: ThreadId) -> PyResult<()> {
        if !self.is_here() && thread::current().id() != caller {
            end_child(py);
        }
        self.check()
    }
}

fn end_child(py: Python<'_>) -> ! {
    let message = "thalweg: a fork within what feeds a statement: the child cannot go on with it and ends. \
                   End it with os._exit(), or fork elsewhere.\n";
    let end = || -> PyResult<()> {
        let os = py.import("os")?;
        os.call_method1("write", (2, message.as_bytes()))?;
        os.call_method1("_exit", (1,)).map(drop)
    };
    let _ = end();
    std::process::abort()
}

#[cold]
fn moved() -> PyErr {
    let message = "this was opened before a fork: open it again in the child process";
    raise(ErrorKind::Unavailable, message)
}

/// A value that only the process that made it uses and drops.
pub(crate) struct ProcessLocal<T> {
    home: Home,
    /// Until it is taken.
    value: Option<T>,
}

impl<T> ProcessLocal<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            home: Home::here(),
            value: Some(value),
        }
    }

    /// # Errors
    /// In a child of a fork.
    #[inline]
    pub(crate) fn get(&self) -> PyResult<&T> {
        self.home.check()?;
        self.value.as_ref().ok_or_else(moved)
    }

    /// # Errors
    /// In a child of a fork.
    pub(crate) fn get_mut(&mut self) -> PyResult<&mut T> {
        self.home.check()?;
        self.value.as_mut().ok_or_else(moved)
    }
}

impl<T> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // Kept for ever: what it would give back belongs to the parent.
            let _ = std::mem::ManuallyDrop::new(self.value.take());
        }
    }
}
