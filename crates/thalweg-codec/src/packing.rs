//! Blocks of numbers of a few bits each.
//!
//! Invariants: a block of [`PAGE_ROWS`] numbers lies in FastLanes order, which fills whole wide
//! registers; a shorter one is a plain bit stream, lowest bits first, so that one row does not take
//! the room of 1,024. Which one it is follows from the number of rows alone.

use zerocopy::{FromBytes, IntoBytes};

use crate::PAGE_ROWS;
use crate::error::{DecodeError, ensure};
use crate::wide::Lane;

/// Room for the values of one page, of any lane type.
#[derive(Debug)]
pub(crate) struct PageBuffer {
    words: Box<[u64; PAGE_ROWS]>,
}

impl Default for PageBuffer {
    fn default() -> Self {
        Self {
            words: Box::new([0; PAGE_ROWS]),
        }
    }
}

impl PageBuffer {
    /// The front of the buffer as lanes; they hold what was there before.
    #[inline]
    pub(crate) fn lanes<L: Lane>(&mut self) -> &mut [L; PAGE_ROWS] {
        match <[L; PAGE_ROWS]>::mut_from_prefix(self.words.as_mut_bytes()) {
            Ok((lanes, _)) => lanes,
            // 1,024 words are at least as long and as aligned as 1,024 lanes of up to 64 bits.
            Err(_) => unreachable!("a lane is no longer than a word"),
        }
    }
}

/// Bytes of a block.
pub(crate) fn block_bytes(rows: usize, width_bits: u32) -> usize {
    (rows * width_bits as usize).div_ceil(8)
}

/// Appends the low `width_bits` of each value less `reference`.
pub(crate) fn pack<L: Lane>(
    width_bits: u32,
    values: &[L],
    reference: L,
    buffer: &mut PageBuffer,
    out: &mut Vec<u8>,
) {
    assert!(
        width_bits <= L::BITS && values.len() <= PAGE_ROWS,
        "a block of one page"
    );
    let packed = buffer.lanes::<L>();
    if let Ok(values) = values.try_into() {
        L::pack(width_bits, values, reference, packed);
        out.extend_from_slice(&packed.as_bytes()[..block_bytes(PAGE_ROWS, width_bits)]);
    } else {
        pack_stream(width_bits, values, reference, out);
    }
}

/// Undoes [`pack`]: fills `out` from a block of [`block_bytes`] bytes.
pub(crate) fn unpack<L: Lane>(
    width_bits: u32,
    block: &[u8],
    reference: L,
    buffer: &mut PageBuffer,
    out: &mut [L],
) -> Result<(), DecodeError> {
    ensure(width_bits <= L::BITS, "width above that of the values")?;
    ensure(
        block.len() == block_bytes(out.len(), width_bits),
        "block of the wrong length",
    )?;
    // Copied, because blocks lie at any alignment in their page.
    buffer.words.as_mut_bytes()[..block.len()].copy_from_slice(block);
    if let Ok(out) = out.try_into() {
        L::unpack(width_bits, buffer.lanes::<L>(), reference, out);
    } else {
        unpack_stream(width_bits, &buffer.words, reference, out);
    }
    Ok(())
}

fn pack_stream<L: Lane>(width_bits: u32, values: &[L], reference: L, out: &mut Vec<u8>) {
    let mask = low_bits(width_bits);
    let (mut pending, mut pending_bits) = (0_u128, 0);
    for value in values {
        pending |= u128::from(value.wsub(reference).widen() & mask) << pending_bits;
        pending_bits += width_bits;
        while pending_bits >= 8 {
            out.push(low_byte(pending));
            pending >>= 8;
            pending_bits -= 8;
        }
    }
    if pending_bits > 0 {
        out.push(low_byte(pending));
    }
}

/// The words of `packed` start with the block.
fn unpack_stream<L: Lane>(width_bits: u32, packed: &[u64; PAGE_ROWS], reference: L, out: &mut [L]) {
    assert!(
        out.len() < PAGE_ROWS && width_bits <= 64,
        "a short block of words"
    );
    let mask = low_bits(width_bits);
    let mut position = 0;
    for value in out {
        let (word, shift) = (position / 64, position % 64);
        // At most 1,023 values of 64 bits: there is a word behind the last one. Shifted twice, because a shift by all
        // 64 bits is none.
        let low = u64::from_le(packed[word]) >> shift;
        let high = u64::from_le(packed[word + 1]) << 1 << (63 - shift);
        *value = L::truncate((low | high) & mask).wadd(reference);
        position += width_bits as usize;
    }
}

/// A mask of the low `width_bits` bits, at most 64.
pub(crate) fn low_bits(width_bits: u32) -> u64 {
    u64::MAX.checked_shr(64 - width_bits).unwrap_or(0)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the low byte is what is asked for"
)]
fn low_byte(bits: u128) -> u8 {
    bits as u8
}
