//! Names of items: which block of a GROUP or which fragment is meant, for good.
//!
//! Invariants
//! - No other item of an order has the same key and fragment, ever: ids of files are used once, and a block of a GROUP was
//!   never rewritten. Keys alone are used again, by what comes in the place of others.
//! - The CRC is part of the name: an item with another one is not there under it.

use super::{Entry, EntryKey};
use crate::fields::PutFields;
use crate::ids::{CommitNo, FileId};
use crate::wire::{Fault, Reader};

/// The name of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemName {
    /// Its key; a commit of 0 is that of the frame in which the name stands.
    pub key: EntryKey,
    /// The fragment; file 0 for a block of a GROUP.
    pub fragment: FileId,
    /// CRC of the head of the block or of the root page.
    pub crc: u32,
}

impl ItemName {
    /// Bytes of a name.
    pub(crate) const BYTES: usize = 32;

    /// The name of an item: a block, or the root page of a fragment.
    #[must_use]
    pub fn of(item: &Entry) -> Self {
        let fragment = match item.is_block() {
            true => FileId(0),
            false => item.address.file,
        };
        Self {
            key: item.key(),
            fragment,
            crc: item.address.head_crc,
        }
    }

    /// The lowest name that an item with a key can have.
    pub(crate) fn first_with(key: EntryKey) -> Self {
        let (fragment, crc) = (FileId(0), 0);
        Self { key, fragment, crc }
    }

    /// The name in the frame of `commit`, where a commit of 0 means that one.
    #[must_use]
    pub fn in_frame(mut self, commit: CommitNo) -> Self {
        if self.key.commit == CommitNo(0) {
            self.key.commit = commit;
        }
        self
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_i64(self.key.key_min);
        out.put_u64(self.key.commit.0);
        out.put_u32(self.key.ordinal);
        out.put_u64(self.fragment.0);
        out.put_u32(self.crc);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let key = EntryKey {
            key_min: reader.i64()?,
            commit: CommitNo(reader.u64()?),
            ordinal: reader.u32()?,
        };
        let (fragment, crc) = (FileId(reader.u64()?), reader.u32()?);
        Ok(Self { key, fragment, crc })
    }
}
