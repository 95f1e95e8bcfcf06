//! Questions that were thought of.

use crate::data::{Pair, START_MS, assert_same};
use arrow::array::TimestampMillisecondArray;
use thalweg_query::{Params, ScalarValue};

const RANGES: [&str; 12] = [
    "true",
    "ts >= '2026-01-01T00:10:00'",
    "ts < '2026-01-01T01:00:00.500'",
    "ts > '2026-01-01T00:30:00' AND ts <= '2026-01-01T02:00:00'",
    "ts BETWEEN '2026-01-01T01:00:00' AND '2026-01-01T01:00:30'",
    "ts = '2026-01-01T00:00:05'",
    "ts >= TIMESTAMP '2026-01-01T01:00:00.0005'",
    "ts < DATE '2026-01-02' AND ts >= DATE '2026-01-01'",
    "ts > '2031-01-01'",
    "ts > '2026-01-01T02:00:00' AND ts < '2026-01-01T01:00:00'",
    "ts >= '2025-12-31T22:00:00' AND ts < '2026-01-01T00:20:00'",
    "CAST(ts AS BIGINT) > 1767229200000",
];

const NUMBERS: [&str; 15] = [
    "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "nan", "inf", "none",
    "edge", "edge32",
];

#[test]
fn aggregates_over_ranges() {
    let pair = Pair::new(1);
    for range in RANGES {
        pair.ask(
            &format!("SELECT count(*) FROM {{}} WHERE {range}"),
            &Params::None,
        );
        pair.ask(&format!("SELECT min(ts), max(ts), count(ts), min(flag), max(flag), count(flag), min(day), max(day), count(text), min(text), count(cash), sum(cash), max(cash) FROM {{}} WHERE {range}"), &Params::None);
        for column in NUMBERS {
            pair.ask(
                &format!("SELECT count({column}), sum({column}), avg({column}), min({column}), max({column}) FROM {{}} WHERE {range}"),
                &Params::None,
            );
            pair.ask(
                &format!("SELECT stddev({column}), stddev_pop({column}), var({column}), var_pop({column}), stddev_samp({column}), var_samp({column}) FROM {{}} WHERE {range}"),
                &Params::None,
            );
        }
    }
}

#[test]
fn aggregates_by_time() {
    let pair = Pair::new(2);
    let groups = [
        "date_bin(INTERVAL '10 minutes', ts)",
        "date_bin(INTERVAL '7 seconds', ts, TIMESTAMP '2026-01-01T00:00:03')",
        "date_bin(INTERVAL '1 day', ts, TIMESTAMP '2030-01-01T05:00:00')",
        "date_bin(INTERVAL '1 month', ts)",
        "date_trunc('minute', ts)",
        "date_trunc('hour', ts)",
        "date_trunc('week', ts)",
        "date_trunc('year', ts)",
        "date_bin(INTERVAL '90 seconds', CAST(ts AS TIMESTAMP))",
    ];
    for group in groups {
        for range in [RANGES[0], RANGES[3], RANGES[8], RANGES[10]] {
            for column in NUMBERS {
                pair.ask(
                    &format!("SELECT {group} AS g, count(*), count({column}), sum({column}), avg({column}), min({column}), max({column}), stddev({column}), var_pop({column}) FROM {{}} WHERE {range} GROUP BY g ORDER BY g"),
                    &Params::None,
                );
            }
            pair.ask(
                &format!("SELECT {group} FROM {{}} WHERE {range} GROUP BY 1"),
                &Params::None,
            );
            pair.ask(
                &format!("SELECT {group} AS g, max(f64) - min(f64) AS spread FROM {{}} WHERE {range} GROUP BY g HAVING count(*) > 20 ORDER BY spread DESC, g LIMIT 5"),
                &Params::None,
            );
        }
    }
}

#[test]
fn aggregates_by_other_columns() {
    let pair = Pair::new(7);
    for group in ["text", "flag", "i8", "text, flag", "edge"] {
        for range in [RANGES[0], RANGES[3], RANGES[8]] {
            for column in NUMBERS {
                pair.ask(
                    &format!("SELECT {group}, count({column}), sum({column}), min({column}), max({column}), max({column}) FILTER (WHERE u8 > 9) FROM {{}} WHERE {range} GROUP BY {group}"),
                    &Params::None,
                );
            }
        }
    }
}

/// Whatever the order of the rows, and of the groups.
#[test]
fn extremes_are_those_of_the_ordered_rows() {
    let pair = Pair::new(8);
    for column in ["nan", "inf", "edge", "edge32"] {
        let numbers = format!("{column} IS NOT NULL AND NOT isnan({column})");
        let extremes = pair.rows(
            &format!("SELECT i8, min({column}), max({column}) FROM t GROUP BY i8 ORDER BY i8"),
            &Params::None,
        );
        // Without a min or max of a NaN.
        let expected = pair.rows(
            &format!("SELECT i8, coalesce(min({column}) FILTER (WHERE {numbers}), max({column}) FILTER (WHERE isnan({column}))), CASE WHEN count(*) FILTER (WHERE isnan({column})) > 0 THEN CAST('NaN' AS DOUBLE) ELSE max({column}) FILTER (WHERE {numbers}) END FROM t GROUP BY i8 ORDER BY i8"),
            &Params::None,
        );
        assert_same(column, &extremes, &expected);
    }
}

#[test]
fn rows_by_conditions() {
    let pair = Pair::new(3);
    let conditions = [
        "f64 > 60",
        "f64 BETWEEN 0 AND 0.5",
        "i8 = 7",
        "u8 >= 250 AND i16 < 0",
        "u64 > 18446744073709000000",
        "i64 < 2305843009213693960",
        "i32 IN (1, 2, 3)",
        "u16 IN (1, 2, 3, 60000)",
        "f32 < -49.9",
        "f32 = 1.5",
        "i32 > 2.5e9",
        "nan > 0.99",
        "nan < 0.01",
        "inf > 9.99",
        "none > 1",
        "none IS NULL AND f64 > 69",
        "text = 'host1' AND f64 > 60",
        "flag AND f64 > 65",
        "day > DATE '2020-01-01'",
        "cash > 20000000.00",
        "NOT (f64 < 69)",
        "f64 > 69 OR i8 = 3",
        "CAST(i8 AS INT) + i16 > 32000",
        "u8 = 300",
        "i8 < 1000",
        "edge = 0.0",
        "edge IN (0.0, 7.0)",
        "edge IN (-0.0, 7.0, 8.0, 9.0)",
        "edge NOT IN (0.0, 1.0, 2.0, 3.0, 4.0)",
        "edge32 IN (0.0, 7.0)",
        "edge32 NOT IN (-0.0, 7.0)",
        "edge = 0.0 OR edge = 7.0 OR edge = 8.0 OR edge = 9.0",
        "edge IN (CAST('NaN' AS DOUBLE), 7.0, 8.0, 9.0)",
        "edge IN (inf, nan, -edge)",
    ];
    for condition in conditions {
        for range in [RANGES[0], RANGES[3], RANGES[10]] {
            pair.ask(
                &format!("SELECT * FROM {{}} WHERE {condition} AND {range}"),
                &Params::None,
            );
            pair.ask(&format!("SELECT ts, f64 * 2 FROM {{}} WHERE {range} AND {condition} ORDER BY ts, f64, i32 LIMIT 20"), &Params::None);
            pair.ask(
                &format!(
                    "SELECT count(*), sum(f64), min(i32) FROM {{}} WHERE {range} AND {condition}"
                ),
                &Params::None,
            );
        }
    }
}

#[test]
fn orders_and_limits() {
    let pair = Pair::new(4);
    for range in RANGES {
        for order in [
            "ts",
            "ts DESC",
            "ts DESC NULLS LAST",
            "ts, i32",
            "f64 DESC, ts, i32",
            "i32, ts",
            "date_trunc('hour', ts), i64",
        ] {
            for limit in ["", "LIMIT 1", "LIMIT 100", "LIMIT 30 OFFSET 25"] {
                // Only the columns of the order are sure to be the same.
                let columns = order.replace(" DESC", "").replace(" NULLS LAST", "");
                pair.ask(
                    &format!("SELECT {columns} FROM {{}} WHERE {range} ORDER BY {order} {limit}"),
                    &Params::None,
                );
            }
        }
    }
}

#[test]
fn rows_come_in_order_of_time() {
    let pair = Pair::new(5);
    for sql in [
        "SELECT ts FROM t",
        "SELECT ts FROM t WHERE f64 > 0",
        "SELECT ts, sqrt(abs(f64)) FROM t WHERE i32 > 0 AND ts > '2026-01-01T00:30:00'",
    ] {
        let rows = pair.rows(sql, &Params::None);
        let times = rows
            .column(0)
            .as_any()
            .downcast_ref::<TimestampMillisecondArray>()
            .unwrap();
        assert!(times.len() > 1_000 && times.values().is_sorted(), "{sql}");
    }
}

#[test]
fn parameters() {
    let pair = Pair::new(6);
    let time = |ms: i64| ScalarValue::TimestampMillisecond(Some(START_MS + ms), None);
    let text = |text: &str| ScalarValue::Utf8(Some(text.to_owned()));
    let nanos =
        ScalarValue::TimestampNanosecond(Some((START_MS + 3_600_000) * 1_000_000 + 5), None);
    let bounds = [
        (time(600_000), time(7_200_000)),
        (text("2026-01-01T00:10:00"), text("2026-01-01T02:00:00")),
        (nanos, time(9_000_000)),
        (ScalarValue::Date32(Some(20_454)), text("2026-01-02")),
        (ScalarValue::TimestampMillisecond(None, None), time(1)),
    ];
    for (low, high) in bounds {
        let both = Params::Positional(vec![low.clone(), high.clone()]);
        for question in [
            "SELECT * FROM {} WHERE ts >= $1 AND ts < $2",
            "SELECT count(*), sum(f64) FROM {} WHERE ts >= ? AND ts < ?",
            "SELECT date_bin(INTERVAL '1 hour', ts) AS h, avg(f64) FROM {} WHERE ts >= $1 AND ts < $2 GROUP BY h ORDER BY h",
            "SELECT ts FROM {} WHERE ts BETWEEN ? AND ? ORDER BY ts DESC LIMIT 3",
            "SELECT count(*) FROM {} WHERE ts >= $1 AND f64 > (SELECT avg(f64) FROM {} WHERE ts < $2)",
        ] {
            pair.ask(question, &both);
            // A kept plan gives the same again.
            pair.ask(question, &both);
        }
        let named = Params::Named(vec![("to".into(), high), ("from".into(), low)]);
        pair.ask(
            "SELECT i32, $to FROM {} WHERE ts >= $from AND ts < $to",
            &named,
        );
    }
    let number = |value: ScalarValue| Params::Positional(vec![value]);
    for value in [
        ScalarValue::Int64(Some(100)),
        ScalarValue::Float64(Some(100.5)),
        ScalarValue::Null,
        text("100"),
    ] {
        pair.ask(
            "SELECT i32, f64 FROM {} WHERE i16 > ?",
            &number(value.clone()),
        );
        pair.ask("SELECT count(*) FROM {} WHERE u8 = $1", &number(value));
    }
    let limit = Params::Positional(vec![ScalarValue::Int64(Some(3))]);
    pair.ask("SELECT ts FROM {} ORDER BY ts LIMIT ?", &limit);
}
