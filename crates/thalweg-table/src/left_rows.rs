//! Summaries of the rows that masks leave of blocks, kept in memory: summaries of the index count deleted rows as well.
//!
//! Invariants: a summary is of the rows of one block that one mask leaves, computed from these rows, so that it is as exact as one
//! of the index, whatever was deleted. It is found for this mask alone: one position more, and it is another one. Those of the blocks of
//! an item together are found for the very list of its masks, whose address no other list gets while they are kept.
//!
//! Rejected: to take sums of what is deleted away from sums of all. A deleted outlier leaves nothing of the digits of a sum of
//! floats, and no minimum or maximum comes from a difference.

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::{Arc, Weak};
use thalweg_kernel::index::{Entry, ItemName, Place};
use thalweg_kernel::masks::{MaskList, Positions};
use thalweg_kernel::summary::ColumnSummary;
use thalweg_kernel::{TableId, TableSnapshot};

/// Memory for all summaries of a database: those of some 30,000 blocks with a mask and six columns.
const CACHE_BYTES: u64 = 32 << 20;
/// Bytes of a kept block beside its columns and its mask.
const BLOCK_BYTES: usize = 160;
/// Memory for the sums of items.
const ITEMS_BYTES: u64 = 8 << 20;

/// A block of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockName {
    table: TableId,
    item: ItemName,
    rank: u64,
}

impl BlockName {
    pub(crate) fn new(table: TableId, place: Place) -> Self {
        let Place { item, rank } = place;
        Self { table, item, rank }
    }
}

/// The rows that a mask leaves of a block, as summaries.
#[derive(Debug)]
pub(crate) struct LeftRows {
    hidden: Positions,
    pub(crate) rows: u64,
    columns: Vec<ColumnSummary>,
}

impl LeftRows {
    /// The summaries of these columns, if all are known.
    pub(crate) fn columns(&self, wanted: &[ColumnSummary]) -> Option<Vec<ColumnSummary>> {
        columns_of(&self.columns, wanted)
    }
}

fn columns_of(known: &[ColumnSummary], wanted: &[ColumnSummary]) -> Option<Vec<ColumnSummary>> {
    let find = |wanted: &ColumnSummary| {
        let is_it =
            |of: &&ColumnSummary| of.column_id == wanted.column_id && of.kind == wanted.kind;
        known.iter().find(is_it).copied()
    };
    wanted.iter().map(find).collect()
}

/// An item of several blocks with its masks.
pub(crate) struct MaskedItem {
    table: TableId,
    name: ItemName,
    masks: Arc<MaskList>,
}

impl MaskedItem {
    /// The item that a walk has found; `None`: it is something else, or has no masks.
    pub(crate) fn found(
        table: &TableSnapshot,
        entry: &Entry,
        place: Option<Place>,
    ) -> Option<Self> {
        let name = place?.item;
        if entry.is_block() || name != ItemName::of(entry) {
            return None;
        }
        Some(Self {
            table: table.id,
            name,
            masks: Arc::clone(table.masks()?.shared_of_item(&name)?),
        })
    }

    pub(crate) fn name(&self) -> ItemName {
        self.name
    }
}

/// The rows that masks leave of an item, as summaries.
struct LeftOfItem {
    /// Keeps their address, so that no other list gets it, and lets go of what was in it.
    masks: Weak<MaskList>,
    rows: u64,
    columns: Vec<ColumnSummary>,
}

#[derive(Clone)]
struct Weigh;

impl Weighter<BlockName, Arc<LeftRows>> for Weigh {
    fn weight(&self, _: &BlockName, left: &Arc<LeftRows>) -> u64 {
        let columns = left.columns.len() * size_of::<ColumnSummary>();
        (BLOCK_BYTES + columns + left.hidden.len_bytes()) as u64
    }
}

impl Weighter<(TableId, ItemName), Arc<LeftOfItem>> for Weigh {
    fn weight(&self, _: &(TableId, ItemName), left: &Arc<LeftOfItem>) -> u64 {
        (BLOCK_BYTES + left.columns.len() * size_of::<ColumnSummary>()) as u64
    }
}

/// The summaries of a database.
pub(crate) struct AllLeftRows {
    blocks: Cache<BlockName, Arc<LeftRows>, Weigh>,
    items: Cache<(TableId, ItemName), Arc<LeftOfItem>, Weigh>,
}

impl Default for AllLeftRows {
    fn default() -> Self {
        Self {
            blocks: Cache::with_weighter(1_000, CACHE_BYTES, Weigh),
            items: Cache::with_weighter(1_000, ITEMS_BYTES, Weigh),
        }
    }
}

impl AllLeftRows {
    /// The summaries of the rows that this mask leaves of a block, if they are known.
    pub(crate) fn get(&self, block: &BlockName, hidden: &Positions) -> Option<Arc<LeftRows>> {
        self.blocks.get(block).filter(|left| left.hidden == *hidden)
    }

    /// Keeps summaries of the rows that a mask leaves of a block, beside those of other columns that are known.
    pub(crate) fn keep(
        &self,
        block: BlockName,
        hidden: &Positions,
        rows: u64,
        columns: Vec<ColumnSummary>,
    ) {
        let known = self.get(&block, hidden);
        let others = known.iter().flat_map(|known| &known.columns).copied();
        let is_other = |of: &ColumnSummary| columns.iter().all(|new| new.column_id != of.column_id);
        let others: Vec<ColumnSummary> = others.filter(is_other).collect();
        let left = LeftRows {
            hidden: hidden.clone(),
            rows,
            columns: [columns, others].concat(),
        };
        self.blocks.insert(block, Arc::new(left));
    }

    /// How many rows are left of an item, and the summaries of these columns of them, if they are known.
    pub(crate) fn of_item(
        &self,
        item: &MaskedItem,
        wanted: &[ColumnSummary],
    ) -> Option<(u64, Vec<ColumnSummary>)> {
        let left = self.items.get(&(item.table, item.name))?;
        if !std::ptr::eq(left.masks.as_ptr(), Arc::as_ptr(&item.masks)) {
            return None;
        }
        Some((left.rows, columns_of(&left.columns, wanted)?))
    }

    /// Keeps summaries of the rows that are left of an item.
    pub(crate) fn keep_item(&self, item: MaskedItem, rows: u64, columns: Vec<ColumnSummary>) {
        let left = LeftOfItem {
            masks: Arc::downgrade(&item.masks),
            rows,
            columns,
        };
        self.items.insert((item.table, item.name), Arc::new(left));
    }
}
