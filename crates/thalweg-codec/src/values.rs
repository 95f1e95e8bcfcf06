//! Chunks of fixed-width values: what the pages of integers, floats and wide numbers share.
//!
//! Invariants: values are handled by their bits; a chunk whose values are all the same is its
//! prelude alone.

use zerocopy::{FromBytes, IntoBytes};

use crate::PAGE_ROWS;
use crate::chain::{ChunkKind, CodecChain, LastStage};
use crate::choose::Sample;
use crate::chunk::EncodedChunk;
use crate::dictionary::{self, ValueDictionary};
use crate::encode::{EncodeScratch, Level, Settings, ValueCodec};
use crate::error::{DecodeError, EncodeError, ensure};
use crate::floats::{self, Float, FloatPlan, FloatScratch};
use crate::input::Input;
use crate::integers::{self, IntegerPlan, IntegerScratch};
use crate::mode::PageMode;
use crate::packing::{PageBuffer, block_bytes};
use crate::stage::{Decompressor, PageWriter};
use crate::wide::Lane;

/// How the pages of a type are planned and written; lanes are its bits.
trait PageCoder {
    type Lane: Lane;

    /// Makes a plan from a sample; returns how many distinct values it shows, when some repeat.
    fn plan(
        &mut self,
        values: &[Self::Lane],
        settings: &Settings,
        sample: &mut PageBuffer,
    ) -> Option<usize>;
    /// What a full page should take.
    fn page_bytes(&self) -> usize;
    /// Appends a page.
    fn encode(&mut self, page: &[Self::Lane], integers: &mut IntegerScratch, out: &mut Vec<u8>);
}

/// Integers, signed or not.
struct IntegerCoder<L> {
    flip: L,
    plan: IntegerPlan,
    level: Level,
}

impl<L: Lane> PageCoder for IntegerCoder<L> {
    type Lane = L;

    fn plan(
        &mut self,
        values: &[L],
        settings: &Settings,
        buffer: &mut PageBuffer,
    ) -> Option<usize> {
        let sample = Sample::of_chunk(values, buffer);
        self.plan = match (settings.codec, &sample) {
            (Some(codec), _) => IntegerPlan::forced(codec.page_mode()),
            (None, Some(sample)) => sample.plan_integers(self.flip),
            (None, None) => IntegerPlan::UNKNOWN,
        };
        sample?.distinct_values()
    }

    fn page_bytes(&self) -> usize {
        self.plan.page_bytes
    }

    fn encode(&mut self, page: &[L], scratch: &mut IntegerScratch, out: &mut Vec<u8>) {
        if self.level == Level::Dense && !self.plan.forced {
            self.plan = IntegerPlan::UNKNOWN;
        }
        integers::encode(page, self.flip, &mut self.plan, scratch, out);
    }
}

/// Floats.
struct FloatCoder<'a, F> {
    plan: FloatPlan,
    scratch: &'a mut FloatScratch,
    float: std::marker::PhantomData<F>,
}

impl<F: Float> PageCoder for FloatCoder<'_, F> {
    type Lane = F::Bits;

    fn plan(
        &mut self,
        values: &[F::Bits],
        settings: &Settings,
        buffer: &mut PageBuffer,
    ) -> Option<usize> {
        if let Some(codec) = settings.codec {
            let (way, integers) = codec.float_way();
            let sample = &values[..values.len().min(PAGE_ROWS)];
            self.plan = FloatPlan::forced::<F>(sample, way, integers);
            return None;
        }
        let Some(sample) = Sample::of_chunk(values, buffer) else {
            self.plan = FloatPlan::UNKNOWN;
            return None;
        };
        let distinct = sample.distinct_values();
        self.plan = FloatPlan::of_sample::<F>(&sample, self.scratch.room());
        distinct
    }

    fn page_bytes(&self) -> usize {
        self.plan.page_bytes::<F>()
    }

    fn encode(&mut self, page: &[F::Bits], integers: &mut IntegerScratch, out: &mut Vec<u8>) {
        floats::encode::<F>(page, &mut self.plan, self.scratch, integers, out);
    }
}

/// Encodes integers with these bits into a chunk that is empty but for its type.
pub(crate) fn encode_integers<L: Lane>(
    values: &[L],
    flip: L,
    settings: &Settings,
    scratch: &mut EncodeScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    let coder = IntegerCoder {
        flip,
        plan: IntegerPlan::UNKNOWN,
        level: settings.level,
    };
    let EncodeScratch { shared, floats: _ } = scratch;
    encode_chunk(values, coder, settings, shared, out)
}

/// Encodes floats with these bits into a chunk that is empty but for its type.
pub(crate) fn encode_floats<F: Float>(
    values: &[F::Bits],
    settings: &Settings,
    scratch: &mut EncodeScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    let EncodeScratch { shared, floats } = scratch;
    let coder = FloatCoder::<F> {
        plan: FloatPlan::UNKNOWN,
        scratch: floats,
        float: std::marker::PhantomData,
    };
    encode_chunk(values, coder, settings, shared, out)
}

/// Buffers of [`encode_chunk`].
#[derive(Debug, Default)]
pub(crate) struct SharedScratch {
    pub(crate) integers: IntegerScratch,
    pub(crate) compressor: crate::stage::Compressor,
    pub(crate) page: Vec<u8>,
    sample: PageBuffer,
    dictionary: ValueDictionary,
    plain: Vec<u8>,
}

fn encode_chunk<C: PageCoder>(
    values: &[C::Lane],
    mut coder: C,
    settings: &Settings,
    scratch: &mut SharedScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    if settings.codec.is_none() && is_constant(values) {
        write_constant(values[0].as_bytes(), out);
        return Ok(());
    }
    let distinct = coder.plan(values, settings, &mut scratch.sample);
    let dictionary = &mut scratch.dictionary;
    let is_coded = match (settings.codec, distinct) {
        (Some(codec), _) => {
            codec == ValueCodec::Dictionary && dictionary.build(values, dictionary::VALUES_MAX)
        }
        (None, Some(distinct)) => {
            build_dictionary(values, coder.page_bytes(), distinct, dictionary)
        }
        (None, None) => false,
    };
    if is_coded {
        out.codec.kind = ChunkKind::Dictionary;
        scratch.dictionary.write_prelude::<C::Lane>(&mut out.bytes);
        out.prelude_bytes = integers::small(out.bytes.len());
    }
    encode_pages(values, coder, settings, scratch, out)
}

fn is_constant<L: Lane>(values: &[L]) -> bool {
    values
        .first()
        .is_some_and(|first| values.iter().all(|value| value == first))
}

/// Makes the chunk one value for all rows.
pub(crate) fn write_constant(value: &[u8], out: &mut EncodedChunk) {
    out.codec.kind = ChunkKind::Constant;
    out.bytes.extend_from_slice(value);
    out.prelude_bytes = integers::small(value.len());
    let pages = crate::chunk::page_count(out.rows);
    out.page_ends.resize(pages, out.prelude_bytes);
}

/// Numbers the values; says whether that makes the chunk smaller.
/// Numbers the values where that makes the chunk smaller; says whether it did. A sample has seen
/// `distinct` values, of which there may be more.
fn build_dictionary<L: Lane>(
    values: &[L],
    page_bytes: usize,
    distinct: usize,
    dictionary: &mut ValueDictionary,
) -> bool {
    let pages = values.len().div_ceil(PAGE_ROWS);
    let pays = |distinct: usize| {
        let code_bits = usize::BITS - distinct.saturating_sub(1).leading_zeros();
        let page_codes_bytes = 8 + block_bytes(PAGE_ROWS, code_bits);
        let coded_bytes = 4 + distinct * L::BYTES + pages * page_codes_bytes;
        // A look-up per row is slow to read: it must save a sixteenth.
        coded_bytes + coded_bytes / 16 < pages * page_bytes
    };
    let limit = (values.len() / 4).clamp(1, dictionary::VALUES_MAX);
    pays(distinct) && dictionary.build(values, limit) && pays(dictionary.len())
}

fn encode_pages<C: PageCoder>(
    values: &[C::Lane],
    mut coder: C,
    settings: &Settings,
    scratch: &mut SharedScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    let SharedScratch {
        integers,
        compressor,
        page,
        dictionary,
        plain,
        ..
    } = scratch;
    let coded = out.codec.kind == ChunkKind::Dictionary;
    let rule = settings.stage_rule(50);
    let mut writer = PageWriter::new(out);
    for (index, page_values) in values.chunks(PAGE_ROWS).enumerate() {
        page.clear();
        if coded && dictionary.codes.pages[index] {
            let codes = &dictionary.codes.rows[index * PAGE_ROWS..][..page_values.len()];
            dictionary::encode_codes(codes, integers, page);
        } else {
            coder.encode(page_values, integers, page);
        }
        let raw_bytes = size_of_val(page_values);
        let stage = writer.stage(rule, page, raw_bytes, compressor);
        plain.clear();
        if stage == LastStage::Zstd && page.len() > raw_bytes / 16 {
            // Packing hides repeated patterns, so the values themselves are tried, too.
            integers::write_plain(page_values, plain);
        }
        writer.push(page, plain, compressor, out)?;
    }
    writer.finish(out);
    Ok(())
}

/// Buffers of decoding.
#[derive(Debug, Default)]
pub(crate) struct DecodeScratch {
    pub(crate) decompressor: Decompressor,
    pub(crate) buffers: [PageBuffer; 2],
}

/// Where the rows of a page are to be found.
pub(crate) enum Source<'a> {
    /// All are the prelude.
    Constant,
    /// In the page, in this mode.
    Page(PageMode, Input<'a>),
}

/// Opens a page of any kind and checks that kind and prelude go together.
pub(crate) fn open_page<'a>(
    codec: CodecChain,
    prelude: &[u8],
    page: &'a [u8],
    decompressor: &'a mut Decompressor,
) -> Result<Source<'a>, DecodeError> {
    if codec.kind == ChunkKind::Constant {
        ensure(page.is_empty(), "a constant chunk has bytes in its pages")?;
        return Ok(Source::Constant);
    }
    ensure(
        codec.kind == ChunkKind::Dictionary || prelude.is_empty(),
        "unexpected prelude",
    )?;
    let mut input = Input::new(decompressor.open(codec.last_stage, page)?);
    let mode = PageMode::from_byte(input.read()?)?;
    ensure(
        codec.kind == ChunkKind::Dictionary || mode != PageMode::Codes,
        "codes without a dictionary",
    )?;
    Ok(Source::Page(mode, input))
}

/// Decodes a page of integers.
pub(crate) fn decode_integers<L: Lane>(
    codec: CodecChain,
    prelude: &[u8],
    page: &[u8],
    scratch: &mut DecodeScratch,
    out: &mut [L],
) -> Result<(), DecodeError> {
    decode_page(
        codec,
        prelude,
        page,
        scratch,
        out,
        |mode, input, buffers, out| integers::decode_mode(mode, input, &mut buffers[0], out),
    )
}

/// Decodes a page of floats into their bits.
pub(crate) fn decode_floats<F: Float>(
    codec: CodecChain,
    prelude: &[u8],
    page: &[u8],
    scratch: &mut DecodeScratch,
    out: &mut [F::Bits],
) -> Result<(), DecodeError> {
    decode_page(codec, prelude, page, scratch, out, floats::decode_mode::<F>)
}

fn decode_page<L: Lane>(
    codec: CodecChain,
    prelude: &[u8],
    page: &[u8],
    scratch: &mut DecodeScratch,
    out: &mut [L],
    decode_mode: impl FnOnce(
        PageMode,
        Input<'_>,
        &mut [PageBuffer; 2],
        &mut [L],
    ) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let DecodeScratch {
        decompressor,
        buffers,
    } = scratch;
    match open_page(codec, prelude, page, decompressor)? {
        Source::Constant => {
            let value = L::read_from_bytes(prelude)
                .map_err(|_| DecodeError::new("constant of the wrong length"))?;
            out.fill(value);
            Ok(())
        }
        Source::Page(PageMode::Codes, input) => {
            dictionary::decode_values(prelude, input, buffers, out)
        }
        Source::Page(mode, input) => decode_mode(mode, input, buffers, out),
    }
}

/// Encodes numbers of 128 bits: each page as two, of the low and of the high halves.
pub(crate) fn encode_halves(
    values: &[i128],
    settings: &Settings,
    scratch: &mut EncodeScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    if settings.codec.is_none()
        && values.iter().all(|value| *value == values[0])
        && !values.is_empty()
    {
        write_constant(values[0].as_bytes(), out);
        return Ok(());
    }
    let SharedScratch {
        integers,
        compressor,
        page,
        plain,
        sample,
        ..
    } = &mut scratch.shared;
    let mode = settings.codec.map(ValueCodec::page_mode);
    let mut low_plan = mode.map_or(IntegerPlan::UNKNOWN, IntegerPlan::forced);
    let mut high_plan = low_plan;
    let rule = settings.stage_rule(50);
    let mut writer = PageWriter::new(out);
    for page_values in values.chunks(PAGE_ROWS) {
        let raw_bytes = size_of_val(page_values);
        page.clear();
        page.extend_from_slice(&[PageMode::Halves.to_byte(), 0, 0, 0, 0]);
        let halves = &mut sample.lanes::<u64>()[..page_values.len()];
        split_halves(page_values, halves, 0);
        integers::encode(halves, 0, &mut low_plan, integers, page);
        let low_bytes: u32 = integers::small(page.len() - 5);
        page[1..5].copy_from_slice(&low_bytes.to_le_bytes());
        split_halves(page_values, halves, 64);
        integers::encode(halves, u64::SIGN, &mut high_plan, integers, page);
        plain.clear();
        plain.push(PageMode::Plain.to_byte());
        plain.extend_from_slice(page_values.as_bytes());
        if page.len() >= plain.len() {
            std::mem::swap(page, plain);
        }
        writer.stage(rule, page, raw_bytes, compressor);
        writer.push(page, plain, compressor, out)?;
    }
    writer.finish(out);
    Ok(())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "one half is what is asked for"
)]
fn split_halves(values: &[i128], halves: &mut [u64], shift: u32) {
    for (&value, half) in values.iter().zip(halves) {
        *half = (value >> shift) as u64;
    }
}

/// Decodes a page of numbers of 128 bits.
pub(crate) fn decode_halves(
    codec: CodecChain,
    prelude: &[u8],
    page: &[u8],
    scratch: &mut DecodeScratch,
    out: &mut [i128],
) -> Result<(), DecodeError> {
    let DecodeScratch {
        decompressor,
        buffers: [buffer, halves],
    } = scratch;
    match open_page(codec, prelude, page, decompressor)? {
        Source::Constant => {
            let value = i128::read_from_bytes(prelude)
                .map_err(|_| DecodeError::new("constant of the wrong length"))?;
            out.fill(value);
            Ok(())
        }
        Source::Page(PageMode::Plain, mut input) => {
            let values = input.take(size_of_val(out))?;
            out.as_mut_bytes().copy_from_slice(values);
            input.finish()
        }
        Source::Page(PageMode::Halves, mut input) => {
            let low_bytes = input.read::<u32>()? as usize;
            let halves = &mut halves.lanes::<u64>()[..out.len()];
            integers::decode(input.take(low_bytes)?, buffer, halves)?;
            for (value, &half) in out.iter_mut().zip(&*halves) {
                *value = i128::from(half);
            }
            integers::decode(input.take_rest(), buffer, halves)?;
            for (value, &half) in out.iter_mut().zip(&*halves) {
                *value |= i128::from(half) << 64;
            }
            Ok(())
        }
        Source::Page(..) => Err(DecodeError::new(
            "page mode does not fit numbers of 128 bits",
        )),
    }
}
