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

/// Room for the values of a page of any length, of any lane type. Grows to the longest page seen,
/// which has at most 65,536 values.
#[derive(Debug, Default)]
pub(crate) struct LongBuffer {
    words: Vec<u64>,
}

impl LongBuffer {
    /// The memory of the buffer.
    pub(crate) fn buffer_bytes(&self) -> usize {
        crate::memory::capacity_bytes(&self.words)
    }

    /// Room for `rows` lanes; they hold what was there before.
    pub(crate) fn lanes<L: Lane>(&mut self, rows: usize) -> &mut [L] {
        let bytes = rows * L::BYTES;
        let words = bytes.div_ceil(size_of::<u64>());
        if self.words.len() < words {
            self.words.resize(words.max(PAGE_ROWS), 0);
        }
        match <[L]>::mut_from_bytes(&mut self.words.as_mut_bytes()[..bytes]) {
            Ok(lanes) => lanes,
            // Words are aligned for lanes of up to 64 bits, and the bytes are whole lanes.
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

/// The order in which FastLanes numbers groups of eight rows; its own inverse.
const FL_ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];

/// One number of a block of `rows` numbers, without the others: what [`unpack`] puts at `index`,
/// for a reference of zero.
pub(crate) fn value_of<L: Lane>(
    width_bits: u32,
    block: &[u8],
    rows: usize,
    index: usize,
) -> Result<L, DecodeError> {
    ensure(width_bits <= L::BITS, "width above that of the values")?;
    ensure(
        block.len() == block_bytes(rows, width_bits) && index < rows,
        "block of the wrong length",
    )?;
    if width_bits == 0 {
        return Ok(L::default());
    }
    let width = width_bits as usize;
    if rows != PAGE_ROWS {
        let start = index * width;
        let low = word_at(block, start / 8) >> (start % 8);
        // The bits beyond the first word, shifted twice because a shift by all 64 bits is none.
        let high = word_at(block, start / 8 + 8) << 1 << (63 - start % 8);
        return Ok(L::truncate((low | high) & low_bits(width_bits)));
    }
    let lanes = PAGE_ROWS / L::BITS as usize;
    let lane = index % lanes;
    let row = FL_ORDER[(index % 128 - lane) / 16] * 8 + index / 128;
    let start = row * width;
    let (word, shift) = (start / L::BITS as usize, start % L::BITS as usize);
    let lane_at = |word: usize| word_at(block, (word * lanes + lane) * L::BYTES) & L::MAX.widen();
    let mut bits = lane_at(word) >> shift;
    if shift + width > L::BITS as usize {
        bits |= lane_at(word + 1) << (L::BITS as usize - shift);
    }
    Ok(L::truncate(bits & low_bits(width_bits)))
}

/// Eight bytes from `position` on, zeros after the last one.
pub(crate) fn word_at(bytes: &[u8], position: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(whole) = bytes.get(position..position + 8) {
        word.copy_from_slice(whole);
    } else if let Some(rest) = bytes.get(position..) {
        word[..rest.len()].copy_from_slice(rest);
    }
    u64::from_le_bytes(word)
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
        // At most 1,023 values of 64 bits: there is a word after the last one. Shifted twice, because a shift by all
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
