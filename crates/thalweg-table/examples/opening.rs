//! How long opening takes after the writing process was killed, in a fresh process, and the first count behind it.
//!
//! `cargo run --release -p thalweg-table --example opening -- [rows] [directory] [rounds]`
//!
//! One process appends rows in batches of 10,000 with the durability `process`, and is killed. Each round opens a copy of what
//! it has left, which is on disk and in the cache of the operating system, in a process of its own, which is killed as well.
//! On a busy machine most of the time goes by until threads of the system that sync are run: `chrt -r 10` leaves the rest.

mod common;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use thalweg_env::{Env, OpenMode};
use thalweg_table::{AggregateRequest, CreateOptions, Durability, Engine, EngineOptions};

const BATCH_ROWS: i64 = 10_000;
const COPY_BYTES: usize = 1 << 20;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let first = arguments.first().map(String::as_str);
    match (first, arguments.get(1)) {
        (Some("make"), Some(directory)) => make(Path::new(directory), arguments[2].parse()?),
        (Some("open"), Some(directory)) => open(Path::new(directory)),
        _ => {
            let rows = first.map_or(Ok(10_000_000), str::parse)?;
            let directory = arguments
                .get(1)
                .map_or_else(std::env::temp_dir, PathBuf::from);
            let rounds = arguments.get(2).map_or(Ok(10), |text| text.parse())?;
            measure(rows, &directory, rounds)
        }
    }
}

fn measure(rows: i64, directory: &Path, rounds: usize) -> Result<(), Failure> {
    let env = Env::os();
    let (made, copy) = (
        directory.join("opening-made.thal"),
        directory.join("opening-copy.thal"),
    );
    common::remove(&env, &made);
    run_and_kill(&["make", &made.to_string_lossy(), &rows.to_string()])?;
    let mut found = Vec::new();
    for _ in 0..rounds {
        common::remove(&env, &copy);
        copy_folder(&env, &made, &copy)?;
        let line = run_and_kill(&["open", &copy.to_string_lossy()])?;
        println!("{}", line.trim());
        let last = line.split_whitespace().last().unwrap_or_default();
        found.push(last.parse::<f64>()?);
    }
    found.sort_by(f64::total_cmp);
    println!(
        "{rows} rows: median {:.1} ms, best {:.1}, worst {:.1}",
        found[found.len() / 2],
        found[0],
        found[found.len() - 1]
    );
    common::remove(&env, &copy);
    common::remove(&env, &made);
    Ok(())
}

/// Runs this program until it has said a line, and kills it.
fn run_and_kill(arguments: &[&str]) -> Result<String, Failure> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let said = child
        .stdout
        .take()
        .ok_or("the other process has no output")?;
    BufReader::new(said).read_line(&mut line)?;
    child.kill()?;
    child.wait()?;
    Ok(line)
}

/// Says a line, and waits to be killed.
fn say(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    out.flush()?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

fn schema() -> SchemaRef {
    let column = |name| Field::new(name, DataType::Float64, false);
    let ts = Field::new("ts", DataType::Int64, false);
    Arc::new(Schema::new(vec![ts, column("a"), column("b"), column("c")]))
}

fn make(directory: &Path, rows: i64) -> Result<(), Failure> {
    let options = EngineOptions {
        durability: Durability::Process,
        ..EngineOptions::default()
    };
    let engine = Engine::open(Env::os(), directory, options)?;
    let table = engine.create_table("t", &schema(), &CreateOptions::stream("ts"))?;
    let mut random = fastrand::Rng::with_seed(1);
    let mut normal = || (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (random.f64() * 6.3).cos();
    let mut start = 0;
    while start < rows {
        let end = rows.min(start + BATCH_ROWS);
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(start..end))];
        for _ in 0..3 {
            let values = (start..end).map(|_| normal());
            columns.push(Arc::new(Float64Array::from_iter_values(values)));
        }
        table.append([Ok(RecordBatch::try_new(schema(), columns)?)], None)?;
        start = end;
    }
    say("made")
}

fn open(directory: &Path) -> Result<(), Failure> {
    let env = Env::os();
    let milliseconds = |from: u64, to: u64| {
        #[expect(clippy::cast_precision_loss, reason = "a duration for people")]
        let taken = to.saturating_sub(from) as f64;
        taken / 1e6
    };
    let start = env.clock().monotonic_ns();
    let engine = Engine::open(env.clone(), directory, EngineOptions::default())?;
    let opened = env.clock().monotonic_ns();
    let view = engine.table("t")?.view()?;
    let result = view.aggregate(&AggregateRequest::default())?;
    let counted = env.clock().monotonic_ns();
    let rows: u64 = result.groups.iter().map(|group| group.rows).sum();
    say(&format!(
        "{rows} rows: opened in {:.2} ms, counted in {:.2}, both {:.2}",
        milliseconds(start, opened),
        milliseconds(opened, counted),
        milliseconds(start, counted)
    ))
}

/// Copies a folder, and syncs its files: so that no writing of them goes on meanwhile. Segments, which an opening does not
/// write to, get a second name only.
fn copy_folder(env: &Env, from: &Path, to: &Path) -> Result<(), Failure> {
    env.storage().create_dir_all(to)?;
    for entry in env.storage().list_dir(from)? {
        let (from, to) = (from.join(&entry.name), to.join(&entry.name));
        if entry.is_dir {
            copy_folder(env, &from, &to)?;
            continue;
        }
        let source = env.storage().open(&from, OpenMode::Read)?;
        if from.extension().is_some_and(|kind| kind == "seg") {
            env.storage().hard_link(&from, &to)?;
            source.sync_all()?;
            continue;
        }
        let copy = env.storage().open(&to, OpenMode::CreateNew)?;
        let mut piece = vec![0; COPY_BYTES];
        let mut at = 0;
        loop {
            let count = source.read_at(&mut piece, at)?;
            if count == 0 {
                break;
            }
            copy.write_all_at(&piece[..count], at)?;
            at += count as u64;
        }
        copy.sync_all()?;
    }
    env.storage().sync_dir(to)?;
    Ok(())
}
