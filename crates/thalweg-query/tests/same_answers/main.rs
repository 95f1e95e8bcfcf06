//! The same questions to a stored table and to a copy of its rows in memory, which DataFusion answers alone with all of
//! its rules: whatever is pushed down or planned by fewer rules, the answers must be the same.

#![expect(clippy::panic, clippy::unwrap_used, reason = "tests fail by panic")]

mod data;
mod fixed;
mod random;
