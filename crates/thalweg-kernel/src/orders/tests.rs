//! Coverage against a plain model, the bytes of edits of orders, and hostile ones.

use super::*;
use crate::error::{ErrorKind, Result};
use crate::ids::{CommitNo, FileId, TableId};
use crate::index::{Entry, EntryKey};
use crate::masks::ItemName;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn range(key_min: i64, key_max: i64, commit: u64) -> CoverageRange {
    let commit = CommitNo(commit);
    CoverageRange {
        key_min,
        key_max,
        commit,
    }
}

fn name(key_min: i64, ordinal: u32, fragment: u64, crc: u32) -> ItemName {
    let key = EntryKey {
        key_min,
        commit: CommitNo(2),
        ordinal,
    };
    ItemName {
        key,
        fragment: FileId(fragment),
        crc,
    }
}

fn heads() -> [AddHead; 2] {
    let index = AddHead {
        table: TableId(5),
        order: 2,
        definition_version: 7,
        is_complete: true,
        coverage: vec![range(-9, 4, 3), range(6, i64::MAX, u64::MAX)],
        ..AddHead::default()
    };
    let cover = AddHead {
        table: TableId(5),
        definition_version: 7,
        covers: Some(CommitNo(11)),
        left_out: 3,
        carried: 1,
        ..AddHead::default()
    };
    [index, cover]
}

fn orders_edit() -> OrdersEdit {
    let off = OrderAction::SwitchOff {
        key_min: -1,
        key_max: 8,
    };
    let changes = [
        (2, OrderAction::Make),
        (3, OrderAction::Drop),
        (4, off),
        (9, OrderAction::SwitchOn),
    ];
    let changes = changes.map(|(order, action)| OrderChange { order, action });
    OrdersEdit {
        table: TableId(5),
        changes: changes.to_vec(),
    }
}

fn replace(removed: Removed, deleted: u64) -> ReplaceEdit {
    let rows = OrderReplace {
        order: 0,
        removed,
        coverage: vec![],
        added: vec![],
    };
    ReplaceEdit {
        table: TableId(5),
        left_out: 4,
        carried: 0,
        deleted,
        orders: vec![rows],
    }
}

fn by_name() -> ReplaceEdit {
    let mut edit = replace(
        Removed::Items(vec![name(-3, 0, 0, 17), name(8, 1, 6, 18)]),
        2,
    );
    edit.carried = 1;
    let coverage = vec![range(0, 5, 4)];
    edit.orders.push(OrderReplace {
        order: 2,
        removed: Removed::Items(vec![]),
        coverage,
        added: vec![],
    });
    edit
}

fn by_runs() -> ReplaceEdit {
    let (first, last) = (name(-3, 0, 0, 17), name(8, 1, 6, 18));
    replace(
        Removed::Runs(vec![Run {
            first,
            last,
            blocks: 3,
            rows: 100,
        }]),
        96,
    )
}

fn bytes_of_head(head: &AddHead) -> Vec<u8> {
    let mut out = Vec::new();
    head.put(&mut out);
    out
}

fn bytes_of_orders(edit: &OrdersEdit) -> Vec<u8> {
    let mut out = Vec::new();
    edit.put(&mut out);
    out
}

fn bytes_of_replace(edit: &ReplaceEdit) -> Vec<u8> {
    let mut out = Vec::new();
    edit.put(&mut out).unwrap();
    out
}

/// All of the structures, as they are written.
fn all() -> Vec<Vec<u8>> {
    let mut all: Vec<_> = heads().iter().map(bytes_of_head).collect();
    all.push(bytes_of_orders(&orders_edit()));
    all.extend([by_name(), by_runs()].iter().map(bytes_of_replace));
    all
}

/// Reads one of them; what is read is written again as it was.
fn read_again(which: usize, bytes: &[u8]) -> Result<()> {
    let again = match which {
        0 | 1 => {
            let (head, rest) = AddHead::decode(bytes)?;
            [bytes_of_head(&head), rest.to_vec()].concat()
        }
        2 => bytes_of_orders(&OrdersEdit::decode(bytes)?),
        _ => bytes_of_replace(&ReplaceEdit::decode(bytes)?),
    };
    assert_eq!(again, bytes, "one spelling");
    Ok(())
}

#[test]
fn golden_bytes() {
    let golden = include_str!("../../tests/golden/orders.hex");
    for ((which, bytes), golden) in all().into_iter().enumerate().zip(golden.lines()) {
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, golden, "structure {which}");
        read_again(which, &bytes).unwrap();
    }
    assert_eq!(AddHead::decode(&all()[0]).unwrap().0, heads()[0]);
    assert_eq!(OrdersEdit::decode(&all()[2]).unwrap(), orders_edit());
    assert_eq!(ReplaceEdit::decode(&all()[3]).unwrap(), by_name());
    assert_eq!(ReplaceEdit::decode(&all()[4]).unwrap(), by_runs());
}

#[test]
fn what_is_unknown_is_of_a_newer_version() {
    // Flags and reserved bytes of a head; kinds, actions and reserved bytes of a change; flags and reserved bytes of a
    // replacement and of its orders.
    let unknown: [(usize, &[(usize, u8)]); 4] = [
        (0, &[(12, 2), (15, 128), (40, 1), (43, 9)]),
        (
            2,
            &[
                (12, 5),
                (12, 0),
                (13, 2),
                (13, 4),
                (13, 255),
                (14, 1),
                (15, 1),
            ],
        ),
        (3, &[(4, 2), (7, 1), (36, 1), (39, 255), (52, 1), (55, 3)]),
        (4, &[(4, 3), (36, 1), (52, 1)]),
    ];
    for (which, places) in unknown {
        for &(at, byte) in places {
            let mut bytes = all()[which].clone();
            bytes[at] = byte;
            let error = read_again(which, &bytes).unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::Unsupported,
                "structure {which}, byte {at}: {error}"
            );
        }
    }
}

#[test]
fn contradictions_are_damage() {
    let heads: [fn(&mut AddHead); 7] = [
        |head| head.order = 1,
        |head| head.order = 0,
        |head| head.covers = Some(CommitNo(3)),
        |head| head.left_out = 1,
        |head| head.carried = 1,
        |head| head.coverage.reverse(),
        |head| head.coverage[0].key_max = -10,
    ];
    for (at, spoil) in heads.into_iter().enumerate() {
        let mut head = self::heads()[0].clone();
        spoil(&mut head);
        let error = AddHead::decode(&bytes_of_head(&head)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "head {at}");
    }
    let edits: [fn(&mut OrdersEdit); 5] = [
        |edit| edit.changes.clear(),
        |edit| edit.changes.reverse(),
        |edit| edit.changes[1].order = 2,
        |edit| edit.changes[0].order = 1,
        |edit| {
            edit.changes[2].action = OrderAction::SwitchOff {
                key_min: 1,
                key_max: 0,
            }
        },
    ];
    for (at, spoil) in edits.into_iter().enumerate() {
        let mut edit = orders_edit();
        spoil(&mut edit);
        let error = OrdersEdit::decode(&bytes_of_orders(&edit)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "edit {at}");
    }
}

#[test]
fn replacements_that_contradict_themselves_are_damage() {
    let refuse = |edit: &ReplaceEdit, what: usize| {
        assert!(edit.check().is_err(), "{what}");
        let error = ReplaceEdit::decode(&bytes_of_replace(edit)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{what}");
    };
    let names: [fn(&mut Vec<ItemName>); 3] = [
        |names| names.reverse(),
        |names| names[1] = names[0],
        |names| names[0].key.commit = CommitNo(0),
    ];
    for (at, spoil) in names.into_iter().enumerate() {
        let mut edit = by_name();
        let Removed::Items(names) = &mut edit.orders[0].removed else {
            panic!("names")
        };
        spoil(names);
        refuse(&edit, at);
    }
    let runs: [fn(&mut Vec<Run>); 6] = [
        |runs| runs[0].blocks = 0,
        |runs| runs[0].rows = 2,
        |runs| runs[0].rows = 99,
        |runs| runs[0].last = name(-3, 0, 0, 18),
        |runs| runs[0].first = name(9, 0, 0, 1),
        |runs| runs.push(runs[0]),
    ];
    for (at, spoil) in runs.into_iter().enumerate() {
        let mut edit = by_runs();
        let Removed::Runs(runs) = &mut edit.orders[0].removed else {
            panic!("runs")
        };
        spoil(runs);
        refuse(&edit, 10 + at);
    }
    let whole: [fn(&mut ReplaceEdit); 4] = [
        |edit| edit.orders.reverse(),
        |edit| edit.orders[0].order = 1,
        |edit| edit.orders[0].coverage = vec![range(0, 1, 1)],
        |edit| drop(edit.orders.remove(0)),
    ];
    for (at, spoil) in whole.into_iter().enumerate() {
        let mut edit = by_name();
        spoil(&mut edit);
        refuse(&edit, 20 + at);
    }
    let mut bytes = all()[3].clone();
    bytes[44..48].fill(0xff);
    assert_eq!(
        ReplaceEdit::decode(&bytes).unwrap_err().kind(),
        ErrorKind::Corruption
    );
}

#[test]
fn replacements_add_fragments_alone() {
    let adding = |fragment: bool| {
        let mut edit = by_runs();
        edit.deleted = 46;
        edit.orders[0].added = vec![Entry {
            level: 1,
            fragment,
            rows: 50,
            blocks: 2,
            key_min: -3,
            key_max: 8,
            ..Entry::unknown()
        }];
        edit
    };
    let whole = adding(true);
    let bytes = bytes_of_replace(&whole);
    assert_eq!(ReplaceEdit::decode(&bytes).unwrap(), whole);
    let page_of_a_tree = adding(false);
    assert!(page_of_a_tree.check().is_err());
    let error = ReplaceEdit::decode(&bytes_of_replace(&page_of_a_tree)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

/// A change of a coverage.
#[derive(Clone, Debug)]
enum Step {
    Lower(i64, i64, u64),
    Remove(i64, i64),
    Add(Vec<CoverageRange>),
}

const KEYS: std::ops::Range<i64> = -6..7;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = || (KEYS, KEYS).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let ranges = vec((keys(), 0_u64..6), 1..3).prop_map(|all| {
        let mut all: Vec<_> = all
            .into_iter()
            .map(|((a, b), commit)| range(a, b, commit))
            .collect();
        all.sort_by_key(|range| range.key_min);
        all.dedup_by(|next, before| before.key_max >= next.key_min);
        all
    });
    let step = prop_oneof![
        (keys(), 1_u64..7).prop_map(|((a, b), commit)| Step::Lower(a, b, commit)),
        keys().prop_map(|(a, b)| Step::Remove(a, b)),
        ranges.prop_map(Step::Add),
    ];
    vec(step, 1..20)
}

/// Up to which commit each key is covered.
type Model = BTreeMap<i64, u64>;

fn take(model: &mut Model, step: &Step) {
    match step {
        Step::Lower(a, b, first) => {
            for (_, commit) in model.range_mut(a..=b) {
                *commit = (*commit).min(first - 1);
            }
        }
        Step::Remove(a, b) => model.retain(|key, _| !(a..=b).contains(&key)),
        Step::Add(ranges) => {
            for range in ranges {
                for key in range.key_min..=range.key_max {
                    let commit = model.entry(key).or_insert(range.commit.0);
                    *commit = (*commit).max(range.commit.0);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn coverage_agrees_with_one_commit_for_each_key(steps in steps(), starts_whole: bool) {
        let mut coverage = if starts_whole { Coverage::of_all() } else { Coverage::default() };
        let mut model: Model = KEYS.filter(|_| starts_whole).map(|key| (key, u64::MAX)).collect();
        for step in steps {
            take(&mut model, &step);
            match &step {
                Step::Lower(a, b, first) => coverage.lower(*a, *b, CommitNo(*first)),
                Step::Remove(a, b) => coverage.remove(*a, *b),
                Step::Add(ranges) => coverage.add(ranges),
            }
            coverage.end_section();
            let ranges = coverage.ranges();
            prop_assert!(ranges.iter().all(|range| range.key_min <= range.key_max));
            prop_assert!(ranges.is_sorted_by(|a, b| a.key_max < b.key_min));
            prop_assert_eq!(Coverage::of_ranges(ranges.to_vec()), Ok(coverage.clone()));
            for (a, b, last) in KEYS.flat_map(|a| (a..KEYS.end).flat_map(move |b| [0, 3, 5].map(|last| (a, b, last)))) {
                let expected = (a..=b).all(|key| model.get(&key).is_some_and(|commit| *commit >= last));
                prop_assert_eq!(coverage.covers(a, b, CommitNo(last)), expected, "{} to {}", a, b);
            }
        }
    }

    #[test]
    fn changed_bytes_are_refused_or_read_as_they_are(which in 0_usize..5, at in 0_usize..400, byte: u8) {
        let mut bytes = all()[which].clone();
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = read_again(which, &bytes);
        bytes.truncate(at);
        prop_assert!(read_again(which, &bytes).is_err());
    }
}

#[test]
fn the_shortest_ranges_are_given_up() {
    let mut coverage = Coverage::default();
    // Each of two keys, but one of one key, and one at the end of all keys.
    let ranges: Vec<_> = (0..1_025)
        .map(|n| range(4 * n, 4 * n + i64::from(n != 7), 1))
        .collect();
    coverage.add(&ranges);
    coverage.add(&[range(i64::MAX - 1, i64::MAX, 2)]);
    assert_eq!(coverage.ranges().len(), 1_026);
    coverage.end_section();
    assert_eq!(coverage.ranges().len(), MAX_RANGES);
    assert!(!coverage.covers(28, 28, CommitNo(0)) && !coverage.covers(0, 1, CommitNo(0)));
    assert!(coverage.covers(4, 5, CommitNo(1)) && coverage.covers(i64::MAX, i64::MAX, CommitNo(2)));
}

#[test]
fn coverage_reaches_to_the_ends_of_the_keys() {
    let mut coverage = Coverage::of_all();
    assert!(coverage.covers(i64::MIN, i64::MAX, EVERY_COMMIT));
    coverage.lower(i64::MIN, i64::MIN, CommitNo(4));
    coverage.remove(i64::MAX, i64::MAX);
    let expected = [
        range(i64::MIN, i64::MIN, 3),
        range(i64::MIN + 1, i64::MAX - 1, u64::MAX),
    ];
    assert_eq!(coverage.ranges(), expected);
    coverage.lower(0, 0, CommitNo(0));
    assert!(coverage.covers(0, 0, CommitNo(0)) && !coverage.covers(0, 0, CommitNo(1)));
}
