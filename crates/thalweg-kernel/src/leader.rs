//! What one thread at a time does with the log: build frames, write, sync, publish.
//!
//! Invariants: a commit is validated against the state that holds all commits before it, then put into the pending bytes and
//! applied; it is visible, and its caller answered, only after the write, and the sync where anyone of its batch asked
//! for one. In a batch where nobody does, frames of rows say so, and reading processes find them by themselves; of all
//! others `live` tells. Pages that a commit needs are loaded before anything of it is done: one that cannot be read refuses
//! that commit and nothing else. Between applying and writing nothing can fail but the write itself: for want of space it ends
//! writing until the log was recovered (`resume`), else for good. So the state in memory never holds what the log does not,
//! except behind that, where nobody can see it.

use crate::announcer::{Announcement, Announcer};
use crate::bases::BuildsOn;
use crate::change::Change;
use crate::commit::{Commit, Durability, Edit};
use crate::dropped::Dropped;
use crate::due::Due;
use crate::error::{Error, ErrorKind, Result};
use crate::failure::{Broken, Failure, Outcome, fatal, outcome_unknown};
use crate::fragment::{FragmentWriter, Staged};
use crate::frame::{FrameBuilder, SECTOR_BYTES};
use crate::full_disk::FullDisk;
use crate::ids::{CommitNo, DatabaseId, Epoch, FileId, LogPosition, TableId};
use crate::index::HeldPages;
use crate::job::{Job, Wants};
use crate::limits::{check_commit, check_frame};
use crate::live::PinPlace;
use crate::log_writer::LogWriter;
use crate::lowered::{build, lower};
use crate::options::RowEncoder;
use crate::paths::segment_path;
use crate::purpose::Purpose;
use crate::recover::apply_at;
use crate::replay::Frame;
use crate::root::RootFile;
use crate::segment::LogFolder;
use crate::segment_supply::{SegmentSupply, Wanted};
use crate::space_estimates::LEAST_RESERVE_CHECKPOINTS;
use crate::state::Published;
use crate::store::Store;
use crate::working::Working;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_env::Env;
use thalweg_env::sync::Mutex;
use thalweg_env::sync::atomic::Ordering;

/// Above this a commit waits for a sync, whatever its durability.
pub(crate) const UNSYNCED_LIMIT_BYTES: u64 = 4 << 20;

/// Whether the log can be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    No,
    /// A write or a sync failed for want of space, or a page could not be read that a commit changes: nothing is written
    /// before the log was recovered.
    UntilRecovered,
    /// A write or a sync failed, or a thread panicked in one, or the database is closed.
    ForGood,
}

/// The state of the one writer.
pub(crate) struct Leader {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) database: DatabaseId,
    pub(crate) working: Working,
    /// `None` until the first commit of this opening: a new epoch then begins.
    pub(crate) log: Option<LogWriter>,
    /// Where the log ended that was recovered last.
    pub(crate) recovered_end: Option<LogPosition>,
    pub(crate) root: RootFile,
    pub(crate) announcer: Announcer,
    pub(crate) store: Arc<Store>,
    pub(crate) supply: Arc<SegmentSupply>,
    pub(crate) published: Published,
    pub(crate) due: Arc<Due>,
    /// Fragments that are written and not yet part of a table.
    pub(crate) staged: Arc<Mutex<Staged>>,
    pub(crate) encoder: Option<Arc<dyn RowEncoder>>,
    pub(crate) builder: FrameBuilder,
    /// Memory for the changes of a commit, used again.
    pub(crate) changes: Vec<Change>,
    pub(crate) ended: Ended,
    pub(crate) full_disk: FullDisk,
    /// What was synced of an epoch before a recovery in this handle.
    pub(crate) known_synced: (Epoch, LogPosition),
    pub(crate) dropped: Dropped,
}

impl Leader {
    /// Does the jobs in order; `answer` gets one result each. Where the batch breaks, those hold that were settled, and
    /// refusals; its error is the result of all others.
    pub(crate) fn run(
        &mut self,
        jobs: impl Iterator<Item = (Job, Durability)>,
        wants: Wants,
        answer: &mut impl FnMut(Result<CommitNo>),
    ) -> Result<(), Broken> {
        if self.awaits_recovery() {
            self.resume(wants.freed_space)?;
        }
        self.check_not_ended().map_err(fatal)?;
        self.announcer.begin_batch(wants.sync);
        // A panic leaves it so.
        self.ended = Ended::ForGood;
        let mut settled = 0;
        let Err(failure) = self.run_jobs(jobs, answer, &mut settled) else {
            self.ended = Ended::No;
            return Ok(());
        };
        let failure = match failure {
            Failure::Fatal(error) => {
                let until = "the database is opened anew";
                fatal(outcome_unknown(&error, until))
            }
            failure => {
                if matches!(failure, Failure::Full(_)) {
                    self.full_disk.note_end();
                }
                self.ended = Ended::UntilRecovered;
                Failure::Refused(outcome_unknown(&failure.error(), "writing goes on"))
            }
        };
        Err(Broken { failure, settled })
    }

    /// Whether a batch broke, and the next job begins by recovering the log.
    pub(crate) fn awaits_recovery(&self) -> bool {
        self.ended == Ended::UntilRecovered
    }

    fn check_not_ended(&self) -> Result<()> {
        if self.ended == Ended::No {
            return Ok(());
        }
        let message = "the database takes no more writes until it is opened anew";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    fn run_jobs(
        &mut self,
        jobs: impl Iterator<Item = (Job, Durability)>,
        answer: &mut impl FnMut(Result<CommitNo>),
        settled: &mut usize,
    ) -> Outcome<()> {
        let mut sync = false;
        for (done, (job, durability)) in jobs.enumerate() {
            let outcome = match job {
                Job::Commit(commit) => self.accept(commit),
                Job::Flush => Ok(self.working.commit),
                Job::Checkpoint { always } => {
                    self.settle(std::mem::take(&mut sync)).map_err(fatal)?;
                    *settled = done;
                    self.ordinary_checkpoint(always)
                }
                Job::CheckpointToFree => {
                    self.settle(std::mem::take(&mut sync)).map_err(fatal)?;
                    *settled = done;
                    self.checkpoint_to_free()
                }
            };
            answer(match outcome {
                Ok(commit) => {
                    sync |= durability == Durability::Disk;
                    Ok(commit)
                }
                Err(Failure::Refused(error)) => {
                    if error.kind() == ErrorKind::DiskFull {
                        self.call_for_space();
                    }
                    Err(error)
                }
                Err(failure) => return Err(failure),
            });
        }
        self.settle(sync).map_err(fatal)
    }

    /// Writes a checkpoint that leaves room for a drop. If the full disk has none, it is not tried again for a while: its size is known
    /// only once it is built.
    fn ordinary_checkpoint(&mut self, always: bool) -> Outcome<CommitNo> {
        let done = self.checkpoint(always, Purpose::Checkpoint);
        let is_full = |failure: &Failure| matches!(failure, Failure::Refused(e) if e.kind() == ErrorKind::DiskFull);
        let is_refused = done.as_ref().is_err_and(is_full);
        self.full_disk
            .note_checkpoint(is_refused, self.env.clock().monotonic_ns());
        done
    }

    fn call_for_space(&mut self) {
        let now_ns = self.env.clock().monotonic_ns();
        if self.full_disk.should_seek(self.working.commit, now_ns) {
            self.due.space_is_out();
        }
    }

    /// Puts a commit behind the pending frames and applies it.
    fn accept(&mut self, commit: Commit) -> Outcome<CommitNo> {
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
            .map_err(Failure::Refused)?;
        let number = self.working.commit.next().map_err(Failure::Refused)?;
        if commit.drops_tables() {
            self.make_room_to_drop()?;
            self.ensure_epoch_to_drop()?;
        } else {
            self.ensure_epoch_beside_reserve()?;
        }
        let mut changes = std::mem::take(&mut self.changes);
        changes.clear();
        let mut lowered =
            lower(commit, number, self.working.next_table, changes).map_err(Failure::Refused)?;
        // What applying will ask for is there from here on: else a page that cannot be read would be found behind the frame.
        let store = Arc::clone(&self.store);
        let pages = HeldPages::new(&*store);
        self.working
            .validate(&lowered.changes, &pages)
            .map_err(Failure::Refused)?;
        build(&mut self.builder, &mut lowered).map_err(Failure::Refused)?;
        let frame_bytes = self.builder.frame_bytes() as u64;
        check_frame(frame_bytes).map_err(Failure::Refused)?;
        let page_bytes = pages.bytes();
        let purpose = match lowered.frees_space {
            true if lowered.changes.iter().any(drops_table) => Purpose::Drop,
            true => Purpose::Replacement,
            false if page_bytes > 0 || lowered.changes.iter().any(adds_files) => Purpose::Pages,
            false => Purpose::Rows,
        };
        let blocks = lowered.blocks.iter().flatten();
        let blocks_bytes: u64 = blocks.map(|block| block.len() as u64).sum();
        // Open rows are in each checkpoint behind them; what leads to blocks, and the pages that change, in the first.
        let in_checkpoints = LEAST_RESERVE_CHECKPOINTS * (frame_bytes - blocks_bytes) + page_bytes;
        self.room(frame_bytes, in_checkpoints, purpose)?;
        let at = self.push_frame(number, lowered.blocks, lowered.is_small)?;
        let mut changes = lowered.changes;
        if changes.iter().any(frees_files) {
            self.due.expect_garbage();
            if changes.iter().any(drops_table) {
                self.dropped.note(number, self.written_segment());
            }
        }
        let fragments: Vec<FileId> = changes.iter().flat_map(fragment_files).collect();
        self.working
            .apply(number, changes.drain(..), at, &pages)
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
        for (table, root) in commit.fragments() {
            let file = root.address.file;
            let message = match staged.get(&file) {
                Some(own) if *own == table => continue,
                Some(own) => format!(
                    "fragment {:x} has blocks of table {}: it cannot become part of table {}",
                    file.0, own.0, table.0
                ),
                None => format!("fragment {:x} is not staged, or no longer", file.0),
            };
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(())
    }

    pub(crate) fn push_frame(
        &mut self,
        number: CommitNo,
        blocks: Vec<Vec<Vec<u8>>>,
        is_small: bool,
    ) -> Outcome<LogPosition> {
        let log = self.log.as_mut().ok_or_else(|| fatal(no_epoch()))?;
        let shown_on_write = self.announcer.shows_on_write(is_small);
        Ok(log.push(number, &self.builder, blocks, shown_on_write))
    }

    /// Writes, syncs if asked, publishes, tells the readers.
    fn settle(&mut self, sync: bool) -> Result<()> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        log.write()
            .inspect_err(|e| self.supply.note_failed_write(e))?;
        // Half of what the next commit may find unsynced: else that one would have to sync first.
        let unsynced_bytes = log.unsynced_bytes();
        let lacks_room = unsynced_bytes > self.supply.tail_room() / 2;
        if lacks_room {
            self.supply
                .expect_tail(2 * UNSYNCED_LIMIT_BYTES.min(log.capacity_bytes()));
        }
        if sync || lacks_room || unsynced_bytes > UNSYNCED_LIMIT_BYTES {
            log.sync()?;
            self.announcer.fall_behind();
        }
        self.publish()
    }

    /// Makes what was done visible, and notes what it calls for.
    pub(crate) fn publish(&mut self) -> Result<()> {
        if self.working.changed {
            if let Some(encoder) = self.encoder.clone() {
                self.learn_block_rows(&encoder);
            }
            self.published
                .store(self.working.publish(self.root.current.epoch));
        } else {
            self.published
                .load()
                .visible
                .store(self.working.commit.0, Ordering::Release);
        }
        if self.announcer.is_behind() {
            self.write_live()?;
        }
        self.note_due();
        Ok(())
    }

    /// Asks the layer above how many rows make a block, for tables that have got their first open rows or another
    /// definition.
    pub(crate) fn learn_block_rows(&mut self, encoder: &Arc<dyn RowEncoder>) {
        for table in self.working.open.take_unknown() {
            let Some(state) = self.working.table(table) else {
                continue;
            };
            // Whoever encodes the rows meets the same error, and leaves this table aside.
            let block_rows = encoder
                .block_rows(state)
                .map_or(1, |rows| u64::from(rows.max(1)));
            self.working.open.set_block_rows(table, block_rows);
        }
    }

    /// Tells the background what there is to do.
    pub(crate) fn note_due(&mut self) {
        let repeated_bytes = self.working.repeated_bytes();
        let unsaved_bytes = self.working.unsaved_bytes();
        let longest_page_bytes = self.working.longest_page_bytes;
        self.supply.sizes.note_longest_page(longest_page_bytes);
        self.supply.expect_checkpoint(repeated_bytes, unsaved_bytes);
        self.due.note_unsynced(self.unsynced_bytes() > 0);
        let checkpoint = self.checkpoint_is_due()
            && !self
                .full_disk
                .refused_checkpoint_lately(self.env.clock().monotonic_ns());
        if checkpoint {
            self.due.expect_checkpoint();
        }
        let much_is_open = self.due.note_open(&mut self.working.open);
        if self.working.open.take_filled() || checkpoint || much_is_open {
            self.due.work.call();
        }
        self.due.call_for_garbage();
    }

    /// The table whose open rows are to be encoded next, and how many make a block; `None`: all of them, as a short
    /// block, because open rows take too much room.
    pub(crate) fn next_to_encode(&mut self) -> Option<(TableId, Option<u64>)> {
        let open = &mut self.working.open;
        self.due.try_again(open, self.env.clock().monotonic_ns());
        if let Some((table, open)) = open.next_full() {
            return Some((table, Some(open.block_rows)));
        }
        let much_is_open = self.due.note_open(open);
        let largest = open.next_large();
        largest.filter(|_| much_is_open).map(|table| (table, None))
    }

    /// Tells reading processes what they may show.
    pub(crate) fn write_live(&mut self) -> Result<()> {
        match &self.log {
            Some(log) => self.tell(log.epoch(), log.synced()),
            None => Ok(()),
        }
    }

    /// The same of an epoch that both slots of the root name, on disk, and of which so much is synced.
    pub(crate) fn tell(&mut self, epoch: Epoch, synced: LogPosition) -> Result<()> {
        let told = self.announcer.tell(&Announcement {
            epoch,
            synced,
            visible: self.working.commit,
            checkpoint: self.root.current.checkpoint,
        });
        told.inspect_err(|e| self.supply.note_failed_write(e))
    }

    /// The first segment that a recovery from either root slot would read.
    pub(crate) fn oldest_replayed_segment(&self) -> FileId {
        let current = self.root.current.checkpoint.segment;
        self.root
            .other
            .map_or(FileId(0), |other| other.checkpoint.segment.min(current))
    }

    /// The first segment that a recovery from either root slot would read anything of, or that the next checkpoint builds on.
    pub(crate) fn oldest_needed_segment(&self) -> FileId {
        let replayed = self.oldest_replayed_segment();
        let of_bases = self.working.bases.first_segment();
        of_bases.map_or(replayed, |first| first.min(replayed))
    }

    /// The segment that is written to, or would be replayed last.
    pub(crate) fn written_segment(&self) -> FileId {
        let end = self.log.as_ref().map(LogWriter::end);
        end.map_or(self.root.current.checkpoint.segment, |end| end.segment)
    }

    /// Files that only snapshots before `commit` need may go from now on: reading processes are told so. On an error they
    /// may not.
    pub(crate) fn raise_gc_floor(&mut self, commit: CommitNo) -> Result<()> {
        // Behind a failure the state holds commits that must not be told of.
        self.check_not_ended()?;
        // `live` is of an epoch that was begun.
        if self.log.is_none() {
            return Err(no_epoch());
        }
        let epoch = self.root.current.epoch;
        self.announcer.raise_floor(PinPlace { epoch, commit });
        self.write_live()
    }

    /// Bytes that a power cut could take now.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.log.as_ref().map_or(0, LogWriter::unsynced_bytes)
    }

    pub(crate) fn checkpoint_is_due(&self) -> bool {
        self.working.since_checkpoint.is_due()
    }

    /// Whether one is due that other work must not keep waiting.
    pub(crate) fn checkpoint_is_overdue(&self) -> bool {
        self.working.since_checkpoint.is_overdue()
    }

    /// A file for blocks of a table.
    pub(crate) fn stage_fragment(&self, table: TableId) -> Result<FragmentWriter> {
        FragmentWriter::stage(&self.store, &self.supply, table, &self.staged)
    }

    /// Frees the space of all fragments that are part of no table yet.
    pub(crate) fn give_up_staged(&self) {
        for (id, _) in self.staged.lock().drain() {
            self.store.give_up_file(id);
        }
    }

    /// A new epoch, if this opening has none yet.
    pub(crate) fn ensure_epoch(&mut self) -> Outcome<()> {
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
        let (first, unnamed) = (prepared.id, prepared.unnamed.clone());
        let mut log = LogWriter::begin(self.database, epoch, prepared, None);
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
        // From here on the root may name the epoch, whatever becomes of the call.
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
}

/// The files that a change makes part of a table.
fn fragment_files(change: &Change) -> Vec<FileId> {
    match change {
        Change::Edit(Edit::AddFragments { roots: added, .. } | Edit::Replace { added, .. }) => {
            added.iter().map(|root| root.address.file).collect()
        }
        _ => Vec::new(),
    }
}

fn adds_files(change: &Change) -> bool {
    matches!(change, Change::Edit(Edit::AddFragments { .. }))
}

fn frees_files(change: &Change) -> bool {
    matches!(
        change,
        Change::Edit(Edit::DropTable { .. } | Edit::Replace { .. })
    )
}

fn drops_table(change: &Change) -> bool {
    matches!(change, Change::Edit(Edit::DropTable { .. }))
}

pub(crate) fn no_epoch() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the log of this opening was not begun",
    )
}
