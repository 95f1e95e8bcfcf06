//! Crashes, failing calls and damaged bytes under tables of every layout.
//!
//! Crashes come at each storage call of a script, errors at one in 17. `THALWEG_STAGES` multiplies the number of scripts and of
//! damaged places, and lets each call fail.
#![allow(
    clippy::panic,
    clippy::print_stdout,
    reason = "a violation is told by a panic, counts are printed"
)]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use common::Order;
use common::stages::{self, Kind};

const KINDS: [Kind; 7] = [
    kind(Order::Time, None, None),
    kind(Order::Time, Some("500"), None),
    kind(Order::Arrival, None, None),
    kind(Order::Hash, None, None),
    kind(Order::Time, None, Some("number")),
    kind(Order::Time, Some("500"), Some("ts, number")),
    kind(Order::Arrival, None, Some("number")),
];

const fn kind(order: Order, split: Option<&'static str>, unique: Option<&'static str>) -> Kind {
    Kind {
        order,
        split,
        unique,
    }
}

/// Scripts of each kind of table. Some of them do little.
const SCRIPTS: u64 = 8;

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
    for seed in seeds(SCRIPTS * share()) {
        for kind in KINDS {
            let counts = stages::crash(kind, seed, 10);
            println!("{kind:?}: {counts:?}");
            assert!(counts.calls > 0 && counts.images > 0);
        }
    }
}

#[test]
fn a_failing_call_leaves_what_a_commit_left() {
    let every = if share() > 1 { 1 } else { 17 };
    for seed in seeds(SCRIPTS * share()) {
        for kind in KINDS {
            let counts = stages::errors(kind, seed, 14, every);
            println!("{kind:?}: {counts:?}");
            assert!(counts.calls > 0);
        }
    }
}

#[test]
fn damage_is_found_or_makes_no_difference() {
    for seed in seeds(4) {
        for kind in KINDS {
            let counts = stages::damage(kind, seed, 14, 10 * share());
            println!("{kind:?}: {counts:?}");
            assert!(counts.images > 0);
        }
    }
}
