//! Rows that are hidden: once, only where they are, and nowhere longer than what they lie in.
//!
//! What could go wrong, and is tried here: a row is deleted twice; a deletion hits another item that has got the key; a row
//! comes back because it was encoded or rewritten before; a mask stays behind without what it hides rows of.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use thalweg_env::sim::{CallKind, CrashChoice, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_kernel::Durability::Disk;
use thalweg_kernel::index::{ItemName, MAX_PAGE_ENTRIES, Step};
use thalweg_kernel::masks::{BlockMask, ItemMask, MaskEdit, MaskList, Positions};
use thalweg_kernel::orders::{AddHead, ReplaceEdit};
use thalweg_kernel::paths::fragment_name;
use thalweg_kernel::{
    Commit, CommitNo, Edit, ErrorKind, GroupPart, Options, Result, Rule, TableId, break_rule,
    limit_page_entries,
};
use thalweg_sim::masks::{hide, mask, mask_of_added};
use thalweg_sim::oracle::rows_of;
use thalweg_sim::orders::{commit_edit, items, open_indexed, staged};
use thalweg_sim::toy::{Row, Toy, block, random_rows};

const ROWS: [Row; 4] = [(1, 11), (2, 12), (3, 13), (4, 14)];

/// Fewer than make a block: they stay open.
const OPEN: [Row; 3] = [ROWS[0], ROWS[1], ROWS[2]];

fn delete(toy: &Toy, table: TableId, keys: &[i64]) {
    hide(toy, mask(toy, table, keys)).unwrap();
}

fn is_conflict(done: Result<CommitNo>) -> bool {
    done.is_err_and(|error| error.kind() == ErrorKind::Conflict)
}

fn keys_of(toy: &Toy, table: TableId) -> Vec<i64> {
    let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
    let rows = rows_of(toy, &state).unwrap();
    rows.iter().map(|row| row.0).collect()
}

fn open_parts(toy: &Toy, table: TableId) -> usize {
    let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
    state.open_rows().count()
}

/// How many rows masks hide, and whether there are any.
fn masked(toy: &Toy, table: TableId) -> (u64, bool) {
    let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
    let masks = state.masks();
    (masks.map_or(0, |masks| masks.rows()), masks.is_some())
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
        assert_eq!(masked(&again, table), masked(toy, table), "round {round}");
        assert!(again.kernel.verify(&mut |_| {}).unwrap().damage.is_empty());
        toy.kernel.checkpoint().unwrap();
    }
}

/// A cover of rows that were open, of which so many are left out.
fn cover(table: TableId, rows: &[Row], commit: CommitNo, left_out: u64) -> Commit {
    let head = AddHead {
        covers: Some(commit),
        left_out,
        ..AddHead::of_rows(table, 1)
    };
    let blocks = match rows.is_empty() {
        true => Vec::new(),
        false => vec![block(table, rows.to_vec(), Some((commit, commit)))],
    };
    Commit {
        groups: vec![GroupPart { head, blocks }],
        ..Commit::default()
    }
}

#[test]
fn a_row_is_deleted_once() {
    let sim = SimEnv::new(1);
    let (toy, table) = open_indexed(&sim, 0);
    toy.append_group(table, &ROWS, 4, Disk).unwrap();
    toy.append(table, &[(7, 1), (8, 2)], Disk).unwrap();
    let edits = [[2, 7], [2, 9], [9, 7], [3, 8]].map(|keys| mask(&toy, table, &keys));
    let [both, block, open, others] = edits;
    hide(&toy, both).unwrap();
    assert!(is_conflict(hide(&toy, block)), "a row of a block");
    assert!(is_conflict(hide(&toy, open)), "an open row");
    assert_eq!(masked(&toy, table), (2, true));
    // Other rows of the same block and part.
    hide(&toy, others).unwrap();
    check(&sim, &toy, table, &[1, 4]);
}

#[test]
fn an_item_leaves_with_its_last_row() {
    let sim = SimEnv::new(2);
    let (toy, table) = open_indexed(&sim, 0);
    toy.append_group(table, &ROWS, 2, Disk).unwrap();
    delete(&toy, table, &[1]);
    let stale = mask(&toy, table, &[2]);
    let left = ItemName::of(&items(&toy, table, 0)[0]);
    delete(&toy, table, &[2]);
    assert_eq!(items(&toy, table, 0).len(), 1);
    assert_eq!(masked(&toy, table), (0, false), "its masks left with it");
    assert!(is_conflict(hide(&toy, stale)));
    let replace = ReplaceEdit::of_rows(table, vec![left], Vec::new());
    assert!(is_conflict(commit_edit(&toy, Edit::Replace(replace), None)));
    check(&sim, &toy, table, &[3, 4]);
    // The last item leaves an empty tree.
    delete(&toy, table, &[3, 4]);
    check(&sim, &toy, table, &[]);
}

#[test]
fn a_deletion_hits_no_other_item_that_has_got_the_key() {
    let sim = SimEnv::new(3);
    let (toy, table) = open_indexed(&sim, 0);
    let own = toy.append_group(table, &ROWS, 4, Disk).unwrap();
    let old = mask(&toy, table, &[2]);
    let name = ItemName::of(&items(&toy, table, 0)[0]);
    let added = staged(&toy, (table, 0), &ROWS, Some((own, own)));
    let replace = ReplaceEdit::of_rows(table, vec![name], vec![added]);
    commit_edit(&toy, Edit::Replace(replace), None).unwrap();
    assert_eq!(items(&toy, table, 0)[0].key(), name.key);
    assert!(is_conflict(hide(&toy, old)));
    check(&sim, &toy, table, &[1, 2, 3, 4]);
}

#[test]
fn an_item_is_not_taken_for_a_smaller_one() {
    let (toy, table) = open_indexed(&SimEnv::new(4), 0);
    toy.append_group(table, &ROWS, 4, Disk).unwrap();
    let mut edit = mask(&toy, table, &[2]);
    edit.items[0].rows = 1;
    assert!(
        is_conflict(hide(&toy, edit)),
        "it would leave with three rows"
    );
    assert_eq!(keys_of(&toy, table), [1, 2, 3, 4]);
}

#[test]
fn a_row_that_is_deleted_while_it_is_encoded_does_not_come_back() {
    let sim = SimEnv::new(5);
    let (toy, table) = open_indexed(&sim, 0);
    let commit = toy.append(table, &OPEN, Disk).unwrap();
    assert_eq!(open_parts(&toy, table), 1);
    let early = cover(table, &OPEN, commit, 0);
    let stale = mask(&toy, table, &[3]);
    delete(&toy, table, &[2]);
    assert!(is_conflict(toy.kernel.commit(early, Disk)));
    // Nor does a cover leave more out than is hidden, or rows that are not.
    let kept = [OPEN[0], OPEN[2]];
    assert!(is_conflict(
        toy.kernel.commit(cover(table, &kept[1..], commit, 2), Disk)
    ));
    toy.kernel
        .commit(cover(table, &kept, commit, 1), Disk)
        .unwrap();
    assert_eq!(masked(&toy, table), (0, false), "masks of what is covered");
    assert!(is_conflict(hide(&toy, stale)), "the part is open no longer");
    check(&sim, &toy, table, &[1, 3]);
}

#[test]
fn open_rows_that_a_commit_covers_are_not_hidden_by_it() {
    let sim = SimEnv::new(6);
    let (toy, table) = open_indexed(&sim, 0);
    let commit = toy.append(table, &OPEN, Disk).unwrap();
    assert_eq!(open_parts(&toy, table), 1);
    let both = Commit {
        masks: vec![mask(&toy, table, &[2])],
        ..cover(table, &OPEN, commit, 0)
    };
    assert!(is_conflict(toy.kernel.commit(both, Disk)));
    assert_eq!(masked(&toy, table), (0, false), "a mask of nothing");
    check(&sim, &toy, table, &[1, 2, 3]);
}

#[test]
fn rows_that_are_all_deleted_are_covered_by_no_block() {
    let sim = SimEnv::new(7);
    let (toy, table) = open_indexed(&sim, 0);
    toy.append(table, &OPEN, Disk).unwrap();
    assert_eq!(open_parts(&toy, table), 1);
    delete(&toy, table, &[1, 2, 3]);
    toy.kernel.encode_open_rows(table).unwrap();
    assert_eq!(open_parts(&toy, table), 0);
    assert_eq!(masked(&toy, table), (0, false));
    // Covers need not last: their rows are there, hidden.
    toy.kernel.checkpoint().unwrap();
    check(&sim, &toy, table, &[]);
}

#[test]
fn rows_that_are_carried_are_hidden_in_their_new_place() {
    let sim = SimEnv::new(8);
    let (toy, table) = open_indexed(&sim, 0);
    let own = toy.append_group(table, &ROWS, 4, Disk).unwrap();
    delete(&toy, table, &[2, 3]);
    // Files of refused commits are abandoned.
    let commit = |hidden: &[u32], left_out, carried| {
        let old = ItemName::of(&items(&toy, table, 0)[0]);
        let root = staged(&toy, (table, 0), &ROWS, Some((own, own)));
        let edit8 = MaskEdit {
            table,
            items: vec![mask_of_added(&root, hidden)],
            parts: Vec::new(),
        };
        let edit = ReplaceEdit {
            left_out,
            carried,
            ..ReplaceEdit::of_rows(table, vec![old], vec![root])
        };
        Commit {
            edits: vec![Edit::Replace(edit)],
            masks: vec![edit8],
            ..Commit::default()
        }
    };
    // One of them is not hidden again; fewer, and more, than are hidden.
    for refused in [
        commit(&[1], 0, 2),
        commit(&[1, 2], 0, 1),
        commit(&[1, 2], 0, 3),
    ] {
        assert!(is_conflict(toy.kernel.commit(refused, Disk)));
    }
    toy.kernel.commit(commit(&[1, 2], 0, 2), Disk).unwrap();
    assert_eq!(masked(&toy, table), (2, true));
    check(&sim, &toy, table, &[1, 4]);
    // Carried and hidden to the last row: the item does not come.
    toy.kernel
        .commit(commit(&[0, 1, 2, 3], 0, 2), Disk)
        .unwrap();
    assert_eq!(masked(&toy, table), (0, false));
    check(&sim, &toy, table, &[]);
}

#[test]
fn a_row_that_is_deleted_while_it_is_left_out_conflicts() {
    let sim = SimEnv::new(9);
    let (toy, table) = open_indexed(&sim, 0);
    toy.append_group(table, &ROWS, 4, Disk).unwrap();
    let old = ItemName::of(&items(&toy, table, 0)[0]);
    let deleting = || {
        let edit = ReplaceEdit {
            deleted: 4,
            ..ReplaceEdit::of_rows(table, vec![old], Vec::new())
        };
        commit_edit(&toy, Edit::Replace(edit), None)
    };
    delete(&toy, table, &[3]);
    assert!(
        is_conflict(deleting()),
        "somebody else has deleted one of them"
    );
    check(&sim, &toy, table, &[1, 2, 4]);
}

#[test]
fn masks_go_with_their_table() {
    let sim = SimEnv::new(10);
    let (toy, table) = open_indexed(&sim, 0);
    toy.append_group(table, &ROWS, 4, Disk).unwrap();
    let late = mask(&toy, table, &[2]);
    delete(&toy, table, &[3]);
    toy.drop_table(table).unwrap();
    let error = hide(&toy, late).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    // One with the name has none of it.
    let again = toy.create("t").unwrap();
    toy.append_group(again, &ROWS, 4, Disk).unwrap();
    check(&sim, &toy, again, &[1, 2, 3, 4]);
}

/// A table with a block of four rows of which one is deleted, and open rows of which one is.
fn with_masks(sim: &SimEnv) -> (Toy, TableId) {
    let (toy, table) = open_indexed(sim, 0);
    toy.append_group(table, &ROWS, 4, Disk).unwrap();
    toy.append(table, &[(7, 1), (8, 2), (9, 3)], Disk).unwrap();
    delete(&toy, table, &[2, 8]);
    (toy, table)
}

fn found_by_verify(toy: &Toy) -> Vec<String> {
    let damage = toy.kernel.verify(&mut |_| {}).unwrap().damage;
    damage.into_iter().map(|damage| damage.what).collect()
}

#[test]
fn rows_that_are_deleted_and_not_there_are_damage() {
    let two_blocks = |masks: MaskList| {
        let (toy, table) = open_indexed(&SimEnv::new(11), 0);
        toy.append_fragment(table, &ROWS, 2).unwrap();
        assert_eq!(found_by_verify(&toy), [""; 0]);
        let item = ItemMask {
            newly: masks.rows(),
            masks,
            ..mask_of_added(&items(&toy, table, 0)[0], &[0])
        };
        let edit = MaskEdit {
            table,
            items: vec![item],
            parts: Vec::new(),
        };
        hide(&toy, edit).unwrap();
        found_by_verify(&toy)
    };
    let whole = |further, rows| BlockMask::Blocks { further, rows };
    let row = |row| BlockMask::Rows(Positions::of_rows([row]));
    let cases = [
        (0, row(1), ""),
        (1, whole(0, 2), ""),
        (1, row(2), "rows are deleted that it does not have"),
        (2, row(0), "more blocks than a file has"),
        (1, whole(1, 3), "more blocks than a file has"),
        (0, whole(0, 1), "have other rows"),
        (0, whole(1, 3), "have other rows"),
    ];
    for (rank, mask, what) in cases {
        let case = format!("{mask:?} at {rank}");
        let found = two_blocks(MaskList::of([(rank, mask)]).unwrap());
        match what {
            "" => assert_eq!(found, [""; 0], "{case}"),
            what => assert!(
                found.len() == 1 && found[0].contains(what),
                "{case}: {found:?}"
            ),
        }
    }
}

/// Where bytes lie last in the log.
fn last_in_log(sim: &SimEnv, wanted: &[u8]) -> (PathBuf, u64) {
    let mut files = sim.files();
    files.retain(|(path, _)| path.starts_with("/db/log"));
    files.sort();
    let found = files.iter().rev().find_map(|(path, _)| {
        let bytes = sim.read_file(path).unwrap();
        let at = bytes.windows(wanted.len()).rposition(|at| at == wanted)?;
        Some((path.clone(), at as u64))
    });
    found.unwrap()
}

#[test]
fn masks_of_what_is_not_there_are_damage_of_a_checkpoint() {
    let sim = SimEnv::new(12);
    let (toy, table) = with_masks(&sim);
    toy.kernel.checkpoint().unwrap();
    let name = ItemName::of(&items(&toy, table, 0)[0]);
    let item = [
        &name.key.key_min.to_le_bytes()[..],
        &name.key.commit.0.to_le_bytes(),
        &name.key.ordinal.to_le_bytes(),
        &name.fragment.0.to_le_bytes(),
        &name.crc.to_le_bytes(),
    ]
    .concat();
    let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
    let commit = state.open_rows().next().unwrap().commit;
    let part = [&commit.0.to_le_bytes()[..], &[0; 4], &[3, 0, 0, 0]].concat();
    // The first byte of: the key, the commit, the checksum; the commit, the number, the rows.
    let lies: [(&[u8], u64, Option<&str>); 6] = [
        (&item, 0, Some("a block that is not there")),
        (&item, 8, None),
        (&item, 28, None),
        (&part, 0, Some("open rows that are not there")),
        (&part, 8, Some("open rows that are not there")),
        (&part, 12, Some("open rows that are not there")),
    ];
    for (what, at, refused) in lies {
        let image = sim.crash_image(&CrashChoice::KeepAll);
        let (path, start) = last_in_log(&image, what);
        image.overwrite_file(&path, start + at, &[0x55]).unwrap();
        let options = Options {
            background: false,
            ..Options::default()
        };
        // Its checksum is wrong as well, and that alone suffices.
        let open = || Toy::open(&image.env(), "/db", &options, 4);
        assert_eq!(open().unwrap_err().kind(), ErrorKind::Corruption);
        break_rule(Some(Rule::Checksum));
        let opened = open();
        let found = match &opened {
            Err(error) => error.to_string(),
            Ok(toy) => found_by_verify(toy).join(", "),
        };
        break_rule(None);
        let expected = refused.unwrap_or("a block that is not there");
        assert!(found.contains(expected), "byte {at}: {found}");
        assert_eq!(opened.is_err(), refused.is_some(), "byte {at}: {found}");
    }
}

/// Rows of a table as an aggregate counts them: of an entry below which nothing is deleted its rows, of others what lies below.
/// Returns them and how many pages were answers.
fn counted(toy: &Toy, table: TableId) -> (u64, u64) {
    let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
    let (mut rows, mut pages) = (0, 0);
    let mut walk = state.tree.walk(None, toy.kernel.store().clone());
    while let Some(entry) = walk
        .next_at(
            |entry, place| match state.hides_below(entry, place.as_ref()) {
                true => Step::Descend,
                false => Step::Take,
            },
        )
        .unwrap()
    {
        let place = walk.place().filter(|_| entry.is_block());
        let hidden = place.and_then(|place| state.hidden_at(&place));
        rows += entry.rows - hidden.map_or(0, BlockMask::rows);
        pages += u64::from(!entry.is_block());
    }
    assert_eq!(rows, state.rows_in_blocks());
    (rows, pages)
}

#[test]
fn no_summary_above_a_deleted_row_is_an_answer() {
    limit_page_entries(4);
    let (toy, table) = open_indexed(&SimEnv::new(13), 0);
    // High trees, of blocks and below fragments that overlap them.
    let rows = |keys: std::ops::Range<i64>, step| -> Vec<Row> {
        keys.map(|key| (key * step, key)).collect()
    };
    toy.append_group(table, &rows(0..120, 3), 2, Disk).unwrap();
    toy.append_fragment(table, &rows(1_000..1_080, 1), 2)
        .unwrap();
    toy.append_fragment(table, &rows(20..90, 4), 2).unwrap();
    let (mut left, mut answers) = (270, BTreeSet::new());
    assert_eq!(counted(&toy, table), (left, 1), "the root");
    for round in 0..40 {
        let key = match round % 3 {
            0 => 3 * (round * 7 % 120),
            1 => 1_000 + round * 11 % 80,
            _ => 4 * (20 + round * 13 % 70),
        };
        let edit = mask(&toy, table, &[key]);
        let newly: u64 = edit.items.iter().map(|item| item.newly).sum();
        if newly == 0 {
            continue;
        }
        hide(&toy, edit).unwrap();
        left -= newly;
        let (rows, pages) = counted(&toy, table);
        assert_eq!(rows, left);
        answers.insert(pages);
        if round % 10 == 9 {
            toy.kernel.checkpoint().unwrap();
        }
    }
    assert!(
        answers.len() > 5 && *answers.last().unwrap() > 8,
        "{answers:?}"
    );
    limit_page_entries(MAX_PAGE_ENTRIES);
}

/// A row is deleted while its block is copied to another file: the copy comes in its place all the same, without the row.
#[test]
fn a_move_carries_what_is_deleted_meanwhile() {
    let sim = SimEnv::new(14);
    let options = Options {
        segment_bytes: 64 << 10,
        background: false,
        ..Options::default()
    };
    let toy = Toy::open(&sim.env(), "/db", &options, 64).unwrap();
    let [table, doomed, keep] = ["t", "doomed", "keep"].map(|name| toy.create(name).unwrap());
    let rows: Vec<Row> = (0..40).map(|key| (key, -key)).collect();
    toy.append_group(table, &rows, 20, Disk).unwrap();
    delete(&toy, table, &[2, 30]);
    for part in 0..24 {
        toy.append_group(doomed, &random_rows(part * 400, 400), 100, Disk)
            .unwrap();
    }
    for part in 0..16 {
        toy.append_group(keep, &random_rows(part * 400, 400), 100, Disk)
            .unwrap();
    }
    toy.kernel.checkpoint().unwrap();
    toy.append(keep, &[(9999, 1)], Disk).unwrap();
    toy.kernel.checkpoint().unwrap();
    assert!(items(&toy, table, 0)[0].is_block());
    let writes = FaultRule::new(Fault::Hang).on(&[CallKind::Write]);
    sim.set_plan(FaultPlan::none().rule(writes.path_suffix(".frag").once()));
    let copies = || -> Vec<PathBuf> {
        let files = sim.files().into_iter().map(|(path, _)| path);
        files
            .filter(|path| path.extension().is_some_and(|kind| kind == "frag"))
            .collect()
    };
    let copy = std::thread::scope(|scope| {
        // The segment of the blocks has become sparse.
        let dropping = scope.spawn(|| toy.drop_table(doomed).unwrap());
        while sim.hung_calls() == 0 {
            assert!(!dropping.is_finished(), "nothing was moved");
            std::thread::yield_now();
        }
        let copies = copies();
        // It cleans up behind its commit, for which it waits.
        scope.spawn(|| delete(&toy, table, &[3, 20]));
        while masked(&toy, table).0 == 2 {
            std::thread::yield_now();
        }
        sim.set_plan(FaultPlan::none());
        sim.release_hung_calls();
        copies
    });
    let moved = &items(&toy, table, 0)[0];
    assert!(!moved.is_block() && copy.len() == 1, "{copy:?}");
    let name = fragment_name(moved.address.file);
    assert!(copy[0].ends_with(&name), "{name:?} was copied later");
    assert_eq!(masked(&toy, table), (4, true));
    let left = (0..40).filter(|key| ![2, 3, 20, 30].contains(key));
    check(&sim, &toy, table, &left.collect::<Vec<_>>());
}
