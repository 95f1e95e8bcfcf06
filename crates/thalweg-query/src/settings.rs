//! The settings of one connection, which hold for all of its statements.

use std::time::Duration;
use thalweg_table::{Durability, Error, ErrorKind, Result};

/// Permissions and limits of the statements of a session. The default allows all that the database allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSettings {
    /// Statements that change something are refused.
    pub read_only: bool,
    /// A statement fails once it takes longer, from its call to its last row; time in which nobody pulls its rows counts as well.
    /// It frees what it holds at the next pull, or when it is dropped; a stream that was begun frees it at once. A commit that was
    /// handed in is not taken back.
    pub timeout: Option<Duration>,
    /// Memory that sorts, joins and groups of this session may take together, beside the limit that all sessions share. Beyond it they
    /// spill to temporary files where they can, and fail where they cannot.
    pub memory_limit_bytes: Option<u64>,
    /// A statement fails once it returns more rows: a query, and SHOW, DESCRIBE, SUMMARIZE and EXPLAIN as well.
    pub max_result_rows: Option<u64>,
    /// The durability of its inserts; `None` takes the durability of the database.
    pub durability: Option<Durability>,
}

impl SessionSettings {
    /// Refuses what makes no sense.
    pub(crate) fn check(&self) -> Result<()> {
        if self.timeout == Some(Duration::ZERO) {
            let message = "a timeout of zero leaves no time for any statement; None is no timeout";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(())
    }
}
