//! Numbers at their ends: refused by name, and nothing is changed on disk.

use super::*;
use crate::block::EncodedBlock;
use crate::commit::{Commit, Durability, Edit, NEW_TABLE, Producer};
use crate::kernel::Kernel;
use crate::open_rows::OpenRows;
use crate::options::{Options, RowEncoder};
use crate::repair::repair;
use crate::state::TableSnapshot;
use crate::table_state::TableState;
use bytes::Bytes;
use std::sync::Arc;
use thalweg_env::sim::SimEnv;

struct NoRows;

impl RowEncoder for NoRows {
    fn block_rows(&self, _table: &TableState) -> Result<u32> {
        Ok(1)
    }

    fn encode(&self, _table: &TableSnapshot, _rows: &[OpenRows]) -> Result<Vec<EncodedBlock>> {
        Ok(Vec::new())
    }
}

const DIR: &str = "/db";

fn options() -> Options {
    Options {
        background: false,
        segment_bytes: 16 << 10,
        ..Options::default()
    }
}

fn open_as(sim: &SimEnv, options: &Options) -> Result<Kernel> {
    Kernel::open(sim.env(), Path::new(DIR), options, Arc::new(NoRows))
}

fn open(sim: &SimEnv) -> Result<Kernel> {
    open_as(sim, &options())
}

fn create(name: &str) -> Commit {
    let definition = Bytes::from_static(b"none");
    Commit {
        edits: vec![Edit::CreateTable {
            table: NEW_TABLE,
            name: name.to_owned(),
            definition,
            indexes: 0,
        }],
        ..Commit::default()
    }
}

/// A closed database with a table.
fn database(seed: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    let kernel = open(&sim).unwrap();
    kernel.commit(create("t"), Durability::Disk).unwrap();
    kernel.close().unwrap();
    sim
}

/// Changes bytes of every slot of a file and makes their checksums right, which end the slots.
fn forge(sim: &SimEnv, file: &str, slot_bytes: usize, at: usize, bytes: &[u8]) {
    let path = Path::new(DIR).join(file);
    let mut content = sim.read_file(&path).unwrap();
    for slot in content.chunks_exact_mut(slot_bytes) {
        slot[at..at + bytes.len()].copy_from_slice(bytes);
        let (front, crc) = slot.split_at_mut(slot_bytes - 4);
        crc.copy_from_slice(&crc32c::crc32c(front).to_le_bytes());
    }
    sim.overwrite_file(&path, 0, &content).unwrap();
}

#[test]
fn a_root_to_whose_numbers_no_writer_counts_is_written_by_no_one() {
    for (at, what) in [(32, "sequence"), (72, "commit"), (96, "next file id")] {
        for number in [u64::MAX, u64::MAX - 1, UNCOUNTABLE] {
            let sim = database(1);
            forge(&sim, "root", 4096, at, &number.to_le_bytes());
            let before = sim.content_hash();
            let error = open(&sim).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
            let text = error.to_string();
            assert!(text.starts_with("/db/root: "), "{text}");
            assert!(text.contains(&format!("its {what} is {number}")), "{text}");
            assert_eq!(sim.content_hash(), before, "{what}");
            // The log knows better.
            let options = options();
            repair(&sim.env(), Path::new(DIR), &options, &mut |_| {}).unwrap();
            let kernel = open(&sim).unwrap();
            assert!(kernel.snapshot().unwrap().table_named("t").is_some());
            kernel.commit(create("u"), Durability::Disk).unwrap();
        }
    }
    let sim = database(2);
    forge(&sim, "root", 4096, 32, &u64::MAX.to_le_bytes());
    let read_only = Options {
        read_only: true,
        ..options()
    };
    let reader = open_as(&sim, &read_only).unwrap();
    assert!(reader.snapshot().unwrap().table_named("t").is_some());
    drop(reader);
    let sim = database(3);
    forge(&sim, "root", 4096, 56, &(u64::MAX - 7).to_le_bytes());
    for options in [options(), read_only] {
        let error = open_as(&sim, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
}

#[test]
fn a_live_to_whose_sequence_no_writer_counts_is_named() {
    for number in [u64::MAX, UNCOUNTABLE] {
        let sim = database(4);
        forge(&sim, "live", 128, 24, &number.to_le_bytes());
        let before = sim.content_hash();
        let error = open(&sim).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("/db/live: its sequence"), "{text}");
        assert_eq!(sim.content_hash(), before);
        sim.remove_file(&Path::new(DIR).join("live")).unwrap();
        let kernel = open(&sim).unwrap();
        kernel.commit(create("u"), Durability::Disk).unwrap();
    }
}

#[test]
fn the_last_numbers_are_refused_before_anything_is_written() {
    type Spend = fn(&mut crate::leader::Leader);
    let rename = |sim: &SimEnv| {
        let kernel = open(sim).unwrap();
        let table = kernel.snapshot().unwrap().table_named("t").unwrap();
        (kernel, table.id)
    };
    let spent: [(&str, Spend); 4] = [
        ("epochs (4294967295)", |leader| {
            leader.spend_epochs();
        }),
        ("commits (18446744073709551615)", |leader| {
            leader.working_mut().commit = CommitNo(u64::MAX);
        }),
        ("numbers of tables (4294967295)", |leader| {
            leader.working_mut().next_table = u32::MAX;
        }),
        ("versions of a definition (4294967295)", |leader| {
            let id = leader.working().tables.named("t").unwrap().id;
            let spend = |table: &mut TableState| {
                table.definition_version = u32::MAX;
                Ok(())
            };
            leader.working_mut().change(id, spend).unwrap();
        }),
    ];
    for (what, spend) in spent {
        let sim = database(5);
        let (kernel, table) = rename(&sim);
        // What is about tables comes when the epoch has begun.
        if what.contains("tables") || what.contains("definition") {
            kernel.commit(create("u"), Durability::Disk).unwrap();
        }
        kernel.writer_of_tests().with_leader(spend).unwrap();
        let before = sim.content_hash();
        let commit = if what.contains("definition") {
            let definition = Bytes::from_static(b"next");
            let set = Edit::SetDefinition {
                table,
                expected_version: u32::MAX,
                definition,
            };
            Commit {
                edits: vec![set],
                ..Commit::default()
            }
        } else {
            create("v")
        };
        let error = kernel.commit(commit, Durability::Disk).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(sim.content_hash(), before, "{what}");
        assert!(kernel.poison().is_none(), "{what}");
        assert!(kernel.snapshot().unwrap().table_named("t").is_some());
    }
}

#[test]
fn the_last_numbers_count_within_a_commit() {
    let sim = database(6);
    let kernel = open(&sim).unwrap();
    kernel.commit(create("u"), Durability::Disk).unwrap();
    kernel
        .writer_of_tests()
        .with_leader(|leader| leader.working_mut().next_table = u32::MAX - 1)
        .unwrap();
    let mut two = create("v");
    two.edits.extend(create("w").edits);
    let error = kernel.commit(two, Durability::Disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    kernel.commit(create("v"), Durability::Disk).unwrap();
    kernel.close().unwrap();
    drop(kernel);
    let kernel = open(&sim).unwrap();
    assert!(kernel.snapshot().unwrap().table_named("v").is_some());
}

#[test]
fn foreign_names_use_up_no_numbers() {
    let names = [
        "log/ffffffffffffffff.seg",
        "log/fffffffffffffffe.spare",
        "log/7fffffffffffffff.seg",
        "log/0000ffffffffffff.spare",
        "data/ffffffffffffffff.frag",
        "data/8000000000000000.frag",
    ];
    let sim = database(7);
    for name in names {
        sim.write_file(&Path::new(DIR).join(name), b"not of this database")
            .unwrap();
    }
    for round in 0..3 {
        let kernel = open(&sim).unwrap();
        kernel
            .commit(create(&format!("t{round}")), Durability::Disk)
            .unwrap();
        kernel.run_due_work().unwrap();
        kernel.collect_garbage().unwrap();
        let bound = kernel.writer_of_tests().supply.file_id_bound();
        assert!(bound.0 < 1_000, "{bound:?}");
        kernel.close().unwrap();
    }
    for name in names {
        let content = sim.read_file(&Path::new(DIR).join(name)).unwrap();
        assert_eq!(content, b"not of this database", "{name}");
    }
}

#[test]
fn a_name_not_far_above_the_root_does_use_up_its_number() {
    let sim = database(8);
    let name = Path::new(DIR).join("data/0000000000100000.frag");
    sim.write_file(&name, b"an orphan").unwrap();
    let kernel = open(&sim).unwrap();
    let bound = kernel.writer_of_tests().supply.file_id_bound();
    assert!(bound.0 > 0x0010_0000, "{bound:?}");
}

#[test]
fn numbers_beside_each_other() {
    assert!(CommitNo(8).follows(CommitNo(7)));
    assert!(!CommitNo(0).follows(CommitNo(u64::MAX)));
    assert_eq!(CommitNo(7).next().unwrap(), CommitNo(8));
    assert!(CommitNo(u64::MAX).next().is_err());
    assert!(Epoch(u32::MAX).next().is_err());
    let producer = Producer {
        id: [1; 16],
        sequence: u64::MAX,
    };
    let sim = database(9);
    let kernel = open(&sim).unwrap();
    let commit = Commit {
        producer: Some(producer),
        ..create("u")
    };
    let stored = kernel.commit(commit, Durability::Disk).unwrap();
    let again = Commit {
        producer: Some(producer),
        ..create("u")
    };
    assert_eq!(kernel.commit(again, Durability::Disk).unwrap(), stored);
}
