//! Measures, on one core, what a row of nine columns costs on its way into blocks and raw rows and back:
//! `cargo run --release -p thalweg-table --example columns [rows per block]`.
//!
//! Data are seeded; what is decoded is compared with its source before anything is timed. Blocks are read from a file
//! that is in the page cache.
#![allow(clippy::unwrap_used, reason = "an example")]
#![allow(clippy::print_stdout, reason = "it prints a table")]
#![allow(clippy::cast_precision_loss, reason = "rates")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "small numbers"
)]

mod common;

use arrow_array::*;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use common::stored;
use std::hint::black_box;
use std::sync::Arc;
use thalweg_codec::Level;
use thalweg_env::Env;
use thalweg_kernel::TableId;
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::index::Address;
use thalweg_kernel::store::Store;
use thalweg_table::{
    BlockDecoder, BlockEncoder, CreateOptions, Layouts, RowWriter, TableDefinition, Value, conform,
    decode_rows, encode_rows, order_keys,
};

const ROWS: usize = 1 << 20;
const ROUNDS: usize = 7;
const TABLE: TableId = TableId(1);

fn main() {
    let block_rows = std::env::args()
        .nth(1)
        .map_or(4_096, |rows| rows.parse().unwrap());
    for (name, definition, batch) in [sensor_rows(), mixed_rows()] {
        println!(
            "{name}: {ROWS} rows of {} columns, blocks of {block_rows}",
            batch.num_columns()
        );
        measure_conform(&definition, &batch);
        measure_blocks(&definition, &batch, block_rows);
        measure_rows(&definition, &batch);
    }
    measure_puts();
}

/// The shortest of some runs, in seconds.
fn shortest_s(mut run: impl FnMut()) -> f64 {
    let clock = Env::os().clock().clone();
    let once = |_| {
        let start_ns = clock.monotonic_ns();
        run();
        (clock.monotonic_ns() - start_ns) as f64 / 1e9
    };
    (0..ROUNDS).map(once).fold(f64::INFINITY, f64::min)
}

fn report(what: &str, rows: usize, seconds: f64, note: &str) {
    println!(
        "  {what:34} {:8.2} M rows/s {:9.1} ns/row  {note}",
        rows as f64 / seconds / 1e6,
        seconds * 1e9 / rows as f64
    );
}

fn walk(rng: &mut fastrand::Rng, step: f64, decimals: i32) -> Float64Array {
    let scale = 10_f64.powi(decimals);
    let mut value = 50.0;
    let next = |_| {
        value += (rng.f64() - 0.5) * step;
        Some((value * scale).round() / scale)
    };
    (0..ROWS).map(next).collect()
}

fn times(rng: &mut fastrand::Rng) -> TimestampMillisecondArray {
    let mut time = 1_767_225_600_000;
    let next = |_| {
        time += 1_000 + i64::from(rng.i8(-3..4));
        Some(time)
    };
    (0..ROWS).map(next).collect()
}

fn table(columns: Vec<(&str, ArrayRef)>) -> (TableDefinition, RecordBatch) {
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

/// A clock with jitter, seven slow walks of few decimals, a status that hardly changes.
fn sensor_rows() -> (&'static str, TableDefinition, RecordBatch) {
    let mut rng = fastrand::Rng::with_seed(1);
    let ts: ArrayRef = Arc::new(times(&mut rng));
    let mut columns = vec![("ts", ts)];
    for name in ["load", "user", "sys", "temp", "press", "volt", "amp"] {
        columns.push((name, Arc::new(walk(&mut rng, 0.4, 2))));
    }
    columns.push((
        "status",
        Arc::new(
            (0..ROWS)
                .map(|row| Some((row / 5_000 % 3) as i16))
                .collect::<Int16Array>(),
        ),
    ));
    let (definition, batch) = table(columns);
    ("sensor rows", definition, batch)
}

/// Nulls, strings, booleans and noise of full precision.
fn mixed_rows() -> (&'static str, TableDefinition, RecordBatch) {
    let mut rng = fastrand::Rng::with_seed(2);
    let hosts = (0..40)
        .map(|n| format!("host-{n:02}.plant.example"))
        .collect::<Vec<_>>();
    let names = (0..ROWS)
        .map(|_| Some(hosts[rng.usize(..hosts.len())].as_str()))
        .collect::<StringArray>();
    let ids = (0..ROWS)
        .map(|row| Some(format!("req-{row:08}")))
        .collect::<StringArray>();
    let noise = (0..ROWS).map(|_| Some(rng.f64())).collect::<Float64Array>();
    let holes = (0..ROWS)
        .map(|_| (rng.u8(..) > 25).then(|| rng.i64(0..100_000)))
        .collect::<Int64Array>();
    let flags = (0..ROWS)
        .map(|_| Some(rng.u8(..) > 200))
        .collect::<BooleanArray>();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("ts", Arc::new(times(&mut rng))),
        ("host", Arc::new(names)),
        ("id", Arc::new(ids)),
        ("noise", Arc::new(noise)),
        ("holes", Arc::new(holes)),
        ("flag", Arc::new(flags)),
        ("walk", Arc::new(walk(&mut rng, 1.0, 3))),
        ("none", new_null_array(&DataType::Float64, ROWS)),
        (
            "small",
            Arc::new(
                (0..ROWS)
                    .map(|_| Some(rng.i32(0..1_000)))
                    .collect::<Int32Array>(),
            ),
        ),
    ];
    let (definition, batch) = table(columns);
    ("mixed rows", definition, batch)
}

fn measure_conform(definition: &TableDefinition, batch: &RecordBatch) {
    let calls = 10_000;
    let batch = &batch.slice(0, 4_096);
    let fields = batch
        .schema()
        .fields()
        .iter()
        .map(|field| field.as_ref().clone())
        .collect::<Vec<_>>();
    let equal =
        RecordBatch::try_new(Arc::new(Schema::new(fields)), batch.columns().to_vec()).unwrap();
    for (what, batch) in [("same schema", batch), ("equal schema", &equal)] {
        let seconds = shortest_s(|| {
            (0..calls).for_each(|_| drop(black_box(conform(definition, black_box(batch)).unwrap())))
        });
        println!(
            "  conform, {what:25} {:8.0} ns/batch",
            seconds * 1e9 / f64::from(calls)
        );
    }
}

fn encode(
    encoder: &mut BlockEncoder,
    definition: &TableDefinition,
    batch: &RecordBatch,
    block_rows: usize,
) -> Vec<EncodedBlock> {
    let keys = order_keys(batch.column(0)).unwrap();
    let mut blocks = Vec::new();
    for start in (0..ROWS).step_by(block_rows) {
        let rows = block_rows.min(ROWS - start);
        encoder
            .encode(
                TABLE,
                definition,
                &batch.slice(start, rows),
                &keys[start..start + rows],
                &mut blocks,
            )
            .unwrap();
    }
    blocks
}

fn measure_blocks(definition: &TableDefinition, batch: &RecordBatch, block_rows: usize) {
    let raw_bytes = batch.get_array_memory_size();
    for level in [Level::Fast, Level::Dense] {
        let mut encoder = BlockEncoder::new(level);
        let blocks = encode(&mut encoder, definition, batch, block_rows);
        let bytes = blocks.iter().map(|block| block.bytes.len()).sum::<usize>();
        let note = format!(
            "{:.1} bytes/row, 1 : {:.2}",
            bytes as f64 / ROWS as f64,
            raw_bytes as f64 / bytes as f64
        );
        let seconds = shortest_s(|| {
            drop(black_box(encode(
                &mut encoder,
                definition,
                batch,
                block_rows,
            )))
        });
        report(&format!("encode blocks, {level:?}"), ROWS, seconds, &note);

        let folder = tempfile::tempdir().unwrap();
        let (store, addresses) = stored(folder.path(), &blocks, 64 << 20);
        let mut decoder = BlockDecoder::new(definition, None).unwrap();
        let mut start = 0;
        for address in &addresses {
            decoder.push(&store, address, 0..usize::MAX).unwrap();
            let decoded = decoder.finish().unwrap();
            assert_eq!(decoded, batch.slice(start, decoded.num_rows()));
            start += decoded.num_rows();
        }
        measure_decode(
            &format!("decode blocks, {level:?}"),
            decoder,
            &store,
            &addresses,
            1,
        );
        let decoder = BlockDecoder::new(definition, None).unwrap();
        measure_decode(
            &format!("decode 8 blocks per batch, {level:?}"),
            decoder,
            &store,
            &addresses,
            8,
        );
        let decoder = BlockDecoder::new(definition, Some(&[1, 7])).unwrap();
        measure_decode(
            &format!("decode 2 columns, {level:?}"),
            decoder,
            &store,
            &addresses,
            1,
        );
    }
}

fn measure_decode(
    what: &str,
    mut decoder: BlockDecoder,
    store: &Store,
    addresses: &[Address],
    blocks_per_batch: usize,
) {
    let seconds = shortest_s(|| {
        for addresses in addresses.chunks(blocks_per_batch) {
            decoder.reserve(blocks_per_batch * 4_096);
            addresses
                .iter()
                .for_each(|address| decoder.push(store, address, 0..usize::MAX).unwrap());
            black_box(decoder.finish().unwrap());
        }
    });
    report(what, ROWS, seconds, "");
}

fn measure_rows(definition: &TableDefinition, batch: &RecordBatch) {
    for rows in [1, 100, 10_000] {
        let mut buffer = Vec::new();
        let mut encode = || {
            buffer.clear();
            let mut ends = vec![0];
            for start in (0..ROWS).step_by(rows) {
                encode_rows(
                    definition,
                    &batch.slice(start, rows.min(ROWS - start)),
                    &mut buffer,
                )
                .unwrap();
                ends.push(buffer.len());
            }
            ends
        };
        let seconds = shortest_s(|| drop(black_box(encode())));
        report(
            &format!("encode raw rows, {rows} per payload"),
            ROWS,
            seconds,
            "",
        );
        let ends = encode();
        let payloads = || ends.windows(2).map(|pair| &buffer[pair[0]..pair[1]]);
        assert_eq!(decode_rows(definition, payloads()).unwrap(), *batch);
        // Open rows become blocks by the few thousand, not by the million.
        let few = payloads().collect::<Vec<_>>();
        let few = || {
            few.chunks(4_096.max(rows) / rows)
                .map(|payloads| payloads.iter().copied())
        };
        let seconds = shortest_s(|| {
            few().for_each(|payloads| drop(black_box(decode_rows(definition, payloads).unwrap())))
        });
        report(
            &format!("decode raw rows, {rows} per payload"),
            ROWS,
            seconds,
            "",
        );
    }
}

fn measure_puts() {
    let fields = (0..8).map(|column| Field::new(format!("c{column}"), DataType::Float64, true));
    let ts = Field::new(
        "ts",
        DataType::Timestamp(TimeUnit::Millisecond, None),
        false,
    );
    let schema = Schema::new(std::iter::once(ts).chain(fields).collect::<Vec<_>>());
    let definition =
        TableDefinition::create(&Layouts::default(), &schema, &CreateOptions::stream("ts"))
            .unwrap();
    let writer = RowWriter::new(&definition).unwrap();
    let mut values = [Value::Float(1.5); 9];
    let mut buffer = Vec::with_capacity(128 * ROWS);
    let seconds = shortest_s(|| {
        buffer.clear();
        for row in 0..ROWS as i64 {
            values[0] = Value::Int(row);
            black_box(writer.write(black_box(&values), &mut buffer).unwrap());
        }
    });
    println!("single rows: a time and eight floats");
    report("write", ROWS, seconds, "");
}
