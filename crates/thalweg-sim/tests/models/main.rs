//! Counting and interleaving models of the next format: every sequence of steps over a few rows, files and commits,
//! against what must hold, with no file and no byte.
//!
//! Each rule that a model rests on is a switch, and a test asserts that the model is violated without it: a rule that
//! nothing misses is none.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a failed expectation of a model is a failed test"
)]

mod coverage;
mod explore;
mod makers;
mod manifest;
mod masks;
mod orders;
mod repair;
mod rules;
mod table;
mod turns;
mod waits;
