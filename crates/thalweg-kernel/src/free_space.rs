//! How much room there is on the disk, as far as that can be known.
//!
//! Invariants: no more is counted on than the file system reports. It also reports space that cannot be had where a
//! quota is used up (of a user, a folder or a subvolume), or the device below (thin volumes). A file that found no
//! room, though enough was reported, shows that: from then on the disk counts as full, whatever is reported, until a
//! file has found as much room as makes the difference between a full disk and any other.

use crate::error::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use thalweg_env::Env;
use thalweg_env::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// After a file found no room, drops take the disk as full for this long, and then check again.
const LOOK_AGAIN_NS: u64 = 10_000_000_000;

#[derive(Debug)]
pub(crate) struct FreeSpace {
    env: Env,
    dir: PathBuf,
    /// More free space was reported than there was.
    is_overstated: AtomicBool,
    /// It was at some time since the database was opened.
    was_overstated: AtomicBool,
    /// When that was last found out.
    refused_ns: AtomicU64,
}

impl FreeSpace {
    pub(crate) fn new(env: Env, dir: &Path) -> Self {
        Self {
            env,
            dir: dir.to_owned(),
            is_overstated: AtomicBool::new(false),
            was_overstated: AtomicBool::new(false),
            refused_ns: AtomicU64::new(0),
        }
    }

    /// The free space that the file system reports; no limit if it cannot report any: then the write that finds no room
    /// decides.
    pub(crate) fn told_bytes(&self) -> u64 {
        let told = self.env.storage().free_bytes(&self.dir);
        told.unwrap_or(u64::MAX)
    }

    /// The bytes that can be counted on.
    pub(crate) fn counted_bytes(&self) -> u64 {
        match self.is_overstated() {
            true => 0,
            false => self.told_bytes(),
        }
    }

    /// Whether so much can be counted on.
    pub(crate) fn has(&self, bytes: u64) -> bool {
        self.counted_bytes() >= bytes
    }

    /// Whether it is worth trying.
    pub(crate) fn may_have(&self, bytes: u64) -> bool {
        self.told_bytes() >= bytes
    }

    pub(crate) fn is_overstated(&self) -> bool {
        self.is_overstated.load(Ordering::Relaxed)
    }

    /// Whether the disk ever reported more than it had: the room that it reports now may not be there either.
    pub(crate) fn was_overstated(&self) -> bool {
        self.was_overstated.load(Ordering::Relaxed)
    }

    /// Whether the disk reports more than it has, and it is some time since a file last found that out.
    pub(crate) fn is_worth_a_look(&self) -> bool {
        let refused_ns = self.refused_ns.load(Ordering::Relaxed);
        self.is_overstated() && self.now_ns().saturating_sub(refused_ns) >= LOOK_AGAIN_NS
    }

    fn now_ns(&self) -> u64 {
        self.env.clock().monotonic_ns()
    }

    /// Learns from a file that has found no room for `bytes` more, as long as it takes what it has found: once it is removed, or
    /// others remove some, any disk reports room again.
    pub(crate) fn note_refused(&self, error: &Error, bytes: u64) {
        if error.kind() == ErrorKind::DiskFull && self.may_have(bytes) {
            self.is_overstated.store(true, Ordering::Relaxed);
            self.was_overstated.store(true, Ordering::Relaxed);
            self.refused_ns.store(self.now_ns(), Ordering::Relaxed);
        }
    }

    /// Learns from a file that found room for as much as a disk has that is not full.
    pub(crate) fn note_plenty(&self) {
        self.is_overstated.store(false, Ordering::Relaxed);
    }
}
