//! Folders, clock and medians of the experiments.

use std::path::Path;
use thalweg_env::Env;

pub(crate) fn make_folder(env: &Env, folder: &Path) {
    env.storage()
        .create_dir_all(folder)
        .expect("a folder to write to");
}

pub(crate) fn remove(env: &Env, path: &Path) {
    let Ok(entries) = env.storage().list_dir(path) else {
        return;
    };
    for entry in entries {
        let path = path.join(entry.name);
        if entry.is_dir {
            remove(env, &path)
        } else {
            env.storage().remove_file(&path).expect("removable")
        }
    }
    env.storage().remove_dir(path).expect("removable");
}

/// Bytes of all files in a folder.
pub(crate) fn bytes_of(env: &Env, path: &Path) -> u64 {
    let entries = env.storage().list_dir(path).expect("a folder");
    let bytes = entries.into_iter().map(|entry| {
        let path = path.join(entry.name);
        if entry.is_dir {
            bytes_of(env, &path)
        } else {
            let found = env.storage().metadata(&path).expect("a file");
            found.len_bytes
        }
    });
    bytes.sum()
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) fn now_us(env: &Env) -> f64 {
    env.clock().monotonic_ns() as f64 / 1e3
}
