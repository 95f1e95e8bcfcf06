//! A damaged index page of one table: that table's statements fail, everything else goes on.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::path::PathBuf;
use std::time::Duration;
use thalweg_env::sim::SimEnv;
use thalweg_kernel::{Commit, Durability, Edit, Error, ErrorKind, Options, TableId};
use thalweg_sim::toy::{Row, Toy};

const BLOCK_ROWS: usize = 64;
/// What all open rows may have, in raw bytes, and how many rows that is.
const OPEN_LIMIT_ROWS: usize = (8 << 20) / 16;
/// For how long a table is left aside whose encoding has failed.
const ASIDE: Duration = Duration::from_secs(10);

fn open(sim: &SimEnv, background: bool) -> Toy {
    let options = Options {
        segment_bytes: 64 << 10,
        background,
        ..Options::default()
    };
    Toy::open(&sim.env(), "/db", &options, 64).unwrap()
}

fn rows(first: i64, count: usize) -> Vec<Row> {
    (first..).take(count).map(|key| (key, key)).collect()
}

fn drop_table(toy: &Toy, table: TableId) {
    let commit = Commit {
        edits: vec![Edit::DropTable { table }],
        ..Commit::default()
    };
    toy.kernel.commit(commit, Durability::Disk).unwrap();
}

/// One byte of each index page of a table that lies in the log, and what it was.
struct Damage(Vec<(PathBuf, u64, u8)>);

impl Damage {
    fn of(sim: &SimEnv, table: TableId) -> Self {
        let mut places = Vec::new();
        for (path, _) in sim.files() {
            let bytes = sim.read_file(&path).unwrap();
            for at in 0..bytes.len().saturating_sub(48) {
                let page = &bytes[at..];
                if page.starts_with(b"TIPG") && page[8..12] == table.0.to_le_bytes() {
                    places.push((path.clone(), at as u64 + 40, page[40]));
                }
            }
        }
        assert!(!places.is_empty());
        let damage = Self(places);
        damage.write(sim, 1);
        damage
    }

    fn heal(&self, sim: &SimEnv) {
        self.write(sim, 0);
    }

    fn write(&self, sim: &SimEnv, flip: u8) {
        for (path, at, byte) in &self.0 {
            sim.overwrite_file(path, *at, &[byte ^ flip]).unwrap();
        }
    }
}

/// A database with the tables `a`, whose index is damaged, and `b`.
struct Damaged {
    sim: SimEnv,
    toy: Toy,
    a: TableId,
    b: TableId,
    damage: Damage,
}

fn damaged(background: bool) -> Damaged {
    damaged_after(background, |_, _| {})
}

fn damaged_after(background: bool, more: impl Fn(&Toy, TableId)) -> Damaged {
    let sim = SimEnv::new(11);
    let toy = open(&sim, false);
    let (a, b) = (toy.create("a").unwrap(), toy.create("b").unwrap());
    for table in [a, b] {
        toy.append_group(table, &rows(0, 256), BLOCK_ROWS, Durability::Disk)
            .unwrap();
    }
    more(&toy, a);
    toy.kernel.close().unwrap();
    drop(toy);
    let damage = Damage::of(&sim, a);
    let toy = open(&sim, background);
    assert_damage(&toy.rows(a).unwrap_err());
    Damaged {
        sim,
        toy,
        a,
        b,
        damage,
    }
}

/// Damage, of which the outcome is known.
fn assert_damage(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error:?}");
    assert!(!error.to_string().contains("not known"), "{error}");
}

fn files_of_kind(sim: &SimEnv, kind: &str) -> usize {
    let files = sim.files();
    let is_one = |path: &PathBuf| path.extension().is_some_and(|found| found == kind);
    files.iter().filter(|(path, _)| is_one(path)).count()
}

fn fragments(sim: &SimEnv) -> usize {
    files_of_kind(sim, "frag")
}

#[test]
fn other_tables_go_on() {
    let db = damaged(false);
    let (toy, a, b) = (&db.toy, db.a, db.b);
    let mut stored = rows(0, 256);
    for round in 0..40 {
        let first = 1_000 + round * 200;
        // Raw rows of the damaged table stay open; blocks cannot be added.
        toy.append(a, &rows(first, 40), Durability::Disk).unwrap();
        let refused = toy.append_group(a, &rows(first, 64), BLOCK_ROWS, Durability::Disk);
        assert_damage(&refused.unwrap_err());
        let refused = toy.append_fragment(a, &rows(first, 64), BLOCK_ROWS);
        assert_damage(&refused.unwrap_err());
        toy.append(b, &rows(first, 40), Durability::Disk).unwrap();
        toy.append_group(b, &rows(first + 40, 64), BLOCK_ROWS, Durability::Disk)
            .unwrap();
        stored.extend(rows(first, 104));
        toy.kernel.flush().unwrap();
    }
    toy.kernel.checkpoint().unwrap();
    assert_eq!(toy.rows(b).unwrap(), stored);
    let snapshot = toy.kernel.snapshot().unwrap();
    let still_open = |table| snapshot.table(table).unwrap().open_rows().count();
    assert_eq!(still_open(a), 40);
    assert!(
        still_open(b) <= 2,
        "{} commits are in no block",
        still_open(b)
    );
    drop(snapshot);
    let segments = files_of_kind(&db.sim, "seg");
    assert!(segments < 20, "{segments} segments");
    db.toy.kernel.close().unwrap();
    let toy = open(&db.sim, false);
    assert_eq!(toy.rows(b).unwrap(), stored);
    assert_damage(&toy.rows(a).unwrap_err());
}

#[test]
fn a_good_encoding_follows_a_failed_one() {
    let db = damaged(false);
    let (toy, a) = (&db.toy, db.a);
    toy.append(a, &rows(1_000, 100), Durability::Disk).unwrap();
    assert_damage(&toy.kernel.encode_open_rows(a).unwrap_err());
    db.damage.heal(&db.sim);
    // Left aside until then.
    toy.kernel.run_due_work().unwrap();
    let open = || {
        let table = toy.kernel.snapshot().unwrap().table(a).unwrap();
        table.open_rows().count()
    };
    assert_eq!(open(), 1);
    db.sim.advance(ASIDE);
    toy.kernel.run_due_work().unwrap();
    assert_eq!(open(), 0);
    let stored = [rows(0, 256), rows(1_000, 100)].concat();
    assert_eq!(toy.rows(a).unwrap(), stored);
}

/// Appends in large commits until one is refused; returns how many rows were taken.
fn fill(toy: &Toy, table: TableId, at_most: usize) -> (usize, Option<Error>) {
    let part = rows(10_000, 8_192);
    let mut taken = 0;
    while taken < at_most {
        match toy.append(table, &part, Durability::Memory) {
            Ok(_) => taken += part.len(),
            Err(error) => return (taken, Some(error)),
        }
    }
    (taken, None)
}

#[test]
fn open_rows_that_cannot_be_encoded_are_bounded_and_in_nobodys_way() {
    for background in [false, true] {
        let db = damaged(background);
        let (toy, a, b) = (&db.toy, db.a, db.b);
        let (taken, refused) = fill(toy, a, 4 * OPEN_LIMIT_ROWS);
        let refused = refused.unwrap();
        assert_damage(&refused);
        let message = refused.to_string();
        assert!(
            message.contains("nothing of this append was stored"),
            "{message}"
        );
        assert!(taken >= OPEN_LIMIT_ROWS / 2, "{taken} rows were taken");
        assert!(taken <= OPEN_LIMIT_ROWS + 8_192, "{taken} rows were taken");
        // More than all open rows may have, several times.
        let (taken, refused) = fill(toy, b, 2 * OPEN_LIMIT_ROWS);
        assert!(refused.is_none(), "after {taken} rows: {refused:?}");
        toy.kernel.flush().unwrap();
        toy.kernel.checkpoint().unwrap();
        // Nothing is left of it once the table is gone.
        drop_table(toy, a);
        let (taken, refused) = fill(toy, b, OPEN_LIMIT_ROWS + 8_192);
        assert!(refused.is_none(), "after {taken} rows: {refused:?}");
        toy.kernel.close().unwrap();
    }
}

#[test]
fn a_refused_table_is_taken_again_once_it_can_be_read() {
    let db = damaged(false);
    let (toy, a) = (&db.toy, db.a);
    assert!(fill(toy, a, 4 * OPEN_LIMIT_ROWS).1.is_some());
    db.damage.heal(&db.sim);
    db.sim.advance(ASIDE);
    toy.kernel.run_due_work().unwrap();
    let (taken, refused) = fill(toy, a, OPEN_LIMIT_ROWS);
    assert!(refused.is_none(), "after {taken} rows: {refused:?}");
}

#[test]
fn files_of_other_tables_go_and_its_own_stay() {
    let db = damaged_after(false, |toy, a| {
        let c = toy.create("c").unwrap();
        for table in [a, c] {
            for part in 0..3 {
                let rows = rows(2_000 + part * 1_000, 1_000);
                toy.append_fragment(table, &rows, BLOCK_ROWS).unwrap();
            }
        }
        toy.append_group(a, &rows(9_000, 640), BLOCK_ROWS, Durability::Disk)
            .unwrap();
    });
    let Damaged { sim, toy, a, .. } = &db;
    assert_eq!(fragments(sim), 6);
    let c = toy.kernel.snapshot().unwrap().table_named("c").unwrap().id;
    drop_table(toy, c);
    toy.kernel.run_due_work().unwrap();
    assert_eq!(fragments(sim), 3);
    for _ in 0..3 {
        toy.kernel.collect_garbage().unwrap();
    }
    assert_eq!(fragments(sim), 3);
    // All of it is still there.
    db.damage.heal(sim);
    assert_eq!(toy.rows(*a).unwrap().len(), 256 + 3_000 + 640);
    // And goes with its table, damaged or not.
    Damage::of(sim, *a);
    drop_table(toy, *a);
    toy.kernel.run_due_work().unwrap();
    // One may be where a sparse segment was emptied into.
    assert!(fragments(sim) <= 1, "{} fragments", fragments(sim));
}
