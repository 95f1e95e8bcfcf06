//! Work that commits call for, and the threads that wait for it: blocks of open rows, checkpoints, space.
//!
//! Invariants: a call reaches whoever waits, or the next one that does. Open rows of tables whose encoding has failed, most
//! likely because a page of their index is damaged, are counted apart: they keep no other table from appending or from being
//! encoded. Such a table takes rows until all those tables together have half of what all others may have, so open rows
//! stay bounded: to the limit, that half, and what was open of a table when its encoding failed first.
//!
//! Rejected: one limit for all. Rows that nobody can encode would fill it and end all appends.

use crate::error::{Error, Result};
use crate::ids::TableId;
use crate::limits::OPEN_LIMIT_BYTES;
use crate::open_tables::OpenTables;
use std::collections::BTreeMap;
use std::time::Duration;
use thalweg_env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thalweg_env::sync::{Condvar, Mutex};

/// Most open bytes of all tables together whose encoding has failed: their appends are refused above it.
const STUCK_LIMIT_BYTES: u64 = OPEN_LIMIT_BYTES / 2;
/// How soon a table is encoded again whose encoding has failed.
const ENCODE_AGAIN_NS: u64 = 10_000_000_000;

/// Work that commits have called for, for the threads that do it.
#[derive(Default)]
pub(crate) struct Due {
    /// Raw bytes of open rows: of tables that can be encoded as far as is known, and of the others.
    open_bytes: AtomicU64,
    stuck_bytes: AtomicU64,
    stuck: Mutex<BTreeMap<TableId, Stuck>>,
    unsynced: AtomicBool,
    /// Calls who syncs in time, where nothing was unsynced before.
    pub(crate) syncing: Call,
    checkpoint: AtomicBool,
    /// Calls who encodes and writes checkpoints.
    pub(crate) work: Call,
    garbage: AtomicBool,
    /// Some could not be removed yet.
    garbage_stayed: AtomicBool,
    /// A commit found no room: what would not be worth its while else is to be done as well.
    out_of_space: AtomicBool,
    /// Calls who removes and rewrites files.
    pub(crate) cleaning: Call,
}

/// Why open rows of a table could not be encoded, and when it was.
struct Stuck {
    error: Error,
    since_ns: u64,
}

/// A call that is kept if nobody waits yet.
#[derive(Default)]
pub(crate) struct Call {
    called: Mutex<bool>,
    call: Condvar,
}

impl Call {
    /// Calls whoever waits.
    pub(crate) fn call(&self) {
        *self.called.lock() = true;
        self.call.notify_all();
    }

    /// Waits for a call, not longer than that.
    pub(crate) fn wait(&self, at_most: Option<Duration>) {
        let mut called = self.called.lock();
        while !std::mem::take(&mut *called) {
            match at_most {
                None => self.call.wait(&mut called),
                Some(at_most) => {
                    self.call.wait_for(&mut called, at_most);
                    *called = false;
                    return;
                }
            }
        }
    }
}

impl Due {
    /// Counts the open rows; returns whether there are so many that tables are to be cut into short blocks.
    pub(crate) fn note_open(&self, open: &mut OpenTables) -> bool {
        let unstuck = open.take_unstuck();
        if !unstuck.is_empty() {
            // Without open rows, or without the table, nothing is left to encode.
            let mut stuck = self.stuck.lock();
            unstuck.iter().for_each(|table| _ = stuck.remove(table));
        }
        let stuck_bytes = open.stuck_bytes();
        let open_bytes = open.bytes() - stuck_bytes;
        self.open_bytes.store(open_bytes, Ordering::Relaxed);
        self.stuck_bytes.store(stuck_bytes, Ordering::Relaxed);
        open_bytes > OPEN_LIMIT_BYTES / 2
    }

    /// Sets the tables aside whose encoding has failed, among open rows that were read from the log anew.
    pub(crate) fn set_aside(&self, open: &mut OpenTables) {
        for (table, stuck) in self.stuck.lock().iter() {
            open.note_encoded(*table, Some(stuck.since_ns));
        }
    }

    /// Lets tables be encoded again whose encoding failed long enough ago.
    pub(crate) fn try_again(&self, open: &mut OpenTables, now_ns: u64) {
        if let Some(failed_ns) = now_ns.checked_sub(ENCODE_AGAIN_NS) {
            open.try_again(failed_ns);
        }
    }

    /// Whether appends are to wait until open rows have been encoded.
    pub(crate) fn is_full(&self) -> bool {
        self.open_bytes.load(Ordering::Relaxed) >= OPEN_LIMIT_BYTES
    }

    /// Notes how the encoding of a table ended; returns whether it had failed before.
    pub(crate) fn note_encoded(&self, table: TableId, error: Option<Error>, now_ns: u64) -> bool {
        let mut stuck = self.stuck.lock();
        let before = match error {
            None => stuck.remove(&table),
            Some(error) => stuck.insert(
                table,
                Stuck {
                    error,
                    since_ns: now_ns,
                },
            ),
        };
        before.is_some()
    }

    /// Whether tables take more open rows: those whose encoding fails do not when there are too many of them.
    pub(crate) fn check_stuck(&self, mut tables: impl Iterator<Item = TableId>) -> Result<()> {
        if self.stuck_bytes.load(Ordering::Relaxed) < STUCK_LIMIT_BYTES {
            return Ok(());
        }
        let stuck = self.stuck.lock();
        match tables.find_map(|table| stuck.get(&table)) {
            None => Ok(()),
            Some(stuck) => {
                // Tried again if it is time.
                self.work.call();
                Err(not_stored(&stuck.error))
            }
        }
    }

    /// Whether the log has bytes that a power cut could take.
    pub(crate) fn unsynced(&self) -> bool {
        self.unsynced.load(Ordering::Relaxed)
    }

    pub(crate) fn note_unsynced(&self, unsynced: bool) {
        let was_unsynced = self.unsynced.swap(unsynced, Ordering::Relaxed);
        if unsynced && !was_unsynced {
            self.syncing.call();
        }
    }

    /// A checkpoint is due.
    pub(crate) fn expect_checkpoint(&self) {
        self.checkpoint.store(true, Ordering::Relaxed);
    }

    /// Whether one is; asked for once.
    pub(crate) fn take_checkpoint(&self) -> bool {
        self.checkpoint.swap(false, Ordering::Relaxed)
    }

    /// Notes that there may be files that nothing needs.
    pub(crate) fn expect_garbage(&self) {
        self.garbage.store(true, Ordering::Relaxed);
    }

    /// Calls who removes files, if there may be any.
    pub(crate) fn call_for_garbage(&self) {
        if self.garbage.load(Ordering::Relaxed) {
            self.cleaning.call();
        }
    }

    /// Notes that some garbage could not be removed yet: it is tried again after the next checkpoint.
    pub(crate) fn garbage_stays(&self) {
        self.garbage_stayed.store(true, Ordering::Relaxed);
    }

    /// Tries garbage that stayed again: there is a checkpoint.
    pub(crate) fn look_at_garbage_again(&self) {
        if self.garbage_stayed.swap(false, Ordering::Relaxed) {
            self.expect_garbage();
        }
    }

    /// A commit was refused: whatever can be freed is to be freed.
    pub(crate) fn space_is_out(&self) {
        self.out_of_space.store(true, Ordering::Relaxed);
        self.expect_garbage();
        self.cleaning.call();
    }

    /// Whether one was; asked for once.
    pub(crate) fn take_out_of_space(&self) -> bool {
        self.out_of_space.swap(false, Ordering::Relaxed)
    }

    /// Whether there may be; asked for once.
    pub(crate) fn take_garbage(&self) -> bool {
        self.garbage.swap(false, Ordering::Relaxed)
    }
}

/// The error of an append that was not begun, because open rows cannot be encoded. If `error` leaves the outcome of a
/// commit open, that does not apply to this append: it was not stored.
pub(crate) fn not_stored(error: &Error) -> Error {
    let cause = error.cause();
    let message = format!(
        "nothing of this append was stored: there are too many rows in no block yet, and encoding them fails: {cause}"
    );
    Error::with_source(error.kind(), message, error.clone())
}
