//! `thalweg sql`: formats and ends.

use crate::Place;

const ROWS: &str = "CREATE TABLE cpu (ts TIMESTAMP, host VARCHAR, sys DOUBLE) WITH (layout = 'stream', time = 'ts'); \
                    INSERT INTO cpu VALUES ('2026-01-01T00:00:00', 'a;b', 1.5), ('2026-01-01T00:00:01', NULL, 2.5)";

fn filled() -> Place {
    let place = Place::new();
    place.sql(ROWS);
    place
}

#[test]
fn csv_is_what_programs_get() {
    let place = filled();
    let all = "ts,host,sys\n2026-01-01T00:00:00,a;b,1.5\n2026-01-01T00:00:01,,2.5\n";
    assert_eq!(place.sql("SELECT * FROM cpu ORDER BY ts"), all);
    assert_eq!(
        place.sql("SELECT * FROM cpu WHERE sys > 10"),
        "ts,host,sys\n"
    );
    assert_eq!(place.sql("SELECT 1 AS a; SELECT 2 AS b;"), "a\n1\nb\n2\n");
    assert_eq!(
        place.sql("INSERT INTO cpu VALUES ('2026-01-01T00:00:02', 'c', 3.5)"),
        "count\n1\n"
    );
    assert_eq!(place.sql("SELECT count(*) AS n FROM CPU"), "n\n3\n");
}

#[test]
fn json_is_one_list() {
    let place = filled();
    let json = |statement: &str| {
        let text = place.run(["sql", "db", statement, "--format", "json"]).ok();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let rows = json("SELECT host, sys FROM cpu ORDER BY ts");
    assert_eq!(
        rows,
        serde_json::json!([{"host": "a;b", "sys": 1.5}, {"host": null, "sys": 2.5}])
    );
    assert_eq!(
        json("SELECT host FROM cpu WHERE sys > 10"),
        serde_json::json!([])
    );
}

#[test]
fn tables_are_for_people() {
    let table = filled()
        .run([
            "sql",
            "db",
            "SELECT host, sys FROM cpu ORDER BY ts",
            "--format",
            "table",
        ])
        .ok();
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[1].contains("host") && lines[1].contains("sys"),
        "{table}"
    );
    assert!(
        lines[3].contains("a;b") && lines[4].contains("NULL"),
        "{table}"
    );
}

#[test]
fn arrow_streams_read_back() {
    let place = filled();
    let out = place.folder.path().join("out.arrows");
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args([
            "sql".as_ref(),
            place.db.as_os_str(),
            "SELECT * FROM cpu".as_ref(),
            "--format=arrow".as_ref(),
        ])
        .stdout(std::fs::File::create(&out).unwrap())
        .status();
    assert!(status.unwrap().success());
    let reader =
        arrow_ipc::reader::StreamReader::try_new(std::fs::File::open(out).unwrap(), None).unwrap();
    assert_eq!(
        reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>(),
        2
    );
}

#[test]
fn what_fails_ends_with_1() {
    let place = filled();
    for (statement, named) in [
        ("SELEKT 1", "SELEKT"),
        ("SELECT nothing FROM cpu", "nothing"),
        ("SELECT * FROM gpu", "gpu"),
        ("INSERT INTO cpu VALUES ('yesterday', 'a', 1)", "yesterday"),
        ("CREATE TABLE CPU (a INT)", "cpu"),
    ] {
        let message = place.run(["sql", "db", statement]).fails(1);
        assert!(message.contains(named), "{statement}: {message}");
    }
    assert_eq!(place.sql("SELECT count(*) AS n FROM cpu"), "n\n2\n");
}

#[test]
fn reading_makes_no_database_and_needs_no_lock() {
    let place = Place::new();
    assert!(
        place
            .run(["sql", "db", "SELECT 1"])
            .fails(1)
            .contains("a.thal")
    );
    assert!(!place.db.exists());
    let place = filled();
    let db = thalweg::Database::open(&place.db).unwrap();
    assert_eq!(place.sql("SELECT count(*) AS n FROM cpu"), "n\n2\n");
    assert!(
        place
            .run(["sql", "db", "DROP TABLE cpu"])
            .fails(1)
            .contains("another process")
    );
    drop(db);
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let place = filled();
    let program = env!("CARGO_BIN_EXE_thalweg");
    // Far more than a pipe holds.
    let more: Vec<String> = (0..300).map(|row| format!("({row}, 'host', 1)")).collect();
    place.sql("CREATE TABLE n (n BIGINT, host VARCHAR, sys DOUBLE)");
    place.sql(&format!("INSERT INTO n VALUES {}", more.join(", ")));
    let query = "SELECT a.n, a.host, b.n AS m FROM n a CROSS JOIN n b";
    let line = format!(
        "{program} sql {} \"{query}\" | head -n 1 >/dev/null; exit ${{PIPESTATUS[0]}}",
        place.db.display()
    );
    let ended = std::process::Command::new("bash")
        .arg("-c")
        .arg(line)
        .output()
        .unwrap();
    assert!(
        ended.status.success() && ended.stderr.is_empty(),
        "{ended:?}"
    );
}

#[test]
fn values_without_a_text_are_an_error_in_every_format() {
    let place = filled();
    for of_type in ["Timestamp(Second, None)", "Duration(Second)"] {
        let statement = format!("SELECT arrow_cast(9223372036854775807, '{of_type}') AS far");
        for format in ["csv", "json", "table"] {
            let ended = place.run(["sql", "db", &statement, "--format", format]);
            let message = ended.fails(1);
            assert!(
                message.contains("\"far\" has no text"),
                "{format}: {message}"
            );
        }
    }
}

#[test]
fn plans_are_printed_whole() {
    let place = Place::new();
    place.sql("CREATE TABLE t (ts BIGINT, v DOUBLE) WITH (time = 'ts')");
    let statement = "EXPLAIN ANALYZE SELECT avg(v) FROM t WHERE ts > 5";
    let plan = place
        .run(["sql", "db", statement, "--format", "table"])
        .ok();
    assert!(
        plan.contains("blocks_total=") && !plan.contains('│'),
        "{plan}"
    );
}

#[test]
fn csv_tells_empty_texts_from_nulls() {
    let place = Place::new();
    place.sql("CREATE TABLE t (v BIGINT)");
    assert_eq!(
        place.sql("SELECT * FROM (VALUES ('', 1), (NULL, 2), ('a,b', NULL)) t (s, n) ORDER BY n"),
        "s,n\n\"\",1\n,2\n\"a,b\",\n"
    );
    assert_eq!(
        place.sql("SELECT NULL AS a, '' AS b, 1 AS c"),
        "a,b,c\n,\"\",1\n"
    );
}

#[test]
fn a_statement_that_fails_prints_no_header() {
    let place = Place::new();
    place.sql("CREATE TABLE t (v BIGINT); INSERT INTO t VALUES (0)");
    let ended = place.run(["sql", "db", "SELECT 1 / v AS x FROM t"]);
    assert_eq!((ended.status, ended.out.as_str()), (1, ""), "{ended:?}");
    assert_eq!(place.sql("SELECT v FROM t WHERE v > 0"), "v\n");
}

#[test]
fn statements_come_from_files_and_pipes() {
    let place = filled();
    let script = place.file("a.sql", "-- two\nSELECT 1 AS a;\nSELECT 2 AS b;\n");
    let both = "a\n1\nb\n2\n";
    let file = script.to_str().unwrap();
    assert_eq!(place.run(["sql", "db", "--file", file]).ok(), both);
    assert_eq!(place.run(["sql", "db", "-f", file]).ok(), both);
    let text = "SELECT count(*) AS n FROM cpu";
    assert_eq!(place.run_with(["sql", "db"], text).ok(), "n\n2\n");
    assert_eq!(
        place.run_with(["sql", "db", "-f", "-"], text).ok(),
        "n\n2\n"
    );
    assert!(place.run(["sql", "db"]).fails(2).contains("no statement"));
    let message = place.run(["sql", "db", "-f", "missing.sql"]).fails(1);
    assert!(message.contains("missing.sql"), "{message}");
}

#[test]
fn a_statement_may_begin_with_a_comment() {
    let place = filled();
    for statement in [
        "-- one\nSELECT 1 AS n",
        "--one\nSELECT 1 AS n",
        "/* one */ SELECT 1 AS n",
    ] {
        assert_eq!(place.sql(statement), "n\n1\n", "{statement}");
    }
    let json = place.run(["sql", "db", "--format", "json", "-- one\nSELECT 1 AS n"]);
    assert_eq!(json.ok(), "[{\"n\":1}]\n");
    assert_eq!(place.run(["sql", "db", "--frobnicate"]).status, 2);
}

#[test]
fn a_quoted_path_may_begin_with_the_home_folder() {
    let place = Place::new();
    let home = place.folder.path();
    let run = |path: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_thalweg"));
        let command = command.args(["sql", path, "CREATE TABLE t (a BIGINT)"]);
        command
            .env("HOME", home)
            .current_dir(home)
            .output()
            .unwrap()
    };
    assert!(run("~/y.thal").status.success());
    assert!(home.join("y.thal").exists() && !home.join("~").exists());
    let refused = run("~nobody/y.thal");
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && message.contains("./~nobody"),
        "{message}"
    );
}

#[test]
fn a_wrong_command_is_told_in_sentences() {
    let place = Place::new();
    let message = place.run(["query", "db", "SELECT 1"]).fails(2);
    assert!(
        message.contains("there is no command \"query\"; --help lists the commands"),
        "{message}"
    );
    let message = place.run(["imoprt", "db", "x.csv"]).fails(2);
    assert!(
        message.contains("; did you mean \"import\"? --help lists"),
        "{message}"
    );
}

#[test]
fn a_statement_behind_a_database_is_told_its_command() {
    let place = Place::new();
    place.run(["sql", "db", "CREATE TABLE t (a BIGINT)"]).ok();
    let message = place.run(["db", "SELECT 1"]).fails(2);
    assert!(message.contains("; thalweg sql "), "{message}");
}

#[test]
fn commands_of_the_shell_are_told_from_sql() {
    for command in [".tables", "\\dt"] {
        let message = filled().run(["sql", "db", command]).fails(2);
        assert!(
            message.contains("is a command of the shell") && message.contains("SHOW TABLES"),
            "{message}"
        );
    }
}
