//! Features: what a program has to know to read a database, and to write to it (`docs/format/log.md`).
//!
//! Invariants: a bit that a checkpoint has is in all later ones; the slot of the root has the bits of its checkpoint. So a
//! program that lacks one refuses the database as a whole, rather than in the middle of a statement.

use crate::error::{Error, Result};
use std::fmt;

/// Orders above 1.
const ORDERS: u32 = 1 << 0;
/// Masks.
const MASKS: u32 = 1 << 1;
/// Page grids of blocks.
const GRIDS: u32 = 1 << 5;
/// Codecs beyond the first ones.
const CODECS: u32 = 1 << 8;

/// The features that a database uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// Those that whoever reads must know.
    pub(crate) to_read: u32,
    /// Those that whoever writes must know.
    pub(crate) to_write: u32,
}

impl Features {
    /// Features that this program uses in whatever it writes: nothing but the blocks shows which codecs they have, and a
    /// replay does not read them.
    pub(crate) const WRITTEN: Self = Self {
        to_read: CODECS,
        to_write: CODECS,
    };

    /// Features of a database with a table that has indexes.
    pub(crate) const ORDERS: Self = Self {
        to_read: ORDERS,
        to_write: ORDERS,
    };

    /// Features of a database in which rows were hidden.
    pub(crate) const MASKS: Self = Self {
        to_read: MASKS,
        to_write: MASKS,
    };

    /// Features that this program knows.
    const KNOWN: u32 = ORDERS | MASKS | GRIDS | CODECS;

    /// These features and others.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            to_read: self.to_read | other.to_read,
            to_write: self.to_write | other.to_write,
        }
    }

    /// Checks that this program can read the database.
    ///
    /// # Errors
    /// `Unsupported`.
    pub(crate) fn check_reading(self, place: impl fmt::Display) -> Result<()> {
        check(self.to_read, place, "read")
    }

    /// Checks that this program can write to the database.
    ///
    /// # Errors
    /// `Unsupported`.
    pub(crate) fn check_writing(self, place: impl fmt::Display) -> Result<()> {
        check(self.to_write, place, "written to")
    }
}

fn check(used: u32, place: impl fmt::Display, what: &str) -> Result<()> {
    let unknown = used & !Features::KNOWN;
    if unknown == 0 {
        return Ok(());
    }
    let bits = (0..u32::BITS).filter(|bit| unknown >> bit & 1 == 1);
    let bits: Vec<String> = bits.map(|bit| bit.to_string()).collect();
    let bits = bits.join(", ");
    let message =
        format_args!("it uses features that have to be known where it is {what} ({bits})");
    Err(Error::newer(place, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_features_are_refused_by_who_needs_them() {
        Features::WRITTEN.check_reading("root").unwrap();
        Features::WRITTEN.check_writing("root").unwrap();
        let newer = Features {
            to_read: CODECS,
            to_write: CODECS | 1 << 2 | 1 << 31,
        };
        newer.check_reading("root").unwrap();
        let error = newer.check_writing("root").unwrap_err();
        assert!(error.message().contains("(2, 31)"), "{error}");
        let both = newer.with(Features {
            to_read: 1 << 3,
            to_write: 0,
        });
        assert!(both.check_reading("root").is_err());
        assert_eq!(both.to_write, newer.to_write);
    }
}
