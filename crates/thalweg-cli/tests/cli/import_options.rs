//! Options of imports, hints at options, and files that the program has written itself.

use crate::Place;

/// Imports a file with this name and text into a new table `t`.
fn import(place: &Place, name: &str, text: &str, more: &[&str]) -> crate::Ended {
    let file = place.file(name, text);
    let call = [
        "import",
        "db",
        file.to_str().unwrap(),
        "--table",
        "t",
        "--create",
    ];
    place.run(call.iter().chain(more))
}

#[test]
fn the_programs_own_json_comes_back() {
    let place = Place::new();
    place.sql(
        "CREATE TABLE s (ts TIMESTAMP, v DOUBLE, k VARCHAR) WITH (time = 'ts'); \
         INSERT INTO s VALUES ('2026-01-01', 1.5, 'a],\"b'), ('2026-01-02', NULL, '')",
    );
    let json = place
        .run(["sql", "db", "SELECT * FROM s", "--format", "json"])
        .ok();
    let ended = import(&place, "s.json", &json, &["--time", "ts"]);
    assert!(ended.err.contains("imported 2 rows"), "{ended:?}");
    assert_eq!(place.sql("SELECT * FROM t"), place.sql("SELECT * FROM s"));
    // As other programs write it.
    let spread =
        "[\n  {\n    \"ts\": \"2026-01-03\",\n    \"v\": 2\n  }\n  ,\n  {\"ts\": \"x\"}\n]\n";
    let message = import(&place, "spread.json", spread, &[]).fails(1);
    assert!(message.contains("line 7: column \"ts\""), "{message}");
    let message = import(&place, "cut.json", "[{\"ts\": \"2026-01-03\"},\n", &[]).fails(1);
    assert!(
        message.contains("line 2: the list is not closed"),
        "{message}"
    );
    assert_eq!(place.sql("SELECT count(*) AS n FROM t"), "n\n2\n");
}

#[test]
fn types_are_given() {
    let place = Place::new();
    let text = "ts,code,v\n1,7,0303\n2,8,12\n";
    let more = [
        "--time",
        "ts",
        "--type",
        "v=bigint",
        "--type",
        "CODE=varchar",
    ];
    let ended = import(&place, "t.csv", text, &more);
    assert!(
        ended.err.contains("  code is varchar\n  v is bigint\n"),
        "{ended:?}"
    );
    assert_eq!(
        place.sql("SELECT code || 'x' AS c, v + 1 AS v FROM t"),
        "c,v\n7x,304\n8x,13\n"
    );
    let more = ["--type", "v=double"];
    let message = import(&place, "t.csv", text, &more).fails(2);
    assert!(
        message.contains("its column \"v\" is bigint, not double"),
        "{message}"
    );
    let place = Place::new();
    let message = import(
        &place,
        "t.csv",
        "ts,v\n1,x\n",
        &["--time", "ts", "--type", "v=double"],
    );
    assert!(message.fails(1).contains("\"x\" is no double"));
    let message = import(&place, "t.csv", text, &["--type", "w=double"]).fails(2);
    assert!(message.contains("no column \"w\""), "{message}");
}

#[test]
fn what_cannot_order_a_table_is_said() {
    let place = Place::new();
    for (text, more, wanted) in [
        (
            "ts,v\n1,77.6\n2,78.1\n",
            &["--time", "v"][..],
            "ordered by times, dates or whole numbers, not by doubles",
        ),
        (
            "ts,v\n1,77\n2,78.1\n",
            &["--time", "v"],
            "ordered by times, dates or whole numbers, not by doubles",
        ),
        (
            "205089000,7\n205089001,8\n",
            &["--time", "t"],
            "--no-header",
        ),
        ("# Station X\nts,v\n1,2\n", &["--time", "ts"], "--skip"),
    ] {
        let message = import(&place, "t.csv", text, more).fails(1);
        assert!(message.contains(wanted), "{text:?}: {message}");
    }
    let more = ["--time", "ts", "--time-format", "%H:%M:%S"];
    let ended = import(&place, "t.csv", "ts,v\n14:00:00,1\n", &more);
    assert!(
        ended.status == 2 && ended.err.contains("has no date"),
        "{ended:?}"
    );
}

#[test]
fn each_file_is_told_of() {
    let place = Place::new();
    let (one, other) = (
        place.file("one.csv", "ts,v\n1,2\n"),
        place.file("other.tsv", "ts\tv\n2\t3\n"),
    );
    let files = [one.to_str().unwrap(), other.to_str().unwrap()];
    let ended = place.run([
        "import", "db", files[0], files[1], "--table", "t", "--create",
    ]);
    for (file, separated) in files.iter().zip(["commas", "tabs"]) {
        let line = format!("{file}: 2 columns, separated by {separated}\n");
        assert!(ended.err.contains(&line), "{ended:?}");
    }
}

#[test]
fn options_of_a_table_that_is_there_are_compared() {
    let place = Place::new();
    let text = "ts,v\n2026-01-01,1\n";
    import(&place, "t.csv", text, &["--time", "ts", "--split", "1 day"]).ok();
    import(
        &place,
        "t.csv",
        text,
        &["--split", "1 Days", "--layout", "STREAM"],
    )
    .ok();
    for (more, wanted) in [
        (["--split", "2 days"], "its split is 1 day, not 2 days"),
        (["--layout", "points"], "its layout is stream, not points"),
    ] {
        let message = import(&place, "t.csv", text, &more).fails(2);
        assert!(message.contains(wanted), "{message}");
    }
    assert_eq!(place.sql("SELECT count(*) AS n FROM t"), "n\n2\n");
}
