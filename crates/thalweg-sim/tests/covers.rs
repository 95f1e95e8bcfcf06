//! Open rows whose blocks come in a fragment: in the place of the rows, at once, for everybody, or not at all.
//!
//! What could go wrong, and is tried here: the rows are covered twice; they are dropped while their blocks are staged; a
//! reading process sees them twice or not at all; a repair applies the cover though some of its rows are lost, or leaves it
//! out though all are there. A crash at each call of such a cover is tried in `thalweg-table/tests/limits.rs`.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::path::Path;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::Durability::Disk;
use thalweg_kernel::orders::AddHead;
use thalweg_kernel::repair::repair;
use thalweg_kernel::{Commit, CommitNo, Edit, ErrorKind, Options, TableId};
use thalweg_sim::toy::{Row, Toy, block};

fn options() -> Options {
    Options {
        background: false,
        ..Options::default()
    }
}

fn open(sim: &SimEnv) -> Toy {
    Toy::open(&sim.env(), "/db", &options(), 1_000).unwrap()
}

/// A commit that puts a fragment of two blocks in the place of rows.
fn cover(toy: &Toy, table: TableId, rows: &[Row], first: CommitNo, last: CommitNo) -> Commit {
    let mut fragment = toy.kernel.stage_fragment(table).unwrap();
    for (ordinal, part) in (0..).zip(rows.chunks(rows.len().div_ceil(2))) {
        let mut block = block(table, part.to_vec(), Some((first, last)));
        block.entry.ordinal = ordinal;
        fragment.add_block(&block).unwrap();
    }
    let add = Edit::AddFragments {
        head: AddHead {
            covers: Some(last),
            ..AddHead::of_rows(table, 1)
        },
        roots: vec![fragment.finish().unwrap()],
    };
    Commit {
        edits: vec![add],
        ..Commit::default()
    }
}

fn fragment_bytes(sim: &SimEnv) -> u64 {
    let files = sim.files().into_iter();
    let of = files.filter(|(path, _)| path.extension().is_some_and(|e| e == "frag"));
    of.map(|(_, bytes)| bytes).sum()
}

const FIRST: [Row; 3] = [(1, 0x0111_1111), (5, 0x0222_2222), (3, 0x0333_3333)];
const SECOND: [Row; 2] = [(2, 0x0444_4444), (4, 0x0555_5555)];

fn both() -> Vec<Row> {
    let mut rows = [&FIRST[..], &SECOND[..]].concat();
    rows.sort_unstable();
    rows
}

#[test]
fn rows_are_covered_once_for_everybody() {
    let sim = SimEnv::new(1);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    let first = toy.append(table, &FIRST, Disk).unwrap();
    let last = toy.append(table, &SECOND, Disk).unwrap();
    let read_only = Options {
        read_only: true,
        ..options()
    };
    let reader = Toy::open(&sim.env_of_process(7), "/db", &read_only, 1_000).unwrap();
    assert_eq!(reader.rows(table).unwrap(), both());
    let older = reader.kernel.snapshot().unwrap().table(table).unwrap();

    let commit = cover(&toy, table, &both(), first, last);
    let second = cover(&toy, table, &both(), first, last);
    let staged = fragment_bytes(&sim);
    toy.kernel.commit(commit, Disk).unwrap();
    let error = toy.kernel.commit(second, Disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(
        fragment_bytes(&sim),
        staged / 2,
        "a refused file takes no room"
    );

    let later: [Row; 1] = [(3, 9)];
    toy.append(table, &later, Disk).unwrap();
    let mut expected = [both(), later.to_vec()].concat();
    expected.sort_unstable();
    let image = sim.crash_image(&CrashChoice::DropAll);
    let again = open(&image);
    for toy in [&toy, &reader, &again] {
        assert_eq!(toy.rows(table).unwrap(), expected);
        let state = toy.kernel.snapshot().unwrap().table(table).unwrap();
        assert_eq!(state.open_rows().count(), 1);
        assert_eq!(state.tree.total().unwrap().blocks, 2);
    }
    assert_eq!(reader.rows_of(&older).unwrap(), both());
    toy.kernel.checkpoint().unwrap();
    let image = sim.crash_image(&CrashChoice::DropAll);
    assert_eq!(open(&image).rows(table).unwrap(), expected);
}

#[test]
fn a_cover_of_other_rows_than_are_open_is_refused() {
    let sim = SimEnv::new(2);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    let first = toy.append(table, &FIRST, Disk).unwrap();
    let last = toy.append(table, &SECOND, Disk).unwrap();
    // One row short; without the commits of their rows; of a table that goes meanwhile.
    let commit = cover(&toy, table, &both()[1..], first, last);
    let error = toy.kernel.commit(commit, Disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let commit = cover(&toy, table, &both(), CommitNo(0), CommitNo(0));
    let error = toy.kernel.commit(commit, Disk).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Invalid),
        "{error}"
    );
    assert_eq!(toy.rows(table).unwrap(), both());
    let commit = cover(&toy, table, &both(), first, last);
    let drop = Commit {
        edits: vec![Edit::DropTable { table }],
        ..Commit::default()
    };
    toy.kernel.commit(drop, Disk).unwrap();
    let error = toy.kernel.commit(commit, Disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(fragment_bytes(&sim), 0);
}

/// Changes a byte of the rows with a value, wherever the log has them.
fn damage(sim: &SimEnv, value: i64) {
    let mut found = 0;
    for (path, _) in sim.files() {
        if path.extension().is_none_or(|e| e != "seg") {
            continue;
        }
        let bytes = sim.read_file(&path).unwrap();
        let places = bytes.windows(8).enumerate();
        for (at, _) in places.filter(|(_, window)| *window == value.to_le_bytes()) {
            sim.overwrite_file(&path, at as u64, &[bytes[at] ^ 0xFF])
                .unwrap();
            found += 1;
        }
    }
    assert!(found > 0, "no rows with {value:x}");
}

#[test]
fn a_repair_applies_a_cover_only_where_all_its_rows_are_there() {
    let other: Row = (1, 0x0777_7777);
    // Of rows that the cover speaks of, and of another table.
    for (damaged, is_applied) in [(FIRST[0].1, false), (SECOND[1].1, false), (other.1, true)] {
        let sim = SimEnv::new(3);
        let toy = open(&sim);
        let table = toy.create("t").unwrap();
        let beside = toy.create("u").unwrap();
        toy.kernel.checkpoint().unwrap();
        let first = toy.append(table, &FIRST, Disk).unwrap();
        toy.append(beside, &[other], Disk).unwrap();
        let last = toy.append(table, &SECOND, Disk).unwrap();
        let commit = cover(&toy, table, &both(), first, last);
        toy.kernel.commit(commit, Disk).unwrap();
        toy.append(table, &[(9, 9)], Disk).unwrap();
        let image = sim.crash_image(&CrashChoice::DropAll);
        damage(&image, damaged);
        let dir = Path::new("/db");
        let report = repair(&image.env(), dir, &options(), &mut |_| {}).unwrap();
        assert!(!report.given_up.is_empty());
        let toy = open(&image);
        let rows = toy.rows(table).unwrap();
        let mut expected = both();
        if !is_applied {
            let is_lost =
                |row: &Row, of: &[Row]| of.contains(row) && of.iter().any(|r| r.1 == damaged);
            expected.retain(|row| !is_lost(row, &FIRST) && !is_lost(row, &SECOND));
        }
        expected.push((9, 9));
        assert_eq!(rows, expected, "{damaged:x}: {report:?}");
        assert_eq!(toy.rows(beside).unwrap().len(), usize::from(!is_applied));
    }
}
