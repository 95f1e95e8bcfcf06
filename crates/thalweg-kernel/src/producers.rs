//! The producers whose last commits are remembered, so that a resend is not stored twice.
//!
//! Invariants: at most [`MAX_PRODUCERS`] are remembered, those that have stored last. Which ones these are follows from the
//! commits alone, in whatever process they are applied and from whatever checkpoint, because a commit has one producer at
//! most and commits have one order. A resend is no use of a producer: it stores nothing, and a replay would find no frame of it.
//!
//! Rejected: forgetting producers by age. The wall clock decides nothing here, and a checkpoint could still grow without
//! bound within the time.

use crate::commit::Producer;
use crate::error::{Error, ErrorKind, Result};
use crate::fields::{Fields, PutFields, len_u32};
use crate::ids::CommitNo;
use std::collections::{BTreeMap, BTreeSet};

/// Most producers that are remembered: 2 MiB of a checkpoint.
pub const MAX_PRODUCERS: usize = 65_536;

/// Bytes of a producer in a checkpoint.
const PRODUCER_BYTES: usize = 32;

/// The last sequence of each producer, and the commit that brought it.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    by_id: BTreeMap<[u8; 16], (u64, CommitNo)>,
    by_commit: BTreeMap<CommitNo, [u8; 16]>,
}

impl Producers {
    /// The commit under which this resend was stored, if it was.
    pub(crate) fn stored_before(&self, producer: &Producer) -> Option<CommitNo> {
        let (sequence, commit) = self.by_id.get(&producer.id)?;
        (producer.sequence <= *sequence).then_some(*commit)
    }

    /// The sequence that this producer has stored last.
    pub(crate) fn last_sequence(&self, producer: &Producer) -> Option<u64> {
        self.by_id.get(&producer.id).map(|(sequence, _)| *sequence)
    }

    /// Notes a commit of a producer; the one that has not stored for longest is forgotten where there are too many.
    pub(crate) fn note(&mut self, producer: &Producer, commit: CommitNo) {
        let entry = (producer.sequence, commit);
        if let Some((_, before)) = self.by_id.insert(producer.id, entry) {
            self.by_commit.remove(&before);
        }
        self.by_commit.insert(commit, producer.id);
        if self.by_id.len() > MAX_PRODUCERS
            && let Some((_, oldest)) = self.by_commit.pop_first()
        {
            self.by_id.remove(&oldest);
        }
    }

    /// Writes them in ascending order of their ids.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(len_u32(self.by_id.len()));
        for (id, (sequence, commit)) in &self.by_id {
            out.extend_from_slice(id);
            out.put_u64(*sequence);
            out.put_u64(commit.0);
        }
    }

    /// Reads what [`Self::put`] wrote as of commit `last`.
    pub(crate) fn get(wire: &mut Fields<'_>, last: CommitNo) -> Result<Self> {
        let damage = |what: &str| Error::corruption("checkpoint", what);
        let count = wire.count(PRODUCER_BYTES)?;
        if count > MAX_PRODUCERS {
            return Err(damage("it remembers too many producers"));
        }
        let mut producers = Self::default();
        for _ in 0..count {
            let id = wire.id()?;
            let (sequence, commit) = (wire.u64()?, CommitNo(wire.u64()?));
            if producers
                .by_id
                .last_key_value()
                .is_some_and(|(before, _)| *before >= id)
            {
                return Err(damage("producers out of order"));
            }
            producers.by_id.insert(id, (sequence, commit));
            if commit > last || producers.by_commit.insert(commit, id).is_some() {
                return Err(damage("the commit of a producer is not its own"));
            }
        }
        Ok(producers)
    }
}

/// The only spelling of the producers that these bytes encode as of a commit, for whoever tries any bytes.
#[doc(hidden)]
#[must_use]
pub fn respelled_producers(bytes: &[u8], last: CommitNo) -> Option<Vec<u8>> {
    let mut wire = Fields::new(bytes, "producers");
    let producers = Producers::get(&mut wire, last).ok()?;
    wire.finish().ok()?;
    let mut again = Vec::new();
    producers.put(&mut again);
    Some(again)
}

/// Most refused commits that are remembered, more than may wait.
const MAX_REFUSED: usize = 1 << 19;

/// Commits of producers that were refused before their producers knew it, so that others may have been handed in after
/// them: stored, these would make the refused ones look stored as well, and their rows would be lost with the resend.
/// So until such a commit is stored, or another one with its number, no later one of its producer is.
///
/// Rejected: storing what is handed in after the producer got its error. It gets it on a thread of ours, and hands in on its own.
#[derive(Debug, Default)]
pub(crate) struct RefusedProducers {
    by_id: BTreeMap<[u8; 16], BTreeSet<u64>>,
    count: usize,
}

impl RefusedProducers {
    /// Forgets commits of the producer that turned out to be stored: of a batch that broke nobody knows it before the recovery.
    pub(crate) fn forget_stored(&mut self, producer: &Producer, last_sequence: Option<u64>) {
        let Some(last_sequence) = last_sequence else {
            return;
        };
        if let Some(of_producer) = self.by_id.get_mut(&producer.id) {
            let before = of_producer.len();
            of_producer.retain(|sequence| *sequence > last_sequence);
            self.count -= before - of_producer.len();
            if of_producer.is_empty() {
                self.by_id.remove(&producer.id);
            }
        }
    }

    /// # Errors
    /// `Conflict` for a commit that comes after one of its producer that was refused.
    pub(crate) fn check(&self, producer: &Producer) -> Result<()> {
        let refused = self.by_id.get(&producer.id).and_then(BTreeSet::first);
        let Some(refused) = refused.filter(|refused| **refused < producer.sequence) else {
            return Ok(());
        };
        let message = format!(
            "commit {refused} of the same producer was refused: commit it again first, or another one with its number"
        );
        Err(Error::new(ErrorKind::Conflict, message))
    }

    /// Whether a commit was refused, and is not stored since.
    pub(crate) fn has(&self, producer: &Producer) -> bool {
        let refused = self.by_id.get(&producer.id);
        refused.is_some_and(|refused| refused.contains(&producer.sequence))
    }

    /// Notes a commit that was refused.
    pub(crate) fn note(&mut self, producer: &Producer) {
        let of_producer = self.by_id.entry(producer.id).or_default();
        self.count += usize::from(of_producer.insert(producer.sequence));
        // Of producers that never came back.
        if self.count > MAX_REFUSED
            && let Some((_, forgotten)) = self.by_id.pop_first()
        {
            self.count -= forgotten.len();
        }
    }

    /// Notes a commit that is stored.
    pub(crate) fn forget(&mut self, producer: &Producer) {
        if let Some(of_producer) = self.by_id.get_mut(&producer.id) {
            self.count -= usize::from(of_producer.remove(&producer.sequence));
            if of_producer.is_empty() {
                self.by_id.remove(&producer.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn producer(number: u64, sequence: u64) -> Producer {
        let mut id = [0; 16];
        // Not in the order of their numbers.
        id[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        id[8..].copy_from_slice(&number.to_le_bytes());
        Producer { id, sequence }
    }

    fn bytes(producers: &Producers) -> Vec<u8> {
        let mut out = Vec::new();
        producers.put(&mut out);
        out
    }

    fn read(bytes: &[u8], last: u64) -> Result<Producers> {
        let mut wire = Fields::new(bytes, "producers");
        let producers = Producers::get(&mut wire, CommitNo(last))?;
        wire.finish()?;
        Ok(producers)
    }

    #[test]
    fn the_producers_that_have_stored_last_are_remembered() {
        let most = MAX_PRODUCERS as u64;
        let mut producers = Producers::default();
        (1..=most).for_each(|n| producers.note(&producer(n, 7), CommitNo(n)));
        // The first one stores again, then two new ones come: the second and the third go.
        producers.note(&producer(1, 8), CommitNo(most + 1));
        producers.note(&producer(most + 1, 1), CommitNo(most + 2));
        producers.note(&producer(most + 2, 1), CommitNo(most + 3));
        let stored = |n, sequence| producers.stored_before(&producer(n, sequence));
        assert_eq!(stored(1, 8), Some(CommitNo(most + 1)));
        assert_eq!(stored(1, 9), None);
        assert_eq!((stored(2, 7), stored(3, 7)), (None, None));
        assert_eq!(stored(4, 7), Some(CommitNo(4)));
        assert_eq!(producers.by_id.len(), MAX_PRODUCERS);
        assert_eq!(producers.by_commit.len(), MAX_PRODUCERS);
        assert_eq!(bytes(&producers).len(), 4 + PRODUCER_BYTES * MAX_PRODUCERS);
    }

    #[test]
    fn every_refused_commit_comes_before_later_ones() {
        let mut refused = RefusedProducers::default();
        let may =
            |refused: &RefusedProducers, sequence| refused.check(&producer(1, sequence)).is_ok();
        for sequence in [3, 2, 5] {
            refused.note(&producer(1, sequence));
            refused.note(&producer(1, sequence));
        }
        assert!(refused.has(&producer(1, 5)) && !refused.has(&producer(1, 4)));
        assert!(may(&refused, 1) && may(&refused, 2) && !may(&refused, 3));
        refused.forget(&producer(1, 2));
        assert!(may(&refused, 3) && !may(&refused, 4));
        refused.forget(&producer(1, 3));
        assert!(may(&refused, 4) && may(&refused, 5) && !may(&refused, 6));
        assert!(refused.check(&producer(2, 9)).is_ok());
        refused.forget_stored(&producer(1, 0), None);
        refused.forget_stored(&producer(1, 0), Some(4));
        assert!(!may(&refused, 6));
        refused.note(&producer(1, 4));
        refused.forget_stored(&producer(1, 0), Some(4));
        refused.note(&producer(1, 4));
        refused.forget(&producer(1, 4));
        refused.forget(&producer(1, 5));
        assert!(may(&refused, 6));
        assert_eq!((refused.by_id.len(), refused.count), (0, 0));
    }

    #[test]
    fn a_checkpoint_in_between_changes_nothing() {
        let most = MAX_PRODUCERS as u64;
        let mut whole = Producers::default();
        let mut resumed = Producers::default();
        for n in 1..=most + 300 {
            // Some store twice.
            let producer = producer(n - n % 3, n);
            whole.note(&producer, CommitNo(n));
            resumed.note(&producer, CommitNo(n));
            if n % 20_000 == 0 {
                resumed = read(&bytes(&resumed), n).unwrap();
            }
        }
        assert_eq!(bytes(&whole), bytes(&resumed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_error_or_a_list_of_one_spelling(
            commits in vec((any::<u64>(), 1_u64..9, 0_u64..12), 0..6),
            changes in vec((any::<usize>(), any::<u8>()), 0..4),
            length in 0_usize..300,
        ) {
            let mut producers = Producers::default();
            for (number, sequence, commit) in commits {
                producers.note(&producer(number, sequence), CommitNo(commit));
            }
            let mut changed = bytes(&producers);
            for (at, byte) in changes {
                let at = at % changed.len();
                changed[at] ^= byte;
            }
            changed.truncate(length);
            if let Some(again) = respelled_producers(&changed, CommitNo(10)) {
                prop_assert_eq!(again, changed);
            }
        }
    }

    #[test]
    fn damaged_lists_are_refused() {
        let mut producers = Producers::default();
        (1..=3).for_each(|n| producers.note(&producer(n, 1), CommitNo(n)));
        let good = bytes(&producers);
        assert_eq!(bytes(&read(&good, 3).unwrap()), good);
        assert!(read(&good, 2).is_err(), "a commit that is still to come");
        let mut twice = good.clone();
        twice.copy_within(4 + 24..4 + 32, 4 + 32 + 24);
        assert!(read(&twice, 3).is_err(), "two producers of one commit");
        let mut order = good.clone();
        order[4..4 + 64].rotate_left(32);
        assert!(read(&order, 3).is_err(), "ids out of order");
        let mut many = good;
        many[..4].copy_from_slice(&(len_u32(MAX_PRODUCERS) + 1).to_le_bytes());
        many.resize(4 + PRODUCER_BYTES * (MAX_PRODUCERS + 1), 0);
        assert!(read(&many, 3).is_err(), "too many");
    }
}
