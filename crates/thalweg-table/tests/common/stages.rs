//! Tables of a layout while machines stop, calls fail and bytes change: what is left is always what one of the commits left.
//!
//! Invariants: every step of a script is one commit of rows, or changes none; each is durable when it returns, unless it says
//! otherwise. So of a crash in the midst of a step the table is as before it or as after it, or as after an earlier step that nothing
//! durable has followed.
#![allow(dead_code, reason = "one of the tests that share the model uses it")]

use super::{Model, Order, Times, Trial, check_aggregate, check_scan, numbers, open, try_open};
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use thalweg_env::sim::{CrashChoice, Errno, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_kernel::repair::repair;
use thalweg_table::{AggregateRequest, Durability, Engine, ErrorKind, Result, ScanRequest};

/// One commit of rows, or work that changes none.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Appends so many rows.
    Append(u16, Times, Durability),
    /// Deletes the rows of a range between two parts of 255 of the keys.
    DeleteRange(u8, u8),
    Maintain,
    Jobs,
    Checkpoint,
    Encode,
}

/// The work of a stage.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) calls: u64,
    pub(crate) images: u64,
    pub(crate) deep: u64,
    pub(crate) refused: u64,
}

/// A script that reaches every way into the table: raw rows, blocks in the log, files of their own, late rows, deletions of all.
fn script(random: &mut fastrand::Rng, steps: usize) -> Vec<Step> {
    let times = [
        Times::Rising,
        Times::Rising,
        Times::Late,
        Times::Anywhere,
        Times::Equal,
    ];
    let rows = [1, 3, 40, 150, 600];
    let durability = |random: &mut fastrand::Rng| match random.u8(0..5) {
        0 => Durability::Process,
        _ => Durability::Disk,
    };
    let step = |random: &mut fastrand::Rng| match random.u8(0..16) {
        0..9 => Step::Append(
            rows[random.usize(..5)],
            times[random.usize(..5)],
            durability(random),
        ),
        9..12 => {
            let first = random.u8(20..240);
            Step::DeleteRange(first, first.saturating_add(random.u8(1..40)))
        }
        12 => Step::Maintain,
        13 => Step::Jobs,
        14 => Step::Checkpoint,
        _ => Step::Encode,
    };
    (0..steps).map(|_| step(random)).collect()
}

impl Trial {
    /// Takes a step. The model has it as done, whatever comes of it.
    fn take(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Append(rows, times, durability) => {
                let batch = self.batch(rows.into(), times);
                self.table.append([Ok(batch)], Some(durability)).map(|_| ())
            }
            Step::DeleteRange(from, to) => {
                let keys = self.model.range(from, to);
                let model = self.model.clone();
                self.model.rows.retain(|row| !keys.contains(model.key(row)));
                self.table
                    .delete_range(keys, Some(Durability::Disk))
                    .map(|_| ())
            }
            Step::Maintain => self.engine.maintain().map(|_| ()),
            Step::Jobs => self.engine.run_jobs().map(|_| ()),
            Step::Checkpoint => self.engine.checkpoint(),
            Step::Encode => {
                let table = self.table.view()?.snapshot().id;
                self.engine.kernel().encode_open_rows(table)
            }
        }
    }
}

/// Whether nothing before the end of the step can be lost after it.
fn is_durable(step: Step) -> bool {
    !matches!(
        step,
        Step::Append(_, _, Durability::Process) | Step::Jobs | Step::Maintain | Step::Encode
    )
}

/// The rows of the table of an image, by their numbers, in their order.
fn rows_of(engine: &Engine) -> Result<Vec<u64>> {
    let request = ScanRequest {
        projection: Some(vec![1]),
        ..ScanRequest::default()
    };
    let mut found = Vec::new();
    for batch in engine.table("Events")?.view()?.scan(&request)? {
        found.extend(numbers(&[batch?], 0));
    }
    Ok(found)
}

fn numbers_of(model: &Model) -> Vec<u64> {
    let sorted = model.sorted(thalweg_table::KeyRange::ALL);
    sorted.into_iter().map(|row| row.number).collect()
}

/// Checks an image that is to show one of these models, and returns which.
fn check(engine: &Engine, models: &[Model], told: &str) -> Model {
    let rows = rows_of(engine).unwrap_or_else(|error| panic!("{told}: {error}"));
    let Some(model) = models.iter().rev().find(|model| numbers_of(model) == rows) else {
        let expected: Vec<usize> = models.iter().map(|model| model.rows.len()).collect();
        panic!(
            "{told}: {} rows, which are none of those after {expected:?}",
            rows.len()
        );
    };
    let view = engine.table("Events").unwrap().view().unwrap();
    check_scan(&view, model, &ScanRequest::default());
    let request = AggregateRequest {
        columns: (0..5).collect(),
        ..AggregateRequest::default()
    };
    check_aggregate(&view, model, &request);
    assert_eq!(view.row_count(), model.rows.len() as u64, "{told}");
    model.clone()
}

/// A trial that goes on with an image.
fn trial_of(image: SimEnv, engine: Engine, model: Model, seed: u64) -> Trial {
    let table = engine.table("Events").unwrap();
    let number = 1_000_000 + seed % 1_000_000;
    Trial {
        sim: image,
        engine,
        table,
        now: model.rows.iter().map(|row| row.ts).max().unwrap_or(0),
        model,
        kept: Vec::new(),
        random: seed,
        number,
    }
}

/// Goes on with an image: it can be written to, maintained, closed and opened.
fn go_on(image: SimEnv, engine: Engine, model: Model, seed: u64) {
    let mut trial = trial_of(image, engine, model, seed);
    let steps = [
        Step::Append(80, Times::Late, Durability::Disk),
        Step::DeleteRange(100, 140),
        Step::Append(300, Times::Rising, Durability::Process),
        Step::Maintain,
    ];
    for step in steps {
        trial.take(step).unwrap();
    }
    trial.check_all();
}

/// Stops the machine at every storage call of a script, each time in several ways.
pub(crate) fn crash(order: Order, seed: u64, steps: usize, split: Option<&str>) -> Counts {
    let mut random = fastrand::Rng::with_seed(seed);
    let script = script(&mut random, steps);
    let mut trial = Trial::new(Model::new(order), seed, split);
    trial.engine.flush().unwrap();
    trial.sim.record_states(true);
    let first_call = trial.sim.calls() + 1;
    // What each call may leave behind.
    let mut spans: Vec<(Range<u64>, Vec<Model>)> = Vec::new();
    let mut allowed = vec![trial.model.clone()];
    for step in &script {
        let start = trial.sim.calls() + 1;
        trial.take(*step).unwrap();
        allowed.push(trial.model.clone());
        spans.push((start..trial.sim.calls() + 1, allowed.clone()));
        if is_durable(*step) {
            allowed = vec![trial.model.clone()];
        }
    }
    let mut counts = Counts {
        calls: trial.sim.calls() + 1 - first_call,
        ..Counts::default()
    };
    let mut seen = HashSet::new();
    for (calls, models) in &spans {
        for call in calls.clone() {
            let Some(state) = trial.sim.state_at(call) else {
                continue;
            };
            for choice in state.crash_choices(3, 3, seed ^ call) {
                let image = state.crash_image(&choice);
                if !seen.insert((image.content_hash(), models.len())) {
                    continue;
                }
                counts.images += 1;
                let told = format!("{order:?}, seed {seed}, call {call}, {choice:?} of {script:?}");
                let engine = open(&image);
                let model = check(&engine, models, &told);
                if counts.images.is_multiple_of(16) {
                    counts.deep += 1;
                    go_on(image, engine, model, seed ^ call);
                }
            }
        }
    }
    trial.sim.record_states(false);
    trial.check_all();
    counts
}

/// Lets a storage call of a script fail, one in `every`; then what is left is opened, and the script goes on.
pub(crate) fn errors(
    order: Order,
    seed: u64,
    steps: usize,
    every: u64,
    split: Option<&str>,
) -> Counts {
    let script = script(&mut fastrand::Rng::with_seed(seed), steps);
    let faults = [
        Fault::Error(Errno::IO),
        Fault::Error(Errno::NOSPC),
        Fault::ErrorAfter(Errno::IO),
    ];
    let mut counts = Counts::default();
    let mut skipped = seed % every;
    loop {
        let mut trial = Trial::new(Model::new(order), seed, split);
        let call = trial.sim.calls() + 1 + skipped;
        let fault = faults[usize::try_from(call % 3).unwrap()];
        let rule = FaultRule::new(fault).from_call(call).once();
        trial.sim.set_plan(FaultPlan::none().rule(rule));
        let mut left = script.iter();
        let mut allowed = vec![trial.model.clone()];
        let mut failed = None;
        for step in left.by_ref() {
            let done = trial.take(*step);
            allowed.push(trial.model.clone());
            if let Err(error) = done {
                failed = Some(error);
                break;
            }
            if is_durable(*step) {
                allowed = vec![trial.model.clone()];
            }
        }
        counts.calls = trial.sim.calls();
        if failed.is_none() && trial.sim.calls() < call {
            return counts;
        }
        trial.sim.set_plan(FaultPlan::none());
        counts.images += 1;
        counts.refused += u64::from(failed.is_some());
        let told =
            format!("{order:?}, seed {seed}, call {call}, {fault:?}: {failed:?} of {script:?}");
        let _ = trial.engine.close();
        trial.engine = open(&trial.sim);
        let models = match failed {
            // A failed sync takes what nothing durable has followed.
            Some(_) => &allowed[..],
            None => &allowed[allowed.len() - 1..],
        };
        trial.model = check(&trial.engine, models, &told);
        trial.table = trial.engine.table("Events").unwrap();
        for step in left {
            trial
                .take(*step)
                .unwrap_or_else(|error| panic!("{told}: {step:?}: {error}"));
        }
        trial.check_all();
        skipped += every;
    }
}

/// Changes bytes of a closed database: each is found, or makes no difference; a repair leaves rows that were there, in order.
pub(crate) fn damage(
    order: Order,
    seed: u64,
    steps: usize,
    places: u64,
    split: Option<&str>,
) -> Counts {
    let mut random = fastrand::Rng::with_seed(seed);
    let script = script(&mut random, steps);
    let mut trial = Trial::new(Model::new(order), seed, split);
    script.iter().for_each(|step| trial.take(*step).unwrap());
    trial.engine.close().unwrap();
    trial.sim.sync_everything();
    let whole = trial.sim.crash_image(&CrashChoice::KeepAll);
    let files: Vec<_> = whole
        .files()
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0)
        .collect();
    let expected = numbers_of(&trial.model);
    let mut counts = Counts::default();
    for place in 0..places {
        let (path, bytes) = &files[usize::try_from(place).unwrap() % files.len()];
        let offset = random.u64(0..*bytes);
        let told = format!(
            "{order:?}, seed {seed}, {} offset {offset} of {script:?}",
            path.display()
        );
        let image = whole.crash_image(&CrashChoice::KeepAll);
        let old = image.read_file(path).unwrap()[usize::try_from(offset).unwrap()];
        image
            .overwrite_file(path, offset, &[old ^ 1 << random.u8(0..8)])
            .unwrap();
        counts.images += 1;
        let repaired = image.crash_image(&CrashChoice::KeepAll);
        match try_open(&image) {
            Err(error) => {
                counts.refused += 1;
                assert!(is_named(error.kind()), "{told}: {error}");
            }
            Ok(engine) => match rows_of(&engine) {
                Ok(rows) => assert_eq!(rows, expected, "{told}"),
                Err(error) => {
                    counts.refused += 1;
                    assert!(is_named(error.kind()), "{told}: {error}");
                    let report = engine.kernel().verify(&mut |_| {}).unwrap();
                    assert!(
                        !report.damage.is_empty(),
                        "{told}: {error}, and verify finds nothing"
                    );
                }
            },
        }
        let options = thalweg_kernel::Options::default();
        let report = repair(&repaired.env(), Path::new("/db"), &options, &mut |_| {});
        report.unwrap_or_else(|error| panic!("{told}: {error}"));
        let engine = open(&repaired);
        let Ok(left) = rows_of(&engine) else {
            // The commit that made the table is lost with all that followed.
            assert!(engine.table("Events").is_err(), "{told}");
            continue;
        };
        let mut all = expected.iter();
        let is_part = left.iter().all(|row| all.any(|other| other == row));
        assert!(is_part, "{told}: {left:?} of {expected:?}");
        let model = Model {
            rows: { trial.model.rows.iter() }
                .filter(|row| left.contains(&row.number))
                .cloned()
                .collect(),
            ..trial.model.clone()
        };
        counts.deep += 1;
        go_on(repaired, engine, model, seed ^ place);
    }
    counts
}

/// Damage, or what reads as another version.
fn is_named(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corruption | ErrorKind::Unsupported)
}
