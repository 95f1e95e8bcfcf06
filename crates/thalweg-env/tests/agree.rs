//! The simulated machine and the operating system answer the same calls alike.
#![cfg(all(target_os = "linux", not(feature = "shuttle")))]
#![expect(
    clippy::disallowed_methods,
    reason = "these tests compare the environment with the system itself"
)]
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use thalweg_env::sim::SimEnv;
use thalweg_env::{Env, LockKind, OpenMode};

/// Paths below the folder of a test: files, folders, links and what is none of these, spelled in every way.
const PATHS: [&str; 36] = [
    "",
    ".",
    "..",
    "f",
    "f/",
    "f/.",
    "f/x",
    "d",
    "d/",
    "d/.",
    "d/..",
    "d/../f",
    "d//sub/",
    "d/sub/../..",
    "none",
    "none/",
    "none/.",
    "none/x",
    "./d/./g",
    "new/../f",
    "to_d",
    "to_d/",
    "to_d/g",
    "to_d/..",
    "to_f",
    "to_f/",
    "to_f/x",
    "dangling",
    "dangling/",
    "loop",
    "loop/x",
    "to_to_d/sub",
    "absolute",
    "absolute/g",
    "up/f",
    "d/sub",
];

/// Links and what they hold; `%` stands for the folder of the test.
const LINKS: [(&str, &str); 7] = [
    ("to_d", "d"),
    ("to_f", "./f"),
    ("dangling", "d/made"),
    ("loop", "loop"),
    ("to_to_d", "d/../to_d/"),
    ("absolute", "%/d"),
    ("d/sub/up", "../.."),
];

const MODES: [OpenMode; 4] = [
    OpenMode::Read,
    OpenMode::ReadWrite,
    OpenMode::CreateNew,
    OpenMode::OpenOrCreate,
];

type MakeLink = Box<dyn Fn(&Path, &Path) -> std::io::Result<()>>;

/// One environment with a folder of its own.
struct Side {
    env: Env,
    base: PathBuf,
    link: MakeLink,
    _dir: Option<tempfile::TempDir>,
}

impl Side {
    fn os() -> Side {
        let dir = tempfile::tempdir().unwrap();
        Side {
            env: Env::os(),
            base: {
                let base = dir.path().canonicalize().unwrap().join("deep/base");
                std::fs::create_dir_all(&base).unwrap();
                base
            },
            link: Box::new(|target, link| symlink(target, link)),
            _dir: Some(dir),
        }
    }

    fn sim() -> Side {
        let sim = SimEnv::new(1);
        let env = sim.env();
        let base = PathBuf::from("/deep/base");
        env.storage().create_dir_all(&base).unwrap();
        Side {
            env,
            base,
            link: Box::new(move |target, link| sim.symlink(target, link)),
            _dir: None,
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        let mut whole = self.base.as_os_str().to_owned();
        whole.push("/");
        whole.push(path);
        PathBuf::from(whole)
    }

    fn fill(&self) {
        let storage = self.env.storage();
        storage.create_dir_all(&self.path("d/sub")).unwrap();
        for file in ["f", "d/g"] {
            let file = storage.open(&self.path(file), OpenMode::CreateNew).unwrap();
            file.write_all_at(b"12345", 0).unwrap();
        }
        let base = self.base.to_str().unwrap();
        for (link, target) in LINKS {
            (self.link)(Path::new(&target.replace('%', base)), &self.path(link)).unwrap();
        }
    }

    /// Everything below the folder, links not followed.
    fn tree(&self, path: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for entry in self.env.storage().list_dir(&self.path(path)).unwrap() {
            let path = format!("{path}/{}", entry.name.to_str().unwrap());
            if entry.is_dir {
                found.extend(self.tree(&path));
            }
            found.insert(path);
        }
        found
    }
}

/// What a call has come to, with paths as from the folder of the test.
fn answer<T>(result: std::io::Result<T>, show: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => show(value),
        Err(e) => format!("{:?}", e.kind()),
    }
}

type Call = Box<dyn Fn(&Side, &str) -> String>;

fn calls() -> Vec<(String, Call)> {
    fn done<T>(_: T) -> String {
        "done".to_owned()
    }
    let mut calls: Vec<(String, Call)> = vec![
        (
            "create_dir".into(),
            Box::new(|side, path| answer(side.env.storage().create_dir(&side.path(path)), done)),
        ),
        (
            "create_dir_all".into(),
            Box::new(|side, path| {
                answer(side.env.storage().create_dir_all(&side.path(path)), done)
            }),
        ),
        (
            "list_dir".into(),
            Box::new(|side, path| {
                answer(side.env.storage().list_dir(&side.path(path)), |found| {
                    let entry = |e: &thalweg_env::DirEntry| (e.name.clone(), e.is_dir);
                    format!("{:?}", found.iter().map(entry).collect::<BTreeSet<_>>())
                })
            }),
        ),
        (
            "metadata".into(),
            Box::new(|side, path| {
                answer(side.env.storage().metadata(&side.path(path)), |found| {
                    let len_bytes = if found.is_dir { 0 } else { found.len_bytes };
                    format!("{} {len_bytes}", found.is_dir)
                })
            }),
        ),
        (
            "remove_file".into(),
            Box::new(|side, path| answer(side.env.storage().remove_file(&side.path(path)), done)),
        ),
        (
            "remove_dir".into(),
            Box::new(|side, path| answer(side.env.storage().remove_dir(&side.path(path)), done)),
        ),
        (
            "rename to".into(),
            Box::new(|side, path| {
                answer(
                    side.env.storage().rename(&side.path("f"), &side.path(path)),
                    done,
                )
            }),
        ),
        (
            "rename d to".into(),
            Box::new(|side, path| {
                answer(
                    side.env.storage().rename(&side.path("d"), &side.path(path)),
                    done,
                )
            }),
        ),
        (
            "rename from".into(),
            Box::new(|side, path| {
                answer(
                    side.env
                        .storage()
                        .rename(&side.path(path), &side.path("renamed")),
                    done,
                )
            }),
        ),
        (
            "hard_link".into(),
            Box::new(|side, path| {
                answer(
                    side.env
                        .storage()
                        .hard_link(&side.path("f"), &side.path(path)),
                    done,
                )
            }),
        ),
        (
            "canonicalize".into(),
            Box::new(|side, path| {
                answer(side.env.storage().canonicalize(&side.path(path)), |found| {
                    let inside = found.strip_prefix(&side.base);
                    inside.map_or("outside".into(), |inside| inside.display().to_string())
                })
            }),
        ),
        (
            "free_bytes".into(),
            Box::new(|side, path| answer(side.env.storage().free_bytes(&side.path(path)), done)),
        ),
    ];
    for mode in MODES {
        calls.push((
            format!("open {mode:?}"),
            Box::new(move |side, path| {
                let path = side.path(path);
                // The one that is stricter in the simulator: it opens no directory for reading.
                let is_dir = side
                    .env
                    .storage()
                    .metadata(&path)
                    .is_ok_and(|found| found.is_dir);
                if mode == OpenMode::Read && is_dir {
                    return String::new();
                }
                answer(side.env.storage().open(&path, mode), |file| {
                    format!("{} bytes", file.len_bytes().unwrap())
                })
            }),
        ));
    }
    calls
}

#[test]
fn every_call_means_the_same_path() {
    let mut differences = Vec::new();
    for (name, call) in calls() {
        for path in PATHS {
            let (os, sim) = (Side::os(), Side::sim());
            let answers = [&os, &sim].map(|side| {
                side.fill();
                let answer = call(side, path);
                (answer, side.tree("."))
            });
            if answers[0] != answers[1] {
                let [(os, os_tree), (sim, sim_tree)] = answers;
                let trees = if os_tree == sim_tree {
                    String::new()
                } else {
                    format!(", leave {os_tree:?}, {sim_tree:?}")
                };
                differences.push(format!("{name} {path:?}: {os}, {sim}{trees}"));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "the system, the simulator: {}",
        differences.join("\n")
    );
}

#[test]
fn an_empty_path_is_none_but_for_syncs() {
    let sim = SimEnv::new(1);
    for env in [Env::os(), sim.env()] {
        let (storage, none) = (env.storage(), Path::new(""));
        let kinds = [
            storage
                .open(none, OpenMode::OpenOrCreate)
                .unwrap_err()
                .kind(),
            storage.create_dir(none).unwrap_err().kind(),
            storage.list_dir(none).unwrap_err().kind(),
            storage.metadata(none).unwrap_err().kind(),
            storage.canonicalize(none).unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::NotFound; 5]);
        storage.sync_dir(none).unwrap();
    }
}

/// Two handles of a file, of which the first holds a lock, and a child of a fork: who may lock it when.
#[test]
#[expect(unsafe_code, reason = "nothing but a real fork shows what a fork does")]
fn a_child_of_a_fork_holds_the_locks_of_its_parent() {
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsRawFd;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let open = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .unwrap()
    };
    // Not by way of the environment, which may do more at a fork than the system does.
    let try_lock = |file: &File| {
        // SAFETY: `flock` is a struct of integers, for which zeros are valid; the call reads it alone.
        unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            lock.l_type = libc::c_short::try_from(libc::F_WRLCK).unwrap();
            lock.l_len = 1;
            libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) == 0
        }
    };
    let (first, other) = (open(), open());
    let (ends, mut end) = std::io::pipe().unwrap();
    assert!(try_lock(&first));
    // SAFETY: the child makes system calls alone, and ends without going back.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above; the buffers outlive the calls.
        unsafe {
            libc::pwrite(first.as_raw_fd(), b"x".as_ptr().cast(), 1, 3);
            libc::close(end.as_raw_fd());
            libc::read(ends.as_raw_fd(), [0_u8].as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
    }
    // As if the parent had been killed: its descriptor is closed.
    drop(first);
    assert!(!try_lock(&other), "the child holds it");
    std::io::Write::write_all(&mut end, b"!").unwrap();
    let mut status = 0;
    // SAFETY: waits for the child that was started above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(try_lock(&other), "the last one has let go");
    assert_eq!(other.metadata().unwrap().len(), 4);

    let sim = SimEnv::new(1);
    let path = Path::new("/lock");
    let first = sim.env().storage().open(path, OpenMode::CreateNew).unwrap();
    let other = sim
        .env_of_process(9)
        .storage()
        .open(path, OpenMode::ReadWrite)
        .unwrap();
    assert!(first.try_lock(0..1, LockKind::Exclusive).unwrap());
    let child = sim.fork_process(sim.process_id());
    sim.as_process(child, || first.write_all_at(b"x", 3).unwrap());
    drop(first);
    assert!(!other.try_lock(0..1, LockKind::Exclusive).unwrap());
    sim.kill_process(child);
    assert!(other.try_lock(0..1, LockKind::Exclusive).unwrap());
    assert_eq!(other.len_bytes().unwrap(), 4);
}
