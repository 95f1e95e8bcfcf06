//! Imports that are killed with signal 9: a new table is there with all its rows or not at all, and one that was there before
//! has all rows of the import or none.

use crate::Place;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROWS: u64 = 150_000;
/// How long a process may take to get where it is to be killed.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

/// A file of more rows than types are inferred from. In the middle of it, values of the column `reading` are texts.
fn file(place: &Place, bad_rows: u64) -> PathBuf {
    let mut text = String::from("ts,reading\n");
    for row in 0..ROWS {
        text.push_str(&format!("{row},{}\n", row % 7));
        if row == ROWS / 2 {
            (0..bad_rows).for_each(|bad| text.push_str(&format!("{bad},nothing\n")));
        }
    }
    place.file("long.csv", text)
}

fn import(place: &Place, file: &Path, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .arg("import")
        .args([&place.db, file])
        .args(["--table", "t"])
        .args(more)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn kill(mut child: Child) {
    // It may have ended already.
    let _ = child.kill();
    child.wait().unwrap();
}

/// Kills an import so long after its start, or lets it end before.
fn killed_after(mut child: Child, after: Duration) {
    let start = Instant::now();
    while start.elapsed() < after && child.try_wait().unwrap().is_none() {
        std::thread::sleep(PAUSE);
    }
    kill(child);
}

/// Nobody sees the table: a reader before the next writer, that writer, and whoever checks the database.
#[track_caller]
fn has_no_table(place: &Place) {
    let stats = place.run(["stats", "db"]).ok();
    assert_eq!(stats.lines().count(), 1, "{stats}");
    let checked = place.run(["verify", "db"]).ok();
    assert!(checked.contains("checked 0 rows of 0 tables"), "{checked}");
    assert_eq!(place.sql("SHOW TABLES"), "name\n");
    let message = place
        .run(["sql", "db", "INSERT INTO t VALUES (1, 2)"])
        .fails(1);
    assert!(message.contains("there is no table \"t\""), "{message}");
}

fn count(place: &Place) -> String {
    place.sql("SELECT count(*) AS n FROM t")
}

#[test]
fn a_killed_import_leaves_no_part_of_its_table() {
    let place = Place::new();
    let file = file(&place, 0);
    let all = format!("n\n{ROWS}\n");
    for after_ms in [2, 10, 20, 30, 40, 60, 80, 120, 200, 400] {
        let child = import(&place, &file, &["--create"]);
        killed_after(child, Duration::from_millis(after_ms));
        let read = place.run(["sql", "db", "SELECT count(*) AS n FROM t"]);
        match read.status {
            0 => assert_eq!(read.out, all, "{after_ms}"),
            // The same call works afterwards.
            _ => assert!(
                import(&place, &file, &["--create"])
                    .wait()
                    .unwrap()
                    .success()
            ),
        }
        assert_eq!(count(&place), all, "{after_ms}");
        assert_eq!(place.sql("SHOW TABLES"), "name\nt\n", "{after_ms}");
        place.sql("DROP TABLE t");
    }
}

#[test]
fn a_killed_import_into_a_table_stores_all_rows_or_none() {
    let place = Place::new();
    place.sql("CREATE TABLE t (ts BIGINT, reading BIGINT) WITH (time = 'ts')");
    let file = file(&place, 0);
    let mut before = 0;
    for after_ms in [10, 20, 40, 60, 80, 120, 200] {
        killed_after(import(&place, &file, &[]), Duration::from_millis(after_ms));
        let found = count(&place);
        let now = found.lines().nth(1).unwrap().parse().unwrap();
        assert!(
            now == before || now == before + ROWS,
            "{after_ms}: {before}, then {now}"
        );
        before = now;
    }
}

/// The import waits for whoever reads its rejects, first when it opens the pipe and then when that is full.
fn pipe(place: &Place) -> PathBuf {
    let path = place.folder.path().join("rejects");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    path
}

fn import_with_rejects(place: &Place, rejects: &Path) -> Child {
    let file = file(place, 20_000);
    let rejects = rejects.to_str().unwrap();
    let more = ["--create", "--type", "reading=bigint", "--rejects", rejects];
    import(place, &file, &more)
}

/// Whether the log has the definition of the table.
fn has_definition(db: &Path) -> bool {
    let Ok(log) = std::fs::read_dir(db.join("log")) else {
        return false;
    };
    let files = log.map(|entry| std::fs::read(entry.unwrap().path()).unwrap_or_default());
    let name = b"reading";
    files
        .into_iter()
        .any(|bytes| bytes.windows(name.len()).any(|window| window == name))
}

#[test]
fn an_import_killed_between_its_table_and_the_first_rows_leaves_nothing() {
    let place = Place::new();
    let rejects = pipe(&place);
    for _ in 0..2 {
        let mut child = import_with_rejects(&place, &rejects);
        let start = Instant::now();
        while !has_definition(&place.db) {
            assert!(start.elapsed() < PATIENCE && child.try_wait().unwrap().is_none());
            std::thread::sleep(PAUSE);
        }
        kill(child);
        has_no_table(&place);
        // Else the log of the next one has the definition from its start.
        std::fs::remove_dir_all(&place.db).unwrap();
    }
}

#[test]
fn an_import_killed_amid_its_rows_leaves_nothing() {
    let place = Place::new();
    let rejects = pipe(&place);
    for _ in 0..2 {
        let child = import_with_rejects(&place, &rejects);
        let mut pipe = std::fs::File::open(&rejects).unwrap();
        // Of the rows that come then more are bad than the pipe holds.
        pipe.read_exact(&mut [0]).unwrap();
        kill(child);
        drop(pipe);
        has_no_table(&place);
    }
    let file = file(&place, 0);
    assert!(
        import(&place, &file, &["--create"])
            .wait()
            .unwrap()
            .success()
    );
    assert_eq!(count(&place), format!("n\n{ROWS}\n"));
}
