//! Sessions: their limits, and statements of async programs.

use super::{engine, fail, number, numbers, run};
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use futures::future::join_all;
use futures::{Stream, StreamExt};
use std::time::{Duration, Instant};
use thalweg_env::Env;
use thalweg_query::{
    ExtraTable, Params, QueryOptions, QueryStream, Session, SessionSettings, TableScan,
};
use thalweg_table::{Engine, EngineOptions, ErrorKind, Result};
use tokio::runtime::{Builder, Runtime};

/// More pairs of rows than any machine goes through in a minute.
const ENDLESS: &str =
    "SELECT count(*) FROM r a JOIN r b ON a.n + b.n < 0 JOIN r c ON b.n + c.n < 1";
const IN_TIME: Duration = Duration::from_secs(10);

/// The runtime of a program: it runs nothing of ours.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn with_rows(rows: i64) -> Session {
    let session = engine();
    run(
        &session,
        "CREATE TABLE r (n BIGINT, v DOUBLE) WITH (time = 'n')",
    );
    let insert = format!(
        "INSERT INTO r SELECT value, value * 0.5 FROM generate_series(0, {})",
        rows - 1
    );
    run(&session, &insert);
    session
}

fn settings(session: &Session, settings: SessionSettings) -> Session {
    session.with(settings).unwrap()
}

fn timeout(session: &Session, timeout_ms: u64) -> Session {
    settings(
        session,
        SessionSettings {
            timeout: Some(Duration::from_millis(timeout_ms)),
            ..SessionSettings::default()
        },
    )
}

fn is_late(error: &(ErrorKind, String)) -> bool {
    error.0 == ErrorKind::Query
        && error
            .1
            .contains("took longer than the timeout of its session")
}

fn stream_of(session: &Session, sql: &str) -> QueryStream {
    session.sql(sql, &Params::None, &[]).unwrap().into_stream()
}

async fn all(
    mut stream: impl Stream<Item = Result<RecordBatch>> + Unpin,
) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await {
        batches.push(batch?);
    }
    Ok(batches)
}

#[test]
fn a_session_that_only_reads_changes_nothing() {
    let session = with_rows(10);
    let guest = settings(
        &session,
        SessionSettings {
            read_only: true,
            ..SessionSettings::default()
        },
    );
    for sql in [
        "INSERT INTO r VALUES (1, 1)",
        "INSERT INTO r SELECT n, v FROM r",
        "CREATE TABLE other (n BIGINT)",
        "CREATE TABLE other AS SELECT * FROM r",
        "DROP TABLE r",
    ] {
        let (kind, message) = fail(&guest, sql);
        assert_eq!(
            (kind, message.contains("only reads")),
            (ErrorKind::Unavailable, true),
            "{sql}: {message}"
        );
        let later = runtime()
            .block_on(guest.run(sql, Params::None))
            .unwrap_err();
        assert_eq!(later.kind(), ErrorKind::Unavailable, "{sql}");
    }
    for sql in [
        "SELECT count(*) FROM r",
        "EXPLAIN SELECT * FROM r",
        "SHOW TABLES",
        "DESCRIBE r",
        "SUMMARIZE r",
    ] {
        assert!(!run(&guest, sql).is_empty(), "{sql}");
    }
    let prepared = guest.prepare("INSERT INTO r VALUES (?, 1)").unwrap();
    let params = Params::Positional(vec![thalweg_query::ScalarValue::Int64(Some(5))]);
    assert_eq!(
        prepared.execute(&params).unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    run(&session, "INSERT INTO r VALUES (10, 1)");
    assert_eq!(number(&run(&guest, "SELECT count(*) FROM r")), 11);
}

#[test]
fn statements_end_with_their_time() {
    let session = with_rows(20_000);
    let hasty = timeout(&session, 150);
    let start = Instant::now();
    assert!(is_late(&fail(&hasty, ENDLESS)));
    let into = format!("INSERT INTO r SELECT k, k FROM ({ENDLESS}) q(k)");
    assert!(is_late(&fail(&hasty, &into)));
    let make = format!("CREATE TABLE other AS {ENDLESS}");
    assert!(is_late(&fail(&hasty, &make)));
    let mut rows = hasty.sql(ENDLESS, &Params::None, &[]).unwrap();
    let error = loop {
        match rows.poll_batch(Duration::from_millis(20)) {
            Ok(fetched) => assert!(matches!(fetched, thalweg_query::Fetched::Pending)),
            Err(error) => break error,
        }
    };
    assert!(is_late(&(error.kind(), error.message().to_owned())));
    for of_sql in [true, false] {
        let error = runtime().block_on(async {
            let stream = match of_sql {
                true => stream_of(&hasty, ENDLESS),
                false => hasty.run(ENDLESS, Params::None).await?,
            };
            all(stream).await
        });
        let error = error.unwrap_err();
        assert!(is_late(&(error.kind(), error.message().to_owned())));
    }
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    // Nothing was stored, and no thread is busy.
    let counted = run(&session, "SELECT count(*) FROM r");
    assert_eq!(number(&counted), 20_000);
    assert!(session.engine().table("other").is_err());
    assert_eq!(number(&run(&hasty, "SELECT count(*) FROM r")), 20_000);
}

#[test]
fn time_goes_on_while_nobody_pulls() {
    let session = with_rows(300_000);
    let hasty = timeout(&session, 800);
    let table = session.engine().table("r").unwrap();
    let plain = hasty.scan(&table, &TableScan::default()).unwrap();
    let sorted = hasty
        .sql("SELECT * FROM r ORDER BY v DESC", &Params::None, &[])
        .unwrap();
    let short = hasty
        .sql("SELECT * FROM r WHERE n < 5", &Params::None, &[])
        .unwrap();
    let mut stream = stream_of(&hasty, "SELECT * FROM r ORDER BY v DESC");
    let runtime = runtime();
    assert!(runtime.block_on(stream.next()).unwrap().is_ok());
    std::thread::sleep(Duration::from_millis(900));
    for rows in [plain, sorted, short] {
        let error = rows.collect().unwrap_err();
        assert!(is_late(&(error.kind(), error.message().to_owned())));
    }
    let error = runtime.block_on(all(&mut stream)).unwrap_err();
    assert!(is_late(&(error.kind(), error.message().to_owned())));
    assert!(runtime.block_on(stream.next()).is_none());
    assert_eq!(number(&run(&hasty, "SELECT count(*) FROM r")), 300_000);
    let zero = SessionSettings {
        timeout: Some(Duration::ZERO),
        ..SessionSettings::default()
    };
    assert_eq!(session.with(zero).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_query_returns_no_more_rows_than_its_session_allows() {
    let session = with_rows(1_000);
    let small = settings(
        &session,
        SessionSettings {
            max_result_rows: Some(500),
            ..SessionSettings::default()
        },
    );
    let table = session.engine().table("r").unwrap();
    for (sql, fits) in [
        ("SELECT * FROM r LIMIT 500", true),
        ("SELECT * FROM r LIMIT 501", false),
        ("SELECT v FROM r ORDER BY v", false),
        ("SELECT sum(v) FROM r", true),
        ("INSERT INTO r SELECT n + 1000, v FROM r", true),
        ("CREATE TABLE copy AS SELECT * FROM r", true),
        ("SUMMARIZE r", true),
    ] {
        let done = small
            .sql(sql, &Params::None, &[])
            .and_then(|rows| rows.collect());
        assert_eq!(
            done.as_ref().err().map(|error| error.kind()),
            (!fits).then_some(ErrorKind::Limit),
            "{sql}"
        );
        if sql.starts_with("SELECT") {
            let done = runtime().block_on(async { all(small.run(sql, Params::None).await?).await });
            assert_eq!(done.is_ok(), fits, "{sql}");
        }
    }
    let scan = |limit| TableScan {
        limit: Some(limit),
        ..TableScan::default()
    };
    assert!(small.scan(&table, &scan(500)).unwrap().collect().is_ok());
    assert!(small.scan(&table, &scan(501)).unwrap().collect().is_err());
}

#[test]
fn the_memory_of_a_session_is_its_own() {
    let session = with_rows(2_500_000);
    let small = settings(
        &session,
        SessionSettings {
            memory_limit_bytes: Some(32 << 20),
            ..SessionSettings::default()
        },
    );
    let groups = "SELECT count(*) FROM (SELECT v, array_agg(n) FROM r GROUP BY v)";
    let (kind, message) = fail(&small, "SELECT count(*) FROM r a JOIN r b ON a.v = b.v + 1");
    assert!(
        message.contains("memory limit of the session"),
        "{kind:?} {message}"
    );
    assert_eq!(
        number(&run(
            &session,
            "SELECT count(*) FROM r a JOIN r b ON a.v = b.v + 1"
        )),
        2_499_998
    );
    let tiny = settings(
        &session,
        SessionSettings {
            memory_limit_bytes: Some(16 << 20),
            ..SessionSettings::default()
        },
    );
    // Each attempt has all of it, whatever those before have taken, and sorts spill. One may fail all the same: a thread that merges what
    // it has spilled needs memory that the other one may have.
    let sorts = |session: &Session, sql: &str| {
        let attempts = (0..8).map(|_| session.sql(sql, &Params::None, &[])?.collect());
        let sorted = attempts.filter_map(|sorted| match sorted {
            Ok(sorted) => Some(sorted.iter().map(RecordBatch::num_rows).sum::<usize>()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
                None
            }
        });
        sorted.collect::<Vec<_>>()
    };
    let some = sorts(&tiny, "SELECT n FROM r WHERE n < 1000000 ORDER BY v DESC");
    assert!(
        some.len() > 1 && some.iter().all(|rows| *rows == 1_000_000),
        "{some:?}"
    );
    let all = sorts(&small, "SELECT n FROM r ORDER BY v DESC");
    assert!(
        all.len() > 1 && all.iter().all(|rows| *rows == 2_500_000),
        "{all:?}"
    );
    assert_eq!(number(&run(&session, groups)), 2_500_000);
}

#[test]
fn streams_have_the_rows_of_results() {
    let session = with_rows(50_000);
    let table = session.engine().table("r").unwrap();
    let runtime = runtime();
    for sql in [
        "SELECT * FROM r",
        "SELECT n, v FROM r WHERE n < 3",
        "SELECT v FROM r ORDER BY v DESC",
        "SELECT a.n FROM r a JOIN r b ON a.n = b.n ORDER BY a.n",
        "SELECT sum(v) AS \"Sum\", sum(v) AS \"sum\" FROM r",
        "SELECT * FROM r WHERE n < 0",
        "SHOW TABLES",
    ] {
        let rows = session.sql(sql, &Params::None, &[]).unwrap();
        let schema = rows.schema().clone();
        let expected = concat_batches(&schema, &rows.collect().unwrap()).unwrap();
        let later = || runtime.block_on(session.run(sql, Params::None)).unwrap();
        for stream in [stream_of(&session, sql), later()] {
            assert_eq!(stream.schema(), &schema, "{sql}");
            assert!(!stream.is_count());
            let batches = runtime.block_on(all(stream)).unwrap();
            assert!(batches.iter().all(|batch| batch.num_rows() > 0));
            assert_eq!(
                concat_batches(&schema, &batches).unwrap(),
                expected,
                "{sql}"
            );
        }
        // What was pulled already does not come again.
        let mut rows = session.sql(sql, &Params::None, &[]).unwrap();
        let mut batches: Vec<_> = rows.next_batch().unwrap().into_iter().collect();
        batches.extend(runtime.block_on(all(rows.into_stream())).unwrap());
        assert_eq!(
            concat_batches(&schema, &batches).unwrap(),
            expected,
            "{sql}"
        );
    }
    let rows = |scan: &TableScan| session.scan(&table, scan).unwrap();
    let scan = TableScan::default();
    let expected = rows(&scan).collect().unwrap();
    assert_eq!(
        runtime.block_on(all(rows(&scan).into_stream())).unwrap(),
        expected
    );
}

#[test]
fn a_stream_ends_with_its_error_or_when_it_is_cancelled_or_dropped() {
    let session = with_rows(20_000);
    let runtime = runtime();
    let start = Instant::now();
    let mut stream = stream_of(&session, "SELECT 1 // (n - 15000) FROM r");
    let ended = runtime.block_on(async {
        loop {
            match stream.next().await {
                Some(Ok(_)) => {}
                ended => return ended,
            }
        }
    });
    assert_eq!(ended.unwrap().unwrap_err().kind(), ErrorKind::Query);
    assert!(runtime.block_on(stream.next()).is_none());

    let rows = session.sql(ENDLESS, &Params::None, &[]).unwrap();
    let handle = rows.cancel_handle();
    let mut stream = rows.into_stream();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            handle.cancel();
        });
        let error = runtime.block_on(stream.next()).unwrap().unwrap_err();
        assert!(error.message().contains("cancelled"), "{error}");
    });
    // Of one that is dropped amid its work nothing goes on: other statements find the threads idle.
    for _ in 0..8 {
        let mut stream = stream_of(&session, ENDLESS);
        let waited = runtime.block_on(async {
            tokio::time::timeout(Duration::from_millis(5), stream.next()).await
        });
        assert!(waited.is_err());
    }
    assert_eq!(number(&run(&session, "SELECT count(*) FROM r")), 20_000);
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
}

#[test]
fn thousands_of_inserts_wait_without_threads() {
    let session = engine();
    run(
        &session,
        "CREATE TABLE t (n BIGINT NOT NULL, s VARCHAR) WITH (time = 'n')",
    );
    let runtime = runtime();
    let threads = || {
        std::fs::read_dir("/proc/self/task")
            .map(Iterator::count)
            .unwrap_or_default()
    };
    let stored = runtime.block_on(async {
        let insert = |n: i64| {
            session.run(
                &format!("INSERT INTO t VALUES ({n}, 'row {n}'), ({n}, NULL)"),
                Params::None,
            )
        };
        let inserts: Vec<_> = (0..2_000).map(insert).collect();
        let all_of_them = join_all(
            inserts
                .into_iter()
                .map(|insert| async { all(insert.await?).await }),
        )
        .await;
        assert!(threads() < 1_000, "{} threads", threads());
        all_of_them
    });
    for count in stored {
        assert_eq!(number(&count.unwrap()), 2);
    }
    assert_eq!(number(&run(&session, "SELECT count(*) FROM t")), 4_000);
    assert_eq!(
        number(&run(&session, "SELECT count(DISTINCT n) FROM t")),
        2_000
    );
    for (sql, kind) in [
        ("INSERT INTO t VALUES (NULL, 'x')", ErrorKind::Schema),
        ("INSERT INTO none VALUES (1)", ErrorKind::NotFound),
        ("INSERT INTO t VALUES (1, 2, 3)", ErrorKind::Query),
        ("SELECT nothing FROM t", ErrorKind::Query),
        ("SELEC 1", ErrorKind::Query),
    ] {
        let error = runtime
            .block_on(session.run(sql, Params::None))
            .unwrap_err();
        let blocking = session.sql(sql, &Params::None, &[]).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (blocking.kind(), blocking.message()),
            "{sql}"
        );
        assert_eq!(error.kind(), kind, "{sql}: {error}");
    }
    // Values that are computed, and other statements.
    for sql in [
        "INSERT INTO t VALUES ((SELECT max(n) FROM t) + 1, 'next')",
        "INSERT INTO t SELECT n + 10000, s FROM t WHERE n < 5",
        "CREATE TABLE u AS SELECT * FROM t",
        "DROP TABLE u",
    ] {
        let many = (0..20).map(|_| session.run(sql, Params::None));
        let done = runtime.block_on(join_all(many));
        assert!(done.iter().any(Result::is_ok), "{sql}: {:?}", done[0]);
    }
}

#[test]
fn a_statement_whose_future_is_dropped_stores_nothing() {
    let session = with_rows(20_000);
    let runtime = runtime();
    let start = Instant::now();
    let sql = format!("CREATE TABLE other AS {ENDLESS}");
    for _ in 0..3 {
        let waited = runtime.block_on(async {
            tokio::time::timeout(Duration::from_millis(30), session.run(&sql, Params::None)).await
        });
        assert!(waited.is_err());
    }
    assert_eq!(number(&run(&session, "SELECT count(*) FROM r")), 20_000);
    assert_eq!(session.engine().table_names().unwrap(), ["r"]);
    assert!(start.elapsed() < IN_TIME);
}

#[test]
fn tables_for_one_statement_and_sessions_share_plans() {
    let session = with_rows(100);
    let other = settings(
        &session,
        SessionSettings {
            max_result_rows: Some(1),
            ..SessionSettings::default()
        },
    );
    let sql = "SELECT * FROM r WHERE n < 7";
    assert_eq!(run(&session, sql)[0].num_rows(), 7);
    assert_eq!(fail(&other, sql).0, ErrorKind::Limit);
    assert_eq!(run(&session, sql)[0].num_rows(), 7);
    let rows = ExtraTable::batches(numbers("k", 0..3).schema(), vec![numbers("k", 0..3)]);
    let named = [("given".to_owned(), rows)];
    let found = other
        .sql("SELECT count(*) FROM given", &Params::None, &named)
        .unwrap();
    assert_eq!(number(&found.collect().unwrap()), 3);
}

#[test]
fn any_number_of_statements_that_keep_threads_get_their_turn() {
    let session = with_rows(100);
    run(
        &session,
        "CREATE TABLE t (n BIGINT, v DOUBLE) WITH (time = 'n')",
    );
    let start = Instant::now();
    for sql in [
        "INSERT INTO t SELECT n, v FROM r WHERE n < 2",
        "INSERT INTO t VALUES ((SELECT max(n) FROM r), random()), (1, 2)",
    ] {
        let many = (0..700).map(|_| session.run(sql, Params::None));
        let done = runtime().block_on(join_all(many));
        assert!(done.into_iter().all(|done| done.is_ok()), "{sql}");
    }
    assert_eq!(number(&run(&session, "SELECT count(*) FROM t")), 2_800);
    println!("{:?}", start.elapsed());
}

#[test]
fn a_future_that_is_dropped_before_its_turn_changes_nothing() {
    let session = with_rows(100);
    let runtime = runtime();
    // Both threads of queries plan for a while: this takes the cube of the number of terms.
    let long = format!("SELECT {} FROM r LIMIT 1", vec!["n"; 250].join(" + "));
    runtime.block_on(async {
        let busy = (0..2).map(|_| tokio::spawn(session.run(&long, Params::None)));
        let (busy, session) = (busy.collect::<Vec<_>>(), &session);
        tokio::time::sleep(Duration::from_millis(50)).await;
        for sql in [
            "DROP TABLE r",
            "INSERT INTO r VALUES (1000, 1)",
            "INSERT INTO r SELECT n + 1000, v FROM r",
            "CREATE TABLE born (n BIGINT)",
        ] {
            let waiting = session.run(sql, Params::None);
            assert!(
                tokio::time::timeout(Duration::ZERO, waiting).await.is_err(),
                "{sql}"
            );
        }
        for rows in busy {
            rows.await.unwrap().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    });
    assert_eq!(number(&run(&session, "SELECT count(*) FROM r")), 100);
    assert_eq!(session.engine().table_names().unwrap(), ["r"]);
}

#[test]
fn a_stream_outlives_its_session_and_hears_of_its_cancellation() {
    let runtime = runtime();
    let session = with_rows(200_000);
    let table = session.engine().table("r").unwrap();
    let scan = session
        .scan(&table, &TableScan::default())
        .unwrap()
        .into_stream();
    let sorted = stream_of(&session, "SELECT * FROM r ORDER BY v");
    drop(session);
    for stream in [scan, sorted] {
        let rows = runtime.block_on(all(stream)).unwrap();
        assert_eq!(
            rows.iter().map(RecordBatch::num_rows).sum::<usize>(),
            200_000
        );
    }
    let session = with_rows(20_000);
    let mut rows = session.sql(ENDLESS, &Params::None, &[]).unwrap();
    rows.poll_batch(Duration::from_millis(20)).unwrap();
    let handle = rows.cancel_handle();
    let mut stream = rows.into_stream();
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            handle.cancel();
        });
        assert!(runtime.block_on(stream.next()).unwrap().is_err());
    });
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn a_database_is_free_once_its_last_insert_was_answered() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plant.tl");
    for round in 0..40 {
        let engine = Engine::open(Env::os(), &path, EngineOptions::default()).unwrap();
        let session = Session::new(engine, QueryOptions::default()).unwrap();
        run(
            &session,
            "CREATE TABLE IF NOT EXISTS t (n BIGINT) WITH (time = 'n')",
        );
        let stored = runtime.block_on(session.run("INSERT INTO t VALUES (1)", Params::None));
        drop(session);
        assert_eq!(
            number(&runtime.block_on(all(stored.unwrap())).unwrap()),
            1,
            "round {round}"
        );
    }
}
