//! Fragments on a simulated disk.

use super::*;
use crate::block::{BLOCK_HEADER_BYTES, BlockBuilder, BlockSpec, Role};
use crate::index::{PageLoader, Step, check_page};
use crate::summary::ColumnSummary;
use std::path::Path;
use thalweg_codec::{EncodedChunk, Encoder, Level};
use thalweg_env::sim::{CallKind, CrashChoice, Errno, FaultPlan, SimEnv};

const TABLE: TableId = TableId(3);
const ID: FileId = FileId(0x2A);
const DATABASE: DatabaseId = DatabaseId([0x5A; 16]);

fn machine() -> (SimEnv, Arc<Store>) {
    let sim = SimEnv::new(11);
    let env = sim.env();
    env.storage().create_dir_all(Path::new("/db/data")).unwrap();
    for folder in ["/", "/db"] {
        env.storage().sync_dir(Path::new(folder)).unwrap();
    }
    let store = Arc::new(Store::new(env, "/db", DATABASE, 1 << 20));
    (sim, store)
}

/// The same files seen by another process.
fn reopened(sim: &SimEnv) -> Store {
    Store::new(sim.env(), "/db", DATABASE, 1 << 20)
}

fn block(first: i64, rows: u32) -> EncodedBlock {
    let values: Vec<i64> = (first..first + i64::from(rows)).collect();
    let mut chunk = EncodedChunk::new();
    Encoder::new(Level::Fast)
        .encode(&values, &mut chunk)
        .unwrap();
    let spec = BlockSpec {
        table: TABLE,
        layout: 1,
        level: 1,
        order: 0,
        positions: rows,
        rows,
        key: 0,
        sorted: true,
        implicit_key: false,
    };
    let mut builder = BlockBuilder::new(spec, 1);
    builder.add_chunk(1, Role::Values, &chunk).unwrap();
    let summary = ColumnSummary::of_values(1, &values, None);
    builder
        .finish((first, first + i64::from(rows) - 1), vec![summary])
        .unwrap()
}

fn write(store: &Arc<Store>, blocks: i64) -> Entry {
    let mut writer = FragmentWriter::create(store, ID, (TABLE, 0), Arc::default()).unwrap();
    // Not in order: the index is.
    for number in (0..blocks).rev() {
        writer.add_block(&block(number * 100, 100)).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn a_fragment_is_found_by_two_reads() {
    let (sim, store) = machine();
    let root = write(&store, 60);
    assert_eq!((root.level, root.rows, root.blocks), (2, 6_000, 60));
    assert_eq!(
        (root.key_min, root.key_max, root.commit_max),
        (0, 5_999, CommitNo(0))
    );

    let other = reopened(&sim);
    let found = open_fragment(&other, ID, TABLE, 0).unwrap();
    assert_eq!(found, root);
    assert_eq!((other.counts().reads, other.counts().files_opened), (2, 1));
    let (blocks, pages) = verify_fragment(&other, TABLE, 0, &root).unwrap();
    assert_eq!(blocks, 60);
    assert!(pages > 3);
}

#[test]
fn its_blocks_inherit_the_commit_that_adds_it() {
    let (_sim, store) = machine();
    let commit = CommitNo(44);
    let root = write(&store, 5).committed(commit, commit, 10);
    let tree = Tree::empty(TABLE)
        .insert(root, &*store, &mut Vec::new())
        .unwrap();
    let found: Vec<_> = tree
        .iter(None, &*store)
        .map(|entry| entry.unwrap())
        .collect();
    let names: Vec<_> = found
        .iter()
        .map(|entry| (entry.key_min, entry.commit_min.0, entry.ordinal))
        .collect();
    assert_eq!(
        names,
        [
            (0, 44, 14),
            (100, 44, 13),
            (200, 44, 12),
            (300, 44, 11),
            (400, 44, 10)
        ]
    );
    let sum: i128 = tree
        .total()
        .unwrap()
        .covering_summary(1)
        .unwrap()
        .int_sum()
        .unwrap();
    assert_eq!(sum, (0..500).sum());
}

#[test]
fn its_pages_are_those_of_the_entries_that_a_walk_gives() {
    let (_sim, store) = machine();
    let root = write(&store, 200);
    assert!(root.is_page_in_order() && root.level > 1);
    let root = root.committed(CommitNo(44), CommitNo(44), 10);
    let tree = Tree::empty(TABLE)
        .insert(root, &*store, &mut Vec::new())
        .unwrap();
    let mut walk = tree.walk(None, &*store);
    let mut pages = 0;
    while let Some(_block) = walk
        .next(|entry| {
            // The page of the tree itself is not on disk.
            if !entry.is_block() && entry.address.bytes > 0 {
                let page = store.load_page(TABLE, entry).unwrap();
                check_page(entry, &page).unwrap();
                pages += 1;
            }
            Step::Descend
        })
        .unwrap()
    {}
    assert!(pages > 3, "{pages} pages");
}

#[test]
fn a_finished_fragment_survives_a_power_cut() {
    let (sim, store) = machine();
    let root = write(&store, 12);
    let after = sim.crash_image(&CrashChoice::DropAll);
    assert_eq!(
        open_fragment(&reopened(&after), ID, TABLE, 0).unwrap(),
        root
    );
    verify_fragment(&reopened(&after), TABLE, 0, &root).unwrap();
}

#[test]
fn a_writer_that_gives_up_leaves_an_empty_file() {
    let (sim, store) = machine();
    let path = store.fragment_path(ID);
    let mut writer = FragmentWriter::create(&store, ID, (TABLE, 0), Arc::default()).unwrap();
    writer.add_block(&block(0, 10)).unwrap();
    assert!(sim.env().storage().metadata(&path).is_ok());
    drop(writer);
    assert_eq!(sim.env().storage().metadata(&path).unwrap().len_bytes, 0);
}

#[test]
fn a_fragment_without_blocks_is_refused() {
    let (_sim, store) = machine();
    let writer = FragmentWriter::create(&store, ID, (TABLE, 0), Arc::default()).unwrap();
    assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_failed_call_fails_the_fragment_and_frees_its_space() {
    let (sim, store) = machine();
    let before = sim.calls();
    write(&store, 12);
    let calls = sim.calls() - before;
    assert!(calls >= 4, "create, write, sync, sync of the folder");
    for call in 1..=calls {
        let (sim, store) = machine();
        let failing = sim.calls() + call;
        sim.set_plan(FaultPlan::fail_at(failing, Errno::NOSPC));
        let result = FragmentWriter::create(&store, ID, (TABLE, 0), Arc::default()).and_then(
            |mut writer| {
                for number in 0..12 {
                    writer.add_block(&block(number * 100, 100))?;
                }
                writer.finish()
            },
        );
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DiskFull, "call {call}: {error}");
        let left = sim.env().storage().metadata(&store.fragment_path(ID));
        let left_bytes = left.map_or(0, |left| left.len_bytes);
        assert_eq!(left_bytes, 0, "call {call}");
    }
}

#[test]
fn a_footer_has_these_bytes() {
    let root = Address {
        file: ID,
        offset: 0x1000,
        bytes: 0x200,
        head_bytes: 0x200,
        head_crc: 0x0102_0304,
    };
    let footer = Footer {
        id: ID,
        table: TABLE,
        order: 6,
        offset: 0x1200,
        root,
        root_level: 2,
        rows: 70_000,
        blocks: 18,
        block_bytes: 4_000,
    };
    let bytes = footer.encode(DATABASE);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = concat!(
        // Magic, version 2, table 3, database, file, own offset.
        "5448574652474654",
        "02000000",
        "03000000",
        "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",
        "2a00000000000000",
        "0012000000000000",
        // Root page: offset, bytes, checksum, level; order 6; rows, blocks, bytes of blocks.
        "0010000000000000",
        "00020000",
        "04030201",
        "02",
        "000000",
        "06000000",
        "7011010000000000",
        "1200000000000000",
        "a00f000000000000",
        // Zeros, checksum.
        "00000000000000000000000000000000000000000000000000000000",
        "c8527732",
    );
    assert_eq!(hex, expected);
    assert_eq!(
        Footer::parse(DATABASE, ID, (TABLE, 6), 0x1200, &bytes),
        Ok(footer)
    );
    let mut header = Vec::new();
    put_header(DATABASE, ID, (TABLE, 6), &mut header);
    let hex: String = header.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = concat!(
        "5448574652473031",
        "02000000",
        "03000000",
        "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",
        "2a00000000000000",
        "06000000",
        "00000000000000000000000000000000",
        "70249c7c",
    );
    assert_eq!(hex, expected);
    for other in [
        Footer::parse(DatabaseId([1; 16]), ID, (TABLE, 6), 0x1200, &bytes),
        Footer::parse(DATABASE, FileId(1), (TABLE, 6), 0x1200, &bytes),
        Footer::parse(DATABASE, ID, (TableId(1), 6), 0x1200, &bytes),
        Footer::parse(DATABASE, ID, (TABLE, 5), 0x1200, &bytes),
        Footer::parse(DATABASE, ID, (TABLE, 6), 0x1201, &bytes),
    ] {
        assert!(other.is_err());
    }
}

/// Reads everything that a fragment is asked for.
fn read_all(store: &Store, root: &Entry) -> Result<i64> {
    open_fragment(store, ID, TABLE, 0)?;
    verify_fragment(store, TABLE, 0, root)?;
    let mut rows = 0;
    for entry in Tree::from_root(TABLE, Some(root.clone())).iter(None, store) {
        rows += i64::try_from(entry?.rows).unwrap();
    }
    Ok(rows)
}

#[test]
fn every_damaged_byte_of_a_fragment_is_noticed() {
    let (sim, store) = machine();
    let root = write(&store, 3);
    let path = store.fragment_path(ID);
    let bytes = sim.read_file(&path).unwrap();
    assert_eq!(read_all(&reopened(&sim), &root).unwrap(), 300);
    let damaged = |bytes: &[u8], what: &str| {
        let (sim, store) = machine();
        let file = sim
            .env()
            .storage()
            .open(&path, OpenMode::CreateNew)
            .unwrap();
        file.write_all_at(bytes, 0).unwrap();
        let error = read_all(&store, &root).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
        assert!(
            error.message().contains("000000000000002a"),
            "{what}: {error}"
        );
    };
    for at in 0..bytes.len() {
        for changed in [bytes[at] ^ 1, 0xFF, 0]
            .into_iter()
            .filter(|&byte| byte != bytes[at])
        {
            let mut copy = bytes.clone();
            copy[at] = changed;
            damaged(&copy, &format!("byte {at}"));
        }
    }
    for length in (0..bytes.len()).step_by(7) {
        damaged(&bytes[..length], &format!("cut at {length}"));
    }
    damaged(&[&bytes[..], &[0]].concat(), "a byte more");
    let (_sim, store) = machine();
    let error = read_all(&store, &root).unwrap_err();
    assert!(
        error
            .message()
            .contains("data/000000000000002a.frag: the file is missing"),
        "{error}"
    );
}

#[test]
fn large_fragments_are_written_in_large_pieces() {
    let (sim, store) = machine();
    let before = sim.calls();
    sim.set_trace(true);
    let mut writer = FragmentWriter::create(&store, ID, (TABLE, 0), Arc::default()).unwrap();
    let noise: Vec<u8> = (0..100_000_u32)
        .map(|byte| byte.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect();
    let mut large = block(0, 10);
    let head = large.bytes[..BLOCK_HEADER_BYTES].to_vec();
    large.bytes = [head, noise].concat();
    large.bytes.truncate(100_000);
    large.entry.address.bytes = 100_000;
    large.entry.block_bytes = 100_000;
    for _ in 0..100 {
        writer.add_block(&large).unwrap();
    }
    assert_eq!(writer.block_bytes(), 10_000_000);
    writer.finish().unwrap();
    let calls = sim.calls() - before;
    assert!(calls < 20, "{calls} calls for 10 MB");
    assert!(
        sim.take_trace()
            .iter()
            .any(|record| record.kind == CallKind::SyncDir)
    );
}
