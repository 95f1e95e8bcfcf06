//! `thalweg verify`, `thalweg stats` and `thalweg maintain`.

use crate::Place;
use std::path::{Path, PathBuf};

/// The segment of the log that has most bytes in it.
fn fullest_segment(place: &Place) -> PathBuf {
    let log = std::fs::read_dir(place.db.join("log"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let segment = log
        .filter(|path| path.extension().is_some_and(|end| end == "seg"))
        .max_by_key(|path| {
            std::fs::read(path)
                .unwrap()
                .iter()
                .filter(|byte| **byte != 0)
                .count()
        });
    segment.unwrap()
}

#[test]
fn damage_is_named_and_ends_with_1() {
    let place = Place::new();
    let mut text = String::from("ts,v\n");
    (0..60_000_u64)
        .for_each(|row| text.push_str(&format!("{row},{}\n", row * 2_654_435_761 % 1_000_003)));
    let file = place.file("t.csv", text);
    place
        .run([
            "import",
            "db",
            file.to_str().unwrap(),
            "--table",
            "t",
            "--create",
            "--time",
            "ts",
        ])
        .ok();
    let whole = place.run(["verify", "db"]).ok();
    assert!(
        whole.contains("60,000 rows of 1 table") && whole.contains("no damage"),
        "{whole}"
    );

    let segment = fullest_segment(&place);
    let mut bytes = std::fs::read(&segment).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end / 2] ^= 1;
    std::fs::write(&segment, bytes).unwrap();

    let ended = place.run(["verify", "db"]);
    let name = segment.file_name().unwrap().to_str().unwrap().to_owned();
    let first = ended.out.lines().next().unwrap_or_default().to_owned();
    assert!(
        first.contains(&name) && first.contains("offset") && first.contains("table \"t\""),
        "{ended:?}"
    );
    assert!(first.contains(" rows from "), "{ended:?}");
    ended.fails(1);
    let message = place
        .run(["sql", "db", "SELECT sum(v) FROM t WHERE v >= 0"])
        .fails(1);
    assert!(
        message.contains("damage") || message.contains("checksum"),
        "{message}"
    );
}

#[test]
fn a_repair_lists_what_it_gives_up_and_leaves_the_rest() {
    let place = Place::new();
    place.sql("CREATE TABLE a (ts BIGINT) WITH (layout = 'stream', time = 'ts'); CREATE TABLE b (x DOUBLE)");
    place.sql("INSERT INTO a VALUES (5), (7)");
    let clean = place.run(["verify", "db", "--repair"]).ok();
    assert!(clean.contains("nothing was changed"), "{clean}");

    std::fs::write(place.db.join("root"), [0x55; 8192]).unwrap();
    place.run(["verify", "db"]).fails(1);
    let ended = place.run(["verify", "db", "--repair"]);
    assert!(ended.out.contains("mended: root"), "{ended:?}");
    assert!(!ended.out.contains("given up: "), "{ended:?}");
    assert!(ended.fails(1).contains("is whole again"));
    place.run(["verify", "db"]).ok();
    let all = place.run(["stats", "db", "a"]).ok();
    assert!(
        all.lines().nth(1).unwrap().starts_with("a,stream,2,"),
        "{all}"
    );
}

/// Copies a database, which nobody has open.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => std::fs::copy(entry.path(), to).map(|_| ()).unwrap(),
        }
    }
}

/// The number that stands before a word.
#[track_caller]
fn number_before(line: &str, word: &str) -> u64 {
    let parts = line.split_once(word);
    assert!(parts.is_some(), "{word}: {line}");
    let (before, _) = parts.unwrap();
    let number = before.rsplit(' ').next().unwrap_or_default();
    number.replace(',', "").parse().unwrap()
}

#[test]
fn a_repair_sums_up_what_it_gives_up_where_that_is_much() {
    const ROWS: u64 = 600_000;
    let place = Place::new();
    place.sql("CREATE TABLE t (ts BIGINT, v BIGINT) WITH (time = 'ts'); CREATE TABLE other (ts BIGINT) WITH (time = 'ts')");
    place.sql(&format!(
        "INSERT INTO t SELECT value, value * 2654435761 % 1000003 FROM generate_series(1, {ROWS})"
    ));
    // Nearly all blocks of the first half, and every tenth or so of what follows.
    let segment = fullest_segment(&place);
    let mut bytes = std::fs::read(&segment).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let first_half = (end / 10..end / 2).step_by(1 << 12);
    let rest = (end / 2..end * 9 / 10).step_by(1 << 17);
    first_half.chain(rest).for_each(|place| bytes[place] ^= 1);
    std::fs::write(&segment, bytes).unwrap();
    let other = place.folder.path().join("other.thal");
    copy(&place.db, &other);

    let ended = place.run(["verify", "db", "--details"]);
    assert!(
        ended.status == 2 && ended.err.contains("--repair"),
        "{ended:?}"
    );
    let ended = place.run(["verify", "db", "--repair"]);
    assert_eq!(ended.status, 1, "{ended:?}");
    let given_up: Vec<&str> = ended
        .out
        .lines()
        .filter(|line| line.starts_with("given up: "))
        .collect();
    let (all, given_up) = given_up.split_first().unwrap();
    assert!((2..=20).contains(&given_up.len()), "{ended:?}");
    let sum = |word| {
        given_up
            .iter()
            .map(|line| number_before(line, word))
            .sum::<u64>()
    };
    let left = place.sql("SELECT count(*) AS n FROM t");
    let left: u64 = left.lines().nth(1).unwrap().parse().unwrap();
    assert_eq!(sum(" rows from "), ROWS - left, "{ended:?}");
    assert_eq!(number_before(all, " rows in all"), ROWS - left, "{all}");
    // Neighbours are one range: no row is left in the first one.
    let first = given_up[0].strip_prefix("given up: table \"t\", ").unwrap();
    let range = first
        .split_once(" from ")
        .unwrap()
        .1
        .split_once(", in ")
        .unwrap()
        .0;
    let (from, to) = range.split_once(" to ").unwrap();
    let inside = place.sql(&format!(
        "SELECT count(*) AS n FROM t WHERE ts BETWEEN {from} AND {to}"
    ));
    assert_eq!(inside, "n\n0\n", "{first}");
    assert!(number_before(first, " places") > 20, "{first}");

    let detailed = place.run(["verify", other.to_str().unwrap(), "--repair", "--details"]);
    let places = detailed
        .out
        .lines()
        .filter(|line| line.starts_with("given up: "));
    assert_eq!(places.count() as u64, sum(" place"), "{detailed:?}");
    let name = segment.file_name().unwrap().to_str().unwrap();
    assert!(
        detailed.out.contains(&format!("{name}, offset ")),
        "{detailed:?}"
    );
    place.run(["verify", "db"]).ok();
}

#[test]
fn rows_in_the_log_alone_are_not_counted_as_no_bytes() {
    let place = Place::new();
    place.sql("CREATE TABLE t (v BIGINT); INSERT INTO t VALUES (1)");
    let out = place.run(["verify", "db"]).ok();
    assert!(
        out.ends_with("no damage\n") && !out.contains("bytes"),
        "{out}"
    );
}

#[test]
fn nothing_to_verify_is_an_error() {
    let place = Place::new();
    for command in ["verify", "stats", "maintain"] {
        assert!(place.run([command, "db"]).fails(1).contains("no database"));
    }
    assert!(!place.db.exists());
    place.file("a.thal", "not a database");
    place.run(["verify", "db"]).fails(1);
    let folder = place.folder.path().to_str().unwrap();
    for call in [
        &["verify", folder][..],
        &["stats", folder],
        &["maintain", folder],
        &["sql", folder, "SELECT 1"],
    ] {
        let message = place.run(call).fails(1);
        assert!(message.contains("is no database"), "{call:?}: {message}");
    }
}

#[test]
fn stats_of_one_table() {
    let place = Place::new();
    place.sql("CREATE TABLE a (ts BIGINT) WITH (layout = 'stream', time = 'ts'); CREATE TABLE b (x DOUBLE)");
    place.sql("INSERT INTO a VALUES (5), (7)");
    let all = place.run(["stats", "db"]).ok();
    assert_eq!(all.lines().count(), 3, "{all}");
    let one = place.run(["stats", "db", "A"]).ok();
    assert!(
        one.lines().nth(1).unwrap().starts_with("a,stream,2,") && one.ends_with(",5,7\n"),
        "{one}"
    );
    assert!(place.run(["stats", "db", "c"]).fails(1).contains("\"c\""));
    // The rows of a table without times have numbers, which are no times.
    place.sql("INSERT INTO b VALUES (1), (2)");
    let row = place.run(["stats", "db", "b"]).ok();
    assert!(row.ends_with(",,\n"), "{row}");
}

#[test]
fn maintenance_puts_late_rows_in_order() {
    let place = Place::new();
    place.sql("CREATE TABLE t (ts BIGINT, v BIGINT) WITH (time = 'ts')");
    for first in [0, 5_000] {
        place.sql(&format!(
            "INSERT INTO t SELECT 2 * value + {first}, value FROM generate_series(1, 20000)"
        ));
    }
    let late_rows = || {
        let stats = place.run(["stats", "db", "t"]).ok();
        stats
            .lines()
            .nth(1)
            .unwrap()
            .split(',')
            .nth(7)
            .unwrap()
            .to_owned()
    };
    assert_ne!(late_rows(), "0");
    place.sql("CREATE TABLE few (ts BIGINT) WITH (time = 'ts'); INSERT INTO few VALUES (1), (2)");
    let few = place.run(["maintain", "db", "few"]);
    assert_eq!(few.err, "2 rows made into 1 block\n");
    let ended = place.run(["maintain", "db", "t"]);
    assert!(ended.err.contains("anew in"), "{ended:?}");
    assert_eq!(ended.ok(), "");
    assert_eq!(late_rows(), "0");
    assert_eq!(
        place.sql("SELECT count(*), sum(v) FROM t").lines().nth(1),
        Some("40000,400020000")
    );
    let again = place.run(["maintain", "db"]);
    assert!(again.err.contains("in order"), "{again:?}");
    assert!(
        place
            .run(["maintain", "db", "u"])
            .fails(1)
            .contains("\"u\"")
    );
}
