//! Streams against a plain list of rows: random appends in and out of order, snapshots, reopening, scans, aggregates.
//!
//! The oracle is the contract: a scan returns the rows sorted by time, rows of equal times in the order they came. The
//! number of sequences follows `THALWEG_SEQUENCES` (2,000 by default), each of up to 200 operations.
#![allow(clippy::panic, reason = "a failed history is told by a panic")]

mod common;

use common::{Model, Operation, Trial, operations, operations_with_deletes, sequences};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn run(share: u32, ordered: bool, split: Option<&'static str>) {
    run_all(share, ordered, split, operations(200));
}

fn run_all(
    share: u32,
    ordered: bool,
    split: Option<&'static str>,
    operations: impl Strategy<Value = Vec<Operation>>,
) {
    let config = Config {
        cases: (sequences() / share).max(1),
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let result = runner.run(
        &(any::<u64>(), operations),
        |(seed, operations): (u64, Vec<Operation>)| {
            let mut trial = Trial::new(Model::new(ordered), seed, split);
            for operation in &operations {
                trial.run(operation);
            }
            trial.check_all();
            Ok(())
        },
    );
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn a_stream_is_its_rows_in_order_of_time() {
    run(2, true, None);
}

#[test]
fn a_stream_with_splits_is_its_rows_in_order_of_time() {
    run(4, true, Some("500"));
}

#[test]
fn a_stream_without_time_is_its_rows_in_order_of_arrival() {
    run(4, false, None);
}

#[test]
fn a_stream_with_deletions_is_the_rows_that_are_left() {
    run_all(4, true, None, operations_with_deletes(200));
}

#[test]
fn a_stream_with_splits_and_deletions_is_the_rows_that_are_left() {
    run_all(8, true, Some("500"), operations_with_deletes(200));
}

#[test]
fn a_stream_without_time_is_the_rows_that_are_left() {
    run_all(8, false, None, operations_with_deletes(200));
}
