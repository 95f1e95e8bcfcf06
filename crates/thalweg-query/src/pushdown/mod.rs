//! Parts of plans that a table answers better than operators above it: ranges of time, ranges of other columns, aggregates.

pub(crate) mod aggregate;
pub(crate) mod aggregate_exec;
pub(crate) mod bucket;
pub(crate) mod columns;
mod comparison;
pub(crate) mod finish;
pub(crate) mod time;
