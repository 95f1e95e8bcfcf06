//! Files in the memory of this process, for databases that are gone when they are closed.
//!
//! Invariants
//! - The contract is that of [`Storage`] and [`File`]; errors are those of POSIX. Each storage is empty at first and shares
//!   nothing with any other one.
//! - A file takes memory for what was written, not for its length: see [`content`].
//! - A removed file keeps its bytes for as long as a handle is open, and no longer.
//! - Names, each file's bytes and each file's locks are guarded apart: opening and listing never wait for a transfer.
//! - Nothing outlives the process, so syncs have nothing to do.
//!
//! Rejected: the simulated storage ([`crate::sim`]). It keeps what a crash could lose, copies on write, and takes one lock for
//! all files. Also rejected: files in `/dev/shm` or of `memfd_create`. They outlive a killed process or need system calls
//! for each transfer, and exist on one system only.

mod content;
mod locks;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::{Bound, Range};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use self::content::Content;
use self::locks::RangeLocks;
use crate::storage::{Dir, DirEntry, File, LockKind, MAX_SLICES, Metadata, OpenMode, Storage};
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The free space that [`Storage::free_bytes`] reports. How much memory is left is known only to the write that finds none.
const FREE_BYTES: u64 = 1 << 50;

/// A file system of its own in memory.
#[derive(Clone)]
pub(crate) struct MemoryStorage(Arc<Files>);

/// The files, shared by all clones of the storage.
struct Files {
    /// All names by their whole path. Paths are ordered by component, so that what is in a folder follows the folder.
    names: RwLock<BTreeMap<PathBuf, Node>>,
    next_handle: AtomicU64,
}

impl fmt::Debug for MemoryStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStorage").finish_non_exhaustive()
    }
}

/// The target of a path.
#[derive(Clone)]
enum Node {
    Dir,
    File(Arc<Inode>),
}

/// A file, whatever its names.
#[derive(Default)]
struct Inode {
    content: Content,
    locks: RangeLocks,
}

impl Node {
    fn metadata(&self) -> Metadata {
        match self {
            Node::Dir => Metadata {
                len_bytes: 0,
                is_dir: true,
            },
            Node::File(inode) => Metadata {
                len_bytes: inode.content.len_bytes(),
                is_dir: false,
            },
        }
    }
}

type Names = BTreeMap<PathBuf, Node>;

impl MemoryStorage {
    /// A storage with nothing but the root folder.
    pub(crate) fn new() -> MemoryStorage {
        let root = (PathBuf::from("/"), Node::Dir);
        MemoryStorage(Arc::new(Files {
            names: RwLock::new(BTreeMap::from([root])),
            next_handle: AtomicU64::new(0),
        }))
    }
}

/// The absolute path without `.` and `..`; only its last component may be missing. Relative paths begin at the root.
fn resolve(names: &Names, path: &Path) -> io::Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Err(Errno::NOENT.into());
    }
    let mut at = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => {
                check_dir(names, &at)?;
                at.push(name);
            }
            Component::ParentDir => {
                check_dir(names, &at)?;
                at.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(at)
}

fn find<'a>(names: &'a Names, path: &Path) -> io::Result<&'a Node> {
    names.get(path).ok_or_else(|| Errno::NOENT.into())
}

fn check_dir(names: &Names, path: &Path) -> io::Result<()> {
    match find(names, path)? {
        Node::Dir => Ok(()),
        Node::File(_) => Err(Errno::NOTDIR.into()),
    }
}

fn check_free(names: &Names, path: &Path) -> io::Result<()> {
    match names.contains_key(path) {
        true => Err(Errno::EXIST.into()),
        false => Ok(()),
    }
}

/// Everything below a folder, folders within it included.
fn below<'a>(names: &'a Names, dir: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a Node)> {
    names
        .range::<Path, _>((Bound::Excluded(dir), Bound::Unbounded))
        .take_while(move |(path, _)| path.starts_with(dir))
}

impl Storage for MemoryStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let makes_it = matches!(mode, OpenMode::CreateNew | OpenMode::OpenOrCreate);
        let mut names = self.0.names.write();
        let path = resolve(&names, path)?;
        let inode = match names.get(&path) {
            Some(_) if mode == OpenMode::CreateNew => return Err(Errno::EXIST.into()),
            Some(Node::Dir) => return Err(Errno::ISDIR.into()),
            Some(Node::File(inode)) => Arc::clone(inode),
            None if makes_it => {
                let inode = Arc::new(Inode::default());
                names.insert(path, Node::File(Arc::clone(&inode)));
                inode
            }
            None => return Err(Errno::NOENT.into()),
        };
        Ok(Arc::new(MemoryFile {
            inode,
            handle: self.0.next_handle.fetch_add(1, Ordering::Relaxed),
            is_writable: mode != OpenMode::Read,
        }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut names = self.0.names.write();
        let path = resolve(&names, path)?;
        check_free(&names, &path)?;
        names.insert(path, Node::Dir);
        Ok(())
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let names = self.0.names.read();
        let dir = resolve(&names, path)?;
        check_dir(&names, &dir)?;
        let entries = below(&names, &dir).filter(|(path, _)| path.parent() == Some(&dir));
        let describe = |(path, node): (&PathBuf, &Node)| {
            let found = node.metadata();
            Some(DirEntry {
                name: path.file_name()?.to_owned(),
                is_dir: found.is_dir,
            })
        };
        Ok(entries.filter_map(describe).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut names = self.0.names.write();
        let (from, to) = (resolve(&names, from)?, resolve(&names, to)?);
        let moved = find(&names, &from)?.clone();
        match (&moved, names.get(&to)) {
            // Two names of one file: POSIX leaves both.
            (Node::File(moved), Some(Node::File(found))) if Arc::ptr_eq(moved, found) => {
                return Ok(());
            }
            (Node::File(_), Some(Node::Dir)) => return Err(Errno::ISDIR.into()),
            (Node::Dir, Some(Node::File(_))) => return Err(Errno::NOTDIR.into()),
            (Node::Dir, _) if from == to => return Ok(()),
            (Node::Dir, _) if to.starts_with(&from) => return Err(Errno::INVAL.into()),
            (Node::Dir, Some(Node::Dir)) if below(&names, &to).next().is_some() => {
                return Err(Errno::NOTEMPTY.into());
            }
            _ => {}
        }
        let inside: Vec<PathBuf> = below(&names, &from).map(|(path, _)| path.clone()).collect();
        for path in inside {
            let new = path.strip_prefix(&from).map(|rest| to.join(rest));
            if let (Ok(new), Some(node)) = (new, names.remove(&path)) {
                names.insert(new, node);
            }
        }
        names.remove(&from);
        let replaced = names.insert(to, moved);
        // A large file takes a while to free.
        drop(names);
        drop(replaced);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut names = self.0.names.write();
        let path = resolve(&names, path)?;
        if let Node::Dir = find(&names, &path)? {
            return Err(Errno::ISDIR.into());
        }
        let removed = names.remove(&path);
        drop(names);
        drop(removed);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut names = self.0.names.write();
        let path = resolve(&names, path)?;
        check_dir(&names, &path)?;
        if path.parent().is_none() {
            return Err(Errno::BUSY.into());
        }
        if below(&names, &path).next().is_some() {
            return Err(Errno::NOTEMPTY.into());
        }
        names.remove(&path);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        // The empty path is how a relative path spells "the parent is the current directory".
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let names = self.0.names.read();
        check_dir(&names, &resolve(&names, path)?)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        self.sync_dir(path)?;
        Ok(Arc::new(MemoryDir))
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let names = self.0.names.read();
        find(&names, &resolve(&names, path)?).map(Node::metadata)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut names = self.0.names.write();
        let (from, to) = (resolve(&names, from)?, resolve(&names, to)?);
        let Node::File(inode) = find(&names, &from)? else {
            return Err(Errno::PERM.into());
        };
        let inode = Arc::clone(inode);
        check_free(&names, &to)?;
        names.insert(to, Node::File(inode));
        Ok(())
    }

    /// By its path: only this process could move it.
    fn hold(&self, folder: &Path) -> io::Result<Arc<dyn Storage>> {
        let names = self.0.names.read();
        check_dir(&names, &resolve(&names, folder)?)?;
        Ok(Arc::new(self.clone()))
    }

    fn release(&self) {}

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        let names = self.0.names.read();
        let path = resolve(&names, path)?;
        find(&names, &path)?;
        Ok(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.metadata(path).map(|_| FREE_BYTES)
    }
}

/// An open file in memory.
struct MemoryFile {
    inode: Arc<Inode>,
    /// Owner of locks.
    handle: u64,
    is_writable: bool,
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFile")
            .field("len_bytes", &self.inode.content.len_bytes())
            .finish_non_exhaustive()
    }
}

impl MemoryFile {
    fn check_writable(&self) -> io::Result<()> {
        match self.is_writable {
            true => Ok(()),
            false => Err(Errno::BADF.into()),
        }
    }
}

/// An open directory: nothing of it outlives the process, so nothing is to be made durable.
#[derive(Debug)]
struct MemoryDir;

impl Dir for MemoryDir {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl File for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.inode.content.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.check_writable()?;
        self.inode.content.write_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.check_writable()?;
        if bufs.len() > MAX_SLICES {
            return Err(Errno::INVAL.into());
        }
        let mut done = 0;
        for buf in bufs {
            match self.inode.content.write_at(buf, offset + done as u64) {
                Ok(count) => {
                    done += count;
                    if count < buf.len() {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.inode.content.len_bytes())
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        // As `ftruncate`, which has no "bad descriptor" for this.
        self.check_writable().map_err(|_| Errno::INVAL)?;
        self.inode.content.set_len(len_bytes)
    }

    /// Only the length: memory is taken when something is written, which may fail then with `StorageFull`.
    fn allocate(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.check_writable()?;
        if len_bytes == 0 {
            return Err(Errno::INVAL.into());
        }
        self.inode.content.grow(offset, len_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn try_lock(&self, range: Range<u64>, kind: LockKind) -> io::Result<bool> {
        if kind == LockKind::Exclusive {
            self.check_writable()?;
        }
        self.inode.locks.try_lock(self.handle, &range, kind)
    }

    fn is_locked(&self, range: Range<u64>) -> io::Result<bool> {
        self.inode.locks.is_locked(self.handle, &range)
    }

    fn unlock(&self, range: Range<u64>) -> io::Result<()> {
        self.inode.locks.unlock(self.handle, &range)
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.inode.locks.release(self.handle);
    }
}
