//! Room for a frame of the log: in the segment that is written to, or in the next one.
//!
//! Invariants: what may go into the reserve is decided here alone, by what a frame is for. Before a frame is put behind others
//! that are not synced, the reserve has room for all of them, as far as sizes are estimated: a recovery on a full disk writes
//! them again before a table can be dropped. Checkpoints are not kept from filling the reserve.

use crate::leader::{Failure, Leader, Outcome, Purpose, UNSYNCED_LIMIT_BYTES, fatal, no_epoch};
use crate::log_writer::LogWriter;
use crate::segment_supply::CLEANING_CHECKPOINTS;

impl Leader {
    /// Keeps what a recovery would have to write again so short that there is room for it on a full disk; returns how long it may
    /// be.
    fn bound_tail(&mut self, frame_bytes: u64) -> Outcome<u64> {
        let log = self.log.as_mut().ok_or_else(|| fatal(no_epoch()))?;
        let (room, unsynced_bytes) = (self.supply.tail_room(), log.unsynced_bytes());
        // In the reserve there are only the commits for which it is kept.
        if unsynced_bytes + frame_bytes <= room || log.is_reserve() {
            return Ok(room);
        }
        if unsynced_bytes > 0 {
            let written = log.write();
            written
                .inspect_err(|e| self.supply.note_failed_write(e))
                .and_then(|()| log.sync())
                .map_err(fatal)?;
            self.untold = true;
        }
        self.supply
            .expect_tail(UNSYNCED_LIMIT_BYTES.min(log.capacity_bytes()) + frame_bytes);
        Ok(room)
    }

    /// Returns the log with room for a frame.
    pub(crate) fn room(&mut self, frame_bytes: u64, purpose: Purpose) -> Outcome<&mut LogWriter> {
        let tail_room = match purpose {
            Purpose::Checkpoint => u64::MAX,
            _ => self.bound_tail(frame_bytes)?,
        };
        let log = self.log.as_mut().ok_or_else(|| fatal(no_epoch()))?;
        // On a copy-on-write file system it is the free space that must take the checkpoints (`make_room_to_drop`).
        let (checkpoints, may_use_reserve) = match purpose {
            Purpose::Rows | Purpose::Files => (0, false),
            Purpose::Freeing => (CLEANING_CHECKPOINTS, true),
            Purpose::Checkpoint => (1, true),
        };
        let is_full = match purpose {
            Purpose::Rows | Purpose::Files => log.is_reserve() || !log.fits(frame_bytes),
            Purpose::Freeing
                if log.is_reserve() && self.has_garbage && !self.supply.is_given_back() =>
            {
                let kept_bytes = self.supply.room_for_checkpoints(checkpoints);
                !log.fits(frame_bytes + kept_bytes)
            }
            Purpose::Freeing | Purpose::Checkpoint => !log.fits(frame_bytes),
        };
        let supply = &self.supply;
        let needs_reserve = match purpose {
            Purpose::Rows => is_full || frame_bytes > tail_room,
            Purpose::Files => is_full || frame_bytes > tail_room || !supply.has_least_reserve(),
            Purpose::Freeing | Purpose::Checkpoint => false,
        };
        if needs_reserve {
            supply
                .ensure_reserve(frame_bytes)
                .map_err(Failure::Refused)?;
        }
        if is_full {
            let last_bytes = log.capacity_bytes();
            supply.note_unsynced(log.unsynced_bytes());
            let next = supply.take(last_bytes, frame_bytes, checkpoints, may_use_reserve)?;
            let rolled = log.roll(next, self.working.commit);
            rolled
                .inspect_err(|e| self.supply.note_failed_write(e))
                .map_err(fatal)?;
            // The rows of the last segment may all be in blocks elsewhere by now.
            self.due.expect_garbage();
        }
        Ok(log)
    }
}
