//! The state that frames are applied to: the same code for the leader, recovery and reader processes.
//!
//! Invariants: a change is validated before anything of its commit is applied, so a refused commit leaves no trace; what
//! was validated cannot fail to apply with the pages that validating has loaded. Each change is checked against the state
//! before its commit, and changes of one commit that do not leave it at that are refused ([`crate::contradictions`]). A commit of the log is applied also where a
//! page cannot be read: its changes of that one index wait, and the table cannot be read meanwhile. A published state is
//! never changed: tables are copied on write, blocks and tables live in persistent trees, open rows are appended after
//! what published states can see. No commit, and nothing that is done for each commit, walks all tables: that is left to
//! checkpoints.

use crate::bases::Place;
use crate::bases::{Base, Bases, BuildsOn};
use crate::catalog::{Catalog, SharedDefinitions, Unnamed, fold_name};
use crate::change::Change;
use crate::commit::{Commit, Edit, NEW_TABLE, Producer, RowsPart};
use crate::contradictions::check_together;
use crate::error::{Error, ErrorKind, Result};
use crate::features::Features;
use crate::ids::{CommitNo, Epoch, LogPosition, TableId, used_up};
use crate::index::{BlockKeys, Entry, EntryKey, PageLoader, Pending, Tree};
use crate::limits::{CATALOGUE_LIMIT_BYTES, TABLE_BYTES};
use crate::open_rows::{OpenList, OpenRows};
use crate::open_tables::{Open, OpenTables};
use crate::producers::Producers;
use crate::rules::Rule;
use crate::since_checkpoint::SinceCheckpoint;
use crate::state::DbState;
use crate::summary::ColumnSummary;
use crate::table_state::TableState;
use crate::tree_changes::{TreeChange, TreeChanges};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_env::sync::atomic::AtomicU64;

/// The state as of the last applied frame.
pub(crate) struct Working {
    pub(crate) tables: Catalog,
    definitions: SharedDefinitions,
    pub(crate) open: OpenTables,
    /// Tables whose index may have pages in memory: it was changed since the last checkpoint.
    pub(crate) changed_trees: BTreeSet<TableId>,
    pub(crate) producers: Producers,
    /// What all tables take of a checkpoint besides definitions, rows and pages.
    names_bytes: u64,
    /// The last commit that replaced blocks of a table, since the database was opened: who prepares replacements has
    /// opened it as well.
    pub(crate) replaced: BTreeMap<TableId, CommitNo>,
    /// Tables dropped since the last checkpoint. Until then a recovery in place may bring them back, and `replaced` has to know
    /// them.
    dropped: Vec<TableId>,
    /// Tables with changes of the log that wait for a page of their index.
    pub(crate) pending: BTreeSet<TableId>,
    pub(crate) next_table: u32,
    /// Those of the last checkpoint that was read.
    pub(crate) features: Features,
    pub(crate) commit: CommitNo,
    /// Tables changed since the last [`Working::publish`] in more than what their published states can show.
    pub(crate) changed: bool,
    pub(crate) since_checkpoint: SinceCheckpoint,
    /// Of all index pages that have changed.
    pub(crate) longest_page_bytes: u64,
    /// The full checkpoints that others build on, and which tables have changed since.
    pub(crate) bases: Bases,
}

/// Where a commit that is checked comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A caller. Nothing of it is written yet.
    Caller,
    /// A log that has all commits before it.
    Log,
    /// A log in which commits before it may be lost, and with them the numbers of their tables.
    DamagedLog {
        /// The lost ones may have dropped or renamed tables.
        edits_lost: bool,
    },
}

impl Working {
    pub(crate) fn empty() -> Self {
        Self {
            tables: Catalog::default(),
            definitions: SharedDefinitions::default(),
            open: OpenTables::default(),
            changed_trees: BTreeSet::new(),
            producers: Producers::default(),
            names_bytes: 0,
            replaced: BTreeMap::new(),
            dropped: Vec::new(),
            pending: BTreeSet::new(),
            next_table: 1,
            features: Features::default(),
            commit: CommitNo(0),
            changed: true,
            since_checkpoint: SinceCheckpoint::default(),
            longest_page_bytes: 0,
            bases: Bases::default(),
        }
    }

    /// The features that the next checkpoint names.
    pub(crate) fn features_written(&self) -> Features {
        self.features.with(Features::WRITTEN)
    }

    pub(crate) fn table(&self, id: TableId) -> Option<&Arc<TableState>> {
        self.tables.get(id)
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

    /// Refuses a commit that cannot be stored: called by the leader before it writes, in commit order. `pages` keeps what it
    /// loads for [`Working::apply`].
    pub(crate) fn validate(&self, changes: &[Change], pages: &dyn PageLoader) -> Result<()> {
        self.validate_by(changes, Origin::Caller, |change| {
            self.check(change, pages, Origin::Caller)
        })
    }

    /// Refuses a commit of a damaged log that does not fit what is left. `edits_lost`: the commits that are lost may have dropped
    /// or renamed tables, so that the names of those that are left are no reason to refuse it.
    pub(crate) fn validate_salvaged(
        &self,
        changes: &[Change],
        pages: &dyn PageLoader,
        edits_lost: bool,
    ) -> Result<()> {
        let origin = Origin::DamagedLog { edits_lost };
        self.validate_by(changes, origin, |change| self.check(change, pages, origin))
    }

    /// Refuses a commit of the log that does not fit the state. Pages that cannot be read say nothing about it: what needs
    /// them is put off when it is applied.
    pub(crate) fn validate_stored(&self, changes: &[Change], pages: &dyn PageLoader) -> Result<()> {
        self.validate_by(changes, Origin::Log, |change| {
            match self.check(change, pages, Origin::Log) {
                Err(error) if error.is_of_unreadable_bytes() => Ok(()),
                checked => checked,
            }
        })
    }

    /// The same for all, so that whatever is stored can be read again: each change is sound, all of them together do not
    /// contradict each other, and `fits` finds that each of them fits the state before the commit.
    fn validate_by(
        &self,
        changes: &[Change],
        origin: Origin,
        mut fits: impl FnMut(&Change) -> Result<()>,
    ) -> Result<()> {
        self.check_catalogue(changes, origin)?;
        check_together(changes)?;
        changes.iter().try_for_each(|change| {
            change.check().map_err(|what| refused(change, what))?;
            fits(change)
        })
    }

    fn check(&self, change: &Change, pages: &dyn PageLoader, origin: Origin) -> Result<()> {
        match change {
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
                self.check_new_items(*table, entries, pages)
            }
            Change::Edit(edit) => self.check_edit(edit, pages, origin),
            Change::Producer(_) => Ok(()),
        }
    }

    /// Whether a new table has the next number or, behind lost commits, one that no table is known to have.
    fn check_number(&self, table: TableId, next: u32, origin: Origin) -> Result<()> {
        let is_unused = match origin {
            Origin::DamagedLog { .. } => table != NEW_TABLE && self.table(table).is_none(),
            Origin::Caller | Origin::Log => table.0 == next,
        };
        if is_unused {
            return Ok(());
        }
        let message = format!(
            "a new table has the number {}, and the next one is {next}",
            table.0
        );
        Err(Error::new(ErrorKind::Invalid, message))
    }

    /// Whether there are numbers for the new tables and definitions of a commit, and room for them in a checkpoint.
    fn check_catalogue(&self, changes: &[Change], origin: Origin) -> Result<()> {
        let (mut new_bytes, mut next_table) = (0, self.next_table);
        for change in changes {
            new_bytes += match change {
                Change::Edit(Edit::CreateTable {
                    table,
                    name,
                    definition,
                }) => {
                    self.check_number(*table, next_table, origin)?;
                    let next = table.0.checked_add(1);
                    let next = next.ok_or_else(|| used_up("numbers of tables", table.0.into()))?;
                    next_table = next.max(next_table);
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
        }
        if new_bytes == 0 || self.has_room_for(new_bytes) {
            return Ok(());
        }
        let message = format!(
            "the names and definitions of all tables would take more than {CATALOGUE_LIMIT_BYTES} bytes: drop tables, or \
             make them in another database"
        );
        Err(Error::new(ErrorKind::Limit, message))
    }

    /// Whether so much fits in a checkpoint beside the names and definitions that there are.
    fn has_room_for(&self, new_bytes: u64) -> bool {
        let fits = |definitions_bytes: u64| {
            self.names_bytes + definitions_bytes + new_bytes <= CATALOGUE_LIMIT_BYTES
        };
        // Those that no table has any more are counted out where it matters only.
        fits(self.definitions.bytes()) || fits(self.definitions.bytes_in_use())
    }

    /// About how much of the next full checkpoint is in each of them: names, definitions and open rows.
    pub(crate) fn repeated_bytes(&self) -> u64 {
        self.names_bytes + self.definitions.bytes() + self.open.bytes()
    }

    /// About how much else is in it, and in no other one: index pages that have changed, and the entries that have come. These
    /// count as in memory, which is more than they take: the reserve of a full disk has to suffice.
    pub(crate) fn unsaved_bytes(&self) -> u64 {
        let since = &self.since_checkpoint;
        since.directory_bytes + since.edit_bytes + since.replaced_bytes
    }

    fn check_version(&self, table: TableId, version: u32) -> Result<()> {
        let table = self.table(table).ok_or_else(|| dropped(table))?;
        if table.definition_version == version {
            return Ok(());
        }
        let message = format!(
            "the definition of table \"{}\" changed meanwhile",
            table.name
        );
        Err(Error::new(ErrorKind::Conflict, message))
    }

    /// A cover takes whole commits from the front, and its blocks hold just their rows.
    fn check_cover(&self, table: TableId, covered: CommitNo, entries: &[Entry]) -> Result<()> {
        let open = self.open.get(table);
        let taken_rows = open.map_or(0, |open| open.rows_up_to(covered));
        let rows = entries
            .iter()
            .fold(0, |sum: u64, e| sum.saturating_add(e.rows));
        let first = open.and_then(Open::first_commit);
        let has_their_commits =
            |e: &Entry| first.is_some_and(|first| first <= e.commit_min) && e.commit_max <= covered;
        // Rows of the commit itself are not open yet: a cover of them would take them without having their blocks.
        let is_just_those = rows > 0
            && rows == taken_rows
            && covered <= self.commit
            && entries.iter().all(has_their_commits);
        if is_just_those || !Rule::CoverCounts.is_kept() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Conflict,
            "the rows are no longer open, or the blocks do not hold just them",
        ))
    }

    /// Whether items can be inserted into the index of a table. A page that cannot be read refuses the commit that needs it,
    /// and stops nothing else.
    fn check_new_items(&self, id: TableId, items: &[Entry], pages: &dyn PageLoader) -> Result<()> {
        let table = self.table(id).ok_or_else(|| dropped(id))?;
        let keys = items.iter().map(Entry::key);
        table.tree.check_new_keys(keys, pages)
    }

    /// The first commit of which rows of a table are open.
    pub(crate) fn first_open(&self, table: TableId) -> Option<CommitNo> {
        self.open.get(table)?.first_commit()
    }

    fn check_edit(&self, edit: &Edit, pages: &dyn PageLoader, origin: Origin) -> Result<()> {
        match edit {
            Edit::CreateTable { name, .. } => self.check_name(name, origin),
            Edit::DropTable { table } => self
                .table(*table)
                .map(|_| ())
                .ok_or_else(|| dropped(*table)),
            Edit::RenameTable { table, name } => {
                let state = self.table(*table).ok_or_else(|| dropped(*table))?;
                if fold_name(&state.name) == fold_name(name) {
                    Ok(())
                } else {
                    self.check_name(name, origin)
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
                self.check_new_items(*table, roots, pages)
            }
            Edit::Replace {
                table,
                removed,
                added,
            } => {
                let state = self.table(*table).ok_or_else(|| dropped(*table))?;
                if added.iter().any(|item| item.commit_max > self.commit) {
                    let message = "blocks that replace others have commits that are yet to come";
                    return Err(Error::new(ErrorKind::Invalid, message));
                }
                // Done twice, here and when it is applied: replacements are rare, and a refusal must come before the write.
                let replaced =
                    state
                        .tree
                        .replace(removed, added.clone(), pages, &mut Vec::new())?;
                let rows = |tree: &Tree| tree.total().map_or(0, |total| total.rows);
                // Not of what is stored: blocks below damaged pages are out of reach of a repair. The totals of a tree with changes
                // that wait are of before these.
                let is_known = origin == Origin::Caller && state.tree.pending().is_none();
                if is_known && rows(&replaced) != rows(&state.tree) {
                    let message = "blocks that replace others have not as many rows as these";
                    return Err(Error::new(ErrorKind::Invalid, message));
                }
                Ok(())
            }
        }
    }

    fn check_name(&self, name: &str, origin: Origin) -> Result<()> {
        match self.tables.named(name) {
            None => Ok(()),
            // The repair renames the table that still has it.
            Some(_) if origin == (Origin::DamagedLog { edits_lost: true }) => Ok(()),
            Some(taken) => Err(name_is_taken(&taken.name)),
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
        let mut trees = TreeChanges::default();
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
                    self.apply_group(table, covers, entries, blocks, &mut trees)?;
                }
                Change::Edit(edit) => self.apply_edit(commit, edit, &mut trees)?,
                Change::Producer(producer) => {
                    self.producers.note(&producer, commit);
                }
            }
        }
        // Each tree changes once, whatever the commit has for it: the pages of all who apply it are the same.
        for change in trees.one_per_table() {
            self.change_items(commit, change, pages)?;
        }
        self.commit = commit;
        Ok(())
    }

    fn apply_rows(&mut self, commit: CommitNo, part: RowsPart) {
        self.since_checkpoint.rows_bytes += part.payload.len() as u64;
        self.push_open(OpenRows {
            commit,
            begins_section: false,
            part,
        });
    }

    /// Appends rows to the open ones of their table.
    pub(crate) fn push_open(&mut self, rows: OpenRows) {
        let table = rows.part.table;
        if self.open.needs_chunk(table) {
            let Some(state) = self.table(table) else {
                unreachable!("a validated table exists");
            };
            let mut state = TableState::clone(state);
            self.open.extend(table, &mut state.open);
            self.put_table(state);
        }
        self.open.push(rows);
    }

    fn apply_group(
        &mut self,
        table: TableId,
        covers: Option<CommitNo>,
        mut entries: Vec<Entry>,
        blocks: LogPosition,
        trees: &mut TreeChanges,
    ) -> Result<()> {
        self.since_checkpoint.groups += 1;
        for entry in &mut entries {
            self.since_checkpoint.directory_bytes += directory_bytes(entry);
            entry.address.file = blocks.segment;
            entry.address.offset += blocks.offset;
        }
        self.add_items(table, covers, entries, trees)
    }

    /// Adds blocks and fragments to the index of a table, in the place of the open rows that they cover.
    fn add_items(
        &mut self,
        table: TableId,
        covers: Option<CommitNo>,
        items: Vec<Entry>,
        trees: &mut TreeChanges,
    ) -> Result<()> {
        match covers {
            Some(covered) => _ = self.open.cover(table, covered),
            None => self.open.note_blocks(table),
        }
        trees.add(table, Vec::new(), items);
        let Some(covered) = covers.filter(|_| Rule::CoverDrops.is_kept()) else {
            return Ok(());
        };
        self.change(table, |state| {
            state.open = state.open.after(covered);
            Ok(())
        })
    }

    fn apply_edit(&mut self, commit: CommitNo, edit: Edit, trees: &mut TreeChanges) -> Result<()> {
        match edit {
            Edit::CreateTable {
                table: id,
                name,
                definition,
            } => {
                self.next_table = self.next_table.max(id.0 + 1);
                let definition = self.definitions.share(&definition);
                self.put_table(TableState {
                    id,
                    name: name.into(),
                    definition,
                    definition_version: 1,
                    created: commit,
                    tree: Tree::empty(id),
                    open: OpenList::default(),
                });
                Ok(())
            }
            Edit::DropTable { table } => {
                self.dropped.push(table);
                self.remove_table(table).ok_or_else(|| dropped(table))
            }
            Edit::RenameTable { table, name } => self.rename_table(table, name.into()),
            Edit::SetDefinition {
                table, definition, ..
            } => {
                let definition = self.definitions.share(&definition);
                self.open.ask_again(table);
                self.change(table, |state| {
                    state.definition = definition;
                    state.definition_version += 1;
                    Ok(())
                })
            }
            Edit::AddFragments {
                table,
                covers,
                roots,
                ..
            } => {
                self.count_edit(&[], &roots);
                self.add_items(table, covers, roots, trees)
            }
            Edit::Replace {
                table,
                removed,
                added,
            } => {
                self.count_edit(&removed, &added);
                self.replaced.insert(table, commit);
                trees.add(table, removed, added);
                Ok(())
            }
        }
    }

    fn count_edit(&mut self, removed: &[EntryKey], added: &[Entry]) {
        let bytes_of_added: u64 = added.iter().map(directory_bytes).sum();
        self.since_checkpoint.edit_bytes += bytes_of_added + size_of_val(removed) as u64;
    }

    /// Takes items out of the index of a table and puts others in; or notes that this is to be done, if a page that it needs
    /// cannot be read. Validating has refused that to new commits; it is met by those of the log.
    fn change_items(
        &mut self,
        commit: CommitNo,
        change: TreeChange,
        pages: &dyn PageLoader,
    ) -> Result<()> {
        let TreeChange {
            table,
            removed,
            added,
        } = change;
        let removed = &removed[..];
        let mut replaced = Vec::new();
        let changed = self.change_tree(table, |state| {
            let tree = &state.tree;
            let defer = |added, error: Error| {
                if error.is_of_unreadable_bytes() {
                    Ok(tree.defer(commit, removed, added, error))
                } else {
                    Err(error)
                }
            };
            // Insertions are many: whether they can be made is known without a copy of them.
            let paths = match removed {
                [] => tree.check_new_keys(added.iter().map(Entry::key), pages),
                _ => Ok(()),
            };
            state.tree = match (removed, paths) {
                (_, Err(error)) => defer(added, error)?,
                ([], Ok(())) => tree.insert_many(added, pages, &mut replaced)?,
                (_, Ok(())) => tree
                    .replace(removed, added.clone(), pages, &mut replaced)
                    .or_else(|error| defer(added, error))?,
            };
            Ok(())
        });
        for page in replaced {
            let bytes = u64::from(page.bytes);
            self.since_checkpoint.replaced_bytes += bytes;
            self.longest_page_bytes = self.longest_page_bytes.max(bytes);
        }
        changed
    }

    /// Why changes of an index wait, of one of the tables where some do.
    pub(crate) fn pending_error(&self) -> Option<Error> {
        let tables = self.pending.iter().filter_map(|table| self.table(*table));
        let mut pending = tables.filter_map(|table| table.tree.pending());
        pending.next().map(Pending::error)
    }

    /// Tries to make the changes of indexes that wait for pages which could not be read.
    pub(crate) fn settle_pending(&mut self, pages: &dyn PageLoader) {
        for table in self.pending.clone() {
            // A table that is pending exists.
            let _ = self.change_tree(table, |state| {
                state.tree = state.tree.settled_or_pending(pages);
                Ok(())
            });
        }
    }

    /// Adds a table of a checkpoint, without open rows; `None`: there is one with its id. Names are learnt when all tables
    /// are there.
    pub(crate) fn add_table(&mut self, table: TableState) -> Option<Unnamed> {
        if table.tree.pending().is_some() {
            self.pending.insert(table.id);
        }
        self.names_bytes += names_bytes(&table);
        self.tables.insert_unnamed(Arc::new(table))
    }

    /// Gives a table a name that no other one has.
    pub(crate) fn rename_table(&mut self, table: TableId, name: Arc<str>) -> Result<()> {
        self.change(table, |state| {
            state.name = name;
            Ok(())
        })
    }

    /// `None` without such a table.
    pub(crate) fn remove_table(&mut self, table: TableId) -> Option<()> {
        self.bases.note_change(table);
        self.count_unwritten(self.unwritten_bytes(table), 0);
        self.names_bytes -= names_bytes(self.table(table)?);
        self.tables.remove(table)?;
        self.changed_trees.remove(&table);
        self.pending.remove(&table);
        self.open.remove(table);
        self.changed = true;
        Some(())
    }

    /// What the next checkpoint is to build on. Where more than half of all tables have changed since the base, as when many
    /// are made at once, a full one costs little more, and what openings read and first checkpoints write stays short.
    pub(crate) fn choose_base(&self, begins_epoch: bool) -> BuildsOn {
        let choice = self.bases.choose(begins_epoch);
        let base = self.bases.base(choice);
        let changed = base.map_or(0, |base| self.bases.changed_since(base).len());
        match 2 * changed > self.tables.len() {
            true => BuildsOn::Nothing,
            false => choice,
        }
    }

    /// The tables of which a base may say something else than this state.
    pub(crate) fn replaced_since(&self, base: &Base) -> BTreeSet<TableId> {
        // Rows may have been appended to all that have open rows; to others they are covered by now, which is a change.
        let mut replaced = self.bases.changed_since(base);
        replaced.extend(self.open.ids());
        replaced
    }

    /// A checkpoint was written and the root names it: `own` is where it lies, `index_bytes` how long its INDEX section is.
    pub(crate) fn note_checkpoint(&mut self, own: Place, builds_on: BuildsOn, index_bytes: u64) {
        self.since_checkpoint = SinceCheckpoint::default();
        for table in self.dropped.drain(..) {
            self.replaced.remove(&table);
        }
        self.bases.note_checkpoint(own, builds_on, index_bytes);
    }

    /// The bytes of a definition, shared by all tables that have it.
    pub(crate) fn share_definition(&mut self, definition: &[u8]) -> Bytes {
        self.definitions.share(definition)
    }

    fn put_table(&mut self, table: TableState) {
        let before = self.table(table.id).map_or(0, |before| names_bytes(before));
        self.names_bytes = self.names_bytes - before + names_bytes(&table);
        self.bases.note_change(table.id);
        match table.tree.pending() {
            Some(_) => _ = self.pending.insert(table.id),
            None => _ = self.pending.remove(&table.id),
        }
        self.tables.insert(Arc::new(table));
        self.changed = true;
    }

    /// Copies a table's state and lets `edit` change it, all but its tree.
    fn change(
        &mut self,
        table: TableId,
        edit: impl FnOnce(&mut TableState) -> Result<()>,
    ) -> Result<()> {
        let state = self.table(table).ok_or_else(|| dropped(table))?;
        let mut state = TableState::clone(state);
        edit(&mut state)?;
        self.put_table(state);
        Ok(())
    }

    /// Copies a table's state and lets `edit` change it.
    pub(crate) fn change_tree(
        &mut self,
        table: TableId,
        edit: impl FnOnce(&mut TableState) -> Result<()>,
    ) -> Result<()> {
        let before = self.unwritten_bytes(table);
        self.change(table, edit)?;
        self.changed_trees.insert(table);
        self.count_unwritten(before, self.unwritten_bytes(table));
        Ok(())
    }

    /// Of the index pages of a table that the next checkpoint writes.
    fn unwritten_bytes(&self, table: TableId) -> u64 {
        let table = self.table(table);
        table.map_or(0, |table| table.tree.unwritten_bytes())
    }

    fn count_unwritten(&mut self, before: u64, now: u64) {
        let since = &mut self.since_checkpoint;
        since.page_bytes = (since.page_bytes + now).saturating_sub(before);
    }

    /// The bytes of index pages that a commit makes anew.
    ///
    /// # Errors
    /// When a page that it needs cannot be loaded.
    pub(crate) fn changed_bytes(&self, changes: &[Change], pages: &dyn PageLoader) -> Result<u64> {
        let mut of_tables: BTreeMap<TableId, (Vec<EntryKey>, Vec<EntryKey>)> = BTreeMap::new();
        for change in changes {
            if let Some((table, removed, added)) = change.items() {
                let (all_removed, all_added) = of_tables.entry(table).or_default();
                all_removed.extend_from_slice(removed);
                all_added.extend(added.iter().map(Entry::key));
            }
        }
        let trees = of_tables.into_iter().filter_map(|(table, keys)| {
            let table = self.table(table)?;
            Some((&table.tree, keys))
        });
        trees
            .map(|(tree, (removed, added))| tree.changed_bytes(&removed, &[], added, pages))
            .sum()
    }

    /// Removes index pages that are on disk from memory.
    pub(crate) fn trim(&mut self) {
        for table in std::mem::take(&mut self.changed_trees) {
            if let Some(state) = self.table(table) {
                let tree = state.tree.trim();
                let trimmed = TableState {
                    tree,
                    ..TableState::clone(state)
                };
                self.tables.insert(Arc::new(trimmed));
                self.changed = true;
            }
        }
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
}

/// The error of a change that is not sound by itself.
fn refused(change: &Change, what: &str) -> Error {
    let part = match change {
        Change::Rows(_) => "rows",
        Change::Group { .. } => "blocks",
        Change::Edit(_) => "an edit",
        Change::Producer(_) => "a producer",
    };
    let message =
        format!("nothing was stored: the commit has {part} that could not be read again: {what}");
    Error::new(ErrorKind::Invalid, message)
}

/// About what an entry takes in a directory. Keys that a block does not have take nothing.
fn directory_bytes(entry: &Entry) -> u64 {
    let no_keys_bytes = match entry.block_keys {
        Some(_) => 0,
        None => size_of::<Option<BlockKeys>>(),
    };
    let summaries_bytes = entry.columns.len() * size_of::<ColumnSummary>();
    (size_of::<Entry>() - no_keys_bytes + summaries_bytes) as u64
}

/// The error for a new table with the name of another one.
#[must_use]
pub fn name_is_taken(name: &str) -> Error {
    let message =
        format!("table \"{name}\" exists already: use it as it is, or choose another name");
    Error::new(ErrorKind::AlreadyExists, message)
}

fn names_bytes(table: &TableState) -> u64 {
    TABLE_BYTES + table.name.len() as u64
}

fn dropped(table: TableId) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("the table (id {}) was dropped", table.0),
    )
}
