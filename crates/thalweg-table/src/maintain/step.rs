//! Which blocks the next step of maintenance takes: those that overlap, those with deleted rows, short ones, small files.
//!
//! Invariants: a step takes a bounded amount of work, and what it takes of a file is worth the copying of the rest; steps for
//! somebody who waits take all there is, those of jobs what is due.

use crate::block_list::{BlockList, runs};
use crate::jobs::board::JobKind;
use crate::maintain::cost::cost;
use crate::maintain::due::{Due, Stage, joined_files};
use crate::maintain::overlaps::{Commits, Search, StepSize, is_old, open_parts};
use crate::maintain::sizes::Sizes;
use crate::maintain::stop::check;
use crate::range::KeyRange;
use crate::table::TableView;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use thalweg_kernel::index::{Address, Entry, ItemName};
use thalweg_kernel::masks::MaskList;
use thalweg_kernel::{CommitNo, FileId, MANY_MASKS_BYTES, Result};

/// Most bytes of small files that become one file at once, as a multiple of the size up to which a file is small.
const JOINED_FILES: u64 = 16;
/// Most encoded bytes of blocks that are put together: short ones of long values are as large as others.
const MAX_PACKED_BYTES: u64 = 8 << 20;
/// Blocks and fragments are written anew once one of so many of their rows is deleted.
const DUE_PART: u64 = 5;
/// Most steps of one pass of a call for each block that there is at first, or for each part of a block that is as much as one step
/// takes. Each step takes away a late run, a part of one, or a short block, and leaves few short ones; more steps are only planned
/// for an index that names other keys than its blocks have.
const MAX_STEPS_PER_BLOCK: u64 = 8;
const MAX_STEPS: u64 = 64;

/// The blocks that a step may put in order, and how many of them.
pub(super) struct Scope<'a> {
    /// The last commit when the call began.
    pub(super) until: CommitNo,
    pub(super) size: StepSize,
    /// Only what is due, the most urgent kind; else all there is.
    pub(super) due: Option<Due>,
    /// A single deleted row has its block or file written anew.
    pub(super) any_deleted: bool,
    /// The files that the call has written so far.
    pub(super) written: &'a HashSet<FileId>,
}

/// A step, or why there is none.
pub(super) enum Planned {
    Step(Box<Step>),
    /// There is nothing to do before open rows are encoded into blocks.
    WaitsForOpenRows,
    Nothing,
}

/// The blocks that one commit replaces.
pub(super) struct Step {
    /// Why it is taken, or the first reason.
    pub(super) kind: JobKind,
    pub(super) list: BlockList,
    /// The first commits of the blocks that are merged where they have keys in a range.
    pub(super) merged: Commits,
    /// Ascending, without a common key.
    pub(super) merges: Vec<Merge>,
    pub(super) packs: Vec<Range<usize>>,
    /// Small files that become one, but for what is merged or packed of them.
    pub(super) joined: HashSet<FileId>,
    /// The merges that each block has rows for.
    pub(super) cuts: Vec<Range<usize>>,
    /// The last commit of what may be put in order.
    pub(super) until: CommitNo,
    pub(super) size: StepSize,
}

/// All rows of a range of keys, to be put in order.
pub(super) struct Merge {
    pub(super) keys: KeyRange,
    pub(super) blocks: Vec<usize>,
}

/// The outcome of a step.
#[derive(Default)]
pub(super) struct Ran {
    /// Rows that were put in order.
    pub(super) rows: u64,
    /// Blocks that do not fit in one block, though by their measured sizes they would.
    pub(super) left_alone: Vec<Address>,
    /// Something else than copies was written.
    pub(super) has_changed: bool,
    /// The files that it has written.
    pub(super) files: Vec<FileId>,
}

impl Step {
    /// How many steps it can take from here until all is in order.
    pub(super) fn max_steps(&self, until: CommitNo) -> u64 {
        let of_step = self.size.rows;
        let steps_of = |block: &Entry| 1 + cost(block) / of_step;
        let old = self.list.blocks.iter().filter(|block| is_old(block, until));
        let steps: u64 = old.map(steps_of).sum();
        // Where a step takes the rows of two commits only, one pass for each halving of the number of blocks.
        let passes = u64::from(1 + self.list.blocks.len().max(1).ilog2());
        let steps_per_block = passes.saturating_mul(MAX_STEPS_PER_BLOCK);
        MAX_STEPS.saturating_add(steps.saturating_mul(steps_per_block))
    }

    /// Plans the next step for what was committed up to `until`.
    pub(super) fn plan(
        view: &TableView,
        scope: Scope<'_>,
        mut sizes: Sizes<'_>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Planned> {
        let Scope {
            until,
            size,
            due,
            any_deleted,
            written,
        } = scope;
        let list = BlockList::read(view)?;
        sizes.retain(&list.blocks);
        let stages = match due {
            None => vec![(until, None)],
            Some(due) => { due.stages(until).into_iter() }
                .map(|(until, stage)| (until, Some(stage)))
                .collect(),
        };
        let mut step = Self::without_work(list, until, size);
        let mut waits = false;
        for (until, stage) in &stages {
            waits |= step.find_merges(view, *until, *stage) && *stage != Some(Stage::Fresh);
            if !step.merges.is_empty() {
                break;
            }
        }
        if due.is_none() {
            let goes_for_any =
                any_deleted || view.engine().kernel().mask_bytes()? > MANY_MASKS_BYTES;
            let deleted = |step: &Self| {
                step.due_for_deleted_rows(view, |file| goes_for_any && !written.contains(&file))
            };
            step.find_packs(view, None, &deleted, &mut sizes, go_on)?;
        } else if step.merges.is_empty() {
            step.find_work_of_jobs(view, &stages, &mut sizes, go_on)?;
        }
        Ok(match step.is_idle() {
            false => Planned::Step(Box::new(step)),
            true if waits => Planned::WaitsForOpenRows,
            true => Planned::Nothing,
        })
    }

    fn without_work(list: BlockList, until: CommitNo, size: StepSize) -> Self {
        Self {
            kind: JobKind::LateRows,
            cuts: vec![0..0; list.blocks.len()],
            list,
            merged: CommitNo(0)..=until,
            merges: Vec::new(),
            packs: Vec::new(),
            joined: HashSet::new(),
            until,
            size,
        }
    }

    fn is_idle(&self) -> bool {
        self.merges.is_empty() && self.packs.is_empty() && self.joined.is_empty()
    }

    /// Finds what to merge of blocks that overlap; whether some were left alone because of open rows.
    fn find_merges(&mut self, view: &TableView, until: CommitNo, stage: Option<Stage>) -> bool {
        let blocks = &self.list.blocks;
        let old: Vec<&Entry> = blocks.iter().filter(|block| is_old(block, until)).collect();
        let search = Search::new(view, self.size, &self.list, &old);
        let (ranges, commits) = search.ranges_to_merge(until, stage);
        let has_left_alone = search.has_left_alone();
        self.cuts = blocks
            .iter()
            .map(|block| {
                if !commits.contains(&block.first_commit) {
                    return 0..0;
                }
                let first = ranges.partition_point(|range| range.last < block.key_min);
                let behind = ranges.partition_point(|range| range.first <= block.key_max);
                first..behind.max(first)
            })
            .collect();
        let merge = |keys| Merge {
            keys,
            blocks: Vec::new(),
        };
        self.merges = ranges.into_iter().map(merge).collect();
        for (at, cut) in self.cuts.iter().enumerate() {
            for merge in &mut self.merges[cut.clone()] {
                merge.blocks.push(at);
            }
        }
        (self.merged, self.until) = (commits, until);
        has_left_alone
    }

    /// Finds what jobs do where nothing is to be merged, the most urgent kind first.
    fn find_work_of_jobs(
        &mut self,
        view: &TableView,
        stages: &[(CommitNo, Option<Stage>)],
        sizes: &mut Sizes<'_>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let (newest, _) = stages[0];
        (self.merged, self.until) = (CommitNo(0)..=newest, newest);
        self.kind = JobKind::DeletedRows;
        // A fifth of a file at least: where masks take much room, deletions themselves have further blocks rewritten.
        let due = self.due_for_deleted_rows(view, |_| false);
        self.packs = self.within_budget(due, true);
        if !self.is_idle() {
            return Ok(());
        }
        self.kind = JobKind::ShortBlocks;
        for (until, stage) in stages {
            self.until = *until;
            self.find_packs(view, *stage, &|_| Vec::new(), sizes, go_on)?;
            if !self.is_idle() {
                return Ok(());
            }
        }
        self.until = newest;
        self.joined = self.small_files(view);
        Ok(())
    }

    /// Small files of which there are so many that they become one.
    fn small_files(&self, view: &TableView) -> HashSet<FileId> {
        let limits = view.engine().options().append_limits;
        let small_bytes = limits.split_fragment_bytes.min(limits.fragment_bytes / 2);
        // Those with blocks that overlap are left to be merged: in a large file that would take more copying.
        let mut overlap: HashSet<FileId> = HashSet::new();
        for run in runs(&self.list.blocks)
            .into_iter()
            .filter(|run| run.len() > 1)
        {
            overlap.extend(self.list.blocks[run].iter().map(|block| block.address.file));
        }
        let fragments = self.list.fragments.iter();
        let small = fragments
            .filter(|(file, fragment)| fragment.bytes < small_bytes && !overlap.contains(file));
        let mut small: Vec<(u64, FileId)> =
            small.map(|(file, found)| (found.bytes, *file)).collect();
        small.sort_unstable();
        let mut room = small_bytes.saturating_mul(JOINED_FILES);
        let mut bytes: Vec<u64> = { small.iter() }
            .map(|(bytes, _)| *bytes)
            .take_while(|bytes| {
                let has_room = *bytes <= room;
                room = room.saturating_sub(*bytes);
                has_room
            })
            .collect();
        let count = joined_files(&mut bytes);
        small[..count].iter().map(|(_, file)| *file).collect()
    }

    /// Finds short neighbours whose sizes are known, and `others` beside them, as many as one step takes.
    fn find_packs(
        &mut self,
        view: &TableView,
        stage: Option<Stage>,
        others: &dyn Fn(&Self) -> Vec<Range<usize>>,
        sizes: &mut Sizes<'_>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        loop {
            self.packs = self.short_neighbours(view, sizes, stage);
            let others = others(self);
            let packs = std::mem::take(&mut self.packs);
            self.packs = self.within_budget([packs, others].concat(), stage.is_some());
            if !self.measure(&self.packs, sizes, go_on)? {
                return Ok(());
            }
        }
    }

    /// Measures the blocks of these groups; false if all sizes were known.
    fn measure(
        &self,
        groups: &[Range<usize>],
        sizes: &mut Sizes<'_>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let mut has_measured = false;
        for block in groups
            .iter()
            .flat_map(|group| &self.list.blocks[group.clone()])
        {
            if sizes.measure(block)? {
                has_measured = true;
                check(go_on)?;
            }
        }
        Ok(has_measured)
    }

    /// Runs of blocks in order that may be one block together; with a stage those that are due in it.
    fn short_neighbours(
        &self,
        view: &TableView,
        sizes: &Sizes<'_>,
        stage: Option<Stage>,
    ) -> Vec<Range<usize>> {
        let open = open_parts(view);
        let runs = runs(&self.list.blocks);
        let blocks = self.list.blocks.iter().zip(&self.cuts);
        let mut may_go: Vec<bool> = blocks
            .map(|(block, cut)| is_old(block, self.until) && cut.is_empty())
            .collect();
        let max_rows = u64::from(view.definition().block_rows());
        loop {
            let mut groups = self.groups(view, sizes, &runs, &may_go);
            groups.retain(|group| !self.waits(group, &open));
            if let Some(stage) = stage {
                let due = |group| self.due_parts(group, stage, max_rows);
                groups = groups.into_iter().flat_map(due).collect();
            }
            let kept = self.files_not_worth_it(view, &groups, stage);
            if kept.is_empty() {
                return groups;
            }
            for (block, may_go) in self.list.blocks.iter().zip(&mut may_go) {
                *may_go &= !kept.contains(&block.address.file);
            }
        }
    }

    /// Blocks outside of fragments, and one block of each fragment, that are written anew because many of their rows are deleted.
    /// In a file for which `goes_for_any` returns true any deleted row is enough. Leaves out what is written anew for a merge or a
    /// pack.
    fn due_for_deleted_rows(
        &self,
        view: &TableView,
        goes_for_any: impl Fn(FileId) -> bool,
    ) -> Vec<Range<usize>> {
        let Some(masks) = view.snapshot().masks() else {
            return Vec::new();
        };
        let mut goes = vec![false; self.list.blocks.len()];
        for group in &self.packs {
            goes[group.clone()].fill(true);
        }
        let mut rewritten = self.rewritten_files();
        let files = self
            .list
            .blocks
            .iter()
            .zip(&goes)
            .filter(|(_, goes)| **goes);
        rewritten.extend(files.map(|(block, _)| block.address.file));
        let mut due = Vec::new();
        for (at, block) in self.list.blocks.iter().enumerate() {
            let stays = !goes[at] && self.cuts[at].is_empty();
            if !stays || !is_old(block, self.until) {
                continue;
            }
            let fragment = self.list.fragments.get(&block.address.file);
            let (item, rows) = match fragment {
                Some(fragment) => (fragment.item, fragment.rows),
                None => (ItemName::of(block), block.rows),
            };
            let hidden = masks.of_item(&item).map_or(0, MaskList::rows);
            let is_due = hidden.saturating_mul(DUE_PART) >= rows;
            let is_due = hidden > 0 && (is_due || goes_for_any(block.address.file));
            if is_due && (fragment.is_none() || rewritten.insert(block.address.file)) {
                due.push(at..at + 1);
            }
        }
        due
    }

    /// Runs of blocks in order that are one block together, among those that may go.
    fn groups(
        &self,
        view: &TableView,
        sizes: &Sizes<'_>,
        runs: &[Range<usize>],
        may_go: &[bool],
    ) -> Vec<Range<usize>> {
        let max_rows = u64::from(view.definition().block_rows());
        let split_of = |at: usize| {
            let split = view.definition().arrangement().split();
            split.map(|split| split.split_of(self.list.blocks[at].key_min))
        };
        let mut groups: Vec<Range<usize>> = Vec::new();
        let mut group = 0..0;
        let (mut rows, mut bytes, mut raw_bytes) = (0, 0, 0);
        for run in runs {
            let at = run.start;
            let single = run.len() == 1 && may_go[at];
            let block = &self.list.blocks[at];
            let raw = sizes.of(block);
            if single
                && group.end == at
                && !group.is_empty()
                && rows + block.rows <= max_rows
                && bytes + block.block_bytes <= MAX_PACKED_BYTES
                && sizes.fit(rows + block.rows, raw.saturating_add(raw_bytes))
                && group.len() < self.size.blocks
                && split_of(group.start) == split_of(at)
            {
                group.end = at + 1;
                rows += block.rows;
                bytes += block.block_bytes;
                raw_bytes += raw;
                continue;
            }
            groups.extend(self.parts_in_place(group));
            (group, rows, bytes, raw_bytes) = if single {
                (at..at + 1, block.rows, block.block_bytes, raw)
            } else {
                (0..0, 0, 0, 0)
            };
        }
        groups.extend(self.parts_in_place(group));
        groups
    }

    /// The parts of a group that are due: all of it, or what lies beside the largest of its blocks.
    fn due_parts(&self, group: Range<usize>, stage: Stage, max_rows: u64) -> Vec<Range<usize>> {
        let blocks = &self.list.blocks[group.clone()];
        if stage.packs(blocks, max_rows) {
            return vec![group];
        }
        let Some((largest, _)) = { blocks.iter().enumerate() }.max_by_key(|(_, block)| block.rows)
        else {
            return Vec::new();
        };
        let at = group.start + largest;
        let sides = [group.start..at, at + 1..group.end];
        let parts = sides.into_iter().flat_map(|side| self.parts_in_place(side));
        parts
            .flat_map(|part| self.due_parts(part, stage, max_rows))
            .collect()
    }

    /// Whether open rows with keys of a group came before one of its blocks did.
    fn waits(&self, group: &Range<usize>, open: &[(CommitNo, KeyRange)]) -> bool {
        let blocks = &self.list.blocks[group.clone()];
        let last = blocks.iter().map(|block| block.key_max).max();
        let keys = KeyRange {
            first: blocks[0].key_min,
            last: last.unwrap_or(i64::MAX),
        };
        let newest = blocks.iter().map(|block| block.commit_max).max();
        open.iter()
            .any(|(commit, part)| Some(*commit) < newest && !part.intersect(keys).is_empty())
    }

    /// Fragments with blocks in these groups that are not worth being written anew for them. A fragment is worth it where one of
    /// its blocks goes for every few megabytes of it: so the copying that a short block can cause is bounded, and a file in order,
    /// which has few of them, is left alone.
    fn files_not_worth_it(
        &self,
        view: &TableView,
        groups: &[Range<usize>],
        stage: Option<Stage>,
    ) -> HashSet<FileId> {
        let small_bytes = view.engine().options().append_limits.split_fragment_bytes;
        let rewritten = self.rewritten_files();
        // Of each file the blocks that go, and the bytes of the groups that it has blocks in.
        let mut going: HashMap<FileId, (u64, u64)> = HashMap::new();
        for group in groups {
            let blocks = &self.list.blocks[group.clone()];
            let group_bytes: u64 = blocks.iter().map(|block| block.block_bytes).sum();
            for (nth, block) in blocks.iter().enumerate() {
                let of_file = going.entry(block.address.file).or_default();
                // All but the first of a group go.
                of_file.0 += u64::from(nth > 0);
                let is_first = blocks[..nth]
                    .iter()
                    .all(|b| b.address.file != block.address.file);
                of_file.1 += if is_first { group_bytes } else { 0 };
            }
        }
        let is_worth_it = |file: &FileId, (going, bytes): (u64, u64)| {
            let Some(fragment) = self.list.fragments.get(file) else {
                return true;
            };
            // A job copies no more than it packs.
            let is_cheap = stage.is_none_or(|_| fragment.bytes <= bytes.saturating_mul(2));
            let is_small = fragment.bytes <= small_bytes.saturating_mul(going.max(1));
            rewritten.contains(file) || (is_small && is_cheap)
        };
        let of_files = going.into_iter();
        of_files
            .filter(|(file, going)| !is_worth_it(file, *going))
            .map(|(file, _)| file)
            .collect()
    }

    /// The first groups, as many as one step takes, and what else is to be done in the files that they are in: a file is
    /// written anew once, not once for each step.
    /// With `counts_files` the copying of their other blocks counts as well: a step that somebody ends is done again.
    fn within_budget(&self, groups: Vec<Range<usize>>, counts_files: bool) -> Vec<Range<usize>> {
        let mut budget = self.size.rows;
        let mut of_files: HashMap<FileId, u64> = HashMap::new();
        if counts_files {
            for block in &self.list.blocks {
                *of_files.entry(block.address.file).or_default() += cost(block);
            }
        }
        let mut removed = 0;
        let mut touched = self.rewritten_files();
        let mut taken = Vec::new();
        for group in groups {
            let blocks = &self.list.blocks[group.clone()];
            let file = |block: &Entry| {
                Some(block.address.file).filter(|f| self.list.fragments.contains_key(f))
            };
            let files: HashSet<FileId> = blocks.iter().filter_map(file).collect();
            let lone = blocks.iter().filter(|block| file(block).is_none()).count();
            let goes_along = !files.is_empty() && files.is_subset(&touched);
            if (budget == 0 && !goes_along) || removed + lone > self.size.blocks {
                continue;
            }
            let new_files = files.difference(&touched);
            let copied: u64 = new_files.filter_map(|file| of_files.get(file)).sum();
            let work: u64 = blocks.iter().map(cost).sum();
            budget = budget.saturating_sub(work.max(copied));
            removed += lone;
            touched.extend(files);
            taken.push(group);
        }
        taken
    }

    /// Parts of a group that can each be one block, one after the other: what is cut off one begins the next.
    fn parts_in_place(&self, mut group: Range<usize>) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        while group.len() > 1 {
            match self.in_place_of_first(group.clone()) {
                Some(part) => {
                    group.start = part.end;
                    parts.push(part);
                }
                None => group.start += 1,
            }
        }
        parts
    }

    /// As much of a group as can have the commit and number of its first block, if that is more than one block: rows of the block
    /// after it may have the key of its last row, and must not come to lie before that row.
    fn in_place_of_first(&self, mut group: Range<usize>) -> Option<Range<usize>> {
        let blocks = &self.list.blocks;
        let comes_first = |group: &Range<usize>| {
            let (first, last) = (&blocks[group.start], &blocks[group.end - 1]);
            let same_key = |(block, _): &(&Entry, &Range<usize>)| block.key_min <= last.key_max;
            let mut behind = { blocks.iter().zip(&self.cuts).skip(group.end) }.take_while(same_key);
            // A block that is merged in the same step may come to lie before rows of this group, though it came after them.
            behind.all(|(next, cut)| cut.is_empty() && first.arrival() < next.arrival())
        };
        while group.len() > 1 {
            if comes_first(&group) {
                return Some(group);
            }
            group.end -= 1;
        }
        None
    }

    /// Fragments with rows that are merged.
    pub(super) fn rewritten_files(&self) -> HashSet<FileId> {
        let blocks = self.list.blocks.iter().zip(&self.cuts);
        blocks
            .filter(|(block, cut)| {
                !cut.is_empty() && self.list.fragments.contains_key(&block.address.file)
            })
            .map(|(block, _)| block.address.file)
            .collect()
    }
}
