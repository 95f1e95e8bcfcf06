//! Walks by a bound, and differences of trees, against sorted lists.

use super::model::{Model, World, appended, op};
use super::*;
use proptest::prelude::*;

/// How far the values of column 1 are from `value`; nothing is known of blocks without a summary that covers them.
fn distance(entry: &Entry, value: i64) -> f64 {
    let range = { entry.covering_summary(1) }.and_then(ColumnSummary::int_range);
    range.map_or(0.0, |(min, max)| {
        (min - value).max(value - max).max(0) as f64
    })
}

fn check_nearest(world: &World, value: i64) {
    let odd = |entry: &Entry| entry.is_block() && entry.rewritten == 0 && entry.key_min % 3 == 0;
    let mut walk = world.tree.nearest(&world.disk);
    let mut found = Vec::new();
    while let Some((bound, block)) = walk
        .next(|entry| (!odd(entry)).then(|| distance(entry, value)))
        .unwrap()
    {
        assert_eq!(bound.to_bits(), distance(&block, value).to_bits());
        assert!(found.last().is_none_or(|(before, _)| *before <= bound));
        found.push((bound, block));
    }
    let mut found: Vec<Entry> = found.into_iter().map(|(_, block)| block).collect();
    found.sort_by_key(Entry::key);
    let mut expected = world.model.blocks();
    expected.retain(|block| !odd(block));
    assert_eq!(found, expected);
}

/// The items that only one of two models has, those of the old one first.
fn expected_difference(old: &Model, new: &Model) -> Vec<ItemChange> {
    let has = |model: &Model, item: &Entry| {
        let other = model.0.get(&item.key());
        other.is_some_and(|(other, _)| other.address == item.address)
    };
    let removed = { old.0.values() }.filter(|(item, _)| !has(new, item));
    let added = { new.0.values() }.filter(|(item, _)| !has(old, item));
    let removed = removed.map(|(item, _)| (item.key(), 0, ItemChange::Removed(item.clone())));
    let added = added.map(|(item, _)| (item.key(), 1, ItemChange::Added(item.clone())));
    let mut changes: Vec<_> = removed.chain(added).collect();
    changes.sort_by_key(|(key, order, _)| (*key, *order));
    changes.into_iter().map(|(_, _, change)| change).collect()
}

fn difference(old: &Tree, new: &Tree, disk: &Disk) -> Vec<ItemChange> {
    let changes = old.difference(new, disk);
    changes.collect::<Result<_>>().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn walks_by_a_bound_equal_sorted_lists(ops in prop::collection::vec(op(), 1..40), value in -50_i64..50) {
        let mut world = World::default();
        for op in &ops {
            world.apply(op);
            check_nearest(&world, value);
        }
    }

    #[test]
    fn differences_equal_those_of_sorted_lists(ops in prop::collection::vec(op(), 1..40)) {
        let mut world = World::default();
        let mut history = vec![(world.tree.clone(), world.model.clone())];
        for op in &ops {
            world.apply(op);
            history.push((world.tree.clone(), world.model.clone()));
        }
        for step in [1, 2, 7, 31] {
            for pair in history.windows(step + 1) {
                let [(old, before), .., (new, after)] = pair else {
                    continue;
                };
                let expected = expected_difference(before, after);
                prop_assert_eq!(difference(old, new, &world.disk), expected);
                let expected = expected_difference(after, before);
                prop_assert_eq!(difference(new, old, &world.disk), expected);
            }
        }
    }
}

#[test]
fn the_nearest_blocks_open_no_page_that_is_farther_away() {
    let (disk, tree, _) = appended(4_000);
    let tree = Tree::from_root(TABLE, disk.checkpoint(&tree));
    let levels = u64::from(tree.total().unwrap().level);
    let mut walk = tree.nearest(&disk);
    let nearest: Vec<i64> = (0..3)
        .map(|_| walk.next(|entry| Some(distance(entry, 2_001))).unwrap())
        .map(|found| found.unwrap().1.key_min)
        .collect();
    let mut sorted = nearest.clone();
    sorted.sort_unstable();
    assert!(
        sorted.iter().all(|key| (1_996..=2_001).contains(key)),
        "{nearest:?}"
    );
    assert!(
        walk.pages() as u64 <= 2 * levels,
        "{} pages of {levels} levels",
        walk.pages()
    );
}

#[test]
fn a_bound_that_falls_below_that_of_its_page_is_raised() {
    let (disk, tree, _) = appended(40);
    let mut walk = tree.nearest(&disk);
    let bound = |entry: &Entry| Some(if entry.is_block() { f64::NAN } else { 7.0 });
    let (bound, _) = walk.next(bound).unwrap().unwrap();
    assert_eq!(bound.to_bits(), 7.0_f64.to_bits());
}

#[test]
fn a_difference_opens_the_pages_on_the_paths_to_what_changed() {
    let (disk, tree, mut freed) = appended(4_000);
    let tree = Tree::from_root(TABLE, disk.checkpoint(&tree));
    let levels = u64::from(tree.total().unwrap().level);
    let same = tree.difference(&tree.clone(), &disk);
    assert_eq!(same.pages(), 0);
    let commit = CommitNo(9_000);
    let item = block(1_234, 0, 1, 2).committed(commit, commit, 0);
    let grown = tree.insert(item.clone(), &disk, &mut freed).unwrap();
    for newer in [
        grown.clone(),
        Tree::from_root(TABLE, disk.checkpoint(&grown)),
    ] {
        let mut changes = tree.difference(&newer, &disk);
        assert_eq!(
            changes.next().transpose().unwrap(),
            Some(ItemChange::Added(item.clone()))
        );
        assert!(changes.next().is_none());
        // One path of each tree, and as all pages are full, a second half on each level.
        let most = 3 * levels + 1;
        assert!(
            changes.pages() <= most,
            "{} pages of {levels} levels",
            changes.pages()
        );
    }
}

#[test]
fn changes_that_wait_for_a_page_end_walks() {
    let (disk, tree, _) = appended(40);
    let cause = Error::corruption("page", "cannot be read");
    let waiting = tree.defer(
        CommitNo(99),
        Waiting {
            added: vec![block(50, 0, 1, 1)],
            ..Waiting::default()
        },
        cause,
    );
    assert!(waiting.nearest(&disk).next(|_| Some(0.0)).is_err());
    assert!(tree.difference(&waiting, &disk).next().unwrap().is_err());
    assert!(waiting.difference(&tree, &disk).next().unwrap().is_err());
}
