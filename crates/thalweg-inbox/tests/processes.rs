//! Processes that are stopped while they hold or wait for a lock, and readers in the middle of a call of somebody else.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a step that fails is a test that fails"
)]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use common::check::run_in_order;
use common::machine;
use common::plain::{FOLDER, ID, Plain, body};
use common::script::{Event, Op, Outcome, Script, commit, limits};
use thalweg_env::sim::{CallKind, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_env::{Clock, Env, File, LockKind, OpenMode};
use thalweg_inbox::format::Draft;
use thalweg_inbox::{Commit, Error, Inbox};

const GATE: u64 = 1 << 40;
const COMMIT: u64 = GATE + 2;

fn registry(sim: &SimEnv) -> Arc<dyn File> {
    let env = sim.env_of_process(5);
    let path = Path::new(FOLDER).join("inbox/registry");
    env.storage().open(&path, OpenMode::ReadWrite).unwrap()
}

fn lock_byte(file: &dyn File, at: u64) {
    assert!(file.try_lock(at..at + 1, LockKind::Exclusive).unwrap());
}

fn one(sim: &SimEnv, script: &Script) -> Vec<Event> {
    run_in_order(sim, std::slice::from_ref(script), 0, limits())
        .swap_remove(0)
        .2
}

fn now(sim: &SimEnv) -> Duration {
    Duration::from_nanos(sim.env().clock().monotonic_ns())
}

/// The clock of the machine, without giving the processor to others while it sleeps.
#[derive(Debug)]
struct Quick(SimEnv, Env);

impl Clock for Quick {
    fn monotonic_ns(&self) -> u64 {
        self.1.clock().monotonic_ns()
    }

    fn wall_ns(&self) -> i64 {
        self.1.clock().wall_ns()
    }

    fn boot_id(&self) -> [u8; 16] {
        self.1.clock().boot_id()
    }

    fn process(&self) -> u64 {
        self.1.clock().process()
    }

    fn sleep(&self, duration: Duration) {
        self.0.advance(duration);
    }
}

fn quick(sim: &SimEnv) -> Env {
    let env = sim.env_of_process(9);
    let clock = Arc::new(Quick(sim.clone(), env.clone()));
    let (storage, entropy) = (Arc::clone(env.storage()), Arc::clone(env.entropy()));
    Env::new(storage, clock, entropy, Arc::clone(env.spawner()))
}

#[test]
fn who_does_not_get_the_lock_for_ten_seconds_has_written_nothing() {
    let sim = machine(1, 1);
    let holder = registry(&sim);
    lock_byte(&*holder, COMMIT);
    let env = quick(&sim);
    let plain = Plain::open(&env).unwrap();
    let mut inbox = Inbox::open(&env, Path::new(FOLDER), ID, plain, limits()).unwrap();
    let cells = Commit {
        draft: Draft {
            bodies: vec![body(1, 1, &[(1, 1)])],
        },
        ..Commit::default()
    };
    let (before, began) = (sim.content_hash(), now(&sim));
    let refused = inbox.commit(&[cells]);
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    assert_eq!(sim.content_hash(), before);
    let waited = now(&sim) - began;
    assert!(
        (Duration::from_secs(10)..Duration::from_secs(11)).contains(&waited),
        "{waited:?}"
    );
    // What it waited with is let go of.
    lock_byte(&*holder, GATE);
}

#[test]
fn a_process_that_is_stopped_while_it_waits_costs_a_second() {
    let sim = machine(2, 1);
    let waiting = registry(&sim);
    lock_byte(&*waiting, GATE);
    let began = now(&sim);
    let events = one(&sim, &Script::other(&[commit(1, 1)]));
    assert!(matches!(&events[0].outcome, Some(Outcome::Committed(all)) if all[0].is_ok()));
    let waited = now(&sim) - began;
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(2)).contains(&waited),
        "{waited:?}"
    );
}

#[test]
fn snapshots_and_adoption_wait_for_nobody() {
    let sim = machine(3, 1);
    one(&sim, &Script::other(&[commit(1, 1)]));
    let holder = registry(&sim);
    lock_byte(&*holder, COMMIT);
    let began = now(&sim);
    let ops = [Op::Settle, Op::Adopt, Op::Snapshot, Op::Remove];
    let events = one(&sim, &Script::writer(&ops));
    let is_done = |event: &Event| !matches!(event.outcome, Some(Outcome::Failed(_)) | None);
    assert!(
        events.len() == ops.len() && events.iter().all(is_done),
        "{events:?}"
    );
    assert!(now(&sim) - began < Duration::from_millis(1));
}

/// A reader runs in the middle of each write and rename of others: it finds any part of it done.
#[test]
fn a_snapshot_in_the_middle_of_a_call_shows_what_was_acknowledged() {
    let mut looked = 0;
    for seed in 0..40 {
        let sim = machine(seed, 1);
        let (found, all) = mpsc::channel();
        let kinds = [CallKind::Write, CallKind::Rename, CallKind::RemoveFile];
        let plan = FaultPlan::none().rule(FaultRule::new(Fault::Watched).on(&kinds));
        for (at, script) in [
            Script::other(&[commit(1, 1), commit(1, 2)]),
            Script::writer(&[Op::Settle, commit(1, 3), Op::Adopt, Op::Remove]),
            Script::other(&[commit(1, 4)]),
        ]
        .iter()
        .enumerate()
        {
            let before = shown(&one(&sim, &Script::other(&[Op::Snapshot])));
            let (reader, found) = (sim.clone(), found.clone());
            sim.set_watcher(Some(Box::new(move || {
                let runs = run_in_order(&reader, &[Script::other(&[Op::Snapshot])], 50, limits());
                found.send(shown(&runs[0].2)).unwrap();
            })));
            sim.set_plan(plan.clone());
            run_in_order(&sim, std::slice::from_ref(script), at, limits());
            sim.set_plan(FaultPlan::none());
            sim.set_watcher(None);
            let after = shown(&one(&sim, &Script::other(&[Op::Snapshot])));
            let mut last = before;
            for cells in all.try_iter() {
                looked += 1;
                assert!(
                    (last..=after).contains(&cells),
                    "seed {seed}: {last}, {cells}, {after}"
                );
                last = cells;
            }
        }
    }
    assert!(looked > 500, "{looked} looks");
}

fn shown(events: &[Event]) -> usize {
    match events.last().and_then(|event| event.outcome.as_ref()) {
        Some(Outcome::Viewed(view)) => view.cells.len(),
        other => panic!("{other:?}"),
    }
}
