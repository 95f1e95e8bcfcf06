//! Blocks left out by bounds of strings and decimals: of blocks, and of the pages of the index above them.

use arrow_array::builder::{Decimal128Builder, StringBuilder};
use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use thalweg_codec::Level;
use thalweg_env::sim::SimEnv;
use thalweg_table::{
    AggregateRequest, AppendLimits, BlockEncoder, ColumnRange, CreateOptions, Engine,
    EngineOptions, Layouts, ScanRequest, SummaryKind, Table, TableDefinition, ValueRange,
};

fn open(sim: &SimEnv) -> Engine {
    let options = EngineOptions {
        background: false,
        threads: 1,
        append_limits: AppendLimits {
            raw_bytes: 100,
            ..AppendLimits::default()
        },
        ..EngineOptions::default()
    };
    Engine::open(sim.env(), Path::new("/db"), options).unwrap()
}

/// A table of a time, a name and a price, with blocks of 64 rows.
fn table_of(engine: &Engine) -> Table {
    let fields = vec![
        Field::new("at", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("price", DataType::Decimal128(38, 2), true),
    ];
    let options = CreateOptions::stream("at").with("block_rows", 64);
    let schema = Schema::new(fields);
    engine.create_table("t", &schema, &options).unwrap()
}

/// Rows with names and prices that rise slowly, every ninth one without.
fn append(table: &Table, rows: std::ops::Range<i64>) {
    let (mut names, mut prices) = (StringBuilder::new(), Decimal128Builder::new());
    for row in rows.clone() {
        let is_null = row % 9 == 0;
        names.append_option((!is_null).then(|| format!("site {:04} of a long street", row / 50)));
        prices.append_option((!is_null).then(|| i128::from(row / 50) * 10_i128.pow(30)));
    }
    let prices = prices.finish().with_precision_and_scale(38, 2).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows)),
        Arc::new(names.finish()),
        Arc::new(prices),
    ];
    let batch = RecordBatch::try_new(table.schema(), columns).unwrap();
    table.append([Ok(batch)], None).unwrap();
}

/// Rows of the blocks that are read for a range of a column.
fn rows_read(table: &Table, column: usize, range: ValueRange) -> u64 {
    let request = ScanRequest {
        ranges: vec![ColumnRange { column, range }],
        ..ScanRequest::default()
    };
    let scan = table.view().unwrap().scan(&request).unwrap();
    scan.map(|batch| batch.unwrap().num_rows() as u64).sum()
}

fn texts(first: &str, last: &str, is_open: bool) -> ValueRange {
    ValueRange::Bytes {
        first: Some(first.as_bytes().into()),
        last: Some(last.as_bytes().into()),
        is_open,
    }
}

#[test]
fn blocks_without_a_wanted_string_or_decimal_are_not_read() {
    let sim = SimEnv::new(1);
    let engine = open(&sim);
    let table = table_of(&engine);
    append(&table, 0..6_400);
    for reopened in [false, true] {
        let (engine, table) = match reopened {
            false => (engine.clone(), table.clone()),
            true => {
                engine.kernel().checkpoint().unwrap();
                (engine.clone(), engine.table("t").unwrap())
            }
        };
        let name = "site 0050 of a long street";
        // Rows 2,500 to 2,549 lie in one block.
        assert_eq!(rows_read(&table, 1, texts(name, name, false)), 64);
        assert_eq!(
            rows_read(&table, 1, texts("site 0050", "site 0051", true)),
            64
        );
        assert_eq!(rows_read(&table, 1, texts("t", "u", false)), 0);
        assert_eq!(rows_read(&table, 1, texts("", "site", false)), 0);
        assert_eq!(rows_read(&table, 1, texts("", "z", false)), 6_400);
        let price = Some(50 * 10_i128.pow(30));
        let read = rows_read(&table, 2, ValueRange::Decimal(price, price));
        assert!(
            (64..=192).contains(&read),
            "{read} rows: bounds are outer ones"
        );
        assert_eq!(rows_read(&table, 2, ValueRange::Decimal(None, Some(-1))), 0);
        drop(engine);
    }
}

#[test]
fn strings_are_counted_from_summaries() {
    let sim = SimEnv::new(2);
    let engine = open(&sim);
    let table = table_of(&engine);
    append(&table, 0..640);
    append(&table, 640..645);
    let request = AggregateRequest {
        columns: vec![1, 2],
        ..AggregateRequest::default()
    };
    let view = table.view().unwrap();
    let result = view.aggregate(&request).unwrap();
    let name = &result.groups[0].columns[0];
    assert_eq!(name.kind, SummaryKind::Bytes);
    assert_eq!((name.null_rows, name.value_rows), (72, 573));
    assert_eq!(name.value_bytes(), Some(573 * 26));
    assert_eq!(result.groups[0].columns[1].null_rows, 72);
    assert!(result.metrics.blocks_from_summary() > 0);
}

/// Bounds as the entry of a block has them.
fn bounds_of(array: ArrayRef) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let schema = Schema::new(vec![Field::new("x", array.data_type().clone(), true)]);
    let definition =
        TableDefinition::create(&Layouts::default(), &schema, &CreateOptions::default()).unwrap();
    let batch = RecordBatch::try_new(Arc::clone(definition.schema()), vec![array]).unwrap();
    let mut blocks = Vec::new();
    let table = thalweg_kernel::TableId(1);
    let keys: Vec<i64> = (0..batch.num_rows() as i64).collect();
    BlockEncoder::new(Level::Fast)
        .encode(table, &definition, &batch, &keys, &mut blocks)
        .unwrap();
    let bounds = blocks[0].entry.covering_bounds(1)?;
    Some((bounds.low().0.to_vec(), bounds.high().0.map(<[u8]>::to_vec)))
}

#[test]
fn a_slice_of_strings_has_its_own_bounds() {
    let all: ArrayRef = Arc::new(StringArray::from(vec![
        Some("z"),
        Some("b"),
        None,
        Some("c"),
        Some("a"),
    ]));
    let bounds = |low: &str, high: &str| Some((low.into(), Some(high.into())));
    assert_eq!(bounds_of(Arc::clone(&all)), bounds("a", "z"));
    assert_eq!(bounds_of(all.slice(1, 3)), bounds("b", "c"));
    assert_eq!(bounds_of(all.slice(2, 1)), None);
}

proptest! {
    #[test]
    fn bounds_of_blocks_are_those_of_their_values(
        values in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..15)), 1..50),
    ) {
        let array: BinaryArray = values.iter().map(Option::as_deref).collect();
        let known: Vec<&Vec<u8>> = values.iter().flatten().collect();
        let expected = known.iter().min().zip(known.iter().max());
        let expected = expected.map(|(low, high)| ((*low).clone(), Some((*high).clone())));
        prop_assert_eq!(bounds_of(Arc::new(array)), expected);
    }
}
