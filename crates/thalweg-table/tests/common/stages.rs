//! Tables of a layout while machines stop, calls fail and bytes change: what is left is always what one of the commits left.
//!
//! Invariants: every step of a script is one commit of rows, or changes none; each is durable when it returns, unless it says
//! otherwise. So of a crash in the midst of a step the table is as before it or as after it, or as after an earlier step that nothing
//! durable has followed.
#![allow(dead_code, reason = "one of the tests that share the model uses it")]

use super::edits::{Picked, Whole};
use super::{Model, Order, Times, Trial, check_aggregate, check_scan, open, try_open};
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use thalweg_env::sim::{CrashChoice, Errno, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_kernel::repair::repair;
use thalweg_table::{
    AggregateRequest, Durability, Engine, ErrorKind, KeyRange, Result, ScanRequest,
};

/// The tables of a stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) order: Order,
    pub(crate) split: Option<&'static str>,
    /// The columns of its unique key: the number, with or without the time.
    pub(crate) unique: Option<&'static str>,
}

/// One commit of rows, or work that changes none.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Appends so many rows.
    Append(u16, Times, Durability),
    /// Deletes the rows of a range between two parts of 255 of the keys.
    DeleteRange(u8, u8),
    /// Deletes rows that lie scattered.
    Delete(Picked),
    /// Changes rows that lie scattered, their keys as well if there are times.
    Update(Picked, Option<Times>),
    /// Stores so many rows in a table with a unique key, many of them in the place of others, with other times or not.
    Upsert(u16, Times, bool, Durability),
    /// Sends so many rows twice as one append.
    Resend(u16, Times),
    /// Appends so many rows, deletes and changes others, in one commit or in none.
    Transaction(u16, Picked, bool),
    Alter,
    Truncate,
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

impl Kind {
    fn trial(self, seed: u64) -> Trial {
        let split = self.split.map(|split| ("split", split));
        let unique = self.unique.map(|unique| ("unique", unique));
        let options: Vec<_> = split.into_iter().chain(unique).collect();
        Trial::with_options(Model::new(self.order), seed, &options)
    }

    /// Whether a row may change its time and keep its unique key.
    fn may_move(self) -> bool {
        self.unique.is_some_and(|unique| !unique.contains("ts"))
    }

    /// A script that reaches every way into the table: raw rows, blocks in the log, files of their own, late rows; and every way to
    /// change what is there: runs of files, masks of blocks and of open rows, drafts, definitions.
    fn script(self, random: &mut fastrand::Rng, steps: usize) -> Vec<Step> {
        (0..steps).map(|_| self.step(random)).collect()
    }

    fn step(self, random: &mut fastrand::Rng) -> Step {
        let times = [
            Times::Rising,
            Times::Rising,
            Times::Late,
            Times::Anywhere,
            Times::Equal,
        ];
        let times = |random: &mut fastrand::Rng| times[random.usize(..5)];
        let rows = |random: &mut fastrand::Rng| [1, 3, 40, 150, 600][random.usize(..5)];
        let durability = |random: &mut fastrand::Rng| match random.u8(0..5) {
            0 => Durability::Process,
            _ => Durability::Disk,
        };
        let picked = |random: &mut fastrand::Rng| {
            let from = random.u8(0..240);
            Picked {
                from,
                to: from.saturating_add(random.u8(1..120)),
                one_in: [1, 2, 7, 40][random.usize(..4)],
            }
        };
        match random.u8(0..32) {
            0..4 if self.unique.is_some() => {
                let moves = self.may_move() && random.bool();
                Step::Upsert(rows(random), times(random), moves, durability(random))
            }
            0..11 => Step::Append(rows(random), times(random), durability(random)),
            11..14 => {
                let first = random.u8(20..240);
                Step::DeleteRange(first, first.saturating_add(random.u8(1..40)))
            }
            14..17 => Step::Delete(picked(random)),
            17..20 => Step::Update(picked(random), random.bool().then(|| times(random))),
            20..22 => Step::Resend(rows(random), times(random)),
            22..25 => Step::Transaction(rows(random), picked(random), random.u8(0..4) > 0),
            25 => Step::Alter,
            26 if random.bool() => Step::Truncate,
            26 | 27 => Step::Maintain,
            28 => Step::Jobs,
            29 | 30 => Step::Checkpoint,
            _ => Step::Encode,
        }
    }
}

impl Trial {
    /// Takes a step. The model has it as done, whatever comes of it.
    fn take(&mut self, step: Step) -> Result<()> {
        let table = self.table.clone();
        match step {
            Step::Append(rows, times, durability) => {
                self.append_some(&table, (rows, times), durability)
            }
            Step::DeleteRange(from, to) => self.delete_all_of(&table, self.model.range(from, to)),
            Step::Delete(picked) => self.delete_some(&table, picked),
            Step::Update(picked, moves) => self.update_some(&table, picked, moves),
            Step::Upsert(rows, times, moves, durability) => {
                self.upsert((rows, times), moves, durability)
            }
            Step::Resend(rows, times) => self.resend(rows, times),
            Step::Transaction(rows, picked, commits) => self.transact(rows, picked, commits),
            Step::Alter => self.alter(),
            Step::Truncate => self.delete_all_of(&table, KeyRange::ALL),
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
        Step::Append(_, _, Durability::Process)
            | Step::Upsert(_, _, _, Durability::Process)
            | Step::Transaction(_, _, false)
            | Step::Jobs
            | Step::Maintain
            | Step::Encode
    )
}

/// A model, and what it says of the whole table.
#[derive(Clone)]
struct Known(Rc<(Model, Whole)>);

impl Known {
    fn of(model: &Model) -> Self {
        Self(Rc::new((model.clone(), Whole::of_model(model))))
    }
}

/// Checks that an image shows one of these models, and returns which, and whether it may lack the last numbered append of that.
fn check(engine: &Engine, models: &[Known], told: &dyn Fn() -> String) -> (Model, bool) {
    let found = Whole::read(engine).unwrap_or_else(|error| panic!("{}: {error}", told()));
    let equal = models.iter().filter(|known| known.0.1 == found);
    let equal: Vec<&Model> = equal.map(|known| &known.0.0).collect();
    let Some(model) = equal.last() else {
        let expected: Vec<usize> = { models.iter() }
            .map(|known| known.0.1.rows.len())
            .collect();
        panic!(
            "{}: {} rows, which are none of those after {expected:?}",
            told(),
            found.rows.len()
        );
    };
    let view = engine.table("Events").unwrap().view().unwrap();
    assert_eq!(view.row_count(), model.rows.len() as u64, "{}", told());
    let may_lack = equal[0].sequence < model.sequence;
    (Model::clone(model), may_lack)
}

/// Checks every way to read the table.
fn check_ways(engine: &Engine, model: &Model) {
    let view = engine.table("Events").unwrap().view().unwrap();
    check_scan(&view, model, &ScanRequest::default());
    let request = AggregateRequest {
        columns: (0..5).collect(),
        ..AggregateRequest::default()
    };
    check_aggregate(&view, model, &request);
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

/// Goes on with an image: it can be written to, changed, maintained, closed and opened.
fn go_on(kind: Kind, image: SimEnv, engine: Engine, (model, may_lack): (Model, bool), seed: u64) {
    let mut trial = trial_of(image, engine, model, seed);
    trial.send_again(may_lack);
    let picked = Picked {
        from: 30,
        to: 200,
        one_in: 3,
    };
    let steps = [
        Step::Append(80, Times::Late, Durability::Disk),
        Step::DeleteRange(100, 140),
        Step::Delete(picked),
        Step::Update(picked, Some(Times::Late)),
        Step::Append(300, Times::Rising, Durability::Process),
        Step::Resend(3, Times::Late),
        Step::Transaction(40, picked, true),
        Step::Maintain,
    ];
    for step in steps {
        trial.take(step).unwrap();
    }
    if kind.unique.is_some() {
        let (rows, moves) = (40, kind.may_move());
        trial
            .upsert((rows, Times::Late), moves, Durability::Disk)
            .unwrap();
    }
    trial.check_all();
}

/// Stops the machine at every storage call of a script, each time in several ways.
pub(crate) fn crash(kind: Kind, seed: u64, steps: usize) -> Counts {
    let script = kind.script(&mut fastrand::Rng::with_seed(seed), steps);
    let mut trial = kind.trial(seed);
    trial.engine.flush().unwrap();
    trial.sim.record_states(true);
    let first_call = trial.sim.calls() + 1;
    // What each call may leave behind.
    let mut spans: Vec<(Range<u64>, Vec<Known>)> = Vec::new();
    let mut allowed = vec![Known::of(&trial.model)];
    for step in &script {
        let start = trial.sim.calls() + 1;
        trial.take(*step).unwrap();
        allowed.push(Known::of(&trial.model));
        spans.push((start..trial.sim.calls() + 1, allowed.clone()));
        if is_durable(*step) {
            allowed = vec![Known::of(&trial.model)];
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
            for choice in state.crash_choices(4, 4, seed ^ call) {
                let image = state.crash_image(&choice);
                if !seen.insert((image.content_hash(), models.len())) {
                    continue;
                }
                counts.images += 1;
                let told =
                    || format!("{kind:?}, seed {seed}, call {call}, {choice:?} of {script:?}");
                let engine = open(&image);
                let model = check(&engine, models, &told);
                if counts.images.is_multiple_of(16) {
                    check_ways(&engine, &model.0);
                }
                if counts.images.is_multiple_of(64) {
                    counts.deep += 1;
                    go_on(kind, image, engine, model, seed ^ call);
                }
            }
        }
    }
    trial.sim.record_states(false);
    trial.check_all();
    counts
}

/// Lets a storage call of a script fail, one in `every`; then what is left is opened, and the script goes on.
pub(crate) fn errors(kind: Kind, seed: u64, steps: usize, every: u64) -> Counts {
    let script = kind.script(&mut fastrand::Rng::with_seed(seed), steps);
    let faults = [
        Fault::Error(Errno::IO),
        Fault::Error(Errno::NOSPC),
        Fault::ErrorAfter(Errno::IO),
    ];
    let mut counts = Counts::default();
    let mut skipped = seed % every;
    loop {
        let mut trial = kind.trial(seed);
        let call = trial.sim.calls() + 1 + skipped;
        let fault = faults[usize::try_from(call % 3).unwrap()];
        let rule = FaultRule::new(fault).from_call(call).once();
        trial.sim.set_plan(FaultPlan::none().rule(rule));
        let mut left = script.iter();
        let mut allowed = vec![Known::of(&trial.model)];
        let mut failed = None;
        for step in left.by_ref() {
            let done = trial.take(*step);
            allowed.push(Known::of(&trial.model));
            if let Err(error) = done {
                failed = Some(error);
                break;
            }
            if is_durable(*step) {
                allowed = vec![Known::of(&trial.model)];
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
            || format!("{kind:?}, seed {seed}, call {call}, {fault:?}: {failed:?} of {script:?}");
        let _ = trial.engine.close();
        trial.engine = open(&trial.sim);
        let models = match failed {
            // A failed sync takes what nothing durable has followed.
            Some(_) => &allowed[..],
            None => &allowed[allowed.len() - 1..],
        };
        let (model, may_lack) = check(&trial.engine, models, &told);
        check_ways(&trial.engine, &model);
        trial.model = model;
        trial.table = trial.engine.table("Events").unwrap();
        trial.send_again(may_lack);
        for step in left {
            trial
                .take(*step)
                .unwrap_or_else(|error| panic!("{}: {step:?}: {error}", told()));
        }
        trial.check_all();
        skipped += every;
    }
}

/// Changes bytes of a closed database: each is found, or makes no difference; a repair leaves rows that were there, in order.
pub(crate) fn damage(kind: Kind, seed: u64, steps: usize, places: u64) -> Counts {
    let mut random = fastrand::Rng::with_seed(seed);
    let script = kind.script(&mut random, steps);
    let mut trial = kind.trial(seed);
    script.iter().for_each(|step| trial.take(*step).unwrap());
    trial.engine.close().unwrap();
    trial.sim.sync_everything();
    let whole = trial.sim.crash_image(&CrashChoice::KeepAll);
    let files: Vec<_> = whole
        .files()
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0)
        .collect();
    let expected = Whole::of_model(&trial.model);
    let mut counts = Counts::default();
    for place in 0..places {
        let (path, bytes) = &files[usize::try_from(place).unwrap() % files.len()];
        let offset = random.u64(0..*bytes);
        let told = format!(
            "{kind:?}, seed {seed}, {} offset {offset} of {script:?}",
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
            Ok(engine) => match Whole::read(&engine) {
                Ok(found) => assert!(found == expected, "{told}"),
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
        let Ok(left) = Whole::read(&engine) else {
            // The commit that made the table is lost with all that followed.
            assert!(engine.table("Events").is_err(), "{told}");
            continue;
        };
        let mut all = expected.rows.iter();
        let is_part = left.rows.iter().all(|row| all.any(|other| other == row));
        assert!(is_part, "{told}: {left:?} of {expected:?}");
        let model = Model {
            rows: { trial.model.rows.iter() }
                .filter(|row| left.rows.iter().any(|cells| cells.1 == row.number))
                .cloned()
                .collect(),
            ..trial.model.clone()
        };
        counts.deep += 1;
        go_on(kind, repaired, engine, (model, true), seed ^ place);
    }
    counts
}

/// Damage, or what reads as another version.
fn is_named(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corruption | ErrorKind::Unsupported)
}
