//! What is known of a stream without reading its rows.

use super::blocks::{BlockList, Came, late_rows};
use crate::range::KeyRange;
use crate::table::{TableStats, TableView};
use thalweg_kernel::Result;

/// Walks the index: fragments and late rows are not summed up in it.
pub(crate) fn stats(view: &TableView) -> Result<TableStats> {
    let table = view.snapshot();
    let total = table.tree.total();
    let list = BlockList::read(view)?;
    let mut came: Vec<Came> = list.blocks.iter().map(Came::of_block).collect();
    let (mut open_rows, mut open_bytes) = (0, 0);
    for open in table.open_rows() {
        came.push(Came::of_open_rows(open));
        open_rows += u64::from(open.part.rows);
        open_bytes += open.part.payload.len() as u64;
    }
    let keys = view.key_range();
    let totals = table.trees().filter_map(|(_, tree)| tree.total());
    let block_bytes: u64 = totals.map(|total| total.block_bytes).sum();
    Ok(TableStats {
        rows: total.map_or(0, |total| total.rows) + open_rows,
        bytes: block_bytes + open_bytes,
        blocks: total.map_or(0, |total| total.blocks),
        fragments: list.fragments.len() as u64,
        open_rows,
        late_rows: late_rows(came),
        min_key: keys.map(|KeyRange { first, .. }| first),
        max_key: keys.map(|KeyRange { last, .. }| last),
    })
}
