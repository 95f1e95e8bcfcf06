//! Checkpoints as `docs/format/log.md` describes their bytes, without the kernel's code: where they lie, what they build on,
//! and what damage to each of them costs.
//!
//! Invariant: whichever byte of the head or the INDEX section of one checkpoint is damaged, whether it is a full one or a
//! difference, wherever a crash came before it and whatever was written since, a repair ends, no row is lost, and none is
//! reported as lost.

use crate::checkpoint_frames::{CheckpointFrame, Place, checkpoints_of, named_by_slots};
use crate::damage::{End, open_and_read};
use crate::driver::Driver;
use crate::files::files_of;
use crate::oracle::{Contents, Violation, contents_of, difference};
use crate::repair::{Patient, RepairStage, Repaired, repair_and_check};
use crate::shape::{DIR, Shape};
use crate::workloads::{Workload, long_names};
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::path::Path;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::Durability;

/// The results of damage to checkpoints.
#[derive(Debug, Default)]
pub struct CheckpointStage {
    /// The repairs.
    pub repaired: RepairStage,
    /// Full checkpoints that were damaged.
    pub full: u64,
    /// Of them, those that a checkpoint builds on which a slot of the root names.
    pub bases: u64,
    /// Differences that were damaged.
    pub differences: u64,
}

impl CheckpointStage {
    /// Adds another stage to this one.
    pub fn add(&mut self, other: Self) {
        self.repaired.add(other.repaired);
        self.full += other.full;
        self.bases += other.bases;
        self.differences += other.differences;
    }
}

/// Damages each checkpoint of a database, one byte of it at a time: all bytes of its head, one in `step` of its sections.
pub fn damage_checkpoints(patient: &Patient, step: usize) -> CheckpointStage {
    let mut stage = CheckpointStage::default();
    let files = files_of(&patient.sim);
    let checkpoints = checkpoints_of(&files);
    let slots: BTreeSet<Place> = named_by_slots(&patient.sim)
        .into_iter()
        .map(|slot| slot.1)
        .collect();
    let needed: BTreeSet<Place> = (checkpoints.iter())
        .filter(|checkpoint| slots.contains(&checkpoint.place))
        .filter_map(|checkpoint| checkpoint.base)
        .collect();
    for (number, checkpoint) in checkpoints.iter().enumerate() {
        match checkpoint.base {
            Some(_) => stage.differences += 1,
            None => stage.full += 1,
        }
        stage.bases += u64::from(needed.contains(&checkpoint.place));
        // Other bytes of each.
        let sampled = |section: &Range<usize>| {
            let first = section.start + number % step;
            (first..section.end).step_by(step)
        };
        let whole = checkpoint.head.clone().chain(sampled(&checkpoint.index));
        for (at, keeps_all) in whole
            .map(|at| (at, true))
            .chain(sampled(&checkpoint.pages).map(|at| (at, false)))
        {
            let image = patient.image();
            let new = files[&checkpoint.path][at] ^ (1 << (at % 8));
            image
                .overwrite_file(&checkpoint.path, at as u64, &[new])
                .expect("a segment");
            let what = format!(
                "byte {at} of {}, of the checkpoint at {:?}",
                checkpoint.path.display(),
                checkpoint.place
            );
            let lost = match stage.repaired.run(patient, &image, &what) {
                Some(Repaired::Error(error)) => error,
                Some(Repaired::Done(_, contents)) if keeps_all && contents != patient.contents => {
                    difference(&patient.contents, &contents)
                }
                Some(Repaired::Done(report, _)) if keeps_all && !report.given_up.is_empty() => {
                    format!("nothing is lost, but {:?} is given up", report.given_up)
                }
                _ => continue,
            };
            let violation = format!("{}: {what}: {lost}", patient.name);
            stage.repaired.violations.push(violation);
            if stage.repaired.violations.len() >= 5 {
                return stage;
            }
        }
    }
    stage
}

/// Bytes that a disk loses together.
const SECTOR_BYTES: usize = 4096;

/// Damages each sector of the checkpoints that the slots of the root need, all of its bytes. Whatever else lies there, nothing
/// is lost: but for sectors with index pages, which other pages and blocks do not repeat. Returns how many were damaged.
pub fn damage_sectors(patient: &Patient) -> (u64, Vec<Violation>) {
    let (files, needed) = (files_of(&patient.sim), needed_by_slots(&patient.sim));
    let has_pages = |path: &Path, sector: &Range<usize>| {
        let overlaps = |pages: &Range<usize>| {
            !pages.is_empty() && pages.start < sector.end && sector.start < pages.end
        };
        checkpoints_of(&files)
            .iter()
            .any(|found| found.path == path && overlaps(&found.pages))
    };
    let sectors = needed.iter().flat_map(|checkpoint| {
        let (first, end) = (checkpoint.head.start, checkpoint.index.end);
        let starts = (first / SECTOR_BYTES * SECTOR_BYTES..end).step_by(SECTOR_BYTES);
        starts.map(|start| (checkpoint.path.clone(), start..start + SECTOR_BYTES))
    });
    let sectors: HashSet<_> = sectors.filter(|(path, at)| !has_pages(path, at)).collect();
    let mut violations = Vec::new();
    for (path, sector) in &sectors {
        let image = patient.image();
        // Zeros past the end of the log stay: they were never written.
        let used = files[path].iter().rposition(|byte| *byte != 0);
        let used = used.map_or(0, |last| last + 1);
        let old = &files[path][sector.start..sector.end.min(used)];
        let new: Vec<u8> = old.iter().map(|byte| byte ^ 0xA5).collect();
        let changed = image.overwrite_file(path, sector.start as u64, &new);
        changed.expect("a segment");
        let lost = match rows_after_repair(&patient.shape, &image) {
            Ok(rows) if rows == patient.contents => continue,
            Ok(rows) => difference(&patient.contents, &rows),
            Err(violation) => violation,
        };
        let place = format!("{} at {}", path.display(), sector.start);
        violations.push(format!("{}, sector of {place}: {lost}", patient.name));
    }
    (sectors.len() as u64, violations)
}

/// A database of many tables with so many checkpoints after the last removal of files: nothing else names the tables.
pub fn with_differences(checkpoints: i64, is_closed: bool) -> Patient {
    let sim = SimEnv::new(31);
    let mut db = Driver::start(&sim, Shape::new(131_072, 8), false);
    let names = long_names();
    db.create_all(&names);
    db.create("dropped");
    db.append_group("dropped", 0..2_000, Durability::Process);
    db.drop_table("dropped");
    db.collect();
    for round in 0..checkpoints {
        db.append(&names[3], [round], Durability::Disk);
        db.checkpoint();
    }
    if is_closed {
        db.close();
    } else {
        db.append(&names[4], [1, 2], Durability::Disk);
    }
    let image = sim.crash_image(&CrashChoice::KeepAll);
    db.finish();
    let name = format!("{checkpoints} checkpoints, closed: {is_closed}");
    Patient::of(&name, &db, image, is_closed, true)
}

/// The checkpoints that the slots of the root need.
pub fn needed_by_slots(image: &SimEnv) -> Vec<CheckpointFrame> {
    let slots: Vec<Place> = named_by_slots(image)
        .into_iter()
        .map(|slot| slot.1)
        .collect();
    let all = checkpoints_of(&files_of(image));
    let named = all.iter().filter(|found| slots.contains(&found.place));
    let needed: BTreeSet<Place> = named
        .flat_map(|found| [Some(found.place), found.base])
        .flatten()
        .collect();
    let is_needed = |found: &CheckpointFrame| needed.contains(&found.place);
    all.into_iter().filter(is_needed).collect()
}

/// A copy with one byte of an INDEX section changed.
pub fn damaged(image: &SimEnv, checkpoint: &CheckpointFrame) -> SimEnv {
    damaged_at(
        image,
        checkpoint,
        checkpoint.index.start + checkpoint.index.len() / 2,
    )
}

/// A copy with one byte of a header changed: nothing in the log shows any more that a checkpoint was there.
pub fn without_head(image: &SimEnv, checkpoint: &CheckpointFrame) -> SimEnv {
    damaged_at(image, checkpoint, checkpoint.head.start + 25)
}

fn damaged_at(image: &SimEnv, checkpoint: &CheckpointFrame, at: usize) -> SimEnv {
    let copy = image.crash_image(&CrashChoice::KeepAll);
    let old = copy.read_file(&checkpoint.path).expect("a segment")[at];
    let changed = copy.overwrite_file(&checkpoint.path, at as u64, &[old ^ 0x10]);
    changed.expect("a segment");
    copy
}

/// Repairs an image without loss; returns the rows that it shows then.
///
/// # Errors
/// A message with what it gave up, or why it ended.
pub fn rows_after_repair(shape: &Shape, image: &SimEnv) -> Result<Contents, Violation> {
    match repair_and_check(shape, image)? {
        Repaired::Done(report, rows) if report.given_up.is_empty() => Ok(rows),
        Repaired::Done(report, _) => Err(format!("gave up {:?}", report.given_up)),
        Repaired::Error(error) => Err(error),
    }
}

/// Stops a workload at every call, in the process or by a power cut; then one checkpoint is damaged of those that a slot of
/// the root needs. Returns how many databases were repaired, of them those of which a base was damaged.
pub fn crash_then_damage(workload: &Workload, seed: u64) -> (u64, u64, Vec<Violation>) {
    let sim = SimEnv::new(seed);
    sim.record_states(true);
    let mut driver = workload.run(&sim, false);
    let (shape, mut seen) = (workload.shape(), HashSet::new());
    let prefixes = driver.ledger.prefixes();
    let (mut repairs, mut of_bases, mut violations) = (0, 0, Vec::new());
    for call in 1..=sim.calls() {
        let Some(state) = sim.state_at(call) else {
            continue;
        };
        let submitted = driver.ledger.bounds_at(call).submitted;
        for choice in [
            CrashChoice::Kill,
            CrashChoice::KeepAll,
            CrashChoice::DropAll,
        ] {
            let image = state.crash_image(&choice);
            if !seen.insert(image.content_hash()) {
                continue;
            }
            let whole = image.crash_image(&CrashChoice::Kill);
            let want = match open_and_read(&shape, &whole, false) {
                End::Rows(want) => want,
                // There is no database yet.
                _ => continue,
            };
            let of_image = |checkpoint| {
                [
                    damaged(&image, &checkpoint),
                    without_head(&image, &checkpoint),
                ]
                .map(|damaged| (checkpoint.clone(), damaged))
            };
            for (checkpoint, damaged) in needed_by_slots(&image).into_iter().flat_map(of_image) {
                repairs += 1;
                of_bases += u64::from(checkpoint.base.is_none());
                // More than without the damage can be there: what the epoch that a crash has cut short took over, and an
                // opening would not have.
                let lost = match rows_after_repair(&shape, &damaged) {
                    Ok(rows) if prefixes.go_on(&want, &rows, submitted) => continue,
                    Ok(rows) => difference(&want, &rows),
                    Err(violation) => violation,
                };
                violations.push(format!(
                    "workload '{}', {choice:?} at call {call}, checkpoint at {:?}: {lost}",
                    workload.name, checkpoint.place
                ));
                if violations.len() >= 5 {
                    return (repairs, of_bases, violations);
                }
            }
        }
    }
    driver.finish();
    (repairs, of_bases, violations)
}

/// A checkpoint or a slot of the root is damaged, nobody notices, and more checkpoints are written, as many as `more`; with
/// `collect` files are removed then. A database that does not open after that is repaired. Returns how many were opened and
/// how many repaired.
pub fn damage_then_go_on(
    patient: &Patient,
    more: i64,
    collect: bool,
) -> (u64, u64, Vec<Violation>) {
    let (mut opened, mut repaired, mut violations) = (0, 0, Vec::new());
    let checkpoints = needed_by_slots(&patient.sim).into_iter();
    let damage = checkpoints.map(|found| (found.place, damaged(&patient.sim, &found)));
    let slots = [0, 4096].map(|slot| {
        let image = patient.image();
        let changed = image.overwrite_file(&Path::new(DIR).join("root"), slot, &[0xAA; 4096]);
        changed.expect("a root");
        ((0, slot), image)
    });
    for (place, image) in damage.chain(slots) {
        let go_on = || -> Result<(Contents, bool), Violation> {
            let Ok(toy) = patient.shape.open(&image.env()) else {
                return Ok((patient.contents.clone(), false));
            };
            let failed = |e| format!("going on: {e:?}");
            let table = toy.create("new").map_err(failed)?;
            for key in 0..more {
                let rows = [(key, (1 << 40) + key)];
                toy.append(table, &rows, Durability::Disk).map_err(failed)?;
                toy.kernel.checkpoint().map_err(failed)?;
            }
            if collect {
                toy.kernel.collect_garbage().map_err(failed)?;
            }
            Ok((contents_of(&toy)?.1, true))
        };
        let judged = go_on().and_then(|(want, was_open)| {
            let left = image.crash_image(&CrashChoice::DropAll);
            match open_and_read(&patient.shape, &left, false) {
                End::Rows(rows) if rows == want => opened += 1,
                End::Rows(rows) => return Err(difference(&want, &rows)),
                End::Panic(text) => return Err(text),
                End::Error(error) if was_open && collect => return Err(error),
                End::Error(_) => {
                    repaired += 1;
                    let rows = rows_after_repair(&patient.shape, &left)?;
                    if rows != want {
                        return Err(difference(&want, &rows));
                    }
                }
            }
            Ok(())
        });
        let place = format!("{}, {more} more, {place:?} damaged", patient.name);
        violations.extend(
            judged
                .err()
                .map(|violation| format!("{place}: {violation}")),
        );
    }
    (opened, repaired, violations)
}
