//! What the leader is asked to do.

use crate::commit::Commit;

/// What a caller wants done.
#[derive(Debug)]
pub(crate) enum Job {
    Commit(Commit),
    /// Everything before it is synced.
    Flush,
    /// If there is anything behind the last one, or `always`.
    Checkpoint {
        always: bool,
    },
    /// One behind which files can go: on a full disk what is kept for that serves it.
    CheckpointToFree,
}

/// What the callers of a batch want between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants {
    /// Somebody waits for a sync.
    pub(crate) sync: bool,
    /// Somebody drops a table, or is about to remove files.
    pub(crate) freed_space: bool,
}

impl Job {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Commit(commit) => commit.bytes(),
            Self::Flush | Self::Checkpoint { .. } | Self::CheckpointToFree => 0,
        }
    }

    /// Drops tables and does nothing else, or comes before files are removed.
    pub(crate) fn frees_space(&self) -> bool {
        match self {
            Self::Commit(commit) => commit.drops_tables(),
            Self::CheckpointToFree => true,
            Self::Flush | Self::Checkpoint { .. } => false,
        }
    }
}
