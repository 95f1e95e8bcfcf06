//! Where blocks overlap: what the next step of maintenance merges.
//!
//! Invariants: a range holds all keys of the blocks that overlap in it, up to as many as one step takes. The exception is a crowd,
//! more blocks than that which overlap in one place: those of commits that follow each other are merged with each other first, some
//! commits at a time. Ranges with open rows that came before some of their blocks did are left alone.

use crate::block_list::{BlockList, Place, runs};
use crate::maintain::cost::cost;
use crate::maintain::due::{DEEP_BLOCKS, Stage};
use crate::range::KeyRange;
use crate::table::TableView;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::ops::RangeInclusive;
use thalweg_kernel::index::Entry;
use thalweg_kernel::{CommitNo, FileId};

/// Most blocks outside of fragments that one step takes away: their keys take a sixth of a frame.
pub(super) const MAX_REMOVED: usize = 1 << 16;
/// How much less a step takes after one that changed more of the index than one commit may.
const SHRINKS: usize = 4;
/// Blocks that overlap in one place are merged with each other at once where their work is no more than that of a step divided by
/// this: so most of what it writes lies in its range, and few blocks are open at a time.
const CROWD_PART: u64 = 4;
/// Rows that are copied, because they are in a fragment with others, for each row that is merged.
const COPIED_PER_ROW: u64 = 4;

/// The commits and keys of open rows.
pub(super) fn open_parts(view: &TableView) -> Vec<(CommitNo, KeyRange)> {
    let keys = |first, last| KeyRange { first, last };
    let open = view.snapshot().open_rows();
    open.map(|open| (open.commit, keys(open.part.key_min, open.part.key_max)))
        .collect()
}

/// Commits, both ends included.
pub(super) type Commits = RangeInclusive<CommitNo>;

/// How much one step takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepSize {
    /// About so much work, in rows.
    pub(super) rows: u64,
    /// At most so many blocks outside of fragments.
    pub(super) blocks: usize,
}

impl StepSize {
    pub(super) fn new(view: &TableView) -> Self {
        Self {
            rows: view.engine().options().maintain_rows.max(1),
            blocks: MAX_REMOVED,
        }
    }

    /// A smaller one; `None` where a step takes no less than two blocks.
    pub(super) fn shrunk(self) -> Option<Self> {
        let least = 2;
        (self.blocks > least).then(|| Self {
            rows: (self.rows / SHRINKS as u64).max(1),
            blocks: (self.blocks / SHRINKS).max(least),
        })
    }
}

/// Where blocks overlap.
pub(super) struct Search<'a> {
    /// Those that may be merged, in the order of the index.
    blocks: &'a [&'a Entry],
    open: Vec<(CommitNo, KeyRange)>,
    size: StepSize,
    /// The cost of copying the blocks of each fragment, in rows.
    fragments: HashMap<FileId, u64>,
    has_left_alone: Cell<bool>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        view: &TableView,
        size: StepSize,
        list: &BlockList,
        blocks: &'a [&'a Entry],
    ) -> Self {
        let mut fragments = HashMap::new();
        for block in &list.blocks {
            if list.fragments.contains_key(&block.address.file) {
                *fragments.entry(block.address.file).or_default() += cost(block);
            }
        }
        Self {
            blocks,
            open: open_parts(view),
            size,
            fragments,
            has_left_alone: Cell::new(false),
        }
    }

    /// Ranges of keys in which blocks overlap, as many as one step takes, ascending, without a common key; and the first commits of
    /// the blocks that are merged there. With a stage only where blocks are due in it.
    pub(super) fn ranges_to_merge(
        &self,
        until: CommitNo,
        stage: Option<Stage>,
    ) -> (Vec<KeyRange>, Commits) {
        let all = CommitNo(0)..=until;
        let mut budget = self.size.rows;
        let mut removed = 0;
        let mut ranges: Vec<KeyRange> = Vec::new();
        let mut last_run = None;
        let mut put_off: Vec<PutOff<'a>> = Vec::new();
        for (number, run) in runs(self.blocks.iter().copied()).into_iter().enumerate() {
            if run.len() < 2 {
                continue;
            }
            let blocks = &self.blocks[run];
            let max_work = self.size.rows / CROWD_PART;
            if let Some(crowd) = Crowd::find(blocks, cost, max_work) {
                if !ranges.is_empty() {
                    break;
                }
                let commits = crowd.commits_to_merge(max_work);
                let keys = self.within_crowd(blocks, &crowd, &commits);
                let is_worth_it = |keys: &KeyRange| {
                    let (work, copied) = self.work_and_copied(&self.merged_in(*keys, &commits));
                    stage.is_none() || copied <= work
                };
                if let Some(keys) = keys.filter(is_worth_it) {
                    return (vec![keys], commits);
                }
                continue;
            }
            let max_blocks = self.size.blocks - removed;
            let Some(front) = self.first_due(blocks, stage, budget, max_blocks, &mut put_off)
            else {
                // Blocks that lie over many others are merged with each other.
                if let Some((keys, commits)) = self.deep_part(blocks).filter(|_| ranges.is_empty())
                {
                    return (vec![keys], commits);
                }
                continue;
            };
            if self.is_left_alone(&front, self.blocks) {
                continue;
            }
            // Two runs with no other block between them are one range, which makes fuller blocks. Not so where a part of a run
            // before its front is not merged: open rows may have come between the blocks of that part.
            let begins_run = front.keys.first == blocks[0].key_min;
            let follows = begins_run && number > 0 && last_run == Some(number - 1);
            match ranges.last_mut() {
                Some(last) if follows || front.keys.first <= last.last => {
                    last.last = last.last.max(front.keys.last);
                }
                _ => ranges.push(front.keys),
            }
            last_run = Some(number);
            budget = budget.saturating_sub(front.work);
            removed += front.blocks;
            if budget == 0 || removed >= self.size.blocks {
                break;
            }
        }
        if let Some(stage) = stage {
            match ranges.is_empty() {
                true => ranges = self.due_together(&put_off, stage),
                false => self.add_what_goes_along(&mut ranges, &put_off, removed),
            }
        }
        (ranges, all)
    }

    /// The keys to merge around a crowd, of the blocks with these first commits.
    fn within_crowd(
        &self,
        blocks: &[&Entry],
        crowd: &Crowd,
        commits: &Commits,
    ) -> Option<KeyRange> {
        let among = |block: &&&Entry| commits.contains(&block.first_commit);
        let members: Vec<&Entry> = blocks.iter().filter(among).copied().collect();
        let ends_there = |block: &&&Entry| block.end() >= crowd.place;
        let blocks: Vec<&Entry> = members.iter().filter(ends_there).copied().collect();
        // Those that are in the place come first, and overlap there.
        let run = runs(blocks.iter().copied()).into_iter().next()?;
        // Half of what is written lies within the range at least, also where the blocks of one commit are more than a step.
        let there = crowd.commits.range(commits.clone());
        let work: u64 = there.map(|(_, (work, _))| work).sum();
        let max_work = self.size.rows.max(2 * work);
        let front = self.front_of_run(&blocks[run], max_work, self.size.blocks);
        (!self.is_left_alone(&front, &members)).then_some(front.keys)
    }

    /// Whether a range of these blocks is not merged by this call.
    fn is_left_alone(&self, front: &Front, blocks: &[&Entry]) -> bool {
        // So many have one key: they are in order of arrival, and no commit could take them all out.
        let have_one_key = front.blocks > 4 * self.size.blocks;
        let waits = waits_for_open_rows(&self.open, blocks, front.keys);
        self.has_left_alone
            .set(self.has_left_alone.get() || (waits && !have_one_key));
        have_one_key || waits
    }

    /// Returns the first part of a run that is due, of about `max_work`; without a stage, the front of the run. Adds to `put_off`
    /// the parts that would be due if nothing had to be copied for them.
    fn first_due(
        &self,
        mut blocks: &[&Entry],
        stage: Option<Stage>,
        max_work: u64,
        max_blocks: usize,
        put_off: &mut Vec<PutOff<'a>>,
    ) -> Option<Front> {
        let Some(stage) = stage else {
            return Some(self.front_of_run(blocks, max_work, max_blocks));
        };
        while blocks.len() > 1 {
            let mut max_work = max_work;
            let (front, merged, work, copied) = loop {
                let front = self.front_of_run(blocks, max_work, max_blocks);
                let merged = self.merged_in(front.keys, &(CommitNo(0)..=CommitNo(u64::MAX)));
                let (work, copied) = self.work_and_copied(&merged);
                // More may be worth the copying.
                if copied <= max_work || front.blocks == blocks.len() {
                    break (front, merged, work, copied);
                }
                max_work = copied;
            };
            if stage.merges(&merged, work, copied) {
                return Some(front);
            }
            if stage.merges(&merged, work, 0) {
                let keys = front.keys;
                put_off.push(PutOff { keys, merged, work });
            }
            blocks = &blocks[front.blocks.max(1)..];
        }
        None
    }

    /// Of the parts that were put off, some in one file that are worth it together, as its other blocks are copied only once for
    /// them: as many as one step takes, or as make the copying worth it.
    fn due_together(&self, put_off: &[PutOff<'a>], stage: Stage) -> Vec<KeyRange> {
        let mut files: Vec<FileId> = Vec::new();
        let mut of_files: HashMap<FileId, Vec<&PutOff<'a>>> = HashMap::new();
        for part in put_off {
            for file in self.fragments_of(&part.merged) {
                let parts = of_files.entry(file).or_default();
                if parts.is_empty() {
                    files.push(file);
                }
                parts.push(part);
            }
        }
        files.sort_unstable();
        for file in files {
            let (mut blocks, mut keys, mut taken) = (Vec::new(), Vec::new(), 0);
            for part in &of_files[&file] {
                if self.waits(part) || blocks.len() + part.merged.len() > self.size.blocks {
                    continue;
                }
                blocks.extend_from_slice(&part.merged);
                keys.push(part.keys);
                taken += part.work;
                if taken >= self.size.rows && self.is_worth_copying(&blocks) {
                    break;
                }
            }
            let (work, copied) = self.work_and_copied(&blocks);
            if stage.merges(&blocks, work, copied) {
                return without_common_keys(keys);
            }
        }
        Vec::new()
    }

    /// Adds the parts that were put off and lie only in files that are written anew for the ranges anyway.
    fn add_what_goes_along(
        &self,
        ranges: &mut Vec<KeyRange>,
        put_off: &[PutOff<'a>],
        mut removed: usize,
    ) {
        let all = CommitNo(0)..=CommitNo(u64::MAX);
        let merged = ranges.iter().flat_map(|keys| self.merged_in(*keys, &all));
        let rewritten = self.fragments_of(&merged.collect::<Vec<_>>());
        for part in put_off {
            let goes_along = self.fragments_of(&part.merged).is_subset(&rewritten);
            if goes_along && !self.waits(part) && removed + part.merged.len() <= self.size.blocks {
                removed += part.merged.len();
                ranges.push(part.keys);
            }
        }
        *ranges = without_common_keys(std::mem::take(ranges));
    }

    fn is_worth_copying(&self, blocks: &[&Entry]) -> bool {
        let (work, copied) = self.work_and_copied(blocks);
        copied <= work
    }

    /// The fragments that some blocks are in.
    fn fragments_of(&self, blocks: &[&Entry]) -> HashSet<FileId> {
        let files = blocks.iter().map(|block| block.address.file);
        files
            .filter(|file| self.fragments.contains_key(file))
            .collect()
    }

    /// Whether open rows came before some of its blocks did.
    fn waits(&self, part: &PutOff<'_>) -> bool {
        let waits = waits_for_open_rows(&self.open, self.blocks, part.keys);
        self.has_left_alone.set(self.has_left_alone.get() || waits);
        waits
    }

    /// The blocks that have keys in a range and are merged there.
    fn merged_in(&self, keys: KeyRange, commits: &Commits) -> Vec<&'a Entry> {
        let is_merged = |block: &&&Entry| {
            let reaches_in = block.key_min <= keys.last && block.key_max >= keys.first;
            reaches_in && commits.contains(&block.first_commit)
        };
        self.blocks.iter().filter(is_merged).copied().collect()
    }

    /// Where many blocks of a run lie over one key: commits that follow each other and are the least work to merge, and the keys in
    /// which their blocks are merged.
    fn deep_part(&self, blocks: &[&Entry]) -> Option<(KeyRange, Commits)> {
        let crowd = Crowd::find(blocks, |_| 1, DEEP_BLOCKS - 1)?;
        let works = crowd.commits.values().map(|(work, _)| *work);
        let (all, largest): (u64, u64) = (works.clone().sum(), works.max()?);
        let commits = crowd.commits_to_merge(all - largest);
        let keys = self.within_crowd(blocks, &crowd, &commits)?;
        let merged = self.merged_in(keys, &commits);
        let (work, copied) = self.work_and_copied(&merged);
        (copied <= work).then_some((keys, commits))
    }

    /// The cost of merging blocks, and of copying the others of their files.
    fn work_and_copied(&self, blocks: &[&Entry]) -> (u64, u64) {
        let costs = |of_fragments: bool| {
            let is_in_fragment = |block: &&&Entry| self.fragments.contains_key(&block.address.file);
            { blocks.iter() }
                .filter(|block| !of_fragments || is_in_fragment(block))
                .map(|block| cost(block))
                .sum::<u64>()
        };
        let copied = self.cost_of_files(blocks).saturating_sub(costs(true));
        (costs(false), copied)
    }

    /// The cost of copying all blocks of the fragments that some are in.
    fn cost_of_files(&self, blocks: &[&Entry]) -> u64 {
        let files = blocks.iter().map(|block| block.address.file);
        let files: HashSet<FileId> = files.collect();
        { files.iter() }
            .filter_map(|file| self.fragments.get(file))
            .sum()
    }

    /// Whether blocks that are due were left alone, because of open rows.
    pub(super) fn has_left_alone(&self) -> bool {
        self.has_left_alone.get()
    }

    /// The front of a run that is about `max_work`; more, where copying the files that it is in costs more than `COPIED_PER_ROW`
    /// times that.
    fn front_of_run(&self, blocks: &[&Entry], max_work: u64, max_blocks: usize) -> Front {
        let mut max_work = max_work;
        loop {
            let front = front_of_run(blocks, max_work, max_blocks);
            let copied = self.cost_of_files(&blocks[..front.blocks]);
            if front.blocks == blocks.len() || copied / COPIED_PER_ROW <= max_work {
                return front;
            }
            max_work = copied / COPIED_PER_ROW;
        }
    }
}

/// Blocks that overlap in one place and are more than a part of a step, of one commit or of many.
struct Crowd {
    place: Place,
    /// By their first commits: what it takes to write those anew that are in the place, and how densely their rows lie.
    commits: BTreeMap<CommitNo, (u64, f64)>,
}

impl Crowd {
    /// The place of a run where the blocks that overlap have the greatest weight, if that is more than `most`.
    fn find(blocks: &[&Entry], weight: impl Fn(&Entry) -> u64, most: u64) -> Option<Self> {
        let mut here: BinaryHeap<Reverse<(Place, usize)>> = BinaryHeap::new();
        let (mut work, mut greatest) = (0, most);
        let mut place = None;
        for (at, block) in blocks.iter().enumerate() {
            while let Some(Reverse((_, gone))) =
                here.peek().filter(|first| first.0.0 < block.start())
            {
                work -= weight(blocks[*gone]);
                here.pop();
            }
            here.push(Reverse((block.end(), at)));
            work += weight(block);
            if work > greatest {
                (greatest, place) = (work, Some(block.start()));
            }
        }
        let place = place?;
        let mut commits: BTreeMap<CommitNo, (u64, f64)> = BTreeMap::new();
        let there = |block: &&&Entry| block.start() <= place && block.end() >= place;
        for block in blocks.iter().filter(there) {
            let keys = block.key_max.abs_diff(block.key_min) as f64 + 1.0;
            let of_commit = commits.entry(block.first_commit).or_default();
            of_commit.0 += cost(block);
            of_commit.1 += cost(block) as f64 / keys;
        }
        Some(Self { place, commits })
    }

    /// Chooses commits that follow each other, at least two if there are as many, and no more work than `max_work` if that is
    /// possible: those with the fewest rows to write for each commit by which their number falls. So single commits are merged with
    /// each other before they are merged with what was made of many.
    fn commits_to_merge(&self, max_work: u64) -> Commits {
        let commits: Vec<(CommitNo, (u64, f64))> =
            self.commits.iter().map(|(c, w)| (*c, *w)).collect();
        let mut best = commits[0].0..=commits[commits.len() - 1].0;
        if commits.len() < 3 {
            return best;
        }
        let mut best_rows = f64::INFINITY;
        let (mut behind, mut work, mut rows) = (0, 0, 0.0);
        for (first, (commit, (of_first, rows_of_first))) in commits.iter().enumerate() {
            while let Some((_, (of_next, rows_of_next))) = commits.get(behind)
                && (behind < first + 2 || work + of_next <= max_work)
            {
                work += of_next;
                rows += rows_of_next;
                behind += 1;
            }
            if behind < first + 2 {
                break;
            }
            let rows_per_commit = rows / (behind - first - 1) as f64;
            if rows_per_commit < best_rows {
                best_rows = rows_per_commit;
                best = *commit..=commits[behind - 1].0;
            }
            // The windows after it are parts of this one.
            if behind == commits.len() {
                break;
            }
            work -= of_first;
            rows -= rows_of_first;
        }
        best
    }
}

/// Whether a block has rows that were committed when a call began, `until` being the last commit then. A block that is merged of
/// such blocks is one of them, too.
pub(super) fn is_old(block: &Entry, until: CommitNo) -> bool {
    block.first_commit <= until
}

/// A part of a run that would be due if nothing had to be copied for it.
struct PutOff<'a> {
    keys: KeyRange,
    merged: Vec<&'a Entry>,
    work: u64,
}

/// Ranges in ascending order, with those as one that have a common key.
fn without_common_keys(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.sort_unstable_by_key(|keys| keys.first);
    let mut apart: Vec<KeyRange> = Vec::with_capacity(ranges.len());
    for keys in ranges {
        match apart.last_mut() {
            Some(last) if keys.first <= last.last => last.last = last.last.max(keys.last),
            _ => apart.push(keys),
        }
    }
    apart
}

/// The front of a run.
struct Front {
    keys: KeyRange,
    blocks: usize,
    /// The cost of putting it in order, in rows.
    work: u64,
}

/// The keys of a run up to about so much work and so many blocks; at least all with the first key.
fn front_of_run(blocks: &[&Entry], max_work: u64, max_blocks: usize) -> Front {
    let first = blocks[0].key_min;
    let (mut work, mut last) = (0, first);
    for (at, block) in blocks.iter().enumerate() {
        if (work >= max_work || at >= max_blocks) && block.key_min > first {
            let last = block.key_min - 1;
            return Front {
                keys: KeyRange { first, last },
                blocks: at,
                work,
            };
        }
        work += cost(block);
        last = last.max(block.key_max);
    }
    Front {
        keys: KeyRange { first, last },
        blocks: blocks.len(),
        work,
    }
}

/// Whether open rows with keys in the range came before the last rows of a block that has keys in the range, too.
fn waits_for_open_rows(open: &[(CommitNo, KeyRange)], blocks: &[&Entry], keys: KeyRange) -> bool {
    let within = open
        .iter()
        .filter(|(_, part)| !part.intersect(keys).is_empty());
    let Some(oldest) = within.map(|(commit, _)| *commit).min() else {
        return false;
    };
    blocks
        .iter()
        .filter(|block| block.key_min <= keys.last && block.key_max >= keys.first)
        .any(|block| block.commit_max > oldest)
}
