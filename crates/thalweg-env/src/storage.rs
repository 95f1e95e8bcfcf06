//! The traits of the file system: names in [`Storage`], bytes in [`File`].
//!
//! Invariants
//! - Every transfer names its offset; there is no file position, so handles can be shared between threads.
//! - The required methods are one system call each and may be short or interrupted; the provided `*_all*`
//!   and `*_exact*` methods hide that and nothing else. They never retry any other error.
//! - A failed sync is never retried here: after one, the state of the unsynced bytes is unknown.

use std::ffi::OsString;
use std::fmt::{self, Debug};
use std::io::{self, ErrorKind, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most slices that one vectored write may take (`IOV_MAX` of the systems we run on).
pub const MAX_SLICES: usize = 1024;

/// How a file is opened.
///
/// ```
/// # #[cfg(feature = "shuttle")]
/// # fn main() {} // Runs inside a shuttle execution only.
/// # #[cfg(not(feature = "shuttle"))]
/// # fn main() -> std::io::Result<()> {
/// use std::{io::ErrorKind, path::Path};
/// use thalweg_env::{Env, OpenMode};
///
/// let (env, path) = (Env::in_memory(), Path::new("/log"));
/// let missing = env.storage().open(path, OpenMode::Read).unwrap_err();
/// assert_eq!(missing.kind(), ErrorKind::NotFound);
/// env.storage().open(path, OpenMode::CreateNew)?;
/// let taken = env.storage().open(path, OpenMode::CreateNew).unwrap_err();
/// assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    ReadWrite,
    /// A new file, for reading and writing; `AlreadyExists` if the name is taken.
    CreateNew,
    /// A file for reading and writing, created empty if missing.
    OpenOrCreate,
}

/// Strength of a lock on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Any number of handles may share it.
    Shared,
    /// One handle alone; the handle must be open for writing.
    Exclusive,
}

/// One entry of a directory listing. Its length is not in it: the system would have to be asked for each file on its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Name within the directory.
    pub name: OsString,
    /// Whether it is a directory itself.
    pub is_dir: bool,
}

/// The length and kind of what a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Length of the file; of no meaning for directories.
    pub len_bytes: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Names: directories and the files in them.
pub trait Storage: Send + Sync + Debug {
    /// Opens a file. The handle is closed when the last `Arc` goes, which releases its locks and syncs nothing.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Creates one directory; `AlreadyExists` if the name is taken, `NotFound` if the parent is missing.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Names in a directory, without `.` and `..`, in any order: sorting those of a large folder takes as long as reading them.
    ///
    /// Entries that vanish while the listing is made are left out.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;

    /// Renames a file or directory, replacing a file of the new name in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name; open handles keep working.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the entries of a directory durable: creations, renames and removals in it.
    ///
    /// It opens the directory first, and its error does not show which of the two failed: where a failed sync means more than
    /// a directory that could not be opened for a moment, take [`Storage::open_dir`] before the entries change.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Opens a directory, so that its entries can be synced later.
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>>;

    /// Length and kind of what a path names.
    fn metadata(&self, path: &Path) -> io::Result<Metadata>;

    /// Gives a file a second name; `AlreadyExists` if the new name is taken.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// The same storage, in which paths that begin with `folder` lead into the folder of that name now: also once the folder
    /// was moved or removed, another one has its name, a link on the path was changed, or the process has another working
    /// directory. Held until [`Storage::release`], or for as long as what is returned lives; [`Storage::canonicalize`] goes by
    /// names all the same.
    fn hold(&self, folder: &Path) -> io::Result<Arc<dyn Storage>>;

    /// Lets go of the folder that this storage holds. What is asked of paths that begin with it fails from then on, with
    /// [`Released`] where the operating system is asked; open files stay open.
    fn release(&self);

    /// The absolute path without `.`, `..` and symbolic links.
    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf>;

    /// Bytes that an unprivileged process may still write on the file system holding `path`; `u64::MAX` where it has no limit.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Creates a directory and the parents it lacks; no error if it is there already.
    ///
    /// Nothing is synced: the parent of each new directory needs a [`Storage::sync_dir`] of its own.
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let created = match self.create_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => match path.parent() {
                Some(parent) => self
                    .create_dir_all(parent)
                    .and_then(|()| self.create_dir(path)),
                None => Err(error),
            },
            created => created,
        };
        // Not by error kind: `create_dir` of the root is refused with several of them.
        created.or_else(|error| match self.metadata(path) {
            Ok(found) if found.is_dir => Ok(()),
            _ => Err(error),
        })
    }
}

/// The folder was let go of that a storage held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released;

impl fmt::Display for Released {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the folder is not held any more")
    }
}

impl std::error::Error for Released {}

impl From<Released> for io::Error {
    fn from(error: Released) -> io::Error {
        io::Error::other(error)
    }
}

/// An open directory.
pub trait Dir: Send + Sync + Debug {
    /// Makes its entries durable: creations, renames and removals in it.
    fn sync(&self) -> io::Result<()>;
}

/// The bytes of one open file.
pub trait File: Send + Sync + Debug {
    /// Reads up to `buf.len()` bytes; `Ok(0)` at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes up to `buf.len()` bytes, growing the file where needed.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;

    /// Writes several slices one after the other; at most [`MAX_SLICES`] of them.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;

    /// Length of the file.
    fn len_bytes(&self) -> io::Result<u64>;

    /// Cuts or grows the file; new bytes read as zeros.
    fn set_len(&self, len_bytes: u64) -> io::Result<()>;

    /// Reserves disk space for a range and grows the file to its end; existing bytes stay, new ones are zeros.
    fn allocate(&self, offset: u64, len_bytes: u64) -> io::Result<()>;

    /// Makes the bytes and the length durable (not times and permissions).
    fn sync_data(&self) -> io::Result<()>;

    /// Makes the bytes and all metadata of the file durable (not its name, see [`Storage::sync_dir`]).
    fn sync_all(&self) -> io::Result<()>;

    /// Takes a lock owned by this handle, or returns `false` if another handle holds one in its way.
    ///
    /// Locks exclude handles, also of the same process; a handle's own lock on the range is replaced.
    /// They are advisory, and go with the handle or the process: a child of a fork has none of its parent's.
    /// An exclusive lock needs a handle open for writing.
    ///
    /// ```
    /// # #[cfg(feature = "shuttle")]
    /// # fn main() {} // Runs inside a shuttle execution only.
    /// # #[cfg(not(feature = "shuttle"))]
    /// # fn main() -> std::io::Result<()> {
    /// use std::path::Path;
    /// use thalweg_env::{Env, LockKind, OpenMode};
    ///
    /// let env = Env::in_memory();
    /// let open = || env.storage().open(Path::new("/lock"), OpenMode::OpenOrCreate);
    /// let (first, second) = (open()?, open()?);
    /// assert!(first.try_lock(0..1, LockKind::Exclusive)?);
    /// assert!(!second.try_lock(0..1, LockKind::Shared)?); // the same process, another handle
    /// assert!(second.try_lock(1..2, LockKind::Shared)?);
    /// first.unlock(0..1)?;
    /// assert!(!second.is_locked(0..1)?);
    /// # Ok(())
    /// # }
    /// ```
    fn try_lock(&self, range: Range<u64>, kind: LockKind) -> io::Result<bool>;

    /// Whether another handle holds a lock in the range. Takes none: nobody is refused for the look.
    fn is_locked(&self, range: Range<u64>) -> io::Result<bool>;

    /// Releases this handle's locks in the range.
    fn unlock(&self, range: Range<u64>) -> io::Result<()>;

    /// Fills the buffer; `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => {
                    return Err(io::Error::new(
                        ErrorKind::UnexpectedEof,
                        "the file ends inside the range to read",
                    ));
                }
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the whole buffer; `WriteZero` if the system takes no bytes.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.write_at(&buf[done..], offset + done as u64) {
                Ok(0) => return Err(takes_nothing()),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all slices one after the other, however many; their contents are consumed.
    fn write_all_vectored_at(&self, bufs: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let (mut rest, mut offset) = (bufs, offset);
        // Advancing, also by zero, drops empty slices in front: each batch starts with bytes to write.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match self.write_vectored_at(&rest[..rest.len().min(MAX_SLICES)], offset) {
                Ok(0) => return Err(takes_nothing()),
                Ok(count) => {
                    IoSlice::advance_slices(&mut rest, count);
                    offset += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether a read failed because the device does not return the bytes: a bad sector, as a power cut during its write may
/// leave it. Too many open files, missing rights and the like mean nothing for the bytes.
#[must_use]
pub fn is_unreadable(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

fn takes_nothing() -> io::Error {
    io::Error::new(ErrorKind::WriteZero, "the system took no bytes of a write")
}
