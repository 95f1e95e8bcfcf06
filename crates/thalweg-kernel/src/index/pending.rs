//! Changes of an index that wait for one of its pages, which cannot be read.
//!
//! Invariants: a tree with such changes answers nothing but their error: what it has without them are the rows of an earlier
//! commit. It is changed further by adding to them, or by making them first. Checkpoints have what they come to: items of the tree
//! that go, and items that come, as many as those are; one change of the tree makes all of them. Those behind the checkpoint are made
//! one by one, as whoever could read the page has made them: else the items would be on other pages than those of the writer, and a
//! file would go that a reading process needs.

use super::{Entry, ItemName};
use crate::error::{Error, ErrorKind};
use crate::ids::CommitNo;

/// What waits.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// The commit of the first change: the tree is as the commits before it have left it.
    pub(crate) since: CommitNo,
    /// Items of the tree that go.
    pub(crate) removed: Vec<ItemName>,
    /// Items that come, of which no key is that of another one.
    pub(crate) added: Vec<Entry>,
    /// The same as the changes that are to be made one after the other; none: as one.
    pub(crate) steps: Vec<(Vec<ItemName>, Vec<Entry>)>,
    /// Why the page could not be read when that was last tried.
    pub(crate) cause: Error,
}

impl Pending {
    /// Nothing yet.
    pub(crate) fn new(since: CommitNo, cause: Error) -> Self {
        Self {
            since,
            removed: Vec::new(),
            added: Vec::new(),
            steps: Vec::new(),
            cause,
        }
    }

    /// Adds a change that comes after those that wait.
    pub(crate) fn push(&mut self, removed: &[ItemName], added: Vec<Entry>) {
        if self.steps.is_empty() {
            // Of the checkpoint, if it has any.
            self.steps = vec![(self.removed.clone(), self.added.clone())];
        }
        self.steps.push((removed.to_vec(), added.clone()));
        for name in removed {
            match self
                .added
                .iter()
                .position(|item| ItemName::of(item) == *name)
            {
                Some(at) => _ = self.added.swap_remove(at),
                None => self.removed.push(*name),
            }
        }
        self.added.extend(added);
    }

    /// The waiting changes in the order of their commits; those that a checkpoint has put together are one.
    pub(crate) fn changes(&self) -> Vec<(&[ItemName], &[Entry])> {
        if self.steps.is_empty() {
            return vec![(&self.removed, &self.added)];
        }
        let steps = self.steps.iter();
        steps
            .map(|(removed, added)| (&removed[..], &added[..]))
            .collect()
    }

    /// The same as one change, as it is in a checkpoint.
    pub(crate) fn as_one(&self) -> Self {
        Self {
            steps: Vec::new(),
            ..self.clone()
        }
    }

    /// What whoever reads or changes the table is told.
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
