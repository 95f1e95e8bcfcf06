//! The commit queue: many callers, one leader at a time, one sync for all who wait (group commit).
//!
//! Invariants: jobs are done in the order of the queue; a caller that finds no leader leads, does its own job and those that
//! queued meanwhile, and hands the lead to the first who still waits; nobody waits without a leader. A leader that
//! unwinds, or meets a fatal error, poisons the queue: everyone who waits and everyone who comes gets that error. A full disk
//! is the error of one batch only, and in that of the jobs whose outcome is not known: refusals, and results that a
//! checkpoint has settled, are kept.

use crate::commit::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::failure::refusal;
use crate::failure::{Broken, Failure, fatal, outcome_unknown};
use crate::ids::CommitNo;
use crate::job::{Job, Wants};
use crate::leader::Leader;
use crate::panics::watched;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_env::sync::{Condvar, Mutex};

/// Most bytes of jobs that one leader takes at once: bounds the time until its callers are answered.
pub(crate) const BATCH_LIMIT_BYTES: usize = 4 << 20;

pub(crate) struct CommitQueue {
    state: Mutex<State>,
    /// `None` once the database is closed.
    leader: Mutex<Option<Leader>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    led: bool,
    poison: Option<Error>,
}

impl State {
    fn push(&mut self, job: Job, durability: Durability, bytes: usize) -> Arc<Caller> {
        let caller = Arc::new(Caller::default());
        self.waiting.push_back(Waiting {
            job,
            durability,
            bytes,
            caller: Arc::clone(&caller),
        });
        caller
    }
}

struct Waiting {
    job: Job,
    durability: Durability,
    bytes: usize,
    caller: Arc<Caller>,
}

#[derive(Default)]
struct Caller {
    news: Mutex<Option<News>>,
    told: Condvar,
}

enum News {
    Done(Result<CommitNo>),
    Lead,
}

impl Caller {
    fn tell(&self, news: News) {
        *self.news.lock() = Some(news);
        self.told.notify_one();
    }

    fn wait(&self) -> News {
        let mut news = self.news.lock();
        loop {
            if let Some(news) = news.take() {
                return news;
            }
            self.told.wait(&mut news);
        }
    }
}

impl CommitQueue {
    pub(crate) fn new(leader: Leader) -> Self {
        Self {
            state: Mutex::new(State::default()),
            leader: Mutex::new(Some(leader)),
        }
    }

    /// Does the job, or has it done by whoever leads.
    pub(crate) fn submit(&self, job: Job, durability: Durability) -> Result<CommitNo> {
        let bytes = job.bytes();
        let mut state = self.state.lock();
        if let Some(poison) = &state.poison {
            return Err(refusal(poison));
        }
        if !state.led {
            state.led = true;
            drop(state);
            return self.lead_alone(job, durability);
        }
        let caller = state.push(job, durability, bytes);
        drop(state);
        self.wait(&caller)
    }

    /// Does several jobs, one after the other: whoever leads takes them together.
    pub(crate) fn submit_all(&self, jobs: Vec<(Job, Durability)>) -> Vec<Result<CommitNo>> {
        let mut state = self.state.lock();
        if let Some(poison) = &state.poison {
            return jobs.iter().map(|_| Err(refusal(poison))).collect();
        }
        let callers: Vec<_> = { jobs.into_iter() }
            .map(|(job, durability)| {
                let bytes = job.bytes();
                state.push(job, durability, bytes)
            })
            .collect();
        if !state.led
            && let Some(first) = callers.first()
        {
            state.led = true;
            first.tell(News::Lead);
        }
        drop(state);
        callers.iter().map(|caller| self.wait(caller)).collect()
    }

    fn wait(&self, caller: &Arc<Caller>) -> Result<CommitNo> {
        match caller.wait() {
            News::Done(result) => result,
            News::Lead => self.lead(caller),
        }
    }

    /// Leads with one job only: who comes meanwhile waits for the next leader, so that a caller alone pays for nothing
    /// but its own job.
    fn lead_alone(&self, job: Job, durability: Durability) -> Result<CommitNo> {
        let batch = Batch::new(self);
        let mut mine = None;
        let wants = Wants {
            sync: durability == Durability::Disk,
            freed_space: job.frees_space(),
        };
        let jobs = std::iter::once((job, durability));
        let done = self.run(jobs, wants, &mut |result| mine = Some(result));
        batch.finish(mine, done, None)
    }

    /// Leads with what is queued, first of all the job of `own`.
    fn lead(&self, own: &Arc<Caller>) -> Result<CommitNo> {
        let mut batch = Batch::new(self);
        let mut jobs = Vec::new();
        {
            let mut state = self.state.lock();
            let mut bytes = 0;
            while let Some(next) = state
                .waiting
                .pop_front_if(|w| jobs.is_empty() || bytes + w.bytes <= BATCH_LIMIT_BYTES)
            {
                bytes += next.bytes;
                jobs.push((next.job, next.durability));
                batch.callers.push(next.caller);
            }
        }
        let wants = Wants {
            sync: jobs.iter().any(|(_, level)| *level == Durability::Disk),
            freed_space: jobs.iter().any(|(job, _)| job.frees_space()),
        };
        let mut results = Vec::with_capacity(jobs.len());
        let done = self.run(jobs.into_iter(), wants, &mut |result| results.push(result));
        batch.finish(results, done, Some(own))
    }

    fn run(
        &self,
        jobs: impl Iterator<Item = (Job, Durability)>,
        wants: Wants,
        answer: &mut impl FnMut(Result<CommitNo>),
    ) -> Result<(), Broken> {
        let ends = |error| self.poison_with(error);
        watched("writing to the database", ends, || {
            match self.leader.lock().as_mut() {
                Some(leader) => leader.run(jobs, wants, answer),
                None => Err(fatal(Error::closed()).into()),
            }
        })
    }

    /// The leader's state, between two batches.
    ///
    /// # Errors
    /// `Unavailable` when the database is closed.
    pub(crate) fn with_leader<T>(&self, look: impl FnOnce(&mut Leader) -> T) -> Result<T> {
        self.leader
            .lock()
            .as_mut()
            .map(look)
            .ok_or_else(Error::closed)
    }

    /// Refuses everything from now on. Whoever leads now is waited for, and whoever was about to writes nothing.
    pub(crate) fn close(&self) -> Option<Leader> {
        self.poison_with(Error::closed());
        self.leader.lock().take()
    }

    /// Why nothing is written any more.
    pub(crate) fn poison(&self) -> Option<Error> {
        self.state.lock().poison.clone()
    }

    /// Refuses everything from now on.
    pub(crate) fn poison_with(&self, error: Error) {
        let mut state = self.state.lock();
        state.led = false;
        let waiting = std::mem::take(&mut state.waiting);
        let poison = state.poison.get_or_insert(error).clone();
        drop(state);
        for waiting in waiting {
            waiting.caller.tell(News::Done(Err(refusal(&poison))));
        }
    }
}

/// The error for a job without an answer whose batch has not failed and whose queue is not poisoned: a bug of the leader.
#[cold]
fn lost_result() -> Error {
    Error::new(ErrorKind::Unavailable, "the leader lost its own result")
}

/// The callers whose jobs a leader took: they are answered even if it unwinds.
struct Batch<'a> {
    queue: &'a CommitQueue,
    callers: Vec<Arc<Caller>>,
    finished: bool,
}

impl<'a> Batch<'a> {
    fn new(queue: &'a CommitQueue) -> Self {
        Self {
            queue,
            callers: Vec::new(),
            finished: false,
        }
    }

    /// Answers everyone and gives the lead away; returns the leader's own result, which is the first without `own`.
    fn finish(
        mut self,
        answers: impl IntoIterator<Item = Result<CommitNo>>,
        done: Result<(), Broken>,
        own: Option<&Arc<Caller>>,
    ) -> Result<CommitNo> {
        let settled = done.as_ref().err().map_or(usize::MAX, |b| b.settled);
        let broken = match done.map_err(|broken| broken.failure) {
            Ok(()) => None,
            Err(Failure::Fatal(error)) => {
                self.queue.poison_with(error.clone());
                Some(error)
            }
            Err(failure) => Some(failure.error()),
        };
        // Made only where it is asked for: a commit that went well allocates no error. Jobs that are gone from the queue were
        // refused by whoever poisoned it.
        let queue = self.queue;
        let refused = || queue.poison().map(|poison| refusal(&poison));
        let error = || broken.clone().or_else(refused).unwrap_or_else(lost_result);
        let mut answers = answers.into_iter().enumerate().map(|(at, answer)| {
            let holds = at < settled || answer.is_err();
            if holds { answer } else { Err(error()) }
        });
        let mut mine = match own {
            None => answers.next(),
            Some(_) => None,
        };
        for caller in self.callers.drain(..) {
            let answer = answers.next().unwrap_or_else(|| Err(error()));
            if own.is_some_and(|own| Arc::ptr_eq(own, &caller)) {
                mine = Some(answer);
            } else {
                caller.tell(News::Done(answer));
            }
        }
        drop(answers);
        self.give_lead_away();
        mine.unwrap_or_else(|| Err(error()))
    }

    fn give_lead_away(&mut self) {
        self.finished = true;
        let mut state = self.queue.state.lock();
        match state.waiting.front() {
            Some(next) => next.caller.tell(News::Lead),
            None => state.led = false,
        }
    }

    fn fail(&mut self, error: Error) {
        self.finished = true;
        self.queue.poison_with(error.clone());
        let error = self.queue.poison().unwrap_or(error);
        let error = outcome_unknown(&error, "the database is opened anew");
        for caller in self.callers.drain(..) {
            caller.tell(News::Done(Err(error.clone())));
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // If the queue is poisoned already, that error names the panic.
            self.fail(Error::new(
                ErrorKind::Unavailable,
                "a thread panicked while it wrote to the database",
            ));
        }
    }
}
