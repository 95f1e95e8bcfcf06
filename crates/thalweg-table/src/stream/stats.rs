//! What is known of a stream without reading its rows.

use super::blocks::BlockList;
use crate::range::KeyRange;
use crate::table::{TableStats, TableView};
use thalweg_kernel::Result;

/// Walks the index: fragments and late rows are not summed up in it.
pub(crate) fn stats(view: &TableView) -> Result<TableStats> {
    let table = view.snapshot();
    let total = table.tree.total();
    let (mut open_rows, mut open_bytes) = (0, 0);
    for open in table.open_rows() {
        open_rows += u64::from(open.part.rows);
        open_bytes += open.part.payload.len() as u64;
    }
    let list = BlockList::read(view)?;
    let keys = view.key_range();
    Ok(TableStats {
        rows: total.map_or(0, |total| total.rows) + open_rows,
        bytes: total.map_or(0, |total| total.block_bytes) + open_bytes,
        blocks: total.map_or(0, |total| total.blocks),
        fragments: list.fragments.len() as u64,
        open_rows,
        late_rows: list.late_rows(),
        min_key: keys.map(|KeyRange { first, .. }| first),
        max_key: keys.map(|KeyRange { last, .. }| last),
    })
}
