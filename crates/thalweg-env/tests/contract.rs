//! What every storage promises: the same tests on the operating system's files, in memory and on the simulated machine.
#![cfg(not(feature = "shuttle"))]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{ErrorKind, IoSlice};
use std::path::Path;
use std::sync::Arc;

use thalweg_env::sim::SimEnv;
use thalweg_env::{DirEntry, Env, File, LockKind, MAX_SLICES, OpenMode};

/// One module of tests per storage, each test with an empty folder of its own.
macro_rules! contract {
    ($($test:ident),* $(,)?) => {
        mod os {
            $(#[test] fn $test() {
                let (dir, env) = (tempfile::tempdir().unwrap(), thalweg_env::Env::os());
                super::$test(&env, &env.storage().canonicalize(dir.path()).unwrap());
            })*
        }
        mod memory {
            $(#[test] fn $test() {
                super::with_folder(&thalweg_env::Env::in_memory(), super::$test);
            })*
        }
        mod simulated {
            $(#[test] fn $test() {
                super::with_folder(&super::SimEnv::new(1).env(), super::$test);
            })*
        }
    };
}

contract!(
    open_modes_create_or_insist,
    reads_and_writes_at_offsets,
    long_transfers_come_back_whole,
    vectored_writes_take_more_slices_than_one_call_may,
    allocate_grows_with_zeros_and_keeps_bytes,
    cut_bytes_come_back_as_zeros,
    removed_files_live_while_they_are_open,
    directories_list_rename_and_vanish,
    names_fail_as_in_posix,
    links_name_one_file,
    held_folders_are_found_by_the_path_they_had,
    locks_exclude_other_handles_by_range,
    threads_read_while_one_writes,
);

fn with_folder(env: &Env, test: impl Fn(&Env, &Path)) {
    let folder = Path::new("/folder");
    env.storage().create_dir(folder).unwrap();
    test(env, folder);
}

fn open(env: &Env, path: &Path, mode: OpenMode) -> Arc<dyn File> {
    env.storage().open(path, mode).unwrap()
}

fn read_all(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![1; usize::try_from(file.len_bytes().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn open_modes_create_or_insist(env: &Env, dir: &Path) {
    let path = dir.join("f");
    let open = |mode| env.storage().open(&path, mode);
    for mode in [OpenMode::Read, OpenMode::ReadWrite] {
        assert_eq!(open(mode).unwrap_err().kind(), ErrorKind::NotFound);
    }
    open(OpenMode::OpenOrCreate)
        .unwrap()
        .write_all_at(b"abc", 0)
        .unwrap();
    let taken = open(OpenMode::CreateNew).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    let there = open(OpenMode::OpenOrCreate).unwrap();
    assert_eq!(there.len_bytes().unwrap(), 3);
    let reader = open(OpenMode::Read).unwrap();
    assert!(reader.write_at(b"x", 0).is_err());
    assert!(reader.write_vectored_at(&[IoSlice::new(b"x")], 0).is_err());
    assert!(reader.set_len(0).is_err());
    assert!(reader.allocate(0, 9).is_err());
    assert_eq!(read_all(&*there), b"abc");
}

fn reads_and_writes_at_offsets(env: &Env, dir: &Path) {
    let file = open(env, &dir.join("f"), OpenMode::CreateNew);
    file.write_all_at(b"world", 6).unwrap();
    file.write_all_at(b"hello ", 0).unwrap();
    let mut buf = [0; 11];
    file.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"hello world");
    assert_eq!(file.read_at(&mut buf, 9).unwrap(), 2);
    assert_eq!(file.read_at(&mut buf, 11).unwrap(), 0);
    assert_eq!(file.read_at(&mut buf, 1 << 40).unwrap(), 0);
    let past_the_end = file.read_exact_at(&mut buf, 1).unwrap_err();
    assert_eq!(past_the_end.kind(), ErrorKind::UnexpectedEof);
    // Nothing to write moves no end.
    file.write_all_at(b"", 100).unwrap();
    assert_eq!(file.len_bytes().unwrap(), 11);
    file.set_len(5).unwrap();
    assert_eq!(file.len_bytes().unwrap(), 5);
    file.sync_data().unwrap();
    file.sync_all().unwrap();
}

fn long_transfers_come_back_whole(env: &Env, dir: &Path) {
    let file = open(env, &dir.join("f"), OpenMode::CreateNew);
    let bytes: Vec<u8> = (0..1_000_003_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    file.write_all_at(&bytes, 4_097).unwrap();
    let whole = read_all(&*file);
    assert!(whole[..4_097].iter().all(|byte| *byte == 0));
    assert!(whole[4_097..] == bytes);
    file.write_all_at(&bytes[..300_000], 500_000).unwrap();
    let whole = read_all(&*file);
    assert!(whole[500_000..800_000] == bytes[..300_000]);
    assert!(whole[800_000..] == bytes[800_000 - 4_097..]);
}

fn vectored_writes_take_more_slices_than_one_call_may(env: &Env, dir: &Path) {
    let file = open(env, &dir.join("f"), OpenMode::CreateNew);
    let parts: Vec<Vec<u8>> = (0..3 * MAX_SLICES)
        .map(|i| i.to_string().repeat(i % 3).into_bytes())
        .collect();
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    file.write_all_vectored_at(&mut slices, 7).unwrap();
    assert_eq!(read_all(&*file)[7..], parts.concat());
    file.write_all_vectored_at(&mut [IoSlice::new(b""), IoSlice::new(b"")], 0)
        .unwrap();
    file.write_all_vectored_at(&mut [], 0).unwrap();
}

fn allocate_grows_with_zeros_and_keeps_bytes(env: &Env, dir: &Path) {
    let file = open(env, &dir.join("f"), OpenMode::CreateNew);
    file.write_all_at(b"abc", 0).unwrap();
    file.allocate(0, 100_000).unwrap();
    let bytes = read_all(&*file);
    assert_eq!(&bytes[..3], b"abc");
    assert!(bytes.len() == 100_000 && bytes[3..].iter().all(|byte| *byte == 0));
    file.allocate(10, 10).unwrap();
    assert_eq!(file.len_bytes().unwrap(), 100_000);
    assert!(file.allocate(0, 0).is_err());
}

fn cut_bytes_come_back_as_zeros(env: &Env, dir: &Path) {
    let file = open(env, &dir.join("f"), OpenMode::CreateNew);
    file.write_all_at(&[7; 200_000], 0).unwrap();
    file.set_len(70_000).unwrap();
    file.set_len(150_000).unwrap();
    file.write_all_at(&[8; 10], 140_000).unwrap();
    let bytes = read_all(&*file);
    assert!(bytes[..70_000].iter().all(|byte| *byte == 7));
    assert!(bytes[70_000..140_000].iter().all(|byte| *byte == 0));
    assert_eq!(bytes[140_000..140_010], [8; 10]);
    assert!(bytes[140_010..].iter().all(|byte| *byte == 0));
}

fn removed_files_live_while_they_are_open(env: &Env, dir: &Path) {
    let (path, storage) = (dir.join("f"), env.storage());
    let old = open(env, &path, OpenMode::CreateNew);
    old.write_all_at(b"old", 0).unwrap();
    storage.remove_file(&path).unwrap();
    let gone = storage.open(&path, OpenMode::Read).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    let new = open(env, &path, OpenMode::CreateNew);
    new.write_all_at(b"new one", 0).unwrap();
    old.write_all_at(b"!", 3).unwrap();
    assert_eq!(read_all(&*old), b"old!");
    // A name that is replaced is removed.
    let other = dir.join("g");
    open(env, &other, OpenMode::CreateNew);
    new.sync_all().unwrap();
    storage.rename(&other, &path).unwrap();
    assert_eq!(storage.metadata(&path).unwrap().len_bytes, 0);
    assert_eq!(read_all(&*new), b"new one");
}

fn directories_list_rename_and_vanish(env: &Env, dir: &Path) {
    let storage = env.storage();
    let (deep, file) = (dir.join("a/b/c"), dir.join("a/f"));
    let no_parent = storage.create_dir(&deep).unwrap_err();
    assert_eq!(no_parent.kind(), ErrorKind::NotFound);
    storage.create_dir_all(&deep).unwrap();
    storage.create_dir_all(&deep).unwrap();
    storage.create_dir_all(Path::new("/")).unwrap();
    let taken = storage.create_dir(&deep).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    open(env, &file, OpenMode::CreateNew)
        .write_all_at(b"12345", 0)
        .unwrap();
    assert!(storage.create_dir_all(&file).is_err());
    assert!(storage.create_dir_all(&file.join("x")).is_err());
    let entry = |name: &str, is_dir| DirEntry {
        name: name.into(),
        is_dir,
    };
    let mut listed = storage.list_dir(&dir.join("a")).unwrap();
    listed.sort();
    assert_eq!(listed, [entry("b", true), entry("f", false)]);
    storage.hard_link(&file, &deep.join("g")).unwrap();
    storage.rename(&deep.join("g"), &deep.join("h")).unwrap();
    assert_eq!(storage.metadata(&deep.join("h")).unwrap().len_bytes, 5);
    assert!(storage.metadata(&deep).unwrap().is_dir);
    storage.sync_dir(&deep).unwrap();
    storage.open_dir(&deep).unwrap().sync().unwrap();
    let refused = |path: &Path| storage.open_dir(path).unwrap_err().kind();
    assert_eq!(refused(&deep.join("none")), ErrorKind::NotFound);
    assert_eq!(refused(&file), ErrorKind::NotADirectory);
    // Everything moves with its folder.
    storage.rename(&dir.join("a"), &dir.join("z")).unwrap();
    assert!(storage.metadata(&dir.join("a/b")).is_err());
    let moved = dir.join("z/b/c");
    assert_eq!(storage.list_dir(&moved).unwrap(), [entry("h", false)]);
    assert!(storage.remove_dir(&moved).is_err());
    storage.remove_file(&moved.join("h")).unwrap();
    storage.remove_dir(&moved).unwrap();
    let dotted = dir.join("z/b/../f");
    assert_eq!(storage.canonicalize(&dotted).unwrap(), dir.join("z/f"));
    assert!(storage.free_bytes(dir).unwrap() > 0);
}

fn held_folders_are_found_by_the_path_they_had(env: &Env, dir: &Path) {
    let folder = dir.join("held");
    let error = env.holding(&folder).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    drop(open(env, &folder, OpenMode::CreateNew));
    let error = env.holding(&folder).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotADirectory);
    env.storage().remove_file(&folder).unwrap();
    env.storage().create_dir(&folder).unwrap();
    let held = env.holding(&folder).unwrap();
    let storage = held.storage();
    assert!(storage.metadata(&folder).unwrap().is_dir);
    assert!(storage.free_bytes(&folder).unwrap() > 0);
    storage.create_dir(&folder.join("sub")).unwrap();
    let file = folder.join("sub/f");
    open(&held, &file, OpenMode::CreateNew)
        .write_all_at(b"abc", 0)
        .unwrap();
    storage.hard_link(&file, &folder.join("g")).unwrap();
    // From within and from outside.
    storage.rename(&folder.join("g"), &dir.join("h")).unwrap();
    storage.rename(&dir.join("h"), &folder.join("k")).unwrap();
    storage.sync_dir(&folder).unwrap();
    let names = |dir: &Path| {
        let listed = storage.list_dir(dir).unwrap().into_iter();
        let mut names: Vec<_> = listed.map(|entry| entry.name).collect();
        names.sort();
        names
    };
    assert_eq!(names(&folder), ["k", "sub"]);
    assert_eq!(names(dir), ["held"]);
    assert_eq!(names(&folder.join("sub")), ["f"]);
    assert_eq!(read_all(&*open(&held, &file, OpenMode::Read)), b"abc");
    storage.remove_file(&file).unwrap();
    storage.remove_dir(&folder.join("sub")).unwrap();
    // What is held can be held again.
    let again = held.holding(&folder).unwrap();
    assert_eq!(
        again
            .storage()
            .metadata(&folder.join("k"))
            .unwrap()
            .len_bytes,
        3
    );
}

/// Files in memory have no other process that would move their folders.
#[test]
fn held_folders_stay_what_they_were() {
    let case = |env: &Env, dir: &Path| {
        let (folder, moved) = (dir.join("held"), dir.join("moved"));
        env.storage().create_dir(&folder).unwrap();
        drop(open(env, &folder.join("old"), OpenMode::CreateNew));
        let held = env.holding(&folder).unwrap();
        let storage = held.storage();
        env.storage().rename(&folder, &moved).unwrap();
        env.storage().create_dir(&folder).unwrap();
        drop(open(env, &folder.join("new"), OpenMode::CreateNew));
        drop(open(&held, &folder.join("old"), OpenMode::ReadWrite));
        let missing = storage.metadata(&folder.join("new")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        storage
            .rename(&folder.join("old"), &folder.join("f"))
            .unwrap();
        assert_eq!(
            env.storage().metadata(&moved.join("f")).unwrap().len_bytes,
            0
        );
        storage.remove_file(&folder.join("f")).unwrap();
        // Removed, it takes nothing more, whoever has its path.
        env.storage().remove_dir(&moved).unwrap();
        let refused = storage.open(&folder.join("f"), OpenMode::CreateNew);
        assert_eq!(refused.map(drop).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(storage.list_dir(&folder).map_or(0, |names| names.len()), 0);
        env.storage().metadata(&folder.join("new")).unwrap();
        // Nor does one that was let go of, though its path leads somewhere again.
        let held = env.holding(&folder).unwrap();
        let file = open(&held, &folder.join("new"), OpenMode::ReadWrite);
        held.storage().release();
        held.storage().metadata(&folder.join("new")).unwrap_err();
        let refused = held
            .storage()
            .open(&folder.join("f"), OpenMode::OpenOrCreate);
        refused.map(drop).unwrap_err();
        file.write_all_at(b"abc", 0).unwrap();
        assert_eq!(env.storage().list_dir(&folder).unwrap().len(), 1);
    };
    let dir = tempfile::tempdir().unwrap();
    case(&Env::os(), dir.path());
    with_folder(&SimEnv::new(1).env(), |env, folder| case(env, folder));
}

fn names_fail_as_in_posix(env: &Env, dir: &Path) {
    let storage = env.storage();
    let p = |name: &str| dir.join(name);
    let file = open(env, &p("f"), OpenMode::CreateNew);
    file.sync_all().unwrap();
    storage.create_dir_all(&p("a/b")).unwrap();
    let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
    let opened = |name, mode| storage.open(&p(name), mode).map(drop);
    assert_eq!(kind(storage.create_dir(&p("a"))), ErrorKind::AlreadyExists);
    assert_eq!(kind(storage.create_dir(&p("x/y"))), ErrorKind::NotFound);
    assert_eq!(
        kind(storage.create_dir(&p("f/y"))),
        ErrorKind::NotADirectory
    );
    assert_eq!(
        kind(opened("f/y", OpenMode::OpenOrCreate)),
        ErrorKind::NotADirectory
    );
    assert_eq!(
        kind(opened("x/y", OpenMode::OpenOrCreate)),
        ErrorKind::NotFound
    );
    assert_eq!(
        kind(opened("a", OpenMode::ReadWrite)),
        ErrorKind::IsADirectory
    );
    assert_eq!(
        kind(storage.remove_dir(&p("a"))),
        ErrorKind::DirectoryNotEmpty
    );
    assert_eq!(kind(storage.remove_dir(&p("f"))), ErrorKind::NotADirectory);
    assert_eq!(kind(storage.remove_file(&p("a"))), ErrorKind::IsADirectory);
    assert_eq!(kind(storage.remove_file(&p("x"))), ErrorKind::NotFound);
    assert_eq!(
        kind(storage.list_dir(&p("f")).map(drop)),
        ErrorKind::NotADirectory
    );
    assert_eq!(
        kind(storage.metadata(&p("x")).map(drop)),
        ErrorKind::NotFound
    );
    assert!(storage.rename(&p("a"), &p("a/b/c")).is_err());
    assert!(storage.rename(&p("f"), &p("a")).is_err());
    assert!(storage.rename(&p("a"), &p("f")).is_err());
    assert_eq!(kind(storage.rename(&p("x"), &p("y"))), ErrorKind::NotFound);
    storage.rename(&p("f"), &p("f")).unwrap();
    assert!(!storage.metadata(&p("f")).unwrap().is_dir);
}

fn links_name_one_file(env: &Env, dir: &Path) {
    let storage = env.storage();
    let (one, other) = (dir.join("one"), dir.join("other"));
    let file = open(env, &one, OpenMode::CreateNew);
    storage.hard_link(&one, &other).unwrap();
    let taken = storage.hard_link(&one, &other).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    file.write_all_at(b"both", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(read_all(&*open(env, &other, OpenMode::Read)), b"both");
    // POSIX: two names of one file both stay.
    storage.rename(&one, &other).unwrap();
    storage.remove_file(&one).unwrap();
    assert_eq!(read_all(&*open(env, &other, OpenMode::Read)), b"both");
}

fn locks_exclude_other_handles_by_range(env: &Env, dir: &Path) {
    let path = dir.join("lock");
    let open = |mode| open(env, &path, mode);
    let (first, second) = (open(OpenMode::OpenOrCreate), open(OpenMode::ReadWrite));
    assert!(first.try_lock(0..8, LockKind::Exclusive).unwrap());
    assert!(!second.try_lock(0..8, LockKind::Exclusive).unwrap());
    assert!(!second.try_lock(7..9, LockKind::Shared).unwrap());
    assert!(second.is_locked(0..1).unwrap() && !first.is_locked(0..8).unwrap());
    if cfg!(target_os = "linux") {
        assert!(!second.is_locked(8..9).unwrap());
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
    let reader = open(OpenMode::Read);
    assert!(reader.try_lock(0..8, LockKind::Shared).unwrap());
    assert!(reader.try_lock(20..21, LockKind::Exclusive).is_err());
    assert!(second.try_lock(5..5, LockKind::Shared).is_err());
}

/// Each reader sees a prefix of what was written, and every byte as it was written.
fn threads_read_while_one_writes(env: &Env, dir: &Path) {
    const BYTES: u64 = 400_000;
    let path = dir.join("f");
    let file = open(env, &path, OpenMode::CreateNew);
    let byte_at = |at: u64| (at % 251) as u8 + 1;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let reader = open(env, &path, OpenMode::Read);
                let (mut buf, mut seen) = (vec![0; 70_000], 0);
                while seen < BYTES {
                    let start = seen.saturating_sub(1_000);
                    let count = reader.read_at(&mut buf, start).unwrap();
                    assert!(
                        (start..)
                            .zip(&buf[..count])
                            .all(|(at, byte)| *byte == byte_at(at))
                    );
                    seen = start + count as u64;
                }
            });
        }
        let mut at = 0;
        while at < BYTES {
            let len = (at % 1_237 + 1).min(BYTES - at);
            let bytes: Vec<u8> = (at..at + len).map(byte_at).collect();
            file.write_all_at(&bytes, at).unwrap();
            at += len;
        }
    });
}
