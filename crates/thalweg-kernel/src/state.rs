//! The state of a database in memory: what one commit after the other makes of it.
//!
//! Invariants: a [`DbState`] never changes once it is shared, except that open rows are appended behind its
//! `visible` commit and `visible` then rises. A snapshot is a `DbState` and the `visible` it read; so taking one is two
//! atomic loads, and no reader takes a lock that a writer holds.

use crate::error::Result;
use crate::ids::{CommitNo, Epoch, TableId};
use crate::index::Tree;
use crate::live::PinPlace;
use crate::open_rows::{OpenList, OpenRows};
use bytes::Bytes;
use std::sync::Arc;
use thalweg_env::sync::atomic::AtomicU64;

/// One table as of one state.
#[derive(Clone, Debug)]
pub struct TableState {
    /// The table's id for life.
    pub id: TableId,
    /// Its name, as it was written.
    pub name: String,
    /// What the layer above knows of it.
    pub definition: Bytes,
    /// Rises with every new definition.
    pub definition_version: u32,
    /// The commit that made it.
    pub created: CommitNo,
    /// Its blocks.
    pub tree: Tree,
    /// Its open rows begin here.
    pub(crate) open: OpenList,
    /// Commits of groups that lie between open rows: an encoder cuts there, so that arrival order survives.
    pub(crate) barriers: Arc<[CommitNo]>,
}

/// All tables as of one commit.
#[derive(Debug)]
pub(crate) struct DbState {
    /// In another epoch the same commits may lie elsewhere.
    pub(crate) epoch: Epoch,
    /// By id.
    pub(crate) tables: Vec<Arc<TableState>>,
    /// The last commit that can be seen in this state; only ROWS commits raise it without a new state.
    pub(crate) visible: AtomicU64,
}

impl DbState {
    pub(crate) fn table(&self, id: TableId) -> Option<&Arc<TableState>> {
        self.tables
            .binary_search_by_key(&id, |t| t.id)
            .ok()
            .map(|i| &self.tables[i])
    }

    pub(crate) fn table_named(&self, name: &str) -> Option<&Arc<TableState>> {
        let folded = fold_name(name);
        self.tables
            .iter()
            .find(|t| t.name == name || fold_name(&t.name) == folded)
    }
}

/// Names are compared without regard to case.
pub(crate) fn fold_name(name: &str) -> String {
    name.to_lowercase()
}

/// One consistent view of the whole database. Cheap to clone; holding it keeps its files.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) state: Arc<DbState>,
    pub(crate) commit: CommitNo,
    pub(crate) pin: Option<Arc<dyn Pin>>,
}

/// What keeps the files of a snapshot from being deleted for as long as it lives.
pub(crate) trait Pin: std::fmt::Debug + Send + Sync {}

impl Snapshot {
    /// The last commit in it.
    pub fn commit(&self) -> CommitNo {
        self.commit
    }

    /// What it pins.
    pub(crate) fn place(&self) -> PinPlace {
        PinPlace {
            epoch: self.state.epoch,
            commit: self.commit,
        }
    }

    /// All tables, by id.
    pub fn tables(&self) -> impl ExactSizeIterator<Item = TableSnapshot> + '_ {
        self.state.tables.iter().map(|t| self.of_table(t))
    }

    /// The table with an id.
    pub fn table(&self, id: TableId) -> Option<TableSnapshot> {
        self.state.table(id).map(|t| self.of_table(t))
    }

    /// The table with a name, without regard to case.
    pub fn table_named(&self, name: &str) -> Option<TableSnapshot> {
        self.state.table_named(name).map(|t| self.of_table(t))
    }

    fn of_table(&self, table: &Arc<TableState>) -> TableSnapshot {
        TableSnapshot {
            table: Arc::clone(table),
            commit: self.commit,
            pin: self.pin.clone(),
        }
    }
}

/// One table in one snapshot.
#[derive(Clone, Debug)]
pub struct TableSnapshot {
    table: Arc<TableState>,
    commit: CommitNo,
    #[expect(dead_code, reason = "held, not read: keeps the snapshot's files")]
    pin: Option<Arc<dyn Pin>>,
}

impl std::ops::Deref for TableSnapshot {
    type Target = TableState;

    fn deref(&self) -> &TableState {
        &self.table
    }
}

impl TableSnapshot {
    /// The last commit of the snapshot.
    pub fn commit(&self) -> CommitNo {
        self.commit
    }

    /// The rows that are in no block yet, in commit order.
    pub fn open_rows(&self) -> impl Iterator<Item = &OpenRows> {
        self.table.open.iter(self.commit)
    }

    /// Whether the index can be read: not where commits of the log wait for a page of it that could not be read.
    ///
    /// # Errors
    /// `Corruption`, or `Io` where the device does not return the page, with its place.
    pub fn check_index(&self) -> Result<()> {
        self.table.tree.check_settled()
    }

    /// Commits between which an encoder must not put rows into one block: arrival order across blocks is told by
    /// their commits. Ascending.
    pub fn barriers(&self) -> &[CommitNo] {
        &self.table.barriers
    }

    /// Whether this is the very same state of the table: callers cache what they derived from the definition.
    pub fn same_definition(&self, other: &Self) -> bool {
        self.id == other.id && self.definition_version == other.definition_version
    }
}
