//! Measures 10,000 connections: sessions, results that are open, and inserts that wait for the disk.
//!
//! `cargo run --release -p thalweg-query --example sessions [sessions] [folder]`
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement"
)]

use futures::StreamExt;
use futures::future::join_all;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thalweg_env::Env;
use thalweg_query::{Params, QueryOptions, Session, SessionSettings};
use thalweg_table::{Engine, EngineOptions};
use tokio::runtime::Builder;

const ROWS: usize = 1_000_000;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn resident_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|kib| kib.parse::<usize>().ok())
        .unwrap_or(0)
        / 1_024
}

fn run(session: &Session, sql: &str) {
    let rows = session.sql(sql, &Params::None, &[]).expect("a statement");
    rows.collect().expect("its rows");
}

fn tell(what: &str, start: Instant) {
    let elapsed = start.elapsed();
    println!(
        "{what:<60} {elapsed:>10.1?}  {:>5} threads  {:>6} MiB",
        threads(),
        resident_mib()
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments
        .next()
        .map_or(10_000, |text| text.parse().expect("a number"));
    let folder = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join("sessions.tl");
    measure(count, &path);
    std::fs::remove_dir_all(path).expect("the folder is removed");
}

fn measure(count: usize, path: &Path) {
    let engine = Engine::open(Env::os(), path, EngineOptions::default()).expect("a database");
    let first = Session::new(engine, QueryOptions::default()).expect("a session");
    run(
        &first,
        "CREATE TABLE r (n BIGINT, v DOUBLE) WITH (time = 'n')",
    );
    run(
        &first,
        &format!(
            "INSERT INTO r SELECT value, value * 0.5 FROM generate_series(0, {})",
            ROWS - 1
        ),
    );
    run(
        &first,
        "CREATE TABLE t (n BIGINT, v DOUBLE) WITH (time = 'n')",
    );
    let runtime = Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    tell("one session", Instant::now());

    let start = Instant::now();
    let settings = SessionSettings {
        timeout: Some(Duration::from_secs(600)),
        memory_limit_bytes: Some(64 << 20),
        ..SessionSettings::default()
    };
    let sessions: Vec<Session> =
        { (0..count).map(|_| first.with(settings.clone()).expect("a session")) }.collect();
    tell(&format!("{count} sessions with limits"), start);

    let start = Instant::now();
    let streams = runtime.block_on(async {
        let open = |session: &Session| session.run("SELECT n, v FROM r", Params::None);
        let opened = sessions.iter().map(open).map(|opening| async {
            let mut rows = opening.await.expect("a query");
            let batch = rows.next().await.expect("rows").expect("a batch");
            (rows, batch.num_rows())
        });
        join_all(opened).await
    });
    tell(
        &format!("{count} results of {ROWS} rows open, one batch read of each"),
        start,
    );

    let start = Instant::now();
    let read = streams
        .into_iter()
        .take(100)
        .map(|(mut rows, mut seen)| async move {
            while let Some(batch) = rows.next().await {
                seen += batch.expect("a batch").num_rows();
            }
            assert_eq!(seen, ROWS);
        });
    runtime.block_on(join_all(read));
    tell("100 of them read to the end, the others dropped", start);

    let start = Instant::now();
    let inserts = sessions.iter().enumerate();
    let inserts = inserts
        .map(|(n, session)| session.run(&format!("INSERT INTO t VALUES ({n}, 1.5)"), Params::None));
    for stored in runtime.block_on(join_all(inserts)) {
        stored.expect("a durable row");
    }
    tell(
        &format!("{count} durable inserts of one row at once"),
        start,
    );
    let start = Instant::now();
    for (n, session) in sessions.iter().take(1_000).enumerate() {
        run(session, &format!("INSERT INTO t VALUES ({n}, 2.5)"));
    }
    tell("1,000 durable inserts one after the other", start);
}
