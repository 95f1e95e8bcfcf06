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

/// Bytes of so many indices.
pub(crate) fn packed_bytes(indices: usize, width_bits: u32) -> usize {
    (indices * width_bits as usize).div_ceil(8)
}

dispatch! {
    /// Appends the index of each byte; says whether all have one. If not, what was appended is
    /// arbitrary.
    pack_symbols, pack_body, <>(bytes: &[u8], indices: &Indices, width_bits: u32, out: &mut Vec<u8>) -> bool
}

#[inline(always)]
fn pack_body(bytes: &[u8], indices: &Indices, width_bits: u32, out: &mut Vec<u8>) -> bool {
    let steps = Steps::new(width_bits);
    let width = width_bits as usize;
    let start = out.len();
    let end = start + packed_bytes(bytes.len(), width_bits);
    // Room for the last whole word.
    out.resize(end + 8, 0);
    let (groups, rest) = bytes.as_chunks::<8>();
    let mut seen = 0;
    let mut position = start;
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
    out.truncate(end);
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

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! Four groups of eight at a time: the table look-up is a shuffle within registers, for 16
    //! symbols each.

    use super::{Steps, Symbols, unpack_body};
    use crate::packing::word_at;
    use std::arch::x86_64::{
        __m256i, _mm_cvtsi32_si128, _mm256_adds_epu8, _mm256_and_si256, _mm256_max_epu8,
        _mm256_or_si256, _mm256_set_epi64x, _mm256_set1_epi8, _mm256_set1_epi64x,
        _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_sll_epi64, _mm256_storeu_si256,
        _mm256_xor_si256,
    };

    const GROUPS: usize = 4;
    const BYTES: usize = 8 * GROUPS;
    /// The index of the first symbol of each table.
    const FIRST: [i8; 8] = [0, 16, 32, 48, 64, 80, 96, 112];

    #[target_feature(enable = "avx2,bmi2")]
    pub(super) fn unpack(packed: &[u8], symbols: &Symbols, width_bits: u32, out: &mut [u8]) -> u8 {
        let tables = 1_usize << width_bits.saturating_sub(4);
        match tables {
            1 => unpack_with::<1>(packed, symbols, width_bits, out),
            2 => unpack_with::<2>(packed, symbols, width_bits, out),
            4 => unpack_with::<4>(packed, symbols, width_bits, out),
            _ => unpack_with::<8>(packed, symbols, width_bits, out),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi2")]
    fn unpack_with<const TABLES: usize>(
        packed: &[u8],
        symbols: &Symbols,
        width_bits: u32,
        out: &mut [u8],
    ) -> u8 {
        let steps = Steps::new(width_bits);
        let width = width_bits as usize;
        let tables: [__m256i; TABLES] = std::array::from_fn(|table| half_twice(symbols, table));
        // The last group reads eight bytes from where its own begin.
        let whole = (packed.len().saturating_sub(8) / width).min(out.len() / 8) / GROUPS;
        let mut highest = _mm256_setzero_si256();
        let (registers, _) = out[..whole * BYTES].as_chunks_mut::<BYTES>();
        for (index, register) in registers.iter_mut().enumerate() {
            let word =
                |group: usize| word_at(packed, (index * GROUPS + group) * width).cast_signed();
            let words = _mm256_set_epi64x(word(3), word(2), word(1), word(0));
            let indices = spread(&steps, words);
            highest = _mm256_max_epu8(highest, indices);
            let bytes = look_up(&tables, indices);
            // SAFETY: writes the 32 bytes of the array; any alignment will do.
            unsafe { _mm256_storeu_si256(register.as_mut_ptr().cast(), bytes) };
        }
        let mut seen = [0_u8; BYTES];
        // SAFETY: the same.
        unsafe { _mm256_storeu_si256(seen.as_mut_ptr().cast(), highest) };
        let highest = seen.into_iter().max().unwrap_or(0);
        let rest = &packed[whole * GROUPS * width..];
        highest.max(unpack_body(
            rest,
            symbols,
            width_bits,
            &mut out[whole * BYTES..],
        ))
    }

    /// [`Steps::spread`] of four words.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn spread(steps: &Steps, mut words: __m256i) -> __m256i {
        for (step, mask) in steps.masks.into_iter().enumerate().rev() {
            let (room, width) = (8 << step, steps.width_bits << step);
            let low = _mm256_set1_epi64x(mask.cast_signed());
            let high = _mm256_set1_epi64x((mask << width).cast_signed());
            let by = _mm_cvtsi32_si128((room - width).cast_signed());
            let moved = _mm256_sll_epi64(_mm256_and_si256(words, high), by);
            words = _mm256_or_si256(_mm256_and_si256(words, low), moved);
        }
        words
    }

    /// Sixteen symbols in both halves of a register.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn half_twice(symbols: &Symbols, table: usize) -> __m256i {
        let low = word_at(symbols, table * 16).cast_signed();
        let high = word_at(symbols, table * 16 + 8).cast_signed();
        _mm256_set_epi64x(high, low, high, low)
    }

    /// The symbol of each index. In each table of sixteen the indices of others are moved to 128 or
    /// above, for which a shuffle gives zero.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn look_up<const TABLES: usize>(tables: &[__m256i; TABLES], indices: __m256i) -> __m256i {
        if TABLES == 1 {
            return _mm256_shuffle_epi8(tables[0], indices);
        }
        let mut found = _mm256_setzero_si256();
        for (&table, first) in tables.iter().zip(FIRST) {
            let own = _mm256_xor_si256(indices, _mm256_set1_epi8(first));
            let own = _mm256_adds_epu8(own, _mm256_set1_epi8(0x70));
            found = _mm256_or_si256(found, _mm256_shuffle_epi8(table, own));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_come_back_at_every_width_and_length() {
        for width_bits in 1..=7_u32 {
            let count = 1_usize << width_bits;
            let mut symbols = [0; 128];
            let mut indices = [NO_INDEX; 256];
            for index in 0..count {
                let symbol = u8::try_from(index + 40).unwrap();
                symbols[index] = symbol;
                indices[usize::from(symbol)] = u8::try_from(index).unwrap();
            }
            for length in (0..70).chain([255, 256, 1_000]) {
                let bytes: Vec<u8> = (0..length)
                    .map(|place: usize| symbols[(place * 7 + place / 5) % count])
                    .collect();
                let mut packed = vec![9];
                assert!(pack_symbols(&bytes, &indices, width_bits, &mut packed));
                let mut portable = vec![9];
                assert!(pack_body(&bytes, &indices, width_bits, &mut portable));
                assert_eq!(packed, portable);
                for unpack in [unpack_symbols, unpack_body] {
                    let mut back = vec![0; length];
                    let highest = unpack(&packed[1..], &symbols, width_bits, &mut back);
                    assert_eq!(back, bytes, "{width_bits} bits, {length} bytes");
                    assert!(usize::from(highest) < count);
                }
            }
            assert!(!pack_symbols(
                &[40, 0, 40],
                &indices,
                width_bits,
                &mut Vec::new()
            ));
            assert!(!pack_symbols(
                &[0; 9],
                &indices,
                width_bits,
                &mut Vec::new()
            ));
        }
    }
}
