//! Damaged databases are repaired: what is whole stays, what is lost is listed, a crash of a repair costs nothing.
//! `THALWEG_EFFORT` makes the samples larger; from 40 on they are all bytes.

use std::path::Path;
use thalweg_env::sim::CrashChoice::{DropAll, KeepAll};
use thalweg_env::sim::SimEnv;
use thalweg_kernel::Durability::Disk;
use thalweg_kernel::paths::segment_name;
use thalweg_kernel::repair::{RepairReport, repair};
use thalweg_kernel::verify::Damage;
use thalweg_sim::driver::Driver;
use thalweg_sim::repair::{
    Patient, RepairStage, closed, coarse_damage, crash_repair, damage_only_checkpoint,
    damage_pages, damage_pages_and_frames, damage_pages_beside_another_slot, damage_stretches,
    dependent, fail_reads, fail_repair, flip_bytes, floors_around_repair, killed, lose_slots,
    merged, merged_behind_a_lost_page, merged_copies_behind_a_lost_page, of_one_checkpoint,
    removed_between, repair_what_is_only_cached, several_places,
};
use thalweg_sim::report::{Dice, Stopwatch, effort, say, seed};
use thalweg_sim::shape::{DIR, Shape};
use thalweg_sim::workloads::WORKLOADS;

fn conclude(what: &str, stage: &RepairStage, seed: u64, clock: &Stopwatch) {
    say(format_args!(
        "repair: {what}: {} repairs in {:.0} s: {} found nothing, {} lost nothing, {} gave something up, {} could not be done, {} violations",
        stage.repairs,
        clock.seconds(),
        stage.clean,
        stage.mended,
        stage.gave_up,
        stage.errors,
        stage.violations.len()
    ));
    let first: Vec<_> = stage.violations.iter().take(5).cloned().collect();
    let first = first.join("\n");
    assert!(
        first.is_empty(),
        "{what} (repeat with THALWEG_SEED={seed}):\n{first}"
    );
}

fn one_in(usual: u64) -> u64 {
    (usual / effort() as u64).max(1)
}

#[test]
fn a_whole_database_is_left_alone() {
    let mut stage = RepairStage::default();
    let clock = Stopwatch::start();
    for patient in [closed(), killed()] {
        stage.run(&patient, &patient.image(), "undamaged");
    }
    conclude("undamaged", &stage, 0, &clock);
    assert_eq!((stage.repairs, stage.clean), (2, 2));
}

#[test]
fn any_byte_of_a_database() {
    let (seed, clock) = (seed(), Stopwatch::start());
    let mut dice = Dice::new(seed);
    let mut stage = RepairStage::default();
    for patient in [closed(), killed()] {
        stage.add(flip_bytes(&patient, one_in(40), &mut dice));
    }
    conclude("bytes flipped", &stage, seed, &clock);
    assert!(stage.gave_up > 50 && stage.mended > 5, "{stage:?}");
}

#[test]
fn what_lies_below_a_damaged_page_is_found_again() {
    let clock = Stopwatch::start();
    let mut stage = damage_pages(&closed());
    stage.add(damage_pages(&merged()));
    conclude("pages of the index", &stage, 0, &clock);
    let pages = "one page for each table";
    assert_eq!((stage.mended, stage.repairs), (4, 4), "{pages}");
}

/// Where a damaged page loses rows, the checkpoint of the other slot may lead to them.
#[test]
fn what_the_other_slot_leads_to_is_kept() {
    let (seed, clock) = (seed(), Stopwatch::start());
    let (mut stage, mut dice) = (RepairStage::default(), Dice::new(seed));
    for workload in &WORKLOADS {
        let sim = SimEnv::new(seed);
        sim.record_states(true);
        let driver = workload.run(&sim, false);
        let places = 60 / (workload.one_in() as u64).min(6);
        for place in 1..=places {
            let call = sim.calls() * place / places;
            let state = (1..=call).rev().find_map(|call| sim.state_at(call));
            let image = state.expect("a state").crash_image(&KeepAll);
            let is_database = image.read_file(&Path::new(DIR).join("root")).is_ok();
            if is_database {
                let name = format!("{}, call {call}", workload.name);
                let patient = Patient::of(&name, &driver, image, false, true);
                stage.add(damage_pages_beside_another_slot(&patient, &mut dice));
            }
        }
    }
    conclude("pages beside another slot", &stage, seed, &clock);
    assert!(stage.mended > 100 && stage.gave_up > 20, "{stage:?}");
}

/// One commit counts for less than all the rows below a page.
#[test]
fn of_two_losses_the_one_of_fewer_rows_is_chosen() {
    let clock = Stopwatch::start();
    let stage = damage_pages_and_frames();
    conclude("pages and frames", &stage, 0, &clock);
    assert!(stage.gave_up > 10, "{stage:?}");
}

/// A slot of the root that is not there, for once or for good, costs no row of a damaged database.
#[test]
fn a_slot_less_costs_no_row() {
    let (seed, clock) = (seed(), Stopwatch::start());
    let (mut stage, mut dice) = (RepairStage::default(), Dice::new(seed));
    for workload in &WORKLOADS {
        let sim = SimEnv::new(seed);
        sim.record_states(true);
        let driver = workload.run(&sim, false);
        for _ in 0..(6 * effort()).div_ceil(workload.one_in()) {
            let call = 1 + dice.below(sim.calls());
            let state = (1..=call).rev().find_map(|call| sim.state_at(call));
            let Some(state) = state else {
                continue;
            };
            let image = state.crash_image(&KeepAll);
            if image.read_file(&Path::new(DIR).join("root")).is_ok() {
                let name = format!("{}, call {call}", workload.name);
                let mut patient = Patient::of(&name, &driver, image, false, true);
                let synced = driver.ledger.bounds_at(call).disk;
                patient.surely_proven = synced.min(patient.commit);
                stage.add(lose_slots(&patient, 4, &mut dice));
            }
        }
    }
    conclude("a slot less", &stage, seed, &clock);
    assert!(stage.mended + stage.gave_up > 100, "{stage:?}");
}

/// Of some segments nothing but pages of the index is needed. They are missed although nothing is lost.
#[test]
fn a_missing_segment_with_pages_of_the_index_is_noticed() {
    let clock = Stopwatch::start();
    let mut stage = RepairStage::default();
    // The blocks of a table are in the first segment, its page in one where everything else is of a table that is dropped.
    for fillers in 1..12 {
        let sim = SimEnv::new(1);
        let mut driver = Driver::start(&sim, Shape::new(1 << 13, 8), false);
        let fill = |driver: &mut Driver| {
            for filler in 0..fillers {
                driver.append_group("filler", filler * 100..filler * 100 + 40, Disk);
            }
        };
        driver.create("kept");
        driver.create("filler");
        driver.append_group("kept", 0..400, Disk);
        fill(&mut driver);
        driver.checkpoint();
        fill(&mut driver);
        driver.checkpoint();
        driver.drop_table("filler");
        driver.checkpoint();
        let image = sim.crash_image(&KeepAll);
        driver.finish();
        let patient = Patient::of("pages alone", &driver, image, false, true);
        for (path, _) in patient.sim.files() {
            if path.extension().is_some_and(|extension| extension == "seg") {
                let image = patient.image();
                assert!(image.remove_file(&path).is_ok());
                stage.run(&patient, &image, &format!("{} removed", path.display()));
            }
        }
    }
    conclude("segments removed", &stage, 0, &clock);
    assert!(stage.mended > 0, "{stage:?}");
}

#[test]
fn what_replaces_unreachable_blocks_counts() {
    let clock = Stopwatch::start();
    let stage = merged_behind_a_lost_page();
    conclude("merged behind a lost page", &stage, 0, &clock);
    // Nothing is lost, and so nothing is given up.
    assert!(stage.mended > 2 && stage.gave_up == 0, "{stage:?}");
}

/// Taken out by the key of the first, the copies are taken out whole: none of what was copied comes twice.
#[test]
fn what_replaces_copies_of_blocks_that_were_found_again_doubles_none() {
    let clock = Stopwatch::start();
    let stage = merged_copies_behind_a_lost_page();
    conclude("merged copies behind a lost page", &stage, 0, &clock);
    assert!(stage.mended > 2, "{stage:?}");
}

#[test]
fn commits_that_rest_on_lost_ones() {
    let clock = Stopwatch::start();
    let step = (24 / effort()).max(8);
    let stage = damage_stretches(&dependent(), &[8, 100, 200, 300, 500, 900], step);
    conclude("stretches of the log", &stage, 0, &clock);
    assert!(stage.gave_up > 200, "{stage:?}");
}

#[test]
fn an_epoch_whose_only_checkpoint_is_damaged() {
    let clock = Stopwatch::start();
    let mut stage = RepairStage::default();
    for patient in of_one_checkpoint() {
        stage.add(damage_only_checkpoint(&patient));
    }
    conclude("the only checkpoint of an epoch", &stage, 0, &clock);
    assert!(stage.mended > 200 && stage.gave_up > 200, "{stage:?}");
}

#[test]
fn a_lost_root_and_segments_that_were_removed_before() {
    let clock = Stopwatch::start();
    let stage = removed_between();
    conclude("removed between checkpoints", &stage, 0, &clock);
    assert_eq!((stage.repairs, stage.mended), (1, 1), "{stage:?}");
}

#[test]
fn files_and_stretches_of_a_database() {
    let (seed, clock) = (seed(), Stopwatch::start());
    let mut dice = Dice::new(seed);
    let mut stage = RepairStage::default();
    for patient in [closed(), killed()] {
        stage.add(coarse_damage(&patient, 60 * effort(), &mut dice));
        stage.add(several_places(&patient, 60 * effort(), &mut dice));
    }
    conclude("files cut, removed, overwritten", &stage, seed, &clock);
    assert!(stage.gave_up > 20, "{stage:?}");
}

#[test]
fn whatever_a_crash_left() {
    let (seed, clock) = (seed(), Stopwatch::start());
    let mut dice = Dice::new(seed);
    let mut stage = RepairStage::default();
    for workload in &WORKLOADS {
        let sim = SimEnv::new(seed);
        let mut driver = workload.run(&sim, false);
        let images = [KeepAll, DropAll].map(|choice| sim.crash_image(&choice));
        driver.finish();
        for (image, killed) in images.into_iter().zip([true, false]) {
            let name = format!("{}, killed: {killed}", workload.name);
            let patient = Patient::of(&name, &driver, image, false, killed);
            let share = 4 * (workload.one_in() as u64).pow(2) - 3;
            stage.add(flip_bytes(&patient, one_in(80 * share), &mut dice));
            stage.add(coarse_damage(&patient, 6 * effort(), &mut dice));
            stage.add(several_places(&patient, 6 * effort(), &mut dice));
        }
    }
    conclude("after crashes", &stage, seed, &clock);
    assert!(stage.gave_up > 100, "{stage:?}");
}

#[test]
fn what_a_repair_shows_survives_a_power_cut() {
    let clock = Stopwatch::start();
    let stage = repair_what_is_only_cached();
    conclude("only cached", &stage, 0, &clock);
    assert!(stage.mended > 3, "blocks moved out of the cache: {stage:?}");
}

#[test]
fn a_failed_call_of_a_repair() {
    let (seed, clock) = (seed(), Stopwatch::start());
    let mut dice = Dice::new(seed);
    let mut stage = RepairStage::default();
    for patient in [closed(), killed()] {
        for damaged in patient.damaged_everywhere(&mut dice) {
            stage.add(fail_repair(&patient, &damaged));
        }
    }
    conclude("failed calls of repairs", &stage, seed, &clock);
    assert!(stage.errors > 300, "{stage:?}");
}

#[test]
fn reads_that_fail_for_good() {
    let clock = Stopwatch::start();
    let mut stage = RepairStage::default();
    for patient in [closed(), killed()].iter().chain(&of_one_checkpoint()) {
        stage.add(fail_reads(patient));
    }
    conclude("reads that fail", &stage, 0, &clock);
    assert!(stage.errors > 100 && stage.mended > 100, "{stage:?}");
}

#[test]
fn readers_that_came_too_late_are_told_so_after_a_repair_as_well() {
    let [before, after] = floors_around_repair();
    assert!(before > (0, 0), "nothing was collected");
    assert!(after >= before, "{before:?} became {after:?}");
}

#[test]
fn a_crash_of_a_repair() {
    let (seed, clock) = (seed(), Stopwatch::start());
    let mut dice = Dice::new(seed);
    let mut stage = RepairStage::default();
    for patient in [closed(), killed()] {
        for damaged in patient.damaged_everywhere(&mut dice) {
            stage.add(crash_repair(&patient, &damaged, 4 * effort(), &mut dice));
        }
    }
    conclude("crashes of repairs", &stage, seed, &clock);
    assert!(stage.repairs > 500, "{stage:?}");
}

/// Makes a table and a checkpoint, applies `change`, and makes another table of the first one's name. Then damages each index page
/// of the first table in a copy of its own, repairs the copy, and returns the reports.
#[expect(clippy::expect_used, reason = "a step that fails is a test that fails")]
fn reports_of_lost_pages(change: impl Fn(&mut Driver)) -> Vec<RepairReport> {
    let sim = SimEnv::new(3);
    let mut shape = Shape::new(4096, 16);
    shape.page_entries = 16;
    let options = shape.options.clone();
    let mut db = Driver::start(&sim, shape, false);
    db.create("first");
    for k in 0..60 {
        db.append_group("first", k * 50..k * 50 + 50, Disk);
    }
    db.checkpoint();
    let before = sim.crash_image(&KeepAll);
    let pages = Patient::of("before", &db, before, false, true).pages;
    // Else the removal of what was dropped would write checkpoints without the table.
    let held = db.toy().expect("open").kernel.snapshot();
    change(&mut db);
    db.create("first");
    db.append_group("first", 90_000..90_100, Disk);
    let image = sim.crash_image(&KeepAll);
    drop(held);
    db.finish();
    let mut reports = Vec::new();
    for page in pages {
        let image = image.crash_image(&KeepAll);
        let path = Path::new(DIR).join(segment_name(page.file));
        let middle = page.offset + u64::from(page.bytes) / 2;
        // Else of the checkpoint of the opening that has looked for pages.
        if image.overwrite_file(&path, middle, &[0x77, 0x78]).is_ok() {
            let report = repair(&image.env(), Path::new(DIR), &options, &mut |_| {});
            reports.push(report.expect("one damaged page"));
        }
    }
    reports
}

#[test]
fn what_is_given_up_is_listed_under_the_last_name_of_its_table() {
    let mut listed = 0;
    for report in reports_of_lost_pages(|db| db.rename("first", "moved")) {
        let damage = report.given_up.iter().chain(&report.mended);
        for damage in damage.filter(|damage| damage.table.is_some()) {
            assert_eq!(damage.table.as_deref(), Some("moved"), "{damage}");
            listed += 1;
        }
    }
    assert!(listed > 0, "no page is lost");
}

#[test]
fn nothing_is_given_up_of_a_table_that_was_dropped() {
    let mut mended = 0;
    for report in reports_of_lost_pages(|db| db.drop_table("first")) {
        assert!(report.given_up.is_empty(), "{:?}", report.given_up);
        let of_table = |damage: &&Damage| damage.table.is_some();
        assert_eq!(report.mended.iter().find(of_table), None);
        mended += report.mended.len();
    }
    assert!(mended > 0, "no page is lost");
}
