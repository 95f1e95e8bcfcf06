//! How work on a table ends early.

use thalweg_kernel::{Error, ErrorKind, Result};

pub(super) fn check(go_on: &dyn Fn() -> bool) -> Result<()> {
    if go_on() {
        return Ok(());
    }
    Err(interrupted())
}

pub(super) fn interrupted() -> Error {
    let message = "it was interrupted: what is in order by now stays so";
    Error::new(ErrorKind::Query, message)
}
