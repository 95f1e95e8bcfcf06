//! What a statement costs: planning, small ranges, aggregates; beside DataFusion as it comes on the same rows in memory.
//!
//! `cargo run --release -p thalweg-query --example latency [rows]`; times are medians in microseconds. Every turn asks
//! for another range, so that no text comes twice, except in the column `kept`.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "a measuring program reads the clock and stops where it cannot measure"
)]

use arrow::array::{ArrayRef, Float64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, TableReference};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::execution::config::SessionConfig;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner};
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, TableSource, WindowUDF};
use datafusion::prelude::SessionContext;
use datafusion_sql::parser::DFParser;
use datafusion_sql::planner::ParserOptions;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use thalweg_planner::SqlPlanner;
use thalweg_query::{Params, QueryOptions, ScalarValue, Session, TableScan};
use thalweg_table::{CreateOptions, Engine, EngineOptions, KeyRange};
use tokio::runtime::{Builder, Runtime};

const START_MS: i64 = 1_767_225_600_000;
const THREADS: usize = 2;
const TURNS: i64 = 300;
/// DataFusion's table holds its rows in memory.
const MAX_PLAIN_ROWS: i64 = 2_000_000;
const BATCH_ROWS: i64 = 1_000_000;

fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    let mut fields = vec![Field::new("ts", time, false)];
    fields.extend((0..8).map(|column| Field::new(format!("a{column}"), DataType::Float64, true)));
    Arc::new(Schema::new(fields))
}

/// One row per millisecond.
fn batches(rows: i64) -> impl Iterator<Item = RecordBatch> {
    let last = (rows - 1) / BATCH_ROWS;
    (0..=last).map(move |number| {
        let first = number * BATCH_ROWS;
        batch(first, (first + BATCH_ROWS).min(rows))
    })
}

fn batch(first: i64, end: i64) -> RecordBatch {
    let times = (first..end).map(|row| START_MS + row);
    let mut columns: Vec<ArrayRef> =
        vec![Arc::new(TimestampMillisecondArray::from_iter_values(times))];
    for column in 0..8 {
        let slow = 100.0 + f64::from(column);
        let values = (first..end).map(|row| ((row as f64 / slow).sin() * 1e4).round() / 100.0);
        columns.push(Arc::new(Float64Array::from_iter_values(values)));
    }
    RecordBatch::try_new(schema(), columns).expect("columns of the schema")
}

/// The median of many turns, in microseconds, and the rows that each brought.
fn median_us(mut turn: impl FnMut(i64) -> usize) -> (f64, usize) {
    let rows = turn(0);
    let mut times: Vec<f64> = (1..=TURNS)
        .map(|number| {
            let start = Instant::now();
            let found = turn(number);
            let us = start.elapsed().as_secs_f64() * 1e6;
            // Ranges that move may touch one group more.
            assert!(found.abs_diff(rows) <= 1, "turn {number}: {found} rows");
            us
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], rows)
}

fn count(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// Ranges that move by a row per turn.
#[derive(Clone, Copy)]
struct Ranges {
    rows: i64,
}

impl Ranges {
    fn first(self, length: i64, turn: i64) -> i64 {
        (self.rows / 2 + turn).min(self.rows - length)
    }

    fn text(self, length: i64, turn: i64) -> String {
        let first = self.first(length, turn);
        let time = |row: i64| {
            let (seconds, ms) = (row / 1_000, row % 1_000);
            let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
            let day = 1 + hour / 24;
            format!(
                "2026-01-{day:02}T{:02}:{minute:02}:{second:02}.{ms:03}",
                hour % 24
            )
        };
        format!(
            "ts >= '{}' AND ts < '{}'",
            time(first),
            time(first + length)
        )
    }

    fn percent(self, percent: i64, turn: i64) -> String {
        self.text((self.rows * percent / 100).max(1), turn)
    }
}

type Question = (&'static str, fn(Ranges, i64) -> String);

const QUESTIONS: [Question; 13] = [
    ("SELECT 1", |_, _| "SELECT 1".to_owned()),
    ("200 rows", |ranges, turn| {
        format!("SELECT * FROM t WHERE {}", ranges.text(200, turn))
    }),
    ("2,000 rows", |ranges, turn| {
        format!("SELECT * FROM t WHERE {}", ranges.text(2_000, turn))
    }),
    ("20,000 rows", |ranges, turn| {
        format!("SELECT * FROM t WHERE {}", ranges.text(20_000, turn))
    }),
    ("count(*)", |_, _| "SELECT count(*) FROM t".to_owned()),
    ("aggregate of 1 %", |ranges, turn| {
        let range = ranges.percent(1, turn);
        format!("SELECT avg(a1), max(a2), min(a3) FROM t WHERE {range}")
    }),
    ("aggregate of 10 %", |ranges, turn| {
        let range = ranges.percent(10, turn);
        format!("SELECT avg(a1), max(a2), min(a3) FROM t WHERE {range}")
    }),
    ("aggregate of all", |_, _| {
        "SELECT avg(a1), max(a2), min(a3), stddev(a4) FROM t".to_owned()
    }),
    ("by time, 1 %", |ranges, turn| {
        let range = ranges.percent(1, turn);
        format!(
            "SELECT date_bin(INTERVAL '1 second', ts) AS s, avg(a1) FROM t WHERE {range} GROUP BY s ORDER BY s"
        )
    }),
    ("filter of 1 %", |ranges, turn| {
        let range = ranges.percent(1, turn);
        format!("SELECT ts, a1 FROM t WHERE a1 > 99.99 AND a1 < -99.99 AND {range}")
    }),
    ("group of 1 %", |ranges, turn| {
        let range = ranges.percent(1, turn);
        format!("SELECT a1 > 1000, count(*) FROM t WHERE {range} GROUP BY 1")
    }),
    ("last row", |_, _| {
        "SELECT * FROM t ORDER BY ts DESC LIMIT 1".to_owned()
    }),
    ("join of 100 rows", |ranges, turn| {
        let range = ranges.text(100, turn).replace("ts", "x.ts");
        format!("SELECT count(*) FROM t x JOIN t y ON x.ts = y.ts WHERE {range}")
    }),
];

fn stored(rows: i64) -> Session {
    let options = EngineOptions {
        threads: THREADS,
        ..EngineOptions::default()
    };
    let engine = Engine::in_memory(options).expect("a database");
    let table = engine.create_table("t", &schema(), &CreateOptions::stream("ts"));
    let table = table.expect("a table");
    for batch in batches(rows) {
        table.append([Ok(batch)], None).expect("an append");
    }
    let options = QueryOptions {
        threads: THREADS,
        ..QueryOptions::default()
    };
    Session::new(engine, options).expect("SQL")
}

/// DataFusion as it comes.
struct Plain {
    context: SessionContext,
    provider: PlainProvider,
    runtime: Runtime,
}

/// The table and the functions of a context of DataFusion.
struct PlainProvider {
    state: SessionState,
    table: Arc<dyn TableSource>,
}

impl ContextProvider for PlainProvider {
    fn get_table_source(&self, _: TableReference) -> Result<Arc<dyn TableSource>> {
        Ok(Arc::clone(&self.table))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.state.expr_planners()
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.state.scalar_functions().get(name).cloned()
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.state.higher_order_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.state.aggregate_functions().get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).cloned()
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Plain {
    fn new(rows: i64) -> Self {
        let config = SessionConfig::new().with_target_partitions(THREADS);
        let context = SessionContext::new_with_config(config);
        let table = MemTable::try_new(schema(), vec![batches(rows).collect()]).expect("a table");
        let provider = PlainProvider {
            state: context.state(),
            table: provider_as_source(Arc::new(table)),
        };
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).build();
        Self {
            context,
            provider,
            runtime: runtime.expect("threads"),
        }
    }

    fn rows(&self, text: &str) -> usize {
        let answer = async {
            let statement = DFParser::parse_sql(text)?.pop_front().expect(text);
            let planner = SqlPlanner::new(&self.provider, ParserOptions::default());
            let plan = planner.plan_any(statement)?;
            self.context
                .execute_logical_plan(plan)
                .await?
                .collect()
                .await
        };
        count(&self.runtime.block_on(answer).expect(text))
    }
}

fn main() {
    let rows = std::env::args()
        .nth(1)
        .map_or(Ok(1_000_000), |rows| rows.parse());
    let rows: i64 = rows
        .ok()
        .filter(|rows| *rows >= 40_000)
        .expect("at least 40,000 rows");
    let start = Instant::now();
    let engine = stored(rows);
    println!("{rows} rows in {:.1} s", start.elapsed().as_secs_f64());
    let plain = (rows <= MAX_PLAIN_ROWS).then(|| Plain::new(rows));
    statements(&engine, plain.as_ref(), Ranges { rows });
    prepared(&engine, Ranges { rows });
    scans(&engine, Ranges { rows });
    replay(&engine);
}

fn statements(engine: &Session, plain: Option<&Plain>, ranges: Ranges) {
    let start = |text: &str| engine.sql(text, &Params::None, &[]).expect(text);
    let rows = |text: &str| count(&start(text).collect().expect(text));
    println!(
        "{:20}{:>12}{:>10}{:>10}{:>10}{:>10}",
        "", "DataFusion", "planning", "in all", "kept", "rows"
    );
    for (name, text) in QUESTIONS {
        let plain = plain.map_or(String::new(), |plain| {
            format!("{:.0}", median_us(|turn| plain.rows(&text(ranges, turn))).0)
        });
        // Another comment is another text, also where there is no range in it.
        let fresh = |kind, turn| format!("{} -- {kind} {turn}", text(ranges, turn));
        let (planning_us, _) = median_us(|turn| {
            black_box(start(&fresh("planning", turn)));
            0
        });
        let (in_all_us, found) = median_us(|turn| rows(&fresh("in all", turn)));
        let (kept_us, _) = median_us(|_| rows(&text(ranges, 0)));
        println!(
            "{name:20}{plain:>12}{planning_us:>10.0}{in_all_us:>10.0}{kept_us:>10.0}{found:>10}"
        );
    }
}

fn prepared(engine: &Session, ranges: Ranges) {
    let prepared = engine.prepare("SELECT * FROM t WHERE ts >= $1 AND ts < $2");
    let prepared = prepared.expect("a statement");
    let time = |row| ScalarValue::TimestampMillisecond(Some(START_MS + row), None);
    for length in [200, 2_000] {
        let (us, rows) = median_us(|turn| {
            let first = ranges.first(length, turn);
            let params = Params::Positional(vec![time(first), time(first + length)]);
            let result = prepared.execute(&params).expect("parameters that fit");
            count(&result.collect().expect("rows"))
        });
        println!(
            "{:20}{us:>32.0}{rows:>20}",
            format!("prepared, {length} rows")
        );
    }
}

fn scans(engine: &Session, ranges: Ranges) {
    let table = engine.engine().table("t").expect("the table");
    for length in [200, 2_000] {
        let (us, rows) = median_us(|turn| {
            let first = START_MS + ranges.first(length, turn);
            let scan = TableScan {
                keys: KeyRange {
                    first,
                    last: first + length - 1,
                },
                ..TableScan::default()
            };
            let result = engine.scan(&table, &scan).expect("a scan");
            count(&result.collect().expect("rows"))
        });
        println!("{:20}{us:>32.0}{rows:>20}", format!("scan, {length} rows"));
    }
}

fn replay(engine: &Session) {
    let start = Instant::now();
    let mut result = engine
        .sql("SELECT * FROM t", &Params::None, &[])
        .expect("a replay");
    let mut rows = 0;
    while let Some(batch) = result.next_batch().expect("rows") {
        rows += batch.num_rows();
    }
    let rate = rows as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("replay of {rows} rows: {rate:.1} million rows/s");
}
