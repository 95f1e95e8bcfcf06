//! Processes that fork while they have a database open: the child harms nothing and holds nothing.

use crate::roles::{Place, TABLE};
use crate::rows;
use std::path::Path;
use thalweg::{CreateOptions, Database, Error, ErrorKind};

const ROWS: u64 = 200_000;
const BATCHES: u64 = 24;

/// Forks; the child does what it is to, and ends. It is killed if that takes too long: it must not wait for a lock that a
/// thread of its parent held.
#[expect(unsafe_code, reason = "forks are what is tested")]
fn fork(child: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child runs what programs do run after a fork, and ends without running what its parent has to.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: both calls take a number.
            unsafe {
                libc::alarm(60);
                libc::_exit(i32::from(!child()))
            }
        }
        id => {
            assert!(id > 0, "{}", std::io::Error::last_os_error());
            id
        }
    }
}

#[expect(unsafe_code, reason = "forks are what is tested")]
fn assert_ended_well(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0), "the child has failed");
}

fn open(path: &Path) -> Database {
    Database::builder().threads(2).open(path).unwrap()
}

fn count(path: &Path) -> u64 {
    let reader = Database::builder().read_only(true).open(path).unwrap();
    reader.table(TABLE).unwrap().view().unwrap().row_count()
}

#[test]
fn a_child_that_leaves_an_append_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.thal");
    let db = open(&path);
    let table = db
        .create_table(TABLE, &rows::schema(), &CreateOptions::stream("ts"))
        .unwrap();
    let mut is_child = false;
    // The iterator of the caller forks in the middle of an append that has begun a file of its own.
    let batches = (0..BATCHES).map(|batch| {
        if batch % 8 == 7 {
            // The child gives an error, and leaves the append by it.
            let child = fork_here(&mut is_child);
            if is_child {
                return Err(Error::new(ErrorKind::Invalid, "left by the child"));
            }
            assert_ended_well(child);
        }
        Ok(rows::batch(0, batch, ROWS))
    });
    let appended = table.append(batches, None);
    if is_child {
        leave(appended.is_err() && db.flush().is_err() && db.close().is_ok());
    }
    assert_eq!(appended.unwrap(), BATCHES * ROWS);
    let view = table.view().unwrap();
    assert_eq!(view.row_count(), BATCHES * ROWS);
    let scanned: usize = view
        .scan(&Default::default())
        .unwrap()
        .map(|batch| batch.unwrap().num_rows())
        .sum();
    assert_eq!(scanned as u64, BATCHES * ROWS);
    db.close().unwrap();
    assert_eq!(count(&path), BATCHES * ROWS);
}

#[expect(unsafe_code, reason = "forks are what is tested")]
fn fork_here(is_child: &mut bool) -> libc::pid_t {
    // SAFETY: the child runs what programs do run after a fork, and ends by `leave`.
    let id = unsafe { libc::fork() };
    assert!(id >= 0, "{}", std::io::Error::last_os_error());
    *is_child = id == 0;
    if *is_child {
        // SAFETY: the call takes a number.
        unsafe { libc::alarm(60) };
    }
    id
}

#[expect(unsafe_code, reason = "forks are what is tested")]
fn leave(well: bool) -> ! {
    // SAFETY: the call takes a number.
    unsafe { libc::_exit(i32::from(!well)) }
}

#[test]
fn a_child_reads_nothing_by_what_it_inherited_and_all_by_what_it_opens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.thal");
    let db = open(&path);
    let table = db
        .create_table(TABLE, &rows::schema(), &CreateOptions::stream("ts"))
        .unwrap();
    for batch in 0..10 {
        table
            .append([Ok(rows::batch(0, batch, ROWS / 10))], None)
            .unwrap();
    }
    let reader = Database::builder().read_only(true).open(&path).unwrap();
    for db in [db, reader] {
        let table = db.table(TABLE).unwrap();
        let view = table.view().unwrap();
        let mut scan = view.scan(&Default::default()).unwrap();
        scan.next().unwrap().unwrap();
        let appender = table.appender();
        let child = fork(|| {
            let is_told = |error: &Error| {
                error.kind() == ErrorKind::Unavailable && error.to_string().contains("fork")
            };
            let inherited = scan.next().unwrap().is_err_and(|e| is_told(&e))
                && view.scan(&Default::default()).is_err_and(|e| is_told(&e))
                && view.stats().is_err_and(|e| is_told(&e))
                && table.view().is_err_and(|e| is_told(&e))
                && table.maintain().is_err_and(|e| is_told(&e))
                && table
                    .append([Ok(rows::batch(0, 99, ROWS))], None)
                    .is_err_and(|e| is_told(&e));
            drop((scan, appender, view, table));
            let is_closed = db.close().is_ok();
            drop(db);
            let is_locked = Database::open(&path).is_err_and(|e| e.kind() == ErrorKind::Locked);
            inherited && is_closed && is_locked && count(&path) == ROWS
        });
        assert_ended_well(child);
    }
}

/// The role of a writer that forks a worker and waits to be killed.
pub(crate) fn hold_and_fork(place: &Place) {
    let db = open(&place.database);
    let table = db
        .create_table(TABLE, &rows::schema(), &CreateOptions::stream("ts"))
        .unwrap();
    table.append([Ok(rows::batch(0, 0, 100))], None).unwrap();
    let worker = fork(|| {
        std::thread::sleep(std::time::Duration::from_secs(50));
        true
    });
    std::fs::write(place.database.with_extension("worker"), worker.to_string()).unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
#[expect(unsafe_code, reason = "forks are what is tested")]
fn the_worker_of_a_killed_writer_keeps_no_lock() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place {
        database: folder.path().join("a.thal"),
        largest_rows: 1,
        pause_ms: 0,
    };
    let mut writer = place.start("forker", 0);
    let said = place.database.with_extension("worker");
    let worker: libc::pid_t = loop {
        let text = std::fs::read_to_string(&said).unwrap_or_default();
        match text.parse() {
            Ok(worker) => break worker,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    };
    let locked = Database::open(&place.database).unwrap_err();
    assert_eq!(locked.kind(), ErrorKind::Locked);
    writer.kill().unwrap();
    writer.wait().unwrap();
    // SAFETY: the call takes numbers.
    assert_eq!(unsafe { libc::kill(worker, 0) }, 0, "the worker has ended");
    // The worker lets go of the lock before it does anything else, but it may not have run yet.
    let start = std::time::Instant::now();
    let opened = loop {
        match Database::open(&place.database) {
            Err(error) if error.kind() == ErrorKind::Locked && start.elapsed().as_secs() < 20 => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            opened => break opened,
        }
    };
    // SAFETY: the call takes numbers.
    unsafe { libc::kill(worker, libc::SIGKILL) };
    let db = opened.unwrap();
    assert_eq!(db.table(TABLE).unwrap().view().unwrap().row_count(), 100);
}
