//! Intervals and durations that are made up, compared, sorted and grouped, against their lengths as plain numbers.
#![expect(clippy::panic, clippy::unwrap_used, reason = "tests fail by panic")]

use arrow::util::display::{ArrayFormatter, FormatOptions};
use fastrand::Rng;
use std::collections::BTreeSet;
use thalweg_query::{Params, QueryOptions, Session};
use thalweg_table::{Engine, EngineOptions};

const DAY_S: i64 = 86_400;
const ROUNDS: usize = 40;
const ROWS: usize = 12;
type Holds = fn(&i64, &i64) -> bool;
const COMPARISONS: [(&str, Holds); 6] = [
    ("=", i64::eq),
    ("<>", i64::ne),
    ("<", i64::lt),
    ("<=", i64::le),
    (">", i64::gt),
    (">=", i64::ge),
];

/// An interval, and a duration by its seconds.
struct Row {
    months: i64,
    days: i64,
    seconds: i64,
    took: i64,
}

impl Row {
    fn random(rng: &mut Rng) -> Self {
        // Few, so that many of them are equal in length and different in their fields.
        let of_interval = |rng: &mut Rng| {
            let days = rng.i64(-2..=2) * if rng.bool() { 1 } else { 30 };
            let seconds = rng.i64(-2..=2) * if rng.bool() { DAY_S } else { DAY_S / 2 };
            (rng.i64(-2..=2), days, seconds)
        };
        let (months, days, seconds) = of_interval(rng);
        let took = of_interval(rng);
        Self {
            months,
            days,
            seconds,
            took: length(took.0, took.1, took.2),
        }
    }

    fn length(&self) -> i64 {
        length(self.months, self.days, self.seconds)
    }

    fn sql(&self) -> String {
        let Self {
            months,
            days,
            seconds,
            took,
        } = self;
        format!(
            "(INTERVAL '{months} months {days} days {seconds} seconds', TIMESTAMP '1970-01-01' + INTERVAL '{took} seconds')"
        )
    }
}

fn length(months: i64, days: i64, seconds: i64) -> i64 {
    (months * 30 + days) * DAY_S + seconds
}

fn engine() -> Session {
    let engine = Engine::in_memory(EngineOptions::default()).unwrap();
    let options = QueryOptions {
        threads: 2,
        ..QueryOptions::default()
    };
    Session::new(engine, options).unwrap()
}

/// The rows of a query as numbers, one column each.
fn numbers(engine: &Session, sql: &str) -> Vec<i64> {
    let result = engine.sql(sql, &Params::None, &[]);
    let batches = result.and_then(|result| result.collect());
    let batches = batches.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut numbers = Vec::new();
    for batch in batches {
        let column = ArrayFormatter::try_new(batch.column(0), &FormatOptions::default()).unwrap();
        let shown = (0..batch.num_rows()).map(|row| column.value(row).to_string());
        numbers.extend(shown.map(|shown| shown.parse::<i64>().unwrap()));
    }
    numbers
}

/// What an interval is long, as SQL that compares none.
const SECONDS: &str = "date_part('epoch', TIMESTAMP '1970-01-01' + i)::BIGINT";

#[test]
fn lengths_decide() {
    let mut rng = Rng::new();
    let engine = engine();
    for _ in 0..ROUNDS {
        let seed = rng.u64(..);
        let mut rng = Rng::with_seed(seed);
        let rows: Vec<Row> = (0..ROWS).map(|_| Row::random(&mut rng)).collect();
        let values: Vec<String> = rows.iter().map(Row::sql).collect();
        let values = values.join(", ");
        let table = format!(
            "(SELECT row_number() OVER () AS n, i, t - TIMESTAMP '1970-01-01' AS d FROM (VALUES {values}) v(i, t))"
        );
        let check = |sql: String, expected: Vec<i64>| {
            assert_eq!(numbers(&engine, &sql), expected, "seed {seed}: {sql}");
        };
        let lengths: Vec<i64> = rows.iter().map(Row::length).collect();
        let took: Vec<i64> = rows.iter().map(|row| row.took).collect();
        let pairs = |of: &[i64], with: &[i64], holds: &dyn Fn(&i64, &i64) -> bool| {
            let all = of.iter().flat_map(|a| with.iter().map(move |b| (a, b)));
            i64::try_from(all.filter(|(a, b)| holds(a, b)).count()).unwrap()
        };
        for (op, holds) in COMPARISONS {
            for (left, right, of, with) in [
                ("a.i", "b.i", &lengths, &lengths),
                ("a.d", "b.i", &took, &lengths),
                ("a.i", "b.d", &lengths, &took),
            ] {
                check(
                    format!("SELECT count(*) FROM {table} a JOIN {table} b ON {left} {op} {right}"),
                    vec![pairs(of, with, &holds)],
                );
            }
            let (literal, of_literal) = (&rows[0], lengths[0]);
            let (months, days, seconds) = (literal.months, literal.days, literal.seconds);
            let literal = format!("INTERVAL '{months} months {days} days {seconds} seconds'");
            check(
                format!("SELECT count(*) FROM {table} a WHERE d {op} {literal}"),
                vec![pairs(&took, &[of_literal], &holds)],
            );
            check(
                format!("SELECT count(*) FROM {table} a WHERE {literal} {op} i"),
                vec![pairs(&[of_literal], &lengths, &holds)],
            );
        }
        let mut sorted: Vec<(i64, i64)> = lengths.iter().copied().zip(1..).collect();
        sorted.sort_unstable();
        let places: Vec<i64> = sorted.iter().map(|(_, place)| *place).collect();
        check(
            format!("SELECT n FROM {table} ORDER BY i, n"),
            places.clone(),
        );
        check(
            format!(
                "SELECT n FROM (SELECT n, row_number() OVER (ORDER BY i, n) AS at FROM {table}) ORDER BY at"
            ),
            places,
        );
        let different: BTreeSet<i64> = lengths.iter().copied().collect();
        let count = i64::try_from(different.len()).unwrap();
        check(
            format!("SELECT count(DISTINCT i) FROM {table}"),
            vec![count],
        );
        check(
            format!("SELECT count(*) FROM (SELECT DISTINCT i FROM {table})"),
            vec![count],
        );
        let of_group = |length: &i64| {
            let equal = lengths.iter().filter(|other| *other == length);
            i64::try_from(equal.count()).unwrap()
        };
        check(
            format!("SELECT count(*) FROM {table} GROUP BY i ORDER BY i"),
            different.iter().map(of_group).collect(),
        );
        let joined = different
            .intersection(&took.iter().copied().collect())
            .count();
        check(
            format!("SELECT count(DISTINCT i) FROM {table} WHERE i IN (SELECT d FROM {table})"),
            vec![i64::try_from(joined).unwrap()],
        );
        let between = pairs(&lengths, &took, &|length, took| {
            length >= took && *length <= took + DAY_S
        });
        check(
            format!(
                "SELECT count(*) FROM {table} a, {table} b WHERE a.i BETWEEN b.d AND b.d + INTERVAL '1 day'"
            ),
            vec![between],
        );
        check_extremes(&rows, &table, &check);
    }
}

/// Extremes are among the values that are there, with their own fields.
fn check_extremes(rows: &[Row], table: &str, check: &impl Fn(String, Vec<i64>)) {
    // Calendar months are no 30 days.
    let by_calendar = |row: &Row| row.months == 0;
    let lengths = rows.iter().filter(|row| by_calendar(row)).map(Row::length);
    let lengths: Vec<i64> = lengths.collect();
    let Some((&least, &greatest)) = lengths.iter().min().zip(lengths.iter().max()) else {
        return;
    };
    let kept = "date_part('month', i) = 0 AND date_part('year', i) = 0";
    for (function, extreme) in [("min", least), ("max", greatest)] {
        let of_all = format!("SELECT {function}(i) AS i FROM {table} WHERE {kept}");
        let of_groups = format!("{of_all} GROUP BY n > 0");
        for of in [of_all, of_groups] {
            check(format!("SELECT {SECONDS} FROM ({of})"), vec![extreme]);
        }
    }
    for (function, chosen) in [
        ("least", i64::min as fn(i64, i64) -> i64),
        ("greatest", i64::max),
    ] {
        let of =
            format!("SELECT {function}(i, INTERVAL '36 hours') AS i, n FROM {table} WHERE {kept}");
        check(
            format!("SELECT {SECONDS} FROM ({of}) ORDER BY n"),
            lengths
                .iter()
                .map(|length| chosen(*length, 129_600))
                .collect(),
        );
    }
}
