//! The blocks of a table as its index lists them: which lie in files of their own, and which overlap.
//!
//! Invariants: blocks come in the order of their first rows, by key and, where keys are equal, by arrival, as a scan
//! takes them. Two neighbouring runs never overlap: every row of the first comes before every row of the second.

use crate::arrival::Arrival;
use crate::deleted_rows::{Block, step_into};
use crate::table::TableView;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use thalweg_kernel::index::{Entry, ItemName};
use thalweg_kernel::masks::BlockMask;
use thalweg_kernel::{FileId, Result};

/// All blocks of a view that have rows which are not deleted.
pub(crate) struct BlockList {
    pub(crate) blocks: Vec<Entry>,
    /// The deleted rows of those that have some, by their places in the list.
    pub(crate) masks: HashMap<usize, BlockMask>,
    /// The files that hold nothing but blocks of this table.
    pub(crate) fragments: HashMap<FileId, Fragment>,
}

/// A file of blocks.
pub(crate) struct Fragment {
    /// The item of the index that leads to it.
    pub(crate) item: ItemName,
    /// Bytes of its blocks.
    pub(crate) bytes: u64,
    /// Their rows, deleted ones too.
    pub(crate) rows: u64,
}

/// Where a row is in the order of its table.
pub(crate) type Place = (i64, Arrival);

impl BlockList {
    /// Walks the whole index.
    pub(crate) fn read(view: &TableView) -> Result<Self> {
        let store = view.engine().kernel().store();
        let mut files: HashMap<FileId, Fragment> = HashMap::new();
        let (mut blocks, mut masks) = (Vec::new(), HashMap::new());
        let table = view.snapshot();
        let mut walk = table.tree.walk(None, Arc::clone(store));
        while let Some(entry) = walk.next_at(|entry, place| {
            // The root page of a fragment is an item of the index and comes before all other pages of its file. A
            // page that is not written yet has no place.
            if !entry.is_block() && entry.address.bytes > 0 {
                files.entry(entry.address.file).or_insert_with(|| Fragment {
                    item: ItemName::of(entry),
                    bytes: entry.block_bytes,
                    rows: entry.rows,
                });
            }
            step_into(table, entry, place)
        })? {
            let Block { entry, mask } = Block::found(table, entry, walk.place());
            masks.extend(mask.map(|mask| (blocks.len(), mask)));
            blocks.push(entry);
        }
        // The other files are segments of the log. If a fragment were mistaken for one, replacing one of its blocks would take the
        // fragment out of the index with all of them: so where the kind of a file cannot be found out, there is no list.
        let mut fragments = HashMap::new();
        for (file, fragment) in files {
            if store.is_fragment(file)? {
                fragments.insert(file, fragment);
            }
        }
        Ok(Self {
            blocks,
            masks,
            fragments,
        })
    }

    /// The block at a place in the list, with its mask.
    pub(crate) fn block(&self, at: usize) -> Block {
        Block {
            entry: self.blocks[at].clone(),
            mask: self.masks.get(&at).cloned(),
        }
    }
}

/// Runs of blocks, in the order of an index, of which each overlaps what lies before it; a block in order is a run of its own.
pub(crate) fn runs<'a>(blocks: impl IntoIterator<Item = &'a Entry>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut reach: Option<Place> = None;
    for (at, block) in blocks.into_iter().enumerate() {
        match runs.last_mut() {
            Some(run) if overlaps(reach, block) => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
        reach = reach.max(Some(block.end()));
    }
    runs
}

/// Whether what reaches so far overlaps an entry after it.
pub(crate) fn overlaps(reach: Option<Place>, block: &Entry) -> bool {
    reach.is_some_and(|reach| reach >= block.start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_kernel::CommitNo;

    /// Blocks of (first key, last key, commit) with ten rows each, in the order of an index.
    fn list(blocks: &[(i64, i64, u64)]) -> BlockList {
        let entry = |(key_min, key_max, commit): &(i64, i64, u64)| Entry {
            sorted: true,
            rows: 10,
            blocks: 1,
            key_min: *key_min,
            key_max: *key_max,
            commit_min: CommitNo(*commit),
            commit_max: CommitNo(*commit),
            first_commit: CommitNo(*commit),
            ..Entry::unknown()
        };
        let mut blocks: Vec<Entry> = blocks.iter().map(entry).collect();
        blocks.sort_by_key(Entry::key);
        BlockList {
            blocks,
            masks: HashMap::new(),
            fragments: HashMap::new(),
        }
    }

    #[test]
    fn blocks_in_order_are_runs_of_their_own() {
        // Equal keys in order of arrival are in order; the other way round they are not.
        let in_order = list(&[(0, 9, 1), (10, 20, 2), (20, 30, 3)]);
        assert_eq!(runs(&in_order.blocks), [0..1, 1..2, 2..3]);
        let equal_keys = list(&[(0, 9, 1), (10, 20, 3), (20, 30, 2)]);
        assert_eq!(runs(&equal_keys.blocks), [0..1, 1..3]);
    }

    #[test]
    fn blocks_that_overlap_are_one_run() {
        let wide_apart = list(&[
            (0, 9, 1),
            (10, 19, 1),
            (20, 29, 1),
            (30, 39, 1),
            (12, 25, 7),
        ]);
        assert_eq!(runs(&wide_apart.blocks), [0..1, 1..4, 4..5]);
        let wide = list(&[
            (0, 100, 1),
            (10, 19, 2),
            (30, 39, 3),
            (50, 150, 4),
            (150, 160, 5),
        ]);
        assert_eq!(runs(&wide.blocks), [0..4, 4..5]);
    }
}
