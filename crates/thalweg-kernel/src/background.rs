//! The threads of an open database: one prepares segments, one encodes and writes checkpoints, one removes and rewrites
//! files, one syncs in time.
//!
//! Invariants: a thread only calls what a caller could call as well; it ends when told, and its errors poison nothing by
//! themselves: they come back to whoever needs the work done. A thread that panics ends writing ([`crate::panics`]): nobody
//! would do its work any more. If one cannot be started, those before it have ended when that is reported.

use crate::error::{Error, Result};
use crate::kernel::Options;
use crate::writer::Writer;
use std::sync::Arc;
use std::time::Duration;
use thalweg_env::sync::atomic::{AtomicBool, Ordering};
use thalweg_env::sync::{Condvar, Mutex};
use thalweg_env::{Env, JoinHandle};

/// How often snapshots that garbage waits for are looked at.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

pub(crate) struct Background {
    stopping: Arc<AtomicBool>,
    timer: Arc<Timer>,
    threads: Mutex<Vec<JoinHandle>>,
}

#[derive(Default)]
struct Timer {
    stopped: Mutex<bool>,
    stop: Condvar,
}

impl Background {
    pub(crate) fn start(env: &Env, writer: &Arc<Writer>, options: &Options) -> Result<Self> {
        let background = Self {
            stopping: Arc::default(),
            timer: Arc::default(),
            threads: Mutex::new(Vec::new()),
        };
        if options.background
            && let Err(error) = background.spawn_all(env, writer, options)
        {
            background.stop(writer);
            return Err(error);
        }
        Ok(background)
    }

    fn spawn_all(&self, env: &Env, writer: &Arc<Writer>, options: &Options) -> Result<()> {
        self.spawn(env, "thalweg-segments", writer, |writer, stopping| {
            while !stopping.load(Ordering::Acquire) {
                writer.supply.wait(|| stopping.load(Ordering::Acquire));
                if !stopping.load(Ordering::Acquire) {
                    writer.supply.refill();
                }
            }
        })?;
        self.spawn(env, "thalweg-blocks", writer, |writer, stopping| {
            while !stopping.load(Ordering::Acquire) {
                writer.due.work.wait(None);
                if !stopping.load(Ordering::Acquire) {
                    // The error is kept for the appends that wait for room; others are told by their own calls.
                    let _ = writer.run_due_work();
                }
            }
        })?;
        self.spawn(env, "thalweg-cleaning", writer, |writer, stopping| {
            while !stopping.load(Ordering::Acquire) {
                // Nobody calls when a reading process lets go of a snapshot.
                let look_again = writer.waits_for_pins().then_some(LOOK_AGAIN_AFTER);
                writer.due.cleaning.wait(look_again);
                if !stopping.load(Ordering::Acquire) {
                    // What could not be removed now is found again.
                    let _ = writer.look_at_pins().and_then(|()| writer.clean());
                }
            }
        })?;
        let (timer, interval) = (Arc::clone(&self.timer), options.sync_interval);
        self.spawn(env, "thalweg-sync", writer, move |writer, _| {
            timer.run(interval, writer)
        })
    }

    fn spawn(
        &self,
        env: &Env,
        name: &str,
        writer: &Arc<Writer>,
        work: impl FnOnce(&Writer, &AtomicBool) + Send + 'static,
    ) -> Result<()> {
        let (writer, stopping) = (Arc::clone(writer), Arc::clone(&self.stopping));
        let doing = format!("thread {name}");
        let watched = move || writer.watched(&doing, || work(&writer, &stopping));
        let thread = env.spawner().spawn(name, Box::new(watched));
        self.threads
            .lock()
            .push(thread.map_err(|e| Error::io(format_args!("starting thread {name}"), e))?);
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
        for thread in self.threads.lock().drain(..) {
            // A thread that panicked has ended writing; closing goes on.
            let _ = thread.join();
        }
    }
}

impl Timer {
    /// Syncs what `Process` commits have left, every `interval`.
    fn run(&self, interval: Duration, writer: &Writer) {
        let mut stopped = self.stopped.lock();
        while !*stopped {
            self.stop.wait_for(&mut stopped, interval);
            if !*stopped && writer.due.unsynced() {
                drop(stopped);
                // A failed sync poisons the queue; the next caller is told.
                let _ = writer.flush();
                stopped = self.stopped.lock();
            }
        }
    }
}
