//! Chunks of pco: one wrapped pco chunk whose metadata is the prelude, one pco page per page.
//!
//! Invariants: only modes and differences whose tables are bounded are written and read; a page is
//! decoded once after it was encoded, and stored in another mode if a bit differs or it is not
//! smaller.
//!
//! pco decodes at a half to a sixteenth of the speed of packed pages and encodes far slower, so only
//! the dense level asks for it.

use std::any::Any;

use pco::wrapped::{ChunkCompressor, ChunkDecompressor, FileCompressor, FileDecompressor};
use pco::{ChunkConfig, DeltaSpec, PagingSpec};
use zerocopy::{FromBytes, IntoBytes};

use crate::PAGE_ROWS;
use crate::chain::{ChunkKind, LastStage};
use crate::chunk::{EncodedChunk, Paging};
use crate::encode_scratch::SharedScratch;
use crate::error::{DecodeError, EncodeError, ensure};
use crate::mode::PageMode;
use crate::number::Number;
use crate::packed_pages;
use crate::page_coder::{LaneOf, PageCoder};
use crate::settings::{Level, Settings, ValueCodec};
use crate::wide::Lane;

/// The longest prelude that is read or written.
const MAX_PRELUDE_BYTES: usize = 64 << 10;
/// The highest order of differences.
const MAX_ORDER: usize = 2;
/// Runs of a chunk that are tried.
const SAMPLE_RUNS: usize = 16;
/// Numbers that pco decodes at a time.
const BATCH_ROWS: usize = 256;
/// The major version of its format, and the highest minor one.
const FORMAT: (u8, u8) = (4, 1);

const REFUSED: DecodeError = DecodeError::new("pco refuses a page");

/// The order of differences to encode values with; `None` where pco does not pay.
pub(crate) fn choose<C: PageCoder>(
    values: &[LaneOf<C>],
    coder: &mut C,
    settings: &Settings,
    scratch: &mut SharedScratch,
) -> Result<Option<usize>, EncodeError> {
    let is_forced = settings.codec == Some(ValueCodec::Pco);
    let is_tried =
        settings.codec.is_none() && settings.level == Level::Dense && settings.last_stage.is_none();
    if values.is_empty() || !(is_forced || is_tried) {
        return Ok(None);
    }
    let sample = sample(values);
    let Some((order, bytes)) = smallest_order::<C>(&sample) else {
        return Ok(None);
    };
    if is_forced {
        return Ok(Some(order));
    }
    let mut trial = EncodedChunk::new();
    trial.rows = sample.len();
    trial.set_paging(Paging::STREAM)?;
    packed_pages::encode(&sample, coder, settings, scratch, &mut trial)?;
    // An eighth: less is not worth reading at a fraction of the speed.
    Ok((bytes + bytes / 7 < trial.bytes.len()).then_some(order))
}

/// All values of a short chunk, evenly spread runs of a long one.
fn sample<L: Lane>(values: &[L]) -> Vec<L> {
    if values.len() <= SAMPLE_RUNS * PAGE_ROWS {
        return values.to_vec();
    }
    let run = |index| {
        let start = index * (values.len() - PAGE_ROWS) / (SAMPLE_RUNS - 1);
        values[start..start + PAGE_ROWS].iter().copied()
    };
    (0..SAMPLE_RUNS).flat_map(run).collect()
}

/// The order that makes the sample smallest, and what it takes.
fn smallest_order<C: PageCoder>(sample: &[LaneOf<C>]) -> Option<(usize, usize)> {
    let pages = sample.chunks(PAGE_ROWS).map(<[_]>::len);
    let pages: Vec<usize> = pages.collect();
    let mut best = None;
    let mut bytes = Vec::new();
    for order in 0..=MAX_ORDER {
        bytes.clear();
        let mut compressor = compressor::<C>(sample, order, pages.clone())?;
        write_prelude(&compressor, &mut bytes)?;
        for page in 0..pages.len() {
            compressor.write_page(page, &mut bytes).ok()?;
        }
        if best.is_some_and(|(_, best)| best <= bytes.len()) {
            break;
        }
        best = Some((order, bytes.len()));
    }
    best
}

/// The numbers with these bits.
fn numbers_of<T: Number>(lanes: &[T::Lane]) -> &[T] {
    match <[T]>::ref_from_bytes(lanes.as_bytes()) {
        Ok(numbers) => numbers,
        // A number has the size and alignment of its lane.
        Err(_) => unreachable!("numbers differ from their lanes"),
    }
}

fn compressor<C: PageCoder>(
    values: &[LaneOf<C>],
    order: usize,
    pages: Vec<usize>,
) -> Option<ChunkCompressor> {
    let differences = if order == 0 {
        DeltaSpec::NoOp
    } else {
        DeltaSpec::TryConsecutive(order)
    };
    let config = ChunkConfig::default()
        .with_delta_spec(differences)
        .with_paging_spec(PagingSpec::Exact(pages))
        .with_enable_8_bit(true);
    let numbers = numbers_of::<C::Number>(values);
    FileCompressor::default()
        .chunk_compressor(numbers, &config)
        .ok()
}

/// Appends header and metadata; `None` when pco refuses.
fn write_prelude(compressor: &ChunkCompressor, out: &mut Vec<u8>) -> Option<()> {
    FileCompressor::default().write_header(&mut *out).ok()?;
    compressor.write_meta(out).ok()?;
    Some(())
}

/// Encodes values with differences of `order`; returns whether that went well. If not, the chunk is
/// as before.
pub(crate) fn encode<C: PageCoder>(
    values: &[LaneOf<C>],
    order: usize,
    coder: &mut C,
    scratch: &mut SharedScratch,
    out: &mut EncodedChunk,
) -> Result<bool, EncodeError> {
    let pages = (0..out.planned_pages()).map(|page| out.row_range(page).len());
    let Some(mut compressor) = compressor::<C>(values, order, pages.collect()) else {
        return Ok(false);
    };
    if write_prelude(&compressor, &mut out.bytes).is_none()
        || check_prelude::<C::Number>(&out.bytes).is_err()
    {
        out.bytes.clear();
        return Ok(false);
    }
    out.codec.kind = ChunkKind::Pco;
    out.codec.last_stage = LastStage::None;
    // At most 64 KiB.
    out.prelude_bytes = crate::integers::small(out.bytes.len());
    let mut reader = PcoReader::default();
    let mut back = Vec::new();
    for index in 0..out.planned_pages() {
        let page_values = &values[out.row_range(index)];
        let page = &mut scratch.page;
        page.clear();
        let written = compressor.write_page(index, &mut *page).is_ok();
        back.clear();
        back.resize(page_values.len(), LaneOf::<C>::default());
        let prelude = &out.bytes[..out.prelude_bytes as usize];
        let is_same = written
            && reader.decode::<C::Number>(prelude, page, &mut back).is_ok()
            && back == page_values;
        if is_same && page.len() < size_of_val(page_values) {
            out.bytes.push(PageMode::Pco.to_byte());
            out.bytes.extend_from_slice(page);
        } else {
            coder.encode(page_values, &mut scratch.integers, &mut out.bytes);
        }
        out.end_page()?;
    }
    Ok(true)
}

/// Checks what chooses the size of tables, before pco reads it: versions, mode, differences.
fn check_prelude<T: Number>(prelude: &[u8]) -> Result<(), DecodeError> {
    ensure(prelude.len() <= MAX_PRELUDE_BYTES, "pco metadata too long")?;
    let &[major, minor, mode, ..] = prelude else {
        return Err(DecodeError::new("pco metadata is cut short"));
    };
    let known = major == FORMAT.0 && minor <= FORMAT.1;
    ensure(known, "pco format of another version")?;
    let parameter_bits = match mode & 0xF {
        0 => 0,
        1 | 2 => T::Lane::BITS as usize,
        3 => 8,
        _ => return Err(DecodeError::new("pco mode that is not read")),
    };
    let differences_at = 20 + parameter_bits;
    let word = crate::packing::word_at(prelude, differences_at / 8) >> (differences_at % 8);
    match (word & 0xF, word >> 4 & 7) {
        (0, _) | (1, 1..=2) => Ok(()),
        _ => Err(DecodeError::new("pco differences that are not read")),
    }
}

/// Reads pages of pco; keeps the tables of the last chunk.
#[derive(Default)]
pub(crate) struct PcoReader {
    prelude: Vec<u8>,
    /// A [`ChunkDecompressor`] of some number type.
    tables: Option<Box<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for PcoReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PcoReader").finish_non_exhaustive()
    }
}

impl PcoReader {
    /// The tables of a prelude.
    fn tables<T: Number>(
        &mut self,
        prelude: &[u8],
    ) -> Result<&mut ChunkDecompressor<T>, DecodeError> {
        let is_known = self.prelude == prelude
            && self
                .tables
                .as_ref()
                .is_some_and(|tables| tables.is::<ChunkDecompressor<T>>());
        if !is_known {
            self.tables = None;
            self.tables = Some(Box::new(read_tables::<T>(prelude)?));
            self.prelude.clear();
            self.prelude.extend_from_slice(prelude);
        }
        let tables = self
            .tables
            .as_mut()
            .and_then(|tables| tables.downcast_mut());
        tables.ok_or(REFUSED)
    }

    /// Reads a page after its mode byte.
    pub(crate) fn decode<T: Number>(
        &mut self,
        prelude: &[u8],
        page: &[u8],
        out: &mut [T::Lane],
    ) -> Result<(), DecodeError> {
        let rows = out.len();
        let tables = self.tables::<T>(prelude)?;
        let mut page = tables.page_decompressor(page, rows).map_err(|_| REFUSED)?;
        let numbers = <[T]>::mut_from_bytes(out.as_mut_bytes()).map_err(|_| REFUSED)?;
        let progress = page.read(numbers).map_err(|_| REFUSED)?;
        ensure(progress.finished, "a pco page of another number of rows")?;
        ensure(page.into_src().is_empty(), "bytes after the end of a page")
    }

    /// One value of a page of `rows` rows, after its mode byte.
    pub(crate) fn value<T: Number>(
        &mut self,
        prelude: &[u8],
        page: &[u8],
        rows: usize,
        index: usize,
    ) -> Result<T::Lane, DecodeError> {
        let tables = self.tables::<T>(prelude)?;
        let mut page = tables.page_decompressor(page, rows).map_err(|_| REFUSED)?;
        let mut batch = [T::default(); BATCH_ROWS];
        for _ in 0..=index / BATCH_ROWS {
            page.read(&mut batch).map_err(|_| REFUSED)?;
        }
        let bytes = batch[index % BATCH_ROWS].as_bytes();
        T::Lane::read_from_bytes(bytes).map_err(|_| REFUSED)
    }
}

fn read_tables<T: Number>(prelude: &[u8]) -> Result<ChunkDecompressor<T>, DecodeError> {
    const BAD: DecodeError = DecodeError::new("pco refuses the metadata of a chunk");
    check_prelude::<T>(prelude)?;
    let (file, rest) = FileDecompressor::new(prelude).map_err(|_| BAD)?;
    let (tables, rest) = file.chunk_decompressor::<T, _>(rest).map_err(|_| BAD)?;
    ensure(rest.is_empty(), "bytes after the metadata of a pco chunk")?;
    Ok(tables)
}
