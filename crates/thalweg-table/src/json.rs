//! Stored forms in JSON (docs/format/definition.md).
//!
//! Invariant: what the page does not list is of a newer version, and unsupported; it is never read by half.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use thalweg_kernel::{Error, ErrorKind, Result};

/// Reads what [`write()`] wrote of a type that denies unknown fields.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| classified(&error))
}

/// The fields of `value` in their order, on one line.
pub(crate) fn write<T: Serialize>(value: &T) -> String {
    #[expect(
        clippy::expect_used,
        reason = "strings, integers and lists always have a JSON form"
    )]
    serde_json::to_string(value).expect("a stored form is JSON")
}

/// The error for what does not fit the page.
pub(crate) fn damaged(reason: impl Display) -> Error {
    Error::corruption("table definition", reason)
}

/// The error for what only a newer version writes.
pub(crate) fn newer(what: impl Display) -> Error {
    let message = format!(
        "the table definition has {what}, which this version of Thalweg does not offer: open the database with a newer one"
    );
    Error::new(ErrorKind::Unsupported, message)
}

/// `Unsupported` for a field, kind or word that is not listed, else `Corruption`.
fn classified(error: &serde_json::Error) -> Error {
    let text = error.to_string();
    let is_unknown = ["unknown field", "unknown variant"]
        .iter()
        .any(|start| text.starts_with(start));
    if is_unknown {
        newer(format_args!("an {text}"))
    } else {
        damaged(text)
    }
}
