//! The rules by which jobs put rows in order without being asked.
//!
//! Invariants: what a job writes for a row that came late is bounded, and so is how often a row is written at all: a job merges no
//! blocks for which it would have to copy more than it merges, because of other blocks in their files, and joins no blocks where
//! all but the largest together are smaller than the largest. So what is put off is due again once more has come. Only what has
//! lain for an hour is merged whatever is to be copied for it.
//!
//! Rejected: merging each overlap as soon as it is there. A table that gets one late row a second would have a file of 256 MiB
//! written each second.

use crate::late::{Came, overlapping_rows};
use thalweg_kernel::CommitNo;
use thalweg_kernel::index::Entry;

/// Blocks that overlap are merged where that writes at most so many rows for each one that came late: at once, ...
const ROWS_PER_LATE_ROW: u64 = 20;
/// ... once they have settled, ...
const SETTLED_ROWS_PER_LATE_ROW: u64 = 200;
/// ... and once they have lain for long.
const LONG_SETTLED_ROWS_PER_LATE_ROW: u64 = 10_000;
/// Where so many lie over one key, some of them are merged with each other at once.
pub(super) const DEEP_BLOCKS: u64 = 8;
/// Number of short neighbours that is due at once, ...
const MANY_SHORT_BLOCKS: usize = 8;
/// ... or as many as together have the rows of a full block, divided by this.
const FULL_PART: u64 = 2;
/// Number of settled short neighbours that is due. Any number is, once they have lain for long.
const SETTLED_SHORT_BLOCKS: usize = 4;
/// Number of small files that are due to be one.
const MANY_SMALL_FILES: usize = 8;

/// The commits by which it is known for how long rows have lain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// Rows of this commit and those before have lain for some time.
    pub(crate) settled: CommitNo,
    /// Rows of this commit and those before have lain for long.
    pub(crate) long_settled: CommitNo,
}

/// For how long rows have lain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Fresh,
    Settled,
    /// Those of commits up to this one have lain for long.
    LongSettled(CommitNo),
}

impl Due {
    /// The stages, each with the last commit of the rows that it is about; `until` is the last of all.
    pub(super) fn stages(self, until: CommitNo) -> [(CommitNo, Stage); 3] {
        [
            (until, Stage::Fresh),
            (self.settled.min(until), Stage::Settled),
            // All that has settled is merged along with what has lain for long: else each block would be merged by itself, as its
            // hour comes.
            (
                self.settled.min(until),
                Stage::LongSettled(self.long_settled),
            ),
        ]
    }
}

impl Stage {
    /// Whether blocks that overlap are to be merged: `work` is the cost of that, `copied` that of copying the other blocks of their
    /// files.
    pub(super) fn merges(self, blocks: &[&Entry], work: u64, copied: u64) -> bool {
        let (most, may_copy) = match self {
            Self::Fresh => (ROWS_PER_LATE_ROW, work),
            Self::Settled => (SETTLED_ROWS_PER_LATE_ROW, work),
            Self::LongSettled(_) => (LONG_SETTLED_ROWS_PER_LATE_ROW, u64::MAX),
        };
        let has_lain = |block: &&&Entry| match self {
            Self::LongSettled(until) => block.first_commit <= until,
            _ => true,
        };
        let blocks = blocks.iter().filter(has_lain);
        let came = blocks.map(|block| Came::of_block(block));
        let late_rows = overlapping_rows(came.collect());
        copied <= may_copy && late_rows.saturating_mul(most) >= work + copied
    }

    /// Whether short neighbours, where a block has room for so many rows, are to become one block.
    pub(super) fn packs(self, blocks: &[Entry], max_rows: u64) -> bool {
        let rows: u64 = blocks.iter().map(|block| block.rows).sum();
        let largest = blocks.iter().map(|block| block.rows).max().unwrap_or(0);
        let is_worth_it = rows - largest >= largest;
        let is_much = match self {
            Self::Fresh => {
                blocks.len() >= MANY_SHORT_BLOCKS || rows.saturating_mul(FULL_PART) >= max_rows
            }
            Self::Settled => blocks.len() >= SETTLED_SHORT_BLOCKS,
            Self::LongSettled(until) => blocks.iter().all(|block| block.first_commit <= until),
        };
        is_worth_it && is_much
    }
}

/// Of files of these sizes, in any order, how many of the smallest are to be one file; 0 for none.
pub(super) fn joined_files(bytes: &mut [u64]) -> usize {
    bytes.sort_unstable();
    let mut count = bytes.len();
    while count >= MANY_SMALL_FILES {
        let (others, largest) = (&bytes[..count - 1], bytes[count - 1]);
        if others.iter().sum::<u64>() >= largest {
            return count;
        }
        count -= 1;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of (first key, last key, rows), each of a commit of its own.
    fn blocks(of: &[(i64, i64, u64)]) -> Vec<Entry> {
        let entry = |(commit, (key_min, key_max, rows)): (u64, &(i64, i64, u64))| Entry {
            sorted: true,
            rows: *rows,
            blocks: 1,
            key_min: *key_min,
            key_max: *key_max,
            commit_min: CommitNo(commit),
            commit_max: CommitNo(commit),
            first_commit: CommitNo(commit),
            ..Entry::unknown()
        };
        let mut blocks: Vec<Entry> = (1..).zip(of).map(entry).collect();
        blocks.sort_by_key(Entry::key);
        blocks
    }

    const LONG: Stage = Stage::LongSettled(CommitNo(u64::MAX));

    fn merges(stage: Stage, of: &[(i64, i64, u64)], copied: u64) -> bool {
        let blocks = blocks(of);
        let work = blocks.iter().map(|block| block.rows).sum();
        stage.merges(&blocks.iter().collect::<Vec<_>>(), work, copied)
    }

    #[test]
    fn a_twentieth_of_late_rows_is_due_at_once_and_fewer_later() {
        // 49 of 1,000 rows, then 50 of 1,000.
        assert!(!merges(Stage::Fresh, &[(0, 100, 951), (10, 20, 49)], 0));
        assert!(merges(Stage::Settled, &[(0, 100, 951), (10, 20, 49)], 0));
        assert!(merges(Stage::Fresh, &[(0, 100, 950), (10, 20, 50)], 0));
        assert!(!merges(Stage::Settled, &[(0, 100, 996), (10, 20, 4)], 0));
        assert!(merges(LONG, &[(0, 100, 996), (10, 20, 4)], 0));
        assert!(!merges(LONG, &[(0, 100, 10_000), (10, 10, 1)], 0));
        // A block that begins a little before the other one ends has about as few late rows.
        assert!(!merges(
            Stage::Fresh,
            &[(0, 1_000, 4_096), (990, 2_000, 4_096)],
            0
        ));
        assert!(merges(
            Stage::Fresh,
            &[(0, 1_000, 4_096), (800, 2_000, 4_096)],
            0
        ));
    }

    #[test]
    fn no_more_is_copied_than_merged_unless_it_has_lain_for_long() {
        let late = [(0, 100, 500), (10, 20, 500)];
        assert!(merges(Stage::Fresh, &late, 1_000));
        assert!(!merges(Stage::Fresh, &late, 1_001));
        assert!(!merges(Stage::Settled, &late, 1_001));
        assert!(merges(LONG, &late, 1_001));
    }

    #[test]
    fn short_blocks_are_due_where_they_double_the_largest_of_them() {
        let packs = |stage: Stage, rows: &[u64]| {
            let keys = (0..)
                .zip(rows)
                .map(|(at, rows)| (10 * at, 10 * at + 9, *rows));
            stage.packs(&blocks(&keys.collect::<Vec<_>>()), 1_000)
        };
        assert!(packs(Stage::Fresh, &[250, 250]), "half a block");
        assert!(
            !packs(Stage::Fresh, &[400, 100]),
            "a large one for a small one"
        );
        assert!(packs(Stage::Fresh, &[10; 8]) && !packs(Stage::Fresh, &[10; 7]));
        assert!(packs(Stage::Settled, &[10; 4]) && !packs(Stage::Settled, &[10; 3]));
        assert!(packs(LONG, &[10; 3]) && packs(LONG, &[10, 20, 30]));
        assert!(!packs(LONG, &[10, 20, 31]));
    }

    #[test]
    fn small_files_are_joined_where_there_are_many_of_about_one_size() {
        assert_eq!(joined_files(&mut [1; 7]), 0);
        assert_eq!(joined_files(&mut [1; 9]), 9);
        assert_eq!(joined_files(&mut [100, 1, 1, 1, 1, 1, 1, 1, 1]), 8);
        assert_eq!(joined_files(&mut [100, 50, 25, 12, 6, 3, 1, 1]), 0);
    }
}
