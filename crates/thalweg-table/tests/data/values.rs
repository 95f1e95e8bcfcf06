//! Single rows of blocks, against the rows that were encoded.

use crate::blocks::{Blocks, FILE, TABLE, assert_same_bits, define, encode};
use crate::random::any_table;
use arrow_array::*;
use arrow_schema::{DataType, Field};
use arrow_select::take::take;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use thalweg_codec::{EncodedChunk, Encoder, Level, Paging as CodecPaging};
use thalweg_kernel::ErrorKind;
use thalweg_kernel::block::{
    BlockBuilder, BlockSpec, Dimension, EncodedBlock, Grid, GridOrder, Paging, Role,
};
use thalweg_kernel::paths::fragment_name;
use thalweg_table::{TableDefinition, ValueDecoder, decode_block};

fn taken(batch: &RecordBatch, positions: &[u32]) -> RecordBatch {
    let positions = UInt32Array::from(positions.to_vec());
    let columns = batch.columns().iter();
    let columns = columns.map(|column| take(column, &positions, None).unwrap());
    let options = RecordBatchOptions::new().with_row_count(Some(positions.len()));
    RecordBatch::try_new_with_options(batch.schema(), columns.collect(), &options).unwrap()
}

/// Positions that ascend, some of them several times, often near each other.
fn positions_of(picks: &[(prop::sample::Index, u8)], rows: usize) -> Vec<u32> {
    let picks = picks.iter().flat_map(|(index, near)| {
        let first = index.index(rows);
        let near = usize::from(*near);
        let count = if near > 200 { near - 200 } else { 1 };
        (0..count).map(move |at| (first + at * (near % 3)).min(rows - 1) as u32)
    });
    let mut positions: Vec<u32> = picks.collect();
    positions.sort_unstable();
    positions
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_those_that_were_encoded(
        table in any_table(5_000),
        dense: bool,
        calls in prop::collection::vec(prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20), 1..4),
    ) {
        let (definition, batch) = table;
        let file = Blocks::new(&encode(&definition, &batch, if dense { Level::Dense } else { Level::Fast }));
        let Some(address) = file.addresses.first() else { return Ok(()) };
        let store = file.store();
        let ids = definition.columns().iter().rev().step_by(2).map(|column| column.id).collect::<Vec<_>>();
        let places = ids.iter().map(|id| definition.position(*id).unwrap()).collect::<Vec<_>>();
        let mut all = ValueDecoder::new(&definition, None).unwrap();
        let mut some = ValueDecoder::new(&definition, Some(&ids)).unwrap();
        let calls: Vec<Vec<u32>> = calls.iter().map(|picks| positions_of(picks, batch.num_rows())).collect();
        for positions in &calls {
            all.push(&store, address, positions).unwrap();
            prop_assert_eq!(all.rows(), positions.len());
            assert_same_bits(&all.finish().unwrap(), &taken(&batch, positions));
        }
        // Several calls make one batch, and the second time nothing is read.
        let before = store.counts();
        for positions in &calls {
            some.push(&store, address, positions).unwrap();
        }
        let after = store.counts();
        prop_assert_eq!((after.reads, after.data_pages_loaded), (before.reads, before.data_pages_loaded));
        let expected = taken(&batch.project(&places).unwrap(), &calls.concat());
        assert_same_bits(&some.finish().unwrap(), &expected);
    }

    #[test]
    fn damage_is_an_error_or_not_in_what_was_read(
        table in any_table(3_000),
        at: prop::sample::Index,
        bit in 0..8_u8,
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let (definition, batch) = table;
        let blocks = encode(&definition, &batch, Level::Fast);
        prop_assume!(!blocks.is_empty());
        let file = Blocks::new(&blocks);
        let path = Path::new("db").join(fragment_name(FILE));
        let at = at.index(blocks[0].bytes.len());
        file.sim.overwrite_file(&path, 100 + at as u64, &[blocks[0].bytes[at] ^ 1 << bit]).unwrap();
        let positions = positions_of(&picks, batch.num_rows());
        let store = file.store();
        for _ in 0..2 {
            let mut decoder = ValueDecoder::new(&definition, None).unwrap();
            match decoder.push(&store, &file.addresses[0], &positions) {
                Ok(()) => assert_same_bits(&decoder.finish().unwrap(), &taken(&batch, &positions)),
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corruption),
            }
        }
    }
}

/// A table of three dimensions of a grid, numbers and texts, in an order that is not theirs.
fn grid_table() -> TableDefinition {
    define(vec![
        Field::new("text", DataType::Utf8, true),
        Field::new("x", DataType::UInt64, false),
        Field::new("value", DataType::Int64, true),
        Field::new("y", DataType::Int16, false),
        Field::new("flag", DataType::Boolean, true),
        Field::new("t", DataType::Date32, false),
    ])
}

fn grid_of(page_order: GridOrder, position_order: GridOrder) -> Grid {
    let dimension = |column_id, first, step, extent, page_extent| Dimension {
        column_id,
        first,
        step,
        extent,
        page_extent,
    };
    let dimensions = vec![
        // 2^63 - 5 as an order key.
        dimension(2, -5, 3, 11, 4),
        dimension(4, -30, 1, 23, 7),
        dimension(6, 0, 7, 9, 9),
    ];
    Grid::new(page_order, position_order, dimensions).unwrap()
}

/// What a cell of the grid holds; `None` where there is none.
fn value_at(position: usize, is_full: bool) -> Option<i64> {
    (is_full || position % 5 != 3).then_some(position as i64 * 77 - 1_000)
}

fn grid_block(grid: &Grid, is_full: bool) -> EncodedBlock {
    let positions = grid.positions();
    let cells = 0..positions as usize;
    let rows = cells.clone().filter(|p| value_at(*p, is_full).is_some());
    let spec = BlockSpec {
        table: TABLE,
        layout: 4,
        level: 0,
        order: 0,
        positions,
        rows: rows.count() as u32,
        key: 0,
        sorted: false,
        implicit_key: false,
    };
    let ends: Vec<u32> = (0..grid.pages())
        .map(|page| grid.page_range(page).end as u32)
        .collect();
    let paging = CodecPaging::RowEnds(&ends);
    let mut builder = BlockBuilder::with_paging(spec, Paging::Grid(grid.clone()), 4);
    let (mut chunk, mut encoder) = (EncodedChunk::new(), Encoder::new(Level::Fast));
    let bits = |is_set: &dyn Fn(usize) -> bool| {
        let mut bits = vec![0; cells.len().div_ceil(8)];
        for cell in cells.clone().filter(|cell| is_set(*cell)) {
            bits[cell / 8] |= 1 << (cell % 8);
        }
        bits
    };
    let text = |cell: usize| value_at(cell, is_full).map(|value| format!("cell {value}"));
    let (mut offsets, mut data) = (vec![0_i32], Vec::new());
    for cell in cells.clone() {
        data.extend_from_slice(text(cell).unwrap_or_default().as_bytes());
        offsets.push(data.len() as i32);
    }
    let values: Vec<i64> = cells
        .clone()
        .map(|cell| value_at(cell, is_full).unwrap_or(0))
        .collect();
    let has = |cell: usize| value_at(cell, is_full).is_some();
    if !is_full {
        encoder
            .encode_bits_paged(&bits(&has), cells.len(), paging, &mut chunk)
            .unwrap();
        builder.add_chunk(0, Role::Presence, &chunk).unwrap();
    }
    encoder
        .encode_bytes_paged(&offsets, &data, paging, &mut chunk)
        .unwrap();
    builder.add_chunk(1, Role::Values, &chunk).unwrap();
    encoder.encode_paged(&values, paging, &mut chunk).unwrap();
    builder.add_chunk(3, Role::Values, &chunk).unwrap();
    let valid = |cell: usize| has(cell) && cell % 7 != 1;
    encoder
        .encode_bits_paged(&bits(&valid), cells.len(), paging, &mut chunk)
        .unwrap();
    builder.add_chunk(3, Role::Validity, &chunk).unwrap();
    // Column 5 is null throughout.
    builder.finish((0, 0), vec![]).unwrap()
}

#[test]
fn cells_of_a_grid_have_their_coordinates() {
    let definition = grid_table();
    for orders in [
        (GridOrder::RowMajor, GridOrder::RowMajor),
        (GridOrder::ColumnMajor, GridOrder::RowMajor),
        (GridOrder::RowMajor, GridOrder::ColumnMajor),
    ] {
        let grid = grid_of(orders.0, orders.1);
        for is_full in [true, false] {
            let file = Blocks::new(&[grid_block(&grid, is_full)]);
            let (store, address) = (file.store(), &file.addresses[0]);
            let mut decoder = ValueDecoder::new(&definition, None).unwrap();
            let cells: Vec<u32> = (0..grid.positions())
                .step_by(3)
                .filter(|cell| value_at(*cell as usize, is_full).is_some())
                .collect();
            decoder.push(&store, address, &cells).unwrap();
            let batch = decoder.finish().unwrap();
            let (mut x, mut y, mut t) = (Vec::new(), Vec::new(), Vec::new());
            for cell in &cells {
                let mut index = [0; 3];
                grid.index(*cell as usize, &mut index);
                x.push((1_u64 << 63) - 5 + 3 * u64::from(index[0]));
                y.push(-30 + index[1] as i16);
                t.push(7 * index[2] as i32);
            }
            let values = cells.iter().map(|cell| {
                let value = value_at(*cell as usize, is_full);
                value.filter(|_| cell % 7 != 1)
            });
            let texts = cells.iter().map(|cell| {
                let value = value_at(*cell as usize, is_full).unwrap();
                Some(format!("cell {value}"))
            });
            let columns: Vec<ArrayRef> = vec![
                Arc::new(texts.collect::<StringArray>()),
                Arc::new(UInt64Array::from(x)),
                Arc::new(values.collect::<Int64Array>()),
                Arc::new(Int16Array::from(y)),
                new_null_array(&DataType::Boolean, cells.len()),
                Arc::new(Date32Array::from(t)),
            ];
            let expected = RecordBatch::try_new(Arc::clone(definition.schema()), columns).unwrap();
            assert_same_bits(&batch, &expected);
            if is_full {
                continue;
            }
            let empty = decoder.push(&store, address, &[1, 3, 4]).unwrap_err();
            assert_eq!(empty.kind(), ErrorKind::Invalid);
            assert!(
                empty.message().contains("position 3 of a block is empty"),
                "{empty}"
            );
        }
    }
}

#[test]
fn positions_beyond_a_block_are_refused() {
    let definition = define(vec![Field::new("x", DataType::Int64, true)]);
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
    let batch = RecordBatch::try_new(Arc::clone(definition.schema()), vec![column]).unwrap();
    let file = Blocks::new(&encode(&definition, &batch, Level::Fast));
    let (store, address) = (file.store(), &file.addresses[0]);
    let mut decoder = ValueDecoder::new(&definition, None).unwrap();
    let beyond = decoder.push(&store, address, &[5, 100]).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::Invalid);
    assert!(
        beyond.message().contains("no row at position 100"),
        "{beyond}"
    );
    decoder.push(&store, address, &[]).unwrap();
    assert_eq!(decoder.finish().unwrap().num_rows(), 0);
}

#[test]
fn only_pages_of_the_wanted_rows_are_read() {
    let definition = define(vec![
        Field::new("x", DataType::Int64, true),
        Field::new("y", DataType::Int64, true),
    ]);
    let mut rng = fastrand::Rng::with_seed(1);
    let rows = 300_000;
    let mut column =
        || -> ArrayRef { Arc::new((0..rows).map(|_| Some(rng.i64(..))).collect::<Int64Array>()) };
    let columns = vec![column(), column()];
    let batch = RecordBatch::try_new(Arc::clone(definition.schema()), columns).unwrap();
    let file = Blocks::new(&encode(&definition, &batch, Level::Fast));
    let (store, address) = (file.store(), &file.addresses[0]);
    let mut decoder = ValueDecoder::new(&definition, None).unwrap();
    let head = store.block(address).unwrap().head().memory_bytes();
    assert!(head < 100_000, "{head}");
    let before = store.counts();
    decoder
        .push(&store, address, &[5, 6, 1_023, 200_000])
        .unwrap();
    let after = store.counts();
    assert_eq!(after.data_pages_loaded - before.data_pages_loaded, 4);
    assert_eq!(after.reads - before.reads, 4);
    assert!(after.read_bytes - before.read_bytes < 4 * 8_300);
    decoder.push(&store, address, &[7, 1_000, 200_500]).unwrap();
    let again = store.counts();
    assert_eq!((again.reads, again.data_page_hits), (after.reads, 4));
    let positions = [5, 6, 1_023, 200_000, 7, 1_000, 200_500];
    assert_same_bits(&decoder.finish().unwrap(), &taken(&batch, &positions));
    // A scan leaves the cache as it is.
    let cached = store.cached_bytes();
    decode_block(&definition, &store, address, None, 0..usize::MAX).unwrap();
    assert_eq!(store.cached_bytes(), cached);
}

#[test]
fn values_of_narrower_types_are_widened() {
    let stored = define(vec![
        Field::new("x", DataType::Int16, true),
        Field::new("f", DataType::Float32, true),
    ]);
    let x: ArrayRef = Arc::new(
        (0..3_000)
            .map(|n| (n % 9 != 0).then_some(n as i16 - 1_500))
            .collect::<Int16Array>(),
    );
    let f: ArrayRef = Arc::new(
        (0..3_000)
            .map(|n| Some(n as f32 / 4.0))
            .collect::<Float32Array>(),
    );
    let batch = RecordBatch::try_new(Arc::clone(stored.schema()), vec![x, f]).unwrap();
    let file = Blocks::new(&encode(&stored, &batch, Level::Fast));
    let (store, address) = (file.store(), &file.addresses[0]);
    let wide = define(vec![
        Field::new("x", DataType::Int64, true),
        Field::new("f", DataType::Float64, true),
    ]);
    let mut decoder = ValueDecoder::new(&wide, None).unwrap();
    for positions in [vec![1, 9, 2_999], (0..2_000).collect::<Vec<u32>>()] {
        decoder.push(&store, address, &positions).unwrap();
        let all = decode_block(&wide, &store, address, None, 0..usize::MAX).unwrap();
        assert_same_bits(&decoder.finish().unwrap(), &taken(&all, &positions));
    }
    let narrow = define(vec![Field::new("x", DataType::Int8, true)]);
    let mut decoder = ValueDecoder::new(&narrow, None).unwrap();
    let error = decoder.push(&store, address, &[1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let required = define(vec![Field::new("x", DataType::Int16, false)]);
    let mut decoder = ValueDecoder::new(&required, None).unwrap();
    assert!(decoder.push(&store, address, &[1]).is_err());
}
