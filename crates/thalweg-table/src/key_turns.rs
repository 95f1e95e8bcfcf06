//! The turn of the unique keys of a table: who stores rows with keys that the table may lack looks for them alone.
//!
//! Invariants
//! - Whoever has the turn sees every append that another one has planned: in its snapshot, or among those that are under way here. An
//!   append is entered before it passes the turn on, and taken off after its commit was answered. A snapshot is taken after the look
//!   at those under way, so that none is missed.
//! - Rows that may share a key with an append under way wait for it, with the turn. An append that was refused needs the turn again
//!   only once it was taken off, so that nobody waits for each other.
//!
//! Appends of few rows pass the turn on before their commit is stored, so that those of many threads share a sync. Rejected: to
//! commit without a sync within the turn, and to wait for the disk after it; readers would see rows that a power cut takes away again.

use crate::closed::Closed;
use crate::table_turns::TableTurns;
use crate::turns::Turn;
use std::collections::HashMap;
use std::time::Duration;
use thalweg_env::sync::{Condvar, Mutex};
use thalweg_kernel::Result;

/// How often a thread that waits for others looks whether the database was closed.
const LOOKS_EACH: Duration = Duration::from_millis(20);

/// The turns of the keys of one table.
#[derive(Debug, Default)]
pub(crate) struct KeyTurns {
    turns: TableTurns,
    under_way: Mutex<UnderWay>,
    fewer: Condvar,
}

/// The keys of the appends that have passed the turn on and wait for their commit.
#[derive(Debug, Default)]
struct UnderWay {
    appends: usize,
    /// How many rows have a fingerprint.
    fingerprints: HashMap<u64, usize>,
    /// The definition of the table by which all of them were made.
    version: u32,
}

/// The keys of rows to be stored: equal ones have equal fingerprints.
#[derive(Clone, Debug)]
pub(crate) struct KeyPrints {
    pub(crate) fingerprints: Vec<u64>,
    /// The definition of the table by which they were made.
    pub(crate) version: u32,
}

/// An append that waits for its commit.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    turns: &'a KeyTurns,
    keys: KeyPrints,
}

impl KeyTurns {
    /// Waits for the turn, and for all appends that are under way.
    ///
    /// # Errors
    /// When the database is closed meanwhile.
    pub(crate) fn wait(&self, closed: &Closed) -> Result<Turn<'_, ()>> {
        self.wait_for(closed, |under_way| under_way.appends == 0)
    }

    /// Waits for the turn, and for the appends under way that may store one of the keys.
    ///
    /// # Errors
    /// When the database is closed meanwhile.
    pub(crate) fn wait_beside(&self, closed: &Closed, keys: &KeyPrints) -> Result<Turn<'_, ()>> {
        self.wait_for(closed, |under_way| under_way.lets_pass(keys))
    }

    fn wait_for(
        &self,
        closed: &Closed,
        is_free: impl Fn(&UnderWay) -> bool,
    ) -> Result<Turn<'_, ()>> {
        let turn = self.turns.wait(closed)?;
        let mut under_way = self.under_way.lock();
        while !is_free(&under_way) {
            self.fewer.wait_for(&mut under_way, LOOKS_EACH);
            closed.check()?;
        }
        Ok(turn)
    }

    /// Passes the turn on before the commit of rows with these keys, for which [`Self::wait_beside`] has waited.
    pub(crate) fn pass_on(&self, turn: Turn<'_, ()>, keys: KeyPrints) -> Entered<'_> {
        let mut under_way = self.under_way.lock();
        under_way.appends += 1;
        under_way.version = keys.version;
        for fingerprint in &keys.fingerprints {
            *under_way.fingerprints.entry(*fingerprint).or_default() += 1;
        }
        drop(under_way);
        drop(turn);
        Entered { turns: self, keys }
    }
}

impl UnderWay {
    fn lets_pass(&self, keys: &KeyPrints) -> bool {
        let is_known = |fingerprint| self.fingerprints.contains_key(fingerprint);
        self.appends == 0
            || (self.version == keys.version && !keys.fingerprints.iter().any(is_known))
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut under_way = self.turns.under_way.lock();
        under_way.appends -= 1;
        for fingerprint in &self.keys.fingerprints {
            if let Some(rows) = under_way.fingerprints.get_mut(fingerprint) {
                *rows -= 1;
                if *rows == 0 {
                    under_way.fingerprints.remove(fingerprint);
                }
            }
        }
        drop(under_way);
        self.turns.fewer.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(fingerprints: &[u64], version: u32) -> KeyPrints {
        KeyPrints {
            fingerprints: fingerprints.to_vec(),
            version,
        }
    }

    #[test]
    fn only_rows_without_a_key_that_is_under_way_pass() {
        let (turns, closed) = (
            KeyTurns::default(),
            Closed::new(thalweg_env::Env::os().owner()),
        );
        let enter = |keys: KeyPrints| {
            let turn = turns.wait_beside(&closed, &keys).unwrap();
            turns.pass_on(turn, keys)
        };
        let lets_pass = |keys: KeyPrints| turns.under_way.lock().lets_pass(&keys);
        let first = enter(keys(&[1, 2, 2], 7));
        let second = enter(keys(&[3], 7));
        assert!(lets_pass(keys(&[4], 7)));
        assert!(!lets_pass(keys(&[4, 2], 7)));
        assert!(!lets_pass(keys(&[4], 8)), "of another definition");
        drop(first);
        assert!(lets_pass(keys(&[1, 2], 7)));
        assert!(!lets_pass(keys(&[3], 7)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(turns.wait(&closed).unwrap()));
            thalweg_env::Env::os()
                .clock()
                .sleep(Duration::from_millis(5));
            assert!(!waiting.is_finished(), "one is under way");
            drop(second);
            waiting.join().unwrap();
        });
        assert!(lets_pass(keys(&[3], 8)));
        assert!(turns.under_way.lock().fingerprints.is_empty());
    }
}
