//! Page grids against a plain model, their bytes, and hostile ones.

use super::*;
use crate::wire::{Fault, Reader};

/// A grid of 5 x 6 positions in pages of 2 x 4.
fn example(page_order: GridOrder, position_order: GridOrder) -> Grid {
    let dimension = |column_id: u32, extent: u32, page_extent: u32| Dimension {
        column_id,
        first: -10,
        step: 5,
        extent,
        page_extent,
    };
    let dimensions = vec![dimension(1, 5, 2), dimension(2, 6, 4)];
    Grid::new(page_order, position_order, dimensions).unwrap()
}

#[test]
fn the_grid_of_the_format_page() {
    let grid = example(GridOrder::RowMajor, GridOrder::RowMajor);
    let starts: Vec<usize> = (0..grid.pages())
        .map(|page| grid.page_range(page).start)
        .collect();
    assert_eq!(starts, [0, 8, 12, 20, 24, 28]);
    assert_eq!((grid.positions(), grid.page_positions()), (30, 8));
    // The second row of the second page.
    assert_eq!(grid.position(&[1, 4]), 10);
    let columns = example(GridOrder::ColumnMajor, GridOrder::RowMajor);
    let starts: Vec<usize> = (0..columns.pages())
        .map(|page| columns.page_range(page).start)
        .collect();
    assert_eq!(starts, [0, 8, 16, 20, 24, 28]);
    let coordinates = grid.dimensions()[0];
    assert_eq!(coordinates.coordinate(4), Some(10));
    assert_eq!(coordinates.coordinate(5), None);
}

#[test]
fn a_block_with_a_grid_has_these_bytes() {
    let grid = example(GridOrder::RowMajor, GridOrder::ColumnMajor);
    let spec = BlockSpec {
        layout: 4,
        sorted: false,
        ..spec(30)
    };
    let mut builder = BlockBuilder::with_paging(spec, Paging::Grid(grid.clone()), 1);
    let chunk = chunk_of(ElementType::I32, 30, 6, &[], 1);
    builder.add_chunk(3, Role::Values, &chunk).unwrap();
    let block = builder.finish((7, 7), vec![]).unwrap();
    let expected = concat!(
        // 2 dimensions, pages row-major, positions column-major.
        "02010200",
        "00000000",
        // Column 1 from -10 in steps of 5: 5 positions in pages of 2.
        "01000000",
        "00000000",
        "f6ffffffffffffff",
        "0500000000000000",
        "05000000",
        "02000000",
        // Column 2.
        "02000000",
        "00000000",
        "f6ffffffffffffff",
        "0500000000000000",
        "06000000",
        "04000000",
    );
    assert_eq!(hex(&block.bytes[64..136]), expected);
    assert_eq!(&block.bytes[36..40], [4, 0, 0, 0]);
    assert_eq!(&block.bytes[52..56], [8, 0, 0, 0]);
    let head = verify(&block.bytes, &block.entry.address).unwrap();
    assert_eq!(head.paging(), &Paging::Grid(grid));
    assert_eq!(head.pages(), 6);

    let address = at_start(&block);
    let (store, _sim) = stored(&block.bytes, 0);
    let mut reader = store.block(&address).unwrap();
    let found = reader.read(&[Wanted::all(3, Role::Values)]).unwrap();
    let pages = found[0].as_ref().unwrap();
    let rows: Vec<usize> = (0..6).map(|page| pages.page_rows(page)).collect();
    assert_eq!(rows, [8, 4, 8, 4, 4, 2]);
    assert_eq!(pages.page(5), [5]);
}

/// Dimensions with few positions.
fn dimensions() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let dimension = (1_u32..9).prop_flat_map(|extent| (Just(extent), 1..=extent));
    prop::collection::vec(dimension, 1..5)
}

fn order() -> impl Strategy<Value = GridOrder> {
    prop_oneof![Just(GridOrder::RowMajor), Just(GridOrder::ColumnMajor)]
}

fn grid_of(orders: (GridOrder, GridOrder), extents: &[(u32, u32)]) -> Grid {
    let dimensions = extents
        .iter()
        .zip(1..)
        .map(|(&(extent, page_extent), column_id)| Dimension {
            column_id,
            first: 0,
            step: 1,
            extent,
            page_extent,
        });
    Grid::new(orders.0, orders.1, dimensions.collect()).unwrap()
}

/// All indices of boxes of these extents, the slowest dimension first as `order` says.
fn indices(order: GridOrder, extents: &[u32]) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new()];
    let slowest_first: Vec<u32> = match order {
        GridOrder::RowMajor => extents.to_vec(),
        GridOrder::ColumnMajor => extents.iter().rev().copied().collect(),
    };
    for extent in slowest_first {
        let longer =
            |index: Vec<u32>| (0..extent).map(move |last| [index.clone(), vec![last]].concat());
        all = all.into_iter().flat_map(longer).collect();
    }
    if order == GridOrder::ColumnMajor {
        all.iter_mut().for_each(|index| index.reverse());
    }
    all
}

proptest! {
    #[test]
    fn pages_and_positions_are_those_of_a_plain_walk(
        orders in (order(), order()),
        extents in dimensions(),
    ) {
        let grid = grid_of(orders, &extents);
        let pages: Vec<u32> = extents.iter().map(|(extent, page)| extent.div_ceil(*page)).collect();
        let mut position = 0;
        for (number, page) in indices(orders.0, &pages).into_iter().enumerate() {
            let corner: Vec<u32> = page.iter().zip(&extents).map(|(at, (_, page))| at * page).collect();
            let cut: Vec<u32> = corner
                .iter()
                .zip(&extents)
                .map(|(first, (extent, page))| (extent - first).min(*page))
                .collect();
            prop_assert_eq!(grid.page_range(number).start, position);
            for within in indices(orders.1, &cut) {
                let index: Vec<u32> = within.iter().zip(&corner).map(|(at, first)| at + first).collect();
                prop_assert_eq!(grid.position(&index), position);
                prop_assert_eq!(grid.page_of(position), number);
                let mut found = vec![0; index.len()];
                grid.index(position, &mut found);
                prop_assert_eq!(found, index);
                position += 1;
            }
            prop_assert_eq!(grid.page_range(number).end, position);
        }
        prop_assert_eq!((grid.positions() as usize, grid.pages()), (position, grid.pages()));
    }

    #[test]
    fn boxes_meet_the_pages_of_their_positions(
        orders in (order(), order()),
        parts in prop::collection::vec((1_u32..9).prop_flat_map(|extent| {
            (Just(extent), 1..=extent, 0..extent).prop_flat_map(|(extent, page, start)| {
                (Just((extent, page)), Just(start), 0..=extent - start)
            })
        }), 1..5),
    ) {
        let extents: Vec<(u32, u32)> = parts.iter().map(|part| part.0).collect();
        let start: Vec<u32> = parts.iter().map(|part| part.1).collect();
        let lengths: Vec<u32> = parts.iter().map(|part| part.2).collect();
        let grid = grid_of(orders, &extents);
        let mut expected: Vec<usize> = indices(GridOrder::RowMajor, &lengths)
            .into_iter()
            .map(|within| {
                let index: Vec<u32> = within.iter().zip(&start).map(|(at, first)| at + first).collect();
                grid.page_of(grid.position(&index))
            })
            .collect();
        expected.sort_unstable();
        expected.dedup();
        let mut pages = Vec::new();
        grid.pages_of_box(&start, &lengths, &mut pages);
        prop_assert_eq!(&pages, &expected);
        for page in 0..grid.pages() {
            let (mut first, mut cut) = (vec![0; extents.len()], vec![0; extents.len()]);
            grid.page_box(page, &mut first, &mut cut);
            let positions = grid.page_range(page);
            prop_assert_eq!(grid.position(&first), positions.start);
            prop_assert_eq!(cut.iter().product::<u32>() as usize, positions.len());
            let last: Vec<u32> = first.iter().zip(&cut).map(|(first, cut)| first + cut - 1).collect();
            prop_assert_eq!(grid.position(&last), positions.end - 1);
        }
    }

    #[test]
    fn the_bytes_of_a_grid_come_back(orders in (order(), order()), extents in dimensions()) {
        let grid = grid_of(orders, &extents);
        let mut bytes = Vec::new();
        grid.encode_into(&mut bytes);
        prop_assert_eq!(bytes.len(), grid.encoded_bytes());
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(Grid::parse(&mut reader), Ok(grid));
        prop_assert_eq!(reader.left_bytes(), 0);
    }

    #[test]
    fn arbitrary_bytes_are_a_sound_grid_or_none(
        count in 0_u8..4,
        orders in (0_u8..4, 0_u8..4),
        fields in prop::collection::vec((0_u32..4, any::<i64>(), any::<u64>(), any::<u32>(), any::<u32>()), 3),
        shift in 0_u32..33,
    ) {
        let mut bytes = vec![count, orders.0, orders.1, 0, 0, 0, 0, 0];
        for (column_id, first, step, extent, page_extent) in fields {
            bytes.extend_from_slice(&column_id.to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&(first >> shift).to_le_bytes());
            bytes.extend_from_slice(&(step >> shift).to_le_bytes());
            bytes.extend_from_slice(&extent.checked_shr(shift).unwrap_or(0).to_le_bytes());
            bytes.extend_from_slice(&page_extent.checked_shr(shift).unwrap_or(0).to_le_bytes());
        }
        if let Ok(grid) = Grid::parse(&mut Reader::new(&bytes)) {
            prop_assert!(grid.positions() <= MAX_POSITIONS && grid.pages() > 0);
            let last = grid.positions() as usize - 1;
            prop_assert_eq!(grid.page_range(grid.page_of(last)).end, last + 1);
        }
    }
}

#[test]
fn hostile_grids_are_refused() {
    let sound = |extent: u32, page_extent: u32| Dimension {
        column_id: 1,
        first: 0,
        step: 1,
        extent,
        page_extent,
    };
    let other = |extent: u32, page_extent: u32| Dimension {
        column_id: 2,
        ..sound(extent, page_extent)
    };
    let make = |dimensions: Vec<Dimension>| {
        Grid::new(GridOrder::RowMajor, GridOrder::RowMajor, dimensions)
    };
    assert!(make(vec![sound(1 << 24, 1 << 16)]).is_ok());
    let refused = [
        vec![],
        vec![sound(0, 0)],
        vec![sound(5, 0)],
        vec![sound(5, 6)],
        vec![sound((1 << 24) + 1, 1)],
        vec![sound(1 << 24, (1 << 16) + 1)],
        vec![sound(1 << 16, 1), other(1 << 16, 1)],
        vec![sound(1 << 9, 1 << 9), other(1 << 9, 1 << 9)],
        vec![sound(2, 1), sound(2, 1)],
        vec![Dimension {
            column_id: 0,
            ..sound(2, 1)
        }],
        vec![Dimension {
            column_id: 1 << 24,
            ..sound(2, 1)
        }],
        vec![Dimension {
            step: 0,
            ..sound(2, 1)
        }],
        vec![Dimension {
            step: u64::MAX,
            ..sound(3, 1)
        }],
        vec![Dimension {
            first: i64::MAX,
            ..sound(2, 1)
        }],
        (1..=33)
            .map(|column_id| Dimension {
                column_id,
                ..sound(1, 1)
            })
            .collect(),
    ];
    for dimensions in refused {
        assert!(make(dimensions.clone()).is_err(), "{dimensions:?}");
    }
    let mut bytes = Vec::new();
    example(GridOrder::RowMajor, GridOrder::RowMajor).encode_into(&mut bytes);
    bytes[3] = 1;
    let parsed = Grid::parse(&mut Reader::new(&bytes));
    assert!(matches!(parsed, Err(Fault::OtherVersion(_))));
}

#[test]
fn a_dimension_has_no_values_besides() {
    let grid = example(GridOrder::RowMajor, GridOrder::RowMajor);
    let mut builder = BlockBuilder::with_paging(spec(30), Paging::Grid(grid), 1);
    let chunk = chunk_of(ElementType::I32, 30, 6, &[], 1);
    builder.add_chunk(3, Role::Values, &chunk).unwrap();
    let block = builder.finish((0, 0), vec![]).unwrap();
    let mut bytes = block.bytes;
    // The column of the only chunk after header and grid.
    bytes[137] = 2;
    let (bytes, address) = resealed(bytes, block.entry.address);
    let error = BlockHead::parse(&bytes, &address).unwrap_err();
    assert!(error.message().contains("has values besides"), "{error}");
}
