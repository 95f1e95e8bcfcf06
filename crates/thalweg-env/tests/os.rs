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

use thalweg_env::{Env, LockKind, OpenMode};

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
