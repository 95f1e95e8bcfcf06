//! Repairs of databases with damaged pages of the index.
//!
//! Invariants: those of the stage.

use super::*;

/// A closed database whose blocks were merged, with more after them.
pub fn merged() -> Patient {
    let sim = SimEnv::new(25);
    let mut db = Driver::start(&sim, Shape::new(1 << 15, 8), false);
    db.create("t");
    db.append_group("t", 0..24, Durability::Disk);
    db.append_group("t", 10..20, Durability::Disk);
    db.merge("t");
    db.append_group("t", 30..50, Durability::Disk);
    db.close();
    let image = sim.crash_image(&CrashChoice::KeepAll);
    Patient::of("merged", &db, image, true, true)
}

/// A page of the index is lost, and the frame that brought its blocks: but a merge after the checkpoint has their rows.
pub fn merged_behind_a_lost_page() -> RepairStage {
    let sim = SimEnv::new(26);
    let mut db = Driver::start(&sim, Shape::new(1 << 15, 8), false);
    db.create("t");
    db.append_group("t", 0..24, Durability::Disk);
    db.checkpoint();
    let in_use = db.toy().map(|toy| toy.kernel.snapshot());
    db.merge("t");
    db.append("t", [100], Durability::Disk);
    drop(in_use);
    let image = sim.crash_image(&CrashChoice::KeepAll);
    db.finish();
    let patient = Patient::of("merged behind a lost page", &db, image, false, true);
    // The first frame is the first checkpoint, which the root does not name any more.
    let first = files_of(&patient.sim)
        .into_iter()
        .find_map(|(path, bytes)| {
            let first = places_of(&path, &bytes, b"TFRM").first()?.1;
            Some((path, first))
        });
    let first = first.expect("a log");
    let before_page = |page: FilePlace<'_>, frame: FilePlace<'_>| {
        page.0 == frame.0 && frame.1 < page.1 && frame != (&*first.0, first.1)
    };
    damage_pairs(&patient, before_page, |what, contents, stage| {
        if *contents != patient.contents {
            let lost = difference(&patient.contents, contents);
            stage.violations.push(format!("{what}: {lost}"));
        }
    })
}

/// A page of the index is lost that leads to a fragment with copies of blocks, and the frame that brought the copies; the
/// blocks are still there. A merge after the checkpoint takes the copies out by the key of the first.
pub fn merged_copies_behind_a_lost_page() -> RepairStage {
    let sim = SimEnv::new(31);
    let mut db = Driver::start(&sim, Shape::new(1 << 15, 8), false);
    db.create("t");
    db.append_group("t", 0..48, Durability::Disk);
    // Keeps what is replaced.
    let reader = db.shape().open_read_only(&sim.env_of_process(900));
    let in_use = reader.expect("a reader").kernel.snapshot();
    db.copy_blocks("t");
    db.checkpoint();
    db.append("t", [1_000], Durability::Disk);
    db.merge("t");
    db.append("t", [1_001], Durability::Disk);
    drop(in_use);
    let image = sim.crash_image(&CrashChoice::KeepAll);
    db.finish();
    let patient = Patient::of("merged copies behind a lost page", &db, image, false, true);
    damage_pairs(&patient, |_, _| true, |_, _, _| {})
}

/// A file, and a place in it.
type FilePlace<'a> = (&'a Path, u64);

/// Damages each page of the index together with each frame that is `chosen` for it; `look` sees what the repair has left.
fn damage_pairs(
    patient: &Patient,
    chosen: impl Fn(FilePlace<'_>, FilePlace<'_>) -> bool,
    look: impl Fn(&str, &Contents, &mut RepairStage),
) -> RepairStage {
    let mut stage = RepairStage::default();
    let files = files_of(&patient.sim);
    let begins = |magic: &[u8]| -> Vec<FilePlace<'_>> {
        let places = files
            .iter()
            .map(|(path, bytes)| places_of(path, bytes, magic));
        places.flatten().collect()
    };
    let (pages, frames) = (begins(b"TIPG"), begins(b"TFRM"));
    for page in &pages {
        for frame in frames.iter().filter(|frame| chosen(*page, **frame)) {
            let image = patient.image();
            for (path, at) in [(page.0, page.1 + 40), (frame.0, frame.1 + 20)] {
                image.overwrite_file(path, at, &[0x33]).expect("a file");
            }
            let what = format!("the page at {page:?} and the frame at {frame:?}");
            if let Some(Repaired::Done(_, contents)) = stage.run(patient, &image, &what) {
                look(&what, &contents, &mut stage);
            }
        }
    }
    stage
}

/// Where something with these first bytes lies in a file.
fn places_of<'a>(path: &'a Path, bytes: &[u8], magic: &[u8]) -> Vec<FilePlace<'a>> {
    let found = bytes.windows(4).enumerate().filter(|(_, at)| *at == magic);
    found.map(|(at, _)| (path, at as u64)).collect()
}

/// Damages each page of the index that lies in a segment: the frames that brought its blocks name them.
pub fn damage_pages(patient: &Patient) -> RepairStage {
    let mut stage = RepairStage::default();
    for page in &patient.pages {
        let image = patient.image();
        let path = Path::new(DIR).join(segment_name(page.file));
        let middle = page.offset + u64::from(page.bytes) / 2;
        let changed = image.overwrite_file(&path, middle, &[0x77, 0x78]);
        changed.expect("a segment");
        let what = format!("the page at {page}");
        if let Some(Repaired::Done(_, contents)) = stage.run(patient, &image, &what)
            && contents != patient.contents
        {
            let lost = difference(&patient.contents, &contents);
            stage.violations.push(format!("{what}: {lost}"));
        }
    }
    stage
}

/// Damages each page of the index together with each frame of the log: what is lost is a frame of rows at most, whatever counts as
/// more, one commit that is lost or all rows below a page.
pub fn damage_pages_and_frames() -> RepairStage {
    const GROUP_ROWS: i64 = 16;
    let sim = SimEnv::new(30);
    let mut db = Driver::start(&sim, Shape::new(1 << 15, 16), false);
    db.create("t");
    db.create("u");
    db.append_group("t", 0..GROUP_ROWS, Durability::Disk);
    db.checkpoint();
    for k in 1..12 {
        let first = k * GROUP_ROWS;
        db.append_group("t", first..first + GROUP_ROWS, Durability::Disk);
    }
    // The pages of the table stay those of the first of these, which are more than a repair tries.
    for k in 0..20 {
        db.checkpoint();
        db.append("u", [k], Durability::Disk);
    }
    let image = sim.crash_image(&CrashChoice::KeepAll);
    db.finish();
    let patient = Patient::of("pages and frames", &db, image, false, true);
    let mut stage = RepairStage::default();
    for (path, bytes) in files_of(&patient.sim) {
        let begins = |magic: &[u8]| -> Vec<u64> {
            let found = bytes.windows(4).enumerate().filter(|(_, at)| *at == magic);
            found.map(|(at, _)| at as u64).collect()
        };
        let frames = begins(b"TFRM");
        for (page, frame) in begins(b"TIPG")
            .iter()
            .flat_map(|page| frames.iter().map(move |frame| (page, frame)))
        {
            let image = patient.image();
            for at in [page + 40, frame + 20] {
                image.overwrite_file(&path, at, &[0x33]).expect("a file");
            }
            let what = format!("page {page} and frame {frame} of {}", path.display());
            let Some(Repaired::Done(_, contents)) = stage.run(&patient, &image, &what) else {
                continue;
            };
            let lost = |name: &String| {
                patient.contents[name].len() - contents.get(name).map_or(0, Vec::len)
            };
            let lost: usize = patient.contents.keys().map(lost).sum();
            if i64::try_from(lost).is_ok_and(|lost| lost > GROUP_ROWS) {
                stage.note(&patient, &what, &format!("{lost} rows are lost"));
            }
        }
    }
    stage
}

/// Damages each page of the index that lies in a segment. A repair that gives something up keeps no less than the same database
/// without one of the slots of its root shows. Nor does one that comes after a crash of it.
pub fn damage_pages_beside_another_slot(patient: &Patient, dice: &mut Dice) -> RepairStage {
    let mut stage = RepairStage::default();
    for page in &patient.pages {
        let damaged = patient.image();
        let path = Path::new(DIR).join(segment_name(page.file));
        let middle = page.offset + u64::from(page.bytes) / 2;
        let changed = damaged.overwrite_file(&path, middle, &[0x77, 0x78]);
        if changed.is_err() {
            // Of the checkpoint of the opening that has looked for pages.
            continue;
        }
        let repaired = damaged.crash_image(&CrashChoice::KeepAll);
        repaired.record_states(true);
        stage.repairs += 1;
        let mut is_from_other = false;
        match repair_once(&patient.shape, &repaired) {
            Ok(report) => {
                let told = |damage: &Damage| damage.what.contains("another checkpoint");
                is_from_other = report.mended.iter().any(told);
                match report.given_up.is_empty() {
                    true => stage.mended += 1,
                    false => stage.gave_up += 1,
                }
            }
            Err(_) => stage.errors += 1,
        }
        let calls = repaired.calls();
        let kept = open_and_read_repaired(&patient.shape, &repaired, false);
        for state in (1..=calls).filter_map(|call| repaired.state_at(call)) {
            if !is_from_other {
                break;
            }
            let mut choices = state.crash_choices(2, 2, dice.draw());
            choices.push(CrashChoice::Kill);
            for choice in choices {
                let crashed = state.crash_image(&choice);
                stage.repairs += 1;
                let again = repair_once(&patient.shape, &crashed);
                let found = open_and_read_repaired(&patient.shape, &crashed, false);
                if again.is_err() || found != kept {
                    let what = format!("{}: the page at {page}, {choice:?}", patient.name);
                    let what = format!("{what}: {again:?}, {found:?} instead of {kept:?}");
                    stage.violations.push(what);
                }
            }
        }
        let whole = End::Rows(patient.contents.clone());
        for slot in 0..2 {
            let image = damaged.crash_image(&CrashChoice::KeepAll);
            let root = Path::new(DIR).join("root");
            let changed = image.overwrite_file(&root, 4096 * slot + 20, &[0x5A, 0xA5, 0x77]);
            changed.expect("a root");
            if kept != whole && crate::damage::open_and_read(&patient.shape, &image, false) == whole
            {
                let what = format!("{}: the page at {page}: slot {slot}", patient.name);
                stage
                    .violations
                    .push(format!("{what} is not needed for all rows: {kept:?}"));
            }
        }
    }
    stage
}
