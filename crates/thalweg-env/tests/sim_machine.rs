//! The simulated machine where nothing goes wrong: names, locks, threads, counters, and its controls.
#![cfg(not(feature = "shuttle"))]

mod common;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{F, after, open, paths, read, with_file};
use thalweg_env::sim::{CallKind, CrashChoice, MUTATING, SimEnv, SpawnMode};
use thalweg_env::{LockKind, OpenMode};

#[test]
fn files_can_be_damaged_cut_lost_and_set_back() {
    let (sim, _env, file) = with_file(b"version 1");
    let older = read(&sim, F);
    let hash = sim.content_hash();
    file.write_all_at(b"2", 8).unwrap();
    sim.overwrite_file(Path::new(F), 0, b"V").unwrap();
    assert_eq!(after(&sim, CrashChoice::DropAll), b"Version 2");
    sim.set_file_len(Path::new(F), 3).unwrap();
    assert_eq!(after(&sim, CrashChoice::DropAll), b"Ver");
    sim.set_file_len(Path::new(F), 5).unwrap();
    assert_eq!(read(&sim, F), b"Ver\0\0");
    assert_ne!(sim.content_hash(), hash);
    sim.write_file(Path::new(F), &older).unwrap();
    assert_eq!(sim.content_hash(), hash);
    sim.write_file(Path::new("/a/b/c"), b"x").unwrap();
    assert_eq!(
        paths(&sim.crash_image(&CrashChoice::DropAll)),
        ["/a/b/c", "/f"]
    );
    sim.remove_file(Path::new(F)).unwrap();
    assert_eq!(paths(&sim.crash_image(&CrashChoice::DropAll)), ["/a/b/c"]);
    assert!(sim.read_file(Path::new(F)).is_err());
}

#[test]
fn open_files_are_counted_by_process_and_by_whether_they_have_a_name() {
    let (sim, env, file) = with_file(b"x");
    let other = sim.env_of_process(9);
    let again = open(&other, F, OpenMode::ReadWrite);
    assert_eq!((sim.open_handles(1), sim.open_handles(9)), (1, 1));
    assert_eq!(sim.open_removed_files(9), 0);
    env.storage().remove_file(Path::new(F)).unwrap();
    assert_eq!(
        (sim.open_removed_files(1), sim.open_removed_files(9)),
        (1, 1)
    );
    drop(again);
    assert_eq!((sim.open_handles(1), sim.open_handles(9)), (1, 0));
    assert_eq!(sim.open_removed_files(9), 0);
    drop(file);
    assert_eq!(sim.open_handles(1), 0);
    // An image has no processes.
    assert_eq!(sim.crash_image(&CrashChoice::Kill).open_handles(1), 0);
}

#[test]
fn locks_exclude_handles_and_vanish_with_their_owners() {
    let (sim, env, first) = with_file(b"");
    let second = open(&sim.env_of_process(2), F, OpenMode::ReadWrite);
    assert!(first.try_lock(0..10, LockKind::Exclusive).unwrap());
    assert!(!second.try_lock(9..10, LockKind::Shared).unwrap());
    first.unlock(4..6).unwrap();
    assert!(second.try_lock(4..6, LockKind::Exclusive).unwrap());
    assert!(!second.try_lock(3..4, LockKind::Exclusive).unwrap());
    assert!(!second.try_lock(6..7, LockKind::Exclusive).unwrap());
    assert!(
        first.try_lock(0..4, LockKind::Shared).unwrap(),
        "a handle may weaken its own lock"
    );
    assert!(second.try_lock(0..4, LockKind::Shared).unwrap());
    assert!(
        open(&env, F, OpenMode::Read)
            .try_lock(50..51, LockKind::Exclusive)
            .is_err()
    );
    sim.kill_process(2);
    assert!(second.len_bytes().is_err());
    assert!(first.try_lock(0..10, LockKind::Exclusive).unwrap());
    let third = open(&env, F, OpenMode::ReadWrite);
    assert!(!third.try_lock(0..1, LockKind::Shared).unwrap());
    let image = sim.crash_image(&CrashChoice::DropAll);
    assert!(
        open(&image.env(), F, OpenMode::ReadWrite)
            .try_lock(0..10, LockKind::Exclusive)
            .unwrap()
    );
    drop(first);
    assert!(third.try_lock(0..10, LockKind::Exclusive).unwrap());
}

#[test]
fn strict_rules_catch_early_renames_and_late_writes() {
    let (sim, env, file) = with_file(b"");
    sim.set_strict(true);
    file.write_all_at(b"x", 0).unwrap();
    assert!(env.storage().rename(Path::new(F), Path::new("/g")).is_err());
    file.sync_data().unwrap();
    env.storage().rename(Path::new(F), Path::new("/g")).unwrap();
    sim.seal(Path::new("/g")).unwrap();
    assert!(
        file.write_at(b"y", 0).is_err() && file.set_len(0).is_err() && file.allocate(0, 9).is_err()
    );
    assert_eq!(sim.strict_violations().len(), 4);
    assert_eq!(read(&sim, "/g"), b"x");
}

#[test]
fn a_read_only_disk_refuses_changes_alone() {
    let (sim, env, file) = with_file(b"x");
    sim.set_read_only(true);
    let hash = sim.content_hash();
    assert!(file.write_at(b"y", 0).is_err());
    for mode in [
        OpenMode::ReadWrite,
        OpenMode::CreateNew,
        OpenMode::OpenOrCreate,
    ] {
        assert!(env.storage().open(Path::new("/g"), mode).is_err());
    }
    assert!(env.storage().remove_file(Path::new(F)).is_err());
    assert!(env.storage().create_dir(Path::new("/d")).is_err());
    open(&env, F, OpenMode::Read)
        .read_exact_at(&mut [0], 0)
        .unwrap();
    assert_eq!(sim.content_hash(), hash);
}

#[test]
fn names_behave_as_in_posix() {
    let (_sim, env, _file) = with_file(b"");
    let storage = env.storage();
    let p = Path::new;
    storage.create_dir_all(p("/a/b")).unwrap();
    storage.create_dir_all(p("/a/b")).unwrap();
    assert_eq!(
        storage.create_dir(p("/a")).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        storage.create_dir(p("/x/y")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        storage.create_dir(p("/f/y")).unwrap_err().kind(),
        ErrorKind::NotADirectory
    );
    assert_eq!(
        storage.open(p("/a"), OpenMode::Read).unwrap_err().kind(),
        ErrorKind::IsADirectory
    );
    assert_eq!(
        storage.open(p(F), OpenMode::CreateNew).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        storage
            .open(p("/g"), OpenMode::ReadWrite)
            .unwrap_err()
            .kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        storage.remove_dir(p("/a")).unwrap_err().kind(),
        ErrorKind::DirectoryNotEmpty
    );
    assert_eq!(
        storage.remove_file(p("/a")).unwrap_err().kind(),
        ErrorKind::IsADirectory
    );
    assert!(storage.rename(p("/a"), p("/a/b/c")).is_err());
    assert!(storage.rename(p(F), p("/a")).is_err());
    storage.hard_link(p(F), p("a/./b/../g")).unwrap();
    assert!(storage.hard_link(p(F), p("/a/g")).is_err());
    storage.remove_file(p(F)).unwrap();
    assert_eq!(storage.canonicalize(p("/a/../a/g")).unwrap(), p("/a/g"));
    let mut names: Vec<_> = storage
        .list_dir(p("/a"))
        .unwrap()
        .into_iter()
        .map(|e| (e.name, e.is_dir))
        .collect();
    names.sort();
    assert_eq!(names, [("b".into(), true), ("g".into(), false)]);
    storage.rename(p("/a"), p("/z")).unwrap();
    assert!(!storage.metadata(p("/z/g")).unwrap().is_dir);
}

#[test]
fn calls_are_counted_and_traced() {
    let (sim, env, file) = with_file(b"0123456789");
    sim.set_trace(true);
    sim.reset_stats();
    file.read_exact_at(&mut [0; 4], 6).unwrap();
    file.write_all_at(b"abc", 0).unwrap();
    file.sync_data().unwrap();
    assert!(
        env.storage()
            .rename(Path::new("/x"), Path::new("/y"))
            .is_err()
    );
    let stats = sim.stats();
    assert_eq!(
        (
            stats.calls,
            stats.bytes_read,
            stats.bytes_written,
            stats.syncs
        ),
        (4, 4, 3, 1)
    );
    let trace = sim.take_trace();
    let kinds: Vec<_> = trace
        .iter()
        .map(|call| (call.call, call.kind, call.error.is_none()))
        .collect();
    let expected = [
        (2, CallKind::Read, true),
        (3, CallKind::Write, true),
        (4, CallKind::SyncData, true),
        (5, CallKind::Rename, false),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(
        (trace[0].offset, trace[0].len_bytes, trace[0].path.as_path()),
        (6, 4, Path::new(F))
    );
    assert!(MUTATING.contains(&trace[3].kind) && trace[3].to.as_deref() == Some(Path::new("/y")));
}

#[test]
fn threads_can_be_refused_or_stepped() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let count = Arc::new(AtomicU64::new(0));
    let job = |add| {
        let count = Arc::clone(&count);
        Box::new(move || {
            count.fetch_add(add, Ordering::SeqCst);
        })
    };
    sim.set_spawn_mode(SpawnMode::Refuse);
    assert_eq!(
        env.spawner().spawn("a", job(1)).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    sim.set_spawn_mode(SpawnMode::Queue);
    let first = env.spawner().spawn("first", job(1)).unwrap();
    let second = env.spawner().spawn("second", job(10)).unwrap();
    let third = env
        .spawner()
        .spawn("third", Box::new(|| panic!("broken")))
        .unwrap();
    assert_eq!(sim.queued_jobs(), ["first", "second", "third"]);
    assert!(sim.run_one_job() && first.is_finished() && !second.is_finished());
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert_eq!(third.join().unwrap_err().message, "broken");
    assert!(second.is_finished() && !sim.run_one_job());
    assert_eq!(count.load(Ordering::SeqCst), 11);
}

#[test]
fn one_seed_gives_one_run() {
    let draw = |seed| SimEnv::new(seed).env().entropy().random_u64().unwrap();
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}
