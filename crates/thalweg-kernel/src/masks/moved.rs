//! The masks of blocks that are copied byte for byte into a fragment: positions stay, items and ranks are others.
//!
//! Invariant: the rank of a block is its place by key among all blocks of the fragment, however they were copied.

use super::edit::ItemMask;
use super::list::{BlockMask, MaskList};
use crate::index::{Entry, EntryKey, ItemName};

/// Blocks that are copied, in whatever order, and what is hidden of them.
#[derive(Default)]
pub(crate) struct MovedMasks {
    blocks: Vec<(EntryKey, u64, Option<BlockMask>)>,
    hidden: u64,
}

impl MovedMasks {
    /// Notes a block, and the mask that it has where it is copied from.
    pub(crate) fn push(&mut self, block: &Entry, mask: Option<&BlockMask>) {
        let mask = mask.map(|mask| match mask {
            BlockMask::Rows(positions) => BlockMask::Rows(positions.clone()),
            // Of a run of blocks, this one.
            BlockMask::Blocks { .. } => BlockMask::Blocks {
                further: 0,
                rows: block.rows,
            },
        });
        self.hidden += mask.as_ref().map_or(0, BlockMask::rows);
        self.blocks.push((block.key(), block.rows, mask));
    }

    /// Rows that are hidden in all of them.
    pub(crate) fn rows(&self) -> u64 {
        self.hidden
    }

    /// The masks of the fragment that they were copied into; `None`: nothing is hidden.
    pub(crate) fn of_fragment(mut self, root: &Entry) -> Option<ItemMask> {
        self.blocks.sort_by_key(|(key, ..)| *key);
        let mut masks: Vec<(u32, BlockMask)> = Vec::new();
        for (rank, (_, _, mask)) in (0_u32..).zip(self.blocks) {
            match (mask, masks.last_mut()) {
                (None, _) => {}
                (
                    Some(BlockMask::Blocks { rows: more, .. }),
                    Some((first, BlockMask::Blocks { further, rows })),
                ) if *first + *further + 1 == rank => {
                    *further += 1;
                    *rows += more;
                }
                (Some(mask), _) => masks.push((rank, mask)),
            }
        }
        let masks = MaskList::of(masks).ok().filter(|masks| !masks.is_empty())?;
        Some(ItemMask {
            name: ItemName::of(root),
            rows: root.rows,
            newly: self.hidden,
            masks,
        })
    }
}
