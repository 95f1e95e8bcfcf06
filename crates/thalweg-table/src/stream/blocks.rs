//! The blocks of a stream as its index lists them: which lie in files of their own, and which overlap.
//!
//! Invariants: blocks come in the order of their first rows, by key and, where keys are equal, by arrival, as a scan
//! takes them. Two neighbouring runs never overlap: every row of the first comes before every row of the second.

use crate::merge::Arrival;
use crate::reader::arrival;
use crate::table::TableView;
use std::collections::HashMap;
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

    /// Rows of blocks that begin before what lies in front of them ends.
    pub(super) fn late_rows(&self) -> u64 {
        let runs = self.runs();
        let late = runs
            .iter()
            .flat_map(|run| &self.blocks[run.start + 1..run.end]);
        late.map(|block| block.rows).sum()
    }
}

fn overlaps(reach: Option<Place>, block: &Entry) -> bool {
    reach.is_some_and(|reach| reach >= start(block))
}
