//! Tables of all layouts against a plain list of rows: random appends in and out of order, snapshots, reopening, scans, aggregates.
//!
//! The oracle is the contract: a scan returns the rows sorted by the key of their layout, rows of equal keys in the order they came. The
//! number of sequences follows `THALWEG_SEQUENCES` (2,000 by default), each of up to 200 operations.
#![allow(clippy::panic, reason = "a failed history is told by a panic")]

mod common;

use common::operations::{Operation, operations, operations_with_deletes, operations_with_jobs};
use common::{Model, Order, Times, Trial, sequences};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn run(share: u32, order: Order, split: Option<&'static str>) {
    run_all(share, order, split, operations(200));
}

fn run_all(
    share: u32,
    order: Order,
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
            let mut trial = Trial::new(Model::new(order), seed, split);
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
fn a_table_by_time_is_its_rows_in_order() {
    run(2, Order::Time, None);
}

#[test]
fn a_table_by_arrival_is_its_rows_in_order() {
    run(4, Order::Arrival, None);
}

#[test]
fn a_table_by_hash_is_its_rows_in_order() {
    run(4, Order::Hash, None);
}

#[test]
fn a_table_with_many_jobs_is_its_rows_in_order() {
    run_all(8, Order::Time, None, operations_with_jobs(200));
}

#[test]
fn a_table_with_splits_and_many_jobs_is_its_rows_in_order() {
    run_all(16, Order::Time, Some("500"), operations_with_jobs(200));
}

#[test]
fn a_table_with_splits_is_its_rows_in_order() {
    run(4, Order::Time, Some("500"));
}

#[test]
fn a_table_with_deletions_is_the_rows_that_are_left() {
    run_all(4, Order::Time, None, operations_with_deletes(200));
}

#[test]
fn a_table_with_splits_and_deletions_is_the_rows_that_are_left() {
    run_all(8, Order::Time, Some("500"), operations_with_deletes(200));
}

#[test]
fn a_table_by_arrival_is_the_rows_that_are_left() {
    run_all(8, Order::Arrival, None, operations_with_deletes(200));
}

#[test]
fn a_table_by_hash_is_the_rows_that_are_left() {
    run_all(8, Order::Hash, None, operations_with_deletes(200));
}

/// Between two ranges that jobs merge lies one that they leave alone: an open row came before one of its blocks and has the same key.
/// The two were merged as one range, with what lay between them.
#[test]
fn jobs_leave_a_part_alone_that_lies_between_what_they_merge() {
    let append = |batches: &[u16], times| Operation::Append {
        batches: batches.to_vec(),
        times,
        disk: false,
    };
    let mut trial = Trial::new(Model::new(Order::Time), 7_682_824_358_345_782_788, None);
    for operation in [
        append(&[14, 3, 8], Times::Anywhere),
        append(&[11, 19, 156], Times::Rising),
        append(&[16], Times::Anywhere),
        Operation::Appender {
            rows: 69,
            times: Times::Rising,
        },
        append(&[10], Times::Rising),
        append(&[148, 14, 17], Times::Rising),
        append(&[7, 4, 5], Times::Rising),
        Operation::Put {
            rows: 4,
            times: Times::Rising,
        },
        append(&[100], Times::Rising),
        Operation::Jobs,
    ] {
        trial.run(&operation);
    }
    trial.check_all();
}
