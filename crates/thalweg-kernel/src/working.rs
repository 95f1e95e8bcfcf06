//! The state that frames are applied to: the same code for the leader, recovery and reader processes.
//!
//! Invariants: a change is validated before anything of its commit is applied, so a refused commit leaves no trace; what
//! was validated cannot fail to apply with the pages that validating has loaded. A published state is
//! never changed: tables are copied on write, blocks live in a persistent tree, open rows are appended behind what
//! published states can see.

use crate::change::Change;
use crate::commit::{Commit, Edit, Producer, RowsPart};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CommitNo, Epoch, LogPosition, TableId, used_up};
use crate::index::{Entry, PageLoader, Tree};
use crate::limits::{CATALOGUE_LIMIT_BYTES, TABLE_BYTES};
use crate::open_rows::{OpenList, OpenRows, OpenTail};
use crate::producers::Producers;
use crate::rules::Rule;
use crate::state::{DbState, TableState, fold_name};
use crate::summary::ColumnSummary;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_env::sync::atomic::AtomicU64;

/// Most open bytes in all tables together; above half of it tables are cut into short blocks.
pub(crate) const OPEN_LIMIT_BYTES: u64 = 8 << 20;

/// What the writer of a table keeps beside its state.
pub(crate) struct Open {
    tail: OpenTail,
    /// Rows and bytes in the open list.
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// How many rows make a block, as of this definition version.
    pub(crate) block_rows: u64,
    pub(crate) block_rows_of: u32,
    /// (commit, rows, bytes) of what is open, to subtract when it is covered.
    counts: std::collections::VecDeque<(CommitNo, u32, u32)>,
}

/// What has happened since the last checkpoint: it calls for the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SinceCheckpoint {
    pub(crate) frames: u64,
    pub(crate) groups: u64,
    pub(crate) directory_bytes: u64,
    pub(crate) rows_bytes: u64,
}

/// The state as of the last applied frame.
pub(crate) struct Working {
    pub(crate) tables: Vec<Arc<TableState>>,
    pub(crate) open: BTreeMap<TableId, Open>,
    pub(crate) producers: Producers,
    /// What names and definitions of all tables take.
    catalogue_bytes: u64,
    /// The last commit that replaced blocks of a table, since the database was opened: who prepares replacements has
    /// opened it as well.
    pub(crate) replaced: BTreeMap<TableId, CommitNo>,
    pub(crate) next_table: u32,
    pub(crate) commit: CommitNo,
    /// Raw bytes of all open rows.
    pub(crate) open_bytes: u64,
    /// Tables changed in more than their open rows since the last [`Working::publish`].
    pub(crate) changed: bool,
    pub(crate) since_checkpoint: SinceCheckpoint,
    /// Some table has as many open rows as make a block.
    pub(crate) block_is_full: bool,
}

impl Working {
    pub(crate) fn empty() -> Self {
        Self {
            tables: Vec::new(),
            open: BTreeMap::new(),
            producers: Producers::default(),
            catalogue_bytes: 0,
            replaced: BTreeMap::new(),
            next_table: 1,
            commit: CommitNo(0),
            open_bytes: 0,
            changed: true,
            since_checkpoint: SinceCheckpoint::default(),
            block_is_full: false,
        }
    }

    fn index(&self, id: TableId) -> Option<usize> {
        self.tables.binary_search_by_key(&id, |t| t.id).ok()
    }

    pub(crate) fn table(&self, id: TableId) -> Option<&Arc<TableState>> {
        self.index(id).map(|i| &self.tables[i])
    }

    /// Whether blocks that the commit replaces are still those it was prepared from.
    pub(crate) fn check_prepared(&self, commit: &Commit) -> Result<()> {
        let is_outdated = |edit: &Edit| match edit {
            Edit::Replace { table, .. } => self.replaced.get(table).copied() > commit.prepared_at,
            _ => false,
        };
        if commit.prepared_at.is_some() && commit.edits.iter().any(is_outdated) {
            let message = "other blocks of the table were replaced meanwhile";
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        Ok(())
    }

    /// Whether the commit may be stored: asked by the leader before it writes, in commit order. `pages` keeps what it loads
    /// for [`Working::apply`].
    pub(crate) fn validate(&self, changes: &[Change], pages: &dyn PageLoader) -> Result<()> {
        self.check_catalogue(changes)?;
        changes.iter().try_for_each(|change| match change {
            Change::Rows(part) => self.check_version(part.table, part.definition_version),
            Change::Group {
                table,
                definition_version,
                covers,
                entries,
                ..
            } => {
                self.check_version(*table, *definition_version)?;
                if let Some(covered) = covers {
                    self.check_cover(*table, *covered, entries)?;
                }
                self.load_paths(*table, entries, pages)
            }
            Change::Edit(edit) => self.check_edit(edit, pages),
            Change::Producer(_) => Ok(()),
        })
    }

    /// Whether there are numbers for the new tables and definitions of a commit, and room for them in a checkpoint.
    fn check_catalogue(&self, changes: &[Change]) -> Result<()> {
        let (mut bytes, mut next_table) = (self.catalogue_bytes, self.next_table);
        for change in changes {
            let new_bytes = match change {
                Change::Edit(Edit::CreateTable { name, definition }) => {
                    let next = next_table.checked_add(1);
                    next_table =
                        next.ok_or_else(|| used_up("numbers of tables", next_table.into()))?;
                    TABLE_BYTES + (name.len() + definition.len()) as u64
                }
                Change::Edit(Edit::RenameTable { name, .. }) => name.len() as u64,
                Change::Edit(Edit::SetDefinition {
                    table, definition, ..
                }) => {
                    let version = self.table(*table).map_or(0, |t| t.definition_version);
                    if version == u32::MAX {
                        return Err(used_up("versions of a definition", version.into()));
                    }
                    definition.len() as u64
                }
                _ => continue,
            };
            bytes += new_bytes;
            if bytes > CATALOGUE_LIMIT_BYTES {
                let message = format!(
                    "the names and definitions of all tables would take more than {CATALOGUE_LIMIT_BYTES} bytes: drop \
                     tables, or make them in another database"
                );
                return Err(Error::new(ErrorKind::Limit, message));
            }
        }
        Ok(())
    }

    fn check_version(&self, table: TableId, version: u32) -> Result<()> {
        let table = self.table(table).ok_or_else(|| dropped(table))?;
        if table.definition_version == version {
            return Ok(());
        }
        let message = format!("the definition of table '{}' changed meanwhile", table.name);
        Err(Error::new(ErrorKind::Conflict, message))
    }

    /// A cover takes whole commits from the front, and its blocks hold just their rows.
    fn check_cover(&self, table: TableId, covered: CommitNo, entries: &[Entry]) -> Result<()> {
        let open = self.open.get(&table).map(|o| &o.counts);
        let taken = open
            .into_iter()
            .flatten()
            .take_while(|(commit, ..)| *commit <= covered);
        let taken_rows: u64 = taken.map(|(_, rows, _)| u64::from(*rows)).sum();
        let rows = entries
            .iter()
            .fold(0, |sum: u64, e| sum.saturating_add(e.rows));
        if (rows > 0 && rows == taken_rows) || !Rule::CoverCounts.is_kept() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Conflict,
            "the rows are no longer open",
        ))
    }

    /// A page that cannot be read refuses the commit that needs it, and stops nothing else.
    fn load_paths(&self, id: TableId, items: &[Entry], pages: &dyn PageLoader) -> Result<()> {
        let table = self.table(id).ok_or_else(|| dropped(id))?;
        table.tree.load_paths(items.iter().map(Entry::key), pages)
    }

    /// The first commit of which rows of a table are open.
    pub(crate) fn first_open(&self, table: TableId) -> Option<CommitNo> {
        let (commit, ..) = self.open.get(&table)?.counts.front()?;
        Some(*commit)
    }

    fn check_edit(&self, edit: &Edit, pages: &dyn PageLoader) -> Result<()> {
        match edit {
            Edit::CreateTable { name, .. } => self.check_name(name),
            Edit::DropTable { table } => self
                .table(*table)
                .map(|_| ())
                .ok_or_else(|| dropped(*table)),
            Edit::RenameTable { table, name } => {
                let state = self.table(*table).ok_or_else(|| dropped(*table))?;
                if fold_name(&state.name) == fold_name(name) {
                    Ok(())
                } else {
                    self.check_name(name)
                }
            }
            Edit::SetDefinition {
                table,
                expected_version,
                ..
            } => self.check_version(*table, *expected_version),
            Edit::AddFragments {
                table,
                definition_version,
                covers,
                roots,
            } => {
                self.check_version(*table, *definition_version)?;
                if let Some(covered) = covers {
                    self.check_cover(*table, *covered, roots)?;
                }
                self.load_paths(*table, roots, pages)
            }
            Edit::Replace {
                table,
                removed,
                added,
            } => {
                // Done twice, here and when it is applied: replacements are rare, and a refusal must come before the write.
                let state = self.table(*table).ok_or_else(|| dropped(*table))?;
                state
                    .tree
                    .replace(removed, added.clone(), pages, &mut Vec::new())
                    .map(|_| ())
            }
        }
    }

    fn check_name(&self, name: &str) -> Result<()> {
        let folded = fold_name(name);
        match self.tables.iter().find(|t| fold_name(&t.name) == folded) {
            None => Ok(()),
            Some(taken) => {
                let message = format!(
                    "table '{}' exists already; drop it or choose another name",
                    taken.name
                );
                Err(Error::new(ErrorKind::AlreadyExists, message))
            }
        }
    }

    /// The commit under which this resend was stored, if it was.
    pub(crate) fn stored_before(&self, producer: &Producer) -> Option<CommitNo> {
        self.producers.stored_before(producer)
    }

    /// Applies a commit whose frame begins at `frame`.
    pub(crate) fn apply(
        &mut self,
        commit: CommitNo,
        changes: impl IntoIterator<Item = Change>,
        frame: LogPosition,
        pages: &dyn PageLoader,
    ) -> Result<()> {
        assert!(commit.follows(self.commit), "commits are applied in order");
        self.since_checkpoint.frames += 1;
        for change in changes {
            match change {
                Change::Rows(part) => self.apply_rows(commit, part),
                Change::Group {
                    table,
                    covers,
                    entries,
                    blocks_offset,
                    ..
                } => {
                    let blocks = LogPosition {
                        offset: frame.offset + blocks_offset,
                        ..frame
                    };
                    self.apply_group(commit, table, covers, entries, blocks, pages)?;
                }
                Change::Edit(edit) => self.apply_edit(commit, edit, pages)?,
                Change::Producer(producer) => {
                    self.producers.note(&producer, commit);
                }
            }
        }
        self.commit = commit;
        Ok(())
    }

    pub(crate) fn apply_rows(&mut self, commit: CommitNo, part: RowsPart) {
        let Some(open) = self.open.get_mut(&part.table) else {
            unreachable!("a validated table has an open list");
        };
        let bytes = crate::fields::len_u32(part.payload.len());
        open.rows += u64::from(part.rows);
        open.bytes += u64::from(bytes);
        open.counts.push_back((commit, part.rows, bytes));
        self.block_is_full |= open.rows >= open.block_rows;
        self.open_bytes += u64::from(bytes);
        self.since_checkpoint.rows_bytes += u64::from(bytes);
        open.tail.push(OpenRows { commit, part });
    }

    fn apply_group(
        &mut self,
        commit: CommitNo,
        table: TableId,
        covers: Option<CommitNo>,
        mut entries: Vec<Entry>,
        blocks: LogPosition,
        pages: &dyn PageLoader,
    ) -> Result<()> {
        self.since_checkpoint.groups += 1;
        for entry in &mut entries {
            self.since_checkpoint.directory_bytes += directory_bytes(entry);
            entry.address.file = blocks.segment;
            entry.address.offset += blocks.offset;
        }
        self.add_items(commit, table, covers, entries, pages)
    }

    /// Adds blocks and fragments to the index of a table, in the place of the open rows that they cover.
    fn add_items(
        &mut self,
        commit: CommitNo,
        table: TableId,
        covers: Option<CommitNo>,
        items: Vec<Entry>,
        pages: &dyn PageLoader,
    ) -> Result<()> {
        let Some(open) = self.open.get_mut(&table) else {
            return Err(dropped(table));
        };
        let has_open_rows = open.rows > 0;
        if let Some(covered) = covers {
            while let Some((_, rows, bytes)) = open.counts.pop_front_if(|(c, ..)| *c <= covered) {
                open.rows -= u64::from(rows);
                open.bytes -= u64::from(bytes);
                self.open_bytes -= u64::from(bytes);
            }
        }
        self.change(table, |state| {
            state.tree = state.tree.insert_many(items, pages, &mut Vec::new())?;
            match covers {
                Some(covered) => {
                    if Rule::CoverDrops.is_kept() {
                        state.open = state.open.after(covered);
                    }
                    state.barriers = state
                        .barriers
                        .iter()
                        .copied()
                        .filter(|b| *b > covered)
                        .collect();
                }
                None if has_open_rows => state.barriers = with_barrier(&state.barriers, commit),
                None => {}
            }
            Ok(())
        })
    }

    fn apply_edit(&mut self, commit: CommitNo, edit: Edit, pages: &dyn PageLoader) -> Result<()> {
        match edit {
            Edit::CreateTable { name, definition } => {
                let id = TableId(self.next_table);
                self.next_table += 1;
                self.add_table(TableState {
                    id,
                    name,
                    definition,
                    definition_version: 1,
                    created: commit,
                    tree: Tree::empty(id),
                    open: OpenList::new().0,
                    barriers: Arc::default(),
                });
                Ok(())
            }
            Edit::DropTable { table } => {
                let index = self.index(table).ok_or_else(|| dropped(table))?;
                let dropped = self.tables.remove(index);
                self.catalogue_bytes -= catalogue_bytes(&dropped);
                self.replaced.remove(&table);
                self.open_bytes -= self.open.remove(&table).map_or(0, |o| o.bytes);
                self.changed = true;
                Ok(())
            }
            Edit::RenameTable { table, name } => self.change(table, |state| {
                state.name = name;
                Ok(())
            }),
            Edit::SetDefinition {
                table, definition, ..
            } => self.change(table, |state| {
                state.definition = definition;
                state.definition_version += 1;
                Ok(())
            }),
            Edit::AddFragments {
                table,
                covers,
                roots,
                ..
            } => self.add_items(commit, table, covers, roots, pages),
            Edit::Replace {
                table,
                removed,
                added,
            } => {
                self.replaced.insert(table, commit);
                self.change(table, |state| {
                    state.tree = state
                        .tree
                        .replace(&removed, added, pages, &mut Vec::new())?;
                    Ok(())
                })
            }
        }
    }

    /// Adds a table; its open list is made anew.
    pub(crate) fn add_table(&mut self, mut state: TableState) {
        let (list, tail) = OpenList::new();
        state.open = list;
        self.catalogue_bytes += catalogue_bytes(&state);
        let open = Open {
            tail,
            rows: 0,
            bytes: 0,
            block_rows: u64::MAX,
            block_rows_of: 0,
            counts: std::collections::VecDeque::new(),
        };
        self.open.insert(state.id, open);
        let at = self.tables.partition_point(|t| t.id < state.id);
        self.tables.insert(at, Arc::new(state));
        self.changed = true;
    }

    /// Copies a table's state and lets `edit` change it.
    pub(crate) fn change(
        &mut self,
        table: TableId,
        edit: impl FnOnce(&mut TableState) -> Result<()>,
    ) -> Result<()> {
        let index = self.index(table).ok_or_else(|| dropped(table))?;
        let mut state = TableState::clone(&self.tables[index]);
        edit(&mut state)?;
        self.catalogue_bytes -= catalogue_bytes(&self.tables[index]);
        self.catalogue_bytes += catalogue_bytes(&state);
        self.tables[index] = Arc::new(state);
        self.changed = true;
        Ok(())
    }

    /// Lets go of index pages that are on disk.
    pub(crate) fn trim(&mut self) {
        for table in &mut self.tables {
            let tree = table.tree.trim();
            *table = Arc::new(TableState {
                tree,
                ..TableState::clone(table)
            });
        }
        self.changed = true;
    }

    /// The state as readers may hold it.
    pub(crate) fn publish(&mut self, epoch: Epoch) -> Arc<DbState> {
        self.changed = false;
        Arc::new(DbState {
            epoch,
            tables: self.tables.clone(),
            visible: AtomicU64::new(self.commit.0),
        })
    }

    /// Tables with open rows, and how many rows and bytes.
    pub(crate) fn open_tables(&self) -> impl Iterator<Item = (TableId, &Open)> {
        self.open
            .iter()
            .filter(|(_, o)| o.rows > 0)
            .map(|(id, o)| (*id, o))
    }
}

/// About what an entry takes in a directory.
fn directory_bytes(entry: &Entry) -> u64 {
    (size_of::<Entry>() + entry.columns.len() * size_of::<ColumnSummary>()) as u64
}

/// What a table takes of each checkpoint, besides its rows and pages.
fn catalogue_bytes(table: &TableState) -> u64 {
    TABLE_BYTES + (table.name.len() + table.definition.len()) as u64
}

fn with_barrier(barriers: &[CommitNo], commit: CommitNo) -> Arc<[CommitNo]> {
    barriers.iter().copied().chain([commit]).collect()
}

fn dropped(table: TableId) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("the table (id {}) was dropped", table.0),
    )
}
