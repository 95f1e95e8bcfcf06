//! Commits whose parts contradict each other are refused before anything is written; all others are applied once.
//!
//! What could go wrong, and is tried here: a commit is taken and the database cannot be opened again; rows are there twice;
//! what is opened again differs from what was shown before; a commit that cannot be applied takes others of its batch with
//! it, or ends writing.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use bytes::Bytes;
use std::collections::BTreeMap;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::Durability::{Disk, Process};
use thalweg_kernel::index::{Entry, ItemName};
use thalweg_kernel::orders::{AddHead, ReplaceEdit};
use thalweg_kernel::{
    Commit, CommitNo, Edit, Error, ErrorKind, GroupPart, NEW_TABLE, Options, Producer, Result,
    TableId, TableSnapshot,
};
use thalweg_sim::report::{Dice, effort, say, seed};
use thalweg_sim::toy::{Row, Toy, block, rows_part, unpack};

fn open(sim: &SimEnv) -> Result<Toy> {
    let options = Options {
        segment_bytes: 1 << 20,
        background: false,
        ..Options::default()
    };
    Toy::open(&sim.env(), "/db", &options, 64)
}

fn definition() -> Bytes {
    Bytes::from_static(b"toy")
}

fn create(name: &str) -> Edit {
    Edit::CreateTable {
        table: NEW_TABLE,
        name: name.to_owned(),
        definition: definition(),
        indexes: 0,
    }
}

fn rename(table: TableId, name: &str) -> Edit {
    Edit::RenameTable {
        table,
        name: name.to_owned(),
    }
}

fn define(table: TableId) -> Edit {
    Edit::SetDefinition {
        table,
        expected_version: 1,
        definition: definition(),
    }
}

fn add(table: TableId, roots: Vec<Entry>) -> Edit {
    Edit::AddFragments {
        head: AddHead::of_rows(table, 1),
        roots,
    }
}

fn of_edits(edits: impl Into<Vec<Edit>>) -> Commit {
    Commit {
        edits: edits.into(),
        ..Commit::default()
    }
}

/// A fragment of one block of a table.
fn staged(toy: &Toy, table: TableId, rows: &[Row], commits: Option<(CommitNo, CommitNo)>) -> Entry {
    let mut fragment = toy.kernel.stage_fragment(table).unwrap();
    let block = block(table, rows.to_vec(), commits);
    fragment.add_block(&block).unwrap();
    fragment.finish().unwrap()
}

/// Blocks of open rows up to a commit.
fn cover(table: TableId, rows: &[Row], commits: (CommitNo, CommitNo)) -> GroupPart {
    GroupPart {
        head: AddHead {
            covers: Some(commits.1),
            ..AddHead::of_rows(table, 1)
        },
        blocks: vec![block(table, rows.to_vec(), Some(commits))],
    }
}

fn group(table: TableId, of: TableId, rows: &[Row]) -> GroupPart {
    GroupPart {
        head: AddHead::of_rows(table, 1),
        blocks: vec![block(of, rows.to_vec(), None)],
    }
}

/// The contents of a table, in a form that can be compared.
type Shown = BTreeMap<u32, (String, u32, Vec<Row>)>;

fn shown(toy: &Toy) -> Shown {
    let of_table = |table: TableSnapshot| {
        let rows = toy.rows_of(&table).unwrap();
        (
            table.id.0,
            (table.name.to_string(), table.definition_version, rows),
        )
    };
    toy.kernel
        .snapshot()
        .unwrap()
        .tables()
        .map(of_table)
        .collect()
}

/// Tries a commit on tables `a`, which has one open row of `CommitNo`, and `b`: it must be refused, change nothing and stop
/// nothing.
fn is_refused(
    what: &str,
    kind: ErrorKind,
    make: impl Fn(&Toy, TableId, TableId, CommitNo) -> Commit,
) {
    let sim = SimEnv::new(1);
    let toy = open(&sim).unwrap();
    let (a, b) = (toy.create("a").unwrap(), toy.create("b").unwrap());
    let last = toy.append(a, &[(1, 1)], Disk).unwrap();
    let before = shown(&toy);
    let refused = toy.kernel.commit(make(&toy, a, b, last), Disk);
    assert_eq!(
        refused.as_ref().map_err(Error::kind),
        Err(kind),
        "{what}: {refused:?}"
    );
    assert_eq!(shown(&toy), before, "{what}");
    toy.append(b, &[(5, 5)], Disk).unwrap();
    let after = shown(&toy);
    let killed = sim.crash_image(&CrashChoice::Kill);
    assert_eq!(shown(&open(&killed).unwrap()), after, "{what}: killed");
    toy.kernel.close().unwrap();
    drop(toy);
    assert_eq!(shown(&open(&sim).unwrap()), after, "{what}: closed");
}

#[test]
fn a_commit_gives_a_name_to_one_table() {
    let taken = ErrorKind::AlreadyExists;
    is_refused("two creates", taken, |_, _, _, _| {
        of_edits([create("x"), create("X")])
    });
    is_refused("a rename and a create", taken, |_, a, _, _| {
        of_edits([rename(a, "x"), create("x")])
    });
    is_refused("two renames", taken, |_, a, b, _| {
        of_edits([rename(a, "x"), rename(b, "x")])
    });
    is_refused("swapped names", taken, |_, a, b, _| {
        of_edits([rename(a, "b"), rename(b, "a")])
    });
    is_refused("a name that the commit frees", taken, |_, a, _, _| {
        of_edits([Edit::DropTable { table: a }, create("a")])
    });
}

#[test]
fn a_commit_that_drops_a_table_does_nothing_else_to_it() {
    let dropped = |table| Edit::DropTable { table };
    let invalid = ErrorKind::Invalid;
    is_refused("dropped twice", invalid, |_, a, _, _| {
        of_edits([dropped(a), dropped(a)])
    });
    is_refused("renamed", invalid, |_, a, _, _| {
        of_edits([dropped(a), rename(a, "z")])
    });
    is_refused("defined", invalid, |_, a, _, _| {
        of_edits([define(a), dropped(a)])
    });
    is_refused("given blocks", invalid, |_, a, _, _| Commit {
        groups: vec![group(a, a, &[(9, 9)])],
        ..of_edits([dropped(a)])
    });
    is_refused("given rows", invalid, |_, a, _, _| Commit {
        rows: vec![rows_part(a, &[(2, 2)])],
        ..of_edits([dropped(a)])
    });
}

#[test]
fn a_table_gets_one_name_and_one_definition_from_a_commit() {
    let invalid = ErrorKind::Invalid;
    is_refused("two definitions", invalid, |_, a, _, _| {
        of_edits([define(a), define(a)])
    });
    is_refused("two names", invalid, |_, a, _, _| {
        of_edits([rename(a, "x"), rename(a, "y")])
    });
}

#[test]
fn open_rows_are_covered_once_and_by_just_their_blocks() {
    let (invalid, conflict) = (ErrorKind::Invalid, ErrorKind::Conflict);
    let of_groups = |groups: Vec<GroupPart>| Commit {
        groups,
        ..Commit::default()
    };
    is_refused("two groups", invalid, |_, a, _, last| {
        let cover = || cover(a, &[(1, 1)], (last, last));
        of_groups(vec![cover(), cover()])
    });
    is_refused("a group and a fragment", invalid, |toy, a, _, last| {
        let edit = Edit::AddFragments {
            head: AddHead {
                covers: Some(last),
                ..AddHead::of_rows(a, 1)
            },
            roots: vec![staged(toy, a, &[(1, 1)], Some((last, last)))],
        };
        Commit {
            edits: vec![edit],
            ..of_groups(vec![cover(a, &[(1, 1)], (last, last))])
        }
    });
    // The row of the commit itself would be taken as well, and is in no block.
    is_refused("rows of its own commit", conflict, |_, a, _, last| {
        let own = last.next().unwrap();
        let mut cover = cover(a, &[(1, 1)], (last, last));
        cover.head.covers = Some(own);
        Commit {
            rows: vec![rows_part(a, &[(2, 2)])],
            ..of_groups(vec![cover])
        }
    });
    is_refused("blocks of other commits", conflict, |_, a, _, last| {
        let mut cover = cover(a, &[(1, 1)], (CommitNo(1), last));
        cover.head.covers = Some(last);
        of_groups(vec![cover])
    });
    is_refused("blocks of no commit", invalid, |_, a, _, last| {
        let mut cover = group(a, a, &[(1, 1)]);
        cover.head.covers = Some(last);
        of_groups(vec![cover])
    });
    is_refused("commit 0", invalid, |_, a, _, last| {
        let mut cover = cover(a, &[(1, 1)], (last, last));
        cover.head.covers = Some(CommitNo(0));
        of_groups(vec![cover])
    });
}

#[test]
fn a_table_has_one_replacement_and_none_beside_a_cover() {
    let of_nothing = |table| Edit::Replace(ReplaceEdit::of_rows(table, Vec::new(), Vec::new()));
    let invalid = ErrorKind::Invalid;
    is_refused("two of them", invalid, |_, a, _, _| {
        of_edits([of_nothing(a), of_nothing(a)])
    });
    is_refused("with a cover", invalid, |_, a, _, last| Commit {
        groups: vec![cover(a, &[(1, 1)], (last, last))],
        ..of_edits([of_nothing(a)])
    });
}

#[test]
fn blocks_are_replaced_beside_new_ones() {
    let sim = SimEnv::new(1);
    let toy = open(&sim).unwrap();
    let a = toy.create("a").unwrap();
    let first = toy.append_group(a, &[(1, 1), (2, 2)], 1, Disk).unwrap();
    let removed = {
        let state = toy.kernel.snapshot().unwrap().table(a).unwrap();
        let blocks = state.tree.iter(None, &**toy.kernel.store());
        blocks.map(|block| ItemName::of(&block.unwrap())).collect()
    };
    let added = staged(&toy, a, &[(1, 1), (2, 2)], Some((first, first)));
    let replace = Edit::Replace(ReplaceEdit::of_rows(a, removed, vec![added]));
    let commit = Commit {
        groups: vec![group(a, a, &[(1, 3)])],
        ..of_edits([replace])
    };
    toy.kernel.commit(commit, Disk).unwrap();
    let rows = [(1, 1), (1, 3), (2, 2)];
    assert_eq!(toy.rows(a).unwrap(), rows);
    drop(toy);
    let image = sim.crash_image(&CrashChoice::Kill);
    assert_eq!(open(&image).unwrap().rows(a).unwrap(), rows);
}

#[test]
fn no_block_takes_the_key_of_another() {
    let sim = SimEnv::new(1);
    let toy = open(&sim).unwrap();
    let a = toy.create("a").unwrap();
    let first = toy.append(a, &[(7, 1)], Disk).unwrap();
    let between = toy.append_group(a, &[(5, 2)], 1, Disk).unwrap();
    let last = toy.append(a, &[(5, 3)], Disk).unwrap();
    // Its commits are among those of the open rows, but the first of them has a block already.
    let of_commits = |first| Commit {
        groups: vec![cover(a, &[(5, 3), (7, 1)], (first, last))],
        ..Commit::default()
    };
    let refused = toy.kernel.commit(of_commits(between), Disk);
    assert_eq!(refused.map_err(|e| e.kind()), Err(ErrorKind::Invalid));
    toy.kernel.commit(of_commits(first), Disk).unwrap();
    assert_eq!(toy.rows(a).unwrap(), [(5, 2), (5, 3), (7, 1)]);
}

#[test]
fn a_fragment_is_added_once_and_to_its_table() {
    let invalid = ErrorKind::Invalid;
    is_refused("in two edits", invalid, |toy, a, _, _| {
        let root = staged(toy, a, &[(9, 9)], None);
        of_edits([add(a, vec![root.clone()]), add(a, vec![root])])
    });
    is_refused("twice in one edit", invalid, |toy, a, _, _| {
        let root = staged(toy, a, &[(9, 9)], None);
        of_edits([add(a, vec![root.clone(), root])])
    });
    is_refused("to another table", invalid, |toy, a, b, _| {
        of_edits([add(a, vec![staged(toy, b, &[(9, 9)], None)])])
    });
    is_refused("to two tables", invalid, |toy, a, b, _| {
        let root = staged(toy, a, &[(9, 9)], None);
        of_edits([add(a, vec![root.clone()]), add(b, vec![root])])
    });
    is_refused("none", invalid, |_, a, _, _| of_edits([add(a, Vec::new())]));
    is_refused("a block in its place", invalid, |toy, a, _, _| {
        let root = staged(toy, a, &[(9, 9)], None);
        let mut entry = block(a, vec![(9, 9)], None).entry;
        entry.address.file = root.address.file;
        of_edits([add(a, vec![entry])])
    });
    is_refused("beside raw rows", invalid, |toy, a, _, _| Commit {
        rows: vec![rows_part(a, &[(2, 2)])],
        ..of_edits([add(a, vec![staged(toy, a, &[(9, 9)], None)])])
    });
}

#[test]
fn what_cannot_be_read_again_is_not_stored() {
    let invalid = ErrorKind::Invalid;
    let of_rows = |part| Commit {
        rows: vec![part],
        ..Commit::default()
    };
    is_refused("no rows", invalid, |_, a, _, _| {
        let mut part = rows_part(a, &[(2, 2)]);
        part.rows = 0;
        of_rows(part)
    });
    is_refused("keys the wrong way round", invalid, |_, a, _, _| {
        let mut part = rows_part(a, &[(2, 2)]);
        part.key_min = 9;
        of_rows(part)
    });
    is_refused("a block of another table", invalid, |_, a, b, _| Commit {
        groups: vec![group(a, b, &[(9, 9)])],
        ..Commit::default()
    });
    is_refused("a page among blocks", invalid, |_, a, _, _| {
        let mut group = group(a, a, &[(9, 9)]);
        group.blocks[0].entry.level = 1;
        group.blocks[0].entry.sorted = false;
        Commit {
            groups: vec![group],
            ..Commit::default()
        }
    });
    is_refused("blocks of commits to come", invalid, |toy, a, _, last| {
        let own = last.next().unwrap();
        of_edits([Edit::Replace(ReplaceEdit::of_rows(
            a,
            Vec::new(),
            vec![staged(toy, a, &[(9, 9)], Some((own, own)))],
        ))])
    });
    is_refused("replacements of no commit", invalid, |toy, a, _, _| {
        of_edits([Edit::Replace(ReplaceEdit::of_rows(
            a,
            Vec::new(),
            vec![staged(toy, a, &[(9, 9)], None)],
        ))])
    });
}

/// Rows that no edit drops are never lost by one that only puts blocks in order.
#[test]
fn a_replacement_brings_as_many_rows_as_it_takes() {
    let toy = open(&SimEnv::new(1)).unwrap();
    let table = toy.create("t").unwrap();
    let rows = [(3, 3), (4, 4)];
    let stored = toy.append_group(table, &rows, 64, Disk).unwrap();
    let replace = |rows: &[Row]| {
        let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
        let blocks = state.tree.iter(None, &**toy.kernel.store());
        let removed = blocks.map(|block| ItemName::of(&block.unwrap())).collect();
        let fragments = [rows].into_iter().filter(|rows| !rows.is_empty());
        let commits = Some((stored, stored));
        let edit = Edit::Replace(ReplaceEdit::of_rows(
            table,
            removed,
            fragments
                .map(|rows| staged(&toy, table, rows, commits))
                .collect(),
        ));
        let done = toy.kernel.commit(of_edits([edit]), Disk);
        done.map(|_| ()).map_err(|error| error.kind())
    };
    for other in [&[][..], &[(3, 3)], &[(3, 3), (4, 4), (4, 4)]] {
        assert_eq!(replace(other), Err(ErrorKind::Invalid));
        assert_eq!(toy.rows(table).unwrap(), rows);
    }
    assert_eq!(replace(&rows), Ok(()));
    assert_eq!(toy.rows(table).unwrap(), rows);
}

#[test]
fn a_fragment_refuses_a_block_of_another_table() {
    let toy = open(&SimEnv::new(1)).unwrap();
    let (a, b) = (toy.create("a").unwrap(), toy.create("b").unwrap());
    let mut fragment = toy.kernel.stage_fragment(a).unwrap();
    let refused = fragment.add_block(&block(b, vec![(1, 1)], None));
    assert_eq!(refused.map_err(|e| e.kind()), Err(ErrorKind::Invalid));
}

#[test]
fn parts_that_do_not_contradict_each_other_are_stored_together() {
    let sim = SimEnv::new(1);
    let toy = open(&sim).unwrap();
    let (a, b) = (toy.create("a").unwrap(), toy.create("b").unwrap());
    let last = toy.append(a, &[(1, 1)], Disk).unwrap();
    let commit = Commit {
        rows: vec![rows_part(a, &[(3, 3)]), rows_part(a, &[(4, 4)])],
        groups: vec![
            cover(a, &[(1, 1)], (last, last)),
            group(b, b, &[(5, 5)]),
            group(b, b, &[(6, 6)]),
        ],
        edits: vec![
            rename(a, "A"),
            define(a),
            create("c"),
            add(b, vec![staged(&toy, b, &[(7, 7)], None)]),
        ],
        ..Commit::default()
    };
    toy.kernel.commit(commit, Disk).unwrap();
    let expected = Shown::from([
        (a.0, ("A".to_owned(), 2, vec![(1, 1), (3, 3), (4, 4)])),
        (b.0, ("b".to_owned(), 1, vec![(5, 5), (6, 6), (7, 7)])),
        (3, ("c".to_owned(), 1, Vec::new())),
    ]);
    assert_eq!(shown(&toy), expected);
    let killed = sim.crash_image(&CrashChoice::Kill);
    assert_eq!(shown(&open(&killed).unwrap()), expected);
}

/// Random commits of a few parts, among few tables and names, so that they often contradict each other or the state.
struct Trial {
    dice: Dice,
    sim: SimEnv,
    toy: Toy,
    /// The model: the result of the commits that were accepted.
    model: Shown,
    next_table: u32,
    next_value: i64,
    /// The next number of the producer; a number used twice would be a resend.
    sequence: u64,
}

/// A commit, and what it does if it is taken.
#[derive(Default)]
struct Drawn {
    commit: Commit,
    created: Vec<String>,
    dropped: Vec<TableId>,
    renamed: Vec<(TableId, String)>,
    defined: Vec<TableId>,
    rows: Vec<(TableId, Vec<Row>)>,
    /// Fragments of this commit, to be used again.
    roots: Vec<Entry>,
}

const NAMES: [&str; 6] = ["a", "A", "b", "c", "C", "d"];

impl Trial {
    fn new(seed: u64) -> Self {
        let sim = SimEnv::new(seed);
        let toy = open(&sim).unwrap();
        Self {
            dice: Dice::new(seed),
            sim,
            toy,
            model: Shown::new(),
            next_table: 1,
            next_value: 0,
            sequence: 0,
        }
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.dice.below(count) == 0
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        let at = self.dice.below(of.len() as u64);
        of[usize::try_from(at).unwrap()].clone()
    }

    /// One of the tables; now and then one that does not exist.
    fn table(&mut self) -> TableId {
        let ids: Vec<u32> = self.model.keys().copied().collect();
        if ids.is_empty() || self.one_in(30) {
            return TableId(u32::try_from(self.dice.below(20)).unwrap());
        }
        TableId(self.pick(&ids))
    }

    fn version(&mut self, table: TableId) -> u32 {
        let version = self.model.get(&table.0).map_or(1, |table| table.1);
        version + u32::from(self.one_in(30))
    }

    fn new_rows(&mut self) -> Vec<Row> {
        let count = 1 + self.dice.below(3);
        let row = |_| {
            self.next_value += 1;
            (self.dice.below(5).cast_signed(), self.next_value)
        };
        (0..count).map(row).collect()
    }

    /// The open rows of a table up to one of their commits, and their first and last commits.
    fn open_rows(&mut self, table: TableId) -> Option<(Vec<Row>, (CommitNo, CommitNo))> {
        let state = self.toy.kernel.snapshot().unwrap().table(table)?;
        let open: Vec<_> = state.open_rows().collect();
        let count = if self.one_in(3) {
            self.dice.below(open.len() as u64 + 1)
        } else {
            open.len() as u64
        };
        let open = &open[..usize::try_from(count).unwrap()];
        let commits = (open.first()?.commit, open.last()?.commit);
        let rows = open.iter().flat_map(|rows| unpack(&rows.part.payload));
        Some((rows.collect(), commits))
    }

    fn add_part(&mut self, drawn: &mut Drawn) {
        let table = self.table();
        let definition_version = self.version(table);
        let edits = &mut drawn.commit.edits;
        match self.dice.below(13) {
            0 | 1 => {
                let name = self.pick(&NAMES);
                edits.push(create(name));
                drawn.created.push(name.to_owned());
            }
            2 => {
                edits.push(Edit::DropTable { table });
                drawn.dropped.push(table);
            }
            3 => {
                let name = self.pick(&NAMES);
                edits.push(rename(table, name));
                drawn.renamed.push((table, name.to_owned()));
            }
            4 => {
                edits.push(Edit::SetDefinition {
                    table,
                    expected_version: definition_version,
                    definition: definition(),
                });
                drawn.defined.push(table);
            }
            5..=7 => {
                let rows = self.new_rows();
                let mut part = rows_part(table, &rows);
                part.definition_version = definition_version;
                if self.one_in(30) {
                    part.rows = 0;
                }
                drawn.commit.rows.push(part);
                drawn.rows.push((table, rows));
            }
            8 => {
                let rows = self.new_rows();
                let of = if self.one_in(20) { self.table() } else { table };
                let mut group = group(table, of, &rows);
                group.head.definition_version = definition_version;
                drawn.commit.groups.push(group);
                drawn.rows.push((table, rows));
            }
            9 => self.add_cover(drawn, table, definition_version),
            10 | 11 => self.add_fragments(drawn, table, definition_version),
            _ => self.add_replacement(drawn, table),
        }
    }

    fn add_cover(&mut self, drawn: &mut Drawn, table: TableId, definition_version: u32) {
        let Some((rows, commits)) = self.open_rows(table) else {
            return;
        };
        let covers = Some(match self.dice.below(20) {
            0 => CommitNo(0),
            1 => CommitNo(commits.1.0 + 1),
            2 => CommitNo(u64::MAX),
            _ => commits.1,
        });
        let commits = match self.dice.below(20) {
            0 => (CommitNo(1), commits.1),
            1 => (commits.0, CommitNo(commits.1.0 + 1)),
            _ => commits,
        };
        if self.one_in(2) {
            let roots = vec![staged(&self.toy, table, &rows, Some(commits))];
            drawn.roots.extend_from_slice(&roots);
            drawn.commit.edits.push(Edit::AddFragments {
                head: AddHead {
                    covers,
                    ..AddHead::of_rows(table, definition_version)
                },
                roots,
            });
            return;
        }
        let mut group = cover(table, &rows, commits);
        (group.head.definition_version, group.head.covers) = (definition_version, covers);
        drawn.commit.groups.push(group);
    }

    fn add_fragments(&mut self, drawn: &mut Drawn, table: TableId, definition_version: u32) {
        let mut roots = Vec::new();
        for _ in 0..self.dice.below(3) + u64::from(!self.one_in(10)) {
            let rows = self.new_rows();
            let of = if self.one_in(20) { self.table() } else { table };
            roots.push(staged(&self.toy, of, &rows, None));
            drawn.rows.push((table, rows));
        }
        if self.one_in(10) && !drawn.roots.is_empty() {
            let known = drawn.roots.clone();
            roots.push(self.pick(&known));
        }
        drawn.roots.extend_from_slice(&roots);
        drawn.commit.edits.push(Edit::AddFragments {
            head: AddHead::of_rows(table, definition_version),
            roots,
        });
    }

    /// Adds a replacement of some items of a table by one with the same rows.
    fn add_replacement(&mut self, drawn: &mut Drawn, table: TableId) {
        let Some(state) = self.toy.kernel.snapshot().unwrap().table(table) else {
            return;
        };
        let mut removed = Vec::new();
        let mut walk = state.tree.walk(None, self.toy.kernel.store().clone());
        // Of an index of one page: its entries are the items, and the blocks of fragments are not.
        let mut is_root = true;
        while let Some(item) = walk
            .next(|_| match std::mem::take(&mut is_root) {
                true => thalweg_kernel::index::Step::Descend,
                false => thalweg_kernel::index::Step::Take,
            })
            .unwrap()
        {
            removed.push(item);
        }
        let mut rows = Vec::new();
        for item in &removed {
            let fragment = thalweg_kernel::index::Tree::from_root(
                table,
                Some(item.clone()).filter(|i| !i.is_block()),
            );
            let blocks: Vec<Entry> = match item.is_block() {
                true => vec![item.clone()],
                false => fragment
                    .iter(None, &**self.toy.kernel.store())
                    .collect::<Result<_>>()
                    .unwrap(),
            };
            for block in blocks {
                rows.extend(self.toy.block_rows(&block).unwrap());
            }
        }
        let (Some(first), Some(last)) = (
            removed.iter().map(|item| item.commit_min).min(),
            removed.iter().map(|item| item.commit_max).max(),
        ) else {
            return;
        };
        let commits = match self.dice.below(20) {
            0 => None,
            1 => Some((first, CommitNo(last.0 + 1_000))),
            _ => Some((first, last)),
        };
        let added = vec![staged(&self.toy, table, &rows, commits)];
        drawn.roots.extend_from_slice(&added);
        drawn.commit.edits.push(Edit::Replace(ReplaceEdit::of_rows(
            table,
            removed.iter().map(ItemName::of).collect(),
            added,
        )));
    }

    fn draw(&mut self) -> Drawn {
        let mut drawn = Drawn::default();
        for _ in 0..=self.dice.below(4) {
            self.add_part(&mut drawn);
        }
        if self.one_in(5) {
            self.sequence += 1;
            drawn.commit.producer = Some(Producer {
                id: [7; 16],
                sequence: self.sequence,
            });
        }
        drawn
    }

    /// Applies an accepted commit to the model, each of its parts once.
    fn note(&mut self, drawn: Drawn) {
        for (table, rows) in drawn.rows {
            if let Some(table) = self.model.get_mut(&table.0) {
                table.2.extend(rows);
                table.2.sort_unstable();
            }
        }
        for (table, name) in drawn.renamed {
            self.model.get_mut(&table.0).unwrap().0 = name;
        }
        for table in drawn.defined {
            self.model.get_mut(&table.0).unwrap().1 += 1;
        }
        for table in drawn.dropped {
            self.model.remove(&table.0);
        }
        for name in drawn.created {
            self.model.insert(self.next_table, (name, 1, Vec::new()));
            self.next_table += 1;
        }
    }

    /// Tries one commit; whether it was taken.
    fn step(&mut self, at: &str) -> bool {
        let mut drawn = self.draw();
        let commit = std::mem::take(&mut drawn.commit);
        let what = format!("{at}: {commit:?}");
        let taken = match self.toy.kernel.commit(commit, Process) {
            Ok(_) => {
                self.note(drawn);
                true
            }
            Err(error) => {
                let is_clear = matches!(
                    error.kind(),
                    ErrorKind::Invalid
                        | ErrorKind::Conflict
                        | ErrorKind::NotFound
                        | ErrorKind::AlreadyExists
                );
                assert!(is_clear, "{what}: {error}");
                false
            }
        };
        assert_eq!(shown(&self.toy), self.model, "{what}");
        if self.one_in(8) {
            self.reopen(&what);
        }
        taken
    }

    fn reopen(&mut self, what: &str) {
        let killed = self.sim.crash_image(&CrashChoice::Kill);
        let reopened = open(&killed);
        assert!(reopened.is_ok(), "{what}: {reopened:?}");
        let reopened = reopened.unwrap();
        assert_eq!(shown(&reopened), self.model, "{what}");
        if self.one_in(4) {
            self.toy.kernel.checkpoint().unwrap();
        }
        if self.one_in(4) {
            (self.sim, self.toy) = (killed, reopened);
        }
    }
}

#[test]
fn whatever_is_taken_is_applied_once_and_read_again() {
    let seed = seed();
    let trials = 60 * effort() as u64;
    let (mut taken, mut refused) = (0, 0);
    for number in 0..trials {
        let mut trial = Trial::new(seed.wrapping_add(number));
        for step in 0..60 {
            match trial.step(&format!("THALWEG_SEED={seed}, trial {number}, step {step}")) {
                true => taken += 1,
                false => refused += 1,
            }
        }
        trial.reopen(&format!("THALWEG_SEED={seed}, trial {number}"));
    }
    say(format_args!(
        "seed {seed}: {taken} commits taken, {refused} refused"
    ));
    assert!(
        taken > 5 * trials && refused > 5 * trials,
        "{taken} and {refused}"
    );
}
