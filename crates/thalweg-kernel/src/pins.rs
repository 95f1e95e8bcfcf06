//! Which snapshots of this process are in use, so that no file they need is deleted.
//!
//! Invariant: a snapshot is pinned before it can be used and unpinned when its last clone goes. The lock here is held for
//! a few instructions by whoever makes or drops a snapshot and by the garbage collector, never during a write.

use crate::ids::CommitNo;
use crate::live::PinPlace;
use crate::state::{Pin, Published, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_env::Owner;
use thalweg_env::sync::Mutex;
use thalweg_env::sync::atomic::Ordering;

#[derive(Debug)]
pub(crate) struct Pins {
    owner: Owner,
    places: Mutex<BTreeMap<PinPlace, InUse>>,
}

#[derive(Debug, Default)]
struct InUse {
    snapshots: usize,
    /// When the newest of them was taken.
    taken_ns: u64,
}

#[derive(Debug)]
struct Pinned {
    pins: Arc<Pins>,
    place: PinPlace,
}

impl Pin for Pinned {}

impl Drop for Pinned {
    fn drop(&mut self) {
        // In a child of a fork it pins nothing, and the lock may be that of a thread which is not there.
        if !self.pins.owner.is_here() {
            return;
        }
        let mut places = self.pins.places.lock();
        if let Some(in_use) = places.get_mut(&self.place) {
            in_use.snapshots -= 1;
            if in_use.snapshots == 0 {
                places.remove(&self.place);
            }
        }
    }
}

impl Pins {
    pub(crate) fn new(owner: Owner) -> Self {
        Self {
            owner,
            places: Mutex::default(),
        }
    }

    /// What is published now, pinned. `now_ns` says how old it is later, where anybody asks.
    pub(crate) fn snapshot(self: &Arc<Self>, published: &Published, now_ns: u64) -> Snapshot {
        let mut places = self.places.lock();
        // Loaded under the lock: the collector cannot look between the load and the pin.
        let state = published.load_full();
        let commit = CommitNo(state.visible.load(Ordering::Acquire));
        let place = PinPlace {
            epoch: state.epoch,
            commit,
        };
        let in_use = places.entry(place).or_default();
        in_use.snapshots += 1;
        in_use.taken_ns = in_use.taken_ns.max(now_ns);
        drop(places);
        Snapshot {
            state,
            commit,
            pin: Some(Arc::new(Pinned {
                pins: Arc::clone(self),
                place,
            })),
        }
    }

    /// The oldest place that a snapshot stands at.
    pub(crate) fn oldest(&self) -> Option<PinPlace> {
        self.places.lock().keys().next().copied()
    }

    /// The oldest place of snapshots that were taken since then.
    pub(crate) fn oldest_since(&self, ns: u64) -> Option<PinPlace> {
        let places = self.places.lock();
        let young = places.iter().find(|(_, in_use)| in_use.taken_ns >= ns);
        young.map(|(place, _)| *place)
    }
}
