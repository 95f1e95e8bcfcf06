//! The thread of the jobs: late rows come in order without being asked, and it ends with the database.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::Env;
use thalweg_table::{
    AppendLimits, CreateOptions, Engine, EngineOptions, ErrorKind, JobKind, MaintenanceMode,
    ScanRequest, Table,
};

/// Longer than any machine takes.
const LONG: Duration = Duration::from_secs(120);

fn options(maintenance: MaintenanceMode) -> EngineOptions {
    EngineOptions {
        maintenance,
        append_limits: AppendLimits {
            raw_bytes: 1_000,
            ..AppendLimits::default()
        },
        ..EngineOptions::default()
    }
}

fn create(engine: &Engine) -> Table {
    let schema = Schema::new(vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("number", DataType::Int64, false),
    ]);
    let options = CreateOptions::stream("ts").with("block_rows", 1_024);
    engine.create_table("t", &schema, &options).unwrap()
}

fn append(table: &Table, rows: impl Iterator<Item = (i64, i64)>) {
    let (times, numbers): (Vec<i64>, Vec<i64>) = rows.unzip();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(times)),
        Arc::new(Int64Array::from(numbers)),
    ];
    let batch = RecordBatch::try_new(table.schema(), columns).unwrap();
    table.append([Ok(batch)], None).unwrap();
}

/// In order, then one row in ten late.
fn append_late(table: &Table) -> i64 {
    append(table, (0..5_000).map(|at| (at, at)));
    append(table, (0..500).map(|at| (at * 10, 5_000 + at)));
    5_500
}

fn numbers(table: &Table) -> Vec<i64> {
    let scan = table.view().unwrap().scan(&ScanRequest::default()).unwrap();
    let column = |batch: RecordBatch| {
        batch
            .column(1)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    scan.flat_map(|batch| column(batch.unwrap())).collect()
}

fn now() -> Duration {
    Duration::from_nanos(Env::os().clock().monotonic_ns())
}

fn sleep(time: Duration) {
    Env::os().clock().sleep(time);
}

fn wait_until(is_so: impl Fn() -> bool) {
    let began = now();
    while !is_so() {
        assert!(now() - began < LONG, "waited in vain");
        sleep(Duration::from_millis(20));
    }
}

fn late_rows(table: &Table) -> u64 {
    table.stats().unwrap().late_rows
}

#[test]
fn late_rows_come_in_order_without_being_asked() {
    let engine = Engine::in_memory(options(MaintenanceMode::Auto)).unwrap();
    let table = create(&engine);
    engine.pause_jobs(true).unwrap();
    append_late(&table);
    let before = numbers(&table);
    assert_eq!(late_rows(&table), 500);
    engine.pause_jobs(false).unwrap();
    wait_until(|| late_rows(&table) == 0);
    assert_eq!(numbers(&table), before);
    wait_until(|| !engine.jobs().unwrap().is_empty());
    let jobs = engine.jobs().unwrap();
    assert_eq!((&*jobs[0].table, jobs[0].kind), ("t", JobKind::LateRows));
    engine.close().unwrap();
    let closed = engine.jobs().unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Unavailable);
}

#[test]
fn nothing_is_done_unasked_where_maintenance_is_manual() {
    let engine = Engine::in_memory(options(MaintenanceMode::Manual)).unwrap();
    let table = create(&engine);
    append_late(&table);
    let before = numbers(&table);
    // Twice the time after which a job would have begun.
    sleep(Duration::from_secs(2));
    assert_eq!(late_rows(&table), 500);
    assert!(engine.run_jobs().unwrap().steps > 0);
    assert_eq!(late_rows(&table), 0);
    assert_eq!(numbers(&table), before);
}

#[test]
fn a_database_is_closed_with_its_last_handle_whatever_a_job_does_then() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let open = || Engine::open(Env::os(), &path, options(MaintenanceMode::Auto)).unwrap();
    let engine = open();
    let table = create(&engine);
    let mut rows = append_late(&table);
    drop((engine, table));
    for round in 0..12 {
        let engine = open();
        let table = engine.table("t").unwrap();
        assert_eq!(numbers(&table).len(), usize::try_from(rows).unwrap());
        append(&table, (0..200).map(|at| (at * 25, rows + at)));
        rows += 200;
        // Before, while and after the first look.
        sleep(Duration::from_millis(900 + round * 20));
        drop(table);
        if round % 2 == 0 {
            engine.close().unwrap();
        }
    }
}

#[test]
fn a_call_that_maintains_waits_for_no_job_that_rests() {
    let options = EngineOptions {
        job_limits: thalweg_table::JobLimits {
            bytes_per_second: Some(1),
            ..thalweg_table::JobLimits::default()
        },
        maintain_rows: 2_000,
        ..options(MaintenanceMode::Auto)
    };
    let engine = Engine::in_memory(options).unwrap();
    let table = create(&engine);
    for part in 0..200 {
        append(&table, (0..1_000).map(|at| (part * 1_000 + at, at)));
        append(&table, (0..100).map(|at| (part * 1_000 + at * 10, at)));
    }
    wait_until(|| !engine.jobs().unwrap().is_empty());
    let began = now();
    assert!(table.maintain().unwrap().steps > 0);
    assert!(now() - began < LONG, "it has waited for the rest of a job");
    assert_eq!(late_rows(&table), 0);
}
