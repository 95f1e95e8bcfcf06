//! The simulated machine: it numbers each storage call, lets the fault plan befall it, and carries it out.
//!
//! Invariants
//! - One lock guards the whole machine, so calls take effect one after the other; a call that hangs gives
//!   the lock up meanwhile.
//! - After a crash no call has an effect any more, and all fail alike.
//! - A sync covers what was changed before it began, not what other threads add while it is delayed.
//! - A call that is under way holds the lock no longer (`race`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::content::pieces;
use super::content::{CHUNK_BYTES, Content, index};
use super::fault::{Call, CallKind, Errno, Fault, FaultPlan, Injected, MUTATING, ReadsAfter};
use super::paths::ROOT_PATH;
use super::race::Races;
use super::state::{ByteChange, FsState, Ino};
use crate::storage::LockKind;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A call that was made, as recorded by [`super::SimEnv::set_trace`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// Number of the call, from 1.
    pub call: u64,
    /// The process that made it.
    pub process_id: u32,
    /// Which method.
    pub kind: CallKind,
    /// The file or directory.
    pub path: PathBuf,
    /// The new name of a rename or link.
    pub to: Option<PathBuf>,
    /// Where in the file.
    pub offset: u64,
    /// How many bytes were asked for.
    pub len_bytes: u64,
    /// The error that it failed with, if it did.
    pub error: Option<io::ErrorKind>,
}

/// Counts of what was done since the start or the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// All storage calls.
    pub calls: u64,
    /// Files opened or created.
    pub opens: u64,
    /// Reads, and the bytes they returned.
    pub reads: u64,
    /// Bytes returned by reads.
    pub bytes_read: u64,
    /// Writes, vectored or not.
    pub writes: u64,
    /// Bytes taken by writes.
    pub bytes_written: u64,
    /// Successful syncs of files.
    pub syncs: u64,
    /// Successful syncs of directories.
    pub dir_syncs: u64,
}

/// A call as its caller asks for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) kind: CallKind,
    pub(super) process_id: u32,
    pub(super) path: &'a Path,
    pub(super) to: Option<&'a Path>,
    pub(super) offset: u64,
    pub(super) len_bytes: u64,
}

/// The circumstances of a call, for its body.
#[derive(Debug)]
pub(super) struct Context {
    /// Changes with lower sequence numbers were made before the call began.
    before_seq: u64,
    injected: Option<Injected>,
    /// The state before what was done while this call was under way.
    before: Option<Arc<FsState>>,
}

/// A lock on a range of a file.
#[derive(Clone, Debug)]
pub(super) struct HeldLock {
    ino: Ino,
    /// The open file description.
    pub(super) handle: u64,
    range: Range<u64>,
    kind: LockKind,
}

/// An open file, by the number of its description, and who opened it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle {
    pub(super) id: u64,
    pub(super) ino: Ino,
    pub(super) process_id: u32,
    pub(super) writable: bool,
}

/// An open file as the system keeps it, shared by a process and the children it has forked since.
#[derive(Clone, Debug)]
pub(super) struct Description {
    pub(super) ino: Ino,
    pub(super) holders: BTreeSet<u32>,
}

/// Files, faults and counters behind the lock.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) fs: Arc<FsState>,
    pub(super) plan: FaultPlan,
    pub(super) settings: Settings,
    pub(super) stats: Stats,
    pub(super) calls: u64,
    pub(super) crashed: bool,
    pub(super) killed: BTreeSet<u32>,
    pub(super) trace: Option<Vec<TraceRecord>>,
    /// The state at each call, by its number less the one of the first recorded.
    pub(super) states: Option<(u64, Vec<Arc<FsState>>)>,
    pub(super) violations: Vec<String>,
    pub(super) hung_calls: usize,
    /// Counts releases, so that a call hangs until the next one.
    pub(super) releases: u64,
    pub(super) locks: Vec<HeldLock>,
    pub(super) descriptions: BTreeMap<u64, Description>,
    pub(super) next_handle: u64,
    /// Changes under way.
    pub(super) races: Races,
    /// Chunks that were written in place on a copy-on-write disk, by file: the old ones take space until its sync.
    superseded: BTreeMap<Ino, BTreeSet<u64>>,
}

/// Settings that stay the same over a crash.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub(super) read_only: bool,
    pub(super) strict: bool,
    pub(super) lying_disk: bool,
    pub(super) quota_bytes: Option<u64>,
    pub(super) quota_at_sync: bool,
    pub(super) copy_on_write: bool,
    pub(super) hides_quota: bool,
    pub(super) write_back_after: Option<usize>,
    pub(super) call_cost_ns: u64,
    /// A child of a fork closes the descriptors whose files its parent holds locks of.
    pub(super) forks_close_locked: bool,
    /// Where the relative paths of a process start, if not in the root.
    pub(super) working_dirs: BTreeMap<u32, PathBuf>,
}

impl Settings {
    /// After a crash there is one process, in the directory of the one before.
    pub(super) fn pass_on_working_dir(&mut self, from: u32, to: u32) {
        let dir = self.working_dir(from).to_owned();
        self.working_dirs = BTreeMap::from([(to, dir)]);
    }

    pub(super) fn working_dir(&self, process_id: u32) -> &Path {
        let given = self.working_dirs.get(&process_id);
        given.map_or(Path::new(ROOT_PATH), PathBuf::as_path)
    }
}

/// The error of every call after a crash.
pub(super) fn simulated_crash() -> io::Error {
    io::Error::other("simulated crash")
}

impl Machine {
    pub(super) fn new(fs: FsState, settings: Settings, seed: u64) -> Machine {
        Machine {
            fs: Arc::new(fs),
            plan: FaultPlan::none(),
            settings,
            stats: Stats::default(),
            calls: 0,
            crashed: false,
            killed: BTreeSet::new(),
            trace: None,
            states: None,
            violations: Vec::new(),
            hung_calls: 0,
            releases: 0,
            locks: Vec::new(),
            descriptions: BTreeMap::new(),
            next_handle: 1,
            races: Races::new(seed),
            superseded: BTreeMap::new(),
        }
    }

    /// The state, to change it; a copy is made if a recording or an image shares it.
    pub(super) fn fs_mut(&mut self) -> &mut FsState {
        Arc::make_mut(&mut self.fs)
    }

    pub(super) fn check_alive(&self, process_id: u32) -> io::Result<()> {
        if self.crashed || self.killed.contains(&process_id) {
            Err(simulated_crash())
        } else {
            Ok(())
        }
    }

    /// Counts the call and asks the plan.
    fn begin(&mut self, request: &Request<'_>) -> io::Result<Option<Injected>> {
        self.check_alive(request.process_id)?;
        self.calls += 1;
        self.stats.calls += 1;
        let Request {
            kind,
            path,
            to,
            offset,
            len_bytes,
            ..
        } = *request;
        Ok(self.plan.decide(&Call {
            number: self.calls,
            kind,
            path,
            to,
            offset,
            len_bytes,
        }))
    }

    /// Asks the plan whether a thread can be started, which is no call of storage.
    pub(super) fn spawn_fault(&mut self, name: &str, process_id: u32) -> io::Result<()> {
        self.check_alive(process_id)?;
        let injected = self.plan.decide(&Call {
            number: self.calls,
            kind: CallKind::Spawn,
            path: Path::new(name),
            to: None,
            offset: 0,
            len_bytes: 0,
        });
        match injected.map(|injected| injected.fault) {
            Some(
                Fault::Error(errno) | Fault::ErrorAfter(errno) | Fault::FlushError { errno, .. },
            ) => Err(errno.into()),
            Some(Fault::Crash) => {
                self.crashed = true;
                Err(simulated_crash())
            }
            _ => Ok(()),
        }
    }

    /// Runs the body of a call as its fault allows.
    fn run<T>(
        &mut self,
        request: &Request<'_>,
        number: u64,
        context: &Context,
        body: impl FnOnce(&mut Machine, &Context) -> io::Result<T>,
    ) -> io::Result<T> {
        let is_sync = request.kind.is_sync();
        if is_sync {
            self.record_state(number);
        }
        let read_only = self.settings.read_only
            && MUTATING.contains(&request.kind)
            && request.kind != CallKind::Open;
        let result = match context.injected.as_ref().map(|injected| injected.fault) {
            Some(Fault::Crash) => {
                if !is_sync && !read_only {
                    drop(body(self, context));
                }
                self.crashed = true;
                Err(simulated_crash())
            }
            Some(Fault::Error(errno)) => Err(errno.into()),
            Some(Fault::FlushError { errno, .. }) if !is_sync => Err(errno.into()),
            _ if read_only => Err(Errno::ROFS.into()),
            Some(Fault::ErrorAfter(errno)) => body(self, context).and_then(|_| Err(errno.into())),
            _ => body(self, context),
        };
        if !is_sync {
            self.record_state(number);
        }
        let error = result.as_ref().err().map(io::Error::kind);
        self.record_call(request, number, error);
        result
    }

    fn record_state(&mut self, number: u64) {
        if let Some((first, states)) = &mut self.states {
            // A call that hung ends after others; the state then stands for its own number all the same.
            let at = index(number - *first);
            while states.len() <= at {
                states.push(Arc::clone(&self.fs));
            }
            states[at] = Arc::clone(&self.fs);
        }
    }

    fn record_call(&mut self, request: &Request<'_>, call: u64, error: Option<io::ErrorKind>) {
        if let Some(trace) = &mut self.trace {
            trace.push(TraceRecord {
                call,
                process_id: request.process_id,
                kind: request.kind,
                path: request.path.to_owned(),
                to: request.to.map(Path::to_owned),
                offset: request.offset,
                len_bytes: request.len_bytes,
                error,
            });
        }
    }

    /// Reports a breach of a strict rule, if they are in force.
    fn breach(&mut self, breached: bool, text: impl FnOnce() -> String) -> io::Result<()> {
        if !self.settings.strict || !breached {
            return Ok(());
        }
        let text = text();
        self.violations.push(text.clone());
        Err(io::Error::other(text))
    }

    pub(super) fn read(
        &mut self,
        handle: &Handle,
        buf: &mut [u8],
        offset: u64,
        context: &Context,
    ) -> io::Result<usize> {
        let file = self.fs.file(handle.ino)?;
        let limit = context
            .short()
            .map_or(buf.len(), |most| most.min(buf.len()));
        let mut count = file.visible.read(offset, &mut buf[..limit]);
        let end = offset + count as u64;
        if let Some(bad) = file.visible.first_unreadable(offset..end) {
            // Some systems return what lies before it.
            if bad == offset || self.races.toss() {
                return Err(Errno::IO.into());
            }
            count = index(bad - offset);
        }
        let file = Arc::clone(&file.visible);
        count = self
            .races
            .read(handle.ino, &mut buf[..count], offset, context.before());
        context.damage(&mut buf[..count], offset, |from, part| {
            part.fill(0);
            file.read(from, part);
        });
        self.stats.reads += 1;
        self.stats.bytes_read += count as u64;
        Ok(count)
    }

    pub(super) fn write(
        &mut self,
        handle: &Handle,
        bufs: &[IoSlice<'_>],
        offset: u64,
        context: &Context,
    ) -> io::Result<usize> {
        let mut bytes = Vec::with_capacity(bufs.iter().map(|buf| buf.len()).sum());
        bufs.iter().for_each(|buf| bytes.extend_from_slice(buf));
        if let Some(most) = context.short() {
            bytes.truncate(most);
        }
        self.check_writable(handle)?;
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        bytes.truncate(index(self.fitting(handle.ino, offset..end)?));
        let count = bytes.len();
        let written = offset..offset + count as u64;
        if self
            .fs
            .file(handle.ino)?
            .visible
            .must_read_to_write(&written)
        {
            return Err(Errno::IO.into());
        }
        self.supersede(handle.ino, written)?;
        if count > 0 {
            self.change_bytes(
                handle,
                ByteChange::Write {
                    offset,
                    bytes: bytes.into(),
                },
            )?;
        }
        self.stats.writes += 1;
        self.stats.bytes_written += count as u64;
        Ok(count)
    }

    pub(super) fn set_len(&mut self, handle: &Handle, len_bytes: u64) -> io::Result<()> {
        self.check_writable(handle)?;
        self.change_bytes(handle, ByteChange::SetLen { len_bytes })
    }

    pub(super) fn allocate(&mut self, handle: &Handle, range: Range<u64>) -> io::Result<()> {
        self.check_writable(handle)?;
        if self.fitting(handle.ino, range.clone())? < range.end - range.start {
            return Err(Errno::NOSPC.into());
        }
        self.change_bytes(handle, ByteChange::Allocate { range })
    }

    fn check_writable(&mut self, handle: &Handle) -> io::Result<()> {
        if !handle.writable {
            return Err(Errno::BADF.into());
        }
        let file = self.fs.file(handle.ino)?;
        let (sealed, path) = (file.sealed, Arc::clone(&file.path));
        self.breach(sealed, || {
            format!("strict: change of the sealed file {}", path.display())
        })
    }

    fn change_bytes(&mut self, handle: &Handle, change: ByteChange) -> io::Result<()> {
        let most = self.settings.write_back_after;
        let fs = self.fs_mut();
        fs.change_bytes(handle.ino, change)?;
        if let Some(most) = most {
            let file = fs.file_mut(handle.ino)?;
            file.write_back(file.pending.len().saturating_sub(most));
        }
        Ok(())
    }

    /// The number of bytes of a range that the quota lets in from its start; an error if none.
    fn fitting(&self, ino: Ino, range: Range<u64>) -> io::Result<u64> {
        if self.settings.quota_at_sync {
            return Ok(range.end - range.start);
        }
        let Some(mut room) = self.room_bytes() else {
            return Ok(range.end - range.start);
        };
        let file = self.fs.file(ino)?;
        let mut end = range.start;
        for piece in pieces(range.clone(), CHUNK_BYTES) {
            let missing = self.needed_bytes(ino, &file.visible, piece.clone());
            if missing > room {
                break;
            }
            room -= missing;
            end = piece.end;
        }
        if end == range.start && !range.is_empty() {
            Err(Errno::NOSPC.into())
        } else {
            Ok(end - range.start)
        }
    }

    /// Notes what a write in place takes beside the old bytes, which stay until the next sync.
    fn supersede(&mut self, ino: Ino, range: Range<u64>) -> io::Result<()> {
        if !self.settings.copy_on_write {
            return Ok(());
        }
        let content = Arc::clone(&self.fs.file(ino)?.visible);
        let chunks = pieces(range, CHUNK_BYTES)
            .filter(|piece| content.missing_bytes(piece.clone()) == 0)
            .map(|piece| piece.start / CHUNK_BYTES);
        self.superseded.entry(ino).or_default().extend(chunks);
        Ok(())
    }

    /// Space that a write of a piece of one chunk takes.
    fn needed_bytes(&self, ino: Ino, content: &Content, piece: Range<u64>) -> u64 {
        let is_new = || {
            let noted = self.superseded.get(&ino);
            !noted.is_some_and(|chunks| chunks.contains(&(piece.start / CHUNK_BYTES)))
        };
        match content.missing_bytes(piece.clone()) {
            0 if self.settings.copy_on_write && is_new() => CHUNK_BYTES,
            missing => missing,
        }
    }

    /// Files that are open somewhere.
    pub(super) fn open_files(&self) -> impl Iterator<Item = Ino> {
        self.descriptions
            .values()
            .map(|description| description.ino)
    }

    /// The bytes that the quota leaves; `None` if there is no quota.
    pub(super) fn room_bytes(&self) -> Option<u64> {
        let superseded: usize = self.superseded.values().map(BTreeSet::len).sum();
        let used = || self.fs.used_bytes(self.open_files()) + superseded as u64 * CHUNK_BYTES;
        self.settings
            .quota_bytes
            .map(|quota| quota.saturating_sub(used()))
    }

    fn over_quota(&self) -> bool {
        let used = || self.fs.used_bytes(self.open_files());
        self.settings.quota_at_sync
            && self
                .settings
                .quota_bytes
                .is_some_and(|quota| used() > quota)
    }

    pub(super) fn sync_file(&mut self, ino: Ino, context: &Context) -> io::Result<()> {
        let lost = context
            .flush_error()
            .or(self.over_quota().then_some((Errno::NOSPC, ReadsAfter::New)));
        if let Some((errno, reads)) = lost {
            self.fs_mut()
                .lose_file_changes(ino, context.before_seq, reads)?;
            return Err(errno.into());
        }
        if !self.settings.lying_disk {
            self.fs_mut().sync_file(ino, context.before_seq)?;
        }
        self.superseded.remove(&ino);
        self.stats.syncs += 1;
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, ino: Ino, context: &Context) -> io::Result<()> {
        if let Some((errno, _)) = context.flush_error() {
            self.fs_mut().lose_name_changes(ino, context.before_seq)?;
            return Err(errno.into());
        }
        self.fs.dir(ino)?;
        if !self.settings.lying_disk {
            let open: Vec<Ino> = self.open_files().collect();
            let fs = self.fs_mut();
            fs.sync_dir(ino, context.before_seq)?;
            fs.collect(open);
        }
        self.stats.dir_syncs += 1;
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let unsynced = self
            .fs
            .entry(from)
            .and_then(|place| Ok(place.target.ok_or(Errno::NOENT)?))
            .and_then(|ino| Ok(!self.fs.file(ino)?.pending.is_empty()));
        self.breach(unsynced.unwrap_or(false), || {
            format!(
                "strict: rename of the unsynced file {} to {}",
                from.display(),
                to.display()
            )
        })?;
        self.fs_mut().rename(from, to)
    }

    pub(super) fn try_lock(
        &mut self,
        handle: &Handle,
        range: Range<u64>,
        kind: LockKind,
    ) -> io::Result<bool> {
        if kind == LockKind::Exclusive && !handle.writable {
            return Err(Errno::BADF.into());
        }
        let in_the_way = |lock: &HeldLock| {
            lock.ino == handle.ino
                && lock.handle != handle.id
                && overlap(&lock.range, &range)
                && (kind == LockKind::Exclusive || lock.kind == LockKind::Exclusive)
        };
        if self.locks.iter().any(in_the_way) {
            return Ok(false);
        }
        self.unlock(handle, range.clone())?;
        self.locks.push(HeldLock {
            ino: handle.ino,
            handle: handle.id,
            range,
            kind,
        });
        Ok(true)
    }

    /// All locks: of which file, by which processes, of which range, and whether exclusive.
    pub(super) fn named_locks(&self) -> impl Iterator<Item = (Ino, Vec<u32>, Range<u64>, bool)> {
        self.locks.iter().map(|lock| {
            let holders = self.descriptions.get(&lock.handle);
            let holders = holders.map(|held| held.holders.iter().copied().collect());
            let is_exclusive = lock.kind == LockKind::Exclusive;
            (
                lock.ino,
                holders.unwrap_or_default(),
                lock.range.clone(),
                is_exclusive,
            )
        })
    }

    /// Whether another handle holds a lock in the range; the handle's own locks stay as they are.
    pub(super) fn is_locked(&self, handle: &Handle, range: &Range<u64>) -> io::Result<bool> {
        if range.is_empty() {
            return Err(Errno::INVAL.into());
        }
        let is_held = |lock: &HeldLock| {
            lock.ino == handle.ino && lock.handle != handle.id && overlap(&lock.range, range)
        };
        Ok(self.locks.iter().any(is_held))
    }

    pub(super) fn unlock(&mut self, handle: &Handle, range: Range<u64>) -> io::Result<()> {
        if range.is_empty() {
            return Err(Errno::INVAL.into());
        }
        let touched =
            |lock: &mut HeldLock| lock.handle == handle.id && overlap(&lock.range, &range);
        let cut: Vec<HeldLock> = self.locks.extract_if(.., touched).collect();
        for lock in cut {
            for rest in [lock.range.start..range.start, range.end..lock.range.end] {
                if !rest.is_empty() {
                    self.locks.push(HeldLock {
                        range: rest,
                        ..lock.clone()
                    });
                }
            }
        }
        Ok(())
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Context {
    fn fault(&self) -> Option<Fault> {
        self.injected.as_ref().map(|injected| injected.fault)
    }

    /// The state before what was done while this call was under way.
    pub(super) fn before(&self) -> Option<&FsState> {
        self.before.as_deref()
    }

    fn short(&self) -> Option<usize> {
        match self.fault() {
            Some(Fault::Short(most)) => Some(most),
            _ => None,
        }
    }

    fn flush_error(&self) -> Option<(Errno, ReadsAfter)> {
        match self.fault() {
            Some(Fault::FlushError { errno, reads }) => Some((errno, reads)),
            _ => None,
        }
    }

    /// Damages what a read returned; `read` fetches bytes from another offset.
    fn damage(&self, buf: &mut [u8], offset: u64, read: impl Fn(u64, &mut [u8])) {
        let Some(Injected { fault, bytes }) = &self.injected else {
            return;
        };
        let whole = offset..offset + buf.len() as u64;
        let limits = bytes.clone().unwrap_or(0..u64::MAX);
        let hit = whole.start.max(limits.start)..whole.end.min(limits.end);
        if hit.is_empty() {
            return;
        }
        let part = &mut buf[index(hit.start - offset)..index(hit.end - offset)];
        match fault {
            Fault::Zeros => part.fill(0),
            Fault::Misdirected { from_offset } => {
                let origin = bytes.as_ref().map_or(offset, |range| range.start);
                read(from_offset + (hit.start - origin), part);
            }
            Fault::FlipBit(bit) if hit.contains(&(bit / 8)) => {
                part[index(bit / 8 - hit.start)] ^= 1 << (bit % 8)
            }
            _ => {}
        }
    }
}

/// The machine and its lock.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) machine: Mutex<Machine>,
    /// Notified when hung calls may go on.
    pub(super) released: Condvar,
}

impl Disk {
    /// Makes one storage call; `advance` lets simulated time pass, `watch` runs the watcher.
    pub(super) fn call<T>(
        &self,
        request: &Request<'_>,
        advance: impl Fn(u64),
        watch: impl Fn(),
        body: impl FnOnce(&mut Machine, &Context) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut machine = self.machine.lock();
        let injected = machine.begin(request)?;
        let number = machine.calls;
        let mut context = Context {
            before_seq: machine.fs.next_seq(),
            injected,
            before: None,
        };
        advance(machine.settings.call_cost_ns);
        let process_id = request.process_id;
        let fault = context.fault();
        match fault {
            Some(Fault::Delay(time)) => advance(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            Some(Fault::Hang) => self.wait_for_release(&mut machine, process_id)?,
            _ => {}
        }
        let is_racing = matches!(fault, Some(Fault::Linger | Fault::Watched));
        let looks = matches!(request.kind, CallKind::Read | CallKind::ListDir);
        if is_racing && looks {
            context.before = Some(Arc::clone(&machine.fs));
            let alive;
            (machine, alive) = self.be_under_way(machine, request, fault, &watch);
            alive?;
        }
        let before = (is_racing && !looks).then(|| Arc::clone(&machine.fs));
        let mut result = machine.run(request, number, &context, body);
        if let Some(before) = before {
            let Machine { fs, races, .. } = &mut *machine;
            races.begin(number, &before, fs, context.before_seq);
            let alive;
            (machine, alive) = self.be_under_way(machine, request, fault, &watch);
            machine.races.end(number);
            result = alive.and(result);
        }
        if machine.crashed {
            self.released.notify_all();
        }
        result
    }

    /// Lets others make calls while this one is under way, if its fault asks for that.
    fn be_under_way<'a>(
        &'a self,
        mut machine: MutexGuard<'a, Machine>,
        request: &Request<'_>,
        fault: Option<Fault>,
        watch: impl Fn(),
    ) -> (MutexGuard<'a, Machine>, io::Result<()>) {
        if fault == Some(Fault::Linger) {
            let released = self.wait_for_release(&mut machine, request.process_id);
            return (machine, released);
        }
        drop(machine);
        watch();
        let machine = self.machine.lock();
        let alive = machine.check_alive(request.process_id);
        (machine, alive)
    }

    /// Blocks until the next release, or the end of machine or process.
    fn wait_for_release(
        &self,
        machine: &mut MutexGuard<'_, Machine>,
        process_id: u32,
    ) -> io::Result<()> {
        let releases = machine.releases;
        machine.hung_calls += 1;
        while machine.releases == releases && machine.check_alive(process_id).is_ok() {
            self.released.wait(machine);
        }
        machine.hung_calls -= 1;
        machine.check_alive(process_id)
    }
}
