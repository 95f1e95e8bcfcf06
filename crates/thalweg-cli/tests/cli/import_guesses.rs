//! Types and times that an import guesses, and the lines that name the options to change them.

use crate::Place;
use crate::import_options::{import, told};

#[test]
fn thousands_are_divided_by_a_sign() {
    for (text, more, wanted) in [
        (
            "a,b,c\n\"-1,234.5\",\"1,234,567\",x\n1.5,7,\"1,2\"\n",
            &["--thousands", ","][..],
            "-1234.5,1234567,x\n1.5,7,\"1,2\"\n",
        ),
        (
            "a;b;c\n1.234,5;1.234;1.2\n1,5;7;x\n",
            &["--thousands", "."],
            "1234.5,1234,1.2\n1.5,7,x\n",
        ),
        (
            "a,b,c\n1'234.5,1’234,x\n",
            &["--thousands", "'"],
            "1234.5,1234,x\n",
        ),
        (
            "a;b;c\n1 234,5;1\u{a0}234;x\n",
            &["--thousands", "space"],
            "1234.5,1234,x\n",
        ),
    ] {
        let place = Place::new();
        import(&place, "t.csv", text, more).ok();
        let rows = format!("a,b,c\n{wanted}");
        assert_eq!(place.sql("SELECT * FROM t"), rows, "{text:?}");
        assert_eq!(
            place.sql("SELECT typeof(a) AS a, typeof(b) AS b FROM t LIMIT 1"),
            "a,b\nDOUBLE,BIGINT\n"
        );
        // The table that is there takes them too.
        let file = place.folder.path().join("t.csv");
        let again = ["import", "db", file.to_str().unwrap(), "--table", "t"];
        let message = place.run(again).fails(1);
        assert!(message.contains("--thousands"), "{message}");
        place.run(again.iter().chain(more)).ok();
    }
    let message = import(
        &Place::new(),
        "t.csv",
        "a\n1\n",
        &["--thousands", ",", "--decimal", ","],
    );
    assert!(message.fails(2).contains("are both ,"));
}

#[test]
fn a_time_is_named_before_numbers_that_look_like_times() {
    for (text, wanted) in [
        (
            "taxi_id,day,at,v\n1704067200,2024-01-01,2024-01-01 10:00,1\n",
            "--time at orders",
        ),
        (
            "Date,Time,born\n2024-01-01,10:00:00,2000-01-01\n",
            "--time Date,Time orders",
        ),
        ("a b,Time\n2024-01-01,10:00\n", "--time 'a b,Time' orders"),
        ("day,note\n2024-01-01,x\n", "--time day orders"),
        (
            "d,clock\n20240101,10:00\n",
            "--time d,clock --time-format '%Y%m%d %H:%M' reads 20240101 10:00 as 2024-01-01T10:00\n",
        ),
        ("taxi_id,v\n1704067200,1\n", "as no column is a time"),
        (
            "taxi_id,start\n1704067200,1704067201\n",
            "--time start --time-unit s",
        ),
        (
            "value,startTime\n1704067200,1704067201\n",
            "--time startTime --time-unit s",
        ),
    ] {
        let told = told(text, &[]);
        assert!(told.contains(wanted), "{text:?}: {told}");
        assert!(
            !told.contains("--time taxi_id") && !told.contains("--time value"),
            "{told}"
        );
    }
}

#[test]
fn numbers_that_order_rows_are_told_at_the_end() {
    for (number, unit) in [
        ("1704067200", "s"),
        ("1704067200000", "ms"),
        ("1704067200000000", "us"),
        ("1704067200000000000", "ns"),
    ] {
        let place = Place::new();
        let text = format!("t,v\n{number},1\n");
        let told = import(&place, "t.csv", &text, &["--time", "t"]).err;
        let last = told.lines().last().unwrap();
        let option =
            format!("t is stored as a number: an import into a new table with --time-unit {unit}");
        assert!(last.starts_with(&option), "{told}");
        let begin = last.find("CREATE TABLE other").unwrap();
        let end = last.find(" makes a table").unwrap();
        place.sql(&last[begin..end]);
        let time = place.sql("SELECT CAST(t AS TIMESTAMP(0)) AS t FROM other");
        assert_eq!(time, "t\n2024-01-01T00:00:00\n");
    }
}

#[test]
fn few_zeros_in_front_leave_numbers() {
    let mut text = "zip,value\n".to_owned();
    for value in 0..100 {
        text.push_str(&format!("{:05},{}\n", value * 977, value * 37));
    }
    text.push_str("00501,007\n");
    let place = Place::new();
    let told = import(&place, "t.csv", &text, &[]).err;
    assert!(
        told.contains(
            "value is bigint without the zeros in front of '007' (line 102): --type value=varchar"
        ),
        "{told}"
    );
    assert_eq!(
        place.sql("SELECT min(zip) AS z, max(value) AS v, sum(value) AS s FROM t"),
        "z,v,s\n00000,3663,183157\n"
    );
}

#[test]
fn zeros_in_front_of_a_later_value_leave_numbers() {
    let mut text = "value\n".to_owned();
    for value in 0..150_000 {
        text.push_str(&format!("{value}\n"));
    }
    text.push_str("007\n");
    let place = Place::new();
    let told = import(&place, "t.csv", &text, &[]).err;
    assert!(
        told.contains("line 150002: column \"value\" has \"007\": the import begins again"),
        "{told}"
    );
    assert_eq!(
        place.sql("SELECT count(*) AS n, max(value) AS m FROM t"),
        "n,m\n150001,149999\n"
    );
}

#[test]
fn columns_of_rejected_rows_are_told() {
    let mut text = "code,v\n".to_owned();
    for row in 0..40 {
        let code = if row % 2 == 0 { "A12" } else { "12" };
        let value = if row == 7 { "oops" } else { "1.5" };
        text.push_str(&format!("{code},{value}\n"));
    }
    let place = Place::new();
    let rejects = place.folder.path().join("bad.csv");
    let told = import(
        &place,
        "t.csv",
        &text,
        &[
            "--type",
            "code=bigint",
            "--type",
            "v=double",
            "--rejects",
            rejects.to_str().unwrap(),
        ],
    )
    .err;
    assert!(
        told.ends_with(
            "  20 rows because of column \"code\", as \"A12\" in line 2: --type code=varchar stores them\n  \
             1 row because of column \"v\", as \"oops\" in line 9\n"
        ),
        "{told}"
    );
}

#[test]
fn a_clock_beside_the_date_that_orders_rows_is_named() {
    let text = "Date,Time,v\n2024-01-31,10:15:00,1\n";
    let said = told(text, &["--time", "Date"]);
    assert!(said.contains("--time Date,Time orders them"), "{said}");
}

#[test]
fn years_of_two_digits_name_the_pattern_beside_a_time_too() {
    let place = Place::new();
    let message = import(
        &place,
        "t.csv",
        "ts,v\n1/24/24 13:05,1\n",
        &["--time", "ts"],
    )
    .fails(1);
    assert!(message.contains("'%m/%d/%y %H:%M'"), "{message}");
}

#[test]
fn objects_of_json_that_are_written_otherwise_say_how() {
    for (text, wanted) in [
        ("{\"ts\":\"2024-01-01\",\"v\":NaN}\n", "write null"),
        ("{\n  \"v\": 1\n}\n", "jq -c . FILE"),
        ("{\"v\":1}{\"v\":2}\n", "jq -c . FILE"),
    ] {
        let message = import(&Place::new(), "t.jsonl", text, &[]).fails(1);
        assert!(message.contains(wanted), "{text:?}: {message}");
    }
}

/// Imports a file into a new table, bad rows into a file of rejects, and returns what the import prints.
fn rejected(text: &str, more: &[&str]) -> String {
    let place = Place::new();
    let rejects = place.folder.path().join("bad.csv");
    let rejects = ["--rejects", rejects.to_str().unwrap()];
    import(&place, "t.csv", text, &[&rejects, more].concat()).err
}

#[test]
fn a_rejected_row_counts_for_one_column() {
    let told = rejected(
        "ts,v\n2024-01-01,1\nbad,2\nworse,3\nbad,4\n",
        &["--time", "ts"],
    );
    assert!(
        told.ends_with("  3 rows because of column \"ts\", as \"bad\" in line 3\n"),
        "{told}"
    );
    // A header that is repeated is bad because of its time, wherever that stands.
    for (text, line) in [
        ("ts,v\n2024-01-01,1\nts,v\n2024-01-02,2\n", 3),
        ("v,ts\n1,2024-01-01\nv,ts\n2,2024-01-02\n", 3),
    ] {
        let told = rejected(text, &["--time", "ts"]);
        let wanted = format!("  1 row because of column \"ts\", as \"ts\" in line {line}\n");
        assert!(
            told.ends_with(&wanted) && !told.contains("column \"v\""),
            "{told}"
        );
    }
    // Of two columns that may be missing the first one counts.
    let told = rejected(
        "v,w\n1,2\nx,y\n3,z\n",
        &["--type", "v=double", "--type", "w=double"],
    );
    let [first, second] = ["\"v\", as \"x\" in line 3", "\"w\", as \"z\" in line 4"]
        .map(|column| format!("  1 row because of column {column}"));
    assert!(told.contains(&first) && told.contains(&second), "{told}");
    assert!(!told.contains("\"ts\": --type"), "{told}");
}

#[test]
fn options_that_come_too_late_are_refused() {
    for (text, option) in [
        ("ts,v\n2024-01-01,1\n2024-01-02,NA\n", &["--null", "NA"][..]),
        ("ts,v\n2024-01-01,\"1,234.5\"\n", &["--thousands", ","]),
        ("k,v\na,31.12.24\n", &["--time-format", "%d.%m.%y"]),
    ] {
        let place = Place::new();
        let told = import(&place, "t.csv", text, &[]).err;
        assert!(
            told.ends_with(
                "for other types: DROP TABLE t, then import again with the options above\n"
            ) || option[0] == "--time-format",
            "{told}"
        );
        let message = import(&place, "t.csv", text, option).fails(2);
        assert!(
            message.contains("column \"v\" is varchar, not ")
                && message.contains(&format!("as {} makes it: drop the table first", option[0])),
            "{message}"
        );
        let rows = place.sql("SELECT count(*) AS n FROM t");
        // Without --create texts are appended, and after a drop the table is made anew.
        let file = place.folder.path().join("t.csv");
        let call = ["import", "db", file.to_str().unwrap(), "--table", "t"];
        place.run(call.iter().chain(option)).ok();
        assert_ne!(place.sql("SELECT count(*) AS n FROM t"), rows);
        place.sql("DROP TABLE t");
        let told = import(&place, "t.csv", text, option).err;
        assert!(
            !told.contains("v is varchar") && !told.contains("other types"),
            "{told}"
        );
        // The next file of a table that was made so.
        import(&place, "t.csv", text, option).ok();
    }
    // Digits that are dates by the option.
    let place = Place::new();
    let digits = "d,v\n20240101,1\n20240102,2\n";
    import(&place, "t.csv", digits, &["--time", "d"]).ok();
    let format = ["--time-format", "%Y%m%d"];
    let more = [&["--time", "d"][..], &format].concat();
    let message = import(&place, "t.csv", digits, &more).fails(2);
    assert!(
        message.contains("its column \"d\" is bigint, not date as --time-format makes it")
            || message.contains("--time-format: table \"t\" exists, and none of the columns"),
        "{message}"
    );
    let file = place.folder.path().join("t.csv");
    let call = ["import", "db", file.to_str().unwrap(), "--table", "t"];
    let message = place.run(call.iter().chain(&format)).fails(2);
    assert!(
        message.contains("--time-format: table \"t\" exists, and none"),
        "{message}"
    );
    assert_eq!(place.sql("SELECT count(*) AS n FROM t"), "n\n2\n");
    // A unit of times that are texts.
    let place = Place::new();
    let texts = "t1,t2\n2026-01-01 00:00:00,1767225600\n";
    import(&place, "t.csv", texts, &["--time", "t1"]).ok();
    let message = import(&place, "t.csv", texts, &["--time-unit", "s"]).fails(2);
    assert!(
        message.contains("column \"t1\": --time-unit: \"2026-01-01 00:00:00\" is no number of s"),
        "{message}"
    );
    assert_eq!(place.sql("SELECT count(*) AS n FROM t"), "n\n1\n");
    import(
        &place,
        "u.csv",
        "t1,t2\n1767225601,5\n",
        &["--time-unit", "s"],
    )
    .ok();
    assert_eq!(
        place.sql("SELECT max(t1) AS t FROM t"),
        "t\n2026-01-01T00:00:01\n"
    );
    // Numbers of more digits than a float holds.
    let place = Place::new();
    let unit = ["--time-unit", "ns"];
    let more = [&["--time", "ts"][..], &unit].concat();
    import(&place, "n.csv", "ts,v\n1767225601123456789,1\n", &more).ok();
    import(&place, "o.csv", "ts,v\n1767225602123456789,1\n", &more).ok();
    assert_eq!(
        place.sql("SELECT max(ts) AS t FROM t"),
        "t\n2026-01-01T00:00:02.123456789\n"
    );
    // Texts that no option makes, in a table whose next file has numbers alone.
    let place = Place::new();
    let null = ["--null", "NA"];
    import(&place, "a.csv", "v\nopen\n1\nNA\n", &null).ok();
    import(&place, "b.csv", "v\n1\nNA\n", &null).ok();
    let place = Place::new();
    import(&place, "a.csv", "v,w\nNA,1\n", &null).ok();
    import(&place, "b.csv", "v,w\n1,1\n", &null).ok();
}
