//! Short blocks become full ones, also where rows are so long that few of them fill a block.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use thalweg_env::sim::SimEnv;
use thalweg_kernel::index::{Entry, Step};
use thalweg_table::{
    AppendLimits, CreateOptions, Engine, EngineOptions, ErrorKind, Maintained, ScanRequest, Table,
};

fn open(sim: &SimEnv) -> Engine {
    let options = EngineOptions {
        background: false,
        threads: 1,
        ..EngineOptions::default()
    };
    Engine::open(sim.env(), Path::new("/db"), options).unwrap()
}

fn create(engine: &Engine, time: Option<&str>, more: Vec<Field>) -> Table {
    let first = ["ts", "number"].map(|name| Field::new(name, DataType::Int64, false));
    let fields: Vec<Field> = first.into_iter().chain(more).collect();
    let options = time.map_or_else(CreateOptions::default, CreateOptions::stream);
    let schema = Schema::new(fields);
    engine.create_table("t", &schema, &options).unwrap()
}

/// A table of rows with one text each.
fn with_texts(engine: &Engine, time: Option<&str>) -> Table {
    let text = Field::new("text", DataType::Utf8, false);
    create(engine, time, vec![text])
}

/// Appends rows of these times and numbers with the same text of 1 MiB: their block takes not much more than one of them.
fn append_texts(table: &Table, rows: &[(i64, i64)]) {
    let text = "a".repeat(1 << 20);
    let texts = StringArray::from_iter_values(rows.iter().map(|_| &text));
    append(table, rows, &[Arc::new(texts)]);
}

/// A table of rows with so many values, most of which are equal.
fn with_values(engine: &Engine, time: Option<&str>, columns: usize) -> Table {
    let value = |place| Field::new(format!("c{place}"), DataType::Float64, false);
    create(engine, time, (0..columns).map(value).collect())
}

fn append_values(table: &Table, rows: &[(i64, i64)]) {
    let steps = rows
        .iter()
        .map(|(_, number)| f64::from(u32::try_from(number / 64).unwrap()));
    let values: ArrayRef = Arc::new(Float64Array::from_iter_values(steps));
    let columns = table.schema().fields().len() - 2;
    append(table, rows, &vec![values; columns]);
}

fn append(table: &Table, rows: &[(i64, i64)], more: &[ArrayRef]) {
    let times = Int64Array::from_iter_values(rows.iter().map(|(time, _)| *time));
    let numbers = Int64Array::from_iter_values(rows.iter().map(|(_, number)| *number));
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(numbers)];
    arrays.extend_from_slice(more);
    let batch = RecordBatch::try_new(table.schema(), arrays).unwrap();
    table.append([Ok(batch)], None).unwrap();
}

fn numbers(table: &Table) -> Vec<i64> {
    let request = ScanRequest {
        projection: Some(vec![1]),
        ..ScanRequest::default()
    };
    let scan = table.view().unwrap().scan(&request).unwrap();
    let values = |batch: RecordBatch| {
        batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    scan.flat_map(|batch| values(batch.unwrap())).collect()
}

fn blocks(table: &Table) -> Vec<Entry> {
    let view = table.view().unwrap();
    let store = Arc::clone(view.engine().kernel().store());
    let mut walk = view.snapshot().tree.walk(None, store);
    let mut blocks = Vec::new();
    while let Some(block) = walk.next(|_| Step::Descend).unwrap() {
        blocks.push(block);
    }
    blocks
}

/// Nothing is left to do, neither in this database nor after it was opened again.
fn assert_at_rest(engine: Engine, sim: &SimEnv) {
    let table = engine.table("t").unwrap();
    assert_eq!(table.maintain().unwrap(), Maintained::default());
    engine.close().unwrap();
    let table = open(sim).table("t").unwrap();
    assert_eq!(table.maintain().unwrap(), Maintained::default());
}

#[test]
fn short_blocks_of_long_texts_become_as_full_as_blocks_may_be() {
    // Rows with times of their own, in pairs, and all with one key: those of one key are never cut in two.
    for (time, rows_per_time) in [
        (Some("ts"), 1),
        (Some("ts"), 2),
        (Some("ts"), 1_000),
        (None, 1),
    ] {
        let sim = SimEnv::new(1);
        let engine = open(&sim);
        let table = with_texts(&engine, time);
        for part in 0..12 {
            let rows: Vec<_> = (part * 8..part * 8 + 8)
                .map(|n| (n / rows_per_time, n))
                .collect();
            append_texts(&table, &rows);
        }
        assert_eq!(table.stats().unwrap().blocks, 12);
        let done = table.maintain().unwrap();
        // Four with the next eight rows would be more than 32 MiB.
        let rows: Vec<u64> = blocks(&table).iter().map(|block| block.rows).collect();
        assert_eq!(rows, [24; 4], "{time:?}, {rows_per_time}: {done:?}");
        assert_eq!(done.rows, 96);
        assert_eq!(numbers(&table), (0..96).collect::<Vec<_>>());
        assert_at_rest(engine, &sim);
    }
}

/// Columns that take next to nothing, in so many pages that a block has no room for their checksums.
#[test]
fn short_blocks_are_packed_up_to_the_pages_of_a_block() {
    let sim = SimEnv::new(1);
    let engine = open(&sim);
    let flag = |place| Field::new(format!("c{place}"), DataType::Boolean, true);
    let first = ["ts", "number"].map(|name| Field::new(name, DataType::Int64, false));
    let fields: Vec<Field> = first.into_iter().chain((0..2_700).map(flag)).collect();
    let options = CreateOptions::stream("ts").with("block_rows", 1 << 20);
    let table = engine
        .create_table("t", &Schema::new(fields), &options)
        .unwrap();
    let part_rows = 10 * 1_024;
    for part in 0..4 {
        let rows: Vec<_> = (part * part_rows..(part + 1) * part_rows)
            .map(|n| (n, n))
            .collect();
        let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true; rows.len()]));
        append(&table, &rows, &vec![flags; 2_700]);
    }
    assert_eq!(table.stats().unwrap().blocks, 4);
    table.maintain().unwrap();
    let rows: Vec<u64> = blocks(&table).iter().map(|block| block.rows).collect();
    assert_eq!(rows, [2 * 10 * 1_024; 2]);
    assert_at_rest(engine, &sim);
}

#[test]
fn short_blocks_of_many_columns_become_as_full_as_blocks_may_be() {
    for (time, rows_per_time) in [(Some("ts"), 1), (Some("ts"), 10), (None, 1)] {
        let sim = SimEnv::new(2);
        let engine = open(&sim);
        let table = with_values(&engine, time, 1_100);
        for part in 0..40 {
            let rows = part * 128..(part + 1) * 128;
            let rows: Vec<_> = rows.map(|n| (n / rows_per_time, n)).collect();
            append_values(&table, &rows);
        }
        assert_eq!(table.stats().unwrap().blocks, 40);
        let done = table.maintain().unwrap();
        let rows: Vec<u64> = blocks(&table).iter().map(|block| block.rows).collect();
        assert_eq!(rows, [29 * 128, 11 * 128], "{time:?}, {rows_per_time}");
        assert_eq!((done.steps, done.rows), (1, 40 * 128));
        assert_eq!(numbers(&table), (0..40 * 128).collect::<Vec<_>>());
        assert_at_rest(engine, &sim);
    }
}

/// By their rows and their bytes in files one block would take all three.
#[test]
fn short_blocks_are_packed_beside_a_full_one_which_stays_where_it_is() {
    let sim = SimEnv::new(3);
    let engine = open(&sim);
    let table = with_values(&engine, Some("ts"), 1_100);
    let mut next = 0;
    for rows in [3_700, 150, 150] {
        let numbers = next..next + rows;
        next = numbers.end;
        append_values(&table, &numbers.map(|n| (n, n)).collect::<Vec<_>>());
    }
    let before = blocks(&table);
    assert_eq!(before.len(), 3);
    assert_eq!(
        table.maintain().unwrap(),
        Maintained {
            steps: 1,
            rows: 300
        }
    );
    let after = blocks(&table);
    assert_eq!(after[0].address, before[0].address);
    assert_eq!((after.len(), after[1].rows), (2, 300));
    assert_eq!(numbers(&table), (0..4_000).collect::<Vec<_>>());
    assert_at_rest(engine, &sim);
}

/// A call that is stopped while it measures blocks leaves the next one fewer to measure.
#[test]
fn calls_that_are_stopped_go_on_where_the_last_one_was() {
    let sim = SimEnv::new(4);
    let engine = open(&sim);
    let table = with_texts(&engine, Some("ts"));
    for part in 0..24 {
        let rows: Vec<_> = (part * 8..part * 8 + 8).map(|n| (n, n)).collect();
        append_texts(&table, &rows);
    }
    let asked = Cell::new(0);
    let go_on = || {
        asked.set(asked.get() + 1);
        asked.get() <= 22
    };
    assert_eq!(
        table.maintain_while(&go_on).unwrap_err().kind(),
        ErrorKind::Query
    );
    assert_eq!(table.stats().unwrap().blocks, 24);
    asked.set(0);
    let done = table.maintain_while(&go_on).unwrap();
    assert_eq!((done.steps, done.rows), (1, 192));
    assert_eq!(table.stats().unwrap().blocks, 8);
    assert_eq!(numbers(&table), (0..192).collect::<Vec<_>>());
    assert_at_rest(engine, &sim);
}

/// A block of an earlier time and a later commit cannot take in all blocks of the next time: the rest are packed without it.
#[test]
fn rows_that_are_filled_in_newest_first_fill_blocks() {
    const TIMES: i64 = 20;
    const APPENDS: i64 = 70;
    let options = EngineOptions {
        background: false,
        append_limits: AppendLimits {
            raw_bytes: 0,
            ..AppendLimits::default()
        },
        ..EngineOptions::default()
    };
    let engine = Engine::in_memory(options).unwrap();
    let fields = ["ts", "number"].map(|name| Field::new(name, DataType::Int64, false));
    let options = CreateOptions::stream("ts").with("block_rows", 64);
    let schema = Schema::new(fields.to_vec());
    let table = engine.create_table("t", &schema, &options).unwrap();
    for number in 0..TIMES * APPENDS {
        append(&table, &[(TIMES - number / APPENDS, number)], &[]);
    }
    assert_eq!(
        table.stats().unwrap().blocks,
        (TIMES * APPENDS).unsigned_abs()
    );
    table.maintain().unwrap();
    // A full one and a short one or two for each time.
    let blocks = table.stats().unwrap().blocks;
    assert!(blocks < 3 * TIMES.unsigned_abs(), "{blocks} blocks");
    assert_eq!(table.maintain().unwrap(), Maintained::default());
    let by_time = (0..TIMES)
        .rev()
        .flat_map(|time| time * APPENDS..(time + 1) * APPENDS);
    assert_eq!(numbers(&table), by_time.collect::<Vec<_>>());
}
