//! Any bytes as a block with a sound checksum of its head, grid included: an error, or a head whose chunks and pages lie
//! within the block, whatever is read of it.
//!
//! Input: length of the head (2), then the block from behind its magic on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use thalweg_env::{Env, OpenMode};
use thalweg_kernel::block::{BLOCK_HEADER_BYTES, BlockHead, Wanted};
use thalweg_kernel::index::Address;
use thalweg_kernel::store::Store;
use thalweg_kernel::{DatabaseId, FileId};

const CRC_AT: usize = 60;

fuzz_target!(|input: &[u8]| {
    let Some((&length, rest)) = input.split_first_chunk() else { return };
    let mut bytes = [&b"TBLK"[..], rest].concat();
    let head_bytes = usize::from(u16::from_le_bytes(length)).min(bytes.len());
    if head_bytes < BLOCK_HEADER_BYTES {
        return;
    }
    // The lengths that the address says, so that few inputs fail for them alone.
    let block_bytes = bytes.len() as u32;
    bytes[8..12].copy_from_slice(&(head_bytes as u32).to_le_bytes());
    bytes[12..16].copy_from_slice(&block_bytes.to_le_bytes());
    let head_crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..CRC_AT]), &bytes[BLOCK_HEADER_BYTES..head_bytes]);
    bytes[CRC_AT..BLOCK_HEADER_BYTES].copy_from_slice(&head_crc.to_le_bytes());
    let address = Address {
        file: FileId(5),
        bytes: block_bytes,
        head_bytes: head_bytes as u32,
        head_crc,
        ..Address::default()
    };
    let Ok(head) = BlockHead::parse(&bytes, &address) else { return };
    assert!(head.memory_bytes() <= 2 * head_bytes + 1_024);
    let _ = head.verify_body(&bytes[head_bytes..], &address);
    if let Some(grid) = head.paging().grid() {
        let last = head.positions() - 1;
        assert_eq!(grid.page_range(grid.page_of(last)).end, head.positions());
    }
    read_all(&head, &bytes, &address);
});

fn read_all(head: &BlockHead, bytes: &[u8], address: &Address) {
    let env = Env::in_memory();
    env.storage().create_dir_all(Path::new("/db/data")).unwrap();
    let store = Store::new(env.clone(), "/db", DatabaseId([1; 16]), 1 << 20);
    let file = env.storage().open(&store.fragment_path(address.file), OpenMode::CreateNew).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    let mut reader = store.block(address).unwrap();
    for chunk in head.chunks() {
        for pages in [0..usize::MAX, 1..2] {
            let wanted = Wanted { column_id: chunk.column_id, role: chunk.role, pages };
            let Ok(found) = reader.read(&[wanted]) else { continue };
            let pages = found[0].as_ref().unwrap();
            for number in pages.pages().take(64) {
                let _ = (pages.page(number).len(), pages.page_rows(number));
            }
        }
    }
}
