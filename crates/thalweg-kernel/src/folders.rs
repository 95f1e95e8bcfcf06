//! The folders of a new database, and the names that lead to it.
//!
//! Invariants
//! - Before the root of a database is written, the name of every folder on its path was synced in the folder above it: a power
//!   cut after that takes no part of the path. A path is synced as a whole, whoever made its folders: an attempt that was
//!   killed may have made them and synced none, and nothing shows that.
//! - A folder is made only where the folder above it can be synced, and is removed again where that sync fails after all:
//!   after a failed sync the name looks clean in the cache, and no later sync would write it.
//! - So a database with a root needs none of this, and opening it checks no folder above it.
//! - The folders inside of a database without a root are nobody else's: empty, they are removed as well where that sync fails,
//!   whichever attempt made them. Those above may be somebody's, and stay: the name of one that an attempt made which was
//!   killed can be lost if the sync of the next attempt fails, and a power cut comes after a third one.
//! - A repair, which makes those inside anew where they are missing, takes none away: a database that opened before still opens.

use crate::error::{Error, ErrorKind, Result};
use crate::paths::{data_dir, io_at, log_dir};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use thalweg_env::Env;

/// Makes the folder of a database and those above it that are missing.
pub(crate) fn make_database_folder(env: &Env, dir: &Path) -> Result<()> {
    match env.storage().metadata(dir) {
        Ok(found) if found.is_dir => return Ok(()),
        Ok(_) => {
            let message = format!("{} is a file; a database is a folder", dir.display());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(io_at("looking at", dir)(e)),
    }
    // A path that ends in `..` has no name of its own: it is there once the folder before it is.
    let Some(parent) = dir.parent() else {
        return make_folder(env, dir, dir);
    };
    if !parent.as_os_str().is_empty() {
        make_database_folder(env, parent)?;
    }
    if dir.file_name().is_none() {
        return Ok(());
    }
    make_folder(env, dir, parent)
}

/// Makes the folders of a database that has no root yet, and makes all names that lead to them durable.
pub(crate) fn make_folders(env: &Env, dir: &Path) -> Result<()> {
    make_database_folder(env, dir)?;
    sync_path(env, dir)?;
    make_inside(env, dir).inspect_err(|_| {
        for folder in inside(dir) {
            let _ = env.storage().remove_dir(&folder);
        }
    })
}

/// Makes the folders of a database that are missing, which had them.
pub(crate) fn restore_folders(env: &Env, dir: &Path) -> Result<()> {
    sync_path(env, dir)?;
    make_inside(env, dir).inspect_err(|_| {
        for folder in inside(dir) {
            // Who made an empty one may have been killed before its name was synced: made anew, the next sync writes it. The
            // database may need it, so that it cannot just go.
            if env.storage().remove_dir(&folder).is_ok() {
                let _ = env.storage().create_dir(&folder);
            }
        }
    })
}

fn inside(dir: &Path) -> [PathBuf; 2] {
    [log_dir(dir), data_dir(dir)]
}

fn make_inside(env: &Env, dir: &Path) -> Result<()> {
    for folder in inside(dir) {
        make_folder(env, &folder, dir)?;
    }
    Ok(())
}

/// Makes a folder, if it is missing, and its name durable.
fn make_folder(env: &Env, folder: &Path, parent: &Path) -> Result<()> {
    let storage = env.storage();
    let not_synced = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => " (allow reading it, or choose another path)",
            _ => "",
        };
        let (above, name) = (shown(parent).display(), folder.display());
        let doing = format!(
            "syncing {above}{hint}, without which a power cut could take the name of {name}"
        );
        Error::io(doing, error)
    };
    storage.sync_dir(parent).map_err(not_synced)?;
    let is_new = match storage.create_dir(folder) {
        Ok(()) => true,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            check_is_folder(env, folder)?;
            false
        }
        Err(e) => return Err(io_at("creating", folder)(e)),
    };
    if let Err(error) = storage.sync_dir(parent) {
        if is_new {
            let _ = storage.remove_dir(folder);
        }
        return Err(not_synced(error));
    }
    Ok(())
}

/// A path as messages show it.
fn shown(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

fn check_is_folder(env: &Env, path: &Path) -> Result<()> {
    let invalid = |message| Err(Error::new(ErrorKind::Invalid, message));
    match env.storage().metadata(path) {
        Ok(found) if found.is_dir => Ok(()),
        Ok(_) => invalid(format!("{} is a file, not a folder", path.display())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => invalid(format!(
            "{} is a symbolic link to nothing: make the folder that it leads to, or remove the link",
            path.display()
        )),
        Err(e) => Err(io_at("looking at", path)(e)),
    }
}

/// Syncs every folder that holds a name on the path to a folder that exists, symbolic links included.
fn sync_path(env: &Env, dir: &Path) -> Result<()> {
    let storage = env.storage();
    let mut holders: BTreeSet<PathBuf> = BTreeSet::new();
    for named in dir.ancestors() {
        let named = shown(named);
        let real = match storage.canonicalize(named) {
            Ok(real) => real,
            // A prefix that ends before a `..` may be there by name only.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(io_at("looking at", named)(e)),
        };
        // Where the name is that of a link, its folder is above it in the path, and the one it leads to is not.
        holders.extend(real.ancestors().skip(1).map(Path::to_owned));
        if named != dir {
            holders.insert(real);
        }
    }
    for holder in holders {
        match storage.sync_dir(&holder) {
            Err(e) if !cannot_be_synced(&e) => return Err(io_at("syncing", &holder)(e)),
            // A folder above a new one can be synced, or that one would not be there. What others have made in folders
            // that this program may not read is left to them: `/home` of a shared machine is one.
            _ => {}
        }
    }
    Ok(())
}

fn cannot_be_synced(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Unsupported
            | io::ErrorKind::ReadOnlyFilesystem
    )
}
