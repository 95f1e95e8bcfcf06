//! What opening a large database and cleaning in it take: time, reads and memory.
//!
//! `cargo run --release -p thalweg-table --example cleaning_reads -- [rows] [directory]`
//!
//! One process loads ten streams of two narrow columns, so that 10^9 rows take about 1 GB, and a short one in the end. A new
//! process opens them, makes and drops a table with a file of its own, and cleans; then it fills and drops tables until the log
//! has gone on in new segments several times, and cleans again. Both times the files have to go, and nothing is read of the ten
//! streams. Cleaning may move the blocks of the short one out of the last segment, which is mostly empty, and read them.
//! Resident memory has to stay below the limit of the cache and 300 MB.

mod common;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use thalweg_env::{Env, OpenMode};
use thalweg_table::{AppendLimits, CreateOptions, Durability, Engine, EngineOptions};

const STREAMS: i64 = 10;
const BATCH_ROWS: i64 = 1 << 20;
/// A full segment that is filled again and again by tables that are dropped.
const SEGMENT_BYTES: u64 = 16 << 20;
/// A batch of the process that measures takes more, and gets a file of its own; a short one goes to the log.
const GROUP_BYTES: u64 = 256 << 10;
const SHORT_BATCH_ROWS: i64 = BATCH_ROWS / 8;
const ROLLED_SEGMENTS: usize = 3;
/// Rows of the stream that is loaded last: more than a segment of them.
const LAST_ROWS: i64 = 24 * BATCH_ROWS;
/// Its index has about one page for each batch. The indexes of the ten streams have four times as many from 10^8 rows on.
const MAX_PAGES: u64 = 26;
const MAX_BYTES_BESIDE_CACHE: u64 = 300_000_000;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let first = arguments.first().map(String::as_str);
    if let (Some("measure"), Some(directory)) = (first, arguments.get(1)) {
        return measure(Path::new(directory));
    }
    let rows = first.map_or(Ok(10_000_000), str::parse)?;
    let directory = arguments
        .get(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = directory.join("cleaning-reads.thal");
    let env = Env::os();
    common::remove(&env, &directory);
    load(&directory, rows)?;
    let measured = Command::new(std::env::current_exe()?)
        .arg("measure")
        .arg(&directory)
        .status()?;
    common::remove(&env, &directory);
    match measured.success() {
        true => Ok(()),
        false => Err("the process that measures has failed".into()),
    }
}

fn options() -> EngineOptions {
    EngineOptions {
        segment_bytes: SEGMENT_BYTES,
        durability: Durability::Process,
        // Nothing is cleaned, and nothing is read, but by what is measured.
        background: false,
        append_limits: AppendLimits {
            group_bytes: GROUP_BYTES,
            ..AppendLimits::default()
        },
        ..EngineOptions::default()
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Int64, false),
        Field::new("level", DataType::Int32, false),
    ]))
}

/// Rows one second apart, with values of six bits without order.
fn batch(first: i64, rows: i64) -> Result<RecordBatch, Failure> {
    let keys = first..first + rows;
    let value = |key: i64| {
        let mixed = key.wrapping_mul(0x2545_f491_4f6c_dd1d);
        i32::try_from((mixed >> 40) & 63).unwrap_or(0)
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(
            keys.clone().map(|key| key * 1_000),
        )),
        Arc::new(Int32Array::from_iter_values(keys.map(value))),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}

fn load(directory: &Path, rows: i64) -> Result<(), Failure> {
    let env = Env::os();
    let start_ns = env.clock().monotonic_ns();
    let options = EngineOptions {
        background: true,
        append_limits: AppendLimits::default(),
        ..options()
    };
    let engine = Engine::open(env.clone(), directory, options)?;
    let rows_of_each = rows / STREAMS;
    for stream in 0..STREAMS {
        load_stream(&engine, &format!("stream {stream}"), rows_of_each)?;
    }
    load_stream(&engine, "last", LAST_ROWS)?;
    engine.close()?;
    println!(
        "{} rows loaded in {:.1} s: {} bytes on disk",
        rows_of_each * STREAMS,
        seconds(env.clock().monotonic_ns() - start_ns),
        bytes_on_disk(&env, directory)?
    );
    Ok(())
}

fn load_stream(engine: &Engine, name: &str, rows: i64) -> Result<(), Failure> {
    let table = engine.create_table(name, &schema(), &CreateOptions::stream("ts"))?;
    let mut first = 0;
    while first < rows {
        let count = BATCH_ROWS.min(rows - first);
        table.append([Ok(batch(first, count)?)], None)?;
        first += count;
    }
    Ok(())
}

fn measure(directory: &Path) -> Result<(), Failure> {
    let env = Env::os();
    let read_before = read_bytes(&env)?;
    let start_ns = env.clock().monotonic_ns();
    let engine = Engine::open(env.clone(), directory, options())?;
    let opened_ns = env.clock().monotonic_ns() - start_ns;
    println!(
        "opened in {:.2} ms, {} bytes read",
        seconds(opened_ns) * 1e3,
        read_bytes(&env)? - read_before
    );
    println!("resident: {} bytes", resident_bytes(&env)?);

    let fragments = || files_of(&env, directory, "frag");
    let before = fragments()?;
    let mut doomed = BTreeSet::new();
    reads_no_index(&env, &engine, "first cleaning", || {
        let table = engine.create_table("doomed", &schema(), &CreateOptions::stream("ts"))?;
        table.append([Ok(batch(0, BATCH_ROWS)?)], None)?;
        doomed = fragments()?.difference(&before).cloned().collect();
        Ok(engine.drop_table("doomed")?)
    })?;
    // The other one may have what was moved out of a segment meanwhile.
    let left = fragments()?.intersection(&doomed).count();
    assert!(
        left < doomed.len(),
        "the file of the dropped table is there"
    );

    let segments = || files_of(&env, directory, "seg");
    let before = segments()?;
    let what = "cleaning after rolled segments";
    reads_no_index(&env, &engine, what, || {
        let mut newest = before.last().cloned();
        let mut rolled = 0;
        while rolled < ROLLED_SEGMENTS {
            let table = engine.create_table("doomed", &schema(), &CreateOptions::stream("ts"))?;
            table.append([Ok(batch(0, SHORT_BATCH_ROWS)?)], None)?;
            engine.drop_table("doomed")?;
            let last = segments()?.into_iter().next_back();
            rolled += usize::from(last > newest);
            newest = last;
        }
        Ok(())
    })?;
    let left = segments()?.len();
    assert!(
        left <= before.len() + 2,
        "{left} segments of {}",
        before.len()
    );

    let resident = resident_bytes(&env)?;
    let limit = engine.options().cache_bytes + MAX_BYTES_BESIDE_CACHE;
    println!("resident: {resident} bytes, limit {limit}");
    assert!(resident < limit, "{resident} bytes of memory");
    engine.close()?;
    Ok(())
}

/// Makes garbage, cleans, and checks that hardly any index page is read meanwhile.
fn reads_no_index(
    env: &Env,
    engine: &Engine,
    what: &str,
    make_garbage: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let store = engine.kernel().store();
    let before = store.counts();
    let start_ns = env.clock().monotonic_ns();
    make_garbage()?;
    let made_ns = env.clock().monotonic_ns();
    engine.kernel().collect_garbage()?;
    let now_ns = env.clock().monotonic_ns();
    let now = store.counts();
    let pages = now.pages_loaded - before.pages_loaded;
    let bytes = now.read_bytes - before.read_bytes;
    println!(
        "{what}: made and dropped in {:.1} ms, cleaned in {:.1}; {pages} index pages and {bytes} bytes read",
        seconds(made_ns - start_ns) * 1e3,
        seconds(now_ns - made_ns) * 1e3
    );
    assert!(pages <= MAX_PAGES, "{what} reads {pages} index pages");
    assert!(bytes <= SEGMENT_BYTES, "{what} reads {bytes} bytes");
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a duration for people")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn read_text(env: &Env, path: &str) -> Result<String, Failure> {
    let mut text = vec![0; 8 << 10];
    let file = env.storage().open(Path::new(path), OpenMode::Read)?;
    let length = file.read_at(&mut text, 0)?;
    text.truncate(length);
    Ok(String::from_utf8(text)?)
}

/// The number behind a name in a file of the system; 0 where there is none.
fn number_in(env: &Env, path: &str, name: &str) -> Result<u64, Failure> {
    let text = read_text(env, path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    Ok(number.map_or(Ok(0), str::parse)?)
}

/// What this process has read by system calls.
fn read_bytes(env: &Env) -> Result<u64, Failure> {
    number_in(env, "/proc/self/io", "rchar:")
}

fn resident_bytes(env: &Env) -> Result<u64, Failure> {
    Ok(number_in(env, "/proc/self/status", "VmRSS:")? * 1_024)
}

/// The files with such an extension, ascending.
fn files_of(env: &Env, directory: &Path, kind: &str) -> Result<BTreeSet<PathBuf>, Failure> {
    let mut found = BTreeSet::new();
    visit(env, directory, &mut |path| {
        _ = found.insert(path.to_owned())
    })?;
    found.retain(|path| path.extension().is_some_and(|found| found == kind));
    Ok(found)
}

fn bytes_on_disk(env: &Env, directory: &Path) -> Result<u64, Failure> {
    let mut files = Vec::new();
    visit(env, directory, &mut |path| files.push(path.to_owned()))?;
    let lengths = { files.iter() }.map(|path| Ok(env.storage().metadata(path)?.len_bytes));
    lengths.sum()
}

fn visit(env: &Env, directory: &Path, file: &mut dyn FnMut(&Path)) -> Result<(), Failure> {
    for entry in env.storage().list_dir(directory)? {
        let path = directory.join(&entry.name);
        match entry.is_dir {
            true => visit(env, &path, file)?,
            false => file(&path),
        }
    }
    Ok(())
}
