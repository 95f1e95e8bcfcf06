//! The connection: snapshots, kept plans, parameters, cancellation, what a statement may not do.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests fail by panic"
)]

mod definitions;
mod limits;
#[expect(
    clippy::disallowed_methods,
    reason = "real clocks and threads are what is tested"
)]
mod memory;
#[expect(
    clippy::disallowed_methods,
    reason = "real clocks and threads are what is tested"
)]
mod sessions;
mod system_tables;
mod times;
mod views;

use arrow::array::{Array, Int64Array, RecordBatch, RecordBatchIterator, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::scope;
use std::time::{Duration, Instant};
use thalweg_query::{ExtraTable, Fetched, Params, QueryOptions, ScalarValue, Session, TableScan};
use thalweg_table::schema::parse_type;
use thalweg_table::{CreateOptions, Engine, EngineOptions, ErrorKind, KeyRange};

fn engine() -> Session {
    let engine = Engine::in_memory(EngineOptions::default()).unwrap();
    Session::new(
        engine,
        QueryOptions {
            threads: 2,
            ..QueryOptions::default()
        },
    )
    .unwrap()
}

fn run(engine: &Session, sql: &str) -> Vec<RecordBatch> {
    engine
        .sql(sql, &Params::None, &[])
        .unwrap_or_else(|e| panic!("{sql}: {e}"))
        .collect()
        .unwrap_or_else(|e| panic!("{sql}: {e}"))
}

fn fail(engine: &Session, sql: &str) -> (ErrorKind, String) {
    let error = engine
        .sql(sql, &Params::None, &[])
        .and_then(|result| result.collect())
        .expect_err(sql);
    (error.kind(), error.message().to_owned())
}

fn number(batches: &[RecordBatch]) -> i64 {
    let column = batches[0].column(0);
    if let Some(counts) = column.as_any().downcast_ref::<UInt64Array>() {
        return i64::try_from(counts.value(0)).unwrap();
    }
    column
        .as_any()
        .downcast_ref::<Int64Array>()
        .unwrap()
        .value(0)
}

fn numbers(name: &str, values: impl IntoIterator<Item = i64>) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![Field::new(name, DataType::Int64, true)]));
    RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(values))]).unwrap()
}

#[test]
fn a_query_sees_the_snapshot_of_its_call() {
    let engine = engine();
    run(
        &engine,
        "CREATE TABLE t (ts BIGINT, v INT) WITH (time = 'ts')",
    );
    run(&engine, "INSERT INTO t VALUES (1, 1)");
    let before = engine
        .sql("SELECT count(*) FROM t WHERE v > 0", &Params::None, &[])
        .unwrap();
    run(&engine, "INSERT INTO t VALUES (2, 2)");
    assert_eq!(number(&before.collect().unwrap()), 1);
    assert_eq!(
        number(&run(&engine, "SELECT count(*) FROM t WHERE v > 0")),
        2
    );
}

#[test]
fn kept_plans_follow_rows_and_definitions() {
    let engine = engine();
    run(
        &engine,
        "CREATE TABLE t (ts BIGINT, v INT) WITH (time = 'ts')",
    );
    let prepared = engine
        .prepare("SELECT count(*), max(v) FROM t WHERE ts >= 0")
        .unwrap();
    for count in 0..5 {
        assert_eq!(
            number(&prepared.execute(&Params::None).unwrap().collect().unwrap()),
            count
        );
        run(&engine, &format!("INSERT INTO t VALUES ({count}, {count})"));
    }
    let all = "SELECT * FROM t";
    assert_eq!(run(&engine, all)[0].num_columns(), 2);
    run(&engine, "DROP TABLE t");
    assert_eq!(fail(&engine, all).0, ErrorKind::NotFound);
    assert_eq!(
        prepared
            .execute(&Params::None)
            .map(|_| ())
            .unwrap_err()
            .kind(),
        ErrorKind::NotFound
    );
    run(
        &engine,
        "CREATE TABLE t (v DOUBLE, ts INT, more VARCHAR) WITH (time = 'ts')",
    );
    run(&engine, "INSERT INTO t VALUES (0.5, 1, 'x')");
    assert_eq!(run(&engine, all)[0].num_columns(), 3);
    assert_eq!(
        number(&prepared.execute(&Params::None).unwrap().collect().unwrap()),
        1
    );
}

#[test]
fn now_is_never_kept() {
    let engine = engine();
    let first = run(&engine, "SELECT CAST(now() AS BIGINT)");
    std::hint::black_box(run(
        &engine,
        "SELECT count(*) FROM generate_series(1, 10000)",
    ));
    let second = run(&engine, "SELECT CAST(now() AS BIGINT)");
    assert!(number(&second) > number(&first));
}

#[test]
fn one_row_tells_what_a_statement_changed() {
    let engine = engine();
    let created = engine
        .sql("CREATE TABLE t (v INT)", &Params::None, &[])
        .unwrap();
    assert!(created.is_count());
    assert_eq!(created.schema().field(0).name(), "count");
    assert_eq!(number(&created.collect().unwrap()), 0);
    assert_eq!(
        number(&run(&engine, "INSERT INTO t VALUES (1), (2), (3)")),
        3
    );
    assert!(
        !engine
            .sql("SELECT 1", &Params::None, &[])
            .unwrap()
            .is_count()
    );
}

#[test]
fn a_result_is_read_once_and_rows_come_in_pieces() {
    let engine = engine();
    let mut result = engine
        .sql(
            "SELECT * FROM generate_series(1, 100000)",
            &Params::None,
            &[],
        )
        .unwrap();
    let (mut rows, mut pieces) = (0, 0);
    while let Some(batch) = result.next_batch().unwrap() {
        assert!(batch.num_rows() > 0 && batch.num_rows() <= 8_192);
        rows += batch.num_rows();
        pieces += 1;
    }
    assert_eq!(rows, 100_000);
    assert!(pieces > 5);
    assert!(result.next_batch().unwrap().is_none());
    assert!(matches!(
        result.poll_batch(Duration::from_millis(1)).unwrap(),
        Fetched::End
    ));
}

#[test]
fn parameters_of_inserts() {
    let engine = engine();
    run(
        &engine,
        "CREATE TABLE t (ts TIMESTAMP(3), v DOUBLE, s VARCHAR) WITH (time = 'ts')",
    );
    let insert = engine.prepare("INSERT INTO t VALUES (?, ?, ?)").unwrap();
    assert_eq!(insert.parameter_names(), ["1", "2", "3"]);
    let row = |ms: i64, v: Option<f64>| {
        Params::Positional(vec![
            ScalarValue::TimestampMillisecond(Some(ms), None),
            ScalarValue::Float64(v),
            ScalarValue::Utf8(Some("x".into())),
        ])
    };
    for ms in 0..10 {
        assert_eq!(
            number(
                &insert
                    .execute(&row(ms, Some(0.5)))
                    .unwrap()
                    .collect()
                    .unwrap()
            ),
            1
        );
    }
    insert.execute(&row(10, None)).unwrap();
    assert_eq!(
        number(&run(&engine, "SELECT count(*) FROM t WHERE s = 'x'")),
        11
    );
    assert_eq!(number(&run(&engine, "SELECT count(v) FROM t")), 10);
    assert!(insert.execute(&Params::None).is_err());
    let named = Params::Named(vec![
        ("a".into(), ScalarValue::Int64(Some(77))),
        ("b".into(), ScalarValue::Float64(Some(1.0))),
    ]);
    engine
        .sql(
            "INSERT INTO t (v, ts) VALUES ($b * 2, arrow_cast($a, 'Timestamp(Millisecond, None)'))",
            &named,
            &[],
        )
        .unwrap();
    assert_eq!(
        number(&run(&engine, "SELECT count(*) FROM t WHERE v = 2")),
        1
    );
}

#[test]
fn tables_that_are_handed_in() {
    let engine = engine();
    run(&engine, "CREATE TABLE t (v BIGINT)");
    run(&engine, "INSERT INTO t VALUES (1)");
    let batch = numbers("V", 0..1_000);
    let frame = (
        "Frame".to_owned(),
        ExtraTable::batches(batch.schema(), vec![batch.clone()]),
    );
    let ask = |sql: &str, extra: &[(String, ExtraTable)]| {
        engine
            .sql(sql, &Params::None, extra)
            .and_then(|result| result.collect())
    };
    let frames = [frame];
    assert_eq!(
        number(&ask("SELECT count(*) FROM frame WHERE v >= 500", &frames).unwrap()),
        500
    );
    assert_eq!(
        number(&ask("SELECT sum(f.v) FROM Frame f JOIN t ON f.v = T.V", &frames).unwrap()),
        1
    );
    assert_eq!(
        number(&ask("INSERT INTO t SELECT v FROM frame", &frames).unwrap()),
        1_000
    );
    // The database's own table comes first.
    let shadow = [("t".to_owned(), ExtraTable::batches(batch.schema(), vec![]))];
    assert_eq!(
        number(&ask("SELECT count(*) FROM t", &shadow).unwrap()),
        1_001
    );
    assert_eq!(
        ask("SELECT * FROM frame", &[]).unwrap_err().kind(),
        ErrorKind::NotFound
    );

    let reader = || {
        Box::new(RecordBatchIterator::new(
            [Ok(batch.clone()), Ok(batch.clone())],
            batch.schema(),
        ))
    };
    let once = [("r".to_owned(), ExtraTable::reader(reader()))];
    assert_eq!(
        number(&ask("SELECT count(*) FROM r", &once).unwrap()),
        2_000
    );
    let error = ask("SELECT count(*) FROM r", &once).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Query);
    assert!(error.message().contains("once"), "{error}");
}

#[test]
fn names_that_nobody_has() {
    let engine = engine();
    run(&engine, "CREATE TABLE t (v BIGINT)");
    let unknown = |sql: &str| engine.unknown_tables(sql).unwrap();
    assert_eq!(
        unknown("SELECT * FROM myFrame JOIN T USING (v), thalweg_tables, myFrame m"),
        ["myFrame"]
    );
    assert_eq!(
        unknown("WITH c AS (SELECT * FROM inner_frame) SELECT * FROM c"),
        ["inner_frame"]
    );
    assert_eq!(unknown("INSERT INTO t SELECT * FROM df"), ["df"]);
    assert!(unknown("DROP TABLE x").is_empty());
}

#[test]
fn statements_can_be_stopped() {
    let engine = engine();
    let endless = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b WHERE a.value + b.value = 3";
    let mut result = engine.sql(endless, &Params::None, &[]).unwrap();
    assert!(matches!(
        result.poll_batch(Duration::from_millis(20)).unwrap(),
        Fetched::Pending
    ));
    let handle = result.cancel_handle();
    scope(|threads| {
        let (sender, receiver) = mpsc::channel();
        threads.spawn(move || sender.send(result.next_batch().map(|_| ())).unwrap());
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
        handle.cancel();
        let error = receiver
            .recv_timeout(Duration::from_secs(1))
            .expect("it stops within a second")
            .unwrap_err();
        assert!(error.message().contains("cancelled"));
    });
    // Dropping is enough, and the threads are free again.
    for _ in 0..4 {
        let long = "SELECT sum(value) FROM generate_series(1, 1000000000000)";
        let mut dropped = engine.sql(long, &Params::None, &[]).unwrap();
        assert!(matches!(
            dropped.poll_batch(Duration::from_millis(20)).unwrap(),
            Fetched::Pending
        ));
    }
    let join = "SELECT count(*) FROM generate_series(1, 1000) a JOIN generate_series(1, 9) b ON a.value = b.value";
    assert_eq!(number(&run(&engine, join)), 9);
}

/// Queries that run for minutes on a table of a few thousand rows.
const LONG: [&str; 8] = [
    "SELECT count(*) FROM n a JOIN n b ON a.n <> b.n JOIN n c ON b.n <> c.n",
    "SELECT sum(a.n * b.n + c.n) FROM n a CROSS JOIN n b CROSS JOIN n c WHERE a.n + b.n <> c.n",
    "SELECT a.n, count(*) FROM n a, n b, n c WHERE a.n + b.n > c.n GROUP BY a.n ORDER BY 2",
    "SELECT max(x) FROM (SELECT a.n * b.n AS x FROM n a, n b, n c ORDER BY x LIMIT 100000000)",
    "SELECT a.n FROM n a JOIN n b ON a.n <> b.n JOIN n c ON a.n + b.n + c.n < 0",
    "SELECT count(*) FROM n a, n b, n c WHERE a.n % 2 = b.n % 2 AND b.n % 2 = c.n % 2 AND a.n + b.n + c.n < 0",
    "SELECT max(x) FROM (SELECT row_number() OVER (PARTITION BY a.n % 7 ORDER BY b.n) AS x FROM n a, n b, n c)",
    "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r) SELECT count(*) FROM r",
];

#[test]
#[expect(clippy::disallowed_methods, reason = "a test of times reads the clock")]
fn the_caller_gets_away_from_long_queries_and_so_do_the_threads() {
    let engine = engine();
    run(&engine, "CREATE TABLE n (n BIGINT)");
    run(
        &engine,
        "INSERT INTO n SELECT value FROM generate_series(1, 3000)",
    );
    for sql in LONG {
        let mut result = engine.sql(sql, &Params::None, &[]).unwrap();
        for _ in 0..10 {
            let start = Instant::now();
            let fetched = result.poll_batch(Duration::from_millis(20)).unwrap();
            assert!(matches!(fetched, Fetched::Pending), "{sql}");
            assert!(
                start.elapsed() < Duration::from_millis(500),
                "{sql}: {:?}",
                start.elapsed()
            );
        }
        let handle = result.cancel_handle();
        scope(|threads| {
            let waiting = threads.spawn(move || result.next_batch().map(|_| ()));
            let start = Instant::now();
            handle.cancel();
            let error = waiting.join().unwrap().unwrap_err();
            assert!(error.message().contains("cancelled"), "{error}");
            assert!(
                start.elapsed() < Duration::from_secs(1),
                "{sql}: {:?}",
                start.elapsed()
            );
        });
        let start = Instant::now();
        assert_eq!(
            number(&run(
                &engine,
                "SELECT count(*) FROM n a JOIN n b ON a.n = b.n"
            )),
            3_000
        );
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "{sql}: {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn a_large_table_is_scanned_in_parts() {
    let engine = engine();
    run(
        &engine,
        "CREATE TABLE t (ts BIGINT, v BIGINT) WITH (time = 'ts')",
    );
    run(
        &engine,
        "INSERT INTO t SELECT value, value % 1000 FROM generate_series(1, 1000000)",
    );
    let plan = |sql: &str| {
        let batches = run(&engine, &format!("EXPLAIN {sql}"));
        let plans = batches[0]
            .column(1)
            .as_any()
            .downcast_ref::<arrow::array::StringArray>()
            .unwrap();
        (0..plans.len())
            .map(|row| plans.value(row).to_owned())
            .collect::<String>()
    };
    let grouped = "SELECT v % 7 AS g, count(*), sum(v) FROM t GROUP BY g ORDER BY g";
    assert!(plan(grouped).contains("partitions=2"), "{}", plan(grouped));
    assert_eq!(
        run(&engine, grouped)
            .iter()
            .map(RecordBatch::num_rows)
            .sum::<usize>(),
        7
    );
    let filtered = "SELECT ts FROM t WHERE v = 5";
    assert!(
        plan(filtered).contains("partitions=1"),
        "{}",
        plan(filtered)
    );
    let rows: Vec<i64> = run(&engine, filtered)
        .iter()
        .flat_map(|batch| {
            batch
                .column(0)
                .as_any()
                .downcast_ref::<Int64Array>()
                .unwrap()
                .values()
                .to_vec()
        })
        .collect();
    assert!(rows.len() == 1_000 && rows.is_sorted());
    assert_eq!(
        number(&run(&engine, "SELECT ts FROM t ORDER BY ts DESC LIMIT 1")),
        1_000_000
    );
    assert_eq!(
        number(&run(
            &engine,
            "SELECT ts FROM t WHERE v = 5 ORDER BY ts DESC LIMIT 1"
        )),
        999_005
    );
    assert_eq!(
        number(&run(&engine, "SELECT sum(v) FROM t WHERE v % 2 = 0")),
        249_500_000
    );
    assert_eq!(
        number(&run(
            &engine,
            "SELECT count(*) FROM t a JOIN t b ON a.ts = b.ts WHERE a.v = 3"
        )),
        1_000
    );
}

#[test]
fn scans_of_one_table() {
    let engine = engine();
    run(
        &engine,
        "CREATE TABLE \"T\" (\"Ts\" BIGINT, v DOUBLE, \"Name\" VARCHAR) WITH (time = 'ts')",
    );
    let insert = "INSERT INTO t SELECT value, value / 10.0, CAST(value % 3 AS VARCHAR) FROM generate_series(1, 1000)";
    run(&engine, insert);
    let table = engine.engine().table("t").unwrap();
    let scan = |scan: &TableScan| {
        engine
            .scan(&table, scan)
            .and_then(|result| result.collect())
    };
    let rows = |wanted: &TableScan| {
        scan(wanted)
            .unwrap()
            .iter()
            .map(RecordBatch::num_rows)
            .sum::<usize>()
    };
    assert_eq!(rows(&TableScan::default()), 1_000);
    let keys = KeyRange {
        first: 11,
        last: 60,
    };
    let some = TableScan {
        columns: Some(vec!["NAME".into(), "ts".into()]),
        keys,
        limit: Some(20),
        ..TableScan::default()
    };
    let batches = scan(&some).unwrap();
    assert_eq!(batches[0].schema().field(0).name(), "Name");
    assert_eq!((batches[0].num_columns(), rows(&some)), (2, 20));
    let filtered = TableScan {
        filter: Some("name = '1' AND V > 2".into()),
        keys,
        ..TableScan::default()
    };
    assert_eq!(rows(&filtered), 13);
    let float = |value| ScalarValue::Float64(Some(value));
    let boxed = TableScan {
        boxes: vec![("v".into(), float(2.0), float(2.5))],
        columns: Some(vec!["ts".into()]),
        ..filtered.clone()
    };
    assert_eq!(scan(&boxed).unwrap()[0].num_columns(), 1);
    assert_eq!(rows(&boxed), 2);
    let limited = TableScan {
        limit: Some(5),
        ..filtered.clone()
    };
    assert_eq!(rows(&limited), 5);
    let sub = TableScan {
        filter: Some("v = (SELECT max(v) FROM t)".into()),
        ..TableScan::default()
    };
    assert_eq!(rows(&sub), 1);
    let bad = |filter: &str| {
        scan(&TableScan {
            filter: Some(filter.into()),
            ..TableScan::default()
        })
        .unwrap_err()
        .kind()
    };
    assert_eq!(bad("nothing = 1"), ErrorKind::Query);
    assert_eq!(bad("v = 1 ORDER BY v"), ErrorKind::Query);
    assert_eq!(bad("v = ?"), ErrorKind::Query);
    assert_eq!(bad("v"), ErrorKind::Query);
    let missing = TableScan {
        columns: Some(vec!["no".into()]),
        ..TableScan::default()
    };
    assert_eq!(scan(&missing).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn an_insert_can_be_stopped_and_stores_nothing() {
    let engine = engine();
    run(&engine, "CREATE TABLE t (v BIGINT)");
    let go_on = AtomicBool::new(true);
    let insert = "INSERT INTO t SELECT a.value FROM generate_series(1, 100000) a, generate_series(1, 1000000) b";
    scope(|threads| {
        let (sender, receiver) = mpsc::channel();
        let (engine, go_on) = (&engine, &go_on);
        threads.spawn(move || {
            let look = || go_on.load(Ordering::Relaxed);
            let inserted = engine.sql_while(insert, &Params::None, &[], &look);
            sender.send(inserted.map(|_| ())).unwrap();
        });
        assert!(receiver.recv_timeout(Duration::from_millis(100)).is_err());
        go_on.store(false, Ordering::Relaxed);
        let error = receiver
            .recv_timeout(Duration::from_secs(1))
            .expect("it stops")
            .unwrap_err();
        assert!(error.message().contains("cancelled"), "{error}");
    });
    assert_eq!(number(&run(&engine, "SELECT count(*) FROM t")), 0);
}

#[test]
fn naive_times_mean_utc_also_against_a_column_with_a_zone() {
    let engine = engine();
    let zoned = parse_type("timestamp[us, America/New_York]").unwrap();
    let schema = Schema::new(vec![
        Field::new("ts", zoned, true),
        Field::new("v", DataType::Int32, true),
    ]);
    let options = CreateOptions::from_pairs([("time", "ts")]).unwrap();
    engine
        .engine()
        .create_table("z", &schema, &options)
        .unwrap();
    run(
        &engine,
        "INSERT INTO z VALUES ('2026-02-20', 1), ('2026-02-20T05:00:00', 2)",
    );
    let found = |condition: &str| {
        let filtered = format!("SELECT v FROM z WHERE {condition}");
        run(&engine, &filtered)
            .iter()
            .map(RecordBatch::num_rows)
            .sum::<usize>()
    };
    for (condition, rows) in [
        ("ts = '2026-02-20'", 1),
        ("ts >= '2026-02-20'", 2),
        ("ts < '2026-02-20T00:00:01'", 1),
        ("ts BETWEEN '2026-02-20' AND '2026-02-20T04:59:59'", 1),
        ("ts IN ('2026-02-20', '2020-01-01')", 1),
        ("ts = DATE '2026-02-20'", 1),
        ("ts = TIMESTAMP '2026-02-20 00:00:00'", 1),
        ("ts = '2026-02-20T00:00:00-05:00'", 1),
        ("ts = '2026-02-19T19:00:00-05:00' AND v = 1", 1),
        ("ts <> '2026-02-20' AND v > 0", 1),
        ("v = (SELECT min(v) FROM z WHERE ts >= '2026-02-20')", 1),
    ] {
        assert_eq!(found(condition), rows, "{condition}");
    }
    let counted = "SELECT count(*) FROM z WHERE ts < '2026-02-20T05:00:00'";
    assert_eq!(number(&run(&engine, counted)), 1);
    let midnight = 1_771_545_600_000_000;
    for naive in [
        ScalarValue::TimestampMicrosecond(Some(midnight), None),
        ScalarValue::Utf8(Some("2026-02-20".into())),
    ] {
        for sql in [
            "SELECT count(v) FROM z WHERE ts = ?",
            "SELECT count(*) FROM z WHERE ts <= ? AND v < 9",
        ] {
            let params = Params::Positional(vec![naive.clone()]);
            let counts = engine.sql(sql, &params, &[]).unwrap().collect().unwrap();
            assert_eq!(number(&counts), 1, "{sql} {naive:?}");
        }
    }
    let table = engine.engine().table("z").unwrap();
    let scan = TableScan {
        filter: Some("ts = '2026-02-20'".into()),
        ..TableScan::default()
    };
    let rows = engine.scan(&table, &scan).unwrap().collect().unwrap();
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
}

#[test]
fn types_that_cannot_be_stored_are_errors_of_the_schema() {
    let engine = engine();
    for data_type in ["INT[]", "TIME", "INTERVAL", "DECIMAL(50, 2)"] {
        let (kind, message) = fail(&engine, &format!("CREATE TABLE t (v {data_type})"));
        assert_eq!(kind, ErrorKind::Schema, "{data_type}: {message}");
        assert!(message.contains("column \"v\""), "{message}");
    }
    run(&engine, "CREATE TABLE t (p DECIMAL(5, 2))");
    let (kind, _) = fail(&engine, "INSERT INTO t VALUES (1.234)");
    assert_eq!(kind, ErrorKind::Schema);
}

#[test]
fn a_sum_beyond_64_bits_is_an_error() {
    let engine = engine();
    run(
        &engine,
        "CREATE TABLE big (ts BIGINT, v BIGINT, u BIGINT UNSIGNED) WITH (time = 'ts')",
    );
    let (half, most) = (1_i64 << 62, u64::MAX);
    run(
        &engine,
        &format!("INSERT INTO big VALUES (1, {half}, {most}), (2, {half}, 1), (3, -1, 0)"),
    );
    // What fits in the end is no error, whatever came on the way.
    let fitting = run(&engine, "SELECT sum(v) FROM big");
    assert_eq!(number(&fitting), i64::MAX);
    run(&engine, "INSERT INTO big VALUES (4, 1, 0)");
    for (column, sum) in [("v", "9223372036854775808"), ("u", "18446744073709551616")] {
        let sql = format!("SELECT sum({column}) FROM big");
        let (kind, message) = fail(&engine, &sql);
        assert_eq!(kind, ErrorKind::Query, "{message}");
        assert!(
            message.contains(column) && message.contains(sum),
            "{message}"
        );
        assert!(message.contains("DECIMAL"), "{message}");
        run(
            &engine,
            &format!("SELECT sum(CAST({column} AS DECIMAL(38, 0))) FROM big"),
        );
    }
}

#[test]
fn statements_run_inside_async_tasks() {
    let engine = engine();
    run(
        &engine,
        "CREATE TABLE t (ts BIGINT, v BIGINT) WITH (time = 'ts')",
    );
    let asked = [
        // In the thread that pulls, on threads of queries, and from the table itself.
        "SELECT sum(v) FROM t",
        "SELECT v FROM t WHERE v > 40",
        "SELECT sum(a.v) FROM t a JOIN t b ON a.v = b.v",
    ];
    let ask_all = |engine: &Session| {
        run(
            engine,
            "INSERT INTO t SELECT value, value AS v FROM generate_series(1, 42)",
        );
        let answers = asked.map(|sql| {
            run(engine, sql)
                .iter()
                .map(RecordBatch::num_rows)
                .sum::<usize>()
        });
        run(engine, "DROP TABLE t");
        run(
            engine,
            "CREATE TABLE t (ts BIGINT, v BIGINT) WITH (time = 'ts')",
        );
        answers
    };
    let outside = ask_all(&engine);
    let current = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    assert_eq!(current.block_on(async { ask_all(&engine) }), outside);
    let many = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let moved = engine.clone();
    let spawned = many.spawn(async move {
        let mut rows = moved.sql(asked[1], &Params::None, &[]).unwrap();
        let looked = rows.poll_batch(Duration::from_millis(1)).unwrap();
        assert!(matches!(looked, Fetched::End | Fetched::Pending));
        // The last to let go of the threads of queries.
        drop(moved);
        drop(rows);
    });
    drop(engine);
    many.block_on(spawned).unwrap();
}

#[test]
fn a_result_begun_outside_goes_on_inside_an_async_task() {
    let engine = engine();
    let sql = "SELECT value FROM generate_series(1, 100000)";
    let mut rows = engine.sql(sql, &Params::None, &[]).unwrap();
    let mut found = rows.next_batch().unwrap().unwrap().num_rows();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    found += runtime.block_on(async {
        let rest = rows.collect().unwrap();
        rest.iter().map(RecordBatch::num_rows).sum::<usize>()
    });
    assert_eq!(found, 100_000);
}

#[test]
fn lists_of_parameters_find_both_zeros() {
    let engine = engine();
    run(
        &engine,
        "CREATE TABLE z (ts BIGINT, x DOUBLE, r REAL) WITH (time = 'ts')",
    );
    run(
        &engine,
        "INSERT INTO z VALUES (1, 0.0, 0.0), (2, -0.0, -0.0), (3, 1.5, 1.5)",
    );
    for column in ["x", "r"] {
        for zero in [0.0, -0.0] {
            for (condition, found) in [
                ("IN (?, ?)", 2),
                ("IN (?, ?, 7, 8, 9)", 2),
                ("NOT IN (?, ?, 7, 8, 9)", 1),
                ("IN (7, 8, 9, -0.0 * ?, ?)", 2),
            ] {
                let sql = format!("SELECT count(*) FROM z WHERE {column} {condition}");
                let values = [zero, 30.0].map(|value| ScalarValue::Float64(Some(value)));
                // A kept plan gives the same again.
                for _ in 0..2 {
                    let result = engine.sql(&sql, &Params::Positional(values.to_vec()), &[]);
                    let batches = result.and_then(|result| result.collect()).unwrap();
                    assert_eq!(number(&batches), found, "{sql} with {zero:?}");
                }
            }
        }
    }
}

/// The lines of a plan, with these values for its parameters.
fn explained(engine: &Session, sql: &str, params: &Params) -> String {
    let direct = engine.sql(sql, params, &[]).unwrap().collect().unwrap();
    let prepared = engine.prepare(sql).unwrap().execute(params).unwrap();
    let of = |batches: Vec<RecordBatch>| {
        let batches = batches.into_iter();
        let plans = batches.map(|batch| format!("{:?}", batch.column(1)));
        plans.collect::<String>()
    };
    let (direct, prepared) = (of(direct), of(prepared.collect().unwrap()));
    if !sql.contains("ANALYZE") {
        assert_eq!(direct, prepared, "{sql}");
    }
    direct
}

#[test]
fn plans_are_explained_with_parameters() {
    let engine = engine();
    run(
        &engine,
        "CREATE TABLE t (ts TIMESTAMP, v DOUBLE, k VARCHAR) WITH (time = 'ts')",
    );
    run(
        &engine,
        "INSERT INTO t VALUES ('2015-01-01', 1.0, 'a'), ('2017-01-01', 2.0, 'b')",
    );
    let at = ScalarValue::TimestampMicrosecond(Some(1_451_606_400_000_000), None);
    let text = |text: &str| ScalarValue::from(text);
    let from = "ts >= 2016-01-01T00:00:00";
    for (sql, values, shown) in [
        (
            "SELECT count(*) FROM t WHERE v > ?",
            vec![ScalarValue::Int64(Some(1))],
            "v@0 > CAST(1 AS Float64)",
        ),
        (
            "SELECT k FROM t WHERE ts >= ?",
            vec![text("2016-01-01")],
            from,
        ),
        (
            "SELECT count(*) FROM t WHERE ts >= ?",
            vec![text("2016-01-01")],
            "2016-01-01",
        ),
        ("SELECT k FROM t WHERE ts >= ?", vec![at.clone()], from),
        (
            "SELECT k FROM t WHERE ts >= ?",
            vec![ScalarValue::Date32(Some(16_801))],
            from,
        ),
    ] {
        let params = Params::Positional(values);
        for explain in ["EXPLAIN", "EXPLAIN ANALYZE"] {
            let plan = explained(&engine, &format!("{explain} {sql}"), &params);
            assert!(plan.contains(shown), "{explain} {sql}: {plan}");
        }
    }
    let named = Params::Named(vec![("s".into(), text("a")), ("t".into(), at)]);
    let sql = "EXPLAIN SELECT ts FROM t WHERE k = $s AND ts >= $t";
    let plan = explained(&engine, sql, &named);
    assert!(plan.contains(from) && plan.contains("k@"), "{plan}");
}
