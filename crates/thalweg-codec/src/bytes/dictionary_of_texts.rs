//! Distinct texts, and codes of the rows.
//!
//! Invariants: a page that would bring too many texts, or expand too far, gets no codes.

use std::ops::Range;

use zerocopy::FromBytes;

use super::{Values, push_texts};
use crate::chain::ChunkKind;
use crate::chunk::EncodedChunk;
use crate::dictionary::{self, BEYOND, Codes, Interner, hash_bytes};
use crate::element::Offset;
use crate::encode::trim;
use crate::error::{DecodeError, EncodeError, ensure};
use crate::inner;
use crate::input::Input;
use crate::integers::small;
use crate::packing::{LongBuffer, PageBuffer};
use crate::stage::expands_to;

/// Distinct values and the codes of the rows.
#[derive(Debug, Default)]
pub(crate) struct BytesDictionary {
    interner: Interner,
    ends: Vec<u32>,
    data: Vec<u8>,
    codes: Codes,
}

impl BytesDictionary {
    /// Numbers the values; says whether that makes the chunk smaller.
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
        self.ends.clear();
        self.data.clear();
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
        forced || self.data.len() + self.ends.len() * 4 + rows < coded_data_bytes
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
            let is_same = |code: u16| entry(ends, known, usize::from(code)) == value;
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

    pub(super) fn trim(&mut self, limit_bytes: usize) {
        trim(&mut self.ends, limit_bytes);
        trim(&mut self.data, limit_bytes);
        self.codes.trim(limit_bytes);
    }
}

fn entry<'a>(ends: &[u32], data: &'a [u8], code: usize) -> &'a [u8] {
    let start = if code == 0 {
        0
    } else {
        ends[code - 1] as usize
    };
    &data[start..ends[code] as usize]
}

/// A prelude of distinct values, its outline checked.
pub(crate) struct DictionaryView<'a> {
    ends: &'a [u8],
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
        let ends = input.take(count * 4)?;
        Ok(Self {
            ends,
            data: input.take_rest(),
        })
    }

    fn end(&self, index: usize) -> Result<usize, DecodeError> {
        let end = self.ends.get(index * 4..index * 4 + 4);
        let end = u32::read_from_bytes(end.ok_or(BEYOND)?).map_err(|_| BEYOND)?;
        Ok(end as usize)
    }

    fn range(&self, code: u16) -> Result<Range<usize>, DecodeError> {
        let code = usize::from(code);
        let start = if code == 0 { 0 } else { self.end(code - 1)? };
        let end = self.end(code)?;
        ensure(
            start <= end && end <= self.data.len(),
            "dictionary entry beyond its bytes",
        )?;
        Ok(start..end)
    }

    /// Appends the texts of a page of codes, after its mode byte.
    pub(crate) fn decode<O: Offset>(
        &self,
        mut input: Input<'_>,
        input_bytes: usize,
        rows: usize,
        (buffer, lanes): (&mut PageBuffer, &mut LongBuffer),
        (offsets, data): (&mut Vec<O>, &mut Vec<u8>),
    ) -> Result<(), DecodeError> {
        let codes = lanes.lanes::<u16>(rows);
        dictionary::decode_codes(&mut input, self.ends.len() / 4, buffer, codes)?;
        let mut page_bytes = 0;
        for &code in &*codes {
            page_bytes += self.range(code)?.len();
        }
        ensure(
            expands_to(input_bytes, page_bytes as u64),
            "a page would expand too far",
        )?;
        let ranges = codes.iter().map(|&code| {
            // Checked above.
            self.range(code).unwrap_or_default()
        });
        push_texts(self.data, ranges, page_bytes, offsets, data)
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
        out.extend_from_slice(&self.data[self.range(code)?]);
        Ok(())
    }
}
