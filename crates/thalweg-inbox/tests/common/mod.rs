//! A plain database around the inbox, processes that make one call at a time, and what must hold.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "shared by tests, none of which uses all of it; a step that fails is a test that fails"
)]

pub mod check;
pub mod oracle;
pub mod plain;
pub mod scenarios;
pub mod script;
pub mod step;
pub mod world;

use thalweg_env::sim::SimEnv;

/// A machine with a database of some arrays, everything on disk.
pub fn machine(seed: u64, tables: u32) -> SimEnv {
    let sim = SimEnv::new(seed);
    sim.set_wall_stopped(true);
    sim.set_tick_ns(0);
    plain::create(&sim.env(), tables);
    sim.sync_everything();
    sim
}
