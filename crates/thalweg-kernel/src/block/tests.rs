//! Blocks against their bytes, partial reads, and damage.

mod grids;
mod pages;

use super::head::{CRC_AT, head_crc};
use super::*;
use crate::error::ErrorKind;
use crate::ids::{DatabaseId, FileId, TableId};
use crate::index::{Address, Entry};
use crate::store::Store;
use crate::summary::ColumnSummary;
use proptest::prelude::*;
use std::path::Path;
use thalweg_codec::{
    ChunkKind, CodecChain, Decoder, ElementType, EncodedChunk, Encoder, LastStage, Level,
    PAGE_ROWS, page_count,
};
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
        order: 6,
        positions: rows,
        rows,
        key: 0x1122,
        sorted: true,
        implicit_key: false,
    }
}

/// A chunk as no codec writes it, with bytes that are easy to recognise: page `n` is full of `n`.
fn raw_chunk(rows: usize, prelude: &[u8], page_bytes: usize) -> EncodedChunk {
    chunk_of(
        ElementType::I32,
        rows,
        page_count(rows),
        prelude,
        page_bytes,
    )
}

/// Like `raw_chunk`, with any number of pages.
fn chunk_of(
    element: ElementType,
    rows: usize,
    pages: usize,
    prelude: &[u8],
    page_bytes: usize,
) -> EncodedChunk {
    let mut bytes = prelude.to_vec();
    let mut page_ends = Vec::new();
    for page in 0..pages {
        bytes.resize(bytes.len() + page_bytes, u8::try_from(page % 256).unwrap());
        page_ends.push(u32::try_from(bytes.len()).unwrap());
    }
    let codec = CodecChain {
        kind: ChunkKind::Pages,
        element,
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

/// One of 1,025 positions, of which one is empty, in two pages.
fn sample() -> EncodedBlock {
    sample_of(5)
}

fn sample_of(chunks: usize) -> EncodedBlock {
    let spec = BlockSpec {
        rows: 1_024,
        ..spec(1_025)
    };
    let mut builder = BlockBuilder::new(spec, chunks);
    let zone = chunk_of(ElementType::I32, 2, 1, &[], 3);
    let bits = chunk_of(ElementType::Bits, 1_025, 2, &[], 2);
    // Those of the front and those of the body come in whatever order.
    let chunks = [
        (0, Role::Presence, &bits),
        (7, Role::ZoneLows, &zone),
        (7, Role::ZoneHighs, &zone),
        (7, Role::Values, &raw_chunk(1_025, &[0xAA; 3], 4)),
        (8, Role::Validity, &bits),
    ];
    for (column_id, role, chunk) in chunks {
        builder.add_chunk(column_id, role, chunk).unwrap();
    }
    builder
        .finish((-5, 90), vec![ColumnSummary::of_counts(7, 1_024, 0)])
        .unwrap()
}

/// Bytes of the head of the sample.
const HEAD: usize = 272;

#[test]
fn a_head_has_these_bytes() {
    let block = sample();
    let head = concat!(
        // Magic, version 2, layout 1, level 2; head of 272 bytes in a block of 297; table 3, order 6.
        "54424c4b",
        "0200",
        "01",
        "02",
        "10010000",
        "29010000",
        "03000000",
        "06000000",
        // 5 chunks, 3 columns, 1,025 positions, sorted; key; 1,024 rows, pages of 1,024, front of 6 bytes; checksum.
        "05000000",
        "03000000",
        "01040000",
        "01000000",
        "2211000000000000",
        "00040000",
        "00040000",
        "06000000",
        "7040b195",
        // Column 7, lows: codec, offset 0, 3 bytes, no prelude, 2 rows, 8 bytes raw, checksum of the chunk.
        "14070000",
        "01030100",
        "00000000",
        "03000000",
        "00000000",
        "02000000",
        "08000000",
        "7aa36460",
        // Column 7, highs.
        "15070000",
        "01030100",
        "03000000",
        "03000000",
        "00000000",
        "02000000",
        "08000000",
        "7aa36460",
        // Presence, of two pages: the checksum is that of the prelude.
        "04000000",
        "010d0100",
        "06000000",
        "04000000",
        "00000000",
        "01040000",
        "04100000",
        "00000000",
        // Column 7 values: 3 bytes of prelude.
        "01070000",
        "01030100",
        "0a000000",
        "0b000000",
        "03000000",
        "01040000",
        "04100000",
        "d634898a",
        // Column 8 validity.
        "02080000",
        "010d0100",
        "15000000",
        "04000000",
        "00000000",
        "01040000",
        "04100000",
        "00000000",
        // Pages of presence, of column 7, and of column 8: end and checksum.
        "02000000",
        "d27761f1",
        "04000000",
        "a66ca810",
        "07000000",
        "c74b6748",
        "0b000000",
        "7568aad1",
        "02000000",
        "d27761f1",
        "04000000",
        "a66ca810",
    );
    let (found, body) = block.bytes.split_at(HEAD);
    assert_eq!(hex(found), head);
    let chunks = concat!(
        "000000", "000000", "00000101", "aaaaaa", "00000000", "01010101", "00000101",
    );
    assert_eq!(hex(body), chunks);
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
    assert_eq!((address.bytes, address.head_bytes), (297, 272));
    assert_eq!(address.head_crc.to_le_bytes(), found[CRC_AT..64]);
    assert_eq!(
        (rows, blocks, block_bytes, key_min, key_max, sorted),
        (1_024, 1, 297, -5, 90, true)
    );
}

#[test]
fn a_head_says_what_was_built() {
    let block = sample();
    let head = BlockHead::parse(&block.bytes, &block.entry.address).unwrap();
    let expected = BlockSpec {
        rows: 1_024,
        ..spec(1_025)
    };
    assert_eq!(
        (head.spec(), head.paging()),
        (&expected, &Paging::Even(1_024))
    );
    assert_eq!(
        (head.rows(), head.positions(), head.pages()),
        (1_024, 1_025, 2)
    );
    assert_eq!((head.front_bytes(), head.last_column()), (6, 8));
    let columns: Vec<_> = head
        .chunks()
        .map(|chunk| (chunk.column_id, chunk.role, chunk.rows, chunk.bytes))
        .collect();
    let expected = [
        (7, Role::ZoneLows, 2, 3),
        (7, Role::ZoneHighs, 2, 3),
        (0, Role::Presence, 1_025, 4),
        (7, Role::Values, 1_025, 11),
        (8, Role::Validity, 1_025, 4),
    ];
    assert_eq!(columns, expected);
    for (column_id, role, ..) in expected {
        assert!(
            head.chunk(column_id, role).is_some(),
            "{column_id} {role:?}"
        );
    }
    assert_eq!(head.chunk(8, Role::Validity).unwrap().raw_bytes, 4_100);
    assert!(head.chunk(8, Role::Values).is_none() && head.chunk(u32::MAX, Role::Values).is_none());
    assert!(head.chunk(8, Role::ZoneLows).is_none() && head.chunk(7, Role::Filter).is_none());
    verify(&block.bytes, &block.entry.address).unwrap();
}

#[test]
fn a_wrong_guess_of_the_number_of_chunks_changes_nothing() {
    let expected = sample().bytes;
    for guess in [0, 1, 3, 50] {
        assert_eq!(sample_of(guess).bytes, expected);
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
            BlockHead::parse(&bytes[..at], &entry.address).is_err() || at >= HEAD,
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
            bytes: 298,
            ..address
        },
        "another length",
    );
    refused(
        Address {
            head_bytes: 271,
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

/// The kind of error with which a head is refused whose bytes at `at` are `field`.
fn refused(at: usize, field: &[u8]) -> ErrorKind {
    let EncodedBlock { mut bytes, entry } = sample();
    bytes[at..at + field.len()].copy_from_slice(field);
    let (bytes, address) = resealed(bytes, entry.address);
    let error = BlockHead::parse(&bytes, &address).unwrap_err();
    error.kind()
}

#[test]
fn hostile_heads_are_refused() {
    let changes: [(usize, &[u8]); 28] = [
        (6, &[0]),           // layout
        (8, &[0x11]),        // head bytes
        (12, &[0x2A]),       // block bytes
        (24, &[1]),          // chunks
        (24, &[0xFF; 4]),    //
        (28, &[2]),          // columns
        (32, &[0; 4]),       // positions
        (32, &[0, 4]),       // fewer than its chunks have
        (32, &[0, 0, 0, 2]), // too many
        (36, &[5]),          // a grid, where there is none
        (48, &[0; 4]),       // rows
        (48, &[2, 4]),       // more rows than positions
        (52, &[63, 0]),      // positions of a page
        (52, &[0; 4]),       //
        (52, &[1, 0, 1, 0]), //
        (56, &[5]),          // front bytes
        (64, &[21]),         // the same role twice
        (65, &[0]),          // lows of another column than highs
        (69, &[2]),          // element of the lows
        (72, &[1]),          // offset
        (76, &[0xFF; 4]),    // bytes
        (84, &[3]),          // rows of the lows
        (128, &[2]),         // validity in the place of presence: nothing shows what is empty
        (129, &[1]),         // presence of a column
        (176, &[12]),        // prelude beyond the chunk
        (180, &[0xFF; 4]),   // rows
        (240, &[1]),         // end of the first page before its start
        (248, &[12]),        // end of the last page beyond the chunk
    ];
    for (at, field) in changes {
        assert_eq!(
            refused(at, field),
            ErrorKind::Corruption,
            "{field:?} at {at}"
        );
    }
}

#[test]
fn what_another_version_wrote_is_no_damage() {
    let changes: [(usize, &[u8]); 9] = [
        (4, &[1]),     // version
        (4, &[3]),     //
        (36, &[9]),    // flags
        (64, &[16]),   // kept roles
        (160, &[3]),   //
        (160, &[5]),   //
        (160, &[200]), //
        (164, &[77]),  // codec
        (167, &[1]),   // a reserved byte of it
    ];
    for (at, field) in changes {
        assert_eq!(
            refused(at, field),
            ErrorKind::Unsupported,
            "{field:?} at {at}"
        );
    }
}

#[test]
fn the_version_of_a_block_is_named() {
    let EncodedBlock { mut bytes, entry } = sample();
    bytes[4] = 1;
    let (bytes, address) = resealed(bytes, entry.address);
    let error = BlockHead::parse(&bytes, &address).unwrap_err();
    let expected = "format version 1; this program reads version 2";
    assert!(error.message().contains(expected), "{error}");
}

proptest! {
    #[test]
    fn resealed_heads_never_panic(
        changes in prop::collection::vec((64_usize..HEAD, any::<u8>()), 1..6),
        header in prop::collection::vec((0_usize..64, any::<u8>()), 0..2),
    ) {
        let EncodedBlock { mut bytes, entry } = sample();
        for (at, byte) in changes.into_iter().chain(header) {
            bytes[at] = byte;
        }
        let (bytes, address) = resealed(bytes, entry.address);
        if let Ok(head) = BlockHead::parse(&bytes, &address) {
            // Whatever its fields are, it stays within the block.
            let _ = head.verify_body(&bytes[HEAD..], &address);
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

/// Where a block lies that is stored at the start of the file.
fn at_start(block: &EncodedBlock) -> Address {
    Address {
        file: FileId(5),
        offset: 0,
        ..block.entry.address
    }
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
    let mut reader = store.block(&address).unwrap();
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
    let address = at_start(&block);
    let (store, _sim) = stored(&block.bytes, 0);
    let mut reader = store.block(&address).unwrap();
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
    let address = at_start(&block);
    let mut bytes = block.bytes.clone();
    let damaged_at = address.head_bytes as usize + 20_000;
    bytes[damaged_at] ^= 4;
    let (store, _sim) = stored(&bytes, 0);
    let mut reader = store.block(&address).unwrap();
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
    let address = at_start(&block);
    let mut bytes = block.bytes.clone();
    bytes[address.head_bytes as usize + 39] ^= 1;
    let (store, _sim) = stored(&bytes, 0);
    let mut reader = store.block(&address).unwrap();
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
fn a_prelude_is_read_once_by_a_reader() {
    let prelude = vec![7; 300_000];
    let mut builder = BlockBuilder::new(spec(5_000), 2);
    for column_id in [1, 2] {
        let chunk = raw_chunk(5_000, &prelude, 50);
        builder.add_chunk(column_id, Role::Values, &chunk).unwrap();
    }
    let block = builder.finish((0, 1), vec![]).unwrap();
    let address = at_start(&block);
    let (store, _sim) = stored(&block.bytes, 0);
    let mut reader = store.block(&address).unwrap();
    let page = |column_id: u32, number: usize| Wanted {
        column_id,
        role: Role::Values,
        pages: number..number + 1,
    };
    let before = store.counts().read_bytes;
    let parts = [page(1, 0), page(1, 2), page(1, 4)];
    let found = reader.read(&parts).unwrap();
    let first_bytes = store.counts().read_bytes - before;
    assert!(first_bytes < 301_000, "{first_bytes}");
    for number in [0, 1, 2, 3, 4] {
        let found = reader.read(&[page(1, number)]).unwrap();
        let pages = found[0].as_ref().unwrap();
        assert_eq!(pages.prelude(), prelude);
        assert_eq!(pages.page(number), [u8::try_from(number).unwrap(); 50]);
    }
    assert_eq!(found[2].as_ref().unwrap().page(4), [4; 50]);
    let later_bytes = store.counts().read_bytes - before - first_bytes;
    assert_eq!(later_bytes, 5 * 50);
    // Of another chunk it is read and checked as well.
    let before = store.counts().read_bytes;
    reader.read(&[page(2, 3)]).unwrap();
    assert!(store.counts().read_bytes - before > 300_000);
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
    let pages = chunk_of(
        ElementType::U8,
        32 * MAX_FILTER_BLOCKS as usize,
        4_096,
        &[],
        0,
    );
    let mut filters = BlockBuilder::new(spec(1), 1);
    for column_id in 0..32 {
        filters.add_chunk(column_id, Role::Filter, &pages).unwrap();
    }
    let one_more = filters.add_chunk(40, Role::Filter, &pages).unwrap_err();
    assert_eq!(one_more.kind(), ErrorKind::Limit);
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
