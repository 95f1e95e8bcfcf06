//! A block: rows of one order of a table, one encoded chunk per column and role, in one piece (docs/format/block.md).
//!
//! Invariants
//! - A block does not know where it lies: it can be copied. Its head carries a plain checksum that whoever refers to
//!   the block repeats, and that covers the checksums of everything else.
//! - Chunks of the front, which decide what to read, come before those that belong to rows. Each group ascends by column and role,
//!   and chunks follow each other without gaps.
//! - Every page of every chunk, and every prelude, can be read, verified and decoded without the others.
//! - A [`BlockHead`] is verified; bytes of chunks are handed out verified only ([`ChunkPages`]).

mod build;
mod chunks;
mod grid;
mod head;
mod pages;
mod paging;
mod read;
mod role;
mod spec;

pub use crate::ids::ROWS_ORDER;
pub use build::{BlockBuilder, EncodedBlock};
pub use chunks::{CHUNK_ENTRY_BYTES, ChunkInfo};
pub use grid::{Dimension, Grid, GridOrder, MAX_DIMENSIONS};
pub use head::{BLOCK_HEADER_BYTES, BlockHead, verify};
pub use pages::{PageSet, PagesOf, StreamedPage, VerifiedPages};
pub use paging::Paging;
pub(crate) use read::{BlockBytes, WHOLE_BLOCK_BYTES};
pub use read::{BlockReader, ChunkPages, Wanted};
pub use role::{FILTER_BLOCK_BYTES, MAX_FILTER_BLOCKS, Role};
pub use spec::{
    BLOCK_PAGE_POSITIONS, BlockSpec, MAX_BLOCK_BYTES, MAX_BLOCK_COLUMNS, MAX_COLUMN_ID,
    MAX_PAGE_ENTRIES, MAX_PAGE_POSITIONS, MAX_POSITIONS, MIN_PAGE_POSITIONS,
};

#[cfg(test)]
mod tests;
