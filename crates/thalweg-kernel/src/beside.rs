//! Work that a second thread does while a database is opened.

use crate::error::{Error, ErrorKind, Result};
use crate::rules::Chosen;
use thalweg_env::{Beside, Env};

/// Begins it on a thread with the choices of the calling one, if `may_start` one.
pub(crate) fn begin<T: Send + 'static>(
    env: &Env,
    may_start: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Beside<T> {
    let chosen = Chosen::here();
    Beside::start(env, "thalweg-opening", may_start, move || {
        chosen.choose();
        work()
    })
}

/// Waits for its end, and returns its result.
///
/// # Errors
/// When its thread has panicked.
pub(crate) fn finish<T: Send + 'static>(work: Beside<T>) -> Result<T> {
    work.finish().map_err(|panic| {
        let message = format!("a thread that helps opening panicked: {}", panic.message);
        Error::new(ErrorKind::Unavailable, message)
    })
}
