//! Transactions against a model: what each sees, which of them may commit, and what is there afterwards.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use thalweg_env::sim::{CrashChoice, Errno, FaultPlan, SimEnv};
use thalweg_table::{
    AddedKeys, AggregateRequest, Alteration, AppendLimits, CreateOptions, Durability, Engine,
    EngineOptions, ErrorKind, KeyRange, MaintenanceMode, PickedRows, PlacedRows, RowsToDelete,
    ScanRequest, Table, TableView, Transaction, Value,
};

const PROCESS: Option<Durability> = Some(Durability::Process);
const TABLES: [&str; 2] = ["a", "b"];

/// Rows by their numbers, each with its time and value.
type Rows = BTreeMap<i64, (i64, i64)>;

fn options() -> EngineOptions {
    // Sixteen rows are raw outside, and some 250 in a statement of a transaction.
    let append_limits = AppendLimits {
        raw_bytes: 400,
        gather_bytes: 16_000,
        group_bytes: 6_000,
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
    let field = |name| Field::new(name, DataType::Int64, false);
    Schema::new(vec![field("ts"), field("number"), field("value")])
}

fn engine() -> Engine {
    let engine = Engine::in_memory(options()).unwrap();
    create(&engine);
    engine
}

fn create(engine: &Engine) {
    for name in TABLES {
        let options = CreateOptions::stream("ts").with("block_rows", "64");
        engine.create_table(name, &schema(), &options).unwrap();
    }
}

fn batch(rows: &Rows) -> RecordBatch {
    let column = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
    let columns = vec![
        column(rows.values().map(|row| row.0).collect()),
        column(rows.keys().copied().collect()),
        column(rows.values().map(|row| row.1).collect()),
    ];
    RecordBatch::try_new(Arc::new(schema()), columns).unwrap()
}

fn rows_of(batches: impl IntoIterator<Item = RecordBatch>) -> Rows {
    let mut rows = Rows::new();
    for batch in batches {
        let column = |at: usize| batch.column(at).as_primitive::<Int64Type>().values();
        for ((ts, number), value) in column(0).iter().zip(column(1)).zip(column(2)) {
            assert!(
                rows.insert(*number, (*ts, *value)).is_none(),
                "row {number} is there twice"
            );
        }
    }
    rows
}

fn scanned(view: &TableView) -> Rows {
    let batches = view.scan(&ScanRequest::default()).unwrap();
    let batches: Vec<RecordBatch> = batches.map(Result::unwrap).collect();
    let mut last = i64::MIN;
    for batch in &batches {
        for ts in batch.column(0).as_primitive::<Int64Type>().values() {
            assert!(*ts >= last, "rows come in order");
            last = *ts;
        }
    }
    rows_of(batches)
}

fn check(view: &TableView, model: &Rows) {
    let found = scanned(view);
    let differ: Vec<i64> = { found.keys().chain(model.keys()) }
        .filter(|number| found.get(number) != model.get(number))
        .copied()
        .collect();
    let some = &differ[..differ.len().min(10)];
    assert!(
        differ.is_empty(),
        "{} rows differ, of {}, found {}, counted {}, tree {:?}: {some:?}",
        differ.len(),
        model.len(),
        found.len(),
        view.row_count(),
        view.snapshot()
            .tree
            .total()
            .map(|e| (e.rows, e.blocks, e.key_min, e.key_max))
    );
    assert_eq!(view.row_count(), model.len() as u64);
    let request = AggregateRequest {
        columns: vec![2],
        ..AggregateRequest::default()
    };
    let result = view.aggregate(&request).unwrap();
    let group = &result.groups[0];
    assert_eq!(group.rows, model.len() as u64);
}

/// Deletes or changes the rows with some numbers: those for which `change` gives a value get this one.
fn change(table: &Table, numbers: &BTreeSet<i64>, change: &dyn Fn(i64) -> Option<i64>) -> u64 {
    let edit = table.edit_rows(PROCESS, AddedKeys::Any, &mut |new| {
        let rows = Arc::new(PlacedRows::new(&table.view()?, &ScanRequest::default())?);
        let reader = rows.reader()?;
        let mut picked = PickedRows::default();
        let mut stored = Rows::new();
        for piece in 0..rows.pieces() {
            for (batch, places) in reader.read(piece)? {
                for (at, place) in places.values().iter().enumerate() {
                    let value =
                        |column: usize| batch.column(column).as_primitive::<Int64Type>().value(at);
                    if numbers.contains(&value(1)) {
                        picked.add(&[*place]);
                        if let Some(changed) = change(value(1)) {
                            stored.insert(value(1), (value(0), changed));
                        }
                    }
                }
            }
        }
        if !stored.is_empty() {
            new.push(&batch(&stored))?;
        }
        drop(reader);
        Ok(RowsToDelete::Picked(rows, picked))
    });
    edit.unwrap()
}

/// Who changes the tables: a transaction, or nobody's statements.
struct Writer {
    transaction: Option<Transaction>,
    tables: Vec<Table>,
    /// The tables as it sees them.
    seen: Vec<Rows>,
    /// Rows that were there before it, as it has found and then changed them.
    touched: Vec<Rows>,
    /// Its own rows and changes of rows.
    added: Vec<Rows>,
}

impl Writer {
    fn begin(engine: &Engine, committed: &[Rows]) -> Self {
        let transaction = engine.transaction().unwrap();
        let tables = TABLES.map(|name| transaction.table(name).unwrap());
        Self {
            tables: tables.to_vec(),
            transaction: Some(transaction),
            seen: committed.to_vec(),
            touched: vec![Rows::new(); TABLES.len()],
            added: vec![Rows::new(); TABLES.len()],
        }
    }

    fn outside(engine: &Engine, committed: &[Rows]) -> Self {
        Self {
            transaction: None,
            tables: TABLES.map(|name| engine.table(name).unwrap()).to_vec(),
            seen: committed.to_vec(),
            touched: vec![Rows::new(); TABLES.len()],
            added: vec![Rows::new(); TABLES.len()],
        }
    }

    /// Does something, and the same to the model.
    fn act(&mut self, rng: &mut Rng, counter: &mut i64) {
        let at = rng.usize(..TABLES.len());
        let what = rng.u8(..10);
        match what {
            0..4 => self.append(at, rng, counter),
            4 => {
                let first = rng.i64(0..1_000);
                let keys = KeyRange {
                    first,
                    last: first + rng.i64(0..200),
                };
                let gone: BTreeSet<i64> = { self.seen[at].iter() }
                    .filter(|(_, row)| keys.contains(row.0))
                    .map(|(number, _)| *number)
                    .collect();
                let count = self.tables[at].delete_range(keys, PROCESS).unwrap();
                assert_eq!(count, gone.len() as u64);
                self.forget(at, &gone);
            }
            5 if rng.u8(..4) == 0 => {
                let gone: BTreeSet<i64> = self.seen[at].keys().copied().collect();
                let count = self.tables[at]
                    .delete_range(KeyRange::ALL, PROCESS)
                    .unwrap();
                assert_eq!(count, gone.len() as u64);
                self.forget(at, &gone);
            }
            5..7 => {
                let gone = self.some(at, rng);
                let count = change(&self.tables[at], &gone, &|_| None);
                assert_eq!(count, gone.len() as u64);
                self.forget(at, &gone);
            }
            _ => {
                let changed = self.some(at, rng);
                let base = *counter;
                *counter += 1_000_000;
                let count = change(&self.tables[at], &changed, &|number| Some(base + number));
                assert_eq!(count, changed.len() as u64);
                let times: Vec<(i64, i64)> = changed
                    .iter()
                    .map(|number| (*number, self.seen[at][number].0))
                    .collect();
                self.forget(at, &changed);
                for (number, ts) in times {
                    self.add(at, number, (ts, base + number));
                }
            }
        }
    }

    fn append(&mut self, at: usize, rng: &mut Rng, counter: &mut i64) {
        let many = [1, 3, 20, 70, 250, 250, 400][rng.usize(..7)];
        let first = rng.i64(0..1_000);
        let mut rows = Rows::new();
        for _ in 0..rng.i64(1..=many) {
            *counter += 1;
            rows.insert(*counter, (first + rng.i64(0..100), *counter));
        }
        if rows.len() == 1 {
            let (number, (ts, value)) = rows.first_key_value().unwrap();
            let row = [Value::Int(*ts), Value::Int(*number), Value::Int(*value)];
            self.tables[at].put(&row, PROCESS).unwrap();
        } else {
            self.tables[at].append([Ok(batch(&rows))], PROCESS).unwrap();
        }
        for (number, row) in rows {
            self.add(at, number, row);
        }
    }

    fn some(&self, at: usize, rng: &mut Rng) -> BTreeSet<i64> {
        let rows = &self.seen[at];
        let one_in = [2, 10, 100][rng.usize(..3)];
        rows.keys()
            .copied()
            .filter(|_| rng.u32(..one_in) == 0)
            .collect()
    }

    fn add(&mut self, at: usize, number: i64, row: (i64, i64)) {
        self.seen[at].insert(number, row);
        self.added[at].insert(number, row);
    }

    fn forget(&mut self, at: usize, gone: &BTreeSet<i64>) {
        for number in gone {
            let row = self.seen[at].remove(number).unwrap();
            if self.added[at].remove(number).is_none() {
                self.touched[at].insert(*number, row);
            }
        }
    }

    fn check(&self) {
        for (table, seen) in self.tables.iter().zip(&self.seen) {
            check(&table.view().unwrap(), seen);
        }
    }

    /// Commits; true if that was to be expected and done.
    fn commit(self, committed: &mut [Rows]) -> bool {
        let is_there = |(rows, touched): (&Rows, &Rows)| {
            touched
                .iter()
                .all(|(number, row)| rows.get(number) == Some(row))
        };
        let may_commit = committed
            .iter()
            .zip(&self.touched)
            .all(|of| is_there((of.0, of.1)));
        let done = self.transaction.as_ref().unwrap().commit(PROCESS);
        match done {
            Ok(()) => assert!(may_commit, "rows were changed by two"),
            Err(error) => {
                assert!(!may_commit, "{error}");
                assert_eq!(error.kind(), ErrorKind::Query, "{error}");
                assert!(
                    error.message().contains("another transaction changed"),
                    "{error}"
                );
            }
        }
        if may_commit {
            for ((rows, touched), added) in committed.iter_mut().zip(self.touched).zip(self.added) {
                rows.retain(|number, _| !touched.contains_key(number));
                rows.extend(added);
            }
        }
        may_commit
    }
}

fn history(seed: u64) -> [u32; 2] {
    let rng = &mut Rng::with_seed(seed);
    let engine = engine();
    let mut committed = vec![Rows::new(); TABLES.len()];
    let mut open: Vec<Writer> = Vec::new();
    let (mut counter, mut outcomes) = (0, [0; 2]);
    for _ in 0..rng.usize(20..120) {
        match rng.u8(..20) {
            0..3 if open.len() < 3 => open.push(Writer::begin(&engine, &committed)),
            3..10 if !open.is_empty() => {
                let at = rng.usize(..open.len());
                for _ in 0..rng.usize(1..5) {
                    open[at].act(rng, &mut counter);
                }
            }
            10..14 => {
                let mut outside = Writer::outside(&engine, &committed);
                outside.act(rng, &mut counter);
                committed = outside.seen;
            }
            14 => {
                _ = engine
                    .table(TABLES[rng.usize(..2)])
                    .unwrap()
                    .maintain()
                    .unwrap()
            }
            15 => engine.kernel().checkpoint().unwrap(),
            16 => {
                let view = engine
                    .table(TABLES[rng.usize(..2)])
                    .unwrap()
                    .view()
                    .unwrap();
                engine
                    .kernel()
                    .encode_open_rows(view.snapshot().id)
                    .unwrap();
            }
            17 if !open.is_empty() => {
                let writer = open.swap_remove(rng.usize(..open.len()));
                let done = writer.commit(&mut committed);
                outcomes[usize::from(done)] += 1;
            }
            18 if !open.is_empty() && rng.u8(..3) == 0 => {
                let writer = open.swap_remove(rng.usize(..open.len()));
                match rng.bool() {
                    true => writer.transaction.as_ref().unwrap().rollback(),
                    false => drop(writer),
                }
            }
            _ => {
                open.iter().for_each(Writer::check);
                Writer::outside(&engine, &committed).check();
            }
        }
    }
    open.iter().for_each(Writer::check);
    for writer in open {
        let done = writer.commit(&mut committed);
        outcomes[usize::from(done)] += 1;
    }
    Writer::outside(&engine, &committed).check();
    for name in TABLES {
        engine.table(name).unwrap().maintain().unwrap();
    }
    Writer::outside(&engine, &committed).check();
    outcomes
}

#[test]
fn transactions_do_what_the_model_says() {
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
        outcomes[0] > 30 && outcomes[1] > 100,
        "refused and committed: {outcomes:?}"
    );
}

#[test]
fn of_equal_rows_as_many_go_as_were_deleted() {
    let engine = engine();
    let table = engine.table("a").unwrap();
    let row = [Value::Int(5), Value::Int(5), Value::Int(5)];
    let put = |count: usize| (0..count).for_each(|_| table.put(&row, PROCESS).unwrap());
    put(3);
    let id = table.view().unwrap().snapshot().id;
    engine.kernel().encode_open_rows(id).unwrap();
    put(4);
    let transaction = engine.transaction().unwrap();
    let inside = transaction.table("a").unwrap();
    // All but one of those in the block, all but one of those that are open.
    let deleted = inside.edit_rows(None, AddedKeys::Any, &mut |_| {
        let rows = Arc::new(PlacedRows::new(&inside.view()?, &ScanRequest::default())?);
        let reader = rows.reader()?;
        let mut picked = PickedRows::default();
        for piece in 0..rows.pieces() {
            for (_, places) in reader.read(piece)? {
                if places.len() > 1 || piece > 1 {
                    picked.add(&places.values()[usize::from(piece == 0)..]);
                }
            }
        }
        drop(reader);
        Ok(RowsToDelete::Picked(rows, picked))
    });
    assert_eq!(deleted.unwrap(), 2 + 3);
    assert_eq!(inside.view().unwrap().row_count(), 2);
    // The open ones move, and one more comes.
    put(1);
    engine.kernel().encode_open_rows(id).unwrap();
    transaction.commit(PROCESS).unwrap();
    assert_eq!(table.view().unwrap().row_count(), 3);
    let scanned = table.view().unwrap().scan(&ScanRequest::default()).unwrap();
    let rows: usize = scanned.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows, 3);
}

/// They are other rows, though those that were deleted are not there any more, since open rows are covered then.
#[test]
fn open_rows_that_others_have_deleted_and_stored_anew_are_not_deleted() {
    for batch_rows in [4, 10] {
        let engine = engine();
        let options = CreateOptions::stream("ts").with("block_rows", "8192");
        let table = engine.create_table("c", &schema(), &options).unwrap();
        let append = || {
            for first in (0..2_000).step_by(batch_rows) {
                let numbers = first..first + i64::try_from(batch_rows).unwrap();
                let rows: Rows = numbers.map(|number| (number, (number, 0))).collect();
                table.append([Ok(batch(&rows))], PROCESS).unwrap();
            }
        };
        append();
        let transaction = engine.transaction().unwrap();
        let inside = transaction.table("c").unwrap();
        let deleted = inside.delete_range(KeyRange::from(0..=4), None);
        assert_eq!(deleted.unwrap(), 5);
        let deleted = table.delete_range(KeyRange::ALL, PROCESS);
        assert_eq!(deleted.unwrap(), 2_000);
        append();
        let refused = transaction.commit(PROCESS).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Query, "{refused}");
        assert_eq!(table.view().unwrap().row_count(), 2_000);
    }
}

#[test]
fn rows_picked_within_a_transaction_are_deleted_by_it_alone() {
    let engine = engine();
    let table = engine.table("a").unwrap();
    let row = [Value::Int(1), Value::Int(1), Value::Int(1)];
    let transaction = engine.transaction().unwrap();
    let inside = transaction.table("a").unwrap();
    inside.put(&row, None).unwrap();
    let pick = || {
        let rows = PlacedRows::new(&inside.view()?, &ScanRequest::default())?;
        let mut picked = PickedRows::default();
        picked.add(&[0]);
        Ok(RowsToDelete::Picked(Arc::new(rows), picked))
    };
    // A row of somebody else gets the number that the transaction has given its own.
    table.put(&row, PROCESS).unwrap();
    let refused = table.delete_picked(PROCESS, &mut || pick());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(table.view().unwrap().row_count(), 1);
    assert_eq!(inside.delete_picked(None, &mut || pick()).unwrap(), 1);
    transaction.commit(PROCESS).unwrap();
    assert_eq!(table.view().unwrap().row_count(), 1);
}

#[test]
fn files_of_which_nothing_is_left_stay_out() {
    let engine = engine();
    let transaction = engine.transaction().unwrap();
    let inside = transaction.table("a").unwrap();
    for first in [0, 1_000, 2_000] {
        let rows = (first..first + 400).map(|number| (number, (number, number)));
        inside.append([Ok(batch(&rows.collect()))], None).unwrap();
    }
    // All of the first file, some of the others, and some raw rows.
    let last = 399;
    assert_eq!(
        inside
            .delete_range(KeyRange { first: 0, last }, None)
            .unwrap(),
        400
    );
    let some: BTreeSet<i64> = (1_000..2_400).step_by(10).collect();
    assert_eq!(
        change(&inside, &some, &|number| (number % 20 == 0)
            .then_some(-number)),
        80
    );
    let seen = scanned(&inside.view().unwrap());
    assert_eq!(seen.len(), 800 - 40);
    transaction.commit(PROCESS).unwrap();
    check(&engine.table("a").unwrap().view().unwrap(), &seen);
}

#[test]
fn statements_of_one_transaction_at_the_same_time_lose_nothing() {
    let engine = engine();
    let transaction = engine.transaction().unwrap();
    let inside = transaction.table("a").unwrap();
    inside
        .append([Ok(batch(&(0..4).map(|n| (n, (n, 0))).collect()))], None)
        .unwrap();
    let add_one = |number: i64| {
        let edit = inside.edit_rows(None, AddedKeys::Any, &mut |new| {
            let view = inside.view()?;
            let value = scanned(&view)[&number].1 + 1;
            let rows = Arc::new(PlacedRows::new(&view, &ScanRequest::default())?);
            let reader = rows.reader()?;
            let mut picked = PickedRows::default();
            for piece in 0..rows.pieces() {
                for (batch, places) in reader.read(piece)? {
                    let numbers = batch.column(1).as_primitive::<Int64Type>().values();
                    for (of, place) in numbers.iter().zip(places.values()) {
                        if *of == number {
                            picked.add(&[*place]);
                        }
                    }
                }
            }
            new.push(&batch(&[(number, (number, value))].into()))?;
            drop(reader);
            Ok(RowsToDelete::Picked(rows, picked))
        });
        assert_eq!(edit.unwrap(), 1);
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || (0..50).for_each(|round| add_one((round + thread) % 2)));
        }
    });
    let wanted: Rows = [(0, (0, 100)), (1, (1, 100)), (2, (2, 0)), (3, (3, 0))].into();
    check(&inside.view().unwrap(), &wanted);
    transaction.commit(PROCESS).unwrap();
    check(&engine.table("a").unwrap().view().unwrap(), &wanted);
}

#[test]
fn a_definition_that_changes_meanwhile_makes_a_transaction_fail() {
    let engine = engine();
    let table = engine.table("a").unwrap();
    let transaction = engine.transaction().unwrap();
    let inside = transaction.table("a").unwrap();
    let row = [Value::Int(1), Value::Int(1), Value::Int(1)];
    inside.put(&row, None).unwrap();
    let rename = Alteration::RenameColumn {
        name: "value".to_owned(),
        to: "worth".to_owned(),
    };
    table.alter(&[rename]).unwrap();
    let error = transaction.commit(PROCESS).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Query);
    let told = "its columns or options were changed since the transaction began";
    assert!(error.message().contains(told), "{error}");
    assert_eq!(table.view().unwrap().row_count(), 0);
}

/// Of rows with one time those that came first are first, whether a statement puts its rows in files or not.
#[test]
fn rows_of_a_transaction_stay_in_the_order_in_which_they_came() {
    let engine = engine();
    let transaction = engine.transaction().unwrap();
    let inside = transaction.table("a").unwrap();
    let mut next = 0;
    for many in [3, 400, 2, 1, 300, 5] {
        let rows = (next..next + many).map(|number| (number, (7, number)));
        inside.append([Ok(batch(&rows.collect()))], None).unwrap();
        next += many;
    }
    let numbers = |table: &Table| -> Vec<i64> {
        let scan = table.view().unwrap().scan(&ScanRequest::default()).unwrap();
        let of_batch = |batch: thalweg_table::Result<RecordBatch>| {
            let batch = batch.unwrap();
            let numbers = batch.column(1).as_primitive::<Int64Type>();
            numbers.values().to_vec()
        };
        scan.flat_map(of_batch).collect()
    };
    assert!(numbers(&inside).into_iter().eq(0..next));
    transaction.commit(PROCESS).unwrap();
    let table = engine.table("a").unwrap();
    assert!(numbers(&table).into_iter().eq(0..next));
}

/// Changes both tables by one transaction: some rows go, others are changed, some come raw and many in files.
fn correct(engine: &Engine) -> thalweg_table::Result<()> {
    let transaction = engine.transaction()?;
    let [a, b] = [transaction.table("a")?, transaction.table("b")?];
    a.delete_range(
        KeyRange {
            first: 10,
            last: 60,
        },
        None,
    )?;
    let many = (1_000..1_400).map(|number| (number, (number % 100, 1)));
    a.append([Ok(batch(&many.collect()))], None)?;
    a.delete_range(
        KeyRange {
            first: 20,
            last: 25,
        },
        None,
    )?;
    b.delete_range(KeyRange { first: 0, last: 0 }, None)?;
    b.put(&[Value::Int(7), Value::Int(2_000), Value::Int(7)], None)?;
    transaction.commit(Some(Durability::Disk))
}

#[test]
fn a_crash_or_an_error_leaves_all_of_a_transaction_or_nothing() {
    let open = |sim: &SimEnv| {
        let options = EngineOptions {
            background: false,
            ..options()
        };
        Engine::open(sim.env(), Path::new("/db"), options)
    };
    let begin = |seed: u64| {
        let sim = SimEnv::new(seed);
        let engine = open(&sim).unwrap();
        create(&engine);
        for name in TABLES {
            let rows = (0..90).map(|number| (number, (number, 0)));
            let table = engine.table(name).unwrap();
            table
                .append([Ok(batch(&rows.collect()))], Some(Durability::Disk))
                .unwrap();
        }
        (sim, engine)
    };
    let state =
        |engine: &Engine| TABLES.map(|name| scanned(&engine.table(name).unwrap().view().unwrap()));
    let (sim, engine) = begin(1);
    let (before, first) = (state(&engine), sim.calls());
    correct(&engine).unwrap();
    let (after, last) = (state(&engine), sim.calls());
    drop(engine);
    assert_eq!(after[0].len(), 90 - 51 + 400 - 24);
    assert_eq!(after[1].len(), 90);
    assert!(last > first + 4, "{first} to {last}");
    let mut seen = [0; 2];
    for call in first + 1..=last {
        for plan in [
            FaultPlan::crash_at(call),
            FaultPlan::fail_at(call, Errno::IO),
        ] {
            let (sim, engine) = begin(call);
            sim.set_plan(plan);
            let is_done = correct(&engine).is_ok();
            for choice in [
                CrashChoice::DropAll,
                CrashChoice::KeepAll,
                CrashChoice::Kill,
                CrashChoice::Random {
                    seed: call,
                    unreadable: false,
                },
            ] {
                let image = sim.crash_image(&choice);
                let again = open(&image).unwrap();
                let found = state(&again);
                assert!(found == before || found == after, "call {call}, {choice:?}");
                assert!(found == after || !is_done, "call {call}, {choice:?}: lost");
                seen[usize::from(found == after)] += 1;
                // Whatever has become of the first one, the next one works.
                correct(&again).unwrap();
                let rows = again.table("b").unwrap().view().unwrap().row_count();
                assert_eq!(rows, 90 + u64::from(found == after));
            }
            drop(engine);
        }
    }
    assert!(seen[0] > 10 && seen[1] > 4, "before and after: {seen:?}");
}
