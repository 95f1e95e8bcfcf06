//! Masks: which rows of a table are deleted (`docs/design/next-format/masks.md`).
//!
//! Invariants
//! - A list of positions and a mask list have one spelling: what is decoded and encoded again gives the same bytes.
//! - Positions stay in the form that they are stored in. Walking them, uniting them and comparing them expands nothing; a
//!   union builds one mask at a time.
//! - Masks only grow. What is added is new: two edits that hide one row, of which one would be counted twice, are refused by
//!   the second one ([`MaskList::add`]).
//! - Whatever is decoded, memory is bounded by the bytes that are there.

mod chunks;
mod covered;
mod edit;
mod list;
mod moved;
mod positions;
mod state;
#[cfg(test)]
mod tests;

pub use crate::index::ItemName;
pub(crate) use covered::{CoveredPart, CoveredRows, Covering};
pub use edit::{ItemMask, MaskEdit, PartMask};
pub use list::{BlockMask, MaskList};
pub(crate) use moved::MovedBlocks;
pub use positions::{Positions, RunMarks};
pub use state::{Masked, OpenMask, TableMasks};
