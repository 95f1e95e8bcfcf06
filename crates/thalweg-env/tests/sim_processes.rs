//! Forks of the simulated machine, and threads that cannot be started.
#![cfg(not(feature = "shuttle"))]

#[expect(dead_code, reason = "some helpers are of other files")]
mod common;

use std::io::ErrorKind;
use std::path::Path;

use common::{F, open, read, with_file};
use thalweg_env::sim::{
    CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, SimEnv, SpawnMode,
};
use thalweg_env::{LockKind, OpenMode};

#[test]
fn a_child_shares_open_files_and_is_another_process() {
    let (sim, env, file) = with_file(b"....");
    let child = sim.fork_process(sim.process_id());
    assert_ne!(child, sim.process_id());
    sim.set_trace(true);
    sim.as_process(child, || {
        assert_eq!(env.clock().process(), u64::from(child));
        file.write_all_at(b"ab", 1).unwrap();
        open(&env, "/g", OpenMode::CreateNew);
    });
    assert_eq!(env.clock().process(), u64::from(sim.process_id()));
    assert_eq!(read(&sim, F), b".ab.");
    file.write_all_at(b"c", 3).unwrap();
    let by: Vec<u32> = sim
        .take_trace()
        .iter()
        .map(|call| call.process_id)
        .collect();
    assert_eq!(by, [child, child, sim.process_id()]);
}

#[test]
fn locks_stay_until_the_last_process_that_inherited_them_lets_go() {
    let (sim, env, file) = with_file(b"");
    assert!(file.try_lock(0..1, LockKind::Exclusive).unwrap());
    let child = sim.fork_process(sim.process_id());
    let grandchild = sim.fork_process(child);
    let other = open(&sim.env_of_process(99), F, OpenMode::ReadWrite);
    let is_free = || other.try_lock(0..1, LockKind::Exclusive).unwrap();
    sim.kill_process(sim.process_id());
    assert_eq!(file.len_bytes().unwrap_err().to_string(), "simulated crash");
    assert!(!is_free());
    // The lock is of the open file: the child's own one, as the child sees it.
    assert!(sim.as_process(child, || file.try_lock(0..1, LockKind::Exclusive).unwrap()));
    sim.kill_process(child);
    assert!(!is_free());
    sim.as_process(grandchild, || drop(file));
    assert!(is_free());
    drop(env);
}

#[test]
fn any_holder_may_unlock_for_all() {
    let (sim, _env, file) = with_file(b"");
    assert!(file.try_lock(0..1, LockKind::Exclusive).unwrap());
    let child = sim.fork_process(sim.process_id());
    sim.as_process(child, || file.unlock(0..1).unwrap());
    let other = open(&sim.env_of_process(99), F, OpenMode::ReadWrite);
    assert!(other.try_lock(0..1, LockKind::Exclusive).unwrap());
}

#[test]
fn what_a_child_drops_its_parent_still_holds() {
    let (sim, _env, file) = with_file(b"");
    assert!(file.try_lock(0..1, LockKind::Exclusive).unwrap());
    let child = sim.fork_process(sim.process_id());
    sim.as_process(child, || drop(file));
    let other = open(&sim.env_of_process(99), F, OpenMode::ReadWrite);
    assert!(!other.try_lock(0..1, LockKind::Exclusive).unwrap());
    sim.kill_process(sim.process_id());
    assert!(other.try_lock(0..1, LockKind::Exclusive).unwrap());
}

#[test]
fn files_opened_after_a_fork_are_not_shared() {
    let (sim, env, file) = with_file(b"");
    let child = sim.fork_process(sim.process_id());
    let late = open(&env, F, OpenMode::ReadWrite);
    let of_child = sim.as_process(child, || open(&env, F, OpenMode::ReadWrite));
    assert!(sim.as_process(child, || late.len_bytes()).is_err());
    assert!(sim.as_process(child, || of_child.len_bytes()).is_ok());
    assert!(sim.as_process(child, || file.len_bytes()).is_ok());
}

#[test]
fn an_environment_that_is_told_of_forks_may_close_what_is_locked() {
    let (sim, env, file) = with_file(b"");
    let unlocked = open(&env, F, OpenMode::ReadWrite);
    assert!(file.try_lock(0..1, LockKind::Exclusive).unwrap());
    sim.set_forks_close_locked(true);
    let child = sim.fork_process(sim.process_id());
    assert!(sim.as_process(child, || unlocked.len_bytes()).is_ok());
    let errno = sim
        .as_process(child, || file.len_bytes())
        .unwrap_err()
        .raw_os_error();
    assert_eq!(errno, Some(Errno::BADF.raw_os_error()));
    let other = open(&sim.env_of_process(99), F, OpenMode::ReadWrite);
    assert!(
        !other.try_lock(0..1, LockKind::Exclusive).unwrap(),
        "the parent lives"
    );
    sim.kill_process(sim.process_id());
    assert!(other.try_lock(0..1, LockKind::Exclusive).unwrap());
}

#[test]
fn a_child_inherits_the_working_directory_and_starts_threads_of_its_own() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    env.storage().create_dir(Path::new("/d")).unwrap();
    sim.set_working_dir(sim.process_id(), Path::new("/d"))
        .unwrap();
    let child = sim.fork_process(sim.process_id());
    sim.set_working_dir(sim.process_id(), Path::new("/"))
        .unwrap();
    let of_thread = env.clone();
    let job = move || {
        open(&of_thread, "made", OpenMode::CreateNew);
    };
    let started = sim.as_process(child, || {
        env.spawner().spawn("of the child", Box::new(job)).unwrap()
    });
    started.join().unwrap();
    assert!(sim.read_file(Path::new("/d/made")).is_ok());
}

#[test]
fn a_file_without_a_name_takes_space_until_the_child_ends() {
    let (sim, env, file) = with_file(&[1; 4096]);
    sim.set_quota(Some(4096));
    let child = sim.fork_process(sim.process_id());
    env.storage().remove_file(Path::new(F)).unwrap();
    drop(file);
    let free = || env.storage().free_bytes(Path::new("/")).unwrap();
    assert_eq!(free(), 0);
    sim.kill_process(child);
    assert_eq!(free(), 4096);
    drop(sim.crash_image(&CrashChoice::Kill));
}

#[test]
fn the_nth_thread_is_refused() {
    let sim = SimEnv::new(1);
    sim.set_spawn_mode(SpawnMode::Queue);
    let spawn = |name: &str| {
        let started = sim.env().spawner().spawn(name, Box::new(|| {}));
        started.map(drop).map_err(|e| e.kind())
    };
    sim.set_plan(FaultPlan::refuse_thread(2));
    let calls = sim.calls();
    assert_eq!(
        [spawn("a"), spawn("b"), spawn("c"), spawn("d")],
        [Ok(()), Ok(()), Err(ErrorKind::WouldBlock), Ok(())]
    );
    assert_eq!(sim.calls(), calls, "it is no call of storage");
    assert_eq!(sim.queued_jobs(), ["a", "b", "d"]);
    let named = FaultRule::new(Fault::Error(Errno::AGAIN))
        .on(&[CallKind::Spawn])
        .path_suffix("encode");
    sim.set_plan(FaultPlan::none().rule(named));
    assert_eq!(
        [spawn("sync"), spawn("to encode")],
        [Ok(()), Err(ErrorKind::WouldBlock)]
    );
    // Rules for all calls mean those of storage.
    sim.set_plan(FaultPlan::fail_from(1, Errno::IO));
    assert_eq!(spawn("e"), Ok(()));
    sim.kill_process(sim.process_id());
    assert!(spawn("f").is_err());
}
