//! Any bytes as raw rows of a table with a column of every kind: an error or rows, and never more of them than the bytes
//! can hold.
#![no_main]

use arrow_schema::{DataType, Field, Schema};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use thalweg_table::{Layouts, CreateOptions, TableDefinition, decode_rows};

static DEFINITION: LazyLock<TableDefinition> = LazyLock::new(|| {
    let types = [
        DataType::Boolean,
        DataType::Int8,
        DataType::Int64,
        DataType::UInt16,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(38, 2),
        DataType::Utf8,
        DataType::Binary,
    ];
    let fields = types.iter().enumerate().map(|(at, data_type)| Field::new(format!("c{at}"), data_type.clone(), at > 1));
    TableDefinition::create(&Layouts::default(), &Schema::new(fields.collect::<Vec<_>>()), &CreateOptions::default()).unwrap()
});

fuzz_target!(|input: &[u8]| {
    if let Ok(rows) = decode_rows(&DEFINITION, [input]) {
        assert!(rows.num_rows() <= 8 * input.len());
    }
});
