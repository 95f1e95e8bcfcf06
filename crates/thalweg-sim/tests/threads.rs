//! Threads that panic or cannot be started, and processes that fork: nothing waits for ever, and the lock goes back.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a step that fails is a test that fails"
)]

use bytes::Bytes;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use thalweg_env::sim::{CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_env::{
    Clock, Dir, DirEntry, Env, File, JoinHandle, LockKind, Metadata, OpenMode, Spawner, Storage,
};
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::index::MAX_PAGE_ENTRIES;
use thalweg_kernel::orders::AddHead;
use thalweg_kernel::{
    Commit, Durability, Edit, Error, ErrorKind, Kernel, NEW_TABLE, OpenRows, Options, Result,
    RowEncoder, TableId, TableSnapshot, TableState, limit_page_entries,
};
use thalweg_sim::toy::{Row, Toy, ToyEncoder, block, rows_part};

const THREADS: [&str; 4] = [
    "thalweg-segments",
    "thalweg-blocks",
    "thalweg-cleaning",
    "thalweg-sync",
];
/// Appends after which a database that ends with a panic must have ended: more than all open rows may take.
const MAX_APPENDS: i64 = 4_000;
const APPENDED: usize = 500;

fn options(background: bool) -> Options {
    Options {
        segment_bytes: 64 << 10,
        sync_interval: Duration::from_millis(1),
        background,
        ..Options::default()
    }
}

fn rows(first: i64, count: usize) -> Vec<Row> {
    (first..).take(count).map(|key| (key, key)).collect()
}

fn files(sim: &SimEnv) -> Vec<(PathBuf, u64)> {
    sim.files()
}

/// Panics where it is told to, in one thread.
#[derive(Clone, Debug, Default)]
struct Bomb {
    thread: &'static str,
    is_armed: Arc<AtomicBool>,
}

impl Bomb {
    fn strike(&self) {
        let is_here = std::thread::current().name() == Some(self.thread);
        assert!(
            !(is_here && self.is_armed.load(Ordering::SeqCst)),
            "a bug in {}",
            self.thread
        );
    }
}

#[derive(Debug)]
struct BombStorage(Arc<dyn Storage>, Bomb);

#[derive(Debug)]
struct BombFile(Arc<dyn File>, Bomb);

impl Storage for BombStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.1.strike();
        Ok(Arc::new(BombFile(self.0.open(path, mode)?, self.1.clone())))
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir(path)
    }
    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.1.strike();
        self.0.list_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.sync_dir(path)
    }
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        self.0.open_dir(path)
    }
    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.0.metadata(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.hard_link(from, to)
    }
    fn hold(&self, folder: &Path) -> io::Result<Arc<dyn Storage>> {
        Ok(Arc::new(BombStorage(self.0.hold(folder)?, self.1.clone())))
    }

    fn release(&self) {
        self.0.release();
    }
    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.0.canonicalize(path)
    }
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.0.free_bytes(path)
    }
}

impl File for BombFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(buf, offset)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.0.write_vectored_at(bufs, offset)
    }
    fn len_bytes(&self) -> io::Result<u64> {
        self.0.len_bytes()
    }
    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.0.set_len(len_bytes)
    }
    fn allocate(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.0.allocate(offset, len_bytes)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.1.strike();
        self.0.sync_data()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
    fn try_lock(&self, range: Range<u64>, kind: LockKind) -> io::Result<bool> {
        self.0.try_lock(range, kind)
    }
    fn is_locked(&self, range: Range<u64>) -> io::Result<bool> {
        self.0.is_locked(range)
    }
    fn unlock(&self, range: Range<u64>) -> io::Result<()> {
        self.0.unlock(range)
    }
}

/// An encoder that panics while its bomb is armed, in whatever thread.
struct Panics(Arc<AtomicBool>);

impl RowEncoder for Panics {
    fn block_rows(&self, _table: &TableState) -> Result<u32> {
        Ok(64)
    }

    fn encode(&self, table: &TableSnapshot, rows: &[OpenRows]) -> Result<Vec<EncodedBlock>> {
        assert!(!self.0.load(Ordering::SeqCst), "a bug in a codec");
        ToyEncoder { block_rows: 64 }.encode(table, rows)
    }
}

fn open_with(env: Env, encoder: Arc<dyn RowEncoder>, background: bool) -> Result<Toy> {
    let kernel = Kernel::open(env, Path::new("/db"), &options(background), encoder)?;
    Ok(Toy { kernel })
}

fn open(sim: &SimEnv) -> Result<Toy> {
    open_with(sim.env(), Arc::new(ToyEncoder { block_rows: 64 }), false)
}

/// Appends to a database that has ended, or is about to, until it says so; returns the error and how many appends it took.
fn append_until_it_ends(toy: &Toy, table: TableId) -> (Error, i64) {
    for stored in 0..MAX_APPENDS {
        let commit = Commit {
            rows: vec![rows_part(table, &rows(stored * 1_000, APPENDED))],
            ..Commit::default()
        };
        if let Err(error) = toy.kernel.commit(commit, Durability::Process) {
            return (error, stored);
        }
    }
    panic!("{MAX_APPENDS} appends, and nobody has heard of the panic");
}

/// A machine on which a thread panics in storage once the bomb is armed.
fn with_bomb(sim: &SimEnv, thread: &'static str) -> (Env, Bomb) {
    let bomb = Bomb {
        thread,
        ..Bomb::default()
    };
    let env = sim.env();
    let storage = Arc::new(BombStorage(Arc::clone(env.storage()), bomb.clone()));
    let bombed = Env::new(
        storage,
        Arc::clone(env.clock()),
        Arc::clone(env.entropy()),
        Arc::clone(env.spawner()),
    );
    (bombed, bomb)
}

fn assert_ended(error: &Error, panic: &str) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains(panic), "{error}");
}

#[test]
fn a_panic_of_a_thread_ends_writing_and_closing_gives_the_lock_back() {
    for thread in THREADS {
        let sim = SimEnv::new(3);
        let (env, bomb) = with_bomb(&sim, thread);
        let codec = Arc::new(AtomicBool::new(false));
        let toy = open_with(env, Arc::new(Panics(Arc::clone(&codec))), true).unwrap();
        let table = toy.create("t").unwrap();
        toy.append(table, &rows(-10, 10), Durability::Disk).unwrap();
        codec.store(thread == "thalweg-blocks", Ordering::SeqCst);
        bomb.is_armed.store(true, Ordering::SeqCst);
        let cause = match thread {
            "thalweg-blocks" => "a bug in a codec".to_owned(),
            other => format!("a bug in {other}"),
        };
        let (error, stored) = append_until_it_ends(&toy, table);
        assert_ended(&error, &cause);
        assert_ended(&toy.kernel.flush().unwrap_err(), &cause);
        assert_ended(&toy.kernel.checkpoint().unwrap_err(), &cause);
        // Snapshots go on reading.
        let there = toy.rows(table).unwrap().len();
        assert!(there >= 10 + APPENDED * usize::try_from(stored).unwrap());
        assert_ended(&toy.kernel.close().unwrap_err(), &cause);
        // The append that met the panic may be stored.
        let again = open(&sim).unwrap().rows(table).unwrap().len();
        assert!(
            again == there || again == there + APPENDED,
            "{thread}: {again} rows, {there} before"
        );
    }
}

/// Each commit that was handed in is answered, also those that the thread had not begun with.
#[test]
fn a_panic_of_the_thread_that_calls_back_leaves_no_commit_without_an_answer() {
    let sim = SimEnv::new(3);
    let (env, bomb) = with_bomb(&sim, "thalweg-commits");
    let toy = open_with(env, Arc::new(ToyEncoder { block_rows: 64 }), true).unwrap();
    let table = toy.create("t").unwrap();
    bomb.is_armed.store(true, Ordering::SeqCst);
    let (answered, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut taken = 0;
    for key in 0..30_000 {
        let commit = Commit {
            rows: vec![rows_part(table, &rows(key, 1))],
            ..Commit::default()
        };
        let (answered, refused) = (Arc::clone(&answered), Arc::clone(&refused));
        let answer = move |result: Result<_>| {
            let is_refusal = |error: Error| error.kind() == ErrorKind::Unavailable;
            refused.fetch_add(
                usize::from(result.err().is_some_and(is_refusal)),
                Ordering::SeqCst,
            );
            answered.fetch_add(1, Ordering::SeqCst);
        };
        match toy.kernel.commit_later(commit, Durability::Disk, answer) {
            Ok(()) => taken += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                break;
            }
        }
    }
    // Without closing.
    while answered.load(Ordering::SeqCst) < taken {
        std::thread::yield_now();
    }
    assert!(taken > 0);
    assert_ended(&toy.kernel.close().unwrap_err(), "a bug in thalweg-commits");
    let counts = [&answered, &refused].map(|count| count.load(Ordering::SeqCst));
    assert_eq!(counts, [taken; 2]);
}

#[test]
fn a_panic_in_the_thread_of_a_caller_ends_writing_too() {
    let sim = SimEnv::new(4);
    let codec = Arc::new(AtomicBool::new(false));
    let toy = open_with(sim.env(), Arc::new(Panics(Arc::clone(&codec))), false).unwrap();
    let table = toy.create("t").unwrap();
    toy.append(table, &rows(0, 10), Durability::Disk).unwrap();
    codec.store(true, Ordering::SeqCst);
    let calls: [&dyn Fn() -> Result<()>; 2] = [&|| toy.kernel.encode_open_rows(table), &|| {
        toy.append(table, &rows(100, 64), Durability::Disk)
            .map(|_| ())
    }];
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(calls[0]));
    assert!(panicked.is_err());
    for call in calls {
        assert_ended(&call().unwrap_err(), "a bug in a codec");
    }
    assert_eq!(toy.rows(table).unwrap().len(), 10);
    assert_ended(&toy.kernel.close().unwrap_err(), "a bug in a codec");
    assert_eq!(open(&sim).unwrap().rows(table).unwrap().len(), 10);
}

/// Refuses the n-th start of a thread of an open database, and counts the threads that live.
#[derive(Debug)]
struct Refusing {
    spawner: Arc<dyn Spawner>,
    left: AtomicUsize,
    living: Arc<AtomicUsize>,
}

impl Spawner for Refusing {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
        // What helps an opening is done without a thread where that cannot be started.
        let helps = name == "thalweg-opening";
        if !helps && self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let living = Arc::clone(&self.living);
        living.fetch_add(1, Ordering::SeqCst);
        let counted = move || {
            job();
            living.fetch_sub(1, Ordering::SeqCst);
        };
        self.spawner.spawn(name, Box::new(counted))
    }
}

#[test]
fn an_opening_that_cannot_start_a_thread_leaves_nothing_behind() {
    let sim = SimEnv::new(5);
    let toy = open(&sim).unwrap();
    let table = toy.create("t").unwrap();
    toy.append(table, &rows(0, 100), Durability::Disk).unwrap();
    let sim = sim.crash_image(&CrashChoice::Kill);
    let mut before = None;
    for nth in (0..THREADS.len()).chain(0..THREADS.len()) {
        let living = Arc::new(AtomicUsize::new(0));
        let env = sim.env();
        let spawner = Arc::new(Refusing {
            spawner: Arc::clone(env.spawner()),
            left: AtomicUsize::new(nth),
            living: Arc::clone(&living),
        });
        let env = Env::new(
            Arc::clone(env.storage()),
            Arc::clone(env.clock()),
            Arc::clone(env.entropy()),
            spawner,
        );
        let encoder = Arc::new(ToyEncoder { block_rows: 64 });
        let error = open_with(env, encoder, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
        assert!(error.to_string().contains(THREADS[nth]), "{error}");
        assert_eq!(living.load(Ordering::SeqCst), 0, "threads are left");
        // The first one has recovered the log; nothing grows from there. Threads that were started may have removed files
        // before they were stopped.
        let bytes: u64 = files(&sim).iter().map(|(_, bytes)| bytes).sum();
        let (count, bytes_before) = *before.get_or_insert((files(&sim).len(), bytes));
        let grown = (files(&sim).len() > count, bytes > bytes_before);
        assert_eq!(grown, (false, false), "start {nth} was refused");
    }
    assert_eq!(open(&sim).unwrap().rows(table).unwrap(), rows(0, 100));
}

/// The clock of a process that forks.
#[derive(Debug)]
struct Forked {
    clock: Arc<dyn Clock>,
    process: AtomicU64,
}

impl Clock for Forked {
    fn monotonic_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }
    fn wall_ns(&self) -> i64 {
        self.clock.wall_ns()
    }
    fn boot_id(&self) -> [u8; 16] {
        self.clock.boot_id()
    }
    fn process(&self) -> u64 {
        self.process.load(Ordering::SeqCst)
    }
    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
    }
}

/// An environment whose processes fork, and how.
fn forking(sim: &SimEnv) -> (Env, Arc<Forked>) {
    let env = sim.env();
    let clock = Arc::new(Forked {
        clock: Arc::clone(env.clock()),
        process: AtomicU64::new(1),
    });
    let env = Env::new(
        Arc::clone(env.storage()),
        Arc::clone(&clock) as _,
        Arc::clone(env.entropy()),
        Arc::clone(env.spawner()),
    );
    (env, clock)
}

impl Forked {
    fn in_child<T>(&self, run: impl FnOnce() -> T) -> T {
        self.process.store(2, Ordering::SeqCst);
        let done = run();
        self.process.store(1, Ordering::SeqCst);
        done
    }
}

#[test]
fn a_child_of_a_fork_changes_no_file_of_its_parent() {
    let sim = SimEnv::new(6);
    let (env, clock) = forking(&sim);
    let encoder = Arc::new(ToyEncoder { block_rows: 64 });
    let toy = open_with(env, encoder, false).unwrap();
    let table = toy.create("t").unwrap();
    toy.append_group(table, &rows(0, 640), 64, Durability::Disk)
        .unwrap();
    let snapshot = toy.kernel.snapshot().unwrap();
    let stage = || {
        let mut writer = toy.kernel.stage_fragment(table).unwrap();
        for part in 0..400 {
            let rows: Vec<Row> = (0..4_000)
                .map(|row| (part * 4_000 + row, (row * 7_919 * (part + 1)) ^ 0x55aa_55aa))
                .collect();
            writer.add_block(&block(table, rows, None)).unwrap();
        }
        writer
    };
    // As the child of a fork unwinds out of an append, with a copy of the writer.
    let (dropped, mut used, finished, kept) = (stage(), stage(), stage(), stage());
    let whole = files(&sim);
    clock.in_child(|| {
        drop(dropped);
        let one = block(table, rows(0, 64), None);
        assert_ended(&used.add_block(&one).unwrap_err(), "fork");
        drop(used);
        assert_ended(&finished.finish().unwrap_err(), "fork");
        let table = snapshot.table(table).unwrap();
        assert_ended(&toy.rows_of(&table).unwrap_err(), "fork");
        assert_ended(&toy.kernel.snapshot().unwrap_err(), "fork");
        assert_ended(&toy.kernel.abandon_fragments(&[]).unwrap_err(), "fork");
        drop(snapshot);
        // What a child closes is its own, and the lock is not.
        toy.kernel.close().unwrap();
    });
    assert_eq!(files(&sim), whole);
    assert_eq!(open(&sim).unwrap_err().kind(), ErrorKind::Locked);
    let root = kept.finish().unwrap();
    let edit = Edit::AddFragments {
        head: AddHead::of_rows(table, 1),
        roots: vec![root],
    };
    let commit = Commit {
        edits: vec![edit],
        ..Commit::default()
    };
    toy.kernel.commit(commit, Durability::Disk).unwrap();
    assert_eq!(toy.rows(table).unwrap().len(), 640 + 400 * 4_000);
    let create = Edit::CreateTable {
        table: NEW_TABLE,
        name: "u".into(),
        definition: Bytes::from_static(b"toy"),
        indexes: 0,
    };
    let commit = Commit {
        edits: vec![create],
        ..Commit::default()
    };
    toy.kernel.commit(commit, Durability::Disk).unwrap();
    toy.kernel.close().unwrap();
    drop(toy);
    assert_eq!(
        open(&sim).unwrap().rows(table).unwrap().len(),
        640 + 1_600_000
    );
}

/// Keeps who encodes the table "gate" until it may go on, which then fails. Other tables are encoded.
#[derive(Clone, Default)]
struct Gate {
    is_reached: Arc<AtomicBool>,
    is_open: Arc<AtomicBool>,
}

impl RowEncoder for Gate {
    fn block_rows(&self, table: &TableState) -> Result<u32> {
        ToyEncoder {
            block_rows: MANY_ROWS,
        }
        .block_rows(table)
    }

    fn encode(&self, table: &TableSnapshot, rows: &[OpenRows]) -> Result<Vec<EncodedBlock>> {
        if &*table.name == "gate" {
            self.is_reached.store(true, Ordering::SeqCst);
            while !self.is_open.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            return Err(Error::new(ErrorKind::Io, "not now"));
        }
        ToyEncoder {
            block_rows: MANY_ROWS,
        }
        .encode(table, rows)
    }
}

/// More than are appended to any table, so that none fills a block.
const MANY_ROWS: u32 = 500_000;

/// The rows of a batch that broke are counted until the log is recovered, and nobody can encode them.
#[test]
fn an_append_behind_one_that_found_no_space_returns() {
    for recovers in [true, false] {
        let failed = (0..9).map_while(|syncs| append_behind_failed_sync(syncs, recovers));
        // Where it is the last one, all of its rows can be read back.
        assert_eq!(failed.max().unwrap(), 18_750);
    }
}

/// Commits more than all open rows may take, where the disk is full at one more sync than `syncs`. Returns how many of the last
/// rows are there once the log was recovered; `None` if there was no such sync. One more append returns in any case.
/// `recovers`: whether the log can be recovered at first; what keeps it from that is no full disk.
fn append_behind_failed_sync(syncs: u64, recovers: bool) -> Option<usize> {
    let sim = SimEnv::new(syncs);
    let options = Options {
        // Shorter ones are prepared with one sync, of which none is that of a commit.
        segment_bytes: 1 << 20,
        // Nothing else is to recover the log.
        sync_interval: Duration::from_secs(3_600),
        background: true,
        ..Options::default()
    };
    let keeper = Gate::default();
    let encoder = Arc::new(keeper.clone());
    let kernel = Kernel::open(sim.env(), Path::new("/db"), &options, encoder).unwrap();
    let toy = Arc::new(Toy { kernel });
    let gate = toy.create("gate").unwrap();
    let lost = toy.create("lost").unwrap();
    toy.append(gate, &rows(0, 1), Durability::Disk).unwrap();
    let beside = Arc::clone(&toy);
    let (sender, encoded) = std::sync::mpsc::channel();
    let encode = move || _ = sender.send(beside.kernel.encode_open_rows(gate));
    let env = sim.env();
    env.spawner().spawn("encoding", Box::new(encode)).unwrap();
    while !keeper.is_reached.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    // Just below the bytes that all open rows may take; those that are lost go beyond, and are most of any table.
    for n in 0..32 {
        let table = toy.create(&format!("t{n}")).unwrap();
        toy.append(table, &rows(0, 16_000), Durability::Disk)
            .unwrap();
    }
    let full = FaultRule::new(Fault::Error(Errno::NOSPC)).on(&[CallKind::SyncData]);
    sim.set_plan(FaultPlan::none().rule(full.skip(syncs).once()));
    let outcome = toy.append(lost, &rows(0, 18_750), Durability::Disk);
    if !recovers {
        let none = FaultRule::new(Fault::Error(Errno::MFILE)).on(&[CallKind::Open]);
        sim.set_plan(FaultPlan::none().rule(none.path_suffix("/root")));
    }
    keeper.is_open.store(true, Ordering::SeqCst);
    encoded.recv().unwrap().unwrap_err();
    // What the thread does that encodes; it may be done already.
    let worked = toy.kernel.run_due_work();
    if outcome.is_err() && !recovers {
        assert_eq!(worked.unwrap_err().kind(), ErrorKind::Unavailable);
        let refused = toy.append(lost, &rows(2, 1), Durability::Disk);
        assert!(refused.is_err());
        sim.set_plan(FaultPlan::none());
        toy.kernel.run_due_work().unwrap();
    }
    let recovered = toy.rows(lost).unwrap().len();
    let (sender, returned) = std::sync::mpsc::channel();
    let beside = Arc::clone(&toy);
    let append = move || _ = sender.send(beside.append(lost, &rows(1, 1), Durability::Disk));
    env.spawner().spawn("append", Box::new(append)).unwrap();
    // So long only if it hangs.
    let next = returned.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(next.is_ok(), "{next:?}");
    outcome.is_err().then_some(recovered)
}

/// A file goes once the trees of the writer do not need it: so those of its own threads, of its callers and of reading processes use
/// the same pages for the same commits, with small pages as well.
#[test]
fn threads_of_a_database_make_the_pages_that_its_readers_make() {
    let sim = SimEnv::new(1);
    limit_page_entries(4);
    let toy = Toy::open(&sim.env(), "/db", &options(true), 4).unwrap();
    let table = toy.create("t").unwrap();
    let read_only = Options {
        read_only: true,
        ..options(false)
    };
    let reader = Toy::open(&sim.env_of_process(2), "/db", &read_only, 4).unwrap();
    toy.append(table, &rows(0, 64), Durability::Disk).unwrap();
    // Sixteen blocks, by the thread that encodes.
    let state = |toy: &Toy| toy.kernel.snapshot().unwrap().table(table).unwrap();
    while state(&toy).open_rows().next().is_some() {
        std::thread::yield_now();
    }
    let pages = [&toy, &reader].map(|toy| {
        let tree = &state(toy).tree;
        tree.check_invariants(&**toy.kernel.store()).unwrap()
    });
    limit_page_entries(MAX_PAGE_ENTRIES);
    assert_eq!(pages, [5, 5], "of the writer and of a reader");
}
