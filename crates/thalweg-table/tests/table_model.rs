//! Tables of all layouts against a plain list of rows: random appends in and out of order, snapshots, reopening, scans, aggregates.
//!
//! The oracle is the contract: a scan returns the rows sorted by the key of their layout, rows of equal keys in the order they came. The
//! number of sequences follows `THALWEG_SEQUENCES` (2,000 by default), each of up to 200 operations.
#![allow(clippy::panic, reason = "a failed history is told by a panic")]

mod common;

use common::{Model, Operation, Order, Trial, operations, operations_with_deletes, sequences};
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
