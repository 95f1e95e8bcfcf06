//! Real processes that are killed with signal 9 at any moment: nothing acknowledged is lost, nothing is there twice, no
//! batch is there in part, and no reader, in whatever process, sees anything else.
//!
//! The test program starts itself again in the roles of module `roles`; what these acknowledged stands in a *ledger*, a
//! file outside the database. Longer runs: `THALWEG_KILLS=1000`, `THALWEG_READERS_SECONDS=300`.
#![cfg(not(feature = "sql"))] // The engine is the same below SQL, and its tests need not wait for it.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    reason = "real processes, clocks and files are what is tested, and whatever goes wrong fails the test"
)]

mod forks;
mod handles;
mod kill;
mod ledger;
mod readers;
mod roles;
mod rows;
mod stopped;
mod tasks;

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Draws differently in each run, and says how to repeat one.
fn random(test: &str) -> fastrand::Rng {
    let seed = setting("THALWEG_SEED", fastrand::u64(..));
    println!("{test}: THALWEG_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// Not a test: what the program does when it was started by one. Without a role it is done at once.
#[test]
fn role() {
    roles::run();
}
