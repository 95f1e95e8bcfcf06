//! Each rule of the inbox makes a test fail when it is broken.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a rule that nothing misses is a test that fails"
)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;

use common::check::{recover, run_in_order};
use common::machine;
use common::oracle::{History, sequential};
use common::plain::{FOLDER, ID};
use common::scenarios::{Scenario, TABLES, scenarios};
use common::script::{Op, Outcome, Script, commit, limits};
use common::two_at_once;
use thalweg_env::sim::{CrashChoice, Errno, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_env::sync::Mutex;
use thalweg_inbox::format::{FIRST_FRAME, LogCommit};
use thalweg_inbox::{Limits, Rule, break_rule};

/// What notices that a rule is broken.
enum Notices {
    /// A small model of that name.
    Model(&'static str),
    /// A check of its own.
    Check(fn() -> Vec<String>),
    /// Nothing, for this reason.
    Nothing(&'static str),
}

use Notices::{Check, Model, Nothing};

fn notices(rule: Rule) -> Notices {
    match rule {
        Rule::CommitLock => Model("two array processes"),
        Rule::SyncFrames | Rule::BoundOfRegistry | Rule::TimesRise | Rule::SyncLogName => {
            Model("one array process")
        }
        Rule::BoundOfState => Nothing(
            "settling puts the bounds of the state into the registry, and the writer its own before it commits",
        ),
        Rule::SayAppending => Nothing(
            "the bytes at *visible* tell it as well; it is there for bytes that a failed sync takes from the cache and a disk \
             brings back, which the simulated disk does not",
        ),
        Rule::LookAtVisible | Rule::CopyTail | Rule::SyncTail => Model("an older registry"),
        Rule::LookForHigherLogs | Rule::NumberAboveNames => {
            Model("an older registry and another log")
        }
        Rule::SyncHeader => Model("a failed sync, settled by the writer"),
        Rule::AppendingBeforeName => Nothing(
            "the name of a higher log tells it as well; it is there for a name that a reader of the folder misses",
        ),
        Rule::KeepWhatMayBeNamed => Check(failing_calls),
        Rule::EndedIsEnded => Model("another boot"),
        Rule::PrepareBeforeAppend => Check(full_disk),
        Rule::SyncFragments => Model("fragments"),
        Rule::RequiredState | Rule::DropRequires => Model("drop"),
        Rule::EpochOfLive => {
            Nothing("only a repair takes tables away by a new epoch; there is none in the model")
        }
        Rule::SeenOfProcess => Model("a new table"),
        Rule::WriterBounds => Model("a killed writer"),
        Rule::WriterSeen => Nothing(
            "whoever commits reads `live`, which shows the commit before the lock is let go of; it is there for a `live` that \
             cannot be read",
        ),
        Rule::HoldBeforeCells | Rule::CutBySeen => Model("a reader"),
        Rule::ShowBeforeUnlock | Rule::ReadBeforeState => {
            Model("a killed writer and what comes after")
        }
        Rule::ReadAfterState => Model("a row that tells of cells"),
        Rule::StartAgainWhenCurrent => Model("settling beside a reader"),
        Rule::AdoptVisibleOnly => Nothing(
            "a frame that is adopted is decided by that, since settling begins at the position; it is there so that only whoever \
             has the lock decides",
        ),
        Rule::PositionWithCells | Rule::KeepStamps | Rule::KeepNamed => Model("adoption"),
        Rule::PassDropped | Rule::FloorBeforeRemoval => {
            Model("removal of what was dropped, beside a reader")
        }
        Rule::KeepChain => Model("removal before adoption"),
        Rule::ReleaseHeld | Rule::KeepHeldLogs => Model("removal of what is held, beside a reader"),
        Rule::KeepOfLiving | Rule::ListBeforeLocks | Rule::DecideSettled => {
            Model("removal beside a process with fragments")
        }
        Rule::SyncRegistryName => Check(new_registry),
        Rule::FloorBeforeVacuum | Rule::AboveFloor => Model("vacuum"),
        Rule::CompareUnderLock => Model("cells that depend"),
        Rule::Proof => Check(damaged_frame),
        Rule::Chain => Check(frame_of_a_twin),
    }
}

fn model(name: &str) -> Vec<String> {
    let mut models = scenarios().into_iter();
    let scenario = models.find(|scenario| scenario.name == name).unwrap();
    let scenario = Scenario {
        is_reported: false,
        ..scenario
    };
    scenario.run(true).violations
}

/// Each call of a commit takes effect, and is said to have failed.
fn failing_calls() -> Vec<String> {
    let mut found = Vec::new();
    for call in 1..40 {
        let sim = machine(5, TABLES);
        let rule = FaultRule::new(Fault::ErrorAfter(Errno::IO)).at_call(sim.calls() + call);
        sim.set_plan(FaultPlan::none().rule(rule));
        let mut history = History {
            faulty: usize::MAX,
            ..History::default()
        };
        let runs = run_in_order(&sim, &[Script::other(&[commit(1, 1)])], 0, limits());
        sequential(&mut history, &runs);
        sim.set_plan(FaultPlan::none());
        found.extend(recover(
            &sim.crash_image(&CrashChoice::Kill),
            &history,
            TABLES,
            limits(),
        ));
    }
    found
}

/// A commit that finds no space is refused, and leaves nothing undecided.
fn full_disk() -> Vec<String> {
    let limits = Limits {
        log_bytes: 16_384,
        first_bytes: 4096 + 256,
        ..limits()
    };
    let ops: Vec<Op> = (0..100).map(|at| commit(1, at)).collect();
    let sim = machine(5, TABLES);
    sim.set_quota(Some(sim.used_bytes() + 3 * 4096));
    let runs = run_in_order(&sim, &[Script::other(&ops)], 0, limits);
    let events = runs.iter().flat_map(|(_, _, events)| events);
    let unknown = events.filter(|event| event.outcome == Some(Outcome::Unknown));
    unknown
        .map(|event| format!("op {} is not known", event.op))
        .collect()
}

/// The first array is made, and the power is cut: the registry is there, or there is none of it.
fn new_registry() -> Vec<String> {
    let sim = SimEnv::new(6);
    let env = sim.env();
    env.storage().create_dir(Path::new(FOLDER)).unwrap();
    sim.sync_everything();
    let at = LogCommit {
        epoch: 1,
        commit: 1,
    };
    thalweg_inbox::create_inbox(&env, Path::new(FOLDER), ID, at).unwrap();
    let image = sim.crash_image(&CrashChoice::DropAll);
    let registry = image.read_file(&Path::new(FOLDER).join("inbox/registry"));
    match registry.is_ok_and(|bytes| bytes.len() == 8192 && bytes[..8] == *b"THWINBR1") {
        true => Vec::new(),
        false => vec!["the registry has no name after a power cut".to_owned()],
    }
}

fn three_commits(seed: u64) -> (SimEnv, History) {
    let sim = machine(seed, TABLES);
    let mut history = History::default();
    let ops = [commit(1, 1), commit(1, 2), commit(1, 3)];
    let runs = run_in_order(&sim, &[Script::other(&ops)], 0, limits());
    sequential(&mut history, &runs);
    sim.sync_everything();
    (sim, history)
}

const LOG: &str = "/db/inbox/0000000000000001.log";

/// Whether damage of a log is told; a recovery that says nothing has lost cells without a word.
fn is_told(sim: &SimEnv) -> Vec<String> {
    let image = sim.crash_image(&CrashChoice::KeepAll);
    let runs = run_in_order(&image, &[Script::other(&[Op::Snapshot])], 1, limits());
    let is_view = |outcome: &Option<Outcome>| matches!(outcome, Some(Outcome::Viewed(_)));
    let events = runs.iter().flat_map(|(_, _, events)| events);
    let silent = events.filter(|event| is_view(&event.outcome));
    silent
        .map(|event| format!("nobody is told: {:?}", event.outcome))
        .collect()
}

fn damaged_frame() -> Vec<String> {
    let (sim, _) = three_commits(7);
    let bytes = sim.read_file(Path::new(LOG)).unwrap();
    let at = usize::try_from(FIRST_FRAME).unwrap() + 20;
    let flipped = [bytes[at] ^ 1];
    sim.overwrite_file(Path::new(LOG), FIRST_FRAME + 20, &flipped)
        .unwrap();
    is_told(&sim)
}

fn frame_of_a_twin() -> Vec<String> {
    let ((sim, _), (twin, _)) = (three_commits(7), three_commits(8));
    let bytes = twin.read_file(Path::new(LOG)).unwrap();
    let frames = usize::try_from(FIRST_FRAME).unwrap();
    let length = usize::try_from(u32::from_le_bytes(
        bytes[frames + 48..frames + 52].try_into().unwrap(),
    ))
    .unwrap();
    let second = frames + length;
    sim.overwrite_file(
        Path::new(LOG),
        second as u64,
        &bytes[second..second + length],
    )
    .unwrap();
    is_told(&sim)
}

/// The first that is found, if the rule is broken.
fn without(rule: Rule) -> Option<String> {
    let tried = catch_unwind(AssertUnwindSafe(|| match notices(rule) {
        Model(name) => model(name),
        Check(check) => check(),
        Nothing(_) => Vec::new(),
    }));
    match tried {
        Ok(found) => found.into_iter().next(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            Some(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

#[test]
fn every_rule_is_missed_when_it_is_broken() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let rules = { Rule::ALL.iter().copied() }.filter(|rule| format!("{rule:?}").contains(&only));
    let rules: Vec<Rule> = rules.collect();
    let silent = Mutex::new(Vec::new());
    // Panics are violations here, and expected: they need not be printed.
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    two_at_once(&rules, |rule| {
        if let Nothing(reason) = notices(*rule) {
            eprintln!("without {rule:?}: nothing, {reason}");
            return;
        }
        break_rule(Some(*rule));
        let found = without(*rule);
        break_rule(None);
        match found {
            Some(text) => eprintln!(
                "without {rule:?}: {}",
                text.lines().next().unwrap_or_default()
            ),
            None => {
                eprintln!("without {rule:?}: NOTHING");
                silent.lock().push(*rule);
            }
        }
    });
    set_hook(hook);
    let silent = silent.into_inner();
    if !silent.is_empty() {
        panic!("nothing misses {silent:?}");
    }
}

#[test]
fn with_all_rules_kept_the_checks_find_nothing() {
    for check in [
        failing_calls,
        full_disk,
        new_registry,
        damaged_frame,
        frame_of_a_twin,
    ] {
        assert_eq!(check(), Vec::<String>::new());
    }
    let (sim, history) = three_commits(9);
    assert_eq!(
        recover(
            &sim.crash_image(&CrashChoice::Kill),
            &history,
            TABLES,
            limits()
        ),
        Vec::<String>::new()
    );
}
