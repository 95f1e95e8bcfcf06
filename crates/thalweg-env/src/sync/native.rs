//! The real thing.

pub use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};

/// Atomic integers and fences, as in the standard library.
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };
}

/// What the spawners of this crate are made of.
pub(crate) mod thread {
    #![expect(
        clippy::disallowed_methods,
        reason = "the one place that starts threads and sleeps"
    )]

    use std::io;
    use std::thread;
    use std::time::Duration;

    use crate::runtime::{Join, JoinHandle, Panicked};

    pub(crate) use std::thread::yield_now;

    impl Join for thread::JoinHandle<()> {
        fn join(self: Box<Self>) -> Result<(), Panicked> {
            thread::JoinHandle::join(*self)
                .map_err(|payload| Panicked::from_payload(payload.as_ref()))
        }

        fn is_finished(&self) -> bool {
            thread::JoinHandle::is_finished(self)
        }
    }

    pub(crate) fn spawn(name: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(job)?;
        Ok(JoinHandle::new(Box::new(thread)))
    }

    pub(crate) fn sleep(duration: Duration) {
        thread::sleep(duration);
    }
}
