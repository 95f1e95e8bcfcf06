//! The writing side of an open database: the commit queue, and what goes with commits.
//!
//! Invariants: a fragment that was staged becomes part of a table, or is given up, once; after closing began nobody stages or
//! commits. The lock is given back after everything that this process may still write.

use crate::commit::Durability;
use crate::due::Due;
use crate::error::{Error, ErrorKind, Result};
use crate::failure::refusal;
use crate::fragment::{FragmentWriter, Staged};
use crate::ids::{CommitNo, FileId, TableId};
use crate::job::Job;
use crate::leader::{Leader, Shared};
use crate::options::{Options, RowEncoder};
use crate::panics::watched;
use crate::pins::Recent;
use crate::queue::CommitQueue;
use crate::reader_slots::mend_slots;
use crate::segment;
use crate::segment_supply::SegmentSupply;
use crate::state::{Published, Snapshot};
use crate::store::Store;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use thalweg_env::sync::{Condvar, Mutex};
use thalweg_env::{Env, File};

/// Where so many empty fragments have ids that the root does not lie above yet, a checkpoint is written to remove them.
pub(crate) const EMPTY_FRAGMENTS: usize = 64;

/// Where there is no room for these checkpoints, and so many have been left, nobody makes more: each round checks all of them.
pub(crate) const MAX_EMPTY_FRAGMENTS: usize = 16 * EMPTY_FRAGMENTS;

pub(crate) struct Writer {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    queue: CommitQueue,
    published: Published,
    pub(crate) store: Arc<Store>,
    pub(crate) supply: Arc<SegmentSupply>,
    pub(crate) due: Arc<Due>,
    /// Signalled when the encoder has made room, or failed.
    pub(crate) room: Condvar,
    pub(crate) rounds: Mutex<Rounds>,
    pub(crate) recent: Recent,
    /// Empty fragments that the last round of cleaning has left.
    pub(crate) empty_fragments: AtomicUsize,
    /// Files of fragments that may become part of a table any moment.
    pub(crate) staged: Arc<Mutex<Staged>>,
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
        encoder: &Arc<dyn RowEncoder>,
        options: &Options,
    ) -> Result<Self> {
        leader.set_encoder(encoder);
        let Shared {
            env,
            dir,
            published,
            store,
            supply,
            due,
            staged,
        } = leader.shared();
        mend_slots(&env, &dir);
        Ok(Self {
            recent: Recent::new(env.owner()),
            env,
            dir,
            published,
            store,
            supply,
            due,
            staged,
            empty_fragments: AtomicUsize::new(0),
            queue: CommitQueue::new(leader),
            room: Condvar::new(),
            rounds: Mutex::default(),
            is_closing: AtomicBool::new(false),
            segment_bytes: options.segment_bytes,
            lock: Mutex::new(Some(lock)),
        })
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.recent.snapshot(&self.published)
    }

    pub(crate) fn poison(&self) -> Option<Error> {
        self.queue.poison()
    }

    /// Runs `work`, unless writing has ended, and ends writing if it panics.
    pub(crate) fn work<T>(&self, doing: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
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
        let held = HeldFragments::of(&job);
        let done = self.queue.submit(job, durability);
        self.settle(held, &done);
        done
    }

    /// Submits those that are no errors, in order; what is an error stays one.
    pub(crate) fn submit_all(&self, jobs: Vec<Result<(Job, Durability)>>) -> Vec<Result<CommitNo>> {
        let held =
            { jobs.iter() }.map(|job| job.as_ref().ok().map(|(job, _)| HeldFragments::of(job)));
        let held: Vec<_> = held.collect();
        let mut refused = Vec::with_capacity(jobs.len());
        let mut submitted = Vec::with_capacity(jobs.len());
        for job in jobs {
            refused.push(job.map(|job| submitted.push(job)).err());
        }
        let mut done = self.queue.submit_all(submitted).into_iter();
        let results = refused.into_iter().zip(held).map(|(refused, held)| {
            let done = match refused {
                Some(error) => return Err(error),
                None => done.next().unwrap_or_else(|| Err(Error::closed())),
            };
            if let Some(held) = held {
                self.settle(held, &done);
            }
            done
        });
        results.collect()
    }

    /// Gives up the fragments of a job that was not stored.
    fn settle(&self, held: HeldFragments, done: &Result<CommitNo>) {
        // What was stored before takes no fragments.
        if done.is_err() || held.may_be_sent_again {
            self.abandon_fragments(held.files);
        }
    }

    /// Fragments that become part of no table: their space is free at once, their names go with the garbage. Those of a
    /// commit that may be in the log are not staged any more, and not touched.
    pub(crate) fn abandon_fragments(&self, files: impl IntoIterator<Item = FileId>) {
        for file in files {
            // Between two batches: another commit may be about to make it part of a table, and finds it gone from here on.
            // Whatever is not staged is part of a table, or gone.
            let was_staged = self.with_leader(|_| self.staged.lock().remove(&file));
            if was_staged.is_ok_and(|staged| staged.is_some()) {
                self.store.give_up_file(file);
            }
        }
    }

    /// See [`CommitQueue::with_leader`].
    pub(crate) fn with_leader<T>(&self, look: impl FnOnce(&mut Leader) -> T) -> Result<T> {
        self.queue.with_leader(look)
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.submit(Job::Flush, Durability::Disk).map(|_| ())
    }

    /// For whoever adds rows.
    ///
    /// # Errors
    /// `DiskFull` where refused ones have left many names and there is no room to remove them; whatever creating a file leads to.
    pub(crate) fn stage_fragment(&self, of: (TableId, u32)) -> Result<FragmentWriter> {
        self.check_empty_fragments()?;
        self.stage_fragment_anyway(of)
    }

    fn check_empty_fragments(&self) -> Result<()> {
        let empty = self.empty_fragments.load(Ordering::Relaxed) + self.store.given_up();
        if empty < MAX_EMPTY_FRAGMENTS {
            return Ok(());
        }
        // Where a drop was given the reserve, only looking for room ends that, which else the next small commit does: there may
        // be none.
        let may_clean = || {
            let supply = &self.supply;
            let is_kept_for_drops = supply.is_given_back() && supply.ensure_reserve(0).is_err();
            !is_kept_for_drops && supply.may_clean_now()
        };
        if self.with_leader(|_| may_clean())? {
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
    pub(crate) fn stage_fragment_anyway(&self, of: (TableId, u32)) -> Result<FragmentWriter> {
        let given_up = self.store.take_given_up(EMPTY_FRAGMENTS);
        if given_up > 0 {
            // The round that is called for counts them anew.
            self.empty_fragments.fetch_add(given_up, Ordering::Relaxed);
            self.due.expect_garbage();
            self.due.call_for_garbage();
        }
        let stage = || FragmentWriter::stage(&self.store, &self.supply, of, &self.staged);
        let staged = stage();
        if segment::is_full(&staged) && self.supply.free.is_overstated() {
            // Only a file that is made shows whether there is room again, and only the leader may make one.
            self.with_leader(|_| self.supply.ensure_reserve(0))??;
            return stage();
        }
        staged
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
                // A newer `live` shows that a root is old.
                .and_then(|_| self.with_leader(|leader| leader.announcer().live().sync())?),
            Some(poison) => Err(refusal(&poison)),
        };
        self.recent.forget();
        // Its files are closed with it, and nothing more is prepared.
        let leader = self.queue.close();
        self.supply.release();
        // Another process may write from here.
        let live_unlocked = leader.map_or(Ok(()), |mut leader| {
            leader.announcer_mut().live_mut().unlock()
        });
        // A child of a fork may hold the file open as well, and with it the lock.
        let unlocked = lock.unlock(0..1);
        last.and(live_unlocked)
            .and(unlocked.map_err(|e| Error::io("giving back the lock", e)))
    }
}

/// The files that a job makes part of tables.
struct HeldFragments {
    files: Vec<FileId>,
    may_be_sent_again: bool,
}

impl HeldFragments {
    fn of(job: &Job) -> Self {
        let files = match job {
            Job::Commit(commit) if commit.keeps_fragments => Vec::new(),
            Job::Commit(commit) | Job::CommitLater(commit) => commit
                .fragments()
                .map(|(_, root)| root.address.file)
                .collect(),
            Job::Cover(cover) => { cover.commit.fragments() }
                .map(|(_, root)| root.address.file)
                .collect(),
            Job::Move(moved) => { moved.edit.orders.iter() }
                .flat_map(|order| &order.added)
                .map(|root| root.address.file)
                .collect(),
            Job::Flush | Job::Checkpoint { .. } | Job::CheckpointToFree => Vec::new(),
        };
        Self {
            files,
            may_be_sent_again: matches!(job, Job::Commit(commit) | Job::CommitLater(commit) if commit.producer.is_some()),
        }
    }
}

/// How the encodings of tables that needed it have ended, for the appends that wait for room.
#[derive(Default)]
pub(crate) struct Rounds {
    pub(crate) ended: u64,
    /// Of the last one, if it concerns all tables.
    pub(crate) error: Option<Error>,
}
