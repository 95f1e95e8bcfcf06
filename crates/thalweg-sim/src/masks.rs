//! Deletions whose rows come back, are deleted twice or stay hidden for ever where a rule about masks is broken.

use crate::driver::deletes::{range_to_delete, rows_to_delete};
use crate::oracle::{Violation, contents_of};
use crate::orders::{commit_edit, items, open_indexed, staged};
use crate::toy::{Row, Toy};
use std::ops::RangeInclusive;
use thalweg_env::sim::SimEnv;
use thalweg_kernel::Durability::Disk;
use thalweg_kernel::index::{Entry, ItemName};
use thalweg_kernel::masks::{BlockMask, ItemMask, MaskEdit, MaskList, Positions};
use thalweg_kernel::orders::ReplaceEdit;
use thalweg_kernel::{Commit, CommitNo, Edit, ErrorKind, Result, TableId};

/// Rows of one block.
const ROWS: [Row; 4] = [(1, 11), (2, 12), (3, 13), (4, 14)];

/// The edit that deletes the rows with these keys, as of now.
pub fn mask(toy: &Toy, table: TableId, keys: &[i64]) -> MaskEdit {
    let snapshot = toy.kernel.snapshot().expect("open");
    let state = snapshot.table(table).expect("the table");
    let found = rows_to_delete(toy, &state, |row| keys.contains(&row.0));
    found.expect("whole").edit
}

/// Commits it.
pub fn hide(toy: &Toy, edit: MaskEdit) -> Result<CommitNo> {
    let commit = Commit {
        masks: vec![edit],
        ..Commit::default()
    };
    toy.kernel.commit(commit, Disk)
}

/// A mask of rows of the first block of an item that is added by the same commit.
pub fn mask_of_added(root: &Entry, hidden: &[u32]) -> ItemMask {
    let positions = Positions::of_rows(hidden.iter().copied());
    let masks = MaskList::of([(0, BlockMask::Rows(positions))]);
    ItemMask {
        name: ItemName::of(root),
        rows: root.rows,
        newly: hidden.len() as u64,
        masks: masks.expect("one mask of one block"),
    }
}

/// The commit that deletes the rows with keys of a range, as of now.
pub fn range(toy: &Toy, table: TableId, keys: RangeInclusive<i64>) -> Commit {
    let snapshot = toy.kernel.snapshot().expect("open");
    let state = snapshot.table(table).expect("the table");
    range_to_delete(toy, &state, keys).expect("whole").0
}

/// Checks which keys are left, by all that a reader sees.
fn check_keys(toy: &Toy, want: &[i64], violations: &mut Vec<Violation>) {
    match contents_of(toy) {
        Err(violation) => violations.push(violation),
        Ok((_, contents)) => {
            let rows = contents.get("t").cloned().unwrap_or_default();
            let keys: Vec<i64> = rows.iter().map(|row| row.0).collect();
            if keys != want {
                violations.push(format!("the keys {keys:?} are left in place of {want:?}"));
            }
        }
    }
}

fn check_refused(done: Result<CommitNo>, what: &str, violations: &mut Vec<Violation>) {
    if !done.is_err_and(|error| error.kind() == ErrorKind::Conflict) {
        violations.push(format!("{what} is not refused"));
    }
}

/// A database with one block of rows, of which some are deleted.
fn deleted(seed: u64, keys: &[i64]) -> (Toy, TableId, CommitNo) {
    let (toy, table) = open_indexed(&SimEnv::new(seed), 0);
    let own = toy.append_group(table, &ROWS, 4, Disk);
    let own = own.expect("a commit");
    hide(&toy, mask(&toy, table, keys)).expect("rows that are there");
    (toy, table, own)
}

/// Two statements delete one row.
pub fn row_deleted_twice() -> Vec<Violation> {
    let (toy, table, _) = deleted(21, &[2]);
    toy.append(table, &[(7, 1), (8, 2)], Disk).expect("room");
    let mut violations = Vec::new();
    for keys in [[3, 4].as_slice(), &[7]] {
        let first = mask(&toy, table, keys);
        let second = mask(&toy, table, &keys[..1]);
        hide(&toy, first).expect("rows that are there");
        let what = format!("a second deletion of key {}", keys[0]);
        check_refused(hide(&toy, second), &what, &mut violations);
    }
    check_keys(&toy, &[1, 8], &mut violations);
    violations
}

/// The last rows of an item are deleted.
pub fn last_rows_deleted() -> Vec<Violation> {
    let (toy, table, _) = deleted(22, &[1, 2]);
    hide(&toy, mask(&toy, table, &[3, 4])).expect("rows that are there");
    let mut violations = Vec::new();
    check_keys(&toy, &[], &mut violations);
    violations
}

/// A block is rewritten with its deleted rows, and the commit does not hide all of them again.
pub fn carried_rows_not_hidden() -> Vec<Violation> {
    let (toy, table, own) = deleted(23, &[2, 3]);
    let old = ItemName::of(&items(&toy, table, 0)[0]);
    let root = staged(&toy, (table, 0), &ROWS, Some((own, own)));
    let masks = MaskEdit {
        table,
        items: vec![mask_of_added(&root, &[1])],
        parts: Vec::new(),
    };
    let edit = ReplaceEdit {
        carried: 2,
        ..ReplaceEdit::of_rows(table, vec![old], vec![root])
    };
    let commit = Commit {
        edits: vec![Edit::Replace(edit)],
        masks: vec![masks],
        ..Commit::default()
    };
    let mut violations = Vec::new();
    let done = toy.kernel.commit(commit, Disk);
    check_refused(done, "a row that is carried and shown", &mut violations);
    check_keys(&toy, &[1, 4], &mut violations);
    violations
}

/// Blocks and open rows with deleted ones are rewritten without them.
pub fn rewritten_without_deleted_rows() -> Vec<Violation> {
    let (toy, table, own) = deleted(24, &[2, 3]);
    let old = ItemName::of(&items(&toy, table, 0)[0]);
    let root = staged(&toy, (table, 0), &[ROWS[0], ROWS[3]], Some((own, own)));
    let edit = ReplaceEdit {
        left_out: 2,
        ..ReplaceEdit::of_rows(table, vec![old], vec![root])
    };
    let mut violations = Vec::new();
    let replaced = commit_edit(&toy, Edit::Replace(edit), None);
    violations.extend(replaced.err().map(|error| error.to_string()));
    check_keys(&toy, &[1, 4], &mut violations);
    toy.append(table, &[(7, 1), (8, 2)], Disk).expect("room");
    hide(&toy, mask(&toy, table, &[7])).expect("rows that are there");
    let encoded = toy.kernel.encode_open_rows(table);
    violations.extend(encoded.err().map(|error| error.to_string()));
    check_keys(&toy, &[1, 4, 8], &mut violations);
    let snapshot = toy.kernel.snapshot().expect("open");
    let state = snapshot.table(table).expect("the table");
    if let Some(masks) = state.masks() {
        violations.push(format!("masks of nothing hide {} rows", masks.rows()));
    }
    violations
}

/// Deletes a range in which, after its rows were looked for, one goes and another one comes: as many rows, in as many
/// blocks.
pub fn rows_that_came_into_a_range() -> Vec<Violation> {
    let (toy, table, _) = deleted(25, &[2]);
    let group = toy.append_group(table, &[(5, 1), (7, 2)], 1, Disk);
    group.expect("room");
    let commit = range(&toy, table, 1..=7);
    hide(&toy, mask(&toy, table, &[5])).expect("a row that is there");
    toy.append_group(table, &[(6, 4)], 1, Disk).expect("room");
    let mut violations = Vec::new();
    let done = toy.kernel.commit(commit, Disk);
    check_refused(done, "a range without one of its rows", &mut violations);
    check_keys(&toy, &[1, 3, 4, 6, 7], &mut violations);
    violations
}

/// A merge of the last items of a table, without their rows that are deleted.
fn merge_of_last(toy: &Toy, table: TableId, many: usize) -> Commit {
    let snapshot = toy.kernel.snapshot().expect("open");
    let state = snapshot.table(table).expect("the table");
    let items = items(toy, table, 0);
    let chosen = &items[items.len() - many..];
    let names: Vec<ItemName> = chosen.iter().map(ItemName::of).collect();
    let blocks = chosen.iter().map(|item| toy.block_rows(item));
    let rows: Result<Vec<Vec<Row>>> = blocks.collect();
    let rows = rows.expect("whole").concat();
    let first = chosen.iter().map(|item| item.commit_min).min();
    let last = chosen.iter().map(|item| item.commit_max).max();
    let commits = first.zip(last).expect("items");
    let root = staged(toy, (table, 0), &rows, Some(commits));
    Commit {
        edits: vec![Edit::Replace(ReplaceEdit::of_rows(
            table,
            names,
            vec![root],
        ))],
        prepared_at: Some(state.commit()),
        ..Commit::default()
    }
}

/// A table with four blocks of two rows.
fn four_blocks(seed: u64) -> (Toy, TableId) {
    let (toy, table) = open_indexed(&SimEnv::new(seed), 0);
    let rows: Vec<Row> = (1..=8).map(|key| (key, key + 10)).collect();
    toy.append_group(table, &rows, 2, Disk).expect("room");
    (toy, table)
}

/// A range is deleted while other blocks are merged, and one while some of its blocks are.
pub fn merge_of_blocks_beside_a_range() -> Vec<Violation> {
    let (toy, table) = four_blocks(26);
    let merge = merge_of_last(&toy, table, 2);
    let deleted = toy.kernel.commit(range(&toy, table, 1..=3), Disk);
    deleted.expect("rows that are there");
    let mut violations = Vec::new();
    let merged = toy.kernel.commit(merge, Disk);
    violations.extend(merged.err().map(|error| format!("a merge: {error}")));
    check_keys(&toy, &[4, 5, 6, 7, 8], &mut violations);
    let (toy, table) = four_blocks(28);
    let merge = merge_of_last(&toy, table, 2);
    let deleted = toy.kernel.commit(range(&toy, table, 3..=6), Disk);
    deleted.expect("rows that are there");
    let merged = toy.kernel.commit(merge, Disk);
    check_refused(merged, "a merge of a block that went", &mut violations);
    check_keys(&toy, &[1, 2, 7, 8], &mut violations);
    violations
}

/// A range is deleted while the block at its border is merged.
pub fn border_of_a_range_while_it_is_merged() -> Vec<Violation> {
    let (toy, table) = four_blocks(27);
    let merge = merge_of_last(&toy, table, 2);
    let deleted = toy.kernel.commit(range(&toy, table, 1..=5), Disk);
    deleted.expect("rows that are there");
    let mut violations = Vec::new();
    let merged = toy.kernel.commit(merge, Disk);
    check_refused(merged, "a merge of a row that went", &mut violations);
    check_keys(&toy, &[6, 7, 8], &mut violations);
    violations
}
