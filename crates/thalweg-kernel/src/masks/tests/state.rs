//! The masks of a table against plain sets.

use super::super::*;
use crate::error::ErrorKind;
use crate::ids::{CommitNo, FileId};
use crate::index::EntryKey;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Items of the model have two blocks of so many rows each; so have parts one.
const BLOCK_ROWS: u32 = 8;
const ITEM_ROWS: u64 = 2 * BLOCK_ROWS as u64;

fn name(number: u8) -> ItemName {
    // Two items of one key are told apart by their fragments.
    let key = EntryKey {
        key_min: i64::from(number / 2),
        commit: CommitNo(3),
        ordinal: 0,
    };
    ItemName {
        key,
        fragment: FileId(number.into()),
        crc: 7,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Hide(u8, BTreeSet<u32>),
    HideBlock(u8, u32),
    HideOpen(u8, BTreeSet<u32>),
    Take(u8),
    Cover(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rows = |most| btree_set(0..most, 1..4);
    let step = prop_oneof![
        4 => (0_u8..6, rows(2 * BLOCK_ROWS)).prop_map(|(item, rows)| Step::Hide(item, rows)),
        1 => (0_u8..6, 0_u32..2).prop_map(|(item, rank)| Step::HideBlock(item, rank)),
        3 => (1_u8..6, rows(BLOCK_ROWS)).prop_map(|(commit, rows)| Step::HideOpen(commit, rows)),
        1 => (0_u8..6).prop_map(Step::Take),
        1 => (0_u8..6).prop_map(Step::Cover),
    ];
    vec(step, 1..60)
}

/// The hidden rows of items and of parts, and blocks that are hidden as a whole.
#[derive(Clone, Default, PartialEq)]
struct Model {
    items: BTreeMap<u8, BTreeSet<u32>>,
    whole: BTreeSet<(u8, u32)>,
    open: BTreeMap<u8, BTreeSet<u32>>,
}

impl Model {
    fn rows(&self) -> u64 {
        let all = self.items.values().chain(self.open.values());
        all.map(|rows| rows.len() as u64).sum()
    }

    /// Whether the rows are all new.
    fn hide(&mut self, item: u8, rows: &BTreeSet<u32>) -> Option<Masked> {
        let hidden = self.items.entry(item).or_default();
        if !hidden.is_disjoint(rows) {
            return None;
        }
        hidden.extend(rows);
        Some(self.after(item))
    }

    fn hide_block(&mut self, item: u8, rank: u32) -> Option<Masked> {
        if !self.whole.insert((item, rank)) {
            return None;
        }
        let rows = rank * BLOCK_ROWS..(rank + 1) * BLOCK_ROWS;
        self.items.entry(item).or_default().extend(rows);
        Some(self.after(item))
    }

    fn after(&mut self, item: u8) -> Masked {
        if self.items[&item].len() as u64 == ITEM_ROWS {
            self.take(item);
            return Masked::Leaves;
        }
        Masked::Stays
    }

    fn take(&mut self, item: u8) -> u64 {
        self.whole.retain(|(of, _)| *of != item);
        self.items.remove(&item).map_or(0, |rows| rows.len() as u64)
    }
}

/// An edit of these rows of an item; `newly` as in the model.
fn mask_of(item: u8, masks: MaskList, newly: u64) -> ItemMask {
    ItemMask {
        name: name(item),
        rows: ITEM_ROWS,
        newly,
        masks,
    }
}

fn list_of(rows: &BTreeSet<u32>) -> MaskList {
    let of_block = |rank: u32| {
        let rows = rows.iter().filter(|row| **row / BLOCK_ROWS == rank);
        let rows: Vec<u32> = rows.map(|row| row % BLOCK_ROWS).collect();
        (!rows.is_empty()).then(|| (rank, BlockMask::Rows(Positions::of_rows(rows))))
    };
    MaskList::of((0..2).filter_map(of_block)).unwrap()
}

/// Takes a step; whether both did the same.
fn take(
    masks: &mut TableMasks,
    model: &mut Model,
    step: &Step,
) -> (Option<Masked>, Option<Masked>) {
    match step {
        Step::Hide(item, rows) => {
            let edit = mask_of(*item, list_of(rows), rows.len() as u64);
            (masks.hide(&edit).ok(), model.hide(*item, rows))
        }
        Step::HideBlock(item, rank) => {
            let whole = BlockMask::Blocks {
                further: 0,
                rows: BLOCK_ROWS.into(),
            };
            let range = rank * BLOCK_ROWS..(rank + 1) * BLOCK_ROWS;
            let hidden = model
                .items
                .get(item)
                .map_or(0, |rows| rows.range(range).count());
            let newly = u64::from(BLOCK_ROWS) - hidden as u64;
            let edit = mask_of(*item, MaskList::of([(*rank, whole)]).unwrap(), newly);
            (masks.hide(&edit).ok(), model.hide_block(*item, *rank))
        }
        Step::HideOpen(commit, rows) => {
            let positions = Positions::of_rows(rows.iter().copied());
            let commit_no = CommitNo((*commit).into());
            let part = PartMask {
                commit: commit_no,
                part: 0,
                rows: BLOCK_ROWS,
                positions,
            };
            let hidden = model.open.entry(*commit).or_default();
            let is_new = hidden.is_disjoint(rows);
            if is_new {
                hidden.extend(rows);
            }
            let taken = masks.hide_open(&part).ok().map(|()| Masked::Stays);
            (taken, is_new.then_some(Masked::Stays))
        }
        Step::Take(item) => {
            assert_eq!(masks.take_item(&name(*item)), model.take(*item));
            (None, None)
        }
        Step::Cover(to) => {
            let later = model.open.split_off(&(to + 1));
            let covered = std::mem::replace(&mut model.open, later);
            let rows: usize = covered.values().map(BTreeSet::len).sum();
            assert_eq!(masks.cover(CommitNo((*to).into())), rows as u64);
            (None, None)
        }
    }
}

fn read_back(masks: &TableMasks) -> TableMasks {
    let (mut items, mut open) = (Vec::new(), Vec::new());
    masks.put_items(&mut items);
    masks.put_open(&mut open);
    let mut read = TableMasks::default();
    read.read_items(&items).unwrap();
    read.read_open(&open).unwrap();
    read
}

proptest! {
    #[test]
    fn masks_of_a_table_agree_with_sets(steps in steps()) {
        let (mut masks, mut model) = (TableMasks::default(), Model::default());
        for step in steps {
            let before = masks.clone();
            let (taken, expected) = take(&mut masks, &mut model, &step);
            prop_assert_eq!(taken, expected, "{:?}", step);
            if taken.is_none() && !matches!(step, Step::Take(_) | Step::Cover(_)) {
                prop_assert_eq!(&masks, &before);
            }
            prop_assert_eq!(masks.rows(), model.rows());
            prop_assert_eq!(read_back(&masks), masks.clone());
            for item in 0..6 {
                let rows = masks.of_item(&name(item)).map_or(0, MaskList::rows);
                prop_assert_eq!(rows, model.items.get(&item).map_or(0, |rows| rows.len() as u64));
            }
            let below = name(2).key..name(4).key;
            let found: Vec<u64> = masks.items(below).map(|(name, _)| name.fragment.0).collect();
            let has_rows = |item: &u8| model.items.get(item).is_some_and(|rows| !rows.is_empty());
            prop_assert_eq!(found, [2, 3].into_iter().filter(has_rows).map(u64::from).collect::<Vec<_>>());
            let all: u64 = masks.items(name(0).key..name(9).key).map(|_| 64).sum();
            prop_assert!(masks.bytes() >= all);
            prop_assert_eq!(masks.is_empty(), masks.rows() == 0);
            prop_assert_eq!(masks.bytes() == 0, masks.is_empty());
        }
    }
}

#[test]
fn what_does_not_add_up_changes_nothing() {
    let mut masks = TableMasks::default();
    let rows = |rows: std::ops::Range<u32>| list_of(&rows.collect());
    assert_eq!(
        masks.hide(&mask_of(1, rows(0..3), 3)).unwrap(),
        Masked::Stays
    );
    let before = masks.clone();
    let too_many = ItemMask {
        rows: 5,
        ..mask_of(1, rows(3..6), 3)
    };
    for edit in [
        mask_of(1, rows(2..4), 2),
        mask_of(1, rows(3..5), 1),
        too_many,
    ] {
        assert_eq!(masks.hide(&edit).unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(masks, before);
    }
    let part = |rows| PartMask {
        commit: CommitNo(1),
        part: 2,
        rows,
        positions: Positions::of_rows([3]),
    };
    masks.hide_open(&part(8)).unwrap();
    let other = PartMask {
        positions: Positions::of_rows([4]),
        ..part(9)
    };
    assert_eq!(
        masks.hide_open(&other).unwrap_err().kind(),
        ErrorKind::Conflict
    );
    assert_eq!(masks.of_part(CommitNo(1), 2).unwrap().positions.rows(), 1);
    assert_eq!(
        (
            masks.cover(CommitNo(1)),
            masks.take_item(&name(1)),
            masks.rows()
        ),
        (1, 3, 0)
    );
}

#[test]
fn lies_of_a_checkpoint_are_refused() {
    let mut masks = TableMasks::default();
    let rows = list_of(&(0..3).collect());
    masks.hide(&mask_of(1, rows.clone(), 3)).unwrap();
    masks.hide(&mask_of(4, rows, 3)).unwrap();
    let mut bytes = Vec::new();
    masks.put_items(&mut bytes);
    let read = |bytes: &[u8]| TableMasks::default().read_items(bytes);
    read(&bytes).unwrap();
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len]).is_err());
    }
    let one = (bytes.len() - 4) / 2;
    let (first, second) = bytes[4..].split_at(one);
    for items in [[second, first], [first, first]] {
        assert!(read(&[&bytes[..4], items[0], items[1]].concat()).is_err());
    }
    bytes[..4].fill(0xff);
    assert!(read(&bytes).is_err());
}
