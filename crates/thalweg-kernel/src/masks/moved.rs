//! Blocks that are copied byte for byte into a fragment: the rows of them that are hidden there.
//!
//! Invariants: positions stay, items and ranks are others; the rank of a block is its place by key among all blocks of the
//! fragment, however they were copied. Which masks they have is asked when the fragment comes in their place.

use super::edit::ItemMask;
use super::list::{BlockMask, MaskList};
use super::state::TableMasks;
use crate::index::{Entry, EntryKey, ItemName};

/// Blocks that are copied, in whatever order, and where from.
#[derive(Debug, Default)]
pub(crate) struct MovedBlocks(Vec<MovedBlock>);

#[derive(Debug)]
struct MovedBlock {
    key: EntryKey,
    rows: u64,
    /// The item that it is copied from, and its rank there.
    item: ItemName,
    rank: u32,
}

impl MovedBlocks {
    /// Notes a block of an item.
    pub(crate) fn push(&mut self, block: &Entry, item: ItemName, rank: u32) {
        self.0.push(MovedBlock {
            key: block.key(),
            rows: block.rows,
            item,
            rank,
        });
    }

    /// The masks of the fragment that they were copied into, given those of the items that they were copied from; `None`: nothing
    /// is hidden.
    pub(crate) fn masks_of(&mut self, root: &Entry, masks: &TableMasks) -> Option<ItemMask> {
        self.0.sort_by_key(|block| block.key);
        let mut moved: Vec<(u32, BlockMask)> = Vec::new();
        for (rank, block) in (0_u32..).zip(&self.0) {
            let list = masks.of_item(&block.item);
            let mask = list.and_then(|list| list.of_block(block.rank));
            match (mask, moved.last_mut()) {
                (None, _) => {}
                (
                    Some(BlockMask::Blocks { .. }),
                    Some((first, BlockMask::Blocks { further, rows })),
                ) if *first + *further + 1 == rank => {
                    *further += 1;
                    *rows += block.rows;
                }
                // Of a run of blocks, this one.
                (Some(BlockMask::Blocks { .. }), _) => {
                    let (further, rows) = (0, block.rows);
                    moved.push((rank, BlockMask::Blocks { further, rows }));
                }
                (Some(mask), _) => moved.push((rank, mask.clone())),
            }
        }
        let masks = MaskList::of(moved).ok().filter(|masks| !masks.is_empty())?;
        Some(ItemMask {
            name: ItemName::of(root),
            rows: root.rows,
            newly: masks.rows(),
            masks,
        })
    }
}
