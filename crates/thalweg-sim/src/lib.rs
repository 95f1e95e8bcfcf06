//! Test tools for the kernel: a minimal layer of rows above it, workloads, a ledger, and the machinery that crashes,
//! fails and damages at every point.
//!
//! Not published, and no part of the product: it may panic, since a panic is how it reports.
#![forbid(unsafe_code)]
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a failed expectation of the test layer is a failed test"
)]

pub mod checkpoint_frames;
pub mod checkpoints;
pub mod crash;
pub mod damage;
pub mod driver;
pub mod errors;
pub mod files;
pub mod follower;
pub mod hooks;
pub mod masks;
pub mod oracle;
pub mod orders;
pub mod repair;
pub mod report;
pub mod resources;
pub mod shape;
pub mod toy;
pub mod uses;
pub mod workloads;
