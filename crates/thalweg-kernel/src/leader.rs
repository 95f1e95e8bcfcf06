//! The work of the one thread at a time that has the log: it builds frames, writes, syncs and publishes.
//!
//! Invariants: a commit is validated against the state that holds all commits before it, then put into the pending bytes and
//! applied; it is visible, and its caller answered, only after the write, and the sync where anyone of its batch asked
//! for one. In a batch where nobody does, frames of rows are marked so, and reading processes find them by themselves; all
//! others are announced by `live`. Pages that a commit needs are loaded before anything of it is done: one that cannot be
//! read refuses that commit and nothing else. Between applying and writing nothing can fail but the write itself: for want
//! of space it ends writing until the log was recovered (`recovery`), else for good. So the state in memory never holds
//! what the log does not, except after such a failure, where nobody can see it.

mod accept;
mod checkpoints;
mod epochs;
mod publish;
mod recovery;
mod room;

use crate::announcer::Announcer;
use crate::change::Change;
use crate::commit::{Commit, Durability, Producer};
use crate::dropped::Dropped;
use crate::due::Due;
use crate::error::{Error, ErrorKind, Result};
use crate::failure::{Broken, Failure, Outcome, fatal, outcome_unknown};
use crate::file_uses::KnownUses;
use crate::fragment::{FragmentWriter, Staged};
use crate::frame::FrameBuilder;
use crate::full_disk::FullDisk;
use crate::ids::{CommitNo, DatabaseId, Epoch, FileId, LogPosition, TableId};
use crate::job::{Job, Wants};
use crate::live::{LiveFile, PinPlace};
use crate::log_writer::LogWriter;
use crate::options::{Options, RowEncoder};
use crate::producers::RefusedProducers;
use crate::purpose::Purpose;
use crate::root::RootFile;
use crate::segment_supply::SegmentSupply;
use crate::state::Published;
use crate::store::Store;
use crate::working::Working;
use arc_swap::ArcSwap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_env::Env;
use thalweg_env::sync::Mutex;

/// Above this a commit waits for a sync, whatever its durability.
const UNSYNCED_LIMIT_BYTES: u64 = 4 << 20;

/// Whether the log can be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    No,
    /// A write or a sync failed for want of space, or a page could not be read that a commit changes: nothing is written
    /// before the log was recovered.
    UntilRecovered,
    /// A write or a sync failed, or a thread panicked in one, or the database is closed.
    ForGood,
}

/// State that the leader shares with those who work beside it.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) published: Published,
    pub(crate) store: Arc<Store>,
    pub(crate) supply: Arc<SegmentSupply>,
    pub(crate) due: Arc<Due>,
    pub(crate) staged: Arc<Mutex<Staged>>,
}

/// The state of the one writer.
pub(crate) struct Leader {
    env: Env,
    dir: PathBuf,
    database: DatabaseId,
    working: Working,
    /// `None` until the first commit of this opening: a new epoch then begins.
    log: Option<LogWriter>,
    /// Where the log ended that was recovered last.
    recovered_end: Option<LogPosition>,
    root: RootFile,
    announcer: Announcer,
    store: Arc<Store>,
    supply: Arc<SegmentSupply>,
    published: Published,
    due: Arc<Due>,
    /// Fragments that are written and not yet part of a table.
    staged: Arc<Mutex<Staged>>,
    encoder: Option<Arc<dyn RowEncoder>>,
    builder: FrameBuilder,
    /// Memory for the changes of a commit, used again.
    changes: Vec<Change>,
    ended: Ended,
    full_disk: FullDisk,
    refused: RefusedProducers,
    /// How far an epoch was synced before a recovery in this handle.
    known_synced: (Epoch, LogPosition),
    dropped: Dropped,
    /// Whether opening may have a second thread do what need not wait for the rest.
    may_start_threads: bool,
}

impl Leader {
    /// The leader of a database whose state is that of `root`, or still to be recovered; its log is not begun.
    ///
    /// # Errors
    /// When `live` cannot be opened.
    pub(crate) fn new(
        env: &Env,
        dir: &Path,
        options: &Options,
        root: RootFile,
        supply: Arc<SegmentSupply>,
        mut working: Working,
    ) -> Result<Self> {
        let database = root.current.database;
        let store = Arc::new(Store::new(
            env.clone(),
            dir.to_owned(),
            database,
            options.cache_bytes,
        ));
        let live = LiveFile::open_writer(env, dir)?;
        let published = Arc::new(ArcSwap::new(working.publish(root.current.epoch)));
        Ok(Self {
            env: env.clone(),
            dir: dir.to_owned(),
            database,
            working,
            log: None,
            recovered_end: None,
            root,
            announcer: Announcer::new(live, database, env.clock().boot_id()),
            store,
            supply,
            published,
            due: Arc::new(Due::default()),
            staged: Arc::default(),
            encoder: None,
            builder: FrameBuilder::default(),
            changes: Vec::new(),
            ended: Ended::No,
            full_disk: FullDisk::default(),
            refused: RefusedProducers::default(),
            known_synced: (Epoch::default(), LogPosition::default()),
            dropped: Dropped::default(),
            may_start_threads: options.background,
        })
    }

    /// The state that the leader shares with those who work beside it.
    pub(crate) fn shared(&self) -> Shared {
        Shared {
            env: self.env.clone(),
            dir: self.dir.clone(),
            published: Arc::clone(&self.published),
            store: Arc::clone(&self.store),
            supply: Arc::clone(&self.supply),
            due: Arc::clone(&self.due),
            staged: Arc::clone(&self.staged),
        }
    }

    /// Whoever knows how many rows make a block.
    pub(crate) fn set_encoder(&mut self, encoder: &Arc<dyn RowEncoder>) {
        self.learn_block_rows(encoder);
        self.encoder = Some(Arc::clone(encoder));
    }

    /// The announcer, through which reading processes learn of commits.
    pub(crate) fn announcer(&self) -> &Announcer {
        &self.announcer
    }

    pub(crate) fn announcer_mut(&mut self) -> &mut Announcer {
        &mut self.announcer
    }

    /// Drops whose files are not removed yet.
    pub(crate) fn dropped(&self) -> &Dropped {
        &self.dropped
    }

    pub(crate) fn dropped_mut(&mut self) -> &mut Dropped {
        &mut self.dropped
    }

    pub(crate) fn root(&self) -> &RootFile {
        &self.root
    }

    /// All commits, those included that are not visible yet.
    pub(crate) fn working(&self) -> &Working {
        &self.working
    }

    /// Learns what trees take of files of which nothing was known.
    pub(crate) fn learn_uses(&mut self, found: Vec<((TableId, u32), Arc<KnownUses>)>) {
        self.working.learn_uses(found);
    }

    /// For a repair, which begins an epoch with the state that it makes.
    pub(crate) fn working_mut(&mut self) -> &mut Working {
        &mut self.working
    }

    /// Does the jobs in order; `answer` gets one result each. Where the batch breaks, those hold that were settled, and
    /// refusals; its error is the result of all others.
    pub(crate) fn run(
        &mut self,
        jobs: impl Iterator<Item = (Job, Durability)>,
        wants: Wants,
        answer: &mut impl FnMut(Result<CommitNo>),
    ) -> Result<(), Broken> {
        let (mut jobs, mut settled, mut unknown) = (jobs, 0, Vec::new());
        let ran = match self.begin(wants) {
            Ok(()) => self.run_jobs(&mut jobs, answer, (&mut settled, &mut unknown)),
            Err(broken) => {
                self.note_unknown(std::iter::empty(), jobs);
                return Err(broken);
            }
        };
        let Err(failure) = ran else {
            self.ended = Ended::No;
            return Ok(());
        };
        let unknown = { unknown.into_iter() }.filter(|(done, _)| *done >= settled);
        self.note_unknown(unknown.map(|(_, producer)| producer), jobs);
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

    fn begin(&mut self, wants: Wants) -> Result<(), Broken> {
        self.supply.end_pause();
        if self.awaits_recovery() {
            self.resume(wants.freed_space)?;
        }
        self.check_not_ended().map_err(fatal)?;
        self.announcer.begin_batch(wants.sync);
        // A panic leaves it so.
        self.ended = Ended::ForGood;
        Ok(())
    }

    /// Notes the producers of a batch that broke: it is not known whether these commits are stored, nor those that are left of it.
    fn note_unknown(
        &mut self,
        unknown: impl Iterator<Item = Producer>,
        left: impl Iterator<Item = (Job, Durability)>,
    ) {
        let left = left.filter_map(|(job, _)| job.later_producer());
        unknown
            .chain(left)
            .for_each(|producer| self.refused.note(&producer));
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
        jobs: &mut impl Iterator<Item = (Job, Durability)>,
        answer: &mut impl FnMut(Result<CommitNo>),
        (settled, unknown): (&mut usize, &mut Vec<(usize, Producer)>),
    ) -> Outcome<()> {
        let mut sync = false;
        for (done, (job, durability)) in jobs.enumerate() {
            let later = job.later_producer();
            let noted = job.producer().filter(|it| self.refused.has(it));
            unknown.extend(later.or(noted).map(|producer| (done, producer)));
            let outcome = match job {
                Job::Commit(commit) | Job::CommitLater(commit) => {
                    let outcome = self.accept_in_turn(commit, &mut sync, (done, settled));
                    if let (Some(producer), Err(Failure::Refused(_))) = (&later, &outcome) {
                        self.refused.note(producer);
                    }
                    outcome
                }
                Job::Move(moved) => {
                    let table = self.working.table(moved.edit.table).cloned();
                    let commit = moved.carried(table.as_ref().and_then(|table| table.masks()));
                    self.accept_within_room(commit, &mut sync, (done, settled))
                }
                Job::Cover(cover) => {
                    let table = self.working.table(cover.table).cloned();
                    let commit = cover.carried(table.as_ref().and_then(|table| table.masks()));
                    self.accept_within_room(commit, &mut sync, (done, settled))
                }
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

    /// Takes a commit, unless it comes after one of its producer that was refused and is not stored since.
    fn accept_in_turn(
        &mut self,
        commit: Commit,
        sync: &mut bool,
        (done, settled): (usize, &mut usize),
    ) -> Outcome<CommitNo> {
        let Some(producer) = commit.producer else {
            return self.accept_within_room(commit, sync, (done, settled));
        };
        let last_sequence = self.working.last_sequence(&producer);
        self.refused.forget_stored(&producer, last_sequence);
        self.refused.check(&producer).map_err(Failure::Refused)?;
        let accepted = self.accept_within_room(commit, sync, (done, settled));
        if accepted.is_ok() {
            self.refused.forget(&producer);
        }
        accepted
    }

    /// Notes a commit that was refused before it came here, and whose producer does not know it.
    pub(crate) fn note_refused(&mut self, producer: &Producer) {
        self.refused.note(producer);
    }

    /// Takes a commit, the first after `done` jobs; after a checkpoint where more index pages would wait to be written
    /// than one takes. Drops add none, and a full disk that has no room for the checkpoint must have some for them.
    #[inline]
    fn accept_within_room(
        &mut self,
        commit: Commit,
        sync: &mut bool,
        (done, settled): (usize, &mut usize),
    ) -> Outcome<CommitNo> {
        if self.working.since_checkpoint.is_full() && !commit.drops_tables() {
            self.settle(std::mem::take(sync)).map_err(fatal)?;
            *settled = done;
            match self.ordinary_checkpoint(false) {
                Err(error) if error.finds_no_room() && self.as_drop(&commit).is_some() => {
                    self.checkpoint(false, Purpose::CheckpointToFree)?
                }
                done => done?,
            };
        }
        self.accept(commit)
    }

    /// Writes a checkpoint that leaves room for a drop. If the full disk has none, it is not tried again for a while: its size
    /// is known only once it is built.
    fn ordinary_checkpoint(&mut self, always: bool) -> Outcome<CommitNo> {
        let done = self.checkpoint(always, Purpose::Checkpoint);
        let is_refused = done.as_ref().is_err_and(Failure::finds_no_room);
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

    /// Files that only snapshots before `commit` need may go from now on: reading processes learn of it. On an error they
    /// may not.
    pub(crate) fn raise_gc_floor(&mut self, commit: CommitNo) -> Result<()> {
        // After a failure the state holds commits that must not be announced.
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
    fn unsynced_bytes(&self) -> u64 {
        self.log.as_ref().map_or(0, LogWriter::unsynced_bytes)
    }

    fn checkpoint_is_due(&self) -> bool {
        self.working.since_checkpoint.is_due()
    }

    /// Whether one is due that other work must not keep waiting.
    pub(crate) fn checkpoint_is_overdue(&self) -> bool {
        self.working.since_checkpoint.is_overdue()
    }

    /// A file for blocks of an order of a table.
    pub(crate) fn stage_fragment(&self, of: (TableId, u32)) -> Result<FragmentWriter> {
        FragmentWriter::stage(&self.store, &self.supply, of, &self.staged)
    }

    /// Frees the space of all fragments that are part of no table yet.
    pub(crate) fn give_up_staged(&self) {
        for (id, _) in self.staged.lock().drain() {
            self.store.give_up_file(id);
        }
    }
}

fn no_epoch() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the log of this opening was not begun",
    )
}
