//! Locks, atomics and threads under shuttle: schedules are explored, and races found.
#![cfg(feature = "shuttle")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thalweg_env::OpenMode;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_env::sync::atomic::{AtomicU64, Ordering};
use thalweg_env::sync::{Condvar, Mutex, RwLock};

#[test]
fn a_queue_hands_everything_over_and_is_durable() {
    shuttle::check_random(
        || {
            let sim = SimEnv::new(1);
            let env = sim.env();
            let file = env
                .storage()
                .open(Path::new("/log"), OpenMode::CreateNew)
                .unwrap();
            env.storage().sync_dir(Path::new("/")).unwrap();
            let queue = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
            let filled = Arc::clone(&queue);
            let writer = env
                .spawner()
                .spawn(
                    "writer",
                    Box::new(move || {
                        for at in 0..3_u64 {
                            let byte = {
                                let mut bytes = filled.0.lock();
                                while bytes.is_empty() {
                                    filled.1.wait(&mut bytes);
                                }
                                bytes.remove(0)
                            };
                            file.write_all_at(&[byte], at).unwrap();
                            file.sync_data().unwrap();
                        }
                    }),
                )
                .unwrap();
            for byte in *b"abc" {
                queue.0.lock().push(byte);
                queue.1.notify_one();
            }
            writer.join().unwrap();
            assert_eq!(
                sim.crash_image(&CrashChoice::DropAll)
                    .read_file(Path::new("/log"))
                    .unwrap(),
                b"abc"
            );
        },
        300,
    );
}

#[test]
fn timed_waits_run_out() {
    shuttle::check_random(
        || {
            let (mutex, condvar) = (Mutex::new(1), Condvar::new());
            let mut guard = mutex.lock();
            assert!(
                condvar
                    .wait_for(&mut guard, Duration::from_secs(1))
                    .timed_out()
            );
            *guard += 1;
            drop(guard);
            assert_eq!(mutex.into_inner(), 2);
            let shared = RwLock::new(3);
            *shared.write() += 1;
            assert_eq!(*shared.read(), 4);
        },
        20,
    );
}

#[test]
#[should_panic(expected = "an increment is lost")]
fn a_lost_update_is_found() {
    shuttle::check_random(
        || {
            let env = SimEnv::new(1).env();
            let counter = Arc::new(AtomicU64::new(0));
            let add = || {
                let counter = Arc::clone(&counter);
                let job =
                    move || counter.store(counter.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
                env.spawner().spawn("add", Box::new(job)).unwrap()
            };
            let threads = [add(), add()];
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
            assert_eq!(counter.load(Ordering::SeqCst), 2, "an increment is lost");
        },
        1000,
    );
}
