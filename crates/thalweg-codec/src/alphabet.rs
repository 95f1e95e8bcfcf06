//! Alphabets: texts of few different bytes, each stored as its index in a few bits.
//!
//! Invariants: the symbols of a prelude ascend; a page with a byte outside of them is stored
//! otherwise; the bits after the last index are zero.

use crate::error::{DecodeError, ensure};
use crate::wide::{Indices, NO_INDEX, Symbols, pack_symbols, packed_bytes, unpack_symbols};

/// The most symbols of an alphabet.
pub(crate) const MAX_SYMBOLS: usize = 128;

/// Symbols and their indices.
#[derive(Debug, Clone)]
pub(crate) struct Alphabet {
    symbols: Symbols,
    count: usize,
    indices: Indices,
}

/// The bytes that occur in some texts.
#[derive(Debug, Clone)]
pub(crate) struct SeenBytes {
    seen: [bool; 256],
    count: usize,
}

impl SeenBytes {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            seen: [false; 256],
            count: 0,
        }
    }

    /// Adds the bytes of a text.
    pub(crate) fn add(&mut self, text: &[u8]) {
        for &byte in text {
            let seen = &mut self.seen[usize::from(byte)];
            self.count += usize::from(!*seen);
            *seen = true;
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The alphabet of these bytes; `None` for fewer than two or too many.
    pub(crate) fn alphabet(&self) -> Option<Alphabet> {
        if !(2..=MAX_SYMBOLS).contains(&self.count) {
            return None;
        }
        let (mut symbols, mut indices) = ([0; MAX_SYMBOLS], [NO_INDEX; 256]);
        let mut count = 0;
        for (byte, _) in (0..=u8::MAX).zip(self.seen).filter(|(_, seen)| *seen) {
            symbols[count] = byte;
            indices[usize::from(byte)] = crate::integers::small(count);
            count += 1;
        }
        Some(Alphabet {
            symbols,
            count,
            indices,
        })
    }
}

impl Alphabet {
    /// Bits of an index.
    pub(crate) fn width_bits(&self) -> u32 {
        (self.count - 1).ilog2() + 1
    }

    /// Bytes of the prelude.
    pub(crate) fn prelude_bytes(&self) -> usize {
        1 + self.count
    }

    /// Appends the prelude.
    pub(crate) fn write_prelude(&self, out: &mut Vec<u8>) {
        out.push(crate::integers::small(self.count));
        out.extend_from_slice(&self.symbols[..self.count]);
    }

    /// Bytes of the indices of `bytes` bytes.
    pub(crate) fn packed_bytes(&self, bytes: usize) -> usize {
        packed_bytes(bytes, self.width_bits())
    }

    /// Appends the indices of some bytes; returns whether all have one. If not, what was appended is
    /// arbitrary.
    pub(crate) fn encode(&self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        pack_symbols(bytes, &self.indices, self.width_bits(), out)
    }

    /// Reads a prelude.
    pub(crate) fn read(prelude: &[u8]) -> Result<Self, DecodeError> {
        let (&count, bytes) = prelude
            .split_first()
            .ok_or(DecodeError::new("an alphabet is cut short"))?;
        let count = usize::from(count);
        ensure(
            (2..=MAX_SYMBOLS).contains(&count) && bytes.len() == count,
            "an alphabet of another length",
        )?;
        ensure(
            bytes.windows(2).all(|pair| pair[0] < pair[1]),
            "symbols of an alphabet do not ascend",
        )?;
        let mut symbols = [0; MAX_SYMBOLS];
        symbols[..count].copy_from_slice(bytes);
        Ok(Self {
            symbols,
            count,
            indices: [NO_INDEX; 256],
        })
    }

    /// Fills `out` with the symbols of some indices.
    pub(crate) fn decode(&self, packed: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let width_bits = self.width_bits();
        self.check_length(packed, out.len())?;
        let highest = unpack_symbols(packed, &self.symbols, width_bits, out);
        ensure(usize::from(highest) < self.count, BEYOND)
    }

    /// Appends the symbols from `start` to `end` of `total`.
    pub(crate) fn decode_range(
        &self,
        packed: &[u8],
        (start, end, total): (usize, usize, usize),
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let width = self.width_bits() as usize;
        self.check_length(packed, total)?;
        for position in start..end {
            let bit = position * width;
            let word = crate::packing::word_at(packed, bit / 8) >> (bit % 8);
            let index = word.to_le_bytes()[0] & ((1 << width) - 1);
            ensure(usize::from(index) < self.count, BEYOND)?;
            out.push(self.symbols[usize::from(index)]);
        }
        Ok(())
    }

    fn check_length(&self, packed: &[u8], bytes: usize) -> Result<(), DecodeError> {
        let fits = packed.len() == self.packed_bytes(bytes);
        ensure(fits, "lengths do not add up to the bytes of a page")?;
        let used_bits = bytes * self.width_bits() as usize % 8;
        let unused = packed.last().map_or(0, |last| last >> used_bits);
        ensure(used_bits == 0 || unused == 0, "bits after the last index")
    }
}

const BEYOND: &str = "an index beyond the alphabet";
