//! Bytes as indices of a few bits each, and back through a table.
//!
//! Invariants: as in the module above; eight indices are `width_bits` bytes, so every group of
//! eight begins at a whole byte.

use crate::packing::word_at;

#[cfg(target_arch = "x86_64")]
use super::{Registers, registers};

/// Symbols of an alphabet, by index.
pub(crate) type Symbols = [u8; 128];

/// The index of each byte; [`NO_INDEX`] or above for those outside of the alphabet.
pub(crate) type Indices = [u8; 256];

/// A byte outside of the alphabet.
pub(crate) const NO_INDEX: u8 = 0x80;

/// Where indices lie in a word of eight: in steps of 16, 32 and 64 bits.
#[derive(Debug, Clone, Copy)]
struct Steps {
    masks: [u64; 3],
    width_bits: u32,
}

impl Steps {
    #[inline(always)]
    fn new(width_bits: u32) -> Self {
        assert!((1..=7).contains(&width_bits), "an alphabet of 2 to 128");
        let low = |bits: u32| (1_u64 << bits) - 1;
        Self {
            masks: [
                low(width_bits) * 0x0001_0001_0001_0001,
                low(2 * width_bits) * 0x0000_0001_0000_0001,
                low(4 * width_bits),
            ],
            width_bits,
        }
    }

    /// Eight bytes of one index each as eight indices without gaps.
    #[inline(always)]
    fn squeeze(&self, mut word: u64) -> u64 {
        for (step, mask) in self.masks.into_iter().enumerate() {
            let (room, width) = (8 << step, self.width_bits << step);
            word = (word & mask) | (word >> (room - width)) & (mask << width);
        }
        word
    }

    /// Undoes [`Self::squeeze`]; bits above are ignored.
    #[inline(always)]
    fn spread(&self, mut word: u64) -> u64 {
        for (step, mask) in self.masks.into_iter().enumerate().rev() {
            let (room, width) = (8 << step, self.width_bits << step);
            word = (word & mask) | (word & (mask << width)) << (room - width);
        }
        word
    }
}

/// Number of bytes of so many packed indices.
pub(crate) fn packed_bytes(indices: usize, width_bits: u32) -> usize {
    (indices * width_bits as usize).div_ceil(8)
}

/// Appends the index of each byte; returns whether all have one. If not, what was appended is
/// arbitrary.
#[inline]
pub(crate) fn pack_symbols(
    bytes: &[u8],
    indices: &Indices,
    width_bits: u32,
    out: &mut Vec<u8>,
) -> bool {
    let start = out.len();
    let end = start + packed_bytes(bytes.len(), width_bits);
    // Room for the last whole word.
    out.resize(end + 8, 0);
    let target = &mut out[start..];
    #[cfg(target_arch = "x86_64")]
    if registers() != Registers::Baseline {
        // SAFETY: the processor has the features it is compiled for.
        let is_whole = unsafe { x86::pack(bytes, indices, width_bits, target) };
        out.truncate(end);
        return is_whole;
    }
    let is_whole = pack_body(bytes, indices, width_bits, target);
    out.truncate(end);
    is_whole
}

/// Packs the indices; overwrites up to eight bytes of `out` after them. Returns whether each byte has an index.
fn pack_body(bytes: &[u8], indices: &Indices, width_bits: u32, out: &mut [u8]) -> bool {
    let steps = Steps::new(width_bits);
    let width = width_bits as usize;
    let (groups, rest) = bytes.as_chunks::<8>();
    let mut seen = 0;
    let mut position = 0;
    for group in groups {
        let word = u64::from_le_bytes(group.map(|byte| indices[usize::from(byte)]));
        seen |= word;
        out[position..position + 8].copy_from_slice(&steps.squeeze(word).to_le_bytes());
        position += width;
    }
    let mut last = [0; 8];
    for (index, &byte) in last.iter_mut().zip(rest) {
        *index = indices[usize::from(byte)];
    }
    let word = u64::from_le_bytes(last);
    out[position..position + 8].copy_from_slice(&steps.squeeze(word).to_le_bytes());
    (seen | word) & (u64::from(NO_INDEX) * 0x0101_0101_0101_0101) == 0
}

/// Fills `out` with the symbols of the packed indices; returns the highest index.
#[inline]
pub(crate) fn unpack_symbols(
    packed: &[u8],
    symbols: &Symbols,
    width_bits: u32,
    out: &mut [u8],
) -> u8 {
    assert!(
        packed.len() == packed_bytes(out.len(), width_bits),
        "as many indices as bytes"
    );
    #[cfg(target_arch = "x86_64")]
    if registers() != Registers::Baseline {
        // SAFETY: the processor has the features it is compiled for.
        return unsafe { x86::unpack(packed, symbols, width_bits, out) };
    }
    unpack_body(packed, symbols, width_bits, out)
}

fn unpack_body(packed: &[u8], symbols: &Symbols, width_bits: u32, out: &mut [u8]) -> u8 {
    if width_bits == 4 && out.len() >= MANY_BYTES {
        return unpack_nibbles(packed, symbols, out);
    }
    let steps = Steps::new(width_bits);
    let mut highest = 0;
    for (group, out) in out.chunks_mut(8).enumerate() {
        let word = steps.spread(word_at(packed, group * width_bits as usize));
        for (byte, index) in out.iter_mut().zip(word.to_le_bytes()) {
            highest = highest.max(index);
            *byte = symbols[usize::from(index) % symbols.len()];
        }
    }
    highest
}

/// From this many bytes on, a table of pairs pays.
const MANY_BYTES: usize = 2_048;

/// Unpacks indices of four bits, two at a time.
fn unpack_nibbles(packed: &[u8], symbols: &Symbols, out: &mut [u8]) -> u8 {
    let mut pairs = [[0; 2]; 256];
    for (index, pair) in pairs.iter_mut().enumerate() {
        *pair = [symbols[index % 16], symbols[index / 16]];
    }
    let (mut highest_low, mut highest_high) = (0, 0);
    for (&byte, out) in packed.iter().zip(out.chunks_mut(2)) {
        highest_low = highest_low.max(byte & 0xF);
        highest_high = highest_high.max(byte >> 4);
        out.copy_from_slice(&pairs[usize::from(byte)][..out.len()]);
    }
    highest_low.max(highest_high)
}

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_come_back_at_every_width_and_length() {
        for width_bits in 1..=7_u32 {
            let count = 1_usize << width_bits;
            let mut symbols = [0; 128];
            let mut indices = [NO_INDEX; 256];
            for (index, slot) in symbols[..count].iter_mut().enumerate() {
                let symbol = u8::try_from(index + 40).unwrap();
                *slot = symbol;
                indices[usize::from(symbol)] = u8::try_from(index).unwrap();
            }
            for length in (0..70).chain([255, 256, 1_000, 2_048, 2_999]) {
                let bytes: Vec<u8> = (0..length)
                    .map(|place: usize| symbols[(place * 7 + place / 5) % count])
                    .collect();
                let mut packed = vec![9];
                assert!(pack_symbols(&bytes, &indices, width_bits, &mut packed));
                let mut portable = vec![0; packed.len() + 7];
                assert!(pack_body(&bytes, &indices, width_bits, &mut portable));
                assert_eq!(packed[1..], portable[..packed.len() - 1]);
                for unpack in [unpack_symbols, unpack_body] {
                    let mut back = vec![0; length];
                    let highest = unpack(&packed[1..], &symbols, width_bits, &mut back);
                    assert_eq!(back, bytes, "{width_bits} bits, {length} bytes");
                    assert!(usize::from(highest) < count);
                }
            }
            for place in [0, 5, 8, 31, 32, 77, 99] {
                for other in [0, 8, 39, 168, 255] {
                    let mut bytes = [40; 100];
                    bytes[place] = other;
                    let is_whole = pack_symbols(&bytes, &indices, width_bits, &mut Vec::new());
                    assert!(!is_whole, "{other} at {place}");
                }
            }
        }
    }
}
