//! Opens databases, with messages about what to do on the command line.
//!
//! Invariant: a word that may be a mistyped command creates no database.

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::files;
use clap::CommandFactory;
use std::path::{Component, Path};
use thalweg::{Database, DatabaseBuilder, Error, ErrorKind, nearest_name};

const IN_MEMORY: &str = ":memory:";

/// Opens a database for writing; creates it if it does not exist.
pub(crate) fn for_writing(path: &Path) -> Result<Database, Failure> {
    let opened = Database::builder().open(path);
    opened.map_err(|error| explain_lock(with_way_to_repair(error, path), path))
}

/// Opens an existing database for writing.
pub(crate) fn there_for_writing(path: &Path) -> Result<Database, Failure> {
    open(Database::builder().must_exist(true), path)
}

/// Opens an existing database for reading; another process may be writing.
pub(crate) fn for_reading(path: &Path) -> Result<Database, Failure> {
    open(Database::builder().read_only(true), path)
}

fn open(builder: DatabaseBuilder, path: &Path) -> Result<Database, Failure> {
    let opened = builder.open(path);
    opened.map_err(|error| explain(with_way_to_repair(error, path), path))
}

/// Adds to an error of damage how the database can be repaired; returns other errors as they are.
fn with_way_to_repair(error: Error, path: &Path) -> Error {
    if error.kind() != ErrorKind::Corruption {
        return error;
    }
    let message = format!(
        "{}: copy the folder, then 'thalweg verify --repair {}' keeps what is whole and lists what is lost",
        error.message(),
        path.display()
    );
    Error::with_source(ErrorKind::Corruption, message, error)
}

/// The message of the command line for the error of an opening.
pub(crate) fn explain(error: Error, path: &Path) -> Failure {
    if error.kind() == ErrorKind::Invalid && is_foreign_folder(path) {
        let message = format!(
            "{} is no database, but a folder with other files",
            path.display()
        );
        return Error::new(ErrorKind::Invalid, message).into();
    }
    explain_lock(error, path)
}

/// The error of a database that another process writes to.
pub(crate) fn explain_lock(error: Error, path: &Path) -> Failure {
    if error.kind() != ErrorKind::Locked {
        return error.into();
    }
    let message = format!(
        "another process writes to {}: stop the writer; SELECT works meanwhile",
        path.display()
    );
    Error::new(ErrorKind::Locked, message).into()
}

fn is_foreign_folder(path: &Path) -> bool {
    thalweg_env::Env::os()
        .storage()
        .list_dir(path)
        .is_ok_and(|entries| {
            !entries.is_empty() && entries.iter().all(|entry| entry.name != *"root")
        })
}

/// Refuses a path that is given alone and looks like a mistyped command rather than like a database.
pub(crate) fn check_not_a_command(path: &Path) -> Result<(), Failure> {
    let is_word = path.components().count() == 1
        && matches!(path.components().next(), Some(Component::Normal(_)))
        && path.extension().is_none()
        && !path
            .as_os_str()
            .to_string_lossy()
            .ends_with(std::path::MAIN_SEPARATOR);
    if !is_word || path == Path::new(IN_MEMORY) || files::exists(path) {
        return Ok(());
    }
    let word = path.display().to_string();
    let meant = nearest_command(&word).map_or_else(String::new, |name| {
        format!("did you mean the command \"{name}\"? ")
    });
    Err(Failure::usage(format!(
        "there is no command and no database \"{word}\"; {meant}a new database needs an ending or a path, as {word}.thal or \
         ./{word}; --help lists the commands"
    )))
}

/// Returns the failure if the first of several words is no command. Otherwise ends the program as clap does: with help,
/// or with the mistake in the arguments of a command.
pub(crate) fn explain_arguments(error: &clap::Error) -> Failure {
    let mut words = std::env::args().skip(1);
    let (first, second) = (words.next(), words.next());
    let is_command = |word: &str| {
        word == "help"
            || Arguments::command()
                .get_subcommands()
                .any(|command| command.get_name() == word)
    };
    match (first, second) {
        (Some(word), Some(_)) if !word.starts_with('-') && !is_command(&word) => {
            let meant = if files::exists(Path::new(&word)) {
                format!("thalweg sql {word} \"SELECT ...\" runs statements on a database; ")
            } else {
                nearest_command(&word)
                    .map_or_else(String::new, |name| format!("did you mean \"{name}\"? "))
            };
            Failure::usage(format!(
                "there is no command \"{word}\"; {meant}--help lists the commands"
            ))
        }
        _ => error.exit(),
    }
}

/// The command that a mistyped word probably means.
fn nearest_command(word: &str) -> Option<String> {
    let commands = Arguments::command();
    let names = commands
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(clap::Command::get_name);
    nearest_name(word, names).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_paths() {
        for path in ["a.thal", "./a", "folder/a", "/a", "..", ":memory:", "a/"] {
            assert!(check_not_a_command(Path::new(path)).is_ok(), "{path}");
        }
        let message = |word: &str| match check_not_a_command(Path::new(word)) {
            Err(Failure::Usage(message)) => message,
            other => format!("{other:?}"),
        };
        assert!(message("imoprt").contains("\"import\""));
        assert!(!message("frobnicate").contains("did you mean"));
    }
}
