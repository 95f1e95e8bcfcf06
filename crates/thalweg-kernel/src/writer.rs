//! The writing side of an open database: the commit queue and the work that commits call for.
//!
//! Invariants: one thread encodes open rows at a time, so every open row is claimed once; rows are encoded only when they
//! are visible; an append waits while the open rows of all tables that can be encoded exceed their limit, and fails when encoding
//! fails meanwhile for a reason that concerns all tables. One that concerns a table leaves that one aside (`due`).

use crate::block::EncodedBlock;
use crate::commit::{Commit, Durability, Edit, GroupPart};
use crate::compact::compact_segments;
use crate::due::{Due, not_stored};
use crate::error::{Error, ErrorKind, Result};
use crate::failure::refusal;
use crate::fragment::{FragmentWriter, Staged};
use crate::garbage::{self, EMPTY_FRAGMENTS, MAX_EMPTY_FRAGMENTS, Marked};
use crate::ids::{CommitNo, FileId, TableId};
use crate::job::Job;
use crate::leader::Leader;
use crate::limits::fit_one_group;
use crate::open_rows::OpenRows;
use crate::options::{Options, RowEncoder};
use crate::panics::watched;
use crate::pins::Pins;
use crate::queue::CommitQueue;
use crate::reader_slots::{SlotsSeen, mend_slots};
use crate::segment;
use crate::segment_supply::SegmentSupply;
use crate::space_estimates::CLEANING_CHECKPOINTS;
use crate::state::Published;
use crate::state::{Snapshot, TableSnapshot};
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use thalweg_env::sync::{Condvar, Mutex};
use thalweg_env::{Env, File};

/// What a panic is said to have struck.
const ENCODING: &str = "encoding open rows";
const CLEANING: &str = "removing and rewriting files";
/// About so many rows become blocks at once, where there are more: bounds what is encoded and not yet committed.
const MOST_COVER_ROWS: u64 = 1 << 16;
/// How soon a file that could not be removed calls for another round.
const REMOVE_AGAIN_NS: u64 = 10_000_000_000;

pub(crate) struct Writer {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    queue: CommitQueue,
    published: Published,
    pub(crate) store: Arc<Store>,
    pub(crate) supply: Arc<SegmentSupply>,
    pub(crate) due: Arc<Due>,
    encoder: Arc<dyn RowEncoder>,
    encoding: Mutex<()>,
    cleaning: Mutex<()>,
    /// Signalled when the encoder has made room, or failed.
    room: Condvar,
    rounds: Mutex<Rounds>,
    pub(crate) pins: Arc<Pins>,
    /// What reading processes pin, and since when it is in the way.
    pub(crate) slots: Mutex<SlotsSeen>,
    pub(crate) known_uses: Mutex<garbage::KnownUses>,
    /// Segments that the last round of cleaning has left: nothing needs them once there are two more checkpoints.
    pub(crate) left_by_cleaning: Mutex<RangeInclusive<FileId>>,
    /// Empty fragments that the last round of cleaning has left.
    pub(crate) empty_fragments: AtomicUsize,
    /// When the removal of a file failed: it calls for another round some time later.
    not_removed: Mutex<BTreeMap<FileId, u64>>,
    /// Garbage that was left because of snapshots. It stays until they have gone, whatever rounds come after it: each of those
    /// waits for later ones.
    behind_pins: Mutex<Option<garbage::Waiting>>,
    /// Files of fragments that may become part of a table any moment.
    pub(crate) staged: Arc<Mutex<Staged>>,
    background: bool,
    /// Nobody commits any more: the database is about to be closed.
    is_closing: AtomicBool,
    /// Full size of a segment of the log.
    pub(crate) segment_bytes: u64,
    /// Held for as long as the database is open.
    lock: Mutex<Option<Arc<dyn File>>>,
}

impl Writer {
    pub(crate) fn new(
        mut leader: Leader,
        lock: Arc<dyn File>,
        encoder: Arc<dyn RowEncoder>,
        options: &Options,
    ) -> Result<Self> {
        leader.learn_block_rows(&encoder);
        leader.encoder = Some(Arc::clone(&encoder));
        mend_slots(&leader.env, &leader.dir);
        Ok(Self {
            env: leader.env.clone(),
            dir: leader.dir.clone(),
            published: Arc::clone(&leader.published),
            store: Arc::clone(&leader.store),
            supply: Arc::clone(&leader.supply),
            due: Arc::clone(&leader.due),
            staged: Arc::clone(&leader.staged),
            pins: Arc::new(Pins::new(leader.env.owner())),
            slots: Mutex::new(SlotsSeen::new(options.max_snapshot_age)),
            known_uses: Mutex::default(),
            left_by_cleaning: Mutex::new(FileId(0)..=FileId(0)),
            empty_fragments: AtomicUsize::new(0),
            not_removed: Mutex::default(),
            behind_pins: Mutex::new(None),
            queue: CommitQueue::new(leader),
            encoder,
            encoding: Mutex::new(()),
            cleaning: Mutex::new(()),
            room: Condvar::new(),
            rounds: Mutex::default(),
            background: options.background,
            is_closing: AtomicBool::new(false),
            segment_bytes: options.segment_bytes,
            lock: Mutex::new(Some(lock)),
        })
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.pins.snapshot(&self.published, 0)
    }

    pub(crate) fn poison(&self) -> Option<Error> {
        self.queue.poison()
    }

    /// Runs `work`, unless writing has ended, and ends writing if it panics.
    fn work<T>(&self, doing: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.poison() {
            Some(poison) => Err(refusal(&poison)),
            None => self.watched(doing, work),
        }
    }

    /// Runs `work`, and ends writing if it panics.
    pub(crate) fn watched<T>(&self, doing: &str, work: impl FnOnce() -> T) -> T {
        let ends = |error| {
            self.queue.poison_with(error);
            self.room.notify_all();
        };
        watched(doing, ends, work)
    }

    pub(crate) fn submit(&self, job: Job, durability: Durability) -> Result<CommitNo> {
        let fragments = match &job {
            Job::Commit(commit) => commit
                .fragments()
                .map(|(_, root)| root.address.file)
                .collect(),
            Job::Flush | Job::Checkpoint { .. } | Job::CheckpointToFree => Vec::new(),
        };
        let may_be_sent_again = matches!(&job, Job::Commit(commit) if commit.producer.is_some());
        let done = self.queue.submit(job, durability);
        // What was stored before takes no fragments.
        if done.is_err() || may_be_sent_again {
            self.abandon_fragments(fragments);
        }
        done
    }

    /// Fragments that become part of no table: their space is free at once, their names go with the garbage. Those of a
    /// commit that may be in the log are not staged any more, and not touched.
    pub(crate) fn abandon_fragments(&self, files: impl IntoIterator<Item = FileId>) {
        for file in files {
            // Between two batches: another commit may be about to make it part of a table, and finds it gone from here on.
            // Whatever is not staged is part of a table, or gone.
            let was_staged = self.with_leader(|leader| leader.staged.lock().remove(&file));
            if was_staged.is_ok_and(|staged| staged.is_some()) {
                self.store.give_up_file(file);
            }
        }
    }

    /// See [`CommitQueue::with_leader`].
    pub(crate) fn with_leader<T>(&self, look: impl FnOnce(&mut Leader) -> T) -> Result<T> {
        self.queue.with_leader(look)
    }

    pub(crate) fn commit(&self, commit: Commit, durability: Durability) -> Result<CommitNo> {
        if self.is_closing() {
            self.abandon_fragments(commit.fragments().map(|(_, root)| root.address.file));
            return Err(Error::closed());
        }
        if !commit.rows.is_empty() {
            let tables = commit.rows.iter().map(|rows| rows.table);
            let room = self.due.check_stuck(tables);
            if let Err(error) = room.and_then(|()| self.wait_for_room()) {
                self.abandon_fragments(commit.fragments().map(|(_, root)| root.address.file));
                return Err(error);
            }
        }
        let number = self.submit(Job::Commit(commit), durability);
        if !self.background {
            // What becomes of the commit is settled: what fails behind it is met again by the appends that wait for room, or
            // poisons.
            let _ = self.run_due_work();
        }
        number
    }

    fn wait_for_room(&self) -> Result<()> {
        if !self.due.is_full() {
            return Ok(());
        }
        if !self.background {
            let worked = self.run_due_work();
            return match worked {
                Err(error) if self.due.is_full() => Err(not_stored(&error)),
                _ => Ok(()),
            };
        }
        let mut rounds = self.rounds.lock();
        let begun = rounds.ended;
        while self.due.is_full() {
            // Only of a round that has ended since: what failed before may be long past.
            if let Some(error) = rounds.error.as_ref().filter(|_| rounds.ended > begun) {
                return Err(not_stored(error));
            }
            self.due.work.call();
            self.room.wait_for(&mut rounds, Duration::from_millis(50));
            if self.is_closing() {
                return Err(Error::closed());
            }
            if let Some(poison) = self.poison() {
                return Err(refusal(&poison));
            }
        }
        Ok(())
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.submit(Job::Flush, Durability::Disk).map(|_| ())
    }

    /// For whoever adds rows.
    ///
    /// # Errors
    /// `DiskFull` where refused ones have left many names and there is no room to remove them; whatever creating a file leads to.
    pub(crate) fn stage_fragment(&self, table: TableId) -> Result<FragmentWriter> {
        self.check_empty_fragments()?;
        self.stage_fragment_anyway(table)
    }

    fn check_empty_fragments(&self) -> Result<()> {
        let empty = self.empty_fragments.load(Ordering::Relaxed) + self.store.given_up();
        if empty < MAX_EMPTY_FRAGMENTS {
            return Ok(());
        }
        // Where a drop was given the reserve, only looking for room ends that, which else the next small commit does: there may be none.
        let may_clean = |supply: &SegmentSupply| {
            let is_kept_for_drops = supply.is_given_back() && supply.ensure_reserve(0).is_err();
            !is_kept_for_drops && supply.may_clean_now()
        };
        if self.with_leader(|leader| may_clean(&leader.supply))? {
            self.due.expect_garbage();
            self.due.call_for_garbage();
            return Ok(());
        }
        let message = format!(
            "the disk is full: {empty} large appends before this one have found no room, and there is none for the checkpoints that \
             remove the names of their files; small appends may still find some"
        );
        Err(Error::new(ErrorKind::DiskFull, message))
    }

    /// For whoever moves rows, which may free space.
    pub(crate) fn stage_fragment_anyway(&self, table: TableId) -> Result<FragmentWriter> {
        let given_up = self.store.take_given_up(EMPTY_FRAGMENTS);
        if given_up > 0 {
            // The round that is called for counts them anew.
            self.empty_fragments.fetch_add(given_up, Ordering::Relaxed);
            self.due.expect_garbage();
            self.due.call_for_garbage();
        }
        let stage = || FragmentWriter::stage(&self.store, &self.supply, table, &self.staged);
        let staged = stage();
        if segment::is_full(&staged) && self.supply.free.is_overstated() {
            // Only a file that is made tells whether there is room again, and only the leader may make one.
            self.with_leader(|leader| leader.supply.ensure_reserve(0))??;
            return stage();
        }
        staged
    }

    /// Does what commits have called for: blocks of open rows, a checkpoint, segments.
    pub(crate) fn run_due_work(&self) -> Result<()> {
        let encoded = self.encode_and_checkpoint();
        if self.background {
            return encoded;
        }
        if self.supply.wants() {
            self.watched("preparing segments", || self.supply.refill());
        }
        // On a full disk this is what makes room for the rest.
        let cleaned = self.clean();
        encoded.and(cleaned)
    }

    fn encode_and_checkpoint(&self) -> Result<()> {
        let encoded = self.encode_due_tables();
        if encoded.as_ref().is_err_and(stops_all) {
            return encoded;
        }
        // Tables that cannot be encoded keep their open rows; a checkpoint copies them.
        self.checkpoint_if_due().and(encoded)
    }

    fn checkpoint_if_due(&self) -> Result<()> {
        if self.due.take_checkpoint() {
            self.submit(Job::Checkpoint { always: false }, Durability::Disk)?;
        }
        Ok(())
    }

    /// Encodes all tables that need it; those where it fails are left aside for a while. The last error.
    fn encode_due_tables(&self) -> Result<()> {
        let mut failed = Ok(());
        while !self.is_closing() {
            match self.encode_one() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if stops_all(&error) => return Err(error),
                Err(error) => failed = Err(error),
            }
            // Appends may keep this up for as long as they like, and what an opening has to read would grow with it.
            if self.with_leader(|leader| leader.checkpoint_is_overdue())? {
                self.checkpoint_if_due()?;
            }
        }
        failed
    }

    /// Rewrites what segments with little in them still hold, and removes files that nothing needs, if commits may have
    /// left any.
    pub(crate) fn clean(&self) -> Result<()> {
        let _one_at_a_time = self.cleaning.lock();
        if !self.due.take_garbage() {
            return Ok(());
        }
        self.work(CLEANING, || {
            let waited = self.finish_waiting();
            if waited.is_err() {
                self.due.garbage_stays();
            }
            waited.and(self.clean_now())
        })
    }

    fn clean_now(&self) -> Result<()> {
        let is_full = self.due.take_out_of_space();
        let mut marked = Marked::new(self);
        let compacted = match &marked {
            Ok(marked) => compact_segments(self, marked, is_full),
            Err(error) => Err(error.clone()),
        };
        // What cannot be moved, because it cannot be read, keeps nothing else.
        if !matches!(compacted, Ok(false)) {
            drop(marked);
            marked = Marked::new(self);
        }
        let is_partial = marked
            .as_ref()
            .is_ok_and(|marked| !marked.needed.unreadable.is_empty());
        // Removing files takes full checkpoints: those that free less than these wait for others.
        let least_bytes = if is_full {
            0
        } else {
            let full_bytes = self.with_leader(|leader| leader.working.bases.index_bytes())?;
            CLEANING_CHECKPOINTS * full_bytes
        };
        let collected = marked.and_then(|marked| garbage::collect(self, marked, least_bytes));
        let stays = match &collected {
            Ok(collected) => collected.waiting.is_some(),
            Err(_) => true,
        };
        if compacted.is_err() || stays || is_partial {
            self.due.garbage_stays();
        }
        compacted.and(collected.map(|collected| {
            if let Some(waiting) = collected.waiting {
                self.behind_pins.lock().get_or_insert(waiting);
            }
        }))
    }

    /// Removes the garbage that has waited for snapshots, if they are gone by now; returns whether none waits any more.
    fn finish_waiting(&self) -> Result<bool> {
        let Some(waiting) = self.behind_pins.lock().take() else {
            return Ok(true);
        };
        let done = waiting.finish(self)?;
        let waits = done.waiting.is_some();
        *self.behind_pins.lock() = done.waiting;
        Ok(!waits)
    }

    /// Notes a file that could not be removed.
    pub(crate) fn note_not_removed(&self, file: FileId) {
        let now_ns = self.env.clock().monotonic_ns();
        self.not_removed.lock().insert(file, now_ns);
    }

    /// Files that could not be removed a moment ago.
    pub(crate) fn not_removed_lately(&self) -> BTreeSet<FileId> {
        let now_ns = self.env.clock().monotonic_ns();
        let mut not_removed = self.not_removed.lock();
        not_removed.retain(|_, at_ns| now_ns.saturating_sub(*at_ns) < REMOVE_AGAIN_NS);
        not_removed.keys().copied().collect()
    }

    /// Whether garbage waits for snapshots to go.
    pub(crate) fn waits_for_pins(&self) -> bool {
        self.behind_pins.lock().is_some()
    }

    /// Removes what waited for snapshots that are gone by now.
    pub(crate) fn look_at_pins(&self) -> Result<()> {
        if !self.waits_for_pins() {
            return Ok(());
        }
        let _one_at_a_time = self.cleaning.lock();
        let is_done = self.work(CLEANING, || self.finish_waiting());
        if !matches!(is_done, Ok(false)) {
            // There may be more by now.
            self.due.expect_garbage();
        }
        is_done.map(|_| ())
    }

    /// Encodes open rows of a table that needs it; `false`: none does.
    fn encode_one(&self) -> Result<bool> {
        let _one_at_a_time = self.encoding.lock();
        let (next, is_broken) =
            self.with_leader(|leader| (leader.next_to_encode(), leader.awaits_recovery()))?;
        let Some((table, block_rows)) = next else {
            return Ok(false);
        };
        let encoded = self.work(ENCODING, || match is_broken {
            // Rows of the batch that broke count as open, and no snapshot has them: recovering the log counts them anew.
            true => self.flush().map(|()| true).map_err(ends_round),
            false => self.encode_and_note(table, block_rows),
        });
        let mut rounds = self.rounds.lock();
        rounds.ended += 1;
        rounds.error = encoded
            .as_ref()
            .err()
            .filter(|error| stops_all(error))
            .cloned();
        drop(rounds);
        self.room.notify_all();
        encoded
    }

    /// Encodes all open rows of a table.
    pub(crate) fn encode_open_rows(&self, table: TableId) -> Result<()> {
        let _one_at_a_time = self.encoding.lock();
        let encoded = self.work(ENCODING, || self.encode_and_note(table, None));
        encoded.map(|_| ())
    }

    fn encode_and_note(&self, table: TableId, block_rows: Option<u64>) -> Result<bool> {
        let encoded = self.encode_table(table, block_rows);
        let failed = encoded.as_ref().err().cloned();
        if !failed.as_ref().is_some_and(stops_all) {
            let now_ns = self.env.clock().monotonic_ns();
            let was_stuck = self.due.note_encoded(table, failed, now_ns);
            if was_stuck || encoded.is_err() {
                let failed_ns = encoded.is_err().then_some(now_ns);
                self.with_leader(|leader| {
                    let open = &mut leader.working.open;
                    open.note_encoded(table, failed_ns);
                    leader.due.note_open(open)
                })?;
            }
        }
        encoded
    }

    fn encode_table(&self, table: TableId, block_rows: Option<u64>) -> Result<bool> {
        let Some(table) = self.snapshot().table(table) else {
            return Ok(false);
        };
        let rows = rows_to_encode(&table, block_rows);
        let Some(last) = rows.last() else {
            return Ok(false);
        };
        let blocks = self.encoder.encode(&table, &rows)?;
        let encoded: u64 = blocks.iter().map(|b| b.entry.rows).sum();
        let given: u64 = rows.iter().map(|r| u64::from(r.part.rows)).sum();
        // Nothing but the rows themselves tells whether what is said of them is true.
        if encoded != given {
            let place = format_args!("open rows of table \"{}\"", table.name);
            let what = format_args!("they are said to be {given}, and {encoded} are there");
            return Err(Error::corruption(place, what));
        }
        let commit = self.cover(&table, blocks, last.commit)?;
        match self.submit(Job::Commit(commit), Durability::Memory) {
            Ok(_) => Ok(true),
            // Dropped or altered meanwhile: the next round looks again.
            Err(e) if matches!(e.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => Ok(true),
            Err(e) => Err(e),
        }
    }

    /// The commit that puts blocks in the place of the open rows up to `covered`. Blocks that do not fit one frame go to a
    /// fragment: rows between many barriers, or in many splits, make a block each, and rows once stored must become blocks
    /// however wide or scattered they are.
    fn cover(
        &self,
        table: &TableSnapshot,
        mut blocks: Vec<EncodedBlock>,
        covered: CommitNo,
    ) -> Result<Commit> {
        let (covers, definition_version) = (Some(covered), table.definition_version);
        let table = table.id;
        if fit_one_group(&blocks) {
            let group = GroupPart {
                table,
                definition_version,
                blocks,
                covers,
            };
            return Ok(Commit {
                groups: vec![group],
                ..Commit::default()
            });
        }
        let mut fragment = self.stage_fragment_anyway(table)?;
        for (ordinal, block) in (0..).zip(&mut blocks) {
            block.entry.ordinal = ordinal;
            fragment.add_block(block)?;
        }
        let add = Edit::AddFragments {
            table,
            definition_version,
            covers,
            roots: vec![fragment.finish()?],
        };
        Ok(Commit {
            edits: vec![add],
            ..Commit::default()
        })
    }

    pub(crate) fn collect_garbage(&self) -> Result<usize> {
        let _one_at_a_time = self.cleaning.lock();
        // Who asks for it may have seen to what was in the way.
        self.not_removed.lock().clear();
        self.work(CLEANING, || {
            let marked = Marked::new(self)?;
            garbage::collect(self, marked, 0).map(|collected| collected.files)
        })
    }

    /// Takes no commits any more, so that what they keep busy comes to an end.
    pub(crate) fn begin_closing(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.room.notify_all();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// After the background has stopped.
    pub(crate) fn close(&self) -> Result<()> {
        let Some(lock) = self.lock.lock().take() else {
            return Ok(());
        };
        let last = match self.poison() {
            None => self
                .submit(Job::Checkpoint { always: false }, Durability::Disk)
                // What it would hold is in the log, which the next opening reads.
                .or_else(|error| match error.kind() {
                    ErrorKind::DiskFull => self.submit(Job::Flush, Durability::Disk),
                    _ => Err(error),
                })
                // An old root is told by a newer `live`.
                .and_then(|_| self.with_leader(|leader| leader.live.sync())?),
            Some(poison) => Err(refusal(&poison)),
        };
        // Its files are closed with it, and nothing more is prepared.
        let leader = self.queue.close();
        self.supply.release();
        // Another process may write from here.
        let live_unlocked = leader.map_or(Ok(()), |mut leader| leader.live.unlock());
        // A child of a fork may hold the file open as well, and with it the lock.
        let unlocked = lock.unlock(0..1);
        last.and(live_unlocked)
            .and(unlocked.map_err(|e| Error::io("giving back the lock", e)))
    }
}

/// How the encodings of tables that needed it have ended, for the appends that wait for room.
#[derive(Default)]
struct Rounds {
    ended: u64,
    /// Of the last one, if it concerns all tables.
    error: Option<Error>,
}

/// Without a log no table can be encoded, whatever it was that kept the log from being recovered.
fn ends_round(error: Error) -> Error {
    if stops_all(&error) {
        return error;
    }
    Error::with_source(ErrorKind::Unavailable, error.message().to_owned(), error)
}

/// Whether an error of encoding a table meets every other one as well.
fn stops_all(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::DiskFull | ErrorKind::Unavailable)
}

/// Whole commits from the front: all of them, or as many as fill whole blocks.
fn rows_to_encode(table: &TableSnapshot, block_rows: Option<u64>) -> Vec<OpenRows> {
    let total: u64 = table.open_rows().map(|r| u64::from(r.part.rows)).sum();
    let Some(block_rows) = block_rows else {
        return table.open_rows().cloned().collect();
    };
    let most_rows = MOST_COVER_ROWS.max(block_rows) / block_rows * block_rows;
    let wanted = (total / block_rows * block_rows).min(most_rows);
    let mut taken = 0;
    let mut rows: Vec<OpenRows> = Vec::new();
    for open in table.open_rows() {
        let next = taken + u64::from(open.part.rows);
        // Only between commits: a cover takes all of a commit, of which a table may have several parts.
        let begins_commit = rows.last().is_none_or(|last| last.commit != open.commit);
        if wanted == 0 || (begins_commit && next > wanted && taken > 0) {
            break;
        }
        taken = next;
        rows.push(open.clone());
    }
    rows
}
