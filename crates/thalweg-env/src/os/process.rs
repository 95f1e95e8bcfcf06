//! Which process this is, asked for with every commit, and what becomes of a child of a fork.
//!
//! Invariants: what is remembered is right: a child of a fork forgets it before it runs anything else. There it also lets go
//! of its parent's files ([`super::locks`]). Forks are counted when they begin and when they have ended: who finds that none
//! was under way, and then that none has begun, has done what lies between before or after each fork. What cannot be done
//! again after a fork, the start of a thread, is waited for before one ([`super::thread_starts`]).

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::yield_now;

use super::{locks, thread_starts};

/// Not known yet.
const UNKNOWN: u64 = 0;
static KNOWN: AtomicU64 = AtomicU64::new(UNKNOWN);
/// Forks between this process and the first one that asked to be told of them.
static ANCESTORS: AtomicU32 = AtomicU32::new(0);

/// The id of this process, which is not 0, and above it how many forks it has behind it. The C library of Linux asks the system
/// for the id each time: 150 ns, a seventh of what storing a row takes.
pub(crate) fn key() -> u64 {
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => learn(),
        key => key,
    }
}

#[cold]
fn learn() -> u64 {
    let told_of_forks = is_told_of_forks();
    let ancestors = u64::from(ANCESTORS.load(Ordering::Relaxed));
    let key = ancestors << u32::BITS | u64::from(std::process::id());
    if told_of_forks {
        KNOWN.store(key, Ordering::Relaxed);
    }
    key
}

/// Whether forks of this process run the handlers below; asked for before anything relies on it.
pub(super) fn is_told_of_forks() -> bool {
    static TOLD_OF_FORKS: OnceLock<bool> = OnceLock::new();
    *TOLD_OF_FORKS.get_or_init(ask_to_be_told)
}

#[expect(unsafe_code, reason = "only the C library reports forks")]
fn ask_to_be_told() -> bool {
    // SAFETY: the handlers are functions of the signature that is asked for, for as long as the process lives. That of the
    // child calls only what may be called between a fork and whatever follows: atomics, `open`, `dup3` or `dup2`, `fcntl` and
    // `close`; the cell of the thread has no destructor.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) == 0 }
}

/// Forks of this process, by all threads.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// This thread forks: a handler of somebody else's runs in it.
    static FORKS: Cell<bool> = const { Cell::new(false) };
}

/// How many forks there were, at a moment when none is under way.
pub(super) fn forks_so_far() -> u64 {
    is_told_of_forks();
    loop {
        let (is_under_way, begun) = look();
        if !is_under_way {
            return begun;
        }
        yield_now();
    }
}

/// Whether another thread forks now.
pub(super) fn is_fork_under_way() -> bool {
    look().0
}

/// Whether another thread forks, and how many forks have begun.
fn look() -> (bool, u64) {
    let ended = ENDED.load(Ordering::SeqCst);
    let begun = BEGUN.load(Ordering::SeqCst);
    // Its own fork comes after what it does now. (More have ended than begun if the handlers came during one.)
    (ended < begun && !FORKS.get(), begun)
}

/// Whether no fork has begun since.
pub(super) fn is_this_many(forks: u64) -> bool {
    BEGUN.load(Ordering::SeqCst) == forks
}

extern "C" fn before() {
    FORKS.set(true);
    BEGUN.fetch_add(1, Ordering::SeqCst);
    thread_starts::wait();
}

extern "C" fn in_parent() {
    ENDED.fetch_add(1, Ordering::SeqCst);
    FORKS.set(false);
}

extern "C" fn in_child() {
    ANCESTORS.fetch_add(1, Ordering::Relaxed);
    KNOWN.store(UNKNOWN, Ordering::Relaxed);
    // Forks of other threads are not under way here.
    ENDED.store(BEGUN.load(Ordering::SeqCst), Ordering::SeqCst);
    FORKS.set(false);
    locks::let_go_in_child();
    thread_starts::forget();
}
