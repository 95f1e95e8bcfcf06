//! The state of a database in memory, as of one commit.
//!
//! Invariants: a [`DbState`] never changes once it is shared, except that open rows are appended after its `visible`
//! commit and `visible` then rises. That goes on while the rows fit the chunks that its tables have; the first commit
//! that does not begins a new state. A snapshot is a `DbState` and the `visible` it read, and no reader takes a lock
//! that a writer holds. Making a new state from the last one costs the same however many tables there are.

use crate::catalog::Catalog;
use crate::error::Result;
use crate::ids::{CommitNo, Epoch, TableId};
use crate::index::{Entry, Place};
use crate::live::PinPlace;
use crate::masks::{BlockMask, Positions};
use crate::open_rows::OpenRows;
use crate::table_state::TableState;
use std::sync::Arc;
use thalweg_env::sync::atomic::{AtomicU64, Ordering};

/// All tables as of one commit.
#[derive(Debug)]
pub(crate) struct DbState {
    /// The epoch of the log: in another one the same commits may lie elsewhere.
    pub(crate) epoch: Epoch,
    pub(crate) tables: Catalog,
    /// The last commit that can be seen in this state; only ROWS commits raise it without a new state.
    pub(crate) visible: AtomicU64,
}

/// A pointer to the published state, which publishing swaps.
pub(crate) type Published = Arc<arc_swap::ArcSwap<DbState>>;

/// One consistent view of the whole database. Cheap to clone; holding it keeps its files.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pinned: Arc<PinnedState>,
    commit: CommitNo,
}

/// A state and what keeps its files: several snapshots share one.
#[derive(Debug)]
pub(crate) struct PinnedState {
    pub(crate) state: Arc<DbState>,
    pub(crate) pin: Option<Arc<dyn Pin>>,
}

/// Keeps the files of a snapshot from being deleted for as long as it lives.
pub(crate) trait Pin: std::fmt::Debug + Send + Sync {}

impl Snapshot {
    /// A snapshot of all that is visible in a state now.
    pub(crate) fn new(pinned: Arc<PinnedState>) -> Self {
        let commit = CommitNo(pinned.state.visible.load(Ordering::Acquire));
        Self { pinned, commit }
    }

    /// The last commit in it.
    pub fn commit(&self) -> CommitNo {
        self.commit
    }

    pub(crate) fn state(&self) -> &DbState {
        &self.pinned.state
    }

    /// The place that it pins.
    pub(crate) fn place(&self) -> PinPlace {
        PinPlace {
            epoch: self.pinned.state.epoch,
            commit: self.commit,
        }
    }

    /// All tables, by id.
    pub fn tables(&self) -> impl Iterator<Item = TableSnapshot> + '_ {
        self.pinned.state.tables.iter().map(|t| self.of_table(t))
    }

    /// How many tables there are.
    pub fn table_count(&self) -> usize {
        self.pinned.state.tables.len()
    }

    /// The table with an id.
    pub fn table(&self, id: TableId) -> Option<TableSnapshot> {
        self.pinned.state.tables.get(id).map(|t| self.of_table(t))
    }

    /// The table with a name, without regard to case.
    pub fn table_named(&self, name: &str) -> Option<TableSnapshot> {
        self.pinned
            .state
            .tables
            .named(name)
            .map(|t| self.of_table(t))
    }

    fn of_table(&self, table: &Arc<TableState>) -> TableSnapshot {
        TableSnapshot {
            table: Arc::clone(table),
            commit: self.commit,
            is_draft: false,
            pin: self.pinned.pin.clone(),
        }
    }
}

/// One table in one snapshot.
#[derive(Clone, Debug)]
pub struct TableSnapshot {
    table: Arc<TableState>,
    commit: CommitNo,
    /// It has changes of a transaction: numbers of commits that others may get as well.
    is_draft: bool,
    /// Keeps the snapshot's files.
    pin: Option<Arc<dyn Pin>>,
}

impl std::ops::Deref for TableSnapshot {
    type Target = TableState;

    fn deref(&self) -> &TableState {
        &self.table
    }
}

impl TableSnapshot {
    /// The same table in another state, whose new rows have commits up to `commit`.
    pub(crate) fn as_changed(&self, table: &Arc<TableState>, commit: CommitNo) -> Self {
        Self {
            table: Arc::clone(table),
            commit,
            is_draft: true,
            pin: self.pin.clone(),
        }
    }

    /// The last commit of the snapshot.
    pub fn commit(&self) -> CommitNo {
        self.commit
    }

    /// Whether it has changes of a transaction that is not committed. Masks of it are of no use elsewhere.
    pub fn is_draft(&self) -> bool {
        self.is_draft
    }

    /// The rows that are in no block yet, in commit order.
    pub fn open_rows(&self) -> impl Iterator<Item = &OpenRows> {
        self.table.open.iter(self.commit)
    }

    /// The positions of the hidden rows among some open rows, if there are any.
    pub fn hidden_in(&self, rows: &OpenRows) -> Option<&Positions> {
        let mask = self.table.masks()?.of_part(rows.commit, rows.number)?;
        Some(&mask.positions)
    }

    /// The mask of the block at a place, if any of its rows are hidden.
    pub fn hidden_at(&self, place: &Place) -> Option<&BlockMask> {
        let rank = u32::try_from(place.rank).ok()?;
        self.table.masks()?.of_item(&place.item)?.of_block(rank)
    }

    /// Whether rows below an entry are hidden: then its summaries count more rows than are left. `place` is where the entry
    /// lies, as an item or in one; `None` for an entry above the items.
    pub fn hides_below(&self, entry: &Entry, place: Option<&Place>) -> bool {
        { self.table.masks() }.is_some_and(|masks| masks.meet(entry, place))
    }

    /// Fails while commits in the log wait for a page of the index that cannot be read.
    ///
    /// # Errors
    /// `Corruption`, or `Io` where the device does not return the page, with its place.
    pub fn check_index(&self) -> Result<()> {
        self.table.tree.check_settled()
    }

    /// Whether both have the same version of the definition of one table: callers cache what they derive from it.
    pub fn same_definition(&self, other: &Self) -> bool {
        self.id == other.id && self.definition_version == other.definition_version
    }
}
