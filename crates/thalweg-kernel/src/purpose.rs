//! The kinds of frames of the log, as far as they differ in the space that they may use on a full disk.

use crate::space_estimates::MIN_RESERVE_CHECKPOINTS;

/// Why a frame is written. On a full disk the reserve and the last room are kept for some purposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Commits that free no space.
    Rows,
    /// Commits that free no space and change pages of an index, or add files: they change more than the frame holds.
    Pages,
    /// Drops, and deletions that free as much: they leave room for the checkpoints that remove the files, which are shorter by the
    /// open rows that go.
    Drop { open_bytes: u64 },
    /// Replacements and ordinary checkpoints come by themselves, again and again: they leave room for a drop and all that
    /// it takes.
    Replacement,
    /// Ordinary ones: see replacements.
    Checkpoint,
    /// The one that begins an epoch, and those before files of dropped tables are removed.
    CheckpointToFree,
}

impl Purpose {
    /// Whether nobody asks for it to free space, and it comes again and again.
    pub(crate) fn comes_by_itself(self) -> bool {
        matches!(self, Self::Replacement | Self::Checkpoint)
    }

    /// For how many checkpoints the reserve must have room after such a frame; `None`: it does not go there.
    pub(crate) fn kept_checkpoints(self) -> Option<u64> {
        match self {
            Self::Rows | Self::Pages => None,
            Self::Drop { .. } | Self::CheckpointToFree => Some(0),
            Self::Replacement | Self::Checkpoint => Some(MIN_RESERVE_CHECKPOINTS),
        }
    }
}
