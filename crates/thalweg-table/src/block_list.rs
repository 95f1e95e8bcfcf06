//! The blocks of a table as its index lists them: which lie in files of their own, and which overlap.
//!
//! Invariants: blocks come in the order of their first rows, by key and, where keys are equal, by arrival, as a scan
//! takes them. Two neighbouring runs never overlap: every row of the first comes before every row of the second.

use crate::deleted_rows::{Block, step_into};
use crate::reader::arrival;
use crate::scan::merge::Arrival;
use crate::table::TableView;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use thalweg_kernel::index::{self, Entry, ItemName};
use thalweg_kernel::{FileId, OpenRows, Result};

/// All blocks of a view that have rows which are not deleted.
pub(crate) struct BlockList {
    pub(crate) blocks: Vec<Entry>,
    /// Those of them that have deleted rows, by their places in the list.
    pub(crate) masked: HashMap<usize, index::Place>,
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

/// The place of the first row of a block.
pub(crate) fn start(block: &Entry) -> Place {
    (block.key_min, arrival(block))
}

/// The place of the last row of a block.
pub(crate) fn end(block: &Entry) -> Place {
    (block.key_max, arrival(block))
}

impl BlockList {
    /// Walks the whole index.
    pub(crate) fn read(view: &TableView) -> Result<Self> {
        let store = view.engine().kernel().store();
        let mut files: HashMap<FileId, Fragment> = HashMap::new();
        let (mut blocks, mut masked) = (Vec::new(), HashMap::new());
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
            let Block { entry, masked: at } = Block::found(table, entry, walk.place());
            masked.extend(at.map(|place| (blocks.len(), place)));
            blocks.push(entry);
        }
        // The others are segments of the log. Taken for one of these, a fragment would be taken out of the index with all its
        // blocks for the sake of one of them: where it cannot be found out, nothing is known of the list.
        let mut fragments = HashMap::new();
        for (file, fragment) in files {
            if store.is_fragment(file)? {
                fragments.insert(file, fragment);
            }
        }
        Ok(Self {
            blocks,
            masked,
            fragments,
        })
    }

    /// One of them, to be read.
    pub(crate) fn block(&self, at: usize) -> Block {
        Block {
            entry: self.blocks[at].clone(),
            masked: self.masked.get(&at).copied(),
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
        reach = reach.max(Some(end(block)));
    }
    runs
}

/// Rows that came together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    pub(crate) keys: (i64, i64),
    pub(crate) arrival: Arrival,
    pub(crate) rows: u64,
    /// In a block by now.
    pub(crate) in_block: bool,
}

impl Came {
    /// The rows of a block, deleted ones too.
    pub(crate) fn of_block(block: &Entry) -> Self {
        Self {
            keys: (block.key_min, block.key_max),
            arrival: arrival(block),
            rows: block.rows,
            in_block: true,
        }
    }

    /// Rows of one commit that are in no block yet.
    pub(crate) fn of_open_rows(open: &OpenRows) -> Self {
        Self {
            keys: (open.part.key_min, open.part.key_max),
            arrival: Arrival {
                commit: open.commit,
                ordinal: 0,
            },
            rows: open.part.rows.into(),
            in_block: false,
        }
    }
}

/// Rows of blocks that came when there were blocks around their keys already, and rows outside of blocks that came when
/// there were larger keys.
pub(crate) fn late_rows(mut came: Vec<Came>) -> u64 {
    came.sort_unstable_by_key(|came| came.arrival);
    let mut earlier = Keys::default();
    let mut high_key = i64::MIN;
    let mut late_rows = 0;
    for came in came {
        let (first, last) = came.keys;
        let reaches_in = earlier.add(came.keys);
        if reaches_in || (!came.in_block && first < high_key) {
            late_rows += came.rows;
        }
        high_key = high_key.max(last);
    }
    late_rows
}

/// Ranges of keys, none within another: first and last.
#[derive(Default)]
struct Keys(BTreeMap<i64, i64>);

impl Keys {
    /// Adds keys and says whether they reach into those that were added earlier.
    fn add(&mut self, (key_min, key_max): (i64, i64)) -> bool {
        let (mut first, mut last) = (key_min, key_max);
        let mut comes_before = false;
        while let Some((&start, &end)) = self.0.range(..=last).next_back() {
            if end < first {
                break;
            }
            comes_before |= end > key_min;
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
            masked: HashMap::new(),
            fragments: HashMap::new(),
        }
    }

    fn late(list: &BlockList) -> u64 {
        late_rows(list.blocks.iter().map(Came::of_block).collect())
    }

    #[test]
    fn rows_outside_of_blocks_are_late_behind_any_larger_key() {
        let open = |keys, commit| Came {
            keys,
            arrival: Arrival {
                commit: CommitNo(commit),
                ordinal: 0,
            },
            rows: 1,
            in_block: false,
        };
        let mut came: Vec<Came> = list(&[(0, 9, 1), (30, 39, 2)])
            .blocks
            .iter()
            .map(Came::of_block)
            .collect();
        came.extend([open((40, 40), 3), open((41, 41), 4)]);
        assert_eq!(late_rows(came.clone()), 0);
        // Into a block, between blocks, among other rows outside of them; not behind an equal key.
        came.extend([open((5, 5), 5), open((20, 20), 6), open((40, 40), 7)]);
        assert_eq!(late_rows(came.clone()), 3);
        came.push(open((41, 41), 8));
        assert_eq!(late_rows(came), 3);
    }

    #[test]
    fn blocks_in_order_are_runs_of_their_own() {
        // Equal keys in order of arrival are in order; the other way round they are not.
        let in_order = list(&[(0, 9, 1), (10, 20, 2), (20, 30, 3)]);
        assert_eq!(runs(&in_order.blocks), [0..1, 1..2, 2..3]);
        assert_eq!(late(&in_order), 0);
        let equal_keys = list(&[(0, 9, 1), (10, 20, 3), (20, 30, 2)]);
        assert_eq!(runs(&equal_keys.blocks), [0..1, 1..3]);
        assert_eq!(late(&equal_keys), 10);
    }

    #[test]
    fn of_blocks_that_overlap_the_later_ones_are_late() {
        let wide_apart = list(&[
            (0, 9, 1),
            (10, 19, 1),
            (20, 29, 1),
            (30, 39, 1),
            (12, 25, 7),
        ]);
        assert_eq!(runs(&wide_apart.blocks), [0..1, 1..4, 4..5]);
        assert_eq!(late(&wide_apart), 10);
        let wide = list(&[
            (0, 100, 1),
            (10, 19, 2),
            (30, 39, 3),
            (50, 150, 4),
            (150, 160, 5),
        ]);
        assert_eq!(runs(&wide.blocks), [0..4, 4..5]);
        assert_eq!(late(&wide), 30);
    }
}
