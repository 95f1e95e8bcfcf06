//! Loads far above the usual: 100,000 tables, a snapshot held beside large appends, a reader that follows a million commits, and ten
//! million rows put into memory.

use crate::files;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use thalweg_env::{Env, OpenMode};
use thalweg_table::{CreateOptions, Durability, Engine, EngineOptions, Table, Value};

const TABLES: usize = 100_000;
/// Commits of one round, and rounds: databases take turns, because machines drift.
const COMMITS: usize = 2_000;
const DISK_COMMITS: usize = 50;
const ROUNDS: usize = 9;

fn schema(columns: usize) -> Schema {
    let values = (1..columns).map(|n| Field::new(format!("v{n}"), DataType::Float64, true));
    let time = Field::new("ts", DataType::Int64, false);
    Schema::new(std::iter::once(time).chain(values).collect::<Vec<_>>())
}

fn create(engine: &Engine, name: &str, columns: usize) -> Table {
    let options = CreateOptions::stream("ts");
    let table = engine.create_table(name, &schema(columns), &options);
    table.expect("a new table")
}

fn open(path: &Path, options: EngineOptions) -> Engine {
    Engine::open(Env::os(), path, options).expect("a database")
}

fn new(folder: &Path, name: &str) -> (PathBuf, Engine) {
    new_with(folder, name, EngineOptions::default())
}

fn new_with(folder: &Path, name: &str, options: EngineOptions) -> (PathBuf, Engine) {
    let path = folder.join(name);
    files::remove(&Env::os(), &path);
    let engine = open(&path, options);
    (path, engine)
}

/// Microseconds of one of `count` calls.
fn each_us(count: usize, mut call: impl FnMut(i64)) -> f64 {
    let env = Env::os();
    let start = files::now_us(&env);
    for n in 0..count {
        call(i64::try_from(n).expect("few"));
    }
    (files::now_us(&env) - start) / count as f64
}

/// Creation, commits and lookups with 100,000 tables beside those with one, the size at rest, and the time to open.
pub(crate) fn tables(folder: &Path) {
    files::make_folder(&Env::os(), folder);
    let (_, one) = new(folder, "one");
    let only = create(&one, "t0", 2);
    let options = EngineOptions {
        durability: Durability::Process,
        ..EngineOptions::default()
    };
    let (path, many) = new_with(folder, "many", options.clone());
    let created_us = each_us(TABLES, |n| {
        create(&many, &format!("t{n}"), 2);
    });
    figure!("tables: {:.0} created a second", 1e6 / created_us);
    let one_of_many = many.table("t50000").expect("there");
    let row = |n: i64| [Value::Int(n), Value::Float(0.5)];
    let put = |table: &Table, count, level| {
        each_us(count, |n| table.put(&row(n), Some(level)).expect("stored"))
    };
    let ratio = |what: &str, call: &dyn Fn(&Engine, &Table) -> f64| {
        let rounds = (0..ROUNDS).map(|_| (call(&one, &only), call(&many, &one_of_many)));
        let (alone, among): (Vec<f64>, Vec<f64>) = rounds.unzip();
        let (alone, among) = (files::median(alone), files::median(among));
        figure!(
            "tables: {what} {among:.2} us beside {alone:.2} us with one table, {:.2}",
            among / alone
        );
    };
    ratio("put", &|_, table| put(table, COMMITS, Durability::Process));
    ratio("put to disk", &|_, table| {
        put(table, DISK_COMMITS, Durability::Disk)
    });
    ratio("block of 10,000 rows", &|_, table| {
        let rows = batch(table, 10_000);
        each_us(20, |_| {
            let stored = table.append([Ok(rows.clone())], Some(Durability::Process));
            stored.expect("stored");
        })
    });
    ratio("lookup", &|engine, table| {
        let name = table.name().to_owned();
        each_us(COMMITS * 10, |_| {
            engine.table(&name).expect("there");
        })
    });
    drop(one_of_many);
    many.close().expect("closed");
    // What is written for the rows above is the same few MiB in a database of one table.
    one.close().expect("closed");
    let bytes = |path: &Path| files::bytes_of(&Env::os(), path);
    let of_tables = bytes(&path).saturating_sub(bytes(&folder.join("one")));
    figure!("tables: {} bytes each at rest", of_tables / TABLES as u64);
    let opened = (0..ROUNDS).map(|_| {
        let mut engine = None;
        let took_us = each_us(1, |_| engine = Some(open(&path, options.clone())));
        let names = engine.expect("open").table_names().expect("open");
        assert_eq!(names.len(), TABLES);
        took_us / 1e3
    });
    let opened: Vec<f64> = opened.collect();
    figure!("tables: opened in {:.0} ms", files::median(opened));
}

fn batch(table: &Table, rows: i64) -> RecordBatch {
    let times: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let values = (0..rows).map(|n| {
        f64::from_bits(
            (n.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12) | 1.0_f64.to_bits(),
        )
    });
    let values: ArrayRef = Arc::new(Float64Array::from_iter_values(values));
    RecordBatch::try_new(table.schema(), vec![times, values]).expect("two columns")
}

/// Most memory that appending 768 MB takes, without and with a snapshot of before held.
pub(crate) fn snapshot(folder: &Path) {
    files::make_folder(&Env::os(), folder);
    for held in [false, true] {
        let (_, engine) = new(folder, "snapshot");
        let table = create(&engine, "t", 2);
        let rows = batch(&table, 3_000_000);
        table
            .append([Ok(batch(&table, 1_000))], None)
            .expect("stored");
        let before = held.then(|| {
            (
                engine.snapshot().expect("open"),
                table.view().expect("open"),
            )
        });
        let resident = resident_bytes();
        let mut most = 0;
        for _ in 0..16 {
            table
                .append([Ok(rows.clone())], Some(Durability::Process))
                .expect("stored");
            most = most.max(resident_bytes());
        }
        figure!(
            "snapshot: 768 MB appended, {} held, {} MiB more resident",
            if held { "one" } else { "none" },
            most.saturating_sub(resident) >> 20
        );
        drop(before);
        engine.close().expect("closed");
    }
}

const FOLLOWED: u64 = 1_000_000;

/// A reader process that looks again and again beside a million commits of 64 columns.
pub(crate) fn reader(folder: &Path) {
    files::make_folder(&Env::os(), folder);
    let (path, engine) = new(folder, "reader");
    let table = create(&engine, "t", 64);
    let program = std::env::current_exe().expect("a path");
    let mut reader = Command::new(program);
    reader.arg("follow").arg(&path);
    let mut reader = reader.spawn().expect("a process");
    let mut row = vec![Value::Float(0.5); 64];
    let took_us = each_us(FOLLOWED as usize, |n| {
        row[0] = Value::Int(n);
        table.put(&row, Some(Durability::Process)).expect("stored");
    });
    figure!("reader: {:.0} commits a second beside it", 1e6 / took_us);
    let ended = reader.wait().expect("a process");
    assert!(ended.success(), "{ended}");
    engine.close().expect("closed");
}

/// The reader process: looks until it has seen all rows.
pub(crate) fn follow(path: &Path) {
    let options = EngineOptions {
        read_only: true,
        ..EngineOptions::default()
    };
    let engine = open(path, options);
    let (mut looks, mut seen) = (0_u64, 0);
    let (mut max_bytes, mut max_files) = (0, 0);
    while seen < FOLLOWED {
        let rows = engine.table("t").and_then(|table| table.view());
        let rows = rows.expect("there").row_count();
        assert!(rows >= seen, "rows went away");
        seen = rows;
        looks += 1;
        if looks % 64 == 0 {
            max_bytes = max_bytes.max(resident_bytes());
            let files = Env::os().storage().list_dir(Path::new("/proc/self/fd"));
            max_files = max_files.max(files.map_or(0, |files| files.len()));
        }
    }
    figure!(
        "reader: {looks} looks at {FOLLOWED} commits of 64 columns, at most {} MiB resident and {max_files} open files",
        max_bytes >> 20
    );
}

/// Single rows into a database in memory, and what is left of it.
pub(crate) fn memory() {
    const ROWS: usize = 10_000_000;
    let engine = Engine::in_memory(EngineOptions::default()).expect("memory");
    let before = resident_bytes();
    let table = create(&engine, "t", 2);
    let took_us = each_us(ROWS, |n| {
        table
            .put(&[Value::Int(n), Value::Float(0.5)], None)
            .expect("stored");
    });
    figure!(
        "memory: {:.2} million rows put a second, {} MiB more resident with all of them",
        1.0 / took_us,
        resident_bytes().saturating_sub(before) >> 20
    );
    engine.drop_table("t").expect("dropped");
    figure!(
        "memory: {} MiB more once they are dropped",
        resident_bytes().saturating_sub(before) >> 20
    );
}

/// Bytes of the process in main memory; zero where the system has no `/proc`.
fn resident_bytes() -> u64 {
    let env = Env::os();
    let path = Path::new("/proc/self/statm");
    let Ok(file) = env.storage().open(path, OpenMode::Read) else {
        return 0;
    };
    let mut text = [0; 256];
    let count = file.read_at(&mut text, 0).expect("readable");
    let text = std::str::from_utf8(&text[..count]).expect("digits");
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("a second number") * 4_096
}
