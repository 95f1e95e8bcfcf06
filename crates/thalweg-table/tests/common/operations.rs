//! Random operations on a table and its model.

use super::Times;
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Append {
        batches: Vec<u16>,
        times: Times,
        disk: bool,
    },
    Put {
        rows: u8,
        times: Times,
    },
    Appender {
        rows: u8,
        times: Times,
    },
    Flush,
    Checkpoint,
    Maintain,
    Jobs,
    Reopen,
    Keep,
    CheckKept,
    Scan {
        from: u8,
        to: u8,
        limit: Option<u16>,
        batch_rows: u16,
        projection: u8,
    },
    Partitions {
        count: u8,
    },
    Aggregate {
        from: u8,
        to: u8,
        width: Option<u16>,
        columns: u8,
    },
    /// A scan that leaves out blocks and pages without numbers between these.
    Pruned {
        from: u8,
        to: u8,
    },
    /// Of the rows with times between these, one in so many; whole blocks as such or not.
    Delete {
        from: u8,
        to: u8,
        one_in: u8,
        whole: bool,
    },
    /// The same rows, picked from a scan with their places.
    DeletePicked {
        from: u8,
        to: u8,
        one_in: u8,
    },
    /// Such rows are picked and as many others are stored, in one commit.
    Edit {
        from: u8,
        to: u8,
        one_in: u8,
        times: Times,
    },
    /// All rows with times between these.
    DeleteRange {
        from: u8,
        to: u8,
    },
    Addresses,
}

fn times() -> impl Strategy<Value = Times> {
    prop_oneof![
        6 => Just(Times::Rising),
        1 => Just(Times::Equal),
        2 => Just(Times::Late),
        1 => Just(Times::Anywhere),
        1 => Just(Times::Future),
    ]
}

pub(crate) fn operations(most: usize) -> impl Strategy<Value = Vec<Operation>> {
    let size = prop_oneof![3 => 0_u16..20, 1 => 100_u16..400];
    let operation = prop_oneof![
        12 => (prop::collection::vec(size, 1..4), times(), any::<bool>())
            .prop_map(|(batches, times, disk)| Operation::Append { batches, times, disk }),
        6 => (1_u8..8, times()).prop_map(|(rows, times)| Operation::Put { rows, times }),
        2 => (1_u8..200, times()).prop_map(|(rows, times)| Operation::Appender { rows, times }),
        1 => Just(Operation::Flush),
        1 => Just(Operation::Checkpoint),
        1 => Just(Operation::Maintain),
        1 => Just(Operation::Jobs),
        1 => Just(Operation::Reopen),
        1 => Just(Operation::Keep),
        1 => Just(Operation::CheckKept),
        8 => (any::<u8>(), any::<u8>(), prop::option::of(0_u16..300), 1_u16..200, any::<u8>()).prop_map(
            |(from, to, limit, batch_rows, projection)| Operation::Scan { from, to, limit, batch_rows, projection }
        ),
        1 => (1_u8..6).prop_map(|count| Operation::Partitions { count }),
        6 => (any::<u8>(), any::<u8>(), prop::option::of(1_u16..2_000), any::<u8>())
            .prop_map(|(from, to, width, columns)| Operation::Aggregate { from, to, width, columns }),
    ];
    prop::collection::vec(operation, 1..most)
}

/// Appends, and jobs after every few of them: what the jobs find differs more than between many scans.
pub(crate) fn operations_with_jobs(most: usize) -> impl Strategy<Value = Vec<Operation>> {
    let writes = |operation: &Operation| {
        !matches!(
            operation,
            Operation::Scan { .. }
                | Operation::Aggregate { .. }
                | Operation::Partitions { .. }
                | Operation::Keep
                | Operation::CheckKept
        )
    };
    operations(most).prop_map(move |mut operations| {
        operations.retain(writes);
        let chunks = operations.chunks(3);
        { chunks.flat_map(|chunk| chunk.iter().cloned().chain([Operation::Jobs])) }.collect()
    })
}

/// All operations, and rows that are deleted.
pub(crate) fn operations_with_deletes(most: usize) -> impl Strategy<Value = Vec<Operation>> {
    let more = prop_oneof![
        4 => (any::<u8>(), any::<u8>(), 1_u8..6, any::<bool>())
            .prop_map(|(from, to, one_in, whole)| Operation::Delete { from, to, one_in, whole }),
        4 => (any::<u8>(), any::<u8>(), 1_u8..6)
            .prop_map(|(from, to, one_in)| Operation::DeletePicked { from, to, one_in }),
        4 => (any::<u8>(), any::<u8>(), 1_u8..6, times())
            .prop_map(|(from, to, one_in, times)| Operation::Edit { from, to, one_in, times }),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(from, to)| Operation::DeleteRange { from, to }),
        1 => Just(Operation::Maintain),
        1 => Just(Operation::Jobs),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(from, to)| Operation::Pruned { from, to }),
        1 => Just(Operation::Addresses),
    ];
    // One in turn of each, in pieces.
    let both = (operations(6), prop::collection::vec(more, 0..4));
    let both = both.prop_map(|(some, more)| [some, more].concat());
    prop::collection::vec(both, 1..most / 5).prop_map(|pieces| pieces.concat())
}
