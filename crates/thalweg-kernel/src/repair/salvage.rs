//! Reading all that is left of a damaged log: every commit that is whole and does not rest on one that is lost.
//!
//! Invariants
//! - The outcome is the state that all commits make but those that are listed as given up. Where it cannot be known that a
//!   commit does to this state what it did to the lost one, it is left out.
//! - A commit that only moves rows (blocks of open rows, blocks in the place of others) is left out without a loss: its
//!   rows stay where they were. One that deletes rows is listed, with those of them that are there.
//! - No number is given out again that a commit may have given to a table and that is lost, as far as it is known which commits
//!   are: handles of reading processes name tables by number. Of one lost stretch [`MAX_LOST_TABLES`] are kept free at most.

use super::RepairReport;
use super::kept::TableRows;
use super::lost_pages::{BLOCKS_LOST, LostPages, deleted_rows_may_be_back};
use super::names::DisplacedTables;
use super::start::{EpochLog, Start, UNKNOWN};
use crate::block::ROWS_ORDER;
use crate::change::Change;
use crate::commit::Edit;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::{FRAME_MAX_SECTIONS, SECTION_ENTRY_BYTES};
use crate::ids::{CommitNo, FileId, LogPosition, TableId};
use crate::index::{EntryKey, ItemName, Tree};
use crate::masks::{MaskEdit, MaskList};
use crate::orders::{Removed, ReplaceEdit};
use crate::paths::segment_name;
use crate::recover::blocks_verify;
use crate::replay::{Frame, Replay, Skipped};
use crate::store::Store;
use crate::verify::{Damage, log_damage};
use crate::working::Working;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;

/// Numbers of tables that are kept free for one lost stretch of the log. To have made as many, 512 MiB of it must have been nothing
/// but new tables.
const MAX_LOST_TABLES: u64 = 1 << 24;

/// The least that a new table takes in its frame: an entry of the section table, kind and number of the edit, and the lengths
/// of name and definition, padded.
const MIN_CREATE_BYTES: u64 = (SECTION_ENTRY_BYTES + 16) as u64;

/// A list of the report.
#[derive(Clone, Copy)]
enum List {
    GivenUp,
    Mended,
}

/// A part of the log of an epoch: a frame, or what is lost.
enum Found {
    Frame(Frame),
    Lost(Lost),
}

/// A damaged stretch of the log, and how it showed.
struct Lost {
    skipped: Skipped,
    error: Error,
}

/// The result of applying the log of a start, beside its state.
pub(crate) struct Salvaged {
    /// Where it may not have been synced.
    pub(super) unproven: Vec<Range<LogPosition>>,
    /// Rows that are there because the commit that deleted them is left out.
    pub(super) back: TableRows,
}

/// Applies what can be applied.
pub(crate) fn salvage(
    start: &mut Start,
    store: &Store,
    lost: &mut LostPages,
    report: &mut RepairReport,
) -> Result<Salvaged> {
    let lost_rows = &lost.rows_by_table();
    let mut salvage = Salvage {
        store,
        report,
        working: &mut start.working,
        told: start.told,
        lost_rows,
        found: &lost.found,
        indexes: &lost.indexes,
        displaced: DisplacedTables::default(),
        left_out: Vec::new(),
        replaced_rows: HashMap::new(),
        back: HashMap::new(),
        open_end: None,
        exact: true,
        edits_lost: false,
        replacements_lost: HashSet::new(),
    };
    let taken_over = start.logs.iter().skip(1).map(|next| next.taken_over);
    let taken_over: Vec<_> = taken_over.chain([None]).collect();
    for (log, last) in start.logs.iter_mut().zip(taken_over) {
        salvage.read_epoch(log, last)?;
    }
    let at = start.logs.last().map_or(END, |log| log.replay.at());
    salvage.finish(at, start.told_elsewhere);
    let back = std::mem::take(&mut salvage.back);
    lost.replaced_rows = salvage.conclude();
    let ends = start.logs.iter().skip(1).map(|next| next.from);
    let ends = ends.chain([END]);
    let logs = start.logs.iter().zip(ends);
    Ok(Salvaged {
        unproven: logs.map(|(log, end)| log.proven..end).collect(),
        back,
    })
}

/// After every frame.
const END: LogPosition = LogPosition {
    segment: FileId(u64::MAX),
    offset: u64::MAX,
};

/// The commits of a log, one after the other.
struct Salvage<'a> {
    store: &'a Store,
    report: &'a mut RepairReport,
    working: &'a mut Working,
    /// The last commit that anything names.
    told: CommitNo,
    /// Rows below lost pages of the index, by table: keys of blocks may not be found for that reason alone.
    lost_rows: &'a HashMap<TableId, u64>,
    /// Items that were found below lost pages. In their place may have been a fragment with copies of them, which has the key of
    /// the first: who takes that out means all of them.
    found: &'a HashSet<(TableId, EntryKey)>,
    /// Indexes that have lost entries below lost pages.
    indexes: &'a HashSet<(TableId, u32)>,
    /// Tables whose names later commits have given to others.
    displaced: DisplacedTables,
    /// Commits that are left out and change one table alone: which list of the report they are in, their place there, the table.
    left_out: Vec<(List, usize, TableId)>,
    /// Rows below lost pages that replacements have brought back, by table.
    replaced_rows: HashMap<TableId, u64>,
    /// Rows that are there because the commit that deleted them is left out, by table.
    back: TableRows,
    /// Damage at which an epoch ended. What is lost by it shows where the next one goes on.
    open_end: Option<Lost>,
    /// Every commit so far was applied.
    exact: bool,
    /// Edits other than replacements may be among what was not applied.
    edits_lost: bool,
    /// Tables of which a replacement was not applied: keys of later ones may mean other items than those that are there.
    replacements_lost: HashSet<TableId>,
}

impl Salvage<'_> {
    /// Reads the frames of an epoch, up to the last commit that the next one took over. Each waits until the log after
    /// it proves it, or has ended: no more of a log is in memory than is unsynced at once.
    fn read_epoch(&mut self, log: &mut EpochLog, last: Option<CommitNo>) -> Result<()> {
        let mut reader = LogReader {
            passed: None,
            has_ended: false,
        };
        let (mut waiting, mut counts) = (VecDeque::new(), true);
        while let Some(found) = reader.next(log)? {
            waiting.push_back(found);
            let is_proven = |found: &mut Found| match found {
                Found::Frame(frame) => frame.end() <= log.proven,
                Found::Lost(_) => true,
            };
            while let Some(found) = waiting.pop_front_if(is_proven) {
                counts = counts && self.take(found, log, last)?;
            }
        }
        for found in waiting {
            counts = counts && self.take(found, log, last)?;
        }
        Ok(())
    }

    /// Returns whether what follows in this epoch counts.
    fn take(&mut self, found: Found, log: &EpochLog, last: Option<CommitNo>) -> Result<bool> {
        let was_taken_over = |commit: CommitNo| last.is_none_or(|last| commit <= last);
        let reached = self.working.commit;
        let frame = match found {
            Found::Lost(lost) => {
                let behind = lost
                    .skipped
                    .last_lost
                    .map(|last| CommitNo(last.0.saturating_add(1)));
                if lost.skipped.to.is_none() || !behind.is_none_or(was_taken_over) {
                    // Commits of the next epoch may be lost with it, which do not lie before `to`.
                    let skipped = Skipped {
                        to: None,
                        ..lost.skipped
                    };
                    self.open_end.get_or_insert(Lost { skipped, ..lost });
                } else {
                    let until = lost.skipped.last_lost.filter(|last| *last > reached);
                    self.lose(&lost, until);
                }
                return Ok(true);
            }
            Found::Frame(frame) => frame,
        };
        let commit = frame.head.id.commit;
        if !was_taken_over(commit) {
            return Ok(false);
        }
        // Written again by the next epoch.
        if frame.head.is_commit() && commit <= reached {
            return Ok(true);
        }
        // Torn: it was never acknowledged, nor was anything after it.
        if frame.end() > log.proven && !is_whole(&log.replay, &frame)? {
            return Ok(false);
        }
        self.reach(&frame);
        self.apply(frame)?;
        Ok(true)
    }

    /// The log goes on with a frame: what is missing before it is lost.
    fn reach(&mut self, frame: &Frame) {
        let before = frame.head.commit_before();
        let lost = Some(before).filter(|before| *before > self.working.commit);
        if frame.head.is_commit()
            && let Some(end) = self.open_end.take()
        {
            self.lose(&end, lost);
        } else if lost.is_some() && self.open_end.is_none() {
            let gap = Lost::at(frame.at, self.working.commit, "what follows is missing");
            self.lose(&gap, lost);
        }
    }

    /// Notes what is lost after the last frame, which was at `at`: up to commit `told`, which something else
    /// names, or to an unknown end.
    fn finish(&mut self, at: LogPosition, told: CommitNo) {
        let reached = self.working.commit;
        if let Some(end) = self.open_end.take() {
            self.lose(&end, Some(UNKNOWN));
        } else if told > reached {
            let gap = Lost::at(at, reached, "later ones were stored");
            self.lose(&gap, Some(told));
        }
    }

    /// Notes damage of the log, and the commits up to `last` that are lost by it.
    fn lose(&mut self, lost: &Lost, last: Option<CommitNo>) {
        let first = CommitNo(self.working.commit.0.saturating_add(1));
        let mut damage = log_damage(lost.skipped.from, &lost.error);
        let Some(last) = last else {
            // A checkpoint that could not be started from is known already.
            let place = (&damage.file, damage.offset);
            if !self
                .report
                .mended
                .iter()
                .any(|m| (&m.file, m.offset) == place)
            {
                self.report.mended.push(damage);
            }
            return;
        };
        damage.commits = Some((first, last));
        self.report.given_up.push(damage);
        self.exact = false;
        self.edits_lost |= lost.skipped.may_hold_edits;
        let known = if last == UNKNOWN {
            self.told.max(first)
        } else {
            last
        };
        self.working.commit = known;
        if lost.skipped.may_hold_edits {
            let commits = (known.0 - first.0).saturating_add(1);
            let tables = lost.skipped.max_tables(commits);
            self.working.next_table = self.working.next_table.saturating_add(tables);
        }
    }

    fn apply(&mut self, mut frame: Frame) -> Result<()> {
        if !frame.head.is_commit() {
            return Ok(());
        }
        let commit = frame.head.id.commit;
        let in_part = self.name_items_of_runs(&mut frame.changes)?;
        let regained = self.forget_unreachable(&mut frame.changes)?;
        self.forget_lost_masks(&mut frame.changes)?;
        match self.why_not(&frame.changes, &regained)? {
            None => {
                for (table, rows) in in_part {
                    if let Some(table) = self.working.table(table) {
                        let damage = deleted_rows_may_be_back(&table.name, rows, BLOCKS_LOST);
                        self.report.given_up.push(damage);
                    }
                }
                for (table, rows) in regained {
                    *self.replaced_rows.entry(table).or_default() += rows;
                }
                self.displaced
                    .make_way(commit, &frame.changes, self.working)?;
                // After a hole in the numbers as well.
                self.working.commit = CommitNo(commit.0.saturating_sub(1));
                self.working
                    .apply(commit, &mut frame.changes, frame.at, self.store)
            }
            Some(why) => {
                self.leave_out(&frame, &why)?;
                self.working.commit = commit;
                Ok(())
            }
        }
    }

    /// Runs become the names of those of their items that are there: some may be lost, and of a replacement that brings nothing the
    /// others go all the same. Returns the rows of those that are not, by table.
    fn name_items_of_runs(&self, changes: &mut [Change]) -> Result<Vec<(TableId, u64)>> {
        let mut in_part = Vec::new();
        for change in changes {
            let Change::Edit(Edit::Replace(edit)) = change else {
                continue;
            };
            let Some(state) = self.working.table(edit.table).filter(|_| edit.has_runs()) else {
                continue;
            };
            let brings = edit.orders.iter().any(|order| !order.added.is_empty());
            for replaced in &mut edit.orders {
                let runs = replaced.removed_runs();
                let Some(tree) = state.tree_of(replaced.order) else {
                    continue;
                };
                let mut items = tree.whole_items(self.store, &mut |_, _| {})?;
                items.retain(|item| runs.iter().any(|run| run.contains(item.key())));
                let wanted = runs
                    .iter()
                    .fold(0_u64, |sum, run| sum.saturating_add(run.rows));
                let found = items
                    .iter()
                    .fold(0_u64, |sum, item| sum.saturating_add(item.rows));
                let names = items.iter().map(ItemName::of).collect();
                // With other items than those that it had, it is none of what is there.
                if found > wanted || (brings && found != wanted) {
                    continue;
                }
                replaced.removed = Removed::Items(names);
                if replaced.order == ROWS_ORDER && found != wanted {
                    edit.left_out = edit.left_out.min(found);
                    edit.deleted = found - edit.left_out;
                    in_part.push((edit.table, wanted - found));
                }
            }
        }
        Ok(in_part)
    }

    /// Blocks below a lost page cannot be taken out, nor need they be: what replaces them has their rows. Returns how many, by
    /// table. Of an index all that is there goes, whatever else is lost of it: no row depends on it.
    fn forget_unreachable(&self, changes: &mut [Change]) -> Result<Vec<(TableId, u64)>> {
        let mut regained = Vec::new();
        for change in changes {
            let Change::Edit(Edit::Replace(edit)) = change else {
                continue;
            };
            let Some(state) = self.working.table(edit.table) else {
                continue;
            };
            for replaced in &mut edit.orders {
                let place = (edit.table, replaced.order);
                let is_lost = match replaced.order {
                    ROWS_ORDER => self.exact && self.lost_rows.contains_key(&edit.table),
                    _ => !self.exact || self.indexes.contains(&place),
                };
                let tree = state.tree_of(replaced.order).filter(|_| is_lost);
                let (Some(tree), Removed::Items(removed)) = (tree, &mut replaced.removed) else {
                    continue;
                };
                let items = tree.whole_items(self.store, &mut |_, _| {})?;
                let rows_of = items.iter().map(|item| (ItemName::of(item), item.rows));
                let rows_of: HashMap<ItemName, u64> = rows_of.collect();
                let names = removed.len();
                removed.retain(|name| rows_of.contains_key(name));
                if removed.len() < names && replaced.order == ROWS_ORDER {
                    let taken: u64 = removed.iter().filter_map(|name| rows_of.get(name)).sum();
                    let brought: u64 = replaced.added.iter().map(|item| item.rows).sum();
                    let gone = edit.left_out.saturating_add(edit.deleted);
                    let brought = brought.saturating_add(gone);
                    regained.push((edit.table, brought.saturating_sub(taken)));
                }
            }
        }
        Ok(regained)
    }

    /// Masks are true of their items whatever was lost in between; those whose items are lost do not count. Rows that they would
    /// have hidden may be elsewhere by now.
    fn forget_lost_masks(&mut self, changes: &mut Vec<Change>) -> Result<()> {
        let has_masks = changes
            .iter()
            .any(|change| matches!(change, Change::Mask(_)));
        if !has_masks || (self.exact && self.lost_rows.is_empty()) {
            return Ok(());
        }
        let mut brought = HashSet::new();
        for change in changes.iter() {
            if let Change::Edit(Edit::Replace(edit)) = change {
                let rows = edit.orders.iter().filter(|order| order.order == ROWS_ORDER);
                brought.extend(rows.flat_map(|rows| rows.added.iter().map(ItemName::of)));
            }
            if let Some((_, items)) = change.adds() {
                brought.extend(items.iter().map(ItemName::of));
            }
        }
        for change in changes.iter_mut() {
            if let Change::Mask(edit) = change {
                let rows = self.working.forget_lost_items(edit, &brought, self.store)?;
                if let Some(table) = self.working.table(edit.table).filter(|_| rows > 0) {
                    let damage = deleted_rows_may_be_back(&table.name, rows, BLOCKS_LOST);
                    self.report.given_up.push(damage);
                    let back = self.back.entry(edit.table).or_default();
                    *back = back.saturating_add(rows);
                }
            }
        }
        let is_empty = |change: &Change| matches!(change, Change::Mask(edit) if edit.items.is_empty() && edit.parts.is_empty());
        changes.retain(|change| !is_empty(change));
        Ok(())
    }

    /// Why a commit must be left out, if it must. `regained`: the rows that [`Self::forget_unreachable`] returned.
    fn why_not(&self, changes: &[Change], regained: &[(TableId, u64)]) -> Result<Option<String>> {
        if let Some(why) = changes.iter().find_map(|change| self.rests_on_lost(change)) {
            return Ok(Some(why.to_owned()));
        }
        let validated = self
            .working
            .validate_salvaged(changes, self.store, self.edits_lost);
        match validated {
            Ok(()) => {}
            Err(error) if error.is_misfit() => return Ok(Some(error.message().to_owned())),
            Err(error) => return Err(error),
        }
        for change in changes {
            if !self.keeps_rows(change, regained)? {
                return Ok(Some("it has replaced others of the same keys".to_owned()));
            }
        }
        Ok(None)
    }

    /// Whether a replacement brings as many rows as it takes out, besides those that lay below lost pages. Else one of its keys
    /// means something else here than it did when it was stored: a fragment has the key of its first block, and an earlier repair
    /// has moved blocks to a fragment without a commit.
    fn keeps_rows(&self, change: &Change, regained: &[(TableId, u64)]) -> Result<bool> {
        let Change::Edit(Edit::Replace(edit)) = change else {
            return Ok(true);
        };
        let rows = edit
            .orders
            .first()
            .filter(|order| order.order == ROWS_ORDER);
        let (Some(state), Some(rows)) = (self.working.table(edit.table), rows) else {
            return Ok(true);
        };
        let table = edit.table;
        let mut of_table = regained.iter().filter(|(other, _)| *other == table);
        let regained = of_table.next().map_or(0, |(_, rows)| *rows);
        let before = self.replaced_rows.get(&table).copied().unwrap_or_default();
        let lost = self.lost_rows.get(&table).copied().unwrap_or_default();
        let removed: Vec<EntryKey> = { rows.removed_items().iter() }
            .map(|name| name.key)
            .collect();
        let is_found = |key: &EntryKey| self.found.contains(&(table, *key));
        if before.saturating_add(regained) > lost || (regained > 0 && removed.iter().any(is_found))
        {
            return Ok(false);
        }
        let added = rows.added.clone();
        let replaced = state
            .tree
            .replace(&removed, added, self.store, &mut Vec::new())?;
        let rows = |tree: &Tree| tree.total().map_or(0, |total| total.rows);
        let gone = edit.left_out.saturating_add(edit.deleted);
        let kept = rows(&replaced).saturating_add(gone);
        Ok(kept == rows(&state.tree).saturating_add(regained))
    }

    /// Why a change cannot be applied though it may look sound: its table is lost, or keys in it may mean something else than they
    /// did when it was stored.
    fn rests_on_lost(&self, change: &Change) -> Option<&'static str> {
        let is_new = matches!(change, Change::Edit(Edit::CreateTable { .. }));
        match change {
            _ if !is_new && { change.table() }
                .is_some_and(|id| self.working.table(id).is_none()) =>
            {
                Some("its table was made by a commit that is given up")
            }
            Change::Edit(Edit::Replace(edit))
                if self.edits_lost || self.replacements_lost.contains(&edit.table) =>
            {
                Some("other blocks may have been replaced before")
            }
            change if !self.exact => {
                let (head, entries) = change.adds()?;
                head.covers?;
                let first = entries.iter().map(|entry| entry.commit_min).min();
                let is_open = self.working.first_open(head.table) == first;
                (!is_open).then_some("not just its rows are open")
            }
            _ => None,
        }
    }

    fn leave_out(&mut self, frame: &Frame, why: &str) -> Result<()> {
        let changes = &frame.changes;
        let back = self.rows_back(changes)?;
        self.exact = false;
        for change in changes {
            match change {
                // Where its table is known, so is what later ones may not rest on.
                Change::Edit(Edit::Replace(edit)) => {
                    self.replacements_lost.insert(edit.table);
                }
                change => self.edits_lost |= matches!(change, Change::Edit(_)),
            }
            if let Some(table) = change.table() {
                let behind = table.0.saturating_add(1);
                self.working.next_table = self.working.next_table.max(behind);
            }
        }
        let commit = frame.head.id.commit;
        let damage = Damage {
            file: segment_name(frame.at.segment),
            offset: frame.at.offset,
            table: None,
            keys: keys_of(changes),
            rows: Some(changes.iter().map(rows_of).sum()),
            commits: Some((commit, commit)),
            what: format!("commit {} rests on what is lost: {why}", commit.0),
        };
        let (list, damage) = match changes.iter().all(only_moves_rows) {
            true => {
                let damage = Damage {
                    commits: None,
                    what: format!("{}; its rows stay where they were", damage.what),
                    ..damage
                };
                (List::Mended, damage)
            }
            false => (List::GivenUp, damage),
        };
        let listed = list.of(self.report);
        let place = listed.len();
        listed.push(damage);
        if let Some(table) = only_table(changes) {
            self.left_out.push((list, place, table));
        }
        for (table, rows) in back {
            let back = self.back.entry(table).or_default();
            *back = back.saturating_add(rows);
            if let Some(table) = self.working.table(table) {
                let why = format!("commit {}, which deleted them, is left out", commit.0);
                let damage = deleted_rows_may_be_back(&table.name, rows, &why);
                self.report.given_up.push(damage);
            }
        }
        Ok(())
    }

    /// The rows that changes which are left out would have deleted, as far as they are there, by table.
    fn rows_back(&self, changes: &[Change]) -> Result<BTreeMap<TableId, u64>> {
        let mut back: BTreeMap<TableId, u64> = BTreeMap::new();
        for change in changes {
            let (table, rows) = match change {
                Change::Edit(Edit::Replace(edit)) if edit.deleted > 0 => {
                    (edit.table, self.rows_to_delete(edit)?)
                }
                Change::Mask(edit) => (edit.table, self.rows_to_hide(edit)?),
                _ => continue,
            };
            if rows > 0 {
                let back = back.entry(table).or_default();
                *back = back.saturating_add(rows);
            }
        }
        Ok(back)
    }

    /// The rows of the items that a replacement removes, without hidden ones, if it deletes them.
    fn rows_to_delete(&self, edit: &ReplaceEdit) -> Result<u64> {
        let rows = edit.orders.first().filter(|rows| rows.order == ROWS_ORDER);
        let (Some(state), Some(rows)) = (self.working.table(edit.table), rows) else {
            return Ok(0);
        };
        let names: HashSet<&ItemName> = rows.removed_items().iter().collect();
        let mut items = state.tree.whole_items(self.store, &mut |_, _| {})?;
        items.retain(|item| {
            let runs = rows.removed_runs();
            names.contains(&ItemName::of(item)) || runs.iter().any(|run| run.contains(item.key()))
        });
        let kept = items.iter().map(|item| {
            let hidden = { state.masks() }.and_then(|masks| masks.of_item(&ItemName::of(item)));
            item.rows.saturating_sub(hidden.map_or(0, MaskList::rows))
        });
        let kept = kept.fold(0, u64::saturating_add);
        Ok(kept.min(edit.deleted))
    }

    /// The rows that an edit would hide in items and open rows that are there.
    fn rows_to_hide(&self, edit: &MaskEdit) -> Result<u64> {
        let Some(state) = self.working.table(edit.table) else {
            return Ok(0);
        };
        let mut rows = 0_u64;
        for item in &edit.items {
            let found = state.tree.item(item.name.key, self.store)?;
            if found.is_some_and(|found| ItemName::of(&found) == item.name) {
                rows = rows.saturating_add(item.newly);
            }
        }
        let parts = edit
            .parts
            .iter()
            .map(|part| u64::from(part.positions.rows()));
        Ok(parts.fold(rows, u64::saturating_add))
    }

    /// Writes into the report which names the tables have at the end of the log: other tables may have those that they had before.
    /// Returns how many rows below lost pages replacements have brought back.
    fn conclude(self) -> HashMap<TableId, u64> {
        for (list, place, table) in self.left_out {
            let name = self
                .working
                .table(table)
                .map(|table| table.name.to_string());
            list.of(self.report)[place].table = name;
        }
        self.displaced.report(self.working, self.report);
        if !self.exact {
            // Rows may have come in the commits that are given up, or entries.
            self.working.forget_all_coverage();
        }
        for (table, order) in self.indexes {
            self.working.forget_coverage(*table, *order);
        }
        self.replaced_rows
    }
}

impl List {
    fn of(self, report: &mut RepairReport) -> &mut Vec<Damage> {
        match self {
            Self::GivenUp => &mut report.given_up,
            Self::Mended => &mut report.mended,
        }
    }
}

impl Lost {
    /// A checkpoint that the root names, and no commit.
    fn of_checkpoint(from: LogPosition, to: LogPosition) -> Self {
        Self {
            skipped: Skipped {
                from,
                to: Some(to),
                last_lost: None,
                may_hold_edits: false,
            },
            error: Error::corruption("the log", "the checkpoint that the root names is damaged"),
        }
    }

    /// Commits after `reached` of which no frame is left.
    fn at(from: LogPosition, reached: CommitNo, why: &str) -> Self {
        let what = format_args!("it ends with commit {}, but {why}", reached.0);
        Self {
            skipped: Skipped {
                from,
                to: None,
                last_lost: None,
                may_hold_edits: true,
            },
            error: Error::corruption("the log", what),
        }
    }
}

/// Reads all frames of an epoch, and what is lost between them.
struct LogReader {
    /// After a damaged checkpoint that was passed over.
    passed: Option<LogPosition>,
    has_ended: bool,
}

impl LogReader {
    fn next(&mut self, log: &mut EpochLog) -> Result<Option<Found>> {
        if self.has_ended {
            return Ok(None);
        }
        let end = match log.replay.next(UNKNOWN) {
            Ok(Some(frame)) => {
                log.proven = frame.head.id.synced_to.max(log.proven);
                return Ok(Some(Found::Frame(frame)));
            }
            Ok(None) => match log.replay.pass_checkpoint() {
                Some(from) => {
                    let to = log.replay.at();
                    log.proven = to.max(log.proven);
                    self.passed = Some(to);
                    return Ok(Some(Found::Lost(Lost::of_checkpoint(from, to))));
                }
                None if self.passed == Some(log.replay.at())
                    && !log.replay.ends_behind_checkpoint()? =>
                {
                    let what = "what lies behind a damaged checkpoint is no frame";
                    Err(Error::corruption("the log", what))
                }
                None => log.replay.judge_end(log.proven),
            },
            Err(error) => Err(error),
        };
        let error = match end {
            Ok(()) => {
                self.has_ended = true;
                return Ok(None);
            }
            Err(error) if error.kind() == ErrorKind::Corruption => error,
            Err(error) => return Err(error),
        };
        // What shows that the log went on may itself be damaged further on, and then shows no more.
        if let Some((_, synced_to)) = log.replay.later_proof()? {
            log.proven = synced_to.max(log.proven);
        }
        let skipped = log.replay.skip_damage()?;
        self.has_ended = skipped.to.is_none();
        Ok(Some(Found::Lost(Lost { skipped, error })))
    }
}

fn is_whole(replay: &Replay, frame: &Frame) -> Result<bool> {
    blocks_verify(frame, &replay.read_whole(frame)?)
}

impl Skipped {
    /// How many tables its commits may have made, at most. Each takes a section of its frame.
    fn max_tables(&self, commits: u64) -> u32 {
        let by_sections = commits.saturating_mul(FRAME_MAX_SECTIONS as u64);
        let to = self.to.filter(|to| to.segment == self.from.segment);
        let bytes = to.map(|to| to.offset.saturating_sub(self.from.offset));
        let by_bytes = bytes.map_or(u64::MAX, |bytes| bytes / MIN_CREATE_BYTES);
        let most = by_sections.min(by_bytes).min(MAX_LOST_TABLES);
        u32::try_from(most).unwrap_or(u32::MAX)
    }
}

/// The table of all changes, if it is one.
fn only_table(changes: &[Change]) -> Option<TableId> {
    let mut tables = changes.iter().filter_map(Change::table);
    let first = tables.next()?;
    tables.all(|table| table == first).then_some(first)
}

/// Rows that come with a change, and not from elsewhere in the database.
fn rows_of(change: &Change) -> u64 {
    if let Change::Rows(part) = change {
        return u64::from(part.rows);
    }
    match change.adds() {
        Some((head, items)) if head.is_of_new_rows() => items.iter().map(|item| item.rows).sum(),
        _ => 0,
    }
}

fn keys_of(changes: &[Change]) -> Option<(i64, i64)> {
    let ranges = changes
        .iter()
        .flat_map(|change| match (change, change.adds()) {
            (Change::Rows(part), _) => vec![(part.key_min, part.key_max)],
            (_, Some((head, items))) if head.order == ROWS_ORDER => items
                .iter()
                .map(|item| (item.key_min, item.key_max))
                .collect(),
            _ => Vec::new(),
        });
    ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Whether no row of the table comes or goes with a change.
fn only_moves_rows(change: &Change) -> bool {
    match change.adds() {
        Some((head, _)) => !head.is_of_new_rows(),
        None => matches!(change, Change::Edit(Edit::Replace(edit)) if edit.deleted == 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_commits_have_made_as_many_tables_as_there_was_room_for() {
        let at = |segment: u64, offset: u64| LogPosition {
            segment: FileId(segment),
            offset,
        };
        let most = |to: Option<LogPosition>, commits: u64| {
            let skipped = Skipped {
                from: at(3, 1_000),
                to,
                last_lost: None,
                may_hold_edits: true,
            };
            skipped.max_tables(commits)
        };
        assert_eq!(most(Some(at(3, 1_000 + 320)), 1), 10);
        assert_eq!(most(Some(at(3, 10_000_000)), 2), 2 * 4_096);
        // Of the segment after it, or nothing shows where the log went on.
        for to in [Some(at(4, 1_320)), None] {
            assert_eq!(most(to, 1), 4_096);
            assert_eq!(most(to, u64::MAX), 1 << 24);
        }
    }
}
