//! Stage 4: a crash at every storage call of every workload, in every way that a disk can lose what nobody synced.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use thalweg_env::sync::Mutex;
use thalweg_sim::crash::{CrashPlan, CrashReport, crash_everywhere};
use thalweg_sim::report::{Stopwatch, effort, say, seed};
use thalweg_sim::workloads::{DELETES, WORKLOADS, Workload};

/// Two run at once: what the smallest machines have.
const THREADS: usize = 2;

#[test]
fn a_crash_at_any_call_loses_nothing_acknowledged() {
    common::set_hooks();
    let seed = seed();
    let only = std::env::var("THALWEG_WORKLOAD").ok();
    let all: Vec<Workload> = WORKLOADS.into_iter().chain(DELETES).collect();
    let (mut total, mut core_seconds) = (CrashReport::default(), 0.0);
    for round in 0..effort() as u64 {
        let plan = CrashPlan::usual(seed + round);
        let (next, reports) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while let Some(workload) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if only.as_ref().is_some_and(|name| name != workload.name) {
                            continue;
                        }
                        let clock = Stopwatch::start();
                        let report = crash_everywhere(workload, &plan);
                        let seconds = clock.seconds();
                        reports.lock().push((workload.name, seconds, report));
                    }
                });
            }
        });
        for (name, seconds, report) in reports.into_inner() {
            core_seconds += seconds;
            let (memory, most) = report.memory_bytes;
            say(format_args!(
                "crash: {name:30} {:5} calls, {:6} states, {:6} distinct images, {} levels, {:4} of {:5} KiB memory, \
                 {seconds:5.1} s",
                report.calls,
                report.states,
                report.distinct,
                report.index_levels,
                memory >> 10,
                most >> 10,
            ));
            total.add(report);
        }
        say(format_args!(
            "crash: {} states ({} in recovery, {} in recovery of a recovery), {} distinct images, {} written to, \
             {} refused for unreadable sectors, {} emptied, {} of {} calls hit, {:.0} states/s, at most {} bytes read at open, at most {} calls per image, seed \
             {seed}",
            total.states,
            total.second,
            total.third,
            total.distinct,
            total.deep,
            total.refused,
            total.emptied,
            total.calls_hit,
            total.calls,
            total.states as f64 / core_seconds,
            total.open_bytes_max,
            total.check_calls_max,
        ));
        say(format_args!(
            "crash: checkpoints of the workloads: {} full ones, of them {} renewed bases, {} differences",
            total.checkpoints.full, total.checkpoints.renewed, total.checkpoints.differences
        ));
        say(format_args!(
            "crash: {} levels of index pages, {} moments at which a reader saw no more than a power cut leaves, {} of them \
             in recoveries",
            total.index_levels, total.shown_early, total.shown_early_in_recovery
        ));
    }
    assert!(
        total.violations.is_empty(),
        "{} violations:\n{}",
        total.violations.len(),
        total.violations.join("\n")
    );
    assert_eq!(total.calls_hit, total.calls, "every call is crashed at");
    if only.is_none() {
        let rounds = effort() as u64;
        assert!(total.states >= 400_000 * rounds, "{} states", total.states);
        assert!(total.index_levels >= 3, "{} levels", total.index_levels);
        assert!(total.shown_early_in_recovery >= 1_000 * rounds, "early");
        assert!(total.emptied >= 200 * rounds, "{} emptied", total.emptied);
        assert!(total.memory_bytes.0 > 0, "memory is counted");
        let checkpoints = total.checkpoints;
        assert!(checkpoints.differences >= 16 * rounds, "{checkpoints:?}");
        assert!(checkpoints.renewed >= 6 * rounds, "{checkpoints:?}");
    }
}
