//! System columns: columns of blocks that no definition lists (docs/format/rows.md).
//!
//! Invariants: a definition gives no column one of their ids; a system column in rows of a layout that does not use it is damage,
//! for it would be lost with the next rewrite; an id that is kept for one is of a newer version.

use crate::error::damaged;
use std::fmt::Display;
use thalweg_kernel::block::{BlockHead, MAX_COLUMN_ID};
use thalweg_kernel::index::Address;
use thalweg_kernel::{Error, ErrorKind, Result};

/// The ids from here on are those of system columns.
pub const FIRST_SYSTEM_COLUMN: u32 = 0xFF_FF00;

/// Marks which cells of an array are deleted.
pub const TOMBSTONE_COLUMN: u32 = 0xFF_FFFF;

/// The times of the stamps of the cells of an array.
pub const STAMP_TIME_COLUMN: u32 = 0xFF_FFFD;

/// The sequences of the stamps of the cells of an array.
pub const STAMP_SEQUENCE_COLUMN: u32 = 0xFF_FFFC;

/// Those that this version knows, all of arrays.
const KNOWN: [u32; 3] = [TOMBSTONE_COLUMN, STAMP_TIME_COLUMN, STAMP_SEQUENCE_COLUMN];

const _: () = assert!(TOMBSTONE_COLUMN == MAX_COLUMN_ID);

/// Refuses a block of a stream with a system column.
///
/// # Errors
/// `Corruption` for one that a stream does not use, `Unsupported` for one that is not known.
pub(crate) fn check_stream_block(head: &BlockHead, address: &Address) -> Result<()> {
    if head.last_column() < FIRST_SYSTEM_COLUMN {
        return Ok(());
    }
    let system = head.chunks().map(|chunk| chunk.column_id);
    let mut ids = system.filter(|id| *id >= FIRST_SYSTEM_COLUMN);
    ids.try_for_each(|id| Err(refused(id, address)))
}

/// Refuses raw rows with a system column: no layout has one there.
///
/// # Errors
/// As for blocks; `Corruption` also for ids that no column has.
pub(crate) fn check_raw(id: u32) -> Result<()> {
    if id < FIRST_SYSTEM_COLUMN {
        return Ok(());
    }
    if id > MAX_COLUMN_ID {
        return Err(damaged("raw rows", "a column id beyond the last one"));
    }
    Err(refused(id, "raw rows"))
}

fn refused(id: u32, place: impl Display) -> Error {
    if KNOWN.contains(&id) {
        return damaged(
            place,
            format_args!("the system column {id} is not one of a stream"),
        );
    }
    let message = format!(
        "{place}: the system column {id} is not known to this version of Thalweg; a newer one wrote it"
    );
    Error::new(ErrorKind::Unsupported, message)
}
