//! The turn of the unique keys of a table: who stores rows with keys that the table may lack looks for them alone.
//!
//! Invariants
//! - Whoever has the turn sees every append that another one has planned: in its snapshot, or among those that are under way here. An
//!   append is entered before it passes the turn on, and taken off after its commit was answered. A snapshot is taken after the look
//!   at those under way, so that none is missed.
//! - Rows that may share a key with an append under way wait for it, with the turn. An append that was refused needs the turn again
//!   only once it was taken off, so that nobody waits for each other.
//! - A thread that has the turn of a table is refused another one of it. A source of rows that stores rows in the table while its next
//!   ones are read within the turn would wait for itself.
//!
//! Appends of few rows pass the turn on before their commit is stored, so that those of many threads share a sync. Rejected: to
//! commit without a sync within the turn, and to wait for the disk after it; readers would see rows that a power cut takes away again.

use crate::closed::Closed;
use crate::error::query;
use crate::table_turns::TableTurns;
use crate::turns::Turn;
use std::cell::RefCell;
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

thread_local! {
    /// The turns that this thread has, by their addresses.
    static HELD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The turn of the keys of a table.
#[derive(Debug)]
pub(crate) struct KeyTurn<'a> {
    turns: &'a KeyTurns,
    _turn: Turn<'a, ()>,
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
    /// When the database is closed meanwhile; `Query` when `go_on`, which is called while waiting, returns false, or this thread has the
    /// turn already.
    pub(crate) fn wait(&self, closed: &Closed, go_on: &dyn Fn() -> bool) -> Result<KeyTurn<'_>> {
        self.wait_for((closed, go_on), |under_way| under_way.appends == 0)
    }

    /// Waits for the turn, and for the appends under way that may store one of the keys.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub(crate) fn wait_beside(
        &self,
        closed: &Closed,
        go_on: &dyn Fn() -> bool,
        keys: &KeyPrints,
    ) -> Result<KeyTurn<'_>> {
        self.wait_for((closed, go_on), |under_way| under_way.lets_pass(keys))
    }

    fn wait_for(
        &self,
        (closed, go_on): (&Closed, &dyn Fn() -> bool),
        is_free: impl Fn(&UnderWay) -> bool,
    ) -> Result<KeyTurn<'_>> {
        if HELD.with_borrow(|held| held.contains(&self.address())) {
            return Err(query(
                "an append or a statement whose rows are being read stores keys in this table already: its source cannot store rows \
                 there as well; nothing was stored",
            ));
        }
        let interrupted =
            || query("it was interrupted while others stored keys, and nothing was stored");
        let turn = self.turns.wait(closed, go_on)?.ok_or_else(interrupted)?;
        loop {
            let mut under_way = self.under_way.lock();
            if is_free(&under_way) {
                break;
            }
            self.fewer.wait_for(&mut under_way, LOOKS_EACH);
            drop(under_way);
            closed.check()?;
            // Not with the lock: it may take long.
            if !go_on() {
                return Err(interrupted());
            }
        }
        HELD.with_borrow_mut(|held| held.push(self.address()));
        Ok(KeyTurn {
            turns: self,
            _turn: turn,
        })
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Passes the turn on before the commit of rows with these keys, for which [`Self::wait_beside`] has waited.
    pub(crate) fn pass_on(&self, turn: KeyTurn<'_>, keys: KeyPrints) -> Entered<'_> {
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

impl Drop for KeyTurn<'_> {
    fn drop(&mut self) {
        let address = self.turns.address();
        // Where a thread ends there may be none any more.
        let _ = HELD.try_with(|held| held.borrow_mut().retain(|other| *other != address));
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
    use thalweg_kernel::ErrorKind;

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
            let turn = turns.wait_beside(&closed, &|| true, &keys).unwrap();
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
            let waiting = scope.spawn(|| drop(turns.wait(&closed, &|| true).unwrap()));
            thalweg_env::Env::os()
                .clock()
                .sleep(Duration::from_millis(5));
            assert!(!waiting.is_finished(), "one is under way");
            drop(second);
            waiting.join().unwrap();
        });
        assert!(lets_pass(keys(&[3], 8)));
        let turn = turns.wait(&closed, &|| true).unwrap();
        let again = turns.wait(&closed, &|| true);
        assert_eq!(again.unwrap_err().kind(), ErrorKind::Query, "of one thread");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| turns.wait(&closed, &|| false).map(|_| ()));
            let left = waiting.join().unwrap();
            assert_eq!(left.unwrap_err().kind(), ErrorKind::Query, "it was stopped");
        });
        drop(turn);
        drop(turns.wait(&closed, &|| true).unwrap());
        assert!(turns.under_way.lock().fingerprints.is_empty());
    }
}
