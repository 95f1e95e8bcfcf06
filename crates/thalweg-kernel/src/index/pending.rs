//! Changes of an index that wait for one of its pages, which cannot be read.
//!
//! Invariants: a tree with such changes answers nothing but their error: what it has without them are the rows of an earlier
//! commit. It is changed further by adding to them, or by making them first. Checkpoints have their sum: items of the tree
//! that go, and items that come, as many as those are; one change of the tree makes all of them. Those after the checkpoint are
//! made one by one, as whoever could read the page has made them: else the items would be on other pages than those of the writer,
//! and a file would go that a reading process needs.

use super::{Entry, ItemName, ItemRun};
use crate::error::{Error, ErrorKind};
use crate::ids::CommitNo;

/// Changes that wait for a page.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// The commit of the first change: the tree is as the commits before it have left it.
    pub(crate) since: CommitNo,
    /// Items of the tree that go.
    pub(crate) removed: Vec<ItemName>,
    /// Runs of items of the tree that go after these, ascending, without common keys. Only their keys, blocks and rows count:
    /// their ends may be items that came while changes waited.
    pub(crate) runs: Vec<ItemRun>,
    /// Items that come, of which no key is that of another one.
    pub(crate) added: Vec<Entry>,
    /// The same changes as steps that are made one after the other; none: they are made as one.
    pub(crate) steps: Vec<Waiting>,
    /// Why the page could not be read when that was last tried.
    pub(crate) cause: Error,
}

/// One change that waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    /// Items that go.
    pub(crate) removed: Vec<ItemName>,
    /// Runs of items that go.
    pub(crate) runs: Vec<ItemRun>,
    /// Items that come.
    pub(crate) added: Vec<Entry>,
}

impl Pending {
    /// No changes yet.
    pub(crate) fn new(since: CommitNo, cause: Error) -> Self {
        Self {
            since,
            removed: Vec::new(),
            runs: Vec::new(),
            added: Vec::new(),
            steps: Vec::new(),
            cause,
        }
    }

    /// Adds a change that comes after those that wait.
    pub(crate) fn push(&mut self, change: Waiting) {
        if self.steps.is_empty() {
            // Of the checkpoint, if it has any.
            self.steps = vec![self.joined()];
        }
        self.steps.push(change.clone());
        for name in change.removed {
            match { self.added.iter() }.position(|item| ItemName::of(item) == name) {
                Some(at) => _ = self.added.swap_remove(at),
                None => self.removed.push(name),
            }
        }
        change.runs.into_iter().for_each(|run| self.push_run(run));
        self.added.extend(change.added);
    }

    /// A run takes the waiting items in it from those that come, and the others from the tree.
    fn push_run(&mut self, mut run: ItemRun) {
        self.added.retain(|item| {
            let is_taken = run.contains(item.key());
            if is_taken {
                run.blocks = run.blocks.saturating_sub(item.blocks);
                run.rows = run.rows.saturating_sub(item.rows);
            }
            !is_taken
        });
        if run.blocks == 0 {
            return;
        }
        // What two runs with common keys take is what one over both takes: all that the tree has there.
        self.runs.retain(|other| {
            let is_apart = other.last.key < run.first.key || run.last.key < other.first.key;
            if !is_apart {
                if other.first.key < run.first.key {
                    run.first = other.first;
                }
                if other.last.key > run.last.key {
                    run.last = other.last;
                }
                run.blocks += other.blocks;
                run.rows += other.rows;
            }
            is_apart
        });
        let at = self
            .runs
            .partition_point(|other| other.last.key < run.first.key);
        self.runs.insert(at, run);
    }

    fn joined(&self) -> Waiting {
        Waiting {
            removed: self.removed.clone(),
            runs: self.runs.clone(),
            added: self.added.clone(),
        }
    }

    /// The waiting changes in the order of their commits. Those that a checkpoint has put together come first, and are one.
    pub(crate) fn changes(&self) -> Vec<Waiting> {
        match self.steps.is_empty() {
            true => vec![self.joined()],
            false => self.steps.clone(),
        }
    }

    /// The same changes as one, as they are in a checkpoint.
    pub(crate) fn as_one(&self) -> Self {
        Self {
            steps: Vec::new(),
            ..self.clone()
        }
    }

    /// The error for all who read or change the table.
    pub(crate) fn error(&self) -> Error {
        let remedy = if self.cause.kind() == ErrorKind::Corruption {
            "restore the file from a backup, or run `thalweg verify --repair`"
        } else {
            // A repair would end with the same error, and change nothing.
            "copy the folder with a tool that fills in what cannot be read, and repair the copy"
        };
        let message = format!(
            "{}; commits from {} on wait for this place of the index: {remedy}",
            self.cause.message(),
            self.since.0
        );
        Error::with_source(self.cause.kind(), message, self.cause.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_is_advised_of_damage_alone() {
        let advice = |cause| Pending::new(CommitNo(7), cause).error().to_string();
        let damaged = advice(Error::corruption("a page", "its checksum is wrong"));
        assert!(damaged.contains("`thalweg verify --repair`"), "{damaged}");
        let device = std::io::Error::from_raw_os_error(5);
        let unreadable = advice(Error::io("reading a page", device));
        assert!(!unreadable.contains("--repair"), "{unreadable}");
        assert!(
            unreadable.contains("commits from 7 on wait"),
            "{unreadable}"
        );
    }
}
