//! Starting threads and forking, one at a time.
//!
//! Invariant: while the C library forks, no thread of this process is within [`start_threads`].
//!
//! A new thread of glibc (2.36 for one) gets the stack of one that has ended, and first frees that one's thread-local memory.
//! A child that is forked meanwhile by another thread inherits the stack with pointers to what is freed already, and frees it
//! again when it starts a thread itself: it aborts with "double free". Seen in one of 2,000 children beside threads that open
//! and close databases.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::process;

/// Threads that are starting others.
static STARTING: AtomicUsize = AtomicUsize::new(0);

const LOOK_AGAIN_AFTER: Duration = Duration::from_micros(50);
/// A fork goes on after about a second: better a small risk for the child than a process that hangs, should somebody fork
/// where threads are started.
const MOST_LOOKS: usize = 20_000;

/// Calls what starts threads, before or after a fork but not meanwhile.
pub fn start_threads<T>(start: impl FnOnce() -> T) -> T {
    let _starting = Starting::begin();
    start()
}

struct Starting {
    process: u64,
}

impl Starting {
    fn begin() -> Starting {
        // Asking for it has forks call the functions below.
        let process = process::key();
        loop {
            // Counted before the look, and a fork is too: one of both sees the other.
            STARTING.fetch_add(1, Ordering::SeqCst);
            if !process::is_fork_under_way() {
                return Starting { process };
            }
            STARTING.fetch_sub(1, Ordering::SeqCst);
            thread::sleep(LOOK_AGAIN_AFTER);
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        // A child counts anew.
        if process::key() == self.process {
            STARTING.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Waits until no thread starts others. Called before a fork, which is counted already.
pub(super) fn wait() {
    for _ in 0..MOST_LOOKS {
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
