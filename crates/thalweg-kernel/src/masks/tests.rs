//! Masks against plain sets, their bytes, and hostile ones.

mod state;

use super::*;
use crate::error::ErrorKind;
use crate::ids::{CommitNo, FileId, TableId};
use crate::index::EntryKey;
use crate::wire::{Fault, Reader};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn bytes_of(positions: &Positions) -> Vec<u8> {
    let mut out = Vec::new();
    positions.put(&mut out);
    assert_eq!(out.len(), positions.len_bytes());
    out
}

fn read_positions(bytes: &[u8]) -> Result<Positions, Fault> {
    let mut reader = Reader::new(bytes);
    let form = reader.u8()?;
    let read = Positions::read(form, &mut reader)?;
    reader.end()?;
    Ok(read)
}

fn read_list(bytes: &[u8]) -> Result<MaskList, Fault> {
    let mut reader = Reader::new(bytes);
    let read = MaskList::read(&mut reader)?;
    reader.end()?;
    Ok(read)
}

fn list_bytes(list: &MaskList) -> Vec<u8> {
    let mut out = Vec::new();
    list.put(&mut out);
    assert_eq!(out.len(), list.len_bytes());
    out
}

fn whole(further: u32, rows: u64) -> BlockMask {
    BlockMask::Blocks { further, rows }
}

fn rows(positions: impl IntoIterator<Item = u32>) -> BlockMask {
    BlockMask::Rows(Positions::of_rows(positions))
}

fn is_newer<T>(read: &Result<T, Fault>) -> bool {
    matches!(read, Err(Fault::OtherVersion(_)))
}

fn is_damage<T>(read: &Result<T, Fault>) -> bool {
    matches!(read, Err(Fault::Damaged(_)))
}

/// An edit with each form, an item of the same frame, and open rows.
fn example() -> MaskEdit {
    let name = |key_min, commit, fragment| ItemName {
        key: EntryKey {
            key_min,
            commit: CommitNo(commit),
            ordinal: 2,
        },
        fragment: FileId(fragment),
        crc: 0xaabb_ccdd,
    };
    let masks = MaskList::of([
        (1, BlockMask::Rows(Positions::of_runs([3..5, 9..10]))),
        (2, rows((0..64).step_by(2))),
        (7, whole(2, 300)),
    ]);
    MaskEdit {
        table: TableId(5),
        items: vec![
            ItemMask {
                name: name(-7, 9, 4),
                rows: 1_000,
                newly: 330,
                masks: masks.unwrap(),
            },
            ItemMask {
                name: name(11, 0, 0),
                rows: 64,
                newly: 1,
                masks: MaskList::of([(0, rows([63]))]).unwrap(),
            },
        ],
        parts: vec![PartMask {
            commit: CommitNo(8),
            part: 1,
            rows: 10,
            positions: Positions::of_rows(0..10),
        }],
    }
}

#[test]
fn golden_bytes() {
    let mut bytes = Vec::new();
    example().put(&mut bytes);
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let golden = include_str!("../../tests/golden/mask.hex");
    assert_eq!(hex, golden.split_whitespace().collect::<String>());
    assert_eq!(MaskEdit::decode(&bytes).unwrap(), example());
}

#[test]
fn the_shorter_form_is_taken() {
    assert_eq!(bytes_of(&Positions::of_rows([5])), [2, 1, 0b10_0000]);
    assert_eq!(bytes_of(&Positions::of_rows([20])), [1, 1, 20, 0]);
    // As long as the bitmap.
    assert_eq!(bytes_of(&Positions::of_rows([9])), [1, 1, 9, 0]);
    assert_eq!(
        bytes_of(&Positions::of_runs([0..2, 4..5])),
        [2, 1, 0b1_0011]
    );
    assert_eq!(bytes_of(&Positions::of_rows(0..8)), [2, 1, 0xff]);
    assert_eq!(bytes_of(&Positions::of_rows(0..9)), [1, 1, 0, 8]);
    let scattered = Positions::of_rows((0..1 << 24).step_by(2));
    assert_eq!(scattered.len_bytes(), 1 + 4 + (1 << 21));
    assert_eq!(read_positions(&bytes_of(&scattered)), Ok(scattered));
}

#[test]
fn another_spelling_is_damage() {
    let hostile: [&[u8]; 13] = [
        // No runs; a bitmap without bytes, or one that ends with zeros.
        &[1, 0],
        &[2, 0],
        &[2, 1, 0],
        &[2, 2, 1, 0],
        // The longer one of the two forms.
        &[1, 2, 0, 1, 1, 0],
        &[2, 2, 0xff, 1],
        // Too high, too long, with leading zeros, cut.
        &[1, 1, 0x80, 0x80, 0x80, 0x08, 0],
        &[1, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f],
        &[1, 1, 0x85, 0, 0],
        &[1, 2, 0, 0],
        &[2, 0x81, 0x80, 0x80, 0x01, 1],
        &[1, 1, 20, 0, 0],
        &[1, 1, 5, 0],
    ];
    for bytes in hostile {
        assert!(is_damage(&read_positions(bytes)), "{bytes:?}");
    }
    for form in [0, 3, 4, 128] {
        assert!(is_newer(&read_positions(&[form, 1, 5, 0])), "form {form}");
    }
}

#[test]
fn lists_of_masks_have_one_spelling() {
    let hostile: [&[u8]; 6] = [
        &[0],
        // Whole blocks that adjoin, that have fewer rows than blocks, or reach beyond all ranks.
        &[2, 0, 3, 1, 9, 0, 3, 0, 1],
        &[1, 0, 3, 2, 2],
        &[
            1, 1, 3, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01,
        ],
        &[1, 0x80, 0x80, 0x80, 0x80, 0x10, 1, 1, 20, 0],
        &[2, 0, 1, 1, 20, 0],
    ];
    for bytes in hostile {
        assert!(is_damage(&read_list(bytes)), "{bytes:?}");
    }
    assert!(is_newer(&read_list(&[1, 0, 4, 1])));
    assert_eq!(
        read_list(&[1, 6, 3, 1, 9]),
        MaskList::of([(6, whole(1, 9))]).map_err(Fault::from)
    );
    assert!(MaskList::of([(3, whole(2, 9)), (5, rows([1]))]).is_err());
}

#[test]
fn what_an_edit_says_has_to_add_up() {
    let wrong: [fn(&mut MaskEdit); 9] = [
        |edit| edit.items[0].newly = 0,
        |edit| edit.items[0].newly = 34,
        |edit| edit.items[0].newly = 336,
        |edit| edit.items[0].rows = 334,
        |edit| edit.items.reverse(),
        |edit| edit.items[1] = edit.items[0].clone(),
        |edit| edit.parts[0].rows = 9,
        |edit| edit.parts[0].commit = CommitNo(0),
        |edit| (edit.items, edit.parts) = (vec![], vec![]),
    ];
    let read = |edit: &MaskEdit| {
        let mut bytes = Vec::new();
        edit.put(&mut bytes);
        MaskEdit::decode(&bytes)
    };
    for (at, spoil) in wrong.into_iter().enumerate() {
        let mut edit = example();
        spoil(&mut edit);
        assert!(edit.check().is_err(), "{at}");
        assert_eq!(
            read(&edit).unwrap_err().kind(),
            ErrorKind::Corruption,
            "{at}"
        );
    }
    for newly in [35, 335] {
        let mut edit = example();
        edit.items[0].newly = newly;
        assert_eq!(read(&edit).unwrap(), edit);
    }
    let mut bytes = Vec::new();
    example().put(&mut bytes);
    bytes[13] = 1;
    assert_eq!(
        MaskEdit::decode(&bytes).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    bytes[13] = 0;
    bytes[4..8].fill(0xff);
    assert_eq!(
        MaskEdit::decode(&bytes).unwrap_err().kind(),
        ErrorKind::Corruption
    );
}

#[test]
fn whole_blocks_take_up_what_is_hidden_in_them() {
    let mut list = MaskList::of([(2, rows([0, 1])), (5, rows([7])), (9, whole(0, 10))]).unwrap();
    // Blocks 4 to 8, of ten rows each: of the one with rank 5 a row is hidden already.
    let new = MaskList::of([(4, whole(4, 50))]).unwrap();
    assert_eq!(list.add(&new), Some(49));
    assert_eq!(
        list,
        MaskList::of([(2, rows([0, 1])), (4, whole(5, 60))]).unwrap()
    );
    assert_eq!(list.rows(), 62);
    for hidden in [
        (4, whole(0, 10)),
        (9, whole(3, 40)),
        (3, whole(1, 20)),
        (6, rows([1])),
        (2, rows([1, 2])),
    ] {
        let before = list.clone();
        assert_eq!(list.add(&MaskList::of([hidden]).unwrap()), None);
        assert_eq!(list, before);
    }
    assert_eq!(
        list.add(&MaskList::of([(3, whole(0, 10)), (10, whole(0, 4))]).unwrap()),
        Some(14)
    );
    assert_eq!(
        list,
        MaskList::of([(2, rows([0, 1])), (3, whole(7, 74))]).unwrap()
    );
    assert!(list.meets(10..20) && list.meets(0..3) && !list.meets(11..20) && !list.meets(0..2));
}

/// Rows of each block of an item of the model.
const BLOCK_ROWS: u32 = 8;

/// Hides positions in a plain set; `None` where one is hidden already, or a block to be hidden as a whole is so already.
fn add_to_model(
    hidden: &mut BTreeMap<u32, BTreeSet<u32>>,
    whole_blocks: &mut BTreeSet<u32>,
    new: &MaskList,
) -> Option<u64> {
    let (mut next, mut next_whole, mut newly) = (hidden.clone(), whole_blocks.clone(), 0);
    for (rank, mask) in new.iter() {
        match mask {
            BlockMask::Rows(positions) => {
                let all = next.entry(rank).or_default();
                let is_new = positions.iter().all(|at| all.insert(at));
                if !is_new || whole_blocks.contains(&rank) {
                    return None;
                }
                newly += u64::from(positions.rows());
            }
            BlockMask::Blocks { further, .. } => {
                for rank in rank..=rank + further {
                    let before = next.insert(rank, (0..BLOCK_ROWS).collect());
                    newly += u64::from(BLOCK_ROWS) - before.map_or(0, |before| before.len() as u64);
                    if !next_whole.insert(rank) {
                        return None;
                    }
                }
            }
        }
    }
    (*hidden, *whole_blocks) = (next, next_whole);
    Some(newly)
}

fn lists() -> impl Strategy<Value = MaskList> {
    let mask = prop_oneof![
        3 => btree_set(0..BLOCK_ROWS, 1..4).prop_map(rows),
        1 => (0_u32..3).prop_map(|further| whole(further, u64::from(further + 1) * u64::from(BLOCK_ROWS))),
    ];
    let lists = vec((0_u32..12, mask), 1..5).prop_map(MaskList::of);
    lists.prop_filter_map("masks that meet", Result::ok)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn marks_find_what_a_set_has(gaps in vec(prop_oneof![9 => 0_u32..9, 1 => 0_u32..900], 1..1_500), longest in 1_u32..40) {
        let mut next = 0;
        let mut set = BTreeSet::new();
        for (at, gap) in (0_u32..).zip(gaps) {
            let start = next + gap + 1;
            next = start + 1 + at % longest;
            set.extend(start..next);
        }
        let list = Positions::of_rows(set.iter().copied());
        let marks = list.marks();
        prop_assert!(marks.count() <= list.runs().count() / 64);
        for at in 0..next + 70 {
            prop_assert_eq!(list.contains_marked(at, &marks), set.contains(&at));
        }
        for at in (0..next + 70).step_by(7) {
            prop_assert_eq!(list.contains(at), set.contains(&at));
        }
    }
}

/// Of runs that are far apart.
#[test]
fn long_lists_of_runs_have_marks() {
    let list = Positions::of_rows((0..1_000).map(|row| row * 1_000));
    assert_eq!(list.marks().count(), 1_000 / 64);
}

proptest! {
    #[test]
    fn positions_agree_with_a_set(set in btree_set(prop_oneof![0_u32..200, 0_u32..(1 << 24)], 1..60), other in btree_set(0_u32..200, 1..40)) {
        let (a, b) = (Positions::of_rows(set.iter().copied()), Positions::of_rows(other.iter().copied()));
        prop_assert_eq!(a.iter().collect::<BTreeSet<_>>(), set.clone());
        prop_assert_eq!((a.rows() as usize, a.end()), (set.len(), set.last().unwrap() + 1));
        prop_assert!((0..220).all(|at| a.contains(at) == set.contains(&at)));
        let runs: Vec<_> = a.runs().collect();
        prop_assert!(runs.is_sorted_by(|a, b| a.end < b.start));
        prop_assert_eq!(read_positions(&bytes_of(&a)), Ok(a.clone()));
        let united = set.is_disjoint(&other).then(|| Positions::of_rows(set.union(&other).copied().collect::<BTreeSet<_>>()));
        prop_assert_eq!(a.union_of_new(&b), united);
    }

    #[test]
    fn dense_positions_agree_with_a_set(bits in vec(any::<u8>(), 1..40)) {
        let set: BTreeSet<u32> = (0..320).take(8 * bits.len()).filter(|at| bits[*at as usize / 8] >> (at % 8) & 1 == 1).collect();
        prop_assume!(!set.is_empty());
        let positions = Positions::of_rows(set.iter().copied());
        prop_assert_eq!(positions.iter().collect::<BTreeSet<_>>(), set);
        prop_assert_eq!(read_positions(&bytes_of(&positions)), Ok(positions));
    }

    #[test]
    fn unions_of_dense_positions_agree_with_sets(bits in vec(any::<u8>(), 1..60), more in btree_set(0_u32..700, 1..9), gap: bool) {
        let last = u32::try_from(8 * bits.len()).unwrap();
        let mut set: BTreeSet<u32> = (0..last).filter(|at| bits[*at as usize / 8] >> (at % 8) & 1 == 1).collect();
        prop_assume!(!set.is_empty());
        // A gap to be filled shows that few long runs are runs again.
        let more = if gap { (0..last).filter(|at| !set.contains(at)).collect() } else { more };
        for part in [more.iter().copied().step_by(2).collect::<Vec<_>>(), more.iter().copied().skip(1).step_by(2).collect()] {
            if part.is_empty() {
                continue;
            }
            let (old, new) = (Positions::of_rows(set.iter().copied()), Positions::of_rows(part.iter().copied()));
            let is_new = part.iter().all(|at| !set.contains(at));
            let united = is_new.then(|| Positions::of_rows(set.iter().chain(&part).copied().collect::<BTreeSet<_>>()));
            prop_assert_eq!(old.union_of_new(&new), united.clone());
            prop_assert_eq!(new.union_of_new(&old), united);
            if is_new {
                set.extend(part);
            }
        }
    }

    #[test]
    fn lists_agree_with_sets(steps in vec(lists(), 1..12)) {
        let (mut list, mut hidden, mut whole_blocks) = (MaskList::default(), BTreeMap::new(), BTreeSet::new());
        for new in steps {
            let before = list.clone();
            let expected = add_to_model(&mut hidden, &mut whole_blocks, &new);
            prop_assert_eq!(list.add(&new), expected);
            if expected.is_none() {
                prop_assert_eq!(&list, &before);
            }
            let rows: usize = hidden.values().map(BTreeSet::len).sum();
            prop_assert_eq!(list.rows(), rows as u64);
            for rank in 0..16 {
                let found = list.of_block(rank);
                let is_whole = matches!(found, Some(BlockMask::Blocks { .. }));
                prop_assert_eq!(is_whole, whole_blocks.contains(&rank));
                if let Some(BlockMask::Rows(positions)) = found {
                    prop_assert_eq!(&positions.iter().collect::<BTreeSet<_>>(), &hidden[&rank]);
                }
                prop_assert_eq!(found.is_some(), hidden.get(&rank).is_some_and(|rows| !rows.is_empty()));
            }
            if !list.is_empty() {
                prop_assert_eq!(read_list(&list_bytes(&list)), Ok(list.clone()));
            }
        }
    }

    #[test]
    fn every_spelling_is_the_only_one(bytes in vec(prop_oneof![0_u8..6, any::<u8>()], 0..24)) {
        if let Ok(list) = read_list(&bytes) {
            prop_assert_eq!(list_bytes(&list), bytes.clone());
        }
        if let Ok(positions) = read_positions(&bytes) {
            prop_assert_eq!(bytes_of(&positions), bytes);
        }
    }

    #[test]
    fn a_changed_edit_is_refused_or_read_as_it_is(at in 0_usize..400, byte: u8) {
        let mut bytes = Vec::new();
        example().put(&mut bytes);
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(edit) = MaskEdit::decode(&bytes) {
            let mut again = Vec::new();
            edit.put(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}
