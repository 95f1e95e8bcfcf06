//! When rows came.
//!
//! Invariant: rows of equal keys are in the order of their arrival, in blocks, among open rows and across both.

use thalweg_kernel::CommitNo;
use thalweg_kernel::index::Entry;

/// When rows came, compared with other rows of their table: the commit, then the place in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Arrival {
    pub(crate) commit: CommitNo,
    pub(crate) ordinal: u32,
}

/// When the rows of a block came.
pub(crate) fn arrival(entry: &Entry) -> Arrival {
    Arrival {
        commit: entry.first_commit,
        ordinal: entry.ordinal,
    }
}
