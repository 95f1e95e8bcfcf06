//! How much of each file the tables use: the bytes of their blocks and index pages.
//!
//! Invariants: the uses of an order are those of its tree, exactly; what two states of a tree share is not read, so that a round
//! of cleaning reads nothing of tables that have not changed, and of the others the pages that have. A use is never missing: pages
//! that are not on disk yet have no bytes, and count once they have. Fragments are not entered: all of one is used, or nothing.
//!
//! Rejected: counting at every commit. It puts the bookkeeping on the path of each append and must survive recovery exactly.
//! Rejected as well: a walk through the whole index of each table that has changed, at each round: of 10^9 rows that is a hundred
//! thousand entries for the few blocks that came since.

use crate::error::{Error, Result};
use crate::ids::{FileId, TableId};
use crate::index::{Entry, ItemChange, PageLoader, Tree};
use crate::state::DbState;
use std::collections::{BTreeMap, HashMap};

/// The bytes of one file that the tree of an order leads to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FileUse {
    pub(crate) file: FileId,
    pub(crate) block_bytes: u64,
    pub(crate) page_bytes: u64,
}

/// The uses of a tree by file, ascending.
type Uses = Vec<FileUse>;

/// The uses of files by the trees of all orders, as of the last round of cleaning.
#[derive(Debug, Default)]
pub(crate) struct FileUses {
    of_orders: HashMap<(TableId, u32), KnownUses>,
}

#[derive(Debug)]
struct KnownUses {
    /// Frozen: what was not on disk then is not shared with later trees.
    tree: Tree,
    uses: Uses,
}

impl FileUses {
    /// Brings the uses of an order up to date.
    ///
    /// # Errors
    /// When a page cannot be read, or changes of the tree wait for one; with the uses that were found.
    pub(crate) fn of_order(
        &mut self,
        place: (TableId, u32),
        tree: &Tree,
        loader: &dyn PageLoader,
    ) -> Result<&[FileUse], (Error, Uses)> {
        let known = self.of_orders.remove(&place);
        let known = match known {
            Some(known) if known.is_of(tree) => known,
            known => {
                let tree = tree.frozen();
                // Files of the tree before were needed until now. Where one of its pages cannot be read all the same, the new
                // tree says everything.
                let changed = known.and_then(|known| known.changed(&tree, loader).ok());
                let uses = match changed {
                    Some(uses) => uses,
                    None => found_in(&tree, loader)?,
                };
                KnownUses { tree, uses }
            }
        };
        Ok(&self
            .of_orders
            .entry(place)
            .insert_entry(known)
            .into_mut()
            .uses)
    }

    /// Forgets orders that were dropped, once they are as many as those with items, of which there are so many.
    pub(crate) fn forget_dropped(&mut self, state: &DbState, with_items: usize) {
        if self.of_orders.len() <= 2 * with_items {
            return;
        }
        self.of_orders.retain(|(table, order), _| {
            let table = state.tables.get(*table);
            table.is_some_and(|table| table.tree_of(*order).is_some())
        });
    }
}

impl KnownUses {
    /// Whether a tree has the same pages, all of them on disk: there will never be others in their place.
    fn is_of(&self, tree: &Tree) -> bool {
        let root_of = |tree: &Tree| tree.root_entry().map(|root| root.address);
        let is_on_disk = |tree: &Tree| !tree.is_dirty() && tree.check_settled().is_ok();
        is_on_disk(tree) && is_on_disk(&self.tree) && root_of(tree) == root_of(&self.tree)
    }

    /// The uses of a later tree of the same order.
    fn changed(self, newer: &Tree, loader: &dyn PageLoader) -> Result<Uses> {
        let mut changes = Changes::default();
        changes.add_difference(&self.tree, newer, loader)?;
        let added_up = changes.added_to(self.uses);
        debug_assert!(added_up.is_some(), "the uses of files do not add up");
        added_up.ok_or_else(|| Error::corruption("the index", "its pages do not add up"))
    }
}

/// The uses of a tree of which nothing is known.
fn found_in(tree: &Tree, loader: &dyn PageLoader) -> Result<Uses, (Error, Uses)> {
    let mut changes = Changes::default();
    let walked = changes.add_difference(&Tree::empty(tree.table()), tree, loader);
    let uses = changes.added_to(Uses::new()).unwrap_or_default();
    match walked {
        Ok(()) => Ok(uses),
        Err(error) => Err((error, uses)),
    }
}

/// By how much uses change: bytes of blocks and of pages.
#[derive(Debug, Default)]
struct Changes(BTreeMap<FileId, (i128, i128)>);

impl Changes {
    fn add_difference(
        &mut self,
        older: &Tree,
        newer: &Tree,
        loader: &dyn PageLoader,
    ) -> Result<()> {
        for change in older.difference(newer, loader).with_pages() {
            match change? {
                ItemChange::Removed(entry) => self.add(&entry, -1),
                ItemChange::Added(entry) => self.add(&entry, 1),
            }
        }
        Ok(())
    }

    fn add(&mut self, entry: &Entry, sign: i128) {
        let bytes = i128::from(entry.address.bytes);
        let (blocks, pages) = match entry {
            block if block.is_block() => (bytes, 0),
            fragment if fragment.fragment => (i128::from(fragment.block_bytes), bytes),
            _ => (0, bytes),
        };
        let change = self.0.entry(entry.address.file).or_default();
        change.0 += sign * blocks;
        change.1 += sign * pages;
    }

    /// The uses with these changes, but for files that are not used any more; `None` if there would be less than none of one.
    fn added_to(self, uses: Uses) -> Option<Uses> {
        let mut changes = self.0;
        for used in uses {
            let change = changes.entry(used.file).or_default();
            change.0 += i128::from(used.block_bytes);
            change.1 += i128::from(used.page_bytes);
        }
        let is_used = |(_, bytes): &(FileId, (i128, i128))| *bytes != (0, 0);
        let uses = changes.into_iter().filter(is_used);
        uses.map(|(file, (block_bytes, page_bytes))| {
            Some(FileUse {
                file,
                block_bytes: u64::try_from(block_bytes).ok()?,
                page_bytes: u64::try_from(page_bytes).ok()?,
            })
        })
        .collect()
    }
}
