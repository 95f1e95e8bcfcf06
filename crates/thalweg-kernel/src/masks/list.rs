//! The masks of one item, by the ranks of its blocks.
//!
//! Invariants: ranks ascend and no two masks are of one block; no two runs of whole blocks adjoin; a list that is stored
//! has one mask at least. A list shares with its copies what neither has changed, so that hiding a row costs the same however many
//! blocks of its item have masks; how many rows it hides and how long it is are kept as masks come and go.

use super::chunks::ChunkMap;
use super::positions::{Positions, varint_len};
use crate::wire::{Fault, Reader, put_varint};
use std::collections::BTreeMap;

const FORM_BLOCKS: u8 = 3;
const RANKS_LIMIT: u64 = 1 << 32;

/// The hidden rows of a block, or of several blocks with consecutive ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockMask {
    /// Rows of one block.
    Rows(Positions),
    /// All rows of a block and of so many further ones.
    Blocks {
        /// Blocks after the first one.
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
    masks: ChunkMap<u32, BlockMask>,
    count: usize,
    rows: u64,
    /// Bytes of the masks and of their ranks as they are stored.
    bytes: usize,
}

/// The effect of adding one list to another: how many rows are hidden newly, and the masks that change, as they are then.
pub(super) struct Plan {
    pub(super) newly: u64,
    masks: Vec<(u32, BlockMask)>,
}

impl MaskList {
    /// A list of masks by rank.
    ///
    /// # Errors
    /// A message where they do not fit together: two are of one block, or two runs of whole blocks adjoin.
    pub fn of(masks: impl IntoIterator<Item = (u32, BlockMask)>) -> Result<Self, &'static str> {
        let masks: BTreeMap<u32, BlockMask> = masks.into_iter().collect();
        let mut before: Option<(u64, bool)> = None;
        for (&rank, mask) in &masks {
            let is_whole = matches!(mask, BlockMask::Blocks { .. });
            check_next(before, rank.into(), mask)?;
            before = Some((u64::from(rank) + u64::from(mask.further()) + 1, is_whole));
        }
        let mut list = Self::default();
        for (rank, mask) in masks {
            list.insert(rank, mask);
        }
        Ok(list)
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

    /// How many masks there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Rows that it hides.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The mask of the block with a rank, if it has one.
    #[must_use]
    pub fn of_block(&self, rank: u32) -> Option<&BlockMask> {
        self.mask_over(rank).map(|(_, mask)| mask)
    }

    /// The mask of the block with a rank, and the rank of the first block that it is of.
    pub(crate) fn mask_over(&self, rank: u32) -> Option<(u32, &BlockMask)> {
        let (first, mask) = self.masks.up_to(&rank)?;
        (rank - first <= mask.further()).then_some((*first, mask))
    }

    /// The rank after the last block with a mask.
    pub(crate) fn end(&self) -> u64 {
        let last = self.masks.last();
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

    /// The effect of adding another list, if it can be added.
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
        for mask in self.within(rank, last).map(|(_, mask)| mask) {
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
            self.insert(rank, mask);
            return;
        };
        let mut first = rank;
        let covered = self.within(rank, rank + further);
        for rank in covered.map(|(rank, _)| rank).collect::<Vec<_>>() {
            self.remove(rank);
        }
        if let Some((
            &before,
            BlockMask::Blocks {
                further: n,
                rows: of_before,
            },
        )) = rank
            .checked_sub(1)
            .and_then(|before| self.masks.up_to(&before))
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
            self.remove(first + further + 1);
            (further, rows) = (further + n + 1, rows.saturating_add(of_behind));
        }
        self.insert(first, BlockMask::Blocks { further, rows });
    }

    /// The masks with ranks from one up to another one.
    fn within(&self, first: u32, last: u32) -> impl Iterator<Item = (u32, &BlockMask)> {
        let masks = self.masks.from(&first).map(|(rank, mask)| (*rank, mask));
        masks.take_while(move |(rank, _)| *rank <= last)
    }

    /// Gives a rank a mask in the place of the one that it has.
    fn insert(&mut self, rank: u32, mask: BlockMask) {
        self.remove(rank);
        self.count += 1;
        self.rows = self.rows.saturating_add(mask.rows());
        let (end, behind) = (rank_behind(rank, &mask), self.behind(rank));
        let start = self.end_before(rank);
        self.bytes += mask.len_bytes() + gap_len(start, rank.into());
        if let Some(behind) = behind {
            self.bytes = self.bytes + gap_len(end, behind) - gap_len(start, behind);
        }
        self.masks.insert(rank, mask);
    }

    fn remove(&mut self, rank: u32) {
        let Some(mask) = self.masks.remove(&rank) else {
            return;
        };
        self.count -= 1;
        self.rows = self.rows.saturating_sub(mask.rows());
        let (end, behind) = (rank_behind(rank, &mask), self.behind(rank));
        let start = self.end_before(rank);
        if let Some(behind) = behind {
            self.bytes = self.bytes + gap_len(start, behind) - gap_len(end, behind);
        }
        self.bytes -= mask.len_bytes() + gap_len(start, rank.into());
    }

    /// The rank of the first mask after a rank.
    fn behind(&self, rank: u32) -> Option<u64> {
        let mut behind = self.masks.from(&rank).map(|(rank, _)| *rank);
        behind.find(|other| *other > rank).map(u64::from)
    }

    /// The rank after the last block with a mask before a rank.
    fn end_before(&self, rank: u32) -> u64 {
        let before = rank.checked_sub(1);
        let before = before.and_then(|before| self.masks.up_to(&before));
        before.map_or(0, |(rank, mask)| rank_behind(*rank, mask))
    }

    /// Bytes that [`MaskList::put`] appends.
    pub(crate) fn len_bytes(&self) -> usize {
        varint_len(self.count as u64) + self.bytes
    }

    /// Appends the list as it is stored.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        debug_assert!(!self.masks.is_empty(), "a stored list hides something");
        put_varint(self.count as u128, out);
        let mut next = 0;
        for (rank, mask) in self.iter() {
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
        let mut list = Self::default();
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
            let rank = u32::try_from(rank).map_err(|_| "a rank that no item has")?;
            list.insert(rank, mask);
        }
        Ok(list)
    }
}

fn rank_behind(rank: u32, mask: &BlockMask) -> u64 {
    u64::from(rank) + u64::from(mask.further()) + 1
}

/// Bytes of a rank that follows the end of another mask.
fn gap_len(end: u64, rank: u64) -> usize {
    varint_len(rank.saturating_sub(end))
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
