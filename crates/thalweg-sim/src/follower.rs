//! A process that reads a database for as long as others write it.
//!
//! Invariants: each of its answers is judged by the ledger: all that was acknowledged before it asked, nothing that nobody
//! submitted, the contents of one moment. A snapshot that it holds never changes. An answer may be an error only where calls
//! fail.

use crate::oracle::{
    Contents, Ledger, Lost, Violation, check_answers, check_prefix, contents_at, difference,
};
use crate::resources::check_reader_files;
use crate::shape::Shape;
use crate::toy::Toy;
use thalweg_env::sim::SimEnv;
use thalweg_kernel::{CommitNo, Snapshot};

/// A reading process.
#[derive(Debug)]
pub struct Follower {
    toy: Toy,
    process_id: u32,
    held: Vec<(Snapshot, Contents)>,
    last: CommitNo,
}

impl Follower {
    /// Opens the database for reading in another process.
    pub fn open(sim: &SimEnv, shape: &Shape, process_id: u32) -> thalweg_kernel::Result<Self> {
        let toy = shape.open_read_only(&sim.env_of_process(process_id))?;
        Ok(Self {
            toy,
            process_id,
            held: Vec::new(),
            last: CommitNo(0),
        })
    }

    /// The process.
    pub fn process_id(&self) -> u32 {
        self.process_id
    }

    /// Lets go of all snapshots.
    pub fn release(&mut self) {
        self.held.clear();
    }

    /// Runs a statement, and checks all that it holds; with `hold` its snapshot is one of that from now on.
    pub fn look(&mut self, sim: &SimEnv, ledger: &Ledger, hold: bool) -> Result<(), Violation> {
        let calls = sim.calls();
        let snapshot = self.toy.kernel.snapshot();
        let snapshot = snapshot.map_err(|e| format!("a snapshot of a reader: {e:?}"))?;
        let contents = self.contents_of(&snapshot)?;
        let bounds = ledger.bounds_at(calls + 1);
        let commit = snapshot.commit();
        check_prefix(
            &(commit, contents.clone()),
            &ledger.prefixes(),
            bounds.process,
            bounds.submitted,
        )
        .map_err(|e| format!("a reader that follows: {e}"))?;
        if commit < self.last {
            let (before, now) = (self.last.0, commit.0);
            return Err(format!("a reader went back from commit {before} to {now}"));
        }
        self.last = commit;
        self.check_held()?;
        if hold {
            self.held.push((snapshot, contents));
        } else if self.held.is_empty() {
            drop(snapshot);
            check_reader_files(sim, self.process_id)?;
        }
        Ok(())
    }

    /// Runs a statement where calls fail: errors are no violation, wrong rows are.
    pub fn look_with_faults(&mut self, ledger: &Ledger) -> Result<(), Violation> {
        let Ok(snapshot) = self.toy.kernel.snapshot() else {
            return Ok(());
        };
        let Ok(contents) = contents_at(&self.toy, &snapshot) else {
            return Ok(());
        };
        check_answers(ledger, &contents, Lost::Nothing)
            .map_err(|e| format!("a reader that follows: {e}"))
    }

    /// Snapshots that are held do not change; those that are too old return an error.
    fn check_held(&self) -> Result<(), Violation> {
        for (snapshot, want) in &self.held {
            let commit = snapshot.commit().0;
            let found = self.contents_of(snapshot)?;
            if found != *want {
                let what = difference(want, &found);
                return Err(format!("the snapshot of commit {commit} changed: {what}"));
            }
        }
        Ok(())
    }

    fn contents_of(&self, snapshot: &Snapshot) -> Result<Contents, Violation> {
        let commit = snapshot.commit().0;
        contents_at(&self.toy, snapshot)
            .map_err(|e| format!("a reader, as of commit {commit}: {e}"))
    }

    /// Closes the database, and has nothing open any more.
    pub fn close(self, sim: &SimEnv) -> Result<(), Violation> {
        let Self {
            toy,
            process_id,
            held,
            ..
        } = self;
        drop((held, toy));
        crate::resources::check_closed(sim, process_id)
    }
}
