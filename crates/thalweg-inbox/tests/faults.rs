//! Each call fails once, in each way: nothing that was acknowledged is lost, and everybody goes on.
#![allow(clippy::panic, reason = "a step that fails is a test that fails")]

mod common;

use common::check::{recover, run_in_order};
use common::machine;
use common::oracle::{History, sequential};
use common::script::{Cells, Op, Script, commit, limits};
use thalweg_env::sim::{CrashChoice, Errno, Fault, FaultPlan, FaultRule, ReadsAfter, SimEnv};

const TABLES: u32 = 2;

fn scripts() -> Vec<Script> {
    let staged = Op::Commit(Cells {
        is_staged: true,
        ..Cells::of(&[(1, 5)])
    });
    let batch = Op::Batch(vec![Cells::of(&[(1, 1)]), Cells::of(&[(2, 1)])]);
    vec![
        Script::other(&[commit(1, 1), staged, batch, Op::Snapshot]),
        Script::writer(&[
            Op::Settle,
            commit(1, 2),
            Op::Adopt,
            Op::Remove,
            Op::Snapshot,
        ]),
        Script::other(&[commit(1, 3), Op::Snapshot]),
    ]
}

/// A kill, and power cuts without and with all that was pending.
const CRASHES: [CrashChoice; 3] = [
    CrashChoice::Kill,
    CrashChoice::DropAll,
    CrashChoice::KeepAll,
];

/// Runs all scripts, one after the other; any of their calls may fail.
fn run_scripts(sim: &SimEnv) -> History {
    let mut history = History {
        faulty: usize::MAX,
        ..History::default()
    };
    for (at, script) in scripts().iter().enumerate() {
        let run = run_in_order(sim, std::slice::from_ref(script), at, limits());
        sequential(&mut history, &run);
    }
    history
}

/// Runs all with one fault, and recovers from a kill and from power cuts.
fn with_fault(fault: Fault, call: u64) -> (Vec<String>, u64) {
    let sim = machine(3, TABLES);
    let first = sim.calls();
    sim.set_plan(FaultPlan::none().rule(FaultRule::new(fault).at_call(first + call)));
    let history = run_scripts(&sim);
    let calls = sim.calls() - first;
    sim.set_plan(FaultPlan::none());
    let mut found = Vec::new();
    for choice in CRASHES {
        let problems = recover(&sim.crash_image(&choice), &history, TABLES, limits());
        if !problems.is_empty() {
            found.push(format!(
                "{fault:?} at call {call}, {choice:?}: {}",
                problems.join("\n")
            ));
        }
    }
    (found, calls)
}

#[test]
fn each_call_can_fail() {
    let flush = |reads| Fault::FlushError {
        errno: Errno::IO,
        reads,
    };
    let faults = [
        Fault::Error(Errno::IO),
        Fault::Error(Errno::NOSPC),
        Fault::ErrorAfter(Errno::IO),
        flush(ReadsAfter::New),
        flush(ReadsAfter::Old),
    ];
    let (found, calls) = with_fault(Fault::Short(1 << 20), 1);
    assert!(found.is_empty(), "without a fault: {found:?}");
    let mut found = Vec::new();
    for fault in faults {
        for call in 1..=calls {
            found.extend(with_fault(fault, call).0);
        }
    }
    eprintln!("{} faults at {calls} calls", faults.len());
    if let Some(first) = found.first() {
        panic!("{} violations, the first: {first}", found.len());
    }
}

#[test]
fn a_full_disk_gets_in_nobodys_way_for_long() {
    for quota_pages in 0..12 {
        let sim = machine(4, TABLES);
        let used = sim.used_bytes();
        sim.set_quota(Some(used + quota_pages * 4096));
        let history = run_scripts(&sim);
        sim.set_quota(None);
        for choice in CRASHES {
            let found = recover(&sim.crash_image(&choice), &history, TABLES, limits());
            assert!(
                found.is_empty(),
                "{quota_pages} pages, {choice:?}: {found:?}"
            );
        }
    }
}
