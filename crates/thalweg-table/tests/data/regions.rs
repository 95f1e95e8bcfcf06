//! Regions of blocks with a grid, against a plain walk over all cells.

use crate::blocks::{Blocks, FILE, TABLE};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use thalweg_codec::{
    Element, ElementType, EncodedChunk, Encoder, LastStage, Level, Paging as CodecPaging,
};
use thalweg_env::Env;
use thalweg_kernel::block::{
    BlockBuilder, BlockSpec, Dimension, EncodedBlock, Grid, GridOrder, Paging, Role,
};
use thalweg_kernel::paths::fragment_name;
use thalweg_kernel::store::Store;
use thalweg_kernel::{DatabaseId, ErrorKind, TableId};
use thalweg_table::{BlockRegion, RegionReader, Strided};

/// The column that holds the values, and one that a block lacks.
const VALUES: u32 = 40;
const MISSING: u32 = 41;

fn grid_of(orders: (GridOrder, GridOrder), extents: &[(u32, u32)]) -> Grid {
    let dimensions = extents.iter().zip(1..);
    let dimensions = dimensions.map(|(&(extent, page_extent), column_id)| Dimension {
        column_id,
        first: 0,
        step: 1,
        extent,
        page_extent,
    });
    Grid::new(orders.0, orders.1, dimensions.collect()).unwrap()
}

/// The value of a cell: unlike that of its neighbours, and small enough to pack.
fn value_at(block: usize, index: &[u32]) -> i32 {
    let cell = index
        .iter()
        .fold(0_i64, |cell, at| cell * 1_013 + i64::from(*at));
    (cell * 7 % 1_000 + block as i64 * 5_000) as i32
}

fn is_valid(block: usize, index: &[u32]) -> bool {
    value_at(block, index) % 3 != 0
}

fn block_of<T: Element>(
    number: usize,
    grid: &Grid,
    encoder: &mut Encoder,
    value: impl Fn(i32) -> T,
) -> EncodedBlock {
    let positions = grid.positions();
    let spec = BlockSpec {
        table: TABLE,
        layout: 4,
        level: 0,
        order: 0,
        positions,
        rows: positions,
        key: 0,
        sorted: false,
        implicit_key: false,
    };
    let ends: Vec<u32> = (0..grid.pages())
        .map(|page| grid.page_range(page).end as u32)
        .collect();
    let paging = CodecPaging::RowEnds(&ends);
    let mut index = vec![0; grid.dimensions().len()];
    let mut values = Vec::new();
    let mut bits = vec![0; positions.div_ceil(8) as usize];
    for position in 0..positions as usize {
        grid.index(position, &mut index);
        values.push(value(value_at(number, &index)));
        bits[position / 8] |= u8::from(is_valid(number, &index)) << (position % 8);
    }
    let mut builder = BlockBuilder::with_paging(spec, Paging::Grid(grid.clone()), 2);
    let mut chunk = EncodedChunk::new();
    encoder.encode_paged(&values, paging, &mut chunk).unwrap();
    builder.add_chunk(VALUES, Role::Values, &chunk).unwrap();
    encoder
        .encode_bits_paged(&bits, positions as usize, paging, &mut chunk)
        .unwrap();
    builder.add_chunk(VALUES, Role::Validity, &chunk).unwrap();
    builder.finish((0, 0), vec![]).unwrap()
}

fn order() -> impl Strategy<Value = GridOrder> {
    prop_oneof![Just(GridOrder::RowMajor), Just(GridOrder::ColumnMajor)]
}

/// A dimension: extents of block and page, and how the region lies in it.
#[derive(Clone, Debug)]
struct Along {
    extent: u32,
    page: u32,
    start: u32,
    length: u32,
    /// Cells of the memory before and behind those of the region.
    before: usize,
    behind: usize,
}

fn along(most: u32) -> impl Strategy<Value = Along> {
    let extents = (1..=most).prop_flat_map(|extent| (Just(extent), 1..=extent, 0..extent));
    let region = extents.prop_flat_map(|(extent, page, start)| {
        (
            Just((extent, page, start)),
            0..=extent - start,
            0..3_usize,
            0..3_usize,
        )
    });
    region.prop_map(|((extent, page, start), length, before, behind)| Along {
        extent,
        page,
        start,
        length,
        before,
        behind,
    })
}

fn dimensions() -> impl Strategy<Value = Vec<Along>> {
    prop_oneof![
        4 => prop::collection::vec(along(9), 1..5),
        2 => prop::collection::vec(along(150), 2),
        // Large enough to be shared among threads.
        1 => prop::collection::vec(along(700), 2),
    ]
}

/// Strides of memory in which the dimensions lie in this order, the fastest first, with `gap` cells between.
fn strides_of(extents: &[usize], fastest_first: &[usize], gap: usize) -> (Vec<usize>, usize) {
    let mut strides = vec![0; extents.len()];
    let mut stride = 1 + gap;
    for &at in fastest_first {
        strides[at] = stride;
        stride = stride * extents[at] + gap;
    }
    (strides, stride)
}

/// All indices of a box.
fn indices(extents: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for extent in extents {
        let longer =
            |index: Vec<usize>| (0..*extent).map(move |last| [index.clone(), vec![last]].concat());
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

fn place(index: &[usize], strides: &[usize]) -> usize {
    index
        .iter()
        .zip(strides)
        .map(|(at, stride)| at * stride)
        .sum()
}

fn os_store(blocks: &[EncodedBlock]) -> (Arc<Store>, Vec<thalweg_kernel::index::Address>) {
    let env = Env::in_memory();
    let path = Path::new("/db").join(fragment_name(FILE));
    env.storage()
        .create_dir_all(path.parent().unwrap())
        .unwrap();
    let file = env
        .storage()
        .open(&path, thalweg_env::OpenMode::CreateNew)
        .unwrap();
    let (mut offset, mut addresses) = (0, Vec::new());
    for block in blocks {
        file.write_all_at(&block.bytes, offset).unwrap();
        addresses.push(thalweg_kernel::index::Address {
            file: FILE,
            offset,
            ..block.entry.address
        });
        offset += block.bytes.len() as u64;
    }
    (
        Arc::new(Store::new(env, "/db", DatabaseId([1; 16]), 1 << 20)),
        addresses,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    #[test]
    fn cells_are_those_of_a_plain_walk(
        orders in (order(), order()),
        dimensions in dimensions(),
        memory_order: prop::sample::Index,
        gap in 0_usize..2,
        stage in prop::sample::select(vec![None, Some(LastStage::Lz4), Some(LastStage::Zstd)]),
        threads in 1_usize..4,
    ) {
        let shape: Vec<_> = dimensions.iter().map(|d| (d.extent, d.page)).collect();
        let too_large = shape.iter().map(|d| u64::from(d.1)).product::<u64>() > 65_536;
        let pages = shape.iter().map(|d| u64::from(d.0.div_ceil(d.1))).product::<u64>();
        prop_assume!(!too_large && pages <= 10_000);
        let grid = grid_of(orders, &shape);
        let mut encoder = Encoder::new(Level::Fast);
        if let Some(stage) = stage {
            encoder = encoder.with_last_stage(stage);
        }
        // Two blocks behind each other along the first dimension: the region ends in the second one.
        let blocks: Vec<_> = (0..2).map(|number| block_of(number, &grid, &mut encoder, |value| value)).collect();
        let (store, addresses) = os_store(&blocks);
        let first = &dimensions[0];
        let rest = first.extent.min(5);
        let mut regions: Vec<BlockRegion> = Vec::new();
        for (number, block) in addresses.iter().enumerate() {
            let mut start: Vec<u32> = dimensions.iter().map(|d| d.start).collect();
            let mut extents: Vec<u32> = dimensions.iter().map(|d| d.length).collect();
            let mut at: Vec<usize> = dimensions.iter().map(|d| d.before).collect();
            if number == 1 {
                (start[0], extents[0]) = (0, rest);
                at[0] += first.length as usize;
            }
            regions.push(BlockRegion { block: *block, start, extents, at });
        }
        let mut extents: Vec<usize> = dimensions.iter().map(|d| d.before + d.length as usize + d.behind).collect();
        extents[0] += rest as usize;
        let mut fastest_first: Vec<usize> = (0..extents.len()).collect();
        let turns = memory_order.index(extents.len());
        fastest_first.rotate_left(turns);
        let (strides, cells) = strides_of(&extents, &fastest_first, gap);

        let mut expected = vec![-1; cells];
        let mut expected_valid = vec![9_u8; cells];
        let mut all_set = vec![9_u8; cells];
        for (number, region) in regions.iter().enumerate() {
            let sizes: Vec<usize> = region.extents.iter().map(|extent| *extent as usize).collect();
            for within in indices(&sizes) {
                let index: Vec<u32> = within.iter().zip(&region.start).map(|(at, start)| start + *at as u32).collect();
                let target: Vec<usize> = within.iter().zip(&region.at).map(|(at, first)| at + first).collect();
                expected[place(&target, &strides)] = value_at(number, &index);
                expected_valid[place(&target, &strides)] = u8::from(is_valid(number, &index));
                all_set[place(&target, &strides)] = 1;
            }
        }
        let reader = RegionReader::new(Arc::clone(&store), TABLE, threads);
        let mut memory = vec![-1; cells];
        let mut target = Strided::new(&mut memory, extents.clone(), strides.clone()).unwrap();
        reader.values(VALUES, &regions, &mut target).unwrap();
        prop_assert_eq!(&memory, &expected);
        let mut memory = vec![-1_i64; cells];
        let mut target = Strided::new(&mut memory, extents.clone(), strides.clone()).unwrap();
        reader.values(VALUES, &regions, &mut target).unwrap();
        let widened: Vec<i64> = expected.iter().map(|value| i64::from(*value)).collect();
        prop_assert_eq!(&memory, &widened);
        let mut memory = vec![9; cells];
        let mut target = Strided::new(&mut memory, extents.clone(), strides.clone()).unwrap();
        reader.flags(VALUES, Role::Validity, &regions, &mut target).unwrap();
        prop_assert_eq!(&memory, &expected_valid);
        // Nothing says that cells are empty: all are there.
        let mut memory = vec![9; cells];
        let mut target = Strided::new(&mut memory, extents.clone(), strides.clone()).unwrap();
        reader.flags(0, Role::Presence, &regions, &mut target).unwrap();
        prop_assert_eq!(&memory, &all_set);
        let mut memory = vec![-1; cells];
        let mut target = Strided::new(&mut memory, extents, strides).unwrap();
        reader.values(MISSING, &regions, &mut target).unwrap();
        let zeros: Vec<i32> = all_set.iter().map(|set| if *set == 1 { 0 } else { -1 }).collect();
        prop_assert_eq!(&memory, &zeros);
    }

    #[test]
    fn damage_is_an_error_or_not_in_what_was_read(
        at: prop::sample::Index,
        bit in 0..8_u8,
        start in (0_u32..60, 0_u32..60),
        extents in (1_u32..40, 1_u32..40),
    ) {
        let grid = grid_of((GridOrder::RowMajor, GridOrder::RowMajor), &[(100, 16), (100, 16)]);
        let block = block_of(0, &grid, &mut Encoder::new(Level::Fast), |value| value);
        let file = Blocks::new(std::slice::from_ref(&block));
        let path = Path::new("db").join(fragment_name(FILE));
        let at = at.index(block.bytes.len());
        file.sim.overwrite_file(&path, 100 + at as u64, &[block.bytes[at] ^ 1 << bit]).unwrap();
        let store = Arc::new(file.store());
        let reader = RegionReader::new(Arc::clone(&store), TABLE, 2);
        let region = BlockRegion {
            block: file.addresses[0],
            start: vec![start.0, start.1],
            extents: vec![extents.0, extents.1],
            at: vec![0, 0],
        };
        let (rows, columns) = (extents.0 as usize, extents.1 as usize);
        for _ in 0..2 {
            let mut memory = vec![0; rows * columns];
            let mut target = Strided::row_major(&mut memory, vec![rows, columns]).unwrap();
            match reader.values(VALUES, std::slice::from_ref(&region), &mut target) {
                Ok(()) => {
                    for (cell, value) in memory.iter().enumerate() {
                        let index = [start.0 + (cell / columns) as u32, start.1 + (cell % columns) as u32];
                        prop_assert_eq!(*value, value_at(0, &index));
                    }
                }
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corruption),
            }
        }
    }
}

fn region(
    block: thalweg_kernel::index::Address,
    start: [u32; 2],
    extents: [u32; 2],
) -> BlockRegion {
    BlockRegion {
        block,
        start: start.to_vec(),
        extents: extents.to_vec(),
        at: vec![0, 0],
    }
}

#[test]
fn pages_next_to_each_other_are_read_at_once_and_few_are_kept() {
    let grid = grid_of(
        (GridOrder::RowMajor, GridOrder::RowMajor),
        &[(640, 64), (640, 64)],
    );
    // Values that take their whole width, so that no page is near another row of pages.
    let wild = |value: i32| i64::from(value).wrapping_mul(0x9E37_79B9_7F4A_7C15_u64.cast_signed());
    let block = block_of(0, &grid, &mut Encoder::new(Level::Fast), wild);
    let (store, addresses) = os_store(&[block]);
    let reader = RegionReader::new(Arc::clone(&store), TABLE, 1);
    let read = |start: [u32; 2], extents: [u32; 2]| {
        let before = store.counts();
        let mut memory = vec![0_i64; (extents[0] * extents[1]) as usize];
        let sizes = vec![extents[0] as usize, extents[1] as usize];
        let mut target = Strided::row_major(&mut memory, sizes).unwrap();
        reader
            .values(VALUES, &[region(addresses[0], start, extents)], &mut target)
            .unwrap();
        for (cell, value) in memory.iter().enumerate() {
            let index = [
                start[0] + cell as u32 / extents[1],
                start[1] + cell as u32 % extents[1],
            ];
            assert_eq!(*value, wild(value_at(0, &index)));
        }
        let after = store.counts();
        (
            after.reads - before.reads,
            after.data_pages_loaded - before.data_pages_loaded,
            after.data_page_hits - before.data_page_hits,
        )
    };
    // The head first.
    assert_eq!(read([0, 0], [1, 1]), (2, 1, 0));
    assert_eq!(read([0, 0], [64, 65]), (1, 1, 1));
    assert_eq!(read([63, 63], [1, 2]), (0, 0, 2));
    let cached = store.cached_bytes();
    // All pages of a row of them are next to each other, and a share is of some rows of pages.
    let (reads, pages, hits) = read([0, 0], [640, 640]);
    assert_eq!((pages, hits), (100, 0));
    assert!(reads <= 10, "{reads}");
    // A column meets a page of each row.
    assert_eq!(read([0, 100], [640, 1]), (10, 10, 0));
    assert_eq!(store.cached_bytes(), cached);
}

#[test]
fn threads_share_a_large_region() {
    let grid = grid_of(
        (GridOrder::RowMajor, GridOrder::RowMajor),
        &[(1_100, 64), (1_000, 64)],
    );
    let block = block_of(0, &grid, &mut Encoder::new(Level::Fast), |value| value);
    let (store, addresses) = os_store(&[block]);
    let extents = [1_090, 990];
    let read = |threads: usize| {
        let mut memory = vec![0_i32; 1_090 * 990];
        let mut target = Strided::row_major(&mut memory, vec![1_090, 990]).unwrap();
        let regions = [region(addresses[0], [7, 9], extents)];
        RegionReader::new(Arc::clone(&store), TABLE, threads)
            .values(VALUES, &regions, &mut target)
            .unwrap();
        memory
    };
    let alone = read(1);
    for (cell, value) in alone.iter().enumerate() {
        let index = [7 + cell as u32 / 990, 9 + cell as u32 % 990];
        assert_eq!(*value, value_at(0, &index));
    }
    assert_eq!(read(3), alone);
}

#[test]
fn what_is_no_region_is_refused() {
    let grid = grid_of(
        (GridOrder::RowMajor, GridOrder::RowMajor),
        &[(50, 10), (40, 10)],
    );
    let block = block_of(0, &grid, &mut Encoder::new(Level::Fast), |value| value);
    let (store, addresses) = os_store(&[block]);
    let reader = RegionReader::new(Arc::clone(&store), TABLE, 2);
    let sound = region(addresses[0], [40, 30], [10, 10]);
    let mut memory = vec![0; 200];
    let mut read = |region: &BlockRegion, column: u32| {
        let mut target = Strided::row_major(&mut memory, vec![10, 20]).unwrap();
        reader.values(column, std::slice::from_ref(region), &mut target)
    };
    read(&sound, VALUES).unwrap();
    let refused = [
        (
            BlockRegion {
                start: vec![41, 30],
                ..sound.clone()
            },
            "beyond the block",
        ),
        (
            BlockRegion {
                start: vec![u32::MAX, 30],
                ..sound.clone()
            },
            "beyond the block",
        ),
        (
            BlockRegion {
                at: vec![0, 11],
                ..sound.clone()
            },
            "beyond the memory",
        ),
        (
            BlockRegion {
                at: vec![usize::MAX, 0],
                ..sound.clone()
            },
            "beyond the memory",
        ),
        (
            BlockRegion {
                start: vec![0],
                ..sound.clone()
            },
            "number of dimensions",
        ),
    ];
    for (region, what) in refused {
        let error = read(&region, VALUES).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains(what), "{error}");
    }
    assert!(
        read(&sound, 2)
            .unwrap_err()
            .message()
            .contains("is a dimension")
    );
    let mut narrow = vec![0_i16; 200];
    let mut target = Strided::row_major(&mut narrow, vec![10, 20]).unwrap();
    let error = reader
        .values(VALUES, std::slice::from_ref(&sound), &mut target)
        .unwrap_err();
    assert!(
        error.message().contains(&format!("{:?}", ElementType::I32)),
        "{error}"
    );
    let other = RegionReader::new(store, TableId(99), 2);
    let mut target = Strided::row_major(&mut memory, vec![10, 20]).unwrap();
    let error = other
        .values(VALUES, std::slice::from_ref(&sound), &mut target)
        .unwrap_err();
    assert!(error.message().contains("another table"), "{error}");

    let memory = |cells: usize, extents: &[usize], strides: &[usize]| {
        let mut cells = vec![0_u8; cells];
        Strided::new(&mut cells, extents.to_vec(), strides.to_vec())
            .map(|_| ())
            .is_ok()
    };
    assert!(memory(12, &[3, 4], &[4, 1]) && memory(12, &[3, 4], &[1, 3]));
    assert!(memory(1, &[1, 1], &[0, 0]) && memory(0, &[0, 4], &[9, 9]));
    assert!(!memory(11, &[3, 4], &[4, 1]), "beyond the end");
    assert!(!memory(99, &[3, 4], &[3, 1]), "rows that overlap");
    assert!(!memory(99, &[3, 4], &[0, 1]) && !memory(99, &[3, 3], &[2, 2]));
    assert!(!memory(99, &[usize::MAX, 2], &[usize::MAX, 1]) && !memory(9, &[], &[]));
}
