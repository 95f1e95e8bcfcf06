//! The uses of files, brought up to date by what has changed, against walks through whole trees.

use super::super::page::Child;
use super::model::{Op, World, appended, op};
use super::*;
use crate::file_uses::{
    FileUse, KnownUses, OrderUses, Uses, get_uses, may_be_of, put_uses, uses_of,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Follows a tree: its uses as they were last known.
#[derive(Default)]
struct Followed(Option<Arc<KnownUses>>);

impl Followed {
    fn look(&mut self, tree: &Tree, disk: &Disk) -> Result<Uses, (Error, Uses)> {
        let tree = tree.frozen();
        let uses = uses_of(self.0.as_deref(), &tree, disk)?.to_vec();
        self.0 = Some(KnownUses::new(&tree, uses.clone()));
        Ok(uses)
    }
}

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
        let mut uses = Followed::default();
        for (op, is_looked_at) in &ops {
            world.apply(op);
            if *is_looked_at {
                let found = uses.look(&world.tree, &world.disk).unwrap();
                prop_assert_eq!(found, walked(&world));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// As checkpoints do it: by what has changed since the last one, and the pages that this one writes.
    #[test]
    fn uses_of_checkpoints_equal_those_of_whole_walks(ops in prop::collection::vec((op(), any::<bool>()), 1..40)) {
        let mut world = World::default();
        let mut known = KnownUses::new(&Tree::empty(TABLE), Uses::new());
        for (op, is_checkpoint) in &ops {
            if !matches!(op, Op::Checkpoint | Op::Reopen) {
                world.apply(op);
            }
            if !*is_checkpoint {
                continue;
            }
            let mut changes = known.changes(&world.tree, &world.disk).unwrap();
            let mut page_bytes = 0;
            let written = world.tree.write_dirty(&mut |page| {
                let address = world.disk.write(page)?;
                page_bytes += u64::from(address.bytes);
                Ok(address)
            });
            let written = written.unwrap();
            changes.add_pages(FILE, page_bytes);
            let uses = changes.added_to(known.uses()).unwrap();
            let root = written.root().cloned();
            written.publish(&world.disk);
            prop_assert_eq!(&uses, &walked(&world));
            prop_assert!(may_be_of(&uses, root.as_ref()));
            let mut bytes = Vec::new();
            put_uses(Some(&uses), &mut bytes);
            let read = get_uses(&bytes, root.as_ref()).unwrap();
            prop_assert_eq!(read.as_ref(), Some(&uses));
            world.tree = world.tree.trim();
            known = KnownUses::new(&world.tree, uses);
        }
    }

    /// Any bytes are refused, or written again as they were read.
    #[test]
    fn uses_are_read_in_one_spelling(bytes in prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..24), blocks in 0_u64..8) {
        let mut root = Entry::unknown();
        root.level = 1;
        (root.address.file, root.block_bytes) = (FileId(1), blocks);
        for root in [None, Some(&root)] {
            if let Ok(uses) = get_uses(&bytes, root) {
                let mut again = Vec::new();
                put_uses(uses.as_deref(), &mut again);
                prop_assert_eq!(&again, &bytes);
            }
        }
    }
}

#[test]
fn golden_bytes() {
    let used = |file, block_bytes, page_bytes| FileUse {
        file: FileId(file),
        block_bytes,
        page_bytes,
    };
    let uses = [used(7, 0, 300), used(8, 70_000, 0), used(300, 5, 129)];
    let mut bytes = Vec::new();
    put_uses(Some(&uses), &mut bytes);
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, ["0700ac02", "01f0a20400", "a402058101"].concat());
    let mut root = Entry::unknown();
    root.level = 2;
    (root.address.file, root.address.bytes) = (FileId(300), 129);
    root.block_bytes = 70_005;
    let read = |bytes: &[u8], root: &Entry| get_uses(bytes, Some(root));
    assert_eq!(read(&bytes, &root), Ok(Some(uses.to_vec())));
    // Not known.
    assert_eq!(read(&[], &root), Ok(None));
    // The root is longer, lies elsewhere, or has other blocks.
    let lies: [fn(&mut Entry); 3] = [
        |root| root.address.bytes = 130,
        |root| root.address.file = FileId(8),
        |root| root.block_bytes = 70_004,
    ];
    for lie in lies {
        let mut other = root.clone();
        lie(&mut other);
        assert!(read(&bytes, &other).is_err());
    }
    assert!(get_uses(&bytes, None).is_err());
    // A file twice, and one of which nothing is used.
    assert!(read(&[&bytes[..], &[0, 1, 1]].concat(), &root).is_err());
    assert!(read(&[&bytes[..], &[1, 0, 0]].concat(), &root).is_err());
}

/// A list of a checkpoint is decoded and checked by whoever asks for it.
#[test]
fn stored_lists_are_checked_when_they_are_asked_for() {
    let used = |file| FileUse {
        file: FileId(file),
        block_bytes: 1_000,
        page_bytes: 90,
    };
    for files in [1_u64, 2, 40] {
        let uses: Uses = (1..=files).map(used).collect();
        let mut root = Entry::unknown();
        root.level = 1;
        (root.address.file, root.address.bytes) = (FileId(1), 90);
        root.block_bytes = 1_000 * files;
        let mut list = Vec::new();
        put_uses(Some(&uses), &mut list);
        let tree = Tree::from_root(TABLE, Some(root.clone()));
        let stored = OrderUses::stored(&tree, &list);
        let known = stored.known().unwrap().unwrap();
        assert!(known.is_of(&tree));
        assert_eq!(known.uses(), uses);
        root.block_bytes += 1;
        let other = Tree::from_root(TABLE, Some(root));
        assert!(OrderUses::stored(&other, &list).known().is_err());
        assert!(OrderUses::stored(&other, &[]).known().unwrap().is_none());
        let empty = Tree::empty(TABLE);
        assert!(OrderUses::stored(&empty, &list).known().is_err());
    }
    let nothing = OrderUses::of_nothing(TABLE);
    assert_eq!(nothing.known().unwrap().unwrap().uses(), []);
}

/// How many pages are read for the uses.
fn loads(uses: &mut Followed, tree: &Tree, disk: &Disk) -> u64 {
    let before = disk.loads.get();
    uses.look(tree, disk).unwrap();
    disk.loads.get() - before
}

#[test]
fn only_pages_that_have_changed_are_read() {
    let (disk, tree, mut freed) = appended(4_000);
    let tree = Tree::from_root(TABLE, disk.checkpoint(&tree));
    let levels = u64::from(tree.total().unwrap().level);
    let mut uses = Followed::default();
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
    let mut uses = Followed::default();
    world.apply(&Op::Append(40));
    let before = uses.look(&world.tree, &world.disk).unwrap();
    assert!(before.iter().all(|used| used.page_bytes == 0));
    // The pages in memory learn their places.
    world.apply(&Op::Checkpoint);
    let after = uses.look(&world.tree, &world.disk).unwrap();
    assert_eq!(after, walked(&world));
    assert!(after.iter().any(|used| used.page_bytes > 0));
}

#[test]
fn where_an_old_page_cannot_be_read_the_new_tree_says_everything() {
    let (disk, tree, mut freed) = appended(400);
    let old = Tree::from_root(TABLE, disk.checkpoint(&tree));
    let mut uses = Followed::default();
    uses.look(&old, &disk).unwrap();
    let new = tree
        .insert(block(1_234, 0, 1, 2), &disk, &mut freed)
        .unwrap();
    let new = Tree::from_root(TABLE, disk.checkpoint(&new));
    let mut whole = Followed::default();
    let expected = whole.look(&new, &disk).unwrap();
    let at = old.root_entry().unwrap().address.offset as usize;
    disk.bytes.borrow_mut()[at] ^= 1;
    assert_eq!(uses.look(&new, &disk).unwrap(), expected);
    // A tree with such a page is refused, with what was found above it.
    let first_leaf = *disk.written.borrow().keys().next().unwrap() as usize;
    disk.bytes.borrow_mut()[first_leaf] ^= 1;
    let (_, found) = Followed::default().look(&new, &disk).unwrap_err();
    assert!(found.iter().any(|used| used.page_bytes > 0));
}
