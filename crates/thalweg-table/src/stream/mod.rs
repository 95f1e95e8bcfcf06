//! The stream layout: timestamped events, ordered by application time (docs/format/stream.md).
//!
//! Invariants: rows ascend by order key inside a block; blocks of one commit ascend as well; nothing crosses a regular
//! split. Late rows are blocks and open rows like others: what a reader sees is sorted by key, and by arrival where keys
//! are equal, whatever order the rows came in.

mod blocks;
mod delete;
mod encoder;
mod maintain;
mod overlaps;
mod read;
mod sizes;
mod stats;
mod write;

pub(crate) use delete::delete_range;
pub(crate) use encoder::StreamEncoder;
pub(crate) use maintain::maintain;
pub(crate) use read::{partitions, scan};
pub(crate) use stats::stats;
pub(crate) use write::append;
