//! Removal of logs and fragments that nothing needs any more.
//!
//! Invariants
//! - A log or fragment goes only once the garbage floor has reached a state that does not need it, and no pin is below.
//! - Whether a frame that may name a fragment is there is decided first.

use std::collections::BTreeSet;

use crate::chain::Place;
use crate::database::{Log, State};
use crate::error::Result;
use crate::format::{LogCommit, Position};
use crate::inbox::Inbox;
use crate::lock::Alive;
use crate::rules::Rule;
use crate::writer::named;

/// The logs and fragments that were removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Numbers of logs.
    pub logs: Vec<u64>,
    /// Ids of fragments.
    pub fragments: Vec<u64>,
}

impl<D: Log> Inbox<D> {
    /// Removes what no state from the garbage floor on needs. Nothing goes while a snapshot below that is in use, or while
    /// somebody else has the commit lock.
    ///
    /// # Errors
    /// Damage, and those of the file system.
    pub fn remove(&mut self) -> Result<Removed> {
        let dead = self.of_dead()?;
        let Some(lock) = self.disk.lock(crate::lock::Patience::Once)? else {
            return Ok(Removed::default());
        };
        let decided = self.decide_removal(&dead);
        self.disk.release(lock);
        let (at, decided) = decided?;
        if decided == Removed::default() {
            return Ok(decided);
        }
        let is_free = self.database.raise_garbage_floor(at)?;
        if !is_free && Rule::FloorBeforeRemoval.is_kept() {
            return Ok(Removed::default());
        }
        for number in &decided.logs {
            self.disk.remove(&self.disk.log_path(*number))?;
        }
        for id in &decided.fragments {
            self.disk.remove(&self.disk.fragment_path(*id))?;
            self.passed_over.remove(id);
        }
        Ok(decided)
    }

    /// Fragments whose owner has ended.
    fn of_dead(&self) -> Result<Vec<u64>> {
        let listed = self.disk.list_fragments()?;
        let own = self.alive.as_ref().map(Alive::number);
        let mut alive = BTreeSet::new();
        for owner in listed.iter().map(owner_of).collect::<BTreeSet<_>>() {
            if own == Some(owner) || Alive::is_alive(self.disk.registry.file()?, owner)? {
                alive.insert(owner);
            }
        }
        let listed = match Rule::ListBeforeLocks.is_kept() {
            true => listed,
            false => self.disk.list_fragments()?,
        };
        let is_dead = |id: &u64| !alive.contains(&owner_of(id)) || Rule::KeepOfLiving.is_broken();
        Ok(listed.into_iter().filter(is_dead).collect())
    }

    fn decide_removal(&mut self, dead: &[u64]) -> Result<(LogCommit, Removed)> {
        let half = match Rule::DecideSettled.is_kept() {
            true => self.disk.settle(&mut self.database)?.1,
            false => match self.disk.read()?.current(self.disk.boot) {
                Some(half) => half,
                None => return Ok(Default::default()),
            },
        };
        let state = self.new_state()?;
        let inbox = state.inbox();
        let chain = self.disk.chain(half.log, &inbox.position)?;
        let holds = |number: u64| {
            let mut held = inbox.held.values();
            held.any(|group| group.log == number) && Rule::KeepHeldLogs.is_kept()
        };
        let is_needed = |number: &u64| match number.cmp(&inbox.position.log) {
            std::cmp::Ordering::Less => holds(*number),
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Greater => chain.has(*number) && Rule::KeepChain.is_kept(),
        };
        let listing = self.disk.list()?;
        let logs = listing.logs.into_iter().filter(|number| !is_needed(number));
        let logs = logs.collect();
        let mut needed: BTreeSet<u64> = BTreeSet::new();
        for located in &self.disk.not_in_log(&half, inbox)? {
            let tables = located.frame.tables().into_iter();
            needed.extend(tables.flat_map(|table| named(&state, located, table)));
        }
        let is_named = |id: &u64| {
            (needed.contains(id) || state.has_fragment(*id)) && Rule::KeepNamed.is_kept()
        };
        let candidates = dead.iter().chain(&self.passed_over).copied();
        let candidates: BTreeSet<u64> = candidates.collect();
        let fragments = candidates.into_iter().filter(|id| !is_named(id)).collect();
        Ok((state.at(), Removed { logs, fragments }))
    }

    /// Finds the fragments of frames that were passed over by a writer before this one.
    ///
    /// # Errors
    /// Those of reading the logs.
    pub fn find_passed_over(&mut self) -> Result<()> {
        let state = self.new_state()?;
        let position = state.inbox().position;
        for number in self.disk.list()?.logs.range(..=position.log) {
            let Ok(chain) = self.disk.chain(*number, &Position::default()) else {
                continue;
            };
            let of_log = |place: &Place| place.log == *number;
            let last = chain.logs.last().map(|log| log.first()).filter(of_log);
            let Ok(found) = self.disk.frames(&chain, last, None, &[]) else {
                continue;
            };
            for located in &found.frames {
                let is_held = |table| {
                    let key = (located.frame.head.number, table);
                    state.inbox().held.contains_key(&key)
                };
                if located.frame.head.number > position.frame {
                    break;
                }
                let tables = located.frame.tables().into_iter();
                let passed = tables.filter(|table| !is_held(*table));
                let ids = passed.flat_map(|table| named(&state, located, table));
                self.passed_over
                    .extend(ids.filter(|id| !state.has_fragment(*id)));
            }
        }
        Ok(())
    }
}

fn owner_of(id: &u64) -> u64 {
    id >> 24 & ((1 << 39) - 1)
}
