//! Errors, by what the caller can do.

use std::fmt::Display;
use std::io;

use crate::format::Fault;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused a call. Nothing was appended.
    #[error("{place}: {source}")]
    Io {
        /// The file.
        place: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Bytes are not as they were written.
    #[error("{place} is damaged: {what}")]
    Damaged {
        /// The file.
        place: String,
        /// A description of the damage.
        what: &'static str,
    },
    /// Another version of Thalweg wrote it, or the system lacks something.
    #[error("{place} is not supported: it has {what}")]
    Unsupported {
        /// The file.
        place: String,
        /// The feature that is not known or lacking.
        what: &'static str,
    },
    /// A log that is needed is not there.
    #[error("the log {number:016x} of the inbox is missing")]
    Missing {
        /// Its number.
        number: u64,
    },
    /// Another process had the commit lock for ten seconds.
    #[error(
        "the commit lock of arrays is held, perhaps by process {process}: wait for it or end it"
    )]
    Locked {
        /// Who wrote the registry last.
        process: u32,
    },
    /// The table was dropped, or never made.
    #[error("there is no array {table}")]
    NotFound {
        /// The table.
        table: u32,
    },
    /// Cells were encoded by another definition.
    #[error("the definition of array {table} has changed: encode the cells again")]
    DefinitionChanged {
        /// The table.
        table: u32,
    },
    /// A time at or below the floor.
    #[error("array {table} has no history up to {floor}: use a later time")]
    SnapshotExpired {
        /// The table.
        table: u32,
        /// Its floor.
        floor: i64,
    },
    /// Cells that the commit depends on were changed since they were read.
    #[error("cells were changed since they were read: run the statement again")]
    Conflict,
    /// A time that is ahead of the clock.
    #[error("the time {time} is ahead of the clock")]
    TimeAhead {
        /// The time.
        time: i64,
    },
    /// Too much waits to be adopted.
    #[error("{what} wait in the inbox: open the database for writing")]
    Limit {
        /// The things that are too many.
        what: &'static str,
    },
    /// The space that is free is left to the writer.
    #[error("the disk is full but for what is left to the writer of the database")]
    DiskFull,
    /// A lock could not be let go of: the opening has let go of everything.
    #[error(
        "the database was closed, because a lock of arrays could not be released: open it again"
    )]
    Closed,
    /// No half of the registry verifies, and somebody may be writing.
    #[error("the inbox cannot be read at the moment: try again")]
    Unavailable,
    /// The append or its sync failed: the cells are there or not.
    #[error("the outcome of the commit is not known: {source}")]
    OutcomeUnknown {
        /// The error of the append or sync.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn damaged(place: impl Display, what: &'static str) -> Error {
        Error::Damaged {
            place: place.to_string(),
            what,
        }
    }

    pub(crate) fn of(fault: Fault, place: impl Display) -> Error {
        let place = place.to_string();
        match fault {
            Fault::Damaged(what) => Error::Damaged { place, what },
            Fault::Unsupported(what) => Error::Unsupported { place, what },
        }
    }

    /// For `map_err` of a call on the file or folder `place`.
    pub fn io(place: impl Display) -> impl FnOnce(io::Error) -> Error {
        let place = place.to_string();
        move |source| Error::Io { place, source }
    }
}
