//! An open database, as the layers above hold it.
//!
//! Invariants: one process writes, and holds the lock file for as long; a reader process never writes but its own slot in
//! `readers`. Work that is not part of a commit (encoding open rows, checkpoints, preparing segments, removing and rewriting
//! files, timed syncs) runs on threads of the [`Env`]. With `Options::background` off, all of it but the timed syncs is done
//! at the end of the commit that calls for it.

use crate::background::Background;
use crate::block::ROWS_ORDER;
use crate::commit::{Commit, Durability, Producer};
use crate::committer::Committer;
use crate::error::{Error, ErrorKind, Result};
use crate::fragment::FragmentWriter;
use crate::ids::{CommitNo, TableId};
use crate::index::Entry;
use crate::job::Job;
use crate::open::{self, Opened};
use crate::options::{Options, RowEncoder};
use crate::reader::Reader;
use crate::state::Snapshot;
use crate::store::Store;
use crate::upkeep::Upkeep;
use crate::writer::Writer;
use std::path::Path;
use std::sync::Arc;
use thalweg_env::sync::MutexGuard;
use thalweg_env::{Env, Owner};

/// A database that is open, for writing or for reading.
pub struct Kernel {
    role: Role,
    store: Arc<Store>,
    owner: Owner,
}

enum Role {
    Writer {
        upkeep: Arc<Upkeep>,
        background: Background,
        committer: Committer,
    },
    Reader(Box<Reader>),
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("writes", &self.is_writer())
            .finish_non_exhaustive()
    }
}

impl Kernel {
    /// Opens the database in a directory; a missing one is made unless the options say otherwise.
    ///
    /// After a crash this is where the log is read again: at most what was written since the last checkpoint.
    /// If there is no space for what recovery writes, the database shows its rows, and commits get `DiskFull` until there is.
    ///
    /// # Errors
    /// `Locked` when another process writes, `NotFound`, `Corruption` with file and offset, `Unsupported` for a newer
    /// format, `Invalid` when the path is a file or a folder with other things in it.
    pub fn open(
        env: Env,
        path: &Path,
        options: &Options,
        encoder: Arc<dyn RowEncoder>,
    ) -> Result<Self> {
        // A forked child must not use what its parent opened.
        let (env, owner) = (env.for_this_process(), env.owner());
        let (role, store) = if options.read_only {
            let reader = Reader::open(&env, path, options)?;
            let store = Arc::clone(reader.store());
            (Role::Reader(Box::new(reader)), store)
        } else {
            let Opened { leader, lock } = open::open_writer(&env, path, options)?;
            let writer = Arc::new(Writer::new(leader, lock, &encoder, options)?);
            let store = Arc::clone(&writer.store);
            let upkeep = Arc::new(Upkeep::new(Arc::clone(&writer), encoder, options));
            let background = Background::start(&upkeep, options).inspect_err(|_| {
                // Nobody will: the lock and what was prepared go back here. The error that counts is the first.
                let _ = writer.close();
            })?;
            let committer = Committer::new(Arc::clone(&upkeep));
            let role = Role::Writer {
                upkeep,
                background,
                committer,
            };
            (role, store)
        };
        Ok(Self { role, store, owner })
    }

    fn check_process(&self) -> Result<()> {
        self.owner.check().map_err(Error::not_owner)
    }

    /// Whether this handle may write.
    pub fn is_writer(&self) -> bool {
        matches!(self.role, Role::Writer { .. })
    }

    fn writer(&self) -> Result<&Arc<Writer>> {
        self.upkeep().map(|upkeep| upkeep.writer())
    }

    fn upkeep(&self) -> Result<&Arc<Upkeep>> {
        self.check_process()?;
        match &self.role {
            Role::Writer { upkeep, .. } => Ok(upkeep),
            Role::Reader(_) => Err(Error::new(
                ErrorKind::Unavailable,
                "the database was opened read-only: open it without `read_only` to write",
            )),
        }
    }

    #[cfg(test)]
    pub(crate) fn writer_of_tests(&self) -> &Arc<Writer> {
        self.writer().unwrap()
    }

    /// One consistent view of everything that was acknowledged before the call.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.check_process()?;
        match &self.role {
            Role::Writer { upkeep, .. } => Ok(upkeep.writer().snapshot()),
            Role::Reader(reader) => reader.snapshot(),
        }
    }

    /// Stores a commit, whole or not at all, and returns once it is as durable as `durability` asks.
    ///
    /// # Errors
    /// `Invalid`: its parts contradict each other, or one of them is not sound. `AlreadyExists`: the name of a table is taken.
    /// `Conflict`: prepare it again from a new snapshot, or first commit again what the message names. `DiskFull`: nothing was
    /// stored, try again once there is space. `Unavailable`: an earlier write or sync failed; open the database again.
    pub fn commit(&self, commit: Commit, durability: Durability) -> Result<CommitNo> {
        self.upkeep()?.commit(commit, durability)
    }

    /// Stores a commit like [`Self::commit`] and returns at once: `answer` gets what that would have returned, on a thread of
    /// the database, which stores such commits in the order in which they were handed in, up to 1,024 that wait and 4 MiB of them
    /// with one sync. That is for callers with more connections than threads.
    ///
    /// Where a commit of a producer is refused, none with a higher number of the same producer is stored before it was, or another
    /// commit with its number (`Conflict`): others may be on their way by then, and stored they would make it look stored. A
    /// producer that uses [`Self::commit`] as well gives its commits of both kinds no common order. An opening knows nothing of what
    /// was refused before: a producer then goes on with its lowest number that was not answered as stored.
    ///
    /// The next answers, and commits, wait for one that takes its time. A commit that is handed in is answered once, also where the
    /// database is closed meanwhile. A database that was opened without threads of its own stores the commit and answers before
    /// this returns.
    ///
    /// # Errors
    /// Nothing was taken, and `answer` is not called: `Limit` where 64 MiB of such commits wait already, `Unavailable` once the
    /// database is closed or an earlier write failed, `Io` when the thread cannot be started. A database without threads of its own
    /// returns `Ok` instead and gives these errors to `answer`.
    pub fn commit_later(
        &self,
        commit: Commit,
        durability: Durability,
        answer: impl FnOnce(Result<CommitNo>) + Send + 'static,
    ) -> Result<()> {
        self.check_process()?;
        match &self.role {
            Role::Writer { committer, .. } => {
                committer.commit_later(commit, durability, Box::new(answer))
            }
            Role::Reader(_) => Err(self.upkeep().err().unwrap_or_else(Error::closed)),
        }
    }

    /// A file for blocks of a table that become visible with one [`crate::Edit::AddFragments`].
    pub fn stage_fragment(&self, table: TableId) -> Result<FragmentWriter> {
        self.stage_fragment_of(table, ROWS_ORDER)
    }

    /// A file like that of `stage_fragment` for blocks of one order of a table.
    pub fn stage_fragment_of(&self, table: TableId, order: u32) -> Result<FragmentWriter> {
        self.writer()?.stage_fragment((table, order))
    }

    /// Lets go of finished fragments that are not to become part of a table. Those of a commit that was refused are let go of
    /// by [`Kernel::commit`], so a commit with fragments is tried once, unless it keeps them.
    pub fn abandon_fragments(&self, roots: &[Entry]) -> Result<()> {
        let files = roots.iter().map(|root| root.address.file);
        self.writer()?.abandon_fragments(files);
        Ok(())
    }

    /// Returns when everything committed so far is on stable storage.
    pub fn flush(&self) -> Result<()> {
        self.writer()?.flush()
    }

    /// Bytes of the masks of deleted rows of all tables, at most 32 MiB in the end: from
    /// [`MANY_MASKS_BYTES`](crate::MANY_MASKS_BYTES) on items are to be rewritten without these rows.
    ///
    /// # Errors
    /// `Unavailable` when the database is closed, or open for reading.
    pub fn mask_bytes(&self) -> Result<u64> {
        self.writer()?
            .with_leader(|leader| leader.working().mask_bytes())
    }

    /// Whether a commit of this producer with this sequence, or a higher one, is stored: then a resend stores nothing. It need not be
    /// on stable storage yet.
    ///
    /// # Errors
    /// `Unavailable` when the database is closed, or open for reading.
    pub fn has_stored(&self, producer: &Producer) -> Result<bool> {
        self.writer()?
            .with_leader(|leader| leader.working().stored_before(producer).is_some())
    }

    /// Encodes full blocks of open rows and whatever else is due, now and here.
    pub fn run_due_work(&self) -> Result<()> {
        self.upkeep()?.run_due_work()
    }

    /// Makes blocks of all open rows of a table, short ones too.
    pub fn encode_open_rows(&self, table: TableId) -> Result<()> {
        self.upkeep()?.encode_open_rows(table)
    }

    /// Keeps blocks from being moved out of segments, and files from being removed, until the guard is dropped.
    ///
    /// # Errors
    /// `Unavailable` for a reader.
    pub fn pause_cleaning(&self) -> Result<MutexGuard<'_, ()>> {
        Ok(self.upkeep()?.pause_cleaning())
    }

    /// Writes a checkpoint: the next opening has nothing to replay.
    pub fn checkpoint(&self) -> Result<()> {
        self.writer()?
            .submit(Job::Checkpoint { always: false }, Durability::Disk)
            .map(|_| ())
    }

    /// Deletes files that nothing needs any more; returns how many. Writes two checkpoints with all that is in no block yet, of
    /// all tables.
    pub fn collect_garbage(&self) -> Result<usize> {
        self.upkeep()?.collect_garbage()
    }

    /// Caches, open files and reads of blocks.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Writes a last checkpoint and gives the lock back; a reader lets go of the files that it kept. Afterwards every
    /// call fails.
    pub fn close(&self) -> Result<()> {
        if self.check_process().is_err() {
            return Ok(());
        }
        match &self.role {
            Role::Writer {
                upkeep,
                background,
                committer,
            } => {
                let writer = upkeep.writer();
                writer.begin_closing();
                committer.stop();
                background.stop(writer);
                let closed = writer.close();
                self.store.close();
                closed
            }
            Role::Reader(reader) => {
                reader.close();
                self.store.close();
                Ok(())
            }
        }
    }

    /// Why the database takes no more writes, if so.
    pub fn poison(&self) -> Option<Error> {
        match &self.role {
            Role::Writer { upkeep, .. } => upkeep.writer().poison(),
            Role::Reader(_) => None,
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // Whoever needs to know whether the last checkpoint was written calls `close`; without it the next opening
        // replays the log.
        let _ = self.close();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::block::EncodedBlock;
    use crate::commit::{Edit, NEW_TABLE};
    use crate::job::Wants;
    use crate::open_rows::OpenRows;
    use crate::rows_part::RowsPart;
    use crate::state::TableSnapshot;
    use crate::table_state::TableState;
    use bytes::Bytes;
    use thalweg_env::sim::{CallKind, Errno, Fault, FaultPlan, FaultRule, SimEnv};
    use thalweg_env::sync::atomic::{AtomicU64, Ordering};

    /// For databases without rows.
    pub(crate) struct NoRows;

    impl RowEncoder for NoRows {
        fn block_rows(&self, _table: &TableState) -> Result<u32> {
            Ok(1)
        }

        fn encode(&self, _table: &TableSnapshot, _rows: &[OpenRows]) -> Result<Vec<EncodedBlock>> {
            Ok(Vec::new())
        }
    }

    fn open(sim: &SimEnv) -> Kernel {
        let options = Options {
            background: false,
            ..Options::default()
        };
        Kernel::open(sim.env(), Path::new("/db"), &options, Arc::new(NoRows)).unwrap()
    }

    #[test]
    fn files_stay_where_readers_cannot_be_told_that_they_may_go() {
        let sim = SimEnv::new(1);
        open(&sim).close().unwrap();
        let kernel = open(&sim);
        let raise = || {
            let writer = kernel.writer().unwrap();
            let commit = kernel.snapshot().unwrap().commit();
            writer
                .with_leader(|leader| leader.raise_gc_floor(commit))
                .and_then(|raised| raised)
        };
        // Nothing was written since it was opened: there is no epoch yet.
        assert_eq!(raise().unwrap_err().kind(), ErrorKind::Unavailable);
        let writer = kernel.writer().unwrap();
        let begun = writer.submit(Job::Checkpoint { always: true }, Durability::Disk);
        begun.unwrap();
        raise().unwrap();
        let live = crate::live::LiveFile::open_reader(&sim.env(), Path::new("/db"));
        let said = live.unwrap().unwrap().read().unwrap().unwrap();
        let floor = kernel.snapshot().unwrap().place();
        assert_eq!(said.gc_floor, floor);
    }

    fn create(kernel: &Kernel) {
        let create = Edit::CreateTable {
            table: NEW_TABLE,
            name: "t".to_owned(),
            definition: Bytes::new(),
            indexes: 0,
        };
        let create = Commit {
            edits: vec![create],
            ..Commit::default()
        };
        kernel.commit(create, Durability::Disk).unwrap();
    }

    fn row(number: u64) -> RowsPart {
        RowsPart {
            table: TableId(1),
            definition_version: 1,
            rows: 1,
            key_min: 0,
            key_max: 0,
            payload: number.to_le_bytes().to_vec().into(),
        }
    }

    fn append(kernel: &Kernel, number: u64) {
        let rows = Commit {
            rows: vec![row(number)],
            ..Commit::default()
        };
        kernel.commit(rows, Durability::Disk).unwrap();
    }

    /// The rows that are not in blocks.
    fn count(kernel: &Kernel) -> u64 {
        let snapshot = kernel.snapshot().unwrap();
        let rows = snapshot.table(TableId(1)).unwrap().open_rows().count();
        rows as u64
    }

    #[test]
    fn a_reader_misses_nothing_behind_a_failed_write_of_live() {
        for seed in 0..100 {
            let sim = SimEnv::new(seed);
            let options = Options {
                background: false,
                ..Options::default()
            };
            let read_only = Options {
                read_only: true,
                ..options.clone()
            };
            let open = |process, options| {
                let env = sim.env_of_process(process);
                Kernel::open(env, Path::new("/db"), options, Arc::new(NoRows)).unwrap()
            };
            let kernel = open(sim.process_id(), &options);
            create(&kernel);
            (0..3).for_each(|number| append(&kernel, number));
            let reader = open(2, &read_only);
            assert_eq!(count(&reader), 3);
            (3..5).for_each(|number| append(&kernel, number));
            let on_live = |fault| {
                FaultRule::new(fault)
                    .on(&[CallKind::Write])
                    .path_suffix("/live")
            };
            let failed = on_live(Fault::Error(Errno::IO)).once();
            sim.set_plan(FaultPlan::none().rule(failed));
            let floor = kernel.snapshot().unwrap().commit();
            let raised = kernel
                .writer_of_tests()
                .with_leader(|leader| leader.raise_gc_floor(floor))
                .unwrap();
            assert!(raised.is_err() && kernel.poison().is_none());
            // The reader looks while the next writes are under way.
            let acknowledged = Arc::new(AtomicU64::new(5));
            let seen = Arc::clone(&acknowledged);
            sim.set_watcher(Some(Box::new(move || {
                let least = seen.load(Ordering::SeqCst);
                let found = count(&reader);
                assert!(
                    (least..=least + 1).contains(&found),
                    "seed {seed}: {found} rows, at least {least} were acknowledged"
                );
            })));
            sim.set_plan(FaultPlan::none().rule(on_live(Fault::Watched)));
            for number in 5..10 {
                append(&kernel, number);
                acknowledged.store(number + 1, Ordering::SeqCst);
            }
            sim.set_plan(FaultPlan::none());
            sim.set_watcher(None);
        }
    }

    fn flush(kernel: &Kernel, jobs: impl FnOnce() -> Job) -> Option<ErrorKind> {
        let wants = Wants {
            sync: true,
            freed_space: false,
        };
        let jobs = std::iter::once_with(|| (jobs(), Durability::Disk));
        let writer = kernel.writer_of_tests();
        let run = writer.with_leader(|leader| leader.run(jobs, wants, &mut |_| {}));
        match run {
            Ok(run) => run.err().map(|broken| broken.failure.error().kind()),
            Err(closed) => Some(closed.kind()),
        }
    }

    /// Who was about to lead when the database was closed finds out from the leader.
    #[test]
    fn a_leader_of_a_closed_database_writes_nothing() {
        let sim = SimEnv::new(2);
        let kernel = open(&sim);
        assert_eq!(flush(&kernel, || Job::Flush), None);
        kernel.close().unwrap();
        let calls = sim.calls();
        assert_eq!(flush(&kernel, || Job::Flush), Some(ErrorKind::Unavailable));
        assert_eq!(sim.calls(), calls);
    }

    /// The state of a leader that panicked may hold commits that the log does not.
    #[test]
    fn readers_are_told_nothing_of_a_leader_that_panicked() {
        let sim = SimEnv::new(3);
        let kernel = open(&sim);
        let begin = Job::Checkpoint { always: true };
        let writer = kernel.writer_of_tests();
        writer.submit(begin, Durability::Disk).unwrap();
        let panics = || flush(&kernel, || panic!("a bug"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
        let commit = kernel.snapshot().unwrap().commit();
        let told = writer
            .with_leader(|leader| leader.raise_gc_floor(commit))
            .unwrap();
        assert_eq!(told.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(flush(&kernel, || Job::Flush), Some(ErrorKind::Unavailable));
    }

    #[test]
    fn a_commit_that_was_stored_holds_where_the_checkpoint_behind_it_fails() {
        let sim = SimEnv::new(4);
        let kernel = open(&sim);
        create(&kernel);
        let commit = Commit {
            rows: vec![row(7)],
            ..Commit::default()
        };
        let batch = [Job::Commit(commit), Job::Checkpoint { always: true }];
        let jobs = batch.into_iter().map(|job| (job, Durability::Disk));
        let wants = Wants {
            sync: true,
            freed_space: false,
        };
        let of_checkpoint = FaultRule::new(Fault::Error(Errno::IO)).on(&[CallKind::SyncData]);
        sim.set_plan(FaultPlan::none().rule(of_checkpoint.skip(1).once()));
        let mut answers = Vec::new();
        let run = kernel.writer_of_tests().with_leader(|leader| {
            leader.run(jobs, wants, &mut |answer: Result<_>| {
                answers.push(answer.is_ok())
            })
        });
        let broken = run.unwrap().unwrap_err();
        assert_eq!((answers, broken.settled), (vec![true], 1));
        sim.set_plan(FaultPlan::none());
        drop(kernel);
        assert_eq!(count(&open(&sim)), 1);
    }

    /// Paths of all that is in a folder and those below it.
    fn names_below(env: &Env, dir: &Path) -> Vec<std::path::PathBuf> {
        let entries = env.storage().list_dir(dir).unwrap();
        let mut names = Vec::new();
        for entry in entries {
            let path = dir.join(entry.name);
            if entry.is_dir {
                names.extend(names_below(env, &path));
            }
            names.push(path);
        }
        names
    }

    #[test]
    fn nothing_is_made_in_a_folder_of_others() {
        type Make = fn(&SimEnv);
        let others: [(Make, ErrorKind); 4] = [
            // As `/` of most systems.
            (
                |sim| {
                    sim.env()
                        .storage()
                        .create_dir(Path::new("/db/root"))
                        .unwrap()
                },
                ErrorKind::Invalid,
            ),
            (
                |sim| sim.write_file(Path::new("/db/root/mail"), b"1").unwrap(),
                ErrorKind::Invalid,
            ),
            (
                |sim| sim.symlink(Path::new("/"), Path::new("/db/root")).unwrap(),
                ErrorKind::Invalid,
            ),
            // This one may be a database that has lost the rest.
            (
                |sim| sim.write_file(Path::new("/db/root"), b"1").unwrap(),
                ErrorKind::Corruption,
            ),
        ];
        for (number, (make, kind)) in others.into_iter().enumerate() {
            let sim = SimEnv::new(1);
            let (env, dir) = (sim.env(), Path::new("/db"));
            env.storage().create_dir(dir).unwrap();
            make(&sim);
            let before = names_below(&env, dir);
            for read_only in [false, true] {
                let options = Options {
                    read_only,
                    ..Options::default()
                };
                let opened = Kernel::open(env.clone(), dir, &options, Arc::new(NoRows));
                assert_eq!(opened.err().unwrap().kind(), kind, "{number}, {read_only}");
            }
            assert_eq!(names_below(&env, dir), before, "{number}");
        }
    }
}
