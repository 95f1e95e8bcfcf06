//! The shell with a script on standard input.

use crate::Place;

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
    place.sql("CREATE TABLE \"My Table\" (ts TIMESTAMP, \"Größe\" DOUBLE, n BIGINT) WITH (layout = 'stream', time = 'ts')");
    let schema = place.run_with(["db"], ".schema\n").ok();
    let other = Place::new();
    other.run_with(["db"], &schema).ok();
    assert_eq!(other.run_with(["db"], ".schema 'my table'\n").ok(), schema);
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
