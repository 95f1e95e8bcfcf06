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
