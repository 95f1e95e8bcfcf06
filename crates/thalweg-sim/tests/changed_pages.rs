//! How much of an index one commit changes, and how much waits to be written: commits that are too much are refused, and whoever
//! makes them takes less.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use std::path::Path;
use std::sync::Arc;
use thalweg_env::sim::SimEnv;
use thalweg_kernel::{
    Durability, ErrorKind, Options, TableId, limit_changed_bytes, limit_page_entries,
};
use thalweg_sim::oracle::contents_of;
use thalweg_sim::orders::open_indexed;
use thalweg_sim::toy::{Row, Toy};
use thalweg_table::{AppendLimits, CreateOptions, Engine, EngineOptions, ScanRequest, Table};

/// About half of the pages of the table below.
const LIMIT_BYTES: u64 = 4_000;
/// In proportion to the pages as the real limit is: some hundred of the longest ones.
const ENGINE_LIMIT_BYTES: u64 = 90_000;

/// Index pages of few entries; one commit changes so many bytes of them.
fn small_pages(changed_bytes: u64) {
    limit_page_entries(8);
    limit_changed_bytes(changed_bytes);
}

fn open_toy(sim: &SimEnv) -> Toy {
    let options = Options {
        background: false,
        segment_bytes: 1 << 20,
        ..Options::default()
    };
    Toy::open(&sim.env(), "/db", &options, 64).unwrap()
}

/// Blocks of two rows each, all over the keys.
fn scattered(from: i64, blocks: i64) -> Vec<Row> {
    let keys = (0..blocks).map(|block| from + block * 40);
    keys.flat_map(|key| [(key, 1), (key, 2)]).collect()
}

/// A table with a block at every tenth key.
fn filled(toy: &Toy) -> TableId {
    let table = toy.create("t").unwrap();
    for block in 0..600 {
        let rows = [(block * 10, 1), (block * 10, 2)];
        toy.append_group(table, &rows, 2, Durability::Memory)
            .unwrap();
    }
    table
}

#[test]
fn a_commit_that_changes_too_many_pages_is_refused() {
    small_pages(LIMIT_BYTES);
    let sim = SimEnv::new(1);
    let toy = open_toy(&sim);
    let table = filled(&toy);
    let before = toy.rows(table).unwrap();
    let rows = scattered(3, 140);
    let refused = toy
        .append_group(table, &rows, 2, Durability::Disk)
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Limit);
    assert!(
        refused.message().contains("bytes of index pages"),
        "{refused}"
    );
    assert_eq!(toy.rows(table).unwrap(), before);
    // Few of them, and all of them as one item.
    toy.append_group(table, &rows[..2], 2, Durability::Disk)
        .unwrap();
    toy.append_fragment(table, &rows[2..], 2).unwrap();
    drop(toy);
    let again = open_toy(&sim);
    assert_eq!(again.rows(table).unwrap().len(), before.len() + rows.len());
}

#[test]
fn pages_that_wait_to_be_written_are_bounded() {
    small_pages(LIMIT_BYTES);
    let sim = SimEnv::new(2);
    let toy = open_toy(&sim);
    let table = filled(&toy);
    let (mut most, mut written) = (0, 0);
    let mut before = 0;
    for block in 0..400 {
        let key = block * 7_919 % 6_000;
        toy.append_group(table, &[(key, 3)], 2, Durability::Memory)
            .unwrap();
        let snapshot = toy.kernel.snapshot().unwrap();
        let unwritten = snapshot.table(table).unwrap().tree.unwritten_bytes();
        written += usize::from(unwritten < before);
        (most, before) = (unwritten.max(most), unwritten);
    }
    assert!(most <= 2 * LIMIT_BYTES, "{most} bytes wait");
    assert!(written > 3, "{written} checkpoints of 400 scattered blocks");
    drop(toy);
    let again = open_toy(&sim);
    assert_eq!(again.rows(table).unwrap().len(), 600 * 2 + 400);
}

#[test]
fn drops_of_tables_do_not_wait_for_index_pages() {
    small_pages(LIMIT_BYTES);
    let sim = SimEnv::new(5);
    let toy = open_toy(&sim);
    let other = toy.create("other").unwrap();
    let table = filled(&toy);
    toy.kernel.checkpoint().unwrap();
    let unwritten = || {
        let snapshot = toy.kernel.snapshot().unwrap();
        snapshot.table(table).unwrap().tree.unwritten_bytes()
    };
    let scattered = (0..).map(|block| block * 7_919 % 6_000);
    for key in scattered.take_while(|_| unwritten() <= LIMIT_BYTES) {
        toy.append_group(table, &[(key, 3)], 2, Durability::Memory)
            .unwrap();
    }
    let before = unwritten();
    toy.drop_table(other).unwrap();
    assert_eq!(unwritten(), before, "the drop wrote a checkpoint");
    toy.append_group(table, &[(5, 3)], 2, Durability::Memory)
        .unwrap();
    assert!(unwritten() < before, "no checkpoint before more pages");
}

/// Rows that come in order have values all over an index: the more there are, the more of its pages their entries change.
#[test]
fn open_rows_become_blocks_without_entries_that_change_too_many_pages() {
    small_pages(LIMIT_BYTES);
    let (toy, table) = open_indexed(&SimEnv::new(6), 1);
    let mut rows: Vec<Row> = Vec::new();
    let mut become_blocks = |count: i64| {
        let first = i64::try_from(rows.len()).unwrap();
        let keys = first..first + count;
        let new: Vec<Row> = keys.map(|key| (key, key * 7_919 % 10_007)).collect();
        toy.append(table, &new, Durability::Memory).unwrap();
        toy.kernel.encode_open_rows(table).unwrap();
        rows.extend(new);
        assert_eq!(toy.rows(table).unwrap(), rows);
        contents_of(&toy).unwrap();
        let snapshot = toy.kernel.snapshot().unwrap();
        let state = snapshot.table(table).unwrap();
        assert_eq!(state.open_rows().count(), 0);
        state
            .order(2)
            .unwrap()
            .coverage
            .covers(first, first + count - 1, snapshot.commit())
    };
    for _ in 0..200 {
        assert!(become_blocks(8), "few entries");
    }
    assert!(!become_blocks(560), "entries on most pages");
    assert!(become_blocks(8), "few entries");
}

fn open_engine(sim: &SimEnv) -> Engine {
    let options = EngineOptions {
        background: false,
        threads: 1,
        segment_bytes: 256 << 10,
        append_limits: AppendLimits {
            raw_bytes: 2_000,
            gather_bytes: 64_000,
            group_bytes: 1 << 20,
            fragment_bytes: 64_000,
            split_fragment_bytes: 8_000,
        },
        maintain_rows: 100_000,
        ..EngineOptions::default()
    };
    Engine::open(sim.env(), Path::new("/db"), options).unwrap()
}

fn create(engine: &Engine) -> Table {
    let schema = Schema::new(vec![
        Field::new("at", DataType::Int64, false),
        Field::new("name", DataType::Utf8, false),
    ]);
    let create = CreateOptions::stream("at").with("block_rows", 64);
    engine.create_table("t", &schema, &create).unwrap()
}

fn append(table: &Table, keys: impl Iterator<Item = i64>) {
    let (mut at, mut name) = (Int64Builder::new(), StringBuilder::new());
    for key in keys {
        at.append_value(key);
        name.append_value(format!("sensor {}", key % 13));
    }
    let columns: Vec<ArrayRef> = vec![Arc::new(at.finish()), Arc::new(name.finish())];
    let batch = RecordBatch::try_new(table.schema(), columns).unwrap();
    table.append([Ok(batch)], Some(Durability::Memory)).unwrap();
}

fn keys_of(table: &Table) -> Vec<i64> {
    let view = table.view().unwrap();
    let batches = view.scan(&ScanRequest::default()).unwrap();
    let keys = batches.flat_map(|batch| {
        let column = Arc::clone(batch.unwrap().column(0));
        column.as_primitive::<Int64Type>().values().to_vec()
    });
    keys.collect()
}

#[test]
fn maintenance_takes_smaller_steps_where_pages_are_too_many() {
    small_pages(ENGINE_LIMIT_BYTES);
    let sim = SimEnv::new(3);
    let engine = open_engine(&sim);
    let table = create(&engine);
    let mut expected = Vec::new();
    // In order, and then late rows that overlap everything.
    for part in 0..120 {
        let keys = part * 1_000..part * 1_000 + 640;
        expected.extend(keys.clone());
        append(&table, keys);
    }
    for late in 0..6 {
        let keys = (0..1_500).map(move |row| row * 79 + late);
        expected.extend(keys.clone());
        append(&table, keys);
    }
    expected.sort_unstable();
    assert_eq!(keys_of(&table), expected);
    let done = table.maintain().unwrap();
    assert!(done.steps > 2, "{} steps", done.steps);
    assert_eq!(keys_of(&table), expected);
    assert_eq!(table.stats().unwrap().late_rows, 0);
    drop((table, engine));
    let engine = open_engine(&sim);
    assert_eq!(keys_of(&engine.table("t").unwrap()), expected);
}

#[test]
fn many_blocks_with_one_first_key_are_no_error() {
    small_pages(ENGINE_LIMIT_BYTES);
    let sim = SimEnv::new(4);
    let engine = open_engine(&sim);
    let table = create(&engine);
    for part in 0..600 {
        append(
            &table,
            (0..64).map(|row| if row == 0 { 5 } else { 5 + part * row }),
        );
    }
    let before = keys_of(&table);
    table.maintain().unwrap();
    table.maintain().unwrap();
    assert_eq!(keys_of(&table), before);
}
