//! Crashes, failing calls and damaged bytes under tables of every layout.
//!
//! Crashes come at each storage call of a script. `THALWEG_STAGES` multiplies the number of scripts and of damaged places.
#![allow(
    clippy::panic,
    clippy::print_stdout,
    reason = "a violation is told by a panic, counts are printed"
)]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use common::{Order, stages};

const ORDERS: [(Order, Option<&str>); 4] = [
    (Order::Time, None),
    (Order::Time, Some("500")),
    (Order::Arrival, None),
    (Order::Hash, None),
];

fn share() -> u64 {
    let stages = std::env::var("THALWEG_STAGES").ok();
    stages.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Another seed for each run, unless one is given.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let given = std::env::var("THALWEG_SEED").ok();
    let first = given.and_then(|text| text.parse().ok());
    let first = first.unwrap_or_else(|| fastrand::u64(..1 << 40));
    println!("THALWEG_SEED={first}");
    first..first + count
}

#[test]
fn a_crash_leaves_what_a_commit_left() {
    for seed in seeds(share()) {
        for (order, split) in ORDERS {
            let counts = stages::crash(order, seed, 10, split);
            println!("{order:?} {split:?}: {counts:?}");
            assert!(counts.calls > 0 && counts.images > 0);
        }
    }
}

#[test]
fn a_failing_call_leaves_what_a_commit_left() {
    for seed in seeds(share()) {
        for (order, split) in ORDERS {
            let counts = stages::errors(order, seed, 14, 17, split);
            println!("{order:?} {split:?}: {counts:?}");
            assert!(counts.calls > 0);
        }
    }
}

#[test]
fn damage_is_found_or_makes_no_difference() {
    for seed in seeds(1) {
        for (order, split) in ORDERS {
            let counts = stages::damage(order, seed, 14, 20 * share(), split);
            println!("{order:?} {split:?}: {counts:?}");
            assert!(counts.images > 0);
        }
    }
}
