//! The path of a database: the names that lead to it are as durable as what is in it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a step that fails is a test that fails"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_env::sim::{
    CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, ReadsAfter, SimEnv,
};
use thalweg_kernel::{Durability::Disk, Error, ErrorKind, Options};
use thalweg_sim::toy::Toy;

/// Absolute and relative ones, with one and with several folders that are missing.
const PATHS: [&str; 10] = [
    "/db",
    "db",
    "./db",
    "db/",
    "/data/db",
    "data/sub/db",
    "/a/b/c/db/",
    "./a/./db",
    "a/../db",
    "/a/b/../c/db",
];

fn options() -> Options {
    Options {
        background: false,
        segment_bytes: 8192,
        ..Options::default()
    }
}

fn open(sim: &SimEnv, path: &str) -> thalweg_kernel::Result<Toy> {
    Toy::open(&sim.env(), path, &options(), 8)
}

/// Opens or makes the database, appends a row and cuts the power: the row must be there.
fn check_that_a_row_stays(sim: &SimEnv, path: &str, what: &str) {
    let toy = open(sim, path).unwrap_or_else(|e| panic!("{what}: {e}"));
    let table = toy.create("t").unwrap();
    toy.append(table, &[(1, 1)], Disk).unwrap();
    let image = sim.crash_image(&CrashChoice::DropAll);
    let must_exist = Options {
        must_exist: true,
        ..options()
    };
    let again = Toy::open(&image.env(), path, &must_exist, 8);
    let again = again.unwrap_or_else(|e| panic!("{what}, after a power cut: {e}"));
    assert_eq!(again.rows(table).unwrap(), [(1, 1)], "{what}");
}

#[test]
fn a_power_cut_takes_no_name_on_the_path() {
    for path in PATHS {
        check_that_a_row_stays(&SimEnv::new(3), path, path);
    }
}

#[test]
fn an_attempt_that_was_cut_short_at_any_call_leaves_a_path_that_becomes_durable() {
    let mut attempts = 0;
    for path in PATHS {
        let calls = {
            let sim = SimEnv::new(3);
            let toy = open(&sim, path).unwrap();
            let calls = sim.calls();
            drop(toy);
            calls
        };
        for call in 1..=calls {
            let sim = SimEnv::new(3);
            sim.set_plan(FaultPlan::crash_at(call));
            if open(&sim, path).is_ok() {
                continue;
            }
            attempts += 1;
            let mut choices = sim.crash_choices(16, 4, call);
            // The process was killed: all names are there, and none of the last ones is on disk.
            choices.extend([CrashChoice::Kill, CrashChoice::DropAll]);
            for choice in choices {
                let what = format!("{path}, cut short at call {call}, {choice:?}");
                check_that_a_row_stays(&sim.crash_image(&choice), path, &what);
            }
        }
    }
    assert!(attempts > 300, "{attempts} attempts were cut short");
}

#[test]
fn a_name_that_could_not_be_synced_is_made_anew() {
    for (path, folders) in [
        ("/db", vec!["/", "/db"]),
        ("/a/b/db", vec!["/", "/a", "/a/b", "/a/b/db"]),
    ] {
        for folder in folders {
            for skip in 0..3 {
                let sim = SimEnv::new(8);
                let lost = Fault::FlushError {
                    errno: Errno::IO,
                    reads: ReadsAfter::New,
                };
                let rule = FaultRule::new(lost).on(&[CallKind::SyncDir]);
                let rule = rule.path_suffix(folder).skip(skip).once();
                sim.set_plan(FaultPlan::none().rule(rule));
                let failed = open(&sim, path).is_err();
                assert!(failed || skip > 0, "{path} {folder}");
                sim.set_plan(FaultPlan::none());
                check_that_a_row_stays(&sim, path, &format!("{path}, {folder} after {skip} syncs"));
            }
        }
    }
}

#[test]
fn folders_inside_whose_names_a_failed_sync_may_have_lost_are_made_anew() {
    for name in ["log", "data"] {
        for skip in 0..2 {
            let sim = SimEnv::new(9);
            // Killed when it had made the folder and synced nothing.
            let made = FaultRule::new(Fault::Crash).on(&[CallKind::CreateDir]);
            sim.set_plan(FaultPlan::none().rule(made.path_suffix(name)));
            open(&sim, "/db").unwrap_err();
            let image = sim.crash_image(&CrashChoice::Kill);
            assert!(
                image
                    .env()
                    .storage()
                    .metadata(&Path::new("/db").join(name))
                    .is_ok()
            );
            let lost = Fault::FlushError {
                errno: Errno::IO,
                reads: ReadsAfter::New,
            };
            let rule = FaultRule::new(lost).on(&[CallKind::SyncDir]);
            let rule = rule.path_suffix("/db").skip(skip).once();
            image.set_plan(FaultPlan::none().rule(rule));
            open(&image, "/db").unwrap_err();
            image.set_plan(FaultPlan::none());
            check_that_a_row_stays(&image, "/db", &format!("{name} after {skip} syncs"));
        }
    }
}

fn refused(sim: &SimEnv, path: &str, folder: &str) -> thalweg_kernel::Result<Toy> {
    let rule = FaultRule::new(Fault::Error(Errno::ACCESS)).on(&[CallKind::SyncDir]);
    sim.set_plan(FaultPlan::none().rule(rule.path_suffix(folder)));
    open(sim, path)
}

#[test]
fn a_folder_that_may_not_be_read_takes_no_new_names_but_keeps_its_old_ones() {
    let sim = SimEnv::new(9);
    sim.env()
        .storage()
        .create_dir_all(Path::new("/shared"))
        .unwrap();
    let error = refused(&sim, "/shared/db", "/shared").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let text = error.to_string();
    assert!(
        text.contains("syncing /shared (allow reading it, or choose another path)")
            && text.contains("the name of /shared/db"),
        "{text}"
    );
    let left = sim.env().storage().metadata(Path::new("/shared/db"));
    left.unwrap_err();
    // Somebody else made a folder there.
    sim.set_plan(FaultPlan::none());
    sim.env()
        .storage()
        .create_dir_all(Path::new("/shared/me"))
        .unwrap();
    sim.sync_everything();
    refused(&sim, "/shared/me/db", "/shared").unwrap();
    check_that_a_row_stays(&sim, "/shared/me/db", "below a folder that may not be read");
}

/// Files of the operating system, and which folders were synced.
mod recorded {
    use super::*;
    use std::io;
    use thalweg_env::sync::Mutex;
    use thalweg_env::{Dir, DirEntry, Env, File, Metadata, OpenMode, Storage};

    #[derive(Debug)]
    pub(super) struct Recorder {
        pub(super) os: Env,
        pub(super) synced: Arc<Mutex<Vec<PathBuf>>>,
    }

    impl Storage for Recorder {
        fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
            self.os.storage().open(path, mode)
        }
        fn create_dir(&self, path: &Path) -> io::Result<()> {
            self.os.storage().create_dir(path)
        }
        fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
            self.os.storage().list_dir(path)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.os.storage().rename(from, to)
        }
        fn remove_file(&self, path: &Path) -> io::Result<()> {
            self.os.storage().remove_file(path)
        }
        fn remove_dir(&self, path: &Path) -> io::Result<()> {
            self.os.storage().remove_dir(path)
        }
        fn sync_dir(&self, path: &Path) -> io::Result<()> {
            let real = self.canonicalize(path)?;
            self.synced.lock().push(real);
            self.os.storage().sync_dir(path)
        }
        fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
            self.os.storage().open_dir(path)
        }
        fn metadata(&self, path: &Path) -> io::Result<Metadata> {
            self.os.storage().metadata(path)
        }
        fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.os.storage().hard_link(from, to)
        }
        fn hold(&self, folder: &Path) -> io::Result<Arc<dyn Storage>> {
            Ok(Arc::new(Recorder {
                os: self.os.holding(folder)?,
                synced: Arc::clone(&self.synced),
            }))
        }
        fn release(&self) {
            self.os.storage().release();
        }
        fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
            let path = if path.as_os_str().is_empty() {
                Path::new(".")
            } else {
                path
            };
            self.os.storage().canonicalize(path)
        }
        fn free_bytes(&self, path: &Path) -> io::Result<u64> {
            self.os.storage().free_bytes(path)
        }
    }
}

/// Opens a database of the operating system; which folders were synced meanwhile.
fn folders_synced(path: &Path) -> Result<Vec<PathBuf>, Error> {
    use thalweg_env::{Env, Storage};
    let os = Env::os();
    let recorder = Arc::new(recorded::Recorder {
        os: os.clone(),
        synced: Default::default(),
    });
    let storage: Arc<dyn Storage> = Arc::clone(&recorder) as _;
    let parts = (os.clock(), os.entropy(), os.spawner());
    let env = Env::new(
        storage,
        Arc::clone(parts.0),
        Arc::clone(parts.1),
        Arc::clone(parts.2),
    );
    Toy::open(&env, path.to_str().unwrap(), &options(), 8)?;
    let synced = recorder.synced.lock().clone();
    Ok(synced)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "links are made by hand")]
fn symbolic_links_are_names_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
    std::fs::create_dir_all(at("disk/deep/data")).unwrap();
    let link = |to: &str, from: &str| std::os::unix::fs::symlink(to, at(from)).unwrap();
    link("disk/deep", "link");
    link("nowhere", "dangling");
    link("disk/deep/data", "db");

    // Through a link: of a new folder below it, and of the database itself.
    let synced = folders_synced(&at("link/new/db")).unwrap();
    for holder in ["", "disk", "disk/deep", "disk/deep/new", "disk/deep/new/db"] {
        assert!(
            synced.contains(&at(holder.trim_end_matches('/')).components().collect()),
            "{holder}: {synced:?}"
        );
    }
    let synced = folders_synced(&at("db")).unwrap();
    for holder in ["", "disk", "disk/deep", "disk/deep/data"] {
        assert!(
            synced.contains(&at(holder).components().collect()),
            "{holder}: {synced:?}"
        );
    }
    // `..` behind a link is the folder above the one that it leads to.
    folders_synced(&at("link/../db2")).unwrap();
    assert!(at("disk/db2/root").exists());

    for path in ["dangling", "dangling/db"] {
        let error = folders_synced(&at(path)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("dangling is a symbolic link to nothing"),
            "{text}"
        );
    }
    assert!(!at("nowhere").exists());
}
