//! The state of the writer is taken from the log: at opening, and once more each time the disk was full at a write or a sync.
//!
//! Invariants: a failed sync is never tried again. What it was to make durable is read back and written anew, as after a
//! crash: a commit whose caller got the error is then there as a whole, or not at all. What a snapshot of this
//! process has shown is there after it, or nothing is written any more: so a handle never shows less than before, and what
//! was prepared from any of its snapshots is checked against the same commits.

use super::{Ended, Leader};
use crate::dropped::Dropped;
use crate::error::{Error, ErrorKind, Result};
use crate::failure::{Failure, Outcome, fatal};
use crate::ids::{CommitNo, Epoch, FileId, LogPosition, TableId};
use crate::live::Live;
use crate::live::same_boot;
use crate::paths::ROOT_NAME;
use crate::paths::io_at;
use crate::recover::{Known, Recovered, apply, recover};
use crate::root::{Root, RootFile};
use crate::segment;
use crate::unfinished::unfinished_epochs;
use crate::view::View;
use std::collections::BTreeMap;
use std::path::PathBuf;
use thalweg_env::Env;
use thalweg_env::sync::atomic::Ordering;

/// Removes segments that are part of no log.
fn remove_all(env: &Env, segments: Vec<(Epoch, PathBuf)>) -> Outcome<()> {
    for (_, path) in segments {
        let removed = env.storage().remove_file(&path);
        removed.map_err(|e| Failure::Refused(io_at("removing", &path)(e)))?;
    }
    Ok(())
}

impl Leader {
    /// The recovery of an opening: where the disk has no room for what it writes, it shows what it can.
    ///
    /// # Errors
    /// Those of the recovery; the segments that were prepared for the log are given up then.
    pub(crate) fn recover_at_opening(&mut self) -> Result<()> {
        self.dropped = Dropped::at_opening();
        let recovered = self.recover_log().map_err(Failure::error);
        let opened = match recovered {
            Err(error) if error.kind() == ErrorKind::DiskFull => self.show_without_room(),
            done => done,
        };
        opened.inspect_err(|_| self.supply.give_up())
    }

    /// The `live` of the epoch of the root. It is never needed; but where it is there, it knows how far the log was
    /// synced, and which epochs there were.
    fn live_of_epoch(&mut self) -> Result<Option<Live>> {
        let epoch = self.root.current.epoch;
        let said = self.announcer.live().read()?;
        let Some(live) = said.filter(|l| l.database == self.database) else {
            return Ok(None);
        };
        if live.epoch > epoch {
            let what = format!(
                "it is of epoch {}, but epoch {} has begun: an old copy?",
                epoch.0, live.epoch.0
            );
            return Err(Error::corruption(self.dir.join(ROOT_NAME).display(), what));
        }
        self.announcer.raise_floor(live.gc_floor);
        Ok(Some(live).filter(|l| l.epoch == epoch))
    }

    /// Reads root and log, and begins an epoch if anything there is not known to be on disk.
    fn recover_log(&mut self) -> Outcome<()> {
        let (env, dir) = (self.env.clone(), self.dir.clone());
        let said = self.live_of_epoch().map_err(Failure::Refused)?;
        let unfinished = unfinished_epochs(&env, &dir, &self.root.current);
        let mut unfinished = unfinished.map_err(Failure::Refused)?;
        if self.root.other.is_some() {
            remove_all(&env, std::mem::take(&mut unfinished))?;
        }
        let said_synced = said.map_or_else(LogPosition::default, |live| live.synced);
        let (epoch, synced_here) = self.known_synced;
        let proven = match epoch == self.root.current.epoch {
            true => said_synced.max(synced_here),
            false => said_synced,
        };
        let root = &self.root.current;
        // Only a power cut tears a write so that it cannot be read.
        let may_be_torn = said.is_none_or(|live| !same_boot(live.boot, self.announcer.boot()));
        let known = Known {
            proven,
            told: None,
            may_be_torn,
            may_start_threads: self.may_start_threads,
        };
        let recovered = recover(&env, &dir, root, &known, &*self.store);
        let recovered = recovered.map_err(Failure::Refused)?;
        self.check_shown(&recovered).map_err(fatal)?;
        self.recovered_end = Some(recovered.replay.at());
        if self.supply.is_given_back() {
            self.cut_recovered(None)?;
        }
        self.working = recovered.working;
        // A drop that was lost has left nothing, and one that was found is in the checkpoint that begins the next epoch.
        self.dropped.is_settled();
        self.due.set_aside(&mut self.working.open);
        // The lost slot may be the newer one, and its checkpoint may have taken the place of a base that went since.
        let forgets_base = self.root.other.is_none() && self.working.bases.forget_next();
        let of_bases = self.working.bases.frame_bytes();
        let full_bytes = of_bases.max(self.root.current.checkpoint_bytes);
        self.supply.sizes.note_checkpoint(u64::from(full_bytes));
        // Orphans of whoever was here before.
        self.due.expect_garbage();
        // Named in both slots, the checkpoint would lead the next opening to that base.
        let needs_checkpoint = forgets_base && said.is_none();
        if recovered.frames > 0 || !unfinished.is_empty() || needs_checkpoint {
            // The slot that cannot be read may name one of these, and counts again if a write over it is torn: they stay until
            // both slots name the new epoch, which is later than theirs.
            let epochs = unfinished.iter().map(|(epoch, _)| *epoch);
            let last = epochs.fold(self.root.current.epoch, Epoch::max);
            let epoch = last.next().map_err(Failure::Refused)?;
            self.begin_epoch(epoch, recovered.tail)?;
            remove_all(&env, unfinished)?;
        } else if said.is_none() {
            // `live` names an epoch only once the root that names it is on disk: else that may be in the cache only, and a power
            // cut would lead back to the epoch before it, whose tail was never synced. The name of the root was synced before
            // `live` was made, and what the root names before it was written. So both slots are written again, and no file is
            // made: openings that fail here, one after the other, would each leave one.
            self.root.switch(self.root.current).map_err(fatal)?;
            // Readers that began in the epoch before follow its log for as long as `live` names it: they would not see what the
            // recovery that has written this root found there, and what is shown here.
            let Root { epoch, proven, .. } = self.root.current;
            self.tell(epoch, proven).map_err(fatal)?;
        }
        if let Some(encoder) = self.encoder.clone() {
            self.learn_block_rows(&encoder);
        }
        let state = self.working.publish(self.root.current.epoch);
        self.published.store(state);
        // What was due of the log before is not of this one, which may have nothing unsynced.
        self.note_due();
        Ok(())
    }

    /// Commits that were written and not synced may be gone with the failed sync.
    fn check_shown(&self, recovered: &Recovered) -> Result<()> {
        let shown = CommitNo(self.published.load().visible.load(Ordering::Acquire));
        let in_tail = recovered.tail.iter().map(|(frame, _)| frame.head.id.commit);
        let last = in_tail.max().max(Some(recovered.working.commit));
        if last >= Some(shown) {
            return Ok(());
        }
        let message = "the operating system has lost commits that were not synced yet, on a full disk; \
             close the database and open it again";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Makes the log fit to be written to again, once there is space.
    ///
    /// A failure before anything was written is tried again by whoever comes next; so is one for want of space.
    ///
    /// `for_drop`: for the sake of a table that is dropped; what is kept for a full disk may then be given back.
    pub(super) fn resume(&mut self, for_drop: bool) -> Outcome<()> {
        // A panic leaves it so.
        self.ended = Ended::ForGood;
        let replaced = std::mem::take(&mut self.working.replaced);
        let done = self.recover_again(for_drop);
        match done {
            Ok(()) => {
                self.remember_replaced(replaced);
                self.ended = Ended::No;
                Ok(())
            }
            Err(Failure::Fatal(error)) => Err(Failure::Fatal(error)),
            Err(failure) => {
                // Whole: which tables are left is known only after a recovery that succeeds.
                self.working.replaced = replaced;
                self.ended = Ended::UntilRecovered;
                Err(Failure::Refused(failure.error()))
            }
        }
    }

    /// Replacements that were prepared before are refused as they would have been. The last one of a table may be lost, and
    /// its number that of another commit soon: it then counts as if the last one that was recovered were it.
    fn remember_replaced(&mut self, replaced: BTreeMap<TableId, CommitNo>) {
        let last = self.working.commit;
        for (table, commit) in replaced {
            if self.working.table(table).is_none() {
                continue;
            }
            let known = self.working.replaced.entry(table).or_insert(CommitNo(0));
            *known = commit.min(last).max(*known);
        }
    }

    fn recover_again(&mut self, for_drop: bool) -> Outcome<()> {
        if !for_drop {
            self.check_room_to_resume()?;
        } else if self.supply.must_give_back().map_err(Failure::Refused)? {
            self.supply.give_back();
        }
        // What is known to be on disk need not be written again, for which there may be no room.
        if let Some(log) = &mut self.log
            && let Some(synced) = log.sync_written()
        {
            self.known_synced = (log.epoch(), synced);
        }
        match self.recover_from_root() {
            // Whatever kind of disk it is: there is nothing else that a drop could be done with.
            Err(Failure::Full(error) | Failure::Refused(error))
                if for_drop && error.kind() == ErrorKind::DiskFull =>
            {
                self.supply.give_back();
                self.recover_from_root()
            }
            done => done,
        }
    }

    fn recover_from_root(&mut self) -> Outcome<()> {
        self.log = None;
        self.root = RootFile::open(&self.env, &self.dir, true).map_err(Failure::Refused)?;
        self.recover_log()
    }

    /// Checked first, so that appends to a full disk do not read the log each time.
    fn check_room_to_resume(&self) -> Outcome<()> {
        self.supply.look_for_room();
        // The checkpoints after a drop go on with what was given back for it.
        let may_write = !self.supply.needs_room_in_place() || self.supply.is_given_back();
        if may_write && self.supply.may_have_room() {
            return Ok(());
        }
        let message = "the disk is full: writing goes on once there is space";
        Err(Failure::Refused(Error::new(ErrorKind::DiskFull, message)))
    }

    /// Opens the database on a disk that has no room for what recovery writes: it shows what a reading process would show, and
    /// writing begins once there is room. What an earlier process kept for a full disk stays for a drop.
    ///
    /// Not what the newest slot of the root leads to: the recovery that has failed may have written it, and lost its sync.
    fn show_without_room(&mut self) -> Result<()> {
        self.log = None;
        self.root = RootFile::open(&self.env, &self.dir, true)?;
        let told = self
            .announcer
            .live()
            .told(self.database, self.announcer.boot())?;
        let view = View::of(
            &self.dir,
            &self.root,
            &told,
            self.announcer.boot(),
            Epoch(0),
        )?;
        let recovered = view.recover(&self.env, &self.dir, &self.store)?;
        self.working = recovered.working;
        for (frame, _) in recovered.tail {
            apply(&mut self.working, frame, &*self.store)?;
        }
        self.working.settle_pending(&*self.store);
        let state = self.working.publish(view.from.epoch);
        self.published.store(state);
        self.ended = Ended::UntilRecovered;
        self.full_disk.note_end();
        Ok(())
    }

    /// Gives the file system back what was not written of the log that was recovered: a new epoch begins in a segment of its own,
    /// which is `next` if it has begun.
    pub(super) fn cut_recovered(&self, next: Option<FileId>) -> Outcome<()> {
        let Some(end) = self.recovered_end else {
            return Ok(());
        };
        segment::cut_unwritten(&self.env, &self.dir, end, next).map_err(Failure::Refused)
    }

    /// Before a table is dropped: on a full disk that takes room for writes in place as well, what is kept for this is given
    /// back, and serves the drop from there. Not for replacements: they come by themselves, again and again, and between
    /// two of them another program could take the room.
    pub(super) fn make_room_to_drop(&mut self) -> Outcome<()> {
        if !self.supply.must_give_back().map_err(Failure::Refused)? {
            return Ok(());
        }
        if self.dropped.is_since_checkpoint()
            && self.supply.is_given_back()
            && !self.supply.has_room_to_clean()
        {
            let message = "the disk is full, and what was dropped before is not removed yet: try again, once results and \
                 snapshots that were taken before that are closed";
            return Err(Failure::Refused(Error::new(ErrorKind::DiskFull, message)));
        }
        self.give_back();
        Ok(())
    }

    /// Makes room before the checkpoints that come before files are removed. An opening may find these files.
    pub(super) fn make_room_to_clean(&mut self) -> Outcome<()> {
        if self.supply.must_give_back().map_err(Failure::Refused)? {
            self.give_back();
        }
        Ok(())
    }

    fn give_back(&mut self) {
        self.supply.give_back();
        if let Some(log) = &mut self.log {
            log.cut_unwritten();
            log.keep_for_freeing();
        }
    }
}
