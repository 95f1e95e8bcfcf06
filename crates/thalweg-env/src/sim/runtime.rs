//! Simulated time, randomness and threads.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::World;
use crate::runtime::{Clock, Entropy, Join, JoinHandle, Panicked, Spawner};
use crate::sync::{Mutex, thread};

/// The clocks of the simulated machine.
#[derive(Clone, Debug)]
pub(super) struct Time {
    pub(super) monotonic_ns: u64,
    pub(super) wall_ns: i64,
    /// How far each reading of a clock moves both.
    pub(super) tick_ns: u64,
    pub(super) wall_stopped: bool,
    /// Most that a reading of the wall clock is off, both ways.
    pub(super) wall_jitter_ns: u32,
}

impl Time {
    /// Shortly after boot, 2025-01-01.
    pub(super) fn new() -> Time {
        Time {
            monotonic_ns: 1_000_000_000,
            wall_ns: 1_735_689_600_000_000_000,
            tick_ns: 1_000,
            wall_stopped: false,
            wall_jitter_ns: 0,
        }
    }

    /// After a reboot: the monotonic clock starts again, the wall clock goes on.
    pub(super) fn rebooted(&self) -> Time {
        Time {
            monotonic_ns: Time::new().monotonic_ns,
            ..self.clone()
        }
    }

    pub(super) fn advance(&mut self, ns: u64) {
        self.monotonic_ns = self.monotonic_ns.saturating_add(ns);
        if !self.wall_stopped {
            self.wall_ns = self.wall_ns.saturating_add_unsigned(ns);
        }
    }
}

/// The clocks as one process sees them.
#[derive(Debug)]
pub(super) struct SimClock {
    pub(super) world: Arc<World>,
    pub(super) process_id: u32,
}

impl Clock for SimClock {
    fn monotonic_ns(&self) -> u64 {
        let mut time = self.world.time.lock();
        let tick_ns = time.tick_ns;
        time.advance(tick_ns);
        time.monotonic_ns
    }

    fn wall_ns(&self) -> i64 {
        let (now_ns, jitter_ns) = {
            let mut time = self.world.time.lock();
            let tick_ns = time.tick_ns;
            time.advance(tick_ns);
            (time.wall_ns, i64::from(time.wall_jitter_ns))
        };
        now_ns.saturating_add(self.world.random.lock().i64(-jitter_ns..=jitter_ns))
    }

    fn boot_id(&self) -> [u8; 16] {
        self.world.boot_id
    }

    fn process(&self) -> u64 {
        // Ids are given once.
        self.world.acting(self.process_id).into()
    }

    fn sleep(&self, duration: Duration) {
        self.world
            .advance_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        thread::yield_now();
    }
}

/// Seeded randomness.
#[derive(Debug)]
pub(super) struct SimEntropy {
    pub(super) world: Arc<World>,
}

impl Entropy for SimEntropy {
    fn fill(&self, buf: &mut [u8]) -> io::Result<()> {
        self.world.random.lock().fill(buf);
        Ok(())
    }
}

/// How threads are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SpawnMode {
    /// Real threads.
    #[default]
    Threads,
    /// Every start fails with `WouldBlock`, as where a limit is reached.
    Refuse,
    /// Jobs wait in a queue until [`super::SimEnv::run_one_job`] runs them, one after the other, in the thread that
    /// calls it; so does a join. Only for jobs that come to an end by themselves.
    Queue,
}

type Outcome = Arc<Mutex<Option<Result<(), Panicked>>>>;

struct Job {
    name: String,
    run: Box<dyn FnOnce() + Send>,
    outcome: Outcome,
}

/// Jobs that wait to be run.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) mode: SpawnMode,
    waiting: VecDeque<Job>,
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs")
            .field("mode", &self.mode)
            .field("waiting", &self.names())
            .finish()
    }
}

impl Jobs {
    pub(super) fn names(&self) -> Vec<String> {
        self.waiting.iter().map(|job| job.name.clone()).collect()
    }
}

impl World {
    /// Runs the job that waits longest; returns whether there was one.
    pub(super) fn run_one_job(&self) -> bool {
        let Some(job) = self.jobs.lock().waiting.pop_front() else {
            return false;
        };
        let ended = catch_unwind(AssertUnwindSafe(job.run));
        *job.outcome.lock() =
            Some(ended.map_err(|payload| Panicked::from_payload(payload.as_ref())));
        true
    }
}

/// Starts threads, or refuses to, or queues them.
#[derive(Debug)]
pub(super) struct SimSpawner {
    pub(super) world: Arc<World>,
    pub(super) process_id: u32,
}

impl Spawner for SimSpawner {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
        let process_id = self.world.acting(self.process_id);
        self.world
            .disk
            .machine
            .lock()
            .spawn_fault(name, process_id)?;
        let job = self.in_this_process(job);
        let mut jobs = self.world.jobs.lock();
        match jobs.mode {
            SpawnMode::Threads => thread::spawn(name, job),
            SpawnMode::Refuse => Err(super::Errno::AGAIN.into()),
            SpawnMode::Queue => {
                let outcome = Outcome::default();
                let queued = QueuedJob {
                    world: Arc::clone(&self.world),
                    outcome: Arc::clone(&outcome),
                };
                jobs.waiting.push_back(Job {
                    name: name.to_owned(),
                    run: job,
                    outcome,
                });
                Ok(JoinHandle::new(Box::new(queued)))
            }
        }
    }
}

impl SimSpawner {
    /// The job as a thread of the process that starts it.
    #[cfg(not(feature = "shuttle"))]
    fn in_this_process(&self, job: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce() + Send> {
        let Some(process_id) = self.world.acting_process() else {
            return job;
        };
        let world = Arc::clone(&self.world);
        Box::new(move || {
            let _acting = world.act_as(process_id);
            job();
        })
    }

    #[cfg(feature = "shuttle")]
    #[expect(clippy::unused_self, reason = "the same signature as above")]
    fn in_this_process(&self, job: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce() + Send> {
        job
    }
}

struct QueuedJob {
    world: Arc<World>,
    outcome: Outcome,
}

impl Join for QueuedJob {
    fn join(self: Box<Self>) -> Result<(), Panicked> {
        loop {
            if let Some(outcome) = self.outcome.lock().take() {
                return outcome;
            }
            if !self.world.run_one_job() {
                return Err(Panicked {
                    message: "a queued job waits for itself or was discarded".to_owned(),
                });
            }
        }
    }

    fn is_finished(&self) -> bool {
        self.outcome.lock().is_some()
    }
}
