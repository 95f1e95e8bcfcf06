//! `--filename`, and folders in the place of files.

use crate::{Ended, Place};

/// Imports files, each with its text, into the table `t`.
fn import(place: &Place, files: &[(&str, &str)], more: &[&str]) -> Ended {
    let paths: Vec<_> = files
        .iter()
        .map(|(name, text)| place.file(name, text))
        .collect();
    let paths = paths.iter().map(|path| path.to_str().unwrap());
    let call = ["import", "db", "--table", "t"];
    place.run(call.into_iter().chain(paths).chain(more.iter().copied()))
}

const FILES: [(&str, &str); 2] = [
    ("17.csv", "ts,v\n2024-01-01,1\n2024-01-02,2\n"),
    ("2024-02-01.CSV", "v,ts\n3,2024-01-03\n"),
];
const ROWS: &str = "ts,v,sensor\n2024-01-01,1,17\n2024-01-02,2,17\n2024-01-03,3,2024-02-01\n";

#[test]
fn the_name_of_the_file_is_a_column() {
    let place = Place::new();
    let more = ["--create", "--time", "ts", "--filename", "sensor"];
    let ended = import(&place, &FILES, &more);
    assert!(
        ended.err.contains("sensor is varchar\n") && ended.err.contains("17.csv: 2 columns"),
        "{ended:?}"
    );
    ended.ok();
    assert_eq!(place.sql("SELECT * FROM t"), ROWS);
    // The same in a table that is there, from a shell too, and by another case of its name.
    let second = Place::new();
    second.sql("CREATE TABLE t (sensor VARCHAR, ts DATE, v BIGINT) WITH (time = 'ts')");
    import(&second, &FILES[..1], &["--filename", "Sensor"]).ok();
    let file = second.file("2024-02-01.CSV", FILES[1].1);
    let line = format!(".import {} t --filename sensor --create\n", file.display());
    let ended = second.run_with(["db"], line);
    assert!(!ended.err.contains("by the file"), "{ended:?}");
    ended.ok();
    assert_eq!(second.sql("SELECT ts, v, sensor FROM t"), ROWS);
    // Without a header columns are those of the table in their order, but for this one.
    let third = Place::new();
    third.sql("CREATE TABLE t (sensor VARCHAR, ts DATE, v BIGINT) WITH (time = 'ts')");
    let rows = [("s.json.csv", "2024-01-01,1\n")];
    import(&third, &rows, &["--filename", "sensor", "--no-header"]).ok();
    let stored = third.sql("SELECT * FROM t");
    assert_eq!(stored, "sensor,ts,v\ns.json,2024-01-01,1\n");
}

#[test]
fn names_of_files_beside_other_options() {
    let place = Place::new();
    let json = [("s1.jsonl", "{\"v\":1}\n{\"v\":2,\"w\":3}\n")];
    let more = ["--create", "--filename", "file", "--type", "file=varchar"];
    import(&place, &json, &more).ok();
    assert_eq!(place.sql("SELECT * FROM t"), "v,w,file\n1,,s1\n2,3,s1\n");
    let place = Place::new();
    let files = [("a.csv", "Date,Time,v\n2024-01-01,10:00,1\n")];
    let more = ["--create", "--filename", "f", "--time", "Date,Time"];
    import(&place, &files, &more).ok();
    assert_eq!(
        place.sql("SELECT * FROM t"),
        "Date_Time,v,f\n2024-01-01T10:00:00,1,a\n"
    );
    let place = Place::new();
    let files = [("7.csv", "v\n1\n")];
    let more = ["--create", "--filename", "n", "--type", "n=bigint"];
    import(&place, &files, &more).ok();
    assert_eq!(place.sql("SELECT n + 1 AS n FROM t"), "n\n8\n");
}

#[test]
fn names_that_are_taken_or_missing_are_refused() {
    let place = Place::new();
    let more = ["--create", "--filename", "V"];
    let message = import(&place, &FILES[..1], &more).fails(2);
    assert!(message.contains("has a column \"V\" itself"), "{message}");
    let call = [
        "import",
        "db",
        "-",
        "--table",
        "t",
        "--create",
        "--filename",
        "f",
    ];
    let message = place.run_with(call, "v\n1\n").fails(2);
    assert!(message.contains("standard input has no name"), "{message}");
    let call = ["import", "db", "x.csv", "--table", "t", "--filename", " "];
    assert_eq!(place.run(call).status, 2);
    assert!(!place.db.exists());
    place.sql("CREATE TABLE t (ts DATE, v BIGINT)");
    let message = import(&place, &FILES[..1], &["--filename", "sensor"]).fails(1);
    assert!(message.contains("no column \"sensor\""), "{message}");
}

#[test]
fn a_folder_is_met_with_what_to_type() {
    let place = Place::new();
    let folder = place.folder.path().join("my files");
    std::fs::create_dir(&folder).unwrap();
    let path = format!("{}/", folder.display());
    let message = place
        .run(["import", "db", &path, "--table", "t", "--create"])
        .fails(1);
    let wanted = format!(
        "is a folder, not a file: thalweg import DATABASE '{}'/*.csv --table TABLE",
        folder.display()
    );
    assert!(message.contains(&wanted), "{message}");
}
