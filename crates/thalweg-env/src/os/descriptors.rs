//! The descriptors of this process's files, which a child of a fork lets go of.
//!
//! Invariants
//! - The list has no mutex: the child of a fork has only the thread that forked, and a mutex that another thread held
//!   would stay locked for good.
//! - Once the child has replaced a descriptor it never uses the number again: programs close all descriptors they do not
//!   know after a fork, and the number may mean something else when the child forks in turn.

use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which descriptors of this process are those of its files.
static LISTED: Descriptors = Descriptors([const { OnceLock::new() }; PARTS]);

const PART_DESCRIPTORS: usize = 1024;
const PARTS: usize = 1024;

/// Notes whether a descriptor is that of a file; returns whether there is a place for it: not for those from 2^20 on.
pub(super) fn set(descriptor: RawFd, is_listed: bool) -> bool {
    LISTED.set(descriptor, is_listed)
}

/// A flag per descriptor. Parts are added and never removed.
struct Descriptors([OnceLock<Box<[AtomicBool; PART_DESCRIPTORS]>>; PARTS]);

impl Descriptors {
    fn set(&self, descriptor: RawFd, is_listed: bool) -> bool {
        let Ok(number) = usize::try_from(descriptor) else {
            return false;
        };
        let Some(part) = self.0.get(number / PART_DESCRIPTORS) else {
            return false;
        };
        let part =
            part.get_or_init(|| Box::new([const { AtomicBool::new(false) }; PART_DESCRIPTORS]));
        part[number % PART_DESCRIPTORS].store(is_listed, Ordering::SeqCst);
        true
    }
}

/// Takes all files off the list, each with a call of `let_go`. For the child of a fork: calls nothing else that takes a lock or
/// memory.
pub(super) fn take_all(let_go: impl Fn(RawFd)) {
    // `get` is one load: a part that was being added lists nothing that is locked yet.
    let parts = LISTED.0.iter().enumerate();
    for (at, part) in parts.filter_map(|(at, part)| Some((at, part.get()?))) {
        for (index, is_listed) in part.iter().enumerate() {
            if is_listed.swap(false, Ordering::SeqCst)
                && let Ok(descriptor) = RawFd::try_from(at * PART_DESCRIPTORS + index)
            {
                let_go(descriptor);
            }
        }
    }
}
