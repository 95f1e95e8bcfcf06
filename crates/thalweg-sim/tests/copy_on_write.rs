//! A full disk whose file system takes room for writes in place as well: Btrfs, ZFS, bcachefs.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a step that fails is a test that fails"
)]

use thalweg_env::sim::{CrashChoice, FaultPlan, SimEnv};
use thalweg_kernel::{Commit, Durability, Edit, ErrorKind, Options, Result, TableId};
use thalweg_sim::toy::{Row, Toy};

const SEGMENT_BYTES: u64 = 128 << 10;

fn open(sim: &SimEnv) -> Result<Toy> {
    let options = Options {
        segment_bytes: SEGMENT_BYTES,
        background: false,
        ..Options::default()
    };
    Toy::open(&sim.env(), "/db", &options, 64)
}

fn used_bytes(sim: &SimEnv) -> u64 {
    sim.files()
        .iter()
        .map(|(_, bytes)| bytes.next_multiple_of(4096))
        .sum()
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

fn drop_table(toy: &Toy, table: TableId) -> Result<()> {
    let commit = Commit {
        edits: vec![Edit::DropTable { table }],
        ..Commit::default()
    };
    toy.kernel.commit(commit, Durability::Disk).map(drop)
}

/// Drops a table, as often as the outcome is not known.
fn drop_in_the_end(toy: &Toy, table: TableId) {
    let mut errors = Vec::new();
    for _ in 0..3 {
        match drop_table(toy, table) {
            Ok(()) => return,
            Err(e) if e.kind() == ErrorKind::NotFound => return,
            Err(e) => errors.push(e),
        }
    }
    panic!("a drop on a full disk fails for ever: {errors:?}");
}

/// A disk with tables `keep` and `big` that is full: there is not a page left.
fn full(copy_on_write: bool) -> (SimEnv, Toy, TableId, TableId, Vec<Row>, Vec<Row>) {
    let sim = SimEnv::new(7);
    sim.set_copy_on_write(copy_on_write);
    let toy = open(&sim).unwrap();
    let (keep, big) = (toy.create("keep").unwrap(), toy.create("big").unwrap());
    toy.append(keep, &[(1, 1)], Durability::Disk).unwrap();
    sim.set_quota(Some(used_bytes(&sim) + 8 * SEGMENT_BYTES));
    let (stored, doubtful) = fill(&toy, big, Durability::Disk);
    // Another program takes what is left.
    sim.set_quota(Some(used_bytes(&sim)));
    (sim, toy, keep, big, stored, doubtful)
}

fn is_stored(found: &[Row], stored: &[Row], doubtful: &[Row]) -> bool {
    found == stored || found == [stored, doubtful].concat()
}

#[test]
fn a_drop_frees_space_and_writing_goes_on() {
    for copy_on_write in [false, true] {
        let (sim, toy, keep, big, stored, doubtful) = full(copy_on_write);
        let before = used_bytes(&sim);
        for _ in 0..5 {
            let refused = toy.append(keep, &[(2, 2)], Durability::Disk);
            if copy_on_write {
                assert!(refused.is_err());
            }
            assert!(is_stored(&toy.rows(big).unwrap(), &stored, &doubtful));
        }
        drop_in_the_end(&toy, big);
        toy.kernel.collect_garbage().unwrap();
        let left = used_bytes(&sim);
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
        let before = used_bytes(&image);
        drop_in_the_end(&toy, big);
        toy.kernel.collect_garbage().unwrap();
        assert!(used_bytes(&image) < before / 2, "{choice:?}");
        toy.append(keep, &[(7, 7)], Durability::Disk).unwrap();
        assert_eq!(toy.rows(keep).unwrap(), [(1, 1), (7, 7)]);
    }
    drop(toy);
}

#[test]
fn a_crash_at_any_call_of_a_drop_there_loses_nothing() {
    for at in 1.. {
        let (sim, toy, keep, big, stored, doubtful) = full(true);
        sim.set_plan(FaultPlan::crash_at(sim.calls() + at));
        let dropped = drop_table(&toy, big);
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
