//! System tables beside what they are about.

use super::{fail, number, run};
use thalweg_query::{Params, QueryOptions, ScalarValue, Session};
use thalweg_table::{AppendLimits, Engine, EngineOptions, ErrorKind, KeyRange, MaintenanceMode};

fn engine(maintenance: MaintenanceMode) -> (Engine, Session) {
    let options = EngineOptions {
        maintenance,
        append_limits: AppendLimits {
            raw_bytes: 1_000,
            ..AppendLimits::default()
        },
        ..EngineOptions::default()
    };
    let engine = Engine::in_memory(options).unwrap();
    let sql = Session::new(engine.clone(), QueryOptions::default()).unwrap();
    (engine, sql)
}

fn count(sql: &Session, query: &str) -> i64 {
    number(&run(sql, query))
}

#[test]
fn blocks_and_fragments_are_those_of_the_tables() {
    let (engine, sql) = engine(MaintenanceMode::Manual);
    for name in ["t", "u"] {
        run(
            &sql,
            &format!(
                "CREATE TABLE {name} (ts BIGINT, v BIGINT) WITH (time = 'ts', block_rows = 1000)"
            ),
        );
        for first in [0, 5] {
            let insert = "SELECT 10 * value, value FROM generate_series(1, 5000)";
            run(
                &sql,
                &format!(
                    "INSERT INTO {name} SELECT 10 * value + {first}, value FROM ({insert}) s(a, value)"
                ),
            );
        }
    }
    let blocks = |name| {
        let stats = engine.table(name).unwrap().stats().unwrap();
        i64::try_from(stats.blocks).unwrap()
    };
    assert!(blocks("t") >= 10);
    let blocks_of = |name| format!("FROM thalweg_blocks WHERE table_name = '{name}'");
    assert_eq!(
        count(&sql, &format!("SELECT count(*)::BIGINT {}", blocks_of("t"))),
        blocks("t")
    );
    assert_eq!(
        count(
            &sql,
            &format!("SELECT sum(rows)::BIGINT {}", blocks_of("t"))
        ),
        10_000
    );
    assert_eq!(
        count(&sql, "SELECT count(*)::BIGINT FROM thalweg_fragments"),
        0
    );
    // What a condition asks for by two names is in no table.
    let both = format!(
        "SELECT count(*)::BIGINT {} AND table_name = 'u'",
        blocks_of("t")
    );
    assert_eq!(count(&sql, &both), 0);
    let of_both = "SELECT count(*)::BIGINT FROM thalweg_blocks WHERE table_name IN ('t', 'u', 'v')";
    assert_eq!(count(&sql, of_both), blocks("t") + blocks("u"));
    let of_neither =
        "SELECT count(*)::BIGINT FROM thalweg_blocks WHERE table_name NOT IN ('t', 'u')";
    assert_eq!(count(&sql, of_neither), 0);
    let by_parameter =
        "SELECT count(*)::BIGINT FROM thalweg_blocks WHERE table_name = ? AND rows > ?";
    let params = Params::Positional(vec![
        ScalarValue::Utf8(Some("u".to_owned())),
        ScalarValue::Int64(Some(0)),
    ]);
    let result = sql.sql(by_parameter, &params, &[]).unwrap();
    assert_eq!(number(&result.collect().unwrap()), blocks("u"));
    engine.table("t").unwrap().maintain().unwrap();
    let keys = KeyRange {
        first: 5_000,
        last: 14_999,
    };
    let deleted = engine.table("u").unwrap().delete_range(keys, None).unwrap();
    assert_eq!(deleted, 2_000);
    let fragments = "SELECT sum(rows)::BIGINT FROM thalweg_fragments WHERE table_name = 't'";
    // A last row that nothing overlaps may stay in the log.
    assert!(count(&sql, fragments) >= 9_999);
    let in_fragments = "SELECT count(*)::BIGINT FROM thalweg_blocks b JOIN thalweg_fragments f USING (table_name, file)";
    let of_fragments = "SELECT sum(blocks)::BIGINT FROM thalweg_fragments";
    assert_eq!(count(&sql, in_fragments), count(&sql, of_fragments));
    assert!(count(&sql, of_fragments) > 1);
    assert_eq!(
        count(
            &sql,
            &format!("SELECT sum(deleted_rows)::BIGINT {}", blocks_of("u"))
        ),
        2_000
    );
    assert_eq!(
        count(
            &sql,
            "SELECT rows::BIGINT FROM thalweg_tables WHERE name = 'u'"
        ),
        8_000
    );
    assert_eq!(
        count(
            &sql,
            "SELECT late_rows::BIGINT FROM thalweg_tables WHERE name = 't'"
        ),
        0
    );
    assert_eq!(
        count(
            &sql,
            "SELECT sum(rows)::BIGINT FROM thalweg_orders WHERE order_id = 0"
        ),
        20_000
    );
    // A statement sees the state of its beginning, also where it was prepared before.
    run(&sql, "DROP TABLE t");
    assert_eq!(
        count(&sql, "SELECT count(*)::BIGINT FROM thalweg_tables"),
        1
    );
    assert_eq!(
        count(&sql, fragments.replace("sum(rows)", "count(*)").as_str()),
        0
    );
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "waits for a thread of the database"
)]
fn jobs_are_listed_with_what_they_have_done() {
    let (_engine, sql) = engine(MaintenanceMode::Auto);
    assert_eq!(count(&sql, "SELECT count(*)::BIGINT FROM thalweg_jobs"), 0);
    run(&sql, "CREATE TABLE t (ts BIGINT) WITH (time = 'ts')");
    for first in [0, 5] {
        run(
            &sql,
            &format!("INSERT INTO t SELECT 10 * value + {first} FROM generate_series(1, 5000)"),
        );
    }
    let done = "SELECT count(*)::BIGINT FROM thalweg_jobs WHERE table_name = 't' AND job = 'late rows' \
                AND state = 'done' AND steps > 0 AND rows > 9000 AND error IS NULL AND began > '2020-01-01'";
    let began = std::time::Instant::now();
    while count(&sql, done) == 0 {
        assert!(began.elapsed().as_secs() < 120, "no job has run");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn system_tables_are_described_and_never_changed() {
    let (_, engine) = engine(MaintenanceMode::Manual);
    let described = run(&engine, "DESCRIBE thalweg_jobs");
    assert_eq!(described[0].num_rows(), 9);
    assert_eq!(
        run(&engine, "SHOW COLUMNS FROM THALWEG_TABLES")[0].num_rows(),
        12
    );
    let (kind, message) = fail(
        &engine,
        "INSERT INTO thalweg_tables SELECT * FROM thalweg_tables",
    );
    assert!(message.contains("nothing can change"), "{kind:?} {message}");
    let (kind, message) = fail(&engine, "SELECT * FROM thalweg_table");
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(
        message.contains("did you mean \"thalweg_tables\"?"),
        "{message}"
    );
}
