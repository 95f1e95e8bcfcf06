//! The blocks of a stream as its index lists them: which lie in files of their own, and which overlap.
//!
//! Invariants: blocks come in the order of their first rows, by key and, where keys are equal, by arrival, as a scan
//! takes them. Two neighbouring runs never overlap: every row of the first comes before every row of the second.

use crate::merge::Arrival;
use crate::reader::arrival;
use crate::table::TableView;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use thalweg_kernel::index::{Entry, EntryKey, Step};
use thalweg_kernel::{FileId, Result};

/// All blocks of a view.
pub(super) struct BlockList {
    pub(super) blocks: Vec<Entry>,
    /// The files that hold nothing but blocks of this table.
    pub(super) fragments: HashMap<FileId, Fragment>,
}

/// A file of blocks.
pub(super) struct Fragment {
    /// The item of the index that leads to it.
    pub(super) item: EntryKey,
    /// Bytes of its blocks.
    pub(super) bytes: u64,
}

/// Where a row is in the order of its table.
pub(super) type Place = (i64, Arrival);

/// The place of the first row of a block.
pub(super) fn start(block: &Entry) -> Place {
    (block.key_min, arrival(block))
}

/// The place of the last row of a block.
pub(super) fn end(block: &Entry) -> Place {
    (block.key_max, arrival(block))
}

impl BlockList {
    /// Walks the whole index.
    pub(super) fn read(view: &TableView) -> Result<Self> {
        let store = view.engine().kernel().store();
        let storage = store.env().storage();
        // Fragments and segments of the log share their numbers: only the folder tells them apart.
        let mut files: HashMap<FileId, Option<Fragment>> = HashMap::new();
        let mut blocks = Vec::new();
        let mut walk = view.snapshot().tree.walk(None, Arc::clone(store));
        while let Some(block) = walk.next(|entry| {
            // The root page of a fragment is an item of the index and comes before all other pages of its file. A
            // page that is not written yet has no place.
            if !entry.is_block() && entry.address.bytes > 0 {
                let file = entry.address.file;
                files.entry(file).or_insert_with(|| {
                    let is_fragment = storage.metadata(&store.fragment_path(file)).is_ok();
                    is_fragment.then(|| Fragment {
                        item: entry.key(),
                        bytes: entry.block_bytes,
                    })
                });
            }
            Step::Descend
        })? {
            blocks.push(block);
        }
        let fragments = files
            .into_iter()
            .filter_map(|(file, fragment)| Some((file, fragment?)))
            .collect();
        Ok(Self { blocks, fragments })
    }

    /// Runs of blocks of which each overlaps what lies before it; a block in order is a run of its own.
    pub(super) fn runs(&self) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        let mut reach: Option<Place> = None;
        for (at, block) in self.blocks.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if overlaps(reach, block) => run.end = at + 1,
                _ => runs.push(at..at + 1),
            }
            reach = reach.max(Some(end(block)));
        }
        runs
    }

    /// Rows of blocks that came when there were blocks around their keys already.
    pub(super) fn late_rows(&self) -> u64 {
        let runs = self.runs();
        let late = runs.into_iter().filter(|run| run.len() > 1).map(|run| {
            let mut blocks: Vec<&Entry> = self.blocks[run].iter().collect();
            blocks.sort_by_key(|block| arrival(block));
            let mut earlier = Keys::default();
            let late = blocks.into_iter().filter(|block| earlier.add(block));
            late.map(|block| block.rows).sum::<u64>()
        });
        late.sum()
    }
}

/// Ranges of keys, none within another: first and last.
#[derive(Default)]
struct Keys(BTreeMap<i64, i64>);

impl Keys {
    /// Adds the keys of a block and says whether its rows come before some that were added earlier.
    fn add(&mut self, block: &Entry) -> bool {
        let (mut first, mut last) = (block.key_min, block.key_max);
        let mut comes_before = false;
        while let Some((&start, &end)) = self.0.range(..=last).next_back() {
            if end < first {
                break;
            }
            comes_before |= end > block.key_min;
            (first, last) = (first.min(start), last.max(end));
            self.0.remove(&start);
        }
        self.0.insert(first, last);
        comes_before
    }
}

fn overlaps(reach: Option<Place>, block: &Entry) -> bool {
    reach.is_some_and(|reach| reach >= start(block))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_kernel::CommitNo;
    use thalweg_kernel::index::Address;

    /// Blocks of (first key, last key, commit) with ten rows each, in the order of an index.
    fn list(blocks: &[(i64, i64, u64)]) -> BlockList {
        let entry = |(key_min, key_max, commit): &(i64, i64, u64)| Entry {
            level: 0,
            sorted: true,
            rows: 10,
            blocks: 1,
            block_bytes: 0,
            key_min: *key_min,
            key_max: *key_max,
            commit_min: CommitNo(*commit),
            commit_max: CommitNo(*commit),
            first_commit: CommitNo(*commit),
            ordinal: 0,
            address: Address::default(),
            columns: Vec::new().into(),
        };
        let mut blocks: Vec<Entry> = blocks.iter().map(entry).collect();
        blocks.sort_by_key(Entry::key);
        BlockList {
            blocks,
            fragments: HashMap::new(),
        }
    }

    #[test]
    fn blocks_in_order_are_runs_of_their_own() {
        // Equal keys in order of arrival are in order; the other way round they are not.
        let in_order = list(&[(0, 9, 1), (10, 20, 2), (20, 30, 3)]);
        assert_eq!(in_order.runs(), [0..1, 1..2, 2..3]);
        assert_eq!(in_order.late_rows(), 0);
        let equal_keys = list(&[(0, 9, 1), (10, 20, 3), (20, 30, 2)]);
        assert_eq!(equal_keys.runs(), [0..1, 1..3]);
        assert_eq!(equal_keys.late_rows(), 10);
    }

    #[test]
    fn of_blocks_that_overlap_the_later_ones_are_late() {
        let late = list(&[
            (0, 9, 1),
            (10, 19, 1),
            (20, 29, 1),
            (30, 39, 1),
            (12, 25, 7),
        ]);
        assert_eq!(late.runs(), [0..1, 1..4, 4..5]);
        assert_eq!(late.late_rows(), 10);
        let wide = list(&[
            (0, 100, 1),
            (10, 19, 2),
            (30, 39, 3),
            (50, 150, 4),
            (150, 160, 5),
        ]);
        assert_eq!(wide.runs(), [0..4, 4..5]);
        assert_eq!(wide.late_rows(), 30);
    }
}
