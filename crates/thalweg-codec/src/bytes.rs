//! Chunks of variable-length values: strings and binaries.
//!
//! Invariants: lengths are coded, offsets are not, so a page does not depend on those before it; a
//! page never claims more bytes than [`expands_to`] allows its input.

use std::ops::Range;

use crate::MAX_PAGE_ROWS;
use crate::alphabet::Alphabet;
use crate::chain::{ChunkKind, CodecChain, LastStage};
use crate::chunk::EncodedChunk;
use crate::dictionary::{self, hash_bytes};
use crate::element::Offset;
use crate::encode::{Settings, ValueCodec, capacity_bytes, trim};
use crate::error::{DecodeError, EncodeError, ensure};
use crate::fsst_codes::{Groups, Symbols};
use crate::inner;
use crate::input::Input;
use crate::integers::{IntegerPlan, IntegerScratch, small};
use crate::mode::PageMode;
use crate::packing::{LongBuffer, PageBuffer};
use crate::stage::{PageWriter, expands_to};
use crate::text_choice::{self, TextForm};
use crate::values::{DecodeScratch, SharedScratch, Source, open_page, write_constant};

mod dictionary_of_texts;

use dictionary_of_texts::{BytesDictionary, DictionaryView};

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

    pub(crate) fn start(&self, row: usize) -> usize {
        if row == 0 {
            0
        } else {
            self.ends[row - 1] as usize
        }
    }

    pub(crate) fn value<'a>(&self, data: &'a [u8], row: usize) -> &'a [u8] {
        &data[self.start(row)..self.ends[row] as usize]
    }
}

/// Buffers of [`encode`].
#[derive(Debug, Default)]
pub(crate) struct BytesScratch {
    pub(crate) values: Values,
    dictionary: BytesDictionary,
    lengths: LongBuffer,
}

impl BytesScratch {
    /// The memory of the buffers.
    pub(crate) fn buffer_bytes(&self) -> usize {
        capacity_bytes(&self.values.ends)
            + self.dictionary.buffer_bytes()
            + self.lengths.buffer_bytes()
    }

    /// Gives buffers of more than `limit_bytes` back.
    pub(crate) fn trim(&mut self, limit_bytes: usize) {
        trim(&mut self.values.ends, limit_bytes);
        self.dictionary.trim(limit_bytes);
    }
}

/// Pages of more bytes get no codes of FSST: what these may take is reserved before.
const MOST_FSST_BYTES: usize = 4 << 20;

/// Bytes before the lengths of a page: its mode and their length.
const HEADER_BYTES: usize = 5;

/// Encodes the values that `scratch` has read from `data` into a chunk that is empty but for its
/// type and pages.
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
    if settings.codec.is_none() && is_constant(values, data) {
        write_constant(values.value(data, 0), out);
        return Ok(());
    }
    let forced = settings.codec == Some(ValueCodec::Dictionary);
    let may_repeat = settings.codec.is_none() && has_few_values(values, data);
    if (forced || may_repeat) && dictionary.build(values, data, out, forced) {
        dictionary.write_prelude(out)?;
        return encode_coded(data, settings, scratch, shared, out);
    }
    if out.planned_pages() == 0 {
        return Ok(());
    }
    let texts = Texts {
        values,
        data,
        lengths,
    };
    encode_texts(texts, settings, shared, out)
}

/// Texts whose pages are being written.
struct Texts<'a> {
    values: &'a Values,
    data: &'a [u8],
    lengths: &'a mut LongBuffer,
}

impl<'a> Texts<'a> {
    /// The bytes of some rows.
    fn data(&self, rows: &Range<usize>) -> &'a [u8] {
        &self.data[self.values.start(rows.start)..self.values.start(rows.end)]
    }

    /// Fills `page` with mode and lengths of a page.
    fn write_header(
        &mut self,
        rows: &Range<usize>,
        plan: &mut IntegerPlan,
        integers: &mut IntegerScratch,
        page: &mut Vec<u8>,
    ) {
        let lengths = self.lengths.lanes::<u32>(rows.len());
        let mut start = self.values.start(rows.start);
        for (&end, length) in self.values.ends[rows.clone()].iter().zip(&mut *lengths) {
            // Of 32 bits, as ends are.
            *length = small(end as usize - start);
            start = end as usize;
        }
        page.clear();
        page.extend_from_slice(&[PageMode::Plain.to_byte(), 0, 0, 0, 0]);
        inner::encode(lengths, 0, plan, integers, page);
        let lengths_bytes: u32 = small(page.len() - HEADER_BYTES);
        page[1..HEADER_BYTES].copy_from_slice(&lengths_bytes.to_le_bytes());
    }
}

/// Encodes a chunk that has a dictionary.
fn encode_coded(
    data: &[u8],
    settings: &Settings,
    scratch: &mut BytesScratch,
    shared: &mut SharedScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    let SharedScratch {
        integers,
        compressor,
        page,
        ..
    } = shared;
    let mut texts = Texts {
        values: &scratch.values,
        data,
        lengths: &mut scratch.lengths,
    };
    let mut writer = PageWriter::new(out);
    let mut plan = IntegerPlan::UNKNOWN;
    for index in 0..out.planned_pages() {
        let rows = out.row_range(index);
        let page_data = texts.data(&rows);
        if let Some(codes) = scratch.dictionary.codes_of(index, rows.clone()) {
            page.clear();
            dictionary::encode_codes(codes, integers, page);
        } else {
            texts.write_header(&rows, &mut plan, integers, page);
            page.extend_from_slice(page_data);
        }
        let rule = settings.stage_rule(50);
        writer.stage(rule, page, page_data.len(), compressor);
        writer.push(page, &[], compressor, out)?;
    }
    writer.finish(out);
    Ok(())
}

/// Encodes a chunk without a dictionary, which has a page.
fn encode_texts(
    mut texts: Texts<'_>,
    settings: &Settings,
    shared: &mut SharedScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    let SharedScratch {
        integers,
        compressor,
        page,
        plain: packed,
        ..
    } = shared;
    let mut plan = IntegerPlan::UNKNOWN;
    let rows = out.row_range(0);
    texts.write_header(&rows, &mut plan, integers, page);
    let first_page = (&page[..], texts.data(&rows));
    let mut form = text_choice::choose(texts.values, texts.data, first_page, settings, compressor);
    write_prelude(&form, out)?;
    let mut writer = PageWriter::new(out);
    let mut failures = 0;
    for index in 0..out.planned_pages() {
        let rows = out.row_range(index);
        let page_data = texts.data(&rows);
        if index > 0 {
            texts.write_header(&rows, &mut plan, integers, page);
        }
        if write_packed(&mut form, &texts, &rows, page, packed) {
            writer.stage(packed_rule(settings), packed, page_data.len(), compressor);
            writer.push(packed, &[], compressor, out)?;
            continue;
        }
        failures += usize::from(!matches!(form, TextForm::Plain));
        if failures >= MOST_FAILURES {
            // The sample has missed bytes that are everywhere.
            form = TextForm::Plain;
        }
        writer.stage_parts(settings.stage_rule(0), page, page_data, compressor);
        writer.push_parts(page, page_data, compressor, out)?;
    }
    writer.finish(out);
    Ok(())
}

/// Pages that do not fit the form of their chunk before it is tried no more.
const MOST_FAILURES: usize = 2;

/// The last stage of pages that are packed already: at the fast level LZ4 finds nothing more.
fn packed_rule(settings: &Settings) -> crate::stage::StageRule {
    match settings.stage_rule(0) {
        crate::stage::StageRule::Lz4Above(_) => crate::stage::StageRule::Always(LastStage::None),
        rule => rule,
    }
}

fn write_prelude(form: &TextForm, out: &mut EncodedChunk) -> Result<(), EncodeError> {
    match form {
        TextForm::Plain => return Ok(()),
        TextForm::Alphabet(alphabet) => {
            out.codec.kind = ChunkKind::Alphabet;
            alphabet.write_prelude(&mut out.bytes);
        }
        TextForm::Fsst(table) => {
            out.codec.kind = ChunkKind::Fsst;
            table.write_prelude(&mut out.bytes);
        }
    }
    out.end_prelude()
}

/// Fills `packed` with the page of some rows in the form of the chunk, given the `header` of the
/// plain one; says whether it is smaller.
fn write_packed(
    form: &mut TextForm,
    texts: &Texts<'_>,
    rows: &Range<usize>,
    header: &[u8],
    packed: &mut Vec<u8>,
) -> bool {
    let page_data = texts.data(rows);
    packed.clear();
    let (mode, is_whole) = match form {
        TextForm::Plain => return false,
        TextForm::Alphabet(alphabet) => {
            packed.extend_from_slice(header);
            (PageMode::Alphabet, alphabet.encode(page_data, packed))
        }
        TextForm::Fsst(table) => {
            if page_data.len() > MOST_FSST_BYTES {
                return false;
            }
            packed.extend_from_slice(header);
            let values = rows.clone().map(|row| texts.values.value(texts.data, row));
            table.encode(&values.collect::<Vec<_>>(), packed);
            (PageMode::Fsst, true)
        }
    };
    packed[0] = mode.to_byte();
    let is_smaller = packed.len() < header.len() + page_data.len();
    is_whole && is_smaller && expands_to(packed.len(), page_data.len() as u64)
}

/// Whether all values are the same, and few enough bytes to be repeated from the prelude.
fn is_constant(values: &Values, data: &[u8]) -> bool {
    let rows = values.rows();
    if rows == 0 {
        return false;
    }
    // Nothing to compare, which processors may take long for.
    if data.is_empty() {
        return true;
    }
    let first = values.value(data, 0);
    let page_bytes = (first.len() * rows.min(MAX_PAGE_ROWS)) as u64;
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

/// Tables of the last chunk that was read.
#[derive(Debug, Default)]
pub(crate) struct TextReaders {
    prelude: Vec<u8>,
    table: Option<ReadTable>,
}

#[derive(Debug)]
enum ReadTable {
    Alphabet(Box<Alphabet>),
    Fsst(Box<Symbols>),
}

impl TextReaders {
    /// Makes the table of a prelude the one at hand.
    fn read(&mut self, kind: ChunkKind, prelude: &[u8]) -> Result<&ReadTable, DecodeError> {
        let is_known = match &self.table {
            Some(ReadTable::Alphabet(_)) => kind == ChunkKind::Alphabet,
            Some(ReadTable::Fsst(_)) => kind == ChunkKind::Fsst,
            None => false,
        };
        if !is_known || self.prelude != prelude {
            self.table = None;
            self.prelude.clear();
            self.prelude.extend_from_slice(prelude);
            self.table = Some(match kind {
                ChunkKind::Alphabet => ReadTable::Alphabet(Box::new(Alphabet::read(prelude)?)),
                _ => ReadTable::Fsst(Box::new(Symbols::read(prelude)?)),
            });
        }
        self.table.as_ref().ok_or(UNFIT)
    }
}

const UNFIT: DecodeError = DecodeError::new("page mode does not fit variable-length values");

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
        buffers: [buffer, _],
        lanes,
        spans,
        texts,
        ..
    } = scratch;
    let input_bytes = prelude.len() + page.len();
    let source = open_page(codec, prelude, page, decompressor)?;
    if offsets.is_empty() {
        offsets.push(O::from_index(data.len()).ok_or(BEYOND_OFFSETS)?);
    }
    let (mode, input) = match source {
        Source::Constant => {
            check_expansion(input_bytes, (prelude.len() * rows) as u64)?;
            return push_constant(prelude, rows, offsets, data);
        }
        Source::Page(PageMode::Codes, input) => {
            let codes = DictionaryView::read(prelude)?;
            let buffers = (buffer, lanes, spans);
            return codes.decode(input, input_bytes, rows, buffers, (offsets, data));
        }
        Source::Page(mode, input) => (mode, input),
    };
    let lengths = lanes.lanes::<u32>(rows);
    let (total_bytes, input) = read_lengths(input, buffer, lengths)?;
    let start = data.len();
    match mode {
        PageMode::Plain => push_plain(input, total_bytes, data)?,
        PageMode::Alphabet | PageMode::Fsst => {
            check_expansion(input_bytes, total_bytes)?;
            match texts.read(codec.kind, prelude)? {
                ReadTable::Alphabet(alphabet) => push_indices(alphabet, input, total_bytes, data)?,
                ReadTable::Fsst(symbols) => {
                    let groups = Groups::read(input, rows)?;
                    let total_bytes = check_codes(&groups, total_bytes)?;
                    groups.decode(symbols, lengths, total_bytes, data)?;
                }
            }
        }
        _ => return Err(UNFIT),
    }
    push_offsets(start, lengths, offsets)
}

const BEYOND_OFFSETS: DecodeError = DecodeError::new("more bytes than the offset type reaches");

fn check_expansion(input_bytes: usize, page_bytes: u64) -> Result<(), DecodeError> {
    ensure(
        expands_to(input_bytes, page_bytes),
        "a page would expand too far",
    )
}

/// Reads the lengths of a page; returns their sum and what follows.
fn read_lengths<'a>(
    mut input: Input<'a>,
    buffer: &mut PageBuffer,
    lengths: &mut [u32],
) -> Result<(u64, Input<'a>), DecodeError> {
    let lengths_bytes = input.read::<u32>()? as usize;
    inner::decode(input.take(lengths_bytes)?, buffer, lengths)?;
    let total_bytes = lengths.iter().map(|&length| u64::from(length)).sum();
    Ok((total_bytes, input))
}

fn push_plain(
    mut input: Input<'_>,
    total_bytes: u64,
    data: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let bytes = input.take_rest();
    ensure(
        total_bytes == bytes.len() as u64,
        "lengths do not add up to the bytes of a page",
    )?;
    data.extend_from_slice(bytes);
    Ok(())
}

fn push_indices(
    alphabet: &Alphabet,
    mut input: Input<'_>,
    total_bytes: u64,
    data: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let packed = input.take_rest();
    // An index takes a bit or more, so this is a number of bytes that exist.
    let fits = total_bytes <= packed.len() as u64 * 8;
    ensure(fits, "lengths do not add up to the bytes of a page")?;
    let start = data.len();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "eight times a length in memory"
    )]
    data.resize(start + total_bytes as usize, 0);
    alphabet.decode(packed, &mut data[start..])
}

/// The bytes that codes stand for, if they can stand for so many.
fn check_codes(groups: &Groups<'_>, total_bytes: u64) -> Result<usize, DecodeError> {
    let fits = total_bytes <= groups.codes_bytes() as u64 * 8;
    ensure(fits, "codes for another number of bytes")?;
    usize::try_from(total_bytes).map_err(|_| BEYOND_OFFSETS)
}

/// Appends the ends of texts whose bytes begin at `start`.
fn push_offsets<O: Offset>(
    start: usize,
    lengths: &[u32],
    offsets: &mut Vec<O>,
) -> Result<(), DecodeError> {
    let total_bytes: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
    let end = usize::try_from(start as u64 + total_bytes).ok();
    end.and_then(O::from_index).ok_or(BEYOND_OFFSETS)?;
    let mut end = start;
    offsets.extend(lengths.iter().map(|&length| {
        // Below the last one, which fits.
        end += length as usize;
        O::wrapping(end)
    }));
    Ok(())
}

/// Appends the same text `rows` times.
fn push_constant<O: Offset>(
    text: &[u8],
    rows: usize,
    offsets: &mut Vec<O>,
    data: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let start = data.len();
    O::from_index(start + text.len() * rows).ok_or(BEYOND_OFFSETS)?;
    // None exceeds the last one, which fits.
    offsets.extend((1..=rows).map(|row| O::wrapping(start + text.len() * row)));
    if !text.is_empty() {
        (0..rows).for_each(|_| data.extend_from_slice(text));
    }
    Ok(())
}

/// Bytes that are copied at once, of texts that are no longer.
const SHORT_BYTES: usize = 32;

/// Where a text lies in others: its first byte and its length, in one word.
type Span = u64;

/// Appends the texts at these places of `source`, which add up to `total_bytes`.
fn push_texts<O: Offset>(
    source: &[u8],
    spans: &[Span],
    total_bytes: usize,
    offsets: &mut Vec<O>,
    data: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let mut end = data.len();
    let last = end + total_bytes;
    O::from_index(last).ok_or(BEYOND_OFFSETS)?;
    // A text and what follows it are copied together where there is room: a copy of a fixed length
    // is two instructions.
    data.resize(last + SHORT_BYTES, 0);
    offsets.extend(spans.iter().map(|&span| {
        let (first, length) = ((span >> 32) as usize, (span & 0xFFFF_FFFF) as usize);
        let whole = source.get(first..first + SHORT_BYTES);
        match (whole, data.get_mut(end..end + SHORT_BYTES)) {
            (Some(source), Some(target)) if length <= SHORT_BYTES => target.copy_from_slice(source),
            _ => data[end..end + length].copy_from_slice(&source[first..first + length]),
        }
        end += length;
        // Below the last one, which fits.
        O::wrapping(end)
    }));
    assert!(end == last, "texts that do not add up");
    data.truncate(last);
    Ok(())
}

/// Appends the value at `index` of a page of `rows` values.
pub(crate) fn decode_value(
    codec: CodecChain,
    prelude: &[u8],
    page: &[u8],
    (rows, index): (usize, usize),
    scratch: &mut DecodeScratch,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let DecodeScratch {
        decompressor,
        buffers,
        lanes,
        texts,
        ..
    } = scratch;
    let (mode, input) = match open_page(codec, prelude, page, decompressor)? {
        Source::Constant => {
            out.extend_from_slice(prelude);
            return Ok(());
        }
        Source::Page(PageMode::Codes, input) => {
            let codes = DictionaryView::read(prelude)?;
            return codes.decode_value(input, (rows, index), buffers, out);
        }
        Source::Page(mode, input) => (mode, input),
    };
    let lengths = lanes.lanes::<u32>(rows);
    let (total_bytes, mut input) = read_lengths(input, &mut buffers[0], lengths)?;
    let start: u64 = lengths[..index]
        .iter()
        .map(|&length| u64::from(length))
        .sum();
    let end = start + u64::from(lengths[index]);
    // Within what follows, or refused with it.
    let at = |bytes: u64| usize::try_from(bytes).map_err(|_| BEYOND_OFFSETS);
    let (start, end, total) = (at(start)?, at(end)?, at(total_bytes)?);
    match mode {
        PageMode::Plain => {
            let bytes = input.take_rest();
            let fits = bytes.len() == total;
            ensure(fits, "lengths do not add up to the bytes of a page")?;
            out.extend_from_slice(&bytes[start..end]);
            Ok(())
        }
        PageMode::Alphabet | PageMode::Fsst => match texts.read(codec.kind, prelude)? {
            ReadTable::Alphabet(alphabet) => {
                alphabet.decode_range(input.take_rest(), (start, end, total), out)
            }
            ReadTable::Fsst(symbols) => {
                let groups = Groups::read(input, rows)?;
                groups.decode_value(symbols, lengths, index, out)
            }
        },
        _ => Err(UNFIT),
    }
}
