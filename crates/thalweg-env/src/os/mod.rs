//! The operating system's files, clocks, random source and threads.
//!
//! Invariants
//! - All file handles are close-on-exec (the standard library opens them so).
//! - One call here is one system call, but for those on folders, which open them first, and for [`OsFile::allocate`] where the
//!   file system cannot reserve.
//! - A folder that is held is open; what is below it is found from there, not by its path.
#![expect(
    clippy::disallowed_methods,
    reason = "the one module that may reach the operating system; everyone else goes through Env"
)]

mod descriptors;
mod locks;
pub(crate) mod process;
mod thread_starters;
mod thread_starts;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::retry_on_intr;

use crate::runtime::{Clock, Entropy, JoinHandle, Spawner};
use crate::storage::{Dir, DirEntry, File, LockKind, Metadata, OpenMode, Released, Storage};
use crate::sync::{Mutex, thread};
use locks::ListedFile;
pub use locks::beyond_standard_streams;
pub use thread_starts::start_threads;

/// How a folder is opened in which names are looked up: as with its path, it need not be readable.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LOOKUP: OFlags = OFlags::PATH;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const LOOKUP: OFlags = OFlags::RDONLY;

/// Rights of new files and folders, as the process's mask leaves them.
const FILE_MODE: Mode = Mode::from_bits_retain(0o666);
const DIR_MODE: Mode = Mode::from_bits_retain(0o777);

/// The file system of the operating system.
#[derive(Debug, Default)]
pub(crate) struct OsStorage {
    held: Option<HeldFolder>,
}

/// An open folder, and the path that it was opened by.
#[derive(Debug)]
struct HeldFolder {
    path: PathBuf,
    /// `None` once it was released.
    folder: Mutex<Option<Arc<ListedFile>>>,
}

/// The folder from which a path is looked up.
enum Start {
    WorkingDirectory,
    Held(Arc<ListedFile>),
}

impl AsFd for Start {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::WorkingDirectory => rustix::fs::CWD,
            Self::Held(folder) => folder.file().as_fd(),
        }
    }
}

impl OsStorage {
    /// The folder from which a path is looked up, and the path from there.
    fn start<'a>(&self, path: &'a Path) -> io::Result<(Start, &'a Path)> {
        let held = self.held.as_ref();
        let below = held.and_then(|held| Some((held, path.strip_prefix(&held.path).ok()?)));
        let Some((held, below)) = below else {
            return Ok((Start::WorkingDirectory, path));
        };
        let folder = held.folder.lock().clone();
        let folder = folder.ok_or(Released)?;
        Ok((Start::Held(folder), shown(below)))
    }

    fn descriptor(&self, path: &Path, access: OFlags) -> io::Result<OwnedFd> {
        let (start, path) = self.start(path)?;
        let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(retry_on_intr(|| {
            rustix::fs::openat(&start, path, flags, Mode::empty())
        })?)
    }
}

/// The empty path is how a relative path spells "here", for example as the parent of a name.
fn shown(path: &Path) -> &Path {
    match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    }
}

impl Storage for OsStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let (start, path) = self.start(path)?;
        let file = locks::open_listed(|is_first| {
            let access = match mode {
                OpenMode::Read => OFlags::RDONLY,
                _ => OFlags::RDWR,
            };
            let creation = match mode {
                OpenMode::Read | OpenMode::ReadWrite => OFlags::empty(),
                // A file that the first attempt has made is there.
                OpenMode::CreateNew if !is_first => OFlags::empty(),
                OpenMode::CreateNew => OFlags::CREATE | OFlags::EXCL,
                OpenMode::OpenOrCreate => OFlags::CREATE,
            };
            let flags = access | creation | OFlags::CLOEXEC;
            let opened = retry_on_intr(|| rustix::fs::openat(&start, path, flags, FILE_MODE));
            Ok(fs::File::from(opened?))
        });
        Ok(Arc::new(OsFile { file: file? }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let (start, path) = self.start(path)?;
        Ok(rustix::fs::mkdirat(&start, path, DIR_MODE)?)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::new(self.descriptor(path, OFlags::RDONLY)?)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let file_type = match entry.file_type() {
                FileType::Unknown => match self.type_of_entry(&path.join(name)) {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    found => found?,
                },
                known => known,
            };
            entries.push(DirEntry {
                name: name.to_owned(),
                is_dir: file_type.is_dir(),
            });
        }
        Ok(entries)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_start, from), (to_start, to)) = (self.start(from)?, self.start(to)?);
        Ok(rustix::fs::renameat(&from_start, from, &to_start, to)?)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (start, path) = self.start(path)?;
        Ok(rustix::fs::unlinkat(&start, path, AtFlags::empty())?)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let (start, path) = self.start(path)?;
        Ok(rustix::fs::unlinkat(&start, path, AtFlags::REMOVEDIR)?)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        // As files are: again after a signal, and down to the medium on the systems of Apple.
        fs::File::from(self.descriptor(shown(path), OFlags::RDONLY)?).sync_all()
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let open = || self.descriptor(shown(path), OFlags::RDONLY);
        let folder = locks::open_listed(|_| Ok(fs::File::from(open()?)))?;
        Ok(Arc::new(OsDir { folder }))
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let (start, path) = self.start(path)?;
        let found = rustix::fs::statat(&start, path, AtFlags::empty())?;
        Ok(Metadata {
            len_bytes: u64::try_from(found.st_size).unwrap_or(0),
            is_dir: FileType::from_raw_mode(found.st_mode).is_dir(),
        })
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_start, from), (to_start, to)) = (self.start(from)?, self.start(to)?);
        let flags = AtFlags::empty();
        Ok(rustix::fs::linkat(&from_start, from, &to_start, to, flags)?)
    }

    fn hold(&self, folder: &Path) -> io::Result<Arc<dyn Storage>> {
        // Listed, so that no child of a fork keeps a folder in use.
        let open = locks::open_listed(|_| Ok(fs::File::from(self.descriptor(folder, LOOKUP)?)))?;
        let held = HeldFolder {
            path: folder.to_owned(),
            folder: Mutex::new(Some(Arc::new(open))),
        };
        Ok(Arc::new(OsStorage { held: Some(held) }))
    }

    fn release(&self) {
        if let Some(held) = &self.held {
            held.folder.lock().take();
        }
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let found = match self.start(path)? {
            (start, here) if here == Path::new(".") && self.held.is_some() => {
                rustix::fs::fstatvfs(&start)
            }
            (start, path) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                rustix::fs::openat(&start, path, flags, Mode::empty())
                    .and_then(rustix::fs::fstatvfs)
            }
        }?;
        Ok(match found.f_blocks {
            // A file system without a limit of its own, such as ramfs.
            0 => u64::MAX,
            _ => found.f_bavail.saturating_mul(found.f_frsize),
        })
    }
}

impl OsStorage {
    /// Asked for where the file system does not return it with the name.
    fn type_of_entry(&self, path: &Path) -> io::Result<FileType> {
        let (start, path) = self.start(path)?;
        let found = rustix::fs::statat(&start, path, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileType::from_raw_mode(found.st_mode))
    }
}

/// An open directory of the operating system.
#[derive(Debug)]
struct OsDir {
    folder: ListedFile,
}

impl Dir for OsDir {
    fn sync(&self) -> io::Result<()> {
        self.folder.file().sync_all()
    }
}

/// An open file of the operating system.
#[derive(Debug)]
struct OsFile {
    file: ListedFile,
}

impl File for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.file().read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.file.file().write_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(self.file.file(), bufs, offset)?)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.file.file().metadata()?.len())
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.file.file().set_len(len_bytes)
    }

    fn allocate(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        match reserve(self.file.file(), offset, len_bytes) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let end = offset
                    .checked_add(len_bytes)
                    .ok_or(ErrorKind::InvalidInput)?;
                self.write_zeros_behind_end(end)
            }
            reserved => reserved,
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.file().sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.file().sync_all()
    }

    fn try_lock(&self, range: Range<u64>, kind: LockKind) -> io::Result<bool> {
        self.file.try_lock(range, kind)
    }

    fn is_locked(&self, range: Range<u64>) -> io::Result<bool> {
        self.file.is_locked(range)
    }

    fn unlock(&self, range: Range<u64>) -> io::Result<()> {
        self.file.unlock(range)
    }
}

impl OsFile {
    /// Reserves by writing: the file systems that refuse `fallocate` (ZFS, NFS 3, those of macOS) offer no
    /// other way. Holes inside the file stay holes; existing bytes are never touched.
    fn write_zeros_behind_end(&self, end: u64) -> io::Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut offset = self.len_bytes()?;
        while offset < end {
            let count =
                usize::try_from(end - offset).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
            self.write_all_at(&ZEROS[..count], offset)?;
            offset += count as u64;
        }
        Ok(())
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn reserve(file: &fs::File, offset: u64, len_bytes: u64) -> io::Result<()> {
    let flags = rustix::fs::FallocateFlags::empty();
    for _ in 0..MAX_INTERRUPTIONS {
        match rustix::fs::fallocate(file, flags, offset, len_bytes) {
            Err(rustix::io::Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
    // A timer that is quicker than the call would interrupt it for ever; writes get on.
    Err(ErrorKind::Unsupported.into())
}

/// A signal interrupts the call in some file systems (tmpfs), which then have reserved nothing.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MAX_INTERRUPTIONS: usize = 16;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn reserve(_file: &fs::File, _offset: u64, _len_bytes: u64) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// The clocks of the operating system.
#[derive(Debug)]
pub(crate) struct OsClock;

impl Clock for OsClock {
    fn monotonic_ns(&self) -> u64 {
        // Not `Instant`: it hides the absolute value that processes of one boot may compare.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let secs = u64::try_from(now.tv_sec).unwrap_or(0);
        let ns = u64::try_from(now.tv_nsec).unwrap_or(0);
        secs.saturating_mul(1_000_000_000).saturating_add(ns)
    }

    fn wall_ns(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
        }
    }

    fn boot_id(&self) -> [u8; 16] {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        parse_uuid(&text).unwrap_or_default()
    }

    fn process(&self) -> u64 {
        process::key()
    }

    fn sleep(&self, duration: Duration) {
        thread::sleep(duration);
    }
}

/// The 16 bytes of `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    if digits.len() != 32 {
        return None;
    }
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

/// The random source of the operating system.
#[derive(Debug)]
pub(crate) struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&self, buf: &mut [u8]) -> io::Result<()> {
        getrandom::fill(buf).map_err(io::Error::other)
    }
}

/// Threads of the operating system.
#[derive(Debug)]
pub(crate) struct OsSpawner;

impl Spawner for OsSpawner {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
        start_threads(|| thread::spawn(name, job))
    }

    #[cfg(not(feature = "shuttle"))]
    fn share(&self, name: &str, threads: usize, work: &(dyn Fn() + Sync)) {
        if threads < 2 {
            return work();
        }
        std::thread::scope(|scope| {
            for _ in 1..threads {
                let thread = std::thread::Builder::new().name(name.to_owned());
                // The others do what one does that could not be started.
                if start_threads(|| thread.spawn_scoped(scope, work)).is_err() {
                    break;
                }
            }
            work();
        });
    }
}
