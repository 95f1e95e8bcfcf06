//! A page grid: coordinates of the positions of a block in several dimensions, and pages that are small boxes of them.
//!
//! Invariants
//! - Position, page and index are arithmetic in both directions; nothing is read or stored for them.
//! - Positions of a page lie next to each other, and pages follow each other in the order of their numbers.
//! - A [`Grid`] that exists is sound: its extents are at least 1, no page extent is larger than that of the block, there are at
//!   most [`MAX_POSITIONS`] positions and [`MAX_PAGE_POSITIONS`] in a page, columns differ, and all coordinates fit an i64.

use super::spec::{MAX_COLUMN_ID, MAX_PAGE_POSITIONS, MAX_POSITIONS};
use crate::wire::{Fault, Reader};
use std::ops::Range;

/// Most dimensions of a grid.
pub const MAX_DIMENSIONS: usize = 32;

/// Bytes in front of the dimensions.
const GRID_HEADER_BYTES: usize = 8;

/// Bytes of each dimension.
const DIMENSION_BYTES: usize = 32;

/// Which dimension runs fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GridOrder {
    /// The last one.
    RowMajor = 1,
    /// The first one.
    ColumnMajor = 2,
}

impl GridOrder {
    fn from_byte(byte: u8) -> Option<Self> {
        let all = [Self::RowMajor, Self::ColumnMajor];
        all.into_iter().find(|&order| order as u8 == byte)
    }

    /// The places of `count` dimensions, the slowest first.
    pub fn slowest_first(self, count: usize) -> impl DoubleEndedIterator<Item = usize> + Clone {
        (0..count).map(move |at| match self {
            Self::RowMajor => at,
            Self::ColumnMajor => count - 1 - at,
        })
    }
}

/// One dimension of a block with a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// The column of its coordinates.
    pub column_id: u32,
    /// The coordinate of index 0, as an order key.
    pub first: i64,
    /// The coordinate of index `i` is `first + i * step`.
    pub step: u64,
    /// Indices of the block.
    pub extent: u32,
    /// Indices of a page; the last one of the dimension may be cut.
    pub page_extent: u32,
}

impl Dimension {
    /// Pages along the dimension.
    fn pages(&self) -> usize {
        self.extent.div_ceil(self.page_extent) as usize
    }

    /// Indices of the pages that are the `page`-th along the dimension.
    fn cut(&self, page: usize) -> usize {
        let first = page * self.page_extent as usize;
        (self.page_extent as usize).min(self.extent as usize - first)
    }

    /// The coordinate of an index; `None` beyond the last one.
    #[must_use]
    pub fn coordinate(&self, index: u32) -> Option<i64> {
        let at = i128::from(self.first) + i128::from(self.step) * i128::from(index);
        (index < self.extent).then(|| i64::try_from(at).ok())?
    }
}

/// How the positions of a block lie in several dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    page_order: GridOrder,
    position_order: GridOrder,
    dimensions: Vec<Dimension>,
}

impl Grid {
    /// A grid of these dimensions, the slowest one of row-major order first.
    ///
    /// # Errors
    /// A message that names what is wrong with it.
    pub fn new(
        page_order: GridOrder,
        position_order: GridOrder,
        dimensions: Vec<Dimension>,
    ) -> Result<Self, &'static str> {
        if dimensions.is_empty() || dimensions.len() > MAX_DIMENSIONS {
            return Err("a grid has another number of dimensions");
        }
        let sound = |d: &Dimension| {
            let has_pages = d.page_extent > 0 && d.page_extent <= d.extent;
            has_pages && d.step > 0 && d.coordinate(d.extent - 1).is_some()
        };
        if !dimensions.iter().all(sound) {
            return Err("a dimension of a grid has no extent, or ends where no coordinate is");
        }
        let mut ids: Vec<u32> = dimensions.iter().map(|d| d.column_id).collect();
        ids.sort_unstable();
        let differ = ids.windows(2).all(|pair| pair[0] < pair[1]);
        if !differ || ids[0] == 0 || ids[ids.len() - 1] > MAX_COLUMN_ID {
            return Err("dimensions of a grid share a column, or have none");
        }
        let positions = product(dimensions.iter().map(|d| d.extent), MAX_POSITIONS);
        let of_page = product(dimensions.iter().map(|d| d.page_extent), MAX_PAGE_POSITIONS);
        if positions.is_none() || of_page.is_none() {
            return Err("a grid or a page of it has too many positions");
        }
        Ok(Self {
            page_order,
            position_order,
            dimensions,
        })
    }

    /// Its dimensions.
    #[must_use]
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// Positions of the block.
    #[must_use]
    pub fn positions(&self) -> u32 {
        self.dimensions.iter().map(|d| d.extent).product()
    }

    /// Positions of a page that is not cut.
    #[must_use]
    pub fn page_positions(&self) -> u32 {
        self.dimensions.iter().map(|d| d.page_extent).product()
    }

    /// Pages of the block.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.dimensions.iter().map(Dimension::pages).product()
    }

    /// The positions of a page.
    ///
    /// # Panics
    /// When there is no such page.
    #[must_use]
    pub fn page_range(&self, page: usize) -> Range<usize> {
        assert!(page < self.pages(), "page {page} of {}", self.pages());
        let mut along = [0; MAX_DIMENSIONS];
        self.split_page(page, &mut along);
        let (mut start, mut cut) = (0, 1);
        let mut behind = self.positions() as usize;
        for at in self.page_order.slowest_first(self.dimensions.len()) {
            let dimension = &self.dimensions[at];
            behind /= dimension.extent as usize;
            start += cut * along[at] * dimension.page_extent as usize * behind;
            cut *= dimension.cut(along[at]);
        }
        start..start + cut
    }

    /// The number of a page along each dimension.
    fn split_page(&self, page: usize, along: &mut [usize; MAX_DIMENSIONS]) {
        let mut rest = page;
        for at in self.page_order.slowest_first(self.dimensions.len()).rev() {
            let pages = self.dimensions[at].pages();
            along[at] = rest % pages;
            rest /= pages;
        }
    }

    /// The position of an index, one number for each dimension.
    ///
    /// # Panics
    /// When it is not one of the grid.
    #[must_use]
    pub fn position(&self, index: &[u32]) -> usize {
        let fits = |(index, dimension): (&u32, &Dimension)| *index < dimension.extent;
        assert!(
            index.len() == self.dimensions.len() && index.iter().zip(&self.dimensions).all(fits),
            "the index {index:?} is not in the grid"
        );
        let page_of = |at: usize| (index[at] / self.dimensions[at].page_extent) as usize;
        let page = self
            .page_order
            .slowest_first(index.len())
            .fold(0, |page, at| {
                page * self.dimensions[at].pages() + page_of(at)
            });
        let within = self
            .position_order
            .slowest_first(index.len())
            .fold(0, |within, at| {
                let dimension = &self.dimensions[at];
                let offset = (index[at] % dimension.page_extent) as usize;
                within * dimension.cut(page_of(at)) + offset
            });
        self.page_range(page).start + within
    }

    /// The page of a position.
    ///
    /// # Panics
    /// When it is not one of the grid.
    #[must_use]
    pub fn page_of(&self, position: usize) -> usize {
        let mut along = [0; MAX_DIMENSIONS];
        self.split_position(position, &mut along);
        self.page_order
            .slowest_first(self.dimensions.len())
            .fold(0, |page, at| page * self.dimensions[at].pages() + along[at])
    }

    /// The number along each dimension of the page of a position; returns the place of the position in that page.
    fn split_position(&self, position: usize, along: &mut [usize; MAX_DIMENSIONS]) -> usize {
        let positions = self.positions() as usize;
        assert!(position < positions, "position {position} of {positions}");
        let (mut rest, mut cut, mut behind) = (position, 1, positions);
        for at in self.page_order.slowest_first(self.dimensions.len()) {
            let dimension = &self.dimensions[at];
            behind /= dimension.extent as usize;
            let slab = cut * dimension.page_extent as usize * behind;
            along[at] = rest / slab;
            rest -= along[at] * slab;
            cut *= dimension.cut(along[at]);
        }
        rest
    }

    /// The index of a position: one number for each dimension.
    ///
    /// # Panics
    /// When it is not a position of the grid, or `index` has another length than there are dimensions.
    pub fn index(&self, position: usize, index: &mut [u32]) {
        assert_eq!(index.len(), self.dimensions.len(), "a number per dimension");
        let mut along = [0; MAX_DIMENSIONS];
        let mut rest = self.split_position(position, &mut along);
        for at in self.position_order.slowest_first(index.len()).rev() {
            let dimension = &self.dimensions[at];
            let cut = dimension.cut(along[at]);
            let found = along[at] * dimension.page_extent as usize + rest % cut;
            // Below the extent.
            index[at] = u32::try_from(found).unwrap_or(u32::MAX);
            rest /= cut;
        }
    }

    /// How positions are numbered within a page.
    #[must_use]
    pub fn position_order(&self) -> GridOrder {
        self.position_order
    }

    /// The first index of a page along each dimension, and its extents.
    ///
    /// # Panics
    /// When there is no such page, or what is to be filled has another length than there are dimensions.
    pub fn page_box(&self, page: usize, first: &mut [u32], extents: &mut [u32]) {
        let count = self.dimensions.len();
        assert!(page < self.pages(), "page {page} of {}", self.pages());
        assert!(
            first.len() == count && extents.len() == count,
            "a number per dimension"
        );
        let mut along = [0; MAX_DIMENSIONS];
        self.split_page(page, &mut along);
        for (at, dimension) in self.dimensions.iter().enumerate() {
            // Below the extent of the block.
            let start = along[at] * dimension.page_extent as usize;
            first[at] = u32::try_from(start).unwrap_or(u32::MAX);
            let cut = dimension.cut(along[at]);
            extents[at] = u32::try_from(cut).unwrap_or(u32::MAX);
        }
    }

    /// Adds the numbers of all pages that a box of indices meets to `pages`, ascending.
    ///
    /// # Panics
    /// When the box is not one of the grid.
    pub fn pages_of_box(&self, first: &[u32], extents: &[u32], pages: &mut Vec<usize>) {
        let count = self.dimensions.len();
        assert!(
            first.len() == count && extents.len() == count,
            "a number per dimension"
        );
        let mut lows = [0; MAX_DIMENSIONS];
        let mut highs = [0; MAX_DIMENSIONS];
        for (at, dimension) in self.dimensions.iter().enumerate() {
            let (start, extent) = (u64::from(first[at]), u64::from(extents[at]));
            assert!(
                start + extent <= u64::from(dimension.extent),
                "a box beyond the grid"
            );
            if extent == 0 {
                return;
            }
            lows[at] = (first[at] / dimension.page_extent) as usize;
            highs[at] = ((first[at] + (extents[at] - 1)) / dimension.page_extent) as usize;
        }
        let mut along = lows;
        loop {
            let number = |page: usize, at: usize| page * self.dimensions[at].pages() + along[at];
            pages.push(self.page_order.slowest_first(count).fold(0, number));
            // The next one: the fastest dimension that has not reached its end.
            let mut fastest_first = self.page_order.slowest_first(count).rev();
            let Some(next) = fastest_first.find(|at| {
                let has_next = along[*at] < highs[*at];
                along[*at] = if has_next { along[*at] + 1 } else { lows[*at] };
                has_next
            }) else {
                return;
            };
            assert!(along[next] <= highs[next], "a page beyond the box");
        }
    }

    /// Bytes it takes in a head.
    pub(super) fn encoded_bytes(&self) -> usize {
        GRID_HEADER_BYTES + self.dimensions.len() * DIMENSION_BYTES
    }

    pub(super) fn encode_into(&self, out: &mut Vec<u8>) {
        let count = u8::try_from(self.dimensions.len()).unwrap_or(u8::MAX);
        out.extend_from_slice(&[count, self.page_order as u8, self.position_order as u8]);
        out.extend_from_slice(&[0; 5]);
        for dimension in &self.dimensions {
            out.extend_from_slice(&dimension.column_id.to_le_bytes());
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&dimension.first.to_le_bytes());
            out.extend_from_slice(&dimension.step.to_le_bytes());
            out.extend_from_slice(&dimension.extent.to_le_bytes());
            out.extend_from_slice(&dimension.page_extent.to_le_bytes());
        }
    }

    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let count = usize::from(reader.u8()?);
        let mut order =
            || GridOrder::from_byte(reader.u8()?).ok_or("the order of its grid is not known");
        let (page_order, position_order) = (order()?, order()?);
        reader.reserved(5)?;
        if count > MAX_DIMENSIONS || count > reader.left_bytes() / DIMENSION_BYTES {
            return Err("it ends within its grid".into());
        }
        let mut dimensions = Vec::with_capacity(count);
        for _ in 0..count {
            let column_id = reader.u32()?;
            reader.reserved(4)?;
            let (first, step) = (reader.i64()?, reader.u64()?);
            let (extent, page_extent) = (reader.u32()?, reader.u32()?);
            dimensions.push(Dimension {
                column_id,
                first,
                step,
                extent,
                page_extent,
            });
        }
        Ok(Self::new(page_order, position_order, dimensions)?)
    }
}

/// A product that is at most `most`.
fn product(factors: impl Iterator<Item = u32>, most: u32) -> Option<u32> {
    let mut product = 1_u32;
    for factor in factors {
        product = product
            .checked_mul(factor)
            .filter(|&product| product <= most)?;
    }
    Some(product)
}
