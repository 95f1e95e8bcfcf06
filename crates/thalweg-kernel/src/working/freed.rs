//! How much of the disk commits free at the request of their callers, and open rows that are all deleted.

use super::Working;
use crate::commit::{Commit, Edit};
use crate::ids::{CommitNo, TableId};

/// How much a commit frees, in bytes, as far as that can be told without reading anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreedBytes {
    /// The blocks that it deletes as runs; of dropped tables all that there can be.
    pub(crate) blocks: u64,
    /// The open rows that it deletes by whole parts: they are in each checkpoint.
    pub(crate) open: u64,
}

/// Open rows at the front of a table that are all deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeletedFront {
    /// The last of their commits: all rows of these are deleted.
    pub(crate) last: CommitNo,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl Working {
    pub(crate) fn freed_by(&self, commit: &Commit) -> FreedBytes {
        let mut freed = FreedBytes::default();
        for edit in &commit.edits {
            freed.blocks = freed.blocks.saturating_add(match edit {
                Edit::DropTable { .. } => u64::MAX,
                Edit::Replace(edit) => {
                    let rows = edit.orders.iter().find(|order| order.order == 0);
                    let runs = rows.map_or(&[][..], |rows| rows.removed_runs());
                    let rows = runs.iter().map(|run| run.rows).sum();
                    self.block_bytes_of(edit.table, rows)
                }
                _ => 0,
            });
        }
        for edit in &commit.masks {
            let open = self.open.get(edit.table);
            let whole = edit.parts.iter().filter(|part| part.is_whole());
            let bytes = whole.filter_map(|part| open?.bytes_of_part(part.commit, part.part));
            freed.open += bytes.map(u64::from).sum::<u64>();
        }
        freed
    }

    /// About how many bytes the blocks of so many rows take.
    fn block_bytes_of(&self, table: TableId, rows: u64) -> u64 {
        let Some(all) = self.table(table).and_then(|table| table.tree.total()) else {
            return 0;
        };
        let bytes = u128::from(all.block_bytes) * u128::from(rows.min(all.rows));
        let bytes = bytes.checked_div(u128::from(all.rows));
        u64::try_from(bytes.unwrap_or_default()).unwrap_or(u64::MAX)
    }

    /// The commits at the front of the open rows of a table of which all rows are deleted. Costs these and one more.
    pub(crate) fn deleted_front(&self, table: TableId) -> Option<DeletedFront> {
        let state = self.table(table)?;
        let masks = state.masks()?;
        let mut front: Option<DeletedFront> = None;
        let (mut rows, mut bytes) = (0, 0);
        let mut open = state.open.iter(self.commit).peekable();
        while let Some(part) = open.next() {
            let mask = masks.of_part(part.commit, part.number);
            if mask.is_none_or(|mask| mask.positions.rows() != part.part.rows) {
                break;
            }
            rows += u64::from(part.part.rows);
            bytes += part.part.payload.len() as u64;
            if open.peek().is_none_or(|next| next.commit > part.commit) {
                front = Some(DeletedFront {
                    last: part.commit,
                    rows,
                    bytes,
                });
            }
        }
        front
    }
}
