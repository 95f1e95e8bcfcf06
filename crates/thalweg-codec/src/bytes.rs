//! Chunks of variable-length values: strings and binaries.
//!
//! Invariants: lengths are coded, offsets are not, so a page does not depend on those before it; a
//! page never claims more bytes than [`expands_to`] allows its input.

use std::ops::Range;

use crate::MAX_PAGE_ROWS;
use crate::chain::{ChunkKind, LastStage};
use crate::chunk::EncodedChunk;
use crate::constant;
use crate::dictionary::{self, hash_bytes};
use crate::encode_scratch::SharedScratch;
use crate::error::EncodeError;
use crate::inner;
use crate::integers::{IntegerPlan, IntegerScratch, small};
use crate::mode::PageMode;
use crate::packing::LongBuffer;
use crate::settings::{Settings, ValueCodec};
use crate::stage::{PageWriter, StageRule, expands_to};
use crate::text_choice::{self, TextForm};
use crate::variable_length::Values;

mod append;
mod dictionary_of_texts;
mod read;

use dictionary_of_texts::BytesDictionary;
pub(crate) use read::{TextReaders, decode_page, decode_value};

/// Buffers of [`encode`].
#[derive(Debug, Default)]
pub(crate) struct BytesScratch {
    pub(crate) values: Values,
    dictionary: BytesDictionary,
    lengths: LongBuffer,
}

impl BytesScratch {
    /// All values of the chunk that was encoded last, each once; `None` where they are not known.
    pub(crate) fn all_texts(&self) -> Option<impl Iterator<Item = &[u8]>> {
        self.dictionary.all_texts()
    }

    /// The memory of the buffers.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.values.buffer_bytes() + self.dictionary.buffer_bytes() + self.lengths.buffer_bytes()
    }

    /// Gives buffers of more than `limit_bytes` back.
    pub(crate) fn trim(&mut self, limit_bytes: usize) {
        self.values.trim(limit_bytes);
        self.dictionary.trim(limit_bytes);
    }
}

/// Pages of more bytes get no codes of FSST: what these may take is reserved before.
const MAX_FSST_BYTES: usize = 4 << 20;

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
    dictionary.clear();
    if settings.codec.is_none() && is_constant(values, data) {
        dictionary.set_to(values.value(data, 0));
        constant::write(values.value(data, 0), out);
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
        for (&end, length) in self.values.ends()[rows.clone()].iter().zip(&mut *lengths) {
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
            let raw_bytes = page_data.len() as u64;
            writer.push_packed([packed, &[]], raw_bytes, compressor, out)?;
            continue;
        }
        failures += usize::from(!matches!(form, TextForm::Plain));
        if failures >= MAX_FAILURES {
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
const MAX_FAILURES: usize = 2;

/// The last stage of pages that are packed already: at the fast level LZ4 finds nothing more.
fn packed_rule(settings: &Settings) -> StageRule {
    match settings.stage_rule(0) {
        StageRule::Lz4Above(_) => StageRule::Always(LastStage::None),
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
/// plain one; returns whether it is smaller.
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
            if page_data.len() > MAX_FSST_BYTES {
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
    // All values are empty. To compare no bytes may take processors long, at an address that points
    // to nothing.
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
