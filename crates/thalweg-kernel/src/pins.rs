//! Which snapshots of this process are in use, so that no file they need is deleted.
//!
//! Invariant: a snapshot is pinned before it can be used and unpinned when its last clone goes. The lock here is held for
//! a few instructions by whoever makes or drops a snapshot and by the garbage collector, never during a write.

use crate::ids::CommitNo;
use crate::kernel::Published;
use crate::state::{Pin, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_env::sync::Mutex;
use thalweg_env::sync::atomic::Ordering;

#[derive(Debug, Default)]
pub(crate) struct Pins {
    commits: Mutex<BTreeMap<CommitNo, usize>>,
}

#[derive(Debug)]
struct Pinned {
    pins: Arc<Pins>,
    commit: CommitNo,
}

impl Pin for Pinned {}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut commits = self.pins.commits.lock();
        if let Some(count) = commits.get_mut(&self.commit) {
            *count -= 1;
            if *count == 0 {
                commits.remove(&self.commit);
            }
        }
    }
}

impl Pins {
    /// What is published now, pinned.
    pub(crate) fn snapshot(self: &Arc<Self>, published: &Published) -> Snapshot {
        let mut commits = self.commits.lock();
        // Loaded under the lock: the collector cannot look between the load and the pin.
        let state = published.load_full();
        let commit = CommitNo(state.visible.load(Ordering::Acquire));
        *commits.entry(commit).or_default() += 1;
        drop(commits);
        Snapshot {
            state,
            commit,
            pin: Some(Arc::new(Pinned {
                pins: Arc::clone(self),
                commit,
            })),
        }
    }

    /// The oldest commit that a snapshot shows.
    pub(crate) fn oldest(&self) -> Option<CommitNo> {
        self.commits.lock().keys().next().copied()
    }
}
