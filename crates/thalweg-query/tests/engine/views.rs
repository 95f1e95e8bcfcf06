//! Views: what their plans are, how deep and large they get, and what changes under them.

use super::{engine, fail, number, run};
use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thalweg_query::{ExtraTable, Params, Session, SessionSettings};
use thalweg_table::{ErrorKind, ViewDefinition};

/// The operators of a query.
fn operators(engine: &Session, query: &str) -> String {
    let plan = run(engine, &format!("EXPLAIN {query}"));
    let last = plan[0].num_rows() - 1;
    plan[0].column(1).as_string::<i32>().value(last).to_owned()
}

fn with_rows() -> Session {
    let engine = engine();
    run(
        &engine,
        "CREATE TABLE t (ts TIMESTAMP(3), dev VARCHAR, v DOUBLE) WITH (time = 'ts', block_rows = 64)",
    );
    run(
        &engine,
        "INSERT INTO t SELECT TIMESTAMP '2026-01-01' + i * INTERVAL '1 minute', 'd' || (i % 4), i FROM generate_series(0, 9999) g(i)",
    );
    engine
}

#[test]
fn a_view_costs_what_its_query_costs() {
    let engine = with_rows();
    run(&engine, "CREATE VIEW w AS SELECT * FROM t");
    run(&engine, "CREATE VIEW x AS SELECT dev, ts, v FROM w");
    for query in [
        "SELECT * FROM ? WHERE ts >= '2026-01-03' AND ts < '2026-01-04'",
        "SELECT ts FROM ? WHERE dev = 'd1' AND v > 3000",
        "SELECT v FROM ? ORDER BY ts DESC LIMIT 3",
        "SELECT ts, v FROM ? ORDER BY ts LIMIT 3",
        "SELECT ts FROM ? WHERE ts > '2026-01-03' ORDER BY ts LIMIT 5 OFFSET 2",
        "SELECT v FROM ? LIMIT 3",
    ] {
        let written = operators(&engine, &query.replace('?', "t"));
        for view in ["w", "(SELECT * FROM t) q"] {
            assert_eq!(
                operators(&engine, &query.replace('?', view)),
                written,
                "{query}"
            );
        }
    }
    // Names of columns say where they are from.
    for query in [
        "SELECT count(*) FROM ?",
        "SELECT count(*), max(v), avg(v) FROM ? WHERE ts >= '2026-01-03'",
        "SELECT date_trunc('day', ts) AS d, sum(v) FROM ? GROUP BY d ORDER BY d",
        "SELECT date_bin(INTERVAL '1 hour', ts) AS h, max(v) FROM ? WHERE ts < '2026-01-03' GROUP BY h ORDER BY h",
    ] {
        let written = operators(&engine, &query.replace('?', "t"));
        assert!(written.contains("ThalwegAggregate"), "{query}: {written}");
        for view in ["w", "x"] {
            let names = format!("{view}.");
            let found = operators(&engine, &query.replace('?', view));
            assert_eq!(found.replace(&names, "t."), written, "{query}");
        }
    }
    run(
        &engine,
        "CREATE VIEW y (value, at) AS SELECT v, ts FROM x WHERE ts >= '2026-01-02'",
    );
    let found = operators(
        &engine,
        "SELECT max(value), count(at) FROM y WHERE at < '2026-01-04'",
    );
    assert!(found.contains("ThalwegAggregate"), "{found}");
    let answer = |query: &str| run(&engine, query)[0].clone();
    let written = "SELECT count(*) AS n, max(v) AS m, min(ts) AS l FROM t WHERE ts >= '2026-01-02' AND ts < '2026-01-04'";
    let read = "SELECT count(*) AS n, max(value) AS m, min(at) AS l FROM y WHERE at < '2026-01-04'";
    assert_eq!(answer(read), answer(written));
    // What is computed is no column of the table.
    run(
        &engine,
        "CREATE VIEW z AS SELECT ts, v * 2 AS v, v AS half FROM t",
    );
    let doubled = answer("SELECT max(v), max(half), count(*) FROM z");
    let written =
        answer("SELECT max(v * 2) AS \"max(v)\", max(v) AS \"max(half)\", count(*) FROM t");
    assert_eq!(doubled.columns(), written.columns());
}

#[test]
fn plans_of_views_are_kept_until_something_changes() {
    let engine = with_rows();
    run(&engine, "CREATE VIEW w AS SELECT ts, v FROM t WHERE v < 10");
    let prepared = engine
        .prepare("SELECT count(*) FROM w WHERE v >= ?")
        .unwrap();
    let count = |from: i64| {
        let params = Params::Positional(vec![from.into()]);
        let rows = prepared.execute(&params).unwrap().collect().unwrap();
        number(&rows)
    };
    assert_eq!((count(0), count(5)), (10, 5));
    run(
        &engine,
        "CREATE OR REPLACE VIEW w AS SELECT ts, v FROM t WHERE v < 8",
    );
    assert_eq!((count(0), count(5)), (8, 3));
    run(&engine, "DROP VIEW w");
    let params = Params::Positional(vec![0_i64.into()]);
    assert_eq!(
        prepared.execute(&params).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    run(&engine, "CREATE TABLE w AS SELECT 1 AS v");
    assert_eq!(count(0), 1);
    run(&engine, "DROP TABLE w");
    run(&engine, "CREATE VIEW w AS SELECT ts, v FROM t WHERE v < 6");
    assert_eq!(count(5), 1);
    run(&engine, "ALTER TABLE t RENAME TO u");
    assert_eq!(
        prepared.execute(&params).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    run(&engine, "ALTER TABLE u RENAME TO t");
    assert_eq!(count(5), 1);
}

#[test]
fn views_see_no_tables_of_the_caller() {
    let engine = with_rows();
    let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, false)]));
    let rows = RecordBatch::try_new(
        Arc::clone(&schema),
        vec![Arc::new(Int64Array::from(vec![1, 2]))],
    );
    let frame = ExtraTable::batches(schema, vec![rows.unwrap()]);
    let extra = [("frame".to_owned(), frame.clone()), ("w".to_owned(), frame)];
    let sql = |text: &str| {
        engine
            .sql(text, &Params::None, &extra)
            .and_then(|rows| rows.collect())
    };
    let error = sql("CREATE VIEW w AS SELECT * FROM frame").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(
        error
            .message()
            .starts_with("view \"w\": there is no table \"frame\""),
        "{error}"
    );
    assert_eq!(
        engine
            .unknown_tables("CREATE VIEW w AS SELECT * FROM frame")
            .unwrap(),
        [""; 0]
    );
    run(&engine, "CREATE VIEW w AS SELECT * FROM t");
    assert_eq!(
        engine.unknown_tables("SELECT * FROM w, frame").unwrap(),
        ["frame"]
    );
    assert_eq!(engine.unknown_tables("DESCRIBE w").unwrap(), [""; 0]);
    // The view comes before what the caller calls so.
    assert_eq!(number(&sql("SELECT count(*) FROM w").unwrap()), 10_000);
    assert_eq!(
        number(&sql("SELECT count(*) FROM w JOIN frame ON w.v = frame.v").unwrap()),
        2
    );
}

#[test]
fn views_are_planned_however_they_read_each_other() {
    let engine = with_rows();
    run(&engine, "CREATE VIEW v0 AS SELECT v FROM t");
    for n in 1..32 {
        run(
            &engine,
            &format!("CREATE VIEW v{n} AS SELECT v + 1 AS v FROM v{}", n - 1),
        );
    }
    assert_eq!(
        number(&run(&engine, "SELECT CAST(max(v) AS BIGINT) FROM v31")),
        10_030
    );
    let (kind, message) = fail(&engine, "CREATE VIEW v32 AS SELECT v FROM v31");
    assert_eq!(kind, ErrorKind::Limit);
    assert!(message.contains("at most 32 deep"), "{message}");
    // Also where the inner ones were met before.
    let all: Vec<String> = (0..32).map(|n| format!("SELECT v FROM v{n}")).collect();
    let all = all.join(" UNION ALL ");
    run(&engine, &format!("SELECT count(*) FROM ({all}) u"));
    assert_eq!(
        fail(&engine, &format!("CREATE VIEW v32 AS {all}")).0,
        ErrorKind::Limit
    );
    // A circle that was made behind the check of CREATE VIEW.
    let of_query = |query: &str| ViewDefinition {
        query: query.to_owned(),
        columns: Vec::new(),
    };
    let stored = engine.engine();
    stored
        .create_view("a", &of_query("SELECT * FROM b"))
        .unwrap();
    stored
        .create_view("b", &of_query("SELECT * FROM c, A x"))
        .unwrap();
    stored
        .create_view("c", &of_query("SELECT * FROM c"))
        .unwrap();
    for name in ["a", "b", "c"] {
        let (kind, message) = fail(&engine, &format!("SELECT * FROM {name}"));
        assert_eq!(kind, ErrorKind::Query);
        assert!(message.contains("would read itself"), "{message}");
    }
    // A text that is no query.
    for text in [
        "DROP TABLE t",
        "SELECT",
        "EXPLAIN SELECT 1",
        "SELECT $1",
        "",
        "SELECT 1; SELECT 2",
    ] {
        stored.replace_view("a", &of_query(text)).unwrap();
        assert!(
            fail(&engine, "SELECT * FROM a")
                .1
                .starts_with("view \"a\": "),
            "{text}"
        );
    }
}

#[test]
fn views_that_double_each_other_end() {
    let engine = with_rows();
    run(&engine, "CREATE VIEW d0 AS SELECT 1 AS v");
    let mut made = 0;
    for n in 1..32 {
        let below = n - 1;
        let create =
            format!("CREATE VIEW d{n} AS SELECT v FROM d{below} UNION ALL SELECT v FROM d{below}");
        match engine.sql(&create, &Params::None, &[]) {
            Ok(_) => made = n,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Limit);
                assert!(
                    error.message().contains("1000 tables through views"),
                    "{error}"
                );
                break;
            }
        }
    }
    assert_eq!(made, 9);
    assert_eq!(number(&run(&engine, "SELECT count(*) FROM d8")), 256);
    // A query that is planned twice, because two of its columns have one name, reads no more.
    run(&engine, "SELECT v, v FROM d9 LIMIT 1");
    assert_eq!(
        fail(&engine, "SELECT count(*) FROM d9 a, d9 b").0,
        ErrorKind::Limit
    );
}

#[test]
fn chains_and_brackets_of_views_add_up() {
    let engine = with_rows();
    let sum = |terms: usize| vec!["v"; terms].join(" + ");
    run(
        &engine,
        &format!("CREATE VIEW s0 AS SELECT {} AS v FROM t", sum(600)),
    );
    run(&engine, "CREATE VIEW s1 AS SELECT v + 1 AS v FROM s0");
    for text in [
        format!("CREATE VIEW s2 AS SELECT {} AS v FROM s1", sum(600)),
        format!("SELECT {} FROM s1", sum(600)),
    ] {
        let (kind, message) = fail(&engine, &text);
        assert_eq!(kind, ErrorKind::Limit, "{message}");
        assert!(message.contains("operators of arithmetic"), "{message}");
    }
    let nested = |depth: usize, from: &str| {
        format!(
            "SELECT {}v{} AS v FROM {from}",
            "abs(".repeat(depth),
            ")".repeat(depth)
        )
    };
    run(&engine, &format!("CREATE VIEW n0 AS {}", nested(40, "t")));
    run(&engine, &format!("CREATE VIEW n1 AS {}", nested(40, "n0")));
    let (kind, message) = fail(&engine, &nested(50, "n1"));
    assert_eq!(kind, ErrorKind::Limit);
    assert!(message.contains("128 levels"), "{message}");
    run(&engine, "SELECT max(v) FROM n1");
}

#[test]
fn very_long_queries_are_stored() {
    let engine = with_rows();
    let mut list = String::from("0");
    for n in 1..120_000 {
        let _ = write!(list, ", {n}");
    }
    run(
        &engine,
        &format!("CREATE VIEW long AS SELECT v FROM t WHERE CAST(v AS BIGINT) IN ({list})"),
    );
    assert_eq!(number(&run(&engine, "SELECT count(*) FROM long")), 10_000);
    let (kind, message) = fail(
        &engine,
        &format!("CREATE VIEW longer AS SELECT v FROM t WHERE v IN ({list}) OR v IN ({list})"),
    );
    assert_eq!(kind, ErrorKind::Limit);
    assert!(message.contains("1048576 bytes"), "{message}");
}

#[test]
fn a_session_that_only_reads_reads_views() {
    let engine = with_rows();
    run(&engine, "CREATE VIEW w AS SELECT * FROM t");
    let settings = SessionSettings {
        read_only: true,
        ..SessionSettings::default()
    };
    let reader = engine.with(settings).unwrap();
    assert_eq!(number(&run(&reader, "SELECT count(*) FROM w")), 10_000);
    for text in [
        "CREATE VIEW x AS SELECT 1",
        "CREATE OR REPLACE VIEW w AS SELECT 1",
        "DROP VIEW w",
    ] {
        assert_eq!(fail(&reader, text).0, ErrorKind::Unavailable, "{text}");
    }
}

#[test]
fn readers_see_one_query_or_the_other() {
    let engine = with_rows();
    run(&engine, "CREATE VIEW w AS SELECT v FROM t WHERE v < 10");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = 0;
                    while !is_done.load(Ordering::Relaxed) || seen == 0 {
                        let count = number(&run(&engine, "SELECT count(*) FROM w"));
                        assert!(count == 10 || count == 20, "{count}");
                        seen += 1;
                    }
                })
            })
            .collect();
        for n in 0..200 {
            let most = 10 + 10 * (n % 2);
            run(
                &engine,
                &format!("CREATE OR REPLACE VIEW w AS SELECT v FROM t WHERE v < {most}"),
            );
        }
        is_done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}
