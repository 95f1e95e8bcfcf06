//! What one frame and one checkpoint have room for: a commit beyond is refused, and nothing of it is left.
#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use bytes::Bytes;
use thalweg_env::sim::{CrashChoice, SimEnv};
use thalweg_kernel::Durability::{Disk, Process};
use thalweg_kernel::index::{EntryKey, ItemName};
use thalweg_kernel::orders::{AddHead, ReplaceEdit};
use thalweg_kernel::{
    Commit, CommitNo, Edit, ErrorKind, FRAME_LIMIT_BYTES, FileId, GroupPart, MAX_PRODUCERS,
    NEW_TABLE, Options, Producer,
};
use thalweg_sim::toy::{Row, Toy, block, rows_part};

fn open(sim: &SimEnv) -> Toy {
    let options = Options {
        background: false,
        ..Options::default()
    };
    Toy::open(&sim.env(), "/db", &options, 1 << 20).unwrap()
}

/// Sends a commit that is refused as too large, before the database has written anything and after.
fn check_refused(make: impl Fn(&Toy, thalweg_kernel::TableId) -> Commit, says: &str) {
    let sim = SimEnv::new(1);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    toy.kernel.close().unwrap();
    drop(toy);
    let toy = open(&sim);
    for turn in 0..2 {
        let before = sim.content_hash();
        let commit = make(&toy, table);
        let error = toy.kernel.commit(commit, Disk).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(sim.content_hash(), before, "{says}, turn {turn}");
        assert!(toy.kernel.poison().is_none());
        toy.append(table, &[(turn, turn)], Disk).unwrap();
    }
    let image = sim.crash_image(&CrashChoice::DropAll);
    assert_eq!(open(&image).rows(table).unwrap(), [(0, 0), (1, 1)]);
}

fn edits(edits: Vec<Edit>) -> Commit {
    Commit {
        edits,
        ..Commit::default()
    }
}

#[test]
fn a_commit_of_too_many_parts_is_refused() {
    let rows = |_: &Toy, table| Commit {
        rows: (0..4097).map(|k| rows_part(table, &[(k, k)])).collect(),
        ..Commit::default()
    };
    check_refused(rows, "4097 parts");
    let groups = |_: &Toy, table| {
        let group = |k| GroupPart {
            head: AddHead::of_rows(table, 1),
            blocks: vec![block(table, vec![(k, k)], None)],
        };
        let id = Producer {
            id: [1; 16],
            sequence: 1,
        };
        Commit {
            groups: (0..2048).map(group).collect(),
            producer: Some(id),
            ..Commit::default()
        }
    };
    check_refused(groups, "4097 parts");
    let tables = |_: &Toy, _| {
        let create = |n| Edit::CreateTable {
            table: NEW_TABLE,
            name: format!("t{n}"),
            definition: Bytes::from_static(b"toy"),
            indexes: 0,
        };
        edits((0..5000).map(create).collect())
    };
    check_refused(tables, "5000 parts");
}

#[test]
fn a_commit_of_as_many_parts_as_fit_is_stored() {
    let sim = SimEnv::new(2);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    let commit = Commit {
        rows: (0..4096).map(|k| rows_part(table, &[(k, k)])).collect(),
        ..Commit::default()
    };
    toy.kernel.commit(commit, Disk).unwrap();
    let image = sim.crash_image(&CrashChoice::DropAll);
    assert_eq!(open(&image).rows(table).unwrap().len(), 4096);
}

#[test]
fn a_commit_of_too_many_bytes_is_refused() {
    let large = usize::try_from(FRAME_LIMIT_BYTES).unwrap();
    let name = |_: &Toy, _| {
        edits(vec![Edit::CreateTable {
            table: NEW_TABLE,
            name: "n".repeat(large),
            definition: Bytes::new(),
            indexes: 0,
        }])
    };
    check_refused(name, "bytes does not fit one frame");
    let definition = |_: &Toy, table| {
        edits(vec![Edit::SetDefinition {
            table,
            expected_version: 1,
            definition: vec![b' '; large].into(),
        }])
    };
    check_refused(definition, "bytes does not fit one frame");
    let removed = |most: u32, table| {
        let name = |ordinal| ItemName {
            key: EntryKey {
                key_min: 0,
                commit: CommitNo(1),
                ordinal,
            },
            fragment: FileId(0),
            crc: 0,
        };
        edits(vec![Edit::Replace(ReplaceEdit::of_rows(
            table,
            (0..=most).map(name).collect(),
            Vec::new(),
        ))])
    };
    let most = u32::try_from(large / 32).unwrap();
    check_refused(
        |_, table| removed(most, table),
        "bytes does not fit one frame",
    );
    // They fit the frame, but nobody could read them again.
    check_refused(
        |_, table| removed(131_072, table),
        "one commit takes 131072",
    );
}

#[test]
fn one_edit_adds_many_fragments() {
    let sim = SimEnv::new(3);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    toy.append(table, &[(7, -1)], Process).unwrap();
    let mut roots = Vec::new();
    let mut expected: Vec<Row> = vec![(7, -1)];
    for k in 0..300 {
        let rows: Vec<Row> = (0..5).map(|n| (k * 3 + n, k * 5 + n)).collect();
        expected.extend(&rows);
        let mut fragment = toy.kernel.stage_fragment(table).unwrap();
        for part in rows.chunks(2) {
            fragment
                .add_block(&block(table, part.to_vec(), None))
                .unwrap();
        }
        roots.push(fragment.finish().unwrap());
    }
    let add = Edit::AddFragments {
        head: AddHead::of_rows(table, 1),
        roots,
    };
    let number = toy.kernel.commit(edits(vec![add]), Disk).unwrap();
    expected.sort_unstable();
    let image = sim.crash_image(&CrashChoice::DropAll);
    for toy in [&toy, &open(&image)] {
        assert_eq!(toy.rows(table).unwrap(), expected);
        let table = toy.kernel.snapshot().unwrap().table(table).unwrap();
        let entries = table.tree.iter(None, &**toy.kernel.store());
        let mut ordinals: Vec<u32> = entries
            .map(|entry| entry.unwrap())
            .inspect(|entry| assert_eq!(entry.commit_min, number))
            .map(|entry| entry.ordinal)
            .collect();
        // Every block has a number of its own in the commit.
        ordinals.sort_unstable();
        assert_eq!(ordinals, (0..900).collect::<Vec<_>>());
    }
}

fn produced(toy: &Toy, table: thalweg_kernel::TableId, producer: i64, sequence: u64) -> CommitNo {
    let mut id = [7; 16];
    id[..8].copy_from_slice(&producer.to_le_bytes());
    let commit = Commit {
        rows: vec![rows_part(table, &[(producer, 1)])],
        producer: Some(Producer { id, sequence }),
        ..Commit::default()
    };
    toy.kernel.commit(commit, Process).unwrap()
}

#[test]
fn as_many_producers_as_documented_are_remembered_also_after_a_replay() {
    let most = i64::try_from(MAX_PRODUCERS).unwrap();
    let sim = SimEnv::new(4);
    let toy = open(&sim);
    let table = toy.create("t").unwrap();
    let mut stored = Vec::new();
    for producer in 0..most + 10 {
        stored.push(produced(&toy, table, producer, 1));
    }
    toy.kernel.flush().unwrap();
    // Replayed from the last checkpoint, and once more from one that the recovery wrote.
    let killed = sim.crash_image(&CrashChoice::Kill);
    drop(open(&killed));
    let image = killed.crash_image(&CrashChoice::DropAll);
    for toy in [&toy, &open(&image)] {
        let last = toy.kernel.snapshot().unwrap().commit();
        for producer in [10, 11, most, most + 9] {
            let again = produced(toy, table, producer, 1);
            assert_eq!(again, stored[usize::try_from(producer).unwrap()]);
        }
        assert_eq!(toy.kernel.snapshot().unwrap().commit(), last);
        // Forgotten: it counts as new, and takes the place of the one that has not stored for longest.
        assert!(produced(toy, table, 9, 1) > last);
        assert!(produced(toy, table, 10, 1) > last);
        assert_eq!(produced(toy, table, 12, 1), stored[12]);
    }
}
