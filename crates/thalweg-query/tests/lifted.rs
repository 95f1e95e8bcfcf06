//! Texts that differ in numbers share a plan: they must give what each would give by itself.
#![expect(clippy::panic, clippy::unwrap_used, reason = "tests fail by panic")]

use arrow::util::pretty::pretty_format_batches;
use thalweg_query::{Params, QueryOptions, Session};
use thalweg_table::{Engine, EngineOptions};

fn engine() -> Session {
    let engine = Engine::in_memory(EngineOptions::default()).unwrap();
    let options = QueryOptions {
        threads: 2,
        ..QueryOptions::default()
    };
    Session::new(engine, options).unwrap()
}

fn run(engine: &Session, text: &str) {
    let done = engine.sql(text, &Params::None, &[]);
    done.and_then(|result| result.collect())
        .unwrap_or_else(|e| panic!("{text}: {e}"));
}

/// Types and rows as text, or the error.
fn answer(engine: &Session, text: &str) -> String {
    let result = engine.sql(text, &Params::None, &[]).and_then(|result| {
        let schema = result.schema().clone();
        Ok((schema, result.collect()?))
    });
    match result {
        Ok((schema, batches)) => {
            format!("{schema:?}\n{}", pretty_format_batches(&batches).unwrap())
        }
        Err(error) => format!("{:?}: {}", error.kind(), error.message()),
    }
}

/// `N` stands for a number. A comment keeps numbers in their text.
fn compare(engine: &Session, shape: &str) {
    for numbers in [[3_i64, 5], [4, 4], [9, 2], [0, 300], [7, 7_000_000_000]] {
        let mut text = shape.to_owned();
        for number in numbers {
            text = text.replacen('N', &number.to_string(), 1);
        }
        let alone = answer(engine, &format!("{text} -- alone"));
        // With the plan of the other numbers, and with its own that was kept.
        for _ in 0..2 {
            assert_eq!(answer(engine, &text), alone, "{text}");
        }
    }
}

#[test]
fn columns_of_all_types_compare_as_ever() {
    let engine = engine();
    for (name, of_number) in [
        ("BIGINT", "n + 0"),
        ("INT", "n"),
        ("SMALLINT", "n"),
        ("TINYINT UNSIGNED", "n"),
        ("BIGINT UNSIGNED", "n"),
        ("REAL", "n + 0.5"),
        ("DOUBLE", "n"),
        ("DECIMAL(10, 2)", "n"),
        ("BOOLEAN", "n > 4"),
        ("VARCHAR", "n"),
        ("DATE", "CAST(CAST(n AS INT) AS DATE)"),
        ("TIMESTAMP(3)", "CAST(n AS TIMESTAMP(3))"),
        ("TIMESTAMP", "CAST(n AS TIMESTAMP)"),
    ] {
        run(&engine, "DROP TABLE IF EXISTS t");
        run(
            &engine,
            &format!("CREATE TABLE t (n BIGINT, c {name}) WITH (time = 'n')"),
        );
        run(
            &engine,
            &format!(
                "INSERT INTO t SELECT value, CAST({} AS {name}) AS c FROM generate_series(1, 9)",
                of_number.replace('n', "value")
            ),
        );
        run(&engine, "INSERT INTO t (n) VALUES (10)");
        for condition in [
            "c >= N AND c < N",
            "c BETWEEN N AND N",
            "c = N OR c = N",
            "c > N",
        ] {
            compare(
                &engine,
                &format!("SELECT * FROM t WHERE {condition} ORDER BY n"),
            );
            compare(
                &engine,
                &format!("SELECT count(*), min(c), max(n) FROM t WHERE {condition}"),
            );
        }
    }
}

#[test]
fn statements_of_all_shapes_answer_as_ever() {
    let engine = engine();
    run(
        &engine,
        "CREATE TABLE t (ts BIGINT, v BIGINT, \"Name\" VARCHAR) WITH (time = 'ts')",
    );
    run(
        &engine,
        "INSERT INTO t SELECT value, value % 7, 'n' || value FROM generate_series(1, 5000)",
    );
    for shape in [
        "SELECT * FROM t WHERE ts >= N AND ts < N",
        "SELECT ts, ts + 3 AS sum FROM t WHERE ts BETWEEN N AND N ORDER BY ts DESC LIMIT 3",
        "SELECT count(*), sum(v), avg(v), min(\"Name\") FROM t WHERE ts >= N AND ts <= N",
        "SELECT count(*), sum(v), avg(v), stddev(v) FROM t WHERE ts >= N AND ts <= N",
        "SELECT max(v) - min(v) AS spread FROM t AS u WHERE u.ts BETWEEN N AND N",
        "SELECT count(v) FROM t WHERE ts = N AND ts >= N AND ts >= 2",
        "SELECT v, count(*) FROM t WHERE ts > N AND ts <= N GROUP BY v HAVING count(*) > 3 ORDER BY 1",
        "SELECT DISTINCT v FROM t WHERE v = N OR v = N ORDER BY v",
        "SELECT a.ts, b.v FROM t a JOIN t b ON a.ts = b.ts WHERE a.ts >= N AND b.ts < N ORDER BY 1",
        "SELECT ts FROM t WHERE CASE WHEN v > N THEN ts < N ELSE ts = 1 END ORDER BY ts",
        "SELECT ts FROM t WHERE NOT (ts > N) AND ts + 1 > N ORDER BY ts",
        "SELECT ts, v > 3 FROM t WHERE ts = N AND v < N",
        "SELECT ts, row_number() OVER (ORDER BY ts) FROM t WHERE ts > N AND ts < N",
        "SELECT count(*) FILTER (WHERE v > N), count(*) FILTER (WHERE v > N) FROM t",
        "SELECT nothing FROM t WHERE ts > N AND ts < N",
        "SELECT * FROM nowhere WHERE ts > N AND ts < N",
        "SELECT * FROM t WHERE ts > N AND \"Name\" > N",
        "SELECT * FROM t WHERE ts > N AND AND ts < N",
        "SELECT count(*) FROM thalweg_tables WHERE rows > N AND rows < N",
        "SELECT now() > '2020-01-01', count(*) FROM t WHERE ts > N AND ts < N",
    ] {
        compare(&engine, shape);
    }
}

#[test]
fn a_shared_plan_follows_definitions() {
    let engine = engine();
    for (of_column, rows) in [
        ("BIGINT", "1"),
        ("DOUBLE", "1.5"),
        ("VARCHAR", "'3'"),
        ("BIGINT", "4"),
    ] {
        run(
            &engine,
            &format!("CREATE TABLE t (ts BIGINT, c {of_column}) WITH (time = 'ts')"),
        );
        run(&engine, &format!("INSERT INTO t VALUES (1, {rows})"));
        compare(&engine, "SELECT * FROM t WHERE c >= N AND c <= N");
        run(&engine, "DROP TABLE t");
        compare(&engine, "SELECT * FROM t WHERE c >= N AND c <= N");
    }
}
