//! The arrival of rows: the order in which they were committed.
//!
//! Invariant: rows of equal keys are in the order of their arrival, in blocks, among open rows and across both.

use thalweg_kernel::CommitNo;
use thalweg_kernel::index::Entry;

/// The arrival of rows, to be compared with that of other rows of their table: by commit, then by place in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Arrival {
    pub(crate) commit: CommitNo,
    pub(crate) ordinal: u32,
}

/// The arrival of the rows of a block.
pub(crate) fn arrival(entry: &Entry) -> Arrival {
    Arrival {
        commit: entry.first_commit,
        ordinal: entry.ordinal,
    }
}
