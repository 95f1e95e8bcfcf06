//! What the kernel is tested with: a minimal layer of rows above it, a model, workloads and fault plans.
//!
//! Not published, and no part of the product: it may panic, since a panic is how it reports.
#![forbid(unsafe_code)]
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a failed expectation of the test layer is a failed test"
)]

pub mod toy;
