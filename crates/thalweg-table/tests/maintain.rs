//! Maintenance: late rows come in order, short blocks together, and nobody can tell by the rows, a crash included.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use std::path::Path;
use std::sync::Arc;
use thalweg_env::sim::{CallKind, Errno, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_kernel::orders::ReplaceEdit;
use thalweg_kernel::{Commit, Edit};
use thalweg_table::{
    AppendLimits, CreateOptions, Durability, Engine, EngineOptions, ErrorKind, Maintained,
    ScanRequest, Table, TableView, Value,
};

fn options() -> EngineOptions {
    EngineOptions {
        background: false,
        segment_bytes: 256 << 10,
        append_limits: AppendLimits {
            raw_bytes: 1_000,
            gather_bytes: 16_000,
            group_bytes: 1_500,
            fragment_bytes: 8_000,
            split_fragment_bytes: 500,
        },
        maintain_rows: 2_000,
        ..EngineOptions::default()
    }
}

fn open(sim: &SimEnv) -> Engine {
    Engine::open(sim.env(), Path::new("/db"), options()).unwrap()
}

fn create(engine: &Engine) -> Table {
    let schema = Schema::new(vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("number", DataType::Int64, false),
    ]);
    let options = CreateOptions::stream("ts").with("block_rows", 128);
    engine.create_table("t", &schema, &options).unwrap()
}

/// A table and the times of its rows, in order of arrival.
struct Filled {
    table: Table,
    times: Vec<i64>,
    /// Of one append.
    batch_rows: usize,
}

impl Filled {
    fn new(engine: &Engine) -> Self {
        Self {
            table: create(engine),
            times: Vec::new(),
            batch_rows: usize::MAX,
        }
    }

    fn append(&mut self, times: impl Iterator<Item = i64>) {
        let first = self.times.len();
        self.times.extend(times);
        let numbers = (0_i64..).skip(first).take(self.times.len() - first);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(
                self.times[first..].iter().copied(),
            )),
            Arc::new(Int64Array::from_iter_values(numbers)),
        ];
        let batch = RecordBatch::try_new(self.table.schema(), columns).unwrap();
        let starts = (0..batch.num_rows()).step_by(self.batch_rows);
        let part = |start| batch.slice(start, self.batch_rows.min(batch.num_rows() - start));
        self.table
            .append(starts.map(|start| Ok(part(start))), Some(Durability::Disk))
            .unwrap();
    }

    /// Rows in order, in blocks of the log and in files, then late ones all over and some in one place.
    fn with_late_rows(engine: &Engine) -> Self {
        let mut filled = Self::new(engine);
        for part in 0..10 {
            filled.append((0..300).map(|n| part * 3_000 + n * 10));
        }
        filled.append((0..4_000).map(|n| 30_000 + n / 3));
        filled.append((0..400).map(|n| n * 75));
        filled.append((0..200).map(|n| 12_345 + n / 7));
        for part in 0..5 {
            filled.append((0..70).map(|n| 40_000 + part * 100 + n));
        }
        filled
    }

    /// The numbers of the rows by time, then by arrival.
    fn expected(&self) -> Vec<i64> {
        let mut numbers: Vec<i64> = (0_i64..).take(self.times.len()).collect();
        numbers.sort_by_key(|number| self.times[usize::try_from(*number).unwrap()]);
        numbers
    }
}

fn numbers(view: &TableView) -> Vec<i64> {
    let column = |batch: RecordBatch| {
        batch
            .column(1)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    let scan = view.scan(&ScanRequest::default()).unwrap();
    scan.flat_map(|batch| column(batch.unwrap())).collect()
}

/// A call that fails says nothing of what a file is: taken for a segment, a fragment would go for the sake of one of its blocks.
#[test]
fn a_call_on_a_fragment_that_fails_loses_no_row() {
    let mut failed = 0;
    for call in [CallKind::Metadata, CallKind::Open, CallKind::Read] {
        for skip in 0..30 {
            let sim = SimEnv::new(8);
            let engine = open(&sim);
            let mut filled = Filled::new(&engine);
            filled.append((0..1_500).map(|n| 10_000 + n));
            filled.append((0..20).map(|n| 10_010 + n));
            filled.append((0..1_500).map(|n| 20_000 + n));
            // In the way of no other block of its fragment.
            filled.append((0..20).map(|n| 20_010 + n));
            let expected = filled.expected();
            let fault = FaultRule::new(Fault::Error(Errno::IO)).on(&[call]);
            let fault = fault.path_suffix(".frag").skip(skip).once();
            sim.set_plan(FaultPlan::none().rule(fault));
            failed += u64::from(filled.table.maintain().is_err());
            sim.set_plan(FaultPlan::none());
            assert_eq!(numbers(&filled.table.view().unwrap()), expected);
            filled.table.maintain().unwrap();
            assert_eq!(numbers(&filled.table.view().unwrap()), expected);
        }
    }
    assert!(failed > 2, "{failed} failed");
}

#[test]
fn late_rows_come_in_order_and_older_views_see_what_they_saw() {
    let sim = SimEnv::new(1);
    let engine = open(&sim);
    let filled = Filled::with_late_rows(&engine);
    let (table, expected) = (&filled.table, filled.expected());
    let (before, stats) = (table.view().unwrap(), table.stats().unwrap());
    assert_eq!(numbers(&before), expected);
    assert!(stats.late_rows > 0 && stats.fragments > 0, "{stats:?}");

    let done = table.maintain().unwrap();
    assert!(done.steps > 1, "{done:?}");
    let after = table.stats().unwrap();
    assert_eq!((after.late_rows, after.rows), (0, stats.rows));
    assert_eq!(numbers(&table.view().unwrap()), expected);
    // Balanced blocks are more than half full.
    assert!(after.blocks < stats.rows / 64, "{after:?}");
    let metrics = {
        let mut scan = table.view().unwrap().scan(&ScanRequest::default()).unwrap();
        scan.by_ref().for_each(|batch| drop(batch.unwrap()));
        Arc::clone(scan.metrics())
    };
    assert_eq!(metrics.blocks_read(), after.blocks);
    assert_eq!(numbers(&before), expected);
    assert_eq!(before.stats().unwrap(), stats);
    assert_eq!(table.maintain().unwrap(), Maintained::default());

    drop(before);
    engine.close().unwrap();
    let engine = open(&sim);
    let table = engine.table("t").unwrap();
    assert_eq!(numbers(&table.view().unwrap()), expected);
    assert_eq!(table.stats().unwrap(), after);
}

#[test]
fn steps_of_less_than_a_block_come_to_an_end() {
    let sim = SimEnv::new(11);
    let options = EngineOptions {
        maintain_rows: 3,
        ..options()
    };
    let engine = Engine::open(sim.env(), Path::new("/db"), options).unwrap();
    let mut filled = Filled::new(&engine);
    // Each block reaches over all keys: each step makes one of the rows of a few commits, in a part of them.
    for part in 0..20 {
        filled.append((0..100).map(|n| n * 20 + (n * 7 + part * 13) % 20));
    }
    let done = filled.table.maintain().unwrap();
    let stats = filled.table.stats().unwrap();
    assert!(done.steps > stats.blocks, "{done:?}, {stats:?}");
    assert_eq!((stats.late_rows, stats.open_rows), (0, 0));
    assert_eq!(numbers(&filled.table.view().unwrap()), filled.expected());
}

/// More blocks overlap everywhere than a step takes: those at the edge of a range alone would be a step that puts nothing in order.
#[test]
fn as_many_late_appends_as_there_may_be_are_put_in_order_in_a_few_passes() {
    let sim = SimEnv::new(12);
    let engine = open(&sim);
    let mut filled = Filled::new(&engine);
    for part in 0..60 {
        filled.append((0..1_000).map(|n| n * 1_000 + (n * 7 + part * 619) % 1_000));
    }
    let before = filled.table.stats().unwrap();
    assert!(before.late_rows > 58_000, "{before:?}");
    let done = filled.table.maintain().unwrap();
    let stats = filled.table.stats().unwrap();
    assert_eq!((stats.late_rows, stats.open_rows), (0, 0));
    assert_eq!(numbers(&filled.table.view().unwrap()), filled.expected());
    // 30 steps would take each row once.
    assert!(done.steps < 300 && done.rows < 6 * stats.rows, "{done:?}");
}

/// An append that is sorted in several parts has blocks that overlap, all of one commit, so that not even two of them may fit in a
/// step.
#[test]
fn blocks_of_one_commit_that_are_more_than_a_step_are_put_in_order() {
    let sim = SimEnv::new(13);
    let options = EngineOptions {
        maintain_rows: 50,
        append_limits: AppendLimits {
            gather_bytes: 2_000,
            ..options().append_limits
        },
        ..options()
    };
    let engine = Engine::open(sim.env(), Path::new("/db"), options).unwrap();
    let mut filled = Filled::new(&engine);
    filled.batch_rows = 300;
    for part in 0..3 {
        filled.append((0..6_000).map(|n| (n * 7_919 + part) % 6_007));
    }
    let before = filled.table.stats().unwrap();
    assert!(before.late_rows > 15_000, "{before:?}");
    let done = filled.table.maintain().unwrap();
    let stats = filled.table.stats().unwrap();
    assert_eq!((stats.late_rows, stats.open_rows), (0, 0));
    assert_eq!(numbers(&filled.table.view().unwrap()), filled.expected());
    assert!(
        done.rows < 20 * stats.rows && done.steps < 1_000,
        "{done:?}, {stats:?}"
    );
}

fn fragments(sim: &SimEnv) -> u64 {
    let files = sim.files().into_iter();
    files
        .filter(|(path, _)| path.extension().is_some_and(|ending| ending == "frag"))
        .count() as u64
}

#[test]
fn what_was_replaced_is_deleted() {
    let sim = SimEnv::new(2);
    let engine = open(&sim);
    let filled = Filled::with_late_rows(&engine);
    let fragments = || fragments(&sim);
    let view = filled.table.view().unwrap();
    assert!(engine.maintain().unwrap().steps > 0);
    let needed = filled.table.stats().unwrap().fragments;
    assert!(fragments() > needed, "the view needs the files that were");
    assert_eq!(numbers(&view), filled.expected());
    drop(view);
    assert_eq!(engine.maintain().unwrap(), Maintained::default());
    assert_eq!(fragments(), needed);
    assert_eq!(numbers(&filled.table.view().unwrap()), filled.expected());
}

/// Without a thread that does it in the background nobody else would.
#[test]
fn what_was_replaced_before_a_close_is_deleted_by_the_next_call() {
    let sim = SimEnv::new(3);
    let engine = open(&sim);
    let filled = Filled::with_late_rows(&engine);
    let view = filled.table.view().unwrap();
    assert!(engine.maintain().unwrap().steps > 0);
    let needed = filled.table.stats().unwrap().fragments;
    engine.close().unwrap();
    drop(view);
    assert!(fragments(&sim) > needed);
    let engine = open(&sim);
    assert_eq!(engine.maintain().unwrap(), Maintained::default());
    assert_eq!(fragments(&sim), needed);
    let table = engine.table("t").unwrap();
    assert_eq!(numbers(&table.view().unwrap()), filled.expected());
}

#[test]
fn rows_that_go_on_coming_find_their_place() {
    let sim = SimEnv::new(3);
    let engine = open(&sim);
    let mut filled = Filled::with_late_rows(&engine);
    for round in 0..6 {
        filled.table.maintain().unwrap();
        // With keys that are there already, raw and in blocks.
        filled.append((0..20).map(|n| n * 1_000 + round));
        filled.append((0..150).map(|n| 12_345 + n / 7));
        filled.append((0..150).map(|n| 40_100 + round * 100 + n / 2));
        assert_eq!(
            numbers(&filled.table.view().unwrap()),
            filled.expected(),
            "round {round}"
        );
    }
    assert!(filled.table.stats().unwrap().late_rows > 0);
    filled.table.maintain().unwrap();
    let stats = filled.table.stats().unwrap();
    assert_eq!((stats.late_rows, stats.open_rows), (0, 0));
    assert_eq!(numbers(&filled.table.view().unwrap()), filled.expected());
}

/// Late rows overlap whatever was put in order before they came: a call that also put those in order would never end.
#[test]
fn a_call_ends_while_late_rows_keep_coming() {
    for seed in 0..12 {
        let sim = SimEnv::new(seed);
        let engine = open(&sim);
        let filled = std::cell::RefCell::new(Filled::with_late_rows(&engine));
        let table = filled.borrow().table.clone();
        let mut state = seed;
        let mut random = |below: i64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            i64::try_from(state >> 33).unwrap() % below
        };
        let random = std::cell::RefCell::new(&mut random);
        let calls = std::cell::Cell::new(0);
        let late_rows_come = || {
            calls.set(calls.get() + 1);
            assert!(calls.get() < 40, "seed {seed}: it does not end");
            let mut random = random.borrow_mut();
            let mut filled = filled.borrow_mut();
            // A few stay outside of blocks, some become one in the log, many become files of their own.
            let rows = if seed % 2 == 0 {
                [5, 150, 2_500][usize::try_from(random(3)).unwrap()]
            } else {
                2_500
            };
            let times: Vec<i64> = (0..rows).map(|_| random(45_000)).collect();
            filled.append(times.into_iter());
            assert_eq!(numbers(&table.view().unwrap()), filled.expected());
            true
        };
        let done = table.maintain_while(&late_rows_come).unwrap();
        assert!(
            done.steps > 1,
            "seed {seed}: what was late before is put in order"
        );
        assert!(table.stats().unwrap().late_rows > 0, "seed {seed}");
        assert_eq!(
            numbers(&table.view().unwrap()),
            filled.borrow().expected(),
            "seed {seed}"
        );
        table.maintain().unwrap();
        let stats = table.stats().unwrap();
        assert_eq!((stats.late_rows, stats.open_rows), (0, 0), "seed {seed}");
        assert_eq!(
            numbers(&table.view().unwrap()),
            filled.borrow().expected(),
            "seed {seed}"
        );
    }
}

#[test]
fn a_crash_at_any_call_loses_and_doubles_nothing() {
    crash_at_any_call(Engine::maintain);
}

#[test]
fn a_crash_at_any_call_of_jobs_loses_and_doubles_nothing() {
    crash_at_any_call(Engine::run_jobs);
}

fn crash_at_any_call(maintain: fn(&Engine) -> thalweg_table::Result<Maintained>) {
    let sim = SimEnv::new(4);
    let engine = open(&sim);
    let filled = Filled::with_late_rows(&engine);
    let expected = filled.expected();
    engine.checkpoint().unwrap();
    let first = sim.calls() + 1;
    sim.record_states(true);
    assert!(maintain(&engine).unwrap().steps > 1);
    let last = sim.calls();
    let (mut images, mut late) = (0, Vec::new());
    for call in first..=last {
        let Some(state) = sim.state_at(call) else {
            continue;
        };
        for choice in state.crash_choices(2, 1, call) {
            let survivor = state.crash_image(&choice);
            let engine = open(&survivor);
            let table = engine.table("t").unwrap();
            assert_eq!(
                numbers(&table.view().unwrap()),
                expected,
                "call {call}, {choice:?}"
            );
            late.push(table.stats().unwrap().late_rows);
            images += 1;
        }
    }
    late.sort_unstable();
    late.dedup();
    assert!(images > 100, "{images} images");
    assert!(late.len() > 2, "steps are seen one by one: {late:?}");
    assert_eq!(late[0], 0);
}

#[test]
fn readers_do_not_maintain() {
    let sim = SimEnv::new(5);
    let engine = open(&sim);
    let filled = Filled::with_late_rows(&engine);
    let read_only = EngineOptions {
        read_only: true,
        ..options()
    };
    let reader = Engine::open(sim.env_of_process(77), Path::new("/db"), read_only).unwrap();
    let error = reader.maintain().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    filled.table.maintain().unwrap();
    assert_eq!(
        numbers(&reader.table("t").unwrap().view().unwrap()),
        filled.expected()
    );
    engine.close().unwrap();
    assert_eq!(
        engine.maintain().unwrap_err().kind(),
        ErrorKind::Unavailable
    );
}

#[test]
fn writers_and_readers_go_on_meanwhile() {
    let engine = Engine::in_memory(EngineOptions {
        background: true,
        ..options()
    })
    .unwrap();
    let mut filled = Filled::new(&engine);
    let table = filled.table.clone();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..60 {
                filled.append((0..100).map(|n| round * 500 + n * 5));
                filled.append((0..40).map(|n| n * 10 * (round + 1)));
                filled.append((0..3).map(|n| round * 300 + n));
            }
            done.store(true, std::sync::atomic::Ordering::Release);
            filled
        });
        let mut steps = 0;
        loop {
            let last = done.load(std::sync::atomic::Ordering::Acquire);
            steps += table.maintain().unwrap().steps;
            let view = table.view().unwrap();
            let found = numbers(&view);
            assert_eq!(found.len() as u64, view.row_count());
            if last {
                break;
            }
        }
        let filled = writer.join().unwrap();
        assert!(steps > 1, "{steps} steps");
        assert_eq!(numbers(&table.view().unwrap()), filled.expected());
        assert_eq!(table.stats().unwrap().late_rows, 0);
    });
}

#[test]
fn what_was_prepared_before_a_replacement_is_refused() {
    let sim = SimEnv::new(6);
    let engine = open(&sim);
    let filled = Filled::with_late_rows(&engine);
    let old = filled.table.view().unwrap().snapshot().clone();
    assert!(filled.table.maintain().unwrap().steps > 0);
    let new = filled.table.view().unwrap().snapshot().clone();
    // A block may have the key of another one by now: that all keys are there says nothing.
    let replace = |prepared_at| {
        let edit = Edit::Replace(ReplaceEdit::of_rows(old.id, Vec::new(), Vec::new()));
        let commit = Commit {
            edits: vec![edit],
            prepared_at: Some(prepared_at),
            ..Commit::default()
        };
        engine.kernel().commit(commit, Durability::Disk)
    };
    let error = replace(old.commit()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    replace(new.commit()).unwrap();
}

fn fragment_bytes(sim: &SimEnv) -> u64 {
    let files = sim.files().into_iter();
    files
        .filter(|(path, _)| path.extension().is_some_and(|ending| ending == "frag"))
        .map(|(_, bytes)| bytes)
        .sum()
}

#[test]
fn files_of_an_append_that_fails_take_no_room() {
    let sim = SimEnv::new(7);
    let engine = open(&sim);
    let mut filled = Filled::new(&engine);
    filled.append(0..1_000);
    let before = fragment_bytes(&sim);
    let good = |first: i64| {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(first..first + 4_000)),
            Arc::new(Int64Array::from_iter_values((0..4_000).map(|n| n * n * n))),
        ];
        Ok(RecordBatch::try_new(filled.table.schema(), columns).unwrap())
    };
    let broken = Err(thalweg_kernel::Error::new(ErrorKind::Io, "no more of it"));
    let seen = std::cell::Cell::new(0);
    let watched = (0..5).map(|part| {
        seen.set(fragment_bytes(&sim).max(seen.get()));
        good(part * 4_000)
    });
    let error = filled
        .table
        .append(watched.chain([broken]), None)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(seen.get() > before, "nothing was in files yet");
    assert_eq!(fragment_bytes(&sim), before);
    assert_eq!(numbers(&filled.table.view().unwrap()), filled.expected());
}

/// Blocks of one row each in segments of which little else is left: compaction moves them into files as they are.
fn with_tiny_blocks_in_files(engine: &Engine, rows: i64) -> Filled {
    let other = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
    let other = Arc::new(other);
    let options = CreateOptions::stream("ts");
    let gone = engine.create_table("gone", &other, &options).unwrap();
    let mut filled = Filled::new(engine);
    for row in 0..rows {
        filled.append([row * 3].into_iter());
        if row % 4 == 0 {
            let mut random = fastrand::Rng::with_seed(row.cast_unsigned());
            let keys = Int64Array::from_iter_values((0..300).map(|_| random.i64(..)));
            let batch = RecordBatch::try_new(Arc::clone(&other), vec![Arc::new(keys)]).unwrap();
            gone.append([Ok(batch)], Some(Durability::Process)).unwrap();
        }
    }
    engine.drop_table("gone").unwrap();
    engine.checkpoint().unwrap();
    engine.kernel().run_due_work().unwrap();
    filled
}

#[test]
fn tiny_blocks_are_put_together_wherever_they_lie() {
    let (sim, rows) = (SimEnv::new(11), 6_000);
    let mut small = options();
    // Every block of one row is a commit of its own.
    small.append_limits.raw_bytes = 0;
    small.append_limits.split_fragment_bytes = 4_000;
    let engine = Engine::open(sim.env(), Path::new("/db"), small).unwrap();
    let filled = with_tiny_blocks_in_files(&engine, rows);
    let table = &filled.table;
    let before = table.stats().unwrap();
    assert_eq!(before.blocks, 6_000);
    assert!(before.fragments > 0, "nothing was moved: {before:?}");
    let largest = sim.files().into_iter();
    let largest = largest.filter(|(path, _)| path.extension().is_some_and(|e| e == "frag"));
    assert!(largest.map(|(_, bytes)| bytes).max() > Some(8_000));

    let done = table.maintain().unwrap();
    let after = table.stats().unwrap();
    // Of 128 rows, as a load would have made them; 47 of those.
    assert!(after.blocks <= 50, "{after:?} after {done:?}");
    assert_eq!(numbers(&table.view().unwrap()), filled.expected());
    // Rows are written once or twice, however many steps there are.
    assert!(done.rows <= 2 * 6_000, "{done:?}");
    assert_eq!(table.maintain().unwrap(), Maintained::default());
}

#[test]
fn a_large_file_in_order_is_left_alone_while_short_blocks_come() {
    let sim = SimEnv::new(12);
    let mut small = options();
    small.append_limits.raw_bytes = 0;
    small.append_limits.split_fragment_bytes = 2_000;
    small.append_limits.fragment_bytes = 64_000;
    let engine = Engine::open(sim.env(), Path::new("/db"), small).unwrap();
    let mut filled = Filled::new(&engine);
    // Its last block is short.
    let mut random = fastrand::Rng::with_seed(1);
    filled.append((0..3_000).map(|n| n * 1_000 + random.i64(0..900)));
    assert_eq!(filled.table.stats().unwrap().fragments, 1);
    let files = |sim: &SimEnv| -> Vec<_> {
        let files = sim.files().into_iter();
        let files = files.filter(|(path, bytes)| {
            *bytes > 6_000 && path.extension().is_some_and(|e| e == "frag")
        });
        files.collect()
    };
    let before = files(&sim);
    assert_eq!(before.len(), 1);
    let mut written = 0;
    for turn in 0..40 {
        for n in 0..5 {
            filled.append([10_000_000 + turn * 5 + n].into_iter());
        }
        written += filled.table.maintain().unwrap().rows;
        assert_eq!(files(&sim), before, "turn {turn}");
    }
    assert!(filled.table.stats().unwrap().blocks <= 24 + 4);
    // Each maintenance adds a few rows to a short block; a full one is left alone.
    assert!(written <= 40 * 128, "{written}");
    assert_eq!(numbers(&filled.table.view().unwrap()), filled.expected());
}

#[test]
fn maintaining_one_table_writes_nothing_of_the_others() {
    let sim = SimEnv::new(3);
    let engine = open(&sim);
    let schema = Schema::new(vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("v", DataType::Int64, false),
    ]);
    let options = CreateOptions::stream("ts");
    let create = |n| {
        let name = format!("sensor{n}");
        engine.create_table(&name, &schema, &options).unwrap()
    };
    let tables: Vec<Table> = (0..400).map(create).collect();
    let put = |table: &Table, time| {
        let row = [Value::Int(time), Value::Int(2)];
        table.put(&row, Some(Durability::Process)).unwrap();
    };
    for table in &tables {
        put(table, 5);
        assert_eq!(table.maintain().unwrap().steps, 0);
        put(table, 1);
    }
    sim.reset_stats();
    for table in &tables[..200] {
        assert_eq!(table.maintain().unwrap().steps, 1);
    }
    // A checkpoint with the open rows of all tables takes more than 50 KB.
    let written_bytes = sim.stats().bytes_written;
    assert!(
        written_bytes < 5 << 19,
        "{written_bytes} bytes for 400 rows"
    );
}

/// A block that is merged gets the first commit of those that it is merged with: rows that came before it must not be packed with
/// such that came later in the same step.
#[test]
fn rows_with_equal_times_stay_in_order_of_arrival_where_short_blocks_lie_beside_a_crowd() {
    let options = EngineOptions {
        append_limits: AppendLimits {
            raw_bytes: 40,
            gather_bytes: 400,
            ..options().append_limits
        },
        maintain_rows: 1,
        ..options()
    };
    for seed in 0..2_000 {
        let sim = SimEnv::new(seed);
        let engine = Engine::open(sim.env(), Path::new("/db"), options.clone()).unwrap();
        let mut filled = Filled::new(&engine);
        let mut random = fastrand::Rng::with_seed(seed);
        let range = random.i64(10..200);
        let time = random.i64(0..range);
        filled.append(std::iter::repeat_n(time, 3));
        filled.append(std::iter::once(random.i64(0..range)));
        filled.batch_rows = random.usize(10..60);
        filled.append((0..150).map(|_| random.i64(0..range)));
        filled.table.maintain().unwrap();
        let found = numbers(&filled.table.view().unwrap());
        assert_eq!(found, filled.expected(), "seed {seed}");
    }
}

/// Two blocks of very wide rows are no one block, however few bytes they take.
#[test]
fn short_blocks_of_wide_rows_are_left_alone() {
    let sim = SimEnv::new(5);
    let options = EngineOptions {
        background: false,
        ..EngineOptions::default()
    };
    let engine = Engine::open(sim.env(), Path::new("/db"), options).unwrap();
    let columns = 1_100;
    let value = |number| Field::new(format!("c{number}"), DataType::Float64, false);
    let time = Field::new("ts", DataType::Int64, false);
    let fields: Vec<Field> = std::iter::once(time)
        .chain((0..columns).map(value))
        .collect();
    let schema = Schema::new(fields);
    let create = CreateOptions::stream("ts");
    let table = engine.create_table("wide", &schema, &create).unwrap();
    for part in 0..3 {
        let times = Int64Array::from_iter_values(part * 4_096..(part + 1) * 4_096);
        let values = Float64Array::from_iter_values((0..4_096).map(|row| f64::from(row / 512)));
        let values: ArrayRef = Arc::new(values);
        let mut arrays: Vec<ArrayRef> = vec![values; columns + 1];
        arrays[0] = Arc::new(times);
        let batch = RecordBatch::try_new(table.schema(), arrays).unwrap();
        table.append([Ok(batch)], None).unwrap();
    }
    let blocks = table.stats().unwrap().blocks;
    assert!(blocks > 3, "{blocks}");
    for _ in 0..2 {
        assert_eq!(table.maintain().unwrap(), Maintained::default());
    }
    assert_eq!(table.stats().unwrap().blocks, blocks);
}
