//! Random changes, walks and checkpoints against a sorted list.

use super::super::page::{Child, unwritten_below};
use super::*;
use crate::summary::ValueRange;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Blocks of one commit: key, span, value, columns.
    Insert(Vec<(i64, u32, i64, usize)>),
    /// Blocks after everything so far, as a stream in order writes them.
    Append(usize),
    /// A fragment of blocks that have no commit of their own.
    Fragment(Vec<(i64, u32, i64, usize)>),
    /// Removes every nth item from an offset on: the offset, n, the blocks that come in their place.
    Replace(usize, usize, Vec<(i64, u32, i64, usize)>),
    /// All items of a key range go.
    RemoveRange(i64, i64),
    /// Removes runs of items, with as many items left between them: the offset of the first run, how many runs, how many items of
    /// each, the blocks that come in their place.
    RemoveRuns(usize, usize, usize, Vec<(i64, u32, i64, usize)>),
    Checkpoint,
    Trim,
    Reopen,
}

fn blocks() -> impl Strategy<Value = Vec<(i64, u32, i64, usize)>> {
    prop::collection::vec((-12_i64..12, 0_u32..9, -40_i64..40, 0_usize..8), 1..12)
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => blocks().prop_map(Op::Insert),
        4 => (1_usize..20).prop_map(Op::Append),
        2 => blocks().prop_map(Op::Fragment),
        2 => (0_usize..4, 1_usize..6, prop_oneof![Just(vec![]), blocks()]).prop_map(|(from, step, new)| Op::Replace(from, step, new)),
        1 => (-15_i64..40, 0_i64..30).prop_map(|(start, span)| Op::RemoveRange(start, start + span)),
        3 => (0_usize..20, 1_usize..90, 1_usize..60, prop_oneof![2 => Just(vec![]), 1 => blocks()])
            .prop_map(|(from, count, length, new)| Op::RemoveRuns(from, count, length, new)),
        2 => Just(Op::Checkpoint),
        2 => Just(Op::Trim),
        1 => Just(Op::Reopen),
    ]
}

/// The content of the table: items as they were inserted, and the blocks below each.
#[derive(Clone, Default)]
pub(super) struct Model(pub(super) BTreeMap<EntryKey, (Entry, Vec<Entry>)>);

impl Model {
    pub(super) fn blocks(&self) -> Vec<Entry> {
        let mut blocks: Vec<Entry> = self
            .0
            .values()
            .flat_map(|(_, blocks)| blocks.clone())
            .collect();
        blocks.sort_by_key(Entry::key);
        blocks
    }
}

pub(super) struct World {
    pub(super) disk: Disk,
    pub(super) tree: Tree,
    pub(super) model: Model,
    freed: Vec<Address>,
    fragment_pages: BTreeSet<u64>,
    commit: u64,
}

impl Default for World {
    fn default() -> Self {
        Self {
            disk: Disk::default(),
            tree: Tree::empty(TABLE),
            model: Model::default(),
            freed: Vec::new(),
            fragment_pages: BTreeSet::new(),
            commit: 0,
        }
    }
}

impl World {
    fn items(&mut self, blocks: &[(i64, u32, i64, usize)]) -> Vec<(Entry, Vec<Entry>)> {
        self.commit += 1;
        let commit = CommitNo(self.commit);
        let item = |(ordinal, &(key, span, value, columns))| {
            let mut item = block(key, span, value, columns);
            // Each block is written somewhere else.
            item.address.file = FileId(100 + commit.0 % 5);
            item.address.offset = (commit.0 << 20) + ordinal as u64;
            let item = item.committed(commit, commit, ordinal as u32);
            (item.clone(), vec![item])
        };
        blocks.iter().enumerate().map(item).collect()
    }

    fn fragment(&mut self, blocks: &[(i64, u32, i64, usize)]) -> (Entry, Vec<Entry>) {
        self.commit += 1;
        let (commit, first) = (CommitNo(self.commit), 5);
        let number =
            |(ordinal, &(key, span, value, columns)): (usize, &(i64, u32, i64, usize))| Entry {
                ordinal: ordinal as u32,
                ..block(key, span, value, columns)
            };
        let unnamed: Vec<Entry> = blocks.iter().enumerate().map(number).collect();
        let tree = Tree::empty(TABLE)
            .insert_many(unnamed.clone(), &self.disk, &mut Vec::new())
            .unwrap();
        let before: BTreeSet<u64> = self.disk.written.borrow().keys().copied().collect();
        let root = self
            .disk
            .checkpoint(&tree)
            .unwrap()
            .into_fragment()
            .committed(commit, commit, first);
        let written = self.disk.written.borrow();
        self.fragment_pages
            .extend(written.keys().filter(|offset| !before.contains(offset)));
        let named = unnamed.into_iter().map(|block| {
            let ordinal = block.ordinal + first;
            block.committed(commit, commit, ordinal)
        });
        (root, named.collect())
    }

    /// Items of the model in runs, every other stretch of `length`.
    fn runs(&self, from: usize, count: usize, length: usize) -> Vec<Run> {
        let items: Vec<&Entry> = self.model.0.values().map(|(item, _)| item).collect();
        let items = items.iter().skip(from).take(count).collect::<Vec<_>>();
        let run = |items: &[&&Entry]| Run {
            first: items[0].key(),
            last: items[items.len() - 1].key(),
            blocks: items.iter().map(|item| item.blocks).sum(),
            rows: items.iter().map(|item| item.rows).sum(),
        };
        items.chunks(length).step_by(2).map(run).collect()
    }

    /// Takes runs out; to take the same items out by name has to make the same pages. Pages that are not read are not
    /// reported as freed.
    fn replace_runs(&mut self, runs: &[Run], added: Vec<(Entry, Vec<Entry>)>) {
        let is_in = |key: &EntryKey| runs.iter().any(|run| (run.first..=run.last).contains(key));
        let removed: Vec<EntryKey> = self.model.0.keys().copied().filter(is_in).collect();
        let items: Vec<Entry> = added.iter().map(|(item, _)| item.clone()).collect();
        let before = self.tree.clone();
        let (mut freed, mut reported) = (Vec::new(), Vec::new());
        let by_names = before.replace(&removed, items.clone(), &self.disk, &mut freed);
        let by_runs = before.replace_runs(&[], runs, items, &self.disk, &mut reported);
        let (by_names, by_runs) = (by_names.unwrap(), by_runs.unwrap());
        assert_eq!(shape(&by_names, &self.disk), shape(&by_runs, &self.disk));
        assert_eq!(by_names.unwritten_bytes(), by_runs.unwritten_bytes());
        let freed: BTreeSet<u64> = freed.iter().map(|address| address.offset).collect();
        assert!(
            reported
                .iter()
                .all(|address| freed.contains(&address.offset))
        );
        self.replace(&removed, added);
        self.tree = by_runs;
    }

    /// Checks that the changed bytes of a commit are known before it is applied.
    fn check_changed_bytes(&self, removed: &[EntryKey], items: &[Entry], freed: &[Address]) {
        let changed =
            (self.tree).changed_bytes(removed, &[], items.iter().map(Entry::key), &self.disk);
        let replaced: u64 = freed.iter().map(|page| u64::from(page.bytes)).sum();
        assert!(
            replaced <= changed.unwrap(),
            "{replaced} bytes of pages are replaced"
        );
    }

    fn replace(&mut self, removed: &[EntryKey], added: Vec<(Entry, Vec<Entry>)>) {
        for key in removed {
            self.model.0.remove(key).unwrap();
        }
        let items: Vec<Entry> = added.iter().map(|(item, _)| item.clone()).collect();
        self.model.0.extend(
            added
                .into_iter()
                .map(|(item, blocks)| (item.key(), (item, blocks))),
        );
        let mut freed = Vec::new();
        let changed = self
            .tree
            .replace(removed, items.clone(), &self.disk, &mut freed);
        self.check_changed_bytes(removed, &items, &freed);
        self.freed.extend(freed);
        self.tree = changed.unwrap();
    }

    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Insert(blocks) => {
                let items = self.items(blocks);
                self.replace(&[], items);
            }
            Op::Append(count) => {
                let start = self
                    .model
                    .blocks()
                    .iter()
                    .map(|block| block.key_max)
                    .max()
                    .unwrap_or(0);
                for step in 0..*count as i64 {
                    let items = self.items(&[(start + step, 1, step, 2)]);
                    self.replace(&[], items);
                }
            }
            Op::Fragment(blocks) => {
                let item = self.fragment(blocks);
                self.replace(&[], vec![item]);
            }
            Op::Replace(from, step, blocks) => {
                let removed: Vec<EntryKey> = self
                    .model
                    .0
                    .keys()
                    .skip(*from)
                    .step_by(*step)
                    .copied()
                    .collect();
                let mut items = self.items(blocks);
                // One of the new ones takes the place of an old one: same key.
                if let (Some(key), Some((item, below))) = (removed.first(), items.first_mut()) {
                    let span = item.key_max - item.key_min;
                    *item = Entry {
                        key_min: key.key_min,
                        key_max: key.key_min + span,
                        ..item.clone()
                    }
                    .committed(key.commit, key.commit, key.ordinal);
                    *below = vec![item.clone()];
                }
                self.replace(&removed, items);
            }
            Op::RemoveRange(start, end) => {
                let removed: Vec<EntryKey> = self
                    .model
                    .0
                    .keys()
                    .filter(|key| (*start..=*end).contains(&key.key_min))
                    .copied()
                    .collect();
                self.replace(&removed, vec![]);
            }
            Op::RemoveRuns(from, count, length, blocks) => {
                let runs = self.runs(*from, *count, *length);
                let items = self.items(blocks);
                self.replace_runs(&runs, items);
            }
            Op::Checkpoint => {
                self.disk.checkpoint(&self.tree);
                assert!(!self.tree.is_dirty());
            }
            Op::Trim => self.tree = self.tree.trim(),
            Op::Reopen => {
                let root = self.disk.checkpoint(&self.tree);
                assert_eq!(root, self.tree.root_entry());
                self.tree = Tree::from_root(TABLE, root);
            }
        }
    }

    /// Every page that was ever written is in use by the tree, or was reported as freed, once.
    fn check_garbage(&self) {
        let mut used = BTreeSet::new();
        let mut walk = self.tree.walk(None, &self.disk);
        let taken = walk
            .next(|entry| {
                if entry.is_block() {
                    return Step::Skip;
                }
                let fresh =
                    entry.address == Address::default() || used.insert(entry.address.offset);
                assert!(fresh, "a page is used twice");
                Step::Descend
            })
            .unwrap();
        assert!(taken.is_none());
        let freed: BTreeSet<u64> = self.freed.iter().map(|address| address.offset).collect();
        assert_eq!(freed.len(), self.freed.len(), "a page was freed twice");
        assert!(freed.is_disjoint(&used), "a page in use was freed");
        let written: BTreeSet<u64> = self.disk.written.borrow().keys().copied().collect();
        if !self.tree.is_dirty()
            && self
                .tree
                .total()
                .is_some_and(|root| root.address != Address::default())
        {
            let known: BTreeSet<u64> = &(&freed | &used) | &self.fragment_pages;
            assert_eq!(known, written, "a written page is neither used nor freed");
        }
    }
}

fn check(tree: &Tree, model: &Model, disk: &Disk) {
    tree.check_invariants(disk).unwrap();
    let known = tree.root.as_ref().map_or(0, |root| unwritten_below(root));
    assert!(
        known <= tree.unwritten_bytes(),
        "pages may be written since"
    );
    assert_eq!(tree.trim().unwritten_bytes(), known);
    let blocks = model.blocks();
    let walked: Vec<Entry> = tree.iter(None, disk).collect::<Result<_>>().unwrap();
    assert_eq!(walked, blocks);
    assert_eq!(
        tree.total().map(|total| total.rows),
        blocks
            .iter()
            .map(|block| Some(block.rows))
            .sum::<Option<u64>>()
            .filter(|rows| *rows > 0)
    );
    for (start, end) in [
        (-12, -12),
        (-3, 4),
        (0, 0),
        (5, 60),
        (i64::MIN, 3),
        (70, i64::MAX),
    ] {
        let inside = |block: &&Entry| block.key_min <= end && block.key_max >= start;
        let expected: Vec<&Entry> = blocks.iter().filter(inside).collect();
        let walked: Vec<Entry> = tree
            .iter(Some(start..=end), disk)
            .collect::<Result<_>>()
            .unwrap();
        assert_eq!(
            walked.iter().collect::<Vec<_>>(),
            expected,
            "{start}..={end}"
        );
        check_aggregate(tree, disk, &expected, start, end);
    }
    for low in [-60, -7, 30, 44, 60] {
        check_pruning(tree, disk, &blocks, low);
    }
}

/// Entries within the range answer as they are, those at its edges by their blocks.
fn check_aggregate(tree: &Tree, disk: &Disk, expected: &[&Entry], start: i64, end: i64) {
    let (mut rows, mut blocks, mut sum) = (0, 0, 0);
    let mut covered_rows = 0;
    tree.visit(Some(start..=end), disk, &mut |entry| {
        let inside = start <= entry.key_min && entry.key_max <= end;
        if !inside && !entry.is_block() {
            return Step::Descend;
        }
        rows += entry.rows;
        blocks += entry.blocks;
        if let Some(column) = entry.columns.of_column(1) {
            covered_rows += column.rows();
            sum += column.int_sum().unwrap();
        }
        Step::Take
    })
    .unwrap();
    let of_column = |entry: &&&Entry| entry.columns.of_column(1).is_some();
    assert_eq!(rows, expected.iter().map(|entry| entry.rows).sum::<u64>());
    assert_eq!(blocks, expected.len() as u64);
    assert_eq!(
        covered_rows,
        expected
            .iter()
            .filter(of_column)
            .map(|entry| entry.rows)
            .sum::<u64>()
    );
    let sums = expected
        .iter()
        .filter_map(|entry| entry.columns.of_column(1))
        .map(|column| column.int_sum().unwrap());
    assert_eq!(sum, sums.sum::<i128>());
}

/// A walk that prunes finds exactly the blocks that cannot be pruned themselves.
fn check_pruning(tree: &Tree, disk: &Disk, blocks: &[Entry], low: i64) {
    let range = ValueRange::Int(Some(low), Some(low + 9));
    let float = ValueRange::Float {
        min: Some(low as f64 / 8.0),
        max: None,
        accepts_nan: true,
    };
    let pruned = |entry: &Entry| {
        entry.prunes(1, &range) || entry.prunes(4, &float) || entry.prunes(900, &float)
    };
    let mut found = Vec::new();
    let mut walk = tree.walk(None, disk);
    while let Some(entry) = walk
        .next(|entry| {
            if pruned(entry) {
                Step::Skip
            } else {
                Step::Descend
            }
        })
        .unwrap()
    {
        found.push(entry);
    }
    let expected: Vec<Entry> = blocks
        .iter()
        .filter(|block| !pruned(block))
        .cloned()
        .collect();
    assert_eq!(found, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn trees_equal_sorted_lists(ops in prop::collection::vec(op(), 1..40)) {
        let mut world = World::default();
        let mut history = Vec::new();
        for op in &ops {
            world.apply(op);
            check(&world.tree, &world.model, &world.disk);
            world.check_garbage();
            history.push((world.tree.clone(), world.model.clone()));
        }
        // Old trees answer as they did.
        for (tree, model) in history.iter().step_by(3) {
            check(tree, model, &world.disk);
        }
    }
}

/// The pages of a tree: the level of each, and the keys on it.
fn shape(tree: &Tree, disk: &Disk) -> Vec<(u8, Vec<EntryKey>)> {
    let mut pages = Vec::new();
    let mut below: Vec<Arc<Child>> = tree.root.iter().cloned().collect();
    while let Some(child) = below.pop() {
        let page = match &child.page {
            Some(page) => Arc::clone(page),
            None => disk.load_page(TABLE, &child.entry).unwrap(),
        };
        pages.push((page.level(), page.entries().map(Entry::key).collect()));
        if page.level() > 1 {
            below.extend(page.children().iter().cloned());
        }
    }
    pages
}

/// The same history, with checkpoints and pages that leave the memory, or with none.
fn replayed(ops: &[Op], keeps_in_memory: bool) -> Vec<Vec<(u8, Vec<EntryKey>)>> {
    let mut world = World::default();
    let mut shapes = Vec::new();
    for op in ops {
        let only_moves_pages = matches!(op, Op::Checkpoint | Op::Trim | Op::Reopen);
        if !(keeps_in_memory && only_moves_pages) {
            world.apply(op);
        }
        shapes.push(shape(&world.tree, &world.disk));
    }
    shapes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn what_is_in_memory_decides_no_page(ops in prop::collection::vec(op(), 1..60)) {
        prop_assert_eq!(replayed(&ops, false), replayed(&ops, true));
    }
}

pub(super) fn appended(blocks: i64) -> (Disk, Tree, Vec<Address>) {
    let (disk, mut tree, mut freed) = (Disk::default(), Tree::empty(TABLE), Vec::new());
    for number in 0..blocks {
        let commit = CommitNo(number as u64 + 1);
        let item = block(number, 0, number, 2).committed(commit, commit, 0);
        tree = tree.insert(item, &disk, &mut freed).unwrap();
    }
    (disk, tree, freed)
}

#[test]
fn blocks_in_order_fill_pages_and_load_none() {
    let full = MAX_PAGE_ENTRIES as i64;
    let (disk, tree, freed) = appended(full * full);
    assert_eq!((disk.loads.get(), freed.len()), (0, 0));
    assert_eq!(
        tree.check_invariants(&disk).unwrap(),
        1 + full as u64,
        "every page is full"
    );
    assert_eq!(tree.total().unwrap().level, 2);
}

#[test]
fn an_aggregate_over_all_opens_no_page() {
    let (disk, tree, _) = appended(500);
    let tree = Tree::from_root(TABLE, disk.checkpoint(&tree));
    let mut rows = 0;
    tree.visit(None, &disk, &mut |entry| {
        rows += entry.rows;
        Step::Take
    })
    .unwrap();
    assert_eq!((rows, disk.loads.get()), (1_500, 0));
}

#[test]
fn an_aggregate_over_a_range_opens_two_paths() {
    let (disk, tree, _) = appended(4_000);
    let tree = Tree::from_root(TABLE, disk.checkpoint(&tree));
    let levels = u64::from(tree.total().unwrap().level);
    let mut rows = 0;
    tree.visit(Some(777..=3_333), &disk, &mut |entry| {
        let inside =
            (777..=3_333).contains(&entry.key_min) && (777..=3_333).contains(&entry.key_max);
        if !inside && !entry.is_block() {
            return Step::Descend;
        }
        rows += entry.rows;
        Step::Take
    })
    .unwrap();
    assert_eq!(rows, 3 * (3_333 - 777 + 1));
    assert!(
        disk.loads.get() <= 2 * levels,
        "{} pages of {levels} levels",
        disk.loads.get()
    );
}

#[test]
fn a_walk_loads_pages_when_it_reaches_them() {
    let (disk, tree, _) = appended(500);
    let tree = Tree::from_root(TABLE, disk.checkpoint(&tree));
    let first: Vec<Entry> = tree
        .iter(None, &disk)
        .take(3)
        .collect::<Result<_>>()
        .unwrap();
    assert_eq!(first.len(), 3);
    assert_eq!(disk.loads.get(), u64::from(tree.total().unwrap().level));
}

#[test]
fn a_trimmed_tree_keeps_nothing_that_is_on_disk() {
    let (disk, tree, mut freed) = appended(500);
    disk.checkpoint(&tree);
    let trimmed = tree.trim();
    assert!(
        trimmed
            .root
            .as_ref()
            .is_some_and(|root| root.page.is_none())
    );
    let item = block(1_000, 0, 1, 2).committed(CommitNo(900), CommitNo(900), 0);
    let grown = trimmed.insert(item, &disk, &mut freed).unwrap();
    let levels = usize::from(tree.total().unwrap().level);
    assert_eq!(freed.len(), levels, "one path was copied");
    let written = grown.write_dirty(&mut |page| disk.write(page)).unwrap();
    assert_eq!(written.len(), levels);
    drop(written);
    assert!(
        grown.is_dirty(),
        "pages that were not published are written again"
    );
}

#[test]
fn keys_that_clash_are_refused() {
    let (disk, tree, mut freed) = appended(20);
    let commit = CommitNo(5);
    let twin = block(4, 3, 8, 1).committed(commit, commit, 0);
    let error = tree.insert(twin.clone(), &disk, &mut freed).unwrap_err();
    assert!(error.message().contains("two blocks with key 4"), "{error}");
    let missing = EntryKey {
        key_min: 4,
        commit,
        ordinal: 1,
    };
    let error = tree.remove(&[missing], &disk, &mut freed).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Conflict);
    let replaced = tree
        .replace(&[twin.key()], vec![twin.clone()], &disk, &mut freed)
        .unwrap();
    assert_eq!(
        replaced.iter(Some(4..=4), &disk).last().unwrap().unwrap(),
        twin
    );
    let doubled = tree.insert_many(
        vec![block(90, 0, 1, 1), block(90, 0, 2, 1)],
        &disk,
        &mut freed,
    );
    assert_eq!(doubled.unwrap_err().kind(), crate::ErrorKind::Invalid);
}
