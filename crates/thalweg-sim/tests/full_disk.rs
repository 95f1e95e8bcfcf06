//! A full disk: appends fail and say so, reads and drops go on, writing resumes by itself.
#![allow(
    clippy::unwrap_used,
    unused_qualifications,
    reason = "a step that fails is a test that fails, and `hidden_quotas.rs` has a machine of its own"
)]

use thalweg_env::sim::{
    CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, MUTATING, ReadsAfter, SYNCS, SimEnv,
};
use thalweg_kernel::index::ItemName;
use thalweg_kernel::orders::{AddHead, ReplaceEdit};
use thalweg_kernel::{Commit, Durability, Edit, Error, ErrorKind, NEW_TABLE, Options, TableId};
use thalweg_sim::oracle::contents_of;
use thalweg_sim::toy::{Row, Toy, block, definition, random_rows, wide_block};

#[allow(dead_code, reason = "see `machine`")]
const HIDES_QUOTA: bool = false;

/// Where the disk tells of all free space. `tests/hidden_quotas.rs` runs what is here with another one.
#[allow(dead_code, reason = "that file has its own")]
fn machine(seed: u64) -> SimEnv {
    SimEnv::new(seed)
}

const SEGMENT_BYTES: u64 = 64 << 10;

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        background: false,
        ..Options::default()
    }
}

fn open(sim: &SimEnv) -> Toy {
    Toy::open(&sim.env(), "/db", &options(), 64).unwrap()
}

/// Appends until the disk is full; returns what was stored.
fn fill(toy: &Toy, table: TableId, durability: Durability) -> Vec<Row> {
    let mut stored = Vec::new();
    for k in 0.. {
        let rows: Vec<Row> = (k * 200..k * 200 + 200).map(|v| (v, v)).collect();
        match toy.append_group(table, &rows, 64, durability) {
            Ok(_) => stored.extend(rows),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::DiskFull, "{e:?}");
                return stored;
            }
        }
        assert!(k < 10_000, "the disk never gets full");
    }
    unreachable!("an endless range")
}

/// A database on a disk that has just got full, with tables `keep` and `big`.
fn full() -> (SimEnv, Toy, TableId, TableId, Vec<Row>) {
    let sim = crate::machine(7);
    let toy = open(&sim);
    let (keep, big) = (toy.create("keep").unwrap(), toy.create("big").unwrap());
    toy.append(keep, &[(1, 1)], Durability::Disk).unwrap();
    sim.set_quota(Some(sim.used_bytes() + 10 * SEGMENT_BYTES));
    let stored = fill(&toy, big, Durability::Disk);
    (sim, toy, keep, big, stored)
}

#[test]
fn reads_go_on_and_writing_resumes_once_there_is_space() {
    let (sim, toy, keep, big, stored) = full();
    for _ in 0..20 {
        assert_eq!(toy.rows(big).unwrap(), stored);
        let refused = toy.append_group(big, &stored[..200], 64, Durability::Disk);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::DiskFull);
    }
    assert!(toy.kernel.poison().is_none());
    sim.set_quota(None);
    toy.append_group(keep, &[(2, -2), (3, -3)], 64, Durability::Disk)
        .unwrap();
    drop(toy);
    let image = sim.crash_image(&CrashChoice::DropAll);
    let toy = open(&image);
    assert_eq!(toy.rows(big).unwrap(), stored);
    assert_eq!(toy.rows(keep).unwrap(), [(1, 1), (2, -2), (3, -3)]);
}

#[test]
fn a_drop_works_on_a_full_disk_and_makes_room() {
    let (sim, toy, keep, big, _) = full();
    let before = sim.used_bytes();
    toy.drop_table(big).unwrap();
    toy.kernel.collect_garbage().unwrap();
    assert!(
        sim.used_bytes() < before / 2,
        "{} of {before} bytes are left",
        sim.used_bytes()
    );
    // Without a reopen, and as much as before.
    let again = toy.create("again").unwrap();
    let stored = fill(&toy, again, Durability::Process);
    assert!(stored.len() > 5_000, "{} rows", stored.len());
    assert_eq!(toy.rows(again).unwrap(), stored);
    assert_eq!(toy.rows(keep).unwrap(), [(1, 1)]);
}

#[test]
fn fifty_rounds_of_filling_and_dropping() {
    let (sim, toy, keep, big, _) = full();
    let mut victim = big;
    for round in 0..50 {
        toy.drop_table(victim).unwrap();
        toy.kernel.collect_garbage().unwrap();
        victim = toy.create(&format!("round {round}")).unwrap();
        let stored = fill(&toy, victim, Durability::Process);
        assert_eq!(toy.rows(victim).unwrap(), stored, "round {round}");
        assert!(stored.len() > 1_000, "round {round}: {} rows", stored.len());
    }
    assert_eq!(toy.rows(keep).unwrap(), [(1, 1)]);
    assert!(toy.kernel.poison().is_none());
    drop(toy);
    assert_eq!(open(&sim).rows(keep).unwrap(), [(1, 1)]);
}

#[test]
fn a_crash_on_a_full_disk_can_be_recovered_there() {
    let (sim, toy, keep, big, stored) = full();
    // The last ones are in the cache only.
    for k in 0..3 {
        let _ = toy.append(keep, &[(100 + k, 100 + k)], Durability::Process);
    }
    let shown = toy.rows(keep).unwrap();
    for choice in [
        CrashChoice::Kill,
        CrashChoice::KeepAll,
        CrashChoice::DropAll,
    ] {
        let image = sim.crash_image(&choice);
        let toy = open(&image);
        assert_eq!(toy.rows(big).unwrap(), stored, "{choice:?}");
        let kept = toy.rows(keep).unwrap();
        assert!(shown.starts_with(&kept), "{choice:?}: {kept:?}");
        assert!(
            choice == CrashChoice::DropAll || kept == shown,
            "{choice:?}"
        );
        let before = image.used_bytes();
        toy.drop_table(big).unwrap();
        toy.kernel.collect_garbage().unwrap();
        assert!(image.used_bytes() < before, "{choice:?}");
        toy.append(keep, &[(7, 7)], Durability::Disk).unwrap();
    }
}

/// A database with a table whose disk tells that it is full at syncs only, with room for a few segments more.
fn full_at_sync(seed: u64) -> (SimEnv, Toy, TableId) {
    let sim = crate::machine(seed);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    sim.set_quota_at_sync(true);
    sim.set_quota(Some(sim.used_bytes() + 4 * SEGMENT_BYTES));
    (sim, toy, table)
}

/// Appends until no segment can be prepared, and then until the sync of the log fails: what was acknowledged, and what
/// had that error.
fn fill_at_sync(
    sim: &SimEnv,
    toy: &Toy,
    table: TableId,
    first: i64,
    level: Durability,
) -> (Vec<Row>, Vec<Row>) {
    let mut stored = Vec::new();
    for k in 0..1000 {
        let at = first + k * 200;
        let rows: Vec<Row> = (at..at + 200).map(|v| (v, v)).collect();
        match toy.append_group(table, &rows, 64, level) {
            Ok(_) => stored.extend(rows),
            Err(e) if e.kind() == ErrorKind::Unavailable => return (stored, rows),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::DiskFull, "{e:?}");
                break;
            }
        }
    }
    sim.set_quota(Some(0));
    let rows = [(first - 2, 0)];
    let error = toy.append(table, &rows, Durability::Disk).unwrap_err();
    if error.kind() == ErrorKind::Unavailable {
        return (stored, rows.to_vec());
    }
    // It needed a segment, and nothing was begun.
    assert_eq!(error.kind(), ErrorKind::DiskFull, "{error:?}");
    (stored, Vec::new())
}

#[test]
fn a_disk_that_is_full_at_the_sync_stops_writing_and_loses_nothing() {
    let (sim, toy, table) = full_at_sync(9);
    let (stored, doubtful) = fill_at_sync(&sim, &toy, table, 0, Durability::Disk);
    for _ in 0..20 {
        assert_eq!(toy.rows(table).unwrap(), stored);
        let refused = toy.append_group(table, &[(-1, -1)], 64, Durability::Disk);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::DiskFull);
    }
    drop(toy);
    sim.set_quota(None);
    for choice in [CrashChoice::Kill, CrashChoice::DropAll] {
        let toy = open(&sim.crash_image(&choice));
        let (_, contents) = contents_of(&toy).unwrap();
        let mut all = [&stored[..], &doubtful[..]].concat();
        all.sort_unstable();
        assert!(
            contents["t"] == stored || contents["t"] == all,
            "{choice:?}"
        );
        toy.append(table, &[(-1, -1)], Durability::Disk).unwrap();
    }
}

/// Commits that had an error are there as a whole or not at all, the same before and after a power cut.
#[test]
fn fifty_rounds_of_filling_up_at_syncs_and_going_on_in_the_same_handle() {
    let (sim, toy, mut table) = full_at_sync(10);
    let (mut stored, mut first) = (Vec::new(), 0);
    let (mut failed, mut kept) = (0, 0);
    for round in 0..50 {
        let level = [Durability::Disk, Durability::Process][round % 2];
        let (more, doubtful) = fill_at_sync(&sim, &toy, table, first, level);
        failed += u32::from(!doubtful.is_empty());
        first += 1_000_000;
        stored.extend(more);
        assert_eq!(toy.rows(table).unwrap(), stored, "round {round}");
        let refused = toy.append(table, &[(-1, -1)], Durability::Disk);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::DiskFull);
        assert_eq!(toy.rows(table).unwrap(), stored, "round {round}");
        assert!(toy.kernel.poison().is_none());

        sim.set_quota(None);
        toy.append(table, &[(first - 1, 0)], Durability::Disk)
            .unwrap();
        let found = toy.rows(table).unwrap();
        let mut all = stored.clone();
        if found.len() > stored.len() + 1 {
            all.extend(doubtful);
            kept += 1;
        }
        all.push((first - 1, 0));
        all.sort_unstable();
        assert_eq!(found, all, "round {round}");
        stored = all;
        if round % 3 == 2 {
            let image = open(&sim.crash_image(&CrashChoice::DropAll));
            assert_eq!(image.rows(table).unwrap(), stored, "round {round}");
            toy.drop_table(table).unwrap();
            table = toy.create(&format!("round {round}")).unwrap();
            stored.clear();
        }
        toy.kernel.collect_garbage().unwrap();
        sim.set_quota(Some(sim.used_bytes() + 4 * SEGMENT_BYTES));
    }
    // The cache kept what the syncs have lost.
    assert!(failed > 25 && kept == failed, "{kept} of {failed}");
}

/// A database that has lost row 100 by a sync on a full disk, or not; rows 0 to 5 were acknowledged before.
fn ended_at_sync() -> (SimEnv, Toy, TableId) {
    let sim = crate::machine(14);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    for k in 0..6 {
        toy.append(table, &[(k, k)], Durability::Disk).unwrap();
    }
    sim.set_plan(FaultPlan::none().rule(lost_at_sync().once()));
    let error = toy
        .append(table, &[(100, 100)], Durability::Disk)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    (sim, toy, table)
}

fn lost_at_sync() -> FaultRule {
    let lost = Fault::FlushError {
        errno: Errno::NOSPC,
        reads: ReadsAfter::New,
    };
    FaultRule::new(lost).on(SYNCS)
}

fn only_doubtful_row(rows: &[Row], more: &[Row]) {
    let acknowledged: Vec<Row> = (0..6).map(|k| (k, k)).collect();
    let without = [&acknowledged, more].concat();
    let mut with = [&without[..], &[(100, 100)]].concat();
    with.sort_unstable();
    assert!(rows == without || rows == with, "{rows:?}");
}

/// A recovery that loses what one of its syncs was for: what the opening shows without it, a power cut must not take back. The
/// last row was written before the kill, and not synced.
#[test]
fn an_opening_that_finds_no_room_shows_nothing_that_a_power_cut_takes_back() {
    let sim = crate::machine(5);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    for k in 0..3 {
        toy.append(table, &[(k, k)], Durability::Disk).unwrap();
    }
    let crash = FaultRule::new(Fault::Crash).on(&[CallKind::SyncData]);
    sim.set_plan(FaultPlan::none().rule(crash.once()));
    toy.append(table, &[(3, 3)], Durability::Disk).unwrap_err();
    let killed = sim.crash_image(&CrashChoice::Kill);
    let mut without_room = 0;
    for skip in 0.. {
        let again = killed.crash_image(&CrashChoice::Kill);
        again.set_plan(FaultPlan::none().rule(lost_at_sync().skip(skip).once()));
        again.set_trace(true);
        let toy = open(&again);
        let syncs = again
            .take_trace()
            .into_iter()
            .filter(|call| call.kind.is_sync());
        let is_undisturbed = syncs.count() as u64 <= skip;
        let shown = toy.rows(table).unwrap();
        assert!(shown.len() >= 3, "{skip}: {shown:?}");
        for choice in again.crash_choices(8, 8, skip) {
            let left = open(&again.crash_image(&choice)).rows(table).unwrap();
            assert!(
                left.starts_with(&shown),
                "{skip}, {choice:?}: {left:?}, but {shown:?} was shown"
            );
        }
        // With room again: it goes on in the same handle, with the row that nobody was told of or without it.
        again.set_plan(FaultPlan::none());
        toy.append(table, &[(9, 9)], Durability::Disk).unwrap();
        let now = toy.rows(table).unwrap();
        assert!(
            now.starts_with(&shown) && now.ends_with(&[(9, 9)]),
            "{skip}: {now:?}"
        );
        without_room += u32::from(shown.len() == 3);
        if is_undisturbed {
            assert!(without_room > 3, "a recovery has more syncs");
            break;
        }
    }
}

#[test]
fn a_crash_at_any_call_of_a_recovery_in_an_open_database_loses_nothing() {
    for at in 1.. {
        let (sim, toy, _) = ended_at_sync();
        sim.set_plan(FaultPlan::crash_at(sim.calls() + at));
        let done = toy.kernel.flush();
        for choice in sim.crash_choices(8, 8, at) {
            let again = open(&sim.crash_image(&choice));
            let (_, contents) = contents_of(&again).unwrap();
            only_doubtful_row(&contents["t"], &[]);
        }
        if done.is_ok() {
            assert!(at > 10, "a recovery has more calls");
            break;
        }
    }
}

#[test]
fn a_recovery_in_an_open_database_may_meet_a_full_disk_at_any_call() {
    let full = FaultRule::new(Fault::Error(Errno::NOSPC)).on(MUTATING);
    for rule in [full, lost_at_sync()] {
        for skip in 0.. {
            let (sim, toy, table) = ended_at_sync();
            sim.set_plan(FaultPlan::none().rule(rule.clone().skip(skip).once()));
            let done = toy.kernel.flush();
            sim.set_plan(FaultPlan::none());
            toy.append(table, &[(200, 200)], Durability::Disk).unwrap();
            only_doubtful_row(&toy.rows(table).unwrap(), &[(200, 200)]);
            for choice in [CrashChoice::DropAll, CrashChoice::Kill] {
                let again = open(&sim.crash_image(&choice));
                let (_, contents) = contents_of(&again).unwrap();
                only_doubtful_row(&contents["t"], &[(200, 200)]);
            }
            if done.is_ok() {
                assert!(skip > 2, "a recovery has more calls");
                break;
            }
        }
    }
}

#[test]
fn what_was_prepared_before_a_full_disk_still_counts_behind_it() {
    let (sim, toy, table) = full_at_sync(11);
    let rows: Vec<Row> = (0..300).map(|v| (v, v)).collect();
    toy.append_group(table, &rows, 64, Durability::Disk)
        .unwrap();
    let early = toy.kernel.snapshot().unwrap().table(table).unwrap();
    let (stored, _) = fill_at_sync(&sim, &toy, table, 1000, Durability::Process);
    let late = toy.kernel.snapshot().unwrap().table(table).unwrap();
    sim.set_quota(None);
    toy.kernel.flush().unwrap();
    toy.append(table, &[(-1, -1)], Durability::Disk).unwrap();
    // What both show lies in files of the epoch before, which garbage collection leaves to them.
    toy.kernel.collect_garbage().unwrap();
    toy.kernel.collect_garbage().unwrap();
    assert_eq!(toy.rows_of(&early).unwrap(), rows);
    let mut shown = rows;
    shown.extend(stored);
    assert_eq!(toy.rows_of(&late).unwrap(), shown);
}

/// A replacement goes by keys, and merged blocks have the key of the first of them: the later one would take their rows out.
#[test]
fn a_replacement_prepared_before_another_one_is_refused_behind_a_full_disk_too() {
    // Behind a checkpoint recovery does not read the other one again.
    for is_behind_checkpoint in [false, true] {
        refuse_what_was_prepared_before(is_behind_checkpoint);
    }
}

fn refuse_what_was_prepared_before(is_behind_checkpoint: bool) {
    let (sim, toy, table) = ended_at_sync();
    let rows = |first| (first..first + 64).map(|v| (v, v)).collect::<Vec<Row>>();
    // The recovery; then two blocks, of which the first one is about to be moved.
    let group = |first| toy.append_group(table, &rows(first), 64, Durability::Disk);
    let (first, second) = (group(1000).unwrap(), group(2000).unwrap());
    let prepared = toy.kernel.snapshot().unwrap();
    let keys: Vec<ItemName> = {
        let tree = &prepared.table(table).unwrap().tree;
        let entries = tree.iter(None, &**toy.kernel.store());
        entries.map(|entry| ItemName::of(&entry.unwrap())).collect()
    };
    let replacement = |removed: &[ItemName], rows: Vec<Row>, last| {
        let mut fragment = toy.kernel.stage_fragment(table).unwrap();
        let merged = block(table, rows, Some((first, last)));
        fragment.add_block(&merged).unwrap();
        Commit {
            edits: vec![Edit::Replace(ReplaceEdit::of_rows(
                table,
                removed.to_vec(),
                vec![fragment.finish().unwrap()],
            ))],
            prepared_at: Some(prepared.commit()),
            ..Commit::default()
        }
    };
    let moved = replacement(&keys[..1], rows(1000), first);
    let merged = replacement(&keys, [rows(1000), rows(2000)].concat(), second);
    toy.kernel.commit(merged, Durability::Disk).unwrap();
    if is_behind_checkpoint {
        toy.kernel.checkpoint().unwrap();
    }
    let stored = toy.rows(table).unwrap();
    sim.set_plan(FaultPlan::none().rule(lost_at_sync().once()));
    let row = [(3000, 3000)];
    toy.append(table, &row, Durability::Disk).unwrap_err();
    let refused = toy.kernel.commit(moved, Durability::Disk).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    let found = toy.rows(table).unwrap();
    assert_eq!(found, [&stored[..], &row].concat());
}

#[test]
fn commits_that_only_a_lost_cache_had_are_not_taken_back_in_an_open_database() {
    let sim = crate::machine(12);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    toy.append(table, &[(1, 1)], Durability::Disk).unwrap();
    toy.append(table, &[(2, 2)], Durability::Process).unwrap();
    let lost = Fault::FlushError {
        errno: Errno::NOSPC,
        reads: ReadsAfter::Old,
    };
    let rule = FaultRule::new(lost).on(&[CallKind::SyncData]).once();
    sim.set_plan(FaultPlan::none().rule(rule));
    toy.kernel.flush().unwrap_err();
    // The second row is gone from the files, and was shown.
    let ended = toy.append(table, &[(3, 3)], Durability::Disk).unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::Unavailable, "{ended}");
    assert!(toy.kernel.poison().is_some());
    assert_eq!(toy.rows(table).unwrap(), [(1, 1), (2, 2)]);
    drop(toy);
    assert_eq!(open(&sim).rows(table).unwrap(), [(1, 1)]);
}

/// Each attempt finds the checkpoint of the first one in both slots of the root, and writes no other.
#[test]
fn removals_that_fail_again_and_again_take_no_more_of_the_reserve() {
    let sim = crate::machine(16);
    let toy = open(&sim);
    let keep = toy.create("keep").unwrap();
    toy.append(keep, &[(1, 1)], Durability::Disk).unwrap();
    // Names, so that a few checkpoints fill the reserve.
    for n in 0..300 {
        toy.create(&format!("one of many tables: {n}")).unwrap();
    }
    let big = toy.create("big").unwrap();
    sim.set_quota(Some(sim.used_bytes() + 10 * SEGMENT_BYTES));
    fill(&toy, big, Durability::Disk);
    let before = sim.used_bytes();
    sim.set_quota(Some(before));
    let fails = FaultRule::new(Fault::Error(Errno::IO)).on(&[CallKind::RemoveFile]);
    sim.set_plan(FaultPlan::none().rule(fails));
    toy.drop_table(big).unwrap();
    for attempt in 0..20 {
        let failed = toy.kernel.collect_garbage().unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Io, "{attempt}: {failed}");
    }
    sim.set_plan(FaultPlan::none());
    toy.kernel.collect_garbage().unwrap();
    let left = sim.used_bytes();
    assert!(
        left + 3 * SEGMENT_BYTES < before,
        "{left} of {before} bytes are left"
    );
    toy.append(keep, &[(2, 2)], Durability::Disk).unwrap();
    assert_eq!(toy.rows(keep).unwrap(), [(1, 1), (2, 2)]);
}

/// The reserve is written to by drops of a full disk only, to find out whether it can be.
#[test]
fn drops_write_little_once_there_is_room_again() {
    let sim = crate::machine(18);
    let toy = open(&sim);
    let big = toy.create("big").unwrap();
    let small: Vec<TableId> = (0..300)
        .map(|n| toy.create(&format!("one of many tables: {n}")).unwrap())
        .collect();
    sim.set_quota(Some(sim.used_bytes() + 20 * SEGMENT_BYTES));
    fill(&toy, big, Durability::Disk);
    sim.set_quota(Some(1 << 40));
    sim.advance(std::time::Duration::from_secs(60));
    toy.drop_table(small[0]).unwrap();
    let mut written_bytes: Vec<u64> = { small[1..20].iter() }
        .map(|table| {
            let before = sim.stats().bytes_written;
            toy.drop_table(*table).unwrap();
            sim.stats().bytes_written - before
        })
        .collect();
    // One of them may end a segment, behind which there is room for a larger reserve.
    written_bytes.sort_unstable();
    let other_bytes: u64 = written_bytes[..18].iter().sum();
    assert!(other_bytes < SEGMENT_BYTES, "{written_bytes:?} bytes");
}

/// Rows of two tables in each segment: what is left of a dropped one can only go when the other's blocks have moved, for
/// which there must be room. Where segments are used by two thirds, that is more than is left on a full disk. Fills of many
/// lengths: a few end so that there is no room for the first move (docs/decisions/full-disk.md).
#[test]
fn a_drop_frees_space_in_the_end_where_tables_share_segments() {
    for (seed, kept_of_three, relief) in [(13, 1, 0), (15, 2, 2)] {
        let segments = [11, 12, 14, 16];
        let lengths = (0..8).map(|n| 65 + 111 * n);
        let fills = lengths.flat_map(|rows| segments.map(|segments| (segments, rows)));
        let fills: Vec<(u64, i64)> = fills.collect();
        let frees = |fill: &&(u64, i64)| frees_shared_segments(seed, kept_of_three, relief, **fill);
        let freed = fills.iter().filter(frees).count();
        let all = fills.len();
        assert!(freed * 4 >= all * 3, "{kept_of_three}: {freed} of {all}");
    }
}

/// Fills so many segments with groups of so many rows, each third of which belongs to one of two tables, and drops the one that
/// does not get `kept_of_three`; returns whether rows can be stored again once there are `relief` segments more.
fn frees_shared_segments(
    seed: u64,
    kept_of_three: i64,
    relief: u64,
    (segments, rows_of_group): (u64, i64),
) -> bool {
    let sim = crate::machine(seed);
    let toy = open(&sim);
    let (keep, big) = (toy.create("keep").unwrap(), toy.create("big").unwrap());
    let quota_bytes = sim.used_bytes() + segments * SEGMENT_BYTES;
    sim.set_quota(Some(quota_bytes));
    let mut kept = Vec::new();
    for k in 0.. {
        let keys = k * rows_of_group..(k + 1) * rows_of_group;
        let rows: Vec<Row> = keys.map(|v| (v, v)).collect();
        let table = if k % 3 < kept_of_three { keep } else { big };
        match toy.append_group(table, &rows, 64, Durability::Disk) {
            Ok(_) if table == keep => kept.extend(rows),
            Ok(_) => {}
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::DiskFull, "{e:?}");
                break;
            }
        }
    }
    toy.drop_table(big).unwrap();
    sim.set_quota(Some(quota_bytes + relief * SEGMENT_BYTES));
    // Until it works: each one that is refused calls for more room.
    let mut more: Vec<Row> = Vec::new();
    for k in 0..600 {
        let row = (-k - 1, 0);
        match toy.append_group(keep, &[row], 64, Durability::Disk) {
            Ok(_) => more.push(row),
            Err(e) => assert_eq!(e.kind(), ErrorKind::DiskFull, "{e:?}"),
        }
    }
    let before = more.len();
    let again = toy.create("again");
    let refused = again.as_ref().err().map(Error::kind);
    assert!(refused.is_none_or(|kind| kind == ErrorKind::DiskFull));
    let filled = again.map_or(0, |again| fill(&toy, again, Durability::Disk).len());
    more.reverse();
    more.extend(kept);
    assert_eq!(toy.rows(keep).unwrap(), more);
    before > 500 && filled > 2_000
}

#[test]
fn another_process_opens_and_reads_on_a_full_disk() {
    for copies_on_write in [false, true] {
        for reader_came_before in [false, true] {
            let sim = crate::machine(7);
            sim.set_copy_on_write(copies_on_write);
            let toy = open(&sim);
            let table = toy.create("t").unwrap();
            let reading = Options {
                read_only: true,
                ..options()
            };
            let read_in = |process| Toy::open(&sim.env_of_process(process), "/db", &reading, 64);
            let before = reader_came_before.then(|| read_in(2).unwrap());
            sim.set_quota(Some(sim.used_bytes() + 10 * SEGMENT_BYTES));
            let full = (0_i64..).find(|k| {
                let rows: Vec<Row> = (k * 200..k * 200 + 200).map(|v| (v, v)).collect();
                toy.append_group(table, &rows, 64, Durability::Disk)
                    .is_err()
            });
            assert!(full > Some(10));
            let stored = toy.rows(table).unwrap();
            sim.set_quota(Some(sim.used_bytes()));
            let opened = read_in(3).unwrap();
            for reader in before.iter().chain([&opened]) {
                assert_eq!(reader.rows(table).unwrap(), stored);
            }
            // It keeps nothing by mistake, and follows once there is space.
            toy.drop_table(table).unwrap();
            sim.set_quota(None);
            let other = toy.create("other").unwrap();
            toy.append(other, &[(1, 1)], Durability::Disk).unwrap();
            for reader in before.iter().chain([&opened]) {
                assert_eq!(reader.rows(other).unwrap(), [(1, 1)]);
            }
        }
    }
}

/// Whether what is kept for a full disk can be written to is found out once, not by each drop: commits wait meanwhile.
#[test]
fn drops_where_space_is_short_overwrite_what_is_kept_once() {
    const TABLES: u64 = 50;
    let sim = crate::machine(8);
    let toy = open(&sim);
    let create = |n| toy.create(&format!("t{n}")).unwrap();
    let tables: Vec<TableId> = (0..TABLES).map(create).collect();
    toy.kernel.run_due_work().unwrap();
    sim.set_quota(Some(sim.used_bytes() + 2 * SEGMENT_BYTES));
    sim.reset_stats();
    for table in &tables {
        toy.drop_table(*table).unwrap();
    }
    let stats = sim.stats();
    // A reserve of this size is a few segments, and each drop a frame.
    let max_bytes = 16 * SEGMENT_BYTES;
    assert!(
        stats.bytes_written < max_bytes,
        "{} bytes written by {TABLES} drops",
        stats.bytes_written
    );
}

/// Files of a table with many columns, each a small commit that changes a large page of the index, until the disk is full.
#[test]
fn a_drop_makes_room_whatever_added_files_have_changed_of_an_index() {
    const COLUMNS: u32 = 1024;
    for (copies_on_write, segment_bytes) in
        [(false, 2), (false, 16), (true, 2), (true, 16)].map(|(cow, n)| (cow, n * SEGMENT_BYTES))
    {
        let what = format!("copies on write: {copies_on_write}, segments of {segment_bytes} bytes");
        let sim = crate::machine(7);
        sim.set_copy_on_write(copies_on_write);
        let options = Options {
            segment_bytes,
            ..options()
        };
        let toy = Toy::open(&sim.env(), "/db", &options, 64).unwrap();
        let (keep, big) = (toy.create("keep").unwrap(), toy.create("big").unwrap());
        let commit = |edit| {
            let commit = Commit {
                edits: vec![edit],
                ..Commit::default()
            };
            toy.kernel.commit(commit, Durability::Disk)
        };
        commit(Edit::CreateTable {
            table: NEW_TABLE,
            name: "wide".to_owned(),
            definition: definition(COLUMNS),
            indexes: 0,
        })
        .unwrap();
        let snapshot = toy.kernel.snapshot().unwrap();
        let wide = snapshot.table_named("wide").unwrap().id;
        drop(snapshot);
        sim.set_quota(Some(sim.used_bytes() + 128 * SEGMENT_BYTES));
        for k in 0..60 {
            let rows: Vec<Row> = (k * 2000..k * 2000 + 2000).map(|v| (v, v)).collect();
            toy.append_fragment(big, &rows, 64).unwrap();
        }
        toy.kernel.checkpoint().unwrap();
        let full = (0..1000_i64).find(|k| {
            let add = || {
                let mut fragment = toy.kernel.stage_fragment(wide)?;
                let noise = k.wrapping_mul(0x1E37_79B9_7F4A_7C15);
                let rows = vec![(*k, noise), (*k, noise >> 3)];
                fragment.add_block(&wide_block(wide, rows, None, COLUMNS))?;
                commit(Edit::AddFragments {
                    head: AddHead::of_rows(wide, 1),
                    roots: vec![fragment.finish()?],
                })
            };
            add().is_err()
        });
        assert!(full.is_some(), "{what}");
        sim.set_quota(Some(sim.used_bytes()));
        let before = sim.used_bytes();
        commit(Edit::DropTable { table: big }).unwrap_or_else(|e| unreachable!("{what}: {e}"));
        let collected = toy.kernel.collect_garbage();
        assert!(collected.is_ok(), "{what}: {collected:?}");
        assert!(sim.used_bytes() < before, "{what}");
        if crate::HIDES_QUOTA {
            // A write in place has found no room: rows wait until as much as a drop may need is free.
            sim.set_quota(None);
        }
        toy.append(keep, &[(1, 1)], Durability::Disk).unwrap();
    }
}

#[test]
fn where_no_long_segment_fits_short_ones_take_the_rest() {
    let sim = crate::machine(7);
    let long = Options {
        segment_bytes: 4 << 20,
        ..options()
    };
    let toy = Toy::open(&sim.env(), "/db", &long, 64).unwrap();
    let table = toy.create("t").unwrap();
    let noise = |key: i64| key.wrapping_mul(0x1E37_79B9_7F4A_7C15);
    let append = |k: i64| {
        let rows: Vec<Row> = (k * 2000..k * 2000 + 2000).map(|v| (v, noise(v))).collect();
        toy.append_group(table, &rows, 64, Durability::Disk)
    };
    let longest = || {
        let files = sim.files();
        files.iter().map(|(_, bytes)| *bytes).max().unwrap()
    };
    // Segments grow with the log.
    let grown = (0..2000)
        .find(|k| {
            append(*k).unwrap();
            longest() == 4 << 20
        })
        .unwrap();
    let quota = sim.used_bytes() + (600 << 10);
    sim.set_quota(Some(quota));
    let full = (grown + 1..5000).find(|k| append(*k).is_err());
    assert!(full.is_some());
    let left = quota - sim.used_bytes();
    // What is left is less than a larger reserve would take.
    assert!(left < 1 << 20, "{left} bytes are left");
}

/// The recovery writes the unsynced rows again before the table can be dropped: the reserve must have room for them.
#[test]
fn a_kill_in_a_large_append_on_a_full_disk_leaves_room_to_drop() {
    const APPEND: i64 = 300_000;
    let start = || {
        let sim = crate::machine(3);
        let toy = Toy::open(
            &sim.env(),
            "/db",
            &Options {
                background: false,
                ..Options::default()
            },
            8192,
        );
        let toy = toy.unwrap();
        let big = toy.create("big").unwrap();
        for at in 0..8 {
            let rows = random_rows(at * APPEND, APPEND);
            toy.append_group(big, &rows, 8192, Durability::Disk)
                .unwrap();
            // The spares that threads would make.
            toy.kernel.run_due_work().unwrap();
        }
        // Room for the last segment to be followed by another one.
        sim.set_quota(Some(sim.used_bytes() + (20 << 20)));
        (sim, toy, big)
    };
    let append = |toy: &Toy, big, at: i64| {
        let rows = random_rows((8 + at) * APPEND, APPEND);
        toy.append_group(big, &rows, 8192, Durability::Process)
    };
    let (_sim, toy, big) = start();
    let fit = (0..).find(|at| append(&toy, big, *at).is_err()).unwrap();
    assert!(fit > 2, "{fit} appends fit into what was prepared");
    for killed in 0..fit {
        let (sim, toy, big) = start();
        for at in 0..killed {
            append(&toy, big, at).unwrap();
        }
        let crash = FaultRule::new(Fault::Crash).on(&[CallKind::SyncData]);
        sim.set_plan(FaultPlan::none().rule(crash));
        let _ = append(&toy, big, killed);
        let image = sim.crash_image(&CrashChoice::Kill);
        image.set_quota(Some(image.used_bytes()));
        let toy = Toy::open(&image.env(), "/db", &Options::default(), 8192).unwrap();
        toy.drop_table(big).unwrap();
    }
}

/// The reserve is the segment of the log then, with a torn frame in it.
#[test]
fn a_power_cut_in_a_drop_on_a_full_disk_leaves_room_for_the_next_one() {
    let (mut tried, mut step) = (0, 1);
    loop {
        let (sim, toy, keep, big, _) = full();
        // With room for `live`, which a power cut may take.
        let quota = sim.used_bytes() + 4096;
        sim.set_quota(Some(quota));
        sim.set_plan(FaultPlan::crash_at(sim.calls() + step));
        let dropped = Commit {
            edits: vec![Edit::DropTable { table: big }],
            ..Commit::default()
        };
        let _ = toy.kernel.commit(dropped, Durability::Disk);
        let _ = toy.kernel.collect_garbage();
        for choice in sim.crash_choices(2, 12, step) {
            tried += 1;
            let image = sim.crash_image(&choice);
            image.set_quota(Some(quota));
            let toy = open(&image);
            // An attempt may find no room for `live`, whose bytes a power cut takes as well; the next one goes on.
            let again = || Commit {
                edits: vec![Edit::DropTable { table: big }],
                ..Commit::default()
            };
            let goes_on = || {
                if toy.kernel.snapshot()?.table(big).is_some() {
                    toy.kernel.commit(again(), Durability::Disk)?;
                }
                toy.kernel.collect_garbage()?;
                toy.append(keep, &[(3, 3)], Durability::Disk)
            };
            let tries: Vec<_> = (0..4)
                .map(|_| goes_on().map_err(|e| e.to_string()))
                .collect();
            assert!(
                tries.iter().any(Result::is_ok),
                "{step} {choice:?} {tries:?}"
            );
        }
        if !sim.is_crashed() {
            break;
        }
        step += 1;
    }
    assert!(tried > 200, "{tried} images");
}

/// The refused append asked for a larger reserve; the appends after it must not need that one.
#[test]
fn a_large_append_that_is_refused_leaves_its_room_to_small_ones() {
    let fit = |refused: bool| {
        let sim = crate::machine(4);
        let toy = open(&sim);
        let table = toy.create("t").unwrap();
        let rows = random_rows(0, 2_000);
        toy.append_group(table, &rows, 64, Durability::Disk)
            .unwrap();
        sim.set_quota(Some(sim.used_bytes() + (2 << 20)));
        if refused {
            let large = random_rows(10_000, 200_000);
            let error = toy.append_group(table, &large, 8192, Durability::Disk);
            assert_eq!(error.unwrap_err().kind(), ErrorKind::DiskFull);
        }
        (0..10_000)
            .take_while(|at| {
                let rows = random_rows(1_000_000 + at * 200, 200);
                toy.append_group(table, &rows, 64, Durability::Disk).is_ok()
            })
            .count()
    };
    let (alone, behind) = (fit(false), fit(true));
    assert!(alone > 50 && behind * 10 > alone * 9, "{behind} of {alone}");
}
