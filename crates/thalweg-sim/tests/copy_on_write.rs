//! A full disk whose file system takes room for writes in place as well: Btrfs, ZFS, bcachefs. Most tests run on one that
//! overwrites in place, too.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    unused_qualifications,
    reason = "a step that fails is a test that fails, and `hidden_quotas.rs` has a machine of its own"
)]

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::Env;
use thalweg_env::sim::{
    CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, Fill, ItemFate, PendingItem, SimEnv,
};
use thalweg_env::sync::Mutex;
use thalweg_kernel::{
    Commit, Durability, Edit, Error, ErrorKind, NEW_TABLE, Options, Result, TableId,
};
use thalweg_sim::toy::{Row, Toy, random_rows};

/// Where the disk tells of all free space. `tests/hidden_quotas.rs` runs what is here with another one.
#[allow(dead_code, reason = "that file has its own")]
fn machine(seed: u64) -> SimEnv {
    SimEnv::new(seed)
}

const SEGMENT_BYTES: u64 = 128 << 10;

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        background: false,
        ..Options::default()
    }
}

fn open_with(sim: &SimEnv, background: bool) -> Result<Toy> {
    let options = Options {
        background,
        ..options()
    };
    Toy::open(&sim.env(), "/db", &options, 64)
}

fn open(sim: &SimEnv) -> Result<Toy> {
    open_with(sim, false)
}

/// A second process that reads.
fn open_reader(sim: &SimEnv) -> Toy {
    let options = Options {
        read_only: true,
        ..options()
    };
    Toy::open(&sim.env(), "/db", &options, 64).unwrap()
}

/// Appends until there is an error; returns what was stored, and what may have been.
fn fill(toy: &Toy, table: TableId, level: Durability) -> (Vec<Row>, Vec<Row>) {
    let mut stored = Vec::new();
    for k in 0..10_000_i64 {
        let rows: Vec<Row> = (k * 200..k * 200 + 200_i64)
            .map(|v| (v, v.wrapping_mul(0x1E37_79B9_7F4A_7C15)))
            .collect();
        match toy.append_group(table, &rows, 64, level) {
            Ok(_) => stored.extend(rows),
            Err(e) if e.kind() == ErrorKind::DiskFull => return (stored, Vec::new()),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Unavailable, "{e:?}");
                return (stored, rows);
            }
        }
    }
    panic!("the disk never gets full");
}

/// Drops a table, as often as the outcome is not known.
fn drop_in_the_end(toy: &Toy, table: TableId) {
    let mut errors = Vec::new();
    for _ in 0..3 {
        match toy.drop_table(table) {
            Ok(_) => return,
            Err(e) if e.kind() == ErrorKind::NotFound => return,
            Err(e) => errors.push(e),
        }
    }
    panic!("a drop on a full disk fails for ever: {errors:?}");
}

/// A disk with tables `keep` and `big` that is full: there is not a page left.
fn full(copy_on_write: bool) -> (SimEnv, Toy, TableId, TableId, Vec<Row>, Vec<Row>) {
    let sim = crate::machine(7);
    sim.set_copy_on_write(copy_on_write);
    let toy = open(&sim).unwrap();
    let (keep, big) = (toy.create("keep").unwrap(), toy.create("big").unwrap());
    toy.append(keep, &[(1, 1)], Durability::Disk).unwrap();
    sim.set_quota(Some(sim.used_bytes() + 8 * SEGMENT_BYTES));
    let (stored, doubtful) = fill(&toy, big, Durability::Disk);
    // Another program takes what is left.
    sim.set_quota(Some(sim.used_bytes()));
    (sim, toy, keep, big, stored, doubtful)
}

fn is_stored(found: &[Row], stored: &[Row], doubtful: &[Row]) -> bool {
    found == stored || found == [stored, doubtful].concat()
}

#[test]
fn a_drop_frees_space_and_writing_goes_on() {
    for copy_on_write in [false, true] {
        let (sim, toy, keep, big, stored, doubtful) = full(copy_on_write);
        let before = sim.used_bytes();
        for _ in 0..5 {
            let refused = toy.append(keep, &[(2, 2)], Durability::Disk);
            if copy_on_write {
                assert!(refused.is_err());
            }
            assert!(is_stored(&toy.rows(big).unwrap(), &stored, &doubtful));
        }
        drop_in_the_end(&toy, big);
        toy.kernel.collect_garbage().unwrap();
        let left = sim.used_bytes();
        assert!(
            left < before / 2,
            "copy on write {copy_on_write}: {left} of {before} bytes are left"
        );
        toy.append(keep, &[(3, 3)], Durability::Disk).unwrap();
        let again = toy.create("again").unwrap();
        let (more, _) = fill(&toy, again, Durability::Disk);
        assert!(
            more.len() > 2_000,
            "copy on write {copy_on_write}: {} rows",
            more.len()
        );
        assert!(toy.kernel.poison().is_none());
        let kept = toy.rows(keep).unwrap();
        drop(toy);
        sim.set_quota(None);
        let image = open(&sim.crash_image(&CrashChoice::DropAll)).unwrap();
        assert_eq!(image.rows(keep).unwrap(), kept);
        assert!(kept.contains(&(1, 1)) && kept.contains(&(3, 3)));
    }
}

#[test]
fn thirty_rounds_of_filling_and_dropping() {
    let (sim, toy, keep, mut victim, _, _) = full(true);
    for round in 0..30 {
        drop_in_the_end(&toy, victim);
        toy.kernel.collect_garbage().unwrap();
        victim = toy.create(&format!("round {round}")).unwrap();
        let level = [Durability::Disk, Durability::Process][round % 2];
        let (stored, doubtful) = fill(&toy, victim, level);
        let found = toy.rows(victim).unwrap();
        assert!(is_stored(&found, &stored, &doubtful), "round {round}");
        assert!(stored.len() > 1_000, "round {round}: {} rows", stored.len());
        let image = sim.crash_image(&CrashChoice::DropAll);
        image.set_quota(None);
        assert_eq!(open(&image).unwrap().rows(keep).unwrap(), [(1, 1)]);
    }
    assert_eq!(toy.rows(keep).unwrap(), [(1, 1)]);
    assert!(toy.kernel.poison().is_none());
}

#[test]
fn a_crash_on_such_a_disk_is_recovered_there_and_a_drop_frees_it() {
    let (sim, toy, keep, big, stored, doubtful) = full(true);
    for choice in [
        CrashChoice::Kill,
        CrashChoice::KeepAll,
        CrashChoice::DropAll,
    ] {
        let image = sim.crash_image(&choice);
        let toy = open(&image).unwrap_or_else(|e| panic!("{choice:?}: {e:?}"));
        assert!(
            is_stored(&toy.rows(big).unwrap(), &stored, &doubtful),
            "{choice:?}"
        );
        let before = image.used_bytes();
        drop_in_the_end(&toy, big);
        toy.kernel.collect_garbage().unwrap();
        assert!(image.used_bytes() < before / 2, "{choice:?}");
        toy.append(keep, &[(7, 7)], Durability::Disk).unwrap();
        assert_eq!(toy.rows(keep).unwrap(), [(1, 1), (7, 7)]);
    }
    drop(toy);
}

#[test]
fn a_crash_at_any_call_of_a_drop_there_loses_nothing() {
    for copy_on_write in [false, true] {
        crash_at_any_call_of_a_drop(copy_on_write);
    }
}

fn crash_at_any_call_of_a_drop(copy_on_write: bool) {
    for at in 1.. {
        let (sim, toy, keep, big, stored, doubtful) = full(copy_on_write);
        sim.set_plan(FaultPlan::crash_at(sim.calls() + at));
        let dropped = toy.drop_table(big);
        let collected = toy.kernel.collect_garbage();
        for choice in sim.crash_choices(4, 4, at) {
            let image = sim.crash_image(&choice);
            // More room than there was, so that all is seen.
            image.set_quota(None);
            let again = open(&image).unwrap_or_else(|e| panic!("call {at}, {choice:?}: {e:?}"));
            assert_eq!(again.rows(keep).unwrap(), [(1, 1)]);
            match again.rows(big) {
                Ok(found) if found.is_empty() => {}
                Ok(found) => assert!(dropped.is_err() && is_stored(&found, &stored, &doubtful)),
                Err(e) => assert_eq!(e.kind(), ErrorKind::NotFound),
            }
        }
        if !sim.is_crashed() {
            assert!(collected.is_ok() && at > 10, "{at} calls: {collected:?}");
            break;
        }
    }
}

/// How often something is tried while threads work beside.
const ATTEMPTS: usize = 400;

/// Tries until it works; between two attempts the threads of the database go on.
fn in_the_end<T>(what: &str, mut attempt: impl FnMut() -> Result<T>) -> T {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        match attempt() {
            Ok(done) => return done,
            Err(error) => last = Some(error),
        }
        Env::os().clock().sleep(Duration::from_millis(5));
    }
    panic!("{what} fails for ever: {last:?}");
}

fn drop_with_threads(what: &str, toy: &Toy, table: TableId) {
    in_the_end(what, || match toy.drop_table(table) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        dropped => dropped.map(drop),
    });
}

/// A disk that gets full under the threads of an open database. `slack_pages`: what other programs leave; `None`: there are none.
fn drop_beside_threads(
    seed: u64,
    copy_on_write: bool,
    slack_pages: Option<u64>,
    segments: u64,
    reopens: bool,
) {
    let what = format!(
        "seed {seed}, copy on write {copy_on_write}, slack {slack_pages:?}, {segments} segments, reopened {reopens}"
    );
    let sim = crate::machine(seed);
    sim.set_copy_on_write(copy_on_write);
    let mut toy = open_with(&sim, true).unwrap();
    let (keep, big) = (toy.create("keep").unwrap(), toy.create("big").unwrap());
    toy.append(keep, &[(1, 1)], Durability::Disk).unwrap();
    let reader = open_reader(&sim);
    let quota_bytes = sim.used_bytes() + segments * SEGMENT_BYTES;
    sim.set_quota(Some(quota_bytes));
    let (stored, doubtful) = fill(&toy, big, Durability::Disk);
    if let Some(pages) = slack_pages {
        sim.set_quota(Some(sim.used_bytes() + pages * 4096));
    }
    assert!(
        is_stored(&toy.rows(big).unwrap(), &stored, &doubtful),
        "{what}"
    );
    if reopens {
        drop(toy);
        toy = open_with(&sim, true).unwrap_or_else(|e| panic!("{what}: {e:?}"));
        assert!(
            is_stored(&toy.rows(big).unwrap(), &stored, &doubtful),
            "{what}"
        );
    }
    drop_with_threads(&what, &toy, big);
    assert_eq!(reader.rows(keep).unwrap(), [(1, 1)], "{what}");
    let appended = format!("{what}: an append after the drop");
    in_the_end(&appended, || {
        // A pin that found no room to be written keeps files until the reader takes another snapshot.
        reader.rows(keep)?;
        toy.append(keep, &[(3, 3)], Durability::Disk)
    });
    let kept = toy.rows(keep).unwrap();
    assert!(kept.contains(&(3, 3)), "{what}");
    assert_eq!(reader.rows(keep).unwrap(), kept, "{what}");
    assert!(toy.kernel.poison().is_none(), "{what}");
}

#[test]
fn threads_leave_a_drop_its_room() {
    for copy_on_write in [false, true] {
        for seed in 1..=3 {
            for reopens in [false, true] {
                for slack in [Some(0), Some(1), Some(3), None] {
                    drop_beside_threads(seed, copy_on_write, slack, 8, reopens);
                }
                drop_beside_threads(seed, copy_on_write, None, 6, reopens);
                drop_beside_threads(seed, copy_on_write, None, 11, reopens);
            }
        }
    }
}

/// The checkpoints that remove files have all tables in them, and drops that free nothing must leave room for these.
#[test]
fn of_many_tables_each_can_be_dropped_once_no_snapshot_needs_it() {
    for (copy_on_write, background) in [(false, false), (false, true), (true, false), (true, true)]
    {
        let what = format!("copy on write {copy_on_write}, threads {background}");
        let sim = crate::machine(21);
        sim.set_copy_on_write(copy_on_write);
        let toy = open_with(&sim, background).unwrap();
        let keep = toy.create("keep").unwrap();
        toy.append(keep, &[(1, 1)], Durability::Disk).unwrap();
        let many: Vec<TableId> = (0..800)
            .map(|n| toy.create(&format!("one of many tables: {n}")).unwrap())
            .collect();
        let big = toy.create("big").unwrap();
        sim.set_quota(Some(sim.used_bytes() + 8 * SEGMENT_BYTES));
        let (stored, doubtful) = fill(&toy, big, Durability::Disk);
        sim.set_quota(Some(sim.used_bytes()));
        let held = toy.kernel.snapshot().unwrap();
        let all: Vec<TableId> = many.into_iter().chain([big]).collect();
        // Of these some are refused, in the end, because none of them frees anything.
        for table in &all {
            let _ = toy.drop_table(*table);
        }
        // What the snapshot shows is still there.
        let shown = held.table_named("big").unwrap();
        assert!(
            is_stored(&toy.rows_of(&shown).unwrap(), &stored, &doubtful),
            "{what}"
        );
        drop((held, shown));
        for table in all {
            drop_with_threads(&what, &toy, table);
        }
        in_the_end(&what, || {
            toy.kernel.collect_garbage()?;
            toy.append(keep, &[(3, 3)], Durability::Disk)
        });
        assert!(toy.rows(keep).unwrap().contains(&(3, 3)), "{what}");
    }
}

/// Drops of tables without rows free less than the checkpoints take that come before files are removed. The next drop must not
/// wait for them, though another program has taken so much that there is not the room that is kept behind each drop.
#[test]
fn a_drop_never_waits_for_one_that_frees_little() {
    for (left_pages, holds_snapshot) in [(60, false), (60, true), (140, false), (140, true)] {
        let what = format!("{left_pages} pages are left, snapshot {holds_snapshot}");
        let sim = crate::machine(23);
        sim.set_copy_on_write(true);
        let toy = open(&sim).unwrap();
        let keep = toy.create("keep").unwrap();
        toy.append(keep, &[(1, 1)], Durability::Disk).unwrap();
        let many: Vec<TableId> = (0..800)
            .map(|n| toy.create(&format!("one of many tables: {n}")).unwrap())
            .collect();
        // What the log has of these so far would be worth a round.
        toy.kernel.collect_garbage().unwrap();
        let big = toy.create("big").unwrap();
        sim.set_quota(Some(sim.used_bytes() + 8 * SEGMENT_BYTES));
        fill(&toy, big, Durability::Disk);
        sim.set_quota(Some(sim.used_bytes()));
        let held = holds_snapshot.then(|| toy.kernel.snapshot().unwrap());
        toy.drop_table(many[0]).unwrap();
        sim.set_quota(Some(sim.used_bytes() + left_pages * 4096));
        let before = sim.used_bytes();
        for attempt in 0..3 {
            let refused = toy.drop_table(many[1]);
            // The first one calls for the checkpoint that lets the next one go on.
            if attempt == 0 || holds_snapshot {
                let refused = refused.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::DiskFull, "{what}: {refused}");
            }
        }
        drop(held);
        drop_in_the_end(&toy, big);
        toy.kernel.collect_garbage().unwrap();
        let left = sim.used_bytes();
        assert!(
            left + SEGMENT_BYTES < before,
            "{what}: {left} of {before} bytes are left"
        );
        sim.set_quota(None);
        toy.append(keep, &[(3, 3)], Durability::Disk).unwrap();
        assert_eq!(toy.rows(keep).unwrap(), [(1, 1), (3, 3)], "{what}");
        assert!(toy.kernel.poison().is_none(), "{what}");
    }
}

/// Where space is short one checkpoint comes before files are removed: what frees more than that takes is worth it.
#[test]
fn a_drop_that_frees_less_than_two_checkpoints_take_frees_it() {
    for groups in [20, 40, 60] {
        let sim = crate::machine(23);
        sim.set_copy_on_write(true);
        let toy = open(&sim).unwrap();
        let keep = toy.create("keep").unwrap();
        for n in 0..800 {
            toy.create(&format!("one of many tables: {n}")).unwrap();
        }
        toy.kernel.collect_garbage().unwrap();
        let big = toy.create("big").unwrap();
        for k in 0..groups {
            toy.append_group(big, &random_rows(k * 200, 200), 64, Durability::Disk)
                .unwrap();
        }
        for _ in 0..3 {
            toy.kernel.run_due_work().unwrap();
        }
        sim.set_quota(Some(sim.used_bytes()));
        toy.append(keep, &[(1, 1)], Durability::Disk).unwrap_err();
        toy.drop_table(big).unwrap();
        let left = sim.used_bytes();
        assert!(
            left < SEGMENT_BYTES,
            "{groups} groups: {left} bytes are left"
        );
    }
}

/// Another program has taken everything, also what was kept for a full disk.
#[test]
fn an_opening_without_any_room_shows_all_rows_and_writing_waits() {
    for copy_on_write in [false, true] {
        for choice in [
            CrashChoice::Kill,
            CrashChoice::DropAll,
            CrashChoice::KeepAll,
        ] {
            let (sim, toy, keep, big, stored, doubtful) = full(copy_on_write);
            let image = sim.crash_image(&choice);
            drop(toy);
            let spares = image.files().into_iter().map(|(path, _)| path);
            let spares = spares.filter(|path| path.extension().is_some_and(|e| e == "spare"));
            for path in spares.collect::<Vec<_>>() {
                image.env().storage().remove_file(&path).unwrap();
            }
            image.set_quota(Some(image.used_bytes()));
            let what = format!("copy on write {copy_on_write}, {choice:?}");
            for _ in 0..3 {
                let toy = open(&image).unwrap_or_else(|e| panic!("{what}: {e:?}"));
                assert!(
                    is_stored(&toy.rows(big).unwrap(), &stored, &doubtful),
                    "{what}"
                );
                assert_eq!(toy.rows(keep).unwrap(), [(1, 1)], "{what}");
                if let Err(refused) = toy.append(keep, &[(5, 5)], Durability::Disk) {
                    let kind = refused.kind();
                    assert!(
                        matches!(kind, ErrorKind::DiskFull | ErrorKind::Unavailable),
                        "{refused}"
                    );
                }
                let found = toy.rows(big).unwrap();
                assert!(is_stored(&found, &stored, &doubtful), "{what}");
                if toy.rows(keep).unwrap() != [(1, 1)] {
                    break;
                }
            }
            let toy = open(&image).unwrap();
            image.set_quota(None);
            toy.append(keep, &[(6, 6)], Durability::Disk).unwrap();
            assert!(toy.rows(keep).unwrap().contains(&(6, 6)), "{what}");
            assert!(
                is_stored(&toy.rows(big).unwrap(), &stored, &doubtful),
                "{what}"
            );
            assert!(toy.kernel.poison().is_none(), "{what}");
        }
    }
}

/// A drop that failed at any of its writes and syncs leaves nothing that makes the next one fail.
#[test]
fn a_drop_that_finds_no_room_once_can_be_repeated() {
    for copy_on_write in [false, true] {
        let mut failed = 0;
        for skipped in 0..20 {
            let (sim, toy, _, big, ..) = full(copy_on_write);
            let none = FaultRule::new(Fault::Error(Errno::NOSPC));
            let none = none.on(&[CallKind::Write, CallKind::SyncData]);
            sim.set_plan(FaultPlan::none().rule(none.skip(skipped).once()));
            let dropped = toy.drop_table(big);
            sim.set_plan(FaultPlan::none());
            if dropped.is_err() {
                failed += 1;
                drop_in_the_end(&toy, big);
            }
            toy.kernel.collect_garbage().unwrap();
            assert!(toy.kernel.poison().is_none());
        }
        assert!(failed > 2, "{failed} drops failed");
    }
}

/// Segments are prepared beside commits: whatever it tries, it takes no room that writes in place need.
#[test]
fn preparing_segments_leaves_room_for_commits_beside_it() {
    const QUOTA: u64 = 4 << 20;
    let sim = crate::machine(1);
    sim.set_copy_on_write(true);
    sim.set_quota(Some(QUOTA));
    let options = Options {
        segment_bytes: 128 << 10,
        background: false,
        ..Options::default()
    };
    let toy = Arc::new(Toy::open(&sim.env(), "/db", &options, 64).unwrap());
    let create = |name: &str| toy.create(name).unwrap();
    let (small, doomed, big) = (create("small"), create("doomed"), create("big"));
    let noise = |key: i64| key.wrapping_mul(0x1E37_79B9_7F4A_7C15);
    let rows = |first: i64, count: i64| -> Vec<Row> {
        (first..first + count)
            .map(|key| (key, noise(key)))
            .collect()
    };
    toy.append_fragment(doomed, &rows(0, 22_000), 64).unwrap();
    let fill = |k: i64| toy.append_group(big, &rows(k * 200, 200), 64, Durability::Disk);
    assert!((0..10_000).any(|k| fill(k).is_err()));
    let commit = Commit {
        edits: vec![Edit::DropTable { table: doomed }],
        ..Commit::default()
    };
    toy.kernel.commit(commit, Durability::Disk).unwrap();
    for _ in 0..3 {
        toy.kernel.run_due_work().unwrap();
    }
    // One more append at each write of a segment that is prepared.
    let failed: Arc<Mutex<Vec<Error>>> = Arc::default();
    let (beside, errors) = (Arc::clone(&toy), Arc::clone(&failed));
    sim.set_watcher(Some(Box::new(move || {
        let (toy, errors) = (Arc::clone(&beside), Arc::clone(&errors));
        let (sender, ended) = std::sync::mpsc::channel();
        let append = move || {
            let appended = toy.append(small, &[(1, 1)], Durability::Disk);
            errors.lock().extend(appended.err());
            let _ = sender.send(());
        };
        let thread = Env::os().spawner().spawn("beside", Box::new(append));
        // It may wait for the one that prepares.
        let _ = ended.recv_timeout(Duration::from_millis(10));
        drop(thread);
    })));
    for k in 0..25 {
        let rule = FaultRule::new(Fault::Watched).on(&[CallKind::Write, CallKind::SyncAll]);
        let rule = rule.path_suffix(".spare").times(40);
        sim.set_plan(FaultPlan::none().rule(rule));
        let appended = toy.append_group(small, &rows(k * 100, 100), 64, Durability::Disk);
        errors_but_full(appended.err());
    }
    sim.set_plan(FaultPlan::none());
    sim.set_watcher(None);
    errors_but_full(failed.lock().drain(..));
    for k in 0..10 {
        toy.append_group(small, &rows(k * 100, 100), 64, Durability::Disk)
            .unwrap();
    }
}

fn errors_but_full(errors: impl IntoIterator<Item = Error>) {
    let others = errors
        .into_iter()
        .filter(|e| e.kind() != ErrorKind::DiskFull);
    assert_eq!(others.map(|e| e.to_string()).collect::<Vec<_>>(), [""; 0]);
}

/// Nobody appends rows, whose commits would find out.
#[test]
fn files_are_added_again_once_there_is_room() {
    let sim = crate::machine(4);
    sim.set_copy_on_write(true);
    let toy = open(&sim).unwrap();
    let (keep, big) = (toy.create("keep").unwrap(), toy.create("big").unwrap());
    sim.set_quota(Some(sim.used_bytes() + 12 * SEGMENT_BYTES));
    let rows = |k: i64| -> Vec<Row> { (0..200).map(|v| (k, v)).collect() };
    let add = |table, k| toy.append_fragment(table, &rows(k), 64);
    assert!((0..1000).any(|k| add(big, k).is_err()));
    // Elsewhere somebody takes what is left.
    sim.set_quota(Some(sim.used_bytes()));
    drop_in_the_end(&toy, big);
    sim.set_quota(None);
    add(keep, 1).unwrap();
    assert_eq!(toy.rows(keep).unwrap(), rows(1));
}

fn fragments(sim: &SimEnv) -> usize {
    let files = sim.files().into_iter();
    files
        .filter(|(path, _)| path.starts_with("/db/data"))
        .count()
}

/// Appends in files of their own that find no room, again and again.
#[test]
fn refused_files_leave_few_names() {
    for copies_on_write in [false, true] {
        let sim = crate::machine(19);
        sim.set_copy_on_write(copies_on_write);
        let toy = open(&sim).unwrap();
        let table = toy.create("t").unwrap();
        let (few, many) = (random_rows(0, 1_000), random_rows(0, 200_000));
        toy.append_group(table, &few, 64, Durability::Disk).unwrap();
        sim.set_quota(Some(sim.used_bytes() + 12 * SEGMENT_BYTES));
        for _ in 0..300 {
            let refused = toy.append_fragment(table, &many, 512).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::DiskFull, "{refused}");
            sim.advance(Duration::from_secs(11));
            let _ = toy.kernel.run_due_work();
        }
        assert!(fragments(&sim) < 150, "{} files", fragments(&sim));
        sim.set_quota(None);
        // Until both slots of the root name higher ids.
        for _ in 0..2 {
            toy.append_group(table, &few, 64, Durability::Disk).unwrap();
            toy.kernel.checkpoint().unwrap();
            toy.kernel.run_due_work().unwrap();
        }
        assert_eq!(fragments(&sim), 0);
    }
}

/// Behind a power cut a segment that was named empty may show an earlier version of another one.
#[test]
fn an_earlier_version_of_a_segment_is_no_copy_of_it() {
    let sim = crate::machine(7);
    sim.set_copy_on_write(true);
    let toy = open(&sim).unwrap();
    let (keep, big) = (toy.create("keep").unwrap(), toy.create("big").unwrap());
    toy.append(keep, &[(1, 1)], Durability::Disk).unwrap();
    let name = |n: usize| format!("{n} {}", "a name of some length ".repeat(8));
    let small: Vec<_> = (0..3).map(|n| toy.create(&name(n)).unwrap()).collect();
    sim.set_quota(Some(sim.used_bytes() + 8 * SEGMENT_BYTES));
    let mut batches = (0..10_000).map(|k| random_rows(k * 200, 200));
    while toy
        .append_group(big, &batches.next().unwrap(), 64, Durability::Disk)
        .is_ok()
    {}
    sim.set_quota(Some(sim.used_bytes()));
    sim.record_states(true);
    let first = sim.calls();
    for table in small.into_iter().chain([big, big]) {
        let _ = toy.drop_table(table);
    }
    let _ = toy.kernel.collect_garbage();
    let _ = toy.append(keep, &[(2, 2)], Durability::Disk);
    let mut images = 0;
    for state in (first..=sim.calls()).filter_map(|call| sim.state_at(call)) {
        let pending = state.pending_items();
        let is_growing_segment = |item: &PendingItem| matches!(item, PendingItem::Write { path, grows: true, .. } if path.starts_with("/db/log"));
        let growing = (0..pending.len()).filter(|at| is_growing_segment(&pending[*at]));
        for (at, stale) in growing.flat_map(|at| (0..8).map(move |stale| (at, stale))) {
            let mut fates = vec![ItemFate::Keep; pending.len()];
            fates[at] = ItemFate::SizeOnly(Fill::Stale(stale));
            let image = state.crash_image(&CrashChoice::Items(fates));
            image.set_quota(None);
            open(&image).unwrap();
            images += 1;
        }
    }
    assert!(images > 100, "{images} images");
}

/// Removing the empty files that refused appends have left must not take the room of appends that still find some.
#[test]
fn small_appends_go_on_beside_large_ones_that_are_refused() {
    let sim = crate::machine(11);
    sim.set_copy_on_write(true);
    let (toy, [small, large]) = nearly_full(&sim, 100 << 10);
    let rows = random_rows(1 << 40, 60_000);
    for n in 0..500 {
        if n < 70 {
            toy.append_fragment(large, &rows, 1024).unwrap_err();
        }
        sim.advance(Duration::from_millis(50));
        toy.append(small, &[(n, 1)], Durability::Disk).unwrap();
    }
}

/// A database of 2,000 tables on a disk with `left_bytes` of room, which is too little for checkpoints; two of its tables.
fn nearly_full(sim: &SimEnv, left_bytes: u64) -> (Toy, [TableId; 2]) {
    let options = Options {
        segment_bytes: 8 << 20,
        ..options()
    };
    let toy = Toy::open(&sim.env(), "/db", &options, 64).unwrap();
    let names = (0..2_000).map(|n| format!("sensor of building {n} on a floor"));
    let edits = names.map(|name| Edit::CreateTable {
        table: NEW_TABLE,
        name,
        definition: Bytes::from_static(b"toy"),
    });
    let commit = Commit {
        edits: edits.collect(),
        ..Commit::default()
    };
    toy.kernel.commit(commit, Durability::Disk).unwrap();
    let (small, large) = (toy.create("small").unwrap(), toy.create("large").unwrap());
    for k in 0..12 {
        let rows = random_rows(k * 20_000, 20_000);
        toy.append_group(large, &rows, 1024, Durability::Disk)
            .unwrap();
    }
    for _ in 0..4 {
        toy.kernel.run_due_work().unwrap();
    }
    sim.set_quota(Some(sim.used_bytes() + left_bytes));
    (toy, [small, large])
}

/// Where there is no room for the checkpoints that remove them, the names of refused appends grow to a bound; with room again they
/// go, and large appends are taken.
#[test]
fn refused_large_appends_leave_no_more_names_than_a_bound() {
    let sim = crate::machine(12);
    let (toy, [small, large]) = nearly_full(&sim, 100 << 10);
    let rows = random_rows(1 << 40, 60_000);
    let mut most = 0;
    for n in 0..2_500 {
        toy.append_fragment(large, &rows, 1024).unwrap_err();
        sim.advance(Duration::from_millis(50));
        if n % 10 == 0 {
            toy.append(small, &[(n, 1)], Durability::Disk).unwrap();
        }
        most = most.max(fragments(&sim));
    }
    assert!((500..1_300).contains(&most), "{most} files");
    sim.set_quota(None);
    for n in 0..10 {
        toy.append_fragment(large, &rows, 1024).unwrap();
        toy.append(small, &[(n, 1)], Durability::Disk).unwrap();
    }
    let left = fragments(&sim);
    assert!(left < 100, "{left} files");
}

/// The same where a drop was given the reserve, and nobody makes a small append that would end that.
#[test]
fn large_appends_are_taken_again_where_a_drop_was_given_the_reserve() {
    let sim = crate::machine(13);
    sim.set_copy_on_write(true);
    let (toy, [small, large]) = nearly_full(&sim, 100 << 10);
    let rows = random_rows(1 << 40, 60_000);
    let mut most = 0;
    for _ in 0..1_500 {
        toy.append_fragment(large, &rows, 1024).unwrap_err();
        sim.advance(Duration::from_millis(50));
        most = most.max(fragments(&sim));
    }
    assert!((500..1_300).contains(&most), "{most} files");
    toy.drop_table(small).unwrap();
    sim.set_quota(None);
    for _ in 0..10 {
        toy.append_fragment(large, &rows, 1024).unwrap();
        sim.advance(Duration::from_millis(50));
    }
    let left = fragments(&sim);
    assert!(left < 100, "{left} files");
}

/// Where the reserve was given back no block can be put in the place of another, so none is copied.
#[test]
fn segments_are_not_copied_in_vain_on_a_full_disk() {
    let sim = crate::machine(7);
    sim.set_copy_on_write(true);
    let options = Options {
        segment_bytes: 2 * SEGMENT_BYTES,
        ..options()
    };
    let toy = Toy::open(&sim.env(), "/db", &options, 64).unwrap();
    let (refused, keep) = (toy.create("a").unwrap(), toy.create("keep").unwrap());
    let mut first = 0;
    let mut append = |table, count| {
        first += count;
        let rows = random_rows(first - count, count);
        toy.append_group(table, &rows, 64, Durability::Disk)
    };
    let mut dropped = Vec::new();
    for round in 0..6 {
        let gone = toy.create(&format!("gone{round}")).unwrap();
        for _ in 0..6 {
            append(gone, 2_000).unwrap();
            append(keep, 1_500).unwrap();
        }
        dropped.push(gone);
    }
    sim.set_quota(Some(sim.used_bytes()));
    let mut before = 0;
    for attempt in 0..400 {
        let _ = append(refused, 2_000);
        if attempt % 40 == 0 && attempt < 100 {
            let _ = toy.drop_table(dropped[attempt / 40]);
        }
        if attempt == 100 {
            before = fragments(&sim);
        }
        sim.advance(Duration::from_secs(11));
        let _ = toy.kernel.run_due_work();
    }
    let after = fragments(&sim);
    assert!(after < before + 80, "{before} files, then {after}");
}
