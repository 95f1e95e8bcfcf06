//! One writing and six reading processes, all of them killed at random.

use crate::roles::{Place, TABLE};
use crate::rows::{self, missing};
use crate::{random, setting};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};
use thalweg::{CreateOptions, Database, ErrorKind};

const READERS: usize = 6;
/// How long one database is used, before it gets too large to be read as a whole each time.
const ROUND: Duration = Duration::from_secs(6);

/// Ends the processes also when a check fails.
struct Processes {
    writer: Option<Child>,
    readers: Vec<Child>,
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.readers.iter_mut().chain(&mut self.writer) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[derive(Debug, Default)]
struct Figures {
    checks: u64,
    reader_kills: u64,
    writer_kills: u64,
    refused_writers: u64,
}

#[test]
fn readers_see_what_was_acknowledged_whoever_dies() {
    let seconds = setting("THALWEG_READERS_SECONDS", 30);
    let mut random = random("readers");
    let (start, mut figures) = (Instant::now(), Figures::default());
    while start.elapsed() < Duration::from_secs(seconds) {
        let folder = tempfile::tempdir().unwrap();
        let place = Place {
            database: folder.path().join("read.thal"),
            largest_rows: 700,
            pause_ms: 4,
        };
        run_round(&place, &mut random, &mut figures);
    }
    println!("{figures:?}, 0 wrong answers");
    assert!(
        figures.checks > 0 && figures.refused_writers > 0,
        "nothing was tested: {figures:?}"
    );
}

fn run_round(place: &Place, random: &mut fastrand::Rng, figures: &mut Figures) {
    let db = Database::open(&place.database).unwrap();
    db.create_table(TABLE, &rows::schema(), &CreateOptions::stream("ts"))
        .unwrap();
    db.close().unwrap();
    drop(db);
    let link = place.database.with_extension("link");
    std::os::unix::fs::symlink(&place.database, &link).unwrap();
    // Made before anybody uses it.
    let ledger = place.ledger();
    let readers = (0..READERS)
        .map(|reader| place.start("reader", reader))
        .collect();
    let mut processes = Processes {
        writer: Some(place.start("writer", 0)),
        readers,
    };
    let start = Instant::now();
    while start.elapsed() < ROUND {
        std::thread::sleep(Duration::from_millis(random.u64(10..150)));
        match random.u8(..10) {
            0..5 => {
                let reader = random.usize(..READERS);
                end(&mut processes.readers[reader]);
                processes.readers[reader] = place.start("reader", reader);
                figures.reader_kills += 1;
            }
            5..7 => {
                processes.writer.iter_mut().for_each(end);
                std::thread::sleep(Duration::from_millis(random.u64(..100)));
                processes.writer = Some(place.start("writer", 0));
                figures.writer_kills += 1;
            }
            _ => {
                let alive = processes
                    .writer
                    .as_ref()
                    .map(|writer| u64::from(writer.id()));
                if alive == Some(ledger.writer()) {
                    refuse(if random.bool() {
                        &place.database
                    } else {
                        &link
                    });
                    figures.refused_writers += 1;
                }
            }
        }
    }
    processes
        .readers
        .iter_mut()
        .chain(&mut processes.writer)
        .for_each(end);
    ledger.assert_no_failure();
    figures.checks += ledger.checks(READERS);
    let db = Database::open(&link).unwrap();
    let there = rows::check(
        &db.table(TABLE).unwrap().view().unwrap(),
        place.largest_rows,
    )
    .unwrap();
    assert_eq!(missing(&there, &ledger.acknowledged()), None);
    assert!(db.verify(&mut |_| {}).unwrap().damage.is_empty());
    db.close().unwrap();
}

/// Kills a process that must still be at work: one that ended by itself has seen something wrong.
fn end(child: &mut Child) {
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "a process failed by itself");
}

fn refuse(path: &Path) {
    let error = Database::open(path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
}
