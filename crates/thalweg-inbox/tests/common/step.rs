//! Processes that make one call at a time: each is run again from its beginning with the replies that it got so far, and may
//! make one more call on the machine.
//!
//! Invariants
//! - What a process does depends on the replies to its calls alone, so the replies are its state.
//! - Opening a file that is there is one step with the call after it: a file stays readable once it is open.
//! - Waiting for a lock is one step, which a process makes when somebody has let go of a lock.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thalweg_env::sim::{HandleId, SimEnv};
use thalweg_env::sync::Mutex;
use thalweg_env::{
    Clock, Dir, DirEntry, Entropy, Env, File, JoinHandle, LockKind, Metadata, OpenMode, Spawner,
    Storage,
};

/// What a call returned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    Failed(io::ErrorKind, Option<i32>),
    Done,
    Opened(usize),
    Flag(bool),
    Number(u64),
    Bytes(Vec<u8>),
    Names(Vec<(std::ffi::OsString, bool)>),
}

impl Reply {
    fn of<T>(result: io::Result<T>, reply: impl FnOnce(T) -> Reply) -> Reply {
        match result {
            Ok(value) => reply(value),
            Err(error) => Reply::Failed(error.kind(), error.raw_os_error()),
        }
    }
}

/// The state of a process: what it was answered, and what it has open.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub replies: Vec<Arc<Reply>>,
    handles: Vec<Option<HandleId>>,
    paths: Vec<PathBuf>,
    clock_reads: usize,
    /// Of all replies, and of all but the last one.
    pub hash: u64,
    hash_before: u64,
}

/// How a process got on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// It would make another call.
    Suspended,
    /// It waits for a lock.
    Blocked,
}

#[derive(Debug)]
struct Journal {
    sim: SimEnv,
    process_id: u32,
    trace: Trace,
    at: usize,
    budget: usize,
    progress: Option<Progress>,
    /// The clock, by how often it was read.
    clock: Vec<i64>,
    random: u64,
    made: Option<String>,
    pins_are_steps: bool,
}

impl Journal {
    fn call(
        &mut self,
        is_step: bool,
        name: impl FnOnce() -> String,
        perform: impl FnOnce(&SimEnv, u32, &mut Trace) -> Reply,
    ) -> Arc<Reply> {
        if let Some(reply) = self.trace.replies.get(self.at) {
            self.at += 1;
            return Arc::clone(reply);
        }
        if self.progress.is_some() || self.budget == 0 {
            self.progress.get_or_insert(Progress::Suspended);
            return Arc::new(Reply::Failed(io::ErrorKind::Other, None));
        }
        if is_step {
            self.budget -= 1;
            self.made = Some(name());
        }
        let reply = Arc::new(perform(&self.sim, self.process_id, &mut self.trace));
        self.trace.replies.push(Arc::clone(&reply));
        self.trace.hash_before = self.trace.hash;
        self.trace.hash = hash_with(self.trace.hash, &reply);
        self.at += 1;
        reply
    }
}

/// The environment of a process that is run step by step.
#[derive(Clone, Debug)]
pub struct Stepped(Arc<Mutex<Journal>>);

impl Stepped {
    /// Goes on with a process on a machine, for so many calls.
    pub fn new(
        sim: &SimEnv,
        process_id: u32,
        mut trace: Trace,
        clock: Vec<i64>,
        budget: usize,
        pins_are_steps: bool,
    ) -> Self {
        trace.clock_reads = 0;
        Stepped(Arc::new(Mutex::new(Journal {
            sim: sim.clone(),
            process_id,
            trace,
            at: 0,
            budget,
            progress: None,
            clock,
            random: 0,
            made: None,
            pins_are_steps,
        })))
    }

    pub fn env(&self) -> Env {
        let part = Arc::new(self.clone());
        Env::new(part.clone(), part.clone(), part.clone(), part)
    }

    /// Calls that were answered so far.
    pub fn calls(&self) -> usize {
        self.0.lock().at
    }

    /// Whether it was stopped in the middle.
    pub fn progress(&self) -> Option<Progress> {
        self.0.lock().progress
    }

    /// The call that it made.
    pub fn made(&self) -> Option<String> {
        self.0.lock().made.clone()
    }

    pub fn into_trace(self) -> Trace {
        std::mem::take(&mut self.0.lock().trace)
    }

    fn call(
        &self,
        name: impl FnOnce() -> String,
        perform: impl FnOnce(&SimEnv, u32, &mut Trace) -> Reply,
    ) -> io::Result<Arc<Reply>> {
        self.answered(true, name, perform)
    }

    fn answered(
        &self,
        is_step: bool,
        name: impl FnOnce() -> String,
        perform: impl FnOnce(&SimEnv, u32, &mut Trace) -> Reply,
    ) -> io::Result<Arc<Reply>> {
        let reply = self.0.lock().call(is_step, name, perform);
        match *reply {
            Reply::Failed(_, Some(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Reply::Failed(kind, None) => Err(io::Error::new(kind, "the process is stopped")),
            _ => Ok(reply),
        }
    }

    fn on_storage<T>(
        &self,
        name: impl FnOnce() -> String,
        call: impl FnOnce(&dyn Storage) -> io::Result<T>,
        reply: impl FnOnce(T) -> Reply,
    ) -> io::Result<Arc<Reply>> {
        self.call(name, |sim, process_id, _| {
            let env = sim.env_of_process(process_id);
            Reply::of(call(&**env.storage()), reply)
        })
    }

    /// A call that returns nothing.
    fn done(
        &self,
        what: &str,
        path: &Path,
        call: impl FnOnce(&dyn Storage) -> io::Result<()>,
    ) -> io::Result<()> {
        let reply = self.on_storage(|| name_of(what, path), call, |()| Reply::Done);
        reply.map(drop)
    }
}

fn name_of(what: &str, path: &Path) -> String {
    format!("{what} {}", path.display())
}

impl Storage for Stepped {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let is_step = !matches!(mode, OpenMode::Read | OpenMode::ReadWrite);
        let reply = self.answered(
            is_step,
            || name_of("create", path),
            |sim, process_id, trace| {
                Reply::of(sim.open_handle(process_id, path, mode), |id| {
                    trace.handles.push(Some(id));
                    trace.paths.push(path.to_owned());
                    Reply::Opened(trace.handles.len() - 1)
                })
            },
        )?;
        let Reply::Opened(number) = *reply else {
            unreachable!()
        };
        Ok(Arc::new(SteppedFile {
            stepped: self.clone(),
            number,
        }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.done("mkdir", path, |s| s.create_dir(path))
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let reply = self.on_storage(
            || name_of("list", path),
            |storage| storage.list_dir(path),
            |names| Reply::Names(names.into_iter().map(|e| (e.name, e.is_dir)).collect()),
        )?;
        let Reply::Names(names) = &*reply else {
            unreachable!()
        };
        let names = names.iter().cloned();
        Ok(names
            .map(|(name, is_dir)| DirEntry { name, is_dir })
            .collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.done("rename to", to, |s| s.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.done("remove", path, |s| s.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.done("rmdir", path, |s| s.remove_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.done("sync", path, |s| s.sync_dir(path))
    }

    fn open_dir(&self, _: &Path) -> io::Result<Arc<dyn Dir>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let reply = self.on_storage(
            || name_of("stat", path),
            |storage| storage.metadata(path),
            |found| Reply::Number(found.len_bytes << 1 | u64::from(found.is_dir)),
        )?;
        let Reply::Number(number) = *reply else {
            unreachable!()
        };
        Ok(Metadata {
            len_bytes: number >> 1,
            is_dir: number & 1 == 1,
        })
    }

    fn hard_link(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn hold(&self, _: &Path) -> io::Result<Arc<dyn Storage>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn release(&self) {}

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let reply = self.on_storage(
            || name_of("statfs", path),
            |s| s.free_bytes(path),
            Reply::Number,
        )?;
        let Reply::Number(number) = *reply else {
            unreachable!()
        };
        Ok(number)
    }
}

#[derive(Debug)]
struct SteppedFile {
    stepped: Stepped,
    number: usize,
}

impl SteppedFile {
    fn on_file<T>(
        &self,
        what: &str,
        call: impl FnOnce(&dyn File) -> io::Result<T>,
        reply: impl FnOnce(T) -> Reply,
    ) -> io::Result<Arc<Reply>> {
        let number = self.number;
        let path = self.stepped.0.lock().trace.paths.get(number).cloned();
        let path = path.unwrap_or_default();
        // Nobody but a writer that removes looks at pins.
        let is_step = !path.ends_with("readers") || self.stepped.0.lock().pins_are_steps;
        let name = || format!("{what} {}", path.display());
        self.stepped.answered(is_step, name, |sim, _, trace| {
            let id = trace.handles[number].clone().expect("an open file");
            Reply::of(sim.on_handle(&id, call), reply)
        })
    }
}

impl File for SteppedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = buf.len();
        let reply = self.on_file(
            "read",
            |file| {
                let mut bytes = vec![0; wanted];
                let count = file.read_at(&mut bytes, offset)?;
                bytes.truncate(count);
                Ok(bytes)
            },
            Reply::Bytes,
        )?;
        let Reply::Bytes(bytes) = &*reply else {
            unreachable!()
        };
        buf[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let what = format!("write {}+{}", offset, buf.len());
        let written = |count| Reply::Number(count as u64);
        let reply = self.on_file(&what, |file| file.write_at(buf, offset), written)?;
        let Reply::Number(count) = *reply else {
            unreachable!()
        };
        Ok(usize::try_from(count).unwrap())
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let bytes: Vec<u8> = bufs.iter().flat_map(|part| part.iter().copied()).collect();
        self.write_at(&bytes, offset)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        let reply = self.on_file("length", |file| file.len_bytes(), Reply::Number)?;
        let Reply::Number(count) = *reply else {
            unreachable!()
        };
        Ok(count)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        let done = self.on_file("cut", |file| file.set_len(len_bytes), |()| Reply::Done);
        done.map(drop)
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.on_file("sync", |file| file.sync_data(), |()| Reply::Done)
            .map(drop)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn try_lock(&self, range: Range<u64>, kind: LockKind) -> io::Result<bool> {
        let what = format!("lock {:x}", range.start);
        let reply = self.on_file(&what, |file| file.try_lock(range, kind), Reply::Flag)?;
        let Reply::Flag(flag) = *reply else {
            unreachable!()
        };
        Ok(flag)
    }

    fn is_locked(&self, range: Range<u64>) -> io::Result<bool> {
        let reply = self.on_file("look at lock", |file| file.is_locked(range), Reply::Flag)?;
        let Reply::Flag(flag) = *reply else {
            unreachable!()
        };
        Ok(flag)
    }

    fn unlock(&self, range: Range<u64>) -> io::Result<()> {
        let what = format!("unlock {:x}", range.start);
        self.on_file(&what, |file| file.unlock(range), |()| Reply::Done)
            .map(drop)
    }
}

impl Drop for SteppedFile {
    fn drop(&mut self) {
        let mut journal = self.stepped.0.lock();
        let is_now = journal.progress.is_none() && journal.at == journal.trace.replies.len();
        if is_now && let Some(id) = journal.trace.handles[self.number].take() {
            journal.sim.close_handle(&id);
        }
    }
}

impl Clock for Stepped {
    fn monotonic_ns(&self) -> u64 {
        0
    }

    fn wall_ns(&self) -> i64 {
        let reply = self.answered(false, String::new, |_, _, _| Reply::Done);
        let mut journal = self.0.lock();
        let at = journal.trace.clock_reads;
        if reply.is_err() {
            return 0;
        }
        // The clock is read in the same order in each run.
        journal.trace.clock_reads += 1;
        journal
            .clock
            .get(at)
            .or(journal.clock.last())
            .copied()
            .unwrap_or(0)
    }

    fn boot_id(&self) -> [u8; 16] {
        self.0.lock().sim.env().clock().boot_id()
    }

    fn process(&self) -> u64 {
        self.0.lock().process_id.into()
    }

    fn sleep(&self, _: Duration) {
        let mut journal = self.0.lock();
        let is_refused = journal
            .trace
            .replies
            .last()
            .is_some_and(|last| **last == Reply::Flag(false));
        if journal.progress.is_none() && journal.at == journal.trace.replies.len() && is_refused {
            // It tries again when a lock was let go of.
            journal.trace.replies.pop();
            journal.trace.hash = journal.trace.hash_before;
            journal.at -= 1;
            journal.progress = Some(Progress::Blocked);
        }
    }
}

impl Entropy for Stepped {
    fn fill(&self, buf: &mut [u8]) -> io::Result<()> {
        let mut journal = self.0.lock();
        journal.random += 1;
        let value = (u64::from(journal.process_id) << 8 | journal.random).to_le_bytes();
        buf.iter_mut()
            .zip(value.iter().cycle())
            .for_each(|(to, from)| *to = *from);
        Ok(())
    }
}

impl Spawner for Stepped {
    fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn hash_with(before: u64, reply: &Reply) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (before, reply).hash(&mut hasher);
    hasher.finish()
}
