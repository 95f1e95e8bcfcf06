//! `thalweg import`: files, types, bad rows; all or nothing.

use crate::Place;
use std::io::Write;
use std::path::Path;

const SAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../samples/beijing-air-2016.csv.gz"
);

fn gz(text: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

fn import(place: &Place, file: &Path, more: &[&str]) -> crate::Ended {
    let file = file.to_str().unwrap();
    place.run(["import", "db", file, "--table", "t"].iter().chain(more))
}

#[test]
fn the_shipped_sample() {
    let place = Place::new();
    let ended = place.run([
        "import", "db", SAMPLE, "--table", "air", "--time", "ts", "--create",
    ]);
    assert_eq!((ended.status, ended.out.as_str()), (0, ""), "{ended:?}");
    assert!(
        ended.err.ends_with("imported 105,120 rows into air\n"),
        "{ended:?}"
    );
    for found in [
        "columns, separated by commas\n",
        "  ts is timestamp\n",
        "  pm25 is bigint\n",
        "  station is varchar\n",
    ] {
        assert!(ended.err.contains(found), "{ended:?}");
    }
    let question = "SELECT count(*) AS n, count(pm25) AS c, sum(pm25) AS s, max(pm25) AS m, count(wd) AS w FROM air";
    assert_eq!(
        place.sql(question),
        "n,c,s,m,w\n105120,102753,8023045,835,103973\n"
    );
    assert_eq!(
        place.sql("SELECT station, ts FROM air WHERE pm25 = 835"),
        "station,ts\nNongzhanguan,2017-01-28T02:00:00\n"
    );
    let stats = place.run(["stats", "db"]).ok();
    let row = stats.lines().nth(1).unwrap();
    assert!(stats.starts_with(
        "table,layout,rows,bytes,blocks,fragments,open_rows,late_rows,min_time,max_time\n"
    ));
    assert!(row.starts_with("air,stream,105120,"), "{stats}");
    assert!(
        row.ends_with(",0,2016-03-01T00:00:00,2017-02-28T23:00:00"),
        "{stats}"
    );
}

#[test]
fn types_are_found() {
    let place = Place::new();
    let text = "ts,n,x,flag,name,code,day,zoned,none\n\
                2026-01-01 00:00:00,1,1,true,a,007,2026-01-01,2026-01-01T00:00:00Z,\n\
                2026-01-01 00:00:01,-2,2.5,false,\"b,c\",12,2026-01-02,2026-01-01T02:00:00+02:00,\n";
    import(
        &place,
        &place.file("t.csv", text),
        &["--create", "--time", "ts"],
    )
    .ok();
    let schema = place.run_with(["db"], ".schema t\n").ok();
    let types = [
        "ts timestamp",
        "n bigint",
        "x double",
        "flag boolean",
        "name varchar",
        "code varchar",
        "day date",
    ];
    for wanted in types {
        assert!(schema.to_lowercase().contains(wanted), "{wanted}: {schema}");
    }
    assert_eq!(
        place.sql("SELECT n, x, flag, name, code, day, \"none\" FROM t ORDER BY ts"),
        "n,x,flag,name,code,day,none\n1,1.0,true,a,007,2026-01-01,\n-2,2.5,false,\"b,c\",12,2026-01-02,\n"
    );
    assert_eq!(
        place.sql("SELECT count(DISTINCT zoned) AS n FROM t"),
        "n\n1\n"
    );
}

#[test]
fn packed_or_not_from_files_and_standard_input() {
    let text = "ts,v\n1,10\n2,20\n";
    let zst = zstd::encode_all(text.as_bytes(), 3).unwrap();
    for packed in [text.as_bytes().to_vec(), gz(text), zst] {
        let place = Place::new();
        let more = ["--create", "--time", "ts"];
        import(&place, &place.file("t.csv", &packed), &more).ok();
        let call = ["import", "db", "-", "--table", "t"];
        assert_eq!(place.run_with(call, &packed).ok(), "");
        assert_eq!(
            place.sql("SELECT count(*) AS n, sum(v) AS s FROM t"),
            "n,s\n4,60\n"
        );
    }
}

#[test]
fn json_lines() {
    let place = Place::new();
    let text = "{\"ts\": \"2026-01-01T00:00:00\", \"v\": 1.5, \"code\": \"12\"}\n\n{\"v\": null, \"ts\": \"2026-01-01T00:00:01\", \"ok\": true}\n";
    import(
        &place,
        &place.file("t.jsonl", text),
        &["--create", "--time", "ts"],
    )
    .ok();
    assert_eq!(
        place.sql("SELECT ts, v, code, ok FROM t"),
        "ts,v,code,ok\n2026-01-01T00:00:00,1.5,12,\n2026-01-01T00:00:01,,,true\n"
    );
    let bad = place.file(
        "bad.jsonl",
        "{\"ts\": \"2026-01-01T00:00:02\"}\n{\"ts\": \"2026-01-01T00:00:03\", \"v\": [1]}\n",
    );
    let message = import(&place, &bad, &[]).fails(1);
    assert!(
        message.contains("line 2") && message.contains("\"v\""),
        "{message}"
    );
    assert_eq!(place.sql("SELECT count(*) AS n FROM t"), "n\n2\n");
}

#[test]
fn delimiters_nulls_and_lines_to_skip() {
    let place = Place::new();
    let text = "made by a logger\n# version 2\nts;v;name\n1;NA;\n2;5;NA\n";
    let more = [
        "--create",
        "--time",
        "ts",
        "--delimiter",
        ";",
        "--null",
        "NA",
        "--null",
        "-",
        "--skip",
        "2",
    ];
    import(&place, &place.file("t.txt", text), &more).ok();
    assert_eq!(
        place.sql("SELECT ts, v, coalesce(name, 'null') AS name FROM t"),
        "ts,v,name\n1,,null\n2,5,null\n"
    );
    import(&place, &place.file("t.tsv", "name\tv\tts\nx\t6\t3\n"), &[]).ok();
    assert_eq!(
        place.sql("SELECT v, name FROM t WHERE ts = 3"),
        "v,name\n6,x\n"
    );
    // Lines are counted from the first of the file on.
    let bad = place.file("bad.csv", "x\ny\nts;v;name\n4;7;a\n5;seven;b\n");
    let message = import(&place, &bad, &["--delimiter", ";", "--skip", "2"]).fails(1);
    assert!(message.contains("line 5"), "{message}");
}

#[test]
fn a_bad_row_fails_the_import_with_its_line() {
    let good = "ts,v\n1,10\n2,20\n";
    for (text, line, named) in [
        ("ts,v\n1,10\n2,ten\n3,30\n", "line 3", "\"ten\""),
        ("ts,v\n1,10\n2,2.5\n", "line 3", "\"v\""),
        ("ts,v\n1,10\n2\n", "line 3", "1 field instead of 2"),
        ("ts,v\n1,10\n2,20,30\n", "line 3", "3 fields instead of 2"),
        ("ts,v\n\n1,10\n,20\n", "line 4", "\"ts\""),
        (
            "ts,v\n1,10\n2,99999999999999999999\n",
            "line 3",
            "99999999999999999999",
        ),
        ("ts,v\n1,\"1\n0\"\n", "line 2", "\"v\""),
        ("ts,v\n1,10\n2,20\n3,\u{fffd}\n", "line 4", "\"v\""),
    ] {
        let place = Place::new();
        import(
            &place,
            &place.file("good.csv", good),
            &["--create", "--time", "ts"],
        )
        .ok();
        let message = import(&place, &place.file("bad.csv", text), &[]).fails(1);
        assert!(
            message.contains(line) && message.contains(named),
            "{text:?}: {message}"
        );
        assert_eq!(
            place.sql("SELECT count(*) AS n FROM t"),
            "n\n2\n",
            "{text:?}"
        );
    }
    let place = Place::new();
    let message = import(
        &place,
        &place.file("bad.csv", b"ts,v\n1,a\n2,\xff\n"),
        &["--create"],
    )
    .fails(1);
    assert!(
        message.contains("line 3") && message.contains("UTF-8"),
        "{message}"
    );
}

#[test]
fn a_table_that_create_finds_is_named_with_what_differs() {
    let place = Place::new();
    let more = ["--create", "--time", "ts"];
    let first = place.file("first.csv", b"ts,v,n,x\n2024-01-01,NA,1,2.5\n");
    import(&place, &first, &more).ok();
    let second = place.file("second.csv", b"ts,v,n,x\n2024-01-02,7,2,3\n");
    let ended = import(&place, &second, &more);
    assert_eq!(ended.status, 0, "{ended:?}");
    let line = "table \"t\" was there, with 1 row; v is varchar there, and bigint by the file\n";
    assert!(ended.err.contains(line), "{ended:?}");
    let ended = import(&place, &first, &["--time", "ts"]);
    assert!(!ended.err.contains("was there"), "{ended:?}");
}

/// More rows than types are found from at first, then some that do not fit them.
fn long_file(place: &Place, last: &str) -> std::path::PathBuf {
    let mut text = String::from("ts,v\n");
    (0..150_000).for_each(|row| text.push_str(&format!("{row},{}\n", row % 7)));
    text.push_str(last);
    place.file("long.csv", text)
}

#[test]
fn a_failed_import_leaves_no_table() {
    let place = Place::new();
    let file = long_file(&place, "never,1\n");
    let message = import(&place, &file, &["--create", "--time", "ts"]).fails(1);
    assert!(
        message.contains("line 150002") && message.contains("\"never\""),
        "{message}"
    );
    assert!(!place.db.exists());
    let rejects = place.folder.path().join("bad.csv");
    let file = long_file(&place, "150000,many\n150001,2.5\n");
    let ended = import(
        &place,
        &file,
        &[
            "--create",
            "--time",
            "ts",
            "--rejects",
            rejects.to_str().unwrap(),
        ],
    );
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(
        ended.err.contains("imported 150,001 rows") && ended.err.contains("rejected 1 row"),
        "{ended:?}"
    );
    assert_eq!(
        place.sql("SELECT count(*) AS n, sum(v) AS s FROM t"),
        "n,s\n150001,449996.5\n"
    );
    let rejected = std::fs::read_to_string(&rejects).unwrap();
    assert_eq!(
        rejected,
        "line,reason,row\n150002,\"column \"\"v\"\": \"\"many\"\" is no double; --null many makes NULL of it\",\"150000,many\"\n"
    );
}

#[test]
fn a_type_that_turns_out_too_narrow_is_widened() {
    for (last, kind, told) in [
        ("150000,7.5\n", "Float64", "because of \"7.5\""),
        ("150000,many\n", "Utf8", "because of 'many' (line 150002)"),
        ("150000,NA\n", "Utf8", "--null NA"),
        ("150000,7.5\n150001,x\n", "Utf8", "because of \"7.5\""),
    ] {
        let place = Place::new();
        let file = long_file(&place, last);
        let ended = import(&place, &file, &["--create", "--time", "ts"]);
        assert!(
            ended
                .err
                .contains("line 150002: column \"v\" is no longer bigint")
                && ended.err.contains("the import begins again")
                && ended.err.contains(told),
            "{ended:?}"
        );
        ended.ok();
        let rows = 150_000 + last.lines().count();
        assert_eq!(
            place.sql("SELECT count(*) AS n, count(v) AS c, arrow_typeof(min(v)) AS t FROM t"),
            format!("n,c,t\n{rows},{rows},{kind}\n")
        );
    }
    // Dates become times, whether they order the table or not.
    for more in [&["--create"][..], &["--create", "--time", "d"]] {
        let place = Place::new();
        let mut text = String::from("d\n");
        (0..150_000).for_each(|_| text.push_str("2026-01-01\n"));
        text.push_str("2026-01-02 05:00\n");
        let ended = import(&place, &place.file("days.csv", text), more);
        assert!(ended.err.contains("no longer date"), "{ended:?}");
        ended.ok();
        assert_eq!(
            place.sql("SELECT count(*) AS n, max(d) AS d FROM t"),
            "n,d\n150001,2026-01-02T05:00:00\n"
        );
    }
    // A table that is there keeps its types, and the whole import fails.
    let place = Place::new();
    place.sql("CREATE TABLE t (ts BIGINT, v BIGINT) WITH (time = 'ts')");
    let file = long_file(&place, "150000,7.5\n");
    let message = import(&place, &file, &["--create"]).fails(1);
    assert!(message.contains("line 150002"), "{message}");
    assert_eq!(place.sql("SELECT count(*) AS n FROM t"), "n\n0\n");
}

#[test]
fn rejects_hold_every_bad_row_and_no_other() {
    let place = Place::new();
    import(
        &place,
        &place.file("t.csv", "ts,v\n1,10\n"),
        &["--create", "--time", "ts"],
    )
    .ok();
    let text = "ts,v\n2,20\nthree,30\n4\n5,\"5\n0\"\n6,60\n,70\n7,70\n";
    let rejects = place.folder.path().join("bad.csv");
    let more = ["--rejects", rejects.to_str().unwrap()];
    let ended = import(&place, &place.file("bad_rows.csv", text), &more);
    assert!(
        ended.err.contains("imported 3 rows") && ended.err.contains("rejected 4 rows"),
        "{ended:?}"
    );
    ended.ok();
    assert_eq!(place.sql("SELECT ts FROM t"), "ts\n1\n2\n6\n7\n");
    let mut reader = csv::Reader::from_path(&rejects).unwrap();
    let found: Vec<(String, String)> = reader
        .records()
        .map(|row| row.unwrap())
        .map(|row| (row[0].into(), row[2].into()))
        .collect();
    let wanted = [
        ("3", "three,30"),
        ("4", "4"),
        ("5", "5,\"5\n0\""),
        ("8", ",70"),
    ];
    assert_eq!(
        found,
        wanted.map(|(line, row)| (line.to_owned(), row.to_owned()))
    );
    // None at all: the file says so.
    import(&place, &place.file("fine.csv", "ts,v\n8,80\n"), &more).ok();
    assert_eq!(
        std::fs::read_to_string(&rejects).unwrap(),
        "line,reason,row\n"
    );
}

#[test]
fn what_cannot_be_imported_is_told_and_stores_nothing() {
    let place = Place::new();
    let file = place.file("t.csv", "ts,v\n1,10\n");
    let more = ["--create", "--time", "ts"];
    assert!(
        import(&place, Path::new("/no/such/file.csv"), &more)
            .fails(1)
            .contains("/no/such/file.csv")
    );
    assert!(!place.db.exists(), "a wrong file name made a database");
    assert!(import(&place, &file, &[]).fails(1).contains("a.thal"));
    import(&place, &file, &more).ok();
    for (text, name, more, named) in [
        ("", "empty.csv", &[][..], "empty"),
        ("ts,v,x\n1,1,1\n", "extra.csv", &[], "\"x\""),
        ("v\n1\n", "less.csv", &[], "\"ts\""),
        ("ts,TS\n1,1\n", "twice.csv", &[], "TS"),
        ("PAR1....", "t.csv", &[], "Parquet"),
        ("x", "t.parquet", &[], "Parquet"),
        ("x", "t.arrow", &[], "Arrow"),
        (
            "ts,v\n1,1\n",
            "t.csv",
            &["--dimensions", "ts,v"],
            "not offered",
        ),
    ] {
        let message = import(&place, &place.file(name, text), more).fails(1);
        assert!(message.contains(named), "{name}: {message}");
    }
    let damaged = gz("ts,v\n5,50\n6,60\n");
    import(
        &place,
        &place.file("cut.csv.gz", &damaged[..damaged.len() - 6]),
        &[],
    )
    .fails(1);
    assert_eq!(
        import(
            &place,
            &place.file("t.csv", "ts,v\n1,1\n"),
            &["--time", "v"]
        )
        .status,
        2
    );
    let missing = place.run(["import", "db", "-", "--table", "other"]);
    missing.fails(1);
    assert_eq!(place.sql("SELECT count(*) AS n FROM t"), "n\n1\n");
}

#[test]
fn layouts_of_other_versions_are_refused_before_anything_is_made() {
    let place = Place::new();
    let file = place.file("t.csv", "ts,v\n1,10\n");
    for more in [
        &["--create", "--layout", "points", "--dimensions", "ts,v"][..],
        &[
            "--create", "--layout", "series", "--key", "v", "--time", "ts",
        ],
        &["--create", "--layout", "nonsense"],
    ] {
        import(&place, &file, more).fails(1);
        assert_eq!(place.run_with(["db"], ".tables\n").ok(), "", "{more:?}");
    }
    import(
        &place,
        &file,
        &[
            "--create", "--layout", "stream", "--time", "ts", "--split", "10",
        ],
    )
    .ok();
}

#[test]
fn times_are_stored_exactly_or_refused() {
    let place = Place::new();
    place.sql("CREATE TABLE t (ts TIMESTAMP(3), day DATE) WITH (layout = 'stream', time = 'ts')");
    let good = "ts,day\n2026-01-01T00:00:00.25,2026-01-01\n2026-01-01 05:30,2026-01-02T00:00:00\n\
                2026-01-02T00:00:00+02:00,\n2300-01-01T00:00:00,2300-01-01\n";
    import(&place, &place.file("good.csv", good), &[]).ok();
    assert_eq!(
        place.sql("SELECT * FROM t"),
        "ts,day\n2026-01-01T00:00:00.250,2026-01-01\n2026-01-01T05:30:00,2026-01-02\n\
         2026-01-01T22:00:00,\n2300-01-01T00:00:00,2300-01-01\n"
    );
    for (row, named) in [
        ("2026-01-01T00:00:00.0005,", "exactly"),
        ("2026-01-01,2026-01-01T00:00:01", "exactly"),
        ("2026-02-30,", "no time"),
        ("1767225600000,", "no time"),
        ("noon,", "\"noon\""),
    ] {
        let message = import(
            &place,
            &place.file("bad.csv", format!("ts,day\n{row}\n")),
            &[],
        )
        .fails(1);
        assert!(
            message.contains("line 2") && message.contains(named),
            "{row}: {message}"
        );
    }
}

#[test]
fn the_file_of_rejects_must_be_another() {
    let place = Place::new();
    let file = place.file("t.csv", "ts,v\n1,10\n");
    let ended = import(
        &place,
        &file,
        &["--create", "--rejects", file.to_str().unwrap()],
    );
    assert_eq!(ended.status, 2, "{ended:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "ts,v\n1,10\n");
}

#[test]
fn what_is_no_time_is_named_and_no_database_is_left() {
    for (text, named) in [
        (
            "ts,v\nyesterday,1\n2026-01-01,2\n",
            &["line 2", "\"yesterday\" is no time"][..],
        ),
        (
            "ts,v\n2026-01-01,1\n2.5,2\n",
            &["line 3", "\"2.5\" is no time"],
        ),
        (
            "ts,v\n2026-01-01,1\n2026-01-02,1\n7,2\n",
            &["line 4", "\"7\" is no time"],
        ),
        (
            "ts,v\n2026-01-01,\"1\n2026-01-02,2\n",
            &["line 2", "not closed"],
        ),
        ("ts,v\n", &["has no rows", "CREATE TABLE"]),
        ("ts,v\n2026-01-01,1\n2026-01-02\n", &["line 3"]),
    ] {
        let place = Place::new();
        let file = place.file("bad.csv", text);
        let message = import(&place, &file, &["--create", "--time", "TS"]).fails(1);
        for wanted in named {
            assert!(message.contains(wanted), "{text:?}: {message}");
        }
        assert!(!place.db.exists(), "{text:?} left a database");
        place.sql("CREATE TABLE other (v INT)");
        import(&place, &file, &["--create", "--time", "ts"]).fails(1);
        assert_eq!(place.sql("SELECT count(*) AS n FROM other"), "n\n0\n");
    }
}

#[test]
fn a_bad_time_in_a_new_table_is_set_apart() {
    let place = Place::new();
    let text = "ts,v\nyesterday,1\n2026-01-01,2\n2026-01-02,3\n7,4\n";
    let file = place.file("t.csv", text);
    let rejects = place.folder.path().join("bad.csv");
    let options = [
        "--create",
        "--time",
        "ts",
        "--rejects",
        rejects.to_str().unwrap(),
    ];
    let ended = import(&place, &file, &options);
    assert!(ended.err.contains("rejected 2 rows"), "{ended:?}");
    ended.ok();
    assert_eq!(
        place.sql("SELECT * FROM t"),
        "ts,v\n2026-01-01,2\n2026-01-02,3\n"
    );
    let place = Place::new();
    let file = place.file("t.csv", "ts,v\nnever,1\n");
    let message = import(&place, &file, &options).fails(1);
    assert!(message.contains("\"never\" is no time"), "{message}");
    assert!(!place.db.exists());
}

/// Without a file of rejects the import fails at the first row that would be in one, and at no other.
#[test]
fn rejects_are_the_rows_that_fail_an_import() {
    for (text, lines) in [
        (
            "ts,v\n2026-01-01T00:00:00,1\n2026-01-02T00:00:00Z,2\n",
            &[][..],
        ),
        ("ts,v\n2026-01-01T00:00:00Z,1\n2026-01-02T00:00:00,2\n", &[]),
        ("ts,v\n2026-01-01,1\n2026-01-02T05:00:00,2\n", &[]),
        ("ts,v\n2026-01-01,1\n7,2\n2026-01-02,3\n", &["3"]),
        ("ts,v\n1,1\n2.5,2\n3,3\n", &["3"]),
        ("ts,v\n1,1\n2,\"2\n3,3\n4,\"\"4\"\"\n", &["3"]),
        ("ts,v\n1,1\n2,2,2\n\"3\n4,4\n", &["3", "4"]),
    ] {
        let create = ["--create", "--time", "ts"];
        let place = Place::new();
        let file = place.file("t.csv", text);
        let rejects = place.folder.path().join("bad.csv");
        let more = [&create[..], &["--rejects", rejects.to_str().unwrap()]].concat();
        import(&place, &file, &more).ok();
        let mut reader = csv::Reader::from_path(&rejects).unwrap();
        let rejected: Vec<String> = reader.records().map(|row| row.unwrap()[0].into()).collect();
        assert_eq!(rejected, lines, "{text:?}");
        let place = Place::new();
        let file = place.file("t.csv", text);
        match lines.first() {
            None => assert_eq!(import(&place, &file, &create).ok(), ""),
            Some(line) => {
                let message = import(&place, &file, &create).fails(1);
                assert!(
                    message.contains(&format!("line {line}: ")),
                    "{text:?}: {message}"
                );
            }
        }
    }
}

#[test]
fn a_quote_that_is_not_closed_is_a_bad_row() {
    let place = Place::new();
    let text = "ts,v,name\n\n1,1,\"a\nb\"\n2,2,b\n3,\"3\n\",\"c\n4,4,d\n";
    let file = place.file("t.csv", text);
    let rejects = place.folder.path().join("bad.csv");
    let create = ["--create", "--time", "ts"];
    let message = import(&place, &file, &create).fails(1);
    assert!(
        message.contains("line 6: the quote that opens on line 7 is not closed"),
        "{message}"
    );
    let more = [&create[..], &["--rejects", rejects.to_str().unwrap()]].concat();
    let ended = import(&place, &file, &more);
    assert!(
        ended.err.contains("imported 2 rows") && ended.err.contains("rejected 1 row:"),
        "{ended:?}"
    );
    assert_eq!(place.sql("SELECT ts FROM t"), "ts\n1\n2\n");
    let mut reader = csv::Reader::from_path(&rejects).unwrap();
    let row = reader.records().next().unwrap().unwrap();
    assert_eq!((&row[0], &row[2]), ("6", "3,\"3\n\",\"c\n4,4,d"));
    // In the header, where no row can be set apart.
    let header = place.file("header.csv", "ts,\"v\n1,1\n");
    let message = import(&place, &header, &more).fails(1);
    assert!(message.contains("opens on line 1"), "{message}");
    // The last quote of a file is closed without an end of line too.
    import(&place, &place.file("fine.csv", "ts,v,name\n5,5,\"e\""), &[]).ok();
}

#[test]
fn rejects_hold_rows_as_they_are_in_the_file() {
    let csv_rows: &[(&[u8], &[u8])] = &[
        (b"ts,v\r\n", b""),
        (b"1,\"1\"\r\n", b""),
        (b"2, \xff\xfe\r\n", b"2, \xff\xfe"),
        (b"\"3\",x\r\n", b"\"3\",x"),
        (b"\"4\",4,5\r\n", b"\"4\",4,5"),
    ];
    let json_rows: &[(&[u8], &[u8])] = &[
        (b"{\"ts\": 1, \"v\": 1}\n", b""),
        (b"{\"v\":1}\n", b"{\"v\":1}"),
        (
            b"{\"ts\": 3, \"v\": \"\xff\"}\n",
            b"{\"ts\": 3, \"v\": \"\xff\"}",
        ),
        (b"{\"ts\": 4,  \"v\": [ ]}\n", b"{\"ts\": 4,  \"v\": [ ]}"),
    ];
    for (name, rows) in [("t.csv", csv_rows), ("t.jsonl", json_rows)] {
        let place = Place::new();
        place.sql("CREATE TABLE t (ts BIGINT, v BIGINT) WITH (layout = 'stream', time = 'ts')");
        let text: Vec<u8> = rows.iter().flat_map(|(line, _)| line.to_vec()).collect();
        let rejects = place.folder.path().join("bad.csv");
        let more = ["--rejects", rejects.to_str().unwrap()];
        let ended = import(&place, &place.file(name, text), &more);
        assert!(ended.err.contains("rejected 3 rows"), "{ended:?}");
        ended.ok();
        let mut reader = csv::Reader::from_path(&rejects).unwrap();
        let found: Vec<Vec<u8>> = reader
            .byte_records()
            .map(|row| row.unwrap()[2].to_vec())
            .collect();
        let wanted: Vec<&[u8]> = rows
            .iter()
            .map(|(_, row)| *row)
            .filter(|row| !row.is_empty())
            .collect();
        assert_eq!(found, wanted, "{name}");
    }
}
