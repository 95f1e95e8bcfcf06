//! Blocks against their bytes, partial reads, and damage.

use super::*;
use crate::ids::{DatabaseId, FileId};
use crate::store::Store;
use proptest::prelude::*;
use std::path::Path;
use thalweg_codec::{ChunkKind, Decoder, ElementType, Encoder, LastStage, Level, PAGE_ROWS};
use thalweg_env::OpenMode;
use thalweg_env::sim::SimEnv;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn spec(rows: u32) -> BlockSpec {
    BlockSpec {
        table: TableId(3),
        layout: 1,
        level: 2,
        order_id: 6,
        rows,
        key: 0x1122,
        sorted: true,
        implicit_key: false,
    }
}

/// A chunk as no codec writes it, with bytes that are easy to recognise: page `n` is full of `n`.
fn raw_chunk(rows: usize, prelude: &[u8], page_bytes: usize) -> EncodedChunk {
    let mut bytes = prelude.to_vec();
    let mut page_ends = Vec::new();
    for page in 0..page_count(rows) {
        bytes.resize(bytes.len() + page_bytes, u8::try_from(page).unwrap());
        page_ends.push(u32::try_from(bytes.len()).unwrap());
    }
    let codec = CodecChain {
        kind: ChunkKind::Pages,
        element: ElementType::I32,
        last_stage: LastStage::None,
    };
    let prelude_bytes = u32::try_from(prelude.len()).unwrap();
    EncodedChunk {
        codec,
        rows,
        prelude_bytes,
        page_ends,
        bytes,
        raw_bytes: rows as u64 * 4,
        ..EncodedChunk::new()
    }
}

fn sample() -> EncodedBlock {
    let mut builder = BlockBuilder::new(spec(1_025), 2);
    builder
        .add_chunk(7, Role::Values, &raw_chunk(1_025, &[0xAA; 3], 4))
        .unwrap();
    builder
        .add_chunk(8, Role::Validity, &raw_chunk(1_000, &[], 2))
        .unwrap();
    builder
        .finish((-5, 90), vec![ColumnSummary::of_counts(7, 1_025, 0)])
        .unwrap()
}

#[test]
fn a_head_has_these_bytes() {
    let block = sample();
    let head = concat!(
        // Magic, version 1, layout 1, level 2; head of 144 bytes in a block of 157; table 3, order 6.
        "54424c4b",
        "0100",
        "01",
        "02",
        "90000000",
        "9d000000",
        "03000000",
        "06000000",
        // 2 chunks, 2 columns, 1,025 rows, sorted; key; zeros; checksum.
        "02000000",
        "02000000",
        "01040000",
        "01000000",
        "2211000000000000",
        "000000000000000000000000",
        "116d987d",
        // Column 7 values: codec, offset 0, 11 bytes, 3 of prelude, 1,025 rows, 4,100 bytes raw, checksum of the prelude.
        "01070000",
        "01030100",
        "00000000",
        "0b000000",
        "03000000",
        "01040000",
        "04100000",
        "d634898a",
        // Column 8 validity: one page, so the checksum is that of the chunk.
        "02080000",
        "01030100",
        "0b000000",
        "02000000",
        "00000000",
        "e8030000",
        "a00f0000",
        "d27761f1",
        // Pages of column 7: end and checksum.
        "07000000",
        "c74b6748",
        "0b000000",
        "7568aad1",
    );
    let (found, body) = block.bytes.split_at(144);
    assert_eq!(hex(found), head);
    assert_eq!(hex(body), concat!("aaaaaa", "00000000", "01010101", "0000"));
    let Entry {
        address,
        rows,
        blocks,
        block_bytes,
        key_min,
        key_max,
        sorted,
        ..
    } = block.entry;
    assert_eq!(
        (address.bytes, address.head_bytes, address.head_crc),
        (157, 144, 0x7D98_6D11)
    );
    assert_eq!(
        (rows, blocks, block_bytes, key_min, key_max, sorted),
        (1_025, 1, 157, -5, 90, true)
    );
}

#[test]
fn a_head_says_what_was_built() {
    let block = sample();
    let head = BlockHead::parse(&block.bytes, &block.entry.address).unwrap();
    assert_eq!(head.spec(), &spec(1_025));
    let columns: Vec<_> = head
        .chunks()
        .map(|chunk| (chunk.column_id, chunk.role, chunk.rows, chunk.bytes))
        .collect();
    assert_eq!(
        columns,
        [(7, Role::Values, 1_025, 11), (8, Role::Validity, 1_000, 2)]
    );
    assert_eq!(head.chunk(8, Role::Validity).unwrap().raw_bytes, 4_000);
    assert!(head.chunk(8, Role::Values).is_none() && head.chunk(u32::MAX, Role::Values).is_none());
    verify(&block.bytes, &block.entry.address).unwrap();
}

#[test]
fn a_wrong_guess_of_the_number_of_chunks_changes_nothing() {
    let expected = sample().bytes;
    for guess in [0, 1, 3, 50] {
        let mut builder = BlockBuilder::new(spec(1_025), guess);
        builder
            .add_chunk(7, Role::Values, &raw_chunk(1_025, &[0xAA; 3], 4))
            .unwrap();
        builder
            .add_chunk(8, Role::Validity, &raw_chunk(1_000, &[], 2))
            .unwrap();
        assert_eq!(builder.finish((0, 0), vec![]).unwrap().bytes, expected);
    }
}

#[test]
fn every_damaged_byte_of_a_block_is_noticed() {
    let EncodedBlock { bytes, entry } = sample();
    for at in 0..bytes.len() {
        for damaged in [bytes[at] ^ 1, bytes[at] ^ 0x80, 0xFF, 0]
            .into_iter()
            .filter(|&byte| byte != bytes[at])
        {
            let mut copy = bytes.clone();
            copy[at] = damaged;
            let error = verify(&copy, &entry.address).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "byte {at}");
        }
        assert!(
            BlockHead::parse(&bytes[..at], &entry.address).is_err() || at >= 144,
            "cut at {at}"
        );
    }
}

#[test]
fn the_parent_vouches_for_the_head() {
    let EncodedBlock { bytes, entry } = sample();
    let refused = |address: Address, what: &str| {
        let error = BlockHead::parse(&bytes, &address).unwrap_err();
        assert!(error.message().contains(what), "{error}");
    };
    let address = Address {
        file: FileId(0x1F),
        offset: 77,
        ..entry.address
    };
    refused(
        Address {
            head_crc: 9,
            ..address
        },
        "file 000000000000001f, offset 77",
    );
    refused(
        Address {
            head_crc: 9,
            ..address
        },
        "not the block that was written here",
    );
    refused(
        Address {
            bytes: 158,
            ..address
        },
        "another length",
    );
    refused(
        Address {
            head_bytes: 143,
            ..address
        },
        "checksum",
    );
    refused(
        Address {
            head_bytes: 10,
            ..address
        },
        "too early",
    );
}

/// Puts the right checksum on a changed head: what a hostile writer would do.
fn resealed(mut bytes: Vec<u8>, address: Address) -> (Vec<u8>, Address) {
    let crc = head_crc(&bytes[..address.head_bytes as usize]);
    bytes[CRC_AT..BLOCK_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    (
        bytes,
        Address {
            head_crc: crc,
            ..address
        },
    )
}

#[test]
fn hostile_heads_are_refused() {
    let EncodedBlock { bytes, entry } = sample();
    let refused = |at: usize, field: &[u8]| {
        let mut copy = bytes.clone();
        copy[at..at + field.len()].copy_from_slice(field);
        let (copy, address) = resealed(copy, entry.address);
        assert!(
            BlockHead::parse(&copy, &address).is_err(),
            "{field:?} at {at}"
        );
    };
    refused(4, &[2]); // version
    refused(6, &[0]); // layout
    refused(8, &[0x91]); // head bytes
    refused(12, &[0x9E]); // block bytes
    refused(24, &[1]); // chunks
    refused(24, &[0xFF; 4]);
    refused(28, &[1]); // columns
    refused(32, &[0; 4]); // rows
    refused(36, &[8]); // flags
    refused(48, &[1]); // reserved
    refused(64, &[9]); // role
    refused(65, &[8]); // column: now as high as the next one, whose role is higher; columns do not add up
    refused(97, &[6]); // order
    refused(68, &[77]); // codec
    refused(72, &[1]); // offset
    refused(76, &[0xFF; 4]); // bytes
    refused(80, &[12]); // prelude beyond the chunk
    refused(84, &[0xFF; 4]); // rows
    refused(84, &[0x00, 0x04]); // rows of one page: no page table
    refused(128, &[1]); // end of the first page before its start
    refused(136, &[12]); // end of the last page behind the chunk
}

proptest! {
    #[test]
    fn resealed_heads_never_panic(
        changes in prop::collection::vec((64_usize..144, any::<u8>()), 1..6),
        header in prop::collection::vec((0_usize..64, any::<u8>()), 0..2),
    ) {
        let EncodedBlock { mut bytes, entry } = sample();
        for (at, byte) in changes.into_iter().chain(header) {
            bytes[at] = byte;
        }
        let (bytes, address) = resealed(bytes, entry.address);
        if let Ok(head) = BlockHead::parse(&bytes, &address) {
            // Whatever it says, it stays within the block.
            let _ = head.verify_body(&bytes[144..], &address);
            prop_assert!(head.memory_bytes() < 4_096);
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_block(bytes in prop::collection::vec(any::<u8>(), 0..300), crc in any::<u32>()) {
        let length = u32::try_from(bytes.len()).unwrap();
        let address = Address { bytes: length, head_bytes: length, head_crc: crc, ..Address::default() };
        prop_assert!(BlockHead::parse(&bytes, &address).is_err());
    }
}

/// A store over one fragment-named file with the given bytes at the given offset.
fn stored(bytes: &[u8], offset: u64) -> (Store, SimEnv) {
    let sim = SimEnv::new(1);
    let env = sim.env();
    env.storage().create_dir_all(Path::new("/db/data")).unwrap();
    let store = Store::new(env.clone(), "/db", DatabaseId([1; 16]), 1 << 20);
    let file = env
        .storage()
        .open(&store.fragment_path(FileId(5)), OpenMode::CreateNew)
        .unwrap();
    file.write_all_at(bytes, offset).unwrap();
    (store, sim)
}

fn wide_block(columns: u32, rows: u32) -> EncodedBlock {
    let mut encoder = Encoder::new(Level::Fast);
    let mut builder = BlockBuilder::new(spec(rows), columns as usize);
    let mut chunk = EncodedChunk::new();
    for column_id in 0..columns {
        let values: Vec<i64> = (0..i64::from(rows))
            .map(|row| value(column_id, row))
            .collect();
        encoder.encode(&values, &mut chunk).unwrap();
        builder.add_chunk(column_id, Role::Values, &chunk).unwrap();
    }
    builder.finish((0, i64::from(rows)), vec![]).unwrap()
}

fn value(column_id: u32, row: i64) -> i64 {
    row.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64.cast_signed())
        .wrapping_mul(i64::from(column_id) + 1)
        >> 20
}

fn decoded(pages: &ChunkPages) -> Vec<i64> {
    let mut values = Vec::new();
    for number in pages.pages() {
        let start = values.len();
        values.resize(start + pages.page_rows(number), 0);
        Decoder::new()
            .decode_page(
                pages.codec(),
                pages.prelude(),
                pages.page(number),
                &mut values[start..],
            )
            .unwrap();
    }
    values
}

#[test]
fn parts_of_a_block_are_read_alone() {
    let block = wide_block(40, 4_000);
    let address = Address {
        file: FileId(5),
        offset: 99,
        ..block.entry.address
    };
    assert!(
        address.bytes > 4 * WHOLE_BLOCK_BYTES,
        "{} bytes",
        address.bytes
    );
    let (store, _sim) = stored(&block.bytes, 99);
    let reader = store.block(&address).unwrap();
    assert_eq!(
        store.counts().read_bytes,
        u64::from(address.head_bytes),
        "only the head of a large block"
    );

    let before = store.counts();
    let wanted = [
        Wanted {
            column_id: 30,
            role: Role::Values,
            pages: 1..2,
        },
        Wanted::all(77, Role::Values),
        Wanted {
            column_id: 2,
            role: Role::Values,
            pages: 3..9,
        },
        Wanted {
            column_id: 2,
            role: Role::Values,
            pages: 0..1,
        },
    ];
    let found = reader.read(&wanted).unwrap();
    let rows = |column: u32, rows: std::ops::Range<i64>| {
        rows.map(|row| value(column, row)).collect::<Vec<_>>()
    };
    assert_eq!(decoded(found[0].as_ref().unwrap()), rows(30, 1_024..2_048));
    assert!(found[1].is_none());
    assert_eq!(found[2].as_ref().unwrap().pages(), 3..4);
    assert_eq!(decoded(found[2].as_ref().unwrap()), rows(2, 3_072..4_000));
    assert_eq!(decoded(found[3].as_ref().unwrap()), rows(2, 0..1_024));
    let after = store.counts();
    assert_eq!(
        after.reads - before.reads,
        2,
        "near pages at once, far ones by a read of their own"
    );
    assert!(after.read_bytes - before.read_bytes < 64 << 10);
    assert_eq!(store.block(&address).unwrap().head().rows(), 4_000);
    assert_eq!(store.counts().head_hits, 1);
    store.block(&address).unwrap().verify().unwrap();
}

#[test]
fn a_small_block_is_read_at_once() {
    let block = wide_block(3, 1_500);
    let address = Address {
        file: FileId(5),
        offset: 0,
        ..block.entry.address
    };
    let (store, _sim) = stored(&block.bytes, 0);
    let reader = store.block(&address).unwrap();
    let wanted: Vec<Wanted> = (0..3)
        .map(|column_id| Wanted::all(column_id, Role::Values))
        .collect();
    let found = reader.read(&wanted).unwrap();
    for (column_id, pages) in (0..).zip(&found) {
        let expected: Vec<i64> = (0..1_500).map(|row| value(column_id, row)).collect();
        assert_eq!(decoded(pages.as_ref().unwrap()), expected);
    }
    assert_eq!(store.counts().reads, 1);
    // With the head in memory, only what is wanted is read, and still at once.
    let found = store
        .block(&address)
        .unwrap()
        .read(&[wanted[0].clone(), wanted[2].clone()])
        .unwrap();
    assert_eq!(decoded(found[1].as_ref().unwrap())[7], value(2, 7));
    assert_eq!(store.counts().reads, 2);
}

#[test]
fn only_what_is_wanted_is_verified() {
    let block = wide_block(40, 4_000);
    let address = Address {
        file: FileId(5),
        offset: 0,
        ..block.entry.address
    };
    let mut bytes = block.bytes.clone();
    let damaged_at = address.head_bytes as usize + 20_000;
    bytes[damaged_at] ^= 4;
    let (store, _sim) = stored(&bytes, 0);
    let reader = store.block(&address).unwrap();
    let mut damaged = 0;
    for column_id in 0..40 {
        for page in 0..4 {
            let read = reader.read(&[Wanted {
                column_id,
                role: Role::Values,
                pages: page..page + 1,
            }]);
            match read {
                Ok(found) => assert_eq!(
                    decoded(found[0].as_ref().unwrap())[1],
                    value(column_id, i64::try_from(page).unwrap() * 1_024 + 1)
                ),
                Err(error) => {
                    damaged += 1;
                    assert_eq!(error.kind(), ErrorKind::Corruption);
                    assert!(
                        error.message().contains("file 0000000000000005, offset"),
                        "{error}"
                    );
                    assert!(error.message().contains("of a block of table 3"), "{error}");
                }
            }
        }
    }
    assert_eq!(damaged, 1);
    assert!(reader.verify().is_err());
}

#[test]
fn preludes_are_verified_with_every_page() {
    let mut builder = BlockBuilder::new(spec(2_048), 1);
    builder
        .add_chunk(1, Role::Values, &raw_chunk(2_048, &[9; 40], 50))
        .unwrap();
    let block = builder.finish((0, 1), vec![]).unwrap();
    let address = Address {
        file: FileId(5),
        offset: 0,
        ..block.entry.address
    };
    let mut bytes = block.bytes.clone();
    bytes[address.head_bytes as usize + 39] ^= 1;
    let (store, _sim) = stored(&bytes, 0);
    let reader = store.block(&address).unwrap();
    for page in 0..2 {
        assert!(
            reader
                .read(&[Wanted {
                    column_id: 1,
                    role: Role::Values,
                    pages: page..page + 1
                }])
                .is_err()
        );
    }
    let (store, _sim) = stored(&block.bytes, 0);
    let found = store
        .block(&address)
        .unwrap()
        .read(&[Wanted {
            column_id: 1,
            role: Role::Values,
            pages: 1..2,
        }])
        .unwrap();
    let pages = found[0].as_ref().unwrap();
    assert_eq!(
        (pages.prelude(), pages.page(1), pages.page_rows(1)),
        (&[9; 40][..], &[1; 50][..], PAGE_ROWS)
    );
    assert_eq!(pages.chunk_rows(), 2_048);
}

#[test]
fn limits_are_errors() {
    let mut builder = BlockBuilder::new(spec(1), 1);
    let large = EncodedChunk {
        bytes: vec![0; MAX_BLOCK_BYTES],
        page_ends: vec![64 << 20],
        ..raw_chunk(1, &[], 0)
    };
    assert_eq!(
        builder
            .add_chunk(1, Role::Values, &large)
            .unwrap_err()
            .kind(),
        ErrorKind::Limit
    );
    let id = builder
        .add_chunk(1 << 24, Role::Values, &raw_chunk(1, &[], 1))
        .unwrap_err();
    assert_eq!(id.kind(), ErrorKind::Limit);
    for column_id in 0..=u32::try_from(MAX_BLOCK_COLUMNS).unwrap() {
        builder
            .add_chunk(column_id, Role::Values, &raw_chunk(1, &[], 1))
            .unwrap();
    }
    assert_eq!(
        builder.finish((0, 0), vec![]).unwrap_err().kind(),
        ErrorKind::Limit
    );
}
