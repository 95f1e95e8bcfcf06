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

use std::sync::atomic::{AtomicUsize, Ordering};
use thalweg_env::sim::SimEnv;

/// Does the work of all items, two at a time: as many cores as the smallest machines have, while the processes of one model take turns.
pub fn two_at_once<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

/// A machine with a database of some arrays, everything on disk.
pub fn machine(seed: u64, tables: u32) -> SimEnv {
    let sim = SimEnv::new(seed);
    sim.set_wall_stopped(true);
    sim.set_tick_ns(0);
    plain::create(&sim.env(), tables);
    sim.sync_everything();
    sim
}
