//! Any bytes as the definition of a view: an error, or a definition that is the same when it is read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_table::ViewDefinition;

fuzz_target!(|input: &[u8]| {
    let Ok(view) = ViewDefinition::decode(input) else { return };
    // A query may be longer than what is written.
    let Ok(again) = view.encode() else { return };
    assert_eq!(ViewDefinition::decode(&again).unwrap(), view);
});
