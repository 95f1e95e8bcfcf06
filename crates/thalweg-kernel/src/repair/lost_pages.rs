//! Damaged pages of the index: items below them that can be found again, and masks of those that cannot.

use super::find::Catalogue;
use super::start::Start;
use super::{RepairReport, position, set_items};
use crate::block::ROWS_ORDER;
use crate::error::{ErrorKind, Result};
use crate::ids::{CommitNo, FileId, LogPosition, TableId};
use crate::index::{Entry, EntryKey, ItemName, Tree};
use crate::paths::ROOT_NAME;
use crate::store::Store;
use crate::table_state::TableState;
use crate::verify::{Damage, entry_damage, file_name};
use crate::working::Working;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// Damaged index pages of the checkpoint that the repair begins with.
#[derive(Default)]
pub(super) struct LostPages {
    pub(super) pages: Vec<LostPage>,
    /// The items below them that were found.
    pub(super) found: HashSet<(TableId, EntryKey)>,
    /// Rows below them that replacements in the log have brought back, by table.
    pub(super) replaced_rows: HashMap<TableId, u64>,
    /// Indexes that lack entries since.
    pub(super) indexes: HashSet<(TableId, u32)>,
}

pub(super) struct LostPage {
    table: TableId,
    pub(super) at: LogPosition,
    /// Its file is missing.
    is_missing: bool,
    /// It has no rows where all blocks below the page were found.
    damage: Damage,
}

impl LostPages {
    /// The pages with which rows are lost.
    pub(super) fn with_rows(&self) -> impl Iterator<Item = &LostPage> {
        self.pages.iter().filter(|lost| lost.damage.rows != Some(0))
    }

    /// The rows that tables have lost.
    pub(super) fn rows_by_table(&self) -> HashMap<TableId, u64> {
        let mut lost_rows: HashMap<TableId, u64> = HashMap::new();
        for lost in self.with_rows() {
            let rows = lost_rows.entry(lost.table).or_default();
            *rows = rows.saturating_add(lost.damage.rows.unwrap_or(u64::MAX));
        }
        lost_rows
    }

    /// The rows that commits of the log have not brought back.
    pub(super) fn missing_rows(&self) -> HashMap<TableId, u64> {
        let mut missing = self.rows_by_table();
        for (table, rows) in &self.replaced_rows {
            if let Some(missing) = missing.get_mut(table) {
                *missing = missing.saturating_sub(*rows);
            }
        }
        missing
    }

    /// The tables of which commits of the log have replaced all that lay below lost pages, and so brought all rows back.
    fn replaced(&self) -> HashSet<TableId> {
        let is_back = |(table, rows): &(TableId, u64)| self.replaced_rows.get(table) == Some(rows);
        let tables = self.rows_by_table().into_iter().filter(is_back);
        tables.map(|(table, _)| table).collect()
    }

    /// Adds it to the report, under the names that the tables have at the end of the log: another table may have the name of the
    /// checkpoint by then. Nothing is lost of a table that was dropped, nor of what was replaced. Where the start is a
    /// checkpoint that no slot of the root names, files without which nothing is lost were removed since: they are not damage.
    pub(super) fn report(self, start: &Start, report: &mut RepairReport) {
        let replaced = self.replaced();
        for lost in self.pages {
            let damage = lost.damage;
            let damage = match start.working.table(lost.table) {
                Some(table) if damage.rows != Some(0) && replaced.contains(&table.id) => Damage {
                    table: Some(table.name.to_string()),
                    keys: None,
                    rows: Some(0),
                    what: format!("{}; what lay below it was replaced later", damage.what),
                    ..damage
                },
                Some(table) => Damage {
                    table: Some(table.name.to_string()),
                    ..damage
                },
                None => Damage {
                    table: None,
                    keys: None,
                    rows: Some(0),
                    what: format!("{}; its table was dropped", damage.what),
                    ..damage
                },
            };
            let was_removed = lost.is_missing && damage.rows == Some(0) && !start.is_named;
            if !was_removed {
                report.list_for(&damage).push(damage);
            }
        }
    }
}

/// Gives the tables whose index has damaged pages a new one of what can still be reached, or found.
pub(super) fn leave_out_lost_pages(working: &mut Working, store: &Store) -> Result<LostPages> {
    let mut all = LostPages::default();
    let mut catalogue = None;
    for table in working.tables.clone().iter() {
        for (order, tree) in table.trees() {
            leave_out_pages_of(
                working,
                store,
                (table, order, tree),
                &mut catalogue,
                &mut all,
            )?;
        }
    }
    Ok(all)
}

fn leave_out_pages_of(
    working: &mut Working,
    store: &Store,
    (table, order, tree): (&TableState, u32, &Tree),
    catalogue: &mut Option<Catalogue>,
    all: &mut LostPages,
) -> Result<()> {
    let mut lost: Vec<(Entry, Damage)> = Vec::new();
    let pages = tree.without_pending();
    let mut items = pages.whole_items(store, &mut |page, error| {
        let file = file_name(store, page.address.file);
        let damage = entry_damage(file, &table.name, order, page, error);
        lost.push((page.clone(), damage));
    })?;
    let pending = tree.pending();
    if lost.is_empty() && pending.is_none() {
        return Ok(());
    }
    let of_then;
    let catalogue = match (pending, catalogue) {
        // The pages are of before that.
        (Some(pending), _) if !lost.is_empty() => {
            of_then = Catalogue::read(store, CommitNo(pending.since.0.saturating_sub(1)))?;
            &of_then
        }
        (_, Some(catalogue)) => catalogue,
        (_, none) => none.insert(Catalogue::read(store, working.commit)?),
    };
    let mut known: HashSet<EntryKey> = items.iter().map(Entry::key).collect();
    for (page, damage) in lost {
        let is_known = |item: &Entry| !known.insert(item.key());
        let below = catalogue.items_below((table.id, order), &page);
        let below = below.filter(|below| !below.iter().any(is_known));
        let damage = match below {
            Some(below) => {
                if order == ROWS_ORDER {
                    let keys = below.iter().map(|item| (table.id, item.key()));
                    all.found.extend(keys);
                }
                items.extend(below);
                Damage {
                    rows: Some(0),
                    what: format!("{}; what lies below it was found", damage.what),
                    ..damage
                }
            }
            None => {
                if order != ROWS_ORDER {
                    all.indexes.insert((table.id, order));
                }
                damage
            }
        };
        all.pages.push(LostPage {
            table: table.id,
            at: position(&page),
            is_missing: is_missing(store, page.address.file)?,
            damage,
        });
    }
    if let Some(pending) = pending {
        // What goes and is not there lay below a lost page.
        let removed: HashSet<ItemName> = pending.removed.iter().copied().collect();
        let is_in_run = |item: &Entry| pending.runs.iter().any(|run| run.contains(item.key()));
        items.retain(|item| !removed.contains(&ItemName::of(item)) && !is_in_run(item));
        items.extend_from_slice(&pending.added);
    }
    set_items(working, (table.id, order), items, store)
}

/// Takes away the masks of items that are not there any more, and reports that deleted rows may be back: blocks that were found may
/// stand for a fragment whose masks these are.
pub(super) fn report_masks_without_items(
    working: &mut Working,
    store: &Store,
    report: &mut RepairReport,
) -> Result<()> {
    for table in working.tables.clone().iter() {
        let rows = working.drop_masks_without_items(table.id, store)?;
        if rows > 0 {
            report
                .given_up
                .push(deleted_rows_may_be_back(&table.name, rows, BLOCKS_LOST));
        }
    }
    Ok(())
}

/// Why deleted rows may be back.
pub(super) const BLOCKS_LOST: &str = "the blocks that had them were lost";

pub(super) fn deleted_rows_may_be_back(table: &str, rows: u64, why: &str) -> Damage {
    Damage {
        file: PathBuf::from(ROOT_NAME),
        offset: 0,
        table: Some(table.to_owned()),
        keys: None,
        rows: Some(rows),
        commits: None,
        what: format!("{rows} deleted rows may be back: {why}"),
    }
}

fn is_missing(store: &Store, file: FileId) -> Result<bool> {
    match store.is_fragment(file) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::Corruption => Ok(true),
        Err(error) => Err(error),
    }
}
