//! Repairs of what earlier repairs and recoveries have left: blocks that were moved, frames behind a torn end, ids of lost files.
#![expect(clippy::expect_used, reason = "a step that fails is a test that fails")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use thalweg_env::OpenMode;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::Durability::{Disk, Process};
use thalweg_kernel::index::Step;
use thalweg_kernel::repair::{RepairReport, repair};
use thalweg_sim::driver::Driver;
use thalweg_sim::oracle::{Contents, contents_of};
use thalweg_sim::report::say;
use thalweg_sim::shape::{DIR, Shape};

fn repair_once(shape: &Shape, image: &SimEnv) -> RepairReport {
    let report = repair(&image.env(), Path::new(DIR), &shape.options, &mut |_| {});
    report.expect("something is left")
}

fn contents(shape: &Shape, image: &SimEnv) -> Contents {
    let toy = shape.open_read_only(&image.env()).expect("whole");
    contents_of(&toy).expect("whole").1
}

fn visible(db: &Driver) -> Contents {
    db.visible().expect("open").expect("whole").1
}

fn files(image: &SimEnv, extension: &str) -> Vec<PathBuf> {
    let paths = image.files().into_iter().map(|(path, _)| path);
    let mut found: Vec<PathBuf> = paths
        .filter(|path| path.extension() == Some(OsStr::new(extension)))
        .collect();
    found.sort();
    found
}

fn damage(image: &SimEnv, path: &Path, at: u64) {
    image.overwrite_file(path, at, &[0x5A]).expect("a file");
}

/// The front of a frame.
struct Front {
    path: PathBuf,
    at: u64,
    commit: u64,
    is_checkpoint: bool,
}

fn frames(image: &SimEnv) -> Vec<Front> {
    let mut found = Vec::new();
    for path in files(image, "seg") {
        let bytes = image.read_file(&path).expect("a segment");
        let fronts = bytes.windows(80).enumerate();
        found.extend(
            fronts
                .filter(|(_, front)| &front[..4] == b"TFRM")
                .map(|(at, front)| Front {
                    path: path.clone(),
                    at: at as u64,
                    commit: u64::from_le_bytes(front[8..16].try_into().expect("eight bytes")),
                    is_checkpoint: matches!(front[64], 6 | 7),
                }),
        );
    }
    found
}

/// A place of an index page of a table in a segment of the log.
fn page_in_log(db: &Driver, table: &str) -> (PathBuf, u64) {
    let toy = db.toy().expect("open");
    let store = &**toy.kernel.store();
    let snapshot = toy.kernel.snapshot().expect("open");
    let table = snapshot.table_named(table).expect("a table");
    let mut found = None;
    let visited = table.tree.visit(None, store, &mut |entry| {
        let path = store.segment_path(entry.address.file);
        if !entry.is_block() && db.sim.read_file(&path).is_ok() {
            found.get_or_insert((path, entry.address.offset + 40));
        }
        Step::Descend
    });
    visited.expect("whole");
    found.expect("a page in the log")
}

/// The log of the first repair has no commit that tells of blocks it moved; later ones name the fragment by its first block.
#[test]
fn blocks_that_a_repair_has_moved_are_not_doubled_by_the_next() {
    for (groups, rows) in [(1, 16), (2, 16), (3, 24), (5, 40)] {
        for loses_segment in [false, true] {
            let sim = SimEnv::new(1);
            let mut db = Driver::start(&sim, Shape::new(1 << 16, 8), false);
            let shape = db.shape().clone();
            db.create("t");
            for group in 0..groups {
                db.append_group("t", group * 100..group * 100 + rows, Disk);
            }
            let image = sim.crash_image(&CrashChoice::KeepAll);
            db.finish();
            damage(&image, &files(&image, "seg")[0], 20);
            let first = repair_once(&shape, &image);
            assert!(first.given_up.is_empty(), "{first:?}");
            assert!(first.moved_blocks > 0, "{first:?}");

            let mut db = Driver::start(&image, shape.clone(), false);
            db.rows(0..10_000);
            db.merge("t");
            db.append("t", 5_000..5_003, Disk);
            let stored = visible(&db);
            let image = db.sim.crash_image(&CrashChoice::KeepAll);
            db.finish();
            let behind = &files(&image, "seg")[1..];
            let (last, others) = behind.split_last().expect("two epochs");
            for path in others.iter().filter(|_| loses_segment) {
                image.remove_file(path).expect("a segment");
            }
            for frame in frames(&image) {
                let is_behind =
                    frame.path == *last || (!loses_segment && behind.contains(&frame.path));
                if frame.is_checkpoint && is_behind {
                    damage(&image, &frame.path, frame.at + 20);
                }
            }
            let second = repair_once(&shape, &image);
            let what = format!("{groups} {rows} {loses_segment}: {second:?}");
            let left = contents(&shape, &image);
            let mut keys: Vec<i64> = left["t"].iter().map(|row| row.0).collect();
            let all = keys.len();
            keys.dedup();
            assert_eq!(keys.len(), all, "{what}");
            if second.given_up.is_empty() {
                assert_eq!(left, stored, "{what}");
            }
            assert!(repair_once(&shape, &image).is_clean(), "{what}");
        }
    }
}

/// Where a page of another table is lost, the start that keeps more rows is taken: doubled ones must not count.
#[test]
fn a_start_from_which_rows_are_doubled_does_not_keep_more() {
    for (turns, groups) in [(1, 2), (2, 4), (4, 2)] {
        let sim = SimEnv::new(1);
        let mut db = Driver::start(&sim, Shape::new(8192, 8), false);
        let shape = db.shape().clone();
        for name in ["u", "w", "t"] {
            db.create(name);
        }
        for n in 0..5 {
            db.append_fragment("u", n * 100..n * 100 + 24);
        }
        // The log of that goes.
        for n in 0..40 * turns {
            db.append_group("w", n * 10..n * 10 + 8, Disk);
            if n % 20 == 19 {
                db.merge("w");
                db.checkpoint();
                db.checkpoint();
                db.collect();
            }
        }
        db.reopen();
        for group in 0..groups {
            db.append_group("t", group * 100..group * 100 + 40, Disk);
        }
        db.checkpoint();
        db.append("t", 900..903, Disk);
        let image = db.sim.crash_image(&CrashChoice::KeepAll);
        db.finish();
        damage(&image, files(&image, "seg").last().expect("a log"), 20);
        let first = repair_once(&shape, &image);
        assert!(first.given_up.is_empty(), "{first:?}");

        let mut db = Driver::start(&image, shape.clone(), false);
        db.rows(0..10_000);
        db.merge("t");
        db.append("t", 5_000..5_003, Disk);
        let stored = visible(&db);
        let (page, at) = page_in_log(&db, "u");
        let image = db.sim.crash_image(&CrashChoice::KeepAll);
        db.finish();
        damage(&image, &page, at);
        let second = repair_once(&shape, &image);
        let left = contents(&shape, &image);
        assert_eq!(left["t"], stored["t"], "{second:?}");
        let lost = (stored["u"].len() - left["u"].len()) as u64;
        let listed: u64 = second.given_up.iter().filter_map(|lost| lost.rows).sum();
        assert_eq!(lost, listed, "{second:?}");
    }
}

/// A power cut has torn one frame and left those behind it. The numbers of these were given out again since, with `Disk`; then
/// the checkpoints are damaged that say where the next epoch began.
#[test]
fn frames_behind_a_torn_end_do_not_hide_later_commits() {
    let mut repairs = 0;
    for (kept, new) in [(1, 1), (1, 5), (2, 2), (3, 6), (5, 3)] {
        let sim = SimEnv::new(7);
        let mut db = Driver::start(&sim, Shape::new(1 << 16, 16), false);
        let shape = db.shape().clone();
        db.create("t");
        db.append_group("t", 0..20, Disk);
        let (shown, _) = db.visible().expect("open").expect("whole");
        for n in 0..1 + kept {
            db.append_group("t", 1_000 + n * 100..1_020 + n * 100, Process);
        }
        let choices = sim.crash_choices(40, 4, kept.unsigned_abs());
        let images: Vec<SimEnv> = choices.iter().map(|c| sim.crash_image(c)).collect();
        db.finish();
        for image in images {
            let left = frames(&image);
            let has = |commit| left.iter().any(|f| f.commit == commit && !f.is_checkpoint);
            if has(shown.0 + 1) || !has(shown.0 + 2) {
                continue;
            }
            let torn = left
                .iter()
                .map(|frame| frame.path.clone())
                .max()
                .expect("a log");
            let mut db = Driver::start(&image, shape.clone(), false);
            db.rows(0..10_000);
            // Keeps the log of the epoch before.
            let reader = shape
                .open_read_only(&image.env_of_process(900))
                .expect("whole");
            let held = reader.kernel.snapshot().expect("open");
            for n in 0..new {
                db.append_group("t", 5_000 + n * 100..5_020 + n * 100, Disk);
            }
            db.kill();
            db.append("t", 9_000..9_003, Disk);
            let stored = visible(&db);
            let image = db.sim.crash_image(&CrashChoice::KeepAll);
            drop(held);
            db.finish();
            for frame in frames(&image) {
                let is_lost = !frame.is_checkpoint && frame.commit == shown.0 && frame.path == torn;
                if is_lost || (frame.is_checkpoint && frame.path > torn) {
                    damage(&image, &frame.path, frame.at + 20);
                }
            }
            let report = repair(&image.env(), Path::new(DIR), &shape.options, &mut |_| {});
            // In some the power cut has taken the only other checkpoint.
            let Ok(report) = report else { continue };
            repairs += 1;
            let lost: Vec<_> = report.given_up.iter().map(|lost| lost.commits).collect();
            let mut expected = stored;
            // Unless the next epoch has written it again.
            if !lost.is_empty() {
                assert_eq!(lost, [Some((shown, shown))], "{report:?}");
                let rows = expected.get_mut("t").expect("a table");
                rows.retain(|row| !(0..20).contains(&row.0));
            }
            assert_eq!(contents(&shape, &image), expected, "{report:?}");
        }
    }
    say(format_args!("frames behind a torn end: {repairs} repairs"));
    assert!(repairs > 20, "{repairs}");
}

/// A reader still has the file that is lost, and after the repair somebody finds it and puts it back.
#[test]
fn ids_of_lost_files_are_not_given_out_again() {
    for pieces in 1..4 {
        let sim = SimEnv::new(1);
        let mut db = Driver::start(&sim, Shape::new(8192, 8), false);
        let shape = db.shape().clone();
        db.create("t");
        db.append_group("t", 0..8, Disk);
        db.append_fragment("t", 100..100 + 8 * pieces);
        let image = sim.crash_image(&CrashChoice::KeepAll);
        db.finish();
        let reader = shape
            .open_read_only(&image.env_of_process(900))
            .expect("whole");
        let held = reader.kernel.snapshot().expect("open");
        contents_of(&reader).expect("whole");
        let fragment = files(&image, "frag").pop().expect("a fragment");
        let bytes = image.read_file(&fragment).expect("a fragment");
        image.remove_file(&fragment).expect("a fragment");
        repair_once(&shape, &image);
        let mut db = Driver::start(&image, shape.clone(), false);
        db.rows(0..10_000);
        for n in 0..12 {
            db.append("t", 40_000 + n..40_001 + n, Disk);
            let (_, seen) = contents_of(&reader).expect("the reader is told of no damage");
            assert_eq!(seen, visible(&db));
        }
        drop(held);
        let stored = visible(&db);
        let image = db.sim.crash_image(&CrashChoice::KeepAll);
        db.finish();
        let file = image.env().storage().open(&fragment, OpenMode::CreateNew);
        let file = file.expect("its name is free");
        file.write_all_at(&bytes, 0).expect("room");
        file.sync_all().expect("room");
        assert_eq!(contents(&shape, &image), stored);
        let toy = shape.open(&image.env()).expect("whole");
        assert_eq!(contents_of(&toy).expect("whole").1, stored);
    }
}
