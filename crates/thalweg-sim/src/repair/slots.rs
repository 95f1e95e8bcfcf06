//! Repairs of damaged databases that have a slot of their root less, for once or for good.
//!
//! Invariants: those of the stage; a slot whose read fails once changes nothing. One that is lost costs no row that is known to be
//! stored, for the log has the checkpoints as well; beyond those rows it may have been the only proof that a log is damaged
//! and not torn.

use super::*;

/// How the slot is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// One read of it fails.
    OneRead,
    /// The device does not return it.
    AllReads,
    /// It does not verify.
    Damage,
}

const SLOT_BYTES: u64 = 4096;

/// Damages pages of the index, and in some rounds something else as well; then repairs it as it is, and with one slot less.
pub fn lose_slots(patient: &Patient, rounds: usize, dice: &mut Dice) -> RepairStage {
    let mut stage = RepairStage::default();
    for _ in 0..rounds {
        let damaged = patient.image();
        let what = damage_places(patient, &damaged, dice);
        let whole = damaged.crash_image(&CrashChoice::KeepAll);
        let Some(Repaired::Done(report, want)) = stage.run(patient, &whole, &what) else {
            continue;
        };
        for loss in [Loss::OneRead, Loss::AllReads, Loss::Damage] {
            for slot in 0..2 {
                let what = format!("{what}, {loss:?} of slot {slot}");
                let image = damaged.crash_image(&CrashChoice::KeepAll);
                stage.repairs += 1;
                if let Err(violation) =
                    repair_with_loss(patient, &image, loss, slot, &report, &want)
                {
                    stage.note(patient, &what, &violation);
                }
            }
        }
        if stage.is_done() {
            break;
        }
    }
    stage
}

/// Damages one place or several; returns them.
fn damage_places(patient: &Patient, image: &SimEnv, dice: &mut Dice) -> String {
    let files = files_of(image);
    let data = files.iter().filter(|(path, bytes)| {
        let extension = path.extension().and_then(|e| e.to_str());
        matches!(extension, Some("seg" | "frag")) && !bytes.is_empty()
    });
    let data: Vec<(&PathBuf, &Vec<u8>)> = data.collect();
    let mut places = Vec::new();
    for nth in 0..1 + dice.below(3) {
        let in_page = (nth == 0 || dice.below(2) == 0) && !patient.pages.is_empty();
        let (path, at) = if in_page {
            let page = dice.pick(&patient.pages);
            let path = Path::new(DIR).join(segment_name(page.file));
            (path, page.offset + u64::from(page.bytes) / 2)
        } else {
            let (path, bytes) = dice.pick(&data);
            let used = bytes.iter().rposition(|b| *b != 0).unwrap_or(0) as u64 + 1;
            (path.clone(), dice.below(used))
        };
        // A page may be of the checkpoint of the opening that has looked for pages: then it is nowhere.
        if image.overwrite_file(&path, at, &[0x77, 0x78]).is_ok() {
            places.push(format!("{}:{at}", path.display()));
        }
    }
    format!("{places:?}")
}

fn repair_with_loss(
    patient: &Patient,
    image: &SimEnv,
    loss: Loss,
    slot: u64,
    report: &RepairReport,
    want: &Contents,
) -> Result<(), Violation> {
    let root = Path::new(DIR).join("root");
    let place = SLOT_BYTES * slot..SLOT_BYTES * (slot + 1);
    let fails = FaultRule::new(Fault::Error(Errno::IO))
        .on(&[CallKind::Read])
        .path_suffix("root")
        .bytes(place);
    match loss {
        Loss::OneRead => image.set_plan(FaultPlan::none().rule(fails.once())),
        Loss::AllReads => {
            image.set_plan(FaultPlan::none().rule(fails));
            check_told(patient, image)?;
        }
        Loss::Damage => {
            let changed = image.overwrite_file(&root, SLOT_BYTES * slot + 20, &[0x5A, 0xA5]);
            changed.expect("a root");
        }
    }
    let before = data_of(image);
    let repaired = repair_once(&patient.shape, image);
    image.set_plan(FaultPlan::none());
    let repaired = match repaired {
        // No checkpoint is whole, and the slot named the one that need not be.
        Err(e) if e.kind() == ErrorKind::Corruption && loss != Loss::OneRead => {
            let is_as_before = data_of(image) == before;
            return is_as_before
                .then_some(())
                .ok_or_else(|| format!("changed: {e:?}"));
        }
        repaired => repaired.map_err(|e| format!("repairing: {e:?}"))?,
    };
    if loss == Loss::OneRead && repaired.is_clean() != report.is_clean() {
        return Err(format!("a read that failed once: {repaired:?}"));
    }
    if repaired.is_clean() && data_of(image) != before {
        return Err("a repair found nothing and changed files".to_owned());
    }
    let found = rows_of(&patient.shape, image, false)?;
    patient.check_explained(&repaired, &found)?;
    let count = |contents: &Contents| contents.values().map(Vec::len).sum::<usize>();
    // A table that is there for a drop that was given up is no gain. Whether an epoch has begun that only a lost slot
    // names is not known.
    let is_comparable = patient.surely_proven == patient.commit
        && found.keys().eq(want.keys())
        && is_of_one_epoch(&patient.sim);
    // Where blocks alone are given up, or pages of fragments, a repair tries no other start, in which they may not be needed.
    let gave_up_blocks = |report: &RepairReport| {
        let is_item = |lost: &Damage| is_block(patient, lost) || is_in_fragment(lost);
        !report.given_up.is_empty() && report.given_up.iter().all(is_item)
    };
    let has_less = match loss {
        Loss::OneRead => found != *want,
        Loss::AllReads | Loss::Damage => {
            is_comparable && !gave_up_blocks(&repaired) && count(&found) < count(want)
        }
    };
    // Nor does it bring rows that the repair of both slots has missed.
    let has_more = is_comparable && !gave_up_blocks(report) && count(&found) > count(want);
    if has_less || has_more {
        return Err(format!(
            "{}; given up {:?}, with the slot {:?}",
            difference(want, &found),
            repaired.given_up,
            report.given_up,
        ));
    }
    Ok(())
}

/// Whether the damage is that of one block.
fn is_block(patient: &Patient, lost: &Damage) -> bool {
    let mut blocks = patient.blocks.iter().map(|(address, ..)| address);
    blocks.any(|block| {
        let names = [segment_name(block.file), fragment_name(block.file)];
        block.offset == lost.offset && names.contains(&lost.file)
    })
}

/// Whether the damage lies in a fragment, which a commit after the checkpoint may have added.
fn is_in_fragment(lost: &Damage) -> bool {
    lost.commits.is_none() && lost.file.extension() == Some("frag".as_ref())
}

/// Checks that the check of a database reports that it could not read a slot.
fn check_told(patient: &Patient, image: &SimEnv) -> Result<(), Violation> {
    let Ok(toy) = patient.shape.open_read_only(&image.env()) else {
        return Ok(());
    };
    let verified = toy.kernel.verify(&mut |_| {});
    match verified {
        Ok(report) if report.damage.is_empty() => {
            Err("verify finds nothing, without a slot of the root".to_owned())
        }
        _ => Ok(()),
    }
}

/// Whether both slots of the root are of one epoch: in the midst of a recovery they are not.
fn is_of_one_epoch(image: &SimEnv) -> bool {
    let root = image.read_file(&Path::new(DIR).join("root"));
    let root = root.expect("a root");
    root[40..44] == root[4096 + 40..4096 + 44]
}
