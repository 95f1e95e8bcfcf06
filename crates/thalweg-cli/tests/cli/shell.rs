//! The shell with a script on standard input, and Ctrl-C.

use crate::Place;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_script_runs_line_by_line() {
    let place = Place::new();
    let script = "\
-- a comment;
CREATE TABLE cpu (ts TIMESTAMP, \"Host\" VARCHAR)
  WITH (layout = 'stream', time = 'ts');
INSERT INTO cpu VALUES ('2026-01-01', 'a;');
SELECT count(*) AS n FROM cpu; SELECT 2 AS two;
.tables
.schema
.mode json
SELECT count(*) AS n FROM cpu
";
    let ended = place.run_with(["db"], script);
    let out = ended.ok();
    assert!(out.contains("n\n1\ntwo\n2\ncpu\n"), "{out}");
    assert!(out.contains("CREATE TABLE cpu (ts "), "{out}");
    assert!(
        out.contains("\"Host\"") && out.contains("time = 'ts'"),
        "{out}"
    );
    assert!(out.ends_with("[{\"n\":1}]\n"), "{out}");
}

#[test]
fn the_printed_schema_makes_the_same_table() {
    let place = Place::new();
    place.sql(
        "CREATE TABLE \"My Table\" (ts TIMESTAMP, \"Größe\" DOUBLE DEFAULT 2.5, n BIGINT NOT NULL DEFAULT -3, s VARCHAR DEFAULT 'it''s', \
         d TIMESTAMP DEFAULT '2026-03-01 12:00:00.5', b BLOB DEFAULT X'00ff', q DECIMAL(10, 2) DEFAULT 1.25, f BOOLEAN DEFAULT true) \
         WITH (layout = 'stream', time = 'ts', summaries = 'n')",
    );
    let schema = place.run_with(["db"], ".schema\n").ok();
    let other = Place::new();
    other.run_with(["db"], &schema).ok();
    assert_eq!(other.run_with(["db"], ".schema 'my table'\n").ok(), schema);
    assert!(schema.contains("s VARCHAR DEFAULT 'it''s'"), "{schema}");
    assert!(schema.contains("b BLOB DEFAULT X'00ff'"), "{schema}");
}

#[test]
fn the_printed_schema_makes_the_same_views() {
    let place = Place::new();
    place.sql(
        "CREATE TABLE \"My Table\" (ts TIMESTAMP, v DOUBLE) WITH (layout = 'stream', time = 'ts')",
    );
    place.sql("INSERT INTO \"My Table\" VALUES ('2026-01-01', 1), ('2026-01-02', 2)");
    place.sql(
        "CREATE VIEW z (\"At\", half) AS SELECT ts, v / 2 -- halved\n FROM \"my table\" -- end",
    );
    place.sql("CREATE VIEW \"A view\" AS SELECT max(half) AS m FROM Z WHERE \"At\" > '2026-01-01' OR 'a;b' = 'c'");
    place.sql("CREATE VIEW \"as\" (\"group\", \"select\") AS SELECT ts, v FROM \"my table\"");
    assert_eq!(
        place.run_with(["db"], ".tables\n").ok(),
        "A view\nMy Table\nas\nz\n"
    );
    let schema = place.run_with(["db"], ".schema\n").ok();
    let other = Place::new();
    other.run_with(["db"], &schema).ok();
    assert_eq!(other.run_with(["db"], ".schema\n").ok(), schema);
    let view = place.run_with(["db"], ".schema Z\n").ok();
    assert_eq!(
        view,
        "CREATE VIEW z (\"At\", half) AS SELECT ts, v / 2 -- halved\n FROM \"my table\";\n"
    );
    assert_eq!(place.sql("SELECT * FROM \"a view\""), "m\n1.0\n");
    assert!(place.sql("DESCRIBE z").contains("half,DOUBLE,YES\n"));
}

#[test]
fn commands_on_tables_leave_views_alone() {
    let place = Place::new();
    place.sql("CREATE TABLE t (ts BIGINT, v DOUBLE) WITH (time = 'ts')");
    place.sql("CREATE VIEW w AS SELECT * FROM t");
    for command in ["stats", "maintain", "verify"] {
        let out = place.run([command, "db"]).ok();
        assert!(!out.contains("w,") && !out.contains("2 tables"), "{out}");
    }
    assert!(place.run(["verify", "db"]).ok().contains("1 table"));
    for command in ["stats", "maintain"] {
        let message = place.run([command, "db", "w"]).fails(1);
        assert!(message.contains("\"w\" is a view"), "{message}");
    }
}

#[test]
fn all_types_have_names_that_are_read_back() {
    let place = Place::new();
    place.sql(
        "CREATE TABLE t (a TINYINT, b UTINYINT, c SMALLINT, d USMALLINT, e INTEGER, f UINTEGER, g BIGINT, h UBIGINT, i REAL, \
         j DOUBLE, k VARCHAR, l BLOB, m BOOLEAN, n DATE, o TIMESTAMP(0), p TIMESTAMP(6) WITH TIME ZONE, q DECIMAL(10, 2), \
         r DURATION(us))",
    );
    let schema = place.run_with(["db"], ".schema\n").ok();
    let other = Place::new();
    other.run_with(["db"], &schema).ok();
    assert_eq!(other.run_with(["db"], ".schema\n").ok(), schema);
    assert_eq!(other.sql("DESCRIBE t"), place.sql("DESCRIBE t"));
    assert!(other.sql("DESCRIBE t").contains("f,UINTEGER,YES\n"));
}

#[test]
fn a_shell_beside_a_writer_says_why_it_only_reads() {
    let place = Place::new();
    place.sql("CREATE TABLE t (v BIGINT)");
    let db = thalweg::Database::open(&place.db).unwrap();
    let message = place
        .run_with(["db"], "INSERT INTO t VALUES (1);\n")
        .fails(1);
    assert!(
        message.contains("another process writes") && !message.contains("read_only"),
        "{message}"
    );
    drop(db);
}

#[test]
fn a_script_ends_with_its_first_error() {
    let place = Place::new();
    let ended = place.run_with(["db"], "SELECT 1 AS a;\nSELEKT;\nCREATE TABLE t (a INT);\n");
    assert_eq!(ended.out, "a\n1\n");
    ended.fails(1);
    assert_eq!(place.run_with(["db"], ".tables\n").ok(), "");
    for (line, status) in [
        (".nonsense\n", 2),
        (".mode xml\n", 2),
        (".mode parquet\n", 1),
        (".schema nothing\n", 1),
    ] {
        assert_eq!(place.run_with(["db"], line).status, status, "{line}");
    }
}

#[test]
fn quit_ends_before_what_follows() {
    let place = Place::new();
    assert_eq!(
        place
            .run_with(["db"], "SELECT 1 AS a;\n.quit\nSELECT 2;\n")
            .ok(),
        "a\n1\n"
    );
}

#[test]
fn quit_and_exit_end_the_shell() {
    for word in ["quit", "exit", "QUIT;", "exit ;"] {
        let script = format!("SELECT 1 AS a;\n{word}\nSELECT 2;\n");
        assert_eq!(
            Place::new().run_with(["db"], script).ok(),
            "a\n1\n",
            "{word}"
        );
    }
}

#[test]
fn timer_and_help_go_to_standard_error() {
    let ended = Place::new().run_with(
        ["db"],
        ".timer on\n.help\nSELECT 1 AS a;\n.timer off\nSELECT 2 AS b;\n",
    );
    assert_eq!(ended.out, "a\n1\nb\n2\n");
    assert!(
        ended.err.contains(".import") && ended.err.matches(" s\n").count() == 1,
        "{ended:?}"
    );
}

#[test]
fn the_shell_imports() {
    let place = Place::new();
    let file = place.file("my cpu.csv", "ts,sys\n2026-01-01T00:00:00,1\n");
    let script = format!(
        ".import '{}' cpu --create --time ts\nSELECT sys FROM cpu;\n",
        file.display()
    );
    assert_eq!(place.run_with(["db"], script).ok(), "sys\n1\n");
}

#[test]
fn a_transaction_is_stored_by_its_commit_alone() {
    let place = Place::new();
    let begun =
        "CREATE TABLE t (a INT); BEGIN;\nINSERT INTO t VALUES (1); SELECT count(*) AS n FROM t;\n";
    for (unfinished, ended) in [
        (place.run_with(["db"], begun), "script"),
        (
            place.run(["sql", "db", "BEGIN; INSERT INTO t VALUES (2)"]),
            "statements",
        ),
    ] {
        assert!(
            unfinished.err.contains("not committed"),
            "{ended}: {unfinished:?}"
        );
        unfinished.fails(1);
    }
    let committed = "BEGIN; INSERT INTO t VALUES (3); COMMIT; SELECT a FROM t";
    assert_eq!(
        place
            .run(["sql", "db", committed, "--format", "csv"])
            .ok()
            .lines()
            .last(),
        Some("3")
    );
    assert_eq!(
        place
            .run_with(["db"], "SELECT count(*) AS n FROM t;\n")
            .ok(),
        "n\n1\n"
    );
}

#[test]
fn a_script_on_standard_input_is_not_imported() {
    let place = Place::new();
    let ended = place.run_with(["db"], ".import - cpu --create --time ts\nts,sys\n");
    assert!(
        ended.status == 2 && ended.err.contains("standard input holds the statements"),
        "{ended:?}"
    );
}

/// Statements that run for minutes on a table of 2,000 rows: one that gives rows all the time, one that gives them at its
/// end, and ones that store them.
const LONG: [&str; 4] = [
    "SELECT a.n, b.n AS m, c.n AS o FROM n a CROSS JOIN n b CROSS JOIN n c WHERE a.n + b.n <> c.n",
    "SELECT sum(a.n * b.n + c.n) FROM n a CROSS JOIN n b CROSS JOIN n c WHERE a.n + b.n <> c.n",
    "INSERT INTO n SELECT a.n FROM n a CROSS JOIN n b CROSS JOIN n c WHERE a.n + b.n <> c.n",
    "INSERT INTO n SELECT sum(a.n * b.n + c.n) FROM n a CROSS JOIN n b CROSS JOIN n c WHERE a.n + b.n <> c.n",
];

#[test]
fn ctrl_c_ends_a_statement_with_130_and_stores_nothing() {
    let place = Place::new();
    let rows = (0..2_000).fold(String::from("n\n"), |text, n| text + &format!("{n}\n"));
    let file = place.file("n.csv", rows);
    place
        .run([
            "import",
            "db",
            file.to_str().unwrap(),
            "--table",
            "n",
            "--create",
        ])
        .ok();
    for query in LONG {
        let started = Instant::now();
        let child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(["sql".as_ref(), place.db.as_os_str(), query.as_ref()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(500));
        let sent = Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success(), "{query} has ended by itself");
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(130), "{ended:?}");
        assert_eq!(
            String::from_utf8(ended.stderr).unwrap(),
            "thalweg: interrupted\n"
        );
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "it took {:?}",
            started.elapsed()
        );
    }
    let counted = place.run(["sql", "db", "SELECT count(*) AS rows FROM n"]);
    assert_eq!(counted.ok(), "rows\n2000\n");
}

#[test]
fn commands_of_psql_are_known() {
    let place = Place::new();
    place.sql("CREATE TABLE \"My Table\" (ts TIMESTAMP, v DOUBLE) WITH (time = 'ts')");
    let out = place.run_with(["db"], "\\dt\n\\d 'my table';\n").ok();
    assert_eq!(
        out,
        format!("My Table\n{}", place.sql("DESCRIBE \"My Table\""))
    );
    let message = place.run_with(["db"], "\\x\n").fails(2);
    assert!(message.contains("begin with a dot"), "{message}");
}

#[test]
fn a_command_in_an_open_statement_says_so() {
    let place = Place::new();
    let message = place.run_with(["db"], "SELECT 1\n.tables\n").fails(2);
    assert!(
        message.contains("the statement before .tables has no semicolon"),
        "{message}"
    );
    // Not in a text or a comment, nor where a number begins so.
    let script = "SELECT 'a\n.tables\n' AS a, 1 /*\n.help\n*/ +\n.5 AS b;\n";
    assert_eq!(
        place.run_with(["db"], script).ok(),
        "a,b\n\"a\n.tables\n\",1.5\n"
    );
}

#[test]
fn the_shell_imports_from_home() {
    let place = Place::new();
    place.file("x.csv", "v\n7\n");
    let mut shell = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .arg(&place.db)
        .env("HOME", place.folder.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = shell.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b".import ~/x.csv t --create\n").unwrap();
    drop(stdin);
    assert!(shell.wait().unwrap().success());
    assert_eq!(place.sql("SELECT * FROM t"), "v\n7\n");
}
