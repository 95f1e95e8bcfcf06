//! Any bytes as the masks of a table in a checkpoint: an error, or masks that are written again as they were read.
//!
//! Input: whether they are those of open rows (1), then the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_kernel::masks::TableMasks;

fuzz_target!(|input: &[u8]| {
    let Some((&is_open, bytes)) = input.split_first() else { return };
    let (mut masks, mut again) = (TableMasks::default(), Vec::new());
    if is_open & 1 == 1 {
        if masks.read_open(bytes).is_ok() {
            masks.put_open(&mut again);
            assert_eq!(again, bytes);
        }
    } else if masks.read_items(bytes).is_ok() {
        masks.put_items(&mut again);
        assert_eq!(again, bytes);
    }
});
