//! Work that several threads share.
#![cfg(not(feature = "shuttle"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use thalweg_env::sim::SimEnv;
use thalweg_env::{Env, Panicked};

#[test]
fn all_is_done_when_the_call_returns() {
    for env in [Env::os(), Env::in_memory(), SimEnv::new(1).env()] {
        for threads in [0, 1, 2, 5] {
            let left = AtomicUsize::new(1_000);
            let mut done = vec![0_u8; 1_000];
            let cells: Vec<_> = done.iter_mut().map(thalweg_env::sync::Mutex::new).collect();
            let work = || {
                while let Ok(before) =
                    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                        left.checked_sub(1)
                    })
                {
                    **cells[before - 1].lock() += 1;
                }
            };
            env.spawner().share("worker", threads, &work);
            drop(cells);
            assert!(done.iter().all(|times| *times == 1), "{threads} threads");
        }
    }
}

#[test]
fn threads_of_the_system_work_at_once() {
    let all_here = Barrier::new(3);
    let work = || {
        all_here.wait();
    };
    Env::os().spawner().share("worker", 3, &work);
}

#[test]
fn a_simulated_machine_does_it_in_one_call() {
    let calls = AtomicUsize::new(0);
    let work = || {
        calls.fetch_add(1, Ordering::SeqCst);
    };
    SimEnv::new(1).env().spawner().share("worker", 4, &work);
    assert_eq!(calls.into_inner(), 1);
}

#[test]
fn a_panic_reaches_the_caller_after_all_have_ended() {
    let (panicked, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        if panicked.fetch_add(1, Ordering::SeqCst) == 0 {
            panic!("broken work");
        }
        ended.fetch_add(1, Ordering::SeqCst);
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        Env::os().spawner().share("worker", 3, &work);
    }));
    let message = Panicked::from_payload(&*outcome.unwrap_err()).message;
    assert!(
        message.contains("panicked") || message == "broken work",
        "{message}"
    );
    assert_eq!(ended.into_inner(), 2);
}
