//! Whether the changes of one commit fit each other, whatever the state before it.
//!
//! Invariants
//! - One function decides for new commits, before anything is written, and for those of the log ([`crate::working`]): what
//!   is stored is never refused when it is read.
//! - Each change of a commit that passes means the same whether it is applied before the others of its commit or after them:
//!   so it is enough to check each of them against the state before the commit.
//! - Rows alone cannot contradict each other: a commit without anything else costs one look at each of its parts.
//!
//! Rejected: applying a commit to a copy of the state to see whether it can be applied. It would also take two covers of the
//! same rows, and a fragment that is added twice, whose rows would then be there twice.

use crate::catalog::fold_name;
use crate::change::Change;
use crate::commit::Edit;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{FileId, TableId};
use crate::index::{Entry, EntryKey};
use crate::orders::{AddHead, OrderAction, OrderChange};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Refuses changes that contradict each other, each of them sound by itself.
pub(crate) fn check_together(changes: &[Change]) -> Result<()> {
    let is_plain = |change: &Change| matches!(change, Change::Rows(_) | Change::Producer(_));
    if changes.iter().all(is_plain) {
        return Ok(());
    }
    let mut parts = Parts::default();
    changes.iter().try_for_each(|change| parts.add(change))?;
    parts.check_tables()?;
    parts.check_keys()
}

/// The changes of one commit, sorted by what a commit may do only once: to a table, a name, a fragment or a key.
#[derive(Default)]
struct Parts<'a> {
    tables: BTreeMap<TableId, Uses>,
    /// The names that tables get, folded.
    names: BTreeSet<Cow<'a, str>>,
    fragments: BTreeSet<FileId>,
    /// The places of added items in the orders of their tables.
    keys: Vec<((TableId, u32), EntryKey)>,
    /// Orders whose items change.
    touched: BTreeSet<(TableId, u32)>,
    /// Orders that are made or dropped.
    made: Vec<(TableId, u32)>,
}

/// Counts of what a commit does to one table.
#[derive(Default)]
struct Uses {
    all: usize,
    drops: usize,
    renames: usize,
    definitions: usize,
    replacements: usize,
    covers: usize,
    /// Rows that are new, raw or in blocks.
    raw_rows: usize,
    new_blocks: usize,
    /// Edits of its orders, and how many of these they make or drop.
    orders: usize,
    orders_made: usize,
    masks: usize,
}

impl<'a> Parts<'a> {
    fn add(&mut self, change: &'a Change) -> Result<()> {
        match change {
            Change::Producer(_) => {}
            Change::Rows(part) => self.uses(part.table).raw_rows += 1,
            Change::Group { head, entries, .. } => self.add_blocks(head, entries),
            Change::Edit(edit) => self.add_edit(edit)?,
            Change::Mask(edit) => self.uses(edit.table).masks += 1,
        }
        Ok(())
    }

    fn add_edit(&mut self, edit: &'a Edit) -> Result<()> {
        match edit {
            Edit::CreateTable { name, .. } => self.add_name(name),
            Edit::DropTable { table } => {
                self.uses(*table).drops += 1;
                Ok(())
            }
            Edit::RenameTable { table, name } => {
                self.uses(*table).renames += 1;
                self.add_name(name)
            }
            Edit::SetDefinition { table, .. } => {
                self.uses(*table).definitions += 1;
                Ok(())
            }
            Edit::AddFragments { head, roots } => {
                self.add_blocks(head, roots);
                self.add_fragments(roots)
            }
            Edit::Replace(edit) => {
                self.uses(edit.table).replacements += 1;
                for order in &edit.orders {
                    self.touched.insert((edit.table, order.order));
                    self.add_keys((edit.table, order.order), &order.added);
                    self.add_fragments(&order.added)?;
                }
                Ok(())
            }
            Edit::Orders(edit) => {
                let is_made = |change: &&OrderChange| {
                    matches!(change.action, OrderAction::Make | OrderAction::Drop)
                };
                let made = edit.changes.iter().filter(is_made);
                let before = self.made.len();
                self.made
                    .extend(made.map(|change| (edit.table, change.order)));
                let made = self.made.len() - before;
                let uses = self.uses(edit.table);
                uses.orders += 1;
                uses.orders_made += made;
                Ok(())
            }
        }
    }

    fn uses(&mut self, table: TableId) -> &mut Uses {
        let uses = self.tables.entry(table).or_default();
        uses.all += 1;
        uses
    }

    fn add_blocks(&mut self, head: &AddHead, items: &[Entry]) {
        let uses = self.uses(head.table);
        match head.covers.is_some() {
            true => uses.covers += 1,
            false if head.is_of_new_rows() => uses.new_blocks += 1,
            false => _ = self.touched.insert((head.table, head.order)),
        }
        self.add_keys((head.table, head.order), items);
    }

    fn add_keys(&mut self, place: (TableId, u32), items: &[Entry]) {
        let keys = items.iter().map(|item| (place, item.key()));
        self.keys.extend(keys);
    }

    fn add_fragments(&mut self, roots: &[Entry]) -> Result<()> {
        for root in roots {
            let file = root.address.file;
            if !self.fragments.insert(file) {
                return Err(invalid(format!(
                    "the commit adds fragment {:x} twice: its rows would be there twice",
                    file.0
                )));
            }
        }
        Ok(())
    }

    fn add_name(&mut self, name: &'a str) -> Result<()> {
        if self.names.insert(fold_name(name)) {
            return Ok(());
        }
        let message = format!("two tables of one commit would be named '{name}': choose another");
        Err(Error::new(ErrorKind::AlreadyExists, message))
    }

    fn check_tables(&self) -> Result<()> {
        let refused = self.tables.iter().find_map(|(table, uses)| {
            let why = uses.contradiction()?;
            Some(invalid(format!("{why} (table id {})", table.0)))
        });
        refused.map_or(Ok(()), Err)?;
        match self.made.iter().find(|place| self.touched.contains(place)) {
            None => Ok(()),
            Some((table, order)) => Err(invalid(format!(
                "a commit that makes or drops index {order} of table {} changes nothing in it",
                table.0
            ))),
        }
    }

    /// Blocks of one table with the same key would be taken for each other.
    fn check_keys(&mut self) -> Result<()> {
        self.keys.sort_unstable();
        match self.keys.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => {
                let ((table, order), key) = pair[0];
                Err(invalid(format!(
                    "two blocks of order {order} of table {} have key {} and are number {} of commit {}",
                    table.0, key.key_min, key.ordinal, key.commit.0
                )))
            }
        }
    }
}

impl Uses {
    fn contradiction(&self) -> Option<&'static str> {
        if self.drops > 0 && self.all > 1 {
            return Some("a commit that drops a table does nothing else to it");
        }
        if self.renames > 1 || self.definitions > 1 {
            return Some("a commit gives a table one name and one definition at most");
        }
        if self.covers > 1 {
            return Some(
                "a commit covers the open rows of a table once: their blocks go into one group or one edit",
            );
        }
        if self.replacements > 1 || (self.replacements > 0 && self.covers > 0) {
            return Some(
                "a commit replaces blocks of a table once, and covers none of its open rows beside that: store one after the other",
            );
        }
        if self.masks > 1 {
            return Some("a commit hides rows of a table by one edit");
        }
        if self.orders > 1 {
            return Some("a commit changes the orders of a table once");
        }
        if self.orders_made > 0 && self.definitions == 0 {
            return Some("indexes are made and dropped together with a new definition");
        }
        if self.raw_rows > 0 && self.new_blocks > 0 {
            return Some(
                "a commit holds rows of a table either raw or in blocks: arrival order would be lost",
            );
        }
        None
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}
