//! The caches are bounded, and never answer for another place or age.

use super::*;
use crate::block::{BlockBuilder, BlockSpec};
use crate::ids::CommitNo;
use crate::index::Tree;
use crate::summary::ColumnSummary;
use thalweg_env::sim::SimEnv;

const TABLE: TableId = TableId(1);

fn machine(cache_bytes: u64) -> (SimEnv, Store) {
    let sim = SimEnv::new(3);
    for folder in ["/db/data", "/db/log"] {
        sim.env()
            .storage()
            .create_dir_all(Path::new(folder))
            .unwrap();
    }
    let store = Store::new(sim.env(), "/db", DatabaseId([9; 16]), cache_bytes);
    (sim, store)
}

fn item(number: i64) -> Entry {
    let summaries = vec![ColumnSummary::of_values(1, &[number], None)];
    let spec = BlockSpec {
        table: TABLE,
        layout: 1,
        level: 0,
        order: 0,
        positions: 1,
        rows: 1,
        key: 0,
        sorted: true,
        implicit_key: false,
    };
    let commit = CommitNo(number.unsigned_abs() + 1);
    BlockBuilder::new(spec, 0)
        .finish((number, number), summaries)
        .unwrap()
        .entry
        .committed(commit, commit, 0)
}

/// Writes the index of some blocks to segment 1 and returns its root.
fn write_index(sim: &SimEnv, store: &Store, blocks: i64) -> Entry {
    let items = (0..blocks).map(item).collect();
    let tree = Tree::empty(TABLE)
        .insert_many(items, store, &mut Vec::new())
        .unwrap();
    let mut bytes = Vec::new();
    let written = tree
        .write_dirty(&mut |page| {
            let offset = bytes.len() as u64;
            Ok(page.seal_into(store.database(), FileId(1), offset, &mut bytes))
        })
        .unwrap();
    sim.write_file(&store.segment_path(FileId(1)), &bytes)
        .unwrap();
    written.root().unwrap().clone()
}

#[test]
fn pages_come_from_memory_the_second_time() {
    let (sim, store) = machine(1 << 20);
    let root = write_index(&sim, &store, 100);
    let tree = Tree::from_root(TABLE, Some(root));
    assert_eq!(tree.iter(None, &store).count(), 100);
    let first = store.counts();
    assert_eq!((first.page_hits, first.files_opened), (0, 1));
    assert!(first.pages_loaded > 10);
    assert_eq!(tree.iter(None, &store).count(), 100);
    let second = store.counts();
    assert_eq!(
        (second.pages_loaded, second.page_hits, second.reads),
        (first.pages_loaded, first.pages_loaded, first.reads)
    );
}

#[test]
fn memory_is_bounded() {
    let (sim, store) = machine(40 << 10);
    let root = write_index(&sim, &store, 2_000);
    let tree = Tree::from_root(TABLE, Some(root));
    for _ in 0..3 {
        assert_eq!(
            tree.iter(None, &store)
                .map(|entry| entry.unwrap().rows)
                .sum::<u64>(),
            2_000
        );
        let (used, most) = store.cached_bytes();
        assert!(used <= most && most <= 40 << 10, "{used} of {most} bytes");
    }
    assert!(
        store.counts().pages_loaded > 500,
        "pages were evicted and came back"
    );
}

#[test]
fn open_files_are_bounded() {
    let (sim, store) = machine(1 << 20);
    let files = MAX_OPEN_FILES as u64 * 3;
    for id in 0..files {
        let path = if id % 2 == 0 {
            store.segment_path(FileId(id))
        } else {
            store.fragment_path(FileId(id))
        };
        sim.write_file(&path, &id.to_le_bytes()).unwrap();
    }
    for id in (0..files).chain(0..files) {
        assert_eq!(store.read(FileId(id), 0, 8).unwrap(), id.to_le_bytes()[..]);
        assert!(store.files.len() <= MAX_OPEN_FILES);
    }
    store.close_files();
    assert_eq!(store.open_files(), 0);
    // A handle in use stays good, and a file in use can be deleted.
    let held = store.file(FileId(0)).unwrap();
    store.forget_file(FileId(0));
    sim.remove_file(&store.segment_path(FileId(0))).unwrap();
    let mut bytes = [1; 8];
    held.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [0; 8]);
    assert!(store.read(FileId(0), 0, 8).is_err());
    store.keep_file(FileId(0), segment_name(FileId(0)), held);
    assert_eq!(store.read(FileId(0), 0, 8).unwrap(), [0; 8][..]);
}

#[test]
fn what_is_missing_is_named() {
    let (sim, store) = machine(1 << 20);
    let error = store.read(FileId(0xAB), 0, 8).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let name = "data/00000000000000ab.frag: the file is missing";
    assert!(
        error.message().contains(name) && error.message().contains("log/00000000000000ab.seg"),
        "{error}"
    );
    sim.write_file(&store.segment_path(FileId(0xAB)), &[1, 2, 3])
        .unwrap();
    let error = store.read(FileId(0xAB), 2, 8).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(
        error
            .message()
            .starts_with("log/00000000000000ab.seg, offset 2: the file ends"),
        "{error}"
    );
}

#[test]
fn a_cached_page_of_another_age_is_no_hit() {
    let (sim, store) = machine(1 << 20);
    let root = write_index(&sim, &store, 3);
    store.load_page(TABLE, &root).unwrap();
    let address = Address {
        head_crc: root.address.head_crc ^ 1,
        ..root.address
    };
    let older = Entry {
        address,
        ..root.clone()
    };
    assert!(
        store
            .load_page(TABLE, &older)
            .unwrap_err()
            .message()
            .contains("not the page that was written here")
    );
    assert!(store.load_page(TableId(2), &root).is_err());
    assert_eq!(store.load_page(TABLE, &root).unwrap().total(), root);
}

#[test]
fn walks_and_blocks_can_go_to_other_threads() {
    fn sendable<T: Send>(_: &T) {}
    fn shareable<T: Send + Sync>(_: &T) {}
    let (_sim, store) = machine(1 << 20);
    let store = Arc::new(store);
    shareable(&store);
    shareable(&Tree::empty(TABLE));
    sendable(&Tree::empty(TABLE).iter(None, Arc::clone(&store)));
}
