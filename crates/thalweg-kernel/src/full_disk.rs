//! Bounds how often the leader looks for space on a full disk: callers may try again and again.

use crate::ids::CommitNo;

/// How soon space is looked for again on a full disk where nothing changes.
const SEEK_SPACE_AGAIN_NS: u64 = 10_000_000_000;

#[derive(Debug, Default)]
pub(crate) struct FullDisk {
    ended_writing: bool,
    sought: Option<(CommitNo, u64)>,
    checkpoint_refused_ns: Option<u64>,
}

impl FullDisk {
    /// A write or a sync has failed for want of space.
    pub(crate) fn note_end(&mut self) {
        self.ended_writing = true;
    }

    /// Whether writing has ended for want of space before: space is made sure of before anything is written to it.
    pub(crate) fn ended_writing(&self) -> bool {
        self.ended_writing
    }

    /// Whether to look for space after a commit found none: once as long as nothing else changes, but it may come back by
    /// itself, for what a round before had no room.
    pub(crate) fn should_seek(&mut self, commit: CommitNo, now_ns: u64) -> bool {
        let is_news = self.sought.is_none_or(|(at, at_ns)| {
            at != commit || now_ns.saturating_sub(at_ns) >= SEEK_SPACE_AGAIN_NS
        });
        if is_news {
            self.sought = Some((commit, now_ns));
        }
        is_news
    }

    /// How the last checkpoint ended.
    pub(crate) fn note_checkpoint(&mut self, is_refused: bool, now_ns: u64) {
        self.checkpoint_refused_ns = is_refused.then_some(now_ns);
    }

    /// Whether it was refused a moment ago: how large it is is known only once it is built.
    pub(crate) fn refused_checkpoint_lately(&self, now_ns: u64) -> bool {
        self.checkpoint_refused_ns
            .is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < SEEK_SPACE_AGAIN_NS)
    }
}
