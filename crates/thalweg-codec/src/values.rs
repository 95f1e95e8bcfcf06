//! Chunks of fixed-width values: what the pages of integers and floats share.
//!
//! Invariants: values are handled by their bits; a chunk whose values are all the same is its
//! prelude alone.

use zerocopy::IntoBytes;

use crate::chain::CodecChain;
use crate::chunk::EncodedChunk;
use crate::encode_scratch::{EncodeScratch, SharedScratch};
use crate::error::{DecodeError, EncodeError};
use crate::floats::{self, Float};
use crate::input::Input;
use crate::integers;
use crate::mode::PageMode;
use crate::number::{Integer, Number};
use crate::open_page::{DecodeScratch, Source, open_page};
use crate::packing::PageBuffer;
use crate::page_coder::{FloatCoder, IntegerCoder, LaneOf, PageCoder};
use crate::runs::Runs;
use crate::settings::Settings;
use crate::{constant, dictionary, inner, packed_pages, pco_pages};

/// Encodes integers with these bits into a chunk that is empty but for its type and pages.
pub(crate) fn encode_integers<T: Integer>(
    values: &[T::Lane],
    settings: &Settings,
    scratch: &mut EncodeScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    let coder = IntegerCoder::<T>::new(settings.level);
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
    let coder = FloatCoder::<F>::new(floats);
    encode_chunk(values, coder, settings, shared, out)
}

fn encode_chunk<C: PageCoder>(
    values: &[LaneOf<C>],
    mut coder: C,
    settings: &Settings,
    scratch: &mut SharedScratch,
    out: &mut EncodedChunk,
) -> Result<(), EncodeError> {
    if settings.codec.is_none() && constant::is_constant(values) {
        constant::write(values[0].as_bytes(), out);
        return Ok(());
    }
    if let Some(order) = pco_pages::choose(values, &mut coder, settings, scratch)? {
        coder.plan(values, settings, &mut scratch.sample);
        if pco_pages::encode(values, order, &mut coder, scratch, out)? {
            return Ok(());
        }
    }
    packed_pages::encode(values, &mut coder, settings, scratch, out)
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
            out.fill(constant::read(prelude)?);
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
        Source::Constant => constant::read(prelude),
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
