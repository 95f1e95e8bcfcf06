//! What examples share.
#![allow(dead_code, reason = "each example takes what it needs")]
#![allow(clippy::unwrap_used, reason = "an example")]
#![allow(clippy::print_stdout, reason = "examples print what they find")]

use std::path::Path;
use thalweg_env::{Env, OpenMode};
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::index::Address;
use thalweg_kernel::paths::fragment_name;
use thalweg_kernel::store::Store;
use thalweg_kernel::{DatabaseId, FileId};

const FILE: FileId = FileId(1);

/// Removes a folder with all that is in it, if it is there; prints what cannot be removed.
pub(crate) fn remove(env: &Env, path: &Path) {
    let Ok(entries) = env.storage().list_dir(path) else {
        return;
    };
    for entry in entries {
        let path = path.join(&entry.name);
        if entry.is_dir {
            remove(env, &path);
        } else if let Err(error) = env.storage().remove_file(&path) {
            println!("removing {}: {error}", path.display());
        }
    }
    if let Err(error) = env.storage().remove_dir(path) {
        println!("removing {}: {error}", path.display());
    }
}

/// A store over a data file of these blocks in `folder`, and where each lies.
pub(crate) fn stored(
    folder: &Path,
    blocks: &[EncodedBlock],
    cache_bytes: u64,
) -> (Store, Vec<Address>) {
    let env = Env::os();
    let path = folder.join(fragment_name(FILE));
    env.storage()
        .create_dir_all(path.parent().unwrap())
        .unwrap();
    let file = env.storage().open(&path, OpenMode::CreateNew).unwrap();
    let (mut offset, mut addresses) = (0, Vec::new());
    for block in blocks {
        file.write_all_at(&block.bytes, offset).unwrap();
        addresses.push(Address {
            file: FILE,
            offset,
            ..block.entry.address
        });
        offset += block.bytes.len() as u64;
    }
    let store = Store::new(env, folder, DatabaseId([1; 16]), cache_bytes);
    (store, addresses)
}
