//! Counts late rows by reading only those parts of an index that are not in order.
//!
//! Invariants: a page in order that overlaps none of its neighbours is not read, so that a table in order costs its root, however
//! large it is, and one with a few late blocks the pages around them. Nor is a page in order read that lies whole within the keys
//! of older blocks. The late rows are those that a read of all blocks finds.
//!
//! Rejected: counts of late rows in the entries of the index. Whether a block is late depends on all blocks that came before it, so
//! that each commit would change entries all over the index. Keeping facts about all blocks in memory: 100 MB for 10^9 rows, and a
//! full read after each opening.

use crate::block_list::{Place, overlaps};
use crate::deleted_rows::{Block, step_into};
use crate::late::{Came, late_rows};
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BinaryHeap, HashSet};
use std::sync::Arc;
use thalweg_kernel::index::{Entry, EntryKey, Step};
use thalweg_kernel::masks::BlockMask;
use thalweg_kernel::store::Store;
use thalweg_kernel::{CommitNo, Result, TableSnapshot};

/// The name of a page of an index. A page in a fragment may have the name of the page that begins with this fragment; the two are
/// opened together then.
type PageName = (u8, bool, EntryKey);

fn name_of(page: &Entry) -> PageName {
    (page.level, page.fragment, page.key())
}

/// A block, or a page in order.
struct Unit {
    page: Option<PageName>,
    came: Came,
    /// The first commit with rows of it.
    first_commit: CommitNo,
    /// Its count of rows includes deleted ones.
    hides: bool,
}

/// Returns how many rows are in blocks that came late: with keys among those of blocks that had come before.
///
/// # Errors
/// When a page cannot be read.
pub(crate) fn late_rows_in_blocks(table: &TableSnapshot, store: &Arc<Store>) -> Result<u64> {
    let mut opened: HashSet<PageName> = HashSet::new();
    loop {
        let (late, pages) = look(table, store, &opened)?;
        if pages.is_empty() {
            return Ok(late);
        }
        opened.extend(pages);
    }
}

/// Returns the number of late rows, which is known only if no page is returned, and the pages in order that have to be opened for
/// it.
fn look(
    table: &TableSnapshot,
    store: &Arc<Store>,
    opened: &HashSet<PageName>,
) -> Result<(u64, Vec<PageName>)> {
    let (mut late, mut pages) = (0, Vec::new());
    let (mut run, mut reach): (Vec<Unit>, Option<Place>) = (Vec::new(), None);
    let mut walk = table.tree.walk(None, Arc::clone(store));
    while let Some(entry) = walk.next_at(|entry, place| match step_into(table, entry, place) {
        Step::Descend if entry.sorted && !opened.contains(&name_of(entry)) => Step::Take,
        step => step,
    })? {
        if !overlaps(reach, &entry) {
            late += late_rows_of_run(&run, &mut pages);
            run.clear();
        }
        reach = reach.max(Some(entry.end()));
        let mut unit = Unit {
            page: (!entry.is_block()).then(|| name_of(&entry)),
            came: Came::of_block(&entry),
            first_commit: entry.commit_min,
            hides: table.hides_below(&entry, walk.place().as_ref()),
        };
        if unit.page.is_none() && unit.hides {
            let hidden = Block::found(table, entry, walk.place()).mask;
            let hidden = hidden.as_ref().map_or(0, BlockMask::rows);
            unit.came.rows = unit.came.rows.saturating_sub(hidden);
        }
        run.push(unit);
    }
    late += late_rows_of_run(&run, &mut pages);
    Ok((late, pages))
}

/// Returns the late rows of a run, in which each unit overlaps what begins before it. Adds to `to_open` the pages that have to be
/// opened to know them.
fn late_rows_of_run(run: &[Unit], to_open: &mut Vec<PageName>) -> u64 {
    if run.len() < 2 {
        return 0;
    }
    let mut late = 0;
    if run.iter().any(|unit| unit.page.is_some()) {
        let mut reaching = Reaching::default();
        for (unit, next) in run.iter().zip(run[1..].iter().map(Some).chain([None])) {
            reaching.go_on_to(unit.came.keys.0);
            if let Some(page) = unit.page {
                let is_apart = next.is_none_or(|next| next.came.keys.0 > unit.came.keys.1);
                // If so, all of its rows are late, and it makes no other rows late.
                match is_apart && !unit.hides && reaching.are_older_blocks_around(unit) {
                    true => late += unit.came.rows,
                    false => to_open.push(page),
                }
            }
            reaching.add(unit);
        }
    }
    let blocks = run.iter().filter(|unit| unit.page.is_none());
    late + late_rows(blocks.map(|unit| unit.came).collect())
}

/// The units of a run that begin before a key and end at it or after it.
#[derive(Default)]
struct Reaching {
    /// Their last keys, the smallest first.
    ends: BinaryHeap<Reverse<(i64, CommitNo, bool)>>,
    /// How many there are of each commit.
    commits: BTreeMap<CommitNo, usize>,
    pages: usize,
}

impl Reaching {
    fn add(&mut self, unit: &Unit) {
        let (commit, is_page) = (unit.came.arrival.commit, unit.page.is_some());
        self.ends.push(Reverse((unit.came.keys.1, commit, is_page)));
        *self.commits.entry(commit).or_default() += 1;
        self.pages += usize::from(is_page);
    }

    /// Removes those that end before a key.
    fn go_on_to(&mut self, key: i64) {
        while let Some(first) = self.ends.peek_mut()
            && first.0.0 < key
        {
            let Reverse((_, commit, is_page)) = PeekMut::pop(first);
            self.pages -= usize::from(is_page);
            if let Slot::Occupied(mut count) = self.commits.entry(commit) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }

    /// Whether all of them are blocks (at least one) that came before all rows of a unit and end after it.
    fn are_older_blocks_around(&self, unit: &Unit) -> bool {
        let ends_first = self.ends.peek().map(|Reverse((end, ..))| *end);
        let came_last = self.commits.last_key_value().map(|(commit, _)| *commit);
        self.pages == 0
            && ends_first.is_some_and(|end| end > unit.came.keys.1)
            && came_last.is_some_and(|commit| commit < unit.first_commit)
    }
}

/// The factor by which the range of keys at the right grows, each time that the one so far was not enough.
const WIDER: u64 = 16;

/// The first keys of wider and wider ranges that end with the largest key of a tree; the last range has all of its keys.
pub(crate) fn ranges_from_right(total: &Entry) -> impl Iterator<Item = i64> + use<> {
    let (key_min, key_max) = (total.key_min, total.key_max);
    let span = key_max.abs_diff(key_min);
    let wider = |width: &u64| Some(width.saturating_mul(WIDER).max(1));
    let widths = std::iter::successors(Some(span >> 16), wider);
    let narrow = widths.take_while(move |width| *width < span);
    let firsts = narrow.map(move |width| key_max.saturating_sub_unsigned(width));
    firsts.chain([key_min])
}

/// For each of some commits, ascending, the largest key of the blocks that came before it, deleted rows too; `None` if none did.
///
/// # Errors
/// When a page cannot be read.
pub(crate) fn high_keys_before(
    commits: &[CommitNo],
    table: &TableSnapshot,
    store: &Arc<Store>,
) -> Result<Vec<Option<i64>>> {
    let mut high_keys: Vec<Option<i64>> = vec![None; commits.len()];
    let Some(total) = table.tree.total().filter(|_| !commits.is_empty()) else {
        return Ok(high_keys);
    };
    // Of the blocks that came between a commit and the one before it.
    let mut between = high_keys.clone();
    let first_after = |commit: CommitNo| commits.partition_point(|other| *other <= commit);
    let none_before = first_after(total.commit_min);
    for first in ranges_from_right(total) {
        let range = first..=total.key_max;
        let mut walk = table.tree.walk(Some(range), Arc::clone(store));
        while let Some(entry) = walk.next(|entry| {
            // Blocks of it came on both sides of a commit.
            let is_split = first_after(entry.commit_min) < first_after(entry.commit_max);
            let is_known = |high: &Option<i64>| high.is_some_and(|high| high >= entry.key_max);
            match between.get(first_after(entry.commit_min)) {
                None => Step::Skip,
                Some(high) if is_known(high) => Step::Skip,
                Some(_) if is_split && !entry.is_block() => Step::Descend,
                Some(_) => Step::Take,
            }
        })? {
            if let Some(high) = between.get_mut(first_after(entry.commit_min)) {
                *high = (*high).max(Some(entry.key_max));
            }
        }
        let mut highest = None;
        for (high_key, high) in high_keys.iter_mut().zip(&between) {
            highest = highest.max(*high);
            *high_key = highest;
        }
        // What begins and ends before the range has smaller keys.
        let is_known = |high: &Option<i64>| high.is_some_and(|high| high >= first);
        if high_keys[none_before..].iter().all(is_known) {
            break;
        }
    }
    Ok(high_keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_list::BlockList;
    use crate::{AppendLimits, CreateOptions, Engine, EngineOptions, KeyRange, Table};
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};

    fn table(engine: &Engine) -> Table {
        let schema = Schema::new(vec![Field::new("ts", DataType::Int64, false)]);
        let of_stream = CreateOptions::stream("ts").with("block_rows", 64);
        engine.create_table("t", &schema, &of_stream).unwrap()
    }

    fn engine() -> Engine {
        let options = EngineOptions {
            background: false,
            segment_bytes: 64 << 10,
            append_limits: AppendLimits {
                raw_bytes: 400,
                gather_bytes: 16_000,
                group_bytes: 1_500,
                fragment_bytes: 8_000,
                split_fragment_bytes: 500,
            },
            maintain_rows: 1_000,
            ..EngineOptions::default()
        };
        Engine::in_memory(options).unwrap()
    }

    fn append(table: &Table, keys: impl Iterator<Item = i64>) {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
        let batch = RecordBatch::try_new(table.schema(), vec![keys]).unwrap();
        table.append([Ok(batch)], None).unwrap();
    }

    /// Compares the late rows and fragments that are found with those that a read of all blocks finds; returns the fragments and
    /// the late rows.
    fn check(table: &Table) -> (u64, u64) {
        let view = table.view().unwrap();
        let (snapshot, store) = (view.snapshot(), view.engine().kernel().store());
        let list = BlockList::read(&view).unwrap();
        let came = list.blocks.iter().enumerate().map(|(at, block)| Came {
            rows: block.rows - list.masks.get(&at).map_or(0, BlockMask::rows),
            ..Came::of_block(block)
        });
        let late = late_rows(came.collect());
        assert_eq!(late_rows_in_blocks(snapshot, store).unwrap(), late);
        let stats = view.stats().unwrap();
        assert_eq!(stats.fragments, list.fragments.len() as u64);

        let mut commits: Vec<CommitNo> =
            (0..=view.snapshot().commit().0 + 1).map(CommitNo).collect();
        commits.push(CommitNo(u64::MAX));
        let before = |commit: &CommitNo| {
            let blocks = list
                .blocks
                .iter()
                .filter(|block| block.first_commit < *commit);
            blocks.map(|block| block.key_max).max()
        };
        let found = high_keys_before(&commits, snapshot, store).unwrap();
        if snapshot.masks().is_none() {
            assert_eq!(found, commits.iter().map(before).collect::<Vec<_>>());
        } else {
            // Blocks that are deleted as a whole count as well.
            let at_least = commits.iter().map(before).zip(&found);
            assert!({ at_least }.all(|(kept, all)| kept <= *all));
        }
        let keys = view.scan(&crate::ScanRequest::default()).unwrap();
        let keys = keys.map(|batch| Arc::clone(batch.unwrap().column(0)));
        let keys: Vec<i64> = keys
            .flat_map(|keys| {
                let keys: &Int64Array = arrow_array::cast::AsArray::as_primitive(&keys);
                keys.values().to_vec()
            })
            .collect();
        assert_eq!(stats.min_key, keys.first().copied());
        assert_eq!(stats.max_key, keys.last().copied());
        (stats.fragments, late)
    }

    #[test]
    fn what_is_found_is_what_a_full_read_finds() {
        let engine = engine();
        let table = table(&engine);
        let (mut seen_late, mut seen_fragments) = (0, 0);
        let older = table.view().unwrap();
        for round in 0_i64..90 {
            let first = round * 1_000;
            match round % 6 {
                // In order, late over all, a few open rows, late and open, many in fragments, deleted.
                0 | 1 => append(&table, first..first + 300),
                2 => append(&table, (0..60).map(|at| at * first.max(60) / 60)),
                3 => append(&table, [first / 2, first].into_iter()),
                4 => append(&table, (first..first + 4_000).step_by(2)),
                _ => {
                    let at = match round % 4 {
                        1 => first / 3,
                        _ => 0,
                    };
                    let keys = KeyRange {
                        first: at,
                        last: at + 700,
                    };
                    table.delete_range(keys, None).unwrap();
                }
            }
            let (fragments, late) = check(&table);
            (seen_late, seen_fragments) = (seen_late.max(late), seen_fragments.max(fragments));
            if round % 17 == 16 {
                let keys = KeyRange {
                    first: first - 3_000,
                    last: i64::MAX,
                };
                table.delete_range(keys, None).unwrap();
                check(&table);
            }
            if round % 13 == 12 {
                engine.run_jobs().unwrap();
                check(&table);
            }
            if round % 29 == 28 {
                table.maintain().unwrap();
                assert_eq!(check(&table).1, 0);
                engine.checkpoint().unwrap();
                check(&table);
            }
            assert_eq!(
                older.stats().unwrap().rows,
                0,
                "an older view is what it was"
            );
        }
        assert!(
            seen_late > 100 && seen_fragments > 1,
            "{seen_late} {seen_fragments}"
        );
        table.delete_range(KeyRange::ALL, None).unwrap();
        check(&table);
    }

    /// Pages that a look reads.
    fn pages_read(table: &Table) -> u64 {
        let view = table.view().unwrap();
        let mut walk = view
            .snapshot()
            .tree
            .walk(None, Arc::clone(view.engine().kernel().store()));
        let in_order = |entry: &Entry| match entry.sorted {
            true => Step::Take,
            false => Step::Descend,
        };
        while walk.next(in_order).unwrap().is_some() {}
        walk.pages()
    }

    #[test]
    fn a_table_in_order_is_not_read() {
        let engine = engine();
        let table = table(&engine);
        // Rows of four sensors at each time, so that blocks begin with the time that the one before ends with: in commits of many
        // blocks, of a few, and of files.
        let mut time = 0;
        for rows in [300, 40_000, 64, 200, 3_000, 20_000, 128] {
            append(&table, (time..time + rows).map(|row| row / 4));
            time += rows;
        }
        engine.flush().unwrap();
        engine.kernel().encode_open_rows(table.id()).unwrap();
        let pages = pages_read(&table);
        assert_eq!(check(&table).1, 0);
        let blocks = table.view().unwrap().totals().blocks;
        assert!(
            blocks > 900 && pages <= 2,
            "{pages} pages of {blocks} blocks"
        );
        // One late commit, and the pages around it.
        append(&table, (5_000..5_200).map(|row| row / 2));
        let pages = pages_read(&table);
        assert!(
            check(&table).1 > 0 && pages <= 4,
            "{pages} pages of {blocks} blocks"
        );
        table.maintain().unwrap();
        let pages = pages_read(&table);
        assert!(check(&table).1 == 0 && pages <= 1, "{pages} pages");
        // After rows of a clock that runs ahead, all rows are late until their times are beyond those.
        append(&table, (0..100).map(|row| time / 4 + row * 1_000_000));
        append(&table, time / 4 + 1..time / 4 + 60_000);
        let late = check(&table).1;
        assert!(late > 59_000, "{late} late rows");
        let (snapshot, store) = (table.view().unwrap(), engine.kernel().store());
        let (found, to_open) = look(snapshot.snapshot(), store, &HashSet::new()).unwrap();
        assert!(to_open.len() <= 1, "{to_open:?}, {found}");
    }
}
