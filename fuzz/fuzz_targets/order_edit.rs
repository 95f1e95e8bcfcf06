//! Any bytes as what a commit says of the orders of a table: an error, or the same bytes when it is written again.
//!
//! Input: which structure (1), then its bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_kernel::orders::{AddHead, OrdersEdit, ReplaceEdit};

fuzz_target!(|input: &[u8]| {
    let Some((&which, bytes)) = input.split_first() else { return };
    let mut again = Vec::new();
    match which % 3 {
        0 => {
            let Ok((head, rest)) = AddHead::decode(bytes) else { return };
            head.put(&mut again);
            again.extend_from_slice(rest);
        }
        1 => {
            let Ok(edit) = OrdersEdit::decode(bytes) else { return };
            edit.put(&mut again);
        }
        _ => {
            let Ok(edit) = ReplaceEdit::decode(bytes) else { return };
            edit.put(&mut again).unwrap();
        }
    }
    assert_eq!(again, bytes);
});
