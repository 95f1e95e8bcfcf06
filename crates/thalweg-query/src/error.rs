//! Conversion between the two error types: an error of a table keeps its kind on its way through DataFusion.

use crate::memory::OF_SESSION;
use crate::wording::{self, columns::wrong_names, reworded, syntax};
use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use std::error::Error as StdError;
use thalweg_table::{Error, ErrorKind};

/// A statement that cannot be parsed, planned or run.
pub(crate) fn query(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Query, message)
}

/// The error of a statement that was cancelled.
pub(crate) fn cancelled() -> Error {
    query("the statement was cancelled")
}

/// The error for what this version does not offer.
pub(crate) fn unsupported(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}

/// An error of the engine on its way through DataFusion.
pub(crate) fn to_datafusion(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// An error of the engine on a table, with the table's name where bytes are damaged.
pub(crate) fn of_table(error: Error, name: &str) -> Error {
    let table = format!("table \"{name}\"");
    if error.kind() == ErrorKind::Corruption && !error.message().contains(&table) {
        return Error::new(error.kind(), format!("{table}: {error}"));
    }
    error
}

/// Turns an error of DataFusion into one of the engine.
pub(crate) fn from_datafusion(error: DataFusionError) -> Error {
    if let Some(inner) = engine_error(&error) {
        return inner.clone();
    }
    let kind = kind_of(&error);
    let message = message_of(&error);
    Error::with_source(kind, message, error)
}

/// Turns an error of Arrow into one of the engine.
pub(crate) fn from_arrow(error: ArrowError) -> Error {
    from_datafusion(error.into())
}

/// The engine's own error, however deeply it is wrapped.
fn engine_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<Error>() {
            return Some(found);
        }
        next = match error.downcast_ref::<DataFusionError>() {
            Some(DataFusionError::External(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner)) => {
                Some(inner.as_ref())
            }
            Some(DataFusionError::Shared(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::Collection(all)) => {
                all.first().map(|e| e as &(dyn StdError + 'static))
            }
            Some(DataFusionError::ArrowError(inner, _)) => Some(inner.as_ref()),
            _ => match error.downcast_ref::<ArrowError>() {
                Some(ArrowError::ExternalError(inner)) => Some(inner.as_ref()),
                _ => error.source(),
            },
        };
    }
    None
}

fn kind_of(error: &DataFusionError) -> ErrorKind {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => ErrorKind::Limit,
        DataFusionError::NotImplemented(_) => ErrorKind::Unsupported,
        DataFusionError::IoError(_) => ErrorKind::Io,
        _ => ErrorKind::Query,
    }
}

/// Prefixes that the layers of the libraries put in front of a text on its way.
const LAYERS: [&str; 14] = [
    "External error: ",
    "Arrow error: ",
    "DataFusion error: ",
    "Execution error: ",
    "Internal error: ",
    "Error during planning: ",
    "This feature is not implemented: ",
    "Resources exhausted: ",
    "Schema error: ",
    "Cast error: ",
    "Parser error: ",
    "Compute error: ",
    "Arithmetic overflow: ",
    "Invalid argument error: ",
];

/// The library's text without the names of its own layers.
fn message_of(error: &DataFusionError) -> String {
    match error {
        DataFusionError::Context(_, inner) => message_of(inner),
        DataFusionError::Diagnostic(diagnostic, inner) => match inner.find_root() {
            DataFusionError::SchemaError(error, _) => wrong_names(error, Some(diagnostic)),
            _ => message_of(inner),
        },
        DataFusionError::SchemaError(error, _) => wrong_names(error, None),
        DataFusionError::Shared(inner) => message_of(inner),
        DataFusionError::Collection(all) if !all.is_empty() => message_of(&all[0]),
        DataFusionError::External(inner) => match inner.downcast_ref::<DataFusionError>() {
            Some(inner) => message_of(inner),
            None => plain(&inner.to_string()),
        },
        DataFusionError::Internal(text) => match wording::known(without_layers(text)) {
            Some(words) => words,
            None => format!(
                "the statement cannot be run: {} (this is a fault of Thalweg, not of the statement)",
                plain(text)
            ),
        },
        DataFusionError::SQL(inner, _) => syntax::reworded(&inner.to_string()),
        DataFusionError::ResourcesExhausted(text) if text.contains(OF_SESSION) => {
            format!(
                "the statement needs more memory than {OF_SESSION} allows: raise it, or select fewer columns or rows"
            )
        }
        DataFusionError::ResourcesExhausted(text) if !text.contains("disk") => {
            format!(
                "the statement needs more memory than memory_limit{}: raise it, or select fewer columns or rows",
                limit_of(text)
            )
        }
        other => plain(&other.message()),
    }
}

/// The limit that the library names, `fair(pool_size: 20.0 MB)`, in brackets. Its units are powers of 1024.
fn limit_of(text: &str) -> String {
    let limit = text.split_once("pool_size: ").and_then(|(_, rest)| {
        let end = rest.find([')', ',']).unwrap_or(rest.len());
        let (number, unit) = rest[..end].split_once(' ')?;
        let number = number.strip_suffix(".0").unwrap_or(number);
        let unit = unit.strip_suffix('B').unwrap_or(unit);
        let binary = if unit.is_empty() { "" } else { "i" };
        Some(format!(" ({number} {unit}{binary}B)"))
    });
    limit.unwrap_or_default()
}

fn plain(text: &str) -> String {
    reworded(without_layers(text))
}

fn without_layers(text: &str) -> &str {
    let end = text
        .find(DataFusionError::BACK_TRACE_SEP)
        .unwrap_or(text.len());
    let mut text = text[..end].trim();
    while let Some(rest) = LAYERS.iter().find_map(|layer| text.strip_prefix(layer)) {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_survives_every_wrapping() {
        let original = Error::new(ErrorKind::Corruption, "block 7");
        let wrapped =
            DataFusionError::Context("scan".into(), Box::new(to_datafusion(original.clone())));
        assert_eq!(from_datafusion(wrapped).kind(), ErrorKind::Corruption);
        let through_arrow = ArrowError::ExternalError(Box::new(to_datafusion(original)));
        let error = from_datafusion(DataFusionError::ArrowError(Box::new(through_arrow), None));
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Corruption, "block 7")
        );
    }

    #[test]
    fn layers_of_libraries_do_not_show() {
        let message = |error| from_datafusion(error).message().to_owned();
        let inner = DataFusionError::Execution("too short".into());
        let through_arrow = ArrowError::ExternalError(Box::new(inner));
        let error = DataFusionError::ArrowError(Box::new(through_arrow), None);
        assert_eq!(message(error), "too short");
        let cast = ArrowError::CastError("\"x\" is no number".into());
        assert_eq!(message(cast.into()), "\"x\" is no number");
        let fault = DataFusionError::Internal("no such column".into());
        let fault = message(DataFusionError::External(Box::new(fault)));
        assert!(
            fault.contains("no such column") && !fault.contains("DataFusion"),
            "{fault}"
        );
    }

    #[test]
    fn datafusion_errors_get_the_kind_a_caller_can_act_on() {
        let plan = from_datafusion(DataFusionError::Plan("no such column".into()));
        assert_eq!(
            (plan.kind(), plan.message()),
            (ErrorKind::Query, "no such column")
        );
        let text =
            "no room - 0.0 B remain available for the total memory pool: fair(pool_size: 20.0 MB)";
        let memory = from_datafusion(DataFusionError::ResourcesExhausted(text.into()));
        assert!(memory.message().contains("memory_limit (20 MiB): raise"));
        assert_eq!(memory.kind(), ErrorKind::Limit);
        let missing = from_datafusion(DataFusionError::NotImplemented("x".into()));
        assert_eq!(missing.kind(), ErrorKind::Unsupported);
    }
}
