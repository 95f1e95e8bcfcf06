//! Rates of one stream on this machine: appends at all durabilities and batch sizes, ranges, replay, aggregates, late rows.
//!
//! `cargo run --release -p thalweg-table --example stream_rates -- [rows] [directory] [parts]`
//!
//! The data are CPU-like metrics: a timestamp in milliseconds with steps of 1 to 9, seven reflected random walks with two
//! decimals, and one column without correlation. `parts` is any of `ingest`, `single` (a part of it), `late`, `query`, or `again`, which only
//! replays what `query` left ten times (for a profiler).

mod common;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use common::remove;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_env::{Env, OpenMode};
use thalweg_table::{
    AggregateRequest, Bucket, CreateOptions, Durability, Engine, EngineOptions, KeyRange, Result,
    ScanRequest, Table, Value,
};

const COLUMNS: usize = 8;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rows: usize = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_000_000);
    let directory = arguments
        .next()
        .map_or_else(|| std::env::temp_dir().join("thalweg-rates"), PathBuf::from);
    let parts = arguments
        .next()
        .unwrap_or_else(|| "ingest,late,query".to_owned());
    let bench = Bench {
        env: Env::os(),
        directory,
        data: generate(rows),
    };
    println!(
        "{rows} rows of {COLUMNS} + 1 columns, {} bytes in memory",
        bench.data.get_array_memory_size()
    );
    if parts.contains("ingest") {
        bench.ingest()?;
    }
    if parts.contains("single") {
        bench.single_rows()?;
    }
    if parts.contains("late") {
        bench.late()?;
    }
    if parts.contains("query") {
        bench.query()?;
    }
    if parts.contains("again") {
        bench.again()?;
    }
    Ok(())
}

fn schema() -> SchemaRef {
    let ts = Field::new("ts", DataType::Int64, false);
    let column = |number| Field::new(format!("a{number}"), DataType::Float64, false);
    Arc::new(Schema::new(
        std::iter::once(ts)
            .chain((0..COLUMNS).map(column))
            .collect::<Vec<_>>(),
    ))
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// In (0, 1].
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

fn generate(rows: usize) -> RecordBatch {
    let mut random = Random(44);
    let mut ts = 1_600_000_000_000_i64;
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(COLUMNS + 1);
    let step = |_| {
        ts += i64::try_from(1 + random.next() % 9).unwrap_or(1);
        ts
    };
    columns.push(Arc::new(Int64Array::from_iter_values((0..rows).map(step))));
    for deviation in [0.05, 0.1, 0.2, 0.02, 0.5, 0.01, 1.0] {
        let mut walk = 50.0;
        let step = |_| {
            walk += deviation * random.normal();
            let reflected = (walk.rem_euclid(200.0) - 100.0).abs();
            (reflected * 100.0).round() / 100.0
        };
        columns.push(Arc::new(Float64Array::from_iter_values(
            (0..rows).map(step),
        )));
    }
    let gamma = |_| (-10.0 * (random.unit() * random.unit()).ln() * 1_000.0).round() / 1_000.0;
    columns.push(Arc::new(Float64Array::from_iter_values(
        (0..rows).map(gamma),
    )));
    #[expect(clippy::expect_used, reason = "the columns were made for the schema")]
    RecordBatch::try_new(schema(), columns).expect("columns fit the schema")
}

/// Seconds on the clock, and seconds that the calling thread ran.
#[derive(Clone, Copy)]
struct Took {
    wall: f64,
    cpu: f64,
}

struct Bench {
    env: Env,
    directory: PathBuf,
    data: RecordBatch,
}

impl Bench {
    /// What it took, and what it returned.
    fn seconds<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(Took, T)> {
        let clock = self.env.clock();
        let (start, start_cpu) = (clock.monotonic_ns(), self.cpu_ns());
        let done = work()?;
        #[expect(clippy::cast_precision_loss, reason = "a duration for people")]
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        Ok((
            Took {
                wall: seconds(start, clock.monotonic_ns()),
                cpu: seconds(start_cpu, self.cpu_ns()),
            },
            done,
        ))
    }

    /// Nanoseconds that the main thread ran: of use on a busy machine. 0 where the system does not tell.
    fn cpu_ns(&self) -> u64 {
        let mut text = [0; 64];
        let file = self
            .env
            .storage()
            .open(Path::new("/proc/self/schedstat"), OpenMode::Read);
        let length = file
            .and_then(|file| file.read_at(&mut text, 0))
            .unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        text.split_whitespace()
            .next()
            .and_then(|first| first.parse().ok())
            .unwrap_or(0)
    }

    /// A new and empty database.
    fn fresh(&self, name: &str) -> Result<(Engine, Table)> {
        let path = self.directory.join(name);
        remove(&self.env, &path);
        self.env
            .storage()
            .create_dir_all(&self.directory)
            .map_err(|e| thalweg_table::Error::io("creating the directory", e))?;
        let engine = Engine::open(self.env.clone(), &path, EngineOptions::default())?;
        let table = engine.create_table("t", &schema(), &CreateOptions::stream("ts"))?;
        Ok((engine, table))
    }

    fn ts(&self, row: usize) -> i64 {
        use arrow_array::cast::AsArray;
        self.data
            .column(0)
            .as_primitive::<arrow_array::types::Int64Type>()
            .value(row)
    }

    fn row(&self, row: usize) -> [Value<'static>; COLUMNS + 1] {
        use arrow_array::cast::AsArray;
        let value = |column: usize| {
            self.data
                .column(column)
                .as_primitive::<arrow_array::types::Float64Type>()
                .value(row)
        };
        std::array::from_fn(|column| {
            if column == 0 {
                Value::Int(self.ts(row))
            } else {
                Value::Float(value(column))
            }
        })
    }

    fn append(&self, durability: Durability, batch_rows: usize, max_batches: usize) -> Result<()> {
        let (engine, table) = self.fresh("append")?;
        let batches = (self.data.num_rows() / batch_rows).min(max_batches);
        let (seconds, ()) = self.seconds(|| {
            for batch in 0..batches {
                let batch = self.data.slice(batch * batch_rows, batch_rows);
                table.append([Ok(batch)], Some(durability))?;
            }
            Ok(())
        })?;
        rate(
            &format!("append, {durability:?}, batches of {batch_rows}"),
            batches,
            batches * batch_rows,
            seconds,
        );
        engine.close()
    }

    fn ingest(&self) -> Result<()> {
        for (batch_rows, max_batches) in [(1, 5_000), (100, 5_000), (10_000, 1_000)] {
            self.append(Durability::Disk, batch_rows, max_batches)?;
        }
        for (batch_rows, max_batches) in [(1, 500_000), (100, 50_000), (10_000, 1_000)] {
            self.append(Durability::Process, batch_rows, max_batches)?;
        }
        self.two_producers()?;
        self.single_rows()
    }

    fn single_rows(&self) -> Result<()> {
        let rows = self.data.num_rows().min(2_000_000);
        let (engine, table) = self.fresh("put")?;
        let values: Vec<_> = (0..rows).map(|row| self.row(row)).collect();
        let (seconds, ()) = self.seconds(|| {
            values
                .iter()
                .try_for_each(|row| table.put(row, Some(Durability::Process)))
        })?;
        rate("put, Process", rows, rows, seconds);
        engine.close()?;
        let (engine, table) = self.fresh("appender")?;
        let (seconds, ()) = self.seconds(|| {
            let mut appender = table.appender();
            values.iter().try_for_each(|row| appender.put(row))?;
            appender.flush()
        })?;
        rate("appender, flushed to Disk", rows, rows, seconds);
        engine.close()
    }

    fn two_producers(&self) -> Result<()> {
        let (engine, table) = self.fresh("two")?;
        let half = self.data.num_rows() / 2;
        let batches = (half / 10_000).min(500);
        let (seconds, ()) = self.seconds(|| {
            let produce = |first: usize| {
                for batch in 0..batches {
                    table.append(
                        [Ok(self.data.slice(first + batch * 10_000, 10_000))],
                        Some(Durability::Disk),
                    )?;
                }
                Ok(())
            };
            std::thread::scope(|scope| {
                let other = scope.spawn(|| produce(half));
                let own: Result<()> = produce(0);
                #[expect(clippy::expect_used, reason = "passes on a panic")]
                other.join().expect("the other producer").and(own)
            })
        })?;
        rate(
            "append, Disk, batches of 10000, 2 producers",
            2 * batches,
            2 * batches * 10_000,
            seconds,
        );
        engine.close()
    }

    fn late(&self) -> Result<()> {
        let rows = self.data.num_rows().min(2_000_000);
        for (percent, far) in [
            (0, None),
            (1, None),
            (5, None),
            (10, None),
            (10, Some(1_000_000)),
        ] {
            let batches = self.late_batches(rows, percent, far)?;
            let (engine, table) = self.fresh("late")?;
            let (seconds, ()) = self.seconds(|| {
                batches
                    .iter()
                    .try_for_each(|batch| table.append([Ok(batch.clone())], None).map(|_| ()))
            })?;
            let how = if far.is_some() { "far" } else { "in bulks" };
            rate(
                &format!("append, Disk, {percent} % late, {how}"),
                batches.len(),
                rows,
                seconds,
            );
            let scan = ScanRequest::default();
            let (seconds, found) = self.seconds(|| count(&table, &scan))?;
            assert_eq!(found, rows);
            rate("  replay of it", 1, rows, seconds);
            println!("  {:?}", table.stats()?);
            let (seconds, done) = self.seconds(|| table.maintain())?;
            rate("  maintenance", 1, rows, seconds);
            let (seconds, found) = self.seconds(|| count(&table, &scan))?;
            assert_eq!(found, rows);
            rate("  replay after it", 1, rows, seconds);
            println!("  {done:?}, {:?}", table.stats()?);
            engine.close()?;
        }
        Ok(())
    }

    /// Every 10,000 rows first those in time, then the late ones; or delays over `far` rows.
    fn late_batches(
        &self,
        rows: usize,
        percent: u64,
        far: Option<u64>,
    ) -> Result<Vec<RecordBatch>> {
        let mut random = Random(5);
        let is_late: Vec<bool> = (0..rows).map(|_| random.next() % 100 < percent).collect();
        let take = |positions: &[u32]| -> Result<RecordBatch> {
            let positions = UInt32Array::from(positions.to_vec());
            let columns = self
                .data
                .columns()
                .iter()
                .map(|column| arrow_select::take::take(column, &positions, None));
            #[expect(clippy::expect_used, reason = "positions are in the data")]
            let columns = columns
                .collect::<std::result::Result<Vec<_>, _>>()
                .expect("rows exist");
            #[expect(clippy::expect_used, reason = "the same columns")]
            Ok(RecordBatch::try_new(schema(), columns).expect("columns fit the schema"))
        };
        let all: Vec<u32> = (0..).take(rows).collect();
        if let Some(far) = far {
            let mut places: Vec<(u64, u32)> = Vec::with_capacity(rows);
            for row in all {
                let delay = if is_late[row as usize] {
                    random.next() % far
                } else {
                    0
                };
                places.push((u64::from(row) + delay, row));
            }
            places.sort_unstable();
            let order: Vec<u32> = places.into_iter().map(|(_, row)| row).collect();
            return order.chunks(10_000).map(take).collect();
        }
        let mut batches = Vec::new();
        for part in all.chunks(10_000) {
            let (mut late, in_time): (Vec<u32>, Vec<u32>) =
                part.iter().partition(|row| is_late[**row as usize]);
            for at in (1..late.len()).rev() {
                let other = usize::try_from(random.next()).unwrap_or(0) % (at + 1);
                late.swap(at, other);
            }
            for part in [in_time, late] {
                if !part.is_empty() {
                    batches.push(take(&part)?);
                }
            }
        }
        Ok(batches)
    }

    fn query(&self) -> Result<()> {
        let rows = self.data.num_rows();
        let (engine, table) = self.fresh("query")?;
        let (seconds, ()) = self.seconds(|| {
            for start in (0..rows).step_by(1_000_000) {
                table.append(
                    [Ok(self.data.slice(start, 1_000_000.min(rows - start)))],
                    None,
                )?;
            }
            Ok(())
        })?;
        rate(
            "bulk load, Disk, batches of 1000000",
            rows.div_ceil(1_000_000),
            rows,
            seconds,
        );
        let stats = table.stats()?;
        println!("{stats:?}");
        for range_rows in [200, 2_000, 20_000, 200_000, 2_000_000] {
            self.range(&table, range_rows)?;
        }
        for (what, projection) in [
            ("all", None),
            ("a1", Some(vec![2])),
            ("ts, a0", Some(vec![0, 1])),
        ] {
            for threads in [0, 1] {
                let request = ScanRequest {
                    projection: projection.clone(),
                    threads,
                    ..ScanRequest::default()
                };
                let mut best = Took {
                    wall: f64::INFINITY,
                    cpu: 0.0,
                };
                for _ in 0..4 {
                    let (seconds, found) = self.seconds(|| count(&table, &request))?;
                    assert_eq!(found, rows);
                    best = if seconds.wall < best.wall {
                        seconds
                    } else {
                        best
                    };
                }
                rate(
                    &format!("replay, columns {what}, threads {threads}"),
                    1,
                    rows,
                    best,
                );
            }
        }
        let first = ScanRequest {
            limit: Some(1),
            ..ScanRequest::default()
        };
        self.median("first row", || count(&table, &first).map(|_| ()))?;
        for part in [1_000, 100, 10, 1] {
            self.aggregate(&table, rows / part, None)?;
        }
        self.aggregate(&table, rows, Some(60_000))?;
        self.aggregate(&table, rows, Some(3_600_000))?;
        engine.close()
    }

    fn again(&self) -> Result<()> {
        let engine = Engine::open(
            self.env.clone(),
            &self.directory.join("query"),
            EngineOptions::default(),
        )?;
        let table = engine.table("t")?;
        let (seconds, rows) = self.seconds(|| {
            let batch_rows = std::env::var("BATCH")
                .ok()
                .and_then(|t| t.parse().ok())
                .unwrap_or(0);
            let request = ScanRequest {
                batch_rows,
                ..ScanRequest::default()
            };
            (0..10).try_fold(0, |rows, _| {
                Ok::<_, thalweg_table::Error>(rows + count(&table, &request)?)
            })
        })?;
        rate("replay, all columns", 10, rows, seconds);
        engine.close()
    }

    fn range(&self, table: &Table, range_rows: usize) -> Result<()> {
        let rows = self.data.num_rows();
        if range_rows > rows {
            return Ok(());
        }
        let mut random = Random(7);
        let name = format!("range of {range_rows} rows");
        self.median(&name, || {
            let start = usize::try_from(random.next()).unwrap_or(0) % (rows - range_rows + 1);
            let keys = KeyRange {
                first: self.ts(start),
                last: self.ts(start + range_rows - 1),
            };
            let found = count(
                table,
                &ScanRequest {
                    keys,
                    ..ScanRequest::default()
                },
            )?;
            assert_eq!(found, range_rows);
            Ok(())
        })
    }

    fn aggregate(&self, table: &Table, range_rows: usize, width: Option<i64>) -> Result<()> {
        let rows = self.data.num_rows();
        let mut random = Random(9);
        let name = format!("aggregate of {range_rows} rows, buckets {width:?}");
        self.median(&name, || {
            let start = usize::try_from(random.next()).unwrap_or(0) % (rows - range_rows + 1);
            let keys = KeyRange {
                first: self.ts(start),
                last: self.ts(start + range_rows - 1),
            };
            let bucket = width.map(|width| Bucket { width, origin: 0 });
            let request = AggregateRequest {
                keys,
                bucket,
                columns: vec![1, 2, 3],
            };
            let result = table.view()?.aggregate(&request)?;
            assert_eq!(
                result.groups.iter().map(|group| group.rows).sum::<u64>(),
                range_rows as u64
            );
            Ok(())
        })
    }

    fn median(&self, what: &str, mut work: impl FnMut() -> Result<()>) -> Result<()> {
        work()?;
        let mut times = Vec::new();
        for _ in 0..21 {
            times.push(self.seconds(&mut work)?.0);
        }
        times.sort_by(|a, b| a.wall.total_cmp(&b.wall));
        let (median, least) = (times[times.len() / 2], times[0]);
        println!(
            "{what:<50} {:>10.4} ms (least {:.4})",
            median.wall * 1e3,
            least.wall * 1e3
        );
        Ok(())
    }
}

fn count(table: &Table, request: &ScanRequest) -> Result<usize> {
    let mut rows = 0;
    for batch in table.view()?.scan(request)? {
        rows += batch?.num_rows();
    }
    Ok(rows)
}

#[expect(clippy::cast_precision_loss, reason = "rates for people")]
fn rate(what: &str, calls: usize, rows: usize, took: Took) {
    let per_second = rows as f64 / took.wall;
    let us_per_call = |seconds: f64| seconds * 1e6 / calls as f64;
    let (wall, cpu) = (us_per_call(took.wall), us_per_call(took.cpu));
    println!(
        "{what:<50} {per_second:>12.0} rows/s {wall:>12.2} us per call, {cpu:>10.2} us in its thread"
    );
}
