//! Retention: rows older than the period leave by the wall clock, exactly, by `maintain` and by jobs, and do not come back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thalweg_env::Env;
use thalweg_env::sim::{CallKind, CrashChoice, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_table::{
    Alteration, AppendLimits, CreateOptions, Durability, Engine, EngineOptions, ErrorKind, JobKind,
    KeyRange, Maintained, MaintenanceMode, ScanRequest, Table,
};

const SECOND_MS: i64 = 1_000;
const HOUR_MS: i64 = 3_600 * SECOND_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// When tests begin, in milliseconds since 1970.
const BEGIN_MS: i64 = 20_000 * DAY_MS;
/// Longer than any machine takes.
const LONG: Duration = Duration::from_secs(120);

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

/// A machine whose wall clock only the test moves.
fn machine(seed: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    sim.set_tick_ns(0);
    set_clock(&sim, BEGIN_MS);
    sim
}

fn set_clock(sim: &SimEnv, unix_ms: i64) {
    sim.set_wall_ns(unix_ms * 1_000_000);
}

fn schema() -> Schema {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    Schema::new(vec![
        Field::new("ts", time, false),
        Field::new("number", DataType::Int64, false),
    ])
}

fn create(engine: &Engine, retention: &str) -> Table {
    let options = CreateOptions::stream("ts").with("block_rows", 64);
    let options = options.with("split", "1 day").with("retention", retention);
    engine.create_table("t", &schema(), &options).unwrap()
}

fn append(table: &Table, rows: &[(i64, i64)]) {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from_iter_values(
            rows.iter().map(|(time, _)| *time),
        )),
        Arc::new(Int64Array::from_iter_values(
            rows.iter().map(|(_, number)| *number),
        )),
    ];
    let batch = RecordBatch::try_new(table.schema(), columns).unwrap();
    table.append([Ok(batch)], Some(Durability::Disk)).unwrap();
}

/// Rows of these times, numbered from 0.
fn append_times(table: &Table, times: impl IntoIterator<Item = i64>) {
    let rows: Vec<(i64, i64)> = times.into_iter().zip(0..).collect();
    append(table, &rows);
}

fn rows(table: &Table) -> Vec<(i64, i64)> {
    let scan = table.view().unwrap().scan(&ScanRequest::default()).unwrap();
    let mut rows = Vec::new();
    for batch in scan {
        let batch = batch.unwrap();
        let times = batch.column(0).as_primitive::<TimestampMillisecondType>();
        let numbers = batch.column(1).as_primitive::<Int64Type>();
        rows.extend(
            times
                .values()
                .iter()
                .copied()
                .zip(numbers.values().iter().copied()),
        );
    }
    rows
}

fn times(table: &Table) -> Vec<i64> {
    rows(table).into_iter().map(|(time, _)| time).collect()
}

#[test]
fn a_row_exactly_as_old_as_the_period_stays() {
    let sim = machine(1);
    let engine = open(&sim);
    let table = create(&engine, "90 days");
    let limit = BEGIN_MS - 90 * DAY_MS;
    append_times(
        &table,
        [limit - 1, limit, limit + 1, BEGIN_MS, BEGIN_MS + DAY_MS],
    );
    let done = table.maintain().unwrap();
    assert!(done.steps > 0, "{done:?}");
    let kept = [limit, limit + 1, BEGIN_MS, BEGIN_MS + DAY_MS];
    assert_eq!(times(&table), kept);
    // What began a nanosecond ago is older by it.
    sim.set_wall_ns(BEGIN_MS * 1_000_000 + 1);
    table.maintain().unwrap();
    assert_eq!(times(&table), kept[1..]);
}

#[test]
fn a_clock_that_goes_back_brings_nothing_back_and_one_far_ahead_empties_the_table() {
    let sim = machine(2);
    let engine = open(&sim);
    let table = create(&engine, "1 day");
    append_times(&table, (0..1_000).map(|n| BEGIN_MS - n * HOUR_MS));
    table.maintain().unwrap();
    let kept = times(&table);
    assert_eq!(kept.len(), 25);
    set_clock(&sim, BEGIN_MS - 500 * DAY_MS);
    table.maintain().unwrap();
    assert_eq!(times(&table), kept);
    // Too old already by the clock that is right: they are taken, and leave with the next run.
    append_times(&table, [BEGIN_MS - 40 * DAY_MS, BEGIN_MS]);
    set_clock(&sim, BEGIN_MS);
    assert_eq!(times(&table).len(), 27);
    table.maintain().unwrap();
    assert_eq!(times(&table).len(), 26);
    set_clock(&sim, BEGIN_MS + 10_000 * DAY_MS);
    table.maintain().unwrap();
    assert!(times(&table).is_empty());
    let stats = table.stats().unwrap();
    assert_eq!((stats.blocks, stats.fragments, stats.open_rows), (0, 0, 0));
    assert_eq!(table.maintain().unwrap(), Maintained::default());
}

/// Nothing is written, whatever masks hide below the smallest key of the index.
#[test]
fn where_nothing_has_expired_nothing_is_committed() {
    let sim = machine(3);
    let engine = open(&sim);
    let table = create(&engine, "10 days");
    append_times(&table, (0..2_000).map(|n| BEGIN_MS - n * HOUR_MS / 4));
    assert!(table.maintain().unwrap().steps > 0);
    let commit = || table.view().unwrap().snapshot().commit();
    let before = commit();
    assert_eq!(table.maintain().unwrap(), Maintained::default());
    assert_eq!(engine.run_jobs().unwrap(), Maintained::default());
    assert_eq!(commit(), before);
}

#[test]
fn jobs_wait_until_the_oldest_row_has_been_expired_for_some_time() {
    let sim = machine(4);
    let engine = open(&sim);
    let table = create(&engine, "10 days");
    let limit = BEGIN_MS - 10 * DAY_MS;
    append_times(&table, (0..200).map(|n| limit + n * SECOND_MS * 60));
    engine.run_jobs().unwrap();
    // A hundredth of the period is more than an hour.
    set_clock(&sim, BEGIN_MS + HOUR_MS);
    engine.run_jobs().unwrap();
    assert_eq!(times(&table).len(), 200);
    sim.set_wall_ns((BEGIN_MS + HOUR_MS) * 1_000_000 + 1);
    engine.run_jobs().unwrap();
    assert_eq!(times(&table)[0], limit + HOUR_MS + 60 * SECOND_MS);
    assert_eq!(times(&table).len(), 139);
    // A call does not wait.
    set_clock(&sim, BEGIN_MS + HOUR_MS + 90 * SECOND_MS);
    table.maintain().unwrap();
    assert_eq!(times(&table).len(), 138);
}

#[test]
fn a_table_that_was_opened_again_keeps_its_retention() {
    let sim = machine(5);
    let engine = open(&sim);
    let table = create(&engine, "2 weeks");
    let shown = || ("retention", "14 days".to_owned());
    assert_eq!(table.definition().options().last(), Some(&shown()));
    append_times(&table, (0..40).map(|n| BEGIN_MS - n * DAY_MS));
    drop(table);
    engine.close().unwrap();
    let reader = EngineOptions {
        read_only: true,
        ..options()
    };
    let reader = Engine::open(sim.env(), Path::new("/db"), reader).unwrap();
    let table = reader.table("t").unwrap();
    // Whoever only reads deletes nothing.
    assert_eq!(table.maintain().unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(
        reader.run_jobs().unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    assert_eq!(times(&table).len(), 40);
    drop((table, reader));
    let engine = open(&sim);
    let table = engine.table("t").unwrap();
    assert_eq!(table.definition().options().last(), Some(&shown()));
    assert_eq!(times(&table).len(), 40);
    engine.maintain().unwrap();
    assert_eq!(times(&table).len(), 15);
    // A change of the columns leaves it.
    let field = Field::new("more", DataType::Int64, true);
    let more = Alteration::AddColumn {
        field,
        default: None,
        if_not_exists: false,
    };
    table.alter(&[more]).unwrap();
    let table = engine.table("t").unwrap();
    assert_eq!(table.definition().options().last(), Some(&shown()));
}

fn set_retention(table: &Table, value: Option<&str>) {
    let set = Alteration::SetOption {
        name: "Retention".to_owned(),
        value: value.map(str::to_owned),
    };
    table.alter(&[set]).unwrap();
}

#[test]
fn a_retention_that_changes_holds_from_then_on() {
    let sim = machine(1);
    let engine = open(&sim);
    let options = CreateOptions::stream("ts").with("split", "1 day");
    let table = engine.create_table("t", &schema(), &options).unwrap();
    let days = |range: std::ops::Range<i64>| range.map(|day| BEGIN_MS - day * DAY_MS);
    append_times(&table, days(0..100));
    engine.maintain().unwrap();
    assert_eq!(times(&table).len(), 100);
    set_retention(&table, Some("60 days"));
    assert_eq!(times(&table).len(), 100, "nothing leaves at once");
    engine.run_jobs().unwrap();
    assert_eq!(times(&table).len(), 61);
    // Lifted before anything went by it.
    set_retention(&table, Some("10 days"));
    set_retention(&table, None);
    engine.run_jobs().unwrap();
    engine.maintain().unwrap();
    assert_eq!(times(&table).len(), 61);
    assert_eq!(table.definition().retention(), None);
    set_retention(&table, Some("30 days"));
    let again = open(&sim.crash_image(&CrashChoice::DropAll));
    let table = again.table("t").unwrap();
    assert_eq!(table.definition().retention().unwrap().to_text(), "30 days");
    again.maintain().unwrap();
    assert_eq!(times(&table).len(), 31);
}

#[test]
fn jobs_learn_of_a_retention_that_is_set_later() {
    let options = EngineOptions {
        maintenance: MaintenanceMode::Auto,
        ..EngineOptions::default()
    };
    let engine = Engine::in_memory(options).unwrap();
    let stream = CreateOptions::stream("ts").with("split", "1 day");
    let table = engine.create_table("t", &schema(), &stream).unwrap();
    let now_ms = Env::os().clock().wall_ns() / 1_000_000;
    append_times(&table, (0..10).map(|day| now_ms - day * DAY_MS));
    // The thread of the jobs knows the table without one by then.
    sleep(Duration::from_millis(2_500));
    assert_eq!(times(&table).len(), 10);
    set_retention(&table, Some("5 days"));
    let began = now();
    while times(&table).len() > 5 {
        assert!(
            now() - began < LONG,
            "{} rows are left",
            times(&table).len()
        );
        sleep(Duration::from_millis(20));
    }
    // Without one nothing leaves any more.
    set_retention(&table, None);
    append_times(&table, [now_ms - 100 * DAY_MS]);
    sleep(Duration::from_millis(2_500));
    assert_eq!(times(&table).len(), 6);
}

#[test]
fn no_row_leaves_after_its_retention_was_lifted() {
    let engine = Engine::in_memory(EngineOptions {
        maintenance: MaintenanceMode::Manual,
        ..EngineOptions::default()
    });
    let engine = engine.unwrap();
    let stream = CreateOptions::stream("ts").with("split", "1 day");
    let table = engine.create_table("t", &schema(), &stream).unwrap();
    let now_ms = Env::os().clock().wall_ns() / 1_000_000;
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let maintains = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                engine.maintain().unwrap();
            }
        });
        for round in 0..100 {
            set_retention(&table, None);
            append_times(&table, [now_ms - 10 * DAY_MS, now_ms]);
            let rows = times(&table).len();
            set_retention(&table, Some("5 days"));
            set_retention(&table, None);
            let left = times(&table).len();
            std::thread::yield_now();
            assert_eq!(times(&table).len(), left, "round {round}: {rows} rows");
        }
        is_done.store(true, Ordering::Relaxed);
        maintains.join().unwrap();
    });
}

/// A deletion that has read the retention, and is reading the block at its limit now.
#[test]
fn whoever_lifts_a_retention_waits_for_a_deletion_by_it() {
    let sim = machine(11);
    let engine = open(&sim);
    let filled = create(&engine, "5 days");
    append_times(&filled, (0..1_000).map(|n| BEGIN_MS - 5 * DAY_MS + n - 500));
    engine.close().unwrap();
    let engine = open(&sim);
    let table = engine.table("t").unwrap();
    let reads = FaultRule::new(Fault::Hang).on(&[CallKind::Read]).once();
    sim.set_plan(FaultPlan::none().rule(reads));
    std::thread::scope(|scope| {
        let maintains = scope.spawn(|| table.maintain().unwrap());
        let wait = |is_so: &dyn Fn() -> bool| {
            while !is_so() {
                sleep(Duration::from_millis(1));
            }
        };
        wait(&|| sim.hung_calls() > 0 || maintains.is_finished());
        assert_eq!(sim.hung_calls(), 1);
        let lifts = scope.spawn(|| set_retention(&table, None));
        sleep(Duration::from_millis(50));
        let has_waited = !lifts.is_finished();
        sim.release_hung_calls();
        assert!(has_waited);
    });
    assert_eq!(times(&table).len(), 500);
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let engine = open(&machine(6));
    let refuse = |options: CreateOptions, part: &str| {
        let error = engine.create_table("x", &schema(), &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.message().contains(part), "{error}");
    };
    let stream = || CreateOptions::stream("ts");
    let arrival = CreateOptions::default().with("retention", "1 day");
    refuse(arrival, "time column");
    let number = CreateOptions::stream("number").with("retention", "1 day");
    refuse(number, "bigint has no unit of time");
    refuse(stream().with("retention", "0 days"), "longer than 0");
    refuse(stream().with("retention", "-5 days"), "longer than 0");
    refuse(stream().with("retention", "3 months"), "days or weeks");
    refuse(stream().with("retention", "1 year"), "days or weeks");
    refuse(stream().with("retention", "a while"), "length of time");
    refuse(stream().with("retention", "1 us"), "whole number of steps");
    refuse(
        stream().with("retentoin", "1 day"),
        "did you mean \"retention\"?",
    );
}

fn now() -> Duration {
    Duration::from_nanos(Env::os().clock().monotonic_ns())
}

fn sleep(time: Duration) {
    Env::os().clock().sleep(time);
}

fn real(maintenance: MaintenanceMode) -> (Engine, Table, i64) {
    let options = EngineOptions {
        maintenance,
        background: true,
        ..options()
    };
    let engine = Engine::in_memory(options).unwrap();
    let table = create(&engine, "2 hours");
    let now_ms = Env::os().clock().wall_ns() / 1_000_000;
    append_times(
        &table,
        (0..240).map(|n| now_ms + 60 * SECOND_MS - n * 60 * SECOND_MS),
    );
    (engine, table, now_ms)
}

#[test]
fn rows_leave_without_being_asked() {
    let (engine, table, now_ms) = real(MaintenanceMode::Auto);
    let began = now();
    while times(&table).len() == 240 {
        assert!(now() - began < LONG, "waited in vain");
        sleep(Duration::from_millis(20));
    }
    let left = times(&table);
    assert!(left[0] >= now_ms - 2 * HOUR_MS, "{left:?}");
    assert!((115..=122).contains(&left.len()), "{}", left.len());
    let is_it = || {
        let jobs = engine.jobs().unwrap();
        let job = jobs.iter().find(|job| job.kind == JobKind::ExpiredRows);
        job.map(|job| (job.steps, job.rows))
    };
    while is_it().is_none_or(|(steps, _)| steps == 0) {
        assert!(now() - began < LONG, "waited in vain");
        sleep(Duration::from_millis(20));
    }
    assert_eq!(is_it(), Some((1, 240 - left.len() as u64)));
    assert_eq!(JobKind::ExpiredRows.name(), "expired rows");
}

#[test]
fn nothing_leaves_unasked_where_maintenance_is_manual() {
    let (_engine, table, _) = real(MaintenanceMode::Manual);
    // Twice the time after which a job would have begun.
    sleep(Duration::from_secs(2));
    assert_eq!(times(&table).len(), 240);
    table.maintain().unwrap();
    assert!(times(&table).len() < 123);
}

/// Rows that have expired leave in one commit: they are all there or all gone, and others stay.
#[test]
fn a_crash_at_any_call_loses_no_row_that_has_not_expired() {
    let sim = machine(7);
    let engine = open(&sim);
    let table = create(&engine, "3 days");
    for part in 0..4 {
        append_times(
            &table,
            (0..150).map(|n| BEGIN_MS - (n * 4 + part) * HOUR_MS / 3),
        );
    }
    append_times(&table, (0..30).map(|n| BEGIN_MS - n * HOUR_MS * 5));
    let before = rows(&table);
    engine.checkpoint().unwrap();
    let first = sim.calls() + 1;
    sim.record_states(true);
    engine.maintain().unwrap();
    let last = sim.calls();
    let is_kept = |(time, _): &(i64, i64)| *time >= BEGIN_MS - 3 * DAY_MS;
    let kept: Vec<(i64, i64)> = before.iter().copied().filter(is_kept).collect();
    assert_eq!(rows(&table), kept);
    assert!(kept.len() > 100 && before.len() - kept.len() > 100);
    let (mut images, mut gone) = (0, 0);
    for call in first..=last {
        let Some(state) = sim.state_at(call) else {
            continue;
        };
        for choice in state.crash_choices(1, 1, call) {
            let survivor = state.crash_image(&choice);
            let engine = open(&survivor);
            let found = rows(&engine.table("t").unwrap());
            assert!(found == before || found == kept, "call {call}, {choice:?}");
            images += 1;
            gone += u64::from(found == kept);
        }
    }
    assert!(images > gone && gone > 0, "{gone} of {images} images");
}

#[derive(Clone, Debug)]
enum Operation {
    /// Rows with times from now on, this far apart.
    InOrder {
        rows: u16,
        apart_ms: u16,
    },
    /// Rows so many hours old at most.
    Late {
        rows: u8,
        hours: u16,
    },
    /// The clock moves by so many minutes.
    Clock(i32),
    Maintain,
    RunJobs,
    Delete {
        from_hours: u16,
        hours: u8,
    },
    Reopen,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        3 => (1_u16..300, 1_u16..60_000).prop_map(|(rows, apart_ms)| Operation::InOrder { rows, apart_ms }),
        2 => (1_u8..100, 1_u16..200).prop_map(|(rows, hours)| Operation::Late { rows, hours }),
        3 => (-2_000_i32..4_000).prop_map(Operation::Clock),
        2 => Just(Operation::Maintain),
        2 => Just(Operation::RunJobs),
        1 => (0_u16..100, 0_u8..20).prop_map(|(from_hours, hours)| Operation::Delete { from_hours, hours }),
        1 => Just(Operation::Reopen),
    ];
    vec(operation, 1..40)
}

/// A model of the table: a list of its rows.
struct Model {
    rows: Vec<(i64, i64)>,
    now_ms: i64,
    next: i64,
}

/// 2 days, and what jobs leave of it.
const PERIOD_MS: i64 = 2 * DAY_MS;
const SLACK_MS: i64 = PERIOD_MS / 100;

impl Model {
    fn append(&mut self, table: &Table, times: impl Iterator<Item = i64>) {
        let new: Vec<(i64, i64)> = times.zip(self.next..).collect();
        append(table, &new);
        self.next += 1_000_000;
        self.rows.extend(new);
    }

    fn expire(&mut self, slack_ms: i64) {
        let limit = self.now_ms - PERIOD_MS;
        if self.rows.iter().any(|(time, _)| *time < limit - slack_ms) {
            self.rows.retain(|(time, _)| *time >= limit);
        }
    }

    fn expected(&self) -> Vec<(i64, i64)> {
        let mut rows = self.rows.clone();
        rows.sort_by_key(|(time, _)| *time);
        rows
    }

    /// The same, without those that have expired.
    fn left(&self) -> Vec<(i64, i64)> {
        let mut rows = self.expected();
        rows.retain(|(time, _)| *time >= self.now_ms - PERIOD_MS);
        rows
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_rows_are_those_of_a_list_that_forgets_old_ones(operations in operations()) {
        let sim = machine(8);
        let mut engine = open(&sim);
        let mut table = create(&engine, "2 days");
        let mut model = Model { rows: Vec::new(), now_ms: BEGIN_MS, next: 0 };
        for operation in operations {
            let now_ms = model.now_ms;
            match operation {
                Operation::InOrder { rows, apart_ms } => {
                    model.append(&table, (0..i64::from(rows)).map(|n| now_ms + n * i64::from(apart_ms)));
                }
                Operation::Late { rows, hours } => {
                    let rows = i64::from(rows);
                    model.append(&table, (0..rows).map(|n| now_ms - n * i64::from(hours) * HOUR_MS / rows));
                }
                Operation::Clock(minutes) => {
                    model.now_ms += i64::from(minutes) * 60 * SECOND_MS;
                    set_clock(&sim, model.now_ms);
                }
                Operation::Maintain => {
                    table.maintain().unwrap();
                    model.expire(0);
                    prop_assert_eq!(table.maintain().unwrap(), Maintained::default());
                }
                Operation::RunJobs => {
                    engine.run_jobs().unwrap();
                    // The smallest key may be that of a deleted row: then they do not wait.
                    let all = model.left();
                    model.expire(if rows(&table) == all { 0 } else { SLACK_MS });
                }
                Operation::Delete { from_hours, hours } => {
                    let first = now_ms - i64::from(from_hours) * HOUR_MS;
                    let keys = KeyRange::from(first..=first + i64::from(hours) * HOUR_MS);
                    table.delete_range(keys, None).unwrap();
                    model.rows.retain(|(time, _)| !keys.contains(*time));
                }
                Operation::Reopen => {
                    drop(table);
                    engine.close().unwrap();
                    engine = open(&sim);
                    table = engine.table("t").unwrap();
                }
            }
            prop_assert_eq!(rows(&table), model.expected());
        }
    }
}
