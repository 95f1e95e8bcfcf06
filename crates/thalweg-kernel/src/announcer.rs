//! Announces to reading processes, in the file `live`, how far the log may be shown.
//!
//! Invariants: nothing is announced but what is visible; the garbage floor only rises. In a batch for which nobody waits
//! for a sync, frames of rows are marked to be shown once they are written; all others are shown by `live`.

use crate::error::Result;
use crate::ids::{CommitNo, DatabaseId, Epoch, LogPosition};
use crate::live::{Live, LiveFile, PinPlace};

/// How far the log has come.
pub(crate) struct Announcement {
    pub(crate) epoch: Epoch,
    pub(crate) synced: LogPosition,
    pub(crate) visible: CommitNo,
    /// Where the checkpoint of the root lies.
    pub(crate) checkpoint: LogPosition,
}

pub(crate) struct Announcer {
    live: LiveFile,
    boot: [u8; 16],
    database: DatabaseId,
    gc_floor: PinPlace,
    /// Nobody of this batch waits for a sync.
    shows_on_write: bool,
    /// Reading processes do not know yet of all that is visible here.
    is_behind: bool,
}

impl Announcer {
    pub(crate) fn new(live: LiveFile, database: DatabaseId, boot: [u8; 16]) -> Self {
        Self {
            live,
            boot,
            database,
            gc_floor: PinPlace::default(),
            shows_on_write: false,
            is_behind: true,
        }
    }

    pub(crate) fn boot(&self) -> [u8; 16] {
        self.boot
    }

    pub(crate) fn begin_batch(&mut self, waits_for_sync: bool) {
        self.shows_on_write = !waits_for_sync;
    }

    /// Whether the next frame is marked to be shown once it is written.
    pub(crate) fn shows_on_write(&mut self, is_small: bool) -> bool {
        let shows = self.shows_on_write && is_small;
        self.is_behind |= !shows;
        shows
    }

    /// Notes that something is to be shown that only `live` can announce.
    pub(crate) fn fall_behind(&mut self) {
        self.is_behind = true;
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Writes `live`.
    ///
    /// # Errors
    /// When it cannot be written: reading processes are behind, as before.
    pub(crate) fn tell(&mut self, announcement: &Announcement) -> Result<()> {
        self.live.write(Live {
            boot: self.boot,
            sequence: 0,
            epoch: announcement.epoch,
            database: self.database,
            synced: announcement.synced,
            visible: announcement.visible,
            gc_floor: self.gc_floor,
            checkpoint: announcement.checkpoint,
        })?;
        self.is_behind = false;
        Ok(())
    }

    /// Files that only snapshots before this need may go; they learn of it with the next announcement.
    pub(crate) fn raise_floor(&mut self, floor: PinPlace) {
        self.gc_floor = self.gc_floor.max(floor);
    }

    pub(crate) fn live(&self) -> &LiveFile {
        &self.live
    }

    pub(crate) fn live_mut(&mut self) -> &mut LiveFile {
        &mut self.live
    }
}
