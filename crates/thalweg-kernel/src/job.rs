//! The jobs that callers hand to the leader.

use crate::commit::{Commit, Edit, Producer};
use crate::ids::{CommitNo, TableId};
use crate::index::Entry;
use crate::limits::{MAX_CARRIED_BYTES, held_bytes};
use crate::masks::{CoveredRows, Covering, MaskEdit, MovedBlocks, TableMasks};
use crate::orders::ReplaceEdit;

/// A job of one caller.
#[derive(Debug)]
pub(crate) enum Job {
    Commit(Commit),
    /// One whose caller does not wait, and may hand in others before it knows the outcome.
    CommitLater(Commit),
    /// Blocks of rows that were copied come in the place of the old ones, with the masks that these have then.
    Move(Box<MoveJob>),
    /// Blocks of open rows come in their place, with the masks that these have then.
    Cover(Box<CoverJob>),
    /// Everything before it is synced.
    Flush,
    /// A checkpoint, if there is anything after the last one, or `always`.
    Checkpoint {
        always: bool,
    },
    /// A checkpoint after which files can go: on a full disk it may use the space that is kept for that.
    CheckpointToFree,
}

/// A commit that moves blocks of rows byte for byte.
#[derive(Debug)]
pub(crate) struct MoveJob {
    pub(crate) edit: ReplaceEdit,
    pub(crate) prepared_at: CommitNo,
    pub(crate) blocks: MovedBlocks,
    /// The fragment that they were copied into, if blocks of rows are among what is moved.
    pub(crate) root: Option<Entry>,
}

impl MoveJob {
    /// The commit, given the masks of the table: what is hidden of the blocks is carried.
    pub(crate) fn carried(mut self, masks: Option<&TableMasks>) -> Commit {
        let moved = self.root.as_ref().zip(masks);
        let item = moved.and_then(|(root, masks)| self.blocks.masks_of(root, masks));
        let table = self.edit.table;
        self.edit.carried = item.as_ref().map_or(0, |item| item.newly);
        let masks = item.map(|item| MaskEdit {
            table,
            items: vec![item],
            parts: Vec::new(),
        });
        Commit {
            edits: vec![Edit::Replace(self.edit)],
            masks: masks.into_iter().collect(),
            prepared_at: Some(self.prepared_at),
            ..Commit::default()
        }
    }
}

/// A commit that covers open rows, and where the rows of its blocks come from.
#[derive(Debug)]
pub(crate) struct CoverJob {
    pub(crate) commit: Commit,
    pub(crate) table: TableId,
    pub(crate) covered: CoveredRows,
    /// The blocks, in the order in which they were encoded, with their final keys.
    pub(crate) blocks: Vec<Entry>,
}

impl CoverJob {
    /// The commit, given the masks of the table: what is hidden of the rows by now is hidden in the blocks. Where that is much, it
    /// is not, so that the commit is refused, and the rows are encoded anew without what is hidden.
    pub(crate) fn carried(self, masks: Option<&TableMasks>) -> Commit {
        let Self {
            mut commit,
            table,
            covered,
            blocks,
        } = self;
        let root = commit.edits.iter().find_map(|edit| match edit {
            Edit::AddFragments { roots, .. } => roots.first(),
            _ => None,
        });
        let covering = match root {
            Some(root) => Covering::Fragment(root, &blocks),
            None => Covering::Blocks(&blocks),
        };
        let carried = masks.and_then(|masks| covered.masks_of(table, &covering, masks));
        let Some(carried) = carried.filter(|edit| edit.len_bytes() as u64 <= MAX_CARRIED_BYTES)
        else {
            return commit;
        };
        let of_edits = commit.edits.iter_mut().filter_map(|edit| match edit {
            Edit::AddFragments { head, .. } => Some(head),
            _ => None,
        });
        let of_groups = commit.groups.iter_mut().map(|group| &mut group.head);
        for head in of_edits.chain(of_groups) {
            if head.covers.is_some() {
                head.carried = carried.items.iter().map(|item| item.newly).sum();
            }
        }
        commit.masks.push(carried);
        commit
    }
}

/// The combined wants of the callers of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants {
    /// Somebody waits for a sync.
    pub(crate) sync: bool,
    /// Somebody drops a table, deletes a range, or is about to remove files.
    pub(crate) freed_space: bool,
}

impl Job {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Commit(commit) | Self::CommitLater(commit) => held_bytes(commit),
            Self::Cover(cover) => held_bytes(&cover.commit),
            Self::Move(_) | Self::Flush | Self::Checkpoint { .. } | Self::CheckpointToFree => 0,
        }
    }

    pub(crate) fn producer(&self) -> Option<Producer> {
        match self {
            Self::Commit(commit) | Self::CommitLater(commit) => commit.producer,
            _ => None,
        }
    }

    /// The producer of a commit whose caller does not wait. An empty one is refused, and has nothing that could be lost.
    pub(crate) fn later_producer(&self) -> Option<Producer> {
        match self {
            Self::CommitLater(commit) if !commit.is_empty() => commit.producer,
            _ => None,
        }
    }

    /// Somebody may ask for it to free space, or it comes before files are removed.
    pub(crate) fn frees_space(&self) -> bool {
        match self {
            Self::Commit(commit) | Self::CommitLater(commit) => commit.may_free_much(),
            Self::Move(_) | Self::Cover(_) => false,
            Self::CheckpointToFree => true,
            Self::Flush | Self::Checkpoint { .. } => false,
        }
    }
}
