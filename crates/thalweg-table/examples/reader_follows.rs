//! A reading process that follows a writer for long: its memory and its open files stay as they are, and no answer is wrong.
//!
//! `cargo run --release -p thalweg-table --example reader_follows -- [commits] [directory]`
//!
//! The writer stores commits of one row, of 64 columns; now and then one of 2,048 rows, which travels in blocks, and a row that
//! comes late. It merges, and removes what a second table held. A process of its own reads all the while: each statement counts
//! the rows and adds up a column, and both must be those of a prefix of the commits that lies behind the last one that was
//! acknowledged before. Every tenth of the way the memory and the open files of both are printed; those of removed files are
//! counted apart.

mod common;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use common::remove;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thalweg_env::{Env, OpenMode};
use thalweg_table::{
    AggregateRequest, CreateOptions, Durability, Engine, EngineOptions, ScanRequest,
};

const COLUMNS: usize = 64;
const BULK_ROWS: i64 = 2_048;
/// Of so many commits one is of many rows.
const BULK_EVERY: u64 = 5_000;
/// Of so many commits one row is late.
const LATE_EVERY: u64 = 500;
/// After so many commits the table is put in order, and the second one made anew.
const TIDY_EVERY: u64 = 100_000;
/// After so many commits the reader is told how many rows there are.
const TELL_EVERY: u64 = 1_000;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "read") {
        return read(Path::new(&arguments[1]));
    }
    let commits = arguments.first().map_or(Ok(1_000_000), |n| n.parse())?;
    let directory = arguments.get(1).map_or_else(
        || std::env::temp_dir().join("thalweg-follows"),
        PathBuf::from,
    );
    write(commits, &directory)
}

/// What a statement of the reader finds: rows, their numbers added up, and the highest number.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    rows: u64,
    sum: i128,
    highest: Option<i64>,
}

impl Found {
    /// What a prefix of so many rows gives.
    fn of_prefix(rows: u64) -> Self {
        let count = i128::from(rows);
        Self {
            rows,
            sum: count * (count - 1) / 2,
            highest: i64::try_from(rows).ok().filter(|n| *n > 0).map(|n| n - 1),
        }
    }
}

fn options(read_only: bool) -> EngineOptions {
    EngineOptions {
        read_only,
        cache_bytes: 16 << 20,
        threads: 1,
        ..EngineOptions::default()
    }
}

fn schema() -> SchemaRef {
    let whole = |name| Field::new(name, DataType::Int64, false);
    let column = |number| Field::new(format!("c{number}"), DataType::Float64, false);
    let fields = [whole("ts"), whole("number")].into_iter();
    Arc::new(Schema::new(
        fields.chain((2..COLUMNS).map(column)).collect::<Vec<_>>(),
    ))
}

/// Rows from a number on; late ones lie far back in time.
fn rows(first: i64, count: i64, is_late: bool) -> Result<RecordBatch, Failure> {
    let back = if is_late { first / 2 } else { 0 };
    let numbers = || first..first + count;
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(
            numbers().map(|n| (n - back) * 1_000),
        )),
        Arc::new(Int64Array::from_iter_values(numbers())),
    ];
    for column in 2..COLUMNS {
        #[expect(clippy::cast_precision_loss, reason = "a value that changes")]
        let value = |n: i64| (n % 1_000) as f64 / (column + 1) as f64;
        columns.push(Arc::new(Float64Array::from_iter_values(
            numbers().map(value),
        )));
    }
    Ok(RecordBatch::try_new(schema(), columns)?)
}

fn write(commits: u64, directory: &Path) -> Result<(), Failure> {
    let env = Env::os();
    remove(&env, directory);
    let engine = Engine::open(env.clone(), directory, options(false))?;
    let table = engine.create_table("t", &schema(), &CreateOptions::stream("ts"))?;
    let mut reader = Following::start(directory)?;
    let mut stored = 0;
    for commit in 1..=commits {
        let count = if commit % BULK_EVERY == 0 {
            BULK_ROWS
        } else {
            1
        };
        let batch = rows(stored, count, commit % LATE_EVERY == 0)?;
        table.append([Ok(batch)], Some(Durability::Process))?;
        stored += count;
        if commit % TIDY_EVERY == 0 {
            table.maintain()?;
            let _ = engine.drop_table("other");
            let other = engine.create_table("other", &schema(), &CreateOptions::stream("ts"))?;
            let batch = rows(0, 10_000, false)?;
            other.append([Ok(batch)], Some(Durability::Process))?;
        }
        if commit % TELL_EVERY == 0 {
            reader.tell(stored)?;
        }
        if commit % (commits / 10).max(1) == 0 {
            println!("{commit} commits, {stored} rows; writer {}", usage(&env)?);
            reader.report()?;
        }
    }
    reader.finish()?;
    engine.close()?;
    Ok(())
}

/// The process that reads, as its parent sees it.
struct Following(Child);

impl Following {
    fn start(directory: &Path) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        let command = command.arg("read").arg(directory).stdin(Stdio::piped());
        Ok(Self(command.spawn()?))
    }

    /// Tells it how many rows were acknowledged.
    fn tell(&mut self, rows: i64) -> Result<(), Failure> {
        self.send(&rows.to_string())
    }

    /// Asks it to print what it takes.
    fn report(&mut self) -> Result<(), Failure> {
        self.send("report")
    }

    fn send(&mut self, line: &str) -> Result<(), Failure> {
        let input = self.0.stdin.as_mut().ok_or("the reader was ended")?;
        Ok(writeln!(input, "{line}")?)
    }

    fn finish(mut self) -> Result<(), Failure> {
        drop(self.0.stdin.take());
        let ended = self.0.wait()?;
        ended
            .success()
            .then_some(())
            .ok_or_else(|| format!("the reader ended with {ended}").into())
    }
}

/// What the parent has told.
#[derive(Default)]
struct Told {
    rows: AtomicU64,
    report: AtomicBool,
    is_over: AtomicBool,
}

fn read(directory: &Path) -> Result<(), Failure> {
    let told = Told::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                match line.parse() {
                    Ok(rows) => told.rows.store(rows, Ordering::SeqCst),
                    Err(_) => told.report.store(true, Ordering::SeqCst),
                }
            }
            told.is_over.store(true, Ordering::SeqCst);
        });
        follow(directory, &told).inspect_err(|error| {
            // The other thread waits for a parent that does not know yet.
            println!("reader: {error}");
            std::process::exit(1);
        })
    })
}

fn follow(directory: &Path, told: &Told) -> Result<(), Failure> {
    let env = Env::os();
    let engine = Engine::open(env.clone(), directory, options(true))?;
    let (mut statements, mut max_open, mut last) = (0_u64, 0, 0);
    loop {
        let is_over = told.is_over.load(Ordering::SeqCst);
        let acknowledged = told.rows.load(Ordering::SeqCst);
        let found = statement(&engine)?;
        if found != Found::of_prefix(found.rows) || found.rows < acknowledged.max(last) {
            let least = acknowledged.max(last);
            return Err(format!("wrong: {found:?}, and {least} rows were there before").into());
        }
        last = found.rows;
        statements += 1;
        if statements.is_multiple_of(16) {
            read_other(&engine)?;
            max_open = max_open.max(open_files(&env)?.0);
        }
        if told.report.swap(false, Ordering::SeqCst) || is_over {
            let usage = usage(&env)?;
            println!("  reader: {last} rows, {statements} statements; {usage}, at most {max_open}");
        }
        if is_over {
            return Ok(());
        }
    }
}

fn statement(engine: &Engine) -> Result<Found, Failure> {
    let request = AggregateRequest {
        columns: vec![1],
        ..AggregateRequest::default()
    };
    let result = engine.table("t")?.view()?.aggregate(&request)?;
    let group = result.groups.first().ok_or("no group")?;
    let column = group.columns.first().ok_or("no column")?;
    Ok(Found {
        rows: group.rows,
        sum: column.int_sum().ok_or("no sum")?,
        highest: (column.value_rows > 0).then(|| column.max.cast_signed()),
    })
}

/// Reads the table that comes and goes: its files are then open.
fn read_other(engine: &Engine) -> Result<(), Failure> {
    let view = engine.snapshot()?;
    let Ok(other) = view.table("other") else {
        return Ok(());
    };
    let mut rows = 0;
    for batch in other.scan(&ScanRequest::default())? {
        rows += batch?.num_rows();
    }
    // It is made empty, and filled by one commit.
    let is_right = rows == 0 || rows == 10_000;
    is_right
        .then_some(())
        .ok_or_else(|| format!("wrong: {rows} rows of the other table").into())
}

/// Open files, and how many of them are of removed files.
fn open_files(env: &Env) -> Result<(usize, usize), Failure> {
    let folder = Path::new("/proc/self/fd");
    let mut removed = 0;
    let entries = env.storage().list_dir(folder)?;
    for entry in &entries {
        let target = std::fs::read_link(folder.join(&entry.name)).unwrap_or_default();
        removed += usize::from(target.to_string_lossy().ends_with(" (deleted)"));
    }
    Ok((entries.len(), removed))
}

/// Memory and open files of this process, for people.
fn usage(env: &Env) -> Result<String, Failure> {
    let mut text = vec![0; 16 << 10];
    let status = env
        .storage()
        .open(Path::new("/proc/self/status"), OpenMode::Read)?;
    let length = status.read_at(&mut text, 0)?;
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    let of = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.unwrap_or(0) / 1_024
    };
    let (resident, peak) = (of("VmRSS:"), of("VmHWM:"));
    let (open, removed) = open_files(env)?;
    Ok(format!(
        "{resident} MiB resident, {peak} at most; {open} files open, {removed} of them removed"
    ))
}
