//! What one table costs among many: to make, to write to, to find, to open, to keep in memory; and what a snapshot keeps.
//!
//! `cargo run --release -p thalweg-table --example many_tables -- [tables] [directory] [parts]`
//!
//! `parts` is any of `create`, `use`, `open`, `full` (every table has a block) and `snapshot`; and `again`, which opens ten
//! times what `open` or `full` left (for a profiler). Every figure for many tables
//! stands beside the same figure for one. Times are the best of several rounds: this is about what grows with the number
//! of tables, not about the machine.

mod common;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use common::remove;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_env::{Env, OpenMode};
use thalweg_table::{
    AppendLimits, CreateOptions, Durability, Engine, EngineOptions, Error, Result, Table, Value,
};

const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let tables = arguments.next().and_then(|text| text.parse().ok());
    let directory = arguments.next().map(PathBuf::from);
    let parts = arguments.next();
    let bench = Bench {
        env: Env::os(),
        directory: directory.unwrap_or_else(|| std::env::temp_dir().join("thalweg-tables")),
        tables: tables.unwrap_or(100_000),
    };
    let parts = parts.unwrap_or_else(|| "create,use,open,full,snapshot".to_owned());
    for part in parts.split(',') {
        match part {
            "create" => bench.create()?,
            "use" => bench.use_tables()?,
            "open" => bench.open("empty tables", false)?,
            "full" => bench.open("tables with a block each", true)?,
            "snapshot" => bench.snapshot()?,
            "killed" => bench.killed()?,
            "again" => bench.open_again()?,
            other => println!("there is no part {other}"),
        }
    }
    Ok(())
}

struct Bench {
    env: Env,
    directory: PathBuf,
    tables: usize,
}

#[derive(Clone, Copy)]
struct Moment {
    wall_ns: u64,
    ran_ns: u64,
}

#[derive(Clone, Copy)]
struct Took {
    wall_us: f64,
    ran_us: f64,
}

impl Took {
    const NEVER: Self = Self {
        wall_us: f64::INFINITY,
        ran_us: f64::INFINITY,
    };

    #[expect(clippy::cast_precision_loss, reason = "an average for people")]
    fn by(self, calls: usize) -> Self {
        Self {
            wall_us: self.wall_us / calls as f64,
            ran_us: self.ran_us / calls as f64,
        }
    }
}

impl std::fmt::Display for Took {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (wall, ran) = (self.wall_us, self.ran_us);
        write!(f, "{wall:>10.2} us ({ran:.2} us in its thread)")
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("temperature", DataType::Float64, true),
        Field::new("pressure", DataType::Float64, true),
    ]))
}

fn batch(first: i64, rows: i64) -> Result<RecordBatch> {
    let keys = first..first + rows;
    #[expect(clippy::cast_precision_loss, reason = "any values do")]
    let values = || Float64Array::from_iter_values(keys.clone().map(|key| (key % 97) as f64));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(keys.clone())),
        Arc::new(values()),
        Arc::new(values()),
    ];
    RecordBatch::try_new(schema(), columns).map_err(|e| Error::corruption("a batch", e))
}

fn row(key: i64) -> [Value<'static>; 3] {
    [Value::Int(key), Value::Float(20.5), Value::Float(1.0)]
}

fn name(table: usize) -> String {
    format!("plant_7/sensor_{table}")
}

impl Bench {
    /// The clock, and what the main thread ran: of use on a busy machine, 0 where the system does not tell.
    fn now(&self) -> Moment {
        let text = self.read_text("/proc/thread-self/schedstat");
        let ran_ns = text
            .split_whitespace()
            .next()
            .and_then(|ns| ns.parse().ok());
        Moment {
            wall_ns: self.env.clock().monotonic_ns(),
            ran_ns: ran_ns.unwrap_or(0),
        }
    }

    fn since(&self, start: Moment) -> Took {
        let now = self.now();
        #[expect(clippy::cast_precision_loss, reason = "a duration for people")]
        let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
        Took {
            wall_us: us(start.wall_ns, now.wall_ns),
            ran_us: us(start.ran_ns, now.ran_ns),
        }
    }

    fn read_text(&self, path: &str) -> String {
        let mut text = [0; 256];
        let file = self.env.storage().open(Path::new(path), OpenMode::Read);
        let length = file
            .and_then(|file| file.read_at(&mut text, 0))
            .unwrap_or(0);
        String::from_utf8_lossy(&text[..length]).into_owned()
    }

    /// What each of `calls` calls took.
    fn each(&self, calls: usize, mut call: impl FnMut(usize) -> Result<()>) -> Result<Took> {
        let start = self.now();
        (0..calls).try_for_each(&mut call)?;
        Ok(self.since(start).by(calls))
    }

    /// The best of several rounds.
    fn best(&self, calls: usize, mut call: impl FnMut(usize) -> Result<()>) -> Result<Took> {
        let mut best = Took::NEVER;
        for round in 0..ROUNDS {
            let took = self.each(calls, |n| call(round * calls + n))?;
            best.wall_us = best.wall_us.min(took.wall_us);
            best.ran_us = best.ran_us.min(took.ran_us);
        }
        Ok(best)
    }

    fn options(durability: Durability) -> EngineOptions {
        EngineOptions {
            durability,
            // A few rows are blocks then, and one is stored raw.
            append_limits: AppendLimits {
                raw_bytes: 64,
                ..AppendLimits::default()
            },
            ..EngineOptions::default()
        }
    }

    fn open_at(&self, path: &Path, durability: Durability) -> Result<Engine> {
        Engine::open(self.env.clone(), path, Self::options(durability))
    }

    /// A new database with so many tables.
    fn fresh(&self, label: &str, tables: usize) -> Result<(Engine, PathBuf)> {
        let path = self.directory.join(label);
        remove(&self.env, &path);
        self.env
            .storage()
            .create_dir_all(&self.directory)
            .map_err(|e| Error::io("creating the directory", e))?;
        let engine = self.open_at(&path, Durability::Process)?;
        for table in 0..tables {
            engine.create_table(&name(table), &schema(), &CreateOptions::stream("ts"))?;
        }
        Ok((engine, path))
    }

    /// Resident bytes of this process; 0 where the system does not tell.
    fn resident_bytes(&self) -> u64 {
        let text = self.read_text("/proc/self/statm");
        let pages = text.split_whitespace().nth(1);
        let pages = pages.and_then(|pages| pages.parse::<u64>().ok());
        pages.unwrap_or(0) * 4_096
    }

    fn create(&self) -> Result<()> {
        let (engine, _) = self.fresh("create", 0)?;
        let before = self.resident_bytes();
        let create = |n: usize| {
            let made = engine.create_table(&name(n), &schema(), &CreateOptions::stream("ts"));
            made.map(|_| ())
        };
        let tenth = self.tables / 10;
        for part in 0..10 {
            let took = self.each(tenth, |n| create(part * tenth + n))?;
            println!(
                "create, Process, up to {:>7} tables {took} each",
                (part + 1) * tenth
            );
        }
        let bytes = self.resident_bytes() - before;
        println!(
            "memory of an idle table {:>30} bytes",
            bytes / self.tables as u64
        );
        let took = self.each(1_000, |n| {
            engine.drop_table(&name(n * (self.tables / 1_000)))
        })?;
        println!("drop one of many {took} each");
        let missing = self.best(1_000, |_| match engine.table("no such table") {
            Err(_) => Ok(()),
            Ok(_) => unreachable!("nobody made it"),
        })?;
        println!("look for a table that is missing {missing} each");
        engine.close()?;
        let engine = self.open_at(&self.directory.join("create"), Durability::Disk)?;
        let took = self.each(1_000, |n| {
            let name = format!("disk_{n}");
            engine
                .create_table(&name, &schema(), &CreateOptions::stream("ts"))
                .map(|_| ())
        })?;
        println!("create, Disk {took} each");
        engine.close()
    }

    fn use_tables(&self) -> Result<()> {
        let mut single = Vec::new();
        for tables in [1, self.tables] {
            let (engine, _) = self.fresh("use", tables)?;
            engine.checkpoint()?;
            let table = engine.table(&name(tables / 2))?;
            let figures = self.use_one(&engine, &table, tables)?;
            for (at, (what, took)) in figures.iter().enumerate() {
                let one: Took = single.get(at).copied().unwrap_or(*took);
                println!(
                    "{tables:>7} tables: {what:<30} {took}, {:.2} ({:.2}) of one",
                    took.wall_us / one.wall_us,
                    took.ran_us / one.ran_us
                );
            }
            single = figures.into_iter().map(|(_, took)| took).collect();
            engine.close()?;
        }
        Ok(())
    }

    fn use_one(
        &self,
        engine: &Engine,
        table: &Table,
        tables: usize,
    ) -> Result<Vec<(&'static str, Took)>> {
        let key = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let put = |durability| move |n| table.put(&row(key(n)), Some(durability));
        let group = |durability| {
            move |n| {
                let batch = batch(key(n) * 4, 4)?;
                table.append([Ok(batch)], Some(durability)).map(|_| ())
            }
        };
        let mut figures = vec![
            (
                "put, Process",
                self.best(400_000, put(Durability::Process))?,
            ),
            (
                "commit of a block, Process",
                self.best(20_000, group(Durability::Process))?,
            ),
            ("put, Disk", self.best(300, put(Durability::Disk))?),
            (
                "commit of a block, Disk",
                self.best(300, group(Durability::Disk))?,
            ),
        ];
        let middle = name(tables / 2);
        let find = |_| engine.table(&middle).map(|_| ());
        figures.push(("lookup of one name", self.best(50_000, find)?));
        let mut at = 1;
        let find = |_| {
            at = (at * 48_271) % 2_147_483_647;
            engine.table(&name(at % tables)).map(|_| ())
        };
        figures.push(("lookup of random names", self.best(50_000, find)?));
        let snapshot = |_| engine.snapshot().map(|_| ());
        figures.push(("snapshot", self.best(50_000, snapshot)?));
        if tables > 1 {
            let handles = (0..tables.min(10_000)).map(|n| engine.table(&name(n * 7 % tables)));
            let handles = handles.collect::<Result<Vec<_>>>()?;
            let spread =
                |n: usize| handles[n % handles.len()].put(&row(key(n)), Some(Durability::Process));
            let took = self.each(1_000_000, spread)?;
            println!("{tables:>7} tables: put, Process, 10,000 tables in turn {took}");
        }
        Ok(figures)
    }

    fn open(&self, what: &str, full: bool) -> Result<()> {
        for tables in [1, self.tables] {
            let (engine, path) = self.fresh("open", tables)?;
            if full {
                for n in 0..tables {
                    let append = engine.table(&name(n))?.append([Ok(batch(0, 64)?)], None);
                    append.map(|_| ())?;
                }
            }
            engine.close()?;
            drop(engine);
            self.time_open(what, tables, "a clean close", &path)?;
            self.reader(what, tables, &path)?;
            self.kill(&path)?;
            self.time_open(what, tables, "a kill", &path)?;
        }
        Ok(())
    }

    /// Opens the database that the parts `open` and `full` have left: the first thing that this process does, if no other part
    /// comes before it.
    fn open_again(&self) -> Result<()> {
        let path = self.directory.join("open");
        for read_only in [false, true] {
            let options = EngineOptions {
                read_only,
                ..EngineOptions::default()
            };
            let start = self.now();
            let engine = Engine::open(self.env.clone(), &path, options)?;
            let opened = self.since(start);
            println!("opening again, read only: {read_only:<5} {opened}");
            engine.close()?;
        }
        Ok(())
    }

    /// Has another process write as much as there ever is to replay, and kill itself.
    fn kill(&self, path: &Path) -> Result<()> {
        let failed = |e| Error::io("starting the process that is killed", e);
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = std::process::Command::new(program);
        let ended = child.arg("0").arg(path).arg("killed").status();
        ended.map_err(failed).map(|_| ())
    }

    fn killed(&self) -> Result<()> {
        let engine = self.open_at(&self.directory, Durability::Process)?;
        let table = engine.table(&name(0))?;
        (0..16_000).try_for_each(|n| table.put(&row(n), None))?;
        std::process::abort()
    }

    fn time_open(&self, what: &str, tables: usize, after: &str, path: &Path) -> Result<()> {
        let before = self.resident_bytes();
        let start = self.now();
        let engine = self.open_at(path, Durability::Process)?;
        let opened = self.since(start);
        let start = self.now();
        engine.table(&name(tables / 2))?.put(&row(1 << 40), None)?;
        let first = self.since(start);
        let bytes = self.resident_bytes().saturating_sub(before) / tables as u64;
        println!(
            "{tables:>7} {what}: open after {after:<14} {opened}, first commit {first}, {bytes} bytes each"
        );
        engine.close()
    }

    fn reader(&self, what: &str, tables: usize, path: &Path) -> Result<()> {
        let writer = self.open_at(path, Durability::Process)?;
        let table = writer.table(&name(tables / 2))?;
        table.put(&row(1 << 41), None)?;
        let options = EngineOptions {
            read_only: true,
            ..EngineOptions::default()
        };
        let start = self.now();
        let reader = Engine::open(self.env.clone(), path, options)?;
        let opened = self.since(start);
        let took = self.best(10_000, |n| {
            table.put(&row((1 << 42) + i64::try_from(n).unwrap_or(0)), None)?;
            reader.snapshot().map(|_| ())
        })?;
        println!("{tables:>7} {what}: a reader opens in {opened}; put and snapshot in it {took}");
        reader.close()?;
        writer.close()
    }

    /// 768 MB in small appends, with and without a snapshot from before.
    fn snapshot(&self) -> Result<()> {
        for held in [false, true] {
            let (engine, path) = self.fresh("snapshot", 1)?;
            engine.close()?;
            // With the usual limits these appends are stored raw.
            let engine = Engine::open(self.env.clone(), &path, EngineOptions::default())?;
            let table = engine.table(&name(0))?;
            table.put(&row(0), None)?;
            let before = self.resident_bytes();
            let view = held.then(|| table.view()).transpose()?;
            let mut appended = 0;
            let mut key = 1;
            while appended < 768 << 20 {
                let rows = batch(key, 3_000)?;
                key += 3_000;
                appended += rows.get_array_memory_size() as u64;
                table.append([Ok(rows)], Some(Durability::Process))?;
            }
            let bytes = self.resident_bytes().saturating_sub(before);
            println!(
                "snapshot held: {held:<5} {:>6} MiB more in memory",
                bytes >> 20
            );
            drop(view);
            engine.close()?;
        }
        Ok(())
    }
}
