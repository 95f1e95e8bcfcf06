//! The changes that commits make to the trees of tables, and to the coverage of the indexes among them.
//!
//! Invariants
//! - All sections of a commit together make one change of each tree. It is tried before anything of the commit is written or
//!   applied; so applying it cannot fail with the pages that trying it has loaded.
//! - An item goes only under its name: its key may have been given to another one.
//! - A range that a maker lists as complete is refused if rows came into it, since the snapshot that its entries were made
//!   from, without their entries.

use super::hidden::{Folded, Hidden};
use super::{Origin, Working, dropped, no_order};
use crate::change::Change;
use crate::commit::{Commit, Edit};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CommitNo, TableId};
use crate::index::{Entry, EntryKey, ItemName, ItemRun, PageLoader, Run, Waiting};
use crate::orders::{AddHead, CoverageRange, OrderReplace};
use crate::rules::Rule;
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The changes that a commit makes to one tree.
pub(super) struct TreeChange<E> {
    table: TableId,
    order: u32,
    /// Items that go.
    pub(super) removed: Vec<ItemName>,
    /// Runs of items that go.
    pub(super) runs: Vec<ItemRun>,
    /// Items that come.
    pub(super) added: Vec<E>,
}

/// The changes of trees in one commit, in the order of its sections.
pub(super) struct TreeChanges<E>(Vec<TreeChange<E>>);

impl<E> Default for TreeChanges<E> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<E> TreeChanges<E> {
    /// A new, empty change of the tree of an order, for one section.
    pub(super) fn of(&mut self, table: TableId, order: u32) -> &mut TreeChange<E> {
        self.0.push(TreeChange::nothing(table, order));
        let last = self.0.len() - 1;
        &mut self.0[last]
    }
}

impl<E: Borrow<Entry>> TreeChanges<E> {
    /// The changes, one for each tree; items all of whose rows are hidden leave theirs.
    #[inline]
    pub(super) fn one_per_tree(mut self, hidden: &[Hidden]) -> Vec<TreeChange<E>> {
        if self.0.is_empty() && hidden.is_empty() {
            return self.0;
        }
        if self.0.len() > 1 {
            self.0.sort_by_key(|change| (change.table, change.order));
        }
        self.0.dedup_by(|next, first| {
            let is_same = (next.table, next.order) == (first.table, first.order);
            if is_same {
                first.removed.append(&mut next.removed);
                first.runs.append(&mut next.runs);
                first.added.append(&mut next.added);
            }
            is_same
        });
        for hidden in hidden.iter().filter(|hidden| !hidden.leaves.is_empty()) {
            let place = |change: &TreeChange<E>| (change.table, change.order);
            let found = self.0.binary_search_by_key(&(hidden.table, 0), place);
            let at = found.unwrap_or_else(|at| {
                self.0.insert(at, TreeChange::nothing(hidden.table, 0));
                at
            });
            self.0[at].leave(&hidden.leaves);
        }
        self.0
    }
}

impl<E> TreeChange<E> {
    fn nothing(table: TableId, order: u32) -> Self {
        Self {
            table,
            order,
            removed: Vec::new(),
            runs: Vec::new(),
            added: Vec::new(),
        }
    }

    fn removes(&self) -> bool {
        !self.removed.is_empty() || !self.runs.is_empty()
    }

    fn removed_keys(&self) -> Vec<EntryKey> {
        self.removed.iter().map(|name| name.key).collect()
    }

    fn runs_by_keys(&self) -> Vec<Run> {
        self.runs.iter().map(ItemRun::by_keys).collect()
    }
}

impl<E: Borrow<Entry>> TreeChange<E> {
    /// Items leave: those that the commit brings do not come, the others go.
    fn leave(&mut self, items: &[ItemName]) {
        let mut leaving: BTreeSet<ItemName> = items.iter().copied().collect();
        self.added
            .retain(|item| !leaving.remove(&ItemName::of(item.borrow())));
        self.removed.extend(leaving);
    }
}

fn fold<'a>(changes: &'a [Change], hidden: &[Hidden]) -> Vec<TreeChange<&'a Entry>> {
    let mut trees = TreeChanges::default();
    for change in changes {
        if let Some((head, items)) = change.adds() {
            trees.of(head.table, head.order).added.extend(items);
        }
        if let Change::Edit(Edit::Replace(edit)) = change {
            for order in &edit.orders {
                let tree = trees.of(edit.table, order.order);
                tree.removed.extend_from_slice(order.removed_items());
                tree.runs.extend_from_slice(order.removed_runs());
                tree.added.extend(&order.added);
            }
        }
    }
    trees.one_per_tree(hidden)
}

impl Working {
    /// Whether what the changes of a commit do to each tree can be done. A page that cannot be read refuses a new commit, and
    /// proves nothing about one of the log: what needs it is put off when it is applied.
    pub(super) fn check_trees(
        &self,
        changes: &[Change],
        hidden: &[Hidden],
        pages: &dyn PageLoader,
        origin: Origin,
    ) -> Result<()> {
        if changes.iter().all(Change::is_plain) {
            return Ok(());
        }
        for change in fold(changes, hidden) {
            match self.check_tree(&change, pages) {
                Err(error) if origin == Origin::Log && error.is_of_unreadable_bytes() => {}
                checked => checked?,
            }
        }
        // Not of what is stored: blocks below damaged pages are out of reach of a repair.
        if origin == Origin::Caller {
            self.check_rows_replaced(changes, pages)?;
        }
        Ok(())
    }

    fn check_tree(&self, change: &TreeChange<&Entry>, pages: &dyn PageLoader) -> Result<()> {
        let (table, order) = (change.table, change.order);
        let state = self.table(table).ok_or_else(|| dropped(table))?;
        let tree = state.tree_of(order).ok_or_else(|| no_order(table, order))?;
        if !change.removes() {
            let keys = change.added.iter().map(|item| item.key());
            return tree.check_new_keys(keys, pages);
        }
        if Rule::NamedItems.is_kept() {
            tree.check_names(&change.removed, pages)?;
            tree.check_ends(&change.runs, pages)?;
        }
        // Done twice, here and when it is applied: replacements are rare, and a refusal must come before the write.
        let added = change.added.iter().copied().cloned().collect();
        let (removed, runs) = (change.removed_keys(), change.runs_by_keys());
        let changed = tree.replace_runs(&removed, &runs, added, pages, &mut Vec::new());
        changed.map(|_| ())
    }

    /// Whether what comes in the place of rows has as many.
    fn check_rows_replaced(&self, changes: &[Change], pages: &dyn PageLoader) -> Result<()> {
        for change in changes {
            let Change::Edit(Edit::Replace(edit)) = change else {
                continue;
            };
            let Some(rows) = edit.orders.first().filter(|order| order.order == 0) else {
                continue;
            };
            let kept = rows_in(&rows.added).saturating_add(edit.left_out);
            let kept = kept.saturating_add(edit.deleted);
            if self.rows_of(edit.table, rows, pages)? != kept {
                let message = "blocks that replace others have not as many rows as these";
                return Err(Error::new(ErrorKind::Invalid, message));
            }
        }
        Ok(())
    }

    /// How many rows there are below the items of order 0 that are replaced.
    fn rows_of(
        &self,
        table: TableId,
        replaced: &OrderReplace,
        pages: &dyn PageLoader,
    ) -> Result<u64> {
        let state = self.table(table).ok_or_else(|| dropped(table))?;
        let tree = state.tree.settled(pages)?;
        // A run that has others is refused.
        let mut rows = { replaced.removed_runs().iter() }
            .fold(0_u64, |rows, run| rows.saturating_add(run.rows));
        for name in replaced.removed_items() {
            let item = tree.item(name.key, pages)?;
            rows = rows.saturating_add(item.map_or(0, |item| item.rows));
        }
        Ok(rows)
    }

    /// Makes the changes of a commit in the trees; or notes that they are to be made, where a page that they need cannot be
    /// read. Validating has refused that to new commits; it is met by those of the log.
    pub(super) fn change_trees(
        &mut self,
        commit: CommitNo,
        trees: Vec<TreeChange<Entry>>,
        pages: &dyn PageLoader,
    ) -> Result<()> {
        for change in trees {
            self.change_items(commit, change, pages)?;
        }
        Ok(())
    }

    fn change_items(
        &mut self,
        commit: CommitNo,
        change: TreeChange<Entry>,
        pages: &dyn PageLoader,
    ) -> Result<()> {
        let mut replaced = Vec::new();
        let (table, order) = (change.table, change.order);
        let removes = change.removes();
        if !removes && change.added.is_empty() {
            return Ok(());
        }
        let (removed, runs) = (change.removed_keys(), change.runs_by_keys());
        let TreeChange {
            removed: names,
            runs: named_runs,
            added,
            ..
        } = change;
        let changed = self.change_tree(table, order, |tree| {
            let defer = |added, error: Error| {
                if error.is_of_unreadable_bytes() {
                    let change = Waiting {
                        removed: names,
                        runs: named_runs,
                        added,
                    };
                    Ok(tree.defer(commit, change, error))
                } else {
                    Err(error)
                }
            };
            if !removes {
                // Insertions are many: whether they can be made is known without a copy of them.
                return match tree.check_new_keys(added.iter().map(Entry::key), pages) {
                    Ok(()) => tree.insert_many(added, pages, &mut replaced),
                    Err(error) => defer(added, error),
                };
            }
            let changed = tree.replace_runs(&removed, &runs, added.clone(), pages, &mut replaced);
            changed.or_else(|error| defer(added, error))
        });
        for page in replaced {
            let bytes = u64::from(page.bytes);
            self.since_checkpoint.replaced_bytes += bytes;
            self.longest_page_bytes = self.longest_page_bytes.max(bytes);
        }
        changed
    }

    /// The bytes of index pages that a commit makes anew.
    ///
    /// # Errors
    /// When a page that it needs cannot be loaded.
    pub(crate) fn changed_bytes(
        &self,
        changes: &[Change],
        Folded(hidden): &Folded,
        pages: &dyn PageLoader,
    ) -> Result<u64> {
        let mut bytes = 0_u64;
        for change in fold(changes, hidden) {
            let table = self.table(change.table);
            let Some(tree) = table.and_then(|table| table.tree_of(change.order)) else {
                continue;
            };
            let added = change.added.iter().map(|item| item.key());
            let (removed, runs) = (change.removed_keys(), change.runs_by_keys());
            let changed = tree.changed_bytes(&removed, &runs, added, pages)?;
            bytes = bytes.saturating_add(changed);
        }
        Ok(bytes)
    }
}

fn rows_in(items: &[Entry]) -> u64 {
    items
        .iter()
        .fold(0, |sum, item| sum.saturating_add(item.rows))
}

/// The coverage of indexes.
impl Working {
    /// Applies the effect of a section that adds to an order on coverage: new rows without entries lower it, ranges
    /// that it lists are complete from now on. A commit whose sections add rows, one of them `complete` for an index, does
    /// not lower that one: it is noted by [`Self::note_complete`] before any of its sections is applied.
    pub(super) fn apply_coverage(&mut self, commit: CommitNo, head: &AddHead, items: &[Entry]) {
        if head.order != 0 {
            return self.add_coverage(head.table, head.order, &head.coverage);
        }
        let Some(state) = self.table(head.table) else {
            return;
        };
        let orders: Vec<u32> = state.orders().iter().map(|order| order.id).collect();
        let complete = &self.unindexed.complete;
        let lacking = orders.into_iter();
        let lacking = lacking.filter(|order| !complete.contains(&(head.table, *order)));
        for order in lacking.collect::<Vec<_>>() {
            self.unindexed.note(commit, (head.table, order), items);
            // A validated table exists.
            let _ = self.change(head.table, |state| {
                if let Some(order) = state.order_mut(order)
                    && Rule::LoweredCoverage.is_kept()
                {
                    for item in items {
                        order
                            .coverage
                            .lower(item.key_min, item.key_max, item.commit_min);
                    }
                    order.coverage.end_section();
                }
                Ok(())
            });
        }
    }

    /// Notes the orders that have the entries of all rows that a commit puts into blocks.
    pub(super) fn note_complete(&mut self, changes: &[Change]) {
        let heads = changes.iter().filter_map(Change::adds);
        let heads = heads.filter(|(head, _)| head.is_complete);
        self.unindexed.complete = heads.map(|(head, _)| (head.table, head.order)).collect();
    }

    /// Ranges are complete from now on.
    pub(super) fn add_coverage(&mut self, table: TableId, order: u32, ranges: &[CoverageRange]) {
        if ranges.is_empty() {
            return;
        }
        // A validated table exists.
        let _ = self.change(table, |state| {
            if let Some(order) = state.order_mut(order) {
                order.coverage.add(ranges);
                order.coverage.end_section();
            }
            Ok(())
        });
    }

    /// Whether the ranges that a commit lists as complete still are.
    pub(super) fn check_listed_coverage(&self, commit: &Commit) -> Result<()> {
        let groups = commit.groups.iter().map(|group| &group.head);
        let heads = commit.edits.iter().filter_map(|edit| match edit {
            Edit::AddFragments { head, .. } => Some(head),
            _ => None,
        });
        let heads = groups.chain(heads);
        let heads = heads.map(|head| ((head.table, head.order), &head.coverage));
        let replaced = commit.edits.iter().filter_map(|edit| match edit {
            Edit::Replace(edit) => Some(edit),
            _ => None,
        });
        let replaced = replaced.flat_map(|edit| {
            let orders = edit.orders.iter();
            orders.map(|order| ((edit.table, order.order), &order.coverage))
        });
        for (place, ranges) in heads.chain(replaced) {
            if ranges.is_empty() || !Rule::CompleteRanges.is_kept() {
                continue;
            }
            let Some(prepared_at) = commit.prepared_at else {
                let message = "ranges are listed as complete as of no snapshot";
                return Err(Error::new(ErrorKind::Invalid, message));
            };
            self.unindexed.check(prepared_at, place, ranges)?;
        }
        Ok(())
    }
}

/// Most items of an index that are remembered as having come without entries.
const MAX_UNINDEXED: usize = 1_024;

/// Items of order 0 that came without their entries in an index, as far back as makers of entries may ask.
#[derive(Default)]
pub(super) struct Unindexed {
    of: BTreeMap<(TableId, u32), Recent>,
    /// The commit up to which nothing is known of any: the state was read as of then, or later.
    pub(super) known_from: CommitNo,
    /// Indexes that have the entries of all rows of the commit that is applied.
    complete: Vec<(TableId, u32)>,
}

#[derive(Default)]
struct Recent {
    items: VecDeque<Came>,
    /// The last commit of an item that is not remembered any more.
    forgotten_to: CommitNo,
}

/// An item that came.
struct Came {
    commit: CommitNo,
    key_min: i64,
    key_max: i64,
    first_commit: CommitNo,
}

impl Unindexed {
    fn note(&mut self, commit: CommitNo, place: (TableId, u32), items: &[Entry]) {
        let recent = self.of.entry(place).or_default();
        recent.items.extend(items.iter().map(|item| Came {
            commit,
            key_min: item.key_min,
            key_max: item.key_max,
            first_commit: item.commit_min,
        }));
        let too_many = recent.items.len().saturating_sub(MAX_UNINDEXED);
        if let Some(last) = recent.items.drain(..too_many).next_back() {
            recent.forgotten_to = last.commit;
        }
    }

    /// Refuses ranges into which rows came since a snapshot without their entries.
    fn check(
        &self,
        prepared_at: CommitNo,
        place: (TableId, u32),
        ranges: &[CoverageRange],
    ) -> Result<()> {
        let conflict = || {
            let message = "rows came into the ranges meanwhile that have no entries in the index";
            Err(Error::new(ErrorKind::Conflict, message))
        };
        if prepared_at < self.known_from {
            return conflict();
        }
        let Some(recent) = self.of.get(&place) else {
            return Ok(());
        };
        if prepared_at < recent.forgotten_to {
            return conflict();
        }
        let came = recent.items.iter();
        let mut came = came.filter(|came| came.commit > prepared_at);
        let is_in = |came: &Came, range: &CoverageRange| {
            came.key_min <= range.key_max
                && came.key_max >= range.key_min
                && came.first_commit <= range.commit
        };
        match came.any(|came| ranges.iter().any(|range| is_in(came, range))) {
            true => conflict(),
            false => Ok(()),
        }
    }

    pub(super) fn forget(&mut self, table: TableId, order: u32) {
        self.of.remove(&(table, order));
    }

    pub(super) fn forget_table(&mut self, table: TableId) {
        if !self.of.is_empty() {
            self.of.retain(|(of, _), _| *of != table);
        }
    }
}
