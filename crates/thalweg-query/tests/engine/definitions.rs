//! Statements about tables, several at a time.

use crate::{engine, number, run};
use std::thread::scope;

/// Every statement succeeds, whatever the others have done meanwhile.
#[test]
fn if_exists_and_if_not_exists_succeed_beside_each_other() {
    let engine = engine();
    let statements = [
        "CREATE TABLE IF NOT EXISTS x (ts BIGINT)",
        "DROP TABLE IF EXISTS x, X, y",
        "CREATE TABLE IF NOT EXISTS X (ts BIGINT)",
        "DROP TABLE IF EXISTS y, x",
    ];
    scope(|scope| {
        for statement in statements {
            let engine = &engine;
            scope.spawn(move || {
                for _ in 0..2_000 {
                    run(engine, statement);
                }
            });
        }
    });
    run(&engine, "DROP TABLE IF EXISTS x");
    run(&engine, "CREATE TABLE x (ts BIGINT)");
    run(&engine, "INSERT INTO x VALUES (1)");
    run(&engine, "CREATE TABLE IF NOT EXISTS x (ts BIGINT)");
    assert_eq!(number(&run(&engine, "SELECT count(*) FROM x")), 1);
}

/// Its columns are read in groups, of one snapshot.
#[test]
fn a_wide_table_is_summarized_as_its_rows_are() {
    let engine = engine();
    let name = |at: usize| match at {
        3 => "\"Mixed\"".to_owned(),
        150 => "\"with \"\"quotes\"\"\"".to_owned(),
        _ => format!("c{at}"),
    };
    let types = ["BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN"];
    for columns in [64, 65, 200] {
        let defined: Vec<String> = (0..columns)
            .map(|at| format!("{} {}", name(at), types[at % 4]))
            .collect();
        run(
            &engine,
            &format!("CREATE TABLE \"Wide\" ({})", defined.join(", ")),
        );
        for row in 0..3 {
            let value = |at: usize| match at % 4 {
                _ if (at + row).is_multiple_of(5) => "NULL".to_owned(),
                0 => (at * row).to_string(),
                1 => format!("{}.5", at + row),
                2 => format!("'{at} {row}'"),
                _ => (row == 1).to_string(),
            };
            let values: Vec<String> = (0..columns).map(value).collect();
            run(
                &engine,
                &format!("INSERT INTO \"Wide\" VALUES ({})", values.join(", ")),
            );
        }
        let of_table = run(&engine, "SUMMARIZE \"Wide\"");
        assert_eq!(of_table[0].num_rows(), columns);
        let of_query = run(&engine, "SUMMARIZE SELECT * FROM (SELECT * FROM \"Wide\")");
        assert_eq!(of_table, of_query, "{columns} columns");
        run(&engine, "DROP TABLE \"Wide\"");
    }
}
