//! Statements with little memory.

use super::{fail, run};
use arrow::array::{Array, Int64Array};
use std::sync::mpsc;
use std::time::Duration;
use thalweg_query::{Params, QueryOptions, Session};
use thalweg_table::{Engine, EngineOptions, ErrorKind};

#[test]
fn memory_is_limited() {
    let engine = Engine::in_memory(EngineOptions::default()).unwrap();
    let options = QueryOptions {
        threads: 2,
        memory_limit_bytes: Some(2 << 20),
        ..QueryOptions::default()
    };
    let engine = Session::new(engine, options).unwrap();
    let wide = "SELECT array_length(array_agg(value)) FROM generate_series(1, 3000000)";
    let (kind, message) = fail(&engine, wide);
    assert_eq!(kind, ErrorKind::Limit);
    assert!(message.contains("memory_limit (2 MiB)"), "{message}");
}

/// The threads of such a statement waited for each other: what went from one to the other did not fit into the limit.
#[test]
fn a_group_by_with_little_memory_ends() {
    let options = QueryOptions {
        threads: 2,
        memory_limit_bytes: Some(1_000_000),
        ..QueryOptions::default()
    };
    let engine = Session::new(
        Engine::in_memory(EngineOptions::default()).unwrap(),
        options,
    )
    .unwrap();
    run(
        &engine,
        "CREATE TABLE t (ts BIGINT, k BIGINT, v DOUBLE) WITH (time = 'ts')",
    );
    run(
        &engine,
        "INSERT INTO t SELECT value, value * 7919 % 600011, value FROM generate_series(1, 600000)",
    );
    let (done, waits) = mpsc::channel();
    std::thread::spawn(move || {
        for _ in 0..4 {
            let grouped = "SELECT count(*) FROM (SELECT k, count(*), sum(v) FROM t GROUP BY k)";
            let result = engine.sql(grouped, &Params::None, &[]);
            done.send(result.and_then(|result| result.collect()))
                .unwrap();
        }
    });
    for _ in 0..4 {
        let result = waits
            .recv_timeout(Duration::from_secs(60))
            .expect("an answer");
        match result {
            Ok(batches) => {
                let count = batches[0].column(0).as_any().downcast_ref::<Int64Array>();
                assert_eq!(count.unwrap().value(0), 600_000);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Limit),
        }
    }
}
