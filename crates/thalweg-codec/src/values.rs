//! Chunks of fixed-width values: what the pages of integers and floats share.
//!
//! Invariants: values are handled by their bits; a chunk whose values are all the same is its
//! prelude alone.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::PAGE_ROWS;
use crate::chain::{ChunkKind, CodecChain, LastStage};
use crate::choose::Sample;
use crate::chunk::EncodedChunk;
use crate::dictionary::{self, ValueDictionary};
use crate::encode::{EncodeScratch, Level, Settings, ValueCodec};
use crate::error::{DecodeError, EncodeError, ensure};
use crate::floats::{self, Float, FloatPlan, FloatScratch};
use crate::inner;
use crate::input::Input;
use crate::integers::{self, IntegerPlan, IntegerScratch};
use crate::memory::{capacity_bytes, trim};
use crate::mode::PageMode;
use crate::packing::{LongBuffer, PageBuffer, block_bytes};
use crate::pco_pages::{self, PcoReader};
use crate::runs::Runs;
use crate::shuffle;
use crate::stage::{Compressor, Decompressor, PageWriter};
use crate::wide::Lane;

/// A number of up to 64 bits, with the lane that has its bits.
pub(crate) trait Number:
    pco::data_types::Number + Default + FromBytes + IntoBytes + Immutable
{
    /// The unsigned integer of the same width.
    type Lane: Lane;

    /// The number with the bits of a lane.
    fn of_lane(lane: Self::Lane) -> Self;
}

/// An integer.
pub(crate) trait Integer: Number {
    /// Zero for unsigned integers, [`Lane::SIGN`] for signed ones.
    const FLIP: Self::Lane;
}

macro_rules! numbers {
    ($($type:ty: $lane:ty $(, $flip:expr)?;)*) => {
        $(
            impl Number for $type {
                type Lane = $lane;

                fn of_lane(lane: $lane) -> Self {
                    Self::from_le_bytes(lane.to_le_bytes())
                }
            }
            $(impl Integer for $type {
                const FLIP: $lane = $flip;
            })?
        )*
    };
}

numbers! {
    i8: u8, u8::SIGN;
    i16: u16, u16::SIGN;
    i32: u32, u32::SIGN;
    i64: u64, u64::SIGN;
    u8: u8, 0;
    u16: u16, 0;
    u32: u32, 0;
    u64: u64, 0;
    f32: u32;
    f64: u64;
}

/// How the pages of a type are planned and written; lanes are its bits.
pub(crate) trait PageCoder {
    type Number: Number;

    /// Makes a plan from a sample; returns how many distinct values it shows, when some repeat.
    fn plan(
        &mut self,
        values: &[<Self::Number as Number>::Lane],
        settings: &Settings,
        sample: &mut PageBuffer,
    ) -> Option<usize>;
    /// Estimated bytes of a full run.
    fn run_bytes(&self) -> usize;
    /// Appends a page of one run.
    fn encode_run(
        &mut self,
        run: &[<Self::Number as Number>::Lane],
        integers: &mut IntegerScratch,
        out: &mut Vec<u8>,
    );
    /// Appends a page.
    fn encode(
        &mut self,
        page: &[<Self::Number as Number>::Lane],
        integers: &mut IntegerScratch,
        out: &mut Vec<u8>,
    ) {
        if page.len() <= PAGE_ROWS {
            return self.encode_run(page, integers, out);
        }
        inner::encode_long(page, LaneOf::<Self>::default(), out, |run, out| {
            self.encode_run(run, integers, out);
        });
    }
}

/// The lane of a coder's values.
pub(crate) type LaneOf<C> = <<C as PageCoder>::Number as Number>::Lane;

/// Integers, signed or not.
struct IntegerCoder<T> {
    plan: IntegerPlan,
    level: Level,
    integer: std::marker::PhantomData<T>,
}

impl<T: Integer> PageCoder for IntegerCoder<T> {
    type Number = T;

    fn plan(
        &mut self,
        values: &[T::Lane],
        settings: &Settings,
        buffer: &mut PageBuffer,
    ) -> Option<usize> {
        let sample = Sample::of_chunk(values, buffer);
        self.plan = match (settings.codec, &sample) {
            (Some(codec), _) => IntegerPlan::forced(codec.page_mode()),
            (None, Some(sample)) => sample.plan_integers(T::FLIP),
            (None, None) => IntegerPlan::UNKNOWN,
        };
        sample?.distinct_values()
    }

    fn run_bytes(&self) -> usize {
        self.plan.page_bytes
    }

    fn encode_run(&mut self, run: &[T::Lane], scratch: &mut IntegerScratch, out: &mut Vec<u8>) {
        if self.level == Level::Dense && !self.plan.forced {
            self.plan = IntegerPlan::UNKNOWN;
        }
        integers::encode(run, T::FLIP, &mut self.plan, scratch, out);
    }
}

/// Floats.
struct FloatCoder<'a, F> {
    plan: FloatPlan,
    scratch: &'a mut FloatScratch,
    float: std::marker::PhantomData<F>,
}

impl<F: Float> PageCoder for FloatCoder<'_, F> {
    type Number = F;

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

    fn run_bytes(&self) -> usize {
        self.plan.page_bytes::<F>()
    }

    fn encode_run(&mut self, run: &[F::Bits], integers: &mut IntegerScratch, out: &mut Vec<u8>) {
        floats::encode::<F>(run, &mut self.plan, self.scratch, integers, out);
    }
}

/// Encodes integers with these bits into a chunk that is empty but for its type and pages.
pub(crate) fn encode_integers<T: Integer>(
    values: &[T::Lane],
    settings: &Settings,
    scratch: &mut EncodeScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    let coder = IntegerCoder::<T> {
        plan: IntegerPlan::UNKNOWN,
        level: settings.level,
        integer: std::marker::PhantomData,
    };
    let EncodeScratch { shared, floats: _ } = scratch;
    encode_chunk(values, coder, settings, shared, out)
}

/// Encodes floats with these bits into a chunk that is empty but for its type and pages.
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

/// Buffers that all types of values share.
#[derive(Debug, Default)]
pub(crate) struct SharedScratch {
    pub(crate) integers: IntegerScratch,
    pub(crate) compressor: Compressor,
    pub(crate) page: Vec<u8>,
    /// Another form of the page.
    pub(crate) plain: Vec<u8>,
    pub(crate) sample: PageBuffer,
    pub(crate) lanes: LongBuffer,
    dictionary: ValueDictionary<u64>,
    pub(crate) wide_dictionary: ValueDictionary<u128>,
}

impl SharedScratch {
    /// The memory of the buffers that grow.
    pub(crate) fn buffer_bytes(&self) -> usize {
        capacity_bytes(&self.page)
            + capacity_bytes(&self.plain)
            + self.compressor.buffer_bytes()
            + self.lanes.buffer_bytes()
            + self.dictionary.buffer_bytes()
            + self.wide_dictionary.buffer_bytes()
    }

    /// Gives buffers of more than `limit_bytes` back.
    pub(crate) fn trim(&mut self, limit_bytes: usize) {
        trim(&mut self.page, limit_bytes);
        trim(&mut self.plain, limit_bytes);
        self.compressor.trim(limit_bytes);
        self.dictionary.trim(limit_bytes);
        self.wide_dictionary.trim(limit_bytes);
    }
}

fn encode_chunk<C: PageCoder>(
    values: &[LaneOf<C>],
    mut coder: C,
    settings: &Settings,
    scratch: &mut SharedScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    if settings.codec.is_none() && is_constant(values) {
        write_constant(values[0].as_bytes(), out);
        return Ok(());
    }
    if let Some(order) = pco_pages::choose(values, &mut coder, settings, scratch)? {
        coder.plan(values, settings, &mut scratch.sample);
        if pco_pages::encode(values, order, &mut coder, scratch, out)? {
            return Ok(());
        }
    }
    encode_without_pco(values, &mut coder, settings, scratch, out)
}

/// Encodes values that are not all the same, without pco.
pub(crate) fn encode_without_pco<C: PageCoder>(
    values: &[LaneOf<C>],
    coder: &mut C,
    settings: &Settings,
    scratch: &mut SharedScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    let distinct = coder.plan(values, settings, &mut scratch.sample);
    let dictionary = &mut scratch.dictionary;
    let is_coded = match (settings.codec, distinct) {
        (Some(codec), _) => {
            codec == ValueCodec::Dictionary
                && dictionary.build(values, Lane::widen, out, dictionary::VALUES_MAX)
        }
        (None, Some(distinct)) => {
            build_dictionary(values, coder.run_bytes(), distinct, out, dictionary)
        }
        (None, None) => false,
    };
    if is_coded {
        dictionary.write_prelude(<LaneOf<C>>::truncate, out);
    }
    encode_pages(values, coder, settings, scratch, out)
}

fn is_constant<T: PartialEq>(values: &[T]) -> bool {
    values
        .first()
        .is_some_and(|first| values.iter().all(|value| value == first))
}

/// Makes the chunk one value for all rows.
pub(crate) fn write_constant(value: &[u8], out: &mut EncodedChunk) {
    out.codec.kind = ChunkKind::Constant;
    out.bytes.extend_from_slice(value);
    out.prelude_bytes = integers::small(value.len());
    out.page_ends.resize(out.planned_pages(), out.prelude_bytes);
}

/// Numbers the values where that makes the chunk smaller; says whether it did. A sample has seen
/// `distinct` values, of which there may be more.
fn build_dictionary<L: Lane>(
    values: &[L],
    run_bytes: usize,
    distinct: usize,
    chunk: &EncodedChunk,
    dictionary: &mut ValueDictionary<u64>,
) -> bool {
    let pays = |distinct| dictionary_pays(values.len(), distinct, L::BYTES, run_bytes);
    let limit = (values.len() / 4).clamp(1, dictionary::VALUES_MAX);
    pays(distinct) && dictionary.build(values, Lane::widen, chunk, limit) && pays(dictionary.len())
}

/// Whether codes of `distinct` values take less than runs of `run_bytes`.
pub(crate) fn dictionary_pays(
    rows: usize,
    distinct: usize,
    value_bytes: usize,
    run_bytes: usize,
) -> bool {
    let runs = rows.div_ceil(PAGE_ROWS);
    let code_bits = usize::BITS - distinct.saturating_sub(1).leading_zeros();
    let run_codes_bytes = 8 + block_bytes(PAGE_ROWS, code_bits);
    let coded_bytes = 4 + distinct * value_bytes + runs * run_codes_bytes;
    // A look-up per row is slow to read: it must save a sixteenth.
    coded_bytes + coded_bytes / 16 < runs * run_bytes
}

fn encode_pages<C: PageCoder>(
    values: &[LaneOf<C>],
    coder: &mut C,
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
    let is_coded = out.codec.kind == ChunkKind::Dictionary;
    let rule = settings.stage_rule(50);
    let mut writer = PageWriter::new(out);
    let shuffled = if is_coded {
        None
    } else {
        shuffle::choose(values, coder.run_bytes(), settings, compressor)
    };
    for index in 0..out.planned_pages() {
        let rows = out.row_range(index);
        let page_values = &values[rows.clone()];
        let raw_bytes = size_of_val(page_values);
        if let Some(stage) = shuffled
            && writer.push_shuffled(stage, page_values, plain, compressor, out)?
        {
            continue;
        }
        page.clear();
        let codes = if is_coded {
            dictionary.codes_of(index, rows)
        } else {
            None
        };
        match codes {
            Some(codes) => dictionary::encode_codes(codes, integers, page),
            None => coder.encode(page_values, integers, page),
        }
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
    /// Lengths, codes or halves of a page.
    pub(crate) lanes: LongBuffer,
    /// Where the texts of a page lie in their dictionary.
    pub(crate) spans: LongBuffer,
    pub(crate) pco: PcoReader,
    pub(crate) texts: crate::bytes::TextReaders,
}

/// Where the rows of a page are to be found.
pub(crate) enum Source<'a> {
    /// All are the prelude.
    Constant,
    /// In the page, in this mode.
    Page(PageMode, Input<'a>),
}

/// Opens a page of any kind and checks that kind, prelude and mode go together.
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
        codec.kind != ChunkKind::Pages || prelude.is_empty(),
        "unexpected prelude",
    )?;
    let mut input = Input::new(decompressor.open(codec, page)?);
    let mode = PageMode::from_byte(input.read()?)?;
    let has_prelude = match mode {
        PageMode::Codes => codec.kind == ChunkKind::Dictionary,
        PageMode::Pco => codec.kind == ChunkKind::Pco,
        PageMode::Fsst => codec.kind == ChunkKind::Fsst,
        PageMode::Alphabet => codec.kind == ChunkKind::Alphabet,
        _ => true,
    };
    ensure(has_prelude, "a page mode without its prelude")?;
    Ok(Source::Page(mode, input))
}

/// How a type reads pages of one run, and values of these.
pub(crate) trait RunReader {
    type Number: Number;

    /// Reads a page of one run, or of values that are all the same or as they are.
    fn decode(
        mode: PageMode,
        input: Input<'_>,
        buffers: &mut [PageBuffer; 2],
        out: &mut [<Self::Number as Number>::Lane],
    ) -> Result<(), DecodeError>;

    /// One value of such a page of `rows` rows.
    fn value(
        mode: PageMode,
        input: Input<'_>,
        rows: usize,
        index: usize,
        buffers: &mut [PageBuffer; 2],
    ) -> Result<<Self::Number as Number>::Lane, DecodeError>;
}

/// Reads integers.
pub(crate) struct Integers<T>(std::marker::PhantomData<T>);

impl<T: Integer> RunReader for Integers<T> {
    type Number = T;

    #[inline]
    fn decode(
        mode: PageMode,
        input: Input<'_>,
        buffers: &mut [PageBuffer; 2],
        out: &mut [T::Lane],
    ) -> Result<(), DecodeError> {
        integers::decode_mode(mode, input, &mut buffers[0], out)
    }

    fn value(
        mode: PageMode,
        input: Input<'_>,
        rows: usize,
        index: usize,
        buffers: &mut [PageBuffer; 2],
    ) -> Result<T::Lane, DecodeError> {
        integers::value(mode, input, rows, index, buffers)
    }
}

/// Reads floats.
pub(crate) struct Floats<F>(std::marker::PhantomData<F>);

impl<F: Float> RunReader for Floats<F> {
    type Number = F;

    #[inline]
    fn decode(
        mode: PageMode,
        input: Input<'_>,
        buffers: &mut [PageBuffer; 2],
        out: &mut [F::Bits],
    ) -> Result<(), DecodeError> {
        floats::decode_mode::<F>(mode, input, buffers, out)
    }

    fn value(
        mode: PageMode,
        input: Input<'_>,
        rows: usize,
        index: usize,
        buffers: &mut [PageBuffer; 2],
    ) -> Result<F::Bits, DecodeError> {
        floats::value::<F>(mode, input, rows, index, buffers)
    }
}

type ReaderLane<R> = <<R as RunReader>::Number as Number>::Lane;

/// The value of a constant chunk.
pub(crate) fn read_constant<T: FromBytes>(prelude: &[u8]) -> Result<T, DecodeError> {
    T::read_from_bytes(prelude).map_err(|_| DecodeError::new("constant of the wrong length"))
}

/// Decodes a page.
pub(crate) fn decode_page<R: RunReader>(
    codec: CodecChain,
    prelude: &[u8],
    page: &[u8],
    scratch: &mut DecodeScratch,
    out: &mut [ReaderLane<R>],
) -> Result<(), DecodeError> {
    let DecodeScratch {
        decompressor,
        buffers,
        lanes,
        pco,
        ..
    } = scratch;
    match open_page(codec, prelude, page, decompressor)? {
        Source::Constant => {
            out.fill(read_constant(prelude)?);
            Ok(())
        }
        Source::Page(PageMode::Codes, input) => {
            dictionary::decode_values(prelude, input, &mut buffers[0], lanes, out)
        }
        Source::Page(PageMode::Pco, mut input) => {
            pco.decode::<R::Number>(prelude, input.take_rest(), out)
        }
        Source::Page(PageMode::Runs, input) => decode_long::<R>(input, buffers, out),
        Source::Page(mode, input) => R::decode(mode, input, buffers, out),
    }
}

/// Kept apart, so that the usual page of one run is read without a call.
#[inline(never)]
fn decode_long<R: RunReader>(
    input: Input<'_>,
    buffers: &mut [PageBuffer; 2],
    out: &mut [ReaderLane<R>],
) -> Result<(), DecodeError> {
    inner::decode_runs(input, out, |mode, input, out| {
        R::decode(mode, input, buffers, out)
    })
}

/// Decodes one value of a page of `rows` rows.
pub(crate) fn decode_value<R: RunReader>(
    codec: CodecChain,
    prelude: &[u8],
    page: &[u8],
    (rows, index): (usize, usize),
    scratch: &mut DecodeScratch,
) -> Result<ReaderLane<R>, DecodeError> {
    let DecodeScratch {
        decompressor,
        buffers,
        pco,
        ..
    } = scratch;
    match open_page(codec, prelude, page, decompressor)? {
        Source::Constant => read_constant(prelude),
        Source::Page(PageMode::Codes, input) => {
            dictionary::value(prelude, input, rows, index, buffers)
        }
        Source::Page(PageMode::Pco, mut input) => {
            pco.value::<R::Number>(prelude, input.take_rest(), rows, index)
        }
        Source::Page(PageMode::Runs, input) => {
            let run = Runs::read(input, rows)?.of_row(index)?;
            let at = index - run.rows.start;
            R::value(run.mode, run.input, run.rows.len(), at, buffers)
        }
        Source::Page(mode, input) => R::value(mode, input, rows, index, buffers),
    }
}
