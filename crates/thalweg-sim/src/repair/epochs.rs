//! Repairs where several epochs have the same rows, reads fail for good, or the evidence of an epoch is lost.
//!
//! Invariants: those of the stage.

use super::*;

/// Databases whose newest epoch has one checkpoint (or, where blocks were moved, two of the same commit), with commits of all
/// levels after it and whatever `live` and the epoch before it look like after a crash.
pub fn of_one_checkpoint() -> Vec<Patient> {
    use Durability::{Disk, Process};
    let mut patients = Vec::new();
    let live = Path::new(DIR).join("live");
    let levels = [None, Some(Process), Some(Disk)];
    for (level, with_tail, with_drop) in levels
        .into_iter()
        .flat_map(|level| [(level, false), (level, true)])
        .flat_map(|(level, tail)| [(level, tail, false), (level, tail, true)])
        .filter(|(level, _, with_drop)| level.is_some() || !with_drop)
    {
        let sim = SimEnv::new(27);
        let mut db = Driver::start(&sim, Shape::new(1 << 15, 16), false);
        db.create("t");
        db.create("secret");
        db.append_group("t", 0..40, Disk);
        db.append_group("secret", 0..40, Disk);
        // In use, so that nothing is collected, which makes checkpoints.
        let reader = db.shape().open_read_only(&sim.env_of_process(900));
        let in_use = reader.expect("a reader").kernel.snapshot();
        db.reopen();
        db.append("t", 50..55, Disk);
        db.append_group("t", 60..80, Process);
        db.append("secret", 60..63, Process);
        let old = sim.read_file(&live).expect("a writer");
        if !with_tail {
            db.flush();
        }
        db.kill();
        if let Some(level) = level {
            for k in 2..5 {
                db.append("t", k * 100..k * 100 + 5, level);
                db.append_group("secret", k * 100..k * 100 + 9, level);
            }
            if with_drop {
                db.drop_table("secret");
            }
            db.append("t", 900..903, level);
        }
        let images = [CrashChoice::KeepAll, CrashChoice::DropAll];
        for (image, killed) in images
            .map(|c| sim.crash_image(&c))
            .iter()
            .zip([true, false])
        {
            for said in ["as it was", "old", "absent"] {
                let image = image.crash_image(&CrashChoice::KeepAll);
                match said {
                    "old" => image.write_file(&live, &old).expect("a disk"),
                    "absent" => _ = image.remove_file(&live),
                    _ => {}
                }
                let name = format!(
                    "{level:?}, a tail: {with_tail}, a drop: {with_drop}, killed: {killed}, `live` {said}"
                );
                let mut patient = Patient::of(&name, &db, image, false, killed);
                // What is damaged is known to have been synced.
                patient.surely_proven = patient.commit;
                patients.push(patient);
            }
        }
        drop(in_use);
        db.finish();
    }
    patients
}

/// The root is lost, and what shows how the log got from an old checkpoint to the only one of the newest epoch: a segment
/// that nobody needed was removed, and an older state of it is back.
pub fn removed_between() -> RepairStage {
    let sim = SimEnv::new(28);
    let mut db = Driver::start(&sim, Shape::new(1 << 15, 16), false);
    db.create("t");
    db.append("t", 0..5, Durability::Disk);
    let segments = |sim: &SimEnv| -> Files {
        let mut files = files_of(sim);
        files.retain(|path, _| path.extension().is_some_and(|extension| extension == "seg"));
        files
    };
    let old = segments(&sim);
    // In use, so that nothing is collected, which makes checkpoints.
    let reader = db.shape().open_read_only(&sim.env_of_process(900));
    let in_use = reader.expect("a reader").kernel.snapshot();
    db.append("t", 10..15, Durability::Disk);
    db.append("t", 20..25, Durability::Process);
    db.kill();
    let image = sim.crash_image(&CrashChoice::KeepAll);
    drop(in_use);
    db.finish();
    for (path, bytes) in &old {
        image.write_file(path, bytes).expect("a disk");
    }
    let patient = Patient::of("removed between", &db, image, false, true);
    let mut stage = RepairStage::default();
    let image = patient.image();
    let all: Vec<PathBuf> = segments(&image).into_keys().collect();
    let Some((_, before)) = all.split_last() else {
        panic!("no segment");
    };
    for path in before.iter().filter(|path| !old.contains_key(*path)) {
        image.remove_file(path).expect("a segment");
    }
    for name in ["root", "live"] {
        let removed = image.remove_file(&Path::new(DIR).join(name));
        removed.expect("a file");
    }
    if let Some(Repaired::Done(_, contents)) = stage.run(&patient, &image, "no root")
        && contents != patient.contents
    {
        let lost = difference(&patient.contents, &contents);
        stage.violations.push(format!("no root: {lost}"));
    }
    stage
}

/// Damages a checkpoint that the root names, as a rule the only one of the newest epoch, alone or with the frames after
/// it; or loses the root.
pub fn damage_only_checkpoint(patient: &Patient) -> RepairStage {
    let mut stage = RepairStage::default();
    let root_path = Path::new(DIR).join("root");
    let root = patient.sim.read_file(&root_path).expect("a root");
    let field = |at: usize| u64::from_le_bytes(root[at..at + 8].try_into().expect("8 bytes"));
    let path = Path::new(DIR).join(segment_name(thalweg_kernel::FileId(field(48))));
    let begin = field(56);
    let end = begin + (field(64) & u64::from(u32::MAX));
    let mut whole = |image: SimEnv, what: &str| {
        if let Some(Repaired::Done(_, contents)) = stage.run(patient, &image, what)
            && contents != patient.contents
        {
            let lost = difference(&patient.contents, &contents);
            let name = &patient.name;
            stage.violations.push(format!("{name}: {what}: {lost}"));
        }
    };
    let image = patient.image();
    image.remove_file(&root_path).expect("a root");
    whole(image, "the root is removed");
    for (what, at) in [("header", begin + 9), ("INDEX section", end - 9)] {
        for root_is_there in [true, false] {
            let image = patient.image();
            image.overwrite_file(&path, at, &[0x5A]).expect("a segment");
            if !root_is_there {
                image.remove_file(&root_path).expect("a root");
            }
            whole(
                image,
                &format!("{what} of the checkpoint, a root: {root_is_there}"),
            );
        }
    }
    let bytes = patient.sim.read_file(&path).expect("a segment");
    let used = bytes.iter().rposition(|b| *b != 0).unwrap_or(0) as u64 + 1;
    for last in (end..used).step_by(56) {
        let image = patient.image();
        let junk = vec![0x5A; usize::try_from(last - begin - 9).expect("short")];
        image
            .overwrite_file(&path, begin + 9, &junk)
            .expect("a segment");
        stage.run(
            patient,
            &image,
            &format!("all from the checkpoint to {last}"),
        );
    }
    let image = patient.image();
    image.remove_file(&path).expect("a segment");
    stage.run(patient, &image, "its segment is removed");
    stage
}

/// Reads of the front of each file fail for good, one file and one slot of it after the other: that is no damage. An opening
/// and a repair end with that error or do without, and change nothing that they could not read; but a slot of the root, without
/// which nothing is lost, is written anew.
pub fn fail_reads(patient: &Patient) -> RepairStage {
    let mut stage = RepairStage::default();
    let parts = [0..4096_u64, 4096..8192];
    for (path, _) in files_of(&patient.sim) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        for part in parts
            .clone()
            .into_iter()
            .take(if name == "root" { 2 } else { 1 })
        {
            let fails = FaultRule::new(Fault::Error(Errno::IO))
                .on(&[CallKind::Read])
                .path_suffix(name)
                .bytes(part.clone());
            let fails = |image: SimEnv| {
                image.set_plan(FaultPlan::none().rule(fails.clone()));
                image
            };
            let what = format!("{}: reads of {part:?} of {name} fail", patient.name);
            let repaired = fails(patient.image());
            let before = data_of(&repaired);
            stage.repairs += 1;
            match repair_once(&patient.shape, &repaired) {
                Err(error) if error.kind() == ErrorKind::Io => stage.errors += 1,
                Ok(report) if report.is_clean() => stage.clean += 1,
                Ok(report) if name == "root" && report.given_up.is_empty() => stage.mended += 1,
                ended => stage.violations.push(format!("{what}: {ended:?}")),
            }
            if data_of(&repaired) != before && name != "root" {
                stage
                    .violations
                    .push(format!("{what}: a repair changed files"));
            }
            repaired.set_plan(FaultPlan::none());
            match open_and_read_repaired(&patient.shape, &repaired, false) {
                End::Rows(rows) if rows == patient.contents => {}
                other => stage
                    .violations
                    .push(format!("{what}: repaired: {other:?}")),
            }
            let opened = fails(patient.image());
            match patient.shape.open(&opened.env()) {
                Err(error) if error.kind() == ErrorKind::Io => {}
                Ok(toy) => match crate::oracle::contents_of(&toy) {
                    Ok((_, found)) if found != patient.contents => {
                        let lost = difference(&patient.contents, &found);
                        stage.violations.push(format!("{what}: opened: {lost}"));
                    }
                    _ => {}
                },
                Err(error) => stage.violations.push(format!("{what}: opening: {error:?}")),
            }
            opened.set_plan(FaultPlan::none());
            match open_and_read_repaired(&patient.shape, &opened, false) {
                End::Rows(rows) if rows == patient.contents => {}
                other => stage.violations.push(format!("{what}: later: {other:?}")),
            }
        }
    }
    stage
}

/// The garbage floor, an epoch and a commit, that `live` names before and after a repair in the same boot.
pub fn floors_around_repair() -> [(u32, u64); 2] {
    let sim = SimEnv::new(29);
    let mut db = Driver::start(&sim, Shape::new(4096, 16), false);
    history(&mut db);
    db.drop_table("t");
    db.checkpoint();
    db.checkpoint();
    db.collect();
    let image = sim.crash_image(&CrashChoice::Kill);
    db.finish();
    let floor = || {
        let live = image.read_file(&Path::new(DIR).join("live"));
        let live = live.expect("a writer was here");
        let number = |slot: &[u8], at: usize| {
            u64::from_le_bytes(slot[at..at + 8].try_into().expect("8 bytes"))
        };
        let newest = live.chunks_exact(128).max_by_key(|slot| number(slot, 24));
        let slot = newest.expect("two slots");
        let epoch = u32::from_le_bytes(slot[88..92].try_into().expect("4 bytes"));
        (epoch, number(slot, 80))
    };
    let before = floor();
    let root = Path::new(DIR).join("root");
    image.remove_file(&root).expect("a root");
    let shape = db.shape();
    let report = repair_once(shape, &image).expect("a log that is whole");
    assert!(!report.is_clean(), "the root was lost");
    [before, floor()]
}
