//! Statements that would take all memory, all of the stack, or for ever.

use crate::{engine, fail, number, run};
use thalweg_table::ErrorKind;

#[test]
fn bombs_are_errors() {
    bombs(500);
}

/// With just the stack that the engine counts on, it must not make itself another one and still get through.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test of stacks makes its own")]
fn bombs_are_errors_on_a_stack_of_common_size() {
    let thread = std::thread::Builder::new()
        .stack_size((4 << 20) + (256 << 10))
        .spawn(|| bombs(600));
    thread.unwrap().join().unwrap();
}

/// The time to plan a sum grows with the cube of its terms: the library builds the names of all parts of it again and again.
fn bombs(sum_terms: usize) {
    let engine = engine();
    run(&engine, "CREATE TABLE t (v BIGINT)");
    run(&engine, "INSERT INTO t VALUES (1)");
    let nested = format!("SELECT {}1{} FROM t", "(".repeat(2_000), ")".repeat(2_000));
    assert_eq!(fail(&engine, &nested).0, ErrorKind::Query);
    let terms: Vec<String> = (0..20_000).map(|term| format!("v = {term}")).collect();
    assert_eq!(
        fail(
            &engine,
            &format!("SELECT * FROM t WHERE {}", terms.join(" OR "))
        )
        .0,
        ErrorKind::Limit
    );
    let nots = format!("SELECT {} true", "NOT ".repeat(20_000));
    assert!(matches!(
        fail(&engine, &nots).0,
        ErrorKind::Limit | ErrorKind::Query
    ));
    for combined in [" UNION ALL ", " EXCEPT ", " INTERSECT "] {
        let queries = vec!["SELECT v, 1 FROM t"; 3_000].join(combined);
        assert_eq!(fail(&engine, &queries).0, ErrorKind::Limit);
    }
    for joined in [
        " JOIN t AS # ON true",
        " JOIN t AS # ON t.v = #.v",
        ", t AS #",
    ] {
        let tables: String = (1..600)
            .map(|n| joined.replace('#', &format!("t{n}")))
            .collect();
        let (kind, message) = fail(&engine, &format!("SELECT 1 FROM t{tables}"));
        assert_eq!(kind, ErrorKind::Limit, "{message}");
    }
    // Just within the limits everything works, also on a thread with a small stack.
    let many = terms[..1_000].join(" OR ");
    assert_eq!(
        number(&run(
            &engine,
            &format!("SELECT count(*) FROM t WHERE {many}")
        )),
        1
    );
    let odd: Vec<String> = (0..1_000)
        .map(|term| format!("v * {term} = {term}"))
        .collect();
    assert_eq!(
        number(&run(
            &engine,
            &format!("SELECT count(*) FROM t WHERE {}", odd[..700].join(" OR "))
        )),
        1
    );
    let sum = vec!["v"; sum_terms].join(" + ");
    assert_eq!(
        number(&run(&engine, &format!("SELECT {sum} FROM t"))),
        i64::try_from(sum_terms).unwrap()
    );
    let text = vec!["'v'"; 2_900].join(" || ");
    assert_eq!(
        number(&run(
            &engine,
            &format!("SELECT CAST(length({text}) AS BIGINT)")
        )),
        2_900
    );
    // Many joins on top of one another: more than the units of work that a task has before it looks up.
    for joined in [
        " JOIN t AS # ON true",
        " JOIN t AS # ON t.v = #.v",
        ", t AS #",
    ] {
        let tables: String = (1..180)
            .map(|n| joined.replace('#', &format!("t{n}")))
            .collect();
        let found = run(&engine, &format!("SELECT count(*) FROM t{tables}"));
        assert_eq!(number(&found), 1);
    }
    for combined in [" EXCEPT ", " INTERSECT "] {
        let queries = vec!["SELECT v FROM t"; 180].join(combined);
        let found = run(&engine, &format!("SELECT count(*) FROM ({queries})"));
        assert_eq!(number(&found), i64::from(combined == " INTERSECT "));
    }
    let unions = vec!["SELECT v FROM t"; 1_000].join(" UNION ALL ");
    assert_eq!(
        number(&run(&engine, &format!("SELECT count(*) FROM ({unions})"))),
        1_000
    );
    let deep = format!("SELECT {}v{} FROM t", "(".repeat(60), ")".repeat(60));
    assert_eq!(number(&run(&engine, &deep)), 1);
    let many_values = (0..20_000)
        .map(|value| format!("({value})"))
        .collect::<Vec<_>>()
        .join(",");
    assert_eq!(
        number(&run(
            &engine,
            &format!("INSERT INTO t VALUES {many_values}")
        )),
        20_000
    );
    let list = (0..20_000)
        .map(|value| value.to_string())
        .collect::<Vec<_>>()
        .join(",");
    assert_eq!(
        number(&run(
            &engine,
            &format!("SELECT count(*) FROM t WHERE v IN ({list})")
        )),
        20_001
    );
}

#[test]
fn results_too_large_for_memory_are_errors() {
    let engine = engine();
    for call in [
        "repeat('x', 2000000000)",
        "repeat('xyz', 9223372036854775807)",
        "lpad('x', 2000000000)",
        "rpad('x', 2000000000, 'yz')",
        "array_repeat(1, 2000000000)",
        "array_repeat(repeat('x', 1000000), 600)",
        "array_resize([1], 60000000, 0)",
        "generate_series(TIMESTAMP '2020-01-01', TIMESTAMP '2030-01-01', INTERVAL '1 ms')",
        "range(DATE '2000-01-01', DATE '2200-01-01', INTERVAL '1 second')",
        "range(0, 9223372036854775807)",
        "range(0, -9223372036854775807, -1)",
    ] {
        let (kind, message) = fail(&engine, &format!("SELECT {call}"));
        assert_eq!(kind, ErrorKind::Limit, "{call}: {message}");
        assert!(message.contains("bytes"), "{call}: {message}");
    }
    let rows = "FROM generate_series(1, 8192) AS s(n)";
    let (kind, _) = fail(&engine, &format!("SELECT repeat('x', 1000000 + n) {rows}"));
    assert_eq!(kind, ErrorKind::Limit);
    let fine = run(
        &engine,
        &format!("SELECT sum(length(repeat('xy', n)) + length(lpad('', 3))) {rows}"),
    );
    assert_eq!(number(&fine), 8192 * 8193 + 3 * 8192);
    let fine = run(
        &engine,
        "SELECT length(repeat('x', -5)) + length(repeat('', 9223372036854775807)) + array_length(range(10, 0, -2)) \
         + array_length(generate_series(DATE '2020-01-01', DATE '2024-01-01', INTERVAL '1 month'))",
    );
    assert_eq!(fine[0].num_rows(), 1);
}
