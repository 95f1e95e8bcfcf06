//! What can be had of a damaged log: every commit that is whole and does not rest on one that is lost.
//!
//! Invariants
//! - The outcome is the state that all commits make but those that are listed as given up. Where it cannot be known that a
//!   commit does to this state what it did to the lost one, it is left out.
//! - A commit that only moves rows (blocks of open rows, blocks in the place of others) is left out without a loss: its
//!   rows stay where they were.
//! - Numbers of tables are not in the log: behind lost edits no table is made, and none that was is taken for another.

use super::{RepairReport, start::Start};
use crate::change::Change;
use crate::commit::Edit;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CommitNo, LogPosition, TableId};
use crate::index::EntryKey;
use crate::recover::blocks_verify;
use crate::replay::{Frame, Replay, Skipped};
use crate::store::{Store, segment_name};
use crate::verify::{Damage, log_damage};
use crate::working::Working;
use std::collections::HashSet;

/// What the log has behind the checkpoint.
enum Found {
    Frame(Frame),
    Lost(Skipped),
}

/// Applies what can be applied; returns up to where the log is known to have been synced.
pub(crate) fn salvage(
    start: &mut Start,
    store: &Store,
    pages_lost: &HashSet<TableId>,
    report: &mut RepairReport,
) -> Result<LogPosition> {
    let mut proven = start.proven;
    let found = read_log(&mut start.replay, &mut proven, start.told, report)?;
    let mut salvage = Salvage {
        store,
        report,
        working: &mut start.working,
        pages_lost,
        exact: true,
        edits_lost: false,
    };
    for found in found {
        match found {
            Found::Lost(skipped) => salvage.lose(&skipped, start.told),
            // Torn: it was never acknowledged, nor was anything behind it.
            Found::Frame(frame) if frame.end() > proven && !is_whole(&start.replay, &frame)? => {
                break;
            }
            Found::Frame(frame) => salvage.apply(frame)?,
        }
    }
    let reached = start.working.commit;
    if start.told_elsewhere > reached {
        report.given_up.push(lost_behind(start, reached));
        start.working.commit = start.told_elsewhere;
    }
    Ok(proven)
}

/// The commits of a log, one after the other.
struct Salvage<'a> {
    store: &'a Store,
    report: &'a mut RepairReport,
    working: &'a mut Working,
    /// Tables whose index lost pages: keys of blocks may not be found for that reason alone.
    pages_lost: &'a HashSet<TableId>,
    /// Every commit so far was applied.
    exact: bool,
    /// Edits may be among what was not applied.
    edits_lost: bool,
}

impl Salvage<'_> {
    fn lose(&mut self, skipped: &Skipped, told: CommitNo) {
        let last = match skipped.to {
            Some(_) => skipped.last_lost,
            None => Some(told.max(skipped.first_lost)),
        };
        let Some(last) = last else { return };
        self.exact = false;
        self.edits_lost |= skipped.may_hold_edits;
        self.working.commit = last;
        if skipped.may_hold_edits {
            let commits = last.0 - skipped.first_lost.0 + 1;
            self.skip_tables(u32::try_from(commits).unwrap_or(u32::MAX));
        }
    }

    /// Numbers of tables that were given out and are not known.
    fn skip_tables(&mut self, count: u32) {
        self.working.next_table = self.working.next_table.saturating_add(count);
    }

    fn apply(&mut self, mut frame: Frame) -> Result<()> {
        if !frame.head.is_commit() {
            return Ok(());
        }
        let commit = frame.head.id.commit;
        self.forget_unreachable(&mut frame.changes)?;
        match self.why_not(&frame.changes)? {
            None => {
                // Behind a hole in the numbers as well.
                self.working.commit = CommitNo(commit.0.saturating_sub(1));
                self.working
                    .apply(commit, frame.changes, frame.at, self.store)
            }
            Some(why) => {
                self.leave_out(&frame, &why);
                self.working.commit = commit;
                Ok(())
            }
        }
    }

    /// Blocks below a lost page cannot be taken out, nor need they be: what replaces them has their rows.
    fn forget_unreachable(&self, changes: &mut [Change]) -> Result<()> {
        for change in changes.iter_mut().filter(|_| self.exact) {
            let Change::Edit(Edit::Replace { table, removed, .. }) = change else {
                continue;
            };
            let Some(state) = self.working.table(*table) else {
                continue;
            };
            if self.pages_lost.contains(table) {
                let items = state.tree.whole_items(self.store, &mut |_, _| {})?;
                let keys: HashSet<EntryKey> = items.iter().map(|item| item.key()).collect();
                removed.retain(|key| keys.contains(key));
            }
        }
        Ok(())
    }

    /// Why a commit must be left out, if it must.
    fn why_not(&self, changes: &[Change]) -> Result<Option<String>> {
        if let Some(why) = changes.iter().find_map(|change| self.rests_on_lost(change)) {
            return Ok(Some(why.to_owned()));
        }
        match self.working.validate(changes, self.store) {
            Ok(()) => Ok(None),
            Err(error) if is_refusal(&error) => Ok(Some(error.message().to_owned())),
            Err(error) => Err(error),
        }
    }

    /// What `validate` cannot see: that numbers and keys mean what they meant.
    fn rests_on_lost(&self, change: &Change) -> Option<&'static str> {
        match change {
            Change::Edit(Edit::CreateTable { .. }) if self.edits_lost => {
                Some("the number of its table is not known")
            }
            Change::Edit(Edit::Replace { .. }) if self.edits_lost => {
                Some("other blocks may have been replaced before")
            }
            Change::Group {
                table,
                covers: Some(_),
                entries,
                ..
            } if !self.exact => {
                let first = entries.iter().map(|entry| entry.commit_min).min();
                (self.working.first_open(*table) != first).then_some("not just its rows are open")
            }
            _ => None,
        }
    }

    fn leave_out(&mut self, frame: &Frame, why: &str) {
        let changes = &frame.changes;
        self.exact = false;
        for change in changes {
            self.edits_lost |= matches!(change, Change::Edit(_));
            match table_of(change) {
                Some(table) => {
                    let behind = table.0.saturating_add(1);
                    self.working.next_table = self.working.next_table.max(behind);
                }
                None if matches!(change, Change::Edit(_)) => self.skip_tables(1),
                None => {}
            }
        }
        let commit = frame.head.id.commit;
        let damage = Damage {
            file: segment_name(frame.at.segment),
            offset: frame.at.offset,
            table: self.only_table(changes),
            keys: keys_of(changes),
            rows: Some(changes.iter().map(rows_of).sum()),
            commits: Some((commit, commit)),
            what: format!("commit {} rests on what is lost: {why}", commit.0),
        };
        if changes.iter().all(only_moves_rows) {
            self.report.mended.push(Damage {
                commits: None,
                what: format!("{}; its rows stay where they were", damage.what),
                ..damage
            });
        } else {
            self.report.given_up.push(damage);
        }
    }

    /// The name of the table of all changes, if it is one and there is such a table.
    fn only_table(&self, changes: &[Change]) -> Option<String> {
        let mut tables = changes.iter().filter_map(table_of);
        let first = tables.next()?;
        let state = self.working.table(first)?;
        tables
            .all(|table| table == first)
            .then(|| state.name.clone())
    }
}

/// All frames behind the checkpoint, and what is lost between them.
fn read_log(
    replay: &mut Replay,
    proven: &mut LogPosition,
    told: CommitNo,
    report: &mut RepairReport,
) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    loop {
        let end = match replay.next(CommitNo(u64::MAX)) {
            Ok(Some(frame)) => {
                *proven = frame.head.id.synced_to.max(*proven);
                found.push(Found::Frame(frame));
                continue;
            }
            Ok(None) => replay.judge_end(*proven),
            Err(error) => Err(error),
        };
        let error = match end {
            Ok(()) => return Ok(found),
            Err(error) if error.kind() == ErrorKind::Corruption => error,
            Err(error) => return Err(error),
        };
        let skipped = replay.skip_damage()?;
        note(&skipped, &error, told, report);
        let goes_on = skipped.to.is_some();
        found.push(Found::Lost(skipped));
        if !goes_on {
            return Ok(found);
        }
    }
}

fn note(skipped: &Skipped, error: &Error, told: CommitNo, report: &mut RepairReport) {
    let mut damage = log_damage(skipped.from, error);
    let first = skipped.first_lost;
    let last = match skipped.to {
        Some(_) => skipped.last_lost,
        None if told < first => Some(CommitNo(u64::MAX)),
        None => Some(told),
    };
    match last {
        None => report.mended.push(damage),
        Some(last) => {
            damage.commits = Some((first, last));
            report.given_up.push(damage);
        }
    }
}

/// Commits that something tells of and that nothing is left of.
fn lost_behind(start: &Start, reached: CommitNo) -> Damage {
    let what = Error::corruption(
        "the log",
        format_args!(
            "it ends with commit {}, but later ones were shown",
            reached.0
        ),
    );
    let mut damage = log_damage(start.replay.at(), &what);
    damage.commits = Some((reached.next(), start.told_elsewhere));
    damage
}

fn is_whole(replay: &Replay, frame: &Frame) -> Result<bool> {
    Ok(blocks_verify(frame, &replay.read_whole(frame)?))
}

/// Whether an error says that a commit does not fit the state, and nothing else.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::Conflict | ErrorKind::AlreadyExists | ErrorKind::Invalid
    )
}

fn table_of(change: &Change) -> Option<TableId> {
    match change {
        Change::Rows(part) => Some(part.table),
        Change::Group { table, .. } => Some(*table),
        Change::Edit(Edit::CreateTable { .. }) | Change::Producer(_) => None,
        Change::Edit(
            Edit::DropTable { table }
            | Edit::RenameTable { table, .. }
            | Edit::SetDefinition { table, .. }
            | Edit::AddFragment { table, .. }
            | Edit::Replace { table, .. },
        ) => Some(*table),
    }
}

/// Rows that come with a change, and not from elsewhere in the database.
fn rows_of(change: &Change) -> u64 {
    match change {
        Change::Rows(part) => u64::from(part.rows),
        Change::Group {
            covers: None,
            entries,
            ..
        } => entries.iter().map(|entry| entry.rows).sum(),
        Change::Edit(Edit::AddFragment { root, .. }) => root.rows,
        _ => 0,
    }
}

fn keys_of(changes: &[Change]) -> Option<(i64, i64)> {
    let ranges = changes.iter().flat_map(|change| match change {
        Change::Rows(part) => vec![(part.key_min, part.key_max)],
        Change::Group { entries, .. } => entries.iter().map(|e| (e.key_min, e.key_max)).collect(),
        Change::Edit(Edit::AddFragment { root, .. }) => vec![(root.key_min, root.key_max)],
        _ => Vec::new(),
    });
    ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

fn only_moves_rows(change: &Change) -> bool {
    matches!(
        change,
        Change::Group {
            covers: Some(_),
            ..
        } | Change::Edit(Edit::Replace { .. })
    )
}
