//! Names of tables that are being filled before others see them.
//!
//! Invariants
//! - No list and no lookup shows a table of such a name, in any process.
//! - The names are a small fixed set, so that those left by a killed process are found without a walk over all tables.

use thalweg_kernel::{Error, ErrorKind, Result};

/// Tables of one database that can be filled at the same time.
const MAX_FILLED: usize = 64;

/// Whether a table of this name is still being filled: users' names have no NUL.
pub(crate) fn is_unlisted(name: &str) -> bool {
    name.starts_with('\0')
}

/// All names of tables that are being filled.
pub(crate) fn names() -> impl Iterator<Item = String> {
    (0..MAX_FILLED).map(|number| format!("\0{number}"))
}

/// Calls `make` with one name after the other until one is free.
pub(crate) fn with_free_name<T>(make: impl Fn(&str) -> Result<T>) -> Result<T> {
    for name in names() {
        match make(&name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made,
        }
    }
    let message = format!(
        "{MAX_FILLED} tables are being created with their rows at the same time: try again when one of them is done"
    );
    Err(Error::new(ErrorKind::Unavailable, message))
}
