//! The same names as in `native`, on shuttle, whose scheduler decides at every call which thread goes on.

pub(super) use shuttle::sync as inner;

/// Which thread this is.
pub use shuttle::thread::{ThreadId, current as current_thread};

/// Atomic integers and fences, as in the standard library.
pub mod atomic {
    pub use shuttle::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };
}

/// The threads of which the spawners of this crate are made.
pub(crate) mod thread {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use crate::runtime::{Join, JoinHandle, Panicked};

    pub(crate) use shuttle::thread::yield_now;

    struct Thread {
        handle: shuttle::thread::JoinHandle<()>,
        finished: Arc<AtomicBool>,
    }

    impl Join for Thread {
        fn join(self: Box<Self>) -> Result<(), Panicked> {
            self.handle
                .join()
                .map_err(|payload| Panicked::from_payload(payload.as_ref()))
        }

        fn is_finished(&self) -> bool {
            self.finished.load(Ordering::Acquire)
        }
    }

    pub(crate) fn spawn(name: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
        let finished = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&finished);
        let handle = shuttle::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                job();
                ended.store(true, Ordering::Release);
            })?;
        Ok(JoinHandle::new(Box::new(Thread { handle, finished })))
    }

    pub(crate) fn sleep(duration: Duration) {
        shuttle::thread::sleep(duration);
    }
}
