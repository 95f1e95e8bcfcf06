//! Measures single rows out of cached blocks, and regions and columns out of blocks with a page grid:
//! `cargo run --release -p thalweg-table --example values`.
//!
//! Data are seeded; what is read is compared with its source before anything is timed. Files are in the page cache of the system.
#![allow(clippy::unwrap_used, reason = "an example")]
#![allow(clippy::print_stdout, reason = "it prints a table")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]

mod common;

use arrow_array::*;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use std::hint::black_box;
use std::sync::Arc;
use thalweg_codec::{EncodedChunk, Encoder, LastStage, Level, Paging as CodecPaging};
use thalweg_env::Env;
use thalweg_kernel::TableId;
use thalweg_kernel::block::{
    BlockBuilder, BlockSpec, Dimension, EncodedBlock, Grid, GridOrder, Paging, Role,
};
use thalweg_kernel::index::Address;
use thalweg_kernel::store::Store;
use thalweg_table::{
    BlockEncoder, BlockRegion, CreateOptions, Layouts, RegionReader, Strided, TableDefinition,
    ValueDecoder, order_keys,
};

const TABLE: TableId = TableId(1);
const CACHE_BYTES: u64 = 256 << 20;
const ROUNDS: usize = 25;

fn main() {
    println!("one row of a block whose pages are in memory, all columns, as an Arrow batch:");
    for level in [Level::Fast, Level::Dense] {
        for rows in [4_096, 1 << 17, 1 << 20, 1 << 22] {
            single_rows(
                &format!("9 numbers, {level:?}"),
                &sensors(),
                rows,
                sensor_block(rows, level),
            );
        }
        let (definition, batch) = mixed(1 << 16);
        let mut blocks = Vec::new();
        let keys = order_keys(batch.column(0)).unwrap();
        BlockEncoder::new(level)
            .encode(TABLE, &definition, &batch, &keys, &mut blocks)
            .unwrap();
        let what = format!("3 texts, 3 numbers, nulls, {level:?}");
        single_rows(&what, &definition, batch.num_rows(), blocks.swap_remove(0));
    }
    println!("regions of int32, tiles of 2,500 x 1,000, pages of 64 x 64:");
    for (what, walk) in [("walk of small steps", 7), ("walk of large steps", 3_001)] {
        regions(what, walk);
    }
}

/// The shortest and the median of some runs, in seconds.
fn times_s(rounds: usize, mut run: impl FnMut()) -> (f64, f64) {
    let clock = Env::os().clock().clone();
    let once = |_| {
        let start_ns = clock.monotonic_ns();
        run();
        (clock.monotonic_ns() - start_ns) as f64 / 1e9
    };
    let mut times: Vec<f64> = (0..rounds).map(once).collect();
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2])
}

fn stored(blocks: &[EncodedBlock]) -> (tempfile::TempDir, Arc<Store>, Vec<Address>) {
    let folder = tempfile::tempdir().unwrap();
    let (store, addresses) = common::stored(folder.path(), blocks, CACHE_BYTES);
    (folder, Arc::new(store), addresses)
}

fn sensors() -> TableDefinition {
    let mut fields = vec![Field::new(
        "ts",
        DataType::Timestamp(TimeUnit::Millisecond, None),
        false,
    )];
    for name in ["load", "user", "sys", "temp", "press", "volt", "amp"] {
        fields.push(Field::new(name, DataType::Float64, false));
    }
    fields.push(Field::new("status", DataType::Int16, false));
    TableDefinition::create(
        &Layouts::default(),
        &Schema::new(fields),
        &CreateOptions::stream("ts"),
    )
    .unwrap()
}

fn spec(positions: usize, layout: u8) -> BlockSpec {
    let positions = u32::try_from(positions).unwrap();
    BlockSpec {
        table: TABLE,
        layout,
        level: 0,
        order: 0,
        positions,
        rows: positions,
        key: 0,
        sorted: layout == 1,
        implicit_key: false,
    }
}

/// A clock with jitter, seven slow walks of two decimals, a status that hardly changes.
fn sensor_block(rows: usize, level: Level) -> EncodedBlock {
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut encoder, mut chunk) = (Encoder::new(level), EncodedChunk::new());
    let mut builder = BlockBuilder::new(spec(rows, 1), 9);
    let mut time = 1_767_225_600_000;
    let times: Vec<i64> = (0..rows)
        .map(|_| {
            time += 1_000 + i64::from(rng.i8(-3..4));
            time
        })
        .collect();
    encoder.encode(&times, &mut chunk).unwrap();
    builder.add_chunk(1, Role::Values, &chunk).unwrap();
    for column_id in 2..9 {
        let mut value = 50.0;
        let values: Vec<f64> = (0..rows)
            .map(|_| {
                value += (rng.f64() - 0.5) * 0.4;
                (value * 100.0_f64).round() / 100.0
            })
            .collect();
        encoder.encode(&values, &mut chunk).unwrap();
        builder.add_chunk(column_id, Role::Values, &chunk).unwrap();
    }
    let status: Vec<i16> = (0..rows).map(|row| (row / 5_000 % 3) as i16).collect();
    encoder.encode(&status, &mut chunk).unwrap();
    builder.add_chunk(9, Role::Values, &chunk).unwrap();
    let keys = (times[0], times[rows - 1]);
    builder.finish(keys, Vec::new()).unwrap()
}

fn mixed(rows: usize) -> (TableDefinition, RecordBatch) {
    let mut rng = fastrand::Rng::with_seed(2);
    let times = (0..rows as i64).map(|row| row * 1_000);
    let hosts = (0..rows).map(|_| Some(format!("host-{:02}.plant.example", rng.u8(..40))));
    let hosts: StringArray = hosts.collect();
    let ids = (0..rows).map(|row| Some(format!("req-{row:08}")));
    let digits = (0..rows).map(|_| Some(format!("{:016x}", rng.u64(..))));
    let digits: StringArray = digits.collect();
    let holes = (0..rows).map(|_| (rng.u8(..) > 25).then(|| rng.i64(0..100_000)));
    let holes: Int64Array = holes.collect();
    let noise = (0..rows).map(|_| Some(rng.f64())).collect::<Float64Array>();
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "ts",
            Arc::new(TimestampMillisecondArray::from_iter_values(times)),
        ),
        ("host", Arc::new(hosts)),
        ("id", Arc::new(ids.collect::<StringArray>())),
        ("digits", Arc::new(digits)),
        ("holes", Arc::new(holes)),
        ("noise", Arc::new(noise)),
    ];
    let fields = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), *name != "ts"));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let definition =
        TableDefinition::create(&Layouts::default(), &schema, &CreateOptions::stream("ts"))
            .unwrap();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::clone(definition.schema()), arrays).unwrap();
    (definition, batch)
}

fn single_rows(what: &str, definition: &TableDefinition, rows: usize, block: EncodedBlock) {
    let (_folder, store, addresses) = stored(std::slice::from_ref(&block));
    let mut decoder = ValueDecoder::new(definition, None).unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    let picks: Vec<u32> = (0..500).map(|_| rng.u32(..rows as u32)).collect();
    // All pages that the rows lie in come into memory, and the rows are those of a scan.
    for pick in picks.iter().take(20) {
        decoder.push(&store, &addresses[0], &[*pick]).unwrap();
        let row = decoder.finish().unwrap();
        let range = *pick as usize..*pick as usize + 1;
        let expected =
            thalweg_table::decode_block(definition, &store, &addresses[0], None, range).unwrap();
        assert_eq!(row, expected);
    }
    let mut read = || {
        for pick in &picks {
            decoder.push(&store, &addresses[0], &[*pick]).unwrap();
            black_box(decoder.finish().unwrap());
        }
    };
    read();
    let before = store.counts();
    let (shortest, median) = times_s(ROUNDS, read);
    assert_eq!(store.counts().reads, before.reads, "all in memory");
    let per_row = |seconds: f64| seconds * 1e6 / picks.len() as f64;
    println!(
        "  {what:36} {rows:8} rows, {:9} bytes: {:6.2} us a row at best, {:6.2} at the median",
        block.bytes.len(),
        per_row(shortest),
        per_row(median),
    );
}

const TILE: (u32, u32) = (2_500, 1_000);
const ARRAY: (usize, usize) = (10_000, 2_000);

/// The tile and the index in it of a cell.
fn tile_of(cell: (usize, usize)) -> (usize, usize) {
    (cell.0 / TILE.0 as usize, cell.1 / TILE.1 as usize)
}

fn tile_block(array: &[i32], tile: (usize, usize), encoder: &mut Encoder) -> EncodedBlock {
    let dimension = |column_id, tile: usize, extent: u32| Dimension {
        column_id,
        first: tile as i64 * i64::from(extent),
        step: 1,
        extent,
        page_extent: 64,
    };
    let dimensions = vec![dimension(1, tile.0, TILE.0), dimension(2, tile.1, TILE.1)];
    let grid = Grid::new(GridOrder::RowMajor, GridOrder::RowMajor, dimensions).unwrap();
    let ends: Vec<u32> = (0..grid.pages())
        .map(|page| grid.page_range(page).end as u32)
        .collect();
    let positions = grid.positions() as usize;
    let mut values = vec![0; positions];
    let mut index = [0; 2];
    for (position, value) in values.iter_mut().enumerate() {
        grid.index(position, &mut index);
        let row = tile.0 * TILE.0 as usize + index[0] as usize;
        let column = tile.1 * TILE.1 as usize + index[1] as usize;
        *value = array[row * ARRAY.1 + column];
    }
    let mut chunk = EncodedChunk::new();
    encoder
        .encode_paged(&values, CodecPaging::RowEnds(&ends), &mut chunk)
        .unwrap();
    let mut builder = BlockBuilder::with_paging(spec(positions, 4), Paging::Grid(grid), 1);
    builder.add_chunk(3, Role::Values, &chunk).unwrap();
    builder.finish((0, 0), Vec::new()).unwrap()
}

/// The parts of a region of the array in its tiles.
fn parts(
    addresses: &[Address],
    first: (usize, usize),
    extents: (usize, usize),
) -> Vec<BlockRegion> {
    let end = (first.0 + extents.0, first.1 + extents.1);
    let (low, high) = (tile_of(first), tile_of((end.0 - 1, end.1 - 1)));
    let mut parts = Vec::new();
    for row in low.0..=high.0 {
        for column in low.1..=high.1 {
            let corner = (row * TILE.0 as usize, column * TILE.1 as usize);
            let start = (first.0.max(corner.0), first.1.max(corner.1));
            let stop = (
                end.0.min(corner.0 + TILE.0 as usize),
                end.1.min(corner.1 + TILE.1 as usize),
            );
            parts.push(BlockRegion {
                block: addresses[row * (ARRAY.1 / TILE.1 as usize) + column],
                start: vec![(start.0 - corner.0) as u32, (start.1 - corner.1) as u32],
                extents: vec![(stop.0 - start.0) as u32, (stop.1 - start.1) as u32],
                at: vec![start.0 - first.0, start.1 - first.1],
            });
        }
    }
    parts
}

fn regions(what: &str, step: i32) {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut value = 0_i32;
    let array: Vec<i32> = (0..ARRAY.0 * ARRAY.1)
        .map(|_| {
            value = value.wrapping_add(rng.i32(-step..=step));
            value
        })
        .collect();
    for stage in [None, Some(LastStage::Lz4)] {
        let mut encoder = Encoder::new(Level::Fast);
        if let Some(stage) = stage {
            encoder = encoder.with_last_stage(stage);
        }
        let tiles = (ARRAY.0 / TILE.0 as usize, ARRAY.1 / TILE.1 as usize);
        let blocks: Vec<EncodedBlock> = (0..tiles.0 * tiles.1)
            .map(|tile| tile_block(&array, (tile / tiles.1, tile % tiles.1), &mut encoder))
            .collect();
        let bytes: usize = blocks.iter().map(|block| block.bytes.len()).sum();
        let name = stage.map_or("as chosen".to_owned(), |stage| {
            format!("{stage:?} asked for")
        });
        println!(
            "  {what}, {name}: {:.2} of 4 bytes a cell",
            bytes as f64 / array.len() as f64
        );
        let (_folder, store, addresses) = stored(&blocks);
        for threads in [1, 2] {
            let reader = RegionReader::new(Arc::clone(&store), TABLE, threads);
            for (what, first, extents) in [
                ("1,000 x 1,000 in one tile", (700, 0), (1_000, 1_000)),
                ("1,000 x 1,000 of four tiles", (2_000, 500), (1_000, 1_000)),
                ("a tile", (2_500, 1_000), (2_500, 1_000)),
                ("a column of 10,000", (0, 777), (10_000, 1)),
                ("a row of 2,000", (4_321, 0), (1, 2_000)),
            ] {
                measure_region(&reader, &array, &addresses, (what, first, extents), threads);
            }
        }
        single_cells(&store, &array, &addresses);
    }
}

fn measure_region(
    reader: &RegionReader,
    array: &[i32],
    addresses: &[Address],
    (what, first, extents): (&str, (usize, usize), (usize, usize)),
    threads: usize,
) {
    let parts = parts(addresses, first, extents);
    let mut memory = vec![0_i32; extents.0 * extents.1];
    let mut read = || {
        let sizes = vec![extents.0, extents.1];
        let mut target = Strided::row_major(&mut memory, sizes).unwrap();
        reader.values(3, &parts, &mut target).unwrap();
        black_box(&mut memory);
    };
    read();
    let (shortest, median) = times_s(4 * ROUNDS, read);
    for (row, cells) in memory.chunks(extents.1).enumerate() {
        let start = (first.0 + row) * ARRAY.1 + first.1;
        assert_eq!(cells, &array[start..start + extents.1]);
    }
    println!(
        "    {what:28} {threads} threads: {:7.3} ms at best, {:7.3} at the median",
        shortest * 1e3,
        median * 1e3
    );
}

fn single_cells(store: &Arc<Store>, array: &[i32], addresses: &[Address]) {
    let reader = RegionReader::new(Arc::clone(store), TABLE, 1);
    let mut rng = fastrand::Rng::with_seed(5);
    let cells: Vec<(usize, usize)> = (0..1_000)
        .map(|_| (rng.usize(..ARRAY.0), rng.usize(..ARRAY.1)))
        .collect();
    let parts: Vec<Vec<BlockRegion>> = cells
        .iter()
        .map(|cell| parts(addresses, *cell, (1, 1)))
        .collect();
    let mut read = || {
        for (part, (row, column)) in parts.iter().zip(&cells) {
            let mut memory = [0_i32];
            let mut target = Strided::row_major(&mut memory, vec![1, 1]).unwrap();
            reader.values(3, part, &mut target).unwrap();
            assert_eq!(memory[0], array[row * ARRAY.1 + column]);
        }
    };
    let (first, _) = times_s(1, &mut read);
    let (shortest, _) = times_s(ROUNDS, read);
    println!(
        "    1,000 random cells: {:.3} ms out of files, {:.3} ms out of memory",
        first * 1e3,
        shortest * 1e3
    );
}
