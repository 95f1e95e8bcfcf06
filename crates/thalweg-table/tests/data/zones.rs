//! Scans that read only pages whose zones can have what is looked for, and filters.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use thalweg_codec::{Decoder, Level};
use thalweg_env::sim::SimEnv;
use thalweg_kernel::block::{EncodedBlock, Role, Wanted};
use thalweg_kernel::index::Address;
use thalweg_kernel::paths::fragment_name;
use thalweg_kernel::store::Store;
use thalweg_kernel::{DatabaseId, ErrorKind, FileId, TableId};
use thalweg_table::column::filter::{Filter, Fingerprint, may_have_value};
use thalweg_table::{
    AppendLimits, BlockEncoder, ColumnRange, CreateOptions, Engine, EngineOptions, KeyRange,
    Layouts, Scan, ScanRequest, Table, TableDefinition, ValueRange,
};

const FILE: FileId = FileId(3);

fn open(sim: &SimEnv, threads: usize) -> Engine {
    let options = EngineOptions {
        background: false,
        threads,
        append_limits: AppendLimits {
            raw_bytes: 1_000,
            ..AppendLimits::default()
        },
        ..EngineOptions::default()
    };
    Engine::open(sim.env(), Path::new("/db"), options).unwrap()
}

/// A table of a time and one column, whose blocks may be large.
fn table_of(engine: &Engine, data_type: &DataType) -> Table {
    let fields = vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("x", data_type.clone(), true),
    ];
    let options = CreateOptions::stream("ts").with("block_rows", 1 << 20);
    engine
        .create_table("t", &Schema::new(fields), &options)
        .unwrap()
}

fn append(table: &Table, times: impl Iterator<Item = i64>, values: ArrayRef) {
    let times: ArrayRef = Arc::new(Int64Array::from_iter_values(times));
    let batch = RecordBatch::try_new(table.schema(), vec![times, values]).unwrap();
    table.append([Ok(batch)], None).unwrap();
}

fn rows_of(scan: Scan) -> RecordBatch {
    let schema = Arc::clone(scan.schema());
    let batches: Vec<RecordBatch> = scan.map(Result::unwrap).collect();
    concat_batches(&schema, &batches).unwrap()
}

/// The rows that have a value in the range, by hand.
fn filtered(rows: &RecordBatch, range: &ValueRange) -> Vec<(i64, String)> {
    let values = rows.column(1);
    let wide = |row: usize| -> Option<i128> {
        use DataType as T;
        values.is_valid(row).then(|| match values.data_type() {
            T::Boolean => values.as_boolean().value(row).into(),
            T::Int8 => values.as_primitive::<Int8Type>().value(row).into(),
            T::Int32 => values.as_primitive::<Int32Type>().value(row).into(),
            T::Int64 => values.as_primitive::<Int64Type>().value(row).into(),
            T::UInt16 => values.as_primitive::<UInt16Type>().value(row).into(),
            T::UInt64 => values.as_primitive::<UInt64Type>().value(row).into(),
            other => panic!("{other}"),
        })
    };
    let float = |row: usize| match values.data_type() {
        DataType::Float32 => values.as_primitive::<Float32Type>().value(row).into(),
        _ => values.as_primitive::<Float64Type>().value(row),
    };
    let is_in = |row: usize| match *range {
        ValueRange::Int(first, last) => wide(row).is_some_and(|value| {
            first.is_none_or(|first| i128::from(first) <= value)
                && last.is_none_or(|last| value <= i128::from(last))
        }),
        ValueRange::UInt(first, last) => wide(row).is_some_and(|value| {
            first.is_none_or(|first| i128::from(first) <= value)
                && last.is_none_or(|last| value <= i128::from(last))
        }),
        ValueRange::Float {
            min,
            max,
            accepts_nan,
        } => {
            let value = float(row);
            let is_in = min.is_none_or(|min| value >= min) && max.is_none_or(|max| value <= max);
            values.is_valid(row) && if value.is_nan() { accepts_nan } else { is_in }
        }
        ValueRange::Decimal(..) | ValueRange::Bytes { .. } => {
            panic!("pages of these have no zones")
        }
    };
    let times = rows.column(0).as_primitive::<Int64Type>();
    let shown = |row: usize| format!("{:?}", values.slice(row, 1));
    (0..rows.num_rows())
        .filter(|&row| is_in(row))
        .map(|row| (times.value(row), shown(row)))
        .collect()
}

/// Values that change slowly, so that pages differ, and some that do not.
fn values(data_type: &DataType, rows: usize, seed: u64, nulls: bool) -> ArrayRef {
    let mut rng = fastrand::Rng::with_seed(seed);
    let drawn: Vec<Option<i64>> = (0..rows)
        .map(|row| {
            let page = i64::try_from(row / 1_024).unwrap();
            let is_null = nulls && (page == 3 || rng.u8(..10) == 0);
            (!is_null).then(|| page * 10 - 40 + rng.i64(0..5))
        })
        .collect();
    macro_rules! numbers {
        ($type:ty, $value:expr) => {
            Arc::new(
                drawn
                    .iter()
                    .map(|value| value.map($value))
                    .collect::<PrimitiveArray<$type>>(),
            )
        };
    }
    match data_type {
        DataType::Boolean => Arc::new(
            drawn
                .iter()
                .map(|value| value.map(|value| value > 0))
                .collect::<BooleanArray>(),
        ),
        DataType::Int8 => numbers!(Int8Type, |value| i8::try_from(value).unwrap()),
        DataType::Int32 => numbers!(Int32Type, |value| i32::try_from(value).unwrap()),
        DataType::Int64 => numbers!(Int64Type, |value| value),
        DataType::UInt16 => numbers!(UInt16Type, |value| (value + 40) as u16),
        DataType::UInt64 => numbers!(UInt64Type, |value| value as u64),
        DataType::Float32 => numbers!(Float32Type, |value| float(value) as f32),
        _ => numbers!(Float64Type, float),
    }
}

/// Numbers with every kind of zero, and NaNs of either sign.
fn float(value: i64) -> f64 {
    match value {
        -9 => -f64::NAN,
        1 => -0.0,
        2 => 0.0,
        30..34 => f64::NAN,
        other => other as f64 / 4.0,
    }
}

fn any_type() -> impl Strategy<Value = DataType> {
    prop::sample::select(vec![
        DataType::Boolean,
        DataType::Int8,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt16,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
    ])
}

fn range_of(data_type: &DataType, first: i64, last: i64, open: u8, nan: bool) -> ValueRange {
    let has = |bit: u8| open & bit != 0;
    match data_type {
        DataType::UInt16 | DataType::UInt64 => ValueRange::UInt(
            has(1).then_some(first.unsigned_abs()),
            has(2).then_some(last.unsigned_abs()),
        ),
        DataType::Float32 | DataType::Float64 => ValueRange::Float {
            min: has(1).then_some(first as f64 / 4.0),
            max: has(2).then_some(last as f64 / 4.0),
            accepts_nan: nan,
        },
        _ => ValueRange::Int(has(1).then_some(first), has(2).then_some(last)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn scans_of_ranges_lose_no_row(
        data_type in any_type(),
        rows in prop_oneof![Just(8_193_usize), 7_000..12_000_usize],
        seed: u64,
        nulls: bool,
        late in prop::option::of(500..9_000_usize),
        ranges in prop::collection::vec((-45_i64..80, 0_i64..12, 0_u8..4, any::<bool>()), 4),
        keys in (0_i64..12_000, 0_i64..12_000),
    ) {
        let sim = SimEnv::new(1);
        let engine = open(&sim, 1);
        let table = table_of(&engine, &data_type);
        append(&table, 0..i64::try_from(rows).unwrap(), values(&data_type, rows, seed, nulls));
        if let Some(late) = late {
            // Between the others: blocks that overlap are merged.
            let times = (0..i64::try_from(late).unwrap()).map(|n| n * 7);
            append(&table, times, values(&data_type, late, seed ^ 1, nulls));
        }
        let view = table.view().unwrap();
        let keys = [KeyRange::ALL, KeyRange { first: keys.0, last: keys.1 }];
        for (first, length, open, nan) in ranges {
            let range = range_of(&data_type, first, first + length, open, nan);
            for keys in keys {
                let all = rows_of(view.scan(&ScanRequest { keys, ..ScanRequest::default() }).unwrap());
                let request = ScanRequest {
                    keys,
                    ranges: vec![ColumnRange { column: 1, range: range.clone() }],
                    ..ScanRequest::default()
                };
                let found = rows_of(view.scan(&request).unwrap());
                prop_assert!(found.num_rows() <= all.num_rows());
                prop_assert_eq!(filtered(&found, &range), filtered(&all, &range), "{:?} {:?}", range, keys);
            }
        }
    }
}

#[test]
fn only_pages_that_can_match_are_decoded() {
    let sim = SimEnv::new(1);
    let engine = open(&sim, 2);
    let table = table_of(&engine, &DataType::Int64);
    let rows = 40 * 1_024;
    append(
        &table,
        0..rows,
        Arc::new(Int64Array::from_iter_values(
            (0..rows).map(|row| row / 1_024 % 20),
        )),
    );
    let request = ScanRequest {
        ranges: vec![ColumnRange {
            column: 1,
            range: ValueRange::Int(Some(7), Some(7)),
        }],
        ..ScanRequest::default()
    };
    let mut scan = table.view().unwrap().scan(&request).unwrap();
    let found: usize = scan.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(found, 2 * 1_024);
    assert_eq!(scan.metrics().rows_decoded(), 2 * 1_024);
    // Together with keys within a page.
    let keys = KeyRange {
        first: 7 * 1_024 + 5,
        last: 27 * 1_024 + 9,
    };
    let scan = table
        .view()
        .unwrap()
        .scan(&ScanRequest { keys, ..request })
        .unwrap();
    let found = rows_of(scan);
    let times = found.column(0).as_primitive::<Int64Type>();
    let expected = (7 * 1_024 + 5..8 * 1_024).chain(27 * 1_024..=27 * 1_024 + 9);
    assert_eq!(times.values().to_vec(), expected.collect::<Vec<i64>>());
}

fn define(data_type: &DataType) -> TableDefinition {
    let schema = Schema::new(vec![Field::new("x", data_type.clone(), true)]);
    TableDefinition::create(&Layouts::default(), &schema, &CreateOptions::default()).unwrap()
}

fn block_of(values: &ArrayRef, filters: Vec<u32>) -> EncodedBlock {
    let definition = define(values.data_type());
    let batch = RecordBatch::try_new(Arc::clone(definition.schema()), vec![Arc::clone(values)]);
    let mut blocks = Vec::new();
    BlockEncoder::new(Level::Fast)
        .with_filters(filters)
        .encode(
            TableId(7),
            &definition,
            &batch.unwrap(),
            &vec![0; values.len()],
            &mut blocks,
        )
        .unwrap();
    assert_eq!(blocks.len(), 1);
    blocks.remove(0)
}

fn stored(block: &EncodedBlock) -> (Store, Address, SimEnv) {
    let sim = SimEnv::new(1);
    let path = Path::new("db").join(fragment_name(FILE));
    sim.write_file(&path, &block.bytes).unwrap();
    let address = Address {
        file: FILE,
        offset: 0,
        ..block.entry.address
    };
    let store = Store::new(sim.env(), "db", DatabaseId([1; 16]), 1 << 20);
    (store, address, sim)
}

#[test]
fn small_blocks_and_columns_of_nulls_have_no_zones() {
    let has_zones = |values: ArrayRef| {
        let block = block_of(&values, vec![]);
        let (store, address, _sim) = stored(&block);
        let reader = store.block(&address).unwrap();
        reader.head().chunk(1, Role::ZoneLows).is_some()
    };
    assert!(!has_zones(Arc::new(Int64Array::from(vec![1; 7 * 1_024]))));
    assert!(has_zones(Arc::new(Int64Array::from(vec![
        1;
        7 * 1_024 + 1
    ]))));
    assert!(!has_zones(new_null_array(&DataType::Int64, 9_000)));
    // Their summaries have no bounds.
    assert!(!has_zones(Arc::new(StringArray::from(vec!["a"; 9_000]))));
}

#[test]
fn a_front_has_these_bytes() {
    let values = (0..8 * 1_024).map(|row| (row >= 1_024).then_some(row / 1_024));
    let block = block_of(
        &(Arc::new(Int32Array::from_iter(values)) as ArrayRef),
        vec![1],
    );
    let (store, address, _sim) = stored(&block);
    let head = Arc::clone(store.block(&address).unwrap().head());
    let start = address.head_bytes as usize;
    let zones: usize = [Role::ZoneLows, Role::ZoneHighs]
        .map(|role| head.chunk(1, role).unwrap().bytes as usize)
        .iter()
        .sum();
    let hex: String = block.bytes[start..start + zones]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        hex,
        "01ffffff7f01000000020000000300000004000000050000000600000007000000010000008001000000020000000300000004000000050000000600000007000000"
    );
    let filter = Filter::of_column(&(Arc::new(Int32Array::from_iter(values_of_few())) as ArrayRef));
    let hex: String = filter
        .bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        hex,
        "8008000800000062100010020010420000010104041000084020000440010400"
    );
}

fn values_of_few() -> impl Iterator<Item = Option<i32>> {
    [Some(1), None, Some(-7), Some(100_000)].into_iter()
}

#[test]
fn every_damaged_byte_of_a_front_is_noticed_by_who_reads_it() {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(
        (0..9_000).map(|row| row / 100),
    ));
    let block = block_of(&values, vec![1]);
    let start = block.entry.address.head_bytes as usize;
    let (store, address, _sim) = stored(&block);
    let front_bytes = store.block(&address).unwrap().head().front_bytes() as usize;
    for at in (start..start + front_bytes).step_by(3) {
        let mut damaged = block.clone();
        damaged.bytes[at] ^= 16;
        let (store, address, _sim) = stored(&damaged);
        let mut reader = store.block(&address).unwrap();
        let roles = [Role::ZoneLows, Role::ZoneHighs, Role::Filter];
        let read = reader.read(&roles.map(|role| Wanted::all(1, role)));
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Corruption, "byte {at}");
        assert!(reader.read(&[Wanted::all(1, Role::Values)]).is_ok());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_filter_has_all_its_values_and_few_others(
        values in prop::collection::vec(prop::option::of(any::<i32>()), 1..3_000),
        others in prop::collection::vec(any::<i32>(), 200),
    ) {
        let array: ArrayRef = Arc::new(Int32Array::from_iter(values.iter().copied()));
        let block = block_of(&array, vec![1]);
        let (store, address, _sim) = stored(&block);
        let mut reader = store.block(&address).unwrap();
        let mut decoder = Decoder::new();
        let mut has = |value: i64| may_have_value(&mut reader, &mut decoder, 1, Fingerprint::of_i64(value)).unwrap();
        for value in values.iter().flatten() {
            prop_assert!(has(i64::from(*value)));
        }
        if values.iter().any(Option::is_some) {
            let hits = others.iter().filter(|other| !values.contains(&Some(**other)) && has(i64::from(**other))).count();
            prop_assert!(hits < 25, "{} of 200", hits);
        }
    }
}

#[test]
fn a_probe_reads_one_page_of_the_filter() {
    let values: ArrayRef =
        Arc::new(Int64Array::from_iter_values((0..60_000).map(|row: i64| {
            row.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64.cast_signed())
        })));
    let block = block_of(&values, vec![1]);
    let (store, address, _sim) = stored(&block);
    let mut reader = store.block(&address).unwrap();
    assert!(reader.head().chunk(1, Role::Filter).unwrap().bytes > 64 << 10);
    let before = store.counts().read_bytes;
    let found = may_have_value(&mut reader, &mut Decoder::new(), 1, Fingerprint::of_i64(0));
    assert!(found.unwrap());
    assert!(store.counts().read_bytes - before <= 1_100);
    let none = may_have_value(&mut reader, &mut Decoder::new(), 2, Fingerprint::of_i64(0));
    assert!(none.unwrap(), "a column without a filter may have it");
}

#[test]
fn a_value_has_one_fingerprint_whatever_its_type() {
    let filter = |values: ArrayRef| Filter::of_column(&values).bytes().to_vec();
    let narrow = filter(Arc::new(Int8Array::from(vec![-3, 7])));
    assert_eq!(narrow, filter(Arc::new(Int64Array::from(vec![-3, 7]))));
    let float = filter(Arc::new(Float32Array::from(vec![0.5, -0.0, -f32::NAN])));
    assert_eq!(
        float,
        filter(Arc::new(Float64Array::from(vec![0.5, 0.0, f64::NAN])))
    );
    assert_eq!(
        filter(Arc::new(StringArray::from(vec!["a"]))),
        filter(Arc::new(BinaryArray::from_vec(vec![b"a"])))
    );
    assert_eq!(Fingerprint::of_f64(-0.0), Fingerprint::of_f64(0.0));
    let mut empty = Filter::with_room(0);
    assert!(!empty.may_have(Fingerprint::of_bytes(b"a")));
    empty.add(Fingerprint::of_bytes(b"a"));
    assert!(empty.may_have(Fingerprint::of_bytes(b"a")));
}
