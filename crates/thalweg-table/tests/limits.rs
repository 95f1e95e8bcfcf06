//! Appends and rows at the limits of a frame: of many files, of many columns, of a block for each row.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampSecondArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use thalweg_env::sim::{CallKind, CrashChoice, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_kernel::index::{Entry, ItemName, Place, Step};
use thalweg_kernel::masks::{BlockMask, ItemMask, MaskEdit, MaskList, Positions};
use thalweg_kernel::{Commit, MANY_MASKS_BYTES, TableId};
use thalweg_table::{
    AppendLimits, CreateOptions, Durability, Engine, EngineOptions, ErrorKind, KeyRange,
    ScanRequest, SummaryOption, Table, TableView, Value,
};

fn open(sim: &SimEnv, append_limits: AppendLimits) -> Engine {
    let options = EngineOptions {
        background: false,
        threads: 1,
        append_limits,
        ..EngineOptions::default()
    };
    Engine::open(sim.env(), Path::new("/db"), options).unwrap()
}

fn id_of(table: &Table) -> TableId {
    table.view().unwrap().snapshot().id
}

fn column(view: &TableView, at: usize) -> Vec<i64> {
    let request = ScanRequest {
        projection: Some(vec![at]),
        ..ScanRequest::default()
    };
    let of = |batch: RecordBatch| {
        batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    let scan = view.scan(&request).unwrap();
    scan.flat_map(|batch| of(batch.unwrap())).collect()
}

#[test]
fn an_append_of_more_files_than_a_frame_has_sections_is_one_commit() {
    let limits = AppendLimits {
        raw_bytes: 1_000,
        gather_bytes: 16_000,
        group_bytes: 1_500,
        fragment_bytes: 64 << 10,
        split_fragment_bytes: 1 << 10,
    };
    let sim = SimEnv::new(1);
    let engine = open(&sim, limits);
    let time = DataType::Timestamp(TimeUnit::Second, None);
    let schema = Arc::new(Schema::new(vec![
        Field::new("ts", time, false),
        Field::new("v", DataType::Int64, false),
    ]));
    let options = CreateOptions::stream("ts")
        .with("split", "1 hour")
        .with("block_rows", 128);
    let table = engine.create_table("t", &schema, &options).unwrap();
    let (hours, rows) = (5_000_i64, 150);
    let mut random = fastrand::Rng::with_seed(1);
    let batches = (0..hours).map(|hour| {
        let times = TimestampSecondArray::from_iter_values((0..rows).map(|i| hour * 3_600 + i));
        let values = Int64Array::from_iter_values((0..rows).map(|_| random.i64(..)));
        let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(values)];
        Ok(RecordBatch::try_new(Arc::clone(&schema), columns).unwrap())
    });
    let before = engine.snapshot().unwrap().commit();
    let appended = table.append(batches, Some(Durability::Disk)).unwrap();
    assert_eq!(appended, u64::try_from(hours * rows).unwrap());
    assert_eq!(engine.snapshot().unwrap().commit(), before + 1);
    let stats = table.stats().unwrap();
    assert!(stats.fragments > 4_096, "{stats:?}");
    let image = sim.crash_image(&CrashChoice::DropAll);
    let again = open(&image, limits).table("t").unwrap().stats().unwrap();
    assert_eq!(again, stats);
}

/// A table of a time and as many numbers as make `columns`.
fn wide(engine: &Engine, columns: usize) -> Table {
    let mut fields = vec![Field::new("ts", DataType::Int64, false)];
    fields.extend((1..columns).map(|c| Field::new(format!("c{c}"), DataType::Int64, false)));
    let options = CreateOptions {
        summaries: SummaryOption::All,
        ..CreateOptions::stream("ts")
    };
    engine
        .create_table("t", &Schema::new(fields), &options)
        .unwrap()
}

/// Rows one by one that alternate with blocks: each row is a section of its own, and so a block. Returns the times in order.
fn alternate(table: &Table, columns: usize, turns: i64) -> Vec<i64> {
    let schema = table.schema();
    let mut times = Vec::new();
    for turn in 0..turns {
        let mut row = vec![Value::Int(turn * 100 + 50)];
        row.extend((1..columns).map(|c| Value::Int(turn ^ i64::try_from(c).unwrap())));
        table.put(&row, Some(Durability::Process)).unwrap();
        // Larger than what is stored raw.
        let rows = 2 + 2_100 / (8 * columns);
        let numbers = 0..i64::try_from(rows).unwrap();
        let keys = Int64Array::from_iter_values(numbers.map(|n| turn * 100 + n % 50));
        times.push(turn * 100 + 50);
        times.extend(keys.values().iter());
        let mut batch: Vec<ArrayRef> = vec![Arc::new(keys)];
        batch
            .extend((1..columns).map(|_| Arc::new(Int64Array::from(vec![turn; rows])) as ArrayRef));
        let batch = RecordBatch::try_new(Arc::clone(&schema), batch).unwrap();
        table
            .append([Ok(batch)], Some(Durability::Process))
            .unwrap();
    }
    times.sort_unstable();
    times
}

const SMALL_RAW: AppendLimits = AppendLimits {
    raw_bytes: 2_000,
    gather_bytes: 8 << 20,
    group_bytes: 4 << 20,
    fragment_bytes: 256 << 20,
    split_fragment_bytes: 4 << 20,
};

/// Rows of a table that no group of one frame holds must become blocks all the same.
fn check_that_rows_become_blocks(columns: usize, turns: i64, limits: AppendLimits) {
    let sim = SimEnv::new(2);
    let engine = open(&sim, limits);
    let table = wide(&engine, columns);
    let times = alternate(&table, columns, turns);
    engine.kernel().run_due_work().unwrap();
    engine.kernel().encode_open_rows(id_of(&table)).unwrap();
    let stats = table.stats().unwrap();
    assert_eq!(stats.open_rows, 0, "{columns} columns");
    assert_eq!(
        column(&table.view().unwrap(), 0),
        times,
        "{columns} columns"
    );
    engine.flush().unwrap();
    let image = sim.crash_image(&CrashChoice::DropAll);
    let again = open(&image, limits);
    let table = again.table("t").unwrap();
    assert_eq!(column(&table.view().unwrap(), 0), times);
    table.maintain().unwrap();
    assert_eq!(column(&table.view().unwrap(), 0), times);
    assert!(table.stats().unwrap().blocks < stats.blocks);
}

#[test]
fn rows_between_barriers_become_blocks_however_wide_they_are() {
    check_that_rows_become_blocks(1, 4_200, SMALL_RAW);
    check_that_rows_become_blocks(40, 4_200, SMALL_RAW);
}

#[test]
fn rows_of_four_thousand_columns_become_blocks() {
    let limits = AppendLimits {
        raw_bytes: 40_000,
        ..SMALL_RAW
    };
    check_that_rows_become_blocks(4_000, 60, limits);
}

#[test]
fn rows_of_one_commit_that_all_lie_in_splits_of_their_own_become_blocks() {
    let sim = SimEnv::new(3);
    let engine = open(&sim, AppendLimits::default());
    let time = DataType::Timestamp(TimeUnit::Second, None);
    let schema = Arc::new(Schema::new(vec![Field::new("ts", time, false)]));
    let options = CreateOptions::stream("ts").with("split", "1 hour");
    let table = engine.create_table("t", &schema, &options).unwrap();
    let rows = 32_000_i64;
    let times = TimestampSecondArray::from_iter_values((0..rows).map(|hour| hour * 3_600));
    let batch = RecordBatch::try_new(schema, vec![Arc::new(times)]).unwrap();
    table.append([Ok(batch)], None).unwrap();
    engine.kernel().run_due_work().unwrap();
    let stats = table.stats().unwrap();
    assert_eq!((stats.open_rows, stats.blocks), (0, 32_000));
    assert_eq!(stats.fragments, 1, "no group of one frame holds them");
    let image = sim.crash_image(&CrashChoice::Kill);
    let again = open(&image, AppendLimits::default());
    assert_eq!(again.table("t").unwrap().stats().unwrap(), stats);
}

#[test]
fn a_crash_while_rows_become_blocks_of_a_file_loses_and_doubles_nothing() {
    let limits = SMALL_RAW;
    let sim = SimEnv::new(4);
    let engine = open(&sim, limits);
    let (columns, turns) = (40, 3_400);
    let table = wide(&engine, columns);
    let times = alternate(&table, columns, turns);
    engine.flush().unwrap();
    let files = table.stats().unwrap().fragments;
    let first_call = sim.calls() + 1;
    sim.record_states(true);
    engine.kernel().encode_open_rows(id_of(&table)).unwrap();
    engine.flush().unwrap();
    let last_call = sim.calls();
    assert_eq!(table.stats().unwrap().fragments, files + 1);
    let mut seen = 0;
    for call in first_call..=last_call {
        let Some(state) = sim.state_at(call) else {
            continue;
        };
        for choice in [CrashChoice::DropAll, CrashChoice::Kill] {
            let image = state.crash_image(&choice);
            let again = open(&image, limits);
            let table = again.table("t").unwrap();
            assert_eq!(
                column(&table.view().unwrap(), 0),
                times,
                "call {call}, {choice:?}"
            );
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} states");
    // A file that could not be written is no loss either: the rows stay open, and become blocks the next time.
    let image = sim
        .state_at(first_call)
        .unwrap()
        .crash_image(&CrashChoice::Kill);
    let again = open(&image, limits);
    let table = again.table("t").unwrap();
    let fails = FaultRule::new(Fault::Error(thalweg_env::sim::Errno::IO));
    let fails = fails.on(&[CallKind::SyncAll]).path_suffix(".frag").once();
    image.set_plan(FaultPlan::none().rule(fails));
    again.kernel().encode_open_rows(id_of(&table)).unwrap_err();
    assert_eq!(column(&table.view().unwrap(), 0), times);
    again.kernel().encode_open_rows(id_of(&table)).unwrap();
    assert_eq!(column(&table.view().unwrap(), 0), times);
    assert_eq!(table.stats().unwrap().open_rows, 0);
}

#[test]
fn an_append_that_is_cancelled_stores_nothing() {
    let sim = SimEnv::new(1);
    let limits = AppendLimits {
        raw_bytes: 1_000,
        gather_bytes: 1 << 20,
        group_bytes: 64 << 10,
        fragment_bytes: 8 << 20,
        split_fragment_bytes: 1 << 20,
    };
    let engine = open(&sim, limits);
    let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
    let table = engine
        .create_table("t", &schema, &CreateOptions::stream("ts"))
        .unwrap();
    let rows: ArrayRef = Arc::new(Int64Array::from_iter_values(0..9_000_000));
    let rows = RecordBatch::try_from_iter([("ts", rows)]).unwrap();
    let calls = Cell::new(0);
    let go_on = || {
        calls.set(calls.get() + 1);
        calls.get() < 2
    };
    let error = table
        .append_while([Ok(rows.clone())], None, &go_on)
        .unwrap_err();
    assert!(error.message().contains("interrupted"), "{error}");
    assert_eq!(calls.get(), 2);
    assert_eq!(table.view().unwrap().row_count(), 0);
    let stored = table.append_while([Ok(rows)], None, &|| true).unwrap();
    assert_eq!(stored, 9_000_000);
    assert_eq!(table.view().unwrap().row_count(), 9_000_000);
}

/// Each of very many blocks has one deleted row: too few of each to be rewritten for its own sake, too many for the room that all masks
/// have. Whoever deletes next makes room, in whichever table.
#[test]
fn masks_of_many_blocks_make_room_for_others() {
    const BLOCK_ROWS: i64 = 64;
    let engine = Engine::in_memory(EngineOptions::default()).unwrap();
    let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
    let options = CreateOptions::stream("ts").with("block_rows", 64);
    let table = engine.create_table("t", &schema, &options).unwrap();
    let other = engine.create_table("other", &schema, &options).unwrap();
    for key in 0..100 {
        other.put(&[Value::Int(key)], None).unwrap();
    }
    // A mask takes 64 bytes at least.
    let rows = (2 * MANY_MASKS_BYTES).cast_signed() + 100_000 * BLOCK_ROWS;
    let batches = (0..rows).step_by(1_000_000).map(|first| {
        let times = Int64Array::from_iter_values(first..(first + 1_000_000).min(rows));
        Ok(RecordBatch::try_new(table.schema(), vec![Arc::new(times)]).unwrap())
    });
    table.append(batches, None).unwrap();
    let view = table.view().unwrap();
    let store = Arc::clone(engine.kernel().store());
    let mut walk = view.snapshot().tree.walk(None, store);
    let (mut places, mut rows_of) = (Vec::new(), BTreeMap::new());
    let mut step = |entry: &Entry, place: Option<Place>| {
        if let Some(place) = place.filter(|place| place.item == ItemName::of(entry)) {
            rows_of.insert(place.item, entry.rows);
        }
        Step::Descend
    };
    while walk.next_at(&mut step).unwrap().is_some() {
        places.extend(walk.place());
    }
    drop(view);
    let refused = places.chunks(50_000).find_map(|places| {
        let mut items: BTreeMap<ItemName, Vec<(u32, BlockMask)>> = BTreeMap::new();
        for place in places {
            let rank = u32::try_from(place.rank).unwrap();
            let mask = BlockMask::Rows(Positions::of_rows([7]));
            items.entry(place.item).or_default().push((rank, mask));
        }
        let items = items.into_iter().map(|(name, masks)| {
            let masks = MaskList::of(masks).unwrap();
            ItemMask {
                name,
                rows: rows_of[&name],
                newly: masks.rows(),
                masks,
            }
        });
        let edit = MaskEdit {
            table: id_of(&table),
            items: items.collect(),
            parts: Vec::new(),
        };
        let commit = Commit {
            masks: vec![edit],
            ..Commit::default()
        };
        engine.kernel().commit(commit, Durability::Process).err()
    });
    assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::Limit));
    let many = engine.kernel().mask_bytes().unwrap();
    assert!(many > MANY_MASKS_BYTES, "{many}");
    // What a call of `maintain` has written it does not write again, though a row is deleted behind each of its steps.
    other.maintain().unwrap();
    let next = Cell::new(20);
    let delete_one = || {
        let key = next.replace(next.get() + 1);
        let keys = KeyRange {
            first: key,
            last: key,
        };
        assert_eq!(other.delete_range(keys, None).unwrap(), 1);
    };
    delete_one();
    let delete_behind_step = || {
        let view = other.view().unwrap();
        if view.snapshot().masks().is_none() {
            delete_one();
        }
        true
    };
    other.maintain_while(&delete_behind_step).unwrap();
    assert_eq!(next.get(), 22);
    let mut deleted = 0;
    let mut before = many;
    // Until one has found no room.
    for block in (0..rows / BLOCK_ROWS).rev() {
        let key = block * BLOCK_ROWS + 5;
        let keys = KeyRange {
            first: key,
            last: key,
        };
        deleted += table.delete_range(keys, None).unwrap();
        let now = engine.kernel().mask_bytes().unwrap();
        if now < before {
            break;
        }
        before = now;
    }
    let left = engine.kernel().mask_bytes().unwrap();
    assert!(left <= MANY_MASKS_BYTES, "{left} after {deleted} deletions");
    let keys = KeyRange { first: 7, last: 7 };
    assert_eq!(other.delete_range(keys, None).unwrap(), 1);
}
