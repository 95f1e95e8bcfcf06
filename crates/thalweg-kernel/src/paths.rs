//! The names of files and folders of a database, and which there are.

use crate::error::{Error, Result};
use crate::ids::FileId;
use std::path::{Path, PathBuf};
use thalweg_env::Env;

/// The folder of log segments.
pub const LOG_DIR: &str = "log";

/// The folder of fragments.
pub const DATA_DIR: &str = "data";

pub(crate) const ROOT_NAME: &str = "root";
pub(crate) const ROOT_TEMPORARY: &str = "root.new";
pub(crate) const LOCK_NAME: &str = "lock";
pub(crate) const READERS_NAME: &str = "readers";
pub(crate) const LIVE_NAME: &str = "live";

/// The name of a segment, from the database's folder on.
#[must_use]
pub fn segment_name(id: FileId) -> PathBuf {
    Path::new(LOG_DIR).join(format!("{:016x}.seg", id.0))
}

/// The name of a fragment, from the database's folder on.
#[must_use]
pub fn fragment_name(id: FileId) -> PathBuf {
    Path::new(DATA_DIR).join(format!("{:016x}.frag", id.0))
}

pub(crate) fn io_at(doing: &str, path: &Path) -> impl Fn(std::io::Error) -> Error {
    let text = format!("{doing} {}", path.display());
    move |error| Error::io(&text, error)
}

/// The folder of fragments.
pub(crate) fn data_dir(database: &Path) -> PathBuf {
    database.join(DATA_DIR)
}

/// The folder of segments.
pub(crate) fn log_dir(database: &Path) -> PathBuf {
    database.join(LOG_DIR)
}

/// The path of a segment.
pub(crate) fn segment_path(database: &Path, file: FileId) -> PathBuf {
    database.join(segment_name(file))
}

/// Ids of the segment files that are there, ascending.
pub(crate) fn list_segments(env: &Env, database: &Path) -> Result<Vec<FileId>> {
    list_ids(env, &log_dir(database), ".seg")
}

/// Ids of the files of a folder that are named by one and end in `suffix`, ascending.
pub(crate) fn list_ids(env: &Env, dir: &Path, suffix: &str) -> Result<Vec<FileId>> {
    let entries = env
        .storage()
        .list_dir(dir)
        .map_err(|e| Error::io(format_args!("listing {}", dir.display()), e))?;
    let id = |name: &std::ffi::OsStr| {
        let hex = name.to_str()?.strip_suffix(suffix)?;
        (hex.len() == 16)
            .then(|| u64::from_str_radix(hex, 16).ok())
            .flatten()
            .map(FileId)
    };
    let mut ids: Vec<FileId> = entries.iter().filter_map(|e| id(&e.name)).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Ids of the fragment files that are there.
pub(crate) fn list_fragments(env: &Env, dir: &Path) -> Result<Vec<FileId>> {
    list_ids(env, &data_dir(dir), ".frag")
}
