//! What the test program does as a child process.

use crate::ledger::Ledger;
use crate::rows::{self, Batches, THREADS, missing};
use crate::setting;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg::{CreateOptions, Database, Durability, ErrorKind, Result, Table, Value};

pub(crate) const TABLE: &str = "readings";
const ROLE: &str = "THALWEG_ROLE";
const DATABASE: &str = "THALWEG_DATABASE";
const LARGEST: &str = "THALWEG_LARGEST_ROWS";
const PAUSE: &str = "THALWEG_PAUSE_MS";
const READER: &str = "THALWEG_READER";

/// Where everything of one database lies.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) database: PathBuf,
    /// Batches have no more rows than this.
    pub(crate) largest_rows: u64,
    /// How long each thread waits between two batches, at most.
    pub(crate) pause_ms: u64,
}

impl Place {
    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::open(&self.database.with_extension("ledger"))
    }

    pub(crate) fn start(&self, role: &str, reader: usize) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["role", "--exact", "--nocapture", "--quiet"])
            .env(ROLE, role)
            .env(DATABASE, &self.database)
            .env(LARGEST, self.largest_rows.to_string())
            .env(PAUSE, self.pause_ms.to_string())
            .env(READER, reader.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }
}

pub(crate) fn run() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let place = Place {
        database: PathBuf::from(std::env::var_os(DATABASE).unwrap()),
        largest_rows: setting(LARGEST, 1),
        pause_ms: setting(PAUSE, 0),
    };
    let (ledger, report) = (place.ledger(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        ledger.note_failure();
        report(panic);
    }));
    match role.as_str() {
        "writer" => write(&place),
        "reader" => read(&place, usize::try_from(setting(READER, 0)).unwrap()),
        "forker" => crate::forks::hold_and_fork(&place),
        "patient" => crate::stopped::read_patiently(&place, &place.ledger()),
        "task runner" => crate::tasks::run_tasks(&place),
        other => panic!("no role {other}"),
    }
}

/// Opens for writing, waiting for another process that has it open for a moment.
fn open(path: &Path) -> Database {
    let start = Instant::now();
    loop {
        match Database::builder()
            .threads(2)
            .sync_interval(Duration::from_millis(50))
            .open(path)
        {
            Err(error)
                if error.kind() == ErrorKind::Locked
                    && start.elapsed() < Duration::from_secs(10) =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// Appends from several threads until it is killed, going on where the database ends.
fn write(place: &Place) {
    let db = open(&place.database);
    let table = match db.create_table(TABLE, &rows::schema(), &CreateOptions::stream("ts")) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => db.table(TABLE),
        made => made,
    };
    let table = table.unwrap();
    let ledger = Arc::new(place.ledger());
    let there = rows::check(&table.view().unwrap(), place.largest_rows).unwrap();
    if let Some(lost) = missing(&there, &ledger.acknowledged()) {
        panic!("after opening again: {lost}");
    }
    ledger.set_writer(std::process::id());
    std::thread::scope(|scope| {
        for (thread, first) in there.into_iter().enumerate() {
            let (db, table, ledger) = (&db, &table, Arc::clone(&ledger));
            scope.spawn(move || write_batches(place, thread, first, db, table, &ledger));
        }
    });
}

fn write_batches(
    place: &Place,
    thread: usize,
    first: u64,
    db: &Database,
    table: &Table,
    ledger: &Ledger,
) {
    for batch in first.. {
        let durability = match thread {
            0 => Durability::Disk,
            1 if batch % 2 == 0 => Durability::Disk,
            3 => Durability::Memory,
            _ => Durability::Process,
        };
        append(
            table,
            thread,
            batch,
            rows::rows_of(thread, batch, place.largest_rows),
            durability,
        )
        .unwrap();
        if durability == Durability::Memory {
            // Nothing is promised before the flush, and all of it after.
            if batch % 16 != 15 {
                continue;
            }
            db.flush().unwrap();
        }
        ledger.acknowledge(thread, batch + 1);
        if place.pause_ms > 0 {
            std::thread::sleep(Duration::from_micros(fastrand::u64(
                ..place.pause_ms * 1_000,
            )));
        }
    }
}

fn append(
    table: &Table,
    thread: usize,
    batch: u64,
    rows: u64,
    durability: Durability,
) -> Result<()> {
    let whole = rows::batch(thread, batch, rows);
    if rows > 1 {
        return table.append([Ok(whole)], Some(durability)).map(|_| ());
    }
    let int = |column: usize| rows::int(&whole, column);
    let noise = Value::UInt(rows::unsigned(&whole));
    table.put(&[int(0), int(1), int(2), int(3), noise], Some(durability))
}

/// Checks one view after the other until it is killed; anything wrong ends it with an error.
fn read(place: &Place, reader: usize) {
    let ledger = place.ledger();
    let mut newest: Batches = [0; THREADS];
    loop {
        let db = Database::builder()
            .read_only(true)
            .threads(1)
            .open(&place.database)
            .unwrap();
        let table = db.table(TABLE).unwrap();
        let mut kept = None;
        for round in 0..20 {
            let acknowledged = ledger.acknowledged();
            let view = match table.view() {
                // The writer was faster than the taking of the snapshot, and says so.
                Err(error) if error.kind() == ErrorKind::SnapshotExpired => continue,
                view => view.unwrap(),
            };
            let there = rows::check(&view, place.largest_rows).unwrap();
            if let Some(lost) = missing(&there, &acknowledged).or_else(|| missing(&there, &newest))
            {
                panic!("reader {reader}: {lost}");
            }
            newest = there;
            if let Some((view, before)) = kept.as_ref().filter(|_| round % 4 == 3) {
                assert_eq!(
                    rows::check(view, place.largest_rows).as_ref(),
                    Ok(before),
                    "an old view has changed"
                );
            } else if kept.is_none() {
                kept = Some((view, there));
            }
            ledger.count_check(reader);
        }
    }
}
