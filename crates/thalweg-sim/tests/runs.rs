//! Items that a commit takes out by runs: just those that its maker has found, whatever came and went since.
//!
//! Faults that these tests look for: a row goes that came after the deletion looked; an append refuses a deletion; a run takes
//! other items than those it was made of; masks stay behind; pages of the index that cannot be read lose a run.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a step that fails is a test that fails"
)]

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::Durability::{Disk, Process};
use thalweg_kernel::index::{Entry, ItemName, Step as Visit};
use thalweg_kernel::orders::{OrderReplace, Removed, ReplaceEdit, Run};
use thalweg_kernel::repair::repair;
use thalweg_kernel::verify::Damage;
use thalweg_kernel::{
    Commit, CommitNo, Edit, ErrorKind, Options, Result, TableId, TableSnapshot, limit_page_entries,
};
use thalweg_sim::driver::deletes::range_to_delete;
use thalweg_sim::masks::{hide, mask, range};
use thalweg_sim::oracle::{hidden_rows, rows_of};
use thalweg_sim::orders::{commit_edit, open_indexed, staged};
use thalweg_sim::toy::{Row, Toy, block_of_order};

fn rows(keys: impl IntoIterator<Item = i64>) -> Vec<Row> {
    keys.into_iter().map(|key| (key, key + 1_000)).collect()
}

fn is_conflict(done: Result<CommitNo>) -> bool {
    done.is_err_and(|error| error.kind() == ErrorKind::Conflict)
}

fn keys_of(toy: &Toy, table: TableId) -> Vec<i64> {
    let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
    let rows = rows_of(toy, &state).unwrap();
    rows.iter().map(|row| row.0).collect()
}

fn commit(toy: &Toy, commit: Commit) -> Result<CommitNo> {
    toy.kernel.commit(commit, Disk)
}

fn runs_of(commit: &Commit) -> &[Run] {
    match &commit.edits[..] {
        [Edit::Replace(edit)] => match &edit.orders[0].removed {
            Removed::Runs(runs) => runs,
            Removed::Items(_) => panic!("runs"),
        },
        _ => panic!("one replacement"),
    }
}

/// The database has these keys: now, for a reading process, and after a power cut, with and without a checkpoint.
fn check(sim: &SimEnv, toy: &Toy, table: TableId, keys: &[i64]) {
    let options = Options {
        background: false,
        ..Options::default()
    };
    let read_only = Options {
        read_only: true,
        ..options.clone()
    };
    for round in 0..2 {
        assert_eq!(keys_of(toy, table), keys, "round {round}");
        let reader = Toy::open(&sim.env_of_process(7), "/db", &read_only, 4).unwrap();
        assert_eq!(keys_of(&reader, table), keys, "a reader, round {round}");
        let image = sim.crash_image(&CrashChoice::DropAll);
        let again = Toy::open(&image.env(), "/db", &options, 4).unwrap();
        assert_eq!(keys_of(&again, table), keys, "opened, round {round}");
        assert!(again.kernel.verify(&mut |_| {}).unwrap().damage.is_empty());
        toy.kernel.checkpoint().unwrap();
    }
}

/// A stream in order, of blocks of two rows, on pages of four entries.
fn in_order(seed: u64, keys: std::ops::Range<i64>) -> (SimEnv, Toy, TableId) {
    limit_page_entries(4);
    let sim = SimEnv::new(seed);
    let (toy, table) = open_indexed(&sim, 0);
    for key in keys.step_by(8) {
        let group = rows(key..key + 8);
        toy.append_group(table, &group, 2, Process).unwrap();
    }
    (sim, toy, table)
}

#[test]
fn a_range_goes_as_one_run() {
    let (sim, toy, table) = in_order(1, 0..160);
    hide(&toy, mask(&toy, table, &[20, 51, 159])).unwrap();
    toy.kernel.checkpoint().unwrap();
    let deletion = range(&toy, table, 11..=140);
    assert_eq!(runs_of(&deletion).len(), 1);
    commit(&toy, deletion).unwrap();
    let left: Vec<i64> = (0..11).chain(141..159).collect();
    check(&sim, &toy, table, &left);
    let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
    let hidden: u64 = state.masks().map_or(0, |masks| masks.rows());
    assert_eq!(
        hidden, 3,
        "one row at each border, and one that was hidden before"
    );
    commit(&toy, range(&toy, table, i64::MIN..=i64::MAX)).unwrap();
    check(&sim, &toy, table, &[]);
}

#[test]
fn appends_refuse_no_run_and_stay() {
    let (sim, toy, table) = in_order(2, 0..80);
    let deletion = range(&toy, table, 8..=71);
    // Before, behind and in the run, in order and late, in blocks, fragments and open.
    toy.append_group(table, &rows(80..84), 2, Disk).unwrap();
    toy.append_group(table, &rows([0, 15, 16, 70]), 1, Disk)
        .unwrap();
    toy.append_fragment(table, &rows(30..36), 2).unwrap();
    toy.append(table, &rows([40, 90, 91]), Disk).unwrap();
    toy.kernel.checkpoint().unwrap();
    toy.append_group(table, &rows([8, 71]), 1, Disk).unwrap();
    commit(&toy, deletion).unwrap();
    let mut left: Vec<i64> = (0..8).chain(72..84).collect();
    left.extend([0, 15, 16, 70, 40, 90, 91, 8, 71].into_iter().chain(30..36));
    left.sort_unstable();
    check(&sim, &toy, table, &left);
}

#[test]
fn a_run_of_which_an_item_went_conflicts() {
    let (sim, toy, table) = in_order(3, 0..32);
    let own = toy.append_group(table, &rows(32..34), 2, Disk).unwrap();
    let [whole, part, other] = [0..=33, 33..=40, 0..=7].map(|keys| range(&toy, table, keys));
    let name = runs_of(&range(&toy, table, 32..=33))[0].first;
    let root = staged(&toy, (table, 0), &rows(32..34), Some((own, own)));
    let replace = ReplaceEdit::of_rows(table, vec![name], vec![root]);
    commit_edit(&toy, Edit::Replace(replace), None).unwrap();
    assert!(
        is_conflict(commit(&toy, whole)),
        "its last item was replaced"
    );
    assert!(
        is_conflict(commit(&toy, part)),
        "a masked item was replaced"
    );
    commit(&toy, other).unwrap();
    let all: Vec<i64> = (8..34).collect();
    check(&sim, &toy, table, &all);
    // A row that somebody else has deleted, and an item that has left with its last one.
    let [first, second] = [9..=20, 8..=12].map(|keys| range(&toy, table, keys));
    hide(&toy, mask(&toy, table, &[15])).unwrap();
    assert!(is_conflict(commit(&toy, first)));
    hide(&toy, mask(&toy, table, &[10, 11])).unwrap();
    assert!(is_conflict(commit(&toy, second)));
    commit(&toy, range(&toy, table, 9..=20)).unwrap();
    let left: Vec<i64> = [8].into_iter().chain(21..34).collect();
    check(&sim, &toy, table, &left);
}

#[test]
fn more_runs_than_a_commit_takes_are_a_limit_with_a_way_out() {
    let (_, toy, table) = in_order(8, 0..16);
    let run = runs_of(&range(&toy, table, 0..=1))[0];
    let nth = |n: u32| {
        let mut name = run.first;
        name.key.ordinal = n;
        let (first, last) = (name, name);
        Run { first, last, ..run }
    };
    let many = |runs: u32| {
        let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
        let edit = ReplaceEdit {
            deleted: u64::from(runs) * run.rows,
            orders: vec![OrderReplace::of_runs(0, (0..runs).map(nth).collect())],
            ..ReplaceEdit::of_orders(table)
        };
        let deletion = Commit {
            runs_of: vec![state],
            edits: vec![Edit::Replace(edit)],
            ..Commit::default()
        };
        commit(&toy, deletion).unwrap_err()
    };
    let refused = many(32_769);
    assert_eq!(refused.kind(), ErrorKind::Limit);
    assert!(refused.message().contains("run `maintain`"), "{refused}");
    assert_eq!(many(32_768).kind(), ErrorKind::Conflict);
}

#[test]
fn runs_are_those_of_a_snapshot() {
    let (_, toy, table) = in_order(4, 0..32);
    let of_none = Commit {
        runs_of: Vec::new(),
        ..range(&toy, table, 0..=15)
    };
    let refused = commit(&toy, of_none).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    for spoil in [
        |edit: &mut ReplaceEdit| edit.deleted += 1,
        |edit: &mut ReplaceEdit| edit.orders.push(OrderReplace::of_runs(7, Vec::new())),
    ] {
        let mut deletion = range(&toy, table, 0..=15);
        let Edit::Replace(edit) = &mut deletion.edits[0] else {
            panic!("a replacement")
        };
        spoil(edit);
        assert!(commit(&toy, deletion).is_err());
    }
    assert_eq!(keys_of(&toy, table).len(), 32);
}

#[derive(Clone, Debug)]
enum Step {
    Group(Vec<i64>),
    Fragment(Vec<i64>),
    Open(Vec<i64>),
    Encode,
    Checkpoint,
    Hide(RangeInclusive<i64>),
    /// A deletion that was planned before so many of the steps before it.
    Delete(RangeInclusive<i64>, usize),
    /// A merge of so many items from one of them on, which was made before so many of the steps before it.
    Merge(usize, usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let keys = |most: usize| vec(0_i64..60, 1..most);
    let range = || (0_i64..60, 0_i64..40).prop_map(|(first, more)| first..=first + more);
    prop_oneof![
        4 => keys(16).prop_map(Step::Group),
        1 => keys(24).prop_map(Step::Fragment),
        2 => keys(4).prop_map(Step::Open),
        1 => Just(Step::Encode),
        1 => Just(Step::Checkpoint),
        1 => range().prop_map(Step::Hide),
        3 => (range(), 0_usize..3).prop_map(|(keys, before)| Step::Delete(keys, before)),
        2 => (any::<usize>(), 1_usize..5, 0_usize..4)
            .prop_map(|(from, many, before)| Step::Merge(from, many, before)),
    ]
}

/// The items of a table, and the rows of each that are not hidden.
fn kept_items(toy: &Toy, state: &TableSnapshot) -> Vec<(Entry, Vec<Row>)> {
    let mut items: Vec<(Entry, Vec<Row>)> = Vec::new();
    let mut walk = state.tree.walk(None, toy.kernel.store().clone());
    while let Some(block) = walk
        .next_at(|entry, place| {
            if place.is_some_and(|place| place.item == ItemName::of(entry)) {
                items.push((entry.clone(), Vec::new()));
            }
            Visit::Descend
        })
        .unwrap()
    {
        let place = walk.place().unwrap();
        let rows = toy.block_rows(&block).unwrap();
        let hidden = hidden_rows(state, &place, rows.len());
        let kept = (0_u32..)
            .zip(rows)
            .filter(|(at, _)| !hidden.contains(at))
            .map(|(_, row)| row);
        let of_item = |(entry, _): &&mut (Entry, Vec<Row>)| ItemName::of(entry) == place.item;
        items.iter_mut().find(of_item).unwrap().1.extend(kept);
    }
    items
}

/// How many rows of an item are hidden; `None`: it is not there.
fn hidden_of(toy: &Toy, state: &TableSnapshot, name: ItemName) -> Option<u64> {
    let items = kept_items(toy, state);
    let found = items.iter().find(|(entry, _)| ItemName::of(entry) == name);
    found.map(|(entry, rows)| entry.rows - rows.len() as u64)
}

/// A merge of some items as of a snapshot, and how many rows of each are hidden there. `ordinal`: no other block has it.
fn merge(
    toy: &Toy,
    state: &TableSnapshot,
    from: usize,
    many: usize,
    ordinal: u32,
) -> Option<(Commit, Vec<(ItemName, u64)>)> {
    let items = kept_items(toy, state);
    let from = from.checked_rem(items.len())?;
    let chosen = &items[from..items.len().min(from + many)];
    let mut rows: Vec<Row> = { chosen.iter() }
        .flat_map(|(_, rows)| rows.clone())
        .collect();
    rows.sort_unstable();
    let first = chosen.iter().map(|(entry, _)| entry.commit_min).min()?;
    let last = chosen.iter().map(|(entry, _)| entry.commit_max).max()?;
    let hidden =
        |(entry, rows): &(Entry, Vec<Row>)| (ItemName::of(entry), entry.rows - rows.len() as u64);
    let hidden: Vec<(ItemName, u64)> = chosen.iter().map(hidden).collect();
    let mut fragment = toy.kernel.stage_fragment_of(state.id, 0).unwrap();
    let mut block = block_of_order((state.id, 0), rows, Some((first, last)), 2);
    block.entry = block.entry.committed(first, last, ordinal);
    fragment.add_block(&block).unwrap();
    let root = fragment.finish().unwrap();
    let names = hidden.iter().map(|(name, _)| *name).collect();
    let edit = ReplaceEdit {
        left_out: hidden.iter().map(|(_, rows)| rows).sum(),
        ..ReplaceEdit::of_rows(state.id, names, vec![root])
    };
    let commit = Commit {
        edits: vec![Edit::Replace(edit)],
        prepared_at: Some(state.commit()),
        ..Commit::default()
    };
    Some((commit, hidden))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A deletion that was planned from an older snapshot takes the rows of that snapshot, or is refused for what others have deleted
    /// or moved: never for what was appended. A merge is refused for another merge, or for what was deleted of its own blocks.
    #[test]
    fn a_deletion_takes_the_rows_that_it_has_found(steps in vec(step(), 1..30), seed in 0_u64..1_000) {
        limit_page_entries(4);
        let sim = SimEnv::new(seed);
        let (toy, table) = open_indexed(&sim, 0);
        let mut model: BTreeSet<(i64, i64)> = BTreeSet::new();
        let mut number = 0;
        let mut snapshots = Vec::new();
        // Which of the steps were merges.
        let mut merged = Vec::new();
        for (ordinal, step) in (100..).zip(&steps) {
            let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
            // Whether anything but appends came since.
            snapshots.push((state, false));
            let mut fresh = |keys: &[i64]| -> Vec<Row> {
                let mut keys = keys.to_vec();
                keys.sort_unstable();
                keys.into_iter().map(|key| { number += 1; (key, number) }).collect()
            };
            let (mut has_moved, mut has_merged) = (false, false);
            match step {
                Step::Group(keys) => {
                    let rows = fresh(keys);
                    toy.append_group(table, &rows, 3, Process).unwrap();
                    model.extend(rows);
                }
                Step::Fragment(keys) => {
                    let rows = fresh(keys);
                    toy.append_fragment(table, &rows, 3).unwrap();
                    model.extend(rows);
                }
                Step::Open(keys) => {
                    let rows = fresh(keys);
                    toy.append(table, &rows, Process).unwrap();
                    model.extend(rows);
                    // They may make a block.
                    has_moved = true;
                }
                Step::Encode => {
                    toy.kernel.encode_open_rows(table).unwrap();
                    has_moved = true;
                }
                Step::Checkpoint => toy.kernel.checkpoint().unwrap(),
                Step::Hide(keys) => {
                    let hit: Vec<i64> = keys.clone().collect();
                    let edit = mask(&toy, table, &hit);
                    if !(edit.items.is_empty() && edit.parts.is_empty()) {
                        hide(&toy, edit).unwrap();
                    }
                    model.retain(|row| !keys.contains(&row.0));
                    has_moved = true;
                }
                Step::Delete(keys, before) => {
                    let at = snapshots.len().saturating_sub(before + 1);
                    let (state, _) = snapshots[at].clone();
                    let only_appends = snapshots[at..].iter().all(|(_, moved)| !moved);
                    let (commit, values) = range_to_delete(&toy, &state, keys.clone()).unwrap();
                    if !values.is_empty() {
                        match toy.kernel.commit(commit, Process) {
                            Ok(_) => {
                                let before = model.len();
                                model.retain(|row| !values.contains(&row.1));
                                prop_assert_eq!(before - model.len(), values.len());
                                has_moved = true;
                            }
                            Err(error) => {
                                prop_assert_eq!(error.kind(), ErrorKind::Conflict);
                                prop_assert!(!only_appends, "refused for an append: {}", error);
                            }
                        }
                    }
                }
                Step::Merge(from, many, before) => {
                    let at = snapshots.len().saturating_sub(before + 1);
                    let (state, _) = snapshots[at].clone();
                    let now = toy.kernel.snapshot().unwrap().table(table).unwrap();
                    if let Some((commit, sources)) = merge(&toy, &state, *from, *many, ordinal) {
                        let is_same = |(name, hidden): &(ItemName, u64)| hidden_of(&toy, &now, *name) == Some(*hidden);
                        let is_met = !sources.iter().all(is_same) || merged[at..].contains(&true);
                        match toy.kernel.commit(commit, Process) {
                            Ok(_) => (has_moved, has_merged) = (true, true),
                            Err(error) => {
                                prop_assert_eq!(error.kind(), ErrorKind::Conflict);
                                prop_assert!(is_met, "refused for other blocks: {}", error);
                            }
                        }
                    }
                }
            }
            merged.push(has_merged);
            snapshots.last_mut().unwrap().1 = has_moved;
            let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
            let rows: BTreeSet<Row> = rows_of(&toy, &state).unwrap().into_iter().collect();
            prop_assert_eq!(&rows, &model);
        }
        snapshots.clear();
        toy.kernel.flush().unwrap();
        let keys: Vec<i64> = model.iter().map(|row| row.0).collect();
        check(&sim, &toy, table, &keys);
    }
}

/// Where the index pages in the log begin.
fn pages_in_log(sim: &SimEnv) -> Vec<(PathBuf, u64)> {
    let mut places = Vec::new();
    for (path, _) in sim.files() {
        if path.starts_with("/db/log") {
            let bytes = sim.read_file(&path).unwrap();
            let found = bytes.windows(4).enumerate();
            let found = found.filter(|(_, bytes)| bytes == b"TIPG");
            places.extend(found.map(|(at, _)| (path.clone(), at as u64)));
        }
    }
    assert!(!places.is_empty());
    places
}

fn flip(sim: &SimEnv, places: &[(PathBuf, u64)]) {
    for (path, at) in places {
        let at = at + 40;
        let byte = sim.read_file(path).unwrap()[usize::try_from(at).unwrap()];
        sim.overwrite_file(path, at, &[byte ^ 1]).unwrap();
    }
}

#[test]
fn runs_wait_for_a_page_that_cannot_be_read() {
    let (sim, toy, table) = in_order(5, 0..80);
    hide(&toy, mask(&toy, table, &[31])).unwrap();
    toy.kernel.checkpoint().unwrap();
    let options = Options {
        background: false,
        ..Options::default()
    };
    let open = |sim: &SimEnv| Toy::open(&sim.env(), "/db", &options, 4).unwrap();
    let group = |keys: &[i64]| {
        let rows = rows(keys.iter().copied());
        toy.append_group(table, &rows, 1, Disk).unwrap();
    };
    let delete = |keys| commit(&toy, range(&toy, table, keys)).unwrap();
    // Runs with common keys, of items that waited and others; an item that leaves within one that comes later; keys used again.
    let steps: [&dyn Fn(); 9] = [
        &|| _ = delete(11..=40),
        &|| group(&[20, 21, 30, 64]),
        &|| {
            hide(&toy, mask(&toy, table, &[60, 61]))
                .map(|_| ())
                .unwrap()
        },
        &|| _ = delete(21..=51),
        &|| group(&[20, 25, 61]),
        &|| _ = delete(19..=62),
        &|| group(&[20, 40]),
        &|| {
            hide(&toy, mask(&toy, table, &[40, 70]))
                .map(|_| ())
                .unwrap()
        },
        &|| _ = delete(5..=22),
    ];
    for step in steps {
        step();
        let want = keys_of(&toy, table);
        for with_checkpoint in [false, true] {
            let image = sim.crash_image(&CrashChoice::Kill);
            let damage = pages_in_log(&image);
            flip(&image, &damage);
            let again = open(&image);
            let state = again.kernel.snapshot().unwrap().table(table).unwrap();
            assert!(rows_of(&again, &state).is_err(), "the table is read");
            if with_checkpoint {
                let other = again.create("u").unwrap();
                again.append(other, &rows([1]), Disk).unwrap();
                again.kernel.checkpoint().unwrap();
                drop(again);
                let again = open(&image);
                let state = again.kernel.snapshot().unwrap().table(table).unwrap();
                assert!(rows_of(&again, &state).is_err(), "the table is read");
                again.kernel.close().unwrap();
            } else {
                drop(again);
            }
            flip(&image, &damage);
            let healed = open(&image);
            assert_eq!(keys_of(&healed, table), want, "{with_checkpoint}");
            assert!(healed.kernel.verify(&mut |_| {}).unwrap().damage.is_empty());
        }
    }
}

/// Damages the frame of a commit behind what it says of its sections.
fn lose(sim: &SimEnv, commit: CommitNo) {
    let wanted = commit.0.to_le_bytes();
    for (path, _) in sim.files() {
        if !path.starts_with("/db/log") {
            continue;
        }
        let bytes = sim.read_file(&path).unwrap();
        let is_it =
            |at: &usize| bytes[*at..].starts_with(b"TFRM") && bytes[at + 8..at + 16] == wanted;
        let found = (0..bytes.len().saturating_sub(64)).find(is_it);
        if let Some(at) = found {
            sim.overwrite_file(&path, at as u64 + 120, &[0xA5]).unwrap();
            return;
        }
    }
    panic!("a frame of commit {}", commit.0)
}

#[test]
fn a_repair_applies_runs_to_what_is_there() {
    let options = Options {
        background: false,
        ..Options::default()
    };
    // Whether what is lost before the deletion lists an edit, and what is left then.
    let kept: Vec<i64> = (0..4).chain(29..32).collect();
    let all: Vec<i64> = (0..32).collect();
    for (loses_edits, keys) in [(false, kept), (true, all)] {
        let (sim, toy, table) = in_order(6, 0..32);
        toy.kernel.checkpoint().unwrap();
        let lost = match loses_edits {
            false => toy
                .append_group(table, &rows([10, 11, 40]), 1, Disk)
                .unwrap(),
            true => toy.append_fragment(table, &rows([10, 11, 40]), 2).unwrap(),
        };
        toy.append(table, &rows([5]), Disk).unwrap();
        let deleted = commit(&toy, range(&toy, table, 4..=28)).unwrap();
        toy.append(table, &rows([50]), Disk).unwrap();
        let image = sim.crash_image(&CrashChoice::Kill);
        lose(&image, lost);
        let report = repair(&image.env(), Path::new("/db"), &options, &mut |_| {}).unwrap();
        let repaired = Toy::open(&image.env(), "/db", &options, 4).unwrap();
        let found: BTreeSet<i64> = keys_of(&repaired, table).into_iter().collect();
        let mut want: BTreeSet<i64> = keys.into_iter().chain([50]).collect();
        // Nothing hides open rows of a commit that is left out.
        want.extend(loses_edits.then_some(5));
        assert_eq!(found, want, "{loses_edits}: {:?}", report.given_up);
        let may_be_back = |damage: &Damage| damage.what.contains("deleted rows may be back");
        // The fragment had a mask of its own.
        assert_eq!(
            report.given_up.iter().filter(|at| may_be_back(at)).count(),
            1 + usize::from(loses_edits),
            "{:?}",
            report.given_up
        );
        // Its runs, a row at the border, and the open one.
        let left_out = format!("26 deleted rows may be back: commit {}", deleted.0);
        let mut told = report.given_up.iter();
        assert_eq!(
            told.any(|damage| damage.what.starts_with(&left_out)),
            loses_edits,
            "{:?}",
            report.given_up
        );
        let stays = |damage: &Damage| damage.what.contains("stay where they were");
        assert!(!report.mended.iter().any(stays), "{:?}", report.mended);
        assert!(
            repaired
                .kernel
                .verify(&mut |_| {})
                .unwrap()
                .damage
                .is_empty()
        );
    }
}

/// Damages a slot of the root.
fn lose_slot(sim: &SimEnv, slot: u64) {
    let at = slot * 4096 + 50;
    let root = Path::new("/db/root");
    let byte = sim.read_file(root).unwrap()[usize::try_from(at).unwrap()];
    sim.overwrite_file(root, at, &[byte ^ 0x55]).unwrap();
}

#[test]
fn a_repair_prefers_no_checkpoint_for_rows_that_were_deleted_since() {
    let options = Options {
        background: false,
        ..Options::default()
    };
    let (sim, toy, table) = in_order(7, 0..80);
    toy.kernel.checkpoint().unwrap();
    toy.append(table, &rows([200]), Disk).unwrap();
    toy.kernel.checkpoint().unwrap();
    let added = toy
        .append_fragment(table, &rows([100, 101, 102]), 2)
        .unwrap();
    let deleted = commit(&toy, range(&toy, table, 4..=68)).unwrap();
    let hidden = hide(&toy, mask(&toy, table, &[1, 200])).unwrap();
    toy.append(table, &rows([300]), Disk).unwrap();
    toy.kernel.checkpoint().unwrap();
    let tail = toy.append(table, &rows([350]), Disk).unwrap();
    toy.append(table, &rows([400]), Disk).unwrap();
    let want = keys_of(&toy, table);
    // One of the slots leads to the log before the deletion. The other checkpoint has all that the lost frame did.
    for (slot, lost) in (0..2).flat_map(|slot| [added, deleted, hidden].map(|lost| (slot, lost))) {
        // And without a commit that is missing from either.
        for loses_tail in [false, true] {
            let mut want = want.clone();
            let image = sim.crash_image(&CrashChoice::Kill);
            lose_slot(&image, slot);
            lose(&image, lost);
            if loses_tail {
                lose(&image, tail);
                want.retain(|key| *key != 350);
            }
            let report = repair(&image.env(), Path::new("/db"), &options, &mut |_| {}).unwrap();
            let repaired = Toy::open(&image.env(), "/db", &options, 4).unwrap();
            let place = format!(
                "slot {slot}, {lost:?}, {loses_tail}: {:#?}",
                report.given_up
            );
            assert_eq!(keys_of(&repaired, table), want, "{place}");
            assert_eq!(report.given_up.len(), usize::from(loses_tail), "{place}");
        }
    }
}
