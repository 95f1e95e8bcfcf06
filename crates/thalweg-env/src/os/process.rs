//! Which process this is, asked for with every commit, and what becomes of a child of a fork.
//!
//! Invariants: what is remembered is right: a child of a fork forgets it before it runs anything else. There it also lets go
//! of its parent's locks ([`super::locks`]). No fork happens while a thread starts another ([`super::thread_starts`]).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{locks, thread_starts};

/// Not known yet.
const UNKNOWN: u32 = 0;
static KNOWN: AtomicU32 = AtomicU32::new(UNKNOWN);

/// The id of this process. The C library of Linux asks the system each time: 150 ns, a seventh of what storing a row takes.
pub(crate) fn id() -> u32 {
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => learn(),
        id => id,
    }
}

#[cold]
fn learn() -> u32 {
    let told_of_forks = is_told_of_forks();
    let id = std::process::id();
    if told_of_forks {
        KNOWN.store(id, Ordering::Relaxed);
    }
    id
}

/// Whether forks of this process run the handlers below; asked for before anything relies on it.
pub(super) fn is_told_of_forks() -> bool {
    static TOLD_OF_FORKS: OnceLock<bool> = OnceLock::new();
    *TOLD_OF_FORKS.get_or_init(ask_to_be_told)
}

#[expect(unsafe_code, reason = "only the C library reports forks")]
fn ask_to_be_told() -> bool {
    // SAFETY: the handlers are functions of the signature that is asked for, for as long as the process lives. The one of the
    // child calls only what may be called between a fork and whatever follows: atomics, `open`, `dup3` or `dup2`, `fcntl` and
    // `close`.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) == 0 }
}

extern "C" fn before() {
    thread_starts::hold();
}

extern "C" fn in_parent() {
    thread_starts::go_on_in_parent();
}

extern "C" fn in_child() {
    KNOWN.store(UNKNOWN, Ordering::Relaxed);
    locks::let_go_in_child();
    thread_starts::go_on_in_child();
}
