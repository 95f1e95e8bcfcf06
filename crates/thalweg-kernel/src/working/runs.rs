//! Runs of items that a commit takes out, compared with the snapshot that they were found in.
//!
//! Invariants
//! - A commit takes out by a run what its maker has found there, and nothing else: items that came since are cut out of the run,
//!   which makes several of it; where one went, the commit is refused.
//! - What came and went is the difference of two trees, so it costs what has changed since the snapshot. Nothing is kept for it
//!   while nobody deletes.

use super::{Working, dropped, no_order};
use crate::commit::{Commit, Edit};
use crate::error::{Error, ErrorKind, Result};
use crate::index::{EntryKey, ItemChange, ItemName, PageLoader, Tree};
use crate::orders::{MAX_RUNS, Removed, Run};
use crate::rules::Rule;
use std::collections::BTreeSet;

impl Working {
    /// Cuts the runs of a new commit around what came into them since its maker looked.
    ///
    /// # Errors
    /// `Conflict` when an item of a run went; `Invalid` for runs that were found in no snapshot; when a page cannot be loaded.
    pub(crate) fn cut_runs(&self, commit: &mut Commit, pages: &dyn PageLoader) -> Result<()> {
        let snapshots = &commit.runs_of;
        for edit in &mut commit.edits {
            let Edit::Replace(edit) = edit else { continue };
            let table = edit.table;
            for order in &mut edit.orders {
                let Removed::Runs(runs) = &mut order.removed else {
                    continue;
                };
                let before = snapshots.iter().find(|before| before.id == table);
                let before = before.ok_or_else(|| {
                    let message = "runs of blocks are to be deleted that were found in no snapshot";
                    Error::new(ErrorKind::Invalid, message)
                })?;
                let now = self.table(table).ok_or_else(|| dropped(table))?;
                let now = now.tree_of(order.order);
                let trees = before.tree_of(order.order).zip(now);
                let (before, now) = trees.ok_or_else(|| no_order(table, order.order))?;
                *runs = cut(runs, before, now, pages)?;
            }
        }
        Ok(())
    }
}

fn cut(runs: &[Run], before: &Tree, now: &Tree, pages: &dyn PageLoader) -> Result<Vec<Run>> {
    if !Rule::RunsOfSnapshot.is_kept() {
        return Ok(runs.to_vec());
    }
    let came = came_into(runs, before, now, pages)?;
    let mut cut = Vec::with_capacity(runs.len());
    for run in runs {
        match came.range(run.first.key..=run.last.key).next() {
            None => cut.push(*run),
            Some(_) => cut.extend(now.run_without(run, &came, pages)?),
        }
    }
    match cut.len() > MAX_RUNS {
        true => Err(conflict(
            "too many blocks came among those that are to be deleted",
        )),
        false => Ok(cut),
    }
}

/// The keys of the items that came into runs.
fn came_into(
    runs: &[Run],
    before: &Tree,
    now: &Tree,
    pages: &dyn PageLoader,
) -> Result<BTreeSet<EntryKey>> {
    let is_in_run = |key: EntryKey| {
        let at = runs.partition_point(|run| run.last.key < key);
        runs.get(at).is_some_and(|run| run.first.key <= key)
    };
    let (mut gone, mut came) = (BTreeSet::new(), BTreeSet::new());
    for change in before.difference(now, pages) {
        // A block that is at another place after a recovery is in both.
        let (item, here, there) = match change? {
            ItemChange::Removed(item) => (item, &mut gone, &mut came),
            ItemChange::Added(item) => (item, &mut came, &mut gone),
        };
        let name = ItemName::of(&item);
        if is_in_run(name.key) && !there.remove(&name) {
            here.insert(name);
        }
    }
    match gone.is_empty() {
        true => Ok(came.into_iter().map(|name: ItemName| name.key).collect()),
        false => Err(conflict(
            "blocks that are to be deleted are not there any more",
        )),
    }
}

fn conflict(what: &str) -> Error {
    let message = format!("{what}: another commit came in between; run the statement again");
    Error::new(ErrorKind::Conflict, message)
}
