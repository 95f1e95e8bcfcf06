//! Flags of entries: their bytes, and how those of a page follow from its entries.

use super::*;
use crate::ErrorKind;
use proptest::prelude::*;

fn list(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_entries(entries, &mut bytes).unwrap();
    bytes
}

fn keys(smallest: i64, largest: i64) -> Option<BlockKeys> {
    Some(BlockKeys { smallest, largest })
}

/// A block of an array, and a fragment of two of them.
fn of_an_array() -> Vec<Entry> {
    let first = Entry {
        rewritten: 2,
        block_keys: keys(70, 70),
        versions: true,
        ..block(0, 0, 1, 0)
    };
    let fragment = Entry {
        level: 1,
        fragment: true,
        blocks: 2,
        rewritten: 255,
        block_keys: keys(-60, 68),
        ..block(3, 0, 2, 0)
    };
    let fragment = Entry {
        sorted: false,
        ..fragment
    };
    vec![first, fragment]
}

#[test]
fn entries_of_arrays_have_these_bytes() {
    let bytes = list(&of_an_array());
    let expected = [
        &[2, 1, 0][..],
        // Versions, a key of its own, rewritten; twice; key 70.
        &[0x80 | 0x20 | 0x10, 2, 0x8c, 0x01],
        // Three rows, keys, commits and ordinal 0, file 2 at 77, 77 bytes, head 70, CRC 5.
        &[3, 0, 0, 0, 0, 0, 4, 0x9a, 0x01, 77, 70, 5, 0, 0, 0],
        // A page that is a fragment, of level 1: two blocks of 77 bytes; 255 times; keys -60 = 70 - 130 to +128.
        &[
            0x20 | 0x10 | 0x08 | 0x02,
            1,
            2,
            77,
            0,
            0,
            255,
            0x83,
            0x02,
            0x80,
            0x01,
        ],
        &[3, 6, 0, 0, 0, 0, 0, 0, 77, 70, 5, 0, 0, 0],
    ]
    .concat();
    assert_eq!(bytes, expected);
    assert_eq!(decode_entries(&bytes).unwrap(), of_an_array());
}

#[test]
fn what_holds_of_all_blocks_adds_up() {
    let page = |entries: &[Entry]| Entry::of_page(2, entries).unwrap();
    let [first, fragment] = &of_an_array()[..] else {
        panic!("two entries");
    };
    let both = page(&of_an_array());
    assert_eq!(
        (both.rewritten, both.versions, both.fragment),
        (2, true, false)
    );
    assert_eq!(both.block_keys, keys(-60, 70));
    let fresh = Entry {
        rewritten: 0,
        block_keys: None,
        ..first.clone()
    };
    let mixed = page(&[fresh, fragment.clone()]);
    assert_eq!((mixed.rewritten, mixed.block_keys), (0, None));
    assert!(!page(std::slice::from_ref(fragment)).versions);
    for other in [
        Entry {
            versions: false,
            ..both.clone()
        },
        Entry {
            rewritten: 1,
            ..both.clone()
        },
        Entry {
            fragments: 0,
            ..both.clone()
        },
        Entry {
            sorted: true,
            last: both.arrival(),
            ..both.clone()
        },
        Entry {
            block_keys: keys(-60, 71),
            ..both.clone()
        },
    ] {
        assert!(unequal_totals(&other, &both).is_some(), "{other:?}");
    }
    assert_eq!(unequal_totals(&both, &both), None);
}

#[test]
fn entries_that_contradict_themselves_are_refused() {
    let bytes = list(&of_an_array());
    let refused = |at: usize, byte: u8, what: &str| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        let error = decode_entries(&bytes).unwrap_err();
        assert!(error.message().contains(what), "{error}");
        error.kind()
    };
    let damage = ErrorKind::Corruption;
    assert_eq!(refused(4, 0, "spells out a zero"), damage);
    assert_eq!(refused(3, 0xb8, "a block is marked as a fragment"), damage);
    assert_eq!(
        refused(
            3,
            0xf0,
            "entries with flags 0xf0, which this program does not know"
        ),
        ErrorKind::Unsupported
    );
    // The largest key of a block below its smallest one.
    let two_keys = Entry {
        block_keys: keys(1, 2),
        ..block(0, 0, 1, 0)
    };
    assert!(two_keys.check().is_err());
    assert!(
        Entry {
            fragment: true,
            ..block(0, 0, 1, 0)
        }
        .check()
        .is_err()
    );
}

#[test]
fn pages_take_fragments_as_items_alone() {
    let [block, fragment] = &of_an_array()[..] else {
        panic!("two entries");
    };
    let page = Entry {
        fragment: false,
        ..fragment.clone()
    };
    let check = |level, entries: &[&Entry]| page::check_children(level, entries.iter().copied());
    assert_eq!(check(1, &[block, fragment]), Ok(()));
    assert!(
        check(1, &[block, &page]).is_err(),
        "a page that is no fragment is no item"
    );
    assert_eq!(check(2, &[&page]), Ok(()));
    assert!(
        check(2, &[fragment]).is_err(),
        "a fragment is no page of the tree"
    );
    assert!(check(3, &[&page]).is_err(), "a level is left out");
    assert!(check(1, &[fragment, block]).is_err(), "out of order");
}

#[test]
fn what_newer_versions_write_is_unsupported() {
    let mut bytes = list(&[block(0, 0, 1, 1)]);
    // The kind of the summary.
    bytes[4] = 9;
    let error = decode_entries(&bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("summaries of kind 9"), "{error}");
}

#[test]
fn wide_pages_keep_system_columns_and_those_with_the_lowest_ids() {
    let entry = |ids: &mut dyn Iterator<Item = u32>| Entry {
        columns: ids.map(|id| ColumnSummary::of_counts(id, 3, 0)).collect(),
        ..block(0, 0, 1, 0)
    };
    let most = MAX_SUMMARIES as u32;
    let low = entry(&mut (0..most));
    let high = entry(&mut (10..10 + most - 2).chain([0xFF_FF00, 0xFF_FFFF]));
    let page = Entry::of_page(1, [&low, &high]).unwrap();
    let found: Vec<u32> = page.columns.iter().map(|column| column.column_id).collect();
    let expected: Vec<u32> = (0..most - 2).chain([0xFF_FF00, 0xFF_FFFF]).collect();
    assert_eq!(found, expected);
}

proptest! {
    /// Whatever pages lie between, a page is in order exactly if its blocks are, and the last of them is named.
    #[test]
    fn a_page_in_order_has_blocks_in_order(
        steps in prop::collection::vec((0_i64..3, 0_u32..3, 0_u64..4, prop::bool::weighted(0.95)), 1..12),
        rising: bool,
        page_rows in 1_usize..5,
    ) {
        let mut key = 0;
        let blocks = steps.iter().zip(1_u64..).map(|((step, span, commit, sorted), number)| {
            key += step;
            let commit = CommitNo(if rising { number } else { 1 + commit });
            let block = block(key, (*span).min(*step as u32), 2, 1);
            let ordinal = u32::try_from(number).unwrap();
            Entry { sorted: *sorted, ..block.committed(commit, commit, ordinal) }
        });
        let mut blocks: Vec<Entry> = blocks.collect();
        blocks.sort_by_key(Entry::key);
        let pages = blocks.chunks(page_rows).map(|below| Entry::of_page(1, below).unwrap());
        let pages: Vec<Entry> = pages.collect();
        let page = Entry::of_page(2, &pages).unwrap();
        let ends_before = |pair: &[Entry]| {
            let arrival = |entry: &Entry| (entry.first_commit, entry.ordinal);
            (pair[0].key_max, arrival(&pair[0])) < (pair[1].key_min, arrival(&pair[1]))
        };
        let in_order = blocks.iter().all(|block| block.sorted) && blocks.windows(2).all(ends_before);
        prop_assert_eq!(page.sorted, in_order);
        let last = &blocks[blocks.len() - 1];
        let last = if in_order { last.arrival() } else { Arrival::default() };
        prop_assert_eq!(page.last, last);
        page.check().unwrap();
    }
}

#[test]
fn a_fragment_may_get_another_number_before_it_is_stored() {
    // Its first block is number 4, its last one number 3: it was gathered in two parts.
    let uncommitted = |key: i64, ordinal: u32| Entry {
        ordinal,
        ..block(key, 1, 2, 0)
    };
    let root = Entry::of_page(1, &[uncommitted(0, 4), uncommitted(10, 3)]).unwrap();
    let root = root.into_fragment();
    assert_eq!((root.ordinal, root.last.ordinal), (4, 3));
    let first = root.clone().committed(CommitNo(7), CommitNo(7), 20);
    let again = first.clone().committed(CommitNo(9), CommitNo(9), 50);
    let last = |commit: u64, ordinal: u32| Arrival {
        commit: CommitNo(commit),
        ordinal,
    };
    assert_eq!((first.last, again.last), (last(7, 23), last(9, 53)));
    assert_eq!(unequal_totals(&first, &root), None);
    assert_eq!(unequal_totals(&again, &root), None);
}
