//! The rows that writers append, all of them known from thread and number, and what must be true of any view of them.

use std::sync::Arc;
use thalweg::arrow_array::cast::AsArray;
use thalweg::arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType, UInt64Type};
use thalweg::arrow_array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, TimestampMillisecondArray, UInt64Array,
};
use thalweg::arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use thalweg::{AggregateRequest, ScanRequest, TableView};

/// Threads that append at the same time.
pub(crate) const THREADS: usize = 4;

/// Batches of each thread that a view shows: always the first ones.
pub(crate) type Batches = [u64; THREADS];

pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(
            "ts",
            DataType::Timestamp(TimeUnit::Millisecond, None),
            false,
        ),
        Field::new("thread", DataType::Int32, false),
        Field::new("batch", DataType::Int64, false),
        Field::new("row", DataType::Int32, false),
        Field::new("noise", DataType::UInt64, false),
    ]))
}

/// Scrambles a number (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

fn noise(thread: usize, batch: u64, row: u64) -> u64 {
    mix(mix(thread as u64 + 1) ^ mix(batch + 1_000) ^ row)
}

/// How many rows a batch has: mostly few, sometimes enough for blocks in the log, and rarely for a file of its own.
pub(crate) fn rows_of(thread: usize, batch: u64, largest: u64) -> u64 {
    let draw = noise(thread, batch, u64::MAX);
    let rows = match draw % 400 {
        0 => 500_000,
        1..12 => 20_000,
        12..100 => 700,
        100..200 => 20,
        _ => 1,
    };
    u64::min(rows, largest)
}

/// Mostly in order, with late and equal times among them.
fn time(thread: usize, batch: u64, row: u64) -> i64 {
    let late = if noise(thread, batch, row).is_multiple_of(50) {
        40_000
    } else {
        0
    };
    i64::try_from(batch * 1_000 + row / 3).unwrap() - late
}

pub(crate) fn batch(thread: usize, batch: u64, rows: u64) -> RecordBatch {
    let repeat = |value: u64| {
        std::iter::repeat_n(
            i64::try_from(value).unwrap(),
            usize::try_from(rows).unwrap(),
        )
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from_iter_values(
            (0..rows).map(|row| time(thread, batch, row)),
        )),
        Arc::new(Int32Array::from_iter_values(
            repeat(thread as u64).map(|thread| i32::try_from(thread).unwrap()),
        )),
        Arc::new(Int64Array::from_iter_values(repeat(batch))),
        Arc::new(Int32Array::from_iter_values(
            (0..rows).map(|row| i32::try_from(row).unwrap()),
        )),
        Arc::new(UInt64Array::from_iter_values(
            (0..rows).map(|row| noise(thread, batch, row)),
        )),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// What is there of one batch. The sum of scrambled values tells a row that is there twice from one that is missing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Found {
    rows: u64,
    sum: u64,
}

/// Reads all rows of a view and checks that they are the first batches of each thread, whole, once, in order of time, and
/// that counts and sums from the index agree. Returns how many batches of each thread there are.
pub(crate) fn check(view: &TableView, largest: u64) -> Result<Batches, String> {
    let mut found: [Vec<Found>; THREADS] = Default::default();
    let (mut last_time, mut rows, mut row_sum) = (i64::MIN, 0, 0_i128);
    for scanned in view.scan(&ScanRequest::default()).map_err(text)? {
        let scanned = scanned.map_err(text)?;
        let times = scanned
            .column(0)
            .as_primitive::<TimestampMillisecondType>()
            .values();
        let threads = scanned.column(1).as_primitive::<Int32Type>().values();
        let batches = scanned.column(2).as_primitive::<Int64Type>().values();
        let numbers = scanned.column(3).as_primitive::<Int32Type>().values();
        let noises = scanned.column(4).as_primitive::<UInt64Type>().values();
        for at in 0..scanned.num_rows() {
            let (thread, batch) = (
                usize::try_from(threads[at]).unwrap(),
                u64::try_from(batches[at]).unwrap(),
            );
            let row = u64::try_from(numbers[at]).unwrap();
            if (times[at], noises[at]) != (time(thread, batch, row), noise(thread, batch, row)) {
                return Err(format!(
                    "row {row} of batch {batch} of thread {thread} has other values"
                ));
            }
            if times[at] < last_time {
                return Err(format!("time {} comes after {last_time}", times[at]));
            }
            last_time = times[at];
            let of_thread = &mut found[thread];
            let place = usize::try_from(batch).unwrap();
            if of_thread.len() <= place {
                of_thread.resize(place + 1, Found::default());
            }
            of_thread[place].rows += 1;
            of_thread[place].sum = of_thread[place].sum.wrapping_add(mix(row));
            row_sum += i128::from(row);
        }
        rows += scanned.num_rows() as u64;
    }
    for (thread, batches) in found.iter().enumerate() {
        for (batch, found) in (0..).zip(batches) {
            let wanted = rows_of(thread, batch, largest);
            let sum = (0..wanted).fold(0_u64, |sum, row| sum.wrapping_add(mix(row)));
            if *found != (Found { rows: wanted, sum }) {
                let last = batches.len() - 1;
                return Err(format!(
                    "batch {batch} (of 0 to {last}) of thread {thread} has {} rows instead of {wanted}",
                    found.rows
                ));
            }
        }
    }
    check_index(view, rows, row_sum)?;
    Ok(std::array::from_fn(|thread| found[thread].len() as u64))
}

fn check_index(view: &TableView, rows: u64, row_sum: i128) -> Result<(), String> {
    let answer = view
        .aggregate(&AggregateRequest {
            columns: vec![3],
            ..AggregateRequest::default()
        })
        .map_err(text)?;
    let group = &answer.groups[0];
    let summed = group.columns[0].int_sum().unwrap_or_default();
    if (view.row_count(), group.rows, summed) != (rows, rows, row_sum) {
        return Err(format!(
            "{rows} rows with sum {row_sum}, but the index counts {}, the aggregate {} with sum {summed}",
            view.row_count(),
            group.rows
        ));
    }
    Ok(())
}

pub(crate) fn text(error: thalweg::Error) -> String {
    format!("{error:?}")
}

/// The first difference from `at least` to what is there.
pub(crate) fn missing(there: &Batches, at_least: &Batches) -> Option<String> {
    (0..THREADS)
        .find(|&thread| there[thread] < at_least[thread])
        .map(|thread| {
            format!(
                "thread {thread}: {} batches must be there, {} are",
                at_least[thread], there[thread]
            )
        })
}

/// The first value of a column of integers or times.
pub(crate) fn int(batch: &RecordBatch, column: usize) -> thalweg::Value<'static> {
    let array = batch.column(column);
    thalweg::Value::Int(match array.data_type() {
        DataType::Int32 => array.as_primitive::<Int32Type>().value(0).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(0),
        _ => array.as_primitive::<TimestampMillisecondType>().value(0),
    })
}

/// The first noise.
pub(crate) fn unsigned(batch: &RecordBatch) -> u64 {
    batch.column(4).as_primitive::<UInt64Type>().value(0)
}
