//! Notes of dropped tables whose files have not been removed yet.

use crate::ids::{CommitNo, FileId};

#[derive(Debug, Default)]
pub(crate) struct Dropped {
    since_checkpoint: bool,
    keeps_waiting: bool,
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

    /// Notes that a drop found no room. Returns whether that is the first since the last checkpoint for which an
    /// earlier drop may be the reason: after that one there must be room for the checkpoints that remove its files.
    pub(crate) fn note_refusal(&mut self) -> bool {
        let is_first = self.since_checkpoint && !self.keeps_waiting;
        self.keeps_waiting = self.since_checkpoint;
        is_first
    }

    /// Whether a drop was refused that can go on once a checkpoint holds those before it: that one is written whatever it frees.
    pub(crate) fn keeps_waiting(&self) -> bool {
        self.keeps_waiting
    }

    /// A checkpoint holds it, or a recovery has settled its outcome.
    pub(crate) fn is_settled(&mut self) {
        self.since_checkpoint = false;
        self.keeps_waiting = false;
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
