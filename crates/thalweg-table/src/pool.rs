//! Worker threads for encoding and decoding, shared by everything an engine does.
//!
//! Invariants: a job runs once, on a worker or in the thread that waits for it, whichever comes first. So nothing ever
//! waits for a free worker, jobs may wait for jobs, and a pool without threads (a simulation) runs every job in the
//! waiting thread, in order. Workers are started when there is work and end with the pool. Results are taken in the order
//! the caller likes, so output stays ordered whatever the workers do.
//!
//! Rejected: a thread per scan (2 x 30 us for a scan of 200 rows) and work-stealing libraries, whose threads the
//! simulator cannot see.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use thalweg_env::sync::{Condvar, Mutex};
use thalweg_env::{Env, JoinHandle, Owner, Panicked};

/// Threads that run jobs.
pub(crate) struct Pool {
    queue: Arc<Queue>,
    env: Env,
    owner: Owner,
    max_threads: usize,
}

#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    work: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Arc<dyn Run>>,
    idle_threads: usize,
    threads: Vec<JoinHandle>,
    closed: bool,
}

trait Run: Send + Sync {
    /// Runs the job unless somebody did or it was cancelled.
    fn run(&self);
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("max_threads", &self.max_threads)
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of up to `max_threads` workers beside the threads that wait.
    pub(crate) fn new(env: Env, max_threads: usize) -> Self {
        Self {
            queue: Arc::default(),
            owner: env.owner(),
            env,
            max_threads,
        }
    }

    /// Offers a job to the workers.
    pub(crate) fn submit<T: Send + 'static>(&self, ticket: &Ticket<T>) {
        if self.max_threads > 0 {
            self.enqueue(Arc::clone(&ticket.task) as Arc<dyn Run>);
        }
    }

    fn enqueue(&self, job: Arc<dyn Run>) {
        let mut state = self.queue.state.lock();
        state.jobs.push_back(job);
        if state.idle_threads > 0 {
            self.queue.work.notify_one();
        } else if state.threads.len() < self.max_threads {
            let queue = Arc::clone(&self.queue);
            let run = Box::new(move || work(&queue));
            match self.env.spawner().spawn("thalweg-worker", run) {
                Ok(thread) => state.threads.push(thread),
                // The waiting caller does the work. Nobody else would take the job out.
                Err(_) if state.threads.is_empty() => _ = state.jobs.pop_back(),
                Err(_) => {}
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            // A child of a fork has none of the threads, one of which may have held the lock.
            return;
        }
        let threads = {
            let mut state = self.queue.state.lock();
            state.closed = true;
            state.jobs.clear();
            self.queue.work.notify_all();
            std::mem::take(&mut state.threads)
        };
        // A worker that holds the last reference to the engine drops the pool itself and must not wait for itself;
        // threads end by themselves once the pool is closed, so nobody is waited for.
        drop(threads);
    }
}

fn work(queue: &Queue) {
    let mut state = queue.state.lock();
    while !state.closed {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            // A panic goes to whoever waits for the job. The thread goes on: nobody would start another one.
            let _ = catch_unwind(AssertUnwindSafe(|| job.run()));
            drop(job);
            state = queue.state.lock();
            continue;
        }
        state.idle_threads += 1;
        queue.work.wait(&mut state);
        state.idle_threads -= 1;
    }
}

/// Things that are costly to make and used one at a time, each by one thread.
pub(crate) struct Spare<T>(Mutex<Vec<T>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<T> Spare<T> {
    /// One that was given back, or a new one.
    pub(crate) fn take<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let spare = self.0.lock().pop();
        spare.map_or_else(make, Ok)
    }

    /// Keeps one for later: as many as were in use at the same time.
    pub(crate) fn give(&self, spare: T) {
        self.0.lock().push(spare);
    }

    /// Keeps none.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

type Job<T> = Box<dyn FnOnce() -> T + Send>;

enum State<T> {
    Queued(Job<T>),
    Running,
    Done(T),
    /// Taken or cancelled.
    Gone,
    Panicked(Panicked),
}

struct Task<T> {
    state: Mutex<State<T>>,
    ended: Condvar,
}

impl<T: Send> Task<T> {
    fn start(&self) -> Option<Job<T>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Running) {
            State::Queued(job) => Some(job),
            other => {
                *state = other;
                None
            }
        }
    }

    fn finish(&self, end: State<T>) {
        *self.state.lock() = end;
        self.ended.notify_all();
    }
}

impl<T: Send> Run for Task<T> {
    fn run(&self) {
        let Some(job) = self.start() else { return };
        match catch_unwind(AssertUnwindSafe(job)) {
            Ok(result) => self.finish(State::Done(result)),
            // Whoever waits is woken and gets the panic.
            Err(panic) => {
                self.finish(State::Panicked(Panicked::from_payload(&*panic)));
                resume_unwind(panic)
            }
        }
    }
}

/// A job to be done, by a worker if it is submitted, else by who waits for it. Dropping it cancels the job if it has not
/// begun.
pub(crate) struct Ticket<T: Send> {
    task: Arc<Task<T>>,
}

impl<T: Send + 'static> Ticket<T> {
    /// Makes a job; no worker knows of it before it is submitted.
    pub(crate) fn new(job: impl FnOnce() -> T + Send + 'static) -> Self {
        let state = Mutex::new(State::Queued(Box::new(job) as Job<T>));
        Self {
            task: Arc::new(Task {
                state,
                ended: Condvar::new(),
            }),
        }
    }

    /// Waits for the job. While a worker is busy with it, runs those of `others` here that nobody has begun:
    /// who waits for rows might as well decode some.
    pub(crate) fn wait_helping<'a>(self, others: impl IntoIterator<Item = &'a Self>) -> T {
        let mut others = others.into_iter();
        while self.is_running() && others.find(|other| other.help()).is_some() {}
        self.wait()
    }

    fn is_running(&self) -> bool {
        matches!(*self.task.state.lock(), State::Running)
    }

    /// Runs the job if nobody has begun.
    fn help(&self) -> bool {
        let begun = !matches!(*self.task.state.lock(), State::Queued(_));
        if !begun {
            self.task.run();
        }
        !begun
    }
    /// The result; runs the job here if no worker has begun.
    ///
    /// # Panics
    /// When the job panicked: the panic goes on in the thread that asked for the work.
    #[expect(clippy::panic, reason = "passes on the panic of the job")]
    pub(crate) fn wait(self) -> T {
        if let Some(job) = self.task.start() {
            return job();
        }
        let mut state = self.task.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Gone) {
                State::Done(result) => return result,
                State::Panicked(panicked) => panic!("a worker: {panicked}"),
                State::Gone => panic!("a job that was cancelled is waited for"),
                running => *state = running,
            }
            self.task.ended.wait(&mut state);
        }
    }
}

impl<T: Send> Drop for Ticket<T> {
    fn drop(&mut self) {
        // Who holds the lock has begun the job or ends it; or was not copied by the fork that made this process.
        let Some(mut state) = self.task.state.try_lock() else {
            return;
        };
        if matches!(*state, State::Queued(_)) {
            let cancelled = std::mem::replace(&mut *state, State::Gone);
            drop(state);
            drop(cancelled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_come_in_the_order_asked_for_and_every_job_runs_once() {
        for threads in [0, 1, 3] {
            let pool = Pool::new(Env::os(), threads);
            let runs = Arc::new(AtomicUsize::new(0));
            let square = |n: usize| {
                let runs = Arc::clone(&runs);
                let ticket = Ticket::new(move || {
                    runs.fetch_add(1, Ordering::Relaxed);
                    n * n
                });
                pool.submit(&ticket);
                ticket
            };
            let mut tickets: VecDeque<_> = (0..200).map(square).collect();
            let mut results = Vec::new();
            while let Some(ticket) = tickets.pop_front() {
                results.push(ticket.wait_helping(&tickets));
            }
            assert_eq!(results, (0..200).map(|n| n * n).collect::<Vec<_>>());
            assert_eq!(runs.load(Ordering::Relaxed), 200);
        }
    }

    #[test]
    fn a_dropped_ticket_cancels_what_has_not_begun() {
        let pool = Pool::new(Env::os(), 0);
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let ticket = Ticket::new(move || counted.fetch_add(1, Ordering::Relaxed));
        pool.submit(&ticket);
        drop(ticket);
        assert_eq!(runs.load(Ordering::Relaxed), 0);
        assert_eq!(
            Arc::strong_count(&runs),
            1,
            "the job and what it holds are gone"
        );
    }

    #[test]
    fn a_panic_reaches_the_thread_that_waits() {
        let pool = Pool::new(Env::os(), 1);
        let started = Arc::new((Mutex::new(false), Condvar::new()));
        let signal = Arc::clone(&started);
        let ticket: Ticket<()> = Ticket::new(move || {
            *signal.0.lock() = true;
            signal.1.notify_all();
            panic!("broken job");
        });
        pool.submit(&ticket);
        let mut has_started = started.0.lock();
        while !*has_started {
            started.1.wait(&mut has_started);
        }
        drop(has_started);
        let outcome = catch_unwind(AssertUnwindSafe(|| ticket.wait()));
        let message = Panicked::from_payload(&*outcome.unwrap_err()).message;
        assert!(message.contains("broken job"), "{message}");
    }

    /// Runs a job on a worker; returns the name of its thread.
    fn on_a_worker(pool: &Pool, job: impl FnOnce() + Send + 'static) -> Option<String> {
        let started = Arc::new((Mutex::new(None), Condvar::new()));
        let signal = Arc::clone(&started);
        let ticket = Ticket::new(move || {
            let name = std::thread::current().name().map(str::to_owned);
            *signal.0.lock() = Some(name);
            signal.1.notify_all();
            job();
        });
        pool.submit(&ticket);
        let mut name = started.0.lock();
        loop {
            match name.take() {
                Some(name) => return name,
                None => started.1.wait(&mut name),
            }
        }
    }

    #[test]
    fn a_worker_survives_the_panics_of_its_jobs() {
        let pool = Pool::new(Env::os(), 1);
        for _ in 0..3 {
            // Nobody would start another thread.
            let name = on_a_worker(&pool, || panic!("broken job"));
            assert_eq!(name.as_deref(), Some("thalweg-worker"));
        }
        assert_eq!(pool.queue.state.lock().threads.len(), 1);
    }

    #[test]
    fn where_no_thread_can_be_started_the_waiting_one_does_the_work() {
        let sim = thalweg_env::sim::SimEnv::new(1);
        sim.set_spawn_mode(thalweg_env::sim::SpawnMode::Refuse);
        let pool = Pool::new(sim.env(), 3);
        let tickets = (0..20).map(|n| {
            let ticket = Ticket::new(move || n);
            pool.submit(&ticket);
            ticket
        });
        let tickets: Vec<_> = tickets.collect();
        let results: Vec<i32> = tickets.into_iter().map(Ticket::wait).collect();
        assert_eq!(results, (0..20).collect::<Vec<_>>());
        // Nobody else takes them out.
        assert!(pool.queue.state.lock().jobs.is_empty());
    }
}
