//! The supply of segments on simulated disks.

use super::*;
use crate::space_estimates::MIN_RESERVE_CHECKPOINTS;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::sim::{CallKind, Errno, Fault, FaultPlan, FaultRule, SimEnv};

/// A supply with a reserve, on a disk that is full.
fn on_a_full_disk(sim: &SimEnv) -> SegmentSupply {
    let storage = sim.env();
    storage
        .storage()
        .create_dir_all(Path::new("/db/log"))
        .unwrap();
    for folder in ["/", "/db", "/db/log"] {
        storage.storage().sync_dir(Path::new(folder)).unwrap();
    }
    let limit_bytes = 256 << 10;
    let supply =
        SegmentSupply::new(sim.env(), PathBuf::from("/db"), FileId(1), limit_bytes).unwrap();
    supply.refill();
    storage.storage().sync_dir(Path::new("/db/log")).unwrap();
    sim.set_quota(Some(0));
    supply
}

/// For a commit that frees no space, after a segment of `last_bytes`.
fn rows(last_bytes: u64) -> Wanted {
    Wanted {
        last_bytes,
        frame_bytes: 1000,
        ..Wanted::default()
    }
}

/// For one that frees space.
fn freeing() -> Wanted {
    Wanted {
        checkpoints: 1,
        kept_checkpoints: Some(0),
        ..rows(0)
    }
}

fn is_refused(taken: Outcome<Prepared>) -> bool {
    let error = taken.err().map(Failure::error);
    error.is_some_and(|error| error.kind() == ErrorKind::DiskFull)
}

#[test]
fn a_disk_that_tells_of_more_than_it_has_is_full_until_there_is_room() {
    let sim = SimEnv::new(5);
    sim.set_hides_quota(true);
    let supply = on_a_full_disk(&sim);
    assert!(!supply.is_short(), "nothing was tried");
    assert!(is_refused(supply.take(rows(0))));
    assert!(supply.is_short());
    // Room for a segment, and not for a drop.
    let used_bytes: u64 = sim.files().iter().map(|(_, bytes)| bytes).sum();
    sim.set_quota(Some(used_bytes + segment::FIRST_SEGMENT_BYTES));
    supply.take(rows(0)).map_err(Failure::error).unwrap();
    assert!(supply.is_short());
    sim.set_quota(None);
    supply.take(rows(0)).map_err(Failure::error).unwrap();
    assert!(!supply.is_short());
}

#[test]
fn what_frees_no_space_gets_a_segment_only_after_there_is_another_reserve() {
    let sim = SimEnv::new(4);
    let supply = on_a_full_disk(&sim);
    let taken = supply.take(freeing()).map_err(Failure::error).unwrap();
    assert!(taken.is_reserve);
    // Room for one segment.
    let used_bytes: u64 = sim.files().iter().map(|(_, bytes)| bytes).sum();
    sim.set_quota(Some(used_bytes + segment::FIRST_SEGMENT_BYTES));
    assert!(is_refused(supply.take(rows(0))));
    let taken = supply.take(freeing()).map_err(Failure::error).unwrap();
    assert!(taken.is_reserve);
}

/// Else each commit that begins a segment would write all its zeros first.
#[test]
fn a_spare_that_frames_have_outgrown_is_replaced() {
    let sim = SimEnv::new(6);
    let supply = on_a_full_disk(&sim);
    sim.set_quota(None);
    supply.take(rows(0)).map_err(Failure::error).unwrap();
    supply.refill();
    assert_eq!(names(&sim, "spare"), 2, "the reserve and a spare");
    let long = Wanted {
        frame_bytes: 150_000,
        ..rows(segment::FIRST_SEGMENT_BYTES)
    };
    let made = supply.take(long).map_err(Failure::error).unwrap();
    assert!(made.capacity_bytes < 256 << 10);
    assert!(supply.wants());
    supply.refill();
    assert_eq!(names(&sim, "spare"), 2, "the small one is gone");
    let calls = sim.calls();
    let taken = supply.take(long).map_err(Failure::error).unwrap();
    assert_eq!(taken.capacity_bytes, 256 << 10);
    assert_eq!(names(&sim, "spare"), 1);
    assert!(sim.calls() - calls < 8, "nothing is written but the name");
}

#[test]
fn only_a_leftover_that_is_all_zeros_is_used() {
    for (byte, is_used) in [(0, true), (1, false)] {
        let sim = SimEnv::new(5);
        let env = sim.env();
        let dir = PathBuf::from("/db");
        env.storage().create_dir_all(&dir.join("log")).unwrap();
        let left = segment::spare_path(&dir, FileId(7));
        let mut bytes = vec![0; 64 << 10];
        bytes[40_000] = byte;
        sim.write_file(&left, &bytes).unwrap();
        sim.set_quota(Some(0));
        let supply = SegmentSupply::new(env, dir, FileId(1), 256 << 10).unwrap();
        assert_eq!(is_refused(supply.take(freeing())), !is_used);
    }
}

/// The guard of `preparing` takes the lock that the look at the disk is made under.
#[test]
fn a_refill_after_the_reserve_was_given_back_ends() {
    let sim = SimEnv::new(6);
    let env = sim.env();
    env.storage().create_dir_all(Path::new("/db/log")).unwrap();
    let limit_bytes = 256 << 10;
    let dir = PathBuf::from("/db");
    let supply = SegmentSupply::new(sim.env(), dir, FileId(1), limit_bytes).unwrap();
    supply.refill();
    supply.give_back();
    sim.set_quota(Some(140 << 10));
    let taken = supply.take(freeing()).map_err(Failure::error).unwrap();
    assert!(taken.is_reserve && supply.is_given_back() && supply.is_short());
    let supply = Arc::new(supply);
    let refills = Arc::clone(&supply);
    let worker = env
        .spawner()
        .spawn("worker", Box::new(move || refills.refill()));
    let worker = worker.unwrap();
    let started_ns = Env::os().clock().monotonic_ns();
    while !worker.is_finished() {
        let waited_ns = Env::os().clock().monotonic_ns() - started_ns;
        assert!(waited_ns < 20_000_000_000, "it waits for itself");
        Env::os().clock().sleep(Duration::from_millis(1));
    }
    worker.join().unwrap();
    assert!(supply.is_given_back());
}

#[test]
fn a_reserve_that_cannot_be_named_stays() {
    let sim = SimEnv::new(3);
    let supply = on_a_full_disk(&sim);
    let fails = FaultRule::new(Fault::Error(Errno::IO)).on(&[CallKind::Rename]);
    sim.set_plan(FaultPlan::none().rule(fails));
    for _ in 0..3 {
        let Err(Failure::Refused(error)) = supply.take(freeing()) else {
            panic!("the reserve got a name");
        };
        assert_eq!(error.kind(), ErrorKind::Io);
    }
    sim.set_plan(FaultPlan::none());
    let taken = supply.take(freeing()).map_err(Failure::error).unwrap();
    assert!(taken.is_reserve);
}

fn used_bytes(sim: &SimEnv) -> u64 {
    sim.files().iter().map(|(_, bytes)| bytes).sum()
}

fn names(sim: &SimEnv, suffix: &str) -> usize {
    let files = sim.files();
    let named = files
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|e| e == suffix));
    named.count()
}

#[test]
fn a_reserve_without_room_to_be_written_to_is_given_back_and_never_named() {
    let sim = SimEnv::new(7);
    sim.set_copy_on_write(true);
    let supply = on_a_full_disk(&sim);
    sim.set_quota(Some(used_bytes(&sim)));
    // Checkpoints and replacements come before the drop, and again and again.
    for _ in 0..3 {
        assert!(is_refused(supply.take(freeing())));
        assert_eq!((names(&sim, "spare"), names(&sim, "seg")), (1, 0));
    }
    assert!(supply.must_give_back().unwrap());
    supply.give_back();
    assert_eq!(names(&sim, "spare"), 0);
    sim.set_quota(Some(used_bytes(&sim) + (40 << 10)));
    // Two in a row.
    for _ in 0..2 {
        let taken = supply.take(freeing()).map_err(Failure::error);
        assert!(taken.unwrap().is_reserve);
    }
    assert!(is_refused(supply.take(rows(0))));
    let refused = supply.check_room_for_rows(1000).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DiskFull);
    supply.refill();
    assert!(supply.is_given_back());
    sim.set_quota(None);
    supply.check_room_for_rows(1000).unwrap();
    let taken = supply.take(rows(0)).map_err(Failure::error);
    assert!(!taken.unwrap().is_reserve && !supply.is_given_back());
}

#[test]
fn a_crash_between_the_look_for_room_and_the_rename_leaves_a_reserve() {
    for at in 1.. {
        let sim = SimEnv::new(8);
        let supply = on_a_full_disk(&sim);
        sim.set_plan(FaultPlan::crash_at(sim.calls() + at));
        let _ = supply.take(freeing());
        for choice in sim.crash_choices(4, 4, at) {
            let image = sim.crash_image(&choice);
            let dir = PathBuf::from("/db");
            let next = FileId(100);
            let again = SegmentSupply::new(image.env(), dir, next, 256 << 10).unwrap();
            let is_named = names(&image, "seg") > 0;
            assert!(is_named != again.may_have_room(), "call {at}, {choice:?}");
            assert!(is_named || again.take(freeing()).is_ok());
        }
        if !sim.is_crashed() {
            assert!(at > 3, "{at} calls");
            break;
        }
    }
}

#[test]
fn the_reserve_grows_with_the_catalogue_and_shrinks_when_space_is_out() {
    let sim = SimEnv::new(9);
    let supply = on_a_full_disk(&sim);
    sim.set_quota(None);
    let reserve_bytes = || supply.reserve_bytes.load(Ordering::Relaxed);
    let catalogue_bytes = 200 << 10;
    supply.expect_checkpoint(catalogue_bytes, 0);
    assert!(supply.wants());
    supply.refill();
    assert!(reserve_bytes() >= MIN_RESERVE_CHECKPOINTS * catalogue_bytes);
    supply.expect_checkpoint(catalogue_bytes, 300 << 10);
    supply.refill();
    let ample_bytes = reserve_bytes();
    assert!(ample_bytes >= MIN_RESERVE_CHECKPOINTS * catalogue_bytes + (600 << 10));
    // Written by now.
    supply.expect_checkpoint(catalogue_bytes, 0);
    sim.set_quota(Some(used_bytes(&sim)));
    let taken = supply.take(rows(128 << 10));
    assert!(!taken.map_err(Failure::error).unwrap().is_reserve);
    assert!(reserve_bytes() < ample_bytes);
    assert!(reserve_bytes() >= MIN_RESERVE_CHECKPOINTS * catalogue_bytes);
    supply.ensure_reserve(0).unwrap();
    // More tables, and no room for what dropping them takes.
    sim.set_quota(Some(used_bytes(&sim)));
    supply.expect_checkpoint(2 * catalogue_bytes, 0);
    supply.refill();
    let refused = supply.ensure_reserve(0).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DiskFull);
}

#[test]
fn the_reserve_of_a_database_that_is_closed_on_a_full_disk_is_there_at_the_next_opening() {
    let sim = SimEnv::new(10);
    let supply = on_a_full_disk(&sim);
    supply.release();
    assert_eq!(names(&sim, "spare"), 1);
    let dir = PathBuf::from("/db");
    let again = SegmentSupply::new(sim.env(), dir, FileId(100), 256 << 10).unwrap();
    // Nothing is had for it while another one is made in its place.
    again.refill();
    assert_eq!(names(&sim, "spare"), 1);
    let taken = again.take(freeing()).map_err(Failure::error);
    assert!(taken.unwrap().is_reserve);
    sim.set_quota(None);
    again.refill();
    again.release();
    assert_eq!(names(&sim, "spare"), 0);
}
