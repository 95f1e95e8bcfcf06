//! Work that a second thread does while the calling one goes on.
//!
//! Invariants: whoever starts the work waits for its end, also when the caller returns early or unwinds: once a caller has its
//! error, the work reads and writes nothing any more. Where no thread may be started, or none can be, whoever waits for the
//! work does it.

use std::fmt;
use std::sync::Arc;

use crate::Env;
use crate::runtime::{JoinHandle, Panicked};
use crate::sync::Mutex;

type Work<T> = Box<dyn FnOnce() -> T + Send>;

/// Work that was begun, or is still to be.
///
/// ```
/// # #[cfg(feature = "shuttle")]
/// # fn main() {} // Runs inside a shuttle execution only.
/// # #[cfg(not(feature = "shuttle"))]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use thalweg_env::{Beside, Env, Panicked};
///
/// let count = Beside::start(&Env::os(), "count", true, || (1..=100).sum::<u32>());
/// let greeting = "done meanwhile".len();
/// assert_eq!((count.finish()?, greeting), (5_050, 14));
/// let failed = Beside::start(&Env::os(), "fails", true, || -> u32 { panic!("no sensor") });
/// assert_eq!(failed.finish(), Err(Panicked { message: "no sensor".into() }));
/// # Ok(())
/// # }
/// ```
pub struct Beside<T> {
    work: Arc<Mutex<Option<Work<T>>>>,
    done: Arc<Mutex<Option<T>>>,
    thread: Option<JoinHandle>,
}

impl<T: Send + 'static> Beside<T> {
    /// Begins the work on a thread of this name, if it `may_start` one.
    pub fn start(
        env: &Env,
        name: &str,
        may_start: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Self {
        let work: Arc<Mutex<Option<Work<T>>>> = Arc::new(Mutex::new(Some(Box::new(work))));
        let done = Arc::new(Mutex::new(None));
        let mut thread = None;
        if may_start {
            let (own_work, own_done) = (Arc::clone(&work), Arc::clone(&done));
            let job = move || {
                let work = own_work.lock().take();
                let result = work.map(|work| work());
                *own_done.lock() = result;
            };
            thread = env.spawner().spawn(name, Box::new(job)).ok();
        }
        Self { work, done, thread }
    }

    /// Waits for its end, and returns its result.
    ///
    /// # Errors
    /// When its thread has panicked.
    pub fn finish(mut self) -> Result<T, Panicked> {
        if let Some(thread) = self.thread.take() {
            thread.join()?;
        }
        let work = self.work.lock().take();
        let done = self.done.lock().take();
        match work {
            Some(work) => Ok(work()),
            None => done.ok_or_else(|| Panicked {
                message: "no result".to_owned(),
            }),
        }
    }
}

impl<T> fmt::Debug for Beside<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside")
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

impl<T> Drop for Beside<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Whatever it has found, the caller has failed for another reason.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn it_is_done_with_and_without_a_thread() {
        for may_start in [false, true] {
            let beside = Beside::start(&Env::os(), "beside", may_start, || 7);
            assert_eq!(beside.finish().unwrap(), 7);
        }
    }

    #[test]
    fn whoever_lets_go_of_it_waits_for_its_end() {
        let ends = Arc::new(AtomicU64::new(0));
        let own_ends = Arc::clone(&ends);
        let env = Env::os();
        let clock = env.clone();
        let work = move || {
            clock.clock().sleep(std::time::Duration::from_millis(20));
            own_ends.fetch_add(1, Ordering::Relaxed)
        };
        drop(Beside::start(&env, "beside", true, work));
        assert_eq!(ends.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_panic_is_an_error() {
        let beside = Beside::start(&Env::os(), "beside", true, || panic!("on purpose"));
        let ended: Result<(), Panicked> = beside.finish();
        assert_eq!(ended.unwrap_err().message, "on purpose");
    }
}
