//! Rows that commits hide: masks of rows in blocks and of open rows, and the effect of replacements and covers on them.
//!
//! Invariants
//! - Masks are a function of the commits: sections are taken in their order, each as the ones before it have left the masks.
//! - Masks go with their item, and with nothing else. A replacement or cover takes them away and states how many rows it has left
//!   out and how many it carries: both together are those that were hidden when it is committed. So a row that was hidden while
//!   it was rewritten does not come back.
//! - An item all of whose rows are hidden leaves its order in the same commit.

use super::{Origin, Working, dropped};
use crate::change::Change;
use crate::commit::Edit;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CommitNo, TableId};
use crate::index::{Entry, ItemName, ItemRun, PageLoader};
use crate::limits::{MASKS_LIMIT_BYTES, MAX_CARRIED_BYTES};
use crate::masks::{ItemMask, MaskEdit, MaskList, Masked, TableMasks};
use crate::rules::Rule;
use crate::table_state::TableState;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The hidden rows that a commit leaves of a table.
pub(super) struct Hidden {
    pub(super) table: TableId,
    pub(super) masks: TableMasks,
    /// Items all of whose rows are hidden: they leave order 0.
    pub(super) leaves: Vec<ItemName>,
}

/// The masks that a commit leaves, of each table of which it changes some.
pub(crate) struct Folded(pub(super) Vec<Hidden>);

/// The masks of a table while the sections of a commit are taken.
struct Folding<'a> {
    state: &'a TableState,
    masks: TableMasks,
    leaves: Vec<ItemName>,
    /// Items that the commit brings, and their rows.
    brought: HashMap<ItemName, u64>,
    removed: HashSet<ItemName>,
    /// Ascending.
    removed_runs: Vec<ItemRun>,
    /// The commit up to which the commit covers open rows.
    covered: Option<CommitNo>,
    /// Rows that replacement and cover carry, and those of brought items that are hidden after them.
    carried: u64,
    hidden_in_brought: u64,
    /// Whether sums are compared; after lost masks they prove nothing.
    is_exact: bool,
}

impl Working {
    /// The masks that a commit leaves, table by table. `pages`: items are looked up; `None`: that was done.
    #[inline]
    pub(super) fn fold_masks(
        &self,
        changes: &[Change],
        pages: Option<&dyn PageLoader>,
        origin: Origin,
    ) -> Result<Vec<Hidden>> {
        if changes.iter().all(Change::is_plain) {
            return Ok(Vec::new());
        }
        self.fold_masks_by_table(changes, pages, origin)
    }

    fn fold_masks_by_table(
        &self,
        changes: &[Change],
        pages: Option<&dyn PageLoader>,
        origin: Origin,
    ) -> Result<Vec<Hidden>> {
        let mut tables: Vec<TableId> = Vec::new();
        for change in changes {
            if let Some(table) = change.table()
                && self.concerns_masks(change)
                && !tables.contains(&table)
            {
                tables.push(table);
            }
        }
        let fold = |table: TableId| self.fold_masks_of(table, changes, pages, origin);
        tables.into_iter().map(fold).collect()
    }

    fn concerns_masks(&self, change: &Change) -> bool {
        let has_masks =
            |table: TableId| self.table(table).is_some_and(|state| state.masks.is_some());
        match change {
            Change::Mask(_) => true,
            Change::Edit(Edit::Replace(edit)) => {
                has_masks(edit.table) || edit.left_out > 0 || edit.carried > 0
            }
            change => change.adds().is_some_and(|(head, _)| {
                head.covers.is_some()
                    && (has_masks(head.table) || head.left_out > 0 || head.carried > 0)
            }),
        }
    }

    fn fold_masks_of(
        &self,
        table: TableId,
        changes: &[Change],
        pages: Option<&dyn PageLoader>,
        origin: Origin,
    ) -> Result<Hidden> {
        let state = self.table(table).ok_or_else(|| dropped(table))?;
        let mut folding = Folding {
            state,
            masks: state.masks().cloned().unwrap_or_default(),
            leaves: Vec::new(),
            brought: HashMap::new(),
            removed: HashSet::new(),
            removed_runs: Vec::new(),
            covered: None,
            carried: 0,
            hidden_in_brought: 0,
            is_exact: !matches!(origin, Origin::DamagedLog { .. }) && pages.is_some(),
        };
        for change in changes
            .iter()
            .filter(|change| change.table() == Some(table))
        {
            match change {
                Change::Mask(edit) => self.fold_mask(edit, pages, origin, &mut folding)?,
                Change::Edit(Edit::Replace(edit)) => {
                    let rows = edit.orders.first().filter(|order| order.order == 0);
                    if let Some(rows) = rows {
                        let names = rows.removed_items();
                        let hidden = names.iter().map(|name| folding.take_item(name));
                        let mut hidden: u64 = hidden.sum();
                        for run in rows.removed_runs() {
                            hidden += folding.take_run(run);
                        }
                        folding.removed.extend(names);
                        folding.removed_runs.extend(rows.removed_runs());
                        folding
                            .removed_runs
                            .sort_unstable_by_key(|run| run.first.key);
                        folding.rewritten(hidden, edit.left_out, edit.carried)?;
                        folding.bring(&rows.added);
                    }
                }
                change => {
                    let Some((head, items)) = change.adds().filter(|(head, _)| head.order == 0)
                    else {
                        continue;
                    };
                    if let Some(covered) = head.covers {
                        let hidden = folding.cover(covered);
                        folding.covered = Some(covered);
                        folding.rewritten(hidden, head.left_out, head.carried)?;
                    }
                    folding.bring(items);
                }
            }
        }
        folding.finish(table)
    }

    fn fold_mask(
        &self,
        edit: &MaskEdit,
        pages: Option<&dyn PageLoader>,
        origin: Origin,
        folding: &mut Folding<'_>,
    ) -> Result<()> {
        for item in &edit.items {
            if let Some(pages) = pages {
                match folding.look_up(item, pages) {
                    Err(error) if origin == Origin::Log && error.is_of_unreadable_bytes() => {}
                    found => found?,
                }
            }
            folding.hide(item)?;
        }
        for part in &edit.parts {
            let open = self.open.get(edit.table);
            let rows = open.and_then(|open| open.rows_of_part(part.commit, part.part));
            let is_covered = folding.covered.is_some_and(|to| part.commit <= to);
            if rows != Some(part.rows) || is_covered {
                return Err(conflict("open rows that are to be deleted are not there"));
            }
            let hidden = folding.masks.hide_open(part);
            if Rule::NewPositions.is_kept() {
                hidden?;
            }
        }
        Ok(())
    }

    /// Refuses masks for which there is no room. What is carried was hidden before: it may take a little more where it is now, for
    /// rows that cannot become blocks keep all appends waiting.
    pub(super) fn check_room_for_masks(&self, changes: &[Change], hidden: &[Hidden]) -> Result<()> {
        let grown: u64 = hidden.iter().map(|hidden| self.grown_bytes(hidden)).sum();
        let carries = |change: &Change| match change {
            Change::Edit(Edit::Replace(edit)) => edit.carried > 0,
            change => change.adds().is_some_and(|(head, _)| head.carried > 0),
        };
        let max_bytes = match changes.iter().any(carries) {
            true => MASKS_LIMIT_BYTES + MAX_CARRIED_BYTES,
            false => MASKS_LIMIT_BYTES,
        };
        if grown == 0 || self.mask_bytes + grown <= max_bytes {
            return Ok(());
        }
        let message = format!(
            "the masks of deleted rows would take more than {MASKS_LIMIT_BYTES} bytes: run `maintain` on the tables with many \
             deleted rows"
        );
        Err(Error::new(ErrorKind::Limit, message))
    }

    fn grown_bytes(&self, hidden: &Hidden) -> u64 {
        let before = self
            .table(hidden.table)
            .map_or(0, |state| mask_bytes(state));
        hidden.masks.bytes().saturating_sub(before)
    }

    /// Keeps what a commit has left hidden.
    pub(super) fn keep_masks(&mut self, hidden: Vec<Hidden>) {
        for hidden in hidden {
            self.since_checkpoint.edit_bytes += self.grown_bytes(&hidden);
            self.features = self.features.with(crate::features::Features::MASKS);
            let masks = (!hidden.masks.is_empty()).then(|| Arc::new(hidden.masks));
            // A validated table exists.
            let _ = self.change(hidden.table, |state| {
                state.masks = masks;
                Ok(())
            });
        }
    }
}

impl Folding<'_> {
    /// Items or open rows were rewritten of which so many rows are hidden.
    fn rewritten(&mut self, hidden: u64, left_out: u64, carried: u64) -> Result<()> {
        self.carried = self.carried.saturating_add(carried);
        let adds_up = left_out.checked_add(carried) == Some(hidden);
        if adds_up || !self.is_exact || !Rule::HiddenRowsAddUp.is_kept() {
            return Ok(());
        }
        Err(conflict("rows were deleted while they were rewritten"))
    }

    fn bring(&mut self, items: &[Entry]) {
        let items = items.iter().map(|item| (ItemName::of(item), item.rows));
        self.brought.extend(items);
    }

    /// Whether an item is there under its name, with as many rows as `item` states.
    fn look_up(&self, item: &ItemMask, pages: &dyn PageLoader) -> Result<()> {
        let is_gone = || conflict("a block whose rows are to be deleted is not there any more");
        let rows = match self.brought.get(&item.name) {
            Some(rows) => Some(*rows),
            None if self.removes(&item.name) => None,
            None => {
                let tree = self.state.tree.settled(pages)?;
                let found = tree.item(item.name.key, pages)?;
                let found = found.filter(|found| ItemName::of(found) == item.name);
                found.map(|found| found.rows)
            }
        };
        match rows.ok_or_else(is_gone)? {
            rows if rows == item.rows => Ok(()),
            _ => Err(conflict("a block whose rows are to be deleted has others")),
        }
    }

    fn hide(&mut self, item: &ItemMask) -> Result<()> {
        if self.brought.contains_key(&item.name) {
            self.hidden_in_brought = self.hidden_in_brought.saturating_add(item.newly);
        }
        match self.masks.hide(item) {
            Ok(Masked::Leaves) if Rule::LeavingItems.is_kept() => self.leaves.push(item.name),
            Err(error) if Rule::NewPositions.is_kept() => return Err(error),
            _ => {}
        }
        Ok(())
    }

    /// Takes away the masks of an item that goes; returns how many rows they hide.
    fn take_item(&mut self, name: &ItemName) -> u64 {
        if Rule::MasksGo.is_kept() {
            return self.masks.take_item(name);
        }
        self.masks.of_item(name).map_or(0, MaskList::rows)
    }

    /// Takes away the masks of all items of a run; returns how many rows they hide.
    fn take_run(&mut self, run: &ItemRun) -> u64 {
        if Rule::MasksGo.is_kept() {
            return self.masks.take_run(run);
        }
        self.masks.rows_of_run(run)
    }

    /// Whether an item goes from the table by name or by a run.
    fn removes(&self, name: &ItemName) -> bool {
        // They have no common keys.
        let behind = self
            .removed_runs
            .partition_point(|run| run.first.key <= name.key);
        let run = self.removed_runs[..behind].last();
        self.removed.contains(name) || run.is_some_and(|run| run.contains(name.key))
    }

    /// Takes away the masks of open rows that are covered; returns how many rows they hide.
    fn cover(&mut self, to: CommitNo) -> u64 {
        if Rule::MasksGo.is_kept() {
            return self.masks.cover(to);
        }
        self.masks.clone().cover(to)
    }

    fn finish(self, table: TableId) -> Result<Hidden> {
        let is_kept = Rule::CarriedHidden.is_kept();
        if is_kept && self.is_exact && self.hidden_in_brought < self.carried {
            return Err(conflict("rows are carried that are not hidden again"));
        }
        Ok(Hidden {
            table,
            masks: self.masks,
            leaves: self.leaves,
        })
    }
}

pub(super) fn mask_bytes(table: &TableState) -> u64 {
    table.masks().map_or(0, TableMasks::bytes)
}

fn conflict(what: &str) -> Error {
    let message = format!("{what}: another commit came in between; run the statement again");
    Error::new(ErrorKind::Conflict, message)
}

/// For a repair: masks of what is not there.
impl Working {
    /// Takes items and open rows that are not there out of an edit of a damaged log; returns the rows that it would have hidden.
    pub(crate) fn forget_lost_items(
        &self,
        edit: &mut MaskEdit,
        brought: &HashSet<ItemName>,
        pages: &dyn PageLoader,
    ) -> Result<u64> {
        let Some(state) = self.table(edit.table) else {
            return Ok(0);
        };
        let mut lost = 0;
        let mut items = Vec::new();
        for item in std::mem::take(&mut edit.items) {
            let found = state.tree.item(item.name.key, pages)?;
            let is_there = found.is_some_and(|found| ItemName::of(&found) == item.name);
            match is_there || brought.contains(&item.name) {
                true => items.push(item),
                false => lost += item.newly,
            }
        }
        edit.items = items;
        let open = self.open.get(edit.table);
        edit.parts.retain(|part| {
            let rows = open.and_then(|open| open.rows_of_part(part.commit, part.part));
            let is_there = rows == Some(part.rows);
            if !is_there {
                lost += u64::from(part.positions.rows());
            }
            is_there
        });
        Ok(lost)
    }

    /// Takes away masks of items that are not in their table; returns how many rows they have hidden there.
    pub(crate) fn drop_masks_without_items(
        &mut self,
        table: TableId,
        pages: &dyn PageLoader,
    ) -> Result<u64> {
        let Some(state) = self.table(table) else {
            return Ok(0);
        };
        let Some(masks) = state.masks() else {
            return Ok(0);
        };
        let mut left = masks.clone();
        let mut rows = 0;
        for (name, _) in masks.all_items() {
            let found = state.tree.item(name.key, pages)?;
            if found.is_none_or(|found| ItemName::of(&found) != *name) {
                rows += left.take_item(name);
            }
        }
        if rows > 0 {
            let left = (!left.is_empty()).then(|| Arc::new(left));
            self.change(table, |state| {
                state.masks = left;
                Ok(())
            })?;
        }
        Ok(rows)
    }

    /// The masks of a table are these from now on.
    pub(crate) fn set_masks(&mut self, table: TableId, masks: TableMasks) -> Result<()> {
        self.change(table, |state| {
            state.masks = (!masks.is_empty()).then(|| Arc::new(masks));
            Ok(())
        })
    }
}
