//! What must not grow with the number of tables, nor with what was committed since: counted, not timed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a step that fails is a test that fails"
)]

use bytes::Bytes;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::block::EncodedBlock;
use thalweg_kernel::repair::repair;
use thalweg_kernel::{
    Commit, CommitNo, Durability, Edit, ErrorKind, Kernel, NEW_TABLE, OpenRows, Options, Result,
    RowEncoder, RowsPart, TableId, TableSnapshot, TableState,
};
use thalweg_sim::checkpoint_frames::{CheckpointFrame, checkpoints_of};
use thalweg_sim::files::files_of;
use thalweg_sim::toy::{Row, Toy, ToyEncoder, rows_part};

const TABLES: usize = 2_000;

fn options() -> Options {
    Options {
        segment_bytes: 4 << 20,
        background: false,
        ..Options::default()
    }
}

fn open(sim: &SimEnv) -> Toy {
    Toy::open(&sim.env(), "/db", &options(), 64).unwrap()
}

fn edit(toy: &Toy, edit: Edit) -> Result<CommitNo> {
    let commit = Commit {
        edits: vec![edit],
        ..Commit::default()
    };
    toy.kernel.commit(commit, Durability::Process)
}

fn create(toy: &Toy, name: &str) {
    let definition = Bytes::from_static(b"toy");
    let name = name.to_owned();
    edit(
        toy,
        Edit::CreateTable {
            table: NEW_TABLE,
            name,
            definition,
            indexes: 0,
        },
    )
    .unwrap();
}

fn create_many(toy: &Toy) {
    (0..TABLES).for_each(|n| create(toy, &format!("Table {n}")));
}

fn id(toy: &Toy, name: &str) -> TableId {
    toy.kernel.snapshot().unwrap().table_named(name).unwrap().id
}

/// Bytes that are written meanwhile.
fn written(sim: &SimEnv, work: impl FnOnce()) -> u64 {
    let before = sim.stats().bytes_written;
    work();
    sim.stats().bytes_written - before
}

/// Writes checkpoints until the last two are small differences from two full ones of all tables; returns the bytes of one.
fn write_full_checkpoints(sim: &SimEnv, toy: &Toy) -> u64 {
    let table = id(toy, "Table 0");
    for key in 0..60 {
        toy.append(table, &[(key, key)], Durability::Process)
            .unwrap();
        toy.kernel.checkpoint().unwrap();
        let all = checkpoints_of(&files_of(sim));
        let of_base = |found: &CheckpointFrame| {
            let is_base = |other: &&CheckpointFrame| Some(other.place) == found.base;
            all.iter().find(is_base).map(|base| base.index.len())
        };
        let last = all.last_chunk::<2>().unwrap();
        if last
            .iter()
            .all(|found| of_base(found) > Some((TABLES * 40).max(8 * found.index.len())))
        {
            return of_base(&last[0]).unwrap() as u64;
        }
    }
    panic!("no full checkpoints were written");
}

#[test]
fn a_checkpoint_costs_what_has_changed() {
    let sim = SimEnv::new(1);
    let toy = open(&sim);
    create_many(&toy);
    let full = write_full_checkpoints(&sim, &toy);
    assert!(full > TABLES as u64 * 40, "{full} bytes");
    let table = id(&toy, "table 77");
    let mut total = 0;
    for key in 0..200 {
        toy.append(table, &[(key, key)], Durability::Process)
            .unwrap();
        total += written(&sim, || toy.kernel.checkpoint().unwrap());
    }
    assert!(
        total / 200 < full / 8,
        "{} bytes each, {full} of all tables",
        total / 200
    );
    // So does the one of an opening.
    let image = sim.crash_image(&CrashChoice::Kill);
    let opening = written(&image, || drop(open(&image)));
    // It fills a segment of at least 64 KiB with zeros.
    assert!(opening < full, "{opening} bytes");
}

/// Id, name, version and bytes of the definition, rows in blocks, and commits of open rows with whether a section begins.
type TableContents = (u32, String, u32, Vec<u8>, Vec<Row>, Vec<(u64, bool)>);

/// All that a snapshot says of its tables.
fn contents(toy: &Toy) -> Vec<TableContents> {
    let snapshot = toy.kernel.snapshot().unwrap();
    let of_table = |table: TableSnapshot| {
        let open = table
            .open_rows()
            .map(|open| (open.commit.0, open.begins_section));
        (
            table.id.0,
            table.name.to_string(),
            table.definition_version,
            table.definition.to_vec(),
            toy.rows_of(&table).unwrap(),
            open.collect(),
        )
    };
    snapshot.tables().map(of_table).collect()
}

#[test]
fn a_checkpoint_that_says_what_has_changed_says_all_of_it() {
    let sim = SimEnv::new(2);
    let toy = open(&sim);
    create_many(&toy);
    let [first, second, dropped, covered, open_before, altered] = [
        "table 1", "table 2", "table 3", "table 4", "table 5", "table 6",
    ]
    .map(|name| id(&toy, name));
    let append = |table, key| {
        _ = toy
            .append(table, &[(key, key)], Durability::Process)
            .unwrap()
    };
    [first, covered, open_before, altered]
        .iter()
        .for_each(|table| append(*table, 1));
    toy.append_group(dropped, &[(1, 1)], 1, Durability::Process)
        .unwrap();
    let full = write_full_checkpoints(&sim, &toy);
    // Names change places; one is taken by a new table.
    let rename = |table, name: &str| {
        let name = name.to_owned();
        edit(&toy, Edit::RenameTable { table, name }).unwrap();
    };
    rename(first, "for a moment");
    rename(second, "Table 1");
    rename(first, "Table 2");
    edit(&toy, Edit::DropTable { table: dropped }).unwrap();
    create(&toy, "table 3");
    create(&toy, "never seen");
    let table = id(&toy, "never seen");
    edit(&toy, Edit::DropTable { table }).unwrap();
    // Nothing but rows is new of this one, and they fit the memory that it has.
    append(open_before, 2);
    toy.kernel.encode_open_rows(covered).unwrap();
    toy.append_group(first, &[(7, 7)], 1, Durability::Process)
        .unwrap();
    append(first, 8);
    toy.append_fragment(first, &[(9, 9)], 1).unwrap();
    let definition = Edit::SetDefinition {
        table: altered,
        expected_version: 1,
        definition: Bytes::from_static(b"toy, altered"),
    };
    edit(&toy, definition).unwrap();
    let difference = written(&sim, || toy.kernel.checkpoint().unwrap());
    assert!(difference < full / 8, "{difference} of {full} bytes");
    let expected = contents(&toy);
    let image = sim.crash_image(&CrashChoice::Kill);
    let again = open(&image);
    assert_eq!(contents(&again), expected);
    // The blocks that were committed last still lie between the open rows and the next ones.
    again
        .append(first, &[(10, 10)], Durability::Process)
        .unwrap();
    let sections = |toy: &Toy| {
        let table = toy.kernel.snapshot().unwrap().table(first).unwrap();
        table
            .open_rows()
            .map(|open| open.begins_section)
            .collect::<Vec<_>>()
    };
    assert_eq!(sections(&again), [false, true, true]);
    // And once more, of an opening that took it over.
    let image = image.crash_image(&CrashChoice::Kill);
    assert_eq!(sections(&open(&image)), [false, true, true]);
}

#[test]
fn the_segment_of_a_base_stays_until_no_slot_needs_it() {
    let sim = SimEnv::new(3);
    let toy = open(&sim);
    create_many(&toy);
    write_full_checkpoints(&sim, &toy);
    let table = id(&toy, "table 9");
    for key in 0..60 {
        // Segments are filled, left and removed meanwhile.
        let rows: Vec<Row> = (0..4_096).map(|n| (key * 4_096 + n, n)).collect();
        toy.append(table, &rows, Durability::Process).unwrap();
        toy.kernel.run_due_work().unwrap();
        if key % 10 == 9 {
            toy.kernel.checkpoint().unwrap();
            toy.kernel.collect_garbage().unwrap();
            let image = sim.crash_image(&CrashChoice::Kill);
            assert_eq!(
                open(&image).rows(table).unwrap().len(),
                4_096 * (key as usize + 1)
            );
        }
    }
    assert_eq!(
        open_read_only(&sim)
            .kernel
            .snapshot()
            .unwrap()
            .table_count(),
        TABLES
    );
}

/// Whichever checkpoint is damaged, another one leads to all tables: those of the last two build on different bases.
#[test]
fn a_damaged_checkpoint_costs_nothing() {
    let sim = SimEnv::new(7);
    let toy = open(&sim);
    create_many(&toy);
    let table = id(&toy, "table 9");
    let append = |keys: std::ops::Range<i64>| {
        let rows: Vec<Row> = keys.map(|key| (key, key)).collect();
        toy.append_group(table, &rows, 64, Durability::Process)
            .unwrap();
    };
    // What came before is removed: nothing but the checkpoints tells of the tables.
    let dropped = toy.create("dropped").unwrap();
    let rows: Vec<Row> = (0..400_000).map(|key| (key, key)).collect();
    for rows in rows.chunks(100_000) {
        toy.append_group(dropped, rows, 64, Durability::Process)
            .unwrap();
    }
    edit(&toy, Edit::DropTable { table: dropped }).unwrap();
    toy.kernel.collect_garbage().unwrap();
    let segments = sim.files().into_iter();
    let segments = segments.filter(|(path, _)| path.extension().is_some_and(|kind| kind == "seg"));
    assert_eq!(segments.count(), 1, "the log of before is still there");
    for key in 0..6 {
        append(key..key + 1);
        toy.kernel.checkpoint().unwrap();
    }
    append(6..7);
    let expected = contents(&toy);
    let image = sim.crash_image(&CrashChoice::Kill);
    let checkpoints = checkpoints_of(&files_of(&image));
    let differences = checkpoints.iter().filter(|found| found.base.is_some());
    assert!(differences.count() >= 4, "{checkpoints:?}");
    for checkpoint in checkpoints {
        for at in [checkpoint.head.start + 9, checkpoint.index.end - 5] {
            let image = image.crash_image(&CrashChoice::KeepAll);
            let changed = image.overwrite_file(&checkpoint.path, at as u64, &[0x5A, 0xA5]);
            changed.unwrap();
            let what = format!("byte {at}: {:?}", checkpoint);
            let repaired = repair(&image.env(), Path::new("/db"), &options(), &mut |_| {});
            let repaired = repaired.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(repaired.given_up.is_empty(), "{what}: {repaired:?}");
            assert_eq!(contents(&open(&image)), expected, "{what}");
        }
    }
}

fn open_read_only(sim: &SimEnv) -> Toy {
    let options = Options {
        read_only: true,
        ..options()
    };
    Toy::open(&sim.env(), "/db", &options, 64).unwrap()
}

#[test]
fn one_old_open_row_makes_nothing_grow_with_the_blocks_after_it() {
    let sim = SimEnv::new(4);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    toy.append(table, &[(0, 0)], Durability::Process).unwrap();
    let mut bytes = Vec::new();
    for part in 0..2 {
        for key in 0..2_000 {
            let key = 1 + part * 2_000 + key;
            toy.append_group(table, &[(key, key)], 1, Durability::Process)
                .unwrap();
        }
        toy.kernel.checkpoint().unwrap();
        // Nothing but this is new in it.
        toy.append(table, &[(-part, 0)], Durability::Process)
            .unwrap();
        bytes.push(written(&sim, || toy.kernel.checkpoint().unwrap()));
    }
    // A checkpoint begins in a sector of its own, so up to one is padded.
    let max_bytes = bytes[0] + 4_096 + 512;
    assert!(bytes[1] < max_bytes, "{bytes:?}: 2,000 commits more");
    let open = toy.kernel.snapshot().unwrap().table(table).unwrap();
    let sections = open.open_rows().map(|open| open.begins_section);
    assert_eq!(sections.collect::<Vec<_>>(), [false, true, true]);
}

/// A payload that tells when it is gone.
struct Payload(
    #[expect(dead_code, reason = "counted while it lives")] Arc<()>,
    Bytes,
);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.1
    }
}

#[test]
fn a_snapshot_keeps_what_it_can_see_and_little_more() {
    let sim = SimEnv::new(5);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    let mut payloads: Vec<Weak<()>> = Vec::new();
    let mut append = |key: i64| {
        let token = Arc::new(());
        payloads.push(Arc::downgrade(&token));
        let part = rows_part(table, &[(key, key)]);
        let payload = Bytes::from_owner(Payload(token, part.payload.clone()));
        let commit = Commit {
            rows: vec![RowsPart { payload, ..part }],
            ..Commit::default()
        };
        toy.kernel.commit(commit, Durability::Process).unwrap();
    };
    (0..10).for_each(&mut append);
    let old = toy.kernel.snapshot().unwrap();
    (10..20_000).for_each(&mut append);
    toy.kernel.encode_open_rows(table).unwrap();
    let alive = payloads
        .iter()
        .filter(|payload| payload.strong_count() > 0)
        .count();
    assert!(
        (10..100).contains(&alive),
        "{alive} of 20,000 appends are in memory"
    );
    let seen = old.table(table).unwrap();
    assert_eq!(seen.open_rows().count(), 10);
    assert_eq!(toy.rows(table).unwrap().len(), 20_000);
    drop((old, seen));
    let alive = payloads
        .iter()
        .filter(|payload| payload.strong_count() > 0)
        .count();
    assert_eq!(alive, 0, "nobody needs them now");
}

/// Counts how often it is asked for the size of blocks; one definition cannot be read.
struct Counting(ToyEncoder, AtomicUsize);

impl RowEncoder for Counting {
    fn block_rows(&self, table: &TableState) -> Result<u32> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.check(table)?;
        self.0.block_rows(table)
    }

    fn encode(&self, table: &TableSnapshot, rows: &[OpenRows]) -> Result<Vec<EncodedBlock>> {
        self.check(table)?;
        self.0.encode(table, rows)
    }
}

impl Counting {
    fn check(&self, table: &TableState) -> Result<()> {
        if *table.definition == *b"unreadable" {
            return Err(thalweg_kernel::Error::corruption(
                "definition",
                "unreadable",
            ));
        }
        Ok(())
    }
}

#[test]
fn definitions_are_read_of_tables_that_are_written_to() {
    let sim = SimEnv::new(6);
    let encoder = Arc::new(Counting(ToyEncoder { block_rows: 4 }, AtomicUsize::new(0)));
    let open = || {
        let encoder: Arc<dyn RowEncoder> = Arc::clone(&encoder) as _;
        let kernel = Kernel::open(sim.env(), Path::new("/db"), &options(), encoder).unwrap();
        Toy { kernel }
    };
    let toy = open();
    create_many(&toy);
    let definition = Bytes::from_static(b"unreadable");
    let name = "odd".to_owned();
    edit(
        &toy,
        Edit::CreateTable {
            table: NEW_TABLE,
            name,
            definition,
            indexes: 0,
        },
    )
    .unwrap();
    assert_eq!(encoder.1.load(Ordering::Relaxed), 0);
    let (table, odd) = (id(&toy, "table 3"), id(&toy, "odd"));
    for key in 0..3 {
        toy.append(table, &[(key, key)], Durability::Process)
            .unwrap();
    }
    assert_eq!(encoder.1.load(Ordering::Relaxed), 1);
    // One that cannot be read concerns its own table.
    toy.append(odd, &[(1, 1)], Durability::Process).unwrap();
    toy.append(table, &[(3, 3)], Durability::Process).unwrap();
    let open_rows = |toy: &Toy, table| {
        let table = toy.kernel.snapshot().unwrap().table(table).unwrap();
        table.open_rows().count()
    };
    assert_eq!((open_rows(&toy, table), open_rows(&toy, odd)), (0, 1));
    toy.kernel.close().unwrap();
    drop(toy);
    let before = encoder.1.load(Ordering::Relaxed);
    let toy = open();
    assert_eq!(
        encoder.1.load(Ordering::Relaxed),
        before + 1,
        "one table has open rows"
    );
    assert_eq!((open_rows(&toy, table), open_rows(&toy, odd)), (0, 1));
    let failed = toy.kernel.encode_open_rows(odd).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Corruption);
}

#[test]
fn garbage_is_looked_for_in_tables_that_changed() {
    let sim = SimEnv::new(7);
    let options = Options {
        cache_bytes: 0,
        ..options()
    };
    let toy = Toy::open(&sim.env(), "/db", &options, 64).unwrap();
    let tables: Vec<TableId> = (0..300)
        .map(|n| toy.create(&format!("t{n}")).unwrap())
        .collect();
    for table in &tables {
        let rows: Vec<Row> = (0..8).map(|key| (key, key)).collect();
        toy.append_group(*table, &rows, 1, Durability::Process)
            .unwrap();
    }
    toy.kernel.close().unwrap();
    drop(toy);
    let toy = Toy::open(&sim.env(), "/db", &options, 64).unwrap();
    let reads = |work: &dyn Fn()| {
        let before = sim.stats().reads;
        work();
        sim.stats().reads - before
    };
    let collect = || _ = toy.kernel.collect_garbage().unwrap();
    let first = reads(&collect);
    assert!(first < 30, "{first} reads: the checkpoint knows all uses");
    let again = reads(&collect);
    assert!(again < 30, "{again} reads where nothing has changed");
    toy.append_group(tables[7], &[(100, 1)], 1, Durability::Process)
        .unwrap();
    toy.kernel.checkpoint().unwrap();
    let one = reads(&collect);
    assert!(one < 40, "{one} reads where one table has changed");
    // What is dropped is found to be garbage as before.
    for table in &tables[..299] {
        edit(&toy, Edit::DropTable { table: *table }).unwrap();
    }
    assert_eq!(toy.rows(tables[299]).unwrap().len(), 8);
}
