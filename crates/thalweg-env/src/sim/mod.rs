//! The simulated environment: a machine in memory that can lose, tear, delay and refuse.
//!
//! [`SimEnv`] is the handle a test holds; [`SimEnv::env`] is what the code under test gets. Each storage call
//! has a number ([`SimEnv::calls`]); a [`FaultPlan`] decides which calls go wrong. After a crash, or at any
//! moment, [`SimEnv::crash_image`] gives a new and independent environment with what survived.
//!
//! ```
//! # #[cfg(feature = "shuttle")]
//! # fn main() {} // Runs inside a shuttle execution only.
//! # #[cfg(not(feature = "shuttle"))]
//! # fn main() -> std::io::Result<()> {
//! use std::path::Path;
//! use thalweg_env::OpenMode;
//! use thalweg_env::sim::{CrashChoice, SimEnv};
//!
//! let sim = SimEnv::new(7);
//! let env = sim.env();
//! let file = env.storage().open(Path::new("/log"), OpenMode::CreateNew)?;
//! env.storage().sync_dir(Path::new("/"))?;
//! file.write_all_at(b"durable", 0)?;
//! file.sync_data()?;
//! file.write_all_at(b"forgotten", 0)?;
//! let after = sim.crash_image(&CrashChoice::DropAll);
//! assert_eq!(after.read_file(Path::new("/log"))?, b"durable");
//! # Ok(())
//! # }
//! ```
//!
//! To crash at every call of a workload, either run it once per call with [`FaultPlan::crash_at`], or run it
//! once with [`SimEnv::record_states`] and take [`SimEnv::state_at`] of each call: the same states, much faster.
//!
//! [`SimEnv::branch`] gives the same machine once more, with its processes, their locks and open files, so that a test can try
//! what each of them may do next.
//!
//! Invariants
//! - One seed gives one run, as long as the code under test starts no real threads. What is seen of calls that are under
//!   way ([`Fault::Linger`], [`Fault::Watched`]) is drawn from it as well.
//! - Images share nothing that changes: an image can be crashed and damaged again, any number of times.
//! - Stricter than any one file system: names and bytes are independent, a sync of a file does not make its
//!   name durable, pending changes survive in any subset. Not modelled: permissions beyond
//!   [`SimEnv::set_read_only`], and times of files.
//! - With the cargo feature `shuttle` everything here must run inside a shuttle execution.

mod branch;
mod content;
mod crash;
mod fault;
mod files;
mod machine;
mod names;
mod paths;
mod process;
mod race;
mod runtime;
mod state;
mod units;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use branch::HandleId;
pub use crash::{CrashChoice, Fill, ItemFate, Kept, PendingItem};
pub use fault::{CallKind, Errno, Fault, FaultPlan, FaultRule, MUTATING, ReadsAfter, SYNCS};
pub use machine::{Stats, TraceRecord};
pub use race::RACE_BYTES;
pub use runtime::SpawnMode;
pub use units::{PAGE_BYTES, SECTOR_BYTES};

use crate::Env;
use crate::sync::{Condvar, Mutex};
use content::Content;
use machine::{Context, Disk, Machine, Request, Settings};
use paths::absolute;
use process::Processes;
use runtime::{Jobs, SimClock, SimEntropy, SimSpawner, Time};
use state::{FsState, Ino};

/// A function that runs while a call is under way.
struct Watcher(Box<dyn FnMut() + Send>);

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watcher")
    }
}

/// Everything the handles of one simulation share.
#[derive(Debug)]
struct World {
    disk: Disk,
    time: Mutex<Time>,
    random: Mutex<fastrand::Rng>,
    processes: Mutex<Processes>,
    /// `None` while the watcher runs.
    watcher: Mutex<Option<Watcher>>,
    jobs: Mutex<Jobs>,
    boot_id: [u8; 16],
    seed: u64,
}

impl World {
    fn call<T>(
        &self,
        request: &Request<'_>,
        body: impl FnOnce(&mut Machine, &Context) -> io::Result<T>,
    ) -> io::Result<T> {
        let advance = |ns| self.advance_ns(ns);
        self.disk.call(request, advance, || self.watch(), body)
    }

    fn watch(&self) {
        // What the watcher does is not watched itself.
        let Some(mut watcher) = self.watcher.lock().take() else {
            return;
        };
        watcher.0();
        self.watcher.lock().get_or_insert(watcher);
    }

    fn advance_ns(&self, ns: u64) {
        if ns > 0 {
            self.time.lock().advance(ns);
        }
    }
}

/// A simulated machine, as its test sees it. Clones are handles of the same machine.
#[derive(Clone, Debug)]
pub struct SimEnv {
    world: Arc<World>,
    process_id: u32,
}

impl SimEnv {
    /// A machine with an empty disk; the seed decides all that is random.
    #[must_use]
    pub fn new(seed: u64) -> SimEnv {
        let boot_id = boot_id(seed);
        SimEnv::assemble(
            FsState::new(),
            Settings::default(),
            Time::new(),
            boot_id,
            seed,
            1,
        )
    }

    fn assemble(
        fs: FsState,
        settings: Settings,
        time: Time,
        boot_id: [u8; 16],
        seed: u64,
        process_id: u32,
    ) -> SimEnv {
        let world = World {
            disk: Disk {
                machine: Mutex::new(Machine::new(fs, settings, seed)),
                released: Condvar::new(),
            },
            time: Mutex::new(time),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            processes: Mutex::default(),
            watcher: Mutex::new(None),
            jobs: Mutex::new(Jobs::default()),
            boot_id,
            seed,
        };
        SimEnv {
            world: Arc::new(world),
            process_id,
        }
    }

    /// The machine that goes on from a state: another process of this boot, or the next boot.
    fn successor(&self, fs: FsState, same_boot: bool) -> SimEnv {
        let mut settings = self.world.disk.machine.lock().settings.clone();
        settings.lying_disk = false;
        let next_process = if same_boot { self.process_id + 1 } else { 1 };
        settings.pass_on_working_dir(self.process_id, next_process);
        let seed = self.world.seed.wrapping_add(1);
        let time = self.world.time.lock().clone();
        if same_boot {
            SimEnv::assemble(fs, settings, time, self.world.boot_id, seed, next_process)
        } else {
            let time = time.rebooted();
            SimEnv::assemble(fs, settings, time, boot_id(seed), seed, next_process)
        }
    }

    /// The environment for the code under test, as the first process.
    #[must_use]
    pub fn env(&self) -> Env {
        self.env_of_process(self.process_id)
    }

    /// The id of the first process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process_id
    }

    /// The environment of another process on the same machine.
    #[must_use]
    pub fn env_of_process(&self, process_id: u32) -> Env {
        let world = &self.world;
        world.processes.lock().note(process_id);
        Env::new(
            Arc::new(files::SimStorage {
                world: Arc::clone(world),
                process_id,
                held: None,
            }),
            Arc::new(SimClock {
                world: Arc::clone(world),
                process_id,
            }),
            Arc::new(SimEntropy {
                world: Arc::clone(world),
            }),
            Arc::new(SimSpawner {
                world: Arc::clone(world),
                process_id,
            }),
        )
    }

    /// A path as the first process means it.
    fn absolute(&self, path: &Path) -> PathBuf {
        self.with(|machine| absolute(machine.settings.working_dir(self.process_id), path))
    }

    fn with<T>(&self, action: impl FnOnce(&mut Machine) -> T) -> T {
        action(&mut self.world.disk.machine.lock())
    }
}

/// A boot id that depends on the seed alone.
fn boot_id(seed: u64) -> [u8; 16] {
    fastrand::Rng::with_seed(seed).u128(1..).to_le_bytes()
}

/// Faults, crashes and what is left after them.
impl SimEnv {
    /// Storage calls made so far; the next one has this number plus one.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.with(|machine| machine.calls)
    }

    /// Replaces the plan of faults.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.with(|machine| machine.plan = plan);
    }

    /// Stops the machine now: every later call fails, hung ones too.
    pub fn crash(&self) {
        self.with(|machine| machine.crashed = true);
        self.world.disk.released.notify_all();
    }

    /// Whether the machine has crashed.
    #[must_use]
    pub fn is_crashed(&self) -> bool {
        self.with(|machine| machine.crashed)
    }

    /// Ends one process (`kill -9`): its later calls fail, and its locks are gone, but for those that a child of a fork has
    /// inherited.
    pub fn kill_process(&self, process_id: u32) {
        self.with(|machine| machine.kill(process_id));
        self.world.disk.released.notify_all();
    }

    /// Sets a function that runs at each call that the plan watches ([`Fault::Watched`]), while that call is under way:
    /// as another process might that happens to run just then. `None`: nothing runs.
    pub fn set_watcher(&self, watcher: Option<Box<dyn FnMut() + Send>>) {
        *self.world.watcher.lock() = watcher.map(Watcher);
    }

    /// The changes that a crash now may keep or lose, in the order they were made.
    #[must_use]
    pub fn pending_items(&self) -> Vec<PendingItem> {
        crash::pending_items(&self.fs())
    }

    /// The choices worth trying now: drop all, keep all, all subsets if there are at most `subsets`, else so
    /// many random ones, up to `tears` tears of the last write, and growth of the file without its data.
    #[must_use]
    pub fn crash_choices(&self, subsets: usize, tears: usize, seed: u64) -> Vec<CrashChoice> {
        crash::crash_choices(&self.fs(), subsets, tears, seed)
    }

    /// Choices that leave sectors of the last pending write unreadable, all else as it should be: up to `limit` of those
    /// that the write covers from end to end, one at a time, then all of them. None for writes of more than 32 KiB.
    #[must_use]
    pub fn unreadable_choices(&self, limit: usize) -> Vec<CrashChoice> {
        crash::unreadable_choices(&self.fs(), limit)
    }

    /// A new machine with what survives if this one crashed now; this one goes on undisturbed.
    ///
    /// It has another boot id and no locks, plan, trace or recording; settings such as the quota stay.
    #[must_use]
    pub fn crash_image(&self, choice: &CrashChoice) -> SimEnv {
        self.successor(
            crash::crash(&self.fs(), choice),
            *choice == CrashChoice::Kill,
        )
    }

    /// Starts or stops keeping the state at every call from the next one on.
    pub fn record_states(&self, on: bool) {
        self.with(|machine| machine.states = on.then(|| (machine.calls + 1, Vec::new())));
    }

    /// The machine as [`FaultPlan::crash_at`] would have left it at that call, with all that was pending,
    /// the effect of the call itself included; for [`SimEnv::crash_image`]. Nothing if it was not recorded.
    #[must_use]
    pub fn state_at(&self, call: u64) -> Option<SimEnv> {
        let fs = self.with(|machine| {
            let (first, states) = machine.states.as_ref()?;
            states
                .get(usize::try_from(call.checked_sub(*first)?).ok()?)
                .cloned()
        })?;
        Some(self.successor(FsState::clone(&fs), true))
    }

    /// Lets calls that hang go on; later calls hang again where the plan has it so.
    pub fn release_hung_calls(&self) {
        self.with(|machine| machine.releases += 1);
        self.world.disk.released.notify_all();
    }

    /// Calls that hang now.
    #[must_use]
    pub fn hung_calls(&self) -> usize {
        self.with(|machine| machine.hung_calls)
    }

    fn fs(&self) -> Arc<FsState> {
        self.with(|machine| Arc::clone(&machine.fs))
    }
}

/// Processes.
impl SimEnv {
    /// Forks a process; returns the id of the child. It shares the open files of its parent, their locks included, and its
    /// working directory. [`SimEnv::as_process`] acts as the child, [`SimEnv::kill_process`] ends it.
    #[must_use]
    pub fn fork_process(&self, parent: u32) -> u32 {
        self.world.fork(parent)
    }

    /// Whether a child of a fork closes at once all files of which its parent holds locks. The operating system does not;
    /// an environment that learns of forks can. Off by default.
    pub fn set_forks_close_locked(&self, on: bool) {
        self.with(|machine| machine.settings.forks_close_locked = on);
    }

    /// Acts as a child of a fork, in this thread: what its ancestors opened and made before the fork is used by the child.
    /// Handles that are dropped here are let go of by the child alone; its ancestors hold theirs until they end.
    #[cfg(not(feature = "shuttle"))]
    pub fn as_process<T>(&self, process_id: u32, action: impl FnOnce() -> T) -> T {
        let _acting = self.world.act_as(process_id);
        action()
    }
}

/// Settings of the disk.
impl SimEnv {
    /// Limits the space that files take, in units of 4 KiB; writes past it fail with `ENOSPC` (or are short).
    pub fn set_quota(&self, quota_bytes: Option<u64>) {
        self.with(|machine| machine.settings.quota_bytes = quota_bytes);
    }

    /// Whether the quota shows at syncs only, as with delayed allocation; such a sync loses what it covers.
    pub fn set_quota_at_sync(&self, at_sync: bool) {
        self.with(|machine| machine.settings.quota_at_sync = at_sync);
    }

    /// Whether the quota holds for writes in place as well, as on copy-on-write file systems (Btrfs, ZFS, bcachefs): they go
    /// elsewhere, and the place of the old bytes is free after the next sync of the file.
    pub fn set_copy_on_write(&self, on: bool) {
        self.with(|machine| machine.settings.copy_on_write = on);
    }

    /// Whether the disk reports more free space than the quota leaves, as `statvfs` does where the quota is one of a user, a
    /// folder or a subvolume, or the device is a thin volume.
    pub fn set_hides_quota(&self, hides: bool) {
        self.with(|machine| machine.settings.hides_quota = hides);
    }

    /// Whether syncs succeed without doing anything. Images after a crash have an honest disk again.
    pub fn set_lying_disk(&self, lying: bool) {
        self.with(|machine| machine.settings.lying_disk = lying);
    }

    /// Gives a process (by default the first one: [`SimEnv::process_id`]) another working directory, where its relative
    /// paths start from now on; `/` before. The first process of an image starts where the first one here was.
    pub fn set_working_dir(&self, process_id: u32, path: &Path) -> io::Result<()> {
        self.with(|machine| {
            let path = absolute(machine.settings.working_dir(process_id), path);
            let (place, ino) = machine.fs.lookup_place(&path)?;
            machine.fs.dir(ino)?;
            machine.settings.working_dirs.insert(process_id, place.path);
            Ok(())
        })
    }

    /// Whether changes are refused with `EROFS`.
    pub fn set_read_only(&self, read_only: bool) {
        self.with(|machine| machine.settings.read_only = read_only);
    }

    /// Lets the disk write back the oldest pending changes of a file that has more than so many, as disks
    /// may at any time. For long runs over files that are never synced; off by default.
    pub fn set_write_back_after(&self, changes: Option<usize>) {
        self.with(|machine| machine.settings.write_back_after = changes);
    }

    /// Whether these calls fail, and are listed by [`SimEnv::strict_violations`]: renames of a file with
    /// unsynced bytes, and changes of a sealed file.
    pub fn set_strict(&self, strict: bool) {
        self.with(|machine| machine.settings.strict = strict);
    }

    /// Marks a file as complete: strict mode refuses to change it from now on.
    pub fn seal(&self, path: &Path) -> io::Result<()> {
        let path = self.absolute(path);
        self.with(|machine| {
            let ino = machine.fs.lookup(&path)?;
            machine.fs_mut().file_mut(ino)?.sealed = true;
            Ok(())
        })
    }

    /// Breaches of the strict rules so far.
    #[must_use]
    pub fn strict_violations(&self) -> Vec<String> {
        self.with(|machine| machine.violations.clone())
    }
}

/// Time and threads.
impl SimEnv {
    /// Lets time pass on both clocks.
    pub fn advance(&self, duration: Duration) {
        self.world
            .advance_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Sets the wall clock alone, in nanoseconds since 1970.
    pub fn set_wall_ns(&self, wall_ns: i64) {
        self.world.time.lock().wall_ns = wall_ns;
    }

    /// Whether the wall clock stands still.
    pub fn set_wall_stopped(&self, stopped: bool) {
        self.world.time.lock().wall_stopped = stopped;
    }

    /// Makes each reading of the wall clock jump by up to so much, both ways.
    pub fn set_wall_jitter_ns(&self, jitter_ns: u32) {
        self.world.time.lock().wall_jitter_ns = jitter_ns;
    }

    /// How far each reading of a clock moves both clocks; 1,000 ns by default.
    pub fn set_tick_ns(&self, tick_ns: u64) {
        self.world.time.lock().tick_ns = tick_ns;
    }

    /// How long each storage call takes; nothing by default.
    pub fn set_call_cost_ns(&self, cost_ns: u64) {
        self.with(|machine| machine.settings.call_cost_ns = cost_ns);
    }

    /// Sets how threads are started from now on.
    pub fn set_spawn_mode(&self, mode: SpawnMode) {
        self.world.jobs.lock().mode = mode;
    }

    /// Runs the queued job that waits longest, in this thread; returns whether there was one.
    pub fn run_one_job(&self) -> bool {
        self.world.run_one_job()
    }

    /// Names of the jobs that wait, the next one first.
    #[must_use]
    pub fn queued_jobs(&self) -> Vec<String> {
        self.world.jobs.lock().names()
    }
}

/// Counters of what was done.
impl SimEnv {
    /// Counters of calls and bytes.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.with(|machine| machine.stats)
    }

    /// Sets the counters to zero; the numbers of calls go on.
    pub fn reset_stats(&self) {
        self.with(|machine| machine.stats = Stats::default());
    }

    /// Files that a process has open, each handle counted.
    #[must_use]
    pub fn open_handles(&self, process_id: u32) -> usize {
        self.with(|machine| {
            let open = machine.descriptions.values();
            open.filter(|open| open.holders.contains(&process_id))
                .count()
        })
    }

    /// Of these, those of files that have no name any more: the space they take is free once they are closed.
    #[must_use]
    pub fn open_removed_files(&self, process_id: u32) -> usize {
        self.with(|machine| {
            let files = machine.fs.visible_files();
            let named: BTreeSet<Ino> = files.into_iter().map(|(_, ino)| ino).collect();
            let open = machine.descriptions.values();
            let is_removed = |ino: &Ino| !named.contains(ino);
            open.filter(|open| open.holders.contains(&process_id) && is_removed(&open.ino))
                .count()
        })
    }

    /// The files with sectors that cannot be read, as a crash has left them.
    #[must_use]
    pub fn unreadable_files(&self) -> Vec<PathBuf> {
        let fs = self.fs();
        let is_bad = |ino| fs.file(ino).is_ok_and(|file| file.visible.has_unreadable());
        let files = fs.visible_files().into_iter();
        files
            .filter(|(_, ino)| is_bad(*ino))
            .map(|(path, _)| path)
            .collect()
    }

    /// Starts a new record of calls, or stops recording.
    pub fn set_trace(&self, on: bool) {
        self.with(|machine| machine.trace = on.then(Vec::new));
    }

    /// The calls recorded since the last time.
    #[must_use]
    pub fn take_trace(&self) -> Vec<TraceRecord> {
        self.with(|machine| {
            machine
                .trace
                .as_mut()
                .map(std::mem::take)
                .unwrap_or_default()
        })
    }
}

/// The disk from outside, for checks and for damage. These are no storage calls: they have no
/// number and meet no fault. Those that change something make everything durable after that.
impl SimEnv {
    /// All files with their lengths in bytes, sorted by path.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let fs = self.fs();
        let len = |ino| fs.file(ino).map_or(0, |file| file.visible.len_bytes());
        fs.visible_files()
            .into_iter()
            .map(|(path, ino)| (path, len(ino)))
            .collect()
    }

    /// Bytes of all files as a quota counts them: in whole pages of 4 KiB.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let files = self.files().into_iter();
        files.map(|(_, bytes)| bytes.next_multiple_of(4096)).sum()
    }

    /// A hash over the paths and bytes of all files, to see whether anything changed.
    #[must_use]
    pub fn content_hash(&self) -> u64 {
        let fs = self.fs();
        let mut hasher = DefaultHasher::new();
        for (path, ino) in fs.visible_files() {
            path.hash(&mut hasher);
            if let Ok(file) = fs.file(ino) {
                file.visible.hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// The bytes of a file.
    pub fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        let fs = self.fs();
        Ok(fs.file(fs.lookup(&self.absolute(path))?)?.visible.to_vec())
    }

    /// Gives a file new bytes; it and the directories it lacks are created.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let path = self.absolute(path);
        self.damage(|fs| {
            let mut parents: Vec<&Path> = path.ancestors().skip(1).collect();
            parents.reverse();
            for parent in parents {
                if fs.lookup(parent).is_err() {
                    fs.create_dir(parent)?;
                }
            }
            let ino = fs
                .lookup(&path)
                .or_else(|_| fs.create_file(fs.free_entry(&path)?))?;
            fs.file_mut(ino)?.visible = Arc::new(Content::from_bytes(bytes));
            Ok(())
        })
    }

    /// Replaces bytes of a file in place, or adds to it.
    pub fn overwrite_file(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.damage_file(path, |content| content.write(offset, bytes))
    }

    /// Cuts a file, or makes it longer with zeros.
    pub fn set_file_len(&self, path: &Path, len_bytes: u64) -> io::Result<()> {
        self.damage_file(path, |content| content.set_len(len_bytes))
    }

    /// Removes a file.
    pub fn remove_file(&self, path: &Path) -> io::Result<()> {
        let path = self.absolute(path);
        self.damage(|fs| fs.remove_file(&path))
    }

    /// Makes a symbolic link to a path, which need not exist; a relative target starts where the link is.
    pub fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        let link = self.absolute(link);
        self.damage(|fs| fs.symlink(target, &link))
    }

    /// Makes everything visible durable.
    pub fn sync_everything(&self) {
        self.with(|machine| machine.fs_mut().make_durable());
    }

    fn damage(&self, action: impl FnOnce(&mut FsState) -> io::Result<()>) -> io::Result<()> {
        self.with(|machine| {
            let fs = machine.fs_mut();
            let result = action(fs);
            fs.make_durable();
            result
        })
    }

    fn damage_file(&self, path: &Path, action: impl FnOnce(&mut Content)) -> io::Result<()> {
        let path = self.absolute(path);
        self.damage(|fs| {
            let ino: Ino = fs.lookup(&path)?;
            action(Arc::make_mut(&mut fs.file_mut(ino)?.visible));
            Ok(())
        })
    }
}
