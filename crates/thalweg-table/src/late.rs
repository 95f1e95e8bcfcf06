//! Which rows of a table came late.
//!
//! Invariants: all rows of a block are late if a block that came before it begins at or below its largest key and ends above its
//! smallest one; all open rows of a commit are late if a row with a key above their smallest one came before them, deleted or not.

use crate::arrival::Arrival;
use std::collections::BTreeMap;
use thalweg_kernel::OpenRows;
use thalweg_kernel::index::Entry;

/// Rows that came together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) keys: (i64, i64),
    pub(crate) arrival: Arrival,
    pub(crate) rows: u64,
}

impl Came {
    /// The rows of a block, deleted ones too.
    pub(crate) fn of_block(block: &Entry) -> Self {
        Self {
            keys: (block.key_min, block.key_max),
            arrival: block.arrival(),
            rows: block.rows,
        }
    }

    /// Rows of one commit that are in no block yet.
    pub(crate) fn of_open_rows(open: &OpenRows) -> Self {
        Self {
            keys: (open.part.key_min, open.part.key_max),
            arrival: Arrival {
                commit: open.commit,
                ordinal: 0,
            },
            rows: open.part.rows.into(),
        }
    }
}

/// The late rows of blocks, in any order.
pub(crate) fn late_rows(mut came: Vec<Came>) -> u64 {
    came.sort_unstable_by_key(|came| came.arrival);
    let mut earlier = Keys::default();
    let late = came.iter().filter(|came| earlier.add(came.keys));
    late.map(|came| came.rows).sum()
}

/// The late rows among open ones, which are given in the order of their arrival, each with the largest key of the blocks that had
/// come before.
pub(crate) fn late_open_rows(open: impl IntoIterator<Item = (Came, Option<i64>)>) -> u64 {
    let mut high_key_of_open = None;
    let late = open.into_iter().filter(|(came, high_key)| {
        let (first, last) = came.keys;
        let is_late = Some(first) < (*high_key).max(high_key_of_open);
        high_key_of_open = high_key_of_open.max(Some(last));
        is_late
    });
    late.map(|(came, _)| came.rows).sum()
}

/// Estimates how many rows of blocks, given in any order, came late: of each block the share of its range of keys that blocks which
/// had come before cover.
pub(crate) fn overlapping_rows(mut came: Vec<Came>) -> u64 {
    came.sort_unstable_by_key(|came| came.arrival);
    let mut earlier = Keys::default();
    let late = came.iter().map(|came| {
        let (first, last) = came.keys;
        let part = earlier.part_of(came.keys);
        let reaches_in = earlier.add(came.keys);
        match last.abs_diff(first) {
            0 if reaches_in => came.rows,
            0 => 0,
            width => {
                let rows = u128::from(came.rows) * u128::from(part) / u128::from(width);
                let rows = u64::try_from(rows).unwrap_or(came.rows);
                // One row far ahead of the others makes a wide range of few rows.
                rows.clamp(u64::from(reaches_in), came.rows.max(1))
            }
        }
    });
    late.sum()
}

/// Ranges of keys that do not overlap: the last key of each by its first.
#[derive(Debug, Default)]
struct Keys(BTreeMap<i64, i64>);

impl Keys {
    /// How much of a range of keys they have.
    fn part_of(&self, (first, last): (i64, i64)) -> u64 {
        // They do not overlap: of those that reach into the range, all but the first begin within it.
        let before = self.0.range(..first).next_back();
        let within = self.0.range(first..=last);
        before
            .into_iter()
            .chain(within)
            .map(|(start, end)| (*start.max(&first), *end.min(&last)))
            .filter(|(start, end)| start < end)
            .map(|(start, end)| end.abs_diff(start))
            .sum()
    }

    /// Adds keys and says whether they reach into those that were added earlier.
    fn add(&mut self, (key_min, key_max): (i64, i64)) -> bool {
        let (mut first, mut last) = (key_min, key_max);
        let mut comes_before = false;
        while let Some((&start, &end)) = self.0.range(..=last).next_back() {
            if end < first {
                break;
            }
            comes_before |= end > key_min;
            (first, last) = (first.min(start), last.max(end));
            self.0.remove(&start);
        }
        self.0.insert(first, last);
        comes_before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_kernel::CommitNo;

    /// Ten rows of a commit with these keys.
    fn came(keys: (i64, i64), commit: u64) -> Came {
        Came {
            keys,
            arrival: Arrival {
                commit: CommitNo(commit),
                ordinal: 0,
            },
            rows: 10,
        }
    }

    fn late(blocks: &[(i64, i64, u64)]) -> u64 {
        let blocks = blocks.iter();
        late_rows(
            blocks
                .map(|(first, last, commit)| came((*first, *last), *commit))
                .collect(),
        )
    }

    #[test]
    fn open_rows_are_late_after_any_larger_key() {
        // The second number is the largest key of the blocks that had come before. Rows are late after a larger key of these or of
        // other open rows, not after an equal one.
        let late = |rows: &[(i64, Option<i64>)]| {
            let rows = (1..).zip(rows);
            late_open_rows(rows.map(|(commit, (key, high))| (came((*key, *key), commit), *high)))
        };
        assert_eq!(late(&[(40, None), (41, Some(39)), (41, Some(41))]), 0);
        assert_eq!(late(&[(5, Some(39)), (20, Some(39))]), 20);
        assert_eq!(late(&[(41, None), (40, None), (41, Some(60))]), 20);
    }

    #[test]
    fn the_rows_of_an_overlap_are_counted_by_keys() {
        let rows = |blocks: &[(i64, i64)]| {
            let blocks = (1..).zip(blocks);
            overlapping_rows(blocks.map(|(commit, keys)| came(*keys, commit)).collect())
        };
        assert_eq!(rows(&[(0, 100), (100, 200), (200, 300)]), 0);
        assert_eq!(rows(&[(0, 100), (50, 150)]), 5);
        assert_eq!(rows(&[(0, 100), (200, 300), (50, 250)]), 5);
        assert_eq!(rows(&[(0, 100), (50, 50), (100, 100)]), 10);
        assert_eq!(rows(&[(i64::MIN, i64::MAX), (i64::MIN, i64::MAX)]), 10);
    }

    #[test]
    fn of_blocks_that_overlap_the_later_ones_are_late() {
        assert_eq!(late(&[(0, 9, 1), (10, 20, 2), (20, 30, 3)]), 0);
        assert_eq!(late(&[(0, 9, 1), (10, 20, 3), (20, 30, 2)]), 10);
        let wide_apart = [
            (0, 9, 1),
            (10, 19, 1),
            (20, 29, 1),
            (30, 39, 1),
            (12, 25, 7),
        ];
        assert_eq!(late(&wide_apart), 10);
        let wide = [
            (0, 100, 1),
            (10, 19, 2),
            (30, 39, 3),
            (50, 150, 4),
            (150, 160, 5),
        ];
        assert_eq!(late(&wide), 30);
    }
}
