//! How a panic of a thread affects its database.
//!
//! Invariant: a panic in work on a database that is open for writing ends writing: nothing shows which invariants held when it
//! struck. Whoever waits for that work, and whoever comes, gets an error that names the panic; snapshots go on reading; and
//! closing works, so that the lock is given back. Locks are not poisoned one by one (`thalweg_env::sync`), the commit queue is.

use crate::error::{Error, ErrorKind};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use thalweg_env::Panicked;

/// Runs `work`. If it panics, `ends` gets the error that everyone is to get from then on, and the panic goes on.
pub(crate) fn watched<T>(doing: &str, ends: impl FnOnce(Error), work: impl FnOnce() -> T) -> T {
    // What was broken when it unwound is not used again: that is what `ends` is for.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done,
        Err(panic) => {
            ends(panicked(doing, &*panic));
            resume_unwind(panic)
        }
    }
}

fn panicked(doing: &str, panic: &(dyn Any + Send)) -> Error {
    let message = Panicked::from_payload(panic).message;
    Error::new(
        ErrorKind::Unavailable,
        format!("{doing} panicked: {message}"),
    )
}
