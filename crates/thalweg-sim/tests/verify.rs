//! A healthy database is not called damaged, whatever its writer does while it is checked, and whichever call of the check fails.
#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::sim::{CallKind, Errno, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_env::sync::Mutex;
use thalweg_kernel::index::ItemName;
use thalweg_kernel::orders::ReplaceEdit;
use thalweg_kernel::{Commit, Durability, Edit, ErrorKind, Options, TableId};
use thalweg_sim::orders::items;
use thalweg_sim::toy::{Row, Toy, block, random_rows};

const READER: u32 = 7;

fn options(read_only: bool) -> Options {
    Options {
        segment_bytes: 64 << 10,
        background: false,
        read_only,
        ..Options::default()
    }
}

/// A writer with so many tables of one fragment each.
fn with_fragments(sim: &SimEnv, tables: usize) -> (Toy, Vec<TableId>) {
    let toy = Toy::open(&sim.env(), "/db", &options(false), 64).unwrap();
    let rows: Vec<Row> = (0..500).map(|key| (key, -key)).collect();
    let create = |n: usize| {
        let table = toy.create(&format!("t{n}")).unwrap();
        toy.append_fragment(table, &rows, 64).unwrap();
        table
    };
    let ids = (0..tables).map(create).collect();
    (toy, ids)
}

fn open_reader(sim: &SimEnv) -> Toy {
    Toy::open(&sim.env_of_process(READER), "/db", &options(true), 64).unwrap()
}

/// Checks tables of 500 rows each; at the first call all but three of them are dropped, and their files `removed`. Finds no damage.
fn check_beside_drops(reader: &Toy, writer: &Toy, tables: &[TableId], removed: impl Fn()) {
    let is_done = Cell::new(false);
    let report = reader.kernel.verify(&mut |_| {
        if is_done.replace(true) {
            return;
        }
        for table in &tables[3..] {
            writer.drop_table(*table).unwrap();
        }
        removed();
    });
    let report = report.unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    assert_eq!((report.tables, report.rows), (3, 1_500));
}

/// Its pin is passed in the midst of the check; the rest is checked in a new snapshot.
#[test]
fn a_check_that_takes_longer_than_its_snapshot_lasts_finds_no_damage() {
    let sim = SimEnv::new(1);
    let (toy, tables) = with_fragments(&sim, 6);
    let reader = open_reader(&sim);
    check_beside_drops(&reader, &toy, &tables, || {
        for _ in 0..12 {
            toy.kernel.collect_garbage().unwrap();
            sim.advance(Duration::from_secs(60));
        }
    });
}

/// An earlier statement has opened the files, so the reader still reads them behind their removal.
#[test]
fn a_check_of_open_files_that_go_meanwhile_finds_no_damage() {
    let sim = SimEnv::new(4);
    let (toy, tables) = with_fragments(&sim, 6);
    let reader = open_reader(&sim);
    for table in reader.kernel.snapshot().unwrap().tables() {
        reader.rows_of(&table).unwrap();
    }
    let is_done = Cell::new(false);
    let report = reader.kernel.verify(&mut |_| {
        if is_done.replace(true) {
            return;
        }
        for table in &tables {
            toy.drop_table(*table).unwrap();
        }
        for _ in 0..12 {
            toy.kernel.collect_garbage().unwrap();
            sim.advance(Duration::from_secs(60));
        }
    });
    let damage = report.unwrap().damage;
    assert!(damage.is_empty(), "{damage:?}");
    let files = sim.files().into_iter().map(|(path, _)| path);
    assert_eq!(files.filter(|path| path.starts_with("/db/data")).count(), 0);
}

/// Headers of files that were checked in the snapshot that has expired are checked again in the new one.
#[test]
fn a_check_in_a_new_snapshot_forgets_no_damage() {
    let sim = SimEnv::new(1);
    let toy = Toy::open(&sim.env(), "/db", &options(false), 64).unwrap();
    let table = toy.create("t").unwrap();
    for first in [0, 1_000] {
        let rows: Vec<Row> = (first..first + 500).map(|key| (key, -key)).collect();
        toy.append_fragment(table, &rows, 64).unwrap();
    }
    toy.kernel.checkpoint().unwrap();
    let files = sim.files().into_iter();
    let mut fragments = files.filter(|(path, _)| path.extension().is_some_and(|e| e == "frag"));
    let (first, _) = fragments.next().unwrap();
    sim.overwrite_file(&first, 20, &[0xff]).unwrap();
    let whole = toy.kernel.verify(&mut |_| {}).unwrap();
    assert_eq!(whole.damage.len(), 1, "{:?}", whole.damage);
    // The second fragment goes, once the first one was looked at; it is not open yet.
    let reader = open_reader(&sim);
    let blocks = Cell::new(0);
    let report = reader.kernel.verify(&mut |_| {
        blocks.set(blocks.get() + 1);
        if blocks.get() != 5 {
            return;
        }
        let prepared_at = toy.kernel.snapshot().unwrap().commit();
        let mut fragments = items(&toy, table, 0).into_iter();
        let second = fragments.find(|item| item.key_min == 1_000).unwrap();
        let mut fragment = toy.kernel.stage_fragment(table).unwrap();
        let rows = (1_000..1_500).map(|key| (key, -key)).collect();
        let commits = Some((second.commit_min, second.commit_max));
        fragment.add_block(&block(table, rows, commits)).unwrap();
        let commit = Commit {
            edits: vec![Edit::Replace(ReplaceEdit::of_rows(
                table,
                vec![ItemName::of(&second)],
                vec![fragment.finish().unwrap()],
            ))],
            prepared_at: Some(prepared_at),
            ..Commit::default()
        };
        toy.kernel.commit(commit, Durability::Disk).unwrap();
        for _ in 0..12 {
            toy.kernel.collect_garbage().unwrap();
            sim.advance(Duration::from_secs(60));
        }
    });
    let report = report.unwrap();
    assert_eq!((report.tables, report.rows), (1, 1_000));
    assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
}

/// It holds no files: what the writer drops is gone at once.
#[test]
fn a_check_of_a_process_without_a_slot_finds_no_damage_beside_a_writer() {
    let sim = SimEnv::new(1);
    let (toy, tables) = with_fragments(&sim, 6);
    let denied = FaultRule::new(Fault::Error(Errno::ACCESS))
        .on(&[CallKind::Open])
        .path_suffix("/readers");
    sim.set_plan(FaultPlan::none().rule(denied));
    let reader = open_reader(&sim);
    sim.set_plan(FaultPlan::none());
    check_beside_drops(&reader, &toy, &tables, || {
        for _ in 0..2 {
            toy.kernel.collect_garbage().unwrap();
        }
    });
}

#[test]
fn a_check_without_descriptors_fails_and_finds_no_damage() {
    let sim = SimEnv::new(1);
    let (toy, _) = with_fragments(&sim, 60);
    toy.kernel.close().unwrap();
    for process in [1, READER] {
        let env = sim.env_of_process(process);
        let reader = Toy::open(&env, "/db", &options(true), 64).unwrap();
        let is_done = Cell::new(false);
        let report = reader.kernel.verify(&mut |_| {
            if !is_done.replace(true) {
                let none = FaultRule::new(Fault::Error(Errno::MFILE))
                    .on(&[CallKind::Open])
                    .path_suffix(".frag");
                sim.set_plan(FaultPlan::none().rule(none.times(3)));
            }
        });
        sim.set_plan(FaultPlan::none());
        let error = report.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.message().contains("os error 24"), "{error}");
        let again = reader.kernel.verify(&mut |_| {}).unwrap();
        assert!(again.damage.is_empty(), "{:?}", again.damage);
    }
}

/// Appends, drops a table and removes its files, some times.
fn work(toy: &Toy, turn: i64) {
    let kept = toy.kernel.snapshot().unwrap().table_named("kept");
    let kept = kept.unwrap().id;
    let dropped = toy.create(&format!("dropped{turn}")).unwrap();
    for part in 0..20 {
        let rows = random_rows(part * 400, 400);
        toy.append_group(dropped, &rows, 400, Durability::Disk)
            .unwrap();
    }
    toy.drop_table(dropped).unwrap();
    for _ in 0..3 {
        toy.kernel.collect_garbage().unwrap();
        toy.append(kept, &[(turn, turn)], Durability::Disk).unwrap();
        toy.kernel.checkpoint().unwrap();
    }
}

/// At each call of a check the writer works and closes; in the second round a writer opens, works and closes there.
#[test]
fn a_check_beside_a_writer_that_closes_finds_no_damage() {
    for opens in [false, true] {
        let mut checks = 0;
        for call in 0.. {
            let sim = SimEnv::new(call);
            let writer = Toy::open(&sim.env(), "/db", &options(false), 64).unwrap();
            writer.create("kept").unwrap();
            work(&writer, 0);
            if opens {
                writer.kernel.close().unwrap();
            }
            let reader = open_reader(&sim);
            let snapshot = reader.kernel.snapshot().unwrap();
            let writer = Arc::new(Mutex::new(Some(writer)));
            let (beside, env) = (Arc::clone(&writer), sim.env());
            sim.set_watcher(Some(Box::new(move || {
                let Some(mut writer) = beside.lock().take() else {
                    return;
                };
                if opens {
                    writer = Toy::open(&env, "/db", &options(false), 64).unwrap();
                }
                (1..3).for_each(|turn| work(&writer, turn));
                writer.kernel.close().unwrap();
            })));
            let watched = FaultRule::new(Fault::Watched).skip(call).once();
            sim.set_plan(FaultPlan::none().rule(watched));
            let report = reader.kernel.verify(&mut |_| {}).unwrap();
            sim.set_plan(FaultPlan::none());
            sim.set_watcher(None);
            drop(snapshot);
            assert!(report.damage.is_empty(), "call {call}: {:?}", report.damage);
            if writer.lock().is_some() {
                break;
            }
            checks += 1;
        }
        assert!(checks > 10, "{checks} calls");
    }
}

/// `live` is not synced before the database is closed: a power cut leaves each of its slots as old as it likes.
#[test]
fn a_check_behind_a_power_cut_and_before_a_writer_finds_no_damage() {
    let sim = SimEnv::new(4);
    sim.record_states(true);
    let toy = Toy::open(&sim.env(), "/db", &options(false), 64).unwrap();
    let table = toy.create("t").unwrap();
    for key in 0..8 {
        let level = if key % 3 == 0 {
            Durability::Process
        } else {
            Durability::Disk
        };
        toy.append(table, &[(key, key)], level).unwrap();
        if key % 4 == 3 {
            toy.kernel.checkpoint().unwrap();
        }
    }
    let mut checks = 0;
    for call in 1..=sim.calls() {
        let Some(state) = sim.state_at(call) else {
            continue;
        };
        for choice in state.crash_choices(6, 6, call) {
            let image = state.crash_image(&choice);
            let env = image.env_of_process(READER);
            // Where there is no database yet.
            let Ok(reader) = Toy::open(&env, "/db", &options(true), 64) else {
                continue;
            };
            checks += 1;
            let report = reader.kernel.verify(&mut |_| {}).unwrap();
            assert!(
                report.damage.is_empty(),
                "call {call}, {choice:?}: {:?}",
                report.damage
            );
        }
    }
    assert!(checks > 300, "{checks} checks");
}
