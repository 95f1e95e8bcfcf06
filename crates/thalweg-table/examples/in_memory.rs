//! Rates and memory of a database in memory: rows put one by one, by the appender, and tables that are filled and dropped.
//!
//! `cargo run --release -p thalweg-table --example in_memory -- [rows] [parts]`
//!
//! `parts` is any of `put`, `appender` and `drop`. Each prints rates by the clock and by the time that the calling thread ran,
//! the resident memory of the process, and the bytes of the encoded rows; what lies between the two is the log, open rows,
//! caches and the allocator.

use arrow_schema::{DataType, Field, Schema};
use std::path::Path;
use thalweg_env::{Env, OpenMode};
use thalweg_table::{CreateOptions, Engine, EngineOptions, Result, Table, Value};

/// Rows between two lines of output.
const STEPS: usize = 10;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments.next().and_then(|text| text.parse().ok());
    let rows: usize = rows.unwrap_or(10_000_000);
    let parts = arguments.next();
    let parts = parts.unwrap_or_else(|| "put,appender,drop".to_owned());
    let bench = Bench {
        env: Env::os(),
        engine: Engine::in_memory(EngineOptions {
            cache_bytes: 8 << 20,
            ..EngineOptions::default()
        })?,
    };
    bench.report("empty", 0, None)?;
    if parts.contains("put") {
        bench.put(rows)?;
    }
    if parts.contains("appender") {
        bench.append(rows)?;
    }
    if parts.contains("drop") {
        bench.fill_and_drop(rows)?;
    }
    Ok(())
}

struct Bench {
    env: Env,
    engine: Engine,
}

impl Bench {
    fn create(&self, name: &str) -> Result<Table> {
        let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
        let options = CreateOptions::stream("ts");
        self.engine.create_table(name, &schema, &options)
    }

    fn put(&self, rows: usize) -> Result<()> {
        let table = self.create("put")?;
        for step in 0..STEPS {
            let start = self.now();
            for row in keys(rows, step) {
                table.put(&[Value::Int(row)], None)?;
            }
            self.report("put", rows / STEPS, Some(start))?;
        }
        Ok(())
    }

    fn append(&self, rows: usize) -> Result<()> {
        let table = self.create("appender")?;
        let mut appender = table.appender();
        for step in 0..STEPS {
            let start = self.now();
            for row in keys(rows, step) {
                appender.put(&[Value::Int(row)])?;
            }
            appender.flush()?;
            self.report("appender", rows / STEPS, Some(start))?;
        }
        Ok(())
    }

    fn fill_and_drop(&self, rows: usize) -> Result<()> {
        for step in 0..STEPS {
            let table = self.create("dropped")?;
            let start = self.now();
            for row in keys(rows, step) {
                table.put(&[Value::Int(row)], None)?;
            }
            self.engine.drop_table("dropped")?;
            self.report("dropped", rows / STEPS, Some(start))?;
        }
        Ok(())
    }

    fn report(&self, what: &str, rows: usize, start: Option<Times>) -> Result<()> {
        let (now, rows) = (self.now(), rows as u64);
        let start = start.unwrap_or(now);
        let mut encoded_bytes = 0;
        for name in self.engine.table_names()? {
            encoded_bytes += self.engine.table(&name)?.stats()?.bytes;
        }
        println!(
            "{what:8} {rows:9} rows, {:6} thousand/s, thread ran {:4} ns/row; resident {:6} KiB, encoded rows {:6} KiB",
            rows * 1_000_000 / (now.clock_ns - start.clock_ns).max(1),
            (now.thread_ns - start.thread_ns) / rows.max(1),
            resident_bytes(&self.env) >> 10,
            encoded_bytes >> 10,
        );
        Ok(())
    }

    fn now(&self) -> Times {
        let thread = read_numbers(&self.env, "/proc/thread-self/schedstat");
        Times {
            clock_ns: self.env.clock().monotonic_ns(),
            thread_ns: thread.first().copied().unwrap_or(0),
        }
    }
}

/// When a step began.
#[derive(Clone, Copy)]
struct Times {
    clock_ns: u64,
    /// What this thread ran so far; 0 where the system is not Linux.
    thread_ns: u64,
}

/// The rows of one step.
fn keys(rows: usize, step: usize) -> std::ops::Range<i64> {
    let at = |step| i64::try_from(rows / STEPS * step).unwrap_or(i64::MAX);
    at(step)..at(step + 1)
}

/// Memory of this process, as Linux counts it; 0 elsewhere.
fn resident_bytes(env: &Env) -> u64 {
    let pages = read_numbers(env, "/proc/self/statm");
    pages.get(1).copied().unwrap_or(0) * 4_096
}

/// The numbers in a file of Linux; none elsewhere.
fn read_numbers(env: &Env, path: &str) -> Vec<u64> {
    let mut text = [0; 256];
    let file = env.storage().open(Path::new(path), OpenMode::Read);
    let count = file.and_then(|file| file.read_at(&mut text, 0));
    let text = String::from_utf8_lossy(&text[..count.unwrap_or(0)]);
    let numbers = text.split_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}
