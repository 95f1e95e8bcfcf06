//! Pieces of a table: rows that lie together, and where single rows are in them.
//!
//! Invariant: the rows of a piece keep their positions for as long as it is there, whatever is hidden of it.

use crate::deleted_rows::Block;
use thalweg_kernel::index::Place;
use thalweg_kernel::masks::BlockMask;
use thalweg_kernel::{CommitNo, OpenRows, TableSnapshot};

/// Rows that lie together.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Block {
        block: Block,
        place: Place,
        /// Rows of the item that it lies in.
        item_rows: u64,
    },
    Open(OpenRows),
}

/// Where a row is, whatever snapshot has led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowAt {
    /// In a block.
    Block { place: Place, position: u32 },
    /// Among the open rows of a commit.
    Open {
        commit: CommitNo,
        part: u32,
        position: u32,
    },
}

impl Piece {
    /// The piece with what a snapshot hides of it.
    pub(crate) fn of_snapshot(&self, table: &TableSnapshot) -> Self {
        match self {
            Self::Block {
                block,
                place,
                item_rows,
            } => Self::Block {
                block: Block::found(table, block.entry.clone(), Some(*place)),
                place: *place,
                item_rows: *item_rows,
            },
            open @ Self::Open(_) => open.clone(),
        }
    }

    /// Those of some rows, of which it gets the positions, ascending, that a snapshot does not hide.
    pub(crate) fn left_of(
        &self,
        table: &TableSnapshot,
        mut rows: Vec<(usize, u32)>,
    ) -> Vec<(usize, u32)> {
        let hidden = match self {
            Self::Block { block, .. } => match &block.mask {
                None => None,
                Some(BlockMask::Blocks { .. }) => return Vec::new(),
                Some(BlockMask::Rows(hidden)) => Some(hidden),
            },
            Self::Open(open) => table.hidden_in(open),
        };
        let Some(hidden) = hidden else {
            return rows;
        };
        let mut runs = hidden.runs().peekable();
        rows.retain(|(_, position)| {
            while runs.next_if(|run| run.end <= *position).is_some() {}
            runs.peek().is_none_or(|run| *position < run.start)
        });
        rows
    }
}

impl RowAt {
    /// The commit that its item or its part belongs to.
    pub(crate) fn commit(self) -> CommitNo {
        match self {
            Self::Block { place, .. } => place.item.key.commit,
            Self::Open { commit, .. } => commit,
        }
    }
}
