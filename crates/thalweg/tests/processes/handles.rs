//! Databases reached by other ways: copies, links, handles that a fork took along.

use crate::roles::TABLE;
use crate::rows;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thalweg::{CreateOptions, Database, ErrorKind, Table};
use thalweg_env::{Clock, Env};
use thalweg_table::{Engine, EngineOptions, ScanRequest};

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn append(db: &Database, batches: std::ops::Range<u64>) {
    let table = db.table(TABLE).unwrap();
    for batch in batches {
        table
            .append(
                [Ok(rows::batch(0, batch, rows::rows_of(0, batch, 5_000)))],
                None,
            )
            .unwrap();
    }
}

fn batches(db: &Database) -> u64 {
    rows::check(&db.table(TABLE).unwrap().view().unwrap(), 5_000).unwrap()[0]
}

#[test]
fn a_copy_is_a_database_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copied) = (folder.path().join("a.thal"), folder.path().join("b.thal"));
    let db = Database::open(&path).unwrap();
    db.create_table(TABLE, &rows::schema(), &CreateOptions::stream("ts"))
        .unwrap();
    append(&db, 0..50);
    db.close().unwrap();
    copy_folder(&path, &copied);
    let (db, copy) = (
        Database::open(&path).unwrap(),
        Database::open(&copied).unwrap(),
    );
    append(&db, 50..90);
    append(&copy, 50..60);
    assert_eq!((batches(&db), batches(&copy)), (90, 60));
    let reader = Database::builder().read_only(true).open(&copied).unwrap();
    append(&copy, 60..70);
    assert_eq!((batches(&reader), batches(&db)), (70, 90));
    drop((db, copy));
    assert_eq!(
        (
            batches(&Database::open(&path).unwrap()),
            batches(&Database::open(&copied).unwrap())
        ),
        (90, 70)
    );
}

/// What lies in the folder of the fragments.
fn fragments(database: &Path) -> usize {
    std::fs::read_dir(database.join("data")).unwrap().count()
}

/// A database with 40 batches, all of them in fragments.
fn maintained(path: &Path) -> (Database, Table) {
    let db = Database::open(path).unwrap();
    let table = db
        .create_table(TABLE, &rows::schema(), &CreateOptions::stream("ts"))
        .unwrap();
    append(&db, 0..40);
    table.maintain().unwrap();
    (db, table)
}

#[test]
fn a_reader_that_is_closed_keeps_no_files() {
    // Its batch 31 gets a file of its own, which is worth the checkpoints before its removal.
    const THREAD: usize = 2;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.thal");
    let db = Database::open(&path).unwrap();
    let table = db
        .create_table(TABLE, &rows::schema(), &CreateOptions::stream("ts"))
        .unwrap();
    for batch in 0..40 {
        let rows = rows::batch(THREAD, batch, rows::rows_of(THREAD, batch, u64::MAX));
        table.append([Ok(rows)], None).unwrap();
    }
    let before = fragments(&path);
    assert!(before > 0, "nothing that could go");
    let reader = Database::builder().read_only(true).open(&path).unwrap();
    let view = reader.table(TABLE).unwrap().view().unwrap();
    db.drop_table(TABLE).unwrap();
    // The writer looks once in a second.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(fragments(&path), before);
    assert_eq!(rows::check(&view, u64::MAX).unwrap()[THREAD], 40);
    reader.close().unwrap();
    let start = Instant::now();
    while fragments(&path) > 0 {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "a closed reader keeps files"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let closed = "Unavailable: the database is closed";
    let told = rows::check(&view, u64::MAX).unwrap_err();
    assert!(told.starts_with(closed), "{told}");
    for error in [
        reader.table_names().unwrap_err(),
        reader.table(TABLE).unwrap_err(),
    ] {
        assert!(format!("{error:?}").starts_with(closed), "{error:?}");
    }
    reader.close().unwrap();
}

/// Paths of the files and folders below `folder`, and of itself, that this process has open.
#[cfg(target_os = "linux")]
fn open_below(folder: &Path) -> Vec<std::path::PathBuf> {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let leads_to = |entry: std::io::Result<std::fs::DirEntry>| {
        // Another thread may have closed it meanwhile.
        std::fs::read_link(entry.ok()?.path()).ok()
    };
    let open = descriptors.filter_map(leads_to);
    open.filter(|path| path.starts_with(folder)).collect()
}

/// Else a file system cannot be unmounted, and the space of removed files stays taken.
#[cfg(target_os = "linux")]
#[test]
fn a_closed_database_keeps_nothing_open_for_tables_and_scans_that_are_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("a.thal");
    let (db, table) = maintained(&path);
    let view = table.view().unwrap();
    let reader = Database::builder().read_only(true).open(&path).unwrap();
    let (reader_table, reader_view) = {
        let table = reader.table(TABLE).unwrap();
        let view = table.view().unwrap();
        (table, view)
    };
    let mut scans = Vec::new();
    for view in [&view, &reader_view] {
        assert_eq!(rows::check(view, 5_000).unwrap()[0], 40);
        let mut scan = view.scan(&ScanRequest::default()).unwrap();
        scan.next().unwrap().unwrap();
        scans.push(scan);
    }
    assert!(open_below(&path).len() > 8);
    db.close().unwrap();
    reader.close().unwrap();
    let left = open_below(&path);
    assert!(left.is_empty(), "{left:?}");
    for mut scan in scans {
        let ended = scan.find_map(Result::err);
        assert_eq!(ended.map(|e| e.kind()), Some(ErrorKind::Unavailable));
    }
    assert!(table.view().is_err() && reader_table.view().is_err());
    drop((view, reader_view));
    // The same handles again: closing twice harms nothing that was opened since.
    let again = Database::open(&path).unwrap();
    db.close().unwrap();
    append(&again, 40..41);
    assert_eq!(batches(&again), 41);
}

#[test]
fn a_link_leads_to_the_same_database() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("a.thal"), folder.path().join("link"));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let db = Database::open(&path).unwrap();
    db.create_table(TABLE, &rows::schema(), &CreateOptions::stream("ts"))
        .unwrap();
    append(&db, 0..5);
    assert_eq!(Database::open(&link).unwrap_err().kind(), ErrorKind::Locked);
    let reader = Database::builder().read_only(true).open(&link).unwrap();
    append(&db, 5..9);
    assert_eq!(batches(&reader), 9);
}

/// The clock of a process that forks.
#[derive(Debug)]
struct Forked {
    clock: Arc<dyn Clock>,
    process: AtomicU64,
}

impl Clock for Forked {
    fn monotonic_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    fn wall_ns(&self) -> i64 {
        self.clock.wall_ns()
    }

    fn boot_id(&self) -> [u8; 16] {
        self.clock.boot_id()
    }

    fn process(&self) -> u64 {
        self.process.load(Ordering::SeqCst)
    }

    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
    }
}

#[test]
fn a_handle_is_of_no_use_in_a_forked_child() {
    let folder = tempfile::tempdir().unwrap();
    let os = Env::os();
    let clock = Arc::new(Forked {
        clock: Arc::clone(os.clock()),
        process: AtomicU64::new(7),
    });
    let (storage, entropy, spawner) = (os.storage(), os.entropy(), os.spawner());
    let env = Env::new(
        Arc::clone(storage),
        Arc::clone(&clock) as _,
        Arc::clone(entropy),
        Arc::clone(spawner),
    );
    let path = folder.path().join("a.thal");
    for read_only in [false, true] {
        let engine = Engine::open(
            env.clone(),
            &path,
            EngineOptions {
                read_only,
                ..Default::default()
            },
        )
        .unwrap();
        let table = if read_only {
            engine.table(TABLE).unwrap()
        } else {
            engine
                .create_table(TABLE, &rows::schema(), &CreateOptions::stream("ts"))
                .unwrap()
        };
        clock.process.store(8, Ordering::SeqCst);
        let error = table.view().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("fork"), "{error}");
        assert!(table.append([Ok(rows::batch(0, 0, 10))], None).is_err());
        assert!(engine.table_names().is_err() && engine.flush().is_err());
        clock.process.store(7, Ordering::SeqCst);
    }
}
