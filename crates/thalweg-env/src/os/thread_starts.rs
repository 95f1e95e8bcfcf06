//! Starting threads and forking, one at a time.
//!
//! Invariant: while the C library forks, no thread of this process is within [`start_threads`].
//!
//! A new thread of glibc (2.36 for one) gets the stack of one that has ended, and first frees that one's thread-local memory.
//! A child that is forked meanwhile by another thread inherits the stack with pointers to what is freed already, and frees it
//! again when it starts a thread itself: it aborts with "double free". Seen in one of 2,000 children beside threads that open
//! and close databases.

use std::thread;

use super::{process, thread_starters};

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
        // Asking for it has forks wait for those that are counted.
        let process = process::key();
        loop {
            // Counted before the look, and a fork is too: one of both sees the other.
            thread_starters::add();
            if !process::is_fork_under_way() {
                return Starting { process };
            }
            thread_starters::remove();
            thread::sleep(thread_starters::LOOK_AGAIN_AFTER);
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        // A child counts anew.
        if process::key() == self.process {
            thread_starters::remove();
        }
    }
}
