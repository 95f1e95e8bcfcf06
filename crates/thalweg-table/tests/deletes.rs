//! Ranges that are deleted while others write: each row is deleted once or is there, and no call loses its races for ever.
#![allow(clippy::unwrap_used, reason = "tests")]

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thalweg_table::{
    AppendLimits, CreateOptions, Durability, Engine, EngineOptions, ErrorKind, KeyRange, Table,
    Value,
};

const PROCESS: Option<Durability> = Some(Durability::Process);

fn table() -> Table {
    let append_limits = AppendLimits {
        raw_bytes: 2_000,
        gather_bytes: 16_000,
        group_bytes: 6_000,
        fragment_bytes: 8_000,
        split_fragment_bytes: 2_000,
    };
    let options = EngineOptions {
        append_limits,
        ..EngineOptions::default()
    };
    let engine = Engine::in_memory(options).unwrap();
    let schema = Schema::new(vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("number", DataType::Int64, false),
    ]);
    let options = CreateOptions {
        time: Some("ts".to_owned()),
        ..CreateOptions::default()
    };
    engine.create_table("t", &schema, &options).unwrap()
}

fn batch(table: &Table, times: impl Iterator<Item = i64> + Clone) -> RecordBatch {
    // Their products do not repeat, so that blocks are not short.
    let numbers = times
        .clone()
        .map(|time| time.wrapping_mul(0x1e37_79b9_7f4a_7c15));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(times)),
        Arc::new(Int64Array::from_iter_values(numbers)),
    ];
    RecordBatch::try_new(table.schema(), columns).unwrap()
}

#[test]
fn rows_are_deleted_once_while_others_append_and_maintain() {
    let table = table();
    let (appended, deleted) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0_i64..400 {
                // In order, late, and one by one.
                let first = if round % 3 == 0 {
                    round * 10
                } else {
                    round * 3 % 500
                };
                let rows = if round % 7 == 0 { 400 } else { 50 };
                let batch = batch(&table, first..first + rows);
                appended.fetch_add(
                    table.append([Ok(batch)], PROCESS).unwrap(),
                    Ordering::Relaxed,
                );
                let row = [Value::Int(round % 400), Value::Int(round)];
                table.put(&row, PROCESS).unwrap();
                appended.fetch_add(1, Ordering::Relaxed);
            }
            is_done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                table.maintain().unwrap();
            }
        });
        let (table, deleted, is_done) = (&table, &deleted, &is_done);
        let delete = move |seed: i64| {
            for round in 0.. {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                let first = (round * 37 + seed) % 700;
                let keys = KeyRange {
                    first,
                    last: first + round % 60 * 5,
                };
                // Another one may have hidden rows of the same blocks again and again.
                match table.delete_range(keys, PROCESS) {
                    Ok(rows) => _ = deleted.fetch_add(rows, Ordering::Relaxed),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                }
            }
        };
        let other = scope.spawn(move || delete(11));
        delete(300);
        other.join().unwrap();
    });
    let left = table.view().unwrap().row_count();
    let deleted = deleted.into_inner();
    assert_eq!(left + deleted, appended.into_inner());
    // Alone, nothing refuses it.
    assert_eq!(table.delete_range(KeyRange::ALL, PROCESS).unwrap(), left);
    assert_eq!(table.delete_range(KeyRange::ALL, PROCESS).unwrap(), 0);
    assert_eq!(table.delete_range(KeyRange::EMPTY, PROCESS).unwrap(), 0);
    assert_eq!(table.stats().unwrap().rows, 0);
}
