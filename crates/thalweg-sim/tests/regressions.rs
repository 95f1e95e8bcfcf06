//! Sequences that once went wrong, each by its name.

use std::path::Path;
use thalweg_env::sim::{CallKind, CrashChoice, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_kernel::Durability::{Disk, Process};
use thalweg_sim::driver::{Driver, Shape};
use thalweg_sim::oracle::{Contents, contents_of};

fn crash_at(kind: CallKind, path: &str) -> FaultPlan {
    FaultPlan::none().rule(FaultRule::new(Fault::Crash).on(&[kind]).path_suffix(path))
}

/// Opens an image and reads everything.
fn open(shape: &Shape, image: &SimEnv) -> Contents {
    contents_of(&shape.open(&image.env()).unwrap()).unwrap().1
}

#[test]
fn spares_of_a_killed_process_do_not_block_the_next_one() {
    let sim = SimEnv::new(1);
    let mut db = Driver::start(&sim, Shape::new(8192, 8), false);
    db.create("t");
    for round in 0..3 {
        db.append_group("t", 0..200, Disk);
        let spare = |path: &Path| path.extension().is_some_and(|e| e == "spare");
        assert!(
            sim.files().iter().any(|(path, _)| spare(path)),
            "round {round}"
        );
        db.kill();
    }
    assert_eq!(db.visible().unwrap().unwrap().1["t"].len(), 600);
}

#[test]
fn a_crash_in_a_recovery_whose_checkpoint_needs_a_second_segment() {
    let shape = Shape::new(4096, 1000);
    let sim = SimEnv::new(2);
    let mut db = Driver::start(&sim, shape.clone(), false);
    db.create("t");
    for _ in 0..3 {
        db.append("t", 0..60, Disk);
    }
    let first = sim.crash_image(&CrashChoice::DropAll);
    // Tail and checkpoint are on disk, the root still names the old epoch.
    first.set_plan(crash_at(CallKind::Write, "root"));
    shape.open(&first.env()).unwrap_err();
    for choice in [CrashChoice::DropAll, CrashChoice::Kill] {
        assert_eq!(open(&shape, &first.crash_image(&choice))["t"].len(), 180);
    }
}

#[test]
fn an_epoch_whose_root_is_in_the_cache_only_is_begun_again() {
    let shape = Shape::new(8192, 8);
    let sim = SimEnv::new(3);
    let mut db = Driver::start(&sim, shape.clone(), false);
    db.create("t");
    db.append("t", 0..3, Process);
    let first = sim.crash_image(&CrashChoice::Kill);
    first.set_plan(crash_at(CallKind::SyncData, "root"));
    shape.open(&first.env()).unwrap_err();
    let second = first.crash_image(&CrashChoice::Kill);
    let shown = open(&shape, &second);
    assert_eq!(shown["t"].len(), 3);
    assert_eq!(
        open(&shape, &second.crash_image(&CrashChoice::DropAll)),
        shown
    );
}

#[test]
fn a_database_killed_before_its_name_was_synced_keeps_what_is_appended_later() {
    let shape = Shape::new(8192, 8);
    let first = SimEnv::new(4);
    let renamed = FaultRule::new(Fault::Crash)
        .on(&[CallKind::Rename])
        .path_suffix("root");
    first.set_plan(FaultPlan::none().rule(renamed));
    shape.open(&first.env()).unwrap_err();
    // The rename was under way: it is in the cache.
    let second = first.crash_image(&CrashChoice::Kill);
    assert!(second.read_file(Path::new("/db/root")).is_ok());
    let toy = shape.open(&second.env()).unwrap();
    let table = toy.create("t").unwrap();
    toy.append(table, &[(1, 1)], Disk).unwrap();
    let third = second.crash_image(&CrashChoice::DropAll);
    assert_eq!(open(&shape, &third)["t"], [(1, 1)]);
}
