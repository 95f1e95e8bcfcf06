//! Items that go as runs: what is read for it, what is refused, and how much a change makes anew.

use super::model::appended;
use super::*;
use crate::ErrorKind;

/// A tree of blocks with keys from 0 on, on disk, none of its pages in memory.
fn on_disk(blocks: i64) -> (Disk, Tree) {
    let (disk, tree, _) = appended(blocks);
    let tree = Tree::from_root(TABLE, disk.checkpoint(&tree));
    disk.loads.set(0);
    (disk, tree)
}

fn key(number: i64) -> EntryKey {
    EntryKey {
        key_min: number,
        commit: CommitNo(number as u64 + 1),
        ordinal: 0,
    }
}

/// The run of blocks from one to another.
fn run(first: i64, last: i64) -> Run {
    let blocks = (last - first + 1) as u64;
    Run {
        first: key(first),
        last: key(last),
        blocks,
        rows: 3 * blocks,
    }
}

fn remove(disk: &Disk, tree: &Tree, runs: &[Run], added: Vec<Entry>) -> Result<Tree> {
    tree.replace_runs(&[], runs, added, disk, &mut Vec::new())
}

fn keys_of(disk: &Disk, tree: &Tree) -> Vec<i64> {
    let blocks = tree.iter(None, disk);
    blocks.map(|block| block.unwrap().key_min).collect()
}

#[test]
fn pages_within_a_run_are_not_read() {
    let (disk, tree) = on_disk(4_000);
    let levels = u64::from(tree.total().unwrap().level);
    let left = remove(&disk, &tree, &[run(100, 3_900)], vec![]).unwrap();
    // Two paths, and at each level a neighbour that a small page may be joined with.
    assert!(disk.loads.get() <= 4 * levels, "{} pages", disk.loads.get());
    left.check_invariants(&disk).unwrap();
    let expected: Vec<i64> = (0..100).chain(3_901..4_000).collect();
    assert_eq!(keys_of(&disk, &left), expected);
    assert!(
        remove(&disk, &tree, &[run(0, 3_999)], vec![])
            .unwrap()
            .is_empty()
    );
}

#[test]
fn blocks_that_come_within_a_run_stay() {
    let (disk, tree) = on_disk(300);
    let new = |at: i64| block(at, 0, 7, 2).committed(CommitNo(900), CommitNo(900), 0);
    let kept = remove(&disk, &tree, &[run(10, 250)], vec![new(128), new(10)]).unwrap();
    kept.check_invariants(&disk).unwrap();
    let expected: Vec<i64> = (0..10).chain([10, 128]).chain(251..300).collect();
    assert_eq!(keys_of(&disk, &kept), expected);
    // With the very key of one that goes.
    let same = block(20, 0, 9, 2).committed(CommitNo(21), CommitNo(21), 0);
    let kept = remove(&disk, &tree, &[run(10, 250)], vec![same]).unwrap();
    assert_eq!(kept.total().unwrap().blocks, 300 - 241 + 1);
}

#[test]
fn runs_that_are_not_what_they_were_are_conflicts() {
    let (disk, tree) = on_disk(300);
    let run = run(10, 250);
    let one_more = |number: u64| number + 1;
    let others = [
        Run {
            blocks: one_more(run.blocks),
            rows: run.rows + 3,
            ..run
        },
        Run {
            rows: one_more(run.rows),
            ..run
        },
        // The first and the last one have gone.
        Run {
            first: EntryKey {
                ordinal: 1,
                ..run.first
            },
            blocks: run.blocks - 1,
            rows: run.rows - 3,
            ..run
        },
        Run {
            last: EntryKey {
                commit: CommitNo(250),
                ..run.last
            },
            blocks: run.blocks - 1,
            rows: run.rows - 3,
            ..run
        },
        Run {
            last: EntryKey {
                ordinal: 1,
                ..run.last
            },
            ..run
        },
    ];
    for other in others {
        let error = remove(&disk, &tree, &[other], vec![]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{other:?}");
    }
    let before_all = Run {
        first: key(-5),
        last: key(-3),
        blocks: 1,
        rows: 3,
    };
    let error = remove(&disk, &tree, &[before_all], vec![]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let error = remove(&disk, &Tree::empty(TABLE), &[run], vec![]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[test]
fn runs_out_of_order_are_refused() {
    let (disk, tree) = on_disk(300);
    for runs in [
        vec![run(10, 20), run(20, 30)],
        vec![run(20, 30), run(10, 12)],
        vec![Run {
            last: key(19),
            ..run(20, 30)
        }],
        vec![Run {
            blocks: 0,
            ..run(1, 2)
        }],
        vec![Run {
            rows: 1,
            ..run(1, 2)
        }],
    ] {
        let error = remove(&disk, &tree, &runs, vec![]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{runs:?}");
    }
}

#[test]
fn how_much_a_change_makes_anew_is_known_without_its_pages() {
    let (disk, tree) = on_disk(4_000);
    let total = tree.total().unwrap();
    let levels = u64::from(total.level);
    let none = std::iter::empty;
    let added = [key(1_000)];
    let one_path = tree.changed_bytes(&[], &[], added, &disk).unwrap();
    assert_eq!(disk.loads.get(), levels - 1, "no page of level 1");
    let longest = disk
        .written
        .borrow()
        .values()
        .map(|page| u64::from(page.bytes))
        .max()
        .unwrap();
    assert!(one_path > 0 && one_path <= levels * longest);
    // A page from which something goes may be joined with two others.
    let removed = tree.changed_bytes(&added, &[], none(), &disk).unwrap();
    assert!(removed > one_path && removed <= (3 * levels - 2) * longest);
    // What lies within a run does not count.
    let of_run = tree
        .changed_bytes(&[], &[run(10, 3_990)], none(), &disk)
        .unwrap();
    assert!(of_run <= 2 * (3 * levels) * longest, "{of_run} bytes");
    assert_eq!(tree.changed_bytes(&[], &[], none(), &disk).unwrap(), 0);
    // Two in one page are one path.
    let two = tree
        .changed_bytes(&[], &[], [key(1_000), key(1_000)], &disk)
        .unwrap();
    assert_eq!(two, one_path);
}

#[test]
fn pages_that_are_not_on_disk_count_as_unwritten_once() {
    let (disk, tree) = on_disk(4_000);
    let levels = u64::from(tree.total().unwrap().level);
    assert_eq!(tree.unwritten_bytes(), 0);
    let item = |ordinal| block(77, 0, 1, 2).committed(CommitNo(9_000), CommitNo(9_000), ordinal);
    let once = tree.insert(item(0), &disk, &mut Vec::new()).unwrap();
    let twice = once.insert(item(1), &disk, &mut Vec::new()).unwrap();
    assert!(once.unwritten_bytes() > 32 * levels);
    let grown = twice.unwritten_bytes() - once.unwritten_bytes();
    assert!(
        grown < 200,
        "one more entry, not one more path: {grown} bytes"
    );
    disk.checkpoint(&twice);
    assert_eq!(twice.trim().unwritten_bytes(), 0);
}
