//! A table as a transaction sees it: a snapshot, and what the transaction has changed of it so far.
//!
//! Invariants
//! - Nothing of a draft is stored, and nobody but its transaction sees it. Of other commits it shows what its snapshot shows.
//! - Each change has a number of its own, as if it were a commit after that of the snapshot: by it masks name new rows, and views
//!   that were taken before show nothing of it.
//! - A change that is refused leaves the draft as it was.

use crate::error::Result;
use crate::ids::CommitNo;
use crate::index::{Entry, ItemName, PageLoader};
use crate::masks::{MaskEdit, Masked};
use crate::open_rows::{OpenList, OpenRows, OpenTail};
use crate::rows_part::RowsPart;
use crate::state::TableSnapshot;
use crate::table_state::TableState;
use std::sync::Arc;

/// A table of a snapshot with the changes of one transaction.
pub struct TableDraft {
    base: TableSnapshot,
    state: Arc<TableState>,
    /// The number of the last change; that of the snapshot before the first.
    commit: CommitNo,
    tail: Option<OpenTail>,
    /// Parts of new rows in the list.
    parts: usize,
    /// Blocks of the new fragments.
    blocks: u32,
}

impl TableDraft {
    /// A draft without changes.
    #[must_use]
    pub fn new(base: TableSnapshot) -> Self {
        let mut state = TableState::clone(&base);
        // The list of the snapshot goes on in commits of others.
        state.open = OpenList::of(base.open_rows().cloned());
        Self {
            commit: base.commit(),
            base,
            state: Arc::new(state),
            tail: None,
            parts: 0,
            blocks: 0,
        }
    }

    /// The table before the transaction.
    #[must_use]
    pub fn base(&self) -> &TableSnapshot {
        &self.base
    }

    /// The table with all changes so far. It stays as it is.
    #[must_use]
    pub fn view(&self) -> TableSnapshot {
        self.base.as_changed(&self.state, self.commit)
    }

    /// Whether rows of this commit are new in the draft.
    #[must_use]
    pub fn is_own(&self, commit: CommitNo) -> bool {
        commit > self.base.commit()
    }

    /// Hides rows, and adds some: the raw ones, and those of staged fragments, whose names in the draft it returns.
    ///
    /// # Errors
    /// `Conflict` for masks that do not fit what [`Self::view`] shows; when a page of the index cannot be read. Nothing has changed
    /// then.
    pub fn change(
        &mut self,
        masks: &MaskEdit,
        rows: Option<RowsPart>,
        roots: &[Entry],
        pages: &dyn PageLoader,
    ) -> Result<Vec<ItemName>> {
        let commit = self.commit.next()?;
        let mut state = TableState::clone(&self.state);
        let mut hidden = state.masks().cloned().unwrap_or_default();
        let mut leaving = Vec::new();
        for item in &masks.items {
            if hidden.hide(item)? == Masked::Leaves {
                leaving.push(item.name.key);
            }
        }
        for part in &masks.parts {
            hidden.hide_open(part)?;
        }
        state.masks = (!hidden.is_empty()).then(|| Arc::new(hidden));
        let mut blocks = self.blocks;
        let committed = roots.iter().map(|root| {
            let ordinal = blocks;
            blocks = blocks.saturating_add(u32::try_from(root.blocks).unwrap_or(u32::MAX));
            root.clone().committed(commit, commit, ordinal)
        });
        let added: Vec<Entry> = committed.collect();
        let names = added.iter().map(ItemName::of).collect();
        if !(leaving.is_empty() && added.is_empty()) {
            state.tree = state
                .tree
                .replace(&leaving, added, pages, &mut Vec::new())?;
        }
        // Nothing is refused from here on.
        (self.blocks, self.commit) = (blocks, commit);
        if let Some(part) = rows {
            self.push(&mut state, part);
        }
        self.state = Arc::new(state);
        Ok(names)
    }

    /// Takes away the raw rows that are new, and their masks: they have become part of a fragment.
    pub fn take_new_rows(&mut self) {
        let mut state = TableState::clone(&self.state);
        state.open = OpenList::of(self.base.open_rows().cloned());
        if let Some(masks) = &mut state.masks {
            Arc::make_mut(masks).take_parts_after(self.base.commit());
        }
        state.masks = state.masks.filter(|masks| !masks.is_empty());
        (self.tail, self.parts) = (None, 0);
        self.state = Arc::new(state);
    }

    fn push(&mut self, state: &mut TableState, part: RowsPart) {
        let tail = match self.tail.take().filter(OpenTail::has_room) {
            Some(tail) => tail,
            None => OpenTail::extend(&mut state.open, self.parts),
        };
        self.tail.insert(tail).push(OpenRows {
            commit: self.commit,
            // Blocks may have come before the first one.
            begins_section: self.parts == 0,
            number: 0,
            part,
        });
        self.parts += 1;
    }
}
