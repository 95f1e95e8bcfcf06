//! The turn of a table: who deletes rows of it or merges its blocks, and was refused twice because of others who do, does it alone.
//!
//! Invariants
//! - Nobody waits without having been refused, unless somebody else has the turn or waits for it: then all take it, in the order in
//!   which they come. So nobody who waits is passed over, and a merge passes however many deletions there are.
//! - The turn is of one table. A deletion waits for no merge of another table, but where the masks of all tables have used up
//!   their room: then it rewrites items of those with most of them first.
//! - Commits that are under way when the turn is taken may still refuse its holder, each of them once. Appends and the encoding of
//!   open rows never wait.

use crate::closed::Closed;
use crate::turns::{Turn, Turns};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use thalweg_env::sync::Mutex;
use thalweg_kernel::{Result, TableId};

/// Attempts that are refused before the turn is waited for.
pub(crate) const CONFLICTS_WITHOUT_TURN: u32 = 2;

/// The turns of the tables of an engine.
#[derive(Debug)]
pub(crate) struct AllTurns<T>(Mutex<HashMap<TableId, Weak<T>>>);

/// The turns of one table.
#[derive(Debug, Default)]
pub(crate) struct TableTurns(Turns<()>);

/// The turn of a table, or that it is not needed yet.
#[derive(Debug)]
pub(crate) struct TurnOrNone<'a> {
    turns: &'a TableTurns,
    held: Option<Turn<'a, ()>>,
}

impl<T> Default for AllTurns<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Default> AllTurns<T> {
    /// Those of a table.
    pub(crate) fn of(&self, table: TableId) -> Arc<T> {
        let mut tables = self.0.lock();
        // As many are left as calls are at work.
        tables.retain(|_, turns| turns.strong_count() > 0);
        let known = tables.get(&table).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let new = Arc::<T>::default();
            tables.insert(table, Arc::downgrade(&new));
            new
        })
    }
}

impl TableTurns {
    /// Waits for the turn; `None` if `go_on`, which is called while waiting, returns false.
    ///
    /// # Errors
    /// When the database is closed meanwhile.
    pub(crate) fn wait(
        &self,
        closed: &Closed,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Turn<'_, ()>>> {
        let turn = self.0.wait(&|| closed.check().is_ok() && go_on());
        match turn {
            None => closed.check().map(|()| None),
            turn => Ok(turn),
        }
    }

    /// Whether somebody has the turn or waits for it.
    pub(crate) fn is_taken(&self) -> bool {
        self.0.is_taken()
    }

    /// No turn yet.
    pub(crate) fn none(&self) -> TurnOrNone<'_> {
        TurnOrNone {
            turns: self,
            held: None,
        }
    }
}

impl TurnOrNone<'_> {
    /// Waits for the turn before an attempt, if enough attempts were refused (`conflicts`) or others have the turn or wait for it.
    /// Returns false if `go_on`, which is called while waiting, returns false.
    pub(crate) fn wait_if_due(&mut self, conflicts: u32, go_on: &dyn Fn() -> bool) -> bool {
        if self.held.is_none() && self.is_due(conflicts) {
            self.held = self.turns.0.wait(go_on);
            return self.held.is_some();
        }
        true
    }

    /// Whether the turn is waited for before the next attempt.
    pub(crate) fn is_due(&self, conflicts: u32) -> bool {
        conflicts >= CONFLICTS_WITHOUT_TURN || self.turns.is_taken()
    }

    /// Whether this has the turn: others may be waiting for it.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Passes the turn on.
    pub(crate) fn pass_on(&mut self) {
        self.held = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_attempt_has_the_turn_and_others_wait() {
        let all = AllTurns::<TableTurns>::default();
        let (of_table, same, other) = (all.of(TableId(1)), all.of(TableId(1)), all.of(TableId(2)));
        let (mut holder, mut first, mut apart) = (of_table.none(), same.none(), other.none());
        let (go_on, stop) = (|| true, || false);
        for conflicts in 0..2 {
            assert!(holder.wait_if_due(conflicts, &go_on));
            assert!(first.wait_if_due(conflicts, &stop), "nobody has it");
        }
        assert!(holder.wait_if_due(2, &go_on));
        assert!(holder.wait_if_due(3, &stop), "it has it already");
        assert!(!first.wait_if_due(0, &stop), "somebody has it");
        assert!(apart.wait_if_due(9, &stop), "another table");
        holder.pass_on();
        assert!(first.wait_if_due(0, &stop));
        assert!(first.held.is_none(), "nobody had it");
    }

    #[test]
    fn turns_of_tables_that_nobody_changes_are_forgotten() {
        let all = AllTurns::<TableTurns>::default();
        drop((all.of(TableId(1)), all.of(TableId(2))));
        let _kept = all.of(TableId(3));
        assert_eq!(all.0.lock().len(), 1);
    }
}
