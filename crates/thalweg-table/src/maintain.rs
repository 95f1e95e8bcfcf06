//! Maintenance: blocks that overlap because rows came late are merged into order, short neighbours become one block.
//!
//! Invariants
//! - What is written holds no deleted rows. The step is refused where some were deleted that it has read, and begins anew. The third
//!   time it has the turn of the table, so that it ends however often rows are deleted.
//! - The rows of a table and their order, by key and by arrival where keys are equal, are the same before and after.
//! - A step prepares fragments from one snapshot, without a lock, and one commit puts them in the place of what they
//!   were made of. Before that commit nothing has changed; what is left of a step that failed is a file nobody knows.
//! - Whoever holds an older snapshot goes on seeing the old blocks.
//! - A step does a bounded amount of work, one row at least, however large the table is: so many rows and encoded bytes, so
//!   many blocks, and the rest of the fragments that they are in, to which the rows are in proportion, so that no fragment is
//!   copied for ever fewer of them. What it leaves in order is not rewritten again.
//! - What a step writes lies in the range that it puts in order, but for a part: so many blocks may overlap somewhere that those
//!   at the edge of a range alone are more than a step takes. There the rows of commits that follow each other are merged,
//!   before these are merged with others, as an external sort merges its runs in several passes.
//! - A call leaves alone what was committed behind its beginning, so that it ends also while rows arrive: late rows that keep
//!   coming overlap whatever was put in order before them.
//! - One rule says what is due, wherever it lies: blocks that overlap are, and short neighbours are where the files that are
//!   rewritten for them lose a block for every `split_fragment_bytes`. A lone block is no file to be rewritten; a small file
//!   is rewritten for one short block, a large one for as many as make it worth its size. What remains are the few short
//!   blocks of large files in order, and what is rewritten has none left, so that no file is rewritten again and again.
//! - A block is due as well once a fifth of its rows is deleted, and a fragment once a fifth of all its rows is; any deleted row is
//!   enough while the masks of all tables take more than half of the room that there is for them, but in what the same call has
//!   written: rows that are deleted one by one meanwhile would have it written again and again.
//! - Blocks are packed only where their rows fit in one block, so that no rows are written for nothing (`sizes`).
//!
//! Arrival. Blocks come in the order of their first commits, and of their numbers where these are equal. A step takes all
//! blocks with keys in a range whose first commits lie between two commits, the last of them at most that of the beginning of
//! the call. New blocks carry the first of these commits and numbers of their own, so that they come behind the blocks that came
//! before all that they were made of, and before those that came behind it. Parts of blocks that stick out of the range
//! keep the commits and number of their block. Open rows come behind all blocks with the same keys, or the range is left alone
//! for now: blocks with one commit number cannot lie on both sides of them.
//!
//! Rejected: an entry for each block of a fragment that goes only in part, so that the rest need not be copied. The index
//! of a fragment would no longer be that of its table, and a frame could list thousands of blocks.

mod overlaps;
pub(crate) mod raw_sizes;
mod sizes;

use self::overlaps::{Commits, Search, StepSize, cost, is_old, open_parts};
use self::sizes::Sizes;
use crate::append::{Output, concat, cutter, raw_bytes};
use crate::block_list::{BlockList, runs};
use crate::engine::Maintenance;
use crate::range::KeyRange;
use crate::reader::{Reader, arrival};
use crate::scan::merge::Sorted;
use crate::scan::plan::scan_blocks;
use crate::table::{Maintained, Table, TableView};
use arrow_array::RecordBatch;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::index::{Address, Entry, ItemName};
use thalweg_kernel::masks::MaskList;
use thalweg_kernel::orders::ReplaceEdit;
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, Error, ErrorKind, FileId, MANY_MASKS_BYTES, Result,
};

/// Blocks that are cut from merged rows at once.
const GATHERED_BLOCKS: usize = 16;
/// Bytes of merged rows that are cut at once.
const GATHERED_BYTES: usize = 32 << 20;
/// Most encoded bytes of blocks that are put together: short ones of long values are as large as others.
const MOST_PACKED_BYTES: u64 = 8 << 20;
/// Blocks and fragments are written anew once one of so many of their rows is deleted.
const DUE_PART: u64 = 5;
/// Steps in a row that may lose a race against another edit. From the third on deletions of rows of the table wait.
const MOST_CONFLICTS: u32 = 16;
/// Steps of one pass of a call, by the blocks that there are at first, or by as much of them as one step takes, if that is less
/// than a block. Each takes away a late run, a part of one, or a short block, and leaves few short ones; more than that are only
/// planned for an index that names other keys than its blocks have.
const MOST_STEPS_PER_BLOCK: u64 = 8;
const MOST_STEPS: u64 = 64;

impl Table {
    /// Puts late rows in order and short blocks together, as far as they were committed before the call, so that scans
    /// need not merge them; rows that are in no block yet become blocks. Readers and writers go on meanwhile.
    ///
    /// # Errors
    /// `Unavailable` for a database that was opened read-only; whatever reading and writing leads to. Each step is stored
    /// whole or not at all.
    pub fn maintain(&self) -> Result<Maintained> {
        self.maintain_while(&|| true)
    }

    /// The same, until `go_on` returns false. It is called before each step, and while another thread maintains a table of this
    /// database, which is waited for; it must not call `maintain` itself, which would wait for this call.
    ///
    /// # Errors
    /// As [`Self::maintain`]; `Query` when it was ended, and what was put in order before stays so.
    pub fn maintain_while(&self, go_on: &dyn Fn() -> bool) -> Result<Maintained> {
        self.engine().closed().check()?;
        maintain(self, go_on)
    }
}

/// Puts what was committed before this call in order. Files that are of no use any more go in the background, once as much can go
/// as the checkpoints for that take: those hold open rows of all tables, so that a call for each table would write them as often
/// as there are tables.
fn maintain(table: &Table, go_on: &dyn Fn() -> bool) -> Result<Maintained> {
    // It may have forked: in the child nobody passes the turn on.
    let closed = table.engine().closed();
    let done = put_in_order(table, &|| go_on() && closed.check().is_ok());
    if done.is_err() {
        closed.check()?;
    }
    done
}

fn put_in_order(table: &Table, go_on: &dyn Fn() -> bool) -> Result<Maintained> {
    let engine = table.engine();
    if !engine.kernel().is_writer() {
        let message =
            "a database that was opened read-only is maintained by the process that writes to it";
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    let Some(mut maintenance) = engine.maintenance().wait(go_on) else {
        return Err(table.name_error(interrupted()));
    };
    engine.forget_dropped(&mut maintenance)?;
    let until = table.snapshot()?.commit();
    // Few rows that are not in a block yet could keep many that are from being put in order.
    engine.kernel().encode_open_rows(table.id())?;
    let mut done = Maintained::default();
    let turns = engine.turns_of(table.id())?;
    let (mut turn, mut conflicts) = (turns.none(), 0);
    let mut size = StepSize::new(&table.view()?);
    let (mut steps_from_here, mut first_files) = (None, None);
    let Maintenance {
        has_garbage,
        raw_sizes,
    } = &mut *maintenance;
    // Also what a call measures that is stopped.
    let sizes = raw_sizes.entry(table.id()).or_default();
    let mut steps = 0;
    loop {
        if !turn.wait_if_due(conflicts, go_on) {
            return Err(table.name_error(interrupted()));
        }
        check(go_on).map_err(|e| table.name_error(e))?;
        let view = table.view()?;
        let scope = Scope {
            until,
            size,
            first_files: &mut first_files,
        };
        let step = Step::plan(&view, scope, Sizes::new(&view, sizes), go_on);
        let Some(step) = step.map_err(|e| table.name_error(e))? else {
            break;
        };
        let most_steps = *steps_from_here.get_or_insert_with(|| step.most_steps(until));
        if steps >= most_steps {
            let what = "it names other keys than the blocks below it have, so that the rows cannot be put in order";
            return Err(table.name_error(Error::corruption("the index", what)));
        }
        match step.run(table, &view, go_on) {
            Ok(ran) => {
                steps += 1;
                if ran.has_changed {
                    *has_garbage = true;
                    done.steps += 1;
                }
                done.rows += ran.rows;
                for block in ran.left_alone {
                    sizes.leave_alone(block);
                }
                conflicts = 0;
                turn.pass_on();
            }
            Err(e) if e.kind() == ErrorKind::Conflict && conflicts < MOST_CONFLICTS => {
                conflicts += 1;
            }
            // Its blocks lie on too many pages of the index for one commit.
            Err(e) if e.kind() == ErrorKind::Limit && size.shrunk().is_some() => {
                size = size.shrunk().unwrap_or(size);
                (steps, steps_from_here) = (0, None);
            }
            Err(e) => return Err(table.name_error(e)),
        }
    }
    if sizes.is_empty() {
        raw_sizes.remove(&table.id());
    }
    Ok(done)
}

fn check(go_on: &dyn Fn() -> bool) -> Result<()> {
    if go_on() {
        return Ok(());
    }
    Err(interrupted())
}

fn interrupted() -> Error {
    let message = "it was interrupted: what is in order by now stays so";
    Error::new(ErrorKind::Query, message)
}

/// The blocks that a step may put in order, and how many of them.
struct Scope<'a> {
    /// The last commit when the call began.
    until: CommitNo,
    size: StepSize,
    /// The files that had blocks then, once they were looked up.
    first_files: &'a mut Option<HashSet<FileId>>,
}

/// What one commit changes.
struct Step {
    list: BlockList,
    /// The first commits of the blocks that are merged where they have keys in a range.
    merged: Commits,
    /// Ascending, without a common key.
    merges: Vec<Merge>,
    packs: Vec<Range<usize>>,
    /// The merges that each block has rows for.
    cuts: Vec<Range<usize>>,
    /// The last commit when the call began.
    until: CommitNo,
    size: StepSize,
}

/// All rows of a range of keys, to be put in order.
struct Merge {
    keys: KeyRange,
    blocks: Vec<usize>,
}

/// What a step did.
#[derive(Default)]
struct Ran {
    /// Rows that were put in order.
    rows: u64,
    /// Blocks that are no single block though their sizes say so.
    left_alone: Vec<Address>,
    /// Something else than copies was written.
    has_changed: bool,
}

/// What is written to the new fragments.
enum Part {
    /// A block as it is, but for deleted rows, because the rest of its fragment is rewritten.
    Copy(usize),
    /// The rows of a block between those that are merged.
    Piece(usize, KeyRange),
    Merge(usize),
    Pack(Range<usize>),
}

impl Step {
    /// How many steps it can take from here until all is in order.
    fn most_steps(&self, until: CommitNo) -> u64 {
        let of_step = self.size.rows;
        let steps_of = |block: &Entry| 1 + cost(block) / of_step;
        let old = self.list.blocks.iter().filter(|block| is_old(block, until));
        let steps: u64 = old.map(steps_of).sum();
        // Where a step takes the rows of two commits only, as many passes as it takes to halve their number.
        let passes = u64::from(1 + self.list.blocks.len().max(1).ilog2());
        let steps_per_block = passes.saturating_mul(MOST_STEPS_PER_BLOCK);
        MOST_STEPS.saturating_add(steps.saturating_mul(steps_per_block))
    }

    /// What to do next; `None` when everything up to the commit `until` is in order, or has to wait for open rows.
    fn plan(
        view: &TableView,
        scope: Scope<'_>,
        mut sizes: Sizes<'_>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Self>> {
        let Scope {
            until,
            size,
            first_files,
        } = scope;
        let list = BlockList::read(view)?;
        let first_files = &*first_files.get_or_insert_with(|| {
            let files = list.blocks.iter().map(|block| block.address.file);
            files.collect()
        });
        sizes.retain(&list.blocks);
        let is_old = |block: &&Entry| is_old(block, until);
        let old: Vec<&Entry> = list.blocks.iter().filter(is_old).collect();
        let (ranges, commits) = Search::new(view, size, &list, &old).ranges_to_merge(until);
        let cuts: Vec<Range<usize>> = list
            .blocks
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
        let mut merges: Vec<Merge> = ranges
            .into_iter()
            .map(|keys| Merge {
                keys,
                blocks: Vec::new(),
            })
            .collect();
        for (at, cut) in cuts.iter().enumerate() {
            for merge in &mut merges[cut.clone()] {
                merge.blocks.push(at);
            }
        }
        let mut step = Self {
            list,
            merged: commits,
            merges,
            packs: Vec::new(),
            cuts,
            until,
            size,
        };
        step.packs = loop {
            let packs = step.short_neighbours(view, &sizes, first_files)?;
            if !step.measure(&packs, &mut sizes, go_on)? {
                break packs;
            }
        };
        let idle = step.merges.is_empty() && step.packs.is_empty();
        Ok((!idle).then_some(step))
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

    /// Runs of blocks in order that may be one block together, as many as one step takes.
    fn short_neighbours(
        &self,
        view: &TableView,
        sizes: &Sizes<'_>,
        first_files: &HashSet<FileId>,
    ) -> Result<Vec<Range<usize>>> {
        let open = open_parts(view);
        let runs = runs(&self.list.blocks);
        let blocks = self.list.blocks.iter().zip(&self.cuts);
        let mut may_go: Vec<bool> = blocks
            .map(|(block, cut)| is_old(block, self.until) && cut.is_empty())
            .collect();
        let groups = loop {
            let mut groups = self.groups(view, sizes, &runs, &may_go);
            groups.retain(|group| !self.waits(group, &open));
            let kept = self.files_not_worth_it(view, &groups);
            if kept.is_empty() {
                break groups;
            }
            for (block, may_go) in self.list.blocks.iter().zip(&mut may_go) {
                *may_go &= !kept.contains(&block.address.file);
            }
        };
        let kernel = view.engine().kernel();
        let has_masks = view.snapshot().masks().is_some();
        let has_many_masks = has_masks && kernel.mask_bytes()? > MANY_MASKS_BYTES;
        let goes_for_any = |file| has_many_masks && first_files.contains(&file);
        let due = self.due_for_deleted_rows(view, &groups, goes_for_any);
        Ok(self.within_budget([groups, due].concat()))
    }

    /// Blocks outside of fragments, and one block of each fragment, that are written anew because many of their rows are deleted, or
    /// any in a file of which `goes_for_any` says so; none that is written anew for these groups or for what is merged.
    fn due_for_deleted_rows(
        &self,
        view: &TableView,
        groups: &[Range<usize>],
        goes_for_any: impl Fn(FileId) -> bool,
    ) -> Vec<Range<usize>> {
        let Some(masks) = view.snapshot().masks() else {
            return Vec::new();
        };
        let mut goes = vec![false; self.list.blocks.len()];
        for group in groups {
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
        let most_rows = u64::from(view.definition().block_rows());
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
                && rows + block.rows <= most_rows
                && bytes + block.block_bytes <= MOST_PACKED_BYTES
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

    /// Fragments with blocks in these groups that are not worth being written anew for them. A file is as due as a lone block
    /// where a block goes for every few megabytes of it: so the copying that a short block can cause is bounded, and a file
    /// in order, which has few of them, is left alone.
    fn files_not_worth_it(&self, view: &TableView, groups: &[Range<usize>]) -> HashSet<FileId> {
        let small_bytes = view.engine().options().append_limits.split_fragment_bytes;
        let rewritten = self.rewritten_files();
        let mut going: HashMap<FileId, u64> = HashMap::new();
        for group in groups {
            for (nth, block) in self.list.blocks[group.clone()].iter().enumerate() {
                // All but the first of a group go.
                *going.entry(block.address.file).or_default() += u64::from(nth > 0);
            }
        }
        let is_worth_it = |file: &FileId, going: u64| {
            let fragment = self.list.fragments.get(file);
            fragment.is_none_or(|fragment| {
                rewritten.contains(file)
                    || fragment.bytes <= small_bytes.saturating_mul(going.max(1))
            })
        };
        let of_files = going.into_iter();
        of_files
            .filter(|(file, going)| !is_worth_it(file, *going))
            .map(|(file, _)| file)
            .collect()
    }

    /// The first groups, as many as one step takes, and what else is to be done in the files that they are in: a file is
    /// written anew once, not once for each step.
    fn within_budget(&self, groups: Vec<Range<usize>>) -> Vec<Range<usize>> {
        let mut budget = self.size.rows;
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
            budget = budget.saturating_sub(blocks.iter().map(cost).sum());
            removed += lone;
            touched.extend(files);
            taken.push(group);
        }
        taken
    }

    /// Parts of a group that can each be one block, one behind the other: what is cut off one begins the next.
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

    /// As much of a group as can have the commit and number of its first block, if that is more than one block: rows of
    /// the block behind it may have the key of its last row, and must not come to lie before that row.
    fn in_place_of_first(&self, mut group: Range<usize>) -> Option<Range<usize>> {
        let blocks = &self.list.blocks;
        let comes_first = |group: &Range<usize>| {
            let (first, last) = (&blocks[group.start], &blocks[group.end - 1]);
            let same_key = |(block, _): &(&Entry, &Range<usize>)| block.key_min <= last.key_max;
            let mut behind = { blocks.iter().zip(&self.cuts).skip(group.end) }.take_while(same_key);
            // What a block that is merged in the same step becomes may come before the rows of this group that it came behind.
            behind.all(|(next, cut)| cut.is_empty() && arrival(first) < arrival(next))
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
    fn rewritten_files(&self) -> HashSet<FileId> {
        let blocks = self.list.blocks.iter().zip(&self.cuts);
        blocks
            .filter(|(block, cut)| {
                !cut.is_empty() && self.list.fragments.contains_key(&block.address.file)
            })
            .map(|(block, _)| block.address.file)
            .collect()
    }

    /// Writes the new fragments and puts them in the place of the old blocks.
    fn run(&self, table: &Table, view: &TableView, go_on: &dyn Fn() -> bool) -> Result<Ran> {
        let mut packed = vec![false; self.list.blocks.len()];
        for group in &self.packs {
            packed[group.clone()].fill(true);
        }
        let file_of = |at: usize| self.list.blocks[at].address.file;
        let mut rewritten = self.rewritten_files();
        rewritten.extend(
            (0..packed.len())
                .filter(|at| packed[*at] && self.list.fragments.contains_key(&file_of(*at)))
                .map(file_of),
        );
        let mut removed: Vec<ItemName> = Vec::new();
        let mut parts: Vec<(i64, Part)> = Vec::new();
        let mut between = Vec::new();
        for (at, block) in self.list.blocks.iter().enumerate() {
            let is_touched = packed[at] || !self.cuts[at].is_empty();
            let in_fragment = self.list.fragments.contains_key(&file_of(at));
            if is_touched && !in_fragment {
                removed.push(ItemName::of(block));
            } else if !is_touched && rewritten.contains(&file_of(at)) {
                if self.merged.contains(&block.first_commit) {
                    parts.push((block.key_min, Part::Copy(at)));
                } else {
                    between.push(at);
                }
            }
            if !self.cuts[at].is_empty() {
                parts.extend(
                    self.pieces(at)
                        .map(|keys| (keys.first, Part::Piece(at, keys))),
                );
            }
        }
        removed.extend(rewritten.iter().map(|file| self.list.fragments[file].item));
        let merges = self.merges.iter().enumerate();
        parts.extend(merges.map(|(number, merge)| (merge.keys.first, Part::Merge(number))));
        let packs = self.packs.iter();
        parts.extend(packs.map(|group| {
            let key = self.list.blocks[group.start].key_min;
            (key, Part::Pack(group.clone()))
        }));
        parts.sort_by_key(|(key, _)| *key);

        let mut writer = Writer {
            step: self,
            table,
            view,
            go_on,
            output: Output::default(),
            ran: Ran::default(),
        };
        for (_, part) in parts {
            writer.write(part)?;
        }
        // In files of their own: their keys may lie between those of the new blocks.
        writer.output.finish_fragment()?;
        between.into_iter().try_for_each(|at| writer.copy(at))?;
        if !writer.ran.has_changed {
            return Ok(writer.ran);
        }
        // All that is written was read without the rows that were deleted then.
        let masks = view.snapshot().masks();
        let hidden = { removed.iter() }.filter_map(|item| masks?.of_item(item));
        let left_out = hidden.map(MaskList::rows).sum();
        let edit = Edit::Replace(ReplaceEdit {
            left_out,
            ..ReplaceEdit::of_rows(table.id(), removed, writer.output.into_fragments()?)
        });
        let commit = Commit {
            edits: vec![edit],
            prepared_at: Some(view.snapshot().commit()),
            ..Commit::default()
        };
        table.engine().kernel().commit(commit, Durability::Disk)?;
        Ok(writer.ran)
    }

    /// The keys of a block between and beside the ranges that are merged.
    fn pieces(&self, at: usize) -> impl Iterator<Item = KeyRange> {
        let block = &self.list.blocks[at];
        let mut gaps = Vec::new();
        let mut next = Some(block.key_min);
        for merge in &self.merges[self.cuts[at].clone()] {
            if let Some(first) = next.filter(|first| *first < merge.keys.first) {
                gaps.push(KeyRange {
                    first,
                    last: merge.keys.first - 1,
                });
            }
            next = merge.keys.last.checked_add(1);
        }
        if let Some(first) = next {
            gaps.push(KeyRange {
                first,
                last: block.key_max,
            });
        }
        gaps.into_iter().filter(|keys| !keys.is_empty())
    }
}

/// Writes the parts of a step.
struct Writer<'a> {
    step: &'a Step,
    table: &'a Table,
    view: &'a TableView,
    go_on: &'a dyn Fn() -> bool,
    output: Output,
    ran: Ran,
}

impl Writer<'_> {
    fn write(&mut self, part: Part) -> Result<()> {
        check(self.go_on)?;
        match part {
            Part::Copy(at) => self.copy(at),
            Part::Piece(at, keys) => self.piece(at, keys),
            Part::Merge(number) => self.merge(number),
            Part::Pack(group) => self.pack(group),
        }
    }

    fn block(&self, at: usize) -> &Entry {
        &self.step.list.blocks[at]
    }

    fn stage(&mut self, block: &EncodedBlock) -> Result<()> {
        self.output.stage(self.table, self.view.definition(), block)
    }

    /// A block as it is; one with deleted rows without these.
    fn copy(&mut self, at: usize) -> Result<()> {
        if self.step.list.masked.contains_key(&at) {
            self.ran.has_changed = true;
            return self.piece(at, KeyRange::ALL);
        }
        let entry = self.block(at).clone();
        let store = self.view.engine().kernel().store();
        let bytes = store.block(&entry.address)?.copy()?;
        self.stage(&EncodedBlock { bytes, entry })
    }

    /// A part of a block is told from the others by its keys, and from other blocks as its block was.
    fn piece(&mut self, at: usize, keys: KeyRange) -> Result<()> {
        let block = self.step.list.block(at);
        let rows = Reader::new(self.view, None, keys)?.sorted_block(&block)?;
        let entry = block.entry;
        if rows.keys.is_empty() {
            return Ok(());
        }
        // One block, unless a later definition made the rows longer than a block may be. Such blocks differ in their
        // smallest key, or the kernel refuses the step.
        for mut block in self.encode(&rows)? {
            block.entry = block
                .entry
                .committed(entry.commit_min, entry.commit_max, entry.ordinal);
            self.stage(&block)?;
        }
        Ok(())
    }

    fn encode(&self, rows: &Sorted) -> Result<Vec<EncodedBlock>> {
        let encoders = self.view.engine().encoders();
        let (table, definition) = (self.table.id(), self.view.definition());
        encoders.encode(table, definition, &rows.batch, &rows.keys)
    }

    /// The rows of some blocks, all those of a range that are not later ones.
    fn merge(&mut self, number: usize) -> Result<()> {
        let Merge { keys, blocks } = &self.step.merges[number];
        let entries: Vec<Entry> = blocks.iter().map(|at| self.block(*at).clone()).collect();
        let first = entries.iter().map(|entry| entry.commit_min).min();
        let last = entries.iter().map(|entry| entry.commit_max).max();
        let (Some(first), Some(last)) = (first, last) else {
            return Ok(());
        };
        self.ran.has_changed = true;
        let block_rows = self.view.definition().block_rows() as usize;
        let found = blocks.iter().map(|at| self.step.list.block(*at));
        let mut rows = scan_blocks(self.view, found.collect(), *keys)?;
        let mut gathered: Vec<RecordBatch> = Vec::new();
        let mut ordinal = 0;
        loop {
            let batch = rows.next().transpose()?;
            let at_end = batch.is_none();
            gathered.extend(batch);
            let bytes: usize = gathered.iter().map(raw_bytes).sum();
            let count: usize = gathered.iter().map(RecordBatch::num_rows).sum();
            if !at_end && count < GATHERED_BLOCKS * block_rows && bytes < GATHERED_BYTES {
                continue;
            }
            check(self.go_on)?;
            if count > 0 {
                let batch = concat(self.view.definition(), &gathered)?;
                let keys = self.view.definition().keys_of(&batch)?;
                let mut cuts = cutter(self.view.definition(), None).blocks(&keys);
                // The last one may go on.
                let kept = if at_end || cuts.len() < 2 {
                    None
                } else {
                    cuts.pop()
                };
                let whole = Sorted {
                    keys,
                    batch,
                    arrival: Default::default(),
                };
                for cut in cuts {
                    for mut block in self.encode(&whole.slice(cut.start, cut.len()))? {
                        block.entry = block.entry.committed(first, last, ordinal);
                        self.ran.rows += block.entry.rows;
                        ordinal += 1;
                        self.stage(&block)?;
                    }
                }
                gathered.clear();
                gathered.extend(kept.map(|kept| whole.batch.slice(kept.start, kept.len())));
            }
            if at_end {
                return Ok(());
            }
        }
    }

    /// Blocks that follow each other become one, in the place of the first.
    fn pack(&mut self, group: Range<usize>) -> Result<()> {
        let entries = &self.step.list.blocks[group.clone()];
        let (first, last) = (
            entries[0].commit_min,
            entries.iter().map(|e| e.commit_max).max(),
        );
        let ordinal = entries[0].ordinal;
        let found = group.clone().map(|at| self.step.list.block(at));
        let batches =
            scan_blocks(self.view, found.collect(), KeyRange::ALL)?.collect::<Result<Vec<_>>>()?;
        let batch = concat(self.view.definition(), &batches)?;
        let rows = Sorted {
            keys: self.view.definition().keys_of(&batch)?,
            batch,
            arrival: Default::default(),
        };
        let blocks = self.encode(&rows)?;
        let Ok([mut block]) = <[EncodedBlock; 1]>::try_from(blocks) else {
            // A later definition made the rows longer since they were measured.
            let addresses = group.clone().map(|at| self.block(at).address);
            self.ran.left_alone.extend(addresses.collect::<Vec<_>>());
            return group.into_iter().try_for_each(|at| self.copy(at));
        };
        self.ran.has_changed = true;
        block.entry = block.entry.committed(first, last.unwrap_or(first), ordinal);
        self.ran.rows += block.entry.rows;
        self.stage(&block)
    }
}
