//! Single pages through the cache, and streamed ones, against reads of whole chunks; and damage, which is never cached.

use super::*;

/// Rows of the block that these tests read: a last page that is short, and one chunk of constants, whose pages are empty.
const ROWS: u32 = 5_000;

/// Columns 0 to 2 of any numbers, column 3 of codes, whose chunk has a prelude, column 4 of one value, column 5 of one page.
fn mixed_block() -> EncodedBlock {
    let mut builder = BlockBuilder::new(spec(ROWS), 6);
    let mut chunk = EncodedChunk::new();
    let mut encoder = Encoder::new(Level::Fast);
    for column_id in 0..5_u32 {
        let rows = 0..i64::from(ROWS);
        let values: Vec<i64> = match column_id {
            3 => rows.map(|row| value(9, row % 7 * row % 5)).collect(),
            4 => rows.map(|_| 77).collect(),
            _ => rows.map(|row| value(column_id, row)).collect(),
        };
        encoder.encode(&values, &mut chunk).unwrap();
        builder.add_chunk(column_id, Role::Values, &chunk).unwrap();
    }
    let lows = chunk_of(ElementType::I64, 5, 1, &[], 40);
    builder.add_chunk(2, Role::ZoneLows, &lows).unwrap();
    builder.add_chunk(2, Role::ZoneHighs, &lows).unwrap();
    builder.finish((0, i64::from(ROWS)), vec![]).unwrap()
}

const CHUNKS: [(u32, Role); 6] = [
    (0, Role::Values),
    (1, Role::Values),
    (2, Role::ZoneLows),
    (2, Role::Values),
    (3, Role::Values),
    (4, Role::Values),
];

/// Prelude and pages of a chunk, as a read of all of it finds them.
fn whole(store: &Store, address: &Address, (column_id, role): (u32, Role)) -> ChunkPages {
    let mut reader = store.block(address).unwrap();
    let found = reader.read(&[Wanted::all(column_id, role)]).unwrap();
    found.into_iter().next().flatten().unwrap()
}

fn load(store: &Store, address: &Address, wanted: &[((u32, Role), Vec<usize>)]) -> PageSet {
    let reader = store.block(address).unwrap();
    let mut set = PageSet::new();
    for ((column_id, role), numbers) in wanted {
        let _ = set.want(reader.head(), *column_id, *role, numbers);
    }
    reader.load(&mut set).unwrap();
    set
}

fn numbers(most: usize) -> impl Strategy<Value = Vec<usize>> {
    prop::collection::btree_set(0..most, 0..most).prop_map(|set| set.into_iter().collect())
}

fn wanted() -> impl Strategy<Value = Vec<((u32, Role), Vec<usize>)>> {
    let one = (0..CHUNKS.len()).prop_flat_map(|at| {
        let pages = if CHUNKS[at].1.is_front() { 1 } else { 5 };
        (Just(CHUNKS[at]), numbers(pages + 1)).prop_map(move |(chunk, found)| {
            (chunk, found.into_iter().filter(|n| *n < pages).collect())
        })
    });
    prop::collection::vec(one, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn pages_are_those_of_whole_reads(asked in prop::collection::vec(wanted(), 1..5), cache_bytes in 0_u64..100_000) {
        let block = mixed_block();
        let address = at_start(&block);
        let (store, sim) = stored(&block.bytes, 0);
        let small = Store::new(sim.env(), "/db", DatabaseId([1; 16]), cache_bytes);
        for wanted in asked {
            for store in [&store, &small] {
                let reader = store.block(&address).unwrap();
                let mut set = PageSet::new();
                let found: Vec<_> = wanted
                    .iter()
                    .map(|((column_id, role), numbers)| set.want(reader.head(), *column_id, *role, numbers))
                    .collect();
                reader.load(&mut set).unwrap();
                for ((chunk, numbers), found) in wanted.iter().zip(found) {
                    let found = set.pages(found.unwrap());
                    let whole = whole(store, &address, *chunk);
                    prop_assert_eq!((found.codec(), found.chunk_rows()), (whole.codec(), whole.chunk_rows()));
                    for (nth, number) in numbers.iter().enumerate() {
                        prop_assert_eq!(found.prelude(), whole.prelude());
                        prop_assert_eq!(found.page(nth), whole.page(*number));
                        prop_assert_eq!(found.page_rows(nth), whole.page_rows(*number));
                    }
                    let (mut buffer, mut seen) = (Vec::new(), Vec::new());
                    reader.stream_pages(*chunk, numbers, &mut buffer, |nth, page| {
                        let number = numbers[nth];
                        assert_eq!((page.prelude, page.page), (whole.prelude(), whole.page(number)));
                        assert_eq!((page.codec, page.rows), (whole.codec(), whole.page_rows(number)));
                        seen.push(number);
                        Ok(())
                    }).unwrap();
                    prop_assert_eq!(&seen, numbers);
                }
                let (used, most) = store.cached_bytes();
                prop_assert!(used <= most, "{} of {} bytes", used, most);
            }
        }
    }
}

#[test]
fn each_page_is_read_and_verified_once() {
    let block = wide_block(4, 200_000);
    assert!(block.bytes.len() > WHOLE_BLOCK_BYTES as usize);
    let address = at_start(&block);
    let (store, _sim) = stored(&block.bytes, 0);
    store.block(&address).unwrap();
    let before = store.counts();
    let wanted = vec![
        ((0, Role::Values), vec![3]),
        ((2, Role::Values), vec![3, 100]),
    ];
    load(&store, &address, &wanted);
    let after = store.counts();
    // Neither chunk has a prelude. The pages lie far apart.
    assert_eq!(after.data_pages_loaded - before.data_pages_loaded, 3);
    assert_eq!((after.reads - before.reads, after.data_page_hits), (3, 0));
    load(&store, &address, &wanted);
    let again = store.counts();
    assert_eq!(
        (again.reads, again.data_pages_loaded, again.data_page_hits),
        (after.reads, after.data_pages_loaded, 3)
    );
    // A scan neither fills the cache nor asks it.
    let used = store.cached_bytes();
    whole(&store, &address, (1, Role::Values));
    let scanned = store.counts();
    assert_eq!((store.cached_bytes(), scanned.data_page_hits), (used, 3));
    assert_eq!(scanned.data_pages_loaded, again.data_pages_loaded);
    // Pages next to each other are read at once, and streamed ones are not kept.
    let numbers: Vec<usize> = (10..20).collect();
    let reader = store.block(&address).unwrap();
    let mut buffer = Vec::new();
    let chunk = (3, Role::Values);
    reader
        .stream_pages(chunk, &numbers, &mut buffer, |_, _| Ok(()))
        .unwrap();
    let streamed = store.counts();
    assert_eq!(streamed.reads, scanned.reads + 1);
    assert_eq!(streamed.data_pages_loaded, scanned.data_pages_loaded + 10);
    assert_eq!(store.cached_bytes(), used);
}

/// One column of texts that a general compressor makes smaller.
fn compressed_block(stage: LastStage, texts: &[String]) -> EncodedBlock {
    let mut builder = BlockBuilder::new(spec(u32::try_from(texts.len()).unwrap()), 1);
    let (mut offsets, mut data) = (vec![0_i32], Vec::new());
    for text in texts {
        data.extend_from_slice(text.as_bytes());
        offsets.push(i32::try_from(data.len()).unwrap());
    }
    let mut chunk = EncodedChunk::new();
    let mut encoder = Encoder::new(Level::Dense).with_last_stage(stage);
    encoder.encode_bytes(&offsets, &data, &mut chunk).unwrap();
    builder.add_chunk(0, Role::Values, &chunk).unwrap();
    builder.finish((0, 1), vec![]).unwrap()
}

#[test]
fn compressed_pages_are_kept_decompressed() {
    for stage in [LastStage::Lz4, LastStage::Zstd] {
        for rows in [500, 2_500] {
            let texts: Vec<String> = (0..rows)
                .map(|row| format!("{} of {row}", ["cold start", "door open"][row % 2]))
                .collect();
            let block = compressed_block(stage, &texts);
            let address = at_start(&block);
            let (store, _sim) = stored(&block.bytes, 0);
            let pages: Vec<usize> = (0..page_count(rows)).collect();
            let whole = whole(&store, &address, (0, Role::Values));
            assert!(
                pages
                    .iter()
                    .any(|page| whole.codec().compresses(whole.page(*page)))
            );
            let before = store.cached_bytes().0;
            for round in 0..2 {
                let hits = store.counts().data_page_hits;
                let reader = store.block(&address).unwrap();
                let mut set = PageSet::new();
                let found = set.want(reader.head(), 0, Role::Values, &pages).unwrap();
                reader.load(&mut set).unwrap();
                assert_eq!(store.counts().data_page_hits > hits, round > 0);
                let found = set.pages(found);
                assert_eq!(found.prelude(), whole.prelude());
                let mut decoder = Decoder::new();
                for page in &pages {
                    assert!(!found.codec().compresses(found.page(*page)), "page {page}");
                    for within in 0..found.page_rows(*page) {
                        let mut text = Vec::new();
                        let (prelude, bytes) = (found.prelude(), found.page(*page));
                        let rows = found.page_rows(*page);
                        decoder
                            .decode_bytes_value(
                                found.codec(),
                                prelude,
                                bytes,
                                rows,
                                within,
                                &mut text,
                            )
                            .unwrap();
                        assert_eq!(text, texts[page * PAGE_ROWS + within].as_bytes());
                    }
                }
                // The budget counts them as they lie in memory.
                let kept: usize = pages.iter().map(|page| found.page(*page).len()).sum();
                assert!(store.cached_bytes().0 - before >= kept as u64);
            }
        }
    }
}

#[test]
fn a_page_that_cannot_be_decompressed_is_left_to_its_decoder() {
    let mut chunk = chunk_of(ElementType::Bytes, 3_000, 3, &[], 40);
    chunk.codec.last_stage = LastStage::Zstd;
    let mut builder = BlockBuilder::new(spec(3_000), 1);
    builder.add_chunk(0, Role::Values, &chunk).unwrap();
    let block = builder.finish((0, 1), vec![]).unwrap();
    let (store, _sim) = stored(&block.bytes, 0);
    let set_of = |numbers: &[usize]| {
        load(
            &store,
            &at_start(&block),
            &[((0, Role::Values), numbers.to_vec())],
        )
    };
    for _ in 0..2 {
        assert_eq!(set_of(&[0, 2]).pieces_loaded(), 3);
    }
}

#[test]
fn a_damaged_page_is_an_error_and_never_cached() {
    let block = mixed_block();
    let address = at_start(&block);
    let head_bytes = address.head_bytes as usize;
    let wanted = [(3, vec![0, 2, 4]), (1, vec![1])];
    for place in (head_bytes..block.bytes.len()).step_by(53) {
        let mut bytes = block.bytes.clone();
        bytes[place] ^= 0x10;
        let (store, sim) = stored(&bytes, 0);
        let mut set = PageSet::new();
        let mut want = |reader: &BlockReader<'_>| {
            for (column_id, numbers) in &wanted {
                set.want(reader.head(), *column_id, Role::Values, numbers);
            }
            let loaded = reader.load(&mut set);
            let count = set.pieces_loaded();
            set.clear();
            (loaded, count)
        };
        let (first, count) = want(&store.block(&address).unwrap());
        let (mut buffer, mut streamed) = (Vec::new(), Ok(()));
        for (column_id, numbers) in &wanted {
            let reader = store.block(&address).unwrap();
            let found =
                reader.stream_pages((*column_id, Role::Values), numbers, &mut buffer, |_, _| {
                    Ok(())
                });
            streamed = streamed.and(found);
        }
        assert_eq!(first.is_err(), streamed.is_err(), "byte {place}");
        let Err(error) = first else { continue };
        assert_eq!((error.kind(), count), (ErrorKind::Corruption, 0), "{error}");
        assert!(error.message().contains("is damaged"), "{error}");
        // Still an error the second time, and none once the bytes are back.
        assert!(want(&store.block(&address).unwrap()).0.is_err());
        let file = sim
            .env()
            .storage()
            .open(&store.fragment_path(FileId(5)), OpenMode::ReadWrite)
            .unwrap();
        file.write_all_at(&block.bytes, 0).unwrap();
        want(&store.block(&address).unwrap()).0.unwrap();
    }
}

#[test]
fn a_page_of_another_block_at_the_same_place_is_no_hit() {
    let block = wide_block(2, 2_000);
    let address = at_start(&block);
    let (store, sim) = stored(&block.bytes, 0);
    let wanted = vec![
        ((0, Role::Values), vec![0, 1]),
        ((1, Role::Values), vec![1]),
    ];
    load(&store, &address, &wanted);
    // The same lengths, other values.
    let mut encoder = Encoder::new(Level::Fast);
    let mut builder = BlockBuilder::new(spec(2_000), 2);
    let mut chunk = EncodedChunk::new();
    for column_id in 0..2 {
        let values: Vec<i64> = (0..2_000).map(|row| !value(column_id, row)).collect();
        encoder.encode(&values, &mut chunk).unwrap();
        builder.add_chunk(column_id, Role::Values, &chunk).unwrap();
    }
    let other = builder.finish((0, 2_000), vec![]).unwrap();
    assert_eq!(other.bytes.len(), block.bytes.len());
    let file = sim
        .env()
        .storage()
        .open(&store.fragment_path(FileId(5)), OpenMode::ReadWrite)
        .unwrap();
    file.write_all_at(&other.bytes, 0).unwrap();
    let hits = store.counts().data_page_hits;
    let other_address = at_start(&other);
    load(&store, &other_address, &wanted);
    assert_eq!(store.counts().data_page_hits, hits);
    let reader = store.block(&other_address).unwrap();
    let mut set = PageSet::new();
    let found = set.want(reader.head(), 0, Role::Values, &[1]).unwrap();
    reader.load(&mut set).unwrap();
    let expected = whole(&store, &other_address, (0, Role::Values));
    assert_eq!(set.pages(found).page(0), expected.page(1));
}

#[test]
fn what_a_set_has_outlives_the_cache() {
    let block = wide_block(2, 3_000);
    let address = at_start(&block);
    let (store, _sim) = stored(&block.bytes, 0);
    let reader = store.block(&address).unwrap();
    let mut set = PageSet::new();
    let found = set.want(reader.head(), 1, Role::Values, &[2]).unwrap();
    assert!(set.want(reader.head(), 9, Role::Values, &[0]).is_none());
    reader.load(&mut set).unwrap();
    let expected = set.pages(found).page(0).to_vec();
    store.close();
    assert_eq!(store.cached_bytes().0, 0);
    assert_eq!(set.pages(found).page(0), expected);
}
