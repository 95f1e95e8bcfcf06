//! Tasks of scans that other processes run while the one that made them appends, deletes, merges and cleans.

use crate::roles::{Place, TABLE};
use crate::{random, setting};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thalweg::arrow_array::cast::AsArray;
use thalweg::arrow_array::types::{Float64Type, Int64Type};
use thalweg::arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use thalweg::{CreateOptions, Database, Durability, ErrorKind, Scan, ScanRequest, ScanTask, Table};

const RUNNERS: usize = 2;

/// Rows of a scan in their order, as one number.
fn digest(scan: Scan) -> Result<(u64, u64), ErrorKind> {
    let (mut rows, mut digest) = (0_u64, 0_u64);
    for batch in scan {
        let batch = batch.map_err(|error| error.kind())?;
        let times = batch.column(0).as_primitive::<Int64Type>().values();
        let values = batch.column(1).as_primitive::<Float64Type>().values();
        for (time, value) in times.iter().zip(values) {
            let row = time.cast_unsigned() ^ value.to_bits().rotate_left(17);
            digest = (digest ^ row).wrapping_mul(0x0100_0000_01b3).rotate_left(5);
        }
        rows += batch.num_rows() as u64;
    }
    Ok((rows, digest))
}

fn shown(answer: Result<(u64, u64), ErrorKind>) -> String {
    let mut text = String::new();
    match answer {
        Ok((rows, digest)) => write!(text, "{rows} {digest:x}"),
        Err(kind) => write!(text, "{kind:?}"),
    }
    .unwrap();
    text
}

/// A process that runs tasks; killed when this is dropped, also by a failing test.
struct Runner(Child);

impl Drop for Runner {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Where messages to a runner lie, and its answers.
fn folder(database: &Path) -> PathBuf {
    database.with_extension("tasks")
}

/// Writes a file that nobody sees in part.
fn put(path: &Path, content: &[u8]) {
    let draft = path.with_extension("draft");
    fs::write(&draft, content).unwrap();
    fs::rename(draft, path).unwrap();
}

/// The role of a runner: it answers each message in the folder, until it is killed.
pub(crate) fn run_tasks(place: &Place) {
    let runner = setting("THALWEG_READER", 0);
    let folder = folder(&place.database);
    let open = || {
        let builder = Database::builder().read_only(true).threads(1);
        builder.open(&place.database).unwrap()
    };
    let mut db = open();
    for number in 0_u64.. {
        let message = folder.join(format!("{runner}-{number}.task"));
        let bytes = loop {
            match fs::read(&message) {
                Ok(bytes) => break bytes,
                Err(_) => std::thread::sleep(Duration::from_micros(200)),
            }
        };
        // A task must not depend on how much of the log this process has seen.
        if number % 7 == 3 {
            db = open();
        } else if number % 3 == 1 {
            let _ = db.table(TABLE).and_then(|table| table.view());
        }
        let task = ScanTask::decode(db.engine(), &bytes).unwrap();
        let answer = task.run().map_err(|error| error.kind()).and_then(digest);
        put(&message.with_extension("answer"), shown(answer).as_bytes());
    }
}

/// Sends a task to a runner and waits for its answer.
fn asked(place: &Place, runner: usize, number: u64, task: &[u8]) -> String {
    let message = folder(&place.database).join(format!("{runner}-{number}.task"));
    put(&message, task);
    answer(&message)
}

fn answer(message: &Path) -> String {
    let start = Instant::now();
    loop {
        match fs::read_to_string(message.with_extension("answer")) {
            Ok(answer) => return answer,
            Err(_) => std::thread::sleep(Duration::from_micros(200)),
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no answer");
    }
}

fn batch(first: i64, rows: i64, late: i64) -> RecordBatch {
    let times = (first..first + rows).map(|n| if late > 0 && n % 20 == 0 { n - late } else { n });
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("ts", Arc::new(Int64Array::from_iter_values(times))),
        (
            "value",
            Arc::new(
                (first..first + rows)
                    .map(|n| n as f64)
                    .collect::<Float64Array>(),
            ),
        ),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Appends, deletes, merges and lets the database clean, until it is told to stop.
fn disturb(db: &Database, table: &Table, is_over: &AtomicBool, mut random: fastrand::Rng) {
    let mut next = 200_000;
    while !is_over.load(Ordering::Acquire) {
        let rows = [1, 30, 3_000, 60_000][random.usize(0..4)];
        let durability = [Durability::Process, Durability::Disk][random.usize(0..2)];
        table
            .append([Ok(batch(next, rows, 2_000))], Some(durability))
            .unwrap();
        next += rows;
        if random.u8(0..4) == 0 {
            let first = random.i64(0..next);
            table
                .delete_range((first..=first + 700).into(), None)
                .unwrap();
        }
        match random.u8(0..16) {
            0 => {
                table.maintain().unwrap();
            }
            1 => db.checkpoint().unwrap(),
            _ => {}
        }
        std::thread::sleep(Duration::from_micros(random.u64(0..3_000)));
    }
}

fn files(database: &Path) -> BTreeSet<OsString> {
    let listed = ["data", "log"]
        .iter()
        .filter_map(|name| fs::read_dir(database.join(name)).ok());
    listed
        .flatten()
        .map(|file| file.unwrap().file_name())
        .collect()
}

#[test]
fn tasks_run_in_other_processes_beside_a_writer() {
    let seconds = setting("THALWEG_TASKS_SECONDS", 4);
    let mut random = random("tasks");
    let folder_of_test = tempfile::tempdir().unwrap();
    let place = Place {
        database: folder_of_test.path().join("plant.tl"),
        largest_rows: 0,
        pause_ms: 0,
    };
    fs::create_dir(folder(&place.database)).unwrap();
    // Pins of runners that rest are passed soon; tasks are kept by the snapshots of this process, however old.
    let builder = Database::builder().threads(2);
    let builder = builder.max_snapshot_age(Duration::from_millis(200));
    let db = builder.open(&place.database).unwrap();
    let table = db
        .create_table(
            TABLE,
            &batch(0, 1, 0).schema(),
            &CreateOptions::stream("ts"),
        )
        .unwrap();
    table.append([Ok(batch(0, 200_000, 0))], None).unwrap();
    let started = (0..RUNNERS).map(|n| Runner(place.start("task runner", n)));
    let runners: Vec<Runner> = started.collect();
    let before = files(&place.database);
    let is_over = AtomicBool::new(false);
    let mut sent = 0;
    std::thread::scope(|scope| {
        let random_of_writer = random.fork();
        scope.spawn(|| disturb(&db, &table, &is_over, random_of_writer));
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(seconds) {
            let view = table.view().unwrap();
            let first = random.i64(-10..300_000);
            let request = ScanRequest {
                keys: match random.u8(0..3) {
                    0 => (first..=first + random.i64(0..50_000)).into(),
                    _ => ScanRequest::default().keys,
                },
                ..ScanRequest::default()
            };
            let tasks = view.scan_tasks(&request, RUNNERS).unwrap();
            let scans = view.scan_partitions(&request, RUNNERS).unwrap();
            drop(view);
            // The files that tasks name are merged and cleaned meanwhile.
            std::thread::sleep(Duration::from_millis(random.u64(0..60)));
            for (runner, task) in tasks.iter().enumerate() {
                let message = task.encode().unwrap();
                put(
                    &folder(&place.database).join(format!("{runner}-{sent}.task")),
                    &message,
                );
            }
            let expected: Vec<String> = scans.into_iter().map(|scan| shown(digest(scan))).collect();
            for (runner, expected) in expected.iter().enumerate() {
                let message = folder(&place.database).join(format!("{runner}-{sent}.task"));
                assert_eq!(answer(&message), *expected, "task {sent} of {request:?}");
            }
            for runner in tasks.len()..RUNNERS {
                let again = tasks[0].encode().unwrap();
                assert_eq!(asked(&place, runner, sent, &again), expected[0]);
            }
            sent += 1;
        }
        is_over.store(true, Ordering::Release);
    });
    let removed = before.difference(&files(&place.database)).count();
    println!("{sent} scans in {RUNNERS} tasks each, {removed} of the first files removed");
    assert!(sent > 0);
    check_forgotten_task(&place, &db, &table, sent);
    drop(runners);
    place.ledger().assert_no_failure();
    db.close().unwrap();
}

/// A task whose maker has let go of it finds its files, or says that they are gone; it shows nothing else.
fn check_forgotten_task(place: &Place, db: &Database, table: &Table, first_number: u64) {
    let view = table.view().unwrap();
    let task = view
        .scan_tasks(&ScanRequest::default(), 1)
        .unwrap()
        .remove(0);
    let expected = shown(digest(task.run().unwrap()));
    let message = task.encode().unwrap();
    assert_eq!(asked(place, 0, first_number, &message), expected);
    drop((view, task));
    table.drop_table().unwrap();
    let other = db
        .create_table("other", &table.schema(), &CreateOptions::stream("ts"))
        .unwrap();
    let start = Instant::now();
    for number in first_number + 1.. {
        let first = i64::try_from(number).unwrap() * 50_000;
        other.append([Ok(batch(first, 50_000, 0))], None).unwrap();
        db.checkpoint().unwrap();
        let found = asked(place, 0, number, &message);
        if found == "SnapshotExpired" {
            break;
        }
        assert_eq!(found, expected);
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "its files never went"
        );
    }
}
