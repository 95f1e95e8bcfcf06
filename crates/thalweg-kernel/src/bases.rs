//! The two full checkpoints that differences build on, and which tables have changed since each.
//!
//! Invariants
//! - A checkpoint never builds on the base of the checkpoint before it. So the two slots of the root share no byte of a
//!   checkpoint, and damage to any one frame leaves one slot whole, with the log behind it.
//! - A base is a full checkpoint that a slot of the root has named.
//! - What the slots need is among the two bases: the newer slot's checkpoint builds on `last`, the older one's on `next`; or
//!   both slots name one checkpoint, which builds on `last`.
//! - The differences from a base are together no longer than it is, but for the last of them: writing checkpoints costs a
//!   small multiple of what has changed, and the tables that have changed since a base stay few.
//!
//! Rejected: one base, which two checkpoints then need; and one base in two copies, which costs as many bytes but needs a
//! rule for a crash between the copies, one for a copy that is damaged, and one for segments that hold just one of them.

use crate::checkpoint::Place;
use crate::ids::{FileId, TableId};
use crate::rules::Rule;
use std::collections::BTreeSet;

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

/// The bases of the last checkpoint and of the next one.
#[derive(Debug, Default)]
pub(crate) struct Bases {
    /// What the last checkpoint builds on: itself if it is a full one.
    last: Option<Base>,
    /// What the one before it builds on; the next one will, in its turn.
    next: Option<Base>,
    /// Tables that have changed since the last checkpoint.
    changed: BTreeSet<TableId>,
}

impl Bases {
    /// Those that a checkpoint which was read names.
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

    /// What the next checkpoint builds on; `None`: it is a full one.
    pub(crate) fn of_next(&self) -> Option<&Base> {
        self.next.as_ref().filter(|base| !base.is_used_up())
    }

    /// What the last checkpoint builds on.
    pub(crate) fn of_last(&self) -> Option<&Base> {
        self.last.as_ref()
    }

    /// The tables that have changed since a base, but for rows that are open.
    pub(crate) fn changed_since(&self, base: &Base) -> BTreeSet<TableId> {
        base.changed.union(&self.changed).copied().collect()
    }

    /// A checkpoint was written at `own` and is named by the root. `is_full`: else it builds on the base whose turn it was.
    pub(crate) fn note_checkpoint(&mut self, own: Place, is_full: bool, index_bytes: u64) {
        let changed = std::mem::take(&mut self.changed);
        for base in [&mut self.last, &mut self.next].into_iter().flatten() {
            base.changed.extend(&changed);
        }
        let built_on = match self.next.take() {
            Some(mut base) if !is_full => {
                base.difference_bytes = base.difference_bytes.saturating_add(index_bytes);
                base
            }
            before => {
                assert!(is_full, "a difference from {before:?}");
                Base::new(own, index_bytes)
            }
        };
        self.next = match Rule::TwoBases.is_kept() {
            true => self.last.take(),
            false => Some(built_on.clone()),
        };
        self.last = Some(built_on);
    }

    /// Nothing builds on what there is: the next two checkpoints are full ones.
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

    /// The longest INDEX section of a base: about what a full checkpoint takes.
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

    /// Writes checkpoints of so many bytes each, one after the other; returns what each of them builds on.
    fn write(bases: &mut Bases, bytes: &[u64]) -> Vec<u64> {
        let offsets = (1..).map(|n| n * 10);
        let written = offsets.zip(bytes).map(|(offset, bytes)| {
            let base = bases.of_next().map(|base| base.place.at.offset);
            bases.note_checkpoint(place(offset), base.is_none(), *bytes);
            base.unwrap_or(offset)
        });
        written.collect()
    }

    #[test]
    fn checkpoints_build_on_two_bases_in_turn() {
        let mut bases = Bases::default();
        let built_on = write(&mut bases, &[100, 100, 10, 10, 10, 10, 10]);
        assert_eq!(built_on, [10, 20, 10, 20, 10, 20, 10]);
        assert_eq!(bases.first_segment(), Some(FileId(1)));
    }

    #[test]
    fn a_base_is_renewed_when_its_differences_are_as_long() {
        let mut bases = Bases::default();
        // The first one is used up by 60 and 50, the second one is not by 60 and 10.
        let built_on = write(&mut bases, &[100, 100, 60, 60, 50, 10, 100, 10, 10]);
        assert_eq!(built_on, [10, 20, 10, 20, 10, 20, 70, 20, 70]);
        assert_eq!(bases.first_segment(), Some(FileId(1)));
    }

    #[test]
    fn no_two_checkpoints_in_turn_share_a_base() {
        let mut dice = 7_u64;
        let mut bases = Bases::default();
        let mut draw = || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            dice >> 60
        };
        let mut before = 0;
        for offset in (10..20_000).step_by(10) {
            let forced = draw() == 0;
            let base = bases.of_next().filter(|_| !forced);
            let base = base.map(|base| base.place.at.offset);
            bases.note_checkpoint(place(offset), base.is_none(), draw());
            let built_on = base.unwrap_or(offset);
            assert_ne!(built_on, before);
            assert_eq!(bases.of_last().map(|b| b.place.at.offset), Some(built_on));
            before = built_on;
        }
    }

    #[test]
    fn a_table_counts_as_changed_until_its_base_is_renewed() {
        let mut bases = Bases::default();
        write(&mut bases, &[100, 100]);
        bases.note_change(TableId(1));
        write(&mut bases, &[10]);
        bases.note_change(TableId(2));
        let since = |bases: &Bases| {
            let base = bases.of_next().expect("a base");
            let changed = bases.changed_since(base).into_iter();
            changed.map(|table| table.0).collect::<Vec<_>>()
        };
        assert_eq!(since(&bases), [1, 2]);
        write(&mut bases, &[10]);
        assert_eq!(since(&bases), [1, 2]);
        // A full one in the place of the base whose turn it is.
        bases.note_checkpoint(place(90), true, 100);
        bases.note_change(TableId(3));
        assert_eq!(since(&bases), [1, 2, 3]);
        write(&mut bases, &[10]);
        assert_eq!(since(&bases), [3]);
    }
}
