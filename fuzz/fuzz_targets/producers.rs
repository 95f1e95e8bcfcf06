//! Any bytes as the producers in a checkpoint: an error, or producers of which these bytes are the only spelling.
//!
//! Input: the commit of the checkpoint (little-endian, 8), then the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_kernel::{CommitNo, respelled_producers};

fuzz_target!(|input: &[u8]| {
    let Some((last, bytes)) = input.split_first_chunk() else { return };
    if let Some(again) = respelled_producers(bytes, CommitNo(u64::from_le_bytes(*last))) {
        assert_eq!(again, bytes);
    }
});
