//! The same names on shuttle, whose scheduler decides at every call which thread goes on.

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

use shuttle::sync as inner;

pub use inner::{RwLockReadGuard, RwLockWriteGuard};

/// Atomic integers and fences, as in the standard library.
pub mod atomic {
    pub use shuttle::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };
}

/// Mutual exclusion.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(inner::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(inner::Mutex::new(value))
    }

    /// The value, without its lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Blocks until the lock is ours.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            held: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)),
            mutex: &self.0,
        }
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard {
            held: Some(guard),
            mutex: &self.0,
        })
    }

    /// The value of a mutex nobody else can see.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds a [`Mutex`]; empty only while its thread waits in [`Condvar::wait`].
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    held: Option<inner::MutexGuard<'a, T>>,
    mutex: &'a inner::Mutex<T>,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[expect(
        clippy::expect_used,
        reason = "only Condvar takes the inner guard, and puts it back"
    )]
    fn deref(&self) -> &T {
        self.held.as_ref().expect("a guard in use holds its lock")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[expect(
        clippy::expect_used,
        reason = "only Condvar takes the inner guard, and puts it back"
    )]
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("a guard in use holds its lock")
    }
}

/// Many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(inner::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(inner::RwLock::new(value))
    }

    /// The value, without its lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Blocks until the lock is ours to read.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until the lock is ours alone.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a change of what a [`Mutex`] guards.
#[derive(Debug, Default)]
pub struct Condvar(inner::Condvar);

/// Whether [`Condvar::wait_for`] ended because time ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether time ran out.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition nobody waits for.
    #[must_use]
    pub const fn new() -> Condvar {
        Condvar(inner::Condvar::new())
    }

    /// Releases the lock, waits for a notification, takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.held = guard
            .held
            .take()
            .map(|held| self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// Like [`Condvar::wait`], at most for that long.
    ///
    /// Time does not pass in an exploration, so the wait runs out as soon as the other threads had a
    /// chance to run. Shuttle's own `wait_timeout` never runs out, which would turn every periodic
    /// thread into a deadlock.
    pub fn wait_for<'a, T: 'a>(
        &self,
        guard: &mut MutexGuard<'a, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        let _ = timeout;
        guard.held = None;
        shuttle::thread::yield_now();
        guard.held = Some(guard.mutex.lock().unwrap_or_else(PoisonError::into_inner));
        WaitTimeoutResult(true)
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// What the spawners of this crate are made of.
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
