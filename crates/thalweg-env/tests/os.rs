//! The operating system behind the traits: files, locks between handles and processes, clocks, threads.
#![cfg(not(feature = "shuttle"))]
#![expect(
    clippy::disallowed_methods,
    reason = "these tests compare the environment with the system itself"
)]

use std::io::{ErrorKind, IoSlice};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thalweg_env::{DirEntry, Env, LockKind, MAX_SLICES, OpenMode};

#[test]
fn open_modes_create_or_insist() {
    let dir = tempfile::tempdir().unwrap();
    let (env, path) = (Env::os(), dir.path().join("f"));
    let open = |mode| env.storage().open(&path, mode);
    assert_eq!(
        open(OpenMode::Read).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        open(OpenMode::ReadWrite).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    open(OpenMode::OpenOrCreate)
        .unwrap()
        .write_all_at(b"abc", 0)
        .unwrap();
    assert_eq!(
        open(OpenMode::CreateNew).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        open(OpenMode::OpenOrCreate).unwrap().len_bytes().unwrap(),
        3
    );
    assert!(open(OpenMode::Read).unwrap().write_at(b"x", 0).is_err());
}

#[test]
fn reads_and_writes_at_offsets() {
    let dir = tempfile::tempdir().unwrap();
    let file = Env::os()
        .storage()
        .open(&dir.path().join("f"), OpenMode::CreateNew)
        .unwrap();
    file.write_all_at(b"world", 6).unwrap();
    file.write_all_at(b"hello ", 0).unwrap();
    let mut buf = [0; 11];
    file.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"hello world");
    assert_eq!(file.read_at(&mut buf, 9).unwrap(), 2);
    assert_eq!(file.read_at(&mut buf, 11).unwrap(), 0);
    assert_eq!(
        file.read_exact_at(&mut buf, 1).unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
    file.set_len(5).unwrap();
    assert_eq!(file.len_bytes().unwrap(), 5);
    file.sync_data().unwrap();
    file.sync_all().unwrap();
}

#[test]
fn vectored_writes_take_more_slices_than_one_call_may() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let file = Env::os()
        .storage()
        .open(&path, OpenMode::CreateNew)
        .unwrap();
    let parts: Vec<Vec<u8>> = (0..3 * MAX_SLICES)
        .map(|i| i.to_string().repeat(i % 3).into_bytes())
        .collect();
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    file.write_all_vectored_at(&mut slices, 7).unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[7..], parts.concat());
    file.write_all_vectored_at(&mut [IoSlice::new(b""), IoSlice::new(b"")], 0)
        .unwrap();
    file.write_all_vectored_at(&mut [], 0).unwrap();
}

#[test]
fn allocate_grows_with_zeros_and_keeps_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let file = Env::os()
        .storage()
        .open(&dir.path().join("f"), OpenMode::CreateNew)
        .unwrap();
    file.write_all_at(b"abc", 0).unwrap();
    file.allocate(0, 100_000).unwrap();
    let mut buf = vec![1; 100_000];
    file.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!(&buf[..3], b"abc");
    assert!(buf[3..].iter().all(|byte| *byte == 0));
    assert!(file.allocate(0, 0).is_err());
}

#[test]
fn directories_list_rename_and_vanish() {
    let dir = tempfile::tempdir().unwrap();
    let env = Env::os();
    let storage = env.storage();
    let (deep, file) = (dir.path().join("a/b/c"), dir.path().join("a/f"));
    assert_eq!(
        storage.create_dir(&deep).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    storage.create_dir_all(&deep).unwrap();
    storage.create_dir_all(&deep).unwrap();
    storage.create_dir_all(Path::new("/")).unwrap();
    assert_eq!(
        storage.create_dir(&deep).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    storage
        .open(&file, OpenMode::CreateNew)
        .unwrap()
        .write_all_at(b"12345", 0)
        .unwrap();
    assert!(storage.create_dir_all(&file).is_err());
    assert!(storage.create_dir_all(&file.join("x")).is_err());
    let entry = |name: &str, is_dir, len_bytes| DirEntry {
        name: name.into(),
        is_dir,
        len_bytes,
    };
    let listed = storage.list_dir(&dir.path().join("a")).unwrap();
    assert_eq!(listed[1], entry("f", false, 5));
    assert!(listed[0].is_dir && listed[0].name == "b" && listed.len() == 2);
    storage.hard_link(&file, &deep.join("g")).unwrap();
    storage.rename(&deep.join("g"), &deep.join("h")).unwrap();
    assert_eq!(storage.metadata(&deep.join("h")).unwrap().len_bytes, 5);
    assert!(storage.metadata(&deep).unwrap().is_dir);
    storage.sync_dir(&deep).unwrap();
    assert!(storage.remove_dir(&deep).is_err());
    storage.remove_file(&deep.join("h")).unwrap();
    storage.remove_dir(&deep).unwrap();
    let dotted = dir.path().join("a/b/../f");
    assert_eq!(
        storage.canonicalize(&dotted).unwrap(),
        file.canonicalize().unwrap()
    );
    assert!(storage.free_bytes(dir.path()).unwrap() > 0);
}

#[test]
fn locks_exclude_other_handles_by_range() {
    let dir = tempfile::tempdir().unwrap();
    let (env, path) = (Env::os(), dir.path().join("lock"));
    let open = |mode| env.storage().open(&path, mode).unwrap();
    let (first, second) = (open(OpenMode::OpenOrCreate), open(OpenMode::ReadWrite));
    assert!(first.try_lock(0..8, LockKind::Exclusive).unwrap());
    assert!(!second.try_lock(0..8, LockKind::Exclusive).unwrap());
    assert!(!second.try_lock(7..9, LockKind::Shared).unwrap());
    if cfg!(target_os = "linux") {
        assert!(second.try_lock(8..16, LockKind::Exclusive).unwrap());
        first.unlock(4..8).unwrap();
        assert!(second.try_lock(4..8, LockKind::Shared).unwrap());
        assert!(!second.try_lock(3..4, LockKind::Shared).unwrap());
    }
    // Another handle that comes and goes takes no lock along.
    drop(open(OpenMode::Read));
    assert!(!second.try_lock(0..1, LockKind::Exclusive).unwrap());
    drop(first);
    assert!(second.try_lock(0..8, LockKind::Exclusive).unwrap());
    assert!(
        second.try_lock(0..8, LockKind::Shared).unwrap(),
        "a handle may weaken its own lock"
    );
    assert!(
        open(OpenMode::Read)
            .try_lock(0..8, LockKind::Shared)
            .unwrap()
    );
    assert!(second.try_lock(5..5, LockKind::Shared).is_err());
}

/// Run by [`locks_exclude_other_processes`] in a second process; does nothing otherwise.
#[test]
fn child_holds_a_lock_until_its_input_ends() {
    let Ok(path) = std::env::var("THALWEG_ENV_LOCK_PATH") else {
        return;
    };
    let file = Env::os()
        .storage()
        .open(Path::new(&path), OpenMode::ReadWrite)
        .unwrap();
    let taken = file.try_lock(0..1, LockKind::Exclusive).unwrap();
    std::fs::write(
        format!("{path}.said"),
        if taken { "taken" } else { "refused" },
    )
    .unwrap();
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

fn child(path: &Path) -> std::io::Result<std::process::Child> {
    Command::new(std::env::current_exe()?)
        .args(["--exact", "child_holds_a_lock_until_its_input_ends"])
        .env("THALWEG_ENV_LOCK_PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
}

/// What the second process said of its attempt, once it did.
fn answer(path: &Path) -> String {
    let said = path.with_extension("said");
    for _ in 0..2000 {
        match std::fs::read_to_string(&said) {
            Ok(text) if !text.is_empty() => {
                let _ = std::fs::remove_file(&said);
                return text;
            }
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    "no answer".to_owned()
}

#[test]
fn locks_exclude_other_processes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let file = Env::os()
        .storage()
        .open(&path, OpenMode::CreateNew)
        .unwrap();
    assert!(file.try_lock(0..1, LockKind::Exclusive).unwrap());
    let mut refused = child(&path).unwrap();
    assert_eq!(answer(&path), "refused");
    drop(refused.stdin.take());
    assert!(refused.wait().unwrap().success());
    // The lock is this handle's: a child that came and went did not take it along.
    let other = Env::os()
        .storage()
        .open(&path, OpenMode::ReadWrite)
        .unwrap();
    assert!(!other.try_lock(0..1, LockKind::Exclusive).unwrap());
    drop(file);
    let mut holder = child(&path).unwrap();
    assert_eq!(answer(&path), "taken");
    assert!(!other.try_lock(0..1, LockKind::Shared).unwrap());
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(
        other.try_lock(0..1, LockKind::Exclusive).unwrap(),
        "the kernel frees the locks of the dead"
    );
}

#[test]
fn clocks_move_on_and_identify_the_boot() {
    let env = Env::os();
    let clock = env.clock();
    let (start, wall) = (clock.monotonic_ns(), clock.wall_ns());
    clock.sleep(Duration::from_millis(2));
    assert!(clock.monotonic_ns() - start >= 2_000_000);
    assert!(wall > 1_700_000_000_000_000_000);
    assert_eq!(clock.process_id(), std::process::id());
    assert_eq!(clock.boot_id(), clock.boot_id());
    if cfg!(target_os = "linux") {
        assert_ne!(clock.boot_id(), [0; 16]);
    }
}

#[test]
fn entropy_differs_between_draws() {
    let env = Env::os();
    assert_ne!(
        env.entropy().random_u64().unwrap(),
        env.entropy().random_u64().unwrap()
    );
}

#[test]
fn threads_are_joined_and_panics_reported() {
    let env = Env::os();
    let ran = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ran);
    env.spawner()
        .spawn(
            "worker",
            Box::new(move || flag.store(true, Ordering::Release)),
        )
        .unwrap()
        .join()
        .unwrap();
    assert!(ran.load(Ordering::Acquire));
    let failed = env
        .spawner()
        .spawn("worker", Box::new(|| panic!("broken {}", 1)))
        .unwrap()
        .join()
        .unwrap_err();
    assert_eq!(failed.message, "broken 1");
}
