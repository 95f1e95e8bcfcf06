//! Short ways to the errors that definitions and data give rise to.

use std::fmt::Display;
use thalweg_kernel::{Error, ErrorKind};

/// An argument that makes no sense.
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// Data or a definition that does not fit.
pub(crate) fn schema(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Schema, message)
}

/// A statement or call that cannot be carried out as things are.
pub(crate) fn query(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Query, message)
}

/// A documented limit was exceeded.
pub(crate) fn limit(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Limit, message)
}

/// Stored bytes that do not hold what they should; the caller that knows the file names it.
pub(crate) fn damaged(what: impl Display, reason: impl Display) -> Error {
    Error::corruption(what, reason)
}
