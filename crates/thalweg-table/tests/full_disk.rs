//! Ranges of rows that are deleted on a full disk: their space comes back, again and again.
#![allow(clippy::unwrap_used, reason = "tests")]

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::Env;
use thalweg_env::sim::SimEnv;
use thalweg_table::{CreateOptions, Durability, Engine, EngineOptions, ErrorKind, KeyRange, Table};

const BATCH_ROWS: i64 = 20_000;

/// Rows whose times get to a third of their size when they are encoded, and whose values stay as long as they are.
fn batch(first: i64, has_values: bool, random: &mut fastrand::Rng) -> RecordBatch {
    let times = (first..first + BATCH_ROWS).map(|row| row << 20 | random.i64(0..1 << 20));
    let times = Arc::new(Int64Array::from_iter_values(times.collect::<Vec<_>>())) as ArrayRef;
    if !has_values {
        return RecordBatch::try_from_iter([("ts", times)]).unwrap();
    }
    let values = (0..BATCH_ROWS).map(|_| random.f64());
    let values = Arc::new(Float64Array::from_iter_values(values)) as ArrayRef;
    RecordBatch::try_from_iter([("ts", times), ("value", values)]).unwrap()
}

/// Appends rows from `next` on until the disk is full; waits for space before the first. Returns the row after the last.
fn fill(table: &Table, mut next: i64, random: &mut fastrand::Rng) -> i64 {
    let has_values = table.schema().fields().len() == 2;
    let (began, mut attempts) = (next, 0);
    let refused = loop {
        match table.append([Ok(batch(next, has_values, random))], None) {
            Ok(rows) => next += rows.cast_signed(),
            // Files are removed in the background.
            Err(_) if next == began && attempts < 1_000 => {
                attempts += 1;
                Env::os().clock().sleep(Duration::from_millis(10));
            }
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::DiskFull, "{refused}");
    assert!(next > began, "no space was freed: {refused}");
    next
}

fn open(sim: &SimEnv) -> Engine {
    Engine::open(sim.env(), Path::new("/db"), EngineOptions::default()).unwrap()
}

/// Fills a disk and deletes the oldest rows, several times; all of them, or in every second round three quarters.
fn delete_and_fill(quota_bytes: u64, has_values: bool, deletes_all: bool) {
    let sim = SimEnv::new(3);
    let engine = open(&sim);
    let mut random = fastrand::Rng::with_seed(3);
    let schema = batch(0, has_values, &mut random).schema();
    let options = CreateOptions::stream("ts");
    let table = engine.create_table("t", &schema, &options).unwrap();
    sim.set_quota(Some(sim.used_bytes() + quota_bytes));
    let (mut next, mut first) = (0, 0);
    for round in 0..12 {
        next = fill(&table, next, &mut random);
        let until = match deletes_all || round % 2 == 0 {
            true => next,
            false => first + (next - first) * 3 / 4,
        };
        let keys = KeyRange {
            first: i64::MIN,
            last: (until << 20) - 1,
        };
        let deleted = table.delete_range(keys, Some(Durability::Disk)).unwrap();
        assert_eq!(deleted, (until - first).cast_unsigned(), "round {round}");
        first = until;
        let left = (next - first).cast_unsigned();
        assert_eq!(table.view().unwrap().row_count(), left);
    }
    engine.close().unwrap();
    let view = open(&sim).table("t").unwrap().view().unwrap();
    assert_eq!(view.row_count(), (next - first).cast_unsigned());
}

#[test]
fn deleting_the_oldest_rows_on_a_full_disk_makes_room_for_new_ones() {
    delete_and_fill(32 << 20, true, false);
}

/// Most of the rows are in no block yet, and each checkpoint has them.
#[test]
fn deleting_open_rows_on_a_small_full_disk_makes_room_for_new_ones() {
    delete_and_fill(12 << 20, false, true);
}
