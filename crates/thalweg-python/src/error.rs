//! Errors of the engine as Python exceptions.
//!
//! Invariants: every kind of error has exactly one exception, all of them under `thalweg.Error`; what a user hands in and
//! cannot be used is one of them too, never a bare `ValueError`.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use std::error::Error as StdError;
use std::fmt;
use thalweg::ErrorKind;

create_exception!(
    thalweg,
    Error,
    PyException,
    "Base class of all Thalweg exceptions."
);
create_exception!(
    thalweg,
    NotFoundError,
    Error,
    "A table, column or database that does not exist."
);
create_exception!(
    thalweg,
    AlreadyExistsError,
    Error,
    "A name that is already taken."
);
create_exception!(
    thalweg,
    SchemaError,
    Error,
    "Data or a definition that does not fit the columns of a table."
);
create_exception!(
    thalweg,
    OutOfDomainError,
    Error,
    "A value outside the range of its type."
);
create_exception!(
    thalweg,
    CorruptionError,
    Error,
    "Stored bytes that fail their checks."
);
create_exception!(
    thalweg,
    LockedError,
    Error,
    "The database is open for writing in another process, or in this one with other options."
);
create_exception!(
    thalweg,
    QueryError,
    Error,
    "A statement that cannot be parsed, planned or run."
);
create_exception!(
    thalweg,
    LimitError,
    Error,
    "A documented limit was exceeded."
);
create_exception!(
    thalweg,
    DiskFullError,
    Error,
    "No space is left; writing works again once there is some."
);
create_exception!(
    thalweg,
    SnapshotExpiredError,
    Error,
    "The snapshot is older than max_snapshot_age; run the statement again."
);
create_exception!(
    thalweg,
    UnsupportedError,
    Error,
    "Not offered by this version."
);

/// The exception for an error of the engine. What Python raised while the engine read from it is the cause; Ctrl-C and
/// exceptions of Thalweg come out as they are.
pub(crate) fn exception(error: &thalweg::Error) -> PyErr {
    let outer = || raise(error.kind(), error.to_string());
    let Some(raised) = raised_below(error) else {
        return outer();
    };
    Python::attach(|py| {
        if raised.is_instance_of::<Error>(py) || !raised.is_instance_of::<PyException>(py) {
            return raised;
        }
        let outer = outer();
        outer.set_cause(py, Some(raised));
        outer
    })
}

/// The exception that Python raised, however deeply it is wrapped.
fn raised_below(error: &(dyn StdError + 'static)) -> Option<PyErr> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(Raised { raised, .. }) = error.downcast_ref() {
            return Some(Python::attach(|py| raised.clone_ref(py)));
        }
        next = error.source();
    }
    None
}

/// An exception on its way through the engine, whose threads can show it without the interpreter: its text is made by the
/// thread that has met it.
pub(crate) struct Raised {
    text: String,
    raised: PyErr,
}

impl Raised {
    pub(crate) fn new(_py: Python<'_>, raised: PyErr) -> Self {
        let text = raised.to_string();
        Self { text, raised }
    }
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raised({:?})", self.text)
    }
}

impl StdError for Raised {}

/// The error for a feature that this version does not have.
pub(crate) fn unsupported(what: &str) -> PyErr {
    raise(
        ErrorKind::Unsupported,
        format!("{what} is not offered by this version"),
    )
}

/// An exception of a kind.
pub(crate) fn raise(kind: ErrorKind, message: impl Into<String>) -> PyErr {
    let message = message.into();
    match kind {
        ErrorKind::NotFound => NotFoundError::new_err(message),
        ErrorKind::AlreadyExists => AlreadyExistsError::new_err(message),
        ErrorKind::Schema => SchemaError::new_err(message),
        ErrorKind::OutOfDomain => OutOfDomainError::new_err(message),
        ErrorKind::Corruption => CorruptionError::new_err(message),
        ErrorKind::Locked => LockedError::new_err(message),
        ErrorKind::Query => QueryError::new_err(message),
        ErrorKind::Limit => LimitError::new_err(message),
        ErrorKind::DiskFull => DiskFullError::new_err(message),
        ErrorKind::SnapshotExpired => SnapshotExpiredError::new_err(message),
        ErrorKind::Unsupported => UnsupportedError::new_err(message),
        _ => Error::new_err(message),
    }
}

/// Results of the engine as results of Python calls.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for thalweg::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| exception(&error))
    }
}

/// Puts the exceptions into the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let kinds = [
        ("Error", py.get_type::<Error>()),
        ("NotFoundError", py.get_type::<NotFoundError>()),
        ("AlreadyExistsError", py.get_type::<AlreadyExistsError>()),
        ("SchemaError", py.get_type::<SchemaError>()),
        ("OutOfDomainError", py.get_type::<OutOfDomainError>()),
        ("CorruptionError", py.get_type::<CorruptionError>()),
        ("LockedError", py.get_type::<LockedError>()),
        ("QueryError", py.get_type::<QueryError>()),
        ("LimitError", py.get_type::<LimitError>()),
        ("DiskFullError", py.get_type::<DiskFullError>()),
        (
            "SnapshotExpiredError",
            py.get_type::<SnapshotExpiredError>(),
        ),
        ("UnsupportedError", py.get_type::<UnsupportedError>()),
    ];
    kinds
        .into_iter()
        .try_for_each(|(name, kind)| module.add(name, kind))
}

/// The error for what would be stored at once beside an open transaction.
pub(crate) fn outside(table: &str) -> PyErr {
    let message = format!(
        "a transaction was begun on this connection after the table \"{table}\" was opened: what was appended here would be stored at \
         once. Get the table again by db.table(), or end the transaction first"
    );
    raise(ErrorKind::Query, message)
}
