//! The cost of writing blocks anew.

use thalweg_kernel::index::Entry;

/// Encoded bytes that are as much work as a row, where rows are wide.
const BYTES_PER_ROW: u64 = 64;

/// The cost of writing a block anew, in rows.
pub(super) fn cost(block: &Entry) -> u64 {
    block.rows.max(block.block_bytes / BYTES_PER_ROW)
}
