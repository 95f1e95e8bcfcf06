//! Distinct texts, and codes of the rows.
//!
//! Invariants: a page that would bring too many texts, or expand too far, gets no codes.

use std::ops::Range;

use super::append::push_texts;
use crate::chain::ChunkKind;
use crate::chunk::EncodedChunk;
use crate::dictionary::{self, BEYOND, Codes, Interner, hash_bytes};
use crate::error::{DecodeError, EncodeError, ensure};
use crate::inner;
use crate::input::Input;
use crate::integers::small;
use crate::memory::{capacity_bytes, trim};
use crate::offset::Offset;
use crate::packing::{LongBuffer, PageBuffer};
use crate::stage::expands_to;
use crate::variable_length::Values;

/// Distinct values and the codes of the rows.
#[derive(Debug, Default)]
pub(crate) struct BytesDictionary {
    interner: Interner,
    ends: Vec<u32>,
    data: Vec<u8>,
    codes: Codes,
    /// Whether these are all values of the chunk that was encoded last.
    is_complete: bool,
}

impl BytesDictionary {
    /// Empties it for a chunk that has other values.
    pub(super) fn clear(&mut self) {
        self.ends.clear();
        self.data.clear();
        self.is_complete = false;
    }

    /// Sets it for a chunk that has one value.
    pub(super) fn set_to(&mut self, value: &[u8]) {
        self.clear();
        self.data.extend_from_slice(value);
        self.ends.push(small(value.len()));
        self.is_complete = true;
    }

    /// All values of the chunk that was encoded last, each once; `None` where they are not known.
    pub(super) fn all_texts(&self) -> Option<impl Iterator<Item = &[u8]>> {
        let texts = (0..self.ends.len()).map(|code| entry(&self.ends, &self.data, code));
        self.is_complete.then_some(texts)
    }

    /// Numbers the values; returns whether that makes the chunk smaller.
    pub(super) fn build(
        &mut self,
        values: &Values,
        data: &[u8],
        chunk: &EncodedChunk,
        forced: bool,
    ) -> bool {
        let rows = values.rows();
        let limit = if forced { rows } else { rows / 4 };
        let limit = limit.clamp(1, dictionary::VALUES_MAX);
        self.interner.reset(limit);
        self.clear();
        self.codes.rows.clear();
        self.codes.pages.clear();
        let mut failures = 0;
        let mut coded_data_bytes = 0;
        for page in 0..chunk.planned_pages() {
            let rows = chunk.row_range(page);
            let page_bytes = values.start(rows.end) - values.start(rows.start);
            let coded = self.build_page(values, data, rows, limit);
            self.codes.pages.push(coded);
            failures += usize::from(!coded);
            coded_data_bytes += if coded { page_bytes } else { 0 };
            if failures * 2 > chunk.planned_pages() {
                return false;
            }
        }
        // Codes are smaller than lengths, so the bytes decide.
        let pays = forced || self.data.len() + self.ends.len() * 4 + rows < coded_data_bytes;
        self.is_complete = pays && failures == 0;
        pays
    }

    fn build_page(
        &mut self,
        values: &Values,
        data: &[u8],
        rows: Range<usize>,
        limit: usize,
    ) -> bool {
        let (values_before, bytes_before) = (self.ends.len(), self.data.len());
        let rows_after = rows.end;
        let (first, last) = (values.start(rows.start), values.start(rows.end));
        for row in rows {
            let value = values.value(data, row);
            let (ends, known) = (&self.ends, &self.data);
            let is_same = |code: u16| is_equal(entry(ends, known, usize::from(code)), value);
            let (code, is_new) = self.interner.intern(hash_bytes(value), is_same);
            self.codes.rows.push(code);
            if is_new {
                self.data.extend_from_slice(value);
                // Within the 4 GiB of all values.
                self.ends.push(small(self.data.len()));
            }
            if self.ends.len() > limit {
                break;
            }
        }
        let page_may_expand = expands_to(
            4 + self.ends.len() * 4 + self.data.len(),
            (last - first) as u64,
        );
        let coded = self.ends.len() <= limit && page_may_expand;
        if !coded {
            self.interner.truncate(values_before);
            self.ends.truncate(values_before);
            self.data.truncate(bytes_before);
            self.codes.rows.resize(rows_after, 0);
        }
        coded
    }

    pub(super) fn write_prelude(&self, out: &mut EncodedChunk) -> Result<(), EncodeError> {
        out.codec.kind = ChunkKind::Dictionary;
        out.bytes
            .extend_from_slice(&small::<u32>(self.ends.len()).to_le_bytes());
        for end in &self.ends {
            out.bytes.extend_from_slice(&end.to_le_bytes());
        }
        out.bytes.extend_from_slice(&self.data);
        out.end_prelude()
    }

    /// The codes of a page, if it has some.
    pub(super) fn codes_of(&self, page: usize, rows: Range<usize>) -> Option<&[u16]> {
        self.codes.pages[page].then(|| &self.codes.rows[rows])
    }

    pub(super) fn buffer_bytes(&self) -> usize {
        self.interner.buffer_bytes()
            + capacity_bytes(&self.ends)
            + capacity_bytes(&self.data)
            + self.codes.buffer_bytes()
    }

    pub(super) fn trim(&mut self, limit_bytes: usize) {
        self.is_complete &= self.buffer_bytes() <= limit_bytes;
        trim(&mut self.ends, limit_bytes);
        trim(&mut self.data, limit_bytes);
        self.codes.trim(limit_bytes);
    }
}

/// Whether texts are equal. Empty ones are not compared byte by byte: their address may be none, and
/// processors that are asked for no byte of it take a hundred times longer.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
}

fn entry<'a>(ends: &[u32], data: &'a [u8], code: usize) -> &'a [u8] {
    let start = if code == 0 {
        0
    } else {
        ends[code - 1] as usize
    };
    &data[start..ends[code] as usize]
}

const BEYOND_BYTES: DecodeError = DecodeError::new("dictionary entry beyond its bytes");

/// A prelude of distinct values, its outline checked.
pub(crate) struct DictionaryView<'a> {
    ends: &'a [[u8; 4]],
    data: &'a [u8],
}

impl<'a> DictionaryView<'a> {
    pub(crate) fn read(prelude: &'a [u8]) -> Result<Self, DecodeError> {
        let mut input = Input::new(prelude);
        let count = input.read::<u32>()? as usize;
        ensure(
            count <= dictionary::READ_VALUES_MAX,
            "dictionary of too many values",
        )?;
        let (ends, _) = input.take(count * 4)?.as_chunks();
        Ok(Self {
            ends,
            data: input.take_rest(),
        })
    }

    /// Where a text begins and ends; both zero for a code beyond the last.
    #[inline]
    fn bounds(&self, code: u16) -> (u32, u32) {
        let code = usize::from(code);
        let end = |index: usize| {
            self.ends
                .get(index)
                .map_or(0, |end| u32::from_le_bytes(*end))
        };
        (end(code.wrapping_sub(1)), end(code))
    }

    fn text(&self, code: u16) -> Result<&'a [u8], DecodeError> {
        ensure(usize::from(code) < self.ends.len(), BEYOND.reason())?;
        let (start, end) = self.bounds(code);
        let text = self.data.get(start as usize..end as usize);
        text.ok_or(BEYOND_BYTES)
    }

    /// Appends the texts of a page of codes, after its mode byte.
    pub(crate) fn decode<O: Offset>(
        &self,
        mut input: Input<'_>,
        input_bytes: usize,
        rows: usize,
        (buffer, lanes, spans): (&mut PageBuffer, &mut LongBuffer, &mut LongBuffer),
        (offsets, data): (&mut Vec<O>, &mut Vec<u8>),
    ) -> Result<(), DecodeError> {
        let codes = lanes.lanes::<u16>(rows);
        dictionary::decode_codes(&mut input, self.ends.len(), buffer, codes)?;
        let spans = spans.lanes::<u64>(rows);
        let (mut page_bytes, mut last) = (0, 0);
        let mut is_rising = true;
        for (&code, span) in codes.iter().zip(&mut *spans) {
            let (start, end) = self.bounds(code);
            is_rising &= start <= end;
            last = last.max(end);
            let length = u64::from(end.wrapping_sub(start));
            page_bytes += length;
            *span = u64::from(start) << 32 | length;
        }
        let is_within = is_rising && last as usize <= self.data.len();
        ensure(is_within, BEYOND_BYTES.reason())?;
        ensure(
            expands_to(input_bytes, page_bytes),
            "a page would expand too far",
        )?;
        let page_bytes = usize::try_from(page_bytes).map_err(|_| BEYOND_BYTES)?;
        push_texts(self.data, spans, page_bytes, offsets, data)
    }

    /// Appends one text of a page of codes, after its mode byte.
    pub(crate) fn decode_value(
        &self,
        mut input: Input<'_>,
        (rows, index): (usize, usize),
        buffers: &mut [PageBuffer; 2],
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let code = inner::value(input.take_rest(), rows, index, buffers)?;
        out.extend_from_slice(self.text(code)?);
        Ok(())
    }
}
