//! Processes of the simulated machine, and what a fork leaves them with.
//!
//! Invariants
//! - Opening a file makes an open file description, whose only holder is the process that opened it. A fork makes the
//!   child a holder of all that its parent holds. Locks belong to the description: they go when its last holder closes
//!   it or ends, or when any holder unlocks, as with `F_OFD_SETLK` of Linux.
//! - What a process has in memory, a child of a fork has as well. A test has one copy of it only, and uses it as the child
//!   within [`super::SimEnv::as_process`]: there handles and environments of its ancestors are the child's. Dropping a
//!   handle closes the descriptor of the process that drops it, and of no other.
//! - Of the threads only the one that forks goes on in the child: a test runs none in `as_process` but those that it
//!   starts there.

#[cfg(not(feature = "shuttle"))]
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::World;
use super::fault::Errno;
use super::machine::{Description, Handle, Machine};
use super::state::Ino;

/// The processes, and from which each was forked.
#[derive(Clone, Debug, Default)]
pub(super) struct Processes {
    /// By child.
    parents: BTreeMap<u32, u32>,
    highest_id: u32,
}

impl Processes {
    pub(super) fn note(&mut self, process_id: u32) {
        self.highest_id = self.highest_id.max(process_id);
    }

    #[cfg(not(feature = "shuttle"))]
    fn descends_from(&self, mut process_id: u32, ancestor: u32) -> bool {
        while process_id != ancestor {
            let Some(parent) = self.parents.get(&process_id) else {
                return false;
            };
            process_id = *parent;
        }
        true
    }
}

#[cfg(not(feature = "shuttle"))]
std::thread_local! {
    /// The world and process that this thread acts as, where it is not the one that handles and environments name.
    static ACTING: Cell<Option<(usize, u32)>> = const { Cell::new(None) };
}

/// Restores who the thread acted as before, also if it panics.
#[cfg(not(feature = "shuttle"))]
pub(super) struct Acting(Option<(usize, u32)>);

#[cfg(not(feature = "shuttle"))]
impl Drop for Acting {
    fn drop(&mut self) {
        ACTING.set(self.0);
    }
}

impl World {
    /// The process by which a call is made that goes through something that `owner` opened.
    #[cfg(not(feature = "shuttle"))]
    pub(super) fn acting(&self, owner: u32) -> u32 {
        match ACTING.get() {
            Some((world, process_id))
                if world == self.address() && self.descends_from(process_id, owner) =>
            {
                process_id
            }
            _ => owner,
        }
    }

    /// Forks are not explored: all threads of shuttle run in one thread of the system, whose thread-local
    /// cell cannot distinguish them.
    #[cfg(feature = "shuttle")]
    #[expect(clippy::unused_self, reason = "the same signature as above")]
    pub(super) fn acting(&self, owner: u32) -> u32 {
        owner
    }

    #[cfg(not(feature = "shuttle"))]
    pub(super) fn act_as(&self, process_id: u32) -> Acting {
        Acting(ACTING.replace(Some((self.address(), process_id))))
    }

    /// The process that this thread acts as, for threads that it starts.
    #[cfg(not(feature = "shuttle"))]
    pub(super) fn acting_process(&self) -> Option<u32> {
        let acting = ACTING.get().filter(|(world, _)| *world == self.address());
        acting.map(|(_, process_id)| process_id)
    }

    #[cfg(not(feature = "shuttle"))]
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[cfg(not(feature = "shuttle"))]
    fn descends_from(&self, process_id: u32, ancestor: u32) -> bool {
        self.processes.lock().descends_from(process_id, ancestor)
    }

    pub(super) fn fork(&self, parent: u32) -> u32 {
        let child = {
            let mut processes = self.processes.lock();
            processes.note(parent);
            processes.highest_id += 1;
            let child = processes.highest_id;
            processes.parents.insert(child, parent);
            child
        };
        self.disk.machine.lock().fork(parent, child);
        child
    }
}

impl Machine {
    fn fork(&mut self, parent: u32, child: u32) {
        assert!(
            self.check_alive(parent).is_ok(),
            "a dead process does not fork"
        );
        let locked: BTreeSet<u64> = self.locks.iter().map(|lock| lock.handle).collect();
        let closes_locked = self.settings.forks_close_locked;
        for (id, description) in &mut self.descriptions {
            let is_closed = closes_locked && locked.contains(id);
            if description.holders.contains(&parent) && !is_closed {
                description.holders.insert(child);
            }
        }
        let dir = self.settings.working_dir(parent).to_owned();
        self.settings.working_dirs.insert(child, dir);
    }

    /// Ends a process: its calls fail from now on, and its descriptors are closed.
    pub(super) fn kill(&mut self, process_id: u32) {
        self.killed.insert(process_id);
        let all: Vec<u64> = self.descriptions.keys().copied().collect();
        for id in all {
            self.close(id, process_id);
        }
    }

    pub(super) fn open_handle(&mut self, ino: Ino, process_id: u32, writable: bool) -> Handle {
        self.stats.opens += 1;
        self.next_handle += 1;
        let holders = BTreeSet::from([process_id]);
        self.descriptions
            .insert(self.next_handle, Description { ino, holders });
        Handle {
            id: self.next_handle,
            ino,
            process_id,
            writable,
        }
    }

    /// Closes the descriptor of one process; the last one takes locks and description along.
    pub(super) fn close(&mut self, id: u64, process_id: u32) {
        let Some(description) = self.descriptions.get_mut(&id) else {
            return;
        };
        description.holders.remove(&process_id);
        if description.holders.is_empty() {
            self.descriptions.remove(&id);
            self.locks.retain(|lock| lock.handle != id);
        }
    }

    /// Refuses a handle that this process does not have: opened after the fork, or closed by it.
    pub(super) fn check_held(&self, handle: &Handle, process_id: u32) -> io::Result<()> {
        let found = self.descriptions.get(&handle.id);
        match found.is_some_and(|found| found.holders.contains(&process_id)) {
            true => Ok(()),
            false => Err(Errno::BADF.into()),
        }
    }
}
