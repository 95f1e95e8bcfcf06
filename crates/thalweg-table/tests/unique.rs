//! Unique keys against a model: whatever is stored, changed and moved by whomever, no two rows have one key, and none is lost.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use thalweg_env::Env;
use thalweg_env::sim::{CrashChoice, Errno, FaultPlan, SimEnv};
use thalweg_table::{
    AddedKeys, AppendLimits, CreateOptions, Durability, Engine, EngineOptions, ErrorKind, KeyRange,
    MaintenanceMode, Numbered, OnDuplicate, PickedRows, PlacedRows, Result, RowsToDelete,
    ScanRequest, Table, TableView, Transaction, Value,
};

const PROCESS: Option<Durability> = Some(Durability::Process);

/// Name, columns of the unique key, what happens to a duplicate, the time column.
const TABLES: [(&str, &str, &str, Option<&str>); 4] = [
    ("series", "ts, device", "last", Some("ts")),
    ("events", "device", "first", Some("ts")),
    ("plain", "device, ts", "error", None),
    ("numbers", "ts", "last", None),
];

/// A time and a device.
type Row = (i64, Option<String>);
/// Rows by their numbers, which are never used again.
type Rows = BTreeMap<i64, Row>;
type Key = (i64, String);

fn options() -> EngineOptions {
    // Some ten rows are raw, and a part of an append has some 250.
    let append_limits = AppendLimits {
        raw_bytes: 400,
        gather_bytes: 2_000,
        group_bytes: 3_000,
        fragment_bytes: 8_000,
        split_fragment_bytes: 2_000,
    };
    EngineOptions {
        append_limits,
        maintenance: MaintenanceMode::Manual,
        threads: 1,
        ..EngineOptions::default()
    }
}

fn schema() -> Schema {
    Schema::new(vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("device", DataType::Utf8, true),
        Field::new("number", DataType::Int64, false),
    ])
}

fn create(engine: &Engine) {
    for (name, unique, on_duplicate, time) in TABLES {
        let options = match time {
            Some(time) => CreateOptions::stream(time),
            None => CreateOptions::default(),
        };
        let options = options
            .with("block_rows", 64)
            .with("unique", unique)
            .with("on_duplicate", on_duplicate);
        engine.create_table(name, &schema(), &options).unwrap();
    }
}

fn batch(rows: &[(i64, Row)]) -> RecordBatch {
    let times = rows.iter().map(|(_, row)| row.0);
    let devices = rows.iter().map(|(_, row)| row.1.clone());
    let numbers = rows.iter().map(|(number, _)| *number);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(times)),
        Arc::new(devices.collect::<StringArray>()),
        Arc::new(Int64Array::from_iter_values(numbers)),
    ];
    RecordBatch::try_new(Arc::new(schema()), columns).unwrap()
}

fn rows_of(batch: &RecordBatch) -> Vec<(i64, Row)> {
    let numbers = |at: usize| batch.column(at).as_primitive::<Int64Type>();
    let devices = batch.column(1).as_string::<i32>();
    let row = |at: usize| {
        let device = devices.is_valid(at).then(|| devices.value(at).to_owned());
        (numbers(2).value(at), (numbers(0).value(at), device))
    };
    (0..batch.num_rows()).map(row).collect()
}

fn scanned(view: &TableView) -> Rows {
    let mut rows = Rows::new();
    for batch in view.scan(&ScanRequest::default()).unwrap() {
        for (number, row) in rows_of(&batch.unwrap()) {
            assert!(rows.insert(number, row).is_none(), "row {number} twice");
        }
    }
    rows
}

/// The unique key of a row, if it has one.
fn key(table: usize, row: &Row) -> Option<Key> {
    match table {
        1 => Some((0, row.1.clone()?)),
        3 => Some((row.0, String::new())),
        _ => Some((row.0, row.1.clone()?)),
    }
}

/// The rows by their keys.
fn by_key(table: usize, rows: &Rows) -> BTreeMap<Key, i64> {
    let mut keys = BTreeMap::new();
    for (number, row) in rows {
        if let Some(key) = key(table, row) {
            let other = keys.insert(key.clone(), *number);
            assert!(other.is_none(), "{key:?} of {number} and {other:?}");
        }
    }
    keys
}

fn check(table: usize, view: &TableView, model: &Rows) {
    let found = scanned(view);
    by_key(table, &found);
    let differ: Vec<i64> = { found.keys().chain(model.keys()) }
        .filter(|number| found.get(number) != model.get(number))
        .copied()
        .collect();
    assert!(differ.is_empty(), "table {table}: {differ:?} differ");
    assert_eq!(view.row_count(), model.len() as u64);
}

fn rule_of(table: usize) -> OnDuplicate {
    match TABLES[table].2 {
        "last" => OnDuplicate::Last,
        "first" => OnDuplicate::First,
        _ => OnDuplicate::Error,
    }
}

/// The rows after an append, and how many it stores; `None`: it is refused.
fn appended(
    table: usize,
    rule: OnDuplicate,
    rows: &Rows,
    new: &[(i64, Row)],
) -> Option<(Rows, u64)> {
    let mut rows = rows.clone();
    let mut keys = by_key(table, &rows);
    let mut stored = BTreeSet::new();
    for (number, row) in new {
        if let Some(key) = key(table, row) {
            match (keys.get(&key).copied(), rule) {
                (Some(_), OnDuplicate::Error) => return None,
                (Some(_), OnDuplicate::First) => continue,
                (Some(known), OnDuplicate::Last) => {
                    rows.remove(&known);
                    stored.remove(&known);
                }
                (None, _) => {}
            }
            keys.insert(key, *number);
        }
        rows.insert(*number, row.clone());
        stored.insert(*number);
    }
    Some((rows, stored.len() as u64))
}

/// Deletes rows by their numbers, or stores others in their place.
fn change(table: &Table, changed: &BTreeMap<i64, Option<(i64, Row)>>) -> Result<u64> {
    table.edit_rows(PROCESS, AddedKeys::Any, &mut |new| {
        let rows = Arc::new(PlacedRows::new(&table.view()?, &ScanRequest::default())?);
        let reader = rows.reader()?;
        let mut picked = PickedRows::default();
        let mut stored = Vec::new();
        for piece in 0..rows.pieces() {
            for (batch, places) in reader.read(piece)? {
                for ((number, _), place) in rows_of(&batch).into_iter().zip(places.values()) {
                    if let Some(changed) = changed.get(&number) {
                        picked.add(&[*place]);
                        stored.extend(changed.clone());
                    }
                }
            }
        }
        for rows in stored.chunks(100) {
            new.push(&batch(rows))?;
        }
        drop(reader);
        Ok(RowsToDelete::Picked(rows, picked))
    })
}

/// Who changes the tables: a transaction, or nobody's statements.
struct Writer {
    transaction: Option<Transaction>,
    tables: Vec<Table>,
    /// The tables as it found them, and as it sees them.
    base: Vec<Rows>,
    seen: Vec<Rows>,
}

impl Writer {
    fn new(transaction: Option<Transaction>, engine: &Engine, committed: &[Rows]) -> Self {
        let table = |(name, ..): (&str, _, _, _)| match &transaction {
            Some(transaction) => transaction.table(name).unwrap(),
            None => engine.table(name).unwrap(),
        };
        Self {
            tables: TABLES.map(table).to_vec(),
            transaction,
            base: committed.to_vec(),
            seen: committed.to_vec(),
        }
    }

    /// Does something, and the same to the model.
    fn act(&mut self, rng: &mut Rng, counter: &mut i64) {
        let at = rng.usize(..TABLES.len());
        match rng.u8(..10) {
            0..6 => self.append(at, rng, counter),
            6 => {
                let first = rng.i64(0..600);
                let last = first + rng.i64(0..100);
                // Without a time column all keys are one.
                if TABLES[at].3.is_none() {
                    return;
                }
                let count = self.tables[at].delete_range(KeyRange { first, last }, PROCESS);
                let before = self.seen[at].len();
                self.seen[at].retain(|_, row| row.0 < first || row.0 > last);
                assert_eq!(count.unwrap(), (before - self.seen[at].len()) as u64);
            }
            7 => {
                let gone = self.some(at, rng);
                let changed = gone.iter().map(|number| (*number, None)).collect();
                let count = change(&self.tables[at], &changed).unwrap();
                assert_eq!(count, gone.len() as u64);
                self.seen[at].retain(|number, _| !gone.contains(number));
            }
            _ => {
                let mut changed = BTreeMap::new();
                let mut rows = self.seen[at].clone();
                for number in self.some(at, rng) {
                    *counter += 1;
                    let mut row = rows.remove(&number).unwrap();
                    match rng.u8(..4) {
                        0 => row.0 = rng.i64(0..600),
                        1 => row.1 = device(rng),
                        _ => {}
                    }
                    changed.insert(number, Some((*counter, row)));
                }
                rows.extend(changed.values().flatten().cloned());
                let mut keys = BTreeSet::new();
                let mut has_keys = rows.values().filter_map(|row| key(at, row));
                let is_refused = !has_keys.all(|key| keys.insert(key));
                match change(&self.tables[at], &changed) {
                    Ok(count) => {
                        assert!(!is_refused, "two rows have one key");
                        assert_eq!(count, changed.len() as u64);
                        self.seen[at] = rows;
                    }
                    Err(error) => {
                        assert!(is_refused, "{error}");
                        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
                    }
                }
            }
        }
    }

    fn append(&mut self, at: usize, rng: &mut Rng, counter: &mut i64) {
        let many = [1, 3, 20, 70, 300, 900][rng.usize(..6)];
        let (first, ordered) = (rng.i64(0..600), rng.bool());
        let newest = self.seen[at].values().map(|row| row.0).max().unwrap_or(0);
        let mut rows = Vec::new();
        for n in 0..rng.i64(1..=many) {
            *counter += 1;
            let ts = match ordered {
                true => newest + n / 8,
                false => first + rng.i64(0..100),
            };
            rows.push((*counter, (ts, device(rng))));
        }
        let rule = match rng.u8(..3) {
            0 => [OnDuplicate::Last, OnDuplicate::First, OnDuplicate::Error][rng.usize(..3)],
            _ => rule_of(at),
        };
        let expected = appended(at, rule, &self.seen[at], &rows);
        let table = &self.tables[at];
        let batches: Vec<RecordBatch> = { rows.chunks(rng.usize(1..150)) }.map(batch).collect();
        let batches = batches.into_iter().map(Ok);
        let stored = match &rows[..] {
            [(number, (ts, Some(device)))] if rule == rule_of(at) => {
                let row = [Value::Int(*ts), Value::Text(device), Value::Int(*number)];
                let before = table.view().unwrap().row_count();
                table.put(&row, PROCESS).map(|()| match &expected {
                    Some((rows, stored)) => {
                        assert_eq!(table.view().unwrap().row_count(), rows.len() as u64);
                        *stored
                    }
                    None => before,
                })
            }
            _ if rule == rule_of(at) => table.append(batches, PROCESS),
            _ => table.append_with_rule(batches, rule, PROCESS, &|| true),
        };
        match (stored, expected) {
            (Ok(stored), Some((rows, count))) => {
                assert_eq!(stored, count);
                self.seen[at] = rows;
            }
            (Err(error), None) => {
                assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
            }
            (stored, expected) => panic!(
                "table {at}, {rule:?}, {} rows: {stored:?}, and not {:?}",
                rows.len(),
                expected.map(|(_, count)| count)
            ),
        }
    }

    fn some(&self, at: usize, rng: &mut Rng) -> BTreeSet<i64> {
        let one_in = [3, 20, 200][rng.usize(..3)];
        let numbers = self.seen[at].keys().copied();
        numbers.filter(|_| rng.u32(..one_in) == 0).collect()
    }

    fn check(&self) {
        for (at, (table, seen)) in self.tables.iter().zip(&self.seen).enumerate() {
            check(at, &table.view().unwrap(), seen);
        }
    }

    /// Commits; true if that was to be expected and done.
    fn commit(self, committed: &mut Vec<Rows>) -> bool {
        let mut after = committed.clone();
        let mut may_commit = true;
        for (at, rows) in after.iter_mut().enumerate() {
            let (base, seen) = (&self.base[at], &self.seen[at]);
            for number in base.keys().filter(|number| !seen.contains_key(number)) {
                may_commit &= rows.remove(number).is_some();
            }
            let mut keys: BTreeSet<Key> = rows.values().filter_map(|row| key(at, row)).collect();
            for (number, row) in seen.iter().filter(|(number, _)| !base.contains_key(number)) {
                may_commit &= key(at, row).is_none_or(|key| keys.insert(key));
                rows.insert(*number, row.clone());
            }
        }
        match self.transaction.as_ref().unwrap().commit(PROCESS) {
            Ok(()) => assert!(may_commit, "two transactions had one row or key"),
            Err(error) => {
                assert!(!may_commit, "{error}");
                assert_eq!(error.kind(), ErrorKind::Query, "{error}");
                assert!(error.message().contains("run it again"), "{error}");
            }
        }
        if may_commit {
            *committed = after;
        }
        may_commit
    }
}

fn device(rng: &mut Rng) -> Option<String> {
    match rng.u8(..20) {
        0 => None,
        1..10 => Some(format!("d{}", rng.u8(..9))),
        _ => Some(format!("device {}", rng.u16(..2_000))),
    }
}

fn history(seed: u64) -> [u32; 2] {
    let rng = &mut Rng::with_seed(seed);
    // All keys in memory, those of small tables alone, or none.
    let key_index_bytes = [512 << 20, 20_000, 0][rng.usize(..3)];
    let engine = Engine::in_memory(EngineOptions {
        key_index_bytes,
        ..options()
    });
    let engine = engine.unwrap();
    create(&engine);
    let mut committed = vec![Rows::new(); TABLES.len()];
    let mut open: Vec<Writer> = Vec::new();
    let (mut counter, mut outcomes) = (0, [0; 2]);
    let any = |rng: &mut Rng| engine.table(TABLES[rng.usize(..TABLES.len())].0).unwrap();
    for _ in 0..rng.usize(20..100) {
        match rng.u8(..20) {
            0..3 if open.len() < 3 => {
                let transaction = engine.transaction().unwrap();
                open.push(Writer::new(Some(transaction), &engine, &committed));
            }
            3..8 if !open.is_empty() => {
                let at = rng.usize(..open.len());
                for _ in 0..rng.usize(1..4) {
                    open[at].act(rng, &mut counter);
                }
            }
            8..14 => {
                let mut outside = Writer::new(None, &engine, &committed);
                outside.act(rng, &mut counter);
                committed = outside.seen;
            }
            14 => _ = any(rng).maintain().unwrap(),
            15 => engine.kernel().checkpoint().unwrap(),
            16 => {
                let view = any(rng).view().unwrap();
                let kernel = engine.kernel();
                kernel.encode_open_rows(view.snapshot().id).unwrap();
            }
            17 if !open.is_empty() => {
                let writer = open.swap_remove(rng.usize(..open.len()));
                let done = writer.commit(&mut committed);
                outcomes[usize::from(done)] += 1;
            }
            _ => {
                open.iter().for_each(Writer::check);
                Writer::new(None, &engine, &committed).check();
            }
        }
    }
    open.iter().for_each(Writer::check);
    for writer in open {
        let done = writer.commit(&mut committed);
        outcomes[usize::from(done)] += 1;
    }
    for (name, ..) in TABLES {
        Writer::new(None, &engine, &committed).check();
        engine.table(name).unwrap().maintain().unwrap();
    }
    Writer::new(None, &engine, &committed).check();
    outcomes
}

#[test]
fn keys_are_unique_whatever_happens() {
    let of_env = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = of_env("THALWEG_SEED").unwrap_or_else(|| fastrand::u64(..));
    let mut outcomes = [0; 2];
    for number in 0..of_env("THALWEG_SEQUENCES").unwrap_or(300) {
        let seed = first.wrapping_add(number);
        let done = std::panic::catch_unwind(|| history(seed));
        let done = done.unwrap_or_else(|_| panic!("seed {seed}"));
        outcomes[0] += done[0];
        outcomes[1] += done[1];
    }
    assert!(
        outcomes[0] > 20 && outcomes[1] > 20,
        "refused and committed: {outcomes:?}"
    );
}

#[test]
fn threads_that_store_the_same_keys_store_each_once() {
    let engine = Engine::in_memory(EngineOptions {
        maintenance: MaintenanceMode::Auto,
        threads: 0,
        ..options()
    });
    let engine = engine.unwrap();
    create(&engine);
    let (counter, stop) = (AtomicI64::new(0), AtomicBool::new(false));
    let next = || counter.fetch_add(1, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let appends = |seed| {
            let (engine, next) = (&engine, &next);
            move || {
                let mut rng = Rng::with_seed(seed);
                for _ in 0..150 {
                    let at = rng.usize(..TABLES.len());
                    let table = engine.table(TABLES[at].0).unwrap();
                    let many = [1, 10, 60, 400][rng.usize(..4)];
                    let row = |rng: &mut Rng| {
                        (next(), (rng.i64(0..60), Some(format!("{}", rng.u8(..20)))))
                    };
                    let rows: Vec<_> = (0..many).map(|_| row(&mut rng)).collect();
                    let batches: Vec<_> = rows.chunks(50).map(|rows| Ok(batch(rows))).collect();
                    let stored = match rng.u8(..4) {
                        0 => {
                            let transaction = engine.transaction().unwrap();
                            let inside = transaction.table(TABLES[at].0).unwrap();
                            let stored = inside.append(batches, PROCESS);
                            stored.and_then(|rows| transaction.commit(PROCESS).map(|()| rows))
                        }
                        1 => table.append_with_rule(batches, OnDuplicate::Last, PROCESS, &|| true),
                        _ => table.append(batches, PROCESS),
                    };
                    if let Err(error) = stored {
                        let kind = error.kind();
                        assert!(
                            matches!(kind, ErrorKind::AlreadyExists | ErrorKind::Query),
                            "{error}"
                        );
                    }
                }
            }
        };
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(appends(seed))).collect();
        scope.spawn(|| {
            let mut rng = Rng::with_seed(9);
            while !stop.load(Ordering::Relaxed) {
                let at = rng.usize(..TABLES.len());
                let table = engine.table(TABLES[at].0).unwrap();
                by_key(at, &scanned(&table.view().unwrap()));
                let first = rng.i64(0..60);
                let keys = KeyRange {
                    first,
                    last: first + 3,
                };
                if TABLES[at].3.is_some() {
                    table.delete_range(keys, PROCESS).unwrap();
                }
                table.maintain().unwrap();
            }
        });
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    for (at, (name, ..)) in TABLES.iter().enumerate() {
        by_key(at, &scanned(&engine.table(name).unwrap().view().unwrap()));
    }
}

/// On a real disk, whose syncs take so long that many appends are under way at once.
#[test]
fn durable_appends_of_many_threads_store_each_key_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let open = || {
        let options = EngineOptions {
            maintenance: MaintenanceMode::Auto,
            threads: 0,
            ..options()
        };
        Engine::open(Env::os(), &path, options).unwrap()
    };
    let engine = open();
    create(&engine);
    let (counter, stored) = (AtomicI64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let (engine, counter, stored) = (&engine, &counter, &stored);
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed);
                for round in 0..40 {
                    let at = rng.usize(..TABLES.len());
                    let table = engine.table(TABLES[at].0).unwrap();
                    let rows: Vec<_> = (0..rng.i64(1..4))
                        .map(|_| {
                            let number = counter.fetch_add(1, Ordering::Relaxed);
                            (number, (round / 4, Some(format!("{}", rng.u8(..9)))))
                        })
                        .collect();
                    let rows = [Ok(batch(&rows))];
                    match table.append(rows, Some(Durability::Disk)) {
                        Ok(rows) if at == 2 => _ = stored.fetch_add(rows, Ordering::Relaxed),
                        Ok(_) => {}
                        Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}"),
                    }
                }
            });
        }
    });
    let found = |engine: &Engine| {
        let tables = TABLES.iter().enumerate();
        let rows = tables.map(|(at, (name, ..))| {
            let rows = scanned(&engine.table(name).unwrap().view().unwrap());
            by_key(at, &rows);
            rows
        });
        rows.collect::<Vec<_>>()
    };
    let rows = found(&engine);
    assert_eq!(rows[2].len() as u64, stored.into_inner());
    engine.close().unwrap();
    assert_eq!(found(&open()), rows);
}

#[test]
fn others_wait_while_an_append_of_several_parts_is_under_way() {
    let engine = Engine::in_memory(options()).unwrap();
    create(&engine);
    let table = &engine.table("plain").unwrap();
    let row = |n: i64| (n, (n, Some("a".to_owned())));
    let rows: Vec<_> = (0..1_200).map(row).collect();
    std::thread::scope(|scope| {
        let mut other = None;
        let batches = rows.chunks(100).enumerate().map(|(at, rows)| {
            if at == 10 {
                // The first rows are in a draft by now, and nowhere else.
                let same = [(2_000, (0, Some("a".to_owned())))];
                let append = scope.spawn(move || table.append([Ok(batch(&same))], PROCESS));
                Env::os().clock().sleep(Duration::from_millis(50));
                assert!(!append.is_finished());
                other = Some(append);
            }
            Ok(batch(rows))
        });
        assert_eq!(table.append(batches, PROCESS).unwrap(), 1_200);
        let refused = other.unwrap().join().unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    });
    by_key(2, &scanned(&table.view().unwrap()));
}

#[test]
fn keys_of_deleted_rows_are_free_again() {
    for in_blocks in [true, false] {
        let engine = Engine::in_memory(options()).unwrap();
        create(&engine);
        for (name, ..) in TABLES {
            let table = engine.table(name).unwrap();
            let rows = |first: i64| -> Vec<_> {
                let row = |n| (first + n, (n, Some(format!("d{n}"))));
                (0..200).map(row).collect()
            };
            // The keys are in memory from here on.
            table.append([Ok(batch(&rows(0)))], PROCESS).unwrap();
            for part in rows(0).chunks(5).skip(1) {
                let again = table.append([Ok(batch(&part[..1]))], PROCESS);
                assert!(again.is_err() || again.unwrap() < 2, "{name}");
            }
            if in_blocks {
                let view = table.view().unwrap();
                let kernel = engine.kernel();
                kernel.encode_open_rows(view.snapshot().id).unwrap();
                let none = table.append_with_rule(
                    [Ok(batch(&rows(1_000)))],
                    OnDuplicate::First,
                    PROCESS,
                    &|| true,
                );
                assert_eq!(none.unwrap(), 0, "{name}");
            }
            let left = scanned(&table.view().unwrap());
            let gone = left.keys().filter(|number| *number % 3 > 0);
            let gone: BTreeMap<i64, Option<(i64, Row)>> = gone.map(|n| (*n, None)).collect();
            assert_eq!(change(&table, &gone).unwrap(), gone.len() as u64);
            let stored = table.append_with_rule(
                [Ok(batch(&rows(2_000)))],
                OnDuplicate::First,
                PROCESS,
                &|| true,
            );
            assert_eq!(stored.unwrap(), gone.len() as u64, "{name}");
            let stored = table.append_with_rule(
                [Ok(batch(&rows(3_000)))],
                OnDuplicate::Last,
                PROCESS,
                &|| true,
            );
            assert_eq!(stored.unwrap(), 200, "{name}");
            let found = scanned(&table.view().unwrap());
            assert_eq!(found, rows(3_000).into_iter().collect::<Rows>(), "{name}");
        }
    }
}

#[test]
fn an_append_that_is_refused_leaves_nothing_in_its_transaction() {
    let engine = Engine::in_memory(options()).unwrap();
    create(&engine);
    let row = |n: i64| (n, (n % 1_999, Some("a".to_owned())));
    let rows: Vec<_> = (0..2_000).map(row).collect();
    let batches = || rows.chunks(100).map(|rows| Ok(batch(rows)));
    let transaction = engine.transaction().unwrap();
    let inside = transaction.table("plain").unwrap();
    inside
        .append([Ok(batch(&[(-1, (-1, None))]))], PROCESS)
        .unwrap();
    let failing = batches().chain([Err(inside.append(batches(), PROCESS).unwrap_err())]);
    let error = inside.append_with_rule(failing, OnDuplicate::Last, PROCESS, &|| true);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let stopped = inside.append_with_rule(batches(), OnDuplicate::Last, PROCESS, &|| false);
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Query);
    let outside = engine.table("plain").unwrap();
    let refused = outside.append(batches(), PROCESS).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    assert_eq!(outside.view().unwrap().row_count(), 0);
    transaction.commit(PROCESS).unwrap();
    assert_eq!(outside.view().unwrap().row_count(), 1);
    let stored = outside.append_with_rule(batches(), OnDuplicate::Last, PROCESS, &|| true);
    assert_eq!(stored.unwrap(), 1_999);
}

#[test]
fn an_appender_leaves_out_duplicates_alone() {
    let engine = Engine::in_memory(options()).unwrap();
    create(&engine);
    let table = engine.table("plain").unwrap();
    let mut appender = table.appender();
    let mut put = |number: i64, ts: i64| {
        let row = [Value::Int(ts), Value::Text("a"), Value::Int(number)];
        appender.put(&row).unwrap();
    };
    for (number, ts) in [(1, 1), (2, 2), (3, 1), (4, 4)] {
        put(number, ts);
    }
    let error = appender.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.message().ends_with("the rest was stored"), "{error}");
    let numbers = || scanned(&table.view().unwrap()).into_keys();
    assert!(numbers().eq([1, 2, 4]));
    let row = [Value::Int(5), Value::Text("a"), Value::Int(5)];
    appender.put(&row).unwrap();
    appender.flush().unwrap();
    assert!(numbers().eq([1, 2, 4, 5]));
}

#[test]
fn a_resend_is_no_duplicate() {
    let engine = Engine::in_memory(options()).unwrap();
    create(&engine);
    let table = engine.table("plain").unwrap();
    let rows: Vec<_> = (0..600).map(|n| (n, (n, Some("a".to_owned())))).collect();
    let number = |sequence| Numbered {
        producer: "gateway",
        sequence,
    };
    let send = |rows: &[(i64, Row)], sequence| {
        let batches: Vec<_> = rows.chunks(70).map(|rows| Ok(batch(rows))).collect();
        table.append_once(batches, number(sequence), PROCESS, &|| true)
    };
    assert_eq!(send(&rows[..100], 1).unwrap(), 100);
    assert_eq!(send(&rows[..100], 1).unwrap(), 100);
    assert_eq!(send(&rows[100..], 2).unwrap(), 500);
    assert_eq!(send(&rows[100..], 2).unwrap(), 500);
    assert_eq!(table.view().unwrap().row_count(), 600);
    let again = send(&rows[..1], 3).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    assert_eq!(
        again.message(),
        "table \"plain\": there is a row with the unique key device = \"a\", ts = \"0\" already; nothing was stored"
    );
}

/// Whoever is told that all keys are there already relies on it, whatever level the append before had.
#[test]
fn a_durable_append_of_nothing_new_makes_what_is_there_durable() {
    let open = |sim: &SimEnv| {
        let options = EngineOptions {
            background: false,
            ..options()
        };
        Engine::open(sim.env(), Path::new("/db"), options).unwrap()
    };
    let sim = SimEnv::new(1);
    let engine = open(&sim);
    create(&engine);
    engine.flush().unwrap();
    let table = engine.table("events").unwrap();
    let send = |durability| {
        let rows = [
            (1, (1, Some("a".to_owned()))),
            (2, (2, Some("b".to_owned()))),
        ];
        table.append([Ok(batch(&rows))], Some(durability)).unwrap()
    };
    assert_eq!(send(Durability::Process), 2);
    assert_eq!(send(Durability::Disk), 0);
    let again = open(&sim.crash_image(&CrashChoice::DropAll));
    let view = again.table("events").unwrap().view().unwrap();
    assert_eq!(view.row_count(), 2);
}

#[test]
fn an_upsert_is_there_whole_or_not_at_all_after_a_crash() {
    let open = |sim: &SimEnv| {
        let options = EngineOptions {
            background: false,
            ..options()
        };
        Engine::open(sim.env(), Path::new("/db"), options)
    };
    let rows = |numbers: std::ops::Range<i64>, first: i64| -> Vec<_> {
        let row = |number| {
            (
                number,
                ((number - first) / 3, Some(format!("{}", number % 3))),
            )
        };
        numbers.map(row).collect()
    };
    let begin = |seed: u64| {
        let sim = SimEnv::new(seed);
        let engine = open(&sim).unwrap();
        create(&engine);
        let table = engine.table("series").unwrap();
        let before = [Ok(batch(&rows(0..300, 0)))];
        table.append(before, Some(Durability::Disk)).unwrap();
        (sim, engine)
    };
    // Of some rows, which is one commit, and of more than fit a part.
    for many in [9, 330] {
        let upsert = |engine: &Engine| {
            let rows = rows(999..999 + many, 999);
            let batches = rows.chunks(100).map(|rows| Ok(batch(rows)));
            let table = engine.table("series")?;
            table.append(batches.collect::<Vec<_>>(), Some(Durability::Disk))
        };
        let state = |engine: &Engine| scanned(&engine.table("series").unwrap().view().unwrap());
        let before = state(&begin(1).1);
        // Reading counts as well.
        let (sim, engine) = begin(1);
        let first = sim.calls();
        assert_eq!(upsert(&engine).unwrap(), many.cast_unsigned());
        let last = sim.calls();
        let after = state(&engine);
        drop(engine);
        assert_eq!(after.len(), if many > 300 { 330 } else { 300 });
        let mut seen = [0; 2];
        for call in first + 1..=last {
            for plan in [
                FaultPlan::crash_at(call),
                FaultPlan::fail_at(call, Errno::IO),
            ] {
                let (sim, engine) = begin(call);
                sim.set_plan(plan);
                let is_done = upsert(&engine).is_ok();
                for choice in [
                    CrashChoice::DropAll,
                    CrashChoice::KeepAll,
                    CrashChoice::Kill,
                ] {
                    let again = open(&sim.crash_image(&choice)).unwrap();
                    let found = state(&again);
                    assert!(found == before || found == after, "call {call}, {choice:?}");
                    assert!(found == after || !is_done, "call {call}, {choice:?}: lost");
                    seen[usize::from(found == after)] += 1;
                    upsert(&again).unwrap();
                    assert_eq!(state(&again), after);
                }
                drop(engine);
            }
        }
        assert!(seen[0] > 1 && seen[1] > 1, "before and after: {seen:?}");
    }
}
