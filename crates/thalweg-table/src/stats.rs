//! What is known of a table without reading its rows.

use crate::block_list::{BlockList, Came, late_rows};
use crate::range::KeyRange;
use crate::reader::Reader;
use crate::table::{Table, TableStats, TableView};
use thalweg_kernel::Result;

impl Table {
    /// What is known of it now.
    ///
    /// # Errors
    /// `NotFound` when it was dropped.
    pub fn stats(&self) -> Result<TableStats> {
        self.view()?.stats()
    }
}

impl TableView {
    /// What is known of it.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn stats(&self) -> Result<TableStats> {
        self.engine().closed().check()?;
        stats(self)
    }
}

/// Walks the index: fragments and late rows are not summed up in it.
fn stats(view: &TableView) -> Result<TableStats> {
    let table = view.snapshot();
    let total = table.tree.total();
    let list = BlockList::read(view)?;
    let mut came: Vec<Came> = list.blocks.iter().map(Came::of_block).collect();
    for at in list.masked.keys() {
        came[*at].rows = list.block(*at).kept_rows(table);
    }
    let (mut open_rows, mut open_bytes) = (0, 0);
    for open in table.open_rows() {
        let mut came_open = Came::of_open_rows(open);
        let hidden = table
            .hidden_in(open)
            .map_or(0, |hidden| hidden.rows().into());
        came_open.rows = came_open.rows.saturating_sub(hidden);
        open_rows += came_open.rows;
        open_bytes += open.part.payload.len() as u64;
        came.push(came_open);
    }
    let keys = match table.masks() {
        None => view.key_range(),
        Some(_) => keys_of_kept_rows(view, &list)?,
    };
    let totals = table.trees().filter_map(|(_, tree)| tree.total());
    let block_bytes: u64 = totals.map(|total| total.block_bytes).sum();
    Ok(TableStats {
        rows: view.row_count(),
        bytes: block_bytes + open_bytes,
        blocks: total.map_or(0, |total| total.blocks),
        fragments: list.fragments.len() as u64,
        open_rows,
        late_rows: late_rows(came),
        min_key: keys.map(|KeyRange { first, .. }| first),
        max_key: keys.map(|KeyRange { last, .. }| last),
    })
}

/// The smallest and the largest key of the rows that are not deleted. Of the blocks with deleted ones only those are read that
/// could have it.
fn keys_of_kept_rows(view: &TableView, list: &BlockList) -> Result<Option<KeyRange>> {
    let reader = Reader::new(view, Some(&[]), KeyRange::ALL)?;
    let mut found: Option<KeyRange> = None;
    let mut add = |first, last| {
        let (least, most) = found.map_or((first, last), |found| (found.first, found.last));
        found = Some(KeyRange {
            first: least.min(first),
            last: most.max(last),
        });
        found
    };
    let mut known = None;
    for open in reader.open_rows()? {
        if let (Some(first), Some(last)) = (open.keys.first(), open.keys.last()) {
            known = add(*first, *last);
        }
    }
    for (at, block) in list.blocks.iter().enumerate() {
        if !list.masked.contains_key(&at) {
            known = add(block.key_min, block.key_max);
        }
    }
    for at in list.masked.keys() {
        let block = list.block(*at);
        let (first, last) = (block.entry.key_min, block.entry.key_max);
        if known.is_some_and(|known| known.covers(first, last)) {
            continue;
        }
        let rows = reader.sorted_block(&block)?;
        if let (Some(first), Some(last)) = (rows.keys.first(), rows.keys.last()) {
            known = add(*first, *last);
        }
    }
    Ok(known)
}
