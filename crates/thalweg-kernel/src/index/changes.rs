//! The changes of one commit to the index of a table: items that go, items that come, and the page that each of them belongs to.
//!
//! Invariants: keys ascend, one change each; runs ascend, without common keys. Of one key, what goes is before what comes.

use super::page::Child;
use super::{Entry, EntryKey};
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;

/// All items whose keys lie from that of the first to that of the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The key of the first item.
    pub first: EntryKey,
    /// The key of the last item, which may be the first one.
    pub last: EntryKey,
    /// Blocks below all of them.
    pub blocks: u64,
    /// Rows below all of them.
    pub rows: u64,
}

/// The removal or addition of an item, or its replacement by another one of the same key.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) key: EntryKey,
    pub(super) removes: bool,
    pub(super) adds: Option<Entry>,
}

impl Change {
    fn removal(&key: &EntryKey) -> Self {
        Self {
            key,
            removes: true,
            adds: None,
        }
    }
}

/// All of one change of a tree.
#[derive(Debug)]
pub(super) struct Changes {
    changes: Vec<Change>,
    runs: Vec<Run>,
}

impl Changes {
    /// # Errors
    /// `Invalid` when the changes contradict each other, or an item contradicts itself.
    pub(super) fn new(removed: &[EntryKey], runs: &[Run], added: Vec<Entry>) -> Result<Self> {
        let mut changes: Vec<Change> = removed.iter().map(Change::removal).collect();
        for item in added {
            if let Err(what) = item.check() {
                let message = format!("the index refuses {}: {what}", item.address);
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            changes.push(Change {
                key: item.key(),
                removes: false,
                adds: Some(item),
            });
        }
        // Stable: of one key the removal stays in front.
        changes.sort_by_key(|change| change.key);
        Ok(Self {
            changes: one_per_key(changes)?,
            runs: runs_in_order(runs)?,
        })
    }

    /// The places of a change, of whose added items only the keys are known.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(super) fn of_keys(
        removed: &[EntryKey],
        runs: &[Run],
        added: impl IntoIterator<Item = EntryKey>,
    ) -> Result<Self> {
        let mut changes: Vec<Change> = removed.iter().map(Change::removal).collect();
        changes.extend(added.into_iter().map(|key| Change {
            key,
            removes: false,
            adds: None,
        }));
        changes.sort_by_key(|change| change.key);
        Ok(Self {
            changes,
            runs: runs_in_order(runs)?,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.runs.is_empty()
    }

    /// Whether something goes from the tree.
    pub(super) fn removes(&self) -> bool {
        self.whole().removes()
    }

    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// All changes: those of the root.
    pub(super) fn whole(&self) -> Part<'_> {
        Part {
            changes: &self.changes,
            runs: &self.runs,
            first_run: 0,
            end: None,
        }
    }
}

/// The changes of one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    changes: &'a [Change],
    runs: &'a [Run],
    /// The number of the first of the runs.
    first_run: usize,
    /// The key of the next page, if there is one: all items of this page are below it.
    end: Option<EntryKey>,
}

impl<'a> Part<'a> {
    pub(super) fn changes(&self) -> &'a [Change] {
        self.changes
    }

    pub(super) fn runs(&self) -> &'a [Run] {
        self.runs
    }

    /// Whether something goes from the page.
    pub(super) fn removes(&self) -> bool {
        !self.runs.is_empty() || self.changes.iter().any(|change| change.removes)
    }

    /// The first key that something happens to.
    pub(super) fn first_key(&self) -> Option<EntryKey> {
        let change = self.changes.first().map(|change| change.key);
        let run = self.runs.first().map(|run| run.first);
        change.into_iter().chain(run).min()
    }

    /// The number of the run that a key is in.
    pub(super) fn run_of(&self, key: EntryKey) -> Option<usize> {
        let at = self.runs.partition_point(|run| run.last < key);
        let run = self.runs.get(at)?;
        (run.first <= key).then_some(self.first_run + at)
    }

    /// The number of the run that all items below an entry are in, if nothing else happens to the page.
    pub(super) fn run_over(&self, entry: &Entry) -> Option<usize> {
        let ends_behind = |run: &Run| self.end.is_some_and(|end| end <= run.last);
        let [run] = self.runs else { return None };
        let goes = self.changes.is_empty() && run.first <= entry.key() && ends_behind(run);
        goes.then_some(self.first_run)
    }

    /// The children of an inner page that something belongs to, in order, and what that is. It is the last child whose key is
    /// not above its own, or the first one.
    pub(super) fn among(&self, children: &[Arc<Child>]) -> Vec<(usize, Self)> {
        let mut parts = Vec::new();
        let (mut rest, mut next) = (*self, 0);
        while next < children.len()
            && let Some(key) = rest.first_key()
        {
            let behind = children.partition_point(|child| child.entry.key() <= key);
            // A run goes on in the next child.
            let at = behind.saturating_sub(1).max(next);
            next = at + 1;
            let end = children.get(next).map(|child| child.entry.key());
            parts.push((at, rest.split_off_below(end, self.end)));
        }
        parts
    }

    /// Takes what is below `end` out of this part; a run may be in both. `page_end` is where the page ends that both belong to.
    fn split_off_below(&mut self, end: Option<EntryKey>, page_end: Option<EntryKey>) -> Self {
        let Some(end) = end else {
            let all = Self {
                end: page_end,
                ..*self
            };
            (self.changes, self.runs) = (&[], &[]);
            return all;
        };
        let (changes, later) =
            { self.changes }.split_at(self.changes.partition_point(|change| change.key < end));
        let begun = self.runs.partition_point(|run| run.first < end);
        let ended = self.runs.partition_point(|run| run.last < end);
        let below = Self {
            changes,
            runs: &self.runs[..begun],
            first_run: self.first_run,
            end: Some(end),
        };
        (self.changes, self.runs) = (later, &self.runs[ended..]);
        self.first_run += ended;
        below
    }
}

/// Changes of one key become one.
fn one_per_key(changes: Vec<Change>) -> Result<Vec<Change>> {
    let mut merged: Vec<Change> = Vec::with_capacity(changes.len());
    for change in changes {
        match merged.last_mut() {
            Some(last) if last.key == change.key => {
                if last.adds.is_some() || change.removes {
                    return Err(same_key(change.key));
                }
                last.adds = change.adds;
            }
            _ => merged.push(change),
        }
    }
    Ok(merged)
}

fn runs_in_order(runs: &[Run]) -> Result<Vec<Run>> {
    let are_apart = runs.windows(2).all(|pair| pair[0].last < pair[1].first);
    let is_sound = |run: &Run| run.first <= run.last && run.blocks > 0 && run.rows >= run.blocks;
    if are_apart && runs.iter().all(is_sound) {
        return Ok(runs.to_vec());
    }
    let message = "runs of removed blocks are empty, or out of order";
    Err(Error::new(ErrorKind::Invalid, message))
}

pub(super) fn same_key(key: EntryKey) -> Error {
    let EntryKey {
        key_min,
        commit,
        ordinal,
    } = key;
    Error::new(
        ErrorKind::Invalid,
        format!(
            "two blocks with key {key_min} are number {ordinal} of commit {}",
            commit.0
        ),
    )
}

pub(super) fn no_such_key(key: EntryKey) -> Error {
    let EntryKey {
        key_min,
        commit,
        ordinal,
    } = key;
    let what = format!(
        "block {ordinal} of commit {} with key {key_min} is not in the table any more",
        commit.0
    );
    Error::new(ErrorKind::Conflict, what)
}
