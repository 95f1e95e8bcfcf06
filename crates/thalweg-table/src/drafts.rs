//! The changes of an open transaction: its snapshot, and the draft of each table that it has changed.
//!
//! Invariants
//! - A statement is planned from the drafts as one statement of the transaction has left them; where another one has changed them
//!   meanwhile, what was planned is refused and planned again. So no lock is held while a query runs.
//! - Once the transaction has ended, by a commit, a rollback or its age, its drafts are gone and every call fails.
//! - Hidden rows are kept twice: in the drafts, where statements read, and by themselves for the commit.

use crate::error::query;
use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;
use thalweg_env::sync::{Mutex, MutexGuard};
use thalweg_kernel::index::{Entry, ItemName, PageLoader};
use thalweg_kernel::masks::{ItemMask, MaskEdit, PartMask};
use thalweg_kernel::{
    Commit, CommitNo, Edit, Error, ErrorKind, Result, RowsPart, Snapshot, TableDraft, TableId,
    TableSnapshot,
};

/// The changes of one transaction.
pub(crate) struct Drafts {
    base: Snapshot,
    state: Mutex<State>,
}

struct State {
    tables: BTreeMap<TableId, Draft>,
    /// Changes so far, of all tables.
    changes: u64,
    /// Why there is no transaction any more.
    ended: Option<&'static str>,
}

/// One table that the transaction has changed.
pub(crate) struct Draft {
    pub(crate) table: TableDraft,
    /// Hidden rows that other commits have brought, and those of own fragments.
    items: BTreeMap<ItemName, ItemMask>,
    parts: BTreeMap<(CommitNo, u32), PartMask>,
    /// Staged fragments of new rows, in the order in which the draft has numbered their blocks.
    pub(crate) roots: Vec<Entry>,
    /// The names of these in its views.
    pub(crate) names: Vec<ItemName>,
    raw_bytes: usize,
}

/// The changes of a statement to one table.
#[derive(Clone)]
pub(crate) struct DraftChange {
    pub(crate) masks: MaskEdit,
    pub(crate) rows: Option<RowsPart>,
    pub(crate) roots: Vec<Entry>,
}

impl DraftChange {
    /// Hidden rows, and those that a commit would add: raw, or in staged fragments.
    pub(crate) fn new(masks: MaskEdit, added: Commit) -> Self {
        assert!(added.groups.is_empty(), "blocks that are in no fragment");
        let roots = added.edits.into_iter().filter_map(|edit| match edit {
            Edit::AddFragments { roots, .. } => Some(roots),
            _ => None,
        });
        Self {
            masks,
            rows: added.rows.into_iter().next(),
            roots: roots.flatten().collect(),
        }
    }
}

impl Drafts {
    pub(crate) fn new(base: Snapshot) -> Self {
        let state = State {
            tables: BTreeMap::new(),
            changes: 0,
            ended: None,
        };
        Self {
            base,
            state: Mutex::new(state),
        }
    }

    /// The snapshot that the transaction began with.
    pub(crate) fn base(&self) -> &Snapshot {
        &self.base
    }

    fn open(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        match state.ended {
            None => Ok(state),
            Some(why) => Err(query(why)),
        }
    }

    /// A table as the transaction sees it, if it is there.
    pub(crate) fn table(&self, id: TableId) -> Result<Option<TableSnapshot>> {
        let state = self.open()?;
        let draft = state.tables.get(&id).map(|draft| draft.table.view());
        Ok(draft.or_else(|| self.base.table(id)))
    }

    /// All tables that were changed, as the transaction sees them.
    pub(crate) fn changed(&self) -> Result<BTreeMap<TableId, TableSnapshot>> {
        let state = self.open()?;
        let views = state.tables.iter();
        Ok(views.map(|(id, draft)| (*id, draft.table.view())).collect())
    }

    /// The number of changes that a statement sees which begins now.
    pub(crate) fn changes(&self) -> Result<u64> {
        Ok(self.open()?.changes)
    }

    /// Makes the change of a statement that has seen so many changes.
    ///
    /// # Errors
    /// `Conflict` where another statement was faster. Nothing has changed then.
    pub(crate) fn change(
        &self,
        (table, seen): (TableId, u64),
        change: DraftChange,
        pages: &dyn PageLoader,
    ) -> Result<()> {
        let mut state = self.open()?;
        if state.changes != seen {
            let message = "another statement of the transaction changed rows meanwhile";
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let draft = match state.tables.entry(table) {
            btree_map::Entry::Occupied(draft) => draft.into_mut(),
            btree_map::Entry::Vacant(place) => {
                let base = self.base.table(table);
                let base = base.ok_or_else(|| Error::new(ErrorKind::NotFound, "no such table"))?;
                place.insert(Draft::new(base))
            }
        };
        draft.change(change, pages)?;
        state.changes += 1;
        Ok(())
    }

    /// The view of a table whose raw new rows have so many bytes that they are to be put into fragments, and the number of changes in it.
    pub(crate) fn many_raw_rows(
        &self,
        table: TableId,
        max_bytes: usize,
    ) -> Result<Option<(TableSnapshot, u64)>> {
        let state = self.open()?;
        let draft = state.tables.get(&table);
        let draft = draft.filter(|draft| draft.raw_bytes >= max_bytes);
        Ok(draft.map(|draft| (draft.table.view(), state.changes)))
    }

    /// Puts fragments in the place of the raw new rows of a table, of which the caller has seen so many changes. False: others came in
    /// between, and nothing has changed.
    pub(crate) fn replace_raw_rows(
        &self,
        (table, seen): (TableId, u64),
        roots: Vec<Entry>,
        pages: &dyn PageLoader,
    ) -> Result<bool> {
        let mut state = self.open()?;
        if state.changes != seen {
            return Ok(false);
        }
        let Some(draft) = state.tables.get_mut(&table) else {
            return Ok(false);
        };
        let no_masks = MaskEdit::nothing(table);
        let names = draft.table.change(&no_masks, None, &roots, pages)?;
        draft.table.take_new_rows();
        draft.names.extend(names);
        draft.roots.extend(roots);
        draft.raw_bytes = 0;
        state.changes += 1;
        Ok(true)
    }

    /// Ends the transaction and hands over its changes; `why` is what later calls are told.
    pub(crate) fn end(&self, why: &'static str) -> Result<BTreeMap<TableId, Draft>> {
        let mut state = self.open()?;
        state.ended = Some(why);
        Ok(std::mem::take(&mut state.tables))
    }
}

impl Draft {
    fn new(base: TableSnapshot) -> Self {
        Self {
            table: TableDraft::new(base),
            items: BTreeMap::new(),
            parts: BTreeMap::new(),
            roots: Vec::new(),
            names: Vec::new(),
            raw_bytes: 0,
        }
    }

    fn change(&mut self, change: DraftChange, pages: &dyn PageLoader) -> Result<()> {
        let DraftChange { masks, rows, roots } = change;
        let raw_bytes = rows.as_ref().map_or(0, |rows| rows.payload.len());
        let names = self.table.change(&masks, rows, &roots, pages)?;
        self.names.extend(names);
        self.raw_bytes += raw_bytes;
        self.roots.extend(roots);
        for mask in masks.items {
            match self.items.get_mut(&mask.name) {
                Some(known) => {
                    // What was hidden before the transaction is not in this list, but a mask of whole blocks counts it.
                    known.newly += mask.newly;
                    let added = known.masks.add(&mask.masks);
                    assert!(added.is_some(), "the draft has taken it");
                }
                None => _ = self.items.insert(mask.name, mask),
            }
        }
        for mask in masks.parts {
            // Own raw rows that are hidden are never stored.
            if self.table.is_own(mask.commit) {
                continue;
            }
            match self.parts.get_mut(&(mask.commit, mask.part)) {
                Some(known) => {
                    if let Some(united) = known.positions.union_of_new(&mask.positions) {
                        known.positions = united;
                    }
                }
                None => _ = self.parts.insert((mask.commit, mask.part), mask),
            }
        }
        Ok(())
    }

    /// The rows that it hides of those that other commits have brought.
    pub(crate) fn masks(&self) -> MaskEdit {
        let others = |name: &&ItemMask| !self.table.is_own(name.name.key.commit);
        MaskEdit {
            table: self.table.base().id,
            items: self.items.values().filter(others).cloned().collect(),
            parts: self.parts.values().cloned().collect(),
        }
    }

    /// What it hides of its own fragments, by their names in its views.
    pub(crate) fn own_masks(&self) -> impl Iterator<Item = &ItemMask> {
        let is_own = |mask: &&ItemMask| self.table.is_own(mask.name.key.commit);
        self.items.values().filter(is_own)
    }
}

/// A snapshot of all tables with the changes of a transaction.
pub(crate) type ChangedTables = Arc<BTreeMap<TableId, TableSnapshot>>;
