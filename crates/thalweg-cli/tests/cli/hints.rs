//! Advice in the messages of imports, tried out.

use crate::{Ended, Place};

fn import(place: &Place, name: &str, text: impl AsRef<[u8]>, more: &[&str]) -> Ended {
    let file = place.file(name, text);
    let arguments = ["import", "db", file.to_str().unwrap(), "--table", "t"];
    place.run(arguments.iter().chain(more))
}

fn created(place: &Place, name: &str, text: impl AsRef<[u8]>, more: &[&str]) -> String {
    let ended = import(place, name, text, &[&["--create"], more].concat());
    assert_eq!(ended.status, 0, "{ended:?}");
    ended.err
}

#[test]
fn a_value_that_needs_a_wider_type_is_met_with_it() {
    for (first, next, wider) in [
        ("v\n1\n", "v\n1.5\n", "double"),
        ("v\n2024-01-01\n", "v\n2024-01-01 12:00\n", "timestamp"),
        ("v\n1.5\n", "v\nA12\n", "varchar"),
    ] {
        let place = Place::new();
        created(&place, "a.csv", first, &[]);
        let message = import(&place, "b.csv", next, &[]).fails(1);
        let advice = format!("--type v={wider} with --create");
        let (at, rejects) = (message.find(&advice), message.find("--rejects"));
        assert!(at.is_some() && at < rejects, "{message}");
        let cast = format!(
            "SELECT * REPLACE (CAST(v AS {}) AS v) FROM t",
            wider.to_uppercase()
        );
        assert!(message.contains(&cast), "{message}");
        place.sql(&format!("CREATE TABLE wider AS {cast}; DROP TABLE t"));
        place.sql("CREATE TABLE t AS SELECT * FROM wider");
        import(&place, "b.csv", next, &[]).ok();
        assert_eq!(place.sql("SELECT count(v) AS n FROM t"), "n\n2\n");
    }
}

#[test]
fn a_table_that_no_column_orders_is_told() {
    let place = Place::new();
    let told = created(&place, "a.csv", "v,ts\n1,2024-01-01\n", &[]);
    assert!(
        told.contains("rows keep the order of the file: --time ts orders them"),
        "{told}"
    );
    let place = Place::new();
    let told = created(&place, "a.csv", "v,w\n1,2\n", &[]);
    assert!(
        told.contains("as no column is a time: --time COLUMN"),
        "{told}"
    );
    let place = Place::new();
    let told = created(
        &place,
        "a.csv",
        "Year,Month,day,hour,v\n2024,3,4,5,1.5\n",
        &[],
    );
    let begin = told.find("CREATE TABLE other").unwrap();
    let end = told.find(" FROM the table").unwrap();
    place.sql(&format!("{} FROM t", &told[begin..end]));
    assert_eq!(
        place.sql("SELECT ts, v FROM other"),
        "ts,v\n2024-03-04T05:00:00,1.5\n"
    );
    let place = Place::new();
    let told = created(&place, "a.csv", "v,ts\n1,2024-01-01\n", &["--time", "ts"]);
    assert!(!told.contains("rows keep"), "{told}");
}

#[test]
fn lines_that_are_no_rows_are_met_with_what_leaves_them_out() {
    let place = Place::new();
    // A separator at the end of the header and of each row makes no column; a last line of blanks is no row.
    created(&place, "a.csv", "a;b;\n1;2;\n3;4;\n  \n", &[]);
    assert_eq!(place.sql("SELECT * FROM t"), "a,b\n1,2\n3,4\n");
    let place = Place::new();
    created(&place, "a.csv", "a;b;\n1;2;\n3;4;x\n", &[]);
    assert_eq!(place.sql("SELECT column2 AS c FROM t"), "c\n\"\"\nx\n");
    let place = Place::new();
    let title = "Station Oslo\na,b,c\n1,2,3\n";
    let message = import(&place, "b.csv", title, &["--create"]).fails(1);
    assert!(message.contains("--skip LINES"), "{message}");
    created(&place, "b.csv", title, &["--skip", "1"]);
    assert_eq!(place.sql("SELECT * FROM t"), "a,b,c\n1,2,3\n");
    let titles = "Station Oslo\nmade in 2024\na,b,c\n1,2,3\n";
    let message = import(&Place::new(), "d.csv", titles, &["--create"]).fails(1);
    assert!(message.contains("--skip LINES"), "{message}");
    let footer = "a,b,c\n1,2,3\n# end of data\n";
    let message = import(&place, "c.csv", footer, &[]).fails(1);
    assert!(
        message.contains("--rejects") && !message.contains("--null-padding"),
        "{message}"
    );
}

#[test]
fn times_that_stay_text_say_why() {
    for (value, wanted) in [
        ("2024-01-01 12:00:00 CET", "CET is the name of a zone"),
        ("2024-01-01T12:00:00Z[UTC]", "a zone in brackets"),
        ("31.12.24 12:00", "'%d.%m.%y %H:%M'"),
    ] {
        let place = Place::new();
        let text = format!("ts,v\n{value},1\n{value},2\n");
        let told = created(&place, "a.csv", &text, &[]);
        assert!(told.contains(wanted), "{value}: {told}");
        let pattern = told.split('\'').find(|part| part.starts_with('%')).unwrap();
        let place = Place::new();
        created(
            &place,
            "a.csv",
            &text,
            &["--time", "ts", "--time-format", pattern],
        );
        assert!(
            place
                .sql("SELECT min(ts) AS m FROM t")
                .contains("T12:00:00"),
            "{pattern}"
        );
    }
    let place = Place::new();
    let message = import(
        &place,
        "a.csv",
        "ts\n1\n",
        &["--create", "--time-format", "%Y %Z"],
    );
    assert!(message.err.contains("%z reads offsets"), "{message:?}");
    let told = created(&place, "a.csv", "n\n18446744073709551615\n", &[]);
    assert!(told.contains("--type n=ubigint holds it"), "{told}");
}

#[test]
fn a_text_among_numbers_of_json_is_named() {
    let place = Place::new();
    let text =
        "{\"a\": 1, \"b\": \"x\"}\n{\"a\": \"NA\", \"b\": \"NA\"}\n{\"a\": 2.5, \"b\": \"y\"}\n";
    let told = created(&place, "a.json", text, &[]);
    assert!(
        told.contains("a is varchar because of 'NA' (line 2): --null NA"),
        "{told}"
    );
    let place = Place::new();
    created(&place, "a.json", text, &["--null", "NA"]);
    assert_eq!(
        place.sql("SELECT sum(a) AS s, count(b) AS n FROM t"),
        "s,n\n3.5,2\n"
    );
}

#[test]
fn text_in_utf_16_is_named() {
    for bytes in [&b"\xFF\xFEa\0\n\0"[..], b"\xFE\xFF\0a\0\n"] {
        let message = import(&Place::new(), "a.csv", bytes, &["--create"]).fails(1);
        assert!(message.contains("iconv -f utf-16 -t utf-8"), "{message}");
    }
}

#[test]
fn packings_that_are_not_read_are_named() {
    let mut tar = vec![0; 1_024];
    tar[..5].copy_from_slice(b"a.csv");
    tar[257..262].copy_from_slice(b"ustar");
    for (name, bytes, packing) in [
        ("a.csv.xz", b"\xFD7zXZ\x00\x00\x04".to_vec(), "packed by xz"),
        (
            "a.csv.bz2",
            b"BZh91AY&SY\xa0\x01".to_vec(),
            "packed by bzip2",
        ),
        ("a.tar", tar, "a tar archive"),
    ] {
        let place = Place::new();
        let message = import(&place, name, bytes, &["--create"]).fails(1);
        assert!(
            message.contains(packing) && message.contains(".gz"),
            "{message}"
        );
    }
}
