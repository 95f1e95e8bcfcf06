//! The changes of an open transaction: its snapshot, and the draft of each table that it has changed.
//!
//! Invariants
//! - A statement is planned without a lock from the drafts as they are. What it hides is refused, and planned again, where another
//!   statement of the transaction has hidden it meanwhile or has moved it to a fragment.
//! - Once the transaction has ended, by a commit, a rollback or its age, its drafts are gone and every call fails.
//! - Hidden rows are kept twice: in the drafts, where statements read, and by themselves for the commit.

use crate::engine::Engine;
use crate::error::{limit, query};
use crate::key_index::KeyIndexes;
use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::sync::atomic::{AtomicU64, Ordering};
use thalweg_env::sync::{Mutex, MutexGuard};
use thalweg_kernel::index::{Entry, ItemName, PageLoader};
use thalweg_kernel::masks::{ItemMask, MaskEdit, PartMask};
use thalweg_kernel::{
    Commit, CommitNo, Edit, Error, ErrorKind, FRAME_LIMIT_BYTES, Result, RowsPart, Snapshot,
    TableDraft, TableId, TableSnapshot,
};

/// Most bytes of the masks of a transaction: they and what adds its rows are one frame.
const MAX_MASK_BYTES: u64 = FRAME_LIMIT_BYTES - (1 << 20);

/// Rows of a table for each lookup of a transaction before this one, up to which its unique keys come into memory.
const ROWS_PER_LOOKUP: u64 = 100_000;

const TOO_OLD: &str = "the transaction was rolled back: it was open for longer than max_snapshot_age, for which old files are kept; \
                       run it again";

/// The changes of one transaction.
pub(crate) struct Drafts {
    engine: Engine,
    began_ns: u64,
    /// How long the transaction may be open.
    max_age: Duration,
    /// How often unique keys were looked for.
    key_lookups: AtomicU64,
    key_indexes: KeyIndexes,
    state: Mutex<State>,
}

struct State {
    /// The snapshot that the transaction began with. Its files are kept until the end, whoever still has a handle of a table.
    base: Option<Snapshot>,
    tables: BTreeMap<TableId, Draft>,
    /// About what the hidden rows take in a frame.
    mask_bytes: u64,
    /// Why there is no transaction any more.
    ended: Option<&'static str>,
}

/// One table that the transaction has changed.
pub(crate) struct Draft {
    pub(crate) table: TableDraft,
    /// Hidden rows that other commits have brought, and those of own fragments.
    items: BTreeMap<ItemName, ItemMask>,
    parts: BTreeMap<(CommitNo, u32), PartMask>,
    /// Staged fragments of new rows, in the order in which the draft has numbered their blocks. Raw rows came after all of them.
    pub(crate) roots: Vec<Entry>,
    /// The names of these in its views.
    pub(crate) names: Vec<ItemName>,
    raw_bytes: usize,
    /// Changes so far.
    changes: u64,
    /// How often raw rows went to fragments: masks that were made before name rows that are elsewhere.
    stagings: u64,
}

/// The changes of a statement to one table.
pub(crate) struct DraftChange {
    pub(crate) masks: MaskEdit,
    pub(crate) rows: Option<RowsPart>,
    pub(crate) roots: Vec<Entry>,
}

impl DraftChange {
    /// Hidden rows, and those that a commit would add: raw, or in staged fragments.
    pub(crate) fn new(masks: MaskEdit, added: Commit) -> Self {
        assert!(added.groups.is_empty(), "blocks that are in no fragment");
        Self {
            masks,
            rows: added.rows.into_iter().next(),
            roots: roots_of(&added.edits),
        }
    }
}

impl Drafts {
    /// The changes of a transaction that begins with the newest snapshot, and is open for so long at most.
    pub(crate) fn new(engine: &Engine, max_age: Duration) -> Result<Self> {
        let state = State {
            base: Some(engine.newest()?),
            tables: BTreeMap::new(),
            mask_bytes: 0,
            ended: None,
        };
        Ok(Self {
            began_ns: engine.env().clock().monotonic_ns(),
            max_age,
            key_lookups: AtomicU64::new(0),
            key_indexes: engine.key_indexes().of_transaction(),
            engine: engine.clone(),
            state: Mutex::new(state),
        })
    }

    /// The unique keys of changed tables in memory, for one of so many rows; `None` where they are not worth their while: to derive them
    /// reads the columns of the key of all rows, and a lookup without them those of blocks that may have a key.
    pub(crate) fn key_indexes(&self, rows: u64) -> Option<&KeyIndexes> {
        let before = self.key_lookups.fetch_add(1, Ordering::Relaxed);
        (rows <= ROWS_PER_LOOKUP * before).then_some(&self.key_indexes)
    }

    fn open(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        let now_ns = self.engine.env().clock().monotonic_ns();
        let age_ns = u128::from(now_ns.saturating_sub(self.began_ns));
        if age_ns > self.max_age.as_nanos() {
            self.give_up(&mut state, TOO_OLD);
        }
        match state.ended {
            None => Ok(state),
            Some(why) => Err(query(why)),
        }
    }

    /// The snapshot that the transaction began with, and the tables that it has changed since, as it sees them.
    pub(crate) fn view(&self) -> Result<(Snapshot, ChangedTables)> {
        let state = self.open()?;
        let views = state.tables.iter();
        let changed = views.map(|(id, draft)| (*id, draft.table.view()));
        let changed: BTreeMap<_, _> = changed.collect();
        Ok((state.base()?.clone(), changed.into()))
    }

    fn give_up(&self, state: &mut State, why: &'static str) {
        state.ended.get_or_insert(why);
        state.base = None;
        for draft in std::mem::take(&mut state.tables).into_values() {
            abandon(&self.engine, &draft.roots);
        }
    }

    /// Ends the transaction and gives its changes up; `why` is what later calls are told. Of one that has ended nothing is left.
    pub(crate) fn roll_back(&self, why: &'static str) {
        self.give_up(&mut self.state.lock(), why);
    }

    /// Ends the transaction and hands over its changes; `why` is what later calls are told.
    pub(crate) fn end(&self, why: &'static str) -> Result<BTreeMap<TableId, Draft>> {
        let mut state = self.open()?;
        state.ended = Some(why);
        state.base = None;
        Ok(std::mem::take(&mut state.tables))
    }

    /// A table as the transaction sees it, if it is there.
    pub(crate) fn table(&self, id: TableId) -> Result<Option<TableSnapshot>> {
        let state = self.open()?;
        match state.tables.get(&id) {
            Some(draft) => Ok(Some(draft.table.view())),
            None => Ok(state.base()?.table(id)),
        }
    }

    /// How often raw rows of a table went to fragments before a statement that begins now.
    pub(crate) fn stagings(&self, table: TableId) -> Result<u64> {
        let state = self.open()?;
        let draft = state.tables.get(&table);
        Ok(draft.map_or(0, |draft| draft.stagings))
    }

    /// Makes the change of a statement. `seen`: as often had raw rows gone to fragments before it was planned.
    ///
    /// # Errors
    /// `Conflict` where another statement of the transaction was faster; `Limit` where too many rows are hidden for one commit. Nothing
    /// has changed then.
    pub(crate) fn change(
        &self,
        (table, seen): (TableId, u64),
        change: DraftChange,
        pages: &dyn PageLoader,
    ) -> Result<()> {
        let mut state = self.open()?;
        let mask_bytes = state.mask_bytes + change.masks.len_bytes() as u64;
        if mask_bytes > MAX_MASK_BYTES {
            return Err(limit(format!(
                "the rows that the transaction deletes or changes take {mask_bytes} bytes to be named, and one commit has room for \
                 {MAX_MASK_BYTES}: do it in several transactions"
            )));
        }
        let base = state.base()?.table(table);
        let draft = match state.tables.entry(table) {
            btree_map::Entry::Occupied(draft) => draft.into_mut(),
            btree_map::Entry::Vacant(place) => {
                let base = base.ok_or_else(|| Error::new(ErrorKind::NotFound, "no such table"))?;
                place.insert(Draft::new(base))
            }
        };
        if draft.stagings != seen && !change.masks.is_nothing() {
            let message = "another statement of the transaction has moved rows meanwhile";
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        draft.change(change, pages)?;
        state.mask_bytes = mask_bytes;
        Ok(())
    }

    /// The view of a table whose raw new rows have so many bytes, at least one row, the last commit that is not its own, and the number
    /// of changes in it.
    pub(crate) fn raw_rows(
        &self,
        table: TableId,
        min_bytes: usize,
    ) -> Result<Option<(TableSnapshot, CommitNo, u64)>> {
        let state = self.open()?;
        let draft = state.tables.get(&table);
        let draft = draft.filter(|draft| draft.raw_bytes >= min_bytes.max(1));
        Ok(draft.map(|draft| {
            let base = draft.table.base().commit();
            (draft.table.view(), base, draft.changes)
        }))
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
        let draft = state.tables.get_mut(&table);
        let Some(draft) = draft.filter(|draft| draft.changes == seen) else {
            return Ok(false);
        };
        let no_masks = MaskEdit::nothing(table);
        let names = draft.table.change(&no_masks, None, &roots, pages)?;
        draft.table.take_new_rows();
        draft.names.extend(names);
        draft.roots.extend(roots);
        draft.raw_bytes = 0;
        draft.changes += 1;
        draft.stagings += 1;
        Ok(true)
    }
}

impl State {
    fn base(&self) -> Result<&Snapshot> {
        self.base
            .as_ref()
            .ok_or_else(|| query("the transaction is over"))
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
            changes: 0,
            stagings: 0,
        }
    }

    fn change(&mut self, change: DraftChange, pages: &dyn PageLoader) -> Result<()> {
        let DraftChange { masks, rows, roots } = change;
        let raw_bytes = rows.as_ref().map_or(0, |rows| rows.payload.len());
        let names = self.table.change(&masks, rows, &roots, pages)?;
        self.names.extend(names);
        self.changes += 1;
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

    /// Whether it has new rows, be they hidden.
    pub(crate) fn has_new_rows(&self) -> bool {
        self.raw_bytes > 0 || !self.roots.is_empty()
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

    /// The rows that it hides of its own fragments, by their names in its views.
    pub(crate) fn own_masks(&self) -> impl Iterator<Item = &ItemMask> {
        let is_own = |mask: &&ItemMask| self.table.is_own(mask.name.key.commit);
        self.items.values().filter(is_own)
    }
}

/// A snapshot of all tables with the changes of a transaction.
pub(crate) type ChangedTables = Arc<BTreeMap<TableId, TableSnapshot>>;

/// The roots of the fragments that edits add.
pub(crate) fn roots_of(edits: &[Edit]) -> Vec<Entry> {
    let added = edits.iter().filter_map(|edit| match edit {
        Edit::AddFragments { roots, .. } => Some(roots),
        _ => None,
    });
    added.flatten().cloned().collect()
}

/// Lets go of fragments that no commit has made part of a table.
pub(crate) fn abandon(engine: &Engine, roots: &[Entry]) {
    if !roots.is_empty() {
        // They go with the next opening otherwise.
        let _ = engine.kernel().abandon_fragments(roots);
    }
}
