//! Any bytes as the definition of a table: an error, or a definition that is the same when it is read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_table::{Layouts, TableDefinition};

fuzz_target!(|input: &[u8]| {
    let Ok(definition) = TableDefinition::decode(&Layouts::default(), input) else { return };
    assert_eq!(TableDefinition::decode(&Layouts::default(), &definition.encode()).unwrap(), definition);
});
