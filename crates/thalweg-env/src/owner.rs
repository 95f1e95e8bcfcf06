//! Storage and files that belong to the process that opened them.
//!
//! Invariant: storage and files of an owner do nothing in another process. A fork copies all memory of its parent, open
//! handles included, and whatever unwinds or is dropped in the child would cut, remove or overwrite the parent's files. The
//! check is made here, below all code that could forget it; what takes a lock first asks [`Owner`] itself, since a lock that
//! another thread held at the fork is never given back in the child.

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::runtime::Clock;
use crate::storage::{Dir, DirEntry, File, LockKind, Metadata, OpenMode, Storage};

/// A process, as the owner of what it made.
#[derive(Clone, Debug)]
pub struct Owner {
    clock: Arc<dyn Clock>,
    process: u64,
}

impl Owner {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Owner {
        let process = clock.process();
        Owner { clock, process }
    }

    /// Whether the calling process is the owner, not a child of its fork.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.clock.process() == self.process
    }

    /// # Errors
    /// [`NotOwner`] in another process.
    pub fn check(&self) -> Result<(), NotOwner> {
        if self.is_here() {
            Ok(())
        } else {
            Err(NotOwner)
        }
    }
}

/// The calling process is a child of the one that opened the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOwner;

impl fmt::Display for NotOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this database was opened before a fork: open it again in the child process")
    }
}

impl std::error::Error for NotOwner {}

impl From<NotOwner> for io::Error {
    fn from(error: NotOwner) -> io::Error {
        io::Error::other(error)
    }
}

/// A file system whose calls fail in other processes than the owner's.
#[derive(Debug)]
pub(crate) struct OwnedStorage {
    storage: Arc<dyn Storage>,
    owner: Owner,
}

impl OwnedStorage {
    pub(crate) fn new(storage: Arc<dyn Storage>, owner: Owner) -> OwnedStorage {
        OwnedStorage { storage, owner }
    }

    fn here(&self) -> io::Result<&dyn Storage> {
        self.owner.check()?;
        Ok(&*self.storage)
    }
}

impl Storage for OwnedStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.here()?.open(path, mode)?;
        let owner = self.owner.clone();
        Ok(Arc::new(OwnedFile { file, owner }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.here()?.create_dir(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.here()?.list_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.here()?.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.here()?.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.here()?.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.here()?.sync_dir(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let dir = self.here()?.open_dir(path)?;
        let owner = self.owner.clone();
        Ok(Arc::new(OwnedDir { dir, owner }))
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.here()?.metadata(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.here()?.hard_link(from, to)
    }

    fn hold(&self, folder: &Path) -> io::Result<Arc<dyn Storage>> {
        let storage = self.here()?.hold(folder)?;
        let owner = self.owner.clone();
        Ok(Arc::new(OwnedStorage { storage, owner }))
    }

    fn release(&self) {
        if let Ok(storage) = self.here() {
            storage.release();
        }
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.here()?.canonicalize(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.here()?.free_bytes(path)
    }
}

/// An open directory whose calls fail in other processes than the owner's.
#[derive(Debug)]
struct OwnedDir {
    dir: Arc<dyn Dir>,
    owner: Owner,
}

impl Dir for OwnedDir {
    fn sync(&self) -> io::Result<()> {
        self.owner.check()?;
        self.dir.sync()
    }
}

/// An open file whose calls fail in other processes than the owner's.
#[derive(Debug)]
struct OwnedFile {
    file: Arc<dyn File>,
    owner: Owner,
}

impl OwnedFile {
    fn here(&self) -> io::Result<&dyn File> {
        self.owner.check()?;
        Ok(&*self.file)
    }
}

impl File for OwnedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.here()?.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.here()?.write_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.here()?.write_vectored_at(bufs, offset)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.here()?.len_bytes()
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.here()?.set_len(len_bytes)
    }

    fn allocate(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.here()?.allocate(offset, len_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.here()?.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.here()?.sync_all()
    }

    fn try_lock(&self, range: Range<u64>, kind: LockKind) -> io::Result<bool> {
        self.here()?.try_lock(range, kind)
    }

    fn is_locked(&self, range: Range<u64>) -> io::Result<bool> {
        self.here()?.is_locked(range)
    }

    fn unlock(&self, range: Range<u64>) -> io::Result<()> {
        self.here()?.unlock(range)
    }
}
