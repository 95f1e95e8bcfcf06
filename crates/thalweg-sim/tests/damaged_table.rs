//! A damaged index page of one table: that table's statements fail, everything else goes on.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::path::{Path, PathBuf};
use std::time::Duration;
use thalweg_env::sim::{CrashChoice, Errno, Fault, FaultPlan, FaultRule, SimEnv};
use thalweg_kernel::index::ItemName;
use thalweg_kernel::orders::{AddHead, ReplaceEdit};
use thalweg_kernel::repair::repair;
use thalweg_kernel::verify::Damage as Found;
use thalweg_kernel::{Commit, Durability, Edit, Error, ErrorKind, NEW_TABLE, Options, TableId};
use thalweg_sim::toy::{Row, Toy, block, definition, wide_block};

const BLOCK_ROWS: usize = 64;
/// What all open rows may have, in raw bytes, and how many rows that is.
const OPEN_LIMIT_ROWS: usize = (8 << 20) / 16;
/// For how long a table is left aside whose encoding has failed.
const ASIDE: Duration = Duration::from_secs(10);

fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        background: false,
        ..Options::default()
    }
}

fn open(sim: &SimEnv, background: bool) -> Toy {
    let options = Options {
        background,
        ..options()
    };
    Toy::open(&sim.env(), "/db", &options, 64).unwrap()
}

fn open_read_only(sim: &SimEnv) -> Toy {
    let options = Options {
        read_only: true,
        ..options()
    };
    Toy::open(&sim.env_of_process(77), "/db", &options, 64).unwrap()
}

fn rows(first: i64, count: usize) -> Vec<Row> {
    (first..).take(count).map(|key| (key, key)).collect()
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

    /// Heals the pages of files of the table's own.
    fn heal_fragments(&mut self, sim: &SimEnv) {
        let is_of_log = |(path, ..): &(PathBuf, u64, u8)| path.starts_with("/db/log");
        self.heal(sim);
        self.0.retain(is_of_log);
        self.write(sim, 1);
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
        if !background {
            // Nor do the rows of the damaged table cut the blocks of others short.
            toy.append(b, &rows(0, 1), Durability::Memory).unwrap();
            let table = toy.kernel.snapshot().unwrap().table(b).unwrap();
            assert!(table.open_rows().count() > 0);
        }
        toy.kernel.flush().unwrap();
        toy.kernel.checkpoint().unwrap();
        // Nothing is left of it once the table is gone.
        toy.drop_table(a).unwrap();
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
    toy.drop_table(c).unwrap();
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
    toy.drop_table(*a).unwrap();
    toy.kernel.run_due_work().unwrap();
    // One may be where a sparse segment was emptied into.
    assert!(fragments(sim) <= 1, "{} fragments", fragments(sim));
}

/// Empty files of failed writes are removed although the index of another table cannot be read.
#[test]
fn empty_files_beside_a_damaged_table_go() {
    let Damaged { sim, toy, b, .. } = &damaged(false);
    for _ in 0..500 {
        // As where an append finds no room.
        drop(toy.kernel.stage_fragment(*b).unwrap());
        toy.append(*b, &rows(5_000, 1), Durability::Process)
            .unwrap();
        toy.kernel.run_due_work().unwrap();
        assert!(fragments(sim) < 150, "{} files", fragments(sim));
    }
}

/// One way in which a table goes on behind the last checkpoint, and the rows that are in it then. It begins with rows 0 to 400
/// in blocks, 10 that are open, and a fragment with 500 more.
type GoOn = fn(&Toy, TableId) -> Vec<Row>;

const GO_ON: [(&str, GoOn); 5] = [
    ("groups", |toy, a| {
        for part in 0..5 {
            let rows = rows(3_000 + part * 100, 100);
            toy.append_group(a, &rows, 8, Durability::Process).unwrap();
        }
        rows(3_000, 500)
    }),
    ("open rows, covered and not", |toy, a| {
        toy.append(a, &rows(3_000, 100), Durability::Process)
            .unwrap();
        toy.kernel.encode_open_rows(a).unwrap();
        toy.append(a, &rows(4_000, 20), Durability::Process)
            .unwrap();
        [rows(3_000, 100), rows(4_000, 20)].concat()
    }),
    ("a fragment", |toy, a| {
        toy.append_fragment(a, &rows(3_000, 200), 64).unwrap();
        rows(3_000, 200)
    }),
    ("replaced blocks", |toy, a| {
        toy.append_group(a, &rows(3_000, 64), 64, Durability::Process)
            .unwrap();
        // One that the pages know, and the one that came just now; a fragment has their rows, and the key of the first.
        let table = toy.kernel.snapshot().unwrap().table(a).unwrap();
        let blocks = table.tree.iter(None, &**toy.kernel.store());
        let blocks: Vec<_> = blocks.map(Result::unwrap).collect();
        let moved = [blocks[3].clone(), blocks[blocks.len() - 1].clone()];
        let mut fragment = toy.kernel.stage_fragment(a).unwrap();
        for entry in &moved {
            let rows = toy.block_rows(entry).unwrap();
            let mut copy = block(a, rows, None);
            copy.entry = copy
                .entry
                .committed(entry.commit_min, entry.commit_max, entry.ordinal);
            fragment.add_block(&copy).unwrap();
        }
        let replace = Edit::Replace(ReplaceEdit::of_rows(
            a,
            moved.iter().map(ItemName::of).collect(),
            vec![fragment.finish().unwrap()],
        ));
        let commit = Commit {
            edits: vec![replace],
            ..Commit::default()
        };
        toy.kernel.commit(commit, Durability::Process).unwrap();
        rows(3_000, 64)
    }),
    ("a new name", |toy, a| {
        let rename = Edit::RenameTable {
            table: a,
            name: "renamed".into(),
        };
        let commit = Commit {
            edits: vec![rename],
            ..Commit::default()
        };
        toy.kernel.commit(commit, Durability::Process).unwrap();
        toy.append_group(a, &rows(3_000, 8), 8, Durability::Process)
            .unwrap();
        rows(3_000, 8)
    }),
];

/// A killed database whose table `a` went on behind the last checkpoint, and of which each index page is damaged then.
struct Killed {
    sim: SimEnv,
    a: TableId,
    b: TableId,
    damage: Damage,
    rows: Vec<Row>,
}

fn killed(go_on: GoOn) -> Killed {
    let sim = SimEnv::new(13);
    let toy = open(&sim, false);
    let (a, b) = (toy.create("a").unwrap(), toy.create("b").unwrap());
    toy.append_group(a, &rows(0, 400), 8, Durability::Disk)
        .unwrap();
    toy.append_fragment(a, &rows(1_000, 500), 8).unwrap();
    toy.append(a, &rows(2_000, 10), Durability::Disk).unwrap();
    toy.append(b, &rows(0, 10), Durability::Disk).unwrap();
    toy.kernel.checkpoint().unwrap();
    let more = go_on(&toy, a);
    toy.append(b, &rows(10, 10), Durability::Disk).unwrap();
    let rows = [rows(0, 400), rows(1_000, 500), rows(2_000, 10), more].concat();
    assert_eq!(toy.rows(a).unwrap(), rows);
    let sim = sim.crash_image(&CrashChoice::Kill);
    let damage = Damage::of(&sim, a);
    Killed {
        sim,
        a,
        b,
        damage,
        rows,
    }
}

fn files_and_bytes(sim: &SimEnv) -> (usize, u64) {
    let files = sim.files();
    (files.len(), files.iter().map(|(_, bytes)| bytes).sum())
}

#[test]
fn an_opening_is_stopped_by_no_damaged_page_of_a_table() {
    for (what, go_on) in GO_ON {
        let Killed {
            mut sim,
            a,
            b,
            damage,
            rows: stored,
        } = killed(go_on);
        let mut of_b = rows(0, 20);
        // Opened again and again, each time behind a crash; what waits is in each checkpoint.
        for (round, crash) in [
            CrashChoice::Kill,
            CrashChoice::DropAll,
            CrashChoice::KeepAll,
            CrashChoice::DropAll,
        ]
        .iter()
        .enumerate()
        {
            let toy = open(&sim, false);
            let error = toy.rows(a).unwrap_err();
            assert_damage(&error);
            assert!(error.to_string().contains("offset"), "{what}: {error}");
            let refused = toy.append_group(a, &rows(9_000, 8), 8, Durability::Disk);
            assert_damage(&refused.unwrap_err());
            let refused = toy.append_fragment(a, &rows(9_000, 8), 8);
            assert_damage(&refused.unwrap_err());
            // The other table goes on in every way.
            let first = 100 + 100 * i64::try_from(round).unwrap();
            toy.append(b, &rows(first, 4), Durability::Disk).unwrap();
            toy.append_group(b, &rows(first + 4, 16), 8, Durability::Disk)
                .unwrap();
            toy.append_fragment(b, &rows(first + 20, 20), 8).unwrap();
            of_b.extend(rows(first, 40));
            assert_eq!(toy.rows(b).unwrap(), of_b, "{what}");
            for _ in 0..3 {
                toy.kernel.collect_garbage().unwrap();
                toy.kernel.checkpoint().unwrap();
            }
            // A process that reads meets the same.
            let reader = open_read_only(&sim);
            assert_eq!(reader.rows(b).unwrap(), of_b, "{what}");
            assert_damage(&reader.rows(a).unwrap_err());
            let report = toy.kernel.verify(&mut |_| {}).unwrap();
            assert!(!report.damage.is_empty());
            let of_a =
                |damage: &Found| damage.table.as_deref() != Some("b") && damage.table.is_some();
            assert!(report.damage.iter().all(of_a), "{:?}", report.damage);
            drop(reader);
            let crashed = sim.crash_image(crash);
            drop(toy);
            sim = crashed;
        }
        // Once the pages are back all of it is, in a reader as well, and stays.
        damage.heal(&sim);
        let toy = open(&sim, false);
        assert_eq!(toy.rows(a).unwrap(), stored, "{what}");
        assert_eq!(open_read_only(&sim).rows(a).unwrap(), stored, "{what}");
        toy.append_group(a, &rows(9_000, 8), 8, Durability::Disk)
            .unwrap();
        let stored = [stored, rows(9_000, 8)].concat();
        assert_eq!(toy.rows(a).unwrap(), stored, "{what}");
        assert!(toy.kernel.verify(&mut |_| {}).unwrap().damage.is_empty());
        toy.kernel.close().unwrap();
        drop(toy);
        assert_eq!(open(&sim, false).rows(a).unwrap(), stored, "{what}");
    }
}

#[test]
fn what_waits_goes_on_in_an_open_database_once_its_page_is_back() {
    for (what, go_on) in GO_ON {
        let db = killed(go_on);
        let toy = open(&db.sim, false);
        let reader = open_read_only(&db.sim);
        assert_damage(&toy.rows(db.a).unwrap_err());
        assert_damage(&reader.rows(db.a).unwrap_err());
        db.damage.heal(&db.sim);
        // A reader tries again with each snapshot.
        assert_eq!(reader.rows(db.a).unwrap(), db.rows, "{what}");
        // The writer with each checkpoint, and each commit that the table gets.
        toy.append(db.b, &rows(500, 1), Durability::Disk).unwrap();
        toy.kernel.checkpoint().unwrap();
        assert_eq!(toy.rows(db.a).unwrap(), db.rows, "{what}");
        let db = killed(go_on);
        let toy = open(&db.sim, false);
        db.damage.heal(&db.sim);
        toy.append_group(db.a, &rows(9_000, 8), 8, Durability::Disk)
            .unwrap();
        assert_eq!(toy.rows(db.a).unwrap(), [db.rows, rows(9_000, 8)].concat());
    }
}

#[test]
fn a_table_with_changes_that_wait_can_be_dropped_and_its_files_go() {
    for (what, go_on) in GO_ON {
        let db = killed(go_on);
        let toy = open(&db.sim, false);
        toy.drop_table(db.a).unwrap();
        for part in 0..40 {
            toy.append_group(db.b, &rows(1_000 + part * 64, 64), 8, Durability::Disk)
                .unwrap();
        }
        toy.kernel.run_due_work().unwrap();
        toy.kernel.collect_garbage().unwrap();
        let of_table_a = fragments(&db.sim);
        assert!(of_table_a <= 1, "{what}: {of_table_a} fragments are left");
        let sim = db.sim.crash_image(&CrashChoice::DropAll);
        let toy = open(&sim, false);
        assert_eq!(toy.rows(db.b).unwrap().len(), 20 + 40 * 64);
        assert!(toy.kernel.snapshot().unwrap().table(db.a).is_none());
    }
}

#[test]
fn repair_makes_a_table_whole_whose_changes_wait() {
    for (what, go_on) in GO_ON {
        for is_opened_before in [false, true] {
            let mut db = killed(go_on);
            // Nothing but its lowest pages describes the blocks of a fragment.
            db.damage.heal_fragments(&db.sim);
            if is_opened_before {
                // What waits is in a checkpoint then.
                open(&db.sim, false).kernel.close().unwrap();
            }
            let options = Options::default();
            let env = db.sim.env();
            let report = repair(&env, Path::new("/db"), &options, &mut |_| {}).unwrap();
            assert!(!report.is_clean());
            let toy = open(&db.sim, false);
            assert!(toy.kernel.verify(&mut |_| {}).unwrap().damage.is_empty());
            let found = toy.rows(db.a).unwrap();
            assert_eq!(found, db.rows, "{what}: {report:?}");
            assert_eq!(toy.rows(db.b).unwrap(), rows(0, 20));
        }
    }
}

#[test]
fn openings_that_fail_leave_nothing_behind() {
    let db = killed(GO_ON[0].1);
    db.damage.heal(&db.sim);
    let calls = {
        let sim = db.sim.crash_image(&CrashChoice::Kill);
        let before = sim.calls();
        let toy = open(&sim, false);
        let calls = sim.calls() - before;
        drop(toy);
        calls
    };
    let mut failed = 0;
    for nth in 0..calls {
        let mut sim = db.sim.crash_image(&CrashChoice::Kill);
        // A segment that the root may name stays until the next one; nothing grows from there.
        let mut most = (0, 0);
        for attempt in 0..5 {
            let at = sim.calls() + 1 + nth;
            let fails = FaultRule::new(Fault::Error(Errno::IO)).at_call(at);
            sim.set_plan(FaultPlan::none().rule(fails));
            let opened = Toy::open(&sim.env(), "/db", &options(), 64);
            if opened.is_ok() {
                break;
            }
            failed += 1;
            let now = files_and_bytes(&sim);
            match attempt {
                0 | 1 => most = most.max(now),
                _ => assert!(now <= most, "call {nth}, attempt {attempt}: {now:?}"),
            }
            sim = sim.crash_image(&CrashChoice::Kill);
        }
        sim.set_plan(FaultPlan::none());
        assert_eq!(open(&sim, false).rows(db.a).unwrap(), db.rows, "call {nth}");
    }
    assert!(failed > 100, "{failed} openings failed");
}

#[test]
fn however_much_waits_for_a_damaged_page_the_database_opens() {
    // Of 4,000 columns each, 33 entries have more summaries than one list holds.
    const COLUMNS: u32 = 4000;
    let sim = SimEnv::new(7);
    // Long segments, so that there is no checkpoint but one.
    let long = Options {
        background: false,
        ..Options::default()
    };
    let open = |sim: &SimEnv| Toy::open(&sim.env(), "/db", &long, 64).unwrap();
    let toy = open(&sim);
    let other = toy.create("other").unwrap();
    toy.append(other, &[(1, 1)], Durability::Disk).unwrap();
    let commit = |edit| Commit {
        edits: vec![edit],
        ..Commit::default()
    };
    let create = Edit::CreateTable {
        table: NEW_TABLE,
        name: "wide".to_owned(),
        definition: definition(COLUMNS),
        indexes: 0,
    };
    toy.kernel.commit(commit(create), Durability::Disk).unwrap();
    let wide = toy
        .kernel
        .snapshot()
        .unwrap()
        .table_named("wide")
        .unwrap()
        .id;
    let add_file = |key: i64| {
        let mut fragment = toy.kernel.stage_fragment(wide).unwrap();
        let block = wide_block(wide, vec![(key, key)], None, COLUMNS);
        fragment.add_block(&block).unwrap();
        let add = Edit::AddFragments {
            head: AddHead::of_rows(wide, 1),
            roots: vec![fragment.finish().unwrap()],
        };
        toy.kernel.commit(commit(add), Durability::Disk).unwrap();
    };
    add_file(0);
    toy.kernel.checkpoint().unwrap();
    (1..80).for_each(add_file);
    let image = sim.crash_image(&CrashChoice::Kill);
    let mut damage = Damage::of(&image, wide);
    // The page of the checkpoint, which all the others wait for; those of the files are whole.
    damage.heal(&image);
    damage.0.retain(|(path, ..)| path.starts_with("/db/log"));
    damage.write(&image, 1);
    for _ in 0..2 {
        let again = open(&image);
        assert_eq!(again.rows(other).unwrap(), [(1, 1)]);
        assert_damage(&again.rows(wide).unwrap_err());
    }
    damage.heal(&image);
    let whole: Vec<Row> = (0..80).map(|key| (key, key)).collect();
    assert_eq!(open(&image).rows(wide).unwrap(), whole);
}
