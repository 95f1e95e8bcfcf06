//! Repairs of databases whose tables have names that others had before, and the numbers that new tables get afterwards.
//! `THALWEG_EFFORT` makes the samples larger.
#![expect(clippy::expect_used, reason = "a step that fails is a test that fails")]

use std::path::{Path, PathBuf};
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::Durability::Disk;
use thalweg_kernel::repair::{RenamedTable, RepairReport, repair};
use thalweg_kernel::{CommitNo, TableId};
use thalweg_sim::driver::Driver;
use thalweg_sim::oracle::{Contents, contents_of};
use thalweg_sim::repair::{
    RepairStage, Repaired, crash_repair, damage_frames_of, names_given_again,
};
use thalweg_sim::report::{Dice, effort, say, seed};
use thalweg_sim::shape::{DIR, Shape};
use thalweg_sim::toy::Row;

fn repair_once(shape: &Shape, image: &SimEnv) -> RepairReport {
    let report = repair(&image.env(), Path::new(DIR), &shape.options, &mut |_| {});
    report.expect("something is left")
}

fn contents(shape: &Shape, image: &SimEnv) -> Contents {
    let toy = shape.open_read_only(&image.env()).expect("whole");
    contents_of(&toy).expect("whole").1
}

/// Where the frame of a commit begins.
fn frame_of(image: &SimEnv, commit: CommitNo) -> (PathBuf, u64) {
    let paths = image.files().into_iter().map(|(path, _)| path);
    let mut segments = paths.filter(|path| path.extension().is_some_and(|e| e == "seg"));
    let frame = segments.find_map(|path| {
        let bytes = image.read_file(&path).expect("a segment");
        let mut fronts = bytes.windows(16);
        let is_frame =
            |front: &[u8]| &front[..4] == b"TFRM" && front[8..] == commit.0.to_le_bytes();
        Some((path, fronts.position(is_frame)? as u64))
    });
    frame.expect("a frame of the commit")
}

/// Damages the head of the frame of a commit, so that nothing tells what it has changed.
fn damage(image: &SimEnv, commit: CommitNo) {
    let (path, at) = frame_of(image, commit);
    let written = image.overwrite_file(&path, at + 20, &[0x5A]);
    written.expect("a segment");
}

fn last_commit(db: &Driver) -> CommitNo {
    let snapshot = db.toy().expect("open").kernel.snapshot();
    snapshot.expect("open").commit()
}

fn keys(rows: &[Row]) -> Vec<i64> {
    rows.iter().map(|row| row.0).collect()
}

#[test]
fn a_table_whose_name_was_given_again_is_kept_beside_the_new_one() {
    for is_renamed in [false, true] {
        let sim = SimEnv::new(1);
        let mut db = Driver::start(&sim, Shape::new(1 << 16, 16), false);
        let shape = db.shape().clone();
        db.create("boiler");
        db.append_group("boiler", 0..20, Disk);
        db.append("boiler", 20..23, Disk);
        match is_renamed {
            true => db.rename("boiler", "kettle"),
            false => db.drop_table("boiler"),
        }
        let lost = last_commit(&db);
        db.create("Boiler");
        let given = last_commit(&db);
        db.append_group("Boiler", 100..120, Disk);
        db.append("Boiler", 120..123, Disk);
        if is_renamed {
            db.append("kettle", 23..25, Disk);
        }
        let image = sim.crash_image(&CrashChoice::KeepAll);
        db.finish();
        damage(&image, lost);

        let report = repair_once(&shape, &image);
        let renamed = RenamedTable {
            from: "boiler".to_owned(),
            to: "boiler (1)".to_owned(),
            commit: given,
        };
        let told = renamed.to_string();
        assert!(told.contains("\"boiler (1)\""), "{told}");
        assert_eq!(report.renamed, [renamed]);
        let commits: Vec<_> = report.given_up.iter().map(|lost| lost.commits).collect();
        assert_eq!(commits, [Some((lost, lost))], "{report:?}");
        let found = contents(&shape, &image);
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["Boiler", "boiler (1)"]);
        assert_eq!(keys(&found["Boiler"]), (100..123).collect::<Vec<_>>());
        let last = if is_renamed { 25 } else { 23 };
        assert_eq!(keys(&found["boiler (1)"]), (0..last).collect::<Vec<_>>());
    }
}

#[test]
fn names_that_are_given_again_and_again() {
    let patient = names_given_again();
    let (mut stage, mut renamed) = (RepairStage::default(), 0);
    for (image, what) in damage_frames_of(&patient) {
        if let Some(Repaired::Done(report, _)) = stage.run(&patient, &image, &what) {
            renamed += report.renamed.len();
        }
    }
    say(format_args!(
        "names given again: {} repairs, {} gave something up, {renamed} tables renamed, {} violations",
        stage.repairs,
        stage.gave_up,
        stage.violations.len()
    ));
    assert_eq!(stage.violations.first(), None);
    assert!(stage.gave_up > 300 && renamed > 100, "{renamed}, {stage:?}");
}

#[test]
fn a_repair_that_is_killed_gives_the_same_names_when_it_is_repeated() {
    let seed = seed();
    let mut dice = Dice::new(seed);
    let patient = names_given_again();
    let mut stage = RepairStage::default();
    let mut images = damage_frames_of(&patient);
    let mut crashed = 0;
    while crashed < 3 * effort() && !images.is_empty() {
        let chosen = usize::try_from(dice.below(images.len() as u64)).expect("few");
        let (image, _) = images.swap_remove(chosen);
        let probe = image.crash_image(&CrashChoice::KeepAll);
        if !repair_once(&patient.shape, &probe).renamed.is_empty() {
            stage.add(crash_repair(&patient, &image, 2, &mut dice));
            crashed += 1;
        }
    }
    assert_eq!(
        stage.violations.first(),
        None,
        "repeat with THALWEG_SEED={seed}"
    );
    assert!(crashed > 0 && stage.repairs > 60, "{crashed}, {stage:?}");
}

/// The checkpoint of the first repair is damaged: the second one starts in the epoch before it and meets the lost commit again, then
/// the commits behind the first repair, which speak of the names that it gave.
#[test]
fn a_later_repair_that_starts_further_back_gives_the_same_names() {
    let sim = SimEnv::new(2);
    let mut db = Driver::start(&sim, Shape::new(1 << 16, 16), false);
    let shape = db.shape().clone();
    let mut lost = Vec::new();
    for (round, first) in [0, 100, 200].into_iter().enumerate() {
        db.create("t");
        db.append("t", first..first + 3, Disk);
        if round < 2 {
            db.drop_table("t");
            lost.push(last_commit(&db));
        }
    }
    db.create("t (2)");
    let image = sim.crash_image(&CrashChoice::KeepAll);
    db.finish();
    for commit in &lost {
        damage(&image, *commit);
    }
    let names_of = |report: &RepairReport| -> Vec<(String, String)> {
        let renamed = report.renamed.iter();
        let names = renamed.map(|table| (table.from.clone(), table.to.clone()));
        names.collect()
    };
    let first = repair_once(&shape, &image);
    let moved = |to: &str| ("t".to_owned(), to.to_owned());
    assert_eq!(names_of(&first), [moved("t (1)"), moved("t (3)")]);
    {
        let toy = shape.open(&image.env()).expect("whole");
        let snapshot = toy.kernel.snapshot().expect("open");
        let id = |name: &str| snapshot.table_named(name).expect("kept").id;
        // A name is free now which the first repair has found taken.
        toy.drop_table(id("t (2)")).expect("room");
        toy.append(id("t (3)"), &[(150, 1_000)], Disk)
            .expect("room");
        toy.drop_table(id("t (1)")).expect("room");
        let new = toy.create("t (1)").expect("a free name");
        toy.append(new, &[(900, 1_001)], Disk).expect("room");
    }
    let want = contents(&shape, &image);
    damage_new_checkpoints(&image);
    let second = repair_once(&shape, &image);
    let commits: Vec<_> = second.given_up.iter().map(|lost| lost.commits).collect();
    let lost: Vec<_> = lost.iter().map(|lost| Some((*lost, *lost))).collect();
    assert_eq!(commits, lost, "{second:?}");
    assert_eq!(names_of(&second), [moved("t (3)")]);
    assert_eq!(contents(&shape, &image), want, "{second:?}");
}

/// Damages all checkpoints but the first one of all.
fn damage_new_checkpoints(image: &SimEnv) {
    let files = image.files().into_iter().map(|(path, _)| path);
    let segments = files.filter(|path| path.extension().is_some_and(|e| e == "seg"));
    for path in segments.skip(1) {
        let bytes = image.read_file(&path).expect("a segment");
        for at in 0..bytes.len() - 80 {
            // Its first section is the index, or the pages of it.
            if &bytes[at..at + 4] == b"TFRM" && matches!(bytes[at + 64], 6 | 7) {
                let written = image.overwrite_file(&path, at as u64 + 70, &[0x5A]);
                written.expect("a segment");
            }
        }
    }
}

/// A process that reads has the database open all the while.
#[test]
fn a_reader_beside_a_repair_finds_both_tables() {
    let sim = SimEnv::new(4);
    let mut db = Driver::start(&sim, Shape::new(1 << 16, 16), false);
    let shape = db.shape().clone();
    db.create("t");
    db.append("t", 0..3, Disk);
    db.drop_table("t");
    let lost = last_commit(&db);
    db.create("t");
    db.append("t", 10..13, Disk);
    let image = sim.crash_image(&CrashChoice::Kill);
    db.finish();
    let reader = shape.open_read_only(&image.env_of_process(900));
    let reader = reader.expect("whole");
    let (_, before) = contents_of(&reader).expect("whole");
    assert_eq!(before.len(), 1);
    damage(&image, lost);
    let report = repair_once(&shape, &image);
    assert_eq!(report.renamed.len(), 1, "{report:?}");
    // A reader follows the epochs that writers begin.
    let writer = shape.open(&image.env()).expect("whole");
    writer.create("u").expect("room");
    let (_, after) = contents_of(&reader).expect("whole");
    let names: Vec<&str> = after.keys().map(String::as_str).collect();
    assert_eq!(names, ["t", "t (1)", "u"]);
    assert_eq!(after["t"], before["t"]);
    assert_eq!(keys(&after["t (1)"]), [0, 1, 2]);
}

/// What is given up of a table is listed under the name that it has after the repair, whichever it had then.
#[test]
fn commits_that_are_left_out_are_listed_under_the_last_name_of_their_table() {
    let sim = SimEnv::new(6);
    let mut db = Driver::start(&sim, Shape::new(1 << 16, 16), false);
    let shape = db.shape().clone();
    let mut lost = Vec::new();
    for (name, is_dropped) in [("t", true), ("u", false)] {
        db.create(name);
        db.append(name, 0..3, Disk);
        db.redefine(name);
        lost.push(last_commit(&db));
        // By a definition that is not there any more.
        db.append(name, 3..6, Disk);
        match is_dropped {
            true => {
                db.drop_table(name);
                lost.push(last_commit(&db));
                db.create(name);
            }
            false => db.rename(name, "v"),
        }
    }
    let image = sim.crash_image(&CrashChoice::KeepAll);
    db.finish();
    for commit in &lost {
        damage(&image, *commit);
    }
    let report = repair_once(&shape, &image);
    let listed = report.given_up.iter().filter_map(|lost| lost.table.clone());
    let listed: Vec<String> = listed.collect();
    assert_eq!(listed, ["t (1)", "v"], "{report:?}");
    let found = contents(&shape, &image);
    assert_eq!(keys(&found["t (1)"]), [0, 1, 2]);
    assert_eq!(keys(&found["v"]), [0, 1, 2]);
    assert!(found["t"].is_empty());
}

/// Commits that are lost have made several tables each, of which nothing is left.
#[test]
fn numbers_that_lost_commits_gave_to_tables_are_not_given_out_again() {
    for is_last in [false, true] {
        let sim = SimEnv::new(5);
        let mut db = Driver::start(&sim, Shape::new(1 << 16, 16), false);
        let shape = db.shape().clone();
        db.create("t");
        let names: Vec<String> = (0..40).map(|nth| format!("lost {nth}")).collect();
        db.create_all(&names);
        let lost = last_commit(&db);
        let snapshot = db.toy().expect("open").kernel.snapshot().expect("open");
        let highest = snapshot.tables().map(|table| table.id).max();
        assert_eq!(highest, Some(TableId(41)));
        drop(snapshot);
        if !is_last {
            db.append("t", 0..3, Disk);
        }
        let image = sim.crash_image(&CrashChoice::KeepAll);
        db.finish();
        damage(&image, lost);
        let report = repair_once(&shape, &image);
        assert_eq!(report.given_up.len(), 1, "{report:?}");
        let toy = shape.open(&image.env()).expect("whole");
        let next = toy.create("next").expect("room");
        assert!(
            Some(next) > highest,
            "{next:?}, last commit lost: {is_last}"
        );
    }
}
