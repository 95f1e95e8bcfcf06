//! Transactions: several statements that are one commit, over one snapshot.
//!
//! Invariants
//! - All statements see the snapshot of the beginning and what the transaction has changed itself. Nobody else sees any of it before
//!   the commit, which shows all of it at once.
//! - The first one to commit wins: where another commit has deleted or changed a row that this one deletes or changes, this one fails,
//!   and nothing of it is stored. What others have appended does not matter.
//! - A row that has only moved meanwhile, into a block or from one to another, is found again by its values: of equal rows any is as
//!   good as another.
//! - Dropping a transaction rolls it back.
//!
//! Source: Berenson et al., "A Critique of ANSI SQL Isolation Levels" (SIGMOD 1995), section 4.2, snapshot isolation.

mod moved;

use crate::catalog::DatabaseView;
use crate::draft_rows::commit_of_new_rows;
use crate::drafts::{Draft, Drafts, abandon, roots_of};
use crate::duplicates::{each_keys, refuse_duplicates, row_is_hidden};
use crate::engine::{AppendLimits, Engine};
use crate::error::query;
use crate::intake::lists;
use crate::key_turns::{KeyTurn, KeyTurns};
use crate::piece::Piece;
use crate::table::{Table, TableView};
use crate::table_turns::{TableTurns, TurnOrNone};
use moved::found_again;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use thalweg_kernel::index::{Entry, ItemName};
use thalweg_kernel::masks::{ItemMask, MaskEdit};
use thalweg_kernel::orders::AddHead;
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, Error, ErrorKind, MANY_MASKS_BYTES, Producer, Result,
};

/// Commits that may come in between while a transaction is committed.
const MAX_CONFLICTS: u32 = 64;

const COMMITTED: &str = "the transaction is over: it was committed, or its commit failed";
const ROLLED_BACK: &str = "the transaction is over: it was rolled back";
/// Several statements that become one commit, or nothing.
///
/// ```
/// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
/// # fn main() -> thalweg::Result<()> {
/// # let db = Engine::in_memory(EngineOptions::default())?;
/// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
/// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
/// use thalweg::{KeyRange, Value};
///
/// room.put(&[Value::Int(1), Value::Float(20.5)], None)?;
/// let transaction = db.transaction()?;
/// let inside = transaction.table("room")?;
/// inside.delete_range(KeyRange::ALL, None)?;
/// inside.put(&[Value::Int(2), Value::Float(20.7)], None)?;
/// inside.put(&[Value::Int(3), Value::Float(20.9)], None)?;
/// assert_eq!((inside.view()?.row_count(), room.view()?.row_count()), (2, 1));
/// transaction.commit(None)?;
/// assert_eq!(room.view()?.row_count(), 2);
/// # Ok(())
/// # }
/// ```
pub struct Transaction {
    engine: Engine,
    drafts: Arc<Drafts>,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Begins a transaction over the newest snapshot.
    ///
    /// # Errors
    /// `Unavailable` for a database that was opened read-only.
    pub fn transaction(&self) -> Result<Transaction> {
        self.transaction_of(self.options().max_snapshot_age)
    }

    /// A transaction that may be open for so long.
    pub(crate) fn transaction_of(&self, max_age: Duration) -> Result<Transaction> {
        self.closed().check()?;
        if !self.kernel().is_writer() {
            let message =
                "the database was opened read-only: a transaction has nothing to change there";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Ok(Transaction {
            drafts: Arc::new(Drafts::new(self, max_age)?),
            engine: self.clone(),
        })
    }
}

impl Transaction {
    /// A table whose calls are statements of this transaction, and see what it sees.
    ///
    /// # Errors
    /// `NotFound`; `Query` when the transaction is over.
    pub fn table(&self, name: &str) -> Result<Table> {
        let table = self.snapshot()?.handle(name)?;
        Ok(table.inside(&self.drafts))
    }

    /// A handle of the same table inside the transaction.
    pub(crate) fn inside(&self, table: &Table) -> Table {
        table.clone().inside(&self.drafts)
    }

    /// All tables as the transaction sees them now.
    ///
    /// # Errors
    /// `Query` when the transaction is over.
    pub fn snapshot(&self) -> Result<DatabaseView> {
        DatabaseView::of_transaction(&self.engine, &self.drafts)
    }

    /// Stores all changes in one commit, which survives what `durability` says; `None` takes that of the engine.
    ///
    /// # Errors
    /// `Query` where another commit has changed a row that this one changes, or when the transaction is over; `NotFound` for a table
    /// that was dropped. Nothing was stored then, and the transaction is over.
    pub fn commit(&self, durability: Option<Durability>) -> Result<()> {
        let mut changes = self.end()?;
        let durability = durability.unwrap_or(self.engine.options().durability);
        let turns = changes.key_turns()?;
        let waited = { turns.iter() }.map(|turns| turns.wait(self.engine.closed(), &|| true));
        let _turns: Vec<KeyTurn<'_>> = waited.collect::<Result<_>>()?;
        changes.check_keys()?;
        changes.store(None, durability)
    }

    /// As [`Self::commit`], by a caller that has had the turns of the keys of all tables since before the transaction began.
    pub(crate) fn commit_in_turn(
        &self,
        producer: Option<Producer>,
        durability: Durability,
    ) -> Result<()> {
        self.end()?.store(producer, durability)
    }

    /// Ends the transaction, whose changes go with what is returned unless they are stored.
    fn end(&self) -> Result<Changes<'_>> {
        self.engine.closed().check()?;
        let mut changes = Changes {
            engine: &self.engine,
            tables: Vec::new(),
        };
        let mut failed = None;
        for draft in self.drafts.end(COMMITTED)?.into_values() {
            match Changed::new(&self.engine, draft) {
                Ok(changed) => changes.tables.push(changed),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            None => Ok(changes),
            Some(error) => Err(error),
        }
    }

    /// Gives all changes up. Of a transaction that is over nothing is left to be given up.
    pub fn rollback(&self) {
        self.drafts.roll_back(ROLLED_BACK);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // In a child of a fork the fragments are its parent's.
        if self.engine.closed().check().is_ok() {
            self.rollback();
        }
    }
}

/// Waits for the turns of all tables, which are in the order of their numbers, if one of them is due: whoever merges the blocks of a table
/// passes as well. They are taken in this order alone, so that no two transactions wait for each other.
fn wait_if_due(turns: &mut [TurnOrNone<'_>], conflicts: u32, go_on: &dyn Fn() -> bool) -> bool {
    let is_due = |turn: &TurnOrNone<'_>| !turn.is_held() && turn.is_due(conflicts);
    if !turns.iter().any(is_due) {
        return true;
    }
    turns.iter_mut().for_each(TurnOrNone::pass_on);
    turns
        .iter_mut()
        .all(|turn| turn.wait_if_due(u32::MAX, go_on))
}

/// The changes of a transaction that is being committed. The fragments of one that fails go with it.
struct Changes<'a> {
    engine: &'a Engine,
    tables: Vec<Changed>,
}

/// The changes of one table.
struct Changed {
    table: Table,
    /// The table as the transaction found it.
    base: TableView,
    draft: Draft,
    /// The rows that go of those that other commits have brought, by where they are now.
    masks: MaskEdit,
}

impl Changes<'_> {
    /// The turns of the keys of the tables that get rows, in the order of their numbers.
    fn key_turns(&self) -> Result<Vec<Arc<KeyTurns>>> {
        let unique = self.tables.iter().filter(|changed| changed.may_add_keys());
        unique
            .map(|changed| self.engine.key_turns_of(changed.table.id()))
            .collect()
    }

    /// Refuses new rows with unique keys that other commits have stored meanwhile.
    fn check_keys(&mut self) -> Result<()> {
        let unique = self.tables.iter_mut();
        let mut unique = unique.filter(|changed| changed.may_add_keys());
        unique.try_for_each(Changed::check_keys)
    }

    fn store(&mut self, producer: Option<Producer>, durability: Durability) -> Result<()> {
        let (mut conflicts, mut has_made_room) = (0, false);
        let closed = self.engine.closed();
        // Rows that are added alone wait for nobody.
        let turns: Vec<Arc<TableTurns>> = { self.tables.iter() }
            .filter(|changed| !changed.masks.is_nothing())
            .map(|changed| self.engine.turns_of(changed.table.id()))
            .collect::<Result<_>>()?;
        let mut turns: Vec<TurnOrNone<'_>> = turns.iter().map(|turns| turns.none()).collect();
        self.tables.iter_mut().try_for_each(Changed::stage)?;
        loop {
            if !wait_if_due(&mut turns, conflicts, &|| closed.check().is_ok()) {
                closed.check()?;
            }
            let mut commit = self.commit()?;
            if commit.is_empty() {
                return Ok(());
            }
            commit.producer = producer;
            let made = roots_of(&commit.edits);
            let Err(error) = self.engine.kernel().commit(commit, durability) else {
                self.forget_stored(&made);
                return Ok(());
            };
            self.abandon_others(made);
            match error.kind() {
                ErrorKind::Conflict if conflicts < MAX_CONFLICTS => {
                    conflicts += 1;
                    let mut tables = self.tables.iter_mut();
                    tables.try_for_each(|changed| changed.find_again().map(|_| ()))?;
                }
                ErrorKind::Limit
                    if !has_made_room && self.engine.kernel().mask_bytes()? > MANY_MASKS_BYTES =>
                {
                    has_made_room = true;
                    turns.iter_mut().for_each(TurnOrNone::pass_on);
                    self.engine.rewrite_deleted_rows()?;
                }
                ErrorKind::Conflict => {
                    return Err(query(format!(
                        "other commits came in between again and again; the transaction was rolled back: run it again ({error})"
                    )));
                }
                // The kernel knows tables by their numbers.
                _ => return Err(self.dropped_or(error)),
            }
        }
    }

    /// The commit of all tables, as of now.
    fn commit(&self) -> Result<Commit> {
        let mut all = Commit {
            keeps_fragments: true,
            ..Commit::default()
        };
        let limits = self.limits();
        for changed in &self.tables {
            let Commit {
                rows,
                groups,
                edits,
                masks,
                ..
            } = changed.commit(limits)?;
            all.rows.extend(rows);
            all.groups.extend(groups);
            all.edits.extend(edits);
            all.masks.extend(masks);
        }
        Ok(all)
    }

    /// All tables together fit one frame.
    fn limits(&self) -> AppendLimits {
        let limits = self.engine.options().append_limits;
        let masks: usize = { self.tables.iter() }
            .map(|changed| changed.masks.len_bytes())
            .sum();
        let room_bytes = limits.group_bytes.saturating_sub(masks as u64);
        let each_bytes = room_bytes / (self.tables.len() as u64).max(1);
        AppendLimits {
            raw_bytes: limits
                .raw_bytes
                .min(usize::try_from(each_bytes).unwrap_or(usize::MAX)),
            group_bytes: each_bytes,
            ..limits
        }
    }

    /// Lets go of fragments that were made for one attempt.
    fn abandon_others(&self, mut made: Vec<Entry>) {
        let drafts = self.tables.iter();
        let kept: HashSet<_> = drafts
            .flat_map(|changed| &changed.draft.roots)
            .map(|root| root.address.file)
            .collect();
        made.retain(|root| !kept.contains(&root.address.file));
        abandon(self.engine, &made);
    }

    /// The fragments of a commit that is stored are part of their tables. Those of which nothing was left are in none.
    fn forget_stored(&mut self, made: &[Entry]) {
        let stored: HashSet<_> = made.iter().map(|root| root.address.file).collect();
        for changed in &mut self.tables {
            let roots = &mut changed.draft.roots;
            roots.retain(|root| !stored.contains(&root.address.file));
        }
    }

    fn dropped_or(&self, error: Error) -> Error {
        let dropped = self.tables.iter().find_map(|changed| {
            let snapshot = changed.table.snapshot();
            snapshot
                .err()
                .filter(|error| error.kind() == ErrorKind::NotFound)
        });
        match error.kind() {
            ErrorKind::NotFound => dropped.unwrap_or(error),
            _ => error,
        }
    }
}

impl Drop for Changes<'_> {
    fn drop(&mut self) {
        for changed in &self.tables {
            abandon(self.engine, &changed.draft.roots);
        }
    }
}

impl Changed {
    fn new(engine: &Engine, draft: Draft) -> Result<Self> {
        let base = draft.table.base().clone();
        let named = Table::new(engine.clone(), &base);
        let view = TableView::new(engine.share(), base);
        let (Ok(table), Ok(base)) = (&named, &view) else {
            abandon(engine, &draft.roots);
            let failed = named.map(|_| ()).and(view.map(|_| ()));
            return Err(failed.err().unwrap_or_else(|| query(COMMITTED)));
        };
        Ok(Self {
            table: table.clone(),
            base: base.clone(),
            masks: draft.masks(),
            draft,
        })
    }

    fn new_rows(&self, limits: AppendLimits) -> Result<Commit> {
        let base = self.base.snapshot().commit();
        commit_of_new_rows(&self.table, (&self.draft.table.view(), base), limits)
    }

    /// Puts all new rows into fragments where some are: rows of one commit are either raw or in blocks.
    fn stage(&mut self) -> Result<()> {
        if self.draft.roots.is_empty() {
            return Ok(());
        }
        let limits = self.table.engine().options().append_limits;
        let staged = self.new_rows(limits.staged())?;
        self.draft.roots.extend(roots_of(&staged.edits));
        Ok(())
    }

    fn commit(&self, limits: AppendLimits) -> Result<Commit> {
        let mut commit = match self.draft.roots.is_empty() {
            true => self.new_rows(limits)?,
            false => self.commit_of_fragments()?,
        };
        let others = &self.masks;
        if others.is_nothing() {
            return Ok(commit);
        }
        match commit.masks.first_mut() {
            Some(own) => {
                own.items.extend(others.items.iter().cloned());
                own.items.sort_unstable_by_key(|item| item.name);
                own.parts.extend(others.parts.iter().cloned());
            }
            None => commit.masks.push(others.clone()),
        }
        Ok(commit)
    }

    /// The fragments with what is hidden of them. One of which nothing is left stays out.
    fn commit_of_fragments(&self) -> Result<Commit> {
        let table = self.draft.table.base();
        let own: BTreeMap<ItemName, &ItemMask> = { self.draft.own_masks() }
            .map(|mask| (mask.name, mask))
            .collect();
        // The last fragments, of raw rows, have no names in the draft, and nothing of them is hidden.
        let names = self.draft.names.iter().map(Some);
        let names = names.chain(std::iter::repeat(None));
        let (mut roots, mut items, mut blocks) = (Vec::new(), Vec::new(), 0_u32);
        for (root, name) in self.draft.roots.iter().zip(names) {
            let hidden = name.and_then(|name| own.get(name));
            if hidden.is_some_and(|hidden| hidden.newly == hidden.rows) {
                continue;
            }
            if let Some(hidden) = hidden {
                // In a frame 0 is the number of its commit.
                let mut mask = ItemMask::clone(hidden);
                (mask.name.key.commit, mask.name.key.ordinal) = (CommitNo(0), blocks);
                items.push(mask);
            }
            let more = u32::try_from(root.blocks).unwrap_or(u32::MAX);
            blocks = blocks.checked_add(more).ok_or_else(|| {
                query("a transaction has more blocks of a table than one commit can number")
            })?;
            roots.push(root.clone());
        }
        items.sort_unstable_by_key(|item| item.name);
        let add = |roots| Edit::AddFragments {
            head: AddHead::of_rows(table.id, table.definition_version),
            roots,
        };
        let masks = MaskEdit {
            table: table.id,
            items,
            parts: Vec::new(),
        };
        let masks = Some(masks).filter(|masks| !masks.is_nothing());
        Ok(Commit {
            edits: lists(roots).into_iter().map(add).collect(),
            masks: masks.into_iter().collect(),
            ..Commit::default()
        })
    }

    /// Whether it has new rows of a table with a unique key.
    fn may_add_keys(&self) -> bool {
        self.base.definition().unique().is_some() && self.draft.has_new_rows()
    }

    /// Refuses new rows with keys that others have stored since the transaction began.
    fn check_keys(&mut self) -> Result<()> {
        let newest = self.table.view()?;
        let base = self.base.snapshot().commit();
        let definition = Arc::clone(self.base.definition());
        let Some(unique) = definition
            .unique()
            .filter(|_| newest.snapshot().commit() > base)
        else {
            return Ok(());
        };
        // The rows that go are named by where they are in the newest snapshot.
        let newest = self.find_again()?;
        let goes = |row| row_is_hidden(&self.masks, row);
        let own = TableView::new(self.table.engine().share(), self.draft.table.view())?;
        let is_own = |piece: &Piece| match piece {
            Piece::Block { place, .. } => place.item.key.commit > base,
            Piece::Open(open) => open.commit > base,
        };
        let checked = each_keys(&own, unique, &is_own, &mut |keys| {
            let indexes = newest.engine().key_indexes();
            refuse_duplicates((&newest, Some(indexes)), unique, &keys, &goes)
        });
        checked.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => query(format!(
                "table \"{}\": another commit has stored a row with a unique key of this transaction, which was rolled back: run it \
                 again ({error})",
                self.base.name()
            )),
            _ => self.table.name_error(error),
        })
    }

    /// Looks for the rows that go where they are by now, and returns the view of that.
    fn find_again(&mut self) -> Result<TableView> {
        let base = self.base.snapshot();
        let newest = self.table.view()?;
        if newest.snapshot().definition_version != base.definition_version {
            return Err(query(format!(
                "table \"{}\": its columns or options were changed since the transaction began, which was rolled back: run it again",
                self.base.name()
            )));
        }
        self.masks = found_again(&self.base, &self.draft.masks(), &newest)
            .map_err(|error| self.table.name_error(error))?;
        Ok(newest)
    }
}
