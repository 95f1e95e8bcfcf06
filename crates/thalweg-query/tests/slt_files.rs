//! Runs the files in `tests/slt`: statements of SQL with what they must give.
//!
//! A record is a kind of check in one line, a statement, and what is expected:
//! `statement ok`, `statement error <part of the message>`, `query` and `query header` followed by `----` and the rows,
//! `plan` followed by `----` and lines of `has <text>` and `lacks <text>`. Records end with an empty line; `#` begins a
//! comment.
#![expect(clippy::panic, clippy::unwrap_used, reason = "tests fail by panic")]

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::fmt::Write as _;
use thalweg_query::{Params, QueryOptions, Session};
use thalweg_table::{Engine, EngineOptions, MaintenanceMode};

struct Record<'a> {
    line: usize,
    check: &'a str,
    sql: String,
    expected: Vec<&'a str>,
}

fn records(text: &str) -> Vec<Record<'_>> {
    let lines: Vec<(usize, &str)> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#'))
        .collect();
    let paragraphs = lines
        .split(|(_, line)| line.trim().is_empty())
        .filter(|lines| !lines.is_empty());
    paragraphs.map(record).collect()
}

fn record<'a>(lines: &[(usize, &'a str)]) -> Record<'a> {
    let (line, check) = lines[0];
    let rest: Vec<&str> = lines[1..].iter().map(|(_, line)| *line).collect();
    let end = rest
        .iter()
        .position(|line| *line == "----")
        .unwrap_or(rest.len());
    let expected = rest.get(end + 1..).unwrap_or_default().to_vec();
    Record {
        line: line + 1,
        check,
        sql: rest[..end].join("\n"),
        expected,
    }
}

fn shown(batches: &[RecordBatch], header: bool) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in batches {
        if header && rows.is_empty() {
            let names: Vec<_> = batch
                .schema()
                .fields()
                .iter()
                .map(|field| field.name().clone())
                .collect();
            rows.push(names.join("|"));
        }
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<_> = columns
                .iter()
                .map(|column| column.value(row).to_string())
                .collect();
            rows.push(cells.join("|"));
        }
    }
    rows
}

/// What is wrong, if anything is.
fn check(engine: &Session, record: &Record<'_>) -> Option<String> {
    let (kind, detail) = record.check.split_once(' ').unwrap_or((record.check, ""));
    let result = engine
        .sql(&record.sql, &Params::None, &[])
        .and_then(|result| result.collect());
    match (kind, result) {
        ("statement", Ok(_)) if detail == "ok" => None,
        ("statement", Err(error)) if detail.starts_with("error") => {
            let wanted = detail["error".len()..].trim();
            (!error.message().contains(wanted)).then(|| format!("the error says: {error}"))
        }
        ("statement", Ok(_)) => Some("an error was expected".to_owned()),
        ("query", Ok(batches)) => {
            let rows = shown(&batches, detail == "header");
            (rows != record.expected).then(|| format!("gives\n{}", rows.join("\n")))
        }
        ("query", Err(_)) if record.expected == ["error"] => None,
        ("plan", Ok(batches)) => {
            let plan = shown(&batches, false).join("\n");
            let holds = |line: &&str| match line.split_once(' ') {
                Some(("has", text)) => plan.contains(text),
                Some(("lacks", text)) => !plan.contains(text),
                _ => panic!("\"{line}\" says nothing of a plan"),
            };
            let fine = !record.expected.is_empty() && record.expected.iter().all(holds);
            (!fine).then(|| format!("the plan is\n{plan}"))
        }
        (_, Err(error)) => Some(format!("fails: {error}")),
        (other, Ok(_)) => panic!("\"{other}\" is no kind of check"),
    }
}

/// Parts of the messages that refuse a query as a part of another statement.
const REFUSED_INSIDE: [&str; 6] = [
    "have the same name without regard to case",
    "cannot be stored; what can are",
    "all of its values are missing, which says nothing of its type",
    "CREATE TABLE within a transaction",
    "CREATE VIEW within a transaction",
    "it has two columns",
];

/// Parts of queries whose rows are others each time, or when they are stored.
const CHANGING: [&str; 5] = ["random()", "now()", "uuid()", "EXPLAIN", "Float16"];

/// What is wrong with the answer to a query inside of others, if anything is.
fn check_inside(engine: &Session, record: &Record<'_>) -> Option<String> {
    let query = record.sql.trim_end().trim_end_matches(';');
    let is_query = ["SELECT", "WITH", "FROM", "VALUES", "("]
        .iter()
        .any(|word| query.trim_start().to_uppercase().starts_with(word));
    let changes = |word: &&str| query.contains(*word);
    if !record.check.starts_with("query")
        || !is_query
        || ["INSERT", "DELETE FROM", "UPDATE ", "MERGE INTO"]
            .iter()
            .any(changes)
        || CHANGING.iter().any(changes)
    {
        return None;
    }
    let rows = |sql: &str| {
        let result = engine.sql(sql, &Params::None, &[]);
        let batches = result.and_then(|result| result.collect())?;
        let mut rows = shown(&batches, false);
        rows.sort();
        Ok::<_, thalweg_table::Error>(rows)
    };
    let once = rows(query).ok()?;
    let mut twice: Vec<String> = once
        .iter()
        .flat_map(|row| [row.clone(), row.clone()])
        .collect();
    twice.sort();
    let places = [
        (format!("SELECT * FROM (\n{query}\n) AS inside_"), &once),
        (
            format!("WITH inside_ AS (\n{query}\n) SELECT * FROM inside_"),
            &once,
        ),
        (format!("(\n{query}\n) UNION ALL (\n{query}\n)"), &twice),
        (format!("CREATE TABLE inside_ AS {query}"), &once),
        (format!("CREATE VIEW inside_ AS {query}"), &once),
    ];
    for (sql, expected) in places {
        // Such a list has the view itself.
        if sql.starts_with("CREATE VIEW") && sql.contains("FROM information_schema.") {
            continue;
        }
        let mut found = rows(&sql);
        for kind in ["TABLE", "VIEW"] {
            if sql.starts_with(&format!("CREATE {kind}")) && found.is_ok() {
                found = rows("SELECT * FROM inside_");
                rows(&format!("DROP {kind} inside_")).unwrap();
            }
        }
        match found {
            Ok(found) if found == *expected => {}
            Ok(found) => return Some(format!("{sql}\ngives\n{}", found.join("\n"))),
            Err(error) if REFUSED_INSIDE.iter().any(|it| error.message().contains(it)) => {}
            Err(error) => return Some(format!("{sql}\nfails: {error}")),
        }
    }
    None
}

/// Runs a record for the tables that it makes, and asks its query again.
fn check_inside_too(engine: &Session, record: &Record<'_>) -> Option<String> {
    let wrong = check_inside(engine, record);
    if record.check.starts_with("statement") {
        // What it says is checked elsewhere.
        let result = engine.sql(&record.sql, &Params::None, &[]);
        let _ = result.and_then(|result| result.collect());
    }
    wrong
}

fn run(name: &str, text: &str, check: impl Fn(&Session, &Record<'_>) -> Option<String>) {
    // Plans tell of blocks, however long a file takes.
    let options = EngineOptions {
        maintenance: MaintenanceMode::Manual,
        ..EngineOptions::default()
    };
    let engine = Engine::in_memory(options).unwrap();
    // As many on every machine: plans tell.
    let options = QueryOptions {
        threads: 2,
        ..QueryOptions::default()
    };
    let engine = Session::new(engine, options).unwrap();
    let records = records(text);
    assert!(!records.is_empty(), "{name} is empty");
    let mut wrong = String::new();
    for record in &records {
        if let Some(what) = check(&engine, record) {
            writeln!(
                wrong,
                "\n{name}:{}: {}\n{}\n{what}",
                record.line, record.check, record.sql
            )
            .unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

macro_rules! files {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name), include_str!(concat!("slt/", stringify!($name), ".slt")), check);
            }
        )*

        /// The queries again, inside of others.
        mod inside {
            $(
                #[test]
                fn $name() {
                    let text = include_str!(concat!("slt/", stringify!($name), ".slt"));
                    super::run(stringify!($name), text, super::check_inside_too);
                }
            )*
        }

        #[test]
        fn every_file_is_run() {
            let mut known: Vec<String> = vec![$(concat!(stringify!($name), ".slt").to_owned()),*];
            known.sort();
            assert_eq!(known, files_there());
        }
    };
}

files!(
    aggregate,
    alter,
    blocks,
    bounds,
    decimals,
    delete,
    dialect,
    errors,
    everyday,
    explain,
    far_times,
    float_lists,
    floats,
    habits,
    if_exists,
    in_subqueries,
    insert,
    joined_lists,
    lengths,
    merge,
    names,
    optimizer,
    ordered_values,
    output,
    overflow,
    rows,
    rows_outside,
    select,
    simplifications,
    table_options,
    tables,
    times,
    transactions,
    type_names,
    types,
    unique,
    update,
    using,
    values_outside,
    views,
    window_keys,
    windows,
);

#[expect(clippy::disallowed_methods, reason = "a test lists its own files")]
fn files_there() -> Vec<String> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slt");
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
