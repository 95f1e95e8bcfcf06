//! How much space the next checkpoints, and a drop, are about to need.
//!
//! Invariants: sizes are estimated from what is in memory, after each batch, and never below what was written last. Open rows
//! count for each checkpoint, index pages that have changed for the first one.

use crate::frame::NEXT_FRAME_BYTES;
use crate::segment;
use crate::since_checkpoint::CHECKPOINT_DUE;
use thalweg_env::sync::atomic::{AtomicU64, Ordering};

/// The reserve is a multiple of this part of a full segment, so that it is seldom made anew.
const RESERVE_SHARE: u64 = 16;
const RESERVE_MIN_BYTES: u64 = 64 << 10;
/// A reserve is made with room for so many checkpoints: the one that begins an epoch, two before files are removed, and one
/// more, because their size is only estimated and copy-on-write file systems need room for writing one twice.
const RESERVE_CHECKPOINTS: u64 = 4;
/// With room for fewer checkpoints than these in the reserve, commits that free no space are refused.
pub(crate) const MIN_RESERVE_CHECKPOINTS: u64 = 3;
/// Removing files takes so many checkpoints.
pub(crate) const CLEANING_CHECKPOINTS: u64 = 2;
/// On a copy-on-write file system a segment takes room for its zeros, and for what is written over them until that is synced.
pub(crate) const WRITTEN_TWICE: u64 = 2;
/// A reserve that will be given back, on a copy-on-write file system, is made this many times as large.
const GIVEN_BACK_SHARE: u64 = 4;
/// Takes `root` and `live` in place, and directories.
pub(crate) const IN_PLACE_BYTES: u64 = 32 << 10;
/// The most bytes by which a checkpoint may exceed its estimate.
const CHECKPOINT_SLACK_BYTES: u64 = 4 << 10;

#[derive(Debug)]
pub(crate) struct SpaceEstimates {
    /// The longest that a segment gets without a longer frame.
    limit_bytes: u64,
    /// The last full checkpoint.
    checkpoint_bytes: AtomicU64,
    /// Estimates of the next one: what is in each of them, and what has come since the last one.
    repeated_bytes: AtomicU64,
    unsaved_bytes: AtomicU64,
    /// A commit may change a page as long as this, which the next checkpoint then writes anew.
    longest_page_bytes: AtomicU64,
    /// The most that was to be unsynced at once.
    tail_bytes: AtomicU64,
}

impl SpaceEstimates {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            checkpoint_bytes: AtomicU64::new(0),
            repeated_bytes: AtomicU64::new(0),
            unsaved_bytes: AtomicU64::new(0),
            longest_page_bytes: AtomicU64::new(0),
            tail_bytes: AtomicU64::new(0),
        }
    }

    /// The full size of a segment.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Bytes of the reserve that checkpoints and drops may need; the rest is for the unsynced tail of the log.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let around_bytes = segment::SEGMENT_HEADER_BYTES as u64 + NEXT_FRAME_BYTES;
        self.min_reserve_bytes_now() + around_bytes
    }

    pub(crate) fn tail_room_in(&self, reserve_bytes: u64) -> u64 {
        let room = reserve_bytes.saturating_sub(self.kept_bytes());
        room.max(self.reserve_unit() / 2)
    }

    /// How large the next full checkpoint is about to be.
    fn next_checkpoint_bytes(&self) -> u64 {
        let repeated_bytes = self.repeated_bytes.load(Ordering::Relaxed);
        repeated_bytes.max(self.checkpoint_bytes.load(Ordering::Relaxed))
    }

    /// Room for so many checkpoints in a segment.
    pub(crate) fn room_for_checkpoints(&self, checkpoints: u64) -> u64 {
        checkpoints * with_slack(self.next_checkpoint_bytes())
    }

    /// The least bytes of `checkpoints` written one after the other: what each repeats, and once what no checkpoint holds yet.
    pub(crate) fn min_cleaning_bytes(&self, checkpoints: u64) -> u64 {
        let repeated_bytes = self.repeated_bytes.load(Ordering::Relaxed);
        let unsaved_bytes = self.unsaved_bytes.load(Ordering::Relaxed);
        checkpoints * with_slack(repeated_bytes) + unsaved_bytes
    }

    /// How large a reserve is to be; `is_written_to`: a segment in the end, else only given back.
    pub(crate) fn wanted_reserve_bytes(&self, is_written_to: bool) -> u64 {
        self.reserve_bytes_with(0, is_written_to)
    }

    /// How large a reserve is to be where there is plenty of space: with room in two checkpoints for what is in none
    /// yet, and for a long tail.
    pub(crate) fn ample_reserve_bytes(&self, is_written_to: bool) -> u64 {
        let tail_bytes = self.tail_bytes.load(Ordering::Relaxed);
        let more_bytes = CLEANING_CHECKPOINTS * self.more_bytes() + tail_bytes;
        self.reserve_bytes_with(more_bytes, is_written_to)
    }

    fn reserve_bytes_with(&self, more_bytes: u64, is_written_to: bool) -> u64 {
        let repeated_bytes = self.repeated_bytes.load(Ordering::Relaxed);
        // Open rows and changed pages of the last checkpoint need not be in the next one: for these no more than a segment.
        let last_bytes = self.checkpoint_bytes.load(Ordering::Relaxed);
        let last_bytes = (RESERVE_CHECKPOINTS * last_bytes).min(self.limit_bytes);
        let bytes = RESERVE_CHECKPOINTS * with_slack(repeated_bytes) + self.unsaved_soon_bytes();
        let bytes = bytes.max(last_bytes) + more_bytes;
        let bytes = bytes.next_multiple_of(self.reserve_unit());
        match is_written_to {
            true => bytes,
            false => bytes * GIVEN_BACK_SHARE,
        }
    }

    /// Bytes that are in no checkpoint yet, with those that a segment may add before the reserve is checked again: more
    /// than that calls for a checkpoint.
    fn unsaved_soon_bytes(&self) -> u64 {
        self.unsaved_bytes.load(Ordering::Relaxed) + self.soon_bytes()
    }

    pub(crate) fn soon_bytes(&self) -> u64 {
        let of_frames = (self.limit_bytes / 4).min(CHECKPOINT_DUE.directory_bytes);
        of_frames.max(self.longest_page_bytes.load(Ordering::Relaxed))
    }

    pub(crate) fn reserve_unit(&self) -> u64 {
        (self.limit_bytes / RESERVE_SHARE).max(RESERVE_MIN_BYTES)
    }

    /// Estimates the bytes of a checkpoint besides the catalogue.
    pub(crate) fn more_bytes(&self) -> u64 {
        let last_bytes = self.checkpoint_bytes.load(Ordering::Relaxed);
        last_bytes.max(self.unsaved_bytes.load(Ordering::Relaxed))
    }

    /// The least room that commits which free no space leave for those that do.
    pub(crate) fn min_reserve_bytes(&self) -> u64 {
        self.min_reserve_bytes_with(self.unsaved_soon_bytes())
    }

    /// The least room as of now, without what a segment may add before the reserve is checked again.
    pub(crate) fn min_reserve_bytes_now(&self) -> u64 {
        self.min_reserve_bytes_with(self.unsaved_bytes.load(Ordering::Relaxed))
    }

    fn min_reserve_bytes_with(&self, unsaved_bytes: u64) -> u64 {
        let bytes = self.repeated_bytes.load(Ordering::Relaxed);
        MIN_RESERVE_CHECKPOINTS * with_slack(bytes) + unsaved_bytes
    }

    /// The least bytes of a segment for a frame, and for checkpoints after it.
    pub(crate) fn min_bytes(&self, frame_bytes: u64, checkpoints: u64) -> u64 {
        let more_bytes = self.room_for_checkpoints(checkpoints);
        segment::next_capacity(0, 0, frame_bytes + more_bytes + NEXT_FRAME_BYTES)
    }

    /// The free space that commits which free space may need, where writing in place takes room.
    pub(crate) fn freeing_bytes(&self) -> u64 {
        WRITTEN_TWICE * self.wanted_reserve_bytes(true) + IN_PLACE_BYTES
    }

    /// Notes how large a full checkpoint is: the reserve takes some of them.
    pub(crate) fn note_checkpoint(&self, bytes: u64) {
        self.checkpoint_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Notes how much of the next full checkpoint is in each of them, and how much in none yet.
    pub(crate) fn note_next(&self, repeated_bytes: u64, unsaved_bytes: u64) {
        self.repeated_bytes.store(repeated_bytes, Ordering::Relaxed);
        self.unsaved_bytes.store(unsaved_bytes, Ordering::Relaxed);
    }

    /// Notes how much of the log was to be unsynced at once; returns whether it was never as much.
    pub(crate) fn note_tail(&self, bytes: u64) -> bool {
        self.tail_bytes.fetch_max(bytes, Ordering::Relaxed) < bytes
    }

    pub(crate) fn note_longest_page(&self, bytes: u64) {
        self.longest_page_bytes.store(bytes, Ordering::Relaxed);
    }
}

/// A frame may be a little longer in its place than it was estimated.
fn with_slack(checkpoint_bytes: u64) -> u64 {
    checkpoint_bytes + checkpoint_bytes / 8 + CHECKPOINT_SLACK_BYTES
}
