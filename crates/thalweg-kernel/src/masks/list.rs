//! The masks of one item, by the ranks of its blocks.
//!
//! Invariants: ranks ascend and no two masks speak of one block; no two runs of whole blocks adjoin; a list that is stored
//! has one mask at least.

use super::positions::{Positions, varint_len};
use crate::wire::{Fault, Reader, put_varint};
use std::collections::BTreeMap;

const FORM_BLOCKS: u8 = 3;
const RANKS_LIMIT: u64 = 1 << 32;

/// What is hidden of a block, or of blocks with ranks in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockMask {
    /// Rows of one block.
    Rows(Positions),
    /// All rows of a block and of so many further ones.
    Blocks {
        /// Blocks behind the first one.
        further: u32,
        /// Rows of all of them, those that were hidden before too.
        rows: u64,
    },
}

impl BlockMask {
    /// Rows that it hides.
    #[must_use]
    pub fn rows(&self) -> u64 {
        match self {
            Self::Rows(positions) => positions.rows().into(),
            Self::Blocks { rows, .. } => *rows,
        }
    }

    fn further(&self) -> u32 {
        match self {
            Self::Rows(_) => 0,
            Self::Blocks { further, .. } => *further,
        }
    }

    fn len_bytes(&self) -> usize {
        match self {
            Self::Rows(positions) => positions.len_bytes(),
            Self::Blocks { further, rows } => 1 + varint_len((*further).into()) + varint_len(*rows),
        }
    }
}

/// Masks by the rank of the block, of several ones by that of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaskList {
    masks: BTreeMap<u32, BlockMask>,
}

/// What adding one list to another does: rows that are hidden newly, and masks as they are then.
pub(super) struct Plan {
    pub(super) newly: u64,
    masks: Vec<(u32, BlockMask)>,
}

impl MaskList {
    /// A list of masks by rank.
    ///
    /// # Errors
    /// What is wrong with them: two speak of one block, or two runs of whole blocks adjoin.
    pub fn of(masks: impl IntoIterator<Item = (u32, BlockMask)>) -> Result<Self, &'static str> {
        let masks: BTreeMap<u32, BlockMask> = masks.into_iter().collect();
        let mut before: Option<(u64, bool)> = None;
        for (&rank, mask) in &masks {
            let is_whole = matches!(mask, BlockMask::Blocks { .. });
            check_next(before, rank.into(), mask)?;
            before = Some((u64::from(rank) + u64::from(mask.further()) + 1, is_whole));
        }
        Ok(Self { masks })
    }

    /// The masks and the ranks of their first blocks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &BlockMask)> {
        self.masks.iter().map(|(rank, mask)| (*rank, mask))
    }

    /// Whether nothing is hidden.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.masks.is_empty()
    }

    /// Rows that it hides.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.masks
            .values()
            .map(BlockMask::rows)
            .fold(0, u64::saturating_add)
    }

    /// What is hidden of the block with a rank.
    #[must_use]
    pub fn of_block(&self, rank: u32) -> Option<&BlockMask> {
        self.mask_over(rank).map(|(_, mask)| mask)
    }

    /// The mask of the block with a rank, and the rank of the first block that it is of.
    pub(crate) fn mask_over(&self, rank: u32) -> Option<(u32, &BlockMask)> {
        let (first, mask) = self.masks.range(..=rank).next_back()?;
        (rank - first <= mask.further()).then_some((*first, mask))
    }

    /// The rank behind the last block with a mask.
    pub(crate) fn end(&self) -> u64 {
        let last = self.masks.last_key_value();
        last.map_or(0, |(rank, mask)| {
            u64::from(*rank) + u64::from(mask.further()) + 1
        })
    }

    /// Whether a mask lies in a range of ranks.
    #[must_use]
    pub fn meets(&self, ranks: std::ops::Range<u32>) -> bool {
        ranks.start < ranks.end
            && (self.of_block(ranks.start).is_some() || self.masks.range(ranks).next().is_some())
    }

    /// Hides what another list hides; returns how many rows that hides newly. `None`, and nothing is hidden: a row, or a
    /// block that is to be hidden as a whole, is hidden already.
    #[must_use]
    pub fn add(&mut self, new: &Self) -> Option<u64> {
        let plan = self.plan(new)?;
        let newly = plan.newly;
        self.carry_out(plan);
        Some(newly)
    }

    /// What adding another list does, if it can be added.
    pub(super) fn plan(&self, new: &Self) -> Option<Plan> {
        let mut newly = 0_u64;
        let mut masks = Vec::new();
        for (rank, mask) in new.iter() {
            let (united, rows) = match mask {
                BlockMask::Rows(positions) => {
                    (self.united(rank, positions)?, positions.rows().into())
                }
                BlockMask::Blocks { further, rows } => {
                    (mask.clone(), self.newly_whole(rank, *further, *rows)?)
                }
            };
            newly = newly.checked_add(rows)?;
            masks.push((rank, united));
        }
        Some(Plan { newly, masks })
    }

    /// Does what was planned for the list as it is.
    pub(super) fn carry_out(&mut self, plan: Plan) {
        for (rank, mask) in plan.masks {
            self.set(rank, mask);
        }
    }

    /// The mask of a block with these rows too.
    fn united(&self, rank: u32, positions: &Positions) -> Option<BlockMask> {
        match self.of_block(rank) {
            None => Some(BlockMask::Rows(positions.clone())),
            Some(BlockMask::Rows(hidden)) => hidden.union_of_new(positions).map(BlockMask::Rows),
            Some(BlockMask::Blocks { .. }) => None,
        }
    }

    /// How many rows of whole blocks are not hidden yet.
    fn newly_whole(&self, rank: u32, further: u32, rows: u64) -> Option<u64> {
        let last = rank.checked_add(further)?;
        if matches!(self.of_block(rank), Some(BlockMask::Blocks { .. })) {
            return None;
        }
        let mut left = rows;
        for mask in self.masks.range(rank..=last).map(|(_, mask)| mask) {
            let BlockMask::Rows(hidden) = mask else {
                return None;
            };
            left = left.checked_sub(hidden.rows().into())?;
        }
        Some(left)
    }

    /// Puts a mask in the place of what it has taken up; whole blocks that adjoin are one mask.
    fn set(&mut self, rank: u32, mask: BlockMask) {
        let BlockMask::Blocks {
            mut further,
            mut rows,
        } = mask
        else {
            self.masks.insert(rank, mask);
            return;
        };
        let mut first = rank;
        let covered: Vec<u32> = self
            .masks
            .range(rank..=rank + further)
            .map(|(rank, _)| *rank)
            .collect();
        for rank in covered {
            self.masks.remove(&rank);
        }
        if let Some((
            &before,
            BlockMask::Blocks {
                further: n,
                rows: of_before,
            },
        )) = self.masks.range(..rank).next_back()
            && before + n + 1 == rank
        {
            (first, further, rows) = (before, further + n + 1, rows.saturating_add(*of_before));
        }
        let behind = u32::try_from(u64::from(first) + u64::from(further) + 1);
        if let Some(&BlockMask::Blocks {
            further: n,
            rows: of_behind,
        }) = behind.ok().and_then(|rank| self.masks.get(&rank))
        {
            self.masks.remove(&(first + further + 1));
            (further, rows) = (further + n + 1, rows.saturating_add(of_behind));
        }
        self.masks
            .insert(first, BlockMask::Blocks { further, rows });
    }

    /// Bytes that [`MaskList::put`] appends.
    pub(crate) fn len_bytes(&self) -> usize {
        let mut next = 0;
        let mut bytes = varint_len(self.masks.len() as u64);
        for (&rank, mask) in &self.masks {
            bytes += varint_len(u64::from(rank) - next) + mask.len_bytes();
            next = u64::from(rank) + u64::from(mask.further()) + 1;
        }
        bytes
    }

    /// Appends the list as it is stored.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        debug_assert!(!self.masks.is_empty(), "a stored list hides something");
        put_varint(self.masks.len() as u128, out);
        let mut next = 0;
        for (&rank, mask) in &self.masks {
            put_varint(u128::from(u64::from(rank) - next), out);
            match mask {
                BlockMask::Rows(positions) => positions.put(out),
                BlockMask::Blocks { further, rows } => {
                    out.push(FORM_BLOCKS);
                    put_varint((*further).into(), out);
                    put_varint((*rows).into(), out);
                }
            }
            next = u64::from(rank) + u64::from(mask.further()) + 1;
        }
    }

    /// Reads a list.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let count = reader.varint_u64()?;
        if count == 0 {
            return Err("a list of no masks".into());
        }
        let mut masks = BTreeMap::new();
        let mut before: Option<(u64, bool)> = None;
        for _ in 0..count {
            let gap = reader.varint_u64()?;
            let next = before.map_or(0, |(next, _)| next);
            let rank = next.saturating_add(gap);
            let form = reader.u8()?;
            let mask = if form == FORM_BLOCKS {
                let (further, rows) = (reader.varint_u32()?, reader.varint_u64()?);
                BlockMask::Blocks { further, rows }
            } else {
                BlockMask::Rows(Positions::read(form, reader)?)
            };
            check_next(before, rank, &mask)?;
            let is_whole = matches!(mask, BlockMask::Blocks { .. });
            before = Some((rank + u64::from(mask.further()) + 1, is_whole));
            masks.insert(
                u32::try_from(rank).map_err(|_| "a rank that no item has")?,
                mask,
            );
        }
        Ok(Self { masks })
    }
}

/// Checks a mask that follows another one: where that ends, and whether it is of whole blocks.
fn check_next(
    before: Option<(u64, bool)>,
    rank: u64,
    mask: &BlockMask,
) -> Result<(), &'static str> {
    let (next, follows_whole) = before.unwrap_or((0, false));
    if rank < next {
        return Err("two masks of one block");
    }
    if rank.saturating_add(mask.further().into()) >= RANKS_LIMIT {
        return Err("a rank that no item has");
    }
    if let BlockMask::Blocks { further, rows } = mask {
        if follows_whole && rank == next {
            return Err("two masks of whole blocks adjoin");
        }
        if *rows <= u64::from(*further) {
            return Err("whole blocks without rows");
        }
    }
    Ok(())
}
