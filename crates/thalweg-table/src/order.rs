//! Putting rows in key order, and cutting them into blocks.
//!
//! Invariants: sorting is stable, so rows of equal keys keep the order they came in; rows that are in order already are
//! neither copied nor looked at more than once; cuts are balanced, so that no block is much less than half full unless a
//! split or the end of late rows makes it so, and lie between pages where a block has several: only the last page of a
//! run of blocks is short, and short pages take twice the time to read.

use crate::time::Split;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_buffer::ScalarBuffer;
use arrow_select::take::take;
use std::ops::Range;
use std::sync::Arc;
use thalweg_codec::PAGE_ROWS;
use thalweg_kernel::{Error, ErrorKind, Result};

/// Keys compared at once: enough for vector instructions, few enough to stop early.
const STRIDE: usize = 1_024;

/// Whether keys never fall.
pub(crate) fn is_ascending(keys: &[i64]) -> bool {
    let mut start = 0;
    while start + 1 < keys.len() {
        let end = (start + STRIDE).min(keys.len() - 1);
        let falls = keys[start..end]
            .iter()
            .zip(&keys[start + 1..=end])
            .fold(false, |falls, (a, b)| falls | (a > b));
        if falls {
            return false;
        }
        start = end;
    }
    true
}

/// The positions of `keys` in stable ascending order; `None` when they are in it already.
///
/// Sensor data is nearly sorted: rows that continue the rising front stay where they are, only the others are sorted,
/// and the two are merged. Data without a rising front costs one sort of everything.
pub(crate) fn ascending_positions(keys: &[i64]) -> Option<Vec<u32>> {
    if is_ascending(keys) {
        return None;
    }
    let mut front: Vec<u32> = Vec::with_capacity(keys.len());
    // With their keys: sorting panics where keys change meanwhile, as those of an array that another thread of the caller
    // writes to.
    let mut behind: Vec<(i64, u32)> = Vec::new();
    let mut highest = i64::MIN;
    for (position, key) in (0..).zip(keys) {
        if *key >= highest {
            highest = *key;
            front.push(position);
        } else {
            behind.push((*key, position));
        }
    }
    behind.sort_unstable();
    let behind: Vec<u32> = behind.into_iter().map(|(_, position)| position).collect();
    Some(merge(&front, &behind, |position| {
        (keys[position as usize], position)
    }))
}

/// Merges two lists that are in order by `rank`, whose values differ.
fn merge(a: &[u32], b: &[u32], rank: impl Fn(u32) -> (i64, u32)) -> Vec<u32> {
    let mut merged = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a, b);
    while let (Some(first), Some(second)) = (a.first(), b.first()) {
        // Runs of the front are long: find where the other list comes in.
        let run = if rank(*first) < rank(*second) {
            &mut a
        } else {
            &mut b
        };
        let limit = rank(*first).max(rank(*second));
        let length = gallop(run, |position| rank(*position) < limit);
        merged.extend_from_slice(&run[..length]);
        *run = &run[length..];
    }
    merged.extend_from_slice(a);
    merged.extend_from_slice(b);
    merged
}

/// How many items at the front of `list` satisfy `holds`, which must be true before it is false: few steps when the
/// answer is small, logarithmic otherwise.
pub(crate) fn gallop<T>(list: &[T], holds: impl Fn(&T) -> bool) -> usize {
    let mut step = 1;
    while step <= list.len() && holds(&list[step - 1]) {
        step *= 2;
    }
    let known = step / 2;
    known + list[known..list.len().min(step)].partition_point(holds)
}

/// A batch in ascending key order, with its keys.
pub(crate) fn sorted_batch(
    batch: RecordBatch,
    keys: ScalarBuffer<i64>,
) -> Result<(RecordBatch, ScalarBuffer<i64>)> {
    if u32::try_from(batch.num_rows()).is_err() {
        let message = format!(
            "a batch of {} rows is too large; append at most {} rows per batch",
            batch.num_rows(),
            u32::MAX
        );
        return Err(Error::new(ErrorKind::Limit, message));
    }
    let Some(positions) = ascending_positions(&keys) else {
        return Ok((batch, keys));
    };
    let sorted_keys = positions.iter().map(|at| keys[*at as usize]).collect();
    Ok((take_rows(&batch, positions)?, sorted_keys))
}

/// The rows at `positions`, in their order.
pub(crate) fn take_rows(batch: &RecordBatch, positions: Vec<u32>) -> Result<RecordBatch> {
    let rows = positions.len();
    let positions = UInt32Array::from(positions);
    let taken = |column: &ArrayRef| take(column, &positions, None);
    let columns = batch.columns().iter().map(taken).collect::<Result<_, _>>();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    columns
        .and_then(|columns| {
            RecordBatch::try_new_with_options(Arc::clone(batch.schema_ref()), columns, &options)
        })
        .map_err(|e| Error::with_source(ErrorKind::Limit, format!("sorting rows: {e}"), e))
}

/// Where sorted rows are cut into blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cutter {
    /// Rows of a full block.
    pub(crate) block_rows: usize,
    /// Regular cuts of the key.
    pub(crate) split: Option<Split>,
    /// Rows below this key are late: an earlier commit reached it.
    pub(crate) high_key: Option<i64>,
}

impl Cutter {
    /// The rows of each block, in order. Nothing for no rows.
    pub(crate) fn blocks(&self, keys: &[i64]) -> Vec<Range<usize>> {
        let mut blocks = Vec::with_capacity(keys.len() / self.block_rows.max(1) + 2);
        let late_rows = self.late_rows(keys);
        for part in [0..late_rows, late_rows..keys.len()] {
            let base = part.start;
            let mut start = 0;
            let ends = match self.split {
                Some(split) => split.ends(&keys[part]).collect(),
                None => vec![part.len()],
            };
            for end in ends {
                self.balance(base + start..base + end, &mut blocks);
                start = end;
            }
        }
        blocks
    }

    /// Late rows at the front that are better off in blocks of their own. A block that held both would reach over all
    /// blocks between them, and a scan of any of those would have to read it.
    fn late_rows(&self, keys: &[i64]) -> usize {
        let Some(high_key) = self.high_key else {
            return 0;
        };
        let late_rows = keys.partition_point(|key| *key < high_key);
        let rows_in_time = keys.len() - late_rows;
        if late_rows == 0 || rows_in_time == 0 {
            return late_rows;
        }
        // Two clocks a little apart: a short block of its own would cost more than it saves.
        let last = keys[late_rows + rows_in_time.min(self.block_rows) - 1];
        let span = last.abs_diff(keys[late_rows]);
        let delay = keys[late_rows].abs_diff(keys[0]);
        if late_rows < self.block_rows / 4 && delay <= span {
            0
        } else {
            late_rows
        }
    }

    /// The fewest blocks, of about equal size: 10,000 rows at 4,096 become 3,072, 4,096 and 2,832, not two full blocks
    /// and a rest.
    fn balance(&self, rows: Range<usize>, blocks: &mut Vec<Range<usize>>) {
        let block_rows = self.block_rows.max(1);
        let by_pages = block_rows >= 2 * PAGE_ROWS && block_rows.is_multiple_of(PAGE_ROWS);
        let unit = if by_pages { PAGE_ROWS } else { 1 };
        let count = rows.len().div_ceil(block_rows);
        let mut start = 0;
        for number in 1..=count {
            let left = count - number;
            let end = if left == 0 {
                rows.len()
            } else {
                // The whole unit nearest to the even cut that leaves no more than fits into the blocks after it.
                let even = u128::from(rows.len() as u64) * number as u128 / count as u128;
                let even = usize::try_from(even).unwrap_or(rows.len());
                let least = rows.len() - left * block_rows;
                ((even + unit / 2) / unit * unit).max(least.div_ceil(unit) * unit)
            };
            blocks.push(rows.start + start..rows.start + end);
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn positions(keys: &[i64]) -> Vec<u32> {
        ascending_positions(keys).unwrap_or_else(|| (0..).take(keys.len()).collect())
    }

    proptest! {
        #[test]
        fn sorting_is_a_stable_sort(keys in prop::collection::vec(-5_i64..40, 0..300), mostly_sorted: bool) {
            let mut keys = keys;
            if mostly_sorted {
                let cut = keys.len() * 9 / 10;
                keys[..cut].sort_unstable();
            }
            let mut expected: Vec<u32> = (0..).take(keys.len()).collect();
            expected.sort_by_key(|at| keys[*at as usize]);
            prop_assert_eq!(is_ascending(&keys), keys.is_sorted());
            prop_assert_eq!(positions(&keys), expected);
        }

        #[test]
        fn galloping_finds_the_partition_point(length in 0_usize..200, at in 0_usize..250) {
            let list: Vec<usize> = (0..length).collect();
            prop_assert_eq!(gallop(&list, |item| *item < at), at.min(length));
        }

        #[test]
        fn cuts_cover_all_rows_and_respect_size_and_splits(
            steps in prop::collection::vec(0_i64..4, 0..500),
            block_rows in prop_oneof![1_usize..80, (1..4_usize).prop_map(|pages| pages * PAGE_ROWS)],
            repeat in 1_usize..60,
            every in prop::option::of(1_i64..200),
            high_key in prop::option::of(-10_i64..800),
        ) {
            let keys: Vec<i64> = steps.repeat(repeat).iter().scan(0, |key, step| { *key += step; Some(*key) }).collect();
            let split = every.map(|every| Split::new(every, 3).unwrap());
            let blocks = Cutter { block_rows, split, high_key }.blocks(&keys);
            let mut start = 0;
            for block in &blocks {
                prop_assert_eq!(block.start, start);
                prop_assert!(!block.is_empty() && block.len() <= block_rows);
                if let Some(split) = split {
                    prop_assert_eq!(split.split_of(keys[block.start]), split.split_of(keys[block.end - 1]));
                }
                start = block.end;
            }
            prop_assert_eq!(start, keys.len());
            if split.is_none() && high_key.is_none() {
                let unit = if block_rows > PAGE_ROWS { PAGE_ROWS } else { 0 };
                prop_assert!(blocks.iter().all(|block| 2 * block.len() + unit >= block_rows.min(keys.len())));
                if block_rows > PAGE_ROWS {
                    prop_assert!(blocks.iter().all(|block| block.start % PAGE_ROWS == 0));
                }
            }
        }
    }

    #[test]
    fn blocks_are_balanced() {
        let keys: Vec<i64> = (0..10_000).collect();
        let cutter = Cutter {
            block_rows: 4_096,
            split: None,
            high_key: None,
        };
        let sizes: Vec<usize> = cutter.blocks(&keys).iter().map(Range::len).collect();
        assert_eq!(sizes, [3_072, 4_096, 2_832]);
        let cutter = Cutter {
            block_rows: 4_000,
            ..cutter
        };
        let sizes: Vec<usize> = cutter.blocks(&keys).iter().map(Range::len).collect();
        assert_eq!(sizes, [3_333, 3_333, 3_334]);
    }

    #[test]
    fn late_rows_get_blocks_of_their_own_unless_they_are_few_and_hardly_late() {
        let cutter = Cutter {
            block_rows: 100,
            split: None,
            high_key: Some(1_000),
        };
        let in_time: Vec<i64> = (1_000..1_100).collect();
        let with = |late: &[i64]| {
            let keys: Vec<i64> = late.iter().chain(&in_time).copied().collect();
            cutter.blocks(&keys)
        };
        assert_eq!(with(&[10]), [0..1, 1..101]);
        assert_eq!(with(&[990, 995]), [0..51, 51..102]);
    }
}
