//! Segments prepared ahead of the log, and the one kept for a full disk.
//!
//! Invariants: at most one spare and one reserve exist; the reserve is only given to commits that free space. Taking a
//! segment never waits for the preparing thread for longer than that thread needs for the segment it is making.

use crate::error::Result;
use crate::ids::FileId;
use crate::segment::{self, Prepared};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_env::Env;
use thalweg_env::sync::{Condvar, Mutex};

/// The reserve is this part of a full segment, within the limits below: enough for edits and checkpoints.
const RESERVE_SHARE: u64 = 16;
const RESERVE_MIN_BYTES: u64 = 64 << 10;

pub(crate) struct SegmentSupply {
    env: Env,
    dir: PathBuf,
    next_file: AtomicU64,
    limit_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    spare: Option<Prepared>,
    reserve: Option<Prepared>,
    /// Capacity wanted for the next spare; 0: none.
    wanted_bytes: u64,
    preparing: bool,
}

impl SegmentSupply {
    pub(crate) fn new(env: Env, dir: PathBuf, next_file: FileId, limit_bytes: u64) -> Self {
        Self {
            env,
            dir,
            next_file: AtomicU64::new(next_file.0),
            limit_bytes,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }
    }

    /// A file id that was never used.
    pub(crate) fn next_file_id(&self) -> FileId {
        FileId(self.next_file.fetch_add(1, Ordering::Relaxed))
    }

    /// Above every id handed out so far.
    pub(crate) fn file_id_bound(&self) -> FileId {
        FileId(self.next_file.load(Ordering::Relaxed))
    }

    /// A segment for a frame of `frame_bytes` after one of `last_bytes`; the reserve if space is out and
    /// `may_use_reserve`. The next spare is wanted from then on.
    pub(crate) fn take(
        &self,
        last_bytes: u64,
        frame_bytes: u64,
        may_use_reserve: bool,
    ) -> Result<Prepared> {
        let capacity_bytes = segment::next_capacity(last_bytes, self.limit_bytes, frame_bytes);
        let needed_bytes = segment::SEGMENT_HEADER_BYTES as u64 + frame_bytes;
        let mut state = self.state.lock();
        while state.preparing {
            self.changed.wait(&mut state);
        }
        let spare = state.spare.take_if(|s| s.capacity_bytes >= needed_bytes);
        let taken = match spare {
            Some(spare) => Ok(spare),
            None => self.make(capacity_bytes),
        };
        let taken = match taken {
            Err(error) if may_use_reserve => state
                .reserve
                .take_if(|r| r.capacity_bytes >= needed_bytes)
                .ok_or(error),
            taken => taken,
        }?;
        state.wanted_bytes = segment::next_capacity(taken.capacity_bytes, self.limit_bytes, 0);
        drop(state);
        self.changed.notify_all();
        Ok(taken)
    }

    fn make(&self, capacity_bytes: u64) -> Result<Prepared> {
        segment::prepare(&self.env, &self.dir, self.next_file_id(), capacity_bytes)
    }

    /// Whether [`SegmentSupply::refill`] has something to do.
    pub(crate) fn wants(&self) -> bool {
        let state = self.state.lock();
        !state.preparing
            && ((state.spare.is_none() && state.wanted_bytes > 0) || state.reserve.is_none())
    }

    /// Waits until a segment is wanted or `stop` says so.
    pub(crate) fn wait(&self, stop: impl Fn() -> bool) {
        let mut state = self.state.lock();
        while !stop() && (state.preparing || state.spare.is_some() || state.wanted_bytes == 0) {
            self.changed.wait(&mut state);
        }
    }

    /// Wakes whoever waits, to look at its `stop`.
    pub(crate) fn wake(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// Makes the reserve, then the spare. A full disk is no error here: who takes a segment will be told.
    pub(crate) fn refill(&self) {
        let mut state = self.state.lock();
        if state.preparing {
            return;
        }
        state.preparing = true;
        let (no_reserve, no_spare, wanted_bytes) = (
            state.reserve.is_none(),
            state.spare.is_none(),
            std::mem::take(&mut state.wanted_bytes),
        );
        drop(state);
        let reserve_bytes = (wanted_bytes / RESERVE_SHARE)
            .max(RESERVE_MIN_BYTES)
            .min(self.limit_bytes);
        let reserve = no_reserve.then(|| self.make(reserve_bytes).ok()).flatten();
        let spare = (no_spare && wanted_bytes > 0)
            .then(|| self.make(wanted_bytes).ok())
            .flatten();
        let mut state = self.state.lock();
        state.reserve = state.reserve.take().or(reserve);
        state.spare = state.spare.take().or(spare);
        state.preparing = false;
        drop(state);
        self.changed.notify_all();
    }

    /// Ids of the segments that are prepared and not used.
    pub(crate) fn prepared(&self) -> Vec<FileId> {
        let state = self.state.lock();
        state
            .spare
            .iter()
            .chain(&state.reserve)
            .map(|p| p.id)
            .collect()
    }

    /// Gives unused segments back to the file system.
    pub(crate) fn release(&self) {
        let mut state = self.state.lock();
        state.wanted_bytes = 0;
        let unused = [state.spare.take(), state.reserve.take()];
        for prepared in unused.into_iter().flatten() {
            // A leftover is removed by the next open; nothing depends on it.
            let _ = self
                .env
                .storage()
                .remove_file(&segment::segment_path(&self.dir, prepared.id));
        }
    }
}
