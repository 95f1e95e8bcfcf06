//! Table layouts over the kernel: schemas, indexes, scans and aggregates as Arrow batches.
#![forbid(unsafe_code)]

pub mod definition;
mod error;
pub mod options;
pub mod schema;
pub mod time;

pub use definition::{Column, Layout, Summaries, TableDefinition};
pub use options::{CreateOptions, SummaryOption};
pub use time::{Split, TimeBound, key_range, order_keys};
