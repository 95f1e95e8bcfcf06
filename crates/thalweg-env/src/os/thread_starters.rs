//! How many threads are starting others, which a fork waits for.
//!
//! Invariant: a child of a fork counts from zero, because it has no other thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Threads that are starting others.
static STARTING: AtomicUsize = AtomicUsize::new(0);

/// Time between two looks.
pub(super) const LOOK_AGAIN_AFTER: Duration = Duration::from_micros(50);
/// A fork goes on after about a second: better a small risk for the child than a process that hangs, should somebody fork
/// where threads are started.
const MAX_LOOKS: usize = 20_000;

/// Counts this thread as one that starts others.
pub(super) fn add() {
    STARTING.fetch_add(1, Ordering::SeqCst);
}

/// No longer counts this thread.
pub(super) fn remove() {
    STARTING.fetch_sub(1, Ordering::SeqCst);
}

/// Waits until no thread starts others. Called before a fork, which is counted already.
pub(super) fn wait() {
    for _ in 0..MAX_LOOKS {
        if STARTING.load(Ordering::SeqCst) == 0 {
            return;
        }
        thread::sleep(LOOK_AGAIN_AFTER);
    }
}

/// Called in the child of a fork, which has no other thread.
pub(super) fn forget() {
    STARTING.store(0, Ordering::SeqCst);
}
