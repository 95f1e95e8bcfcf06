//! Rows that are deleted and changed while others write: each is deleted once or is there, no change is lost, and no call loses its
//! races for ever.
#![allow(clippy::unwrap_used, reason = "tests")]

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_table::{
    AddedKeys, AppendLimits, CreateOptions, Durability, Engine, EngineOptions, ErrorKind, KeyRange,
    PickedRows, PlacedRows, RowsToDelete, ScanRequest, Table, Value,
};

const PROCESS: Option<Durability> = Some(Durability::Process);

fn table() -> Table {
    table_of("4096")
}

fn table_of(block_rows: &str) -> Table {
    let append_limits = AppendLimits {
        raw_bytes: 2_000,
        gather_bytes: 16_000,
        group_bytes: 6_000,
        fragment_bytes: 8_000,
        split_fragment_bytes: 2_000,
    };
    let options = EngineOptions {
        append_limits,
        ..EngineOptions::default()
    };
    let engine = Engine::in_memory(options).unwrap();
    let schema = Schema::new(vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("number", DataType::Int64, false),
    ]);
    let options = CreateOptions::stream("ts").with("block_rows", block_rows);
    engine.create_table("t", &schema, &options).unwrap()
}

fn batch(table: &Table, times: impl Iterator<Item = i64> + Clone) -> RecordBatch {
    // Their products do not repeat, so that blocks are not short.
    let numbers = times
        .clone()
        .map(|time| time.wrapping_mul(0x1e37_79b9_7f4a_7c15));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(times)),
        Arc::new(Int64Array::from_iter_values(numbers)),
    ];
    RecordBatch::try_new(table.schema(), columns).unwrap()
}

/// Of the rows with these keys those with times that three divides.
fn pick(table: &Table, keys: KeyRange) -> thalweg_table::Result<RowsToDelete> {
    let request = ScanRequest {
        projection: Some(vec![0]),
        keys,
        ..ScanRequest::default()
    };
    let rows = Arc::new(PlacedRows::new(&table.view()?, &request)?);
    let mut picked = PickedRows::default();
    let reader = rows.reader()?;
    for piece in 0..rows.pieces() {
        for (batch, places) in reader.read(piece)? {
            let times = batch.column(0).as_primitive::<Int64Type>().values().iter();
            for (time, place) in times.zip(places.values()) {
                if keys.contains(*time) && time % 3 == 0 {
                    picked.add(&[*place]);
                }
            }
        }
    }
    drop(reader);
    Ok(RowsToDelete::Picked(rows, picked))
}

#[test]
fn rows_are_deleted_once_while_others_append_and_maintain() {
    let table = table();
    let (appended, deleted) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0_i64..400 {
                // In order, late, and one by one.
                let first = if round % 3 == 0 {
                    round * 10
                } else {
                    round * 3 % 500
                };
                let rows = if round % 7 == 0 { 400 } else { 50 };
                let batch = batch(&table, first..first + rows);
                appended.fetch_add(
                    table.append([Ok(batch)], PROCESS).unwrap(),
                    Ordering::Relaxed,
                );
                let row = [Value::Int(round % 400), Value::Int(round)];
                table.put(&row, PROCESS).unwrap();
                appended.fetch_add(1, Ordering::Relaxed);
            }
            is_done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                table.maintain().unwrap();
            }
        });
        let (table, deleted, is_done) = (&table, &deleted, &is_done);
        let delete = move |seed: i64| {
            for round in 0.. {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                let first = (round * 37 + seed) % 700;
                let keys = KeyRange {
                    first,
                    last: first + round % 60 * 5,
                };
                // Another one may have hidden rows of the same blocks again and again.
                let done = match round % 2 == 0 {
                    true => table.delete_range(keys, PROCESS),
                    false => table.delete_picked(PROCESS, &mut || pick(table, keys)),
                };
                match done {
                    Ok(rows) => _ = deleted.fetch_add(rows, Ordering::Relaxed),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                }
            }
        };
        let other = scope.spawn(move || delete(11));
        delete(300);
        other.join().unwrap();
    });
    let left = table.view().unwrap().row_count();
    let deleted = deleted.into_inner();
    assert_eq!(left + deleted, appended.into_inner());
    // Alone, nothing refuses it.
    assert_eq!(table.delete_range(KeyRange::ALL, PROCESS).unwrap(), left);
    assert_eq!(table.delete_range(KeyRange::ALL, PROCESS).unwrap(), 0);
    assert_eq!(table.delete_range(KeyRange::EMPTY, PROCESS).unwrap(), 0);
    assert_eq!(table.stats().unwrap().rows, 0);
}

/// Adds one to the numbers of all rows with a time. It takes their numbers from the same snapshot as their places.
fn count_up(table: &Table, time: i64) -> thalweg_table::Result<u64> {
    let keys = KeyRange::from(time..=time);
    table.edit_rows(PROCESS, AddedKeys::Any, &mut |stored| {
        let request = ScanRequest {
            keys,
            ..ScanRequest::default()
        };
        let rows = Arc::new(PlacedRows::new(&table.view()?, &request)?);
        let mut picked = PickedRows::default();
        let reader = rows.reader()?;
        for piece in 0..rows.pieces() {
            for (batch, places) in reader.read(piece)? {
                for (row, place) in places.values().iter().enumerate() {
                    let times = batch.column(0).as_primitive::<Int64Type>();
                    if times.value(row) != time {
                        continue;
                    }
                    let number = batch.column(1).as_primitive::<Int64Type>().value(row);
                    picked.add(&[*place]);
                    let number: ArrayRef = Arc::new(Int64Array::from(vec![number + 1]));
                    let columns = vec![batch.column(0).slice(row, 1), number];
                    stored.push(&RecordBatch::try_new(table.schema(), columns).unwrap())?;
                }
            }
        }
        assert!(!picked.repeats());
        Ok(RowsToDelete::Picked(rows, picked))
    })
}

#[test]
fn no_change_of_a_row_is_lost_while_others_change_it_and_maintain() {
    const TIMES: i64 = 7;
    let table = table();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(0..TIMES)),
        Arc::new(Int64Array::from_iter_values((0..TIMES).map(|_| 0))),
    ];
    let rows = RecordBatch::try_new(table.schema(), columns).unwrap();
    table.append([Ok(rows)], PROCESS).unwrap();
    let (changes, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for first in (1_000..).step_by(300) {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                table
                    .append([Ok(batch(&table, first..first + 300))], PROCESS)
                    .unwrap();
                table.maintain().unwrap();
            }
        });
        let (table, changes) = (&table, &changes);
        let count = move |seed: i64| {
            for round in 0..300 {
                // A change that gave up has changed nothing.
                match count_up(table, (round + seed) % TIMES) {
                    Ok(rows) => _ = changes.fetch_add(rows, Ordering::Relaxed),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                }
            }
        };
        let other = scope.spawn(move || count(0));
        count(3);
        other.join().unwrap();
        is_done.store(true, Ordering::Relaxed);
    });
    let request = ScanRequest {
        keys: KeyRange {
            first: 0,
            last: TIMES - 1,
        },
        ..ScanRequest::default()
    };
    let (mut rows, mut sum) = (0, 0);
    for batch in table.view().unwrap().scan(&request).unwrap() {
        let batch = batch.unwrap();
        rows += batch.num_rows();
        sum += batch
            .column(1)
            .as_primitive::<Int64Type>()
            .values()
            .iter()
            .sum::<i64>();
    }
    assert_eq!(rows, usize::try_from(TIMES).unwrap());
    assert_eq!(u64::try_from(sum).unwrap(), changes.into_inner());
    assert!(sum > 300, "{sum} changes");
}

#[test]
fn blocks_are_merged_while_rows_of_others_are_deleted() {
    let table = table();
    for round in 0_i64..400 {
        // Each batch lies over all keys.
        let times = (0..400).map(move |n| n * 1_000 + round);
        table.append([Ok(batch(&table, times))], PROCESS).unwrap();
    }
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for first in (1_000_000_000_i64..).step_by(400) {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                let rows = batch(&table, first..first + 400);
                table.append([Ok(rows)], PROCESS).unwrap();
                let last = first + 399;
                let deleted = table.delete_range(KeyRange { first, last }, PROCESS);
                assert_eq!(deleted.unwrap(), 400);
            }
        });
        let maintained = (0..3).try_for_each(|_| table.maintain().map(|_| ()));
        is_done.store(true, Ordering::Relaxed);
        maintained.unwrap();
    });
}

#[test]
fn blocks_are_merged_while_rows_of_just_these_are_deleted() {
    let table = table();
    for round in 0_i64..200 {
        let times = (0..400).map(move |n| n * 1_000 + round);
        table.append([Ok(batch(&table, times))], PROCESS).unwrap();
    }
    let (is_done, deleted) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for time in (0..400_i64).cycle().map(|n| n * 1_000).zip(0..) {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                // One row of each batch after the other, from all over the table.
                let first = time.0 + time.1 / 400;
                let rows = table.delete_range(KeyRange { first, last: first }, PROCESS);
                deleted.fetch_add(rows.unwrap(), Ordering::Relaxed);
            }
        });
        let maintained = table.maintain();
        is_done.store(true, Ordering::Relaxed);
        maintained.unwrap();
    });
    let left = table.view().unwrap().row_count();
    assert_eq!(left + deleted.into_inner(), 200 * 400);
}

#[test]
fn rows_that_are_deleted_while_they_become_blocks_stay_deleted() {
    const ROWS: i64 = 6_000;
    let table = table();
    let time = |number: i64| number * 1_237 % ROWS;
    let (appended, is_done) = (AtomicI64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Each time once, out of order, in commits of a few rows.
            for first in (0..ROWS).step_by(12) {
                let rows = batch(&table, (first..first + 12).map(time));
                table.append([Ok(rows)], PROCESS).unwrap();
                appended.store(first + 12, Ordering::Release);
            }
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                table.maintain().unwrap();
            }
        });
        // One of four rows, those that have just come.
        let deleted = (0..ROWS).step_by(4).try_for_each(|number| {
            while appended.load(Ordering::Acquire) <= number {
                std::thread::yield_now();
            }
            let (first, last) = (time(number), time(number));
            let rows = table.delete_range(KeyRange { first, last }, PROCESS)?;
            assert_eq!(rows, 1);
            Ok::<(), thalweg_table::Error>(())
        });
        is_done.store(true, Ordering::Relaxed);
        deleted.unwrap();
    });
    let mut left: Vec<i64> = Vec::new();
    for rows in table.view().unwrap().scan(&ScanRequest::default()).unwrap() {
        let rows = rows.unwrap();
        let times = rows.column(0).as_primitive::<Int64Type>();
        left.extend(times.values().iter());
    }
    let kept = (0..ROWS).filter(|number| number % 4 != 0);
    let mut want: Vec<i64> = kept.map(time).collect();
    want.sort_unstable();
    assert_eq!(left, want);
}

/// In a file that reaches out of the range, in one that lies in it, and among open rows.
#[test]
fn a_range_counts_the_rows_that_are_left_of_it() {
    let table = table_of("64");
    for (first, rows) in [(0, 3_000), (3_000, 3_000), (6_000, 40), (6_040, 40)] {
        let rows = batch(&table, first..first + rows);
        table.append([Ok(rows)], PROCESS).unwrap();
    }
    let picked = table.delete_picked(PROCESS, &mut || pick(&table, KeyRange::from(0..=6_050)));
    assert_eq!(picked.unwrap(), 2_017);
    let mut left = 6_080 - 2_017;
    // Two thirds of what the masks have left alone, and all from 6,051 on.
    for (first, last, rows) in [
        (1_000, 1_999, 667),
        (2_100, 5_999, 2_600),
        (6_000, 6_060, 34 + 10),
    ] {
        let keys = KeyRange { first, last };
        assert_eq!(table.delete_range(keys, PROCESS).unwrap(), rows);
        left -= rows;
        assert_eq!(table.view().unwrap().row_count(), left);
        assert_eq!(table.delete_range(keys, PROCESS).unwrap(), 0);
    }
    let mut kept = Vec::new();
    for rows in table.view().unwrap().scan(&ScanRequest::default()).unwrap() {
        let rows = rows.unwrap();
        kept.extend_from_slice(rows.column(0).as_primitive::<Int64Type>().values());
    }
    let is_kept = |time: &i64| match time {
        0..1_000 | 2_000..2_100 => time % 3 > 0,
        6_061.. => true,
        _ => false,
    };
    assert!(kept.into_iter().eq((0..6_080).filter(is_kept)));
}

/// Else each checkpoint would have them until they make a block.
#[test]
fn open_rows_that_are_all_deleted_take_no_room_any_more() {
    let table = table();
    // Each batch is raw rows of a commit.
    for first in (0..6_000).step_by(100) {
        table
            .append([Ok(batch(&table, first..first + 100))], PROCESS)
            .unwrap();
    }
    let open = || {
        let view = table.view().unwrap();
        let rows = view
            .snapshot()
            .open_rows()
            .map(|open| u64::from(open.part.rows));
        rows.collect::<Vec<_>>()
    };
    let before = open();
    let rows: u64 = before.iter().sum();
    assert!(rows > 2_000, "{before:?}");
    let first = 6_000 - rows.cast_signed();
    // All but one of the newest hundred.
    let deleted = table.delete_range(KeyRange::from(first..=5_998), PROCESS);
    assert_eq!(deleted.unwrap(), rows - 1);
    assert_eq!(open(), [100]);
    assert_eq!(table.view().unwrap().row_count(), 6_000 - (rows - 1));
    let deleted = table.delete_range(KeyRange::ALL, PROCESS);
    assert_eq!(deleted.unwrap(), 6_000 - (rows - 1));
    assert_eq!(table.view().unwrap().row_count(), 0);
}

/// Whoever is told that nothing is left to delete relies on it, whatever level the deletion before had.
#[test]
fn a_durable_deletion_that_finds_nothing_makes_those_before_it_durable() {
    let options = || EngineOptions {
        background: false,
        ..EngineOptions::default()
    };
    let sim = SimEnv::new(1);
    let engine = Engine::open(sim.env(), Path::new("/db"), options()).unwrap();
    let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
    let table = engine
        .create_table("t", &schema, &CreateOptions::stream("ts"))
        .unwrap();
    for key in 0..10 {
        table
            .put(&[Value::Int(key)], Some(Durability::Disk))
            .unwrap();
    }
    let keys = KeyRange { first: 0, last: 4 };
    assert_eq!(table.delete_range(keys, PROCESS).unwrap(), 5);
    assert_eq!(table.delete_range(keys, Some(Durability::Disk)).unwrap(), 0);
    let image = sim.crash_image(&CrashChoice::DropAll);
    let engine = Engine::open(image.env(), Path::new("/db"), options()).unwrap();
    let view = engine.table("t").unwrap().view().unwrap();
    assert_eq!(view.row_count(), 5);
}
