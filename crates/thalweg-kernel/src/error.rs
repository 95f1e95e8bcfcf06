//! The one error type of the engine: a kind that decides what the caller can do, and a message for a person.
//!
//! Invariants: errors are cheap to clone, because one failed sync answers every waiter of its group; a kind maps to
//! exactly one exception of the Python API.

use std::fmt;
use std::sync::Arc;
use thalweg_env::{NotOwner, Released, is_unreadable};

/// The kind of an error, by what it means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A table, column, file or database that does not exist.
    NotFound,
    /// A name that is already taken.
    AlreadyExists,
    /// Data or a definition that does not fit the schema.
    Schema,
    /// A value outside the domain of its dimension or time type.
    OutOfDomain,
    /// Bytes on disk that fail their checks.
    Corruption,
    /// Another process holds what is needed.
    Locked,
    /// A statement that cannot be parsed, planned or run.
    Query,
    /// A documented limit was exceeded.
    Limit,
    /// No space is left; writing resumes by itself once there is some.
    DiskFull,
    /// Files of the snapshot are gone: the reader had no pin for them.
    SnapshotExpired,
    /// Not offered by this version.
    Unsupported,
    /// An argument that makes no sense, whatever the state of the database.
    Invalid,
    /// The commit lost a race with another edit: prepare it again from a new snapshot.
    Conflict,
    /// The database is closed, read-only or refuses writes after a failed sync.
    Unavailable,
    /// The operating system reported an error.
    Io,
}

/// An error with its kind, a message that names table, column, value and what to do, and what caused it.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The result of everything in the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind` with a message for a person.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            source: None,
        }))
    }

    /// An error with its cause.
    pub fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            source: Some(source.into()),
        }))
    }

    /// Bytes that fail their checks: `place` names file and offset.
    pub fn corruption(place: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Corruption, format!("{place}: {what}"))
    }

    /// Bytes that are as they were written, by a version of Thalweg that knows more than this one: neither damage nor the
    /// end of anything.
    pub(crate) fn newer(place: impl fmt::Display, what: impl fmt::Display) -> Self {
        let message = format!(
            "{place}: {what}: it was written by a newer version of Thalweg; open the database with that one"
        );
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Turns an error about bytes into one that names their `place`: `Corruption`, unless a newer version has written them.
    pub(crate) fn in_bytes_at(&self, place: impl fmt::Display) -> Self {
        match self.kind() {
            ErrorKind::Unsupported => Self::new(
                ErrorKind::Unsupported,
                format!("{place}: {}", self.message()),
            ),
            _ => Self::corruption(place, self.message()),
        }
    }

    /// An error of the operating system while `doing`; a full disk has a kind of its own.
    pub fn io(doing: impl fmt::Display, source: std::io::Error) -> Self {
        if let Some(error) = source.get_ref().and_then(|e| e.downcast_ref::<NotOwner>()) {
            return Self::not_owner(*error);
        }
        if source.get_ref().is_some_and(|e| e.is::<Released>()) {
            return Self::closed();
        }
        let kind = match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                ErrorKind::DiskFull
            }
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        Self::with_source(kind, format!("{doing}: {source}"), source)
    }

    /// Whether it is of bytes that cannot be had: they fail their checks, are missing, or the device does not return them.
    pub(crate) fn is_of_unreadable_bytes(&self) -> bool {
        self.kind() == ErrorKind::Corruption || self.is_unreadable()
    }

    /// Whether it means that a commit does not fit the state before it, and nothing else: no call has failed, no byte
    /// is damaged.
    pub(crate) fn is_misfit(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::NotFound
                | ErrorKind::Conflict
                | ErrorKind::AlreadyExists
                | ErrorKind::Invalid
                | ErrorKind::Limit
        )
    }

    /// Whether the device does not return the bytes.
    pub(crate) fn is_unreadable(&self) -> bool {
        let first = std::error::Error::source(self);
        let mut sources = std::iter::successors(first, |error| error.source());
        sources.any(|error| error.downcast_ref().is_some_and(is_unreadable))
    }

    /// The error of every call on a closed database.
    #[must_use]
    pub fn closed() -> Self {
        let message = "the database is closed: open it again";
        Self::new(ErrorKind::Unavailable, message)
    }

    /// The database belongs to another process, of which this one is a child.
    pub fn not_owner(error: NotOwner) -> Self {
        Self::with_source(ErrorKind::Unavailable, error.to_string(), error)
    }

    /// The kind, which decides what the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The error of the engine that caused this one, if one did; else this one.
    pub(crate) fn cause(&self) -> &Self {
        let source = std::error::Error::source(self);
        source
            .and_then(|source| source.downcast_ref())
            .unwrap_or(self)
    }

    /// The message without its cause.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|e| e as &(dyn std::error::Error + 'static))
    }
}
