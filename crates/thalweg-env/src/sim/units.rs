//! The units in which a disk writes.
//!
//! Invariant: the larger unit consists of whole smaller ones.

/// The unit a disk writes at once, the smaller one.
pub const SECTOR_BYTES: u64 = 512;
/// The unit a disk writes at once, the larger one.
pub const PAGE_BYTES: u64 = 4096;
