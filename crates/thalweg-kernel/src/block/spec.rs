//! The fields of the header of a block that describe its rows, and the limits of blocks.

use crate::ids::TableId;
pub use crate::size_limits::MAX_POSITIONS;

/// Largest block.
pub const MAX_BLOCK_BYTES: usize = 64 << 20;

/// Most columns of a block; column 0 of its presence counts besides.
pub const MAX_BLOCK_COLUMNS: usize = 65_536;

/// Column ids are at most this: an entry has 24 bits for them.
pub const MAX_COLUMN_ID: u32 = (1 << 24) - 1;

/// Positions of a page where the layout asks for nothing else.
pub const BLOCK_PAGE_POSITIONS: u32 = 1_024;

/// Fewest positions of a page without a grid; the last one may be shorter.
pub const MIN_PAGE_POSITIONS: u32 = 64;

/// Most positions of a page.
pub const MAX_PAGE_POSITIONS: u32 = 65_536;

/// Most page entries of a block.
pub const MAX_PAGE_ENTRIES: usize = 131_072;

const _: () = assert!(MAX_POSITIONS as usize == thalweg_codec::MAX_CHUNK_ROWS);
const _: () = assert!(BLOCK_PAGE_POSITIONS as usize == thalweg_codec::PAGE_ROWS);

/// How the rows of a block are arranged. The kernel keeps it for the layout, which gives it its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSpec {
    /// The table.
    pub table: TableId,
    /// The layout that wrote the block; not 0.
    pub layout: u8,
    /// How often its rows were rewritten, 0 for fresh ones; 255 is that often or more.
    pub level: u8,
    /// Which of the table's orders its rows are in.
    pub order: u32,
    /// Positions, each with a row or empty.
    pub positions: u32,
    /// Rows: positions that are not empty.
    pub rows: u32,
    /// The tile, or what else the layout keeps out of the rows.
    pub key: u64,
    /// Rows ascend by the order key.
    pub sorted: bool,
    /// The order key is not stored but computed from `key` and the row number.
    pub implicit_key: bool,
}

pub(super) const FLAG_SORTED: u32 = 1;
pub(super) const FLAG_IMPLICIT_KEY: u32 = 2;
pub(super) const FLAG_GRID: u32 = 4;

/// The flags that are known.
pub(super) const FLAGS: u32 = FLAG_SORTED | FLAG_IMPLICIT_KEY | FLAG_GRID;

impl BlockSpec {
    pub(super) fn flags(&self, has_grid: bool) -> u32 {
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        flag(self.sorted, FLAG_SORTED)
            | flag(self.implicit_key, FLAG_IMPLICIT_KEY)
            | flag(has_grid, FLAG_GRID)
    }

    /// Whether a block can have so many positions and rows.
    pub(super) fn has_sound_counts(&self) -> bool {
        (1..=MAX_POSITIONS).contains(&self.positions) && (1..=self.positions).contains(&self.rows)
    }
}
