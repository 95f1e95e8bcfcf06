//! The names of things on disk. Numbers only rise and are never used twice.
//!
//! Invariant: no number wraps. A number that cannot be counted on is the error of whoever asks for the next one, before
//! anything is written for it.

use crate::error::{Error, ErrorKind, Result};

use std::fmt;
use std::path::Path;

/// 16 random bytes drawn when the database is made; seeds every sealing checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatabaseId(pub [u8; 16]);

impl fmt::Debug for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// A log segment or a fragment: one id space, so that an address needs no kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// A table for its whole life; a dropped table's id is not used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

/// The order of a table that its rows are in; others are derived from it.
pub const ROWS_ORDER: u32 = 0;

/// The place of a commit in the one order of all commits, from 1 on. 0 is "before the first".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitNo(pub u64);

/// One life of a writer: every opening for writing that writes begins a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

/// A byte of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// The segment.
    pub segment: FileId,
    /// The offset in it.
    pub offset: u64,
}

impl Epoch {
    /// The epoch after this one.
    ///
    /// # Errors
    /// `Limit` after the last one.
    pub fn next(self) -> Result<Self> {
        let next = self.0.checked_add(1).map(Self);
        next.ok_or_else(|| used_up("epochs", self.0.into()))
    }
}

impl CommitNo {
    /// The commit after this one.
    ///
    /// # Errors
    /// `Limit` after the last one.
    pub fn next(self) -> Result<Self> {
        let next = self.0.checked_add(1).map(Self);
        next.ok_or_else(|| used_up("commits", self.0))
    }

    /// Whether it is the commit after `before`.
    pub(crate) fn follows(self, before: Self) -> bool {
        self.0.checked_sub(1) == Some(before.0)
    }
}

/// No writer counts to numbers from here on. A root or `live` that holds one is damaged or forged, and nothing is written by
/// it: a writer that counts on from a lower number never gets to the end.
pub(crate) const UNCOUNTABLE: u64 = 1 << 63;

/// Refuses to write by a number to which no writer counts.
pub(crate) fn check_countable(place: &Path, what: &str, number: u64) -> Result<()> {
    if number < UNCOUNTABLE {
        return Ok(());
    }
    let wrong = format!(
        "its {what} is {number}, to which no writer counts: nothing was changed; copy its tables (it can be opened \
         with read_only), or repair it"
    );
    Err(Error::corruption(place.display(), wrong))
}

/// So far above the root's next file id a name in a folder may lie for the id to count as used. A writer gives out far
/// fewer ids between two checkpoints; a name beyond is of a foreign file, which must not use up the numbers.
pub(crate) const MAX_IDS_AHEAD: u64 = 1 << 32;

/// The error of a number that cannot be counted on.
pub(crate) fn used_up(what: &str, count: u64) -> Error {
    let message = format!(
        "the database has used up its {what} ({count}): copy its tables into a new one; it can still be read"
    );
    Error::new(ErrorKind::Limit, message)
}

/// Whether the name of a file uses up its id, where `known` is the next file id of the root.
pub(crate) fn counts_as_used(id: FileId, known: FileId) -> bool {
    id.0 <= known.0.saturating_add(MAX_IDS_AHEAD)
}

#[cfg(test)]
mod tests;
