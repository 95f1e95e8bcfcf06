//! Locks and condition variables: those of the standard library or of shuttle, without poisoning, with guards by reference.
//!
//! Invariant: the state of a lock is in its own memory, and none of it in a table of the process. A child of a fork inherits
//! locks that other threads held, and must not touch them; locks that it makes itself work.
//!
//! Rejected: `parking_lot`. Its locks are smaller and do not poison, but all threads that wait for one are queued in a table of
//! the process. The child of a fork inherits the queues with threads that it does not have, whose memory is given out again:
//! a database that it opened for itself hung in them, or crashed.

#![cfg_attr(
    not(feature = "shuttle"),
    expect(clippy::disallowed_types, reason = "the one place that wraps them")
)]

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use super::atomic::{AtomicUsize, Ordering};
use super::inner;

pub use inner::{RwLockReadGuard, RwLockWriteGuard};

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
        self.guard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.0.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.guard(held))
    }

    fn guard<'a>(&'a self, held: inner::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard {
            held: Some(held),
            #[cfg(feature = "shuttle")]
            mutex: &self.0,
        }
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
    #[cfg(feature = "shuttle")]
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
pub struct Condvar {
    inner: inner::Condvar,
    /// Threads that wait. Each counts itself with the mutex held: whoever changes what the mutex guards, and then notifies,
    /// sees all that have not seen the change. Where nobody waits, a notification costs no system call.
    waiting: AtomicUsize,
}

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
        Condvar {
            inner: inner::Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Releases the lock, waits for a notification, takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let held = guard.held.take();
        guard.held = held.map(|held| {
            self.inner
                .wait(held)
                .unwrap_or_else(PoisonError::into_inner)
        });
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Like [`Condvar::wait`], at most for that long.
    #[cfg(not(feature = "shuttle"))]
    pub fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waited = guard.held.take().map(|held| {
            self.inner
                .wait_timeout(held, timeout)
                .unwrap_or_else(PoisonError::into_inner)
        });
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let (held, ended) = waited.unzip();
        guard.held = held;
        WaitTimeoutResult(ended.is_some_and(|ended| ended.timed_out()))
    }

    /// Like [`Condvar::wait`], at most for that long.
    ///
    /// Time does not pass in an exploration, so the wait runs out as soon as the other threads had a
    /// chance to run. Shuttle's own `wait_timeout` never runs out, which would turn every periodic
    /// thread into a deadlock.
    #[cfg(feature = "shuttle")]
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
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.inner.notify_one();
        }
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.inner.notify_all();
        }
    }
}
