//! Beginning the epoch of an opening.
//!
//! Invariants: an opening has one epoch at most, above all that there were, in a segment of its own; it counts once both slots of
//! the root name it, before anything of it is acknowledged.

use super::Leader;
use crate::bases::BuildsOn;
use crate::beside;
use crate::error::{ErrorKind, Result};
use crate::failure::{Failure, Outcome, fatal};
use crate::frame::SECTOR_BYTES;
use crate::ids::{Epoch, FileId};
use crate::log_writer::LogWriter;
use crate::paths::segment_path;
use crate::purpose::Purpose;
use crate::recover::apply_at;
use crate::replay::Frame;
use crate::segment::LogFolder;
use crate::segment_supply::Wanted;
use std::path::Path;

impl Leader {
    #[cfg(test)]
    pub(crate) fn spend_epochs(&mut self) {
        self.root.current.epoch = Epoch(u32::MAX);
    }

    /// Takes the log of a database that was just made: the root names its epoch already.
    pub(crate) fn take_first_log(&mut self, log: LogWriter) -> Result<()> {
        assert!(self.log.is_none(), "an opening has one epoch");
        self.log = Some(log);
        self.write_live()
    }

    /// A new epoch, if this opening has none yet.
    fn ensure_epoch(&mut self) -> Outcome<()> {
        if self.log.is_none() {
            let epoch = self.root.current.epoch.next().map_err(Failure::Refused)?;
            self.begin_epoch(epoch, Vec::new())
        } else {
            Ok(())
        }
    }

    /// Begins an epoch, above all that there were, in a new segment: `tail` again, then a checkpoint, then the root, both slots.
    ///
    /// Until the root is switched the new segment means nothing; so a failure before that is only fatal if the tail
    /// was applied.
    pub(crate) fn begin_epoch(&mut self, epoch: Epoch, tail: Vec<(Frame, Vec<u8>)>) -> Outcome<()> {
        assert!(
            self.log.is_none() && epoch > self.root.current.epoch,
            "an opening has one epoch, and epochs rise"
        );
        let folder = LogFolder::open(&self.env, &self.dir).map_err(Failure::Refused)?;
        let is_commit = |(frame, _): &(Frame, Vec<u8>)| frame.head.is_commit();
        let tail: Vec<_> = tail.into_iter().filter(is_commit).collect();
        let tail_bytes: u64 = tail.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        // With room for the checkpoint as well, which is about the last one and what was replayed since: a second segment
        // would be two syncs more. If it does not suffice there is one all the same.
        let replayed = &self.working.since_checkpoint;
        let bases = &self.working.bases;
        let last_bytes = match self.working.choose_base(true) {
            BuildsOn::Nothing => bases.frame_bytes().max(self.root.current.checkpoint_bytes),
            _ => self.root.current.checkpoint_bytes,
        };
        let checkpoint_bytes = SECTOR_BYTES
            + 2 * u64::from(last_bytes)
            + 2 * (replayed.directory_bytes + replayed.edit_bytes)
            + replayed.rows_bytes;
        let prepared = if self.supply.is_given_back() {
            // What was given back is all the room there is.
            self.supply.take_least(tail_bytes)?
        } else if self.full_disk.ended_writing() {
            let wanted_bytes = tail_bytes + checkpoint_bytes;
            self.supply.take(Wanted {
                last_bytes: wanted_bytes,
                frame_bytes: tail_bytes,
                checkpoints: 1,
                kept_checkpoints: Some(0),
                ..Wanted::default()
            })?
        } else {
            self.supply.take_first(tail_bytes, checkpoint_bytes)?
        };
        // Whatever the result of this call, it changes nothing.
        let confirmation = self.root.confirmation().map(|slot| {
            let may_start = self.may_start_threads;
            beside::begin(&self.env, may_start, move || slot.write())
        });
        let (first, unnamed) = (prepared.id, prepared.unnamed.clone());
        let mut log = LogWriter::begin(&self.env, self.database, epoch, prepared, None);
        for (frame, bytes) in tail {
            let at = log.push_again(&frame.head, bytes);
            if let Err(error) = apply_at(&mut self.working, frame, at, &*self.store) {
                self.forget_epoch(first, unnamed.as_deref());
                return Err(Failure::Stale(error));
            }
        }
        self.log = Some(log);
        let place = (&folder, first, unnamed.as_deref());
        let stored = self.store_checkpoint(Some(place), false, Purpose::CheckpointToFree);
        let stored = stored.inspect_err(|_| {
            self.log = None;
            self.forget_epoch(first, unnamed.as_deref());
        })?;
        if let Some(confirmation) = confirmation {
            let confirmed = beside::finish(confirmation).flatten();
            let confirmed = confirmed.inspect_err(|e| self.supply.note_failed_write(e));
            if let Err(error) = confirmed {
                self.log = None;
                self.forget_epoch(first, unnamed.as_deref());
                return Err(fatal(error));
            }
            self.root.note_confirmed();
        }
        // From here on the root may name the epoch, whatever the result of the call.
        if let Err(failure) = self.switch_root(stored, true) {
            self.log = None;
            return Err(failure);
        }
        if self.supply.is_short() {
            // What was kept there for a full disk can be had in no other way. Where it fails the space stays taken.
            let _ = self.cut_recovered(Some(first));
        }
        // Snapshots are pinned by the epoch of their state.
        self.working.changed = true;
        self.publish().map_err(fatal)
    }

    /// Removes the first segment of an epoch that no root names. What else there is of it goes at the next opening, as does
    /// the segment if a power cut undoes the removal.
    fn forget_epoch(&self, first: FileId, unnamed: Option<&Path>) {
        let named = segment_path(&self.dir, first);
        for path in unnamed.into_iter().chain([&*named]) {
            let _ = self.env.storage().remove_file(path);
        }
    }

    /// Begins the epoch of this opening for what frees no space: only where there is a reserve beside it, or room for one. Else it
    /// would take the last room for its checkpoint, and be refused itself.
    pub(super) fn ensure_epoch_beside_reserve(&mut self) -> Outcome<()> {
        if self.log.is_none() && self.supply.is_short() {
            self.supply.ensure_reserve(0).map_err(Failure::Refused)?;
        }
        self.ensure_epoch()
    }

    /// Begins the epoch of this opening for a drop: where there is no room for that, with all that can be given back.
    pub(super) fn ensure_epoch_to_drop(&mut self) -> Outcome<()> {
        match self.ensure_epoch() {
            Err(Failure::Refused(error)) if error.kind() == ErrorKind::DiskFull => {
                self.supply.give_back();
                self.cut_recovered(None)?;
                self.ensure_epoch()
            }
            done => done,
        }
    }
}
