//! Files that are no part of a database: what is imported, what is rejected, how much is on disk.

use crate::failure::Failure;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// How often the removal of a folder is tried.
const REMOVALS: u32 = 100;

/// Opens a file that is read from front to back; it may be a pipe, which the files of the engine cannot be.
#[expect(
    clippy::disallowed_methods,
    reason = "not a file of a database, and perhaps a pipe"
)]
pub(crate) fn open(path: &Path) -> Result<File, Failure> {
    let fail = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Failure::Other(format!("there is no file {}", path.display())),
        _ => Failure::Other(format!(
            "{} cannot be opened: {}",
            path.display(),
            reason(&error)
        )),
    };
    let file = File::open(path).map_err(fail)?;
    if file.metadata().is_ok_and(|found| found.is_dir()) {
        return Err(Failure::Other(format!(
            "{} is a folder, not a file",
            path.display()
        )));
    }
    Ok(file)
}

/// Whether a path leads to a folder.
pub(crate) fn is_folder(path: &Path) -> bool {
    let env = thalweg_env::Env::os();
    env.storage().list_dir(path).is_ok()
}

/// Makes a file, or empties it.
#[expect(clippy::disallowed_methods, reason = "not a file of a database")]
pub(crate) fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| {
        Failure::Other(format!(
            "{} cannot be written: {}",
            path.display(),
            reason(&error)
        ))
    })
}

/// Returns the system's message for a failed call, without its number.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

/// Whether two paths lead to the same existing file.
pub(crate) fn are_same(one: &Path, other: &Path) -> bool {
    let env = thalweg_env::Env::os();
    let real = |path: &Path| env.storage().canonicalize(path).ok();
    real(one).is_some_and(|one| Some(one) == real(other))
}

/// Whether anything is at a path.
pub(crate) fn exists(path: &Path) -> bool {
    thalweg_env::Env::os().storage().canonicalize(path).is_ok()
}

/// Removes a folder that this process made, with all that is in it; what cannot be removed stays.
#[expect(
    clippy::disallowed_methods,
    reason = "a whole folder, which the engine never removes"
)]
pub(crate) fn remove_folder(folder: &Path) {
    // The threads of a database that is still open may put a file there meanwhile.
    for _ in 0..REMOVALS {
        if std::fs::remove_dir_all(folder).is_ok() || !exists(folder) {
            return;
        }
    }
}

/// Bytes of all files below a folder.
pub(crate) fn bytes_below(folder: &Path) -> std::io::Result<u64> {
    let env = thalweg_env::Env::os();
    let mut bytes = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in env.storage().list_dir(&folder)? {
            let path = folder.join(entry.name);
            if entry.is_dir {
                folders.push(path);
            } else {
                match env.storage().metadata(&path) {
                    Ok(found) => bytes += found.len_bytes,
                    // Removed meanwhile.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(bytes)
}

/// Reads a path as Python does: `~` in front is the home folder. A shell does it too, but not inside quotes.
pub(crate) fn with_home(given: PathBuf) -> Result<PathBuf, String> {
    let mut parts = given.components();
    let first = parts.next().map(|first| first.as_os_str().to_owned());
    let Some(first) = first.filter(|first| first.as_encoded_bytes().starts_with(b"~")) else {
        return Ok(given);
    };
    match std::env::home_dir().filter(|_| first == *"~") {
        Some(home) => Ok(home.join(parts.as_path())),
        None => Err(format!(
            "there is no home folder for {}; write \"./{}\" for what has that name here",
            first.display(),
            given.display()
        )),
    }
}

/// Where the shell keeps its history; `None` for a user without a home.
pub(crate) fn history() -> Option<PathBuf> {
    std::env::home_dir().map(|home| home.join(".thalweg_history"))
}
