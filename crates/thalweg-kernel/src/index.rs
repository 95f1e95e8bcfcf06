//! The index of one table: a persistent TAB+-tree over its blocks.

use crate::ids::{CommitNo, FileId};
use crate::summary::ColumnSummary;
use std::sync::Arc;

/// Where a block or an index page lies. `head_bytes` is what must be read to know the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The segment or fragment.
    pub file: FileId,
    /// From the start of the file.
    pub offset: u64,
    /// All of it.
    pub bytes: u32,
    /// The header and directory at its front.
    pub head_bytes: u32,
    /// CRC32C of the head: the parent vouches for the child, so an old child cannot stand in for a newer one.
    pub head_crc: u32,
}

/// What is known of a block, or of all blocks below an index page.
#[derive(Clone, Debug)]
pub struct Entry {
    /// 0 for a block, the level of the page (1 = its entries are blocks) otherwise.
    pub level: u8,
    /// All rows of the block are in key order (pages: meaningless, false).
    pub sorted: bool,
    /// Rows below.
    pub rows: u64,
    /// Blocks below.
    pub blocks: u64,
    /// Encoded bytes of the blocks below.
    pub block_bytes: u64,
    /// Smallest and largest order key (the time of a stream).
    pub key_min: i64,
    /// See `key_min`.
    pub key_max: i64,
    /// Largest `key_max` of anything to the left in the same page is not kept: readers sweep by `key_min`.
    /// First and last commit whose rows are in here; arrival order breaks ties of equal keys.
    pub commit_min: CommitNo,
    /// See `commit_min`.
    pub commit_max: CommitNo,
    /// The number of the block within its commit.
    pub ordinal: u32,
    /// Summaries by column, ascending ids; columns without one are absent.
    pub columns: Arc<[ColumnSummary]>,
}
