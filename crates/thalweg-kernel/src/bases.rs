//! The two full checkpoints that differences build on, and which tables have changed since each.
//!
//! Invariants
//! - A checkpoint does not build on the base of the checkpoint before it. So the two slots of the root share no byte of a
//!   checkpoint, and damage to any one frame leaves one slot whole, with the log after it. Each checkpoint begins in a
//!   sector of its own, so the same holds of any one sector; not in short segments and on a disk that is nearly full.
//! - The first checkpoint of an epoch is in both slots, and builds on the base that its recovery has just read: so an
//!   opening never leads to a base that it knows nothing of. The checkpoints of the epoch before it are there until two more
//!   were written.
//! - A base is a full checkpoint that a slot of the root has named.
//! - What the slots need is among the two bases: the newer slot's checkpoint builds on `last`, the older one's on `next`; or
//!   both slots name one checkpoint, which builds on `last`. What the checkpoint of the older slot names as its `next` may
//!   be gone: if the newer slot is lost, it counts for nothing.
//! - The differences from a base are together no longer than it is, but for the last of them and those that begin an epoch:
//!   writing checkpoints costs a small multiple of what has changed, and the tables that have changed since a base stay few.
//!
//! Rejected: one base, which two checkpoints then need; and one base in two copies, which costs as many bytes but needs a
//! rule for a crash between the copies, one for a copy that is damaged, and one for segments that hold just one of them.

use crate::ids::{FileId, LogPosition, TableId};
use crate::rules::Rule;
use std::collections::BTreeSet;

/// A full checkpoint of fewer bytes is written anew each time. Disks write whole pages, so a difference would save nothing;
/// and a checkpoint that builds on nothing can be read wherever it is found.
const MIN_BASE_BYTES: u64 = 4 << 10;

/// Where a checkpoint lies, and what proves that it is the one that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) at: LogPosition,
    pub(crate) frame_bytes: u32,
    /// Of the header of the frame: the checkpoints that build on it vouch for it.
    pub(crate) crc: u32,
}

/// A full checkpoint that others build on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) place: Place,
    /// Bytes of its INDEX section.
    pub(crate) bytes: u64,
    /// Bytes of the INDEX sections of all differences from it.
    pub(crate) difference_bytes: u64,
    /// Tables that were made, changed or dropped between it and the last checkpoint. Rows alone that are still open are no
    /// change.
    pub(crate) changed: BTreeSet<TableId>,
}

impl Base {
    /// A full checkpoint on which nothing builds yet.
    pub(crate) fn new(place: Place, bytes: u64) -> Self {
        Self {
            place,
            bytes,
            difference_bytes: 0,
            changed: BTreeSet::new(),
        }
    }

    fn is_used_up(&self) -> bool {
        self.difference_bytes >= self.bytes
    }
}

/// The earlier checkpoints that a checkpoint needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuildsOn {
    /// Nothing: it is a full one.
    Nothing,
    /// No base, and no other base is kept: the checkpoint goes into both slots of the root.
    Alone,
    /// The base of the last checkpoint.
    Last,
    /// The other base, in its turn.
    Next,
}

/// The bases of the last checkpoint and of the next one.
#[derive(Debug, Default)]
pub(crate) struct Bases {
    /// The base of the last checkpoint; the checkpoint itself if it is a full one.
    last: Option<Base>,
    /// The other base: the checkpoint before the last one builds on it, and the next one in turn.
    next: Option<Base>,
    /// Tables that have changed since the last checkpoint.
    changed: BTreeSet<TableId>,
}

impl Bases {
    /// Restores the bases that a checkpoint names.
    pub(crate) fn of_checkpoint(last: Base, next: Option<Base>) -> Self {
        Self {
            last: Some(last),
            next,
            changed: BTreeSet::new(),
        }
    }

    /// Notes that a table was made, changed or dropped.
    pub(crate) fn note_change(&mut self, table: TableId) {
        self.changed.insert(table);
    }

    /// Chooses the base of the next checkpoint. `begins_epoch`: it will be in both slots of the root, and somebody waits for
    /// the opening or the first commit; so a base that is used up is left to the next checkpoint in its turn.
    pub(crate) fn choose(&self, begins_epoch: bool) -> BuildsOn {
        let choice = match begins_epoch {
            true => BuildsOn::Last,
            false => BuildsOn::Next,
        };
        let is_of_use =
            |base: &&Base| base.bytes >= MIN_BASE_BYTES && (begins_epoch || !base.is_used_up());
        let base = self.base(choice).filter(is_of_use);
        base.map_or(BuildsOn::Nothing, |_| choice)
    }

    /// The base that a checkpoint builds on.
    pub(crate) fn base(&self, of: BuildsOn) -> Option<&Base> {
        match of {
            BuildsOn::Nothing | BuildsOn::Alone => None,
            BuildsOn::Last => self.last.as_ref(),
            BuildsOn::Next => self.next.as_ref(),
        }
    }

    /// The base whose turn it is after a checkpoint that builds on `of`.
    pub(crate) fn base_after(&self, of: BuildsOn) -> Option<&Base> {
        match of {
            BuildsOn::Alone => None,
            BuildsOn::Last => self.next.as_ref(),
            BuildsOn::Nothing | BuildsOn::Next => self.last.as_ref(),
        }
    }

    /// The tables that have changed since a base, but for rows that are open.
    pub(crate) fn changed_since(&self, base: &Base) -> BTreeSet<TableId> {
        base.changed.union(&self.changed).copied().collect()
    }

    /// Notes that a checkpoint was written at `own` and that the root names it.
    pub(crate) fn note_checkpoint(&mut self, own: Place, builds_on: BuildsOn, index_bytes: u64) {
        let changed = std::mem::take(&mut self.changed);
        for base in [&mut self.last, &mut self.next].into_iter().flatten() {
            base.changed.extend(&changed);
        }
        match builds_on {
            BuildsOn::Last => {}
            BuildsOn::Next => std::mem::swap(&mut self.last, &mut self.next),
            BuildsOn::Nothing => self.next = self.last.replace(Base::new(own, index_bytes)),
            BuildsOn::Alone => (self.last, self.next) = (Some(Base::new(own, index_bytes)), None),
        }
        if matches!(builds_on, BuildsOn::Last | BuildsOn::Next) {
            assert!(self.last.is_some(), "a difference has a base");
            let last = self.last.iter_mut();
            last.for_each(|base| {
                base.difference_bytes = base.difference_bytes.saturating_add(index_bytes)
            });
        }
        if !Rule::TwoBases.is_kept() {
            self.next.clone_from(&self.last);
        }
    }

    /// Forgets the base whose turn is next, as it may be gone: the next checkpoint is a full one, unless it begins an
    /// epoch. Returns whether there was one.
    pub(crate) fn forget_next(&mut self) -> bool {
        self.next.take().is_some()
    }

    /// Drops both bases: the next two checkpoints are full ones.
    pub(crate) fn forget(&mut self) {
        (self.last, self.next) = (None, None);
    }

    /// The first segment that holds a base.
    pub(crate) fn first_segment(&self) -> Option<FileId> {
        self.both().map(|base| base.place.at.segment).min()
    }

    /// The longest frame of a base.
    pub(crate) fn frame_bytes(&self) -> u32 {
        let frames = self.both().map(|base| base.place.frame_bytes);
        frames.max().unwrap_or(0)
    }

    /// The longest INDEX section of a base, an estimate of that of a full checkpoint.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.both().map(|base| base.bytes).max().unwrap_or(0)
    }

    fn both(&self) -> impl Iterator<Item = &Base> {
        self.last.iter().chain(&self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LogPosition;

    fn place(offset: u64) -> Place {
        let segment = FileId(1 + offset / 100);
        Place {
            at: LogPosition { segment, offset },
            frame_bytes: 64,
            crc: 7,
        }
    }

    fn offset(base: Option<&Base>) -> Option<u64> {
        base.map(|base| base.place.at.offset)
    }

    /// Writes checkpoints of so many bytes each, one after the other; returns what each of them builds on.
    fn write(bases: &mut Bases, bytes: &[u64]) -> Vec<u64> {
        let offsets = (1..).map(|n| n * 10);
        let written = offsets.zip(bytes).map(|(own, bytes)| {
            let choice = bases.choose(false);
            bases.note_checkpoint(place(own), choice, *bytes);
            offset(bases.base(BuildsOn::Last)).unwrap_or(0)
        });
        written.collect()
    }

    #[test]
    fn checkpoints_build_on_two_bases_in_turn() {
        let mut bases = Bases::default();
        let built_on = write(&mut bases, &[9_000, 9_000, 10, 10, 10, 10, 10]);
        assert_eq!(built_on, [10, 20, 10, 20, 10, 20, 10]);
        assert_eq!(bases.first_segment(), Some(FileId(1)));
    }

    #[test]
    fn a_base_is_renewed_when_its_differences_are_as_long() {
        let mut bases = Bases::default();
        // The first one is used up by 6,000 and 5,000, the second one is not by 6,000 and 10.
        let built_on = write(
            &mut bases,
            &[9_000, 9_000, 6_000, 6_000, 5_000, 10, 9_000, 10, 10],
        );
        assert_eq!(built_on, [10, 20, 10, 20, 10, 20, 70, 20, 70]);
    }

    #[test]
    fn a_small_checkpoint_is_no_base() {
        let mut bases = Bases::default();
        let built_on = write(&mut bases, &[4_095, 4_096, 4_096, 10, 10, 10]);
        assert_eq!(built_on, [10, 20, 30, 20, 30, 20]);
    }

    #[test]
    fn an_epoch_begins_on_the_base_that_was_read() {
        let mut bases = Bases::default();
        write(&mut bases, &[9_000, 9_000, 10]);
        let choice = bases.choose(true);
        assert_eq!(
            (choice, offset(bases.base(choice))),
            (BuildsOn::Last, Some(10))
        );
        assert_eq!(offset(bases.base_after(choice)), Some(20));
        bases.note_checkpoint(place(40), choice, 8_990);
        assert_eq!(offset(bases.base(bases.choose(false))), Some(20));
        // The first one is used up by now, which is left to the checkpoint whose turn it will be.
        assert_eq!(bases.choose(true), BuildsOn::Last);
        bases.note_checkpoint(place(50), bases.choose(false), 10);
        assert_eq!(bases.choose(false), BuildsOn::Nothing);
    }

    #[test]
    fn no_two_checkpoints_in_turn_share_a_base() {
        let mut dice = 7_u64;
        let mut bases = Bases::default();
        let mut draw = || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            dice >> 60
        };
        let mut before = None;
        for own in (10..20_000).step_by(10) {
            let begins_epoch = draw() == 0;
            let choice = match draw() {
                0 => BuildsOn::Nothing,
                1 => BuildsOn::Alone,
                _ => bases.choose(begins_epoch),
            };
            let after = offset(bases.base_after(choice));
            bases.note_checkpoint(place(own), choice, 1_000 * draw());
            let [last, next] = [BuildsOn::Last, BuildsOn::Next].map(|of| offset(bases.base(of)));
            assert!(last.is_some() && last != next && next == after);
            assert!(
                choice == BuildsOn::Last || last != before,
                "{own} builds on {last:?}"
            );
            before = last;
        }
    }

    #[test]
    fn a_table_counts_as_changed_until_its_base_is_renewed() {
        let mut bases = Bases::default();
        write(&mut bases, &[9_000, 9_000]);
        bases.note_change(TableId(1));
        write(&mut bases, &[10]);
        bases.note_change(TableId(2));
        let since = |bases: &Bases| {
            let base = bases.base(BuildsOn::Next).expect("a base");
            let changed = bases.changed_since(base).into_iter();
            changed.map(|table| table.0).collect::<Vec<_>>()
        };
        assert_eq!(since(&bases), [1, 2]);
        write(&mut bases, &[10]);
        assert_eq!(since(&bases), [1, 2]);
        // A full one in the place of the base whose turn it is.
        bases.note_checkpoint(place(90), BuildsOn::Nothing, 9_000);
        bases.note_change(TableId(3));
        assert_eq!(since(&bases), [1, 2, 3]);
        write(&mut bases, &[10]);
        assert_eq!(since(&bases), [3]);
    }
}
