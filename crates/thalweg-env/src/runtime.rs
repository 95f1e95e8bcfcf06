//! The traits of time, randomness and threads.

use std::any::Any;
use std::fmt::{self, Debug};
use std::io;
use std::time::Duration;

/// The clocks and what identifies this run of the machine and process.
///
/// ```
/// use thalweg_env::Env;
///
/// let env = Env::os();
/// let (before, boot) = (env.clock().monotonic_ns(), env.clock().boot_id());
/// env.clock().sleep(std::time::Duration::from_micros(10));
/// assert!(env.clock().monotonic_ns() >= before + 10_000);
/// assert_eq!(env.clock().boot_id(), boot);
/// ```
pub trait Clock: Send + Sync + Debug {
    /// Nanoseconds on a clock that never goes back. Comparable between processes of the same
    /// [`Clock::boot_id`], of no meaning beyond.
    fn monotonic_ns(&self) -> u64;

    /// Nanoseconds since 1970-01-01 UTC, as the machine believes; may jump both ways.
    fn wall_ns(&self) -> i64;

    /// Identifies the current boot of the machine; zeros where the system does not report one.
    fn boot_id(&self) -> [u8; 16];

    /// Distinguishes this process from every other one that it was forked from or that is forked from it. Its id alone does
    /// not: the system gives the id of a process that has ended to another one, which may be a child of its child.
    fn process(&self) -> u64;

    /// Blocks the calling thread.
    fn sleep(&self, duration: Duration);
}

/// A source of random bytes.
pub trait Entropy: Send + Sync + Debug {
    /// Fills the buffer with random bytes.
    fn fill(&self, buf: &mut [u8]) -> io::Result<()>;

    /// A random number.
    fn random_u64(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// Starts threads.
pub trait Spawner: Send + Sync + Debug {
    /// Starts a thread of that name. The thread goes on if the handle is dropped.
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle>;

    /// Calls `work` on up to `threads` threads at once, the calling one among them, and returns when all of these calls have.
    ///
    /// How many there are decides nothing but time: whoever calls divides what there is to do within `work`, piece by piece, so
    /// that one call would do all of it. Unlike the job of a thread, `work` may borrow what the caller has. It costs the start of
    /// the threads.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use thalweg_env::Env;
    ///
    /// let readings = [3, 1, 4, 1, 5, 9, 2, 6];
    /// let (next, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
    /// Env::os().spawner().share("sum", 4, &|| {
    ///     while let Some(value) = readings.get(next.fetch_add(1, Ordering::Relaxed)) {
    ///         sum.fetch_add(*value, Ordering::Relaxed);
    ///     }
    /// });
    /// assert_eq!(sum.into_inner(), 31);
    /// ```
    ///
    /// # Panics
    /// When one of the calls panics, after all have ended.
    fn share(&self, name: &str, threads: usize, work: &(dyn Fn() + Sync)) {
        // In a simulation nothing happens at once.
        let _ = (name, threads);
        work();
    }
}

/// The thread that a [`JoinHandle`] waits for; implemented by spawners.
pub trait Join: Send + Sync {
    /// Waits for the end of the thread.
    fn join(self: Box<Self>) -> Result<(), Panicked>;

    /// Whether the thread has ended, so that `join` would not block.
    fn is_finished(&self) -> bool;
}

/// A thread that was started.
pub struct JoinHandle {
    thread: Box<dyn Join>,
}

impl JoinHandle {
    /// A handle for a thread of a spawner.
    #[must_use]
    pub fn new(thread: Box<dyn Join>) -> JoinHandle {
        JoinHandle { thread }
    }

    /// Waits for the end of the thread.
    pub fn join(self) -> Result<(), Panicked> {
        self.thread.join()
    }

    /// Whether the thread has ended, so that [`JoinHandle::join`] would not block.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

impl Debug for JoinHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

/// A thread ended by a panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked {
    /// The panic message, where there was one.
    pub message: String,
}

impl Panicked {
    /// Reads the message out of the payload of a caught panic.
    #[must_use]
    pub fn from_payload(payload: &(dyn Any + Send)) -> Panicked {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned());
        let message = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Panicked {
            message: message.unwrap_or_else(|| "panic without a message".to_owned()),
        }
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a thread panicked: {}", self.message)
    }
}

impl std::error::Error for Panicked {}
