//! Fixed little-endian fields of frames, segments, roots and edits: [`crate::wire::Reader`] with errors that name the
//! structure.
//!
//! Invariants: a reader never looks beyond its bytes and never allocates by a count it has not compared with what is
//! left; what is left over at the end is an error (`finish`).

use crate::error::{Error, Result};
use crate::wire::{Fault, Parsed, Reader};
use std::fmt;

/// Appends fields to a buffer.
pub(crate) trait PutFields {
    fn put_u8(&mut self, v: u8);
    fn put_u32(&mut self, v: u32);
    fn put_u64(&mut self, v: u64);
    fn put_i64(&mut self, v: i64);
    /// A length as u32 and the bytes.
    fn put_bytes(&mut self, v: &[u8]);
}

impl PutFields for Vec<u8> {
    fn put_u8(&mut self, v: u8) {
        self.push(v);
    }
    fn put_u32(&mut self, v: u32) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    fn put_u64(&mut self, v: u64) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    fn put_i64(&mut self, v: i64) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    fn put_bytes(&mut self, v: &[u8]) {
        self.put_u32(len_u32(v.len()));
        self.extend_from_slice(v);
    }
}

/// A length that a structure on disk holds as u32.
///
/// # Panics
/// When it does not fit: every caller's limit lies far below.
pub(crate) fn len_u32(len: usize) -> u32 {
    assert!(
        len <= u32::MAX as usize,
        "a structure of {len} bytes exceeds every limit of the format"
    );
    #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
    {
        len as u32
    }
}

/// Takes fields from the structure called `what`.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    reader: Reader<'a>,
    what: &'static str,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self {
            reader: Reader::new(bytes),
            what,
        }
    }

    fn told<T>(&self, parsed: Parsed<T>) -> Result<T> {
        parsed.map_err(|wrong| Error::corruption(self.what, wrong))
    }

    /// A part that is read by the rules of its own.
    pub(crate) fn read<T>(
        &mut self,
        part: impl FnOnce(&mut Reader<'a>) -> Result<T, Fault>,
    ) -> Result<T> {
        part(&mut self.reader).map_err(|fault| fault.at(self.what, "a part of it"))
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let parsed = self.reader.take(bytes);
        self.told(parsed)
    }
    pub(crate) fn u8(&mut self) -> Result<u8> {
        let parsed = self.reader.u8();
        self.told(parsed)
    }
    pub(crate) fn u16(&mut self) -> Result<u16> {
        let parsed = self.reader.u16();
        self.told(parsed)
    }
    pub(crate) fn u32(&mut self) -> Result<u32> {
        let parsed = self.reader.u32();
        self.told(parsed)
    }
    pub(crate) fn u64(&mut self) -> Result<u64> {
        let parsed = self.reader.u64();
        self.told(parsed)
    }
    pub(crate) fn i64(&mut self) -> Result<i64> {
        let parsed = self.reader.i64();
        self.told(parsed)
    }

    pub(crate) fn id(&mut self) -> Result<[u8; 16]> {
        let mut id = [0; 16];
        id.copy_from_slice(self.take(16)?);
        Ok(id)
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> Result<&'a [u8]> {
        self.take(self.reader.left_bytes())
    }

    /// Whether nothing is left.
    pub(crate) fn is_at_end(&self) -> bool {
        self.reader.left_bytes() == 0
    }

    /// A u32 length and that many bytes.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let bytes = self.u32()?;
        self.take(bytes as usize)
    }

    /// A name: a u32 length and that many bytes of UTF-8.
    pub(crate) fn str(&mut self) -> Result<&'a str> {
        let bytes = self.bytes()?;
        self.told(std::str::from_utf8(bytes).map_err(|_| "a name is not UTF-8"))
    }

    pub(crate) fn string(&mut self) -> Result<String> {
        self.str().map(str::to_owned)
    }

    /// A count of items of at least `item_bytes` each: refused when the bytes left cannot hold them.
    pub(crate) fn count(&mut self, item_bytes: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        let fits = count.saturating_mul(item_bytes) <= self.reader.left_bytes();
        self.told(if fits {
            Ok(count)
        } else {
            Err("a count is larger than what follows")
        })
    }

    /// Bytes that are zero in this version, and mean something in a newer one where they are not.
    ///
    /// # Errors
    /// `Unsupported` where they are not zero.
    pub(crate) fn reserved(&mut self, bytes: usize) -> Result<()> {
        if self.take(bytes)?.iter().all(|&byte| byte == 0) {
            Ok(())
        } else {
            Err(self.unknown("bytes that are reserved are not zero"))
        }
    }

    /// The error of a kind, flag or version that only a newer version knows.
    pub(crate) fn unknown(&self, what: impl fmt::Display) -> Error {
        Error::newer(self.what, what)
    }

    /// Checks that nothing is left over.
    pub(crate) fn finish(self) -> Result<()> {
        let parsed = self.reader.end();
        self.told(parsed)
    }
}
