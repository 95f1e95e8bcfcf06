//! The model of a table, and random operations on both.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail the test that called them"
)]

mod deletes;
mod edits;
#[path = "../layouts/mod.rs"]
mod layouts;
pub(crate) mod operations;
pub(crate) mod stages;

pub(crate) use layouts::Order;
use operations::Operation;

use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int64Builder, StringBuilder, UInt64Builder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use thalweg_env::sim::SimEnv;
use thalweg_table::{
    AddedKeys, AggregateRequest, AppendLimits, Bucket, ColumnRange, ColumnSummary, CreateOptions,
    Durability, Engine, EngineOptions, Error, KeyRange, Maintained, ScanRequest, ScanTask, Table,
    TableView, Value, ValueRange,
};

/// Sequences of all tests together.
pub(crate) fn sequences() -> u32 {
    std::env::var("THALWEG_SEQUENCES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2_000)
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) ts: i64,
    pub(crate) number: u64,
    pub(crate) value: Option<f64>,
    pub(crate) text: Option<String>,
    pub(crate) flag: bool,
    /// Its value in a column that came later, if there is one.
    pub(crate) extra: Option<i64>,
}

/// How the times of new rows relate to those of old ones.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Times {
    Rising,
    Equal,
    Late,
    Anywhere,
    Future,
}

/// The rows of a table in order of arrival.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) rows: Vec<Row>,
    order: Order,
    /// The name and the default of a column that came later, if there is one.
    added: Option<(&'static str, i64)>,
    /// The number of the last append that had one.
    sequence: u64,
}

impl Model {
    pub(crate) fn new(order: Order) -> Self {
        Self {
            rows: Vec::new(),
            order,
            added: None,
            sequence: 0,
        }
    }

    fn key(&self, row: &Row) -> i64 {
        match self.order {
            Order::Time => row.ts,
            Order::Arrival => 0,
            Order::Hash => {
                { row.text.as_deref() }.map_or(0, |text| layouts::by_hash::hash(text.as_bytes()))
            }
        }
    }

    fn sorted(&self, keys: KeyRange) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self
            .rows
            .iter()
            .filter(|row| keys.contains(self.key(row)))
            .collect();
        rows.sort_by_key(|row| self.key(row));
        rows
    }

    fn ends(&self) -> Option<(i64, i64)> {
        let keys = || self.rows.iter().map(|row| self.key(row));
        Some((keys().min()?, keys().max()?))
    }

    /// A range between fractions of the present one, which may be empty or stick out.
    fn range(&self, from: u8, to: u8) -> KeyRange {
        let (first, last) = self.ends().unwrap_or((0, 0));
        let at = |part: u8| first - 20 + (last - first + 40) * i64::from(part) / 250;
        match (from, to) {
            (0..20, _) => KeyRange::half_open(None, Some(at(to))),
            (_, 0..20) => KeyRange::half_open(Some(at(from)), None),
            (250.., 250..) => KeyRange::ALL,
            _ => KeyRange::half_open(Some(at(from.min(to))), Some(at(from.max(to)))),
        }
    }
}

/// A table and its model.
pub(crate) struct Trial {
    sim: SimEnv,
    engine: Engine,
    table: Table,
    model: Model,
    kept: Vec<(TableView, Model)>,
    random: u64,
    now: i64,
    /// The number of the next row.
    number: u64,
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("number", DataType::UInt64, false),
        Field::new("value", DataType::Float64, true),
        Field::new("text", DataType::Utf8, true),
        Field::new("flag", DataType::Boolean, false),
    ]))
}

fn open(sim: &SimEnv) -> Engine {
    try_open(sim).unwrap()
}

fn try_open(sim: &SimEnv) -> Result<Engine, Error> {
    let append_limits = AppendLimits {
        raw_bytes: 2_000,
        gather_bytes: 16_000,
        group_bytes: 6_000,
        fragment_bytes: 8_000,
        split_fragment_bytes: 2_000,
    };
    let options = EngineOptions {
        background: false,
        segment_bytes: 256 << 10,
        append_limits,
        maintain_rows: 500,
        layouts: layouts::known(),
        ..EngineOptions::default()
    };
    Engine::open(sim.env(), Path::new("/db"), options)
}

impl Trial {
    pub(crate) fn new(model: Model, seed: u64, split: Option<&str>) -> Self {
        let options: Vec<_> = split.map(|split| ("split", split)).into_iter().collect();
        Self::with_options(model, seed, &options)
    }

    fn with_options(model: Model, seed: u64, more: &[(&str, &str)]) -> Self {
        let sim = SimEnv::new(seed);
        let engine = open(&sim);
        let options = model.order.options("TS", "TEXT").with("block_rows", 64);
        let with = |options: CreateOptions, (name, value): &(&str, &str)| options.with(name, value);
        let options = more.iter().fold(options, with);
        let table = engine.create_table("Events", &schema(), &options).unwrap();
        Self {
            sim,
            engine,
            table,
            model,
            kept: Vec::new(),
            random: seed,
            now: 1_000,
            number: 0,
        }
    }

    /// splitmix64.
    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    fn row(&mut self, times: Times) -> Row {
        let step = i64::try_from(self.random(4)).unwrap();
        let ts = match times {
            Times::Rising => {
                self.now += step;
                self.now
            }
            Times::Equal => self.now,
            Times::Late => self.now - 50 * step - i64::try_from(self.random(30)).unwrap(),
            Times::Anywhere => i64::try_from(self.random(4_000)).unwrap() - 1_000,
            Times::Future => {
                self.now += 200 * step;
                self.now
            }
        };
        let value = match self.random(12) {
            0 => None,
            1 => Some(f64::NAN),
            2 => Some(1e15),
            n => {
                Some(f64::from(u32::try_from(n * 1_000 + self.random(900)).unwrap()) / 100.0 - 50.0)
            }
        };
        let text = match self.random(5) {
            0 => None,
            n => Some("x".repeat(usize::try_from(n).unwrap()) + &self.random(100).to_string()),
        };
        let number = self.number;
        self.number += 1;
        Row {
            ts,
            number,
            value,
            text,
            flag: self.random(2) == 0,
            extra: self.model.added.map(|(_, default)| default),
        }
    }

    fn batch(&mut self, rows: usize, times: Times) -> RecordBatch {
        let first = self.model.rows.len();
        for _ in 0..rows {
            let row = self.row(times);
            self.model.rows.push(row);
        }
        to_batch(&self.model.rows[first..])
    }

    pub(crate) fn run(&mut self, operation: &Operation) {
        match operation {
            Operation::Append {
                batches,
                times,
                disk,
            } => {
                let batches: Vec<_> = batches
                    .iter()
                    .map(|rows| Ok(self.batch((*rows).into(), *times)))
                    .collect();
                let expected: usize = batches
                    .iter()
                    .map(|batch: &Result<RecordBatch, _>| batch.as_ref().unwrap().num_rows())
                    .sum();
                let durability = if *disk {
                    Durability::Disk
                } else {
                    Durability::Process
                };
                assert_eq!(
                    self.table.append(batches, Some(durability)).unwrap(),
                    expected as u64
                );
            }
            Operation::Put { rows, times } => {
                for _ in 0..*rows {
                    let row = self.row(*times);
                    self.table
                        .put(&to_values(&row), Some(Durability::Process))
                        .unwrap();
                    self.model.rows.push(row);
                }
            }
            Operation::Appender { rows, times } => {
                let mut appender = self.table.appender();
                for _ in 0..*rows {
                    let row = self.row(*times);
                    appender.put(&to_values(&row)).unwrap();
                    self.model.rows.push(row);
                }
                appender.flush().unwrap();
            }
            Operation::Flush => self.engine.flush().unwrap(),
            Operation::Checkpoint => self.engine.checkpoint().unwrap(),
            Operation::Maintain => {
                self.engine.maintain().unwrap();
                let view = self.table.view().unwrap();
                check_scan(&view, &self.model, &ScanRequest::default());
                let stats = view.stats().unwrap();
                assert_eq!((stats.late_rows, stats.open_rows), (0, 0));
                let hidden = view.snapshot().masks().map_or(0, |masks| masks.rows());
                assert_eq!(hidden, 0, "deleted rows are stored");
                assert_eq!(self.engine.maintain().unwrap(), Maintained::default());
            }
            Operation::Jobs => {
                self.engine.run_jobs().unwrap();
                let view = self.table.view().unwrap();
                check_scan(&view, &self.model, &ScanRequest::default());
                assert_eq!(self.engine.run_jobs().unwrap(), Maintained::default());
            }
            Operation::Reopen => {
                self.kept.clear();
                self.engine.close().unwrap();
                self.engine = open(&self.sim);
                self.table = self.engine.table("EVENTS").unwrap();
            }
            Operation::Keep => {
                if self.kept.len() < 3 {
                    self.kept
                        .push((self.table.view().unwrap(), self.model.clone()));
                }
            }
            Operation::CheckKept => {
                for (view, model) in &self.kept {
                    check_scan(view, model, &ScanRequest::default());
                }
            }
            Operation::Scan {
                from,
                to,
                limit,
                batch_rows,
                projection,
            } => {
                let places = match projection % 4 {
                    0 => Some(vec![1]),
                    1 => Some(vec![3, 1, 0]),
                    2 => Some(Vec::new()),
                    _ => None,
                };
                let request = ScanRequest {
                    projection: places,
                    keys: self.model.range(*from, *to),
                    limit: limit.map(usize::from),
                    batch_rows: (*batch_rows).into(),
                    ..ScanRequest::default()
                };
                check_scan(&self.table.view().unwrap(), &self.model, &request);
            }
            Operation::Partitions { count } => self.check_partitions((*count).into()),
            Operation::Aggregate {
                from,
                to,
                width,
                columns,
            } => {
                let origin = i64::try_from(self.random(1_000)).unwrap() - 500;
                let request = AggregateRequest {
                    keys: self.model.range(*from, *to),
                    bucket: width.map(|width| Bucket {
                        width: width.into(),
                        origin,
                    }),
                    columns: (0..5).filter(|column| columns >> column & 1 == 1).collect(),
                };
                check_aggregate(&self.table.view().unwrap(), &self.model, &request);
            }
            Operation::Pruned { from, to } => {
                let part = |part: u8| self.number * u64::from(part) / 255;
                check_pruned(
                    &self.table.view().unwrap(),
                    &self.model,
                    (part(*from.min(to)), part(*from.max(to))),
                );
                check_equal(&self.table.view().unwrap(), &self.model);
            }
            Operation::Delete {
                from,
                to,
                one_in,
                whole,
            } => {
                let rows = self.model.sorted(self.model.range(*from, *to));
                let hit = |row: &&&Row| row.number.is_multiple_of((*one_in).into());
                let victims: BTreeSet<u64> =
                    rows.iter().filter(hit).map(|row| row.number).collect();
                deletes::delete(&self.table.view().unwrap(), &victims, *whole);
                self.model.rows.retain(|row| !victims.contains(&row.number));
                let view = self.table.view().unwrap();
                assert_eq!(view.row_count(), self.model.rows.len() as u64);
            }
            Operation::DeletePicked { from, to, one_in } => {
                let (keys, victims) = self.victims(*from, *to, *one_in);
                let table = &self.table;
                let mut pick = || deletes::picked(&table.view()?, keys, &victims);
                let deleted = table.delete_picked(Some(Durability::Process), &mut pick);
                assert_eq!(deleted.unwrap(), victims.len() as u64);
                self.model.rows.retain(|row| !victims.contains(&row.number));
                let view = self.table.view().unwrap();
                assert_eq!(view.row_count(), self.model.rows.len() as u64);
            }
            Operation::Edit {
                from,
                to,
                one_in,
                times,
            } => {
                let (keys, victims) = self.victims(*from, *to, *one_in);
                let others = self.batch(victims.len(), *times);
                let table = &self.table;
                let edited =
                    table.edit_rows(Some(Durability::Process), AddedKeys::Any, &mut |stored| {
                        let half = others.num_rows() / 2;
                        stored.push(&others.slice(0, half))?;
                        stored.push(&others.slice(half, others.num_rows() - half))?;
                        deletes::picked(&table.view()?, keys, &victims)
                    });
                assert_eq!(edited.unwrap(), victims.len() as u64);
                self.model.rows.retain(|row| !victims.contains(&row.number));
                let view = self.table.view().unwrap();
                assert_eq!(view.row_count(), self.model.rows.len() as u64);
            }
            Operation::DeleteRange { from, to } => {
                let keys = self.model.range(*from, *to);
                let victims: BTreeSet<u64> = self
                    .model
                    .sorted(keys)
                    .iter()
                    .map(|row| row.number)
                    .collect();
                let deleted = self.table.delete_range(keys, Some(Durability::Process));
                assert_eq!(deleted.unwrap(), victims.len() as u64);
                self.model.rows.retain(|row| !victims.contains(&row.number));
                let view = self.table.view().unwrap();
                assert_eq!(view.row_count(), self.model.rows.len() as u64);
            }
            Operation::Addresses => deletes::check_addresses(&self.table.view().unwrap()),
        }
    }

    /// Keys between these parts of all, and of the rows with them one in so many.
    fn victims(&self, from: u8, to: u8, one_in: u8) -> (KeyRange, BTreeSet<u64>) {
        let keys = self.model.range(from, to);
        let numbers = self.model.sorted(keys).into_iter().map(|row| row.number);
        (
            keys,
            numbers
                .filter(|number| number.is_multiple_of(one_in.into()))
                .collect(),
        )
    }

    fn check_partitions(&self, count: usize) {
        let view = self.table.view().unwrap();
        let request = ScanRequest {
            projection: Some(vec![1]),
            ..ScanRequest::default()
        };
        let scans = view.scan_partitions(&request, count).unwrap();
        assert!(scans.len() <= count);
        let numbers: Vec<u64> = scans
            .into_iter()
            .flat_map(|scan| numbers(&collect(scan), 0))
            .collect();
        let expected: Vec<u64> = self
            .model
            .sorted(KeyRange::ALL)
            .iter()
            .map(|row| row.number)
            .collect();
        assert_eq!(numbers, expected);
    }

    /// Everything, also after opening anew.
    pub(crate) fn check_all(&mut self) {
        for _ in 0..2 {
            let view = self.table.view().unwrap();
            check_scan(&view, &self.model, &ScanRequest::default());
            check_aggregate(
                &view,
                &self.model,
                &AggregateRequest {
                    columns: (0..5).collect(),
                    ..AggregateRequest::default()
                },
            );
            assert_eq!(view.row_count(), self.model.rows.len() as u64);
            let keys = view.key_range().map(|keys| (keys.first, keys.last));
            let ends = self.model.ends();
            match (view.snapshot().masks(), keys, ends) {
                (Some(_), Some(keys), Some(ends)) => assert!(keys.0 <= ends.0 && ends.1 <= keys.1),
                (Some(_), _, None) => {}
                _ => assert_eq!(keys, ends),
            }
            let stats = view.stats().unwrap();
            assert_eq!(stats.rows, self.model.rows.len() as u64);
            assert_eq!(stats.min_key.zip(stats.max_key), ends);
            assert!(stats.late_rows <= stats.rows && stats.open_rows <= stats.rows);
            self.run(&Operation::CheckKept);
            self.run(&Operation::Reopen);
        }
    }
}

fn to_batch(rows: &[Row]) -> RecordBatch {
    let (mut ts, mut number, mut value) = (
        Int64Builder::new(),
        UInt64Builder::new(),
        Float64Builder::new(),
    );
    let (mut text, mut flag) = (StringBuilder::new(), BooleanBuilder::new());
    for row in rows {
        ts.append_value(row.ts);
        number.append_value(row.number);
        value.append_option(row.value);
        text.append_option(row.text.as_deref());
        flag.append_value(row.flag);
    }
    let columns: Vec<Arc<dyn Array>> = vec![
        Arc::new(ts.finish()),
        Arc::new(number.finish()),
        Arc::new(value.finish()),
        Arc::new(text.finish()),
        Arc::new(flag.finish()),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn to_values(row: &Row) -> [Value<'_>; 5] {
    [
        Value::Int(row.ts),
        Value::UInt(row.number),
        row.value.map_or(Value::Null, Value::Float),
        row.text.as_deref().map_or(Value::Null, Value::Text),
        Value::Bool(row.flag),
    ]
}

fn collect(scan: thalweg_table::Scan) -> Vec<RecordBatch> {
    scan.collect::<Result<_, _>>().unwrap()
}

fn numbers(batches: &[RecordBatch], column: usize) -> Vec<u64> {
    let values = |batch: &RecordBatch| {
        batch
            .column(column)
            .as_primitive::<UInt64Type>()
            .values()
            .to_vec()
    };
    batches.iter().flat_map(values).collect()
}

fn check_scan(view: &TableView, model: &Model, request: &ScanRequest) {
    let mut expected = model.sorted(request.keys);
    expected.truncate(request.limit.unwrap_or(usize::MAX));
    let scan = view.scan(request).unwrap();
    let batches = collect(scan);
    assert!(batches.iter().all(|batch| batch.num_rows() > 0));
    let max_rows = if request.batch_rows == 0 {
        usize::MAX
    } else {
        request.batch_rows
    };
    assert!(batches.iter().all(|batch| batch.num_rows() <= max_rows));
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, expected.len(), "rows of {request:?}");
    let places = request
        .projection
        .clone()
        .unwrap_or_else(|| (0..5).collect());
    if let Some(column) = places.iter().position(|place| *place == 1) {
        assert_eq!(
            numbers(&batches, column),
            expected.iter().map(|row| row.number).collect::<Vec<_>>(),
            "{request:?}"
        );
    }
    let schema = Arc::clone(view.scan(request).unwrap().schema());
    assert_eq!(
        rows_of_tasks(view, request),
        in_one(&schema, &batches),
        "{request:?}"
    );
    let mut rows = expected.iter();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let expected = rows.next().unwrap();
            for (column, place) in batch.columns().iter().zip(&places) {
                check_value(column, row, *place, expected);
            }
        }
    }
}

fn in_one(schema: &SchemaRef, batches: &[RecordBatch]) -> RecordBatch {
    concat_batches(schema, batches).unwrap()
}

/// The rows of the tasks that a scan was cut into, each after a journey as bytes.
fn rows_of_tasks(view: &TableView, request: &ScanRequest) -> RecordBatch {
    let tasks = view.scan_tasks(request, 3).unwrap();
    assert!(tasks.len() <= 3);
    let (mut schema, mut batches) = (None, Vec::new());
    for task in tasks {
        let message = task.encode().unwrap();
        let arrived = ScanTask::decode(view.engine(), &message).unwrap();
        assert_eq!(arrived.encode().unwrap(), message);
        assert_eq!(arrived.max_rows(), task.max_rows());
        let scan = arrived.run().unwrap();
        schema = Some(Arc::clone(scan.schema()));
        let rows = collect(scan);
        let count: usize = rows.iter().map(RecordBatch::num_rows).sum();
        assert!(count as u64 <= task.max_rows());
        batches.extend(rows);
    }
    let all = in_one(&schema.unwrap(), &batches);
    all.slice(0, all.num_rows().min(request.limit.unwrap_or(usize::MAX)))
}

/// Of the rows with the text of the first one each is found once.
fn check_equal(view: &TableView, model: &Model) {
    let Some(text) = { model.rows.iter() }.find_map(|row| row.text.as_deref()) else {
        return;
    };
    let value: Arc<[u8]> = text.as_bytes().into();
    let request = ScanRequest {
        projection: Some(vec![1, 3]),
        ranges: vec![ColumnRange {
            column: 3,
            range: ValueRange::Bytes {
                first: Some(Arc::clone(&value)),
                last: Some(value),
                is_open: false,
            },
        }],
        ..ScanRequest::default()
    };
    let scan = view.scan(&request).unwrap();
    let metrics = Arc::clone(scan.metrics());
    let batches = collect(scan);
    let mut found = Vec::new();
    for batch in &batches {
        let texts = batch.column(1).as_string::<i32>();
        let with_text = numbers(std::slice::from_ref(batch), 0)
            .into_iter()
            .zip(texts);
        found.extend(
            with_text.filter_map(|(number, found)| (found == Some(text)).then_some(number)),
        );
    }
    let rows = model.sorted(KeyRange::ALL);
    let wanted = rows.iter().filter(|row| row.text.as_deref() == Some(text));
    assert_eq!(found, wanted.map(|row| row.number).collect::<Vec<_>>());
    if model.order == Order::Hash {
        let total: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let key = layouts::by_hash::hash(text.as_bytes());
        let of_key = rows.iter().filter(|row| model.key(row) == key).count();
        assert!(total <= of_key, "{total} rows of {of_key}: {metrics:?}");
    }
}

/// Of the rows with numbers in a range each is found once, and none that is deleted.
fn check_pruned(view: &TableView, model: &Model, (least, most): (u64, u64)) {
    let request = ScanRequest {
        projection: Some(vec![1]),
        ranges: vec![ColumnRange {
            column: 1,
            range: ValueRange::UInt(Some(least), Some(most)),
        }],
        ..ScanRequest::default()
    };
    let found = numbers(&collect(view.scan(&request).unwrap()), 0);
    let is_wanted = |number: &u64| (least..=most).contains(number);
    let rows = model.sorted(KeyRange::ALL);
    let all: BTreeSet<u64> = rows.iter().map(|row| row.number).collect();
    assert!(found.iter().all(|number| all.contains(number)));
    let found: Vec<u64> = found.into_iter().filter(is_wanted).collect();
    let expected = rows.iter().map(|row| row.number).filter(is_wanted);
    assert_eq!(found, expected.collect::<Vec<_>>());
}

fn check_value(column: &Arc<dyn Array>, row: usize, place: usize, expected: &Row) {
    match place {
        0 => assert_eq!(column.as_primitive::<Int64Type>().value(row), expected.ts),
        1 => assert_eq!(
            column.as_primitive::<UInt64Type>().value(row),
            expected.number
        ),
        2 => {
            let found = column
                .is_valid(row)
                .then(|| column.as_primitive::<Float64Type>().value(row).to_bits());
            assert_eq!(found, expected.value.map(f64::to_bits));
        }
        3 => {
            let found = column
                .is_valid(row)
                .then(|| column.as_string::<i32>().value(row));
            assert_eq!(found, expected.text.as_deref());
        }
        _ => assert_eq!(column.as_boolean().value(row), expected.flag),
    }
}

fn check_aggregate(view: &TableView, model: &Model, request: &AggregateRequest) {
    let result = view.aggregate(request).unwrap();
    // What is left of blocks and items with deleted rows is known now.
    let again = view.aggregate(request).unwrap();
    assert_eq!(again.groups, result.groups, "{request:?}, again");
    let mut expected: BTreeMap<i64, Vec<&Row>> = BTreeMap::new();
    for row in model.sorted(request.keys) {
        let key = model.key(row);
        let start = request.bucket.map_or(request.keys.first, |bucket| {
            bucket.origin + (key - bucket.origin).div_euclid(bucket.width) * bucket.width
        });
        expected.entry(start).or_default().push(row);
    }
    if request.bucket.is_none() && expected.is_empty() {
        expected.insert(request.keys.first, Vec::new());
    }
    let starts: Vec<(i64, u64)> = result
        .groups
        .iter()
        .map(|group| (group.bucket_start, group.rows))
        .collect();
    assert_eq!(
        starts,
        expected
            .iter()
            .map(|(start, rows)| (*start, rows.len() as u64))
            .collect::<Vec<_>>(),
        "{request:?}"
    );
    for (group, rows) in result.groups.iter().zip(expected.values()) {
        for (place, summary) in request.columns.iter().zip(&group.columns) {
            check_summary(*place, summary, rows);
        }
    }
}

fn check_summary(place: usize, summary: &ColumnSummary, rows: &[&Row]) {
    assert_eq!(summary.rows(), rows.len() as u64);
    let integers = |values: Vec<i128>| {
        assert_eq!(summary.int_sum(), Some(values.iter().sum()));
        let range = values
            .iter()
            .min()
            .copied()
            .zip(values.iter().max().copied());
        let found = summary
            .int_range()
            .map(|(min, max)| (i128::from(min), i128::from(max)));
        let found = found.or_else(|| {
            summary
                .uint_range()
                .map(|(min, max)| (i128::from(min), i128::from(max)))
        });
        assert_eq!(found, range);
    };
    match place {
        0 => integers(rows.iter().map(|row| row.ts.into()).collect()),
        1 => integers(rows.iter().map(|row| row.number.into()).collect()),
        4 => integers(rows.iter().map(|row| row.flag.into()).collect()),
        2 => {
            let values: Vec<f64> = rows
                .iter()
                .filter_map(|row| row.value)
                .filter(|value| !value.is_nan())
                .collect();
            let nans = rows
                .iter()
                .filter(|row| row.value.is_some_and(f64::is_nan))
                .count();
            assert_eq!(
                (summary.value_rows, summary.nan_rows),
                (values.len() as u64, nans as u64)
            );
            let magnitude: f64 = values.iter().map(|value| value.abs()).sum();
            let sum: f64 = values.iter().sum();
            assert!((summary.float_sum().unwrap() - sum).abs() <= 1e-12 * magnitude);
            let range = values
                .iter()
                .copied()
                .reduce(f64::min)
                .zip(values.iter().copied().reduce(f64::max));
            assert_eq!(summary.float_range(), range);
        }
        _ => {
            let nulls = rows.iter().filter(|row| row.text.is_none()).count();
            assert_eq!(summary.null_rows, nulls as u64);
        }
    }
}
