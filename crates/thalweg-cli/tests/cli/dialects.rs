//! CSV as people have it: separators, decimals, times, markers of missing values, headers or none.

use crate::{Ended, Place};

fn import(place: &Place, name: &str, text: impl AsRef<[u8]>, more: &[&str]) -> Ended {
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

/// What a file and options become: the rows of the table, and what is printed.
struct Case {
    text: &'static str,
    more: &'static [&'static str],
    rows: &'static str,
    told: &'static [&'static str],
}

const fn case(
    text: &'static str,
    more: &'static [&'static str],
    rows: &'static str,
    told: &'static [&'static str],
) -> Case {
    Case {
        text,
        more,
        rows,
        told,
    }
}

#[track_caller]
fn check(cases: &[Case]) {
    for case in cases {
        let place = Place::new();
        let ended = import(&place, "t.csv", case.text, case.more);
        for told in case.told {
            assert!(ended.err.contains(told), "{:?}: {ended:?}", case.text);
        }
        ended.ok();
        assert_eq!(place.sql("SELECT * FROM t"), case.rows, "{:?}", case.text);
    }
}

#[test]
fn separators_are_detected() {
    check(&[
        case(
            "a,b\n1,x\n2,y\n",
            &[],
            "a,b\n1,x\n2,y\n",
            &["separated by commas"],
        ),
        case(
            "a;b\n1;x\n2;y\n",
            &[],
            "a,b\n1,x\n2,y\n",
            &["separated by semicolons"],
        ),
        case(
            "a\tb\n1\tx\n2\ty\n",
            &[],
            "a,b\n1,x\n2,y\n",
            &["separated by tabs"],
        ),
        case(
            "a|b\n1|x\n2|y\n",
            &[],
            "a,b\n1,x\n2,y\n",
            &["separated by |"],
        ),
        case(
            "a;b\r\n1;x\r\n2;y\r\n",
            &[],
            "a,b\n1,x\n2,y\n",
            &["semicolons"],
        ),
        case("\u{feff}a;b\n1;x\n", &[], "a,b\n1,x\n", &["semicolons"]),
        case(
            "sep=;\na;b\n1;x,y\n",
            &[],
            "a,b\n1,\"x,y\"\n",
            &["semicolons"],
        ),
        case(
            "a;b\n1;\"x;y\"\n2;\"z,z\"\n",
            &[],
            "a,b\n1,x;y\n2,\"z,z\"\n",
            &["semicolons"],
        ),
        case(
            "\"a\",\"b\"\n\"1\",\"x;y;z\"\n",
            &[],
            "a,b\n1,x;y;z\n",
            &["commas"],
        ),
        case("a\n1\n2\n", &[], "a\n1\n2\n", &["t.csv: 1 column,"]),
        case("a^b\n1^x\n", &["--delimiter", "^"], "a,b\n1,x\n", &[]),
    ]);
    // Lines are those of the file, also behind a line that names the separator.
    let place = Place::new();
    place.sql("CREATE TABLE t (a BIGINT, b BIGINT)");
    let message = import(&place, "t.csv", "sep=;\na;b\n1;2\n3;x\n", &[]).fails(1);
    assert!(message.contains("line 4"), "{message}");
}

#[test]
fn headers_or_none() {
    check(&[
        case(
            "1,x\n2,y\n",
            &["--no-header"],
            "column0,column1\n1,x\n2,y\n",
            &["column0 is bigint"],
        ),
        case(
            "a note\n1;x\n",
            &["--no-header", "--skip", "1"],
            "column0,column1\n1,x\n",
            &[],
        ),
        case(
            ",a\n0,1\n1,2\n",
            &[],
            "column0,a\n0,1\n1,2\n",
            &["column0 is bigint"],
        ),
        case("a,\n1,x\n", &[], "a,column1\n1,x\n", &[]),
        // A row taken for a header is not taken in silence.
        case(
            "1,2.5\n3,4.5\n",
            &[],
            "1,2.5\n3,4.5\n",
            &["warning: ", "looks like a row", "--no-header"],
        ),
        case(
            "$X,2012-03-03T03:03:35Z,101\n$X,2012-03-03T03:03:40Z,93\n",
            &[],
            "$X,2012-03-03T03:03:35Z,101\n$X,2012-03-03T03:03:40Z,93\n",
            &["warning: ", "looks like a row", "--no-header"],
        ),
    ]);
    // Into a table that is there, columns are in its order.
    let place = Place::new();
    place.sql("CREATE TABLE t (ts BIGINT, name VARCHAR) WITH (time = 'ts')");
    import(&place, "t.csv", "2,y\n1,x\n", &["--no-header"]).ok();
    assert_eq!(place.sql("SELECT * FROM t"), "ts,name\n1,x\n2,y\n");
    let message = import(&place, "t.csv", "2,y,z\n", &["--no-header"]).fails(1);
    assert!(
        message.contains("3 columns") && message.contains("ts, name"),
        "{message}"
    );
}

#[test]
fn a_header_in_another_encoding_names_a_way() {
    let place = Place::new();
    let message = import(&place, "e.csv", b"Stra\xdfe,b\n1,2\n", &[]).fails(1);
    assert!(message.contains("iconv -f latin1 -t utf-8"), "{message}");
}

#[test]
fn decimal_commas() {
    check(&[
        case(
            "a;b\n1,5;x\n-2;y\n",
            &[],
            "a,b\n1.5,x\n-2.0,y\n",
            &["a is double with a decimal comma"],
        ),
        case(
            "a\tb\n1,5\t,25\n",
            &[],
            "a,b\n1.5,0.25\n",
            &["decimal comma"],
        ),
        case("a;b\n1.5;x\n", &[], "a,b\n1.5,x\n", &["a is double\n"]),
        case(
            "a,b\n\"1,5\",2\n",
            &["--decimal", ","],
            "a,b\n1.5,2\n",
            &["decimal comma"],
        ),
        case(
            "a,b\n\"1,5\",2\n",
            &[],
            "a,b\n\"1,5\",2\n",
            &["a is varchar"],
        ),
        case(
            "a;b\n1,5;2\n1.5;3\n",
            &[],
            "a,b\n\"1,5\",2\n1.5,3\n",
            &["a is varchar because of '1.5' (line 3)"],
        ),
        case(
            "a;b\n1,5;2\n",
            &["--decimal", "."],
            "a,b\n\"1,5\",2\n",
            &["a is varchar"],
        ),
    ]);
    let place = Place::new();
    place.sql("CREATE TABLE t (a DOUBLE)");
    import(&place, "t.csv", "a;b\n", &[]).fails(1);
    import(&place, "t.csv", "a\n\"2,5\"\n", &["--decimal", ","]).ok();
    assert_eq!(place.sql("SELECT * FROM t"), "a\n2.5\n");
    let message = import(&place, "t.csv", "a\n2.5\n", &["--decimal", ","]).fails(1);
    assert!(message.contains("line 2"), "{message}");
}

#[test]
fn times_in_many_writings() {
    let day = "d\n2012-02-01\n";
    let minute = "d\n2012-02-01T13:05:00\n";
    let time = &["--time", "d"][..];
    check(&[
        case("d\n2012/02/01\n", time, day, &["d is date"]),
        case("d\n2012/2/1\n", time, day, &["d is date"]),
        case("d\n2012.02.01\n", time, day, &[]),
        case("d\nFeb 1 2012\n", time, day, &[]),
        case("d\n\"Feb 1, 2012\"\n", time, day, &[]),
        case("d\n1-Feb-2012\n", time, day, &[]),
        case("d\n2012/02/01 13:05\n", time, minute, &["d is timestamp"]),
        case("d\n2012/02/01 13:05:00.000\n", time, minute, &[]),
        case("d\n2012-02-01 13:05\n", time, minute, &[]),
        case("d\n2012-02-01T13:05\n", time, minute, &[]),
        case(
            "d\n2012/02/01T13:05:00Z\n",
            time,
            "d\n2012-02-01T13:05:00Z\n",
            &["timestamp with time zone"],
        ),
        case(
            "d\n2012-02-01 15:05:00+02:00\n",
            time,
            "d\n2012-02-01T13:05:00Z\n",
            &[],
        ),
        case(
            "d\n2012-02-01 13:05:00 UTC\n",
            time,
            "d\n2012-02-01T13:05:00Z\n",
            &[],
        ),
        case(
            "d\n1.2.2012 1:05 PM\n13.2.2012 12:00 AM\n",
            time,
            "d\n2012-02-01T13:05:00\n2012-02-13T00:00:00\n",
            &["day first"],
        ),
        // By arrival, as any other column.
        case("d\n2012/02/01 13:05\n", &[], minute, &["d is timestamp"]),
        // Day or month first is decided by the whole column.
        case(
            "d\n01.02.2012\n13.02.2012\n",
            time,
            "d\n2012-02-01\n2012-02-13\n",
            &["d is date, day first"],
        ),
        case(
            "d\n02/01/2012\n02/13/2012\n",
            time,
            "d\n2012-02-01\n2012-02-13\n",
            &["d is date, month first"],
        ),
        case(
            "d\n01/02/2012\n13/02/2012\n",
            &[],
            "d\n2012-02-01\n2012-02-13\n",
            &["day first"],
        ),
        case(
            "d\n02/02/2012\n03/03/2012\n",
            time,
            "d\n2012-02-02\n2012-03-03\n",
            &[],
        ),
        // Patterns.
        case(
            "d\n01/02/2012\n",
            &["--time", "d", "--time-format", "%d/%m/%Y"],
            day,
            &["as %d/%m/%Y"],
        ),
        case(
            "d\n02/01/2012\n",
            &["--time", "d", "--time-format", "%m/%d/%Y"],
            day,
            &[],
        ),
        case("d\n02/01/2012\n", &["--time-format", "%m/%d/%Y"], day, &[]),
        case(
            "d\n20120201\n",
            &["--time", "d", "--time-format", "%Y%m%d"],
            day,
            &[],
        ),
        case(
            "d\n01.02.12 13h05\n",
            &["--time", "d", "--time-format", "%d.%m.%y %Hh%M"],
            minute,
            &["d is timestamp"],
        ),
    ]);
}

#[test]
fn times_far_away_are_in_microseconds() {
    let place = Place::new();
    let text = "ts,d\n1600-01-01 00:30,1600-01-01\n2024-01-01 24:00,2300-01-02 10:00\n";
    import(&place, "t.csv", text, &["--time", "ts"]).ok();
    assert_eq!(
        place.sql("SELECT ts, d, typeof(ts) AS t FROM t"),
        "ts,d,t\n1600-01-01T00:30:00,1600-01-01T00:00:00,TIMESTAMP(6)\n\
         2024-01-02T00:00:00,2300-01-02T10:00:00,TIMESTAMP(6)\n"
    );
}

#[test]
fn dates_that_contradict_each_other_are_named() {
    let place = Place::new();
    let text = "d\n01/02/2024\n13/04/2024\n04/25/2024\n";
    let message = import(&place, "t.csv", text, &["--time", "d"]).fails(1);
    for named in ["\"13/04/2024\" (line 3)", "\"04/25/2024\" (line 4)"] {
        assert!(message.contains(named), "{message}");
    }
}

#[test]
fn numbers_beyond_floats_are_text_or_bad_rows() {
    let place = Place::new();
    import(&place, "t.csv", "id,v\n1,1e400\n", &[]).ok();
    assert_eq!(place.sql("SELECT v FROM t"), "v\n1e400\n");
    let place = Place::new();
    import(&place, "u.csv", "id,v\n1,1.5\n", &[]).ok();
    let message = import(&place, "v.csv", "id,v\n2,1e400\n", &[]).fails(1);
    assert!(message.contains("\"1e400\""), "{message}");
    let place = Place::new();
    let real = ["--type", "v=real"];
    import(&place, "r.csv", "id,v\n1,0.1\n2,3.4e38\n3,-inf\n", &real).ok();
    assert_eq!(
        place.sql("SELECT v FROM t ORDER BY id"),
        "v\n0.1\n3.4e38\n-inf\n"
    );
    let message = import(&place, "s.csv", "id,v\n1,1e40\n", &[]).fails(1);
    assert!(message.contains("\"1e40\" is no real"), "{message}");
}

#[test]
fn a_name_of_a_zone_is_no_offset_in_any_row() {
    for text in ["2024-01-01 10:00 CET", "2024-01-01 10:00:60"] {
        for first in ["", "2024-01-01 10:00:00\n"] {
            let place = Place::new();
            let file = format!("ts\n{first}{text}\n");
            let message = import(&place, "t.csv", file, &["--time", "ts"]).fails(1);
            assert!(message.contains(&format!("\"{text}\"")), "{message}");
        }
    }
}

#[test]
fn digits_that_make_a_column_text_are_named() {
    let place = Place::new();
    let ended = import(&place, "t.csv", "a,b\n12345678901234567,007\n1.5,8\n", &[]);
    assert_eq!(ended.status, 0, "{ended:?}");
    for named in ["--type a=double", "--type b=bigint"] {
        assert!(ended.err.contains(named), "{ended:?}");
    }
}

#[test]
fn an_ambiguous_date_is_an_error_that_names_the_option() {
    for more in [&[][..], &["--time", "d"]] {
        let place = Place::new();
        let message = import(&place, "t.csv", "d\n02/02/2012\n01/02/2012\n", more).fails(1);
        for named in [
            "\"d\"",
            "\"01/02/2012\"",
            "line 3",
            "--time-format \"%d/%m/%Y\"",
            "\"%m/%d/%Y\"",
        ] {
            assert!(message.contains(named), "{message}");
        }
        assert!(!place.db.exists());
    }
    // Decided by a row far behind those that types are found from.
    let place = Place::new();
    let mut text = String::from("d,v\n");
    (0..150_000).for_each(|row| text.push_str(&format!("01/02/2012,{row}\n")));
    text.push_str("13/02/2012,0\n");
    import(&place, "long.csv", text, &["--time", "d"]).ok();
    assert_eq!(
        place.sql("SELECT min(d) AS d, count(*) AS n FROM t"),
        "d,n\n2012-02-01,150001\n"
    );
    // No value of the first rows needs an order, but one far behind does.
    for last in ["02/13/2012,0\n", ""] {
        let place = Place::new();
        let mut text = String::from("d,v\n");
        (0..150_000).for_each(|row| text.push_str(&format!("01/01/2012,{row}\n")));
        text.push_str("01/02/2012,0\n");
        text.push_str(last);
        let ended = import(&place, "long.csv", text, &["--time", "d"]);
        if last.is_empty() {
            assert!(ended.fails(1).contains("line 150002"));
        } else {
            ended.ok();
            let found = place.sql("SELECT count(*) AS n FROM t WHERE d = '2012-01-02'");
            assert_eq!(found, "n\n1\n");
        }
    }
    // In a table that is there.
    let message = import(&place, "t.csv", "d,v\n01/02/2012,1\n", &[]).fails(1);
    assert!(message.contains("--time-format"), "{message}");
    import(
        &place,
        "t.csv",
        "d,v\n01/02/2013,1\n",
        &["--time-format", "%m/%d/%Y"],
    )
    .ok();
    assert_eq!(place.sql("SELECT max(d) AS d FROM t"), "d\n2013-01-02\n");
    let ended = import(&place, "t.csv", "d,v\n01/02/2014,1\n31/12/2014,1\n", &[]);
    assert!(ended.err.contains("d is date, day first"), "{ended:?}");
    ended.ok();
    // Text takes them as they are.
    place.sql("CREATE TABLE texts (d VARCHAR)");
    let file = place.file("t.csv", "d\n01/02/2012\n");
    place
        .run(["import", "db", file.to_str().unwrap(), "--table", "texts"])
        .ok();
}

#[test]
fn patterns_that_do_not_fit_are_told() {
    let place = Place::new();
    let message = import(
        &place,
        "t.csv",
        "d\n2012-02-01\n",
        &["--time", "d", "--time-format", "%d.%m.%Y"],
    )
    .fails(1);
    assert!(
        message.contains("\"%d.%m.%Y\"") && message.contains("line 2"),
        "{message}"
    );
    let message = import(
        &place,
        "t.csv",
        "d\n01.02.2012\n2012\n",
        &["--time", "d", "--time-format", "%d.%m.%Y"],
    )
    .fails(1);
    assert!(
        message.contains("line 3") && message.contains("does not match"),
        "{message}"
    );
    let ended = import(
        &place,
        "t.csv",
        "d\n1\n",
        &["--time", "d", "--time-format", "%Q"],
    );
    assert_eq!(ended.status, 2, "{ended:?}");
}

#[test]
fn epochs() {
    let rows = "t\n2022-09-11T01:12:00\n2022-09-11T01:12:01\n";
    check(&[
        case(
            "t\n1662858720\n1662858721\n",
            &["--time", "t", "--time-unit", "s"],
            rows,
            &["in s since 1970"],
        ),
        case(
            "t\n1662858720.0\n1662858721.0\n",
            &["--time", "t", "--time-unit", "s"],
            rows,
            &[],
        ),
        case(
            "t\n1662858720000\n1662858721000\n",
            &["--time", "t", "--time-unit", "ms"],
            rows,
            &[],
        ),
        case(
            "t\n1662858720000000\n1662858721000000\n",
            &["--time", "t", "--time-unit", "us"],
            rows,
            &[],
        ),
        case(
            "t\n1662858720000000000\n1662858721000000000\n",
            &["--time", "t", "--time-unit", "ns"],
            rows,
            &[],
        ),
        // Without a unit they stay numbers, and that is told.
        case(
            "t\n1662858720\n",
            &["--time", "t"],
            "t\n1662858720\n",
            &["t stays a number; --time-unit s reads 1662858720 as 2022-09-11T01:12:00"],
        ),
        case(
            "t\n1662858720.0\n",
            &["--time", "t"],
            "t\n1662858720\n",
            &["--time-unit s"],
        ),
        // The wrong unit.
        case(
            "t\n1662858720\n",
            &["--time", "t", "--time-unit", "ms"],
            "t\n1970-01-20T05:54:18.720\n",
            &["warning: ", "1970", "is --time-unit s meant?"],
        ),
    ]);
    let place = Place::new();
    place.sql("CREATE TABLE t (t TIMESTAMP(3), v BIGINT) WITH (time = 't')");
    let message = import(&place, "t.csv", "t,v\n1662858720,1\n", &[]).fails(1);
    assert!(message.contains("--time-unit"), "{message}");
    import(
        &place,
        "t.csv",
        "t,v\n1662858720,1\n",
        &["--time-unit", "s"],
    )
    .ok();
    assert_eq!(place.sql("SELECT * FROM t"), "t,v\n2022-09-11T01:12:00,1\n");
    let ended = import(&Place::new(), "t.csv", "t,v\n1,1\n", &["--time-unit", "s"]);
    assert_eq!(ended.status, 2, "{ended:?}");
}

#[test]
fn missing_values_and_why_a_column_is_text() {
    check(&[
        case(
            "a,b\n1,2\n2,NA\n",
            &[],
            "a,b\n1,2\n2,NA\n",
            &["b is varchar because of 'NA' (line 3): --null NA\n"],
        ),
        case(
            "a,b\n1,2\n2,NA\n",
            &["--null", "NA"],
            "a,b\n1,2\n2,\n",
            &["b is bigint\n"],
        ),
        case(
            "a,b\n1,2.5\n2,NA\n3,-\n4,null\n",
            &[],
            "a,b\n1,2.5\n2,NA\n3,-\n4,null\n",
            &["b is varchar because of 'NA' (line 3): --null NA --null - --null null\n"],
        ),
        case(
            "a,b\n1,2.5\n2,NA\n3,-\n4,null\n",
            &["--null", "NA", "--null", "-", "--null", "null"],
            "a,b\n1,2.5\n2,\n3,\n4,\n",
            &["b is double\n"],
        ),
        case(
            "a,b\n1,2.5\n2,-999\n",
            &["--null", "-999"],
            "a,b\n1,2.5\n2,\n",
            &["b is double\n"],
        ),
        case(
            "a,b\n1,2\n2,NaN\n",
            &[],
            "a,b\n1,2.0\n2,NaN\n",
            &["b is double\n"],
        ),
        case(
            "a,b\n1,2\n2,x\n",
            &[],
            "a,b\n1,2\n2,x\n",
            &["b is varchar because of 'x' (line 3)\n"],
        ),
        case(
            "a,b\n1,x\n2,NA\n",
            &[],
            "a,b\n1,x\n2,NA\n",
            &["b is varchar\n"],
        ),
        case(
            "t,v\n2024-01-01T00:00:00+02:00,1\n2024-01-01T00:00:00,2\n",
            &["--time", "t"],
            "t,v\n2023-12-31T22:00:00Z,1\n2024-01-01T00:00:00Z,2\n",
            &[
                "t is timestamp with time zone where '2024-01-01T00:00:00' (line 3) has no offset and counts as UTC\n",
            ],
        ),
        case(
            "v,a,a,A\n1,2,3,4\n",
            &[],
            "v,a,a_1,A_2\n1,2,3,4\n",
            &["a_1 is bigint\n", "A_2 is bigint\n"],
        ),
        case(
            "v;w\n1.234,5;1\n2.000.000,25;2\n",
            &[],
            "v,w\n\"1.234,5\",1\n\"2.000.000,25\",2\n",
            &["v is varchar because of '1.234,5' (line 2): --thousands . --decimal ,"],
        ),
        case(
            "d\n2012-02-01\nNA\n",
            &[],
            "d\n2012-02-01\nNA\n",
            &["d is varchar because of 'NA' (line 3): --null NA\n"],
        ),
    ]);
}

#[test]
fn a_dry_run_stores_nothing() {
    let place = Place::new();
    let text = "d;v\n13.02.2012;1,5\n14.02.2012;2\n";
    let ended = import(&place, "t.csv", text, &["--dry-run", "--time", "d"]);
    for told in [
        "d is date, day first",
        "decimal comma",
        "2 rows could be imported",
        "nothing was stored",
    ] {
        assert!(ended.err.contains(told), "{ended:?}");
    }
    assert_eq!(ended.ok(), "");
    assert!(!place.db.exists(), "a dry run made a database");
    import(&place, "t.csv", text, &["--time", "d"]).ok();
    import(&place, "t.csv", text, &["--dry-run"]).ok();
    let rejects = place.folder.path().join("bad.csv");
    let more = ["--dry-run", "--rejects", rejects.to_str().unwrap()];
    let ended = import(
        &place,
        "t.csv",
        "d;v\n13.02.2012;1,5\n14.02.2012;x\n",
        &more,
    );
    assert!(ended.err.contains("1 row would be rejected"), "{ended:?}");
    assert!(!rejects.exists(), "a dry run made a file");
    let other = place.folder.path().join("t.csv");
    let call = [
        "import",
        "none.thal",
        other.to_str().unwrap(),
        "--table",
        "t",
    ];
    let message = place.run(call.iter().chain(&["--dry-run"])).fails(1);
    assert!(
        message.contains("--create makes the database and the table"),
        "{message}"
    );
    import(&place, "t.csv", "d;v\n13.02.2012;x\n", &["--dry-run"]).fails(1);
    assert_eq!(place.sql("SELECT count(*) AS n FROM t"), "n\n2\n");
}

#[test]
fn json_lines_likewise() {
    let place = Place::new();
    let text = "{\"t\": \"13/02/2012 10:00\", \"v\": 1}\n{\"t\": \"01/03/2012 10:00\", \"v\": 2}\n";
    let ended = import(&place, "t.jsonl", text, &["--time", "t"]);
    assert!(ended.err.contains("t is timestamp, day first"), "{ended:?}");
    ended.ok();
    assert_eq!(
        place.sql("SELECT * FROM t"),
        "t,v\n2012-02-13T10:00:00,1\n2012-03-01T10:00:00,2\n"
    );
    let message = import(&Place::new(), "t.json", "[1,\n2]\n", &[]).fails(1);
    assert!(message.contains("no JSON object in its list"), "{message}");
    let message = import(&Place::new(), "t.jsonl", "{\"t\": \"01/02/2012\"}\n", &[]).fails(1);
    assert!(message.contains("--time-format"), "{message}");
    let place = Place::new();
    let mut text = String::new();
    (0..110_000).for_each(|row| {
        text.push_str(&format!(
            "{{\"t\": {}, \"v\": {row}}}\n",
            1_662_858_720_000_i64 + row
        ))
    });
    text.push_str("{\"t\": 1662858720000, \"v\": 0.5}\n");
    let ended = import(
        &place,
        "t.jsonl",
        text,
        &["--time", "t", "--time-unit", "ms"],
    );
    assert!(ended.err.contains("no longer bigint"), "{ended:?}");
    ended.ok();
    assert_eq!(
        place.sql("SELECT count(*) AS n, min(t) AS t, sum(v) AS s FROM t"),
        "n,t,s\n110001,2022-09-11T01:12:00,6049945000.5\n"
    );
}

#[test]
fn several_files_are_one_import() {
    let place = Place::new();
    let one = place.file("one.csv", "ts,v\n1,10\n2,20\n");
    let two = place.file("two.csv", "v;ts\n2,5;3\n");
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    let call = |files: &[&str]| {
        let more = ["--table", "t", "--create", "--time", "ts", "--decimal", ","];
        place.run([&["import", "db"], files, &more].concat())
    };
    let ended = call(&[one, two]);
    assert!(ended.err.contains("imported 3 rows"), "{ended:?}");
    ended.ok();
    assert_eq!(
        place.sql("SELECT * FROM t"),
        "ts,v\n1,10.0\n2,20.0\n3,2.5\n"
    );
    let bad = place.file("bad.csv", "ts,v\n4,many\n");
    let message = call(&[one, bad.to_str().unwrap()]).fails(1);
    assert!(
        message.contains("bad.csv: ") && message.contains("line 2"),
        "{message}"
    );
    let other = place.file("other.csv", "ts,w\n4,1\n");
    let message = call(&[one, other.to_str().unwrap()]).fails(1);
    assert!(message.contains("other.csv has other columns"), "{message}");
    assert_eq!(place.sql("SELECT count(*) AS n FROM t"), "n\n3\n");
}

#[test]
fn standard_input_can_begin_again() {
    let place = Place::new();
    let mut text = String::from("a\n");
    (0..150_000).for_each(|row| text.push_str(&format!("{row}\n")));
    text.push_str("0.5\n");
    let call = ["import", "db", "-", "--table", "t", "--create"];
    place.run_with(call, &text).ok();
    assert_eq!(
        place.sql("SELECT count(*) AS n, max(a) AS m FROM t"),
        "n,m\n150001,149999.0\n"
    );
}
