//! Reading and writing of the small variable-length structures: entry lists, pages, heads, footers, tasks of scans.
//!
//! Invariants: a reader never reads beyond its bytes and never panics; every number has exactly one accepted spelling
//! (overlong varints are refused), so that two byte strings never mean the same; what is wrong is returned as a static
//! text, to which the caller adds the place.

use crate::error::{Error, ErrorKind};
use crate::ids::{DatabaseId, FileId};
use crate::rules::Rule;
use std::fmt;

/// A value that a reader found, or a message that names what was wrong.
pub type Parsed<T> = Result<T, &'static str>;

/// Why bytes that are as they were written cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// They break a rule that all versions have.
    Damaged(&'static str),
    /// Another version of Thalweg wrote them, with what this one does not know.
    OtherVersion(String),
}

impl From<&'static str> for Fault {
    fn from(what: &'static str) -> Self {
        Self::Damaged(what)
    }
}

impl Fault {
    /// A structure of another version than `read`, the only one that this program reads.
    pub fn version(found: impl Into<u32>, read: impl Into<u32>) -> Self {
        let (found, read) = (found.into(), read.into());
        Self::OtherVersion(format!(
            "format version {found}; this program reads version {read}"
        ))
    }

    /// Something that no version up to this one writes.
    pub fn unknown(what: impl fmt::Display) -> Self {
        Self::OtherVersion(format!("{what}, which this program does not know"))
    }

    /// The error of a structure, named by `subject`, that lies at `place`.
    pub fn at(self, place: impl fmt::Display, subject: impl fmt::Display) -> Error {
        match self {
            Self::Damaged(what) => {
                Error::corruption(place, format_args!("{subject} is damaged: {what}"))
            }
            Self::OtherVersion(what) => {
                let message = format!(
                    "{place}: {subject} was written by another version of Thalweg: it has {what}"
                );
                Error::new(ErrorKind::Unsupported, message)
            }
        }
    }
}

/// A cursor over bytes from a file.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

#[expect(
    clippy::missing_errors_doc,
    reason = "all of them fail where bytes end too early or a number is not spelled as it should be"
)]
impl<'a> Reader<'a> {
    /// A cursor at the first of some bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that are left.
    #[must_use]
    pub fn left_bytes(&self) -> usize {
        self.rest.len()
    }

    /// The next bytes, of which there must be so many.
    pub fn take(&mut self, bytes: usize) -> Parsed<&'a [u8]> {
        let (taken, rest) = self
            .rest
            .split_at_checked(bytes)
            .ok_or("it ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or("it ends too early")?;
        self.rest = rest;
        Ok(*taken)
    }

    /// A byte.
    pub fn u8(&mut self) -> Parsed<u8> {
        self.array().map(|[byte]| byte)
    }

    /// A number of two bytes, little-endian.
    pub fn u16(&mut self) -> Parsed<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// A number of four bytes, little-endian.
    pub fn u32(&mut self) -> Parsed<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of eight bytes, little-endian.
    pub fn u64(&mut self) -> Parsed<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Parsed<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// Bytes that are zero in this version, and may mean something in a newer one.
    pub fn reserved(&mut self, bytes: usize) -> Result<(), Fault> {
        if self.take(bytes)?.iter().all(|&byte| byte == 0) {
            Ok(())
        } else {
            Err(Fault::OtherVersion(
                "reserved bytes that are not zero".to_owned(),
            ))
        }
    }

    /// An unsigned number in base 128, lowest digits first.
    pub fn varint(&mut self) -> Parsed<u128> {
        match self.short_varint() {
            Some(value) => Ok(value.into()),
            None => self.long_varint(),
        }
    }

    /// A number of at most nine bytes, as nearly all are; `None` takes nothing.
    #[inline]
    fn short_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for (at, &byte) in self.rest.iter().take(9).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * at);
            if byte < 0x80 {
                let is_shortest = byte > 0 || at == 0;
                return is_shortest.then(|| {
                    self.rest = &self.rest[at + 1..];
                    value
                });
            }
        }
        None
    }

    /// Any number, or what is wrong with it.
    fn long_varint(&mut self) -> Parsed<u128> {
        let mut value = 0_u128;
        for shift in (0..u128::BITS).step_by(7) {
            let byte = self.u8()?;
            let digit = u128::from(byte & 0x7F);
            if digit << shift >> shift != digit {
                return Err("a number has too many digits");
            }
            value |= digit << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 {
                    Err("a number is spelled with leading zeros")
                } else {
                    Ok(value)
                };
            }
        }
        Err("a number has too many digits")
    }

    /// A number in base 128 of at most 64 bits.
    pub fn varint_u64(&mut self) -> Parsed<u64> {
        match self.short_varint() {
            Some(value) => Ok(value),
            None => u64::try_from(self.long_varint()?).map_err(|_| "a number is out of range"),
        }
    }

    /// A number in base 128 of at most 32 bits.
    pub fn varint_u32(&mut self) -> Parsed<u32> {
        u32::try_from(self.varint_u64()?).map_err(|_| "a number is out of range")
    }

    /// A signed number in base 128: n as 2n, or as -2n - 1 if it is negative.
    pub fn zigzag(&mut self) -> Parsed<i128> {
        self.varint()
            .map(|coded| (coded >> 1).cast_signed() ^ -(coded & 1).cast_signed())
    }

    /// Checks that nothing is left.
    pub fn end(&self) -> Parsed<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err("there are bytes behind its end")
        }
    }
}

/// Appends an unsigned number in base 128.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the lowest seven bits are asked for"
)]
pub fn put_varint(mut value: u128, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 & 0x7F | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number in base 128, small magnitudes short.
pub fn put_zigzag(value: i128, out: &mut Vec<u8>) {
    put_varint((value << 1 ^ value >> 127).cast_unsigned(), out);
}

/// Whether a checksum is the one that was stored with what it guards.
#[inline]
pub(crate) fn is_sound(computed: u32, stored: u32) -> bool {
    computed == stored || !Rule::Checksum.is_kept()
}

/// Whether a checksum is the one that was stored as bytes.
pub(crate) fn is_sound_le(computed: u32, stored: &[u8]) -> bool {
    stored
        .first_chunk()
        .is_some_and(|stored| is_sound(computed, u32::from_le_bytes(*stored)))
}

/// The checksum of a sealed structure: it also covers whose it is and where, so that a copy elsewhere is refused.
pub(crate) fn sealing_crc(database: DatabaseId, file: FileId, offset: u64, parts: &[&[u8]]) -> u32 {
    let mut identity = [0; 32];
    identity[..16].copy_from_slice(&database.0);
    identity[16..24].copy_from_slice(&file.0.to_le_bytes());
    identity[24..].copy_from_slice(&offset.to_le_bytes());
    parts.iter().fold(crc32c::crc32c(&identity), |crc, part| {
        crc32c::crc32c_append(crc, part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(value in any::<u128>(), shift in 0_u32..128, signed in any::<i128>()) {
            let (value, signed) = (value >> shift, signed >> shift);
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            put_zigzag(signed, &mut bytes);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert_eq!(reader.zigzag(), Ok(signed));
            prop_assert_eq!(reader.end(), Ok(()));
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.varint_u64().ok(), u64::try_from(value).ok());
        }

        #[test]
        fn every_spelling_is_the_only_one(bytes in prop::collection::vec(prop_oneof![Just(0x80_u8), Just(0), any::<u8>()], 0..24)) {
            let mut reader = Reader::new(&bytes);
            if let Ok(value) = reader.varint() {
                let mut again = Vec::new();
                put_varint(value, &mut again);
                prop_assert_eq!(&bytes[..bytes.len() - reader.left_bytes()], &again[..]);
            }
        }
    }
}
