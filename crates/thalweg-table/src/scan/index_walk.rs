//! The walk of a scan over the index: the blocks that can have rows with the wanted keys and values.
//!
//! Invariants: blocks come in the order of the index, each with its mask; none of whose rows all are deleted. What was pruned is
//! counted when the walk has ended.

use crate::deleted_rows::{Block, step_into};
use crate::range::KeyRange;
use crate::reader::Reader;
use crate::scan::{Counter, ScanMetrics};
use std::sync::Arc;
use thalweg_kernel::index::{Step, Walk};
use thalweg_kernel::store::Store;
use thalweg_kernel::summary::ValueRange;
use thalweg_kernel::{Result, TableSnapshot};

/// Finds the blocks of a scan.
pub(super) struct IndexWalk {
    table: TableSnapshot,
    walk: Walk<Arc<Store>>,
    /// Columns by id, and the values that rows are wanted for.
    ranges: Vec<(u32, ValueRange)>,
    metrics: Arc<ScanMetrics>,
    pages: u64,
    found: u64,
}

impl IndexWalk {
    /// The walk over what a reader wants of a table; `None` if it wants no keys.
    pub(super) fn new(table: TableSnapshot, reader: &Reader) -> Option<Self> {
        let KeyRange { first, last } = reader.keys();
        let total = table.tree.total().map_or(0, |total| total.blocks);
        reader.metrics().add(Counter::blocks_total, total);
        let walk = table
            .tree
            .walk(Some(first..=last), Arc::clone(reader.store()));
        (first <= last).then(|| Self {
            walk,
            ranges: reader.ranges().to_vec(),
            metrics: Arc::clone(reader.metrics()),
            pages: 0,
            found: 0,
            table,
        })
    }

    /// The next block.
    pub(super) fn next(&mut self) -> Result<Option<Block>> {
        let (ranges, metrics, table) = (&self.ranges, &self.metrics, &self.table);
        let next = self.walk.next_at(|entry, place| {
            let prunes = |(column, range): &(u32, ValueRange)| entry.prunes(*column, range);
            if ranges.iter().any(prunes) {
                metrics.add(Counter::blocks_pruned_by_summary, entry.blocks);
                return Step::Skip;
            }
            step_into(table, entry, place)
        })?;
        metrics.add(Counter::pages_loaded, self.walk.pages() - self.pages);
        self.pages = self.walk.pages();
        let Some(entry) = next else {
            let seen = self.found + metrics.blocks_pruned_by_summary();
            let unseen = metrics.blocks_total().saturating_sub(seen);
            metrics.add(Counter::blocks_pruned_by_time, unseen);
            return Ok(None);
        };
        self.found += 1;
        Ok(Some(Block::found(table, entry, self.walk.place())))
    }
}
