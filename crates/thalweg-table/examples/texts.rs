//! Rates of appending and scanning one column of texts or binaries, and the bytes that they take:
//! `cargo run --release -p thalweg-table --example texts -- [rows] [rounds] [part of a name]`.
//!
//! A database in memory takes the rows in batches of 65,536 and is scanned whole. Each figure is the best of some
//! rounds, by the clock. Data are seeded; what the scan returns is compared with it once.
#![allow(clippy::unwrap_used, reason = "an example")]
#![allow(clippy::print_stdout, reason = "it prints a table")]
#![allow(clippy::cast_precision_loss, reason = "rates")]

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::{Field, Schema};
use std::sync::Arc;
use thalweg_codec::Level;
use thalweg_env::Env;
use thalweg_kernel::TableId;
use thalweg_table::{
    BlockEncoder, CreateOptions, Engine, EngineOptions, Layouts, ScanRequest, Table,
    TableDefinition, order_keys,
};

const BATCH_ROWS: usize = 65_536;
const BLOCK_ROWS: usize = 4_096;

/// Makes the value of a row.
type Make = fn(&mut fastrand::Rng, usize) -> Vec<u8>;

const COLUMNS: [(&str, bool, Make); 10] = [
    ("device names, 40", true, |rng, _| {
        format!("plant-3/line-{:02}/temperature", rng.u8(..40)).into_bytes()
    }),
    ("device names, 2,000", true, |rng, _| {
        format!("plant-3/device-{:05}/temperature", rng.u32(..2_000) * 37).into_bytes()
    }),
    ("device names, all differ", true, |_, row| {
        format!("plant-3/device-{row:08}").into_bytes()
    }),
    ("hex ids, 32 digits", true, |rng, _| {
        format!("{:032x}", rng.u128(..)).into_bytes()
    }),
    ("UUIDs", true, |rng, _| uuid(rng.u128(..))),
    ("decimals as text", true, |rng, _| {
        format!("{:.3}", rng.f64() * 100.0).into_bytes()
    }),
    ("random binary, 16 B", false, |rng, _| random(rng, 16)),
    ("random binary, 1 KiB", false, |rng, _| random(rng, 1_024)),
    ("log lines", true, log_line),
    ("empty", true, |_, _| Vec::new()),
];

fn uuid(id: u128) -> Vec<u8> {
    let digits = format!("{id:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    parts.join("-").into_bytes()
}

fn random(rng: &mut fastrand::Rng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| rng.u8(..)).collect()
}

fn log_line(rng: &mut fastrand::Rng, row: usize) -> Vec<u8> {
    let level = ["INFO", "INFO", "INFO", "WARN", "ERROR"][rng.usize(..5)];
    let what = [
        "connection accepted from",
        "sensor reading out of range at",
        "retry after timeout of",
        "checkpoint written by",
    ][rng.usize(..4)];
    format!(
        "2026-11-27T{:02}:{:02}:{:02}.{:03}Z {level} [worker-{}] {what} 10.0.{}.{} in {} us",
        row / 3_600_000 % 24,
        row / 60_000 % 60,
        row / 1_000 % 60,
        row % 1_000,
        rng.u8(..8),
        rng.u8(..),
        rng.u8(..),
        rng.u32(..100_000)
    )
    .into_bytes()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments
        .next()
        .map_or(1 << 20, |text| text.parse().unwrap());
    let rounds = arguments.next().map_or(5, |text| text.parse().unwrap());
    let part = arguments.next().unwrap_or_default();
    println!(
        "{:26} {:>12} {:>12} {:>12} {:>14}",
        "", "append, ns", "encode, ns", "scan, ns", "bytes per row"
    );
    for (name, is_text, make) in COLUMNS.iter().filter(|column| column.0.contains(&part)) {
        // Long values are fewer.
        let rows = if name.contains("KiB") {
            rows / 16
        } else {
            rows
        };
        let column = Column::new(*is_text, *make, rows);
        let append_ns = column.shortest_ns(rounds, || drop(column.append()));
        let encode_ns = column.shortest_ns(rounds, || _ = column.encode());
        let (engine, table) = column.append();
        column.compare(&table);
        let scan_ns = column.shortest_ns(rounds, || {
            let scan = table.view().unwrap().scan(&ScanRequest::default()).unwrap();
            let read: usize = scan.map(|batch| batch.unwrap().num_rows()).sum();
            assert_eq!(read, rows);
        });
        engine.close().unwrap();
        let bytes = column.encode() as f64 / rows as f64;
        println!("{name:26} {append_ns:12.1} {encode_ns:12.1} {scan_ns:12.1} {bytes:14.2}");
    }
}

/// A column of texts beside a clock.
struct Column {
    batches: Vec<RecordBatch>,
    rows: usize,
    env: Env,
}

impl Column {
    fn new(is_text: bool, make: Make, rows: usize) -> Self {
        let mut rng = fastrand::Rng::with_seed(7);
        let values: Vec<Vec<u8>> = (0..rows).map(|row| make(&mut rng, row)).collect();
        let texts = values
            .iter()
            .map(|value| std::str::from_utf8(value).unwrap_or_default());
        let texts: ArrayRef = if is_text {
            Arc::new(StringArray::from_iter_values(texts))
        } else {
            Arc::new(BinaryArray::from_iter_values(&values))
        };
        let times: ArrayRef = Arc::new(Int64Array::from_iter_values(
            0..i64::try_from(rows).unwrap(),
        ));
        let fields = [("ts", &times), ("v", &texts)]
            .map(|(name, array)| Field::new(name, array.data_type().clone(), false));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let whole = RecordBatch::try_new(schema, vec![times, texts]).unwrap();
        let batches = (0..rows)
            .step_by(BATCH_ROWS)
            .map(|start| whole.slice(start, BATCH_ROWS.min(rows - start)))
            .collect();
        Self {
            batches,
            rows,
            env: Env::os(),
        }
    }

    fn append(&self) -> (Engine, Table) {
        let options = EngineOptions {
            cache_bytes: 256 << 20,
            ..EngineOptions::default()
        };
        let engine = Engine::in_memory(options).unwrap();
        let stream = CreateOptions::stream("ts");
        let table = engine
            .create_table("t", &self.batches[0].schema(), &stream)
            .unwrap();
        for batch in &self.batches {
            table.append([Ok(batch.clone())], None).unwrap();
        }
        (engine, table)
    }

    /// Encodes blocks and nothing else; returns their bytes.
    fn encode(&self) -> usize {
        let schema = self.batches[0].schema();
        let definition =
            TableDefinition::create(&Layouts::default(), &schema, &CreateOptions::stream("ts"))
                .unwrap();
        let mut encoder = BlockEncoder::new(Level::Fast);
        let mut bytes = 0;
        let mut blocks = Vec::new();
        for batch in &self.batches {
            for start in (0..batch.num_rows()).step_by(BLOCK_ROWS) {
                let part = batch.slice(start, BLOCK_ROWS.min(batch.num_rows() - start));
                let keys = order_keys(part.column(0)).unwrap();
                encoder
                    .encode(TableId(1), &definition, &part, &keys, &mut blocks)
                    .unwrap();
                bytes += blocks
                    .drain(..)
                    .map(|block| block.bytes.len())
                    .sum::<usize>();
            }
        }
        bytes
    }

    fn compare(&self, table: &Table) {
        let scan = table.view().unwrap().scan(&ScanRequest::default()).unwrap();
        let mut row = 0;
        for batch in scan.map(|batch| batch.unwrap()) {
            for index in 0..batch.num_rows() {
                let source = &self.batches[row / BATCH_ROWS];
                let expected = source.column(1).slice(row % BATCH_ROWS, 1);
                assert_eq!(
                    batch.column(1).slice(index, 1).to_data(),
                    expected.to_data(),
                    "row {row}"
                );
                row += 1;
            }
        }
        assert_eq!(row, self.rows);
    }

    /// Nanoseconds per row of the shortest round.
    fn shortest_ns(&self, rounds: usize, mut work: impl FnMut()) -> f64 {
        let clock = self.env.clock();
        let times = (0..rounds).map(|_| {
            let start = clock.monotonic_ns();
            work();
            clock.monotonic_ns() - start
        });
        times.min().unwrap_or(0) as f64 / self.rows as f64
    }
}
