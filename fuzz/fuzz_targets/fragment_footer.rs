//! Any bytes as the footer of a fragment, with a sound checksum: an error, never a panic.
//!
//! Input: the footer from behind its magic to its checksum, then what lies in front of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use thalweg_env::{Env, OpenMode};
use thalweg_kernel::fragment::{FRAGMENT_FOOTER_BYTES, open_fragment};
use thalweg_kernel::store::Store;
use thalweg_kernel::{DatabaseId, FileId, TableId};

const DATABASE: DatabaseId = DatabaseId([1; 16]);
const FILE: FileId = FileId(5);
const FIELDS: usize = FRAGMENT_FOOTER_BYTES - 12;

fuzz_target!(|input: &[u8]| {
    let Some((fields, before)) = input.split_at_checked(FIELDS) else { return };
    let offset = before.len() as u64;
    let mut footer = [&b"THWFRGFT"[..], fields].concat();
    // Whose it is and where, so that few inputs fail for that alone.
    footer[16..32].copy_from_slice(&DATABASE.0);
    footer[32..40].copy_from_slice(&FILE.0.to_le_bytes());
    footer[40..48].copy_from_slice(&offset.to_le_bytes());
    let identity = [&DATABASE.0[..], &FILE.0.to_le_bytes(), &offset.to_le_bytes()].concat();
    let crc = crc32c::crc32c_append(crc32c::crc32c(&identity), &footer);
    footer.extend_from_slice(&crc.to_le_bytes());
    let env = Env::in_memory();
    env.storage().create_dir_all(Path::new("/db/data")).unwrap();
    let store = Store::new(env.clone(), "/db", DATABASE, 1 << 20);
    let file = env.storage().open(&store.fragment_path(FILE), OpenMode::CreateNew).unwrap();
    file.write_all_at(before, 0).unwrap();
    file.write_all_at(&footer, offset).unwrap();
    let table = TableId(u32::from_le_bytes([footer[12], footer[13], footer[14], footer[15]]));
    let order = u32::from_le_bytes([footer[68], footer[69], footer[70], footer[71]]);
    let _ = open_fragment(&store, FILE, table, order);
});
