//! The operating system behind the traits: locks between processes, clocks, threads. Files are in `contract.rs`.
#![cfg(not(feature = "shuttle"))]
#![expect(
    clippy::disallowed_methods,
    reason = "these tests compare the environment with the system itself"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thalweg_env::sync::Mutex;
use thalweg_env::{Env, LockKind, OpenMode, start_threads};

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
    let id = clock.process() & u64::from(u32::MAX);
    assert_eq!(id, u64::from(std::process::id()));
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

/// What a forked child does; it may call nothing that another thread could hold a lock of.
#[expect(unsafe_code, reason = "forks are what is tested")]
fn fork(child: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child calls what `child` calls, which is system calls and atomics alone, and ends.
    match unsafe { libc::fork() } {
        // SAFETY: ends the child at once, without anything of the parent's being run or dropped.
        0 => unsafe { libc::_exit(i32::from(!child())) },
        id => {
            assert!(id > 0, "{}", std::io::Error::last_os_error());
            id
        }
    }
}

/// The system gives the id of a process that has ended to another one, also to a child of its child.
#[test]
fn a_child_is_not_its_parent_whatever_its_id() {
    let env = Env::os();
    let ancestors = move || env.clock().process() >> u32::BITS;
    let here = ancestors();
    let child = fork(|| {
        let is_next = ancestors() == here + 1;
        let grandchild = fork(|| ancestors() == here + 2);
        is_next && exit_status(grandchild) == 0
    });
    assert_eq!(exit_status(child), 0);
    assert_eq!(ancestors(), here);
}

#[expect(unsafe_code, reason = "forks are what is tested")]
fn exit_status(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    status
}

#[test]
fn forks_wait_until_threads_are_started() {
    static IS_STARTING: AtomicBool = AtomicBool::new(false);
    let worker = Env::os().spawner().spawn(
        "worker",
        Box::new(|| {
            for _ in 0..2_000 {
                start_threads(|| {
                    IS_STARTING.store(true, Ordering::SeqCst);
                    std::thread::yield_now();
                    IS_STARTING.store(false, Ordering::SeqCst);
                });
            }
        }),
    );
    let worker = worker.unwrap();
    let mut forks = 0;
    while !worker.is_finished() || forks == 0 {
        let child = fork(|| {
            // A thread of the child starts others as well, and a child of the child waits for nobody.
            !IS_STARTING.load(Ordering::SeqCst) && start_threads(|| true)
        });
        assert_eq!(exit_status(child), 0);
        forks += 1;
    }
    worker.join().unwrap();
}

#[expect(unsafe_code, reason = "forks are what is tested")]
fn signal(process: libc::pid_t, signal: i32) -> bool {
    // SAFETY: the call takes two numbers.
    unsafe { libc::kill(process, signal) == 0 }
}

/// Run by [`a_forked_worker_keeps_no_lock_of_a_killed_process`] in a second process; does nothing otherwise.
#[test]
fn child_holds_a_lock_and_forks() {
    let Ok(path) = std::env::var("THALWEG_ENV_FORK_PATH") else {
        return;
    };
    let storage = Env::os();
    let open = |suffix: &str| {
        let path = format!("{path}{suffix}");
        storage
            .storage()
            .open(Path::new(&path), OpenMode::OpenOrCreate)
            .unwrap()
    };
    let (file, other) = (open(""), open(".other"));
    assert!(file.try_lock(0..1, LockKind::Exclusive).unwrap());
    let worker = fork(|| {
        #[expect(unsafe_code, reason = "waits without a lock of the C library")]
        // SAFETY: the call takes nothing.
        unsafe {
            libc::pause();
        }
        true
    });
    // Open before the fork and locked after it: the worker shared the file when it began.
    assert!(other.try_lock(64..128, LockKind::Shared).unwrap());
    std::fs::write(format!("{path}.said"), worker.to_string()).unwrap();
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

#[test]
fn a_forked_worker_keeps_no_lock_of_a_killed_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_holds_a_lock_and_forks"])
        .env("THALWEG_ENV_FORK_PATH", &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let worker: libc::pid_t = answer(&path).parse().unwrap();
    let open = |path: &Path| Env::os().storage().open(path, OpenMode::ReadWrite).unwrap();
    let (file, other) = (open(&path), open(&dir.path().join("lock.other")));
    assert!(!file.try_lock(0..1, LockKind::Exclusive).unwrap());
    assert!(!other.try_lock(64..65, LockKind::Exclusive).unwrap());
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(signal(worker, 0), "the worker has ended");
    let is_taken = || {
        file.try_lock(0..1, LockKind::Exclusive).unwrap()
            && other.try_lock(0..128, LockKind::Exclusive).unwrap()
    };
    // On a busy machine the worker may not have run at all before its parent was killed.
    let clock = Arc::clone(Env::os().clock());
    let start_ns = clock.monotonic_ns();
    let mut taken = is_taken();
    while !taken && clock.monotonic_ns() - start_ns < 10_000_000_000 {
        clock.sleep(Duration::from_millis(1));
        taken = is_taken();
    }
    assert!(signal(worker, libc::SIGKILL));
    assert!(taken, "the worker keeps the lock of its parent");
}

#[test]
fn the_lock_stays_with_the_process_that_forks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let open = || {
        Env::os()
            .storage()
            .open(&path, OpenMode::OpenOrCreate)
            .unwrap()
    };
    let (file, other) = (open(), open());
    assert!(file.try_lock(0..8, LockKind::Exclusive).unwrap());
    // Whatever the child does with its copy of the handle, also when it closes it.
    let inherited = Arc::clone(&file);
    let child = fork(move || {
        let unlocked = inherited.unlock(0..8);
        drop(inherited);
        let _ = unlocked;
        true
    });
    assert_eq!(exit_status(child), 0);
    assert!(!other.try_lock(0..1, LockKind::Shared).unwrap());
    drop(file);
    assert!(other.try_lock(0..8, LockKind::Exclusive).unwrap());
}

/// Forks while other threads open, lock and close files: no child holds a lock, and none loses a descriptor of another file
/// whose number was that of a locked one a moment before.
#[test]
#[expect(unsafe_code, reason = "forks are what is tested")]
fn forks_hit_only_the_descriptors_of_locks() {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::{AtomicI32, AtomicU64};

    const FORKS: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let (env, ended) = (Env::os(), AtomicBool::new(false));
    let witness = dir.path().join("witness");
    std::fs::write(&witness, "x").unwrap();
    let inode = std::fs::metadata(&witness).unwrap().ino();
    let (opened, locked) = (AtomicI32::new(-1), AtomicU64::new(0));
    // A fork copies the descriptors first and the memory after them. While it does, the witness stays as it is: else a child
    // may know of a descriptor that it did not inherit. The threads that lock go on.
    let steady = Mutex::new(());
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (env, ended, locked) = (&env, &ended, &locked);
            let path = dir.path().join(format!("lock{thread}"));
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let open = || env.storage().open(&path, OpenMode::OpenOrCreate).unwrap();
                    let file = open();
                    // A child that kept the lock of the handle before would be in the way of this one.
                    assert!(file.try_lock(0..1, LockKind::Exclusive).unwrap());
                    locked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (ended, opened, steady) = (&ended, &opened, &steady);
        scope.spawn(move || {
            let mut kept = None;
            while !ended.load(Ordering::Relaxed) {
                let changes = steady.lock();
                // The number that is free may be that of a locked file a moment before.
                drop(kept.take());
                let file = std::fs::File::open(&witness).unwrap();
                opened.store(file.as_raw_fd(), Ordering::SeqCst);
                kept = Some(file);
                drop(changes);
                std::thread::yield_now();
            }
        });
        let mut waiting = std::collections::VecDeque::new();
        for _ in 0..FORKS {
            let held = steady.lock();
            waiting.push_back(fork(|| {
                let descriptor = opened.load(Ordering::SeqCst);
                if descriptor < 0 {
                    return true;
                }
                // SAFETY: `found` is a plain C struct that outlives the call.
                unsafe {
                    let mut found: libc::stat = std::mem::zeroed();
                    libc::fstat(descriptor, &raw mut found) == 0 && found.st_ino == inode
                }
            }));
            drop(held);
            // Several are alive at any time.
            if waiting.len() > 4 {
                let status = waiting.pop_front().map(exit_status);
                ended.fetch_or(status != Some(0), Ordering::Relaxed);
                assert_eq!(status, Some(0), "a child lost a descriptor");
            }
        }
        for child in waiting {
            assert_eq!(exit_status(child), 0, "a child lost a descriptor");
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert!(locked.load(Ordering::Relaxed) > 0);
}

#[test]
fn what_a_process_has_opened_is_of_no_use_in_its_child() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let env = Env::os().for_this_process();
    let file = env.storage().open(&path, OpenMode::CreateNew).unwrap();
    file.write_all_at(b"whole", 0).unwrap();
    let owner = env.owner();
    let child = fork(|| {
        let mut buf = [0; 5];
        !owner.is_here()
            && file.set_len(0).is_err()
            && file.write_at(b"x", 0).is_err()
            && file.read_at(&mut buf, 0).is_err()
            && env.storage().remove_file(&path).is_err()
            && Env::os().storage().metadata(&path).is_ok()
    });
    assert_eq!(exit_status(child), 0);
    let mut buf = [0; 5];
    file.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"whole");
    assert!(owner.is_here());
}

#[test]
fn a_child_neither_joins_nor_detaches_threads_of_its_parent() {
    let env = Env::os();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let spawn = |job: Box<dyn FnOnce() + Send>| env.spawner().spawn("worker", job).unwrap();
    let threads = [
        spawn(Box::new(move || _ = wait.recv())),
        spawn(Box::new(|| ())),
    ];
    let mut threads = Some(threads);
    let child = fork(|| {
        // Its stack is that of a thread of the parent, and with it its number.
        let own = spawn(Box::new(|| ()));
        let [first, second] = threads.take().unwrap();
        drop(first);
        second.join().is_err() && own.join().is_ok()
    });
    assert_eq!(exit_status(child), 0);
    go.send(()).unwrap();
    for thread in threads.unwrap() {
        thread.join().unwrap();
    }
}

/// The file system of processes has no blocks at all, as ramfs has none.
#[cfg(target_os = "linux")]
#[test]
fn a_file_system_without_a_limit_is_not_full() {
    let free_bytes = Env::os().storage().free_bytes(Path::new("/proc")).unwrap();
    assert_eq!(free_bytes, u64::MAX);
}
