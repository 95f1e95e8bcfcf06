//! Times beyond nanoseconds as parameters.

use crate::{engine, number, run};
use thalweg_query::{Params, ScalarValue};

#[test]
fn times_beyond_nanoseconds_are_compared_as_parameters() {
    let engine = engine();
    run(&engine, "CREATE TABLE near (ts TIMESTAMP, d DATE)");
    run(
        &engine,
        "INSERT INTO near VALUES ('2024-01-01', '2024-01-01'), (NULL, NULL)",
    );
    let us = |value| ScalarValue::TimestampMicrosecond(Some(value), None);
    let utc = |value| ScalarValue::TimestampMicrosecond(Some(value), Some("UTC".into()));
    let (late, early) = (253_402_214_400_000_000, -62_135_596_800_000_000);
    let values = [
        (us(late), us(early)),
        (utc(late), utc(early)),
        (
            ScalarValue::Date32(Some(2_932_896)),
            ScalarValue::Date32(Some(-719_162)),
        ),
    ];
    let count = |condition: &str, values: Vec<ScalarValue>| {
        let sql = format!("SELECT count(*) FROM near WHERE {condition}");
        let result = engine.sql(&sql, &Params::Positional(values), &[]);
        let batches = result.and_then(|result| result.collect());
        number(&batches.unwrap_or_else(|e| panic!("{condition}: {e}")))
    };
    let near = || us(1_704_067_200_000_000);
    for (late, early) in values {
        // A plan for values of the same types is kept meanwhile.
        assert_eq!(count("ts <= ?", vec![near()]), 1);
        for (condition, rows) in [
            ("ts < ?", 1),
            ("ts >= ?", 0),
            ("ts = ?", 0),
            ("ts <> ?", 1),
            ("? > ts", 1),
            ("ts IS DISTINCT FROM ?", 2),
            ("ts IN (?)", 0),
            ("ts NOT IN (?)", 1),
            ("ts IN (?, '2024-01-01')", 1),
            ("d < ?", 1),
            ("date_trunc('day', ts) < ?", 1),
            ("CASE ts WHEN ? THEN false ELSE ts IS NOT NULL END", 1),
        ] {
            assert_eq!(count(condition, vec![late.clone()]), rows, "{condition}");
        }
        assert_eq!(count("ts > ?", vec![early.clone()]), 1);
        assert_eq!(count("ts BETWEEN ? AND ?", vec![early, late]), 1);
    }
    let sql = "SELECT coalesce(ts, ?) FROM near";
    let result = engine.sql(sql, &Params::Positional(vec![us(late)]), &[]);
    let error = result.and_then(|result| result.collect()).unwrap_err();
    assert!(
        error
            .message()
            .contains("nanoseconds reach from 1677-09-21")
    );
}
