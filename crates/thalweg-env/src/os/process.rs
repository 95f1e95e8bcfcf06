//! The identity of this process, asked for with every commit, and how a child of a fork gets its own.
//!
//! Invariants: what is remembered is right: a child of a fork forgets it before it runs anything else. There it also lets go
//! of its parent's files ([`super::descriptors`]). Forks are counted when they begin and when they have ended: code that finds no
//! fork under way, and later that none has begun since, has done what it did in between before or after each fork, and not during
//! one. What cannot be done again after a fork, the start of a thread, is waited for before one ([`super::thread_starters`]).

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::yield_now;

use super::{descriptors, thread_starters};

/// Not known yet.
const UNKNOWN: u64 = 0;
static KNOWN: AtomicU64 = AtomicU64::new(UNKNOWN);
/// Forks between this process and the first one that registered to count them.
static ANCESTORS: AtomicU32 = AtomicU32::new(0);

/// The id of this process, which is not 0, and above it how many forks led to it. The C library of Linux asks the system
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
    /// Whether this thread is forking: what runs in it then is a fork handler of another library.
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
    // The thread's own fork comes after what it does now. (More have ended than begun if the handlers were
    // registered during one.)
    (ended < begun && !FORKS.get(), begun)
}

/// Whether no fork has begun since there were `forks` of them.
pub(super) fn is_this_many(forks: u64) -> bool {
    BEGUN.load(Ordering::SeqCst) == forks
}

extern "C" fn before() {
    FORKS.set(true);
    BEGUN.fetch_add(1, Ordering::SeqCst);
    thread_starters::wait();
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
    // With its files this child gives up the locks that it has inherited.
    descriptors::take_all(inherited::replace);
    thread_starters::forget();
}

#[expect(
    unsafe_code,
    reason = "no safe wrapper we depend on offers calls that may be made right after a fork"
)]
mod inherited {
    use std::os::fd::RawFd;

    /// Makes an inherited descriptor one of `/dev/null`, which closes this process's reference to what it was.
    pub(super) fn replace(descriptor: RawFd) {
        let null = open_null();
        if null >= 0 {
            put_in_place(null, descriptor);
            return;
        }
        // No number is free. Once this descriptor is closed, its number is the lowest free one, which the next `open` gets.
        // SAFETY: the descriptor is listed, so it is open and belongs to a handle of ours. Its number is taken again at
        // once, before anything else runs in this process.
        unsafe { libc::close(descriptor) };
        let null = open_null();
        if null >= 0 && null != descriptor {
            put_in_place(null, descriptor);
        }
    }

    fn open_null() -> RawFd {
        // SAFETY: the path is a C string that lives for ever; `open` may be called between a fork and whatever follows.
        unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn put_in_place(null: RawFd, descriptor: RawFd) {
        // SAFETY: `null` was opened here, and nobody else has it; `descriptor` is listed or was just closed, so its
        // number belongs to a handle of ours. Both calls may be made between a fork and whatever follows.
        unsafe {
            libc::dup3(null, descriptor, libc::O_CLOEXEC);
            libc::close(null);
        }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn put_in_place(null: RawFd, descriptor: RawFd) {
        // SAFETY: as above. No other thread runs in this process that could call `exec` between the first two.
        unsafe {
            libc::dup2(null, descriptor);
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
            libc::close(null);
        }
    }
}
