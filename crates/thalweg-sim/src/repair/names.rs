//! Repairs of databases whose tables have names that others had before.
//!
//! Invariants: those of the stage.

use super::*;

/// Names that are given again and again: after a drop, after a rename, in other case, to several tables one after the other, names
/// that a repair might make up included.
pub fn names_given_again() -> Patient {
    use Durability::Disk;
    let sim = SimEnv::new(32);
    let mut db = Driver::start(&sim, Shape::new(1 << 16, 16), false);
    let long = "\u{e9}".repeat(127);
    let mut next = 0;
    let mut append = |db: &mut Driver, name: &str| {
        next += 10;
        db.append(name, next..next + 3, Disk);
        db.append_group(name, next + 3..next + 6, Disk);
    };
    // In use, so that nothing is collected: the checkpoints of that would hold all of this.
    let in_use = db.toy().map(|toy| toy.kernel.snapshot());
    db.create("pump");
    append(&mut db, "pump");
    db.drop_table("pump");
    db.create("Pump");
    append(&mut db, "Pump");
    db.rename("Pump", "old");
    db.create("pump");
    append(&mut db, "pump");
    append(&mut db, "old");
    // Now a name that a repair may have made up.
    db.create("PUMP (1)");
    append(&mut db, "PUMP (1)");
    db.drop_table("pump");
    db.rename("old", "pump");
    append(&mut db, "pump");
    db.rename("PUMP (1)", "pump (2)");
    db.drop_all(&["pump (2)".to_owned(), "pump".to_owned()]);
    db.create_all(&["pump (1)".to_owned(), "pump".to_owned()]);
    append(&mut db, "pump (1)");
    append(&mut db, "pump");
    db.create(&long);
    append(&mut db, &long);
    db.drop_table(&long);
    db.create(&long.to_uppercase());
    append(&mut db, &long.to_uppercase());
    drop(in_use);
    let image = sim.crash_image(&CrashChoice::KeepAll);
    db.finish();
    Patient::of("names given again", &db, image, false, true)
}

/// Copies in each of which one or two commits of the log are damaged, and what these are.
pub fn damage_frames_of(patient: &Patient) -> Vec<(SimEnv, String)> {
    let files = files_of(&patient.sim);
    let mut frames = Vec::new();
    for (path, bytes) in &files {
        let found = bytes.windows(4).enumerate();
        let found = found.filter(|(_, magic)| magic == b"TFRM");
        // Else a checkpoint, or padding.
        let is_commit = |at: &usize| matches!(bytes[at + 64], 1..=5);
        let places = found.map(|(at, _)| at).filter(is_commit);
        frames.extend(places.map(|at| (path, at as u64)));
    }
    let mut images = Vec::new();
    for (nth, first) in frames.iter().enumerate() {
        for second in &frames[nth..] {
            let image = patient.image();
            for (path, at) in BTreeSet::from([first, second]) {
                // In its head, so that nothing shows what it has changed.
                image
                    .overwrite_file(path, at + 20, &[0x5A])
                    .expect("a segment");
            }
            images.push((image, format!("the frames at {first:?} and {second:?}")));
        }
    }
    images
}
