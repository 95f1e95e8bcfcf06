//! Copies of a machine, for tests that try all orders in which processes can make their calls.
//!
//! Invariants
//! - A branch has the files, the pending changes, the locks, the open files and the clocks of the machine that it was made
//!   from, and shares nothing with it that changes.
//! - Open files are named by number here ([`HandleId`]), since a handle of one machine is of no use in the other.
//! - Two machines of equal [`SimEnv::state_hash`] and equal processes go on alike.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::fault::CallKind;
use super::files::{SimFile, open};
use super::machine::{Handle, Request};
use super::paths::absolute;
use super::state::{FsState, Node};
use super::{Jobs, SimEnv, World};
use crate::storage::{File, OpenMode};
use crate::sync::{Condvar, Mutex};

/// An open file of a machine, the same one in each of its branches.
#[derive(Clone, Debug)]
pub struct HandleId {
    handle: Handle,
    path: Arc<Path>,
}

impl SimEnv {
    /// The same machine, with its processes, which goes on apart from this one. Jobs and the watcher stay behind.
    #[must_use]
    pub fn branch(&self) -> SimEnv {
        let world = &self.world;
        let machine = world.disk.machine.lock().clone();
        let branched = World {
            disk: super::Disk {
                machine: Mutex::new(machine),
                released: Condvar::new(),
            },
            time: Mutex::new(world.time.lock().clone()),
            random: Mutex::new(world.random.lock().clone()),
            processes: Mutex::new(world.processes.lock().clone()),
            watcher: Mutex::new(None),
            jobs: Mutex::new(Jobs::default()),
            boot_id: world.boot_id,
            seed: world.seed,
        };
        SimEnv {
            world: Arc::new(branched),
            process_id: self.process_id,
        }
    }

    /// Opens a file for a process; it stays open until [`SimEnv::close_handle`] or the end of the process.
    ///
    /// # Errors
    /// Those of [`crate::Storage::open`].
    pub fn open_handle(
        &self,
        process_id: u32,
        path: &Path,
        mode: OpenMode,
    ) -> io::Result<HandleId> {
        let path = absolute(Path::new("/"), path);
        let request = Request {
            kind: CallKind::Open,
            process_id,
            path: &path,
            to: None,
            offset: 0,
            len_bytes: 0,
        };
        self.world.call(&request, |machine, _| {
            let (handle, path) = open(machine, &path, mode, process_id)?;
            let path = path.into();
            Ok(HandleId { handle, path })
        })
    }

    /// Makes a call on an open file.
    pub fn on_handle<T>(&self, id: &HandleId, call: impl FnOnce(&dyn File) -> T) -> T {
        let file = SimFile {
            world: Arc::clone(&self.world),
            handle: id.handle,
            path: id.path.to_path_buf(),
        };
        // Dropping it would close the file.
        let file = std::mem::ManuallyDrop::new(file);
        call(&*file)
    }

    /// Closes an open file; its locks go.
    pub fn close_handle(&self, id: &HandleId) {
        self.with(|machine| machine.close(id.handle.id, id.handle.process_id));
    }

    /// A hash of all that later calls depend on: files as they are seen and as a crash may leave them, locks, and who is alive.
    /// Numbers that depend on the order of calls alone, such as those of handles, are not in it.
    #[must_use]
    pub fn state_hash(&self) -> u64 {
        self.with(|machine| {
            let mut hasher = DefaultHasher::new();
            hash_files(&machine.fs, &mut hasher);
            let locks = machine.named_locks();
            let mut locks: Vec<_> = locks
                .map(|(ino, by, range, is_exclusive)| {
                    (ino, by, range.start, range.end, is_exclusive)
                })
                .collect();
            locks.sort_unstable();
            (locks, &machine.killed, machine.crashed).hash(&mut hasher);
            hasher.finish()
        })
    }
}

fn hash_files(fs: &FsState, hasher: &mut impl Hasher) {
    for (path, ino) in fs.visible_files() {
        let Ok(file) = fs.file(ino) else { continue };
        (path, &file.visible, &file.durable).hash(hasher);
        for pending in file.pending.iter() {
            pending.change.hash(hasher);
        }
    }
    for node in fs.nodes.values() {
        if let Node::Dir(dir) = node {
            dir.durable.keys().for_each(|name| name.hash(hasher));
            dir.visible.keys().for_each(|name| name.hash(hasher));
        }
    }
    for change in fs.name_changes.iter() {
        for entry in &change.entries {
            (&entry.name, entry.target.is_some()).hash(hasher);
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::storage::LockKind;

    #[test]
    fn a_branch_goes_on_apart_with_locks_and_open_files() {
        let sim = SimEnv::new(1);
        let path = Path::new("/f");
        let first = sim.open_handle(1, path, OpenMode::CreateNew).unwrap();
        let second = sim.open_handle(2, path, OpenMode::ReadWrite).unwrap();
        let lock = |sim: &SimEnv, id| sim.on_handle(id, |f| f.try_lock(0..1, LockKind::Exclusive));
        assert!(lock(&sim, &first).unwrap());
        let branch = sim.branch();
        assert_eq!(branch.state_hash(), sim.state_hash());
        assert!(!lock(&branch, &second).unwrap(), "a lock is taken along");
        branch.close_handle(&first);
        assert!(lock(&branch, &second).unwrap());
        assert!(!lock(&sim, &second).unwrap(), "the other one still has it");
        branch
            .on_handle(&second, |f| f.write_all_at(b"x", 0))
            .unwrap();
        assert_ne!(branch.state_hash(), sim.state_hash());
        assert_eq!(sim.read_file(path).unwrap(), b"");
        assert_eq!(branch.read_file(path).unwrap(), b"x");
    }
}
