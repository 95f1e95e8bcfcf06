//! Numbering distinct values in the order they first appear.
//!
//! Invariants: codes count up from zero without gaps; a page that would bring more than the limit
//! of values is not numbered at all and leaves no trace.

use std::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::PAGE_ROWS;
use crate::chunk::EncodedChunk;
use crate::error::{DecodeError, ensure};
use crate::inner;
use crate::input::Input;
use crate::integers;
use crate::memory::capacity_bytes;
use crate::mode::PageMode;
use crate::packing::{LongBuffer, PageBuffer, block_bytes};

/// Most values of a dictionary that is written: codes take at most 14 bits.
pub(crate) const VALUES_MAX: usize = 1 << 14;

/// Most values of a dictionary that is read: codes take at most 16 bits.
pub(crate) const READ_VALUES_MAX: usize = 1 << 16;

/// Maps values, known by their hash and a comparison, to codes.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    /// Open addressing: code plus one, zero where empty.
    slots: Vec<u16>,
    /// Hash of each code's value, to undo and to grow.
    hashes: Vec<u64>,
}

impl Interner {
    /// The memory of the table, which has a limit.
    pub(crate) fn buffer_bytes(&self) -> usize {
        capacity_bytes(&self.slots) + capacity_bytes(&self.hashes)
    }

    /// Forgets all values and makes room for `limit` of them.
    pub(crate) fn reset(&mut self, limit: usize) {
        assert!(limit <= VALUES_MAX, "codes of 14 bits");
        self.hashes.clear();
        self.slots.clear();
        self.slots
            .resize((limit * 2).next_power_of_two().max(16), 0);
    }

    /// The code of a value; a new one, with `true`, when `is_same` recognises none.
    #[inline]
    pub(crate) fn intern(&mut self, hash: u64, is_same: impl Fn(u16) -> bool) -> (u16, bool) {
        let mask = self.slots.len() - 1;
        let mut slot = slot_of(hash, mask);
        while self.slots[slot] != 0 {
            let code = self.slots[slot] - 1;
            if self.hashes[usize::from(code)] == hash && is_same(code) {
                return (code, false);
            }
            slot = (slot + 1) & mask;
        }
        let code: u16 = integers::small(self.hashes.len());
        self.hashes.push(hash);
        self.slots[slot] = code + 1;
        (code, true)
    }

    /// Forgets the values from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        let mask = self.slots.len() - 1;
        // Last in, first out: nothing after a removed slot was put there because it was taken.
        while self.hashes.len() > len {
            let code: u16 = integers::small(self.hashes.len());
            let Some(hash) = self.hashes.pop() else {
                return;
            };
            let mut slot = slot_of(hash, mask);
            while self.slots[slot] != code {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = 0;
        }
    }
}

fn slot_of(hash: u64, mask: usize) -> usize {
    (hash >> 32) as usize & mask
}

/// A hash of eight bytes: one multiplication, folded.
#[inline]
pub(crate) fn hash_word(word: u64) -> u64 {
    let product = u128::from(word ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93;
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let folded = (product >> 64) as u64 ^ product as u64;
    folded
}

/// A hash of some bytes.
#[inline]
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = hash_word(bytes.len() as u64);
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    for word in words {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        hash = hash_word(hash ^ u64::from_le_bytes(bytes));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    hash_word(hash ^ u64::from_le_bytes(last))
}

/// The codes of a chunk, page by page.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    /// One per row; arbitrary in pages without codes.
    pub(crate) rows: Vec<u16>,
    /// Whether each page has codes.
    pub(crate) pages: Vec<bool>,
}

impl Codes {
    /// The memory of the codes.
    pub(crate) fn buffer_bytes(&self) -> usize {
        capacity_bytes(&self.rows) + capacity_bytes(&self.pages)
    }

    /// Gives memory of more than `limit_bytes` back.
    pub(crate) fn trim(&mut self, limit_bytes: usize) {
        crate::memory::trim(&mut self.rows, limit_bytes);
        crate::memory::trim(&mut self.pages, limit_bytes);
    }
}

/// A value as a dictionary of fixed-width values holds it.
pub(crate) trait Key: Copy + PartialEq {
    /// A hash of the value.
    fn hash(self) -> u64;
}

impl Key for u64 {
    #[inline]
    fn hash(self) -> u64 {
        hash_word(self)
    }
}

impl Key for u128 {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    fn hash(self) -> u64 {
        hash_word(hash_word(self as u64) ^ (self >> 64) as u64)
    }
}

/// Distinct fixed-width values and the codes of the rows.
#[derive(Debug)]
pub(crate) struct ValueDictionary<K> {
    interner: Interner,
    values: Vec<K>,
    pub(crate) codes: Codes,
}

impl<K> Default for ValueDictionary<K> {
    fn default() -> Self {
        Self {
            interner: Interner::default(),
            values: Vec::new(),
            codes: Codes::default(),
        }
    }
}

impl<K: Key> ValueDictionary<K> {
    /// Numbers the rows of `chunk`, page by page; returns whether at least half of the pages got codes.
    pub(crate) fn build<T: Copy>(
        &mut self,
        values: &[T],
        key: impl Fn(T) -> K + Copy,
        chunk: &EncodedChunk,
        limit: usize,
    ) -> bool {
        self.interner.reset(limit);
        self.values.clear();
        self.codes.rows.clear();
        self.codes.pages.clear();
        let mut failures = 0;
        for page in 0..chunk.planned_pages() {
            let coded = self.build_page(&values[chunk.row_range(page)], key, limit);
            failures += usize::from(!coded);
            self.codes.pages.push(coded);
            if failures * 2 > chunk.planned_pages() {
                return false;
            }
        }
        true
    }

    fn build_page<T: Copy>(&mut self, page: &[T], key: impl Fn(T) -> K, limit: usize) -> bool {
        let (values_before, rows_before) = (self.values.len(), self.codes.rows.len());
        for &value in page {
            let word = key(value);
            let known = &self.values;
            let (code, is_new) = self
                .interner
                .intern(word.hash(), |code| known[usize::from(code)] == word);
            if is_new {
                self.values.push(word);
                if self.values.len() > limit {
                    self.interner.truncate(values_before);
                    self.values.truncate(values_before);
                    self.codes.rows.resize(rows_before + page.len(), 0);
                    return false;
                }
            }
            self.codes.rows.push(code);
        }
        true
    }

    /// Distinct values.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Makes `chunk` one of a dictionary and writes its prelude.
    pub(crate) fn write_prelude<T: IntoBytes + Immutable>(
        &self,
        value: impl Fn(K) -> T,
        chunk: &mut EncodedChunk,
    ) {
        chunk.codec.kind = crate::chain::ChunkKind::Dictionary;
        let count = integers::small::<u32>(self.values.len());
        chunk.bytes.extend_from_slice(&count.to_le_bytes());
        for &key in &self.values {
            chunk.bytes.extend_from_slice(value(key).as_bytes());
        }
        chunk.prelude_bytes = integers::small(chunk.bytes.len());
    }

    /// The codes of a page, if it has some.
    pub(crate) fn codes_of(&self, page: usize, rows: Range<usize>) -> Option<&[u16]> {
        self.codes.pages[page].then(|| &self.codes.rows[rows])
    }

    /// The memory of values and codes.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.interner.buffer_bytes() + capacity_bytes(&self.values) + self.codes.buffer_bytes()
    }

    /// Gives memory of more than `limit_bytes` back.
    pub(crate) fn trim(&mut self, limit_bytes: usize) {
        crate::memory::trim(&mut self.values, limit_bytes);
        self.codes.trim(limit_bytes);
    }
}

/// Whether codes of `distinct` values take less than runs of `run_bytes`.
pub(crate) fn pays(rows: usize, distinct: usize, value_bytes: usize, run_bytes: usize) -> bool {
    let runs = rows.div_ceil(PAGE_ROWS);
    let code_bits = usize::BITS - distinct.saturating_sub(1).leading_zeros();
    let run_codes_bytes = 8 + block_bytes(PAGE_ROWS, code_bits);
    let coded_bytes = 4 + distinct * value_bytes + runs * run_codes_bytes;
    // A look-up per row is slow to read: it must save a sixteenth.
    coded_bytes + coded_bytes / 16 < runs * run_bytes
}

/// Reads the codes of a page after its mode byte and checks them against the dictionary's size.
pub(crate) fn decode_codes(
    input: &mut Input<'_>,
    values: usize,
    buffer: &mut PageBuffer,
    codes: &mut [u16],
) -> Result<(), DecodeError> {
    inner::decode(input.take_rest(), buffer, codes)?;
    let (_, high) = crate::wide::min_max(codes, 0);
    ensure(usize::from(high) < values, "code beyond the dictionary")
}

/// The distinct values of a prelude, as bytes without gaps.
fn read_prelude<T>(prelude: &[u8]) -> Result<&[u8], DecodeError> {
    let mut prelude = Input::new(prelude);
    let count = prelude.read::<u32>()? as usize;
    let values = prelude.take_rest();
    ensure(
        count <= READ_VALUES_MAX && values.len() == count * size_of::<T>(),
        "dictionary of the wrong length",
    )?;
    Ok(values)
}

/// Reads a page of codes after its mode byte.
pub(crate) fn decode_values<T: FromBytes + IntoBytes>(
    prelude: &[u8],
    mut input: Input<'_>,
    buffer: &mut PageBuffer,
    codes: &mut LongBuffer,
    out: &mut [T],
) -> Result<(), DecodeError> {
    let values = read_prelude::<T>(prelude)?;
    let codes = codes.lanes::<u16>(out.len());
    decode_codes(&mut input, values.len() / size_of::<T>(), buffer, codes)?;
    for (row, &code) in out.iter_mut().zip(&*codes) {
        let start = usize::from(code) * size_of::<T>();
        row.as_mut_bytes()
            .copy_from_slice(&values[start..start + size_of::<T>()]);
    }
    Ok(())
}

/// One value of a page of codes, after its mode byte.
pub(crate) fn value<T: FromBytes>(
    prelude: &[u8],
    mut input: Input<'_>,
    rows: usize,
    index: usize,
    buffers: &mut [PageBuffer; 2],
) -> Result<T, DecodeError> {
    let values = read_prelude::<T>(prelude)?;
    let code = inner::value::<u16>(input.take_rest(), rows, index, buffers)?;
    let start = usize::from(code) * size_of::<T>();
    let value = values.get(start..start + size_of::<T>());
    Input::new(value.ok_or(BEYOND)?).read()
}

/// A code that the dictionary has no value for.
pub(crate) const BEYOND: DecodeError = DecodeError::new("code beyond the dictionary");

/// Appends a page of codes.
pub(crate) fn encode_codes(
    codes: &[u16],
    scratch: &mut integers::IntegerScratch,
    out: &mut Vec<u8>,
) {
    out.push(PageMode::Codes.to_byte());
    let mut plan = integers::IntegerPlan::UNKNOWN;
    inner::encode(codes, 0, &mut plan, scratch, out);
}
