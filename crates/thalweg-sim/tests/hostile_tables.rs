//! Files of somebody who makes all checksums right: whatever they say of rows, columns and definitions, the answer is an error
//! or rows, never a panic, and takes no more memory than the files are worth.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../../thalweg-table/tests/layouts/mod.rs"]
mod layouts;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Decimal128Builder, Float64Builder, Int64Builder, StringBuilder,
    TimestampMillisecondBuilder,
};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use layouts::{ORDERS, Order};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::{Rule, break_rule};
use thalweg_sim::damage::change_near;
use thalweg_sim::report::{Dice, Stopwatch, effort, say, seed};
use thalweg_table::{
    AggregateRequest, Alteration, AppendLimits, Bucket, Durability, Engine, EngineOptions,
    KeyRange, Numbered, PickedRows, PlacedRows, Result, RowsToDelete, ScanRequest, Table,
    TableView, Value, ViewDefinition, constant_of,
};

const DISK: Option<Durability> = Some(Durability::Disk);

/// Of so many bytes one is changed, with those near it, ...
const ONE_IN: u64 = 16;
/// ... and of so many of the databases that take long.
const ONE_IN_OF_LONG: u64 = 64;

/// Everything in the thread that calls: the rule of checksums is broken there alone.
fn options() -> EngineOptions {
    EngineOptions {
        background: false,
        threads: 1,
        segment_bytes: 64 << 10,
        append_limits: AppendLimits {
            raw_bytes: 1_000,
            gather_bytes: 16_000,
            group_bytes: 1_500,
            fragment_bytes: 8_000,
            split_fragment_bytes: 500,
        },
        maintain_rows: 200,
        layouts: layouts::known(),
        ..EngineOptions::default()
    }
}

fn open(sim: &SimEnv) -> Result<Engine> {
    Engine::open(sim.env(), Path::new("/db"), options())
}

fn rows(schema: &Schema, times: impl Iterator<Item = i64>, dice: &mut Dice) -> RecordBatch {
    let mut ts = TimestampMillisecondBuilder::new();
    let (mut value, mut number) = (Float64Builder::new(), Int64Builder::new());
    let (mut name, mut raw) = (StringBuilder::new(), BinaryBuilder::new());
    let mut flag = BooleanBuilder::new();
    let mut price = Decimal128Builder::new()
        .with_precision_and_scale(20, 3)
        .unwrap();
    for time in times {
        ts.append_value(time);
        let bits = dice.draw();
        let small = bits.to_le_bytes();
        value.append_option((small[0] > 40).then(|| f64::from(small[1]) / 8.0));
        number.append_value(bits.cast_signed() >> (small[2] % 63));
        name.append_option(
            (small[3] > 20).then(|| ["pump", "fan", "valve"][usize::from(small[4] % 3)]),
        );
        raw.append_value(&small[5..7]);
        flag.append_option((small[7] > 9).then_some(small[7].is_multiple_of(2)));
        price.append_value(i128::from(dice.draw().cast_signed()));
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(ts.finish()),
        Arc::new(value.finish()),
        Arc::new(number.finish()),
        Arc::new(name.finish()),
        Arc::new(raw.finish()),
        Arc::new(flag.finish()),
        Arc::new(price.finish()),
    ];
    RecordBatch::try_new(Arc::new(schema.clone()), columns).unwrap()
}

fn schema() -> Schema {
    Schema::new(vec![
        Field::new(
            "ts",
            DataType::Timestamp(TimeUnit::Millisecond, None),
            false,
        ),
        Field::new("value", DataType::Float64, true),
        Field::new("number", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("raw", DataType::Binary, false),
        Field::new("flag", DataType::Boolean, true),
        Field::new("price", DataType::Decimal128(20, 3), false),
    ])
}

/// Blocks in the log and in files, raw rows, late ones, some of them merged; closed or killed.
fn database(seed: u64, order: Order, is_closed: bool) -> SimEnv {
    let sim = SimEnv::new(seed);
    let mut dice = Dice::new(seed);
    let engine = open(&sim).unwrap();
    let schema = schema();
    let create = order.options("ts", "name").with("block_rows", 64);
    let table = engine.create_table("t", &schema, &create).unwrap();
    let mut append = |times: Vec<i64>| {
        let batch = rows(&schema, times.into_iter(), &mut dice);
        table.append([Ok(batch)], Some(Durability::Disk)).unwrap();
    };
    append((0..300).map(|k| k * 10).collect());
    append((0..40).map(|k| k * 71).collect());
    table.maintain().unwrap();
    append((300..340).map(|k| k * 10).collect());
    append((0..9).map(|k| k * 313).collect());
    append(vec![4_000, 4_001, 4_005]);
    if is_closed {
        engine.close().unwrap();
    }
    sim.crash_image(&CrashChoice::Kill)
}

/// A table with a unique key, a retention and a column that came later: rows of it are hidden in blocks, files and among open rows, replaced,
/// and sent with numbers; some came and went by a transaction. A view lies beside it.
fn edited(seed: u64, is_closed: bool) -> SimEnv {
    let sim = SimEnv::new(seed);
    let mut dice = Dice::new(seed);
    let engine = open(&sim).unwrap();
    let create = Order::Time.options("ts", "name").with("block_rows", 64);
    let create = create
        .with("unique", "ts, name")
        .with("on_duplicate", "last")
        .with("retention", "100000 days");
    let table = engine.create_table("t", &schema(), &create).unwrap();
    let mut batch = |times: Vec<i64>| Ok(rows(&schema(), times.into_iter(), &mut dice));
    let number = |sequence| Numbered {
        producer: "gateway",
        sequence,
    };
    let some = [batch((0..300).map(|k| k * 10).collect())];
    table.append_once(some, number(1), DISK, &|| true).unwrap();
    delete(&table, 100..=900);
    table.maintain().unwrap();
    let default = Arc::new(Int64Array::from(vec![7])) as ArrayRef;
    let add = Alteration::AddColumn {
        field: Field::new("extra", DataType::Int64, false),
        default: constant_of("extra", &default, &DataType::Int64).unwrap(),
        if_not_exists: false,
    };
    table.alter(&[add]).unwrap();
    let late = [batch((0..60).map(|k| k * 71).collect())];
    table.append_once(late, number(2), DISK, &|| true).unwrap();
    let transaction = engine.transaction().unwrap();
    let inside = transaction.table("t").unwrap();
    let many = [batch((200..320).map(|k| k * 10).collect())];
    inside.append(many, None).unwrap();
    delete(&inside, 2_500..=2_700);
    delete(&inside, 1_000..=1_030);
    transaction.commit(DISK).unwrap();
    for time in [4_000, 4_001, 4_005, 4_010] {
        table.append([batch(vec![time; 3])], DISK).unwrap();
    }
    delete(&table, 4_001..=4_006);
    let view = ViewDefinition {
        query: "SELECT ts, extra FROM t".to_owned(),
        columns: vec!["a".to_owned()],
    };
    engine.create_view("v", &view).unwrap();
    if is_closed {
        engine.close().unwrap();
    }
    sim.crash_image(&CrashChoice::Kill)
}

fn delete(table: &Table, times: RangeInclusive<i64>) {
    table.delete_range(KeyRange::from(times), DISK).unwrap();
}

/// Changes rows by every statement, and reads what is left.
fn edit_any(sim: &SimEnv) -> Result<()> {
    let engine = open(sim)?;
    let mut results = vec![];
    let snapshot = engine.snapshot()?;
    for name in snapshot.view_names() {
        let view = snapshot.stored_view(&name);
        results.extend(view.map(|view| view.definition().map(|_| ())));
    }
    drop(snapshot);
    let table = engine.table("t")?;
    if table.schema().fields().len() == 8 {
        let mut dice = Dice::new(5);
        let mut batch = |times: Vec<i64>| Ok(rows(&schema(), times.into_iter(), &mut dice));
        let number = Numbered {
            producer: "gateway",
            sequence: 3,
        };
        for _ in 0..2 {
            let some = [batch(vec![5, 990, 4_001])];
            results.push(table.append_once(some, number, None, &|| true).map(|_| ()));
        }
        results.push(engine.transaction().and_then(|transaction| {
            let inside = transaction.table("t")?;
            inside.delete_range(KeyRange::from(0..=50), None)?;
            inside.append([batch(vec![20, 4_005])], None)?;
            transaction.commit(None)
        }));
    }
    let mut pick = || {
        let rows = Arc::new(PlacedRows::new(&table.view()?, &ScanRequest::default())?);
        let mut picked = PickedRows::default();
        let reader = rows.reader()?;
        for piece in 0..rows.pieces() {
            for (_, places) in reader.read(piece)? {
                picked.add(&places.values()[places.len() / 2..]);
            }
        }
        drop(reader);
        Ok(RowsToDelete::Picked(rows, picked))
    };
    results.push(table.delete_picked(None, &mut pick).map(|_| ()));
    let keys = KeyRange::from(900..=1_500);
    results.push(table.delete_range(keys, None).map(|_| ()));
    results.push(engine.close());
    results.push(use_any(sim));
    results.into_iter().collect()
}

/// Reads everything in every way, and goes on writing.
fn use_any(sim: &SimEnv) -> Result<()> {
    let engine = open(sim)?;
    let view = engine.snapshot()?.table("t")?;
    let mut results = vec![scan(&view, ScanRequest::default())];
    let some = ScanRequest {
        projection: Some(vec![3, 1]),
        batch_rows: 10,
        limit: Some(90),
        ..ScanRequest::default()
    };
    results.push(scan(&view, some));
    let width = 500;
    for bucket in [None, Some(Bucket { width, origin: 7 })] {
        let request = AggregateRequest {
            bucket,
            columns: (0..view.schema().fields().len()).collect(),
            ..AggregateRequest::default()
        };
        results.push(view.aggregate(&request).map(|_| ()));
    }
    results.push(view.stats().map(|_| ()));
    let table = engine.table("t")?;
    if table.schema().fields().len() == 7 {
        let row = [
            Value::Int(50),
            Value::Null,
            Value::Int(1),
            Value::Null,
            Value::Bytes(b"x"),
            Value::Null,
            Value::Int(1),
        ];
        results.push(table.put(&row, None));
    }
    results.push(table.maintain().map(|_| ()));
    results.push(engine.close());
    results.into_iter().collect()
}

fn scan(view: &TableView, request: ScanRequest) -> Result<()> {
    let request = ScanRequest {
        threads: 1,
        ..request
    };
    for batch in view.scan(&request)? {
        batch?;
    }
    Ok(())
}

/// Uses a database that lies in every way.
type Use = fn(&SimEnv) -> Result<()>;

#[test]
fn lies_with_right_checksums_are_errors_or_rows() {
    let seed = seed();
    let clock = Stopwatch::start();
    let mut dice = Dice::new(seed);
    let (mut errors, mut fine, mut panics) = (0, 0, Vec::new());
    let mut databases: Vec<(String, SimEnv, Use)> = Vec::new();
    for order in ORDERS {
        databases.push((format!("{order:?}"), database(seed, order, false), use_any));
    }
    databases.push((
        "closed".to_owned(),
        database(seed, Order::Time, true),
        use_any,
    ));
    databases.push(("edited".to_owned(), edited(seed, false), edit_any));
    databases.push(("edited, closed".to_owned(), edited(seed, true), edit_any));
    for (name, whole, use_it) in databases {
        let one_in = match name.starts_with("edited") {
            true => ONE_IN_OF_LONG,
            false => ONE_IN,
        };
        use_it(&whole.crash_image(&CrashChoice::Kill)).unwrap();
        let files: Vec<PathBuf> = whole.files().into_iter().map(|(path, _)| path).collect();
        break_rule(Some(Rule::Checksum));
        for path in files.iter().cycle().take(files.len() * effort()) {
            let bytes = whole.read_file(path).unwrap();
            let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
            for at in 0..used {
                if dice.below(one_in) > 0 {
                    continue;
                }
                let image = whole.crash_image(&CrashChoice::Kill);
                let what = change_near(&image, path, &bytes, at, &mut dice);
                match catch_unwind(AssertUnwindSafe(|| use_it(&image))) {
                    Ok(Ok(())) => fine += 1,
                    Ok(Err(_)) => errors += 1,
                    Err(_) => panics.push(format!("{name}, {}:{what}", path.display())),
                }
            }
        }
        break_rule(None);
    }
    say(format_args!(
        "hostile tables: {errors} errors, {fine} with rows, {} panics, {:.1} s, seed {seed}",
        panics.len(),
        clock.seconds()
    ));
    assert!(
        panics.is_empty(),
        "{} panics (THALWEG_SEED={seed}):\n{}",
        panics.len(),
        panics.join("\n")
    );
    assert!(errors > 0 && fine > 0, "{errors} errors, {fine} fine");
}
