//! What a commit changes in the indexes of tables.
//!
//! Invariant: all that a commit takes out of the index of one table and puts into it is one change: which pages come of it
//! depends on that (docs/format/index.md).

use crate::ids::TableId;
use crate::index::{Entry, EntryKey};

/// The change of one index.
pub(crate) struct TreeChange {
    pub(crate) table: TableId,
    pub(crate) removed: Vec<EntryKey>,
    pub(crate) added: Vec<Entry>,
}

/// The changes of a commit, in the order of its sections.
#[derive(Default)]
pub(crate) struct TreeChanges(Vec<TreeChange>);

impl TreeChanges {
    pub(crate) fn add(&mut self, table: TableId, removed: Vec<EntryKey>, added: Vec<Entry>) {
        self.0.push(TreeChange {
            table,
            removed,
            added,
        });
    }

    /// One for each table.
    pub(crate) fn one_per_table(mut self) -> Vec<TreeChange> {
        if self.0.len() > 1 {
            self.0.sort_by_key(|change| change.table);
        }
        self.0.dedup_by(|next, first| {
            let is_same = next.table == first.table;
            if is_same {
                first.removed.append(&mut next.removed);
                first.added.append(&mut next.added);
            }
            is_same
        });
        self.0
    }
}
