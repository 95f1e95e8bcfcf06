//! Which snapshots of this process are in use, so that no file they need is deleted.
//!
//! Invariant: a snapshot is pinned before it can be used and unpinned when its last clone goes. The lock here is held for
//! a few instructions by whoever pins and unpins a state and by the garbage collector, never during a write. Snapshots of
//! one state share its pin, which stands at the commit that was visible when it was made or at an earlier one of the same
//! state: a pin is never later than what it keeps.

use crate::ids::CommitNo;
use crate::live::PinPlace;
use crate::state::{Pin, PinnedState, Published, Snapshot};
use arc_swap::ArcSwapOption;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_env::Owner;
use thalweg_env::sync::Mutex;
use thalweg_env::sync::atomic::{AtomicUsize, Ordering};

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

    /// Pins the published state. `now_ns` is its time, for those who later ask for its age.
    pub(crate) fn pin(self: &Arc<Self>, published: &Published, now_ns: u64) -> Arc<PinnedState> {
        let mut places = self.places.lock();
        // Loaded under the lock: the collector cannot look between the load and the pin.
        let state = published.load_full();
        let place = PinPlace {
            epoch: state.epoch,
            commit: CommitNo(state.visible.load(Ordering::Acquire)),
        };
        let in_use = places.entry(place).or_default();
        in_use.snapshots += 1;
        in_use.taken_ns = in_use.taken_ns.max(now_ns);
        drop(places);
        Arc::new(PinnedState {
            state,
            pin: Some(Arc::new(Pinned {
                pins: Arc::clone(self),
                place,
            })),
        })
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

/// Groups of threads that share a pin.
const GROUPS: usize = 16;

/// The newest state as it was last pinned by each of some groups of threads, so that a snapshot of a state which is pinned
/// already takes no lock and writes no memory that other threads write.
///
/// Rejected: one pin for all threads. They would count its users in one place: two threads took no more snapshots than one.
#[derive(Debug)]
pub(crate) struct Recent {
    pins: Arc<Pins>,
    groups: [Group; GROUPS],
}

/// A pinned state in a cache line of its own, with the one that is fetched beside it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Group(ArcSwapOption<PinnedState>);

impl Recent {
    pub(crate) fn new(owner: Owner) -> Self {
        Self {
            pins: Arc::new(Pins::new(owner)),
            groups: Default::default(),
        }
    }

    /// A snapshot of the published state.
    pub(crate) fn snapshot(&self, published: &Published) -> Snapshot {
        let group = &self.groups[group_of_thread()].0;
        let newest = published.load();
        if let Some(pinned) = group.load_full()
            && Arc::ptr_eq(&pinned.state, &newest)
        {
            return Snapshot::new(pinned);
        }
        let pinned = self.pins.pin(published, 0);
        group.store(Some(Arc::clone(&pinned)));
        Snapshot::new(pinned)
    }

    /// The oldest place that a snapshot stands at which somebody holds.
    pub(crate) fn oldest(&self) -> Option<PinPlace> {
        self.forget();
        self.pins.oldest()
    }

    /// Keeps no state that no snapshot has.
    pub(crate) fn forget(&self) {
        for group in &self.groups {
            group.0.store(None);
        }
    }
}

fn group_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static GROUP: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    GROUP.with(|group| {
        if group.get() == usize::MAX {
            group.set(THREADS.fetch_add(1, Ordering::Relaxed) % GROUPS);
        }
        group.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::ids::Epoch;
    use crate::state::DbState;
    use thalweg_env::Env;
    use thalweg_env::sync::atomic::AtomicU64;

    fn state(commit: u64) -> Arc<DbState> {
        Arc::new(DbState {
            epoch: Epoch(1),
            tables: Catalog::default(),
            visible: AtomicU64::new(commit),
        })
    }

    fn place(commit: u64) -> Option<PinPlace> {
        Some(PinPlace {
            epoch: Epoch(1),
            commit: CommitNo(commit),
        })
    }

    #[test]
    fn snapshots_share_a_pin_until_there_is_a_newer_state() {
        let recent = Recent::new(Env::os().owner());
        let published: Published = Arc::new(arc_swap::ArcSwap::new(state(3)));
        let first = recent.snapshot(&published);
        published.load().visible.store(5, Ordering::Release);
        let second = recent.snapshot(&published);
        assert_eq!((first.commit().0, second.commit().0), (3, 5));
        assert_eq!(recent.pins.places.lock().len(), 1);
        drop(first);
        // The second keeps what the first was pinned for, which is not later.
        assert_eq!(recent.oldest(), place(3));
        published.store(state(9));
        let third = recent.snapshot(&published);
        assert_eq!(third.commit().0, 9);
        assert_eq!(recent.oldest(), place(3));
        drop(second);
        assert_eq!(recent.oldest(), place(9));
        drop(third);
        assert_eq!(recent.oldest(), None);
    }

    #[test]
    fn states_that_nobody_holds_are_let_go_of() {
        let recent = Recent::new(Env::os().owner());
        let published: Published = Arc::new(arc_swap::ArcSwap::new(state(3)));
        drop(recent.snapshot(&published));
        let old = Arc::downgrade(&published.swap(state(4)));
        assert!(old.upgrade().is_some());
        assert_eq!(recent.oldest(), None);
        assert!(old.upgrade().is_none());
        // Pinned anew after it.
        assert_eq!(recent.snapshot(&published).commit().0, 4);
    }

    #[test]
    fn no_thread_meets_a_state_that_is_not_pinned() {
        let recent = Recent::new(Env::os().owner());
        let published: Published = Arc::new(arc_swap::ArcSwap::new(state(0)));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < 2_000 {
                        let snapshot = recent.snapshot(&published);
                        let oldest = recent.pins.oldest().expect("one is held");
                        assert!(oldest <= snapshot.place(), "{oldest:?} {snapshot:?}");
                        assert!(snapshot.commit().0 >= last);
                        last = snapshot.commit().0;
                    }
                });
            }
            for commit in 1..=2_000 {
                published.store(state(commit));
                if let Some(oldest) = recent.oldest() {
                    assert!(oldest.commit.0 <= commit);
                }
            }
        });
        assert_eq!(recent.oldest(), None);
    }
}
