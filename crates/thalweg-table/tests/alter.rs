//! Tables whose columns come, go and change, against a plain model: random changes between appends, updates, maintenance and openings.
//!
//! The oracle: a row has, in each column, the value that it was stored with, the default of that time where it was stored without
//! one, and the first default of the column where it is older than the column.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests")]

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::Env;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_table::{
    AddedKeys, AggregateRequest, Alteration, AppendLimits, Constant, CreateOptions, Durability,
    Engine, EngineOptions, ErrorKind, KeyRange, PickedRows, PlacedRows, RowsToDelete, ScanRequest,
    Table, Value, constant_of,
};

const PROCESS: Option<Durability> = Some(Durability::Process);

#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Null,
    Whole(i64),
    Float(f64),
    Text(String),
}

#[derive(Clone, Debug)]
struct ModelColumn {
    /// Never given again.
    number: usize,
    name: String,
    data_type: DataType,
    default: Cell,
    is_nullable: bool,
}

/// Rows by ascending time, each with its cells by the numbers of columns.
#[derive(Clone, Debug, Default)]
struct Model {
    columns: Vec<ModelColumn>,
    rows: Vec<BTreeMap<usize, Cell>>,
    numbers: usize,
}

#[derive(Clone, Debug)]
enum Operation {
    Append { rows: u16, without: u8 },
    Add { kind: u8, has_default: bool },
    Drop(u8),
    Rename(u8),
    Widen(u8),
    SetDefault(u8, bool),
    SetOption(u8),
    Update(u8),
    Maintain,
    Checkpoint,
    Reopen,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        8 => (1_u16..300, any::<u8>()).prop_map(|(rows, without)| Operation::Append { rows, without }),
        4 => (0_u8..6, any::<bool>()).prop_map(|(kind, has_default)| Operation::Add { kind, has_default }),
        2 => any::<u8>().prop_map(Operation::Drop),
        1 => any::<u8>().prop_map(Operation::Rename),
        3 => any::<u8>().prop_map(Operation::Widen),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(at, is_null)| Operation::SetDefault(at, is_null)),
        2 => any::<u8>().prop_map(Operation::SetOption),
        2 => (1_u8..5).prop_map(Operation::Update),
        1 => Just(Operation::Maintain),
        1 => Just(Operation::Checkpoint),
        1 => Just(Operation::Reopen),
    ];
    prop::collection::vec(operation, 1..40)
}

const TYPES: [DataType; 6] = [
    DataType::Int8,
    DataType::Int32,
    DataType::UInt16,
    DataType::Float32,
    DataType::Utf8,
    DataType::Int64,
];

fn wider(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Int8 => DataType::Int16,
        DataType::Int16 => DataType::Int32,
        DataType::Int32 => DataType::Int64,
        DataType::UInt16 => DataType::UInt32,
        DataType::Float32 => DataType::Float64,
        _ => return None,
    })
}

/// A value that all types of a kind have.
fn cell(data_type: &DataType, seed: usize) -> Cell {
    let small = i64::try_from(seed % 100).unwrap();
    match data_type {
        DataType::Utf8 => Cell::Text(format!("text {small}")),
        DataType::Float32 | DataType::Float64 => Cell::Float(small as f64 / 4.0),
        _ => Cell::Whole(small),
    }
}

fn array(cells: &[Cell], data_type: &DataType) -> ArrayRef {
    let whole = |cell: &Cell| match cell {
        Cell::Whole(value) => Some(*value),
        _ => None,
    };
    let float = |cell: &Cell| match cell {
        Cell::Float(value) => Some(*value),
        _ => None,
    };
    let text = |cell: &Cell| match cell {
        Cell::Text(value) => Some(value.clone()),
        _ => None,
    };
    let array: ArrayRef = match data_type {
        DataType::Utf8 => Arc::new(cells.iter().map(text).collect::<StringArray>()),
        DataType::Float32 | DataType::Float64 => {
            Arc::new(cells.iter().map(float).collect::<Float64Array>())
        }
        _ => Arc::new(cells.iter().map(whole).collect::<Int64Array>()),
    };
    cast(&array, data_type).unwrap()
}

fn cells(array: &ArrayRef) -> Vec<Cell> {
    fn all<T>(values: impl Iterator<Item = Option<T>>, cell: impl Fn(T) -> Cell) -> Vec<Cell> {
        values
            .map(|value| value.map_or(Cell::Null, &cell))
            .collect()
    }
    match array.data_type() {
        DataType::Utf8 => all(array.as_string::<i32>().iter(), |text| {
            Cell::Text(text.to_owned())
        }),
        DataType::Float32 | DataType::Float64 => {
            let floats = cast(array, &DataType::Float64).unwrap();
            all(floats.as_primitive::<Float64Type>().iter(), Cell::Float)
        }
        _ => {
            let numbers = cast(array, &DataType::Int64).unwrap();
            all(numbers.as_primitive::<Int64Type>().iter(), Cell::Whole)
        }
    }
}

fn constant(cell: &Cell, data_type: &DataType) -> Option<Constant> {
    constant_of(
        "c",
        &array(std::slice::from_ref(cell), data_type),
        data_type,
    )
    .unwrap()
}

fn open(sim: &SimEnv) -> Engine {
    let append_limits = AppendLimits {
        raw_bytes: 2_000,
        gather_bytes: 16_000,
        group_bytes: 6_000,
        fragment_bytes: 8_000,
        split_fragment_bytes: 2_000,
    };
    let options = EngineOptions {
        background: false,
        append_limits,
        maintain_rows: 500,
        ..EngineOptions::default()
    };
    Engine::open(sim.env(), Path::new("/db"), options).unwrap()
}

fn create(engine: &Engine) -> (Table, Model) {
    let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
    let options = CreateOptions::stream("ts").with("block_rows", "64");
    let table = engine.create_table("t", &schema, &options).unwrap();
    let time = ModelColumn {
        number: 0,
        name: "ts".to_owned(),
        data_type: DataType::Int64,
        default: Cell::Null,
        is_nullable: false,
    };
    let model = Model {
        columns: vec![time],
        rows: Vec::new(),
        numbers: 1,
    };
    (table, model)
}

impl Model {
    /// The place of some column but the time.
    fn place(&self, at: u8) -> Option<usize> {
        let others = self.columns.len() - 1;
        (others > 0).then(|| 1 + usize::from(at) % others)
    }

    fn append(&mut self, table: &Table, rows: u16, without: u8) {
        let first = self.rows.len();
        let given = |place: usize| place == 0 || without >> (place % 8) & 1 == 0;
        for number in first..first + usize::from(rows) {
            let value = |(place, column): (usize, &ModelColumn)| {
                let cell = match given(place) {
                    false => column.default.clone(),
                    true if place == 0 => Cell::Whole(i64::try_from(number).unwrap()),
                    true if column.is_nullable && number % 7 == 3 => Cell::Null,
                    true => cell(&column.data_type, number + place),
                };
                (column.number, cell)
            };
            let row = self.columns.iter().enumerate().map(value).collect();
            self.rows.push(row);
        }
        let mut fields = Vec::new();
        let mut arrays = Vec::new();
        for (place, column) in self
            .columns
            .iter()
            .enumerate()
            .filter(|(place, _)| given(*place))
        {
            let cells: Vec<Cell> = self.rows[first..]
                .iter()
                .map(|row| row[&column.number].clone())
                .collect();
            fields.push(Field::new(
                &column.name,
                column.data_type.clone(),
                place > 0,
            ));
            arrays.push(array(&cells, &column.data_type));
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
        table.append([Ok(batch)], PROCESS).unwrap();
    }

    /// Stores one of so many rows anew, with another value in the last column.
    fn update(&mut self, table: &Table, one_in: u8) {
        let Some(column) = self
            .columns
            .last()
            .filter(|column| column.number > 0)
            .cloned()
        else {
            return;
        };
        let is_hit = |number: usize| number.is_multiple_of(usize::from(one_in));
        for (number, row) in self.rows.iter_mut().enumerate() {
            if is_hit(number) {
                row.insert(column.number, cell(&column.data_type, number + 50));
            }
        }
        let place = self.columns.len() - 1;
        let updated = table.edit_rows(PROCESS, AddedKeys::Any, &mut |stored| {
            let view = table.view()?;
            let rows = Arc::new(PlacedRows::new(&view, &ScanRequest::default())?);
            let mut picked = PickedRows::default();
            let reader = rows.reader()?;
            for piece in 0..rows.pieces() {
                for (batch, places) in reader.read(piece)? {
                    let times = batch.column(0).as_primitive::<Int64Type>().values();
                    for (row, time) in times.iter().enumerate() {
                        let number = usize::try_from(*time).unwrap();
                        if is_hit(number) {
                            picked.add(&[places.value(row)]);
                            let value = cell(&column.data_type, number + 50);
                            let mut columns = batch.slice(row, 1).columns().to_vec();
                            columns[place] = array(&[value], &column.data_type);
                            stored.push(&RecordBatch::try_new(batch.schema(), columns).unwrap())?;
                        }
                    }
                }
            }
            Ok(RowsToDelete::Picked(rows, picked))
        });
        let hit = (0..self.rows.len())
            .filter(|number| is_hit(*number))
            .count();
        assert_eq!(updated.unwrap(), hit as u64);
    }

    fn alter(&mut self, table: &Table, operation: &Operation) {
        let alteration = match operation {
            Operation::Add { kind, has_default } => {
                let number = self.numbers;
                self.numbers += 1;
                let data_type = TYPES[usize::from(*kind)].clone();
                let default = match has_default {
                    true => cell(&data_type, number * 13),
                    false => Cell::Null,
                };
                // Only a column with a default may come without nulls.
                let column = ModelColumn {
                    number,
                    name: format!("c{number}"),
                    is_nullable: !(*has_default && number.is_multiple_of(2)),
                    default,
                    data_type,
                };
                self.rows
                    .iter_mut()
                    .for_each(|row| _ = row.insert(number, column.default.clone()));
                let alteration = Alteration::AddColumn {
                    field: Field::new(&column.name, column.data_type.clone(), column.is_nullable),
                    default: constant(&column.default, &column.data_type),
                    if_not_exists: false,
                };
                self.columns.push(column);
                alteration
            }
            Operation::Drop(at) => {
                let Some(place) = self.place(*at) else { return };
                let name = self.columns.remove(place).name.to_uppercase();
                let if_exists = false;
                Alteration::DropColumn { name, if_exists }
            }
            Operation::Rename(at) => {
                let Some(place) = self.place(*at) else { return };
                let to = format!("r{}", self.numbers);
                self.numbers += 1;
                let name = std::mem::replace(&mut self.columns[place].name, to.clone());
                Alteration::RenameColumn { name, to }
            }
            Operation::Widen(at) => {
                let Some(place) = self.place(*at) else { return };
                let column = &mut self.columns[place];
                let Some(data_type) = wider(&column.data_type) else {
                    return;
                };
                column.data_type = data_type.clone();
                let name = column.name.clone();
                Alteration::WidenColumn { name, data_type }
            }
            Operation::SetDefault(at, is_null) => {
                let Some(place) = self.place(*at) else { return };
                let column = &mut self.columns[place];
                column.default = match *is_null && column.is_nullable {
                    true => Cell::Null,
                    false => cell(&column.data_type, usize::from(*at)),
                };
                let name = column.name.clone();
                let data_type = column.data_type.clone();
                let default = constant(&column.default, &data_type);
                Alteration::SetDefault {
                    name,
                    default,
                    data_type,
                }
            }
            Operation::SetOption(at) => {
                let column = self
                    .columns
                    .get(usize::from(at / 4))
                    .map(|it| it.name.clone());
                let (name, value) = match at % 4 {
                    0 => ("block_rows", Some((64 + u32::from(*at)).to_string())),
                    1 => (
                        "summaries",
                        Some(column.unwrap_or_else(|| "all".to_owned())),
                    ),
                    2 => ("Summaries", at.is_multiple_of(8).then(|| "none".to_owned())),
                    _ => ("BLOCK_ROWS", None),
                };
                let name = name.to_owned();
                Alteration::SetOption { name, value }
            }
            other => panic!("{other:?} is no change of columns"),
        };
        table.alter(&[alteration]).unwrap();
    }

    fn check(&self, table: &Table) {
        let view = table.view().unwrap();
        let schema = view.schema();
        let names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
        assert_eq!(
            names,
            self.columns
                .iter()
                .map(|column| &column.name)
                .collect::<Vec<_>>()
        );
        let mut row = 0;
        for batch in view.scan(&ScanRequest::default()).unwrap() {
            let batch = batch.unwrap();
            for (column, array) in self.columns.iter().zip(batch.columns()) {
                assert_eq!(array.data_type(), &column.data_type);
                for (at, cell) in cells(array).into_iter().enumerate() {
                    assert_eq!(
                        cell,
                        self.rows[row + at][&column.number],
                        "row {} of {column:?}",
                        row + at
                    );
                }
            }
            row += batch.num_rows();
        }
        assert_eq!(row, self.rows.len());
        let request = AggregateRequest {
            columns: (0..self.columns.len()).collect(),
            ..AggregateRequest::default()
        };
        let groups = view.aggregate(&request).unwrap().groups;
        for (column, summary) in self.columns.iter().zip(&groups[0].columns) {
            let of_column = self.rows.iter().map(|row| &row[&column.number]);
            let values = of_column
                .clone()
                .filter(|cell| **cell != Cell::Null)
                .count();
            assert_eq!(summary.value_rows, values as u64, "{column:?}");
            let whole = of_column.map(|cell| match cell {
                Cell::Whole(value) => *value,
                _ => 0,
            });
            if column.data_type.is_integer() {
                assert_eq!(
                    summary.sum.cast_signed(),
                    i128::from(whole.sum::<i64>()),
                    "{column:?}"
                );
            }
        }
    }
}

fn run(seed: u64, operations: &[Operation]) {
    let sim = SimEnv::new(seed);
    let mut engine = open(&sim);
    let (mut table, mut model) = create(&engine);
    // A second handle, which learns of nothing.
    let mut other = engine.table("t").unwrap();
    for (at, operation) in operations.iter().enumerate() {
        let handle = if at % 2 == 0 { &table } else { &other };
        match operation {
            Operation::Append { rows, without } => model.append(handle, *rows, *without),
            Operation::Update(one_in) => model.update(handle, *one_in),
            Operation::Maintain => _ = handle.maintain().unwrap(),
            Operation::Checkpoint => engine.checkpoint().unwrap(),
            Operation::Reopen => {
                engine.close().unwrap();
                engine = open(&sim);
                table = engine.table("t").unwrap();
                other = engine.table("t").unwrap();
            }
            change => {
                let before = table.view().unwrap();
                let rows = before.row_count();
                let columns = before.schema().fields().len();
                model.alter(handle, change);
                // A view from before sees the columns of before.
                let scanned = before.scan(&ScanRequest::default()).unwrap();
                let scanned: usize = scanned
                    .map(|batch| {
                        let batch = batch.unwrap();
                        assert_eq!(batch.num_columns(), columns);
                        batch.num_rows()
                    })
                    .sum();
                assert_eq!(scanned as u64, rows);
            }
        }
        if at % 5 == 0 {
            model.check(&table);
        }
    }
    model.check(&table);
}

#[test]
fn rows_have_the_values_that_their_columns_had() {
    let config = Config {
        cases: 400,
        failure_persistence: None,
        ..Config::default()
    };
    let result =
        TestRunner::new(config).run(&(any::<u64>(), operations()), |(seed, operations)| {
            run(seed, &operations);
            Ok(())
        });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// A durable change of columns is there after a power cut, and rows that came after it.
#[test]
fn a_durable_change_of_columns_survives_a_power_cut() {
    let sim = SimEnv::new(1);
    let engine = open(&sim);
    let (table, mut model) = create(&engine);
    model.append(&table, 100, 0);
    model.alter(
        &table,
        &Operation::Add {
            kind: 0,
            has_default: true,
        },
    );
    model.append(&table, 10, 0);
    engine.flush().unwrap();
    model.alter(
        &table,
        &Operation::Add {
            kind: 4,
            has_default: true,
        },
    );
    let image = sim.crash_image(&CrashChoice::DropAll);
    model.check(&open(&image).table("t").unwrap());
}

#[test]
fn appends_beside_changes_of_options_are_stored_once() {
    let engine = Engine::in_memory(EngineOptions {
        append_limits: AppendLimits {
            raw_bytes: 2_000,
            gather_bytes: 64_000,
            ..AppendLimits::default()
        },
        ..EngineOptions::default()
    });
    let engine = engine.unwrap();
    let schema = Schema::new(vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("v", DataType::Int64, true),
    ]);
    let table = engine
        .create_table("t", &schema, &CreateOptions::stream("ts"))
        .unwrap();
    let set = |name: &str, value: Option<u32>| {
        let (name, value) = (name.to_owned(), value.map(|value| value.to_string()));
        table
            .alter(&[Alteration::SetOption { name, value }])
            .unwrap();
    };
    let appended = |from: i64| {
        let table = engine.table("t").unwrap();
        for round in 0..60 {
            let first = from + round * 1_000;
            let times: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 500));
            let batch = RecordBatch::try_new(table.schema(), vec![Arc::clone(&times), times]);
            table.append([Ok(batch.unwrap())], None).unwrap();
            table
                .put(&[Value::Int(first + 500), Value::Int(first + 500)], None)
                .unwrap();
        }
    };
    std::thread::scope(|scope| {
        let writers = [
            scope.spawn(|| appended(0)),
            scope.spawn(|| appended(1_000_000)),
        ];
        let mut round = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            set("block_rows", Some(64 + round % 1_000));
            set("block_rows", None);
            // Without a pause an append may lose all of its attempts.
            Env::os().clock().sleep(Duration::from_millis(2));
            if round % 8 == 0 {
                table.maintain().unwrap();
            }
            round += 1;
        }
        for writer in writers {
            writer.join().unwrap();
        }
    });
    table.maintain().unwrap();
    let request = ScanRequest::default();
    let mut found: Vec<i64> = Vec::new();
    for batch in table.view().unwrap().scan(&request).unwrap() {
        let batch = batch.unwrap();
        found.extend(batch.column(0).as_primitive::<Int64Type>().values());
    }
    let all = |from: i64| {
        (0..60).flat_map(move |round| {
            let first = from + round * 1_000;
            first..=first + 500
        })
    };
    assert!(found.iter().copied().eq(all(0).chain(all(1_000_000))));
}

#[test]
fn options_change_to_what_makes_sense() {
    let engine = open(&SimEnv::new(1));
    let (table, _) = create(&engine);
    for (name, value, kind) in [
        ("block_rows", Some("7"), ErrorKind::Invalid),
        ("block_rows", Some("x"), ErrorKind::Invalid),
        ("summaries", Some("nothing"), ErrorKind::NotFound),
        ("retention", Some("1 day"), ErrorKind::Invalid),
        ("layout", Some("stream"), ErrorKind::Schema),
        ("time", Some("ts"), ErrorKind::Schema),
        ("split", None, ErrorKind::Schema),
        ("nothing", None, ErrorKind::Invalid),
        ("index", Some("v"), ErrorKind::Unsupported),
    ] {
        let set = Alteration::SetOption {
            name: name.to_owned(),
            value: value.map(str::to_owned),
        };
        let before = table.view().unwrap().snapshot().definition_version;
        let error = table.alter(&[set]).unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.message().starts_with("table \"t\": "), "{error}");
        assert_eq!(table.view().unwrap().snapshot().definition_version, before);
    }
    // What changes nothing makes no new version.
    let before = table.view().unwrap().snapshot().definition_version;
    let reset = ["retention", "Summaries"].map(|name| Alteration::SetOption {
        name: name.to_owned(),
        value: None,
    });
    table.alter(&reset).unwrap();
    assert_eq!(table.view().unwrap().snapshot().definition_version, before);
}

#[test]
fn columns_that_keys_come_from_stay() {
    let engine = open(&SimEnv::new(1));
    let (table, _) = create(&engine);
    let name = || "TS".to_owned();
    for (alteration, kind) in [
        (
            Alteration::DropColumn {
                name: name(),
                if_exists: true,
            },
            ErrorKind::Schema,
        ),
        (Alteration::AllowNulls { name: name() }, ErrorKind::Schema),
        (
            Alteration::DropColumn {
                name: "v".into(),
                if_exists: false,
            },
            ErrorKind::NotFound,
        ),
        (
            Alteration::AddColumn {
                field: Field::new("Ts", DataType::Int8, true),
                default: None,
                if_not_exists: false,
            },
            ErrorKind::AlreadyExists,
        ),
        (
            Alteration::AddColumn {
                field: Field::new("v", DataType::Int8, false),
                default: None,
                if_not_exists: false,
            },
            ErrorKind::Schema,
        ),
    ] {
        assert_eq!(
            table
                .alter(std::slice::from_ref(&alteration))
                .unwrap_err()
                .kind(),
            kind,
            "{alteration:?}"
        );
    }
    let rename = Alteration::RenameColumn {
        name: name(),
        to: "time".to_owned(),
    };
    table.alter(&[rename]).unwrap();
    assert_eq!(table.definition().order_column().unwrap().name, "time");
    // A handle and an appender that know the old columns learn of new ones.
    let other = engine.table("t").unwrap();
    let mut appender = other.appender();
    let field = Field::new("v", DataType::Int8, true);
    let add = Alteration::AddColumn {
        field,
        default: None,
        if_not_exists: false,
    };
    table.alter(&[add]).unwrap();
    appender.put(&[Value::Int(1), Value::Int(2)]).unwrap();
    appender.flush().unwrap();
    assert_eq!(other.view().unwrap().row_count(), 1);
    let keys = table.view().unwrap().scan(&ScanRequest {
        keys: KeyRange::ALL,
        ..ScanRequest::default()
    });
    assert_eq!(keys.unwrap().count(), 1);
}
