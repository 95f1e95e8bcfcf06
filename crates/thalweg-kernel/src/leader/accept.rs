//! Taking a commit: it is validated, put after the pending frames, and applied.
//!
//! Invariants: all that can refuse a commit is checked before anything of it is done; pages that applying it needs are loaded
//! before its frame is built, so that one that cannot be read refuses this commit and nothing else.

use super::{Leader, no_epoch};
use crate::change::Change;
use crate::commit::{Commit, Edit, GroupPart};
use crate::error::{Error, ErrorKind, Result};
use crate::failure::{Failure, Outcome, fatal};
use crate::ids::{CommitNo, FileId, LogPosition, TableId};
use crate::index::HeldPages;
use crate::limits::{check_changed, check_commit, check_frame};
use crate::lowered::{build, lower};
use crate::orders::AddHead;
use crate::purpose::Purpose;
use crate::space_estimates::MIN_RESERVE_CHECKPOINTS;
use std::sync::Arc;

/// Deleted open rows of less than this part of a full segment (16 KiB) are covered with others, unless space is short.
const COVERED_SHARE: u64 = 4096;

impl Leader {
    /// Puts a commit after the pending frames and applies it.
    pub(super) fn accept(&mut self, commit: Commit) -> Outcome<CommitNo> {
        let as_drop = self.as_drop(&commit);
        let masks = commit.masks.iter().filter(|edit| !edit.parts.is_empty());
        let deletes_open: Vec<TableId> = masks.map(|edit| edit.table).collect();
        let accepted = self.accept_or_refuse(commit, as_drop);
        if as_drop.is_some() && accepted.as_ref().is_err_and(Failure::finds_no_room) {
            self.call_for_checkpoint_to_drop();
        }
        let number = accepted?;
        for table in deletes_open {
            self.cover_deleted(table)?;
        }
        Ok(number)
    }

    /// Covers open rows that are all deleted, by a commit of its own: else each checkpoint has them until they would make blocks, and
    /// on a full disk they keep the room that they were deleted for. A few bytes may stay where there is space.
    fn cover_deleted(&mut self, table: TableId) -> Outcome<()> {
        let min_bytes = self.supply.sizes.limit_bytes() / COVERED_SHARE;
        let is_enough = |bytes: u64| bytes >= min_bytes || self.supply.is_short();
        // The rows of a small table that changes one by one are not walked each time.
        let open = self.working.open.get(table);
        if !open.is_some_and(|open| is_enough(open.bytes)) {
            return Ok(());
        }
        let Some(front) = self.working.deleted_front(table) else {
            return Ok(());
        };
        if !is_enough(front.bytes) {
            return Ok(());
        }
        let Some(state) = self.working.table(table) else {
            return Ok(());
        };
        let head = AddHead {
            covers: Some(front.last),
            left_out: front.rows,
            ..AddHead::of_rows(table, state.definition_version)
        };
        let cover = Commit {
            groups: vec![GroupPart {
                head,
                blocks: Vec::new(),
            }],
            ..Commit::default()
        };
        let as_drop = self.supply.is_short().then_some(Purpose::Drop {
            open_bytes: front.bytes,
        });
        match self.accept_or_refuse(cover, as_drop) {
            // They stay until they are covered with others.
            Err(Failure::Refused(_)) => Ok(()),
            done => done.map(|_| ()),
        }
    }

    /// Calls for the checkpoint that lets a refused drop go on, if one before it keeps it waiting: each time, since the snapshots
    /// that this waits for may have gone.
    fn call_for_checkpoint_to_drop(&mut self) {
        if self.dropped.note_refusal() {
            self.due.space_is_out();
        } else if self.dropped.keeps_waiting() {
            self.due.cleaning.call();
        }
    }

    /// `as_drop`: see [`Leader::as_drop`].
    fn accept_or_refuse(
        &mut self,
        mut commit: Commit,
        as_drop: Option<Purpose>,
    ) -> Outcome<CommitNo> {
        if let Some(stored) = commit
            .producer
            .as_ref()
            .and_then(|p| self.working.stored_before(p))
        {
            return Ok(stored);
        }
        check_commit(&commit)
            .and_then(|()| self.working.check_prepared(&commit))
            .and_then(|()| self.check_staged(&commit))
            .and_then(|()| self.working.cut_runs(&mut commit, &*self.store))
            .map_err(Failure::Refused)?;
        let number = self.working.commit.next().map_err(Failure::Refused)?;
        // Deletions are many more than drops: they look for room only where there is little.
        if as_drop.is_some() && (commit.drops_tables() || self.supply.is_short()) {
            self.make_room_to_drop()?;
            self.ensure_epoch_to_drop()?;
        } else {
            self.ensure_epoch_beside_reserve()?;
        }
        let mut changes = std::mem::take(&mut self.changes);
        changes.clear();
        let mut lowered =
            lower(commit, number, self.working.next_table, changes).map_err(Failure::Refused)?;
        // Pages that applying it will ask for are loaded from here on: else one that cannot be read would be found
        // after the frame is built.
        let store = Arc::clone(&self.store);
        let pages = HeldPages::new(&*store);
        let folded = self
            .working
            .validate(&lowered.changes, &pages)
            .map_err(Failure::Refused)?;
        (self
            .working
            .changed_bytes(&lowered.changes, &folded, &pages))
        .and_then(check_changed)
        .map_err(Failure::Refused)?;
        build(&mut self.builder, &mut lowered).map_err(Failure::Refused)?;
        let frame_bytes = self.builder.frame_bytes() as u64;
        check_frame(frame_bytes).map_err(Failure::Refused)?;
        let page_bytes = pages.bytes();
        let purpose = match (as_drop, lowered.frees_space) {
            (Some(as_drop), _) => as_drop,
            (None, true) => Purpose::Replacement,
            (None, false) if page_bytes > 0 || lowered.changes.iter().any(adds_files) => {
                Purpose::Pages
            }
            (None, false) => Purpose::Rows,
        };
        let blocks = lowered.blocks.iter().flatten();
        let blocks_bytes: u64 = blocks.map(|block| block.len() as u64).sum();
        // Open rows are in each checkpoint after them; what leads to blocks, and the pages that change, in the first.
        let in_checkpoints = MIN_RESERVE_CHECKPOINTS * (frame_bytes - blocks_bytes) + page_bytes;
        self.room(frame_bytes, in_checkpoints, purpose)?;
        let at = self.push_frame(number, lowered.blocks, lowered.is_small)?;
        let mut changes = lowered.changes;
        if as_drop.is_some() || changes.iter().any(frees_files) {
            self.due.expect_garbage();
        }
        if as_drop.is_some() {
            self.dropped.note(number, self.written_segment());
        }
        let fragments: Vec<FileId> = changes.iter().flat_map(fragment_files).collect();
        self.working
            .apply_folded(number, (&mut changes, folded), at, &pages)
            .map_err(Failure::Stale)?;
        self.changes = changes;
        if !fragments.is_empty() {
            let mut staged = self.staged.lock();
            fragments.iter().for_each(|file| _ = staged.remove(file));
        }
        Ok(number)
    }

    /// Refuses a fragment that is part of a table already, or was abandoned, or has blocks of another table.
    fn check_staged(&self, commit: &Commit) -> Result<()> {
        if commit.edits.is_empty() {
            return Ok(());
        }
        let staged = self.staged.lock();
        for ((table, order), root) in commit.fragments() {
            let file = root.address.file;
            let message = match staged.get(&file) {
                Some(own) if *own == (table, order) => continue,
                Some((own, own_order)) => format!(
                    "fragment {:x} has blocks of order {own_order} of table {}: it cannot become part of order {order} of \
                     table {}",
                    file.0, own.0, table.0
                ),
                None => format!("fragment {:x} is not staged, or no longer", file.0),
            };
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(())
    }

    pub(super) fn push_frame(
        &mut self,
        number: CommitNo,
        blocks: Vec<Vec<Vec<u8>>>,
        is_small: bool,
    ) -> Outcome<LogPosition> {
        let log = self.log.as_mut().ok_or_else(|| fatal(no_epoch()))?;
        let shown_on_write = self.announcer.shows_on_write(is_small);
        Ok(log.push(number, &self.builder, blocks, shown_on_write))
    }
}

/// The files that a change makes part of a table.
fn fragment_files(change: &Change) -> Vec<FileId> {
    match change {
        Change::Edit(edit) => edit
            .fragments()
            .map(|(_, root)| root.address.file)
            .collect(),
        _ => Vec::new(),
    }
}

fn adds_files(change: &Change) -> bool {
    matches!(change, Change::Edit(Edit::AddFragments { .. }))
}

fn frees_files(change: &Change) -> bool {
    match change {
        Change::Edit(Edit::DropTable { .. } | Edit::Replace(_)) => true,
        Change::Edit(Edit::Orders(edit)) => edit.frees_space(),
        _ => false,
    }
}
