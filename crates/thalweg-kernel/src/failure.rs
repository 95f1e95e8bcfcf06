//! How a job of the leader fails, and which errors its callers get.
//!
//! Invariant: what is [`Failure::Refused`] has left the log and the state in memory as they were.

use crate::error::{Error, ErrorKind, Result};

/// Why a job was not done.
pub(crate) enum Failure {
    /// This job cannot be done; the log is as it was.
    Refused(Error),
    /// The state in memory cannot be trusted any more; the log can.
    Stale(Error),
    /// A write or a sync failed for want of space: what it was for is to be read back and written anew.
    Full(Error),
    /// The log cannot be trusted any more.
    Fatal(Error),
}

impl Failure {
    /// Whether the job is refused because the disk is full.
    pub(crate) fn finds_no_room(&self) -> bool {
        matches!(self, Self::Refused(error) if error.kind() == ErrorKind::DiskFull)
    }

    /// The error alone, where the kind of failure makes no difference.
    pub(crate) fn error(self) -> Error {
        match self {
            Self::Refused(error) | Self::Stale(error) | Self::Full(error) | Self::Fatal(error) => {
                error
            }
        }
    }
}

pub(crate) type Outcome<T> = Result<T, Failure>;

/// The failure of a write or a sync.
pub(crate) fn fatal(error: Error) -> Failure {
    if error.kind() == ErrorKind::DiskFull {
        Failure::Full(error)
    } else {
        Failure::Fatal(error)
    }
}

/// A batch that was not done to its end.
pub(crate) struct Broken {
    pub(crate) failure: Failure,
    /// How many of its jobs, the first ones, were done: their answers hold.
    pub(crate) settled: usize,
}

impl From<Failure> for Broken {
    /// Before anything was settled.
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            settled: 0,
        }
    }
}

/// The error of a batch whose frames may or may not have reached the disk. Never `DiskFull`, which means that nothing
/// was stored.
pub(crate) fn outcome_unknown(error: &Error, until: &str) -> Error {
    let message = format!("{error}; whether this commit was stored is not known before {until}");
    Error::with_source(ErrorKind::Unavailable, message, error.clone())
}

pub(crate) fn refusal(poison: &Error) -> Error {
    let cause = poison.cause();
    let message = format!("the database takes no more writes until it is opened anew: {cause}");
    Error::with_source(ErrorKind::Unavailable, message, poison.clone())
}
