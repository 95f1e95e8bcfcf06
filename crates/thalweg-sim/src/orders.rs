//! Makers of replacements and of entries that come too late: what they prepared no longer holds.

use crate::driver::deletes::rows_to_delete;
use crate::oracle::{Violation, contents_of};
use crate::toy::{Row, Toy, block, block_of_order, index_blocks};
use thalweg_env::sim::SimEnv;
use thalweg_kernel::index::{Entry, ItemName};
use thalweg_kernel::orders::{AddHead, CoverageRange, ReplaceEdit};
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, ErrorKind, NEW_TABLE, Options, Result, TableId,
};

/// Opens a database of one table with so many indexes.
pub fn open_indexed(sim: &SimEnv, indexes: u32) -> (Toy, TableId) {
    let options = Options {
        background: false,
        ..Options::default()
    };
    let toy = Toy::open(&sim.env(), "/db", &options, 4).expect("a new database");
    let create = Edit::CreateTable {
        table: NEW_TABLE,
        name: "t".to_owned(),
        definition: bytes::Bytes::from_static(b"toy"),
        indexes,
    };
    commit_edit(&toy, create, None).expect("a new table");
    let snapshot = toy.kernel.snapshot().expect("open");
    let table = snapshot.table_named("t").expect("just made").id;
    (toy, table)
}

/// Commits one edit that was prepared from a snapshot.
pub fn commit_edit(toy: &Toy, edit: Edit, prepared_at: Option<CommitNo>) -> Result<CommitNo> {
    let commit = Commit {
        edits: vec![edit],
        prepared_at,
        ..Commit::default()
    };
    toy.kernel.commit(commit, Durability::Disk)
}

/// The items of a small tree: of its one page.
pub fn items(toy: &Toy, table: TableId, order: u32) -> Vec<Entry> {
    let snapshot = toy.kernel.snapshot().expect("open");
    let state = snapshot.table(table).expect("the table");
    let tree = state.tree_of(order).expect("the order");
    let mut items = Vec::new();
    let mut is_root = true;
    let visited = tree.visit(None, &**toy.kernel.store(), &mut |entry| {
        if std::mem::replace(&mut is_root, false) {
            return thalweg_kernel::index::Step::Descend;
        }
        items.push(entry.clone());
        thalweg_kernel::index::Step::Take
    });
    visited.expect("whole");
    items
}

/// A staged fragment of rows of an order.
pub fn staged(
    toy: &Toy,
    (table, order): (TableId, u32),
    rows: &[Row],
    commits: Option<(CommitNo, CommitNo)>,
) -> Entry {
    let mut fragment = toy.kernel.stage_fragment_of(table, order).expect("a file");
    let block = block_of_order((table, order), rows.to_vec(), commits, 2);
    fragment.add_block(&block).expect("room");
    fragment.finish().expect("room")
}

/// A replacement names a block whose key a fragment has got meanwhile.
pub fn replacement_of_a_key_that_was_used_again() -> Vec<Violation> {
    let (toy, table) = open_indexed(&SimEnv::new(1), 0);
    let rows: Vec<Row> = vec![(1, 1), (2, 2), (3, 3)];
    let own = toy.append_group(table, &rows, 4, Durability::Disk);
    let own = own.expect("a commit");
    let replace = |name: ItemName| {
        let added = staged(&toy, (table, 0), &rows, Some((own, own)));
        let edit = ReplaceEdit::of_rows(table, vec![name], vec![added]);
        commit_edit(&toy, Edit::Replace(edit), None)
    };
    let old = ItemName::of(&items(&toy, table, 0)[0]);
    replace(old).expect("it is there");
    let new = ItemName::of(&items(&toy, table, 0)[0]);
    assert!(old != new && old.key == new.key, "the key is used again");
    match replace(old) {
        Err(error) if error.kind() == ErrorKind::Conflict => Vec::new(),
        done => vec![format!(
            "an item was replaced that is another one: {done:?}"
        )],
    }
}

/// Rows come without entries into the keys of an index that is being built.
pub fn rows_beside_a_build() -> Vec<Violation> {
    let (toy, table) = open_indexed(&SimEnv::new(2), 1);
    let rows: Vec<Row> = vec![(1, 1), (5, 2), (9, 3)];
    let stored = toy.append_group(table, &rows, 4, Durability::Disk);
    let prepared_at = stored.expect("a commit");
    // Open since the snapshot, and of an older commit than what covers it.
    let late = toy
        .append(table, &[(3, 4)], Durability::Disk)
        .expect("room");
    let cover = thalweg_kernel::GroupPart {
        head: AddHead {
            covers: Some(late),
            ..AddHead::of_rows(table, 1)
        },
        blocks: vec![block(table, vec![(3, 4)], Some((late, late)))],
    };
    let covered = Commit {
        groups: vec![cover],
        ..Commit::default()
    };
    toy.kernel.commit(covered, Durability::Disk).expect("open");
    let build = |range: CoverageRange, prepared_at| {
        let mut fragment = toy.kernel.stage_fragment_of(table, 2).expect("a file");
        for block in index_blocks(table, 2, &rows, 4) {
            fragment.add_block(&block).expect("room");
        }
        let head = AddHead {
            coverage: vec![range],
            ..AddHead::of_index(table, 2, 1)
        };
        let roots = vec![fragment.finish().expect("room")];
        commit_edit(&toy, Edit::AddFragments { head, roots }, Some(prepared_at))
    };
    let mut violations = Vec::new();
    // Complete up to the commit of the late row, which has no entry.
    let is_refused =
        |built: Result<CommitNo>| built.is_err_and(|error| error.kind() == ErrorKind::Conflict);
    if !is_refused(build(CoverageRange::of_all(late), prepared_at)) {
        violations.push("keys count as covered into which rows came without entries".to_owned());
    }
    violations.extend(contents_of(&toy).err());
    // A range beside their keys, or up to the commit before them, is complete.
    let beside = CoverageRange {
        key_min: 4,
        ..CoverageRange::of_all(late)
    };
    for range in [beside, CoverageRange::of_all(prepared_at)] {
        violations.extend(build(range, prepared_at).err().map(|e| e.to_string()));
    }
    violations.extend(contents_of(&toy).err());
    violations
}

/// A row is deleted while its block is rewritten.
pub fn row_deleted_while_it_is_rewritten() -> Vec<Violation> {
    let (toy, table) = open_indexed(&SimEnv::new(3), 0);
    let rows: Vec<Row> = vec![(1, 1), (2, 2), (3, 3)];
    let own = toy.append_group(table, &rows, 4, Durability::Disk);
    let own = own.expect("a commit");
    let old = ItemName::of(&items(&toy, table, 0)[0]);
    let added = staged(&toy, (table, 0), &rows, Some((own, own)));
    let state = toy.kernel.snapshot().expect("open").table(table);
    let found = rows_to_delete(&toy, &state.expect("the table"), |row| row.0 == 2);
    let hide = Commit {
        masks: vec![found.expect("whole").edit],
        ..Commit::default()
    };
    toy.kernel.commit(hide, Durability::Disk).expect("a row");
    let edit = ReplaceEdit::of_rows(table, vec![old], vec![added]);
    match commit_edit(&toy, Edit::Replace(edit), None) {
        Err(error) if error.kind() == ErrorKind::Conflict => Vec::new(),
        done => vec![format!(
            "a row was deleted while it was rewritten: {done:?}, and the table has {:?}",
            toy.kernel
                .snapshot()
                .expect("open")
                .table(table)
                .map(|state| state.rows_in_blocks())
        )],
    }
}
