//! Questions that are made up.

use crate::data::{LARGE, Pair, START_MS};
use fastrand::Rng;
use thalweg_query::Params;

const NUMBERS: [&str; 15] = [
    "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "nan", "inf", "none",
    "edge", "edge32",
];
const OTHERS: [&str; 10] = [
    "ts", "flag", "text", "day", "cash", "bytes", "at_s", "at_us", "at_ns", "took",
];

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}

fn column(rng: &mut Rng) -> &'static str {
    if rng.bool() {
        pick(rng, &NUMBERS)
    } else {
        pick(rng, &OTHERS)
    }
}

/// A time within the rows, or a little outside, by milliseconds.
fn time(rng: &mut Rng) -> String {
    let seconds = rng.i64(-4_000..16_000);
    let ms = START_MS + seconds * 1_000 + if rng.bool() { 0 } else { rng.i64(..1_000) };
    let day = if ms < START_MS {
        "2025-12-31"
    } else {
        "2026-01-01"
    };
    let of_day = ms.rem_euclid(86_400_000);
    let (hour, minute, second) = (
        of_day / 3_600_000,
        of_day / 60_000 % 60,
        of_day / 1_000 % 60,
    );
    format!(
        "{day}T{hour:02}:{minute:02}:{second:02}.{:03}",
        of_day % 1_000
    )
}

/// A value that a column can be compared with, likely one that it has.
fn literal(rng: &mut Rng, column: &str) -> String {
    match column {
        "ts" => match rng.u8(..3) {
            0 => format!("'{}'", time(rng)),
            1 => format!("TIMESTAMP '{}'", time(rng)),
            _ => format!(
                "arrow_cast('{}', 'Timestamp(Millisecond, None)')",
                time(rng)
            ),
        },
        "at_s" => format!("TIMESTAMP '{}'", time(rng)),
        "at_us" | "at_ns" => format!("TIMESTAMP '{}Z'", time(rng)),
        "i8" => rng.i16(-140..140).to_string(),
        "i16" | "i32" => rng.i32(-40_000..40_000).to_string(),
        "i64" => rng.i64(LARGE / 4..LARGE).to_string(),
        "u8" => rng.i16(-10..270).to_string(),
        "u16" => rng.u32(..70_000).to_string(),
        "u32" => rng.u32(..).to_string(),
        "u64" => rng.u64(..LARGE.unsigned_abs()).to_string(),
        "nan" | "inf" if rng.u8(..8) == 0 => "CAST('NaN' AS DOUBLE)".to_owned(),
        "nan" => format!("{:.2}", rng.f64()),
        "edge" | "edge32" => pick(
            rng,
            &["0.0", "-0.0", "1.5", "-2.0", "CAST('NaN' AS DOUBLE)"],
        )
        .to_owned(),
        "f32" | "f64" | "inf" | "none" => format!("{:.1}", rng.f64() * 100.0 - 40.0),
        "flag" => rng.bool().to_string(),
        "text" => format!("'host{}'", rng.u8(..6)),
        "day" => format!("DATE '20{:02}-0{}-15'", rng.u8(..50), rng.u8(1..10)),
        "cash" => format!("{}.{:02}", rng.i32(..) / 100, rng.u8(..100)),
        "bytes" => format!("X'{:02x}'", rng.u8(..)),
        "took" => format!(
            "arrow_cast({}, 'Duration(Millisecond)')",
            rng.i64(-100..100)
        ),
        other => unreachable!("no column {other}"),
    }
}

fn comparison(rng: &mut Rng) -> String {
    let column = if rng.u8(..3) == 0 { "ts" } else { column(rng) };
    let (low, high) = (literal(rng, column), literal(rng, column));
    match rng.u8(..10) {
        0 => format!("{column} IS NULL"),
        1 => format!("{column} IS NOT NULL"),
        2 => format!("{column} BETWEEN {low} AND {high}"),
        3 => {
            let items: Vec<_> = (0..rng.u8(1..6)).map(|_| literal(rng, column)).collect();
            let not = pick(rng, &["", "NOT "]);
            format!("{column} {not}IN ({low}, {})", items.join(", "))
        }
        4 => format!("{low} < {column}"),
        _ => {
            let operator = pick(rng, &["=", "<>", "<", "<=", ">", ">="]);
            format!("{column} {operator} {low}")
        }
    }
}

fn condition(rng: &mut Rng, depth: u8) -> String {
    if depth == 0 || rng.u8(..3) == 0 {
        return comparison(rng);
    }
    let (left, right) = (condition(rng, depth - 1), condition(rng, depth - 1));
    match rng.u8(..5) {
        0 => format!("NOT ({left})"),
        1 => format!("({left} OR {right})"),
        _ => format!("({left} AND {right})"),
    }
}

fn aggregate(rng: &mut Rng) -> String {
    let column = column(rng);
    match rng.u8(..4) {
        0 => "count(*)".to_owned(),
        1 => format!("count({column})"),
        // Bytes have no order here.
        2 if !matches!(column, "bytes" | "flag") => {
            format!("{}({column})", pick(rng, &["min", "max"]))
        }
        _ => {
            let function = pick(rng, &["sum", "avg", "stddev", "var_pop"]);
            format!("{function}({})", pick(rng, &NUMBERS))
        }
    }
}

fn question(rng: &mut Rng) -> String {
    let condition = condition(rng, 3);
    match rng.u8(..6) {
        0 => format!("SELECT * FROM {{}} WHERE {condition}"),
        1 => {
            let columns = (column(rng), column(rng));
            format!(
                "SELECT {} AS a, {} AS b FROM {{}} WHERE {condition}",
                columns.0, columns.1
            )
        }
        2 => {
            let (order, limit) = (pick(rng, &["ts", "ts DESC"]), rng.u8(..50));
            format!("SELECT ts FROM {{}} WHERE {condition} ORDER BY {order} LIMIT {limit}")
        }
        3 => {
            let aggregates = (aggregate(rng), aggregate(rng), aggregate(rng));
            let (a, b, c) = aggregates;
            format!("SELECT {a} AS a, {b} AS b, {c} AS c FROM {{}} WHERE {condition}")
        }
        4 => {
            let width = pick(
                rng,
                &["7 seconds", "1 minute", "10 minutes", "1 hour", "1 day"],
            );
            let (a, b) = (aggregate(rng), aggregate(rng));
            format!(
                "SELECT date_bin(INTERVAL '{width}', ts) AS g, {a} AS a, {b} AS b FROM {{}} WHERE {condition} GROUP BY g ORDER BY g"
            )
        }
        _ => {
            let group = pick(rng, &["text", "flag", "i8", "day", "at_s"]);
            let (a, b) = (aggregate(rng), aggregate(rng));
            format!(
                "SELECT {group} AS g, {a} AS a, {b} AS b FROM {{}} WHERE {condition} GROUP BY g"
            )
        }
    }
}

/// Asks many questions of one data set.
fn ask_many(seed: u64) {
    println!("seed {seed}"); // Shown when the test fails.
    let pair = Pair::new(seed);
    let mut rng = Rng::with_seed(seed);
    for _ in 0..150 {
        pair.ask(&question(&mut rng), &Params::None);
    }
}

#[test]
fn questions_that_were_asked_before() {
    ask_many(20_260_101);
}

#[test]
fn questions_that_nobody_asked_before() {
    ask_many(fastrand::u64(..));
}
