//! The uses of files, brought up to date by what has changed, against walks through whole trees.

use super::super::page::Child;
use super::model::{Op, World, appended, op};
use super::*;
use crate::file_uses::{FileUse, FileUses};
use proptest::prelude::*;
use std::collections::BTreeMap;

const PLACE: (TableId, u32) = (TABLE, 0);

type Expected = BTreeMap<FileId, FileUse>;

fn count(expected: &mut Expected, file: FileId, blocks: u64, pages: u64) {
    let used = expected.entry(file).or_insert(FileUse {
        file,
        block_bytes: 0,
        page_bytes: 0,
    });
    used.block_bytes += blocks;
    used.page_bytes += pages;
}

fn count_pages(child: &Child, disk: &Disk, expected: &mut Expected) {
    if let Some(page) = child.addressed() {
        count(expected, page.address.file, 0, page.address.bytes.into());
    }
    let loaded = || disk.load_page(TABLE, &child.entry).unwrap();
    let page = child.page.clone().unwrap_or_else(loaded);
    if page.level() > 1 {
        for below in page.children() {
            count_pages(below, disk, expected);
        }
    }
}

/// The expected uses: the pages of the whole tree, and the items of the model.
fn walked(world: &World) -> Vec<FileUse> {
    let mut expected = Expected::new();
    if let Some(root) = &world.tree.root {
        count_pages(root, &world.disk, &mut expected);
    }
    for (item, _) in world.model.0.values() {
        let (file, bytes) = (item.address.file, item.address.bytes.into());
        match item.fragment {
            true => count(&mut expected, file, item.block_bytes, bytes),
            false => count(&mut expected, file, bytes, 0),
        }
    }
    expected.into_values().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn uses_that_follow_changes_equal_those_of_whole_walks(ops in prop::collection::vec((op(), any::<bool>()), 1..40)) {
        let mut world = World::default();
        let mut uses = FileUses::default();
        for (op, is_looked_at) in &ops {
            world.apply(op);
            if *is_looked_at {
                let found = uses.of_order(PLACE, &world.tree, &world.disk).unwrap();
                prop_assert_eq!(found, walked(&world));
            }
        }
    }
}

/// How many pages are read for the uses.
fn loads(uses: &mut FileUses, tree: &Tree, disk: &Disk) -> u64 {
    let before = disk.loads.get();
    uses.of_order(PLACE, tree, disk).unwrap();
    disk.loads.get() - before
}

#[test]
fn only_pages_that_have_changed_are_read() {
    let (disk, tree, mut freed) = appended(4_000);
    let tree = Tree::from_root(TABLE, disk.checkpoint(&tree));
    let levels = u64::from(tree.total().unwrap().level);
    let mut uses = FileUses::default();
    assert!(loads(&mut uses, &tree, &disk) > 500);
    assert_eq!(loads(&mut uses, &tree, &disk), 0);
    let commit = CommitNo(9_000);
    let item = block(1_234, 0, 1, 2).committed(commit, commit, 0);
    let grown = tree.insert(item, &disk, &mut freed).unwrap();
    let most = 3 * levels + 1;
    let found = loads(&mut uses, &grown, &disk);
    assert!(found <= most, "{found} pages of {levels} levels");
    // The same once they are on disk, and in an opening that has only these.
    let grown = Tree::from_root(TABLE, disk.checkpoint(&grown));
    let found = loads(&mut uses, &grown, &disk);
    assert!(found <= most, "{found} pages of {levels} levels");
}

#[test]
fn a_page_that_is_written_after_it_was_looked_at_counts() {
    let mut world = World::default();
    let mut uses = FileUses::default();
    world.apply(&Op::Append(40));
    let before: u64 = {
        uses.of_order(PLACE, &world.tree, &world.disk)
            .unwrap()
            .iter()
    }
    .map(|used| used.page_bytes)
    .sum();
    assert_eq!(before, 0);
    // The pages in memory learn their places.
    world.apply(&Op::Checkpoint);
    let after = uses.of_order(PLACE, &world.tree, &world.disk).unwrap();
    assert_eq!(after, walked(&world));
    assert!(after.iter().any(|used| used.page_bytes > 0));
}

#[test]
fn where_an_old_page_cannot_be_read_the_new_tree_says_everything() {
    let (disk, tree, mut freed) = appended(400);
    let old = Tree::from_root(TABLE, disk.checkpoint(&tree));
    let mut uses = FileUses::default();
    uses.of_order(PLACE, &old, &disk).unwrap();
    let new = tree
        .insert(block(1_234, 0, 1, 2), &disk, &mut freed)
        .unwrap();
    let new = Tree::from_root(TABLE, disk.checkpoint(&new));
    let mut whole = FileUses::default();
    let expected = whole.of_order(PLACE, &new, &disk).unwrap().to_vec();
    let at = old.root_entry().unwrap().address.offset as usize;
    disk.bytes.borrow_mut()[at] ^= 1;
    assert_eq!(uses.of_order(PLACE, &new, &disk).unwrap(), expected);
    // A tree with such a page is refused, with what was found above it.
    let first_leaf = *disk.written.borrow().keys().next().unwrap() as usize;
    disk.bytes.borrow_mut()[first_leaf] ^= 1;
    let refused = FileUses::default()
        .of_order(PLACE, &new, &disk)
        .map(<[_]>::to_vec);
    let (_, found) = refused.unwrap_err();
    assert!(found.iter().any(|used| used.page_bytes > 0));
}
