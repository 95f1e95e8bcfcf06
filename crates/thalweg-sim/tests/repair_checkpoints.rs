//! Repairs beside checkpoints that were cut short: by a power cut, by a kill, by a full disk.
#![expect(clippy::expect_used, reason = "a step that fails is a test that fails")]

use std::path::{Path, PathBuf};
use thalweg_env::sim::{CrashChoice, FaultPlan, SimEnv};
use thalweg_kernel::Durability::{Disk, Process};
use thalweg_kernel::paths::segment_name;
use thalweg_kernel::repair::{RepairReport, repair};
use thalweg_kernel::verify::Damage;
use thalweg_kernel::{ErrorKind, FileId, Result, TableId};
use thalweg_sim::driver::Driver;
use thalweg_sim::oracle::contents_of;
use thalweg_sim::shape::{DIR, Shape};
use thalweg_sim::toy::Row;

const SLOT_BYTES: usize = 4096;

/// The checkpoint that the root names: its segment, and where it lies there.
fn newest_checkpoint(image: &SimEnv) -> (PathBuf, std::ops::Range<u64>) {
    let root = image.read_file(&Path::new(DIR).join("root"));
    let root = root.expect("a root");
    let field = |slot: usize, at: usize| {
        let bytes = root[slot * SLOT_BYTES + at..][..8].try_into();
        u64::from_le_bytes(bytes.expect("eight bytes"))
    };
    let slot = (0..2).max_by_key(|slot| field(*slot, 32)).expect("slots");
    let (at, bytes) = (field(slot, 56), field(slot, 64) & u64::from(u32::MAX));
    let path = Path::new(DIR).join(segment_name(FileId(field(slot, 48))));
    (path, at..at + bytes)
}

fn repair_once(shape: &Shape, image: &SimEnv) -> Result<RepairReport> {
    repair(&image.env(), Path::new(DIR), &shape.options, &mut |_| {})
}

fn rows(shape: &Shape, image: &SimEnv) -> std::result::Result<Vec<Row>, String> {
    let toy = shape.open_read_only(&image.env());
    let toy = toy.map_err(|e| format!("{e:?}"))?;
    let snapshot = toy.kernel.snapshot().map_err(|e| format!("{e:?}"))?;
    let table = snapshot.table_named("t").ok_or("no table")?;
    toy.rows(table.id).map_err(|e| format!("{e:?}"))
}

/// A power cut in a checkpoint behind commits that were not synced: what it leaves of the checkpoint must not count later, when
/// the first one of the next epoch is damaged.
#[test]
fn a_repair_starts_from_no_checkpoint_whose_commits_a_power_cut_took() {
    let (mut repairs, mut cut_short) = (0, 0);
    for seed in 0..4 {
        let sim = SimEnv::new(seed);
        let mut db = Driver::start(&sim, Shape::new(1 << 16, 16), false);
        let shape = db.shape().clone();
        db.create("t");
        // So much that its segment stays.
        db.append_group("t", 0..3400, Disk);
        db.checkpoint();
        for key in [100, 200, 300] {
            db.append("t", key..key + 3, Process);
        }
        let before = sim.calls();
        sim.record_states(true);
        db.checkpoint();
        for call in before + 1..=sim.calls() {
            let Some(state) = sim.state_at(call) else {
                continue;
            };
            let pending = state.pending_items().len().min(60);
            let all = (1_u64 << pending) - 1;
            let mut choices = state.crash_choices(24, 12, seed * 1_000 + call);
            choices.extend((1..pending).flat_map(|lost| {
                let first = all & !((1 << lost) - 1);
                [first, all & !(1 << lost)].map(CrashChoice::Mask)
            }));
            for choice in choices {
                let image = state.crash_image(&choice);
                let toy = shape.open(&image.env()).expect("recovered");
                let snapshot = toy.kernel.snapshot().expect("open");
                let table = snapshot.table_named("t").expect("stored").id;
                cut_short += usize::from(toy.rows(table).expect("whole").len() < 3_409);
                for key in 0..5 {
                    let stored = toy.append(table, &[(9_000 + key, 900_000 + key)], Disk);
                    stored.expect("room");
                }
                let want = toy.rows(table).expect("whole");
                let killed = image.crash_image(&CrashChoice::KeepAll);
                let (path, place) = newest_checkpoint(&killed);
                for at in [place.start + 9, place.end - 9] {
                    let damaged = killed.crash_image(&CrashChoice::KeepAll);
                    let written = damaged.overwrite_file(&path, at, &[0x5A]);
                    written.expect("a checkpoint");
                    repairs += 1;
                    let report = repair_once(&shape, &damaged);
                    let found = rows(&shape, &damaged);
                    assert!(
                        found.as_ref().ok() == Some(&want),
                        "seed {seed}, call {call}, {choice:?}, byte {at}: {} rows stored, found {:?}; {report:?}",
                        want.len(),
                        found.map(|rows| rows.len()),
                    );
                }
            }
        }
        db.finish();
    }
    assert!(repairs > 500 && cut_short > 20, "{repairs}, {cut_short}");
}

/// What is damaged of a killed database.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Root,
    Checkpoint,
}

/// A process that is killed may leave a checkpoint in the cache only. A repair that starts from it shows nothing that a power cut
/// takes back.
#[test]
fn what_a_repair_shows_of_a_checkpoint_that_was_not_synced_survives_a_power_cut() {
    let mut repairs = 0;
    for (level, lost) in [Process, Disk]
        .into_iter()
        .flat_map(|level| [(level, Lost::Root), (level, Lost::Checkpoint)])
    {
        let sim = SimEnv::new(3);
        let mut db = Driver::start(&sim, Shape::new(1 << 17, 16), false);
        let shape = db.shape().clone();
        db.create("t");
        db.append_group("t", 0..40, Disk);
        db.checkpoint();
        for k in 1..6 {
            db.append_group("t", k * 100..k * 100 + 40, level);
        }
        let before = sim.calls();
        sim.record_states(true);
        db.checkpoint();
        for call in before + 1..=sim.calls() {
            let Some(state) = sim.state_at(call) else {
                continue;
            };
            let image = state.crash_image(&CrashChoice::Kill);
            // As a disk damages what lies on it: with no word to the cache, which keeps the rest as it was.
            let damaged = match lost {
                Lost::Root => {
                    let root = Path::new(DIR).join("root");
                    image.overwrite_file(&root, 0, &[0xAA; 2 * SLOT_BYTES])
                }
                Lost::Checkpoint => {
                    let (path, place) = newest_checkpoint(&image);
                    image.overwrite_file(&path, place.end - 9, &[0x5A])
                }
            };
            damaged.expect("a file");
            repairs += 1;
            let report = repair_once(&shape, &image).expect("something is left");
            let shown = rows(&shape, &image).expect("repaired");
            for choice in [CrashChoice::DropAll, CrashChoice::KeepAll] {
                let left = rows(&shape, &image.crash_image(&choice));
                assert_eq!(
                    left.as_ref(),
                    Ok(&shown),
                    "{lost:?}, {level:?}, call {call}, {choice:?}: {report:?}"
                );
            }
        }
        db.finish();
    }
    assert!(repairs > 12, "{repairs}");
}

/// However often a repair finds the disk full, the room that one needs is enough for the last.
#[test]
fn a_repair_that_finds_no_room_leaves_it_as_it_was() {
    let sim = SimEnv::new(5);
    let mut db = Driver::start(&sim, Shape::new(1 << 18, 16), false);
    let shape = db.shape().clone();
    let names: Vec<String> = (0..8).map(|nth| format!("t{nth}")).collect();
    db.create_all(&names);
    for name in &names {
        db.append_group(name, 0..1_400, Disk);
    }
    db.close();
    let closed = sim.crash_image(&CrashChoice::KeepAll);
    let files = closed.files().into_iter().map(|(path, _)| path);
    let segments = files.filter(|path| path.extension().is_some_and(|e| e == "seg"));
    let mut refused = 0;
    for segment in segments {
        let damaged = closed.crash_image(&CrashChoice::KeepAll);
        let written = damaged.overwrite_file(&segment, 20, &[0x5A, 0x33]);
        written.expect("a header");
        let used_bytes = damaged.used_bytes();
        let with_room = damaged.crash_image(&CrashChoice::KeepAll);
        let report = repair_once(&shape, &with_room).expect("room");
        if report.moved_blocks == 0 {
            continue;
        }
        let needed_bytes = with_room.used_bytes() - used_bytes;
        for room_bytes in [needed_bytes / 2, needed_bytes * 9 / 10] {
            let image = damaged.crash_image(&CrashChoice::KeepAll);
            image.set_quota(Some(used_bytes + room_bytes));
            for _ in 0..4 {
                match repair_once(&shape, &image) {
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::DiskFull, "{error:?}");
                        assert_eq!(image.used_bytes(), used_bytes, "{segment:?}: {error:?}");
                        refused += 1;
                    }
                    Ok(_) => break,
                }
            }
            image.set_quota(Some(used_bytes + needed_bytes + needed_bytes / 20));
            let repaired = repair_once(&shape, &image);
            repaired.unwrap_or_else(|e| panic!("{segment:?}, with room for one: {e:?}"));
        }
    }
    assert!(refused >= 8, "{refused} refused");
    db.finish();
}

/// Killed at any call, a repair leaves to the next one all that `verify` finds, also where readers go by the slot of the root that
/// was not written yet.
#[test]
fn a_repair_that_is_killed_is_finished_by_the_next() {
    let sim = SimEnv::new(7);
    let mut db = Driver::start(&sim, Shape::new(1 << 16, 16), false);
    let shape = db.shape().clone();
    db.create("t");
    db.append_group("t", 0..300, Disk);
    db.checkpoint();
    db.append("t", 400..403, Disk);
    let killed = sim.crash_image(&CrashChoice::Kill);
    db.finish();
    let (path, place) = newest_checkpoint(&killed);
    let damage = |at: u64| {
        let damaged = killed.crash_image(&CrashChoice::Kill);
        let written = damaged.overwrite_file(&path, at, &[0x5A]);
        written.expect("a segment");
        damaged
    };
    let mut mended = 0;
    // In a block, and in the checkpoint.
    for at in [place.start / 2, place.end - 9] {
        let whole = damage(at);
        let before = whole.calls();
        repair_once(&shape, &whole).expect("repaired");
        for call in 1..=whole.calls() - before {
            let image = damage(at);
            image.set_plan(FaultPlan::crash_at(image.calls() + call));
            if repair_once(&shape, &image).is_ok() {
                continue;
            }
            let image = image.crash_image(&CrashChoice::Kill);
            let second = repair_once(&shape, &image).expect("repaired");
            mended += usize::from(!second.is_clean());
            let reader = shape.open_read_only(&image.env()).expect("whole");
            let found = reader.kernel.verify(&mut |_| {}).expect("readable");
            assert!(
                found.damage.is_empty(),
                "byte {at}, killed at call {call}: {second:?}, then {:?}",
                found.damage
            );
        }
    }
    assert!(mended > 20, "{mended}");
}

/// Commits of other tables lie behind a damaged frame: none of them rests on it, those that make tables included.
#[test]
fn tables_that_are_made_behind_a_damaged_frame_stay() {
    let sim = SimEnv::new(8);
    let mut db = Driver::start(&sim, Shape::new(1 << 16, 16), false);
    let shape = db.shape().clone();
    db.create("first");
    for key in 0..4 {
        db.append("first", [key], Disk);
    }
    let names = ["a", "b", "t"];
    for (name, first) in names.into_iter().zip([100, 200, 300]) {
        db.create(name);
        db.append(name, first..first + 5, Disk);
        db.append_group(name, first + 10..first + 40, Disk);
    }
    let killed = sim.crash_image(&CrashChoice::KeepAll);
    db.finish();
    let (path, _) = newest_checkpoint(&killed);
    let bytes = killed.read_file(&path).expect("a segment");
    let magic = bytes.windows(4).enumerate();
    let frames: Vec<u64> = magic
        .filter(|(_, at)| at == b"TFRM")
        .map(|(at, _)| at as u64)
        .collect();
    // The checkpoint of the empty database, then one frame for each commit: of the first table are five.
    let mut gave_up = 0;
    for frame in &frames[1..6] {
        // Its head, where nothing tells that it is an append.
        let damaged = killed.crash_image(&CrashChoice::KeepAll);
        let written = damaged.overwrite_file(&path, frame + 20, &[0x5A]);
        written.expect("a frame");
        let report = repair_once(&shape, &damaged).expect("repaired");
        gave_up += report.given_up.len();
        let toy = shape.open_read_only(&damaged.env()).expect("whole");
        let snapshot = toy.kernel.snapshot().expect("whole");
        for name in names {
            let table = snapshot.table_named(name);
            let table = table.unwrap_or_else(|| panic!("{name} is gone: {report:?}"));
            assert_eq!(toy.rows(table.id).expect("whole").len(), 35, "{name}");
        }
        // No number of a table that may be lost is used again.
        let before = snapshot.tables().map(|table| table.id).max();
        drop((snapshot, toy));
        let toy = shape.open(&damaged.env()).expect("whole");
        let next = toy.create("next").expect("room");
        assert!(Some(next) > before && next != TableId(1), "{next:?}");
    }
    assert!(gave_up >= 5, "{gave_up}");
}

/// An opening that is killed between the two slots of the root leaves nothing to repair.
#[test]
fn an_opening_that_is_killed_leaves_nothing_to_repair() {
    let sim = SimEnv::new(7);
    let mut db = Driver::start(&sim, Shape::new(1 << 16, 16), false);
    let shape = db.shape().clone();
    db.create("t");
    db.append_group("t", 0..300, Disk);
    db.checkpoint();
    db.append("t", 400..403, Process);
    let killed = sim.crash_image(&CrashChoice::Kill);
    db.finish();
    let open = |image: &SimEnv| {
        let toy = shape.open(&image.env())?;
        let table = toy.kernel.snapshot()?.table_named("t").expect("stored").id;
        toy.append(table, &[(999, 999)], Disk)
    };
    let whole = killed.crash_image(&CrashChoice::Kill);
    let before = whole.calls();
    open(&whole).expect("no faults");
    let calls = whole.calls() - before;
    for call in 1..=calls {
        let image = killed.crash_image(&CrashChoice::Kill);
        image.set_plan(FaultPlan::crash_at(image.calls() + call));
        let _ = open(&image);
        let image = image.crash_image(&CrashChoice::Kill);
        let report = repair_once(&shape, &image).expect("whole");
        assert!(report.is_clean(), "killed at call {call}: {report:?}");
    }
    assert!(calls > 20, "{calls}");
}

/// Where all checkpoints of a log begin.
fn checkpoints_of(image: &SimEnv) -> Vec<(PathBuf, usize)> {
    let mut checkpoints = Vec::new();
    let files = image.files().into_iter().map(|(path, _)| path);
    for path in files.filter(|path| path.extension().is_some_and(|e| e == "seg")) {
        let bytes = image.read_file(&path).expect("a segment");
        let begins = |at: &usize| {
            // Its first section is the index, or the pages of it.
            &bytes[*at..*at + 4] == b"TFRM" && matches!(bytes[*at + 64], 6 | 7)
        };
        let places = (0..bytes.len() - 80).filter(begins);
        checkpoints.extend(places.map(|at| (path.clone(), at)));
    }
    checkpoints
}

/// All checkpoints but an old one are damaged. That needs a file which was removed since, because a later commit had dropped or replaced
/// all that it was needed for: nothing is lost, and nothing is missed.
#[test]
fn a_file_that_was_removed_since_is_not_missed() {
    for is_dropped in [false, true] {
        let sim = SimEnv::new(35);
        let mut shape = Shape::new(1 << 15, 16);
        shape.page_entries = 16;
        let mut db = Driver::start(&sim, shape.clone(), false);
        db.create("gone");
        db.create("t");
        for k in 0..6 {
            db.append_group("gone", k * 40..k * 40 + 40, Disk);
        }
        db.checkpoint();
        let mut next = 0;
        let mut grow = |db: &mut Driver| {
            for _ in 0..45 {
                db.append_group("t", next..next + 200, Disk);
                next += 200;
            }
        };
        grow(&mut db);
        db.checkpoint();
        grow(&mut db);
        match is_dropped {
            true => db.drop_table("gone"),
            false => db.merge("gone"),
        }
        for _ in 0..2 {
            grow(&mut db);
            db.checkpoint();
        }
        grow(&mut db);
        db.collect();
        let want = db.visible().expect("open").expect("whole").1;
        let image = sim.crash_image(&CrashChoice::KeepAll);
        db.finish();
        let first = Path::new(DIR).join(segment_name(FileId(2)));
        assert!(image.read_file(&first).is_err(), "nothing was removed");
        let checkpoints = checkpoints_of(&image);
        for (path, at) in &checkpoints[1..] {
            let written = image.overwrite_file(path, *at as u64 + 20, &[0x5A]);
            written.expect("a checkpoint");
        }
        let report = repair_once(&shape, &image).expect("a checkpoint is left");
        let toy = shape.open_read_only(&image.env()).expect("whole");
        let found = contents_of(&toy).expect("whole").1;
        assert!(found == want, "{report:?}");
        assert_eq!(report.given_up, [], "{report:?}");
        let is_missing = |damage: &&Damage| damage.what.contains("missing");
        assert_eq!(report.mended.iter().find(is_missing), None, "{report:?}");
    }
}
