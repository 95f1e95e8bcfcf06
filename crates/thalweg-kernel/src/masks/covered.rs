//! Open rows that were encoded: the rows of their blocks that are hidden because they were deleted meanwhile.
//!
//! Invariants: rows that were hidden when they were encoded are in no block; each other one is in one of them. Which rows are
//! hidden is asked when the blocks come in their place.

use super::edit::{ItemMask, MaskEdit};
use super::list::{BlockMask, MaskList};
use super::positions::Positions;
use super::state::TableMasks;
use crate::ids::{CommitNo, TableId};
use crate::index::{Entry, ItemName};

/// Where the rows of blocks come from.
#[derive(Debug)]
pub(crate) struct CoveredRows {
    parts: Vec<CoveredPart>,
    /// Of each row of the blocks, one block after the other, its number among the rows of all parts.
    sources: Vec<u32>,
}

/// Open rows of a commit.
#[derive(Debug)]
pub(crate) struct CoveredPart {
    pub(crate) commit: CommitNo,
    pub(crate) number: u32,
    pub(crate) rows: u32,
    /// Those that were hidden already.
    pub(crate) left_out: Option<Positions>,
}

/// How the encoded blocks come into the index of the table.
pub(crate) enum Covering<'a> {
    /// An item each.
    Blocks(&'a [Entry]),
    /// One fragment; the blocks are in the order in which they were encoded.
    Fragment(&'a Entry, &'a [Entry]),
}

impl CoveredRows {
    pub(crate) fn new(parts: Vec<CoveredPart>, sources: Vec<u32>) -> Self {
        Self { parts, sources }
    }

    /// The edit that hides in the blocks what was deleted since they were encoded, if anything was.
    pub(crate) fn masks_of(
        &self,
        table: TableId,
        covering: &Covering<'_>,
        masks: &TableMasks,
    ) -> Option<MaskEdit> {
        let deleted = self.deleted_since(masks)?;
        let blocks = match covering {
            Covering::Blocks(blocks) | Covering::Fragment(_, blocks) => *blocks,
        };
        let mut sources = &self.sources[..];
        let mut hidden: Vec<(&Entry, Positions)> = Vec::new();
        for block in blocks {
            let rows = usize::try_from(block.rows).unwrap_or(usize::MAX);
            let (own, others) = sources.split_at_checked(rows)?;
            sources = others;
            let is_deleted = |source: &u32| deleted.get(*source as usize) == Some(&true);
            let positions = (0_u32..).zip(own).filter(|(_, source)| is_deleted(source));
            let positions: Vec<u32> = positions.map(|(at, _)| at).collect();
            if !positions.is_empty() {
                hidden.push((block, Positions::of_rows(positions)));
            }
        }
        let items = match covering {
            Covering::Blocks(_) => {
                let items = hidden
                    .into_iter()
                    .map(|(block, positions)| item(block, [(0, positions)]));
                items.collect::<Option<Vec<_>>>()?
            }
            Covering::Fragment(root, blocks) => {
                let mut keys: Vec<_> = blocks.iter().map(Entry::key).collect();
                keys.sort_unstable();
                let rank = |block: &Entry| {
                    u32::try_from(keys.partition_point(|key| *key < block.key())).ok()
                };
                let ranked = hidden
                    .into_iter()
                    .map(|(block, positions)| Some((rank(block)?, positions)));
                let mut ranked = ranked.collect::<Option<Vec<_>>>()?;
                ranked.sort_unstable_by_key(|(rank, _)| *rank);
                vec![item(root, ranked)?]
            }
        };
        let parts = Vec::new();
        Some(MaskEdit {
            table,
            items,
            parts,
        })
    }

    /// Which of all rows were hidden since; `None`: none was.
    fn deleted_since(&self, masks: &TableMasks) -> Option<Vec<bool>> {
        let hidden_now = |part: &CoveredPart| masks.of_part(part.commit, part.number);
        let is_same = |part: &CoveredPart| {
            let before = part.left_out.as_ref().map_or(0, Positions::rows);
            hidden_now(part).map_or(0, |mask| mask.positions.rows()) == before
        };
        if self.parts.iter().all(is_same) {
            return None;
        }
        let rows: usize = self.parts.iter().map(|part| part.rows as usize).sum();
        let mut deleted = vec![false; rows];
        let mut first = 0;
        for part in &self.parts {
            let of_part = &mut deleted[first..first + part.rows as usize];
            first += part.rows as usize;
            let now = hidden_now(part).map(|mask| (&mask.positions, true));
            let before = part.left_out.as_ref().map(|positions| (positions, false));
            for (positions, is_deleted) in now.into_iter().chain(before) {
                for run in positions.runs() {
                    of_part
                        .get_mut(run.start as usize..run.end as usize)?
                        .fill(is_deleted);
                }
            }
        }
        Some(deleted)
    }
}

fn item(item: &Entry, masks: impl IntoIterator<Item = (u32, Positions)>) -> Option<ItemMask> {
    let masks = masks
        .into_iter()
        .map(|(rank, positions)| (rank, BlockMask::Rows(positions)));
    let masks = MaskList::of(masks).ok()?;
    Some(ItemMask {
        name: ItemName::of(item),
        rows: item.rows,
        newly: masks.rows(),
        masks,
    })
}
