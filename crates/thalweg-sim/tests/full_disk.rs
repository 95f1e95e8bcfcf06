//! A full disk: appends fail and say so, reads and drops go on, writing resumes by itself.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::{Commit, Durability, Edit, ErrorKind, Options, TableId};
use thalweg_sim::oracle::contents_of;
use thalweg_sim::toy::{Row, Toy};

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

fn used_bytes(sim: &SimEnv) -> u64 {
    sim.files()
        .iter()
        .map(|(_, bytes)| bytes.next_multiple_of(4096))
        .sum()
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

fn drop_table(toy: &Toy, table: TableId) {
    let commit = Commit {
        edits: vec![Edit::DropTable { table }],
        ..Commit::default()
    };
    toy.kernel.commit(commit, Durability::Disk).unwrap();
}

/// A database on a disk that has just got full, with tables `keep` and `big`.
fn full() -> (SimEnv, Toy, TableId, TableId, Vec<Row>) {
    let sim = SimEnv::new(7);
    let toy = open(&sim);
    let (keep, big) = (toy.create("keep").unwrap(), toy.create("big").unwrap());
    toy.append(keep, &[(1, 1)], Durability::Disk).unwrap();
    sim.set_quota(Some(used_bytes(&sim) + 10 * SEGMENT_BYTES));
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
    let before = used_bytes(&sim);
    drop_table(&toy, big);
    toy.kernel.collect_garbage().unwrap();
    assert!(
        used_bytes(&sim) < before / 2,
        "{} of {before} bytes are left",
        used_bytes(&sim)
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
        drop_table(&toy, victim);
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
        let before = used_bytes(&image);
        drop_table(&toy, big);
        toy.kernel.collect_garbage().unwrap();
        assert!(used_bytes(&image) < before, "{choice:?}");
        toy.append(keep, &[(7, 7)], Durability::Disk).unwrap();
    }
}

#[test]
fn a_disk_that_is_full_at_the_sync_stops_writing_and_loses_nothing() {
    let sim = SimEnv::new(9);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    sim.set_quota(Some(used_bytes(&sim) + 4 * SEGMENT_BYTES));
    sim.set_quota_at_sync(true);
    let mut stored = Vec::new();
    for k in 0..1000 {
        let rows: Vec<Row> = (k * 200..k * 200 + 200).map(|v| (v, v)).collect();
        if toy
            .append_group(table, &rows, 64, Durability::Disk)
            .is_err()
        {
            break;
        }
        stored.extend(rows);
    }
    assert!(stored.len() < 200_000, "the disk never got full");
    assert_eq!(toy.rows(table).unwrap(), stored);
    drop(toy);
    sim.set_quota(None);
    for choice in [CrashChoice::Kill, CrashChoice::DropAll] {
        let toy = open(&sim.crash_image(&choice));
        let (_, contents) = contents_of(&toy).unwrap();
        assert_eq!(contents["t"][..stored.len()], stored, "{choice:?}");
        assert_eq!(contents["t"].len() % 200, 0, "half a commit");
        toy.append(table, &[(-1, -1)], Durability::Disk).unwrap();
    }
}
