//! Which rows have their entries in an index: ranges of order keys, each up to a commit.
//!
//! Invariants: ranges ascend and are disjoint; neighbours with the same commit are one; there are at most
//! [`MAX_RANGES`] after each section of a commit ([`Coverage::end_section`]).

use crate::fields::{PutFields, len_u32};
use crate::ids::CommitNo;
use crate::wire::{Fault, Reader};

/// Most ranges of one order: the shortest are given up, for less covered is never wrong.
pub const MAX_RANGES: usize = 1_024;

/// All blocks of a range are covered, whatever commits they have.
pub const EVERY_COMMIT: CommitNo = CommitNo(u64::MAX);

pub(super) const RANGE_BYTES: usize = 24;

/// Keys whose rows are covered in blocks of commits up to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoverageRange {
    /// The smallest key.
    pub key_min: i64,
    /// The largest key.
    pub key_max: i64,
    /// The commit.
    pub commit: CommitNo,
}

/// The rows that an index covers, by ranges of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    ranges: Vec<CoverageRange>,
}

impl CoverageRange {
    /// All keys, up to a commit.
    #[must_use]
    pub const fn of_all(commit: CommitNo) -> Self {
        Self {
            key_min: i64::MIN,
            key_max: i64::MAX,
            commit,
        }
    }

    fn keys(&self) -> u128 {
        u128::from(self.key_max.abs_diff(self.key_min)) + 1
    }

    /// The part of it in a range of keys.
    fn within(&self, key_min: i64, key_max: i64) -> Option<Self> {
        let (key_min, key_max) = (self.key_min.max(key_min), self.key_max.min(key_max));
        (key_min <= key_max).then_some(Self {
            key_min,
            key_max,
            ..*self
        })
    }

    /// The parts of it before and after a range of keys.
    fn around(&self, key_min: i64, key_max: i64) -> impl Iterator<Item = Self> + use<> {
        let before = key_min
            .checked_sub(1)
            .and_then(|end| self.within(i64::MIN, end));
        let behind = key_max
            .checked_add(1)
            .and_then(|start| self.within(start, i64::MAX));
        before.into_iter().chain(behind)
    }
}

impl Coverage {
    /// All keys and commits: of an order that is made with its table.
    #[must_use]
    pub fn of_all() -> Self {
        let ranges = vec![CoverageRange::of_all(EVERY_COMMIT)];
        Self { ranges }
    }

    /// The ranges, ascending.
    #[must_use]
    pub fn ranges(&self) -> &[CoverageRange] {
        &self.ranges
    }

    /// Whether each row of a block has its entries: all keys are covered up to its last commit.
    #[must_use]
    pub fn covers(&self, key_min: i64, key_max: i64, last_commit: CommitNo) -> bool {
        let first = self.ranges.partition_point(|range| range.key_max < key_min);
        let mut next = key_min;
        for range in &self.ranges[first..] {
            if range.key_min > next || range.commit < last_commit {
                return false;
            }
            if range.key_max >= key_max {
                return true;
            }
            next = range.key_max + 1;
        }
        false
    }

    /// Takes in that an item came without its entries: its keys are covered up to the commit before its first one at most.
    pub fn lower(&mut self, key_min: i64, key_max: i64, first_commit: CommitNo) {
        let before = CommitNo(first_commit.0.saturating_sub(1));
        let lowered = |range: &CoverageRange| CoverageRange {
            commit: range.commit.min(before),
            ..*range
        };
        self.change(key_min, key_max, |range| Some(lowered(range)));
    }

    /// Takes in that keys are covered no longer.
    pub fn remove(&mut self, key_min: i64, key_max: i64) {
        self.change(key_min, key_max, |_| None);
    }

    /// Takes in ranges that are complete; where they overlap others the higher commit stays.
    pub fn add(&mut self, added: &[CoverageRange]) {
        for new in added {
            let mut gaps = vec![*new];
            for range in &self.ranges {
                let left = |gap: &CoverageRange| gap.around(range.key_min, range.key_max);
                gaps = gaps.iter().flat_map(left).collect();
            }
            let raised = |range: &CoverageRange| CoverageRange {
                commit: range.commit.max(new.commit),
                ..*range
            };
            self.change(new.key_min, new.key_max, |range| Some(raised(range)));
            self.ranges.extend(gaps);
            self.join();
        }
    }

    /// Gives up the ranges with the fewest keys, of equal ones the lowest, where a section has left too many.
    pub fn end_section(&mut self) {
        while self.ranges.len() > MAX_RANGES {
            let shortest = (0..self.ranges.len()).min_by_key(|&at| self.ranges[at].keys());
            self.ranges.remove(shortest.unwrap_or(0));
        }
    }

    /// Changes what lies in a range of keys.
    fn change(
        &mut self,
        key_min: i64,
        key_max: i64,
        to: impl Fn(&CoverageRange) -> Option<CoverageRange>,
    ) {
        let mut next = Vec::with_capacity(self.ranges.len() + 2);
        for range in &self.ranges {
            match range.within(key_min, key_max) {
                None => next.push(*range),
                Some(inside) => {
                    next.extend(range.around(key_min, key_max));
                    next.extend(to(&inside));
                }
            }
        }
        self.ranges = next;
        self.join();
    }

    /// Sorts the ranges, and makes neighbours with one commit one.
    fn join(&mut self) {
        self.ranges.sort_unstable_by_key(|range| range.key_min);
        self.ranges.dedup_by(|next, range| {
            let adjoin = range.key_max.checked_add(1) == Some(next.key_min);
            let is_one = adjoin && range.commit == next.commit;
            if is_one {
                range.key_max = next.key_max;
            }
            is_one
        });
    }

    /// Appends it as a checkpoint has it.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(len_u32(self.ranges.len()));
        put_ranges(&self.ranges, out);
    }

    /// Reads it as a checkpoint has it.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let count = reader.u32()? as usize;
        Ok(Self::of_ranges(read_ranges(count, reader)?)?)
    }

    /// A coverage of ranges that were read.
    ///
    /// # Errors
    /// Where neighbours with one commit are not one.
    pub fn of_ranges(ranges: Vec<CoverageRange>) -> Result<Self, &'static str> {
        let mut joined = Self { ranges };
        let count = joined.ranges.len();
        joined.join();
        if joined.ranges.len() == count {
            Ok(joined)
        } else {
            Err("neighbours of a coverage are not one")
        }
    }
}

pub(super) fn put_ranges(ranges: &[CoverageRange], out: &mut Vec<u8>) {
    for range in ranges {
        out.put_i64(range.key_min);
        out.put_i64(range.key_max);
        out.put_u64(range.commit.0);
    }
}

/// Reads so many ranges, which ascend and are disjoint.
pub(super) fn read_ranges(
    count: usize,
    reader: &mut Reader<'_>,
) -> Result<Vec<CoverageRange>, Fault> {
    if count > MAX_RANGES || count * RANGE_BYTES > reader.left_bytes() {
        return Err("more ranges of a coverage than there can be".into());
    }
    let mut ranges: Vec<CoverageRange> = Vec::with_capacity(count);
    for _ in 0..count {
        ranges.push(CoverageRange {
            key_min: reader.i64()?,
            key_max: reader.i64()?,
            commit: CommitNo(reader.u64()?),
        });
    }
    check_ranges(&ranges)?;
    Ok(ranges)
}

/// Whether ranges ascend and are disjoint, and not too many.
pub(super) fn check_ranges(ranges: &[CoverageRange]) -> Result<(), &'static str> {
    let is_right_way = |range: &CoverageRange| range.key_min <= range.key_max;
    let ascend = ranges.is_sorted_by(|before, next| before.key_max < next.key_min);
    if ranges.len() > MAX_RANGES {
        return Err("more ranges of a coverage than there can be");
    }
    if !ascend || !ranges.iter().all(is_right_way) {
        return Err("ranges of a coverage do not ascend");
    }
    Ok(())
}
