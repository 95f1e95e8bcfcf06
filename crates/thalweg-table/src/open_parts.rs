//! The rows of a table that are in no block yet, as a reader gets them: from a snapshot, or out of a task of another process.
//!
//! Invariants: parts come in the order of their commits, and each says which of its rows are hidden.

use std::sync::Arc;
use thalweg_kernel::masks::Positions;
use thalweg_kernel::{OpenRows, TableSnapshot};

/// The open rows of one commit, and which of them are hidden.
#[derive(Clone, Debug)]
pub(crate) struct OpenPart {
    pub(crate) rows: OpenRows,
    pub(crate) hidden: Option<Positions>,
}

/// Where a reader finds open rows.
#[derive(Clone, Debug)]
pub(crate) enum OpenParts {
    /// In a snapshot, which keeps the files of its blocks as well.
    Snapshot(TableSnapshot),
    /// In a task. Its maker keeps the files, by this snapshot if that is this process.
    Task(Arc<[OpenPart]>, Option<TableSnapshot>),
}

impl OpenParts {
    /// The parts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&OpenRows, Option<&Positions>)> {
        let (table, parts) = match self {
            Self::Snapshot(table) => (Some(table), None),
            Self::Task(parts, _) => (None, Some(parts)),
        };
        let of_snapshot = table
            .into_iter()
            .flat_map(|table| table.open_rows().map(|open| (open, table.hidden_in(open))));
        let of_task = parts
            .into_iter()
            .flat_map(|parts| parts.iter().map(|part| (&part.rows, part.hidden.as_ref())));
        of_snapshot.chain(of_task)
    }
}
