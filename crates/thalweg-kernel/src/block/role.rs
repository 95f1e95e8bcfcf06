//! The roles of chunks: which data of its column each holds, and where in a block it lies.

use crate::wire::Fault;

/// The role of a chunk: which data of its column it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Role {
    /// The values themselves; those of null rows and of empty positions mean nothing.
    Values = 1,
    /// One bit per position: whether it has a value. Absent when no row is null.
    Validity = 2,
    /// One bit per position, of column 0: whether it holds a row. Absent when all do.
    Presence = 4,
    /// For each page a value that none of the page is smaller than.
    ZoneLows = 20,
    /// For each page a value that none of the page is larger than.
    ZoneHighs = 21,
    /// A Bloom filter of the values: blocks of [`FILTER_BLOCK_BYTES`].
    Filter = 22,
}

/// Bytes of a block of a filter, of which a look-up needs one.
pub const FILTER_BLOCK_BYTES: u32 = 32;

/// Most blocks of a filter.
pub const MAX_FILTER_BLOCKS: u32 = 131_072;

/// The roles from here on lie in the front of a block.
const FIRST_FRONT_ROLE: u8 = 16;

impl Role {
    const ALL: [Self; 6] = [
        Self::Values,
        Self::Validity,
        Self::Presence,
        Self::ZoneLows,
        Self::ZoneHighs,
        Self::Filter,
    ];

    /// The word for it in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Values => "values",
            Self::Validity => "nulls",
            Self::Presence => "presence",
            Self::ZoneLows => "lows of pages",
            Self::ZoneHighs => "highs of pages",
            Self::Filter => "filter",
        }
    }

    /// The role of a byte read from a file.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&role| role as u8 == byte)
    }

    /// The role of a byte read from a file; bytes without a role are of a newer version.
    pub(super) fn parse(byte: u8) -> Result<Self, Fault> {
        let unknown = || Fault::OtherVersion(format!("chunks of role {byte}"));
        Self::from_byte(byte).ok_or_else(unknown)
    }

    /// Whether chunks of this role decide which pages are read, and so lie in front of all that belongs to rows.
    #[must_use]
    pub fn is_front(self) -> bool {
        self as u8 >= FIRST_FRONT_ROLE
    }
}
