//! Commits whose callers do not wait for them: one thread stores them and calls back.
//!
//! Invariants: they are stored in the order in which they were handed in; each is answered once, also where the database is closed
//! or a thread panics; what waits is bounded. After a commit that is refused, none of the same producer is stored
//! ([`crate::producers::RefusedProducers`]). Answers are given outside of every lock, one at a time. The thread is
//! started by the first of them, so that an opening pays for nothing.
//!
//! Rejected: whoever leads the commit queue gives the answers. A caller who waits for its own commit would wait for the code of
//! others, and that code could not commit.

use crate::commit::{Commit, Durability};
use crate::error::{Error, ErrorKind, Result};
use crate::failure::refusal;
use crate::ids::CommitNo;
use crate::limits::memory_bytes;
use crate::masks::MaskEdit;
use crate::queue::BATCH_LIMIT_BYTES;
use crate::upkeep::Upkeep;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use thalweg_env::JoinHandle;
use thalweg_env::sync::{Condvar, Mutex, MutexGuard, ThreadId, current_thread};

/// Most bytes of commits that wait. Who hands in more is refused, for it would never learn that the disk is slower.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// Most commits that are stored at once: commits of others wait for them, some 10 ms.
const MAX_AT_ONCE: usize = 1024;
/// Each 4 bytes of masks count as one more commit: to hide further rows of a block takes as long as the block has runs of
/// hidden rows.
const MASK_BYTES_OF_COMMIT: usize = 4;

type Answer = Box<dyn FnOnce(Result<CommitNo>) + Send>;

pub(crate) struct Committer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle>>,
}

struct Shared {
    upkeep: Arc<Upkeep>,
    state: Mutex<State>,
    call: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    is_stopping: bool,
    /// The thread, once it runs.
    thread: Option<ThreadId>,
}

/// A commit that waits, with its size. It is answered even if it is dropped.
struct Waiting {
    commit: Commit,
    durability: Durability,
    bytes: usize,
    owed: Owed,
}

struct Owed(Option<Answer>);

impl Owed {
    fn give(mut self, result: Result<CommitNo>) {
        self.answer(result);
    }

    fn answer(&mut self, result: Result<CommitNo>) {
        let Some(answer) = self.0.take() else {
            return;
        };
        // It is code of the caller. If it panics, which the panic hook has reported, that means nothing for the database.
        if let Err(panicked) = catch_unwind(AssertUnwindSafe(|| answer(result))) {
            // What it panicked with may panic again when it is dropped.
            Box::leak(panicked);
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.answer(Err(Error::new(
            ErrorKind::Unavailable,
            "the thread that stores commits has ended; whether this one was stored is not known",
        )));
    }
}

impl Committer {
    pub(crate) fn new(upkeep: Arc<Upkeep>) -> Self {
        Self {
            shared: Arc::new(Shared {
                upkeep,
                state: Mutex::default(),
                call: Condvar::new(),
            }),
            thread: Mutex::new(None),
        }
    }

    /// See [`crate::Kernel::commit_later`].
    pub(crate) fn commit_later(
        &self,
        commit: Commit,
        durability: Durability,
        answer: Answer,
    ) -> Result<()> {
        let upkeep = &self.shared.upkeep;
        if !upkeep.has_threads() {
            let stored = upkeep.commit(commit, durability);
            Owed(Some(answer)).give(stored);
            return Ok(());
        }
        let bytes = memory_bytes(&commit);
        let room = self.start().and_then(|()| self.shared.room_for(bytes));
        let mut state = room.inspect_err(|_| upkeep.refuse(&commit))?;
        state.waiting_bytes += bytes;
        state.waiting.push_back(Waiting {
            commit,
            durability,
            bytes,
            owed: Owed(Some(answer)),
        });
        drop(state);
        self.shared.call.notify_one();
        Ok(())
    }

    fn start(&self) -> Result<()> {
        let mut thread = self.thread.lock();
        // The one that stops it takes it out, but by then nothing is taken any more.
        if thread.is_some() || self.shared.state.lock().is_stopping {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let upkeep = &self.shared.upkeep;
        *thread = Some(upkeep.spawn("thalweg-commits", move |_| shared.run())?);
        Ok(())
    }

    /// Ends the thread and waits for it. What it has not begun with is refused.
    pub(crate) fn stop(&self) {
        let runs_here = {
            let mut state = self.shared.state.lock();
            state.is_stopping = true;
            state.thread == Some(current_thread().id())
        };
        self.shared.call.notify_all();
        let thread = self.thread.lock().take();
        // An answer may close the database: the thread ends after that.
        if let Some(thread) = thread.filter(|_| !runs_here) {
            // One that panicked has ended writing; closing goes on.
            let _ = thread.join();
        }
        self.shared.refuse_all();
    }
}

impl Shared {
    /// Locks the queue, if there is room in it for `bytes` more.
    fn room_for(&self, bytes: usize) -> Result<MutexGuard<'_, State>> {
        if let Some(poison) = self.upkeep.writer().poison() {
            return Err(refusal(&poison));
        }
        let state = self.state.lock();
        if state.is_stopping {
            return Err(Error::closed());
        }
        if !state.waiting.is_empty() && state.waiting_bytes + bytes > MAX_WAITING_BYTES {
            let message = format!(
                "{} commits wait to be stored, {} bytes: hand in more once they have been answered",
                state.waiting.len(),
                state.waiting_bytes
            );
            return Err(Error::new(ErrorKind::Limit, message));
        }
        Ok(state)
    }

    fn run(&self) {
        self.state.lock().thread = Some(current_thread().id());
        let _refuses = RefuseAll(self);
        while let Some(batch) = self.next_batch() {
            let (commits, owed): (Vec<_>, Vec<_>) = batch
                .into_iter()
                .map(|waiting| ((waiting.commit, waiting.durability), waiting.owed))
                .unzip();
            let mut owed = owed.into_iter();
            self.upkeep.commit_all(commits, &mut |result| {
                if let Some(owed) = owed.next() {
                    owed.give(result);
                }
            });
        }
    }

    /// Takes the next batch out of the queue; `None` once the thread is to end.
    fn next_batch(&self) -> Option<Vec<Waiting>> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !state.is_stopping {
            self.call.wait(&mut state);
        }
        if state.is_stopping {
            return None;
        }
        let (mut batch, mut bytes, mut count) = (Vec::new(), 0, 0);
        while let Some(next) = state.waiting.pop_front_if(|next| {
            let is_one_more = bytes + next.bytes <= BATCH_LIMIT_BYTES && count < MAX_AT_ONCE;
            batch.is_empty() || is_one_more
        }) {
            bytes += next.bytes;
            let mask_bytes: usize = next.commit.masks.iter().map(MaskEdit::len_bytes).sum();
            count += 1 + mask_bytes / MASK_BYTES_OF_COMMIT;
            batch.push(next);
        }
        state.waiting_bytes -= bytes;
        Some(batch)
    }

    fn refuse_all(&self) {
        let waiting = std::mem::take(&mut self.state.lock().waiting);
        let poison = self.upkeep.writer().poison();
        let error = poison.map_or_else(Error::closed, |poison| refusal(&poison));
        for Waiting { commit, owed, .. } in waiting {
            self.upkeep.abandon(&commit);
            owed.give(Err(error.clone()));
        }
    }
}

/// Refuses what waits at the end of the thread, also where that unwinds: nobody else would answer.
struct RefuseAll<'a>(&'a Shared);

impl Drop for RefuseAll<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_stopping = true;
        self.0.refuse_all();
    }
}
