//! Files of somebody who makes all checksums right: whatever they say, the answer is an error or rows, never a panic, and takes
//! no more memory than a database of that size.

use thalweg_env::sim::CrashChoice;
use thalweg_env::sync::Mutex;
use thalweg_kernel::{Rule, break_rule};
use thalweg_sim::damage::{HostileReport, lie, specimen};
use thalweg_sim::files::files_of;
use thalweg_sim::report::{Dice, Stopwatch, effort, say, seed};
use thalweg_sim::workloads::named;

/// Of so many bytes one is changed, with those near it.
const ONE_IN: u64 = 4;

#[test]
fn lies_with_right_checksums_are_errors_or_rows() {
    let seed = seed();
    let clock = Stopwatch::start();
    let total = Mutex::new(HostileReport::default());
    // One that was closed, and one that was killed, with a log behind its checkpoint.
    let closed = specimen();
    let workload = named("everything");
    let sim = thalweg_env::sim::SimEnv::new(seed);
    let mut driver = workload.run(&sim, false);
    let killed = sim.crash_image(&CrashChoice::Kill);
    driver.finish();
    std::thread::scope(|scope| {
        for (which, (sim, shape)) in [
            (&closed.sim, closed.shape.clone()),
            (&killed, workload.shape()),
        ]
        .into_iter()
        .enumerate()
        {
            let total = &total;
            scope.spawn(move || {
                break_rule(Some(Rule::Checksum));
                let mut dice = Dice::new(seed + which as u64);
                for _ in 0..effort() {
                    for path in files_of(sim).keys() {
                        let found = lie(sim, &shape, path, ONE_IN, &mut dice);
                        let mut total = total.lock();
                        total.mutants += found.mutants;
                        total.errors += found.errors;
                        total.rows += found.rows;
                        total.violations.extend(found.violations);
                    }
                }
                break_rule(None);
            });
        }
    });
    let total = total.into_inner();
    say(format_args!(
        "hostile: {} databases: {} errors, {} with rows, {} panics, {:.1} s, seed {seed}",
        total.mutants,
        total.errors,
        total.rows,
        total.violations.len(),
        clock.seconds()
    ));
    assert!(
        total.violations.is_empty(),
        "{}",
        total.violations.join("\n")
    );
    assert!(total.errors > 0 && total.rows > 0, "both ends are reached");
    let mutants = total.mutants;
    assert!(mutants >= 5_000 * effort() as u64, "{mutants} mutants");
}
