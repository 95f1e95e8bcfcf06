//! Any one checkpoint is damaged, full or a difference: a repair loses nothing by it, wherever a crash came before and whatever
//! was written since. `THALWEG_EFFORT` makes the samples larger; from 24 on they are all bytes.

use std::collections::BTreeSet;
use std::path::Path;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::{CommitNo, Durability};
use thalweg_sim::checkpoint_frames::checkpoints_of;
use thalweg_sim::checkpoints::{
    CheckpointStage, crash_then_damage, damage_checkpoints, damage_sectors, damage_then_go_on,
    damaged, needed_by_slots, rows_after_repair, with_differences, without_head,
};
use thalweg_sim::driver::Driver;
use thalweg_sim::files::files_of;
use thalweg_sim::repair::{Repaired, repair_and_check};
use thalweg_sim::report::{Stopwatch, effort, say, seed};
use thalweg_sim::shape::Shape;
use thalweg_sim::workloads::{long_names, named};

#[test]
fn any_byte_of_any_checkpoint() {
    let clock = Stopwatch::start();
    let mut stage = CheckpointStage::default();
    for (checkpoints, is_closed) in [
        (0, false),
        (1, true),
        (2, false),
        (3, true),
        (5, true),
        (9, false),
    ] {
        let patient = with_differences(checkpoints, is_closed);
        stage.add(damage_checkpoints(&patient, (24 / effort()).max(1)));
    }
    let repaired = &stage.repaired;
    say(format_args!(
        "checkpoints: {} repairs in {:.0} s: bytes of {} full ones, {} of them needed as bases by a slot of the root, and of {} \
         differences; {} lost nothing, {} found nothing, {} violations",
        repaired.repairs,
        clock.seconds(),
        stage.full,
        stage.bases,
        stage.differences,
        repaired.mended,
        repaired.clean,
        repaired.violations.len()
    ));
    let first: Vec<_> = repaired.violations.iter().take(5).cloned().collect();
    assert!(first.is_empty(), "{}", first.join("\n"));
    assert!(stage.bases >= 5 && stage.differences >= 10, "{stage:?}");
    assert!(repaired.mended > 500, "{repaired:?}");
}

#[test]
fn a_crash_and_then_damage() {
    let (seed, clock) = (seed(), Stopwatch::start());
    let mut total = (0, 0);
    for name in ["differences", "everything among many", "garbage"] {
        let (repairs, of_bases, violations) = crash_then_damage(named(name), seed);
        say(format_args!(
            "checkpoints: {name}: {repairs} repairs after crashes, {of_bases} of a full checkpoint, {:.0} s so far, seed {seed}",
            clock.seconds()
        ));
        assert!(violations.is_empty(), "{}", violations.join("\n"));
        total.0 += repairs;
        total.1 += of_bases;
    }
    let (repairs, of_bases) = total;
    assert!(of_bases > 300 && repairs - of_bases > 200, "{total:?}");
}

#[test]
fn damage_that_nobody_notices_while_more_is_written() {
    let (mut opened, mut repaired) = (0, 0);
    for checkpoints in [0, 2, 5] {
        let patient = with_differences(checkpoints, false);
        for (more, collect) in (0..6).flat_map(|more| [(more, false), (more, true)]) {
            let ended = damage_then_go_on(&patient, more, collect);
            assert!(ended.2.is_empty(), "{}", ended.2.join("\n"));
            opened += ended.0;
            repaired += ended.1;
        }
    }
    say(format_args!(
        "checkpoints: damage that nobody noticed: {opened} opened, {repaired} repaired"
    ));
    assert!(opened > 20 && repaired > 20, "{opened} {repaired}");
}

/// A new database has one checkpoint, which says that there is nothing yet: what follows it is the whole database.
#[test]
fn the_only_checkpoint_of_a_new_database() {
    let shape = Shape::new(16384, 1000);
    for commits in [0, 1, 60] {
        let sim = SimEnv::new(3);
        let mut db = Driver::start(&sim, shape.clone(), false);
        if commits > 0 {
            db.create("t");
        }
        (1..commits).for_each(|key| db.append("t", [key], Durability::Disk));
        let image = sim.crash_image(&CrashChoice::KeepAll);
        let want = db.visible().unwrap().unwrap().1;
        db.finish();
        let needed = needed_by_slots(&image);
        assert_eq!(needed.len(), 1, "{commits} commits");
        let found = rows_after_repair(&shape, &without_head(&image, &needed[0]));
        assert_eq!(found.as_ref(), Ok(&want), "{commits} commits");
    }
}

/// Nothing but the root tells that a checkpoint was there: neither a frame behind it nor, where it begins an epoch, one before
/// it.
#[test]
fn the_header_of_the_last_frame() {
    let shape = Shape::new(16384, 1000);
    for ending in ["a checkpoint", "closed", "another epoch"] {
        let sim = SimEnv::new(4);
        let mut db = Driver::start(&sim, shape.clone(), false);
        db.create("t");
        db.append("t", 0..100, Durability::Disk);
        db.checkpoint();
        db.append("t", 100..110, Durability::Disk);
        let want = db.visible().unwrap().unwrap().1;
        match ending {
            "a checkpoint" => db.checkpoint(),
            "closed" => db.close(),
            _ => db.kill(),
        }
        let image = sim.crash_image(&CrashChoice::KeepAll);
        db.finish();
        let needed = needed_by_slots(&image);
        let last = needed.last().unwrap();
        let found = rows_after_repair(&shape, &without_head(&image, last));
        assert_eq!(found.as_ref(), Ok(&want), "{ending}");
    }
}

/// One bad sector takes one checkpoint at most, and no commit together with it that the other one needs.
#[test]
fn a_sector_that_cannot_be_read_any_more() {
    let mut damaged = 0;
    for (checkpoints, is_closed) in [(0, true), (1, true), (2, true), (3, true), (9, true)] {
        let (sectors, violations) = damage_sectors(&with_differences(checkpoints, is_closed));
        assert!(violations.is_empty(), "{}", violations.join("\n"));
        damaged += sectors;
    }
    say(format_args!("checkpoints: {damaged} sectors damaged"));
    assert!(damaged >= 15, "{damaged}");
}

/// However short checkpoints and commits are: each checkpoint begins where no frame before it reaches.
#[test]
fn checkpoints_begin_in_sectors_of_their_own() {
    let shape = Shape::new(65536, 8);
    let sim = SimEnv::new(5);
    let mut db = Driver::start(&sim, shape, false);
    db.create("t");
    let mut starts = BTreeSet::new();
    for round in 0..60 {
        db.append("t", 0..=round % 7, Durability::Process);
        db.checkpoint();
        if round % 20 == 9 {
            db.kill();
        }
        let all = checkpoints_of(&files_of(&sim)).into_iter();
        starts.extend(all.map(|found| found.place));
    }
    db.finish();
    assert!(starts.len() > 60, "{starts:?}");
    let is_apart = |(_, at): &(u64, u64)| *at == 128 || at.is_multiple_of(4096);
    assert!(starts.iter().all(is_apart), "{starts:?}");
}

/// What is lost is known where the root names a checkpoint behind it, though that is damaged as well.
#[test]
fn the_header_of_the_last_frame_and_a_commit_before_it() {
    let shape = Shape::new(16384, 1000);
    let sim = SimEnv::new(6);
    let mut db = Driver::start(&sim, shape.clone(), false);
    db.create("t");
    db.checkpoint();
    (0..5).for_each(|key| db.append("t", [key], Durability::Disk));
    let last = db.visible().unwrap().unwrap().0;
    db.checkpoint();
    let image = sim.crash_image(&CrashChoice::KeepAll);
    db.finish();
    let checkpoint = needed_by_slots(&image).pop().unwrap();
    let without = without_head(&image, &checkpoint);
    // The commits lie between two checkpoints, and the log has no other frames there.
    let segment = without.read_file(&checkpoint.path).unwrap();
    let is_frame = |at: &usize| segment[*at..].starts_with(b"TFRM");
    let frames = (128..checkpoint.head.start).step_by(8).filter(is_frame);
    let of_commits = frames.filter(|at| segment[*at + 8] == last.0.to_le_bytes()[0]);
    let at = of_commits.min().unwrap();
    without
        .overwrite_file(&checkpoint.path, at as u64 + 20, &[0xAA])
        .unwrap();
    let repaired = repair_and_check(&shape, &without).unwrap();
    let Repaired::Done(report, _) = repaired else {
        unreachable!("the repair failed");
    };
    let lost: Vec<_> = report
        .given_up
        .iter()
        .map(|damage| damage.commits)
        .collect();
    assert_eq!(lost, [Some((last, last))], "{report:?}");
}

/// A base at the end of its epoch, of which `live` still tells after a power cut that took back what tells of the next one.
#[test]
fn the_header_of_a_base_at_the_end_of_its_epoch() {
    let shape = Shape::new(131_072, 8);
    let names = long_names();
    let mut of_bases = 0;
    for checkpoints in 1..4 {
        let sim = SimEnv::new(7);
        let mut db = Driver::start(&sim, shape.clone(), false);
        db.create_all(&names);
        for key in 0..checkpoints {
            db.append(&names[3], [key], Durability::Disk);
            db.checkpoint();
        }
        db.kill();
        let before = db.visible().unwrap().unwrap().1;
        let first = sim.calls();
        sim.record_states(true);
        db.append(&names[5], [1], Durability::Disk);
        let after = db.visible().unwrap().unwrap().1;
        let last = sim.calls();
        for state in (first..=last).filter_map(|call| sim.state_at(call)) {
            for choice in [CrashChoice::KeepAll, CrashChoice::DropAll] {
                let image = state.crash_image(&choice);
                for needed in needed_by_slots(&image) {
                    let found = rows_after_repair(&shape, &without_head(&image, &needed));
                    let is_right = found
                        .as_ref()
                        .is_ok_and(|found| [&before, &after].contains(&found));
                    assert!(
                        is_right,
                        "{checkpoints} checkpoints, {needed:?}: {:?}",
                        found.map(drop)
                    );
                    of_bases += u32::from(needed.base.is_none());
                }
            }
        }
        db.finish();
    }
    assert!(of_bases > 50, "{of_bases}");
}

/// Without the other slot nobody knows whether the base whose turn it is was removed. An opening writes that slot anew, and
/// from then on all that it leads to has to be whole.
#[test]
fn a_lost_slot_and_any_damaged_checkpoint() {
    let shape = Shape::new(65_536, 8);
    let names = long_names();
    let mut repairs = 0;
    for (checkpoints, reopened) in (0..5).flat_map(|n| [(n, false), (n, true)]) {
        let sim = SimEnv::new(8);
        let mut db = Driver::start(&sim, shape.clone(), false);
        db.create_all(&names);
        for key in 0..checkpoints {
            db.append(&names[3], [key], Durability::Disk);
            db.checkpoint();
        }
        if reopened {
            db.append(&names[4], [1], Durability::Disk);
            db.kill();
        }
        let images = [CrashChoice::KeepAll, CrashChoice::DropAll];
        let images = images.map(|choice| sim.crash_image(&choice));
        db.finish();
        for image in images {
            for checkpoint in checkpoints_of(&files_of(&image)) {
                for slot in [0, 4096] {
                    let image = damaged(&image, &checkpoint);
                    image
                        .overwrite_file(Path::new("/db/root"), slot + 2000, &[0xC3])
                        .unwrap();
                    let what = format!("{checkpoints}, {reopened}, slot {slot}, {checkpoint:?}");
                    let violation = repair_and_check(&shape, &image).err();
                    assert_eq!(violation, None, "{what}");
                    repairs += 1;
                }
            }
        }
    }
    assert!(repairs > 100, "{repairs}");
}

/// The frame that proves the sync of those before it is damaged inside, and tells nothing once the repair has come to it.
#[test]
fn commits_before_a_damaged_frame_that_proves_their_sync() {
    let shape = Shape::new(65_536, 8);
    let sim = SimEnv::new(9);
    let mut db = Driver::start(&sim, shape.clone(), false);
    db.create("t");
    db.append_group("t", 0..8, Durability::Process);
    db.append("t", [100], Durability::Process);
    db.append("t", [101], Durability::Disk);
    let before = db.visible().unwrap().unwrap().0;
    db.append_group("t", 8..16, Durability::Process);
    db.append("t", [102], Durability::Process);
    let image = sim.crash_image(&CrashChoice::KeepAll);
    db.finish();
    // Nothing else tells of the sync.
    image
        .overwrite_file(Path::new("/db/live"), 0, &[0; 256])
        .unwrap();
    let (path, segment) = files_of(&image)
        .into_iter()
        .find(|(path, _)| path.extension().is_some_and(|kind| kind == "seg"))
        .unwrap();
    let frame_of = |commit: u64| {
        let is_it = |at: &usize| {
            segment[*at..].starts_with(b"TFRM")
                && segment[*at + 8..*at + 16] == commit.to_le_bytes()
        };
        (128..segment.len() - 64).step_by(8).find(is_it).unwrap()
    };
    let [group, lost, last, proof] =
        [before.0 - 2, before.0 - 1, before.0, before.0 + 1].map(frame_of);
    let damage = |image: &SimEnv, at: usize| {
        let changed = [segment[at] ^ 0x10];
        image.overwrite_file(&path, at as u64, &changed).unwrap();
    };
    damage(&image, lost - 20);
    damage(&image, lost + 90);
    damage(&image, proof + 100);
    assert!(group < lost && lost < last && last < proof);
    let repaired = repair_and_check(&shape, &image).unwrap();
    let Repaired::Done(report, contents) = repaired else {
        unreachable!("the repair failed");
    };
    let commits = report.given_up.iter().filter_map(|damage| damage.commits);
    let lost = CommitNo(before.0 - 1);
    assert!(
        commits.into_iter().any(|all| all == (lost, lost)),
        "{report:?}"
    );
    assert!(contents["t"].iter().any(|row| row.0 == 101), "{contents:?}");
}
