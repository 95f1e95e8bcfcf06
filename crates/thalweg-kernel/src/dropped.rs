//! Notes of dropped tables whose files have not been removed yet.

use crate::ids::{CommitNo, FileId};

#[derive(Debug, Default)]
pub(crate) struct Dropped {
    since_checkpoint: bool,
    awaits_cleaning: Option<CommitNo>,
    last_segment: Option<FileId>,
}

impl Dropped {
    /// An opening may have found files to remove.
    pub(crate) fn at_opening() -> Self {
        Self {
            awaits_cleaning: Some(CommitNo(0)),
            ..Self::default()
        }
    }

    /// A table goes with this commit; what it had lies in this segment or before.
    pub(crate) fn note(&mut self, commit: CommitNo, segment: FileId) {
        self.since_checkpoint = true;
        self.awaits_cleaning = Some(commit);
        self.last_segment = Some(segment);
    }

    /// A table was dropped since the last checkpoint: removing its files takes two.
    pub(crate) fn is_since_checkpoint(&self) -> bool {
        self.since_checkpoint
    }

    /// A checkpoint holds it, or a recovery has settled what becomes of it.
    pub(crate) fn is_settled(&mut self) {
        self.since_checkpoint = false;
    }

    /// Whether no round of cleaning has seen the last drop, or what an opening has found, and removed files.
    pub(crate) fn awaits_cleaning(&self) -> bool {
        self.awaits_cleaning.is_some()
    }

    /// A round that saw the state as of `commit` has removed files.
    pub(crate) fn was_cleaned(&mut self, commit: CommitNo) {
        self.awaits_cleaning.take_if(|last| *last <= commit);
    }

    /// The segment that was written to at the last drop since the opening.
    pub(crate) fn last_segment(&self) -> Option<FileId> {
        self.last_segment
    }
}
