//! Options of imports, hints at options, and files that the program has written itself.

use crate::Place;

/// Imports a file with this name and text into a new table `t`.
pub(super) fn import(place: &Place, name: &str, text: &str, more: &[&str]) -> crate::Ended {
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

/// Imports a file with this text into a table that is there.
fn append(place: &Place, table: &str, text: &str, more: &[&str]) -> crate::Ended {
    let file = place.file("more.csv", text);
    let call = ["import", "db", file.to_str().unwrap(), "--table", table];
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
        ("Station X\nts,v\n1,2\n", &["--time", "ts"], "--skip"),
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

#[test]
fn a_new_table_may_have_a_unique_key_and_a_retention() {
    let place = Place::new();
    let text = "ts,id,v\n2126-01-01,1,1\n2126-01-01,1,2\n2126-01-02,1,3\n";
    let keyed = ["--time", "ts", "--unique", "id,ts"];
    let message = import(&place, "t.csv", text, &keyed).fails(1);
    assert!(message.contains("unique key"), "{message}");
    let kept = [&keyed[..], &["--on-duplicate", "last"]].concat();
    import(
        &place,
        "t.csv",
        text,
        &[&kept[..], &["--retention", "90 days"]].concat(),
    )
    .ok();
    assert_eq!(place.sql("SELECT v FROM t ORDER BY ts"), "v\n2\n3\n");
    import(&place, "t.csv", text, &kept).ok();
    assert_eq!(place.sql("SELECT count(*) AS n FROM t"), "n\n2\n");
    for (more, wanted) in [
        (["--unique", "id"], "its unique is id, ts, not id"),
        (
            ["--on-duplicate", "first"],
            "its on_duplicate is last, not first",
        ),
        (
            ["--retention", "9 days"],
            "its retention is 90 days, not 9 days",
        ),
    ] {
        let message = import(&place, "t.csv", text, &more).fails(2);
        assert!(message.contains(wanted), "{message}");
    }
}

/// Imports a file and returns the lines that are printed about it.
#[track_caller]
pub(super) fn told(text: &str, more: &[&str]) -> String {
    let place = Place::new();
    let ended = import(&place, "t.csv", text, more);
    let told = ended.err.clone();
    ended.ok();
    told
}

#[test]
fn numbers_that_look_like_times_are_told() {
    for (text, more, wanted) in [
        (
            "t_unix,v\n1704067200,1\n1704067201,2\n",
            &[][..],
            "  t_unix stays a number; --time t_unix --time-unit s reads 1704067200 as 2024-01-01T00:00:00\n",
        ),
        (
            "a b,v\n1704067200000,1\n",
            &[],
            "--time 'a b' --time-unit ms reads 1704067200000 as 2024-01-01T00:00:00\n",
        ),
        (
            "v,t\n1,1704067200000000\n",
            &[],
            "--time t --time-unit us reads",
        ),
        (
            "v,t\n1,1704067200000000000\n",
            &[],
            "--time t --time-unit ns reads",
        ),
        (
            "t,v\n1704067200.25,1\n1704067201.5,2\n",
            &[],
            "--time t --time-unit s reads 1704067200.25 as 2024-01-01T00:00:00.250\n",
        ),
        (
            "day,v\n20240101,1\n20240102,2\n",
            &[],
            "  day stays a number; --time day --time-format %Y%m%d reads 20240101 as 2024-01-01\n",
        ),
        (
            "day,v\n20240101,1\n",
            &["--time", "day"],
            "  day stays a number; --time-format %Y%m%d reads 20240101 as 2024-01-01\n",
        ),
        (
            "t,v\n20240101063000,1\n",
            &["--time", "t"],
            "--time-format %Y%m%d%H%M%S reads 20240101063000 as 2024-01-01T06:30:00\n",
        ),
    ] {
        let told = told(text, more);
        assert!(told.contains(wanted), "{text:?}: {told}");
    }
    for (text, more) in [
        ("id,v\n1704067200,1\n17,2\n", &[][..]),
        ("id,v\n20240101,1\n20241301,2\n", &[]),
        ("ts,v\n2024-01-01,1704067200\n", &["--time", "ts"]),
        ("t,v\n1704067200,1\n", &["--type", "t=bigint"]),
    ] {
        let told = told(text, more);
        assert!(!told.contains("stays a number"), "{text:?}: {told}");
    }
    // As the line says.
    let place = Place::new();
    let more = ["--time", "day", "--time-format", "%Y%m%d"];
    import(&place, "t.csv", "day,v\n20240101,1\n", &more).ok();
    assert_eq!(place.sql("SELECT day FROM t"), "day\n2024-01-01\n");
}

#[test]
fn json_is_known_by_its_text() {
    for text in ["[{\"a\": 1}, {\"a\": 2}]", " {\"a\": 1}\n{\"a\": 2}\n"] {
        let place = Place::new();
        let call = ["import", "db", "-", "--table", "t", "--create"];
        place.run_with(call, text).ok();
        assert_eq!(place.sql("SELECT sum(a) AS s FROM t"), "s\n3\n");
    }
    // As what it is told to be.
    let place = Place::new();
    let more = ["--format", "csv", "--no-header"];
    import(&place, "t.csv", "{\"a\": 1}\n", &more).ok();
    assert_eq!(place.sql("SELECT count(column0) AS n FROM t"), "n\n1\n");
}

#[test]
fn keys_of_json_may_come_late() {
    use std::fmt::Write;
    let mut text = String::new();
    for row in 0..12_000 {
        let late = if row < 11_000 { "" } else { ", \"late\": 0.5" };
        writeln!(
            text,
            "{{\"ts\": \"2024-01-01T00:00:00\", \"v\": {row}{late}}}"
        )
        .unwrap();
    }
    let place = Place::new();
    let sum = "SELECT count(*) AS n, sum(v) AS v, sum(late) AS late FROM t";
    let ended = import(&place, "t.json", &text, &["--time", "ts"]);
    let found = ["column \"late\" comes up behind", "late is double"];
    assert!(
        found.iter().all(|part| ended.err.contains(part)),
        "{ended:?}"
    );
    ended.ok();
    assert_eq!(place.sql(sum), "n,v,late\n12000,71994000,500.0\n");
    // Into a table that has the column.
    import(&place, "t.json", &text, &[]).ok();
    assert_eq!(place.sql(sum), "n,v,late\n24000,143988000,1000.0\n");
    // Into one that has not, nothing at all, or the other rows.
    place.sql("CREATE TABLE o (ts TIMESTAMP, v BIGINT) WITH (time = 'ts')");
    let file = place.file("t.json", &text);
    let into = ["import", "db", file.to_str().unwrap(), "--table", "o"];
    let message = place.run(into).fails(1);
    assert!(message.contains("\"late\" is no column"), "{message}");
    assert_eq!(place.sql("SELECT count(*) AS n FROM o"), "n\n0\n");
    let rejects = place.folder.path().join("bad.csv");
    let rejects = ["--rejects", rejects.to_str().unwrap()];
    let ended = place.run(into.into_iter().chain(rejects));
    assert!(ended.err.contains("rejected 1,000 rows"), "{ended:?}");
    ended.ok();
    assert_eq!(place.sql("SELECT count(*) AS n FROM o"), "n\n11000\n");
    // Its type may be told.
    let place = Place::new();
    import(&place, "t.json", &text, &["--type", "late=varchar"]).ok();
    assert_eq!(place.sql("SELECT max(late) AS m FROM t"), "m\n0.5\n");
    let message = import(&place, "t.json", &text, &["--type", "later=varchar"]).fails(2);
    assert!(
        message.contains("there is no column \"later\""),
        "{message}"
    );
}

#[test]
fn json_may_begin_with_a_byte_order_mark_and_has_no_nan() {
    let place = Place::new();
    import(&place, "t.json", "\u{feff}{\"a\": 1}\n", &[]).ok();
    let message = import(&place, "t.json", "{\"a\": 1}\n{\"a\": NaN}\n", &[]).fails(1);
    assert!(message.contains("JSON has no NaN"), "{message}");
}

#[test]
fn texts_and_numbers_of_json_mean_null() {
    let text = "[{\"a\": -999, \"b\": \"NA\"},\n {\"a\": 2, \"b\": 1.5}]";
    let place = Place::new();
    import(&place, "t.json", text, &["--null", "-999", "--null", "NA"]).ok();
    assert_eq!(place.sql("SELECT * FROM t"), "a,b\n,\n2,1.5\n");
}

#[test]
fn a_column_that_begins_with_many_nulls_has_the_type_of_its_values() {
    let mut text = "a,b\n".to_owned();
    for row in 0..150_000 {
        let b = if row < 145_000 { "" } else { "0.5" };
        text.push_str(&format!("{row},{b}\n"));
    }
    let place = Place::new();
    let ended = import(&place, "t.csv", &text, &[]);
    assert!(ended.err.contains("b is double"), "{ended:?}");
    ended.ok();
    assert_eq!(place.sql("SELECT sum(b) AS s FROM t"), "s\n2500.0\n");
}

#[test]
fn nested_json_becomes_text_on_demand() {
    let place = Place::new();
    let text = "{\"a\": 1, \"n\": {\"x\": [1, 2]}}\n{\"a\": 2, \"n\": null}\n";
    let message = import(&place, "t.json", text, &[]).fails(1);
    assert!(message.contains("--type n=varchar"), "{message}");
    import(&place, "t.json", text, &["--type", "N=varchar"]).ok();
    assert_eq!(
        place.sql("SELECT * FROM t"),
        "a,n\n1,\"{\"\"x\"\": [1, 2]}\"\n2,\n"
    );
}

#[test]
fn a_date_and_a_clock_are_one_time() {
    let text = "Date;Time;v\n16/12/2006;17:24:00;4.2\n16/12/2006;9:05:00;5\n";
    let place = Place::new();
    let more = ["--time", "date,Time"];
    let ended = import(&place, "t.csv", text, &more);
    assert!(
        ended.err.contains("date_Time is timestamp, day first"),
        "{ended:?}"
    );
    ended.ok();
    assert_eq!(
        place.sql("SELECT * FROM t"),
        "date_Time,v\n2006-12-16T09:05:00,5.0\n2006-12-16T17:24:00,4.2\n"
    );
    // Into a table that is there.
    import(&place, "t.csv", text, &more).ok();
    assert_eq!(place.sql("SELECT count(*) AS n FROM t"), "n\n4\n");
    let place = Place::new();
    let message = import(&place, "t.csv", text, &["--time", "Date,Clock"]).fails(1);
    assert!(
        message.contains("no column \"Date,Clock\"") && message.contains("Date, Time, v"),
        "{message}"
    );
    let ended = import(&place, "t.csv", text, &["--type", "Time=time"]);
    assert!(
        ended.status == 2 && ended.err.contains("--time Date,Time"),
        "{ended:?}"
    );
}

#[test]
fn a_column_with_a_comma_in_its_name_may_order_the_table() {
    let place = Place::new();
    let text = "v,\"Time, UTC\"\n1,2024-01-02\n2,2024-01-01\n";
    for rows in [2, 4] {
        import(&place, "t.csv", text, &["--time", "Time, UTC"]).ok();
        let counted = place.sql("SELECT count(*) AS n FROM t");
        assert_eq!(counted, format!("n\n{rows}\n"));
    }
    let first = place.sql("SELECT v FROM t LIMIT 1");
    assert_eq!(first, "v\n2\n");
}

#[test]
fn comments_spaces_and_quotes() {
    for (text, more, rows, wanted) in [
        (
            "# station 7\n# made by x\nts,v\n2024-01-01,1\n",
            &[][..],
            "ts,v\n2024-01-01,1\n",
            "separated by commas, after 2 lines of comment\n",
        ),
        (
            "# station 7\n# ts,v\n2024-01-01,1\n",
            &[],
            "ts,v\n2024-01-01,1\n",
            "after a line of comment\n",
        ),
        (
            "ts v\n2024-01-01T00:00:00 1\n2024-01-02T00:00:00   2\n",
            &["--time", "ts"],
            "ts,v\n2024-01-01T00:00:00,1\n2024-01-02T00:00:00,2\n",
            "2 columns, separated by spaces\n",
        ),
        (
            "  a    b\n  x    'y  z' \n",
            &["--delimiter", "space", "--quote", "'"],
            "a,b\nx,y  z\n",
            "separated by spaces",
        ),
        (
            "a,b\n'x,y',\"\n",
            &["--quote", "'"],
            "a,b\n\"x,y\",\"\"\"\"\n",
            "",
        ),
    ] {
        let place = Place::new();
        let ended = import(&place, "t.csv", text, more);
        assert!(ended.err.contains(wanted), "{text:?}: {ended:?}");
        ended.ok();
        assert_eq!(place.sql("SELECT * FROM t"), rows, "{text:?}");
    }
    // Lines are those of the file.
    let place = Place::new();
    place.sql("CREATE TABLE t (a BIGINT)");
    let message = import(&place, "t.csv", "# x\na\n1\nb\n", &[]).fails(1);
    assert!(message.contains("line 4"), "{message}");
}

#[test]
fn times_that_are_none_name_a_way() {
    let place = Place::new();
    let cet = "ts,v\n2024-01-01 00:00:00 CET,1\n2024-01-01 00:10:00 CET,2\n";
    let message = import(&place, "t.csv", cet, &["--time", "ts"]).fails(1);
    assert!(
        message.contains("--time-format, as '%Y-%m-%d %H:%M:%S CET'"),
        "{message}"
    );
    let more = ["--time", "ts", "--time-format", "%Y-%m-%d %H:%M:%S CET"];
    import(&place, "t.csv", cet, &more).ok();
    assert_eq!(
        place.sql("SELECT max(ts) AS m FROM t"),
        "m\n2024-01-01T00:10:00\n"
    );
    for (text, wanted) in [
        ("20240101T000000Z", "2024-01-01T00:00:00Z"),
        ("Mon Jan 01 00:00:00 2024", "2024-01-01T00:00:00"),
        ("2024-01-01 00:00:00 GMT", "2024-01-01T00:00:00Z"),
    ] {
        let place = Place::new();
        import(
            &place,
            "t.csv",
            &format!("ts,v\n{text},1\n"),
            &["--time", "ts"],
        )
        .ok();
        assert_eq!(place.sql("SELECT ts FROM t"), format!("ts\n{wanted}\n"));
    }
    let place = Place::new();
    let more = ["--time", "m", "--time-format", "%Y-%m"];
    import(&place, "t.csv", "m,v\n2024-02,1\n", &more).ok();
    assert_eq!(place.sql("SELECT m FROM t"), "m\n2024-02-01\n");
    let more = ["--time-format", "%d.%m."];
    let ended = import(&place, "t.csv", "m,v\n01.02.,1\n", &more);
    assert!(
        ended.status == 2 && ended.err.contains("has no year"),
        "{ended:?}"
    );
}

#[test]
fn numbers_with_signs_name_a_way() {
    let text = "a,b,c\n\"1,049\",$1.50,\"1.049,5\"\n";
    let told = told(text, &[]);
    for way in [
        "a is varchar because of '1,049' (line 2): --thousands , makes",
        "CAST(replace(x, '$', '') AS DOUBLE)",
        "--thousands . --decimal , makes",
    ] {
        assert!(told.contains(way), "{told}");
    }
}

#[test]
fn columns_without_values_and_decimal_commas_name_an_option() {
    let told = told("a,b,c\n\"1,5\",,2\n\"-2,25\",,\n", &[]);
    assert!(
        told.contains("because of '1,5' (line 2): --decimal , makes numbers"),
        "{told}"
    );
    assert!(
        told.contains("b is varchar as it has no values: --type b=double"),
        "{told}"
    );
}

#[test]
fn a_clock_alone_and_a_text_order_no_rows() {
    let place = Place::new();
    let text = "clock,v,name\n14:00:00,1.5,a\n14:01:00,2.5,b\n";
    let message = import(&place, "c.csv", text, &["--time", "clock"]).fails(1);
    assert!(message.contains("--time DATE,CLOCK joins it"), "{message}");
    for more in [&[][..], &["--dry-run"]] {
        let told = [&["--time", "name", "--type", "name=varchar"], more].concat();
        let ended = import(&place, "c.csv", text, &told);
        assert_eq!(ended.status, 2, "{ended:?}");
        assert!(
            ended
                .err
                .contains("it must be an integer, a date or a timestamp"),
            "{ended:?}"
        );
        assert!(!ended.err.contains("has no values"), "{ended:?}");
    }
}

#[test]
fn columns_that_a_table_lacks_lead_on() {
    let place = Place::new();
    import(
        &place,
        "t.csv",
        "ts,value\n2024-01-01,1\n",
        &["--time", "ts"],
    )
    .ok();
    let more = append(&place, "t", "ts,value,unit\n2024-01-02,2,m\n", &[]);
    assert!(
        more.err.contains(
            "CREATE TABLE other WITH (time = 'ts') AS SELECT *, CAST(NULL AS DOUBLE) AS \"unit\" FROM \"t\""
        ),
        "{more:?}"
    );
    let rows = append(&place, "t", "2024-01-02 10:00,2\n2024-01-03 10:00,4\n", &[]);
    assert!(
        rows.err.contains("--no-header where it is a row"),
        "{rows:?}"
    );
    let near = append(&place, "t", "ts,valu\n2024-01-02,2\n", &[]);
    assert!(!near.err.contains("CREATE TABLE"), "{near:?}");
}

#[test]
fn bytes_are_written_and_read_as_hexadecimal_digits() {
    let place = Place::new();
    place.sql("CREATE TABLE t (n BIGINT, x BLOB); INSERT INTO t VALUES (1, X'00ff'), (2, NULL)");
    let rows = place.sql("SELECT * FROM t ORDER BY n");
    assert_eq!(rows, "n,x\n1,00ff\n2,\n");
    place.sql("CREATE TABLE u (n BIGINT, x BLOB)");
    append(&place, "u", &rows, &[]).ok();
    assert_eq!(place.sql("SELECT * FROM u ORDER BY n"), rows);
    let ended = append(&place, "u", "n,x\n4,abc\n", &[]);
    assert!(
        ended.err.contains("column \"x\": \"abc\" is no blob"),
        "{ended:?}"
    );
}

#[test]
fn a_word_in_the_place_of_a_number_is_met_with_the_option_for_it() {
    let place = Place::new();
    place.sql("CREATE TABLE t (n BIGINT, v DOUBLE)");
    let text = "n,v\n1,?\n";
    let ended = append(&place, "t", text, &[]);
    assert!(
        ended
            .err
            .contains("\"?\" is no double; --null '?' makes NULL of it"),
        "{ended:?}"
    );
    append(&place, "t", text, &["--null", "?"]).ok();
    let long = append(&place, "t", "n,v\n1,12x\n", &[]);
    assert!(!long.err.contains("--null"), "{long:?}");
}

#[test]
fn a_second_file_with_date_and_clock_is_met_with_the_option_that_joins_them() {
    let place = Place::new();
    let text = "Date,Time,v\n2026-01-31,10:00,1\n";
    import(&place, "t.csv", text, &["--time", "Date,Time"]).ok();
    let ended = append(&place, "t", text, &[]);
    assert!(
        ended
            .err
            .contains("column \"Date_Time\" is joined of two columns: --time Date,Time"),
        "{ended:?}"
    );
    append(&place, "t", text, &["--time", "Date,Time"]).ok();
    assert_eq!(place.sql("SELECT count(*) AS n FROM t"), "n\n2\n");
}

#[test]
fn line_protocol_is_refused_by_name() {
    let place = Place::new();
    let text = "home,room=Living\\ Room temp=21.1,co=0i 1721548800\nhome,room=Kitchen temp=21.0,co=0i 1721548800\n";
    let message = import(&place, "home.lp", text, &[]).fails(1);
    assert!(
        message.contains("line protocol, whose import is not offered by this version"),
        "{message}"
    );
    import(&place, "home.lp", text, &["--format", "csv"]).ok();
}

#[test]
fn what_comes_behind_the_first_rows_is_read_as_it_would_be_among_them() {
    let behind = |first: &str, late: &str| {
        let place = Place::new();
        let text = format!("v\n{}{late}\n", format!("{first}\n").repeat(110_000));
        let ended = import(&place, "t.csv", &text, &[]);
        let kind = |place: &Place| place.sql("SELECT typeof(min(v)) AS t, count(*) AS n FROM t");
        if ended.status == 0 {
            kind(&place)
        } else {
            ended.err
        }
    };
    let undecided = "nothing says whether day or month is first in \"03/04/2020\" (line 110002)";
    let message = behind("2020-01-02", "03/04/2020");
    assert!(message.contains(undecided), "{message}");
    for (first, late) in [("TRUE", "1"), ("true", "yes"), ("1.5", "00.5")] {
        assert_eq!(
            behind(first, late),
            "t,n\nVARCHAR,110001\n",
            "{late} behind {first}"
        );
    }
    for late in ["0", "007", "-007"] {
        assert_eq!(behind("5", late), "t,n\nBIGINT,110001\n", "{late}");
    }
    assert_eq!(behind("1.5", "-0.5"), "t,n\nDOUBLE,110001\n");
    assert_eq!(behind("true", "False"), "t,n\nBOOLEAN,110001\n");
    assert_eq!(behind("2020-01-02", "13/04/2020"), "t,n\nDATE,110001\n");
}

#[test]
fn values_of_json_are_taken_as_they_are_written() {
    let imported = |text: &str, more: &[&str], select: &str| {
        let place = Place::new();
        import(&place, "t.jsonl", text, more).ok();
        place.sql(&format!("SELECT {select} FROM t"))
    };
    let digits = "{\"v\":-0.24153895246040058}\n";
    assert_eq!(imported(digits, &[], "v"), "v\n-0.24153895246040058\n");
    let forms = "{\"v\":0.10}\n{\"v\":1e2}\n{\"v\":{\"b\":0.10,\"a\":[1, 2]}}\n";
    assert_eq!(
        imported(forms, &["--type", "v=varchar"], "v"),
        "v\n0.10\n1e2\n\"{\"\"b\"\":0.10,\"\"a\"\":[1, 2]}\"\n"
    );
    let long = "{\"v\":123456789012345678901234567890}\n";
    assert_eq!(
        imported(long, &[], "v"),
        "v\n123456789012345678901234567890\n"
    );
    let seconds = "{\"t\":1577934245.123456789}\n";
    assert_eq!(
        imported(seconds, &["--time", "t", "--time-unit", "s"], "t"),
        "t\n2020-01-02T03:04:05.123456789\n"
    );
    let escaped = "{\"v\":\"a\\\"\\u00e4\",\"ok\":true,\"n\":null}\n";
    assert_eq!(
        imported(escaped, &[], "v, ok, n"),
        "v,ok,n\n\"a\"\"ä\",true,\n"
    );
}

#[test]
fn a_type_is_given_once() {
    let place = Place::new();
    let text = "id,d\n1,PT1S\n";
    let twice = ["--type", "d=double", "--type", "D=varchar"];
    let message = import(&place, "d.csv", text, &twice).fails(2);
    assert!(message.contains("column \"D\" is given twice"), "{message}");
}

#[test]
fn lengths_of_time_are_written_and_read() {
    let place = Place::new();
    place.sql(
        "CREATE TABLE t (n BIGINT, d DURATION); \
         INSERT INTO t VALUES (1, INTERVAL '90 minutes'), (2, NULL)",
    );
    let rows = place.sql("SELECT * FROM t ORDER BY n");
    assert_eq!(rows, "n,d\n1,PT5400S\n2,\n");
    place.sql("CREATE TABLE u (n BIGINT, d DURATION)");
    append(&place, "u", &rows, &[]).ok();
    assert_eq!(place.sql("SELECT * FROM u ORDER BY n"), rows);
    append(&place, "u", "n,d\n3,0:00:01.5\n", &[]).ok();
    assert_eq!(place.sql("SELECT d FROM u WHERE n = 3"), "d\nPT1.5S\n");
    let message = append(&place, "u", "n,d\n4,soon\n", &[]).fails(1);
    assert!(
        message.contains("column \"d\": \"soon\" is no duration"),
        "{message}"
    );
}

#[test]
fn a_row_of_units_is_named() {
    let place = Place::new();
    let text = "ts,temp\nTS,Deg C\n2024-01-01 00:10,1.5\n2024-01-01 00:20,2\n";
    let ended = import(&place, "u.csv", text, &["--dry-run"]);
    assert!(
        ended.err.contains(
            "temp is varchar because of 'Deg C' (line 2), the only value that is no double"
        ),
        "{ended:?}"
    );
    let rejects = place.folder.path().join("units.csv");
    let more = [
        "--time",
        "ts",
        "--type",
        "temp=double",
        "--rejects",
        rejects.to_str().unwrap(),
    ];
    import(&place, "u.csv", text, &more).ok();
    assert_eq!(place.sql("SELECT sum(temp) AS s FROM t"), "s\n3.5\n");
    assert_eq!(std::fs::read_to_string(rejects).unwrap().lines().count(), 2);
}

#[test]
fn rows_that_end_early_or_with_a_separator() {
    let place = Place::new();
    let text = "ts,temp,n\n2024-01-01,1.5,3,\n2024-01-02,2,4,\n";
    import(&place, "t.csv", text, &["--time", "ts"]).ok();
    assert_eq!(
        place.sql("SELECT sum(temp) AS s, sum(n) AS n FROM t"),
        "s,n\n3.5,7\n"
    );
    let message = append(&place, "t", "ts,temp,n\n2024-01-03,1,2,9\n", &[]).fails(1);
    assert!(message.contains("4 fields instead of 3"), "{message}");
    let short = "ts,temp,n\n2024-01-03,1\n2024-01-04\n";
    let message = append(&place, "t", short, &[]).fails(1);
    assert!(
        message.contains("2 fields instead of 3; --null-padding makes NULL of those that lack"),
        "{message}"
    );
    append(&place, "t", short, &["--null-padding"]).ok();
    assert_eq!(
        place.sql("SELECT count(*) AS r, count(temp) AS t, count(n) AS n FROM t"),
        "r,t,n\n4,3,2\n"
    );
}

#[test]
fn rows_without_a_time_say_nothing_of_types() {
    let place = Place::new();
    let text = "ts,temp\n2024-01-01,1.5\nts,temp\n2024-01-02,2\n,garbage\n";
    let rejects = place.folder.path().join("bad.csv");
    let more = ["--time", "ts", "--rejects", rejects.to_str().unwrap()];
    let ended = import(&place, "t.csv", text, &more);
    assert!(ended.err.contains("temp is double"), "{ended:?}");
    assert_eq!(place.sql("SELECT sum(temp) AS s FROM t"), "s\n3.5\n");
    let told = |text: &str| import(&Place::new(), "t.csv", text, &[]).err;
    let rows: String = (0..20).map(|n| format!("{n}\n")).collect();
    let told = told(&format!("n\n{rows}broken\n"));
    assert!(
        told.contains("because of 'broken' (line 22), the only one of 21 values that is no bigint"),
        "{told}"
    );
}

#[test]
fn points_beside_decimal_commas_are_no_decimals() {
    let text = "v;w\n1,500;1.500\n2,25;2.750\n";
    let ended = import(&Place::new(), "t.csv", text, &[]);
    for told in [
        "v is double with a decimal comma",
        "w is varchar because of '1.500' (line 2), where another column has decimal commas",
    ] {
        assert!(ended.err.contains(told), "{ended:?}");
    }
    let ended = import(&Place::new(), "t.csv", text, &["--decimal", "."]);
    assert!(ended.err.contains("w is double"), "{ended:?}");
}

#[test]
fn an_offset_behind_the_first_rows_begins_the_import_again() {
    let place = Place::new();
    let mut text = "ts,v\n".to_owned();
    for n in 0..120_000 {
        text.push_str(&format!("2024-01-01 10:00:{:02},{n}\n", n % 60));
    }
    text.push_str("2024-01-01 10:00+02:00,1\n");
    let ended = import(&place, "t.csv", &text, &["--time", "ts"]);
    assert!(
        ended.err.contains("ts is timestamp with time zone"),
        "{ended:?}"
    );
    assert_eq!(
        place.sql("SELECT min(ts) AS ts FROM t"),
        "ts\n2024-01-01T08:00:00Z\n"
    );
}

#[test]
fn epochs_with_exponents_and_other_encodings_of_json() {
    let place = Place::new();
    let text = "ts,v\n1.709251200000000000e+09,1\n1.7092512005E9,2\n";
    import(&place, "t.csv", text, &["--time", "ts", "--time-unit", "s"]).ok();
    assert_eq!(
        place.sql("SELECT ts FROM t"),
        "ts\n2024-03-01T00:00:00\n2024-03-01T00:00:00.500\n"
    );
    let file = place.folder.path().join("l.jsonl");
    std::fs::write(&file, b"{\"ts\":1,\"v\":\"\xe4\"}\n").unwrap();
    let call = [
        "import",
        "db",
        file.to_str().unwrap(),
        "--table",
        "u",
        "--create",
    ];
    let message = place.run(call).fails(1);
    assert!(message.contains("iconv"), "{message}");
}

#[test]
fn types_that_are_given_are_read_as_those_that_are_found() {
    let told = |text: &str, more: &[&str]| import(&Place::new(), "t.csv", text, more);
    let text = "ts,d\n2024-01-01,01/03/2024\n2024-01-02,01/04/2024\n";
    for more in [
        &["--time", "ts", "--type", "d=date"][..],
        &["--type", "d=timestamp"],
    ] {
        let message = told(text, more).fails(1);
        assert!(
            message.contains("nothing says whether day or month is first"),
            "{message}"
        );
    }
    let place = Place::new();
    let text = "d,v\n01/03/2024,1\n01/14/2024,2\n";
    import(&place, "t.csv", text, &["--time", "d", "--type", "d=date"]).ok();
    assert_eq!(place.sql("SELECT min(d) AS d FROM t"), "d\n2024-01-03\n");
    let text = "ts;v\n2024-01-01;1.234\n";
    let comma = ["--type", "v=double", "--decimal", ","];
    let message = told(text, &comma).fails(1);
    assert!(message.contains("\"1.234\" is no double"), "{message}");
    let message = told("i,e\n1,1.005\n", &["--type", "e=decimal(10,2)"]).fails(1);
    assert!(
        message.contains("\"1.005\" is no decimal(10, 2)"),
        "{message}"
    );
    told("i,e\n1,1.500\n", &["--type", "e=decimal(10,2)"]).ok();
    let zone = ["--type", "ts=timestamp(us, Europe/Berlin)"];
    let ended = told("ts,v\n2024-01-01 10:00,1\n", &zone);
    assert!(
        ended.err.contains("has no offset and counts as UTC"),
        "{ended:?}"
    );
}
