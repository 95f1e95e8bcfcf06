//! A reading process that is stopped while it holds a snapshot, for longer than a snapshot may be kept.

use crate::ledger::Ledger;
use crate::roles::{Place, TABLE};
use crate::rows;
use crate::{random, setting};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use thalweg::{CreateOptions, Database};

const AGE: Duration = Duration::from_millis(200);
/// The writer looks once in a second whether a snapshot is still in the way.
const STOPPED: Duration = Duration::from_millis(2500);
const BATCHES: u64 = 40;

pub(crate) const CHECKS: usize = 0;
const EXPIRED: usize = 1;

fn open(path: &Path, read_only: bool) -> Database {
    Database::builder()
        .read_only(read_only)
        .max_snapshot_age(AGE)
        .threads(1)
        .open(path)
        .unwrap()
}

#[test]
fn a_stopped_reader_keeps_no_files_and_gets_no_wrong_answer() {
    let stops = setting("THALWEG_STOPS", 5);
    let mut random = random("stopped");
    let folder = tempfile::tempdir().unwrap();
    let place = Place {
        database: folder.path().join("read.thal"),
        largest_rows: 200,
        pause_ms: 0,
    };
    let db = open(&place.database, false);
    let table = db
        .create_table(TABLE, &rows::schema(), &CreateOptions::stream("ts"))
        .unwrap();
    let mut next = 0;
    let mut append_and_maintain = || {
        for batch in next..next + BATCHES {
            let whole = rows::batch(0, batch, rows::rows_of(0, batch, place.largest_rows));
            table.append([Ok(whole)], None).unwrap();
        }
        next += BATCHES;
        table.maintain().unwrap();
    };
    append_and_maintain();
    let ledger = place.ledger();
    let mut reader = place.start("patient", 0);
    let signal = |name: &str, id: u32| {
        let sent = Command::new("kill").args([name, &id.to_string()]).status();
        assert!(sent.unwrap().success(), "kill {name}");
    };
    let mut removed = 0;
    for _ in 0..stops {
        std::thread::sleep(Duration::from_millis(random.u64(300..600)));
        let before = files(&place.database);
        signal("-STOP", reader.id());
        append_and_maintain();
        std::thread::sleep(STOPPED / 2);
        append_and_maintain();
        std::thread::sleep(STOPPED / 2);
        removed += before.difference(&files(&place.database)).count();
        signal("-CONT", reader.id());
    }
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        reader.try_wait().unwrap().is_none(),
        "the reader has failed"
    );
    reader.kill().unwrap();
    reader.wait().unwrap();
    ledger.assert_no_failure();
    let (checks, expired) = (ledger.checks_of(CHECKS), ledger.checks_of(EXPIRED));
    println!(
        "{stops} stops, {checks} checks, {expired} snapshots expired, {removed} files removed"
    );
    assert!(checks > 0 && expired > 0 && removed > 0);
    let there = rows::check(&table.view().unwrap(), place.largest_rows).unwrap();
    assert_eq!(there[0], next);
    db.close().unwrap();
}

fn files(database: &Path) -> BTreeSet<OsString> {
    let listed = std::fs::read_dir(database.join("data")).unwrap();
    listed.map(|file| file.unwrap().file_name()).collect()
}

/// The role of the reader: what a snapshot shows is right, or the error that says that it is too old. The next one works.
pub(crate) fn read_patiently(place: &Place, ledger: &Ledger) {
    let mut newest = 0;
    loop {
        // Nothing is open yet of what the snapshot shows.
        let db = open(&place.database, true);
        let view = db.table(TABLE).unwrap().view().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        match rows::check(&view, place.largest_rows) {
            Ok(there) => {
                assert!(there[0] >= newest, "{} is less than {newest}", there[0]);
                newest = there[0];
                ledger.count_check(CHECKS);
            }
            Err(error) if error.starts_with("SnapshotExpired") => ledger.count_check(EXPIRED),
            Err(error) => panic!("{error}"),
        }
    }
}
