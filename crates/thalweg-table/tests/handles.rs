//! What handles promise beside the rows: closing ends them, an appender says when it is going to wait, rows that come in
//! order are written once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Float64Array, Int64Array, PrimitiveArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use thalweg_env::sim::{
    CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, SimEnv, SpawnMode,
};
use thalweg_table::{
    AggregateRequest, Appender, CreateOptions, Durability, Engine, EngineOptions, ErrorKind,
    Numbered, ScanRequest, Table, Value,
};

fn open(sim: &SimEnv) -> Engine {
    let options = EngineOptions {
        background: false,
        ..EngineOptions::default()
    };
    Engine::open(sim.env(), Path::new("/db"), options).unwrap()
}

fn create(engine: &Engine) -> Table {
    let schema = Schema::new(vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("value", DataType::Float64, false),
    ]);
    let options = CreateOptions::stream("ts");
    engine.create_table("t", &schema, &options).unwrap()
}

fn value(n: i64) -> f64 {
    let bits = n
        .wrapping_add(1)
        .cast_unsigned()
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        >> 12;
    f64::from_bits(bits | 1.0_f64.to_bits())
}

/// Rows whose values do not repeat, so that blocks are not much smaller than what frames them.
fn batch(table: &Table, first: i64, rows: i64) -> RecordBatch {
    let times: PrimitiveArray<Int64Type> = Int64Array::from_iter_values(first..first + rows);
    let values = (first..first + rows).map(value);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(times),
        Arc::new(Float64Array::from_iter_values(values)),
    ];
    RecordBatch::try_new(table.schema(), columns).unwrap()
}

#[test]
fn a_closed_database_answers_nothing_by_halves() {
    let sim = SimEnv::new(1);
    let engine = open(&sim);
    let table = create(&engine);
    table.append([Ok(batch(&table, 0, 40_000))], None).unwrap();
    let view = table.view().unwrap();
    let database = engine.snapshot().unwrap();
    let request = ScanRequest {
        batch_rows: 4_096,
        ..ScanRequest::default()
    };
    let mut running = view.scan(&request).unwrap();
    assert!(running.next().unwrap().is_ok());
    let raw = engine.create_table("raw", &table.schema(), &CreateOptions::default());
    let raw = raw.unwrap();
    raw.append([Ok(batch(&raw, 0, 10))], None).unwrap();
    let mut waiting = raw.view().unwrap().scan(&ScanRequest::default()).unwrap();
    engine.close().unwrap();
    engine.close().unwrap();

    let mut errors = vec![
        engine.snapshot().err(),
        engine.table("t").err(),
        engine.table_names().err(),
        engine.drop_table("t").err(),
        engine.flush().err(),
        engine.checkpoint().err(),
        table.view().err(),
        table.stats().err(),
        table.append([Ok(batch(&table, 0, 1))], None).err(),
        table.put(&[Value::Int(1), Value::Float(1.0)], None).err(),
        view.stats().err(),
        view.scan(&ScanRequest::default()).err(),
        view.aggregate(&AggregateRequest::default()).err(),
        database.table("t").and_then(|view| view.stats()).err(),
    ];
    errors.push(running.find_map(Result::err));
    errors.push(waiting.find_map(Result::err));
    for (number, error) in errors.iter().enumerate() {
        let kind = error.as_ref().map(thalweg_table::Error::kind);
        assert_eq!(
            kind,
            Some(ErrorKind::Unavailable),
            "call {number}: {error:?}"
        );
    }
    assert_eq!(
        open(&sim).table("t").unwrap().view().unwrap().row_count(),
        40_000
    );
}

#[test]
fn an_appender_says_when_it_commits() {
    let sim = SimEnv::new(2);
    let engine = open(&sim);
    let table = create(&engine);
    let mut appender = table.appender();
    let mut committed = 0;
    for n in 0..150_000 {
        let will_commit = appender.will_commit();
        let waiting = appender.rows() as u64;
        appender.put(&[Value::Int(n), Value::Float(0.5)]).unwrap();
        if will_commit {
            committed += waiting;
        }
        if n % 10_000 == 0 || will_commit {
            assert_eq!(table.view().unwrap().row_count(), committed);
        }
    }
    assert_eq!(committed, 131_072);
    appender.flush().unwrap();
    assert!(!appender.will_commit());
    assert_eq!(table.view().unwrap().row_count(), 150_000);
}

fn put_all(appender: &mut Appender, rows: Range<i64>) {
    for n in rows {
        appender
            .put(&[Value::Int(n), Value::Float(value(n))])
            .unwrap();
    }
}

/// Appends rows until not even a thousand of them find space, and says which.
fn fill(sim: &SimEnv, table: &Table) -> Range<i64> {
    sim.set_quota(Some(0));
    let mut end = 0;
    for rows in [10_000, 1_000] {
        while table.append([Ok(batch(table, end, rows))], None).is_ok() {
            end += rows;
        }
    }
    0..end
}

fn times(table: &Table) -> Vec<i64> {
    let scan = table.view().unwrap().scan(&ScanRequest::default()).unwrap();
    scan.flat_map(|batch| {
        let batch = batch.unwrap();
        batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    })
    .collect()
}

#[test]
fn an_appender_keeps_rows_that_found_no_space() {
    let sim = SimEnv::new(4);
    let engine = open(&sim);
    let table = create(&engine);
    let filled = fill(&sim, &table);
    let last = filled.end + 65_536;
    let mut appender = table.appender();
    put_all(&mut appender, filled.end..last);
    let row = [Value::Int(last), Value::Float(0.5)];
    for _ in 0..3 {
        assert_eq!(appender.flush().unwrap_err().kind(), ErrorKind::DiskFull);
        assert!(appender.will_commit());
        assert_eq!(appender.put(&row).unwrap_err().kind(), ErrorKind::DiskFull);
        assert_eq!(appender.rows(), 65_536);
    }
    sim.set_quota(None);
    appender.put(&row).unwrap();
    assert_eq!(appender.rows(), 1);
    appender.flush().unwrap();
    assert!(times(&table).into_iter().eq(0..=last));
}

#[test]
fn rows_that_an_appender_has_reported_as_refused_are_not_stored_by_its_drop() {
    let sim = SimEnv::new(5);
    let engine = open(&sim);
    let table = create(&engine);
    let mut appender = table.appender();
    put_all(&mut appender, 0..10);
    engine.drop_table("t").unwrap();
    for _ in 0..2 {
        assert_eq!(appender.flush().unwrap_err().kind(), ErrorKind::NotFound);
    }
    let table = create(&engine);
    let mut appender = table.appender();
    let filled = fill(&sim, &table);
    let rows = filled.end..filled.end + 60_000;
    put_all(&mut appender, rows.clone());
    appender.flush().unwrap_err();
    sim.set_quota(None);
    // Whoever saw the error stores the rows otherwise.
    let mut other = table.appender();
    put_all(&mut other, rows.clone());
    drop(other);
    drop(appender);
    assert!(times(&table).into_iter().eq(0..rows.end));
}

#[test]
fn an_appender_whose_rows_may_be_stored_stores_none_a_second_time() {
    let sim = SimEnv::new(6);
    let engine = open(&sim);
    let table = create(&engine);
    let mut appender = table.appender();
    put_all(&mut appender, 0..10);
    let fails = FaultRule::new(Fault::Error(Errno::IO)).on(&[CallKind::SyncData]);
    sim.set_plan(FaultPlan::none().rule(fails.once()));
    let told = appender.flush().unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Unavailable);
    let row = [Value::Int(10), Value::Float(0.5)];
    for again in [appender.flush(), appender.put(&row), appender.flush()] {
        assert_eq!(again.unwrap_err().to_string(), told.to_string());
    }
    drop(appender);
    drop((table, engine));
    let found = times(&open(&sim).table("t").unwrap());
    assert!(found.is_empty() || found.into_iter().eq(0..10));
}

#[test]
fn rows_in_order_are_written_once() {
    let sim = SimEnv::new(3);
    let engine = open(&sim);
    let table = create(&engine);
    let files = || {
        sim.files()
            .into_iter()
            .map(|(path, _)| path)
            .collect::<Vec<_>>()
    };
    let mut first = 0;
    let mut append = |count: i64| {
        for _ in 0..count {
            let rows = batch(&table, first, 100_000);
            table.append([Ok(rows)], Some(Durability::Disk)).unwrap();
            first += 100_000;
        }
        (sim.stats().bytes_written, table.stats().unwrap(), files())
    };
    // A new segment is filled with zeros before it is written to: those are not of rows, so the appends that are
    // looked at are some between two segments.
    let mut before = append(10);
    let (after, stats) = loop {
        let after = append(10);
        if after.2 == before.2 {
            break (after.0, after.1);
        }
        assert!(
            after.1.rows < 100_000_000,
            "every ten appends begin a segment"
        );
        before = after;
    };
    assert_eq!(stats.rows - before.1.rows, 1_000_000);
    assert_eq!((stats.open_rows, stats.fragments), (0, 0));
    let block_bytes = stats.bytes - before.1.bytes;
    let share = (after - before.0) as f64 / block_bytes as f64;
    assert!(
        (1.0..1.03).contains(&share),
        "{share:.3} bytes were written for each byte of a block"
    );
}

/// Planning runs ahead of decoding: what is planned keeps its files when nobody else does any more.
#[test]
fn a_scan_keeps_its_files_until_its_last_row() {
    let sim = SimEnv::new(9);
    // Nothing is decoded before it is pulled.
    sim.set_spawn_mode(SpawnMode::Refuse);
    let options = EngineOptions {
        background: false,
        threads: 2,
        ..EngineOptions::default()
    };
    let engine = Engine::open(sim.env(), Path::new("/db"), options).unwrap();
    let table = create(&engine);
    table.append([Ok(batch(&table, 0, 100_000))], None).unwrap();
    let request = ScanRequest {
        batch_rows: 30_000,
        ..ScanRequest::default()
    };
    let mut scan = table.view().unwrap().scan(&request).unwrap();
    let mut rows = scan.next().unwrap().unwrap().num_rows();
    engine.drop_table("t").unwrap();
    for _ in 0..3 {
        engine.checkpoint().unwrap();
        engine.kernel().collect_garbage().unwrap();
    }
    for batch in &mut scan {
        rows += batch.unwrap().num_rows();
    }
    assert_eq!(rows, 100_000);
    drop(scan);
    engine.checkpoint().unwrap();
    assert!(
        engine.kernel().collect_garbage().unwrap() > 0,
        "then they go"
    );
}

#[test]
fn a_table_appears_together_with_its_rows() {
    let sim = SimEnv::new(3);
    let engine = open(&sim);
    let schema = Schema::new(vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("value", DataType::Float64, false),
    ]);
    let begin = |engine: &Engine| {
        let new = engine.begin_table("t", &schema, &CreateOptions::stream("ts"));
        let new = new.unwrap();
        let table = new.table();
        table.append([Ok(batch(table, 0, 40_000))], None).unwrap();
        new
    };
    let is_there = |engine: &Engine| {
        let names = engine.snapshot().unwrap().table_names();
        assert_eq!(names, engine.table_names().unwrap());
        assert!(engine.table("\u{0}0").is_err());
        (!names.is_empty(), engine.table("t").is_ok())
    };
    let new = begin(&engine);
    assert_eq!(new.table().name(), "t");
    assert_eq!(is_there(&engine), (false, false));
    let error = engine.table("u").unwrap_err();
    assert!(error.message().ends_with("there are no tables"), "{error}");
    // Given up, it leaves nothing.
    drop(new);
    let new = begin(&engine);
    let other = begin(&engine);
    assert_eq!(new.publish().unwrap().view().unwrap().row_count(), 40_000);
    assert_eq!(is_there(&engine), (true, true));
    let error = other.publish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let error = engine.begin_table("T", &schema, &CreateOptions::stream("ts"));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(engine.kernel().snapshot().unwrap().table_count(), 1);
}

#[test]
fn a_killed_process_leaves_no_table_without_rows() {
    let sim = SimEnv::new(4);
    let engine = open(&sim);
    let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
    let options = CreateOptions::stream("ts");
    let new = engine.begin_table("t", &schema, &options).unwrap();
    let ts: ArrayRef = Arc::new(Int64Array::from_iter_values(0..9));
    let rows = RecordBatch::try_new(new.table().schema(), vec![ts]).unwrap();
    new.table().append([Ok(rows)], None).unwrap();
    sim.kill_process(sim.process_id());
    drop((new, engine));
    let options_again = EngineOptions {
        background: false,
        ..EngineOptions::default()
    };
    let env = sim.env_of_process(sim.process_id() + 1);
    let engine = Engine::open(env, Path::new("/db"), options_again).unwrap();
    assert!(engine.table_names().unwrap().is_empty());
    assert_eq!(engine.kernel().snapshot().unwrap().table_count(), 0);
    let new = engine.begin_table("t", &schema, &options).unwrap();
    new.publish().unwrap();
    assert_eq!(engine.table_names().unwrap(), ["t"]);
}

/// An append that is sent again with its number is stored once: by any handle, after an opening, and after a power cut that came before or
/// after it was durable. Each table counts for itself.
#[test]
fn an_append_with_a_number_is_stored_once() {
    let sim = SimEnv::new(1);
    let mut engine = open(&sim);
    let table = create(&engine);
    let other = engine.create_table("other", &table.schema(), &CreateOptions::stream("ts"));
    let other = other.unwrap();
    let send = |table: &Table, producer, sequence, rows: i64, durability| {
        let number = Numbered { producer, sequence };
        let batch = batch(table, i64::try_from(sequence).unwrap() * 1_000_000, rows);
        table.append_once([Ok(batch)], number, Some(durability), &|| true)
    };
    let count = |table: &Table| table.view().unwrap().row_count();
    // One row, rows of a block, rows of several files.
    for (sequence, rows) in [(1, 1), (2, 5_000), (7, 300_000)] {
        for _ in 0..3 {
            assert_eq!(
                send(&table, "gw7", sequence, rows, Durability::Disk).unwrap(),
                rows.cast_unsigned()
            );
        }
    }
    // Older ones are stored, those of others and of other tables are not.
    assert_eq!(send(&table, "gw7", 5, 10, Durability::Disk).unwrap(), 10);
    assert_eq!(count(&table), 305_001);
    send(&table, "gw8", 5, 10, Durability::Disk).unwrap();
    send(&other, "gw7", 5, 10, Durability::Disk).unwrap();
    assert_eq!((count(&table), count(&other)), (305_011, 10));
    assert_eq!(
        send(&table, "", 1, 1, Durability::Disk).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    engine.close().unwrap();
    engine = open(&sim);
    let table = engine.table("t").unwrap();
    send(&table, "gw7", 7, 300_000, Durability::Disk).unwrap();
    assert_eq!(count(&table), 305_011);
    // Answered as stored at a higher level than it was stored at, it is there at that level.
    send(&table, "gw7", 8, 10, Durability::Process).unwrap();
    let lost = open(&sim.crash_image(&CrashChoice::DropAll));
    send(&table, "gw7", 8, 10, Durability::Disk).unwrap();
    let kept = open(&sim.crash_image(&CrashChoice::DropAll));
    assert_eq!(count(&lost.table("t").unwrap()), 305_011);
    for engine in [lost, kept] {
        let table = engine.table("t").unwrap();
        send(&table, "gw7", 8, 10, Durability::Disk).unwrap();
        assert_eq!(count(&table), 305_021);
    }
}
