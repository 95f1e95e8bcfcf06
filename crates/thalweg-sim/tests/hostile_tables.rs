//! Files of somebody who makes all checksums right: whatever they say of rows, columns and definitions, the answer is an error
//! or rows, never a panic, and takes no more memory than the files are worth.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../../thalweg-table/tests/layouts/mod.rs"]
mod layouts;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Decimal128Builder, Float64Builder, Int64Builder, StringBuilder,
    TimestampMillisecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use layouts::{ORDERS, Order};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::{Rule, break_rule};
use thalweg_sim::damage::change_near;
use thalweg_sim::report::{Dice, Stopwatch, effort, say, seed};
use thalweg_table::{
    AggregateRequest, AppendLimits, Bucket, Durability, Engine, EngineOptions, Result, ScanRequest,
    TableView, Value,
};

/// Of so many bytes one is changed, with those near it.
const ONE_IN: u64 = 16;

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

/// Blocks in the log and in files, raw rows, late ones, some of them merged; closed or killed.
fn database(seed: u64, order: Order, is_closed: bool) -> SimEnv {
    let sim = SimEnv::new(seed);
    let mut dice = Dice::new(seed);
    let engine = open(&sim).unwrap();
    let schema = Schema::new(vec![
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
    ]);
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

#[test]
fn lies_with_right_checksums_are_errors_or_rows() {
    let seed = seed();
    let clock = Stopwatch::start();
    let mut dice = Dice::new(seed);
    let (mut errors, mut fine, mut panics) = (0, 0, Vec::new());
    let killed = ORDERS.map(|order| (order, false));
    for (order, is_closed) in killed.into_iter().chain([(Order::Time, true)]) {
        let whole = database(seed, order, is_closed);
        use_any(&whole.crash_image(&CrashChoice::Kill)).unwrap();
        let files: Vec<PathBuf> = whole.files().into_iter().map(|(path, _)| path).collect();
        break_rule(Some(Rule::Checksum));
        for path in files.iter().cycle().take(files.len() * effort()) {
            let bytes = whole.read_file(path).unwrap();
            let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
            for at in 0..used {
                if dice.below(ONE_IN) > 0 {
                    continue;
                }
                let image = whole.crash_image(&CrashChoice::Kill);
                let what = change_near(&image, path, &bytes, at, &mut dice);
                match catch_unwind(AssertUnwindSafe(|| use_any(&image))) {
                    Ok(Ok(())) => fine += 1,
                    Ok(Err(_)) => errors += 1,
                    Err(_) => panics.push(format!("{order:?}, {}:{what}", path.display())),
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
