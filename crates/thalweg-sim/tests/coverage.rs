//! What an index covers, as commits, recoveries and makers of entries see it: it never covers a row that has no entry.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::orders::{AddHead, Coverage, CoverageRange};
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, ErrorKind, GroupPart, Options, Result, Rule, TableId,
    break_rule,
};
use thalweg_sim::oracle::contents_of;
use thalweg_sim::orders::{commit_edit, open_indexed};
use thalweg_sim::toy::{Row, Toy, block, index_blocks};

const INDEX: u32 = 2;

fn reopened(sim: &SimEnv) -> Toy {
    let options = Options {
        background: false,
        ..Options::default()
    };
    Toy::open(&sim.env(), "/db", &options, 4).unwrap()
}

fn coverage(toy: &Toy, table: TableId) -> Coverage {
    let snapshot = toy.kernel.snapshot().unwrap();
    let table = snapshot.table(table).unwrap();
    table.order(INDEX).unwrap().coverage.clone()
}

/// Blocks of rows, with all of their entries in the index.
fn append_with_entries(toy: &Toy, table: TableId, rows: &[Row]) -> CommitNo {
    let of_rows = GroupPart {
        head: AddHead::of_rows(table, 1),
        blocks: vec![block(table, rows.to_vec(), None)],
    };
    let of_index = GroupPart {
        head: AddHead {
            is_complete: true,
            ..AddHead::of_index(table, INDEX, 1)
        },
        blocks: index_blocks(table, INDEX, rows, 4),
    };
    let commit = Commit {
        groups: vec![of_rows, of_index],
        ..Commit::default()
    };
    toy.kernel.commit(commit, Durability::Disk).unwrap()
}

/// Lists a range as complete by the entries of these rows, which were read from a snapshot.
fn build(
    toy: &Toy,
    table: TableId,
    rows: &[Row],
    range: CoverageRange,
    prepared_at: Option<CommitNo>,
) -> Result<CommitNo> {
    let mut fragment = toy.kernel.stage_fragment_of(table, INDEX)?;
    for block in index_blocks(table, INDEX, rows, 4) {
        fragment.add_block(&block)?;
    }
    let head = AddHead {
        coverage: vec![range],
        ..AddHead::of_index(table, INDEX, 1)
    };
    let roots = vec![fragment.finish()?];
    commit_edit(toy, Edit::AddFragments { head, roots }, prepared_at)
}

fn is_conflict(built: &Result<CommitNo>) -> bool {
    (built.as_ref()).is_err_and(|error| error.kind() == ErrorKind::Conflict)
}

/// Keys 10 to 12 get a row without an entry, live, by a replay and from a checkpoint; 20 to 22 get rows with all of theirs.
fn coverage_behind_rows_without_entries() -> Vec<(bool, bool, bool)> {
    let sim = SimEnv::new(1);
    let (toy, table) = open_indexed(&sim, 1);
    append_with_entries(&toy, table, &[(1, 1), (30, 2)]);
    assert_eq!(coverage(&toy, table), Coverage::of_all());
    let bare = toy.append_group(table, &[(10, 3), (12, 4)], 4, Durability::Disk);
    let bare = bare.unwrap();
    let with_entries = append_with_entries(&toy, table, &[(20, 5), (22, 6)]);
    let seen = |toy: &Toy| {
        let coverage = coverage(toy, table);
        (
            coverage.covers(10, 12, bare),
            coverage.covers(20, 22, with_entries),
            contents_of(toy).is_ok(),
        )
    };
    let live = seen(&toy);
    let replayed = reopened(&sim.crash_image(&CrashChoice::Kill));
    toy.kernel.checkpoint().unwrap();
    let from_checkpoint = reopened(&sim.crash_image(&CrashChoice::Kill));
    vec![live, seen(&replayed), seen(&from_checkpoint)]
}

#[test]
fn rows_without_entries_are_covered_no_longer() {
    let kept = coverage_behind_rows_without_entries();
    assert_eq!(kept, [(false, true, true); 3]);
    break_rule(Some(Rule::LoweredCoverage));
    let broken = coverage_behind_rows_without_entries();
    break_rule(None);
    // The rule is what keeps them out, and whoever reads through the index misses them without it.
    assert_eq!(broken, [(true, true, false); 3]);
}

/// Entries are made of what a snapshot shows; rows come into their keys before they are committed.
fn build_over_a_late_row() -> (bool, bool) {
    let (toy, table) = open_indexed(&SimEnv::new(2), 1);
    let rows: Vec<Row> = vec![(1, 1), (9, 2)];
    let prepared_at = toy.append_group(table, &rows, 4, Durability::Disk).unwrap();
    let late = toy.append_group(table, &[(5, 3)], 4, Durability::Disk);
    let range = CoverageRange::of_all(late.unwrap());
    let built = build(&toy, table, &rows, range, Some(prepared_at));
    (is_conflict(&built), contents_of(&toy).is_ok())
}

#[test]
fn ranges_into_which_rows_came_are_not_complete() {
    assert_eq!(build_over_a_late_row(), (true, true));
    break_rule(Some(Rule::CompleteRanges));
    let broken = build_over_a_late_row();
    break_rule(None);
    assert_eq!(broken, (false, false));
}

#[test]
fn ranges_are_complete_as_of_a_snapshot() {
    let (toy, table) = open_indexed(&SimEnv::new(3), 1);
    let rows: Vec<Row> = vec![(1, 1), (9, 2)];
    let stored = toy.append_group(table, &rows, 4, Durability::Disk).unwrap();
    let range = CoverageRange::of_all(stored);
    let refused = build(&toy, table, &rows, range, None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    // A later row is in nobody's way who does not speak of it.
    let late = toy.append_group(table, &[(5, 3)], 4, Durability::Disk);
    build(&toy, table, &rows, range, Some(stored)).unwrap();
    let coverage = coverage(&toy, table);
    assert!(coverage.covers(1, 9, stored) && !coverage.covers(5, 5, late.unwrap()));
    contents_of(&toy).unwrap();
}

/// What came before a checkpoint that was read is known as a whole only: whoever prepared entries before it begins anew.
#[test]
fn entries_made_before_a_recovery_are_refused_where_rows_may_have_come() {
    let sim = SimEnv::new(4);
    let (toy, table) = open_indexed(&sim, 1);
    let rows: Vec<Row> = vec![(1, 1), (9, 2)];
    let prepared_at = toy.append_group(table, &rows, 4, Durability::Disk).unwrap();
    let late = toy.append_group(table, &[(5, 3)], 4, Durability::Disk);
    let late = late.unwrap();
    for has_checkpoint in [false, true] {
        if has_checkpoint {
            toy.kernel.checkpoint().unwrap();
        }
        let toy = reopened(&sim.crash_image(&CrashChoice::Kill));
        let range = CoverageRange::of_all(late);
        let built = build(&toy, table, &rows, range, Some(prepared_at));
        assert!(is_conflict(&built), "{has_checkpoint}: {built:?}");
        let all = [(1, 1), (5, 3), (9, 2)];
        let now = toy.kernel.snapshot().unwrap().commit();
        build(&toy, table, &all, range, Some(now)).unwrap();
        assert!(coverage(&toy, table).covers(1, 9, late));
        contents_of(&toy).unwrap();
    }
}

/// Of an index only so many items are remembered as having come without entries.
#[test]
fn entries_made_before_what_is_remembered_are_refused() {
    const REMEMBERED: i64 = 1_024;
    let (toy, table) = open_indexed(&SimEnv::new(5), 1);
    let rows: Vec<Row> = vec![(1, 1), (9, 2)];
    let prepared_at = toy.append_group(table, &rows, 4, Durability::Disk).unwrap();
    let late = toy.append_group(table, &[(5, 3)], 4, Durability::Disk);
    let range = CoverageRange {
        key_max: 9,
        ..CoverageRange::of_all(late.unwrap())
    };
    // None of them in the range.
    let others: Vec<Row> = (0..REMEMBERED).map(|n| (100 + n, 10 + n)).collect();
    let appended = toy.append_group(table, &others, 1, Durability::Disk);
    let behind = appended.unwrap();
    let built = build(&toy, table, &rows, range, Some(prepared_at));
    assert!(is_conflict(&built), "{built:?}");
    contents_of(&toy).unwrap();
    let all = [(1, 1), (5, 3), (9, 2)];
    build(&toy, table, &all, range, Some(behind)).unwrap();
    contents_of(&toy).unwrap();
}
