//! Sizes of blocks before they are encoded, kept between maintenances of a table.
//!
//! Invariant: a size belongs to a place in a file: what is written in the place of a block, with its key, is measured anew.

use std::collections::HashMap;
use thalweg_kernel::index::Address;

/// Bytes of the strings of each block of a table that was measured.
#[derive(Debug, Default)]
pub(crate) struct RawSizes(HashMap<Address, u64>);

impl RawSizes {
    /// Whether no block was measured.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Never packs a block again.
    pub(crate) fn leave_alone(&mut self, block: Address) {
        self.0.insert(block, u64::MAX);
    }

    /// The size of a block, if it was measured.
    pub(crate) fn of(&self, block: &Address) -> Option<u64> {
        self.0.get(block).copied()
    }

    /// Notes the size of a block.
    pub(crate) fn note(&mut self, block: Address, bytes: u64) {
        self.0.insert(block, bytes);
    }

    /// Forgets all blocks but those that `is_live` is true of.
    pub(crate) fn retain(&mut self, is_live: impl Fn(&Address) -> bool) {
        self.0.retain(|block, _| is_live(block));
    }
}
