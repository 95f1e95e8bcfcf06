//! Chunks of variable-length values: strings and binaries.
//!
//! Invariants: lengths are coded, offsets are not, so a page does not depend on those before it; a
//! page never claims more bytes than [`expands_to`] allows its input.

use zerocopy::FromBytes;

use crate::PAGE_ROWS;
use crate::chain::{ChunkKind, CodecChain};
use crate::chunk::EncodedChunk;
use crate::dictionary::{self, Codes, Interner, hash_bytes};
use crate::element::Offset;
use crate::encode::{Settings, ValueCodec};
use crate::error::{DecodeError, EncodeError, ensure};
use crate::input::Input;
use crate::integers::{self, IntegerPlan, small};
use crate::mode::PageMode;
use crate::packing::PageBuffer;
use crate::stage::{PageWriter, expands_to};
use crate::values::{DecodeScratch, SharedScratch, Source, open_page, write_constant};

/// Variable-length values: bytes without gaps, and where each value ends in them.
#[derive(Debug, Default)]
pub(crate) struct Values {
    /// Where each value ends, relative to the first.
    ends: Vec<u32>,
}

impl Values {
    /// Checks the offsets and takes the ends; returns the bytes they span.
    pub(crate) fn read<'a, O: Offset>(
        &mut self,
        offsets: &[O],
        data: &'a [u8],
    ) -> Result<&'a [u8], EncodeError> {
        const LIMIT: EncodeError = EncodeError::TooManyBytes {
            limit_bytes: u32::MAX as usize,
        };
        self.ends.clear();
        let Some(first) = offsets.first() else {
            return Ok(&[]);
        };
        let start = first.to_index().filter(|&start| start <= data.len());
        let start = start.ok_or(EncodeError::BadOffsets { index: 0 })?;
        let mut end = start;
        self.ends.reserve(offsets.len() - 1);
        for (index, offset) in offsets.iter().enumerate().skip(1) {
            let next = offset
                .to_index()
                .filter(|&next| next >= end && next <= data.len());
            end = next.ok_or(EncodeError::BadOffsets { index })?;
            self.ends
                .push(u32::try_from(end - start).map_err(|_| LIMIT)?);
        }
        Ok(&data[start..end])
    }

    pub(crate) fn rows(&self) -> usize {
        self.ends.len()
    }

    fn start(&self, row: usize) -> usize {
        if row == 0 {
            0
        } else {
            self.ends[row - 1] as usize
        }
    }

    fn value<'a>(&self, data: &'a [u8], row: usize) -> &'a [u8] {
        &data[self.start(row)..self.ends[row] as usize]
    }
}

/// Distinct values and the codes of the rows.
#[derive(Debug, Default)]
pub(crate) struct BytesDictionary {
    interner: Interner,
    ends: Vec<u32>,
    data: Vec<u8>,
    codes: Codes,
}

/// Buffers of [`encode`].
#[derive(Debug, Default)]
pub(crate) struct BytesScratch {
    pub(crate) values: Values,
    dictionary: BytesDictionary,
    lengths: PageBuffer,
}

impl BytesDictionary {
    /// Numbers the values; says whether that makes the chunk smaller.
    fn build(&mut self, values: &Values, data: &[u8], forced: bool) -> bool {
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
        for start in (0..rows).step_by(PAGE_ROWS) {
            let end = (start + PAGE_ROWS).min(rows);
            let page_bytes = values.start(end) - values.start(start);
            let coded = self.build_page(values, data, start..end, limit);
            self.codes.pages.push(coded);
            failures += usize::from(!coded);
            coded_data_bytes += if coded { page_bytes } else { 0 };
            if failures * 2 > rows.div_ceil(PAGE_ROWS) {
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
        rows: std::ops::Range<usize>,
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

    fn write_prelude(&self, out: &mut EncodedChunk) -> Result<(), EncodeError> {
        out.codec.kind = ChunkKind::Dictionary;
        out.bytes
            .extend_from_slice(&small::<u32>(self.ends.len()).to_le_bytes());
        for end in &self.ends {
            out.bytes.extend_from_slice(&end.to_le_bytes());
        }
        out.bytes.extend_from_slice(&self.data);
        out.prelude_bytes =
            u32::try_from(out.bytes.len()).map_err(|_| EncodeError::TooManyBytes {
                limit_bytes: u32::MAX as usize,
            })?;
        Ok(())
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

/// Encodes the values that `scratch` has read from `data` into a chunk that is empty but for its
/// type.
pub(crate) fn encode(
    data: &[u8],
    settings: &Settings,
    scratch: &mut BytesScratch,
    shared: &mut SharedScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    let BytesScratch {
        values,
        dictionary,
        lengths,
    } = scratch;
    let rows = values.rows();
    if settings.codec.is_none() && is_constant(values, data) {
        write_constant(values.value(data, 0), out);
        return Ok(());
    }
    let forced = settings.codec == Some(ValueCodec::Dictionary);
    let may_repeat = settings.codec.is_none() && has_few_values(values, data);
    if (forced || may_repeat) && dictionary.build(values, data, forced) {
        dictionary.write_prelude(out)?;
    }
    let coded = out.codec.kind == ChunkKind::Dictionary;
    let SharedScratch {
        integers,
        compressor,
        page,
        ..
    } = shared;
    let mut writer = PageWriter::new(out);
    let mut plan = IntegerPlan::UNKNOWN;
    for (index, start) in (0..rows).step_by(PAGE_ROWS).enumerate() {
        let end = (start + PAGE_ROWS).min(rows);
        let page_data = &data[values.start(start)..values.start(end)];
        page.clear();
        if coded && dictionary.codes.pages[index] {
            dictionary::encode_codes(&dictionary.codes.rows[start..end], integers, page);
        } else {
            let lengths = &mut lengths.lanes::<u32>()[..end - start];
            for (row, length) in (start..end).zip(&mut *lengths) {
                *length = small(values.value(data, row).len());
            }
            page.extend_from_slice(&[PageMode::Plain.to_byte(), 0, 0, 0, 0]);
            integers::encode(lengths, 0, &mut plan, integers, page);
            let lengths_bytes: u32 = small(page.len() - 5);
            page[1..5].copy_from_slice(&lengths_bytes.to_le_bytes());
            page.extend_from_slice(page_data);
        }
        let rule = settings.stage_rule(if coded { 50 } else { 0 });
        writer.stage(rule, page, page_data.len(), compressor);
        writer.push(page, &[], compressor, out)?;
    }
    writer.finish(out);
    Ok(())
}

/// Whether all values are the same, and few enough bytes to be repeated from the prelude.
fn is_constant(values: &Values, data: &[u8]) -> bool {
    let rows = values.rows();
    if rows == 0 {
        return false;
    }
    let first = values.value(data, 0);
    let page_bytes = (first.len() * rows.min(PAGE_ROWS)) as u64;
    expands_to(first.len(), page_bytes) && (1..rows).all(|row| values.value(data, row) == first)
}

/// Whether a sample repeats itself so much that a dictionary may pay.
fn has_few_values(values: &Values, data: &[u8]) -> bool {
    const LOOK: usize = 128;
    let rows = values.rows();
    let looked = rows.min(LOOK);
    let mut hashes = [0; LOOK];
    for (index, hash) in hashes[..looked].iter_mut().enumerate() {
        *hash = hash_bytes(values.value(data, index * rows / looked));
    }
    let hashes = &mut hashes[..looked];
    hashes.sort_unstable();
    let distinct = hashes.chunk_by(|one, other| one == other).count();
    looked >= 8 && distinct * 4 <= looked * 3
}

/// Appends a page of `rows` values.
pub(crate) fn decode_page<O: Offset>(
    codec: CodecChain,
    prelude: &[u8],
    page: &[u8],
    rows: usize,
    scratch: &mut DecodeScratch,
    offsets: &mut Vec<O>,
    data: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let DecodeScratch {
        decompressor,
        buffers,
    } = scratch;
    let input_bytes = prelude.len() + page.len();
    let source = open_page(codec, prelude, page, decompressor)?;
    if offsets.is_empty() {
        push_offset(data.len(), offsets)?;
    }
    match source {
        Source::Constant => {
            ensure(
                expands_to(input_bytes, (prelude.len() * rows) as u64),
                "a page would expand too far",
            )?;
            for _ in 0..rows {
                data.extend_from_slice(prelude);
                push_offset(data.len(), offsets)?;
            }
            Ok(())
        }
        Source::Page(PageMode::Plain, input) => decode_plain(input, rows, buffers, offsets, data),
        Source::Page(PageMode::Codes, input) => {
            let codes = DictionaryView::read(prelude)?;
            codes.decode(input, input_bytes, rows, buffers, offsets, data)
        }
        Source::Page(..) => Err(DecodeError::new(
            "page mode does not fit variable-length values",
        )),
    }
}

fn push_offset<O: Offset>(end: usize, offsets: &mut Vec<O>) -> Result<(), DecodeError> {
    offsets.push(
        O::from_index(end).ok_or(DecodeError::new("more bytes than the offset type reaches"))?,
    );
    Ok(())
}

fn decode_plain<O: Offset>(
    mut input: Input<'_>,
    rows: usize,
    buffers: &mut [PageBuffer; 2],
    offsets: &mut Vec<O>,
    data: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let lengths_bytes = input.read::<u32>()? as usize;
    let [buffer, lengths] = buffers;
    let lengths = &mut lengths.lanes::<u32>()[..rows];
    integers::decode(input.take(lengths_bytes)?, buffer, lengths)?;
    let total_bytes: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
    let bytes = input.take_rest();
    ensure(
        total_bytes == bytes.len() as u64,
        "lengths do not add up to the bytes of a page",
    )?;
    let mut end = data.len();
    offsets.reserve(rows);
    for &length in &*lengths {
        end += length as usize;
        push_offset(end, offsets)?;
    }
    data.extend_from_slice(bytes);
    Ok(())
}

/// A prelude of distinct values, its outline checked.
struct DictionaryView<'a> {
    ends: &'a [u8],
    data: &'a [u8],
}

impl<'a> DictionaryView<'a> {
    fn read(prelude: &'a [u8]) -> Result<Self, DecodeError> {
        let mut input = Input::new(prelude);
        let count = input.read::<u32>()? as usize;
        let ends = input.take(count.saturating_mul(4))?;
        Ok(Self {
            ends,
            data: input.take_rest(),
        })
    }

    fn end(&self, index: usize) -> Result<usize, DecodeError> {
        let end = u32::read_from_bytes(&self.ends[index * 4..index * 4 + 4]);
        Ok(end.map_err(|_| DecodeError::new("page is cut short"))? as usize)
    }

    fn value(&self, code: u16) -> Result<&'a [u8], DecodeError> {
        let code = usize::from(code);
        let start = if code == 0 { 0 } else { self.end(code - 1)? };
        self.data
            .get(start..self.end(code)?)
            .ok_or(DecodeError::new("dictionary entry beyond its bytes"))
    }

    fn decode<O: Offset>(
        &self,
        mut input: Input<'_>,
        input_bytes: usize,
        rows: usize,
        buffers: &mut [PageBuffer; 2],
        offsets: &mut Vec<O>,
        data: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let [buffer, codes] = buffers;
        let codes = &mut codes.lanes::<u16>()[..rows];
        dictionary::decode_codes(&mut input, self.ends.len() / 4, buffer, codes)?;
        let before = data.len();
        offsets.reserve(rows);
        for &code in &*codes {
            let value = self.value(code)?;
            let page_bytes = data.len() - before + value.len();
            ensure(
                expands_to(input_bytes, page_bytes as u64),
                "a page would expand too far",
            )?;
            data.extend_from_slice(value);
            push_offset(data.len(), offsets)?;
        }
        Ok(())
    }
}
