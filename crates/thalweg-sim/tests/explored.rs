//! Threads over one kernel, in many schedules: what is acknowledged is there, once, and stays.
//!
//! Invariant: a schedule has a bounded number of steps. A thread that neither goes on nor fails exceeds it, one that waits
//! for ever is a deadlock, and a panic of any thread, those of the kernel included, fails the test.
#![cfg(feature = "explored")]

#[path = "explored/background.rs"]
mod background;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner, thread};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use thalweg_env::sim::{
    CrashChoice, Errno, Fault, FaultPlan, FaultRule, ReadsAfter, SYNCS, SimEnv,
};
use thalweg_env::sync::Mutex;
use thalweg_kernel::index::{ItemName, Step};
use thalweg_kernel::orders::ReplaceEdit;
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, ErrorKind, Options, TableId, TableSnapshot,
};
use thalweg_sim::toy::{Row, Toy, block, rows_part};

const SCHEDULES: usize = 5_000;

/// Steps of a schedule. The longest models need a tenth of it.
const MAX_STEPS: usize = 200_000;

/// Half of the schedules draw the next thread at each step; the other half switch a few times only, with long runs
/// between: what takes three switches at the right places is hardly ever drawn by the first kind.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    explore_share(1, model);
}

/// The same in one of so many schedules: for models of many threads, whose schedules are long.
fn explore_share(one_in: usize, model: impl Fn() + Send + Sync + 'static) {
    let schedules = std::env::var("THALWEG_SCHEDULES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(SCHEDULES);
    let each = (schedules / one_in).div_ceil(2);
    let model = Arc::new(model);
    let same = Arc::clone(&model);
    let mut config = Config::default();
    config.max_steps = MaxSteps::FailAfter(MAX_STEPS);
    Runner::new(RandomScheduler::new(each), config.clone()).run(move || same());
    Runner::new(PctScheduler::new(4, each), config).run(move || model());
}

fn options() -> Options {
    Options {
        segment_bytes: 8 << 10,
        background: false,
        ..Options::default()
    }
}

fn open(sim: &SimEnv) -> (Arc<Toy>, TableId) {
    let toy = Toy::open(&sim.env(), "/db", &options(), 3).unwrap();
    let table = toy.create("t").unwrap();
    (Arc::new(toy), table)
}

/// The same database in another process, for reading.
fn open_reader(sim: &SimEnv) -> Toy {
    let read_only = Options {
        read_only: true,
        ..options()
    };
    Toy::open(&sim.env_of_process(7), "/db", &read_only, 3).unwrap()
}

fn keys(toy: &Toy, table: TableId) -> Vec<i64> {
    toy.rows(table).unwrap().into_iter().map(|r| r.0).collect()
}

/// Rows that were acknowledged.
type Acknowledged = Arc<Mutex<BTreeSet<i64>>>;

fn committer(
    toy: &Arc<Toy>,
    table: TableId,
    first: i64,
    level: Durability,
    acknowledged: &Acknowledged,
) -> thread::JoinHandle<()> {
    let (toy, acknowledged) = (Arc::clone(toy), Arc::clone(acknowledged));
    thread::spawn(move || {
        for key in first..first + 3 {
            let row: [Row; 1] = [(key, key)];
            let done = if key % 2 == 0 {
                toy.append(table, &row, level)
            } else {
                toy.append_group(table, &row, 4, level)
            };
            if done.is_ok() {
                acknowledged.lock().insert(key);
            }
        }
    })
}

fn holds(found: &[i64], acknowledged: &BTreeSet<i64>) {
    let set: BTreeSet<i64> = found.iter().copied().collect();
    assert_eq!(set.len(), found.len(), "a row is there twice: {found:?}");
    assert!(
        set.is_superset(acknowledged),
        "lost of {acknowledged:?}: found {found:?}"
    );
}

#[test]
fn what_is_acknowledged_survives_a_power_cut_at_any_moment() {
    explore(|| {
        let sim = SimEnv::new(1);
        let (toy, table) = open(&sim);
        let acknowledged = Acknowledged::default();
        let threads: Vec<_> = (0..3)
            .map(|t| committer(&toy, table, t * 10, Durability::Disk, &acknowledged))
            .collect();
        let cut = thread::spawn({
            let (sim, acknowledged) = (sim.clone(), Arc::clone(&acknowledged));
            move || {
                thread::yield_now();
                let known = acknowledged.lock().clone();
                (sim.crash_image(&CrashChoice::DropAll), known)
            }
        });
        let (image, known) = cut.join().unwrap();
        threads.into_iter().for_each(|t| t.join().unwrap());
        holds(&keys(&toy, table), &acknowledged.lock());
        let again = Toy::open(&image.env(), "/db", &options(), 3).unwrap();
        holds(&keys(&again, table), &known);
    });
}

#[test]
fn snapshots_stand_still_while_rows_become_blocks() {
    explore(|| {
        let sim = SimEnv::new(2);
        let (toy, table) = open(&sim);
        let acknowledged = Acknowledged::default();
        let writers: Vec<_> = (0..2)
            .map(|t| committer(&toy, table, t * 10, Durability::Process, &acknowledged))
            .collect();
        let encoder = thread::spawn({
            let toy = Arc::clone(&toy);
            move || (0..3).for_each(|_| toy.kernel.run_due_work().unwrap())
        });
        let reader = thread::spawn({
            let (toy, acknowledged) = (Arc::clone(&toy), Arc::clone(&acknowledged));
            move || {
                let mut last = 0;
                for _ in 0..3 {
                    let known = acknowledged.lock().clone();
                    let snapshot = toy.kernel.snapshot().unwrap();
                    let table = snapshot.table(table).unwrap();
                    let seen = toy.rows_of(&table).unwrap();
                    thread::yield_now();
                    assert_eq!(toy.rows_of(&table).unwrap(), seen, "a snapshot changed");
                    let found: Vec<i64> = seen.iter().map(|r| r.0).collect();
                    holds(&found, &known);
                    assert!(found.len() >= last, "a later snapshot shows less");
                    last = found.len();
                }
            }
        });
        for thread in writers.into_iter().chain([encoder, reader]) {
            thread.join().unwrap();
        }
        holds(&keys(&toy, table), &acknowledged.lock());
        assert_eq!(acknowledged.lock().len(), 6);
    });
}

#[test]
fn a_table_is_dropped_under_its_writers() {
    explore(|| {
        let sim = SimEnv::new(3);
        let (toy, table) = open(&sim);
        let other = toy.create("other").unwrap();
        let acknowledged = Acknowledged::default();
        let doomed = committer(
            &toy,
            table,
            0,
            Durability::Process,
            &Acknowledged::default(),
        );
        let lasting = committer(&toy, other, 10, Durability::Process, &acknowledged);
        let dropper = thread::spawn({
            let toy = Arc::clone(&toy);
            move || {
                let commit = Commit {
                    edits: vec![Edit::DropTable { table }],
                    ..Commit::default()
                };
                toy.kernel.commit(commit, Durability::Disk).unwrap();
                toy.kernel.collect_garbage().unwrap();
            }
        });
        for thread in [doomed, lasting, dropper] {
            thread.join().unwrap();
        }
        assert!(toy.kernel.snapshot().unwrap().table(table).is_none());
        holds(&keys(&toy, other), &acknowledged.lock());
        drop(toy);
        let again = Toy::open(&sim.env(), "/db", &options(), 3).unwrap();
        holds(&keys(&again, other), &acknowledged.lock());
    });
}

#[test]
fn a_reader_process_follows_through_checkpoints_and_garbage_collection() {
    explore(|| {
        let sim = SimEnv::new(4);
        let (toy, table) = open(&sim);
        let acknowledged = Acknowledged::default();
        let writer = committer(&toy, table, 0, Durability::Process, &acknowledged);
        let keeper = thread::spawn({
            let toy = Arc::clone(&toy);
            move || {
                toy.kernel.checkpoint().unwrap();
                toy.kernel.collect_garbage().unwrap();
            }
        });
        let reader = thread::spawn({
            let (sim, acknowledged) = (sim.clone(), Arc::clone(&acknowledged));
            move || {
                let reader = open_reader(&sim);
                for _ in 0..2 {
                    let known = acknowledged.lock().clone();
                    holds(&keys(&reader, table), &known);
                }
            }
        });
        for thread in [writer, keeper, reader] {
            thread.join().unwrap();
        }
    });
}

/// No pin counts: whatever the reader gets is right, or an error that says why, and its next statement works.
#[test]
fn a_reader_process_that_is_passed_at_once_gets_an_error_and_no_wrong_answer() {
    explore(|| {
        let sim = SimEnv::new(10);
        let no_age = Options {
            max_snapshot_age: Duration::ZERO,
            ..options()
        };
        let toy = Arc::new(Toy::open(&sim.env(), "/db", &no_age, 3).unwrap());
        let doomed = toy.create("doomed").unwrap();
        let want: Vec<Row> = (0..4).map(|key| (key, key)).collect();
        toy.append_fragment(doomed, &want, 2).unwrap();
        let table = toy.create("t").unwrap();
        let keeper = thread::spawn({
            let toy = Arc::clone(&toy);
            move || {
                toy.append_group(table, &[(1, 1)], 1, Durability::Disk)
                    .unwrap();
                let commit = Commit {
                    edits: vec![Edit::DropTable { table: doomed }],
                    ..Commit::default()
                };
                toy.kernel.commit(commit, Durability::Disk).unwrap();
                toy.kernel.collect_garbage().unwrap();
            }
        });
        let reader = thread::spawn({
            let sim = sim.clone();
            move || {
                let reader = open_reader(&sim);
                for _ in 0..2 {
                    let snapshot = reader.kernel.snapshot().unwrap();
                    thread::yield_now();
                    let Some(doomed) = snapshot.table(doomed) else {
                        continue;
                    };
                    match reader.rows_of(&doomed) {
                        Ok(found) => assert_eq!(found, want),
                        Err(e) => assert_eq!(e.kind(), ErrorKind::SnapshotExpired, "{e}"),
                    }
                }
                keys(&reader, table)
            }
        });
        keeper.join().unwrap();
        reader.join().unwrap();
        assert_eq!(keys(&open_reader(&sim), table), [1]);
    });
}

#[test]
fn a_reader_process_sees_nothing_early_of_a_writer_that_opens() {
    explore(|| {
        let sim = SimEnv::new(7);
        let (toy, table) = open(&sim);
        toy.kernel.close().unwrap();
        drop(toy);
        let acknowledged = Acknowledged::default();
        let writer = thread::spawn({
            let (sim, acknowledged) = (sim.clone(), Arc::clone(&acknowledged));
            move || {
                let toy = Toy::open(&sim.env(), "/db", &options(), 3).unwrap();
                for key in 0..2 {
                    toy.append(table, &[(key, key)], Durability::Disk).unwrap();
                    acknowledged.lock().insert(key);
                }
            }
        });
        let reader = thread::spawn({
            let (sim, acknowledged) = (sim.clone(), Arc::clone(&acknowledged));
            move || {
                let reader = open_reader(&sim);
                let mut last = BTreeSet::new();
                for _ in 0..4 {
                    let known = acknowledged.lock().clone();
                    let found = keys(&reader, table);
                    holds(&found, &known);
                    holds(&found, &last);
                    last = found.into_iter().collect();
                    let image = sim.crash_image(&CrashChoice::DropAll);
                    let after_power_cut = Toy::open(&image.env(), "/db", &options(), 3).unwrap();
                    holds(&keys(&after_power_cut, table), &last);
                }
            }
        });
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

/// The writer before was killed in the sync of a commit, which only the cache has until the recovery is done.
#[test]
fn a_reader_process_sees_nothing_early_of_a_writer_that_recovers() {
    explore(|| {
        let sim = SimEnv::new(12);
        let (toy, table) = open(&sim);
        toy.append(table, &[(0, 0)], Durability::Disk).unwrap();
        let crash = FaultRule::new(Fault::Crash).on(SYNCS);
        sim.set_plan(FaultPlan::none().rule(crash));
        let killed = toy.append(table, &[(1, 1)], Durability::Disk);
        killed.unwrap_err();
        let sim = sim.crash_image(&CrashChoice::Kill);
        let reader = open_reader(&sim);
        assert_eq!(keys(&reader, table), [0]);
        let writer = thread::spawn({
            let sim = sim.clone();
            move || {
                let toy = Toy::open(&sim.env(), "/db", &options(), 3).unwrap();
                toy.append(table, &[(2, 2)], Durability::Disk).unwrap();
                toy.kernel.checkpoint().unwrap();
                toy.kernel.collect_garbage().unwrap();
            }
        });
        let mut last = BTreeSet::new();
        for _ in 0..4 {
            let found = keys(&reader, table);
            holds(&found, &last);
            last = found.into_iter().collect();
            let image = sim.crash_image(&CrashChoice::DropAll);
            let after_power_cut = Toy::open(&image.env(), "/db", &options(), 3).unwrap();
            holds(&keys(&after_power_cut, table), &last);
        }
        writer.join().unwrap();
        assert_eq!(keys(&reader, table), [0, 1, 2]);
        assert_eq!(keys(&open_reader(&sim), table), [0, 1, 2]);
    });
}

#[test]
fn a_fragment_that_is_committed_while_garbage_is_collected_stays() {
    explore(|| {
        let sim = SimEnv::new(8);
        let (toy, table) = open(&sim);
        let doomed = toy.create("doomed").unwrap();
        toy.append_fragment(doomed, &[(1, 1), (2, 2)], 2).unwrap();
        let loader = thread::spawn({
            let toy = Arc::clone(&toy);
            move || {
                for key in [10, 20] {
                    toy.append_fragment(table, &[(key, key), (key + 1, key)], 1)
                        .unwrap();
                }
            }
        });
        let dropper = thread::spawn({
            let toy = Arc::clone(&toy);
            move || {
                let commit = Commit {
                    edits: vec![Edit::DropTable { table: doomed }],
                    ..Commit::default()
                };
                toy.kernel.commit(commit, Durability::Disk).unwrap();
                toy.kernel.collect_garbage().unwrap();
            }
        });
        loader.join().unwrap();
        dropper.join().unwrap();
        assert_eq!(keys(&toy, table), [10, 11, 20, 21]);
        drop(toy);
        let again = Toy::open(&sim.env(), "/db", &options(), 3).unwrap();
        assert_eq!(keys(&again, table), [10, 11, 20, 21]);
    });
}

/// The keys and the items of a table's index: blocks of the log one by one, fragments as a whole.
fn rows_and_items(
    toy: &Toy,
    table: &TableSnapshot,
) -> (Vec<Row>, Vec<ItemName>, (CommitNo, CommitNo)) {
    let store = &**toy.kernel.store();
    let (mut items, mut rows) = (Vec::new(), Vec::new());
    let mut commits = (CommitNo(u64::MAX), CommitNo(0));
    table
        .tree
        .visit(None, store, &mut |entry| {
            let fragment = store.fragment_path(entry.address.file);
            if !entry.is_block() && store.env().storage().metadata(&fragment).is_err() {
                return Step::Descend;
            }
            items.push(ItemName::of(entry));
            commits.0 = commits.0.min(entry.commit_min);
            commits.1 = commits.1.max(entry.commit_max);
            Step::Take
        })
        .unwrap();
    for entry in table.tree.iter(None, store) {
        rows.extend(toy.block_rows(&entry.unwrap()).unwrap());
    }
    rows.sort_unstable();
    (rows, items, commits)
}

/// What maintenance does: all blocks of the table in order, in a fragment that takes their place.
fn merge(toy: &Toy, table: TableId) -> thalweg_kernel::Result<CommitNo> {
    let snapshot = toy.kernel.snapshot()?;
    let state = snapshot.table(table).unwrap();
    let (rows, removed, commits) = rows_and_items(toy, &state);
    let mut fragment = toy.kernel.stage_fragment(table)?;
    fragment.add_block(&block(table, rows, Some(commits)))?;
    let edit = Edit::Replace(ReplaceEdit::of_rows(
        table,
        removed,
        vec![fragment.finish()?],
    ));
    let commit = Commit {
        edits: vec![edit],
        prepared_at: Some(snapshot.commit()),
        ..Commit::default()
    };
    drop((snapshot, state));
    toy.kernel.commit(commit, Durability::Disk)
}

#[test]
fn a_table_is_merged_while_the_segment_of_its_blocks_is_emptied() {
    static MERGED: AtomicUsize = AtomicUsize::new(0);
    static LOST_RACES: AtomicUsize = AtomicUsize::new(0);
    static EMPTIED: AtomicUsize = AtomicUsize::new(0);
    explore(|| {
        let sim = SimEnv::new(11);
        let (toy, table) = open(&sim);
        let doomed = toy.create("doomed").unwrap();
        let mut want = Vec::new();
        // The first segments hold blocks of both tables.
        for key in 0..4 {
            toy.append_group(table, &[(10 - key, key)], 1, Durability::Process)
                .unwrap();
            want.push((10 - key, key));
            let rows: Vec<Row> = (0_i64..60)
                .map(|k| (k, k.wrapping_mul(0x9E37_79B9)))
                .collect();
            toy.append_group(doomed, &rows, 4, Durability::Process)
                .unwrap();
        }
        want.sort_unstable();
        toy.kernel.checkpoint().unwrap();
        toy.append(table, &[(0, 0)], Durability::Disk).unwrap();
        toy.kernel.checkpoint().unwrap();
        want.insert(0, (0, 0));
        let before = toy.kernel.snapshot().unwrap().table(table).unwrap();
        let first = before.commit().0;
        let merger = thread::spawn({
            let toy = Arc::clone(&toy);
            move || match merge(&toy, table) {
                Ok(_) => _ = MERGED.fetch_add(1, Ordering::Relaxed),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Conflict, "{e}");
                    LOST_RACES.fetch_add(1, Ordering::Relaxed);
                    merge(&toy, table).unwrap();
                }
            }
        });
        let cleaner = thread::spawn({
            let toy = Arc::clone(&toy);
            move || {
                let commit = Commit {
                    edits: vec![Edit::DropTable { table: doomed }],
                    ..Commit::default()
                };
                // Empties the segments that are sparse by now, and removes what it can.
                toy.kernel.commit(commit, Durability::Disk).unwrap();
            }
        });
        let reader = thread::spawn({
            let (toy, want) = (Arc::clone(&toy), want.clone());
            move || {
                for _ in 0..2 {
                    assert_eq!(toy.rows(table).unwrap(), want);
                }
            }
        });
        for thread in [merger, cleaner, reader] {
            thread.join().unwrap();
        }
        assert_eq!(toy.rows(table).unwrap(), want);
        assert_eq!(toy.rows_of(&before).unwrap(), want, "an old snapshot");
        drop(before);
        let image = sim.crash_image(&CrashChoice::DropAll);
        let again = Toy::open(&image.env(), "/db", &options(), 3).unwrap();
        assert_eq!(again.rows(table).unwrap(), want);
        // Beside those of the setup, the drop and the merge there are only commits that have emptied a segment.
        let commits = toy.kernel.snapshot().unwrap().commit().0 - first;
        EMPTIED.fetch_add(usize::from(commits > 2), Ordering::Relaxed);
        // What lost a race has left nothing that takes room, and what was emptied goes.
        toy.kernel.collect_garbage().unwrap();
        let fragments = sim.files().into_iter();
        let large = fragments
            .filter(|(path, bytes)| path.extension().is_some_and(|e| e == "frag") && *bytes > 0);
        assert_eq!(large.count(), 1, "{:?}", sim.files());
        assert_eq!(toy.rows(table).unwrap(), want);
    });
    let counts = [&MERGED, &LOST_RACES, &EMPTIED].map(|count| count.load(Ordering::Relaxed));
    println!("merged, lost a race, emptied: {counts:?}");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn a_failed_sync_reaches_everyone_who_waits() {
    explore(|| {
        let sim = SimEnv::new(5);
        let (toy, table) = open(&sim);
        let acknowledged = Acknowledged::default();
        sim.set_plan(
            FaultPlan::none().rule(
                FaultRule::new(Fault::Error(Errno::IO))
                    .on(SYNCS)
                    .skip(2)
                    .once(),
            ),
        );
        let threads: Vec<_> = (0..3)
            .map(|t| committer(&toy, table, t * 10, Durability::Disk, &acknowledged))
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        let refused = toy
            .append(table, &[(99, 99)], Durability::Disk)
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        holds(&keys(&toy, table), &acknowledged.lock());
        sim.set_plan(FaultPlan::none());
        let image = sim.crash_image(&CrashChoice::DropAll);
        let again = Toy::open(&image.env(), "/db", &options(), 3).unwrap();
        holds(&keys(&again, table), &acknowledged.lock());
    });
}

#[test]
fn writing_goes_on_behind_a_disk_that_was_full_at_a_sync() {
    explore(|| {
        let sim = SimEnv::new(9);
        let (toy, table) = open(&sim);
        let acknowledged = Acknowledged::default();
        let lost = Fault::FlushError {
            errno: Errno::NOSPC,
            reads: ReadsAfter::New,
        };
        let full = FaultRule::new(lost).on(SYNCS).skip(2).times(2);
        sim.set_plan(FaultPlan::none().rule(full));
        let levels = [Durability::Disk, Durability::Process, Durability::Disk];
        let threads: Vec<_> = (0..)
            .zip(levels)
            .map(|(t, level)| committer(&toy, table, t * 10, level, &acknowledged))
            .collect();
        let reader = thread::spawn({
            let (toy, acknowledged) = (Arc::clone(&toy), Arc::clone(&acknowledged));
            move || {
                let mut last = BTreeSet::new();
                for _ in 0..3 {
                    let known = acknowledged.lock().clone();
                    let found = keys(&toy, table);
                    holds(&found, &known);
                    holds(&found, &last);
                    last = found.into_iter().collect();
                }
            }
        });
        threads.into_iter().for_each(|t| t.join().unwrap());
        reader.join().unwrap();
        // Whatever is left of the faults is met by the first of these.
        let _ = toy.kernel.flush();
        let _ = toy.kernel.flush();
        toy.append(table, &[(99, 99)], Durability::Disk).unwrap();
        acknowledged.lock().insert(99);
        let found = keys(&toy, table);
        holds(&found, &acknowledged.lock());
        let image = sim.crash_image(&CrashChoice::DropAll);
        let again = Toy::open(&image.env(), "/db", &options(), 3).unwrap();
        assert_eq!(keys(&again, table), found);
    });
}

#[test]
fn closing_lets_nobody_hang() {
    explore(|| {
        let sim = SimEnv::new(6);
        let (toy, table) = open(&sim);
        let acknowledged = Acknowledged::default();
        let threads: Vec<_> = (0..2)
            .map(|t| committer(&toy, table, t * 10, Durability::Process, &acknowledged))
            .collect();
        toy.kernel.close().unwrap();
        threads.into_iter().for_each(|t| t.join().unwrap());
        drop(toy);
        let again = Toy::open(&sim.env(), "/db", &options(), 3).unwrap();
        holds(&keys(&again, table), &acknowledged.lock());
    });
}

/// Also one that is told to lead just then, with nothing left to do.
#[test]
fn who_waits_when_it_is_closed_is_told_that() {
    explore(|| {
        let sim = SimEnv::new(9);
        let (toy, table) = open(&sim);
        let threads: Vec<_> = (0..3)
            .map(|key| {
                let toy = Arc::clone(&toy);
                thread::spawn(move || {
                    let stored = toy.append(table, &[(key, key)], Durability::Process);
                    if let Err(error) = stored {
                        assert!(error.to_string().contains("is closed"), "{error}");
                    }
                })
            })
            .collect();
        toy.kernel.close().unwrap();
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
}
