//! Failures of commands, and their exit statuses.

use arrow_schema::ArrowError;
use std::io;
use std::process::ExitCode;
use thalweg::{Error, ErrorKind};

/// The reason why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database reported an error.
    Engine(Error),
    /// Something outside the database.
    Other(String),
    /// The command line was wrong.
    Usage(String),
    /// The message was printed already.
    Told,
    /// A later object of a JSON file has a field that the first ones do not have.
    LateColumn(String),
    /// Ctrl-C.
    Interrupted,
    /// The reader of the output has closed it, as `head` does.
    OutputClosed,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    pub(crate) fn unsupported(what: &str) -> Self {
        Self::Engine(Error::new(
            ErrorKind::Unsupported,
            format!("{what} is not offered by this version"),
        ))
    }

    /// Prints it, once, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if let Some(message) = self.message() {
            // One line, even if the message has several: logs and scripts count lines.
            report!("thalweg: {}", message.trim_end().replace('\n', " "));
        }
        ExitCode::from(self.status())
    }

    /// The exit status.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Engine(_) | Self::Other(_) | Self::Told | Self::LateColumn(_) => 1,
            Self::Usage(_) => 2,
            Self::Interrupted => 130,
        }
    }

    /// The message to print, if there is one.
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Self::Engine(error) => Some(error.message()),
            Self::Other(message) | Self::Usage(message) => Some(message),
            Self::Interrupted => Some("interrupted"),
            Self::Told | Self::LateColumn(_) | Self::OutputClosed => None,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// Converts an error of writing the output. Errors of files are made where the file is known, and name it.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Other(format!("writing the output: {error}")),
        }
    }
}

impl From<ArrowError> for Failure {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, error) => error.into(),
            other => Self::Other(other.to_string()),
        }
    }
}
