//! The state that frames are applied to: the same code for the leader, recovery and reader processes.
//!
//! Invariants: a change is validated before anything of its commit is applied, so a refused commit leaves no trace; what
//! was validated cannot fail to apply with the pages that validating has loaded. Each change is checked against the state
//! before its commit, and changes of one commit that do not leave it at that are refused ([`crate::contradictions`]). A commit
//! of the log is applied also where a page cannot be read: its changes of that one index wait, and the table cannot be read
//! meanwhile. A published state is never changed: tables are copied on write, blocks and tables live in persistent trees, open
//! rows are appended after what published states can see. No commit, and nothing that is done for each commit, walks all
//! tables: that is left to checkpoints.

mod freed;
mod hidden;
mod runs;
mod trees;
mod uses;

use crate::bases::Place;
use crate::bases::{Base, Bases, BuildsOn};
use crate::catalog::{Catalog, SharedDefinitions, Unnamed, fold_name};
use crate::change::Change;
use crate::commit::{Commit, Edit, NEW_TABLE, Producer};
use crate::contradictions::check_together;
use crate::error::{Error, ErrorKind, Result};
use crate::features::Features;
use crate::file_uses::OrderUses;
use crate::ids::{CommitNo, Epoch, LogPosition, TableId, used_up};
use crate::index::{BlockKeys, Entry, PageLoader, Pending, Tree};
use crate::limits::{CATALOGUE_LIMIT_BYTES, ORDER_BYTES, TABLE_BYTES};
use crate::open_rows::{OpenList, OpenRows};
use crate::open_tables::{Open, OpenTables};
use crate::orders::{
    AddHead, Coverage, OrderAction, OrderReplace, Orders, OrdersEdit, ReplaceEdit,
};
use crate::producers::Producers;
use crate::rows_part::RowsPart;
use crate::rules::Rule;
use crate::since_checkpoint::SinceCheckpoint;
use crate::state::DbState;
use crate::summary::ColumnSummary;
use crate::table_state::TableState;
use bytes::Bytes;
pub(crate) use freed::FreedBytes;
use hidden::{Folded, Hidden, mask_bytes};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_env::sync::atomic::AtomicU64;
use trees::{TreeChanges, Unindexed};
pub(crate) use uses::OfTrees;
use uses::uses_bytes;

/// The state as of the last applied frame.
pub(crate) struct Working {
    pub(crate) tables: Catalog,
    definitions: SharedDefinitions,
    pub(crate) open: OpenTables,
    /// Trees that may have pages in memory: they were changed since the last checkpoint.
    pub(crate) changed_trees: BTreeSet<(TableId, u32)>,
    pub(crate) producers: Producers,
    /// Bytes that all tables take of a checkpoint besides definitions, rows and pages.
    names_bytes: u64,
    /// Bytes that the masks of all tables take of it.
    mask_bytes: u64,
    /// Bytes that the uses of files of all tables take of it.
    uses_bytes: u64,
    /// The last commit that replaced blocks of a table, since the database was opened: who prepares replacements has
    /// opened it as well. Deletions of runs do not count.
    pub(crate) replaced: BTreeMap<TableId, CommitNo>,
    /// Tables dropped since the last checkpoint. Until then a recovery in place may bring them back, and `replaced` has to know
    /// them.
    dropped: Vec<TableId>,
    /// Tables with changes of the log that wait for a page of one of their trees.
    pub(crate) pending: BTreeSet<TableId>,
    /// Rows that came without entries in an index.
    unindexed: Unindexed,
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
            mask_bytes: 0,
            uses_bytes: 0,
            replaced: BTreeMap::new(),
            dropped: Vec::new(),
            pending: BTreeSet::new(),
            unindexed: Unindexed::default(),
            next_table: 1,
            features: Features::default(),
            commit: CommitNo(0),
            changed: true,
            since_checkpoint: SinceCheckpoint::default(),
            longest_page_bytes: 0,
            bases: Bases::default(),
        }
    }

    /// The state was read as of its commit: what came before that is not known in detail.
    pub(crate) fn begin_at_checkpoint(&mut self) {
        self.unindexed.known_from = self.commit;
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
            // Runs are compared with the tree that they were found in.
            Edit::Replace(edit) if !edit.has_runs() => {
                self.replaced.get(&edit.table).copied() > commit.prepared_at
            }
            _ => false,
        };
        if commit.prepared_at.is_some() && commit.edits.iter().any(is_outdated) {
            let message = "other blocks of the table were replaced meanwhile";
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        self.check_listed_coverage(commit)
    }

    /// Refuses a commit that cannot be stored: called by the leader before it writes, in commit order. `pages` keeps what it
    /// loads, and what is returned the masks that it leaves, for [`Working::apply_folded`].
    pub(crate) fn validate(&self, changes: &[Change], pages: &dyn PageLoader) -> Result<Folded> {
        self.validate_by(changes, Origin::Caller, pages).map(Folded)
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
        self.validate_by(changes, origin, pages).map(|_| ())
    }

    /// Refuses a commit of the log that does not fit the state. Pages that cannot be read prove nothing about it: what needs
    /// them is put off when it is applied.
    pub(crate) fn validate_stored(&self, changes: &[Change], pages: &dyn PageLoader) -> Result<()> {
        self.validate_by(changes, Origin::Log, pages).map(|_| ())
    }

    /// Validates a commit alike for all origins, so that whatever is stored can be read again: each change is sound, all of
    /// them together do not contradict each other, each of them fits the state before the commit, and what they do to each
    /// tree together can be done.
    fn validate_by(
        &self,
        changes: &[Change],
        origin: Origin,
        pages: &dyn PageLoader,
    ) -> Result<Vec<Hidden>> {
        self.check_catalogue(changes, origin)?;
        check_together(changes)?;
        changes.iter().try_for_each(|change| {
            change.check().map_err(|what| refused(change, what))?;
            self.check(change, origin)
        })?;
        let hidden = self.fold_masks(changes, Some(pages), origin)?;
        if origin == Origin::Caller {
            self.check_room_for_masks(changes, &hidden)?;
        }
        self.check_trees(changes, &hidden, pages, origin)?;
        Ok(hidden)
    }

    fn check(&self, change: &Change, origin: Origin) -> Result<()> {
        match change {
            Change::Rows(part) => self.check_version(part.table, part.definition_version),
            Change::Group { head, entries, .. } => self.check_add(head, entries),
            Change::Edit(edit) => self.check_edit(edit, origin),
            Change::Mask(edit) => self
                .table(edit.table)
                .map(|_| ())
                .ok_or_else(|| dropped(edit.table)),
            Change::Producer(_) => Ok(()),
        }
    }

    fn check_add(&self, head: &AddHead, items: &[Entry]) -> Result<()> {
        self.check_version(head.table, head.definition_version)?;
        head.covers
            .map_or(Ok(()), |covered| self.check_cover(head, covered, items))
    }

    /// Whether a new table has the next number or, after lost commits, one that no table is known to have.
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
                    indexes,
                }) => {
                    self.check_number(*table, next_table, origin)?;
                    let next = table.0.checked_add(1);
                    let next = next.ok_or_else(|| used_up("numbers of tables", table.0.into()))?;
                    next_table = next.max(next_table);
                    let orders_bytes = u64::from(*indexes) * ORDER_BYTES;
                    TABLE_BYTES + orders_bytes + (name.len() + definition.len()) as u64
                }
                Change::Edit(Edit::Orders(edit)) => {
                    let made = edit.changes.iter();
                    let made = made.filter(|change| change.action == OrderAction::Make);
                    made.count() as u64 * ORDER_BYTES
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

    /// Bytes that the masks of all tables take of the room for them.
    pub(crate) fn mask_bytes(&self) -> u64 {
        self.mask_bytes
    }

    /// About how much of the next full checkpoint is in each of them: names, definitions, uses of files and open rows.
    pub(crate) fn repeated_bytes(&self) -> u64 {
        let of_tables = self.names_bytes + self.mask_bytes + self.uses_bytes;
        of_tables + self.definitions.bytes() + self.open.bytes()
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
    fn check_cover(&self, head: &AddHead, covered: CommitNo, entries: &[Entry]) -> Result<()> {
        let open = self.open.get(head.table);
        let taken_rows = open.map_or(0, |open| open.rows_up_to(covered));
        let rows = entries
            .iter()
            .fold(head.left_out, |sum: u64, e| sum.saturating_add(e.rows));
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

    /// The first commit of which rows of a table are open.
    pub(crate) fn first_open(&self, table: TableId) -> Option<CommitNo> {
        self.open.get(table)?.first_commit()
    }

    fn check_edit(&self, edit: &Edit, origin: Origin) -> Result<()> {
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
            Edit::AddFragments { head, roots } => self.check_add(head, roots),
            Edit::Replace(edit) => self.check_replacement(edit),
            Edit::Orders(edit) => self.check_orders(edit),
        }
    }

    fn check_replacement(&self, edit: &ReplaceEdit) -> Result<()> {
        let invalid = |message: &str| Err(Error::new(ErrorKind::Invalid, message));
        self.table(edit.table).ok_or_else(|| dropped(edit.table))?;
        let mut added = edit.orders.iter().flat_map(|order| &order.added);
        if added.any(|item| item.commit_max > self.commit) {
            return invalid("blocks that replace others have commits that are yet to come");
        }
        Ok(())
    }

    fn check_orders(&self, edit: &OrdersEdit) -> Result<()> {
        let state = self.table(edit.table).ok_or_else(|| dropped(edit.table))?;
        let orders = state.orders.as_deref();
        let checked = match orders {
            Some(orders) => orders.check(&edit.changes),
            None => Orders::none().check(&edit.changes),
        };
        let conflict = |what: &str| {
            let message = format!("{what} (table \"{}\")", state.name);
            Error::new(ErrorKind::Conflict, message)
        };
        checked.map_err(conflict)
    }

    fn check_name(&self, name: &str, origin: Origin) -> Result<()> {
        match self.tables.named(name) {
            None => Ok(()),
            // The repair renames the table that still has it.
            Some(_) if origin == (Origin::DamagedLog { edits_lost: true }) => Ok(()),
            Some(taken) => Err(name_is_taken(&taken.name)),
        }
    }

    /// The sequence that this producer has stored last.
    pub(crate) fn last_sequence(&self, producer: &Producer) -> Option<u64> {
        self.producers.last_sequence(producer)
    }

    /// The commit under which this resend was stored, if it was.
    pub(crate) fn stored_before(&self, producer: &Producer) -> Option<CommitNo> {
        self.producers.stored_before(producer)
    }

    /// Applies a commit whose frame begins at `frame`; `changes` are empty after that.
    pub(crate) fn apply(
        &mut self,
        commit: CommitNo,
        changes: &mut Vec<Change>,
        frame: LogPosition,
        pages: &dyn PageLoader,
    ) -> Result<()> {
        let folded = Folded(self.fold_masks(changes, None, Origin::Log)?);
        self.apply_folded(commit, (changes, folded), frame, pages)
    }

    /// Applies changes that were validated just now, with the masks that they leave: working these out takes time in proportion
    /// to what is hidden of a block already.
    pub(crate) fn apply_folded(
        &mut self,
        commit: CommitNo,
        (changes, Folded(hidden)): (&mut Vec<Change>, Folded),
        frame: LogPosition,
        pages: &dyn PageLoader,
    ) -> Result<()> {
        assert!(commit.follows(self.commit), "commits are applied in order");
        self.since_checkpoint.frames += 1;
        self.note_complete(changes);
        let mut trees = TreeChanges::default();
        for change in changes.drain(..) {
            match change {
                Change::Rows(part) => self.apply_rows(commit, part),
                Change::Group {
                    head,
                    mut entries,
                    blocks_offset,
                } => {
                    self.since_checkpoint.groups += 1;
                    for entry in &mut entries {
                        self.since_checkpoint.directory_bytes += directory_bytes(entry);
                        entry.address.file = frame.segment;
                        entry.address.offset += frame.offset + blocks_offset;
                    }
                    self.apply_add(commit, &head, &entries);
                    trees.of(head.table, head.order).added.extend(entries);
                }
                Change::Edit(edit) => self.apply_edit(commit, edit, &mut trees)?,
                Change::Mask(_) => {}
                Change::Producer(producer) => {
                    self.producers.note(&producer, commit);
                }
            }
        }
        // Each tree changes once, whatever the commit has for it: the pages of all who apply it are the same.
        let trees = trees.one_per_tree(&hidden);
        self.keep_masks(hidden);
        self.change_trees(commit, trees, pages)?;
        self.commit = commit;
        Ok(())
    }

    fn apply_rows(&mut self, commit: CommitNo, part: RowsPart) {
        self.since_checkpoint.rows_bytes += part.payload.len() as u64;
        self.push_open(OpenRows {
            commit,
            begins_section: false,
            number: 0,
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

    /// Applies the further effects of items that are added to an order: on open rows, and on what indexes cover.
    fn apply_add(&mut self, commit: CommitNo, head: &AddHead, items: &[Entry]) {
        self.apply_coverage(commit, head, items);
        match head.covers {
            Some(covered) => {
                self.open.cover(head.table, covered);
                if Rule::CoverDrops.is_kept() {
                    // A validated table exists.
                    let _ = self.change(head.table, |state| {
                        state.open = state.open.after(covered);
                        Ok(())
                    });
                }
            }
            None if head.order == 0 => self.open.note_blocks(head.table),
            None => {}
        }
    }

    fn apply_edit(
        &mut self,
        commit: CommitNo,
        edit: Edit,
        trees: &mut TreeChanges<Entry>,
    ) -> Result<()> {
        match edit {
            Edit::CreateTable {
                table: id,
                name,
                definition,
                indexes,
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
                    uses: OrderUses::of_nothing(id),
                    orders: (indexes > 0).then(|| Arc::new(Orders::of_new_table(id, indexes))),
                    masks: None,
                    open: OpenList::default(),
                });
                if indexes > 0 {
                    self.features = self.features.with(Features::ORDERS);
                }
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
            Edit::AddFragments { head, roots } => {
                self.count_added(&roots);
                self.apply_add(commit, &head, &roots);
                trees.of(head.table, head.order).added.extend(roots);
                Ok(())
            }
            Edit::Replace(edit) => {
                // What goes by runs alone leaves every other item under its name: whoever replaces some of them is refused by
                // names and by the sums of hidden rows, where the two have met.
                if !(edit.removes_runs_alone() && Rule::RunsRefuseNobody.is_kept()) {
                    self.replaced.insert(edit.table, commit);
                }
                for order in edit.orders {
                    self.count_edit(&order);
                    self.add_coverage(edit.table, order.order, &order.coverage);
                    let change = trees.of(edit.table, order.order);
                    change.removed.extend_from_slice(order.removed_items());
                    change.runs.extend_from_slice(order.removed_runs());
                    change.added.extend(order.added);
                }
                Ok(())
            }
            Edit::Orders(edit) => self.apply_orders(&edit),
        }
    }

    fn apply_orders(&mut self, edit: &OrdersEdit) -> Result<()> {
        self.features = self.features.with(Features::ORDERS);
        let dropped = { edit.changes.iter() }.filter(|change| change.action == OrderAction::Drop);
        for change in dropped {
            self.count_unwritten(self.unwritten_bytes(edit.table, change.order), 0);
            self.changed_trees.remove(&(edit.table, change.order));
            self.unindexed.forget(edit.table, change.order);
        }
        self.change(edit.table, |state| {
            let orders = state.orders.get_or_insert_with(|| Arc::new(Orders::none()));
            let orders = Arc::make_mut(orders);
            for change in &edit.changes {
                orders.change(state.id, change);
            }
            Ok(())
        })
    }

    fn count_edit(&mut self, order: &OrderReplace) {
        self.count_added(&order.added);
        let removed = size_of_val(order.removed_items()) + size_of_val(order.removed_runs());
        self.since_checkpoint.edit_bytes += removed as u64;
    }

    fn count_added(&mut self, added: &[Entry]) {
        self.since_checkpoint.edit_bytes += added.iter().map(directory_bytes).sum::<u64>();
    }

    /// Why changes of an index wait, of one of the tables where some do.
    pub(crate) fn pending_error(&self) -> Option<Error> {
        let tables = self.pending.iter().filter_map(|table| self.table(*table));
        let mut pending =
            tables.filter_map(|table| table.trees().find_map(|(_, tree)| tree.pending()));
        pending.next().map(Pending::error)
    }

    /// Tries to make the changes of indexes that wait for pages which could not be read.
    pub(crate) fn settle_pending(&mut self, pages: &dyn PageLoader) {
        for table in self.pending.clone() {
            let Some(state) = self.table(table).cloned() else {
                continue;
            };
            for (order, tree) in state.trees().filter(|(_, tree)| tree.pending().is_some()) {
                // A table that is pending exists.
                let _ = self.change_tree(table, order, |_| Ok(tree.settled_or_pending(pages)));
            }
        }
    }

    /// Adds a table of a checkpoint, without open rows; `None`: there is one with its id. Names are learnt when all tables
    /// are there.
    pub(crate) fn add_table(&mut self, table: TableState) -> Option<Unnamed> {
        if table.trees().any(|(_, tree)| tree.pending().is_some()) {
            self.pending.insert(table.id);
        }
        self.names_bytes += names_bytes(&table);
        self.mask_bytes += mask_bytes(&table);
        self.uses_bytes += uses_bytes(&table);
        self.tables.insert_unnamed(Arc::new(table))
    }

    /// Gives a table a name that no other one has.
    pub(crate) fn rename_table(&mut self, table: TableId, name: Arc<str>) -> Result<()> {
        self.change(table, |state| {
            state.name = name;
            Ok(())
        })
    }

    /// Empties the coverage of an index, which is not known any more.
    pub(crate) fn forget_coverage(&mut self, table: TableId, order: u32) {
        // A table that is not there has none.
        let _ = self.change(table, |state| {
            if let Some(order) = state.order_mut(order) {
                order.coverage = Coverage::default();
            }
            Ok(())
        });
    }

    /// Empties the coverage of all indexes.
    pub(crate) fn forget_all_coverage(&mut self) {
        for table in self.tables.clone().iter() {
            for order in table.orders() {
                self.forget_coverage(table.id, order.id);
            }
        }
    }

    /// `None` without such a table.
    pub(crate) fn remove_table(&mut self, table: TableId) -> Option<()> {
        self.bases.note_change(table);
        let trees = self.table(table)?.trees();
        let unwritten: u64 = trees.map(|(_, tree)| tree.unwritten_bytes()).sum();
        self.count_unwritten(unwritten, 0);
        self.names_bytes -= names_bytes(self.table(table)?);
        self.mask_bytes -= mask_bytes(self.table(table)?);
        self.uses_bytes -= uses_bytes(self.table(table)?);
        self.tables.remove(table)?;
        let trees = self.changed_trees.range((table, 0)..=(table, u32::MAX));
        for tree in trees.copied().collect::<Vec<_>>() {
            self.changed_trees.remove(&tree);
        }
        self.unindexed.forget_table(table);
        self.pending.remove(&table);
        self.open.remove(table);
        self.changed = true;
        Some(())
    }

    /// Chooses the base of the next checkpoint. Where more than half of all tables have changed since the base, as when
    /// many are made at once, a full one costs little more, and what openings read and first checkpoints write stays short.
    pub(crate) fn choose_base(&self, begins_epoch: bool) -> BuildsOn {
        let choice = self.bases.choose(begins_epoch);
        let base = self.bases.base(choice);
        let changed = base.map_or(0, |base| self.bases.changed_since(base).len());
        match 2 * changed > self.tables.len() {
            true => BuildsOn::Nothing,
            false => choice,
        }
    }

    /// The tables of which a base may have another state than this one.
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
        let before = self.table(table.id).map_or(0, |before| mask_bytes(before));
        self.mask_bytes = self.mask_bytes - before + mask_bytes(&table);
        let before = self.table(table.id).map_or(0, |before| uses_bytes(before));
        self.uses_bytes = self.uses_bytes - before + uses_bytes(&table);
        self.bases.note_change(table.id);
        match table.trees().any(|(_, tree)| tree.pending().is_some()) {
            true => _ = self.pending.insert(table.id),
            false => _ = self.pending.remove(&table.id),
        }
        self.tables.insert(Arc::new(table));
        self.changed = true;
    }

    /// Copies a table's state and lets `edit` change it, all but its tree.
    pub(crate) fn change(
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

    /// Gives an order of a table the tree that `edit` makes of the one it has.
    pub(crate) fn change_tree(
        &mut self,
        table: TableId,
        order: u32,
        edit: impl FnOnce(&Tree) -> Result<Tree>,
    ) -> Result<()> {
        let before = self.unwritten_bytes(table, order);
        self.change(table, |state| {
            let tree = state.tree_of(order).ok_or_else(|| no_order(table, order))?;
            let tree = edit(tree)?;
            state.set_tree(order, tree);
            Ok(())
        })?;
        self.changed_trees.insert((table, order));
        self.count_unwritten(before, self.unwritten_bytes(table, order));
        Ok(())
    }

    /// Bytes of the pages of a tree that the next checkpoint writes.
    fn unwritten_bytes(&self, table: TableId, order: u32) -> u64 {
        let table = self.table(table);
        let tree = table.and_then(|table| table.tree_of(order));
        tree.map_or(0, Tree::unwritten_bytes)
    }

    fn count_unwritten(&mut self, before: u64, now: u64) {
        let since = &mut self.since_checkpoint;
        since.page_bytes = (since.page_bytes + now).saturating_sub(before);
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
        Change::Edit(_) | Change::Mask(_) => "an edit",
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
    TABLE_BYTES + table.name.len() as u64 + table.orders().len() as u64 * ORDER_BYTES
}

fn no_order(table: TableId, order: u32) -> Error {
    let message = format!("index {order} of table {} was dropped", table.0);
    Error::new(ErrorKind::Conflict, message)
}

fn dropped(table: TableId) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("the table (id {}) was dropped", table.0),
    )
}
