//! The real thing.

pub(super) use std::sync as inner;

/// Which thread this is.
pub use std::thread::{ThreadId, current as current_thread};

/// Atomic integers and fences, as in the standard library.
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };
}

/// The threads of which the spawners of this crate are made.
pub(crate) mod thread {
    #![expect(
        clippy::disallowed_methods,
        reason = "the one place that starts threads and sleeps"
    )]

    use std::io;
    use std::mem::ManuallyDrop;
    use std::thread;
    use std::time::Duration;

    use crate::os::process;
    use crate::owner::NotOwner;
    use crate::runtime::{Join, JoinHandle, Panicked};

    pub(crate) use std::thread::yield_now;

    /// A thread of the process that started it. A child of a fork has its handle and not the thread, whose number may be
    /// that of another one there: to join or to detach it would hit that one.
    struct Thread {
        handle: Option<thread::JoinHandle<()>>,
        process: u64,
    }

    impl Join for Thread {
        fn join(mut self: Box<Self>) -> Result<(), Panicked> {
            let is_here = self.process == process::key();
            match self.handle.take_if(|_| is_here) {
                Some(handle) => handle
                    .join()
                    .map_err(|payload| Panicked::from_payload(payload.as_ref())),
                None => Err(Panicked {
                    message: NotOwner.to_string(),
                }),
            }
        }

        fn is_finished(&self) -> bool {
            let handle = self.handle.as_ref();
            handle.is_none_or(thread::JoinHandle::is_finished)
        }
    }

    impl Drop for Thread {
        fn drop(&mut self) {
            if self.process != process::key() {
                let _not_detached = ManuallyDrop::new(self.handle.take());
            }
        }
    }

    pub(crate) fn spawn(name: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
        let handle = thread::Builder::new().name(name.to_owned()).spawn(job)?;
        Ok(JoinHandle::new(Box::new(Thread {
            handle: Some(handle),
            process: process::key(),
        })))
    }

    pub(crate) fn sleep(duration: Duration) {
        thread::sleep(duration);
    }
}
