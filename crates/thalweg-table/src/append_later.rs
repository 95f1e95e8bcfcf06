//! Appends that are answered by a call, for programs with more connections than threads.
//!
//! Invariants: an append that was taken is answered once; one that was not is not answered. It is prepared by its caller, and by the
//! thread that answers only where it lost a race with a new definition.

use crate::intake::commit_of;
use crate::table::{MAX_ATTEMPTS, Table};
use arrow_array::RecordBatch;
use std::sync::Arc;
use thalweg_env::sync::Mutex;
use thalweg_kernel::{Durability, ErrorKind, Result};

type Answer = Box<dyn FnOnce(Result<u64>) + Send>;

/// An append on its way.
struct Later {
    table: Table,
    /// Kept for another attempt.
    batches: Vec<RecordBatch>,
    durability: Durability,
    attempts: usize,
    /// Taken by whoever answers.
    answer: Arc<Mutex<Option<Answer>>>,
}

impl Table {
    /// Appends all batches in one commit, as [`Self::append`] does, and returns once they are on their way: `answer` gets what that
    /// would have returned, on a thread of the database. Appends that wait at the same time share a sync, so that thousands of
    /// connections need no threads of their own. The next answers wait for one that takes its time.
    ///
    /// # Errors
    /// As [`Self::append`] where rows do not fit the table, and `Limit` where 64 MiB of such appends wait already. Nothing was taken
    /// then, and `answer` is not called. One that lost a race with a new definition is tried again: it may be stored after later ones
    /// of the same program, and its answer may be such an error.
    pub fn append_later(
        &self,
        batches: Vec<RecordBatch>,
        durability: Option<Durability>,
        answer: impl FnOnce(Result<u64>) + Send + 'static,
    ) -> Result<()> {
        self.engine().closed().check()?;
        // Those with a unique key come one after the other.
        if self.is_in_transaction() || self.shape().definition.unique().is_some() {
            answer(self.append(batches.into_iter().map(Ok), durability));
            return Ok(());
        }
        let later = Later {
            table: self.clone(),
            batches,
            durability: durability.unwrap_or(self.engine().options().durability),
            attempts: 0,
            answer: Arc::new(Mutex::new(Some(Box::new(answer)))),
        };
        later.start()
    }
}

impl Later {
    fn start(mut self) -> Result<()> {
        self.attempts += 1;
        let table = self.table.clone();
        let shape = table.shape();
        let batches = self.batches.iter().cloned().map(Ok);
        let (commit, rows) = match commit_of(&table, &shape, batches, &|| true) {
            Err(e) if self.attempts < MAX_ATTEMPTS && table.has_newer_than(shape.version, &e) => {
                return self.start();
            }
            done => done?,
        };
        if rows == 0 {
            give(&self.answer, Ok(0));
            return Ok(());
        }
        let durability = self.durability;
        let answered = move |stored: Result<_>| match stored {
            Err(error) if error.kind() == ErrorKind::Conflict && self.attempts < MAX_ATTEMPTS => {
                let answer = Arc::clone(&self.answer);
                let again = self.table.refresh().and_then(|()| self.start());
                if let Err(error) = again {
                    give(&answer, Err(error));
                }
            }
            stored => {
                let stored = stored
                    .map(|_| rows)
                    .map_err(|error| self.table.dropped_or(error));
                // Let go of first: whoever is answered may open the database anew.
                let answer = Arc::clone(&self.answer);
                drop(self);
                give(&answer, stored);
            }
        };
        table
            .engine()
            .kernel()
            .commit_later(commit, durability, answered)
    }
}

/// Answers, unless that was done.
fn give(answer: &Mutex<Option<Answer>>, stored: Result<u64>) {
    // Not called under the lock: an answer may do anything.
    let answer = answer.lock().take();
    if let Some(answer) = answer {
        answer(stored);
    }
}
