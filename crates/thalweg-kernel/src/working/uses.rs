//! The uses of files of all trees, as of the last checkpoint: brought up to date by the next one.
//!
//! Invariant: no commit counts anything; a checkpoint reads the pages in whose place others have come since the one before it.

use super::Working;
use crate::file_uses::{Changes, KnownUses, OrderUses, Uses};
use crate::ids::TableId;
use crate::index::{PageLoader, Tree};
use crate::table_state::TableState;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Values of trees of tables, by order.
pub(crate) type OfTrees<T> = BTreeMap<(TableId, u32), T>;

impl Working {
    /// The differences between the uses of each tree that has changed and those that are known of it, without the pages
    /// that are not on disk yet. Trees are left out of which nothing is known, or a page cannot be read.
    pub(crate) fn changed_uses(&self, pages: &dyn PageLoader) -> OfTrees<Changes> {
        let places = self.changed_trees.iter();
        let changed = places.filter_map(|(id, order)| {
            let table = self.table(*id)?;
            let known = table.known_uses(*order)?;
            let changes = known.changes(table.tree_of(*order)?, pages).ok()?;
            Some(((*id, *order), changes))
        });
        changed.collect()
    }

    /// Learns the uses of trees of which nothing was known. The next checkpoint brings them up to date and stores them.
    pub(crate) fn learn_uses(&mut self, found: Vec<((TableId, u32), Arc<KnownUses>)>) {
        for (place, uses) in found {
            let (table, order) = place;
            let Some(state) = self.table(table) else {
                continue;
            };
            if state.tree_of(order).is_none() {
                continue;
            }
            let mut state = TableState::clone(state);
            state.set_uses(order, OrderUses::Known(uses));
            self.put_table(state);
            self.changed_trees.insert(place);
        }
    }

    /// Forgets all uses: whoever needs them walks through the trees.
    pub(crate) fn forget_uses(&mut self) {
        for table in self.tables.clone().iter() {
            let mut state = TableState::clone(table);
            for (order, _) in table.trees() {
                state.set_uses(order, OrderUses::Unknown);
            }
            self.put_table(state);
        }
    }

    /// Removes index pages that are on disk from memory, after a checkpoint that has stored these uses of the trees
    /// that have changed.
    pub(crate) fn trim(&mut self, mut uses: OfTrees<Option<Uses>>) {
        for place in std::mem::take(&mut self.changed_trees) {
            let (table, order) = place;
            let Some(state) = self.table(table) else {
                continue;
            };
            let Some(tree) = state.tree_of(order).map(Tree::trim) else {
                continue;
            };
            let mut trimmed = TableState::clone(state);
            let before = uses_bytes(state);
            let known = uses.remove(&place).flatten();
            let known = known.map(|uses| KnownUses::new(&tree, uses));
            trimmed.set_uses(order, known.into());
            trimmed.set_tree(order, tree);
            self.uses_bytes = self.uses_bytes - before + uses_bytes(&trimmed);
            self.tables.insert(Arc::new(trimmed));
            self.changed = true;
        }
    }
}

/// About what the uses of files of a table take of a checkpoint.
pub(super) fn uses_bytes(table: &TableState) -> u64 {
    table.all_uses().map(OrderUses::stored_bytes).sum()
}
