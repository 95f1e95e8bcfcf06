//! Snapshots of reading processes that are kept for too long: they lose their files, and say so.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::time::Duration;
use thalweg_env::sim::{CallKind, Errno, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_kernel::{ErrorKind, Options, Snapshot, TableId};
use thalweg_sim::toy::{Row, Toy};

const MINUTE: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        background: false,
        ..Options::default()
    }
}

fn open(sim: &SimEnv) -> Toy {
    Toy::open(&sim.env(), "/db", &options(), 64).unwrap()
}

fn open_reader(sim: &SimEnv, process_id: u32) -> Toy {
    let read_only = Options {
        read_only: true,
        ..options()
    };
    Toy::open(&sim.env_of_process(process_id), "/db", &read_only, 64).unwrap()
}

fn rows() -> Vec<Row> {
    (0..500).map(|k| (k, -k)).collect()
}

/// A database with tables of one fragment each.
fn with_tables(sim: &SimEnv, names: &[&str]) -> (Toy, Vec<TableId>) {
    let toy = open(sim);
    let tables = names.iter().map(|name| {
        let table = toy.create(name).unwrap();
        toy.append_fragment(table, &rows(), 64).unwrap();
        table
    });
    let tables = tables.collect();
    (toy, tables)
}

fn fragments(sim: &SimEnv) -> usize {
    let files = sim.files().into_iter();
    files
        .filter(|(path, _)| path.extension().is_some_and(|e| e == "frag"))
        .count()
}

fn read(toy: &Toy, snapshot: &Snapshot, table: TableId) -> Result<Vec<Row>, ErrorKind> {
    toy.rows_of(&snapshot.table(table).unwrap())
        .map_err(|e| e.kind())
}

#[test]
fn a_snapshot_that_is_kept_for_too_long_expires_and_keeps_nothing() {
    let sim = SimEnv::new(1);
    let (toy, tables) = with_tables(&sim, &["read", "unread", "kept"]);
    let reader = open_reader(&sim, 7);
    let old = reader.kernel.snapshot().unwrap();
    assert_eq!(read(&reader, &old, tables[0]), Ok(rows()));
    toy.drop_table(tables[0]).unwrap();
    toy.drop_table(tables[1]).unwrap();
    for _ in 0..10 {
        assert_eq!(toy.kernel.collect_garbage().unwrap(), 0);
        assert_eq!(fragments(&sim), 3);
        sim.advance(MINUTE);
    }
    sim.advance(2 * MINUTE);
    assert!(toy.kernel.collect_garbage().unwrap() >= 2);
    assert_eq!(fragments(&sim), 1);
    // What it has open it can still read. The rest is an error, as often as it is tried, and no table without rows.
    for _ in 0..3 {
        assert_eq!(read(&reader, &old, tables[0]), Ok(rows()));
        assert_eq!(
            read(&reader, &old, tables[1]),
            Err(ErrorKind::SnapshotExpired)
        );
    }
    assert_eq!(read(&reader, &old, tables[2]), Ok(rows()));
    // The process goes on with new ones, which count again.
    let new = reader.kernel.snapshot().unwrap();
    assert!(new.table(tables[0]).is_none());
    toy.drop_table(tables[2]).unwrap();
    assert_eq!(toy.kernel.collect_garbage().unwrap(), 0);
    assert_eq!(read(&reader, &new, tables[2]), Ok(rows()));
}

#[test]
fn an_old_snapshot_takes_no_younger_one_of_its_process_with_it() {
    let sim = SimEnv::new(2);
    let (toy, tables) = with_tables(&sim, &["first", "second"]);
    let reader = open_reader(&sim, 7);
    let old = reader.kernel.snapshot().unwrap();
    toy.drop_table(tables[0]).unwrap();
    assert_eq!(toy.kernel.collect_garbage().unwrap(), 0);
    sim.advance(9 * MINUTE);
    let young = reader.kernel.snapshot().unwrap();
    toy.drop_table(tables[1]).unwrap();
    assert_eq!(toy.kernel.collect_garbage().unwrap(), 0);
    // A statement within the minute of grace takes the pin from the old one to the young one.
    sim.advance(MINUTE + MINUTE / 2);
    drop(reader.kernel.snapshot().unwrap());
    sim.advance(MINUTE);
    toy.kernel.collect_garbage().unwrap();
    toy.kernel.collect_garbage().unwrap();
    assert_eq!(read(&reader, &young, tables[1]), Ok(rows()));
    drop(young);
    drop(reader.kernel.snapshot().unwrap());
    toy.kernel.collect_garbage().unwrap();
    assert_eq!(fragments(&sim), 0);
    assert_eq!(
        read(&reader, &old, tables[0]),
        Err(ErrorKind::SnapshotExpired)
    );
}

#[test]
fn an_idle_reader_without_a_snapshot_is_passed_and_never_notices() {
    let sim = SimEnv::new(3);
    let (toy, tables) = with_tables(&sim, &["t"]);
    let reader = open_reader(&sim, 7);
    drop(reader.kernel.snapshot().unwrap());
    for round in 0..5 {
        let table = toy.create(&format!("round {round}")).unwrap();
        toy.append_fragment(table, &rows(), 64).unwrap();
        toy.drop_table(table).unwrap();
        toy.kernel.collect_garbage().unwrap();
        sim.advance(12 * MINUTE);
        toy.kernel.collect_garbage().unwrap();
        assert_eq!(fragments(&sim), 1, "round {round}");
        let snapshot = reader.kernel.snapshot().unwrap();
        assert_eq!(read(&reader, &snapshot, tables[0]), Ok(rows()));
    }
}

#[test]
fn a_fresh_snapshot_keeps_its_files_however_long_nothing_was_committed() {
    // The reader goes on, or another one takes its slot, at a place that the writer has found in its way before.
    for is_another in [false, true] {
        let sim = SimEnv::new(7);
        let (toy, tables) = with_tables(&sim, &["first", "second"]);
        let reader = open_reader(&sim, 7);
        let held = open_reader(&sim, 8);
        let _old = held.kernel.snapshot().unwrap();
        toy.drop_table(tables[0]).unwrap();
        drop(reader.kernel.snapshot().unwrap());
        // Waits for the other reader, and sees both slots.
        assert_eq!(toy.kernel.collect_garbage().unwrap(), 0);
        assert_eq!(fragments(&sim), 2);
        sim.advance(12 * MINUTE);
        assert!(toy.kernel.collect_garbage().unwrap() > 0);
        assert_eq!(fragments(&sim), 1);
        let reader = if is_another {
            drop(reader);
            open_reader(&sim, 9)
        } else {
            reader
        };
        let fresh = reader.kernel.snapshot().unwrap();
        toy.drop_table(tables[1]).unwrap();
        for _ in 0..9 {
            assert_eq!(toy.kernel.collect_garbage().unwrap(), 0);
            assert_eq!(fragments(&sim), 1);
            sim.advance(MINUTE);
        }
        assert_eq!(read(&reader, &fresh, tables[1]), Ok(rows()));
        sim.advance(2 * MINUTE);
        assert!(toy.kernel.collect_garbage().unwrap() > 0);
        assert_eq!(fragments(&sim), 0);
    }
}

#[test]
fn a_snapshot_has_all_of_its_time_beside_an_older_one_that_is_in_the_way() {
    let sim = SimEnv::new(8);
    let (toy, tables) = with_tables(&sim, &["first", "second"]);
    let reader = open_reader(&sim, 7);
    let _old = reader.kernel.snapshot().unwrap();
    toy.drop_table(tables[0]).unwrap();
    assert_eq!(toy.kernel.collect_garbage().unwrap(), 0);
    sim.advance(9 * MINUTE);
    let young = reader.kernel.snapshot().unwrap();
    toy.drop_table(tables[1]).unwrap();
    // No other statement takes the pin from the old one to the young one.
    for _ in 0..9 {
        assert_eq!(toy.kernel.collect_garbage().unwrap(), 0);
        assert_eq!(fragments(&sim), 2);
        sim.advance(MINUTE);
    }
    assert_eq!(read(&reader, &young, tables[1]), Ok(rows()));
    sim.advance(2 * MINUTE);
    assert!(toy.kernel.collect_garbage().unwrap() > 0);
    assert_eq!(fragments(&sim), 0);
}

#[test]
fn a_reader_keeps_nothing_before_its_first_snapshot_and_once_it_is_closed() {
    let sim = SimEnv::new(9);
    let (toy, tables) = with_tables(&sim, &["first", "second", "third"]);
    let reader = open_reader(&sim, 7);
    toy.drop_table(tables[0]).unwrap();
    assert_eq!(fragments(&sim), 2);
    let kept = reader.kernel.snapshot().unwrap();
    assert_eq!(read(&reader, &kept, tables[1]), Ok(rows()));
    toy.drop_table(tables[1]).unwrap();
    assert_eq!(fragments(&sim), 2);
    reader.kernel.close().unwrap();
    assert!(toy.kernel.collect_garbage().unwrap() > 0);
    assert_eq!(fragments(&sim), 1);
    for _ in 0..2 {
        let error = reader.kernel.snapshot().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(error.message(), "the database is closed: open it again");
        reader.kernel.close().unwrap();
    }
    // Its slot is another's.
    let next = open_reader(&sim, 8);
    assert_eq!(next.rows(tables[2]).unwrap(), rows());
}

#[test]
fn a_reader_without_a_pin_is_told_even_if_another_writer_has_come() {
    let sim = SimEnv::new(4);
    let (toy, tables) = with_tables(&sim, &["gone", "kept"]);
    let denied = FaultRule::new(Fault::Error(Errno::ACCESS))
        .on(&[CallKind::Open])
        .path_suffix("readers");
    sim.set_plan(FaultPlan::none().rule(denied));
    let reader = open_reader(&sim, 7);
    sim.set_plan(FaultPlan::none());
    let old = reader.kernel.snapshot().unwrap();
    toy.drop_table(tables[0]).unwrap();
    toy.kernel.collect_garbage().unwrap();
    assert_eq!(fragments(&sim), 1);
    for _ in 0..2 {
        assert_eq!(
            read(&reader, &old, tables[0]),
            Err(ErrorKind::SnapshotExpired)
        );
        assert_eq!(reader.rows(tables[1]).unwrap(), rows());
        toy.kernel.close().unwrap();
        let toy = open(&sim);
        toy.create("more").or_else(|_| toy.create("again")).unwrap();
        toy.kernel.close().unwrap();
    }
}

#[test]
fn a_file_that_is_missing_for_no_reason_is_still_damage() {
    let sim = SimEnv::new(5);
    let (toy, tables) = with_tables(&sim, &["t"]);
    let reader = open_reader(&sim, 7);
    let files = sim.files();
    let fragment = files
        .iter()
        .find(|(path, _)| path.extension().is_some_and(|e| e == "frag"));
    sim.remove_file(&fragment.unwrap().0).unwrap();
    let snapshot = reader.kernel.snapshot().unwrap();
    assert_eq!(
        read(&reader, &snapshot, tables[0]),
        Err(ErrorKind::Corruption)
    );
    drop(toy);
}

#[test]
fn snapshots_of_the_writing_process_keep_their_files() {
    let sim = SimEnv::new(6);
    let (toy, tables) = with_tables(&sim, &["t"]);
    let old = toy.kernel.snapshot().unwrap();
    toy.drop_table(tables[0]).unwrap();
    sim.advance(60 * MINUTE);
    toy.kernel.collect_garbage().unwrap();
    sim.advance(60 * MINUTE);
    assert_eq!(toy.kernel.collect_garbage().unwrap(), 0);
    assert_eq!(read(&toy, &old, tables[0]), Ok(rows()));
    drop(old);
    assert!(toy.kernel.collect_garbage().unwrap() > 0);
    assert_eq!(fragments(&sim), 0);
}

/// Its pin is passed while it reads the log, so that the files of what it has read are gone before it has a snapshot.
#[test]
fn a_reader_that_is_stopped_while_it_takes_a_snapshot_takes_a_newer_one() {
    let sim = SimEnv::new(9);
    let (toy, tables) = with_tables(&sim, &["read", "kept"]);
    let reader = open_reader(&sim, 7);
    drop(reader.kernel.snapshot().unwrap());
    let reads = FaultRule::new(Fault::Hang).on(&[CallKind::Read]);
    sim.set_plan(FaultPlan::none().rule(reads.path_suffix(".seg").once()));
    let snapshot = std::thread::scope(|scope| {
        let taken = scope.spawn(|| reader.kernel.snapshot().unwrap());
        while sim.hung_calls() == 0 {
            assert!(!taken.is_finished(), "nothing hung");
            std::thread::yield_now();
        }
        sim.set_plan(FaultPlan::none());
        toy.drop_table(tables[0]).unwrap();
        for _ in 0..12 {
            toy.kernel.collect_garbage().unwrap();
            sim.advance(MINUTE);
        }
        toy.kernel.collect_garbage().unwrap();
        let left = fragments(&sim);
        sim.release_hung_calls();
        assert_eq!(left, 1);
        taken.join().unwrap()
    });
    assert!(snapshot.table(tables[0]).is_none());
    assert_eq!(read(&reader, &snapshot, tables[1]), Ok(rows()));
}
