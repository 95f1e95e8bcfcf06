//! Any bytes as the uses of files below a root page: an error, or uses of which these bytes are the only spelling.
//!
//! Input: the bytes of blocks and the length of the root page (little-endian, 1 and 1), its file (1), then the bytes. Without a
//! length there is no root.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_kernel::index::Entry;
use thalweg_kernel::{FileId, respelled_uses};

fuzz_target!(|input: &[u8]| {
    let [blocks, length, file, bytes @ ..] = input else { return };
    let mut root = Entry::unknown();
    root.level = 1;
    root.block_bytes = (*blocks).into();
    (root.address.bytes, root.address.file) = ((*length).into(), FileId((*file).into()));
    let root = Some(&root).filter(|_| *length > 0);
    if let Some(again) = respelled_uses(bytes, root) {
        assert_eq!(again, bytes);
    }
});
