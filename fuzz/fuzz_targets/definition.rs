//! Any bytes as the definition of a table: an error, or a definition that is the same when it is read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_table::TableDefinition;

fuzz_target!(|input: &[u8]| {
    let Ok(definition) = TableDefinition::decode(input) else { return };
    assert_eq!(TableDefinition::decode(&definition.encode()).unwrap(), definition);
});
