//! What is guessed of columns, and how the lines about it lead on.

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
