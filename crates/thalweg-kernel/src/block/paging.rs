//! How the positions of a block are cut into pages.

use super::grid::Grid;
use super::role::Role;
use super::spec::{BLOCK_PAGE_POSITIONS, MAX_PAGE_POSITIONS, MIN_PAGE_POSITIONS};
use std::ops::Range;
use thalweg_codec::PAGE_ROWS;

/// How the positions of a block are cut into pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paging {
    /// So many positions a page; the last one may be short.
    Even(u32),
    /// Boxes of a grid.
    Grid(Grid),
}

impl Default for Paging {
    fn default() -> Self {
        Self::Even(BLOCK_PAGE_POSITIONS)
    }
}

impl Paging {
    /// Positions of a page that is not cut.
    #[must_use]
    pub fn page_positions(&self) -> u32 {
        match self {
            Self::Even(positions) => *positions,
            Self::Grid(grid) => grid.page_positions(),
        }
    }

    /// Pages of a block of so many positions.
    #[must_use]
    pub fn pages(&self, positions: u32) -> usize {
        match self {
            Self::Even(of_page) => positions.div_ceil(*of_page) as usize,
            Self::Grid(grid) => grid.pages(),
        }
    }

    /// The grid, if there is one.
    #[must_use]
    pub fn grid(&self) -> Option<&Grid> {
        match self {
            Self::Even(_) => None,
            Self::Grid(grid) => Some(grid),
        }
    }

    /// Whether a block of so many positions can be cut this way.
    pub(super) fn fits(&self, positions: u32) -> bool {
        match self {
            Self::Even(of_page) => (MIN_PAGE_POSITIONS..=MAX_PAGE_POSITIONS).contains(of_page),
            Self::Grid(grid) => grid.positions() == positions,
        }
    }

    /// Pages of a chunk of so many rows.
    pub(super) fn pages_of_chunk(&self, role: Role, rows: u32) -> usize {
        if role.is_front() {
            (rows as usize).div_ceil(PAGE_ROWS)
        } else {
            self.pages(rows)
        }
    }

    /// Which rows of a chunk of so many lie in a page of it.
    pub(super) fn rows_of_page(&self, role: Role, rows: u32, page: usize) -> Range<usize> {
        let even = |of_page: usize| {
            let start = (page * of_page).min(rows as usize);
            start..(start + of_page).min(rows as usize)
        };
        match self {
            _ if role.is_front() => even(PAGE_ROWS),
            Self::Even(of_page) => even(*of_page as usize),
            Self::Grid(grid) => grid.page_range(page),
        }
    }
}
