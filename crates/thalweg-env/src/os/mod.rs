//! The operating system's files, clocks, random source and threads.
//!
//! Invariants
//! - All file handles are close-on-exec (the standard library opens them so).
//! - One call here is one system call, apart from [`OsFile::allocate`] where the file system cannot reserve.
#![expect(
    clippy::disallowed_methods,
    reason = "the one module that may reach the operating system; everyone else goes through Env"
)]

mod locks;
pub(crate) mod process;
mod thread_starts;

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::runtime::{Clock, Entropy, JoinHandle, Spawner};
use crate::storage::{DirEntry, File, LockKind, Metadata, OpenMode, Storage};
use crate::sync::thread;
use locks::ListedFile;
pub use thread_starts::start_threads;

/// The file system of the operating system.
#[derive(Debug)]
pub(crate) struct OsStorage;

impl Storage for OsStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = locks::open_listed(|is_first| {
            let mut options = OpenOptions::new();
            options.read(true).write(mode != OpenMode::Read);
            // A file that the first attempt has made is there.
            options
                .create_new(mode == OpenMode::CreateNew && is_first)
                .create(mode == OpenMode::OpenOrCreate);
            options.open(path)
        });
        Ok(Arc::new(OsFile { file: file? }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            match entry.file_type() {
                Ok(found) => entries.push(DirEntry {
                    name: entry.file_name(),
                    is_dir: found.is_dir(),
                }),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        // The empty path is how a relative path spells "the parent is the current directory".
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        fs::File::open(path)?.sync_all()
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let found = fs::metadata(path)?;
        Ok(Metadata {
            len_bytes: found.len(),
            is_dir: found.is_dir(),
        })
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(path)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
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
    Ok(rustix::fs::fallocate(
        file,
        rustix::fs::FallocateFlags::empty(),
        offset,
        len_bytes,
    )?)
}

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

    fn process_id(&self) -> u32 {
        process::id()
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
}
