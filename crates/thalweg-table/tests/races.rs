//! Threads that change one table at once by all statements that there are, each of them rows of its own, while others maintain and read.
//!
//! The oracle: nobody else touches the rows of a thread, so that after each of its statements they are those of its own model, whatever
//! came in between. Its rows lie in blocks, files and commits together with those of the others: a statement that loses a race and
//! does not begin anew, a mask that goes with a block, or a key that is looked for in an older snapshot takes or brings back one of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thalweg_table::{
    AddedKeys, AggregateRequest, AppendLimits, CreateOptions, Durability, Engine, EngineOptions,
    Error, ErrorKind, KeyRange, MaintenanceMode, Numbered, OnDuplicate, PickedRows, PlacedRows,
    Result, RowsToDelete, ScanRequest, Table, TableView, Value,
};

const PROCESS: Option<Durability> = Some(Durability::Process);
const THREADS: i64 = 4;
/// Keys of one thread that lie beside each other.
const BAND: i64 = 10;
/// Those of all threads, once.
const ROUND: i64 = THREADS * BAND;

/// Times and values by numbers.
type Rows = BTreeMap<i64, (i64, i64)>;

fn engine(maintenance: MaintenanceMode) -> Engine {
    let append_limits = AppendLimits {
        raw_bytes: 1_000,
        gather_bytes: 8_000,
        group_bytes: 4_000,
        fragment_bytes: 8_000,
        split_fragment_bytes: 2_000,
    };
    Engine::in_memory(EngineOptions {
        append_limits,
        maintenance,
        maintain_rows: 500,
        ..EngineOptions::default()
    })
    .unwrap()
}

fn create(engine: &Engine, unique: Option<&str>) -> Table {
    let field = |name| Field::new(name, DataType::Int64, false);
    let schema = Schema::new(["ts", "number", "value"].map(field).to_vec());
    let options = CreateOptions::stream("ts").with("block_rows", 64);
    let options = match unique {
        Some(unique) => options.with("unique", unique),
        None => options,
    };
    engine.create_table("t", &schema, &options).unwrap()
}

fn batch(table: &Table, rows: &Rows) -> RecordBatch {
    let column = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
    let columns = vec![
        column(rows.values().map(|row| row.0).collect()),
        column(rows.keys().copied().collect()),
        column(rows.values().map(|row| row.1).collect()),
    ];
    RecordBatch::try_new(table.schema(), columns).unwrap()
}

/// The rows of a batch: times, numbers and values.
fn rows_of(batch: &RecordBatch) -> Vec<(i64, i64, i64)> {
    let column = |at: usize| batch.column(at).as_primitive::<Int64Type>().values();
    let numbered = column(0).iter().zip(column(1));
    { numbered.zip(column(2)) }
        .map(|((ts, number), value)| (*ts, *number, *value))
        .collect()
}

/// All rows, none of which is there twice.
fn scanned(view: &TableView) -> Rows {
    let mut rows = Rows::new();
    for batch in view.scan(&ScanRequest::default()).unwrap() {
        for (ts, number, value) in rows_of(&batch.unwrap()) {
            let other = rows.insert(number, (ts, value));
            assert!(other.is_none(), "row {number} is there twice");
            assert_eq!(ts % ROUND / BAND, number % THREADS);
        }
    }
    rows
}

/// Who changes rows of its own.
struct Owner<'a> {
    engine: &'a Engine,
    table: Table,
    has_keys: bool,
    /// The change of the keys by a change of times and values.
    other_keys: AddedKeys,
    id: i64,
    rng: Rng,
    next: i64,
    sequence: u64,
    rows: Rows,
    /// Statements that lost too many races.
    given_up: u32,
}

impl<'a> Owner<'a> {
    fn new(
        engine: &'a Engine,
        table: &Table,
        unique: Option<&str>,
        (id, seed): (i64, u64),
    ) -> Self {
        Self {
            engine,
            table: table.clone(),
            has_keys: unique.is_some(),
            other_keys: match unique {
                Some(unique) if unique.contains("ts") => AddedKeys::Any,
                _ => AddedKeys::None,
            },
            id,
            rng: Rng::with_seed(seed),
            next: id,
            sequence: 0,
            rows: Rows::new(),
            given_up: 0,
        }
    }

    /// A key of this thread.
    fn time(&mut self) -> i64 {
        self.rng.i64(0..40) * ROUND + self.id * BAND + self.rng.i64(0..BAND)
    }

    /// Rows with numbers that are not given again.
    fn new_rows(&mut self) -> Rows {
        let many = [1, 4, 30, 120][self.rng.usize(..4)];
        let row = |_| {
            self.next += THREADS;
            (self.next, (self.time(), self.rng.i64(..)))
        };
        (0..many).map(row).collect()
    }

    /// Some rows that are there.
    fn some(&mut self) -> Rows {
        let one_in = [2, 10, 50][self.rng.usize(..3)];
        let rows = self.rows.iter();
        { rows.filter(|_| self.rng.u32(..one_in) == 0) }
            .map(|(number, row)| (*number, *row))
            .collect()
    }

    /// Such rows with other times and values, or with other values alone.
    fn changed(&mut self, may_move: bool) -> Rows {
        let mut changed = self.some();
        let moves = may_move && self.rng.bool();
        for row in changed.values_mut() {
            let ts = if moves { self.time() } else { row.0 };
            *row = (ts, self.rng.i64(..));
        }
        changed
    }

    /// Does something by a table, in or outside of a transaction, and to the model once it is done.
    fn act(&mut self, table: &Table) -> Result<()> {
        match self.rng.u8(..12) {
            0..3 => {
                let rows = self.new_rows();
                let stored = match rows.first_key_value() {
                    Some((number, (ts, value))) if rows.len() == 1 => {
                        let row = [Value::Int(*ts), Value::Int(*number), Value::Int(*value)];
                        table.put(&row, PROCESS).map(|()| 1)
                    }
                    _ => table.append([Ok(batch(table, &rows))], PROCESS),
                };
                assert_eq!(stored?, rows.len() as u64);
                self.rows.extend(rows);
            }
            3..5 => {
                let first = self.rng.i64(0..40) * ROUND + self.id * BAND + self.rng.i64(0..5);
                let keys = KeyRange {
                    first,
                    last: first + self.rng.i64(0..5),
                };
                let gone = self
                    .rows
                    .values()
                    .filter(|row| keys.contains(row.0))
                    .count();
                assert_eq!(table.delete_range(keys, PROCESS)?, gone as u64);
                self.rows.retain(|_, row| !keys.contains(row.0));
            }
            5..7 => {
                let gone: BTreeSet<i64> = self.some().into_keys().collect();
                let picked = table.delete_picked(PROCESS, &mut || pick(table, &gone));
                assert_eq!(picked?, gone.len() as u64);
                self.rows.retain(|number, _| !gone.contains(number));
            }
            7 if self.has_keys => {
                let mut rows = self.new_rows();
                // With another time it would be another key.
                rows.extend(self.changed(self.other_keys == AddedKeys::None));
                let batches = [Ok(batch(table, &rows))];
                let stored =
                    table.append_with_rule(batches, OnDuplicate::Last, PROCESS, &|| true)?;
                assert_eq!(stored, rows.len() as u64);
                self.rows.extend(rows);
            }
            _ => {
                let changed = self.changed(true);
                let numbers = changed.keys().copied().collect();
                // Only a key that holds the time changes with it.
                let keys = match self.has_keys && self.rng.bool() {
                    true => AddedKeys::Any,
                    false => self.other_keys,
                };
                let edited = table.edit_rows(PROCESS, keys, &mut |new| {
                    new.push(&batch(table, &changed))?;
                    pick(table, &numbers)
                });
                assert_eq!(edited?, changed.len() as u64);
                self.rows.extend(changed);
            }
        }
        Ok(())
    }

    /// Several statements in one commit, or none of them.
    fn transact(&mut self) -> Result<()> {
        let before = self.rows.clone();
        let mut act = || {
            let transaction = self.engine.transaction()?;
            let inside = transaction.table("t")?;
            for _ in 0..self.rng.u8(1..5) {
                self.act(&inside)?;
            }
            if self.rng.u8(..4) == 0 {
                self.rows.clone_from(&before);
                transaction.rollback();
                return Ok(());
            }
            transaction.commit(PROCESS)
        };
        let done = act();
        if done.is_err() {
            self.rows = before;
        }
        done
    }

    /// Sends an append twice, with one number.
    fn resend(&mut self) -> Result<()> {
        let rows = self.new_rows();
        self.sequence += 1;
        let producer = format!("gateway {}", self.id);
        let number = Numbered {
            producer: &producer,
            sequence: self.sequence,
        };
        for _ in 0..2 {
            let batches = [Ok(batch(&self.table, &rows))];
            let stored = self.table.append_once(batches, number, PROCESS, &|| true)?;
            assert_eq!(stored, rows.len() as u64);
        }
        self.rows.extend(rows);
        Ok(())
    }

    fn run(&mut self, statements: u32) {
        for statement in 0..statements {
            let done = match self.rng.u8(..8) {
                0 => self.transact(),
                1 => self.resend(),
                _ => {
                    let table = self.table.clone();
                    self.act(&table)
                }
            };
            if let Err(error) = done {
                self.given_up += 1;
                assert!(has_lost_races(&error), "thread {}: {error}", self.id);
            }
            if statement % 8 == 0 {
                self.check(&self.table.view().unwrap());
            }
        }
    }

    /// Of its rows all are there as it has left them, and no others.
    fn check(&self, view: &TableView) {
        let found = scanned(view);
        let own = |rows: &Rows, number: &i64| rows.get(number).copied();
        let is_own = |number: &&i64| *number % THREADS == self.id;
        let differ: Vec<_> = { found.keys().filter(is_own).chain(self.rows.keys()) }
            .filter(|number| own(&found, number) != own(&self.rows, number))
            .collect();
        assert!(differ.is_empty(), "thread {}: {differ:?} differ", self.id);
    }
}

/// The errors of a statement that only touches rows of its own: it has changed nothing then.
fn has_lost_races(error: &Error) -> bool {
    let is_of_transaction = error.message().contains("again and again");
    error.kind() == ErrorKind::Conflict || error.kind() == ErrorKind::Query && is_of_transaction
}

/// The rows with these numbers.
fn pick(table: &Table, numbers: &BTreeSet<i64>) -> Result<RowsToDelete> {
    let rows = Arc::new(PlacedRows::new(&table.view()?, &ScanRequest::default())?);
    let reader = rows.reader()?;
    let mut picked = PickedRows::default();
    for piece in 0..rows.pieces() {
        for (batch, places) in reader.read(piece)? {
            for ((_, number, _), place) in rows_of(&batch).into_iter().zip(places.values()) {
                if numbers.contains(&number) {
                    picked.add(&[*place]);
                }
            }
        }
    }
    drop(reader);
    Ok(RowsToDelete::Picked(rows, picked))
}

/// Reads and moves all rows until the others are done.
fn maintain(engine: &Engine, table: &Table, is_done: &AtomicBool) {
    let id = table.view().unwrap().snapshot().id;
    for round in 0_u32.. {
        if is_done.load(Ordering::Relaxed) {
            break;
        }
        let view = table.view().unwrap();
        let rows = scanned(&view).len() as u64;
        assert_eq!(view.row_count(), rows);
        let request = AggregateRequest {
            columns: vec![2],
            ..AggregateRequest::default()
        };
        let summed = view.aggregate(&request).unwrap();
        assert_eq!(summed.groups[0].columns[0].rows(), rows);
        let moved = match round % 3 {
            0 => table.maintain().map(|_| ()),
            1 => engine.kernel().encode_open_rows(id),
            _ => engine.kernel().checkpoint(),
        };
        if let Err(error) = moved {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        }
    }
}

fn race(unique: Option<&str>, maintenance: MaintenanceMode, statements: u32, seed: u64) {
    let engine = engine(maintenance);
    let table = create(&engine, unique);
    let is_done = AtomicBool::new(false);
    let mut owners: Vec<Owner<'_>> = (0..THREADS)
        .map(|id| Owner::new(&engine, &table, unique, (id, seed + id.cast_unsigned())))
        .collect();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| maintain(&engine, &table, &is_done));
        let owners: Vec<_> = { owners.iter_mut() }
            .map(|owner| scope.spawn(move || owner.run(statements)))
            .collect();
        let done: Vec<_> = owners.into_iter().map(|owner| owner.join()).collect();
        is_done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        done.into_iter().for_each(|done| done.unwrap());
    });
    for _ in 0..2 {
        let view = table.view().unwrap();
        owners.iter().for_each(|owner| owner.check(&view));
        let rows: usize = owners.iter().map(|owner| owner.rows.len()).sum();
        assert_eq!(view.row_count(), rows as u64);
        assert!(rows > 0, "nothing is left to be compared");
        table.maintain().unwrap();
    }
    // Those that lose their races have the turn in the end.
    let given_up: u32 = owners.iter().map(|owner| owner.given_up).sum();
    assert!(given_up * 20 <= statements, "{given_up} statements gave up");
}

/// `THALWEG_STAGES` multiplies the number of statements.
fn race_all(unique: Option<&str>) {
    let stages = std::env::var("THALWEG_STAGES").ok();
    let share: u32 = stages.and_then(|text| text.parse().ok()).unwrap_or(1);
    let seed = std::env::var("THALWEG_SEED").ok();
    let seed = seed.and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1 << 40));
    for round in 0..share {
        for maintenance in [MaintenanceMode::Manual, MaintenanceMode::Auto] {
            race(unique, maintenance, 120, seed + u64::from(round));
        }
    }
}

#[test]
fn each_thread_finds_its_rows_as_it_left_them() {
    race_all(None);
}

#[test]
fn each_thread_finds_its_rows_with_keys_as_it_left_them() {
    race_all(Some("number"));
}

#[test]
fn each_thread_finds_its_rows_with_keys_that_hold_the_time_as_it_left_them() {
    race_all(Some("ts, number"));
}
