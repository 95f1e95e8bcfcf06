//! What a terminal shows, by way of `script`, which makes one.

use crate::Place;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs a command line on a terminal of 60 columns; `typed` is typed after a while. `None` where there is no `script`.
fn on_terminal(place: &Place, arguments: &str, typed: &[&str]) -> Option<String> {
    let line = format!(
        "stty cols 60 rows 24; {} {arguments}",
        env!("CARGO_BIN_EXE_thalweg")
    );
    let mut child = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("DB", &place.db)
        .env("HOME", place.folder.path())
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take().unwrap();
    for text in typed {
        std::thread::sleep(Duration::from_millis(700));
        stdin.write_all(text.as_bytes()).unwrap();
    }
    let ended = child.wait_with_output().unwrap();
    drop(stdin);
    Some(String::from_utf8_lossy(&ended.stdout).replace('\r', ""))
}

#[test]
fn long_and_wide_results_are_cut() {
    let place = Place::new();
    place.sql("CREATE TABLE n (a BIGINT)");
    let statement = "\"SELECT value FROM generate_series(1, 100000)\"";
    let Some(shown) = on_terminal(&place, &format!("sql $DB {statement}"), &[]) else {
        return;
    };
    assert!(
        shown.contains("the first 200 rows, there are more"),
        "{shown}"
    );
    assert!(shown.lines().count() < 220, "{shown}");
    let columns: Vec<String> = (0..20).map(|n| format!("{n} AS column_{n}")).collect();
    let statement = format!(
        "\"SELECT {}, repeat('x', 300) AS long\"",
        columns.join(", ")
    );
    let shown = on_terminal(&place, &format!("sql $DB {statement}"), &[]).unwrap_or_default();
    assert!(shown.contains(" of 21 columns"), "{shown}");
    let table = shown.lines().filter(|line| line.contains('│'));
    assert!(
        table.clone().count() > 0 && table.clone().all(|line| line.chars().count() <= 60),
        "{shown}"
    );
    // A program gets everything.
    let whole = place.run([
        "sql",
        "db",
        "SELECT value FROM generate_series(1, 300)",
        "--format",
        "table",
    ]);
    assert!(whole.ok().contains(" 300 "));
}

#[test]
fn the_shell_shows_a_screenful() {
    let place = Place::new();
    let series = "SELECT value FROM generate_series(1, 12345);\n";
    let typed = [
        series,
        ".rows 5\n",
        series,
        ".rows all\n",
        "SELECT value + 900000 AS v FROM generate_series(1, 300);\n",
        "quit\n",
    ];
    let Some(shown) = on_terminal(&place, "$DB", &typed) else {
        return;
    };
    assert!(shown.contains("... 12,328 more rows (.rows all"), "{shown}");
    assert!(shown.contains("... 12,340 more rows"), "{shown}");
    assert!(shown.contains(" 900300 "), "{shown}");
}

#[test]
fn lines_typed_ahead_are_not_lost() {
    let place = Place::new();
    let typed = ["SELECT 11 AS first;\nSELECT 12 AS second;\nSELECT 13 AS third;\nquit\n"];
    let Some(shown) = on_terminal(&place, "$DB", &typed) else {
        return;
    };
    for answer in ["11 ", "12 ", "13 "] {
        assert!(
            shown.contains(&format!("│ {answer}")) || shown.contains(&format!(" {answer}│")),
            "{shown}"
        );
    }
}

#[test]
fn words_are_completed() {
    let place = Place::new();
    place.sql("CREATE TABLE air (ts TIMESTAMP, temperature DOUBLE)");
    let typed = ["SELECT count(temp\t) AS n FROM air;\n", "exit\n"];
    let Some(shown) = on_terminal(&place, "$DB", &typed) else {
        return;
    };
    assert!(shown.contains("count(temperature"), "{shown}");
    assert!(shown.contains("│ 0 │"), "{shown}");
}

#[test]
fn the_history_has_whole_statements() {
    let place = Place::new();
    let typed = [
        "SELECT 40\n",
        "  + 2\n",
        "AS answer;\n",
        ".timer off\n",
        // One statement up is the whole one, behind the command.
        "\x1b[A\x1b[A\n",
        "exit\n",
    ];
    let Some(shown) = on_terminal(&place, "$DB", &typed) else {
        return;
    };
    assert_eq!(shown.matches(" 42 │").count(), 2, "{shown}");
    // So it is in the next shell, behind the last word of this one.
    let typed = ["\x1b[A\x1b[A\n", "exit\n"];
    let shown = on_terminal(&place, "$DB", &typed).unwrap_or_default();
    assert_eq!(shown.matches(" 42 │").count(), 1, "{shown}");
}
