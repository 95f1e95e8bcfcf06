//! Any bytes as a list of index entries: an error, or entries of which these bytes are the only spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_kernel::index::{decode_entries, encode_entries};

fuzz_target!(|input: &[u8]| {
    let Ok(entries) = decode_entries(input) else { return };
    let mut again = Vec::new();
    encode_entries(&entries, &mut again).expect("what was read can be written");
    assert_eq!(again, input);
});
