//! Repairs of databases with lives that are drawn: tables that come, change and go, kills and power cuts between, then damage in one
//! place or several. `THALWEG_EFFORT` makes more lives.
#![expect(clippy::expect_used, reason = "a step that fails is a test that fails")]

use std::path::Path;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::Durability::{Disk, Process};
use thalweg_sim::driver::Driver;
use thalweg_sim::oracle::Outcome;
use thalweg_sim::repair::{
    Patient, RepairStage, Repaired, coarse_damage, crash_repair, fail_repair, lose_slots,
    several_places,
};
use thalweg_sim::report::{Dice, effort, say, seed};
use thalweg_sim::shape::{DIR, Shape};

/// The tables of a life, and what is counted in it.
#[derive(Default)]
struct Names {
    there: Vec<String>,
    given: usize,
    next_key: i64,
}

impl Names {
    /// A name that no table has now. Half of them another one had before, in some case, or a repair could make them up.
    fn new_one(&mut self, dice: &mut Dice) -> String {
        if self.given > 0 && dice.below(2) == 0 {
            let number = 1 + dice.below(self.given as u64);
            let letter = dice.pick(&["t", "T"]);
            let end = dice.pick(&["", "", "", " (1)", " (2)"]);
            let name = format!("{letter}{number}{end}");
            let is_taken = |other: &String| other.to_lowercase() == name.to_lowercase();
            if !self.there.iter().any(is_taken) {
                return name;
            }
        }
        self.given += 1;
        format!("t{}", self.given)
    }
}

fn small(dice: &mut Dice, end: u64) -> i64 {
    i64::try_from(dice.below(end)).expect("small")
}

/// One step of a life.
fn step(db: &mut Driver, names: &mut Names, dice: &mut Dice) {
    let what = dice.below(20);
    if names.there.is_empty() || what == 0 && names.there.len() < 4 {
        let name = names.new_one(dice);
        db.create(&name);
        names.there.push(name);
        return;
    }
    let at = usize::try_from(dice.below(names.there.len() as u64)).expect("few");
    let name = names.there[at].clone();
    let level = dice.pick(&[Process, Disk, Disk]);
    let count = 1 + small(dice, 40);
    let is_late = dice.below(4) == 0;
    let first = if is_late {
        small(dice, 1000)
    } else {
        names.next_key
    };
    names.next_key += count;
    match what {
        1..=5 => db.append_group(&name, first..first + count, level),
        6..=8 => db.append(&name, first..first + count.min(6), level),
        9 | 10 => db.append_fragment(&name, first..first + count),
        11 => db.merge(&name),
        12 | 13 => db.checkpoint(),
        14 => {
            names.there[at] = names.new_one(dice);
            db.rename(&name, &names.there[at]);
        }
        15 => db.redefine(&name),
        16 if names.there.len() > 1 => {
            db.drop_table(&name);
            names.there.remove(at);
        }
        17 => db.reopen(),
        18 => db.kill(),
        19 => cut_power(db, dice),
        _ => db.collect(),
    }
}

/// What a power cut has taken was never stored.
fn cut_power(db: &mut Driver, dice: &mut Dice) {
    let choices = db.sim.crash_choices(4, 2, dice.draw());
    let choice = usize::try_from(dice.below(choices.len() as u64)).expect("few");
    db.power_cut(&choices[choice]);
    let shown = db.visible().expect("open");
    let (last, _) = shown.expect("whole");
    for op in &mut db.ledger.ops {
        if matches!(op.outcome, Outcome::Stored(commit, _) if commit > last) {
            op.outcome = Outcome::Refused;
        }
    }
}

fn after_a_life(dice: &mut Dice) -> Patient {
    let life = dice.draw();
    let block_rows = dice.pick(&[4, 6, 8, 12, 15]);
    let mut shape = Shape::new(1 << (12 + dice.below(4)), block_rows);
    shape.page_entries = dice.pick(&[4, 8, 16, 64]);
    let mut db = Driver::start(&SimEnv::new(life), shape, false);
    let mut names = Names::default();
    for _ in 0..20 + dice.below(60) {
        step(&mut db, &mut names, dice);
    }
    let image = db.sim.crash_image(&CrashChoice::KeepAll);
    db.finish();
    assert!(image.read_file(&Path::new(DIR).join("root")).is_ok());
    let mut patient = Patient::of(&format!("life {life}"), &db, image, false, true);
    let synced = db.ledger.commits_to_disk().last().copied();
    patient.surely_proven = synced.unwrap_or_default().min(patient.commit);
    patient
}

#[test]
fn random_lives() {
    let seed = seed();
    let mut dice = Dice::new(seed);
    let (mut stage, mut cut_short) = (RepairStage::default(), RepairStage::default());
    let lives = 16 * effort();
    for life in 0..lives {
        let patient = after_a_life(&mut dice);
        stage.add(lose_slots(&patient, 6, &mut dice));
        stage.add(coarse_damage(&patient, 3, &mut dice));
        stage.add(several_places(&patient, 4, &mut dice));
        if life % 16 != 0 {
            continue;
        }
        for damaged in patient.damaged_everywhere(&mut dice).iter().take(4) {
            let copy = damaged.crash_image(&CrashChoice::KeepAll);
            if let Some(Repaired::Done(..)) = stage.run(&patient, &copy, "damaged") {
                cut_short.add(crash_repair(&patient, damaged, 2, &mut dice));
                cut_short.add(fail_repair(&patient, damaged));
            }
        }
    }
    say(format_args!(
        "random lives: {lives} of them, {} repairs: {} lost nothing, {} gave something up; {} crashed or failed; {} violations",
        stage.repairs,
        stage.mended,
        stage.gave_up,
        cut_short.repairs,
        stage.violations.len() + cut_short.violations.len()
    ));
    let violations = stage.violations.iter().chain(&cut_short.violations);
    let first: Vec<_> = violations.take(5).cloned().collect();
    let first = first.join("\n");
    assert!(
        first.is_empty(),
        "repeat with THALWEG_SEED={seed}:\n{first}"
    );
    assert!(stage.gave_up > 30 && cut_short.repairs > 100, "{stage:?}");
}
