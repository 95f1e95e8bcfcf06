//! The threads of an open database: one prepares segments, one encodes and writes checkpoints, one removes and rewrites
//! files, one syncs in time.
//!
//! Invariants: a thread only calls what a caller could call as well; it ends when asked to, and its errors poison nothing by
//! themselves: they come back to whoever needs the work done. A thread that panics ends writing ([`crate::panics`]): nobody
//! would do its work any more. If one cannot be started, those before it have ended when that is reported.

use crate::error::Result;
use crate::options::Options;
use crate::segment_supply::PAUSE;
use crate::upkeep::Upkeep;
use crate::writer::Writer;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::JoinHandle;
use thalweg_env::sync::atomic::{AtomicBool, Ordering};
use thalweg_env::sync::{Condvar, Mutex};

/// How often snapshots that garbage waits for are checked.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// However short the interval is: syncs one after the other would leave no room for anything else.
const MIN_SYNC_INTERVAL: Duration = Duration::from_millis(1);

pub(crate) struct Background {
    stopping: Arc<AtomicBool>,
    timer: Arc<Timer>,
    threads: Mutex<Vec<JoinHandle>>,
}

#[derive(Default)]
struct Timer {
    stopped: Mutex<bool>,
    stop: Condvar,
    #[cfg(test)]
    rounds: std::sync::atomic::AtomicU64,
}

impl Background {
    pub(crate) fn start(upkeep: &Arc<Upkeep>, options: &Options) -> Result<Self> {
        let background = Self {
            stopping: Arc::default(),
            timer: Arc::default(),
            threads: Mutex::new(Vec::new()),
        };
        if options.background
            && let Err(error) = background.spawn_all(upkeep, options)
        {
            background.stop(upkeep.writer());
            return Err(error);
        }
        Ok(background)
    }

    fn spawn_all(&self, upkeep: &Arc<Upkeep>, options: &Options) -> Result<()> {
        self.spawn("thalweg-segments", upkeep, |upkeep, stopping| {
            while !stopping.load(Ordering::Acquire) {
                upkeep
                    .writer()
                    .supply
                    .wait(|| stopping.load(Ordering::Acquire));
                if !stopping.load(Ordering::Acquire) {
                    upkeep.writer().supply.refill();
                }
            }
        })?;
        self.spawn("thalweg-blocks", upkeep, |upkeep, stopping| {
            while !stopping.load(Ordering::Acquire) {
                upkeep.writer().due.work.wait(None);
                if !stopping.load(Ordering::Acquire) {
                    // The error is kept for the appends that wait for room; others meet it in their own calls.
                    let _ = upkeep.run_due_work();
                }
            }
        })?;
        let timer = Arc::clone(&self.timer);
        self.spawn("thalweg-cleaning", upkeep, move |upkeep, stopping| {
            // What an earlier process has left can wait for what is asked for first.
            timer.pause();
            while !stopping.load(Ordering::Acquire) {
                // Nobody calls when a reading process lets go of a snapshot.
                let look_again = upkeep.waits_for_pins().then_some(LOOK_AGAIN_AFTER);
                upkeep.writer().due.cleaning.wait(look_again);
                if !stopping.load(Ordering::Acquire) {
                    // What could not be removed now is found again.
                    let _ = upkeep.look_at_pins().and_then(|()| upkeep.clean());
                }
            }
        })?;
        let (timer, interval) = (Arc::clone(&self.timer), options.sync_interval);
        self.spawn("thalweg-sync", upkeep, move |upkeep, _| {
            timer.run(interval, upkeep.writer())
        })
    }

    fn spawn(
        &self,
        name: &str,
        upkeep: &Arc<Upkeep>,
        work: impl FnOnce(&Upkeep, &AtomicBool) + Send + 'static,
    ) -> Result<()> {
        let stopping = Arc::clone(&self.stopping);
        let thread = upkeep.spawn(name, move |upkeep| work(upkeep, &stopping))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Ends the threads and waits for them.
    pub(crate) fn stop(&self, writer: &Writer) {
        self.stopping.store(true, Ordering::Release);
        writer.supply.wake();
        writer.due.work.call();
        writer.due.cleaning.call();
        *self.timer.stopped.lock() = true;
        self.timer.stop.notify_all();
        writer.due.syncing.call();
        for thread in self.threads.lock().drain(..) {
            // A thread that panicked has ended writing; closing goes on.
            let _ = thread.join();
        }
    }
}

impl Timer {
    /// Pauses for a moment after an opening, or less if the database is closed.
    fn pause(&self) {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.stop.wait_for(&mut stopped, PAUSE);
        }
    }

    /// Syncs what `Process` commits have left, `interval` after the first of them; where nothing is unsynced it sleeps.
    fn run(&self, interval: Duration, writer: &Writer) {
        let interval = interval.max(MIN_SYNC_INTERVAL);
        loop {
            writer.due.syncing.wait(None);
            let mut stopped = self.stopped.lock();
            if !*stopped {
                self.stop.wait_for(&mut stopped, interval);
            }
            if *stopped {
                return;
            }
            drop(stopped);
            #[cfg(test)]
            self.rounds.fetch_add(1, Ordering::Relaxed);
            if writer.due.unsynced() {
                // A failed sync poisons the queue; the next caller gets the error.
                let _ = writer.flush();
            }
            // Commits since then have called, unless it was unsynced all the time.
            if writer.due.unsynced() && writer.poison().is_none() {
                writer.due.syncing.call();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::NoRows;
    use crate::{Commit, Durability, Edit, Kernel, NEW_TABLE};
    use bytes::Bytes;
    use std::path::Path;
    use thalweg_env::Env;

    #[test]
    fn a_sync_interval_of_nothing_turns_no_thread_where_nothing_is_unsynced() {
        let sim = thalweg_env::sim::SimEnv::new(1);
        let options = Options {
            background: false,
            ..Options::default()
        };
        let kernel = Kernel::open(sim.env(), Path::new("/db"), &options, Arc::new(NoRows)).unwrap();
        let (writer, timer) = (
            Arc::clone(kernel.writer_of_tests()),
            Arc::new(Timer::default()),
        );
        let (own_writer, own_timer) = (Arc::clone(&writer), Arc::clone(&timer));
        let job = move || own_timer.run(Duration::ZERO, &own_writer);
        let running = Env::os().spawner().spawn("timer", Box::new(job)).unwrap();
        let mut commits = 0;
        for number in 0..50 {
            let edit = Edit::CreateTable {
                table: NEW_TABLE,
                name: format!("t{number}"),
                definition: Bytes::new(),
                indexes: 0,
            };
            let commit = Commit {
                edits: vec![edit],
                ..Commit::default()
            };
            kernel.commit(commit, Durability::Process).unwrap();
            commits += 1;
            while writer.due.unsynced() {
                std::thread::yield_now();
            }
        }
        *timer.stopped.lock() = true;
        timer.stop.notify_all();
        writer.due.syncing.call();
        running.join().unwrap();
        // One that is called for before the sync of the last one is over may find nothing left to do.
        let rounds = timer.rounds.load(Ordering::Relaxed);
        assert!(
            (1..=2 * commits).contains(&rounds),
            "{rounds} rounds for {commits} commits"
        );
    }
}
