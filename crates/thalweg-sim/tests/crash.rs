//! Stage 4: a crash at every storage call of every workload, in every way that a disk can lose what nobody synced.

use std::sync::atomic::{AtomicUsize, Ordering};
use thalweg_env::sync::Mutex;
use thalweg_sim::crash::{CrashPlan, CrashReport, crash_everywhere};
use thalweg_sim::report::{Stopwatch, effort, say, seed};
use thalweg_sim::workloads::WORKLOADS;

/// Two run at once: what the smallest machines have.
const THREADS: usize = 2;

#[test]
fn a_crash_at_any_call_loses_nothing_acknowledged() {
    let seed = seed();
    let only = std::env::var("THALWEG_WORKLOAD").ok();
    let mut total = CrashReport::default();
    for round in 0..effort() as u64 {
        let plan = CrashPlan::usual(seed + round);
        let (next, reports) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while let Some(workload) = WORKLOADS.get(next.fetch_add(1, Ordering::Relaxed)) {
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
        let mut core_seconds = 0.0;
        for (name, seconds, report) in reports.into_inner() {
            core_seconds += seconds;
            say(format_args!(
                "crash: {name:22} {:5} calls, {:6} states, {:6} distinct images, {seconds:5.1} s",
                report.calls, report.states, report.distinct
            ));
            total.add(report);
        }
        say(format_args!(
            "crash: {} states ({} in recovery, {} in recovery of a recovery), {} distinct images, {} written to, \
             {} of {} calls hit, {:.0} states/s, at most {} bytes read at open, seed {seed}",
            total.states,
            total.second,
            total.third,
            total.distinct,
            total.deep,
            total.calls_hit,
            total.calls,
            total.states as f64 / core_seconds / (round + 1) as f64,
            total.open_bytes_max
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
        assert!(total.states >= 100_000, "{} states", total.states);
    }
}
