//! Any bytes as an edit that hides rows: an error, or an edit that is written again as it was read; and never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_kernel::masks::{BlockMask, MaskEdit, MaskList};

fuzz_target!(|input: &[u8]| {
    let Ok(edit) = MaskEdit::decode(input) else { return };
    let mut again = Vec::new();
    edit.put(&mut again);
    assert_eq!(again, input, "an edit has one spelling");
    let mut all = MaskList::default();
    for item in &edit.items {
        let before = all.rows();
        if let Some(newly) = all.add(&item.masks) {
            assert!(newly <= item.masks.rows());
            assert!(all.rows() >= before);
        }
        for (rank, mask) in item.masks.iter() {
            assert!(item.masks.of_block(rank) == Some(mask));
            if let BlockMask::Rows(positions) = mask {
                assert_eq!(positions.iter().count(), positions.rows() as usize);
            }
        }
    }
});
