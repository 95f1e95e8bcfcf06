//! The storage traits on the simulated machine.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::World;
use super::fault::{CallKind, Errno};
use super::machine::{Context, Handle, Machine, Request};
use super::paths::{LastLink, absolute, normalise};
use super::state::{Ino, Node};
use crate::storage::{Dir, DirEntry, File, LockKind, MAX_SLICES, Metadata, OpenMode, Storage};

/// The free space that `free_bytes` reports where there is no quota.
const UNLIMITED_BYTES: u64 = 1 << 40;

/// The file system as one process sees it.
#[derive(Debug)]
pub(super) struct SimStorage {
    pub(super) world: Arc<World>,
    pub(super) process_id: u32,
    pub(super) held: Option<HeldFolder>,
}

/// A folder, and the path that it was held by.
#[derive(Debug)]
pub(super) struct HeldFolder {
    path: PathBuf,
    ino: Ino,
    is_released: AtomicBool,
}

impl SimStorage {
    /// The process that calls: the one of this environment, or a child of it.
    fn acting(&self) -> u32 {
        self.world.acting(self.process_id)
    }

    /// Paths from the root; they still hold what only the file system resolves.
    fn absolute(&self, path: &Path) -> PathBuf {
        let process_id = self.acting();
        let machine = self.world.disk.machine.lock();
        let held = self.held.as_ref();
        let below = held.and_then(|held| Some((held, path.strip_prefix(&held.path).ok()?)));
        if let Some((held, below)) = below {
            // Nothing can be named in a folder that has no name any more, or that is not held any more.
            let now = match held.is_released.load(Ordering::Acquire) {
                true => PathBuf::new(),
                false => machine.fs.path_of_dir(held.ino).unwrap_or_default(),
            };
            return if below.as_os_str().is_empty() {
                now
            } else {
                absolute(&now, below)
            };
        }
        absolute(machine.settings.working_dir(process_id), path)
    }

    /// Paths from the root without regard to what is held.
    fn absolute_by_name(&self, path: &Path) -> PathBuf {
        let process_id = self.acting();
        let machine = self.world.disk.machine.lock();
        absolute(machine.settings.working_dir(process_id), path)
    }

    fn call<T>(
        &self,
        kind: CallKind,
        path: &Path,
        to: Option<&Path>,
        body: impl FnOnce(&mut Machine, &Context) -> io::Result<T>,
    ) -> io::Result<T> {
        let to = to.map(normalise);
        let request = Request {
            kind,
            process_id: self.acting(),
            path: &normalise(path),
            to: to.as_deref(),
            offset: 0,
            len_bytes: 0,
        };
        self.world.call(&request, body)
    }
}

impl Storage for SimStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let path = self.absolute(path);
        let process_id = self.acting();
        let mut opened = None;
        let result = self.call(CallKind::Open, &path, None, |machine, _| {
            let (handle, path) = open(machine, &path, mode, process_id)?;
            opened = Some(handle);
            Ok((handle, path))
        });
        if let (Err(_), Some(handle)) = (&result, &opened) {
            // The file may be there now, but nobody has it open.
            self.world.disk.machine.lock().close(handle.id, process_id);
        }
        let (handle, path) = result?;
        Ok(Arc::new(SimFile {
            world: Arc::clone(&self.world),
            handle,
            path,
        }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let path = self.absolute(path);
        self.call(CallKind::CreateDir, &path, None, |machine, _| {
            machine.fs_mut().create_dir(&path)
        })
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let path = self.absolute(path);
        self.call(CallKind::ListDir, &path, None, |machine, context| {
            let dir = machine.fs.lookup(&path)?;
            machine.fs.dir(dir)?;
            let entries = machine.races.list(&machine.fs, dir, context.before());
            let fs = &machine.fs;
            // What has no node any more was removed meanwhile, as in the real environment.
            let describe = |(name, ino)| {
                let found = metadata(fs.nodes.get(&ino)?);
                Some(DirEntry {
                    name,
                    is_dir: found.is_dir,
                })
            };
            // Backwards: the real environment does not sort, so nothing may rely on the order of names.
            Ok(entries.into_iter().rev().filter_map(describe).collect())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.absolute(from), self.absolute(to));
        self.call(CallKind::Rename, &from, Some(&to), |machine, _| {
            machine.rename(&from, &to)
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let path = self.absolute(path);
        self.call(CallKind::RemoveFile, &path, None, |machine, _| {
            machine.fs_mut().remove_file(&path)
        })
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let path = self.absolute(path);
        self.call(CallKind::RemoveDir, &path, None, |machine, _| {
            machine.fs_mut().remove_dir(&path)
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        // As in the real environment: the parent of a relative path may be spelled so.
        let path = if path.as_os_str().is_empty() {
            self.absolute(Path::new("."))
        } else {
            self.absolute(path)
        };
        self.call(CallKind::SyncDir, &path, None, |machine, context| {
            let ino = machine.fs.lookup(&path)?;
            machine.sync_dir(ino, context)
        })
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let path = if path.as_os_str().is_empty() {
            self.absolute(Path::new("."))
        } else {
            self.absolute(path)
        };
        let ino = self.call(CallKind::OpenDir, &path, None, |machine, _| {
            let ino = machine.fs.lookup(&path)?;
            machine.fs.dir(ino).map(|_| ino)
        })?;
        Ok(Arc::new(SimDir {
            world: Arc::clone(&self.world),
            process_id: self.process_id,
            ino,
            path: normalise(&path),
        }))
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let path = self.absolute(path);
        self.call(CallKind::Metadata, &path, None, |machine, _| {
            let ino = machine.fs.lookup(&path)?;
            machine
                .fs
                .nodes
                .get(&ino)
                .map(metadata)
                .ok_or(Errno::NOENT.into())
        })
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.absolute(from), self.absolute(to));
        self.call(CallKind::HardLink, &from, Some(&to), |machine, _| {
            machine.fs_mut().hard_link(&from, &to)
        })
    }

    fn hold(&self, folder: &Path) -> io::Result<Arc<dyn Storage>> {
        let path = self.absolute(folder);
        let ino = self.call(CallKind::Hold, &path, None, |machine, _| {
            let ino = machine.fs.lookup(&path)?;
            machine.fs.dir(ino).map(|_| ino)
        })?;
        Ok(Arc::new(SimStorage {
            world: Arc::clone(&self.world),
            process_id: self.process_id,
            held: Some(HeldFolder {
                path: folder.to_owned(),
                ino,
                is_released: AtomicBool::new(false),
            }),
        }))
    }

    fn release(&self) {
        if let Some(held) = &self.held {
            held.is_released.store(true, Ordering::Release);
        }
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        let path = self.absolute_by_name(path);
        self.call(CallKind::Canonicalize, &path, None, |machine, _| {
            let (place, _) = machine.fs.lookup_place(&path)?;
            Ok(place.path)
        })
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let path = self.absolute(path);
        self.call(CallKind::FreeBytes, &path, None, |machine, _| {
            machine.fs.lookup(&path)?;
            let told = match machine.settings.hides_quota {
                true => None,
                false => machine.room_bytes(),
            };
            Ok(told.unwrap_or(UNLIMITED_BYTES))
        })
    }
}

fn metadata(node: &Node) -> Metadata {
    match node {
        Node::File(file) => Metadata {
            len_bytes: file.visible.len_bytes(),
            is_dir: false,
        },
        Node::Dir(_) => Metadata {
            len_bytes: 0,
            is_dir: true,
        },
        Node::Link(target) => Metadata {
            len_bytes: target.as_os_str().len() as u64,
            is_dir: false,
        },
    }
}

/// Opens a file; returns its path without links as well.
pub(super) fn open(
    machine: &mut Machine,
    path: &Path,
    mode: OpenMode,
    process_id: u32,
) -> io::Result<(Handle, PathBuf)> {
    let writable = mode != OpenMode::Read;
    if writable && machine.settings.read_only {
        return Err(Errno::ROFS.into());
    }
    let creates = matches!(mode, OpenMode::CreateNew | OpenMode::OpenOrCreate);
    let last = match mode {
        OpenMode::CreateNew => LastLink::Itself,
        _ => LastLink::Followed,
    };
    let place = machine.fs.resolve(path, last)?;
    // As on Linux: who asks to create a directory this way is refused before the target is checked.
    if creates && place.asks_for_dir {
        let is_dots = place.name.is_none() && mode == OpenMode::CreateNew;
        return Err(if is_dots { Errno::EXIST } else { Errno::ISDIR }.into());
    }
    let path = place.path.clone();
    let ino = match (place.target, mode) {
        (Some(_), OpenMode::CreateNew) => return Err(Errno::EXIST.into()),
        (Some(ino), _) if place.asks_for_dir => machine.fs.dir(ino).map(|_| ino)?,
        (Some(ino), _) => ino,
        (None, _) if creates => machine.fs_mut().create_file(place)?,
        (None, _) => return Err(Errno::NOENT.into()),
    };
    // Stricter than Linux, which opens directories for reading.
    machine.fs.file(ino)?;
    Ok((machine.open_handle(ino, process_id, writable), path))
}

/// An open directory of the simulation.
#[derive(Debug)]
struct SimDir {
    world: Arc<World>,
    process_id: u32,
    ino: Ino,
    path: PathBuf,
}

impl Dir for SimDir {
    fn sync(&self) -> io::Result<()> {
        let request = Request {
            kind: CallKind::SyncDir,
            process_id: self.world.acting(self.process_id),
            path: &self.path,
            to: None,
            offset: 0,
            len_bytes: 0,
        };
        self.world.call(&request, |machine, context| {
            machine.sync_dir(self.ino, context)
        })
    }
}

/// An open file of the simulation.
#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) world: Arc<World>,
    pub(super) handle: Handle,
    pub(super) path: PathBuf,
}

impl SimFile {
    fn call<T>(
        &self,
        kind: CallKind,
        offset: u64,
        len_bytes: u64,
        body: impl FnOnce(&mut Machine, &Context) -> io::Result<T>,
    ) -> io::Result<T> {
        let process_id = self.world.acting(self.handle.process_id);
        let request = Request {
            kind,
            process_id,
            path: &self.path,
            to: None,
            offset,
            len_bytes,
        };
        self.world.call(&request, |machine, context| {
            machine.check_held(&self.handle, process_id)?;
            body(machine, context)
        })
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.call(
            CallKind::Read,
            offset,
            buf.len() as u64,
            |machine, context| machine.read(&self.handle, buf, offset, context),
        )
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.write_vectored_at(&[IoSlice::new(buf)], offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let len_bytes = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.call(CallKind::Write, offset, len_bytes, |machine, context| {
            if bufs.len() > MAX_SLICES {
                return Err(Errno::INVAL.into());
            }
            machine.write(&self.handle, bufs, offset, context)
        })
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.call(CallKind::Len, 0, 0, |machine, _| {
            Ok(machine.fs.file(self.handle.ino)?.visible.len_bytes())
        })
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.call(CallKind::SetLen, len_bytes, 0, |machine, _| {
            machine.set_len(&self.handle, len_bytes)
        })
    }

    fn allocate(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.call(CallKind::Allocate, offset, len_bytes, |machine, _| {
            let end = offset.checked_add(len_bytes).ok_or(Errno::FBIG)?;
            if len_bytes == 0 {
                return Err(Errno::INVAL.into());
            }
            machine.allocate(&self.handle, offset..end)
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.call(CallKind::SyncData, 0, 0, |machine, context| {
            machine.sync_file(self.handle.ino, context)
        })
    }

    fn sync_all(&self) -> io::Result<()> {
        self.call(CallKind::SyncAll, 0, 0, |machine, context| {
            machine.sync_file(self.handle.ino, context)
        })
    }

    fn try_lock(&self, range: Range<u64>, kind: LockKind) -> io::Result<bool> {
        let len_bytes = range.end.saturating_sub(range.start);
        self.call(CallKind::TryLock, range.start, len_bytes, |machine, _| {
            machine.try_lock(&self.handle, range, kind)
        })
    }

    fn is_locked(&self, range: Range<u64>) -> io::Result<bool> {
        let len_bytes = range.end.saturating_sub(range.start);
        self.call(CallKind::TryLock, range.start, len_bytes, |machine, _| {
            machine.is_locked(&self.handle, &range)
        })
    }

    fn unlock(&self, range: Range<u64>) -> io::Result<()> {
        let len_bytes = range.end.saturating_sub(range.start);
        self.call(CallKind::Unlock, range.start, len_bytes, |machine, _| {
            machine.unlock(&self.handle, range)
        })
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let process_id = self.world.acting(self.handle.process_id);
        let mut machine = self.world.disk.machine.lock();
        machine.close(self.handle.id, process_id);
    }
}
