//! Room for a frame of the log: in the segment that is written to, or in the next one.
//!
//! Invariants: whether a frame may go into the reserve is decided here alone, by its purpose. Before it is put after others
//! that are not synced, the reserve has room for all of them, as far as sizes are estimated: a recovery on a full disk writes
//! them again before a table can be dropped. What comes by itself, again and again, leaves room in the reserve for a drop: for
//! the checkpoint that begins an epoch, and for those before files are removed.

use super::{Leader, UNSYNCED_LIMIT_BYTES, no_epoch};
use crate::commit::Commit;
use crate::failure::{Failure, Outcome, fatal};
use crate::log_writer::LogWriter;
use crate::purpose::Purpose;
use crate::segment_supply::Wanted;
use crate::space_estimates::{CLEANING_CHECKPOINTS, MIN_RESERVE_CHECKPOINTS};
use crate::working::FreedBytes;

impl Leader {
    /// Keeps what a recovery would have to write again so short that there is room for it on a full disk; returns how long it may
    /// be.
    fn bound_tail(&mut self, tail_bytes: u64) -> Outcome<u64> {
        let log = self.log.as_mut().ok_or_else(|| fatal(no_epoch()))?;
        let (room, unsynced_bytes) = (self.supply.tail_room(), log.unsynced_bytes());
        // In the reserve there are only the commits for which it is kept.
        if unsynced_bytes + tail_bytes <= room || log.is_reserve() {
            return Ok(room);
        }
        if unsynced_bytes > 0 {
            let written = log.write();
            written
                .inspect_err(|e| self.supply.note_failed_write(e))
                .and_then(|()| log.sync())
                .map_err(fatal)?;
            self.announcer.fall_behind();
        }
        self.supply
            .expect_tail(UNSYNCED_LIMIT_BYTES.min(log.capacity_bytes()) + tail_bytes);
        Ok(room)
    }

    /// Returns the log with room for a frame, which adds `in_checkpoints` bytes to the next checkpoints.
    pub(super) fn room(
        &mut self,
        frame_bytes: u64,
        in_checkpoints: u64,
        purpose: Purpose,
    ) -> Outcome<&mut LogWriter> {
        let (tail_bytes, tail_room) = match purpose {
            // Nothing of it is written again.
            Purpose::Checkpoint | Purpose::CheckpointToFree => (0, u64::MAX),
            _ => {
                let tail_bytes = frame_bytes + in_checkpoints;
                (tail_bytes, self.bound_tail(tail_bytes)?)
            }
        };
        let is_full = !self.fits(frame_bytes, in_checkpoints, purpose);
        let supply = &self.supply;
        let needs_reserve = match purpose {
            Purpose::Rows => is_full || tail_bytes > tail_room,
            Purpose::Pages => is_full || !supply.has_least_reserve(tail_bytes),
            Purpose::Replacement => tail_bytes > tail_room,
            Purpose::Drop { .. } | Purpose::Checkpoint | Purpose::CheckpointToFree => false,
        };
        if needs_reserve {
            let renewed = supply.ensure_reserve(tail_bytes);
            renewed.map_err(Failure::Refused)?;
        }
        if purpose.comes_by_itself() {
            // Where the reserve was given back it is this space that is kept.
            let room = supply.check_room_beside(frame_bytes);
            room.map_err(Failure::Refused)?;
        }
        if is_full {
            let log = self.log.as_mut().ok_or_else(|| fatal(no_epoch()))?;
            let next = supply.take(Wanted {
                last_bytes: log.capacity_bytes(),
                frame_bytes,
                tail_bytes: tail_bytes.max(log.unsynced_bytes()),
                // On a copy-on-write file system it is the free space that must take the checkpoints (`make_room_to_drop`).
                checkpoints: match purpose {
                    Purpose::Drop { .. } => CLEANING_CHECKPOINTS,
                    Purpose::CheckpointToFree => 1,
                    _ => 0,
                },
                kept_checkpoints: purpose.kept_checkpoints(),
            })?;
            let rolled = log.roll(next, self.working.commit);
            rolled
                .inspect_err(|e| self.supply.note_failed_write(e))
                .map_err(fatal)?;
            // The rows of the last segment may all be in blocks elsewhere by now.
            self.due.expect_garbage();
        }
        self.log.as_mut().ok_or_else(|| fatal(no_epoch()))
    }

    /// Room for so many checkpoints after such a frame.
    fn room_for_checkpoints(&self, checkpoints: u64, purpose: Purpose) -> u64 {
        let room = self.supply.sizes.room_for_checkpoints(checkpoints);
        match purpose {
            Purpose::Drop { open_bytes } => room.saturating_sub(checkpoints * open_bytes),
            _ => room,
        }
    }

    /// The purpose of a commit that may use the reserve as drops do: one that frees more than three checkpoints take, which are the
    /// beginning of an epoch and two before files are removed. Deletions that free less would use up the reserve one after the
    /// other.
    pub(super) fn as_drop(&self, commit: &Commit) -> Option<Purpose> {
        if !commit.may_free_much() {
            return None;
        }
        let FreedBytes { blocks, open } = self.working.freed_by(commit);
        let as_drop = Purpose::Drop { open_bytes: open };
        let needed = self.room_for_checkpoints(MIN_RESERVE_CHECKPOINTS, as_drop);
        (blocks.saturating_add(open) > needed).then_some(as_drop)
    }

    /// Whether a frame finds room in the segment that is written to.
    pub(super) fn fits(&self, frame_bytes: u64, in_checkpoints: u64, purpose: Purpose) -> bool {
        let Some(log) = &self.log else { return false };
        let kept = match (log.is_reserve(), purpose) {
            (false, _) => Some(0),
            (true, Purpose::Drop { .. })
                if self.dropped.is_since_checkpoint() && !self.supply.is_given_back() =>
            {
                Some(CLEANING_CHECKPOINTS)
            }
            (true, _) => purpose.kept_checkpoints(),
        };
        let kept_bytes = match kept {
            None => return false,
            Some(0) => 0,
            Some(kept) => self.room_for_checkpoints(kept, purpose) + in_checkpoints,
        };
        log.fits(frame_bytes + kept_bytes)
    }
}
