//! Advisory locks on ranges of one file, each owned by a handle.
//!
//! Invariant: locks of one handle never overlap each other, and locks of different handles overlap only if all are shared.

use std::io;
use std::ops::Range;

use rustix::io::Errno;

use crate::storage::LockKind;
use crate::sync::Mutex;

/// The locks of a file.
#[derive(Default)]
pub(super) struct RangeLocks {
    held: Mutex<Vec<Held>>,
}

#[derive(Clone)]
struct Held {
    handle: u64,
    range: Range<u64>,
    kind: LockKind,
}

impl Held {
    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }
}

impl RangeLocks {
    /// Takes a lock in the place of the handle's own ones in the range; `false` if another handle is in the way.
    pub(super) fn try_lock(
        &self,
        handle: u64,
        range: &Range<u64>,
        kind: LockKind,
    ) -> io::Result<bool> {
        check(range)?;
        let mut held = self.held.lock();
        let is_in_the_way = |lock: &Held| {
            lock.handle != handle
                && lock.overlaps(range)
                && (kind == LockKind::Exclusive || lock.kind == LockKind::Exclusive)
        };
        if held.iter().any(is_in_the_way) {
            return Ok(false);
        }
        cut(&mut held, handle, range);
        held.push(Held {
            handle,
            range: range.clone(),
            kind,
        });
        Ok(true)
    }

    /// Whether another handle holds a lock in the range.
    pub(super) fn is_locked(&self, handle: u64, range: &Range<u64>) -> io::Result<bool> {
        check(range)?;
        let held = self.held.lock();
        Ok(held
            .iter()
            .any(|lock| lock.handle != handle && lock.overlaps(range)))
    }

    /// Releases the handle's locks in the range; what lies around it stays locked.
    pub(super) fn unlock(&self, handle: u64, range: &Range<u64>) -> io::Result<()> {
        check(range)?;
        cut(&mut self.held.lock(), handle, range);
        Ok(())
    }

    /// Releases all locks of a handle.
    pub(super) fn release(&self, handle: u64) {
        self.held.lock().retain(|lock| lock.handle != handle);
    }
}

fn check(range: &Range<u64>) -> io::Result<()> {
    match range.is_empty() {
        true => Err(Errno::INVAL.into()),
        false => Ok(()),
    }
}

fn cut(held: &mut Vec<Held>, handle: u64, range: &Range<u64>) {
    let is_cut = |lock: &mut Held| lock.handle == handle && lock.overlaps(range);
    let locks: Vec<Held> = held.extract_if(.., is_cut).collect();
    for lock in locks {
        for rest in [lock.range.start..range.start, range.end..lock.range.end] {
            if !rest.is_empty() {
                held.push(Held {
                    range: rest,
                    ..lock.clone()
                });
            }
        }
    }
}
