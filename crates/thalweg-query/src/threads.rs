//! The threads of queries.
//!
//! Invariants
//! - Dropping the last handle does not wait for the threads.
//! - A caller that is a thread of an async runtime itself waits as any other thread does, and starts no runtime inside that one.
//! - A thread of queries that runs code of the program hands its other tasks to another thread.
//! - A statement that runs alone has the whole memory limit: it first waits for tasks of earlier statements to free theirs.

use crate::stack::STACK_BYTES;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryLimit;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use thalweg_env::start_threads;
use thalweg_table::{Error, Result};
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime, RuntimeFlavor};
use tokio::task::{JoinHandle, block_in_place};

/// How often, and for how long each time, a statement waits for the memory of earlier statements.
const MAX_STEPS: usize = 200;
const STEP: Duration = Duration::from_millis(1);

/// The threads of queries of one connection, and how many statements run.
#[derive(Debug)]
pub(crate) struct Threads {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    handle: Handle,
    /// Statements that run on them.
    running: AtomicUsize,
}

/// A statement that runs on these threads, until it is dropped.
pub(crate) struct Running(Arc<Threads>);

impl Running {
    pub(crate) fn begin(threads: &Arc<Threads>, task: &TaskContext) -> Self {
        let (running, steps) = Self::counted(threads, task);
        for _ in 0..steps {
            if task.memory_pool().reserved() == 0 {
                break;
            }
            thread::park_timeout(STEP);
        }
        running
    }

    /// Begins as [`Self::begin`] does, without a thread that waits.
    pub(crate) async fn begin_async(threads: &Arc<Threads>, task: &TaskContext) -> Self {
        let (running, steps) = Self::counted(threads, task);
        for _ in 0..steps {
            if task.memory_pool().reserved() == 0 {
                break;
            }
            tokio::time::sleep(STEP).await;
        }
        running
    }

    /// Counts the statement, and tells how long it waits for the memory of those before it: their tasks free it a little later than
    /// the caller drops their rows.
    fn counted(threads: &Arc<Threads>, task: &TaskContext) -> (Self, usize) {
        let others = threads.running.fetch_add(1, Ordering::AcqRel);
        let is_limited = matches!(task.memory_pool().memory_limit(), MemoryLimit::Finite(_));
        let steps = match others == 0 && is_limited {
            true => MAX_STEPS,
            false => 0,
        };
        (Self(Arc::clone(threads)), steps)
    }

    pub(crate) fn threads(&self) -> &Threads {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Threads {
    pub(crate) fn start(threads: usize) -> Result<Self> {
        try_threads(threads)?;
        let mut builder = Builder::new_multi_thread();
        builder
            .worker_threads(threads)
            .thread_name("thalweg-query")
            .thread_stack_size(STACK_BYTES)
            .enable_time();
        let runtime = start_threads(|| builder.build())
            .map_err(|e| Error::io("starting the threads of queries", e))?;
        let handle = runtime.handle().clone();
        Ok(Self {
            runtime: Some(runtime),
            handle,
            running: AtomicUsize::new(0),
        })
    }

    /// Lets what is called while the guard lives start tasks on these threads.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    pub(crate) fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.handle.spawn(work)
    }

    /// Runs operators in the thread that calls, which must not be one of a runtime: see [`Self::may_run_here`].
    pub(crate) fn run_here<F: Future>(&self, work: F) -> F::Output {
        self.handle.block_on(work)
    }

    /// Whether operators can run in the thread that calls.
    pub(crate) fn may_run_here() -> bool {
        Handle::try_current().is_err()
    }
}

/// Starts as many threads as a runtime will start, and ends them, as a rehearsal: the runtime itself would panic if one could not
/// be started.
#[expect(
    clippy::disallowed_methods,
    reason = "a runtime starts threads without an environment, and this is tried for it"
)]
fn try_threads(count: usize) -> Result<()> {
    let mut started = Vec::new();
    let tried = start_threads(|| {
        for _ in 0..count {
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            started.push(builder.spawn(thread::park)?);
        }
        Ok(())
    });
    for thread in started {
        thread.thread().unpark();
        // It does nothing that could panic.
        let _ = thread.join();
    }
    tried.map_err(|e: io::Error| Error::io("starting the threads of queries", e))
}

/// Calls code of the program, such as an iterator, that may itself run statements or wait for threads that do. A thread of queries
/// hands its other tasks to another thread meanwhile; otherwise they would wait for this call while it waits for them.
pub(crate) fn call_program<T>(call: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(call),
        _ => call(),
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Polls a future in this thread until it is ready; `None` after about `wait`. A timer of the runtime would not do: it stands still
/// while operators keep all threads of the runtime busy.
pub(crate) fn wait_for<F: Future>(future: F, wait: Option<Duration>) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let mut waited = false;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        match wait {
            Some(_) if waited => return None,
            Some(wait) => thread::park_timeout(wait),
            None => thread::park(),
        }
        waited = true;
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryPool};
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;

    #[test]
    fn a_statement_waits_for_the_memory_of_those_before_it() {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(1_000));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool));
        let task = TaskContext::default().with_runtime(runtime.build_arc().unwrap());
        let threads = Arc::new(Threads::start(1).unwrap());
        let kept = MemoryConsumer::new("ended").register(&pool);
        kept.try_grow(900).unwrap();
        threads.spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(kept);
        });
        let first = Running::begin(&threads, &task);
        assert_eq!(pool.reserved(), 0);
        // Beside one that runs, nothing is waited for.
        let running = MemoryConsumer::new("running").register(&pool);
        running.try_grow(900).unwrap();
        let second = Running::begin(&threads, &task);
        assert_eq!(pool.reserved(), 900);
        drop((first, second, running));
        assert_eq!(threads.running.load(Ordering::Acquire), 0);
    }
}
