//! How much has come since the last checkpoint, and how much calls for the next one.

use crate::size_limits::changed_limit_bytes;

/// The work since the last checkpoint, which calls for the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SinceCheckpoint {
    pub(crate) frames: u64,
    pub(crate) groups: u64,
    /// Of the entries of groups.
    pub(crate) directory_bytes: u64,
    /// Of the entries that edits have added, and the keys of those that they have removed.
    pub(crate) edit_bytes: u64,
    pub(crate) rows_bytes: u64,
    /// Index pages that the next checkpoint writes, each once, about as long as they are now.
    pub(crate) page_bytes: u64,
    /// Index pages on disk in whose place others have come: about as much of `page_bytes` as is of no new entry.
    pub(crate) replaced_bytes: u64,
}

impl SinceCheckpoint {
    /// Whether that is enough for a checkpoint.
    pub(crate) fn is_due(&self) -> bool {
        self.reaches(1)
    }

    /// Whether a checkpoint is due that other work must not keep waiting.
    pub(crate) fn is_overdue(&self) -> bool {
        self.reaches(OVERDUE)
    }

    /// Whether the next commit waits for a checkpoint: the pages that it may make anew are too much with those that wait to be
    /// written.
    pub(crate) fn is_full(&self) -> bool {
        self.page_bytes > UNWRITTEN_LIMITS * changed_limit_bytes() - changed_limit_bytes()
    }

    fn reaches(&self, times: u64) -> bool {
        let due = &CHECKPOINT_DUE;
        self.frames >= times * due.frames
            || self.groups >= times * due.groups
            || self.directory_bytes >= times * due.directory_bytes
            || self.edit_bytes >= times * due.edit_bytes
            || self.rows_bytes >= times * due.rows_bytes
            || self.page_bytes >= times * due.page_bytes
    }
}

/// Index pages wait to be written up to so many times what one commit makes anew at most.
const UNWRITTEN_LIMITS: u64 = 2;

/// A checkpoint is overdue at so many times of the amount that calls for one: it then comes before full blocks of open rows are
/// encoded. Up to there these come first, for a checkpoint copies open rows.
const OVERDUE: u64 = 2;

/// How much calls for a checkpoint. Recovery has not much more than this to read, and beside appends that keep the
/// encoder busy not much more than `OVERDUE` times as much.
pub(crate) const CHECKPOINT_DUE: SinceCheckpoint = SinceCheckpoint {
    frames: 16_384,
    groups: 256,
    directory_bytes: 1 << 20,
    // A checkpoint writes whole index pages: of wide tables they are many times as large as an entry.
    edit_bytes: 8 << 20,
    rows_bytes: 8 << 20,
    page_bytes: 8 << 20,
    // They are part of the pages.
    replaced_bytes: u64::MAX,
};
