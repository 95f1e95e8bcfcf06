//! What is known of a stream without reading its rows.

use crate::range::KeyRange;
use crate::table::{TableStats, TableView};
use std::collections::HashSet;
use std::sync::Arc;
use thalweg_kernel::index::{Entry, Step};
use thalweg_kernel::{CommitNo, Result};

/// Walks the index: fragments and late rows are not summed up in it.
pub(crate) fn stats(view: &TableView) -> Result<TableStats> {
    let table = view.snapshot();
    let total = table.tree.total();
    let (mut open_rows, mut open_bytes) = (0, 0);
    for open in table.open_rows() {
        open_rows += u64::from(open.part.rows);
        open_bytes += open.part.payload.len() as u64;
    }
    let late = LateRows::count(view)?;
    let keys = view.key_range();
    Ok(TableStats {
        rows: total.map_or(0, |total| total.rows) + open_rows,
        bytes: total.map_or(0, |total| total.block_bytes) + open_bytes,
        blocks: total.map_or(0, |total| total.blocks),
        fragments: late.fragments,
        open_rows,
        late_rows: late.rows,
        min_key: keys.map(|KeyRange { first, .. }| first),
        max_key: keys.map(|KeyRange { last, .. }| last),
    })
}

/// Rows that arrived behind rows with larger keys, counted by blocks.
struct LateRows {
    rows: u64,
    fragments: u64,
}

impl LateRows {
    fn count(view: &TableView) -> Result<Self> {
        let table = view.snapshot();
        let mut blocks: Vec<(CommitNo, u32, i64, i64, u64)> = Vec::new();
        let mut files = HashSet::new();
        let mut walk = table
            .tree
            .walk(None, Arc::clone(view.engine().kernel().store()));
        let mut of_fragments = HashSet::new();
        while let Some(entry) = walk.next(|entry: &Entry| {
            // A page of a fragment is an item of the tree: its blocks lie in its own file.
            if entry.level > 0 && entry.address.bytes > 0 {
                files.insert(entry.address.file);
            }
            Step::Descend
        })? {
            of_fragments.insert(entry.address.file);
            blocks.push((
                entry.first_commit,
                entry.ordinal,
                entry.key_min,
                entry.key_max,
                entry.rows,
            ));
        }
        blocks.sort_unstable();
        let (mut rows, mut highest) = (0, i64::MIN);
        for (_, _, key_min, key_max, block_rows) in blocks {
            if key_min < highest {
                rows += block_rows;
            }
            highest = highest.max(key_max);
        }
        Ok(Self {
            rows,
            fragments: files.intersection(&of_fragments).count() as u64,
        })
    }
}
