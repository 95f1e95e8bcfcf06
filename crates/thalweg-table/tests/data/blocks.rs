//! Batches as blocks and back.

use crate::random::any_table;
use arrow_array::*;
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use thalweg_codec::{EncodedChunk, Encoder, Level};
use thalweg_env::sim::SimEnv;
use thalweg_kernel::block::{
    BlockBuilder, BlockSpec, Dimension, EncodedBlock, Grid, GridOrder, Paging, Role,
};
use thalweg_kernel::index::Address;
use thalweg_kernel::paths::fragment_name;
use thalweg_kernel::store::Store;
use thalweg_kernel::{DatabaseId, ErrorKind, FileId, TableId};
use thalweg_table::{
    BlockDecoder, BlockEncoder, CreateOptions, Layouts, TableDefinition, ValueRange, decode_block,
};

pub(crate) const TABLE: TableId = TableId(7);
pub(crate) const FILE: FileId = FileId(3);

/// A file of blocks.
pub(crate) struct Blocks {
    pub(crate) sim: SimEnv,
    pub(crate) addresses: Vec<Address>,
}

impl Blocks {
    pub(crate) fn new(blocks: &[EncodedBlock]) -> Self {
        let sim = SimEnv::new(1);
        let mut bytes = vec![0; 100];
        let mut addresses = Vec::new();
        for block in blocks {
            addresses.push(Address {
                file: FILE,
                offset: bytes.len() as u64,
                ..block.entry.address
            });
            bytes.extend_from_slice(&block.bytes);
        }
        sim.write_file(&Path::new("db").join(fragment_name(FILE)), &bytes)
            .unwrap();
        Self { sim, addresses }
    }

    pub(crate) fn store(&self) -> Store {
        Store::new(self.sim.env(), "db", DatabaseId([1; 16]), 1 << 20)
    }
}

/// The rows of a table that is ordered by arrival.
pub(crate) fn encode(
    definition: &TableDefinition,
    batch: &RecordBatch,
    level: Level,
) -> Vec<EncodedBlock> {
    let keys = (0..batch.num_rows() as i64).collect::<Vec<_>>();
    let mut blocks = Vec::new();
    BlockEncoder::new(level)
        .encode(TABLE, definition, batch, &keys, &mut blocks)
        .unwrap();
    blocks
}

pub(crate) fn define(fields: Vec<Field>) -> TableDefinition {
    TableDefinition::create(
        &Layouts::default(),
        &Schema::new(fields),
        &CreateOptions::default(),
    )
    .unwrap()
}

pub(crate) fn one_column(array: ArrayRef) -> (TableDefinition, RecordBatch) {
    let definition = define(vec![Field::new("x", array.data_type().clone(), true)]);
    let batch = RecordBatch::try_new(Arc::clone(definition.schema()), vec![array]).unwrap();
    (definition, batch)
}

pub(crate) fn assert_same_bits(decoded: &RecordBatch, given: &RecordBatch) {
    assert_eq!(decoded.schema(), given.schema());
    for (decoded, given) in decoded.columns().iter().zip(given.columns()) {
        assert_eq!(decoded.to_data(), given.to_data());
    }
}

/// Columns that the encodings beyond packing are chosen for: digits, texts of pieces, numbers whose bytes
/// are quiet, numbers with a long tail, wide numbers that repeat.
#[test]
fn columns_of_every_kind_of_chunk_come_back() {
    let mut rng = fastrand::Rng::with_seed(5);
    let rows = 5_000;
    let digits = (0..rows).map(|row| (row % 7 > 0).then(|| format!("{:016x}", rng.u64(..))));
    let digits: ArrayRef = Arc::new(digits.collect::<StringArray>());
    let pieces = (0..rows).map(|_| format!("plant-{}.line {}", rng.u8(..9), rng.u16(..)));
    let pieces: ArrayRef = Arc::new(pieces.map(Some).collect::<StringArray>());
    let quiet = (0..rows).map(|_| Some(i64::from(rng.u32(..1 << 24)) << 24));
    let quiet: ArrayRef = Arc::new(quiet.collect::<Int64Array>());
    let tail = (0..rows).map(|_| Some(i64::from(rng.u32(..) >> rng.u32(8..32))));
    let tail: ArrayRef = Arc::new(tail.collect::<Int64Array>());
    let wide = (0..rows).map(|_| Some(i128::from(rng.u8(..5)) << 80));
    let wide: ArrayRef = Arc::new(wide.collect::<Decimal128Array>());
    for level in [Level::Fast, Level::Dense] {
        for array in [&digits, &pieces, &quiet, &tail, &wide] {
            let (definition, batch) = one_column(Arc::clone(array));
            let file = Blocks::new(&encode(&definition, &batch, level));
            let (store, address) = (file.store(), &file.addresses[0]);
            let all = decode_block(&definition, &store, address, None, 0..usize::MAX).unwrap();
            assert_same_bits(&all, &batch);
            let part = decode_block(&definition, &store, address, None, 1_000..3_333).unwrap();
            assert_same_bits(&part, &batch.slice(1_000, 2_333));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn rows_come_back(table in any_table(5_000), dense: bool, from in 0..5_000_usize, rows in 1..5_000_usize) {
        let (definition, batch) = table;
        let blocks = encode(&definition, &batch, if dense { Level::Dense } else { Level::Fast });
        prop_assert_eq!(blocks.len(), usize::from(batch.num_rows() > 0));
        let file = Blocks::new(&blocks);
        let Some(address) = file.addresses.first() else { return Ok(()) };
        let store = file.store();
        let decoded = decode_block(&definition, &store, address, None, 0..usize::MAX).unwrap();
        assert_same_bits(&decoded, &batch);

        let ids = definition.columns().iter().rev().step_by(2).map(|column| column.id).collect::<Vec<_>>();
        let positions = ids.iter().map(|id| definition.position(*id).unwrap()).collect::<Vec<_>>();
        let from = from.min(batch.num_rows());
        let to = (from + rows).min(batch.num_rows());
        let part = decode_block(&definition, &store, address, Some(&ids), from..to).unwrap();
        assert_same_bits(&part, &batch.slice(from, to - from).project(&positions).unwrap());

        // What was decoded is encoded to the same bytes.
        let again = encode(&definition, &decoded, if dense { Level::Dense } else { Level::Fast });
        prop_assert_eq!(&again[0].bytes, &blocks[0].bytes);
    }

    #[test]
    fn several_blocks_make_one_batch(table in any_table(3_000), cut in 1..3_000_usize, skip in 0..100_usize) {
        let (definition, batch) = table;
        let cut = cut.min(batch.num_rows());
        let mut blocks = encode(&definition, &batch.slice(0, cut), Level::Fast);
        blocks.extend(encode(&definition, &batch.slice(cut, batch.num_rows() - cut), Level::Fast));
        let file = Blocks::new(&blocks);
        let store = file.store();
        let mut decoder = BlockDecoder::new(&definition, None).unwrap();
        decoder.reserve(batch.num_rows());
        let skip = skip.min(cut);
        for (index, address) in file.addresses.iter().enumerate() {
            decoder.push(&store, address, if index == 0 { skip..usize::MAX } else { 0..usize::MAX }).unwrap();
        }
        let skipped = if file.addresses.is_empty() { 0 } else { skip };
        prop_assert_eq!(decoder.rows(), batch.num_rows() - skipped);
        assert_same_bits(&decoder.finish().unwrap(), &batch.slice(skipped, batch.num_rows() - skipped));
        prop_assert_eq!(decoder.finish().unwrap().num_rows(), 0);
    }

    #[test]
    fn damage_is_an_error_or_not_in_what_was_read(table in any_table(3_000), at: prop::sample::Index, bit in 0..8_u8, page in 0..3_usize) {
        let (definition, batch) = table;
        let blocks = encode(&definition, &batch, Level::Fast);
        prop_assume!(!blocks.is_empty());
        let file = Blocks::new(&blocks);
        let at = at.index(blocks[0].bytes.len());
        let path = Path::new("db").join(fragment_name(FILE));
        file.sim.overwrite_file(&path, 100 + at as u64, &[blocks[0].bytes[at] ^ 1 << bit]).unwrap();
        let all = decode_block(&definition, &file.store(), &file.addresses[0], None, 0..usize::MAX);
        prop_assert_eq!(all.unwrap_err().kind(), ErrorKind::Corruption);
        let rows = page * 1024..(page * 1024 + 1024).min(batch.num_rows());
        match decode_block(&definition, &file.store(), &file.addresses[0], Some(&[1]), rows.clone()) {
            Ok(decoded) => assert_same_bits(&decoded, &batch.slice(rows.start.min(rows.end), rows.len()).project(&[0]).unwrap()),
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corruption),
        }
    }
}

#[test]
fn what_lies_under_nulls_does_not_matter() {
    let nulls = NullBuffer::from(vec![false, true, false, false, true]);
    let pairs: [(ArrayRef, ArrayRef); 4] = [
        (
            Arc::new(Float64Array::new(
                vec![9.0, 1.0, f64::NAN, -3.0, 2.0].into(),
                Some(nulls.clone()),
            )),
            Arc::new(Float64Array::new(
                vec![0.0, 1.0, 0.0, 0.0, 2.0].into(),
                Some(nulls.clone()),
            )),
        ),
        (
            Arc::new(BooleanArray::new(
                BooleanBuffer::from(vec![true; 5]),
                Some(nulls.clone()),
            )),
            Arc::new(BooleanArray::new(
                BooleanBuffer::from(vec![false, true, false, false, true]),
                Some(nulls.clone()),
            )),
        ),
        (
            Arc::new(StringArray::new(
                OffsetBuffer::new(vec![0, 3, 4, 4, 6, 7].into()),
                b"abcxyzw".to_vec().into(),
                Some(nulls.clone()),
            )),
            Arc::new(StringArray::from(vec![
                None,
                Some("x"),
                None,
                None,
                Some("w"),
            ])),
        ),
        (
            Arc::new(Decimal128Array::new(
                vec![7, 1, 7, 7, 2].into(),
                Some(nulls.clone()),
            )),
            Arc::new(Decimal128Array::new(
                vec![0, 1, 0, 0, 2].into(),
                Some(nulls),
            )),
        ),
    ];
    for (dirty, clean) in pairs {
        let (definition, dirty) = one_column(dirty);
        let (_, clean) = one_column(clean);
        assert_eq!(
            encode(&definition, &dirty, Level::Fast)[0].bytes,
            encode(&definition, &clean, Level::Fast)[0].bytes
        );
    }
}

#[test]
fn columns_that_say_little_cost_little() {
    let rows = 4_096;
    let block_bytes = |array: ArrayRef| {
        let (definition, batch) = one_column(array);
        encode(&definition, &batch, Level::Fast)[0].bytes.len()
    };
    assert!(block_bytes(new_null_array(&DataType::Utf8, rows)) < 256);
    assert!(block_bytes(Arc::new(Float64Array::from(vec![1.25; rows]))) < 256);
    assert!(block_bytes(Arc::new(BooleanArray::from(vec![true; rows]))) < 256);
    assert!(block_bytes(Arc::new(StringArray::from(vec!["the same"; rows]))) < 256);
}

#[test]
fn blocks_are_summarised() {
    let fields = vec![
        Field::new("i", DataType::Int32, true),
        Field::new("f", DataType::Float32, true),
        Field::new("u", DataType::UInt64, true),
        Field::new("b", DataType::Boolean, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("d", DataType::Date32, true),
    ];
    let definition = define(fields);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![Some(-4), None, Some(7)])),
        Arc::new(Float32Array::from(vec![f32::NAN, 0.5, -1.5])),
        Arc::new(UInt64Array::from(vec![u64::MAX, 1, 2])),
        Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])),
        Arc::new(StringArray::from(vec![Some("a"), None, None])),
        Arc::new(Date32Array::from(vec![None, None, None])),
    ];
    let batch = RecordBatch::try_new(Arc::clone(definition.schema()), columns).unwrap();
    let entry = encode(&definition, &batch, Level::Fast).remove(0).entry;
    assert_eq!(
        (entry.rows, entry.key_min, entry.key_max, entry.sorted),
        (3, 0, 2, true)
    );
    let [i, f, u, b, s, d] = &entry.columns[..] else {
        panic!("{:?}", entry.columns)
    };
    assert_eq!(
        [i, f, u, b, s, d].map(|summary| summary.column_id),
        [1, 2, 3, 4, 5, 6]
    );
    assert_eq!(
        [i, f, u, b, s, d].map(|summary| summary.null_rows),
        [1, 0, 0, 1, 2, 3]
    );
    assert_eq!((i.int_range(), i.int_sum()), (Some((-4, 7)), Some(3)));
    assert_eq!(
        (f.float_range(), f.nan_rows, f.float_sum()),
        (Some((-1.5, 0.5)), 1, Some(-1.0))
    );
    assert_eq!(u.uint_range(), Some((1, u64::MAX)));
    assert_eq!((b.int_range(), b.int_sum()), (Some((0, 1)), Some(1)));
    assert_eq!(s.value_rows, 1);
    assert_eq!((d.value_rows, d.int_range()), (0, None));
}

#[test]
fn only_what_is_needed_is_read() {
    let rows = 65_536;
    let fields = (0..8)
        .map(|column| Field::new(format!("c{column}"), DataType::Float64, true))
        .collect();
    let definition = define(fields);
    let mut rng = fastrand::Rng::with_seed(3);
    let columns = (0..8).map(|_| -> ArrayRef {
        Arc::new((0..rows).map(|_| Some(rng.f64())).collect::<Float64Array>())
    });
    let batch = RecordBatch::try_new(Arc::clone(definition.schema()), columns.collect()).unwrap();
    let file = Blocks::new(&encode(&definition, &batch, Level::Fast));
    let store = file.store();
    let part = decode_block(
        &definition,
        &store,
        &file.addresses[0],
        Some(&[4]),
        30_000..30_100,
    )
    .unwrap();
    assert_same_bits(&part, &batch.slice(30_000, 100).project(&[3]).unwrap());
    let counts = store.counts();
    assert!(
        counts.reads <= 2 && counts.read_bytes < 64 << 10,
        "{counts:?} of {}",
        file.addresses[0].bytes
    );
}

/// Columns were added, dropped and widened since the block was written.
#[test]
fn blocks_are_read_under_a_later_definition() {
    let rows = 1_500_i32;
    let old = define(vec![
        Field::new("a", DataType::Int16, true),
        Field::new("gone", DataType::Utf8, true),
        Field::new("f", DataType::Float32, true),
        Field::new("u", DataType::UInt8, true),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(
            (0..rows)
                .map(|row| (row % 3 > 0).then_some(row as i16 - 700))
                .collect::<Int16Array>(),
        ),
        Arc::new(StringArray::from(vec!["x"; 1_500])),
        Arc::new(
            (0..rows)
                .map(|row| Some(row as f32 / 10.0))
                .collect::<Float32Array>(),
        ),
        Arc::new((0..rows).map(|row| Some(row as u8)).collect::<UInt8Array>()),
    ];
    let batch = RecordBatch::try_new(Arc::clone(old.schema()), columns).unwrap();
    let file = Blocks::new(&encode(&old, &batch, Level::Fast));
    let decode = |definition: &TableDefinition| {
        decode_block(
            definition,
            &file.store(),
            &file.addresses[0],
            None,
            1_000..1_200,
        )
    };
    let later = concat!(
        r#"{"version":1,"layout":{"kind":"stream","time":null,"split":null,"block_rows":4096},"summaries":"auto","#,
        r#""unique":null,"indexes":[],"filters":[],"retention":null,"next_column_id":7,"columns":["#,
        r#"{"id":1,"name":"A","type":"int64","nullable":true,"default":null,"fill":null,"codec":"auto"},"#,
        r#"{"id":3,"name":"f","type":"float64","nullable":true,"default":null,"fill":null,"codec":"auto"},"#,
        r#"{"id":4,"name":"u","type":"uint32","nullable":true,"default":null,"fill":null,"codec":"auto"},"#,
        r#"{"id":6,"name":"new","type":"string","nullable":true,"default":null,"fill":null,"codec":"auto"}]}"#
    );
    let decoded =
        decode(&TableDefinition::decode(&Layouts::default(), later.as_bytes()).unwrap()).unwrap();
    let range = 1_000..1_200;
    let expected: Vec<ArrayRef> = vec![
        Arc::new(
            range
                .clone()
                .map(|row| (row % 3 > 0).then_some(i64::from(row - 700)))
                .collect::<Int64Array>(),
        ),
        Arc::new(
            range
                .clone()
                .map(|row| Some(f64::from(row as f32 / 10.0)))
                .collect::<Float64Array>(),
        ),
        Arc::new(
            range
                .clone()
                .map(|row| Some(u32::from(row as u8)))
                .collect::<UInt32Array>(),
        ),
        new_null_array(&DataType::Utf8, range.len()),
    ];
    assert_eq!(decoded.columns(), expected);
    // Types that were never widened to, and columns that may not be null, are damage.
    for (from, to) in [
        ("int64", "uint64"),
        (
            r#""A","type":"int64","nullable":true"#,
            r#""A","type":"int64","nullable":false"#,
        ),
    ] {
        let other =
            TableDefinition::decode(&Layouts::default(), later.replacen(from, to, 1).as_bytes())
                .unwrap();
        assert_eq!(decode(&other).unwrap_err().kind(), ErrorKind::Corruption);
    }
}

#[test]
fn large_values_are_cut_into_several_blocks() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut random =
        |bytes: usize| -> Vec<u8> { std::iter::repeat_with(|| rng.u8(..)).take(bytes).collect() };
    let values = (0..7).map(|_| random(16 << 20)).collect::<Vec<_>>();
    let (definition, batch) = one_column(Arc::new(BinaryArray::from_iter_values(&values)));
    let blocks = encode(&definition, &batch, Level::Fast);
    let rows = blocks.iter().map(|block| block.entry.rows).sum::<u64>();
    assert!(blocks.len() >= 4 && rows == 7, "{} blocks", blocks.len());
    assert!(
        blocks
            .windows(2)
            .all(|pair| pair[0].entry.key_max + 1 == pair[1].entry.key_min)
    );
    let file = Blocks::new(&blocks);
    let decoded = file
        .addresses
        .iter()
        .map(|address| decode_block(&definition, &file.store(), address, None, 0..9).unwrap());
    assert_eq!(
        concat_batches(definition.schema(), &decoded.collect::<Vec<_>>()).unwrap(),
        batch
    );

    // One row that does not fit a block.
    let definition = define(
        (0..5)
            .map(|column| Field::new(format!("c{column}"), DataType::Binary, true))
            .collect(),
    );
    let columns = values[..5]
        .iter()
        .map(|value| -> ArrayRef { Arc::new(BinaryArray::from_iter_values([value])) });
    let batch = RecordBatch::try_new(Arc::clone(definition.schema()), columns.collect()).unwrap();
    let error = BlockEncoder::new(Level::Fast)
        .encode(TABLE, &definition, &batch, &[0], &mut Vec::new())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
}

#[test]
fn batches_of_another_schema_are_refused() {
    let (definition, _) = one_column(Arc::new(Int64Array::from(vec![1])));
    let (_, batch) = one_column(Arc::new(Int32Array::from(vec![1])));
    let error = BlockEncoder::new(Level::Fast)
        .encode(TABLE, &definition, &batch, &[0], &mut Vec::new())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(BlockDecoder::new(&definition, Some(&[2])).is_err());
    assert!(BlockDecoder::new(&definition, Some(&[1, 1])).is_err());
}

/// A block of one column of numbers, with what a stream does not have.
fn foreign(
    spec: impl FnOnce(&mut BlockSpec),
    paging: Paging,
    more: &[(u32, Role)],
) -> EncodedBlock {
    let mut stream = BlockSpec {
        table: TABLE,
        layout: 1,
        level: 0,
        order: 0,
        positions: 100,
        rows: 100,
        key: 0,
        sorted: true,
        implicit_key: true,
    };
    spec(&mut stream);
    let mut builder = BlockBuilder::with_paging(stream, paging, 1);
    let (mut encoder, mut chunk) = (Encoder::new(Level::Fast), EncodedChunk::new());
    for (column_id, role) in more.iter().chain(&[(1, Role::Values)]) {
        match role {
            Role::Presence => encoder.encode_bits(&[255; 13], 100, &mut chunk),
            _ => encoder.encode(&[7_i64; 100], &mut chunk),
        }
        .unwrap();
        if *column_id <= 1 {
            builder.add_chunk(*column_id, *role, &chunk).unwrap();
        }
    }
    for (column_id, role) in more.iter().filter(|(column_id, _)| *column_id > 1) {
        builder.add_chunk(*column_id, *role, &chunk).unwrap();
    }
    builder.finish((0, 0), vec![]).unwrap()
}

#[test]
fn blocks_that_no_stream_has_are_refused() {
    let (definition, _) = one_column(Arc::new(Int64Array::from(vec![1])));
    let kind = |block: EncodedBlock| {
        let file = Blocks::new(&[block]);
        let address = &file.addresses[0];
        let decoded = decode_block(&definition, &file.store(), address, None, 0..100);
        decoded
            .map(|batch| batch.num_rows())
            .map_err(|error| error.kind())
    };
    let plain = || Paging::default();
    assert_eq!(kind(foreign(|_| (), plain(), &[])), Ok(100));
    let presence = [(0, Role::Presence)];
    let empty = foreign(|spec| spec.rows = 99, plain(), &presence);
    assert_eq!(kind(empty), Err(ErrorKind::Corruption));
    let short_pages = foreign(|spec| spec.sorted = false, Paging::Even(128), &[]);
    assert_eq!(kind(short_pages), Err(ErrorKind::Unsupported));
    let dimension = Dimension {
        column_id: 9,
        first: 0,
        step: 1,
        extent: 100,
        page_extent: 100,
    };
    let grid = Grid::new(GridOrder::RowMajor, GridOrder::RowMajor, vec![dimension]).unwrap();
    let tile = foreign(|spec| spec.layout = 4, Paging::Grid(grid), &[]);
    assert_eq!(kind(tile), Err(ErrorKind::Unsupported));
    for (id, expected) in [
        (0xFF_FEFF, Ok(100)),
        (0xFF_FF00, Err(ErrorKind::Unsupported)),
        (0xFF_FFFB, Err(ErrorKind::Unsupported)),
        (0xFF_FFFC, Err(ErrorKind::Corruption)),
        (0xFF_FFFE, Err(ErrorKind::Unsupported)),
        (0xFF_FFFF, Err(ErrorKind::Corruption)),
    ] {
        let block = foreign(|_| (), plain(), &[(id, Role::Values)]);
        assert_eq!(kind(block), expected, "{id:x}");
    }
}

#[test]
fn rows_of_more_pages_than_a_block_has_become_several() {
    let (columns, rows) = (2_700, 50 * 1_024);
    let fields =
        (0..columns).map(|column| Field::new(format!("c{column}"), DataType::Boolean, true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let definition =
        TableDefinition::create(&Layouts::default(), &schema, &CreateOptions::default()).unwrap();
    let column: ArrayRef = Arc::new(BooleanArray::from(vec![true; rows]));
    let batch = RecordBatch::try_new(Arc::clone(definition.schema()), vec![column; columns]);
    let blocks = encode(&definition, &batch.unwrap(), Level::Fast);
    let found: Vec<u64> = blocks.iter().map(|block| block.entry.rows).collect();
    assert_eq!(found, [25 * 1_024, 25 * 1_024]);
}

#[test]
fn blocks_know_the_bounds_of_decimals() {
    let entry_of = |values: Vec<Option<i128>>| {
        let array = Arc::new(Decimal128Array::from(values));
        let (definition, batch) = one_column(array);
        encode(&definition, &batch, Level::Fast)[0].entry.clone()
    };
    let entry = entry_of(vec![Some(-250), None, Some(1_300)]);
    let [summary] = &entry.columns[..] else {
        panic!("one summary, not {:?}", entry.columns);
    };
    assert_eq!(summary.decimal_range(), Some((-250, 1_300, true)));
    assert_eq!(summary.decimal_sum(), Some(1_050));
    assert_eq!(summary.null_rows, 1);
    let prunes = |low, high| entry.prunes(summary.column_id, &ValueRange::Decimal(low, high));
    assert!(prunes(Some(1_301), None) && prunes(None, Some(-251)));
    assert!(!prunes(Some(1_300), None) && !prunes(None, Some(-250)));
    let too_large = entry_of(vec![Some(1), Some(10_i128.pow(38))]);
    assert!(too_large.columns.is_empty(), "{:?}", too_large.columns);
}
