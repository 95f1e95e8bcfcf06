//! Bits of rows, read 64 at a time: the lowest bit of a byte comes first, as in Arrow.
//!
//! Invariants: a [`Bitmap`] that exists lies within its bytes; bits past its end read as zero.

/// A borrowed run of bits that may start inside a byte.
#[derive(Clone, Copy, Debug)]
pub struct Bitmap<'a> {
    bytes: &'a [u8],
    offset_bits: usize,
    len_bits: usize,
}

impl<'a> Bitmap<'a> {
    /// `len_bits` bits of `bytes`, from bit `offset_bits` on.
    ///
    /// # Panics
    /// When `bytes` is too short: the caller's arithmetic is wrong.
    #[must_use]
    pub fn new(bytes: &'a [u8], offset_bits: usize, len_bits: usize) -> Self {
        let end_bits = offset_bits.checked_add(len_bits);
        assert!(
            end_bits.is_some_and(|end_bits| end_bits.div_ceil(8) <= bytes.len()),
            "{len_bits} bits from bit {offset_bits} on do not fit {} bytes",
            bytes.len()
        );
        let first_byte = offset_bits / 8;
        Self {
            bytes: &bytes[first_byte..],
            offset_bits: offset_bits % 8,
            len_bits,
        }
    }

    /// How many bits there are.
    #[must_use]
    pub fn len_bits(&self) -> usize {
        self.len_bits
    }

    /// Whether bit `index` is set; false past the end.
    #[must_use]
    pub fn is_set(&self, index: usize) -> bool {
        let at = self.offset_bits + index;
        index < self.len_bits && self.bytes[at / 8] >> (at % 8) & 1 == 1
    }

    /// Bits `start` to `start + 63`, the first one lowest.
    #[must_use]
    pub fn word(&self, start: usize) -> u64 {
        let Some(left) = self.len_bits.checked_sub(start).filter(|&left| left > 0) else {
            return 0;
        };
        let (byte, shift) = (
            (self.offset_bits + start) / 8,
            (self.offset_bits + start) % 8,
        );
        let mut near = [0; 8];
        let available = self.bytes.len() - byte;
        let taken = available.min(8);
        near[..taken].copy_from_slice(&self.bytes[byte..byte + taken]);
        let mut word = u64::from_le_bytes(near) >> shift;
        if shift > 0 && available > 8 {
            word |= u64::from(self.bytes[byte + 8]) << (64 - shift);
        }
        if left < 64 {
            word & ((1 << left) - 1)
        } else {
            word
        }
    }

    /// How many bits are set.
    #[must_use]
    pub fn count_ones(&self) -> usize {
        (0..self.len_bits)
            .step_by(64)
            .map(|start| self.word(start).count_ones() as usize)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_agree_with_single_bits(bytes in prop::collection::vec(any::<u8>(), 0..40), offset in 0_usize..70, cut in 0_usize..70) {
            let total = bytes.len() * 8;
            let offset = offset.min(total);
            let len = (total - offset).saturating_sub(cut);
            let bits = Bitmap::new(&bytes, offset, len);
            let plain: Vec<bool> = (offset..offset + len).map(|at| bytes[at / 8] >> (at % 8) & 1 == 1).collect();
            prop_assert_eq!(bits.count_ones(), plain.iter().filter(|&&bit| bit).count());
            for start in 0..len + 65 {
                let expected = (0..64).filter(|bit| plain.get(start + bit) == Some(&true)).fold(0, |word, bit| word | 1_u64 << bit);
                prop_assert_eq!(bits.word(start), expected);
                prop_assert_eq!(bits.is_set(start), expected & 1 == 1);
            }
        }
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn bits_beyond_the_bytes_are_refused() {
        let _ = Bitmap::new(&[0; 2], 9, 8);
    }
}
