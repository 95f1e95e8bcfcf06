//! Fails every storage call of every workload, in every way.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use thalweg_env::Env;
use thalweg_env::sync::Mutex;
use thalweg_sim::errors::{ErrorReport, creation_calls, fail_everywhere};
use thalweg_sim::report::{Stopwatch, say, seed};
use thalweg_sim::workloads::{DELETES, WORKLOADS, Workload};

const THREADS: usize = 2;
/// A case takes milliseconds; one that takes this long hangs.
const HANG_SECONDS: f64 = 60.0;

#[test]
fn any_failed_call_ends_in_an_error_or_success_that_the_ledger_explains() {
    common::set_hooks();
    let seed = seed();
    let only = std::env::var("THALWEG_WORKLOAD").ok();
    let all: Vec<Workload> = WORKLOADS.into_iter().chain(DELETES).collect();
    let (next, total) = (AtomicUsize::new(0), Mutex::new(ErrorReport::default()));
    let current: [Mutex<Option<(String, Stopwatch)>>; THREADS] = Default::default();
    let clock = Stopwatch::start();
    let work = |current: &Mutex<Option<(String, Stopwatch)>>| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(workload) = all.get(index) else {
                *current.lock() = None;
                return;
            };
            if only.as_ref().is_some_and(|name| name != workload.name) {
                continue;
            }
            // Making a database is the same everywhere: once is enough.
            let first_call = if index == 0 {
                1
            } else {
                creation_calls(workload)
            };
            let watch = |case: &str| {
                *current.lock() = Some((case.to_owned(), Stopwatch::start()));
            };
            let report = fail_everywhere(workload, seed, first_call, &watch);
            total.lock().add(report);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = current
            .iter()
            .map(|current| scope.spawn(|| work(current)))
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            Env::os().clock().sleep(Duration::from_millis(20));
            for case in &current {
                if let Some((case, clock)) = &*case.lock()
                    && clock.seconds() > HANG_SECONDS
                {
                    say(format_args!("errors: {case} hangs, seed {seed}"));
                    std::process::abort();
                }
            }
        }
    });
    let total = total.into_inner();
    say(format_args!(
        "errors: {} cases in {:.0} s, {} images opened, {:?}, checkpoints without faults: {} full ones, of them {} renewed bases, {} differences, \
         at most {} bytes of memory left behind, seed {seed}",
        total.cases,
        clock.seconds(),
        total.images,
        total.classes,
        total.checkpoints.full,
        total.checkpoints.renewed,
        total.checkpoints.differences,
        total.leaked_bytes
    ));
    assert!(
        total.violations.is_empty(),
        "{} violations:\n{}",
        total.violations.len(),
        total.violations.join("\n")
    );
    assert!(
        only.is_some() || total.cases >= 15_000,
        "{} cases",
        total.cases
    );
    let checkpoints = total.checkpoints;
    assert!(
        only.is_some() || checkpoints.differences >= 16 && checkpoints.renewed >= 6,
        "{checkpoints:?}"
    );
}
